"""Dead letters listed, shown and sent back: none forgotten, none past its attempts, none sent twice by a second run."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.structs import OffsetAndMetadata, TopicPartition
from click.testing import CliRunner
from kafka_help import Input, Record, consume_all, produce

from worker import settings
from worker.cli import main
from worker.errors import TopicError, WorkerError
from worker.kafka import replay
from worker.kafka.letters import Filter, Letter
from worker.kafka.replay import Order, Summary, Watcher

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.testing import Result
    from conftest import MakeTopic
    from worker_process import Line

NOW = int(time.time() * 1000)


class Killed(BaseException):
    """Stands for a kill: nothing catches it."""


class Morgue:
    """An input topic of two partitions, a dead-letter topic, and dead letters made by hand."""

    def __init__(self, broker: str, topic: MakeTopic) -> None:
        """Make the topics."""
        self.broker = broker
        self.input = topic("in", partitions=2)
        self.dead = topic("dead", partitions=2)
        self.sent: list[Letter] = []
        self.refused: list[str] = []
        self.watcher = Watcher(
            lambda _: None, lambda _: None, self.sent.append, lambda _, why: self.refused.append(why)
        )

    def bury(self, *numbers: int, reason: str = "invalid-json", attempt: int = 1, **changes: Any) -> None:  # noqa: ANN401
        """Make dead letters of numbered events, even ones of partition 0 and odd ones of partition 1."""
        produce(
            self.broker,
            self.dead,
            [self.letter(each, reason, attempt, **changes) for each in numbers],
            **_quick(changes),
        )

    def letter(self, number: int, reason: str, attempt: int, **changes: Any) -> Input:  # noqa: ANN401
        """One of them."""
        headers: list[tuple[str, bytes | None]] = [
            ("own", b"%d" % number),
            ("null", None),
            ("__streams.errors.topic", changes.get("topic", self.input).encode()),
            ("__streams.errors.partition", b"%d" % changes.get("source", number % 2)),
            ("__worker.errors.reason", reason.encode()),
            ("__worker.errors.attempt", b"%d" % attempt),
        ]
        value = changes.get("value", b"value %d" % number)
        return Input(b"key %d" % number, value, headers, changes.get("timestamp", NOW + number), number % 2)

    @property
    def settings(self) -> settings.Settings:
        """The worker's settings."""
        return settings.from_mapping(
            {"BROKERS": self.broker, "INPUT_TOPIC": self.input, "DEAD_LETTER_TOPIC": self.dead, "GROUP_ID": self.input}
        )

    def replay(self, which: Filter | None = None, **order: Any) -> Summary:  # noqa: ANN401
        """Send back what is asked for."""
        return replay.replay(self.settings, Order(which or Filter(), now=NOW + 1000, **order), self.watcher)

    def back(self) -> list[Record]:
        """What lies in the input topic."""
        return consume_all(self.broker, self.input)

    def numbers(self) -> list[int]:
        """Their numbers, in order of partition and offset."""
        return [int((record.key or b"").split()[1]) for record in self.back()]

    def command(self, *arguments: str) -> Result:
        """Run it as a person does."""
        environ = {
            "WORKER_BROKERS": self.broker,
            "WORKER_INPUT_TOPIC": self.input,
            "WORKER_DEAD_LETTER_TOPIC": self.dead,
            "WORKER_GROUP_ID": self.input,
        }
        return CliRunner().invoke(main, ["dead-letters", *arguments], env=environ)


def _quick(changes: dict[str, Any]) -> dict[str, Any]:
    return {"transaction": changes["transaction"]} if "transaction" in changes else {}


@pytest.fixture
def morgue(broker: str, topic: MakeTopic) -> Morgue:
    """Give one on the shared broker."""
    return Morgue(broker, topic)


def test_an_event_goes_back_as_it_came(morgue: Morgue) -> None:
    """To its own partition with key, value, timestamp and own headers, and the number of times it was tried."""
    morgue.bury(0, 1, 2, 3, attempt=2)
    summary = morgue.replay()
    assert (summary.sent, summary.refused) == (Counter({"invalid-json": 4}), Counter())
    assert [(record.partition, record.key) for record in morgue.back()] == [
        (0, b"key 0"),
        (0, b"key 2"),
        (1, b"key 1"),
        (1, b"key 3"),
    ]
    first = morgue.back()[0]
    assert (first.value, first.timestamp) == (b"value 0", NOW)
    assert first.headers == [("own", b"0"), ("null", None), ("__worker.errors.attempt", b"2")]


def test_a_second_run_goes_on_behind_the_first(morgue: Morgue) -> None:
    """Nothing is sent twice, and what came meanwhile is."""
    morgue.bury(0, 1, 2)
    morgue.replay()
    morgue.bury(4, 5)
    again = morgue.replay()
    assert (again.sent.total(), again.before) == (2, 3)
    assert morgue.numbers() == [0, 2, 4, 1, 5]


