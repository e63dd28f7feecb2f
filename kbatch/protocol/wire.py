"""Single values on the wire: the functions that compiled readers and writers call.

Writers return bytes, and check what `struct` would accept; only records are passed by reference. Readers take
a frame as a memoryview of bytes and a position in it, and return the next position. Both raise the first
error, a ValueError with a text if they know one; the codec adds the field.
"""

import struct
from collections.abc import Callable, Sequence
from typing import NoReturn

# Types of input and output.
BytesLike = bytes | bytearray | memoryview
Records = BytesLike | Sequence[BytesLike]
Buffer = bytes | memoryview

# A string's length is an int16; Kafka keeps that limit for compact lengths.
MAX_STRING_BYTES = 2**15 - 1
MAX_LENGTH = 2**31 - 1
# Packs a bool, because struct accepts any object's truth.
TRUTH = {False: False, True: True}
# The struct formats whose arrays are read and written at once.
INTEGERS = frozenset("bhiqHI")
# By struct format, and then by number, readers of short arrays, such as replicas.
FEW = 6
FEW_INTEGERS = {
    code: [struct.Struct(f">{count}{code}").unpack_from for count in range(FEW)] for code in INTEGERS
}

pack_int16 = struct.Struct(">h").pack
pack_int32 = struct.Struct(">i").pack
_one_byte = [bytes((value,)) for value in range(0x80)]
_two_bytes = struct.Struct("BB").pack
_three_bytes = struct.Struct("BBB").pack


def as_plain_view(data: BytesLike) -> memoryview:
    """Return a view of the bytes of any bytes-like object, without copying."""
    if type(data) is memoryview and data.format == "B" and data.ndim == 1 and data.contiguous:
        return data
    return memoryview(data).cast("B")


# Writing


def pack_uvarint(value: int) -> bytes:
    if value < 0x80:
        return _one_byte[value]
    if value < 0x4000:
        return _two_bytes(value & 0x7F | 0x80, value >> 7)
    if value < 0x200000:
        return _three_bytes(value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14)
    if value > MAX_LENGTH + 1:
        raise ValueError(f"a length of {value - 1}")
    return _three_bytes(
        value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14 & 0x7F | 0x80
    ) + pack_uvarint(value >> 21)


def pack_uuid(value: bytes) -> bytes:
    if len(value) != 16:
        raise ValueError(f"a UUID of {len(value)} bytes")
    return bytes(value)


def pack_string(value: str) -> bytes:
    text = value.encode()
    return pack_int16(len(text)) + text


def pack_compact_string(value: str) -> bytes:
    text = value.encode()
    if len(text) > MAX_STRING_BYTES:
        raise ValueError(f"a string of {len(text)} bytes")
    return pack_uvarint(len(text) + 1) + text


def pack_bytes(value: BytesLike) -> bytes:
    data = as_plain_view(value)
    return pack_int32(len(data)) + data


def pack_compact_bytes(value: BytesLike) -> bytes:
    data = as_plain_view(value)
    return pack_uvarint(len(data) + 1) + data


def pack_count(values: list[object]) -> bytes:
    if type(values) is not list:
        raise TypeError("no list")
    return pack_int32(len(values))


def pack_compact_count(values: list[object]) -> bytes:
    if type(values) is not list:
        raise TypeError("no list")
    return pack_uvarint(len(values) + 1)


def pack_integers(values: list[int], code: str) -> bytes:
    """Return the elements of an array of `code`, a struct format."""
    return struct.pack(f">{len(values)}{code}", *values)


def write_records(value: Records, compact: bool, put: Callable[[Buffer], None]) -> None:
    """Pass the size and then the records themselves to `put`, without copying."""
    several = value if isinstance(value, list | tuple) else (value,)
    frames = [frame if type(frame) is bytes else as_plain_view(frame) for frame in several]
    size = sum(map(len, frames))
    put(pack_uvarint(size + 1) if compact else pack_int32(size))
    for frame in frames:
        put(frame)


def pack_tagged(tag: int, parts: list[bytes]) -> bytes:
    data = b"".join(parts)
    return pack_uvarint(tag) + pack_uvarint(len(data)) + data


def pack_tag_section(fields: list[bytes]) -> bytes:
    return pack_uvarint(len(fields)) + b"".join(fields)


# Reading


def read_uvarint(data: memoryview, pos: int) -> tuple[int, int]:
    """Read an unsigned varint of at most five bytes; like Kafka, accept longer forms than needed."""
    value = data[pos]
    if value < 0x80:
        return value, pos + 1
    length, pos = read_long_length(data, pos + 1, value - 1)
    return length + 1, pos


def read_long_length(data: memoryview, pos: int, length: int) -> tuple[int, int]:
    """Read a compact length of several bytes, a varint of one more; `length` is from the first byte."""
    length += (data[pos] << 7) - 0x80
    if length < 0x3FFF:
        return length, pos + 1
    length += (data[pos + 1] << 14) - 0x4000
    if length < 0x1FFFFF:
        return length, pos + 2
    length += (data[pos + 2] << 21) - 0x200000
    if length < 0xFFFFFFF:
        return length, pos + 3
    length += (data[pos + 3] << 28) - 0x10000000
    if length > 0xFFFFFFFE:
        raise ValueError("a varint of more than 32 bits")
    return length, pos + 4


def refuse_length(length: int, smallest: int, left: int) -> NoReturn:
    """Refuse `length` elements of at least `smallest` bytes if only `left` bytes are left."""
    if length < -1:
        raise ValueError(f"a length of {length}")
    raise ValueError(f"a length of {length}, {length * smallest} bytes or more, but {left} are left")


def read_text(data: memoryview) -> str:
    if len(data) > MAX_STRING_BYTES:
        raise ValueError(f"a string of {len(data)} bytes")
    return str(data, "utf-8")


def read_integers(data: memoryview, pos: int, length: int, code: str) -> list[int]:
    return list(struct.unpack_from(f">{length}{code}", data, pos))


def read_null_marker(data: memoryview, pos: int) -> bool:
    """Read the marker of a struct that may be null (KIP-893): -1 is null, 1 is present."""
    marker = data[pos]
    if marker not in (1, 0xFF):
        raise ValueError(f"the marker of a struct is {marker}, neither 1 nor -1")
    return marker == 0xFF


def read_tag(data: memoryview, pos: int, last_tag: int) -> tuple[int, int, int]:
    """Read the next tagged field: its tag, its end, and the start of its value."""
    tag, pos = read_uvarint(data, pos)
    if tag <= last_tag:
        raise ValueError(f"tag {tag} after tag {last_tag}")
    size, pos = read_uvarint(data, pos)
    if size > len(data) - pos:
        refuse_length(size, 1, len(data) - pos)
    return tag, pos + size, pos


def skip_tags(data: memoryview, pos: int) -> int:
    """Skip tagged fields, none of which is known."""
    number, pos = read_uvarint(data, pos)
    tag = -1
    for _ in range(number):
        tag, pos, _ = read_tag(data, pos, tag)
    return pos
