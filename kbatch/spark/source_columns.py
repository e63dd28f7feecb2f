"""The columns of a read: Spark's own, and typed keys and values.

A format such as json makes a typed column of a binary one, in the task that reads it. The driver only needs
its type in SQL's notation, from which Spark makes the frame's schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from kbatch.spark.schemas import ARROW_TYPES

if TYPE_CHECKING:
    from kbatch.column_deserializers import ColumnDeserializer

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
# Formats without a schema, and their types in SQL.
PLAIN_FORMATS: Mapping[str, str] = {
    "binary": "BINARY",
    "string": "STRING",
    "short": "SMALLINT",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
}
FORMATS = (*PLAIN_FORMATS, "json", "avro")
MALFORMED = ("raise", "null")


@dataclass(frozen=True)
class ColumnFormat:
    """The format of key or value.

    Attributes
    ----------
    name : str
        A name in FORMATS.
    schema : str
        For json the fields in SQL's notation, for avro the schema as JSON; "" for other formats.
    registry_url : str | None
    on_malformed : str
        A name in MALFORMED.
    """

    name: str
    schema: str
    registry_url: str | None
    on_malformed: str

    @property
    def sql_type(self) -> str:
        """The type of the column in SQL."""
        if self.name in PLAIN_FORMATS:
            return PLAIN_FORMATS[self.name]
        if self.name == "json":
            return f"STRUCT<{self.schema}>"
        return _avro_sql_type(self.schema)

    def deserializer(self, kind: pa.DataType) -> ColumnDeserializer:
        """Return what makes a column of type `kind` of binary values."""
        from kbatch import column_deserializers as made

        if self.name == "json":
            return made.Json(kind, errors=self.on_malformed)
        if self.name == "avro":
            registry = None
            if self.registry_url is not None:
                from kbatch.schema_registry import SchemaRegistry

                registry = SchemaRegistry(self.registry_url)
            return made.Avro(self.schema, registry=registry, errors=self.on_malformed)
        plain: Mapping[str, type[ColumnDeserializer]] = {
            "string": made.Utf8,
            "short": made.Int16,
            "int": made.Int32,
            "long": made.Int64,
            "float": made.Float32,
            "double": made.Float64,
        }
        return plain[self.name](errors=self.on_malformed)


def read_formats(given: Mapping[str, str]) -> dict[str, ColumnFormat]:
    """Return the formats of key and value that are not binary.

    Raises
    ------
    ValueError
        A format is unknown, or its schema is missing or superfluous.
    """
    malformed = given.get("on.malformed", "raise").lower()
    if malformed not in MALFORMED:
        raise ValueError(f"option 'on.malformed' must be raise or null, got {given['on.malformed']!r}")
    found = {}
    for part in ("key", "value"):
        name = given.get(f"{part}.format", "binary").lower()
        schema = given.get(f"{part}.schema", "").strip()
        if name not in FORMATS:
            raise ValueError(
                f"option '{part}.format' must be one of {', '.join(FORMATS)}, got {given[f'{part}.format']!r}"
            )
        needs_schema = name not in PLAIN_FORMATS
        if needs_schema and not schema:
            example = "'id BIGINT, name STRING'" if name == "json" else "the Avro schema as JSON"
            raise ValueError(f"option '{part}.schema' is missing; {part}.format={name} needs {example}")
        if schema and not needs_schema:
            raise ValueError(f"option '{part}.schema' has no use with {part}.format={name}; omit it")
        if name != "binary":
            found[part] = ColumnFormat(name, schema, given.get("schema.registry.url"), malformed)
    return found


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
        elif pa.types.is_dictionary(column.type):
            column = pc.cast(column, column.type.value_type)
        columns.append(column)
    return pa.table(columns, names=schema.names)


def _avro_sql_type(schema: str) -> str:
    """Return the SQL type of an Avro schema's columns."""
    from pyspark.sql.pandas.types import from_arrow_type

    from kbatch.column_deserializers import Avro

    try:
        kind = Avro(schema).data_type
    except ValueError as error:
        raise ValueError(f"option 'value.schema' or 'key.schema' is no Avro schema: {error}") from error
    assert kind is not None, "a schema determines the type"
    return from_arrow_type(kind, prefer_timestamp_ntz=False).simpleString()
