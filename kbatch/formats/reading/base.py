"""The base of column deserializers: where a record is, what becomes of one that cannot be read, and the bytes
of a column as spans.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kbatch.errors import DeserializationError

TYPELESS = "no value says its type; give a schema"
ERRORS = ("raise", "null", "column")
# Those that say why in a column beside the values.
WITH_REASONS = ("column", "fields")
# What becomes of a record that cannot be read: one of ERRORS, or a function that returns its value.
Errors = str | Callable[[bytes, DeserializationError], Any]
# The values whose Python objects exist at a time.
PIECE_ROWS = 8192
# What pyarrow and the libraries of formats raise for a value; other exceptions are faults of a program.
VALUE_ERRORS = (ValueError, TypeError, OverflowError, EOFError, IndexError, KeyError)


class Where(NamedTuple):
    """The records of a column; every member but `part` may be None if it is not known.

    Attributes
    ----------
    topic : str, pyarrow.Array of strings, or None
    partition : pyarrow.Array of integers, int, or None
    offset : pyarrow.Array of integers, or None
    headers : pyarrow.Array of list<struct<key, value>>, or None
        For schema ids in headers.
    key, value : pyarrow.Array or None
        The records' own bytes, for errors.
    part : "key" or "value"
        What the column is.
    """

    topic: Any = None
    partition: Any = None
    offset: Any = None
    headers: Any = None
    key: Any = None
    value: Any = None
    part: str = "value"

    def piece(self, first: int, rows: int) -> Where:
        """Return what says where these rows are, of which only headers and part are theirs."""
        return self if self.headers is None else self._replace(headers=self.headers.slice(first, rows))

    def filtered(self, mask: pa.Array) -> Where:
        """Return what says where the rows of a mask are, of which only headers and part are theirs."""
        return self if self.headers is None else self._replace(headers=self.headers.filter(mask))


class ColumnDeserializer:
    """The base class: override `decode`; `inferred` and `unreadable` if the type depends on the data; `asked`
    if a registry may know it.

    Parameters
    ----------
    errors : "raise", "null", "column" or Callable
        What becomes of a value that cannot be deserialized. "raise" raises DeserializationError; its `row`
        says how many rows before it can be. "null" returns null. "column" returns null, and a second column
        with the reasons. A function gets (bytes, DeserializationError) and returns the value.

    Attributes
    ----------
    data_type : pyarrow.DataType or None
        The type of the values; None until `infer` has seen some.
    sample_rows : int
        How many values `infer` wants to see.
    modes : tuple of str
        What `errors` may be, beside a function.
    """

    sample_rows = 1
    modes: tuple[str, ...] = ERRORS

    def __init__(self, errors: Errors = "raise") -> None:
        if not callable(errors) and errors not in self.modes:
            raise ValueError(f"errors must be one of {', '.join(self.modes)}, or a function, got {errors!r}")
        self.errors = errors
        self.data_type: pa.DataType | None = None
        self._asked: set[str | None] = set()  # the topics
        self._inferring = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_inferring"}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._inferring = threading.Lock()

    @property
    def has_reasons(self) -> bool:
        """True if a second column says why values cannot be read."""
        return self.errors in WITH_REASONS

    def ask(self, topic: str | None = None) -> None:
        """Determine `data_type` without values, if a registry has the schema of a topic. It asks once.

        Raises
        ------
        SchemaRegistryError
            The registry refuses, or cannot be reached.
        """
        with self._inferring:
            self._ask(topic)

    def _ask(self, topic: str | None) -> None:
        if self.data_type is None and topic not in self._asked:
            self.data_type = self.asked(topic)
            self._asked.add(topic)

    def asked(self, topic: str | None) -> pa.DataType | None:
        """Return the type that a registry has for values of a topic; None if values say it."""
        return None

    def infer(self, sample: pa.Array, where: Where = Where()) -> None:  # noqa: B008
        """Determine `data_type` from the first values of a topic that can be read, once. Threads that read
        parts of a topic call it first, with one sample for all.
        """
        with self._inferring:
            self._ask(where.topic if isinstance(where.topic, str) else None)
            if self.data_type is None:
                sample, where = self._readable_sample(bytes_column(sample), where)
                if len(sample):
                    self.data_type = self.inferred(sample, where)

    def _readable_sample(self, column: pa.Array, where: Where) -> tuple[pa.Array, Where]:
        """Return values that can be read: the first `sample_rows` of them, and perhaps some more."""
        masks: list[pa.Array] = []
        missing = self.sample_rows
        for first in range(0, len(column), PIECE_ROWS):
            masks.append(self.readable(column.slice(first, PIECE_ROWS), where.piece(first, PIECE_ROWS)))
            missing -= masks[-1].true_count
            if missing <= 0:
                break
        mask = pa.concat_arrays([*masks, pa.array([], pa.bool_())])
        return column.slice(0, len(mask)).filter(mask), where.piece(0, len(mask)).filtered(mask)

    def readable(self, column: pa.Array, where: Where) -> pa.Array:
        """Return which values are there and can be read, while there is no type, as a mask."""
        is_readable = pc.is_valid(column).to_numpy(zero_copy_only=False).copy()
        is_readable[list(self.unreadable(column, where))] = False
        return pa.array(is_readable)

    def inferred(self, sample: pa.Array, where: Where) -> pa.DataType | None:
        """Return the type for such values, which can be read; None if they do not say."""
        return self.data_type

    def unreadable(self, column: pa.Array, where: Where) -> Mapping[int, str]:
        """Return the reason for each value that cannot be read whatever the type is, by row. `inferred` sees
        the other values only, and a value without a type is an error, too.
        """
        return {}

    def decode(self, column: pa.Array, where: Where) -> tuple[pa.Array, Mapping[int, str]]:
        """Return the values, of `data_type`, and the reason for each that cannot be read, by row; those are
        null.
        """
        raise NotImplementedError

    def __call__(
        self,
        column: pa.Array | pa.ChunkedArray,
        where: Where = Where(),  # noqa: B008
        *,
        typeless: pa.DataType | None = None,
    ) -> Any:
        """Return a value for each row, null for null, and with errors="column" the reasons, as strings.

        Parameters
        ----------
        column : pyarrow.Array or pyarrow.ChunkedArray
        where : Where
        typeless : pyarrow.DataType or None
            The type that a read has announced for a column in which no value says a type: none of its values
            can be read.

        Returns
        -------
        pyarrow.Array, or a pair of them
            The values; with errors="column" also the reasons.

        Raises
        ------
        DeserializationError
            A value cannot be deserialized, and errors is "raise".
        SchemaRegistryError
            The registry refuses, or cannot be reached.
        TypeError
            The column is not of bytes, or a function of `errors` returned an unsuitable value.
        """
        column = bytes_column(column)
        if self.data_type is None and typeless is None:
            self.infer(column, where)
        if self.data_type is None or typeless is not None:
            values, faults = pa.nulls(len(column), typeless), self._typeless_faults(column, where)
        else:
            values, faults = self.decode(column, where)
        if callable(self.errors):
            return self._replaced(values, column, faults, where) if faults else values
        if self.has_reasons:
            reasons = [faults.get(row) for row in range(len(column))] if faults else None
            kind = pa.string()
            return values, pa.nulls(len(column), kind) if reasons is None else pa.array(reasons, kind)
        if faults and self.errors == "raise":
            row = min(faults)
            raise error_of(row, faults[row], column, where)
        return values

    def _typeless_faults(self, column: pa.Array, where: Where) -> Mapping[int, str]:
        """Return the reason for each value: without a type, it cannot be read."""
        rows = np.flatnonzero(pc.is_valid(column).to_numpy(zero_copy_only=False))
        return {**faults_of(rows, lambda row: TYPELESS), **self.unreadable(column, where)}

    def _replaced(
        self, values: pa.Array, column: pa.Array, faults: Mapping[int, str], where: Where
    ) -> pa.Array:
        """Return the values, with those of the user's function for the rows at fault."""
        assert callable(self.errors)
        rows = sorted(faults)
        made = [self.errors(column[row].as_py(), error_of(row, faults[row], column, where)) for row in rows]
        try:
            # without a type, the function's values decide
            others = pa.array(made, None if pa.types.is_null(values.type) else values.type)
            if others.type != values.type:
                values = pa.nulls(len(values), others.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError) as error:
            raise TypeError(f"the function errors= must return values of {values.type}: {error}") from error
        pieces, first = [], 0
        for index, row in enumerate(rows):
            pieces += [values.slice(first, row - first), others.slice(index, 1)]
            first = row + 1
        return pa.concat_arrays([*pieces, values.slice(first)])


