"""Consumers with deserializers: when values are made, and what becomes of those that cannot be."""

from __future__ import annotations

import asyncio
import copy
import gc
import json
import pickle
import threading
import types
import typing
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import pytest

import kbatch
from kbatch import formats
from kbatch.consumer.process import intake
from kbatch.errors import (
    ConfigError,
    IllegalStateError,
    KafkaTimeoutError,
    ProcessError,
    RecordDeserializationError,
    SchemaRegistryError,
)
from kbatch.interceptors import ConsumerInterceptor
from kbatch.testing import Broker
from kbatch.waiting.deadline import Deadline
from tests.support.registry import Registry
from tests.support.shells import new_consumer, the_loop

TOPIC = "orders"
PARTITION = kbatch.TopicPartition(TOPIC, 0)
SECONDS = 30.0
SCHEMA = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
BAD = b"{bad"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as running:
        yield running


def fill(broker: Broker, *values: bytes | None, key: bytes | None = None) -> None:
    with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for value in values:
            producer.send(TOPIC, value, key=key, headers=[("h", b"1")])
        producer.flush()


def consumer(broker: Broker, **keywords: Any) -> kbatch.Consumer:
    options: dict[str, Any] = {
        "auto_offset_reset": "earliest",
        "group_id": "g",
        "value_deserializer": formats.Json(),
    }
    made = kbatch.Consumer(bootstrap_servers=broker.bootstrap_servers, **(options | keywords))
    made.assign([PARTITION])
    return made


def letters_of(broker: Broker, **keywords: Any) -> list[Any]:
    with kbatch.Consumer(bootstrap_servers=broker.bootstrap_servers, **keywords) as reader:
        reader.assign({kbatch.TopicPartition(f"{TOPIC}.dlq", 0): "beginning"})
        return list(reader.until_end())


