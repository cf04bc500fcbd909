"""The shared cases through a real broker: in one batch, spread, and in each format and codec.

What the rule makes of each is tested without Kafka in ``tests/rule``; here it must not change by what lies around it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

import pytest
import replay
from kafka_help import Input
from worker_process import GUARANTEES, event, numbers, reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worker_process import Line, MakeLine

JSON_VECTORS = [vector for vector in replay.load() if not vector.in_text_format]
TEXT_VECTORS = [vector for vector in replay.load() if vector.in_text_format]
CODECS = ("gzip", "snappy", "lz4", "zstd")


def as_inputs(vectors: Sequence[replay.Vector], partitions: int = 1) -> list[Input]:
    """Each vector as a record, its index as the key."""
    return [
        Input(b"%d" % index, vector.record.value, vector.record.headers, partition=index % partitions)
        for index, vector in enumerate(vectors)
    ]


def assert_as_promised(works: Line, vectors: Sequence[replay.Vector]) -> None:
    """Each vector has the one outcome it must have, with its message or its untouched bytes."""
    messages = {int(record.key or b""): json.loads(record.value or b"") for record in works.outputs()}
    dead = {int(record.key or b""): record for record in works.dead_letters()}
    for index, vector in enumerate(vectors):
        outcome = "message" if index in messages else "dead-letter" if index in dead else "dropped"
        assert (vector.name, outcome) == (vector.name, vector.expect)
        if vector.expect == "message":
            assert (vector.name, messages[index]["message"]) == (vector.name, vector.message)
            assert messages[index]["messages"] == [vector.message]
        elif vector.expect == "dead-letter":
            assert (vector.name, dead[index].value) == (vector.name, vector.record.value)
            assert vector.reason is None or (vector.name, reason(dead[index])) == (vector.name, vector.reason)
    assert len(works.outputs()) + len(works.dead_letters()) == sum(vector.expect != "dropped" for vector in vectors)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_every_case_in_one_batch(line: MakeLine, guarantee: str) -> None:
    """All of them fetched at once."""
    works = line(guarantee=guarantee)
    works.feed(as_inputs(JSON_VECTORS), linger_ms=50)
    works.run()
    works.settle()

    assert_as_promised(works, JSON_VECTORS)


def test_every_case_spread_over_partitions_and_batches(line: MakeLine) -> None:
    """Each in a record batch of its own, beside others, while the worker is at work."""
    works = line(partitions=4)
    works.run()
    records = as_inputs(JSON_VECTORS, partitions=4)
    for start in range(0, len(records), 40):
        works.feed(records[start : start + 40], max_batch_size=1)
    works.settle()

    assert_as_promised(works, JSON_VECTORS)


def test_text_format_takes_role_and_id_from_headers(line: MakeLine) -> None:
    """The value is the text; headers speak as the settings name them."""
    works = line(input_format="text")
    works.feed(as_inputs(TEXT_VECTORS))
    works.run()
    works.settle()

    assert_as_promised(works, TEXT_VECTORS)


class Shape(NamedTuple):
    """An output format, and how its value looks."""

    name: str
    before: bytes
    after: bytes


SHAPES = (Shape("message", b"", b""), Shape("messages", b"[", b"]"))


@pytest.mark.parametrize("codec", CODECS)
def test_input_of_any_codec_and_output_in_each(line: MakeLine, codec: str) -> None:
    """Another client reads what is written in each codec, whatever codec the events came in."""
    shape = SHAPES[CODECS.index(codec) % 2]
    works = line(compression=codec, output_format=shape.name)
    for index, source in enumerate((None, *CODECS)):
        works.feed([event(index * 50 + number) for number in range(50)], compression_type=source)
    works.feed([Input(b"250", b"{", partition=0)])
    works.run()
    works.settle()

    outputs = works.outputs()
    assert numbers(outputs) == list(range(250))
    assert [record.value for record in outputs] == [
        shape.before + b'{"role":"user","content":"event %d"}' % number + shape.after for number in range(250)
    ]
    assert [record.value for record in works.dead_letters()] == [b"{"]
