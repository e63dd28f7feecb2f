"""Projection: which columns a read makes, of which types, and how they are made of fetched records.

Only the columns that are asked for are decoded. A column deserializer replaces `key` or `value` by a column
of its own type. For its errors it needs the offsets, which are decoded then, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, final

from kbatch.codec.columns import FETCHED_COLUMNS, fetched_batch, fetched_schema
from kbatch.consumer.ranges import check_choice
from kbatch.distribution import needs
from kbatch.errors import DeserializationError, TypeNotKnownError
from kbatch.formats.reading import ColumnDeserializer, Where
from kbatch.formats.reading.base import ReadFormat, deserializer_of
from kbatch.typed import Part

with needs("a table of records", "arrow"):
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

if TYPE_CHECKING:
    from kbatch._native.fetch.fetched_batches import FetchedRecords

Layout = Literal["copy", "view"]
LAYOUTS = ("copy", "view")
# Columns that fetched records have without decoding them.
_OF_PIECE = frozenset({"topic", "partition"})
# Columns of the bytes, beside those that deserializers make of them.
RAW_COLUMNS: Mapping[str, str] = {"key_raw": "key", "value_raw": "value"}
# The column with the reasons for null, beside that of a deserializer with errors="column".
ERROR_SUFFIX = "_error"
# How many bytes of values a read looks at that looks for a type, if it does not look at all of them.
LOOK_AHEAD_BYTES = 256 << 20


@final
class Projection:
    """The columns of a read.

    Parameters
    ----------
    columns : iterable of str or None
        Names of FETCHED_COLUMNS and RAW_COLUMNS, in the order wanted; None for all FETCHED_COLUMNS.
    layout : "copy" or "view"
    deserializers : mapping of str to ColumnDeserializer or None
        By the name of their column, `key` or `value`.
    formats : mapping of str to Format
        Those of the client, for columns that have no deserializer here.
    topic : str or None
        The topic of all records, if there is one.

    Raises
    ------
    TypeError, ValueError
        A name is unknown or twice, or a deserializer has no column.
    """

    def __init__(
        self,
        columns: Iterable[str] | None,
        layout: str,
        deserializers: Mapping[str, ColumnDeserializer | ReadFormat | None],
        formats: Mapping[Part, ReadFormat] = MappingProxyType({}),
        topic: str | None = None,
    ) -> None:
        self.columns = _checked(columns)
        check_choice("layout", layout, LAYOUTS)
        self.layout: Layout = layout  # type: ignore[assignment]
        chosen: dict[str, Any] = {name: each for name, each in formats.items() if name in self.columns}
        chosen |= {name: each for name, each in deserializers.items() if each is not None}
        self.deserializers = {
            name: _checked_deserializer(name, deserializer_of(each, topic, name), self.columns)
            for name, each in chosen.items()
        }
        self._topic = topic
        # what a read announces for columns in which no value says a type
        self._typeless: dict[str, pa.DataType] = {}
        extra = ("offset", "headers") if self.deserializers else ()
        wanted = (*(RAW_COLUMNS.get(name, name) for name in self.columns), *extra)
        self._fetched = tuple(dict.fromkeys(wanted))
        self._decoded = frozenset(self._fetched) - _OF_PIECE
        self._is_as_fetched = self._fetched == self.columns and not self.deserializers

    def ask(self) -> None:
        """Find the types that a registry knows.

        Raises
        ------
        SchemaRegistryError
            The registry refuses, or cannot be reached.
        """
        for each in self.deserializers.values():
            each.ask(self._topic)

    @property
    def missing_types(self) -> list[str]:
        """The columns whose deserializers have to see values before their types are known."""
        return [name for name, each in self.deserializers.items() if each.data_type is None]

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batches."""
        fetched = fetched_schema(self._fetched, as_views=self.layout == "view")
        if self._is_as_fetched:
            return fetched
        fields: list[pa.Field] = []
        for name in self.columns:
            field = fetched.field(RAW_COLUMNS.get(name, name)).with_name(name)
            deserializer = self.deserializers.get(field.name)
            if deserializer is None:
                fields.append(field)
                continue
            kind = self._kind(field.name)
            fields.append(pa.field(field.name, pa.null() if kind is None else kind))
            if deserializer.has_reasons:
                fields.append(pa.field(field.name + ERROR_SUFFIX, pa.string()))
        return pa.schema(fields)

    def _kind(self, name: str) -> pa.DataType | None:
        """Return the type of a column with a deserializer; None if it is not known."""
        return self._typeless.get(name, self.deserializers[name].data_type)

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

    def table(self, batches: Sequence[pa.RecordBatch]) -> pa.Table:
        """Return batches as a table. A deserializer may have learnt its type, and then the schema has it,
        only after it made columns of null.
        """
        schema = self.schema
        if all(batch.schema.equals(schema) for batch in batches):
            return pa.Table.from_batches(batches, schema)
        tables = [pa.Table.from_batches([batch]) for batch in batches]
        return pa.concat_tables([schema.empty_table(), *tables], promote_options="default")

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
        """The columns that samples need, as bytes."""
        return (*self.missing_types, "offset", "headers")

    def samples(self) -> list[Sample]:
        """Return a sample for each column whose type is missing."""
        return [Sample(name, self.deserializers[name]) for name in self.missing_types]

    def learn(self, samples: Iterable[Sample], look_ahead: LookAhead, *, is_bounded: bool) -> None:
        """Make deserializers determine their types from samples. If those had all values that will be read,
        a column that still has no type is announced as null if all of them are null, else as text, and none
        of its values can be read.

        Raises
        ------
        TypeNotKnownError
            No value of the sample says the type, and there are more records than it had.
        """
        for sample in samples:
            sample.infer()
            if sample.deserializer.data_type is not None:
                continue
            if look_ahead.was_cut:
                where = "" if self._topic is None else f" of topic {self._topic}"
                raise TypeNotKnownError(
                    f"no {sample.name} among the first {look_ahead.seen} records{where} says its type: each "
                    f"is null or cannot be read; give {sample.name}= a schema"
                )
            if is_bounded:
                self._typeless[sample.name] = pa.string() if sample.has_values else pa.null()

    def _typed(self, batch: pa.RecordBatch, records: FetchedRecords) -> pa.RecordBatch:
        if self._is_as_fetched:
            return batch
        fetched = dict(zip(batch.schema.names, batch.columns, strict=True))
        arrays: list[pa.Array] = []
        for name in self.columns:
            deserializer = self.deserializers.get(name)
            if deserializer is None:
                arrays.append(fetched[RAW_COLUMNS.get(name, name)])
                continue
            where = _where(fetched, records.topic, records.partition, name)
            typeless = self._typeless.get(name)
            typed: Any = deserializer(fetched[name], where, typeless=typeless)
            columns = typed if deserializer.has_reasons else (typed,)
            _check_replaced(name, columns[0].type, self._kind(name))
            arrays += columns
        fields = [
            field if array.type == field.type else field.with_type(array.type)  # no value had a type so far
            for field, array in zip(self.schema, arrays, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


@final
class LookAhead:
    """How far a read looks for values that say a type, in each of its ranges. No range with tombstones only
    hides the values of the others: each has an equal part of the limit, and what short ones leave of theirs.

    Parameters
    ----------
    records : int or None
        The limit of records; None for no limit, of bytes neither.
    sizes : sequence of int
        The offsets of each range.

    Attributes
    ----------
    seen : int
        Records within the limits so far.
    was_cut : bool
        True if there were more.
    """

    def __init__(self, records: int | None, sizes: Sequence[int]) -> None:
        self._is_limited = records is not None
        left = sum(sizes) if records is None else records
        self._parts = [0] * len(sizes)
        for done, index in enumerate(sorted(range(len(sizes)), key=sizes.__getitem__)):
            self._parts[index] = min(sizes[index], left // (len(sizes) - done))
            left -= self._parts[index]
        self._bytes = LOOK_AHEAD_BYTES
        self.seen = 0
        self.was_cut = False

    def begin(self, index: int) -> None:
        """Begin with a range. They come in order."""
        self._records_left = self._parts[index]
        self._bytes_left = self._bytes * self._records_left // max(1, sum(self._parts[index:]))

    def within(self, batch: pa.RecordBatch, names: Iterable[str]) -> pa.RecordBatch:
        """Return the rows of a batch that are within the limits. The bytes of the columns `names` count."""
        if self._is_limited:
            batch = self._cut(batch, names)
        self.seen += batch.num_rows
        return batch

    def _cut(self, batch: pa.RecordBatch, names: Iterable[str]) -> pa.RecordBatch:
        # by row, not by batch: the sample must not depend on how the records came
        sizes = np.zeros(batch.num_rows, np.int64)
        for name in names:
            sizes += pc.fill_null(pc.binary_length(batch.column(name)), 0).to_numpy()
        ends = np.cumsum(sizes)
        reaching = int(np.searchsorted(ends, self._bytes_left))  # the row that reaches the limit
        rows = min(reaching + 1, self._records_left, batch.num_rows)
        used = int(ends[rows - 1]) if rows else 0
        self._bytes -= used
        self._bytes_left -= used
        self._records_left = self._records_left - rows if self._bytes_left > 0 else 0
        self.was_cut |= rows < batch.num_rows
        return batch.slice(0, rows)


@final
class Sample:
    """The values by which a column learns its type: the first ones that can be read.

    Attributes
    ----------
    name : str
    deserializer : ColumnDeserializer
    has_values : bool
        True if a value was not null, whether or not it can be read.
    is_full : bool
        True if there are enough.
    """

    def __init__(self, name: str, deserializer: ColumnDeserializer) -> None:
        self.name = name
        self.deserializer = deserializer
        self.has_values = False
        self._batches: list[pa.RecordBatch] = []
        self._missing = deserializer.sample_rows

    @property
    def is_full(self) -> bool:
        return self._missing <= 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the values of a batch, which come after those before."""
        column = batch.column(self.name)
        if self.is_full or column.null_count == len(column):
            return
        self.has_values = True
        mask = self.deserializer.readable(column, self._where(batch))
        found = batch.select([self.name, "headers"]).filter(mask)
        self._batches.append(found)
        self._missing -= found.num_rows

    def infer(self) -> None:
        """Make the deserializer determine its type from what was read."""
        if self._batches:
            (batch,) = pa.Table.from_batches(self._batches).combine_chunks().to_batches() or self._batches[:1]
            self.deserializer.infer(batch.column(self.name), self._where(batch))

    def _where(self, batch: pa.RecordBatch) -> Where:
        return Where(headers=batch.column("headers"), part=self.name)


def _where(arrays: Mapping[str, pa.Array], topic: str, partition: int | None, part: str) -> Where:
    present = {name: arrays[name] for name in ("offset", "headers", "key", "value") if name in arrays}
    return Where(topic=topic, partition=partition, part=part, **present)


def _check_replaced(name: str, found: pa.DataType, announced: pa.DataType | None) -> None:
    """Raise TypeError if a user's function has returned values of a type that the column does not have."""
    if found != (pa.null() if announced is None else announced) and not pa.types.is_null(found):
        raise TypeError(
            f"the function errors= of {name} returned values of {found}, but no value that can be read says "
            f"the column's type; give {name}= a schema, or return None"
        )


def _checked(columns: Iterable[str] | None) -> tuple[str, ...]:
    if columns is None:
        return FETCHED_COLUMNS
    if isinstance(columns, str):
        raise TypeError(f"columns must be a list of names, got the str {columns!r}; write [{columns!r}]")
    names = tuple(columns)
    for name in names:
        if name not in FETCHED_COLUMNS and name not in RAW_COLUMNS:
            known = ", ".join((*FETCHED_COLUMNS, *RAW_COLUMNS))
            raise ValueError(f"columns has no {name!r}; choose from {known}")
    if not names or len(set(names)) < len(names):
        raise ValueError(f"columns must name at least one column, and each once, got {list(names)}")
    return names


def _checked_deserializer(name: str, given: object, columns: tuple[str, ...]) -> ColumnDeserializer:
    if not isinstance(given, ColumnDeserializer):
        raise TypeError(
            f"{name} must be a format of kbatch.formats, for example Utf8() or Json(), or a "
            f"ColumnDeserializer, got {given!r}"
        )
    if name not in columns:
        raise ValueError(
            f"{name}={type(given).__name__}() needs the column {name!r}, which is not in columns"
        )
    return given


# What says where a row ends.
ENDS = Projection(("offset", "leader_epoch"), "copy", {})
