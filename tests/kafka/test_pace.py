"""How the fetch paces itself: what comes in a moment comes together, and the first event after a silence at once."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition
from confluent_kafka import Producer
from faust.types import TP
from http_help import Metrics
from kafka_help import Input, produce
from worker_process import seconds_since

from worker.kafka.ports import free_ports
from worker.kafka.transport import AT_ONCE, GATHERED, BatchConsumer

if TYPE_CHECKING:
    from conftest import MakeTopic
    from worker_process import MakeLine

    from worker.kafka.records import Batch

pytestmark = pytest.mark.kafka


def test_events_that_come_one_by_one_are_taken_together(line: MakeLine) -> None:
    """A batch costs worker and broker the same with one event as with ten. A slow machine takes more at a time."""
    one_by_one = line()
    (port,) = free_ports(1)
    one_by_one.run(http_port=str(port))
    begin = time.monotonic()
    producer = Producer({"bootstrap.servers": one_by_one.bootstrap, "linger.ms": 0, "log_level": 0})
    for number in range(500):
        producer.produce(one_by_one.input, b'{"text":"one"}', b"%d" % number)
        producer.poll(0)
        time.sleep(0.002)  # the pace of what is sent
    producer.flush()
    moments = seconds_since(begin) * 1000 / GATHERED.max_wait_ms
    one_by_one.settle()

    said = Metrics.of(port)
    assert said.sum("worker_batch_events_sum") == 500
    assert said.sum("worker_batch_events_count") < 1.4 * moments


async def test_after_a_silence_the_first_event_is_fetched_at_once(broker: str, topic: MakeTopic) -> None:
    """The broker gathers events only while they come."""
    name = topic()
    place = TopicPartition(name, 0)
    fetch = object.__new__(BatchConsumer)  # without Faust around it
    fetch.delivery = _Everything(place)  # type: ignore[assignment]
    fetch.kafka = AIOKafkaConsumer(
        name, bootstrap_servers=broker, group_id=name, enable_auto_commit=False, auto_offset_reset="none"
    )
    async with fetch.kafka, asyncio.timeout(60):
        fetch.kafka.seek(place, 0)
        for _ in range(2):
            produce(broker, name, [Input(b"", b"v", partition=0)])
            while not await fetch._next_batches():
                pass
            assert _pace(fetch) == GATHERED
            while _pace(fetch) != AT_ONCE:
                assert await fetch._next_batches() == []


def _pace(fetch: BatchConsumer) -> tuple[int, int]:
    return fetch.kafka._fetcher._fetch_min_bytes, fetch.kafka._fetcher._fetch_max_wait_ms


class _Everything:
    """Lanes that always have room."""

    def __init__(self, place: TopicPartition) -> None:
        self._place = TP(*place)

    def wanted(self) -> set[TP]:
        return {self._place}

    def taken(self, batch: Batch) -> None:
        """Nothing is done with it."""
