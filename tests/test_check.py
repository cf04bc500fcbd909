"""``worker check`` against clusters that are broken on purpose: each fault is found and named."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, TopicPartition
from kafka_help import create_topic, produce, until
from secured_kafka import SecuredKafka

from worker import check, settings
from worker.cli import main
from worker.kafka import cluster, verdicts
from worker.kafka.cluster import Group, Member, Partition, Topic, View

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.kafka.verdicts import Finding

# ruff: noqa: S106 - the passwords here are nobody's


class Bench:
    """Topics with names of their own, and what check says about them."""

    def __init__(self, broker: str) -> None:
        """Choose names; nothing is made."""
        self.broker = broker
        self.topic = f"in-{uuid4().hex[:10]}"
        self.group = f"group-{self.topic}"

    def make(self, partitions: int = 2, suffix: str = "", **config: str) -> None:
        """Make the input topic, or that with a suffix."""
        named = {name.replace("_", "."): value for name, value in config.items()}
        create_topic(self.broker, self.topic + suffix, partitions, named)

    def make_all(self) -> None:
        """Make the three topics as the worker likes them."""
        self.make()
        self.make(suffix=".out", max_message_bytes="4000000")
        self.make(suffix=".dead-letter", max_message_bytes="2000000", retention_ms="-1")

    def check(self, **others: str) -> list[Finding]:
        """Run it."""
        values = {
            "BROKERS": self.broker,
            "INPUT_TOPIC": self.topic,
            "OUTPUT_TOPIC": f"{self.topic}.out",
            "GROUP_ID": self.group,
            **others,
        }
        return check.check(settings.from_mapping(values))

    def troubles(self, **others: str) -> list[str]:
        """What is not ``ok``, without what to do; each of it must say what to do."""
        found = [finding for finding in self.check(**others) if finding.level != "ok"]
        assert all(finding.hint for finding in found)
        return [f"{each.level} {each.what}: {each.detail}".replace(self.topic, "T") for each in found]


@pytest.fixture
def bench(broker: str) -> Bench:
    """Give names on the shared broker."""
    return Bench(broker)


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_nothing_is_wrong(bench: Bench, guarantee: str) -> None:
    """A cluster as it should be has nothing but ``ok``."""
    bench.make_all()
    found = bench.check(GUARANTEE=guarantee)
    assert [finding for finding in found if finding.level != "ok"] == []
    assert ("transactions" in {finding.what for finding in found}) == (guarantee == "exactly-once")


def test_check_writes_nothing(bench: Bench) -> None:
    """Topics that are missing are still missing afterwards, and the worker will make them."""
    bench.make()
    bench.check(GUARANTEE="exactly-once")
    assert bench.troubles(CREATE_TOPICS="false") == [
        "fail output topic T.out: is missing",
        "fail dead-letter topic T.dead-letter: is missing",
    ]


def test_broken_addresses(bench: Bench) -> None:
    """A name that is none, a port where nobody listens, and one that speaks no TLS are told apart."""
    bench.make_all()
    assert bench.troubles(BROKERS="nowhere.invalid:9092,127.0.0.1:1") == [
        "fail broker nowhere.invalid:9092: the name in nowhere.invalid:9092 can't be resolved",
        "fail broker 127.0.0.1:1: nothing listens at 127.0.0.1:1",
    ]
    assert bench.troubles(BROKERS=f"127.0.0.1:1,{bench.broker}") == [
        "warn broker 127.0.0.1:1: nothing listens at 127.0.0.1:1"
    ]


def test_missing_topics(bench: Bench) -> None:
    """A missing input topic may be a wrong name; what can't be made is a failure."""
    assert bench.troubles()[0] == ("warn input topic T: is missing; the worker will make it with 4 partitions")
    (first, *_) = bench.troubles(REPLICATION_FACTOR="5")
    assert first.startswith("fail input topic T: is missing and can't be made: ")
    assert "replication" in first.lower()


def test_other_partition_counts(bench: Bench) -> None:
    """It says that the partition number is not kept."""
    bench.make(2)
    bench.make(3, ".out", max_message_bytes="4000000")
    bench.make(2, ".dead-letter", max_message_bytes="2000000")
    (trouble,) = bench.troubles()
    assert trouble == (
        "warn partitions: T has 2, T.out has 3: messages go by their key (murmur2), "
        "without a key by the input's partition modulo 3"
    )


