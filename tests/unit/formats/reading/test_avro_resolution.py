"""Avro values of one schema read as another: unions, defaults, logical types. Expected values are Avro's."""

from __future__ import annotations

import datetime
import struct
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from kbatch import formats
from kbatch.column_deserializers import _avro as Avro
from tests.support.registry import Registry

DATE = {"type": "int", "logicalType": "date"}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
TIME_MILLIS = {"type": "int", "logicalType": "time-millis"}
TIME_MICROS = {"type": "long", "logicalType": "time-micros"}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
FIXED = {"type": "fixed", "name": "F", "size": 4}
NAMED = {"type": "record", "name": "A", "fields": [{"name": "a", "type": "string"}]}
ENUM = {"type": "enum", "name": "E", "symbols": ["A"]}
INNER = {
    "type": "record",
    "name": "I",
    "fields": [
        {"name": "b", "type": "int", "default": 7},
        {"name": "c", "type": "bytes", "default": "\u00ff"},
    ],
}
NEW_YEAR = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
NEW_YEAR_MS = 1767225600000
DAY = 20454  # of NEW_YEAR
YEAR_10000_MS = 253402300800000


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    with Registry() as running:
        yield running


def zigzag(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])


def text(content: str | bytes) -> bytes:
    data = content.encode() if isinstance(content, str) else content
    return zigzag(len(data)) + data


def record(*fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "R",
        "fields": [dict(zip(("name", "type", "default"), each, strict=False)) for each in fields],
    }


def union(*members: Any) -> dict[str, Any]:
    return record(("x", list(members)))


def member(number: int, count: int, value: Any) -> dict[str, Any]:
    return {f"member{each}": value if each == number else None for each in range(count)}


@pytest.mark.parametrize(
    ("schema", "data", "expected"),
    [
        pytest.param(
            union("null", DATE, MILLIS),
            zigzag(1) + zigzag(DAY),
            member(0, 2, NEW_YEAR.date()),
            id="F_AVRO_01-1",
        ),
        pytest.param(
            union("null", DATE, MILLIS),
            zigzag(2) + zigzag(NEW_YEAR_MS),
            member(1, 2, NEW_YEAR),
            id="F_AVRO_01-2",
        ),
        pytest.param(union("null", "int", MILLIS), zigzag(1) + zigzag(5), member(0, 2, 5), id="F_AVRO_02-1"),
        pytest.param(
            union("null", DATE, "long"),
            zigzag(1) + zigzag(DAY),
            member(0, 2, NEW_YEAR.date()),
            id="F_AVRO_03-1",
        ),
        pytest.param(
            union("null", DATE, TIME_MICROS),
            zigzag(1) + zigzag(DAY),
            member(0, 2, NEW_YEAR.date()),
            id="F_AVRO_03-2",
        ),
        pytest.param(
            union("null", TIME_MILLIS, TIME_MICROS),
            zigzag(1) + zigzag(3723000),
            member(0, 2, datetime.time(1, 2, 3)),
            id="F_AVRO_04-1",
        ),
        pytest.param(
            union(NAMED, {"type": "map", "values": "string"}),
            zigzag(1) + zigzag(1) + text("a") + text("m") + zigzag(0),
            member(1, 2, [("a", "m")]),
            id="F_AVRO_05-1",
        ),
        pytest.param(
            union(NAMED, {"type": "map", "values": "string"}),
            zigzag(0) + text("a"),
            member(0, 2, {"a": "a"}),
            id="F_AVRO_05-2",
        ),
        pytest.param(union(ENUM, "string"), zigzag(1) + text("A"), member(1, 2, "A"), id="F_AVRO_06-1"),
        pytest.param(union(ENUM, "string"), zigzag(0) + zigzag(0), member(0, 2, "A"), id="F_AVRO_06-2"),
        pytest.param(
            union(FIXED, "bytes"), zigzag(1) + text("wxyz"), member(1, 2, b"wxyz"), id="F_AVRO_07-1"
        ),
        pytest.param(
            union(FIXED, "bytes"), zigzag(1) + text("abcde"), member(1, 2, b"abcde"), id="F_AVRO_07-2"
        ),
        pytest.param(union(FIXED, "bytes"), zigzag(0) + b"abcd", member(0, 2, b"abcd"), id="F_AVRO_07-3"),
        pytest.param(
            union(
                {**FIXED, "logicalType": "decimal", "precision": 9, "scale": 2},
                {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4},
            ),
            zigzag(1) + text(b"\x05"),
            member(1, 2, Decimal("0.0005")),
            id="F_AVRO_07-4",
        ),
        pytest.param(union("null", "int", "long"), zigzag(1) + zigzag(5), 5, id="F_AVRO_09-1"),
        pytest.param(union("null", "int", "long"), zigzag(2) + zigzag(1 << 40), 1 << 40, id="F_AVRO_09-2"),
        pytest.param(
            record(("x", {"type": "bytes", "logicalType": "decimal"})),
            text(b"\x05"),
            b"\x05",
            id="F_AVRO_08-1",
        ),
        pytest.param(
            record(("x", {"type": "array", "items": ["string", NAMED]})),
            zigzag(1) + zigzag(1) + text("a") + zigzag(0),
            [member(1, 2, {"a": "a"})],
            id="F_AVRO_05-3",
        ),
    ],
)
def test_branch_is_the_written_one(schema: Any, data: bytes, expected: Any) -> None:
    made = Avro(schema)(pa.array([data]))
    made.validate(full=True)
    assert made.to_pylist() == [{"x": expected}]


