"""AsyncProducer on event loops; its behaviour in common with Producer is tested with Producer."""

from __future__ import annotations

import asyncio
import gc
import itertools
import statistics
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from random import Random
from typing import Any

import pytest

import kbatch
from kbatch import (
    AsyncProducer,
    Delivery,
    IllegalStateError,
    OffsetAndMetadata,
    RecordMetadata,
    TopicPartition,
)
from kbatch.errors import ConfigError, NotEnoughReplicasError, ProducerClosedError
from kbatch.interceptors import Interceptor
from kbatch.producer.event_loop import MOST_TURN_RECORDS, TURN_RECORDS
from kbatch.records import ProducerRecord
from kbatch.testing import Broker
from tests.support.interrupting import Interrupter
from tests.support.patience import HANG_SECONDS, until, until_async
from tests.support.producing import (
    EITHER_VERSION,
    SECONDS,
    SECONDS_MS,
    TOPIC,
    TRANSACTIONAL_ID,
    requests_seen,
    values,
)
from tests.support.shells import Runner

# Room for some ten records of 1,000 bytes.
SMALL: dict[str, Any] = {"buffer_memory": 24_000, "batch_size": 1000, "max_block_ms": SECONDS_MS}
RECORD = bytes(1000)
TOPICS = {TOPIC: 1, "source": 1}


def made(broker: Broker, **keys: Any) -> AsyncProducer:
    return AsyncProducer(bootstrap_servers=broker.bootstrap_servers, **({"linger_ms": 0} | keys))


@asynccontextmanager
async def producing(broker: Broker, **keys: Any) -> Any:
    """Make a producer that is closed at once, without raising failed deliveries."""
    producer = made(broker, **keys)
    try:
        yield producer
    finally:
        with suppress(kbatch.DeliveryError):
            await producer.close(timeout=0)


async def fill(broker: Broker, producer: AsyncProducer) -> list[Delivery]:
    """Fill the memory with records that are not acknowledged until `release`."""
    await producer.partitions_for(TOPIC)
    broker.hold_high_watermark(TOPIC, 0)
    deliveries = []
    while (delivery := producer.try_send(TOPIC, RECORD)) is not None:
        deliveries.append(delivery)
    return deliveries


def release(broker: Broker) -> None:
    broker.hold_high_watermark(TOPIC, 0, False)


def waiting_count(producer: AsyncProducer) -> int:
    (count,) = (value for metric, value in producer.metrics().items() if metric.name == "waiting-threads")
    return int(count)


# Deliveries


def test_send_and_its_delivery_are_awaited(broker: Broker, run: Runner) -> None:
    async def program() -> None:
        async with made(broker) as producer:
            delivery = await producer.send(TOPIC, b"value", b"key")
            metadata = await delivery
            assert metadata == RecordMetadata(TOPIC, 0, 0, metadata.timestamp_ms, 3, 5)
            assert await delivery == metadata
            many = [await producer.send(TOPIC, b"") for _ in range(100)]
            offsets = [each.offset for each in await asyncio.gather(*many)]
            assert offsets == list(range(1, 101))
            first = await asyncio.wait_for(await producer.send(TOPIC, b""), SECONDS)
            assert first.offset == 101
            tasks = [asyncio.create_task(producer.send(TOPIC, b"%d" % number)) for number in range(10)]
            assert [(await (await task)).offset for task in tasks] == list(range(102, 112))

    run(program())
    assert values(broker)[102:] == [b"%d" % number for number in range(10)]


def test_a_failure_is_raised_where_it_is_awaited(broker: Broker, run: Runner) -> None:
    async def program() -> None:
        async with made(broker, retries=0, enable_idempotence=False) as producer:
            broker.fail_next("Produce", "NOT_ENOUGH_REPLICAS")
            with pytest.raises(NotEnoughReplicasError):
                await (await producer.send(TOPIC, b""))
            await producer.flush()

    run(program())


def test_a_delivery_of_another_thread_is_awaited_too(broker: Broker, run: Runner) -> None:
    async def program() -> None:
        with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0) as producer:
            assert [(await producer.send(TOPIC, b"")).offset for _ in range(3)] == [0, 1, 2]

    run(program())


