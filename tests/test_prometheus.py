"""The alerts in a real Prometheus: the rules in its own unit tests, and real workers whose faults fire them.

Needs ``prometheus`` and ``promtool`` (Debian: the package prometheus). A worker here is scraped each second, and alerts
fire at once (no ``for``); how long a fault must last is asked in tests/prometheus/alerts.yaml.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import urllib.parse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from confluent_kafka import Producer
from http_help import ask, try_asking
from kafka_help import Input, until
from worker_process import Line, bad, event

from worker.kafka.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from worker_process import Worker

pytestmark = pytest.mark.prometheus

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "worker/deploy/prometheus"
RULES = (DEPLOY / "alerts.yaml").read_text(encoding="utf-8")
TEXTS = {rule["alert"]: rule["annotations"] for rule in yaml.safe_load(RULES)["groups"][0]["rules"]}
#: Two faults that a worker does not have; here they are planted.
NO_COMMIT = """
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError

async def commit(self, offsets=None):
    raise KafkaError("planted")

AIOKafkaConsumer.commit = commit
"""
MISCOUNT = """
from worker.observe.metrics import Metrics

right = Metrics.confirmed

def confirmed(self, partition, *rest):
    right(self, partition, *rest)
    self._consumed.labels(self.topic, partition).inc()

Metrics.confirmed = confirmed
"""
RUN = "\nfrom worker.cli import main\n\nmain(['run'])\n"


class Prometheus:
    """A Prometheus with the repository's configuration and rules, but for the times and where the workers are."""

    def __init__(self, folder: Path, ports: Sequence[int]) -> None:
        """Start it."""
        config: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus.yml").read_text(encoding="utf-8"))
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        (scrape,) = config["scrape_configs"]
        del scrape["dns_sd_configs"]
        scrape["static_configs"] = [{"targets": [f"127.0.0.1:{port}" for port in ports]}]
        rules = re.sub(r"^ +for: .*\n", "", RULES, flags=re.MULTILINE).replace(":1m]", ":1s]")
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
        (folder / "alerts.yaml").write_text(rules, encoding="utf-8")
        (self.port,) = free_ports(1)
        arguments = [
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]
        self.log = folder / "prometheus.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(["prometheus", *arguments], stdout=log, stderr=log)  # noqa: S607
        until(lambda: (answer := try_asking(self.port, "/-/ready")) is not None and answer.status == 200)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Evaluate an expression now."""
        result: list[dict[str, Any]] = self._get(f"query?{urllib.parse.urlencode({'query': expression})}")["result"]
        return result

    def firing(self) -> list[dict[str, Any]]:
        """The alerts that fire now."""
        return [alert for alert in self._get("alerts")["alerts"] if alert["state"] == "firing"]

    def names(self) -> set[str]:
        """Their names."""
        return {alert["labels"]["alertname"] for alert in self.firing()}

    def wait_for(self, *names: str) -> dict[str, dict[str, Any]]:
        """Wait until these alerts fire, and give them."""
        try:
            until(lambda: set(names) <= self.names())
        except TimeoutError:
            raise TimeoutError(f"{set(names) - self.names()} did not fire, only {self.names()}") from None
        return {alert["labels"]["alertname"]: alert for alert in self.firing()}

    def wait_for_quiet(self) -> None:
        """Wait until it has scraped a worker at work and nothing fires."""
        until(lambda: self.query("worker_events_consumed_total"))
        try:
            until(lambda: not self.firing())
        except TimeoutError:
            raise TimeoutError(f"still firing: {self.firing()}") from None

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(30)

    def _get(self, path: str) -> Any:  # noqa: ANN401 - the API's data
        answer = ask(self.port, f"/api/v1/{path}").json
        assert answer["status"] == "success", answer
        return answer["data"]


class Scene:
    """A line, two ports on which its workers may listen, and the Prometheus that scrapes both."""

    def __init__(self, line: Line, folder: Path, workers: int = 1) -> None:
        """Start the Prometheus; workers come later."""
        self.line = line
        self.ports = free_ports(workers)
        self.prometheus = Prometheus(folder, self.ports)

    def run(self, port: int = 0, planted: str = "", **settings: str) -> Worker:
        """Start a worker on one of the ports and wait until it is at work."""
        own = {"http_port": str(self.ports[port]), **settings}
        worker = self.line.start(("-c", planted + RUN), **own) if planted else self.line.start(**own)
        worker.wait_for("partitions-assigned")
        return worker


@pytest.fixture
def scene(broker: str, tmp_path: Path) -> Iterator[Scene]:
    """Give a scene for one worker."""
    yield from _scene(broker, tmp_path, 1)


@pytest.fixture
def scene_of_two(broker: str, tmp_path: Path) -> Iterator[Scene]:
    """Give a scene for two."""
    yield from _scene(broker, tmp_path, 2)


def _scene(broker: str, folder: Path, workers: int) -> Iterator[Scene]:
    made = Scene(Line(broker, folder, partitions=workers), folder, workers)
    yield made
    made.prometheus.stop()
    made.line.close()


@pytest.mark.parametrize("command", ["check rules alerts.yaml", "check config prometheus.yml"])
def test_promtool_finds_nothing(command: str) -> None:
    """The rules and the configuration are right in Prometheus' own eyes."""
    done = subprocess.run(["promtool", *command.split()], cwd=DEPLOY, capture_output=True, text=True, check=False)  # noqa: S607

    assert done.returncode == 0, done.stderr


