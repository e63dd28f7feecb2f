"""The steps of every send: bytes, size, partition, accumulator; and those that it leaves to the producer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest

import kbatch
from kbatch._native.batch.delivery import Delivery
from kbatch._native.codec.hashes import partition_for_key
from kbatch._native.send.accumulator import Refusal
from kbatch._native.send.cluster_view import ClusterView
from kbatch._native.send.send import PendingRecord, RecordSender
from kbatch.errors import PartialSendError, ProducerClosedError, RecordTooLargeError
from tests.support.accumulating import (
    MEGABYTE,
    accumulator,
    all_drained,
    is_whole,
    one,
    put,
    records_of,
    values_of,
)
from tests.support.patience import HANG_SECONDS

DEADLINE_S = HANG_SECONDS


class Sender(RecordSender):
    """Notes its calls, and runs `meanwhile` before it tries again."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._accumulator.accepts_directly = True
        self.asked: list[tuple[PendingRecord, Refusal | None, bool]] = []
        self.refused: list[tuple[PendingRecord, BaseException]] = []
        self.meanwhile: Callable[[PendingRecord], object] = lambda record: None
        self.first_in_queue = False

    def _send_slowly(self, record: Any, refusal: Refusal | None, may_wait: bool) -> Delivery | None:
        self.asked.append((record, refusal, may_wait))
        self.meanwhile(record)
        outcome = self._append(record, first_in_queue=self.first_in_queue)
        return outcome if isinstance(outcome, Delivery) else None

    def _handle_refused(self, record: Any, error: BaseException) -> None:
        self.refused.append((record, error))


def sender(partitions: int | list[int] = 1, **settings: Any) -> Sender:
    mine = ("max_request_size", "key_serializer", "value_serializer", "partitioner", "ignore_keys")
    own = {name: settings.pop(name) for name in mine if name in settings}
    return Sender(accumulator(partitions, **settings), **own)


def publish(producer: Sender, partitions: int) -> None:
    producer._accumulator.publish(ClusterView({"t": [(1, 0)] * partitions}))


def sent(producer: Sender) -> list[kbatch.Record]:
    """Return all records that the producer's accumulator has, partition by partition."""
    batches = all_drained(producer._accumulator)
    records = [record for batch in batches for record in records_of(batch)]
    for batch in batches:
        batch.complete(0)
    return records


# The fast path


def test_a_record_gets_in_as_it_was_given() -> None:
    producer = sender(3)
    called: list[Any] = []
    delivery = producer.send(
        "t",
        b"value",
        b"key",
        headers=[("h", b"1"), ("n", None)],
        partition=2,
        timestamp_ms=1234,
        on_delivery=lambda metadata, error: called.append((metadata, error)),
    )
    assert (delivery.topic, delivery.partition, delivery.done()) == ("t", 2, False)
    batch = one(producer._accumulator)
    (record,) = records_of(batch)
    assert record == kbatch.Record(b"key", b"value", [("h", b"1"), ("n", None)], 1234, 0)
    batch.complete(7)
    batch.completion.run_callbacks(print)
    assert called == [(delivery.result(0), None)]
    assert (producer.asked, producer._slow_count, producer._refused_count) == ([], 0, 0)
    assert is_whole(producer._accumulator)