def test_a_cancelled_await_of_a_delivery_cancels_no_record(broker: Broker, run: Runner) -> None:
    async def program() -> None:
        async with made(broker) as producer:
            await producer.partitions_for(TOPIC)
            broker.hold_high_watermark(TOPIC, 0)
            delivery = await producer.send(TOPIC, b"value")
            waiting: Awaitable[Any]
            for waiting in (delivery, asyncio.gather(delivery), producer.flush()):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(waiting, 0.01)
            release(broker)
            assert (await delivery).offset == 0

    run(program())
    assert values(broker) == [b"value"]


def test_tables_and_batches_are_awaited(broker: Broker, run: Runner) -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"key": [b"%d" % number for number in range(50_000)], "value": [b"x"] * 50_000})

    async def program() -> None:
        async with made(broker, buffer_memory=2_000_000) as producer:
            turns = 0

            async def count() -> None:
                nonlocal turns
                while True:
                    await asyncio.sleep(0)
                    turns += 1

            counting = asyncio.create_task(count())
            report = await (await producer.send_table(TOPIC, table))
            counting.cancel()
            assert turns > 10  # others had the loop meanwhile
            assert sorted(report.offsets) == list(range(50_000))
            batch = kbatch.encode([(None, b"encoded")])
            assert (await (await producer.send_batch(TOPIC, 0, batch))).offset == 50_000
            many = await producer.send_many(TOPIC, [(None, b"1"), (b"k", b"2")])
            assert [(await delivery).offset for delivery in many] == [50_001, 50_002]

    run(program())


# Event loops


def test_no_thread_for_a_call_and_callbacks_on_the_loop(broker: Broker, run: Runner) -> None:
    before = set(threading.enumerate())

    async def program() -> None:
        found: set[int] = set()
        async with made(broker, compression_type="zstd", batch_size=100_000) as producer:
            for number in range(5000):
                await producer.send(
                    TOPIC, b"%0100d" % number, on_delivery=lambda *_: found.add(threading.get_ident())
                )
            await producer.flush()
            new = set(threading.enumerate()) - before
            names = {thread.name.rstrip("-_0123456789") for thread in new if "closer" not in thread.name}
            # asyncio's own threads look up addresses; their number depends on how soon each is free again
            assert names <= {f"kbatch-{producer.config.client_id}-sealer", "asyncio"}
        assert found == {threading.get_ident()}

    run(program())


def test_blocking_on_a_delivery_in_the_loop_is_refused(broker: Broker, run: Runner) -> None:
    async def program() -> None:
        async with made(broker) as producer:
            delivery = await producer.send(TOPIC, b"")
            for wait in (
                delivery.result,
                delivery.exception,
                lambda: kbatch.wait([delivery]),
                lambda: list(kbatch.as_completed([delivery])),
            ):
                with pytest.raises(IllegalStateError, match="cannot block the event loop"):
                    wait()
            assert not delivery.wait(0)
            found = await asyncio.get_running_loop().run_in_executor(None, delivery.result, SECONDS)
            assert found.offset == 0 and delivery.result() == found

    run(program())


def test_another_loop_is_refused(broker: Broker, run: Runner) -> None:
    producer = made(broker)
    with pytest.raises(IllegalStateError, match="on a running event loop"):
        producer.try_send(TOPIC, b"")

    async def program() -> Delivery:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            return await producer.send(TOPIC, b"first")

    assert run(program()).done()

    async def elsewhere() -> None:
        for call in (
            lambda: producer.send(TOPIC, b""),
            lambda: producer.send_many(TOPIC, [(None, b"")]),
            lambda: producer.flush(),
            lambda: producer.partitions_for(TOPIC),
        ):
            with pytest.raises(IllegalStateError):
                await call()
        await producer.close()

    run(elsewhere())
    assert values(broker) == [b"first"]


def test_second_loop_of_this_or_another_thread_is_refused(broker: Broker) -> None:
    producer = made(broker)
    home, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    assert home.run_until_complete(producer.send(TOPIC, b"first"))

    async def refused() -> None:
        with pytest.raises(IllegalStateError, match="belongs to another event loop, which runs elsewhere"):
            await producer.send(TOPIC, b"")

    async def while_it_runs() -> None:
        await asyncio.to_thread(asyncio.run, refused())

    second.run_until_complete(refused())
    home.run_until_complete(while_it_runs())
    home.run_until_complete(producer.close())
    home.close()
    second.close()
    assert values(broker) == [b"first"]


