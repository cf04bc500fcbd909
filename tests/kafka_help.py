"""What tests do to a broker, as plain functions: make a topic, fill it, read all of it, read what a group committed.

Reading goes through librdkafka, a second opinion on what the worker (aiokafka) wrote. Writing goes through aiokafka in
a thread of its own: librdkafka can't send the timestamp 0, and a test may have a running loop already. Committed
offsets come from a consumer: librdkafka's ``list_consumer_group_offsets`` has crashed the process.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from uuid import uuid4

from aiokafka import AIOKafkaProducer
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its __all__
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

_SECONDS = 30.0


class Input(NamedTuple):
    """A record to send; ``partition=None`` leaves the choice to the key, ``timestamp=None`` to the clock."""

    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp: int | None = None
    partition: int | None = None


class Record(NamedTuple):
    """A record as it lies in the topic."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp: int
    partition: int
    offset: int


def create_topic(bootstrap: str, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
    """Make a topic with as many copies as the cluster's default, wait until it is there, and return its name."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(name, num_partitions=partitions, config=dict(config or {}))
    admin.create_topics([topic], operation_timeout=_SECONDS)[name].result(_SECONDS)
    until(lambda: len(_partitions(bootstrap, name)) == partitions)
    return name


@contextmanager
def denied(bootstrap: str, resource: str, name: str, operation: str) -> Iterator[None]:
    """Deny everybody one thing for a while (``denied(…, "TOPIC", name, "WRITE")``); all else on it stays allowed."""
    kind, pattern = ResourceType[resource], ResourcePatternType.LITERAL
    rules = [
        AclBinding(kind, name, pattern, "User:*", "*", AclOperation.ALL, AclPermissionType.ALLOW),
        AclBinding(kind, name, pattern, "User:*", "*", AclOperation[operation], AclPermissionType.DENY),
    ]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.create_acls(rules).values():
        done.result(_SECONDS)
    try:
        yield
    finally:
        whoever: Any = None  # the stubs say str
        everything = AclBindingFilter(kind, name, pattern, whoever, whoever, AclOperation.ANY, AclPermissionType.ANY)
        for gone in admin.delete_acls([everything]).values():
            gone.result(_SECONDS)


def produce(
    bootstrap: str,
    topic: str,
    records: Iterable[Input | tuple[Any, ...]],
    transaction: Literal["commit", "abort"] | None = None,
    **options: Any,  # noqa: ANN401 - whatever AIOKafkaProducer takes
) -> list[tuple[int, int]]:
    """Send in order, in one transaction if asked; return each one's partition and offset."""
    inputs = [Input(*record) for record in records]
    if transaction is not None:
        options.setdefault("transactional_id", f"test-{uuid4().hex}")
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, _produce(bootstrap, topic, inputs, transaction, options)).result(2 * _SECONDS)


async def _produce(
    bootstrap: str, topic: str, inputs: list[Input], transaction: str | None, options: dict[str, Any]
) -> list[tuple[int, int]]:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, **options) as producer:
        if transaction is not None:
            await producer.begin_transaction()
        sent = [
            await producer.send(
                topic, one.value, one.key, one.partition, timestamp_ms=one.timestamp, headers=list(one.headers)
            )
            for one in inputs
        ]
        places = [(done.partition, done.offset) for done in await asyncio.gather(*sent)]
        if transaction == "commit":
            await producer.commit_transaction()
        elif transaction == "abort":
            await producer.abort_transaction()
        return places


def consume_all(
    bootstrap: str,
    topic: str,
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed",
    **options: Any,  # noqa: ANN401 - whatever librdkafka takes, dots as underscores
) -> list[Record]:
    """Read everything up to the end the topic has now, ordered by partition and offset."""
    settings = {
        "group.id": f"test-{uuid4().hex}",
        "enable.auto.commit": False,
        "isolation.level": isolation,
        "enable.partition.eof": True,
        "fetch.queue.backoff.ms": 5,  # 1000 by default: a loop like this one then mostly waits
        **{name.replace("_", "."): value for name, value in options.items()},
    }
    open_partitions = _partitions(bootstrap, topic)
    records: list[Record] = []
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    try:
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in open_partitions])
        end = time.monotonic() + _SECONDS
        while open_partitions:
            if time.monotonic() > end:
                raise TimeoutError(f"no end of {topic} in {_SECONDS:.0f} s: {sorted(open_partitions)}")
            message = consumer.poll(0.5)
            if message is None:
                continue
            error = message.error()
            if error is None:
                records.append(_record(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                open_partitions.discard(message.partition())
            else:
                raise KafkaException(error)
    finally:
        consumer.close()
    return sorted(records, key=lambda record: (record.partition, record.offset))


def committed(bootstrap: str, group: str, topic: str) -> dict[int, int]:
    """Return the group's committed offsets, the next to read, without joining the group."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    try:
        asked = [TopicPartition(topic, number) for number in _partitions(bootstrap, topic)]
        return {place.partition: place.offset for place in consumer.committed(asked, _SECONDS) if place.offset >= 0}
    finally:
        consumer.close()


def log_end(bootstrap: str, topic: str, partition: int) -> int:
    """Where the log ends, a transaction's marker included."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "log-end", "enable.auto.commit": False})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, partition), 10)[1])
    finally:
        consumer.close()


def until(condition: Callable[[], object], seconds: float = _SECONDS) -> None:
    """Wait until the condition holds; fail when it takes too long."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"still not true after {seconds:.0f} s")
        time.sleep(0.05)


def _partitions(bootstrap: str, topic: str) -> set[int]:
    metadata = AdminClient({"bootstrap.servers": bootstrap}).list_topics(topic, _SECONDS).topics[topic]
    return set(metadata.partitions)


def _record(message: Any) -> Record:  # noqa: ANN401 - confluent_kafka has no types
    return Record(
        key=message.key(),
        value=message.value(),
        headers=list(message.headers() or []),
        timestamp=message.timestamp()[1],
        partition=message.partition(),
        offset=message.offset(),
    )
