"""What the worker relies on inside aiokafka and Faust, beyond what they promise.

A failure here names the library, its version and what has changed: look there first when other tests fail after an
upgrade. What a name does is pinned where getting it wrong would be silent.
"""

from __future__ import annotations

import asyncio
import inspect
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, get_type_hints

import aiokafka.errors
import faust
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.consumer.fetcher import Fetcher, FetchError, FetchResult, PartitionRecords
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.partitioner import murmur2
from aiokafka.producer.message_accumulator import BatchBuilder, MessageAccumulator
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.structs import OffsetAndMetadata, TopicPartition
from faust.app.base import BootStrategy
from faust.transport.conductor import Conductor
from faust.transport.consumer import Consumer
from faust.transport.drivers.aiokafka import Transport
from faust.types import TP
from kafka_help import Input, produce

from worker.app import WorkerApp, _Boot
from worker.kafka import records
from worker.kafka.transport import BatchConsumer, Batches, BatchTransport, _Conductor

if TYPE_CHECKING:
    from conftest import MakeTopic

AIOKAFKA = f"aiokafka {version('aiokafka')}"
FAUST = f"faust-streaming {version('faust-streaming')}"


def must_have(thing: Any, names: str, *, library: str = AIOKAFKA, where: str = "") -> None:  # noqa: ANN401
    """Fail by name where an attribute is gone."""
    name = where or getattr(thing, "__name__", type(thing).__name__)
    missing = [attribute for attribute in names.split() if not hasattr(thing, attribute)]
    assert not missing, f"{library}: {name} no longer has {', '.join(missing)}"


@pytest.mark.parametrize(
    ("thing", "names"),
    [
        (AIOKafkaConsumer, "start stop subscribe seek commit assignment partitions_for_topic highwater position"),
        (AIOKafkaConsumer, "beginning_offsets end_offsets seek_to_committed"),
        (AIOKafkaProducer, "start stop send_batch partitions_for begin_transaction commit_transaction"),
        (AIOKafkaProducer, "send_offsets_to_transaction"),
        (AIOKafkaAdminClient, "start close create_topics describe_configs _get_cluster_metadata"),
        (Fetcher, "_notify _create_fetch_waiter"),
        (FetchResult, "check_assignment _update_position"),
        (FetchError, "check_raise"),
        (PartitionRecords, "_consume_aborted_up_to _contains_abort_marker"),
        (GroupCoordinator, "check_errors fetch_committed_offsets"),
        (SubscriptionState, "fetch_context"),
        (BatchBuilder, "close size _build"),
        (MessageAccumulator, "fail_all"),
        (MemoryRecords, "has_next next_batch"),
        (aiokafka.errors, "for_code kafka_errors"),
    ],
)
def test_aiokafka_has_the_methods(thing: object, names: str) -> None:
    """Public and private ones alike."""
    must_have(thing, names)


async def test_a_producer_has_its_parts() -> None:
    """What ``writer`` and ``connection`` take from one that has not been started."""
    producer = AIOKafkaProducer(bootstrap_servers="localhost:1", enable_idempotence=True, transactional_id="any")
    must_have(producer, "_closed _message_accumulator _sender _txn_manager client")
    must_have(producer._message_accumulator, "_compression_type fail_all")
    must_have(producer._sender, "sender_task")
    must_have(producer.client, "close")
    assert producer._txn_manager.transactional_id == "any", f"{AIOKAFKA}: _txn_manager.transactional_id has changed"
    producer._closed = True  # never started: nothing to close


def test_a_record_batch_is_built_below_its_python_layers() -> None:
    """``append`` takes a relative offset, and says None when the batch is full but never refuses the first record."""
    builder = BatchBuilder(200, 0, is_transactional=False)
    must_have(builder, "_builder _relative_offset")
    append = builder._builder.append

    assert append(0, 1001, b"k", b"v" * 500, [("h", None), ("h", b"")]) is not None, (
        f"{AIOKAFKA}: append(…) has changed"
    )
    assert append(1, 1001, None, b"v", []) is None, f"{AIOKAFKA}: a full batch takes more"
    assert builder.size() > 200
    builder._relative_offset = 1
    builder.close()
    assert builder.record_count() == 1

    (raw,) = list(MemoryRecords(bytes(builder._build())).next_batch())
    assert (raw.offset, raw.timestamp, raw.key, raw.value, list(raw.headers)) == (
        0,
        1001,
        b"k",
        b"v" * 500,
        [("h", None), ("h", b"")],
    ), f"{AIOKAFKA}: what was built is not what is read"


def test_a_raw_batch_says_what_it_is() -> None:
    """``records`` decides by these what a read_committed reader may see, and where the next fetch begins."""
    builder = DefaultRecordBatchBuilder(
        2, 0, is_transactional=1, producer_id=7, producer_epoch=0, base_sequence=0, batch_size=10_000
    )
    for number in range(3):
        builder.append(number, number, None, None, [])
    raw = MemoryRecords(bytes(builder.build())).next_batch()

    must_have(raw, "base_offset next_offset producer_id is_transactional is_control_batch validate_crc")
    assert (raw.base_offset, raw.next_offset, raw.producer_id) == (0, 3, 7)
    assert (bool(raw.is_transactional), bool(raw.is_control_batch), raw.validate_crc()) == (True, False, True)
    assert [(record.key, record.value, list(record.headers)) for record in raw] == [(None, None, [])] * 3