def test_what_a_filter_leaves_out_is_not_lost(morgue: Morgue) -> None:
    """Replays with any filters, and then one with none, send each dead letter once."""
    morgue.bury(0, 2, 4, 6)
    morgue.bury(8, 10, reason="too-large")
    morgue.bury(12, 14)
    assert morgue.replay(Filter(frozenset({"too-large"}))).left == 6
    morgue.replay(Filter(since=NOW + 2, until=NOW + 5))
    morgue.replay(Filter(first=7, last=7), partition=0)
    morgue.replay(limit=1)
    assert morgue.numbers() == [8, 10, 2, 4, 14, 0]
    assert morgue.replay().before == 6
    assert sorted(morgue.numbers()) == [0, 2, 4, 6, 8, 10, 12, 14]


def test_refused_ones_are_told_and_stay(morgue: Morgue) -> None:
    """Each has its cause: tried too often, without its value, from elsewhere, too old. Another day they may go."""
    morgue.bury(0, attempt=3)
    morgue.bury(2, value=None)
    morgue.bury(4, topic="elsewhere")
    morgue.bury(6, source=9)
    morgue.bury(8, timestamp=1001)
    morgue.bury(10)
    summary = morgue.replay()
    assert (summary.sent.total(), summary.refused.total()) == (1, 5)
    assert [why.split(";")[0].split(":")[0] for why in morgue.refused] == [
        "tried 3 times already",
        "it has no value",
        f"it came from topic elsewhere, not from {morgue.input}",
        f"{morgue.input} has no partition 9",
        f"older than {morgue.input} keeps (retention.ms)",
    ]
    assert morgue.replay(max_attempts=4).sent.total() == 1
    assert morgue.numbers() == [10, 0]


def test_dry_run(morgue: Morgue) -> None:
    """Says what would be sent, sends nothing, remembers nothing."""
    morgue.bury(0, 1)
    assert morgue.replay(dry_run=True).sent.total() == 2
    assert morgue.back() == []
    assert morgue.replay().sent.total() == 2