def test_loop_ending_before_close_sends_remaining_records(broker: Broker, run: Runner) -> None:
    async def program() -> AsyncProducer:
        producer = made(broker, linger_ms=600_000, delivery_timeout_ms=2**31 - 1)
        await producer.send(TOPIC, b"value")
        return producer

    with pytest.warns(
        ResourceWarning, match=r"<AsyncProducer .*, open> is still open at the end of its loop"
    ):
        producer = run(program())
    assert values(broker) == [b"value"]
    assert "closed" in repr(producer)
    del producer
    gc.collect()


@pytest.mark.parametrize("in_cycle", [False, True])
def test_local_of_a_loop_that_ends_sends_its_records(broker: Broker, run: Runner, in_cycle: bool) -> None:
    async def program() -> None:
        producer = made(broker, linger_ms=600_000, delivery_timeout_ms=2**31 - 1)
        if in_cycle:
            cycle: list[Any] = [producer]
            cycle.append(cycle)
        for number in range(100):
            await producer.send(TOPIC, b"%d" % number)

    async def collecting() -> None:
        await program()
        gc.collect()

    with pytest.warns(ResourceWarning, match="was dropped without close"):
        run(collecting())
    assert values(broker) == [b"%d" % number for number in range(100)]


def test_dropped_on_a_loop_that_was_left_sends_at_exit(broker: Broker) -> None:
    program = "import asyncio, sys, kbatch\nasync def main():\n"
    program += "    producer = kbatch.AsyncProducer(bootstrap_servers=sys.argv[1], linger_ms=1000)\n"
    program += f"    await producer.send({TOPIC!r}, b'left')\n"
    program += "loop = asyncio.new_event_loop(); loop.run_until_complete(main())"
    command = [sys.executable, "-c", program, broker.bootstrap_servers]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=HANG_SECONDS, check=True)
    assert values(broker) == [b"left"]
    assert not ran.stderr


def test_one_that_was_never_used_needs_no_loop(broker: Broker) -> None:
    with pytest.warns(ResourceWarning, match="was dropped"):
        made(broker)
        gc.collect()
    with pytest.raises(ConfigError):
        AsyncProducer(nonsense=1)  # type: ignore[call-arg]
    asyncio.run(made(broker).close())


# Callbacks


def test_slow_callbacks_leave_the_loop_to_others_in_between(broker: Broker, run: Runner) -> None:
    async def program() -> None:
        async with made(broker, linger_ms=0, max_in_flight_requests_per_connection=1) as producer:
            order: list[str] = []

            def slow(metadata: RecordMetadata, error: BaseException | None) -> None:
                end = time.monotonic() + 0.002
                while time.monotonic() < end:
                    pass
                order.append("callback")

            async def other() -> None:
                while order.count("callback") < 10:
                    order.append("other")
                    await asyncio.sleep(0)

            waiting = asyncio.create_task(other())
            await producer.partitions_for(TOPIC)
            batches = [kbatch.encode([(None, b"%d" % number)]) for number in range(10)]
            for batch in batches:
                await producer.send_batch(TOPIC, 0, batch, on_delivery=slow)
            await producer.flush()
            await waiting
            assert "callback callback callback" not in " ".join(order)

    run(program())


def test_a_callback_sends_at_once_while_memory_is_full(broker: Broker, run: Runner) -> None:
    async def program() -> None:
        async with made(broker, **(SMALL | {"batch_size": 4000})) as producer:
            sent: list[Delivery | None] = []

            def on_delivery(metadata: RecordMetadata, error: BaseException | None) -> None:
                if not sent:
                    while producer.try_send(TOPIC, RECORD) is not None:
                        pass
                    sent.append(producer.try_send(TOPIC, b"x"))

            await producer.partitions_for(TOPIC)
            deliveries = await producer.send_many(TOPIC, [(None, b"")] * 50)
            await producer.send(TOPIC, b"", on_delivery=on_delivery)
            waiting = [asyncio.create_task(producer.send(TOPIC, RECORD)) for _ in range(30)]
            for task in waiting:
                deliveries.append(await task)
            await producer.flush()
            assert all(delivery.done() for delivery in deliveries)

    run(program())


# Memory


