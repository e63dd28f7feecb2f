"""Arrow columns as what fastavro writes: integers for times, bytes for decimals, and the name of the branch
for each value of a union.

A plan is made once for a schema and an Arrow type. It says how well the type takes the column's values, and
converts a column without nulls.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kbatch.formats.arrow_types import is_bytes, is_text, is_uuid
from kbatch.formats.avro_schemas import (
    PRIMITIVES,
    kind_of,
    logical_of,
    members,
    name_of,
    resolved,
)

types = pa.types
Convert = Callable[[pa.Array], list[Any]]
# How well a type takes a column's values; of a union's branches, the first with the lowest rank counts.
EXACT, WIDER, OTHER_FORM, NARROWER = range(4)
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_INT_BITS = {"int": 32, "long": 64}
_DECIMAL_BYTES = {128: 16, 256: 32}


class Refused(ValueError):
    """A column has a value that its Avro type does not take."""


class Plan(NamedTuple):
    """How a column becomes what fastavro writes.

    Attributes
    ----------
    rank : int
        EXACT, WIDER, OTHER_FORM or NARROWER.
    convert : Callable
        Makes data of a column. Nulls are Refused, but for a type with null.
    """

    rank: int
    convert: Convert


def plan_of(schema: Any, named: Mapping[str, Any], kind: pa.DataType) -> Plan | None:
    """Return how columns of an Arrow type become data of an Avro type; None if they cannot."""
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        plan = plan_of(schema, named, kind.value_type)
        return None if plan is None else Plan(plan.rank, _decoded(plan.convert, kind))
    schema = resolved(schema, named)
    if isinstance(schema, list):
        return _union(schema, named, kind)
    if types.is_null(kind):
        return Plan(EXACT if kind_of(schema) == "null" else NARROWER, _nulls(schema))
    plan = _PLANS[kind_of(schema)](schema, named, kind)
    return None if plan is None else Plan(plan.rank, _required(plan.convert, schema))


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return a type without views, which Arrow cannot filter."""
    if types.is_string_view(kind):
        return pa.large_string()
    if types.is_binary_view(kind):
        return pa.large_binary()
    if types.is_struct(kind):
        return pa.struct([field.with_type(plain_type(field.type)) for field in kind])
    if types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        return pa.large_list(plain_type(kind.value_type))
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.large_list(plain_type(kind.value_type))
    return kind


def text_of(schema: Any) -> str:
    """Return a type as the JSON of an error message."""
    return json.dumps(schema, default=str)


def _decoded(convert: Convert, kind: pa.DataType) -> Convert:
    if types.is_dictionary(kind):
        return lambda array: convert(array.dictionary_decode())
    return lambda array: convert(pc.run_end_decode(array))


def _nulls(schema: Any) -> Convert:
    def convert(array: pa.Array) -> list[Any]:
        if len(array) and kind_of(schema) != "null":
            raise Refused(f"Avro does not take None for {text_of(schema)}")
        return [None] * len(array)

    return convert


def _required(convert: Convert, schema: Any) -> Convert:
    def checked(array: pa.Array) -> list[Any]:
        if array.null_count:
            raise Refused(f"Avro does not take None for {text_of(schema)}")
        return convert(array)

    return checked


def spread(values: Sequence[Any], array: pa.Array) -> list[Any]:
    """Return the values of rows that are not null, with None for the others."""
    if not array.null_count:
        return list(values)
    found = iter(values)
    return [next(found) if is_valid else None for is_valid in array.is_valid().to_pylist()]


# Unions


