"""What a cluster's state means for the worker: values in, findings out. Pure, so that each broken cluster is a case.

``fail``: the worker can't start, stands still or loses what it promises. ``warn``: it runs, and a person should know.
A question that could not be put is a ``warn`` that says so, never an ``ok``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from aiokafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError

from worker.kafka.topics import DEFAULT_LIMIT, DEFAULT_PARTITIONS, GROWTH, HEADER_ROOM

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from worker.kafka.cluster import Group, Topic, View
    from worker.settings import Settings

Level = Literal["ok", "warn", "fail"]

_FOREVER = float("inf")
_ANY_AGE = 2**63 - 1
#: Kafka's own default of message.timestamp.after.max.ms since 4.0.
_HOUR_MS = 3_600_000
_COPIES = 3


class Finding(NamedTuple):
    """One line of ``worker check``: how bad, about what, what was seen, what to do."""

    level: Level
    what: str
    detail: str
    hint: str = ""


def judge(settings: Settings, view: View) -> Iterator[Finding]:
    """Say what is well and what is not, the most basic first."""
    everyone = (("input topic", view.input), ("output topic", view.output), ("dead-letter topic", view.dead_letters))
    for role, topic in everyone:
        yield from _there(settings, role, topic, view)
    for role, topic in everyone:
        yield from _copies(role, topic, view.brokers)
    for topic in view.internal:
        yield from _few_copies(f"the cluster's topic {topic.name}", topic, view.brokers)
    yield from _partition_counts(settings, view)
    yield from _rights(settings, view)
    yield from _producer(settings, view)
    for role, topic in everyone[1:]:
        yield from _config(settings, role, topic, view.input)
    yield from _group(settings, view)
    yield from _commits(settings, view)


def _there(settings: Settings, role: str, topic: Topic, view: View) -> Iterator[Finding]:
    what = f"{role} {topic.name}"
    if topic.error is None:
        yield Finding("ok", what, f"there, {_many(len(topic.partitions), 'partition')}")
    elif topic.error == "missing" and not settings.create_topics:
        yield Finding("fail", what, "is missing", "make it, or set WORKER_CREATE_TOPICS=true")
    elif topic.error == "missing" and topic.refusal is not None:
        yield Finding("fail", what, f"is missing and can't be made: {topic.refusal}", "make it, or grant Create on it")
    elif topic.error == "missing":
        count = settings.partitions or len(view.input.partitions) or DEFAULT_PARTITIONS
        detail = f"is missing; the worker will make it with {_many(count, 'partition')}"
        if topic is view.input:
            yield Finding("warn", what, detail, "look whether WORKER_INPUT_TOPIC is the right name")
        else:
            yield Finding("ok", what, detail)
    elif topic.error == TopicAuthorizationFailedError.message:
        right = "Read" if topic is view.input else "Write"
        yield Finding(
            "fail", what, "is not there, or we may not see it", f"grant {right} (which brings Describe) on it"
        )
    else:
        yield Finding("fail", what, f"the cluster answers {topic.error}", "look at the broker's log")


def _copies(role: str, topic: Topic, brokers: int) -> Iterator[Finding]:
    """Look at leaders and replicas: can it be read and written now, and still when a broker is lost."""
    if not topic.partitions:
        return
    what = f"{role} {topic.name}"
    leaderless = [each.number for each in topic.partitions if each.leader < 0]
    if leaderless:
        detail = f"no broker leads {_listed(leaderless)}"
        yield Finding("fail", what, detail, "bring the brokers back that hold them")
    least = int((topic.config or {}).get("min.insync.replicas", 1))
    replicas = min(each.replicas for each in topic.partitions)
    short = [each.number for each in topic.partitions if each.leader >= 0 and each.in_sync < least]
    behind = [each.number for each in topic.partitions if least <= each.in_sync < each.replicas]
    if least > replicas:
        detail = f"min.insync.replicas is {least}, but there are {_many(replicas, 'replica')}: nothing can be written"
        yield Finding("fail", what, detail, "lower min.insync.replicas, or add replicas")
    elif short:
        detail = f"{_listed(short)}: fewer replicas are in sync than min.insync.replicas ({least}): can't be written"
        yield Finding("fail", what, detail, "bring the brokers back that hold the others")
    elif behind:
        yield Finding("warn", what, f"{_listed(behind)}: not all replicas are in sync", "look at the brokers")
    yield from _few_copies(what, topic, brokers)


def _few_copies(what: str, topic: Topic, brokers: int) -> Iterator[Finding]:
    replicas = min(each.replicas for each in topic.partitions)
    if replicas == 1 and brokers > 1:
        detail = f"one replica, in a cluster of {brokers} brokers: lost with its broker"
        yield Finding("warn", what, detail, "give it three replicas")
    elif replicas >= _COPIES and topic.config is not None and topic.config.get("min.insync.replicas", "1") == "1":
        detail = f"{replicas} replicas, but min.insync.replicas is 1: what one broker alone has can be lost"
        yield Finding("warn", what, detail, "set min.insync.replicas=2")


def _partition_counts(settings: Settings, view: View) -> Iterator[Finding]:
    there = len(view.input.partitions)
    if not there:
        return
    for role, topic in (("messages", view.output), ("dead letters", view.dead_letters)):
        count = len(topic.partitions) or (settings.partitions or there if topic.error == "missing" else 0)
        if count == there:
            yield Finding("ok", "partitions", f"{role} keep the partition number of their event ({there})")
        elif count:
            yield Finding(
                "warn",
                "partitions",
                f"{settings.input_topic} has {there}, {topic.name} has {count}: {role} go by their key (murmur2), "
                f"without a key by the input's partition modulo {count}",
                f"give {topic.name} {_many(there, 'partition')} if the number is to be kept",
            )


def _rights(settings: Settings, view: View) -> Iterator[Finding]:
    needs = ((view.input, "Read"), (view.output, "Write"), (view.dead_letters, "Write"))
    for topic, right in needs:
        if topic.error is not None:
            continue
        what = f"right to {right.lower()} {topic.name}"
        yield from _right(what, topic.rights, right, f"grant {right} on topic {topic.name}")
        if topic.config is None:
            detail = f"the configuration of {topic.name} may not be read: limits and retention could not be checked"
            yield Finding("warn", what, detail, f"grant DescribeConfigs on topic {topic.name}")
    group, what = view.group, f"right to use group {settings.group_id}"
    if group.error is None:
        yield from _right(what, group.rights, "Read", f"grant Read on group {settings.group_id}")
    else:
        refused = group.error == GroupAuthorizationFailedError.message
        hint = f"grant Read on group {settings.group_id}" if refused else "look at the brokers, and check again"
        yield Finding("fail", what, f"the cluster answers {group.error}", hint)


def _right(what: str, rights: frozenset[str] | None, right: str, hint: str) -> Iterator[Finding]:
    if rights is None:
        yield Finding("warn", what, "could not be checked: the broker does not say", hint)
    elif right in rights:
        yield Finding("ok", what, "granted")
    else:
        yield Finding("fail", what, "not granted", hint)


def _producer(settings: Settings, view: View) -> Iterator[Finding]:
    what = "idempotent producer"
    if view.idempotent is None:
        yield Finding("ok", what, "the cluster gives producer ids")
    else:
        yield Finding(
            "fail",
            what,
            f"the cluster answers {view.idempotent}",
            "grant Write on a topic, or IdempotentWrite on cluster",
        )
    if view.transactional_id is None:
        return
    prefix = f"{settings.group_id}-{settings.input_topic}-"
    if view.transactional is None:
        yield Finding("ok", "transactions", f"granted for {view.transactional_id}")
    else:
        yield Finding(
            "fail",
            "transactions",
            f"for {view.transactional_id} the cluster answers {view.transactional}",
            f"grant Write on transactional ids with the prefix {prefix}",
        )


def _config(settings: Settings, role: str, topic: Topic, source: Topic) -> Iterator[Finding]:
    if topic.config is None or source.config is None:
        return
    what = f"{role} {topic.name}"
    found = [
        *_size(settings, what, topic, source),
        *_retention(what, topic.config, source.config),
        *_timestamps(what, topic.config, source.config),
        *_cleanup(settings, what, topic),
    ]
    yield from found or [Finding("ok", what, "size limit, retention, timestamps and cleanup fit the input's")]


def _size(settings: Settings, what: str, topic: Topic, source: Topic) -> Iterator[Finding]:
    limit, largest = _limit(topic.config), _limit(source.config)
    if topic.name == settings.dead_letter_topic:
        if limit < largest + HEADER_ROOM:
            yield Finding(
                "warn",
                what,
                f"takes {limit:,} bytes and the input {largest:,}: the largest dead letters come without their value",
                f"set max.message.bytes={largest + HEADER_ROOM} on it",
            )
        return
    wanted = int(largest * GROWTH[settings.output_format])
    if limit < wanted:
        yield Finding(
            "warn",
            what,
            f"takes {limit:,} bytes and the input {largest:,}: events of more than about "
            f"{int(limit / GROWTH[settings.output_format]):,} bytes may become dead letters (too-large)",
            f"set max.message.bytes={wanted} on it"
            + (", or WORKER_OUTPUT_FORMAT=message" if settings.output_format == "both" else ""),
        )


def _limit(config: Mapping[str, str] | None) -> int:
    return int((config or {}).get("max.message.bytes", DEFAULT_LIMIT))


def _retention(what: str, config: Mapping[str, str], source: Mapping[str, str]) -> Iterator[Finding]:
    """Kept timestamps meet Kafka's time-based retention: old events are deleted as soon as they are written."""
    for name, unit in (("retention.ms", "ms"), ("retention.bytes", "bytes")):
        kept, wanted = _kept(config, name), _kept(source, name)
        if kept < wanted:
            shown = "for ever" if wanted == _FOREVER else f"{wanted:.0f} {unit}"
            yield Finding(
                "warn",
                what,
                f"{name}={kept:.0f}, and the input keeps {shown}: it deletes what the input still has",
                f"set {name}={-1 if wanted == _FOREVER else int(wanted)} on it",
            )


