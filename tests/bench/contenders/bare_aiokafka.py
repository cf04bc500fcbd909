"""aiokafka without anything around it: getmany, the worker's rule, one record batch after the other."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from bench.contenders.common import BROKERS, COMMIT_SECONDS, GROUP, INPUT, OUTPUT

from worker.rule.outcome import Rule

_BATCH_BYTES = 1_000_000


async def _send(producer: AIOKafkaProducer, partition: int, records: list[Any], each: list[Any]) -> None:
    """Store a fetched batch's messages, in order."""
    at = 0
    while at < len(records):
        builder = producer.create_batch()
        while at < len(records):
            value, record = each[at], records[at]
            if type(value) is bytes and not builder.append(
                timestamp=record.timestamp, key=record.key, value=value, headers=list(record.headers)
            ):
                break
            at += 1
        builder.close()
        await (await producer.send_batch(builder, OUTPUT, partition=partition))


async def main() -> None:
    """Run until SIGTERM."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    consumer = AIOKafkaConsumer(
        INPUT,
        bootstrap_servers=BROKERS,
        group_id=GROUP,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    producer = AIOKafkaProducer(
        bootstrap_servers=BROKERS, acks="all", enable_idempotence=True, max_batch_size=_BATCH_BYTES
    )
    rule = Rule()
    await consumer.start()
    await producer.start()
    sending: dict[TopicPartition, asyncio.Task[None]] = {}
    done: dict[TopicPartition, int] = {}
    due = loop.time() + COMMIT_SECONDS

    async def deliver(
        tp: TopicPartition, before: asyncio.Task[None] | None, records: list[Any], each: list[Any]
    ) -> None:
        if before is not None:
            await before
        await _send(producer, tp.partition, records, each)
        done[tp] = records[-1].offset + 1

    while not stop.is_set():
        fetched = await consumer.getmany(timeout_ms=100, max_records=8_000)
        for tp, records in fetched.items():
            before = sending.get(tp)
            each = rule.outcomes(records).each
            sending[tp] = asyncio.create_task(deliver(tp, before, records, each))
            if before is not None:
                await before  # one batch on its way, one behind it
        if loop.time() > due and done:
            await consumer.commit(dict(done))
            due = loop.time() + COMMIT_SECONDS
    await asyncio.gather(*sending.values())
    if done:
        await consumer.commit(done)
    await producer.stop()
    await consumer.stop()


if __name__ == "__main__":
    asyncio.run(main())
