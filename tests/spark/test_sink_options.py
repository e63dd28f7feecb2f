"""The options of the sink `kbatch`, and what it refuses before any task; without a session."""

from __future__ import annotations

import pickle
import re
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from kbatch.spark import data_source
from kbatch.spark.data_source import KbatchDataSource
from kbatch.spark.kafka_options import key_table
from kbatch.spark.schemas import HEADERS_TYPE
from kbatch.spark.sink_columns import ATTRIBUTES
from kbatch.spark.sink_options import BULK_SETTINGS, OPTIONS, REFUSED, SinkOptions, read_options
from tests import ROOT

VALUE = {"value": BinaryType()}
GIVEN = {"kafka.bootstrap.servers": "localhost:9092", "topic": "events"}
ONCE = {**GIVEN, "delivery": "exactly_once", "txnappid": "app", "txnversion": "3"}


def schema(**types: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


def writer(types: dict[str, Any], options: dict[str, str], *, streaming: bool = False) -> Any:
    source = KbatchDataSource(options)
    make = source.streamWriter if streaming else source.writer
    return make(schema=schema(**types), overwrite=False)


@pytest.mark.parametrize(
    "types",
    [
        VALUE,
        {"value": StringType(), "key": StringType()},
        {**VALUE, "topic": StringType(), "partition": IntegerType(), "headers": HEADERS_TYPE},
        {**VALUE, "timestamp": TimestampType()},
        {**VALUE, "timestamp": TimestampNTZType()},
        {**VALUE, "timestamp": LongType()},
    ],
    ids=lambda types: ",".join(types),
)
def test_columns_of_sparks_sink_and_timestamp(types: dict[str, Any]) -> None:
    pickle.loads(pickle.dumps(writer(types, GIVEN)))
    pickle.loads(pickle.dumps(writer(types, GIVEN, streaming=True)))


@pytest.mark.parametrize(
    ("types", "error", "message"),
    [
        ({"key": BinaryType()}, ValueError, "Required attribute 'value' not found"),
        (
            {"value": IntegerType()},
            TypeError,
            "value attribute unsupported type int. value must be a(n) string or binary",
        ),
        (
            {**VALUE, "key": LongType()},
            TypeError,
            "key attribute unsupported type bigint. key must be a(n) string or binary",
        ),
        (
            {**VALUE, "headers": MapType(StringType(), BinaryType())},
            TypeError,
            "headers attribute unsupported type map<string,binary>. headers must be a(n) array<",
        ),
        (
            {**VALUE, "headers": ArrayType(StringType())},
            TypeError,
            "headers attribute unsupported type array<string>",
        ),
        (
            {**VALUE, "partition": LongType()},
            TypeError,
            "partition attribute unsupported type bigint. partition must be a(n) int",
        ),
        (
            {**VALUE, "topic": BinaryType()},
            TypeError,
            "topic attribute unsupported type binary. topic must be a(n) string",
        ),
        ({**VALUE, "timestamp": StringType()}, TypeError, "timestamp attribute unsupported type string"),
        ({**VALUE, "offset": LongType()}, ValueError, "unknown column 'offset'"),
    ],
)
def test_columns_that_are_refused(types: dict[str, Any], error: type[Exception], message: str) -> None:
    for streaming in (False, True):
        with pytest.raises(error) as raised:
            writer(types, GIVEN, streaming=streaming)
        assert message in str(raised.value)


def test_a_topic_is_needed() -> None:
    brokers = {"kafka.bootstrap.servers": "localhost:9092"}
    with pytest.raises(ValueError, match="topic option required when no 'topic' attribute is present"):
        writer(VALUE, brokers)
    writer({**VALUE, "topic": StringType()}, brokers)


def test_unknown_columns_may_be_left_out() -> None:
    writer({**VALUE, "offset": LongType()}, {**GIVEN, "unknown.columns": "ignore"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topics": "t"}, "unknown option 'topics': did you mean 'topic'?"),
        ({"bootstrap.servers": "x:1"}, "did you mean 'kafka.bootstrap.servers'?"),
        ({"path": "/p"}, "option 'path' does not apply"),
        ({"topic": "a/b"}, "topic 'a/b' contains '/'"),
        ({"delivery": "exactly-once"}, "option 'delivery' must be at_least_once or exactly_once, got"),
        ({"kafka.lingr.ms": "1"}, "lingr.ms is not a configuration key of a producer; did you mean"),
        ({"kafka.linger.ms": "x"}, "linger.ms must be a whole number"),
        ({"kafka.key.serializer": "x"}, "Kafka option 'key.serializer' is not supported as keys are serial"),
        ({"kafka.transactional.id": "x"}, "set the option transactional.id.prefix"),
        ({"sink": "s"}, "option 'sink' is for delivery=exactly_once"),
        ({"txnappid": "s"}, "option 'txnappid' must not be set: it is for delivery=exactly_once"),
        ({"unknown.columns": "drop"}, "must be error or ignore"),
        ({"delivery": "exactly_once"}, "option 'txnappid' is missing"),
        ({"delivery": "exactly_once", "txnappid": "a"}, "option 'txnversion' is missing"),
        ({**ONCE, "txnversion": "-1"}, "option 'txnversion' must be a whole number from 0"),
        ({**ONCE, "txnversion": str(2**63)}, "option 'txnversion' must be"),
        ({**ONCE, "kafka.acks": "1"}, "delivery=exactly_once needs kafka.enable.idempotence=true"),
        ({**ONCE, "transactional.id.prefix": ""}, "option 'transactional.id.prefix' must not be empty"),
        ({**ONCE, "sink": ""}, "option 'sink' is missing"),
    ],
    ids=str,
)
def test_options_that_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError) as raised:
        writer(VALUE, {**GIVEN, **options})
    assert message in str(raised.value)


