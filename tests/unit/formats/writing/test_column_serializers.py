"""Column serializers in send_table and encode_arrow: accepted columns, and the outcome of bad rows."""

from __future__ import annotations

import datetime
import json
import math
import pickle
import time
import uuid
from collections.abc import Callable, Iterator
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest

import kbatch
from kbatch import formats
from kbatch.column_serializers import _avro as Avro
from kbatch.column_serializers import _json_lines
from kbatch.column_serializers import _protobuf as Protobuf
from kbatch.errors import SerializationError
from kbatch.formats import plain
from kbatch.formats.writing import (
    ColumnSerializer,
    Float32,
    Int16,
    Int32,
    Int64,
    JsonLines,
    RowError,
    Utf8,
)
from kbatch.formats.writing.serialized_columns import PIECE_ROWS
from kbatch.testing import Broker
from tests.support import shop
from tests.support.producing import SECONDS, TOPIC, producing, values

UTC = datetime.UTC


def serialized(serializer: ColumnSerializer, columns: dict[str, Any]) -> list[bytes | None]:
    batch = pa.RecordBatch.from_pydict(columns)
    chosen = serializer.choose(batch.schema, batch.schema.names)
    return list(serializer(batch.select(chosen)).to_pylist())


def records(data: Any, **arguments: Any) -> list[tuple[bytes | None, bytes | None]]:
    encoded = kbatch.encode_arrow(data, partitions=1, **arguments)
    decoded = kbatch.decode_arrow(encoded["batch"])
    return list(zip(decoded["key"].to_pylist(), decoded["value"].to_pylist(), strict=True))


# Which columns


def test_a_value_is_made_of_the_columns_that_have_no_other_part() -> None:
    data = pa.table({"id": ["a"], "timestamp": [7], "n": [1], "s": ["x"]})
    assert records(data, key="id", value=JsonLines()) == [(b"a", b'{"n":1,"s":"x"}')]
    assert records(data, key="id", value=JsonLines(["s", "id"])) == [(b"a", b'{"s":"x","id":"a"}')]
    assert records(data, key="id", value=JsonLines("n")) == [(b"a", b"1")]
    whole = b'{"id":"a","timestamp":7,"n":1,"s":"x"}'
    assert records(data, key=None, value=JsonLines(), timestamp=None) == [(None, whole)]
    assert records(data, key=Utf8("n"), value=JsonLines(["s", "n"])) == [(b"1", b'{"s":"x","n":1}')]
    assert records(data, key=Utf8("n"), value=JsonLines()) == [(b"1", b'{"id":"a","s":"x"}')]
    assert records(data, key=JsonLines(["n", "id"]), value=JsonLines()) == [
        (b'{"n":1,"id":"a"}', b'{"s":"x"}')
    ]


def test_the_key_may_be_the_column_named_value() -> None:
    data = pa.table({"value": ["a"], "n": [1]})
    assert records(data, key="value", value=JsonLines()) == [(b"a", b'{"n":1}')]


def test_headers_timestamps_and_partitions_go_along() -> None:
    headers = pa.array([[("h", b"1")]], pa.map_(pa.string(), pa.binary()))
    data = pa.table({"n": [1], "headers": headers, "at": [7], "to": pa.array([2], pa.int32())})
    encoded = kbatch.encode_arrow(data, value=JsonLines(), timestamp="at", partition="to", partitions=3)
    assert encoded["partition"].to_pylist() == [2]
    (row,) = kbatch.decode_arrow(encoded["batch"]).to_pylist()
    assert (row["value"], row["headers"]) == (b'{"n":1}', [{"key": "h", "value": b"1"}])
    assert row["timestamp"] == datetime.datetime(1970, 1, 1, 0, 0, 0, 7000, UTC)


