"""Options of the chaos suite, and the broker it breaks."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

from worker.kafka.throwaway import KAFKA_VERSION, ThrowawayKafka

if TYPE_CHECKING:
    from collections.abc import Iterator


def pytest_addoption(parser: pytest.Parser) -> None:
    """Seed, size, how many, and which Kafka."""
    group = parser.getgroup("chaos")
    group.addoption("--chaos-seed", type=int, help="the first seed (or CHAOS_SEED); drawn and printed if not given")
    group.addoption("--chaos-seeds", type=int, default=1, help="how many seeds, one after the other")
    group.addoption("--chaos-events", type=int, default=20_000, help="events in a run")
    group.addoption("--chaos-hold", type=float, default=15, help="seconds that a state lasts")
    group.addoption("--chaos-minutes", type=float, default=3, help="how long the soak takes")
    group.addoption("--kafka-version", default=KAFKA_VERSION, help="the Kafka to break")


def pytest_configure(config: pytest.Config) -> None:
    """Make the slice's marker known."""
    config.addinivalue_line("markers", "chaos_slice: the part of the chaos suite that is run for every push")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes ``seed`` runs once for each."""
    if "seed" in metafunc.fixturenames:
        first = metafunc.config.getoption("--chaos-seed", default=None)
        if first is None:
            first = int(os.environ.get("CHAOS_SEED", "0")) or random.randrange(1, 1_000_000)  # noqa: S311
        count = int(metafunc.config.getoption("--chaos-seeds", default=1))
        metafunc.parametrize("seed", range(first, first + count), ids=lambda seed: f"seed{seed}")


@pytest.fixture
def events(request: pytest.FixtureRequest) -> int:
    """How many events a run has."""
    return int(request.config.getoption("--chaos-events", default=20_000))


@pytest.fixture
def minutes(request: pytest.FixtureRequest) -> float:
    """How long the soak takes."""
    return float(request.config.getoption("--chaos-minutes", default=3))


@pytest.fixture
def hold(request: pytest.FixtureRequest) -> float:
    """How long a state lasts, in seconds."""
    return float(request.config.getoption("--chaos-hold", default=15))


@pytest.fixture(scope="session")
def kafka_version(request: pytest.FixtureRequest) -> str:
    """Give the version to break."""
    return str(request.config.getoption("--kafka-version", default=KAFKA_VERSION))


@pytest.fixture(scope="session")
def kafka(kafka_version: str) -> Iterator[ThrowawayKafka]:
    """A broker of our own, to be broken."""
    with ThrowawayKafka(version=kafka_version) as broker:
        yield broker