def _kept(config: Mapping[str, str], name: str) -> float:
    value = int(config.get(name, -1))
    return _FOREVER if value < 0 or "delete" not in config.get("cleanup.policy", "delete") else value


def _timestamps(what: str, config: Mapping[str, str], source: Mapping[str, str]) -> Iterator[Finding]:
    if config.get("message.timestamp.type") == "LogAppendTime":
        detail = "message.timestamp.type=LogAppendTime: the events' timestamps are lost"
        yield Finding("warn", what, detail, "set message.timestamp.type=CreateTime on it")
        return
    before = int(config.get("message.timestamp.before.max.ms", _ANY_AGE))
    if before < _ANY_AGE:
        detail = (
            f"message.timestamp.before.max.ms={before}: older events are refused and become dead letters (rejected)"
        )
        yield Finding("warn", what, detail, f"set message.timestamp.before.max.ms={_ANY_AGE} on it")
    after = int(config.get("message.timestamp.after.max.ms", _HOUR_MS))
    wanted = int(source.get("message.timestamp.after.max.ms", _HOUR_MS))
    if after < wanted and source.get("message.timestamp.type") != "LogAppendTime":
        detail = (
            f"message.timestamp.after.max.ms={after}, and the input takes {wanted}: events ahead of time are refused"
        )
        yield Finding("warn", what, detail, f"set message.timestamp.after.max.ms={wanted} on it")


