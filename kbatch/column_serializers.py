"""Column serializers that are formats now: one class for records and tables, in `kbatch.formats`."""

from typing import TYPE_CHECKING

from kbatch.renamed import renamed

if TYPE_CHECKING:
    from kbatch.formats.writing import (
        Avro,
        ColumnSerializer,
        Int32,
        Int64,
        JsonLines,
        Protobuf,
        RowError,
        Utf8,
    )

__all__ = ["Avro", "ColumnSerializer", "Int32", "Int64", "JsonLines", "Protobuf", "RowError", "Utf8"]

_INSTEAD = {
    "Avro": "kbatch.formats.Avro(schema, id=, registry=, subject=, register=, columns=)",
    "JsonLines": "kbatch.formats.Json(columns=, decimals=), or JsonSchema with a registry",
    "Protobuf": "kbatch.formats.Protobuf(message, id=, registry=, subject=, register=, columns=)",
}

__getattr__ = renamed(
    __name__,
    {
        name: (f"kbatch.formats.writing:{name}", _INSTEAD.get(name, f"kbatch.formats.{name}"))
        for name in __all__
    },
)
