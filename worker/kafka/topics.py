"""The topics: are they there, make what is missing, how large a record they take.

Everything here happens before the first event is read, and may wait: for a broker that is not up, or an input topic
that someone else makes. What only a person can mend is said at once, by name (``TopicError``, ``LoginError``).
"""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING, Any

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    InvalidConfigurationError,
    KafkaError,
    PolicyViolationError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)

from worker.errors import BrokerError, LoginError, TopicError
from worker.kafka import connection, reach, rights
from worker.kafka.retry import Retry, describe
from worker.observe.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from worker.settings import Settings

log = get_logger(__name__)

#: Kafka's default for ``max.message.bytes``; taken where the topic's own may not be read.
DEFAULT_LIMIT = 1_048_588
#: Room in the dead-letter topic for the headers that are added to a record as large as the input topic takes.
HEADER_ROOM = 65_536
#: How much longer an output record usually is than its event's text at most: written once or twice, with names around
#: it. Escapes can make it longer.
GROWTH = {"both": 2.2, "message": 1.1, "messages": 1.1}
#: A broker that hangs up for so long is not about to come up: it speaks another protocol.
HUNG_UP_SECONDS = 10.0
#: Seconds between two looks for a topic that has just been made: the brokers tell each other.
_SPREADING = 0.1
#: Partitions of an input topic that is made and has no count in the settings.
DEFAULT_PARTITIONS = 4


class Limits:
    """How large a record batch each topic takes, in bytes (its ``max.message.bytes``)."""

    def __init__(self, limits: Mapping[str, int] | None = None, settings: Settings | None = None) -> None:
        """Know the limits of some topics; all others have Kafka's default. ``settings`` say where to ask again."""
        self._limits = dict(limits or {})
        self._settings = settings
        self._asked_at: dict[str, float] = {}
        self._asking = asyncio.Lock()

    def of(self, topic: str) -> int:
        """The limit of one topic."""
        return self._limits.get(topic, DEFAULT_LIMIT)

    async def have_changed(self, topic: str, believed: int, *, not_within: float = 0.0) -> bool:
        """Whether the limit is not what it was ``believed`` to be; asks, unless somebody has just done so.

        Just: less than ``not_within`` seconds ago, whether there was an answer or not.
        """
        async with self._asking:
            just = time.monotonic() - self._asked_at.get(topic, -math.inf) < not_within
            if self.of(topic) == believed and self._settings is not None and not just:
                await self._ask(topic, self._settings)
                self._asked_at[topic] = time.monotonic()
            return self.of(topic) != believed

    async def _ask(self, topic: str, settings: Settings) -> None:
        admin = AIOKafkaAdminClient(**connection.arguments(settings))
        try:
            await admin.start()
            self._limits.update(_sizes(await _configs(admin, [topic])))
        except KafkaError as error:
            log.info("topic-config-hidden", topic=topic, reason=describe(error))
        finally:
            await admin.close()


async def prepare(settings: Settings, on_wait: Callable[[Exception], None] = lambda _: None) -> Limits:
    """Wait until the cluster answers, make what topics are missing, and read their limits.

    ``on_wait`` is told what it waits for. Raises ``LoginError`` when the cluster refuses our login or a right, or does
    nothing but hang up, and ``TopicError`` when a topic is missing that we may not make.
    """
    retry = Retry(log, "waiting-for-broker", brokers=",".join(settings.brokers))
    now = asyncio.get_running_loop().time
    hung_up_at: float | None = None
    while True:
        admin = AIOKafkaAdminClient(**connection.arguments(settings))
        try:
            await reach.any_of(settings)  # which tells a wrong password from a broker that is down
            await admin.start()
            await rights.demand(admin, settings)
            return await _prepare(admin, settings, on_wait)
        except (LoginError, TopicError):
            raise
        except (BrokerError, KafkaError) as error:
            hung_up_at = (hung_up_at or now()) if isinstance(error, reach.HungUpError) else None
            if hung_up_at is not None and now() - hung_up_at > HUNG_UP_SECONDS:
                raise LoginError(str(error)) from None
            on_wait(error)
            await retry.pause(error)
        finally:
            await admin.close()


async def _prepare(admin: AIOKafkaAdminClient, settings: Settings, on_wait: Callable[[Exception], None]) -> Limits:
    await _wait_for_input(admin, settings, on_wait)
    partitions = await _partition_counts(admin)
    config = await _configs(admin, [settings.input_topic])
    wanted = settings.partitions or partitions[settings.input_topic]
    source = config.get(settings.input_topic, {})
    largest = int(source.get("max.message.bytes", DEFAULT_LIMIT))
    if settings.output_topic not in partitions:
        kept = {name: source[name] for name in ("retention.ms",) if name in source}
        if "max.message.bytes" in source:
            kept["max.message.bytes"] = str(int(largest * GROWTH[settings.output_format]))
        await _make(admin, settings, settings.output_topic, wanted, {**kept, **_ANY_TIMESTAMP})
    if settings.dead_letter_topic not in partitions:
        kept = {"retention.ms": "-1", "max.message.bytes": str(largest + HEADER_ROOM)}
        await _make(admin, settings, settings.dead_letter_topic, wanted, {**kept, **_ANY_TIMESTAMP})
    configs = await _configs(admin, [settings.output_topic, settings.dead_letter_topic])
    _warn_of_retention(settings, source, configs)
    return Limits(_sizes(configs), settings)