class Counting:
    """A deserializer that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def deserialize(self, data: bytes) -> Any:
        self.calls += 1
        return json.loads(data)


# Records


def test_F_REC_01_02_03_11_value_is_made_once_if_it_is_used(broker: Broker) -> None:
    fill(broker, b'{"a":1}', b"2", key=b"k")
    counting = Counting()
    with consumer(broker, value_deserializer=counting, key_deserializer="utf8") as reader:
        first, second = reader.poll(SECONDS)
        assert counting.calls == 0 and first.raw_value == b'{"a":1}'
        assert first.value is first.value and first.value == {"a": 1}
        assert counting.calls == 1 and (first.key, first.raw_key) == ("k", b"k")
        assert isinstance(second, kbatch.ConsumerRecord) and second.topic == TOPIC and second.offset == 1


def test_F_REC_11_annotations_may_be_evaluated() -> None:
    def charge(record: kbatch.ConsumerRecord[str, int], consumer: kbatch.Consumer[str, int]) -> None: ...

    found = typing.get_type_hints(charge)["record"]
    assert typing.get_origin(found) is kbatch.ConsumerRecord and typing.get_args(found) == (str, int)
    assert typing.get_origin(kbatch.Record[bytes]) is kbatch.Record


def test_F_REC_04_threads_get_one_value(broker: Broker) -> None:
    fill(broker, b"1")
    both = threading.Barrier(2)

    def make(data: bytes) -> object:
        both.wait(SECONDS)  # both threads have begun to make it
        return object()

    with (
        consumer(broker, value_deserializer=make) as reader,
        ThreadPoolExecutor(2) as threads,
    ):
        (record,) = reader.poll(SECONDS)
        first, second = threads.map(lambda _: record.value, range(2))
        assert first is second is record.value


def test_F_REC_05_06_07_copies_text_and_equality(broker: Broker) -> None:
    fill(broker, b'{"a":1}', BAD)
    counting = Counting()
    with consumer(broker, value_deserializer=counting) as reader:
        good, bad = reader.poll(SECONDS)
        assert "value=b'{\"a\":1}'" in repr(good) and "value=b'{bad'" in repr(bad) and counting.calls == 0
        copied = pickle.loads(pickle.dumps(good))
        assert copied.value == {"a": 1} and copied.raw_value == good.raw_value and copied.key is None
        assert copied == good and hash(copied) == hash(good) and good != bad
        assert "value={'a': 1}" in repr(good) and copy.copy(good).value == {"a": 1}
        copied = pickle.loads(pickle.dumps(bad))
        assert copied == bad and copied.raw_value == BAD
        for _ in range(2):
            with pytest.raises(RecordDeserializationError, match="offset 1"):
                _ = copied.value


def test_F_REC_08_record_that_its_value_refers_to_is_collected(broker: Broker) -> None:
    class Holder(dict[str, Any]):
        pass

    fill(broker, b"1")
    with consumer(broker, value_deserializer=lambda data: Holder()) as reader:
        (record,) = reader.poll(SECONDS)
        assert not gc.is_tracked(record)
        record.value["record"] = record
        assert gc.is_tracked(record)
        gone = weakref.ref(record.value)
        reader.close()
    del record
    gc.collect()
    assert gone() is None


def test_F_REC_10_tombstones_are_none_without_a_call(broker: Broker) -> None:
    fill(broker, None, b"null")
    counting = Counting()
    with consumer(broker, value_deserializer=counting) as reader:
        tombstone, null = reader.poll(SECONDS)
        assert (tombstone.value, tombstone.raw_value) == (None, None) and counting.calls == 0
        assert (null.value, null.raw_value) == (None, b"null")


def test_F_REC_12_value_without_deserializers_is_a_member(broker: Broker) -> None:
    fill(broker, b"x")
    with consumer(broker, value_deserializer=None) as reader:
        (record,) = reader.poll(SECONDS)
    assert type(record) is kbatch.ConsumerRecord and record.value == record.raw_value == b"x"
    assert isinstance(type(record).__mro__[1].__dict__["value"], types.MemberDescriptorType)
    assert record.deserialization_error is None


def test_F_REC_13_interceptors_see_typed_records(broker: Broker) -> None:
    fill(broker, b"1", b"2")
    seen: list[Any] = []

    class Seeing(ConsumerInterceptor):
        def on_consume(self, polled: Any) -> None:
            seen.extend(record.value for record in polled)

    with consumer(broker, interceptor_classes=[Seeing()]) as reader:
        assert [record.value for record in reader.poll(SECONDS)] == [1, 2]
    assert seen == [1, 2]


def test_F_REC_09_one_format_for_keys_values_and_both_directions(broker: Broker) -> None:
    number = formats.Int64()
    with kbatch.Producer(
        bootstrap_servers=broker.bootstrap_servers, key_serializer=number, value_serializer=number
    ) as producer:
        producer.send(TOPIC, 5, key=7)
    with consumer(broker, key_deserializer=number, value_deserializer=number) as reader:
        assert [(record.key, record.value) for record in reader.until_end()] == [(7, 5)]


def test_tables_take_the_same_format(broker: Broker) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    order = formats.Avro(SCHEMA)
    with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers, value_serializer=order) as producer:
        producer.send(TOPIC, {"id": 1})
        producer.send_table(TOPIC, pyarrow.table({"id": [2, 3]}), key=None, value=order).result(SECONDS)
    with consumer(broker, value_deserializer=order) as reader:
        assert [record.value["id"] for record in reader.until_end()] == [1, 2, 3]
        reader.seek_to_beginning()
        table = reader.poll_table(SECONDS, min_rows=3, value=order)
        assert table["value"].to_pylist() == [{"id": 1}, {"id": 2}, {"id": 3}]
        reader.seek_to_beginning()
        assert reader.poll(SECONDS).table(["value"], value=order)["value"].to_pylist()[0] == {"id": 1}


# Values that cannot be read


def test_F_PILL_01_02_error_has_the_record_and_is_raised_each_time(broker: Broker) -> None:
    fill(broker, BAD, key=b"k")
    with consumer(broker) as reader:
        (record,) = reader.poll(SECONDS)
        for _ in range(2):
            with pytest.raises(RecordDeserializationError, match="offset 0 cannot be deserialized") as caught:
                _ = record.value
        error = pickle.loads(pickle.dumps(caught.value))
    for each in (caught.value, error):
        assert (each.topic, each.partition, each.offset, each.part) == (TOPIC, 0, 0, "value")
        assert (each.key, each.value, each.headers) == (b"k", BAD, (("h", b"1"),))
        assert each.timestamp_ms == record.timestamp_ms and not each.retriable
    assert isinstance(caught.value.__cause__, json.JSONDecodeError)


def test_F_PILL_02_close_after_the_error_does_not_commit_it(broker: Broker) -> None:
    fill(broker, b"1", BAD)
    with pytest.raises(RecordDeserializationError), consumer(broker) as reader:
        for record in reader:
            _ = record.value
    with consumer(broker) as reader:
        assert reader.position(PARTITION) == 1


def test_F_PILL_03_skip_goes_on_after_the_record_once(broker: Broker) -> None:
    fill(broker, b"1", BAD, b"3")
    with consumer(broker) as reader:
        records = iter(reader)
        assert next(records).value == 1
        with pytest.raises(RecordDeserializationError) as caught:
            _ = next(records).value
        reader.seek(PARTITION, 1)
        for _ in range(2):
            reader.skip(caught.value)
            assert reader.position(PARTITION) == 2
        assert next(iter(reader)).value == 3
        reader.skip(caught.value)
        assert reader.position(PARTITION) == 3
        reader.assign([])
        with pytest.raises(IllegalStateError):
            reader.skip(caught.value)


def in_iteration(reader: kbatch.Consumer) -> list[Any]:
    return list(reader.until_end())


def in_poll(reader: kbatch.Consumer) -> list[Any]:
    return list(reader.poll(SECONDS))


ways = pytest.mark.parametrize("read", [in_iteration, in_poll])
Read = Callable[[kbatch.Consumer], list[Any]]


@ways
@pytest.mark.parametrize("count", [0, 1, 300])
def test_F_PILL_04_poll_ends_before_the_record_and_the_next_one_raises(
    broker: Broker, read: Read, count: int
) -> None:
    """If values are made when records are taken, its position stays until skip()."""
    fill(broker, *[b"1"] * count, BAD, b"3")
    with consumer(broker, deserialize="taken", max_poll_records=1000) as reader:
        if read is in_poll:
            found = list(reader.poll(SECONDS)) if count else []
        else:
            found = list(islice(reader, count))
        assert [record.value for record in found] == [1] * count
        for _ in range(2):
            with pytest.raises(RecordDeserializationError) as caught:
                read(reader)
            assert caught.value.offset == reader.position(PARTITION) == count
        reader.commit()
        assert reader.committed([PARTITION])[PARTITION].offset == count  # type: ignore[union-attr]
        reader.skip(caught.value)
        assert [record.value for record in read(reader)] == [3]


def test_F_PILL_04_other_partitions_go_on() -> None:
    with Broker({TOPIC: 2}) as broker:
        with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send(TOPIC, BAD, partition=0)
            producer.send(TOPIC, b"2", partition=1)
        with consumer(broker, deserialize="taken") as reader:
            reader.assign([PARTITION, kbatch.TopicPartition(TOPIC, 1)])
            found: list[int] = []
            errors = 0
            while not (found and errors > 1):
                try:
                    found += [record.value for record in reader.poll(SECONDS)]
                except RecordDeserializationError as error:
                    assert error.partition == 0
                    errors += 1
            assert found == [2]


def test_F_PILL_04_clients_that_cannot(broker: Broker) -> None:
    options: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers, "deserialize": "taken"}
    with pytest.raises(ConfigError, match=r"deserialize.*share consumers read all values"):
        kbatch.ShareConsumer(**options, group_id="s")
    with consumer(broker, deserialize="taken") as reader, pytest.raises(ConfigError, match="on_failure="):
        reader.process(print)


@ways
def test_F_PILL_05_null_keeps_the_error_with_the_record(broker: Broker, read: Read) -> None:
    fill(broker, b"1", BAD, b"3")
    with consumer(broker, on_deserialization_error="null") as reader:
        records = read(reader)
        assert records[1].deserialization_error.offset == 1
        assert [record.value for record in records] == [1, None, 3]
        assert records[0].deserialization_error is None and records[1].raw_value == BAD


@ways
def test_F_PILL_06_skip_passes_faulty_records(
    broker: Broker, read: Read, caplog: pytest.LogCaptureFixture
) -> None:
    fill(broker, BAD, b"1", BAD, BAD, b"3", BAD)
    with consumer(broker, on_deserialization_error="skip") as reader:
        assert [record.value for record in read(reader)] == [1, 3]
        assert reader.position(PARTITION) == 6
        reader.commit()
        assert reader.committed([PARTITION])[PARTITION].offset == 6  # type: ignore[union-attr]


@ways
def test_F_PILL_07_function_decides_and_its_exception_is_the_polls(broker: Broker, read: Read) -> None:
    fill(broker, b"1", BAD, b"3")
    with consumer(broker, on_deserialization_error=lambda error: error.value.decode()) as reader:
        assert [record.value for record in read(reader)] == [1, "{bad", 3]
    with consumer(broker, on_deserialization_error=lambda error: formats.SKIP, group_id="h") as reader:
        assert [record.value for record in read(reader)] == [1, 3]

    def fail(error: RecordDeserializationError) -> None:
        raise ZeroDivisionError

    with consumer(broker, on_deserialization_error=fail, group_id="i") as reader:
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                read(reader)
            assert reader.position(PARTITION) == 0


@ways
def test_F_PILL_08_dead_letter_is_the_record_with_its_cause(broker: Broker, read: Read) -> None:
    fill(broker, b"1", BAD, b"3", key=b"k")
    with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        letters = kbatch.DeadLetter(producer)
        with consumer(broker, on_deserialization_error=letters) as reader:
            assert [record.value for record in read(reader)] == [1, 3]
    (letter,) = letters_of(broker)
    assert (letter.key, letter.value) == (b"k", BAD)
    headers: dict[str, bytes] = dict(letter.headers)
    assert headers["h"] == b"1" and headers["__dlq.topic"] == TOPIC.encode()
    assert (headers["__dlq.partition"], headers["__dlq.offset"]) == (b"0", b"1")
    assert headers["__dlq.error"] == b"RecordDeserializationError"
    assert b"the value at topic orders, partition 0, offset 1" in headers["__dlq.reason"]


@ways
def test_F_PILL_08_letter_that_is_refused_keeps_the_position(broker: Broker, read: Read) -> None:
    fill(broker, BAD, b"2")
    with (
        kbatch.Producer(bootstrap_servers=broker.bootstrap_servers, max_request_size=1) as producer,
        consumer(broker, on_deserialization_error=kbatch.DeadLetter(producer)) as reader,
    ):
        for _ in range(2):
            with pytest.raises(kbatch.errors.RecordTooLargeError):
                read(reader)
            assert reader.position(PARTITION) == 0


def test_F_PILL_09_letter_is_in_the_transaction(broker: Broker) -> None:
    fill(broker, BAD)
    with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="t") as producer:
        producer.init_transactions()
        policy = kbatch.DeadLetter(producer)
        with consumer(broker, on_deserialization_error=policy, enable_auto_commit=False) as reader:
            with pytest.raises(IllegalStateError):
                reader.poll(SECONDS)
            producer.begin_transaction()
            assert not reader.poll(1.0)
            producer.abort_transaction()
    assert letters_of(broker, isolation_level="read_committed") == []


def test_policies_that_cannot_be(broker: Broker) -> None:
    async def policy(error: Exception) -> None:
        pass

    for given, text in [
        ("ignore", "must be raise, null, skip"),
        (policy, "must not be a coroutine function"),
    ]:
        with pytest.raises(ConfigError, match=text):
            consumer(broker, on_deserialization_error=given)
    with (
        kbatch.Producer(
            bootstrap_servers=broker.bootstrap_servers, value_serializer=formats.Utf8()
        ) as producer,
        pytest.raises(ValueError, match="takes a producer without serializers"),
    ):
        kbatch.DeadLetter(producer)


def test_process_gives_typed_records(broker: Broker, registry: Registry) -> None:
    fill(broker, *avro_values(registry, 3), BAD)
    order = formats.Avro(registry=registry.client())
    seen = []
    with kbatch.Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        group_id="p",
        value_deserializer=order,
    ) as reader:
        reader.subscribe([TOPIC])

        def work(record: Any) -> None:
            seen.append(record.value["id"])

        with pytest.raises(ProcessError, match="failed 1 times") as caught:  # there is no other attempt
            reader.process(work, order="partition")
    assert seen == [0, 1, 2] and isinstance(caught.value.__cause__, RecordDeserializationError)


def test_process_waits_for_a_registry_that_is_away(
    broker: Broker, registry: Registry, shell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no failure of a record, and what another partition has goes on."""
    monkeypatch.setattr(intake, "REGISTRY_BACKOFF_NS", 1_000_000)
    fill(broker, *avro_values(registry, 3), BAD)
    registry.faults.extend([(500, b"{}")] * 3)
    order = formats.Avro(registry=registry.client(retries=0))
    seen: list[int] = []

    def work(record: Any) -> None:
        seen.append(record.value["id"])

    async def work_on_loop(record: Any) -> None:
        work(record)

    with new_consumer(
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        group_id="p",
        value_deserializer=order,
    ) as reader:
        reader.subscribe([TOPIC])
        with pytest.raises(ProcessError, match=r"offset 3.*failed 1 times"):
            reader.process(work if the_loop() is None else work_on_loop, order="partition")
    assert seen == [0, 1, 2] and not registry.faults


