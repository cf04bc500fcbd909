"""confluent-kafka (librdkafka) without anything around it: consume by the batch, the worker's rule, produce each."""

from __future__ import annotations

import signal
import time
from typing import Any, NamedTuple

from bench.contenders.common import BROKERS, COMMIT_SECONDS, GROUP, INPUT, OUTPUT
from confluent_kafka import Consumer, Producer, TopicPartition

from worker.rule.outcome import Rule

_CONSUMER = {
    "bootstrap.servers": BROKERS,
    "log_level": 0,
    "group.id": GROUP,
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
    "fetch.queue.backoff.ms": 5,  # 1000 by default: the loop would mostly wait
}
_PRODUCER = {
    "bootstrap.servers": BROKERS,
    "log_level": 0,
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 20,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 200_000,
    "delivery.report.only.error": True,
}


class _Record(NamedTuple):
    value: bytes | None
    headers: Any = ()


class _Loop:
    def __init__(self) -> None:
        self._failed: list[Any] = []
        self._consumer = Consumer(_CONSUMER)
        self._producer = Producer({**_PRODUCER, "on_delivery": lambda error, _message: self._failed.append(error)})
        self._next: dict[int, int] = {}

    def run(self, stop: list[int]) -> None:
        """Work until something is put into ``stop``."""
        rule = Rule()
        self._consumer.subscribe([INPUT])
        due = time.monotonic() + COMMIT_SECONDS
        while not stop:
            messages: list[Any] = self._consumer.consume(5_000, 0.05)
            outcomes = rule.outcomes([_Record(message.value()) for message in messages])
            self._send(messages, outcomes.each)
            if time.monotonic() > due:
                self._commit()
                due = time.monotonic() + COMMIT_SECONDS
        self._commit()
        self._consumer.close()

    def _send(self, messages: list[Any], each: list[Any]) -> None:
        produce, poll, next_offsets = self._producer.produce, self._producer.poll, self._next
        for message, value in zip(messages, each, strict=True):
            partition = message.partition()
            while type(value) is bytes:
                try:
                    produce(
                        OUTPUT,
                        value,
                        message.key(),
                        partition,
                        timestamp=message.timestamp()[1],
                        headers=message.headers(),
                    )
                except BufferError:
                    poll(0.01)
                else:
                    break
            next_offsets[partition] = message.offset() + 1
        poll(0)

    def _commit(self) -> None:
        self._producer.flush()
        if self._failed:
            raise RuntimeError(self._failed)
        if self._next:
            offsets = [TopicPartition(INPUT, partition, offset) for partition, offset in self._next.items()]
            self._consumer.commit(offsets=offsets, asynchronous=False)
            self._next.clear()


def main() -> None:
    """Run until SIGTERM."""
    stop: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: stop.append(number))
    _Loop().run(stop)


if __name__ == "__main__":
    main()
