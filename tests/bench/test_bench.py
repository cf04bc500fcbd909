"""The benchmark works: each contender does the same work, each table can be made. Nothing here looks at a clock.

The benchmark itself is a command, ``python tests/bench/run.py``; this is its test, small.
"""

from __future__ import annotations

from typing import Any

import pytest
from bench import events, latency, memory, report, runner, stages, throughput
from bench.cluster import Cluster

pytestmark = [pytest.mark.bench, pytest.mark.timeout(300)]

_EVENTS = 50_000


@pytest.fixture
def cluster(broker: str) -> Cluster:
    """Give the shared broker, as the benchmark sees it."""
    return Cluster(broker, "the tests' own")


def _say(_line: str) -> None:
    """Say nothing."""


@pytest.mark.parametrize("contender", runner.CONTENDERS, ids=lambda contender: str(contender.name))
def test_each_contender_does_the_same_work(cluster: Cluster, contender: runner.Contender) -> None:
    """Counts, order and sampled content of its output are what the rule says: ``measure`` raises otherwise."""
    shape = events.plain_shape(round(_EVENTS * max(contender.share, 0.1)))
    topic = cluster.topic("in", shape.partitions)
    cluster.fill(shape, topic)
    assert runner.measure(cluster, contender, shape, topic).events <= shape.count


def test_shapes_with_drops_and_dead_letters_are_counted(cluster: Cluster) -> None:
    """What is no message is no message in the table's count either."""
    rows = throughput.shapes(cluster, 0.1, 1, _say, only="dead letters")
    assert [row["name"] for row in rows] == ["100 B, 4 partitions", "30 % dead letters"]


def test_latency_start_up_and_memory_give_rows(cluster: Cluster) -> None:
    """Each table has its rows."""
    assert "p999" in latency.latency(cluster, 0.5, 1, _say)[0]
    assert latency.start_up(cluster, 1, _say)[0]["seconds"] > 0
    assert memory.backlog(cluster, runner.WORKER, _EVENTS, _say)["events"] >= _EVENTS
    assert memory.full_load(cluster, runner.WORKER, 0.05, _say)["peak_mb"] > 0


def test_stages_add_up(cluster: Cluster) -> None:
    """The stages' sum is the whole."""
    rows = {row["name"]: row["us"] for row in stages.stages(cluster, 4 * _EVENTS, _say)}
    whole = rows.pop("all of it, imports left out")
    parts = [us for name, us in rows.items() if not name.startswith(("alone", "in it"))]
    assert sum(parts) == pytest.approx(whole)


def test_the_chart_shows_every_contender() -> None:
    """It is drawn from the rows alone, whatever their names hold."""
    row: dict[str, Any] = {"name": "worker & <co>", "per_second": 10.0, "cpu_us": 1.0, "peak_mb": 50.0}
    machine = {"cpu": "a CPU", "cpus": 2}
    drawn = report.chart({"contenders": [row], "machine": machine, "date": "2026-01-01T00:00:00"})
    assert "worker &amp; &lt;co&gt;" in drawn