def test_cancelled_task_leaves_the_queue_to_the_others(broker: Broker, run: Runner) -> None:
    async def program() -> None:
        async with made(broker, **SMALL) as producer:
            await fill(broker, producer)
            waiting = [
                asyncio.create_task(producer.send(TOPIC, b"%d" % number + RECORD)) for number in range(5)
            ]
            await until_async(lambda: waiting_count(producer) == 5)
            for task in (waiting[0], waiting[3]):
                task.cancel()
            release(broker)
            done = await asyncio.gather(*waiting, return_exceptions=True)
            assert [type(each) for each in done if not isinstance(each, Delivery)] == [
                asyncio.CancelledError
            ] * 2
            await producer.flush()

    run(program())
    assert [value[:1] for value in values(broker) if value and len(value) > 1000] == [b"1", b"2", b"4"]


# Cancellation


@pytest.mark.parametrize("seed", range(6))
def test_cancellation_at_any_step_loses_and_doubles_nothing(broker: Broker, run: Runner, seed: int) -> None:
    """Tasks do all that can be awaited, and are cancelled between any two turns of the loop. What `send` has
    returned for is in the log once; what it was cancelled for is not.
    """
    random = Random(seed)
    accepted: list[tuple[bytes, Delivery]] = []
    cancelled: list[bytes] = []

    async def work(producer: AsyncProducer, name: int) -> None:
        for number in range(40):
            value = b"%d-%d " % (name, number) + bytes(random.choice((0, 500, 3000)))
            try:
                delivery = await producer.send(TOPIC, value)
            except asyncio.CancelledError:
                cancelled.append(value)
                raise
            accepted.append((value, delivery))
            step = random.randrange(8)
            if step == 0:
                await delivery
            elif step == 1:
                await producer.flush()
            elif step == 2:
                await producer.partitions_for(TOPIC)
            elif step == 3:
                await producer.resume()

    async def program() -> None:
        async with made(broker, **SMALL, retry_backoff_ms=1, reconnect_backoff_ms=1) as producer:
            broker.drop_connection("Produce", when="after", times=3)
            tasks = [asyncio.create_task(work(producer, name)) for name in range(30)]
            while not all(task.done() for task in tasks):
                for _ in range(random.randrange(30)):
                    await asyncio.sleep(0)
                random.choice(tasks).cancel()
            found = await asyncio.gather(*tasks, return_exceptions=True)
            assert {type(each) for each in found} <= {type(None), asyncio.CancelledError}
            await producer.flush(SECONDS)
            assert waiting_count(producer) == 0
            assert [delivery.exception(0) for _, delivery in accepted] == [None] * len(accepted)

    run(program())
    assert cancelled
    assert sorted(values(broker)) == sorted(value for value, _ in accepted)  # type: ignore[type-var]


def test_a_cancelled_close_goes_on_sending_and_is_called_again(broker: Broker, run: Runner) -> None:
    async def program() -> None:
        producer = made(broker)
        await producer.partitions_for(TOPIC)
        broker.hold_high_watermark(TOPIC, 0)
        seen = requests_seen(broker)
        delivery = await producer.send(TOPIC, b"value")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.close(), 0.05)
        with pytest.raises(ProducerClosedError):
            await producer.send(TOPIC, b"")
        await until_async(lambda: not seen.empty())
        release(broker)
        await producer.close()
        assert delivery.result().offset == 0

    run(program())


def test_close_cancelled_at_any_step_leaves_nothing_open(broker: Broker, run: Runner) -> None:
    class Counted(Interceptor):
        closed_count = 0

        def close(self) -> None:
            self.closed_count += 1

    async def one(step: int) -> tuple[bool, weakref.ref[Any]]:
        interceptor = Counted()
        producer = made(broker, interceptor_classes=[interceptor])
        await producer.send(TOPIC, b"value")
        closing = asyncio.create_task(producer.close())
        for _ in range(step):
            await asyncio.sleep(0)
        is_over = closing.done()
        closing.cancel()
        with suppress(asyncio.CancelledError):
            await closing
        await producer.close()
        assert interceptor.closed_count == 1, step
        return is_over, weakref.ref(producer._runtime.network)

    async def program() -> None:
        networks: list[weakref.ref[Any]] = []
        is_over = False
        while not is_over:
            is_over, network = await one(len(networks))
            networks.append(network)
        await asyncio.sleep(0)
        gc.collect()
        assert not [network for network in networks if network() is not None]

    run(program())


def test_another_thread_cannot_recreate_it(broker: Broker, run: Runner) -> None:
    async def program() -> None:
        async with made(broker) as producer:
            await producer.send(TOPIC, b"value")
            with pytest.raises(IllegalStateError, match="event loop"):
                await asyncio.to_thread(producer.recreate)
            await producer.send(TOPIC, b"value")
            other = producer.recreate()
            await other.close()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(program())