def test_killed_half_way(morgue: Morgue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed after sending and before remembering: at most that piece is sent again, and none is forgotten."""
    monkeypatch.setattr(replay, "_SEND", 10)
    morgue.bury(*range(0, 100, 2))
    commit = replay._Replay._commit
    commits = 0

    async def dies(self: replay._Replay, *arguments: Any) -> None:  # noqa: ANN401
        nonlocal commits
        commits += 1
        if commits == 4:  # the first is the one before anything is sent
            raise Killed
        await commit(self, *arguments)

    monkeypatch.setattr(replay._Replay, "_commit", dies)
    with pytest.raises(Killed):
        morgue.replay()
    monkeypatch.setattr(replay._Replay, "_commit", commit)
    again = morgue.replay()
    assert (again.sent.total(), again.before) == (30, 20)
    counts = Counter(morgue.numbers())
    assert sorted(counts) == list(range(0, 100, 2))
    assert sorted(number for number, count in counts.items() if count > 1) == list(range(40, 60, 2))


def test_one_bad_record_does_not_stop_the_others(broker: str, topic: MakeTopic) -> None:
    """What the broker refuses is refused alone, and not remembered as sent."""
    morgue = Morgue(broker, topic)
    morgue.input = topic("in", partitions=2, config={"max.message.bytes": "2000"})
    morgue.bury(0, 2)
    morgue.bury(4, value=b"x" * 5000)
    morgue.bury(6)
    summary = morgue.replay()
    assert (summary.sent.total(), summary.refused.total()) == (3, 1)
    assert "refuses it" in morgue.refused[0]
    assert sorted(morgue.numbers()) == [0, 2, 6]
    assert morgue.replay().before == 3


def test_transactions(morgue: Morgue) -> None:
    """Dead letters of an aborted transaction are none; markers are passed over, also at the end."""
    morgue.bury(0, 2, transaction="commit")
    morgue.bury(4, transaction="abort")
    assert morgue.replay().sent.total() == 2
    assert morgue.numbers() == [0, 2]


async def test_a_dead_letter_topic_made_again(morgue: Morgue) -> None:
    """The memory of one that reached further is not used."""
    morgue.bury(0, 2)
    place = TopicPartition(morgue.dead, 0)
    consumer = AIOKafkaConsumer(bootstrap_servers=morgue.broker, group_id=replay.group_of(morgue.settings))
    await consumer.start()
    consumer.assign([place])
    try:
        for memory, before in (("invalid-json/1:0-1", 1), ("invalid-json/1:0-50", 0)):
            await consumer.commit({place: OffsetAndMetadata(1, memory)})
            assert (await asyncio.to_thread(morgue.replay, dry_run=True)).before == before
    finally:
        await consumer.stop()


def test_too_many_gaps(morgue: Morgue, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be remembered is not sent."""
    monkeypatch.setattr(replay, "MAX_LENGTH", 10)
    morgue.bury(0)
    with pytest.raises(WorkerError, match="too many gaps"):
        morgue.replay()
    assert morgue.back() == []


def test_missing_topic(broker: str, topic: MakeTopic) -> None:
    """One line says which."""
    morgue = Morgue(broker, topic)
    morgue.dead = "no-such-topic"
    with pytest.raises(TopicError, match="there is no topic 'no-such-topic'"):
        morgue.replay()
    listed = morgue.command("list")
    assert (listed.exit_code, listed.stderr.count("\n")) == (1, 1)


# --- the commands -----------------------------------------------------------------------------------------------------


def test_list(morgue: Morgue) -> None:
    """By time over all partitions, filtered, with counts by reason; nothing of a payload is obeyed by a terminal."""
    morgue.bury(1, 3)
    morgue.bury(2, reason="too-large\x1b[2J")
    lines = morgue.command("list").stdout.splitlines()
    assert [line.split("  ")[0] for line in lines] == [
        "1:0",
        "0:0",
        "1:1",
        "3 dead letters (invalid-json 2, too-large\\x1b[2J 1)",
    ]
    assert lines[0].split("  ")[2:] == ["invalid-json", "attempt 1", f"from {morgue.input}:1:?", "key key 1", ""]
    newest = [json.loads(line) for line in morgue.command("list", "--limit", "1", "--json").stdout.splitlines()]
    assert newest[0]["key"] == {"text": "key 3"}
    assert newest[1] == {"total": 3, "counts": {"invalid-json": 2, "too-large\x1b[2J": 1}}
    assert morgue.command("list", "--reason", "invalid-json", "--partition", "0").stdout == "0 dead letters\n"
    assert morgue.command("list", "--until", "1h").stdout == "0 dead letters\n"


@pytest.mark.parametrize("option", [["--since", "yesterday"], ["--until", "2026-01-01"], ["--offset", "9-x"]])
def test_wrong_filters(morgue: Morgue, option: list[str]) -> None:
    """Wrong usage says what it must be."""
    done = morgue.command("list", *option)
    assert (done.exit_code, "must be" in done.stderr) == (2, True)


def test_show(morgue: Morgue) -> None:
    """The value, its headers, why, and what the worker would make of it now."""
    morgue.bury(0)
    shown = morgue.command("show", "0:0")
    assert shown.exit_code == 0
    for text in ("value 0  (7 bytes, UTF-8)", "own: 0", "reason     invalid-json", "dead-letter (invalid-json)"):
        assert text in shown.stdout
    assert morgue.command("show", "0").exit_code == 2


def test_replay_command(morgue: Morgue) -> None:
    """Counts add up, in words and in JSON; the refused ones are listed."""
    morgue.bury(0, 2)
    morgue.bury(4, attempt=3)
    dry = morgue.command("replay", "--dry-run").stdout.splitlines()
    assert [line.split("  ")[0] for line in dry[:-1]] == ["refused", "would send", "would send"]
    assert dry[-1].startswith(f"would send 2 events to {morgue.input} (invalid-json 2); refused 1 (invalid-json 1)")
    done = [json.loads(line) for line in morgue.command("replay", "--json").stdout.splitlines()]
    assert [row["outcome"] for row in done[:-1]] == ["refused", "sent", "sent"]
    assert done[-1] == {
        "dry_run": False,
        "sent": {"invalid-json": 2},
        "refused": {"invalid-json": 1},
        "sent_before": 0,
        "left": 0,
    }


# --- with a worker ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_half_can_be_mended(line: Callable[..., Line], guarantee: str) -> None:
    """Read as text, what is no JSON becomes messages; what is no UTF-8 comes back until its attempts are used up."""
    works = line(partitions=2, guarantee=guarantee)
    values = (b"no json %d", b"\xff%d")
    works.feed([Input(b"%d" % n, values[n % 2] % n, timestamp=NOW + n, partition=n // 2 % 2) for n in range(40)])
    works.run()
    works.settle()
    assert works.workers[0].stop() == 0
    works.run(input_format="text")
    loaded = settings.from_mapping(
        {
            "BROKERS": works.bootstrap,
            "INPUT_TOPIC": works.input,
            "OUTPUT_TOPIC": works.output,
            "DEAD_LETTER_TOPIC": works.dead,
            "GROUP_ID": works.group,
        }
    )
    silent = Watcher(lambda _: None, lambda _: None, lambda _: None, lambda _, __: None)
    totals = []
    for _ in range(4):
        summary = replay.replay(loaded, Order(Filter(), now=NOW), silent)
        totals.append((summary.sent.total(), summary.refused.total()))
        works.settle()
    assert totals == [(40, 0), (20, 0), (0, 20), (0, 20)]
    assert Counter(record.key for record in works.outputs()) == Counter(b"%d" % n for n in range(0, 40, 2))
    attempts = Counter(dict(record.headers)["__worker.errors.attempt"] for record in works.dead_letters())
    assert attempts == Counter({b"1": 40, b"2": 20, b"3": 20})
