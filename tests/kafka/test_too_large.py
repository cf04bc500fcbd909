"""A message or dead letter that its topic does not take: never a stuck partition, never lost without a word."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined] # not in its __all__
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from kafka_help import Input, create_topic, until
from worker_process import GUARANTEES, event, header, numbers, reason

from worker.kafka.dead_letters import OURS, VALUE_SIZE

if TYPE_CHECKING:
    from worker_process import Line, MakeLine

FIVE_MB = "5500000"


def text(number: int, content: object) -> Input:
    """An event that holds just this text."""
    return Input(b"%d" % number, json.dumps({"text": content}).encode(), [("h", b"1")], 1001, 0)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_message_that_grew_too_large_is_a_dead_letter(line: MakeLine, guarantee: str) -> None:
    """Escaped quotes double, "both" doubles again, and the input's limit may be larger: the next event comes out."""
    works = line(config={"max.message.bytes": FIVE_MB, "retention.ms": "-1"}, guarantee=guarantee)
    create_topic(works.bootstrap, works.output, config={"retention.ms": "-1"})
    sent = [
        event(0),
        text(1, ['"' * 500_000]),
        event(2),
        Input(b"3", b'{"text":"' + b"x" * (1_048_500 - 11) + b'"}', [("h", b"1")], 1001, 0),
        event(4),
        text(5, "y" * 5_000_000),
        event(6),
    ]
    for one in sent:  # each alone: the client would not put them together
        works.feed([one], max_request_size=6_000_000)
    worker = works.run()
    works.settle()

    assert numbers(works.outputs()) == [0, 2, 4, 6]
    dead = works.dead_letters()
    assert [reason(record) for record in dead] == ["too-large"] * 3
    assert [record.value for record in dead] == [sent[number].value for number in (1, 3, 5)]
    assert {(record.key, record.timestamp, record.headers[0]) for record in dead} == {
        (b"%d" % number, 1001, ("h", b"1")) for number in (1, 3, 5)
    }
    assert "xxxx" not in worker.text


def test_compression_decides_what_fits(line: MakeLine) -> None:
    """The limit is that of the compressed batch: what shrinks below it passes, what does not is a dead letter."""
    works = line(compression="zstd", config={"max.message.bytes": FIVE_MB})
    create_topic(works.bootstrap, works.output)
    noise = random.Random(0).randbytes(1_500_000).hex()  # noqa: S311 - half of it at best when compressed
    for one in (text(0, "y" * 3_000_000), event(1), text(2, noise), event(3)):
        works.feed([one], max_request_size=6_000_000)
    works.run()
    works.settle()

    outputs = works.outputs()
    assert numbers(outputs) == [0, 1, 3]
    assert json.loads(outputs[0].value or b"")["message"]["content"] == "y" * 3_000_000
    assert numbers(works.dead_letters()) == [2]


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_dead_letter_that_does_not_fit_goes_without_its_value(line: MakeLine, guarantee: str) -> None:
    """With the value's size in a header; without key and own headers, too, where even those do not fit."""
    works = line(guarantee=guarantee)
    create_topic(works.bootstrap, works.dead, config={"max.message.bytes": "1500"})
    large_header = [("large", b"h" * 3000)]
    works.feed(
        [
            Input(b"0", b"{" + b"x" * 5000, [("h", None)], partition=0),
            Input(b"1", b"{", partition=0),
            Input(b"2", b"{" + b"x" * 100, large_header, partition=0),
            event(3),
        ]
    )
    works.run()
    works.settle()

    assert numbers(works.outputs()) == [3]
    shortened, whole, bare = works.dead_letters()
    assert (shortened.key, shortened.value, shortened.headers[0]) == (b"0", None, ("h", None))
    assert (header(shortened, VALUE_SIZE), reason(shortened)) == (b"5001", "invalid-json")
    assert (whole.key, whole.value) == (b"1", b"{")
    assert (bare.key, bare.value, {name for name, _ in bare.headers}) == (None, None, set(OURS))
    assert header(bare, VALUE_SIZE) == b"101"


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_limit_lowered_while_running(line: MakeLine, guarantee: str) -> None:
    """The broker has the last word: what it refuses is found among its neighbours, which come out, in order."""
    works = line(guarantee=guarantee)
    worker = works.run()
    works.feed([event(0)])
    works.settle()
    set_limit(works, 3000)
    works.feed([text(number, "z" * (2000 if number % 40 == 7 else 10)) for number in range(1, 201)])
    works.settle()

    large = [number for number in range(1, 201) if number % 40 == 7]
    assert numbers(works.outputs()) == [number for number in range(201) if number not in large]
    assert numbers(works.dead_letters()) == large
    assert {reason(record) for record in works.dead_letters()} == {"too-large"}
    assert len(worker.text.splitlines()) < 20


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_limit_raised_while_running(line: MakeLine, guarantee: str) -> None:
    """Whoever has raised the limit need not restart the worker before a replay."""
    works = line(guarantee=guarantee)
    create_topic(works.bootstrap, works.output, config={"max.message.bytes": "1500"})
    works.run()
    works.feed([text(0, "z" * 2000)])
    works.settle()
    assert [reason(record) for record in works.dead_letters()] == ["too-large"]
    set_limit(works, 9000)

    def came_out() -> bool:
        works.feed([text(1, "z" * 2000)])
        works.settle()
        return bool(works.outputs())

    until(came_out)


def set_limit(works: Line, size: int) -> None:
    """Change what the output topic takes."""
    limit = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, works.output, incremental_configs=[limit])
    admin = AdminClient({"bootstrap.servers": works.bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)
