"""Protobuf messages of columns, by Google's protobuf (the extra `protobuf`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from kbatch.formats.protobuf_files import WRAPPERS, files_of, is_repeated, message_at, pool_of, refusal
from kbatch.formats.protobuf_records import enum_name
from kbatch.formats.reading.base import Errors, ObjectDeserializer, Spans, Where, reason_of, salvaged
from kbatch.formats.reading.framing import framed, newest
from kbatch.formats.schemas import Schemas

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
TimeUnit = Literal["s", "ms", "us", "ns"]
# Of a second.
_UNITS: Mapping[TimeUnit, int] = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_JSON = frozenset(f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue"))
# Makes of a value of a field what pyarrow takes; None if that is the same.
Convert = Callable[[Any], Any] | None


class ProtobufColumns(ObjectDeserializer):
    """Protobuf messages, with or without the header of Confluent's wire format.

    Messages become structs, repeated fields lists, maps maps, enums their names (the number of an unknown
    one). google.protobuf.Timestamp and Duration become timestamps and durations, wrappers their values, and
    Struct, Value and ListValue JSON text. A field that knows whether it is set is null if it is not; any
    other has its default.

    Parameters
    ----------
    message : descriptor or None
        What the values are read as. None: the type of the newest schema among the first values, as the
        registry's latest schema has it.
    errors : "raise", "null", "column" or Callable
        See ColumnDeserializer. An id that the registry does not know, and a message of another type, count as
        errors of the value.
    schemas : Schemas or None
        Those of a registry. None reads all values as `message`, whatever names their schema.
    times : "s", "ms", "us" or "ns"
        The unit of Timestamp and Duration. Digits below it are cut; a time that it does not have is an error
        of the value: in nanoseconds, those before 1677 and after 2262.

    Raises
    ------
    ValueError
        The message contains itself, which no Arrow type can.
    """

    def __init__(
        self,
        message: Any,
        errors: Errors = "raise",
        *,
        schemas: Schemas[Any] | None = None,
        times: TimeUnit = "ns",
    ) -> None:
        super().__init__(errors)
        self._schemas = schemas
        self._latest: Any = None  # the registry's file
        self._times = times
        self._name = ""
        if message is not None:
            self._read_as(message)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a pickle has: descriptors belong to their process, and go as their files."""
        state = super().__getstate__()
        if self._name:
            state["_descriptor"] = files_of(self._descriptor.file)
        left_out = ("_parse", "_convert", "_latest")
        return {name: value for name, value in state.items() if name not in left_out}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        super().__setstate__(state)
        self._latest = None
        if self._name:
            self._read_as(pool_of(state["_descriptor"]).FindMessageTypeByName(self._name))

    def _read_as(self, descriptor: Any) -> pa.DataType:
        from google.protobuf.message_factory import GetMessageClass

        kind, self._convert = _Types(self._times).message(descriptor, ())
        self._parse = GetMessageClass(descriptor).FromString
        self._descriptor = descriptor
        self._name = descriptor.full_name
        self.data_type = kind
        return kind

    def asked(self, topic: str | None) -> pa.DataType | None:
        assert self._schemas is not None  # without a registry the type is known
        self._latest = self._schemas.latest(topic)
        if self._latest is None:
            return None
        messages = list(self._latest.message_types_by_name.values())
        return self._read_as(messages[0]) if len(messages) == 1 and not messages[0].nested_types else None

    def inferred(self, sample: pa.Array, where: Where) -> pa.DataType | None:
        for written, path in newest(framed(Spans(sample), where, has_path=True).groups):
            descriptor = self._descriptor_of(written, path)
            if not isinstance(descriptor, str):
                return self._read_as(self._newer(descriptor))
        return None

    def _newer(self, descriptor: Any) -> Any:
        """Return a message as the registry's latest schema has it, if it has one of that name."""
        if self._latest is None:
            return descriptor
        try:
            return self._latest.pool.FindMessageTypeByName(descriptor.full_name)
        except KeyError:
            return descriptor

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
        assert self._schemas is not None  # else nothing is refused
        return refusal(self._schemas.of(written), (written, path), self._descriptor)


# Types


class _Types:
    """The types of messages, and what makes their values.

    Parameters
    ----------
    unit : "s", "ms", "us" or "ns"
        Of times and durations.
    """

    def __init__(self, unit: TimeUnit) -> None:
        self._unit = unit

    def message(self, descriptor: Any, inside: tuple[str, ...]) -> tuple[pa.DataType, Callable[[Any], Any]]:
        """Return the type of messages, and what makes a tuple of the fields of one."""
        if descriptor.full_name in inside:
            raise ValueError(f"the message {descriptor.full_name} contains itself, which no Arrow type can")
        inside = (*inside, descriptor.full_name)
        fields, defaults = [], []
        columns: dict[int, tuple[int, Convert]] = {}
        for index, field in enumerate(descriptor.fields):
            kind, convert, default = self._field(field, inside)
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

    def _field(self, field: Any, inside: tuple[str, ...]) -> tuple[pa.DataType, Convert, Any]:
        """Return the type of a field, the conversion of its value, and what a message without it has."""
        if not is_repeated(field):
            kind, convert = self._value(field, inside)
            default = None if field.has_presence else field.default_value
            return kind, convert, default if default is None or convert is None else convert(default)
        entry = field.message_type
        if entry is None or not entry.GetOptions().map_entry:
            kind, convert = self._value(field, inside)
            return pa.list_(kind), _each(convert), []
        key, _ = self._value(entry.fields_by_name["key"], inside)
        kind, convert = self._value(entry.fields_by_name["value"], inside)
        return pa.map_(key, kind), _each_item(convert), []

    def _value(self, field: Any, inside: tuple[str, ...]) -> tuple[pa.DataType, Convert]:
        """Return the type of one value of a field, and its conversion."""
        message = field.message_type
        if message is None:
            return _SCALARS[field.type], enum_name(field.enum_type) if field.type == _ENUM else None
        name = message.full_name
        if name == "google.protobuf.Timestamp":
            return pa.timestamp(self._unit, "UTC"), _units(self._unit)
        if name == "google.protobuf.Duration":
            return pa.duration(self._unit), _units(self._unit)
        if name in WRAPPERS:
            return _SCALARS[message.fields_by_name["value"].type], lambda value: value.value
        if name in _JSON:
            return pa.string(), _json_text
        return self.message(message, inside)


def _units(unit: TimeUnit) -> Callable[[Any], int]:
    """Return what makes the units of a Timestamp or Duration."""
    of_second = _UNITS[unit]
    nanoseconds = _UNITS["ns"] // of_second

    def units(value: Any) -> int:
        nanos = value.nanos  # of a Duration it has the sign of the seconds
        rest = nanos // nanoseconds if nanos >= 0 else -(-nanos // nanoseconds)
        found: int = value.seconds * of_second + rest
        if unit == "ns" and not -(2**63) <= found < 2**63:
            raise ValueError(f"{value.seconds} s are not in the range of nanoseconds; give times='us'")
        return found

    return units


def _each(convert: Convert) -> Convert:
    return list if convert is None else lambda values: list(map(convert, values))


def _each_item(convert: Convert) -> Convert:
    if convert is None:
        return lambda values: list(values.items())
    return lambda values: [(key, convert(value)) for key, value in values.items()]


def _json_text(message: Any) -> str:
    from google.protobuf.json_format import MessageToJson

    return str(MessageToJson(message, indent=None))
