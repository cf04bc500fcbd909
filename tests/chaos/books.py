"""The accounting identity as a worker exports it: by partition, consumed = produced + dropped + dead-lettered."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from chaos.fleet import Worker

_OUTCOMES = ("worker_messages_produced_total", "worker_events_dropped_total", "worker_events_dead_lettered_total")


def unbalanced(worker: Worker) -> list[str]:
    """Partitions whose books are not balanced, with both sides."""
    with urlopen(f"http://127.0.0.1:{worker.port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    consumed: Counter[str] = Counter()
    done: Counter[str] = Counter()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            side = {"worker_events_consumed_total": consumed, **dict.fromkeys(_OUTCOMES, done)}.get(sample.name)
            if side is not None:
                side[sample.labels["partition"]] += int(sample.value)
    return [
        f"partition {number}: consumed {consumed[number]}, outcomes {done[number]}"
        for number in sorted(consumed.keys() | done.keys())
        if consumed[number] != done[number]
    ]
