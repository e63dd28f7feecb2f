"""Protobuf of single records: a program's values as messages, and messages as a program's values.

Both ways are made once a message. What protobuf itself refuses, such as a text for a number, is not looked at
here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

from kbatch.formats.models import as_dict, is_message
from kbatch.formats.protobuf_files import WRAPPERS, class_of, is_repeated

Convert = Callable[[Any], Any]
_GOOGLE = "google.protobuf."
_FLOATS = (1, 2)  # double and float, of FieldDescriptorProto
_ENUM = 14
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def maker_of(message: Any) -> Convert:
    """Return what makes messages of a class of dicts, mappings and objects of the program's classes.

    Raises
    ------
    TypeError, ValueError
        From what is returned: the message does not have the value.
    """
    return _Makers().of(message)


class _Makers:
    def __init__(self) -> None:
        self._made: dict[str, Convert] = {}

    def of(self, message: Any) -> Convert:
        name = message.DESCRIPTOR.full_name
        if name not in self._made:
            self._made[name] = lambda value: self._made[name](value)  # for messages within themselves
            self._made[name] = self._new(message)
        return self._made[name]

    def _new(self, message: Any) -> Convert:
        descriptor = message.DESCRIPTOR
        converts = {
            field.name: _named(field.name, convert)
            for field in descriptor.fields
            if (convert := self._field(field)) is not None
        }

        def make(value: Any) -> Any:
            if is_message(value):
                return _same(message, value)
            fields = as_dict(value)
            if converts:
                fields = {
                    name: each if each is None or name not in converts else converts[name](each)
                    for name, each in fields.items()
                }
            return message(**fields)

        return make

    def _field(self, field: Any) -> Convert | None:
        if not is_repeated(field):
            return self._value(field)
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            return _each_item(self._value(entry.fields_by_name["value"]))
        return _each(self._value(field))

    def _value(self, field: Any) -> Convert | None:
        """Return what makes one value of a field; None if protobuf takes it as it is."""
        descriptor = field.message_type
        if descriptor is None:
            return _float if field.type in _FLOATS else _enum if field.type == _ENUM else None
        message = class_of(descriptor)
        special = _WRITE.get(descriptor.full_name)
        if special is None and descriptor.full_name in WRAPPERS:
            special = _wrapped
        if special is None:
            return self.of(message)
        return lambda value: _same(message, value) if is_message(value) else special(message, value)


def _each(one: Convert | None) -> Convert | None:
    return None if one is None else lambda items: list(map(one, items))


def _each_item(one: Convert | None) -> Convert | None:
    return None if one is None else lambda items: {name: one(items[name]) for name in items}


def _same(message: Any, value: Any) -> Any:
    """Return a message as one of a class: one of another pool is of another class."""
    if isinstance(value, message):
        return value
    if value.DESCRIPTOR.full_name != message.DESCRIPTOR.full_name:
        raise TypeError(
            f"it is a message {value.DESCRIPTOR.full_name}, not {message.DESCRIPTOR.full_name}; give its "
            "class to Protobuf"
        )
    return message.FromString(value.SerializeToString())


def _named(name: str, convert: Convert) -> Convert:
    """Return a conversion whose errors name the field."""

    def named(value: Any) -> Any:
        try:
            return convert(value)
        except (ValueError, TypeError, AttributeError) as error:
            raise type(error)(f"field {name!r}: {error}") from error

    return named


def _float(value: Any) -> Any:
    if value.__class__ is float:
        return value
    if isinstance(value, bool):
        raise TypeError("a number is needed, got bool")
    if isinstance(value, int) and float(value) != value:
        raise ValueError(f"no double is {value}")
    return value


def _enum(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


def _timestamp(message: Any, value: Any) -> Any:
    if not isinstance(value, datetime):
        raise TypeError(f"a datetime is needed, got {type(value).__name__}")
    if value.tzinfo is None:
        raise ValueError("a datetime needs a time zone; `.replace(tzinfo=datetime.UTC)` says that it is UTC")
    microseconds = (value - _EPOCH) // timedelta(microseconds=1)
    seconds, rest = divmod(microseconds, 10**6)
    return message(seconds=seconds, nanos=rest * 1000)


def _duration(message: Any, value: Any) -> Any:
    if not isinstance(value, timedelta):
        raise TypeError(f"a timedelta is needed, got {type(value).__name__}")
    made = message()
    made.FromTimedelta(value)
    return made


def _wrapped(message: Any, value: Any) -> Any:
    return message(value=value)


def _json(message: Any, value: Any) -> Any:
    from google.protobuf.json_format import ParseDict

    return ParseDict(value, message())


_WRITE: Mapping[str, Callable[[Any, Any], Any]] = {
    f"{_GOOGLE}Timestamp": _timestamp,
    f"{_GOOGLE}Duration": _duration,
    f"{_GOOGLE}Struct": _json,
    f"{_GOOGLE}Value": _json,
    f"{_GOOGLE}ListValue": _json,
}


# Messages as values


def as_values(descriptor: Any) -> Convert:
    """Return what makes a dict of a message. A field that knows whether it is set is None if it is not; any
    other has its default. Enums are their names, the number of an unknown one.

    Raises
    ------
    ValueError, OverflowError
        From what is returned: Python does not have the time.
    """
    return _Readers().of(descriptor)


class _Readers:
    def __init__(self) -> None:
        self._made: dict[str, Convert] = {}

    def of(self, descriptor: Any) -> Convert:
        name = descriptor.full_name
        if name not in self._made:
            self._made[name] = lambda message: self._made[name](message)  # for messages within themselves
            self._made[name] = self._new(descriptor)
        return self._made[name]

    def _new(self, descriptor: Any) -> Convert:
        fields = [(field.name, field.has_presence, self._field(field)) for field in descriptor.fields]

        def read(message: Any) -> dict[str, Any]:
            return {
                name: None
                if has_presence and not message.HasField(name)
                else convert(getattr(message, name))
                if convert is not None
                else getattr(message, name)
                for name, has_presence, convert in fields
            }

        return read

    def _field(self, field: Any) -> Convert | None:
        if not is_repeated(field):
            return self._value(field)
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            return _each_item(self._value(entry.fields_by_name["value"])) or dict
        return _each(self._value(field)) or list

    def _value(self, field: Any) -> Convert | None:
        """Return what reads one value of a field; None if it is what protobuf gives."""
        descriptor = field.message_type
        if descriptor is None:
            return enum_name(field.enum_type) if field.type == _ENUM else None
        name = descriptor.full_name
        if name in WRAPPERS:
            return lambda message: message.value
        return _READ[name] if name in _READ else self.of(descriptor)


def enum_name(enum: Any) -> Callable[[int], str]:
    """Return what gives the name of an enum's number, or the number of an unknown one as text."""
    names = {number: value.name for number, value in enum.values_by_number.items()}
    return lambda number: names.get(number) or str(number)


def _datetime(message: Any) -> datetime:
    return _EPOCH + timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)


def _timedelta(message: Any) -> timedelta:
    return timedelta(seconds=message.seconds, microseconds=int(message.nanos / 1000))


def _python(message: Any) -> Any:
    from google.protobuf.json_format import MessageToDict

    return MessageToDict(message)


_READ: Mapping[str, Convert] = {
    f"{_GOOGLE}Timestamp": _datetime,
    f"{_GOOGLE}Duration": _timedelta,
    f"{_GOOGLE}Struct": _python,
    f"{_GOOGLE}Value": _python,
    f"{_GOOGLE}ListValue": _python,
}
