"""Protobuf messages of columns, by Google's protobuf (the extra `protobuf`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kbatch.formats.protobuf_files import (
    WRAPPERS,
    descriptor_in,
    descriptor_of,
    files_of,
    is_repeated,
    message_at,
    need_protobuf,
    pool_of,
    registered_file,
)
from kbatch.formats.protobuf_records import enum_name
from kbatch.formats.reading.base import Errors, ObjectDeserializer, Spans, Where, reason_of, salvaged
from kbatch.formats.reading.framing import framed, newest
from kbatch.formats.schemas import SchemaOfRecords

if TYPE_CHECKING:
    from kbatch.schema_registry import SchemaRegistry

# Of google.protobuf's field types, by their numbers in FieldDescriptorProto.
_SCALARS: Mapping[int, pa.DataType] = {
    1: pa.float64(),
    2: pa.float32(),
    3: pa.int64(),
    4: pa.uint64(),
    5: pa.int32(),
    6: pa.uint64(),
    7: pa.uint32(),
    8: pa.bool_(),
    9: pa.string(),
    12: pa.binary(),
    13: pa.uint32(),
    14: pa.string(),
    15: pa.int32(),
    16: pa.int64(),
    17: pa.int32(),
    18: pa.int64(),
}
_ENUM = 14
_SECONDS = 10**9
_JSON = frozenset(f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue"))
# Makes of a value of a field what pyarrow takes; None if that is the same.
Convert = Callable[[Any], Any] | None


class Protobuf(ObjectDeserializer):
    """Protobuf messages, with or without the header of Confluent's wire format.

    Messages become structs, repeated fields lists, maps maps, enums their names (the number of an unknown
    one). google.protobuf.Timestamp and Duration become timestamps and durations in nanoseconds, wrappers
    their values, and Struct, Value and ListValue JSON text. A field that knows whether it is set is null if
    it is not; any other has its default.

    Parameters
    ----------
    message : class of google.protobuf.message.Message, or its descriptor, or None
        What the values are read as. None: the newest type among the first values, by the registry.
    errors : "raise", "null", "column" or Callable
        See ColumnDeserializer. An id that the registry does not know, and a message of another type, count as
        errors of the value.
    registry : SchemaRegistry or None
        Has the writers' schemas. It must offer the format `serialized`, as Confluent's does. None reads all
        values as `message`, whatever their header says.

    Raises
    ------
    ImportError
        protobuf is not installed.
    TypeError
        `message` is not such a class.
    ValueError
        The message contains itself, which no Arrow type can.
    """

    def __init__(
        self, message: Any = None, errors: Errors = "raise", *, registry: SchemaRegistry | None = None
    ) -> None:
        super().__init__(errors)
        need_protobuf()
        if message is None and registry is None:
            raise TypeError("Protobuf needs the messages' class, or a registry that has their schemas")
        self._schemas = None if registry is None else SchemaOfRecords(registry, registered_file, "serialized")
        self._name = ""
        if message is not None:
            self._read_as(descriptor_of(message))

    @classmethod
    def from_descriptor_set(
        cls, data: bytes, message: str, errors: Errors = "raise", *, registry: SchemaRegistry | None = None
    ) -> Protobuf:
        """Return one for a message that is known by its descriptor only, without a class made by protoc.

        Parameters
        ----------
        data : bytes
            A FileDescriptorSet, as `protoc --include_imports --descriptor_set_out=FILE` writes it.
        message : str
            The full name of the message, such as "shop.Order".
        errors, registry
            Parameters of Protobuf.

        Raises
        ------
        ImportError
            protobuf is not installed.
        ValueError
            The bytes are no such set, a file that it imports is missing, or it has no such message.
        """
        return cls(descriptor_in(data, message), errors, registry=registry)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a pickle has: descriptors belong to their process, and go as their files."""
        state = super().__getstate__()
        if self._name:
            state["_descriptor"] = files_of(self._descriptor.file)
        return {name: value for name, value in state.items() if name not in ("_parse", "_convert")}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        super().__setstate__(state)
        if self._name:
            self._read_as(pool_of(state["_descriptor"]).FindMessageTypeByName(self._name))

    def _read_as(self, descriptor: Any) -> pa.DataType:
        from google.protobuf.message_factory import GetMessageClass

        kind, self._convert = _message(descriptor, ())
        self._parse = GetMessageClass(descriptor).FromString
        self._descriptor = descriptor
        self._name = descriptor.full_name
        self.data_type = kind
        return kind

    def inferred(self, sample: pa.Array, where: Where) -> pa.DataType | None:
        assert self._schemas is not None  # without a registry the type is known
        for written, path in newest(framed(Spans(sample), where, has_path=True).groups):
            descriptor = self._descriptor_of(written, path)
            if not isinstance(descriptor, str):
                return self._read_as(descriptor)
        return None

    def unreadable(self, column: pa.Array, where: Where) -> Mapping[int, str]:
        groups, _, faults = framed(Spans(column), where, has_path=True)
        for (written, path), rows in groups.items():
            if isinstance(reason := self._descriptor_of(written, path), str):
                faults.update(dict.fromkeys(rows.tolist(), reason))
        return faults

    def _descriptor_of(self, written: int | str, path: tuple[int, ...]) -> Any:
        """Return the descriptor of a message, or why there is none, as text."""
        assert self._schemas is not None  # without a registry the type is known
        file = self._schemas.of(written)
        if isinstance(file, str):
            return file
        descriptor = message_at(file, path)
        return f"its schema {written} has {descriptor}" if isinstance(descriptor, str) else descriptor

    def decode_piece(self, column: pa.Array, where: Where) -> tuple[pa.Array, Mapping[int, str]]:
        spans = Spans(column)
        values: list[Any] = [None] * len(column)
        is_good, starts, faults = self._messages(spans, where)
        parse, convert = self._parse, self._convert
        data = spans.view
        rows = np.flatnonzero(is_good)
        for row, first, last in zip(
            rows.tolist(), starts[rows].tolist(), spans.ends[rows].tolist(), strict=True
        ):
            try:
                values[row] = convert(parse(bytes(data[first:last])))
            except Exception as error:  # protobuf's DecodeError is no ValueError
                faults[row] = f"it is no message {self._name}: {reason_of(error)}"
        kind = self.data_type
        array, more = salvaged(lambda first, last: pa.array(values[first:last], kind), len(values), kind)
        return array, faults | more

    def _messages(self, spans: Spans, where: Where) -> tuple[np.ndarray, np.ndarray, dict[int, str]]:
        """Return which values are messages to read, where they begin, and why the others are not."""
        first_bytes = spans.first_bytes()
        # No message begins with these bytes: its fields have numbers from 1 on.
        is_bare = spans.is_valid & (first_bytes > 1)
        if self._schemas is None and where.headers is None and is_bare.sum() == spans.is_valid.sum():
            return spans.is_valid, spans.starts, {}
        groups, starts, faults = framed(spans, where, has_path=True)
        is_good = spans.is_valid.copy()
        if self._schemas is None:
            for row in [row for row in faults if first_bytes[row] > 1]:
                del faults[row]
        else:
            for (written, path), rows in groups.items():
                if (reason := self._refusal(written, path)) is not None:
                    faults.update(dict.fromkeys(rows.tolist(), reason))
        is_good[list(faults)] = False
        return is_good, starts, faults

    def _refusal(self, written: int | str, path: tuple[int, ...]) -> str | None:
        """Return why messages of a schema cannot be read; None if they can."""
        descriptor = self._descriptor_of(written, path)
        if isinstance(descriptor, str):
            return descriptor
        if descriptor.full_name != self._name:
            return f"it is a message {descriptor.full_name}, not {self._name}"
        return None


