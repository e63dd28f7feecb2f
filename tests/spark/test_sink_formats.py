"""The formats of a write: what its options mean, and rows as bytes, judged by confluent-kafka's deserializers
and by kbatch's own reads.
"""

from __future__ import annotations

import json
import pickle
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from kbatch import Producer
from kbatch.errors import SchemaRegistryError
from kbatch.spark.data_source import KbatchDataSource
from kbatch.spark.exactly_once import Digest
from kbatch.spark.sink_formats import Serializers, read_sink_formats, serializers_of, with_bytes
from kbatch.spark.sink_rows import RowSender, TaskReport
from kbatch.testing import Broker
from tests.spark.sinks import Sink, finish, new_sink
from tests.support.registry import Registry
from tests.support.shop import ORDER, SHOP

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what confluent_kafka imports
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
    from confluent_kafka.serialization import MessageField, SerializationContext

AVRO = """{"type": "record", "name": "Order", "namespace": "shop", "fields": [
    {"name": "id", "type": "long"},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
    {"name": "note", "type": ["null", "string"], "default": null}
]}"""
OLDER = AVRO.replace(',\n    {"name": "note", "type": ["null", "string"], "default": null}', "")
MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
ROW = {"id": 2**40, "price": Decimal("1.10"), "at": MOMENT, "tags": ["a", "b"], "note": None}
ARROW = pa.struct(
    [
        ("id", pa.int64()),
        ("price", pa.decimal128(9, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
        ("note", pa.string()),
    ]
)
SPARK = StructType(
    [
        StructField("id", LongType()),
        StructField("price", DecimalType(9, 2)),
        StructField("at", TimestampType()),
        StructField("tags", ArrayType(StringType())),
        StructField("note", StringType()),
    ]
)
GIVEN = {"kafka.bootstrap.servers": "localhost:9092", "topic": "orders"}


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as running:
        yield running


def serializers(
    options: dict[str, str], value: DataType, topic: str | None = "orders", **others: DataType
) -> Serializers:
    """Return what tasks get: the driver's result, pickled."""
    schema = StructType([StructField(name, kind) for name, kind in {**others, "value": value}.items()])
    made = serializers_of(read_sink_formats(options, topic), schema, topic)
    return pickle.loads(pickle.dumps(made))  # type: ignore[no-any-return]


def written(made: Serializers, rows: list[Any], kind: pa.DataType, **arguments: bool) -> list[bytes | None]:
    batch = pa.record_batch({"value": pa.array(rows, kind)})
    return list(with_bytes(batch, made, **arguments).column("value").to_pylist())


def confluent(registry: Registry) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry.url})


def context(topic: str = "orders") -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


# Options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"value.format": "xml"}, "option 'value.format' must be one of binary, string"),
        ({"value.schema": "a INT"}, "'value.schema' has no use in a write with value.format=binary"),
        (
            {"value.format": "json", "value.schema": "a INT"},
            "'value.schema' has no use in a write with value.format=json",
        ),
        (
            {"key.format": "avro", "key.message": "M"},
            "'key.message' has no use in a write with key.format=av",
        ),
        ({"value.format": "avro"}, "value.format=avro needs the Avro schema as JSON, or the option"),
        ({"value.format": "protobuf"}, "value.format=protobuf needs a file of protoc"),
        ({"value.format": "protobuf", "value.schema": "a.pb"}, "'value.message' is missing: name a message"),
        (
            {"value.format": "protobuf", "value.schema": "a.pb", "value.message": "M"},
            "the file 'a.pb' cannot be read",
        ),
        ({"value.format": "avro", "value.schema": '"int"', "value.subject": "s"}, "subject' needs 'schema.r"),
        ({"value.format": "avro", "value.schema": '"int"', "value.register": "true"}, "ter' needs 'schema.r"),
        (
            {"value.format": "avro", "schema.registry.url": "http://a", "value.register": "true"},
            "option 'value.register' registers 'value.schema', which is missing",
        ),
        (
            {"value.format": "avro", "value.schema": '"int"', "value.register": "yes"},
            "option 'value.register' must be true or false, got 'yes'",
        ),
        ({"schema.registry.url": "http://a"}, "option 'schema.registry.url' has no use without 'key.format'"),
    ],
    ids=str,
)
def test_wrong_options_name_the_remedy(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError) as raised:
        read_sink_formats(options, "orders")
    assert message in str(raised.value)


