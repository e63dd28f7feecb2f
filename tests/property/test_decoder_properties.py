"""Properties of the decoders: any bytes are read as the codecs' packages read them, or refused like there."""

import gzip
import struct
from collections.abc import Callable
from functools import partial

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch import CorruptRecordError
from kbatch._native.codec import libraries
from kbatch._native.codec.compression import compress, decompress
from kbatch.codecs import CODEC_NAMES
from tests.support.effort import EXAMPLES

deterministic = settings(derandomize=True, deadline=None, database=None, max_examples=3 * EXAMPLES)
CODECS = CODEC_NAMES[1:]
XERIAL = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)

plain_bytes = st.one_of(
    st.binary(max_size=300),
    st.builds(lambda data, times: data * times, st.binary(min_size=1, max_size=40), st.integers(1, 9_000)),
    st.builds(
        lambda first, data, times: first + data * times,
        st.binary(max_size=2_000),
        st.binary(max_size=9),
        st.integers(0, 500),
    ),
)


# Streams of every shape


def _skippable(data: bytes) -> bytes:
    return struct.pack("<II", 0x184D2A50 + len(data) % 16, len(data)) + data


def _framed_snappy(data: bytes, block: int) -> bytes:
    blocks = [bytes(cramjam.snappy.compress_raw(data[at : at + block])) for at in range(0, len(data), block)]
    return XERIAL + b"".join(struct.pack(">i", len(packed)) + packed for packed in blocks)


WRITERS: dict[str, list[Callable[[bytes], bytes]]] = {
    "gzip": [
        partial(compress, compression="gzip"),
        *(partial(gzip.compress, compresslevel=level, mtime=0) for level in (0, 1, 6, 9)),
    ],
    "snappy": [
        partial(compress, compression="snappy"),
        partial(_framed_snappy, block=1_000),
        partial(_framed_snappy, block=65_536),
    ],
    "lz4": [
        partial(compress, compression="lz4"),
        *(
            partial(
                lz4.frame.compress,
                block_linked=linked,
                block_size=size,
                content_checksum=checked,
                block_checksum=checked,
                store_size=linked,
            )
            for size in (lz4.frame.BLOCKSIZE_MAX64KB, lz4.frame.BLOCKSIZE_MAX4MB)
            for linked in (True, False)
            for checked in (True, False)
        ),
    ],
    "zstd": [
        partial(compress, compression="zstd"),
        lambda data: zstandard.ZstdCompressor(level=-5, write_content_size=False).compress(data),
        lambda data: zstandard.ZstdCompressor(level=15, write_checksum=True).compress(data),
    ],
}


@st.composite
def streams(draw: st.DrawFn, codec: str) -> tuple[bytes, bytes]:
    """Return some data, and a stream of several members or frames of it."""
    parts = draw(st.lists(plain_bytes, min_size=1, max_size=4))
    packed = []
    for part in parts:
        packed.append(draw(st.sampled_from(WRITERS[codec]))(part))
        if codec in ("lz4", "zstd") and draw(st.booleans()):
            packed.append(_skippable(draw(st.binary(max_size=50))))
    return b"".join(parts), b"".join(packed)


@pytest.mark.parametrize("codec", CODECS)
@deterministic
@given(st.data())
def test_R07_streams_of_several_parts_are_read(codec: str, data: st.DataObject) -> None:
    plain, packed = data.draw(streams(codec))
    assert decompress(packed, codec) == plain
    assert decompress(packed, codec, len(plain)) == plain
    if plain:
        limit = data.draw(st.integers(0, len(plain) - 1))
        with pytest.raises(CorruptRecordError, match="max_decompressed_bytes"):
            decompress(packed, codec, limit)


# Hostile bytes


def _outcome(packed: bytes, codec: str, limit: int) -> bytes | None:
    try:
        return decompress(packed, codec, limit)
    except CorruptRecordError:
        return None