def test_a_plain_function_gets_the_free_columns() -> None:
    def named(columns: pa.RecordBatch) -> Any:
        return [f"{columns.schema.names}{row}".encode() for row in range(columns.num_rows)]

    data = pa.table({"id": ["a", "b"], "n": [1, 2]})
    assert records(data, key="id", value=named) == [(b"a", b"['n']0"), (b"b", b"['n']1")]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"value": JsonLines(["x"])}, ValueError, r"no column 'x' \(the JsonLines\); the columns are id, n"),
        ({"value": JsonLines(), "key": "x"}, ValueError, r"no column 'x' \(the key\); the columns are id, n"),
        (
            {"value": JsonLines(), "key": "n"},
            TypeError,
            r"column 'n' \(the key\) is of int64.*key=Utf8\('n'\)",
        ),
        ({"value": JsonLines(), "key": 5}, TypeError, "key must be a column's name or a column serializer"),
        ({"value": JsonLines}, TypeError, "value must be a column's name or a column serializer, got <cl"),
        ({"value": None}, TypeError, "value must be a column's name or a column serializer, got None"),
        (
            {"value": JsonLines(), "headers": JsonLines()},
            TypeError,
            "headers must be a column's name, or None",
        ),
        (
            {"value": lambda columns: [1, 2]},
            TypeError,
            "value's column serializer must return a binary column",
        ),
        ({"value": lambda columns: [b"1"]}, ValueError, "returned 1 values for 2 rows"),
        ({"value": Int64("id")}, TypeError, r"column 'id' must be of integers for Int64, got string"),
    ],
)
def test_impossible_requests_raise_errors(
    arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    data = pa.table({"id": ["a", "b"], "n": [1, 2]})
    with pytest.raises(error, match=text):
        records(data, **arguments)


def test_columns_without_json_form_are_refused_before_sending(broker: Broker) -> None:
    data = pa.table({"u": pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])})
    with producing(broker) as producer, pytest.raises(TypeError, match="column 'u' is of sparse_union"):
        producer.send_table(TOPIC, data, value=JsonLines())
    with pytest.raises(ValueError, match="column 'n' exists twice"):
        records(pa.table([pa.array([1])] * 2, ["n", "n"]), value=JsonLines())


def test_numpy_columns() -> None:
    columns = {"n": np.array([1.5, np.nan]), "ok": np.array([True, False])}
    assert [value for _, value in records(columns, value=JsonLines())] == [
        b'{"n":1.5,"ok":true}',
        b'{"n":null,"ok":false}',
    ]


# Rows that cannot be


def odd(columns: pa.RecordBatch) -> pa.Array:
    """Return a serializer that refuses the number 20000."""
    for row, number in enumerate(columns["n"].to_pylist()):
        if number == 20_000:
            raise RowError(row, "it is odd", "n")
    return columns["n"].cast(pa.string())


def test_rows_before_a_bad_one_are_sent_and_the_others_fail(broker: Broker) -> None:
    assert PIECE_ROWS < 20_000
    with producing(broker) as producer:
        report = producer.send_table(TOPIC, pa.table({"n": range(50_000)}), value=odd).result(SECONDS)
    assert report.row_count == 50_000 and report.failed_rows == 30_000
    assert values(broker) == [b"%d" % number for number in range(20_000)]
    assert list(report.errors) == list(range(20_000, 50_000))
    error = report.errors[20_000]
    assert isinstance(error, SerializationError) and str(error) == "column 'n', row 20000: it is odd"
    assert error.row == 20000


def test_a_bad_first_row_is_raised(broker: Broker) -> None:
    with producing(broker) as producer:
        with pytest.raises(SerializationError, match="column 'n', row 0: it is odd"):
            producer.send_table(TOPIC, pa.table({"n": [20_000, 1]}), value=odd)
        producer.send_table(TOPIC, pa.table({"n": [1]}), value=odd).result(SECONDS)
    assert values(broker) == [b"1"]
    with pytest.raises(SerializationError, match="row 1: it is odd"):
        kbatch.encode_arrow(pa.table({"n": [1, 20_000]}), value=odd, partitions=1)


def test_what_a_function_raises_comes_through(broker: Broker) -> None:
    def broken(columns: pa.RecordBatch) -> pa.Array:
        if columns["n"][0].as_py() == 0:
            raise ZeroDivisionError("mine")
        return columns["n"].cast(pa.string())

    with producing(broker) as producer:
        with pytest.raises(ZeroDivisionError, match="mine"):
            producer.send_table(TOPIC, pa.table({"n": [0]}), value=broken)
        chunks = pa.table({"n": pa.chunked_array([[1, 2], [0, 3], [4]])})
        report = producer.send_table(TOPIC, chunks, value=broken).result(SECONDS)
    assert report.failed_rows == 3 and isinstance(report.errors[2].__cause__, ZeroDivisionError)


