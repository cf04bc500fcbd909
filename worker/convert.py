"""``worker convert``: events in lines to records in lines, by the very rule that the worker runs. No Kafka.

What lives here: cutting a stream into lines, and counting what became of them. What must not: the rule. Memory does
not grow with the input, only with its longest line; a slow pipe gets its answers as its lines come.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, Protocol

import orjson

from worker.rule.event import Fields
from worker.rule.message import Dropped
from worker.rule.outcome import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from worker.rule.event import Headers
    from worker.rule.outcome import Outcome
    from worker.settings import Settings

_CHUNK = 1 << 20


class Source(Protocol):
    """What is read: ``sys.stdin.buffer``."""

    def read1(self, size: int, /) -> bytes:
        """Read what is there, at most this much; nothing is the end."""


class Target(Protocol):
    """What is written: ``sys.stdout.buffer``."""

    def write(self, data: bytes, /) -> object:
        """Write it all."""

    def flush(self) -> object:
        """Let the reader have it."""


class Line(NamedTuple):
    """A line as the record it stands for; lines have no headers."""

    value: bytes
    headers: Headers = ()


class Summary:
    """What became of the events, counted."""

    def __init__(self) -> None:
        """Start with none."""
        self._messages = 0
        self._roles_replaced = 0
        self._dropped: Counter[str] = Counter()
        self._dead_letters: Counter[str] = Counter()

    def count(self, outcomes: Sequence[Outcome], roles_replaced: int) -> None:
        """Count a batch."""
        self._roles_replaced += roles_replaced
        for outcome in outcomes:
            if isinstance(outcome, bytes):
                self._messages += 1
            elif isinstance(outcome, Dropped):
                self._dropped[outcome.reason] += 1
            else:
                self._dead_letters[outcome.reason] += 1

    def __str__(self) -> str:
        """Say it in one line."""
        events = self._messages + self._dropped.total() + self._dead_letters.total()
        replaced = Counter({"with the role replaced": self._roles_replaced} if self._roles_replaced else {})
        return (
            f"{_many(events, 'event')}: {_many(self._messages, 'message')}{_parts(replaced)}, "
            f"{self._dropped.total()} dropped{_parts(self._dropped)}, "
            f"{_many(self._dead_letters.total(), 'dead letter')}{_parts(self._dead_letters)}"
        )


def convert(settings: Settings, source: Source, target: Target, *, explain: bool = False) -> Summary:
    """Write what becomes of each line: messages alone, or with ``explain`` a JSON line for each."""
    fields = Fields(settings.text_field, settings.role_field, settings.tool_call_id_field)
    rule = Rule(settings.input_format, settings.output_format, fields)
    summary = Summary()
    for lines in batches(source):
        outcomes = rule.outcomes(lines)
        summary.count(outcomes.each, len(outcomes.roles_replaced))
        if explain:
            written = [_explained(rule, line) for line in lines]
        else:
            written = [outcome for outcome in outcomes.each if isinstance(outcome, bytes)]
        if written:
            target.write(b"\n".join(written) + b"\n")
            target.flush()
    return summary


def batches(source: Source, size: int = _CHUNK) -> Iterator[list[Line]]:
    """Cut at each line feed and nowhere else, as all other line breaks may be an event's text."""
    begun: list[bytes] = []  # pieces of one line; joined once, so that a line of any length costs its length
    while chunk := source.read1(size):
        *whole, rest = chunk.split(b"\n")
        if whole:
            whole[0] = b"".join((*begun, whole[0]))
            begun.clear()
            yield [Line(value) for value in whole]
        if rest:
            begun.append(rest)
    if begun:
        yield [Line(b"".join(begun))]


def _explained(rule: Rule, line: Line) -> bytes:
    explanation = rule.explain(line.value, line.headers)
    why = {"outcome": explanation.outcome, "reason": explanation.reason, "rule": explanation.rule}
    # The record goes in as it is: read and written again, its numbers could change.
    return orjson.dumps(why).removesuffix(b"}") + b',"record":' + (explanation.record or b"null") + b"}"


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _parts(counts: Counter[str]) -> str:
    parts = ", ".join(f"{count} {reason}" for reason, count in sorted(counts.items()))
    return f" ({parts})" if parts else ""
