"""How long the output stood still: a ``read_committed`` reader notes when records come, fault by fault.

A partition's gap is the time between two arrivals in it; a fault's gap is the longest that began or lasted while the
fault did its work, in the partition that waited longest. The input never pauses, so every gap is the worker's (or, for
as long as it was gone, the broker's).
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator


_SHARE_SECONDS = 1.5
#: A partition without output for so long is read by a new reader.
_SILENCE_SECONDS = 15.0


@dataclass
class Stroke:
    """One fault: what was done and when; ``end`` is when its cause was gone (broker back, process thawed)."""

    kind: str
    begin: float
    end: float = 0.0


@dataclass(frozen=True)
class Gap:
    """A fault and what it cost, in seconds."""

    kind: str
    longest: float
    healed: float  # from the end of the cause to the first output of the last partition


class Watch(threading.Thread):
    """Reads the output as it comes."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        """Note what to watch."""
        super().__init__(name="watch", daemon=True)
        self.arrivals: dict[int, list[float]] = defaultdict(list)
        self.strokes: list[Stroke] = []
        self._topic, self._partitions = topic, partitions
        self._ending = threading.Event()
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": "the-watch",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "fetch.queue.backoff.ms": 5,
            "fetch.wait.max.ms": 50,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 200,
            "topic.metadata.refresh.interval.ms": 2_000,
            "log_level": 0,
        }

    def run(self) -> None:
        """Read until told to end."""
        places = {number: TopicPartition(self._topic, number, 0) for number in range(self._partitions)}
        while not self._ending.is_set():
            self._read(places)

    def _read(self, places: dict[int, TopicPartition]) -> None:
        """Read on from ``places``, and move them, until told to end or a partition has been silent for long.

        After its broker was gone, a librdkafka reader can leave out a partition for many minutes; a new one does not.
        """
        consumer = Consumer(self._settings)
        heard = dict.fromkeys(places, time.monotonic())
        try:
            consumer.assign(list(places.values()))
            while not self._ending.is_set() and time.monotonic() < min(heard.values()) + _SILENCE_SECONDS:
                messages = [one for one in consumer.consume(10_000, 0.05) if one.error() is None]
                now = time.monotonic()
                for partition, offset in {one.partition() or 0: one.offset() or 0 for one in messages}.items():
                    self.arrivals[partition].append(now)
                    heard[partition] = now
                    places[partition] = TopicPartition(self._topic, partition, offset + 1)
        finally:
            consumer.close()

    def end(self) -> None:
        """Stop reading."""
        self._ending.set()
        self.join()

    @contextmanager
    def stroke(self, kind: str) -> Iterator[Stroke]:
        """Do a fault within; its end is the cause's end."""
        stroke = Stroke(kind, time.monotonic())
        self.strokes.append(stroke)
        yield stroke
        stroke.end = time.monotonic()

    def seen_since(self, partition: int, moment: float) -> bool:
        """Whether a partition has put something out after ``moment``."""
        times = self.arrivals.get(partition, [])
        return bool(times) and times[-1] > moment

    def partitions_seen_since(self, moment: float) -> int:
        """How many have."""
        return sum(self.seen_since(partition, moment) for partition in list(self.arrivals))

    def gaps(self) -> list[Gap]:
        """What each fault cost."""
        ends = [stroke.begin for stroke in self.strokes[1:]] + [float("inf")]
        return [
            Gap(stroke.kind, self.longest(stroke.begin, until), self._healed(stroke.end))
            for stroke, until in zip(self.strokes, ends, strict=True)
        ]

    def longest(self, begin: float, until: float, *, tail: bool = False) -> float:
        """The longest gap in any partition that overlaps the time between; ``tail``: the one that still lasts, too."""
        return max(
            (
                later - earlier
                for times in list(self.arrivals.values())
                for earlier, later in pairwise([*times, time.monotonic()] if tail else times)
                # What only begins as the next fault strikes is not of this one.
                if min(later, until) - max(earlier, begin) > min(_SHARE_SECONDS, (later - earlier) / 2)
            ),
            default=0.0,
        )

    def _healed(self, end: float) -> float:
        firsts = [next((when for when in times if when > end), None) for times in self.arrivals.values()]
        return max((first - end for first in firsts if first is not None), default=0.0)


def table(gaps: list[Gap]) -> str:
    """Kind, how often, gap (median, worst), time to heal (median, worst)."""
    by_kind: dict[str, list[Gap]] = defaultdict(list)
    for gap in gaps:
        by_kind[gap.kind].append(gap)
    lines = [f"{'fault':<34} {'n':>3}  {'longest gap, s':>16}  {'healed after, s':>16}"]
    lines += [f"{'':<34} {'':>3}  {'median':>8}{'worst':>8}  {'median':>8}{'worst':>8}"]
    for kind, ones in sorted(by_kind.items()):
        longest = [one.longest for one in ones]
        healed = [one.healed for one in ones]
        lines.append(
            f"{kind:<34} {len(ones):>3}  {median(longest):>8.1f}{max(longest):>8.1f}  "
            f"{median(healed):>8.1f}{max(healed):>8.1f}"
        )
    return "\n".join(lines)
