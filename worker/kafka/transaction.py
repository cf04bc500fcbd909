"""Exactly once: output, dead letters and the offset in one transaction, one transactional producer a partition.

aiokafka speaks TxnOffsetCommit v0, which carries no group generation (KIP-447), so the group does not fence a worker
that lost its partition. One ``transactional.id`` for each input partition does (KIP-98). A *session* is:

1. init    InitProducerId fences every earlier session of the partition, and returns only when the transaction that
           one left open has ended, either way, its offsets with it
2. read    the committed offset, a stable one (KIP-447, Kafka 2.5): a new coordinator of the group may not know yet that
           it holds the last one (positions.read_commits). What stays unstable for long is passed (UNSTABLE_SECONDS)
3. seek    there
4. begin   a transaction, store outcomes, add the offset, commit; again and again

Why each event counts once: two sessions of one partition are ordered by their inits. All that the earlier one did is
committed before the later one reads the offset (1 before 2), or it never will be: its epoch is fenced. So every
committed transaction begins at the offset where the one before it ended, whoever ran it. What the group believes, who
freezes or dies, how often partitions move: nothing of it matters to this.

What each event costs, at the step where it strikes:

- killed, or partition taken away before 4's commit: the transaction is aborted by the next init; done again
- frozen past the session time-out, then awake (a zombie): its next call is fenced; it looks for its partitions anew
- a late init by a zombie: it fences the rightful owner and ends that one's transaction, then reads the offset like
  anyone; what it commits counts, and the rightful owner, fenced, makes a new session and reads on from there
- killed between commit and its answer: the next session reads the offset, and finds out
- two rebalances in a row, or a revoke while 1 waits: the session is cancelled; nothing was begun

What the cluster itself may lose: Kafka 4 acknowledges a commit, and leaves out its markers, while a partition of it has
no leader. The offset then is the old one or stays unstable, and the records lie open until the next commit of the same
producer id ends them: doing them again would double them. So a session that follows one of this process directly (same
producer id, next epoch: nobody can have aborted or redone anything in between) and finds an older commit than the one
acknowledged makes that again.

There is no explicit abort. The one way out of a transaction that is not committed is the next session's init, ours or
another owner's: one path, the same for a fence, a refused record, an unknown outcome and a crash.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from worker.kafka import connection, positions
from worker.kafka.delivery import Delivery
from worker.kafka.lane import Lane
from worker.kafka.retry import Retry, describe
from worker.kafka.writer import REFUSED, Writer
from worker.observe.logs import get_logger

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from faust.types import TP

    from worker.kafka.positions import Start
    from worker.kafka.writer import Work

log = get_logger(__name__)

#: Events in one transaction at most, so that what an abort costs does not grow with the commit interval.
MAX_TRANSACTION = 200_000


class ExactlyOnce(Delivery):
    """Lanes that each have a producer of their own."""

    def start(self, consumer: AIOKafkaConsumer) -> None:
        """Nothing is acknowledged yet."""
        super().start(consumer)
        self.acknowledged: dict[TP, _Acknowledged] = {}

    def _new_lane(self, tp: TP) -> Lane:
        return _Lane(tp, self)

    async def commit(self) -> None:
        """Nothing to do: a lane commits its own offset, in its transaction."""

    def owes_commit(self) -> bool:
        """Never: what is stored and not committed is undone."""
        return False


class _Acknowledged(NamedTuple):
    """A partition's last commit, as the cluster acknowledged it; ``partitions`` had records in it."""

    offset: int
    producer_id: int
    epoch: int
    partitions: frozenset[TopicPartition]


class _SessionOverError(Exception):
    """The session can't go on; the next one reads the committed offset and does what is left."""


