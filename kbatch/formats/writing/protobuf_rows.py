"""Protobuf messages of rows, by Google's protobuf (the extra `protobuf`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from kbatch.formats.protobuf_files import packed_class, unpacked_class
from kbatch.formats.protobuf_records import maker_of
from kbatch.formats.writing.base import (
    ColumnSerializer,
    RowError,
    binary_column,
    check_fields,
    python_values,
    rows_of,
)


class ProtobufColumns(ColumnSerializer):
    """A message for each row.

    It takes the columns that the message's fields name, even if they have another role; fields without a
    column, and nulls, stay unset. Structs become messages, lists repeated fields, timestamps and durations
    google.protobuf.Timestamp and Duration, and strings enums by name.

    Parameters
    ----------
    message : class of google.protobuf.message.Message
    prefix : bytes
        What stands in front of each message.
    columns : str, sequence of str, or None
        See ColumnSerializer, if the fields do not name them. One name, as a str, means a column of structs,
        whose nulls stay null.
    """

    def __init__(self, message: Any, prefix: bytes = b"", columns: str | Iterable[str] | None = None) -> None:
        super().__init__(columns)
        self._prefix = prefix
        self._message = message
        self._make = maker_of(message)
        self._fields = list(message.DESCRIPTOR.fields_by_name)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_message": packed_class(self._message), "_make": None}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._message = unpacked_class(state["_message"])
        self._make = maker_of(self._message)

    def choose(self, schema: pa.Schema, free: Sequence[str]) -> list[str]:
        names = super().choose(schema, free)
        record = f"the message {self._message.DESCRIPTOR.full_name}"
        if self.takes_one:
            kind = schema.field(names[0]).type
            if not pa.types.is_struct(kind):
                raise TypeError(f"column {names[0]!r} is of {kind}, and {record} needs a column of structs")
            check_fields(self, [field.name for field in kind], self._fields, record)
            return names
        check_fields(self, names, self._fields, record)
        return [name for name in self._fields if name in schema.names] if self.columns is None else names

    def __call__(self, columns: pa.RecordBatch) -> pa.Array:
        rows = python_values(columns.column(0)) if self.takes_one else rows_of(columns)
        if any(_has_whole_decimals(field.type) for field in columns.schema):
            rows = map(_with_integers, rows)
        parts: list[bytes] = []
        ends, is_null, size = [], [], 0
        for number, row in enumerate(rows):
            is_null.append(row is None)
            if row is not None:
                try:
                    data = self._prefix + self._make(row).SerializeToString()
                except Exception as error:
                    raise self._refused(number, row, error) from error
                parts.append(data)
                size += len(data)
            ends.append(size)
        return binary_column(b"".join(parts), ends, is_null)

    def _refused(self, number: int, row: Any, error: Exception) -> RowError:
        for name, value in row.items() if isinstance(row, dict) else ():
            try:
                self._make({name: value}).SerializeToString()
            except Exception as one:
                return RowError(number, f"Protobuf refuses {value!r}: {one}", name)
        return RowError(number, f"Protobuf refuses it: {type(error).__name__}: {error}")


def _has_whole_decimals(kind: pa.DataType) -> bool:
    """True if a type has decimals without a fraction, as Spark has unsigned integers of 64 bits."""
    if pa.types.is_decimal(kind):
        return bool(kind.scale == 0)
    return any(_has_whole_decimals(kind.field(number).type) for number in range(kind.num_fields))


def _with_integers(value: Any) -> Any:
    """Return a value with integers instead of decimals without a fraction, which Protobuf refuses."""
    if isinstance(value, dict):
        return {name: _with_integers(each) for name, each in value.items()}
    if isinstance(value, list):
        return list(map(_with_integers, value))
    return int(value) if isinstance(value, Decimal) and value == value.to_integral_value() else value
