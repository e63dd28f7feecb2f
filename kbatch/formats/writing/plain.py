"""Keys and values from one column: its text, or its integers in the format of Java's serializers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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


class _Integer(ColumnSerializer):
    bits = 0

    def __init__(self, column: str) -> None:
        super().__init__(column)

    def choose(self, schema: pa.Schema, free: Sequence[str]) -> list[str]:
        (name,) = super().choose(schema, free)
        kind = find_column(schema, name, "integer").type
        if not pa.types.is_integer(kind):
            raise TypeError(
                f"column {name!r} must be of integers for {type(self).__name__}, got {kind} (Utf8 sends "
                f"its text)"
            )
        return [name]

    def __call__(self, columns: pa.RecordBatch) -> pa.Array:
        """Return big-endian bytes. Raise RowError for an integer that is too large."""
        array = columns.column(0)
        row = first_beyond(array, self.bits)
        if row is not None:
            limit = 1 << (self.bits - 1)
            reason = f"{array[row]} is beyond {type(self).__name__}, {-limit} to {limit - 1}"
            raise RowError(row, reason, columns.schema.names[0])
        numbers = pc.fill_null(array, 0).to_numpy(zero_copy_only=False).astype(f">i{self.bits // 8}")
        valid = pc.is_valid(array).cast(pa.uint8()).to_numpy().astype(bool)
        bits = pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
        kind = pa.binary(self.bits // 8)
        return pa.Array.from_buffers(kind, len(array), [bits, pa.py_buffer(numbers.tobytes())])


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