def _union(union: Sequence[Any], named: Mapping[str, Any], kind: pa.DataType) -> Plan | None:
    has_null = any(kind_of(resolved(each, named)) == "null" for each in union)
    branches = members(union)
    if _is_of_members(kind, len(branches)):
        return _struct_of_members(union, named, kind, branches, has_null)
    if types.is_null(kind):
        return Plan(EXACT if has_null else NARROWER, _nulls("null" if has_null else union))
    plans = [(plan_of(branch, named, kind), branch) for branch in branches]
    fitting = [(plan, branch) for plan, branch in plans if plan is not None]
    if not fitting:
        return None
    (rank, convert), branch = min(fitting, key=lambda each: each[0].rank)
    name = name_of(branch, named)

    def chosen(array: pa.Array) -> list[Any]:
        if array.null_count and not has_null:
            raise Refused(f"Avro does not take None for {text_of(union)}")
        return spread([(name, each) for each in convert(array.drop_null())], array)

    return Plan(rank, chosen)


def _is_of_members(kind: pa.DataType, count: int) -> bool:
    """True for the struct as which a union of several types is read: of member0, member1, ..."""
    return (
        count > 1
        and types.is_struct(kind)
        and [field.name for field in kind] == [f"member{number}" for number in range(count)]
    )


def _struct_of_members(
    union: Sequence[Any], named: Mapping[str, Any], kind: pa.DataType, branches: Sequence[Any], has_null: bool
) -> Plan | None:
    plans = [plan_of(branch, named, field.type) for branch, field in zip(branches, kind, strict=True)]
    if any(plan is None for plan in plans):
        return None
    names = [name_of(branch, named) for branch in branches]

    def convert(array: pa.Array) -> list[Any]:
        made: list[Any] = [None] * len(array)
        counts = np.zeros(len(array), np.int64)
        for name, plan, column in zip(names, plans, array.flatten(), strict=True):
            assert plan is not None
            rows = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
            counts[rows] += 1
            for row, each in zip(rows.tolist(), plan.convert(column.drop_null()), strict=True):
                made[row] = (name, each)
        if (counts > 1).any() or (not has_null and not counts.all()):
            raise Refused(f"one member of a value must be set for {text_of(union)}")
        return made

    return Plan(EXACT, convert)


# Types of types


def _record(schema: Any, named: Mapping[str, Any], kind: pa.DataType) -> Plan | None:
    if not types.is_struct(kind):
        return None
    fields = {field["name"]: field for field in schema["fields"]}
    given = {field.name for field in kind}
    if given - fields.keys() or any(
        "default" not in field for name, field in fields.items() if name not in given
    ):
        return None
    plans = {field.name: plan_of(fields[field.name]["type"], named, field.type) for field in kind}
    if any(plan is None for plan in plans.values()):
        return None

    def convert(array: pa.Array) -> list[Any]:
        columns = zip(plans.items(), array.flatten(), strict=True)
        return rows_of({name: plan.convert(column) for (name, plan), column in columns if plan}, len(array))

    return Plan(max((plan.rank for plan in plans.values() if plan), default=EXACT), convert)


def rows_of(columns: Mapping[str, Iterable[Any]], count: int) -> list[Any]:
    """Return columns as a dict a row."""
    if not columns:
        return [{} for _ in range(count)]
    names = list(columns)
    return [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _array(schema: Any, named: Mapping[str, Any], kind: pa.DataType) -> Plan | None:
    if not (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)):
        return None
    plan = plan_of(schema["items"], named, kind.value_type)
    return (
        None if plan is None else Plan(plan.rank, lambda array: _lists(array, plan.convert(array.flatten())))
    )


def _lists(array: pa.Array, items: Sequence[Any]) -> list[Any]:
    made, first = [], 0
    for length in pc.list_value_length(array).to_pylist():
        made.append(items[first : first + length])
        first += length
    return made


def _map(schema: Any, named: Mapping[str, Any], kind: pa.DataType) -> Plan | None:
    if types.is_map(kind) and is_text(kind.key_type):
        plan = plan_of(schema["values"], named, kind.item_type)
        return None if plan is None else Plan(plan.rank, lambda array: _maps(array, plan.convert))
    if not types.is_struct(kind):
        return None
    plans = {field.name: plan_of(schema["values"], named, field.type) for field in kind}
    if any(plan is None for plan in plans.values()):
        return None

    def convert(array: pa.Array) -> list[Any]:
        columns = zip(plans.items(), array.flatten(), strict=True)
        return rows_of({name: plan.convert(column) for (name, plan), column in columns if plan}, len(array))

    return Plan(OTHER_FORM, convert)


