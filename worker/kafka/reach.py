"""One connection to one address, and if there is none, why not: name, port, TLS, login.

aiokafka's clients log the cause and raise ``KafkaConnectionError`` whatever it was, so a wrong password looks like a
broker that is down. Here each address is dialled once and what comes back is told apart. Nothing is asked of the
cluster beyond the handshake.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from aiokafka import errors as kafka_errors
from aiokafka.conn import AIOKafkaConnection, OAuthAuthenticator, collect_hosts
from aiokafka.protocol.metadata import MetadataRequest

from worker.errors import BrokerError, LoginError
from worker.kafka import connection, oauth
from worker.kafka.retry import describe

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from worker.settings import Settings

#: A broker that is well answers in milliseconds; a firewall that swallows packets never does.
SECONDS = 10.0

What = Literal["address", "tls", "login", "protocol"]


class Trouble(NamedTuple):
    """Why an address can't be used: the layer that failed, what was seen, what to do."""

    what: What
    detail: str
    hint: str


class HungUpError(BrokerError):
    """A broker hangs up on us: it speaks another protocol, or it (or a proxy before it) is about to come up."""


class Node(NamedTuple):
    """A broker as the cluster names it to its clients."""

    number: int
    address: str


async def nodes(settings: Settings, address: str) -> list[Node] | Trouble:
    """Connect, log in, and read which brokers the cluster names; or say why that failed."""
    arguments = connection.arguments(settings)
    for ours in ("bootstrap_servers", "metadata_max_age_ms"):
        del arguments[ours]
    arguments["request_timeout_ms"] = int(SECONDS * 1000)
    host, port, _ = collect_hosts([address])[0]
    dialled = _Connection(host, port, **arguments)
    try:
        await asyncio.wait_for(dialled.connect(), SECONDS)
    except (OSError, EOFError, TimeoutError, kafka_errors.KafkaError) as error:
        return explain(error, settings, address)
    try:
        metadata = await dialled.send(MetadataRequest([]))
    except (OSError, EOFError, TimeoutError, kafka_errors.KafkaError) as error:
        return explain(error, settings, address)
    finally:
        await _closed(dialled)
    return [Node(broker[0], f"{broker[1]}:{broker[2]}") for broker in metadata.brokers]


class _Connection(AIOKafkaConnection):  # type: ignore[misc] # aiokafka has no types
    def authenticator_oauth(self) -> OAuthAuthenticator:
        return _OAuthAuthenticator(sasl_oauth_token_provider=self._sasl_oauth_token_provider)


class _OAuthAuthenticator(OAuthAuthenticator):  # type: ignore[misc]
    """Hears a refusal, which comes without an error code: a reason in JSON where nothing was due (RFC 7628, 3.2.2)."""

    async def step(self, payload: bytes | None) -> tuple[bytes, bool] | None:
        if payload:
            raise kafka_errors.SaslAuthenticationFailed("the token")
        answer: tuple[bytes, bool] | None = await super().step(payload)
        return answer


async def any_of(settings: Settings) -> None:
    """Return as soon as one of the addresses works; raise what is most worth knowing if none does."""
    dialling = [asyncio.create_task(nodes(settings, address)) for address in settings.brokers]
    troubles: list[Trouble] = []
    try:
        for done in asyncio.as_completed(dialling):
            answer = await done
            if not isinstance(answer, Trouble):
                return
            troubles.append(answer)
    finally:
        for task in dialling:
            task.cancel()
        await asyncio.gather(*dialling, return_exceptions=True)
    raise error_of(troubles)


async def all_of(settings: Settings, addresses: Sequence[str]) -> dict[str, list[Node] | Trouble]:
    """Dial all at once: one that does not answer costs its ten seconds only once."""
    answers = await asyncio.gather(*(nodes(settings, address) for address in addresses))
    return dict(zip(addresses, answers, strict=True))


