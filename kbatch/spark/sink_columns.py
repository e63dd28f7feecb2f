"""The columns of the data source `kbatch`: those of Spark's own Kafka sink, and `timestamp`.

The error texts are those of org.apache.spark.sql.kafka010.KafkaWriter, so that its users recognize them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from kbatch.spark.schemas import HEADERS_TYPE, same_type

_BYTES = (StringType(), BinaryType())


class Attribute(NamedTuple):
    """The allowed types of a column, and their wording in errors."""

    types: tuple[DataType, ...]
    expected: str


ATTRIBUTES = {
    "topic": Attribute((StringType(),), "string"),
    "key": Attribute(_BYTES, "string or binary"),
    "value": Attribute(_BYTES, "string or binary"),
    "headers": Attribute((HEADERS_TYPE,), "array<struct<key:string,value:binary>>"),
    "partition": Attribute((IntegerType(),), "int"),
    "timestamp": Attribute(
        (TimestampType(), TimestampNTZType(), LongType()),
        "timestamp, timestamp_ntz or bigint of milliseconds",
    ),
}
# Columns for which there are options of a format.
FORMATTED = ("key", "value")
NO_TOPIC = (
    "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
)
NULL_TOPIC = (
    "The Kafka message data sent to the producer contains a null topic. "
    "Use the `topic` option for setting a topic."
)


def check_columns(
    schema: StructType, topic: str | None, *, ignores_unknown: bool, formatted: Collection[str] = ()
) -> None:
    """Raise ValueError or TypeError for columns that cannot become records. Those that are `formatted` may be
    of any type.
    """
    types = {field.name: field.dataType for field in schema.fields}
    if len(types) < len(schema.fields):
        raise ValueError(f"columns with the same name: {', '.join(schema.names)}")
    if topic is None and "topic" not in types:
        raise ValueError(NO_TOPIC)
    if "value" not in types:
        raise ValueError("Required attribute 'value' not found")
    for name, kind in types.items():
        if name in ATTRIBUTES:
            allowed = ATTRIBUTES[name]
            if name not in formatted and not any(same_type(kind, each) for each in allowed.types):
                format = f"; or set {name}.format" if name in FORMATTED else ""
                raise TypeError(
                    f"{name} attribute unsupported type {kind.simpleString()}. "
                    f"{name} must be a(n) {allowed.expected}{format}"
                )
        elif not ignores_unknown:
            raise ValueError(
                f"unknown column {name!r}; drop it, or omit all such columns with "
                f".option('unknown.columns', 'ignore'); known are {', '.join(ATTRIBUTES)}"
            )
