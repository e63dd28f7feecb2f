"""Compressed streams that lie: the claims of each codec's framing are altered, its checksums corrected."""

import gzip
import random
import struct
import zlib
from collections.abc import Callable
from functools import cache

import cramjam
import lz4.frame
import zstandard

from tests.oracle import plain

EVIL_SIZES = (0, 1, 2**15, 2**16, 2**20, 2**27, 2**31 - 1, 2**31, 2**32 - 1)
EVIL_LONG_SIZES = (*EVIL_SIZES, 2**32, 2**40, 2**63 - 1, 2**64 - 1)
BOMB_BYTES = 16 * 2**20
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def scrambled(data: bytes, rng: random.Random) -> bytes:
    """Make one to four edits anywhere: flip a bit, change a byte, remove, double, insert or cut bytes."""
    edited = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(edited) + 1)
        length = rng.choice((1, 1, 2, 4, 16))
        choice = rng.randrange(6)
        if choice <= 1 and at < len(edited):
            edited[at] = (
                edited[at] ^ 1 << rng.randrange(8) if choice else rng.choice((0, 1, 0x7F, 0x80, 0xFF))
            )
        elif choice == 2:
            del edited[at : at + length]
        elif choice == 3:
            edited[at:at] = edited[at : at + length]
        elif choice == 4:
            edited[at:at] = rng.randbytes(length)
        else:
            del edited[at:]
    return bytes(edited)


def _plain(data: bytes, rng: random.Random) -> bytes:
    return data + rng.choice((b"", b"\0", data))


# gzip: members of a header, raw deflate, CRC-32 and size


def _gzip(data: bytes, rng: random.Random) -> bytes:
    member = gzip.compress(data, rng.choice((0, 1, 9)), mtime=0)
    half = len(data) // 2
    match rng.randrange(8):
        case 0:
            return gzip.compress(data[:half], mtime=0) + gzip.compress(data[half:], mtime=0)
        case 1:
            return member + rng.choice(
                (b"\0", bytes(64), b"\x1f", b"\x1f\x8b", gzip.compress(b"", mtime=0), member)
            )
        case 2:
            return member[:-8] + struct.pack("<II", zlib.crc32(data), rng.choice(EVIL_SIZES))
        case 3:
            return member[:-8] + struct.pack("<II", rng.getrandbits(32), len(data))
        case 4:  # flags: header CRC, extra field, name, comment, reserved bits
            return member[:3] + bytes([rng.randrange(256)]) + member[4:]
        case 5:  # an extra field that claims more than there is
            return (
                member[:3]
                + b"\x04"
                + member[4:10]
                + struct.pack("<H", rng.choice((0, 4, 65535)))
                + member[10:]
            )
        case 6:  # a stored block whose length and complement disagree, or do not
            length = rng.choice((0, 1, len(data) & 0xFFFF, 65535))
            complement = length ^ (0xFFFF if rng.random() < 0.7 else 0)
            block = struct.pack("<BHH", rng.choice((0, 1)), length, complement) + data
            return member[:10] + block + struct.pack("<II", zlib.crc32(data), len(data))
        case _:
            return gzip.compress(b"", mtime=0) * rng.choice((1, 2, 100)) + member


# snappy: blocks in snappy-java's framing; a block begins with its uncompressed length


def _raw_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def _snappy(data: bytes, rng: random.Random) -> bytes:
    block = bytes(cramjam.snappy.compress_raw(data))
    tags = block[len(_raw_varint(len(data))) :]
    lying = _raw_varint(rng.choice((*EVIL_LONG_SIZES, len(data) - 1, len(data) + 1, 22 * len(block)))) + tags
    framing = plain.XERIAL_MAGIC + struct.pack(">ii", 1, 1)
    sized = struct.pack(">i", len(block)) + block
    evil_length = rng.choice((-(2**31), -1, 0, 1, len(block) - 1, len(block) + 1, 2**24, 2**31 - 1))
    return rng.choice(
        (
            block,
            lying,
            framing + sized,
            framing + struct.pack(">i", len(lying)) + lying,
            framing + struct.pack(">i", evil_length) + block,
            framing + sized + struct.pack(">i", evil_length),
            framing + sized + framing + sized,
            framing + sized + framing[: rng.randrange(16)],
            framing + struct.pack(">i", 1) + b"\0" + sized,
            framing[: rng.randrange(17)],
            plain.XERIAL_MAGIC + struct.pack("<ii", 1, 1) + sized,
            plain.XERIAL_MAGIC + rng.randbytes(8) + sized,
        )
    )


# lz4: a frame of magic, descriptor with checksum, and blocks, each after its size


