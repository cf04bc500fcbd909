"""The cluster as ``worker check`` finds it: questions in, plain values out. What they mean is ``verdicts.py``'s.

Every question is harmless. Topics, groups, configurations and offsets are read; a topic that is missing is made with
``validate_only``, which makes nothing; and a producer id is asked for, exactly once for a transactional id that no
worker uses (``…-check``), because only that shows whether we may. No transaction is begun.
"""

# ruff: noqa: SLF001 - aiokafka's admin client has no public way to put these questions

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from aiokafka.errors import (
    ConcurrentTransactions,
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    KafkaError,
    NoError,
    NotCoordinatorForGroupError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.protocol.commit import OffsetFetchRequest
from aiokafka.protocol.transaction import InitProducerIdRequest
from aiokafka.structs import TopicPartition

from worker.kafka import connection, topics
from worker.kafka.protocol import DescribeGroupsRequest, MetadataRequest, operations
from worker.kafka.retry import describe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from worker.settings import Settings

#: How long a coordinator may take to come up; on a fresh cluster the first question makes its topic.
_COORDINATOR_SECONDS = 15.0
_OFFSET_SECONDS = 10.0
#: What the worker's producers ask for (aiokafka's default), so that the probe meets the broker's limit too.
_TRANSACTION_TIMEOUT_MS = 60_000
_FOR_GROUPS, _FOR_TRANSACTIONS = 0, 1
_NOT_YET = (
    GroupCoordinatorNotAvailableError,  # of transactions, too
    GroupLoadInProgressError,
    NotCoordinatorForGroupError,
    ConcurrentTransactions,
)


class Partition(NamedTuple):
    """One partition: who leads it (-1: nobody) and how many copies are there and up to date."""

    number: int
    leader: int
    replicas: int
    in_sync: int


@dataclasses.dataclass(frozen=True, slots=True)
class Topic:
    """A topic; ``error`` says why there is nothing to say: ``missing``, or what the cluster answered."""

    name: str
    error: str | None = None
    partitions: tuple[Partition, ...] = ()
    rights: frozenset[str] | None = None
    """What we may do with it; None where the broker does not say."""
    config: Mapping[str, str] | None = None
    """None where we may not read it."""
    refusal: str | None = None
    """A missing topic: why it could not be made, if it could not."""
    bounds: Mapping[int, tuple[int, int]] = dataclasses.field(default_factory=dict)
    """First offset and end of each partition that could be asked (the input topic's)."""


class Member(NamedTuple):
    """A member of the group, and the topics it wants."""

    client_id: str
    host: str
    topics: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """The consumer group."""

    error: str | None = None
    protocol_type: str = ""
    members: tuple[Member, ...] = ()
    rights: frozenset[str] | None = None
    commits: Mapping[TopicPartition, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """All that was found. A probe's value is None when it went well, else what the cluster said."""

    brokers: int
    rights: frozenset[str] | None
    input: Topic
    output: Topic
    dead_letters: Topic
    internal: tuple[Topic, ...]
    """Where the cluster keeps offsets and, if we use any, transactions; without those that we may not see."""
    group: Group
    idempotent: str | None
    transactional: str | None
    transactional_id: str | None
    """Which one was tried; None where none is needed."""


def probe_id(settings: Settings) -> str:
    """A transactional id under the prefix of the worker's own, and never one of them: theirs end in a number."""
    return f"{settings.group_id}-{settings.input_topic}-check"


async def look(settings: Settings) -> View:
    """Ask everything. Raises ``KafkaError`` when the cluster goes away meanwhile."""
    admin = AIOKafkaAdminClient(**connection.arguments(settings))
    try:
        await admin.start()
        return await _look(admin, settings)
    finally:
        await admin.close()


async def _look(admin: AIOKafkaAdminClient, settings: Settings) -> View:
    names = [settings.input_topic, settings.output_topic, settings.dead_letter_topic]
    exactly_once = settings.guarantee == "exactly-once"
    internal = ["__consumer_offsets", "__transaction_state"] if exactly_once else ["__consumer_offsets"]
    brokers, rights, found = await topics_by_name(admin, names + internal)
    readable = await configs(admin, [name for name in found if found[name].error is None])
    source = dataclasses.replace(found[names[0]], config=readable.get(names[0]))
    wanted = settings.partitions or len(source.partitions) or topics.DEFAULT_PARTITIONS
    for name in found:
        found[name] = dataclasses.replace(found[name], config=readable.get(name))
    for name in names:
        if found[name].error == "missing" and settings.create_topics:
            refusal = await _refusal(admin, settings, name, wanted)
            found[name] = dataclasses.replace(found[name], refusal=refusal)
    return View(
        brokers=brokers,
        rights=rights,
        input=dataclasses.replace(found[names[0]], bounds=await _bounds(settings, found[names[0]])),
        output=found[names[1]],
        dead_letters=found[names[2]],
        internal=tuple(found[name] for name in internal if found[name].error is None),
        group=await _group(admin, settings.group_id),
        idempotent=await _producer_id(admin, None),
        transactional=await _producer_id(admin, probe_id(settings)) if exactly_once else None,
        transactional_id=probe_id(settings) if exactly_once else None,
    )


async def topics_by_name(
    admin: AIOKafkaAdminClient, names: list[str]
) -> tuple[int, frozenset[str] | None, dict[str, Topic]]:
    """How many brokers there are, what we may do with the cluster, and each topic without its configuration."""
    answer = await admin._send_request(MetadataRequest(names))
    found = {}
    for code, name, _, partitions, bits in answer.topics:
        error = for_code(code)
        if error is UnknownTopicOrPartitionError:
            found[name] = Topic(name, "missing")
        elif error is not NoError:
            found[name] = Topic(name, error.message)
        else:
            rows = tuple(
                Partition(number, leader, len(replicas), len(in_sync))
                for _, number, leader, _, replicas, in_sync, _ in sorted(partitions, key=lambda row: row[1])
            )
            found[name] = Topic(name, None, rows, operations(bits))
    return len(answer.brokers), operations(answer.authorized_operations), found


async def configs(admin: AIOKafkaAdminClient, names: list[str]) -> dict[str, dict[str, str]]:
    """Each topic's configuration; one that we may not read is left out."""
    if not names:
        return {}
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    return {
        name: {entry[0]: entry[1] for entry in entries}
        for response in await admin.describe_configs(resources)
        for code, _, _, name, entries in response.resources
        if code == 0
    }


async def _refusal(admin: AIOKafkaAdminClient, settings: Settings, name: str, partitions: int) -> str | None:
    replicas = settings.replication_factor or await topics._default_replication(admin)
    new = NewTopic(name=name, num_partitions=partitions, replication_factor=replicas)
    ((_, code, message),) = (await admin.create_topics([new], validate_only=True)).topic_errors
    return None if code == 0 else message or for_code(code).message


async def _bounds(settings: Settings, topic: Topic) -> dict[int, tuple[int, int]]:
    """Where each partition begins and ends. One without a leader would be waited for, so only the others are asked."""
    asked = [TopicPartition(topic.name, each.number) for each in topic.partitions if each.leader >= 0]
    if not asked:
        return {}
    consumer = AIOKafkaConsumer(**connection.arguments(settings), enable_auto_commit=False)
    try:
        await consumer.start()
        first = await asyncio.wait_for(consumer.beginning_offsets(asked), _OFFSET_SECONDS)
        end = await asyncio.wait_for(consumer.end_offsets(asked), _OFFSET_SECONDS)
    except (KafkaError, TimeoutError):
        return {}
    finally:
        await consumer.stop()
    return {tp.partition: (first[tp], end[tp]) for tp in asked}


async def _group(admin: AIOKafkaAdminClient, group_id: str) -> Group:
    async def ask() -> Any:  # noqa: ANN401
        coordinator = await _coordinator(admin, group_id, _FOR_GROUPS)
        if isinstance(coordinator, str):
            return NoError, Group(error=coordinator)
        answer = await admin._send_request(DescribeGroupsRequest(group_id), coordinator)
        ((code, _, _, protocol_type, _, members, bits),) = answer.groups
        if code != 0:
            return for_code(code), None
        fetched = await admin._send_request(OffsetFetchRequest(group_id, None), coordinator)
        commits = {
            TopicPartition(topic, partition): offset
            for topic, rows in fetched.topics
            for partition, offset, _, error in rows
            if error == 0 and offset >= 0
        }
        everyone = tuple(Member(client, host.lstrip("/"), _subscription(data)) for _, client, host, data, _ in members)
        return for_code(fetched.error_code), Group(None, protocol_type or "", everyone, operations(bits), commits)

    found: Group | str = await _patiently(ask)  # a coordinator may be new to the group
    return Group(error=found) if isinstance(found, str) else found


def _subscription(data: bytes) -> tuple[str, ...]:
    """The topics a member named when it joined; a protocol that we don't know names none."""
    try:
        return tuple(ConsumerProtocolMemberMetadata.decode(data).subscription)
    except ValueError:  # what aiokafka raises on bytes of another shape
        return ()


async def _producer_id(admin: AIOKafkaAdminClient, transactional_id: str | None) -> str | None:
    """Ask for a producer id, as every producer does when it starts; None if all went well."""
    node = None
    if transactional_id is not None:
        node = await _coordinator(admin, transactional_id, _FOR_TRANSACTIONS)
        if isinstance(node, str):
            return node

    async def ask() -> Any:  # noqa: ANN401 - aiokafka has no types
        answer = await admin._send_request(InitProducerIdRequest(transactional_id, _TRANSACTION_TIMEOUT_MS), node)
        return for_code(answer.error_code), answer

    answer = await _patiently(ask)
    return answer if isinstance(answer, str) else None


async def _coordinator(admin: AIOKafkaAdminClient, key: str, kind: int) -> int | str:
    async def ask() -> Any:  # noqa: ANN401
        try:
            return NoError, await admin._client.coordinator_lookup(kind, key)
        except KafkaError as error:
            return type(error), None

    answer: int | str = await _patiently(ask)
    return answer


async def _patiently(ask: Any) -> Any:  # noqa: ANN401
    """Put a question until a coordinator is there to answer; the answer, or the error's name."""
    loop = asyncio.get_running_loop()
    end = loop.time() + _COORDINATOR_SECONDS
    while True:
        try:
            error, answer = await ask()
        except KafkaError as failure:
            return describe(failure)
        if error is NoError:
            return answer
        if not issubclass(error, _NOT_YET) or loop.time() > end:
            return error.message
        await asyncio.sleep(0.2)
