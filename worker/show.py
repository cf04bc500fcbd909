"""Payloads for people: bytes as text where they are text, as hex where not, and never as commands to a terminal.

A key, a value, a header or a name may hold anything: escape sequences that move the cursor or set a title, line breaks
that fake a line, marks that turn the reading direction. What is not printable is shown as an escape. A backslash stays
as it is, so that JSON stays readable; ``--json`` is the exact form.
"""

from __future__ import annotations

import datetime as dt

#: Characters of a payload that are shown unless all are asked for.
LIMIT = 2000
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def escaped(text: str) -> str:
    """The text with every character spelt out that is not printable; a blank is."""
    return text if text.isprintable() else "".join(_escape(character) for character in text)


def _escape(character: str) -> str:
    if character.isprintable():
        return character
    if character in _SHORT:
        return _SHORT[character]
    code = ord(character)
    if code <= 0xFF:  # noqa: PLR2004 - two digits hold it
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004 - four do


def payload(data: bytes | None, *, full: bool = False) -> str:
    """Bytes for a terminal, cut where they are long."""
    if data is None:
        return "null"
    try:
        text = escaped(data.decode())
    except UnicodeDecodeError:
        text = data.hex(" ")
    if full or len(text) <= LIMIT:
        return text
    return f"{text[:LIMIT]}… ({len(text) - LIMIT:,} more characters: --full shows them)"


def kind(data: bytes | None) -> str:
    """How many bytes, and what ``payload`` shows them as."""
    if data is None:
        return "null"
    try:
        data.decode()
    except UnicodeDecodeError:
        return f"{len(data):,} bytes, not UTF-8, in hex"
    return f"{len(data):,} bytes, UTF-8"


def for_json(data: bytes | None) -> dict[str, str] | None:
    """Bytes for a JSON document: text if that is exact, else hex."""
    if data is None:
        return None
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"hex": data.hex()}


def when(timestamp: int) -> str:
    """Milliseconds since 1970 as RFC 3339, in UTC; the number where there is no such date."""
    try:
        moment = dt.datetime.fromtimestamp(timestamp // 1000, dt.UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{timestamp % 1000:03d}Z"
