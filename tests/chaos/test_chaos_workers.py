"""Workers killed, frozen, added and stopped, and the broker taken away, while events keep coming.

Every test of this folder prints its seed, takes ``--chaos-seed`` (or CHAOS_SEED) and ``--chaos-seeds`` (so many, one
after the other), and is skipped by a plain ``pytest``. What to run for what:

    pytest tests/chaos -m chaos_slice                          the slice for every push, about a minute
    pytest tests/chaos -m chaos -s                             all of it, once, about an hour
    pytest tests/chaos/test_chaos_workers.py -m chaos -s --chaos-events 200000 --chaos-seeds 10
                                                               lost, doubled and order by seed, two hours
    pytest tests/chaos/test_chaos_gap_table.py -m chaos -s --chaos-seeds 5
                                                               the longest gap by kind of failure
    pytest tests/chaos/test_chaos_states.py -m chaos -s --chaos-hold 120
                                                               each state for two minutes, and SIGTERM in each
    pytest tests/chaos/test_planted_faults.py -m chaos -s      that the suite can fail
    pytest tests/chaos/test_chaos_soak.py -m chaos -s --chaos-minutes 30
                                                               mixed chaos; memory, files, connections
    … --kafka-version 3.9.2                                    on another Kafka

Faults are drawn from the seed; the machine's own timing is not, so a seed makes a failure likely again, not certain.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from chaos import faults
from chaos.gaps import table
from chaos.scene import Scene

if TYPE_CHECKING:
    from collections.abc import Iterable

    from chaos.faults import Fault

    from worker.kafka.throwaway import ThrowawayKafka

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

both = pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])


@both
def test_killed(kafka: ThrowawayKafka, guarantee: str, seed: int, events: int) -> None:
    """Six kill -9 among three workers lose nothing and, exactly once, double nothing."""
    _run(kafka, guarantee, seed, events, 60, [faults.kill] * 6, (1, 12))


@both
def test_frozen(kafka: ThrowawayKafka, guarantee: str, seed: int, events: int) -> None:
    """Three freezes past the session time-out: the zombie writes nothing that counts."""
    _run(kafka, guarantee, seed, events, 70, [faults.freeze] * 3, (1, 8))


@both
def test_scaled(kafka: ThrowawayKafka, guarantee: str, seed: int, events: int) -> None:
    """From one to three and back to one, twice, in good order: nothing is lost, and under either guarantee doubled."""
    script = [faults.scale_up, faults.scale_up, faults.scale_down, faults.scale_down] * 2
    scene = _run(kafka, guarantee, seed, events, 30, script, (0.5, 4), workers=1)
    assert not scene.verdict.doubled, scene.verdict


@both
def test_broker_away(kafka: ThrowawayKafka, guarantee: str, seed: int, events: int) -> None:
    """The broker stopped, killed and frozen, back after seconds."""
    script = [faults.stop_broker, faults.kill_broker, faults.freeze_broker]
    _run(kafka, guarantee, seed, events, 70, script, (2, 6), workers=2)


@both
def test_disk_full(kafka: ThrowawayKafka, guarantee: str, seed: int, events: int) -> None:
    """The broker's disk is full, twice; what it had not written is sent again."""
    _run(kafka, guarantee, seed, events, 45, [faults.fill_disk] * 2, (2, 6), workers=2)


@both
def test_mixed(kafka: ThrowawayKafka, guarantee: str, seed: int, events: int) -> None:
    """Eight faults drawn from all of them."""
    _run(kafka, guarantee, seed, events, 120, [faults.any_of_all] * 8, (1, 12))


def _run(  # noqa: PLR0913, PLR0917
    kafka: ThrowawayKafka,
    guarantee: str,
    seed: int,
    events: int,
    seconds: float,
    script: Iterable[Fault],
    pauses: tuple[float, float],
    workers: int = 3,
) -> Scene:
    with Scene(kafka, guarantee, seed, events=events, seconds=seconds, workers=workers) as scene:
        for fault in script:
            time.sleep(scene.dice.uniform(*pauses))
            fault(scene)
        scene.settle()
        print(f"seed {seed}, {guarantee}: {scene.verdict}\n{table(scene.watch.gaps())}", flush=True)  # noqa: T201
        assert scene.verdict.holds(guarantee), scene.verdict
        assert not scene.fleet.unclean(), scene.folder
        return scene
