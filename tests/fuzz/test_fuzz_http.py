"""The HTTP server under a fuzzer: it answers whoever asks properly, and repeats nothing of what it is sent.

Each attack goes to ``/`` or ``/metrics`` over connections of its own: requests with pieces changed, noise, long heads,
odd methods, many connections, and slow ones that never finish. After every few, somebody asks as one should.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import re
import time
from typing import TYPE_CHECKING

import pytest
from fuzz.mutation import LONG, MARKER, SHORT, budget, mutated

from worker.kafka.ports import free_ports
from worker.observe import http
from worker.observe.status import Status
from worker.settings import from_mapping

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

#: How long a proper request may take between two attacks, and an attack's connection may last, on a busy machine.
_ANSWER_SECONDS = 5.0
_AT_ONCE = 40
_PATHS = ("/", "/metrics")
_STATUSES = {b"200", b"400", b"404", b"405", b"503"}
_STATUS_LINE = re.compile(rb"HTTP/[0-9]\.[0-9] ([0-9]{3}) [A-Za-z ]+\r\n")

_TOKENS = [
    *(b"GET", b"HEAD", b"POST", b"CONNECT", b"TRACE", b"PRI", b"get", MARKER.upper().encode(), b"G\x00T"),
    *(b" HTTP/1.1", b" HTTP/1.0", b" HTTP/0.9", b" HTTP/2.0", b" HTTP/1.1\n", b" HTTP/99999.1", b"\r\n", b"\n", b"\r"),
    *(b"/", b"//", b"/metrics", b"/healthz", b"/readyz", b"/../", b"%2e%2e%2f", b"%00", b"%", b"?x=" + b"y" * 3000),
    *(b"http://evil.example/", b"*", b"#", b"[::1", b":99999", b"\r\nHost: a", b"\r\nHost: ", b"\r\nX: " + b"x" * 9000),
    *(b"\r\nContent-Length: 5", b"\r\nContent-Length: -1", b"\r\nContent-Length: 99999999999999999999"),
    *(b"\r\nTransfer-Encoding: chunked", b"\r\nTransfer-Encoding: gzip, chunked", b"\r\nContent-Encoding: gzip"),
    *(b"\r\n\r\nffffffffffffffff\r\n", b"\r\n\r\n5;" + MARKER.encode() + b"\r\n", b"\r\nExpect: 100-continue"),
    *(b"\r\nConnection: Upgrade", b"\r\nUpgrade: websocket", b"\r\nUpgrade: h2c", b"\r\nConnection: keep-alive"),
    *(
        b"\r\n folded: " + MARKER.encode(),
        b"\r\n: empty",
        b"\r\nCookie: " + MARKER.encode(),
        b"\x16\x03\x01\x02\x00\x01",
    ),
    b"".join(b"\r\n%s-%d: x" % (MARKER.encode(), number) for number in range(100)),
]


def _seeds(path: str) -> list[bytes]:
    to, marker = path.encode(), MARKER.encode()
    return [
        b"GET %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (to, marker),
        b"GET %s?%s HTTP/1.1\r\nHost: a\r\nAccept: text/html\r\nX-%s: %s\r\n\r\n" % (to, marker, marker, marker),
        b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\n%s" % (to, marker),
        b"PUT %s HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n6\r\n%s\r\n0\r\n\r\n" % (to, marker),
        b"GET %s HTTP/1.1\r\nHost: a\r\n\r\nGET /%s HTTP/1.1\r\nHost: a\r\n\r\n" % (to, marker),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + marker,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + marker,
    ]


@pytest.mark.parametrize("path", _PATHS)
async def test_any_request(path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """No crash, no hang, nothing of a request in an answer or in the log."""
    monkeypatch.setattr(http, "CONNECTION_SECONDS", 0.5)
    await _Attacker(path, 1, caplog).attack(SHORT)


@pytest.mark.fuzz
@pytest.mark.timeout(LONG + 120)
@pytest.mark.parametrize("path", _PATHS)
async def test_any_request_for_long(
    path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The same for ten minutes, by a new seed."""
    monkeypatch.setattr(http, "CONNECTION_SECONDS", 0.5)
    await _Attacker(path, time.time_ns(), caplog).attack(LONG)