# Types


def _message(descriptor: Any, inside: tuple[str, ...]) -> tuple[pa.DataType, Callable[[Any], Any]]:
    """Return the type of messages, and what makes a tuple of the fields of one."""
    if descriptor.full_name in inside:
        raise ValueError(f"the message {descriptor.full_name} contains itself, which no Arrow type can")
    inside = (*inside, descriptor.full_name)
    fields, defaults = [], []
    columns: dict[int, tuple[int, Convert]] = {}
    for index, field in enumerate(descriptor.fields):
        kind, convert, default = _field(field, inside)
        fields.append(pa.field(field.name, kind))
        defaults.append(default)
        columns[field.number] = index, convert

    def row(message: Any) -> tuple[Any, ...]:
        values = list(defaults)
        for field, value in message.ListFields():
            if (found := columns.get(field.number)) is not None:  # no extension
                index, convert = found
                values[index] = value if convert is None else convert(value)
        return tuple(values)

    return pa.struct(fields), row


def _field(field: Any, inside: tuple[str, ...]) -> tuple[pa.DataType, Convert, Any]:
    """Return the type of a field, the conversion of its value, and what a message without it has."""
    if not is_repeated(field):
        kind, convert = _value(field, inside)
        default = None if field.has_presence else field.default_value
        return kind, convert, default if default is None or convert is None else convert(default)
    entry = field.message_type
    if entry is None or not entry.GetOptions().map_entry:
        kind, convert = _value(field, inside)
        return pa.list_(kind), _each(convert), []
    key, _ = _value(entry.fields_by_name["key"], inside)
    kind, convert = _value(entry.fields_by_name["value"], inside)
    return pa.map_(key, kind), _each_item(convert), []


def _each(convert: Convert) -> Convert:
    return list if convert is None else lambda values: list(map(convert, values))


def _each_item(convert: Convert) -> Convert:
    if convert is None:
        return lambda values: list(values.items())
    return lambda values: [(key, convert(value)) for key, value in values.items()]


def _value(field: Any, inside: tuple[str, ...]) -> tuple[pa.DataType, Convert]:
    """Return the type of one value of a field, and its conversion."""
    message = field.message_type
    if message is None:
        return _SCALARS[field.type], enum_name(field.enum_type) if field.type == _ENUM else None
    name = message.full_name
    if name in ("google.protobuf.Timestamp", "google.protobuf.Duration"):
        kind = pa.timestamp("ns", "UTC") if name.endswith("Timestamp") else pa.duration("ns")
        return kind, lambda value: value.seconds * _SECONDS + value.nanos
    if name in WRAPPERS:
        return _SCALARS[message.fields_by_name["value"].type], lambda value: value.value
    if name in _JSON:
        return pa.string(), _json_text
    return _message(message, inside)


def _json_text(message: Any) -> str:
    from google.protobuf.json_format import MessageToJson

    return str(MessageToJson(message, indent=None))
