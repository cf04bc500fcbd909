"""The broker side of the benchmark: a Kafka, topics, their filling, where they end, and whether the work was done.

All of it goes through librdkafka. What is measured is the contenders, never this.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from bench import events
from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_CREATE_TIME,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined] # not in its __all__

from worker.kafka.throwaway import KAFKA_VERSION, ThrowawayKafka

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bench.events import Shape

MAX_MESSAGE_BYTES = 4_000_000
_SECONDS = 60.0
_SAMPLE = 53


class WrongWorkError(Exception):
    """A contender did not do the work it is compared by."""


@contextmanager
def broker() -> Iterator[Cluster]:
    """Give the broker that TEST_KAFKA_BROKERS names, else a throw-away one."""
    given = os.environ.get("TEST_KAFKA_BROKERS")
    if given:
        yield Cluster(given, "as found at TEST_KAFKA_BROKERS")
        return
    # The long run writes far more than a disk holds: what is old goes soon, which topics ask for themselves.
    properties = {"log.retention.check.interval.ms": "5000", "log.initial.task.delay.ms": "5000"}
    with ThrowawayKafka(heap="1g", properties=properties) as kafka:
        yield Cluster(kafka.bootstrap, f"Apache Kafka {KAFKA_VERSION}, one broker on this machine")


class Cluster:
    """A Kafka, and what the benchmark does to it."""

    def __init__(self, bootstrap: str, description: str) -> None:
        """Connect to ``bootstrap``."""
        self.bootstrap = bootstrap
        self.description = description
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def topic(self, name: str, partitions: int, **config: str) -> str:
        """Make a topic that nobody else has."""
        return self.topic_named(f"bench-{name}-{uuid4().hex[:8]}", partitions, **config)

    def topic_named(self, full: str, partitions: int, **config: str) -> str:
        """Make a topic of this name."""
        settings = {
            "max.message.bytes": str(MAX_MESSAGE_BYTES),
            "retention.ms": "-1",  # the events' own timestamps are no clock
            "file.delete.delay.ms": "100",
            **{key.replace("_", "."): value for key, value in config.items()},
        }
        self._admin.create_topics([NewTopic(full, partitions, config=settings)])[full].result(_SECONDS)
        until = time.monotonic() + _SECONDS
        while not self._is_led(full, partitions):
            if time.monotonic() > until:
                raise TimeoutError(f"{full} has no leaders after {_SECONDS:.0f} s")
            time.sleep(0.05)
        return full

    def _is_led(self, topic: str, partitions: int) -> bool:
        """Whether each partition has a leader that answers: a new topic is not there at once."""
        found = self._admin.list_topics(topic, _SECONDS).topics[topic].partitions
        if len(found) != partitions or any(one.leader < 0 for one in found.values()):
            return False
        try:
            self.ends(topic, partitions)
        except KafkaException:  # not the leader yet, or librdkafka has not heard of it
            return False
        return True

    def delete(self, *topics: str) -> None:
        """Delete topics, and the dead-letter topics a worker made beside them: all together would fill a disk."""
        beside = {f"{topic}.dead-letter" for topic in topics} & set(self._admin.list_topics(timeout=_SECONDS).topics)
        for done in self._admin.delete_topics(sorted({*topics, *beside})).values():
            done.result(_SECONDS)

    def ends(self, topic: str, partitions: int) -> dict[int, int]:
        """Where each partition ends, open transactions included."""
        end = OffsetSpec.latest()  # type: ignore[no-untyped-call] # confluent_kafka's own
        asked = {TopicPartition(topic, number): end for number in range(partitions)}
        found = self._admin.list_offsets(asked, isolation_level=IsolationLevel.READ_UNCOMMITTED)
        return {place.partition: done.result(_SECONDS).offset for place, done in found.items()}

    def fill(self, shape: Shape, topic: str, numbers: Iterable[int] | None = None) -> None:
        """Send a shape's events; the key decides the partition, as Java's clients do it."""
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "log_level": 0,
                "partitioner": "murmur2_random",
                "linger.ms": 50,
                "batch.num.messages": shape.batch_events,
                "batch.size": MAX_MESSAGE_BYTES // 2,
                "message.max.bytes": MAX_MESSAGE_BYTES,
                "queue.buffering.max.kbytes": 400_000,
                "queue.buffering.max.messages": 500_000,
                "compression.type": shape.compression,
            }
        )
        for number in range(shape.count) if numbers is None else numbers:
            event = shape.make(number)
            headers: Any = event.headers or None
            while True:
                try:
                    producer.produce(topic, event.value, event.key, headers=headers, timestamp=event.timestamp)
                except BufferError:
                    producer.poll(0.1)
                else:
                    break
        producer.flush()

    def send(self, topic: str, value: bytes, key: bytes) -> None:
        """Send one event."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0})
        producer.produce(topic, value, key)
        producer.flush()

    def check(self, shape: Shape, topic: str, output: str) -> int:
        """Read all of an output topic, count it and compare samples with what they must be; returns how many.

        Raises WrongWorkError: a contender that does less is no contender.
        """
        seen = 0
        last: dict[int, int] = {}
        for message in read(self.bootstrap, output, shape.partitions):
            number = events.number_of(message.key())
            if number <= last.get(message.partition(), -1):
                raise WrongWorkError(f"{output}: event {number} of {topic} is doubled or out of order")
            last[message.partition()] = number
            seen += 1
            if seen % _SAMPLE == 1:
                _compare(shape, number, message)
        if seen != shape.messages:
            raise WrongWorkError(f"{output}: {seen} messages of {topic}, where {shape.messages} were due")
        return seen


class Committed:
    """What a group has committed; asked often, so the consumer stays open."""

    def __init__(self, cluster: Cluster, group: str, topic: str, partitions: int) -> None:
        """Look at ``group``, without joining it."""
        self._consumer = Consumer(
            {"bootstrap.servers": cluster.bootstrap, "group.id": group, "enable.auto.commit": False, "log_level": 0}
        )
        self._asked = [TopicPartition(topic, number) for number in range(partitions)]

    def offsets(self) -> dict[int, int]:
        """Give the next offset to read of each partition; 0 where nothing is committed."""
        try:
            found = self._consumer.committed(self._asked, _SECONDS)
        except KafkaException:  # the group's coordinator is not there yet
            return {place.partition: 0 for place in self._asked}
        return {place.partition: max(0, place.offset) for place in found}

    def close(self) -> None:
        """Let go."""
        self._consumer.close()


def read(bootstrap: str, topic: str, partitions: int) -> Iterator[Any]:
    """Give every committed record that the topic has now, each partition in order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "group.id": "bench-reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.queue.backoff.ms": 5,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
        still = partitions
        while still:
            for message in consumer.consume(5_000, 0.2):
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    still -= 1
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()


def _compare(shape: Shape, number: int, message: Any) -> None:  # noqa: ANN401 - confluent_kafka has no types
    event = shape.make(number)
    due = (event.key, events.outcome(event), event.headers, (TIMESTAMP_CREATE_TIME, event.timestamp))
    found = (message.key(), message.value(), list(message.headers() or []), message.timestamp())
    if due != found:
        raise WrongWorkError(f"event {number} became {found!r:.400}, where {due!r:.400} was due")
