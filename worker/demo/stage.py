"""What the demo runs on: a Kafka, three topics and a worker in a process of its own; events in, fates out.

1. Kafka    the one that WORKER_BROKERS names, with topics and a group that only this run has; else a throw-away one
2. topics   made as the worker would make them
3. worker   ``worker run``, told all by its environment
4. feed     send, wait until the worker has committed, read what is in the output and dead-letter topics
5. close    the worker is stopped in order; then topics and group, or the whole throw-away Kafka, are removed

Whatever ends this process, a watchdog ends the worker (and another one Kafka). Only the user's own cluster keeps the
three topics when this process is killed, and their names say whose they are.
"""

from __future__ import annotations

import asyncio
import http.client
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self
from uuid import uuid4

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError, NoError, UnknownTopicOrPartitionError, for_code
from prometheus_client.parser import text_string_to_metric_families

import worker
from worker import interrupts
from worker import settings as declarations
from worker.demo.samples import Counts, Fate
from worker.errors import BrokerError, WorkerError
from worker.kafka import connection, topics
from worker.kafka.dead_letters import REASON
from worker.kafka.ports import HOST, free_ports
from worker.kafka.throwaway import ThrowawayKafka
from worker.kafka.watchdog import Watchdog
from worker.rule.outcome import Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from types import TracebackType
    from typing import Any, TypeVar

    from aiokafka import ConsumerRecord

    T = TypeVar("T")

PARTITIONS = 3
_POLL_SECONDS = 0.05
_CONNECT_SECONDS = 20.0
_FEED_SECONDS = 60.0  # under 5 when the machine is idle
_STOP_SECONDS = 15.0

# What the demo takes from the user's environment: how to reach the cluster, and what changes no fate.
_TAKEN = ("BROKERS", "SECURITY_PROTOCOL", "SASL_", "SSL_", "GUARANTEE", "COMPRESSION", "REPLICATION_FACTOR")


