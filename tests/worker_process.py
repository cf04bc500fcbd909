"""The worker as people run it: a process of its own, on topics and a group that nobody else has.

``Line`` is a production line: input, output and dead-letter topic, a group, and the workers started on it. It knows
when all is done (``settle``) and cleans up. What is read comes through ``kafka_help``, so through librdkafka.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self
from uuid import uuid4

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka_help import Input, Record, consume_all, create_topic, produce, until

from worker.kafka.dead_letters import REASON

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from types import TracebackType

ROOT = Path(__file__).parent.parent
GUARANTEES = ("at-least-once", "exactly-once")
RUN = ("-m", "worker", "run")
_SECONDS = 30.0


class Worker:
    """One worker process and its log."""

    def __init__(self, settings: Mapping[str, str], log: Path, command: Sequence[str] = RUN) -> None:
        """Start it; ``command`` are Python's arguments."""
        self.log = log
        ours = {f"WORKER_{name.upper()}": value for name, value in settings.items()}
        theirs = {name: value for name, value in os.environ.items() if not name.startswith("WORKER_")}
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, *command], cwd=ROOT, env=theirs | ours, stdout=file, stderr=subprocess.STDOUT
            )

    @property
    def text(self) -> str:
        """All it has said."""
        return self.log.read_text("utf-8", errors="replace")

    @property
    def code(self) -> int | None:
        """Its exit code, None while it runs."""
        return self._process.poll()

    def said(self, event: str, **fields: object) -> list[dict[str, Any]]:
        """Give the log lines about an event, with these fields."""
        lines = [json.loads(line) for line in self.text.split("\n")[:-1] if line.startswith("{")]
        return [line for line in lines if line["event"] == event and fields.items() <= line.items()]

    def last_words(self) -> str:
        """What it ended for."""
        (line,) = self.said("worker-failed")
        return str(line["error"])

    def wait_for(self, event: str, *, seconds: float = _SECONDS, **fields: object) -> dict[str, Any]:
        """Wait until it has said something, and give the last such line."""
        self.until(lambda: self.said(event, **fields), seconds)
        return self.said(event, **fields)[-1]

    def until(self, condition: Any, seconds: float = _SECONDS) -> None:  # noqa: ANN401 - any callable will do
        """Wait for a condition that only a living worker can bring about."""

        def done() -> bool:
            if condition():
                return True
            if self.code is not None:
                raise AssertionError(f"the worker ended with {self.code}:\n{self.text}")
            return False

        try:
            until(done, seconds)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; the worker's log:\n{self.text[-8000:]}") from None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def wait(self, seconds: float = _SECONDS) -> int:
        """Wait for its end; returns the exit code."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"the worker has not ended in {seconds:.0f} s:\n{self.text[-8000:]}") from None

    def stop(self, seconds: float = 10.0) -> int:
        """Stop it as Kubernetes does; a healthy stop takes less than ten seconds."""
        self.signal(signal.SIGTERM)
        return self.wait(seconds)

    def kill(self) -> None:
        """End it at once (SIGKILL)."""
        self._process.kill()
        self._process.wait()


class Line:
    """Three topics, a group, and its workers. Only the input topic is made here; the worker makes the others."""

    def __init__(
        self,
        bootstrap: str,
        folder: Path,
        *,
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
        **settings: str,
    ) -> None:
        """Make the input topic, unless it is to have no partitions; ``settings`` are the worker's."""
        name = uuid4().hex[:12]
        self.bootstrap = bootstrap
        self.input, self.output, self.dead = f"in-{name}", f"out-{name}", f"dead-{name}"
        self.group = f"group-{name}"
        self.workers: list[Worker] = []
        self._folder = folder
        self._settings = {
            "brokers": bootstrap,
            "group_id": self.group,
            "input_topic": self.input,
            "output_topic": self.output,
            "dead_letter_topic": self.dead,
            "http_port": "0",
            "log_format": "json",
            "commit_interval": "100ms",
            **settings,
        }
        self._books: Consumer | None = None
        if partitions:
            create_topic(bootstrap, self.input, partitions, config)

    def start(self, command: Sequence[str] = RUN, **settings: str) -> Worker:
        """Start a worker, without waiting for anything."""
        log = self._folder / f"{self.group}-{len(self.workers)}.log"
        worker = Worker({**self._settings, **settings}, log, command)
        self.workers.append(worker)
        return worker

    def run(self, **settings: str) -> Worker:
        """Start a worker and wait until it has its partitions."""
        worker = self.start(**settings)
        worker.wait_for("partitions-assigned")
        return worker

    def feed(self, records: Iterable[Input | tuple[Any, ...]], **options: Any) -> list[tuple[int, int]]:  # noqa: ANN401
        """Send input records."""
        return produce(self.bootstrap, self.input, records, **options)

    def outputs(self) -> list[Record]:
        """All messages."""
        return consume_all(self.bootstrap, self.output)

    def dead_letters(self) -> list[Record]:
        """All dead letters."""
        return consume_all(self.bootstrap, self.dead)

    def position(self) -> tuple[dict[int, int], dict[int, int]]:
        """Each partition's committed offset (-1: none) and log end, markers and open transactions included."""
        books = self._books or Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": self.group, "isolation.level": "read_uncommitted"}
        )
        self._books = books
        numbers = books.list_topics(self.input, _SECONDS).topics[self.input].partitions
        places = [TopicPartition(self.input, number) for number in numbers]
        committed = {place.partition: max(place.offset, -1) for place in books.committed(places, _SECONDS)}
        ends = {place.partition: books.get_watermark_offsets(place, _SECONDS)[1] for place in places}
        return committed, ends

    def settle(self, seconds: float = _SECONDS) -> None:
        """Wait until the lag is zero."""

        def done() -> bool:
            if all(worker.code is not None for worker in self.workers):
                logs = "\n".join(worker.text for worker in self.workers)
                raise AssertionError(f"no worker left to do it:\n{logs}")
            try:
                committed, ends = self.position()
            except KafkaException:  # a topic or coordinator that has only just come
                return False
            return committed == ends

        try:
            until(done, seconds)
        except TimeoutError:
            logs = "\n".join(worker.text for worker in self.workers)
            raise TimeoutError(f"committed and end are {self.position()}:\n{logs[-8000:]}") from None

    def close(self) -> None:
        """Leave no process behind."""
        if self._books is not None:
            self._books.close()
        for worker in self.workers:
            worker.kill()


