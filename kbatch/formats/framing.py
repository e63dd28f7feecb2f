"""Confluent's wire format: what names the schema of a value.

A value begins with a 0 and the schema's id in four bytes, or with a 1 and its GUID in sixteen. Or a header of
the record has these bytes, `__key_schema_id` or `__value_schema_id`; then the value has none. Protobuf adds
the path of the message in its file: a count and that many indexes, as zigzag varints; 0 means [0].
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Mapping

ID_BYTES, GUID_BYTES = 5, 17
_BYTES = {0: ID_BYTES, 1: GUID_BYTES}
ID_HEADERS: Mapping[str, str] = {"key": "__key_schema_id", "value": "__value_schema_id"}
MAX_SCHEMA_ID = 2**31 - 1
MAX_INDEXES = 100
_VARINT_BYTES = 5
# What names a schema and a path has no more bytes.
MAX_FRAME_BYTES = GUID_BYTES + _VARINT_BYTES * (MAX_INDEXES + 1)
FIRST_MESSAGE = (0,)
# An id or a GUID; of Protobuf also the path of the message.
Written = tuple[int | str, tuple[int, ...]]


def confluent_header(schema_id: int | None) -> bytes:
    """Return a 0 and the schema's id, which stand in front of a value; none for None."""
    if schema_id is None:
        return b""
    if not isinstance(schema_id, int) or isinstance(schema_id, bool):
        raise TypeError(
            f"schema_id must be the schema's number in the schema registry, or None for values "
            f"without Confluent's header, got {schema_id!r}"
        )
    if not 0 <= schema_id <= MAX_SCHEMA_ID:
        raise ValueError(f"schema_id must be 0 to {MAX_SCHEMA_ID}, got {schema_id}")
    return struct.pack(">bI", 0, schema_id)


def guid_header(guid: str) -> bytes:
    """Return a 1 and the schema's GUID, which stand in a header of the record."""
    return b"\1" + uuid.UUID(guid).bytes


def frame_of(data: bytes, *, has_path: bool = False) -> bytes:
    """Return the bytes that name a schema, of Protobuf also the message, at the beginning of others.

    Raises
    ------
    ValueError
        There are none.
    """
    size = _BYTES.get(data[0]) if data else None
    if size is None:
        found = f"it begins with the byte {data[0]}" if data else "it is empty"
        raise ValueError(f"it has no schema id: {found}, instead of 0 or 1 (Confluent's wire format)")
    if len(data) < size:
        raise ValueError(f"its schema id is cut off: it has {len(data)} bytes")
    return bytes(data[: _path_at(data, size)[1] if has_path else size])


def written_of(frame: bytes) -> Written:
    """Return the id or GUID, and the path if there is one, that such bytes name."""
    size = _BYTES[frame[0]]
    head = frame[1:size]
    path = _path_at(frame, size)[0] if len(frame) > size else ()
    return (int.from_bytes(head, "big") if size == ID_BYTES else str(uuid.UUID(bytes=head))), path


def _path_at(data: bytes, index: int) -> tuple[tuple[int, ...], int]:
    """Return the path that stands there, and the index of the byte after it."""
    numbers: list[int] = []
    count = 1
    while len(numbers) < count + 1:
        number, index = _varint_at(data, index)
        if number & 1 or (not numbers and number >> 1 > MAX_INDEXES):  # negative, or too many
            raise _no_path()
        numbers.append(number >> 1)
        count = numbers[0]
    return tuple(numbers[1:]) or FIRST_MESSAGE, index


def _varint_at(data: bytes, index: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 7 * _VARINT_BYTES, 7):
        if index >= len(data):
            break
        byte = data[index]
        number |= (byte & 0x7F) << shift
        index += 1
        if byte < 0x80:
            return number, index
    raise _no_path()


def _no_path() -> ValueError:
    return ValueError("the position of its message is no list of varints (Confluent's wire format)")


def path_bytes(path: Iterable[int]) -> bytes:
    """Return the path of a message as a frame has it."""
    indexes = tuple(path)
    return b"\0" if indexes == FIRST_MESSAGE else b"".join(map(_zigzag, [len(indexes), *indexes]))


def _zigzag(number: int) -> bytes:
    """Return the varint of a number that is not negative."""
    number <<= 1
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)