def test_F_AVRO_08_uuid_of_sixteen_bytes() -> None:
    kind = {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}
    made = Avro(record(("x", kind)))(pa.array([bytes(range(16))]))
    assert made.field("x").type == pa.uuid()
    assert made.field("x").storage.to_pylist() == [bytes(range(16))]


OLD, ONE = record(("id", "int")), zigzag(1)


@pytest.mark.parametrize(
    ("writer", "reader", "data", "expected"),
    [
        pytest.param(
            OLD, record(("id", "int"), ("x", DECIMAL, "\u0001\u0000")), ONE, Decimal("2.56"), id="F_AVRO_10-1"
        ),
        pytest.param(
            OLD,
            record(("id", "int"), ("x", [DECIMAL, "null"], "\u0001\u0000")),
            ONE,
            Decimal("2.56"),
            id="F_AVRO_10-2",
        ),
        pytest.param(
            OLD, record(("id", "int"), ("x", ["bytes", "null"], "\u00ff")), ONE, b"\xff", id="F_AVRO_11-1"
        ),
        pytest.param(
            OLD,
            record(("id", "int"), ("x", {"type": "array", "items": "bytes"}, ["\u00ff"])),
            ONE,
            [b"\xff"],
            id="F_AVRO_12-1",
        ),
        pytest.param(
            OLD,
            record(("id", "int"), ("x", {"type": "map", "values": "bytes"}, {"k": "\u00ff"})),
            ONE,
            [("k", b"\xff")],
            id="F_AVRO_12-2",
        ),
        pytest.param(
            OLD, record(("id", "int"), ("x", INNER, {})), ONE, {"b": 7, "c": b"\xff"}, id="F_AVRO_13-1"
        ),
        pytest.param(
            OLD,
            record(("id", "int"), ("x", [INNER, MILLIS, "int"], {"b": 1})),
            ONE,
            member(0, 3, {"b": 1, "c": b"\xff"}),
            id="F_AVRO_13-2",
        ),
        pytest.param(
            OLD, record(("id", "int"), ("x", ["double", "int"], 5)), ONE, member(0, 2, 5.0), id="F_AVRO_11-2"
        ),
        pytest.param(
            record(("x", "int")), union("double", "int"), zigzag(5), member(1, 2, 5), id="F_AVRO_18-1"
        ),
        pytest.param(
            record(("x", "string")), union("bytes", "string"), text("a"), member(1, 2, "a"), id="F_AVRO_18-2"
        ),
        pytest.param(
            record(("x", MILLIS)), record(("x", "long")), zigzag(NEW_YEAR_MS), NEW_YEAR_MS, id="F_AVRO_14-1"
        ),
        pytest.param(
            record(("x", "long")), record(("x", MILLIS)), zigzag(NEW_YEAR_MS), NEW_YEAR, id="F_AVRO_14-2"
        ),
        pytest.param(record(("x", DATE)), record(("x", "int")), zigzag(DAY), DAY, id="F_AVRO_15-1"),
        pytest.param(record(("x", DATE)), record(("x", "double")), zigzag(DAY), float(DAY), id="F_AVRO_15-2"),
        pytest.param(
            record(("x", "bytes")), record(("x", DECIMAL)), text(b"\x7d"), Decimal("1.25"), id="F_AVRO_16-1"
        ),
        pytest.param(
            record(("x", DECIMAL)), record(("x", "bytes")), text(b"\x7d"), b"\x7d", id="F_AVRO_16-2"
        ),
        pytest.param(
            record(("x", DECIMAL)),
            record(("x", {**DECIMAL, "scale": 4})),
            text(b"\x7d"),
            Decimal("1.2500"),
            id="F_AVRO_18a-1",
        ),
        pytest.param(
            record(("x", MILLIS)), record(("x", MICROS)), zigzag(NEW_YEAR_MS), NEW_YEAR, id="F_AVRO_18a-2"
        ),
        pytest.param(
            record(("x", MICROS)),
            record(("x", MILLIS)),
            zigzag(NEW_YEAR_MS * 1000),
            NEW_YEAR,
            id="F_AVRO_18a-3",
        ),
        pytest.param(
            record(("x", "int")), union("null", "int", MILLIS), zigzag(5), member(0, 2, 5), id="F_AVRO_18-3"
        ),
        pytest.param(
            union("null", DATE, MILLIS),
            record(("x", ["null", DATE, MILLIS]), ("y", ["null", MILLIS], None)),
            zigzag(1) + zigzag(DAY),
            member(0, 2, NEW_YEAR.date()),
            id="F_AVRO_18-4",
        ),
        pytest.param(
            union("null", DATE, MILLIS),
            union("null", DATE, MICROS),
            zigzag(2) + zigzag(NEW_YEAR_MS),
            member(1, 2, NEW_YEAR),
            id="F_AVRO_18a-4",
        ),
        pytest.param(
            record(("x", NAMED)),
            union({"type": "map", "values": "string"}, NAMED),
            text("a"),
            member(1, 2, {"a": "a"}),
            id="F_AVRO_18-5",
        ),
        pytest.param(
            record(("x", ENUM)), union("string", ENUM), zigzag(0), member(1, 2, "A"), id="F_AVRO_18-6"
        ),
        pytest.param(
            union("null", NAMED),
            record(("x", NAMED), ("y", [DATE, MILLIS], 1)),
            zigzag(1) + text("a"),
            {"a": "a"},
            id="F_AVRO_18-7",
        ),
    ],
)
def test_older_values_are_resolved(
    registry: Registry, writer: Any, reader: Any, data: bytes, expected: Any
) -> None:
    framed = struct.pack(">bI", 0, registry.add("a", writer)) + data
    made = Avro(reader, registry=registry.client())(pa.array([framed, None, framed]))
    made.validate(full=True)
    assert [None if row is None else row["x"] for row in made.to_pylist()] == [expected, None, expected]


