"""Three brokers: the one that looks after the group, or the transactions, or holds the output, is killed or frozen."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import TYPE_CHECKING
from uuid import uuid4

import kafka_help
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError
from chaos.events import PARTITIONS
from chaos.faults import FREEZE_SECONDS
from chaos.gaps import table
from chaos.scene import Scene
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined] # not in its __all__
from kafka_cluster import ThrowawayCluster

from worker.kafka import positions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.kafka.throwaway import ThrowawayKafka

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]

both = pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])


@pytest.fixture(scope="module")
def cluster(kafka_version: str) -> Iterator[ThrowawayCluster]:
    """Three brokers that may lose one."""
    with ThrowawayCluster(version=kafka_version) as three:
        yield three


@both
@pytest.mark.parametrize(("how", "seconds"), [("killed", 40), ("frozen", 60)])
def test_coordinators_harmed(  # noqa: PLR0913, PLR0917
    cluster: ThrowawayCluster, guarantee: str, seed: int, events: int, how: str, seconds: float
) -> None:
    """The group's coordinator, then the broker that leads most transactions, killed and back.

    Or frozen for longer than the cluster waits for them: thawed, each takes itself for the leader.
    """
    strike = _kill if how == "killed" else _freeze
    with Scene(
        cluster.nodes[0], guarantee, seed, bootstrap=cluster.bootstrap, events=events, seconds=seconds, workers=2
    ) as scene:
        scene.wait_for_output()
        strike(scene, cluster, _coordinator(scene.bootstrap, scene.group), f"group coordinator {how} (of 3)")
        if guarantee == "exactly-once":
            strike(scene, cluster, _leader_of_transactions(scene), f"transaction coordinator {how} (of 3)")
        verdict = scene.settle()
        print(f"{how}, seed {seed}, {guarantee}: {verdict}\n{table(scene.watch.gaps())}")  # noqa: T201
        assert verdict.holds(guarantee), verdict


async def test_the_next_coordinator_knows_the_last_commit(cluster: ThrowawayCluster) -> None:
    """The group's coordinator is killed just after it acknowledged an offset, which came in a transaction.

    For half a second the next one (of Kafka 4) has read that offset and would still answer with the one before it.
    """
    name = f"next-{uuid4().hex}"
    kafka_help.create_topic(cluster.bootstrap, name, 1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": name, "log_level": 0})
    member = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": name, "log_level": 0})
    consumer = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap, group_id=name, enable_auto_commit=False)

    def commit(offset: int) -> None:
        producer.begin_transaction()
        producer.send_offsets_to_transaction([TopicPartition(name, 0, offset)], member.consumer_group_metadata(), 60)
        producer.commit_transaction(60)

    await consumer.start()
    producer.init_transactions(60)
    for offset in range(10):
        commit(offset)
    node = _node(cluster, _coordinator(cluster.bootstrap, name))
    try:
        commit(10)
        node.kill()
        assert await _first_answer(consumer, name) == 10
    finally:
        await consumer.stop()
        member.close()
        node.start()


async def _first_answer(consumer: AIOKafkaConsumer, topic: str) -> int:
    while True:
        try:
            return int((await positions.read_commits(consumer, topic, {0}))[0].offset)
        except KafkaError:
            await asyncio.sleep(0.01)


@both
@pytest.mark.parametrize("which", ["output", "dead_letters"])
def test_topic_not_writable(cluster: ThrowawayCluster, guarantee: str, seed: int, hold: float, which: str) -> None:
    """With one in-sync copy too few, the broker refuses each write (NOT_ENOUGH_REPLICAS) until the other is back."""
    with Scene(
        cluster.nodes[0], guarantee, seed, bootstrap=cluster.bootstrap, events=20_000, seconds=20, topics=False
    ) as scene:
        names = {"input": scene.name, "output": scene.output, "dead_letters": scene.dead_letters}
        for what, name in names.items():
            _make_topic(scene, name, [2, 3] if what == which else [1, 2, 3])
        scene.begin()
        scene.wait_for_output()
        with scene.watch.stroke(f"{which} not writable"):
            cluster.nodes[2].kill()
            time.sleep(hold)
            cluster.nodes[2].start()
        scene.wait_for_output()
        verdict = scene.settle()
        print(f"{which} not writable, seed {seed}, {guarantee}: {verdict}\n{table(scene.watch.gaps())}")  # noqa: T201
        assert verdict.holds(guarantee), verdict


def _make_topic(scene: Scene, name: str, nodes: list[int]) -> None:
    """A topic whose copies lie on these nodes; ``min.insync.replicas`` is the cluster's, 2."""
    admin = AdminClient({"bootstrap.servers": scene.bootstrap, "log_level": 0})
    topic = NewTopic(name, num_partitions=PARTITIONS, replica_assignment=[nodes] * PARTITIONS)
    admin.create_topics([topic], operation_timeout=30)[name].result(30)


def _kill(scene: Scene, cluster: ThrowawayCluster, node_id: int, kind: str) -> None:
    node = _node(cluster, node_id)
    with scene.watch.stroke(kind):
        node.kill()
    scene.wait_for_output()
    time.sleep(scene.dice.uniform(0, 5))
    with scene.watch.stroke("the killed one back"):
        node.start()
    scene.wait_for_output()


def _freeze(scene: Scene, cluster: ThrowawayCluster, node_id: int, kind: str) -> None:
    node = _node(cluster, node_id)
    with scene.watch.stroke(kind):
        node.pause()
        time.sleep(scene.dice.uniform(*FREEZE_SECONDS))
        node.resume()
    scene.wait_for_output()


def _node(cluster: ThrowawayCluster, node_id: int) -> ThrowawayKafka:
    return next(node for node in cluster.nodes if node.node_id == node_id)


def _coordinator(bootstrap: str, group: str) -> int:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    return int(admin.describe_consumer_groups([group])[group].result(30).coordinator.id)


def _leader_of_transactions(scene: Scene) -> int:
    admin = AdminClient({"bootstrap.servers": scene.bootstrap, "log_level": 0})
    partitions = admin.list_topics("__transaction_state", timeout=30).topics["__transaction_state"].partitions
    return Counter(partition.leader for partition in partitions.values()).most_common(1)[0][0]
