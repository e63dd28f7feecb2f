"""Formats whose values name their schema by an id of a registry (Confluent's wire format).

Writing, the schema's id is looked up once a topic. Reading, `unknown` says which id has yet to be asked for,
so that whoever takes records can ask before a value is used, and elsewhere than on an event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kbatch.errors import IllegalStateError, SchemaRegistryError
from kbatch.formats.base import Codec, Format, Headers, Part, T
from kbatch.formats.strategies import STRATEGIES, Strategy, strategy_of
from kbatch.schema_registry import MISSING_SECONDS

if TYPE_CHECKING:
    from kbatch.column_deserializers.base import Errors
    from kbatch.schema_registry import SchemaRegistry

ID_BYTES, GUID_BYTES = 5, 17
ID_HEADERS: Mapping[Part, str] = {"key": "__key_schema_id", "value": "__value_schema_id"}
# What makes bytes of a value, and a value of what follows the frame.
Write = Callable[[Any], bytes]
Read = Callable[[bytes, int], Any]


class RegisteredFormat(Format[T]):
    """The base: override `_new_write` and `_new_read`.

    Parameters
    ----------
    registry : SchemaRegistry or None
        None: values have no frame.
    subject : str or Callable
        "topic" (the default), "record", "topic_record", a subject, or a function of (topic, "key" or "value",
        the record's full name) that returns one.
    register : bool
        Register a schema that the subject does not have yet, instead of raising.
    columns, on_error : see Format
    """

    def __init__(
        self,
        *,
        registry: SchemaRegistry | None,
        subject: str | Strategy,
        register: bool,
        columns: str | Iterable[str] | None,
        on_error: Errors,
    ) -> None:
        super().__init__(columns=columns, on_error=on_error)
        self._registry = registry
        self._subject = subject
        self._strategy = strategy_of(subject)
        self._register = register
        self._codecs: dict[Part, RegisteredCodec[T]] = {}

    def __getstate__(self) -> dict[str, Any]:
        left_out = ("_codecs", "_strategy", "column_deserializer")
        return {name: each for name, each in self.__dict__.items() if name not in left_out}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._strategy = strategy_of(self._subject)
        self._codecs = {}

    def bind(self, part: Part) -> Codec[T]:
        return self._codecs.setdefault(part, RegisteredCodec(self, part))

    def load(self, topics: Iterable[str], part: Part = "value") -> None:
        codec = self.bind(part)
        assert isinstance(codec, RegisteredCodec)
        for topic in topics:
            codec.load(topic)

    def subject_of(self, topic: str | None, part: Part, record: str) -> str:
        """Return the subject for a topic. Raise TypeError if it depends on the topic, and rows name those."""
        if topic is None and self.fixed_subject is None and self._subject != "record":
            raise TypeError("rows name their topics, so subject= must name the subject, or be 'record'")
        return self._strategy(topic or "", part, record)

    @property
    def fixed_subject(self) -> str | None:
        """The subject, if it does not depend on topic or schema."""
        is_name = isinstance(self._subject, str) and self._subject not in STRATEGIES
        return str(self._subject) if is_name else None

    def new_write(self, topic: str, part: Part) -> Write:
        """Return what writes values for a topic. It may ask the registry."""
        raise NotImplementedError

    def new_read(self, written: int | str | None) -> Read:
        """Return what reads values that this schema wrote; None for values without a frame. It may ask the
        registry. Raise ValueError if its values cannot be read.
        """
        raise NotImplementedError


class RegisteredCodec(Codec[T]):
    """The codec of a RegisteredFormat.

    Attributes
    ----------
    asks : bool
        False for values without a frame.
    """

    def __init__(self, format: RegisteredFormat[T], part: Part) -> None:
        self._format = format
        self._part = part
        self._header = ID_HEADERS[part]
        self.asks = format._registry is not None
        self._writes: dict[str, Write] = {}
        self._reads: dict[bytes | None, Read] = {}  # by what names a schema, None for values without it
        self._refused: dict[bytes | None, tuple[str, float]] = {}  # why it has no `Read`, and until when

    # Writing

    def encode(self, topic: str, headers: Headers, value: T) -> bytes:
        write = self._writes.get(topic)
        if write is None:
            write = self.load(topic)
        return write(value)

    def load(self, topic: str) -> Write:
        """Return what writes values for a topic, whose schema is asked for once."""
        return self._writes.setdefault(topic, self._format.new_write(topic, self._part))

    # Reading

    def decode(self, topic: str, headers: Headers, data: bytes) -> T:
        frame, start = self._frame(headers, data)
        read = self._reads.get(frame)
        if read is None:
            if frame not in self._refused:
                check_no_loop("the schema of a value")
                self.fetch(topic, frame)
            read = self._reads.get(frame)
        if read is None:
            raise ValueError(self._refused[frame][0])
        return read(data, start)  # type: ignore[no-any-return]

    def unknown(self, headers: Headers, data: bytes) -> Hashable | None:
        frame = data[:ID_BYTES]
        if frame in self._reads and not headers:
            return None
        try:
            found, _ = self._frame(headers, data)
        except ValueError:
            return None
        if found in self._reads or time.monotonic() < self._refused.get(found, ("", 0.0))[1]:
            return None
        return found

    def fetch(self, topic: str, unknown: Hashable) -> None:
        frame: Any = unknown
        try:
            self._reads[frame] = self._format.new_read(_written(frame))
        except SchemaRegistryError:
            raise
        except ValueError as error:
            self._refused[frame] = str(error), time.monotonic() + MISSING_SECONDS

    def _frame(self, headers: Headers, data: bytes) -> tuple[bytes | None, int]:
        """Return what names the schema, and where the value begins. Raise ValueError if nothing does."""
        if not self.asks:
            return None, 0
        for name, given in headers:
            if name == self._header and given is not None:
                return _checked(given), 0
        frame = _checked(data)
        return frame, len(frame)


def _checked(data: bytes) -> bytes:
    """Return the bytes that name a schema: 0 and an id, or 1 and a GUID."""
    size = {b"\0": ID_BYTES, b"\1": GUID_BYTES}.get(data[:1])
    if size is None:
        found = f"it begins with the byte {data[0]}" if data else "it is empty"
        raise ValueError(f"it has no schema id: {found}, instead of 0 or 1 (Confluent's wire format)")
    if len(data) < size:
        raise ValueError(f"its schema id is cut off: it has {len(data)} bytes")
    return bytes(data[:size])


def _written(frame: bytes | None) -> int | str | None:
    """Return the id or the GUID that a frame has."""
    if frame is None:
        return None
    if len(frame) == ID_BYTES:
        return int.from_bytes(frame[1:], "big")
    import uuid

    return str(uuid.UUID(bytes=frame[1:]))


def check_no_loop(what: str) -> None:
    """Raise IllegalStateError on an event loop, which a request would stop."""
    if asyncio._get_running_loop() is not None:
        raise IllegalStateError(
            f"{what} is not known yet, and asking the registry would stop the event loop: call "
            "`await asyncio.to_thread(format.load, [topic])` first"
        )
