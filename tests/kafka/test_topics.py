"""The topics at start: made when missing and allowed, waited for, or named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined] # not in its __all__
    AdminClient,
    ConfigResource,
    ResourceType,
)
from kafka_help import create_topic
from worker_process import event, numbers

from worker.kafka.topics import DEFAULT_LIMIT, HEADER_ROOM, Limits

if TYPE_CHECKING:
    from worker_process import MakeLine


def partitions(bootstrap: str, topic: str) -> int:
    """How many partitions a topic has; 0 if it is not there."""
    found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30).topics.get(topic)
    return 0 if found is None else len(found.partitions)


def config(bootstrap: str, topic: str) -> dict[str, str]:
    """A topic's configuration."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    ((_, future),) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).items()
    return {name: entry.value for name, entry in future.result(30).items()}


def test_an_unknown_limit_is_kafkas_default() -> None:
    """A topic whose configuration may not be read is taken for a usual one."""
    assert Limits({"a": 5}).of("a") == 5
    assert Limits({"a": 5}).of("b") == DEFAULT_LIMIT


def test_missing_topics_are_made_like_the_input(line: MakeLine) -> None:
    """As many partitions; output kept as long as the input, dead letters for ever, with room for what is added."""
    works = line(partitions=3, config={"retention.ms": "12345678", "max.message.bytes": "2000000"})
    worker = works.run()

    output, dead = config(works.bootstrap, works.output), config(works.bootstrap, works.dead)
    assert partitions(works.bootstrap, works.output) == partitions(works.bootstrap, works.dead) == 3
    assert (output["retention.ms"], output["max.message.bytes"]) == ("12345678", "4400000")
    assert (dead["retention.ms"], dead["max.message.bytes"]) == ("-1", str(2_000_000 + HEADER_ROOM))
    assert output["message.timestamp.type"] == dead["message.timestamp.type"] == "CreateTime"
    assert {said["topic"] for said in worker.said("topic-made")} == {works.output, works.dead}


def test_a_limit_that_the_cluster_refuses_is_left_to_it(line: MakeLine) -> None:
    """Twice a gigabyte is more than a limit can be: the topic is made all the same."""
    works = line(config={"max.message.bytes": "1073741824"})
    works.run()
    assert config(works.bootstrap, works.output)["max.message.bytes"] == str(DEFAULT_LIMIT)


@pytest.mark.parametrize(("settings", "count"), [({}, 4), ({"partitions": "2"}, 2)])
def test_a_missing_input_is_made(line: MakeLine, settings: dict[str, str], count: int) -> None:
    """With the count of the settings, else four."""
    works = line(partitions=0)
    works.run(**settings)

    assert [partitions(works.bootstrap, topic) for topic in (works.input, works.output, works.dead)] == [count] * 3


def test_a_topic_that_deletes_what_the_input_keeps_is_named(line: MakeLine) -> None:
    """Old events would be deleted as soon as they are written: a line says so at start, for this topic only."""
    works = line(config={"retention.ms": "-1"})
    create_topic(works.bootstrap, works.output, config={"retention.ms": "60000"})
    create_topic(works.bootstrap, works.dead, config={"cleanup.policy": "compact"})
    worker = works.run()

    (said,) = worker.said("retention-shorter-than-input")
    assert (said["topic"], said["retention_ms"], said["input_retention_ms"]) == (works.output, "60000", "-1")


def test_a_missing_input_that_may_not_be_made_is_waited_for(line: MakeLine) -> None:
    """With a line that names it; once someone makes it the worker goes to work, without a restart."""
    works = line(partitions=0, create_topics="false")
    create_topic(works.bootstrap, works.output)
    create_topic(works.bootstrap, works.dead)
    worker = works.start()
    said = worker.wait_for("waiting-for-input-topic")
    assert said["topic"] == works.input

    create_topic(works.bootstrap, works.input)
    works.feed([event(1)])
    worker.wait_for("partitions-assigned")
    works.settle()

    assert numbers(works.outputs()) == [1]


@pytest.mark.parametrize("missing", ["output", "dead"])
def test_another_topic_that_may_not_be_made_ends_the_start(line: MakeLine, missing: str) -> None:
    """Exit 1, in one line that names the topic and says what to do, before anything is read."""
    works = line(create_topics="false")
    create_topic(works.bootstrap, works.dead if missing == "output" else works.output)
    worker = works.start()

    assert worker.wait() == 1
    topic = getattr(works, missing)
    assert topic in worker.text
    assert "WORKER_CREATE_TOPICS" in worker.text
    assert "Traceback" not in worker.text
    assert worker.said("partitions-assigned") == []
    assert partitions(works.bootstrap, topic) == 0
