"""The codecs as record batches use them: levels, framings, limits, and streams that end anywhere."""

import gzip
import random
import re
import struct
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import cramjam
import lz4.frame
import pytest
import zstandard

import kbatch
from kbatch import CorruptRecordError
from kbatch._native.codec.compression import compress, decompress
from kbatch.codecs import CODEC_NAMES
from kbatch.codecs import LEVELS as TABLE
from tests import ROOT
from tests.oracle import plain

CODECS = plain.CODECS[1:]
# Across the blocks of snappy and lz4, half of it compressible.
DATA = random.Random(1).randbytes(50_000) + b"some words that come again, " * 2_000
SMALL = b"hello, hello, hello, world" * 5
ROWS: list[plain.Row] = [
    (b"key", b"value %d" % number, (("h", b"x"),), 1000 + number) for number in range(20)
]


def test_names_are_in_wire_order() -> None:
    assert CODEC_NAMES == plain.CODECS


@pytest.mark.parametrize("codec", plain.CODECS)
@pytest.mark.parametrize("data", [b"x", SMALL, DATA, bytes(200_000)], ids=["one", "small", "blocks", "zeros"])
def test_streams_are_interchangeable_with_the_codecs_packages(codec: str, data: bytes) -> None:
    assert plain.decompress(compress(data, codec), codec) == data
    assert decompress(plain.compress(data, codec), codec) == data
    assert decompress(compress(data, codec), codec) == data


@pytest.mark.parametrize("codec", plain.CODECS)
def test_no_bytes_are_a_stream_too(codec: str) -> None:
    assert decompress(compress(b"", codec), codec) == b""


@pytest.mark.parametrize("codec", CODECS)
def test_a_stream_of_no_bytes_is_corrupt(codec: str) -> None:
    with pytest.raises(CorruptRecordError, match=f"{codec} records do not decompress"):
        decompress(b"", codec)


# Levels (KIP-390)


LEVELS = {"gzip": (1, 9), "lz4": (1, 17), "zstd": (-131072, 22)}


def test_ranges_are_javas() -> None:
    assert {codec: levels[:2] for codec, levels in TABLE.items()} == LEVELS


