"""Logs: one event a line on stderr, the same shape for our own events and for what the libraries say.

A line has ``time`` (RFC 3339, UTC), ``level``, ``event``, ``logger`` and fields. Our events have stable names, as
alerts match on them: ``log.info("partition-assigned", partition=3)``. Never in a line: a record's key, value or
headers, or a password.

The libraries speak through the standard library's ``logging``; they are made quiet here, not in their own words. When
a broker is away, aiokafka alone repeats itself many times a second, with a traceback each: so they are heard from
WARNING up, one of a kind each ten seconds, in one line.

Nothing of structlog's global configuration is used: a module that logs before ``configure`` (a test, ``convert``)
must not find structlog's default, which prints on stdout.
"""

from __future__ import annotations

import logging
import os
import sys
import time
import traceback
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TextIO, cast

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable

    from structlog.typing import EventDict, Processor

    from worker.settings import LogFormat, LogLevel

OURS = "worker"
REPEAT_SECONDS = 10.0
# Their debug records hold whole requests (so the SASL password, too), keys and values.
_NEVER_DEBUG = ("aiokafka.conn", "aiokafka.producer", "faust.agents")
_KINDS_KEPT = 1000
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """Give a logger for our own events; ``name`` is the module's ``__name__``."""
    logger = structlog.wrap_logger(
        logging.getLogger(name),
        processors=[structlog.stdlib.filter_by_level, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    return cast("structlog.stdlib.BoundLogger", logger)


def configure(level: LogLevel, log_format: LogFormat | None = None, stream: TextIO | None = None) -> LogFormat:
    """Send everything that is logged to ``stream`` (stderr), in JSON unless that is a terminal. May be called again.

    Returns the format that was chosen.
    """
    stream = stream or sys.stderr
    log_format = log_format or ("text" if stream.isatty() else "json")
    debug = level == "debug"
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_formatter(log_format, stream, debug=debug))
    if not debug:
        handler.addFilter(_no_service_notes)
        handler.addFilter(OncePerInterval(REPEAT_SECONDS))
    root = logging.getLogger()
    root.handlers = [handler]
    ours = logging.getLevelNamesMapping()[level.upper()]
    root.setLevel(ours if debug else max(ours, logging.WARNING))
    logging.getLogger(OURS).setLevel(ours)
    for name in _NEVER_DEBUG:
        logging.getLogger(name).setLevel(logging.INFO if debug else logging.NOTSET)
    logging.captureWarnings(capture=True)  # else they are lines of another shape
    return log_format


def is_ours(record: logging.LogRecord) -> bool:
    """Whether the worker itself said it, rather than a library."""
    return record.name == OURS or record.name.startswith(OURS + ".")


def _no_service_notes(record: logging.LogRecord) -> bool:
    """Leave out what Faust's services say of themselves ("[^--Agent]: Starting..."); a crash is told by ``process``."""
    return not str(record.msg).startswith("[^")


class OncePerInterval(logging.Filter):
    """Let a library say the same (logger, template, level) once an interval; the next one tells how many were left out.

    Our own events pass: each is one fact, and says something with its fields.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with nothing said."""
        super().__init__()
        self._seconds = seconds
        self._clock = clock
        self._said: dict[tuple[str, str, int], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Decide, and leave the count of those left out on the record."""
        if is_ours(record):
            return True
        now = self._clock()
        kind = (record.name, str(record.msg), record.levelno)
        at, left_out = self._said.get(kind, (None, 0))
        if at is not None and now - at < self._seconds:
            self._said[kind] = (at, left_out + 1)
            return False
        # A library that writes values into its templates would make ever more kinds.
        if at is None and len(self._said) >= _KINDS_KEPT:
            self._said.pop(next(iter(self._said)))
        self._said[kind] = (now, 0)
        record.suppressed = left_out
        return True


def _formatter(log_format: LogFormat, stream: TextIO, *, debug: bool) -> logging.Formatter:
    shape: list[Processor] = [_Shape(debug=debug)]
    if log_format == "json":
        return structlog.stdlib.ProcessorFormatter(processors=[*shape, structlog.processors.JSONRenderer()])
    colors = stream.isatty() and not os.environ.get("NO_COLOR")
    renderer = structlog.dev.ConsoleRenderer(colors=colors, sort_keys=False, timestamp_key="time")
    return structlog.stdlib.ProcessorFormatter(processors=[*shape, _printable, renderer])


class _Shape:
    """Make one shape of both: ours come as a dict, a library's as a message."""

    _META: Final = frozenset({"event", "exc_info", "stack_info", "_record", "_from_structlog"})

    def __init__(self, *, debug: bool) -> None:
        self._debug = debug

    def __call__(self, _logger: object, _method: str, event_dict: EventDict) -> EventDict:
        record: logging.LogRecord = event_dict["_record"]
        at = datetime.fromtimestamp(record.created, UTC)
        line: EventDict = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": event_dict["event"],
            "logger": record.name,
            **{key: value for key, value in event_dict.items() if key not in self._META},
        }
        if left_out := getattr(record, "suppressed", 0):
            line["suppressed"] = left_out
        error = _exception(event_dict.get("exc_info") or record.exc_info)
        # Below ERROR a library's exception is one that it deals with itself; its message says enough.
        if error is not None and (is_ours(record) or record.levelno >= logging.ERROR):
            line["error"] = f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")
            if self._debug:
                line["exception"] = "".join(traceback.format_exception(error))
        return line


def _exception(exc_info: object) -> BaseException | None:
    if isinstance(exc_info, BaseException):
        return exc_info
    if isinstance(exc_info, tuple):
        return cast("BaseException | None", exc_info[1])
    return sys.exc_info()[1] if exc_info else None


def _printable(_logger: object, _method: str, event_dict: EventDict) -> EventDict:
    """Keep it one line, and the terminal unharmed; a traceback alone has its lines."""
    return {
        key: value.translate(_CONTROLS) if isinstance(value, str) and key != "exception" else value
        for key, value in event_dict.items()
    }
