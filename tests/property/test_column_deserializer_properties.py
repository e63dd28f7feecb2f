"""Column deserializers against column serializers: what is serialized comes back, of every type of both."""

from __future__ import annotations

import datetime
import json
import math
import uuid
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kbatch import column_deserializers, column_serializers
from kbatch.formats import reading as back
from kbatch.formats import writing as there
from kbatch.formats.avro_schemas import AvroSchema, members
from kbatch.formats.reading import avro_arrays, avro_resolution, avro_values, json_values
from kbatch.formats.reading.base import VALUE_ERRORS

Kind = tuple[pa.DataType, st.SearchStrategy[Any]]
UTC = datetime.UTC
UNITS = ("s", "ms", "us", "ns")
TICKS = st.integers(-(2**33), 2**33)  # years that the text of every unit has


def _decimals(kind: pa.DataType) -> Kind:
    limit = 10**kind.precision - 1
    return kind, st.integers(-limit, limit).map(lambda number: Decimal(f"{number}E-{kind.scale}"))


SCALARS: list[Kind] = [
    *(
        (getattr(pa, f"int{bits}")(), st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1))
        for bits in (8, 16, 32, 64)
    ),
    *((getattr(pa, f"uint{bits}")(), st.integers(0, 2**bits - 1)) for bits in (8, 16, 32, 64)),
    (pa.bool_(), st.booleans()),
    (pa.float32(), st.floats(width=32, allow_nan=False, allow_infinity=False)),
    (pa.float64(), st.floats(allow_nan=False, allow_infinity=False)),
    (pa.string(), st.text()),
    (pa.large_string(), st.text('"\\\x00\x1f\n/é\u2028\U0001f600a{}[],:', max_size=8)),
    (pa.string_view(), st.text(max_size=30)),
    (pa.binary(), st.binary()),
    (pa.large_binary(), st.binary(max_size=5)),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    _decimals(pa.decimal128(9, 2)),
    _decimals(pa.decimal128(38, 0)),
    _decimals(pa.decimal256(50, 20)),
    (pa.date32(), st.dates()),
    *((pa.timestamp(unit, zone), TICKS) for unit in UNITS for zone in (None, "UTC", "Asia/Tokyo")),
    *((pa.duration(unit), TICKS) for unit in UNITS),
    (pa.time32("s"), st.integers(0, 86_399)),
    (pa.time32("ms"), st.integers(0, 86_399_999)),
    (pa.time64("us"), st.integers(0, 86_399_999_999)),
    (pa.time64("ns"), st.integers(0, 86_399_999_999_999)),
    (pa.month_day_nano_interval(), st.tuples(st.integers(-99, 99), st.integers(-99, 99), TICKS)),
]
OTHERS: list[Kind] = [
    (pa.null(), st.none()),
    (pa.float16(), st.floats(width=16, allow_nan=False, allow_infinity=False)),
    (pa.dictionary(pa.int32(), pa.string()), st.text(max_size=2)),
    (pa.uuid(), st.binary(min_size=16, max_size=16)),
]


def _list_of(kind: Kind) -> Kind:
    item, contents = kind
    return pa.list_(item), st.lists(st.none() | contents, max_size=4)


def _large_list_of(kind: Kind) -> Kind:
    return pa.large_list(kind[0]), _list_of(kind)[1]


def _struct_of(kinds: list[Kind]) -> Kind:
    names = [f'{number}"é' for number in range(len(kinds))]
    fields = [pa.field(name, item) for name, (item, _) in zip(names, kinds, strict=True)]
    return pa.struct(fields), st.fixed_dictionaries(
        {name: st.none() | each for name, (_, each) in zip(names, kinds, strict=True)}
    )


def _map_of(kind: Kind) -> Kind:
    item, contents = kind
    pairs = st.dictionaries(st.text(max_size=3), st.none() | contents, max_size=3)
    return pa.map_(pa.string(), item), pairs.map(lambda each: list(each.items()))


kinds = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: (
        inner.map(_list_of)
        | inner.map(_large_list_of)
        | inner.map(_map_of)
        | st.lists(inner, min_size=1, max_size=3).map(_struct_of)
    ),
    max_leaves=4,
)


