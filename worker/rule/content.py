"""Any JSON value to text: the coercion that MEM-16 (2) names.

Only the coercion: whether a text is content, and whose, is for ``message.py``. Strings pass unchanged, code point for
code point; whitespace is content. None stands for a text that can't be written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.rule.lexemes import UnwritableError, write

if TYPE_CHECKING:
    from worker.rule.lexemes import Json

# As deep as orjson reads: whatever arrives by the fast way can be written too.
MAX_DEPTH = 1024


def to_text(value: Json) -> str | None:
    """Cast a scalar, serialize an array or object; None where that has no UTF-8 or is nested too deep."""
    if isinstance(value, (list, dict)):
        try:
            return write(value, MAX_DEPTH)
        except UnwritableError:
            return None
    return scalar_to_text(value)


def scalar_to_text(value: bool | str | None) -> str | None:  # noqa: FBT001 (a JSON value, not a flag)
    """Null is no text, a boolean its JSON word, a number its source digits; None where that has no UTF-8."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    try:
        value.encode()  # refuses a lone surrogate
    except UnicodeEncodeError:
        return None
    return str(value)  # of a Number: its digits, as plain a string as any