@pytest.mark.parametrize("codec", LEVELS)
def test_every_end_of_a_range_is_taken_and_beyond_it_refused(codec: str) -> None:
    lowest, highest = LEVELS[codec]
    for level in (lowest, highest, (lowest + highest) // 2):
        assert decompress(compress(DATA, codec, level), codec) == DATA
    for level in (lowest - 1, highest + 1, 2**40):
        message = f"compression_level of {codec} must be {lowest} to {highest}.*, got {level}"
        with pytest.raises(ValueError, match=message):
            compress(DATA, codec, level)
        with pytest.raises(ValueError, match=message):
            kbatch.encode(ROWS, compression=codec, compression_level=level)


@pytest.mark.parametrize("codec", ["none", "snappy"])
def test_a_codec_without_levels_takes_none(codec: str) -> None:
    with pytest.raises(ValueError, match=f"compression '{codec}' has no levels: .*, got 1"):
        compress(SMALL, codec, 1)


@pytest.mark.parametrize("level", [True, "6", 1.0])
def test_a_level_is_an_int(level: Any) -> None:
    with pytest.raises(
        TypeError, match=f"compression_level must be an int or None, got {type(level).__name__}"
    ):
        compress(SMALL, "gzip", level)


@pytest.mark.parametrize("level", range(1, 10))
def test_a_gzip_level_means_what_it_means_elsewhere(level: int) -> None:
    assert compress(DATA, "gzip", level) == zlib.compress(DATA, level, 31)


def test_minus_1_is_gzips_default() -> None:
    assert compress(DATA, "gzip", -1) == compress(DATA, "gzip")


@pytest.mark.slow
def test_gzip_without_isal_is_zlibs_level_1() -> None:
    """All cases of gzip hold; and kbatch produce, which reads packed files, does as well."""
    code = """
import sys
sys.modules["isal"] = None  # an import raises ModuleNotFoundError
from kbatch._native.codec.compression import compress
import pytest, zlib
for level in (None, -1):
    assert compress(b"some words, " * 99, "gzip", level) == zlib.compress(b"some words, " * 99, 1, 31)
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-k", "gzip and not isal", *sys.argv[1:]]))
"""
    names = ("_native/codec/test_compression", "_native/codec/test_encode_decode", "cli/test_produce")
    files = [f"tests/unit/{name}.py" for name in names]
    done = subprocess.run([sys.executable, "-c", code, *files], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert re.search(r"\d\d passed", done.stdout)


def test_higher_levels_are_smaller_and_lz4s_9_is_the_default() -> None:
    assert len(compress(DATA, "lz4", 17)) <= len(compress(DATA, "lz4", 3)) <= len(compress(DATA, "lz4"))
    assert compress(DATA, "lz4", 9) == compress(DATA, "lz4")
    assert len(compress(DATA, "zstd", 19)) <= len(compress(DATA, "zstd")) <= len(compress(DATA, "zstd", -100))


def test_an_unknown_codec_is_named() -> None:
    for call in (compress, decompress):
        with pytest.raises(ValueError, match="none, gzip, snappy, lz4, zstd, got 'brotli'"):
            call(SMALL, "brotli")


# Framing, byte by byte


def test_snappy_is_blocks_of_32_kib_in_javas_framing() -> None:
    stream = compress(DATA, "snappy")
    assert stream[:16] == plain.XERIAL_MAGIC + struct.pack(">ii", 1, 1)
    at, sizes = 16, []
    while at < len(stream):
        (length,) = struct.unpack_from(">i", stream, at)
        sizes.append(len(bytes(cramjam.snappy.decompress_raw(stream[at + 4 : at + 4 + length]))))
        at += 4 + length
    assert sizes == [32768] * (len(DATA) // 32768) + [len(DATA) % 32768]


def test_lz4_writes_independent_64_kib_blocks_without_checksum() -> None:
    info = lz4.frame.get_frame_info(compress(DATA, "lz4"))
    assert (info["block_size"], info["block_linked"], info["content_checksum"]) == (65536, False, False)
    assert (info["block_checksum"], info["content_size"]) == (False, 0)


def test_zstd_is_one_frame_with_its_content_size() -> None:
    assert zstandard.frame_content_size(compress(DATA, "zstd")) == len(DATA)


def test_gzip_is_one_member() -> None:
    member = zlib.decompressobj(31)
    assert member.decompress(compress(DATA, "gzip")) == DATA
    assert member.eof
    assert member.unused_data == b""


# Limits


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("data", [SMALL, DATA], ids=["small", "blocks"])
def test_the_limit_is_exact_and_named(codec: str, data: bytes) -> None:
    stream = compress(data, codec)
    assert decompress(stream, codec, len(data)) == data
    for limit in (len(data) - 1, 1, 0):
        with pytest.raises(CorruptRecordError, match=r"limit.*\(max_decompressed_bytes\)"):
            decompress(stream, codec, limit)


# Streams that end early, or do not end


def _reads(stream: bytes, codec: str) -> list[int] | None:
    """Read a batch with such a stream; return the lengths of its values, None if it is corrupt."""
    data = plain.encode(ROWS, compression=codec, compressor=lambda _: stream)
    try:
        return [len(list(batch)) for batch in kbatch.decode(data)]
    except CorruptRecordError:
        return None


RECORDS = plain.encode(ROWS)[plain.HEADER_BYTES :]
STREAMS: dict[str, tuple[str, Callable[[], bytes]]] = {
    **{codec: (codec, partial(compress, RECORDS, codec)) for codec in CODECS},
    "snappy in small blocks": ("snappy", lambda: _small_snappy_blocks(RECORDS)),
    "raw snappy": ("snappy", lambda: bytes(cramjam.snappy.compress_raw(RECORDS))),
    "lz4 with checksums": (
        "lz4",
        lambda: lz4.frame.compress(RECORDS, content_checksum=True, block_checksum=True, store_size=True),
    ),
    "zstd with a checksum": ("zstd", lambda: zstandard.ZstdCompressor(write_checksum=True).compress(RECORDS)),
    "zstd frames": ("zstd", lambda: compress(RECORDS[:50], "zstd") + compress(RECORDS[50:], "zstd")),
    "gzip members": ("gzip", lambda: gzip.compress(RECORDS[:50]) + gzip.compress(RECORDS[50:])),
}


def _small_snappy_blocks(data: bytes) -> bytes:
    parts = [compress(data[:64], "snappy")]
    parts += (compress(data[start : start + 64], "snappy")[16:] for start in range(64, len(data), 64))
    return b"".join(parts)


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_cut_off_anywhere_is_corrupt(name: str) -> None:
    codec, make = STREAMS[name]
    stream = make()
    assert _reads(stream, codec) == [len(ROWS)]
    assert [length for length in range(len(stream)) if _reads(stream[:length], codec)] == []


@pytest.mark.parametrize("codec", CODECS)
def test_bytes_after_a_stream_are_corrupt(codec: str) -> None:
    stream = compress(RECORDS, codec)
    for tail in (b"\0", b"\0" * 64, b"\xff", stream[:-1], RECORDS):
        assert _reads(stream + tail, codec) is None, tail


@pytest.mark.parametrize("codec", CODECS)
def test_a_codecs_own_words_are_in_the_message(codec: str) -> None:
    with pytest.raises(CorruptRecordError, match=f"{codec} records do not decompress: .+") as caught:
        decompress(b"\x07 this is no stream of any codec", codec)
    assert caught.value.__context__ is None  # nothing keeps the memory of the batch alive


def test_claims_of_snappy_blocks_are_checked_first() -> None:
    for claim in (b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\x7f", b"\x80\x80\x40"):
        with pytest.raises(CorruptRecordError, match=re.compile("claims|limit")):
            decompress(claim + b"\0\0", "snappy")
    framing = compress(b"", "snappy")
    for length in (-1, 0, 5, 2**31 - 1):
        with pytest.raises(CorruptRecordError, match=f"a block claims {length} bytes, but 4 are left"):
            decompress(framing + struct.pack(">i", length) + b"\x01\x00a\0", "snappy")


def _zstd_with_window(log: int) -> bytes:
    """Return a frame of one raw block without a content size; its descriptor has the logarithm less 10."""
    block = struct.pack("<I", 1 | len(SMALL) << 3)[:3] + SMALL
    return zstandard.FRAME_HEADER + bytes([0, (log - 10) << 3]) + block


def test_a_zstd_window_above_128_mib_is_refused() -> None:
    assert decompress(_zstd_with_window(27), "zstd") == SMALL
    with pytest.raises(CorruptRecordError, match="memory"):
        decompress(_zstd_with_window(28), "zstd")


@pytest.mark.parametrize("codec", CODECS)
def test_threads_share_nothing(codec: str) -> None:
    """A zstd compressor that two threads share brings the interpreter down."""
    expected = compress(DATA, codec)
    results: list[bool] = []

    def work() -> None:
        results.extend(compress(DATA, codec) == expected for _ in range(10))
        results.extend(decompress(expected, codec) == DATA for _ in range(10))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 80
