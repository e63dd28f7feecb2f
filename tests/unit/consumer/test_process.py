"""`process()` of consumers in threads and on event loops, against the embedded broker."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest

import kbatch
from kbatch import DeadLetter, OffsetAndMetadata, RecordFailed, Retry, RetryTopics, TopicPartition
from kbatch.errors import (
    ConcurrentUseError,
    GroupAuthorizationError,
    IllegalStateError,
    InvalidGroupIdError,
    ProcessError,
    UnknownTopicOrPartitionError,
    WorkerDiedError,
)
from kbatch.testing import Broker
from kbatch.testing.broker.groups.offset_store import OffsetStore
from tests.support import processed
from tests.support.patience import HANG_MS, HANG_SECONDS, until
from tests.support.polling import TOPIC
from tests.support.shells import new_consumer, new_producer, the_loop

GROUP = "billing"
AT_ONCE = Retry(attempts=3, backoff=0.0)
PROTOCOLS = ("consumer", "classic")
either = pytest.mark.parametrize("protocol", PROTOCOLS)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(
        {TOPIC: 2, f"{TOPIC}.dlq": 1, f"{TOPIC}.retry.1": 1, f"{TOPIC}.retry.2": 1},
        auto_create_topics=False,
        group_initial_rebalance_delay_ms=0,
        group_consumer_heartbeat_interval_ms=100,
    ) as running:
        yield running


def fill(broker: Broker, count: int, keys: int = 5, partition: int = 0) -> None:
    with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(count):
            producer.send(TOPIC, b"%d" % number, b"k%d" % (number % keys), partition=partition)


@contextlib.contextmanager
def member(broker: Broker, protocol: str = "consumer", **keys: Any) -> Iterator[Any]:
    own: dict[str, Any] = {} if protocol == "consumer" else {"heartbeat_interval_ms": 50}
    keys = {
        "bootstrap_servers": broker.bootstrap_servers,
        "group_id": GROUP,
        "group_protocol": protocol,
        "auto_offset_reset": "earliest",
        "default_api_timeout_ms": HANG_MS,
        "fetch_max_wait_ms": 10,
        "retry_backoff_ms": 5,
        **own,
        **keys,
    }
    with new_consumer(**keys) as consumer:
        yield consumer


class Gate:
    """What records wait for, in threads and in tasks."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.open = self._event.set
        self.is_reached = False

    def wait(self) -> None:
        self.is_reached = True
        assert self._event.wait(HANG_SECONDS)

    async def awaited(self) -> None:
        self.is_reached = True
        while not self._event.is_set():
            await asyncio.sleep(0.001)


def function_of(
    do: Callable[[Any], object], gates: dict[tuple[int, int], Gate] | None = None
) -> Callable[[Any], Any]:
    """Return a function for `process()`, which waits at the gates of some records first."""
    found = {} if gates is None else gates

    def call(record: Any) -> object:
        if (gate := found.get((record.partition, record.offset))) is not None:
            gate.wait()
        return do(record)

    async def called(record: Any) -> object:
        if (gate := found.get((record.partition, record.offset))) is not None:
            await gate.awaited()
        return do(record)

    return call if the_loop() is None else called


class Seen:
    """The records that were processed, in order."""

    def __init__(self) -> None:
        self.records: list[Any] = []

    def __call__(self, record: Any) -> None:
        self.records.append(record)

    @property
    def offsets(self) -> list[tuple[int, int]]:
        return sorted((each.partition, each.offset) for each in self.records)

    def has(self, count: int) -> Callable[[], bool]:
        return lambda: len(self.records) >= count


class Running:
    """A `process()` in a thread of its own."""

    def __init__(self, consumer: Any, function: Any, **options: Any) -> None:
        self.result: Any = None
        self.error: BaseException | None = None
        keys = {"commit_interval": 0.01, "retry": AT_ONCE, **options}
        self._thread = threading.Thread(target=self._run, args=(consumer, function, keys), daemon=True)
        self._thread.start()

    def _run(self, consumer: Any, function: Any, options: dict[str, Any]) -> None:
        try:
            self.result = consumer.process(function, **options)
        except BaseException as error:
            self.error = error

    def ended(self) -> Any:
        """Wait for its end, and return its result or its error."""
        self._thread.join(HANG_SECONDS)
        assert not self._thread.is_alive()
        return self.result if self.error is None else self.error


@contextlib.contextmanager
def processing(broker: Broker, function: Any, protocol: str = "consumer", **options: Any) -> Iterator[Any]:
    """Let a member process the topic, and close it."""
    with member(broker, protocol) as consumer:
        consumer.subscribe([TOPIC])
        running = Running(consumer, function, **options)
        yield consumer, running
        consumer.close()
        running.ended()


def committed(broker: Broker, partition: int = 0) -> OffsetAndMetadata | None:
    with kbatch.TopicReader(bootstrap_servers=broker.bootstrap_servers) as reader:
        found = reader.groups.offsets(GROUP).get(TopicPartition(TOPIC, partition))
    return None if found is None else found.committed


def is_committed(broker: Broker, offset: int, partition: int = 0) -> bool:
    found = committed(broker, partition)
    return found is not None and found.offset == offset


# What is processed, and what is committed


