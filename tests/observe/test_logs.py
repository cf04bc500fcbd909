"""Logs: one shape for all, libraries kept quiet, nothing secret."""

from __future__ import annotations

import io
import json
import logging
import re
from typing import TYPE_CHECKING, Any

import pytest

from worker.observe import logs

if TYPE_CHECKING:
    from collections.abc import Iterator

BROKE = "ValueError: invalid literal for int() with base 10: 'it\\nbroke'"
LOGGERS = (None, "worker", *logs._NEVER_DEBUG)


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Leave logging as it was."""
    root = logging.getLogger()
    handlers = list(root.handlers)
    levels = {name: logging.getLogger(name).level for name in LOGGERS}
    yield
    root.handlers = handlers
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    logging.captureWarnings(capture=False)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    """Parse what was logged."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def log_an_error(logger: Any, method: str, event: str) -> None:  # noqa: ANN401 - ours or a library's
    """Log from where an exception is handled."""
    try:
        int("it\nbroke")
    except ValueError:
        getattr(logger, method)(event, exc_info=True)


def test_our_event() -> None:
    """An event of ours has its time, level, name, logger and fields."""
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    logs.get_logger("worker.kafka.lane").info("partition-assigned", partition=3)
    (line,) = lines(stream)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
    assert line == {"level": "info", "event": "partition-assigned", "logger": "worker.kafka.lane", "partition": 3}


def test_library_record() -> None:
    """What a library says comes in the same shape, one line even if it has several."""
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    logging.getLogger("aiokafka").error("Unable connect to %s:\n%s", "a", "b")
    (line,) = lines(stream)
    del line["time"]
    assert line == {"level": "error", "event": "Unable connect to a:\nb", "logger": "aiokafka"}


@pytest.mark.parametrize(
    ("level", "heard"),
    [
        ("error", ["worker error", "mode error"]),
        ("warning", ["worker warning", "worker error", "mode warning", "mode error"]),
        ("info", ["worker info", "worker warning", "worker error", "mode warning", "mode error"]),
        (
            "debug",
            [f"{name} {level}" for name in ("worker", "mode") for level in ("debug", "info", "warning", "error")],
        ),
    ],
)
def test_levels(level: Any, heard: list[str]) -> None:  # noqa: ANN401 - the parameters are no literals to mypy
    """Libraries are heard from WARNING up, unless all is asked for."""
    stream = io.StringIO()
    logs.configure(level, "json", stream)
    for logger in (logs.get_logger("worker.app"), logging.getLogger("mode")):
        for method in ("debug", "info", "warning", "error"):
            getattr(logger, method)(f"{'worker' if logger is not logging.getLogger('mode') else 'mode'} {method}")
    assert [line["event"] for line in lines(stream)] == heard


@pytest.mark.parametrize("name", ["aiokafka.conn", "aiokafka.producer.producer", "faust.agents.agent"])
def test_never_payload(name: str) -> None:
    """Not even at debug level is heard what has records and passwords in it."""
    stream = io.StringIO()
    logs.configure("debug", "json", stream)
    logging.getLogger(name).debug("Request: %s", "s3cret")
    assert stream.getvalue() == ""


def test_exceptions() -> None:
    """An exception is one line; a library's is left out below ERROR, as it deals with it itself."""
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    log_an_error(logs.get_logger("worker.app"), "warning", "ours")
    log_an_error(logging.getLogger("aiokafka"), "warning", "theirs, healed")
    log_an_error(logging.getLogger("aiokafka"), "error", "theirs")
    assert [(line["event"], line.get("error")) for line in lines(stream)] == [
        ("ours", BROKE),
        ("theirs, healed", None),
        ("theirs", BROKE),
    ]
    assert "Traceback" not in stream.getvalue()


def test_traceback_at_debug() -> None:
    """At debug level the traceback is there, in JSON still one line."""
    stream = io.StringIO()
    logs.configure("debug", "json", stream)
    log_an_error(logging.getLogger("aiokafka"), "error", "theirs")
    (line,) = lines(stream)
    assert line["exception"].startswith("Traceback")


def test_repeats() -> None:
    """A library says the same once an interval; the next time tells how often it was left out; we are never cut."""
    now = 0.0
    only = logs.OncePerInterval(10, lambda: now)

    def passes(name: str, template: str, argument: int) -> bool:
        record = logging.LogRecord(name, logging.ERROR, "", 0, template, (argument,), None)
        said = only.filter(record)
        left_out.append(getattr(record, "suppressed", 0))
        return said

    left_out: list[int] = []
    assert [passes("aiokafka", "Unable %d", n) for n in range(3)] == [True, False, False]
    assert passes("aiokafka", "Failed %d", 0)
    assert passes("mode", "Unable %d", 0)
    assert [passes("worker.app", "lost", n) for n in range(3)] == [True, True, True]
    now = 10.0
    assert passes("aiokafka", "Unable %d", 3)
    assert left_out[-1] == 2
    now = 20.0
    assert passes("aiokafka", "Unable %d", 4)
    assert left_out[-1] == 0


def test_repeats_are_bounded() -> None:
    """Templates with values in them do not fill the memory."""
    only = logs.OncePerInterval(10, lambda: 0.0)
    for number in range(logs._KINDS_KEPT + 10):
        only.filter(logging.LogRecord("mode", logging.ERROR, "", 0, f"lost {number}", (), None))
    assert len(only._said) == logs._KINDS_KEPT


def test_suppressed_is_said() -> None:
    """The count is a field of the line."""
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    (handler,) = logging.getLogger().handlers
    record = logging.LogRecord("mode", logging.ERROR, "", 0, "lost", (), None)
    record.suppressed = 7
    stream.write(handler.format(record))
    assert lines(stream)[0]["suppressed"] == 7


@pytest.mark.parametrize(("stream", "is_json"), [(io.StringIO(), True), (Terminal(), False)])
def test_format_by_stream(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, *, is_json: bool) -> None:
    """Without a setting a terminal gets text, all else JSON."""
    monkeypatch.setenv("NO_COLOR", "1")
    logs.configure("info", None, stream)
    logs.get_logger("worker.app").info("started", brokers="a\x1b[2J\nb")
    text = stream.getvalue()
    assert text.startswith("{") is is_json
    assert text.count("\n") == 1
    assert "\x1b" not in text


def test_silent_before_configure(capsys: pytest.CaptureFixture[str]) -> None:
    """A module that logs before anything is set up does not write into stdout."""
    logs.get_logger("worker.app").info("started")
    assert capsys.readouterr().out == ""


def test_warnings_have_the_same_shape(recwarn: pytest.WarningsRecorder) -> None:
    """A Python warning is a line like any other."""
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    logging._showwarning("old", DeprecationWarning, "x.py", 1)  # type: ignore[attr-defined] # what captureWarnings installs
    assert lines(stream)[0]["logger"] == "py.warnings"
    assert not recwarn.list
