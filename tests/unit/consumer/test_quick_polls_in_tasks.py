"""Polls of tasks that are one native step, and the turns that they leave to other tasks and the network."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

import kbatch
from kbatch.consumer.event_loop import RECORDS_AT_A_TIME
from kbatch.errors import ConcurrentUseError, ConsumerClosedError, IllegalStateError
from kbatch.testing import Broker
from tests.support.patience import HANG_MS
from tests.support.polling import PARTITIONS, TOPIC, fill
from tests.support.producing import SECONDS
from tests.support.shells import Runner

TOPICS = {TOPIC: 3}
WAYS = ("poll", "iteration")
either = pytest.mark.parametrize("way", WAYS)


@contextlib.asynccontextmanager
async def consuming(broker: Broker, **keys: Any) -> AsyncIterator[Any]:
    settings: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap_servers,
        "auto_offset_reset": "earliest",
        "fetch_max_wait_ms": 10,
        "default_api_timeout_ms": HANG_MS,
        **keys,
    }
    async with kbatch.AsyncConsumer(**settings) as consumer:
        consumer.assign(PARTITIONS)
        yield consumer


async def until_quick(consumer: Any) -> None:
    """Poll until polls are quick; they must find nothing."""
    while (polled := await consumer._quick.poll_in_task(0, None)) is None:
        assert not await consumer.poll(0)
    assert not polled


async def taken(consumer: Any, way: str) -> list[Any]:
    if way == "poll":
        return list(await consumer.poll(max_records=1))
    async for record in consumer:
        return [record]
    raise AssertionError


async def waiting(consumer: Any, way: str) -> asyncio.Task[list[Any]]:
    """Return a task with a quick poll that waits."""
    await until_quick(consumer)
    task = asyncio.create_task(taken(consumer, way), name="the first")
    while not consumer._runtime.changed.waiting:
        await asyncio.sleep(0)
    return task


async def filled(broker: Broker, count: int) -> None:
    await asyncio.to_thread(fill, broker, count, partitions=[1])


async def fetched(consumer: Any, broker: Broker, count: int) -> None:
    """Append records to a log that is empty, and let the consumer fetch them all."""
    await filled(broker, count)
    while consumer._engine.reading(PARTITIONS[1]).fetch_offset < count:
        await asyncio.sleep(0)


@either
def test_quick_poll_of_a_task_returns_what_arrives(broker: Broker, run: Runner, way: str) -> None:
    async def program() -> None:
        async with consuming(broker) as consumer:
            task = await waiting(consumer, way)
            await filled(broker, 1)
            (record,) = await task
            assert (record.partition, record.offset, record.value) == (1, 0, b"0")
            assert await consumer.position(PARTITIONS[1]) == 1
            assert not await consumer.poll(0)

    run(program())


@either
def test_cancelled_quick_poll_has_taken_nothing(broker: Broker, run: Runner, way: str) -> None:
    async def program() -> None:
        async with consuming(broker) as consumer:
            task = await waiting(consumer, way)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not consumer._runtime.changed.waiting
            task = await waiting(consumer, way)
            await filled(broker, 2)
            task.cancel()  # it may have been woken
            with contextlib.suppress(asyncio.CancelledError):
                assert [each.offset for each in await task] == [0]
            found = [] if task.cancelled() else [0]
            while len(found) < 2:
                found += [each.offset for each in await consumer.poll(SECONDS)]
            assert found == [0, 1]

    run(program())


@either
def test_close_ends_a_quick_poll_of_a_task(broker: Broker, run: Runner, way: str) -> None:
    async def program() -> None:
        async with consuming(broker) as consumer:
            task = await waiting(consumer, way)
            await consumer.close()
            with pytest.raises(ConsumerClosedError):
                await task

    run(program())


def test_second_task_is_refused_while_a_quick_poll_waits(broker: Broker, run: Runner) -> None:
    async def program() -> None:
        async with consuming(broker) as consumer:
            task = await waiting(consumer, "poll")
            for way in WAYS:
                with pytest.raises(ConcurrentUseError, match="the first is using the consumer"):
                    await taken(consumer, way)
            await filled(broker, 1)
            assert len(await task) == 1

    run(program())


@either
def test_quick_poll_on_another_loop_is_refused(broker: Broker, run: Runner, way: str) -> None:
    def elsewhere(consumer: Any) -> None:
        with pytest.raises(IllegalStateError, match="belongs to another event loop"):
            asyncio.run(taken(consumer, way))

    async def program() -> None:
        async with consuming(broker) as consumer:
            await until_quick(consumer)
            await fetched(consumer, broker, 1)
            await asyncio.to_thread(elsewhere, consumer)

    run(program())


@either
def test_loop_over_what_is_there_lets_other_tasks_run(broker: Broker, run: Runner, way: str) -> None:
    """And the network, although no poll waits."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def read(consumer: Any) -> None:
        """Read records, of which all are there."""
        if way == "poll":
            for _ in range(3 * RECORDS_AT_A_TIME):
                assert await consumer.poll(max_records=1)
            return
        left = 3 * RECORDS_AT_A_TIME
        async for _ in consumer:
            left -= 1
            if not left:
                return

    async def program() -> None:
        async with consuming(broker) as consumer:
            await until_quick(consumer)
            await fetched(consumer, broker, 4 * RECORDS_AT_A_TIME)
            others = asyncio.create_task(count())
            await asyncio.sleep(0)
            before = turns
            await read(consumer)
            others.cancel()
            assert turns - before >= 2

    run(program())


def test_rebalance_callback_runs_in_a_quick_poll_of_a_task(broker: Broker, run: Runner) -> None:
    async def program() -> None:
        keys: dict[str, Any] = {
            "bootstrap_servers": broker.bootstrap_servers,
            "group_id": "g",
            "heartbeat_interval_ms": 20,
            "group_protocol": "classic",
        }
        async with kbatch.AsyncConsumer(**keys) as first, kbatch.AsyncConsumer(**keys) as second:
            revoked: list[str] = []
            first.subscribe([TOPIC], on_revoked=lambda _: revoked.append(threading.current_thread().name))
            while len(first.assignment()) < 3:
                await first.poll(0)
            task = await waiting(first, "poll")
            second.subscribe([TOPIC])
            while not revoked:
                assert not task.done()
                await second.poll(0)
            task.cancel()

    run(program())
