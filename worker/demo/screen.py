"""How the demo looks: a table as wide as the terminal, progress that leaves no trace, events typed by a person.

What is shown goes to stdout; what is said on the way goes to stderr. Colour only helps: each word stands without it.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import time
import unicodedata
from contextlib import suppress
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from worker.demo.samples import Counts, Fate, Sample
    from worker.demo.stage import Stage

_MAX_WIDTH = 140
_MIN_WIDTH = 50
_MAX_LINES = 3  # of one cell
_MAX_VALUE = 1000  # bytes; what is larger is only named
_GAP = "  "
_COUNTS_INDENT = 20
_COLOURS = {"message": "green", "dropped": "yellow", "dead letter": "red"}
_CLEAR_LINE = "\r\x1b[2K"


class Screen:
    """The terminal, or whatever takes its place."""

    def __init__(self) -> None:
        """Look at what we write to."""
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")  # an emoji on a Latin-1 terminal is no reason to fail
        plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
        self._colour = sys.stdout.isatty() and not plain
        self._one_line = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._dirty = False
        self._width = max(_MIN_WIDTH, min(_MAX_WIDTH, shutil.get_terminal_size().columns))

    # --- said on the way ----------------------------------------------------------------------------------------------

    def progress(self, text: str) -> None:
        """Say what takes time: on a terminal in one line that is written over, else in a line of its own."""
        if self._one_line:
            sys.stderr.write(_CLEAR_LINE + shorten(text, self._width - 1))
            sys.stderr.flush()
            self._dirty = True
        else:
            self.say(text)

    def done(self) -> None:
        """Take the line of progress away."""
        if self._dirty:
            sys.stderr.write(_CLEAR_LINE)
            sys.stderr.flush()
            self._dirty = False

    def say(self, text: str) -> None:
        """Say something that stays."""
        self.done()
        click.echo(text, err=True)

    # --- shown --------------------------------------------------------------------------------------------------------

    def table(self, samples: list[Sample], fates: list[Fate]) -> None:
        """Show each event beside what became of it."""
        part = None
        left = (self._width - 2 * len(_GAP)) // 2
        right = self._width - left - 2 * len(_GAP)
        self._print(_GAP + f"{'Event':{left}}" + _GAP + "What became of it", bold=True)
        for sample, fate in zip(samples, fates, strict=True):
            if sample.part != part:
                part = sample.part
                self._print("")
                self._print(part, bold=True)
            self._row(self.event(sample.value), self.fate(fate), left, right, fate.kind)

    def counts(self, counts: Counts) -> None:
        """Show what the worker counted, and that it adds up."""
        self._print("")
        self._print("Counted by the worker (/metrics)", bold=True)
        dropped, dead = sum(counts.dropped.values()), sum(counts.dead_lettered.values())
        replaced = f"{counts.roles_replaced} with the role replaced by user" if counts.roles_replaced else ""
        self._print(f"{counts.consumed:5} events, each with one outcome:")
        for number, noun, kind, detail in (
            (counts.produced, "messages", "message", replaced),
            (dropped, "dropped", "dropped", _reasons(counts.dropped)),
            (dead, "dead letters", "dead letter", _reasons(counts.dead_lettered)),
        ):
            label = f"{number:5} " + self._styled(f"{noun:12}", kind) + _GAP
            for line in textwrap.wrap(detail, self._width - _COUNTS_INDENT, break_on_hyphens=False) or [""]:
                self._print((label + line).rstrip())
                label = " " * _COUNTS_INDENT

    def next_steps(self) -> None:
        """Say what to try next."""
        self._print("")
        self._print("Next", bold=True)
        self._print('  echo \'{"text":"hello","role":"operator"}\' | worker convert --explain')
        self._print("      one event, and which part of the rule decides; no Kafka needed")
        self._print("  worker demo --keep")
        self._print("      type events and see what becomes of them, or give it a file: < FILE")

    def invitation(self, stage: Stage) -> None:
        """Say what is up, and how to use it."""
        settings = stage.settings
        self._print("")
        self._print("Kafka and the worker stay up until Ctrl-C", bold=True)
        self._print(f"  status page  {stage.url}/")
        self._print(f"  broker       {','.join(settings.brokers)}")
        self._print(f"  topics       {settings.input_topic} -> {settings.output_topic}, {settings.dead_letter_topic}")
        if sys.stdin.isatty():
            self._print("")
            self._print('Type an event, such as {"text":"hello","role":"tool"}, and Enter.')

    def answer(self, value: bytes, fate: Fate) -> None:
        """Show what became of an event that was typed, or piped in."""
        self.done()
        event = "" if sys.stdin.isatty() else self.event(value) + "\n"
        self._print(event + "  -> " + self._styled(self.fate(fate), fate.kind))

    def lines(self) -> Iterator[bytes | None]:
        """Give each line of stdin; past its end, None twice a second."""
        asks = sys.stdin.isatty()
        if asks:
            with suppress(ImportError):  # where there is one: arrow keys and a history
                import readline  # noqa: F401, PLC0415 - importing it is what makes input() use it
        while (line := self._line(asks=asks)) is not None:
            if line:
                yield line
        while True:
            yield None
            time.sleep(0.5)

    def _line(self, *, asks: bool) -> bytes | None:
        if not asks:
            line = sys.stdin.buffer.readline()
            return line.removesuffix(b"\n") if line else None
        try:
            return input("event> ").encode(errors="surrogateescape")
        except EOFError:
            self._print("")
            return None

    # --- cells --------------------------------------------------------------------------------------------------------

    def event(self, value: bytes | None) -> str:
        """Give an event's value for people: printable, bytes that are no text escaped."""
        if value is None:
            return "(null value)"
        if len(value) > _MAX_VALUE:
            return f"{printable(value[:12])}... ({len(value):,} bytes)"
        return printable(value) or "(no bytes)"

    def fate(self, fate: Fate) -> str:
        """Give what became of an event in a line."""
        return printable(fate.text.encode()) if fate.kind == "message" else f"{fate.kind}: {fate.text}"

    def _row(self, event: str, outcome: str, left: int, right: int, kind: str) -> None:
        cells = wrap(event, left), wrap(outcome, right)
        for number in range(max(map(len, cells))):
            first, second = (cell[number] if number < len(cell) else "" for cell in cells)
            padding = " " * (left - width(first))
            self._print((_GAP + first + padding + _GAP + self._styled(second, kind)).rstrip())

    def _styled(self, text: str, kind: str) -> str:
        return click.style(text, fg=_COLOURS[kind]) if text else ""

    def _print(self, text: str, *, bold: bool = False) -> None:
        click.echo(click.style(text, bold=True) if bold else text, color=self._colour)


def printable(value: bytes) -> str:
    """Bytes as text that harms no terminal."""
    text = value.decode(errors="backslashreplace")
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def width(text: str) -> int:
    """How many columns a text takes: Chinese and emoji take two, an accent on its own none."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def shorten(text: str, columns: int) -> str:
    """Cut a text to so many columns, and show that it was cut."""
    if width(text) <= columns:
        return text
    while width(text) > columns - 3:
        text = text[:-1]
    return text + "..."


def wrap(text: str, columns: int) -> list[str]:
    """Break a text into lines of at most so many columns: behind a member or its name, else anywhere."""
    lines = [""]
    for char in text:
        if width(lines[-1] + char) > columns:
            line = lines[-1]
            at = max(line.rfind(',"'), line.rfind(':"')) + 1 or len(line)
            lines[-1:] = [line[:at], line[at:]]
        lines[-1] += char
    if len(lines) > _MAX_LINES:
        lines = [*lines[: _MAX_LINES - 1], shorten("".join(lines[_MAX_LINES - 1 :]), columns)]
    return lines


def _reasons(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in sorted(counts.items()))