def _sizes(configs: Mapping[str, Mapping[str, str]]) -> dict[str, int]:
    return {topic: int(config["max.message.bytes"]) for topic, config in configs.items()}


#: Timestamps are the events' own: a topic that we make must take any (Kafka 4.0 refuses those an hour ahead).
_ANY_TIMESTAMP = {"message.timestamp.type": "CreateTime", "message.timestamp.after.max.ms": str(2**63 - 1)}


async def _wait_for_input(admin: AIOKafkaAdminClient, settings: Settings, on_wait: Callable[[Exception], None]) -> None:
    retry = Retry(log, "waiting-for-input-topic", topic=settings.input_topic)
    while settings.input_topic not in await _partition_counts(admin):
        if settings.create_topics:
            await _make(admin, settings, settings.input_topic, settings.partitions or DEFAULT_PARTITIONS, {})
            await asyncio.sleep(_SPREADING)
            continue
        missing = TopicError("the input topic is not there yet, and WORKER_CREATE_TOPICS is false")
        on_wait(missing)
        await retry.pause(missing)


async def _partition_counts(admin: AIOKafkaAdminClient) -> dict[str, int]:
    # All topics, not ours by name: asking for a missing one by name makes it, where the broker auto-creates.
    await admin._client.force_metadata_update()
    metadata = await admin._get_cluster_metadata()
    return {topic[1]: len(topic[3]) for topic in metadata.topics if topic[0] == 0}


async def _make(
    admin: AIOKafkaAdminClient, settings: Settings, topic: str, partitions: int, config: dict[str, str]
) -> None:
    if not settings.create_topics:
        raise TopicError(f"topic {topic!r} is missing: make it, or set WORKER_CREATE_TOPICS=true")
    replicas = settings.replication_factor or await _default_replication(admin)
    new = NewTopic(name=topic, num_partitions=partitions, replication_factor=replicas, topic_configs=config)
    response = await admin.create_topics([new])
    _, code, message = response.topic_errors[0]
    error = for_code(code)
    if error is TopicAuthorizationFailedError:
        raise TopicError(f"topic {topic!r} is missing and we may not make it: make it, or grant Create on it")
    if error in {InvalidConfigurationError, PolicyViolationError} and "max.message.bytes" in config:
        smaller = {name: value for name, value in config.items() if name != "max.message.bytes"}
        await _make(admin, settings, topic, partitions, smaller)  # the cluster has a limit of its own
        return
    if code and error is not TopicAlreadyExistsError:
        raise TopicError(f"topic {topic!r} could not be made: {message or error.description}")
    log.info("topic-made", topic=topic, partitions=partitions, **{k.replace(".", "_"): v for k, v in config.items()})


async def _default_replication(admin: AIOKafkaAdminClient) -> int:
    """The broker's default; asked for, since aiokafka speaks no CreateTopics that leaves it to the broker (KIP-464)."""
    metadata = await admin._get_cluster_metadata()
    broker = metadata.brokers[0][0]
    (response,) = await admin.describe_configs([ConfigResource(ConfigResourceType.BROKER, str(broker))])
    code, _, _, _, entries = response.resources[0]
    if code == 0:
        return int({entry[0]: entry[1] for entry in entries}["default.replication.factor"])
    # Not allowed to ask: what a careful person would take.
    return min(3, len(metadata.brokers))


async def _configs(admin: AIOKafkaAdminClient, topics: list[str]) -> dict[str, dict[str, str]]:
    """Each topic's configuration; a topic whose configuration we may not read is left out."""
    resources = [ConfigResource(ConfigResourceType.TOPIC, topic) for topic in topics]
    found: dict[str, dict[str, str]] = {}
    for response in await admin.describe_configs(resources):
        for code, _, _, topic, entries in response.resources:
            error = for_code(code)
            if error is UnknownTopicOrPartitionError:  # made a moment ago, and this broker has not heard of it yet
                await asyncio.sleep(_SPREADING)
                return await _configs(admin, topics)
            if code == 0:
                found[topic] = {entry[0]: entry[1] for entry in entries}
            else:
                log.info("topic-config-hidden", topic=topic, reason=error.message, assumed=DEFAULT_LIMIT)
    return found


def _warn_of_retention(settings: Settings, source: dict[str, str], configs: dict[str, dict[str, str]]) -> None:
    """Kept timestamps meet time-based retention: old events can be deleted as soon as they are written."""
    kept = _retention(source)
    for topic, config in configs.items():
        if "delete" in config.get("cleanup.policy", "delete") and _retention(config) < kept:
            log.warning(
                "retention-shorter-than-input",
                topic=topic,
                retention_ms=config["retention.ms"],
                input_topic=settings.input_topic,
                input_retention_ms=source.get("retention.ms"),
            )


def _retention(config: Mapping[str, Any]) -> float:
    value = int(config.get("retention.ms", -1))
    return float("inf") if value < 0 else value
