"""Serializers and deserializers as a configuration gives them: formats, names, Java's class names, callables,
objects made for other clients.

A callable takes (value), (topic, value) or (topic, headers, value), of a deserializer with bytes in the
value's place; an object has such a `serialize` or `deserialize`. None never reaches it: a missing key stays
missing, and a tombstone a tombstone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from kbatch.errors import ConfigError
from kbatch.formats.base import Codec, Format, FunctionCodec
from kbatch.formats.callables import Inline, Serializer, arity_of, made_for_confluent
from kbatch.typed import Part

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
    columns : Format or None
        A format that also reads columns.
    may_block : bool
        True if an event loop must not wait for it.
    """

    function: Callable[..., Any]
    is_of_data: bool
    codec: Codec[Any] | None = None
    columns: Format[Any] | None = None
    may_block: bool = False


def serializer_for(part: Part, given: object) -> Serializer | None:
    """Return the serializer of a configuration; None leaves bytes.

    Parameters
    ----------
    part : "key" or "value"
    given : object
        The value of key.serializer or value.serializer. Unsuitable ones raise ConfigError.
    """
    key = f"{part}.serializer"
    may_block = not isinstance(given, Inline)
    given = _made(key, given, "serialize")
    if given is None:
        return None
    if isinstance(given, Format):
        codec = given.bind(part)
        if isinstance(codec, FunctionCodec):
            return Serializer(key, codec.of_value, 1)
        asking = codec if codec.asks else None
        return Serializer(key, codec.encode, 3, adds_headers=codec.adds_headers, codec=asking)
    of_confluent = made_for_confluent(key, given, part, "Serializer")
    if of_confluent is not None:  # it may be set up to do so
        return Serializer(key, of_confluent, 3, adds_headers=True, may_block=may_block)
    return Serializer(key, _function(key, given, "serialize"), may_block=may_block)


def deserializer_for(part: Part, given: object) -> Deserializer | None:
    """Return the deserializer of a configuration; None leaves bytes.

    Parameters
    ----------
    part : "key" or "value"
    given : object
        The value of key.deserializer or value.deserializer. Unsuitable ones raise ConfigError.
    """
    key = f"{part}.deserializer"
    may_block = not isinstance(given, Inline)
    given = _made(key, given, "deserialize")
    if given is None:
        return None
    if isinstance(given, Format):
        codec = given.bind(part)
        columns = given if given.reads_columns else None
        if isinstance(codec, FunctionCodec):
            return Deserializer(codec.of_data, True, columns=columns)
        return Deserializer(codec.decode, False, codec, columns)
    of_confluent = made_for_confluent(key, given, part, "Deserializer")
    if of_confluent is not None:
        return Deserializer(of_confluent, False, may_block=may_block)
    return _of_arity(key, _function(key, given, "deserialize"), may_block)


def _of_arity(key: str, function: Callable[..., Any], may_block: bool) -> Deserializer:
    arity = arity_of(key, function, "data")
    if arity == 2:
        return Deserializer(lambda topic, headers, data: function(topic, data), False, may_block=may_block)
    return Deserializer(function, arity == 1, may_block=may_block)


_Method = Literal["serialize", "deserialize"]


def _made(key: str, given: object, method: _Method) -> object:
    """Return the format of a name, or an object of a class; None for bytes."""
    if isinstance(given, Inline):
        given = given.given
    if isinstance(given, str):
        return _named(key, given, f"{method.capitalize()}r")
    if isinstance(given, type) and (issubclass(given, Format) or hasattr(given, method)):
        return given()
    return given


def _named(key: str, name: str, ending: str) -> Format[Any] | None:
    from kbatch.formats.json_format import Json  # most programs name none
    from kbatch.formats.plain import NAMES

    short = name.removeprefix(_JAVA).removesuffix(ending) if name.startswith(_JAVA) else None
    name_of_ours = name if short is None else _JAVA_NAMES.get(short, name)
    if name_of_ours == "json":
        return Json()
    if name_of_ours not in NAMES:
        raise ConfigError(
            f"{key} must be a format, a callable, or one of {', '.join(NAMES)}, json, got {name!r}"
        )
    return None if name_of_ours == "bytes" else NAMES[name_of_ours]()


def _function(key: str, given: object, method: _Method) -> Callable[..., Any]:
    function = getattr(given, method, given)
    if not callable(function):
        raise ConfigError(
            f"{key} must be a format, a name, a callable or have a method {method}, got {given!r}"
        )
    return function
