"""What a whole worker shows over HTTP, on a real broker: readiness through its life, and counts that are true."""

from __future__ import annotations

import json
import signal
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaProducer
from http_help import Metrics, ask, try_asking
from kafka_help import Input, create_topic, denied
from worker_process import GUARANTEES, Line, Worker, bad, event, lines, seconds_since

from worker.kafka.ports import free_ports
from worker.kafka.throwaway import ThrowawayKafka

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from worker_process import MakeLine

EVENTS = [
    Input(b"key", json.dumps(value).encode() if not isinstance(value, bytes | None) else value, partition=number % 2)
    for number, value in enumerate(
        [
            *({"text": f"event {number}"} for number in range(100)),
            *({"text": "", "role": "user"} for _ in range(10)),
            *([None] * 6),
            {"text": "\ud800"},
            {"text": "one", "role": "boss"},
            {"text": "two", "role": 5},
            {"text": "three", "role": None},
            {"text": "", "role": "boss"},
            *([b"{bad"] * 8),
            *([b"\xff"] * 4),
            b"[]",
            {"text": "x" * 1_000_000},
        ]
    )
]
#: A lone surrogate as JSON escapes it is unserializable; an event that is dropped replaces no role.
PRODUCED, DROPPED, DEAD = (
    103,
    {"empty": 11, "tombstone": 6, "unserializable": 1},
    {
        "invalid-json": 8,
        "invalid-utf8": 4,
        "not-an-object": 1,
        "too-large": 1,
    },
)


class Probed:
    """A worker and its port."""

    def __init__(self, line: Line, **settings: str) -> None:
        """Start it."""
        (self.port,) = free_ports(1)
        self.line = line
        self.worker: Worker = line.start(http_port=str(self.port), **settings)
        self.get = partial(ask, self.port)

    def until(self, condition: Callable[[], object], seconds: float = 30) -> None:
        """Wait for a condition."""
        self.worker.until(condition, seconds)

    def until_ready(self) -> None:
        """Wait until it is ready."""
        self.until(lambda: (answer := try_asking(self.port, "/readyz")) is not None and answer.status == 200)

    def reason(self) -> str | None:
        """Why it is not ready."""
        answer = try_asking(self.port, "/readyz")
        return None if answer is None or answer.status == 200 else answer.json["reason"]

    @property
    def metrics(self) -> Metrics:
        """What it counts."""
        return Metrics.of(self.port)

    def lags(self) -> list[float]:
        """The lag of each partition it has."""
        return self.metrics.each("worker_consumer_lag", topic=self.line.input)


@pytest.fixture
def line(broker: str, tmp_path: Path) -> Iterator[MakeLine]:
    """Give a maker of production lines."""
    yield from lines(broker, tmp_path)


@pytest.fixture(scope="module")
def kafka() -> Iterator[ThrowawayKafka]:
    """Give a broker to break, which obeys access rules where a test makes one."""
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with ThrowawayKafka(properties=properties) as kafka:
        yield kafka


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_counts(line: MakeLine, guarantee: str) -> None:
    """The counters are the true counts of a run with all three outcomes; then the lag is zero and nothing in flight."""
    production = line(partitions=2, guarantee=guarantee)
    create_topic(production.bootstrap, production.output, 2, {"max.message.bytes": "900000"})
    production.feed(EVENTS, max_request_size=2_000_000)
    probed = Probed(production)
    probed.until_ready()
    probed.until(lambda: probed.lags() == [0.0, 0.0])
    metrics = probed.metrics
    fed = len(EVENTS)
    assert metrics.sum("worker_events_consumed_total", topic=production.input) == fed
    assert metrics.sum("worker_messages_produced_total") == PRODUCED == len(production.outputs())
    for name, counts in (("worker_events_dropped_total", DROPPED), ("worker_events_dead_lettered_total", DEAD)):
        assert {reason: metrics.sum(name, reason=reason) for reason in counts} == counts
        assert metrics.sum(name) == sum(counts.values())
    assert len(production.dead_letters()) == sum(DEAD.values())
    assert metrics.sum("worker_roles_replaced_total") == 2
    assert metrics.sum("worker_events_in_flight") == 0
    for partition in ("0", "1"):
        assert metrics.sum("worker_events_consumed_total", partition=partition) == sum(
            metrics.sum(f"worker_{name}_total", partition=partition)
            for name in ("messages_produced", "events_dropped", "events_dead_lettered")
        )
    assert metrics.sum("worker_committed_offset", topic=production.input) == fed
    assert metrics.sum("worker_commits_total", result="ok") > 0
    assert metrics.sum("worker_batch_events_sum") == fed
    assert metrics.sum("worker_rebalances_total") == 1
    assert metrics.each("worker_build_info", guarantee=guarantee) == [1.0]
    text = probed.get("/").body
    assert f'<p class="figure">{PRODUCED}</p>' in text
    assert "<tr><td>unserializable</td><td>1</td></tr>" in text


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_lag_where_the_log_ends_in_markers(line: MakeLine, guarantee: str) -> None:
    """Lag comes to zero behind committed and aborted transactions, and is there before any commit was made."""
    production = line(guarantee=guarantee, commit_interval="1s")
    production.feed([event(1)], transaction="commit")
    production.feed([event(2)], transaction="abort")
    probed = Probed(production)
    probed.until_ready()
    probed.until(lambda: probed.lags() == [0.0])
    assert probed.metrics.sum("worker_committed_offset") == 4


