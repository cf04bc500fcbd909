"""Where the worker's CPU goes, by stage, in a figure that adds up.

The worker itself runs, in a process that interrupts itself after each few milliseconds of CPU used and notes what it
was at. So the shares are of all CPU, the kernel's part in its sockets included, and their sum is the whole. The last
rows are measured alone, without a broker, and stand beside the stages they explain.
"""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from bench import events

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from bench.cluster import Cluster

Row = dict[str, Any]

_PARTITIONS = 4
_EVERY_SECONDS = 0.002
_HERE = Path(__file__).absolute()

#: The innermost frame that one of these knows decides; what stands first is looked at first.
_STAGES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("read records: decompress, CRC, unpack", ("worker/kafka/records.py",)),
    ("the rule: loads, MEM-16, dumps", ("worker/rule/", "worker/app.py:text_to_messages")),
    ("append to the record batch", ("worker/kafka/writer.py:load",)),
    ("close the record batch: CRC, copies", ("message_accumulator.py:close", "message_accumulator.py:_build")),
    (
        "produce: requests, socket",
        (
            "protocol/types.py:encode",
            "protocol/types.py:<genexpr>",
            "aiokafka/producer/",
            "aiokafka/conn.py:send",
            "asyncio/selector_events.py:write",
        ),
    ),
    ("fetch: socket", ("aiokafka/conn.py:_read", "asyncio/streams.py", "selector_events.py:_read_ready")),
    ("fetch: requests, responses", ("aiokafka/consumer/", "aiokafka/protocol/", "aiokafka/conn.py")),
    ("group, metadata", ("aiokafka/",)),
    ("counts and metrics", ("prometheus_client/", "worker/observe/", "worker/kafka/lane.py")),
    ("lanes and writer", ("worker/",)),
    ("Faust", ("faust/", "mode/")),
    ("event loop", ("asyncio/", "selectors.py")),
)


def stages(cluster: Cluster, count: int, say: Callable[[str], None]) -> list[Row]:
    """Run a worker over ``count`` plain events and say what it was at."""
    from bench.runner import Contender, Running, wait_committed  # noqa: PLC0415 - the child must not load psutil for it

    shape = events.plain_shape(count, _PARTITIONS)
    topic, output = cluster.topic("in", _PARTITIONS), cluster.topic("out", _PARTITIONS)
    cluster.fill(shape, topic)
    report = _HERE.with_name(f"stages-{uuid4().hex[:8]}.json")
    group = f"bench-{uuid4().hex[:8]}"
    sampled = Contender("sampled worker", (sys.executable, str(_HERE), str(report)), is_worker=True)
    try:
        with Running(sampled, cluster, topic, output, group) as running:
            wait_committed(cluster, group, topic, shape, [running])
        found = json.loads(report.read_text(encoding="utf-8"))
    finally:
        report.unlink(missing_ok=True)
    cluster.delete(topic, output)
    rows = _rows(found, count) + asyncio.run(_alone())
    for row in rows:
        say(f"{row['name']}: {row['us']:.3f} µs")
    return rows


def _rows(found: Row, count: int) -> list[Row]:
    samples = sum(found["stages"].values())
    each = found["cpu_seconds"] / samples / count * 1e6  # lost ticks are spread evenly
    names = [name for name, _ in _STAGES]
    rows = [{"name": name, "us": found["stages"].get(name, 0) * each} for name in (*names, "other")]
    rows.append({"name": "all of it, imports left out", "us": samples * each, "lines": found["lines"]})
    rows.append({"name": "in it, the garbage collector", "us": found["gc_seconds"] / count * 1e6})
    return rows


async def _alone(count: int = 4_000, rounds: int = 40) -> list[Row]:
    from bench import pipeline  # noqa: PLC0415 - as above

    from worker.rule.outcome import Rule  # noqa: PLC0415 - as above

    shape = events.plain_shape(count)
    data = pipeline.fetched([shape.make(number) for number in range(count)])
    rule, sink = Rule(), pipeline.Sink()
    writer = pipeline.writer(sink)
    batch = pipeline.take(data)
    outcomes = rule.outcomes(batch.records)
    took: dict[str, list[float]] = {"read": [], "rule": [], "append": []}
    for _ in range(rounds):
        begin = time.perf_counter()
        pipeline.take(data)
        read = time.perf_counter()
        rule.outcomes(batch.records)
        ruled = time.perf_counter()
        await pipeline.write(writer, batch, outcomes)
        written = time.perf_counter()
        for name, seconds in (("read", read - begin), ("rule", ruled - read), ("append", written - ruled)):
            took[name].append(seconds)
        sink.builders.clear()
    return [{"name": f"alone, at best: {name}", "us": min(each) / count * 1e6} for name, each in took.items()]


# --- the worker's process --------------------------------------------------------------------------------------------


class _Sampler:
    """Notes what the main thread is at; the timer counts the process's CPU, not the clock."""

    def __init__(self) -> None:
        self.stages: Counter[str] = Counter()
        self.lines: Counter[str] = Counter()
        self.gc_seconds = 0.0
        self._gc_began = 0.0
        self._cpu_began = 0.0

    def start(self) -> None:
        """Begin, now that imports are done."""
        signal.signal(signal.SIGPROF, self._note)
        signal.setitimer(signal.ITIMER_PROF, _EVERY_SECONDS, _EVERY_SECONDS)
        gc.callbacks.append(self._note_gc)
        self._cpu_began = time.process_time()

    def result(self) -> Row:
        """Stop, and give what was noted."""
        signal.setitimer(signal.ITIMER_PROF, 0)
        return {
            "cpu_seconds": time.process_time() - self._cpu_began,
            "gc_seconds": self.gc_seconds,
            "stages": dict(self.stages),
            "lines": dict(self.lines.most_common(60)),
        }

    def _note(self, _number: int, frame: FrameType | None) -> None:
        if frame is not None:
            code = frame.f_code
            self.lines[f"{'/'.join(code.co_filename.split('/')[-3:])}:{frame.f_lineno} {code.co_name}"] += 1
        while frame is not None:
            where = f"{frame.f_code.co_filename}:{frame.f_code.co_name}"
            for name, marks in _STAGES:
                if any(mark in where for mark in marks):
                    self.stages[name] += 1
                    return
            frame = frame.f_back
        self.stages["other"] += 1

    def _note_gc(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self._gc_began = time.perf_counter()
        else:
            self.gc_seconds += time.perf_counter() - self._gc_began


def _run_sampled(report: Path) -> None:
    """Run ``worker run`` with a sampler in it, and leave its result at ``report``."""
    from worker import process  # noqa: F401, PLC0415 - loaded before the first sample
    from worker.cli import main  # noqa: PLC0415 - as above

    sampler = _Sampler()
    sampler.start()
    try:
        main(["run"])
    finally:
        report.write_text(json.dumps(sampler.result()), encoding="utf-8")


if __name__ == "__main__":
    _run_sampled(Path(sys.argv[1]))
