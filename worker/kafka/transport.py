"""Faust's transport, by the batch: one Faust message is one fetched batch of one partition, bytes untouched.

Faust hands its agents one record at a time, from a consumer in a thread of its own, and keeps offsets one by one. Here
its consumer runs in the agent's own event loop (two loops fight over the interpreter's lock), a message holds a whole
``Batch``, and offsets are the lanes' business: Faust's acknowledgements think in single offsets, and wait for ever for
one that compaction took away.

What Faust still does: services and their order, the topic's channel, the stream and its agent, the guard against
messages of an old generation. What is relied on in aiokafka's consumer is pinned by ``tests/kafka/test_internals.py``.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

import faust
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import (
    ConsumerStoppedError,
    CorruptRecordException,
    KafkaConnectionError,
    KafkaError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
)
from faust.transport.conductor import Conductor
from faust.transport.consumer import Consumer
from faust.transport.drivers.aiokafka import Transport
from faust.types import TP, ConsumerMessage
from mode import Service

from worker.kafka import connection, odd_names, records
from worker.kafka.retry import Retry
from worker.observe.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Mapping

    from faust.types import AppT

    from worker.kafka.delivery import Delivery
    from worker.kafka.records import Batch
    from worker.settings import Settings

log = get_logger(__name__)

#: A member that says nothing for so long is taken for dead: the longest gap that a kill -9 makes.
SESSION_TIMEOUT_MS = 10_000
HEARTBEAT_MS = 2_000
#: How long the group waits for its members to give up what they have.
REBALANCE_TIMEOUT_MS = 20_000
#: The fetch looks around this often even when nothing wakes it.
IDLE_SECONDS = 1.0
_FETCH_MAX_BYTES = 16 * 1024 * 1024


class _Pace(NamedTuple):
    """When the broker answers a fetch: with so many bytes, or after so long."""

    min_bytes: int
    max_wait_ms: int


#: In silence, the first event is answered at once.
AT_ONCE = _Pace(1, 500)
#: While events come, those of a moment come together: each fetch, and each batch, costs worker and broker the same with
#: one event as with a hundred.
GATHERED = _Pace(64 * 1024, 10)
#: Two fetches that gathered nothing are silence.
_SILENCE_SECONDS = 2 * GATHERED.max_wait_ms / 1000


class Batches(faust.Schema[Any, Any]):
    """The agent's events are batches: nothing to decode."""

    def compile(self, app: AppT, **_: Any) -> Any:  # noqa: ANN401 - Faust's own signature
        """Pass the batch on as the event's value."""
        create_event = app.create_event

        async def decode(message: Any, **_: Any) -> Any:  # noqa: ANN401
            return create_event(None, message.value, message.headers, message)

        return decode