class ReadFormat(Protocol):
    """A format of kbatch.formats, which has a ColumnDeserializer."""

    def column_deserializer(self, topic: str | None, part: Any, /) -> ColumnDeserializer: ...


def deserializer_of(given: ColumnDeserializer | ReadFormat, topic: str | None, part: Any) -> Any:
    """Return the column deserializer of a format, and anything else as it is."""
    bind = getattr(given, "column_deserializer", None)
    return given if bind is None else bind(topic, part)


class ObjectDeserializer(ColumnDeserializer):
    """A deserializer that makes Python objects: of a piece of a column at a time, because Python's garbage
    collector looks at all of them again and again. Override `decode_piece`.
    """

    def decode(self, column: pa.Array, where: Where) -> tuple[pa.Array, Mapping[int, str]]:
        if len(column) <= PIECE_ROWS:
            return self.decode_piece(column, where)
        pieces, faults = [], dict[int, str]()
        for first in range(0, len(column), PIECE_ROWS):
            piece = column.slice(first, PIECE_ROWS)
            values, bad = self.decode_piece(piece, where.piece(first, PIECE_ROWS))
            pieces.append(values)
            faults.update((first + row, reason) for row, reason in bad.items())
        return pa.concat_arrays(pieces), faults

    def decode_piece(self, column: pa.Array, where: Where) -> tuple[pa.Array, Mapping[int, str]]:
        """Return what `decode` does; of `where` only headers and part are those of the piece."""
        raise NotImplementedError