def test_POOL01_records_of_a_key_come_in_order_and_all_is_committed(broker: Broker, shell: str) -> None:
    fill(broker, 300, keys=7)
    seen = Seen()
    with processing(broker, function_of(seen)) as (_, running):
        until(seen.has(300))
    assert running.ended().finished == 300
    order = defaultdict(list)
    for record in seen.records:
        order[record.key].append(record.offset)
    assert all(each == sorted(each) for each in order.values())
    assert committed(broker) == OffsetAndMetadata(300, leader_epoch=0)


def test_POOL13_what_is_finished_out_of_order_is_not_repeated(broker: Broker, shell: str) -> None:
    fill(broker, 20, keys=20)
    seen, again, gate = Seen(), Seen(), Gate()
    with processing(broker, function_of(seen, {(0, 3): gate}), revoke_timeout=0.0) as (_, running):
        until(seen.has(19))
        until(lambda: is_committed(broker, 3))
    gate.open()
    found = committed(broker)
    assert found is not None and found.offset == 3 and found.metadata.startswith("kb1")
    with processing(broker, function_of(again)) as (_, running):
        until(lambda: is_committed(broker, 20))
    assert again.offsets == [(0, 3)] and running.ended().repeated == 16
    assert committed(broker) == OffsetAndMetadata(20, leader_epoch=0)


@pytest.mark.parametrize("metadata", ["another program's", "kb1r------!!"])
def test_POOL13_foreign_metadata_is_ignored(
    broker: Broker, shell: str, metadata: str, caplog: pytest.LogCaptureFixture
) -> None:
    fill(broker, 6)
    # else its close commits the position that it has, if that is known by then
    with member(broker, enable_auto_commit=False) as consumer:
        consumer.assign([TopicPartition(TOPIC, 0)])
        consumer.commit({TopicPartition(TOPIC, 0): OffsetAndMetadata(2, metadata)})
    seen = Seen()
    with processing(broker, function_of(seen)):
        until(seen.has(4))
    assert seen.offsets == [(0, 2), (0, 3), (0, 4), (0, 5)]
    assert "the metadata of the committed offset 2 of orders-0 is ignored" in caplog.text


def test_POOL26_a_topic_that_is_made_again_is_processed_from_its_beginning(
    broker: Broker, shell: str
) -> None:
    fill(broker, 6, keys=6)
    seen, gate = Seen(), Gate()
    with processing(broker, function_of(seen, {(0, 1): gate}), revoke_timeout=0.0):
        until(seen.has(5))
        until(lambda: is_committed(broker, 1))
    gate.open()
    broker.delete_topic(TOPIC)
    broker.create_topic(TOPIC, 2)
    fill(broker, 4)
    again = Seen()
    with processing(broker, function_of(again)):
        until(again.has(4))
    assert again.offsets == [(0, 0), (0, 1), (0, 2), (0, 3)]


def test_POOL27_after_a_reset_nothing_counts_as_finished(broker: Broker, shell: str) -> None:
    fill(broker, 6, keys=6)
    seen, gate = Seen(), Gate()
    with processing(broker, function_of(seen, {(0, 3): gate}), revoke_timeout=0.0):
        until(seen.has(5))
        until(lambda: is_committed(broker, 3))
    gate.open()
    with kbatch.TopicReader(bootstrap_servers=broker.bootstrap_servers) as reader:
        until(lambda: reader.groups.describe(GROUP).state == "Empty")
        reader.groups.commit_offsets(GROUP, {TopicPartition(TOPIC, 0): OffsetAndMetadata(2)})
    again = Seen()
    with processing(broker, function_of(again)):
        until(again.has(4))
    assert again.offsets == [(0, 2), (0, 3), (0, 4), (0, 5)]


def test_enable_auto_commit_has_no_part_in_it(broker: Broker, shell: str) -> None:
    fill(broker, 4, keys=1)
    gate = Gate()
    with member(broker, auto_commit_interval_ms=1) as consumer:
        consumer.subscribe([TOPIC])
        seen = Seen()
        running = Running(consumer, function_of(seen, {(0, 1): gate}), revoke_timeout=0.0)
        until(lambda: is_committed(broker, 1))
        consumer.close()
    gate.open()
    running.ended()
    assert is_committed(broker, 1)


# Failures


def test_POOL06_a_record_is_tried_again(broker: Broker, shell: str) -> None:
    fill(broker, 3, keys=1)
    attempts: Counter[int] = Counter()

    def fails_twice(record: Any) -> None:
        attempts[record.offset] += 1
        if attempts[record.offset] < 3:
            raise OSError("away")

    with processing(broker, function_of(fails_twice)) as (_, running):
        until(lambda: is_committed(broker, 3))
    report = running.ended()
    assert (report.finished, report.failed, report.retried) == (3, 6, 6)


