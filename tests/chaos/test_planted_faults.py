"""The suite can fail: each planted fault is caught by it, and the worker as it is passes the same run.

Between worker and broker is a proxy that makes each answer late, so that the moments in which a fault shows are long.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from chaos import faults, planted
from chaos.brokers import broken
from chaos.fleet import REPOSITORY
from chaos.scene import Scene
from kafka_help import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from chaos.planted import Plant
    from chaos.proxy import Proxy
    from chaos.verdict import Verdict

    from worker.kafka.throwaway import ThrowawayKafka

    Run = Callable[[ThrowawayKafka, Proxy, str, int, Path], Verdict]

pytestmark = [pytest.mark.timeout(900)]

SEEDS = 6


@pytest.fixture(scope="module")
def late(kafka_version: str) -> Iterator[tuple[ThrowawayKafka, Proxy]]:
    """A broker behind a proxy."""
    with broken(kafka_version) as (kafka, proxy, _):
        yield kafka, proxy


def killed_in_flight(kafka: ThrowawayKafka, proxy: Proxy, guarantee: str, seed: int, code: Path) -> Verdict:
    """One static member (it is let back in at once), killed and started again, ten times."""
    proxy.slow(0.04)
    static = {"WORKER_INSTANCE_ID": "the-one"}
    with Scene(
        kafka, guarantee, seed, events=40_000, seconds=30, workers=1, brokers=proxy.address, code=code, settings=static
    ) as scene:
        for _ in range(10):
            scene.wait_for_output()
            time.sleep(scene.dice.uniform(0.2, 1.2))
            faults.kill(scene)
        return scene.settle()


def thawed_in_a_takeover(kafka: ThrowawayKafka, proxy: Proxy, guarantee: str, seed: int, code: Path) -> Verdict:
    """Two workers; one is frozen in mid-transaction and thawed just after the other is given its partitions."""
    proxy.slow(0.05)
    with Scene(kafka, guarantee, seed, events=40_000, seconds=60, workers=2, brokers=proxy.address, code=code) as scene:
        for _ in range(4):
            scene.wait_for_output()
            time.sleep(scene.dice.uniform(0.5, 2))
            victim, heir = scene.dice.sample(scene.fleet.workers, 2)
            before = heir.times_said("partitions-assigned")
            victim.freeze()
            until(lambda: heir.times_said("partitions-assigned") > before, 60)  # noqa: B023 - called in this round
            time.sleep(scene.dice.uniform(0, 1.3))  # it still has a second until it is asked to join again
            victim.thaw()
        proxy.slow(0)
        return scene.settle()


def broker_away(kafka: ThrowawayKafka, proxy: Proxy, guarantee: str, seed: int, code: Path) -> Verdict:
    """The broker is away for longer than a request may take."""
    proxy.slow(0.04)
    with Scene(
        kafka, guarantee, seed, events=200_000, seconds=45, workers=1, brokers=proxy.address, code=code
    ) as scene:
        scene.wait_for_output()
        faults.away(scene, scene.dice.uniform(27, 30), kill=True)
        return scene.settle()


CASES = (
    (planted.COMMIT_BEFORE_DELIVERY, killed_in_flight),
    (planted.OFFSETS_OUTSIDE, killed_in_flight),
    (planted.NO_FENCE, thawed_in_a_takeover),
    (planted.INIT_TOO_LATE, thawed_in_a_takeover),
    (planted.ASSUMED_DONE, thawed_in_a_takeover),
    (planted.SIDE_BY_SIDE, broker_away),
)


@pytest.mark.parametrize("fault", [fault for fault, _ in CASES], ids=lambda fault: fault.name.replace(" ", "-"))
def test_plants_fit(tmp_path: Path, fault: Plant) -> None:
    """The worker still has the texts that are replaced, and what comes out is Python."""
    code = planted.plant(fault, tmp_path)
    for file, _, _ in fault.changes:
        compile((code / "worker" / file).read_text(encoding="utf-8"), file, "exec")


@pytest.mark.chaos
@pytest.mark.parametrize(("fault", "run"), CASES, ids=[fault.name.replace(" ", "-") for fault, _ in CASES])
def test_caught(late: tuple[ThrowawayKafka, Proxy], tmp_path: Path, fault: Plant, run: Run, seed: int) -> None:
    """Within a few seeds, what a worker with the fault leaves behind breaks its guarantee."""
    code = planted.plant(fault, tmp_path)
    for number in range(seed, seed + SEEDS):
        verdict = run(*late, fault.guarantee, number, code)
        print(f"{fault.name}, seed {number}: {verdict}", flush=True)  # noqa: T201
        if not verdict.holds(fault.guarantee):
            return
    pytest.fail(f"{fault.name}: not caught in {SEEDS} seeds")


@pytest.mark.chaos
@pytest.mark.parametrize("run", [killed_in_flight, thawed_in_a_takeover, broker_away])
@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_not_caught_without_fault(late: tuple[ThrowawayKafka, Proxy], run: Run, guarantee: str, seed: int) -> None:
    """The worker as it is keeps its guarantee in the same runs."""
    verdict = run(*late, guarantee, seed, REPOSITORY)
    print(f"no fault, {run.__name__}, {guarantee}, seed {seed}: {verdict}", flush=True)  # noqa: T201
    assert verdict.holds(guarantee), verdict
