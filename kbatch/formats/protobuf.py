"""Protobuf: records and columns, with a registry and without (the extra `protobuf`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kbatch.formats.framing import FIRST_MESSAGE, Written, frame_of, path_bytes
from kbatch.formats.models import FromDict, ToDict, from_dict_of
from kbatch.formats.protobuf_files import (
    class_of,
    descriptor_in,
    descriptor_of,
    file_text,
    message_at,
    need_protobuf,
    packed_class,
    path_of,
    refusal,
    registered_file,
    registered_references,
    unpacked_class,
)
from kbatch.formats.registered import LATEST_SECONDS, IdIn, Read, RegisteredFormat, Write
from kbatch.formats.strategies import Strategy
from kbatch.schema_registry import Schema
from kbatch.typed import Part, T

if TYPE_CHECKING:
    from kbatch.formats.reading.base import ColumnDeserializer, Errors
    from kbatch.formats.reading.protobuf_values import TimeUnit
    from kbatch.formats.writing.base import ColumnSerializer
    from kbatch.schema_registry import SchemaRegistry


TIME_UNITS = ("s", "ms", "us", "ns")


class Protobuf(RegisteredFormat[T]):
    """Protobuf messages: with a registry in Confluent's wire format (0, the schema's id, the position of the
    message in its file, the message), without it the messages alone.

    What is sent is a message, a dict, or an object of a dataclass, NamedTuple, attrs, msgspec or pydantic
    class. Aware datetimes and timedeltas become google.protobuf.Timestamp and Duration, plain values its
    wrappers, dicts and lists its Struct and ListValue; None leaves a field unset. A naive datetime, an
    integer that a double does not have and a field that the message lacks are errors.

    Read, a value is a message: of the class that is given, else of the schema that wrote it. `model=dict`
    gives a dict instead, and another `model` its objects: times become datetimes in UTC, without digits below
    the microsecond, enums their names, wrappers their values; a field that knows whether it is set is None if
    it is not.

    Parameters
    ----------
    message : class of google.protobuf.message.Message, or its descriptor, or None
        What is written, and what values are read as: a message of another type is an error. None: the first
        message of the subject's latest schema is written; it needs a registry.
    registry : SchemaRegistry or None
        One that does not offer the format `serialized`, as Confluent's does, needs `message`; that a value is
        of it is then known by the position in its file only. None: values are read with a frame or without,
        whatever the frame says.
    id, subject, version, metadata, register, normalize, latest_ttl, verify_subject, id_in, columns, on_error
        See RegisteredFormat.
        Files that the message's file imports have their names as subjects.
    model : class or None
        dict, a dataclass, NamedTuple, or class of attrs, msgspec or pydantic.
    times : "s", "ms", "us" or "ns"
        Of columns that are read: the unit of Timestamp and Duration. Digits below it are cut. A time that it
        does not have is an error of the value; nanoseconds have the years 1678 to 2261.
    to_dict, from_dict : Callable or None
        Make a dict or a message of a value, and a value of the dict that was read, for other classes.

    Raises
    ------
    ImportError
        protobuf is not installed.
    TypeError
        `message` or `model` is unsuitable, or neither message nor registry is given.
    """

    schema_type = "PROTOBUF"
    registry_format = "serialized"
    has_path = True

    def __init__(
        self,
        message: Any = None,
        *,
        registry: SchemaRegistry | None = None,
        id: int | None = None,
        subject: str | Strategy = "topic",
        version: int | str = "latest",
        metadata: Mapping[str, str] | None = None,
        register: bool = False,
        normalize: bool = False,
        latest_ttl: float = LATEST_SECONDS,
        verify_subject: bool = False,
        id_in: IdIn = "prefix",
        model: type[T] | None = None,
        to_dict: ToDict | None = None,
        from_dict: FromDict | None = None,
        times: TimeUnit = "ns",
        columns: str | Iterable[str] | None = None,
        on_error: Errors = "raise",
    ) -> None:
        need_protobuf()
        if times not in TIME_UNITS:
            raise ValueError(f"times must be one of {', '.join(TIME_UNITS)}, got {times!r}")
        if message is None and registry is None:
            raise TypeError("Protobuf needs the messages' class, or registry= that has the schemas")
        super().__init__(
            None,
            registry=registry,
            id=id,
            subject=subject,
            version=version,
            metadata=metadata,
            register=register,
            normalize=normalize,
            latest_ttl=latest_ttl,
            verify_subject=verify_subject,
            id_in=id_in,
            columns=columns,
            on_error=on_error,
        )
        self._read_as(message)
        self._times = times
        self._to_dict = to_dict
        self._from_dict = from_dict
        self._model: Any = model
        if model not in (None, dict) and from_dict is None:
            from_dict_of(self._model)  # TypeError for other classes

    @classmethod
    def from_descriptor_set(cls, data: bytes, message: str, **options: Any) -> Protobuf[T]:
        """Return one for a message that is known by its descriptor only, without a class made by protoc.

        Parameters
        ----------
        data : bytes
            A FileDescriptorSet, as `protoc --include_imports --descriptor_set_out=FILE` writes it.
        message : str
            The full name of the message, such as "shop.Order".
        options
            Parameters of Protobuf.

        Raises
        ------
        ImportError
            protobuf is not installed.
        ValueError
            The bytes are no such set, a file that it imports is missing, or it has no such message.
        """
        return cls(descriptor_in(data, message), **options)

    def _read_as(self, message: Any) -> None:
        self.schema = None if message is None else descriptor_of(message)
        self._class = None if message is None else class_of(message)

    def __getstate__(self) -> dict[str, Any]:
        state = {**super().__getstate__(), "_class": None}
        return state if self._class is None else {**state, "_message": packed_class(self._class)}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        super().__setstate__(state)
        packed = self.__dict__.pop("_message", None)
        self._read_as(None if packed is None else unpacked_class(packed))

    # Schemas

    @staticmethod
    def parse(schema: Schema, registry: SchemaRegistry | None) -> Any:
        assert registry is not None  # without it there is a class
        return registered_file(schema, registry)

    @property
    def record_name(self) -> str:
        return "" if self.schema is None else str(self.schema.full_name)

    def path_in(self, schema: Any) -> bytes:
        return path_bytes(path_of(schema))

    def asked(self, subject: str, registry: SchemaRegistry) -> tuple[Any, int | None]:
        schema, number = super().asked(subject, registry)
        if self.schema is not None:
            return schema, number
        message = message_at(schema, FIRST_MESSAGE)
        if isinstance(message, str):
            raise ValueError(f"the schema of {subject or number} has {message}")
        return message, number

    def own_schema(self, registry: SchemaRegistry, *, register: bool) -> Schema:
        file = self.schema.file
        references = registered_references(registry, file, register)
        return Schema(file_text(file), self.schema_type, tuple(references))

    @property
    def has_schema(self) -> bool:
        return self.schema is not None

    # Values

    def new_write(self, schema: Any, prefix: bytes) -> Write:
        from kbatch.formats.protobuf_records import maker_of

        message = self._class or class_of(schema)
        make, to_dict = maker_of(message), self._to_dict
        # of the class: a message looks for a field of that name first, which takes half as long again
        serialize = message.SerializeToString

        def write(value: Any) -> bytes:
            if value.__class__ is not message:
                value = make(value if to_dict is None else to_dict(value))
            return prefix + serialize(value)  # type: ignore[no-any-return]

        return write

    def new_read(self, written: Written | None) -> Read:
        message = self._class if written is None or not self.asks else self._class_of_writer(written)
        assert message is not None  # there is a class, or a registry
        parse, name = message.FromString, message.DESCRIPTOR.full_name
        convert = self._conversion(message.DESCRIPTOR)

        def read(data: bytes, start: int) -> Any:
            try:
                return parse(data[start:])
            except Exception as error:  # protobuf's DecodeError is no ValueError
                raise ValueError(f"it is no message {name}: {error}") from error

        def read_after_frame(data: bytes, start: int) -> Any:
            if data[:1] in (b"\0", b"\1"):  # no message begins so
                start = len(frame_of(data, has_path=True))
            return read(data, start)

        read_message = read_after_frame if written is None else read
        if convert is None:
            return read_message

        def read_value(data: bytes, start: int) -> Any:
            found = read_message(data, start)
            try:
                return convert(found)
            except OverflowError as error:
                raise ValueError(f"Python lacks a time of the message {name}: {error}") from error

        return read_value

    def _class_of_writer(self, written: Written) -> Any:
        """Return what reads messages of a schema. Raise ValueError if they are of another type."""
        reason = None
        if self.schema is not None:
            reason = refusal(self._schemas.of(written[0]), written, self.schema)
        else:
            found = message_at(self.writer_of(written), written[1])
            if not isinstance(found, str):
                return class_of(found)
            reason = f"its schema {written[0]} has {found}"
        if reason is not None:
            raise ValueError(reason)
        return self._class

    def _conversion(self, descriptor: Any) -> Any:
        """Return what makes a value of a message; None if it stays one."""
        from kbatch.formats.protobuf_records import as_values

        if self._model is None and self._from_dict is None:
            return None
        values = as_values(descriptor)
        make = self._from_dict or (None if self._model is dict else from_dict_of(self._model))
        return values if make is None else lambda message: make(values(message))

    # Columns

    def new_column_serializer(self, schema: Any, prefix: bytes) -> ColumnSerializer:
        from kbatch.formats.writing.protobuf_rows import ProtobufColumns

        return ProtobufColumns(self._class or class_of(schema), prefix, self._columns)

    def new_column_deserializer(self, topic: str | None, part: Part) -> ColumnDeserializer:
        from kbatch.formats.reading.protobuf_values import ProtobufColumns

        schemas = self.schemas_for(topic, part)
        return ProtobufColumns(self.schema, self._on_error, schemas=schemas, times=self._times)
