"""The stream of columns that records are made of, where serializers make some of them.

Each piece of the stream has the columns with a role unchanged, and the serializers' results for the others.
The stream goes through Arrow's C interface, which cannot carry Python exceptions. So the first one is kept in
`error`, and the reader of the stream raises it (`reading`).

If a row cannot be serialized, the rows before it come first, then the error. `num_rows` is the known number
of rows, so that unsent ones can be counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from kbatch._native.arrow.arrow import rows_at_hand
from kbatch.errors import SerializationError
from kbatch.formats.writing.added_headers import HEADERS, can_add, with_header
from kbatch.formats.writing.base import ColumnSerializer, RowError, find_column

# Maximum rows of one call of a serializer.
PIECE_ROWS = 16384
Names = dict[str, tuple[str, bool]]


class SerializedColumns:
    """The columns of records, some from serializers; an Arrow stream, to be read once.

    Attributes
    ----------
    names : dict
        For each role, the name of a column of this stream and whether it is required.
    error : BaseException or None
        The error that ended it.
    """

    def __init__(self, data: Any, parts: Mapping[str, Any], names: Names) -> None:
        self.error: BaseException | None = None
        self._data = data
        self._read_rows = 0
        reader = _reader(data)
        schema = reader.schema
        self._pieces = self._read(reader)
        self.names: Names = {}
        self._copied: dict[str, pa.Field] = {}
        for role, (name, is_required) in names.items():
            if is_required or name in schema.names:
                self._copied[name] = find_column(schema, name, role)
            self.names[role] = (name, is_required)
        _check_key(names, self._copied)
        free = [name for name in schema.names if name not in self._copied]
        self._makers: list[tuple[str, Callable[[pa.RecordBatch], Any], list[str]]] = []
        for role, part in parts.items():
            if role not in names:
                self.names[role] = (f"{role}, serialized", part is not None)
            if part is not None and not isinstance(part, str):
                chosen = list(part.choose(schema, free) if isinstance(part, ColumnSerializer) else free)
                self._makers.append((role, part, chosen))
                if chosen != free:  # the value omits the columns of an explicit key
                    free = [name for name in free if name not in chosen]
        made = [pa.field(self.names[role][0], pa.large_binary()) for role, _, _ in self._makers]
        self._headers = self._headers_to_extend()
        if self._headers is not None:
            made.append(pa.field(self._headers, HEADERS))
        self._schema = pa.schema([*self._copied.values(), *made])
        self._first_row = 0
        self._fault: SerializationError | None = None  # raised after the rows before it

    def _headers_to_extend(self) -> str | None:
        """Return the name of the column of headers if serializers add some; it is copied no more."""
        name, _ = self.names["headers"]
        if not any(getattr(serializer, "header", None) for _, serializer, _ in self._makers):
            return None
        field = self._copied.get(name)
        if field is not None and not can_add(field.type):
            return None  # what reads the stream refuses it
        self._copied.pop(name, None)
        return name

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return pa.RecordBatchReader.from_batches(self._schema, self).__arrow_c_stream__(requested_schema)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Raise the original error instead of Arrow's error for it."""
        try:
            yield
        except Exception:
            if self.error is None:
                raise
            raise self.error from self.error.__cause__

    @property
    def num_rows(self) -> int:
        """Return the number of all rows if the data know it, else of those that were read."""
        return max(rows_at_hand(self._data), self._read_rows)

    def count_remaining(self, until_ns: int) -> None:
        """Do what TableSender.count_remaining does, without serializing."""
        while not rows_at_hand(self._data) and time.monotonic_ns() < until_ns:
            if next(self._pieces, None) is None:
                return

    def _read(self, reader: pa.RecordBatchReader) -> Iterator[Any]:
        for batch in reader:
            self._read_rows += batch.num_rows
            for first in range(0, batch.num_rows, PIECE_ROWS):
                yield batch.slice(first, PIECE_ROWS)

    def __iter__(self) -> SerializedColumns:
        return self

    def __next__(self) -> pa.RecordBatch:
        if self._fault is not None:
            self.error, self._fault = self._fault, None
            raise self.error
        piece = next(self._pieces)
        try:
            return self._made(piece)
        except RowError as fault:
            self._fault = SerializationError(fault.text(self._first_row))
            self._fault.row = self._first_row + fault.row
            self._fault.__cause__ = fault.__cause__
            return self._made(piece.slice(0, fault.row))
        except BaseException as error:
            self.error = error
            raise

    def _made(self, piece: pa.RecordBatch) -> pa.RecordBatch:
        columns = [piece.column(name) for name in self._copied]
        for role, serializer, chosen in self._makers:
            columns.append(_checked(serializer(piece.select(chosen)), piece.num_rows, role))
        if self._headers is not None:
            columns.append(self._with_headers(piece, columns[len(self._copied) :]))
        made = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        self._first_row += piece.num_rows
        return made

    def _with_headers(self, piece: pa.RecordBatch, made: list[pa.Array]) -> pa.Array:
        """Return the headers of a piece, with those that serializers add to the values they made."""
        name = self._headers
        has_headers = name in piece.schema.names
        headers = piece.column(name) if has_headers else pa.nulls(piece.num_rows, HEADERS)
        for (_, serializer, _), values in zip(self._makers, made, strict=True):
            if (header := getattr(serializer, "header", None)) is not None:
                headers = with_header(headers, header, values.is_valid())
        return headers


def _reader(data: Any) -> pa.RecordBatchReader:
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    if hasattr(data, "__arrow_c_array__"):
        batch = pa.record_batch(data)
        return pa.RecordBatchReader.from_batches(batch.schema, [batch])
    raise TypeError(
        f"data must have __arrow_c_stream__ or __arrow_c_array__ (a pyarrow, pandas, polars or duckdb table, "
        f"for example), got {type(data).__name__}"
    )


def _check_key(names: Names, columns: Mapping[str, pa.Field]) -> None:
    """Refuse a key column of numbers, a common case, with advice on its serialization."""
    name, _ = names.get("key", ("", False))
    kind = columns[name].type if name in columns else None
    if kind is not None and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise TypeError(
            f"column {name!r} (the key) is of {kind}, not of bytes; key=Utf8({name!r}) sends its text, "
            f"key=Int64({name!r}) the bytes of Java's LongSerializer"
        )


def _checked(made: Any, rows: int, role: str) -> pa.Array:
    """Return a serializer's result as large_binary."""
    try:
        array = made if isinstance(made, (pa.Array, pa.ChunkedArray)) else pa.array(made)
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        array = array.cast(pa.large_binary())
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError) as error:
        raise TypeError(
            f"the {role}'s column serializer must return a binary column, got "
            f"{getattr(made, 'type', type(made).__name__)}"
        ) from error
    if len(array) != rows:
        raise ValueError(f"the {role}'s column serializer returned {len(array)} values for {rows} rows")
    return array
