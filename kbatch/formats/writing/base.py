"""The base of column serializers: the choice of columns, refused rows, and concatenated values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

# pyarrow's name for an unnamed index of a pandas frame, which has no data.
_UNNAMED_INDEX = "__index_level_"


class RowError(ValueError):
    """A row cannot be serialized. `row` counts from 0 in the serializer's columns."""

    def __init__(self, row: int, reason: str, column: str | None = None) -> None:
        super().__init__(row, reason, column)
        self.row = row
        self.reason = reason
        self.column = column

    def text(self, first_row: int) -> str:
        """Return the error with the row's number in the whole table."""
        row = f"row {first_row + self.row}: {self.reason}"
        return row if self.column is None else f"column {self.column!r}, {row}"

    def __str__(self) -> str:
        return self.text(0)


class ColumnSerializer:
    """The base class: override `__call__`, and `choose` if something else determines the columns.

    Parameters
    ----------
    columns : str, sequence of str, or None
        One name: that column's own values, where null stays null. Several: those columns, named. None: the
        columns without another role in the records.

    Attributes
    ----------
    header : tuple of (str, bytes) or None
        A header for each record that has a value, to be added to its others.
    """

    header: tuple[str, bytes] | None = None

    def __init__(self, columns: str | Iterable[str] | None = None) -> None:
        self.columns = columns if columns is None or isinstance(columns, str) else tuple(columns)
        names = (columns,) if isinstance(columns, str) else self.columns or ()
        if not all(isinstance(name, str) for name in names):
            raise TypeError(f"columns must be the names of columns, got {columns!r}")

    @property
    def takes_one(self) -> bool:
        """True if it takes one column's own values instead of rows."""
        return isinstance(self.columns, str)

    def choose(self, schema: pa.Schema, free: Sequence[str]) -> list[str]:
        """Return the columns to call it with.

        Parameters
        ----------
        schema : pyarrow.Schema
            The table's schema.
        free : sequence of str
            The columns without another role.

        Raises
        ------
        ValueError, TypeError
            A column is missing, or its type is unsupported.
        """
        if self.columns is None:
            return [name for name in free if not name.startswith(_UNNAMED_INDEX)]
        names = [self.columns] if isinstance(self.columns, str) else list(self.columns)
        for name in names:
            find_column(schema, name, type(self).__name__)
        return names

    def __call__(self, columns: pa.RecordBatch) -> pa.Array:
        """Return a binary value for each row. Raise RowError for an invalid row."""
        raise NotImplementedError


def find_column(schema: pa.Schema, name: str, role: str) -> pa.Field:
    """Return the column of that name. Raise ValueError, which lists them, unless there is exactly one."""
    found = schema.get_all_field_indices(name)
    if len(found) > 1:
        raise ValueError(f"column {name!r} exists twice; rename one of them")
    if not found:
        raise ValueError(
            f"there is no column {name!r} (the {role}); the columns are {', '.join(schema.names) or 'none'}"
        )
    return schema.field(found[0])


def check_fields(
    serializer: ColumnSerializer, chosen: Sequence[str], fields: Iterable[str], schema_name: str
) -> None:
    """Raise ValueError for columns without a field in the schema, which would be lost silently."""
    strays = [name for name in chosen if name not in set(fields)]
    if strays:
        raise ValueError(
            f"{schema_name} has no field for {', '.join(map(repr, strays))}; drop these columns, or "
            f"name others with {type(serializer).__name__}(columns=[...]); its fields are "
            f"{', '.join(fields) or 'none'}"
        )


def rows_of(columns: pa.RecordBatch) -> Iterable[dict[str, Any]]:
    """Return the rows as dicts of Python values."""
    names = columns.schema.names
    values = [python_values(column) for column in columns.columns]
    return (dict(zip(names, row, strict=True)) for row in zip(*values, strict=True))


def python_values(array: pa.Array) -> list[Any]:
    """Return the Python values of an array. Nanoseconds, which Python's times lack, become microseconds;
    times are in UTC.
    """
    array = array.cast(_in_microseconds(array.type), safe=False)
    kind = array.type
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    is_text = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    if is_text or (is_number and not array.null_count):  # many times faster than one scalar at a time
        return list(array.to_numpy(zero_copy_only=False).tolist())
    return list(array.to_pylist(maps_as_pydicts="strict"))


def _in_microseconds(kind: pa.DataType) -> pa.DataType:
    """Return the type whose values Python can hold and pyarrow converts quickly."""
    types = pa.types
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return _in_microseconds(kind.value_type)
    if types.is_string(kind) or types.is_string_view(kind):
        return pa.large_string()
    if types.is_binary(kind) or types.is_binary_view(kind):
        return pa.large_binary()
    if types.is_timestamp(kind):  # a type without a zone would be taken for local time
        return pa.timestamp("us" if kind.unit == "ns" else kind.unit, "UTC")
    if types.is_duration(kind) and kind.unit == "ns":
        return pa.duration("us")
    if types.is_time64(kind):
        return pa.time64("us")
    if types.is_struct(kind):
        return pa.struct([field.with_type(_in_microseconds(field.type)) for field in kind])
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_in_microseconds(kind.value_type)))
    return kind


def first_beyond(array: pa.Array, bits: int) -> int | None:
    """Return the first row whose integer does not fit into 16, 32 or 64 bits; None if all do."""
    try:
        array.cast({16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[bits])
    except pa.ArrowInvalid:
        limit = 1 << (bits - 1)
        numbers = enumerate(array.to_pylist())
        return next(row for row, number in numbers if number is not None and not -limit <= number < limit)
    return None


def binary_column(data: bytes, ends: Sequence[int], is_null: Sequence[bool] = ()) -> pa.Array:
    """Concatenated values, by the end of each."""
    offsets = np.zeros(len(ends) + 1, np.int64)
    offsets[1:] = ends
    validity = None
    if any(is_null):
        bits = np.packbits(~np.asarray(is_null, bool), bitorder="little")
        validity = pa.py_buffer(bits.tobytes())
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(ends), buffers)
