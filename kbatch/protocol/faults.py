"""The slow second look at a message that could not be written, value by value, for the fault."""

import reprlib
import struct
from collections.abc import Callable, Iterator

from kbatch.protocol import wire
from kbatch.protocol.schema import SCALARS, Field
from kbatch.protocol.structs import Message, Struct

_WANTED = {
    "bool": "a bool",
    "int8": "an int of 8 bits",
    "int16": "an int of 16 bits",
    "int32": "an int of 32 bits",
    "int64": "an int of 64 bits",
    "uint16": "an unsigned int of 16 bits",
    "uint32": "an unsigned int of 32 bits",
    "float64": "a float",
    "uuid": "16 bytes",
    "string": f"a str of at most {wire.MAX_STRING_BYTES} bytes of UTF-8",
    "bytes": f"a bytes-like object of at most {wire.MAX_LENGTH} bytes",
    "records": f"bytes-like or a list of such, of at most {wire.MAX_LENGTH} bytes",
}
_TRIED_BY: dict[str, Callable[..., object]] = {
    "bool": wire.TRUTH.__getitem__,
    "uuid": wire.pack_uuid,
    "string": wire.pack_compact_string,
    "bytes": wire.pack_compact_bytes,
    "records": lambda value: wire.write_records(value, True, lambda _: None),
}
# Errors of a writer's step.
WRITE_ERRORS = (AttributeError, BufferError, KeyError, OverflowError, TypeError, ValueError, struct.error)
# Not the whole value, which may be gigabytes.
_brief = reprlib.Repr()
_brief.maxstring = _brief.maxother = 60


def first_fault(message: Message, version: int) -> str | None:
    """Return the first field that cannot be written: its path, its value, the expected type."""
    return next(_faults_within(message, version, ""), None)


def _faults_within(value: Struct, version: int, prefix: str) -> Iterator[str]:
    for field in value._spec.fields:
        content = getattr(value, field.name, None)
        if version in field.versions:
            yield from _faults(field, content, version, prefix + field.name, value._structs)
        elif not field.ignorable:
            default = _default(field, value._structs)
            if content != default:
                wanted = f"{_brief.repr(default)}: version {version} lacks the field"
                yield _fault(field, prefix + field.name, content, wanted)


def _faults(
    field: Field, value: object, version: int, path: str, structs: dict[str, type[Struct]]
) -> Iterator[str]:
    if value is None and version in field.nullable:
        return
    if field.is_array:
        if type(value) is not list:
            yield _fault(field, path, value, "a list")
            return
        for index, element in enumerate(value):
            yield from _faults(field.element, element, version, f"{path}[{index}]", structs)
    elif field.struct:
        struct_class = structs[field.type]
        if isinstance(value, struct_class):
            yield from _faults_within(value, version, f"{path}.")
        else:
            yield _fault(field, path, value, f"a {struct_class.__qualname__}")
    else:
        try:
            _try(field, value)
        except WRITE_ERRORS:
            yield _fault(field, path, value, _WANTED[field.type])


def _try(field: Field, value: object) -> None:
    tried_by = _TRIED_BY.get(field.type)
    if tried_by is None:
        struct.pack(f">{SCALARS[field.type]}", value)
    else:
        tried_by(value)


def _default(field: Field, structs: dict[str, type[Struct]]) -> object:
    if field.default is not ...:
        return field.default
    return [] if field.is_array else structs[field.type]()


def _fault(field: Field, path: str, value: object, wanted: str) -> str:
    return f"{path} is {field.shown(value, _brief.repr)}, not {wanted}"
