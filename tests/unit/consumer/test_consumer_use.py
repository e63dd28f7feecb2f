"""How consumers are used and end: threads and tasks, cancellation, interceptors, metrics, close."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import gc
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest

import kbatch
from kbatch._native.io.sole_user import SoleUser
from kbatch.errors import (
    ConcurrentUseError,
    ConfigError,
    ConsumerClosedError,
    IllegalStateError,
)
from kbatch.interceptors import ConsumerInterceptor
from kbatch.testing import Broker
from tests.support.patience import repeat_until, until
from tests.support.polling import FIRST, PARTITIONS, SECOND, TOPIC, consuming, fill, offsets, polled
from tests.support.producing import SECONDS, within
from tests.support.shells import Runner
from tests.unit.consumer.conftest import own_threads

TOPICS = {TOPIC: 3}
COUNT = 40


def is_polling(consumer: Any) -> bool:
    return not consumer._user.is_free and bool(consumer._runtime.changed.waiting)


# 72: its end


def test_R72_close_ends_a_poll_that_waits(broker: Broker, shell: str) -> None:
    with consuming(broker) as consumer:
        for wait in (lambda: consumer.poll(), lambda: next(iter(consumer))):
            if not consumer.is_open:
                break
            waiting = within(wait)
            until(lambda: is_polling(consumer))
            consumer.close()
            with pytest.raises(ConsumerClosedError, match="the consumer is closed; create another"):
                waiting.result(SECONDS)
        consumer.close()
        assert "closed" in repr(consumer)
        calls: tuple[Callable[[], object], ...] = (
            lambda: consumer.poll(0),
            lambda: consumer.assign(PARTITIONS),
            lambda: consumer.seek(FIRST, 3),
        )
        for call in calls:
            with pytest.raises(ConsumerClosedError):
                call()
        assert consumer.metrics()


@pytest.mark.threads
def test_R72_a_dropped_consumer_warns_and_ends(broker: Broker) -> None:
    fill(broker, 3)
    consumer = kbatch.Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest")
    consumer.assign(PARTITIONS)
    assert consumer.poll() and consumer.poll_table(0).num_rows >= 0
    with pytest.warns(ResourceWarning, match=r"was dropped without close\(\)"):
        del consumer
        repeat_until(gc.collect, lambda: not own_threads())


@pytest.mark.threads
def test_a_consumer_cannot_be_copied(broker: Broker) -> None:
    with consuming(broker) as consumer:
        for copied in (copy.copy, pickle.dumps):
            with pytest.raises(TypeError, match="cannot be copied or pickled"):
                copied(consumer)


def test_R72_a_consumer_that_its_loop_leaves_warns_and_ends(broker: Broker, run: Runner) -> None:
    async def program() -> None:
        consumer = kbatch.AsyncConsumer(bootstrap_servers=broker.bootstrap_servers)
        consumer.assign(PARTITIONS)
        await consumer.poll(0)
        kept.append(consumer)

    kept: list[Any] = []
    with pytest.warns(ResourceWarning, match="is still open at the end of its loop"):
        run(program())
    assert not kept[0].is_open


def test_an_async_consumer_belongs_to_a_loop(broker: Broker, run: Runner) -> None:
    consumer = kbatch.AsyncConsumer(bootstrap_servers=broker.bootstrap_servers)
    with pytest.raises(IllegalStateError, match="must be used on a running event loop"):
        consumer.assign(PARTITIONS)

    async def program() -> None:
        async with consumer:
            consumer.assign(PARTITIONS)

    run(program())
    run(closed_twice(consumer))


async def closed_twice(consumer: kbatch.AsyncConsumer) -> None:
    await consumer.close()
    await consumer.close()


# 73: one user at a time


@pytest.mark.threads
def test_R73_a_second_thread_is_refused_by_name(broker: Broker) -> None:
    with consuming(broker) as consumer:
        waiting = within(consumer.poll)
        until(lambda: is_polling(consumer))
        me = threading.current_thread().name
        uses: list[Callable[[], object]]
        uses = [lambda: consumer.poll(0), lambda: consumer.pause(), lambda: next(iter(consumer))]
        for use in uses:
            with pytest.raises(ConcurrentUseError, match=rf"Thread-\d+ .* is using the consumer, so {me}"):
                use()
        assert consumer.lag(FIRST) in (0, None) and consumer.metrics() and consumer.assignment()
        fill(broker, 1, partitions=[0])
        assert len(waiting.result(SECONDS)) == 1
        assert not consumer.poll(0)  # its turn


def test_R73_a_second_task_is_refused_by_name(broker: Broker, run: Runner) -> None:
    async def program() -> None:
        async with kbatch.AsyncConsumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
            consumer.assign(PARTITIONS)
            first = asyncio.create_task(consumer.poll(), name="the first")
            while not is_polling(consumer):
                await asyncio.sleep(0)
            with pytest.raises(ConcurrentUseError, match="the first is using the consumer, so the second"):
                await asyncio.create_task(consumer.poll(0), name="the second")
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            assert not await consumer.poll(0)

    run(program())


def use(user: SoleUser) -> None:
    with user:
        pass


def called_back(user: SoleUser) -> None:
    with user:
        user.call_back(lambda: None)
    with pytest.raises(IllegalStateError, match=r"poll\(\) must not be called in a callback"):
        user.refuse_callbacks("poll")


def test_callbacks_may_use_what_their_poll_uses() -> None:
    user = SoleUser(threading.current_thread, lambda thread: thread.name)
    with user:
        user.call_back(called_back, user)
        with pytest.raises(ConcurrentUseError):
            within(user.__enter__).result(SECONDS)
    within(lambda: use(user)).result(SECONDS)


def test_a_user_that_was_interrupted_while_leaving_comes_again() -> None:
    user = SoleUser(threading.current_thread, lambda thread: thread.name)
    user.__enter__()  # and the exit never ran
    with user:
        pass
    within(lambda: use(user)).result(SECONDS)


# 95: cancellation


@pytest.mark.parametrize("kind", ["poll", "poll_table", "async for"])
def test_R95_a_cancelled_poll_loses_nothing(broker: Broker, run: Runner, kind: str) -> None:
    async def taken(consumer: kbatch.AsyncConsumer) -> list[tuple[int, int]]:
        if kind == "poll":
            return [(each.partition, each.offset) for each in await consumer.poll(max_records=7)]
        if kind == "poll_table":
            table = await consumer.poll_table(
                columns=["partition", "offset"], max_rows=9, min_rows=9, linger=0.001
            )
            return list(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))
        async for each in consumer:
            return [(each.partition, each.offset)]
        raise AssertionError

    async def program() -> None:
        keys: dict[str, Any] = {"auto_offset_reset": "earliest", "max_partition_fetch_bytes": 300}
        async with kbatch.AsyncConsumer(bootstrap_servers=broker.bootstrap_servers, **keys) as consumer:
            consumer.assign(PARTITIONS)
            found: list[tuple[int, int]] = []
            for turns in range(10_000):
                task = asyncio.create_task(taken(consumer))
                for _ in range(turns % 7):
                    await asyncio.sleep(0)
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    found += await task
                if len(found) >= 3 * COUNT - 9:
                    break
                await asyncio.sleep(0.0001)
            for partition in range(3):
                own = [offset for each, offset in found if each == partition]
                assert own == list(range(len(own)))

    fill(broker, batch_size=200)
    run(program())


@pytest.mark.threads
@pytest.mark.parametrize("kind", ["poll", "poll_table"])
def test_R72_an_interrupt_at_the_end_of_a_poll_loses_nothing(broker: Broker, kind: str) -> None:
    class Interrupting(ConsumerInterceptor):
        def on_consume(self, polled: Any) -> None:
            if is_to_come.pop():
                raise KeyboardInterrupt

        def on_consume_table(self, table: Any) -> None:
            self.on_consume(table)

    def taken() -> list[int]:
        if kind == "poll":
            return [each.offset for each in consumer.poll(max_records=5)]
        return consumer.poll_table(max_rows=5, columns=["offset"])["offset"].to_pylist()  # type: ignore[no-any-return]

    fill(broker, partitions=[0])
    is_to_come = [False, False, True, False]
    with consuming(broker, FIRST, interceptor_classes=[Interrupting]) as consumer:
        found = taken()
        with pytest.raises(KeyboardInterrupt):
            taken()
        found += taken() + taken()
    assert found == list(range(len(found)))


# 93: interceptors


class Seen(ConsumerInterceptor):
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_consume(self, polled: Any) -> None:
        self.seen.append(("records", len(polled), dict(polled.offsets)))

    def on_consume_table(self, table: Any) -> None:
        self.seen.append(("table", table.num_rows))

    def close(self) -> None:
        self.seen.append("closed")


class Failing(Seen):
    def on_consume(self, polled: Any) -> None:
        raise ValueError("no")


class RecordsOnly(ConsumerInterceptor):
    def on_consume(self, polled: Any) -> None:
        pass


def test_R93_interceptors_see_what_is_polled_in_order(
    broker: Broker, shell: str, caplog: pytest.LogCaptureFixture
) -> None:
    fill(broker, 4, partitions=[0])
    seen, failing = Seen(), Failing()
    with consuming(broker, FIRST, interceptor_classes=[failing, seen, RecordsOnly]) as consumer:
        assert [each.value for each in consumer.poll(max_records=1)] == [b"0"]
        assert next(iter(consumer)).value == b"1"
        with pytest.raises(IllegalStateError, match="RecordsOnly sees no tables; define its"):
            consumer.poll_table(0)
    assert [each[:2] for each in seen.seen] == [("records", 1), ("records", 3), "cl"]
    assert seen.seen[0][2][FIRST].offset == 1
    assert "Failing.on_consume failed and is skipped" in caplog.text


def test_R93_interceptors_see_tables(broker: Broker, shell: str) -> None:
    fill(broker, 4, partitions=[0])
    seen = Seen()
    with consuming(broker, FIRST, interceptor_classes=[seen]) as consumer:
        consumer.poll_table(min_rows=4)
        with pytest.raises(ConfigError, match=r"interceptors\.ConsumerInterceptor"):
            kbatch.Consumer(interceptor_classes=[object], bootstrap_servers="localhost:1")
    assert seen.seen == [("table", 4), "closed"]


# 94: metrics


def test_R94_polls_are_measured(broker: Broker, shell: str) -> None:
    def value(name: str) -> float:
        (found,) = (each for key, each in consumer.metrics().items() if key.name == name)
        return float(found)

    fill(broker)
    with consuming(broker) as consumer:
        assert value("last-poll-seconds-ago") == -1
        polled(consumer, 3 * COUNT, max_records=COUNT)
        assert 0 <= value("last-poll-seconds-ago") < SECONDS
        assert value("time-between-poll-max") >= value("time-between-poll-avg") >= 0
        assert 0 <= value("poll-idle-ratio-avg") <= 1
        consumer.poll(0)
        until(lambda: totals(consumer) == 3 * COUNT)


def test_R94_lag_and_lead_are_those_of_the_moment(broker: Broker, shell: str) -> None:
    def values() -> dict[str, float]:
        tags = {"topic": TOPIC, "partition": "0"}.items()
        return {key.name: each for key, each in consumer.metrics().items() if tags <= set(key.tags)}

    fill(broker)
    with consuming(broker) as consumer:
        until(lambda: values().get("records-lag") == COUNT)
        assert values()["records-lead"] == 0
        count = 0
        for record in consumer:
            count += record.partition == 0
            assert (values()["records-lag"], values()["records-lead"]) == (COUNT - count, count)
            if count == 10:
                break
        polled(consumer, 3 * COUNT - sum(map(consumer.position, PARTITIONS)))
        assert (values()["records-lag"], values()["records-lead"]) == (0, COUNT)
        assert (values()["records-lag-max"], values()["records-lead-min"]) == (COUNT, 0)
        fill(broker, start=COUNT)
        until(lambda: values()["records-lag"] == COUNT)
        consumer.seek(FIRST, 3)
        assert (values()["records-lag"], values()["records-lead"]) == (2 * COUNT - 3, 3)
        consumer.assign([SECOND])
        until(lambda: not values())


def totals(consumer: Any) -> float:
    (found,) = (
        each
        for key, each in consumer.metrics().items()
        if key.name == "records-consumed-total" and len(key.tags) == 1
    )
    return float(found)


def test_R31_memory_goes_back_when_records_are_taken_or_dropped(broker: Broker, shell: str) -> None:
    fill(broker, 2000, partitions=[0, 1])
    with consuming(broker) as consumer:
        consumer.poll(max_records=5)
        consumer.seek_to_end()
        until(lambda: consumer._runtime.engine._budget.used == 0 or not consumer.poll(0))
        consumer.seek_to_beginning()
        assert offsets(polled(consumer, 4000))[0] == list(range(2000))
        consumer.assign([])
        until(lambda: consumer._runtime.engine._budget.used == 0)


def test_moving_brokers_lose_nothing(broker: Broker, shell: str) -> None:
    fill(broker, 100, batch_size=100)
    keys: dict[str, Any] = {
        "max_partition_fetch_bytes": 500,
        "reconnect_backoff_ms": 1,
        "retry_backoff_ms": 1,
    }
    with consuming(broker, **keys) as consumer:
        found: list[Any] = []
        while len(found) < 300:
            found += consumer.poll(max_records=20)
            broker.drop_connection("Fetch", when="after")
        assert offsets(found) == {each: list(range(100)) for each in range(3)}
