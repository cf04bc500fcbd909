"""The worker's hot path without a broker: fetched bytes in at one end, a producer that keeps nothing at the other.

For ``stages.py``, which measures its parts alone, and for the guard in ``tests/kafka/test_hot_path.py``.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from aiokafka.consumer.fetcher import READ_COMMITTED, FetchResult, PartitionRecords
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.structs import TopicPartition

from worker.kafka import records
from worker.kafka.topics import Limits
from worker.kafka.writer import Work, Writer
from worker.settings import from_mapping

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiokafka.producer.message_accumulator import BatchBuilder
    from bench.events import Made

    from worker.kafka.records import Batch
    from worker.rule.outcome import Outcomes

TOPIC = "events"
_TP = TopicPartition(TOPIC, 0)


def fetched(events: Sequence[Made]) -> bytes:
    """Give what a broker would send for these events: one record batch."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 30,
    )
    for offset, event in enumerate(events):
        builder.append(offset, event.timestamp, event.key, event.value, event.headers)
    return bytes(builder.build())


def take(data: bytes) -> Batch:
    """Read a batch as the worker reads it out of aiokafka's fetcher."""
    state = SimpleNamespace(paused=False, position=0, consumed_to=lambda _position: None)
    assignment = SimpleNamespace(active=True, state_value=lambda _tp: state)
    source = PartitionRecords(_TP, MemoryRecords(data), [], 0, None, None, True, READ_COMMITTED)  # noqa: FBT003
    result = FetchResult(_TP, assignment=assignment, partition_records=source, backoff=0)
    fetcher = SimpleNamespace(_records={_TP: result}, _notify=lambda _future: None, _wait_consume_future=None)
    consumer: Any = SimpleNamespace(_fetcher=fetcher)
    (batch,) = records.take(consumer, {_TP})
    return batch


class Sink:
    """A channel whose producer confirms all at once and keeps nothing."""

    def __init__(self) -> None:
        """Look enough like a producer to the writer; call it in a running loop."""
        self.producer: Any = self
        self.builders: list[BatchBuilder] = []
        self._message_accumulator = SimpleNamespace(_compression_type=0)
        # The writer watches the sender, which ends only when it fails.
        self._sender = SimpleNamespace(sender_task=asyncio.get_running_loop().create_future())
        self._txn_manager = None  # not idempotent: nothing of that is the writer's business

    async def partitions_for(self, _topic: str) -> set[int]:
        """Both topics have one partition."""
        return {0}

    async def send_batch(self, builder: BatchBuilder, _topic: str, *, partition: int) -> asyncio.Future[None]:  # noqa: ARG002
        """Confirm."""
        self.builders.append(builder)
        confirmed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        confirmed.set_result(None)
        return confirmed

    async def failed(self, producer: Any, error: Exception, *, refused: bool) -> None:  # noqa: ANN401, ARG002
        """Nothing fails here, unless the hot path is broken."""
        raise error


def writer(sink: Sink) -> Writer:
    """Give a writer into the sink."""
    settings = from_mapping({"INPUT_TOPIC": TOPIC})
    return Writer(sink, settings, Limits(), lambda: 1)


async def write(to: Writer, batch: Batch, outcomes: Outcomes) -> None:
    """Write a batch's outcomes."""
    await to.write(Work(batch, outcomes, 0.0))
