"""What stands on a dead letter, and what is left of one that does not fit."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from faust.types import TP

from worker import __version__
from worker.kafka import dead_letters
from worker.rule.event import Unreadable

CAUSE = Unreadable("invalid-json", "line 1, column 2: a member name was expected")
PLACE = TP("events", 3)
OURS = [
    ("__streams.errors.exception", b"worker.invalid-json"),
    ("__streams.errors.message", b"line 1, column 2: a member name was expected"),
    ("__streams.errors.topic", b"events"),
    ("__streams.errors.partition", b"3"),
    ("__streams.errors.offset", b"42"),
    ("__worker.errors.reason", b"invalid-json"),
    ("__worker.errors.group", b"the-group"),
    ("__worker.errors.version", __version__.encode()),
    ("__worker.errors.attempt", b"1"),
]


class Record(NamedTuple):
    """An input record."""

    headers: list[tuple[str, bytes | None]]
    key: bytes | None = b"\xff"
    value: bytes | None = b"{\xff"
    offset: int = 42
    timestamp: int = 1001


def build(record: Record) -> dead_letters.DeadLetter:
    """The dead letter of a record."""
    return dead_letters.build(record, PLACE, CAUSE, "the-group")


def test_the_event_is_kept_and_our_headers_follow_its_own() -> None:
    """Key, value, timestamp and headers are the event's, byte for byte."""
    own: list[tuple[str, bytes | None]] = [("b", b"\xff"), ("a", None), ("b", b""), ("__worker.other", b"kept")]

    assert build(Record(own)) == dead_letters.DeadLetter(1001, b"\xff", b"{\xff", [*own, *OURS])


def test_headers_of_our_names_are_replaced() -> None:
    """An event that was a dead letter before says only where it died last."""
    before: list[tuple[str, bytes | None]] = [(name, b"old") for name in sorted(dead_letters.OURS)]

    letter = build(Record([("a", b"1"), *before]))

    assert letter.headers == [("a", b"1"), *OURS]


@pytest.mark.parametrize(
    ("headers", "attempt"),
    [
        ([], b"1"),
        ([b"1"], b"2"),
        ([b"7", b"2"], b"3"),
        ([None], b"1"),
        ([b""], b"1"),
        ([b"two"], b"1"),
        ([b"-1"], b"1"),
        ([b"\xff"], b"1"),
        ([b"\xb2"], b"1"),
        ([b"1_0"], b"1"),
        ([b"009"], b"10"),
        ([b"9" * 5000], b"1"),
    ],
)
def test_the_attempt_is_one_more_than_the_event_came_with(headers: list[bytes | None], attempt: bytes) -> None:
    """The last such header speaks; one that is no number, or an absurd one, is as if absent."""
    letter = build(Record([(dead_letters.ATTEMPT, value) for value in headers]))

    assert [value for name, value in letter.headers if name == dead_letters.ATTEMPT] == [attempt]


def test_without_its_value_it_says_how_large_that_was() -> None:
    """All else stays."""
    letter = build(Record([("a", b"1")], value=b"x" * 12345))

    assert letter.without_value() == letter._replace(
        value=None, headers=[*letter.headers, (dead_letters.VALUE_SIZE, b"12345")]
    )


def test_at_its_shortest_it_has_our_headers_only() -> None:
    """Where the event's own key and headers do not fit either."""
    letter = build(Record([("a", b"1")])).without_value().bare()

    assert letter == dead_letters.DeadLetter(1001, None, None, [*OURS, (dead_letters.VALUE_SIZE, b"2")])


def test_every_header_we_write_is_one_we_replace() -> None:
    """Else a replayed dead letter would gather them."""
    assert {name for name, _ in build(Record([])).without_value().headers} == dead_letters.OURS
