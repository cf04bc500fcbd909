"""The README: what it says exists, and what it shows to run does run.

A block marked ``sh`` is run, and a ``text`` block right behind it is what it must write to stdout. A block marked
``console`` is only shown, as it needs a network, a cluster or Docker; the ``worker`` commands in it must be right.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple, get_args

import click
import pytest
from prometheus_client.parser import text_string_to_metric_families

from worker import cli, settings
from worker.observe.metrics import Metrics
from worker.rule.event import UnreadableReason
from worker.rule.message import DropReason

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


class Block(NamedTuple):
    """A fenced block and, if a ``text`` block follows at once, what it must write."""

    kind: str
    code: str
    output: str | None


BLOCKS = [
    Block(*match.groups())
    for match in re.finditer(r"```(sh|console)\n(.*?)```(?:\n\n```text\n(.*?)```)?", README, re.DOTALL)
]
RUN = [block for block in BLOCKS if block.kind == "sh"]
COMMANDS = sorted(
    {
        command.strip()
        for block in BLOCKS
        for line in block.code.splitlines()
        for command in re.findall(r"(?:^|\| ?|[A-Z] )(worker(?: [^|<]+)?)", line)
        if "=" not in command.split()[0]
    }
)


def test_the_table_of_settings_is_the_declaration() -> None:
    """The table is what ``markdown_table`` writes, so no setting is missing or told wrongly."""
    assert settings.markdown_table() in README


@pytest.mark.parametrize("block", RUN, ids=[block.code.split("\n")[0][:40] for block in RUN])
def test_a_block_runs(block: Block, tmp_path: Path) -> None:
    """A block marked ``sh`` ends well, and writes what the README says it writes."""
    script = tmp_path / "worker"  # the tests need no installed command
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m worker "$@"\n')
    script.chmod(0o755)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WORKER_")}
    environ = clean | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}

    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.code],  # noqa: S607 - whichever bash there is
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert block.output is None or done.stdout == block.output


def test_there_are_blocks_to_run() -> None:
    """The blocks are found: a change of the README's shape does not make the test above empty."""
    assert len(RUN) > 1
    assert any(block.output for block in RUN)


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_is_right(line: str) -> None:
    """Each ``worker`` command shown exists and takes those arguments."""
    words = shlex.split(line)[1:]
    command: click.Command = cli.main
    name = "worker"
    while isinstance(command, click.Group) and words:
        name = words.pop(0)
        found = command.get_command(click.Context(command), name)
        assert found is not None, name
        command = found

    command.make_context(name, words)


def test_the_metrics_are_those_that_exist() -> None:
    """The table of metrics has each metric there is; no other name is used anywhere in the README."""
    metrics = Metrics("topic", "version", "guarantee")
    metrics.assigned(0)
    families = text_string_to_metric_families(metrics.exposition().decode())
    exist = {
        family.name + ("_total" if family.type == "counter" else "")
        for family in families
        if family.name.startswith("worker_")  # others are the client library's
    }

    named = set(re.findall(r"\bworker_[a-z_]+", README))

    assert named == exist


def test_the_reasons_are_those_that_exist() -> None:
    """Each reason is in the table of the rule, those of dead letters in the table of remedies, too."""
    dead, dropped = get_args(UnreadableReason), get_args(DropReason)

    assert [reason for reason in dropped if f"dropped: `{reason}`" not in README] == []
    assert [reason for reason in dead if f"dead letter: `{reason}`" not in README] == []
    assert [reason for reason in dead if f"\n| `{reason}` |" not in README] == []


def test_the_log_events_are_those_that_exist() -> None:
    """The table of log events has each event that the code logs, but for debug, and no other."""
    table = README.partition("| event | what it says |")[2].partition("\n\n")[0]
    named = {name for row in table.splitlines()[2:] for name in re.findall(r"`([a-z-]+)`", row.split("|")[1])}

    assert named == _logged()


def test_the_files_exist() -> None:
    """Each file or folder of ours that the README names is there."""
    named = set(re.findall(r"`((?:worker|tests|\.ci)/[A-Za-z0-9_./-]*)`", README))

    assert "worker/__init__.py" in named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def _logged() -> set[str]:
    """Find the first argument of each ``log.info`` and so on, and the event of each ``Retry(log, ...)``."""
    events = set()
    for path in (ROOT / "worker").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and (event := _event(node)) is not None:
                events.add(event)
    return events


def _event(call: ast.Call) -> str | None:
    """Give the event's name if the call logs one."""
    match call:
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="log"), attr="info" | "warning" | "error"),
            args=[ast.Constant(value=str(event)), *_],
        ):
            return event
        case ast.Call(func=ast.Name(id="Retry"), args=[_, ast.Constant(value=str(event)), *_]):
            return event
    return None
