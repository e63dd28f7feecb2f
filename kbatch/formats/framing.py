"""Confluent's wire format: what names the schema of a value.

A value begins with a 0 and the schema's id in four bytes, or with a 1 and its GUID in sixteen. Or a header of
the record has these bytes, `__key_schema_id` or `__value_schema_id`; then the value has none. Protobuf adds
the path of the message in its file: a count and that many indexes, as zigzag varints; 0 means [0].

Apicurio's older clients write a 0 and an id of eight bytes. It cannot be told from Confluent's, as an id of 0
before a value that begins with zeros would be the same: it is read where a format says so.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Literal

ID_BYTES, GUID_BYTES = 5, 17
# Who has decided what stands in front of values, and the bytes that end with an id there.
Framing = Literal["confluent", "apicurio"]
BYTES_OF_IDS: Mapping[Framing, int] = {"confluent": ID_BYTES, "apicurio": 9}
ID_HEADERS: Mapping[str, str] = {"key": "__key_schema_id", "value": "__value_schema_id"}
MAX_SCHEMA_IDS: Mapping[Framing, int] = {"confluent": 2**31 - 1, "apicurio": 2**63 - 1}
MAX_INDEXES = 100
_VARINT_BYTES = 5
# What names a schema and a path has no more bytes.
MAX_FRAME_BYTES = GUID_BYTES + _VARINT_BYTES * (MAX_INDEXES + 1)
FIRST_MESSAGE = (0,)
# An id or a GUID; of Protobuf also the path of the message.
Written = tuple[int | str, tuple[int, ...]]


def id_header(schema_id: int | None, framing: Framing = "confluent") -> bytes:
    """Return a 0 and the schema's id, which stand in front of a value; none for None."""
    if schema_id is None:
        return b""
    if not isinstance(schema_id, int) or isinstance(schema_id, bool):
        raise TypeError(
            f"schema_id must be the schema's number in the schema registry, or None for values "
            f"without Confluent's header, got {schema_id!r}"
        )
    if not 0 <= schema_id <= MAX_SCHEMA_IDS[framing]:
        raise ValueError(f"schema_id must be 0 to {MAX_SCHEMA_IDS[framing]}, got {schema_id}")
    return b"\0" + schema_id.to_bytes(BYTES_OF_IDS[framing] - 1, "big")


def guid_header(guid: str) -> bytes:
    """Return a 1 and the schema's GUID, which stand in a header of the record."""
    return b"\1" + uuid.UUID(guid).bytes


def frame_of(data: bytes, *, has_path: bool = False, id_bytes: int = ID_BYTES) -> bytes:
    """Return the bytes that name a schema, of Protobuf also the message, at the beginning of others. With an
    id, and a 0, they are `id_bytes`.

    Raises
    ------
    ValueError
        There are none.
    """
    size = {0: id_bytes, 1: GUID_BYTES}.get(data[0]) if data else None
    if size is None:
        found = f"it begins with the byte {data[0]}" if data else "it is empty"
        raise ValueError(f"it has no schema id: {found}, instead of 0 or 1 (Confluent's wire format)")
    if len(data) < size:
        raise ValueError(f"its schema id is cut off: it has {len(data)} bytes")
    return bytes(data[: _path_at(data, size)[1] if has_path else size])


def written_of(frame: bytes, *, has_path: bool = False) -> Written:
    """Return the id or GUID, and the path of Protobuf's, that such bytes name."""
    size = len(frame) if not has_path else GUID_BYTES if frame[0] else ID_BYTES
    head = frame[1:size]
    path = _path_at(frame, size)[0] if has_path else ()
    return (str(uuid.UUID(bytes=head)) if frame[0] else int.from_bytes(head, "big")), path


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
