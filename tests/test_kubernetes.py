"""The Kubernetes manifests, as far as they can be checked without a cluster.

Kubernetes' own kinds are held against its schemas, where a misspelt field is an error, too. The kinds of KEDA and of
the Prometheus operator have no schema here, so their fields are looked at one by one.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from worker import __version__, settings
from worker.kafka.transport import SESSION_TIMEOUT_MS

FOLDER = Path(__file__).parents[1] / "worker/deploy/kubernetes"
NAME = "text-to-message-worker"
LABELS = {"app.kubernetes.io/name": NAME}
#: The oldest and the newest version that these manifests are for.
VERSIONS = ("1.30", "1.37")


def _read(name: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))
    return document


BASE: dict[str, Any] = _read("kustomization.yaml")
OWN_KINDS = [*BASE["resources"], "secret.example.yaml"]
SET: dict[str, Any] = _read("statefulset.yaml")["spec"]
POD: dict[str, Any] = SET["template"]["spec"]
(CONTAINER,) = POD["containers"]
CONFIG: dict[str, str] = _read("config.yaml")["data"]
SCALED: dict[str, Any] = _read("keda/scaled-object.yaml")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("file", OWN_KINDS)
def test_a_manifest_fits_its_schema(file: str, version: str) -> None:
    """Each field exists, has the right type and is not missing where it must be there."""
    kubernetes_validate.validate(_read(file), version, strict=True)


def test_a_misspelt_field_would_be_found() -> None:
    """The validation is a strict one."""
    wrong = _read("statefulset.yaml")
    wrong["spec"]["template"]["spec"]["enableServiceLink"] = False

    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


def test_no_manifest_is_forgotten() -> None:
    """What lies in the folder is in the kustomization, but for the example and what needs an operator."""
    files = {path.name for path in FOLDER.glob("*.yaml")}

    assert files == {*OWN_KINDS, "kustomization.yaml"}


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.yaml")), ids=lambda path: path.name)
def test_each_setting_named_exists(path: Path) -> None:
    """Also in comments: a setting that does not exist would stop the worker."""
    known = {setting.variable for setting in settings.SETTINGS}
    known |= {f"{setting.variable}_FILE" for setting in settings.SETTINGS if setting.secret}

    assert set(re.findall(r"\bWORKER_[A-Z_]+[A-Z]\b(?!_)", path.read_text(encoding="utf-8"))) <= known


def test_the_settings_are_right() -> None:
    """What a pod gets is taken by the loader, and the HTTP server can be reached."""
    loaded = settings.load(_environment())

    assert loaded.instance_id == f"{NAME}-0"
    assert loaded.http_host == "0.0.0.0"  # noqa: S104 - in a pod; the network policy says who may come
    assert loaded.http_port == CONTAINER["ports"][0]["containerPort"]
    assert loaded.dead_letter_topic == "text-events.dead-letter"


def test_the_settings_with_a_login_are_right(tmp_path: Path) -> None:
    """The lines of the config map that are commented out, with the files of the secret."""
    text = (FOLDER / "config.yaml").read_text(encoding="utf-8")
    more: dict[str, str] = yaml.safe_load("\n".join(re.findall(r"^  # (WORKER_.*)$", text, re.MULTILINE)))
    (mount,) = CONTAINER["volumeMounts"]
    for name, value in _read("secret.example.yaml")["stringData"].items():
        (tmp_path / name).write_text(value, encoding="utf-8")

    here = {name: value.replace(mount["mountPath"], str(tmp_path)) for name, value in more.items()}
    loaded = settings.load(_environment() | here)

    assert loaded.security_protocol == "SASL_SSL"
    assert loaded.sasl_password == "REPLACE-ME"  # noqa: S105 - the example's


def test_there_is_no_secret() -> None:
    """The example has nothing but a placeholder, and is not applied with the rest."""
    assert set(_read("secret.example.yaml")["stringData"].values()) == {"REPLACE-ME"}
    assert "secret.example.yaml" not in BASE["resources"]


def test_a_stop_has_its_time() -> None:
    """A kill before the worker's own time is over would cut its work off."""
    assert POD["terminationGracePeriodSeconds"] > settings.load(CONFIG).shutdown_timeout


def test_the_session_timeout_is_the_one_told() -> None:
    """The comments say how long the partitions of a static member that has gone wait."""
    told = f"{SESSION_TIMEOUT_MS // 1000} s"

    assert told in (FOLDER / "statefulset.yaml").read_text(encoding="utf-8")
    assert told in (FOLDER / "keda/scaled-object.yaml").read_text(encoding="utf-8")


