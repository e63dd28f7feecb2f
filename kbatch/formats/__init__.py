"""Formats: how keys and values become bytes, and back.

One object serves in all places, for records one at a time and for tables:

    order = Avro(ORDER, registry=registry)
    Producer(value_serializer=order)                send_table("orders", frame, value=order)
    Consumer(value_deserializer=order)              read_table("orders", value=order)

`Avro` needs the extra `avro`; it is imported when it is first used.
"""

from typing import TYPE_CHECKING, Any

from kbatch.formats.base import Codec, Format
from kbatch.formats.json_format import Json
from kbatch.formats.plain import Boolean, Bytes, Float32, Float64, Int16, Int32, Int64, Utf8, Uuid
from kbatch.formats.poison import SKIP

if TYPE_CHECKING:
    from kbatch.formats.avro import Avro

__all__ = [
    "SKIP",
    "Avro",
    "Boolean",
    "Bytes",
    "Codec",
    "Float32",
    "Float64",
    "Format",
    "Int16",
    "Int32",
    "Int64",
    "Json",
    "Utf8",
    "Uuid",
]


def __getattr__(name: str) -> Any:
    if name != "Avro":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kbatch.formats.avro import Avro

    return Avro
