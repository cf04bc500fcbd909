"""A producer that keeps a pace: its own process, because reading beside it would spoil both.

Each event's key is the time it was sent, by the clock that every process of a machine shares. At the end it writes one
JSON line: how late it was itself against its own schedule.

Arguments: brokers, topic, partitions, events a second, seconds.
"""

from __future__ import annotations

import json
import sys
import time

from confluent_kafka import Producer

#: At high rates a few events are sent at a time: no sleep is shorter.
_TICK_SECONDS = 0.001
#: Above it nobody sends each event in a request of its own; a millisecond of waiting is part of what is measured.
_SINGLE_RATE = 5_000


def main(bootstrap: str, topic: str, partitions: int, rate: int, seconds: float) -> None:
    """Send ``rate`` events a second for so many seconds."""
    linger = 0 if rate <= _SINGLE_RATE else 1
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": linger})
    producer.list_topics(topic)  # connected before the first event is timed
    value = b'{"text":"a hundred bytes of JSON with the time as its key, in a topic of chat lines","role":"user"}'
    late: list[float] = []
    begin = time.monotonic()
    for number in range(int(rate * seconds)):
        due = begin + number / rate
        wait = due - time.monotonic()
        if wait > 0:
            time.sleep(max(wait, _TICK_SECONDS))
        now = time.monotonic_ns()
        late.append(now / 1e9 - due)
        producer.produce(topic, value, b"%d" % now, number % partitions)
        if number % 100 == 0:
            producer.poll(0)
    producer.flush()
    late.sort()
    print(json.dumps({name: late[int(len(late) * part)] * 1000 for name, part in _PARTS}))  # noqa: T201 - its report


_PARTS = (("p50", 0.5), ("p99", 0.99), ("p999", 0.999))

if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
