"""Bytes that were right until something happened to them: pieces swapped, cut, doubled, flipped, all by one seed.

``budget`` decides how long it goes on: the short form, which always runs, is for a change that breaks at once; the long
form (``-m fuzz``) is for what is rare.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence

SHORT, LONG = 2.0, 600.0
#: In everything that is sent: where it turns up again, something was repeated that should not have been.
MARKER = "s3cret"

_STRAY = (b"\x00", b"\x7f", b"\x80", b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\xf0\x9f\x92\xa9", b"\xef\xbb\xbf")


def mutated(chance: random.Random, seeds: Sequence[bytes], tokens: Sequence[bytes]) -> bytes:
    """Take a seed and do one to five things to it; ``tokens`` are what the language is made of."""
    data = chance.choice(seeds)
    for _ in range(chance.randint(1, 5)):
        start = chance.randint(0, len(data))
        piece = data[start : start + chance.choice((0, 1, 2, 8, 64))]
        other = chance.choice(seeds)
        instead = chance.choice(
            (
                chance.choice(tokens),
                chance.choice(_STRAY),
                chance.randbytes(len(piece)),
                bytes(byte ^ 1 << chance.randrange(8) for byte in piece[:1]) + piece[1:],
                piece * chance.choice((0, 2, 3, 100)),
            )
        )
        end = data[start + len(piece) :] if chance.random() < 0.8 else other[chance.randint(0, len(other)) :]
        data = data[:start] + instead + end
    return data


def budget(seconds: float) -> Iterator[int]:
    """Count up until the time is over."""
    until = time.monotonic() + seconds
    count = 0
    while time.monotonic() < until:
        yield count
        count += 1