def test_a_stream_is_read_piece_by_piece(broker: Broker) -> None:
    seen = []

    def stream() -> Iterator[pa.RecordBatch]:
        for first in range(0, 100, 10):
            seen.append(first)
            yield pa.RecordBatch.from_pydict({"n": range(first, first + 10)})

    def counted(columns: pa.RecordBatch) -> pa.Array:
        assert columns["n"][0].as_py() == seen[-1]
        return columns["n"].cast(pa.string())

    reader = pa.RecordBatchReader.from_batches(pa.schema([("n", pa.int64())]), stream())
    with producing(broker) as producer:
        assert not producer.send_table(TOPIC, reader, value=counted).result(SECONDS).errors
    assert values(broker) == [b"%d" % number for number in range(100)]


# Plain ones


def test_text_of_any_column() -> None:
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, 678, UTC)
    for given, text in (
        ('a "quoted" one', b'a "quoted" one'),
        (b"\xff", b"\xff"),
        (12, b"12"),
        (1.5, b"1.5"),
        (True, b"true"),
        (Decimal("1.10"), b"1.10"),
        (moment, b"2026-01-02T03:04:05.000678Z"),
        (moment.date(), b"2026-01-02"),
        ({"a": "b"}, b'{"a":"b"}'),
        (["a", "b"], b'["a","b"]'),
    ):
        assert serialized(Utf8("c"), {"c": pa.array([given, None])}) == [text, None]
    assert serialized(Utf8("c"), {"c": pa.array(["x", None]).dictionary_encode()}) == [b"x", None]


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint16(), pa.int32(), pa.int64(), pa.uint64()])
def test_integers_are_javas(kind: pa.DataType) -> None:
    column = pa.array([1, None, 127, 0], kind)
    for serializer, one in ((Int32("c"), plain.int32), (Int64("c"), plain.int64)):
        expected = [None if each is None else one(each) for each in column.to_pylist()]
        assert serialized(serializer, {"c": column}) == expected
        assert serialized(serializer, {"c": column.slice(1)}) == expected[1:]


NUMBERS: list[Any] = [1, -1, 32767, -32768, None]
PLAIN = [
    ("Int16", pa.int64(), NUMBERS),
    ("Float32", pa.float64(), [1.5, -0.0, math.inf, 2.0**-149, None]),
    ("Float64", pa.float32(), [1.5, -0.0, -math.inf, None]),
    ("Boolean", pa.bool_(), [True, False, None]),
    ("Uuid", pa.uuid(), [uuid.UUID(int=0).bytes, uuid.UUID(int=2**128 - 1).bytes, None]),
    ("Bytes", pa.binary_view(), [b"", b"\0\xff", None]),
]


@pytest.mark.parametrize(("name", "kind", "column"), PLAIN, ids=[name for name, _, _ in PLAIN])
def test_columns_are_what_single_records_are(name: str, kind: pa.DataType, column: list[Any]) -> None:
    format = getattr(formats, name)("c")
    encode = format.bind("value").encode
    array = pa.array([None, *column, None], kind).slice(1, len(column))  # with an offset
    found = serialized(format.column_serializer(None, "value"), {"c": array})
    expected = [None if each is None else encode("t", (), each) for each in array.to_pylist()]
    assert found == expected


@pytest.mark.parametrize(
    ("name", "kind"), [("Int16", pa.float64()), ("Float64", pa.int64()), ("Boolean", pa.int8())]
)
def test_columns_of_other_kinds_are_refused(name: str, kind: pa.DataType) -> None:
    serializer = getattr(formats, name)("c").column_serializer(None, "value")
    with pytest.raises(TypeError, match=f"column 'c' must be of .* for {name}, got {kind}"):
        serializer.choose(pa.schema([("c", kind)]), ())