def test_topic_value_and_key_are_positional_and_the_rest_is_not() -> None:
    producer = sender()
    producer.send("t")
    producer.send(topic="t", key=bytearray(b"k"), value=memoryview(b"v"))
    assert [(record.key, record.value) for record in sent(producer)] == [(None, None), (b"k", b"v")]
    with pytest.raises(TypeError):
        producer.send("t", b"v", b"k", [])  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="topic must be a str, got bytes"):
        producer.send(b"t")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        producer.send(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("key", [b"", b"21", b"foobar", bytearray(b"a-little-bit-long-string"), bytes(500)])
def test_P05_a_key_goes_by_murmur2_over_all_partitions(key: Any) -> None:
    producer = sender([1, -1, -1, 1, -1, 1, -1])
    delivery = producer.send("t", b"v", key)
    assert delivery.partition == partition_for_key(key, 7)


def test_missing_or_ignored_key_uses_the_sticky_partition() -> None:
    for settings, keys in (({}, [None] * 20), ({"ignore_keys": True}, [b"%d" % i for i in range(20)])):
        producer = sender(50, **settings)
        first = [producer.send("t", bytes(100), key).partition for key in keys]
        assert len(set(first)) == 1
        later = {producer.send("t", bytes(10_000), key).partition for key in keys}
        assert len(later) > 1


class Every(NamedTuple):
    """A partitioner that notes its calls."""

    asked: list[tuple[Any, ...]]
    answer: int
    name: str = "every"
    sticky: bool = True

    def partition(
        self, topic: str, key: Any, value: Any, partition_count: int, available: Sequence[int]
    ) -> int:
        self.asked.append((topic, key, value, partition_count, tuple(available)))
        return self.answer


def test_partitioner_is_called_if_no_partition_is_given() -> None:
    every = Every([], 3)
    producer = sender([1, -1, 1, -1], partitioner=every, value_serializer=lambda topic, headers, value: b"x")
    assert producer.send("t", 5, bytearray(b"k")).partition == 3
    assert producer.send("t").partition == 3
    assert producer.send("t", partition=0).partition == 0
    assert every.asked == [("t", b"k", b"x", 4, (0, 2)), ("t", None, None, 4, (0, 2))]


def test_a_partitioner_may_leave_it_to_the_sticky_state_or_raise() -> None:
    producer = sender([-1, -1, 1], partitioner=Every([], -1))
    assert producer.send("t", b"v", b"key").partition == 2

    class Failing:
        name, sticky = "failing", False

        def partition(self, *arguments: Any) -> int:
            raise LookupError("no partition")

    producer = sender(partitioner=Failing())
    with pytest.raises(LookupError, match="no partition"):
        producer.send("t", b"v")
    assert producer._refused_count == 1


def test_a_record_without_timestamp_has_that_of_the_call() -> None:
    producer = sender()
    before = time.time_ns() // 1_000_000
    producer.send("t", b"now")
    after = time.time_ns() // 1_000_000
    producer.send("t", b"none", timestamp_ms=-1)
    producer.send("t", b"last", timestamp_ms=2**63 - 2)
    now, none, last = sent(producer)
    assert now.timestamp_ms is not None
    assert before <= now.timestamp_ms <= after
    assert (none.timestamp_ms, last.timestamp_ms) == (-1, 2**63 - 2)


def test_batch_age_is_monotonic_time_since_its_first_record() -> None:
    producer = sender(batch_size=1000)
    marks = [time.monotonic_ns()]
    for _ in range(3):
        producer.send("t", bytes(600))
        marks.append(time.monotonic_ns())
    batches = producer._accumulator.incomplete_batches()
    assert len(batches) == 3
    for before, batch, after in zip(marks[:-1], batches, marks[1:], strict=True):
        assert before <= batch.created_ns <= after


class Four:
    def __index__(self) -> int:
        return 4


def test_what_has_an_index_is_an_integer() -> None:
    producer = sender(5)
    assert producer.send("t", partition=Four(), timestamp_ms=Four()).partition == 4
    assert sent(producer)[0].timestamp_ms == 4


# Invalid arguments


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"value": "text"}, TypeError, r"value must be bytes-like or None, got str \(.*serializer\)"),
        ({"key": "text"}, TypeError, r"key must be bytes-like or None, got str \(.*serializer\)"),
        ({"key": 5}, TypeError, "key must be bytes-like or None, got int$"),
        ({"headers": {"h": b""}}, TypeError, "headers must be a sequence"),
        ({"headers": [("h", "text")]}, TypeError, "headers: the value of 'h' must be bytes-like"),
        ({"partition": "0"}, TypeError, "partition must be an int, got str"),
        ({"partition": True}, TypeError, "partition must be an int, got bool"),
        ({"partition": -1}, ValueError, "partition must be 0 to 2147483647, got -1"),
        ({"partition": 2**70}, ValueError, "partition must be 0 to"),
        ({"timestamp_ms": 1.5}, TypeError, "timestamp_ms must be an int, got float"),
        ({"timestamp_ms": -2}, ValueError, "timestamp_ms must be -1 to .*, got -2"),
        ({"timestamp_ms": 2**63 - 1}, ValueError, "timestamp_ms must be -1 to"),
        ({"on_delivery": 5}, TypeError, "on_delivery must be callable as .* got int"),
    ],
)
@pytest.mark.parametrize("topic", ["t", "unknown"])
def test_a_mistake_is_raised_before_anything_is_waited_for(
    topic: str, arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    producer = sender()
    with pytest.raises(error, match=text) as raised:
        producer.send(topic, **arguments)
    ((record, given),) = producer.refused
    assert (record.topic, given, record.is_serialized) == (topic, raised.value, False)
    assert (producer._refused_count, producer.asked) == (1, [])
    assert is_whole(producer._accumulator)


# Golden: what AbstractRecords.estimateSizeInBytesUpperBound gives.
@pytest.mark.parametrize(
    ("size", "value", "key", "headers"),
    [
        (85, None, None, None),
        (87, b"v", b"k", None),
        (82 + 2 + 64 + 1 + 1, bytes(64), b"", None),
        (82 + 1 + 63 + 1 + 1, bytes(63), None, None),
        (82 + 3 + 20000 + 2 + 100 + 1, bytes(20000), bytes(100), None),
        (82 + 1 + 1 + 1 + 1 + 3 + 1 + 5 + 1 + 1 + 1, None, None, [("hé", b"value"), ("n", None)]),
    ],
)
def test_upper_bound_of_record_may_equal_max_request_size(
    size: int, value: bytes | None, key: bytes | None, headers: Any
) -> None:
    producer = sender(max_request_size=size)
    producer.send("t", value, key, headers=headers)
    assert len(sent(producer)) == 1
    producer = sender(max_request_size=size - 1)
    with pytest.raises(
        RecordTooLargeError, match=f"up to {size} bytes.* max.request.size.* {size - 1}; raise"
    ):
        producer.send("t", value, key, headers=headers)
    assert producer.refused[0][1].code == 10  # type: ignore[attr-defined]


def test_a_record_beyond_buffer_memory_is_too_large_as_well() -> None:
    producer = sender(buffer_memory=10_000)
    with pytest.raises(RecordTooLargeError, match=r"buffer\.memory, which is 10000"):
        producer.send("t", bytes(20_000))


# Serializers


def test_serializers_get_topic_headers_and_values_except_none() -> None:
    calls: list[Any] = []

    def serializer(name: str) -> Callable[..., Any]:
        def serialize(topic: str, headers: Any, value: Any) -> Any:
            calls.append((name, topic, headers, value))
            return bytearray(str(value).encode())

        return serialize

    producer = sender(5, key_serializer=serializer("key"), value_serializer=serializer("value"))
    headers = [("h", b"")]
    delivery = producer.send("t", 1, "ключ", headers=headers)
    assert delivery.partition == partition_for_key("ключ".encode(), 5)
    producer.send("t")
    assert [(record.key, record.value) for record in sent(producer) if record.value] == [
        ("ключ".encode(), b"1")
    ]
    assert calls == [("key", "t", headers, "ключ"), ("value", "t", headers, 1)]


def test_what_a_serializer_raises_comes_through() -> None:
    def failing(topic: str, headers: Any, value: Any) -> bytes:
        raise KeyboardInterrupt

    producer = sender(value_serializer=failing)
    with pytest.raises(KeyboardInterrupt):
        producer.send("t", 1)
    assert isinstance(producer.refused[0][1], KeyboardInterrupt)
    producer = sender(value_serializer=lambda topic, headers, value: "text")
    with pytest.raises(TypeError, match="value must be bytes-like"):
        producer.send("t", 1)


# The slow path


def counting(calls: list[Any]) -> Callable[[str, Any, Any], bytes]:
    def serialize(topic: str, headers: Any, value: Any) -> bytes:
        calls.append(value)
        return bytes(value)

    return serialize


@pytest.mark.parametrize(("topic", "partition"), [("new", None), ("t", 1), ("empty", None), ("empty", 0)])
def test_N01_producer_waits_for_missing_metadata(topic: str, partition: int | None) -> None:
    calls: list[Any] = []
    producer = sender(value_serializer=counting(calls), key_serializer=counting(calls))
    view = ClusterView({"t": [(1, 0)], "empty": []})
    producer._accumulator.publish(view)

    def learn(record: PendingRecord) -> None:
        view = ClusterView({"t": [(1, 0)] * 2, "new": [(1, 0)] * 7, "empty": [(1, 0)] * 7})
        producer._accumulator.publish(view)

    producer.meanwhile = learn
    headers = iter([("h", b"1")])
    given: Any = {"headers": headers, "partition": partition}
    delivery = producer.send(topic, b"value", b"21", **given)
    expected = partition if partition is not None else partition_for_key(b"21", 7)
    assert (delivery.topic, delivery.partition) == (topic, expected)
    ((record, refusal, may_wait),) = producer.asked
    assert (record.topic, record.value, record.partition) == (topic, b"value", partition)
    assert (refusal, may_wait, producer._slow_count) == (Refusal.METADATA, True, 1)
    assert calls == [b"21", b"value"]
    (read,) = sent(producer)
    assert (read.key, read.value, read.headers) == (b"21", b"value", (("h", b"1"),))


@pytest.mark.parametrize("wrong", [{"partition": -5}, {"timestamp_ms": -5}, {"on_delivery": 5}])
def test_arguments_are_checked_before_serializers_run(wrong: dict[str, Any]) -> None:
    calls: list[Any] = []
    producer = sender(value_serializer=counting(calls), key_serializer=counting(calls))
    for producer._accumulator.accepts_directly in (True, False):
        with pytest.raises((TypeError, ValueError), match=next(iter(wrong))):
            producer.send("t", b"v", b"k", **wrong)
    assert calls == []


def test_a_send_knows_the_partitions_as_they_are_then() -> None:
    producer = sender(2)
    assert producer.try_send("t", b"1", partition=1) is not None
    producer._accumulator.publish(ClusterView())
    assert producer.try_send("t", b"2") is None
    publish(producer, 5)
    assert producer.try_send("t", b"3", partition=4) is not None
    publish(producer, 1)
    assert producer.try_send("t", b"4", partition=4) is None
    assert [refusal for _, refusal, _ in producer.asked] == [Refusal.METADATA] * 2


def test_memory_that_is_missing_is_waited_for_by_the_producer() -> None:
    calls: list[Any] = []
    every = Every([], 0)
    producer = sender(
        buffer_memory=10_000, batch_size=5000, value_serializer=counting(calls), partitioner=every
    )
    while not producer.asked:
        value = bytearray(b"%d" % len(calls) + bytes(2000))

        def free(record: PendingRecord, value: bytearray = value) -> None:
            value[:5] = b"wrong"
            assert record.is_serialized
            assert values_of(one(producer._accumulator))
            for batch in producer._accumulator.incomplete_batches():
                if batch.state == "in_flight":
                    batch.complete(0)

        producer.meanwhile = free
        assert producer.send("t", value, value[:1])
    ((_, refusal, may_wait),) = producer.asked
    assert (refusal, may_wait) == (Refusal.MEMORY, True)
    assert len(every.asked) == len(calls)
    last = sent(producer)[-1]
    assert (last.key, last.value[:1]) == (b"%d" % (len(calls) - 1),) * 2  # type: ignore[index]
    assert is_whole(producer._accumulator)


def test_first_waiter_gets_the_memory_there_is() -> None:
    producer = sender()
    waiter = producer._accumulator.begin_waiting()
    assert producer.try_send("t", b"second") is None
    producer.first_in_queue = True
    assert producer.try_send("t", b"first") is not None
    assert [refusal for _, refusal, _ in producer.asked] == [Refusal.MEMORY] * 2
    waiter.withdraw()


def test_a_partition_is_chosen_once() -> None:
    producer = sender(1000)
    chosen = sender(1000).send("t", b"v", b"key").partition
    waiter = producer._accumulator.begin_waiting()
    producer.first_in_queue = True
    producer.meanwhile = lambda record: publish(producer, 1001)
    assert producer.send("t", b"v", b"key").partition == chosen
    assert producer.asked
    waiter.withdraw()


def test_indirect_producer_gets_every_record() -> None:
    calls: list[Any] = []
    producer = sender(3, value_serializer=counting(calls))
    producer._accumulator.accepts_directly = False

    def intercept(record: PendingRecord) -> None:
        assert not record.is_serialized
        record.topic, record.value, record.partition, record.timestamp_ms = "t", b"other", 2, 5

    producer.meanwhile = intercept
    delivery = producer.send("unknown", b"value", headers=[("h", None)])
    assert (delivery.topic, delivery.partition) == ("t", 2)
    (record,) = sent(producer)
    assert (record.value, record.timestamp_ms, record.headers) == (b"other", 5, (("h", None),))
    assert [refusal for _, refusal, _ in producer.asked] == [None]
    assert calls == [b"other"]


def test_what_is_serialized_no_longer_changes() -> None:
    producer = sender()
    producer._accumulator.publish(ClusterView())

    def change(record: PendingRecord) -> None:
        record.value = record.key = record.headers = None
        publish(producer, 1)

    producer.meanwhile = change
    producer.send("t", b"v" * 1000, b"k" * 1000, headers=[("h" * 100, b"1" * 1000)])
    (record,) = sent(producer)
    assert (record.key, record.value) == (b"k" * 1000, b"v" * 1000)
    assert record.headers == (("h" * 100, b"1" * 1000),)


def test_try_send_says_that_it_does_not_wait() -> None:
    producer = sender()
    assert producer.try_send("t", b"v", key=b"k", timestamp_ms=1) is not None
    assert producer.try_send("unknown", b"v") is None
    assert [(refusal, may_wait) for _, refusal, may_wait in producer.asked] == [(Refusal.METADATA, False)]
    with pytest.raises(TypeError, match="value must be"):
        producer.try_send("t", 5)


def test_what_the_producer_raises_is_a_refusal_too() -> None:
    producer = sender()

    def late(record: PendingRecord) -> None:
        raise kbatch.KafkaTimeoutError("too late")

    producer.meanwhile = late
    with pytest.raises(kbatch.KafkaTimeoutError, match="too late"):
        producer.send("unknown")
    assert [str(error) for _, error in producer.refused] == ["too late"]
    assert (producer._slow_count, producer._refused_count) == (1, 1)


def test_a_send_that_comes_upon_a_close_is_refused() -> None:
    producer = sender()
    producer._accumulator.close()
    with pytest.raises(ProducerClosedError, match="closed"):
        producer.send("t", b"v")
    assert producer._refused_count == 1


def test_send_from_callback_skips_the_queue() -> None:
    producer = sender(batch_size=1)
    waiter = producer._accumulator.begin_waiting()
    assert producer.try_send("t", b"in line") is None
    producer._accumulator.callback_thread_ident = threading.get_ident()
    assert producer.try_send("t", b"in a callback") is not None
    other = threading.Thread(target=lambda: producer.try_send("t", b"on another thread"))
    other.start()
    other.join(DEADLINE_S)
    assert [record.value for record, _, _ in producer.asked] == [b"in line", b"on another thread"]
    waiter.withdraw()


def test_subclass_must_implement_the_slow_path() -> None:
    with pytest.raises(NotImplementedError):
        RecordSender(accumulator()).send("t")
    with pytest.raises(TypeError):
        RecordSender(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="comes from a send"):
        PendingRecord()


# Many


class Pair(NamedTuple):
    key: bytes | None
    value: bytes | None


def test_send_many_takes_what_encode_takes() -> None:
    producer = sender()
    records: list[kbatch.Record | tuple[Any, ...]] = [
        kbatch.Record(b"k1", b"v1", [("h", b"1")], 5),
        (b"k2", b"v2"),
        Pair(b"k3", None),
        (None, b"v4", [("h", None)]),
        (b"k5", b"v5", None, 7),
    ]
    deliveries = producer.send_many("t", iter(records))
    assert [delivery.topic for delivery in deliveries] == ["t"] * 5
    read = sent(producer)
    assert [(record.key, record.value) for record in read] == [
        (b"k1", b"v1"), (b"k2", b"v2"), (b"k3", None), (None, b"v4"), (b"k5", b"v5")
    ]  # fmt: skip
    assert [record.headers for record in read] == [(("h", b"1"),), (), (), (("h", None),), ()]
    assert (read[0].timestamp_ms, read[4].timestamp_ms) == (5, 7)
    assert [delivery.result(0).offset for delivery in deliveries] == [0, 1, 2, 3, 4]
    assert producer.send_many("t", []) == []


@pytest.mark.parametrize(
    ("bad", "error", "text"),
    [
        ((b"k", "text"), TypeError, "value must be bytes-like or None, got str"),
        ((b"k",), TypeError, r"a tuple \(key, value.*, got 1 items"),
        ((b"k", b"v", None, None, 5), TypeError, "got 5 items"),
        ([b"k", b"v"], TypeError, "a Record or a tuple .*, got list"),
        ((b"k", bytes(MEGABYTE)), RecordTooLargeError, "max.request.size"),
    ],
)
def test_send_many_accepts_a_prefix(bad: Any, error: type[Exception], text: str) -> None:
    producer = sender()
    with pytest.raises(PartialSendError, match="index 2") as raised:
        producer.send_many("t", [(b"k", b"0"), (b"k", b"1"), bad, (b"k", b"3")])
    assert raised.value.index == 2
    assert isinstance(raised.value.__cause__, error)
    with pytest.raises(error, match=text):
        raise raised.value.__cause__
    assert [record.value for record in sent(producer)] == [b"0", b"1"]
    assert [delivery.result(0).offset for delivery in raised.value.deliveries] == [0, 1]


def test_send_many_keeps_deliveries_if_the_records_raise() -> None:
    def records() -> Iterator[tuple[bytes, bytes]]:
        yield b"k", b"v"
        raise OSError("cut off")

    producer = sender()
    with pytest.raises(PartialSendError, match="cut off") as raised:
        producer.send_many("t", records())
    assert (raised.value.index, len(raised.value.deliveries)) == (1, 1)
    with pytest.raises(TypeError, match="not iterable"):
        producer.send_many("t", 5)  # type: ignore[arg-type]


def test_send_many_waits_for_each_record_as_send_does() -> None:
    producer = sender()
    producer._accumulator.publish(ClusterView())
    producer.meanwhile = lambda record: publish(producer, 1)
    producer.send_many("t", [(None, b"%d" % number) for number in range(5)])
    assert [record.value for record in sent(producer)] == [b"%d" % number for number in range(5)]
    assert [(refusal, may_wait) for _, refusal, may_wait in producer.asked] == [(Refusal.METADATA, True)]


# Several threads


def test_each_threads_records_are_in_their_order() -> None:
    producer = sender(batch_size=500, linger_ns=10**12)
    threads_count, count = 4, 1000

    def run(thread: int) -> None:
        for number in range(count):
            producer.send("t", b"%d" % number, b"%d" % thread, headers=[("thread", b"%d" % thread)])

    threads = [threading.Thread(target=run, args=(thread,)) for thread in range(threads_count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    put(producer._accumulator, b"last", partition=0)
    producer._accumulator.close()
    batches = all_drained(producer._accumulator)
    read = [record for batch in batches for record in records_of(batch)][:-1]
    assert len(read) == threads_count * count
    for who in range(threads_count):
        values = [record.value for record in read if record.key == b"%d" % who]
        assert values == [b"%d" % number for number in range(count)]
    assert all(record.headers == (("thread", record.key),) for record in read)
