"""A batch of records to their outcomes: the one function the agent calls, and the one that explains itself.

Every record gets exactly one outcome, in order: the bytes of its message, ``Dropped`` or ``Unreadable``. Nothing here
reads or writes a topic. ``outcomes`` is the hot loop of the whole worker, so a plain or empty one is done in place; all
others take the one way through ``read_json`` or ``read_text``, ``convert`` and ``encode``.
"""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias

import orjson

from worker.rule.event import Event, Fields, Unreadable, read_json, read_text
from worker.rule.lexemes import Number
from worker.rule.message import Dropped, Message, convert, encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from worker.rule.event import Headers
    from worker.rule.message import OutputFormat

InputFormat = Literal["json", "text"]
Outcome: TypeAlias = "bytes | Dropped | Unreadable"


class Record(Protocol):
    """As much of a Kafka record as the rule looks at."""

    @property
    def value(self) -> bytes | None:
        """The value's bytes; None is a tombstone."""

    @property
    def headers(self) -> Headers:
        """Names and values in order; only read in text format."""


class Outcomes(NamedTuple):
    """One outcome for each record, in order; which of them became messages in another role, and which are none."""

    each: list[Outcome]
    roles_replaced: set[int]
    others: list[int]

    def messages(self) -> Sequence[int]:
        """The indices of the messages, in order."""
        if not self.others:
            return range(len(self.each))
        others = set(self.others)
        return [index for index in range(len(self.each)) if index not in others]

    def make_dead(self, index: int, cause: Unreadable) -> None:
        """Make a message that can't be stored a dead letter."""
        self.each[index] = cause
        self.roles_replaced.discard(index)
        if index not in self.others:
            bisect.insort(self.others, index)


class Explanation(NamedTuple):
    """One event's fate, for a person: which part of the rule decided, and the output value if there is one."""

    outcome: Literal["message", "dropped", "dead-letter"]
    reason: str | None
    rule: str
    record: bytes | None


class Rule:
    """MEM-16 for one input format, one output format and one set of names."""

    def __init__(
        self,
        input_format: InputFormat = "json",
        output_format: OutputFormat = "both",
        fields: Fields = Fields(),  # noqa: B008 (frozen: it can be shared)
    ) -> None:
        """Prepare what stands around a plain event's content, for each role."""
        self._input_format = input_format
        self._output_format = output_format
        self._fields = fields
        # Cut out of what encode writes, so that the two can't drift apart. A tool event may have an id: it is not here.
        self._frames: dict[str | None, tuple[bytes, ...]] = {
            role: tuple(encode(Message(role, "", None, role_replaced=False), output_format).split(b'""'))
            for role in ("user", "assistant", "system")
        }
        self._frames[None] = self._frames["user"]  # MEM-16 (4): absent is user

    def outcomes(self, records: Iterable[Record]) -> Outcomes:
        """Decide each record's fate, in order. Whatever its bytes are, the outcome is a value: nothing is raised."""
        outcomes = Outcomes([], set(), [])
        if self._input_format == "json":
            self._decide_json(records, outcomes)
        else:
            for record in records:
                self._settle(self._judge(record.value, record.headers)[1], outcomes)
        return outcomes

    def explain(self, value: bytes | None, headers: Headers) -> Explanation:
        """Say what becomes of one event, and by which part of the rule."""
        event, decision = self._judge(value, headers)
        if isinstance(decision, Unreadable):
            clause = _REFUSED_BY[decision.reason]
            return Explanation("dead-letter", decision.reason, f"{clause}: {decision.detail}", None)
        if isinstance(decision, Dropped):
            return Explanation("dropped", decision.reason, _DROPPED_BY[decision.reason], None)
        return Explanation("message", None, _made_by(event, decision), encode(decision, self._output_format))

    def _decide_json(self, records: Iterable[Record], outcomes: Outcomes) -> None:
        """Run the hot loop: names are local and the plain case comes first, each for a measured gain."""
        loads, dumps, refusal = orjson.loads, orjson.dumps, orjson.JSONDecodeError
        each, roles_replaced, others = outcomes
        append, frame_of, user_frame, empty = each.append, self._frames.get, self._frames["user"], Dropped("empty")
        text_name, role_name, tool_call_id_name = self._fields.text, self._fields.role, self._fields.tool_call_id
        for record in records:
            value = record.value
            try:
                event = loads(value)  # type: ignore[arg-type] # a tombstone is refused like any other, and looked at below
            except refusal:
                event = None
            if type(event) is dict:
                text = event.get(text_name)
                role = event.get(role_name)
                if type(text) is str and text and (role is None or type(role) is str):
                    frame = frame_of(role)
                    if frame is not None:
                        append(dumps(text).join(frame))
                        continue
                    if role != "tool":  # MEM-16 (4)
                        roles_replaced.add(len(each))
                        append(dumps(text).join(user_frame))
                        continue
                    tool_call_id = event.get(tool_call_id_name)
                    if tool_call_id is None or type(tool_call_id) is str:
                        self._settle(convert(Event(text, role, tool_call_id)), outcomes)
                        continue
                elif text is None or text == "":  # MEM-16 (6)
                    others.append(len(each))
                    append(empty)
                    continue
            self._settle(self._judge(value, ())[1], outcomes)

    def _judge(self, value: bytes | None, headers: Headers) -> tuple[Event, Message | Dropped | Unreadable]:
        """Decide about one record of any kind, and say what was read of it."""
        if value is None:
            return _NOTHING, Dropped("tombstone")
        if self._input_format == "json":
            event = read_json(value, self._fields)
        else:
            event = read_text(value, headers, self._fields)
        if isinstance(event, Unreadable):
            return _NOTHING, event
        return event, convert(event)

    def _settle(self, decision: Message | Dropped | Unreadable, outcomes: Outcomes) -> None:
        """Add the decision about the next record."""
        if isinstance(decision, Message):
            if decision.role_replaced:
                outcomes.roles_replaced.add(len(outcomes.each))
            outcomes.each.append(encode(decision, self._output_format))
        else:
            outcomes.others.append(len(outcomes.each))
            outcomes.each.append(decision)


_NOTHING = Event(None, None, None)
_REFUSED_BY = {
    "invalid-utf8": "RFC 3629 the value is UTF-8",
    "invalid-json": "RFC 8259 (2) the value is one JSON text",
    "not-an-object": "RFC 8259 (4) an event is an object",
}
_DROPPED_BY = {
    "tombstone": "MEM-16 (6) a null value carries no content",
    "empty": "MEM-16 (6) empty content emits nothing",
    "unserializable": "MEM-16 (2) unserializable content is empty; MEM-16 (6) empty content emits nothing",
}


def _made_by(event: Event, message: Message) -> str:
    """Name the parts that did something to the event; (1) alone made the plain ones."""
    parts = []
    if isinstance(event.text, (bool, Number)):
        parts.append("MEM-16 (2) scalar cast to text")
    if isinstance(event.text, (list, dict)):
        parts.append("MEM-16 (2) non-scalar serialized to text")
    if message.role_replaced:
        parts.append("MEM-16 (4) role replaced by user")
    if event.role is None:
        parts.append("MEM-16 (4) role absent, so user")
    if message.tool_call_id is not None:
        parts.append("MEM-16 (5) tool call id attached")
    elif event.tool_call_id is not None:
        why = "blank or no scalar, so omitted" if message.role == "tool" else "discarded: the role is not tool"
        parts.append(f"MEM-16 (5) tool call id {why}")
    return "; ".join(parts) or "MEM-16 (1) text and role became one message"