def test_POOL08_stop_raises_and_commits_the_others(broker: Broker, shell: str) -> None:
    fill(broker, 4, keys=4)
    seen = Seen()

    def bad(record: Any) -> None:
        if record.offset == 1:
            until(seen.has(3))
            raise ValueError("boom")
        seen(record)

    with member(broker) as consumer:
        consumer.subscribe([TOPIC])
        with pytest.raises(ProcessError, match="orders-0 offset 1, key b'k1' failed 3 times") as raised:
            consumer.process(bad if the_loop() is None else function_of(seen_first(bad, seen)), retry=AT_ONCE)
        assert raised.value.record.offset == 1 and isinstance(raised.value.__cause__, ValueError)
        assert is_committed(broker, 1)
        again = Seen()
        running = Running(consumer, function_of(again))
        until(lambda: is_committed(broker, 4))
        consumer.close()
        assert running.ended().repeated == 2
    assert again.offsets == [(0, 1)]
    assert committed(broker) == OffsetAndMetadata(4, leader_epoch=0)


def seen_first(bad: Callable[[Any], None], seen: Seen) -> Callable[[Any], None]:
    """Return a function that fails while tasks cannot wait: as long as the others are not done."""

    def call(record: Any) -> None:
        if record.offset == 1 and not seen.has(3)():
            raise kbatch.RetryAfter(0)
        bad(record)

    return call


def test_POOL08_a_callable_deals_with_the_record(broker: Broker, shell: str) -> None:
    fill(broker, 4, keys=1)
    dealt: list[tuple[int, str]] = []

    def bad(record: Any) -> None:
        if record.offset % 2:
            raise ValueError("boom")

    def deal(record: Any, error: Exception) -> None:
        dealt.append((record.offset, str(error)))

    async def deal_with(record: Any, error: Exception) -> None:
        deal(record, error)

    on_failure = deal if the_loop() is None else deal_with
    with processing(broker, function_of(bad), on_failure=on_failure) as (_, running):
        until(lambda: is_committed(broker, 4))
    assert dealt == [(1, "boom"), (3, "boom")] and running.ended().handled == 2


def test_POOL09_dead_letters_are_acknowledged_before_the_record_is_finished(
    broker: Broker, shell: str
) -> None:
    fill(broker, 3, keys=1)

    def bad(record: Any) -> None:
        if record.offset == 1:
            raise ValueError("boom")

    broker.fail_next("Produce", error="INVALID_RECORD", times=2)
    with new_producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        dead = DeadLetter(getattr(producer, "_producer", producer))
        with processing(broker, function_of(bad), on_failure=dead) as (_, running):
            until(lambda: is_committed(broker, 3))
    assert running.ended().handled == 1
    (dead_letter,) = broker.records(f"{TOPIC}.dlq")
    assert (dead_letter.key, dead_letter.value) == (b"k0", b"1")
    headers = dict(dead_letter.headers)
    assert headers == {
        "__dlq.topic": b"orders",
        "__dlq.partition": b"0",
        "__dlq.offset": b"1",
        "__dlq.error": b"ValueError",
        "__dlq.reason": b"boom",
    }


@pytest.mark.slow
@pytest.mark.parametrize("order", ["key", "partition"])
def test_POOL11_a_failing_key_does_not_keep_others_from_memory(
    broker: Broker, shell: str, order: str
) -> None:
    fill(broker, 600, keys=1)
    fill(broker, 100, keys=1, partition=0 if order == "key" else 1)
    with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(200):
            producer.send(TOPIC, b"%d" % number, b"other", partition=0 if order == "key" else 1)
    seen, is_away = Seen(), threading.Event()
    is_away.set()

    def call(record: Any) -> None:
        if record.partition == 0 and record.key == b"k0" and is_away.is_set():
            raise OSError("away")
        seen(record)

    options: Any = {
        "order": order,
        "max_in_flight": 150,
        "retry": Retry(attempts=None, backoff=0.01, most=0.01),
    }
    with processing(broker, function_of(call), **options) as (consumer, _):
        until(seen.has(200))
        until(lambda: _metric(consumer, "records-parked") > 0)
        is_away.clear()
        until(seen.has(900))
        until(lambda: is_committed(broker, 900 if order == "key" else 600))
        assert _metric(consumer, "records-parked") == 0
    of_key = [each.offset for each in seen.records if (each.partition, each.key) == (0, b"k0")]
    assert of_key == sorted(of_key) and len(of_key) == len(set(of_key))


# Retry topics


@contextlib.contextmanager
def retry_topics(broker: Broker, *delays: float, **options: Any) -> Iterator[RetryTopics]:
    with new_producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        yield RetryTopics(getattr(producer, "_producer", producer), delays, **options)


def fails_for(value: bytes, seen: Seen) -> Callable[[Any], None]:
    """Return a function that fails for records of a value."""

    def call(record: Any) -> None:
        seen(record)
        if record.value == value:
            raise ValueError(f"boom in {record.topic}")

    return call


