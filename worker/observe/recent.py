"""The last warnings and errors of ours, for the status page.

Taken from the log itself, so the page says what the log says: event names and fields, never a payload.
"""

from __future__ import annotations

import logging
from collections import deque
from datetime import UTC, datetime
from typing import NamedTuple

from worker.observe.logs import OURS

KEPT = 10
_LONGEST = 300


class Entry(NamedTuple):
    """One event of the log."""

    at: datetime
    level: str
    event: str
    fields: str


class Recent(logging.Handler):
    """Keeps the last ones."""

    def __init__(self) -> None:
        """Start with none."""
        super().__init__(logging.WARNING)
        self._entries: deque[Entry] = deque(maxlen=KEPT)

    def entries(self) -> list[Entry]:
        """The newest first."""
        return list(reversed(self._entries))

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one; structlog hands its fields over as the message."""
        said = record.msg if isinstance(record.msg, dict) else {"event": record.getMessage()}
        fields = " ".join(f"{name}={value}" for name, value in said.items() if name not in {"event", "exc_info"})
        self._entries.append(
            Entry(
                datetime.fromtimestamp(record.created, UTC),
                record.levelname.lower(),
                str(said.get("event")),
                fields if len(fields) <= _LONGEST else fields[: _LONGEST - 1] + "…",
            )
        )

    def attach(self) -> None:
        """Listen to our own loggers."""
        logging.getLogger(OURS).addHandler(self)

    def detach(self) -> None:
        """Listen no more."""
        logging.getLogger(OURS).removeHandler(self)
