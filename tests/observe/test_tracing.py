"""Spans of a whole worker, received as a collector would, and what it costs when nobody asks for them: nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest
from kafka_help import Input, until
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from worker_process import GUARANTEES, ROOT, RUN, bad, event, lines, seconds_since

from worker.errors import SettingsError
from worker.kafka.ports import free_ports
from worker.observe import tracing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from opentelemetry.proto.trace.v1.trace_pb2 import Span
    from worker_process import MakeLine

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Collector:
    """Takes OTLP over HTTP and keeps what it was sent."""

    def __init__(self) -> None:
        """Listen on this machine."""
        self.bodies: list[bytes] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("_Bound", (_Handler,), {"bodies": self.bodies}))
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def requests(self) -> list[ExportTraceServiceRequest]:
        """All it was sent."""
        return [ExportTraceServiceRequest.FromString(body) for body in self.bodies]

    def spans(self) -> list[Span]:
        """All spans."""
        return [
            span
            for request in self.requests()
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def total(self, attribute: str) -> int:
        """The sum of an attribute."""
        return sum(each.value.int_value for span in self.spans() for each in span.attributes if each.key == attribute)

    def close(self) -> None:
        """Listen no more."""
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    bodies: list[bytes]

    def do_POST(self) -> None:
        self.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def make_line(broker: str, tmp_path: Path) -> Iterator[MakeLine]:
    """Give a maker of production lines; their workers end with the test."""
    yield from lines(broker, tmp_path)


@pytest.fixture
def collector() -> Iterator[Collector]:
    """One for each test."""
    listening = Collector()
    yield listening
    listening.close()


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_spans(make_line: MakeLine, collector: Collector, monkeypatch: pytest.MonkeyPatch, guarantee: str) -> None:
    """Batches have spans that add up, linked to their events' traces; an event's own context goes through untouched."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    context = [("tracestate", b"vendor=1"), ("traceparent", f"00-{TRACE}-{SPAN}-01".encode())]
    line = make_line(guarantee=guarantee)
    line.feed(
        [
            Input(b"1", b'{"text":"s3cret event"}', headers=context),
            Input(b"2", b'{"text":"s3cret event"}', headers=[("traceparent", b"\xff\x00"), ("traceparent", None)]),
            Input(b"3", b'{"text":""}', headers=context),
            bad(4),
        ]
    )
    worker = line.run()
    line.settle()
    until(lambda: collector.total("messaging.batch.message_count") >= 4)
    assert worker.stop() == 0

    assert line.outputs()[0].headers == context
    totals = {name: collector.total(f"worker.{name}") for name in ("produced", "dropped", "dead_lettered")}
    assert totals == {"produced": 2, "dropped": 1, "dead_lettered": 1}
    links = [link for span in collector.spans() for link in span.links]
    assert {(link.trace_id.hex(), link.span_id.hex()) for link in links} == {(TRACE, SPAN)}
    for span in collector.spans():
        assert span.name == f"process {line.input}"
        assert 0 < span.end_time_unix_nano - span.start_time_unix_nano < 60e9
        assert abs(span.end_time_unix_nano / 1e9 - time.time()) < 60
    (service,) = {
        each.value.string_value
        for request in collector.requests()
        for resource in request.resource_spans
        for each in resource.resource.attributes
        if each.key == "service.name"
    }
    assert service == "text-to-message-worker"
    assert not any(b"s3cret" in body or b"{bad" in body for body in collector.bodies)


def test_collector_away(make_line: MakeLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A collector that is not there costs spans, said in few lines, and neither events nor a late end."""
    (port,) = free_ports(1)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    line = make_line()
    worker = line.run()
    for number in range(20):
        line.feed([event(number)])
        line.settle()
    began = time.monotonic()
    assert worker.stop() == 0
    assert seconds_since(began) < 10
    assert len(line.outputs()) == 20
    theirs = [each for each in worker.text.splitlines() if '"opentelemetry.' in each]
    assert 1 <= len(theirs) <= 10, theirs
    assert "Traceback" not in worker.text


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OTEL_SERVICE_NAME": "worker"},
        {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"},
        {"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"},
    ],
)
def test_off(environ: dict[str, str]) -> None:
    """Nobody asked: nothing is made."""
    assert tracing.from_environment(environ, "group") is None


def test_off_imports_nothing() -> None:
    """Off, the SDK is not even imported."""
    code = "import sys, worker.process; from worker.observe import tracing; tracing.from_environment({}, 'group');"
    code += "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


@pytest.mark.parametrize(
    "environ",
    [
        {"OTEL_TRACES_EXPORTER": "zipkin"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
    ],
)
def test_not_installed(environ: dict[str, str]) -> None:
    """An exporter that is not installed is a wrong setting, and the line says what to install."""
    with pytest.raises(SettingsError, match=r"OTEL_TRACES_EXPORTER.*not installed.*text-to-message-worker\[otel\]"):
        tracing.from_environment(environ, "group")


def test_wrong_setting() -> None:
    """What the SDK can't read is a wrong setting, in one line."""
    environ = {**os.environ, "OTEL_TRACES_EXPORTER": "console", "OTEL_SPAN_LINK_COUNT_LIMIT": "many"}
    environ["WORKER_LOG_FORMAT"] = "text"
    done = subprocess.run([sys.executable, *RUN], cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("worker: OTEL_*: OTEL_SPAN_LINK_COUNT_LIMIT must be ")
    assert "Traceback" not in done.stderr
