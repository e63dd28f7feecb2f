"""Serializers: from the keys and values of a program to bytes.

A serializer is a callable of (value), of (topic, value) or of (topic, headers, value), or an object with such
a `serialize`. It returns bytes, or another object with the buffer protocol. None is never serialized: a
missing key stays missing, and a tombstone a tombstone.
"""

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, final

from kbatch.errors import ConfigError

if TYPE_CHECKING:
    from typing_extensions import Buffer

# The arguments of a serializer, by their number.
_ARGUMENTS: Mapping[int, Callable[[str, object, object], tuple[object, ...]]] = {
    1: lambda topic, headers, value: (value,),
    2: lambda topic, headers, value: (topic, value),
    3: lambda topic, headers, value: (topic, headers, value),
}


def utf8(value: str) -> bytes:
    """Return the text as UTF-8 (StringSerializer). Raise TypeError for anything but a str."""
    if not isinstance(value, str):
        raise TypeError(f"utf8 needs a str, got {type(value).__name__}")
    return value.encode()


def int32(value: int) -> bytes:
    """Return four bytes, big-endian (IntegerSerializer). Raise TypeError or ValueError for other values."""
    return _big_endian(value, 4)


def int64(value: int) -> bytes:
    """Return eight bytes, big-endian (LongSerializer). Raise TypeError or ValueError for other values."""
    return _big_endian(value, 8)


def _big_endian(value: int, size_bytes: int) -> bytes:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"int{size_bytes * 8} needs an int, got {type(value).__name__}")
    limit = 1 << (size_bytes * 8 - 1)
    if not -limit <= value < limit:
        raise ValueError(f"int{size_bytes * 8} needs {-limit} to {limit - 1}, got {value}")
    return value.to_bytes(size_bytes, "big", signed=True)


_JAVA = "org.apache.kafka.common.serialization."
# Our names and Java's; None leaves bytes unchanged.
SERIALIZERS: Mapping[str, Callable[[Any], bytes] | None] = {
    "bytes": None,
    "utf8": utf8,
    "int32": int32,
    "int64": int64,
    f"{_JAVA}ByteArraySerializer": None,
    f"{_JAVA}ByteBufferSerializer": None,
    f"{_JAVA}BytesSerializer": None,
    f"{_JAVA}StringSerializer": utf8,
    f"{_JAVA}IntegerSerializer": int32,
    f"{_JAVA}LongSerializer": int64,
}


@final
class Serializer:
    """A serializer of any form with one calling convention. Its exceptions pass through, with a note of the
    key.

    Attributes
    ----------
    key : str
        "key.serializer" or "value.serializer".
    function : Callable
        The configured object.
    arity : int
        Its number of arguments: 1, 2 or 3.
    """

    __slots__ = ("_arguments", "arity", "function", "key")

    def __init__(self, key: str, function: Callable[..., object]) -> None:
        self.key = key
        self.function = function
        self.arity = arity_of(key, function, "value")
        self._arguments = _ARGUMENTS[self.arity]

    def __call__(self, topic: str, headers: object, value: object) -> "Buffer | None":
        """Return the bytes of a value for a topic. Raise TypeError if the serializer returns no bytes."""
        if value is None:
            return None
        try:
            data = self.function(*self._arguments(topic, headers, value))
        except Exception as error:
            error.add_note(f"raised by {self.key}, for a record to {topic}")
            raise
        if not isinstance(data, bytes):
            _check_buffer(self.key, topic, data)
        return data  # type: ignore[return-value]


def serializer_for(key: str, given: object) -> Serializer | None:
    """Return the serializer that a configuration names, or None if bytes are used unchanged.

    Parameters
    ----------
    key : str
        "key.serializer" or "value.serializer", for errors.
    given : object
        That key's value: a callable, an object or class with `serialize`, a name, or None. Others raise
        ConfigError.
    """
    if given is None:
        return None
    if isinstance(given, str):
        if given not in SERIALIZERS:
            names = ", ".join(name for name in SERIALIZERS if not name.startswith(_JAVA))
            raise ConfigError(f"{key} must be a callable, or one of {names}, got {given!r}")
        named = SERIALIZERS[given]
        return None if named is None else Serializer(key, named)
    if isinstance(given, type) and (hasattr(given, "serialize") or hasattr(given, "bind")):
        given = given()
    part: Literal["key", "value"] = "key" if key.startswith("key") else "value"
    if hasattr(given, "bind"):  # a format
        given = given.bind(part).encode
    given = made_for_confluent(key, given, part, "Serializer") or given
    function = getattr(given, "serialize", given)
    if not callable(function):
        raise ConfigError(f"{key} must be a callable or have a method serialize, got {given!r}")
    return Serializer(key, function)


def arity_of(key: str, function: Callable[..., object], last: str) -> int:
    """Return the number of a function's arguments: those without defaults, or if all have one, all of them.
    Raise ConfigError for other forms.

    Parameters
    ----------
    last : str
        What the last one is called in an error, "value" or "data".
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise ConfigError(f"{key} {function!r} hides its parameters; wrap it in a function") from None
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    given = [p for p in parameters if p.kind not in variadic]
    needed = [p for p in given if p.default is p.empty]
    if not needed:
        needed = [p for p in given if p.kind is not p.KEYWORD_ONLY]
    if len(needed) not in _ARGUMENTS or any(p.kind is p.KEYWORD_ONLY for p in needed):
        raise ConfigError(
            f"{key} must take ({last}), (topic, {last}) or (topic, headers, {last}), but {function!r} takes "
            f"({', '.join(p.name for p in needed)})"
        )
    return len(needed)


def made_for_confluent(
    key: str, given: object, part: Literal["key", "value"], base: Literal["Serializer", "Deserializer"]
) -> Callable[[str, Any, Any], Any] | None:
    """Return a function of (topic, headers, value) that calls an object made for confluent-kafka with a
    SerializationContext; None if it is no such object. Its classes are known without importing them.
    """
    module: Any = sys.modules.get("confluent_kafka.serialization")
    if module is None or not isinstance(given, getattr(module, base)):
        return None
    if inspect.iscoroutinefunction(type(given).__call__):
        raise ConfigError(f"{key} {given!r} is for confluent's asyncio clients; give the one without Async")
    function: Any = given

    def call(topic: str, headers: Any, value: Any) -> Any:
        listed = list(headers or ())
        made = function(value, module.SerializationContext(topic, part, listed))
        if len(listed) != len(headers or ()):
            raise ConfigError(f"{key} {given!r} puts the schema's id into a header; let it write a prefix")
        return made

    return call


def _check_buffer(key: str, topic: str, data: object) -> None:
    try:
        memoryview(data).release()  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(
            f"{key} must return bytes, got {type(data).__name__} for a record to {topic}"
        ) from None
