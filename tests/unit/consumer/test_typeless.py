"""Columns whose types values say: topics that begin with tombstones, or with values that cannot be read, by
every way to read them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import polars
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from click.testing import CliRunner

import kbatch
from kbatch.cli.commands import kbatch as command
from kbatch.consumer import projection
from kbatch.errors import DeserializationError, SchemaRegistryError, TypeNotKnownError
from kbatch.formats import Avro, Format, Protobuf
from kbatch.formats.reading import ColumnDeserializer, Json
from kbatch.testing import Broker
from tests.support.patience import HANG_SECONDS
from tests.support.registry import Registry

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "a", "type": "int"}]}
GARBAGE = b"garbage"
REASON = "Expecting value: line 1 column 1 (char 0)"
STRUCT = {"json": pa.struct([("a", pa.int64())]), "avro": pa.struct([("a", pa.int32())])}
ROWS_OF_SAMPLE = 1000
# What libraries raise for the error of a stream.
FOREIGN_ERRORS = (duckdb.Error, polars.exceptions.ComputeError, pa.ArrowException)


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as running:
        running.add("orders-value", ORDER)
        yield running


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def topic_of(broker: Broker, request: pytest.FixtureRequest, *partitions: list[bytes | None]) -> str:
    """Return a topic of the test's own, with these values by partition."""
    name = "".join(each if each.isalnum() else "-" for each in request.node.name)
    broker.create_topic(name, len(partitions))
    with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for partition, values in enumerate(partitions):
            for value in values:
                producer.send(name, value, partition=partition)
    return name


def good(kind: str, number: int = 7) -> bytes:
    if kind == "json":
        return b'{"a": %d}' % number
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(ORDER), {"a": number})
    return struct.pack(">bI", 0, 1) + stream.getvalue()


def deserializer(kind: str, registry: Registry, errors: Any = "raise") -> ColumnDeserializer:
    if kind == "json":
        return Json(errors=errors)
    kinds: dict[str, Any] = {"avro": Avro, "protobuf": Protobuf}
    format: Format[Any] = kinds[kind](registry=registry.client(), on_error=errors)
    return format.column_deserializer(None, "value")


# Ways to read a topic: the type of its values, how many there are, and how many are not null.


def by_read_table(topic: str, value: ColumnDeserializer, at: dict[str, Any], folder: Path) -> Any:
    column = kbatch.read_table(topic, value=value, **at)["value"]
    return column.type, len(column), len(column) - column.null_count


def by_read_all(topic: str, value: ColumnDeserializer, at: dict[str, Any], folder: Path) -> Any:
    with kbatch.scan_topic(topic, value=value, **at) as stream:
        column = stream.read_all()["value"]
    return column.type, len(column), len(column) - column.null_count


def by_duckdb(topic: str, value: ColumnDeserializer, at: dict[str, Any], folder: Path) -> Any:
    with kbatch.scan_topic(topic, columns=["value"], value=value, **at) as stream:
        kind = stream.schema.field("value").type
        found = duckdb.sql("select count(*), count(value) from stream")
        assert found is not None
        ((rows, values),) = found.fetchall()
    return kind, rows, values


def by_polars(topic: str, value: ColumnDeserializer, at: dict[str, Any], folder: Path) -> Any:
    with kbatch.scan_topic(topic, columns=["value"], value=value, **at) as stream:
        kind = stream.schema.field("value").type
        column = polars.DataFrame(stream)["value"]
    return kind, len(column), len(column) - column.null_count()


def by_pandas(topic: str, value: ColumnDeserializer, at: dict[str, Any], folder: Path) -> Any:
    with kbatch.scan_topic(topic, columns=["value"], value=value, **at) as stream:
        kind, column = stream.schema.field("value").type, stream.read_pandas()["value"]
    return kind, len(column), int(column.notna().sum())


def by_dataset(topic: str, value: ColumnDeserializer, at: dict[str, Any], folder: Path) -> Any:
    with kbatch.scan_topic(topic, columns=["value"], value=value, **at) as stream:
        ds.write_dataset(stream, folder, format="parquet")
    column = ds.dataset(folder).to_table()["value"]
    return column.type, len(column), len(column) - column.null_count


