"""Which dead letters were sent back, so that a second replay, with whatever filter, goes on behind the first.

A single offset can't say it: a replay of one reason leaves the others between. So the letters fall into *classes*, one
for each reason and number of attempts, and of each class there are intervals of offsets: every letter of the class that
lies in one was sent. A replay without gaps in its class makes one interval, however many letters of other classes lie
between. A class of too many attempts is left alone as a whole, so that a later ``--max-attempts`` finds it untouched.

The intervals stand as text in the metadata of a committed offset, which a broker limits to 4,096 bytes by default.
"""

from __future__ import annotations

import bisect
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from worker.kafka.letters import Letter

#: A broker's own default for ``offset.metadata.max.bytes``, less some room.
MAX_LENGTH = 4000
_REASON = re.compile(r"[a-z0-9-]{1,40}")
_CLASS = re.compile(r"([a-z0-9-]+/[0-9]+):([0-9]+-[0-9]+(?:,[0-9]+-[0-9]+)*)")


class Replayed:
    """The memory of one partition of the dead-letter topic. Letters are told to it in the order of their offsets."""

    def __init__(self, metadata: str = "") -> None:
        """Take up what a commit says; what is not understood is no memory."""
        self._intervals: dict[str, list[tuple[int, int]]] = {}
        #: The last letter of each class that was looked at, where it was sent; None where it was not.
        self._last: dict[str, int | None] = {}
        for part in metadata.split():
            match = _CLASS.fullmatch(part)
            if match:
                pairs = (pair.split("-") for pair in match[2].split(","))
                self._intervals[match[1]] = sorted((int(first), int(end)) for first, end in pairs)

    @property
    def end(self) -> int:
        """Behind the last letter that was sent."""
        return max((intervals[-1][1] for intervals in self._intervals.values()), default=0)

    def has(self, letter: Letter) -> bool:
        """Whether this one was sent."""
        intervals = self._intervals.get(_class(letter), [])
        index = bisect.bisect_right(intervals, (letter.offset, letter.offset + 1 << 62)) - 1
        return index >= 0 and intervals[index][0] <= letter.offset < intervals[index][1]

    def sent(self, letter: Letter) -> None:
        """It was sent, now or earlier: its interval goes on from the letter of its class before it, if that was too."""
        name = _class(letter)
        before = self._last.get(name)
        self._last[name] = letter.offset
        start, end = letter.offset if before is None else before, letter.offset + 1
        apart = []
        for first, last in self._intervals.get(name, []):
            if last < start or first > end:
                apart.append((first, last))
            else:
                start, end = min(start, first), max(end, last)
        self._intervals[name] = sorted([*apart, (start, end)])

    def passed(self, letter: Letter) -> None:
        """It was passed over and may be sent one day: no interval goes over it, unless it was sent earlier."""
        if self.has(letter):
            self.sent(letter)
        else:
            self._last[_class(letter)] = None

    def __str__(self) -> str:
        """Write it as a commit carries it."""
        return " ".join(
            f"{name}:{','.join(f'{first}-{end}' for first, end in intervals)}"
            for name, intervals in sorted(self._intervals.items())
        )


def _class(letter: Letter) -> str:
    reason = letter.reason if _REASON.fullmatch(letter.reason) else "other"
    return f"{reason}/{letter.attempt}"
