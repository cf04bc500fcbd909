"""The alert rules and the dashboard: they use only what the worker shows, and are where they are looked for.

Whether each alert fires on its fault is asked of Prometheus itself, in test_prometheus.py.
"""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from worker.observe.metrics import Metrics, Tally

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "worker/deploy"
README = (ROOT / "README.md").read_text(encoding="utf-8")
JOB = "text-to-message-worker"


def _yaml(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return document


COMPOSE = _yaml(ROOT / "docker-compose.yml")
(GROUP,) = _yaml(DEPLOY / "prometheus/alerts.yaml")["groups"]
ALERTS: dict[str, dict[str, Any]] = {rule["alert"]: rule for rule in GROUP["rules"]}
(SCRAPE,) = _yaml(DEPLOY / "prometheus/prometheus.yml")["scrape_configs"]
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana/dashboards/worker.json").read_text(encoding="utf-8"))
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
SHOWN = [target["expr"] for panel in PANELS for target in panel["targets"]]
EXPRESSIONS = [
    *(rule["expr"] for rule in ALERTS.values()),
    *SHOWN,
    *(each["definition"] for each in DASHBOARD["templating"]["list"] if each["type"] == "query"),
    *(each["expr"] for each in DASHBOARD["annotations"]["list"]),
]


def _samples() -> dict[str, set[str]]:
    """Each series of a worker that has seen everything, with its labels."""
    metrics = Metrics("topic", "version", "guarantee")
    metrics.assigned(0)
    metrics.confirmed(0, Tally(1, {"empty": 1}, {"invalid-json": 1}, 1), 0.1, 0.1)
    metrics.committed(0, 1, 0)
    samples: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(metrics.exposition().decode()):
        for sample in family.samples:
            samples.setdefault(sample.name, set()).update(sample.labels)
    return samples


SAMPLES = _samples()
#: Labels that Prometheus gives, and names of its own.
LABELS = {"job", "instance", "alertname", "alertstate", "__name__"}.union(*SAMPLES.values())


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_the_names_are_those_that_exist(expression: str) -> None:
    """A metric that does not exist is no error to Prometheus: the alert would never fire, the panel stay empty."""
    names = set(re.findall(r"\b(?:worker|process)_[a-z_]+", expression))

    assert names or re.match(r"up\{|ALERTS\{", expression)
    assert names <= SAMPLES.keys()


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_the_labels_are_those_that_exist(expression: str) -> None:
    """Grouping by a label that no series has puts everything into one."""
    grouped = {label.strip() for labels in re.findall(r"\bby \(([^)]*)\)", expression) for label in labels.split(",")}
    matched = set(re.findall(r'(\w+)(?:=~|!=|!~|=)"', expression))

    assert grouped | matched <= LABELS


def test_every_metric_is_on_the_dashboard() -> None:
    """What the worker counts can be seen."""
    families = {re.sub("_(bucket|sum|count)$", "", name) for name in SAMPLES if name.startswith("worker_")}
    used = {name for each in SHOWN for name in re.findall(r"\bworker_[a-z_]+", each)}

    shown = {re.sub("_bucket$", "", name) for name in used}

    assert families == shown


def test_the_alerts_are_those_of_the_readme() -> None:
    """The table has a row for each alert, in the same order."""
    table = README.partition("| alert | fires when | severity | look at |")[2].partition("\n\n")[0]

    rows = re.findall(r"^\| `(\w+)` \| .* \| (\w+) \| .* \|$", table, re.MULTILINE)

    assert rows == [(name, rule["labels"]["severity"]) for name, rule in ALERTS.items()]


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_what_to_do(name: str) -> None:
    """A sentence for the list, some for the pager, and where to read on: a part of the README that exists."""
    texts = ALERTS[name]["annotations"]

    part = re.match(r'README\.md, Operate, "([^"]+)" - \S', texts["runbook"])

    assert texts.keys() == {"summary", "description", "runbook"}
    assert part is not None
    assert f"\n**{part[1]}.**" in README.partition("\n## Operate")[2].partition("\n## ")[0]


def test_workers_are_known_by_one_job() -> None:
    """The job that the rules name is the one that Prometheus gives."""
    named = {job for rule in ALERTS.values() for job in re.findall(r'job="([^"]*)"', rule["expr"])}

    assert named == {SCRAPE["job_name"]} == {JOB}


def test_every_worker_of_compose_is_scraped() -> None:
    """By the name of the service, which has an address for each worker, on the port inside."""
    (discovery,) = SCRAPE["dns_sd_configs"]
    (ports,) = COMPOSE["services"]["worker"]["ports"]

    assert discovery["type"] == "A"
    assert set(discovery["names"]) <= COMPOSE["services"].keys()
    assert str(discovery["port"]) == ports.rpartition(":")[2]


@pytest.mark.parametrize("name", ["prometheus", "grafana"])
def test_monitoring_is_a_profile_of_its_own(name: str) -> None:
    """Not started unless asked for; a pinned image; only this machine reaches it."""
    service = COMPOSE["services"][name]

    assert service["profiles"] == ["monitoring"]
    assert re.fullmatch(r"[a-z]+/[a-z]+:v?\d+\.\d+\.\d+", service["image"])
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert "healthcheck" in service


@pytest.mark.parametrize("name", ["prometheus", "grafana"])
def test_what_is_mounted_is_there(name: str) -> None:
    """A path that does not exist would be mounted as an empty folder."""
    mounted = [volume.split(":") for volume in COMPOSE["services"][name]["volumes"] if volume.startswith("./")]

    assert mounted
    assert all((ROOT / source).is_dir() and mode == "ro" for source, _, mode in mounted)


def test_prometheus_finds_its_files() -> None:
    """The configuration and the rules lie in what is mounted."""
    service = COMPOSE["services"]["prometheus"]

    assert "--config.file=/etc/prometheus/prometheus.yml" in service["command"]
    assert "./worker/deploy/prometheus:/etc/prometheus:ro" in service["volumes"]
    assert _yaml(DEPLOY / "prometheus/prometheus.yml")["rule_files"] == ["alerts.yaml"]


def test_grafana_finds_its_dashboard() -> None:
    """The provider's folder is the mounted one, and Prometheus is asked at its address."""
    service = COMPOSE["services"]["grafana"]
    (provider,) = _yaml(DEPLOY / "grafana/provisioning/dashboards/worker.yaml")["providers"]
    (source,) = _yaml(DEPLOY / "grafana/provisioning/datasources/prometheus.yaml")["datasources"]
    folder = provider["options"]["path"]

    assert f"./worker/deploy/grafana/dashboards:{folder}:ro" in service["volumes"]
    assert "./worker/deploy/grafana/provisioning:/etc/grafana/provisioning:ro" in service["volumes"]
    assert service["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] == f"{folder}/worker.json"
    assert source["url"] == "http://prometheus:9090"
    assert (
        source["jsonData"]["timeInterval"] == _yaml(DEPLOY / "prometheus/prometheus.yml")["global"]["scrape_interval"]
    )


def test_the_panels_have_a_place_and_a_text() -> None:
    """Each has a title, a description, an id of its own, and lies on no other."""
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    assert all(panel["title"] and panel["description"] for panel in PANELS)
    for one, other in itertools.combinations([panel["gridPos"] for panel in PANELS], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert beside or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]


def test_the_panels_ask_the_chosen_prometheus() -> None:
    """No address or id of somebody's own Grafana is left in the dashboard, and every choice is obeyed."""
    chosen = {"type": "prometheus", "uid": "${datasource}"}

    assert all(target["datasource"] == panel["datasource"] == chosen for panel in PANELS for target in panel["targets"])
    assert all('job=~"$job", instance=~"$instance"' in expression for expression in SHOWN)
