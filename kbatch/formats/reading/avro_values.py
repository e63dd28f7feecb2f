"""Avro values of columns, by fastavro (the extra `avro`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa

from kbatch.formats.avro_schemas import AvroSchema
from kbatch.formats.framing import ID_BYTES
from kbatch.formats.reading.avro_arrays import (
    Decimals,
    converted_decimals,
    decimals_as,
    shape_of,
    viewed,
)
from kbatch.formats.reading.avro_resolution import reading
from kbatch.formats.reading.base import Errors, ObjectDeserializer, Spans, Where, reason_of, salvaged
from kbatch.formats.reading.framing import framed, newest
from kbatch.formats.schemas import Schemas

# Reads a value from a stream.
Read = Callable[[BytesIO], Any]
# How many bytes of values share a stream.
STREAM_BYTES = 1 << 20


class AvroColumns(ObjectDeserializer):
    """Avro values, in Confluent's wire format or alone.

    Records become structs, enums strings, maps maps. A union of null and another type is that type; one of
    several becomes a struct of member0, member1, ..., of which one is set, as in Spark. Times, dates,
    decimals and UUIDs become Arrow's.

    A column has one type: that of `schema`, of the registry's latest one, or of the newest schema among the
    first values. Values that were written by other schemas are resolved to it by Avro's rules.

    Parameters
    ----------
    schema : AvroSchema or None
        The reader's schema.
    errors : "raise", "null", "column" or Callable
        See ColumnDeserializer. An id that the registry does not know counts as an error of the value.
    schemas : Schemas or None
        Those of a registry. None means that `schema` wrote all values.
    has_frame : bool
        True if something names the schema of each value.
    id_bytes : int
        The bytes that end with an id in front of a value.
    decimals : "exact", "narrow", "string" or "double"
        What decimals become.

    Raises
    ------
    ValueError
        The schema contains itself.
    """

    def __init__(
        self,
        schema: AvroSchema | None,
        errors: Errors = "raise",
        *,
        schemas: Schemas[AvroSchema] | None = None,
        has_frame: bool = False,
        id_bytes: int = ID_BYTES,
        decimals: Decimals = "exact",
    ) -> None:
        super().__init__(errors)
        self._decimals = decimals
        self._schemas = schemas
        self._has_frame = has_frame
        self._id_bytes = id_bytes
        self._reader: AvroSchema | None = None
        self._readings: dict[int | str, Read | str] = {}
        if schema is not None:
            self._read_as(schema)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_readings": {}}

    def _read_as(self, schema: AvroSchema) -> pa.DataType:
        schema.check_lengths()
        self._reader = schema
        self.data_type = decimals_as(schema.arrow_type, self._decimals)
        return self.data_type

    def asked(self, topic: str | None) -> pa.DataType | None:
        assert self._schemas is not None  # without a registry the type is known
        found = self._schemas.latest(topic)
        return None if found is None else self._read_as(found)

    def inferred(self, sample: pa.Array, where: Where) -> pa.DataType | None:
        assert self._schemas is not None  # without a registry the type is known
        groups = framed(Spans(sample), where, id_bytes=self._id_bytes).groups
        for written, _ in newest(groups):
            schema = self._schemas.of(written)
            if not isinstance(schema, str):
                return self._read_as(schema)
        return None

    def unreadable(self, column: pa.Array, where: Where) -> Mapping[int, str]:
        assert self._schemas is not None  # without a registry the type is known
        groups, _, faults = framed(Spans(column), where, id_bytes=self._id_bytes)
        for (written, _), rows in groups.items():
            if isinstance(reason := self._schemas.of(written), str):
                faults.update(dict.fromkeys(rows.tolist(), reason))
        return faults

    def decode_piece(self, column: pa.Array, where: Where) -> tuple[pa.Array, Mapping[int, str]]:
        assert self.data_type is not None
        spans = Spans(column)
        starts, ends = spans.starts, spans.ends
        groups: dict[Any, np.ndarray] = {None: np.flatnonzero(spans.is_valid)}
        faults: dict[int, str] = {}
        if self._has_frame:
            groups, starts, faults = framed(spans, where, id_bytes=self._id_bytes)
        values: list[Any] = [None] * len(column)
        for written, rows in groups.items():
            read = self._reading(None if written is None else written[0])
            if isinstance(read, str):
                faults.update(dict.fromkeys(rows.tolist(), read))
            else:
                firsts, lasts = starts[rows].tolist(), ends[rows].tolist()
                faults |= _read_all(read, spans.view, rows.tolist(), firsts, lasts, values)
        assert self._reader is not None
        kind, exact = self.data_type, self._reader.arrow_type
        made = self._reader.physical_arrow_type

        def decode(first: int, last: int) -> pa.Array:
            return converted_decimals(viewed(pa.array(values[first:last], made), exact), kind)

        array, more = salvaged(decode, len(values), kind)
        return array, faults | more

    def _reading(self, written: int | str | None) -> Read | str:
        """Return what reads a value that this schema wrote, or why none can be read."""
        key = "" if written is None else written
        if key not in self._readings:
            if written is None or self._schemas is None:
                writer: AvroSchema | str | None = self._reader
            else:
                writer = self._schemas.of(written)
                if isinstance(writer, str):
                    return writer  # the registry may know it later
            assert isinstance(writer, AvroSchema) and self._reader is not None
            self._readings[key] = _reading(writer, self._reader)
        return self._readings[key]


def _read_all(
    read: Read, data: memoryview, rows: list[int], firsts: list[int], lasts: list[int], values: list[Any]
) -> dict[int, str]:
    """Read the values of one schema into `values`, and return why others cannot be read, by row.

    Many values share a stream, as one for each would take longer than some values. There a value that is cut
    off goes on in the next one. So only a value that ends where it should counts; others are read alone.
    """
    faults = {}
    begin, end = 0, -1  # of what the stream has
    for row, first, last in zip(rows, firsts, lasts, strict=True):
        if last > end or first < begin:
            begin, end = first, max(last, first + STREAM_BYTES)
            stream = BytesIO(data[begin:end])
        stream.seek(first - begin)
        try:
            value = read(stream)
            is_whole = stream.tell() == last - begin
        except Exception:  # fastavro's errors have no common class
            is_whole = False
        if is_whole:
            values[row] = value
        else:
            faults[row] = _fault(read, data[first:last])
    return faults


def _fault(read: Read, data: memoryview) -> str:
    """Return why the bytes of a value cannot be read."""
    stream = BytesIO(data)
    try:
        read(stream)
    except Exception as error:
        return f"it is no value of its Avro schema: {reason_of(error)}"
    return f"{len(data) - stream.tell()} bytes follow its Avro value"


def _reading(writer: AvroSchema, reader: AvroSchema) -> Read | str:
    try:
        read, has_names = reading(writer, reader)
    except ValueError as error:
        return str(error)
    shape = shape_of(reader.schema, reader.named, has_names=has_names)
    return read if shape is None else lambda stream: shape(read(stream))
