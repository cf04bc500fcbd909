"""The first table: the worker beside others that do the same work, on the same broker, one after the other."""

from __future__ import annotations

import dataclasses
from statistics import median
from typing import TYPE_CHECKING, Any

from bench import events
from bench.runner import CONTENDERS, WORKER, measure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.cluster import Cluster
    from bench.events import Shape
    from bench.runner import Contender, Measured

Row = dict[str, Any]


def contenders(
    cluster: Cluster, count: int, rounds: int, say: Callable[[str], None], who: Sequence[Contender] = CONTENDERS
) -> list[Row]:
    """Measure every contender in each of the rounds, and take medians."""
    topics: dict[int, tuple[Shape, str]] = {}
    for contender in who:
        share = round(count * contender.share, -1)
        if share not in topics:
            shape = events.plain_shape(int(share))
            say(f"filling {shape.count:,} events")
            topics[shape.count] = (shape, cluster.topic("in", shape.partitions))
            cluster.fill(*topics[shape.count])
    runs: dict[str, list[Measured]] = {contender.name: [] for contender in who}
    for number in range(1, rounds + 1):
        for contender in who:
            shape, topic = topics[int(round(count * contender.share, -1))]
            measured = measure(cluster, contender, shape, topic)
            runs[contender.name].append(measured)
            say(f"round {number}: {contender.name}: {_line(measured)}")
    cluster.delete(*(topic for _, topic in topics.values()))
    rows = [{"name": name, "events": each[0].events, **summary(each)} for name, each in runs.items()]
    base = next(row for row in rows if row["name"] == WORKER.name)
    for row in rows:
        row["cpu_to_worker"] = row["cpu_us"] / base["cpu_us"]
        row["rate_to_worker"] = row["per_second"] / base["per_second"]
    return rows


def shapes(cluster: Cluster, scale: float, rounds: int, say: Callable[[str], None], only: str = "") -> list[Row]:
    """Measure the worker on events of other sizes and kinds."""
    rows: list[Row] = []
    for full in events.shapes():
        if rows and only not in full.name:  # the plain one, first, is what the others are held against
            continue
        shape = dataclasses.replace(full, count=max(200, int(round(full.count * scale, -1))))
        topic = cluster.topic("in", shape.partitions)
        cluster.fill(shape, topic)
        contender = dataclasses.replace(WORKER, settings=shape.worker)
        runs = [measure(cluster, contender, shape, topic) for _ in range(rounds)]
        cluster.delete(topic)
        kilobytes = shape.bytes_per_event / 1000
        row = {"name": shape.name, "events": shape.count, "bytes": round(shape.bytes_per_event), **summary(runs)}
        row["cpu_us_per_kb"] = row["cpu_us"] / kilobytes
        row["ratio"] = row["cpu_us"] / rows[0]["cpu_us"] if rows else 1.0
        rows.append(row)
        say(f"{shape.name}: {_line(runs[-1])}")
    return rows


def two_processes(cluster: Cluster, count: int, rounds: int, say: Callable[[str], None]) -> list[Row]:
    """Measure one process on four partitions, and two on two each."""
    shape = events.plain_shape(count)
    topic = cluster.topic("in", shape.partitions)
    cluster.fill(shape, topic)
    runs: dict[int, list[Measured]] = {1: [], 2: []}
    for _ in range(rounds):
        for processes, each in runs.items():
            each.append(measure(cluster, WORKER, shape, topic, processes=processes))
            say(f"{processes} processes: {_line(each[-1])}")
    cluster.delete(topic)
    return [
        {"name": f"{processes} on {4 // processes} partitions", **summary(each)} for processes, each in runs.items()
    ]


def summary(runs: list[Measured]) -> Row:
    """Take the medians."""
    return {
        "per_second": median(run.per_second for run in runs),
        "cpu_us": median(run.cpu_us for run in runs),
        "peak_mb": median(run.peak_mb for run in runs),
        "runs": [{**run._asdict(), "per_second": run.per_second, "cpu_us": run.cpu_us} for run in runs],
    }


def _line(measured: Measured) -> str:
    return f"{measured.per_second:,.0f}/s, {measured.cpu_us:.2f} µs CPU, {measured.peak_mb:.0f} MB"
