"""States in which nothing gets on: outlasted, and left by SIGTERM.

How long a state lasts is ``--chaos-hold`` (15 s; the long form is 120).
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest
from chaos import states
from chaos.brokers import broken as broken_broker
from chaos.gaps import table
from chaos.scene import Scene

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chaos.brokers import Broken
    from chaos.fleet import Worker
    from chaos.states import State

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]

both = pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
each_state = pytest.mark.parametrize("state", states.ALL, ids=lambda state: state.__name__.replace("_", "-"))

HEAL_SECONDS = 60.0
SHUTDOWN_TIMEOUT = 15.0
_FRAME = {"time", "level", "logger"}


@pytest.fixture(scope="module")
def broken(kafka_version: str) -> Iterator[Broken]:
    """A broker, its proxy and its login."""
    with broken_broker(kafka_version) as all_of_it:
        yield all_of_it


@both
@each_state
def test_outlasted(broken: Broken, guarantee: str, state: State, seed: int, hold: float) -> None:
    """Two workers heal by themselves within a minute of the state's end, and nothing is lost."""
    with _scene(broken, guarantee, state, seed) as scene:
        scene.wait_for_members()
        with scene.watch.stroke(state.__name__), state(scene, broken):
            time.sleep(hold)
        scene.wait_for_output(HEAL_SECONDS)
        verdict = scene.settle()
        print(f"{state.__name__}, seed {seed}, {guarantee}: {verdict}\n{table(scene.watch.gaps())}", flush=True)  # noqa: T201
        assert verdict.holds(guarantee), verdict


@both
@each_state
def test_left_by_sigterm(broken: Broken, guarantee: str, state: State, seed: int) -> None:
    """A worker asked to stop in the state exits in time, with the right code, and what it left is done by the next."""
    with _scene(broken, guarantee, state, seed, WORKER_SHUTDOWN_TIMEOUT=f"{SHUTDOWN_TIMEOUT:.0f}s") as scene:
        scene.wait_for_members()
        with state(scene, broken):
            time.sleep(scene.dice.uniform(0.5, 4))
            leaving = [worker for worker in scene.fleet.workers if worker.alive]
            ends = scene.fleet.stop_all()
        for worker, (code, seconds) in zip(leaving, ends, strict=True):
            print(f"{state.__name__}, {guarantee}: exit {code} after {seconds:.1f} s, {_last_word(worker)}", flush=True)  # noqa: T201
        for _ in range(2):
            scene.fleet.start()
        verdict = scene.settle()
        print(f"{state.__name__}, seed {seed}, {guarantee}: {verdict}", flush=True)  # noqa: T201
        assert verdict.holds(guarantee), verdict
        for worker, (code, seconds) in zip(leaving, ends, strict=True):
            assert seconds < (10 if state is states.healthy else SHUTDOWN_TIMEOUT + 1)
            if state is states.healthy:
                assert code == 0
            assert code == (1 if "hint" in _last_word(worker) else 0)
        if all(code == 0 for code, _ in ends) and state is not states.sibling_frozen:
            assert not verdict.doubled, verdict


def _scene(broken: Broken, guarantee: str, state: State, seed: int, **more: str) -> Scene:
    settings = {**states.settings(broken, state), **more}
    return Scene(broken.kafka, guarantee, seed, events=20_000, seconds=20, workers=2, settings=settings)


def _last_word(worker: Worker) -> str:
    """The line that says how it stopped, without its frame."""
    lines = [json.loads(line) for line in worker.log.read_text().splitlines() if "worker-stopped" in line]
    return str([{name: value for name, value in line.items() if name not in _FRAME} for line in lines[-1:]])
