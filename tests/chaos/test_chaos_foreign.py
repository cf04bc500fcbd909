"""Offsets without records: other people's transactions, aborted ones, a control-only tail, a compacted topic."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from chaos.scene import Scene
from confluent_kafka import Producer
from kafka_help import create_topic, until

if TYPE_CHECKING:
    from worker.kafka.throwaway import ThrowawayKafka

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

both = pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])


@both
def test_foreign_transactions(kafka: ThrowawayKafka, guarantee: str, seed: int) -> None:
    """After 100 transactions, every other one aborted, lag is 0 within 15 s; a restart does nothing again."""
    with Scene(kafka, guarantee, seed, events=1_000, seconds=1, workers=0) as scene:
        scene.source.finish()
        producer = Producer(
            {"bootstrap.servers": kafka.bootstrap, "transactional.id": scene.name, "log_level": 0, "linger.ms": 0}
        )
        producer.init_transactions(30)
        for number in range(100):
            producer.begin_transaction()
            for serial in scene.events.draw(60):
                producer.produce(
                    scene.name,
                    key=b"%d" % serial,
                    value=scene.events.value(serial),
                    partition=scene.events.partition(serial),
                )
            if number % 2:
                producer.flush(30)  # an abort throws away what the broker does not have yet
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)
        _lag_gone_and_nothing_again(scene)


@both
def test_compacted(kafka: ThrowawayKafka, guarantee: str, seed: int) -> None:
    """Offsets that compaction took away hold nothing back."""
    eager = {
        "cleanup.policy": "compact",
        "segment.ms": "500",
        "min.cleanable.dirty.ratio": "0.01",
        "min.compaction.lag.ms": "0",
        "max.compaction.lag.ms": "1000",
    }
    with Scene(kafka, guarantee, seed, events=100, seconds=1, workers=0, topics=False) as scene:
        create_topic(kafka.bootstrap, scene.name, 6, eager)
        for topic in (scene.output, scene.dead_letters):
            create_topic(kafka.bootstrap, topic, 6)
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        serials = scene.events.draw(600)

        def send_all_again() -> bool:
            for serial in serials:
                producer.produce(
                    scene.name,
                    key=b"%d" % serial,
                    value=scene.events.value(serial),
                    partition=scene.events.partition(serial),
                )
            producer.flush(10)
            time.sleep(0.5)  # a segment must grow old (segment.ms) before the cleaner may take it
            return sum(scene.sent().values()) < scene.log_end() - 3 * len(serials)

        until(send_all_again, 90)
        scene.watch.start()
        _lag_gone_and_nothing_again(scene, compacted=True)


def _lag_gone_and_nothing_again(scene: Scene, *, compacted: bool = False) -> None:
    first = scene.fleet.start()
    until(lambda: first.said("partition-started") or first.said("no-committed-offset"))
    begin = time.monotonic()
    scene.catch_up(15)
    print(f"{scene.guarantee}: lag 0 after {time.monotonic() - begin:.1f} s")  # noqa: T201
    verdict = scene.settle()
    before = verdict.messages + verdict.dead
    scene.fleet.start()
    scene.catch_up(15)
    verdict = scene.settle()
    assert verdict.messages + verdict.dead == before
    if not compacted:  # there, a serial was sent again and again, and how often it was read before is anyone's guess
        assert verdict.exactly_once(), verdict