def _maps(array: pa.Array, convert: Convert) -> list[Any]:
    lists = array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))
    entries = lists.flatten()
    pairs = list(zip(entries.field(0).to_pylist(), convert(entries.field(1)), strict=True))
    return [dict(each) for each in _lists(lists, pairs)]


# Types of one value


def _boolean(schema: Any, named: Mapping[str, Any], kind: pa.DataType) -> Plan | None:
    return Plan(EXACT, pa.Array.to_pylist) if types.is_boolean(kind) else None


def _never(schema: Any, named: Mapping[str, Any], kind: pa.DataType) -> Plan | None:
    return None  # a type of null takes columns of nulls only


def _float(schema: Any, named: Mapping[str, Any], kind: pa.DataType) -> Plan | None:
    if types.is_floating(kind):
        rank = EXACT if PRIMITIVES[kind_of(schema)] == kind else WIDER
        is_narrower = kind_of(schema) == "float" and kind.bit_width == 64
        return Plan(NARROWER if is_narrower else rank, _numbers)
    if types.is_integer(kind):
        return Plan(OTHER_FORM, lambda array: _numbers(_cast(array, pa.float64(), schema)))
    return None


def _numbers(array: pa.Array) -> list[Any]:
    return list(array.to_numpy(zero_copy_only=False).tolist())  # many times faster than to_pylist


def _cast(array: pa.Array, kind: pa.DataType, schema: Any) -> pa.Array:
    try:
        return array.cast(kind)
    except pa.ArrowInvalid as error:
        raise Refused(f"Avro does not take it for {text_of(schema)}: {error}") from error


def _integer(schema: Any, named: Mapping[str, Any], kind: pa.DataType) -> Plan | None:
    logical = logical_of(schema)
    if logical is not None and not types.is_integer(kind):
        return _time(schema, logical, kind)
    if not types.is_integer(kind):
        return None
    own = PRIMITIVES[kind_of(schema)]

    def convert(array: pa.Array) -> list[Any]:
        try:
            return _numbers(array.cast(own))
        except pa.ArrowInvalid as error:
            number = next(each for each in array.to_pylist() if not _fits(each, own.bit_width))
            raise Refused(f"{number} is too large for the Avro type {text_of(schema)}") from error

    if kind == own:
        return Plan(EXACT if logical is None else OTHER_FORM, convert)
    return Plan(WIDER if kind.bit_width < own.bit_width else NARROWER, convert)


def _fits(number: int, bits: int) -> bool:
    limit = 1 << (bits - 1)
    return -limit <= number < limit


