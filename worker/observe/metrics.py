"""The worker's counts, as Prometheus reads them.

Counters move only when an outcome is confirmed: by the broker at least once, by the committed transaction exactly
once. All of an event's counts move in one step, so ``consumed = produced + dropped + dead lettered`` holds at any
moment, and what was read but has no confirmed outcome yet is ``worker_events_in_flight``.

A partition's series appear when it is assigned and go when it is given up (no series for what others work on).
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, NamedTuple, get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import generate_latest

from worker.rule.event import UnreadableReason
from worker.rule.message import DropReason

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Else each counter and histogram has a second series, which nothing reads.
disable_created_metrics()  # type: ignore[no-untyped-call]

_BATCH_SIZES = (1, 5, 10, 50, 100, 500, 1000, 2500, 5000, 10000)
_BATCH_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_AGES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600, 86400)


class Tally(NamedTuple):
    """What one batch came to."""

    produced: int
    dropped: Mapping[str, int]
    dead_lettered: Mapping[str, int]
    roles_replaced: int

    @property
    def consumed(self) -> int:
        """Every record of the batch: each has exactly one outcome."""
        return self.produced + sum(self.dropped.values()) + sum(self.dead_lettered.values())


class Counts(NamedTuple):
    """What events came to, since the worker started and on the partitions it has now."""

    produced: int
    dropped: Mapping[str, int]
    dead_lettered: Mapping[str, int]


class Metrics:
    """The series of the contract, section 5; names are fixed."""

    def __init__(self, topic: str, version: str, guarantee: str) -> None:
        """Make the series for one worker reading ``topic``."""
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)  # memory, CPU, open files, start time; nothing where there is no /proc
        self.topic = topic
        self._consumed = Counter(
            "worker_events_consumed", "Events with a confirmed outcome.", ["topic", "partition"], registry=registry
        )
        self._produced = Counter(
            "worker_messages_produced", "Messages stored in the output topic.", ["partition"], registry=registry
        )
        self._dropped = Counter(
            "worker_events_dropped", "Events the rule finds empty.", ["partition", "reason"], registry=registry
        )
        self._dead = Counter(
            "worker_events_dead_lettered",
            "Events stored in the dead-letter topic.",
            ["partition", "reason"],
            registry=registry,
        )
        self._in_flight = Gauge(
            "worker_events_in_flight",
            "Events read that have no confirmed outcome yet.",
            ["topic", "partition"],
            registry=registry,
        )
        self._roles = Counter(
            "worker_roles_replaced", "Messages whose role was none of the four and became user.", registry=registry
        )
        self._lag = Gauge(
            "worker_consumer_lag",
            "Log end minus committed offset (or log start, where that is later).",
            ["topic", "partition"],
            registry=registry,
        )
        self._committed = Gauge(
            "worker_committed_offset", "The next offset after a restart.", ["topic", "partition"], registry=registry
        )
        self.commits = Counter("worker_commits", "Offset commits or transactions.", ["result"], registry=registry)
        self._batch_events = Histogram(
            "worker_batch_events", "Events in one batch.", buckets=_BATCH_SIZES, registry=registry
        )
        self._batch_seconds = Histogram(
            "worker_batch_seconds",
            "From a batch read to its outcomes confirmed.",
            buckets=_BATCH_SECONDS,
            registry=registry,
        )
        self._age = Histogram(
            "worker_event_age_seconds",
            "From an event's timestamp to its outcome confirmed; the oldest event of each batch.",
            buckets=_AGES,
            registry=registry,
        )
        self.rebalances = Counter("worker_rebalances", "Times the group moved partitions.", registry=registry)
        Gauge("worker_build_info", "Always 1.", ["version", "guarantee"], registry=registry).labels(
            version, guarantee
        ).set(1)
        for result in ("ok", "failed"):
            self.commits.labels(result)

    def assigned(self, partition: int) -> None:
        """Show a partition's series from its first moment, at zero."""
        self._consumed.labels(self.topic, partition)
        self._produced.labels(partition)
        for reason in get_args(DropReason):
            self._dropped.labels(partition, reason)
        for reason in get_args(UnreadableReason):
            self._dead.labels(partition, reason)
        self._in_flight.labels(self.topic, partition)

    def given_up(self, partition: int) -> None:
        """Take a partition's series away; whoever has it now shows them."""
        label = str(partition)
        for metric in (self._consumed, self._in_flight, self._lag, self._committed):
            metric.remove_by_labels({"topic": self.topic, "partition": label})
        for metric in (self._produced, self._dropped, self._dead):
            metric.remove_by_labels({"partition": label})

    def paused(self, partition: int) -> None:
        """Take back what may be untrue from now on: a rebalance is under way, and someone else may go on."""
        for metric in (self._lag, self._committed):
            metric.remove_by_labels({"topic": self.topic, "partition": str(partition)})

    def confirmed(self, partition: int, tally: Tally, seconds: float, age: float | None) -> None:
        """Count one batch whose every outcome is stored."""
        self._consumed.labels(self.topic, partition).inc(tally.consumed)
        self._produced.labels(partition).inc(tally.produced)
        for reason, count in tally.dropped.items():
            self._dropped.labels(partition, reason).inc(count)
        for reason, count in tally.dead_lettered.items():
            self._dead.labels(partition, reason).inc(count)
        self._roles.inc(tally.roles_replaced)
        if tally.consumed:
            self._batch_events.observe(tally.consumed)
            self._batch_seconds.observe(seconds)
        if age is not None:
            self._age.observe(max(age, 0.0))

    def in_flight(self, partition: int, count: int) -> None:
        """Show how many events wait for their outcome."""
        self._in_flight.labels(self.topic, partition).set(count)

    def committed(self, partition: int, offset: int, lag: int | None) -> None:
        """Show where a restart would go on (-1: nothing is committed yet), and how far that is from the log's end."""
        if offset >= 0:
            self._committed.labels(self.topic, partition).set(offset)
        if lag is not None:
            self._lag.labels(self.topic, partition).set(lag)

    def consumed(self) -> dict[int, int]:
        """Events with a confirmed outcome, by partition."""
        return {int(labels["partition"]): count for labels, count in _counts(self._consumed)}

    def outcomes(self) -> Counts:
        """What the events came to, all partitions together."""
        dropped: collections.Counter[str] = collections.Counter()
        dead: collections.Counter[str] = collections.Counter()
        for totals, counter in ((dropped, self._dropped), (dead, self._dead)):
            for labels, count in _counts(counter):
                totals[labels["reason"]] += count
        produced = sum(count for _, count in _counts(self._produced))
        return Counts(produced, dropped, dead)

    def exposition(self) -> bytes:
        """The text that Prometheus scrapes."""
        return generate_latest(self.registry)


def _counts(counter: Counter) -> Iterator[tuple[Mapping[str, str], int]]:
    for family in counter.collect():
        for sample in family.samples:
            if sample.name.endswith("_total"):
                yield sample.labels, int(sample.value)
