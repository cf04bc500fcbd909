"""What an output record and a dead letter keep of the input record: everything but the value, and where it lies."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.record.util import calc_crc32c
from confluent_kafka import Producer
from kafka_help import Input, Record, create_topic
from worker_process import GUARANTEES, event, numbers

from worker.kafka.dead_letters import OURS

if TYPE_CHECKING:
    from worker_process import MakeLine

    from worker.kafka.throwaway import ThrowawayKafka

KEYS = (None, b"", b"\x00\x83\xff", bytes(range(0xF0, 0x100)), "clé".encode(), b"null")
TIMESTAMPS = (0, 1001, 1092304680228, 1732000000123)
HEADERS: tuple[list[tuple[str, bytes | None]], ...] = (
    [],
    [("b", b"2"), ("a", b"1"), ("b", b"1"), ("b", b"2"), ("a", None), ("", b""), ("b", b"")],
    [("é", b"\xff\x00"), ("role", b"tool"), ("__other.errors.reason", None)],
)
FOR_EVER = {"retention.ms": "-1"}
FOREIGN_NAME = b"x-n\xe4me"  # Latin-1


def inputs(partitions: int) -> list[Input]:
    """Each key with each timestamp, good and bad by turns; the headers take turns, too."""
    pairs = [(key, timestamp) for key in KEYS for timestamp in TIMESTAMPS for _ in range(2)]
    values = (b'{"text":"%d"}', b"{%d")
    return [
        Input(key, values[number % 2] % number, HEADERS[number % 3], timestamp, number % partitions)
        for number, (key, timestamp) in enumerate(pairs)
    ]


def kept(record: Input | Record) -> tuple[object, ...]:
    """What must not change, but for a dead letter's own headers."""
    headers = [header for header in record.headers if header[0] not in OURS]
    return record.partition, record.key, headers, record.timestamp


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_key_headers_timestamp_and_partition_are_the_input_records(line: MakeLine, guarantee: str) -> None:
    """Messages and dead letters alike, in input order within each partition."""
    works = line(partitions=3, config=FOR_EVER, guarantee=guarantee)
    sent = inputs(3)
    works.feed(sent)
    works.run()
    works.settle()

    by_partition = sorted(sent, key=lambda record: record.partition or 0)
    good = [record for record in by_partition if (record.value or b"").startswith(b'{"')]
    bad = [record for record in by_partition if record not in good]
    outputs, dead = works.outputs(), works.dead_letters()
    assert [kept(record) for record in outputs] == [kept(record) for record in good]
    assert [kept(record) for record in dead] == [kept(record) for record in bad]
    assert [record.value for record in dead] == [record.value for record in bad]
    texts = [(record.value or b"")[len(b'{"text":"') : -len(b'"}')] for record in good]
    assert [record.value for record in outputs] == [
        b'{"messages":[{"role":"user","content":"%b"}],"message":{"role":"user","content":"%b"}}' % (text, text)
        for text in texts
    ]


def test_other_partition_counts_mean_kafkas_default_partitioning(line: MakeLine) -> None:
    """A key lands where librdkafka's Java-compatible partitioner puts it, a null key in its input's modulo count."""
    works = line(partitions=5, config=FOR_EVER)
    create_topic(works.bootstrap, works.output, 3)
    create_topic(works.bootstrap, works.dead, 2)
    keyed = [Input(b"%d" % number, b'{"text":"x"}', partition=number % 5) for number in range(150)]
    keyed += [Input(key, value, partition=3) for key in KEYS if key is not None for value in (b'{"text":"x"}', b"{")]
    keyless = [Input(None, value, partition=number) for number in range(5) for value in (b'{"text":"x"}', b"{")]
    works.feed([*keyed, *keyless])
    works.run()
    works.settle()

    outputs, dead = works.outputs(), works.dead_letters()
    for count, records in ((3, outputs), (2, dead)):
        keys = {record.key for record in records if record.key is not None}
        reference = partitions_by_librdkafka(works.bootstrap, count, keys)
        assert {record.key or b"": record.partition for record in records if record.key is not None} == reference
        assert sorted(record.partition for record in records if record.key is None) == sorted(
            number % count for number in range(5)
        )
    for partition in range(5):
        mine = [
            record for record in outputs if (record.key or b"").isdigit() and int(record.key or b"") % 5 == partition
        ]
        for there in range(3):
            here = numbers(record for record in mine if record.partition == there)
            assert here == sorted(here)


def partitions_by_librdkafka(bootstrap: str, count: int, keys: set[bytes]) -> dict[bytes, int]:
    """Send the keys to a topic of its own, and see where they lie."""
    topic = create_topic(bootstrap, f"reference-{count}-{id(keys)}", count)
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"})
    places: dict[bytes, int] = {}
    for key in keys:
        producer.produce(
            topic, b"", key, on_delivery=lambda _, done: places.update([(done.key() or b"", done.partition() or 0)])
        )
    producer.flush(30)
    return places


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_header_name_that_is_not_utf8_does_not_stop_the_partition(
    own_line: MakeLine, own_kafka: ThrowawayKafka, guarantee: str
) -> None:
    """Kafka's protocol says that names are UTF-8, but nobody checks: it comes out as it is, and so do its neighbours.

    No client reads such a record, so the broker's own files are looked at.
    """
    works = own_line(guarantee=guarantee)
    works.feed([event(1)])
    for value in (b'{"text":"event 2"}', b"{bad"):
        asyncio.run(send_with_foreign_header_name(works.bootstrap, works.input, b"2", value))
    works.feed([event(3)])
    works.run()
    works.settle()

    messages = in_files(own_kafka, works.output)
    assert 0 < messages.index(b"event 1") < messages.index(b"event 2") < messages.index(FOREIGN_NAME)
    assert messages.index(FOREIGN_NAME) < messages.index(b"event 3")
    dead = in_files(own_kafka, works.dead)
    assert 0 < dead.index(b"{bad") < dead.index(FOREIGN_NAME)


def in_files(kafka: ThrowawayKafka, topic: str) -> bytes:
    """What a topic's first segment holds."""
    (segment,) = (kafka.folder / "data" / f"{topic}-0").glob("*.log")
    return segment.read_bytes()


async def send_with_foreign_header_name(bootstrap: str, topic: str, key: bytes, value: bytes) -> None:
    """Write a record batch whose header name is not UTF-8; no client does, so its bytes are changed after the build."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        batch = producer.create_batch()
        batch.append(timestamp=None, key=key, value=value, headers=[("x-name", b"1")])
        raw = bytearray(batch._build())
        at = raw.index(b"x-name")
        raw[at : at + len(FOREIGN_NAME)] = FOREIGN_NAME
        raw[17:21] = calc_crc32c(raw[21:]).to_bytes(4, "big")  # of all that stands behind it in the batch's head
        batch._buffer = raw
        await (await producer.send_batch(batch, topic, partition=0))