class _Lane(Lane):
    """One session after another, until the partition is given up. It is the writer's channel, too."""

    producer: AIOKafkaProducer

    def __init__(self, tp: TP, delivery: ExactlyOnce) -> None:
        super().__init__(tp, delivery.metrics, delivery.tracing, delivery.wake_fetch)
        settings = delivery.settings
        self._delivery = delivery
        self._settings = settings
        self._transactional_id = f"{settings.group_id}-{tp.topic}-{tp.partition}"
        self._writer = Writer(self, settings, delivery.limits, delivery.input_partitions)
        self._retry = Retry(log, "session-over", partition=tp.partition)
        self._since = ""

    @property
    def committed(self) -> int:
        return self.confirmed

    async def failed(self, producer: AIOKafkaProducer, error: Exception, *, refused: bool) -> None:  # noqa: ARG002
        """Whatever is not stored ends the session: the sequence has a gap, or the producer is fenced."""
        raise _SessionOverError from error

    async def run(self) -> None:
        while not self._closing:
            self.producer = connection.producer(self._settings, self._transactional_id)
            try:
                await self._session()
            except (KafkaError, _SessionOverError) as error:
                self._is_open = False
                self.unfinished = self._closing and self.in_flight > 0
                if not isinstance(error.__cause__, REFUSED):
                    self.trouble = describe(error.__cause__ or error)
                    await self._retry.pause(error.__cause__ or error)
            finally:
                await connection.cut(self.producer)

    async def _session(self) -> None:
        await self.producer.start()
        start = await self._delivery.find_start(self.tp)  # after the init, never before it
        start = await self._commit_again(start)
        self._settle(start.offset)
        self._since = start.since
        self._delivery.seek(self.tp, start.offset)
        self._open(start.offset)
        if start.why is not positions.Why.COMMITTED:
            await self._commit_only(start.offset)
        while (work := await self._next()) is not None:
            await self._transaction(work)
            self._retry.reset()

    async def _transaction(self, first: Work) -> None:
        """Store as many batches as come within the commit interval, and their offset, as one."""
        now = asyncio.get_running_loop().time
        until = now() + self._settings.commit_interval
        next_offset, events = -1, 0
        work: Work | None = first
        await self.producer.begin_transaction()
        while work is not None:
            await self._writer.write(work)
            self._wrote(work)
            next_offset = work.batch.next_offset
            events += len(work.batch.records)
            work = await self._next(until) if events < MAX_TRANSACTION and now() < until else None
        await self._commit(next_offset)
        self._settle(next_offset)

    async def _commit_only(self, offset: int) -> None:
        """Make the start a committed one; see positions.py."""
        await self.producer.begin_transaction()
        await self._commit(offset)

    async def _commit_again(self, start: Start) -> Start:
        """Repeat the last commit if the cluster acknowledged it and has lost it; see the module's docstring.

        No commit at all is no lost one: Kafka removes a group's offsets with the topic they belong to.
        """
        last = self._delivery.acknowledged.get(self.tp)
        manager = self.producer._txn_manager
        if (
            last is None
            or start.why is not positions.Why.COMMITTED
            or start.offset >= last.offset
            or (manager.producer_id, manager.producer_epoch) != (last.producer_id, last.epoch + 1)
        ):
            return start
        log.warning("commit-lost", partition=self.tp.partition, acknowledged=last.offset, found=start.offset)
        await self.producer.begin_transaction()
        for partition in last.partitions:
            manager.maybe_add_partition_to_txn(partition)
        await self._commit(last.offset)
        return start._replace(offset=last.offset)

    async def _commit(self, offset: int) -> None:
        manager = self.producer._txn_manager
        try:
            await self.producer.send_offsets_to_transaction(
                {TopicPartition(*self.tp): OffsetAndMetadata(offset, self._since)}, self._settings.group_id
            )
            partitions = frozenset(manager.txn_partitions)
            await self.producer.commit_transaction()
        except KafkaError:
            self._metrics.commits.labels("failed").inc()
            raise
        self._delivery.acknowledged[self.tp] = _Acknowledged(
            offset, manager.producer_id, manager.producer_epoch, partitions
        )
        self._metrics.commits.labels("ok").inc()

    def _settle(self, committed: int) -> None:
        """Count what was written, now that the committed offset says that it counts."""
        if self._written and self._written[-1].next_offset == committed:
            self._confirm()
            self._writer.forget()