def test_process_raises_what_a_registry_refuses(broker: Broker, registry: Registry) -> None:
    fill(broker, *avro_values(registry, 1))
    registry.faults.append((401, b"{}"))
    order = formats.Avro(registry=registry.client(retries=0))
    with consumer(broker, value_deserializer=order) as reader:
        with pytest.raises(SchemaRegistryError):
            reader.process(print)
        assert reader.position(PARTITION) == 0


def test_process_refuses_what_workers_cannot_do(broker: Broker) -> None:
    with (
        consumer(broker, on_deserialization_error="skip") as reader,
        pytest.raises(ConfigError, match="has on_failure= for records that cannot be read"),
    ):
        reader.process(print)


# A registry


def avro_values(registry: Registry, count: int) -> list[bytes]:
    number = registry.add(f"{TOPIC}-value", SCHEMA)
    codec = formats.Avro(SCHEMA).bind("value")
    return [number.to_bytes(5, "big") + codec.encode(TOPIC, (), {"id": each}) for each in range(count)]


@ways
def test_F_IO_05_06_registry_that_is_away_is_no_fault_of_a_value(
    broker: Broker, registry: Registry, read: Read
) -> None:
    fill(broker, *avro_values(registry, 3))
    order = formats.Avro(registry=registry.client(retries=0))
    letters: list[Any] = []
    with consumer(broker, value_deserializer=order, on_deserialization_error=letters.append) as reader:
        registry.faults.append((500, b"{}"))
        with pytest.raises(SchemaRegistryError) as caught:
            read(reader)
        assert caught.value.retriable and reader.position(PARTITION) == 0
        assert [record.value["id"] for record in read(reader)] == [0, 1, 2]
    assert not letters


