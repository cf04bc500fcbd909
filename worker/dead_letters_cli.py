"""``worker dead-letters list | show | replay``: the options, and what a person sees. The work is done in ``kafka/``.

Times in filters and lists are the events' own timestamps, which a dead letter keeps; when it became one, Kafka does not
say. With ``--json`` each dead letter is a JSON object on a line of its own and the counts are the last line.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import re
import sys
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import click

from worker import settings, show
from worker.options import env_file
from worker.rule.event import UnreadableReason

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from worker.kafka.letters import Filter, Letter
    from worker.kafka.reader import Reader
    from worker.settings import Settings

_AGO = re.compile(r"([0-9]{1,9})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_RANGE = re.compile(r"([0-9]{1,18})(-([0-9]{1,18})?)?")
_KEY_SHOWN = 40


class _Moment(click.ParamType):
    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:  # noqa: ANN401
        """Milliseconds since 1970."""
        if isinstance(value, int):
            return value
        if match := _AGO.fullmatch(value):
            return int((time.time() - int(match[1]) * _SECONDS[match[2]]) * 1000)
        with contextlib.suppress(ValueError):
            moment = dt.datetime.fromisoformat(value)
            if moment.tzinfo is not None:
                return round(moment.timestamp() * 1000)
        must = "must be a time with its zone, such as 2026-01-31T12:00:00Z, or how long ago: 90s, 30m, 2h, 7d"
        raise click.BadParameter(must, ctx, param)


class _Offsets(click.ParamType):
    name = "range"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int | None]:  # noqa: ANN401
        """The first and the last."""
        if isinstance(value, tuple):
            return value
        match = _RANGE.fullmatch(value)
        if match is None:
            raise click.BadParameter("must be an offset, or two with a dash: 17, 17-40 or 17-", ctx, param)
        first = int(match[1])
        return first, first if match[2] is None else int(match[3]) if match[3] else None


class _Which(NamedTuple):
    """The filter options."""

    partition: int | None
    which: Filter


def _filters(command: Callable[..., Any]) -> Callable[..., Any]:
    options = (
        click.option(
            "--reason",
            "reasons",
            type=click.Choice(get_args(UnreadableReason)),
            multiple=True,
            help="Only these; may be repeated.",
        ),
        click.option("--partition", type=click.IntRange(min=0), help="Only this partition of the dead-letter topic."),
        click.option("--offset", "offsets", type=_Offsets(), help="Only these offsets: 17, 17-40 or 17-."),
        click.option(
            "--since", type=_Moment(), help="Only events from then on: a time (RFC 3339), or 2h, 30m, 7d ago."
        ),
        click.option("--until", type=_Moment(), help="Only events before then."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _which(options: dict[str, Any]) -> _Which:
    from worker.kafka.letters import Filter  # noqa: PLC0415 - pulls in the Kafka client

    first, last = options["offsets"] or (0, None)
    which = Filter(frozenset(options["reasons"]), options["since"], options["until"], first, last)
    return _Which(options["partition"], which)


@click.group("dead-letters", short_help="Look at dead letters, and send them back.")
def dead_letters() -> None:
    """Look at the events that became dead letters, and send them back to the input topic."""


@dead_letters.command("list", short_help="List dead letters, the newest last.")
@_filters
@click.option("--limit", type=click.IntRange(min=1), help="Only the newest so many.")
@click.option("--json", "as_json", is_flag=True, help="Write a JSON object a line, the counts last.")
@env_file
def list_command(limit: int | None, env_file: Path | None, *, as_json: bool, **options: Any) -> None:  # noqa: ANN401
    """List dead letters, the newest last, and count them by reason.

    Times are those of the events. Values are not shown: see "worker dead-letters show".
    """
    loaded = settings.load(os.environ, env_file)
    chosen = _which(options)
    from worker.kafka import reader  # noqa: PLC0415 - as above

    counts: Counter[str] = reader.run(loaded, _list(loaded, chosen, limit, _as_json if as_json else _as_line))
    if as_json:
        click.echo(json.dumps({"total": counts.total(), "counts": dict(sorted(counts.items()))}))
    else:
        click.echo(f"{_many(counts.total(), 'dead letter')}{_by_reason(counts)}")


async def _list(loaded: Settings, chosen: _Which, limit: int | None, show_one: Callable[[Letter], str]) -> Counter[str]:
    from worker.kafka import reader  # noqa: PLC0415 - as above

    counts: Counter[str] = Counter()
    newest: deque[str] = deque(maxlen=limit or 0)
    topics = await reader.topics(loaded, loaded.dead_letter_topic)
    topic = reader.must_be_there(topics[loaded.dead_letter_topic])
    async with reader.open_reader(loaded, topic, only=chosen.partition) as source:
        async for letter in _merged(source, chosen.which):
            counts[letter.reason] += 1
            if limit is None:
                click.echo(show_one(letter))
            else:
                newest.append(show_one(letter))
    for line in newest:
        click.echo(line)
    return counts


async def _merged(source: Reader, which: Filter) -> AsyncIterator[Letter]:
    """Letters of all partitions by time; within a partition as they lie there. One of each is in memory."""
    streams = {number: aiter(_letters(source, number, which)) for number in source.bounds}
    heads = {number: await anext(stream, None) for number, stream in streams.items()}
    while waiting := {number: head for number, head in heads.items() if head is not None}:
        number = min(waiting, key=lambda each: (waiting[each].timestamp, each))
        yield waiting[number]
        heads[number] = await anext(streams[number], None)


async def _letters(source: Reader, number: int, which: Filter) -> AsyncIterator[Letter]:
    from worker.kafka import letters  # noqa: PLC0415 - as above

    async for record in source.records(number, *which.bounds(*source.bounds[number])):
        letter = letters.read(record)
        if which.matches(letter):
            yield letter


@dead_letters.command("show", short_help="Show one dead letter whole.")
@click.argument("place", metavar="PARTITION:OFFSET")
@click.option("--full", is_flag=True, help="Show long payloads whole.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object; bytes as text where they are, else hex.")
@env_file
def show_command(place: str, env_file: Path | None, *, full: bool, as_json: bool) -> None:
    """Show one dead letter: value as text or hex, headers, why it is one, and what the worker would make of it now."""
    from worker import explain  # noqa: PLC0415 - as above

    loaded = settings.load(os.environ, env_file)
    try:
        where = explain.parse(f"{loaded.dead_letter_topic}:{place}")
    except ValueError:
        raise click.BadParameter(f"{place!r} must be PARTITION:OFFSET, such as 0:17") from None
    report = explain.explain(loaded, where)
    click.echo(explain.as_json(report) if as_json else explain.as_lines(report, full=full), nl=False)


@dead_letters.command("replay", short_help="Send dead letters back to the input topic.")
@_filters
@click.option("--limit", type=click.IntRange(min=1), help="At most so many, the oldest of each partition first.")
@click.option(
    "--max-attempts",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Refuse those that were tried so often.",
)
@click.option("--even-expired", is_flag=True, help="Send also events older than the input topic's retention.ms.")
@click.option("--dry-run", is_flag=True, help="Send nothing; say what would be sent.")
@click.option("--json", "as_json", is_flag=True, help="Write a JSON object a line for each, the counts last.")
@env_file
def replay_command(  # noqa: PLR0913 - the options
    limit: int | None,
    max_attempts: int,
    env_file: Path | None,
    *,
    even_expired: bool,
    dry_run: bool,
    as_json: bool,
    **options: Any,  # noqa: ANN401
) -> None:
    """Send dead letters back to the partition of the input topic that they came from.

    Key, value, timestamp and headers are the event's own; one header says how often it was tried
    (__worker.errors.attempt), and the worker counts on from it. Everybody who reads the input topic gets the event
    again. Refused, and listed: what was tried --max-attempts times, whose value was not kept, that came from another
    topic, or that is older than the input topic's retention and so could be deleted before it is read.

    Safe to run again, with the same or other filters: what was sent is remembered in the group
    "<group>.dead-letters.replay" and not sent a second time; what a filter left out is not lost to a later run. It is
    at-least-once: killed half-way, up to 200 events are sent again by the next run. A cluster forgets such a memory
    when nobody has replayed for its offsets.retention.minutes (seven days by default): use --since then. Don't run two
    at a time.
    """
    loaded = settings.load(os.environ, env_file)
    chosen = _which(options)
    from worker.kafka import replay  # noqa: PLC0415 - as above

    now = None if even_expired else int(time.time() * 1000)
    order = replay.Order(chosen.which, chosen.partition, limit, max_attempts, dry_run, now)
    with _watcher(dry_run=dry_run, as_json=as_json) as watcher:
        summary = replay.replay(loaded, order, watcher)
    sent, refused = summary.sent.total(), summary.refused.total()
    if as_json:
        counts = {"sent": dict(sorted(summary.sent.items())), "refused": dict(sorted(summary.refused.items()))}
        click.echo(json.dumps({"dry_run": dry_run, **counts, "sent_before": summary.before, "left": summary.left}))
        return
    click.echo(
        f"{'would send' if dry_run else 'sent'} {_many(sent, 'event')} to {loaded.input_topic}"
        f"{_by_reason(summary.sent)}; refused {refused}{_by_reason(summary.refused)}; "
        f"sent before {summary.before}; not asked for {summary.left}"
    )


@contextlib.contextmanager
def _watcher(*, dry_run: bool, as_json: bool) -> Iterator[Any]:
    """Say how a replay goes: a progress bar on a terminal, a line for each refused one."""
    from worker.kafka import replay  # noqa: PLC0415 - as above

    with contextlib.ExitStack() as stack:
        bars: list[Any] = []

        def on_start(length: int) -> None:
            if sys.stderr.isatty() and length:
                bar = click.progressbar(length=length, label="dead letters", file=sys.stderr, show_pos=True)
                bars.append(stack.enter_context(bar))

        def on_progress(steps: int) -> None:
            for bar in bars:
                bar.update(steps)

        def on_sent(letter: Letter) -> None:
            if as_json:
                click.echo(_outcome(letter, "would-send" if dry_run else "sent", None))
            elif dry_run:
                click.echo(f"would send  {_as_line(letter)}")

        def on_refused(letter: Letter, why: str) -> None:
            if as_json:
                click.echo(_outcome(letter, "refused", why))
            else:
                click.echo(f"refused  {letter.partition}:{letter.offset}  {show.escaped(why)}")

        yield replay.Watcher(on_start, on_progress, on_sent, on_refused)


def _outcome(letter: Letter, outcome: str, why: str | None) -> str:
    place = {"partition": letter.partition, "offset": letter.offset, "reason": letter.reason}
    return json.dumps({"outcome": outcome, **place, "attempt": letter.attempt, "why": why})


def _as_line(letter: Letter) -> str:
    source = ":".join(letter.says.get(name, "?") for name in ("topic", "partition", "offset"))
    columns = (
        f"{letter.partition}:{letter.offset}",
        show.when(letter.timestamp),
        letter.reason,
        f"attempt {letter.attempt}",
        f"from {source}",
        f"key {_short(letter.key)}",
        letter.says.get("message", ""),
    )
    return "  ".join(show.escaped(column) for column in columns)


def _short(key: bytes | None) -> str:
    text = show.payload(key)
    return text if len(text) <= _KEY_SHOWN else f"{text[:_KEY_SHOWN]}…"


def _as_json(letter: Letter) -> str:
    return json.dumps(
        {
            "partition": letter.partition,
            "offset": letter.offset,
            "timestamp": letter.timestamp,
            "reason": letter.reason,
            "attempt": letter.attempt,
            "key": show.for_json(letter.key),
            "value_bytes": None if letter.value is None else len(letter.value),
            "says": letter.says,
        }
    )


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _by_reason(counts: Counter[str]) -> str:
    parts = ", ".join(f"{show.escaped(reason)} {count:,}" for reason, count in sorted(counts.items()))
    return f" ({parts})" if parts else ""
