"""Where a partition starts: by its commit, by START_FROM, or where the log begins; and what is said of it."""

from __future__ import annotations

import asyncio
import signal
import struct
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import GroupAuthorizationFailedError, GroupLoadInProgressError, NotCoordinatorForGroupError
from aiokafka.structs import OffsetAndMetadata
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined] # not in its __all__
from faust.types import TP
from kafka_help import create_topic, denied, until
from worker_process import GUARANTEES, event, numbers

from worker import settings
from worker.kafka import delivery, positions
from worker.kafka.at_least_once import AtLeastOnce
from worker.kafka.positions import Start, Why
from worker.kafka.protocol import UnstableOffsetCommitError
from worker.kafka.topics import Limits
from worker.observe.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from worker_process import Line, MakeLine

    from worker.kafka.throwaway import ThrowawayKafka

T = TypeVar("T")

# The worker as it is, but for the 30 seconds after which it looks for new partitions.
FRESH_METADATA = """
from worker.kafka import connection
connection.METADATA_MAX_AGE_MS = 1000
from worker.cli import main
main(['run'])
"""
LATE_START = (
    """
import asyncio
from worker.kafka import positions
find = positions.find
async def late(consumer, tp, **options):
    await asyncio.sleep(tp.partition and 1)
    return await find(consumer, tp, **options)
positions.find = late
"""
    + FRESH_METADATA
)


@pytest.mark.parametrize(
    ("committed", "start_from", "added", "start"),
    [
        (None, "earliest", False, Start(10, Why.FIRST_START)),
        (None, "latest", False, Start(20, Why.FIRST_START)),
        (None, "earliest", True, Start(10, Why.ADDED)),
        (None, "latest", True, Start(10, Why.ADDED)),
        (10, "latest", False, Start(10, Why.COMMITTED)),
        (15, "latest", True, Start(15, Why.COMMITTED)),
        (20, "earliest", False, Start(20, Why.COMMITTED)),
        (9, "earliest", False, Start(10, Why.LOST, lost=9)),
        (9, "latest", False, Start(20, Why.LOST, lost=9)),
        (0, "latest", True, Start(20, Why.LOST, lost=0)),
        (21, "earliest", False, Start(10, Why.LOST, lost=21)),
        (21, "latest", True, Start(20, Why.LOST, lost=21)),
    ],
)
def test_the_start_is_chosen_from_offsets_alone(
    committed: int | None,
    start_from: str,
    added: bool,  # noqa: FBT001 - a column of the table
    start: Start,
) -> None:
    """The log holds 10 to 19, so 20 is the next one to come."""
    assert positions.choose(committed, 10, 20, start_from=start_from, added=added) == start


def test_the_start_of_an_empty_log_is_its_end() -> None:
    """Nothing is lost when the commit is where the log both begins and ends."""
    assert positions.choose(7, 7, 7, start_from="latest", added=False) == Start(7, Why.COMMITTED)


def delete_before(works: Line, offsets: dict[int, int]) -> None:
    """Have the broker forget what is below these offsets."""
    admin = AdminClient({"bootstrap.servers": works.bootstrap})
    places = [TopicPartition(works.input, partition, offset) for partition, offset in offsets.items()]
    for future in admin.delete_records(places).values():
        future.result(30)


