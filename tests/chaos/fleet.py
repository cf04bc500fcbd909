"""Worker processes as a run sees them: start, kill, freeze, thaw, ask to stop, and what they said."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_help import until

from worker.kafka.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Mapping

REPOSITORY = Path(__file__).parents[2]
#: ``worker run``, and a line with the number of asyncio tasks for each SIGUSR2.
RUN = """
import asyncio, os, signal
from worker.cli import main

signal.signal(signal.SIGUSR2, lambda *_: os.write(2, b'{"event":"tasks","count":%d}\\n' % len(asyncio.all_tasks())))
main(["run"])
"""


class Worker:
    """One process of ``worker run``; its log goes to a file."""

    def __init__(self, code: Path, environment: Mapping[str, str], log: Path) -> None:
        """Start it."""
        self.log = log
        (self.port,) = free_ports(1)
        self.environment = dict(environment)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("WORKER_")}
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-c", RUN],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=code,
                env={**kept, **environment, "WORKER_HTTP_PORT": str(self.port), "PYTHONPATH": str(code)},
            )

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()

    def freeze(self) -> None:
        """SIGSTOP."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self.process.send_signal(signal.SIGCONT)

    def stop(self, seconds: float = 40.0) -> tuple[int, float]:
        """SIGTERM; its exit code and how long it took."""
        begin = time.monotonic()
        self.process.terminate()
        code = self.process.wait(seconds)
        return code, time.monotonic() - begin

    def tasks(self) -> int:
        """How many asyncio tasks it has; it must be awake, and listens once it has been in the group."""
        until(lambda: self.said("partitions-assigned"))
        before = len(self._task_counts())
        self.process.send_signal(signal.SIGUSR2)
        until(lambda: len(self._task_counts()) > before)
        return int(self._task_counts()[-1])

    def _task_counts(self) -> list[str]:
        return re.findall(r'"event":"tasks","count":(\d+)', self.log.read_text(errors="replace"))

    def said(self, event: str) -> bool:
        """Whether a word of its log is there."""
        return self.times_said(event) > 0

    def times_said(self, event: str) -> int:
        """How often a word of its log is there."""
        return self.log.read_text(errors="replace").count(event)


class Fleet:
    """All workers of one run, the dead ones too."""

    def __init__(self, code: Path, environment: Mapping[str, str], folder: Path, seed: int) -> None:
        """Note how they are to be started."""
        self.workers: list[Worker] = []
        self.ended: list[tuple[Worker, int]] = []  # those that were not killed by us, and their exit codes
        self.folder = folder
        self.seed = seed
        self._code = code
        self._environment = dict(environment)
        self._started = 0

    def start(self, **more: str) -> Worker:
        """One more."""
        self._started += 1
        log = self.folder / f"worker-{self._started}.log"
        worker = Worker(self._code, {**self._environment, **more}, log)
        self.workers.append(worker)
        return worker

    def restart(self, worker: Worker) -> Worker:
        """Another one in the place of one that ended, with its settings."""
        self.remove(worker)
        return self.start(**worker.environment)

    def remove(self, worker: Worker) -> None:
        """Count it no longer."""
        self.workers.remove(worker)

    def retire(self, worker: Worker) -> None:
        """Ask one to stop, and note how it ended."""
        self.remove(worker)
        try:
            code, _ = worker.stop()
        except subprocess.TimeoutExpired:
            worker.kill()
            raise
        self.ended.append((worker, code))

    def stop_all(self, seconds: float = 35.0) -> list[tuple[int, float]]:
        """Ask all to stop at once; exit codes (-9 for one that had to be killed) and seconds."""
        begin = time.monotonic()
        stopping, self.workers = self.workers, []
        for worker in stopping:
            worker.process.terminate()
        ends: dict[Worker, tuple[int, float]] = {}
        while len(ends) < len(stopping):
            for worker in stopping:
                took = time.monotonic() - begin
                if took > seconds and worker.alive:
                    worker.kill()
                    ends.setdefault(worker, (-signal.SIGKILL, took))
                elif not worker.alive:
                    ends.setdefault(worker, (worker.process.returncode, took))
            time.sleep(0.02)
        return [ends[worker] for worker in stopping]

    def revive(self) -> None:
        """Start again those that ended by themselves, as a supervisor would; their exit codes are kept."""
        for worker in [worker for worker in self.workers if not worker.alive]:
            self.ended.append((worker, worker.process.returncode))
            self.restart(worker)

    def unclean(self) -> list[tuple[str, int]]:
        """Those that ended otherwise than with 0, unless they were asked to before they listened."""
        return [
            (worker.log.name, code)
            for worker, code in self.ended
            if code and not (code == -signal.SIGTERM and not worker.said("worker-starting"))
        ]

    def end(self) -> None:
        """Leave none behind."""
        for worker in self.workers:
            if worker.alive:
                worker.thaw()
                worker.kill()