def test_unfit_configurations(bench: Bench) -> None:
    """Limits, retention, timestamps and compaction that cost events are each named."""
    bench.make(message_timestamp_after_max_ms="9000000")
    bench.make(
        suffix=".out",
        retention_ms="1000",
        cleanup_policy="compact,delete",
        message_timestamp_before_max_ms="5000",
        message_timestamp_after_max_ms="6000",
    )
    bench.make(suffix=".dead-letter", message_timestamp_type="LogAppendTime", cleanup_policy="compact")
    begins = [
        "warn output topic T.out: takes 1,048,588 bytes and the input 1,048,588",
        "warn output topic T.out: retention.ms=1000, and the input keeps 604800000 ms",
        "warn output topic T.out: message.timestamp.before.max.ms=5000",
        "warn output topic T.out: message.timestamp.after.max.ms=6000, and the input takes 9000000",
        "warn output topic T.out: cleanup.policy=compact,delete",
        "warn dead-letter topic T.dead-letter: takes 1,048,588 bytes and the input 1,048,588",
        "warn dead-letter topic T.dead-letter: message.timestamp.type=LogAppendTime",
        "fail dead-letter topic T.dead-letter: cleanup.policy=compact",
    ]
    said = bench.troubles()
    assert [text[: len(begin)] for text, begin in zip(said, begins, strict=True)] == begins


def test_too_few_replicas(bench: Bench) -> None:
    """A topic that can never be written is a failure."""
    bench.make_all()
    bench.topic = f"{bench.topic}-b"
    bench.make(min_insync_replicas="2")
    assert "fail input topic T: min.insync.replicas is 2, but there are 1 replica: nothing can be written" in (
        bench.troubles()
    )


def test_group_of_others(bench: Bench) -> None:
    """A group with a stranger in it, and with a committed offset that is gone, is named with who and where."""
    bench.make_all()
    bench.make(suffix=".theirs")
    produce(bench.broker, bench.topic, [(None, b"{}", (), None, 0)])
    options = {"bootstrap.servers": bench.broker, "group.id": bench.group, "client.id": "theirs"}
    stranger = Consumer(options)
    try:
        stranger.commit(offsets=[TopicPartition(bench.topic, 0, 99)], asynchronous=False)
        stranger.subscribe([f"{bench.topic}.theirs"])
        until(lambda: (stranger.poll(0.1), stranger.assignment())[1])
        stranger.commit(offsets=[TopicPartition(f"{bench.topic}.theirs", 0, 0)], asynchronous=False)
        found = bench.troubles()
    finally:
        stranger.close()
    group = "warn group group-T:"
    assert found[0] == f"{group} has committed offsets of other topics, too: T.theirs"
    assert found[1].startswith(f"{group} is used by someone else: theirs at ")
    assert found[1].endswith(" reads T.theirs")
    assert found[2] == (
        "warn committed offsets: partition 0: 99 no longer exists (0 to 1 do): "
        "the worker will go on at the earliest (WORKER_START_FROM)"
    )


def test_exit_codes_and_json(bench: Bench) -> None:
    """0 with warnings at most, 1 with a failure, 2 for wrong settings; JSON has the same findings."""
    bench.make_all()
    names = {
        "WORKER_BROKERS": bench.broker,
        "WORKER_INPUT_TOPIC": bench.topic,
        "WORKER_OUTPUT_TOPIC": f"{bench.topic}.out",
    }
    run = CliRunner()
    assert run.invoke(main, ["check"], env=names).exit_code == 0
    failing = run.invoke(main, ["check", "--json"], env={**names, "WORKER_BROKERS": "127.0.0.1:1"})
    assert failing.exit_code == 1
    assert [(row["level"], row["what"]) for row in json.loads(failing.stdout)] == [
        ("ok", "settings"),
        ("fail", "broker 127.0.0.1:1"),
    ]
    wrong = run.invoke(main, ["check"], env={**names, "WORKER_HTTP_PORT": "many"})
    assert wrong.exit_code == 2
    assert wrong.stdout.startswith("fail  settings: WORKER_HTTP_PORT='many': must be ")


# --- a cluster that guards itself -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """Give a broker with a login, certificates and access rules."""
    secured = SecuredKafka(tmp_path_factory.mktemp("secured"))
    with secured.kafka:
        yield secured


