"""What a contender is told, and the message it has to write: the same for all of them."""

from __future__ import annotations

import os
from typing import Any

BROKERS = os.environ["BENCH_BROKERS"]
GROUP = os.environ["BENCH_GROUP"]
INPUT = os.environ["BENCH_INPUT"]
OUTPUT = os.environ["BENCH_OUTPUT"]
COMMIT_SECONDS = 1.0

_ROLES = frozenset({"user", "assistant", "system", "tool"})


def message(event: dict[str, Any]) -> dict[str, Any] | None:
    """MEM-16 for events with string text, as one would write it in a hurry; None is a drop."""
    text = event.get("text")
    if not text:
        return None
    role = event.get("role")
    if role not in _ROLES:
        role = "user"
    row = {"role": role, "content": text}
    if role == "tool" and (tool_call_id := str(event.get("tool_call_id") or "").strip()):
        row["tool_call_id"] = tool_call_id
    return {"messages": [row], "message": row}
