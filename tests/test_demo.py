"""``worker demo``: a person sees every branch of the rule, and what was started is gone afterwards."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient
from kafka_help import until

from worker.demo import _show_samples
from worker.demo.samples import SAMPLES, TOO_LARGE, Counts, Fate, counts_of
from worker.demo.screen import Screen, printable, shorten, width, wrap

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]


def _demo(*options: str, **variables: str) -> subprocess.Popen[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WORKER_")}
    return subprocess.Popen(
        [sys.executable, "-m", "worker", "demo", *options],
        cwd=ROOT,
        env=clean | {"COLUMNS": "200", **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )


def _rows(out: str) -> list[list[str]]:
    """Give the table's rows: indented, two cells far apart."""
    table = out.partition("What became of it\n")[2].partition("Counted by the worker")[0]
    return [re.split(r"  +(?=\{\"role\"|dropped: |dead letter: )", row.strip()) for row in _indented(table)]


def _indented(text: str) -> Iterator[str]:
    return (line for line in text.splitlines() if line.startswith("  "))


def _expected_rows(*, throwaway: bool) -> list[list[str]]:
    screen = Screen()
    samples = [*SAMPLES, TOO_LARGE] if throwaway else SAMPLES
    return [[screen.event(sample.value), screen.fate(sample.fate)] for sample in samples]


def _demo_topics(broker: str) -> set[str]:
    return {
        name for name in AdminClient({"bootstrap.servers": broker}).list_topics(timeout=10).topics if "demo-" in name
    }


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_every_branch_is_shown_on_a_given_cluster(broker: str, guarantee: str) -> None:
    """Each sample stands beside its outcome, the counts agree, and no topic stays behind."""
    before = _demo_topics(broker)

    with _demo(WORKER_BROKERS=broker, WORKER_GUARANTEE=guarantee) as demo:
        out, err = demo.communicate(timeout=90)

    assert (demo.returncode, "Traceback" in err) == (0, False), err
    assert _rows(out) == _expected_rows(throwaway=False)
    assert "   23 events, each with one outcome:" in out
    assert "   15 messages      2 with the role replaced by user" in out
    assert "    5 dropped       3 empty, 1 tombstone, 1 unserializable" in out
    assert "    3 dead letters  1 invalid-json, 1 invalid-utf8, 1 not-an-object" in out
    until(lambda: _demo_topics(broker) <= before)


@pytest.mark.kafka
def test_it_brings_its_own_kafka_and_takes_it_away(tmp_path: Path) -> None:
    """Without a cluster a throw-away one is started; nothing of it is left in the temporary folder."""
    with _demo(TMPDIR=str(tmp_path)) as demo:
        out, err = demo.communicate(timeout=110)

    assert (demo.returncode, "Traceback" in err) == (0, False), err
    assert "starting Kafka" in err
    assert _rows(out) == _expected_rows(throwaway=True)
    assert "   24 events, each with one outcome:" in out
    assert "1 too-large" in out
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith("hsperf")] == []


def test_keep_takes_events_until_ctrl_c(broker: str) -> None:
    """With --keep each line of stdin is an event whose outcome is shown; Ctrl-C ends it well."""
    with _demo("--keep", WORKER_BROKERS=broker) as demo:
        assert demo.stdin is not None
        assert demo.stdout is not None
        demo.stdin.write('{"text":"mine","role":"tool","tool_call_id":7}\n{"text":""}\n[]\n')
        demo.stdin.flush()
        out = ""
        while out.count("\n  -> ") < 3 and (line := demo.stdout.readline()):
            out += line
        demo.send_signal(signal.SIGINT)
        _, err = demo.communicate(timeout=60)

    assert (demo.returncode, "Traceback" in err) == (0, False), err
    assert re.search(r"status page  http://127\.0\.0\.1:[0-9]+/\n", out)
    assert re.findall(r"\n  -> (.*)", out) == [
        '{"role":"tool","content":"mine","tool_call_id":"7"}',
        "dropped: empty",
        "dead letter: not-an-object",
    ]


