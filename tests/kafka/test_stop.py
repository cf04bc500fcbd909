"""How it ends: in order, at once, without a broker, by a fault of our own; and how it waits for a broker to begin."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest
from worker_process import GUARANTEES, Feeder, account, event, numbers, seconds_since

from worker.kafka.ports import free_ports

if TYPE_CHECKING:
    from worker_process import MakeLine

    from worker.kafka.throwaway import ThrowawayKafka

PARTITIONS = 4
PLANTED = """
from worker.rule.outcome import Rule
def planted(self, records):
    raise RuntimeError('planted')
Rule.outcomes = planted
from worker.cli import main
main(['run'])
"""


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_sigterm_under_load(line: MakeLine, guarantee: str) -> None:
    """Exit 0 in under ten seconds; what is started again loses nothing and doubles nothing."""
    works = line(partitions=PARTITIONS, guarantee=guarantee)
    with Feeder(works, PARTITIONS) as feeder:
        for _ in range(2):
            worker = works.run()
            feeder.wait_more()
            assert worker.stop() == 0
            assert worker.said("worker-stopped", level="info")
            assert "Traceback" not in worker.text
    works.run()
    works.settle()

    assert account(works, feeder.count) == (0, 0, 0)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_kill_under_load(line: MakeLine, guarantee: str) -> None:
    """Nothing is lost; exactly once nothing is doubled either, for one who reads what is committed."""
    works = line(partitions=PARTITIONS, guarantee=guarantee, instance_id="the-one")  # so that it is back at once
    with Feeder(works, PARTITIONS) as feeder:
        for _ in range(2):
            worker = works.run()
            feeder.wait_more()
            worker.kill()
    works.run()
    works.settle(60)

    lost, doubled, out_of_order = account(works, feeder.count)
    assert lost == 0
    if guarantee == "exactly-once":
        assert (doubled, out_of_order) == (0, 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_it_at_once(line: MakeLine, number: signal.Signals) -> None:
    """Without waiting for anything, and without a traceback."""
    works = line(partitions=PARTITIONS)
    with Feeder(works, PARTITIONS) as feeder:
        worker = works.run()
        feeder.wait_more()
        worker.signal(number)
        worker.signal(number)
        start = time.monotonic()
        code = worker.wait(5)
    assert seconds_since(start) < 2
    assert code in (0, 1)  # 0 if it was quicker than the second signal
    assert "Traceback" not in worker.text


def test_a_planted_fault_ends_the_process(line: MakeLine) -> None:
    """Exit 1 in under ten seconds with one clear line; the events of the batch are read again by the next one."""
    works = line(partitions=2)
    works.feed([event(1), event(2, partition=1)])
    start = time.monotonic()
    worker = works.start(("-c", PLANTED))
    assert worker.wait(15) == 1
    assert seconds_since(start) < 10
    assert "planted" in worker.said("worker-failed")[0]["error"]
    assert "Traceback" not in worker.text
    assert len([line for line in worker.text.splitlines() if '"level": "error"' in line]) == 1

    works.run()
    works.settle()
    assert sorted(numbers(works.outputs())) == [1, 2]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_while_waiting_for_the_broker(line: MakeLine, number: signal.Signals) -> None:
    """Nothing was in flight: exit 0, at once, with the reason."""
    works = line()
    worker = works.start(brokers=f"127.0.0.1:{free_ports(1)[0]}")
    worker.wait_for("waiting-for-broker")
    worker.signal(number)

    assert worker.wait(5) == 0
    assert worker.said("worker-stopped")[0]["reason"]
    assert "Traceback" not in worker.text


@pytest.mark.parametrize(
    ("how", "guarantee"), [("pause", "at-least-once"), ("pause", "exactly-once"), ("kill", "at-least-once")]
)
def test_an_idle_stop_without_the_broker(
    own_line: MakeLine, own_kafka: ThrowawayKafka, how: str, guarantee: str
) -> None:
    """Nothing was in flight: exit 0, although nobody answers, and well before the time-out."""
    works = own_line(guarantee=guarantee)
    works.feed([event(1)])
    worker = works.run()
    works.settle()
    if how == "pause":
        own_kafka.pause()
    else:
        own_kafka.kill()
    assert worker.stop(seconds=15) == 0
    assert worker.said("worker-stopped")
    assert "Traceback" not in worker.text


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_stop_without_the_broker_under_load(own_line: MakeLine, own_kafka: ThrowawayKafka, guarantee: str) -> None:
    """Within the time-out, and 1 if something was in flight; nothing is lost, and exactly once nothing doubled."""
    works = own_line(partitions=PARTITIONS, guarantee=guarantee, shutdown_timeout="6s")
    with Feeder(works, PARTITIONS) as feeder:
        worker = works.run()
        feeder.wait_more()
        own_kafka.pause()
        assert worker.stop(seconds=8) in (0, 1)
        assert worker.said("worker-stopped")
        assert "Traceback" not in worker.text
        own_kafka.resume()
    works.run()
    works.settle(60)

    lost, doubled, out_of_order = account(works, feeder.count)
    assert lost == 0
    if guarantee == "exactly-once":
        assert (doubled, out_of_order) == (0, 0)


def test_a_broker_that_comes_later_is_waited_for(own_line: MakeLine, own_kafka: ThrowawayKafka) -> None:
    """With few lines, then it works without a restart."""
    works = own_line()
    works.feed([event(1)])
    own_kafka.stop(keep_data=True)
    worker = works.start()
    said = worker.wait_for("waiting-for-broker")
    assert own_kafka.bootstrap in said["brokers"]
    own_kafka.start()
    worker.wait_for("partitions-assigned")
    works.settle()

    assert numbers(works.outputs()) == [1]
    assert len(worker.text.splitlines()) < 30
