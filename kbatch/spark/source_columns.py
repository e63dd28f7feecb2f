"""The columns of a read, as Spark's own source has them; a format may type keys and values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    MapType,
    StructField,
    StructType,
    VariantType,
    YearMonthIntervalType,
)

from kbatch.consumer.projection import ERROR_SUFFIX, RAW_COLUMNS
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
    types |= dict.fromkeys(RAW_COLUMNS, "BINARY") | {part + ERROR_SUFFIX: "STRING" for part in formats}
    return ", ".join(f"`{name}` {types[name]}" for name in columns)


def kbatch_columns(columns: Iterable[str]) -> tuple[str, ...]:
    """Return the names that kbatch's tables have for these columns, all that must be read."""
    return tuple(OF_KBATCH.get(name, name) for name in columns if not name.endswith(ERROR_SUFFIX))


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the frame's schema in the types that Spark takes from a Python worker."""
    from pyspark.sql.pandas.types import to_arrow_type

    return pa.schema(
        [
            (field.name, ARROW_TYPES.get(field.dataType) or to_arrow_type(field.dataType, timezone="UTC"))
            for field in schema
        ]
    )


# Types of Spark's that have no values in any format.
UNSUPPORTED = (CalendarIntervalType, VariantType, YearMonthIntervalType)


def check_types(schema: StructType, formats: Mapping[str, ColumnFormat]) -> None:
    """Raise ValueError if values of a format cannot be what its schema says."""
    for part, found in formats.items():
        if part in schema.names:
            for name, field in fields_within(part, schema[part]):
                if isinstance(field.dataType, UNSUPPORTED):
                    raise ValueError(
                        f"option '{part}.schema': {name} is {field.dataType.simpleString()}, which is not "
                        "supported; read it as STRING, and convert that in Spark"
                    )
                if not field.nullable and found.on_malformed != "raise":
                    raise ValueError(
                        f"option '{part}.schema': {name} is NOT NULL, but on.malformed={found.on_malformed} "
                        "makes nulls of values that are not of their format; omit NOT NULL, or that option"
                    )


def fields_within(name: str, field: StructField) -> Iterator[tuple[str, StructField]]:
    """Yield a field and those within it, with their full names."""
    yield name, field
    match field.dataType:
        case StructType(fields=fields):
            for each in fields:
                yield from fields_within(f"{name}.{each.name}", each)
        case ArrayType(elementType=kind):
            yield from fields_within(f"{name}.element", StructField("element", kind))
        case MapType(keyType=key, valueType=value):
            yield from fields_within(f"{name}.key", StructField("key", key))
            yield from fields_within(f"{name}.value", StructField("value", value))


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
