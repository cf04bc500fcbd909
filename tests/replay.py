"""The vectors, ready to replay.

``vectors/rule.jsonl`` is ours: a name, the rule or standard it stands for, a value (text, or base64 where it is no
UTF-8, or null for a tombstone), headers when the text format is meant, and what must come of it.

``vectors/cases.jsonl`` retells public bug reports of people who move events and chat messages for a living, each with
an input of our own: ``id`` groups the lines of one story, ``n`` counts them, ``why`` says what is shown, ``debatable``
that another answer could be defended.
"""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import Any, NamedTuple

_VECTORS = Path(__file__).parent / "vectors"


class Record(NamedTuple):
    """As much of a Kafka record as the rule looks at."""

    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Vector(NamedTuple):
    """One record and its right outcome; what is None was not promised."""

    name: str
    rule: str
    in_text_format: bool
    record: Record
    expect: str
    reason: str | None
    message: dict[str, str] | None
    role_replaced: bool | None


def load() -> list[Vector]:
    """Read both files."""
    rows = [json.loads(line) for name in ("rule", "cases") for line in _lines(name)]
    return [_vector(row) for row in rows]


def _lines(name: str) -> list[str]:
    # Not splitlines(): the vectors hold separators that it would cut at.
    return [line for line in (_VECTORS / f"{name}.jsonl").read_text("utf-8").split("\n") if line]


def _vector(row: dict[str, Any]) -> Vector:
    return Vector(
        name=row.get("name") or f"{row['id']}-{row['n']}",
        rule=row.get("rule", ""),
        in_text_format="headers" in row,
        record=Record(_value(row), tuple((name, _header(value)) for name, value in row.get("headers", ()))),
        expect="dropped" if row["expect"] == "drop" else row["expect"],
        reason=row.get("reason"),
        message=row.get("message"),
        role_replaced=row.get("role_replaced"),
    )


def _value(row: dict[str, Any]) -> bytes | None:
    if "value_b64" in row:
        return b64decode(row["value_b64"])
    return None if row["value"] is None else row["value"].encode()


def _header(value: str | dict[str, str] | None) -> bytes | None:
    if isinstance(value, dict):
        return b64decode(value["base64"])
    return None if value is None else value.encode()