def error_of(row: int, reason: str, column: pa.Array, where: Where) -> DeserializationError:
    """Return the error of a row."""
    key, value = ((column, where.value), (where.key, column))[where.part == "value"]
    return DeserializationError(
        reason,
        part=where.part,
        topic=_at(where.topic, row),
        partition=_at(where.partition, row),
        offset=_at(where.offset, row),
        key=_at(key, row),
        value=_at(value, row),
        row=row,
    )


def _at(array: Any, row: int) -> Any:
    return array if array is None or isinstance(array, int | str) else array[row].as_py()


# Bytes


def combined(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def bytes_column(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column of bytes or text as one array of binary, large_binary or fixed_size_binary."""
    column = combined(column)
    kind, types = column.type, pa.types
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return column
    if types.is_null(kind) or types.is_string(kind):
        return column.cast(pa.binary())
    if types.is_large_string(kind) or types.is_binary_view(kind) or types.is_string_view(kind):
        return column.cast(pa.large_binary())
    raise TypeError(f"a column deserializer needs a column of binary, got {kind}")


class Spans:
    """The bytes of a binary column, without a copy: row i is data[starts[i]:ends[i]].

    Attributes
    ----------
    data : numpy.ndarray of uint8
    view : memoryview of the same
    starts, ends : numpy.ndarray of int64
    is_valid : numpy.ndarray of bool
    """

    def __init__(self, column: pa.Array) -> None:
        count = len(column)
        buffers = column.buffers()
        if pa.types.is_fixed_size_binary(column.type):
            width = column.type.byte_width
            bounds: np.ndarray = (column.offset + np.arange(count + 1, dtype=np.int64)) * width
        elif buffers[1] is None or not buffers[1].size:
            bounds = np.zeros(count + 1, np.int64)
        else:
            kind = np.int64 if pa.types.is_large_binary(column.type) else np.int32
            bounds = np.frombuffer(buffers[1], kind)[column.offset : column.offset + count + 1]
        self.view = memoryview(buffers[-1] or b"")
        self.data: np.ndarray = np.frombuffer(self.view, np.uint8)
        self.starts: np.ndarray = bounds[:-1].astype(np.int64)
        self.ends: np.ndarray = bounds[1:].astype(np.int64)
        self.is_valid = np.ones(count, bool)
        if column.null_count:
            self.is_valid = pc.is_valid(column).to_numpy(zero_copy_only=False)

    def first_bytes(self) -> np.ndarray:
        """Return the first byte of each row, 255 for null and empty ones."""
        found = np.full(len(self.starts), 255, np.uint8)
        is_filled = self.is_valid & (self.ends > self.starts)
        found[is_filled] = self.data[self.starts[is_filled]]
        return found

    def matrix(self, rows: np.ndarray, width: int) -> np.ndarray:
        """Return the first `width` bytes of these rows, which have them, as rows of uint8."""
        if not len(rows):
            return np.empty((0, width), np.uint8)
        starts = self.starts[rows]
        first = int(starts[0])
        if len(rows) * width == int(starts[-1]) + width - first and (np.diff(starts) == width).all():
            return self.data[first : first + len(rows) * width].reshape(len(rows), width)
        taken: np.ndarray = self.data[starts[:, None] + np.arange(width)]
        return taken


def salvaged(
    decode: Callable[[int, int], pa.Array], count: int, kind: pa.DataType
) -> tuple[pa.Array, dict[int, str]]:
    """Return the values of `count` rows in as large pieces as can be decoded, and the reasons, by row, for
    those that cannot, which are null.

    Parameters
    ----------
    decode : Callable
        Returns the values of rows first..last, or raises one of VALUE_ERRORS.
    """
    pieces: list[pa.Array] = []
    faults: dict[int, str] = {}
    waiting = [(0, count)] if count else []
    while waiting:
        first, last = waiting.pop()
        try:
            pieces.append(decode(first, last))
        except VALUE_ERRORS as error:
            if last - first == 1:
                faults[first] = reason_of(error)
                pieces.append(pa.nulls(1, kind))
            else:
                middle = (first + last) // 2
                waiting += [(middle, last), (first, middle)]
    if len(pieces) == 1:
        return pieces[0], faults
    return pa.concat_arrays(pieces) if pieces else pa.nulls(0, kind), faults


def reason_of(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, ValueError) and text else f"{type(error).__name__}: {text}"


def faults_of(rows: Iterable[int], reason: Callable[[int], str]) -> dict[int, str]:
    return {int(row): reason(int(row)) for row in rows}
