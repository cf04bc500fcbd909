"""A value becomes an event or a named reason, whichever of the two readers looked at it."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import damaged, event_documents, events, record_values, spelled, texts

from worker.rule.event import Event, Fields, Unreadable, _read_strictly, read_json, read_text
from worker.rule.lexemes import Json, Number

FIELDS = Fields()


@given(spelled(events))
def test_members_are_read(drawn: tuple[Json, str]) -> None:
    """The three members come back as they were written, digits and all."""
    value, text = drawn
    assert isinstance(value, dict)
    expected = Event(value.get("text"), value.get("role"), value.get("tool_call_id"))
    event = read_json(text.encode(), FIELDS)
    assert event == expected
    assert [type(member) for member in event] == [type(member) for member in expected]


@given(st.one_of(record_values, damaged(event_documents)).filter(lambda value: value is not None))
def test_both_readers_agree(value: bytes) -> None:
    """What orjson decides alone, the strict reader would have decided alike; and a refusal is the same refusal."""
    assert read_json(value, FIELDS) == _read_strictly(value, FIELDS)


@given(damaged(event_documents))
def test_bytes_that_are_not_utf8_come_first(value: bytes) -> None:
    """A stray byte anywhere makes the value invalid UTF-8, whatever else is wrong with it; nothing else does."""
    event = read_json(value, FIELDS)
    try:
        value.decode()
    except UnicodeDecodeError:
        assert isinstance(event, Unreadable)
        assert event.reason == "invalid-utf8"
    else:
        assert not isinstance(event, Unreadable) or event.reason in {"invalid-json", "not-an-object"}


@given(st.dictionaries(texts, texts))
def test_orjson_reads_plain_objects_as_we_do(value: dict[str, str]) -> None:
    """An object of strings that orjson wrote is read the same by both."""
    data = orjson.dumps(value)
    names = Fields(*[*value, "text", "role", "tool_call_id"][:3])
    expected = Event(value.get(names.text), value.get(names.role), value.get(names.tool_call_id))
    assert read_json(data, names) == _read_strictly(data, names) == expected


def test_names_are_configurable() -> None:
    """Other names are read, and the usual ones are then nobody's."""
    names = Fields(text="body", role="author", tool_call_id="ref")
    value = b'{"text":"no","role":"no","tool_call_id":"no","body":"b","author":"tool","ref":7}'
    assert read_json(value, names) == Event("b", "tool", Number("7"))
    headers = [("role", b"no"), ("author", b"tool"), ("ref", b"7")]
    assert read_text(b"b", headers, names) == Event("b", "tool", "7")


@pytest.mark.parametrize(
    ("value", "reason", "detail"),
    [
        (b'{"text":"secret" "secret"}', "invalid-json", "the JSON breaks at character 18"),
        (b'{"text":"secret\xff"}', "invalid-utf8", "byte 16 is not UTF-8"),
        (b'["secret"]', "not-an-object", "the JSON is not an object"),
        (b"1e999", "not-an-object", "the JSON is not an object"),
        (b"\xef\xbb\xbf{}", "invalid-json", "a UTF-8 byte order mark stands before the JSON"),
        ("{}".encode("utf-16"), "invalid-utf8", "UTF-16 with its byte order mark"),
        (b"\xfe\xff\0{\0}", "invalid-utf8", "UTF-16 with its byte order mark"),
        ("{}".encode("utf-32"), "invalid-utf8", "UTF-32 with its byte order mark"),
        (b"\x1f\x8b\x08secret", "invalid-utf8", "gzip data"),
        (b"\x28\xb5\x2f\xfdsecret", "invalid-utf8", "zstd data"),
        (
            b'\0\0\0\0\x2a{"text":"secret"}',
            "invalid-json",
            "a zero byte stands first, as in a schema registry's framing, UTF-16 or UTF-32",
        ),
    ],
)
def test_reasons_a_person_can_act_on(value: bytes, reason: str, detail: str) -> None:
    """The reason has a sentence that says where or what, and never quotes the value."""
    assert read_json(value, FIELDS) == (reason, detail)


def test_deep_member_that_nobody_reads() -> None:
    """An event is read however deep its other members are."""
    deep = b"[" * 100_000 + b"]" * 100_000
    assert read_json(b'{"trace":' + deep + b',"text":"a"}', FIELDS) == Event("a", None, None)


@given(texts)
def test_text_format_takes_the_value_as_it_is(text: str) -> None:
    """UTF-8 text is the event's text, code point for code point."""
    assert read_text(text.encode(), (), FIELDS) == Event(text, None, None)


def test_text_format_says_which_byte() -> None:
    """A value that is no UTF-8 has no text."""
    assert read_text(b"caf\xe9", (), FIELDS) == Unreadable("invalid-utf8", "byte 4 is not UTF-8")


@pytest.mark.parametrize(
    ("headers", "role"),
    [
        ([], None),
        ([("Role", b"tool")], None),
        ([("role", b"tool")], "tool"),
        ([("role", b"")], ""),
        ([("role", b"tool"), ("role", b"user"), ("trace", b"\xff")], "user"),
        ([("role", b"tool"), ("role", None)], None),
        ([("role", b"tool"), ("role", b"\xff")], None),
        ([("role", b"\xff"), ("role", b"tool")], "tool"),
    ],
)
def test_last_header_speaks(headers: list[tuple[str, bytes | None]], role: str | None) -> None:
    """The last header of a name counts; when that is null or no UTF-8, the role is absent."""
    assert read_text(b"a", headers, FIELDS) == Event("a", role, None)