def test_numbers_that_are_too_small_for_a_type_are_refused() -> None:
    with pytest.raises(RowError, match=r"row 1: 32768 is beyond Int16, -32768 to 32767"):
        serialized(Int16("c"), {"c": [1, 2**15]})
    with pytest.raises(RowError, match=r"column 'c', row 2: 1e\+300 is beyond Float32"):
        serialized(Float32("c"), {"c": [None, math.nan, 1e300]})


def test_pickled_serializers_write_the_same() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}
    made: list[Any] = [
        formats.Avro[Any](schema, id=7),
        formats.Protobuf[Any](shop.ORDER, id=7),
        formats.Protobuf[Any].from_descriptor_set(shop.SHOP, "shop.Order", id=7),
    ]
    columns = {"id": pa.array([1, 2])}
    for format in made:
        serializer = format.column_serializer(None, "value")
        serializer.header = "h", b"1"
        expected = serialized(serializer, columns)
        copy = pickle.loads(pickle.dumps(serializer))
        assert serialized(copy, columns) == expected
        assert copy.header == ("h", b"1")


def test_decimals_without_a_fraction_are_integers_of_messages() -> None:
    serializer = formats.Protobuf[Any](shop.ORDER, columns="o").column_serializer(None, "value")
    kind = pa.struct([("id", pa.decimal128(20, 0)), ("labels", pa.map_(pa.string(), pa.int64()))])
    rows = [{"id": Decimal(2**64 - 1), "labels": [("a", 1)]}, None, {"id": None, "labels": None}]
    found = serialized(serializer, {"o": pa.array(rows, kind)})
    first = shop.ORDER(id=2**64 - 1, labels={"a": 1}).SerializeToString()
    assert found == [first, None, b""]


def test_integers_that_are_too_large() -> None:
    assert serialized(Int32("c"), {"c": [-(2**31), 2**31 - 1]}) == [b"\x80\0\0\0", b"\x7f\xff\xff\xff"]
    with pytest.raises(RowError, match=r"column 'c', row 1: 2147483648 is beyond Int32"):
        serialized(Int32("c"), {"c": [None, 2**31]})
    with pytest.raises(RowError, match=r"row 0: 9223372036854775808 is beyond Int64"):
        serialized(Int64("c"), {"c": pa.array([2**63], pa.uint64())})


# JSON


def test_json_of_every_type() -> None:
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, 678000, UTC)
    cases: list[tuple[pa.Array, str]] = [
        (pa.array([None]), "null"),
        (pa.array([2**64 - 1], pa.uint64()), "18446744073709551615"),
        (pa.array([0.1], pa.float32()), "0.1"),
        (pa.array([1.5], pa.float16()), "1.5"),
        (pa.array([float("nan")]), "null"),
        (pa.array([float("-inf")]), "null"),
        (pa.array([Decimal("1.10")]), "1.10"),
        (pa.array([moment]), '"2026-01-02T03:04:05.678000Z"'),
        (pa.array([moment], pa.timestamp("ms", "Asia/Tokyo")), '"2026-01-02T03:04:05.678Z"'),
        (pa.array([moment.replace(tzinfo=None)], pa.timestamp("ns")), '"2026-01-02T03:04:05.678000000"'),
        (pa.array([0], pa.timestamp("s")), '"1970-01-01T00:00:00"'),
        (pa.array([moment.date()]), '"2026-01-02"'),
        (pa.array([moment.time()], pa.time32("ms")), '"03:04:05.678"'),
        (pa.array([90_000], pa.duration("s")), '"PT90000S"'),
        (pa.array([-1500], pa.duration("ms")), '"PT-1.5S"'),
        (pa.array([(1, 2, 3)], pa.month_day_nano_interval()), '"P1M2DT0.000000003S"'),
        (pa.array([b"\xff\0"]), '"/wA="'),
        (pa.array([b"ab"], pa.binary(2)), '"YWI="'),
        (pa.array(["x"], pa.string_view()), '"x"'),
        (pa.array(['"\\\n\x01/\u2028é\U0001f600']), '"\\"\\\\\\n\\u0001/\u2028é\U0001f600"'),
        (pa.array(["x"]).dictionary_encode(), '"x"'),
        (pa.RunEndEncodedArray.from_arrays([1], ["x"]), '"x"'),
        (pa.array([[1, None]]), "[1,null]"),
        (pa.array([[[], None]], pa.list_(pa.list_(pa.int8()))), "[[],null]"),
        (pa.array([[1, 2]], pa.list_(pa.int8(), 2)), "[1,2]"),
        (pa.array([["x"]], pa.list_view(pa.string())), '["x"]'),
        (pa.array([{"a": 1, "b": None}]), '{"a":1,"b":null}'),
        (pa.array([{}], pa.struct([])), "{}"),
        (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int8())), '{"k":1}'),
        (pa.array([[(5, True)]], pa.map_(pa.int32(), pa.bool_())), '{"5":true}'),
        (pa.array([[(moment.date(), 1)]], pa.map_(pa.date32(), pa.int8())), '{"2026-01-02":1}'),
        (pa.array([bytes(16)], pa.uuid()), '"00000000-0000-0000-0000-000000000000"'),
    ]
    for column, text in cases:
        made = serialized(JsonLines(), {"c": column})
        assert made == ['{"c":%s}'.replace("%s", text).encode()], column.type
        nothing = pa.nulls(1, column.type) if not isinstance(column, pa.RunEndEncodedArray) else None
        if nothing is not None:
            assert serialized(JsonLines(), {"c": nothing}) == [b'{"c":null}'], column.type
            assert serialized(JsonLines("c"), {"c": nothing}) == [None], column.type
        json.loads(made[0] or b"")


