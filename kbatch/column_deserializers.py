"""Column deserializers that are formats now: one class for records and tables, in `kbatch.formats`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kbatch.renamed import renamed

if TYPE_CHECKING:
    from kbatch.formats.reading import (
        Boolean,
        Bytes,
        ColumnDeserializer,
        Float32,
        Float64,
        Int16,
        Int32,
        Int64,
        Json,
        Utf8,
        Uuid,
        Where,
        deserialize,
    )
    from kbatch.formats.reading.base import Errors
    from kbatch.schema_registry import SchemaRegistry

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


def _avro(
    schema: str | Mapping[str, Any] | list[Any] | None = None,
    errors: "Errors" = "raise",
    *,
    registry: "SchemaRegistry | None" = None,
    subject: str | None = None,
    version: int | str = "latest",
    has_header: bool | None = None,
) -> "ColumnDeserializer":
    from kbatch.formats import Avro

    if subject is not None and (registry is None or schema is not None):
        raise TypeError("subject= names the reader's schema in a registry; give registry=, and no schema")
    if registry is not None and has_header is False:
        raise TypeError("a registry needs values with a header; leave out has_header=False, or registry=")
    made = Avro[Any](
        schema,
        registry=registry,
        id=0 if registry is None and has_header else None,
        subject=subject or "topic",
        version=version,
        on_error=errors,
    ).column_deserializer(None, "value")
    if subject is not None:
        made.ask()
    return made


def _protobuf(
    message: Any = None, errors: "Errors" = "raise", *, registry: "SchemaRegistry | None" = None
) -> "ColumnDeserializer":
    from kbatch.formats import Protobuf

    return Protobuf[Any](message, registry=registry, on_error=errors).column_deserializer(None, "value")


def _of_descriptor_set(
    data: bytes, message: str, errors: "Errors" = "raise", *, registry: "SchemaRegistry | None" = None
) -> "ColumnDeserializer":
    from kbatch.formats import Protobuf

    made = Protobuf[Any].from_descriptor_set(data, message, registry=registry, on_error=errors)
    return made.column_deserializer(None, "value")


_protobuf.from_descriptor_set = _of_descriptor_set  # type: ignore[attr-defined]

if TYPE_CHECKING:
    Avro, Protobuf = _avro, _protobuf

_CHANGED = {
    "Avro": (f"{__name__}:_avro", "kbatch.formats.Avro(schema, registry=, subject=, on_error=)"),
    "Json": ("kbatch.formats.reading:Json", "kbatch.formats.Json(type=, infer=, on_error=)"),
    "Protobuf": (f"{__name__}:_protobuf", "kbatch.formats.Protobuf(message, registry=, on_error=)"),
}

__getattr__ = renamed(
    __name__,
    {
        name: _CHANGED.get(name) or (f"kbatch.formats.reading:{name}", f"kbatch.formats.{name}")
        for name in __all__
    },
)
