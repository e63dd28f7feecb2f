"""Column deserializers that are formats now: one class for records and tables, in `kbatch.formats`."""

from typing import TYPE_CHECKING

from kbatch.renamed import renamed

if TYPE_CHECKING:
    from kbatch.formats.reading import (
        Avro,
        Boolean,
        Bytes,
        ColumnDeserializer,
        Float32,
        Float64,
        Int16,
        Int32,
        Int64,
        Json,
        Protobuf,
        Utf8,
        Uuid,
        Where,
        deserialize,
    )

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

_INSTEAD = {
    "Avro": "kbatch.formats.Avro(schema, registry=, subject=, on_error=)",
    "Json": "kbatch.formats.Json(type=, infer=, on_error=)",
    "Protobuf": "kbatch.formats.Protobuf(message, registry=, on_error=)",
}

__getattr__ = renamed(
    __name__,
    {
        name: (f"kbatch.formats.reading:{name}", _INSTEAD.get(name, f"kbatch.formats.{name}"))
        for name in __all__
    },
)
