"""The HTTP server alone: what it answers and what it does not, without a worker behind it."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from http_help import ask

from worker.errors import WorkerError
from worker.kafka.ports import free_ports
from worker.observe import http
from worker.observe.health import Health, Stalled
from worker.observe.status import Status
from worker.settings import from_mapping

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROUTES = ("/", "/healthz", "/readyz", "/metrics")


@asynccontextmanager
async def serving() -> AsyncIterator[int]:
    """Serve a worker that waits for its broker; gives the port."""
    (port,) = free_ports(1)
    async with http.serving(Status(from_mapping({"HTTP_PORT": str(port)}))):
        yield port


@pytest.mark.parametrize(
    ("path", "status", "kind"),
    [
        ("/", 200, "text/html; charset=utf-8"),
        ("/healthz", 200, "application/json; charset=utf-8"),
        ("/readyz", 503, "application/json; charset=utf-8"),
        ("/metrics", 200, "text/plain; version=1.0.0; charset=utf-8"),
        ("/metrics?x=1", 200, "text/plain; version=1.0.0; charset=utf-8"),
        ("/healthz/", 404, "text/plain; charset=utf-8"),
        ("//", 404, "text/plain; charset=utf-8"),
        ("/favicon.ico", 404, "text/plain; charset=utf-8"),
        ("/../etc/passwd", 404, "text/plain; charset=utf-8"),
        ("/%2e%2e/%00", 404, "text/plain; charset=utf-8"),
    ],
)
async def test_paths(path: str, status: int, kind: str) -> None:
    """Four addresses and no more; none may be cached, sniffed or used for a second request; none says who serves."""
    async with serving() as port:
        answer = await asyncio.to_thread(ask, port, path)
    assert (answer.status, answer.headers["Content-Type"]) == (status, kind)
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert answer.headers["Connection"] == "close"
    assert "Server" not in answer.headers


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
async def test_methods(path: str, method: str) -> None:
    """Only GET."""
    async with serving() as port:
        answer = await asyncio.to_thread(ask, port, path, method)
    assert (answer.status, answer.headers["Allow"]) == (405, "GET")


async def test_policy() -> None:
    """The page may load nothing but itself."""
    async with serving() as port:
        policy = (await asyncio.to_thread(ask, port, "/")).headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy


async def raw(port: int, *pieces: bytes) -> bytes:
    """Send bytes, and read until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.writelines(pieces)
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03s3cret\r\n\r\n",
        b"GET / s3cret/9.9\r\n\r\n",
        b"GET /" + b"s3cret" * 1000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\ns3cret: " + b"x" * 5000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n" + b"".join(b"s3cret%d: x\r\n" % n for n in range(100)) + b"\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: s3cret\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nbad\x00s3cret: x\r\n\r\n",
    ],
)
async def test_bad_requests(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """What is no small, plain request is refused, without a word of it in the answer or in the log."""
    caplog.set_level(logging.DEBUG)
    async with serving() as port:
        answer = await raw(port, sent)
        assert (await asyncio.to_thread(ask, port, "/healthz")).status == 200
    assert answer.split(b"\r\n")[0] == b"HTTP/1.0 400 Bad Request" or answer.startswith(b"HTTP/1.1 400 ")
    assert b"s3cret" not in answer
    assert b"Server:" not in answer
    assert "s3cret" not in caplog.text


async def test_body_is_not_awaited() -> None:
    """A body that never comes holds nothing up."""
    async with serving() as port:
        answer = await raw(port, b"GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n", b"x")
    assert answer.startswith(b"HTTP/1.1 200 ")


async def test_slow_requests_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection lives for some seconds, whatever it sends."""
    monkeypatch.setattr(http, "CONNECTION_SECONDS", 0.2)
    async with serving() as port:
        assert await raw(port, b"GET / HTTP/1.1\r\nHost: ") == b""


async def test_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """One connection too many is refused; when the others end, there is room again."""
    monkeypatch.setattr(http, "CONNECTIONS", 3)
    monkeypatch.setattr(http, "CONNECTION_SECONDS", 1.0)
    async with serving() as port:
        idle = [asyncio.create_task(raw(port)) for _ in range(3)]
        await asyncio.wait(idle, timeout=0.2)
        assert await raw(port, b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n") == b""
        assert await asyncio.gather(*idle) == [b"", b"", b""]
        assert (await asyncio.to_thread(ask, port, "/healthz")).status == 200


async def test_failure_inside(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A fault of ours is a 500 that says nothing and a line in the log; the next request is answered."""
    async with serving() as port:
        with monkeypatch.context() as patch:
            patch.setattr(Status, "exposition", lambda _: 1 / 0)
            answer = await asyncio.to_thread(ask, port, "/metrics")
        assert (await asyncio.to_thread(ask, port, "/metrics")).status == 200
    assert (answer.status, answer.body) == (500, "failed\n")
    assert [record.msg["event"] for record in caplog.records if record.levelno >= logging.WARNING] == ["http-failed"]  # type: ignore[index] # structlog's


async def test_port_taken() -> None:
    """A port that someone else has is a line that names the setting."""
    async with serving() as port:
        status = Status(from_mapping({"HTTP_PORT": str(port)}))
        with pytest.raises(WorkerError, match=rf"^WORKER_HTTP_PORT={port}, WORKER_HTTP_HOST=127.0.0.1: .*in use"):
            async with http.serving(status):
                pass


async def test_unknown_host() -> None:
    """So is an address that is not ours."""
    status = Status(from_mapping({"HTTP_HOST": "192.0.2.1"}))
    with pytest.raises(WorkerError, match=r"^WORKER_HTTP_PORT=8080, WORKER_HTTP_HOST=192\.0\.2\.1: .*assign"):
        async with http.serving(status):
            pass


async def test_off() -> None:
    """Port 0 is no server at all."""
    async with http.serving(Status(from_mapping({"HTTP_PORT": "0"}))):
        pass


async def test_stops_listening() -> None:
    """Nobody listens any more afterwards."""
    async with serving() as port:
        pass
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


def test_health_body() -> None:
    """An unhealthy worker names the partition, its lag and when it last moved."""
    view = Status(from_mapping({})).view()
    assert http.health_body(view) == {"healthy": True}
    ill = view._replace(at=1000.0, health=Health((Stalled(3, 40, 75.0), Stalled(4, None, 80.0)), 61.5))
    assert http.health_body(ill) == {
        "healthy": False,
        "reason": "no broker has answered for 62 s; partition 3 has not moved for 75 s, lag 40;"
        " partition 4 has not moved for 80 s",
        "broker_silent_seconds": 61.5,
        "stalled": [
            {
                "partition": 3,
                "lag": 40,
                "seconds_since_progress": 75.0,
                "last_progress": "1970-01-01T00:15:25.000Z",
            },
            {
                "partition": 4,
                "lag": None,
                "seconds_since_progress": 80.0,
                "last_progress": "1970-01-01T00:15:20.000Z",
            },
        ],
    }