@either
def test_POOL10_a_record_is_tried_again_after_each_delay(broker: Broker, shell: str, protocol: str) -> None:
    fill(broker, 3, keys=1)
    seen, times = Seen(), []

    def call(record: Any) -> None:
        times.append((record.topic, time.time() - record.timestamp_ms / 1000))
        fails_for(b"1", seen)(record)

    with (
        retry_topics(broker, 0.05, 0.2) as retries,
        processing(broker, function_of(call), protocol, on_failure=retries, retry=Retry(attempts=1)) as (
            consumer,
            running,
        ),
    ):
        until(lambda: broker.records(f"{TOPIC}.dlq"))
        until(lambda: group_offset(broker, f"{TOPIC}.retry.2") == 1)
        assert group_offset(broker, TOPIC) == 3 and group_offset(broker, f"{TOPIC}.retry.1") == 1
        consumer.close()
        report = running.ended()
    assert (report.finished, report.failed, report.handled) == (2, 3, 3)
    topics = [each.topic for each in seen.records if each.value == b"1"]
    assert topics == [TOPIC, f"{TOPIC}.retry.1", f"{TOPIC}.retry.2"]
    waits = [waited for topic, waited in times if topic != TOPIC]
    assert waits[0] >= 0.05 and waits[1] >= 0.2
    (letter,) = broker.records(f"{TOPIC}.dlq")
    (first,) = [each for each in seen.records if (each.topic, each.value) == (TOPIC, b"1")]
    assert (letter.key, letter.value, letter.timestamp_ms) == (first.key, b"1", first.timestamp_ms)
    assert dict(letter.headers) == {
        "__dlq.topic": b"orders",
        "__dlq.partition": b"0",
        "__dlq.offset": b"1",
        "__dlq.error": b"ValueError",
        "__dlq.reason": b"boom in orders.retry.2",
    }
    again = dict(seen.records[-1].headers)
    assert again["__retry.reason"] == b"boom in orders.retry.1" and again["__retry.offset"] == b"1"


def test_POOL10_nothing_waits_for_a_record_in_a_retry_topic(broker: Broker, shell: str) -> None:
    """Its key goes on, its partition is paused, and no worker has it."""
    fill(broker, 3, keys=1)
    seen = Seen()
    with (
        retry_topics(broker, 600.0, 600.0) as retries,
        processing(broker, function_of(fails_for(b"0", seen)), on_failure=retries) as (
            consumer,
            running,
        ),
    ):
        until(lambda: _metric(consumer, "partitions-waiting") == 1)
        until(lambda: group_offset(broker, TOPIC) == 3)
        fill(broker, 3, keys=1)
        until(lambda: group_offset(broker, TOPIC) == 6)
        assert (_metric(consumer, "records-running"), _metric(consumer, "records-waiting")) == (0, 0)
        consumer.close(drain=True)
        assert running.ended().handled == 2
    assert group_offset(broker, f"{TOPIC}.retry.1") in (None, 0)


def test_POOL10_what_no_delay_mends_is_a_dead_letter_at_once(broker: Broker, shell: str) -> None:
    fill(broker, 2, keys=1)
    with (
        retry_topics(broker, 600.0, 600.0, on=(OSError,)) as retries,
        processing(broker, function_of(fails_for(b"0", Seen())), on_failure=retries) as (_, _running),
    ):
        until(lambda: group_offset(broker, TOPIC) == 2)
    (letter,) = broker.records(f"{TOPIC}.dlq")
    assert letter.value == b"0" and broker.records(f"{TOPIC}.retry.1") == []


def test_POOL10_the_subscription_is_as_before_afterwards(broker: Broker) -> None:
    fill(broker, 2)

    def stops(record: Any) -> None:
        assert set(consumer.subscription()) == {TOPIC, f"{TOPIC}.retry.1", f"{TOPIC}.retry.2"}
        raise SystemExit

    with member(broker) as consumer, retry_topics(broker, 1.0, 1.0) as retries:
        consumer.subscribe([TOPIC])
        with pytest.raises(SystemExit):
            consumer.process(function_of(stops), on_failure=retries)
        assert consumer.subscription() == {TOPIC}
        taken = consumer.poll(HANG_SECONDS)
        assert [each.offset for each in taken] == [0, 1]


def test_POOL10_retry_topics_need_names_that_exist(broker: Broker, shell: str) -> None:
    with retry_topics(broker, 1.0, 1.0, 1.0) as retries:
        with member(broker) as consumer:
            consumer.assign([(TOPIC, 0)])
            with pytest.raises(IllegalStateError, match="RetryTopics add topics to those of subscribe"):
                consumer.process(lambda record: None, on_failure=retries)
        with member(broker, allow_auto_create_topics=False) as consumer:
            consumer.subscribe([TOPIC])
            with pytest.raises(UnknownTopicOrPartitionError, match=f"{TOPIC}.retry.3"):
                consumer.process(lambda record: None, on_failure=retries)
            assert consumer.subscription() == {TOPIC}


@either
def test_POOL10_retry_topics_of_a_pattern(broker: Broker, protocol: str) -> None:
    fill(broker, 3, keys=1)
    seen = Seen()
    with retry_topics(broker, 0.01, 0.01) as retries, member(broker, protocol) as consumer:
        consumer.subscribe(f"^{TOPIC[:-1]}[a-z]")
        function = function_of(fails_for(b"1", seen))
        running = Running(consumer, function, on_failure=retries, retry=Retry(attempts=1))
        until(lambda: broker.records(f"{TOPIC}.dlq"))
        consumer.close()
        running.ended()
    topics = [each.topic for each in seen.records if each.value == b"1"]
    assert topics == [TOPIC, f"{TOPIC}.retry.1", f"{TOPIC}.retry.2"]


def group_offset(broker: Broker, topic: str) -> int | None:
    with kbatch.TopicReader(bootstrap_servers=broker.bootstrap_servers) as reader:
        found = reader.groups.offsets(GROUP).get(TopicPartition(topic, 0))
    return None if found is None else found.committed.offset


