"""Faust as its documentation has it: one event at a time through an agent. The baseline."""

from __future__ import annotations

import tempfile
from typing import Any

import faust
import orjson
from bench.contenders.common import BROKERS, GROUP, INPUT, OUTPUT, message

_data = tempfile.TemporaryDirectory()  # Faust's default is the folder it is started in

app = faust.App(
    GROUP,
    datadir=_data.name,
    broker=f"kafka://{BROKERS}",
    store="memory://",
    web_enabled=False,
    topic_disable_leader=True,
    topic_allow_declare=False,
    worker_redirect_stdouts=False,
    consumer_auto_offset_reset="earliest",
    broker_max_poll_records=2_000,
    key_serializer="raw",
    value_serializer="raw",
)
source = app.topic(INPUT, value_type=bytes)
sink = app.topic(OUTPUT, value_type=bytes)


@app.agent(source)  # type: ignore[arg-type] # StreamT lacks what Stream has
async def convert(stream: faust.Stream[Any]) -> None:
    """Send one message for each event."""
    async for event in stream.events():
        result = message(orjson.loads(event.value))
        if result is not None:
            record: Any = event.message
            await sink.send(
                key=record.key,
                value=orjson.dumps(result),
                partition=record.partition,
                timestamp=record.timestamp,
                headers=record.headers,
            )


if __name__ == "__main__":
    faust.Worker(app, loglevel="warning", redirect_stdouts=False).execute_from_commandline()
