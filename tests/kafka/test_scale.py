"""Several workers in one group, coming and going under load."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from worker_process import GUARANTEES, Feeder, account

if TYPE_CHECKING:
    from worker_process import MakeLine

PARTITIONS = 6


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_workers_share_the_partitions_as_they_come_and_go(line: MakeLine, guarantee: str) -> None:
    """Three have two each; a clean step up or down, in the middle of a rebalance too, costs no event and no order."""
    works = line(partitions=PARTITIONS, guarantee=guarantee)
    with Feeder(works, PARTITIONS, per_second=1000) as feeder:
        first = works.run()
        first.wait_for("partitions-assigned", partitions=list(range(PARTITIONS)))
        second = works.run()
        third = works.run()
        for worker in (first, second, third):
            worker.until(lambda worker=worker: len(worker.said("partitions-assigned")[-1]["partitions"]) == 2)
        feeder.wait_more()

        assert third.stop() == 0
        for worker in (first, second):
            worker.until(lambda worker=worker: len(worker.said("partitions-assigned")[-1]["partitions"]) == 3)
        feeder.wait_more()

        moves = len(first.said("partitions-revoked"))
        other = works.start()
        first.until(lambda: len(first.said("partitions-revoked")) > moves)
        assert first.stop() == 0  # while the partitions move
        other.wait_for("partitions-assigned")
        feeder.wait_more()
        assert second.stop() == 0
        other.wait_for("partitions-assigned", partitions=list(range(PARTITIONS)))
    works.settle()

    assert account(works, feeder.count) == (0, 0, 0)
    assert not any("Traceback" in worker.text for worker in works.workers)