def test_topics_in_a_column_need_a_subject() -> None:
    options = {"value.format": "avro", "schema.registry.url": "http://a"}
    with pytest.raises(ValueError, match=r"'value\.subject' is missing: topics are in a column"):
        read_sink_formats(options, None)
    assert read_sink_formats({**options, "value.subject": "s"}, None)["value"].subject == "s"


@pytest.mark.parametrize(
    ("options", "kind", "error", "message"),
    [
        ({"value.format": "avro", "value.schema": AVRO}, LongType(), TypeError, "'value' is of int64, which"),
        (
            {"value.format": "avro", "value.schema": AVRO},
            StructType([StructField("id", LongType())]),
            TypeError,
            "which Avro does not take for",
        ),
        ({"value.format": "avro", "value.schema": "{"}, SPARK, ValueError, "value.format=avro: "),
        ({"value.format": "int"}, StringType(), TypeError, "must be of integers for Int32, got string"),
        ({"value.format": "double"}, LongType(), TypeError, "must be of floats for Float64, got int64"),
        (
            {"value.format": "json"},
            VariantType(),
            TypeError,
            "'value' is of variant, which no format has",
        ),
        ({"key.format": "long"}, StringType(), ValueError, "'key.format' has no use without a column 'key'"),
    ],
    ids=str,
)
def test_driver_refuses_types(
    options: dict[str, str], kind: DataType, error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as raised:
        serializers(options, kind)
    assert message in str(raised.value)


def test_type_of_a_column_without_a_format_names_the_option() -> None:
    with pytest.raises(TypeError, match=r"must be a\(n\) string or binary; or set value\.format"):
        KbatchDataSource(GIVEN).writer(StructType([StructField("value", SPARK)]), overwrite=False)


# Bytes


def test_numbers_and_text_are_those_of_javas_serializers() -> None:
    cases: list[tuple[str, DataType, pa.DataType, Any, bytes]] = [
        ("short", IntegerType(), pa.int32(), -2, b"\xff\xfe"),
        ("int", LongType(), pa.int64(), 1, b"\0\0\0\1"),
        ("long", LongType(), pa.int64(), -1, b"\xff" * 8),
        ("float", DoubleType(), pa.float64(), 1.5, b"\x3f\xc0\0\0"),
        ("double", DoubleType(), pa.float64(), -2.0, b"\xc0" + bytes(7)),
        ("string", LongType(), pa.int64(), 12, b"12"),
        ("binary", StringType(), pa.string(), "text", b"text"),
    ]
    for name, kind, arrow, value, data in cases:
        made = serializers({"value.format": name}, kind)
        found = written(made, [value, None], arrow)
        assert [each.encode() if isinstance(each, str) else each for each in found] == [data, None]


def test_json_has_all_members() -> None:
    (found, null) = written(serializers({"value.format": "json"}, SPARK), [ROW, None], ARROW)
    assert found == (
        b'{"id":1099511627776,"price":1.10,"at":"2026-01-02T03:04:05.678901Z","tags":["a","b"],"note":null}'
    )
    assert null is None


def test_avro_is_read_by_confluents_deserializer(registry: Registry) -> None:
    registry.add("other", '"string"')
    options = {
        "value.format": "avro",
        "value.schema": AVRO,
        "value.register": "true",
        "schema.registry.url": registry.url,
    }
    made = serializers(options, SPARK)
    count = len(registry.requests)
    found, null = written(made, [ROW, None], ARROW)
    assert found is not None and found[:5] == b"\0\0\0\0\2"
    assert null is None
    assert len(registry.requests) == count  # the driver has asked
    assert AvroDeserializer(confluent(registry))(found, context()) == ROW


def test_schema_that_is_not_registered_says_how_to(registry: Registry) -> None:
    options = {"value.format": "avro", "value.schema": AVRO, "schema.registry.url": registry.url}
    with pytest.raises(SchemaRegistryError) as raised:
        serializers(options, SPARK)
    assert raised.value.__notes__ == ["option 'value.register' = 'true' registers a schema that is not there"]
    registry.add("orders-value", json.loads(AVRO))  # as its text is compared
    assert serializers(options, SPARK)


def test_latest_schema_of_the_subject_is_written(registry: Registry) -> None:
    registry.add("orders-value", OLDER)
    registry.add("orders-value", AVRO)
    made = serializers({"value.format": "avro", "schema.registry.url": registry.url}, SPARK)
    (found,) = written(made, [ROW], ARROW)
    assert found is not None and found[:5] == b"\0\0\0\0\2"
    assert AvroDeserializer(confluent(registry))(found, context()) == ROW


def test_references_are_not_needed_by_tasks(registry: Registry) -> None:
    registry.add("line", '{"type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}]}')
    registry.add(
        "orders-value",
        '{"type": "record", "name": "Order", "fields": [{"name": "line", "type": "Line"}]}',
        references=[{"name": "Line", "subject": "line", "version": 1}],
    )
    kind = StructType([StructField("line", StructType([StructField("sku", StringType())]))])
    made = serializers({"value.format": "avro", "schema.registry.url": registry.url}, kind)
    count = len(registry.requests)
    arrow = pa.struct([("line", pa.struct([("sku", pa.string())]))])
    assert written(made, [{"line": {"sku": "x"}}], arrow) == [b"\0\0\0\0\2\2x"]
    assert len(registry.requests) == count


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.pb"
    path.write_bytes(SHOP)
    return path


SHOP_SPARK = StructType(
    [
        StructField("id", DecimalType(20, 0)),  # as a read has 64-bit unsigned integers
        StructField("at", TimestampType()),
    ]
)
SHOP_ARROW = pa.struct([("id", pa.decimal128(20, 0)), ("at", pa.timestamp("us", "UTC"))])


def test_protobuf_is_read_by_confluents_deserializer(registry: Registry, shop: Path) -> None:
    options = {
        "value.format": "protobuf",
        "value.schema": str(shop),
        "value.message": "shop.Order",
        "value.register": "true",
        "schema.registry.url": registry.url,
    }
    made = serializers(options, SHOP_SPARK)
    rows = [{"id": Decimal(2**64 - 1), "at": MOMENT}, {"id": None, "at": None}, None]
    found, empty, null = written(made, rows, SHOP_ARROW)
    read = ProtobufDeserializer(ORDER, {"use.deprecated.format": False}, confluent(registry))
    message = read(found, context())
    assert (message.id, message.at.ToDatetime(UTC)) == (2**64 - 1, MOMENT)
    assert read(empty, context()) == ORDER()
    assert null is None


@pytest.mark.parametrize("message", [{}, {"value.message": "shop.Order"}], ids=["first", "named"])
def test_protobuf_of_the_subjects_latest_schema(
    registry: Registry, shop: Path, message: dict[str, str]
) -> None:
    known = {"value.format": "protobuf", "value.schema": str(shop), "value.message": "shop.Order"}
    url = {"schema.registry.url": registry.url}
    serializers({**known, **url, "value.register": "true"}, SHOP_SPARK)
    made = serializers({"value.format": "protobuf", **url, **message}, SHOP_SPARK)
    (found,) = written(made, [{"id": Decimal(7), "at": None}], SHOP_ARROW)
    assert found == b"\0\0\0\0\1\0" + ORDER(id=7).SerializeToString()


def test_field_that_a_message_lacks_is_an_error_of_the_driver(shop: Path) -> None:
    options = {"value.format": "protobuf", "value.schema": str(shop), "value.message": "shop.Order"}
    with pytest.raises(ValueError, match=r"the message shop\.Order has no field for 'colour'"):
        serializers(options, StructType([StructField("colour", StringType())]))
    with pytest.raises(TypeError, match=r"'value' is of string, and the message shop\.Order needs a column"):
        serializers(options, StringType())


# Rows


@pytest.mark.parametrize("topic", ["t", None], ids=["option", "column"])
def test_row_that_its_format_refuses_is_named(topic: str | None) -> None:
    made = serializers({"value.format": "avro", "value.schema": '"long"'}, LongType(), key=StringType())
    with (
        Broker({"t": 1}) as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0) as producer,
    ):
        rows = RowSender(producer, TaskReport(5, 0), topic, made)
        topics = {} if topic else {"topic": ["t", "t"]}
        rows.send(pa.record_batch({"value": pa.array([1, 2]), **topics}))
        rows.send(pa.record_batch({"value": pa.array([], pa.int64()), **{name: [] for name in topics}}))
        union = serializers({"value.format": "short"}, LongType())
        rows._serializers = union
        with pytest.raises(ValueError, match=r"^Spark partition 5, row 3: column 'value': 70000 is beyond"):
            rows.send(pa.record_batch({"value": pa.array([1, 70000]), **topics}))
        rows.flush()
        assert [record.value for record in broker.records("t")] == [b"\2", b"\4"]


