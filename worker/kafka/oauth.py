"""Tokens for OAUTHBEARER, by client credentials (RFC 6749, 4.4): asked for, kept until shortly before their end.

All clients of the worker share one provider, so that a hundred connections that are made anew ask once. Of what the
token's server says, nothing is repeated but its status and error code.
"""

from __future__ import annotations

import asyncio
import functools
import json
import re
import ssl
import time
from base64 import b64encode
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import quote_plus

import aiohttp
from aiokafka import errors as kafka_errors
from aiokafka.abc import AbstractTokenProvider

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.settings import Settings

#: How long the token's server may take.
SECONDS = 8.0
#: The part of a token's life in which it is used; connections made after that get a new one.
_USED = 0.8
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750, 2.1
_CODE = re.compile(r"[a-z_]{1,40}")  # RFC 6749, 5.2


class TokenError(kafka_errors.KafkaError):  # type: ignore[misc] # aiokafka has no types
    """There is no token: why, and what to do; ``final`` if asking again would not help.

    One of aiokafka's errors, because its clients try to connect again only after one of theirs.
    """

    def __init__(self, text: str, hint: str, *, final: bool) -> None:
        """Keep the parts."""
        super().__init__(text)
        self.text = text
        self.hint = hint
        self.final = final


class Provider(AbstractTokenProvider):  # type: ignore[misc] # aiokafka has no types
    """Gives aiokafka a token that is good for a while."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        """Note where to ask; nothing is asked yet."""
        self._url = str(settings.sasl_oauth_token_url)
        # The client's name and secret are form-encoded first (RFC 6749, 2.3.1).
        pair = (
            f"{quote_plus(settings.sasl_oauth_client_id or '')}:{quote_plus(settings.sasl_oauth_client_secret or '')}"
        )
        self._headers = {"Authorization": f"Basic {b64encode(pair.encode()).decode()}", "Accept": "application/json"}
        self._form = {"grant_type": "client_credentials"}
        if settings.sasl_oauth_scope is not None:
            self._form["scope"] = settings.sasl_oauth_scope
        self._client = settings.sasl_oauth_client_id
        self._tls = ssl.create_default_context()
        if settings.ssl_ca_file is not None:  # beside the system's: the two servers may have different authorities
            self._tls.load_verify_locations(settings.ssl_ca_file)
        self._clock = clock
        self._asking = asyncio.Lock()
        self._token = ""
        self._until = 0.0

    async def token(self) -> str:
        """The token; raises ``TokenError``."""
        async with self._asking:
            asked_at = self._clock()
            if asked_at >= self._until:
                self._token, lifetime = self._read(*await self._ask())
                self._until = asked_at + _USED * lifetime
            return self._token

    async def _ask(self) -> tuple[int, bytes]:
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(SECONDS)) as session,
                session.post(
                    self._url, data=self._form, headers=self._headers, ssl=self._tls, allow_redirects=False
                ) as answer,
            ):
                return answer.status, await answer.read()
        except aiohttp.ClientConnectorCertificateError as error:
            why = f"the certificate of {self._url} is not trusted ({_words(error.certificate_error)})"
            raise TokenError(why, "look at WORKER_SSL_CA_FILE and WORKER_SASL_OAUTH_TOKEN_URL", final=True) from None
        except (aiohttp.ClientError, OSError) as error:
            why = f"{self._url} does not answer ({_words(error)})"
            raise TokenError(why, "look at WORKER_SASL_OAUTH_TOKEN_URL and at the network", final=False) from None

    def _read(self, status: int, body: bytes) -> tuple[str, float]:
        """The token and its life in seconds: none where the server does not say, so it is used once."""
        try:
            answer = json.loads(body)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            answer = {}
        token, lifetime, code = answer.get("access_token"), answer.get("expires_in"), answer.get("error")
        if status == HTTPStatus.OK and isinstance(token, str) and _TOKEN.fullmatch(token):
            return token, lifetime if isinstance(lifetime, (int, float)) and lifetime > 0 else 0
        said = f"{status} {code}" if isinstance(code, str) and _CODE.fullmatch(code) else f"{status}"
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.TOO_MANY_REQUESTS:
            raise TokenError(f"{self._url} gives no token now ({said})", "look at that server", final=False)
        raise TokenError(
            f"{self._url} gives {self._client} no token ({said})",
            "look at WORKER_SASL_OAUTH_TOKEN_URL, WORKER_SASL_OAUTH_CLIENT_ID, WORKER_SASL_OAUTH_CLIENT_SECRET"
            " and WORKER_SASL_OAUTH_SCOPE",
            final=True,
        )


def _words(error: BaseException) -> str:
    return getattr(error, "verify_message", None) or getattr(error, "strerror", None) or type(error).__name__


@functools.lru_cache(maxsize=1)
def provider(settings: Settings) -> Provider:
    """The provider of these settings, one for all clients."""
    return Provider(settings)
