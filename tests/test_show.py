"""Payloads on a terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker import show


@given(st.binary())
def test_nothing_that_a_terminal_obeys(data: bytes) -> None:
    """Whatever the bytes are, only printable characters come out."""
    assert show.payload(data, full=True).isprintable()


@given(st.text(st.characters()))
def test_lone_surrogates_and_controls_are_spelt_out(text: str) -> None:
    """A header's name may hold what no terminal can show."""
    assert show.escaped(text).isprintable()


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (None, "null"),
        (b"", ""),
        ('{"text":"h\u00e9\\n"}'.encode(), '{"text":"hé\\n"}'),
        (b"a\x1b[2Jb\n\r\t\x7f", "a\\x1b[2Jb\\n\\r\\t\\x7f"),
        ("\u202e\u2028\U000e0001".encode(), "\\u202e\\u2028\\U000e0001"),
        (b"\xff\x00", "ff 00"),
    ],
)
def test_payload(data: bytes | None, shown: str) -> None:
    """Text as text, its odd characters as escapes, all else as hex."""
    assert show.payload(data) == shown


def test_long_payloads_are_cut() -> None:
    """Unless all is asked for."""
    assert show.payload(b"x" * 3000) == "x" * 2000 + "… (1,000 more characters: --full shows them)"
    assert show.payload(b"x" * 3000, full=True) == "x" * 3000


@pytest.mark.parametrize(
    ("timestamp", "shown"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1001, "1970-01-01T00:00:01.001Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (2**62, str(2**62)),
    ],
)
def test_when(timestamp: int, shown: str) -> None:
    """To the millisecond, in UTC; what is no date is a number."""
    assert show.when(timestamp) == shown
