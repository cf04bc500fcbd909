"""The events of the benchmark, each made from its number alone, and the shapes they come in.

What lives here: pure functions and data. An event can be made again from its key, so an output topic is checked
without a copy of the input.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import orjson

from worker.rule.event import Unreadable
from worker.rule.outcome import Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from worker.rule.outcome import Outcome

#: The first event's timestamp; each next one is a millisecond later. Recent enough for no retention to matter.
FIRST_TIMESTAMP = 1_790_000_000_000

_PERIOD = 10
_ROLES = ("user", "assistant", "system", "user", "assistant")
_FILLER = "some words to bring it to the size that is wanted, and no more than that; "
_RULE = Rule()


class Made(NamedTuple):
    """An event as it is sent; also what the rule looks at."""

    key: bytes
    value: bytes
    headers: list[tuple[str, bytes | None]]
    timestamp: int


@dataclass(frozen=True)
class Shape:
    """What events look like and how they lie in the topic; ``count`` is for about two seconds of work."""

    name: str
    count: int
    value: Callable[[int], bytes]
    partitions: int = 4
    key_size: int = 0
    headers: int = 0
    compression: str = "none"
    batch_events: int = 2_000
    worker: Mapping[str, str] = field(default_factory=dict)

    def make(self, number: int) -> Made:
        """Make one event."""
        key = b"%d" % number
        headers: list[tuple[str, bytes | None]] = [(f"header-{at}", b"value of it") for at in range(self.headers)]
        return Made(key.ljust(self.key_size, b"."), self.value(number), headers, FIRST_TIMESTAMP + number)

    @property
    def messages(self) -> int:
        """How many messages come of it: kinds of events repeat every ten."""
        return self._share(bytes)

    @property
    def dead_letters(self) -> int:
        """How many dead letters come of it."""
        return self._share(Unreadable)

    def _share(self, kind: type) -> int:
        return sum(isinstance(outcome(self.make(number)), kind) for number in range(_PERIOD)) * self.count // _PERIOD

    @property
    def bytes_per_event(self) -> float:
        """The mean size of value, key and headers."""
        some = [self.make(number) for number in range(0, self.count, max(1, self.count // 50))]
        sizes = [len(e.value) + len(e.key) + sum(len(n) + len(v or b"") for n, v in e.headers) for e in some]
        return sum(sizes) / len(sizes)


def outcome(event: Made) -> Outcome:
    """Decide what has to become of an event."""
    return _RULE.outcomes([event]).each[0]


def number_of(key: bytes) -> int:
    """Read an event's number back from its key."""
    return int(key.rstrip(b"."))


def plain(number: int) -> bytes:
    """Make the value of a plain event of about 100 bytes."""
    return b'{"text":"event %d, a hundred bytes of JSON with its key in a topic of chat lines","role":"%s"}' % (
        number,
        _ROLES[number % 5].encode(),
    )


def sized(size: int) -> Callable[[int], bytes]:
    """Make values of about so many bytes."""
    filler = (_FILLER * (size // len(_FILLER) + 1))[: max(0, size - 60)]

    def make(number: int) -> bytes:
        return orjson.dumps({"text": f"event {number}: {filler}", "role": _ROLES[number % 5]})

    return make


def _every(of_ten: int, odd: bytes) -> Callable[[int], bytes]:
    def make(number: int) -> bytes:
        return odd if number % _PERIOD < of_ten else plain(number)

    return make


def _not_text(number: int) -> bytes:
    return b'{"text":{"number":%d.10,"list":[1,2,3,null,true],"text":"inside an object"},"role":"user"}' % number


def plain_shape(count: int, partitions: int = 4) -> Shape:
    """Give the shape everything else is compared with."""
    return Shape("100 B, 4 partitions", count, plain, partitions)


def shapes() -> list[Shape]:
    """List the plain shape, and what might cost more."""
    return [
        plain_shape(800_000),
        Shape("1 KB", 300_000, sized(1_000)),
        Shape("10 KB", 60_000, sized(10_000)),
        Shape("100 KB", 6_000, sized(100_000)),
        Shape("900 KB", 600, sized(900_000)),
        Shape("1 partition", 800_000, plain, 1),
        Shape("12 partitions", 800_000, plain, 12),
        Shape("48 partitions", 800_000, plain, 48),
        Shape("batches of 10 events", 400_000, plain, batch_events=10),
        Shape("100 B keys", 600_000, plain, key_size=100),
        Shape("5 headers", 400_000, plain, headers=5),
        Shape("20 headers", 150_000, plain, headers=20),
        *(Shape(f"input in {name}", 800_000, plain, compression=name) for name in _CODECS),
        *(Shape(f"output in {name}", 800_000, plain, worker={"COMPRESSION": name}) for name in _CODECS),
        Shape("30 % dead letters", 300_000, _every(3, b"{broken")),
        Shape("90 % dropped", 1_200_000, _every(9, b'{"text":"","role":"user"}')),
        Shape("text no string, all of them", 60_000, _not_text),
    ]


_CODECS = ("gzip", "snappy", "lz4", "zstd")
