"""How every client of the worker connects: one place turns settings into what aiokafka takes."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaProducer

from worker.errors import SettingsError
from worker.kafka import oauth

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer

    from worker.settings import Settings

#: Metadata is this old at most: new partitions and moved leaders are seen within it.
METADATA_MAX_AGE_MS = 30_000
#: A request without an answer for so long has lost its connection. Longer than the group's rebalance time-out,
#: because a join is answered only when every member has come.
REQUEST_TIMEOUT_MS = 25_000

#: How long the coordinator waits, beyond the commit interval, before it aborts a transaction by itself.
TRANSACTION_SECONDS = 60
#: How long a client may take to close before it is cut off.
CLOSE_TIMEOUT = 3.0


def producer(settings: Settings, transactional_id: str | None = None) -> AIOKafkaProducer:
    """A producer that never doubles a batch (idempotent, ``acks=all``); not started yet."""
    return AIOKafkaProducer(
        **arguments(settings),
        acks="all",
        enable_idempotence=True,
        compression_type=None if settings.compression == "none" else settings.compression,
        transactional_id=transactional_id,
        # A transaction is open for a commit interval, and then for as long as a slow broker takes.
        transaction_timeout_ms=int((settings.commit_interval + TRANSACTION_SECONDS) * 1000),
    )


def last_answer(consumer: AIOKafkaConsumer) -> float | None:
    """When a broker last answered this consumer (a fetch, a heartbeat, anything), by the monotonic clock.

    None while it has no connection: one is kept only after the broker has answered on it.
    """
    return max((connection._last_action for connection in consumer._client._conns.values()), default=None)


async def cut(producer: AIOKafkaProducer) -> None:
    """Close a producer without sending what waits in it; ``AIOKafkaProducer.stop`` would send it first."""
    producer._closed = True  # there is no public way to leave without a flush
    producer._message_accumulator._closed = True
    await producer.client.close()  # requests under way fail now, instead of at their time-out
    # Its requests look for a coordinator for as long as there is none, and outlive the sender that began them.
    tasks = {task for task in asyncio.all_tasks() if _is_of(producer._sender, task)}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=CLOSE_TIMEOUT)
    waiter = producer._txn_manager._transaction_waiter if producer._txn_manager is not None else None
    if waiter is not None and waiter.done() and not waiter.cancelled():
        waiter.exception()  # heard: what failed the transaction is why it is cut off; else asyncio complains


def _is_of(sender: object, task: asyncio.Task[Any]) -> bool:
    frame = getattr(task.get_coro(), "cr_frame", None)
    return frame is not None and frame.f_locals.get("self") is sender


def arguments(settings: Settings) -> dict[str, Any]:
    """The keyword arguments that aiokafka's consumer, producer and admin client share."""
    return {
        "bootstrap_servers": list(settings.brokers),
        "client_id": settings.group_id,
        "metadata_max_age_ms": METADATA_MAX_AGE_MS,
        "request_timeout_ms": REQUEST_TIMEOUT_MS,
        "security_protocol": settings.security_protocol,
        "ssl_context": _ssl_context(settings),
        **_login(settings),
    }


def _login(settings: Settings) -> dict[str, Any]:
    if not settings.security_protocol.startswith("SASL"):
        return {}
    if settings.sasl_mechanism == "OAUTHBEARER":
        return {"sasl_mechanism": settings.sasl_mechanism, "sasl_oauth_token_provider": oauth.provider(settings)}
    return {
        "sasl_mechanism": settings.sasl_mechanism,
        "sasl_plain_username": settings.sasl_username,
        "sasl_plain_password": settings.sasl_password,
    }


def _ssl_context(settings: Settings) -> ssl.SSLContext | None:
    if not settings.security_protocol.endswith("SSL"):
        return None
    try:
        context = ssl.create_default_context(cafile=settings.ssl_ca_file)
    except ssl.SSLError as error:
        raise SettingsError([f"WORKER_SSL_CA_FILE: holds no certificate that can be read ({error.reason})"]) from None
    if settings.ssl_cert_file is not None:
        _show_certificate(context, settings)
    return context


def _show_certificate(context: ssl.SSLContext, settings: Settings) -> None:
    password, asked = settings.ssl_key_password, False

    def give() -> str:
        nonlocal asked  # only a key that is encrypted is asked for its password
        asked = True
        return password or ""

    try:
        context.load_cert_chain(settings.ssl_cert_file or "", settings.ssl_key_file, give)
    except (ssl.SSLError, ValueError) as error:  # a password longer than OpenSSL takes is a ValueError
        if not asked:
            why = f"not a certificate and its key ({getattr(error, 'reason', error)})"
            raise SettingsError([f"WORKER_SSL_CERT_FILE, WORKER_SSL_KEY_FILE: {why}"]) from None
        what = "must be set, as the key in WORKER_SSL_KEY_FILE is encrypted"
        if password is not None:
            what = "is not the password of the key in WORKER_SSL_KEY_FILE"
        raise SettingsError([f"WORKER_SSL_KEY_PASSWORD: {what}"]) from None
