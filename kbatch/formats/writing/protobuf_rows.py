"""Protobuf messages of rows, by Google's protobuf (the extra `protobuf`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

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
        self._message = message
        self._make = maker_of(message)
        self._fields = list(message.DESCRIPTOR.fields_by_name)
        self._prefix = prefix

    def choose(self, schema: pa.Schema, free: Sequence[str]) -> list[str]:
        names = super().choose(schema, free)
        if self.takes_one:
            return names
        check_fields(self, names, self._fields, f"the message {self._message.DESCRIPTOR.full_name}")
        return [name for name in self._fields if name in schema.names] if self.columns is None else names

    def __call__(self, columns: pa.RecordBatch) -> pa.Array:
        rows = python_values(columns.column(0)) if self.takes_one else rows_of(columns)
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
