"""Fetched record batches as they are: raw records, whole batches, bytes untouched.

This is the one module that reaches into aiokafka's fetcher. aiokafka hands records out one by one, through two
generators and a Python object for each; that costs more than all the rest of the worker. Here a fetched batch is
unpacked by its Cython reader into one list. What is relied on is pinned by ``tests/kafka/test_internals.py``.

An offset here is always the next one to read. The records alone don't show the end of a transaction or of an aborted
tail; the position after the batch does (KIP-98), so a batch carries both positions and may hold no record at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from aiokafka.consumer.fetcher import FetchError, FetchResult, PartitionRecords
from aiokafka.errors import CorruptRecordException, KafkaError
from faust.types import TP

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from aiokafka import AIOKafkaConsumer

#: A batch is closed at the first record batch past this many records: enough to spread the cost of a batch
#: thin, little enough that converting one never keeps the event loop from the heartbeat.
MAX_RECORDS = 4000


class Record(Protocol):
    """One record as aiokafka's Cython reader gives it."""

    @property
    def offset(self) -> int: ...  # noqa: D102
    @property
    def timestamp(self) -> int: ...  # noqa: D102
    @property
    def key(self) -> bytes | None: ...  # noqa: D102
    @property
    def value(self) -> bytes | None: ...  # noqa: D102
    @property
    def headers(self) -> list[tuple[str, bytes | None]]: ...  # noqa: D102


class Batch(NamedTuple):
    """Records ``position <= offset < next_offset`` of one partition, in order; ``next_offset`` is read next."""

    tp: TP
    position: int
    records: Sequence[Record]
    next_offset: int


class OddNameError(Exception):
    """A header's name is not UTF-8; ``odd_names.fetch_again`` helps."""

    def __init__(self, tp: TP) -> None:
        """Say in which partition."""
        super().__init__(f"{tp}: a header's name is not UTF-8")
        self.tp = tp


def take(consumer: AIOKafkaConsumer, wanted: Container[TP]) -> list[Batch]:
    """Hand over what has been fetched for the wanted partitions, one batch each.

    Raises what a fetch failed with (``OffsetOutOfRangeError``, ``TopicAuthorizationFailedError``, …), but only when
    there is nothing to hand over: a batch that has been taken and then lost in a raise would leave a gap.
    """
    fetcher = consumer._fetcher
    batches: list[Batch] = []
    for key in list(fetcher._records):
        tp = TP(key.topic, key.partition)
        if tp not in wanted:
            continue
        try:
            batch = _take_one(fetcher, key, tp)
        except (KafkaError, OddNameError):
            if not batches:
                raise
        else:
            if batch is not None:
                batches.append(batch)
    return batches


def _take_one(fetcher: Any, key: Any, tp: TP) -> Batch | None:  # noqa: ANN401
    """One partition's next batch; None if what was fetched is not what comes next."""
    result: FetchResult | FetchError = fetcher._records[key]
    if isinstance(result, FetchError):
        _fetch_again(fetcher, key)
        result.check_raise()
    if not result.check_assignment(key):  # the position was moved meanwhile
        _fetch_again(fetcher, key)
        return None
    source: PartitionRecords = result._partition_records
    source._records_iterator = None  # never run; it refers to its source, and would keep the fetched bytes alive
    position = source.next_fetch_offset
    try:
        records = _unpack(source)
    except UnicodeDecodeError:
        raise OddNameError(tp) from None  # what was fetched stays, so that it is not fetched in the same way again
    except CorruptRecordException:
        _fetch_again(fetcher, key)
        raise
    result._update_position()
    if not source._records.has_next():
        _fetch_again(fetcher, key)
    return Batch(tp, position, records, source.next_fetch_offset)


def _fetch_again(fetcher: Any, key: Any) -> None:  # noqa: ANN401
    """Let the fetcher ask for this partition's next records."""
    del fetcher._records[key]
    fetcher._notify(fetcher._wait_consume_future)


def _unpack(source: PartitionRecords) -> list[Record]:
    """Read whole record batches, without those that were aborted or are only markers (read_committed, KIP-98)."""
    raw_batches = source._records
    records: list[Record] = []
    while raw_batches.has_next() and len(records) < MAX_RECORDS:
        raw = raw_batches.next_batch()
        if source._check_crcs and not raw.validate_crc():
            raise CorruptRecordException(f"{source._tp} at {source.next_fetch_offset}")
        if not _is_hidden(source, raw):
            if raw.base_offset >= source.next_fetch_offset:
                records.extend(raw)
            else:  # the fetch began inside this batch
                records.extend(record for record in raw if record.offset >= source.next_fetch_offset)
        source.next_fetch_offset = raw.next_offset
    return records


def _is_hidden(source: PartitionRecords, raw: Any) -> bool:  # noqa: ANN401
    """Whether a read_committed reader must not see this record batch."""
    if raw.producer_id is not None:
        source._consume_aborted_up_to(raw.base_offset)
        if raw.is_control_batch and source._contains_abort_marker(raw):
            source._aborted_producers.discard(raw.producer_id)
    if raw.is_control_batch:
        return True
    return bool(raw.is_transactional and raw.producer_id in source._aborted_producers)
