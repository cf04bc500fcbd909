"""``worker explain TOPIC:PARTITION:OFFSET``: what became, or would become, of one event. Reads; joins no group.

The fate is decided by the very rule that the worker runs (``rule/outcome.py``), and the size by the output topic's
limit. What a broker would refuse for another cause (a timestamp out of range, no key in a compacted topic) can't be
foretold. A record of the dead-letter topic is explained as the event it was, beside what its headers say.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

from aiokafka.partitioner import murmur2
from aiokafka.producer.message_accumulator import BatchBuilder

from worker import show
from worker.errors import WorkerError
from worker.kafka import letters, reader
from worker.kafka.dead_letters import OURS
from worker.kafka.odd_names import OddBatchBuilder
from worker.kafka.topics import DEFAULT_LIMIT
from worker.rule.event import Fields, Unreadable, read_json, read_text
from worker.rule.lexemes import Number
from worker.rule.outcome import Explanation, Rule

if TYPE_CHECKING:
    from worker.kafka.cluster import Topic
    from worker.kafka.reader import Found
    from worker.settings import Settings

#: How far back the nearest record is looked for when there is none behind.
_BACK = 1000
#: Kafka's numbers of the codecs.
_CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_PLACE = re.compile(r"([a-zA-Z0-9._-]+):([0-9]{1,9}):([0-9]{1,18})")


class Place(NamedTuple):
    """Where a record lies."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        """As it is written on the command line."""
        return f"{self.topic}:{self.partition}:{self.offset}"


class Report(NamedTuple):
    """All there is to say about one record."""

    place: Place
    record: Found
    note: str | None
    """What makes it no ordinary event: aborted, or still in a transaction."""
    read_as: str
    explanation: Explanation | None
    """None where the value is not there to be explained."""
    target: tuple[str, int] | None
    """Topic and partition that the outcome goes to; None: nowhere."""
    origin: dict[str, str]
    """What the headers of a dead letter say."""


def parse(text: str) -> Place:
    """Read ``TOPIC:PARTITION:OFFSET``; raises ValueError."""
    match = _PLACE.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return Place(match[1], int(match[2]), int(match[3]))


def explain(settings: Settings, place: Place) -> Report:
    """Read one record and say what becomes of it."""
    return reader.run(settings, _explain(settings, place))


async def _explain(settings: Settings, place: Place) -> Report:
    ours = (settings.input_topic, settings.output_topic, settings.dead_letter_topic)
    topics = await reader.topics(settings, *{place.topic, *ours})
    topic = reader.must_be_there(topics[place.topic])
    record, note = await _read(settings, topic, place)
    headers = list(record.headers)
    partition, origin = place.partition, {}
    if place.topic == settings.dead_letter_topic:
        letter = letters.read(record)
        origin, headers = letter.says, letter.event_headers
        if not letter.has_value:
            return Report(place, record, note, "its value was not kept", None, None, origin)
        partition = partition if letter.source is None else letter.source
    read_as = _read_as(settings, record.value, headers)
    limit = int((topics[settings.output_topic].config or {}).get("max.message.bytes", DEFAULT_LIMIT))
    explanation = _fate(settings, record, headers, limit)
    goes_to = {"message": settings.output_topic, "dead-letter": settings.dead_letter_topic}.get(explanation.outcome)
    target = None
    if goes_to is not None:
        target = goes_to, _partition(partition, record.key, topics[settings.input_topic], topics[goes_to])
    return Report(place, record, note, read_as, explanation, target, origin)


async def _read(settings: Settings, topic: Topic, place: Place) -> tuple[Found, str | None]:
    async with reader.open_reader(settings, topic, only=place.partition, isolation="read_uncommitted") as uncommitted:
        first, end = uncommitted.bounds[place.partition]
        if not first <= place.offset < end:
            holds = f"offsets {first} to {end - 1}" if end > first else "nothing"
            nearest = "" if end == first else f"; the nearest is {first if place.offset < first else end - 1}"
            raise WorkerError(f"{place}: no such offset: the partition holds {holds}{nearest}")
        record = await anext(aiter(uncommitted.records(place.partition, place.offset, end)), None)
        if record is None or record.offset != place.offset:
            near = record.offset if record else await _before(uncommitted, place, first)
            nearest = "" if near is None else f"; the nearest is {near}"
            raise WorkerError(f"{place}: no record there: a transaction marker, or compacted away{nearest}")
    async with reader.open_reader(settings, topic, only=place.partition) as committed:
        stable = committed.bounds[place.partition][1]
        if place.offset >= stable:
            return record, f"in a transaction that has not ended: the worker waits at offset {stable}"
        seen = [each async for each in committed.records(place.partition, place.offset, place.offset + 1)]
        return record, None if seen else "aborted: its transaction did not commit, and the worker never sees it"


async def _before(source: reader.Reader, place: Place, first: int) -> int | None:
    near = None
    async for record in source.records(place.partition, max(first, place.offset - _BACK), place.offset):
        near = record.offset
    return near


def _read_as(settings: Settings, value: bytes | None, headers: list[tuple[str, bytes | None]]) -> str:
    fields = Fields(settings.text_field, settings.role_field, settings.tool_call_id_field)
    if value is None:
        return "a tombstone: no value"
    event = read_json(value, fields) if settings.input_format == "json" else read_text(value, headers, fields)
    if isinstance(event, Unreadable):
        return f"{settings.input_format}, which it is not: {event.detail}"
    names = (settings.text_field, settings.role_field, settings.tool_call_id_field)
    if settings.input_format == "text":
        names = ("the value", f"header {settings.role_field}", f"header {settings.tool_call_id_field}")
    parts = (f"{name} is {_type(value)}" for name, value in zip(names, event, strict=True))
    return f"{settings.input_format}: {', '.join(parts)}"


def _type(value: object) -> str:
    kinds = {type(None): "absent or null", bool: "a boolean", Number: "a number", str: "a string", list: "an array"}
    return kinds.get(type(value), "an object")


def _fate(settings: Settings, record: Found, headers: list[tuple[str, bytes | None]], limit: int) -> Explanation:
    fields = Fields(settings.text_field, settings.role_field, settings.tool_call_id_field)
    rule = Rule(settings.input_format, settings.output_format, fields)
    explanation = rule.explain(record.value, headers)
    if explanation.record is None:
        return explanation
    make = OddBatchBuilder if letters.has_odd_names(headers) else BatchBuilder
    batch = make(limit, _CODECS[settings.compression], is_transactional=settings.guarantee == "exactly-once")
    batch.append(timestamp=record.timestamp, key=record.key, value=explanation.record, headers=headers)
    batch.close()
    if batch.size() <= limit or len(batch._build()) <= limit:  # noqa: SLF001 - as writer.py does
        return explanation
    detail = f"{batch.size():,} bytes; {settings.output_topic} takes {limit:,}"
    return Explanation("dead-letter", "too-large", f"the message does not fit its topic: {detail}", None)


def _partition(partition: int, key: bytes | None, source: Topic, target: Topic) -> int:
    """The output's rule (contract, section 1). A topic that is not there yet will have as many as the input."""
    count = len(target.partitions) or len(source.partitions)
    if count in (0, len(source.partitions)):
        return partition
    return partition % count if key is None else (murmur2(key) & 0x7FFFFFFF) % count


