"""One run: topics of its own, a source, workers, faults, and at the end the verdict.

    with Scene(kafka, guarantee, seed, events=20_000, seconds=30, workers=3) as scene:
        faults.kill(scene)
        verdict = scene.settle()

``settle`` waits until every event has been committed (the group's lag is 0), asks the workers to stop, and compares.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self
from uuid import uuid4

import kafka_help
from chaos import books
from chaos.events import PARTITIONS, Events, Source
from chaos.fleet import REPOSITORY, Fleet
from chaos.gaps import Watch
from chaos.verdict import judge, sent
from confluent_kafka import Consumer, KafkaException, TopicPartition

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Mapping
    from types import TracebackType

    from chaos.fleet import Worker
    from chaos.verdict import Verdict

    from worker.kafka.throwaway import ThrowawayKafka

SETTLE_SECONDS = 90.0
SOURCE_SECONDS = 600.0
_CALM_SECONDS, _CALM_GAP = 4.0, 2.5  # exactly once, output comes each commit interval (1 s)


class StuckError(Exception):
    """Events were left undone, although everything was there to do them."""


class BooksError(Exception):
    """A worker's counters don't add up."""


class Scene:
    """A run on one broker; ``verdict`` is there once it has settled."""

    verdict: Verdict

    def __init__(  # noqa: PLR0913 - a run is what its parts are
        self,
        kafka: ThrowawayKafka,
        guarantee: str,
        seed: int,
        *,
        events: int,
        seconds: float,
        workers: int = 3,
        bootstrap: str | None = None,
        brokers: str | None = None,
        code: Path = REPOSITORY,
        settings: Mapping[str, str] | None = None,
        watch: bool = True,
        topics: bool = True,
    ) -> None:
        """Workers connect to ``brokers`` (the proxy's address, if one is between), the check to the broker itself."""
        self.kafka = kafka
        self.bootstrap = bootstrap = bootstrap or kafka.bootstrap
        self.guarantee = guarantee
        self.seed = seed
        self.dice = random.Random(f"{seed} {guarantee}")  # noqa: S311 - not a secret
        self.name = f"chaos-{seed}-{uuid4().hex[:8]}"
        self.group = f"{self.name}-group"
        self.output, self.dead_letters = f"{self.name}-out", f"{self.name}-dead"
        self.events = Events(seed)
        self.source = Source(bootstrap, self.name, self.events, events, seconds)
        self.seconds = seconds
        self.folder = Path(tempfile.mkdtemp(prefix="chaos-"))
        self.watch = Watch(bootstrap, self.output, PARTITIONS)
        environment = {
            "WORKER_BROKERS": brokers or bootstrap,
            "WORKER_GROUP_ID": self.group,
            "WORKER_INPUT_TOPIC": self.name,
            "WORKER_OUTPUT_TOPIC": self.output,
            "WORKER_DEAD_LETTER_TOPIC": self.dead_letters,
            "WORKER_GUARANTEE": guarantee,
            "WORKER_LOG_FORMAT": "json",
            **(settings or {}),
        }
        self.fleet = Fleet(code, environment, self.folder, seed)
        self.due: Mapping[int, int] | None = None  # read from the input topic, unless a fault takes events away
        self.spared: set[Worker] = set()  # not to be killed
        self.may_be_missing: set[int] = set()
        self._watching = watch
        self._size = workers
        self._with_topics = topics
        self._failed = False

    def __enter__(self) -> Self:
        """Make the topics and start everything; goes on at once."""
        if self._with_topics:
            for topic in (self.name, self.output, self.dead_letters):
                kafka_help.create_topic(self.bootstrap, topic, PARTITIONS)
        for _ in range(self._size):
            self.fleet.start()
        if self._with_topics:
            self.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        """Leave nothing behind but, after a failure, the logs."""
        self.fleet.end()
        if self.source.is_alive():
            self.source.give_up()
        if self.watch.is_alive():
            self.watch.end()
        if kind is None and not self._failed:
            shutil.rmtree(self.folder)
        else:
            print(f"seed {self.seed}, {self.guarantee}: logs in {self.folder}")  # noqa: T201

    def begin(self) -> None:
        """Start the source, and the watch."""
        if self._watching:
            self.watch.start()
        self.source.start()

    def wait_for_members(self, seconds: float = 60.0) -> None:
        """Wait until every worker has been given partitions, and every partition puts something out."""
        kafka_help.until(lambda: all(one.said("partitions-assigned") for one in self.fleet.workers), seconds)
        self.wait_for_output(seconds)

    def wait_for_output(self, seconds: float = 60.0) -> None:
        """Wait until every partition has put something out from now on."""
        begin = time.monotonic()
        while self.watch.partitions_seen_since(begin) < PARTITIONS:
            self.fleet.revive()
            late = time.monotonic() - begin - seconds
            # Without lag there is nothing to put out: librdkafka's producer can take minutes to find its broker again.
            if late > 0 and (late > SOURCE_SECONDS or self.source.failed or self.lag() != 0):
                self._failed = True
                quiet = [p for p in range(PARTITIONS) if not self.watch.seen_since(p, begin)]
                raise StuckError(f"seed {self.seed}: no output of {quiet} in {seconds:.0f} s; {self._situation()}")
            time.sleep(0.02)

    def wait_for_calm(self, seconds: float = 60.0) -> None:
        """Wait until every partition has put something out in each of the last few seconds, so nothing is under way."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.wait_for_output(seconds)
            begin = time.monotonic()
            while time.monotonic() < begin + _CALM_SECONDS:
                time.sleep(0.1)
            if self.watch.longest(begin, time.monotonic(), tail=True) < _CALM_GAP:
                return
        self._failed = True
        raise StuckError(f"seed {self.seed}: no calm in {seconds:.0f} s; {self._situation()}")

    def sent(self) -> Counter[int]:
        """How often each serial lies in the input topic."""
        return sent(self.bootstrap, self.name)

    def log_end(self) -> int:
        """The sum of the input's log ends."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.group, "log_level": 0})
        try:
            numbers = consumer.list_topics(self.name, 5).topics[self.name].partitions
            return sum(consumer.get_watermark_offsets(TopicPartition(self.name, n), 5)[1] for n in numbers)
        finally:
            consumer.close()

    def committed(self) -> dict[int, int]:
        """The group's committed offsets."""
        return kafka_help.committed(self.bootstrap, self.group, self.name)

    def lag(self) -> int | None:
        """Events not yet committed; None when the broker does not say."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.group, "log_level": 0})
        try:
            partitions = consumer.list_topics(self.name, 5).topics[self.name].partitions
            places = consumer.committed([TopicPartition(self.name, number) for number in partitions], 5)
            lag = 0
            for place in places:
                low, high = consumer.get_watermark_offsets(place, 5)
                lag += high - max(place.offset, low)
        except KafkaException:
            return None
        else:
            return lag
        finally:
            consumer.close()

    def catch_up(self, seconds: float = SETTLE_SECONDS) -> None:
        """Wait until the group's lag is 0; workers that end by themselves are started again meanwhile."""
        end = time.monotonic() + seconds
        while (lag := self.lag()) != 0:
            self.fleet.revive()
            if time.monotonic() > end:
                self._failed = True
                raise StuckError(f"seed {self.seed}: lag {lag} after {seconds:.0f} s; {self._situation()}")
            time.sleep(0.3)

    def _situation(self) -> str:
        """Who may be to blame: the source, the worker, or the reader."""
        source = f"source {'sends' if self.source.is_alive() else 'has ended'}, {self.source.sent} sent"
        source += f", {self.source.failed[:3]}" * bool(self.source.failed)
        seen = {number: len(times) for number, times in sorted(self.watch.arrivals.items())}
        return f"{source}; input ends at {self.log_end()}, lag {self.lag()}; arrivals {seen}; {self.folder}"

    def check_books(self) -> None:
        """Each worker that has joined the group accounts for every event it has read."""
        for worker in self.fleet.workers:
            if worker.said("partitions-assigned") and (wrong := books.unbalanced(worker)):
                self._failed = True
                raise BooksError(f"seed {self.seed}: {worker.log}: {'; '.join(wrong)}")

    def settle(self, seconds: float = SETTLE_SECONDS, *, stop: bool = True) -> Verdict:
        """Wait for the last event to be committed, stop the workers, and judge.

        Raises ``StuckError`` when it takes more than ``seconds`` after the last event was sent, or when a worker that
        is asked to stop does not exit with 0 in time.
        """
        self.source.finish()
        if self.source.failed:
            raise RuntimeError(f"the source could not send: {self.source.failed[:3]}")
        self.catch_up(seconds)
        self.check_books()
        if stop:
            for worker in list(self.fleet.workers):
                self.fleet.retire(worker)
        due = sent(self.bootstrap, self.name) if self.due is None else self.due
        self.verdict = judge(self.bootstrap, self.events, due, self.output, self.dead_letters)
        self.verdict.lost = [serial for serial in self.verdict.lost if serial not in self.may_be_missing]
        self._failed = not self.verdict.holds(self.guarantee)
        return self.verdict
