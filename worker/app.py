"""The Faust app and its one agent: a batch in, outcomes, deliver.

``build`` puts the worker together; ``process.py`` starts, watches and stops it. The line that decides an event's fate
is ``rule.outcome.Rule.outcomes``, called by the agent below.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import faust
from faust.app.base import BootStrategy

from worker.kafka.at_least_once import AtLeastOnce
from worker.kafka.transaction import ExactlyOnce
from worker.kafka.transport import Batches, BatchTransport
from worker.observe.logs import get_logger
from worker.rule.event import Fields
from worker.rule.outcome import Rule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from faust.types import TP
    from mode import ServiceT

    from worker.kafka.delivery import Delivery
    from worker.kafka.topics import Limits
    from worker.kafka.transport import BatchConsumer
    from worker.observe.metrics import Metrics
    from worker.observe.tracing import Tracing
    from worker.settings import Settings

log = get_logger(__name__)


class _Boot(BootStrategy):
    """Only what the worker uses of Faust: no web server, no producer, no leader topic, no reply topic, no tables."""

    enable_web = False
    enable_kafka_producer = False
    enable_sensors = False

    def kafka_consumer(self) -> Iterable[ServiceT]:
        return [self.app.consumer]

    def tables(self) -> Iterable[ServiceT]:
        return []


class WorkerApp(faust.App):
    """The Faust app; partitions come and go through its delivery."""

    BootStrategy = _Boot
    mundane_level = "debug"
    delivery: Delivery
    metrics: Metrics
    failure: asyncio.Future[None]

    def fail(self, error: BaseException) -> None:
        """Tell ``process.py`` that the worker can't go on; the first one counts."""
        if not self.failure.done():
            self.failure.set_exception(error)

    def on_rebalance_start(self) -> None:
        """Faust would ask its tables and sensors; there are none."""
        self.rebalancing = True
        self.rebalancing_count += 1

    def on_rebalance_return(self) -> None:
        """See ``on_rebalance_start``."""

    def on_rebalance_end(self) -> None:
        """See ``on_rebalance_start``."""
        self.rebalancing = False

    def _crash(self, reason: BaseException) -> None:
        """Some service of the app has crashed; Faust would stop, and the process stay up."""
        super()._crash(reason)
        self.fail(reason)

    async def _on_agent_error(self, agent: Any, exc: BaseException) -> None:  # noqa: ANN401, ARG002
        """Faust would start the agent again, over and over, with the batch gone."""
        self.fail(exc)

    async def _on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Stop the flow, let the lanes finish and commit, then let the group go on."""
        try:
            self._stop_flow()
            if revoked:
                log.info("partitions-revoked", partitions=sorted(tp.partition for tp in revoked))
                await self.delivery.revoke()
        except Exception as error:  # noqa: BLE001 - aiokafka would log it and go on without our having let go
            self.fail(error)

    async def _on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        """Start a lane for each partition and let the flow begin."""
        try:
            log.info(
                "partitions-assigned", partitions=sorted(tp.partition for tp in assigned), generation=generation_id
            )
            self.metrics.rebalances.inc()
            await self.topics.on_partitions_assigned(assigned)
            self.delivery.assign(assigned)
            self.flow_control.resume()
            self.consumer.resume_flow()
            await self._fetcher.maybe_start()
        except Exception as error:  # noqa: BLE001 - see above
            self.fail(error)
        finally:
            self.on_rebalance_end()

    def _stop_flow(self) -> None:
        self.consumer.stop_flow()
        self.flow_control.suspend()
        self.flow_control.clear()

    async def drain(self, seconds: float) -> bool:
        """Take nothing more, finish what is being written, commit; False if something had to be left."""
        self._stop_flow()
        return await self.delivery.drain(seconds)

    async def _stop_consumer(self) -> None:
        """Drained already; the consumer stops as any other service."""

    async def _wait_for_table_recovery_completed(self) -> bool:
        return False  # "not stopped meanwhile": there are no tables

    def _create_directories(self) -> None:
        """The worker keeps nothing on disk."""


def build(settings: Settings, limits: Limits, metrics: Metrics, tracing: Tracing | None) -> WorkerApp:
    """Put the worker together; call it inside the event loop that will run it."""
    app = WorkerApp(
        settings.group_id,
        broker="kafka://",  # where the cluster is and how to log in: connection.arguments
        store="memory://",
        web_enabled=False,
        autodiscover=False,
        topic_disable_leader=True,
        topic_allow_declare=False,
        stream_wait_empty=False,
    )
    app.failure = asyncio.get_running_loop().create_future()
    app.metrics = metrics
    app.transport = BatchTransport(app.conf.broker, app)
    consumer = cast("BatchConsumer", app.consumer)
    guarantee = ExactlyOnce if settings.guarantee == "exactly-once" else AtLeastOnce
    app.delivery = guarantee(settings, app.metrics, limits, wake_fetch=consumer.wake, fail=app.fail)
    app.delivery.tracing = tracing
    consumer.settings, consumer.delivery = settings, app.delivery

    delivery = app.delivery
    rule = Rule(
        settings.input_format,
        settings.output_format,
        Fields(settings.text_field, settings.role_field, settings.tool_call_id_field),
    )

    @app.agent(app.topic(settings.input_topic, schema=Batches()))  # type: ignore[arg-type] # StreamT lacks noack()
    async def text_to_messages(batches: faust.Stream[Any]) -> None:
        async for batch in batches.noack():
            delivery.accept(batch, rule.outcomes(batch.records))

    return app