def commit(works: Line, offset: int) -> None:
    """Commit for the group, as an operator's tool would."""
    consumer = Consumer({"bootstrap.servers": works.bootstrap, "group.id": works.group})
    consumer.commit(offsets=[TopicPartition(works.input, 0, offset)], asynchronous=False)
    consumer.close()


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_commit_that_retention_overtook_while_stopped(line: MakeLine, guarantee: str) -> None:
    """The partition goes on by START_FROM with one line; the partition beside it goes on where it was."""
    works = line(partitions=2, guarantee=guarantee)
    works.feed([event(number, number % 2) for number in range(40)])
    worker = works.run()
    works.settle()
    assert worker.stop() == 0
    works.feed([event(number, number % 2) for number in range(40, 80)])
    delete_before(works, {0: 30})  # 20 is committed, 40 is the end

    worker = works.run()
    works.settle()

    assert numbers(works.outputs()) == [*range(0, 40, 2), *range(60, 80, 2), *range(1, 80, 2)]
    (said,) = worker.said("committed-offset-lost")
    assert {name: said[name] for name in ("partition", "lost", "goes_on_at", "start_from")} == {
        "partition": 0,
        "lost": 20,
        "goes_on_at": 30,
        "start_from": "earliest",
    }
    assert worker.stop() == 0
    assert works.run().said("committed-offset-lost") == []


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_position_that_retention_overtook_while_running(line: MakeLine, guarantee: str) -> None:
    """A worker that was too slow goes on by START_FROM, with one line, without a restart and without a double."""
    works = line(guarantee=guarantee)
    works.feed([event(number) for number in range(20)])
    worker = works.run()
    works.settle()
    worker.signal(signal.SIGSTOP)
    works.feed([event(number) for number in range(20, 30)])  # perhaps on its way to the worker already
    works.feed([event(number) for number in range(30, 60)])
    delete_before(works, {0: 45})
    worker.signal(signal.SIGCONT)
    works.settle()

    got = numbers(works.outputs())
    assert got in ([*range(20), *range(45, 60)], [*range(30), *range(45, 60)])
    (said,) = worker.said("committed-offset-lost")
    assert (said["goes_on_at"], said["start_from"]) == (45, "earliest")


@pytest.mark.parametrize(("start_from", "goes_on_at", "more"), [("earliest", 0, [0, 1, 2, 3, 4]), ("latest", 5, [])])
def test_a_commit_past_the_end_of_a_topic_that_was_made_again(
    line: MakeLine, start_from: str, goes_on_at: int, more: list[int]
) -> None:
    """Fewer events than were committed: nothing waits for the log to grow up to there."""
    works = line(start_from=start_from)
    works.feed([event(number) for number in range(5)])
    commit(works, 1000)

    worker = works.run()
    works.settle()
    works.feed([event(5)])
    works.settle()

    assert numbers(works.outputs()) == [*more, 5]
    (said,) = worker.said("committed-offset-lost")
    assert (said["lost"], said["goes_on_at"]) == (1000, goes_on_at)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_topic_deleted_and_made_again_while_stopped(line: MakeLine, guarantee: str) -> None:
    """The worker takes up the new one from its start."""
    works = line(guarantee=guarantee)
    works.feed([event(number) for number in range(20)])
    worker = works.run()
    works.settle()
    assert worker.stop() == 0
    recreate(works)
    works.feed([event(number) for number in range(100, 105)])

    works.run()
    works.settle()

    assert numbers(works.outputs()) == [*range(20), *range(100, 105)]


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_topic_deleted_and_made_again_while_running(line: MakeLine, guarantee: str) -> None:
    """The worker takes up the new one, or ends so that it is started again; it does not idle in silence.

    There is more in the new one than was committed of the old one, whose offsets say nothing of it.
    """
    works = line(guarantee=guarantee)
    works.feed([event(number) for number in range(5)])
    worker = works.start(("-c", FRESH_METADATA))
    works.settle()
    recreate(works)
    works.feed([event(number) for number in range(100, 130)])

    def done() -> bool:
        return worker.code is not None or numbers(works.outputs()) == [*range(5), *range(100, 130)]

    until(done, seconds=45)
    if worker.code is not None:
        works.run()
    works.settle()
    assert numbers(works.outputs()) == [*range(5), *range(100, 130)]


def recreate(works: Line) -> None:
    """Delete the input topic and make it again, empty."""
    admin = AdminClient({"bootstrap.servers": works.bootstrap})
    admin.delete_topics([works.input])[works.input].result(30)
    until(lambda: works.input not in admin.list_topics(timeout=30).topics)
    create_topic(works.bootstrap, works.input)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_latest_skips_what_is_old_but_not_partitions_added_later(line: MakeLine, guarantee: str) -> None:
    """A new group says where it starts; partitions added while it runs are read from their first event.

    The start of a new one is looked for late, as with a slow broker; the old one commits meanwhile.
    """
    works = line(guarantee=guarantee, start_from="latest", commit_interval="5ms")
    works.feed([event(number) for number in range(10)])
    worker = works.start(("-c", LATE_START))
    said = worker.wait_for("no-committed-offset")
    assert (said["partition"], said["starting_at"], said["start_from"]) == (0, 10, "latest")
    works.feed([event(10)])
    works.settle()
    assert numbers(works.outputs()) == [10]
    assert worker.stop() == 0
    worker = works.start(("-c", LATE_START))
    worker.wait_for("partition-started")

    admin = AdminClient({"bootstrap.servers": works.bootstrap})
    admin.create_partitions([NewPartitions(works.input, 3)])[works.input].result(30)
    until(lambda: len(admin.list_topics(works.input).topics[works.input].partitions) == 3)
    number = 11
    while not worker.said("no-committed-offset", partition=2):
        works.feed([event(number + partition, partition) for partition in range(3)])
        number += 3
        assert worker.code is None
    works.settle()

    assert sorted(numbers(works.outputs())) == list(range(10, number))
    assert worker.said("no-committed-offset", partition=1)[0]["starting_at"] == 0