# Batches


def test_POOL12_a_batch_has_an_outcome_a_record(broker: Broker, shell: str) -> None:
    fill(broker, 12, keys=1)
    attempts: Counter[int] = Counter()

    def some(records: list[Any]) -> list[Exception | None]:
        attempts.update(each.offset for each in records)
        return [OSError() if each.offset == 5 and attempts[5] < 2 else None for each in records]

    def with_cause(records: list[Any]) -> None:
        attempts.update(each.offset for each in records)
        for each in records:
            if each.offset == 5 and attempts[5] < 2:
                raise RecordFailed(each) from OSError("away")

    for group, function in enumerate((some, with_cause)):
        attempts.clear()

        async def called(records: list[Any], function: Any = function) -> Any:
            return function(records)

        with member(broker, group_id=f"{GROUP}{group}") as consumer:
            consumer.subscribe([TOPIC])
            running = Running(consumer, function if the_loop() is None else called, batch=4)
            until(lambda: attempts[11])
            consumer.close()
            assert running.ended().failed == 1
        assert attempts[5] == 2 and attempts[4] == 1


def test_a_function_that_returns_nonsense_for_a_batch_ends_it(broker: Broker, shell: str) -> None:
    fill(broker, 4, keys=1)
    with processing(broker, lambda records: 7, batch=4) as (_, running):
        assert isinstance(running.ended(), TypeError)


# Partitions that come and go


@either
def test_POOL16_POOL18_POOL19_partitions_that_are_given_up(broker: Broker, shell: str, protocol: str) -> None:
    """What runs may end until revoke_timeout; what ends later changes nothing, and the others work on."""
    for partition in range(2):
        fill(broker, 10, keys=10, partition=partition)
    seen, late, gates = Seen(), Seen(), {(0, 4): Gate(), (1, 4): Gate()}
    with processing(broker, function_of(seen, gates), protocol, revoke_timeout=0.05) as (_first, _running):
        until(seen.has(18))
        with member(broker, protocol) as second:
            second.subscribe([TOPIC])
            other = Running(second, function_of(late))
            until(lambda: late.records)
            for gate in gates.values():
                gate.open()
            until(lambda: sum(is_committed(broker, 10, each) for each in range(2)) >= 1)
            fill(broker, 10, keys=10, partition=0)
            fill(broker, 10, keys=10, partition=1)
            until(lambda: all(is_committed(broker, 20, each) for each in range(2)))
            second.close()
            assert other.ended().repeated == 5 * len(late.offsets[:1])
    both = Counter(seen.offsets + late.offsets)
    assert set(both) == {(partition, offset) for partition in range(2) for offset in range(20)}
    assert sum(both.values()) - len(both) <= 2


@either
def test_POOL17_what_runs_of_lost_partitions_changes_nothing(
    broker: Broker, shell: str, protocol: str
) -> None:
    """The member is thrown out and comes back: a record that runs meanwhile is given again, and the end of
    its first run counts for nothing.
    """
    fill(broker, 10, keys=10)
    seen, gate = Seen(), Gate()
    gates = {(0, 4): gate}
    with processing(broker, function_of(seen, gates), protocol) as _:
        until(lambda: gate.is_reached and len(seen.records) == 9)
        until(lambda: is_committed(broker, 4))
        del gates[0, 4]  # its second run does not wait
        heartbeat = "ConsumerGroupHeartbeat" if protocol == "consumer" else "Heartbeat"
        broker.fail_next(heartbeat, error=kbatch.errors.ErrorCode.UNKNOWN_MEMBER_ID)
        until(seen.has(10))
        until(lambda: is_committed(broker, 10))
        fill(broker, 1)
        until(lambda: is_committed(broker, 11))
        gate.open()
        if the_loop() is None:  # a task is cancelled with its partition
            until(seen.has(12))
        fill(broker, 1)
        until(lambda: is_committed(broker, 12))
        twice = [(0, 4)] if the_loop() is None else []
    assert seen.offsets == sorted([(0, offset) for offset in range(12)] + twice)


@either
def test_POOL16_nothing_is_taken_while_the_last_commit_is_under_way(
    broker: Broker, shell: str, protocol: str
) -> None:
    """A partition whose commit takes long is not taken anew before it is let go, though polls go on."""
    for partition in range(2):
        fill(broker, 20, keys=20, partition=partition)
    late, is_over = Seen(), threading.Event()
    gates = {(partition, offset): Gate() for partition in range(2) for offset in range(3)}

    def again(record: Any) -> None:
        if record.offset == 3 and not is_over.is_set():
            raise kbatch.RetryAfter(0.005)

    options: dict[str, Any] = {"revoke_timeout": 0.05, "max_in_flight": 8, "commit_interval": 0.4}
    options["retry"] = Retry(attempts=None)
    with processing(broker, function_of(again, gates), protocol, **options) as (first, _):
        until(lambda: all(gate.is_reached for gate in gates.values()))
        until(lambda: all(is_committed(broker, 0, each) for each in range(2)))
        broker.delay("OffsetCommit", 1.0)
        with member(broker, protocol) as second:
            second.subscribe([TOPIC])
            other = Running(second, function_of(late))
            until(lambda: first._member._step)
            for partition in range(2):
                gates[partition, 2].open()  # so that the last commit has something to say
            until(late.has(3))
            moved = late.records[0].partition
            assert {(moved, 0), (moved, 1)} <= set(late.offsets)  # which were unfinished
            is_over.set()
            for gate in gates.values():
                gate.open()
            second.close()
            other.ended()


