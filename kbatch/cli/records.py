"""Records of a file's rows, for `kbatch produce`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kbatch.cli.column_roles import MAX_PARTITION, ColumnRoles
from kbatch.cli.typed_parts import TypedPart
from kbatch.formats.writing.base import RowError
from kbatch.formats.writing.json_text import texts

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Formats(NamedTuple):
    """The formats of keys and values that are neither text nor JSON.

    Attributes
    ----------
    key, value : TypedPart or None
    form : str
        Of the file: see InputFile.
    """

    key: TypedPart | None
    value: TypedPart | None
    form: str


def sendable(block: Any, roles: ColumnRoles, unit: str, formats: Formats) -> tuple[pa.Table, str | None]:
    """Return the records of a block before its first invalid row, and that row's fault."""
    fields, values, fault = block.fields, block.values, None
    while True:  # a row before the one that is refused may be refused for something else
        try:
            return records_of(fields, values, roles, formats), fault
        except RowError as error:
            where = "" if error.column is None else f"{error.column}: "
            fault = f"{unit} {block.number(error.row)}: {where}{error.reason}"
            fields = fields.slice(0, error.row)
            values = None if values is None else values.slice(0, error.row)


def records_of(
    fields: pa.RecordBatch, values: pa.Array | None, roles: ColumnRoles, formats: Formats
) -> pa.Table:
    """Return columns with the default names of `send_table`. Raise RowError for an invalid timestamp or
    partition, and for a key or value that its format does not take.
    """
    columns: dict[str, pa.Array] = {"value": _values(fields, values, roles, formats)}
    if roles.key is not None:
        columns["key"] = _keys(fields, roles.key, formats)
    if roles.timestamp is not None:
        columns["timestamp"] = _timestamps(fields[roles.timestamp], roles.timestamp)
    if isinstance(roles.partition, str):
        columns["partition"] = _integers(fields[roles.partition], roles.partition)
    elif roles.partition is not None:
        columns["partition"] = pa.array(np.full(len(columns["value"]), roles.partition, np.int32))
    if roles.headers or roles.header_columns:
        columns["headers"] = _headers(fields, len(columns["value"]), roles)
    return pa.table(columns)


def _keys(fields: pa.RecordBatch, name: str, formats: Formats) -> pa.Array:
    if formats.key is None:
        return texts(fields[name], name)
    if formats.form == "columns":
        return formats.key.of_columns(fields, [name])
    return formats.key.of_texts(fields[name])


def _values(
    fields: pa.RecordBatch, values: pa.Array | None, roles: ColumnRoles, formats: Formats
) -> pa.Array:
    made = formats.value
    if made is None:
        return values
    names = roles.in_value(fields.schema.names)
    if formats.form == "columns":
        return made.of_columns(fields, names)
    if formats.form == "cells":
        return (
            made.of_texts(fields[roles.value])
            if roles.value is not None
            else made.of_cells(fields.select(names))
        )
    is_json = formats.form == "json" and roles.value is None
    return made.of_json(values) if is_json else made.of_texts(values)


def _timestamps(column: pa.Array, name: str) -> pa.Array:
    """Return milliseconds: of a time, of an integer of milliseconds, or of the text of either."""
    if pa.types.is_timestamp(column.type):
        return column
    if pa.types.is_integer(column.type):
        return column.cast(pa.int64())
    return pa.array(_each(_milliseconds, column, name), pa.int64())


def _milliseconds(given: object) -> int:
    text = str(given).strip()
    if text.removeprefix("-").isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"the time must be milliseconds since 1970, or like 2026-01-31T12:00:00Z, got {text!r}"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def _integers(column: pa.Array, name: str) -> pa.Array:
    return pa.array(_each(_partition, column, name), pa.int32())


def _partition(given: object) -> int:
    text = str(given).strip()
    if not text.isdecimal() or int(text) > MAX_PARTITION:
        raise ValueError(f"the partition must be 0 or more, got {text!r}")
    return int(text)


def _each(function: Any, column: pa.Array, name: str) -> list[Any]:
    made: list[Any] = []
    for row, value in enumerate(column.to_pylist()):
        try:
            made.append(None if value is None else function(value))
        except (ValueError, OverflowError) as error:
            raise RowError(row, str(error), name) from None
    return made


def _headers(fields: pa.RecordBatch, rows: int, roles: ColumnRoles) -> pa.Array:
    """Return the headers: every row has the same names, first those with equal contents."""
    names = [name for name, _ in roles.headers] + list(roles.header_columns)
    contents = [pa.repeat(pa.scalar(content, pa.large_binary()), rows) for _, content in roles.headers]
    contents += [texts(fields[name], name) for name in roles.header_columns]
    count = len(names)
    by_row = np.arange(rows * count).reshape(count, rows).T.ravel()  # from all of a header to all of a row
    items = pa.StructArray.from_arrays(
        [pa.array(names * rows, pa.string()), pa.concat_arrays(contents).take(pa.array(by_row))],
        ["key", "value"],
    )
    return pa.ListArray.from_arrays(pa.array(np.arange(rows + 1, dtype=np.int32) * count, pa.int32()), items)