@ways
def test_F_IO_01_values_ask_nothing(broker: Broker, registry: Registry, read: Read) -> None:
    fill(broker, *avro_values(registry, 3))
    order = formats.Avro(registry=registry.client())
    with consumer(broker, value_deserializer=order) as reader:
        records = read(reader)
        asked = list(registry.requests)
        assert [record.value for record in records] == [{"id": 0}, {"id": 1}, {"id": 2}]
        assert registry.requests == asked and len(asked) == 1


def test_unknown_ids_are_faults_of_their_values(broker: Broker, registry: Registry) -> None:
    (good,) = avro_values(registry, 1)
    fill(broker, b"\0\0\0\0\x63x", good, b"unframed")
    order = formats.Avro(registry=registry.client())
    with consumer(broker, value_deserializer=order, on_deserialization_error="null") as reader:
        records = list(reader.until_end())
        assert [record.value for record in records] == [None, {"id": 0}, None]
        assert "does not know its schema 99" in str(records[0].deserialization_error)
        assert "it has no schema id" in str(records[2].deserialization_error)


def test_F_IO_04_other_partitions_go_on_while_the_registry_is_slow(registry: Registry, shell: str) -> None:
    may_answer = threading.Event()
    values = avro_values(registry, 2)
    registry.before = lambda path: may_answer.wait(SECONDS)
    with Broker({TOPIC: 2}) as broker:
        with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for value in values:
                producer.send(TOPIC, value, partition=0)
            producer.send(TOPIC, b"no frame, so nothing to ask", partition=1)
        with new_consumer(
            bootstrap_servers=broker.bootstrap_servers,
            value_deserializer=formats.Avro(registry=registry.client()),
            on_deserialization_error="null",
        ) as reader:
            both = [PARTITION, kbatch.TopicPartition(TOPIC, 1)]
            reader.assign(dict.fromkeys(both, "beginning"))
            (other,) = reader.poll(SECONDS)
            assert other.partition == 1 and not reader.poll(0)
            assert [reader.position(each) for each in both] == [0, 1]
            may_answer.set()
            found: list[Any] = []
            while len(found) < 2:
                found += [record.value for record in reader.poll(SECONDS)]
            assert found == [{"id": 0}, {"id": 1}] and len(registry.requests) == 1