# Its use, and its end


def test_POOL25_nobody_else_uses_the_consumer(broker: Broker, shell: str) -> None:
    fill(broker, 1)
    seen = Seen()
    with processing(broker, function_of(seen)) as (consumer, _):
        until(seen.has(1))
        for call in (
            lambda: consumer.poll(0),
            consumer.commit,
            lambda: consumer.seek(TopicPartition(TOPIC, 0), 0),
            lambda: consumer.process(seen),
        ):
            with pytest.raises(ConcurrentUseError):
                call()


def test_callbacks_of_a_rebalance_cannot_commit(broker: Broker, shell: str) -> None:
    fill(broker, 1)
    errors: list[Exception] = []
    with member(broker) as consumer:
        real = getattr(consumer, "_producer", consumer)

        def assigned(_: object) -> None:
            try:
                real.commit_async()
            except IllegalStateError as error:
                errors.append(error)

        consumer.subscribe([TOPIC], on_assigned=assigned)
        running = Running(consumer, function_of(Seen()))
        until(lambda: errors)
        consumer.close()
        running.ended()
    assert "process() commits what is finished" in str(errors[0])


def test_POOL20_close_lets_running_records_end_and_drops_others(broker: Broker, shell: str) -> None:
    fill(broker, 6, keys=1)
    seen, gate = Seen(), Gate()
    with member(broker) as consumer:
        consumer.subscribe([TOPIC])
        running = Running(consumer, function_of(seen, {(0, 1): gate}))
        until(lambda: is_committed(broker, 1))
        closing = threading.Thread(target=consumer.close)
        closing.start()
        until(lambda: not consumer.is_open)
        gate.open()
        closing.join(HANG_SECONDS)
        assert running.ended().finished == 2
    assert is_committed(broker, 2) and seen.offsets == [(0, 0), (0, 1)]


def test_POOL20_close_drains_what_was_taken(broker: Broker, shell: str) -> None:
    fill(broker, 6, keys=1)
    seen, gate = Seen(), Gate()
    with member(broker) as consumer:
        consumer.subscribe([TOPIC])
        running = Running(consumer, function_of(seen, {(0, 1): gate}))
        until(lambda: is_committed(broker, 1))
        closing = threading.Thread(target=consumer.close, kwargs={"drain": True})
        closing.start()
        until(lambda: not consumer.is_open)
        gate.open()
        closing.join(HANG_SECONDS)
        assert running.ended().finished == 6
    assert is_committed(broker, 6)


@pytest.mark.parametrize("drain", [False, True])
def test_POOL20_the_function_may_close_the_consumer(broker: Broker, shell: str, drain: bool) -> None:
    """It does not wait for itself: the call closes the consumer at its end."""
    fill(broker, 6, keys=1)
    seen: list[int] = []

    def function(record: Any) -> Any:
        seen.append(record.offset)
        return consumer_close(drain=drain) if len(seen) == 3 else None

    with member(broker) as consumer:
        consumer_close = consumer.close if shell == "threads" else consumer._producer.close
        consumer.subscribe([TOPIC])
        count = 6 if drain else 3
        # less than what close() gives connections to end: they do not end before the function
        assert Running(consumer, function, revoke_timeout=1).ended().finished == count
        assert not consumer.is_open
    assert is_committed(broker, count) and seen == list(range(count))


def test_POOL20_a_handler_may_close_the_consumer(broker: Broker) -> None:
    fill(broker, 3, keys=1)

    def fail(record: Any) -> None:
        raise ValueError("a mistake")

    with member(broker) as consumer:
        consumer.subscribe([TOPIC])
        handler = lambda record, error: consumer.close()  # noqa: E731
        running = Running(consumer, fail, on_failure=handler, retry=Retry(attempts=1))
        assert running.ended().handled == 1
    assert is_committed(broker, 1)


def test_POOL21_a_commit_that_fails_does_not_keep_the_consumer_open(broker: Broker, shell: str) -> None:
    fill(broker, 2)
    seen, gate = Seen(), Gate()
    with member(broker, enable_auto_commit=False) as consumer:
        consumer.subscribe([TOPIC])
        running = Running(consumer, function_of(seen, {(0, 0): gate}), commit_interval=100.0)
        until(lambda: consumer.assignment())
        gate.open()
        until(seen.has(2))
        broker.fail_next("OffsetCommit", error="GROUP_AUTHORIZATION_FAILED", times=1)
        consumer.close()
        assert isinstance(running.ended(), GroupAuthorizationError)
    assert committed(broker) is None


@pytest.fixture
def little_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    limited = partialmethod(OffsetStore.__init__, max_metadata_size=24)
    monkeypatch.setattr(OffsetStore, "__init__", limited)


def test_POOL14_a_broker_that_takes_little_metadata(
    little_metadata: None, broker: Broker, shell: str
) -> None:
    fill(broker, 200, keys=200)
    seen, gate = Seen(), Gate()
    some = {(0, offset): gate for offset in (1, 3, 7, 14, 30, 60, 61, 90)}
    with processing(broker, function_of(seen, some)):
        until(lambda: (found := committed(broker)) is not None and found.metadata)
        gate.open()
        until(lambda: is_committed(broker, 200))
    assert len(seen.records) == 200


