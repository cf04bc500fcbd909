"""At least once: store, then commit.

One idempotent producer (``acks=all``) for all partitions. The order of events in a lane, and what a death costs:

1. read the committed offset, seek       nothing
2. store a batch's outcomes              read again by the next owner: its messages may come twice, in order
3. move ``confirmed``                    the same
4. commit ``confirmed``                  nothing: all below it is stored

The offset never moves before the outcome is confirmed, so nothing is lost; a clean stop or rebalance waits for 2 and
does 4, so nothing is doubled.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from worker.kafka import connection, positions
from worker.kafka.delivery import Delivery
from worker.kafka.lane import Lane
from worker.kafka.retry import Retry, describe
from worker.kafka.writer import Writer
from worker.observe.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from faust.types import TP

    from worker.kafka.topics import Limits
    from worker.settings import Settings

log = get_logger(__name__)


class AtLeastOnce(Delivery):
    """Lanes that share a producer; their offsets are committed together."""

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401
        """See ``Delivery``."""
        super().__init__(*args, **options)
        self._producer = _SharedProducer(self.settings)
        self._committing = asyncio.Lock()

    async def start(self, consumer: AIOKafkaConsumer) -> None:
        """Begin to deliver what ``consumer`` reads."""
        await super().start(consumer)
        await self._producer.start()

    def _new_lane(self, tp: TP) -> Lane:
        return _Lane(tp, self, self._producer, self.limits)

    async def commit(self) -> None:
        """Commit every lane's confirmed offset in one request; a refusal is left to the next try or owner."""
        async with self._committing:
            lanes = [lane for lane in self._own_lanes() if lane.confirmed > lane.committed]
            if not lanes:
                return
            offsets = {TopicPartition(*lane.tp): OffsetAndMetadata(lane.confirmed, lane.since) for lane in lanes}
            try:
                await self._consumer.commit(offsets)
            except (CommitFailedError, IllegalStateError) as error:
                # The group has moved on. What is stored and not committed is read again by the next owner.
                log.info("commit-refused", reason=describe(error))
            except KafkaError as error:
                log.warning("commit-failed", error=describe(error))
            else:
                self.metrics.commits.labels("ok").inc()
                for lane in lanes:
                    lane.set_committed(offsets[TopicPartition(*lane.tp)].offset)
                return
            self.metrics.commits.labels("failed").inc()

    def owes_commit(self) -> bool:
        """Compare with where a lane began, too: a start that is not committed costs nothing."""
        return any(lane.confirmed > max(lane.committed, lane.start) for lane in self.lanes.values())

    async def stop(self) -> None:
        """Let go of the producer; lanes have been revoked."""
        await self._producer.stop()

    def _abandon(self) -> None:
        # A batch of the lane that was cut off may still wait in the producer; sent later it would come after the next
        # owner's. The other lanes lost their partitions too.
        self._producer.abandon()

    def _own_lanes(self) -> list[_Lane]:
        return [lane for lane in self.lanes.values() if isinstance(lane, _Lane)]


class _Lane(Lane):
    """It is the writer's channel, too, so that a write that fails is known to be this lane's."""

    def __init__(self, tp: TP, delivery: AtLeastOnce, shared: _SharedProducer, limits: Limits) -> None:
        super().__init__(tp, delivery.metrics, delivery.wake_fetch)
        self._delivery = delivery
        self._shared = shared
        self._writer = Writer(self, delivery.settings, limits, delivery.input_partitions)
        self._retry = Retry(log, "write-failed", partition=tp.partition)
        self._committed = -1
        self.since = ""

    @property
    def producer(self) -> AIOKafkaProducer:
        return self._shared.producer

    async def failed(self, producer: AIOKafkaProducer, error: Exception, *, refused: bool) -> None:
        if not refused:
            self.trouble = describe(error)
            await self._retry.pause(error)
        await self._shared.replace(producer)

    @property
    def committed(self) -> int:
        return self._committed

    def set_committed(self, offset: int) -> None:
        self._committed = offset

    async def run(self) -> None:
        while not self._closing:
            await self._begin()
            while (work := await self._next()) is not None:
                await self._writer.write(work)
                self._wrote(work)
                self._confirm()
                self._writer.forget()
                self._retry.reset()

    async def _begin(self) -> None:
        if self.confirmed >= 0:
            await self._delivery.commit()  # the lane was lost in mid-stream: what it did must count
        start = await self._delivery.find_start(self.tp)
        # A start that was not committed is one now: see positions.py, and a group that only waits shows its lag.
        self._committed = start.offset if start.why is positions.Why.COMMITTED else -1
        self.since = start.since
        self._delivery.seek(self.tp, start.offset)
        self._open(start.offset)


class _SharedProducer:
    """The idempotent producer of all lanes, replaced by a new one when it can't be trusted any more.

    A batch that was refused, or that failed for good, leaves a gap in the producer's sequence of that partition; each
    later batch would be refused for it. A new producer has a sequence of its own.
    """

    def __init__(self, settings: Settings) -> None:
        self.producer = connection.producer(settings)
        self._settings = settings
        self._replacing = asyncio.Lock()
        self._background: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self.producer = await self._started(self.producer)

    async def stop(self) -> None:
        leaving = [asyncio.create_task(self.producer.stop()), *self._background]
        _, late = await asyncio.wait(leaving, timeout=connection.CLOSE_TIMEOUT)
        for task in late:
            task.cancel()
        await connection.cut(self.producer)

    async def replace(self, producer: AIOKafkaProducer) -> None:
        """Replace this producer, once, whoever asks first. It first sends what other lanes gave it."""
        async with self._replacing:
            if self.producer is producer:
                self.producer = await self._started(connection.producer(self._settings))
                self._in_background(producer.stop())

    def abandon(self) -> None:
        """Cut the producer off, so that nothing that waits in it is sent."""
        self._in_background(connection.cut(self.producer))
        self._in_background(self.replace(self.producer))

    async def _started(self, producer: AIOKafkaProducer) -> AIOKafkaProducer:
        retry = Retry(log, "producer-not-started")
        while True:
            try:
                await producer.start()
            except KafkaError as error:
                await producer.stop()
                await retry.pause(error)
                producer = connection.producer(self._settings)
            else:
                return producer

    def _in_background(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