def by_polls(topic: str, value: ColumnDeserializer, at: dict[str, Any], folder: Path) -> Any:
    tables = []
    with kbatch.Consumer(auto_offset_reset="earliest", **at) as consumer:
        partitions = [
            kbatch.TopicPartition(topic, each) for each in range(len(consumer.partitions_for(topic)))
        ]
        consumer.assign(partitions)
        left = sum(consumer.end_offsets(partitions).values())
        while left:
            tables.append(consumer.poll_table(HANG_SECONDS, value=value).select(["value"]))
            assert tables[-1].num_rows
            left -= tables[-1].num_rows
    column = pa.concat_tables(tables, promote_options="default")["value"]
    return column.type, len(column), len(column) - column.null_count


WAYS: list[Callable[..., Any]] = [
    by_read_table,
    by_read_all,
    by_duckdb,
    by_polars,
    by_pandas,
    by_dataset,
    by_polls,
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", STRUCT)
@pytest.mark.parametrize("partitions", [1, 2])
def test_F_TYPE_01_06_tombstones_first_say_no_type(
    broker: Broker, registry: Registry, way: Any, kind: str, partitions: int, tmp_path: Path, request: Any
) -> None:
    nulls: list[bytes | None] = [None] * (ROWS_OF_SAMPLE + 1)
    values = [good(kind)] * 5
    logs = [[*nulls, *values]] if partitions == 1 else [nulls, values]
    topic = topic_of(broker, request, *logs)
    at: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers}
    assert way(topic, deserializer(kind, registry), at, tmp_path) == (STRUCT[kind], len(nulls) + 5, 5)


@pytest.mark.parametrize("way", [each for each in WAYS if each is not by_dataset])  # Parquet has no null type
def test_F_TYPE_06_07_tombstones_alone_are_null(
    broker: Broker, registry: Registry, way: Any, tmp_path: Path, request: Any
) -> None:
    topic = topic_of(broker, request, [None] * 3, [None])
    at: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers}
    assert way(topic, Json(), at, tmp_path) == (pa.null(), 4, 0)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", STRUCT)
def test_F_TYPE_02_values_none_of_which_can_be_read_raise(
    broker: Broker, registry: Registry, way: Any, kind: str, tmp_path: Path, request: Any
) -> None:
    topic = topic_of(broker, request, [None, GARBAGE], [GARBAGE])
    at: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers}
    with pytest.raises((DeserializationError, *FOREIGN_ERRORS), match="cannot be deserialized"):
        way(topic, deserializer(kind, registry), at, tmp_path)


@pytest.mark.parametrize("way", [by_read_table, by_read_all, by_polls])
@pytest.mark.parametrize("faulty", [3, 1500])
@pytest.mark.parametrize("partitions", [1, 2])
def test_values_after_faulty_ones_are_read(
    broker: Broker, registry: Registry, way: Any, faulty: int, partitions: int, tmp_path: Path, request: Any
) -> None:
    values: list[bytes | None] = [b'{"a": 1}'] * 3
    bad: list[bytes | None] = [GARBAGE] * faulty
    topic = topic_of(broker, request, *([bad + values] if partitions == 1 else [bad, values]))
    at: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers}
    found = way(topic, Json(errors="null"), at, tmp_path)
    assert found == (STRUCT["json"], faulty + 3, 3)


def test_F_TYPE_05_read_of_faulty_partitions_has_one_outcome(broker: Broker, request: Any) -> None:
    """It used to depend on which thread was first."""
    topic = topic_of(broker, request, [GARBAGE] * 1500, [b'{"a": 1}'] * 3)
    at: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers}
    for _ in range(5):
        with pytest.raises(DeserializationError, match=f"{topic}, partition 0, offset 0 cannot"):
            kbatch.read_table(topic, value=Json(), threads=4, **at)
        table = kbatch.read_table(topic, value=Json(errors="column"), threads=4, **at)
        assert table["value"].type == STRUCT["json"] and table["value"].null_count == 1500
        assert table["value_error"].null_count == 3


