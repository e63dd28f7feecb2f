"""Questions about Arrow types, and types made of others."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

types = pa.types


def is_list(kind: pa.DataType) -> bool:
    return bool(
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_fixed_size_list(kind)
        or types.is_list_view(kind)
        or types.is_large_list_view(kind)
    )


def is_text(kind: pa.DataType) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def is_bytes(kind: pa.DataType) -> bool:
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
    )


def is_uuid(kind: pa.DataType) -> bool:
    return getattr(kind, "extension_name", "") == "arrow.uuid"


def mapped_type(kind: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return a type in which `leaf` has replaced every type that is not nested."""

    def mapped(field: pa.Field) -> pa.Field:
        return field.with_type(mapped_type(field.type, leaf))

    if types.is_struct(kind):
        return pa.struct([mapped(field) for field in kind])
    if types.is_map(kind):
        return pa.map_(mapped(kind.key_field), mapped(kind.item_field))
    if types.is_fixed_size_list(kind):
        return pa.list_(mapped(kind.value_field), kind.list_size)
    if types.is_large_list(kind):
        return pa.large_list(mapped(kind.value_field))
    return pa.list_(mapped(kind.value_field)) if types.is_list(kind) else leaf(kind)


def in_microseconds(kind: pa.DataType) -> pa.DataType:
    """Return microseconds for times in nanoseconds, which neither Python nor Spark has."""
    if types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    if types.is_time(kind) and kind.unit == "ns":
        return pa.time64("us")
    return pa.duration("us") if types.is_duration(kind) and kind.unit == "ns" else kind


def is_number(kind: pa.DataType) -> bool:
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))
