"""Avro of single records: what is written is what fastavro reads, and what columns of the same rows are."""

from __future__ import annotations

import datetime
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kbatch import formats

# A schema, and its values.
Kind = tuple[Any, st.SearchStrategy[Any]]
UTC = datetime.UTC
DAY_MICROSECONDS = 86_400 * 10**6


def _logical(physical: str, logical: str, values: st.SearchStrategy[Any], **more: Any) -> Kind:
    return {"type": physical, "logicalType": logical, **more}, values


def _time(microseconds: int) -> datetime.time:
    moment = datetime.datetime(2000, 1, 1) + datetime.timedelta(microseconds=microseconds)
    return moment.time()


def _moments(step_microseconds: int, zone: datetime.tzinfo | None) -> st.SearchStrategy[datetime.datetime]:
    epoch = datetime.datetime(1970, 1, 1, tzinfo=zone)
    limit = 200 * 365 * DAY_MICROSECONDS // step_microseconds
    ticks = st.integers(-limit, limit)
    return ticks.map(lambda tick: epoch + datetime.timedelta(microseconds=tick * step_microseconds))


SCALARS: list[Kind] = [
    ("boolean", st.booleans()),
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", st.integers(-(2**63), 2**63 - 1)),
    ("float", st.floats(width=32, allow_nan=False)),
    ("double", st.floats(allow_nan=False)),
    ("bytes", st.binary(max_size=5)),
    ("string", st.text(max_size=5)),
    _logical("int", "date", st.dates()),
    _logical("int", "time-millis", st.integers(0, 86_399_999).map(lambda tick: _time(tick * 1000))),
    _logical("long", "time-micros", st.integers(0, DAY_MICROSECONDS - 1).map(_time)),
    _logical("long", "timestamp-millis", _moments(1000, UTC)),
    _logical("long", "timestamp-micros", _moments(1, UTC)),
    _logical("long", "local-timestamp-millis", _moments(1000, None)),
    _logical("long", "local-timestamp-micros", _moments(1, None)),
    _logical(
        "bytes",
        "decimal",
        st.integers(-(10**10) + 1, 10**10 - 1).map(lambda number: Decimal(number).scaleb(-2)),
        precision=10,
        scale=2,
    ),
    _logical("string", "uuid", st.uuids()),
]
# Members of a union that Python's types tell apart.
TOLD_APART = [each for each in SCALARS if each[0] in ("boolean", "long", "double", "bytes", "string")]


def _list_of(kind: Kind) -> Kind:
    return {"type": "array", "items": kind[0]}, st.lists(kind[1], max_size=3)


def _map_of(kind: Kind) -> Kind:
    return {"type": "map", "values": kind[0]}, st.dictionaries(st.text(max_size=3), kind[1], max_size=3)


def _optional(kind: Kind) -> Kind:
    return ["null", kind[0]], st.none() | kind[1]


unions = st.lists(st.sampled_from(TOLD_APART), min_size=2, max_size=4, unique_by=lambda kind: kind[0]).map(
    lambda members: (
        ["null", *(schema for schema, _ in members)],
        st.none() | st.one_of([values for _, values in members]),
    )
)
kinds = st.recursive(
    st.sampled_from(SCALARS) | st.sampled_from(SCALARS).map(_optional) | unions,
    lambda inner: inner.map(_list_of) | inner.map(_map_of),
    max_leaves=3,
)


def _record_of(fields: list[Kind]) -> Kind:
    names = [f"f{number}" for number in range(len(fields))]
    inner = fields[0]
    nested = {"type": "record", "name": "Inner", "fields": [{"name": "at", "type": inner[0]}]}
    schema = {
        "type": "record",
        "name": "Outer",
        "fields": [
            *({"name": name, "type": kind} for name, (kind, _) in zip(names, fields, strict=True)),
            {"name": "inner", "type": nested},
        ],
    }
    values = {name: each for name, (_, each) in zip(names, fields, strict=True)}
    return schema, st.fixed_dictionaries({**values, "inner": st.fixed_dictionaries({"at": inner[1]})})


records = st.lists(kinds, min_size=1, max_size=3).map(_record_of)


def typed(value: Any) -> Any:
    """Return a value with the types of all that it has: 1, 1.0 and True are equal."""
    if isinstance(value, dict):
        return sorted((name, typed(each)) for name, each in value.items())
    return list(map(typed, value)) if isinstance(value, list) else (type(value), repr(value))


@given(data=st.data(), record=records)
def test_F_AVRO_35_36_records_are_what_fastavro_and_columns_say(data: st.DataObject, record: Kind) -> None:
    schema, values = record
    rows = data.draw(st.lists(values, min_size=1, max_size=3))
    format = formats.Avro[Any](schema)
    codec = format.bind("value")
    written = [codec.encode("t", (), row) for row in rows]
    parsed = fastavro.parse_schema(schema)
    for row, each in zip(rows, written, strict=True):
        stream = BytesIO(each)
        assert typed(fastavro.schemaless_reader(stream, parsed, None)) == typed(row)
        assert not stream.read()
        assert typed(codec.decode("t", (), each)) == typed(row)
    column = format.column_deserializer("t", "value")(pa.array(written))
    table = pa.RecordBatch.from_struct_array(column)
    assert format.column_serializer("t", "value")(table).to_pylist() == written
