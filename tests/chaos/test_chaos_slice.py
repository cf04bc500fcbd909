"""The short slice for every push: a kill, a worker more and one fewer, the broker back after a restart.

Both guarantees, in a minute or so on two cores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from chaos import faults
from chaos.scene import Scene

if TYPE_CHECKING:
    from worker.kafka.throwaway import ThrowawayKafka

pytestmark = [pytest.mark.chaos_slice, pytest.mark.timeout(120)]


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_slice(kafka: ThrowawayKafka, guarantee: str, seed: int) -> None:
    """Nothing is lost and, exactly once, nothing doubled."""
    with Scene(kafka, guarantee, seed, events=10_000, seconds=10, workers=2) as scene:
        scene.wait_for_members()
        faults.kill(scene)
        faults.scale_up(scene)
        scene.wait_for_output()
        faults.scale_down(scene)
        faults.away(scene, 0)
        scene.wait_for_output()
        verdict = scene.settle()
        print(f"seed {seed}, {guarantee}: {verdict}")  # noqa: T201
        assert verdict.holds(guarantee), verdict
        assert not scene.fleet.unclean()
