"""Outcomes to record batches, record batches to the broker.

``Writer.write`` is the way out of a batch of events: it returns when the broker has confirmed every message and every
dead letter of it. To each partition it sends one record batch after the other and waits for each: a batch that is
refused leaves a gap in the producer's sequence, and a broker with no memory of the producer would take the batch
behind the gap, out of order (KIP-98). The time this costs is used by the partitions beside it.

What can't be stored becomes a dead letter here: a message larger than its topic takes, or one the broker refuses.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from aiokafka import errors as kafka_errors
from aiokafka.partitioner import murmur2
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.structs import TopicPartition

from worker.kafka import dead_letters, odd_names
from worker.kafka.topics import DEFAULT_LIMIT
from worker.rule.event import Unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aiokafka import AIOKafkaProducer

    from worker.kafka.dead_letters import DeadLetter
    from worker.kafka.records import Batch
    from worker.kafka.topics import Limits
    from worker.rule.event import UnreadableReason
    from worker.rule.outcome import Outcomes
    from worker.settings import Settings


class InvalidRecordError(kafka_errors.BrokerResponseError):  # type: ignore[misc] # aiokafka has no types
    """The broker refuses a record for what it is, such as one without a key in a compacted topic."""

    errno = 87
    message = "INVALID_RECORD"
    description = "The broker refused the record."


# aiokafka 0.14 does not know code 87 and would report the same UnknownError as for a fault of the broker. The two must
# not be mistaken for each other: one makes a dead letter, the other is tried again.
kafka_errors.kafka_errors.setdefault(InvalidRecordError.errno, InvalidRecordError)

#: A record too large for its topic has the topic's limit asked for, at most this often: a person may have raised it.
_LIMIT_SECONDS = 5.0
#: A topic may take more than Kafka's default. So much at a time, as in the benchmark, bounds the memory of a request.
_BATCH_BYTES = DEFAULT_LIMIT
_TOO_LARGE = (kafka_errors.MessageSizeTooLargeError, kafka_errors.RecordListTooLargeError)
REFUSED = (*_TOO_LARGE, kafka_errors.InvalidTimestampError, InvalidRecordError)


class Work(NamedTuple):
    """A batch of events and what is to become of each; ``taken_at`` is the loop's time at which it was read."""

    batch: Batch
    outcomes: Outcomes
    taken_at: float


class Channel(Protocol):
    """A producer as the writer sees it; the two guarantees differ in what ``failed`` does."""

    @property
    def producer(self) -> AIOKafkaProducer:
        """The producer in use now."""

    async def failed(self, producer: AIOKafkaProducer, error: Exception, *, refused: bool) -> None:
        """A record batch sent by ``producer`` was not stored: return to have it sent again, or raise to give up.

        ``refused``: the broker is well and will not take this batch; what comes instead can be sent at once.
        """