class MakeLine(Protocol):
    """Make a production line; a fixture gives it."""

    def __call__(self, **options: Any) -> Line:  # noqa: ANN401 - Line's own
        """Make it, with its input topic."""


def lines(bootstrap: str, folder: Path) -> Iterator[MakeLine]:
    """Give a fixture its maker of production lines, and end what was made."""
    made: list[Line] = []

    def make(**options: Any) -> Line:  # noqa: ANN401 - Line's own
        made.append(Line(bootstrap, folder, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


class Feeder:
    """A steady stream of numbered events, from a thread: the load under which workers come and go.

    Event ``n`` has ``n`` as its key and goes to partition ``n`` modulo their number; each tenth is a bad one.
    """

    def __init__(self, line: Line, partitions: int, *, per_second: int = 2000) -> None:
        """Note what to do; it begins on entry and ends on exit."""
        self.count = 0
        self._line = line
        self._partitions = partitions
        self._burst = per_second // 20
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        settings = {"linger.ms": 5, "enable.idempotence": True, "log_level": 0}  # a frozen broker changes no order
        producer = Producer({"bootstrap.servers": self._line.bootstrap, **settings})
        while not self._ended.wait(0.05):
            for number in range(self.count, self.count + self._burst):
                value = b"{bad" if is_bad(number) else b'{"text":"event %d"}' % number
                producer.produce(self._line.input, value, b"%d" % number, partition=number % self._partitions)
            self.count += self._burst
            producer.poll(0)
        producer.flush(_SECONDS)

    def wait_more(self, count: int = 500) -> None:
        """Wait until it has fed some more."""
        goal = self.count + count
        until(lambda: self.count >= goal)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        """End, with everything sent."""
        self._ended.set()
        self._thread.join()


def is_bad(number: int) -> bool:
    """Whether the feeder's event of this number is a bad one."""
    return number % 10 == 7


def header(record: Record, name: str) -> bytes | None:
    """The one header of that name."""
    (value,) = (value for key, value in record.headers if key == name)
    return value


def reason(record: Record) -> str:
    """Why a dead letter is one."""
    return (header(record, REASON) or b"").decode()


def event(number: int, partition: int = 0, text: str = "event") -> Input:
    """A good event with its number as the key."""
    return Input(b"%d" % number, json.dumps({"text": f"{text} {number}"}).encode(), partition=partition)


def bad(number: int, partition: int = 0) -> Input:
    """A bad event with its number as the key."""
    return Input(b"%d" % number, b"{bad %d" % number, partition=partition)


def numbers(records: Iterable[Record]) -> list[int]:
    """The numbers of records, as they lie in the topic."""
    return [int(record.key or b"-1") for record in records]


def account(line: Line, fed: int) -> tuple[int, int, int]:
    """Count what was lost, doubled, or out of order of a feeder's events, over output and dead letters."""
    outputs, dead = line.outputs(), line.dead_letters()
    good = Counter(numbers(outputs))
    refused = Counter(numbers(dead))
    lost = sum(number not in (refused if is_bad(number) else good) for number in range(fed))
    doubled = sum((good + refused).values()) - len(good | refused)
    return lost, doubled, out_of_order(outputs) + out_of_order(dead)


def out_of_order(records: Sequence[Record]) -> int:
    """How often a partition goes backwards."""
    steps = itertools.pairwise(records)
    return sum(a.partition == b.partition and int(a.key or b"") >= int(b.key or b"") for a, b in steps)


def seconds_since(start: float) -> float:
    """Seconds since a moment of ``time.monotonic``."""
    return time.monotonic() - start
