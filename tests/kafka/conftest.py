"""Fixtures of the tests that run whole workers."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # not in its __all__
from kafka_help import until
from worker_process import lines

from worker.kafka.throwaway import ThrowawayKafka

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from worker_process import MakeLine


@pytest.fixture
def line(broker: str, tmp_path: Path) -> Iterator[MakeLine]:
    """Give a maker of production lines on the shared broker; their workers end with the test."""
    yield from lines(broker, tmp_path)


@pytest.fixture(scope="session")
def own_kafka() -> Iterator[ThrowawayKafka]:
    """Give a broker to break: it compacts at once, and obeys access rules where a test makes one."""
    properties = {
        "log.cleaner.backoff.ms": "100",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with ThrowawayKafka(properties=properties) as kafka:
        yield kafka


@pytest.fixture
def own_line(own_kafka: ThrowawayKafka, tmp_path: Path) -> Iterator[MakeLine]:
    """Give a maker of production lines on the broker that may be broken, and mend it afterwards."""
    yield from lines(own_kafka.bootstrap, tmp_path)
    own_kafka.resume()
    if own_kafka.pid is None:
        own_kafka.start()
    until(lambda: _makes_topics(own_kafka.bootstrap), 90)


def _makes_topics(bootstrap: str) -> bool:
    """Whether the broker is whole again: one that was frozen answers at once, and may make no topic for a while."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    topic = NewTopic(f"whole-{uuid4().hex}", num_partitions=1)
    (made,) = admin.create_topics([topic], request_timeout=5, operation_timeout=5).values()
    try:
        made.result(10)
    except (KafkaException, TimeoutError):
        return False
    return True
