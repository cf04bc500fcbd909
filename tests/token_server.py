"""A server of OAuth tokens: gives one to whoever knows the secret, signed by nobody, as the test broker takes them."""

from __future__ import annotations

import json
import threading
import time
from base64 import b64decode, urlsafe_b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qs, unquote_plus

if TYPE_CHECKING:
    import ssl
    from types import TracebackType

CLIENT = "worker client"


class TokenServer:
    """Listens on this machine while in the context; ``asked`` are the forms it was sent."""

    def __init__(self, subject: str, secret: str, tls: ssl.SSLContext | None = None) -> None:
        """Give tokens of ``subject``, good for ``lifetime`` seconds; ``answers`` overrides parts of what it says."""
        self.lifetime = 300
        self.age = 0
        self.answer: tuple[int, bytes] | None = None
        self.asked: list[dict[str, list[str]]] = []
        self._subject = subject
        self._secret = secret
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("_Bound", (_Handler,), {"tokens": self}))
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._scheme = "http" if tls is None else "https"

    @property
    def url(self) -> str:
        """Where it gives tokens."""
        return f"{self._scheme}://127.0.0.1:{self._server.server_port}/token"

    def respond(self, authorization: str, form: dict[str, list[str]]) -> tuple[int, bytes]:
        """Say what a proper server would, or what the test wants to hear."""
        self.asked.append(form)
        name, _, secret = b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        if self.answer is not None:
            return self.answer
        if (unquote_plus(name), unquote_plus(secret)) != (CLIENT, self._secret):
            return 401, b'{"error":"invalid_client","error_description":"you sent s3cret"}'
        return 200, json.dumps({"access_token": self._token(), "expires_in": self.lifetime}).encode()

    def _token(self) -> str:
        now = time.time() - self.age
        claims = {"sub": self._subject, "iat": now, "exp": now + self.lifetime, "scope": "kafka"}
        return ".".join((_part({"alg": "none"}), _part(claims), ""))

    def __enter__(self) -> Self:
        """Begin to answer."""
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        """Listen no more."""
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    tokens: TokenServer

    def do_POST(self) -> None:
        """Answer a request for a token."""
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        status, body = self.tokens.respond(self.headers["Authorization"], form)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:  # noqa: ANN401 - the base class's signature
        """Say nothing."""


def _part(claims: dict[str, Any]) -> str:
    return urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
