"""JSON read so that nothing is lost, and written back compact.

Here live a strict RFC 8259 reader that keeps a number's own digits, and the writer of its values. What the values mean
stands elsewhere. Both are loops with a stack of their own, never recursive: a value nested a hundred thousand deep in a
member that nobody reads is still an event. They are the exact way, not the fast one: orjson reads what is plain.
"""

from __future__ import annotations

import re
from json import decoder
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import orjson

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Json: TypeAlias = "bool | str | list[Json] | dict[str, Json] | None"


class Number(str):
    """A JSON number as its source spells it: ``1.10`` and ``1e400`` have no float that would give them back."""

    __slots__ = ()


class NotJsonError(ValueError):
    """The text is no JSON; the message says where it breaks and never quotes it."""

    def __init__(self, text: str, position: int) -> None:
        """Name the place, counted from 1; ``text`` is only asked for its length."""
        where = f"breaks at character {position + 1}" if position < len(text) else "ends too early"
        super().__init__(f"the JSON {where}")


class UnwritableError(ValueError):
    """The value has no JSON text in UTF-8, or is nested deeper than allowed."""


# An end mark spares a length check at every character: a NUL stands nowhere in JSON, not even in a string.
_END = "\0"
_BLANKS = " \t\n\r"
_skip_blanks = re.compile(f"[{_BLANKS}]*").match
_match_number = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?").match
# The standard library's own scanner, in C: from the character after the opening quote to the one after the closing.
_scan_string: Callable[[str, int], tuple[str, int]] = decoder.scanstring  # type: ignore[attr-defined] # not in typeshed
_WORDS: dict[str, tuple[str, bool | None]] = {"t": ("true", True), "f": ("false", False), "n": ("null", None)}


class _OpenArray:
    """An array whose end has not been met yet."""

    closing: ClassVar[str] = "]"

    def __init__(self) -> None:
        self.value: list[Json] = []
        self.add = self.value.append

    def before_item(self, text: str, position: int) -> int:  # noqa: ARG002 (the same question as to an object)
        """Return the position unchanged: nothing stands before an item."""
        return position


class _OpenObject:
    """An object whose end has not been met yet, and the name of the member that comes next."""

    closing: ClassVar[str] = "}"

    def __init__(self) -> None:
        self.value: dict[str, Json] = {}
        self._name = ""

    def add(self, item: Json) -> None:
        """Let the last value of a repeated member win, in the place of the first, as orjson and ECMAScript do."""
        self.value[self._name] = item

    def before_item(self, text: str, position: int) -> int:
        """Read the name and its colon; return where the member's value starts."""
        if text[position] != '"':
            raise NotJsonError(text[:-1], position)
        self._name, position = _read_string(text, position)
        position = _after_blanks(text, position)
        if text[position] != ":":
            raise NotJsonError(text[:-1], position)
        return _after_blanks(text, position + 1)


def read(source: str) -> Json:
    """Read one JSON text; raise ``NotJsonError`` for anything RFC 8259 does not allow.

    An escaped lone surrogate is legal JSON and comes back as such: whether it can be written is another question.
    """
    text = source + _END
    enclosing: list[_OpenArray | _OpenObject] = []
    position = _after_blanks(text, 0)
    while True:
        character = text[position]
        if character in "[{":
            opened = _OpenArray() if character == "[" else _OpenObject()
            position = _after_blanks(text, position + 1)
            if text[position] != opened.closing:
                enclosing.append(opened)
                position = opened.before_item(text, position)
                continue
            value: Json = opened.value
            position += 1
        else:
            value, position = _read_scalar(text, position)
        # The value is whole. It may be the last one of what encloses it, and that the last one of its own.
        while enclosing:
            innermost = enclosing[-1]
            innermost.add(value)
            position = _after_blanks(text, position)
            if text[position] == ",":
                position = innermost.before_item(text, _after_blanks(text, position + 1))
                break
            if text[position] != innermost.closing:
                raise NotJsonError(source, position)
            value = enclosing.pop().value
            position += 1
        else:
            position = _after_blanks(text, position)
            if position != len(source):
                raise NotJsonError(source, position)
            return value


def _after_blanks(text: str, position: int) -> int:
    """Most JSON is compact, so look before a match object is made."""
    if text[position] not in _BLANKS:
        return position
    match = _skip_blanks(text, position)
    return match.end() if match else position


def _read_string(text: str, position: int) -> tuple[str, int]:
    try:
        return _scan_string(text, position + 1)
    except decoder.JSONDecodeError as error:
        raise NotJsonError(text[:-1], error.pos) from None


def _read_scalar(text: str, position: int) -> tuple[Json, int]:
    character = text[position]
    if character == '"':
        return _read_string(text, position)
    if number := _match_number(text, position):
        return Number(number[0]), number.end()
    if character in _WORDS:
        word, value = _WORDS[character]
        if text.startswith(word, position):
            return value, position + len(word)
    raise NotJsonError(text[:-1], position)


def write(value: list[Json] | dict[str, Json], max_depth: int) -> str:
    """Write compact JSON: members in order, digits kept, nothing escaped that need not be.

    Raise ``UnwritableError`` for a lone surrogate, and for an array or object below ``max_depth`` others.
    """
    levels: list[tuple[Iterator[tuple[bytes, Json]], bytes]] = []
    pieces: list[bytes] = []
    _open(value, levels, pieces)
    while levels:
        items, closing = levels[-1]
        for before, item in items:
            pieces.append(before)
            if isinstance(item, (list, dict)):
                if len(levels) == max_depth:
                    raise UnwritableError("nested too deep")
                _open(item, levels, pieces)
                break
            pieces.append(_write_scalar(item))
        else:
            levels.pop()
            pieces.append(closing)
    return b"".join(pieces).decode()


def _open(
    value: list[Json] | dict[str, Json],
    levels: list[tuple[Iterator[tuple[bytes, Json]], bytes]],
    pieces: list[bytes],
) -> None:
    if isinstance(value, dict):
        pieces.append(b"{")
        levels.append((_members(value), b"}"))
    else:
        pieces.append(b"[")
        levels.append((_items(value), b"]"))


def _members(value: dict[str, Json]) -> Iterator[tuple[bytes, Json]]:
    comma = b""
    for name, item in value.items():
        yield comma + _write_scalar(name) + b":", item
        comma = b","


def _items(value: list[Json]) -> Iterator[tuple[bytes, Json]]:
    comma = b""
    for item in value:
        yield comma, item
        comma = b","


def _write_scalar(value: bool | str | None) -> bytes:  # noqa: FBT001 (a JSON value, not a flag)
    if isinstance(value, Number):
        return value.encode()
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        raise UnwritableError("a lone surrogate") from None