def test_a_block_that_is_cancelled_sends_what_was_accepted(broker: Broker, run: Runner) -> None:
    async def program() -> None:
        began = asyncio.Event()

        async def work() -> None:
            async with made(broker, linger_ms=600_000, delivery_timeout_ms=2**31 - 1) as producer:
                await producer.send(TOPIC, b"value")
                began.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(program())
    assert values(broker) == [b"value"]


def test_a_cancelled_commit_goes_on_and_is_awaited_again(broker: Broker, run: Runner) -> None:
    async def program() -> None:
        async with made(broker, transactional_id="orders", retry_backoff_ms=1) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            await producer.send(TOPIC, b"value")
            broker.delay("EndTxn", 0.2)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(producer.commit_transaction(), 0.1)
            with pytest.raises(IllegalStateError, match="call it again"):
                await producer.abort_transaction()
            await producer.commit_transaction()
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction():
                    await producer.send(TOPIC, b"aborted")
                    raise ZeroDivisionError
            async with producer.transaction():
                await producer.send(TOPIC, b"second")

    run(program())
    assert values(broker) == [b"value", b"second"]


# Tasks give way


def made_lingering(broker: Broker, **keys: Any) -> AsyncProducer:
    return AsyncProducer(bootstrap_servers=broker.bootstrap_servers, **keys)


def test_a_task_that_sends_without_end_gives_way(broker: Broker, run: Runner) -> None:
    async def program() -> None:
        async with made_lingering(broker, linger_ms=0, batch_size=1000) as producer:
            await producer.partitions_for(TOPIC)
            noted: list[int] = []
            count = 0
            while not noted:  # it suspends nowhere else
                await producer.send(
                    TOPIC, b"", on_delivery=lambda metadata, error: noted.append(metadata.offset)
                )
                count += 1
            assert count < 100_000

    run(program())


def test_a_task_gives_way_also_for_a_node_that_takes_nothing(broker: Broker, run: Runner) -> None:
    """The node's state can change only when the task gives way."""

    async def program() -> None:
        async with made_lingering(broker, linger_ms=1) as producer:
            await (await producer.send(TOPIC, b"", partition=0))
            producer._accumulator.alarm.busy_nodes = frozenset(producer._runtime.engine.snapshot.nodes)
            await producer.send(TOPIC, b"", partition=0)
            until(lambda: producer._has_to_give_way)  # linger is over

    run(program())


def test_each_task_gets_its_turn_and_none_is_called_for_a_record(broker: Broker, run: Runner) -> None:
    async def program() -> None:
        async with made_lingering(broker) as producer:
            await producer.partitions_for(TOPIC)
            sent = [0] * 20
            is_over = False

            async def send_without_end(number: int) -> None:
                nonlocal is_over
                while not is_over:
                    await producer.send(TOPIC, b"")
                    sent[number] += 1
                    is_over = is_over or sent[number] == 10 * TURN_RECORDS

            before = producer._slow_count
            await asyncio.gather(*(send_without_end(number) for number in range(20)))
            assert min(sent) >= TURN_RECORDS
            assert producer._slow_count - before < sum(sent) / 3

    run(program())


