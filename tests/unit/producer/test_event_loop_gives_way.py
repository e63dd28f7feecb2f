"""AsyncProducer: a task that sends lets the loop run when the sender has something to do."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from kbatch import AsyncProducer
from kbatch.interceptors import Interceptor
from kbatch.producer.event_loop import TURN_RECORDS
from kbatch.records import ProducerRecord
from kbatch.testing import Broker
from tests.support.producing import SECONDS, TOPIC
from tests.support.shells import Runner


def made(broker: Broker, **keys: Any) -> AsyncProducer:
    return AsyncProducer(bootstrap_servers=broker.bootstrap_servers, **keys)


def test_a_task_that_sends_without_end_gives_way(broker: Broker, run: Runner) -> None:
    async def program() -> None:
        async with made(broker, linger_ms=0, batch_size=1000) as producer:
            await producer.partitions_for(TOPIC)
            told: list[int] = []
            count = 0
            while not told:  # it suspends nowhere else
                await producer.send(
                    TOPIC, b"", on_delivery=lambda metadata, error: told.append(metadata.offset)
                )
                count += 1
            assert count < 100_000

    run(program())


def test_a_task_gives_way_also_for_a_node_that_takes_nothing(broker: Broker, run: Runner) -> None:
    """What changes that is heard of only when the task does."""

    async def program() -> None:
        async with made(broker, linger_ms=1) as producer:
            await (await producer.send(TOPIC, b"", partition=0))
            producer.accumulator.alarm.busy_nodes = frozenset(producer._runtime.engine.snapshot.nodes)
            await producer.send(TOPIC, b"", partition=0)
            until = time.monotonic() + SECONDS
            while not producer.must_give_way:  # linger is over
                assert time.monotonic() < until

    run(program())


def test_each_task_gets_its_turn_and_none_is_called_for_a_record(broker: Broker, run: Runner) -> None:
    async def program() -> None:
        async with made(broker) as producer:
            await producer.partitions_for(TOPIC)
            sent = [0] * 20
            is_over = False

            async def send_without_end(number: int) -> None:
                nonlocal is_over
                while not is_over:
                    await producer.send(TOPIC, b"")
                    sent[number] += 1
                    is_over = is_over or sent[number] == 10 * TURN_RECORDS

            before = producer.slow_count
            await asyncio.gather(*(send_without_end(number) for number in range(20)))
            assert min(sent) >= TURN_RECORDS
            assert producer.slow_count - before < sum(sent) / 3

    run(program())


def test_tasks_share_a_full_buffer(broker: Broker, run: Runner) -> None:
    """A task whose turn is over stands in line for memory after those that wait already."""

    async def program() -> None:
        async with made(broker, buffer_memory=1_000_000, batch_size=100_000) as producer:
            await producer.partitions_for(TOPIC)
            sent = [0] * 100
            wanted = 100 * 4 * TURN_RECORDS

            async def send_until_all_is_sent(number: int) -> None:
                while sum(sent) < wanted:
                    await producer.send(TOPIC, bytes(100))
                    sent[number] += 1

            await asyncio.gather(*(send_until_all_is_sent(number) for number in range(100)))
            assert min(sent) >= wanted / 100 / 2, sorted(sent)

    run(program())


def test_interceptors_see_every_record_of_tasks_that_wait(broker: Broker, run: Runner) -> None:
    """Also the record of a task whose turn is over, which stands in line before it is tried."""

    class Marking(Interceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return record._replace(value=b"seen" + record.value)

    async def program() -> None:
        settings = {"buffer_memory": 100_000, "batch_size": 10_000, "interceptor_classes": [Marking]}
        async with made(broker, **settings) as producer:
            await producer.partitions_for(TOPIC)

            async def send_four_turns() -> None:
                for _ in range(4 * TURN_RECORDS):
                    await producer.send(TOPIC, bytes(100))

            await asyncio.gather(*(send_four_turns() for _ in range(20)))

    run(program())
    values = [record.value or b"" for record in broker.records(TOPIC)]
    assert len(values) == 20 * 4 * TURN_RECORDS
    assert {value[:4] for value in values} == {b"seen"}


def test_records_keep_the_order_in_which_tasks_were_made(broker: Broker, run: Runner) -> None:
    async def program() -> None:
        async with made(broker, linger_ms=0, batch_size=1000) as producer:
            await producer.partitions_for(TOPIC)
            deliveries = await asyncio.gather(
                *(producer.send(TOPIC, b"%d" % number) for number in range(5000))
            )
            assert producer.slow_count > 10
            await producer.flush(SECONDS)
            assert [delivery.result(0).offset for delivery in deliveries] == list(range(5000))

    run(program())


def test_task_that_is_cancelled_while_it_gives_way_holds_up_no_other(broker: Broker, run: Runner) -> None:
    async def program() -> None:
        async with made(broker) as producer:
            giving_way = [asyncio.create_task(producer._give_way()) for _ in range(5)]
            await asyncio.sleep(0)
            assert producer.is_giving_way
            for task in giving_way[::2]:
                task.cancel()
            await producer.send(TOPIC, b"")
            assert all(task.done() for task in giving_way)
            assert [task.cancelled() for task in giving_way] == [True, False, True, False, True]
            await producer.flush(SECONDS)
            assert not producer.is_giving_way

    run(program())
