"""Health and readiness as decisions: what is seen goes in, no clock and no Kafka."""

from __future__ import annotations

from typing import Any

import pytest

from worker.observe.health import GROUP_PATIENCE, Health, Partition, Progress, Stage, Stalled, judge, why_not_ready

LIMIT = 60.0


def seen(confirmed: int = 5, readable_end: int | None = 9, **more: Any) -> Partition:  # noqa: ANN401 - its fields
    """A partition with four events to read, unless told otherwise."""
    return Partition(**{"number": 3, "opened": True, "confirmed": confirmed, "readable_end": readable_end, **more})


#: What is seen second by second, and for how long the partition stands still in the end (None: nothing to do).
STORIES: dict[str, tuple[list[tuple[float, Partition]], float | None]] = {
    "idle": ([(0, seen(9)), (100, seen(9))], None),
    "idle, then a first event": ([(0, seen(9)), (1000, seen(9, 10))], 0),
    "stands still": ([(0, seen()), (30, seen()), (70, seen())], 70),
    "more events come, none moves": ([(0, seen()), (30, seen(5, 1000)), (70, seen(5, 2000))], 70),
    "moves a little": ([(0, seen()), (59, seen(6)), (70, seen(6))], 11),
    "was idle between": ([(0, seen(5)), (1, seen(9)), (1000, seen(9, 10)), (1010, seen(9, 10))], 10),
    "not fetched yet": ([(0, seen(5, None)), (70, seen(5, None))], None),
    "can't be opened": ([(0, seen(-1, None, opened=False)), (70, seen(-1, None, opened=False))], 70),
    "was opened": ([(0, seen(-1, None, opened=False)), (59, seen()), (70, seen())], 11),
    "begins the same again and again": ([(0, seen()), (35, seen(in_flight=4)), (70, seen())], 70),
    "ends in an open transaction": ([(0, seen(9, 9, log_end=20, lag=11)), (70, seen(9, 9, log_end=20, lag=11))], None),
}


@pytest.mark.parametrize("story", STORIES)
def test_progress(story: str) -> None:
    """A partition stands still from when it is first seen with something to do to when its confirmed offset moves."""
    progress = Progress()
    looks, expected = STORIES[story]
    still: dict[int, float] = {}
    for now, partition in looks:
        still = progress.look(now, [partition])
    assert still == ({} if expected is None else {3: expected})


def test_progress_of_what_is_given_up() -> None:
    """A partition that went and came back starts anew: someone else may have had it."""
    progress = Progress()
    progress.look(0, [seen()])
    progress.look(50, [])
    assert progress.look(70, [seen()]) == {3: 0}


@pytest.mark.parametrize(
    ("still", "silent", "longest_step", "expected"),
    [
        ({}, 0.0, 0.0, Health()),
        ({3: 59.9}, 59.9, 0.0, Health()),
        ({3: 60.0}, 0.0, 0.0, Health((Stalled(3, 4, 60.0),))),
        ({}, 60.0, 0.0, Health((), 60.0)),
        ({3: 61.0}, 61.0, 0.0, Health((Stalled(3, 4, 61.0),), 61.0)),
        ({3: 61.0}, 0.0, 120.0, Health()),
        ({3: 120.0}, 0.0, 120.0, Health((Stalled(3, 4, 120.0),))),
        ({3: 1.0}, 61.0, 120.0, Health((), 61.0)),
        ({4: 99.0}, 0.0, 0.0, Health()),
    ],
)
def test_judge(still: dict[int, float], silent: float, longest_step: float, expected: Health) -> None:
    """A stall or a silence past the limit is unhealthy; a long commit interval is no stall."""
    health = judge([seen(lag=4)], still, silent, stall_timeout=LIMIT, longest_step=longest_step)
    assert health == expected
    assert health.healthy is (expected == Health())


def test_reasons() -> None:
    """What is wrong is said in words, each thing in a line."""
    assert Health((Stalled(3, 4, 61.4), Stalled(5, None, 90.0)), 75.0).reasons == [
        "no broker has answered for 75 s",
        "partition 3 has not moved for 61 s, lag 4",
        "partition 5 has not moved for 90 s",
    ]
    many = Health(tuple(Stalled(number, None, 61) for number in range(100)))
    assert many.reasons[-2:] == ["partition 4 has not moved for 61 s", "and 95 more partitions"]


@pytest.mark.parametrize(
    ("stage", "joined", "silent", "partitions", "expected"),
    [
        (Stage.WAITING, False, 0.0, [], "waiting for the broker"),
        (Stage.WAITING, False, 99.0, [], "waiting for the broker"),
        (Stage.RUNNING, False, 0.0, [], "joining the group"),
        (Stage.RUNNING, True, 0.0, [], None),
        (Stage.RUNNING, True, 0.0, [seen()], None),
        (Stage.RUNNING, True, GROUP_PATIENCE, [seen()], "no broker has answered for 10 s"),
        (Stage.RUNNING, True, 0.0, [seen(opened=False), seen(opened=False, number=4)], "opening partition 3, 4"),
        (Stage.RUNNING, True, 0.0, [seen(opened=False), seen(trouble="no")], "partition 3 can't write: no"),
        (Stage.STOPPING, True, 0.0, [seen()], "stopping"),
        (Stage.STOPPING, False, 99.0, [], "stopping"),
    ],
)
def test_why_not_ready(
    stage: Stage,
    silent: float,
    partitions: list[Partition],
    expected: str | None,
    *,
    joined: bool,
) -> None:
    """Ready is who is in the group, heard by a broker and able to write; a spare is; nobody is once a stop begins."""
    assert why_not_ready(stage, "the broker", partitions, silent, joined=joined) == expected