@pytest.mark.threads
@pytest.mark.parametrize("interrupts", [1, 2])
def test_POOL22_an_interrupt_commits_what_is_finished(broker: Broker, interrupts: int) -> None:
    """The first lets running records end; the second does not wait for them."""
    fill(broker, 4, keys=4)
    seen, gate, main = Seen(), Gate(), threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        until(seen.has(3))
        for _ in range(interrupts):
            signal.pthread_kill(main, signal.SIGINT)
            until(lambda: not consumer_is_taking())
        if interrupts == 1:
            gate.open()

    with member(broker) as consumer:
        consumer.subscribe([TOPIC])

        def consumer_is_taking() -> bool:
            processing = consumer._member.processing
            return processing is not None and processing.scheduler._takes

        helper = threading.Thread(target=interrupt)
        helper.start()
        with pytest.raises(KeyboardInterrupt):
            consumer.process(function_of(seen, {(0, 1): gate}), revoke_timeout=HANG_SECONDS)
        helper.join()
        assert is_committed(broker, 4 if interrupts == 1 else 1)
    gate.open()


@pytest.mark.threads
def test_a_worker_that_exits_ends_it(broker: Broker) -> None:
    fill(broker, 1)
    with member(broker) as consumer, pytest.raises(SystemExit):
        consumer.subscribe([TOPIC])
        consumer.process(lambda record: exec("raise SystemExit"))


@pytest.mark.threads
def test_an_executor_of_the_program_runs_the_function(broker: Broker) -> None:
    fill(broker, 5)
    names = set()

    def bad(record: Any) -> None:
        names.add(threading.current_thread().name)
        if record.offset == 2:
            raise ValueError

    with ThreadPoolExecutor(2, "mine") as executor:
        with processing(broker, bad, executor=executor, on_failure=lambda *of: None) as (_, running):
            until(lambda: is_committed(broker, 5))
        assert running.ended().handled == 1
    assert {name.partition("_")[0] for name in names} == {"mine"}


@pytest.mark.threads
def test_POOL24_processes_run_the_function(broker: Broker, tmp_path: Path) -> None:
    fill(broker, 6, keys=6)
    path, failed = tmp_path / "lines", []

    def deal(record: Any, error: Exception) -> None:
        failed.append((record.offset, repr(error)))

    function = processed.function_of(processed.fail, path)
    options: Any = {"executor": "processes", "workers": 2, "on_failure": deal, "retry": Retry(attempts=1)}
    with processing(broker, function, **options) as (_, running):
        until(lambda: is_committed(broker, 6))
    assert running.ended().handled == 2
    lines = [line.split() for line in path.read_text().splitlines()]
    assert sorted(int(offset) for offset, _ in lines) == list(range(6))
    pids = {int(pid) for _, pid in lines}
    assert os.getpid() not in pids and len(pids) <= 2
    assert sorted(failed) == [(1, "ValueError('boom')"), (2, """RuntimeError("Local('gone')")""")]
    until(lambda: not any(is_alive(pid) for pid in pids))


def is_alive(pid: int) -> bool:
    """True if the process runs; one that has ended may still be there."""
    status = Path(f"/proc/{pid}/status")
    try:
        return "\nState:\tZ" not in status.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.slow
@pytest.mark.threads
def test_POOL24_a_process_that_dies_is_a_failed_attempt(broker: Broker, tmp_path: Path) -> None:
    fill(broker, 4, keys=1)
    path, errors = tmp_path / "lines", []

    def delay(record: Any, attempt: int, error: Exception) -> float:
        errors.append(error)
        return 0.0

    retry = Retry(attempts=3, delay=delay)
    function = processed.function_of(processed.die_once, path)
    with processing(broker, function, executor="processes", workers=1, retry=retry) as (_, running):
        until(lambda: is_committed(broker, 4))
    assert running.ended().failed == 1
    assert isinstance(errors[0], WorkerDiedError) and "ended with -9" in str(errors[0])
    lines = [line.split() for line in path.read_text().splitlines()]
    assert [int(offset) for offset, _ in lines] == [0, 1, 1, 2, 3]
    assert len({pid for _, pid in lines}) == 2


@pytest.mark.slow
@pytest.mark.threads
def test_POOL24_a_process_that_hangs_is_ended(broker: Broker, tmp_path: Path) -> None:
    fill(broker, 3, keys=3)
    path = tmp_path / "lines"
    function = processed.function_of(processed.hang, path)
    options: Any = {"executor": "processes", "workers": 3, "revoke_timeout": 0.05}
    with processing(broker, function, **options) as (_, running):
        until(lambda: (found := committed(broker)) is not None and found.offset and found.metadata)
    assert running.ended().finished == 2
    pids = {int(line.split()[1]) for line in path.read_text().splitlines()}
    until(lambda: not any(is_alive(pid) for pid in pids))


