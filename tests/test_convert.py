"""``worker convert``: lines in, records out, each event counted once."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import pytest

from worker.convert import batches, convert
from worker.settings import from_mapping

if TYPE_CHECKING:
    from collections.abc import Mapping


def converted(lines: bytes, settings: Mapping[str, str] | None = None, *, explain: bool = False) -> tuple[bytes, str]:
    """Give what comes out, and the summary."""
    target = io.BytesIO()
    summary = convert(from_mapping(settings or {}), io.BytesIO(lines), target, explain=explain)
    return target.getvalue(), str(summary)


EVENTS = b'{"text":"hi","role":"boss"}\n\n{"text":1.10}\n{"text":""}\n[1]\n\xff\n{"text":"x","role":"tool"}'


def test_records() -> None:
    """Messages come out a line each, in order; the last line needs no line feed."""
    out, summary = converted(EVENTS, {"OUTPUT_FORMAT": "message"})
    assert out == (b'{"role":"user","content":"hi"}\n{"role":"user","content":"1.10"}\n{"role":"tool","content":"x"}\n')
    assert summary == (
        "7 events: 3 messages (1 with the role replaced), 1 dropped (1 empty), "
        "3 dead letters (1 invalid-json, 1 invalid-utf8, 1 not-an-object)"
    )


def test_explain() -> None:
    """Each event has a JSON line with its fate, the reason, the part of the rule, and the record as it would be."""
    out, summary = converted(EVENTS, explain=True)
    lines = [json.loads(line) for line in out.splitlines()]
    assert [(line["outcome"], line["reason"]) for line in lines] == [
        ("message", None),
        ("dead-letter", "invalid-json"),
        ("message", None),
        ("dropped", "empty"),
        ("dead-letter", "not-an-object"),
        ("dead-letter", "invalid-utf8"),
        ("message", None),
    ]
    assert all(list(line) == ["outcome", "reason", "rule", "record"] and line["rule"] for line in lines)
    message = {"role": "user", "content": "hi"}
    assert lines[0]["record"] == {"messages": [message], "message": message}
    assert lines[1]["record"] is None
    assert summary == converted(EVENTS)[1]


def test_text_format() -> None:
    """Only a line feed ends a line of text; every other break is the event's own."""
    out, summary = converted("a\r\n\nb\u2028c\x0b\n".encode(), {"INPUT_FORMAT": "text", "OUTPUT_FORMAT": "message"})
    assert [json.loads(line)["content"] for line in out.decode().removesuffix("\n").split("\n")] == [
        "a\r",
        "b\u2028c\x0b",
    ]
    assert summary == "3 events: 2 messages, 1 dropped (1 empty), 0 dead letters"


def test_field_names() -> None:
    """The names of the members are those of the settings."""
    out, _ = converted(b'{"t":"x","text":"y"}', {"TEXT_FIELD": "t", "OUTPUT_FORMAT": "message"})
    assert out == b'{"role":"user","content":"x"}\n'


def test_no_events() -> None:
    """Nothing in is nothing out."""
    assert converted(b"") == (b"", "0 events: 0 messages, 0 dropped, 0 dead letters")


@pytest.mark.parametrize("size", range(1, 12))
def test_batches(size: int) -> None:
    """Wherever the reads happen to cut, the lines are the same."""
    lines = [line.value for batch in batches(io.BytesIO(b"ab\n\nc\r\nlonger\nend"), size) for line in batch]
    assert lines == [b"ab", b"", b"c\r", b"longer", b"end"]