def test_a_pod_has_no_rights() -> None:
    """The "restricted" pod security standard, and no token of the cluster's."""
    assert POD["automountServiceAccountToken"] is False
    assert POD["enableServiceLinks"] is False
    assert POD["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "runAsGroup": 10001,
        "fsGroup": 10001,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert CONTAINER["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "privileged": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC"} & POD.keys()


def test_the_user_is_the_images() -> None:
    """The file system of the image belongs to nobody else."""
    dockerfile = (FOLDER.parent / "Dockerfile").read_text(encoding="utf-8")

    assert f"\nUSER {POD['securityContext']['runAsUser']}:{POD['securityContext']['runAsGroup']}\n" in dockerfile


def test_the_probes_ask_what_is_served() -> None:
    """The liveness probe waits for the startup probe, and gives the worker time to answer."""
    probes = {name: CONTAINER[f"{name}Probe"] for name in ("startup", "liveness", "readiness")}

    assert {name: probe["httpGet"]["path"] for name, probe in probes.items()} == {
        "startup": "/healthz",
        "liveness": "/healthz",
        "readiness": "/readyz",
    }
    assert {probe["httpGet"]["port"] for probe in probes.values()} == {CONTAINER["ports"][0]["name"]}
    assert probes["startup"]["periodSeconds"] * probes["startup"]["failureThreshold"] >= 30


def test_all_mean_the_same_pods() -> None:
    """Names and labels agree: a selector that selects nothing is no error to Kubernetes."""
    network, budget, service = (_read(f"{name}.yaml")["spec"] for name in ("network", "disruption", "service"))
    monitor = _read("prometheus/pod-monitor.yaml")["spec"]

    assert SET["template"]["metadata"]["labels"] == LABELS
    assert SET["selector"]["matchLabels"] == LABELS
    assert service["selector"] == LABELS
    assert budget["selector"]["matchLabels"] == LABELS
    assert network["podSelector"]["matchLabels"] == LABELS
    assert monitor["selector"]["matchLabels"] == LABELS
    assert [each["labelSelector"]["matchLabels"] for each in POD["topologySpreadConstraints"]] == [LABELS, LABELS]
    assert SET["serviceName"] == _read("service.yaml")["metadata"]["name"]
    assert CONTAINER["envFrom"] == [{"configMapRef": {"name": _read("config.yaml")["metadata"]["name"]}}]
    assert POD["volumes"][0]["secret"]["secretName"] == _read("secret.example.yaml")["metadata"]["name"]


def test_the_image_is_this_version() -> None:
    """An upgrade is a changed tag."""
    (image,) = BASE["images"]

    assert image["name"] == CONTAINER["image"]
    assert image["newTag"] == __version__


def test_only_what_must_pass_passes() -> None:
    """Both directions are closed but for Kafka, DNS and scrapes."""
    policy = _read("network.yaml")["spec"]
    brokers = {int(address.rpartition(":")[2]) for address in settings.load(CONFIG).brokers}

    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert _ports(policy["ingress"]) == {("TCP", 8080)}
    assert _ports(policy["egress"]) == {("UDP", 53), ("TCP", 53)} | {("TCP", port) for port in brokers}
    assert all(rule.get("from") or rule.get("to") for rule in policy["ingress"] + policy["egress"])


def test_keda_scales_what_is_there() -> None:
    """The fields of a ScaledObject with a kafka trigger (KEDA 2.20), each with the worker's own value."""
    spec = SCALED["spec"]
    (trigger,) = spec["triggers"]
    loaded = settings.load(CONFIG)

    assert (SCALED["apiVersion"], SCALED["kind"]) == ("keda.sh/v1alpha1", "ScaledObject")
    assert spec.keys() == {
        "scaleTargetRef",
        "pollingInterval",
        "minReplicaCount",
        "maxReplicaCount",
        "fallback",
        "advanced",
        "triggers",
    }
    assert spec["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": NAME}
    assert spec["fallback"].keys() == {"failureThreshold", "replicas", "behavior"}
    assert spec["advanced"].keys() == {"horizontalPodAutoscalerConfig"}
    assert trigger["type"] == "kafka"
    assert trigger["metadata"] == {
        "bootstrapServers": ",".join(loaded.brokers),
        "consumerGroup": loaded.group_id,
        "topic": loaded.input_topic,
        "lagThreshold": "10000",
        "offsetResetPolicy": loaded.start_from,
        "excludePersistentLag": "true",
        "allowIdleConsumers": "false",
    }


def test_keda_keeps_within_what_makes_sense() -> None:
    """Never none, and no more than the partitions that the worker makes by itself."""
    spec = SCALED["spec"]

    assert spec["minReplicaCount"] >= 1
    assert spec["minReplicaCount"] <= spec["fallback"]["replicas"] <= spec["maxReplicaCount"]
    assert spec["maxReplicaCount"] == 4  # PARTITIONS' default


def test_the_autoscaler_of_keda_fits_its_schema() -> None:
    """KEDA hands these fields to a HorizontalPodAutoscaler, which has a schema."""
    autoscaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": NAME},
        "spec": {
            "scaleTargetRef": SCALED["spec"]["scaleTargetRef"],
            "maxReplicas": SCALED["spec"]["maxReplicaCount"],
            **SCALED["spec"]["advanced"]["horizontalPodAutoscalerConfig"],
        },
    }

    kubernetes_validate.validate(autoscaler, VERSIONS[-1], strict=True)


def test_the_pod_monitor_scrapes_the_metrics() -> None:
    """The fields of a PodMonitor; the job label comes out as the alerts expect it."""
    monitor = _read("prometheus/pod-monitor.yaml")
    spec = monitor["spec"]

    assert (monitor["apiVersion"], monitor["kind"]) == ("monitoring.coreos.com/v1", "PodMonitor")
    assert spec.keys() == {"jobLabel", "selector", "podMetricsEndpoints"}
    assert spec["podMetricsEndpoints"] == [
        {"port": CONTAINER["ports"][0]["name"], "path": "/metrics", "interval": "15s"}
    ]
    assert LABELS[spec["jobLabel"]] == NAME


def _environment() -> dict[str, str]:
    """What the first pod's container gets."""
    own = {each["name"]: each["value"] if "value" in each else _field(each) for each in CONTAINER["env"]}
    return CONFIG | own


def _field(each: dict[str, Any]) -> str:
    assert each["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    return f"{NAME}-0"


def _ports(rules: list[dict[str, Any]]) -> set[tuple[str, int]]:
    return {(port["protocol"], port["port"]) for rule in rules for port in rule["ports"]}