class Writer:
    """Stores the outcomes of one input partition, in order.

    It remembers what a broker refused until that is settled, because exactly once a refusal undoes the transaction and
    the same events come again.
    """

    def __init__(
        self, channel: Channel, settings: Settings, limits: Limits, input_partitions: Callable[[], int]
    ) -> None:
        """Write through ``channel`` to the topics of ``settings``, within ``limits``."""
        self._channel = channel
        self._input_partitions = input_partitions
        self._settings = settings
        self._limits = limits
        self._refusals = Refusals()

    async def write(self, work: Work) -> None:
        """Store every message, then every dead letter. Returns when the broker has confirmed them all."""
        cargo = _Messages(work, self._refusals)
        if messages := work.outcomes.messages():
            await self._to_each_partition(self._settings.output_topic, messages, cargo)
        each = work.outcomes.each
        if dead := [index for index in work.outcomes.others if type(each[index]) is Unreadable]:
            letters = _DeadLetters(work, self._refusals, self._settings.group_id)
            await self._to_each_partition(self._settings.dead_letter_topic, dead, letters)

    def forget(self) -> None:
        """What was written is settled."""
        self._refusals = Refusals()

    async def _to_each_partition(self, topic: str, indices: Sequence[int], cargo: _Cargo) -> None:
        shares = await self._by_partition(topic, indices, cargo.batch)
        if len(shares) == 1:  # the usual case, without a task of its own
            ((partition, share),) = shares.items()
            await self._ship(TopicPartition(topic, partition), share, cargo)
            return
        try:
            async with asyncio.TaskGroup() as group:
                for partition, share in shares.items():
                    group.create_task(self._ship(TopicPartition(topic, partition), share, cargo))
        except ExceptionGroup as errors:  # the first one ended the others
            raise errors.exceptions[0] from None

    async def _by_partition(self, topic: str, indices: Sequence[int], batch: Batch) -> Mapping[int, Sequence[int]]:
        """The input's partition where both topics have as many, else Kafka's default partitioning (contract, 1)."""
        there = await self._partition_count(topic)
        if there == self._input_partitions():
            return {batch.tp.partition: indices}
        shares: dict[int, list[int]] = {}
        for index in indices:
            key = batch.records[index].key
            partition = batch.tp.partition % there if key is None else (murmur2(key) & 0x7FFFFFFF) % there
            shares.setdefault(partition, []).append(index)
        return shares

    async def _partition_count(self, topic: str) -> int:
        while True:
            producer = self._channel.producer
            try:
                return len(await producer.partitions_for(topic))
            except kafka_errors.KafkaError as error:
                await self._channel.failed(producer, error, refused=False)

    async def _ship(self, to: TopicPartition, indices: Sequence[int], cargo: _Cargo) -> None:
        """Send ``indices`` to one partition, one record batch after the other, each confirmed before the next."""
        while indices := cargo.shippable(indices):
            producer = self._channel.producer
            limit = self._limits.of(to.topic)
            share = indices[: self._refusals.at_most]
            builder, count = _load(producer, limit, share, cargo)
            if count == 1 and builder.size() > limit and not _shrinks(producer, limit, share, cargo):
                if await self._limits.have_changed(to.topic, limit, not_within=_LIMIT_SECONDS):
                    continue
                detail = f"{builder.size()} bytes; {to.topic} takes {limit}"
                if cargo.refused(indices[0], "too-large", detail):
                    continue
            try:
                await _send(producer, builder, to)
            except REFUSED as error:
                another_way = await self._another_way(error, to, share[:count], cargo)
                await self._channel.failed(producer, error, refused=another_way)
            except kafka_errors.KafkaError as error:
                await self._channel.failed(producer, error, refused=False)
            else:
                indices = indices[count:]

    async def _another_way(
        self, error: kafka_errors.BrokerResponseError, to: TopicPartition, share: Sequence[int], cargo: _Cargo
    ) -> bool:
        """The broker refused a batch: find one that it takes. False if there is none, and only patience is left."""
        too_large = isinstance(error, _TOO_LARGE)
        if too_large and await self._limits.have_changed(to.topic, self._limits.of(to.topic)):
            return True
        if len(share) > 1:  # one of them it is: find it
            self._refusals.at_most = len(share) // 2
            return True
        return cargo.refused(
            share[0], "too-large" if too_large else "rejected", f"{to.topic} refused it: {error.message}"
        )


@dataclasses.dataclass(slots=True)
class Refusals:
    """What the broker would not take, by input offset, and how many records it is given at a time meanwhile."""

    messages: dict[int, Unreadable] = dataclasses.field(default_factory=dict)
    letters: dict[int, DeadLetter] = dataclasses.field(default_factory=dict)
    at_most: int | None = None


class _Cargo(Protocol):
    """What goes to one topic."""

    batch: Batch

    def shippable(self, indices: Sequence[int]) -> Sequence[int]:
        """Which of them still go to this topic."""

    def load(self, builder: BatchBuilder, indices: Sequence[int]) -> int:
        """Fill a record batch with as many as fit, at least one; returns how many."""

    def refused(self, index: int, reason: UnreadableReason, detail: str) -> bool:
        """The record at ``index`` can't be stored as it is; False if there is nothing else to try but patience."""


