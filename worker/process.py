"""The life of the process: start, watch, stop, and the exit code that says how it went.

1. the HTTP server answers (not ready)
2. wait for the broker and the topics (``topics.prepare``)
3. start the Faust app; ready once the group has been joined
4. until a signal or a fault
5. not ready; drain (take nothing more, finish, commit), leave the group, close: within ``SHUTDOWN_TIMEOUT``

Exit 0 after a signal with nothing left; 1 after a fault, or with what was left said; a second signal exits at once.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from typing import TYPE_CHECKING, Any

from worker import __version__
from worker.app import build
from worker.kafka import topics
from worker.kafka.retry import describe
from worker.observe.logs import get_logger

if TYPE_CHECKING:
    from worker.app import WorkerApp
    from worker.settings import Settings

log = get_logger(__name__)

#: Of the time a stop may take, what is kept for leaving the group and closing connections.
_LEAVE_SECONDS = 3.0


def run(settings: Settings) -> int:
    """Run the worker until it is stopped; returns the exit code."""
    return asyncio.run(_Process(settings).run())


async def wait_or_stop(work: asyncio.Future[Any], stop: asyncio.Event) -> bool:
    """Wait for ``work`` or a stop, whichever comes first; True when the work is done."""
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    return work.done()


class _Process:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stop = asyncio.Event()

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        log.info("worker-starting", version=__version__, guarantee=self._settings.guarantee)
        preparing = asyncio.create_task(topics.prepare(self._settings))
        if not await wait_or_stop(preparing, self._stop):
            preparing.cancel()
            log.info("worker-stopped", reason="asked to stop before the cluster could be used")
            return 0
        return await self._run_app(build(self._settings, preparing.result()))

    async def _run_app(self, app: WorkerApp) -> int:
        await app.start()
        gc.freeze()
        gauges = asyncio.create_task(self._keep_books(app))
        await wait_or_stop(app.failure, self._stop)
        gauges.cancel()
        error = app.failure.exception() if app.failure.done() else None
        if error is not None:
            log.error("worker-failed", error=describe(error))
        clean = await self._shut_down(app)
        if not clean:
            log.error("worker-stopped", hint="not everything could be finished and committed; it is read again")
        else:
            log.info("worker-stopped")
        return 0 if error is None and clean else 1

    async def _shut_down(self, app: WorkerApp) -> bool:
        stopping = asyncio.get_running_loop().time()
        clean = await app.drain(max(self._settings.shutdown_timeout - _LEAVE_SECONDS, 0.1))
        closing = asyncio.create_task(self._close(app))
        await asyncio.wait([closing], timeout=_LEAVE_SECONDS)
        log.debug("closed", seconds=asyncio.get_running_loop().time() - stopping, done=closing.done())
        return clean

    async def _close(self, app: WorkerApp) -> None:
        await app.delivery.stop()
        await app.stop()

    async def _keep_books(self, app: WorkerApp) -> None:
        """Commit, and bring the gauges up to date, each commit interval."""
        while True:
            await asyncio.sleep(self._settings.commit_interval)
            await app.delivery.commit()
            app.delivery.observe()

    def _on_signal(self, number: signal.Signals) -> None:
        if self._stop.is_set():
            log.warning("worker-killed", reason="second signal")
            os._exit(1)
        log.info("worker-stopping", signal=signal.Signals(number).name)
        self._stop.set()
