"""The second table: from the moment an event is sent to the moment a reader has its message.

The reader is here, the producer in a process of its own (``paced.py``). A row without any worker reads the input topic
itself: what producer, broker and reader take by themselves.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from bench.runner import EXACTLY_ONCE, WORKER, BenchError, Running, worker
from confluent_kafka import Consumer, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.cluster import Cluster
    from bench.runner import Contender

Row = dict[str, Any]

PARTITIONS = 4
RATES = (1_000, 20_000)
#: At the front of a run the group is joined and caches are cold; those events are not counted.
_WARM_UP_SECONDS = 2.0
_JOIN_SECONDS = 30.0
_CASES: tuple[tuple[str, Contender | None, str], ...] = (
    ("no worker: a reader of the input", None, "read_uncommitted"),
    ("at-least-once", WORKER, "read_committed"),
    ("exactly-once", EXACTLY_ONCE, "read_committed"),
    (
        "exactly-once, COMMIT_INTERVAL=100ms",
        worker("worker, exactly-once, 100 ms", GUARANTEE="exactly-once", COMMIT_INTERVAL="100ms"),
        "read_committed",
    ),
)


def latency(cluster: Cluster, seconds: float, rounds: int, say: Callable[[str], None]) -> list[Row]:
    """Measure all cases at all rates, in each of the rounds; the rows hold the medians of the rounds."""
    runs: dict[tuple[str, int], list[Row]] = {}
    for _ in range(rounds):
        for rate in RATES:
            for name, contender, isolation in _CASES:
                row = _measure(cluster, contender, rate, seconds, isolation)
                runs.setdefault((name, rate), []).append(row)
                say(f"{name} at {rate}/s: " + ", ".join(f"{key} {row[key]:.1f} ms" for key in _PERCENTILES))
    keys = (*_PERCENTILES, "max", *(f"pacing_{key}" for key in _PERCENTILES))
    return [
        {"name": name, "rate": rate, **{key: median(row[key] for row in each) for key in keys}, "runs": each}
        for (name, rate), each in runs.items()
    ]


def _measure(cluster: Cluster, contender: Contender | None, rate: int, seconds: float, isolation: str) -> Row:
    topic, output = cluster.topic("in", PARTITIONS), cluster.topic("out", PARTITIONS)
    watched = topic if contender is None else output
    reader = _reader(cluster.bootstrap, watched, isolation)
    running = Running(contender, cluster, topic, output, f"bench-{uuid4().hex[:8]}") if contender else nullcontext()
    with running:
        if contender is not None:  # joined once the first event has come through
            cluster.send(topic, b'{"text":"the first one"}', b"0")
            _first(reader, _JOIN_SECONDS)
        command = [sys.executable, str(Path(__file__).with_name("paced.py")), cluster.bootstrap, topic]
        command += [str(PARTITIONS), str(rate), str(seconds + _WARM_UP_SECONDS)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as producer:
            taken = _read(reader, int(rate * (seconds + _WARM_UP_SECONDS)))
            said = producer.communicate()[0]
    reader.close()
    cluster.delete(topic, output)
    taken = sorted(taken[int(rate * _WARM_UP_SECONDS) :])
    row: Row = {key: taken[int(len(taken) * part)] * 1000 for key, part in _PERCENTILES.items()}
    row["max"] = taken[-1] * 1000
    row |= {f"pacing_{key}": value for key, value in json.loads(said).items()}
    return row


_PERCENTILES = {"p50": 0.5, "p99": 0.99, "p999": 0.999}


def _reader(bootstrap: str, topic: str, isolation: str) -> Consumer:
    settings = {
        "bootstrap.servers": bootstrap,
        "log_level": 0,
        "group.id": "bench-reader",
        "enable.auto.commit": False,
        "isolation.level": isolation,
        "fetch.queue.backoff.ms": 1,
        "auto.offset.reset": "earliest",
    }
    reader = Consumer(settings)
    reader.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    return reader


def _first(reader: Consumer, seconds: float) -> float:
    """Wait for one message, and give the time at which it came."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        message = reader.poll(0.05)
        if message is not None and message.error() is None:
            return time.monotonic()
    raise BenchError(f"no message came in {seconds:.0f} s")


def _read(reader: Consumer, count: int) -> list[float]:
    """Take messages as they come; how long each was on its way, in the order of their coming."""
    taken: list[float] = []
    poll, clock = reader.poll, time.monotonic_ns
    last = clock()
    while len(taken) < count:
        message = poll(0.5)
        now = clock()
        if message is not None and message.error() is None:
            taken.append((now - int(message.key() or 0)) / 1e9)
            last = now
        elif now - last > _JOIN_SECONDS * 1e9:
            raise BenchError(f"{len(taken)} messages came, where {count} were due")
    return taken


def start_up(cluster: Cluster, rounds: int, say: Callable[[str], None]) -> list[Row]:
    """Measure from the start of the process to its first message, with one event waiting and a group of one."""
    rows = []
    for contender in (WORKER, EXACTLY_ONCE):
        seconds = []
        for _ in range(rounds):
            topic, output = cluster.topic("in", PARTITIONS), cluster.topic("out", PARTITIONS)
            cluster.send(topic, b'{"text":"the first one"}', b"0")
            reader = _reader(cluster.bootstrap, output, "read_uncommitted")
            begin = time.monotonic()
            with Running(contender, cluster, topic, output, f"bench-{uuid4().hex[:8]}"):
                seconds.append(_first(reader, _JOIN_SECONDS) - begin)
            reader.close()
            cluster.delete(topic, output)
        rows.append({"name": contender.name, "seconds": median(seconds), "runs": seconds})
        say(f"start-up, {contender.name}: {rows[-1]['seconds']:.2f} s")
    return rows
