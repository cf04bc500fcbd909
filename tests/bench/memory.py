"""Memory over time: at full load for minutes on end, and while a large backlog is worked off.

At full load a feeder sends the same few record batches again and again: it costs next to nothing, so the worker gets
what is left of the machine. It keeps a bounded distance ahead; topics drop what is old.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from aiokafka import AIOKafkaProducer
from aiokafka.producer.message_accumulator import BatchBuilder
from bench import events
from bench.cluster import Committed
from bench.runner import Contender, Running

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.cluster import Cluster

Row = dict[str, Any]

PARTITIONS = 4
_BATCH_EVENTS = 2_000
_AHEAD = 1_000_000
_LOOK_SECONDS = 1.0
_RETENTION = {"retention_bytes": "400000000", "segment_bytes": "50000000"}


def backlog(cluster: Cluster, contender: Contender, count: int, say: Callable[[str], None]) -> Row:
    """Sample memory while ``count`` waiting events are worked off."""
    topic, output = cluster.topic("in", PARTITIONS), cluster.topic("out", PARTITIONS)
    asyncio.run(_feed(cluster.bootstrap, topic, count, lambda: 0))
    group = f"bench-{uuid4().hex[:8]}"
    committed = Committed(cluster, group, topic, PARTITIONS)
    ends = sum(cluster.ends(topic, PARTITIONS).values())
    samples: list[tuple[float, float, int]] = []
    begin = time.monotonic()
    with Running(contender, cluster, topic, output, group) as running:
        while not samples or samples[-1][2] < ends:
            time.sleep(_LOOK_SECONDS / 4)
            running.check_alive()
            samples.append((time.monotonic() - begin, running.rss_mb(), sum(committed.offsets().values())))
    committed.close()
    cluster.delete(topic, output)
    return _row(f"{contender.name}, backlog of {count:,}", samples, say)


def full_load(cluster: Cluster, contender: Contender, minutes: float, say: Callable[[str], None]) -> Row:
    """Sample memory for so many minutes, with more to do at every moment."""
    topic = cluster.topic("in", PARTITIONS, **_RETENTION)
    output = cluster.topic("out", PARTITIONS, **_RETENTION)
    group = f"bench-{uuid4().hex[:8]}"
    committed = Committed(cluster, group, topic, PARTITIONS)
    with Running(contender, cluster, topic, output, group) as running:
        samples = asyncio.run(_load(cluster, topic, running, committed, minutes * 60))
    committed.close()
    cluster.delete(topic, output)
    return _row(f"{contender.name}, {minutes:g} minutes at full load", samples, say)


async def _load(
    cluster: Cluster, topic: str, running: Running, committed: Committed, seconds: float
) -> list[tuple[float, float, int]]:
    samples: list[tuple[float, float, int]] = []
    begin = time.monotonic()
    feeding = asyncio.create_task(_feed(cluster.bootstrap, topic, 1 << 62, lambda: samples[-1][2] if samples else 0))
    while not feeding.done() and time.monotonic() - begin < seconds:
        await asyncio.sleep(_LOOK_SECONDS)
        running.check_alive()
        done = await asyncio.to_thread(committed.offsets)
        samples.append((time.monotonic() - begin, running.rss_mb(), sum(done.values())))
    feeding.cancel()
    with suppress(asyncio.CancelledError):
        await feeding
    return samples


class _Again(BatchBuilder):  # type: ignore[misc] # aiokafka has no types
    """A record batch that was built before, so that sending it costs no more than its bytes."""

    def __init__(self, built: BatchBuilder, data: bytes) -> None:
        self.__dict__.update(built.__dict__)
        self._data = data

    def _build(self) -> bytes:
        return self._data


async def _feed(bootstrap: str, topic: str, count: int, done: Callable[[], int]) -> None:
    """Send ``count`` events, never more than a bounded number ahead of what is ``done`` once that has begun."""
    shape = events.plain_shape(_BATCH_EVENTS)
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, max_batch_size=1_000_000) as producer:
        built = producer.create_batch()
        for number in range(_BATCH_EVENTS):
            event = shape.make(number)
            built.append(timestamp=event.timestamp, key=event.key, value=event.value, headers=[])
        built.close()
        data = bytes(built._build())
        bounded = count > 1 << 61
        sent = 0
        while sent < count:
            if bounded and sent - done() > _AHEAD:
                await asyncio.sleep(0.05)
                continue
            waiting = [
                await producer.send_batch(_Again(built, data), topic, partition=number) for number in range(PARTITIONS)
            ]
            await asyncio.gather(*waiting)
            sent += PARTITIONS * _BATCH_EVENTS


def _row(name: str, samples: list[tuple[float, float, int]], say: Callable[[str], None]) -> Row:
    """The first tenth is start-up; what grows after it would grow for ever."""
    steady = samples[len(samples) // 10 :]
    half = len(steady) // 2
    row = {
        "name": name,
        "events": samples[-1][2],
        "seconds": samples[-1][0],
        "peak_mb": max(sample[1] for sample in samples),
        "first_half_mb": sum(sample[1] for sample in steady[:half]) / max(1, half),
        "second_half_mb": sum(sample[1] for sample in steady[half:]) / max(1, len(steady) - half),
        "samples": samples[:: max(1, len(samples) // 120)],
    }
    say(f"memory, {name}: peak {row['peak_mb']:.0f} MB, {row['first_half_mb']:.0f} → {row['second_half_mb']:.0f} MB")
    return row