def test_registry_that_does_not_answer_in_time_fails_the_poll(broker: Broker, registry: Registry) -> None:
    fill(broker, *avro_values(registry, 1))
    may_answer = threading.Event()
    registry.before = lambda path: may_answer.wait(SECONDS)
    order = formats.Avro(registry=registry.client())
    with consumer(broker, value_deserializer=order) as reader:
        while not registry.requests:
            assert not reader.poll(0.01)
        reader._question._deadline = Deadline(0.0)
        with pytest.raises(KafkaTimeoutError, match="schema registry has not answered within"):
            reader.poll(SECONDS)
        may_answer.set()
        assert [record.value for record in reader.poll(SECONDS)] == [{"id": 0}]


def test_tables_are_read_while_a_question_is_open(broker: Broker, registry: Registry) -> None:
    pytest.importorskip("pyarrow")
    fill(broker, *avro_values(registry, 1))
    may_answer = threading.Event()
    registry.before = lambda path: may_answer.wait(SECONDS)
    with consumer(broker, value_deserializer=formats.Avro(registry=registry.client())) as reader:
        while not registry.requests:
            assert not reader.poll(0.01)
        assert reader.poll_table(SECONDS, value=formats.Bytes()).num_rows == 1
        may_answer.set()


def test_F_IO_07_next_poll_takes_the_answer_that_a_cancelled_one_awaited(
    broker: Broker, registry: Registry
) -> None:
    fill(broker, *avro_values(registry, 2))
    may_answer = threading.Event()
    registry.before = lambda path: may_answer.wait(SECONDS)

    async def use() -> list[Any]:
        reader = kbatch.AsyncConsumer(
            bootstrap_servers=broker.bootstrap_servers,
            value_deserializer=formats.Avro(registry=registry.client()),
        )
        reader.assign({PARTITION: "beginning"})
        task = asyncio.ensure_future(reader.poll(SECONDS))
        while not registry.requests:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await reader.position(PARTITION) == 0
        may_answer.set()
        found = [record.value for record in await reader.poll(SECONDS)]
        await reader.close()
        return found

    assert asyncio.run(use()) == [{"id": 0}, {"id": 1}]
    assert len(registry.requests) == 1


