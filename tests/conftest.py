"""Fixtures every test may use: a broker, and topics of one's own on it.

The broker is, in this order: the one TEST_KAFKA_BROKERS names; one in Docker, if an engine answers; the throw-away one.
A test that asks for it is marked ``kafka`` by itself, so ``-m 'not kafka'`` runs the rest without any broker.
"""

from __future__ import annotations

import gc
import os
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

import pytest
from hypothesis import settings
from kafka_help import create_topic, until

from worker.kafka.ports import answers, free_ports
from worker.kafka.throwaway import KAFKA_VERSION, ThrowawayKafka

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_DOCKER_SECONDS = 3

# A busy machine may take its time over an example; what the property tests check is never speed.
settings.register_profile("worker", deadline=None)
settings.load_profile("worker")


class MakeTopic(Protocol):
    """Make a topic with a name nobody else has, and return the name."""

    def __call__(self, name: str = "topic", *, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """Make it; ``name`` only opens the name."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a broker."""
    for item in items:
        if "broker" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.kafka)


@pytest.fixture(scope="session")
def broker() -> Iterator[str]:
    """Give the address of a broker that lives as long as the test run."""
    given = os.environ.get("TEST_KAFKA_BROKERS")
    if given:
        yield given
    elif _docker_answers():
        with _kafka_in_docker() as address:
            yield address
    else:
        with ThrowawayKafka() as kafka:
            yield kafka.bootstrap


@pytest.fixture
def topic(broker: str) -> MakeTopic:
    """Give a maker of topics."""

    def make(name: str = "topic", *, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        return create_topic(broker, f"{name}-{uuid4().hex[:12]}", partitions, config)

    return make


def _docker_answers() -> bool:
    with (
        warnings.catch_warnings()
    ):  # docker leaves the socket open that it could not connect: collected here, not later
        warnings.simplefilter("ignore")
        answer = _ping_docker()
        gc.collect()
        return answer


def _ping_docker() -> bool:
    try:
        import docker  # noqa: PLC0415 - slow to import, and only looked at when no broker is given

        client = docker.from_env(timeout=_DOCKER_SECONDS)
    except Exception:  # noqa: BLE001 - no package, no socket, an odd DOCKER_HOST: each means no
        return False
    try:
        return bool(client.ping())
    except Exception:  # noqa: BLE001 - no engine behind the socket, no right to ask it, a wrong version
        return False
    finally:
        client.close()


@contextmanager
def _kafka_in_docker() -> Iterator[str]:
    """Start Apache's own image; one port inside and outside, for the broker calls itself by its public address."""
    with warnings.catch_warnings():  # a deprecation inside testcontainers is not ours to fail on
        warnings.simplefilter("ignore")
        from testcontainers.core.container import DockerContainer  # noqa: PLC0415 - as docker above

        (port,) = free_ports(1)
        container = DockerContainer(f"apache/kafka:{KAFKA_VERSION}").with_bind_ports(port, port)
        settings = {
            "NODE_ID": "1",
            "PROCESS_ROLES": "broker,controller",
            "CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
            "CONTROLLER_LISTENER_NAMES": "CONTROLLER",
            "LISTENERS": f"PLAINTEXT://0.0.0.0:{port},CONTROLLER://localhost:9093",
            "ADVERTISED_LISTENERS": f"PLAINTEXT://localhost:{port}",
            "LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "AUTO_CREATE_TOPICS_ENABLE": "false",
            "GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
            "OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
            "TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
            "TRANSACTION_STATE_LOG_MIN_ISR": "1",
        }
        for name, value in settings.items():
            container.with_env(f"KAFKA_{name}", value)
        container.start()
    try:
        address = f"{container.get_container_host_ip()}:{port}"
        until(lambda: answers(address), seconds=60)
        yield address
    finally:
        container.stop()
