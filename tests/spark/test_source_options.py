"""Options of a read: defaults, refusals with Spark's texts, columns and formats."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
    VariantType,
    YearMonthIntervalType,
)

from kbatch.consumer.topic_reader import TopicReader
from kbatch.records import TopicPartition
from kbatch.spark.kafka_options import key_table
from kbatch.spark.source_columns import check_types, kbatch_columns, sql_schema
from kbatch.spark.source_options import (
    IGNORED,
    OPTIONS,
    REFUSED,
    SourceOptions,
    read_frame_options,
    read_source_options,
)
from tests.support.registry import Registry
from tests.support.shop import FILE, ORDER, SHOP

NEEDED = {"kafka.bootstrap.servers": "a:9092", "subscribe": "t"}


def read(given: Mapping[str, str | None], *, streaming: bool = False) -> SourceOptions:
    merged = {**NEEDED, **given}
    return read_source_options(
        {name: value for name, value in merged.items() if value is not None}, streaming=streaming
    )


def test_R97_defaults_are_those_of_spark() -> None:
    batch, stream = read({}), read({}, streaming=True)
    assert (batch.starting.kind, batch.ending.kind) == ("earliest", "latest")
    assert stream.starting.kind == "latest"
    assert batch.fails_on_data_loss
    assert stream.max_trigger_delay_ms == 15 * 60_000
    names = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    assert batch.columns == names
    assert read({"includeHeaders": "true"}).columns == (*names, "headers")


WRONG = [
    ({"subscribe": None}, "One of the following options must be specified for Kafka source: assign, sub"),
    ({"assign": '{"t":[0]}'}, "Only one of the following options can be specified for Kafka source"),
    ({"subscribe": " , "}, "No topics to subscribe to as specified value for option 'subscribe'"),
    ({"subscribe": None, "assign": "t"}, r'Expected e.g. \{"topicA":\[0,1\]'),
    ({"subscribe": None, "assign": "{}"}, "No topicpartitions to assign"),
    ({"subscribe": None, "subscribePattern": " "}, "Pattern to subscribe is empty"),
    ({"subscribe": None, "subscribePattern": "("}, "must be a regular expression"),
    ({"kafka.bootstrap.servers": None}, "Option 'kafka.bootstrap.servers' must be specified"),
    ({"kafka.auto.offset.reset": "latest"}, "set the source option 'startingOffsets'"),
    ({"kafka.key.deserializer": "x"}, "keys are deserialized as byte arrays with ByteArrayDeserializer"),
    ({"kafka.value.deserializer": "x"}, "values are deserialized as byte arrays"),
    ({"kafka.enable.auto.commit": "true"}, "Kafka option 'enable.auto.commit' is not supported"),
    ({"kafka.fetch.min.byte": "1"}, "fetch.min.bytes"),
    ({"startingOffset": "latest"}, "did you mean 'startingOffsets'"),
    ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries"),
    ({"startingOffsets": '{"t":{"0":-1}}'}, "startingOffsets for t-0 can't be latest"),
    ({"endingOffsets": "earliest"}, "ending offset can't be earliest for batch queries"),
    ({"endingOffsets": '{"t":{"0":-2}}'}, "ending offset for t-0 can't be earliest"),
    ({"startingOffsets": "early"}, r'Expected e.g. \{"topicA":\{"0":23,"1":-1\}'),
    (
        {"subscribe": None, "subscribePattern": "[a-z&&[^x]]"},
        r"an intersection of classes \(&&\) at position 4",
    ),
    ({"startingOffsets": '{"t":{"0":-7}}'}, "t-0 has -7; a number is at least -2 "),
    ({"startingOffsets": '{"t":{"0":1.5}}'}, "Expected e.g."),
    ({"startingOffsets": '{"t":{"-1":1}}'}, "Expected e.g."),
    ({"endingOffsets": '{"t":{"0":-3}}'}, "option 'endingOffsets': t-0 has -3"),
    ({"startingTimestamp": "-5"}, "and not negative"),
    ({"startingOffsetsByTimestamp": '{"t":{"0":-5}}'}, "t-0 has -5; a number is at least 0"),
    ({"kafkaConsumer.pollTimeoutMs": "0"}, "kafkaConsumer.pollTimeoutMs must be positive"),
    ({"startingTimestamp": "now"}, "Expected a single long value, got now"),
    ({"startingOffsetsByTimestampStrategy": "x"}, "must be error or latest"),
    (
        {"startingOffsets": '{"t":{"0":5}}', "endingOffsets": '{"t":{"0":4}}'},
        "t-0 starts at 5 and ends at 4",
    ),
    (
        {"startingOffsets": '{"t":{"0":5}}', "endingOffsets": '{"t":{"1":9}}'},
        "only one side has t-0, t-1",
    ),
    ({"minPartitions": "0"}, "minPartitions must be positive"),
    ({"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger must be positive"),
    ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, r"minOffsetPerTrigger\(9\) is higher"),
    ({"maxTriggerDelay": "soon"}, "must be a time such as 30s"),
    ({"failOnDataLoss": "perhaps"}, "must be true or false"),
    ({"columns": "value,text"}, "there is no column 'text'; the columns are key, value"),
    ({"columns": "value,value"}, "must name each column once"),
    ({"value.format": "xml"}, "must be one of binary, string"),
    ({"value.format": "json"}, "option 'value.schema' is missing"),
    ({"value.schema": "a INT"}, "has no use with value.format=binary"),
    ({"value.format": "avro"}, "or the option 'schema.registry.url'"),
    ({"value.format": "avro", "value.schema": "{"}, "option 'value.schema' is not a valid avro schema"),
    ({"value.format": "protobuf"}, "value.format=protobuf needs a file of protoc"),
    ({"value.format": "protobuf", "value.schema": "a.pb"}, "'value.message' is missing: name a message"),
    ({"key.format": "protobuf", "key.schema": "/no", "key.message": "M"}, "'/no' cannot be read: No such"),
    ({"value.message": "M"}, "option 'value.message' has no use with value.format=binary"),
    ({"value.subject": "s"}, "option 'value.subject' has no use with value.format=binary"),
    ({"value.format": "avro", "value.schema": '"int"', "value.subject": "s"}, "no use with value.schema"),
    (
        {"subscribe": "t,u", "value.format": "avro", "schema.registry.url": "http://a"},
        "option 'value.subject' is missing: value.format=avro without value.schema",
    ),
    ({"value.format": "avro", "schema.registry.url": "ftp://a"}, "option 'schema.registry.url': url must be"),
    ({"maxBytesPerTrigger": "1g"}, "maxBytesPerTrigger must be positive"),
    ({"isolation": "read_committed", "kafka.isolation.level": "read_uncommitted"}, "contradict each other"),
]


@pytest.mark.parametrize(("given", "text"), WRONG, ids=[text[:40] for _, text in WRONG])
def test_R97_wrong_option_is_refused(given: dict[str, str | None], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        read(given)


def test_keys_of_groups_are_accepted_without_an_effect(caplog: pytest.LogCaptureFixture) -> None:
    keys = dict.fromkeys(IGNORED, "1")
    assert keys.keys() >= {
        "group.id",
        "max.poll.records",
        "session.timeout.ms",
        "partition.assignment.strategy",
    }
    options = read({f"kafka.{name}": value for name, value in keys.items()} | {"kafka.fetch.min.bytes": "2"})
    assert not options.settings.keys() & keys.keys() and options.settings["fetch.min.bytes"] == "2"
    (record,) = caplog.records
    assert all(f"kafka.{name}" in record.getMessage() for name in keys)
    TopicReader(options.settings).close()


def test_page_has_every_option_and_key() -> None:
    page = Path(__file__).parents[2].joinpath("docs", "spark.md").read_text()
    assert key_table(REFUSED, IGNORED) in page
    described = set(re.findall(r"`([\w.]+)`", page))
    assert set(OPTIONS) <= described


def test_poll_timeout_bounds_tasks() -> None:
    options = read({"kafkaConsumer.pollTimeoutMs": "2500"})
    assert options.task_settings["default.api.timeout.ms"] == "2500"
    assert "default.api.timeout.ms" not in options.settings


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_stream_has_no_end(name: str) -> None:
    with pytest.raises(ValueError, match="not valid in streaming queries"):
        read({name: "1"}, streaming=True)


def test_places_and_settings_are_read() -> None:
    options = read(
        {
            "subscribe": None,
            "assign": '{"t":[0,2]}',
            "startingOffsets": '{"t":{"0":23,"2":-2}}',
            "isolation": "read_committed",
            "maxTriggerDelay": "30s",
        }
    )
    assert options.assigned == {TopicPartition("t", 0), TopicPartition("t", 2)}
    assert options.starting.by_partition == {TopicPartition("t", 0): 23, TopicPartition("t", 2): -2}
    assert options.settings["isolation.level"] == "read_committed"
    assert options.max_trigger_delay_ms == 30_000


def test_columns_and_formats_make_the_schema() -> None:
    columns, formats = read_frame_options(
        {"columns": "Value, offset", "value.format": "json", "value.schema": "id BIGINT, name STRING"}
    )
    assert columns == ("value", "offset")
    assert sql_schema(columns, formats) == "`value` STRUCT<id BIGINT, name STRING>, `offset` BIGINT"


def test_members_of_json_only_may_be_kept() -> None:
    given = {"value.format": "json", "value.schema": "a INT", "on.malformed": "fields"}
    columns, formats = read_frame_options({"columns": "value", **given})
    assert columns == ("value", "value_error")
    made = formats["value"].format(pa.struct([("a", pa.int32()), ("b", pa.float64())]))
    values, reasons = made.column_deserializer(None, "value")(pa.array([b'{"a": "x", "b": "NaN"}', b"[]"]))
    assert str(values[0].as_py()) == "{'a': None, 'b': nan}"
    assert values[1].as_py() is None and reasons.null_count == 0
    with pytest.raises(ValueError, match=r"'fields' is for json, and value\.format is long; set 'column'"):
        read_frame_options({"value.format": "long", "on.malformed": "fields"})


def test_local_times_of_avro_have_no_zone() -> None:
    """Spark's to_avro makes them of TIMESTAMP_NTZ."""
    fields = [
        {"name": name, "type": {"type": "long", "logicalType": f"{name}timestamp-micros".replace("_", "-")}}
        for name in ("local_", "")
    ]
    fields[1]["name"] = "at"
    schema = json.dumps({"type": "record", "name": "R", "fields": fields})
    columns, formats = read_frame_options(
        {"columns": "value", "value.format": "avro", "value.schema": schema}
    )
    assert sql_schema(columns, formats) == "`value` struct<local_:timestamp_ntz,at:timestamp>"


