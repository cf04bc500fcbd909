"""One contender, one run: start it, watch the output grow and what the process uses, stop it, check its work.

All contenders are measured from outside and alike. The clock runs from the first look that finds output to the first
that finds all of it; CPU is what the process used between those two looks. Starting and joining the group is in
neither. Every run has a group and an output topic of its own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self
from uuid import uuid4

import psutil
from bench.cluster import Committed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from bench.cluster import Cluster
    from bench.events import Shape

ROOT = Path(__file__).absolute().parents[2]
_CONTENDERS = Path(__file__).with_name("contenders")
_LOOK_SECONDS = 0.04
_STILL_SECONDS = 60.0


class BenchError(Exception):
    """The benchmark could not be done."""


@dataclass(frozen=True)
class Contender:
    """Who does the work; ``share`` of the events is enough for the slow."""

    name: str
    command: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    share: float = 1.0
    is_worker: bool = False


class Measured(NamedTuple):
    """What one run came to."""

    events: int
    seconds: float
    cpu_seconds: float
    peak_mb: float

    @property
    def per_second(self) -> float:
        """Events a second."""
        return self.events / self.seconds

    @property
    def cpu_us(self) -> float:
        """Microseconds of CPU, user and system, an event."""
        return self.cpu_seconds / self.events * 1e6


def worker(name: str, **settings: str) -> Contender:
    """Give the worker itself, by the command people run."""
    return Contender(name, (sys.executable, "-m", "worker", "run"), settings, is_worker=True)


def script(name: str, file: str, *arguments: str, share: float = 1.0) -> Contender:
    """Give one of the scripts in ``contenders``."""
    return Contender(name, (sys.executable, str(_CONTENDERS / file), *arguments), share=share)


WORKER = worker("worker, at-least-once")
EXACTLY_ONCE = worker("worker, exactly-once", GUARANTEE="exactly-once")
PLAIN_FAUST = script(
    "plain Faust agent", "plain_faust.py", "worker", "--without-web", "--loglevel", "warning", share=0.02
)
CONTENDERS = (
    WORKER,
    EXACTLY_ONCE,
    script("bare aiokafka loop", "bare_aiokafka.py"),
    script("bare confluent-kafka loop", "bare_confluent.py"),
    script("Kafka Streams, at-least-once", "kafka_streams.py", "at_least_once"),
    script("Kafka Streams, exactly-once", "kafka_streams.py", "exactly_once_v2"),
    PLAIN_FAUST,
)


class Running:
    """A contender's process, from its start to its clean end."""

    def __init__(self, contender: Contender, cluster: Cluster, topic: str, output: str, group: str) -> None:
        """Start it."""
        self._name = contender.name
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        environment = {name: text for name, text in os.environ.items() if not name.startswith("WORKER_")}
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
        if contender.is_worker:
            settings = {
                "BROKERS": cluster.bootstrap,
                "GROUP_ID": group,
                "INPUT_TOPIC": topic,
                "OUTPUT_TOPIC": output,
                "DEAD_LETTER_TOPIC": f"{output}.dead-letter",
                "HTTP_PORT": "0",
                "LOG_LEVEL": "warning",
                **contender.settings,
            }
            environment |= {f"WORKER_{name}": text for name, text in settings.items()}
        else:
            settings = {"BROKERS": cluster.bootstrap, "GROUP": group, "INPUT": topic, "OUTPUT": output}
            environment |= {f"BENCH_{name}": text for name, text in settings.items()}
        self._process = subprocess.Popen(
            contender.command, env=environment, cwd=ROOT, stdout=self._log, stderr=subprocess.STDOUT
        )
        self._usage = psutil.Process(self._process.pid)

    def cpu_seconds(self) -> float:
        """Give what it has used until now, user and system."""
        self.check_alive()
        used = self._usage.cpu_times()
        return used.user + used.system

    def rss_mb(self) -> float:
        """Give its memory now."""
        return self._usage.memory_info().rss / 1e6

    def check_alive(self) -> None:
        """Raise BenchError when it has ended."""
        if self._process.poll() is not None:
            raise BenchError(f"{self._name} ended by itself ({self._process.returncode}): {self.said()}")

    def said(self) -> str:
        """Give the end of what it wrote."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace")[-2_000:]

    def stop(self) -> None:
        """Ask it to end, and see that it does."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def __enter__(self) -> Self:
        """It runs already."""
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        """End it."""
        self.stop()
        self._log.close()


def measure(cluster: Cluster, contender: Contender, shape: Shape, topic: str, *, processes: int = 1) -> Measured:
    """Have a filled topic worked through once, by one process or by several of one group."""
    output = cluster.topic("out", shape.partitions)
    outputs = [output]
    if shape.dead_letters:
        outputs.append(cluster.topic_named(f"{output}.dead-letter", shape.partitions))
    group = f"bench-{uuid4().hex[:8]}"
    running: list[Running] = []
    try:
        running.extend(Running(contender, cluster, topic, output, group) for _ in range(processes))
        measured = _watch(cluster, running, shape, outputs)
        wait_committed(cluster, group, topic, shape, running)
    finally:
        for one in running:
            one.__exit__(None, None, None)
    cluster.check(shape, topic, output)
    cluster.delete(*outputs)
    return measured


def _watch(cluster: Cluster, running: list[Running], shape: Shape, outputs: list[str]) -> Measured:
    due = shape.messages + shape.dead_letters
    first: tuple[float, float, int] | None = None
    last = (time.monotonic(), 0.0, 0)
    moved, peak = last[0], 0.0
    while True:
        stored = sum(sum(cluster.ends(topic, shape.partitions).values()) for topic in outputs)
        now = (time.monotonic(), sum(one.cpu_seconds() for one in running), stored)
        peak = max(peak, sum(one.rss_mb() for one in running))
        if stored != last[2]:
            moved = now[0]
        elif now[0] - moved > _STILL_SECONDS:
            raise BenchError(f"no progress at {stored} of {due}: {running[0].said()}")
        if stored and first is None:
            first = now if stored < due else last  # all of it between two looks: from the look before
        if stored >= due:  # a transaction's marker counts as one here: a handful among hundreds of thousands
            begin = first or last
            events = round((due - begin[2]) / due * shape.count)
            return Measured(events, now[0] - begin[0], now[1] - begin[1], peak)
        last = now
        time.sleep(_LOOK_SECONDS)


def wait_committed(cluster: Cluster, group: str, topic: str, shape: Shape, running: list[Running]) -> None:
    """Wait until a group has committed all of a topic: lag 0."""
    committed = Committed(cluster, group, topic, shape.partitions)
    ends = cluster.ends(topic, shape.partitions)
    until = time.monotonic() + _STILL_SECONDS
    try:
        while committed.offsets() != ends:
            for one in running:
                one.check_alive()
            if time.monotonic() > until:
                raise BenchError(f"committed {committed.offsets()}, the topic ends at {ends}")
            time.sleep(0.05)
    finally:
        committed.close()
