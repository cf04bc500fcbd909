"""The independent check: read everything as any ``read_committed`` reader would (librdkafka), and compare.

What was sent is read from the input topic itself. Each event's fate is known from its serial number, so what must lie
in the output and among the dead letters is known too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from chaos.events import Events


@dataclass
class Verdict:
    """What became of the events of a run."""

    read: int = 0  # events in the input
    messages: int = 0
    dead: int = 0
    lost: list[int] = field(default_factory=list)
    doubled: list[int] = field(default_factory=list)  # serials that came more than once
    extra: int = 0  # how many records too many
    strange: list[int] = field(default_factory=list)  # in the wrong topic, or with the wrong content
    backwards: list[tuple[int, int]] = field(default_factory=list)  # neighbours, the later one smaller
    disordered: list[tuple[int, int]] = field(default_factory=list)  # the same among first occurrences

    def exactly_once(self) -> bool:
        """Each event once, in order."""
        return not (self.lost or self.doubled or self.strange or self.backwards)

    def at_least_once(self) -> bool:
        """Each event, in order but for repeats."""
        return not (self.lost or self.strange or self.disordered)

    def holds(self, guarantee: str) -> bool:
        """Whether the guarantee was kept."""
        return self.exactly_once() if guarantee == "exactly-once" else self.at_least_once()

    def __str__(self) -> str:
        """One line."""
        return (
            f"{self.read} events: {self.messages} messages, {self.dead} dead letters; "
            f"lost {_some(self.lost)}, doubled {_some(self.doubled)} ({self.extra} extra records), "
            f"strange {_some(self.strange)}, "
            f"steps back {_some(self.backwards)}, disordered {_some(self.disordered)}"
        )


def judge(bootstrap: str, events: Events, due: Mapping[int, int], output: str, dead_letters: str) -> Verdict:
    """Read both topics to their ends; ``due`` has how often each serial was sent."""
    verdict = Verdict(read=sum(due.values()))
    seen: Counter[int] = Counter()
    for topic, fate in ((output, "message"), (dead_letters, "dead")):
        sequences: Mapping[tuple[int, int], list[int]] = defaultdict(list)
        for key, value, partition in read_all(bootstrap, topic):
            serial = int(key)
            seen[serial] += 1
            sequences[events.partition(serial), partition].append(serial)
            if events.fates[serial] != fate or not events.stands_for(serial, value):
                verdict.strange.append(serial)
        for sequence in sequences.values():
            verdict.backwards += _steps_back(sequence)
            verdict.disordered += _steps_back(dict.fromkeys(sequence))
        size = sum(map(len, sequences.values()))
        if fate == "message":
            verdict.messages = size
        else:
            verdict.dead = size
    for serial, count in due.items():
        wanted = 0 if events.fates[serial] == "dropped" else count
        if seen[serial] < wanted:
            verdict.lost.append(serial)
        elif seen[serial] > wanted:
            verdict.doubled.append(serial)
            verdict.extra += seen[serial] - wanted
    return verdict


def sent(bootstrap: str, source: str) -> Counter[int]:
    """How often each serial lies in the input topic."""
    return Counter(int(key) for key, _, _ in read_all(bootstrap, source))


def read_all(bootstrap: str, topic: str) -> list[tuple[bytes, bytes | None, int]]:
    """Key, value and partition of all that a ``read_committed`` reader sees, each partition in order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "the-independent-check",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.queue.backoff.ms": 5,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    try:
        metadata = consumer.list_topics(topic, 30).topics[topic]
        if metadata.error is not None:
            raise KafkaException(metadata.error)
        still_open = set(metadata.partitions)
        consumer.assign([TopicPartition(topic, number, 0) for number in still_open])
        found = []
        while still_open:
            for message in consumer.consume(5_000, 0.5):
                error = message.error()
                if error is None:
                    found.append((message.key() or b"", message.value(), message.partition() or 0))
                elif error.code() == KafkaError._PARTITION_EOF:
                    still_open.discard(message.partition())
                elif not error.retriable():
                    raise KafkaException(error)
        return found
    finally:
        consumer.close()


def _steps_back(sequence: Iterable[int]) -> list[tuple[int, int]]:
    steps = []
    before: int | None = None
    for serial in sequence:
        if before is not None and serial <= before:
            steps.append((before, serial))
        before = serial
    return steps


def _some(things: list[object] | list[int] | list[tuple[int, int]]) -> str:
    if not things:
        return "0"
    shown = ", ".join(map(str, things[:4]))
    return f"{len(things)} [{shown}{', …' if len(things) > 4 else ''}]"
