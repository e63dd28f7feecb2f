"""Keys and values of one number, text or UUID, in the formats of Java's deserializers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from kbatch.formats.reading.base import (
    ColumnDeserializer,
    Errors,
    Spans,
    Where,
    faults_of,
)


class Bytes(ColumnDeserializer):
    """Bytes, unchanged (ByteArrayDeserializer).

    Parameters
    ----------
    data_type : pyarrow.DataType or None
        binary (the default), large_binary or binary_view.
    """

    def __init__(self, data_type: pa.DataType | None = None) -> None:
        super().__init__()
        self.data_type = pa.binary() if data_type is None else data_type

    def decode(self, column: pa.Array, where: Where) -> tuple[pa.Array, Mapping[int, str]]:
        return column.cast(self.data_type), {}


class Utf8(ColumnDeserializer):
    """Text in UTF-8 (StringDeserializer), without a copy. Bytes that are not UTF-8 are an error; Java
    replaces them silently.

    Parameters
    ----------
    errors : "raise", "null", "column" or Callable
        See ColumnDeserializer.
    data_type : pyarrow.DataType or None
        string (the default), large_string or string_view.
    """

    def __init__(self, errors: Errors = "raise", *, data_type: pa.DataType | None = None) -> None:
        super().__init__(errors)
        self.data_type = pa.string() if data_type is None else data_type

    def decode(self, column: pa.Array, where: Where) -> tuple[pa.Array, Mapping[int, str]]:
        try:
            return column.cast(self.data_type), {}
        except pa.ArrowInvalid:
            pass
        values = [None if each is None else _text(each) for each in column.to_pylist()]
        faults = faults_of(
            (row for row, value in enumerate(values) if isinstance(value, UnicodeDecodeError)),
            lambda row: f"it is not UTF-8: {values[row]}",
        )
        texts = [None if isinstance(value, UnicodeDecodeError) else value for value in values]
        return pa.array(texts, self.data_type), faults


def _text(data: bytes) -> str | UnicodeDecodeError:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        return error


class _Number(ColumnDeserializer):
    form = ""  # numpy's name of the big-endian type

    def __init__(self, errors: Errors = "raise") -> None:
        super().__init__(errors)
        self.data_type = pa.from_numpy_dtype(np.dtype(self.form).newbyteorder("="))

    def decode(self, column: pa.Array, where: Where) -> tuple[pa.Array, Mapping[int, str]]:
        spans, dtype = Spans(column), np.dtype(self.form)
        lengths = spans.ends - spans.starts
        is_good = spans.is_valid & (lengths == dtype.itemsize)
        rows = np.flatnonzero(is_good)
        numbers = np.zeros(len(column), dtype.newbyteorder("="))
        numbers[rows] = spans.matrix(rows, dtype.itemsize).reshape(-1).view(dtype)
        faults = faults_of(
            np.flatnonzero(spans.is_valid & ~is_good),
            lambda row: f"{type(self).__name__} has {dtype.itemsize} bytes, it has {lengths[row]}",
        )
        mask = None if len(rows) == len(column) else ~is_good
        return pa.array(numbers, self.data_type, mask=mask, from_pandas=False), faults


class Int16(_Number):
    """Integers of two bytes, big-endian (ShortDeserializer)."""

    form = ">i2"


class Int32(_Number):
    """Integers of four bytes, big-endian (IntegerDeserializer)."""

    form = ">i4"


class Int64(_Number):
    """Integers of eight bytes, big-endian (LongDeserializer)."""

    form = ">i8"


class Float32(_Number):
    """IEEE numbers of four bytes, big-endian (FloatDeserializer)."""

    form = ">f4"


class Float64(_Number):
    """IEEE numbers of eight bytes, big-endian (DoubleDeserializer)."""

    form = ">f8"


class Boolean(ColumnDeserializer):
    """A byte, 0 or 1 (BooleanDeserializer)."""

    def __init__(self, errors: Errors = "raise") -> None:
        super().__init__(errors)
        self.data_type = pa.bool_()

    def decode(self, column: pa.Array, where: Where) -> tuple[pa.Array, Mapping[int, str]]:
        spans = Spans(column)
        rows = np.flatnonzero(spans.is_valid & (spans.ends - spans.starts == 1))
        found = np.full(len(column), 2, np.uint8)
        found[rows] = spans.matrix(rows, 1).reshape(-1)
        is_good = found <= 1
        faults = faults_of(
            np.flatnonzero(spans.is_valid & ~is_good), lambda row: "a Boolean is a byte, 0 or 1"
        )
        return pa.array(found == 1, mask=~is_good), faults


# Where the hyphens of a UUID's text are, and where its digits.
_HYPHENS = np.array([8, 13, 18, 23])
_DIGITS = np.setdiff1d(np.arange(36), _HYPHENS)
_NO_DIGIT = 255
_VALUES = np.full(256, _NO_DIGIT, np.uint8)
for _value in range(16):
    _VALUES[[ord(f"{_value:x}"), ord(f"{_value:X}")]] = _value


class Uuid(ColumnDeserializer):
    """The text of a UUID, with hyphens (UUIDDeserializer), as Arrow's type uuid."""

    def __init__(self, errors: Errors = "raise") -> None:
        super().__init__(errors)
        self.data_type = pa.uuid()

    def decode(self, column: pa.Array, where: Where) -> tuple[pa.Array, Mapping[int, str]]:
        spans = Spans(column)
        rows = np.flatnonzero(spans.is_valid & (spans.ends - spans.starts == 36))
        letters = spans.matrix(rows, 36)
        digits = _VALUES[letters[:, _DIGITS]]
        is_uuid = (letters[:, _HYPHENS] == ord("-")).all(1) & (digits != _NO_DIGIT).all(1)
        found = np.zeros((len(column), 16), np.uint8)
        found[rows[is_uuid]] = digits[is_uuid][:, 0::2] << 4 | digits[is_uuid][:, 1::2]
        is_good = np.zeros(len(column), bool)
        is_good[rows[is_uuid]] = True
        faults = faults_of(
            np.flatnonzero(spans.is_valid & ~is_good), lambda row: "it is not the text of a UUID"
        )
        return uuids(found, is_good), faults


def uuids(found: np.ndarray, is_valid: np.ndarray) -> pa.Array:
    """Return UUIDs from rows of 16 bytes."""
    validity = None if is_valid.all() else pa.py_buffer(np.packbits(is_valid, bitorder="little").tobytes())
    buffers = [validity, pa.py_buffer(np.ascontiguousarray(found))]
    storage = pa.Array.from_buffers(pa.binary(16), len(found), buffers)
    return pa.ExtensionArray.from_storage(pa.uuid(), storage)