class Awaiting:
    """A deserializer that waits until a task of the event loop lets it go on."""

    def __init__(self) -> None:
        self.is_called, self.may_return = threading.Event(), threading.Event()
        self.threads: list[int] = []

    def __call__(self, data: bytes) -> Any:
        self.threads.append(threading.get_ident())
        self.is_called.set()
        assert self.may_return.wait(SECONDS)
        return json.loads(data)

    async def let(self) -> None:
        while not self.is_called.is_set():
            await asyncio.sleep(0)
        self.may_return.set()


@pytest.mark.parametrize("how", ["poll", "iteration", "process"])
def test_F_SIG_06_function_that_blocks_runs_on_a_worker(broker: Broker, how: str) -> None:
    fill(broker, b"1", BAD, b"3")
    awaiting = Awaiting()
    found: list[Any] = []

    def take(record: Any) -> None:
        for _ in range(2):
            try:
                found.append(record.value)
            except RecordDeserializationError as error:
                found.append(-error.offset)  # type: ignore[operator]

    async def use() -> None:
        reader = kbatch.AsyncConsumer(
            bootstrap_servers=broker.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            value_deserializer=awaiting,
        )
        reader.assign([PARTITION])
        task = asyncio.ensure_future(awaiting.let())
        if how == "poll":
            for record in await reader.poll(SECONDS):
                take(record)
        elif how == "iteration":
            async for record in reader.until_end():
                take(record)
        else:
            closing: list[Any] = []

            async def work(record: Any) -> None:
                take(record)
                if record.offset == 2:
                    closing.append(asyncio.ensure_future(reader.close()))

            await reader.process(work, order="partition")
            await closing[0]
        await task
        await reader.close()

    asyncio.run(use())
    assert found == [1, 1, -1, -1, 3, 3]
    assert awaiting.threads and threading.get_ident() not in awaiting.threads


