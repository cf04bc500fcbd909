"""The longest gap in output after each kind of failure: one failure at a time, each after all is well again.

pytest tests/chaos/test_chaos_gap_table.py -m chaos -s --chaos-seeds 5
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from chaos import faults, states
from chaos.brokers import broken as broken_broker
from chaos.gaps import Gap, table
from chaos.scene import Scene

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chaos.brokers import Broken

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

KINDS = (faults.kill, faults.kill_static, faults.freeze, faults.scale_up, faults.scale_down)
STATES = (
    states.broker_stopped,
    states.broker_killed,
    states.broker_frozen,
    states.connections_stalled,
    states.connections_refused,
    states.connections_cut,
)
#: How long a state of the broker lasts; it is part of the gap.
SECONDS = 5.0


@pytest.fixture(scope="module")
def tables() -> Iterator[dict[str, list[Gap]]]:
    """What all runs measured, printed at the end."""
    measured: dict[str, list[Gap]] = {}
    yield measured
    for guarantee, gaps in measured.items():
        print(f"\n{guarantee}, states of {SECONDS:.0f} s\n{table(gaps)}", flush=True)  # noqa: T201


@pytest.fixture(scope="module")
def broken(kafka_version: str) -> Iterator[Broken]:
    """A broker and its proxy."""
    with broken_broker(kafka_version) as all_of_it:
        yield all_of_it


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_longest_gaps(broken: Broken, tables: dict[str, list[Gap]], guarantee: str, seed: int) -> None:
    """Each failure is over within a minute of its end."""
    with Scene(
        broken.kafka, guarantee, seed, events=20_000, seconds=20, workers=2, brokers=broken.proxy.address
    ) as scene:
        for fault in KINDS:
            scene.wait_for_output()
            time.sleep(scene.dice.uniform(2, 4))
            fault(scene)
            scene.wait_for_calm()
        for state in STATES:
            scene.wait_for_output()
            time.sleep(scene.dice.uniform(2, 4))
            with scene.watch.stroke(f"{state.__name__}, {SECONDS:.0f} s".replace("_", " ")), state(scene, broken):
                time.sleep(SECONDS)
            scene.wait_for_calm()
        verdict = scene.settle()
        gaps = scene.watch.gaps()
        tables.setdefault(guarantee, []).extend(gaps)
        print(f"seed {seed}, {guarantee}: {verdict}\n{table(gaps)}", flush=True)  # noqa: T201
        assert verdict.holds(guarantee), verdict
        assert all(gap.healed < 60 for gap in gaps)
