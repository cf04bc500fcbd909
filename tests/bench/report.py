"""What a run found, as tables for a terminal and a chart for the README: strings from rows, nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Sequence

Row = dict[str, Any]
Column = tuple[str, str, str]
"""Heading, key of the row, format."""

_RATE: Column = ("events/s", "per_second", ",.0f")
_CPU: Column = ("CPU µs/event", "cpu_us", ".2f")
_PEAK: Column = ("peak MB", "peak_mb", ".0f")
_NAME: Column = ("", "name", "")
TABLES: dict[str, tuple[str, tuple[Column, ...]]] = {
    "contenders": (
        "The same work, one process each",
        (
            _NAME,
            _RATE,
            _CPU,
            _PEAK,
            ("rate to the worker's", "rate_to_worker", ".3f"),
            ("CPU to the worker's", "cpu_to_worker", ".2f"),
        ),
    ),
    "latency": (
        "From sent to seen by a reader, ms",
        (
            _NAME,
            ("events/s", "rate", ",d"),
            ("p50", "p50", ".1f"),
            ("p99", "p99", ".1f"),
            ("p99.9", "p999", ".1f"),
            ("max", "max", ".1f"),
            ("producer late: p50", "pacing_p50", ".1f"),
            ("p99", "pacing_p99", ".1f"),
        ),
    ),
    "shapes": (
        "Other events, worker at least once",
        (
            _NAME,
            ("bytes", "bytes", ",d"),
            _RATE,
            _CPU,
            ("CPU µs/KB", "cpu_us_per_kb", ".2f"),
            _PEAK,
            ("to the plain one", "ratio", ".2f"),
        ),
    ),
    "start": ("From process start to the first message, a group of one", (_NAME, ("seconds", "seconds", ".2f"))),
    "processes": ("Processes", (_NAME, _RATE, _CPU, _PEAK)),
    "memory": (
        "Memory",
        (
            _NAME,
            ("events", "events", ",d"),
            ("seconds", "seconds", ",.0f"),
            _PEAK,
            ("first half, MB", "first_half_mb", ".0f"),
            ("second half, MB", "second_half_mb", ".0f"),
        ),
    ),
    "stages": ("Where the CPU goes, µs per event", (_NAME, ("µs", "us", ".3f"))),
}


def markdown(section: str, rows: Sequence[Row]) -> str:
    """Write one section's table."""
    title, columns = TABLES[section]
    lines = [[heading for heading, _, _ in columns]]
    lines += [[format(row[key], form) for _, key, form in columns] for row in rows]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    lines.insert(1, ["-" * width for width in widths])
    body = "\n".join(
        "| "
        + " | ".join(
            cell.rjust(w) if at else cell.ljust(w) for at, (cell, w) in enumerate(zip(line, widths, strict=True))
        )
        + " |"
        for line in lines
    )
    return f"{title}\n\n{body}\n"


_LINE, _BAR, _LEFT, _WIDTH, _TOP = 30, 18, 230, 860, 64
_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#24292f}.small{font-size:11px;fill:#57606a}.bar{fill:#8c959f}"
    ".own{fill:#0969da}@media(prefers-color-scheme:dark){text{fill:#e6edf3}.small{fill:#9198a1}.bar{fill:#6e7681}"
    ".own{fill:#4493f8}}"
)


def chart(result: Row) -> str:
    """Draw the first table: how many events a second each contender did, with CPU and memory beside the bar."""
    rows = sorted(result["contenders"], key=lambda row: -row["per_second"])
    longest = rows[0]["per_second"]
    height = _TOP + _LINE * len(rows) + 12
    room = _WIDTH - _LEFT - 250
    machine = result["machine"]
    note = f"{machine['cpu']}, {machine['cpus']} CPUs with the broker on them; {result['date'][:10]}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">',
        f"<title>Events a second, by contender</title><style>{_STYLE}</style>",
        '<text x="10" y="24">Events a second, one process each, the same work</text>',
        f'<text class="small" x="10" y="44">{escape(note)}</text>',
    ]
    for number, row in enumerate(rows):
        y = _TOP + number * _LINE
        width = max(1.0, row["per_second"] / longest * room)
        kind = "own" if row["name"].startswith("worker") else "bar"
        figures = f"{row['per_second']:,.0f}/s · {row['cpu_us']:.2f} µs CPU · {row['peak_mb']:.0f} MB"
        parts += [
            f'<text x="{_LEFT - 10}" y="{y + 14}" text-anchor="end">{escape(row["name"])}</text>',
            f'<rect class="{kind}" x="{_LEFT}" y="{y}" width="{width:.1f}" height="{_BAR}" rx="2"/>',
            f'<text class="small" x="{_LEFT + width + 8:.1f}" y="{y + 14}">{figures}</text>',
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"
