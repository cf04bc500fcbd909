"""Offsets with holes: compaction, transaction markers, aborted data. None of them holds back a commit."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaProducer
from kafka_help import consume_all, until
from worker_process import GUARANTEES, event, numbers

if TYPE_CHECKING:
    from worker_process import Line, MakeLine

TRANSACTIONS = 100
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "50",
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": "0",
}


def restart_does_nothing_again(works: Line, number: int) -> None:
    """Stop the worker, start another, and send one more event: nothing but that one comes out anew."""
    before = numbers(works.outputs())
    assert works.workers[-1].stop() == 0
    worker = works.run()
    works.feed([event(number)])
    works.settle()
    assert numbers(works.outputs()) == [*before, number]
    assert worker.said("partition-started")


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_compacted_topic_with_holes(own_line: MakeLine, guarantee: str) -> None:
    """Every event that survived gives its one outcome, and the commit reaches the end."""
    works = own_line(config=COMPACTED, guarantee=guarantee)
    for round_ in range(6):
        works.feed([event(number, text=f"round {round_}") for number in range(0, 300, 1 + round_ % 3)])

    def has_holes() -> bool:
        works.feed([event(1000)])  # a segment is closed by the next record after its time
        return len(consume_all(works.bootstrap, works.input)) < 500

    until(has_holes)
    left = consume_all(works.bootstrap, works.input)
    assert left[-1].offset - left[0].offset >= len(left)
    worker = works.run()
    works.settle(10)

    outputs = works.outputs()
    assert set(numbers(outputs)) == {*range(300), 1000}
    assert len(outputs) <= len(left)
    assert worker.stop() == 0
    assert len(works.outputs()) == len(outputs)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_foreign_transactions(line: MakeLine, guarantee: str) -> None:
    """Half of them aborted: what was aborted never comes out, and markers count into neither lag nor outcomes."""
    works = line(guarantee=guarantee)
    worker = works.run()
    asyncio.run(transactions(works))
    works.settle(10)

    kept = [number for number in range(TRANSACTIONS * 5) if number // 5 % 2 == 0]
    assert numbers(works.outputs()) == kept
    restart_does_nothing_again(works, 10_000)
    assert worker.said("committed-offset-lost") == []


async def transactions(works: Line) -> None:
    """A hundred transactions of five events, every other one aborted, the last as well: the tail is a marker."""
    async with AIOKafkaProducer(bootstrap_servers=works.bootstrap, transactional_id=works.input) as producer:
        for transaction in range(TRANSACTIONS):
            await producer.begin_transaction()
            for number in range(transaction * 5, transaction * 5 + 5):
                one = event(number)
                await producer.send(works.input, one.value, one.key, partition=0)
            await producer.flush()
            await (producer.abort_transaction() if transaction % 2 else producer.commit_transaction())


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_an_open_transaction_holds_the_log_until_it_ends(line: MakeLine, guarantee: str) -> None:
    """Events behind it wait, as read_committed demands; when it is aborted they come out and the lag is zero."""
    works = line(guarantee=guarantee)
    works.run()
    asyncio.run(open_then_abort(works))
    works.settle(10)

    assert numbers(works.outputs()) == [1, 4]
    restart_does_nothing_again(works, 5)


async def open_then_abort(works: Line) -> None:
    """Write 1, then 2 and 3 in a transaction, then 4 outside it; abort once 1 is out."""
    async with AIOKafkaProducer(bootstrap_servers=works.bootstrap, transactional_id=works.input) as producer:
        await asyncio.to_thread(works.feed, [event(1)])
        await producer.begin_transaction()
        for number in (2, 3):
            one = event(number)
            await producer.send_and_wait(works.input, one.value, one.key, partition=0)
        await asyncio.to_thread(works.feed, [event(4)])
        await asyncio.to_thread(until, lambda: works.position()[0] == {0: 1})
        await producer.abort_transaction()
