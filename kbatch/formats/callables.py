"""Functions, and objects made for other clients, as serializers and deserializers."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, final

from kbatch.errors import ConfigError

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kbatch.formats.base import Codec
    from kbatch.typed import Part

_Given = TypeVar("_Given")
# The arguments of a serializer, by their number.
_ARGUMENTS: Mapping[int, Callable[[str, object, object], tuple[object, ...]]] = {
    1: lambda topic, headers, value: (value,),
    2: lambda topic, headers, value: (topic, value),
    3: lambda topic, headers, value: (topic, headers, value),
}


@final
class Inline:
    """A function, or an object made for another client, that never blocks."""

    __slots__ = ("given",)

    def __init__(self, given: object) -> None:
        self.given = given


def inline(given: _Given) -> _Given:
    """Return a serializer or deserializer for a client on an event loop, which calls it there: it must never
    wait.

    Functions, and objects made for other clients, may ask a registry or read a file. So an AsyncProducer
    calls them on another thread while `send` waits, and an AsyncConsumer when it takes the records; but these
    in `send`, and at the first use of a value. Formats of this package never wait then.

    Parameters
    ----------
    given : Callable, or an object made for another client
    """
    return cast(_Given, Inline(given))


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
    adds_headers : bool
        True if it appends to the headers that it is given, which then are a list.
    codec : Codec or None
        That of a format which asks a registry.
    may_block : bool
        True if an event loop must not wait for it.
    """

    __slots__ = ("_arguments", "adds_headers", "arity", "codec", "function", "key", "may_block")

    def __init__(
        self,
        key: str,
        function: Callable[..., object],
        arity: int | None = None,
        *,
        adds_headers: bool = False,
        codec: Codec[Any] | None = None,
        may_block: bool = False,
    ) -> None:
        self.key = key
        self.function = function
        self.arity = arity_of(key, function, "value") if arity is None else arity
        self.adds_headers = adds_headers
        self.codec = codec
        self.may_block = may_block
        self._arguments = _ARGUMENTS[self.arity]

    @property
    def waits(self) -> bool:
        """True if an event loop has to wait for it, at least for the first value."""
        return self.may_block or self.codec is not None

    def __call__(self, topic: str, headers: object, value: object) -> Buffer | None:
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


def _check_buffer(key: str, topic: str, data: object) -> None:
    try:
        memoryview(data).release()  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(
            f"{key} must return bytes, got {type(data).__name__} for a record to {topic}"
        ) from None


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
    key: str, given: object, part: Part, base: Literal["Serializer", "Deserializer"]
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
        listed = headers if isinstance(headers, list) else list(headers or ())
        return function(value, module.SerializationContext(topic, part, listed))

    return call