# Each kind of fault by each choice of errors


@pytest.mark.parametrize("kind", ["json", "avro", "protobuf"])
@pytest.mark.parametrize("data", [GARBAGE, b"", b"\0\0\0\0\x63\x02"])
def test_F_TYPE_02_errors_are_obeyed_where_no_value_says_a_type(
    registry: Registry, kind: str, data: bytes
) -> None:
    def of(errors: Any) -> ColumnDeserializer:
        return deserializer(kind, registry, errors)

    column = pa.array([None, data])
    with pytest.raises(DeserializationError) as raised:
        of("raise")(column)
    assert raised.value.row == 1
    assert of("null")(column) == pa.nulls(2)
    values, reasons = of("column")(column)
    assert values == pa.nulls(2)
    assert reasons[0].as_py() is None and reasons[1].as_py() in str(raised.value)
    seen: list[Any] = []

    def zero(data: bytes, error: DeserializationError) -> dict[str, int]:
        seen.append((data, error.row))
        return {"a": 0}

    made = of(zero)(column)
    assert seen == [(data, 1)] and made.to_pylist() == [None, {"a": 0}]


def test_F_TYPE_03_what_no_registry_answers_is_no_fault_of_values(registry: Registry) -> None:
    """A wrong URL answers 404 to everything."""
    for errors in ("raise", "null", "column"):
        registry.faults.append((404, b"<html>not here</html>"))
        with pytest.raises(SchemaRegistryError, match="404"):
            deserializer("avro", registry, errors)(pa.array([b"\0\0\0\0\x01\x02"]))


def test_a_function_cannot_choose_the_type_of_a_read(broker: Broker, request: Any) -> None:
    topic = topic_of(broker, request, [GARBAGE])
    at: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers}
    read = kbatch.read_table(topic, value=Json(errors=lambda data, error: data.decode()), **at)
    assert read["value"].to_pylist() == ["garbage"]
    with pytest.raises(TypeError, match="must return values of string"):
        kbatch.read_table(topic, value=Json(errors=lambda data, error: {"a": 0}), **at)


def test_a_stream_without_an_end_needs_a_value(broker: Broker, request: Any) -> None:
    topic = topic_of(broker, request, [None, GARBAGE])
    at: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers}
    with pytest.raises(TypeNotKnownError, match="has no value yet from which value= could learn its type"):
        kbatch.scan_topic(topic, value=Json(), end=None, **at)
    with kbatch.scan_topic(topic, value=Json(pa.schema([("a", pa.int64())])), end=None, **at) as stream:
        assert stream.schema.field("value").type == STRUCT["json"]


# How far is looked ahead


def read_ahead(
    broker: Broker, request: Any, look_ahead: int | None, *partitions: list[bytes | None], **keywords: Any
) -> pa.DataType:
    """Return the type that a read announces which looks ahead that far."""
    topic = topic_of(broker, request, *partitions)
    with kbatch.TopicReader(bootstrap_servers=broker.bootstrap_servers, **keywords) as reader:
        ranges = reader.ranges(topic).ranges
        with reader.read(ranges, value=Json(errors="null"), look_ahead=look_ahead) as reading:
            assert reading.schema is not None
            return reading.schema.field("value").type


@pytest.mark.parametrize("nothing", [None, GARBAGE])
def test_F_TYPE_08_a_read_looks_no_farther_than_its_limit(
    broker: Broker, request: Any, nothing: bytes | None
) -> None:
    values = [*[nothing] * 10, b"7"]
    with pytest.raises(TypeNotKnownError, match=r"first 10 records of topic .* a schema"):
        read_ahead(broker, request, 10, values)


@pytest.mark.parametrize("look_ahead", [11, 1_000_000, None])
def test_F_TYPE_08_a_value_within_the_limit_says_the_type(
    broker: Broker, request: Any, look_ahead: int | None
) -> None:
    assert read_ahead(broker, request, look_ahead, [*[None] * 10, b"7"]) == pa.int64()