def test_each_alert_fires_on_its_fault_in_promtool() -> None:
    """Each after its time, and none without its fault."""
    done = subprocess.run(
        ["promtool", "test", "rules", "tests/prometheus/alerts.yaml"],  # noqa: S607
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_has_its_unit_test() -> None:
    """A new rule without a test would pass the one above."""
    cases = (ROOT / "tests/prometheus/alerts.yaml").read_text(encoding="utf-8")

    assert [name for name in TEXTS if f"- name: {name}" not in cases] == []


def test_events_fire_alerts(scene: Scene) -> None:
    """Good events fire nothing; then dead letters, unknown roles, late events, and events without text do."""
    scene.run()
    scene.line.feed([event(number) for number in range(100)])
    scene.line.settle()
    prometheus = scene.prometheus
    prometheus.wait_for_quiet()

    scene.line.feed([bad(1)])
    fired = prometheus.wait_for("WorkerDeadLetters")
    assert fired.keys() == {"WorkerDeadLetters"}
    assert fired["WorkerDeadLetters"]["labels"]["reason"] == "invalid-json"
    scene.line.feed([Input(value=b'{"text":"x","role":"boss"}')])
    prometheus.wait_for("WorkerRolesReplaced")
    for number in range(20):
        scene.line.feed([Input(b"%d" % number, b'{"text":"x"}', timestamp=1)])
    prometheus.wait_for("WorkerEventsLate")
    misnamed = Input(value=b'{"message":"the text is here"}')
    scene.line.feed([misnamed])
    until(lambda: prometheus.query("worker_events_dropped_total"))  # a rate needs a value to begin with
    scene.line.feed([misnamed] * 3000)
    _check_texts(prometheus.wait_for("WorkerMostlyDropped"))


def test_an_open_transaction_fires_alerts(scene: Scene) -> None:
    """Behind a transaction that nobody ends the worker waits, healthy; the alerts say that events wait."""
    scene.run()
    scene.line.feed([event(number) for number in range(100)])
    scene.line.settle()
    scene.prometheus.wait_for_quiet()
    producer = Producer({"bootstrap.servers": scene.line.bootstrap, "transactional.id": f"hanging-{scene.line.group}"})
    producer.init_transactions()
    producer.begin_transaction()
    for _ in range(10_001):
        producer.produce(scene.line.input, b'{"text":"x"}', partition=0)
    producer.flush()

    until(lambda: scene.prometheus.query("worker_consumer_lag > 10000"))
    fired = scene.prometheus.wait_for("WorkerFallingBehind")

    assert ask(scene.ports[0], "/healthz").status == 200
    _check_texts(fired)
    producer.abort_transaction()


def test_workers_that_come_and_go_fire_alerts(scene_of_two: Scene) -> None:
    """One starts again and again, with another guarantee than the one that stays."""
    scene, prometheus = scene_of_two, scene_of_two.prometheus
    stays = scene.run(0)
    until(lambda: prometheus.query("worker_events_consumed_total"))
    instance = f"127.0.0.1:{scene.ports[1]}"
    changes = f'changes(process_start_time_seconds{{instance="{instance}"}}[30m]) == '

    for starts in range(4):
        worker = scene.run(1, guarantee="exactly-once")
        until(partial(prometheus.query, f"{changes}{starts}"))
        if starts < 3:
            alone = len(stays.said("partitions-assigned", partitions=[0, 1]))
            worker.stop()
            stays.until(lambda alone=alone: len(stays.said("partitions-assigned", partitions=[0, 1])) > alone)
    fired = prometheus.wait_for("WorkerRestarting", "WorkerRebalancing", "WorkerGuaranteesMixed")

    assert fired["WorkerRestarting"]["labels"]["instance"] == instance
    _check_texts(fired)


def test_a_killed_worker_fires_alerts(scene: Scene) -> None:
    """The only one is gone."""
    worker = scene.run()
    scene.prometheus.wait_for_quiet()

    worker.signal(signal.SIGKILL)
    worker.wait()

    _check_texts(scene.prometheus.wait_for("WorkerDown", "WorkerAbsent", "WorkerPartitionsUnowned"))


def test_commits_that_fail_fire_alerts(scene: Scene) -> None:
    """Events are converted and the offset stays: the commits fail, and the partition stands still."""
    scene.run(planted=NO_COMMIT)
    scene.prometheus.wait_for_quiet()

    scene.line.feed([event(1)])

    _check_texts(scene.prometheus.wait_for("WorkerCommitsFail", "WorkerStalled"))


def test_a_wrong_count_fires_its_alert(scene: Scene) -> None:
    """One event more is counted as consumed than has an outcome."""
    scene.run(planted=MISCOUNT)
    scene.prometheus.wait_for_quiet()

    scene.line.feed([event(1)])

    _check_texts(scene.prometheus.wait_for("WorkerAccountingWrong"))


def _check_texts(fired: dict[str, dict[str, Any]]) -> None:
    """What the texts name is there, and no template was left unfilled."""
    for name, alert in fired.items():
        wanted = set(re.findall(r"\$labels\.(\w+)", json.dumps(TEXTS[name])))
        assert wanted <= alert["labels"].keys()
        assert "<error" not in json.dumps(alert["annotations"])
