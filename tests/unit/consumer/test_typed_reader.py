"""Readers with deserializers, and tables that a client's formats read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

import kbatch
from kbatch import formats
from kbatch.consumer.range_buffer import RECORDS_AT_A_TIME
from kbatch.consumer.topic_reader import Reading
from kbatch.errors import ConfigError, DeserializationError, RecordDeserializationError, SchemaRegistryError
from kbatch.testing import Broker
from tests.support.registry import Registry

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


def fill(broker: Broker, *values: bytes | None, topic: str = TOPIC) -> None:
    with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for value in values:
            producer.send(topic, value, key=b"k")
        producer.flush()


def opened(broker: Broker, **keywords: Any) -> kbatch.TopicReader:
    return kbatch.TopicReader(bootstrap_servers=broker.bootstrap_servers, **keywords)


def consumer(broker: Broker, **keywords: Any) -> kbatch.Consumer:
    made = kbatch.Consumer(bootstrap_servers=broker.bootstrap_servers, **keywords)
    made.assign({PARTITION: "beginning"})
    return made


def reading(reader: kbatch.TopicReader) -> Reading[Any]:
    return reader.read_records(reader.ranges(TOPIC).ranges)


# Records


def test_reader_makes_values_at_first_use(broker: Broker) -> None:
    fill(broker, b'{"a":1}', BAD, None, b"3")
    calls: list[bytes] = []

    def deserialize(data: bytes) -> Any:
        calls.append(data)
        return json.loads(data)

    with opened(broker, key_deserializer="utf8", value_deserializer=deserialize) as reader:
        first, bad, tombstone, last = reading(reader)
        assert not calls and isinstance(first, kbatch.ConsumerRecord)
        assert (first.key, first.raw_key, first.value, last.value) == ("k", b"k", {"a": 1}, 3)
        assert (tombstone.value, bad.raw_value) == (None, BAD)
        with pytest.raises(RecordDeserializationError, match="offset 1 cannot be deserialized"):
            _ = bad.value


def test_reader_follows_on_deserialization_error(broker: Broker) -> None:
    fill(broker, *[b"1", BAD] * RECORDS_AT_A_TIME)
    good = [1] * RECORDS_AT_A_TIME

    def values(policy: object) -> list[Any]:
        with opened(broker, value_deserializer="json", on_deserialization_error=policy) as reader:
            return [record.value for record in reading(reader)]

    assert values("skip") == good and values("null") == [1, None] * RECORDS_AT_A_TIME
    assert values(lambda error: error.offset) == [
        number if number % 2 else 1 for number in range(2 * RECORDS_AT_A_TIME)
    ]
    with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        assert values(kbatch.DeadLetter(producer)) == good
    with opened(broker) as reader:
        letters = list(reader.read_records(reader.ranges(f"{TOPIC}.dlq").ranges))
    assert [letter.value for letter in letters] == [BAD] * RECORDS_AT_A_TIME
    assert dict(letters[-1].headers)["__dlq.offset"] == b"%d" % (2 * RECORDS_AT_A_TIME - 1)


def test_reader_refuses_the_letters_of_tasks(broker: Broker) -> None:
    async def use() -> None:
        async with kbatch.AsyncProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            letter = kbatch.DeadLetter(producer)
            with pytest.raises(ConfigError, match="DeadLetter of TopicReader needs a Producer"):
                opened(broker, value_deserializer="json", on_deserialization_error=letter)

    asyncio.run(use())


def test_read_goes_on_after_what_a_function_raises(broker: Broker) -> None:
    fill(broker, b"1", BAD, b"3")
    failures = [OSError("no disk"), OSError("no disk")]

    def handle(error: RecordDeserializationError) -> Any:
        if failures:
            raise failures.pop()
        return "mended"

    with opened(broker, value_deserializer="json", on_deserialization_error=handle) as reader:
        records = reading(reader)
        for _ in range(2):
            with pytest.raises(OSError, match="no disk"):
                next(records)
        assert [record.value for record in records] == [1, "mended", 3] and not records.is_open


def test_registry_that_is_away_does_not_end_a_read(broker: Broker, registry: Registry) -> None:
    order = formats.Avro(SCHEMA, registry=registry.client(), register=True)
    codec = order.bind("value")
    fill(broker, *[codec.encode(TOPIC, (), {"id": number}) for number in range(3)])
    reads = formats.Avro[Any](registry=registry.client(retries=0))
    with opened(broker, value_deserializer=reads) as reader:
        records = reading(reader)
        registry.faults.append((500, b"{}"))
        with pytest.raises(SchemaRegistryError):
            list(records)
        assert records.progress.rows == 0
        found = list(records)
        asked = len(registry.requests)
        assert [record.value["id"] for record in found] == [0, 1, 2] and len(registry.requests) == asked


# Tables


def test_tables_of_a_client_are_read_by_its_formats(broker: Broker) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    fill(broker, b'{"id":1}', None, b'{"id":2}')
    typed: dict[str, Any] = {"key_deserializer": "utf8", "value_deserializer": formats.Json()}
    expected = [{"id": 1}, None, {"id": 2}]
    with consumer(broker, **typed) as reader:
        polled = reader.poll(SECONDS)
        tables = [polled.table(), pyarrow.table(polled)]
        reader.seek_to_beginning()
        tables.append(reader.poll_table(SECONDS, min_rows=3))
        reader.seek_to_beginning()
        assert reader.poll_table(SECONDS, min_rows=3, columns=["offset"]).column_names == ["offset"]
        reader.seek_to_beginning()
        undecoded = reader.poll_table(SECONDS, min_rows=3, value=formats.Bytes())
        assert undecoded["value"].to_pylist() == [b'{"id":1}', None, b'{"id":2}']
        assert undecoded["key"].to_pylist() == ["k"] * 3
    with opened(broker, **typed) as other:
        tables.append(pyarrow.Table.from_batches(other.read(other.ranges(TOPIC).ranges)))
    config = {"bootstrap.servers": broker.bootstrap_servers, "value.deserializer": "json"}
    tables.append(kbatch.read_table(TOPIC, config={**config, "key.deserializer": "utf8"}))
    with kbatch.scan_topic(TOPIC, config={**config, "key.deserializer": "utf8"}) as stream:
        tables.append(stream.read_all())
    for table in tables:
        assert (table["value"].to_pylist(), table["key"].to_pylist()) == (expected, ["k"] * 3)


def test_stream_without_end_needs_the_type_of_the_clients_format(broker: Broker) -> None:
    pytest.importorskip("pyarrow")
    fill(broker, None)
    config = {"bootstrap.servers": broker.bootstrap_servers, "value.deserializer": "json"}
    with pytest.raises(ValueError, match="has no value yet from which value= could learn its type"):
        kbatch.scan_topic(TOPIC, config=config, end=None)
    kbatch.scan_topic(TOPIC, config=config, end=None, value=formats.Utf8()).close()


def test_tables_follow_on_error_of_the_format(broker: Broker) -> None:
    pytest.importorskip("pyarrow")
    fill(broker, b'{"id":1}', BAD)
    with consumer(broker, value_deserializer="json", on_deserialization_error="skip") as reader:
        polled = reader.poll(SECONDS)
        assert len(polled) == 1
        with pytest.raises(DeserializationError, match="offset 1"):
            polled.table()
    with consumer(broker, value_deserializer=formats.Json(on_error="null")) as reader:
        assert reader.poll(SECONDS).table()["value"].to_pylist() == [{"id": 1}, None]


def test_functions_leave_columns_of_bytes(broker: Broker) -> None:
    pytest.importorskip("pyarrow")
    fill(broker, b"1")

    class RecordsOnly(formats.Format[int]):
        def bind(self, part: object) -> formats.Codec[int]:
            return formats.Int64().bind("value")

    for given in (json.loads, RecordsOnly()):
        with consumer(broker, value_deserializer=given) as reader:
            assert reader.poll(SECONDS).table(["value"])["value"].to_pylist() == [b"1"]


def test_bytes_stand_beside_what_is_made_of_them(broker: Broker) -> None:
    pytest.importorskip("pyarrow")
    fill(broker, b'{"id":1}', None)
    at: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers}
    columns = ["value_raw", "value", "offset"]
    table = kbatch.read_table(TOPIC, **at, columns=columns, value=formats.Json())
    assert table.column_names == columns
    assert table["value_raw"].to_pylist() == [b'{"id":1}', None]
    assert table["value"].to_pylist() == [{"id": 1}, None]
    bare = kbatch.read_table(TOPIC, **at, columns=["key_raw"], layout="view")
    assert bare["key_raw"].to_pylist() == [b"k", b"k"]
    assert str(bare.schema.field("key_raw").type) == "binary_view"
    with pytest.raises(ValueError, match="needs the column 'value', which is not in columns"):
        kbatch.read_table(TOPIC, **at, columns=["value_raw"], value=formats.Json())