def test_F_TYPE_08_tombstones_of_one_partition_do_not_hide_values_of_others(
    broker: Broker, request: Any
) -> None:
    assert read_ahead(broker, request, 10, [None] * 20, [b"7"] * 20, [None] * 20) == pa.int64()


def test_F_TYPE_08_short_partitions_leave_their_part_to_others(broker: Broker, request: Any) -> None:
    assert read_ahead(broker, request, 13, [*[None] * 10, b"7"], [], [None] * 2) == pa.int64()


@pytest.mark.parametrize("fetch_bytes", [1, 1_000_000])
def test_F_TYPE_08_the_sample_ends_at_a_row_however_records_come(
    broker: Broker, request: Any, fetch_bytes: int
) -> None:
    values: list[bytes | None] = [*[b"7"] * 5, *[b"0.5"] * 5]
    assert read_ahead(broker, request, 5, values, max_partition_fetch_bytes=fetch_bytes) == pa.int64()


def test_F_TYPE_08_bytes_are_limited_too(
    broker: Broker, request: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(projection, "LOOK_AHEAD_BYTES", 100)
    values: list[bytes | None] = [*[GARBAGE * 10] * 5, b"7"]  # 70 bytes each
    with pytest.raises(TypeNotKnownError, match="among the first 2 records"):
        read_ahead(broker, request, 1_000_000, values)


@pytest.mark.parametrize("look_ahead", [0, -1, True])
def test_a_limit_that_is_none_is_refused(broker: Broker, request: Any, look_ahead: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="look_ahead must be"):
        read_ahead(broker, request, look_ahead, [b"7"])


@pytest.mark.slow
def test_F_TYPE_08_a_million_tombstones_end_a_scan_but_no_table(broker: Broker, request: Any) -> None:
    topic = topic_of(broker, request, [])
    at: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers}
    nulls = pa.table({"value": pa.nulls(1_000_000, pa.binary())})
    with kbatch.Producer(**at) as producer:
        producer.send_table(topic, nulls, value="value").result(HANG_SECONDS)
        with kbatch.scan_topic(topic, value=Json(), **at) as stream:
            assert stream.schema.field("value").type == pa.null()
        producer.send(topic, b"7")
    with pytest.raises(TypeNotKnownError, match="among the first 1000000 records"):
        kbatch.scan_topic(topic, value=Json(), **at)
    assert kbatch.read_table(topic, value=Json(), **at)["value"].to_pylist()[-1] == 7


def test_empty_objects_have_a_type() -> None:
    made = Json()(pa.array([b"{}", None]))
    assert made.type == pa.struct([]) and made.null_count == 1


# The command


def consumed(broker: Broker, topic: str, *arguments: str) -> Any:
    call = ["consume", topic, "--value", "json", "-b", broker.bootstrap_servers, *arguments]
    return CliRunner().invoke(command, call)


def test_F_MIG_05_consume_fails_if_nothing_can_be_read(broker: Broker, request: Any) -> None:
    topic = topic_of(broker, request, [GARBAGE], [GARBAGE])
    result = consumed(broker, topic)
    assert result.exit_code == 1 and "cannot be deserialized" in result.stderr
    assert consumed(broker, topic, "--malformed", "null").exit_code == 0


@pytest.mark.parametrize("group", [(), ("--group", "readers", "--from", "earliest")])
def test_consume_writes_files_that_begin_with_tombstones(
    broker: Broker, group: tuple[str, ...], tmp_path: Path, request: Any
) -> None:
    topic = topic_of(broker, request, [None] * 1001 + [b'{"a": 1}'])
    for form in ("parquet", "arrow"):
        path = tmp_path / f"values.{form}"
        given = [*group[:1], f"{group[1]}-{form}-{topic}", *group[2:]] if group else []
        result = consumed(broker, topic, "-f", form, "-o", str(path), *given)
        assert result.exit_code == 0, result.output
        table = (
            ds.dataset(path, format=form).to_table()
            if form == "parquet"
            else pa.ipc.open_stream(path).read_all()
        )
        assert table["value"].type == STRUCT["json"] and table["value"].null_count == 1001
