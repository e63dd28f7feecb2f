"""Keys and values from one column: its text, or its numbers, bools and UUIDs in the formats of Java's
serializers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kbatch.formats.arrow_types import is_bytes, is_uuid
from kbatch.formats.writing.base import ColumnSerializer, RowError, find_column, first_beyond
from kbatch.formats.writing.json_text import texts


class Utf8(ColumnSerializer):
    """A column's values as text (StringSerializer): strings unchanged, others like JsonLines without quotes;
    binary unchanged.

    Parameters
    ----------
    column : str
    """

    def __init__(self, column: str) -> None:
        super().__init__(column)

    def choose(self, schema: pa.Schema, free: Sequence[str]) -> list[str]:
        (name,) = super().choose(schema, free)
        texts(pa.nulls(0, find_column(schema, name, "text").type), name)  # TypeError for types without text
        return [name]

    def __call__(self, columns: pa.RecordBatch) -> pa.Array:
        return texts(columns.column(0), columns.schema.names[0])


class _OfKind(ColumnSerializer):
    """Values of one kind of type."""

    kinds = ""  # what the column has, for errors

    def __init__(self, column: str) -> None:
        super().__init__(column)

    def takes(self, kind: pa.DataType) -> bool:
        """True if values may be of this type."""
        raise NotImplementedError

    def choose(self, schema: pa.Schema, free: Sequence[str]) -> list[str]:
        (name,) = super().choose(schema, free)
        kind = find_column(schema, name, self.kinds).type
        if not self.takes(kind):
            raise TypeError(
                f"column {name!r} must be of {self.kinds} for {type(self).__name__}, got {kind} (Utf8 sends "
                f"its text)"
            )
        return [name]


class Bytes(_OfKind):
    """A column's bytes, unchanged (ByteArraySerializer).

    Parameters
    ----------
    column : str
    """

    kinds = "bytes"

    def takes(self, kind: pa.DataType) -> bool:
        return is_bytes(kind)

    def __call__(self, columns: pa.RecordBatch) -> pa.Array:
        return columns.column(0).cast(pa.large_binary())


class _Integer(_OfKind):
    bits = 0
    kinds = "integers"

    def takes(self, kind: pa.DataType) -> bool:
        return bool(pa.types.is_integer(kind))

    def __call__(self, columns: pa.RecordBatch) -> pa.Array:
        """Return big-endian bytes. Raise RowError for an integer that is too large."""
        array = columns.column(0)
        row = first_beyond(array, self.bits)
        if row is not None:
            limit = 1 << (self.bits - 1)
            reason = f"{array[row]} is beyond {type(self).__name__}, {-limit} to {limit - 1}"
            raise RowError(row, reason, columns.schema.names[0])
        return _big_endian(array, f">i{self.bits // 8}")


class Int16(_Integer):
    """A column's integers as two bytes, big-endian (ShortSerializer).

    Parameters
    ----------
    column : str
    """

    bits = 16


class Int32(_Integer):
    """A column's integers as four bytes, big-endian (IntegerSerializer).

    Parameters
    ----------
    column : str
    """

    bits = 32


class Int64(_Integer):
    """A column's integers as eight bytes, big-endian (LongSerializer).

    Parameters
    ----------
    column : str
    """

    bits = 64


class _Float(_OfKind):
    form = ""
    kinds = "floats"

    def takes(self, kind: pa.DataType) -> bool:
        return bool(pa.types.is_floating(kind))

    def __call__(self, columns: pa.RecordBatch) -> pa.Array:
        return _big_endian(columns.column(0), self.form)


class Float32(_Float):
    """A column's floats as four bytes, big-endian (FloatSerializer). Digits that they do not have are
    rounded; a number that is too large is an error of its row.

    Parameters
    ----------
    column : str
    """

    form = ">f4"

    def __call__(self, columns: pa.RecordBatch) -> pa.Array:
        array = columns.column(0)
        rounded = array.cast(pa.float32())
        is_beyond = pc.and_(pc.is_finite(array), pc.invert(pc.is_finite(rounded)))
        if (row := pc.index(is_beyond, True).as_py()) >= 0:
            raise RowError(row, f"{array[row]} is beyond Float32", columns.schema.names[0])
        return _big_endian(rounded, self.form)


class Float64(_Float):
    """A column's floats as eight bytes, big-endian (DoubleSerializer).

    Parameters
    ----------
    column : str
    """

    form = ">f8"


class Boolean(_OfKind):
    """A column's bools as a byte, 0 or 1 (BooleanSerializer).

    Parameters
    ----------
    column : str
    """

    kinds = "bools"

    def takes(self, kind: pa.DataType) -> bool:
        return bool(pa.types.is_boolean(kind))

    def __call__(self, columns: pa.RecordBatch) -> pa.Array:
        return _big_endian(columns.column(0).cast(pa.uint8()), ">u1")


class Uuid(_OfKind):
    """A column's UUIDs as their text, with hyphens (UUIDSerializer).

    Parameters
    ----------
    column : str
    """

    kinds = "UUIDs"

    def takes(self, kind: pa.DataType) -> bool:
        return is_uuid(kind)

    def __call__(self, columns: pa.RecordBatch) -> pa.Array:
        return texts(columns.column(0), columns.schema.names[0])


def _big_endian(array: pa.Array, form: str) -> pa.Array:
    """Return numbers as bytes; null stays null. `form` is numpy's."""
    zero: Any = pa.scalar(0, array.type)
    numbers = pc.fill_null(array, zero).to_numpy(zero_copy_only=False).astype(form)
    valid = pc.is_valid(array).to_numpy(zero_copy_only=False)
    bits = pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
    kind = pa.binary(numbers.itemsize)
    return pa.Array.from_buffers(kind, len(array), [bits, pa.py_buffer(numbers.tobytes())])