def _cleanup(settings: Settings, what: str, topic: Topic) -> Iterator[Finding]:
    policy = (topic.config or {}).get("cleanup.policy", "delete")
    if "compact" not in policy:
        return
    if topic.name == settings.dead_letter_topic:
        detail = (
            f"cleanup.policy={policy}: a dead letter without a key can't be stored, and of one key only the last stays"
        )
        yield Finding("fail", what, detail, "set cleanup.policy=delete on it")
    else:
        detail = (
            f"cleanup.policy={policy}: an event without a key becomes a dead letter (rejected), "
            "and of one key only the last message stays"
        )
        yield Finding("warn", what, detail, "set cleanup.policy=delete on it, unless that is meant")


def _group(settings: Settings, view: View) -> Iterator[Finding]:
    group, what = view.group, f"group {settings.group_id}"
    if group.error is not None:
        return
    found = [*_strangers(settings, what, group)]
    others = sorted({tp.topic for tp in group.commits} - {settings.input_topic})
    if others:
        detail = f"has committed offsets of other topics, too: {_first(others)}"
        yield Finding("warn", what, detail, "set WORKER_GROUP_ID to a name that nobody else has")
    yield from found
    if not found and not others:
        members = f"{_many(len(group.members), 'worker')} in it" if group.members else "nobody in it now"
        yield Finding("ok", what, members)


def _strangers(settings: Settings, what: str, group: Group) -> Iterator[Finding]:
    hint = "set WORKER_GROUP_ID to a name that nobody else has"
    if group.members and group.protocol_type != "consumer":
        detail = f"is used by others: its protocol is {group.protocol_type}, not consumer"
        yield Finding("fail", what, detail, hint)
        return
    for member in group.members:
        theirs = sorted(set(member.topics) - {settings.input_topic})
        if theirs:
            detail = f"is used by someone else: {member.client_id} at {member.host} reads {_first(theirs)}"
            yield Finding("warn", what, detail, hint)
        elif member.client_id != settings.group_id:
            detail = f"has a member that is no worker: {member.client_id} at {member.host} takes part of the events"
            yield Finding("warn", what, detail, hint)


def _commits(settings: Settings, view: View) -> Iterator[Finding]:
    own = {tp.partition: offset for tp, offset in view.group.commits.items() if tp.topic == settings.input_topic}
    if view.group.error is not None or view.input.error is not None:
        return
    what = "committed offsets"
    unasked = sorted({each.number for each in view.input.partitions} - view.input.bounds.keys())
    if unasked:
        yield Finding("warn", what, f"{_listed(unasked)} could not be checked", "look at the brokers, and check again")
    lost = False
    for partition, offset in sorted(own.items()):
        first, end = view.input.bounds.get(partition, (offset, offset))
        if not first <= offset <= end:
            lost = True
            yield Finding(
                "warn",
                what,
                f"partition {partition}: {offset} no longer exists ({first} to {end} do): the worker will go on at the "
                f"{settings.start_from} (WORKER_START_FROM)",
                "make sure that no event is lost or done twice that should not be",
            )
    if not own:
        yield Finding("ok", what, f"none yet: the worker starts at the {settings.start_from} (WORKER_START_FROM)")
    elif not lost and not unasked:
        waiting = sum(end - max(own.get(number, first), first) for number, (first, end) in view.input.bounds.items())
        yield Finding("ok", what, f"{waiting:,} offsets behind")


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _listed(partitions: list[int]) -> str:
    return f"partition{'s' if len(partitions) > 1 else ''} {_first([str(each) for each in partitions])}"


def _first(names: list[str]) -> str:
    shown, more = names[:5], len(names) - 5
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
