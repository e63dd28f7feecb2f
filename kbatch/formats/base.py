"""The base of formats: what one object does for keys and values, a record at a time and by columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any, Generic, Literal, final

from kbatch.typed import Headers, Part, T

if TYPE_CHECKING:
    from kbatch.formats.reading.base import ColumnDeserializer, Errors
    from kbatch.formats.writing.base import ColumnSerializer


Versions = Literal["latest", "all"]


class Codec(Generic[T]):
    """A format for the keys or the values of records, one at a time. None never reaches it.

    Attributes
    ----------
    asks : bool
        True if `unknown` may return something, and `known_seconds` may end.
    adds_headers : bool
        True if `encode` appends to the headers, which then are a list.
    """

    asks = False
    adds_headers = False

    def encode(self, topic: str, headers: Headers, value: T) -> bytes:
        """Return the bytes of a value. Any exception is a fault of the value."""
        raise NotImplementedError

    def known_seconds(self, topic: str) -> float:
        """Return for how long `encode` asks nothing for values of a topic; 0 if it would ask now."""
        return math.inf

    def load(self, topic: str) -> object:
        """Ask a registry for what `encode` needs for a topic. It may block.

        Raises
        ------
        SchemaRegistryError
            The registry refuses, or cannot be reached.
        """
        return None

    def decode(self, topic: str, headers: Headers, data: bytes) -> T:
        """Return the value of bytes. It asks nothing that `fetch` was called for. Any exception is a fault of
        the value.
        """
        raise NotImplementedError

    def unknown(self, headers: Headers, data: bytes) -> Hashable | None:
        """Return what `fetch` must ask a registry for before these bytes can be decoded; None if nothing."""
        return None

    def fetch(self, topic: str, unknown: Hashable) -> None:
        """Ask for what `unknown` has returned. It may block.

        Raises
        ------
        SchemaRegistryError
            The registry refuses, or cannot be reached. That is no fault of a value.
        """


class Format(Generic[T]):
    """How values become bytes, and back. One object serves as `value_serializer` and `value_deserializer`, as
    `value=` of tables that are sent or read, and for keys alike, from any thread.

    Parameters
    ----------
    columns : str, sequence of str, or None
        Of a table that is sent: see ColumnSerializer.
    on_error : "raise", "null", "column" or Callable
        Of a column that is read: see ColumnDeserializer. Records that are read one by one follow the
        consumer's on.deserialization.error.
    """

    def __init__(self, *, columns: str | Iterable[str] | None = None, on_error: Errors = "raise") -> None:
        self._columns = columns
        self._on_error = on_error
        self._column_deserializers: dict[tuple[str | None, Part], ColumnDeserializer] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_column_deserializers": {}}

    def bind(self, part: Part) -> Codec[T]:
        """Return the format for keys or for values, a record at a time."""
        raise NotImplementedError

    def load(self, topics: Iterable[str], part: Part = "value", *, versions: Versions = "latest") -> None:
        """Ask a registry for the schemas of these topics, so that later calls do not wait for it.

        Parameters
        ----------
        versions : "latest" or "all"
            "latest": what is written. "all": also each version of the subject, so that no read asks for it.

        Raises
        ------
        SchemaRegistryError
            A schema is missing, or the registry cannot be reached.
        ValueError
            A version is of another kind, or invalid.
        """

    @final
    async def aload(
        self, topics: Iterable[str], part: Part = "value", *, versions: Versions = "latest"
    ) -> None:
        """Do what `load` does on another thread, while the event loop goes on."""
        import asyncio  # programs with threads alone need none of it

        await asyncio.to_thread(self.load, list(topics), part, versions=versions)

    def column_serializer(self, topic: str | None, part: Part) -> ColumnSerializer:
        """Return the format for a table that is sent to a topic; None if its rows name their topics."""
        raise NotImplementedError

    @final
    def column_deserializer(self, topic: str | None, part: Part) -> ColumnDeserializer:
        """Return the format for tables that are read from a topic; None if it is not known, or there are
        several. The same arguments return the same object, which learns its type once.
        """
        made = self._column_deserializers.get((topic, part))
        if made is None:
            made = self.new_column_deserializer(topic, part)
        return self._column_deserializers.setdefault((topic, part), made)

    def new_column_deserializer(self, topic: str | None, part: Part) -> ColumnDeserializer:
        """Return what `column_deserializer` does, anew."""
        raise NotImplementedError

    @property
    def reads_columns(self) -> bool:
        """True if it has a form for tables that are read, which a subclass may lack."""
        return type(self).new_column_deserializer is not Format.new_column_deserializer


class FunctionCodec(Codec[T]):
    """A codec of two functions.

    Attributes
    ----------
    of_value, of_data : Callable
        Make bytes of a value, and a value of bytes.
    """

    def __init__(self, of_value: Callable[[T], bytes], of_data: Callable[[bytes], T]) -> None:
        self.of_value = of_value
        self.of_data = of_data

    def encode(self, topic: str, headers: Headers, value: T) -> bytes:
        return self.of_value(value)

    def decode(self, topic: str, headers: Headers, data: bytes) -> T:
        return self.of_data(data)
