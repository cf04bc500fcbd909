"""The strict reader allows what RFC 8259 allows, keeps every digit, and the writer gives it all back."""

from __future__ import annotations

import json
import sys

import orjson
import pytest
from hypothesis import given
from strategies import any_values, containers, damaged, documents, spelled

from worker.rule.lexemes import Json, NotJsonError, Number, UnwritableError, read, write

DEEP = 100_000


def _refuse(word: str) -> Json:
    raise ValueError(word)


# The standard library's reader, made as strict as RFC 8259 and as careful with digits as ours.
_STANDARD = json.JSONDecoder(parse_int=Number, parse_float=Number, parse_constant=_refuse)


def _standard(text: str) -> Json:
    value: Json = _STANDARD.decode(text)
    return value


@given(spelled(any_values))
def test_any_spelling_is_read(drawn: tuple[Json, str]) -> None:
    """A value comes back equal, whatever blanks and escapes it was written with."""
    value, text = drawn
    assert read(text) == value


@given(spelled(any_values))
def test_numbers_are_told_from_strings(drawn: tuple[Json, str]) -> None:
    """Digits that were a number are written as a number, those of a string as a string."""
    value, text = drawn
    assert _types(read(text)) == _types(value)


def _types(value: Json) -> object:
    if isinstance(value, list):
        return [_types(item) for item in value]
    if isinstance(value, dict):
        return [_types(item) for item in value.values()]
    return type(value)


@given(damaged(documents))
def test_standard_library_agrees_on_damaged_json(data: bytes) -> None:
    """What the standard library's reader accepts we accept, equal; what it refuses we refuse."""
    text = data.decode(errors="replace")
    try:
        expected = _standard(text)
    except ValueError:
        with pytest.raises(NotJsonError):
            read(text)
    else:
        assert read(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "-",
            "01",
            "-01",
            "1.",
            ".5",
            "1e",
            "1e+",
            "+1",
            "0x1",
            "1_0",
            "\u0661",
            "NaN",
            "Infinity",
            "-Infinity",
        ),
        *("nul", "nulls", "True", "'a'", '"a', '"\\', '"\\u12', '"\\u+123"', '"\\x41"', '"\t"', '"\0"', "[", "]", "[1"),
        *("[1,", "[,1]", "[1,]", "[1 2]", "[1}", "{", "}", '{"a"', '{"a":', '{"a":1', '{"a":1,', '{"a":1,}', '{"a",1}'),
        *("{1:1}", "{a:1}", '{"a":1]', "[] []", "[]\0", "\0", "\ufeff[]", "\xa0[]", "\x0b[]", "[]//", "[1,\x0c2]"),
        *('{"a"\xa0:1}', "{,}", '{"a":1 "b":2}', "[1 ,", '{"a" :'),
    ],
)
def test_refused(text: str) -> None:
    """Nothing beyond RFC 8259 is let in."""
    with pytest.raises(NotJsonError):
        read(text)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"secret"}', "the JSON breaks at character 10"),
        ("[secret]", "the JSON breaks at character 2"),
        ('["secret', "the JSON ends too early"),
        ('["secret"', "the JSON ends too early"),
        ('"secret\n"', "the JSON breaks at character 8"),
        ('"secret" x', "the JSON breaks at character 10"),
    ],
)
def test_complaint_names_the_place_and_not_the_text(text: str, complaint: str) -> None:
    """The complaint helps to find the place in the value and can stand in a log."""
    with pytest.raises(NotJsonError) as raised:
        read(text)
    assert str(raised.value) == complaint


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
def test_any_depth_is_read(opening: str, closing: str) -> None:
    """Depth costs memory, never the interpreter's stack."""
    value = read(f"{opening * DEEP}1{closing * DEEP}")
    depth = 0
    while isinstance(value, (list, dict)):
        value = value[0] if isinstance(value, list) else value["a"]
        depth += 1
    assert value == "1"
    assert depth == DEEP * len(closing)


def test_endless_opening_is_refused() -> None:
    """A value that only ever opens is refused like any that ends too early."""
    with pytest.raises(NotJsonError):
        read("[" * DEEP)


@given(containers)
def test_what_is_written_reads_back(value: list[Json] | dict[str, Json]) -> None:
    """Written and read again, a value is equal, its digits and the order of its members too."""
    again = read(write(value, 99))
    assert again == value
    assert _orders(again) == _orders(value)


def _orders(value: Json) -> object:
    if isinstance(value, list):
        return [_orders(item) for item in value]
    if isinstance(value, dict):
        return [(name, _orders(item)) for name, item in value.items()]
    return value


def test_written_as_orjson_does() -> None:
    """Every character that anyone escapes is escaped, or not, as orjson has it."""
    codes = [*range(0x3100), *range(0xD7F0, 0xD800), *range(0xE000, 0xE010), *range(0xFE00, 0x10010), sys.maxunicode]
    characters = [chr(code) for code in codes]
    assert write([*characters], 1) == orjson.dumps(characters).decode()


def test_compact() -> None:
    """No blank is written that was not asked for."""
    source = ' { "b" : [ 1.0 , null , true , false , { } , [ ] ] , "a" : { "\\u20ac" : "" } } '
    value = read(source)
    assert isinstance(value, dict)
    assert write(value, 3) == '{"b":[1.0,null,true,false,{},[]],"a":{"€":""}}'


@pytest.mark.parametrize("value", [["\ud800"], ["a\udfff"], {"\ud800": "a"}, {"a": [{"b": "\udfff\ud800"}]}])
def test_lone_surrogate_is_unwritable(value: list[Json] | dict[str, Json]) -> None:
    """A lone surrogate has no UTF-8, wherever it stands."""
    with pytest.raises(UnwritableError):
        write(value, 9)


@pytest.mark.parametrize("inner", [[], {}])
def test_depth_limit(inner: list[Json] | dict[str, Json]) -> None:
    """The innermost array or object counts, also when it is empty."""
    value: list[Json] = [[inner]]
    assert write(value, 3) == f"[[{orjson.dumps(inner).decode()}]]"
    with pytest.raises(UnwritableError):
        write(value, 2)
