"""Dead letters: the input's key, value, headers, timestamp and partition, and why it is here.

Header names are Kafka Streams' own (KIP-1034) where it has one. A payload never stands in a header.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from worker import __version__

if TYPE_CHECKING:
    from faust.types import TP

    from worker.kafka.records import Record
    from worker.rule.event import Unreadable

ATTEMPT = "__worker.errors.attempt"
REASON = "__worker.errors.reason"
VALUE_SIZE = "__worker.errors.value-size"
OURS = frozenset(
    {
        "__streams.errors.exception",
        "__streams.errors.message",
        "__streams.errors.topic",
        "__streams.errors.partition",
        "__streams.errors.offset",
        REASON,
        "__worker.errors.group",
        "__worker.errors.version",
        ATTEMPT,
        VALUE_SIZE,
    }
)

Headers = list[tuple[str, bytes | None]]


class DeadLetter(NamedTuple):
    """A record for the dead-letter topic."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    def without_value(self) -> DeadLetter:
        """The same with the value's size in its place, for a topic that it does not fit."""
        size = str(len(self.value or b"")).encode()
        return self._replace(value=None, headers=[*self.headers, (VALUE_SIZE, size)])

    def bare(self) -> DeadLetter:
        """Only our own headers, where even the event's key and headers do not fit."""
        return self._replace(key=None, headers=[header for header in self.headers if header[0] in OURS])


def build(record: Record, tp: TP, cause: Unreadable, group: str) -> DeadLetter:
    """Make the dead letter of one input record (contract, section 1)."""
    ours: dict[str, str] = {
        "__streams.errors.exception": f"worker.{cause.reason}",
        "__streams.errors.message": cause.detail,
        "__streams.errors.topic": tp.topic,
        "__streams.errors.partition": str(tp.partition),
        "__streams.errors.offset": str(record.offset),
        REASON: cause.reason,
        "__worker.errors.group": group,
        "__worker.errors.version": __version__,
        ATTEMPT: str(attempt_of(record.headers) + 1),
    }
    headers: Headers = [header for header in record.headers if header[0] not in OURS]
    headers += [(name, text.encode()) for name, text in ours.items()]
    return DeadLetter(record.timestamp, record.key, record.value, headers)


def attempt_of(headers: Headers) -> int:
    """How often the event has been a dead letter before; 0 if it says nothing we understand."""
    for name, value in reversed(headers):
        if name == ATTEMPT:
            return int(value) if value is not None and len(value) < 10 and value.isdigit() else 0  # noqa: PLR2004
    return 0
