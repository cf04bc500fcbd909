"""Header names that are not UTF-8.

Kafka's protocol says a header's name is a string, and brokers take any bytes for one. aiokafka reads and writes UTF-8
only: one such record would stop its partition for good. So the fetch it came with is asked for again and read by
aiokafka's Python reader, which is slow and can be taught: a name's odd bytes travel as lone surrogates (PEP 383) and
are the same bytes again in the record that is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiokafka.consumer.fetcher import READ_COMMITTED, FetchResult, PartitionRecords
from aiokafka.errors import NoError, for_code
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.record.default_records import (
    _DefaultRecordBatchBuilderPy,
    _DefaultRecordBatchPy,
    _DefaultRecordPy,
)
from aiokafka.record.memory_records import _MemoryRecordsPy
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiokafka import AIOKafkaConsumer
    from faust.types import TP

    from worker.kafka.records import Record

_MAX_BYTES = 1024 * 1024


async def fetch_again(consumer: AIOKafkaConsumer, tp: TP) -> None:
    """Replace what was fetched for a partition by the same records, read so that any name can be.

    Raises ``KafkaError`` when the broker does not answer.
    """
    key = TopicPartition(*tp)
    assignment = consumer._subscription.subscription.assignment
    position: int = assignment.state_value(key).position
    request = FetchRequest(500, 1, _MAX_BYTES, READ_COMMITTED, [(tp.topic, [(tp.partition, position, _MAX_BYTES)])])
    response = await consumer._client.send(consumer._client.cluster.leader_for_partition(key), request)
    ((_, ((_, code, _, *rest),)),) = response.topics
    if (error := for_code(code)) is not NoError:
        raise error(key)
    aborted = rest[2] if response.API_VERSION >= 11 else rest[-2]  # noqa: PLR2004 - KIP-392 put a replica behind it
    fetched = PartitionRecords(key, _Records(rest[-1]), aborted, position, None, None, True, READ_COMMITTED)  # noqa: FBT003
    consumer._fetcher._records[key] = FetchResult(key, assignment=assignment, partition_records=fetched, backoff=0)


def are_odd(records: Sequence[Record]) -> bool:
    """Whether these came by ``fetch_again``: all of a fetch do, or none."""
    return bool(records) and isinstance(records[0], _DefaultRecordPy)


class OddBatchBuilder(BatchBuilder):  # type: ignore[misc] # aiokafka has no types
    """A record batch that takes such names."""

    def __init__(self, batch_size: int, compression_type: int, *, is_transactional: bool) -> None:
        """See ``BatchBuilder``; its Cython builder is replaced by the Python one."""
        super().__init__(batch_size, compression_type, is_transactional=is_transactional)
        self._builder = _DefaultRecordBatchBuilderPy(
            magic=2,
            compression_type=compression_type,
            is_transactional=int(is_transactional),
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=0,
            batch_size=batch_size,
        )

    def _set_producer_state(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        self._builder.set_producer_state(producer_id, producer_epoch, base_sequence)


class _Records(_MemoryRecordsPy):  # type: ignore[misc]
    def next_batch(self, *_: Any) -> Any:  # noqa: ANN401
        batch = self._next_slice
        self._cache_next()
        return None if batch is None else _Batch(batch)


class _Batch(_DefaultRecordBatchPy):  # type: ignore[misc]
    _buffer: bytearray

    def _read_msg(self, *_: Any) -> Any:  # noqa: ANN401
        if not isinstance(self._buffer, _Buffer):  # here, because decompression makes a new one
            self._buffer = _Buffer(self._buffer)
        return super()._read_msg()


class _Buffer(bytearray):
    def __getitem__(self, where: Any) -> Any:  # noqa: ANN401
        found = super().__getitem__(where)
        return _Slice(found) if isinstance(where, slice) else found


class _Slice(bytes):
    __slots__ = ()

    def decode(self, *_: Any, **__: Any) -> str:  # noqa: ANN401
        return _Name(super().decode("utf-8", "surrogateescape"))


class _Name(str):
    __slots__ = ()

    def encode(self, *_: Any, **__: Any) -> bytes:  # noqa: ANN401
        return super().encode("utf-8", "surrogateescape")