@pytest.mark.threads
def test_POOL24_processes_need_a_function_with_a_name(broker: Broker) -> None:
    with member(broker) as consumer:
        consumer.subscribe([TOPIC])
        with pytest.raises(TypeError, match="define it with def at the top of a module"):
            consumer.process(lambda record: None, executor="processes")
        with pytest.raises(TypeError, match='executor must be "threads", "processes" or'):
            consumer.process(print, executor="fibers")


def test_POOL05_slow_records_do_not_end_the_membership(broker: Broker, shell: str) -> None:
    fill(broker, 1)
    seen, gate = Seen(), Gate()
    with member(broker, max_poll_interval_ms=1000) as consumer:  # a busy machine may stop for less
        lost: list[object] = []
        consumer.subscribe([TOPIC], on_lost=lost.extend)
        running = Running(consumer, function_of(seen, {(0, 0): gate}))
        until(lambda: consumer.metrics and _metric(consumer, "longest-running-time") > 2000)
        gate.open()
        until(seen.has(1))
        consumer.close()
        running.ended()
    assert lost == []


def _metric(consumer: Any, name: str) -> float:
    values: dict[str, float] = {each.name: value for each, value in consumer.metrics().items()}
    return values.get(name, 0.0)


def test_POOL31_metrics_are_those_of_the_state(broker: Broker, shell: str) -> None:
    fill(broker, 10, keys=10)
    seen, gate = Seen(), Gate()
    with processing(broker, function_of(seen, {(0, 2): gate})) as (consumer, _running):
        until(lambda: _metric(consumer, "records-finished-total") == 9)
        assert (_metric(consumer, "records-running"), _metric(consumer, "records-waiting")) == (1, 0)
        assert (_metric(consumer, "ahead-max"), _metric(consumer, "bytes-in-flight")) == (8, 3)
        until(lambda: _metric(consumer, "oldest-unfinished-time") > 0)
        until(lambda: _metric(consumer, "metadata-characters-max") > 0)
        gate.open()
        until(lambda: _metric(consumer, "records-finished-total") == 10)
        assert _metric(consumer, "oldest-unfinished-time") == 0


def test_POOL23_a_cancelled_call_commits_what_is_finished(broker: Broker) -> None:
    fill(broker, 6, keys=6)
    seen, cancelled = Seen(), []

    async def function(record: Any) -> None:
        try:
            if record.offset == 2:
                await asyncio.sleep(HANG_SECONDS)
        except asyncio.CancelledError:
            cancelled.append(record.offset)
            raise
        seen(record)

    async def run() -> None:
        async with kbatch.AsyncConsumer(
            bootstrap_servers=broker.bootstrap_servers, group_id=GROUP, auto_offset_reset="earliest"
        ) as consumer:
            consumer.subscribe([TOPIC])
            task = asyncio.create_task(consumer.process(function, revoke_timeout=0.01))
            while len(seen.records) < 5:
                await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(run())
    found = committed(broker)
    assert found is not None and found.offset == 2 and found.metadata
    assert cancelled == [2]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"order": "value"}, ValueError, "order must be"),
        ({"batch": 0}, ValueError, "batch must be 1"),
        ({"retry": 3}, TypeError, "retry must be a kbatch.Retry"),
        ({"on_failure": "ignore"}, TypeError, "on_failure must be"),
        ({"commit_interval": -1}, ValueError, "commit_interval must be at least 0"),
        ({"stall_timeout": "x"}, TypeError, "stall_timeout must be a number"),
        ({"retries": 3}, TypeError, "process\\(\\) has no option 'retries'"),
    ],
)
def test_unsuitable_options_are_refused(
    broker: Broker, shell: str, options: Any, error: type[Exception], words: str
) -> None:
    with member(broker) as consumer:
        consumer.subscribe([TOPIC])
        with pytest.raises(error, match=words):
            consumer.process(lambda record: None, **options)
        with pytest.raises(TypeError, match="function must be callable"):
            consumer.process(None)


def test_it_needs_a_group_and_partitions(broker: Broker, shell: str) -> None:
    with member(broker) as consumer, pytest.raises(IllegalStateError, match="no partitions to process"):
        consumer.process(lambda record: None)
    with member(broker, group_id=None) as consumer:
        consumer.assign([(TOPIC, 0)])
        with pytest.raises(InvalidGroupIdError, match="process\\(\\) needs a group"):
            consumer.process(lambda record: None)


def test_dead_letters_refuse_other_producers(broker: Broker) -> None:
    servers = broker.bootstrap_servers
    with (
        kbatch.Producer(bootstrap_servers=servers, transactional_id="t") as producer,
        kbatch.Consumer(bootstrap_servers=servers, group_id=GROUP) as consumer,
        pytest.raises(ValueError, match=r"without transactional\.id"),
    ):
        consumer.process(print, on_failure=DeadLetter(producer))
    with (
        kbatch.Producer(bootstrap_servers=servers, value_serializer=str.encode) as producer,
        pytest.raises(ValueError, match="without serializers"),
    ):
        DeadLetter(producer)
    with kbatch.Producer(bootstrap_servers=servers) as producer:

        async def run() -> None:
            async with kbatch.AsyncConsumer(bootstrap_servers=servers, group_id=GROUP) as consumer:
                with pytest.raises(TypeError, match="AsyncProducer"):
                    await consumer.process(print, on_failure=DeadLetter(producer))

        asyncio.run(run())