def test_brokers_are_needed() -> None:
    with pytest.raises(ValueError, match=r"option 'kafka\.bootstrap\.servers' is missing"):
        writer(VALUE, {"topic": "t"})


def test_modes_that_are_refused_say_what_to_do() -> None:
    source = KbatchDataSource(GIVEN)
    with pytest.raises(ValueError, match=r"Save mode Overwrite not allowed .*\.mode\('append'\)"):
        source.writer(schema(**VALUE), overwrite=True)
    with pytest.raises(ValueError, match=r"complete is not allowed .*\.outputMode\('append'\)"):
        source.streamWriter(schema(**VALUE), overwrite=True)


def test_a_stream_has_its_own_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_source, "check_topics", lambda options: None)  # which asks brokers
    with pytest.raises(ValueError, match="a streaming query has its own id and batch"):
        writer(VALUE, ONCE, streaming=True)
    of_spark = {"checkpointLocation": "/tmp/c", "queryName": "q"}
    writer(VALUE, {**GIVEN, **of_spark, "delivery": "exactly_once"}, streaming=True)


def read(**options: str) -> SinkOptions:
    return read_options({**GIVEN, **options}, streaming=False)


def test_settings_are_those_for_bulk_unless_given() -> None:
    assert dict(read().settings) == {
        "linger.ms": 20,
        "batch.size": 262_144,
        "compression.type": "lz4",
        "bootstrap.servers": "localhost:9092",
    }
    given = {"kafka.linger.ms": "0", "kafka.compression.codec": "zstd"}
    settings = read(**given).settings
    assert settings["linger.ms"] == "0"
    assert "compression.type" not in settings


def test_the_page_for_users_has_every_option_and_column() -> None:
    page = (ROOT / "docs" / "spark.md").read_text()
    page = re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)
    named = set(re.findall(r"`([^`]+)`", page))
    assert {*OPTIONS, *ATTRIBUTES} <= named
    assert key_table(REFUSED, {}) in page
    for setting, value in BULK_SETTINGS.items():
        assert re.search(rf"`kafka\.{re.escape(setting)}`( is)? {value}\b", page)


def test_topics_in_a_column_need_names_for_what_is_kept() -> None:
    brokers = {name: value for name, value in ONCE.items() if name != "topic"}
    with pytest.raises(ValueError, match="option 'sink' is missing"):
        read_options(brokers, streaming=False)
    with pytest.raises(ValueError, match=r"option 'marker\.topic' is missing"):
        read_options({**brokers, "sink": "s"}, streaming=False)
    options = read_options({**brokers, "sink": "s", "marker.topic": "m"}, streaming=False)
    assert (options.topic, options.sink, options.marker_topic) == (None, "s", "m")
    assert options.settings["transaction.timeout.ms"] == 900_000
