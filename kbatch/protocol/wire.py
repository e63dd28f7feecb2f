"""Single values on the wire: the functions that compiled writers call.

They return bytes, and check what `struct` would accept; only records are passed by reference. They raise the
first error, a ValueError with a text if they know one; the codec adds the field.
"""

import struct
from collections.abc import Callable, Sequence

# Types of input and output.
BytesLike = bytes | bytearray | memoryview
Records = BytesLike | Sequence[BytesLike]
Buffer = bytes | memoryview

# A string's length is an int16; Kafka keeps that limit for compact lengths.
MAX_STRING_BYTES = 2**15 - 1
MAX_LENGTH = 2**31 - 1
# Packs a bool, because struct accepts any object's truth.
TRUTH = {False: False, True: True}
# The struct formats whose arrays are written at once.
INTEGERS = frozenset("bhiqHI")

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
