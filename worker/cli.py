"""The commands, and nothing else: each reads its settings, hands over, and turns the end into an exit code.

Exit codes: 0 fine, 1 failed, 2 wrong usage or settings. What a person did wrong is said in a line and never with a
traceback; a traceback is our mistake. Commands import what they need inside: ``worker config`` must not wait for
Faust, nor fail because of it.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from worker import __version__, settings
from worker.errors import SettingsError, WorkerError

if TYPE_CHECKING:
    from collections.abc import Callable
    from io import BufferedReader

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


def _env_file(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--env-file",
        type=click.Path(path_type=Path),
        help="A file of NAME=value lines for settings that the environment leaves open; only WORKER_ names count.",
    )(command)


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
    loaded = settings.load(os.environ, env_file)
    from worker import process  # noqa: PLC0415 - Faust takes a second to import
    from worker.observe import logs  # noqa: PLC0415

    logs.configure(loaded.log_level, loaded.log_format)
    ctx.exit(process.run(loaded))


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
