"""Is the worker well, and is it ready? Decided here from what was seen; nothing here reads a clock or asks Kafka.

*Healthy* means a restart would not help: every partition with events to read moves, and some broker answers. An idle
worker is healthy. *Ready* means at work: in the group, able to write, not on its way out.

Progress is the confirmed offset, and nothing else: a session that is begun again and again, or a fetch that is
answered, is no progress. A partition stands still from the moment it is first seen with events to read, not from the
last event, or the first event after a quiet night would look like a stall. What can be read ends at the last stable
offset: behind it lies someone else's open transaction, and no restart of ours would end that.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


#: A member from which the group has heard nothing for so long has been given up by it (the session time-out).
GROUP_PATIENCE = 10.0
_NAMED = 5


class Stage(enum.Enum):
    """Where the process is in its life."""

    WAITING = "waiting"
    RUNNING = "running"
    STOPPING = "stopping"


class Partition(NamedTuple):
    """One input partition of ours, as it was seen at one moment."""

    number: int
    opened: bool
    """Whether its start has been found and, exactly once, its producer is up."""
    confirmed: int = -1
    readable_end: int | None = None
    """Where what can be read ends; None before the first fetch."""
    log_end: int | None = None
    """Where the log ends: later than what can be read while someone's transaction is open."""
    lag: int | None = None
    in_flight: int = 0
    trouble: str | None = None
    """Why its last write failed, until one succeeds."""

    @property
    def should_move(self) -> bool:
        """Whether there is something to do."""
        return not self.opened or (self.readable_end is not None and self.readable_end > self.confirmed)


class Stalled(NamedTuple):
    """A partition that should move and does not."""

    partition: int
    lag: int | None
    seconds: float


class Health(NamedTuple):
    """What is wrong; nothing, if the worker is healthy."""

    stalled: tuple[Stalled, ...] = ()
    broker_silent: float | None = None
    """Seconds since a broker answered, if that is too long."""

    @property
    def healthy(self) -> bool:
        """Whether a restart could not help."""
        return not self.reasons

    @property
    def reasons(self) -> list[str]:
        """What is wrong, a line each; of many partitions only the first are named."""
        silent = [] if self.broker_silent is None else [_silence(self.broker_silent)]
        return (
            silent
            + [
                f"partition {each.partition} has not moved for {each.seconds:.0f} s"
                + ("" if each.lag is None else f", lag {each.lag}")
                for each in self.stalled[:_NAMED]
            ]
            + ([f"and {len(self.stalled) - _NAMED} more partitions"] if len(self.stalled) > _NAMED else [])
        )


class Progress:
    """Since when each partition has stood still although it should move."""

    def __init__(self) -> None:
        """Start with nothing seen."""
        self._since: dict[int, tuple[int, float]] = {}

    def look(self, now: float, partitions: Iterable[Partition]) -> dict[int, float]:
        """Take in what is seen ``now``; returns the seconds that each partition with something to do has stood still.

        Looking seldom finds a stall later, and never one that is none.
        """
        since: dict[int, tuple[int, float]] = {}
        for partition in partitions:
            if partition.should_move:
                before = self._since.get(partition.number)
                same = before is not None and before[0] == partition.confirmed
                since[partition.number] = before if before is not None and same else (partition.confirmed, now)
        self._since = since
        return {number: now - at for number, (_, at) in since.items()}


def judge(
    partitions: Iterable[Partition],
    still: Mapping[int, float],
    broker_silent: float,
    *,
    stall_timeout: float,
    longest_step: float = 0.0,
) -> Health:
    """Decide about health.

    ``still`` is what ``Progress.look`` found, ``longest_step`` the time a partition may take over one step without
    anything being wrong: exactly once offsets move when a transaction is committed, so not before the commit interval.
    """
    limit = max(stall_timeout, longest_step)
    stalled = tuple(
        Stalled(partition.number, partition.lag, still[partition.number])
        for partition in partitions
        if still.get(partition.number, 0.0) >= limit
    )
    return Health(stalled, broker_silent if broker_silent >= stall_timeout else None)


def why_not_ready(
    stage: Stage, waiting_for: str, partitions: Sequence[Partition], broker_silent: float, *, joined: bool
) -> str | None:
    """Say why the worker is not at work; None if it is. A member without partitions is ready to take some over."""
    if stage is Stage.STOPPING:
        return "stopping"
    if stage is Stage.WAITING:
        return f"waiting for {waiting_for}"
    if broker_silent >= GROUP_PATIENCE:
        return _silence(broker_silent)
    if not joined:
        return "joining the group"
    return _stuck(partitions)


def _stuck(partitions: Sequence[Partition]) -> str | None:
    for partition in partitions:
        if partition.trouble is not None:
            return f"partition {partition.number} can't write: {partition.trouble}"
    opening = [str(partition.number) for partition in partitions if not partition.opened]
    return f"opening partition {', '.join(opening)}" if opening else None


def _silence(seconds: float) -> str:
    return f"no broker has answered for {seconds:.0f} s"