def test_json_by_its_options() -> None:
    assert serialized(JsonLines(decimals="string"), {"d": [Decimal("1.10")]}) == [b'{"d":"1.10"}']
    assert serialized(_json_lines(schema_id=258), {"d": [1]}) == [b'\0\0\0\1\2{"d":1}']
    assert serialized(_json_lines("d", schema_id=0), {"d": [1, None]}) == [b"\0\0\0\0\0001", None]
    assert serialized(JsonLines(), {'ü"': [1]}) == ['{"ü\\"":1}'.encode()]
    assert serialized(JsonLines(()), {"a": [1, 2]}) == [b"{}", b"{}"]
    with pytest.raises(ValueError, match="decimals must be one of number, string, got 'float'"):
        JsonLines(decimals="float")


def test_times_outside_the_calendar_name_their_row() -> None:
    times = pa.array([0, None, 10**18], pa.timestamp("s"))
    with pytest.raises(RowError, match="column 't', row 2: a time or date is out of range"):
        serialized(JsonLines(), {"t": times})
    nested = pa.StructArray.from_arrays([times], ["at"])
    with pytest.raises(RowError, match="column 't', row 2: "):
        serialized(JsonLines(), {"t": nested})


@pytest.mark.parametrize("schema_id", [-1, 2**31])
@pytest.mark.parametrize(
    "make", [lambda given: _json_lines(schema_id=given), lambda given: Avro("long", schema_id=given)]
)
def test_schema_ids_that_cannot_be(make: Callable[[Any], object], schema_id: int) -> None:
    with pytest.raises(ValueError, match=f"schema_id must be 0 to 2147483647, got {schema_id}"):
        make(schema_id)
    with pytest.raises(TypeError, match="schema_id must be the schema's number in the schema registry"):
        make("7")


# Avro

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "price", "type": "double"},
    ],
}


def test_avro_takes_what_its_fields_name() -> None:
    data = {"price": [1.0, 0.5], "id": [1, -1]}
    made = serialized(Avro(ORDER, schema_id=7), data)
    assert made[0] == b"\0\0\0\0\7" + b"\2" + b"\0" + b"\0\0\0\0\0\0\xf0\x3f"
    assert serialized(Avro(json.dumps(ORDER), schema_id=7), data) == made
    assert serialized(Avro(ORDER, schema_id=None), data)[0] == (made[0] or b"")[5:]
    table = pa.table({**data, "headers": pa.nulls(2, pa.map_(pa.string(), pa.binary()))})
    assert records(table, key=Utf8("id"), value=Avro(ORDER, schema_id=7)) == [
        (b"1", made[0]),
        (b"-1", made[1]),
    ]


