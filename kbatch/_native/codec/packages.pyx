"""The packages of the codecs: imported at a codec's first use, and called where their libraries cannot be
(libraries.pyx), with the GIL.

Framings and levels are those of libraries.pyx. snappy is not read here: src_c/snappy.h needs no library.
"""

from cpython.buffer cimport PyBUF_READ
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport uint8_t

from kbatch._native.codec.c cimport (
    KB_ISAL_LEVEL,
    KB_ZSTD_WINDOW_LOG,
    kb_gzip_is_fast,
    kb_lz4_level,
    kb_zlib_level,
    kb_zstd_frames_whole,
    kb_zstd_level,
)
from kbatch._native.codec.codecs cimport (
    KB_CODEC_COUNT,
    KB_CODEC_GZIP,
    KB_CODEC_LZ4,
    KB_CODEC_SNAPPY,
    KB_CODEC_ZSTD,
)

import importlib
import os
import struct
import zlib

from kbatch.unpatched import real_threading

ctypedef bytes (*compress_function)(const uint8_t *data, size_t size, int level)
ctypedef bytes (*decompress_function)(const uint8_t *data, size_t size, size_t limit)

cdef size_t FIRST_WINDOW = 65536
cdef size_t SNAPPY_BLOCK = 32768
SNAPPY_STREAM_HEADER = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)

# Imported packages by name; None if an optional one is not installed.
packages = {}
_per_thread = real_threading().local()
# A fork waits for another thread's import: the child would wait for ever for a half-imported module.
importing = real_threading().RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=importing.acquire, after_in_parent=importing.release,
                        after_in_child=importing.release)


def package(name):
    """Import the codec package at its codec's first use: `import kbatch` stays fast."""
    try:
        return packages[name]
    except KeyError:
        with importing:
            return packages.setdefault(name, importlib.import_module(name))


def optional_package(name):
    """Return the package, or None if it is not installed."""
    try:
        return package(name)
    except ModuleNotFoundError:
        return packages.setdefault(name, None)


cdef object _view(const uint8_t *data, size_t size):
    if size == 0:  # packages use the address even of empty bytes
        return b""
    return PyMemoryView_FromMemory(<char *>data, size, PyBUF_READ)


class _Members:
    """Streams of decompressors with `eof` and `unused_data` (gzip members, lz4 frames), read as one."""

    def __init__(self, new_member, data):
        self.new_member = new_member
        self.data = data
        self.member = new_member()

    def read(self, size):
        """Read up to `size` bytes; return b"" at a well-formed end, raise EOFError if the data ends before
        the stream.
        """
        while self.member is not None:
            chunk = self.member.decompress(self.data, size)
            if self.member.eof:
                self.data = self.member.unused_data or b""
                self.member = self.new_member() if len(self.data) else None
            elif chunk:
                self.data = getattr(self.member, "unconsumed_tail", b"")
            else:
                raise EOFError("the stream ends early")
            if chunk:
                return chunk
        return b""


cdef bytes _drain(object stream, size_t hint, size_t limit):
    """Return all bytes of `stream.read`; raise ValueError above `limit`. A window is at most twice the output
    so far.
    """
    cdef size_t total = 0
    cdef size_t window = max(FIRST_WINDOW, hint)
    cdef list chunks = []
    while True:
        chunk = stream.read(min(window, limit - total + 1))
        if not chunk:
            break
        total += len(chunk)
        if total > limit:
            raise ValueError(f"decompresses to more than the limit of {limit} bytes (max_decompressed_bytes)")
        chunks.append(chunk)
        window = max(window, total)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


cdef bytes _gzip(const uint8_t *data, size_t size, int level):
    if kb_gzip_is_fast(level):
        igzip = optional_package("isal.igzip_lib")
        if igzip is not None:
            return igzip.compress(_view(data, size), KB_ISAL_LEVEL, igzip.COMP_GZIP)
    return zlib.compress(_view(data, size), kb_zlib_level(level), 31)


cdef bytes _gunzip(const uint8_t *data, size_t size, size_t limit):
    new_member = (optional_package("isal.isal_zlib") or zlib).decompressobj
    return _drain(_Members(lambda: new_member(31), _view(data, size)), 4 * size, limit)


cdef bytes _snappy(const uint8_t *data, size_t size, int level):
    compress = package("cramjam").snappy.compress_raw
    cdef size_t at
    cdef list parts = [SNAPPY_STREAM_HEADER]
    for at in range(0, size, SNAPPY_BLOCK):
        block = compress(_view(data + at, min(SNAPPY_BLOCK, size - at)))
        parts.append(struct.pack(">i", len(block)))
        parts.append(block)
    return b"".join(parts)


cdef bytes _lz4(const uint8_t *data, size_t size, int level):
    frame = package("lz4.frame")
    return frame.compress(
        _view(data, size), compression_level=kb_lz4_level(level), block_size=frame.BLOCKSIZE_MAX64KB,
        block_linked=False, store_size=False,
    )


cdef bytes _unlz4(const uint8_t *data, size_t size, size_t limit):
    return _drain(_Members(package("lz4.frame").LZ4FrameDecompressor, _view(data, size)), 4 * size, limit)


cdef bytes _zstd(const uint8_t *data, size_t size, int level):
    # two threads sharing a compressor would crash the interpreter: each thread has its own
    try:
        compressors = _per_thread.zstd_compressors
    except AttributeError:
        compressors = _per_thread.zstd_compressors = {}
    compressor = compressors.get(level)
    if compressor is None:
        compressor = package("zstandard").ZstdCompressor(level=kb_zstd_level(level))
        compressors[level] = compressor
    return compressor.compress(_view(data, size))


cdef bytes _unzstd(const uint8_t *data, size_t size, size_t limit):
    if not kb_zstd_frames_whole(data, size):
        raise EOFError("the stream ends early")
    decompressor = package("zstandard").ZstdDecompressor(max_window_size=1 << KB_ZSTD_WINDOW_LOG)
    reader = decompressor.stream_reader(_view(data, size), read_across_frames=True)
    return _drain(reader, 4 * size, limit)


# By id; "none", and reading snappy, need no package.
cdef compress_function[KB_CODEC_COUNT] COMPRESS
COMPRESS[KB_CODEC_GZIP] = _gzip
COMPRESS[KB_CODEC_SNAPPY] = _snappy
COMPRESS[KB_CODEC_LZ4] = _lz4
COMPRESS[KB_CODEC_ZSTD] = _zstd
cdef decompress_function[KB_CODEC_COUNT] DECOMPRESS
DECOMPRESS[KB_CODEC_GZIP] = _gunzip
DECOMPRESS[KB_CODEC_LZ4] = _unlz4
DECOMPRESS[KB_CODEC_ZSTD] = _unzstd


cdef bytes compress_by_package(int codec, const uint8_t *data, size_t size, int level):
    return COMPRESS[codec](data, size, level)


cdef bytes decompress_by_package(int codec, const uint8_t *data, size_t size, size_t limit):
    return DECOMPRESS[codec](data, size, limit)
