"""What the worker is doing, gathered for probes, scrapes and the page: the one place of ``observe`` with a clock.

``process.py`` tells it of each stage of the worker's life; it looks at the delivery itself. It exists before there is
a broker and until the process ends, so probes have an answer all the time.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from worker import __version__
from worker.errors import TopicError
from worker.observe import health
from worker.observe.health import Stage
from worker.observe.logs import get_logger
from worker.observe.metrics import Metrics
from worker.observe.recent import Recent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from worker.kafka.delivery import Delivery
    from worker.observe.health import Health, Partition
    from worker.observe.recent import Entry
    from worker.settings import Settings

log = get_logger(__name__)

#: Seconds between two samples, and how many are kept: the five minutes that the page draws.
SAMPLE_SECONDS = 2.0
SAMPLES = 150


class Sample(NamedTuple):
    """What the counters said at one moment."""

    at: float
    consumed: Mapping[int, int]
    """Events with a confirmed outcome, by partition."""
    lag: int


class View(NamedTuple):
    """All that can be shown, as it was at one moment."""

    at: float
    """Seconds since the epoch."""
    uptime: float
    not_ready: str | None
    health: Health
    partitions: Sequence[Partition]
    samples: Sequence[Sample]
    recent: Sequence[Entry]


class Status:
    """Knows how the worker is."""

    def __init__(self, settings: Settings) -> None:
        """Begin with a worker that waits for its broker."""
        self.settings = settings
        self.metrics = Metrics(settings.input_topic, __version__, settings.guarantee)
        self.recent = Recent()
        self._started = time.monotonic()
        self._stage = Stage.WAITING
        self._waiting_for = "the broker"
        self._broker_answered = self._started
        self._delivery: Delivery | None = None
        self._progress = health.Progress()
        self._samples: deque[Sample] = deque(maxlen=SAMPLES)

    def waiting(self, error: Exception) -> None:
        """The worker can't start yet, for this reason; that a topic is missing was said by a broker."""
        if isinstance(error, TopicError):
            self._waiting_for = "the input topic"
            self._broker_answered = time.monotonic()
        else:
            self._waiting_for = "the broker"

    def running(self, delivery: Delivery) -> None:
        """The app starts; from now on its delivery says how it is."""
        self._broker_answered = time.monotonic()
        self._delivery = delivery
        if self._stage is Stage.WAITING:
            self._stage = Stage.RUNNING

    def stopping(self) -> None:
        """A stop has begun."""
        self._stage = Stage.STOPPING

    async def watch(self) -> None:
        """Look again and again, so that a stall is found whether or not anyone probes."""
        healthy = True
        while True:
            self.sample()
            now = self.view().health
            if now.healthy != healthy:
                healthy = now.healthy
                if healthy:
                    log.info("healthy-again")
                else:
                    log.warning("unhealthy", reasons=now.reasons)
            await asyncio.sleep(min(SAMPLE_SECONDS, self.settings.stall_timeout / 4))

    def sample(self) -> None:
        """Look at everything once; keep a sample when it is time for one."""
        now = time.monotonic()
        partitions = self._partitions()
        self._progress.look(now, partitions)
        if not self._samples or now - self._samples[-1].at >= SAMPLE_SECONDS * 0.9:
            lag = sum(partition.lag or 0 for partition in partitions)
            self._samples.append(Sample(now, self.metrics.consumed(), lag))

    def view(self) -> View:
        """Everything, as it is now."""
        now = time.monotonic()
        partitions = self._partitions()
        silent = self._broker_silent(now)
        joined = self._delivery is not None and self._delivery.joined
        return View(
            at=time.time(),
            uptime=now - self._started,
            not_ready=health.why_not_ready(self._stage, self._waiting_for, partitions, silent, joined=joined),
            health=health.judge(
                partitions,
                self._progress.look(now, partitions),
                silent,
                stall_timeout=self.settings.stall_timeout,
                longest_step=2 * self.settings.commit_interval if self.settings.guarantee == "exactly-once" else 0.0,
            ),
            partitions=partitions,
            samples=tuple(self._samples),
            recent=self.recent.entries(),
        )

    def exposition(self) -> bytes:
        """The metrics, with gauges brought up to date."""
        if self._delivery is not None:
            self._delivery.observe()
        return self.metrics.exposition()

    def _partitions(self) -> list[Partition]:
        return [] if self._delivery is None else self._delivery.partitions()

    def _broker_silent(self, now: float) -> float:
        if self._delivery is not None:
            self._broker_answered = max(self._broker_answered, self._delivery.broker_answered() or 0.0)
        return now - self._broker_answered
