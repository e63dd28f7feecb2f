"""Column deserializers: the keys or values of a topic's records as Arrow columns of any type.

The reverse of `kbatch.column_serializers`. A column deserializer is a callable of (column, where): a column
of bytes, and a `Where` that says which records they are. It returns an array with a value a row. Null, the
value of a tombstone, stays null.

    records = kbatch.decode_arrow(batches)
    orders = deserialize(records, key=Utf8(), value=Json(schema))

`errors=` says what becomes of a value that cannot be deserialized: "raise", "null", "column", or a function
of (bytes, error) that returns the value. A DeserializationError names the record; "column" adds a second
column, with the reasons.
"""

from kbatch.distribution import needs

with needs("kbatch.column_deserializers", "arrow"):
    from kbatch.column_deserializers.avro_values import Avro
    from kbatch.column_deserializers.base import ColumnDeserializer, Where
    from kbatch.column_deserializers.json_values import Json
    from kbatch.column_deserializers.plain import (
        Boolean,
        Bytes,
        Float32,
        Float64,
        Int16,
        Int32,
        Int64,
        Utf8,
        Uuid,
    )
    from kbatch.column_deserializers.protobuf_values import Protobuf
    from kbatch.column_deserializers.roles import deserialize

__all__ = [
    "Avro",
    "Boolean",
    "Bytes",
    "ColumnDeserializer",
    "Float32",
    "Float64",
    "Int16",
    "Int32",
    "Int64",
    "Json",
    "Protobuf",
    "Utf8",
    "Uuid",
    "Where",
    "deserialize",
]