class Stage:
    """Kafka, topics and worker, from ``with`` to its end."""

    def __init__(self, environ: Mapping[str, str], say: Callable[[str], None]) -> None:
        """Note what is wanted; ``say`` hears what takes time."""
        declarations.load(environ)  # a wrong or unknown setting is said before anything starts
        self._environ = environ
        self._say = say
        self._stack = ExitStack()
        self._fed = 0
        self._read_to: dict[TopicPartition, int] = {}
        self.is_ours = "WORKER_BROKERS" not in environ
        """Whether Kafka is a throw-away one."""
        (self._port,) = free_ports(1)
        self.url = f"http://{HOST}:{self._port}"
        """Where the worker's status page is."""

    def __enter__(self) -> Self:
        """Start all; what was started is removed again when a later step fails."""
        with ExitStack() as stack:
            self._open(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        """Remove all that is left."""
        self._stack.close()

    def _open(self, stack: ExitStack) -> None:
        taken = {name: value for name, value in self._environ.items() if name.startswith(_wanted_names())}
        if self.is_ours:
            kafka = stack.enter_context(ThrowawayKafka(say=self._say))
            stack.callback(kafka.kill)  # its data is of no more use: no need for a stop in good order
            taken["WORKER_BROKERS"] = kafka.bootstrap
            events, messages, group = "text-events", "messages", "text-to-message"
        else:
            group = f"worker-demo-{uuid4().hex[:8]}"
            events, messages = f"{group}-events", f"{group}-messages"
        variables = taken | {
            "WORKER_GROUP_ID": group,
            "WORKER_INPUT_TOPIC": events,
            "WORKER_OUTPUT_TOPIC": messages,
            "WORKER_PARTITIONS": str(PARTITIONS),
            "WORKER_COMMIT_INTERVAL": "100ms",  # a person waits for each answer
            "WORKER_HTTP_PORT": str(self._port),
        }
        self.settings = declarations.load(variables)
        brokers = ",".join(self.settings.brokers)
        self._say(f"making topics on {brokers}")
        if not self.is_ours:
            stack.push(self._remove_topics)
        hint = "" if self.is_ours else ": start it, or unset WORKER_BROKERS to have a Kafka started here"
        self._run(topics.prepare(self.settings), _CONNECT_SECONDS, f"no broker answers at {brokers}{hint}")
        self._say("starting the worker, feeding it")
        self._worker = _Worker(self._environ, variables)
        stack.callback(self._worker.close)
        self._worker.start()

    def check(self) -> None:
        """Say so if the worker has ended."""
        self._worker.check()

    def close(self) -> None:
        """Stop the worker in order, which it must manage, and remove the rest."""
        self._say("stopping the worker" + (" and Kafka" if self.is_ours else ", removing the demo's topics"))
        code = self._worker.stop()
        self._stack.close()
        if code != 0:
            raise WorkerError(f"demo: the worker ended with exit code {code} instead of 0")

    def feed(self, values: Sequence[bytes | None], expected: Sequence[Fate] | None = None) -> list[Fate]:
        """Send the events and return what became of each, in order.

        Nothing is written about a dropped event, so its reason is the ``expected`` one (by default, the rule's own
        word); the counts tell whether that is true.
        """
        expected = expected or [self._expected(value) for value in values]
        keys = [b"demo-%d" % (self._fed + number) for number in range(1, len(values) + 1)]
        self._fed += len(values)
        places = self._run(self._send(keys, values), _CONNECT_SECONDS, "the events could not be sent")
        self._wait_until_committed(places)
        wanted = {key for key, fate in zip(keys, expected, strict=True) if fate.kind != "dropped"}
        found = self._run(self._collect(wanted), _CONNECT_SECONDS, "not every outcome is in its topic")
        return [found.get(key, fate) for key, fate in zip(keys, expected, strict=True)]

    def counts(self) -> Counts:
        """Return what the worker has counted, from ``/metrics``."""
        sums: dict[str, dict[str, int]] = {}
        for family in text_string_to_metric_families(self._metrics()):
            for sample in family.samples:
                if sample.name.endswith("_total") and sample.value:  # a reason is there from the start, at zero
                    by_reason = sums.setdefault(sample.name, {})
                    reason = sample.labels.get("reason", "")
                    by_reason[reason] = by_reason.get(reason, 0) + int(sample.value)

        def total(name: str) -> int:
            return sum(sums.get(name, {}).values())

        return Counts(
            consumed=total("worker_events_consumed_total"),
            produced=total("worker_messages_produced_total"),
            dropped=sums.get("worker_events_dropped_total", {}),
            dead_lettered=sums.get("worker_events_dead_lettered_total", {}),
            roles_replaced=total("worker_roles_replaced_total"),
        )

    # --- the steps of feed --------------------------------------------------------------------------------------------

    def _expected(self, value: bytes | None) -> Fate:
        explanation = Rule().explain(value, ())
        if explanation.outcome == "message":
            return Fate("message", "")
        return Fate("dropped" if explanation.outcome == "dropped" else "dead letter", explanation.reason or "")

    async def _send(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> dict[int, int]:
        """Send all; return the last offset in each partition that got some."""
        async with connection.producer(self.settings) as producer:
            topic = self.settings.input_topic
            sent = [await producer.send(topic, value, key) for key, value in zip(keys, values, strict=True)]
            places = await asyncio.gather(*sent)
        return {
            partition: max(p.offset for p in places if p.partition == partition)
            for partition in {place.partition for place in places}
        }

    def _wait_until_committed(self, places: Mapping[int, int]) -> None:
        end = time.monotonic() + _FEED_SECONDS
        while not self._committed(places):
            self.check()
            if time.monotonic() > end:
                raise WorkerError(f"demo: the worker has not committed the events in {_FEED_SECONDS:.0f} s")
            time.sleep(_POLL_SECONDS)

    def _committed(self, places: Mapping[int, int]) -> bool:
        committed = {}
        with suppress(OSError):  # it does not listen yet
            for family in text_string_to_metric_families(self._metrics()):
                if family.name == "worker_committed_offset":
                    committed = {int(sample.labels["partition"]): sample.value for sample in family.samples}
        return all(committed.get(partition, -1) > offset for partition, offset in places.items())

    def _metrics(self) -> str:
        server = http.client.HTTPConnection(HOST, self._port, timeout=5)
        try:
            server.request("GET", "/metrics")
            return server.getresponse().read().decode()
        finally:
            server.close()

    async def _collect(self, wanted: set[bytes]) -> dict[bytes, Fate]:
        """Read on in both topics until all keys have come."""
        found: dict[bytes, Fate] = {}
        if not wanted:  # a consumer that is stopped before it has read raises CancelledError (aiokafka 0.14)
            return found
        async with AIOKafkaConsumer(
            **connection.arguments(self.settings),
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        ) as consumer:
            outputs = (self.settings.output_topic, self.settings.dead_letter_topic)
            places = [TopicPartition(topic, partition) for topic in outputs for partition in range(PARTITIONS)]
            consumer.assign(places)
            for place in places:
                consumer.seek(place, self._read_to.get(place, 0))
            while wanted - found.keys():
                for place, records in (await consumer.getmany(timeout_ms=100)).items():
                    found |= {record.key: self._fate(record) for record in records}
                    self._read_to[place] = records[-1].offset + 1
        return found

    def _fate(self, record: ConsumerRecord) -> Fate:
        if record.topic == self.settings.dead_letter_topic:
            reason = dict(record.headers).get(REASON) or b"?"
            return Fate("dead letter", reason.decode(errors="replace"))
        # The message is shown as it was written, not as we would write it.
        return Fate("message", record.value.decode().partition('],"message":')[2].removesuffix("}"))

    # --- the rest -----------------------------------------------------------------------------------------------------

    def _run(self, work: Coroutine[Any, Any, T], seconds: float, failure: str) -> T:
        async def run() -> T:
            async with asyncio.timeout(seconds):
                return await work

        try:
            return asyncio.run(run())
        except TimeoutError:
            raise BrokerError(f"demo: {failure} (waited {seconds:.0f} s)") from None
        except KafkaError as error:
            raise BrokerError(f"demo: {failure}: {error}") from error

    def _remove_topics(
        self, _type: type[BaseException] | None, error: BaseException | None, _at: TracebackType | None
    ) -> None:
        """Leave nothing on the user's cluster: without its topics, the broker soon forgets the group by itself."""
        try:
            self._run(self._delete_topics(), _CONNECT_SECONDS, f"{self.settings.group_id}-* could not be removed")
        except BrokerError:
            if not isinstance(error, BrokerError):  # the cluster can't be reached: said already
                raise

    async def _delete_topics(self) -> None:
        settings = self.settings
        admin = AIOKafkaAdminClient(**connection.arguments(settings))
        try:
            await admin.start()
            names = [settings.input_topic, settings.output_topic, settings.dead_letter_topic]
            response = await admin.delete_topics(names)
        finally:
            await admin.close()
        for _, code in response.topic_error_codes:
            error = for_code(code)
            if error is not NoError and error is not UnknownTopicOrPartitionError:
                raise error


class _Worker:
    """``worker run`` as a process."""

    _process: subprocess.Popen[bytes] | None = None
    _watchdog: Watchdog | None = None

    def __init__(self, environ: Mapping[str, str], variables: Mapping[str, str]) -> None:
        others = {name: value for name, value in environ.items() if not name.startswith(declarations.PREFIX)}
        package = str(Path(worker.__file__).parents[1])  # the same code, also when it is not installed
        paths = os.pathsep.join(filter(None, (package, environ.get("PYTHONPATH"))))
        self._environ = {**others, **variables, "PYTHONPATH": paths}

    def start(self) -> None:
        # A Ctrl-C between the fork and our knowing of it would leave a process behind that nobody stops.
        with interrupts.held():
            folder = Path(tempfile.mkdtemp(prefix="worker-demo-"))
            self._log = folder / "worker.log"
            self._watchdog = Watchdog(folder)
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "worker", "run"],
                    env=self._environ,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C is for us: we stop it in order
                )
            self._watchdog.watch(self._process.pid)

    def close(self) -> None:
        """Stop it if it runs, and remove its log."""
        self.stop()
        if self._watchdog is not None:
            self._watchdog.watch(0)
            self._watchdog.leave()
            self._watchdog = None

    def check(self) -> None:
        code = self._process.poll() if self._process is not None else None
        if code is not None:
            raise WorkerError(f"demo: the worker ended by itself (exit {code}):\n{self._tail()}")

    def stop(self) -> int:
        """Stop it in order, or at once if that takes too long; return its exit code."""
        if self._process is None:
            return 0
        self._process.terminate()
        try:
            return self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def _tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-5:])


def _wanted_names() -> tuple[str, ...]:
    return tuple(declarations.PREFIX + name for name in _TAKEN)