@pytest.mark.parametrize(
    ("key", "hashed"),
    [  # from Kafka's own tests of Utils.murmur2
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
        (b"", 275646681),
    ],
)
def test_murmur2_is_javas(key: bytes, hashed: int) -> None:
    """A key lands where Java's default partitioner puts it."""
    assert murmur2(key) & 0x7FFFFFFF == hashed & 0x7FFFFFFF, f"{AIOKAFKA}: murmur2({key!r}) has changed"


async def test_a_consumer_at_work_has_its_parts(broker: str, topic: MakeTopic) -> None:
    """The parts exist only once it runs; a fetched batch is taken whole, its position behind a transaction's marker."""
    name = topic()
    produce(broker, name, [Input(b"", b"v", [("h", None)], 0, 0), Input(None, b"", (), 1001, 0)], "commit")
    produce(broker, name, [Input(b"no", b"no", partition=0)], "abort")
    place = TopicPartition(name, 0)
    consumer = AIOKafkaConsumer(
        name,
        bootstrap_servers=broker,
        group_id=name,
        enable_auto_commit=False,
        auto_offset_reset="none",
        isolation_level="read_committed",
    )
    async with consumer:
        must_have(consumer, "_fetcher _coordinator _client")
        must_have(consumer._coordinator, "generation check_errors fetch_committed_offsets")
        must_have(
            consumer._fetcher,
            "_records _wait_consume_future _subscriptions _fetch_min_bytes _fetch_max_wait_ms",
        )
        must_have(consumer._client, "force_metadata_update _conns")
        assert consumer._coordinator.generation >= 1
        consumer.seek(place, 0)

        batches: list[records.Batch] = []
        while not batches or batches[-1].next_offset < 5:
            with consumer._fetcher._subscriptions.fetch_context():
                for found in consumer._fetcher._records.values():
                    if isinstance(found, FetchResult):
                        must_have(found, "_partition_records")
                        must_have(
                            found._partition_records,
                            "next_fetch_offset _records _tp _check_crcs _aborted_producers _records_iterator",
                        )
                batches += records.take(consumer, {TP(*place)})
                waiter = consumer._fetcher._create_fetch_waiter()
                await until_done(waiter)
        read = [record for batch in batches for record in batch.records]
        assert [(record.offset, record.timestamp, record.key, record.value) for record in read] == [
            (0, 0, b"", b"v"),
            (1, 1001, None, b""),
        ], f"{AIOKAFKA}: records.take() reads other records"
        assert batches[-1].next_offset == 5, f"{AIOKAFKA}: the position does not pass an aborted tail and its marker"

        await consumer.commit({place: OffsetAndMetadata(5, "said")})
        commits = await consumer._coordinator.fetch_committed_offsets([place, TopicPartition(name, 99)])
        assert commits == {place: OffsetAndMetadata(5, "said")}, f"{AIOKAFKA}: fetch_committed_offsets has changed"


async def until_done(waiter: Any) -> None:  # noqa: ANN401 - aiokafka has no types
    """Wait a while for a fetch."""
    await asyncio.wait([waiter], timeout=0.2)
    waiter.cancel()


OURS = {
    BatchConsumer: {"wake", "settings", "delivery", "kafka"},
    WorkerApp: {"fail", "drain", "delivery", "metrics", "failure"},
    _Boot: set(),
    _Conductor: set(),
    BatchTransport: set(),
    Batches: set(),
}


@pytest.mark.parametrize(
    ("ours", "base"),
    [
        (BatchConsumer, Consumer),
        (WorkerApp, faust.App),
        (_Boot, BootStrategy),
        (_Conductor, Conductor),
        (BatchTransport, Transport),
        (Batches, faust.Schema),
    ],
)
def test_what_we_override_in_faust_is_there(ours: type, base: type) -> None:
    """A method that Faust renamed would never be called again, without a word."""
    overridden = {
        name
        for name, value in vars(ours).items()
        if inspect.isroutine(value) and not name.startswith("__") and name not in OURS[ours]
    }
    private = {name for name in overridden if name.startswith("_") and not hasattr(base, name)}
    gone = {name for name in overridden - private if not hasattr(base, name)}
    assert not gone, f"{FAUST}: {base.__name__} no longer has {', '.join(sorted(gone))}"
    assert issubclass(ours, base)


@pytest.mark.parametrize(
    ("thing", "names"),
    [
        (Consumer, "_drain_messages _commit _seek _getmany _new_topicpartition _to_message commit wait_empty"),
        (Consumer, "verify_all_partitions_active track_message stop_flow resume_flow on_partitions_revoked"),
        (Consumer, "on_partitions_assigned assignment subscribe"),
        (faust.App, "_on_agent_error _on_partitions_revoked _on_partitions_assigned _stop_consumer"),
        (faust.App, "_wait_for_table_recovery_completed _create_directories _crash"),
        (faust.App, "on_rebalance_start on_rebalance_return on_rebalance_end"),
        (Conductor, "_subscriber _update_indices"),
        (BootStrategy, "kafka_consumer tables"),
    ],
)
def test_faust_has_what_we_rely_on(thing: type, names: str) -> None:
    """Private names that are overridden or called."""
    must_have(thing, names, library=FAUST)


def test_a_faust_message_carries_a_batch_and_a_generation() -> None:
    """The stream skips a message whose generation is not the consumer's, silently."""
    parameters = inspect.signature(faust.types.ConsumerMessage).parameters
    assert {"value", "tp", "generation_id"} <= set(parameters), f"{FAUST}: ConsumerMessage has changed"
    assert "consumer_generation_id" in get_type_hints(faust.types.AppT), f"{FAUST}: App.consumer_generation_id is gone"