def test_avro_of_one_column() -> None:
    assert serialized(Avro("long", schema_id=1), {"n": [1, None]}) == [b"\0\0\0\0\1\2", None]
    assert serialized(Avro('"string"', schema_id=1, columns="s"), {"n": [1], "s": ["a"]}) == [
        b"\0\0\0\0\1\2a"
    ]
    rows = pa.array([{"id": 1, "name": None, "price": 1.0}, None])
    assert serialized(Avro(ORDER, schema_id=1, columns="r"), {"r": rows})[1] is None


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (
            {"id": [1]},
            r"no column 'price' \(the Avro field, which has no default, of Order\); the columns are",
        ),
        ({"id": [1], "price": [1.0], "x": [1]}, "the Avro schema Order has no field for 'x'; drop these"),
        ({"id": [0, 2**31], "price": [1.0, 1.0]}, "column 'id', row 1: 2147483648 is too large for the Avro"),
        ({"id": [1, 2], "price": [1.0, None]}, r"column 'price', row 1: Avro does not take None for"),
    ],
)
def test_what_avro_does_not_take(columns: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        serialized(Avro(ORDER, schema_id=1), columns)
    with pytest.raises(
        TypeError, match=r"column 'price' is of string, which Avro does not take for \"double"
    ):
        serialized(Avro(ORDER, schema_id=1), {"id": [1], "price": ["x"]})


def test_integers_in_nested_avro_are_not_cut() -> None:
    """fastavro writes an int of any size, which readers cannot read."""
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "l", "type": {"type": "array", "items": "int"}}],
    }
    with pytest.raises(RowError, match=r"column 'l', row 1: .*2147483648"):
        serialized(Avro(schema, schema_id=1), {"l": [[1], [2**31]]})