@pytest.mark.parametrize(
    ("writer", "reader", "data", "reason"),
    [
        (record(("x", MICROS)), record(("x", MILLIS)), zigzag(NEW_YEAR_MS * 1000 + 1), "is finer than"),
        (record(("x", DATE)), record(("x", MILLIS)), zigzag(DAY), "a date is no timestamp-millis"),
        (record(("x", {**DECIMAL, "scale": 4})), record(("x", DECIMAL)), text(b"\x7d"), "has more digits"),
    ],
)
def test_F_AVRO_18a_times_and_decimals_that_cannot_be_converted_are_faults(
    registry: Registry, writer: Any, reader: Any, data: bytes, reason: str
) -> None:
    framed = struct.pack(">bI", 0, registry.add("a", writer)) + data
    made, reasons = Avro(reader, "column", registry=registry.client())(pa.array([framed]))
    assert made.to_pylist() == [None] and reason in reasons[0].as_py()


def test_F_AVRO_17_years_beyond_python(registry: Registry) -> None:
    writer = record(("x", MILLIS))
    framed = struct.pack(">bI", 0, registry.add("a", writer)) + zigzag(YEAR_10000_MS)
    for reader in (writer, record(("x", MILLIS), ("y", ["null", MILLIS], None))):
        made = Avro(reader, registry=registry.client())(pa.array([framed]))
        assert made.field("x").cast(pa.int64()).to_pylist() == [YEAR_10000_MS]


