"""The HTTP server: four addresses, only GET, nothing else.

It starts before there is a broker and stops last, so that probes are answered all along. It may be reached by people
who mean no good: what it takes is small and short, a connection is for one request and gone after some seconds, and
nothing of a request is ever repeated, in an answer or in the log.

aiohttp's lower layer (``web.Server``) does all of that with less than an ``Application``, whose router and middlewares
would not see the requests that can't be parsed.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from worker.errors import WorkerError
from worker.observe import page
from worker.observe.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.http_parser import RawRequestMessage
    from aiohttp.streams import StreamReader

    from worker.observe.status import Status, View

log = get_logger(__name__)

#: The longest life of a connection, and how many there may be at once.
CONNECTION_SECONDS = 10.0
CONNECTIONS = 100
_MAX_LINE = 2048
_MAX_HEADERS = 64
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Connection": "close",
}


@asynccontextmanager
async def serving(status: Status) -> AsyncIterator[None]:
    """Answer while in the context; not at all if the port is 0. Raises ``WorkerError`` if it can't listen."""
    host, port = status.settings.http_host, status.settings.http_port
    if port == 0:
        yield
        return
    server = _Server(
        _Routes(status).answer,
        request_factory=_Request.make,
        access_log=None,
        lingering_time=0.0,
        max_line_size=_MAX_LINE,
        max_field_size=_MAX_LINE,
        max_headers=_MAX_HEADERS,
        auto_decompress=False,
    )
    runner = web.ServerRunner(server, shutdown_timeout=1.0)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise WorkerError(
                f"WORKER_HTTP_PORT={port}, WORKER_HTTP_HOST={host}: can't listen there"
                f" ({_reason(error)}); choose a free port, or 0 for no HTTP"
            ) from None
        log.info("http-listening", host=host, port=port)
        yield
    finally:
        await runner.cleanup()


def _reason(error: OSError) -> str:
    # asyncio wraps the system's words in a sentence of its own, with the address in it.
    text = str(error.strerror or error)
    return text.rsplit(": ", 1)[-1].removesuffix("]") if text.startswith("error while attempting") else text


class _Routes:
    def __init__(self, status: Status) -> None:
        self._status = status
        self._routes = {
            "/": self._page,
            "/healthz": self._healthz,
            "/readyz": self._readyz,
            "/metrics": self._metrics,
        }

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        route = self._routes.get(request.path)
        if route is None:
            return _plain(404, "not found")
        if request.method != "GET":
            return _plain(405, "only GET", {"Allow": "GET"})
        return route()

    def _page(self) -> web.Response:
        view = self._status.view()
        return web.Response(
            text=page.render(view, self._status.settings, self._status.metrics),
            content_type="text/html",
            headers={**_HEADERS, "Content-Security-Policy": page.CONTENT_SECURITY_POLICY},
        )

    def _healthz(self) -> web.Response:
        view = self._status.view()
        return _json(200 if view.health.healthy else 503, health_body(view))

    def _readyz(self) -> web.Response:
        reason = self._status.view().not_ready
        if reason is None:
            return _json(200, {"ready": True})
        return _json(503, {"ready": False, "reason": reason})

    def _metrics(self) -> web.Response:
        return web.Response(body=self._status.exposition(), headers={**_HEADERS, "Content-Type": CONTENT_TYPE_LATEST})


def health_body(view: View) -> dict[str, Any]:
    """What ``/healthz`` says."""
    if view.health.healthy:
        return {"healthy": True}
    body: dict[str, Any] = {"healthy": False, "reason": "; ".join(view.health.reasons)}
    if view.health.broker_silent is not None:
        body["broker_silent_seconds"] = round(view.health.broker_silent, 1)
    body["stalled"] = [
        {
            "partition": each.partition,
            "lag": each.lag,
            "seconds_since_progress": round(each.seconds, 1),
            "last_progress": _rfc3339(datetime.fromtimestamp(view.at, UTC) - timedelta(seconds=each.seconds)),
        }
        for each in view.health.stalled
    ]
    return body


def _rfc3339(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _json(status: int, body: dict[str, Any]) -> web.Response:
    return web.Response(
        status=status,
        text=json.dumps(body, separators=(",", ":")) + "\n",
        content_type="application/json",
        headers=_HEADERS,
    )


def _plain(status: int, text: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(status=status, text=text + "\n", headers={**_HEADERS, **(headers or {})})


class _Server(web.Server):
    """Bounds how many connections there are, and how long each lives."""

    def __call__(self) -> RequestHandler:
        return _Handler(self, loop=self._loop, **self._kwargs)

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        if len(self._connections) > CONNECTIONS:
            self._loop.call_soon(transport.abort)  # aiohttp's task for it must have begun, or it fails loudly
        else:
            self._loop.call_later(CONNECTION_SECONDS, transport.abort)


class _Handler(RequestHandler):
    """Errors without an echo: aiohttp would send back, and log, pieces of a request that can't be parsed."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,  # noqa: ARG002 - aiohttp's signature
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002
    ) -> web.StreamResponse:
        if status >= 500:  # noqa: PLR2004 - ours, so it must be heard
            log.error("http-failed", exc_info=exc)
        return _plain(status, "failed" if status >= 500 else "bad request")  # noqa: PLR2004


class _Request(web.BaseRequest):
    """Answers don't say which software this is; the errors of ``_Handler`` come through here, too."""

    @classmethod
    def make(
        cls,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> _Request:
        """What ``web.Server`` calls for each request."""
        return cls(message, payload, protocol, writer, task, asyncio.get_running_loop())

    async def _prepare_hook(self, response: web.StreamResponse) -> None:
        response.headers.pop("Server", None)