@pytest.mark.parametrize("kind", ["timestamp-micros", "local-timestamp-micros", "timestamp-millis"])
def test_times_without_a_zone_are_not_local(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """fastavro takes a datetime without one for the machine's."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        schema = {"type": "long", "logicalType": kind}
        made = [
            serialized(Avro(schema, schema_id=None), {"t": pa.array([5_000_000], pa.timestamp("us", zone))})
            for zone in (None, "UTC", "America/New_York")
        ]
    finally:
        monkeypatch.undo()
        time.tzset()
    units = 5_000 if kind.endswith("millis") else 5_000_000
    assert made == [serialized(Avro("long", schema_id=None), {"t": [units]})] * 3


DATE = {"type": "int", "logicalType": "date"}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
UNIQUE = {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}
NAMED = {"type": "record", "name": "A", "fields": [{"name": "a", "type": "string"}]}
NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("union", "column", "branch", "value"),
    [
        (["null", DATE, MILLIS], pa.array([NOON], pa.timestamp("us", "UTC")), 2, NOON),
        (["null", MILLIS, DATE], pa.array([NOON.date()]), 2, NOON.date()),
        (["null", DATE, "string"], pa.array(["2026-01-01"]), 2, "2026-01-01"),
        (["null", DATE, "string"], pa.array(["s"]), 2, "s"),
        (["boolean", "int", "long"], pa.array([1], pa.int64()), 2, 1),
        (["double", "long"], pa.array([1]), 1, 1),
        (["float", "double"], pa.array([0.1]), 1, 0.1),
        ([{"type": "enum", "name": "E", "symbols": ["A"]}, "string"], pa.array(["A"]), 1, "A"),
        (["bytes", UNIQUE], pa.array([bytes(16)], pa.uuid()), 1, bytes(16)),
        ([{"type": "map", "values": "string"}, NAMED], pa.array([{"a": "x"}]), 1, {"a": "x"}),
        ([NAMED, {"type": "map", "values": "string"}], pa.array([{"b": "x"}]), 1, {"b": "x"}),
    ],
)
def test_F_AVRO_29_30_type_of_the_column_chooses_the_branch(
    union: Any, column: pa.Array, branch: int, value: Any
) -> None:
    (made,) = serialized(Avro(record_of(union), schema_id=None), {"x": column})
    assert made is not None and made[0] == 2 * branch
    assert read_by_fastavro(made, record_of(union)) == {"x": value}


def read_by_fastavro(data: bytes, schema: Any) -> Any:
    return fastavro.schemaless_reader(BytesIO(data), fastavro.parse_schema(schema), None)


def record_of(kind: Any) -> Any:
    return {"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]}


def test_F_AVRO_36_union_that_was_read_is_written() -> None:
    """Each row has its own branch."""
    schema = record_of(["null", DATE, "string", MILLIS])
    column = pa.array(
        [{"member1": "2026-01-01"}, {"member0": NOON.date()}, None, {"member2": NOON}],
        pa.struct(
            [("member0", pa.date32()), ("member1", pa.string()), ("member2", pa.timestamp("ms", "UTC"))]
        ),
    )
    made = serialized(Avro(schema, schema_id=None), {"x": column})
    read = [read_by_fastavro(each or b"", schema) for each in made]
    assert read == [{"x": "2026-01-01"}, {"x": NOON.date()}, {"x": None}, {"x": NOON}]
    with pytest.raises(RowError, match="column 'x', row 1: one member of a value must be set"):
        serialized(
            Avro(record_of(["long", "string"]), schema_id=None),
            {"x": [{"member0": 1, "member1": None}, {"member0": 1, "member1": "a"}]},
        )


@pytest.mark.parametrize(
    ("kind", "column", "text"),
    [
        ("boolean", [True, None], "row 1: Avro does not take None"),
        ("double", [1, 2**53 + 1], "row 1: Avro does not take it"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1}, [Decimal("1.25")], "row 0"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, ["A", "B"], "row 1: Avro does not take 'B'"),
        ({"type": "fixed", "name": "F", "size": 2}, [b"ab", b"a"], "row 1: Avro does not take 1 bytes"),
    ],
)
def test_F_AVRO_31_values_beyond_their_type_name_the_row(kind: Any, column: Any, text: str) -> None:
    with pytest.raises(RowError, match=f"column 'x', {text}"):
        serialized(Avro(record_of(kind), schema_id=None), {"x": column})


@pytest.mark.parametrize(
    ("kind", "column"), [("long", [True]), ("int", [1.0]), (DATE, ["2026-01-01"]), ([DATE, "string"], [NOON])]
)
def test_F_AVRO_31_types_that_would_be_lost_are_refused(kind: Any, column: Any) -> None:
    with pytest.raises(TypeError, match=r"column 'x' is of .*, which Avro does not take for"):
        serialized(Avro(record_of(kind), schema_id=None), {"x": column})


def test_defaults_of_missing_columns_are_data() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "id", "type": "int"},
            {"name": "b", "type": ["bytes", "null"], "default": "\u00ff"},
            {"name": "l", "type": {"type": "array", "items": "bytes"}, "default": ["\u00fe"]},
        ],
    }
    assert serialized(Avro(schema, schema_id=None), {"id": [1]}) == [b"\2\0\2\xff\2\2\xfe\0"]


def test_what_is_no_avro_schema() -> None:
    for schema in ("text", {"type": "record"}, '{"type": 5}', "{"):
        with pytest.raises(ValueError):
            Avro(schema, schema_id=1)
    with pytest.raises(ValueError, match="takes one column; name it"):
        serialized(Avro("long", schema_id=1), {"a": [1], "b": [2]})


# Protobuf


def test_what_protobuf_does_not_take() -> None:
    from google.protobuf.duration_pb2 import Duration

    made = serialized(Protobuf(Duration, schema_id=1), {"nanos": [5, None]})
    assert made == [b"\0\0\0\0\1\0\x10\5", b"\0\0\0\0\1\0"]
    assert serialized(Protobuf(Duration, schema_id=None), {"nanos": [5]}) == [b"\x10\5"]
    with pytest.raises(ValueError, match=r"the message google.protobuf.Duration has no field for 'x'"):
        serialized(Protobuf(Duration, schema_id=1), {"x": [5]})
    with pytest.raises(RowError, match="column 'nanos', row 1: Protobuf refuses 2147483648"):
        serialized(Protobuf(Duration, schema_id=1), {"nanos": [1, 2**31]})
    with pytest.raises(TypeError, match="message must be a class made by protoc"):
        Protobuf(Duration(), schema_id=1)