def _login(guarded: SecuredKafka, **others: str) -> dict[str, str]:
    return {
        "BROKERS": guarded.kafka.address("SASL"),
        "SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "SASL_MECHANISM": "SCRAM-SHA-256",
        "SASL_USERNAME": "worker",
        "SASL_PASSWORD": "right",
        **others,
    }


@pytest.mark.kafka
def test_login_is_refused(guarded: SecuredKafka) -> None:
    """A wrong password, a mechanism the cluster lacks and no login at all are told apart."""
    bench = Bench(guarded.kafka.bootstrap)
    assert bench.troubles(**_login(guarded, SASL_PASSWORD="wrong")) == [
        "fail login: worker is not let in by SCRAM-SHA-256"
    ]
    assert bench.troubles(**_login(guarded, SASL_MECHANISM="PLAIN")) == [
        "fail login: the cluster does not take the mechanism PLAIN"
    ]
    address = guarded.kafka.address("SASL")
    plain = guarded.kafka.bootstrap
    assert bench.troubles(BROKERS=plain, SECURITY_PROTOCOL="SSL") == [f"fail broker {plain}: {plain} hangs up on SSL"]
    assert bench.troubles(BROKERS=address) == [f"fail broker {address}: {address} hangs up on PLAINTEXT"]


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("listener", "ca", "what"),
    [
        ("TLS", False, "the certificate of {} is signed by an authority that is not trusted"),
        ("EXPIRED", True, "the certificate of {} has expired"),
        ("ELSEWHERE", True, "the certificate of {} is for another address"),
        ("MUTUAL", True, "{} wants a certificate of us "),
    ],
)
def test_certificates(guarded: SecuredKafka, listener: str, ca: bool, what: str) -> None:  # noqa: FBT001
    """Each certificate that can't be used is named with its cause."""
    bench = Bench(guarded.kafka.bootstrap)
    address = guarded.kafka.address(listener)
    trust = {"SSL_CA_FILE": guarded.ca_file} if ca else {}
    (found,) = bench.troubles(BROKERS=address, SECURITY_PROTOCOL="SSL", **trust)
    assert found.startswith(f"fail tls {address}: {what.format(address)}")


