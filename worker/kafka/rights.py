"""The rights without which nothing could ever go well, asked for before the first event is read.

Later on they would show as a worker that stands still. Only a plain refusal ends the start: what a broker does not say
is left to be found out, and ``worker check`` looks closer.
"""

# ruff: noqa: SLF001 - aiokafka's admin client has no public way to put these questions

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokafka.errors import (
    GroupAuthorizationFailedError,
    KafkaError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
)

from worker.errors import LoginError
from worker.kafka.protocol import MetadataRequest

if TYPE_CHECKING:
    from aiokafka.admin import AIOKafkaAdminClient

    from worker.settings import Settings

_FOR_GROUPS, _FOR_TRANSACTIONS = 0, 1


async def demand(admin: AIOKafkaAdminClient, settings: Settings) -> None:
    """Raise ``LoginError`` naming the first right that is missing; ``KafkaError`` when the cluster goes away."""
    await _topics(admin, settings)
    await _coordinator(admin, _FOR_GROUPS, settings.group_id, f"grant Read on group {settings.group_id}")
    if settings.guarantee == "exactly-once":
        prefix = f"{settings.group_id}-{settings.input_topic}-"
        hint = f"grant Write on transactional ids that begin with {prefix}"
        await _coordinator(admin, _FOR_TRANSACTIONS, f"{prefix}0", hint)


async def _topics(admin: AIOKafkaAdminClient, settings: Settings) -> None:
    needed = {
        settings.input_topic: "Read",
        settings.output_topic: "Write",
        settings.dead_letter_topic: "Write",
    }
    try:
        answer = await admin._send_request(MetadataRequest(list(needed)))
    except NotImplementedError:  # older than Kafka 2.3: can't be asked without making the topic
        return
    for code, topic, *_ in answer.topics:
        if code == TopicAuthorizationFailedError.errno:
            raise LoginError(f"topic {topic!r} is not there, or we may not see it: grant {needed[topic]} on it")


async def _coordinator(admin: AIOKafkaAdminClient, kind: int, key: str, hint: str) -> None:
    try:
        await admin._client.coordinator_lookup(kind, key)
    except (GroupAuthorizationFailedError, TransactionalIdAuthorizationFailed) as error:
        what = "group" if kind == _FOR_GROUPS else "transactional id"
        raise LoginError(f"the cluster does not let us use {what} {key} ({error.message}): {hint}") from None
    except KafkaError:  # no coordinator yet, as on a fresh cluster: whoever needs it will wait for it
        return
