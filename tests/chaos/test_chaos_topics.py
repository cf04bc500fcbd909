"""What happens to topics under a worker: missing at first, more partitions, deleted records, deleted and made again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from chaos.events import PARTITIONS, Source
from chaos.scene import Scene
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined] # not in its __all__
from kafka_help import create_topic, until

if TYPE_CHECKING:
    from worker.kafka.throwaway import ThrowawayKafka

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]

both = pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])


@both
def test_no_broker_at_start(kafka: ThrowawayKafka, guarantee: str, seed: int) -> None:
    """A worker waits for its broker, leaves at once with 0 when asked to, and works when the broker comes."""
    with Scene(kafka, guarantee, seed, events=10_000, seconds=10, workers=0) as scene:
        kafka.stop(keep_data=True)
        waiting, leaving = scene.fleet.start(), scene.fleet.start()
        until(lambda: waiting.said("waiting-for-broker") and leaving.said("waiting-for-broker"))
        scene.fleet.remove(leaving)
        code, seconds = leaving.stop()
        kafka.start()
        begin = time.monotonic()
        scene.wait_for_output()
        print(f"{guarantee}: output {time.monotonic() - begin:.1f} s after the broker's start")  # noqa: T201
        verdict = scene.settle()
        assert verdict.holds(guarantee), verdict
        assert not verdict.doubled
        assert (code, waiting.alive, seconds < 5) == (0, False, True)


@both
def test_input_topic_made_later(kafka: ThrowawayKafka, guarantee: str, seed: int) -> None:
    """A worker that may not make topics waits for its input, leaves with 0 when asked to, or works when it comes."""
    not_ours = {"WORKER_CREATE_TOPICS": "false"}
    with Scene(kafka, guarantee, seed, events=10_000, seconds=5, workers=1, topics=False, settings=not_ours) as scene:
        waiting, leaving = scene.fleet.workers[0], scene.fleet.start()
        until(lambda: waiting.said("waiting-for-input-topic") and leaving.said("waiting-for-input-topic"))
        scene.fleet.remove(leaving)
        code, seconds = leaving.stop()
        for topic in (scene.output, scene.dead_letters, scene.name):
            create_topic(kafka.bootstrap, topic, PARTITIONS)
        scene.begin()
        scene.wait_for_output()
        verdict = scene.settle()
        assert verdict.holds(guarantee), verdict
        assert not verdict.doubled
        assert (code, seconds < 5) == (0, True)


@both
def test_partitions_added(kafka: ThrowawayKafka, guarantee: str, seed: int) -> None:
    """New partitions are read from their first event, though the group starts from the latest."""
    latest = {"WORKER_START_FROM": "latest"}
    with Scene(kafka, guarantee, seed, events=20_000, seconds=20, workers=0, settings=latest) as scene:
        scene.fleet.start(WORKER_START_FROM="earliest")
        scene.fleet.start(WORKER_START_FROM="earliest")
        scene.wait_for_output()
        for worker in list(scene.fleet.workers):
            scene.fleet.retire(worker)
            scene.fleet.start()
        scene.wait_for_output()
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        admin.create_partitions([NewPartitions(scene.name, PARTITIONS + 2)])[scene.name].result(30)
        scene.source.wait_for_partitions(PARTITIONS + 2)
        scene.events.widen(PARTITIONS + 2)
        verdict = scene.settle()
        assert verdict.holds(guarantee), verdict


@both
def test_committed_offset_deleted(kafka: ThrowawayKafka, guarantee: str, seed: int) -> None:
    """What was deleted unread is all that is missing; the worker says what it lost and goes on."""
    with Scene(kafka, guarantee, seed, events=20_000, seconds=15, workers=2) as scene:
        scene.wait_for_output()
        for worker in list(scene.fleet.workers):
            scene.fleet.retire(worker)
        scene.source.finish()
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        per_partition = len(scene.events.fates) // PARTITIONS
        cut = {number: scene.dice.randrange(per_partition * 2 // 3, per_partition) for number in range(PARTITIONS)}
        committed = scene.committed()
        for future in admin.delete_records([TopicPartition(scene.name, p, o) for p, o in cut.items()]).values():
            future.result(30)
        # Serials go round the partitions: the one at offset n of partition p is p + n * PARTITIONS.
        deleted = {p + n * PARTITIONS for p, end in cut.items() for n in range(committed[p], end)}
        scene.due = dict.fromkeys(set(range(len(scene.events.fates))) - deleted, 1)
        worker = scene.fleet.start()
        verdict = scene.settle()
        assert verdict.holds(guarantee), verdict
        assert not verdict.doubled
        assert worker.log.read_text().count("committed-offset-lost") == PARTITIONS


@both
def test_records_deleted_under_the_reader(kafka: ThrowawayKafka, guarantee: str, seed: int) -> None:
    """Retention that overtakes a worker at work takes away no more than the unread events it deleted."""
    with Scene(kafka, guarantee, seed, events=200_000, seconds=20, workers=1) as scene:
        scene.wait_for_output()
        scene.fleet.workers[0].freeze()
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        before = len(scene.events.fates)
        until(lambda: len(scene.events.fates) > before + 30_000)
        cut = dict.fromkeys(range(PARTITIONS), (before + 24000) // PARTITIONS)
        for future in admin.delete_records([TopicPartition(scene.name, p, o) for p, o in cut.items()]).values():
            future.result(30)
        scene.fleet.workers[0].thaw()
        scene.source.finish()
        # Which of the deleted ones had been read cannot be known: they may be missing, and may not come twice.
        scene.may_be_missing = {p + n * PARTITIONS for p, end in cut.items() for n in range(end)}
        scene.due = dict.fromkeys(range(len(scene.events.fates)), 1)
        verdict = scene.settle()
        assert verdict.holds(guarantee), verdict
        assert not verdict.doubled


@both
def test_deleted_and_made_again(kafka: ThrowawayKafka, guarantee: str, seed: int) -> None:
    """An input topic that is deleted and made again is read from its first event."""
    with Scene(kafka, guarantee, seed, events=12_000, seconds=6, workers=2) as scene:
        scene.wait_for_output()
        scene.source.finish()
        scene.catch_up()
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        admin.delete_topics([scene.name], operation_timeout=30)[scene.name].result(30)
        until(lambda: scene.name not in admin.list_topics(timeout=5).topics)
        time.sleep(scene.dice.uniform(0, 5))
        create_topic(kafka.bootstrap, scene.name, PARTITIONS)
        begin = time.monotonic()
        scene.source = Source(kafka.bootstrap, scene.name, scene.events, 24_000, 12)
        scene.source.start()
        scene.wait_for_output()
        print(f"{guarantee}: output {time.monotonic() - begin:.1f} s after the topic was made again")  # noqa: T201
        scene.source.finish()
        scene.due = dict.fromkeys(range(len(scene.events.fates)), 1)
        verdict = scene.settle()
        assert verdict.holds(guarantee), verdict
        assert not verdict.doubled
