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
import ctypes
import gc
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from worker import __version__
from worker.app import build
from worker.errors import WorkerError
from worker.kafka import topics
from worker.kafka.retry import describe
from worker.observe import http, tracing
from worker.observe.logs import get_logger
from worker.observe.status import Status

if TYPE_CHECKING:
    from worker.app import WorkerApp
    from worker.observe.tracing import Tracing
    from worker.settings import Settings

log = get_logger(__name__)

#: Of the time a stop may take, what is kept for leaving the group and closing connections.
_LEAVE_SECONDS = 3.0
#: How long the lanes may take to finish after a fault of our own: the process has to be started again.
_FAULT_SECONDS = 5.0
#: glibc's M_TRIM_THRESHOLD, M_MMAP_THRESHOLD and M_TOP_PAD, in bytes.
_MALLOPT = {-1: 256 << 20, -3: 256 << 20, -2: 16 << 20}
#: How often to ask where the logs begin, which the lag needs.
_LOG_STARTS_SECONDS = 10.0


def run(settings: Settings) -> int:
    """Run the worker until it is stopped; returns the exit code."""
    _keep_buffers()
    spans = tracing.from_environment(os.environ, settings.group_id)
    try:
        return asyncio.run(_Process(settings, spans).run())
    except WorkerError:
        raise
    except Exception as error:  # a fault of our own: one line, and an exit code that has the process started again
        log.exception("worker-failed", error=describe(error))
        return 1
    finally:
        if spans is not None:
            spans.close()


async def wait_or_stop(work: asyncio.Future[Any], stop: asyncio.Event) -> bool:
    """Wait for ``work`` or a stop, whichever comes first; True when the work is done."""
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    return work.done()


def _report(ended: asyncio.Task[None], app: WorkerApp) -> None:
    """A task that should run for ever has ended: without its commits the worker would be up and of no use."""
    if not ended.cancelled() and (error := ended.exception()) is not None:
        app.fail(error)


async def _end_tasks(code: int) -> None:
    """End what the libraries left running, which asyncio would wait for.

    aiokafka's tasks, cancelled once, wait for requests that a frozen broker never answers; a second time they give in.
    """
    for _ in range(4):
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if not left:
            return
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=0.25)
    log.warning("tasks-left", count=len(left), hint="ended with the process")
    sys.stderr.flush()
    os._exit(code)


def _calm_collector() -> None:
    """Batches make no reference cycles, so the collector looks in vain, at a tenth of the worker's time and more."""
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


def _keep_buffers() -> None:
    """Have glibc keep the memory of large buffers, instead of giving it back and faulting it in again each batch.

    That was half of the time the kernel spent for the worker. Other C libraries have no ``mallopt``, and go without.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        for option, size in _MALLOPT.items():
            mallopt(option, size)


class _Process:
    def __init__(self, settings: Settings, spans: Tracing | None) -> None:
        self._settings = settings
        self._spans = spans
        self._stop = asyncio.Event()
        self._status = Status(settings)

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        log.info("worker-starting", version=__version__, guarantee=self._settings.guarantee)
        self._status.recent.attach()
        watching = asyncio.create_task(self._status.watch())
        try:
            async with http.serving(self._status):
                code = await self._prepare_and_run()
        finally:
            watching.cancel()
            self._status.recent.detach()
        await _end_tasks(code)
        return code

    async def _prepare_and_run(self) -> int:
        preparing = asyncio.create_task(topics.prepare(self._settings, self._status.waiting))
        if not await wait_or_stop(preparing, self._stop):
            preparing.cancel()
            log.info("worker-stopped", reason="asked to stop before the cluster could be used")
            return 0
        return await self._run_app(build(self._settings, preparing.result(), self._status.metrics, self._spans))

    async def _run_app(self, app: WorkerApp) -> int:
        starting = asyncio.create_task(app.start())
        if not await wait_or_stop(starting, self._stop):
            starting.cancel()
            await asyncio.wait([asyncio.create_task(app.stop())], timeout=_LEAVE_SECONDS)
            log.info("worker-stopped", reason="asked to stop before the group was joined")
            return 0
        starting.result()
        self._status.running(app.delivery)
        _calm_collector()
        books = [asyncio.create_task(work) for work in (self._keep_books(app), self._ask_log_starts(app))]
        for task in books:
            task.add_done_callback(lambda ended: _report(ended, app))
        await wait_or_stop(app.failure, self._stop)
        self._status.stopping()
        for task in books:
            task.cancel()
        error = app.failure.exception() if app.failure.done() else None
        if error is not None:
            log.error("worker-failed", error=describe(error))
        seconds = max(self._settings.shutdown_timeout - _LEAVE_SECONDS, 0.1)
        clean = await self._shut_down(app, seconds if error is None else min(seconds, _FAULT_SECONDS))
        if not clean:
            log.error("worker-stopped", hint="not everything could be finished and committed; it is read again")
        else:
            log.info("worker-stopped")
        return 0 if error is None and clean else 1

    async def _shut_down(self, app: WorkerApp, seconds: float) -> bool:
        stopping = asyncio.get_running_loop().time()
        clean = await app.drain(seconds)
        closing = asyncio.create_task(app.stop())
        await asyncio.wait([closing], timeout=_LEAVE_SECONDS)
        log.debug("closed", seconds=asyncio.get_running_loop().time() - stopping, done=closing.done())
        return clean

    async def _keep_books(self, app: WorkerApp) -> None:
        """Commit, and bring the gauges up to date, each commit interval."""
        while True:
            await asyncio.sleep(self._settings.commit_interval)
            await app.delivery.commit()
            app.delivery.observe()

    async def _ask_log_starts(self, app: WorkerApp) -> None:
        while True:
            await app.delivery.ask_log_starts()
            await asyncio.sleep(_LOG_STARTS_SECONDS)

    def _on_signal(self, number: signal.Signals) -> None:
        if self._stop.is_set():
            log.warning("worker-killed", reason="second signal")
            os._exit(1)
        log.info("worker-stopping", signal=signal.Signals(number).name)
        self._status.stopping()
        self._stop.set()