def _by_package(packed: bytes, codec: str, limit: int) -> bytes | None:
    number = CODEC_NAMES.index(codec)
    libraries.leave_to_package(number)
    try:
        return _outcome(packed, codec, limit)
    finally:
        libraries.reload_library(number)


def _by_cramjam(packed: bytes, limit: int) -> bytes | None:
    """Read a raw block."""
    try:
        if cramjam.snappy.decompress_raw_len(packed) > limit:
            return None
        return bytes(cramjam.snappy.decompress_raw(packed))
    except Exception:
        return None


@st.composite
def mutants(draw: st.DrawFn, codec: str) -> bytes:
    """Return a stream with some bytes replaced, inserted, repeated or cut away."""
    stream = bytearray(draw(streams(codec))[1])
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(stream)))
        end = min(len(stream), at + draw(st.integers(0, 8)))
        change = draw(st.sampled_from(["replace", "insert", "cut", "repeat", "flip"]))
        if change == "replace":
            stream[at:end] = draw(st.binary(min_size=end - at, max_size=end - at))
        elif change == "insert":
            stream[at:at] = draw(st.binary(max_size=8))
        elif change == "cut":
            del stream[at:]
        elif change == "repeat":
            stream[at:at] = stream[:end]
        elif at < len(stream):
            stream[at] ^= 1 << draw(st.integers(0, 7))
    return bytes(stream)


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
@deterministic
@given(st.data())
def test_hostile_streams_are_read_as_by_the_package(codec: str, data: st.DataObject) -> None:
    packed = data.draw(st.one_of(mutants(codec), st.binary(max_size=100)))
    limit = data.draw(st.sampled_from([0, 100, 70_000, 1 << 22]))
    assert _outcome(packed, codec, limit) == _by_package(packed, codec, limit)


@deterministic
@given(st.data())
def test_hostile_snappy_blocks_are_read_as_by_the_package(data: st.DataObject) -> None:
    block = data.draw(st.one_of(_raw_mutants(), _elements(), st.binary(max_size=100)))
    limit = data.draw(st.sampled_from([0, 100, 70_000, 1 << 22]))
    expected = _by_cramjam(block, limit)
    if not block.startswith(XERIAL[:8]):
        assert _outcome(block, "snappy", limit) == expected
    if block:
        framed = XERIAL + struct.pack(">i", len(block)) + block
        assert _outcome(framed, "snappy", limit) == expected


@st.composite
def _raw_mutants(draw: st.DrawFn) -> bytes:
    block = bytearray(bytes(cramjam.snappy.compress_raw(draw(plain_bytes))))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(block) - 1))
        block[at] = draw(st.integers(0, 255))
    return bytes(block[: draw(st.integers(0, len(block)))] if draw(st.booleans()) else block)


@st.composite
def _elements(draw: st.DrawFn) -> bytes:
    """Return a block of elements drawn one by one, whose claim is mostly right."""
    body, size = bytearray(), 0
    for _ in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(["literal", "near", "far", "farther"]))
        length = draw(st.integers(1, 64))
        offset = (
            draw(st.integers(1, max(size, 1))) if draw(st.integers(0, 9)) else draw(st.integers(0, 70_000))
        )
        if kind == "literal":
            literal = draw(st.binary(min_size=length, max_size=length))
            body += bytes([(length - 1) << 2]) if length <= 60 else bytes([60 << 2, length - 1])
            body += literal
        elif kind == "near":
            length = 4 + length % 8
            offset &= 2047
            body += bytes([1 | (length - 4) << 2 | offset >> 8 << 5, offset & 255])
        elif kind == "far":
            body += bytes([2 | (length - 1) << 2]) + struct.pack("<H", offset & 65535)
        else:
            body += bytes([3 | (length - 1) << 2]) + struct.pack("<I", offset)
        size += length
    claim = size if draw(st.integers(0, 4)) else draw(st.integers(0, 2**32))
    varint = bytearray()
    while claim > 127:
        varint.append(claim & 127 | 128)
        claim >>= 7
    return bytes(varint + bytes([claim]) + body)
