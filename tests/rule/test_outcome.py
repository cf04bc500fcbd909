"""Every record has one outcome, in order, alone or in company; and the explanation says what happened."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from replay import Record, Vector, load
from strategies import any_texts, event_documents, events, records, roles, spelled, texts

from worker.rule.event import Event, Fields, Unreadable, read_json, read_text
from worker.rule.message import Dropped, Message, OutputFormat, convert, encode
from worker.rule.outcome import InputFormat, Outcome, Rule

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.rule.lexemes import Json

VECTORS = load()
INPUT_FORMATS: tuple[InputFormat, ...] = ("json", "text")
OUTPUT_FORMATS: tuple[OutputFormat, ...] = ("both", "message", "messages")
RULES = {"json": Rule(), "text": Rule("text")}
_ROW_OF: dict[OutputFormat, Callable[[Any], dict[str, str]]] = {
    "both": lambda document: document["message"],
    "message": lambda document: document,
    "messages": lambda document: document[0],
}
formats = st.tuples(st.sampled_from(INPUT_FORMATS), st.sampled_from(OUTPUT_FORMATS))


def _rule(vector: Vector) -> Rule:
    return RULES["text" if vector.in_text_format else "json"]


def _check(vector: Vector, outcome: Outcome, *, role_replaced: bool) -> None:
    if isinstance(outcome, bytes):
        assert vector.expect == "message"
        assert json.loads(outcome) == {"messages": [vector.message], "message": vector.message}
        assert vector.role_replaced in {role_replaced, None}
    else:
        assert vector.expect == ("dropped" if isinstance(outcome, Dropped) else "dead-letter")
        assert vector.reason in {outcome.reason, None}
        assert not role_replaced


@pytest.mark.parametrize("vector", VECTORS, ids=[vector.name for vector in VECTORS])
def test_vector_alone(vector: Vector) -> None:
    """Each vector, alone, has the outcome it promises."""
    outcomes = _rule(vector).outcomes([vector.record])
    (outcome,) = outcomes.each
    _check(vector, outcome, role_replaced=outcomes.roles_replaced == {0})


@pytest.mark.parametrize("size", [2, 3, 7, len(VECTORS)])
@pytest.mark.parametrize("input_format", INPUT_FORMATS)
def test_vectors_in_batches(input_format: InputFormat, size: int) -> None:
    """The vectors have the same outcomes in one batch, or split across several."""
    vectors = [vector for vector in VECTORS if vector.in_text_format == (input_format == "text")]
    for start in range(0, len(vectors), size):
        batch = vectors[start : start + size]
        outcomes = RULES[input_format].outcomes(vector.record for vector in batch)
        for index, (vector, outcome) in enumerate(zip(batch, outcomes.each, strict=True)):
            _check(vector, outcome, role_replaced=index in outcomes.roles_replaced)


def test_vectors_cover_the_rule() -> None:
    """Every part of the rule that decides something has a vector of its own."""
    assert {f"MEM-16 ({part})" for part in (1, 2, 4, 5, 6)} <= {vector.rule for vector in VECTORS}


@given(st.lists(records, max_size=8), formats)
def test_each_record_has_its_own_outcome(batch: list[Record], chosen: tuple[InputFormat, OutputFormat]) -> None:
    """A batch is no more than its records: one outcome each, in order, the same as alone, whatever the bytes."""
    rule = Rule(*chosen)
    together = rule.outcomes(batch)
    alone = [rule.outcomes([record]) for record in batch]
    assert together.each == [outcomes.each[0] for outcomes in alone]
    assert together.roles_replaced == {index for index, outcomes in enumerate(alone) if outcomes.roles_replaced}


@given(records, formats)
def test_the_short_way_is_the_long_way(record: Record, chosen: tuple[InputFormat, OutputFormat]) -> None:
    """What the hot loop does in place is what reading, converting and encoding do one after the other."""
    input_format, output_format = chosen
    outcomes = Rule(*chosen).outcomes([record])
    assert (outcomes.each[0], bool(outcomes.roles_replaced)) == _step_by_step(record, input_format, output_format)


def _step_by_step(record: Record, input_format: InputFormat, output_format: OutputFormat) -> tuple[Outcome, bool]:
    if record.value is None:
        return Dropped("tombstone"), False
    if input_format == "json":
        event = read_json(record.value, Fields())
    else:
        event = read_text(record.value, record.headers, Fields())
    decision = convert(event) if isinstance(event, Event) else event
    if isinstance(decision, Message):
        return encode(decision, output_format), decision.role_replaced
    return decision, False


@given(spelled(events).map(lambda drawn: drawn[1].encode()))
def test_any_object_is_a_message_or_a_drop(value: bytes) -> None:
    """No JSON object is a dead letter."""
    (outcome,) = RULES["json"].outcomes([Record(value)]).each
    assert isinstance(outcome, (bytes, Dropped))


@given(texts.filter(bool), roles, any_texts)
def test_text_survives(text: str, role: Json, tool_call_id: str) -> None:
    """From the record's bytes to the output's, no code point is added, lost or changed."""
    value = json.dumps({"text": text, "role": role, "tool_call_id": tool_call_id}).encode()
    (outcome,) = RULES["json"].outcomes([Record(value)]).each
    assert isinstance(outcome, bytes)
    assert json.loads(outcome)["message"]["content"] == text


@given(event_documents, st.sampled_from(OUTPUT_FORMATS))
def test_output_has_the_exact_shape(value: bytes, output_format: OutputFormat) -> None:
    """An output value is compact JSON of the one shape that its format has."""
    (outcome,) = Rule(output_format=output_format).outcomes([Record(value)]).each
    if isinstance(outcome, Dropped):
        return
    assert isinstance(outcome, bytes)
    document = orjson.loads(outcome)
    row = _ROW_OF[output_format](document)
    shapes = {"both": {"messages": [row], "message": row}, "message": row, "messages": [row]}
    assert outcome == orjson.dumps(shapes[output_format])
    assert list(row) in (["role", "content"], ["role", "content", "tool_call_id"])
    assert row["content"]
    assert row["role"] in {"user", "assistant", "system", "tool"}
    assert all(isinstance(member, str) for member in row.values())


@given(records, formats)
def test_explanation_agrees(record: Record, chosen: tuple[InputFormat, OutputFormat]) -> None:
    """The explanation tells of the outcome that the record really has."""
    rule = Rule(*chosen)
    outcomes = rule.outcomes([record])
    (outcome,) = outcomes.each
    explanation = rule.explain(record.value, record.headers)
    if isinstance(outcome, bytes):
        assert explanation[:2] == ("message", None)
        assert explanation.record == outcome
        assert ("MEM-16 (4) role replaced by user" in explanation.rule) == bool(outcomes.roles_replaced)
        assert ("MEM-16 (5) tool call id attached" in explanation.rule) == (b'"tool_call_id":"' in outcome)
    else:
        kind = "dead-letter" if isinstance(outcome, Unreadable) else "dropped"
        assert explanation == (kind, outcome.reason, explanation.rule, None)


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (None, "MEM-16 (6) a null value carries no content"),
        ("{}", "MEM-16 (6) empty content emits nothing"),
        ('{"text":"\\ud800"}', "MEM-16 (2) unserializable content is empty; MEM-16 (6) empty content emits nothing"),
        ('{"text":"a","role":"user"}', "MEM-16 (1) text and role became one message"),
        ('{"text":"a"}', "MEM-16 (4) role absent, so user"),
        ('{"text":"a","role":"ai"}', "MEM-16 (4) role replaced by user"),
        ('{"text":1,"role":"ai"}', "MEM-16 (2) scalar cast to text; MEM-16 (4) role replaced by user"),
        ('{"text":true,"role":"user"}', "MEM-16 (2) scalar cast to text"),
        ('{"text":[],"role":"user"}', "MEM-16 (2) non-scalar serialized to text"),
        ('{"text":"a","role":"tool","tool_call_id":"c"}', "MEM-16 (5) tool call id attached"),
        ('{"text":"a","role":"tool","tool_call_id":[]}', "MEM-16 (5) tool call id blank or no scalar, so omitted"),
        (
            '{"text":"a","role":"user","tool_call_id":"c"}',
            "MEM-16 (5) tool call id discarded: the role is not tool",
        ),
        ("[]", "RFC 8259 (4) an event is an object: the JSON is not an object"),
        ("{", "RFC 8259 (2) the value is one JSON text: the JSON ends too early"),
        ("\ufeff{}", "RFC 8259 (2) the value is one JSON text: a UTF-8 byte order mark stands before the JSON"),
    ],
)
def test_explanation_names_the_part_that_decided(value: str | None, rule: str) -> None:
    """A person learns which sentence of the rule to read."""
    assert RULES["json"].explain(None if value is None else value.encode(), ()).rule == rule


def test_explanation_of_stray_bytes() -> None:
    """A dead letter is explained by the standard that it breaks, and the place."""
    expected = ("dead-letter", "invalid-utf8", "RFC 3629 the value is UTF-8: byte 2 is not UTF-8", None)
    assert RULES["json"].explain(b"a\xff", ()) == expected


def test_names_are_configurable() -> None:
    """The hot loop reads the names that it was given."""
    rule = Rule(output_format="message", fields=Fields("body", "author", "ref"))
    values = [b'{"body":"a","author":"system"}', b'{"body":"b","author":"tool","ref":"c"}', b'{"text":"a"}']
    assert rule.outcomes(map(Record, values)).each == [
        b'{"role":"system","content":"a"}',
        b'{"role":"tool","content":"b","tool_call_id":"c"}',
        Dropped("empty"),
    ]


@pytest.mark.parametrize("depth", [900, 1024])
def test_deep_text_comes_out(depth: int) -> None:
    """What is allowed to be deep comes out of a whole record, too."""
    text = "[" * depth + "]" * depth
    (outcome,) = RULES["json"].outcomes([Record(f'{{"text":{text}}}'.encode())]).each
    assert isinstance(outcome, bytes)
    assert json.loads(outcome)["message"]["content"] == text


def test_too_deep_text_is_dropped() -> None:
    """What is nested deeper has no text."""
    value = b'{"text":' + b"[" * 1025 + b"]" * 1025 + b"}"
    assert RULES["json"].outcomes([Record(value)]).each == [Dropped("unserializable")]
