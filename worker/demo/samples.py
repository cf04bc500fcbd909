"""The sample events: every branch of the rule, and what must become of each.

Written out by hand, not computed by the rule: the demo compares. Pure data; how it is fed and shown is not said here.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal, NamedTuple


class Fate(NamedTuple):
    """What became of an event: its message, or the reason why there is none."""

    kind: Literal["message", "dropped", "dead letter"]
    text: str


class Sample(NamedTuple):
    """An event's value, and what must become of it; ``part`` is the rule's part that it shows."""

    part: str
    value: bytes | None
    fate: Fate
    role_replaced: bool = False


class Counts(NamedTuple):
    """What ``/metrics`` says in sum over all partitions."""

    consumed: int
    produced: int
    dropped: dict[str, int]
    dead_lettered: dict[str, int]
    roles_replaced: int


def _message(text: str) -> Fate:
    return Fate("message", text)


def _dropped(reason: str) -> Fate:
    return Fate("dropped", reason)


def _dead(reason: str) -> Fate:
    return Fate("dead letter", reason)


_ROLE = "Role: one of four, anything else is user"
_ID = "Tool call id: on role tool only, trimmed"
_CONTENT = "Content: text as it is, all else as JSON text"
_EMPTY = "Empty: no message"
_UNREADABLE = "Not an event: kept as a dead letter"


def _json(part: str, event: str, fate: Fate, *, role_replaced: bool = False) -> Sample:
    return Sample(part, event.encode(), fate, role_replaced)


SAMPLES: list[Sample] = [
    _json(_ROLE, '{"text":"Be brief.","role":"system"}', _message('{"role":"system","content":"Be brief."}')),
    _json(_ROLE, '{"text":"Hello!","role":"user"}', _message('{"role":"user","content":"Hello!"}')),
    _json(_ROLE, '{"text":"Hi.","role":"assistant"}', _message('{"role":"assistant","content":"Hi."}')),
    _json(_ROLE, '{"text":"no role"}', _message('{"role":"user","content":"no role"}')),
    _json(
        _ROLE, '{"text":"hello","role":"operator"}', _message('{"role":"user","content":"hello"}'), role_replaced=True
    ),
    _json(_ROLE, '{"text":"hello","role":"Tool"}', _message('{"role":"user","content":"hello"}'), role_replaced=True),
    _json(
        _ID,
        '{"text":"21 °C","role":"tool","tool_call_id":" call_1 "}',
        _message('{"role":"tool","content":"21 °C","tool_call_id":"call_1"}'),
    ),
    _json(
        _ID,
        '{"text":"hello","role":"user","tool_call_id":"call_1"}',
        _message('{"role":"user","content":"hello"}'),
    ),
    _json(_ID, '{"text":"21 °C","role":"tool","tool_call_id":"  "}', _message('{"role":"tool","content":"21 °C"}')),
    _json(_CONTENT, '{"text":"  spaces stay  "}', _message('{"role":"user","content":"  spaces stay  "}')),
    _json(_CONTENT, '{"text":"你好 👋 \\ud83d\\ude80"}', _message('{"role":"user","content":"你好 👋 🚀"}')),
    _json(
        _CONTENT,
        '{"text":12345678901234567890123}',
        _message('{"role":"user","content":"12345678901234567890123"}'),
    ),
    _json(_CONTENT, '{"text":true}', _message('{"role":"user","content":"true"}')),
    _json(_CONTENT, '{"text": ["a", 1.10]}', _message('{"role":"user","content":"[\\"a\\",1.10]"}')),
    _json(
        _CONTENT,
        '{"text": {"city": "Zürich"}}',
        _message('{"role":"user","content":"{\\"city\\":\\"Zürich\\"}"}'),
    ),
    _json(_EMPTY, '{"text":""}', _dropped("empty")),
    _json(_EMPTY, '{"text":null,"role":"user"}', _dropped("empty")),
    _json(_EMPTY, '{"text":"","role":"tool","tool_call_id":"call_2"}', _dropped("empty")),
    _json(_EMPTY, '{"text":"half an emoji: \\ud83d"}', _dropped("unserializable")),
    Sample(_EMPTY, None, _dropped("tombstone")),
    _json(_UNREADABLE, '{"text":"cut o', _dead("invalid-json")),
    _json(_UNREADABLE, '"just a string"', _dead("not-an-object")),
    Sample(_UNREADABLE, b'{"text":"caf\xe9"}', _dead("invalid-utf8")),
]

#: Fits the input topic (1 MiB by default), but not the output topic that the worker makes for it: as JSON in a text,
#: and that twice, each quote has become eight bytes.
TOO_LARGE = Sample(_UNREADABLE, b'{"text":["' + 300_000 * rb"\"" + b'"]}', _dead("too-large"))


def counts_of(samples: list[Sample]) -> Counts:
    """What the worker must have counted after these."""
    fates = [sample.fate for sample in samples]
    return Counts(
        consumed=len(samples),
        produced=sum(fate.kind == "message" for fate in fates),
        dropped=dict(Counter(fate.text for fate in fates if fate.kind == "dropped")),
        dead_lettered=dict(Counter(fate.text for fate in fates if fate.kind == "dead letter")),
        roles_replaced=sum(sample.role_replaced for sample in samples),
    )
