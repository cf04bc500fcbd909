"""Reading a topic from the side, for a person: no group, no commit, from one offset to another and then the end.

The worker's own way in is ``transport.py``. This one hands out record by record, waits for no new ones, and its memory
does not grow with the topic: aiokafka keeps about a megabyte for each partition that is read.
"""

# ruff: noqa: SLF001 - aiokafka tells only its own parts what has been fetched; see records.py

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import (
    KafkaError,
    TopicAuthorizationFailedError,
)
from aiokafka.structs import TopicPartition
from faust.types import TP

from worker.errors import BrokerError, TopicError
from worker.kafka import connection, odd_names, reach, records
from worker.kafka.cluster import configs, topics_by_name
from worker.kafka.retry import describe

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Mapping

    from worker.kafka.cluster import Topic
    from worker.kafka.records import Batch
    from worker.settings import Settings

Result = TypeVar("Result")
Isolation = Literal["read_committed", "read_uncommitted"]

#: A cluster that gives nothing for so long has gone away.
_SECONDS = 15.0
_POLL_SECONDS = 0.5


def run(settings: Settings, work: Coroutine[None, None, Result]) -> Result:
    """Run a command's work against the cluster; whatever Kafka says against it becomes one line."""
    with reach.quiet():
        return asyncio.run(_run(settings, work))


async def _run(settings: Settings, work: Coroutine[None, None, Result]) -> Result:
    try:
        await reach.any_of(settings)
        return await work
    except TopicAuthorizationFailedError as error:
        names = ", ".join(map(str, error.args))
        raise BrokerError(f"the cluster does not let us read topic {names}: grant Read on it") from None
    except (KafkaError, TimeoutError) as error:
        raise BrokerError(f"the cluster went away or refused: {describe(error)}") from None
    finally:
        work.close()  # where it never began


async def topics(settings: Settings, *names: str) -> dict[str, Topic]:
    """What there is to know about some topics; ``error`` says which are missing or hidden."""
    admin = AIOKafkaAdminClient(**connection.arguments(settings))
    try:
        await admin.start()
        _, _, found = await topics_by_name(admin, list(names))
        readable = await configs(admin, [name for name, topic in found.items() if topic.error is None])
        return {name: dataclasses.replace(topic, config=readable.get(name)) for name, topic in found.items()}
    finally:
        await admin.close()


def must_be_there(topic: Topic) -> Topic:
    """The topic, or the error that says what is wrong with it."""
    if topic.error == "missing":
        raise TopicError(f"there is no topic {topic.name!r}: look at the name and at WORKER_BROKERS")
    if topic.error == TopicAuthorizationFailedError.message:
        raise TopicError(f"topic {topic.name!r} is not there, or we may not see it: grant Read on it")
    if topic.error is not None:
        raise TopicError(f"topic {topic.name!r}: the cluster answers {topic.error}")
    return topic


class Found(NamedTuple):
    """A record, and where it lies."""

    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class Reader:
    """Reads some partitions of one topic. ``bounds`` are the first offset and the end that each had at the start."""

    bounds: Mapping[int, tuple[int, int]]

    def __init__(self, consumer: Any, topic: str) -> None:  # noqa: ANN401 - aiokafka has no types
        """Take a consumer that has its partitions assigned."""
        self.consumer = consumer
        self._topic = topic

    async def records(self, partition: int, start: int, end: int) -> AsyncIterator[Found]:
        """Give each record from ``start`` up to ``end``; a transaction marker is none, and neither is aborted data."""
        place = TP(self._topic, partition)
        self.consumer.seek(TopicPartition(*place), start)
        position = start
        while position < end:
            batch = await self._next(place, position)
            position = batch.next_offset
            record: Any  # with its timestamp_type, which the worker itself has no use for
            for record in batch.records:
                if record.offset >= end:
                    return
                yield Found(
                    partition,
                    record.offset,
                    record.timestamp,
                    record.timestamp_type,
                    record.key,
                    record.value,
                    list(record.headers),
                )

    async def _next(self, place: TP, position: int) -> Batch:
        """Wait for what comes next in one partition. Any header name can be read, as by the worker (odd_names.py)."""
        fetcher = self.consumer._fetcher
        now = asyncio.get_running_loop().time
        end = now() + _SECONDS
        while now() < end:
            try:
                batches = records.take(self.consumer, {place})
            except records.OddNameError:
                await odd_names.fetch_again(self.consumer, place)
                continue
            if batches:
                return batches[0]
            waiter = fetcher._create_fetch_waiter()
            await asyncio.wait([waiter], timeout=_POLL_SECONDS)
            waiter.cancel()
        raise BrokerError(f"{place.topic}:{place.partition}: nothing came from offset {position} for {_SECONDS:.0f} s")


@contextlib.asynccontextmanager
async def open_reader(
    settings: Settings,
    topic: Topic,
    *,
    only: int | None = None,
    isolation: Isolation = "read_committed",
    group: str | None = None,
) -> AsyncIterator[Reader]:
    """Open a reader on a topic that is there, or one partition of it; ``group`` is committed in and never joined."""
    numbers = [each.number for each in topic.partitions]
    if only is not None and only not in numbers:
        raise TopicError(f"topic {topic.name!r} has no partition {only}: it has 0 to {len(numbers) - 1}")
    places = [TopicPartition(topic.name, number) for number in numbers if only in (None, number)]
    consumer = AIOKafkaConsumer(
        **connection.arguments(settings),
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",  # what retention deletes meanwhile is passed over
        isolation_level=isolation,
    )
    try:
        await consumer.start()
        consumer.assign(places)
        reader = Reader(consumer, topic.name)
        first = await asyncio.wait_for(consumer.beginning_offsets(places), _SECONDS)
        end = await asyncio.wait_for(consumer.end_offsets(places), _SECONDS)
        reader.bounds = {place.partition: (first[place], end[place]) for place in places}
        yield reader
    finally:
        await consumer.stop()