def test_digest_does_not_depend_on_the_schema(registry: Registry) -> None:
    """A repeated micro-batch has the subject's latest schema, which may be another one."""

    def digest(rows: list[Any]) -> int:
        options = {"value.format": "avro", "schema.registry.url": registry.url}
        made = serializers(options, SPARK)
        found = Digest("orders", 0, made)
        found.add(pa.record_batch({"value": pa.array(rows, ARROW)}))
        return found.value

    registry.add("orders-value", AVRO)
    first = digest([ROW, None])
    registry.add("orders-value", AVRO.replace('"default": null}', '"default": null, "doc": "new"}'))
    assert digest([None, ROW]) == first
    assert digest([{**ROW, "id": 1}, None]) != first


def test_writer_that_only_commits_asks_no_registry(registry: Registry) -> None:
    options = {**GIVEN, "value.format": "avro", "value.schema": AVRO, "schema.registry.url": registry.url}
    source = KbatchDataSource(options)
    schema = StructType([StructField("value", SPARK)])
    with pytest.raises(SchemaRegistryError):
        source.streamWriter(schema, overwrite=False)
    count = len(registry.requests)
    pickle.loads(pickle.dumps(source)).streamWriter(schema, overwrite=False)
    assert len(registry.requests) == count


# In a session


