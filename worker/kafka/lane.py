"""A lane: one input partition's way through the worker, from its first offset to the day it is given up.

Every assignment makes new lanes, and a lane accepts only what was read for it since it was last opened: what was read
before a rebalance, or before a transaction was undone, and comes late through the agent is let go. What it accepts must
begin where the batch before it ended, or the worker stops: a gap or a repeat here is a fault of ours.

A lane reads ahead by a few batches, then the fetch waits: memory is bounded by ``READ_AHEAD`` fetches a partition. Of
what is written and waits for its commit, only the counts are kept.
"""

from __future__ import annotations

import abc
import asyncio
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, NamedTuple

from worker.kafka.writer import Work
from worker.observe.metrics import Tally
from worker.rule.event import Unreadable
from worker.rule.message import Dropped

if TYPE_CHECKING:
    from collections.abc import Callable

    from faust.types import TP
    from opentelemetry.trace import Span

    from worker.kafka.records import Batch
    from worker.observe.metrics import Metrics
    from worker.observe.tracing import Tracing
    from worker.rule.outcome import Outcomes

#: Batches of a partition between the fetch and the broker: one being written, one decided, one on its way.
READ_AHEAD = 3


class _Written(NamedTuple):
    """What is kept of a batch whose outcomes are stored: enough to count it once that is certain."""

    next_offset: int
    tally: Tally
    taken_at: float
    first_timestamp: int | None
    span: Span | None


class OutOfTurnError(Exception):
    """A batch does not begin where the one before it ended; going on would lose or double events."""


class Lane(abc.ABC):
    """What both guarantees share: accept in order, count what is confirmed, say how far the lane has come."""

    def __init__(self, tp: TP, metrics: Metrics, tracing: Tracing | None, wake_fetch: Callable[[], None]) -> None:
        """Make a lane that accepts nothing until it is opened."""
        self.tp = tp
        self.confirmed = -1  # every outcome below it is stored; -1 until the lane is open
        self.start = -1  # where it was opened; -1 until then
        self.unfinished = False  # it was closed in the middle of a write that failed
        self.trouble: str | None = None  # why the last write failed, until a batch is confirmed
        self._metrics = metrics
        self._tracing = tracing
        self._wake_fetch = wake_fetch
        self._is_open = False
        self._closing = False
        self._position = -1
        self._taken: deque[Batch] = deque()  # read for this lane and not stored
        self._written: deque[_Written] = deque()  # stored and not confirmed
        self._queue: deque[Work] = deque()
        self._arrived = asyncio.Event()
        metrics.assigned(tp.partition)

    @property
    def wants_more(self) -> bool:
        """Whether the fetch may hand over another batch."""
        return self._is_open and not self._closing and len(self._taken) < READ_AHEAD

    @property
    def in_flight(self) -> int:
        """Events read that have no confirmed outcome yet."""
        return sum(len(batch.records) for batch in self._taken) + sum(item.tally.consumed for item in self._written)

    @property
    def is_starting(self) -> bool:
        """Whether it looks for its start, and has nothing to finish."""
        return not (self._is_open or self._taken or self._written)

    def taken(self, batch: Batch) -> None:
        """The fetch hands over a batch; it is on its way to the agent."""
        self._taken.append(batch)
        self._metrics.in_flight(self.tp.partition, self.in_flight)

    @property
    @abc.abstractmethod
    def committed(self) -> int:
        """The next offset after a restart, as the broker knows it; -1 if it knows none from us."""

    def accept(self, batch: Batch, outcomes: Outcomes) -> None:
        """Take a batch whose outcomes are decided."""
        if self._closing or not any(taken is batch for taken in self._taken):
            return
        if batch.position != self._position:
            raise OutOfTurnError(f"{self.tp}: offset {batch.position} came where {self._position} was due")
        self._position = batch.next_offset
        self._queue.append(Work(batch, outcomes, asyncio.get_running_loop().time()))
        self._arrived.set()

    def lose(self) -> None:
        """What comes next is no longer in the log: finish what was read, then look for a new start."""
        self._is_open = False
        self._arrived.set()

    def close(self) -> None:
        """Finish what is being written and stop; what waits behind it is read again by the next owner."""
        self._closing = True
        self._arrived.set()

    @abc.abstractmethod
    async def run(self) -> None:
        """Work until closed. Raises only what no retry can mend."""

    def _open(self, offset: int) -> None:
        """Go on at ``offset``, whatever was under way before."""
        self._position = self.confirmed = self.start = offset
        self._taken.clear()
        self._written.clear()
        self._queue.clear()
        self._is_open = True
        self._wake_fetch()

    async def _next(self, until: float | None = None) -> Work | None:
        """Wait for the next batch; None when the lane closes or is lost, or the loop's time reaches ``until``."""
        while not self._queue and (self._is_open or self._taken) and not self._closing:
            self._arrived.clear()
            try:
                async with asyncio.timeout_at(until):
                    await self._arrived.wait()
            except TimeoutError:
                return None
        return self._queue.popleft() if self._queue and not self._closing else None

    def _wrote(self, work: Work) -> None:
        """Every outcome of the batch is stored: there is room for another."""
        records = work.batch.records
        first_timestamp = records[0].timestamp if records else None
        counts = tally(work.outcomes)
        span = self._tracing.span(work, counts) if self._tracing is not None else None
        self._taken.popleft()
        self._written.append(_Written(work.batch.next_offset, counts, work.taken_at, first_timestamp, span))
        self._wake_fetch()

    def _confirm(self) -> None:
        """What is written counts: a restart would not do it again, or does it again knowingly (at least once)."""
        now = asyncio.get_running_loop().time()
        self.trouble = None
        for item in self._written:
            self.confirmed = item.next_offset
            # The wall's clock, as the timestamp's was.
            age = None if item.first_timestamp is None else time.time() - item.first_timestamp / 1000
            self._metrics.confirmed(self.tp.partition, item.tally, now - item.taken_at, age)
            if item.span is not None:
                item.span.end()
        self._written.clear()
        self._metrics.in_flight(self.tp.partition, self.in_flight)


def tally(outcomes: Outcomes) -> Tally:
    """Count a batch's outcomes; ``consumed`` is their sum."""
    others = [outcomes.each[index] for index in outcomes.others]
    produced = len(outcomes.each) - len(others)
    dropped: Counter[str] = Counter(outcome.reason for outcome in others if isinstance(outcome, Dropped))
    dead: Counter[str] = Counter(outcome.reason for outcome in others if isinstance(outcome, Unreadable))
    return Tally(produced, dropped, dead, len(outcomes.roles_replaced))