@given(data=st.data(), columns=st.lists(kinds | st.sampled_from(SCALARS + OTHERS), min_size=1, max_size=3))
def test_R91_json_comes_back(data: st.DataObject, columns: list[Kind]) -> None:
    rows = data.draw(st.integers(0, 6))
    arrays = [
        pa.array(data.draw(st.lists(st.none() | contents, min_size=rows, max_size=rows)), kind)
        for kind, contents in columns
    ]
    names = [f"column {number}\n" for number in range(len(columns))]
    first = data.draw(st.integers(0, rows))
    batch = pa.RecordBatch.from_arrays(arrays, names).slice(first)
    values = there.JsonLines()(batch)
    made = back.Json(batch.schema)(values)
    made.validate(full=True)
    expected = pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
    assert made.type == expected.type
    assert made.equals(expected) or made.to_pylist() == expected.to_pylist()


@given(data=st.data(), kind=kinds)
def test_json_of_one_column_comes_back(data: st.DataObject, kind: Kind) -> None:
    given_values = data.draw(st.lists(st.none() | kind[1], max_size=5))
    column = pa.array(given_values, kind[0])
    values = there.JsonLines("c")(pa.RecordBatch.from_pydict({"c": column}))
    made = back.Json(kind[0])(values)
    assert made.type == column.type and made.to_pylist() == column.to_pylist()


documents = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3)
    | st.sampled_from(["1", "1.5", "2026-01-01T00:00:00Z", "AAAA", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcdefgh"), inner, max_size=5)
    ),
    max_leaves=8,
)
FIELDS = pa.struct(
    [
        ("a", pa.int64()),
        ("b", pa.float64()),
        ("c", pa.string()),
        ("d", pa.decimal128(5, 2)),
        ("e", pa.bool_()),
        ("f", pa.list_(pa.int8())),
        ("g", pa.struct([("a", pa.uint8()), ("b", pa.timestamp("s", "UTC"))])),
    ]
)
mutations = st.tuples(st.integers(0, 10**6), st.sampled_from(b'{}[]",:0a\\ \n'), st.booleans())


@given(document=documents, mutation=st.none() | mutations)
def test_both_json_readers_take_the_same_values(
    document: Any, mutation: tuple[int, int, bool] | None
) -> None:
    """A value must not depend on whether another one of its block is at fault."""
    text = json.dumps({"a": document} if not isinstance(document, dict) else document).encode()
    if mutation is not None:
        index, byte, is_removed = mutation
        index %= len(text)
        text = text[:index] + bytes([byte]) + text[index + is_removed :]
    texts = pa.array([text])
    assume(json_values._objects(texts)[0].all())
    slow, faults = json_values._by_python(texts, FIELDS)
    try:
        fast = json_values._by_arrow(texts, FIELDS)
    except VALUE_ERRORS:
        assert faults
    else:
        assert not faults and fast.to_pylist() == slow.to_pylist()


@given(st.data(), st.lists(st.binary(max_size=12), min_size=1, max_size=8))
def test_json_is_one_value_a_row(data: st.DataObject, parts: list[bytes]) -> None:
    """Each row is what it is alone, whatever stands beside it."""
    whole = b'{"a":1,"b":{"a":[1,2]},"c":"x}{"}'
    rows = [
        data.draw(st.sampled_from([whole, part, whole[: len(part)], whole[len(part) :]])) for part in parts
    ]
    together = back.Json(FIELDS, "null")(pa.array(rows, pa.binary())).to_pylist()
    assert together == [
        back.Json(FIELDS, "null")(pa.array([row], pa.binary())).to_pylist()[0] for row in rows
    ]


@given(
    st.lists(st.none() | st.text()), st.lists(st.none() | st.integers(-(2**31), 2**31 - 1)), st.integers(0, 3)
)
def test_R91_plain_values_come_back(texts: list[str | None], numbers: list[int | None], first: int) -> None:
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        column = pa.array(texts, kind).slice(first)
        data = there.Utf8("c")(pa.RecordBatch.from_pydict({"c": column}))
        assert back.Utf8(data_type=kind)(data).equals(column)
    for kind, serializer, deserializer in (
        (pa.int32(), there.Int32("c"), back.Int32()),
        (pa.int64(), there.Int64("c"), back.Int64()),
    ):
        column = pa.array(numbers, kind).slice(first)
        data = serializer(pa.RecordBatch.from_pydict({"c": column}))
        for layout in (data, data.cast(pa.binary()), data.cast(pa.binary()).slice(1)):
            assert deserializer(layout).to_pylist() == column.to_pylist()[len(column) - len(layout) :]
    ids = pa.array(
        [None if text is None else uuid.uuid5(uuid.NAMESPACE_OID, text).bytes for text in texts], pa.uuid()
    )
    data = there.Utf8("c")(pa.RecordBatch.from_pydict({"c": ids}))
    assert back.Uuid()(data).equals(ids)