def orders(spark: SparkSession, count: int = 100) -> DataFrame:
    """Return rows of a struct, every seventh without a key."""
    return spark.range(0, count, 1, 3).selectExpr(
        "CASE WHEN id % 7 > 0 THEN id END AS key",
        "named_struct('id', id, 'price', CAST(id / 100 AS DECIMAL(9, 2)), "
        "'at', timestamp_micros(id * 1000003), 'tags', array(CAST(id AS STRING)), "
        "'note', CASE WHEN id % 2 > 0 THEN 'odd' END) AS value",
    )


def read_back(spark: SparkSession, sink: Sink, **options: str) -> DataFrame:
    given = {name.replace("__", "."): value for name, value in options.items()}
    frame = spark.read.format("kbatch").option("kafka.bootstrap.servers", sink.brokers)
    return frame.option("subscribe", sink.topic).options(**given).load().select("key", "value")


def same(frame: DataFrame, other: DataFrame) -> None:
    assert sorted(map(repr, frame.collect())) == sorted(map(repr, other.collect()))


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_avro_frames_are_read_back(
    spark: SparkSession, embedded: Sink, registry: Registry, delivery: str
) -> None:
    sink = embedded
    registry.add(f"{sink.topic}-value", AVRO)
    options: dict[str, Any] = {
        "value__format": "avro",
        "key__format": "long",
        "schema__registry__url": registry.url,
    }
    rows = orders(spark)
    write = sink.write if delivery == "at_least_once" else sink.write_once
    write(rows, **options)
    if delivery == "exactly_once":
        write(rows, **options)  # which is found to be there
    same(read_back(spark, sink, **options), rows)
    read = AvroDeserializer(confluent(registry))
    found = {value["id"]: (key, value) for key, value in _pairs(sink, read)}
    assert len(found) == 100
    key, value = found[8]
    assert key == (8).to_bytes(8, "big")
    assert value == {"id": 8, "price": Decimal("0.08"), "at": _moment(8), "tags": ["8"], "note": None}