def test_F_SIG_06_inline_functions_run_at_first_use_on_the_loop(broker: Broker) -> None:
    fill(broker, b"1", b"2")
    counting = Counting()

    async def use() -> None:
        reader = kbatch.AsyncConsumer(
            bootstrap_servers=broker.bootstrap_servers, value_deserializer=formats.inline(counting)
        )
        reader.assign({PARTITION: "beginning"})
        first, _ = await reader.poll(SECONDS)
        assert counting.calls == 0
        assert (first.value, counting.calls) == (1, 1)
        await reader.close()

    asyncio.run(use())


def test_F_IO_02_event_loop_goes_on_while_the_registry_is_slow(broker: Broker, registry: Registry) -> None:
    """The registry answers only when a task of the same loop lets it."""
    fill(broker, *avro_values(registry, 2))
    may_answer = threading.Event()
    asked = threading.Event()

    def wait(path: str) -> None:
        asked.set()
        assert may_answer.wait(SECONDS)

    registry.before = wait

    async def let_it() -> None:
        while not asked.is_set():
            await asyncio.sleep(0)
        may_answer.set()

    async def use() -> list[Any]:
        reader = kbatch.AsyncConsumer(
            bootstrap_servers=broker.bootstrap_servers,
            value_deserializer=formats.Avro(registry=registry.client()),
        )
        reader.assign({PARTITION: "beginning"})
        task = asyncio.ensure_future(let_it())
        found = [record.value async for record in reader.until_end()]
        await task
        await reader.close()
        return found

    assert asyncio.run(use()) == [{"id": 0}, {"id": 1}]


def test_F_PILL_08_dead_letters_on_an_event_loop(broker: Broker) -> None:
    fill(broker, BAD, b"2")

    async def use() -> list[Any]:
        producer = kbatch.AsyncProducer(bootstrap_servers=broker.bootstrap_servers)
        options: dict[str, Any] = {
            "bootstrap_servers": broker.bootstrap_servers,
            "value_deserializer": "json",
        }
        with pytest.raises(ConfigError, match="needs a Producer"):
            kbatch.Consumer(**options, on_deserialization_error=kbatch.DeadLetter(producer))
        reader = kbatch.AsyncConsumer(**options, on_deserialization_error=kbatch.DeadLetter(producer))
        reader.assign({PARTITION: "beginning"})
        found = [record.value async for record in reader.until_end()]
        await reader.close()
        await producer.close()
        return found

    assert asyncio.run(use()) == [2]
    (letter,) = letters_of(broker)
    assert letter.value == BAD
