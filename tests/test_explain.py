"""``worker explain``: one event, what becomes of it and why."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from faust.types import TP
from kafka_help import log_end, produce, until

from worker import explain, settings
from worker.cli import main
from worker.errors import TopicError, WorkerError
from worker.kafka import dead_letters
from worker.rule.event import Unreadable

if TYPE_CHECKING:
    from conftest import MakeTopic

    from worker.explain import Report

KEY = b"k\x1b[2J"


class Table:
    """An input topic with some events, and the other two."""

    def __init__(self, broker: str, topic: MakeTopic) -> None:
        """Make the topics."""
        self.broker = broker
        self.topic = topic("in", partitions=2)
        self.output = topic("out", partitions=3, config={"max.message.bytes": "600"})
        self.dead = topic("dead", partitions=2)

    def put(self, *values: bytes | None, topic: str | None = None, **options: Any) -> list[int]:  # noqa: ANN401
        """Put events with a key and a header into partition 1; returns their offsets."""
        events = [(KEY, value, [("h", None), ("role", b"tool")], 1001, 1) for value in values]
        return [offset for _, offset in produce(self.broker, topic or self.topic, events, **options)]

    @property
    def names(self) -> dict[str, str]:
        """The settings."""
        topics = {"INPUT_TOPIC": self.topic, "OUTPUT_TOPIC": self.output, "DEAD_LETTER_TOPIC": self.dead}
        return {"BROKERS": self.broker, **topics}

    def explain(self, offset: int, topic: str | None = None, partition: int = 1, **others: str) -> Report:
        """Explain one."""
        place = explain.Place(topic or self.topic, partition, offset)
        return explain.explain(settings.from_mapping({**self.names, **others}), place)


@pytest.fixture
def table(broker: str, topic: MakeTopic) -> Table:
    """Give topics on the shared broker."""
    return Table(broker, topic)


def test_message(table: Table) -> None:
    """Bytes, how they were read, the parts of the rule, and the record with its partition."""
    (offset,) = table.put(b'{"text":1.10,"role":"boss","tool_call_id":[]}')
    report = table.explain(offset)
    assert report.read_as == "json: text is a number, role is a string, tool_call_id is an array"
    assert report.explanation is not None
    assert report.explanation.outcome == "message"
    assert "MEM-16 (2)" in report.explanation.rule
    assert "MEM-16 (4) role replaced" in report.explanation.rule
    assert report.explanation.record == (
        b'{"messages":[{"role":"user","content":"1.10"}],"message":{"role":"user","content":"1.10"}}'
    )
    assert report.target is not None
    assert report.target[0] == table.output


def test_text_format_reads_headers(table: Table) -> None:
    """The role comes from the header."""
    (offset,) = table.put(b"plain")
    report = table.explain(offset, INPUT_FORMAT="text", OUTPUT_FORMAT="message")
    assert (
        report.read_as == "text: the value is a string, header role is a string, header tool_call_id is absent or null"
    )
    assert report.explanation is not None
    assert report.explanation.record == b'{"role":"tool","content":"plain"}'


@pytest.mark.parametrize(
    ("value", "outcome", "reason"),
    [
        (None, "dropped", "tombstone"),
        (b'{"text":""}', "dropped", "empty"),
        (b'{"text":"\\ud800"}', "dropped", "unserializable"),
        (b"\xff", "dead-letter", "invalid-utf8"),
        (b"{", "dead-letter", "invalid-json"),
        (b"[]", "dead-letter", "not-an-object"),
        (b'{"text":"%s"}' % (b"x" * 400), "dead-letter", "too-large"),
    ],
)
def test_drops_and_dead_letters(table: Table, value: bytes | None, outcome: str, reason: str) -> None:
    """Each drop and each dead-letter reason is named with the rule; nothing is written for it to the output."""
    (offset,) = table.put(value)
    explanation = table.explain(offset).explanation
    assert explanation is not None
    assert (explanation.outcome, explanation.reason, explanation.record) == (outcome, reason, None)
    assert explanation.rule


def test_dead_letter(table: Table) -> None:
    """It is explained as the event it was, with what its headers say; a mended worker would take it."""
    (offset,) = table.put(b"plain")
    cause = Unreadable("invalid-json", "the JSON breaks at character 1")
    found = table.explain(offset).record
    letter = dead_letters.build(found, TP(table.topic, 1), cause, "g")
    ((_, first), (_, second)) = produce(
        table.broker,
        table.dead,
        [(letter.key, each.value, each.headers, letter.timestamp, 0) for each in (letter, letter.without_value())],
    )
    report = table.explain(first, table.dead, 0, INPUT_FORMAT="text")
    assert report.origin["reason"] == "invalid-json"
    assert report.origin["partition"] == "1"
    assert report.explanation is not None
    assert report.explanation.outcome == "message"
    bare = table.explain(second, table.dead, 0)
    assert (bare.explanation, bare.read_as) == (None, "its value was not kept")
    assert bare.origin["value-size"] == "5"


def test_aborted_and_markers(table: Table) -> None:
    """What an aborted transaction wrote is shown and said to be nothing; its marker is no record."""
    table.put(b'{"text":"a"}')
    (aborted,) = table.put(b'{"text":"b"}', transaction="abort")
    until(lambda: log_end(table.broker, table.topic, 1) == aborted + 2)  # the broker writes the marker when it likes
    (last,) = table.put(b'{"text":"c"}')
    assert (table.explain(aborted).note or "").startswith("aborted: ")
    assert table.explain(last).note is None
    with pytest.raises(WorkerError, match=f"no record there: .*the nearest is {last}"):
        table.explain(aborted + 1)


def test_not_there(table: Table) -> None:
    """Each thing that is not there is said, with the nearest that is."""
    with pytest.raises(WorkerError, match="no such offset: the partition holds nothing"):
        table.explain(0)
    table.put(b"{}", b"{}")
    with pytest.raises(WorkerError, match="holds offsets 0 to 1; the nearest is 1"):
        table.explain(9)
    with pytest.raises(TopicError, match="has no partition 7: it has 0 to 1"):
        table.explain(0, partition=7)
    with pytest.raises(TopicError, match="there is no topic 'no-such'"):
        table.explain(0, "no-such")


def test_command(table: Table) -> None:
    """On a terminal nothing of a payload is obeyed; in JSON it is exact. Wrong places are wrong usage."""
    (offset,) = table.put(b'{"text":"hi\x7f"}')
    environ = {f"WORKER_{name}": value for name, value in table.names.items()}
    run = CliRunner()
    place = f"{table.topic}:1:{offset}"
    text = run.invoke(main, ["explain", place], env=environ)
    assert text.exit_code == 0
    assert "key        k\\x1b[2J  (5 bytes, UTF-8)" in text.stdout
    assert "header     h: null" in text.stdout
    assert "\x1b" not in text.stdout
    assert "\x7f" not in text.stdout
    document = json.loads(run.invoke(main, ["explain", place, "--json"], env=environ).stdout)
    assert document["key"] == {"text": KEY.decode()}
    assert document["outcome"] == "message"
    assert document["headers"] == [["h", None], ["role", {"text": "tool"}]]
    assert run.invoke(main, ["explain", f"{table.topic}:1"], env=environ).exit_code == 2
    gone = run.invoke(main, ["explain", f"{table.topic}:1:99"], env=environ)
    assert (gone.exit_code, gone.stdout) == (1, "")
    assert gone.stderr.startswith(f"worker: {table.topic}:1:99: no such offset")