def _pairs(sink: Sink, read: AvroDeserializer) -> Iterator[tuple[bytes | None, Any]]:
    for record in sink.read():
        yield record.key, read(record.value, context(sink.topic))


def _moment(number: int) -> datetime:
    return datetime.fromtimestamp(0, UTC).replace(microsecond=number * 3 % 10**6, second=number)


@pytest.fixture
def embedded(embedded_bootstrap_servers: str) -> Sink:
    """Return a topic of the embedded broker, for what is the same with every broker."""
    return new_sink(embedded_bootstrap_servers)


def test_json_and_protobuf_are_read_back(spark: SparkSession, embedded: Sink, shop: Path) -> None:
    rows = orders(spark, 100).selectExpr("CAST(key AS STRING) AS key", "value")
    embedded.write(rows, value__format="json", key__format="string")
    fields = "id BIGINT, price DECIMAL(9,2), at TIMESTAMP, tags ARRAY<STRING>, note STRING"
    same(read_back(spark, embedded, value__format="json", value__schema=fields, key__format="string"), rows)
    other = new_sink(embedded.brokers)
    messages = spark.range(100).selectExpr(
        "CAST(id AS INT) AS key",
        "named_struct('id', CAST(id AS DECIMAL(20, 0)), 'labels', map('a', id), "
        "'at', timestamp_micros(id), 'took', make_dt_interval(0, 0, 0, id)) AS value",
    )
    options = {
        "value__format": "protobuf",
        "value__schema": str(shop),
        "value__message": "shop.Order",
        "key__format": "int",
    }
    other.write(messages, **options)
    found = read_back(spark, other, **options).orderBy("key").collect()
    assert found == messages.orderBy("key").collect()


def test_stream_writes_frames(
    spark: SparkSession, embedded: Sink, registry: Registry, tmp_path: Path
) -> None:
    sink = embedded
    registry.add(f"{sink.topic}-value", AVRO)
    source = tmp_path / "rows"
    rows = orders(spark, 100)
    rows.write.parquet(str(source))
    stream = spark.readStream.schema(rows.schema).option("maxFilesPerTrigger", 1).parquet(str(source))
    options = sink.options(
        value__format="avro",
        key__format="long",
        schema__registry__url=registry.url,
        delivery="exactly_once",
        checkpointLocation=str(tmp_path / "checkpoint"),
    )
    finish(stream.writeStream.format("kbatch").options(**options).trigger(availableNow=True))
    same(
        read_back(spark, sink, value__format="avro", key__format="long", schema__registry__url=registry.url),
        rows,
    )
    found = {value["id"] for _, value in _pairs(sink, AvroDeserializer(confluent(registry)))}
    assert found == set(range(100))


def test_wrong_row_fails_the_job_by_its_name(spark: SparkSession, embedded: Sink) -> None:
    rows = spark.range(0, 10, 1, 1).selectExpr("CASE WHEN id = 7 THEN NULL ELSE id END AS id")
    with pytest.raises(PySparkException, match=r"Spark partition 0, row 7: column 'value': .*not take None"):
        embedded.write(
            rows.selectExpr("named_struct('id', id) AS value"),
            value__format="avro",
            value__schema='{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}',
        )


def test_registry_url_may_be_invalid() -> None:
    with pytest.raises(ValueError, match=r"option 'schema\.registry\.url': url must be http"):
        serializers({"value.format": "avro", "schema.registry.url": "ftp://a"}, SPARK)