@pytest.mark.parametrize(("tasks", "length"), [(2, MOST_TURN_RECORDS), (100, TURN_RECORDS)])
def test_turns_are_longer_while_few_tasks_wait(broker: Broker, run: Runner, tasks: int, length: int) -> None:
    async def program() -> None:
        async with made_lingering(broker) as producer:
            await producer.partitions_for(TOPIC)
            senders: list[int] = []

            async def send(number: int) -> None:
                for _ in range(4 * length):
                    await producer.send(TOPIC, b"")
                    senders.append(number)

            await asyncio.gather(*(send(number) for number in range(tasks)))
            turns = [len(list(turn)) for _, turn in itertools.groupby(senders)]
            # without the first turn, which has no limit until another task waits, and the last ones
            usual = sorted(turns[1:-tasks])
            assert usual[len(usual) // 2] in range(length - 1, length + 2)

    run(program())


def test_tasks_share_a_full_buffer(broker: Broker, run: Runner) -> None:
    """A task whose turn is over queues for memory after those that wait already."""

    async def program() -> None:
        async with made_lingering(broker, buffer_memory=1_000_000, batch_size=100_000) as producer:
            await producer.partitions_for(TOPIC)
            sent = [0] * 100
            wanted = 100 * 4 * TURN_RECORDS

            async def send_until_all_is_sent(number: int) -> None:
                while sum(sent) < wanted:
                    await producer.send(TOPIC, bytes(100))
                    sent[number] += 1

            await asyncio.gather(*(send_until_all_is_sent(number) for number in range(100)))
            # 0.12 to 0.24, and 0.47 to 0.8 if tasks only give way
            assert statistics.pstdev(sent) < 0.35 * statistics.mean(sent), sorted(sent)

    run(program())


def test_interceptors_see_every_record_of_tasks_that_wait(broker: Broker, run: Runner) -> None:
    """This includes the record of a task whose turn is over, which queues before its first attempt."""

    class Marking(Interceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return record._replace(value=b"seen" + record.value)

    async def program() -> None:
        settings = {"buffer_memory": 100_000, "batch_size": 10_000, "interceptor_classes": [Marking]}
        async with made_lingering(broker, **settings) as producer:
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
        async with made_lingering(broker, linger_ms=0, batch_size=1000) as producer:
            await producer.partitions_for(TOPIC)
            deliveries = await asyncio.gather(
                *(producer.send(TOPIC, b"%d" % number) for number in range(5000))
            )
            assert producer._slow_count > 10
            await producer.flush(SECONDS)
            assert [delivery.result(0).offset for delivery in deliveries] == list(range(5000))

    run(program())


def test_task_cancelled_while_giving_way_delays_no_other(broker: Broker, run: Runner) -> None:
    async def program() -> None:
        async with made_lingering(broker) as producer:
            giving_way = [asyncio.create_task(producer._give_way()) for _ in range(5)]
            await asyncio.sleep(0)
            assert producer._is_giving_way
            for task in giving_way[::2]:
                task.cancel()
            await producer.send(TOPIC, b"")
            assert all(task.done() for task in giving_way)
            assert [task.cancelled() for task in giving_way] == [True, False, True, False, True]
            await producer.flush(SECONDS)
            assert not producer._is_giving_way

    run(program())


def test_tasks_may_be_cancelled_at_any_step_of_a_turn(broker: Broker, run: Runner) -> None:
    """asyncio's handler of Ctrl-C cancels the main task wherever the loop's thread is, and if the producer
    then forgot whose turn is next, nothing would be sent any more.
    """

    async def program() -> None:
        async with made_lingering(broker) as producer:
            await producer.partitions_for(TOPIC)
            tasks: list[asyncio.Task[None]] = []
            interrupter = Interrupter("/kbatch/", lambda: [task.cancel() for task in tasks])
            while not interrupter.is_over:
                tasks[:] = [asyncio.create_task(producer._give_way()) for _ in range(3)]
                with interrupter.interrupting():
                    for _ in range(10):
                        await asyncio.sleep(0)
                assert all(task.done() for task in tasks)
                assert not producer._is_giving_way, interrupter.number
            assert interrupter.number > 20

    run(program())


# Calls that are cancelled at any step, each in turn


SOURCE, GROUP = TopicPartition("source", 0), "g"
SINGLE_STEPS = 20


# A task makes a call, the loop turns some times, and the task is cancelled: after none, one, two turns and so
# on, and then in ever longer strides, until the call has returned before. Records that were accepted are in
# the log once, others are not, and the producer continues after the same call again, or an abort.


def impatient(broker: Broker, **keys: Any) -> AsyncProducer:
    return made(broker, **({"retry_backoff_ms": 1, "reconnect_backoff_ms": 1} | keys))


def transactional(broker: Broker, **keys: Any) -> AsyncProducer:
    return impatient(broker, transactional_id=TRANSACTIONAL_ID, **keys)


async def is_cancelled(call: Coroutine[Any, Any, Any], turns: int) -> bool:
    """True if the call was cancelled, after this many turns of the loop; False if it had returned before."""
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
    """Let `attempt(number, cancelled)` try one step after another, until the call that it gives to
    `cancelled` returns before; return how often it was cancelled.
    """
    number = turns = 0

    async def cancelled(call: Coroutine[Any, Any, Any]) -> bool:
        return await is_cancelled(call, turns)

    while await attempt(number, cancelled):
        number += 1
        turns = number if number < SINGLE_STEPS else turns * 5 // 4
    return number


def repeated_at_any_step(broker: Broker, run: Runner, attempt: Callable[..., Awaitable[bool]]) -> int:
    """Run `attempt(producer, number, cancelled)` at any step, with one transactional producer."""

    async def program() -> int:
        async with transactional(broker) as producer:
            await producer.init_transactions()
            return await at_any_step(partial(attempt, producer))

    count: int = run(program())
    return count


def offset_of(broker: Broker) -> int | None:
    found = broker._call(
        lambda core: core.state.coordinators.of_group(GROUP).live.offsets.fetch(GROUP, [SOURCE])
    )
    offset = next(iter(found.values()))
    return None if offset is None or offset.offset < 0 else int(offset.offset)


def test_cancelled_send_many_keeps_the_records_it_accepted(broker: Broker, run: Runner) -> None:
    accepted: list[bytes] = []

    async def program() -> None:
        async with impatient(broker, **SMALL) as producer:
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
        async with impatient(broker, **SMALL) as producer:
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
        async with impatient(broker, **SMALL) as producer:
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


@EITHER_VERSION
def test_a_cancelled_init_is_made_again(broker: Broker, run: Runner) -> None:
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


@EITHER_VERSION
def test_a_cancelled_begin_is_made_again(broker: Broker, run: Runner) -> None:
    async def attempt(producer: AsyncProducer, number: int, cancelled: Any) -> bool:
        was_cancelled: bool = await cancelled(producer.begin_transaction())
        if was_cancelled:
            await producer.begin_transaction()
        await producer.send(TOPIC, b"%d" % number)
        await producer.commit_transaction()
        return was_cancelled

    count = repeated_at_any_step(broker, run, attempt)
    assert values(broker) == [b"%d" % number for number in range(count + 1)]


@EITHER_VERSION
@pytest.mark.parametrize("end", ["again", "abort", "commit"])
def test_cancelled_offsets_are_part_of_the_transaction_or_not(broker: Broker, run: Runner, end: str) -> None:
    committed: int | None = None

    async def attempt(producer: AsyncProducer, number: int, cancelled: Any) -> bool:
        nonlocal committed
        offsets = {SOURCE: OffsetAndMetadata(number + 1)}
        await producer.begin_transaction()
        was_cancelled: bool = await cancelled(producer.send_offsets_to_transaction(offsets, GROUP))
        if end == "again":
            await producer.send_offsets_to_transaction(offsets, GROUP)
        may_be: set[int | None]
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

    repeated_at_any_step(broker, run, attempt)


@EITHER_VERSION
def test_a_cancelled_body_of_a_transaction_is_aborted(broker: Broker, run: Runner) -> None:
    sent: list[bytes] = []

    async def body(producer: AsyncProducer, number: int, at_the_end: asyncio.Event) -> None:
        async with producer.transaction():
            for index in range(3):
                await producer.send(TOPIC, b"cancelled %d %d" % (number, index))
                sent.append(b"")
                await producer.flush()
            await producer.send_offsets_to_transaction({SOURCE: OffsetAndMetadata(1)}, GROUP)
            await producer.send(TOPIC, b"cancelled %d" % number)
            at_the_end.set()
            await asyncio.Event().wait()

    async def attempt(producer: AsyncProducer, number: int, cancelled: Any) -> bool:
        at_the_end = asyncio.Event()
        assert await cancelled(body(producer, number, at_the_end))
        async with producer.transaction():
            await producer.send(TOPIC, b"%d" % number)
        return not at_the_end.is_set()

    count = repeated_at_any_step(broker, run, attempt)
    assert values(broker) == [b"%d" % number for number in range(count + 1)]
    assert offset_of(broker) is None
    assert sent


@EITHER_VERSION
def test_a_body_that_is_cancelled_again_while_it_aborts(broker: Broker, run: Runner) -> None:
    async def attempt(producer: AsyncProducer, number: int, cancelled: Any) -> bool:
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

    count = repeated_at_any_step(broker, run, attempt)
    assert values(broker) == [b"%d" % number for number in range(count + 1)]


async def over(task: asyncio.Task[None]) -> None:
    """Wait for the task without cancelling it."""
    await asyncio.wait([task])


@EITHER_VERSION
def test_a_cancelled_abort_is_made_again(broker: Broker, run: Runner) -> None:
    async def attempt(producer: AsyncProducer, number: int, cancelled: Any) -> bool:
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

    count = repeated_at_any_step(broker, run, attempt)
    assert values(broker) == [b"%d" % number for number in range(count + 1)]
