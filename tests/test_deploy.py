"""The files for containers, as far as they can be checked without an engine: names, paths, users, times, pins."""

from __future__ import annotations

import fnmatch
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from worker import settings
from worker.kafka.throwaway import KAFKA_VERSION

ROOT = Path(__file__).parents[1]
DOCKERFILE = ROOT / "worker/deploy/Dockerfile"
LOCK = ROOT / "worker/deploy/requirements.lock"
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
WORKER: dict[str, Any] = COMPOSE["services"]["worker"]
KAFKA: dict[str, Any] = COMPOSE["services"]["kafka"]
INSTRUCTIONS = [
    (match[1], re.sub(r"\\\n\s*", " ", match[2]))
    for match in re.finditer(r"^([A-Z]+) ((?:.*\\\n)*.*)$", DOCKERFILE.read_text(encoding="utf-8"), re.MULTILINE)
]
PINNED = re.compile(r"([a-z0-9-]+)==\S+((?: --hash=sha256:[0-9a-f]{64})+)")


def _values(instruction: str) -> list[str]:
    return [value for name, value in INSTRUCTIONS if name == instruction]


@pytest.mark.parametrize("file", ["docker-compose.yml", "worker/deploy/Dockerfile", "README.md"])
def test_each_setting_named_exists(file: str) -> None:
    """A name in one of these files that the worker does not know would stop it, or do nothing."""
    known = {setting.variable for setting in settings.SETTINGS}
    known |= {f"{setting.variable}_FILE" for setting in settings.SETTINGS if setting.secret}

    named = set(re.findall(r"\bWORKER_[A-Z_]+\b", (ROOT / file).read_text(encoding="utf-8")))

    assert named
    assert named <= known


def test_the_composed_settings_are_right() -> None:
    """What Compose gives to the worker is taken by the loader."""
    loaded = settings.load(WORKER["environment"])

    assert loaded.brokers == ("kafka:19092",)


def test_kafka_is_the_version_that_the_tests_use() -> None:
    """What is tried here is what is tried by the tests."""
    assert KAFKA["image"] == f"apache/kafka:{KAFKA_VERSION}"