class _Attacker:
    """Somebody who means no good, and whoever asks properly beside him."""

    def __init__(self, path: str, seed: int, caplog: pytest.LogCaptureFixture) -> None:
        self._path = path
        self._seed = seed
        self._seeds = _seeds(path)
        self._caplog = caplog
        (self._port,) = free_ports(1)

    async def attack(self, seconds: float) -> None:
        """Go on for so long, or until something is wrong."""
        self._caplog.set_level(logging.DEBUG)
        status = Status(from_mapping({"HTTP_PORT": str(self._port)}))
        status.metrics.assigned(0)
        async with http.serving(status):
            for count in budget(seconds):
                async with asyncio.TaskGroup() as group:
                    for number in range(count * _AT_ONCE, (count + 1) * _AT_ONCE):
                        group.create_task(self._one(number))
                await self._proper()
        print(f"seed {self._seed}: {(count + 1) * _AT_ONCE} attacks on {self._path}")  # noqa: T201 - the long form's report

    async def _one(self, number: int) -> None:
        """One attack, the same for the same seed and number."""
        chance = random.Random(f"{self._seed} {number}")  # noqa: S311 - to be repeated, not to be secret
        kinds: list[Callable[[random.Random], Awaitable[None]]] = [self._changed, self._noise, self._slow, self._many]
        try:
            await chance.choices(kinds, (100, 10, 2, 1))[0](chance)
        except Exception as error:
            error.add_note(f"seed {self._seed}, attack {number} on {self._path}")
            raise

    async def _changed(self, chance: random.Random) -> None:
        """Send a request with something done to it, at once or in two pieces."""
        data = mutated(chance, self._seeds, _TOKENS)
        cut = chance.randint(0, len(data)) if chance.random() < 0.2 else len(data)
        await self._send(chance, data[:cut], data[cut:])

    async def _noise(self, chance: random.Random) -> None:
        await self._send(chance, chance.randbytes(chance.choice((1, 10, 1000, 100_000))))

    async def _send(self, chance: random.Random, *pieces: bytes) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        with contextlib.suppress(OSError):
            for piece in pieces:
                writer.write(piece)
                await asyncio.wait_for(writer.drain(), _ANSWER_SECONDS)
            if chance.random() < 0.5:
                writer.write_eof()
        if chance.random() < 0.9:  # else the other side is left to find out
            self._harmless(await asyncio.wait_for(_read(reader), http.CONNECTION_SECONDS + _ANSWER_SECONDS))
        writer.close()

    async def _slow(self, chance: random.Random) -> None:
        """Say a little, and a little more, and never finish: the connection has an end all the same."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        reading = asyncio.create_task(_read(reader))
        begun = time.monotonic()
        with contextlib.suppress(OSError):
            for byte in chance.choice(self._seeds)[:-1] * 1000:
                if reading.done():
                    break
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.wait([reading], timeout=0.02)
        self._harmless(await reading)
        assert time.monotonic() - begun < http.CONNECTION_SECONDS + _ANSWER_SECONDS
        writer.close()

    async def _many(self, _chance: random.Random) -> None:
        """Open more connections than there may be."""
        openings = [asyncio.open_connection("127.0.0.1", self._port) for _ in range(http.CONNECTIONS + 10)]
        for opened in await asyncio.gather(*openings, return_exceptions=True):
            if not isinstance(opened, BaseException):
                opened[1].close()

    def _harmless(self, answer: bytes) -> None:
        assert MARKER.encode() not in answer.lower()
        if answer:
            found = _STATUS_LINE.match(answer)
            assert found, answer[:100]
            assert found[1] in _STATUSES, answer[:100]

    async def _proper(self) -> None:
        """Somebody asks as one should; is answered, in time; and nobody has said anything in the log."""
        until = time.monotonic() + http.CONNECTION_SECONDS + _ANSWER_SECONDS  # all places may be taken, for so long
        answer = b""
        while not answer and time.monotonic() < until:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            with contextlib.suppress(OSError):
                writer.write(b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n" % self._path.encode())
                answer = await asyncio.wait_for(_read(reader), _ANSWER_SECONDS)
            writer.close()
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert MARKER not in self._caplog.text.lower()
        assert [record for record in self._caplog.records if record.levelno > logging.INFO] == []


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except OSError:
        return b""