def test_lag_without_a_commit(line: MakeLine) -> None:
    """A partition that was never committed has a lag all the same, until the first commit is made."""
    production = line(commit_interval="60s", start_from="earliest")
    production.feed([event(number) for number in range(7)])
    probed = Probed(production)
    probed.until_ready()
    probed.until(lambda: probed.metrics.sum("worker_events_consumed_total") == 7)
    assert probed.lags() == [7.0]
    assert not probed.metrics.each("worker_committed_offset")


async def test_open_transaction_is_no_stall(line: MakeLine) -> None:
    """While someone's transaction is open what lies behind it counts as lag, and no restart of ours would help."""
    production = line(stall_timeout="1s")
    probed = Probed(production)
    probed.until_ready()
    async with AIOKafkaProducer(
        bootstrap_servers=production.bootstrap, transactional_id=f"{production.group}-open"
    ) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(production.input, b"{}")
        probed.until(lambda: probed.lags() == [1.0])
        seen = time.monotonic()
        answers: list[int] = []

        def long_enough() -> bool:
            answers.append(probed.get("/healthz").status)
            return seconds_since(seen) > 3

        probed.until(long_enough)
        assert set(answers) == {200}
        probed.until(lambda: "held by an open transaction" in probed.get("/").body)
        await producer.commit_transaction()
    probed.until(lambda: probed.lags() == [0.0])


def test_partitions_given_up_are_gone(line: MakeLine) -> None:
    """What another worker has taken over is shown there and nowhere else; a member without partitions is ready."""
    production = line(partitions=2)
    workers = [Probed(production), Probed(production), Probed(production)]
    for probed in workers:
        probed.until_ready()

    def shares() -> list[int]:
        return sorted(len(probed.lags()) for probed in workers)

    workers[0].until(lambda: shares() == [0, 1, 1])
    (spare,) = (probed for probed in workers if not probed.lags())
    assert spare.get("/readyz").json == {"ready": True}
    assert spare.get("/healthz").json == {"healthy": True}
    assert "a spare, ready to take some over" in spare.get("/").body
    for name in ("worker_events_consumed_total", "worker_events_in_flight", "worker_committed_offset"):
        assert not spare.metrics.each(name)
    assert not [probed for probed in workers if probed.worker.said("http-failed")]  # asked all through the rebalances


def test_readiness_through_a_life(kafka: ThrowawayKafka, tmp_path: Path) -> None:
    """Not ready, and told why, without a broker, without the topic and from a stop on; a broker's return heals it."""
    kafka.kill()
    line = Line(kafka.bootstrap, tmp_path, partitions=0, create_topics="false", stall_timeout="3s")
    probed = Probed(line)
    try:
        probed.until(lambda: probed.reason() == "waiting for the broker")
        assert probed.get("/healthz").json == {"healthy": True}
        assert probed.get("/metrics").status == 200
        assert "NOT READY" in probed.get("/").body
        probed.until(lambda: probed.get("/healthz").status == 503)
        assert probed.get("/healthz").json["reason"].startswith("no broker has answered for ")
        kafka.restart()
        probed.until(lambda: probed.reason() == "waiting for the input topic")
        probed.until(lambda: probed.get("/healthz").status == 200)
        for topic in (line.output, line.dead, line.input):
            create_topic(kafka.bootstrap, topic)
        probed.until_ready()
        kafka.pause()
        probed.until(lambda: probed.get("/healthz").status == 503)
        assert probed.get("/healthz").json["stalled"] == []
        probed.worker.wait_for("unhealthy")
        probed.until(lambda: (probed.reason() or "").startswith("no broker has answered for "))
        kafka.resume()
        probed.until_ready()
        probed.until(lambda: probed.get("/healthz").status == 200)
        kafka.pause()  # so that the stop takes its time
        probed.worker.signal(signal.SIGTERM)
        probed.until(lambda: probed.reason() == "stopping")
        kafka.resume()
        assert probed.worker.wait() == 0
        assert try_asking(probed.port, "/readyz") is None
    finally:
        line.close()


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_dead_letters_that_cannot_be_written(kafka: ThrowawayKafka, tmp_path: Path, guarantee: str) -> None:
    """A dead-letter topic that takes nothing makes the worker not ready, then unhealthy with the partition named."""
    line = Line(kafka.bootstrap, tmp_path, guarantee=guarantee, stall_timeout="2s")
    try:
        probed = Probed(line)
        probed.until_ready()
        with denied(kafka.bootstrap, "TOPIC", line.dead, "WRITE"):
            line.feed([event(1), bad(2)])
            probed.until(lambda: (probed.reason() or "").startswith("partition 0 can't write: "))
            probed.until(lambda: probed.get("/healthz").status == 503)
            (stalled,) = probed.get("/healthz").json["stalled"]
            assert (stalled["partition"], stalled["lag"]) == (0, 2)
            assert "can&#x27;t write" in probed.get("/").body
        probed.until(lambda: probed.lags() == [0.0])
        probed.until_ready()
        assert probed.get("/healthz").status == 200
    finally:
        line.close()


def test_port_taken(line: MakeLine) -> None:
    """A port that is taken ends the worker at once, with a line that names the setting."""
    production = line()
    first = Probed(production)
    first.until_ready()
    second = production.start(http_port=str(first.port))
    assert second.wait(10) == 1
    said = f"WORKER_HTTP_PORT={first.port}, WORKER_HTTP_HOST=127.0.0.1: can't listen there"
    assert second.last_words().startswith(said)
    assert "partitions-assigned" not in second.text