AVRO: list[tuple[Any, pa.DataType, st.SearchStrategy[Any]]] = [
    ("boolean", pa.bool_(), st.booleans()),
    ("int", pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    ("long", pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    ("float", pa.float32(), st.floats(width=32)),
    ("double", pa.float64(), st.floats()),
    ("bytes", pa.binary(), st.binary()),
    ("string", pa.string(), st.text()),
    ({"type": "int", "logicalType": "date"}, pa.date32(), st.dates()),
    ({"type": "int", "logicalType": "time-millis"}, pa.time32("ms"), st.integers(0, 86_399_999)),
    ({"type": "long", "logicalType": "time-micros"}, pa.time64("us"), st.integers(0, 86_399_999_999)),
    ({"type": "long", "logicalType": "timestamp-millis"}, pa.timestamp("ms", "UTC"), TICKS),
    ({"type": "long", "logicalType": "timestamp-micros"}, pa.timestamp("us", "UTC"), TICKS),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, pa.timestamp("us"), TICKS),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        *_decimals(pa.decimal128(9, 2)),
    ),
]


def _avro_nested(inner: Any) -> Any:
    schema, kind, contents = inner
    optional = ["null", schema] if not isinstance(schema, list) else schema
    return st.sampled_from(
        [
            (optional, kind, st.none() | contents),
            (
                {"type": "array", "items": optional},
                pa.list_(kind),
                st.lists(st.none() | contents, max_size=3),
            ),
            (
                {"type": "map", "values": schema},
                pa.map_(pa.string(), kind),
                st.dictionaries(st.text(max_size=2), contents, max_size=2).map(
                    lambda each: list(each.items())
                ),
            ),
        ]
    )


@given(data=st.data())
def test_R91_avro_comes_back(data: st.DataObject) -> None:
    inner = st.sampled_from(AVRO)
    fields = data.draw(st.lists(inner.flatmap(_avro_nested) | inner, min_size=1, max_size=4))
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": f"f{index}", "type": each} for index, (each, _, _) in enumerate(fields)],
    }
    count = data.draw(st.integers(0, 5))
    arrays = [
        pa.array(data.draw(st.lists(contents, min_size=count, max_size=count)), kind)
        for _, kind, contents in fields
    ]
    batch = pa.RecordBatch.from_arrays(arrays, [f"f{index}" for index in range(len(fields))])
    values = column_serializers._avro(schema, schema_id=5)(batch)
    made = column_deserializers._avro(schema, has_header=True)(values)
    made.validate(full=True)
    expected = pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
    assert made.type == expected.type
    for row, other in zip(made.to_pylist(), expected.to_pylist(), strict=True):
        assert row == other or all(_same_float(row[name], other[name]) for name in row)


BRANCHES: list[tuple[Any, str, st.SearchStrategy[Any]]] = [  # a type, its name in fastavro, physical data
    ("null", "null", st.none()),
    ("boolean", "boolean", st.booleans()),
    ({"type": "int", "logicalType": "date"}, "int", st.integers(-(7 * 10**5), 10**6)),
    ({"type": "long", "logicalType": "timestamp-micros"}, "long", st.integers(-(6 * 10**16), 10**17)),
    ("float", "float", st.floats(width=32, allow_nan=False)),
    ("double", "double", st.floats(allow_nan=False)),
    ("bytes", "bytes", st.binary(max_size=4)),
    ("string", "string", st.text(max_size=4)),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "E", st.sampled_from("AB")),
    ({"type": "fixed", "name": "F", "size": 2}, "F", st.binary(min_size=2, max_size=2)),
    ({"type": "map", "values": "string"}, "map", st.dictionaries(st.text(max_size=2), st.text(max_size=2))),
    (
        {"type": "record", "name": "N", "fields": [{"name": "a", "type": "string"}]},
        "N",
        st.fixed_dictionaries({"a": st.text(max_size=2)}),
    ),
]


