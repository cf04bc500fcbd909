"""What a dead letter says for itself, and what of it is remembered once it was sent back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.kafka import letters
from worker.kafka.letters import Filter, Letter, Terms
from worker.kafka.reader import Found
from worker.kafka.replayed import Replayed

TERMS = Terms("events", 4, max_attempts=3, oldest=1000)
HEADERS: list[tuple[str, bytes | None]] = [
    ("own", b"\xff"),
    ("__streams.errors.topic", b"events"),
    ("__streams.errors.partition", b"3"),
    ("__worker.errors.reason", b"invalid-json"),
    ("__worker.errors.attempt", b"2"),
    ("own", None),
]


def letter(value: bytes | None = b"v", timestamp: int = 1000, **says: bytes) -> Letter:
    """A dead letter with some of its headers changed."""
    changed = {name.replace("_", "-"): text for name, text in says.items()}
    headers = [(name, changed.pop(name.rpartition(".")[2], text)) for name, text in HEADERS]
    headers += [(f"__worker.errors.{name}", text) for name, text in changed.items()]
    return letters.read(Found(0, 7, timestamp, 0, b"k", value, headers))


def test_read() -> None:
    """Where it came from, how often it was tried, and the event's own headers in order."""
    read = letter()
    assert (read.source, read.attempt, read.reason, read.has_value) == (3, 2, "invalid-json", True)
    assert read.event_headers == [("own", b"\xff"), ("own", None)]


@pytest.mark.parametrize("digits", [b"9" * 5000, b"-1", b"1.5", b"", "٣".encode(), b"\xff"])
def test_a_header_may_say_anything(digits: bytes) -> None:
    """What is no number counts as not said."""
    assert letter(attempt=digits).attempt == 1
    assert letter(partition=digits).source is None


def test_event() -> None:
    """It goes back with its own headers and the number of times it was tried: the worker adds one."""
    assert letters.event(letter()) == [("own", b"\xff"), ("own", None), ("__worker.errors.attempt", b"2")]


@pytest.mark.parametrize(
    ("read", "why"),
    [
        (letter(), None),
        (letter(topic=b"others"), "it came from topic others, not from events"),
        (letter(partition=b"4"), "events has no partition 4"),
        (letter(None, value_size=b"2000000"), "its value (2000000 bytes) did not fit and was not kept"),
        (letter(None), "it has no value"),
        (letter(attempt=b"3"), "tried 3 times already; --max-attempts is 3"),
        (
            letter(timestamp=999),
            "older than events keeps (retention.ms): raise that, or run a worker and use --even-expired",
        ),
        (letters.read(Found(0, 0, 0, 0, None, b"x", [])), "not a dead letter of a worker: it has no reason"),
    ],
)
def test_refusal(read: Letter, why: str | None) -> None:
    """What can't be sent back is refused, with the cause."""
    assert letters.refusal(read, TERMS) == why


def test_filter() -> None:
    """Reason and time choose; a time is the first in, or the first out."""
    assert Filter().matches(letter())
    assert Filter(frozenset({"invalid-json"}), since=1000, until=1001).matches(letter())
    assert not Filter(frozenset({"too-large"})).matches(letter())
    assert not Filter(since=1001).matches(letter())
    assert not Filter(until=1000).matches(letter())


def test_bounds() -> None:
    """Offsets that are asked for, as far as they are there."""
    assert Filter().bounds(5, 9) == (5, 9)
    assert Filter(first=6, last=7).bounds(5, 9) == (6, 8)
    assert Filter(first=1, last=2).bounds(5, 9) == (5, 5)
    assert Filter(first=20).bounds(5, 9) == (20, 20)


# --- the memory -------------------------------------------------------------------------------------------------------


def one(offset: int, reason: str = "invalid-json", attempt: int = 1) -> Letter:
    """A dead letter that only has a place and a class."""
    return Letter(0, offset, 0, None, b"", [], {"reason": reason, "attempt": str(attempt)})


def test_one_interval_for_a_class_whatever_lies_between() -> None:
    """Letters of other classes don't break it."""
    memory = Replayed()
    for offset in range(0, 100, 2):
        memory.sent(one(offset))
        memory.passed(one(offset + 1, "too-large"))
    assert str(memory) == "invalid-json/1:0-99"
    assert memory.has(one(50))
    assert not memory.has(one(51, "too-large"))
    assert not memory.has(one(50, attempt=2))


def test_a_letter_passed_over_stays_to_be_sent() -> None:
    """An interval ends before it."""
    memory = Replayed()
    memory.sent(one(0))
    memory.passed(one(1))
    memory.sent(one(2))
    memory.sent(one(3))
    assert str(memory) == "invalid-json/1:0-1,2-4"
    again = Replayed(str(memory))
    again.sent(one(0))
    again.sent(one(1))
    again.sent(one(2))
    assert str(again) == "invalid-json/1:0-4"


@pytest.mark.parametrize("metadata", ["", "generation=7", "a/1:x", "\0", "a/1:5-", "A/1:0-5"])
def test_metadata_of_others_is_no_memory(metadata: str) -> None:
    """What it did not write it does not read."""
    assert str(Replayed(metadata)) == ""


@given(
    st.lists(st.tuples(st.sampled_from(["invalid-json", "too-large", "ODD"]), st.integers(1, 3)), max_size=30),
    st.lists(st.sets(st.integers(0, 29)), max_size=4),
)
def test_remembers_what_was_sent_and_nothing_else(classes: list[tuple[str, int]], runs: list[set[int]]) -> None:
    """Over any runs, with the memory written and read between them."""
    known = [one(offset, *each) for offset, each in enumerate(classes)]
    sent: set[int] = set()
    text = ""
    for run in runs:
        memory = Replayed(text)
        for each in known:
            if each.offset in run:
                memory.sent(each)
                sent.add(each.offset)
            else:
                memory.passed(each)
        text = str(memory)
    assert {each.offset for each in known if Replayed(text).has(each)} == sent