COMMITS = [
    pytest.param([], False, id="no commit at all: a new group"),
    pytest.param([positions.since(3)], False, id="others of this generation: all are new"),
    pytest.param([positions.since(2)], True, id="one of an earlier generation"),
    pytest.param([positions.since(3), positions.since(2)], True, id="one of both"),
    pytest.param([""], True, id="one by another tool"),
]


@pytest.mark.parametrize(("said", "added"), COMMITS)
def test_a_partition_was_added_if_the_group_was_at_work_before(said: list[str], added: bool) -> None:  # noqa: FBT001
    """Seen from what the other partitions' commits carry, in generation 3."""
    commits = [OffsetAndMetadata(5, metadata) for metadata in said]

    assert positions.was_added(commits, 3) is added


async def test_an_answer_that_is_an_error_is_not_no_commit(own_kafka: ThrowawayKafka) -> None:
    """A coordinator that refuses, or is still loading, has said nothing of commits: no start may be made of it."""
    topic = create_topic(own_kafka.bootstrap, f"refused-{uuid4().hex}", 2)
    group = f"group-{uuid4().hex}"
    consumer = AIOKafkaConsumer(bootstrap_servers=own_kafka.bootstrap, group_id=group, enable_auto_commit=False)
    await consumer.start()
    consumer.subscribe([topic])
    try:
        assert await once_settled(lambda: positions.read_commits(consumer, topic, {0, 1})) == {}
        with denied(own_kafka.bootstrap, "GROUP", group, "DESCRIBE"), pytest.raises(GroupAuthorizationFailedError):
            await positions.read_commits(consumer, topic, {0, 1})
    finally:
        await consumer.stop()


async def test_a_commit_that_is_on_its_way_is_not_overlooked(broker: str) -> None:
    """An offset in an open transaction may count a moment later: whoever began at the one before it would double."""
    topic = create_topic(broker, f"unstable-{uuid4().hex}", 1)
    group = f"group-{uuid4().hex}"
    consumer = AIOKafkaConsumer(bootstrap_servers=broker, group_id=group, enable_auto_commit=False)
    await consumer.start()
    try:
        with committing(broker, group, TopicPartition(topic, 0, 3)):
            pass
        assert (await once_settled(lambda: positions.read_commits(consumer, topic, {0})))[0].offset == 3
        with committing(broker, group, TopicPartition(topic, 0, 5)):
            with pytest.raises(UnstableOffsetCommitError):
                await positions.read_commits(consumer, topic, {0})
            assert (await positions.read_commits(consumer, topic, {0}, stable=False))[0].offset == 3
        assert (await once_settled(lambda: positions.read_commits(consumer, topic, {0})))[0].offset == 5
    finally:
        await consumer.stop()


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_transaction_that_does_not_end_does_not_hold_a_partition(line: MakeLine, guarantee: str) -> None:
    """Somebody else's, or one of ours whose end the cluster has lost: after a while the offset before it counts."""
    works = line(guarantee=guarantee)
    works.feed([event(number) for number in range(3)])
    with committing(works.bootstrap, works.group, TopicPartition(works.input, 0, 2)):
        worker = works.run()
        assert "UnstableOffsetCommit" in worker.wait_for("start-unknown")["error"]
        worker.wait_for("offset-unstable")
        works.settle()
    assert numbers(works.outputs()) == [0, 1, 2]


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_stop_does_not_wait_for_a_start(line: MakeLine, guarantee: str) -> None:
    """A partition that still looks for its start has nothing to finish."""
    works = line(guarantee=guarantee)
    works.feed([event(0)])
    with committing(works.bootstrap, works.group, TopicPartition(works.input, 0, 1)):
        worker = works.run()
        worker.wait_for("start-unknown")
        assert worker.stop() == 0


