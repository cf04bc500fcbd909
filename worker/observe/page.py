"""The status page: a view in, HTML out. No clock, no Kafka.

All of it is made here, once for a browser with JavaScript and without; the script in ``page.html`` fetches the page
again and swaps its middle, so there is nothing to keep in step. Every value goes through ``_text``: names of topics and
groups are set by people, and an error's words come from a broker.
"""

from __future__ import annotations

import base64
import hashlib
import html
import itertools
import re
from datetime import UTC, datetime
from importlib import resources
from string import Template
from typing import TYPE_CHECKING

from worker import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from worker.observe.health import Partition
    from worker.observe.metrics import Metrics
    from worker.observe.recent import Entry
    from worker.observe.status import Sample, View
    from worker.settings import Settings

_SOURCE = resources.files(__package__).joinpath("page.html").read_text(encoding="utf-8")
_PAGE = Template(_SOURCE)

#: Seconds over which the rates in words are taken: long enough for a commit interval not to show.
RATE_SECONDS = 10.0
_WIDTH, _HEIGHT = 300, 60
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def _hash_of(tag: str) -> str:
    found = re.search(rf"<{tag}>(.*?)</{tag}>", _SOURCE, re.DOTALL)
    digest = hashlib.sha256((found[1] if found else "").encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


#: The page may run its own script and style, fetch itself, and nothing else.
CONTENT_SECURITY_POLICY = "; ".join(
    [
        "default-src 'none'",
        f"script-src {_hash_of('script')}",
        f"style-src {_hash_of('style')}",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
)


def render(view: View, settings: Settings, metrics: Metrics) -> str:
    """Write the page."""
    counts = metrics.outcomes()
    return _PAGE.substitute(
        title=_text(f"{settings.group_id}: {'ready' if view.not_ready is None else 'not ready'}"),
        group=_text(settings.group_id),
        input=_text(settings.input_topic),
        output=_text(settings.output_topic),
        dead_letter_topic=_text(settings.dead_letter_topic),
        states=_states(view),
        charts=_charts(view),
        partitions=_partitions(view),
        reasons=_outcomes(counts.produced, counts.dropped, counts.dead_lettered),
        recent=_recent(view.recent),
        facts=_facts(view, settings),
    )


def rates(samples: Sequence[Sample]) -> list[tuple[float, dict[int, float]]]:
    """Events a second by partition, for each step between two samples: when it ended, and the rates.

    A partition that comes starts at zero, and one that goes takes its count with it: neither is a negative rate.
    """
    steps = []
    for before, after in itertools.pairwise(samples):
        seconds = after.at - before.at
        if seconds > 0:
            moved = {number: max(0, now - before.consumed.get(number, 0)) for number, now in after.consumed.items()}
            steps.append((after.at, {number: events / seconds for number, events in moved.items()}))
    return steps


def _now_rates(samples: Sequence[Sample]) -> dict[int, float]:
    """Events a second by partition, over the last seconds."""
    lately = [sample for sample in samples if sample.at >= samples[-1].at - RATE_SECONDS] if samples else []
    if len(lately) < 2:  # noqa: PLR2004 - a rate needs two
        return {}
    return rates([lately[0], lately[-1]])[0][1]


def _states(view: View) -> str:
    ready = view.not_ready is None
    reasons = view.health.reasons
    return _state(
        "READY" if ready else "NOT READY", [view.not_ready or "in the group and able to write"], ready
    ) + _state(
        "HEALTHY" if not reasons else "UNHEALTHY", reasons or ["nothing stands still that should move"], not reasons
    )


def _state(word: str, lines: Sequence[str], good: bool) -> str:  # noqa: FBT001 - which of the two it is
    said = "".join(f"<p>{_text(line)}</p>" for line in lines)
    return f'<section class="state{"" if good else " bad"}"><strong>{word}</strong>{said}</section>'


def _charts(view: View) -> str:
    per_second = [sum(step.values()) for _, step in rates(view.samples)]
    lags = [float(sample.lag) for sample in view.samples]
    lag = sum(partition.lag or 0 for partition in view.partitions)
    now = sum(_now_rates(view.samples).values())
    seconds = view.samples[-1].at - view.samples[0].at if view.samples else 0.0
    return _chart("Events a second", now, per_second, seconds) + _chart("Lag", lag, lags, seconds)


def _chart(name: str, now: float, values: Sequence[float], seconds: float) -> str:
    top = max([now, *values])
    line = _line(values, top)
    drawn = f'<path class="area" d="{line} V{_HEIGHT} H0 Z"/><path class="rule" d="{line}"/>' if line else ""
    return (
        f"<section><h2>{name}</h2>"
        f'<p class="figure">{_rate(now)} <small>now, highest {_rate(top)}</small></p>'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" role="img"'
        f' aria-label="{name}, the last {_duration(seconds)}">{drawn}</svg>'
        f'<p class="axis"><span>{_duration(seconds)} ago</span><span>now</span></p></section>'
    )


def _line(values: Sequence[float], top: float) -> str:
    if len(values) < 2:  # noqa: PLR2004 - a line needs two
        return ""
    step = _WIDTH / (len(values) - 1)
    room = _HEIGHT - 4  # so that the line at the top is not cut
    points = (
        f"{index * step:.1f},{_HEIGHT - (value / top * room if top else 0.0):.1f}" for index, value in enumerate(values)
    )
    return "M" + " L".join(points)


def _partitions(view: View) -> str:
    if not view.partitions:
        spare = view.not_ready is None
        return f'<p class="none">{"None: a spare, ready to take some over." if spare else "None yet."}</p>'
    now = _now_rates(view.samples)
    stalled = {each.partition for each in view.health.stalled}
    rows = "".join(
        _partition(each, now.get(each.number, 0.0), stalled=each.number in stalled) for each in view.partitions
    )
    lag = sum(each.lag or 0 for each in view.partitions)
    in_flight = sum(each.in_flight for each in view.partitions)
    total = _rate(sum(now.get(each.number, 0.0) for each in view.partitions))
    head = "".join(
        f'<th scope="col">{name}</th>' for name in ("partition", "state", "lag", "in flight", "events/s", "offset")
    )
    return (
        f'<div class="scroll"><table class="partitions"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody>'
        f"<tfoot><tr><td>all</td><td></td><td>{lag:,}</td><td>{in_flight:,}</td><td>{total}</td><td></td></tr></tfoot>"
        "</table></div>"
    )


def _partition(each: Partition, rate: float, *, stalled: bool) -> str:
    word = _text(_word(each, stalled=stalled))
    lag = "-" if each.lag is None else f"{each.lag:,}"
    offset = f"{each.confirmed:,}" if each.opened else "-"
    return (
        f"<tr><td>{each.number}</td><td>{word}</td><td>{lag}</td><td>{each.in_flight:,}</td>"
        f"<td>{_rate(rate)}</td><td>{offset}</td></tr>"
    )


def _word(each: Partition, *, stalled: bool) -> str:
    if each.trouble is not None:
        return "can't write"
    if stalled:
        return "stalled"
    if not each.opened:
        return "opening"
    if each.should_move or each.in_flight:
        return "working"
    if each.log_end is not None and each.log_end > each.confirmed:
        return "held by an open transaction"  # someone else's: what lies behind it can't be read before it ends
    return "idle" if not each.lag else "committing"


def _outcomes(produced: int, dropped: Mapping[str, int], dead: Mapping[str, int]) -> str:
    note = "since this worker got its partitions"
    return (
        f'<section><h2>Messages</h2><p class="figure">{produced:,}</p><p class="none">{note}</p></section>'
        + _reasons("Dropped", dropped)
        + _reasons("Dead letters", dead)
    )


def _reasons(name: str, counts: Mapping[str, int]) -> str:
    rows = "".join(
        f"<tr><td>{_text(reason)}</td><td>{count:,}</td></tr>"
        for reason, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    )
    table = f"<table><tbody>{rows}</tbody></table>" if rows else '<p class="none">none</p>'
    return f'<section><h2>{name}</h2><p class="figure">{sum(counts.values()):,}</p>{table}</section>'


def _recent(entries: Sequence[Entry]) -> str:
    if not entries:
        return '<p class="none">none</p>'
    items = "".join(
        f'<li><time datetime="{entry.at.isoformat()}">{entry.at:%Y-%m-%d %H:%M:%S}</time>'
        f' <span class="level {_text(entry.level)}">{_text(entry.level.upper())}</span>'
        f" {_text(entry.event)} <code>{_text(entry.fields)}</code></li>"
        for entry in entries
    )
    return f'<ul class="log">{items}</ul>'


def _facts(view: View, settings: Settings) -> str:
    facts = [
        f"worker {__version__}",
        settings.guarantee,
        f"group {settings.group_id}" + (f", instance {settings.instance_id}" if settings.instance_id else ""),
        f"brokers {', '.join(settings.brokers)}",
        f"up {_duration(view.uptime)}",
        f"seen {datetime.fromtimestamp(view.at, UTC):%Y-%m-%d %H:%M:%S} UTC",
    ]
    return " &middot; ".join(_text(fact) for fact in facts)


def _rate(value: float) -> str:
    return f"{value:,.1f}" if value < 10 and value % 1 else f"{value:,.0f}"  # noqa: PLR2004 - small ones need a decimal


def _duration(seconds: float) -> str:
    whole = int(seconds)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE} s"
    if whole < _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"
    return f"{whole // _DAY} d {whole % _DAY // _HOUR} h"


def _text(value: str) -> str:
    return html.escape(value)