class _Messages:
    def __init__(self, work: Work, refusals: Refusals) -> None:
        self.batch = work.batch
        self._outcomes = work.outcomes
        self._refused = refusals.messages
        if self._refused:
            for index, record in enumerate(work.batch.records):
                if record.offset in self._refused:
                    self._to_dead_letter(index)

    def shippable(self, indices: Sequence[int]) -> Sequence[int]:
        if not self._refused:
            return indices
        return [index for index in indices if type(self._outcomes.each[index]) is bytes]

    def load(self, builder: BatchBuilder, indices: Sequence[int]) -> int:
        """Key, headers and timestamp are the input record's own (contract, section 1)."""
        append = builder._builder.append  # without the two Python layers above it
        records, each = self.batch.records, self._outcomes.each
        count = 0
        for index in indices:
            record = records[index]
            if append(count, record.timestamp, record.key, each[index], record.headers) is None:
                break
            count += 1
        return _loaded(builder, count)

    def refused(self, index: int, reason: UnreadableReason, detail: str) -> bool:
        """A message that can't be stored makes its event a dead letter."""
        self._refused[self.batch.records[index].offset] = Unreadable(reason, detail)
        self._to_dead_letter(index)
        return True

    def _to_dead_letter(self, index: int) -> None:
        self._outcomes.make_dead(index, self._refused[self.batch.records[index].offset])


class _DeadLetters:
    def __init__(self, work: Work, refusals: Refusals, group: str) -> None:
        self.batch = work.batch
        self._shortened = refusals.letters
        self._each = work.outcomes.each
        self._group = group

    def shippable(self, indices: Sequence[int]) -> Sequence[int]:
        return indices

    def load(self, builder: BatchBuilder, indices: Sequence[int]) -> int:
        append = builder._builder.append
        count = 0
        for index in indices:
            letter = self._letter(index)
            if append(count, letter.timestamp, letter.key, letter.value, letter.headers) is None:
                break
            count += 1
        return _loaded(builder, count)

    def refused(self, index: int, reason: UnreadableReason, detail: str) -> bool:  # noqa: ARG002
        """Try with less: first without the value, then with our own headers only.

        A topic that takes not even those (compacted, or of another age) needs a person; until then the lane waits.
        """
        letter = self._letter(index)
        shorter = letter.bare() if letter.value is None else letter.without_value()
        self._shortened[self.batch.records[index].offset] = shorter
        return shorter != letter

    def _letter(self, index: int) -> DeadLetter:
        record = self.batch.records[index]
        if (shortened := self._shortened.get(record.offset)) is not None:
            return shortened
        return dead_letters.build(record, self.batch.tp, cast("Unreadable", self._each[index]), self._group)


def _load(producer: AIOKafkaProducer, limit: int, indices: Sequence[int], cargo: _Cargo) -> tuple[BatchBuilder, int]:
    """A record batch with as many of ``indices`` as fit, at least one; and how many they are."""
    accumulator = producer._message_accumulator  # create_batch() allows one size for all topics
    manager = producer._txn_manager
    transactional = manager is not None and manager.transactional_id is not None
    make = odd_names.OddBatchBuilder if odd_names.are_odd(cargo.batch.records) else BatchBuilder
    builder = make(min(limit, _BATCH_BYTES), accumulator._compression_type, is_transactional=transactional)
    return builder, cargo.load(builder, indices)


def _shrinks(producer: AIOKafkaProducer, limit: int, share: Sequence[int], cargo: _Cargo) -> bool:
    """Whether one record that is too large fits when it is compressed. Tried on a twin: a batch is built only once."""
    twin, _ = _load(producer, limit, share[:1], cargo)
    return len(twin._build()) <= limit


async def _send(producer: AIOKafkaProducer, builder: BatchBuilder, to: TopicPartition) -> None:
    """Send one record batch and wait until the broker has confirmed it.

    Raises ``KafkaError``, also when the producer's sender has ended, which would leave the batch waiting for ever.
    """
    stored = await producer.send_batch(builder, to.topic, partition=to.partition)
    await asyncio.wait({stored, producer._sender.sender_task}, return_when=asyncio.FIRST_COMPLETED)
    if not stored.done():
        raise kafka_errors.KafkaError("the producer ended before the batch was stored")
    stored.result()


def _loaded(builder: BatchBuilder, count: int) -> int:
    builder._relative_offset = count  # append() of the layer above would have counted
    builder.close()
    return count
