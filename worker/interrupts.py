"""Ctrl-C at a moment when it would leave a child process behind that nobody knows of."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_INTERRUPTS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait for the end of the block, then raise ``KeyboardInterrupt``.

    Not by a signal mask, which a child would inherit. In a thread there is nothing to hold: signals reach the main one.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {number: signal.signal(number, lambda number, _: came.append(number)) for number in _INTERRUPTS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt
