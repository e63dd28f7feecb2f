"""Numbers, text, UUIDs and bytes, in the formats of Java's serializers."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kbatch.formats.base import Codec, Format, FunctionCodec
from kbatch.typed import Part, T

if TYPE_CHECKING:
    import pyarrow as pa

    from kbatch.formats.reading.base import ColumnDeserializer, Errors
    from kbatch.formats.writing.base import ColumnSerializer


class _Plain(Format[T]):
    """A format without options.

    Parameters
    ----------
    column : str or None
        That of a table that is sent, which needs its name.
    on_error : see Format
    """

    def __init__(self, column: str | None = None, *, on_error: Errors = "raise") -> None:
        super().__init__(columns=column, on_error=on_error)

    def bind(self, part: Part) -> Codec[T]:
        return FunctionCodec(self._encode, self._decode)

    def _encode(self, value: Any) -> bytes:
        raise NotImplementedError

    def _decode(self, data: bytes) -> Any:
        raise NotImplementedError

    def column_serializer(self, topic: str | None, part: Part) -> ColumnSerializer:
        from kbatch.formats import writing

        if self._columns is None:
            name = type(self).__name__
            raise TypeError(f"{name}() needs the name of the column to send: {part}={name}(column)")
        made: Callable[..., ColumnSerializer] = getattr(writing, type(self).__name__)
        return made(self._columns)

    def new_column_deserializer(self, topic: str | None, part: Part) -> ColumnDeserializer:
        from kbatch.formats import reading

        made: Callable[..., ColumnDeserializer] = getattr(reading, type(self).__name__)
        return made(self._on_error)


class _Binary(_Plain[T]):
    """A format whose columns may be of several Arrow types."""

    def __init__(
        self, column: str | None = None, *, type: pa.DataType | None = None, on_error: Errors = "raise"
    ) -> None:
        super().__init__(column, on_error=on_error)
        self._type = type


class Bytes(_Binary[bytes]):
    """Bytes, unchanged (ByteArraySerializer, ByteArrayDeserializer).

    Parameters
    ----------
    type : pyarrow.DataType or None
        Of columns that are read: binary (the default), large_binary or binary_view.
    """

    def _encode(self, value: Any) -> bytes:
        return bytes(memoryview(value))

    def _decode(self, data: bytes) -> bytes:
        return data

    def new_column_deserializer(self, topic: str | None, part: Part) -> ColumnDeserializer:
        from kbatch.formats import reading

        return reading.Bytes(self._type)


class Utf8(_Binary[str]):
    """Text as UTF-8 (StringSerializer, StringDeserializer). Bytes that are not UTF-8 are an error; Java
    replaces them silently.

    Parameters
    ----------
    column : str or None
        That of a table that is sent, which needs its name.
    type : pyarrow.DataType or None
        Of columns that are read: string (the default), large_string or string_view.
    """

    def _encode(self, value: Any) -> bytes:
        if not isinstance(value, str):
            raise TypeError(f"Utf8 needs a str, got {type(value).__name__}")
        return value.encode()

    def _decode(self, data: bytes) -> str:
        return data.decode()

    def new_column_deserializer(self, topic: str | None, part: Part) -> ColumnDeserializer:
        from kbatch.formats import reading

        return reading.Utf8(self._on_error, data_type=self._type)


class _Number(_Plain[T]):
    _form = ""
    _kinds: tuple[type, ...] = (int,)

    def __init__(self, column: str | None = None, *, on_error: Errors = "raise") -> None:
        super().__init__(column, on_error=on_error)
        self._struct = struct.Struct(self._form)

    def __getstate__(self) -> dict[str, Any]:
        return {name: each for name, each in super().__getstate__().items() if name != "_struct"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._struct = struct.Struct(self._form)

    def _encode(self, value: Any) -> bytes:
        if not isinstance(value, self._kinds) or isinstance(value, bool):
            raise TypeError(
                f"{type(self).__name__} needs {self._kinds[-1].__name__}, got {type(value).__name__}"
            )
        try:
            return self._struct.pack(value)
        except (struct.error, OverflowError) as error:
            raise ValueError(f"{value} is beyond {type(self).__name__}") from error

    def _decode(self, data: bytes) -> Any:
        if len(data) != self._struct.size:
            raise ValueError(f"{type(self).__name__} has {self._struct.size} bytes, it has {len(data)}")
        return self._struct.unpack(data)[0]


class Int16(_Number[int]):
    """Integers of two bytes, big-endian (ShortSerializer, ShortDeserializer)."""

    _form = ">h"


class Int32(_Number[int]):
    """Integers of four bytes, big-endian (IntegerSerializer, IntegerDeserializer)."""

    _form = ">i"


class Int64(_Number[int]):
    """Integers of eight bytes, big-endian (LongSerializer, LongDeserializer)."""

    _form = ">q"


class Float32(_Number[float]):
    """IEEE numbers of four bytes, big-endian (FloatSerializer, FloatDeserializer)."""

    _form = ">f"
    _kinds = (int, float)


class Float64(_Number[float]):
    """IEEE numbers of eight bytes, big-endian (DoubleSerializer, DoubleDeserializer)."""

    _form = ">d"
    _kinds = (int, float)


class Boolean(_Plain[bool]):
    """A byte, 0 or 1 (BooleanSerializer, BooleanDeserializer)."""

    def _encode(self, value: Any) -> bytes:
        if not isinstance(value, bool):
            raise TypeError(f"Boolean needs a bool, got {type(value).__name__}")
        return b"\1" if value else b"\0"

    def _decode(self, data: bytes) -> bool:
        if data not in (b"\0", b"\1"):
            raise ValueError("a Boolean is a byte, 0 or 1")
        return data == b"\1"


class Uuid(_Plain[uuid.UUID]):
    """The text of a UUID, with hyphens (UUIDSerializer, UUIDDeserializer)."""

    def _encode(self, value: Any) -> bytes:
        if not isinstance(value, uuid.UUID):
            raise TypeError(f"Uuid needs a uuid.UUID, got {type(value).__name__}")
        return str(value).encode()

    def _decode(self, data: bytes) -> uuid.UUID:
        if len(data) != 36:
            raise ValueError("it is not the text of a UUID")
        return uuid.UUID(data.decode())


NAMES: dict[str, Callable[[], Format[Any]]] = {
    "bytes": Bytes,
    "utf8": Utf8,
    "int16": Int16,
    "int32": Int32,
    "int64": Int64,
    "float32": Float32,
    "float64": Float64,
    "boolean": Boolean,
    "uuid": Uuid,
}
# As functions, for `value_serializer=` and to call.
utf8, int32, int64 = (each()._encode for each in (Utf8, Int32, Int64))
