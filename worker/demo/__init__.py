"""``worker demo``: sample events through a real Kafka and a real worker, each shown beside what became of it.

    samples.py   the events, and what must become of each
    stage.py     what they run on: Kafka, topics, the worker as a process; events in, fates out
    screen.py    how it looks

Nothing here converts an event: the worker is ``worker run`` in a process of its own, fates are read back from Kafka
and counts from ``/metrics``. What comes back is compared with ``samples.py``, so the demo also is a check: exit 0 says
that the whole chain works on this machine, 1 that it does not.
"""

from __future__ import annotations

import logging
import signal
from contextlib import ExitStack
from typing import TYPE_CHECKING

from worker.demo.samples import SAMPLES, TOO_LARGE, counts_of
from worker.demo.screen import Screen
from worker.demo.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Mapping


def main(*, keep: bool, environ: Mapping[str, str]) -> int:
    """Show the samples; with ``keep``, then take events from the terminal. Returns the exit code. Main thread only."""
    logging.getLogger().addHandler(logging.NullHandler())  # what the clients here log, we say ourselves or not at all
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # both end as KeyboardInterrupt
    screen = Screen()
    try:
        with ExitStack() as stack:
            stack.callback(screen.done)
            stage = stack.enter_context(Stage(environ, screen.progress))
            code = _show_samples(stage, screen)
            if keep:
                _take_events(stage, screen)
            else:
                screen.next_steps()
            stage.close()
            if keep:
                screen.say("worker: demo ended, all that it started is removed")
    except KeyboardInterrupt:
        screen.say("worker: demo stopped, all that it started is removed")
        return 1
    else:
        return code
    finally:
        signal.signal(signal.SIGTERM, before)


def _show_samples(stage: Stage, screen: Screen) -> int:
    """Feed the samples and compare: what came back, and what the worker counted."""
    samples = [*SAMPLES, TOO_LARGE] if stage.is_ours else SAMPLES  # another cluster may take larger records
    fates = stage.feed([sample.value for sample in samples], [sample.fate for sample in samples])
    counts = stage.counts()
    screen.done()
    screen.table(samples, fates)
    screen.counts(counts)
    wrong = [
        f"{screen.event(sample.value)}: expected {screen.fate(sample.fate)}, got {screen.fate(fate)}"
        for sample, fate in zip(samples, fates, strict=True)
        if fate != sample.fate
    ]
    expected = counts_of(samples)
    if counts != expected:
        wrong.append(f"/metrics: expected {expected}, got {counts}")
    for line in wrong:
        screen.say(f"worker: demo: {line}")
    return 1 if wrong else 0


def _take_events(stage: Stage, screen: Screen) -> None:
    """Take events, a line each, until Ctrl-C."""
    screen.invitation(stage)
    try:
        for line in screen.lines():
            stage.check()
            if line is not None:
                (fate,) = stage.feed([line])
                screen.answer(line, fate)
    except KeyboardInterrupt:
        screen.progress("stopping")
