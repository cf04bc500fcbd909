"""What the value of a setting must be: a kind reads the text, and says in words what it takes.

Pure but for ``FILE``, which opens the file. The words are what an error and the README show, so they stand beside
the code that obeys them.
"""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable

_KAFKA_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_HOST = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,252}")
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m)")
_DECIMAL = re.compile(r"[0-9]{1,9}")
MAX_PORT = 65535


class Kind(NamedTuple):
    """What a value must be. ``parse`` raises ValueError or OSError; a person is told ``must``."""

    must: str
    parse: Callable[[str], object]
    show: Callable[[Any], str] = str
    choices: tuple[str, ...] = ()


def one_of(literal: object) -> Kind:
    """Take one of a Literal's strings, in any case: WORKER_LOG_LEVEL=INFO is no mistake worth a restart."""
    choices: tuple[str, ...] = get_args(literal)
    by_lower = {choice.lower(): choice for choice in choices}

    def parse(text: str) -> str:
        if text.lower() not in by_lower:
            raise ValueError
        return by_lower[text.lower()]

    return Kind(f"{', '.join(choices[:-1])} or {choices[-1]}", parse, choices=choices)


def whole(low: int, high: int) -> Kind:
    """Take a whole number in ASCII digits; ``int`` alone would take `` 1_0 ``."""

    def parse(text: str) -> int:
        if not _DECIMAL.fullmatch(text) or not low <= int(text) <= high:
            raise ValueError
        return int(text)

    return Kind(f"a whole number from {low} to {high}", parse)


def duration(low: str, high: str) -> Kind:
    """Take a number with its unit, and make it seconds."""

    def parse(text: str) -> float:
        seconds = _seconds(text)
        if not _seconds(low) <= seconds <= _seconds(high):
            raise ValueError
        return seconds

    return Kind(f"from {low} to {high}, a number with ms, s or m", parse, _show_seconds)


def _seconds(text: str) -> float:
    match = _DURATION.fullmatch(text)
    if not match:
        raise ValueError
    number = float(match[1])
    return {"ms": number / 1000, "s": number, "m": number * 60}[match[2]]


def _show_seconds(seconds: float) -> str:
    return f"{seconds:.6f}".rstrip("0").rstrip(".") + "s"


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError
    return text.lower() == "true"


def is_kafka_name(text: str) -> bool:
    """Whether Kafka takes this as the name of a topic or of a static member."""
    return _KAFKA_NAME.fullmatch(text) is not None and text not in (".", "..")


def _kafka_name(text: str) -> str:
    if not is_kafka_name(text):
        raise ValueError
    return text


def _plain(text: str) -> str:
    if not text or not text.isprintable() or text != text.strip():
        raise ValueError
    return text


def _secret(text: str) -> str:
    text.encode()  # bytes of the environment that are no UTF-8 come as lone surrogates
    if not text:
        raise ValueError
    return text


def _host(text: str) -> str:
    if not _HOST.fullmatch(text):
        ipaddress.IPv6Address(text)
    return text


def _brokers(text: str) -> tuple[str, ...]:
    brokers = tuple(part.strip() for part in text.split(","))
    for broker in brokers:
        host, _, port = broker.rpartition(":")
        if not _DECIMAL.fullmatch(port) or not 1 <= int(port) <= MAX_PORT:
            raise ValueError
        if host.startswith("[") and host.endswith("]"):
            ipaddress.IPv6Address(host[1:-1])
        elif not _HOST.fullmatch(host):
            raise ValueError
    return brokers


def _readable(text: str) -> str:
    if not text.isprintable():  # a name that no terminal could show
        raise ValueError
    with Path(text).open("rb"):
        return text


def _url(text: str) -> str:
    parts = urlsplit(_plain(text))
    # A password in it would be shown wherever the setting is.
    if parts.scheme not in ("https", "http") or not _HOST.fullmatch(parts.hostname or "") or "@" in parts.netloc:
        raise ValueError
    _ = parts.port  # raises ValueError where it is none
    return text


KAFKA_NAME = Kind("1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-', but not '.' or '..'", _kafka_name)
NAME = Kind("a name: not empty, no control characters, no blanks around it", _plain)
BOOLEAN = Kind("true or false", _boolean, lambda value: str(value).lower(), ("true", "false"))
BROKERS = Kind(
    "host:port, or several with commas between, each port from 1 to 65535, an IPv6 host in brackets",
    _brokers,
    ",".join,
)
LISTEN = Kind("a host name or address without a port, such as 127.0.0.1, 0.0.0.0 or ::", _host)
FILE = Kind("a file that can be read", _readable)
SECRET = Kind("UTF-8 text and not empty", _secret)
URL = Kind("an address that begins with https:// or http://, without a user or password in it", _url)