@given(data=st.data())
def test_F_AVRO_19_union_keeps_its_branch_whatever_the_reader_adds(data: st.DataObject) -> None:
    """The written branch is known; a reader with one more time, and its fields in another order, agrees."""
    branches = data.draw(st.lists(st.sampled_from(BRANCHES), min_size=2, unique_by=lambda each: each[1]))
    union = [schema for schema, _, _ in branches]
    number = data.draw(st.integers(0, len(branches) - 1))
    _, name, contents = branches[number]
    value = data.draw(contents)
    fields = [{"name": "u", "type": union}, {"name": "n", "type": "int"}]
    writer = {"type": "record", "name": "R", "fields": fields}
    stream = BytesIO()
    physical = AvroSchema([writer]).physical[0]
    fastavro.schemaless_writer(stream, physical, {"u": (name, value), "n": 7})
    more = {"name": "at", "type": {"type": "long", "logicalType": "timestamp-nanos"}, "default": 5}
    reader = {**writer, "fields": [more, *reversed(fields)]}
    target = AvroSchema([reader])
    read, has_names = avro_resolution.reading(AvroSchema([writer]), target)
    shape = avro_arrays.shape_of(target.schema, target.named, has_names=has_names)
    stream.seek(0)
    datum = read(stream) if shape is None else shape(read(stream))
    evolved = avro_arrays.viewed(pa.array([datum], target.physical_arrow_type), target.arrow_type)
    (same,) = column_deserializers._avro(writer)(pa.array([stream.getvalue()]))
    assert evolved.field("u")[0] == same["u"] and evolved.field("at").cast(pa.int64()).to_pylist() == [5]
    kept = members(union)
    if value is not None and len(kept) > 1 and union[number] in kept:
        chosen = evolved.field("u").field(f"member{kept.index(union[number])}")
        assert chosen.null_count == 0
        assert evolved.field("u")[0].as_py() == {
            f"member{each}": chosen[0].as_py() if schema is union[number] else None
            for each, schema in enumerate(kept)
        }


@given(
    st.lists(
        st.tuples(st.text(max_size=3), st.lists(st.none() | st.integers()), st.integers(0, 9)), max_size=6
    ),
    st.data(),
)
def test_F_AVRO_20_values_of_a_stream_are_those_of_each_alone(
    contents: list[tuple[str, list[int | None], int]], data: st.DataObject
) -> None:
    """A value that is cut off, or too long, changes none of its neighbours, nor they why it is at fault."""
    optional = {"type": "array", "items": ["null", "long"]}
    fields = [{"name": "a", "type": "string"}, {"name": "b", "type": optional}]
    schema = AvroSchema([{"type": "record", "name": "R", "fields": fields}])
    rows: list[bytes | None] = []
    for text, numbers, change in contents:
        stream = BytesIO()
        numbers = [None if each is None else each % 2**63 for each in numbers]
        fastavro.schemaless_writer(stream, schema.physical[0], {"a": text, "b": numbers})
        whole = stream.getvalue()
        at = data.draw(st.integers(0, len(whole) - 1))
        other = data.draw(st.binary(min_size=1, max_size=2))
        changed = {0: None, 1: whole[:at], 2: whole + other, 3: whole[:at] + other + whole[at + 1 :]}
        rows.append(changed.get(change, whole))
    for stream_bytes in (1, 1 << 20):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(avro_values, "STREAM_BYTES", stream_bytes)
            read = avro_values.AvroColumns(schema, "column")
            found, reasons = read(pa.array(rows, pa.binary()))
            alone = [read(pa.array([row], pa.binary())) for row in rows]
    assert found.to_pylist() == [value[0].as_py() for value, _ in alone]
    assert reasons.to_pylist() == [reason[0].as_py() for _, reason in alone]


def _same_float(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same_float, one, other))
    if isinstance(one, tuple):
        return all(map(_same_float, one, other))
    return bool(one == other)


@given(st.lists(st.none() | st.binary(max_size=30)))
def test_any_bytes_are_values_or_errors(values: list[bytes | None]) -> None:
    column = pa.array(values, pa.binary())
    for deserializer in (
        back.Json(FIELDS, "column"),
        back.Json(errors="column"),
        back.Json(pa.map_(pa.string(), pa.int64()), "column"),
        column_deserializers._avro({"type": "array", "items": ["null", "string"]}, "column"),
        column_deserializers._avro("double", "column", has_header=True),
        back.Uuid("column"),
        back.Float32("column"),
    ):
        made, reasons = deserializer(column)
        made.validate(full=True)
        for value, one, reason in zip(values, made.to_pylist(), reasons.to_pylist(), strict=True):
            assert reason is None or (one is None and value is not None)
