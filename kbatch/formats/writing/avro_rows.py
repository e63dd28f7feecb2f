"""Avro values of rows, by fastavro (the extra `avro`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from io import BytesIO
from typing import Any

import pyarrow as pa

from kbatch.formats.avro_schemas import AvroSchema
from kbatch.formats.writing.avro_columns import (
    Plan,
    Refused,
    plain_type,
    plan_of,
    rows_of,
    spread,
    text_of,
)
from kbatch.formats.writing.base import (
    ColumnSerializer,
    RowError,
    binary_column,
    check_fields,
    find_column,
)


class AvroColumns(ColumnSerializer):
    """An Avro value for each row.

    A record schema takes the columns that its fields name, even if they have another role; fields without a
    column must have a default. Any other schema takes one column, whose nulls stay null. Logical types accept
    their Arrow equivalents: timestamps (those without a zone are UTC), dates, times, decimals, UUIDs. Digits
    of times below the schema's unit are cut.

    The type of a column chooses the branch of a union: the one that is equal to it, else the first that has
    all its values, else the first that may have them.

    Parameters
    ----------
    schema : AvroSchema
    prefix : bytes
        What stands in front of each value.
    columns : str, sequence of str, or None
        See ColumnSerializer, if the schema's fields do not name them. One name, as a str, means a column of
        structs.

    Raises
    ------
    TypeError
        From `choose`: a column is of a type that its field does not take.
    """

    def __init__(
        self, schema: AvroSchema, prefix: bytes = b"", columns: str | Iterable[str] | None = None
    ) -> None:
        super().__init__(columns)
        self._schema = schema
        self._prefix = prefix
        self._plans: tuple[pa.Schema, list[Plan]] | None = None  # of the columns that were last given

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_plans": None}  # functions, which are made again

    @property
    def takes_one(self) -> bool:
        return super().takes_one or self._schema.fields is None

    def choose(self, schema: pa.Schema, free: Sequence[str]) -> list[str]:
        names, fields = super().choose(schema, free), self._schema.fields
        if fields is None and len(names) != 1:
            raise ValueError(
                f"an Avro schema other than a record takes one column; name it (columns=..); there are "
                f"{', '.join(names) or 'none'}"
            )
        if self.takes_one or fields is None:
            self._plans_of(pa.schema([schema.field(name) for name in names]))
            return names
        name_of_record = self._schema.schema["name"]
        record = f"the Avro schema {name_of_record}"
        if self.columns is None:
            check_fields(self, names, fields, record)
            names = [name for name in fields if name in schema.names]
        check_fields(self, names, fields, record)
        for name, field in fields.items():
            if name not in names and "default" not in field:
                find_column(schema, name, f"Avro field, which has no default, of {name_of_record}")
                raise ValueError(f"the Avro field {name!r} has no default; add it to columns=[..]")
        self._plans_of(pa.schema([schema.field(name) for name in names]))
        return names

    def __call__(self, columns: pa.RecordBatch) -> pa.Array:
        from fastavro import schemaless_writer

        plans = self._plans_of(columns.schema)
        names = columns.schema.names
        arrays = [column.cast(plain_type(column.type)) for column in columns.columns]
        if self.takes_one:
            is_null = arrays[0].is_null().to_pylist()
            rows = spread(_converted(plans[0], names[0], arrays[0]), arrays[0])
        else:
            data = [_converted(*each) for each in zip(plans, names, arrays, strict=True)]
            is_null, rows = [], rows_of(dict(zip(names, data, strict=True)), columns.num_rows)
        schema, _ = self._schema.physical
        output, ends = BytesIO(), []
        for number, row in enumerate(rows):
            if not (is_null and is_null[number]):
                output.write(self._prefix)
                try:
                    schemaless_writer(output, schema, row)
                except Exception as error:
                    raise RowError(number, f"Avro refuses it: {type(error).__name__}: {error}") from error
            ends.append(output.tell())
        return binary_column(output.getvalue(), ends, is_null)

    def _plans_of(self, schema: pa.Schema) -> list[Plan]:
        """Return how each column is converted. Raise TypeError for a type that the field does not take."""
        if self._plans is None or self._plans[0] != schema:
            self._plans = schema, [self._plan_of(field) for field in schema]
        return self._plans[1]

    def _plan_of(self, field: pa.Field) -> Plan:
        whole = self._schema
        kind = whole.schema if self.takes_one or whole.fields is None else whole.fields[field.name]["type"]
        plan = plan_of(kind, whole.named, plain_type(field.type))
        if plan is None:
            raise TypeError(
                f"column {field.name!r} is of {field.type}, which Avro does not take for {text_of(kind)}; "
                "cast the column"
            )
        return plan if not self.takes_one else Plan(plan.rank, lambda array: plan.convert(array.drop_null()))


def _converted(plan: Plan, name: str, column: pa.Array) -> list[Any]:
    """Return a column's data. Raise RowError for the first row that is refused."""
    try:
        return plan.convert(column)
    except Refused:
        pass
    first, last = 0, len(column)  # the first row that is refused is one of these
    while last - first > 1:
        middle = (first + last) // 2
        try:
            plan.convert(column.slice(first, middle - first))
        except Refused:
            last = middle
        else:
            first = middle
    try:
        return plan.convert(column.slice(first, 1))
    except Refused as refused:
        raise RowError(first, str(refused), name) from refused
