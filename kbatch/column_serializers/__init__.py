"""Column serializers: the keys or values of a table's records, from as many of its columns as it takes.

A column serializer is a callable of (columns), a pyarrow.RecordBatch, that returns a binary column with a
value a row; null is no key, or a tombstone. `send_table` and `encode_arrow` take one in the place of a
column's name:

    producer.send_table("orders", frame, key="id", value=JsonLines())

A plain callable gets the columns that have no other part (key, headers, timestamp, partition). Those here can
be told which: several names, or one name for the column's own values. Tables are serialized piece by piece,
so that a stream may be larger than memory. What a row cannot be is a SerializationError that names column and
row; that row and those behind it are not sent.

`kbatch.serializers` is the same for records.
"""

from kbatch.column_serializers.avro_rows import Avro
from kbatch.column_serializers.base import ColumnSerializer, RowError
from kbatch.column_serializers.json_text import JsonLines
from kbatch.column_serializers.plain import Int32, Int64, Utf8
from kbatch.column_serializers.protobuf_rows import Protobuf

__all__ = ["Avro", "ColumnSerializer", "Int32", "Int64", "JsonLines", "Protobuf", "RowError", "Utf8"]
