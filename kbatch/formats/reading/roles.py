"""From the bytes of records to their keys and values: whole record batches and tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from kbatch.errors import DeserializationError
from kbatch.formats.reading.base import ColumnDeserializer, ReadFormat, Where, combined, deserializer_of

_Rows = TypeVar("_Rows", pa.RecordBatch, pa.Table)
PARTS = ("key", "value")
# The column with the reasons, of errors="column".
ERROR_COLUMN = "{part}_error"
# The most bytes of keys and values that are deserialized at a time: Arrow's binary and string have 2 GiB.
MAX_PIECE_BYTES = 1 << 30


def deserialize(
    records: _Rows,
    *,
    key: ColumnDeserializer | ReadFormat | None = None,
    value: ColumnDeserializer | ReadFormat | None = None,
    topic: str | None = None,
) -> _Rows:
    """Return records with their keys and values deserialized.

    Parameters
    ----------
    records : pyarrow.RecordBatch or pyarrow.Table
        Records in columns, as `decode_arrow` and `read_table` return them. The columns partition, offset and
        headers, if there are some, say where a record is and which schema wrote it.
    key, value : Format, ColumnDeserializer or None
        Of the columns with these names; None leaves one as it is.
    topic : str or None
        Where the records are from, for errors and formats with a registry, if there is no column topic.

    Returns
    -------
    pyarrow.RecordBatch or pyarrow.Table
        The same columns. With errors="column" the column key_error or value_error follows its part: strings,
        null for a value without a fault.

    Raises
    ------
    DeserializationError
        A key or value cannot be deserialized. Its `row` is that in `records`.
    KeyError
        There is no such column.
    """
    of_all = _single_topic(records, topic)
    given: dict[str, ColumnDeserializer] = {
        part: deserializer_of(each, of_all, part)
        for part, each in zip(PARTS, (key, value), strict=True)
        if each is not None
    }
    if missing := given.keys() - set(records.schema.names):
        raise KeyError(
            f"there is no column {sorted(missing)[0]!r}; the columns are {', '.join(records.schema.names)}"
        )
    if isinstance(records, pa.RecordBatch):
        return _deserialized(records, given, topic)
    made, first = [], 0
    for piece in _pieces(records, given):
        try:
            made.append(_deserialized(piece, given, topic))
        except DeserializationError as error:
            assert error.row is not None  # it is about a column
            error.row += first
            raise
        first += piece.num_rows
    return pa.concat_tables(made, promote_options="default")


def _pieces(table: pa.Table, parts: Collection[str]) -> Iterator[pa.Table]:
    """Yield the rows in pieces of at most MAX_PIECE_BYTES, but for a row that is larger."""
    if table.num_rows > 1 and sum(table[part].nbytes for part in parts) > MAX_PIECE_BYTES:
        middle = table.num_rows // 2
        yield from _pieces(table.slice(0, middle), parts)
        yield from _pieces(table.slice(middle), parts)
    else:
        yield table


def _deserialized(records: _Rows, given: dict[str, ColumnDeserializer], topic: str | None) -> _Rows:
    columns: dict[str, Any] = {}
    for name in records.schema.names:
        columns[name] = records.column(name)
        if name in given:
            made = given[name](columns[name], _where(records, name, topic))
            columns[name], reasons = made if isinstance(made, tuple) else (made, None)
            if reasons is not None:
                columns[ERROR_COLUMN.format(part=name)] = reasons
    return type(records).from_pydict(columns)


def _single_topic(records: Any, topic: str | None) -> str | None:
    """Return the topic that all records are from, if it is known."""
    if "topic" not in records.schema.names:
        return topic
    found = pc.unique(records.column("topic"))
    return found[0].as_py() if len(found) == 1 else None


def _where(records: Any, part: str, topic: str | None) -> Where:
    def column(name: str) -> Any:
        if name not in records.schema.names:
            return None
        found = records.column(name)
        return combined(found) if name == "headers" else found

    others = {name: column(name) for name in ("partition", "offset", "headers", "key", "value")}
    found_topic = column("topic")
    return Where(topic if found_topic is None else found_topic, **others, part=part)