def as_lines(report: Report, *, full: bool = False) -> str:
    """The report for a terminal."""
    record = report.record
    clock = "LogAppendTime" if record.timestamp_type == 1 else "CreateTime"
    rows = [
        (str(report.place), report.note or ""),
        ("timestamp", f"{show.when(record.timestamp)} ({record.timestamp}, {clock})"),
        ("key", _shown(record.key, full=full)),
        *(
            ("header", f"{show.escaped(name)}: {_shown(value, full=full)}")
            for name, value in record.headers
            if not (report.origin and name in OURS)
        ),
        ("value", _shown(record.value, full=full)),
        *((f"dead letter {name}", show.escaped(value)) for name, value in report.origin.items()),
        ("read as", show.escaped(report.read_as)),
    ]
    if report.explanation is not None:
        outcome, reason, rule, written = report.explanation
        rows += [("outcome", f"{outcome} ({reason})" if reason else outcome), ("rule", show.escaped(rule))]
        if report.target is not None:
            rows.append(
                ("goes to", f"{report.target[0]}, partition {report.target[1]}, key, headers and timestamp kept")
            )
        if written is not None:
            rows.append(("record", _shown(written, full=full)))
    width = max(len(name) for name, _ in rows[1:])
    head, *rest = rows
    return "\n".join([" — ".join(filter(None, head)), *(f"  {name:{width}}  {value}" for name, value in rest)]) + "\n"


def _shown(data: bytes | None, *, full: bool) -> str:
    return "null" if data is None else f"{show.payload(data, full=full)}  ({show.kind(data)})"


def as_json(report: Report) -> str:
    """The report as one JSON object; bytes are exact."""
    record, explanation = report.record, report.explanation
    document = {
        **report.place._asdict(),
        "note": report.note,
        "timestamp": record.timestamp,
        "key": show.for_json(record.key),
        "headers": [[name, show.for_json(value)] for name, value in record.headers],
        "value": show.for_json(record.value),
        "dead_letter": report.origin or None,
        "read_as": report.read_as,
        "outcome": explanation and explanation.outcome,
        "reason": explanation and explanation.reason,
        "rule": explanation and explanation.rule,
        "target": report.target and {"topic": report.target[0], "partition": report.target[1]},
        "record": show.for_json(explanation.record) if explanation else None,
    }
    return json.dumps(document, indent=2) + "\n"
