"""Trying again: a pause that grows a little, and a line in the log every so often instead of one each time."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from worker.errors import WorkerError

if TYPE_CHECKING:
    from structlog.stdlib import BoundLogger

#: Seconds between the lines about one trouble that lasts.
SAY_EVERY = 10.0
_FIRST, _LONGEST = 0.25, 2.0


class Retry:
    """The pauses between the attempts of one call that the cluster refuses or does not answer.

    The longest pause is short, because a broker that comes back should not have to wait for us; each one is cut by
    chance, so that many workers don't come back in step.
    """

    def __init__(self, log: BoundLogger, event: str, **fields: object) -> None:
        """Say ``event`` with ``fields`` while it lasts."""
        self._log = log.bind(**fields)
        self._event = event
        self._pause = _FIRST
        self._said_at: float | None = None
        self._attempts = 0

    async def pause(self, error: BaseException) -> None:
        """Wait before the next attempt; ``error`` is what the last one failed with."""
        self._attempts += 1
        now = asyncio.get_running_loop().time()
        if self._said_at is None or now - self._said_at >= SAY_EVERY:
            self._said_at = now
            self._log.warning(self._event, error=describe(error), attempts=self._attempts)
        await asyncio.sleep(self._pause * random.uniform(0.5, 1.0))  # noqa: S311 - not a secret
        self._pause = min(self._pause * 2, _LONGEST)

    def reset(self) -> None:
        """It worked: the next trouble is a new one."""
        self._pause = _FIRST
        self._attempts = 0


def describe(error: BaseException) -> str:
    """An error in one line, without aiokafka's square brackets and class repetitions."""
    text = " ".join(str(error).split())
    if isinstance(error, WorkerError):
        return text
    name = type(error).__name__
    return text if text.startswith(name) else f"{name}: {text}".removesuffix(": ")
