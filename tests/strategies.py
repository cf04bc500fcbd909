"""What Hypothesis draws from: JSON values with their digits, their many spellings, and bytes that are nearly JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hypothesis import strategies as st
from replay import Record

from worker.rule.lexemes import Json, Number

if TYPE_CHECKING:
    from collections.abc import Callable

numbers = st.from_regex(
    r"-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,4})?([eE][+-]?[0-9]{1,3})?", fullmatch=True, alphabet="0123456789-+.eE"
).map(Number)
# Strings that have UTF-8, and those that may hold a lone surrogate.
texts = st.text(st.characters(exclude_categories=["Cs"]))
any_texts = st.text(st.characters())
scalars = st.none() | st.booleans() | numbers | texts


def _values(leaves: st.SearchStrategy[Json], names: st.SearchStrategy[str]) -> st.SearchStrategy[Json]:
    return st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4), max_leaves=12
    )


values = _values(scalars, texts)
any_values = _values(scalars | any_texts, any_texts)
containers = values.filter(lambda value: isinstance(value, (list, dict)))

roles = st.sampled_from(["user", "assistant", "system", "tool", "tool", "User", "critic", ""]) | any_values
_members = {"text": any_texts | any_values, "role": roles, "tool_call_id": any_texts | any_values, "other": any_values}
events = st.fixed_dictionaries({}, optional=_members)


@st.composite
def spelled(draw: st.DrawFn, values: st.SearchStrategy[Json]) -> tuple[Json, str]:
    """Draw a value and one of the ways to write it: blanks anywhere, characters escaped or not."""
    value = draw(values)
    ascii_only = draw(st.booleans())
    blanks = st.text(" \t\n\r", max_size=2) if draw(st.booleans()) else st.just("")
    return value, _spell(value, lambda: draw(blanks), ascii_only=ascii_only)


def _spell(value: Json, blank: Callable[[], str], *, ascii_only: bool) -> str:
    def spell(inner: Json) -> str:
        return _spell(inner, blank, ascii_only=ascii_only)

    if isinstance(value, Number):
        text = str(value)
    elif isinstance(value, list):
        text = f"[{','.join(map(spell, value)) or blank()}]"
    elif isinstance(value, dict):
        text = f"{{{','.join(f'{spell(name)}:{spell(item)}' for name, item in value.items()) or blank()}}}"
    else:
        text = json.dumps(value, ensure_ascii=ascii_only)
        # A lone surrogate has no bytes; only its escape is JSON.
        text = json.dumps(value) if any("\ud800" <= character <= "\udfff" for character in text) else text
    return f"{blank()}{text}{blank()}"


documents = spelled(any_values).map(lambda drawn: drawn[1].encode())
event_documents = spelled(events).map(lambda drawn: drawn[1].encode())

_STRAY = [
    *(b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\", b"\\u", b"\\ud800", b"0", b"-", b".", b"e", b"1e999", b"NaN"),
    *(b"\x00", b"\x80", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b" ", b"\x0b", b"null", b"text", b"\xc2\xa0"),
]


@st.composite
def damaged(draw: st.DrawFn, documents: st.SearchStrategy[bytes]) -> bytes:
    """Draw bytes that were JSON before something was put in or taken out."""
    data = draw(documents)
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(data)))
        length = draw(st.integers(0, 2))
        data = data[:start] + draw(st.sampled_from([b"", *_STRAY])) + data[start + length :]
    return data


header_values = st.none() | st.binary(max_size=6) | st.sampled_from([b"user", b"tool", b"system", b"critic", b" id "])
headers = st.lists(st.tuples(st.sampled_from(["role", "tool_call_id", "trace"]), header_values), max_size=4).map(tuple)
record_values = st.one_of(
    st.none(),
    st.binary(max_size=20),
    documents,
    event_documents,
    event_documents,
    damaged(event_documents),
)
records = st.builds(Record, record_values, headers)
