"""Dead letters back to the input topic: each to the partition it came from, with key, headers, timestamp and value.

1. read     a piece of one partition of the dead-letter topic
2. decide   each letter: not asked for, sent before, refused, or to be sent
3. send     those, and wait until the broker has confirmed each
4. remember them (``replayed.py``), committed in a group of its own: ``<group>.dead-letters.replay``

At least once: killed between 3 and 4, the piece is sent again. What is not remembered is never left out. The memory is
a committed offset, so the cluster drops it when nobody has replayed for ``offsets.retention.minutes`` (seven days by
default), and when the dead-letter topic was made again it is not used.
"""

from __future__ import annotations

import asyncio
import copy
import dataclasses
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from aiokafka import AIOKafkaProducer
from aiokafka.errors import GroupAuthorizationFailedError, KafkaError, TopicAuthorizationFailedError
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from worker.errors import BrokerError, WorkerError
from worker.kafka import connection, letters, positions, reader
from worker.kafka.odd_names import OddBatchBuilder
from worker.kafka.replayed import MAX_LENGTH, Replayed
from worker.kafka.retry import describe
from worker.kafka.writer import REFUSED

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from worker.kafka.cluster import Topic
    from worker.kafka.letters import Filter, Letter
    from worker.settings import Settings

#: A piece ends at so many letters to send, so many bytes of them, or so many letters looked at.
_SEND, _BYTES, _LOOK = 200, 4 << 20, 5000
_SECONDS, _RETRY_SECONDS = 15.0, 0.1

#: ``gone``: refused for ever, as its value was not kept; ``refused`` may be sent one day.
What = Literal["send", "before", "left", "refused", "gone"]


def group_of(settings: Settings) -> str:
    """The group whose commits remember what was sent."""
    return f"{settings.group_id}.dead-letters.replay"


@dataclasses.dataclass(slots=True)
class Summary:
    """What a replay did, by reason."""

    sent: Counter[str] = dataclasses.field(default_factory=Counter)
    refused: Counter[str] = dataclasses.field(default_factory=Counter)
    before: int = 0
    """Sent by an earlier replay."""
    left: int = 0
    """Not asked for."""


class Order(NamedTuple):
    """What a person asked for."""

    which: Filter
    partition: int | None = None
    limit: int | None = None
    max_attempts: int = 3
    dry_run: bool = False
    now: int | None = None
    """The time in milliseconds, by which events are too old for the input topic; None: send these too."""


class Watcher(NamedTuple):
    """Where the replay tells how it goes."""

    on_start: Callable[[int], None]
    """How many offsets there are to look at."""
    on_progress: Callable[[int], None]
    """So many more were looked at."""
    on_sent: Callable[[Letter], None]
    """One was sent, or would be."""
    on_refused: Callable[[Letter, str], None]
    """One can't be sent, and why."""


def replay(settings: Settings, order: Order, watcher: Watcher) -> Summary:
    """Send back what is asked for. Two replays of one worker must not run at the same time: each would send all."""
    return reader.run(settings, _replay(settings, order, watcher))


async def _replay(settings: Settings, order: Order, watcher: Watcher) -> Summary:
    topics = await reader.topics(settings, settings.input_topic, settings.dead_letter_topic)
    target = reader.must_be_there(topics[settings.input_topic])
    terms = letters.Terms(target.name, len(target.partitions), order.max_attempts, _oldest(target, order.now))
    topic = reader.must_be_there(topics[settings.dead_letter_topic])
    async with reader.open_reader(settings, topic, only=order.partition, group=group_of(settings)) as source:
        producer = _producer(settings)
        try:
            await producer.start()
            return await _Replay(settings, order, watcher, source, producer, terms).run()
        except TopicAuthorizationFailedError:
            raise BrokerError(f"replay: grant Write on topic {settings.input_topic}, and run it again") from None
        except GroupAuthorizationFailedError:
            raise BrokerError(f"replay: grant Read on group {group_of(settings)}, and run it again") from None
        except KafkaError as error:
            again = "what was confirmed is remembered; run it again to go on"
            raise BrokerError(f"replay: the cluster went away or refused ({describe(error)}): {again}") from None
        finally:
            await connection.cut(producer)