def test_kafka_advertises_what_reaches_it() -> None:
    """Each advertised listener is one it has, on the same port, by the name from which it is reached."""
    environment = KAFKA["environment"]

    def listeners(name: str) -> dict[str, str]:
        return dict(each.split("://", 1) for each in environment[name].split(","))

    listens, advertises = listeners("KAFKA_LISTENERS"), listeners("KAFKA_ADVERTISED_LISTENERS")
    protocols = dict(each.split(":") for each in environment["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(","))

    assert advertises == {"INSIDE": WORKER["environment"]["WORKER_BROKERS"], "OUTSIDE": "localhost:9092"}
    assert {name: address.rpartition(":")[2] for name, address in listens.items()} == {
        "INSIDE": "19092",
        "OUTSIDE": "9092",
        "CONTROLLER": "9093",
    }
    assert protocols.keys() == listens.keys()


@pytest.mark.parametrize(
    "name",
    [
        "OFFSETS_TOPIC_REPLICATION_FACTOR",
        "TRANSACTION_STATE_LOG_REPLICATION_FACTOR",
        "TRANSACTION_STATE_LOG_MIN_ISR",
        "SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR",
        "SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR",
    ],
)
def test_one_broker_holds_one_copy(name: str) -> None:
    """The defaults of three would leave groups and transactions without their topics."""
    assert KAFKA["environment"][f"KAFKA_{name}"] == "1"


def test_the_order_of_the_start_is_by_health() -> None:
    """The worker waits for a Kafka that has answered; both have a check of their own."""
    assert WORKER["depends_on"] == {"kafka": {"condition": "service_healthy"}}
    assert "kafka-broker-api-versions" in " ".join(KAFKA["healthcheck"]["test"])
    assert len(_values("HEALTHCHECK")) == 1


def test_several_workers_fit_on_one_machine() -> None:
    """``--scale worker=3`` works: no fixed name, no fixed port of the machine."""
    (ports,) = WORKER["ports"]
    _, machine, inside = ports.split(":")
    first, last = map(int, machine.split("-"))

    assert "container_name" not in WORKER
    assert last - first >= 2
    assert inside == next(setting.default for setting in settings.SETTINGS if setting.name == "HTTP_PORT")


def test_docker_waits_longer_than_the_worker_takes() -> None:
    """A kill before the worker's own time is over would cut its work off."""
    grace = int(WORKER["stop_grace_period"].removesuffix("s"))

    assert grace > settings.load(WORKER["environment"]).shutdown_timeout


def test_the_worker_has_no_rights() -> None:
    """A user that is not root, by number as Kubernetes wants it, nothing to write to, nothing to gain."""
    user = _values("USER")[-1]

    assert re.fullmatch(r"[1-9][0-9]*:[1-9][0-9]*", user)
    assert WORKER["user"] == user
    assert WORKER["read_only"] is True
    assert WORKER["cap_drop"] == ["ALL"]
    assert WORKER["security_opt"] == ["no-new-privileges:true"]


def test_the_worker_is_process_1() -> None:
    """The exec form: with a shell in between, SIGTERM would not reach the worker."""
    assert json.loads(_values("ENTRYPOINT")[0]) == ["worker"]
    assert json.loads(_values("CMD")[0]) == ["run"]


def test_the_health_check_is_python_that_asks_healthz() -> None:
    """A slim image has no curl; the check compiles and asks the worker's own address."""
    python, option, code = json.loads(_values("HEALTHCHECK")[0].partition("CMD ")[2])

    compile(code, "HEALTHCHECK", "exec")
    assert (python, option) == ("python", "-c")
    assert "/healthz" in code


def test_what_the_image_copies_is_there_and_not_ignored() -> None:
    """Each path that is copied exists, and ``.dockerignore`` lets it through."""
    ignore = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    let_through = [line.removeprefix("!") for line in ignore if line.startswith("!")]
    copied = [path for value in _values("COPY") if "--from" not in value for path in value.split()[:-1]]

    assert copied
    assert "*" in ignore
    for path in copied:
        assert (ROOT / path).exists()
        assert any(fnmatch.fnmatch(path, f"{pattern}*") for pattern in let_through), path


def test_compose_builds_what_is_there() -> None:
    """The context and the Dockerfile exist."""
    build = WORKER["build"]

    assert (ROOT / build["context"] / build["dockerfile"]).samefile(DOCKERFILE)


def test_each_line_of_the_lock_is_pinned_by_hash() -> None:
    """One version of each package, each by hash, and from no address."""
    entries = LOCK.read_text(encoding="utf-8").replace(" \\\n   ", "").splitlines()

    assert [entry for entry in entries if not PINNED.fullmatch(entry)] == []


def test_the_lock_has_the_projects_dependencies() -> None:
    """Each dependency, and setuptools to build with, is pinned."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = project["project"]["dependencies"] + project["build-system"]["requires"]
    names = {re.split(r"[<>=!~\[; ]", each)[0].lower().replace("_", "-") for each in wanted}

    locked = set(re.findall(r"^([a-z0-9-]+)==", LOCK.read_text(encoding="utf-8"), re.MULTILINE))

    assert names - locked == set()


def test_the_command_that_makes_the_lock_is_in_the_readme() -> None:
    """Whoever changes a dependency finds how to pin it, for the Python that the image has."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (python,) = {value.partition("python:")[2].partition("-")[0] for value in _values("FROM")}

    (command,) = re.findall(r"^echo .*uv pip compile .*$", readme, re.MULTILINE)

    assert f"--python-version {python} " in command
    assert "worker/deploy/requirements.lock" in command
