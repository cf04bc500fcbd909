"""At least once: store, then commit.

One idempotent producer (``acks=all``) a lane. The order of events in it, and what a death costs:

1. read the committed offset, seek       nothing
2. store a batch's outcomes              read again by the next owner: its messages may come twice, in order
3. move ``confirmed``                    the same
4. commit ``confirmed``                  nothing: all below it is stored

The offset never moves before the outcome is confirmed, so nothing is lost; a clean stop or rebalance waits for 2 and
does 4, so nothing is doubled.

A producer of its own keeps a lane's troubles its own, and lets lanes write side by side: aiokafka has one request under
way to a broker for each producer.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from worker.kafka import connection, positions
from worker.kafka.delivery import Delivery
from worker.kafka.lane import Lane
from worker.kafka.retry import Retry, describe
from worker.kafka.writer import Writer
from worker.observe.logs import get_logger

if TYPE_CHECKING:
    from aiokafka import AIOKafkaProducer
    from faust.types import TP

log = get_logger(__name__)


class AtLeastOnce(Delivery):
    """Lanes whose offsets are committed together."""

    def _new_lane(self, tp: TP) -> Lane:
        return _Lane(tp, self)

    async def commit(self) -> None:
        """Commit every lane's confirmed offset in one request; a refusal is left to the next try or owner."""
        async with self.committing:
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

    def _own_lanes(self) -> list[_Lane]:
        return [lane for lane in self.lanes.values() if isinstance(lane, _Lane)]


class _Lane(Lane):
    """It is the writer's channel, too."""

    producer: AIOKafkaProducer

    def __init__(self, tp: TP, delivery: AtLeastOnce) -> None:
        super().__init__(tp, delivery.metrics, delivery.tracing, delivery.wake_fetch)
        self._delivery = delivery
        self._writer = Writer(self, delivery.settings, delivery.limits, delivery.input_partitions)
        self._retry = Retry(log, "write-failed", partition=tp.partition)
        self._replacing = asyncio.Lock()
        self._committed = -1
        self.since = ""

    @property
    def committed(self) -> int:
        return self._committed

    def set_committed(self, offset: int) -> None:
        self._committed = offset

    async def run(self) -> None:
        self.producer = await self._new_producer()
        try:
            while not self._closing:
                await self._begin()
                while (work := await self._next()) is not None:
                    await self._writer.write(work)
                    self._wrote(work)
                    self._confirm()
                    self._writer.forget()
                    self._retry.reset()
        finally:  # cut off in mid-write, what waits in it must not be sent behind the next owner's
            await connection.cut(self.producer)

    async def _begin(self) -> None:
        if self.confirmed >= 0:
            await self._delivery.commit()  # the lane was lost in mid-stream: what it did must count
        start = await self._delivery.find_start(self.tp)
        # A start that was not committed is one now: see positions.py, and a group that only waits shows its lag.
        self._committed = start.offset if start.why is positions.Why.COMMITTED else -1
        self.since = start.since
        self._delivery.seek(self.tp, start.offset)
        self._open(start.offset)

    async def failed(self, producer: AIOKafkaProducer, error: Exception, *, refused: bool) -> None:
        """Go on with a new producer: the old one's sequence has a gap, for which the broker would refuse all else."""
        if not refused:
            self.trouble = describe(error)
            await self._retry.pause(error)
        async with self._replacing:
            if self.producer is producer:
                if refused:  # the broker is well: what goes to other partitions arrives first
                    await producer.flush()
                await connection.cut(producer)
                self.producer = await self._new_producer()

    async def _new_producer(self) -> AIOKafkaProducer:
        retry = Retry(log, "producer-not-started", partition=self.tp.partition)
        while True:
            producer = connection.producer(self._delivery.settings)
            try:
                await producer.start()
            except KafkaError as error:
                await connection.cut(producer)
                await retry.pause(error)
            except asyncio.CancelledError:
                await connection.cut(producer)
                raise
            else:
                return producer
