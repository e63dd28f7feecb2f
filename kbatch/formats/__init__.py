"""Formats: how keys and values become bytes, and back.

One object serves in all places, for records one at a time and for tables:

    order = Avro(ORDER, registry=registry)
    Producer(value_serializer=order)                send_table("orders", frame, value=order)
    Consumer(value_deserializer=order)              read_table("orders", value=order)

`Avro`, `Protobuf` and `JsonSchema` need the extras of their names. Everything is imported at its first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbatch.formats.avro import Avro
    from kbatch.formats.base import Codec, Format
    from kbatch.formats.callables import inline
    from kbatch.formats.json_format import Json
    from kbatch.formats.json_schema import JsonSchema
    from kbatch.formats.model_schemas import Digits
    from kbatch.formats.plain import Boolean, Bytes, Float32, Float64, Int16, Int32, Int64, Utf8, Uuid
    from kbatch.formats.poison import SKIP
    from kbatch.formats.protobuf import Protobuf
    from kbatch.formats.reading.base import ColumnDeserializer, Where
    from kbatch.formats.reading.roles import deserialize
    from kbatch.formats.writing.base import ColumnSerializer, RowError

__all__ = [
    "SKIP",
    "Avro",
    "Boolean",
    "Bytes",
    "Codec",
    "ColumnDeserializer",
    "ColumnSerializer",
    "Digits",
    "Float32",
    "Float64",
    "Format",
    "Int16",
    "Int32",
    "Int64",
    "Json",
    "JsonSchema",
    "Protobuf",
    "RowError",
    "Utf8",
    "Uuid",
    "Where",
    "deserialize",
    "inline",
]

_WHERE = {
    "Avro": "avro",
    "Codec": "base",
    "ColumnDeserializer": "reading",
    "ColumnSerializer": "writing",
    "Digits": "model_schemas",
    "Format": "base",
    "Json": "json_format",
    "JsonSchema": "json_schema",
    "Protobuf": "protobuf",
    "RowError": "writing",
    "SKIP": "poison",
    "Where": "reading",
    "deserialize": "reading",
    "inline": "callables",
}


def __getattr__(name: str) -> object:
    """Import a name at its first use (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_WHERE.get(name, 'plain')}")
    return globals().setdefault(name, getattr(module, name))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
