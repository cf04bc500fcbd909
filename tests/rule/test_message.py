"""MEM-16, part by part, on events rather than bytes; the vectors do the same from bytes."""

from __future__ import annotations

import json
import unicodedata

import orjson
from hypothesis import given
from hypothesis import strategies as st
from strategies import any_values, roles, scalars, texts

from worker.rule.content import to_text
from worker.rule.event import Event
from worker.rule.lexemes import Json, Number
from worker.rule.message import ROLES, WHITE_SPACE, Dropped, Message, OutputFormat, convert, encode

FORMATS: tuple[OutputFormat, ...] = ("both", "message", "messages")
messages = st.builds(Message, st.sampled_from(sorted(ROLES)), texts, st.none() | texts, st.booleans())


def _only_message(event: Event) -> Message:
    message = convert(event)
    assert isinstance(message, Message)
    return message


@given(any_values, roles, any_values)
def test_message_or_named_drop(text: Json, role: Json, tool_call_id: Json) -> None:
    """Part 2 and 6: the content is the text's coercion; an event without any is dropped, for one of two reasons."""
    decision = convert(Event(text, role, tool_call_id))
    content = to_text(text)
    if content is None:
        assert decision == Dropped("unserializable")
    elif content:
        assert isinstance(decision, Message)
        assert decision.content == content
    else:
        assert decision == Dropped("empty")


@given(any_values | roles)
def test_role(role: Json) -> None:
    """Part 4: one of four exact strings, else user; replaced is what was there and gave way."""
    message = _only_message(Event("a", role, None))
    known = isinstance(role, str) and not isinstance(role, Number) and role in ROLES
    assert message.role == (role if known else "user")
    assert message.role_replaced == (not known and role is not None)


@given(roles, any_values)
def test_id_only_on_tool(role: Json, tool_call_id: Json) -> None:
    """Part 5: on any other role the id is discarded."""
    message = _only_message(Event("a", role, tool_call_id))
    assert message.role == "tool" or message.tool_call_id is None


@given(any_values)
def test_id_is_a_trimmed_scalar(tool_call_id: Json) -> None:
    """Part 5: a scalar's text, trimmed; blank, no scalar or without UTF-8 it is omitted."""
    attached = _only_message(Event("a", "tool", tool_call_id)).tool_call_id
    text = None if isinstance(tool_call_id, (list, dict)) else to_text(tool_call_id)
    assert attached == ((text or "").strip(WHITE_SPACE) or None)


@given(scalars, st.text(st.sampled_from(WHITE_SPACE)), st.text(st.sampled_from(WHITE_SPACE)))
def test_white_space_around_an_id_is_no_part_of_it(core: Json, before: str, after: str) -> None:
    """Part 5: an id is the same with and without white space around it."""
    text = to_text(core) or ""
    padded = _only_message(Event("a", "tool", f"{before}{text}{after}"))
    assert padded == _only_message(Event("a", "tool", text))


def test_white_space_is_unicodes() -> None:
    """The separators that Unicode knows as such, and the control characters that its property list adds."""
    separators = {chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) in {"Zs", "Zl", "Zp"}}
    assert {*WHITE_SPACE} == separators | {*"\t\n\v\f\r\x85"}


@given(messages)
def test_encoded_shape(message: Message) -> None:
    """Part 1: the same row as a list of one and alone; compact, in order, the id last and only when there is one."""
    row = {"role": message.role, "content": message.content}
    if message.tool_call_id is not None:
        row["tool_call_id"] = message.tool_call_id
    shapes = {"both": {"messages": [row], "message": row}, "message": row, "messages": [row]}
    for output_format in FORMATS:
        encoded = encode(message, output_format)
        assert encoded == orjson.dumps(shapes[output_format])
        assert json.loads(encoded) == shapes[output_format]
