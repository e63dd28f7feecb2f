"""Polls that are one native step, and what makes them look at everything again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import kbatch
from kbatch.errors import AuthorizationError, ConcurrentUseError, ConsumerClosedError, KafkaError
from kbatch.interceptors import ConsumerInterceptor
from kbatch.testing import Broker
from tests.support.patience import until
from tests.support.polling import FIRST, PARTITIONS, TOPIC, consuming, fill, offsets, polled
from tests.support.producing import SECONDS, within
from tests.support.shells import new_consumer, new_producer

TOPICS = {TOPIC: 3}
COUNT = 40
pytestmark = pytest.mark.threads


def is_quick(consumer: Any) -> bool:
    """Poll once without waiting. True if that was a quick poll; it must find nothing."""
    polled = consumer._quick.poll(0, None)
    if polled is None:
        polled = consumer.poll(0)
        assert not polled
        return False
    assert not polled
    return True


def until_quick(consumer: Any) -> None:
    until(lambda: is_quick(consumer))


def waiting(consumer: Any, poll: Callable[[], Any] | None = None) -> Any:
    """Return the future of a poll on another thread, which waits now; a quick one, unless there is a change
    just then.
    """
    until_quick(consumer)
    future = within(consumer.poll if poll is None else poll)
    until(lambda: not consumer._user.is_free and bool(consumer._runtime.changed.waiting))
    return future


def iterated(consumer: Any) -> Callable[[], Any]:
    return lambda: [next(iter(consumer))]


WAYS: list[Callable[[Any], Callable[[], Any]]] = [lambda consumer: consumer.poll, iterated]
either = pytest.mark.parametrize("way", WAYS, ids=["poll", "iteration"])


# What it returns


@either
def test_quick_poll_returns_what_arrives(broker: Broker, way: Any) -> None:
    with consuming(broker) as consumer:
        future = waiting(consumer, way(consumer))
        fill(broker, 1, partitions=[1])
        (record,) = future.result(SECONDS)
        assert (record.partition, record.offset, record.value) == (1, 0, b"0")
        assert consumer.position(PARTITIONS[1]) == 1
        if way is iterated:
            assert consumer._backlog._before  # it is in hand until the next poll
        assert not consumer.poll(0)


def test_quick_polls_return_each_record_once(broker: Broker) -> None:
    """And so do those between them that are not."""
    fill(broker, COUNT)
    with consuming(broker) as consumer:
        found: list[Any] = []
        for number in range(3 * COUNT):
            if number % 3 == 0:
                consumer._backlog.note_change()
            found += polled(consumer, 1, max_records=1)
        assert offsets(found) == {each: list(range(COUNT)) for each in range(3)}
        assert not consumer.poll(0)


def test_quick_poll_says_what_it_moved(broker: Broker) -> None:
    with consuming(broker) as consumer:
        future = waiting(consumer)
        fill(broker, 2, partitions=[0], linger_ms=1000)
        found = future.result(SECONDS)
        assert [each.offset for each in found] == [0, 1]
        assert {each: at.offset for each, at in found.offsets.items()} == {FIRST: 2}
        assert found.partitions() == [FIRST]


def test_quick_poll_refuses_what_polls_refuse(broker: Broker) -> None:
    with consuming(broker) as consumer:
        until_quick(consumer)
        for arguments in ((-1,), ("1",), (float("nan"),)):
            with pytest.raises((TypeError, ValueError)):
                consumer.poll(*arguments)
        for most in (0, -1, "1", 2**63, True):
            with pytest.raises((TypeError, ValueError)):
                consumer.poll(0, max_records=most)
        with pytest.raises(TypeError, match=r"poll\(\) got an unexpected keyword argument 'seconds'"):
            consumer.poll(seconds=1)
        consumer.unsubscribe()
        with pytest.raises(kbatch.errors.IllegalStateError, match="assign"):
            consumer.poll(0)


def test_quick_poll_raises_the_error_that_comes_next(broker: Broker) -> None:
    with consuming(broker, FIRST) as consumer:
        future = waiting(consumer)
        broker.fail_next("Fetch", error=kbatch.errors.ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        with pytest.raises(AuthorizationError):
            future.result(SECONDS)
        fill(broker, 1, partitions=[0])
        assert len(polled(consumer, 1)) == 1


# What it leaves to others


@either
def test_close_ends_a_quick_poll_that_waits(broker: Broker, way: Any) -> None:
    with consuming(broker) as consumer:
        future = waiting(consumer, way(consumer))
        consumer.close()
        with pytest.raises(ConsumerClosedError, match="the consumer is closed; create another"):
            future.result(SECONDS)


def test_closed_consumer_gives_no_record_that_is_there(broker: Broker) -> None:
    fill(broker, COUNT)
    with consuming(broker) as consumer:
        polled(consumer, 1, max_records=1)
        polled(consumer, 1, max_records=1)
        iterator = iter(consumer)
        next(iterator)
        next(iterator)
        consumer.close()
        with pytest.raises(ConsumerClosedError):
            consumer.poll(0)
        with pytest.raises(ConsumerClosedError):
            next(iterator)


def test_second_thread_is_refused_while_a_quick_poll_waits(broker: Broker) -> None:
    with consuming(broker) as consumer:
        future = waiting(consumer)
        for use in (lambda: consumer.poll(0), lambda: next(iter(consumer)), consumer.pause):
            with pytest.raises(ConcurrentUseError, match=threading.current_thread().name):
                use()
        fill(broker, 1, partitions=[0])
        assert len(future.result(SECONDS)) == 1


def test_network_that_ends_ends_a_quick_poll(broker: Broker) -> None:
    with consuming(broker) as consumer:
        future = waiting(consumer)
        consumer._engine.submit(lambda now_ns: 1 / 0)
        consumer._runtime.network.wake()
        with pytest.raises(KafkaError):
            future.result(SECONDS)


def test_rebalance_runs_in_a_quick_poll_that_waits(broker: Broker) -> None:
    keys: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap_servers,
        "group_id": "g",
        "heartbeat_interval_ms": 20,
        "group_protocol": "classic",
    }
    with new_consumer(**keys) as first, new_consumer(**keys) as second:
        revoked: list[str] = []
        first.subscribe([TOPIC], on_revoked=lambda _: revoked.append(threading.current_thread().name))
        until(lambda: len(first.assignment()) == 3 or bool(first.poll(0)))
        future = waiting(first)
        second.subscribe([TOPIC])
        until(lambda: bool(revoked) or bool(second.poll(0)))
        assert revoked == [revoked[0]] and revoked[0] != threading.main_thread().name
        until(lambda: bool(second.assignment()) or bool(second.poll(0)))
        fill(broker, 1)
        assert future.result(SECONDS)


def test_commit_callback_runs_in_a_quick_poll_that_waits(broker: Broker) -> None:
    with consuming(broker, group_id="g") as consumer:
        until_quick(consumer)
        committed = threading.Event()
        broker.delay("OffsetCommit", 0.1)
        consumer.commit_async({FIRST: 0}, lambda offsets, error: committed.set())
        future = within(consumer.poll)
        assert committed.wait(SECONDS)
        fill(broker, 1, partitions=[0])
        assert len(future.result(SECONDS)) == 1


def test_until_end_after_quick_polls_ends_and_polls_go_on(broker: Broker) -> None:
    with consuming(broker) as consumer:
        until_quick(consumer)
        fill(broker, 2)
        assert offsets(consumer.until_end()) == {each: [0, 1] for each in range(3)}
        fill(broker, 1, start=2)
        assert offsets(polled(consumer, 3)) == {each: [2] for each in range(3)}


def test_interceptors_see_all_polls(broker: Broker) -> None:
    class Counting(ConsumerInterceptor):
        count = 0

        def on_consume(self, records: Any) -> None:
            Counting.count += len(records)

    fill(broker, COUNT)
    with consuming(broker, interceptor_classes=[Counting]) as consumer:
        for _ in range(3 * COUNT):
            polled(consumer, 1, max_records=1)
        assert consumer._quick.poll(0, None) is None
    assert Counting.count == 3 * COUNT


def test_times_of_quick_polls_are_recorded(broker: Broker) -> None:
    with consuming(broker) as consumer:
        until_quick(consumer)

        def value(name: str) -> float:
            return next(float(value) for metric, value in consumer.metrics().items() if metric.name == name)

        fill(broker, 1, partitions=[0])
        polled(consumer, 1, timeout=SECONDS)
        assert value("poll-idle-ratio-avg") >= 0
        assert value("last-poll-seconds-ago") >= 0
        assert value("time-between-poll-max") > 0


# What an earlier poll leaves


class Seconds(float):
    """A number of another type, which quick polls leave to the coroutine."""


def test_waits_of_earlier_polls_do_not_count(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    with consuming(broker) as consumer:
        future = waiting(consumer, lambda: consumer.poll(SECONDS))
        consumer._runtime.note_change()  # leaves the poll to the coroutine after a wait
        fill(broker, 1, partitions=[1])
        assert len(future.result(SECONDS)) == 1
        left: list[float] = []
        monkeypatch.setattr(type(consumer), "_polling", lambda self, **_: left.append(1.0))
        assert consumer._quick.poll(Seconds(1), None) is None
        assert consumer._quick.left_of(Seconds(1)) == 1
        with pytest.raises(ValueError, match="timeout"):
            consumer.poll(-1)


def test_no_poll_is_quick_after_an_interrupted_close(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    with consuming(broker) as consumer:
        until_quick(consumer)

        def interrupt(*_: Any) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(type(consumer._runtime), "note_change", interrupt)
            with pytest.raises(KeyboardInterrupt):
                consumer.close()
        consumer.close()
        with pytest.raises(ConsumerClosedError):
            consumer.poll(SECONDS)


def test_paused_partitions_do_not_keep_the_memory_from_others(broker: Broker) -> None:
    """What they have is thrown away, and fetched again when they go on."""
    memory = 1 << 20
    with new_producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for partition in (0, 1):
            for size in (700_000, 10):
                producer.send(TOPIC, bytes(size), partition=partition).result(SECONDS)
    with consuming(broker, kbatch_fetch_buffer_memory=memory) as consumer:
        until(lambda: consumer._engine._budget.unread > memory // 2)
        consumer.pause([PARTITIONS[0]])
        for partition in (1, 0):
            consumer.resume([PARTITIONS[partition]])
            for offset in (0, 1):
                (record,) = consumer.poll(SECONDS, max_records=1)
                assert (record.partition, record.offset) == (partition, offset)
