"""Tokens: asked for as the standard says, kept while they are good, and never repeated."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

import pytest
import trustme
from token_server import CLIENT, TokenServer

from worker.kafka import oauth
from worker.kafka.oauth import Provider, TokenError
from worker.kafka.ports import free_ports
from worker.settings import Settings, from_mapping

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECRET = "S3cret: 100% / ü"  # noqa: S105 - nobody's


@pytest.fixture
def server() -> Iterator[TokenServer]:
    """Give a server of tokens."""
    with TokenServer("boss", SECRET) as tokens:
        yield tokens


def settings(url: str, **others: str) -> Settings:
    """The settings of its client."""
    return from_mapping(
        {
            "SECURITY_PROTOCOL": "SASL_PLAINTEXT",
            "SASL_MECHANISM": "OAUTHBEARER",
            "SASL_OAUTH_TOKEN_URL": url,
            "SASL_OAUTH_CLIENT_ID": CLIENT,
            "SASL_OAUTH_CLIENT_SECRET": SECRET,
            **others,
        }
    )


async def test_token(server: TokenServer) -> None:
    """By client credentials, with the scope; name and secret may hold any character."""
    token = await Provider(settings(server.url, SASL_OAUTH_SCOPE="read write")).token()
    assert token.count(".") == 2
    assert server.asked == [{"grant_type": ["client_credentials"], "scope": ["read write"]}]


async def test_asks_once(server: TokenServer) -> None:
    """Many connections at once, of all clients, have one token between them."""
    provider = oauth.provider(settings(server.url))
    tokens = await asyncio.gather(*(provider.token() for _ in range(20)), oauth.provider(settings(server.url)).token())
    assert (len(set(tokens)), len(server.asked)) == (1, 1)


async def test_asks_again_before_the_end(server: TokenServer) -> None:
    """A token is used for four fifths of its life; one that does not say how long it is good is used once."""
    times = iter((1000.0, 1239.9, 1240.0))
    provider = Provider(settings(server.url), lambda: next(times))
    counts = [(await provider.token(), len(server.asked))[1] for _ in range(3)]
    assert counts == [1, 1, 2]
    for strange in (b"null", b"0", b"-1", b"NaN", b'"300"'):
        server.answer = (200, b'{"access_token":"a.b.","expires_in":%s}' % strange)
        provider = Provider(settings(server.url))
        server.asked.clear()
        assert [await provider.token(), await provider.token()] == ["a.b.", "a.b."]
        assert len(server.asked) == 2


@pytest.mark.parametrize(
    ("answer", "says", "final"),
    [
        ((401, b'{"error":"invalid_client"}'), "gives worker client no token (401 invalid_client)", True),
        ((400, b'{"error":"<b>s3cret</b>"}'), "gives worker client no token (400)", True),
        ((404, b"s3cret"), "gives worker client no token (404)", True),
        ((302, b""), "gives worker client no token (302)", True),
        ((200, b"\xff"), "gives worker client no token (200)", True),
        ((200, b'{"access_token":"s3cret\\u0001host=evil"}'), "gives worker client no token (200)", True),
        ((200, b"[]"), "gives worker client no token (200)", True),
        ((503, b"busy"), "gives no token now (503)", False),
        ((429, b'{"error":"slow_down"}'), "gives no token now (429 slow_down)", False),
    ],
)
async def test_no_token(server: TokenServer, answer: tuple[int, bytes], says: str, final: bool) -> None:  # noqa: FBT001
    """A refusal is told from a fault that may pass; only status and code are repeated."""
    server.answer = answer
    with pytest.raises(TokenError) as raised:
        await Provider(settings(server.url)).token()
    assert (raised.value.text, raised.value.final) == (f"{server.url} {says}", final)


async def test_nobody_there() -> None:
    """A server that is not there may come."""
    (port,) = free_ports(1)
    with pytest.raises(TokenError, match=r"does not answer \(") as raised:
        await Provider(settings(f"http://127.0.0.1:{port}/token")).token()
    assert not raised.value.final


async def test_private_authority(tmp_path: Path) -> None:
    """The token's server may have a certificate by the same private authority; by an unknown one it is not trusted."""
    authority = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with TokenServer("boss", SECRET, tls) as server:
        assert await Provider(settings(server.url, SSL_CA_FILE=str(tmp_path / "ca.pem"))).token()
        with pytest.raises(TokenError, match=r"is not trusted \(.*issuer certificate\)") as raised:
            await Provider(settings(server.url)).token()
    assert raised.value.final
