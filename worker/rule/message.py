"""MEM-16: an event becomes one message, or is dropped; a message becomes bytes.

The rule is that of the FlowDrop Workflow Specification 1.0-draft (https://flowdrop.io/spec/rules/gr-mem/mem-16,
CC BY 4.0); the number of its part stands beside the branch that obeys it. Nothing here knows what a record is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import orjson

from worker.rule.content import scalar_to_text, to_text

if TYPE_CHECKING:
    from worker.rule.event import Event
    from worker.rule.lexemes import Json

DropReason = Literal["tombstone", "empty", "unserializable"]
OutputFormat = Literal["both", "message", "messages"]

ROLES = frozenset({"user", "assistant", "system", "tool"})

# Every character with Unicode's property White_Space. Not ``str.strip()``'s own idea of it: that takes the separators
# U+001C to U+001F too, which are no white space to Unicode.
WHITE_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)

# MEM-16 (1): the same row twice, in a one-element list and alone. What stands before, between and after the rows.
_AROUND: dict[OutputFormat, tuple[bytes, ...]] = {
    "both": (b'{"messages":[', b'],"message":', b"}"),
    "message": (b"", b""),
    "messages": (b"[", b"]"),
}


class Dropped(NamedTuple):
    """An event that the rule calls empty: it goes nowhere, and is counted by this reason."""

    reason: DropReason


class Message(NamedTuple):
    """One message, and whether the role it came with had to give way."""

    role: str
    content: str
    tool_call_id: str | None
    role_replaced: bool


def convert(event: Event) -> Message | Dropped:
    """Apply MEM-16 to one event."""
    content = to_text(event.text)  # MEM-16 (2)
    if content is None:  # MEM-16 (2): unserializable content is empty, and (6) then holds
        return Dropped("unserializable")
    if not content:  # MEM-16 (6): no empty turn, a tool row without content included
        return Dropped("empty")
    role = event.role
    if isinstance(role, str) and role in ROLES:
        # MEM-16 (5): on any other role an id names no pairing
        tool_call_id = _tool_call_id(event.tool_call_id) if role == "tool" else None
        return Message(role, content, tool_call_id, role_replaced=False)
    # MEM-16 (4): any other value, an absent one included, is user
    return Message("user", content, None, role_replaced=role is not None)


def encode(message: Message, output_format: OutputFormat) -> bytes:
    """Write a message as compact UTF-8 JSON, its id last and only when there is one."""
    row = {"role": message.role, "content": message.content}
    if message.tool_call_id is not None:
        row["tool_call_id"] = message.tool_call_id
    # The row is written once and stands between the pieces as often as the format has it.
    return orjson.dumps(row).join(_AROUND[output_format])


def _tool_call_id(value: Json) -> str | None:
    """MEM-16 (5): trimmed, omitted when blank; so is what is no scalar or has no UTF-8."""
    if isinstance(value, (list, dict)):
        return None
    return (scalar_to_text(value) or "").strip(WHITE_SPACE) or None
