"""Protobuf messages of rows, by Google's protobuf (the extra `kbatch[protobuf]`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from kbatch.column_serializers.base import (
    ColumnSerializer,
    RowError,
    binary_column,
    check_fields,
    confluent_header,
    python_values,
    rows_of,
)

if TYPE_CHECKING:
    import pyarrow as pa


class Protobuf(ColumnSerializer):
    """A message a row, as Confluent's deserializers read it: a 0, the schema's id in four bytes, where in its
    file the message is declared, the message.

    It takes the columns that the message's fields name, wherever else they have a part; fields without a
    column, and nulls, stay unset. Structs become messages, lists repeated fields, timestamps and durations
    google.protobuf.Timestamp and Duration, and strings enums by name.

    Parameters
    ----------
    message : class of google.protobuf.message.Message
        As protoc made it.
    schema_id : int or None
        The id of its schema in the schema registry, 0 to 2147483647; None is the message alone.
    columns : str, sequence of str, or None
        As for ColumnSerializer, where the fields do not say it. With one name, as a str, a column of structs,
        whose nulls stay null.

    Raises
    ------
    TypeError
        `message` is no such class.
    """

    def __init__(
        self, message: Any, *, schema_id: int | None, columns: str | Iterable[str] | None = None
    ) -> None:
        super().__init__(columns)
        descriptor: Any = getattr(message, "DESCRIPTOR", None)
        if not isinstance(message, type) or not hasattr(descriptor, "fields_by_name"):
            raise TypeError(f"message must be a class that protoc made (kbatch[protobuf]), not {message!r}")
        self._message: Any = message
        self._fields = list(descriptor.fields_by_name)
        self._header = confluent_header(schema_id)
        if self._header:
            self._header += message_indexes(descriptor)

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
                    data = self._header + self._message(**row).SerializeToString()
                except Exception as error:
                    raise self._refused(number, row, error) from error
                parts.append(data)
                size += len(data)
            ends.append(size)
        return binary_column(b"".join(parts), ends, is_null)

    def _refused(self, number: int, row: Any, error: Exception) -> RowError:
        for name, value in row.items() if isinstance(row, dict) else ():
            try:
                self._message(**{name: value}).SerializeToString()
            except Exception as one:
                return RowError(number, f"Protobuf does not take {value!r}: {one}", name)
        return RowError(number, f"Protobuf does not take it: {type(error).__name__}: {error}")


def message_indexes(descriptor: Any) -> bytes:
    """Where a message is declared: how many numbers, and the path to it through the messages of its file, as
    zigzag varints; [0], the first message, is a single 0 (MessageIndexes of Confluent's schema registry).
    """
    path: list[int] = []
    while descriptor is not None:
        parent = descriptor.containing_type
        siblings = parent.nested_types if parent else descriptor.file.message_types_by_name.values()
        path.insert(0, [each.full_name for each in siblings].index(descriptor.full_name))
        descriptor = parent
    return b"\0" if path == [0] else b"".join(map(_zigzag, [len(path), *path]))


def _zigzag(number: int) -> bytes:
    """Of a number that is not negative."""
    number <<= 1
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)