async def test_only_an_unstable_offset_is_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a coordinator takes to load, what it then says must be stable."""
    monkeypatch.setattr(delivery, "UNSTABLE_SECONDS", 0.3)
    errors: list[Exception] = [*[GroupLoadInProgressError()] * 4, UnstableOffsetCommitError()]
    asked: list[bool] = []

    async def find(*_: object, stable: bool, **__: object) -> Start:
        asked.append(stable)
        if errors:
            raise errors.pop(0)
        return Start(7, Why.COMMITTED)

    monkeypatch.setattr(positions, "find", find)
    lanes = AtLeastOnce(
        settings.from_mapping({}),
        Metrics("in", "0", "at-least-once"),
        Limits(),
        wake_fetch=lambda: None,
        fail=lambda _error: None,
    )
    consumer = AIOKafkaConsumer()
    lanes.start(consumer)
    assert (await lanes.find_start(TP("in", 0))).offset == 7
    assert asked == [True] * 5 + [False]
    await consumer.stop()


@contextmanager
def committing(bootstrap: str, group: str, place: TopicPartition) -> Iterator[None]:
    """Be between the offset's way into a transaction and its commit."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"tx-{uuid4().hex}"})
    member = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.send_offsets_to_transaction([place], member.consumer_group_metadata(), 30)
    try:
        yield
        producer.commit_transaction(30)
    finally:
        member.close()


async def once_settled(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask a coordinator that may be loading still, or a transaction whose markers are still being written."""
    while True:
        try:
            return await ask()
        except (GroupLoadInProgressError, NotCoordinatorForGroupError, UnstableOffsetCommitError):
            await asyncio.sleep(0.1)


def test_a_commit_that_the_cluster_lost_is_made_again(own_line: MakeLine, own_kafka: ThrowawayKafka) -> None:
    """Exactly once: what was acknowledged is not done again, though the coordinator knows less after its restart."""
    works = own_line(guarantee="exactly-once")
    worker = works.run()
    works.feed([event(number) for number in range(3)])
    works.settle()
    (offset,) = works.position()[0].values()
    works.feed([event(number) for number in range(3, 6)])
    works.settle()
    forget_commit(works, offset)
    own_kafka.kill()
    own_kafka.start()
    with member_of(works):  # the group moves, and the worker's partition comes back to it
        worker.wait_for("commit-lost", acknowledged=works.position()[1][0], found=offset)
        works.feed([event(6)])
        works.settle()
    assert worker.stop() == 0

    assert numbers(works.outputs()) == list(range(7))


def forget_commit(works: Line, offset: int) -> None:
    """Write an older commit behind the newest one, as the coordinator itself would; only an admin client may."""
    offsets = "__consumer_offsets"
    producer = Producer({"bootstrap.servers": works.bootstrap, "client.id": "__admin_client"})
    group, topic = works.group.encode(), works.input.encode()
    key = struct.pack(f">hh{len(group)}sh{len(topic)}si", 1, len(group), group, len(topic), topic, 0)
    value = struct.pack(">hqih4sq", 3, offset, -1, 4, b"none", int(time.time() * 1000))
    for partition in producer.list_topics(offsets).topics[offsets].partitions:
        producer.produce(offsets, value, key, partition=partition)
    assert producer.flush(30) == 0


@contextmanager
def member_of(works: Line) -> Iterator[None]:
    """Be in the worker's group, for another topic."""
    other = create_topic(works.bootstrap, f"other-{uuid4().hex}")
    consumer = Consumer(
        {
            "bootstrap.servers": works.bootstrap,
            "group.id": works.group,
            "partition.assignment.strategy": "roundrobin",
            "log_level": 0,
        }
    )
    try:
        consumer.subscribe([other])
        until(lambda: consumer.poll(0.1) is None and consumer.assignment())
        yield
    finally:
        consumer.close()
