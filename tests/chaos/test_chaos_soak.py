"""Mixed chaos for as long as is wanted, and what the workers that lived through it hold at the end.

pytest tests/chaos/test_chaos_soak.py -m chaos -s --chaos-minutes 30
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import psutil
import pytest
from chaos import faults, states
from chaos.brokers import broken as broken_broker
from chaos.gaps import table
from chaos.scene import Scene

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chaos.brokers import Broken
    from chaos.fleet import Worker

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3 * 3600)]

#: Two workers live from beginning to end, so that a leak has time to show; others come, are killed and go.
SURVIVORS = 2


class Sample(NamedTuple):
    """What a process holds."""

    megabytes: float
    files: int
    connections: int
    threads: int
    tasks: int

    def __str__(self) -> str:
        """One line."""
        return (
            f"{self.megabytes:.1f} MB, {self.files} files, {self.connections} connections, {self.threads} threads, "
            f"{self.tasks} tasks"
        )


@pytest.fixture(scope="module")
def broken(kafka_version: str) -> Iterator[Broken]:
    """A broker and its proxy."""
    with broken_broker(kafka_version) as all_of_it:
        yield all_of_it


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_soak(broken: Broken, guarantee: str, seed: int, minutes: float) -> None:
    """Nothing lost, nothing doubled, nothing leaked."""
    with Scene(
        broken.kafka,
        guarantee,
        seed,
        events=int(60_000 * minutes),
        seconds=60 * minutes,
        workers=SURVIVORS,
        brokers=broken.proxy.address,
    ) as scene:
        scene.wait_for_output()
        survivors = list(scene.fleet.workers)
        scene.spared = set(survivors)
        end = time.monotonic() + 60 * minutes
        samples = {worker: [sample(worker)] for worker in survivors}
        rounds = 0
        while time.monotonic() < end:
            rounds += 1
            scene.fleet.start()
            scene.wait_for_output()
            _one_fault(scene, broken)
            scene.wait_for_output()
            for worker in scene.fleet.workers[SURVIVORS:]:
                scene.fleet.retire(worker)
            scene.wait_for_output()
            for worker in survivors:
                assert worker.alive, f"{worker.log} ended by itself"
                samples[worker].append(sample(worker))
            if rounds % 5 == 1:
                print(f"{guarantee}, after {rounds} rounds: {samples[survivors[0]][-1]}", flush=True)  # noqa: T201
        verdict = scene.settle()
        print(f"seed {seed}, {guarantee}, {rounds} rounds: {verdict}\n{table(scene.watch.gaps())}")  # noqa: T201
        for number, (_, ones) in enumerate(samples.items(), start=1):
            # The first round brings what stays: pools of buffers, connections to come back to.
            print(f"worker {number}: start {ones[0]}; after one round {ones[1]}; end {ones[-1]}", flush=True)  # noqa: T201
        assert verdict.holds(guarantee), verdict
        for ones in samples.values():
            early = ones[1:6]  # the most of a few: one may have been taken while the worker had no partition
            assert ones[-1].files <= max(one.files for one in early) + 6
            assert ones[-1].connections <= max(one.connections for one in early) + 6
            assert ones[-1].threads <= max(one.threads for one in early) + 2
            assert ones[-1].tasks <= max(one.tasks for one in early) + 12
            assert ones[-1].megabytes < 1.5 * max(one.megabytes for one in early) + 20


def sample(worker: Worker) -> Sample:
    """Look at a process."""
    process = psutil.Process(worker.process.pid)
    return Sample(
        process.memory_info().rss / 1e6,
        process.num_fds(),
        len(process.net_connections()),
        process.num_threads(),
        worker.tasks(),
    )


def _one_fault(scene: Scene, broken: Broken) -> None:
    """A fault of a worker that is not spared, or of any worker a freeze, or of the broker, or of the connections."""
    state = scene.dice.choice([None, None, None, None, *states.PASSING])
    if state is None:
        scene.dice.choice([faults.kill, faults.freeze])(scene)
    else:
        with scene.watch.stroke(state.__name__), state(scene, broken):
            time.sleep(scene.dice.uniform(1, 15))
