"""A record's value, read as an event, or the reason why it is none.

Bytes in, ``Event`` or ``Unreadable`` out; what becomes of the event is MEM-16's business (``message.py``). A bad value
is a value with a reason, never an exception. orjson reads what is plain; where it refuses, or would lose the digits of
a number, the strict reader (``lexemes.py``) has the last word, so that its limits are not ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import orjson

from worker.rule import lexemes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worker.rule.lexemes import Json

Headers: TypeAlias = "Sequence[tuple[str, bytes | None]]"
UnreadableReason = Literal["invalid-utf8", "invalid-json", "not-an-object", "too-large", "rejected"]


@dataclass(frozen=True, slots=True)
class Fields:
    """The names of the three members (or, in text format, of the two headers) that are read; all others are not."""

    text: str = "text"
    role: str = "role"
    tool_call_id: str = "tool_call_id"


class Event(NamedTuple):
    """What a record says, as JSON values: absent is None, a number keeps its digits (``lexemes.Number``)."""

    text: Json
    role: Json
    tool_call_id: Json


class Unreadable(NamedTuple):
    """A value that goes to the dead letters: why, and a short sentence that never quotes the value."""

    reason: UnreadableReason
    detail: str


# What people send by mistake, told apart by its first bytes so that the reason is one they can act on.
_MARKS = (
    (b"\xef\xbb\xbf", "a UTF-8 byte order mark stands before the JSON"),
    (b"\xff\xfe\x00\x00", "UTF-32 with its byte order mark"),
    (b"\x00\x00\xfe\xff", "UTF-32 with its byte order mark"),
    (b"\xff\xfe", "UTF-16 with its byte order mark"),
    (b"\xfe\xff", "UTF-16 with its byte order mark"),
    (b"\x1f\x8b", "gzip data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"\x00", "a zero byte stands first, as in a schema registry's framing, UTF-16 or UTF-32"),
)
# orjson gives these back as they were sent. A number may have lost digits, also inside an array or object.
_EXACT = frozenset({str, bool, type(None)})


def read_json(value: bytes, fields: Fields) -> Event | Unreadable:
    """Read one JSON object in UTF-8 (RFC 8259); a member repeated: the last wins."""
    try:
        document = orjson.loads(value)
    except orjson.JSONDecodeError:
        return _read_strictly(value, fields)
    if not isinstance(document, dict):
        return _not_an_object()
    event = _event(document, fields)
    if _EXACT.issuperset(map(type, event)):
        return event
    return _read_strictly(value, fields)


def read_text(value: bytes, headers: Headers, fields: Fields) -> Event | Unreadable:
    """Take the value as the text it is, in UTF-8; role and tool call id come from the headers of these names."""
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        return _not_utf8(value, error)
    return Event(text, _header(headers, fields.role), _header(headers, fields.tool_call_id))


def _read_strictly(value: bytes, fields: Fields) -> Event | Unreadable:
    # UTF-8 is looked at first and as a whole: a stray byte makes the value unreadable wherever it stands.
    try:
        document = lexemes.read(value.decode())
    except UnicodeDecodeError as error:
        return _not_utf8(value, error)
    except lexemes.NotJsonError as error:
        return Unreadable("invalid-json", _mark(value) or str(error))
    if not isinstance(document, dict):
        return _not_an_object()
    return _event(document, fields)


def _event(document: dict[str, Json], fields: Fields) -> Event:
    get = document.get
    return Event(get(fields.text), get(fields.role), get(fields.tool_call_id))


def _header(headers: Headers, name: str) -> str | None:
    """Let the last header of that name speak; null or not UTF-8, it says nothing."""
    for key, value in reversed(headers):
        if key == name:
            try:
                return None if value is None else value.decode()
            except UnicodeDecodeError:
                return None
    return None


def _not_utf8(value: bytes, error: UnicodeDecodeError) -> Unreadable:
    return Unreadable("invalid-utf8", _mark(value) or f"byte {error.start + 1} is not UTF-8")


def _not_an_object() -> Unreadable:
    return Unreadable("not-an-object", "the JSON is not an object")


def _mark(value: bytes) -> str | None:
    return next((meaning for mark, meaning in _MARKS if value.startswith(mark)), None)