def test_decimal_beyond_its_type_is_a_fault_of_its_value() -> None:
    values = [text(b"\x01" * 17), text(b"\x7d"), text((10**10).to_bytes(5, "big")), text(b"\xff" * 20)]
    made, reasons = Avro(record(("x", DECIMAL)), "column")(pa.array(values))
    assert [None if row is None else row["x"] for row in made.to_pylist()] == [
        None,
        Decimal("1.25"),
        None,
        Decimal("-0.01"),
    ]
    assert [each is None for each in reasons.to_pylist()] == [False, True, False, True]


# A column's rows by themselves


def column_of(schema: Any, data: Sequence[bytes | None], **options: Any) -> Any:
    format = formats.Avro[Any](schema, on_error="column", **options)
    return format.column_deserializer("t", "value")(pa.array(data, pa.binary()))


def test_F_AVRO_21_22_fault_is_of_its_row_only() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]}
    encode = formats.Avro[Any](schema).bind("value").encode
    rows: list[Any] = [{"a": text} for text in ("x", "long text", "", "y")]
    data: list[bytes | None] = [encode("t", (), row) for row in rows]
    for at in range(len(rows)):
        whole = data[at]
        assert whole is not None
        for broken in (whole + b"\0", whole[:-1], b"\x01"):
            found, reasons = column_of(schema, [*data[:at], broken, *data[at + 1 :]])
            assert found.to_pylist() == [*rows[:at], None, *rows[at + 1 :]]
            assert [reason is None for reason in reasons.to_pylist()] == [row != at for row in range(4)]


def test_F_AVRO_23_named_types_in_unions() -> None:
    money = {"type": "record", "name": "Money", "fields": [{"name": "cents", "type": "long"}]}
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": money}, {"name": "b", "type": ["null", "Money", "string"]}],
    }
    codec = formats.Avro[Any](schema).bind("value")
    values = [{"a": {"cents": 1}, "b": each} for each in (None, {"cents": 2}, "none")]
    data = [codec.encode("t", (), value) for value in values]
    assert [codec.decode("t", (), each) for each in data] == values
    found, _ = column_of(schema, data)
    assert [row["b"] and (row["b"]["member0"], row["b"]["member1"]) for row in found.to_pylist()] == [
        None,
        ({"cents": 2}, None),
        (None, "none"),
    ]


def test_F_AVRO_26_27_aliases_and_defaults_of_enums(registry: Registry) -> None:
    def order(field: dict[str, Any], symbols: list[str], **more: Any) -> dict[str, Any]:
        color = {"type": "enum", "name": "Color", "symbols": symbols, **more}
        return {"type": "record", "name": "Order", "fields": [field, {"name": "color", "type": color}]}

    old = order({"name": "number", "type": "int"}, ["RED", "GREEN"])
    new = order({"name": "id", "type": "long", "aliases": ["number"]}, ["RED", "OTHER"], default="OTHER")
    registry.add("orders-value", old)
    client = registry.client()
    write = formats.Avro[Any](old, registry=client).bind("value").encode
    data = [write("orders", (), {"number": 7, "color": color}) for color in ("RED", "GREEN")]
    expected = [{"id": 7, "color": "RED"}, {"id": 7, "color": "OTHER"}]
    read = formats.Avro[Any](new, registry=client)
    assert [read.bind("value").decode("orders", (), each) for each in data] == expected
    assert read.column_deserializer("orders", "value")(pa.array(data)).to_pylist() == expected
