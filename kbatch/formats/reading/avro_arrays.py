"""Physical Avro data as Arrow arrays of a schema's type."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from kbatch.formats.arrow_types import is_uuid, mapped_type
from kbatch.formats.avro_schemas import (
    NAMED,
    PRIMITIVES,
    WIDER,
    kind_of,
    members,
    name_of,
    resolved,
)

types = pa.types
Shape = Callable[[Any], Any]
# The branch of data whose type Python tells.
_BRANCHES: Mapping[type, str] = {
    bool: "boolean",
    int: "long",
    float: "double",
    bytes: "bytes",
    str: "string",
    list: "array",
    dict: "map",
}
_DECIMAL_BYTES = {128: 16, 256: 32}
# What decimals of columns become: themselves, those that all readers of Arrow have, text, or doubles.
Decimals = Literal["exact", "narrow", "string", "double"]
DECIMALS: tuple[Decimals, ...] = ("exact", "narrow", "string", "double")
_NARROW_DIGITS = 38


def shape_of(schema: Any, named: Mapping[str, Any], *, has_names: bool) -> Shape | None:
    """Return what makes of physical data those that pyarrow takes; None if they are the same.

    Parameters
    ----------
    has_names : bool
        True if named types have their names outside of unions.
    """
    schema = resolved(schema, named)
    if isinstance(schema, list):
        return _union_shape(schema, named, has_names)
    shape = _plain_shape(schema, named, has_names)
    if not has_names or kind_of(schema) in PRIMITIVES or kind_of(schema) in ("array", "map"):
        return shape
    if shape is None:
        return lambda value: value[1] if isinstance(value, tuple) else value
    return lambda value: shape(value[1] if isinstance(value, tuple) else value)


def _plain_shape(schema: Any, named: Mapping[str, Any], has_names: bool) -> Shape | None:
    kind = kind_of(schema)
    if kind in ("record", "error"):
        return _record_shape(schema, named, has_names)
    if kind == "array":
        item = shape_of(schema["items"], named, has_names=has_names)
        return None if item is None else lambda value: list(map(item, value))
    if kind != "map":
        return None
    member = shape_of(schema["values"], named, has_names=has_names)
    if member is None:
        return lambda value: list(value.items())
    return lambda value: [(name, member(each)) for name, each in value.items()]


def _record_shape(schema: Any, named: Mapping[str, Any], has_names: bool) -> Shape | None:
    found = {f["name"]: shape_of(f["type"], named, has_names=has_names) for f in schema["fields"]}
    shapes = {name: shape for name, shape in found.items() if shape is not None}
    if not shapes:
        return None

    def shaped(value: Any) -> Any:
        made = dict(value)  # a default is shared by all that lack it
        for name, shape in shapes.items():
            made[name] = shape(made[name])
        return made

    return shaped


def _union_shape(union: Sequence[Any], named: Mapping[str, Any], has_names: bool) -> Shape | None:
    branches = members(union)
    shapes = [shape_of(each, named, has_names=has_names) for each in branches]
    if not branches:
        return None
    if len(branches) == 1:
        is_bare = not has_names and kind_of(resolved(branches[0], named)) not in NAMED
        return _optional(shapes[0], is_bare=is_bare)
    numbers = {name_of(each, named): number for number, each in enumerate(branches)}
    for narrow, wide in WIDER.items():
        if wide in numbers:  # what has taken the narrower one's values
            numbers.setdefault(narrow, numbers[wide])
        elif narrow in numbers:
            numbers[wide] = numbers[narrow]

    def chosen(value: Any) -> Any:
        if value is None:
            return None
        name, value = value if isinstance(value, tuple) else (_BRANCHES[type(value)], value)
        number = numbers[name]
        shape = shapes[number]
        return {f"member{number}": value if shape is None else shape(value)}

    return chosen


def _optional(shape: Shape | None, *, is_bare: bool) -> Shape | None:
    if is_bare:
        return None if shape is None else lambda value: None if value is None else shape(value)

    def unwrapped(value: Any) -> Any:
        value = value[1] if isinstance(value, tuple) else value
        return value if value is None or shape is None else shape(value)

    return unwrapped


# Arrays


def viewed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return physical data as the logical type. Raise ValueError for a value that it does not have."""
    if array.type == kind:
        return array
    if types.is_struct(kind):
        children = [viewed(child, field.type) for child, field in zip(array.flatten(), kind, strict=True)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())
    mask = array.is_null() if array.null_count else None
    if types.is_list(kind):
        items = viewed(array.values, kind.value_type)
        return pa.ListArray.from_arrays(array.offsets, items, type=kind, mask=mask)
    if types.is_map(kind):
        return pa.MapArray.from_arrays(
            array.offsets, array.keys, viewed(array.items, kind.item_type), kind, mask=mask
        )
    if types.is_decimal(kind):
        return _decimals(array, kind)
    return _uuids(array, kind) if is_uuid(kind) else array.view(kind)


def decimals_as(kind: pa.DataType, decimals: Decimals) -> pa.DataType:
    """Return the type as which values with decimals are read."""

    def leaf(kind: pa.DataType) -> pa.DataType:
        if not types.is_decimal(kind) or decimals == "exact":
            return kind
        if decimals == "narrow":
            return pa.decimal128(_NARROW_DIGITS, min(kind.scale, _NARROW_DIGITS))
        return pa.string() if decimals == "string" else pa.float64()

    return mapped_type(kind, leaf)


def converted_decimals(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return values with decimals as a type of `decimals_as`. Raise ValueError for one that it lacks."""
    if array.type == kind:
        return array
    mask = array.is_null() if array.null_count else None
    if types.is_struct(kind):
        children = zip(array.flatten(), kind, strict=True)
        made = [converted_decimals(child, field.type) for child, field in children]
        return pa.StructArray.from_arrays(made, fields=list(kind), mask=mask)
    if types.is_list(kind):
        items = converted_decimals(array.values, kind.value_type)
        return pa.ListArray.from_arrays(array.offsets, items, type=kind, mask=mask)
    if types.is_map(kind):
        items = converted_decimals(array.items, kind.item_type)
        return pa.MapArray.from_arrays(array.offsets, array.keys, items, kind, mask=mask)
    return array.cast(kind)


def _decimals(array: pa.Array, kind: pa.DataType) -> pa.Array:
    width = _DECIMAL_BYTES[kind.bit_width]
    made = bytearray()
    for value in array.to_pylist():
        number = int.from_bytes(value or b"", "big", signed=True)
        if not -(1 << (8 * width - 1)) <= number < 1 << (8 * width - 1):
            raise ValueError(f"its decimal of {len(value)} bytes is beyond {kind}")
        made += number.to_bytes(width, "little", signed=True)
    found = pa.Array.from_buffers(kind, len(array), [_validity(array), pa.py_buffer(bytes(made))])
    found.validate(full=True)
    return found


def _uuids(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if not types.is_fixed_size_binary(array.type):
        texts = array.to_pylist()
        array = pa.array(
            [None if text is None else uuid.UUID(text).bytes for text in texts], kind.storage_type
        )
    return pa.ExtensionArray.from_storage(kind, array)


def _validity(array: pa.Array) -> pa.Buffer | None:
    if not array.null_count:
        return None
    return pa.py_buffer(
        np.packbits(array.is_valid().to_numpy(zero_copy_only=False), bitorder="little").tobytes()
    )