def test_ctrl_c_leaves_nothing_behind(broker: str) -> None:
    """Stopped half-way it says so in a line, exits 1, and its topics are gone."""
    before = _demo_topics(broker)
    with _demo(WORKER_BROKERS=broker) as demo:
        assert demo.stderr is not None
        while (line := demo.stderr.readline()) and not line.startswith("starting the worker"):
            pass
        demo.send_signal(signal.SIGINT)
        _, err = demo.communicate(timeout=60)

    assert demo.returncode == 1
    assert "worker: demo stopped, all that it started is removed" in err
    assert "Traceback" not in err
    until(lambda: _demo_topics(broker) <= before)


def test_a_wrong_setting_is_named_first() -> None:
    """Nothing is started for a setting that is wrong."""
    with _demo(WORKER_GUARANTE="exactly-once") as demo:
        out, err = demo.communicate(timeout=30)

    assert (demo.returncode, out) == (2, "")
    assert "WORKER_GUARANTEE" in err


def test_no_cluster_is_one_line() -> None:
    """A cluster that does not answer is said in one line, after a while."""
    with _demo(WORKER_BROKERS="127.0.0.1:1") as demo:
        _, err = demo.communicate(timeout=60)

    assert demo.returncode == 1
    assert err.splitlines()[-1].startswith("worker: demo: no broker answers at 127.0.0.1:1")


class _Stage:
    """A stage whose worker says what it is told."""

    is_ours = True

    def __init__(self, fates: list[Fate], counts: Counts) -> None:
        self._fates = fates
        self._counts = counts

    def feed(self, *_: object) -> list[Fate]:
        return self._fates

    def counts(self) -> Counts:
        return self._counts


def test_a_wrong_outcome_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """The demo is a check, too: an outcome that is not the expected one is named, and the exit code is 1."""
    samples = [*SAMPLES, TOO_LARGE]
    fates = [Fate("dropped", "empty"), *(sample.fate for sample in samples[1:])]

    code = _show_samples(_Stage(fates, counts_of(samples)), Screen())  # type: ignore[arg-type] # as much of one as is used

    assert code == 1
    assert 'expected {"role":"system"' in capsys.readouterr().err


def test_wrong_counts_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    """So is a count that is not the expected one."""
    samples = [*SAMPLES, TOO_LARGE]
    counts = counts_of(samples)._replace(roles_replaced=0)

    code = _show_samples(_Stage([sample.fate for sample in samples], counts), Screen())  # type: ignore[arg-type] # as above

    assert code == 1
    assert "/metrics: expected" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "columns"),
    [("plain", 5), ("你好", 4), ("👋🚀", 4), ("e\u0301", 1)],
    ids=["ascii", "cjk", "emoji", "accent"],
)
def test_width_is_in_columns(text: str, columns: int) -> None:
    """Chinese and emoji take two columns, or the table would not be straight."""
    assert width(text) == columns


def test_a_cell_breaks_behind_a_member() -> None:
    """A long object is broken where a person would."""
    assert wrap('{"role":"tool","content":"21"}', 20) == ['{"role":"tool",', '"content":"21"}']


def test_a_cell_without_members_breaks_anywhere() -> None:
    """Nothing is wider than its column, and what is too long is cut and says so."""
    assert wrap("x" * 25, 10) == ["x" * 10, "x" * 10, "x" * 5]
    assert wrap("x" * 99, 10) == ["x" * 10, "x" * 10, "xxxxxxx..."]


def test_what_is_shown_harms_no_terminal() -> None:
    """Control characters and bytes that are no text are written as escapes."""
    assert printable(b"\x1b[2J caf\xe9\n") == "\\x1b[2J caf\\xe9\\n"
    assert shorten("abcdefgh", 5) == "ab..."