def _lz4(data: bytes, rng: random.Random) -> bytes:
    frame: bytes = lz4.frame.compress(
        data,
        block_size=rng.choice((4, 5, 6, 7)),
        block_linked=rng.random() < 0.5,
        content_checksum=rng.random() < 0.5,
        block_checksum=rng.random() < 0.5,
        store_size=False,
    )
    match rng.randrange(8):
        case 0:
            return frame
        case 1:  # the size of the first block; its highest bit says that it is not compressed
            return frame[:7] + struct.pack("<I", rng.choice((*EVIL_SIZES, 2**31 + len(data)))) + frame[11:]
        case 2:
            return frame + rng.choice((frame, b"\0", bytes(4), frame[:7], bytes(64)))
        case 3:
            return frame[:4] + rng.randbytes(2) + frame[6:]
        case 4:
            return _lz4_claiming(data, rng.choice(EVIL_LONG_SIZES[1:]))
        case 5:
            return struct.pack("<II", 0x184D2A50 + rng.randrange(16), rng.choice((0, 4, *EVIL_SIZES))) + frame
        case 6:
            return frame[:-4]
        case _:
            return frame[: rng.randrange(len(frame) + 1)]


def _lz4_claiming(data: bytes, size: int) -> bytes:
    """Return a frame whose descriptor, checksum included, announces `size` bytes of content."""
    writer = lz4.frame.LZ4FrameCompressor(block_linked=False)
    header = bytes(writer.begin(source_size=size))
    frame: bytes = lz4.frame.compress(data, block_linked=False, store_size=False)
    return header + frame[7:]


# zstd: frames of magic, descriptor, window or content size, and blocks with a header of three bytes


def _zstd(data: bytes, rng: random.Random) -> bytes:
    frame = zstandard.ZstdCompressor(write_checksum=rng.random() < 0.5).compress(data)
    descriptor = frame[4]
    single_segment = descriptor >> 5 & 1
    content_size_bytes = (single_segment, 2, 4, 8)[descriptor >> 6]
    blocks = frame[5 + (not single_segment) + content_size_bytes :]
    checksum = descriptor & 4
    match rng.randrange(8):
        case 0:
            return frame + rng.choice((frame, b"\0", bytes(8), frame[:9], frame[:-1]))
        case 1:  # one segment: the content size is the window
            size = struct.pack("<Q", rng.choice((*EVIL_LONG_SIZES, len(data) - 1, len(data) + 1)))
            return ZSTD_MAGIC + bytes([0xE0 | checksum]) + size + blocks
        case 2:  # any window, from 1 KiB to 3.75 TiB, and no content size
            return ZSTD_MAGIC + bytes([checksum, rng.randrange(256)]) + blocks
        case 3:  # a skippable frame that ends where it says, or does not
            magic = struct.pack("<I", 0x184D2A50 + rng.randrange(16))
            return (
                magic
                + struct.pack("<I", rng.choice((0, 4, *EVIL_SIZES)))
                + rng.choice((b"", bytes(4)))
                + frame
            )
        case 4:  # a block header: last, type, size
            kind = rng.randrange(8) | rng.choice((0, 1, 127, 2**17, 2**21 - 1)) << 3
            return frame[: -len(blocks)] + struct.pack("<I", kind)[:3] + blocks[3:]
        case 5:  # the reserved bit and dictionary ids
            return ZSTD_MAGIC + bytes([rng.randrange(256)]) + frame[5:]
        case 6:
            return frame[: rng.randrange(len(frame) + 1)]
        case _:
            return zstandard.ZstdCompressor(write_content_size=False).compress(data)


_HOSTILE: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "none": _plain,
    "gzip": _gzip,
    "snappy": _snappy,
    "lz4": _lz4,
    "zstd": _zstd,
}


def hostile(compression: str, data: bytes, rng: random.Random) -> bytes:
    """Return `data` in a stream of the codec that is unusual or wrong."""
    return _HOSTILE[compression](data, rng)


@cache
def bombs(compression: str, size: int = BOMB_BYTES) -> list[bytes]:
    """Return streams that come to `size` bytes of zeros or more, as small as the codec makes them."""
    zeros = bytes(size)
    if compression == "none":
        return [bytes(2**16)]
    if compression == "snappy":
        raw = bytes(cramjam.snappy.compress_raw(zeros))
        return [plain.compress(zeros, "snappy"), raw]
    made = [plain.compress(zeros, compression), plain.compress(bytes(size // 16), compression) * 16]
    if compression == "zstd":  # blocks of 128 KiB of one byte, four bytes each, without a content size
        block = struct.pack("<I", 1 << 1 | 2**17 << 3)[:3] + b"\0"
        end = struct.pack("<I", 1)[:3]
        made.append(ZSTD_MAGIC + b"\0\x38" + block * (size >> 17) + end)
    return made


def bomb(compression: str, rng: random.Random) -> bytes:
    """Return one of `bombs`, or one that is not beyond a limit of 1 MiB."""
    return rng.choice(bombs(compression, rng.choice((BOMB_BYTES, 2**20, 2**20 - 1))))