class BatchConsumer(Consumer):
    """Faust's consumer around one aiokafka consumer, in the same event loop."""

    settings: Settings
    delivery: Delivery
    kafka: AIOKafkaConsumer
    mundane_level = "debug"
    _waiting: asyncio.Future[None] | None = None
    _idle_seconds = IDLE_SECONDS

    async def on_start(self) -> None:
        """Connect; the group is joined when the topic is subscribed to."""
        self.kafka = AIOKafkaConsumer(
            **connection.arguments(self.settings),
            group_id=self.settings.group_id,
            group_instance_id=self.settings.instance_id,
            partition_assignment_strategy=[RoundRobinPartitionAssignor],
            enable_auto_commit=False,
            auto_offset_reset="none",  # a lane finds its start itself: see positions.py
            isolation_level="read_committed",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            fetch_max_bytes=_FETCH_MAX_BYTES,
            fetch_min_bytes=AT_ONCE.min_bytes,
            fetch_max_wait_ms=AT_ONCE.max_wait_ms,
        )
        await self._connect()
        self.delivery.start(self.kafka)

    async def _connect(self) -> None:
        retry = Retry(log, "waiting-for-broker")
        while True:
            try:
                await self.kafka.start()
            except KafkaConnectionError as error:  # it was there a moment ago: topics.prepare waited for it
                await retry.pause(error)
            else:
                return

    async def on_stop(self) -> None:
        """Leave the group; lanes have been revoked by then (``app.WorkerApp.drain``)."""
        await self.kafka.stop()

    async def subscribe(self, topics: Iterable[str]) -> None:
        """Join the group for the agent's topic."""
        self.kafka.subscribe(list(topics), listener=_Listener(self))

    @Service.task
    async def _watch_joining(self) -> None:
        """Hear that the group will not have us: nobody asks before it has given us something."""
        while not self.should_stop and not self.delivery.joined:
            try:
                self.kafka._coordinator.check_errors()
            except KafkaError as error:
                self.delivery.fail(error)
                return
            await self.sleep(IDLE_SECONDS)

    def wake(self) -> None:
        """A lane has room: look at what has been fetched."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def _drain_messages(self, fetcher: Any) -> None:  # noqa: ANN401 - called by Faust's fetcher
        """Hand each fetched batch to the agent's channel, for as long as its lane has room."""
        retry = Retry(log, "fetch-failed")
        while not (self.should_stop or fetcher.should_stop):
            try:
                batches = await self._next_batches()
            except ConsumerStoppedError:
                return
            except (KafkaError, records.OddNameError) as error:
                await self._mend(error, retry)
            else:
                for batch in batches:
                    await self.callback(self._to_message(batch.tp, batch))

    async def _mend(self, error: Exception, retry: Retry) -> None:
        """A fetch failed: do what lets the next one succeed, or tell the worker that none will."""
        match error:
            case OffsetOutOfRangeError():
                for key in error.args[0]:
                    self.delivery.lose(TP(*key))
            case NoOffsetForPartitionError():
                pass  # aiokafka looked for a start of its own; the lane seeks to the right one
            case records.OddNameError():
                try:
                    await odd_names.fetch_again(self.kafka, error.tp)
                except KafkaError as fetch_error:
                    await retry.pause(fetch_error)
            case CorruptRecordException() | TopicAuthorizationFailedError():
                await retry.pause(error)
            case _:  # the group will not have us, and would not tomorrow
                self.delivery.fail(error)
                await retry.pause(error)

    async def _next_batches(self) -> list[Batch]:
        """Wait for batches that lanes have room for. Raises ``KafkaError`` when the group can't go on."""
        fetcher = self.kafka._fetcher
        with fetcher._subscriptions.fetch_context():  # we poll, whatever the lanes do: stay a member
            self.kafka._coordinator.check_errors()
            batches = records.take(self.kafka, self.delivery.wanted())
            for batch in batches:
                self.delivery.taken(batch)
            if batches:
                self._set_pace(GATHERED)
            else:
                self._waiting = fetcher._create_fetch_waiter()
                await asyncio.wait([self._waiting], timeout=self._idle_seconds)
                if self._waiting.done():
                    self._waiting.result()
                else:
                    self._waiting.cancel()
                    self._set_pace(AT_ONCE)
            return batches

    def _set_pace(self, pace: _Pace) -> None:
        """Of the fetches to come."""
        self.kafka._fetcher._fetch_min_bytes, self.kafka._fetcher._fetch_max_wait_ms = pace
        self._idle_seconds = IDLE_SECONDS if pace is AT_ONCE else _SILENCE_SECONDS

    def _to_message(self, tp: TP, record: Any) -> ConsumerMessage:  # noqa: ANN401 - Faust's own signature
        batch: Batch = record
        return ConsumerMessage(
            tp.topic,
            tp.partition,
            batch.next_offset,
            0.0,  # each record has a timestamp of its own
            0,
            None,
            None,
            batch,  # type: ignore[arg-type] # the value of a Faust message is bytes; ours is a batch of them
            None,
            tp=tp,
            generation_id=self.app.consumer_generation_id,  # without it the stream skips the message, silently
        )

    # What Faust's own offset keeping would do is done by the lanes.

    @Service.task
    async def _commit_handler(self) -> None:
        """Faust's timer; ours is ``process``'s."""

    @Service.task
    async def _commit_livelock_detector(self) -> None:
        """Progress is watched by ``observe.health``."""

    async def commit(self, topics: Any = None, start_new_transaction: bool = True) -> bool:  # noqa: ANN401, ARG002, FBT001, FBT002
        """Commit what the lanes have confirmed."""
        await self.delivery.commit()
        return True

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        raise NotImplementedError("offsets are committed by the lanes")

    async def wait_empty(self) -> None:
        """Nothing to wait for: a lane finishes what it writes before its partition is given up."""

    def track_message(self, message: Any) -> None:  # noqa: ANN401
        """Not tracked: see ``wait_empty``."""

    # The rest of Faust's interface.

    def assignment(self) -> set[TP]:
        """The partitions that are ours now."""
        return {TP(*tp) for tp in self.kafka.assignment()} if hasattr(self, "kafka") else set()

    def topic_partitions(self, topic: str) -> int | None:
        """How many partitions a topic has."""
        found = self.kafka.partitions_for_topic(topic)
        return None if found is None else len(found)

    def highwater(self, tp: TP) -> int:
        """The end of a partition's log, as the last fetch saw it."""
        return int(self.kafka.highwater(tp) or 0)

    async def position(self, tp: TP) -> int | None:
        """The next offset to be fetched."""
        return int(await self.kafka.position(tp))

    async def _seek(self, partition: TP, offset: int) -> None:
        self.kafka.seek(partition, offset)

    async def seek_wait(self, partitions: Mapping[TP, int]) -> None:
        """Seek to offsets."""
        for tp, offset in partitions.items():
            self.kafka.seek(tp, offset)

    async def seek_to_committed(self) -> Mapping[TP, int]:
        """Seek to the committed offsets."""
        found = await self.kafka.seek_to_committed()
        return {TP(*tp): offset for tp, offset in found.items()}

    async def earliest_offsets(self, *partitions: TP) -> Mapping[TP, int]:
        """Where the partitions' logs begin."""
        return {TP(*tp): offset for tp, offset in (await self.kafka.beginning_offsets(partitions)).items()}

    async def highwaters(self, *partitions: TP) -> Mapping[TP, int]:
        """Where the partitions' logs end."""
        return {TP(*tp): offset for tp, offset in (await self.kafka.end_offsets(partitions)).items()}

    async def create_topic(self, topic: str, *_: Any, **__: Any) -> None:  # noqa: ANN401
        """Topics are made by ``topics.prepare``, before anything starts."""

    def key_partition(self, topic: str, key: bytes | None, partition: int | None = None) -> int | None:  # noqa: ARG002
        """Where records go is decided by ``writer.Writer``."""
        return partition

    async def _getmany(self, active_partitions: set[TP] | None, timeout: float) -> Mapping[TP, list[Any]]:  # noqa: ASYNC109
        raise NotImplementedError("batches come from _next_batches")

    def _new_topicpartition(self, topic: str, partition: int) -> TP:
        return TP(topic, partition)


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc] # aiokafka has no types
    """Tells Faust's consumer of the group's doings. aiokafka logs what is raised here and goes on, so nothing is."""

    def __init__(self, consumer: BatchConsumer) -> None:
        self._consumer = consumer

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> Awaitable[None]:
        self._consumer.app.on_rebalance_start()
        revoking: Awaitable[None] = self._consumer.on_partitions_revoked({TP(*tp) for tp in revoked})
        return revoking

    async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        generation = self._consumer.kafka._coordinator.generation
        self._consumer.app.consumer_generation_id = generation
        await self._consumer.on_partitions_assigned({TP(*tp) for tp in assigned}, generation)


class _Conductor(Conductor):
    """Subscribes once: Faust's own waits for tables first, and looks for new topics ever after."""

    @Service.task
    async def _subscriber(self) -> None:
        await self.app.agents.wait_until_agents_started()
        await self.app.consumer.subscribe(await self._update_indices())


class BatchTransport(Transport):
    """Faust's aiokafka transport with our consumer."""

    Consumer = BatchConsumer
    Conductor = _Conductor
