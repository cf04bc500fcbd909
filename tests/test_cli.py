"""The commands as a person meets them: what is printed where, and the exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import worker
from worker.cli import main
from worker.errors import SettingsError, WorkerError

# ruff: noqa: S106 - the passwords here are nobody's

ROOT = Path(worker.__file__).parents[1]


def run(*arguments: str, stdin: bytes = b"", **variables: str) -> subprocess.CompletedProcess[bytes]:
    """Run the worker as a person does."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("WORKER_")}
    return subprocess.run(
        [sys.executable, "-m", "worker", *arguments],
        input=stdin,
        capture_output=True,
        check=False,
        cwd=ROOT,
        env=environ | variables,
        timeout=60,
    )


def test_version() -> None:
    """It says which one it is."""
    done = run("--version")
    assert (done.returncode, done.stdout.decode()) == (0, f"worker {worker.__version__}\n")


@pytest.mark.parametrize("arguments", [["no-such"], ["config", "--no-such"], ["broker", "--port", "0"]])
def test_wrong_usage(arguments: list[str]) -> None:
    """Wrong usage is exit code 2, and says what is wrong."""
    done = run(*arguments)
    assert done.returncode == 2
    assert b"Error: " in done.stderr


@pytest.mark.parametrize("command", ["run", "config", "convert"])
def test_wrong_settings(command: str) -> None:
    """Wrong settings are exit code 2, a line each and no traceback, before anything is done."""
    done = run(
        command, stdin=b'{"text":"x"}', WORKER_HTTP_PORT="80x", WORKER_BROKER="a:1", WORKER_SASL_PASSWORD="s3cret"
    )
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode().splitlines() == [
        "worker: WORKER_BROKER: there is no such setting; the nearest is WORKER_BROKERS",
        "worker: WORKER_HTTP_PORT='80x': must be a whole number from 0 to 65535",
        "worker: 'worker --help' lists the commands; README.md has the table of settings",
    ]


def test_missing_env_file() -> None:
    """An env file that is not there is exit code 2."""
    done = run("config", "--env-file", "no-such.env")
    assert done.returncode == 2
    assert b"--env-file no-such.env: must be a file that can be read" in done.stderr


def test_config(tmp_path: Path) -> None:
    """The settings in force come with their origin; a secret shows only that it is set."""
    env_file = tmp_path / "worker.env"
    env_file.write_text("WORKER_GROUP_ID=mine\n")
    done = run("config", "--env-file", str(env_file), WORKER_SASL_PASSWORD="s3cret", WORKER_COMMIT_INTERVAL="500ms")
    assert done.returncode == 0
    rows = {name: rest for name, *rest in (line.split(maxsplit=2) for line in done.stdout.decode().splitlines())}
    assert rows["WORKER_GROUP_ID"] == ["mine", f"env-file {env_file}"]
    assert rows["WORKER_SASL_PASSWORD"] == ["********", "environment"]
    assert rows["WORKER_COMMIT_INTERVAL"] == ["0.5s", "environment"]
    assert rows["WORKER_HTTP_PORT"] == ["8080", "default"]
    assert rows["WORKER_SSL_KEY_PASSWORD"] == ["default"]
    assert b"s3cret" not in done.stdout + done.stderr


def test_config_json() -> None:
    """The same for programs; what is not set is null."""
    done = run("config", "--json", WORKER_SASL_PASSWORD="s3cret")
    rows = {row["name"]: (row["value"], row["origin"]) for row in json.loads(done.stdout)}
    assert rows["WORKER_BROKERS"] == ("localhost:9092", "default")
    assert rows["WORKER_SASL_PASSWORD"] == ("********", "environment")
    assert rows["WORKER_PARTITIONS"] == (None, "default")
    assert b"s3cret" not in done.stdout + done.stderr


def test_convert() -> None:
    """Records on stdout, the summary on stderr; a dead letter is no failure of the command."""
    done = run("convert", stdin=b'{"text":"hi"}\nno JSON\n', WORKER_OUTPUT_FORMAT="messages")
    assert (done.returncode, done.stdout) == (0, b'[{"role":"user","content":"hi"}]\n')
    assert done.stderr == b"worker: 2 events: 1 message, 0 dropped, 1 dead letter (1 invalid-json)\n"


def test_convert_a_slow_pipe() -> None:
    """An event is answered when its line is there, not when the input ends."""
    with subprocess.Popen(
        [sys.executable, "-m", "worker", "convert"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b'{"text":"hi"}\n')
        assert json.loads(process.stdout.readline())["message"] == {"role": "user", "content": "hi"}
        process.stdin.close()
    assert process.returncode == 0


def test_convert_into_a_closed_pipe() -> None:
    """A reader that has seen enough ends it without a word."""
    reading, writing = os.pipe()
    os.close(reading)
    with subprocess.Popen(
        [sys.executable, "-m", "worker", "convert"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=writing,
        stderr=subprocess.PIPE,
    ) as process:
        os.close(writing)
        _, stderr = process.communicate(b'{"text":"hi"}\n')
    assert (process.returncode, stderr) == (1, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a device that is always full")
def test_convert_into_a_full_disk() -> None:
    """A full disk is one line and exit code 1."""
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "worker", "convert"],
            cwd=ROOT,
            input=b'{"text":"hi"}\n',
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, b"worker: convert: No space left on device\n")


@pytest.mark.parametrize(
    ("error", "code", "lines"),
    [
        (WorkerError("no broker"), 1, ["worker: no broker"]),
        (SettingsError(["A: wrong", "B: wrong"]), 2, ["worker: A: wrong", "worker: B: wrong"]),
    ],
)
def test_errors(monkeypatch: pytest.MonkeyPatch, error: WorkerError, code: int, lines: list[str]) -> None:
    """Whatever a command does not get done ends as its line and its exit code."""

    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr("worker.kafka.throwaway.run_broker", fail)
    result = CliRunner().invoke(main, ["broker"])
    assert result.exit_code == code
    assert result.stderr.splitlines()[: len(lines)] == lines