def _oldest(target: Topic, now: int | None) -> int:
    """Kept timestamps meet time-based retention: what is older than this may be gone before the worker comes to it."""
    config = target.config or {}
    kept = int(config.get("retention.ms", -1))
    if now is None or kept < 0 or "delete" not in config.get("cleanup.policy", "delete"):
        return -(2**63)
    return now - kept


def _producer(settings: Settings) -> AIOKafkaProducer:
    # Not idempotent: after a record that the broker refuses, such a producer is of no use (its sequence has a gap).
    # Its own size limit is off: the broker is the judge.
    return AIOKafkaProducer(
        **connection.arguments(settings),
        acks="all",
        compression_type=None if settings.compression == "none" else settings.compression,
        max_request_size=2**31 - 1,
    )


class _Replay:
    def __init__(  # noqa: PLR0913, PLR0917 - the parts it is made of
        self,
        settings: Settings,
        order: Order,
        watcher: Watcher,
        source: reader.Reader,
        producer: AIOKafkaProducer,
        terms: letters.Terms,
    ) -> None:
        self._settings = settings
        self._order = order
        self._watcher = watcher
        self._source = source
        self._producer = producer
        self._terms = terms
        self._summary = Summary()

    async def run(self) -> Summary:
        memories = await self._memories()
        bounds = {number: self._order.which.bounds(*self._source.bounds[number]) for number in memories}
        self._watcher.on_start(sum(end - start for start, end in bounds.values()))
        if not self._order.dry_run:
            await self._commit(memories)  # whoever may not remember must not send
        for number, (start, end) in sorted(bounds.items()):
            await self._partition(number, start, end, memories[number])
        return self._summary

    async def _memories(self) -> dict[int, Replayed]:
        """What earlier replays remembered, by partition."""
        commits = await asyncio.wait_for(self._commits(), _SECONDS)
        memories = {}
        for number, (_, end) in self._source.bounds.items():
            memory = Replayed(commits[number].metadata if number in commits else "")
            # Offsets past the end are those of a topic that was there before this one.
            memories[number] = memory if memory.end <= end else Replayed()
        return memories

    async def _commits(self) -> dict[int, OffsetAndMetadata]:
        topic, numbers = self._settings.dead_letter_topic, self._source.bounds
        while True:
            try:
                return await positions.read_commits(self._source.consumer, topic, numbers)
            except KafkaError as error:
                if not error.retriable:
                    raise
                await asyncio.sleep(_RETRY_SECONDS)

    async def _partition(self, number: int, start: int, end: int, memory: Replayed) -> None:
        piece = _Piece()
        position = start
        async for record in self._source.records(number, start, end):
            if self._is_enough(piece.sends):
                break
            letter = letters.read(record)
            piece.add(letter, self._decide(letter, memory))
            if piece.is_full:
                await self._finish(piece, memory)
                piece = _Piece()
            self._watcher.on_progress(letter.offset + 1 - position)
            position = letter.offset + 1
        await self._finish(piece, memory)
        self._watcher.on_progress(end - position)

    def _is_enough(self, waiting: int) -> bool:
        limit = self._order.limit
        return limit is not None and self._summary.sent.total() + waiting >= limit

    def _decide(self, letter: Letter, memory: Replayed) -> What:
        if not self._order.which.matches(letter):
            return "left"
        if memory.has(letter):
            return "before"
        why = letters.refusal(letter, self._terms)
        if why is None:
            return "send"
        self._refuse(letter, why)
        return "refused" if letter.has_value else "gone"

    def _refuse(self, letter: Letter, why: str) -> None:
        self._summary.refused[letter.reason] += 1
        self._watcher.on_refused(letter, why)

    async def _finish(self, piece: _Piece, memory: Replayed) -> None:
        """Send what is to be sent of a piece, and remember it once the broker has confirmed all."""
        refused: dict[int, str] = {}
        sending = [letter for letter, what in piece.letters if what == "send"]
        if sending and not self._order.dry_run:
            self._must_fit(piece, memory)
            refused = await self._send(sending)
        piece.tell(memory, refused)
        if sending and not self._order.dry_run:
            await self._commit({sending[0].partition: memory})
        for letter, what in piece.letters:
            if letter.offset in refused:
                self._refuse(letter, refused[letter.offset])
            elif what == "send":
                self._summary.sent[letter.reason] += 1
                self._watcher.on_sent(letter)
        self._summary.before += piece.count("before")
        self._summary.left += piece.count("left")

    def _must_fit(self, piece: _Piece, memory: Replayed) -> None:
        """What could not be remembered is not sent."""
        after = copy.deepcopy(memory)
        piece.tell(after, {})
        if len(str(after)) > MAX_LENGTH:
            raise WorkerError(
                "replay: too many gaps to remember what was sent; replay the older dead letters first, "
                "without --since, --until or --offset"
            )

    async def _send(self, sending: list[Letter]) -> dict[int, str]:
        """Send all and wait for all. A refused batch is sent again one by one: the fault of one is not the others'."""
        results = await asyncio.gather(*[await self._begin(letter) for letter in sending], return_exceptions=True)
        refused: dict[int, str] = {}
        for letter, result in zip(sending, results, strict=True):
            if isinstance(result, REFUSED):
                try:
                    await (await self._begin(letter))
                except REFUSED as error:
                    refused[letter.offset] = f"{self._settings.input_topic} refuses it: {error.message}"
            elif isinstance(result, BaseException):
                raise result
        return refused

    async def _begin(self, letter: Letter) -> Any:  # noqa: ANN401 - a future of aiokafka's
        topic, headers = self._settings.input_topic, letters.event(letter)
        if letters.has_odd_names(headers):
            batch = OddBatchBuilder(0, 0, is_transactional=False)  # takes one record, whatever its size
            batch.append(timestamp=letter.timestamp, key=letter.key, value=letter.value, headers=headers)
            return await self._producer.send_batch(batch, topic, partition=letter.source)
        return await self._producer.send(
            topic, letter.value, letter.key, letter.source, timestamp_ms=letter.timestamp, headers=headers
        )

    async def _commit(self, memories: dict[int, Replayed]) -> None:
        topic = self._settings.dead_letter_topic
        offsets = {
            TopicPartition(topic, number): OffsetAndMetadata(memory.end, str(memory))
            for number, memory in memories.items()
        }
        await self._source.consumer.commit(offsets)


class _Piece:
    """Letters that are done with together, in the order of their offsets."""

    def __init__(self) -> None:
        self.letters: list[tuple[Letter, What]] = []
        self.sends = 0
        self._bytes = 0

    def add(self, letter: Letter, what: What) -> None:
        if what == "send":
            self.sends += 1
            self._bytes += len(letter.value or b"") + len(letter.key or b"")
        else:  # only its place and class are still needed
            letter = letter._replace(key=None, value=None, headers=[])
        self.letters.append((letter, what))

    @property
    def is_full(self) -> bool:
        return self.sends >= _SEND or self._bytes >= _BYTES or len(self.letters) >= _LOOK

    def count(self, what: What) -> int:
        return sum(each == what for _, each in self.letters)

    def tell(self, memory: Replayed, refused: Container[int]) -> None:
        """Tell the memory what was done with each."""
        for letter, what in self.letters:
            if what == "before" or (what == "send" and letter.offset not in refused):
                memory.sent(letter)
            elif what != "gone":
                memory.passed(letter)