def test_message_of_a_file_makes_the_schema(tmp_path: Path) -> None:
    path = tmp_path / "shop.pb"
    path.write_bytes(SHOP)
    options = {"value.format": "protobuf", "value.schema": str(path), "value.message": "shop.Order"}
    columns, formats = read_frame_options({"columns": "value", **options})
    assert sql_schema(columns, formats) == (
        "`value` struct<id:decimal(20,0),labels:map<string,bigint>,at:timestamp,took:interval day to second>"
    )
    path.unlink()  # tasks have its bytes
    made = formats["value"].format(pa.null()).column_deserializer(None, "value")
    assert made(pa.array([ORDER(id=3).SerializeToString()])).to_pylist()[0]["id"] == 3
    path.write_bytes(SHOP[:-1])
    with pytest.raises(
        ValueError, match=r"option 'value\.schema' is not a valid protobuf schema: the bytes are not"
    ):
        read({**options})
    path.write_bytes(SHOP)
    with pytest.raises(ValueError, match=r"has no message 'shop\.Parcel'; it has google\..*shop\.Order"):
        read({**options, "value.message": "shop.Parcel"})


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (VariantType(), "value.a.b is variant, which is not supported"),
        (ArrayType(YearMonthIntervalType()), r"value.a.b.element is interval year to month, which is"),
        (MapType(StringType(), CalendarIntervalType()), "value.a.b.value is interval, which is not"),
    ],
)
def test_type_that_no_value_is_made_of_is_refused_on_the_driver(kind: DataType, text: str) -> None:
    formats = read({"value.format": "json", "value.schema": "a INT"}).formats
    inner = StructType([StructField("b", kind)])
    schema = StructType([StructField("value", StructType([StructField("a", inner)]))])
    with pytest.raises(ValueError, match=f"option 'value.schema': {text}"):
        check_types(schema, formats)


