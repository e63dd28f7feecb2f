"""What column serializers have in common: which columns they take, what of a row they refuse, the header of
the Confluent wire format, and values written one behind another.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

# What pyarrow calls the index of a pandas frame that has no name; a number of rows, and no data.
_UNNAMED_INDEX = "__index_level_"
MAX_SCHEMA_ID = 2**31 - 1


class RowError(ValueError):
    """A row cannot be serialized. `row` counts from 0 in the columns that the serializer was given."""

    def __init__(self, row: int, reason: str, column: str | None = None) -> None:
        super().__init__(row, reason, column)
        self.row = row
        self.reason = reason
        self.column = column

    def text(self, first_row: int) -> str:
        """What is wrong, with the row's number in the whole table."""
        row = f"row {first_row + self.row}: {self.reason}"
        return row if self.column is None else f"column {self.column!r}, {row}"

    def __str__(self) -> str:
        return self.text(0)


class ColumnSerializer:
    """The base class: override `__call__`, and `choose` where the columns follow from something else.

    Parameters
    ----------
    columns : str, sequence of str, or None
        A name: that column's own values, where null stays null. Several: those columns, named. None: the
        columns that have no other part in the records.
    """

    def __init__(self, columns: str | Iterable[str] | None = None) -> None:
        self.columns = columns if columns is None or isinstance(columns, str) else tuple(columns)
        names = (columns,) if isinstance(columns, str) else self.columns or ()
        if not all(isinstance(name, str) for name in names):
            raise TypeError(f"columns must be the names of columns; they are {columns!r}")

    @property
    def takes_one(self) -> bool:
        """Whether it takes one column's own values, and not rows."""
        return isinstance(self.columns, str)

    def choose(self, schema: pa.Schema, free: Sequence[str]) -> list[str]:
        """The columns it will be called with.

        Parameters
        ----------
        schema : pyarrow.Schema
            Of the table.
        free : sequence of str
            The columns that have no other part.

        Raises
        ------
        ValueError, TypeError
            A column that is missing, or of a type that cannot be.
        """
        if self.columns is None:
            return [name for name in free if not name.startswith(_UNNAMED_INDEX)]
        names = [self.columns] if isinstance(self.columns, str) else list(self.columns)
        for name in names:
            find_column(schema, name, type(self).__name__)
        return names

    def __call__(self, columns: pa.RecordBatch) -> pa.Array:
        """A binary value a row. RowError for what a row cannot be."""
        raise NotImplementedError


def find_column(schema: pa.Schema, name: str, role: str) -> pa.Field:
    """The column of that name; ValueError, which says which columns there are, unless there is one."""
    found = schema.get_all_field_indices(name)
    if len(found) > 1:
        raise ValueError(f"column {name!r} is there twice: rename one of them")
    if not found:
        raise ValueError(
            f"there is no column {name!r} (the {role}); the columns are {', '.join(schema.names) or 'none'}"
        )
    return schema.field(found[0])


def check_fields(
    serializer: ColumnSerializer, chosen: Sequence[str], fields: Iterable[str], schema_name: str
) -> None:
    """ValueError for columns that a schema has no field for: they would be lost without a word."""
    strays = [name for name in chosen if name not in set(fields)]
    if strays:
        raise ValueError(
            f"{schema_name} has no field for {', '.join(map(repr, strays))}: drop what is not to be sent, or "
            f"name what is with {type(serializer).__name__}(columns=[...]); its fields are "
            f"{', '.join(fields) or 'none'}"
        )


def confluent_header(schema_id: int | None) -> bytes:
    """The first five bytes of Confluent's wire format, a 0 and the schema's id; none for None."""
    if schema_id is None:
        return b""
    if not isinstance(schema_id, int) or isinstance(schema_id, bool):
        raise TypeError(
            f"schema_id must be the number that the schema registry gave the schema, or None for values "
            f"without Confluent's header; it is {schema_id!r}"
        )
    if not 0 <= schema_id <= MAX_SCHEMA_ID:
        raise ValueError(f"schema_id must be 0 to {MAX_SCHEMA_ID}; it is {schema_id}")
    return struct.pack(">bI", 0, schema_id)


def rows_of(columns: pa.RecordBatch) -> Iterable[dict[str, Any]]:
    """The rows as dicts of Python's values."""
    names = columns.schema.names
    values = [python_values(column) for column in columns.columns]
    return (dict(zip(names, row, strict=True)) for row in zip(*values, strict=True))


def python_values(array: pa.Array) -> list[Any]:
    """Python's values of an array. Nanoseconds, which Python's times have not, become microseconds; times
    are in UTC.
    """
    import pyarrow as pa

    array = array.cast(_in_microseconds(array.type), safe=False)
    kind = array.type
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    is_text = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    if is_text or (is_number and not array.null_count):  # many times faster than a scalar at a time
        return list(array.to_numpy(zero_copy_only=False).tolist())
    return list(array.to_pylist(maps_as_pydicts="strict"))


def _in_microseconds(kind: pa.DataType) -> pa.DataType:
    """The type with what Python's values can hold, and pyarrow makes them of quickly."""
    import pyarrow as pa

    types = pa.types
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return _in_microseconds(kind.value_type)
    if types.is_string(kind) or types.is_string_view(kind):
        return pa.large_string()
    if types.is_binary(kind) or types.is_binary_view(kind):
        return pa.large_binary()
    if types.is_timestamp(kind):  # one without a zone would be taken for local time
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
    """The first row whose integer does not fit into so many bits, 32 or 64; None where all do."""
    import pyarrow as pa

    try:
        array.cast(pa.int32() if bits == 32 else pa.int64())
    except pa.ArrowInvalid:
        limit = 1 << (bits - 1)
        numbers = enumerate(array.to_pylist())
        return next(row for row, number in numbers if number is not None and not -limit <= number < limit)
    return None


def binary_column(data: bytes, ends: Sequence[int], is_null: Sequence[bool] = ()) -> pa.Array:
    """Values that stand one behind another, by where each ends."""
    import numpy as np
    import pyarrow as pa

    offsets = np.zeros(len(ends) + 1, np.int64)
    offsets[1:] = ends
    validity = None
    if any(is_null):
        bits = np.packbits(~np.asarray(is_null, bool), bitorder="little")
        validity = pa.py_buffer(bits.tobytes())
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(ends), buffers)