def _time(schema: Any, logical: str, kind: pa.DataType) -> Plan | None:
    if logical == "date":
        return Plan(EXACT, _days) if types.is_date(kind) else None
    is_kind = types.is_time if logical.startswith("time-") else types.is_timestamp
    if not is_kind(kind):
        return None
    unit = {"millis": "ms", "micros": "us", "nanos": "ns"}[logical.rpartition("-")[2]]
    ours, theirs = _PER_SECOND[kind.unit], _PER_SECOND[unit]
    integers = pa.int32() if kind.bit_width == 32 else pa.int64()
    is_local = logical.startswith("local-")
    has_other_zone = types.is_timestamp(kind) and (kind.tz is None) != is_local

    def convert(array: pa.Array) -> list[Any]:
        numbers = array.view(integers).to_numpy(zero_copy_only=False).astype(np.int64)
        if ours > theirs:  # digits below the type's unit are cut
            return list((numbers // (ours // theirs)).tolist())
        factor = theirs // ours
        if len(numbers) and int(np.abs(numbers).max()) > (2**63 - 1) // factor:
            raise Refused(f"a time is beyond the Avro type {text_of(schema)}")
        return list((numbers * factor).tolist())

    rank = EXACT if ours == theirs else WIDER if ours < theirs else NARROWER
    return Plan(max(rank, OTHER_FORM) if has_other_zone else rank, convert)


def _days(array: pa.Array) -> list[Any]:
    return _numbers(array.cast(pa.date32()).view(pa.int32()))


def _bytes(schema: Any, named: Mapping[str, Any], kind: pa.DataType) -> Plan | None:
    if logical_of(schema) == "decimal" and (types.is_decimal(kind) or types.is_integer(kind)):
        return _decimal(schema, kind)
    if logical_of(schema) == "uuid" and is_uuid(kind):
        return Plan(EXACT, lambda array: array.storage.to_pylist())
    if not is_bytes(kind):
        return None
    if kind_of(schema) == "bytes":
        return Plan(WIDER if types.is_fixed_size_binary(kind) else EXACT, pa.Array.to_pylist)
    width = schema["size"]
    if types.is_fixed_size_binary(kind) and kind.byte_width != width:
        return None

    def convert(array: pa.Array) -> list[Any]:
        values: list[Any] = array.to_pylist()
        for value in values:
            if len(value) != width:
                raise Refused(f"Avro does not take {len(value)} bytes for {text_of(schema)}")
        return values

    return Plan(EXACT if types.is_fixed_size_binary(kind) else NARROWER, convert)


def _decimal(schema: Any, kind: pa.DataType) -> Plan:
    precision, scale = schema["precision"], schema.get("scale", 0)
    own = (pa.decimal128 if precision <= 38 else pa.decimal256)(precision, scale)
    size, width = schema.get("size"), _DECIMAL_BYTES[own.bit_width]

    def convert(array: pa.Array) -> list[Any]:
        made = _cast(array, own, schema)
        buffer = memoryview(made.buffers()[1])[made.offset * width :]
        values = []
        for row in range(len(made)):
            number = int.from_bytes(buffer[row * width : (row + 1) * width], "little", signed=True)
            values.append(number.to_bytes(size or (number.bit_length() + 8) // 8, "big", signed=True))
        return values

    if types.is_integer(kind):
        return Plan(NARROWER, convert)
    return Plan(EXACT if kind.scale == scale else WIDER if kind.scale < scale else NARROWER, convert)


def _string(schema: Any, named: Mapping[str, Any], kind: pa.DataType) -> Plan | None:
    has_uuids = logical_of(schema) == "uuid"
    if is_uuid(kind):
        return Plan(EXACT if has_uuids else OTHER_FORM, lambda array: list(map(str, array.to_pylist())))
    if not is_text(kind):
        return None
    return Plan(OTHER_FORM if has_uuids else EXACT, _texts)


def _texts(array: pa.Array) -> list[Any]:
    return list(array.cast(pa.large_string()).to_numpy(zero_copy_only=False).tolist())


def _enum(schema: Any, named: Mapping[str, Any], kind: pa.DataType) -> Plan | None:
    if not is_text(kind):
        return None
    symbols = frozenset(schema["symbols"])

    def convert(array: pa.Array) -> list[Any]:
        texts = _texts(array)
        for text in texts:
            if text not in symbols:
                raise Refused(f"Avro does not take {text!r} for {text_of(schema)}")
        return texts

    return Plan(NARROWER, convert)


_PLANS: Mapping[str, Callable[[Any, Mapping[str, Any], pa.DataType], Plan | None]] = {
    "null": _never,
    "boolean": _boolean,
    "int": _integer,
    "long": _integer,
    "float": _float,
    "double": _float,
    "bytes": _bytes,
    "fixed": _bytes,
    "string": _string,
    "enum": _enum,
    "array": _array,
    "map": _map,
    "record": _record,
    "error": _record,
}
