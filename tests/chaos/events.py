"""The events of a run and what must become of each, known from the serial number and the seed alone.

The key of an event is its serial number; serials go round the input partitions, so that within a partition they grow.
About one event in a hundred can't be read, two are empty; which ones is drawn from the seed.
"""

from __future__ import annotations

import random
import threading
import time
from typing import Literal

from confluent_kafka import KafkaException, Producer

PARTITIONS = 6
_BURST_SECONDS = 0.1

Fate = Literal["message", "dropped", "dead"]


class Events:
    """The events of a run, as many as are asked for."""

    def __init__(self, seed: int) -> None:
        """Begin with none."""
        self.fates: list[Fate] = []
        self._widths = [(0, PARTITIONS)]  # from this serial on, so many partitions
        self._dice = random.Random(seed)  # noqa: S311 - not a secret

    def draw(self, count: int) -> range:
        """Add so many; returns their serial numbers."""
        first = len(self.fates)
        for _ in range(count):
            at = self._dice.random()
            self.fates.append("dead" if at < 0.01 else "dropped" if at < 0.03 else "message")
        return range(first, first + count)

    def value(self, serial: int) -> bytes:
        """What is sent."""
        fate = self.fates[serial]
        if fate == "dead":
            return b'{"text":"event %d never ends' % serial
        text = (
            b""
            if fate == "dropped"
            else b"event %d, with some words so that it is as long as one in real life" % serial
        )
        return b'{"text":"%s","role":"user"}' % text

    def stands_for(self, serial: int, value: bytes | None) -> bool:
        """Whether an output or a dead letter holds what it should."""
        if self.fates[serial] == "dead":
            return value == self.value(serial)
        return value is not None and b'"content":"event %d, with' % serial in value

    def partition(self, serial: int) -> int:
        """Where it is sent."""
        return serial % next(width for first, width in reversed(self._widths) if first <= serial)

    def widen(self, partitions: int) -> None:
        """Send what follows to so many partitions."""
        self._widths.append((len(self.fates), partitions))


class Source(threading.Thread):
    """Sends ``count`` events in about ``seconds``, and goes on at that pace until it is told that it is enough.

    Each event is sent once, whatever the broker does meanwhile.
    """

    def __init__(self, bootstrap: str, topic: str, events: Events, count: int, seconds: float) -> None:
        """Note what is to be sent."""
        super().__init__(name="source", daemon=True)
        self.sent = 0
        self.failed: list[str] = []
        self._topic = topic
        self._events = events
        self._count = count
        self._burst = max(1, round(count * _BURST_SECONDS / seconds))
        self._seconds = seconds
        self._enough = threading.Event()
        self._giving_up = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "batch.size": 200_000,
                "queue.buffering.max.messages": 1_000_000,
                "message.timeout.ms": 0,  # for as long as it takes
                # A topic whose broker has gone is none after 30 s otherwise, and is looked for each five minutes.
                "topic.metadata.propagation.max.ms": 3_600_000,
                "topic.metadata.refresh.interval.ms": 2_000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        """Send them, and note what kept them from being sent."""
        try:
            self._send()
        except (KafkaException, BufferError) as error:
            self.failed.append(str(error))

    def _send(self) -> None:
        """Send them, in bursts, in step with the clock."""
        due = time.monotonic()
        while not (self._giving_up.is_set() or (self._enough.is_set() and len(self._events.fates) >= self._count)):
            for serial in self._events.draw(self._burst):
                self._producer.produce(
                    self._topic,
                    key=b"%d" % serial,
                    value=self._events.value(serial),
                    partition=self._events.partition(serial),
                    on_delivery=self._delivered,
                )
            self._producer.poll(0)
            due += self._burst * self._seconds / self._count
            self._giving_up.wait(max(due - time.monotonic(), 0))
        while self._producer.flush(0.5) and not self._giving_up.is_set():
            pass

    def wait_for_partitions(self, count: int) -> None:
        """Wait until the producer knows of so many partitions."""
        while len(self._producer.list_topics(self._topic, 30).topics[self._topic].partitions) < count:
            self._giving_up.wait(0.1)

    def finish(self) -> None:
        """Send what is left of ``count``, and wait for the broker to have it all."""
        self._enough.set()
        if self.ident is not None:
            self.join()

    def give_up(self) -> None:
        """Stop sending."""
        self._giving_up.set()
        self.join()

    def _delivered(self, error: object, _message: object) -> None:
        if error is None:
            self.sent += 1
        else:
            self.failed.append(str(error))
