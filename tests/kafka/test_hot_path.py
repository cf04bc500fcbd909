"""The hot path, guarded without a clock: how many Python functions are called for a batch of plain events.

A Python call costs as much as a tenth of all that is done for an event, so one more layer per record shows in every
figure. What is done once a batch may call what it likes.
"""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any

import pytest
from bench import events, pipeline

from worker.rule.outcome import Rule

if TYPE_CHECKING:
    from types import FrameType

_EVENTS = 1_000
_PER_BATCH = 200


class _Calls:
    """Counts the Python functions that are entered, generators' every step included."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, _frame: FrameType, event: str, _argument: Any) -> None:  # noqa: ANN401 - sys.setprofile's own
        self.count += event == "call"


@pytest.fixture
def data() -> bytes:
    """Give a fetched batch of plain events."""
    shape = events.plain_shape(_EVENTS)
    return pipeline.fetched([shape.make(number) for number in range(_EVENTS)])


async def test_no_python_function_is_called_for_each_plain_event(data: bytes) -> None:
    """From the fetched bytes to the record batch, a thousand events cost a batch's calls and none of their own."""
    sink, rule, calls = pipeline.Sink(), Rule(), _Calls()
    writer = pipeline.writer(sink)
    before = sys.getprofile()
    sys.setprofile(calls)
    try:
        batch = pipeline.take(data)
        await pipeline.write(writer, batch, rule.outcomes(batch.records))
    finally:
        sys.setprofile(before)
    assert [builder._relative_offset for builder in sink.builders] == [_EVENTS]
    assert calls.count < _PER_BATCH


def test_few_objects_are_kept_of_each_event(data: bytes) -> None:
    """The collector looks at every tracked object that waits for the broker: two for an event are enough."""
    rule = Rule()
    gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        batch = pipeline.take(data)
        outcomes = rule.outcomes(batch.records)
        tracked = len(gc.get_objects()) - before
    finally:
        gc.enable()
    assert len(outcomes.each) == _EVENTS
    assert tracked < 2 * _EVENTS + _PER_BATCH
