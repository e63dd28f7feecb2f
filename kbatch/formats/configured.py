"""Deserializers as a configuration gives them: formats, names, Java's class names, callables, objects made
for other clients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kbatch.errors import ConfigError
from kbatch.formats.base import Codec, Format, FunctionCodec, Part
from kbatch.formats.json_format import Json
from kbatch.formats.plain import NAMES
from kbatch.serializers import arity_of, made_for_confluent

_JAVA = "org.apache.kafka.common.serialization."
_JAVA_NAMES: Mapping[str, str] = {
    "ByteArray": "bytes",
    "ByteBuffer": "bytes",
    "Bytes": "bytes",
    "String": "utf8",
    "Short": "int16",
    "Integer": "int32",
    "Long": "int64",
    "Float": "float32",
    "Double": "float64",
    "Boolean": "boolean",
    "UUID": "uuid",
}


class Deserializer(NamedTuple):
    """What makes a key or a value of bytes.

    Attributes
    ----------
    function : Callable
        Takes (topic, headers, data), or the data alone.
    is_of_data : bool
        True if it takes the data alone.
    codec : Codec or None
        Of a format.
    """

    function: Callable[..., Any]
    is_of_data: bool
    codec: Codec[Any] | None = None


def deserializer_for(part: Part, given: object) -> Deserializer | None:
    """Return the deserializer of a configuration; None leaves bytes.

    Parameters
    ----------
    part : "key" or "value"
    given : object
        The value of key.deserializer or value.deserializer. Unsuitable ones raise ConfigError.
    """
    key = f"{part}.deserializer"
    if isinstance(given, str):
        given = _named(key, given)
    if given is None:
        return None
    if isinstance(given, Format):
        codec = given.bind(part)
        if isinstance(codec, FunctionCodec):
            return Deserializer(codec.of_data, True)
        return Deserializer(codec.decode, False, codec)
    if isinstance(given, type) and (issubclass(given, Format) or hasattr(given, "deserialize")):
        return deserializer_for(part, given())
    of_confluent = made_for_confluent(key, given, part, "Deserializer")
    if of_confluent is not None:
        return Deserializer(of_confluent, False)
    function = getattr(given, "deserialize", given)
    if not callable(function):
        raise ConfigError(
            f"{key} must be a format, a name, a callable or have a method deserialize, got {given!r}"
        )
    return _of_arity(key, function)


def _of_arity(key: str, function: Callable[..., Any]) -> Deserializer:
    arity = arity_of(key, function, "data")
    if arity == 2:
        return Deserializer(lambda topic, headers, data: function(topic, data), False)
    return Deserializer(function, arity == 1)


def _named(key: str, name: str) -> Format[Any] | None:
    short = name.removeprefix(_JAVA).removesuffix("Deserializer") if name.startswith(_JAVA) else None
    name_of_ours = name if short is None else _JAVA_NAMES.get(short, name)
    if name_of_ours == "json":
        return Json()
    if name_of_ours not in NAMES:
        raise ConfigError(
            f"{key} must be a format, a callable, or one of {', '.join(NAMES)}, json, got {name!r}"
        )
    return None if name_of_ours == "bytes" else NAMES[name_of_ours]()