@pytest.mark.kafka
def test_missing_rights(guarded: SecuredKafka) -> None:
    """Each right that the worker lacks is named, until it has them all."""
    bench = Bench(guarded.kafka.bootstrap)
    bench.make_all()
    asked = _login(guarded, GUARANTEE="exactly-once")
    topics = ("input topic T", "output topic T.out", "dead-letter topic T.dead-letter")
    assert bench.troubles(**asked) == [
        *(f"fail {each}: is not there, or we may not see it" for each in topics),
        "fail right to use group group-T: the cluster answers GROUP_AUTHORIZATION_FAILED",
        "fail idempotent producer: the cluster answers CLUSTER_AUTHORIZATION_FAILED",
        "fail transactions: for group-T-T-check the cluster answers TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    ]
    for suffix in ("", ".out", ".dead-letter"):
        guarded.allow("topic", bench.topic + suffix, "DESCRIBE")
        guarded.allow("topic", bench.topic + suffix, "DESCRIBE_CONFIGS")
    guarded.allow("group", bench.group, "DESCRIBE")
    guarded.allow("transactional-id", f"{bench.group}-{bench.topic}-", "WRITE", prefix=True)

    def rights() -> list[str]:
        return bench.troubles(**asked)

    expected = [
        "fail right to read T: not granted",
        "fail right to write T.out: not granted",
        "fail right to write T.dead-letter: not granted",
        "fail right to use group group-T: not granted",
        "fail idempotent producer: the cluster answers CLUSTER_AUTHORIZATION_FAILED",
    ]
    until(lambda: rights() == expected)
    guarded.allow("topic", bench.topic, "READ")
    guarded.allow("topic", f"{bench.topic}.out", "WRITE")
    guarded.allow("topic", f"{bench.topic}.dead-letter", "WRITE")
    guarded.allow("group", bench.group, "READ")
    until(lambda: rights() == [])


# --- clusters that are too large to start here ------------------------------------------------------------------------

FIT = {"max.message.bytes": "1000"}
ALL = frozenset({"Read", "Write", "Describe"})


def _topic(name: str, *partitions: Partition, **config: str) -> Topic:
    named = {**FIT, **{key.replace("_", "."): value for key, value in config.items()}}
    return Topic(name, None, partitions or (Partition(0, 1, 3, 3),), ALL, named, None, {0: (0, 5)})


def _view(source: Topic, group: Group | None = None, brokers: int = 3, internal: Topic | None = None) -> View:
    return View(
        brokers=brokers,
        rights=None,
        input=source,
        output=_topic("messages", max_message_bytes="2200", min_insync_replicas="2"),
        dead_letters=_topic("text-events.dead-letter", max_message_bytes="99999", min_insync_replicas="2"),
        internal=() if internal is None else (internal,),
        group=group or Group(rights=ALL),
        idempotent=None,
        transactional=None,
        transactional_id=None,
    )


@pytest.mark.parametrize(
    ("source", "trouble"),
    [
        (_topic("text-events", Partition(0, 1, 3, 3), min_insync_replicas="2"), None),
        (_topic("text-events", Partition(0, -1, 3, 0), min_insync_replicas="2"), "fail no broker leads partition 0"),
        (_topic("text-events", Partition(0, 1, 1, 1)), "warn one replica, in a cluster of 3 brokers"),
        (_topic("text-events"), "warn 3 replicas, but min.insync.replicas is 1"),
        (
            _topic("text-events", Partition(0, 1, 3, 1), min_insync_replicas="2"),
            "fail partition 0: fewer replicas are in sync than min.insync.replicas (2)",
        ),
        (
            _topic("text-events", Partition(0, 1, 3, 2), min_insync_replicas="2"),
            "warn partition 0: not all replicas are in sync",
        ),
    ],
)
def test_replicas(source: Topic, trouble: str | None) -> None:
    """What the loss of a broker would cost, or has cost, is said."""
    found = [each for each in verdicts.judge(settings.from_mapping({}), _view(source)) if each.level != "ok"]
    said = [f"{each.level} {each.detail}" for each in found if each.what == "input topic text-events"]
    assert (said[0] if said else None) == trouble or (trouble is not None and said[0].startswith(trouble))


def test_replicas_of_the_clusters_own_topics() -> None:
    """Three replicas of every topic help little when offsets or transactions have one."""
    source = _topic("text-events", min_insync_replicas="2")
    view = _view(source, internal=_topic("__transaction_state", Partition(0, 1, 1, 1)))
    found = [each for each in verdicts.judge(settings.from_mapping({}), view) if each.level != "ok"]
    assert [(each.level, each.what, each.detail) for each in found] == [
        (
            "warn",
            "the cluster's topic __transaction_state",
            "one replica, in a cluster of 3 brokers: lost with its broker",
        )
    ]


@pytest.mark.parametrize(
    ("group", "level", "detail"),
    [
        (
            Group(rights=ALL, protocol_type="connect", members=(Member("c", "h", ()),)),
            "fail",
            "its protocol is connect",
        ),
        (
            Group(rights=ALL, protocol_type="consumer", members=(Member("kcat", "10.0.0.9", ("text-events",)),)),
            "warn",
            "has a member that is no worker: kcat at 10.0.0.9",
        ),
        (
            Group(rights=ALL, protocol_type="consumer", members=(Member("text-to-message", "h", ("text-events",)),)),
            "ok",
            "1 worker in it",
        ),
    ],
)
def test_members(group: Group, level: str, detail: str) -> None:
    """Workers in the group are fine; anyone else is not."""
    source = _topic("text-events", min_insync_replicas="2")
    found = [
        each for each in verdicts.judge(settings.from_mapping({}), _view(source, group)) if "group text" in each.what
    ]
    assert [(each.level, detail in each.detail) for each in found if "right" not in each.what] == [(level, True)]


def test_a_right_that_is_not_told_is_no_ok() -> None:
    """What could not be checked is a warning that says so."""
    source = _topic("text-events", min_insync_replicas="2")
    view = _view(source, Group(rights=None))
    found = [each for each in verdicts.judge(settings.from_mapping({}), view) if each.level != "ok"]
    assert [(each.level, each.what, each.detail) for each in found] == [
        ("warn", "right to use group text-to-message", "could not be checked: the broker does not say")
    ]


def test_the_probe_is_no_workers_transactional_id() -> None:
    """A worker's ends in a partition number; taking one of those would fence it."""
    assert not cluster.probe_id(settings.from_mapping({})).rpartition("-")[2].isdigit()