def error_of(troubles: Sequence[Trouble]) -> BrokerError:
    """The most telling of several troubles as our error: one address may be down and the other refuse the password."""
    worst = next((trouble for trouble in troubles if trouble.what != "address"), troubles[0])
    kind = {"tls": LoginError, "login": LoginError, "protocol": HungUpError}.get(worst.what, BrokerError)
    return kind(f"{worst.detail}: {worst.hint}")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep aiokafka from saying in its own words what we say in ours."""
    logger = logging.getLogger("aiokafka")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


async def _closed(dialled: Any) -> None:  # noqa: ANN401 - aiokafka has no types
    closing = dialled.close()
    if closing is not None:
        await closing


def explain(error: BaseException, settings: Settings, address: str) -> Trouble:
    """Tell apart what a connection failed with."""
    chain = list(_chain(error))
    for each in chain:
        if isinstance(each, ssl.SSLCertVerificationError):
            return _certificate(each, address)
    for each in chain:
        if isinstance(each, ssl.SSLError):
            return _tls(each, address)
    if isinstance(error, kafka_errors.KafkaError) and (login := _login(error, settings)) is not None:
        return login
    return _address(chain, settings, address)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


# OpenSSL's numbers of what is wrong with a certificate (X509_V_ERR_…).
_CERTIFICATES = {
    9: ("is not valid yet", "look at the clocks of this machine and of who made the certificate"),
    10: ("has expired", "have the broker's certificate renewed (or look at this machine's clock)"),
    18: ("is signed by itself", "name it in WORKER_SSL_CA_FILE if it is the right one"),
    19: ("is signed by an authority that is not trusted", "name the authority's certificate in WORKER_SSL_CA_FILE"),
    20: ("is signed by an authority that is not trusted", "name the authority's certificate in WORKER_SSL_CA_FILE"),
    62: ("is for another host name", "write in WORKER_BROKERS the name that the certificate holds"),
    64: ("is for another address", "write in WORKER_BROKERS the name that the certificate holds"),
}


def _certificate(error: ssl.SSLCertVerificationError, address: str) -> Trouble:
    unknown = (f"is not trusted ({error.verify_message})", "look at WORKER_SSL_CA_FILE")
    what, hint = _CERTIFICATES.get(error.verify_code, unknown)
    return Trouble("tls", f"the certificate of {address} {what}", hint)


def _tls(error: ssl.SSLError, address: str) -> Trouble:
    reason = error.reason or ""
    if "CERTIFICATE_REQUIRED" in reason or "HANDSHAKE_FAILURE" in reason:
        return Trouble(
            "tls",
            f"{address} wants a certificate of us ({reason})",
            "set WORKER_SSL_CERT_FILE and WORKER_SSL_KEY_FILE",
        )
    if "ALERT" in reason and ("CERT" in reason or "UNKNOWN_CA" in reason):
        return Trouble(
            "tls",
            f"{address} does not accept our certificate ({reason})",
            "have WORKER_SSL_CERT_FILE signed by an authority that the broker trusts, and look when it expires",
        )
    if "WRONG_VERSION_NUMBER" in reason or "RECORD_LAYER" in reason:
        return Trouble(
            "tls", f"{address} does not speak TLS", "set WORKER_SECURITY_PROTOCOL to PLAINTEXT or SASL_PLAINTEXT"
        )
    return Trouble("tls", f"no TLS with {address} ({reason or describe(error)})", "look at the broker's log")


def _login(error: kafka_errors.KafkaError, settings: Settings) -> Trouble | None:
    if isinstance(error, oauth.TokenError):
        return Trouble("login" if error.final else "address", error.text, error.hint)
    if isinstance(error, kafka_errors.SaslAuthenticationFailed) and settings.sasl_mechanism == "OAUTHBEARER":
        detail = f"the cluster does not accept the token of {settings.sasl_oauth_client_id}"
        return Trouble("login", detail, "look at WORKER_SASL_OAUTH_SCOPE, and at the broker's log for what it expects")
    if isinstance(error, kafka_errors.SaslAuthenticationFailed):
        detail = f"{settings.sasl_username} is not let in by {settings.sasl_mechanism}"
        return Trouble("login", detail, "look at WORKER_SASL_USERNAME, WORKER_SASL_PASSWORD and WORKER_SASL_MECHANISM")
    if isinstance(error, kafka_errors.UnsupportedSaslMechanismError):
        detail = f"the cluster does not take the mechanism {settings.sasl_mechanism}"
        return Trouble("login", detail, "set WORKER_SASL_MECHANISM to one that this port takes")
    if isinstance(error, kafka_errors.IllegalSaslStateError):
        detail = "the cluster wants no login here"
        return Trouble("login", detail, "set WORKER_SECURITY_PROTOCOL to PLAINTEXT or SSL, or use the other port")
    return None


def _address(chain: list[BaseException], settings: Settings, address: str) -> Trouble:
    for each in chain:
        if isinstance(each, socket.gaierror):
            return Trouble("address", f"the name in {address} can't be resolved", "look at WORKER_BROKERS and the DNS")
        if isinstance(each, ConnectionRefusedError):
            return Trouble("address", f"nothing listens at {address}", "start the broker, or look at the port")
        if isinstance(each, TimeoutError):
            why = f"{address} does not answer within {SECONDS:.0f} s"
            return Trouble("address", why, "look at the network, at firewalls, and whether that port speaks Kafka")
    if any(isinstance(each, (ConnectionError, EOFError, kafka_errors.KafkaConnectionError)) for each in chain):
        return Trouble(
            "protocol",
            f"{address} hangs up on {settings.security_protocol}",
            "set WORKER_SECURITY_PROTOCOL to what this port speaks (with a login, or TLS?)",
        )
    return Trouble("address", f"{address}: {describe(chain[0])}", "look at WORKER_BROKERS")