def test_null_of_a_malformed_value_needs_a_column_that_takes_it() -> None:
    schema = StructType([StructField("value", StructType([StructField("a", StringType(), False)]))])
    given = {"value.format": "json", "value.schema": "a STRING NOT NULL"}
    check_types(schema, read(given).formats)
    with pytest.raises(ValueError, match=r"value\.a is NOT NULL, but on.malformed=null makes nulls"):
        check_types(schema, read({**given, "on.malformed": "null"}).formats)


def test_columns_of_bytes_and_reasons_follow_theirs() -> None:
    given = {"value.format": "string", "key.format": "long", "key.raw": "true", "on.malformed": "column"}
    columns, formats = read_frame_options(given)
    assert columns[:5] == ("key", "key_error", "key_raw", "value", "value_error")
    assert sql_schema(columns[:5], formats) == (
        "`key` BIGINT, `key_error` STRING, `key_raw` BINARY, `value` STRING, `value_error` STRING"
    )
    assert kbatch_columns(columns[:5]) == ("key", "key_raw", "value")
    assert read_frame_options({**given, "columns": "offset"}).columns == ("offset",)
    with pytest.raises(ValueError, match=r"option 'value\.raw' has no use without value\.format"):
        read_frame_options({"value.raw": "true"})
    with pytest.raises(ValueError, match="must be raise or null or column or fields, got 'drop'"):
        read_frame_options({**given, "on.malformed": "drop"})


def test_latest_schema_of_a_subject_is_used() -> None:
    with Registry() as registry:
        registry.add("t-value", base64.b64encode(FILE.SerializeToString()).decode(), "PROTOBUF")
        registry.add("keys", {"type": "record", "name": "K", "fields": [{"name": "a", "type": "int"}]})
        columns, formats = read_frame_options(
            {
                "columns": "key,value",
                "subscribe": "t",
                "value.format": "protobuf",
                "key.format": "avro",
                "key.subject": "keys",
                "schema.registry.url": registry.url,
            }
        )
    assert sql_schema(columns, formats).startswith("`key` struct<a:int>, `value` struct<id:decimal(20,0),")
    assert formats["value"].message == "shop.Order"
