"""Column deserializers: the keys or values of a topic's records as Arrow columns of any type.

The reverse of `kbatch.formats.writing`. A column deserializer is a callable of (column, where): a column
of bytes, and a `Where` that says which records they are. It returns an array with a value a row. Null, the
value of a tombstone, stays null.

    records = kbatch.decode_arrow(batches)
    orders = deserialize(records, key=Utf8(), value=Json(schema))

`errors=` says what becomes of a value that cannot be deserialized: "raise", "null", "column", or a function
of (bytes, error) that returns the value. A DeserializationError names the record; "column" adds a second
column, with the reasons.
"""

from kbatch.distribution import needs

with needs("kbatch.formats.reading", "arrow"):
    from kbatch.formats.reading.base import ColumnDeserializer, Where
    from kbatch.formats.reading.json_values import Json
    from kbatch.formats.reading.plain import (
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
    from kbatch.formats.reading.roles import deserialize

__all__ = [
    "Boolean",
    "Bytes",
    "ColumnDeserializer",
    "Float32",
    "Float64",
    "Int16",
    "Int32",
    "Int64",
    "Json",
    "Utf8",
    "Uuid",
    "Where",
    "deserialize",
]
