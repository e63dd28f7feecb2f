"""Projection: which columns a read makes, of which types, and how they are made of fetched records.

Only the columns that are asked for are decoded. A column deserializer replaces `key` or `value` by a column
of its own type. For its errors it needs the offsets, which are decoded then, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, final

import pyarrow as pa

from kbatch.codec.columns import FETCHED_COLUMNS, fetched_batch, fetched_schema
from kbatch.column_deserializers import ColumnDeserializer, Where
from kbatch.consumer.ranges import check_choice
from kbatch.errors import DeserializationError

if TYPE_CHECKING:
    from kbatch._native.fetch.fetched_batches import FetchedRecords

Layout = Literal["copy", "view"]
LAYOUTS = ("copy", "view")
# Columns that a piece has without decoding it.
_OF_PIECE = frozenset({"topic", "partition"})
# The column with the reasons for null, beside that of a deserializer with errors="column".
ERROR_SUFFIX = "_error"


@final
class Projection:
    """The columns of a read.

    Parameters
    ----------
    columns : iterable of str or None
        Names of FETCHED_COLUMNS, in the order wanted; None for all.
    layout : "copy" or "view"
    deserializers : mapping of str to ColumnDeserializer or None
        By the name of their column, `key` or `value`.

    Raises
    ------
    TypeError, ValueError
        A name is unknown or twice, or a deserializer has no column.
    """

    def __init__(
        self,
        columns: Iterable[str] | None,
        layout: str,
        deserializers: Mapping[str, ColumnDeserializer | None],
    ) -> None:
        self.columns = _checked(columns)
        check_choice("layout", layout, LAYOUTS)
        self.layout: Layout = layout  # type: ignore[assignment]
        self.deserializers = {
            name: _deserializer(name, each, self.columns)
            for name, each in deserializers.items()
            if each is not None
        }
        extra = ("offset", "headers") if self.deserializers else ()
        self._fetched = (*self.columns, *(name for name in extra if name not in self.columns))
        self._decoded = frozenset(self._fetched) - _OF_PIECE

    @property
    def missing_types(self) -> list[str]:
        """The columns whose deserializers have to see values before their types are known."""
        return [name for name, each in self.deserializers.items() if each.data_type is None]

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batches."""
        fields: list[pa.Field] = []
        for field in fetched_schema(self.columns, as_views=self.layout == "view"):
            deserializer = self.deserializers.get(field.name)
            if deserializer is None:
                fields.append(field)
                continue
            fields.append(pa.field(field.name, deserializer.data_type or pa.null()))
            if deserializer.errors == "column":
                fields.append(pa.field(field.name + ERROR_SUFFIX, pa.string()))
        return pa.schema(fields)

    def is_same(self, other: Projection) -> bool:
        """True if both make the same columns."""
        return self is other or (
            (self.columns, self.layout) == (other.columns, other.layout)
            and self.deserializers == other.deserializers
        )

    def batches(self, records: FetchedRecords) -> tuple[list[pa.RecordBatch], Exception | None]:
        """Decode fetched records. Return the rows, and what ends them early: a fault of the records, or the
        error of a deserializer. All rows before it are there.
        """
        made: list[pa.RecordBatch] = []
        for chunk in records.decode(self._decoded, self.layout):
            batch = fetched_batch(chunk, records.topic, records.partition, self._fetched)
            try:
                typed, fault = self._readable(batch, records)
            except Exception as error:  # of no certain row: a registry that refuses, a user's function
                return made, error
            if typed.num_rows:
                made.append(typed)
            if fault is not None:
                return made, fault
        return made, records.fault

    def _readable(
        self, batch: pa.RecordBatch, records: FetchedRecords
    ) -> tuple[pa.RecordBatch, DeserializationError | None]:
        """Return the rows before the first one that cannot be deserialized, and the error of that."""
        fault = None
        while True:
            try:
                return self._typed(batch, records), fault
            except DeserializationError as error:
                if error.row >= batch.num_rows:
                    raise
                fault, batch = error, batch.slice(0, error.row)

    @property
    def sample_columns(self) -> tuple[str, ...]:
        """The columns that `infer` needs, as bytes."""
        return (*self.missing_types, "offset", "headers")

    def infer(self, sample: pa.Table, topic: str) -> None:
        """Let deserializers determine their types from the first records of a topic."""
        arrays = {name: _array(sample.column(name)) for name in sample.column_names}
        for name in self.missing_types:
            self.deserializers[name].infer(arrays[name], _where(arrays, topic, None, name))

    def _typed(self, batch: pa.RecordBatch, records: FetchedRecords) -> pa.RecordBatch:
        if not self.deserializers:
            return batch
        fetched = dict(zip(batch.schema.names, batch.columns, strict=True))
        arrays: list[pa.Array] = []
        for name in self.columns:
            deserializer = self.deserializers.get(name)
            if deserializer is None:
                arrays.append(fetched[name])
                continue
            where = _where(fetched, records.topic, records.partition, name)
            typed: Any = deserializer(fetched[name], where)
            arrays += typed if deserializer.errors == "column" else [typed]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def table_of(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """Return batches as a table. A deserializer may have learnt its type, and then `schema` has it, only
    after it made columns of null.
    """
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    return pa.concat_tables([schema.empty_table(), *tables], promote_options="default")


def _where(arrays: Mapping[str, pa.Array], topic: str, partition: int | None, part: str) -> Where:
    present = {name: arrays[name] for name in ("offset", "headers", "key", "value") if name in arrays}
    return Where(topic=topic, partition=partition, part=part, **present)


def _array(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks)


def _checked(columns: Iterable[str] | None) -> tuple[str, ...]:
    if columns is None:
        return FETCHED_COLUMNS
    if isinstance(columns, str):
        raise TypeError(f"columns must be a list of names, got the str {columns!r}; write [{columns!r}]")
    names = tuple(columns)
    for name in names:
        if name not in FETCHED_COLUMNS:
            raise ValueError(f"columns has no {name!r}; choose from {', '.join(FETCHED_COLUMNS)}")
    if not names or len(set(names)) < len(names):
        raise ValueError(f"columns must name at least one column, and each once, got {list(names)}")
    return names


def _deserializer(name: str, given: object, columns: tuple[str, ...]) -> ColumnDeserializer:
    if not isinstance(given, ColumnDeserializer):
        raise TypeError(
            f"{name} must be one of kbatch.column_deserializers, for example Utf8() or Json(schema), got "
            f"{given!r}"
        )
    if name not in columns:
        raise ValueError(
            f"{name}={type(given).__name__}() needs the column {name!r}, which is not in columns"
        )
    return given


# What says where a row ends.
ENDS = Projection(("offset", "leader_epoch"), "copy", {})
