"""Columns as they stand in JSON, such as times as text, into the Arrow types that they are for.

The reverse of `writing.json_text`.

`json_type` says in which type a value of a type is parsed, and `converted` takes it from there.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kbatch.formats.arrow_types import is_bytes, is_list, is_number, is_text, is_uuid
from kbatch.formats.reading.base import Where
from kbatch.formats.reading.plain import Uuid

types = pa.types
NANOSECONDS = 10**9
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": NANOSECONDS}
_DURATION = re.compile(
    r"(?P<sign>-?)P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?"
    r"(?:(?P<negative>-?)(?P<seconds>\d+)(?:\.(?P<fraction>\d{1,9}))?S)?)?"
)
_INTERVAL = re.compile(
    r"P(?P<months>-?\d+)M(?P<days>-?\d+)DT(?P<negative>-?)(?P<seconds>\d+)(?:\.(?P<fraction>\d{1,9}))?S"
)


def json_type(kind: pa.DataType, path: str = "value") -> pa.DataType:
    """Return the type in which values for a type are parsed. Raise TypeError if it has no JSON form."""
    if types.is_float16(kind):
        return pa.float32()
    if types.is_boolean(kind) or types.is_null(kind) or is_number(kind):
        return kind
    if is_text(kind) or is_bytes(kind) or types.is_temporal(kind) or is_uuid(kind):
        return pa.string()
    if types.is_dictionary(kind):
        return json_type(kind.value_type, path)
    if types.is_struct(kind):
        return pa.struct([field.with_type(json_type(field.type, f"{path}.{field.name}")) for field in kind])
    if types.is_map(kind):
        json_type(kind.key_type, f"{path}.key")
        return pa.map_(pa.string(), json_type(kind.item_type, f"{path}.value"))
    if is_list(kind):
        return pa.list_(json_type(kind.value_type, f"{path}[]"))
    raise TypeError(f"{path} is of {kind}, which has no JSON form; choose another type")


def converted(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return an array of `json_type(kind)` as `kind`. Raise ValueError for a value that it does not have."""
    if array.type == kind:
        return array
    if types.is_dictionary(kind):
        return converted(array, kind.value_type).dictionary_encode().cast(kind)
    if types.is_struct(kind):
        children = [converted(child, field.type) for child, field in zip(array.flatten(), kind, strict=True)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())
    if types.is_map(kind):
        array = _as_lists(array)
        items = array.flatten()
        keys = converted_keys(items.field(0), kind.key_type)
        entries = pa.StructArray.from_arrays(
            [keys, converted(items.field(1), kind.item_type)], fields=[kind.key_field, kind.item_field]
        )
        return _listed(array, entries, kind)
    if is_list(kind):
        plain = pa.list_(kind.value_field)
        return _listed(array, converted(array.flatten(), kind.value_type), plain).cast(kind)
    convert = _from_text(kind)
    return array.cast(kind) if convert is None or not is_text(array.type) else convert(array, kind)


def converted_keys(keys: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the names of members as a map's keys; numbers and truth values stand in quotes there."""
    if is_number(kind) or types.is_boolean(kind):
        return keys.cast(kind)
    return converted(keys, kind)


def _as_lists(array: pa.Array) -> pa.Array:
    """Return maps as lists of their entries."""
    entries = pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
    return pa.Array.from_buffers(
        pa.list_(entries.type), len(array), array.buffers()[:2], -1, array.offset, [entries]
    )


def _listed(array: pa.Array, items: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the lists of `array` with other items."""
    offsets = np.zeros(len(array) + 1, np.int32)
    np.cumsum(pc.fill_null(pc.list_value_length(array), 0), out=offsets[1:])
    validity = None
    if array.null_count:
        is_valid = array.is_valid().to_numpy(zero_copy_only=False)
        validity = pa.py_buffer(np.packbits(is_valid, bitorder="little").tobytes())
    return pa.Array.from_buffers(kind, len(array), [validity, pa.py_buffer(offsets)], -1, 0, [items])


def _from_text(kind: pa.DataType) -> Callable[[pa.Array, pa.DataType], pa.Array] | None:
    """Return what makes values of text; None if Arrow's cast does."""
    if is_bytes(kind):
        return _bytes
    if is_uuid(kind):
        return _uuids
    if types.is_timestamp(kind) and kind.tz is not None:
        return lambda array, kind: array.cast(pa.timestamp(kind.unit, "UTC")).cast(kind)
    if types.is_time(kind):
        return _times
    if types.is_duration(kind):
        return _durations
    return _intervals if types.is_interval(kind) else None


def _bytes(array: pa.Array, kind: pa.DataType) -> pa.Array:
    values = [None if each is None else b64decode(each, validate=True) for each in array.to_pylist()]
    return pa.array(values, kind)


def _uuids(array: pa.Array, kind: pa.DataType) -> pa.Array:
    values, faults = Uuid().decode(array.cast(pa.binary()), Where())
    if faults:
        raise ValueError(next(iter(faults.values())))
    return values


def _times(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return times of day; Arrow reads them as a part of timestamps only."""
    moments = pc.binary_join_element_wise("1970-01-01T", array, "")
    return moments.cast(pa.timestamp(kind.unit)).cast(kind)


def _durations(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return durations of the text of java.time.Duration, such as PT1.5S."""
    units = _UNITS[kind.unit]

    def number(text: str) -> int:
        found = _matched(_DURATION, text, "a duration such as PT1.5S")
        days, hours, minutes = (int(found[name] or 0) for name in ("days", "hours", "minutes"))
        total = ((days * 24 + hours) * 60 + minutes) * 60 * NANOSECONDS + _nanoseconds(found)
        whole, rest = divmod(-total if found["sign"] else total, NANOSECONDS // units)
        if rest:
            raise ValueError(f"{text!r} is finer than {kind}")
        return whole

    return _each(number, array, pa.int64()).cast(kind)


def _intervals(array: pa.Array, kind: pa.DataType) -> pa.Array:
    def interval(text: str) -> pa.MonthDayNano:
        found = _matched(_INTERVAL, text, "an interval such as P1M2DT3S")
        return pa.MonthDayNano([int(found["months"]), int(found["days"]), _nanoseconds(found)])

    return _each(interval, array, kind)


def _matched(form: re.Pattern[str], text: str, wanted: str) -> re.Match[str]:
    found = form.fullmatch(text)
    if found is None or text.endswith(("P", "T")):
        raise ValueError(f"{text!r} is not {wanted}")
    return found


def _nanoseconds(found: re.Match[str]) -> int:
    fraction = int((found["fraction"] or "").ljust(9, "0"))
    total = int(found["seconds"] or 0) * NANOSECONDS + fraction
    return -total if found["negative"] else total


def _each(convert: Callable[[str], Any], array: pa.Array, kind: pa.DataType) -> pa.Array:
    return pa.array([None if each is None else convert(each) for each in array.to_pylist()], kind)
