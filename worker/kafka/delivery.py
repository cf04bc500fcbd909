"""What both guarantees share in looking after lanes: assign, hand over, give up.

The life of an assignment, and what a death at each step costs:

1. ``assign``   a new lane for each partition, each in a task of its own, because aiokafka sends no heartbeat while
                its callback runs. Nothing has been read: nothing is lost.
2. ``taken``    the fetch hands a batch over; ``accept`` puts it into its lane, decided. Nothing is stored: the next
                owner reads it again.
3. the lane     stores outcomes, then its offset moves: see ``at_least_once.py`` and ``transaction.py``.
4. ``revoke``   lanes finish what they are writing and let go of the rest, offsets are committed, and only then does
                the group go on. What can't be finished in time is not committed: the next owner does it again.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
from typing import TYPE_CHECKING

from aiokafka.errors import KafkaError
from faust.types import TP

from worker.kafka import connection, positions
from worker.kafka.protocol import UnstableOffsetCommitError
from worker.kafka.retry import Retry
from worker.observe.health import Partition
from worker.observe.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aiokafka import AIOKafkaConsumer

    from worker.kafka.lane import Lane
    from worker.kafka.positions import Start
    from worker.kafka.records import Batch
    from worker.kafka.topics import Limits
    from worker.observe.metrics import Metrics
    from worker.observe.tracing import Tracing
    from worker.rule.outcome import Outcomes
    from worker.settings import Settings

log = get_logger(__name__)

#: A lane that can't finish within this when its partition is taken away is left to the next owner. Less than the
#: group's rebalance time-out, or the group would go on without us.
REVOKE_TIMEOUT = 12.0
#: How long to wait while the newest offset is in an open transaction. Exactly once, ours has ended before we ask, so it
#: is somebody else's, or one whose end the cluster has lost; at least once, one of a worker that was exactly once and
#: died. After this the offset before it counts.
UNSTABLE_SECONDS = 20.0
#: How long a stop waits for a broker that is not even connected.
UNREACHABLE_SECONDS = 5.0


class Delivery(abc.ABC):
    """The lanes of this worker."""

    tracing: Tracing | None = None

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        limits: Limits,
        *,
        wake_fetch: Callable[[], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        """Deliver by ``settings``; ``fail`` is told of what no retry can mend."""
        self.settings = settings
        self.metrics = metrics
        self.limits = limits
        self.lanes: dict[TP, Lane] = {}
        self.committing = asyncio.Lock()
        self.wake_fetch = wake_fetch
        self.fail = fail
        self._tasks: dict[asyncio.Task[None], TP] = {}
        self._log_starts: dict[TP, int] = {}
        self._shown: set[int] = set()
        self._stopping = False
        self.joined = False  # in the group's current generation, with partitions or as a spare
        self._consumer: AIOKafkaConsumer

    def start(self, consumer: AIOKafkaConsumer) -> None:
        """Begin to deliver what ``consumer`` reads."""
        self._consumer = consumer

    @abc.abstractmethod
    def _new_lane(self, tp: TP) -> Lane:
        """A lane of this guarantee."""

    @abc.abstractmethod
    async def commit(self) -> None:
        """Commit what is confirmed and not yet committed."""

    @abc.abstractmethod
    def owes_commit(self) -> bool:
        """Whether outcomes are stored whose offset is not committed: a restart would store them again."""

    def wanted(self) -> set[TP]:
        """Partitions whose lane has room."""
        return {tp for tp, lane in self.lanes.items() if lane.wants_more}

    def taken(self, batch: Batch) -> None:
        """The fetch hands over a batch."""
        self.lanes[batch.tp].taken(batch)

    def accept(self, batch: Batch, outcomes: Outcomes) -> None:
        """Put a decided batch into its lane, or let it go if the partition is no longer ours."""
        lane = self.lanes.get(batch.tp)
        if lane is not None:
            lane.accept(batch, outcomes)

    def lose(self, tp: TP) -> None:
        """The log no longer has what comes next in this partition."""
        lane = self.lanes.get(tp)
        if lane is not None:
            lane.lose()

    def assign(self, tps: Iterable[TP]) -> None:
        """Start a lane for each partition of a new assignment, unless the worker is on its way out."""
        tps = [] if self._stopping else list(tps)
        self.joined = not self._stopping
        for partition in self._shown - {tp.partition for tp in tps}:
            self.metrics.given_up(partition)
            self._shown.discard(partition)
        for tp in tps:
            self._shown.add(tp.partition)
            lane = self.lanes[tp] = self._new_lane(tp)
            task = asyncio.create_task(lane.run(), name=f"lane {tp.topic}-{tp.partition}")
            self._tasks[task] = tp
            task.add_done_callback(self._lane_ended)

    def _lane_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    async def revoke(self, seconds: float = REVOKE_TIMEOUT) -> bool:
        """Give up all lanes within ``seconds``; False if something had to be left for the next owner to do again."""
        self.joined = False
        deadline = asyncio.get_running_loop().time() + seconds
        for lane in self.lanes.values():
            lane.close()
        clean = await self._lanes_end(deadline)
        try:
            async with asyncio.timeout_at(deadline):
                await self.commit()
        except TimeoutError:
            pass  # said below, if it matters
        if self.owes_commit():
            log.warning("commit-left", hint="what was stored since the last commit will be done again")
            clean = False
        for tp in self.lanes:
            self.metrics.paused(tp.partition)
        self.lanes.clear()
        return clean

    async def _lanes_end(self, deadline: float) -> bool:
        """Wait for lanes to finish what they are writing, and cut off those that can't; True if that left no event."""
        tasks = dict(self._tasks)
        for task, tp in tasks.items():
            lane = self.lanes.get(tp)
            if lane is not None and lane.is_starting:  # it may wait for long
                task.cancel()
        late: set[asyncio.Task[None]] = set()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=max(deadline - asyncio.get_running_loop().time(), 0))
        cut_off = [self.lanes[tasks[task]] for task in late]
        clean = not any(lane.in_flight for lane in cut_off) and not any(lane.unfinished for lane in self.lanes.values())
        for task in late:
            task.cancel()
        for lane in cut_off:
            log.warning(
                "partition-cut-off",
                partition=lane.tp.partition,
                left_in_flight=lane.in_flight,
                next_offset=lane.confirmed,
            )
        if late:
            await asyncio.wait(late, timeout=connection.CLOSE_TIMEOUT)
        return clean

    async def drain(self, seconds: float) -> bool:
        """Give up all lanes for good; see ``revoke``."""
        self._stopping = True
        connected = any(connection.connected() for connection in self._consumer._client._conns.values())  # noqa: SLF001
        return await self.revoke(seconds if connected else min(seconds, UNREACHABLE_SECONDS))

    def input_partitions(self) -> int:
        """How many partitions the input topic has."""
        return len(self._consumer.partitions_for_topic(self.settings.input_topic) or ())

    def seek(self, tp: TP, offset: int) -> None:
        """Have the partition fetched from ``offset`` on; what was fetched before is thrown away."""
        self._consumer.seek(tp, offset)

    async def find_start(self, tp: TP) -> Start:
        """Where a lane begins; asks until the cluster answers."""
        retry = Retry(log, "start-unknown", partition=tp.partition)
        now = asyncio.get_running_loop().time
        unstable_since: float | None = None
        while True:
            stable = unstable_since is None or now() < unstable_since + UNSTABLE_SECONDS
            try:
                start = await positions.find(self._consumer, tp, start_from=self.settings.start_from, stable=stable)
            except UnstableOffsetCommitError as error:
                unstable_since = unstable_since or now()
                await retry.pause(error)
            except KafkaError as error:  # perhaps another coordinator answers next
                unstable_since = None
                await retry.pause(error)
            else:
                if not stable:
                    log.warning("offset-unstable", partition=tp.partition, goes_on_at=start.offset)
                _say(tp, start, self.settings.start_from)
                return start

    def observe(self) -> None:
        """Bring the gauges up to date."""
        for tp, lane in self.lanes.items():
            self.metrics.committed(tp.partition, lane.committed, self.lag(tp))

    def lag(self, tp: TP) -> int | None:
        """Log end minus the committed offset, or the log's start where that is later; None before the first fetch.

        Before the first commit, what a restart would do counts: where the lane was opened.
        """
        lane = self.lanes[tp]
        end: int | None = self._consumer.highwater(tp)
        if end is None or lane.start < 0:
            return None
        committed = lane.committed if lane.committed >= 0 else lane.start
        return max(0, end - max(committed, self._log_starts.get(tp, 0)))

    async def ask_log_starts(self) -> None:
        """Learn where the logs begin now: retention or DeleteRecords may have passed a committed offset."""
        with contextlib.suppress(KafkaError):  # the next time will do
            self._log_starts = {TP(*tp): at for tp, at in (await self._consumer.beginning_offsets(self.lanes)).items()}

    def partitions(self) -> list[Partition]:
        """How each of our partitions is, for ``observe.health``."""
        return [
            Partition(
                number=tp.partition,
                opened=lane.start >= 0,
                confirmed=lane.confirmed,
                readable_end=self._consumer.last_stable_offset(tp),
                log_end=self._consumer.highwater(tp),
                lag=self.lag(tp),
                in_flight=lane.in_flight,
                trouble=lane.trouble,
            )
            for tp, lane in sorted(self.lanes.items())
        ]

    def broker_answered(self) -> float | None:
        """When a broker last answered, by the monotonic clock; None while there is no connection."""
        return connection.last_answer(self._consumer)


def _say(tp: TP, start: Start, start_from: str) -> None:
    if start.why is positions.Why.LOST:
        log.warning(
            "committed-offset-lost",
            topic=tp.topic,
            partition=tp.partition,
            lost=start.lost,
            goes_on_at=start.offset,
            start_from=start_from,
        )
    elif start.why is positions.Why.COMMITTED:
        log.info("partition-started", partition=tp.partition, offset=start.offset)
    else:
        log.info(
            "no-committed-offset",
            partition=tp.partition,
            starting_at=start.offset,
            start_from=start_from if start.why is positions.Why.FIRST_START else "earliest (partition added)",
        )
