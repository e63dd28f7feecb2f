"""AsyncProducer: calls that are cancelled at any step, each in turn.

A task makes a call, the loop turns some times, and the task is cancelled: after none, one, two turns and so
on, and then in ever longer strides, until the call has returned before. What was accepted is in the log once,
what was not is not, and the producer goes on: after the same call again, or an abort.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

import pytest

import kbatch
from kbatch import AsyncProducer, IllegalStateError, OffsetAndMetadata, TopicPartition
from kbatch.testing import Broker
from tests.support.producing import SECONDS_MS, TOPIC, TRANSACTIONAL_ID, values
from tests.support.shells import Runner

# Room for some ten records of 1,000 bytes.
SMALL: dict[str, Any] = {"buffer_memory": 24_000, "batch_size": 1000, "max_block_ms": SECONDS_MS}
SOURCE, GROUP = TopicPartition("source", 0), "g"
SINGLE_STEPS = 20


TOPICS = {TOPIC: 1, "source": 1}


@pytest.fixture(params=[1, 2], ids=["TV1", "TV2"])
def transactional_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(TOPICS, auto_create_topics=False, transaction_version=request.param) as broker:
        yield broker


def made(broker: Broker, **keys: Any) -> AsyncProducer:
    settings = {"linger_ms": 0, "retry_backoff_ms": 1, "reconnect_backoff_ms": 1} | keys
    return AsyncProducer(bootstrap_servers=broker.bootstrap_servers, **settings)


def transactional(broker: Broker, **keys: Any) -> AsyncProducer:
    return made(broker, transactional_id=TRANSACTIONAL_ID, **keys)


async def is_cancelled(call: Coroutine[Any, Any, Any], turns: int) -> bool:
    """Whether the call was cancelled, after so many turns of the loop; it had returned before if not."""
    task = asyncio.create_task(call)
    for _ in range(turns):
        await asyncio.sleep(0)
        if task.done():
            break
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return True
    return False


async def at_any_step(attempt: Callable[[int, Callable[..., Awaitable[bool]]], Awaitable[bool]]) -> int:
    """Lets `attempt(number, cancelled)` try one step after another, until it says that what it gave to
    `cancelled` had returned before; how often it was cancelled.
    """
    number = turns = 0

    async def cancelled(call: Coroutine[Any, Any, Any]) -> bool:
        return await is_cancelled(call, turns)

    while await attempt(number, cancelled):
        number += 1
        turns = number if number < SINGLE_STEPS else turns * 5 // 4
    return number


def offset_of(broker: Broker) -> int | None:
    found = broker._call(lambda core: core.state.coordinators.offsets.fetch(GROUP, [SOURCE]))
    offset = next(iter(found.values()))
    return None if offset is None or offset.offset < 0 else int(offset.offset)


# Records


def test_a_cancelled_send_many_is_through_with_what_it_has_accepted(broker: Broker, run: Runner) -> None:
    accepted: list[bytes] = []

    async def program() -> None:
        async with made(broker, **SMALL) as producer:
            broker.drop_connection("Produce", "after", 3)

            async def attempt(number: int, cancelled: Any) -> bool:
                taken: list[bytes] = []

                def records() -> Iterator[tuple[None, bytes]]:
                    for index in range(40):
                        taken.append(b"%d %d " % (number, index) + bytes(1000))
                        yield None, taken[-1]

                is_over = not await cancelled(producer.send_many(TOPIC, records()))
                # the last that was taken is the one that it waited with
                accepted.extend(taken if is_over else taken[:-1])
                return not is_over

            await at_any_step(attempt)

    run(program())
    assert values(broker) == accepted


def test_a_cancelled_send_batch_has_accepted_nothing(broker: Broker, run: Runner) -> None:
    accepted: list[bytes] = []
    numbers = itertools.count()

    async def program() -> None:
        async with made(broker, **SMALL) as producer:
            broker.drop_connection("Produce", "after", 3)

            async def attempt(number: int, cancelled: Any) -> bool:
                was_cancelled = False
                for _ in range(24):  # the memory is full of those before
                    value = b"%d " % next(numbers) + bytes(4000)
                    if await cancelled(producer.send_batch(TOPIC, 0, kbatch.encode([(None, value)]))):
                        was_cancelled = True
                    else:
                        accepted.append(value)
                return was_cancelled

            for _ in range(8):
                await at_any_step(attempt)

    run(program())
    assert values(broker) == accepted


def test_rows_of_a_cancelled_table_are_sent_once_or_not(broker: Broker, run: Runner) -> None:
    pa = pytest.importorskip("pyarrow")
    rows = [[b"%d %d " % (number, index) + bytes(100) for index in range(1000)] for number in range(100)]
    done: list[int] = []

    async def program() -> None:
        async with made(broker, **SMALL) as producer:
            broker.drop_connection("Produce", "after", 3)

            async def attempt(number: int, cancelled: Any) -> bool:
                table = pa.table({"value": rows[number]})
                if await cancelled(producer.send_table(TOPIC, table)):
                    return True
                done.append(number)
                return False

            await at_any_step(attempt)
            await (await producer.send(TOPIC, b"end"))

    run(program())
    found = values(broker)
    assert found.pop() == b"end"
    parts: list[int] = []
    for number, table in enumerate(rows):
        mine = [value for value in found if value is not None and value.startswith(b"%d " % number)]
        assert mine == table[: len(mine)]  # in order, from the first on, each once
        assert (mine == table) >= (number in done)
        parts.append(len(mine))
    assert any(0 < count < len(rows[0]) for count in parts)


# Transactions


def test_a_cancelled_init_is_made_again(transactional_broker: Broker, run: Runner) -> None:
    broker = transactional_broker

    async def attempt(number: int, cancelled: Any) -> bool:
        async with transactional(broker) as producer:
            was_cancelled: bool = await cancelled(producer.init_transactions())
            if was_cancelled:
                await producer.init_transactions()
            async with producer.transaction():
                await producer.send(TOPIC, b"%d" % number)
        return was_cancelled

    count = run(at_any_step(attempt))
    assert values(broker) == [b"%d" % number for number in range(count + 1)]


def test_a_cancelled_begin_is_made_again(transactional_broker: Broker, run: Runner) -> None:
    broker = transactional_broker

    async def program() -> int:
        async with transactional(broker) as producer:
            await producer.init_transactions()

            async def attempt(number: int, cancelled: Any) -> bool:
                was_cancelled: bool = await cancelled(producer.begin_transaction())
                if was_cancelled:
                    await producer.begin_transaction()
                await producer.send(TOPIC, b"%d" % number)
                await producer.commit_transaction()
                return was_cancelled

            return await at_any_step(attempt)

    count = run(program())
    assert values(broker) == [b"%d" % number for number in range(count + 1)]


@pytest.mark.parametrize("end", ["again", "abort", "commit"])
def test_cancelled_offsets_are_part_of_the_transaction_or_not(
    transactional_broker: Broker, run: Runner, end: str
) -> None:
    broker = transactional_broker

    async def program() -> None:
        async with transactional(broker) as producer:
            await producer.init_transactions()
            committed: int | None = None

            async def attempt(number: int, cancelled: Any) -> bool:
                nonlocal committed
                offsets = {SOURCE: OffsetAndMetadata(number + 1)}
                await producer.begin_transaction()
                was_cancelled: bool = await cancelled(producer.send_offsets_to_transaction(offsets, GROUP))
                if end == "again":
                    await producer.send_offsets_to_transaction(offsets, GROUP)
                may_be = {committed, number + 1} if was_cancelled and end == "commit" else {number + 1}
                if end == "abort":
                    await producer.abort_transaction()
                    may_be = {None}
                else:
                    await producer.send(TOPIC, b"%d" % number)
                    await producer.commit_transaction()
                committed = offset_of(broker)
                assert committed in may_be, number
                return was_cancelled

            await at_any_step(attempt)

    run(program())


def test_a_cancelled_body_of_a_transaction_is_aborted(transactional_broker: Broker, run: Runner) -> None:
    broker = transactional_broker
    sent: list[bytes] = []

    async def program() -> int:
        async with transactional(broker) as producer:
            await producer.init_transactions()

            async def body(number: int, at_the_end: asyncio.Event) -> None:
                async with producer.transaction():
                    for index in range(3):
                        await producer.send(TOPIC, b"cancelled %d %d" % (number, index))
                        sent.append(b"")
                        await producer.flush()
                    await producer.send_offsets_to_transaction({SOURCE: OffsetAndMetadata(1)}, GROUP)
                    await producer.send(TOPIC, b"cancelled %d" % number)
                    at_the_end.set()
                    await asyncio.Event().wait()

            async def attempt(number: int, cancelled: Any) -> bool:
                at_the_end = asyncio.Event()
                assert await cancelled(body(number, at_the_end))
                async with producer.transaction():
                    await producer.send(TOPIC, b"%d" % number)
                return not at_the_end.is_set()

            return await at_any_step(attempt)

    count = run(program())
    assert values(broker) == [b"%d" % number for number in range(count + 1)]
    assert offset_of(broker) is None
    assert sent


def test_a_body_that_is_cancelled_again_while_it_aborts(transactional_broker: Broker, run: Runner) -> None:
    broker = transactional_broker

    async def program() -> int:
        async with transactional(broker) as producer:
            await producer.init_transactions()

            async def attempt(number: int, cancelled: Any) -> bool:
                at_the_end = asyncio.Event()

                async def body() -> None:
                    async with producer.transaction():
                        await producer.send(TOPIC, b"cancelled %d" % number)
                        at_the_end.set()
                        await asyncio.Event().wait()

                working = asyncio.create_task(body())
                await at_the_end.wait()
                working.cancel()
                was_over = not await cancelled(over(working))
                working.cancel()
                await over(working)
                try:
                    await producer.begin_transaction()
                except IllegalStateError as error:
                    assert "abort_transaction() has an unknown outcome" in str(error)
                    await producer.abort_transaction()
                    await producer.begin_transaction()
                await producer.send(TOPIC, b"%d" % number)
                await producer.commit_transaction()
                return not was_over

            return await at_any_step(attempt)

    count = run(program())
    assert values(broker) == [b"%d" % number for number in range(count + 1)]


async def over(task: asyncio.Task[None]) -> None:
    """Waits for it, and leaves it alone."""
    await asyncio.wait([task])


def test_a_cancelled_abort_is_made_again(transactional_broker: Broker, run: Runner) -> None:
    broker = transactional_broker

    async def program() -> int:
        async with transactional(broker) as producer:
            await producer.init_transactions()

            async def attempt(number: int, cancelled: Any) -> bool:
                await producer.begin_transaction()
                for index in range(3):
                    await producer.send(TOPIC, b"aborted %d %d" % (number, index))
                if number % 2:
                    await producer.flush()
                was_cancelled: bool = await cancelled(producer.abort_transaction())
                if was_cancelled:
                    await producer.abort_transaction()
                async with producer.transaction():
                    await producer.send(TOPIC, b"%d" % number)
                return was_cancelled

            return await at_any_step(attempt)

    count = run(program())
    assert values(broker) == [b"%d" % number for number in range(count + 1)]
