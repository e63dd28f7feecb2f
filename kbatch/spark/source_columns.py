"""The columns of a read, as Spark's own source has them; a format may type keys and values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from kbatch.spark.schemas import ARROW_TYPES, null_if_empty
from kbatch.spark.source_formats import ColumnFormat, spark_type

# The columns in the order of Spark's source, with their types in SQL.
RECORD_COLUMNS: Mapping[str, str] = {
    "key": "BINARY",
    "value": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "timestampType": "INT",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}
# Names that kbatch's own tables have for them.
OF_KBATCH = {"timestampType": "timestamp_type"}


def sql_schema(columns: Iterable[str], formats: Mapping[str, ColumnFormat]) -> str:
    """Return the frame's schema in SQL's notation."""
    types = {**RECORD_COLUMNS, **{part: found.sql_type for part, found in formats.items()}}
    return ", ".join(f"`{name}` {types[name]}" for name in columns)


def kbatch_columns(columns: Iterable[str]) -> tuple[str, ...]:
    """Return the names that kbatch's tables have for these columns, all that must be read."""
    return tuple(OF_KBATCH.get(name, name) for name in columns)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the frame's schema in the types that Spark takes from a Python worker."""
    from pyspark.sql.pandas.types import to_arrow_type

    return pa.schema(
        [
            (field.name, ARROW_TYPES.get(field.dataType) or to_arrow_type(field.dataType, timezone="UTC"))
            for field in schema
        ]
    )


def spark_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    """Return the rows of a read as a table with Spark's names, almost in its types: a cast does the rest."""
    columns = []
    for name in schema.names:
        column = batch.column(OF_KBATCH.get(name, name))
        if name == "timestampType":
            column = column.indices
        elif name == "headers":
            column = null_if_empty(column)
        elif pa.types.is_dictionary(column.type):
            column = pc.cast(column, column.type.value_type)
        elif (kind := spark_type(column.type)) != column.type:
            column = column.cast(kind, safe=False)  # what is below a microsecond is cut off
        columns.append(column)
    return pa.table(columns, names=schema.names)
