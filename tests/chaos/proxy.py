"""A TCP proxy between workers and their broker, to slow, stall or cut what passes.

The broker has a listener that is advertised at the proxy's port, so that clients which begin here stay here.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from worker.kafka.ports import HOST, free_ports

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import TracebackType

_CHUNK = 65_536


class Proxy:
    """Passes connections to ``target`` on, in a thread of its own."""

    def __init__(self, target: int) -> None:
        """Pick a port; nothing happens before ``start``."""
        (self.port,) = free_ports(1)
        self._target = target
        self._delay = 0.0
        self._refusing = False
        self._connections: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._flowing: asyncio.Event
        self._server: asyncio.Server

    @property
    def address(self) -> str:
        """For clients."""
        return f"{HOST}:{self.port}"

    def __enter__(self) -> Self:
        """Listen."""
        self._thread.start()
        self._call(self._listen())
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        """Close everything."""
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def slow(self, seconds: float) -> None:
        """Let each answer of the broker come so much later; 0 for at once."""
        self._delay = seconds

    def stall(self) -> None:
        """Keep connections open, but pass nothing on."""
        self._loop.call_soon_threadsafe(self._flowing.clear)

    def flow(self) -> None:
        """Pass on again what was stalled, and let clients in again."""
        self._refusing = False
        self._loop.call_soon_threadsafe(self._flowing.set)

    def cut(self, *, refuse: bool = False) -> None:
        """Cut every connection, requests without their answers; ``refuse`` lets nobody in until ``flow``."""
        self._refusing = refuse
        self._call(self._cut())

    def _call(self, work: Coroutine[None, None, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _listen(self) -> None:
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._server = await asyncio.start_server(self._serve, HOST, self.port)

    async def _close(self) -> None:
        self._server.close()
        await self._cut()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _cut(self) -> None:
        for connection in self._connections:
            connection.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.transport.abort()
            return
        try:
            there, back = await asyncio.open_connection(HOST, self._target)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, back}
        self._connections |= ends
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, back))
                group.create_task(self._pump(there, writer, answers=True))
        finally:
            self._connections -= ends
            for end in ends:
                end.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool = False) -> None:
        with suppress(OSError):
            while chunk := await reader.read(_CHUNK):
                if answers and self._delay:
                    await asyncio.sleep(self._delay)
                await self._flowing.wait()
                writer.write(chunk)
                await writer.drain()
        writer.transport.abort()
