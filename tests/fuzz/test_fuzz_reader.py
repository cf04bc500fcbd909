"""The record reader under a fuzzer: whatever the bytes, one outcome each, soon, and not a word of them in the log."""

from __future__ import annotations

import json
import logging
import random
import time
from typing import TYPE_CHECKING, get_args

import pytest
from fuzz.mutation import LONG, MARKER, SHORT, budget, mutated
from replay import Record, load

from worker.rule.event import Unreadable, UnreadableReason
from worker.rule.message import Dropped, DropReason
from worker.rule.outcome import InputFormat, Rule

if TYPE_CHECKING:
    from worker.rule.outcome import Outcome

#: A batch of records of some kilobytes takes milliseconds; a busy machine may take its time.
_HANG_SECONDS = 5.0
_BATCH = 50
_MOST_BYTES = 20_000
_KEYS = {"role", "content", "tool_call_id"}
_ROLES = {"user", "assistant", "system", "tool"}

_SEEDS = [
    *(vector.record.value for vector in load() if vector.record.value is not None and len(vector.record.value) < 5000),
    json.dumps({"text": MARKER, "role": "tool", "tool_call_id": MARKER}).encode(),
    json.dumps({"text": {MARKER: [1, None, {"a": [MARKER]}]}, "role": MARKER}).encode(),
    b'{"text":' + b"[" * 1200 + b"]" * 1200 + b"}",
    b'{"text":' + b"9" * 400 + b"}",
]
_TOKENS = [
    *(b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\\u", b"\\ud83d", b"\\udca9", b"\\u0000", b"\\/", b"null"),
    *(
        b"true",
        b"false",
        b"NaN",
        b"-Infinity",
        b"-0",
        b"1e400",
        b"0.1",
        b"00",
        b"1e",
        b"-",
        b"//",
        b"/**/",
        b" ",
        b"\t",
    ),
    *(b'"text"', b'"role"', b'"tool_call_id"', b'"text":', b'"tool"', b"[" * 1100, b"]" * 1100, b'{"a":' * 1100),
    *(b"\xff\xfe", b"\x1f\x8b", b"\x00\x00\x00\x00\x01", b"\xe2\x80\xa8", MARKER.encode()),
]


@pytest.mark.parametrize("input_format", get_args(InputFormat))
def test_any_bytes(input_format: InputFormat, caplog: pytest.LogCaptureFixture) -> None:
    """No crash, no hang, no payload in the log; the batch and the explanation agree about each record."""
    _attack(input_format, SHORT, 1, caplog)


@pytest.mark.fuzz
@pytest.mark.timeout(LONG)
@pytest.mark.parametrize("input_format", get_args(InputFormat))
def test_any_bytes_for_long(input_format: InputFormat, caplog: pytest.LogCaptureFixture) -> None:
    """The same for five minutes each, by a new seed."""
    _attack(input_format, LONG / 2, time.time_ns(), caplog)


def _attack(input_format: InputFormat, seconds: float, seed: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    chance = random.Random(seed)  # noqa: S311 - to be repeated, not to be secret
    rule = Rule(input_format)
    count = 0
    for count in budget(seconds):
        records = [_record(chance) for _ in range(_BATCH)]
        begun = time.monotonic()
        each = rule.outcomes(records).each
        assert time.monotonic() - begun < _HANG_SECONDS, f"seed {seed}, batch {count}"
        assert len(each) == len(records)
        for record, outcome in zip(records, each, strict=True):
            _is_right(rule, record, outcome)
    assert not caplog.records
    print(f"seed {seed}: {(count + 1) * _BATCH} records as {input_format}")  # noqa: T201 - the report of the long form


def _record(chance: random.Random) -> Record:
    value = chance.randbytes(chance.randrange(200)) if chance.random() < 0.05 else mutated(chance, _SEEDS, _TOKENS)
    names = ("role", "tool_call_id", "other")
    headers = tuple(
        (chance.choice(names), chance.choice((None, b"tool", b"user", b" ", mutated(chance, _SEEDS, _TOKENS)[:50])))
        for _ in range(chance.randrange(4))
    )
    return Record(value[:_MOST_BYTES], headers)


def _is_right(rule: Rule, record: Record, outcome: Outcome) -> None:
    explained = rule.explain(record.value, record.headers)
    if isinstance(outcome, bytes):
        document = json.loads(outcome)
        assert document["messages"] == [document["message"]]
        assert document["message"].keys() <= _KEYS
        assert document["message"]["role"] in _ROLES
        assert document["message"]["content"]
        assert (explained.outcome, explained.record) == ("message", outcome)
    elif isinstance(outcome, Dropped):
        assert outcome.reason in get_args(DropReason)
        assert (explained.outcome, explained.reason) == ("dropped", outcome.reason)
    else:
        assert isinstance(outcome, Unreadable)
        assert outcome.reason in get_args(UnreadableReason)
        assert MARKER not in outcome.detail
        assert (explained.outcome, explained.reason) == ("dead-letter", outcome.reason)
