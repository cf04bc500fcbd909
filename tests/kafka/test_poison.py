"""Bad events in numbers, and a dead-letter topic that takes none for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kafka_help import create_topic, denied
from worker_process import GUARANTEES, bad, event, numbers, reason

if TYPE_CHECKING:
    from worker_process import MakeLine


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_five_thousand_bad_events_between_good_ones(line: MakeLine, guarantee: str) -> None:
    """Each outcome in order, by the same consumer, with a handful of lines in the log."""
    works = line(guarantee=guarantee)
    kinds = [event] * 10 + [bad] + [event] * 10 + [bad] * 5000 + [event] * 10
    works.feed(kind(number) for number, kind in enumerate(kinds))
    worker = works.run()
    works.settle()

    outputs, dead = works.outputs(), works.dead_letters()
    assert numbers(outputs) == [number for number, kind in enumerate(kinds) if kind is event]
    assert numbers(dead) == [number for number, kind in enumerate(kinds) if kind is bad]
    assert {reason(record) for record in dead} == {"invalid-json"}
    assert [record.value for record in dead] == [bad(number).value for number in numbers(dead)]
    assert len(worker.said("partitions-assigned")) == 1
    assert len(worker.text.splitlines()) < 20


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_an_unwritable_dead_letter_topic_stops_its_partition_only(own_line: MakeLine, guarantee: str) -> None:
    """The partition waits, commits nothing past the bad event, and recovers by itself; its neighbour never noticed."""
    works = own_line(partitions=2, guarantee=guarantee)
    create_topic(works.bootstrap, works.output, 2)
    create_topic(works.bootstrap, works.dead, 2)
    worker = works.run()
    with denied(works.bootstrap, "TOPIC", works.dead, "WRITE"):
        works.feed([event(0), bad(1), event(2)])
        worker.wait_for("write-failed" if guarantee == "at-least-once" else "session-over")
        for start in range(100, 150, 10):  # while the other partition tries in vain
            works.feed([event(number, partition=1) for number in range(start, start + 10)])
            worker.until(lambda: works.position()[0][1] == works.position()[1][1])
        assert works.position()[0][0] <= 1
        assert works.dead_letters() == []
    works.settle()

    outputs = works.outputs()
    assert numbers(works.dead_letters()) == [1]
    assert [number for number in numbers(outputs) if number >= 100] == list(range(100, 150))
    assert [number for number in numbers(outputs) if number < 100] == [0, 2]
    assert len(worker.text.splitlines()) < 40
    assert worker.stop() == 0


def test_a_stop_that_cannot_finish_says_what_is_left(own_line: MakeLine) -> None:
    """Past the time-out it exits 1, nothing is committed that was not stored, and the next start does it."""
    works = own_line(shutdown_timeout="4s")
    create_topic(works.bootstrap, works.output)
    create_topic(works.bootstrap, works.dead)
    worker = works.run()
    with denied(works.bootstrap, "TOPIC", works.dead, "WRITE"):
        works.feed([event(0), bad(1), event(2)])
        worker.wait_for("write-failed")
        assert worker.stop(seconds=6) == 1
        said = [line for line in worker.said("partition-cut-off") if line["left_in_flight"]]
        assert said, worker.text
        assert "Traceback" not in worker.text
    works.run()
    works.settle()

    assert set(numbers(works.outputs())) == {0, 2}
    assert numbers(works.dead_letters()) == [1]
