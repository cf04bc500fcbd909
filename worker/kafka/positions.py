"""Where a partition starts, and what is said when the committed offset is gone.

Decided here, from offsets alone; read from and told to Kafka in ``find``. An offset is always the next one to read.

A group that has never committed starts by ``START_FROM``. A partition added later is read from its first event
whatever ``START_FROM`` says: its events came while the group was at work. The two look the same from one partition, so
every start is committed at once, and every commit of a partition carries, as metadata, the generation in which the
group first started it: a partition without a commit is new to an old group exactly when another one was started in
an earlier generation. This needs no memory and survives restarts.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

from aiokafka.errors import (
    GroupCoordinatorNotAvailableError,
    KafkaError,
    NotCoordinatorForGroupError,
    for_code,
)
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from worker.kafka import protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiokafka import AIOKafkaConsumer


class Why(enum.Enum):
    """How a start was found."""

    COMMITTED = "committed"
    FIRST_START = "no committed offset"
    ADDED = "partition added"
    LOST = "committed offset is gone"


class Start(NamedTuple):
    """Go on at ``offset``; ``lost`` is the committed offset that no longer exists, if that is why.

    ``since`` is the metadata of every commit from here on: see the module's docstring.
    """

    offset: int
    why: Why
    lost: int | None = None
    since: str = ""


def choose(committed: int | None, log_start: int, log_end: int, *, start_from: str, added: bool) -> Start:
    """Decide where a partition starts (``START_FROM`` is ``earliest`` or ``latest``)."""
    by_setting = log_start if start_from == "earliest" else log_end
    if committed is None:
        return Start(log_start, Why.ADDED) if added else Start(by_setting, Why.FIRST_START)
    if log_start <= committed <= log_end:
        return Start(committed, Why.COMMITTED)
    # Deleted by retention or DeleteRecords (before the start), or the topic was made again (past the end).
    return Start(by_setting, Why.LOST, lost=committed)


def since(generation: int) -> str:
    """What the commits of a partition carry that the group started in this generation."""
    return f"since={generation}"


def was_added(commits: Iterable[OffsetAndMetadata], generation: int) -> bool:
    """Whether the group was at work before this generation, seen from its commits on the same topic."""
    return any(commit.metadata != since(generation) for commit in commits)


async def find(consumer: AIOKafkaConsumer, tp: TopicPartition, *, start_from: str, stable: bool) -> Start:
    """Read the committed offset and the log's bounds, and choose.

    Raises ``KafkaError`` when the cluster refuses or is not ready; waits while it can't be reached.
    """
    own = (await read_commits(consumer, tp.topic, {tp.partition}, stable=stable)).get(tp.partition)
    others: dict[int, OffsetAndMetadata] = {}
    if own is None:
        partitions = consumer.partitions_for_topic(tp.topic) or set()
        # Not held up by what is under way in another partition.
        others = await read_commits(consumer, tp.topic, partitions - {tp.partition}, stable=False)
    log_start = (await consumer.beginning_offsets([tp]))[tp]
    log_end = (await consumer.end_offsets([tp]))[tp]
    generation = consumer._coordinator.generation
    start = choose(
        own.offset if own is not None else None,
        log_start,
        log_end,
        start_from=start_from,
        added=was_added(others.values(), generation),
    )
    return start._replace(since=own.metadata if own is not None else since(generation))


async def read_commits(
    consumer: AIOKafkaConsumer, topic: str, partitions: Iterable[int], *, stable: bool = True
) -> dict[int, OffsetAndMetadata]:
    """What the group has committed, by partition; where it has no commit there is none.

    Raises ``KafkaError`` unless the coordinator has answered for every partition. aiokafka's own call does not look at
    the error that an answer carries for the whole group (OffsetFetch from v2 on, KIP-88), and then has no commits: who
    asks a coordinator that is still loading would begin anew.

    ``stable`` (KIP-447; brokers older than 2.5 don't know it): an offset in a transaction that is not over yet is an
    error. Without it a coordinator of Kafka 4 that has just taken over answers for half a second without the last
    commit, although the one before it acknowledged that: it has read it, and does not know yet that the other replicas
    have it, too.
    """
    coordinator = consumer._coordinator
    await coordinator.ensure_coordinator_known()
    request = protocol.OffsetFetchRequest(coordinator.group_id, topic, sorted(partitions), stable=stable)
    answer = await coordinator._send_req(request)
    rows = protocol.commits(answer)
    codes = [answer.error_code, *(code for *_, code in rows)]
    for error in (for_code(code) for code in codes if code):
        if issubclass(error, (NotCoordinatorForGroupError, GroupCoordinatorNotAvailableError)):
            coordinator.coordinator_dead()  # look for it anew
        raise error
    if missing := set(partitions) - {partition for partition, *_ in rows}:
        raise KafkaError(f"no word of the commits of {topic}, partitions {sorted(missing)}")
    return {partition: OffsetAndMetadata(offset, metadata) for partition, offset, metadata, _ in rows if offset >= 0}
