"""Traces by OpenTelemetry: a span for each batch, linked to the traces that its events belong to.

Off, and not even imported, until the standard variables ask for it: ``OTEL_TRACES_EXPORTER``, or the address of a
collector. All else about it (resource, sampler, headers, limits) is the SDK's own and set by its own variables, see
https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/. Needs the extra ``otel``.

A span says where its batch stood and what became of it, never what an event held. It is sent when the batch counts:
what was undone, or left to the next owner, is done again and has its span there.

Each event's own ``traceparent`` goes through untouched, as every header does: an event's trace goes on behind us
whether this is on or off (W3C Trace Context).
"""

from __future__ import annotations

import asyncio
import threading
import time
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from worker import __version__
from worker.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Link, Span

    from worker.kafka.records import Record
    from worker.kafka.writer import Work
    from worker.observe.metrics import Tally

#: W3C Trace Context, in a record's headers.
_TRACEPARENT = "traceparent"
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
#: How long the end of the process waits for the last spans to be sent.
_FLUSH_SECONDS = 2.0


def from_environment(environ: Mapping[str, str], group_id: str) -> Tracing | None:
    """Tracing as ``OTEL_*`` asks for it; None where nothing does. Raises ``SettingsError``."""
    exporter = _exporter_name(environ)
    if exporter is None:
        return None
    found = list(entry_points(group="opentelemetry_traces_exporter", name=exporter))
    if not found:
        installed = "over http/protobuf, otlp comes with the extra: pip install 'text-to-message-worker[otel]'"
        raise SettingsError(
            [f"OTEL_TRACES_EXPORTER: must be otlp, console or none; {exporter} is not installed ({installed})"]
        )
    try:
        return Tracing(found[0].load()(), group_id)
    except ValueError as error:  # the SDK's word on its own variables
        raise SettingsError([f"OTEL_*: {error}"]) from None


def _exporter_name(environ: Mapping[str, str]) -> str | None:
    """The exporter's name among the installed ones."""
    name = environ.get("OTEL_TRACES_EXPORTER") or ("otlp" if _first(environ, _ENDPOINTS) else "none")
    if name == "none" or environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    if name != "otlp":
        return name
    return "otlp_proto_grpc" if _first(environ, _PROTOCOLS) == "grpc" else "otlp_proto_http"


def _first(environ: Mapping[str, str], names: Iterable[str]) -> str | None:
    return next((environ[name] for name in names if environ.get(name)), None)


class Tracing:
    """Makes spans of batches, and sends them from a thread of its own."""

    def __init__(self, exporter: SpanExporter, group_id: str) -> None:
        """Send spans through ``exporter``, for the consumer group ``group_id``."""
        # The extra is imported only when it is asked for.
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import SpanLimits, TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

        # A name from the environment wins.
        resource = Resource.create({"service.name": "text-to-message-worker"}).merge(OTELResourceDetector().detect())
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("worker", __version__)
        self._most_links = SpanLimits().max_links
        self._group_id = group_id

    def span(self, work: Work, tally: Tally) -> Span:
        """A batch whose outcomes are stored; the caller ends the span when they count."""
        from opentelemetry.trace import SpanKind  # noqa: PLC0415

        batch = work.batch
        age = asyncio.get_running_loop().time() - work.taken_at
        return self._tracer.start_span(
            f"process {batch.tp.topic}",
            kind=SpanKind.CONSUMER,
            links=_links(batch.records, self._most_links),
            start_time=time.time_ns() - int(age * 1e9),
            # The names are those of the semantic conventions for messaging, as far as they have one.
            attributes={
                "messaging.system": "kafka",
                "messaging.operation.name": "process",
                "messaging.operation.type": "process",
                "messaging.consumer.group.name": self._group_id,
                "messaging.destination.name": batch.tp.topic,
                "messaging.destination.partition.id": str(batch.tp.partition),
                "messaging.batch.message_count": len(batch.records),
                "messaging.kafka.offset": batch.position,
                "worker.next_offset": batch.next_offset,
                "worker.produced": tally.produced,
                "worker.dropped": sum(tally.dropped.values()),
                "worker.dead_lettered": sum(tally.dead_lettered.values()),
            },
        )

    def close(self) -> None:
        """Send what is left, for a while: a collector that is away must not keep the process."""
        # Not in the loop's executor, whose end asyncio would wait for.
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        closing.join(_FLUSH_SECONDS)


def _links(records: Iterable[Record], most: int | None) -> list[Link]:
    """Link to each trace context that came with the records, once, up to as many as a span may have."""
    from opentelemetry.trace import Link, get_current_span  # noqa: PLC0415
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

    extract = TraceContextTextMapPropagator().extract
    links: dict[tuple[int, int], Link] = {}
    for record in records:
        if len(links) == most:
            break
        for name, value in record.headers:
            if name == _TRACEPARENT and value is not None:
                context = get_current_span(extract({name: value.decode(errors="replace")})).get_span_context()
                if context.is_valid:
                    links.setdefault((context.trace_id, context.span_id), Link(context))
    return list(links.values())
