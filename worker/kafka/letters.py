"""A dead letter read back: what its headers say, and the event that it was.

The other direction of ``dead_letters.build``. Anyone may write to a topic, so nothing in a header is trusted: what is
missing or no number is None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from worker.kafka.dead_letters import ATTEMPT, OURS, VALUE_SIZE

if TYPE_CHECKING:
    from worker.kafka.dead_letters import Headers
    from worker.kafka.reader import Found

#: No offset, partition or attempt has more digits; ``int`` of thousands of them raises.
_DIGITS = 19


class Letter(NamedTuple):
    """One dead letter, as it lies in its topic."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    says: dict[str, str]
    """Our headers by the last word of their name: ``reason``, ``message``, ``topic``, ``value-size`` …"""

    @property
    def reason(self) -> str:
        """Why it is one."""
        return self.says.get("reason", "unknown")

    @property
    def attempt(self) -> int:
        """How often the event has been tried: 1 for a dead letter that was never replayed."""
        return max(self._number("attempt") or 1, 1)

    @property
    def source(self) -> int | None:
        """The input partition it came from."""
        return self._number("partition")

    @property
    def has_value(self) -> bool:
        """Whether the event's value is still there: one that did not fit was left out."""
        return self.value is not None

    @property
    def event_headers(self) -> Headers:
        """The event's own headers."""
        return [header for header in self.headers if header[0] not in OURS]

    def _number(self, name: str) -> int | None:
        text = self.says.get(name, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else None


class Filter(NamedTuple):
    """Which dead letters a person asks for; times are the events' own, in milliseconds."""

    reasons: frozenset[str] = frozenset()
    since: int | None = None
    until: int | None = None
    first: int = 0
    last: int | None = None

    def matches(self, letter: Letter) -> bool:
        """Whether this one is asked for."""
        return (
            (not self.reasons or letter.reason in self.reasons)
            and (self.since is None or letter.timestamp >= self.since)
            and (self.until is None or letter.timestamp < self.until)
        )

    def bounds(self, start: int, end: int) -> tuple[int, int]:
        """Of the offsets that a partition has, those to look at."""
        start = max(start, self.first)
        return start, max(start, end if self.last is None else min(end, self.last + 1))


def read(record: Found) -> Letter:
    """Read a record of the dead-letter topic; the last of several headers of one name counts."""
    headers = record.headers
    says = {
        _word(name): value.decode(errors="replace") for name, value in headers if name in OURS and value is not None
    }
    return Letter(record.partition, record.offset, record.timestamp, record.key, record.value, headers, says)


def _word(name: str) -> str:
    return name.rpartition(".")[2]


class Terms(NamedTuple):
    """What an event must meet to be sent back."""

    topic: str
    partitions: int
    max_attempts: int
    oldest: int
    """Older events the input topic may delete before anyone reads them."""


def refusal(letter: Letter, terms: Terms) -> str | None:
    """Why this one can't be sent back; None if it can."""
    says = letter.says
    size = says.get(_word(VALUE_SIZE))
    causes = (
        ("reason" not in says, "not a dead letter of a worker: it has no reason"),
        (says.get("topic") != terms.topic, f"it came from topic {says.get('topic')}, not from {terms.topic}"),
        (not letter.has_value, f"its value ({size} bytes) did not fit and was not kept" if size else "it has no value"),
        (
            letter.source is None or letter.source >= terms.partitions,
            f"{terms.topic} has no partition {says.get('partition')}",
        ),
        (
            letter.attempt >= terms.max_attempts,
            f"tried {letter.attempt} times already; --max-attempts is {terms.max_attempts}",
        ),
        (
            letter.timestamp < terms.oldest,
            f"older than {terms.topic} keeps (retention.ms): raise that, or run a worker and use --even-expired",
        ),
    )
    return next((why for holds, why in causes if holds), None)


def event(letter: Letter) -> Headers:
    """The headers of the event as it is sent back: its own, and how often it was tried (the worker counts on)."""
    return [*letter.event_headers, (ATTEMPT, str(letter.attempt).encode())]


def has_odd_names(headers: Headers) -> bool:
    """Whether a header's name is not UTF-8; then only ``odd_names.OddBatchBuilder`` can write it."""
    return any("\udc80" <= character <= "\udcff" for name, _ in headers for character in name)
