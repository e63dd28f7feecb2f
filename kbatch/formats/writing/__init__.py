"""Column serializers: the keys or values of a table's records, from any number of its columns.

A column serializer is a callable of (columns), a pyarrow.RecordBatch, that returns a binary column with a
value a row; null means no key, or a tombstone. `send_table` and `encode_arrow` accept one in place of a
column's name:

    producer.send_table("orders", frame, key="id", value=JsonLines())

A plain callable gets the columns without another role (key, headers, timestamp, partition). For those here
you can choose columns: several names, or one name for the column's own values. Tables are serialized piece by
piece, so a stream may be larger than memory. A row that cannot be serialized raises SerializationError, which
names column and row; that row and later ones are not sent.
"""

from kbatch.distribution import needs

with needs("kbatch.formats.writing", "arrow"):
    from kbatch.formats.writing.base import ColumnSerializer, RowError
    from kbatch.formats.writing.json_text import JsonLines
    from kbatch.formats.writing.plain import (
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

__all__ = [
    "Boolean",
    "Bytes",
    "ColumnSerializer",
    "Float32",
    "Float64",
    "Int16",
    "Int32",
    "Int64",
    "JsonLines",
    "RowError",
    "Utf8",
    "Uuid",
]
