"""The codecs of record batches: one table, one native signature, so that a linked library can replace a
package.

Framing follows Kafka's own clients:

- gzip: RFC 1952; several consecutive members are read. Without a level it uses isal's level 2; an explicit
  level is zlib's, with its common meaning. The output of isal's levels 1 and 2 depends, by a few bytes, on
  the address of the calling thread's memory; zlib's level 6 takes five times as long. If isal is not
  installed (some platforms have no wheel), zlib reads, and writes its level 1 if no level is given: its
  streams are within some 5 % of the size of isal's level 2, in three to five times the time.
- snappy: blocks of 32 KiB in the framing of snappy-java ("xerial"); a raw block without framing is read too.
- lz4: LZ4 frames of independent 64 KiB blocks without content checksum (KIP-57); any frame is read.
- zstd: one frame with its content size; frames without, several frames and skippable frames are read.

Decompression never allocates the size that a frame claims: output comes in windows that grow with the actual
output, up to the caller's limit.
"""

from cpython.buffer cimport PyBUF_READ
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.limits cimport INT_MIN
from libc.stdint cimport uint8_t

from kbatch._native.codec.c cimport kb_zstd_frames_whole

import importlib
import os
import struct
import threading
import zlib

from kbatch.errors import CorruptRecordError

cdef int DEFAULT_LEVEL = INT_MIN
# zlib's level nearest to isal's level 2, in time and in size.
cdef int ZLIB_FAST_LEVEL = 1
cdef size_t FIRST_WINDOW = 65536
cdef size_t SNAPPY_BLOCK = 32768
# A snappy copy of three bytes yields at most 64.
cdef size_t SNAPPY_EXPANSION = 22
# The limit of zstd itself and of Java's binding (ZSTD_WINDOWLOG_LIMIT_DEFAULT).
ZSTD_MAX_WINDOW = 1 << 27
SNAPPY_MAGIC = b"\x82SNAPPY\0"
SNAPPY_STREAM_HEADER = SNAPPY_MAGIC + struct.pack(">ii", 1, 1)

_modules = {}
_per_thread = threading.local()
# A fork waits for another thread's import: the child would wait for ever for a half-imported module.
_importing = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_importing.acquire, after_in_parent=_importing.release,
                        after_in_child=_importing.release)


def _module(name):
    """Import the codec package at its codec's first use: `import kbatch` stays fast."""
    try:
        return _modules[name]
    except KeyError:
        with _importing:
            return _modules.setdefault(name, importlib.import_module(name))


def _isal(name):
    """Return isal's module of that name, or None if isal is not installed."""
    name = f"isal.{name}"
    try:
        return _module(name)
    except ModuleNotFoundError:
        return _modules.setdefault(name, None)


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


cdef bytes _copy(const uint8_t *data, size_t size, int level):
    return PyBytes_FromStringAndSize(<const char *>data, size)


cdef bytes _copy_back(const uint8_t *data, size_t size, size_t limit):
    return PyBytes_FromStringAndSize(<const char *>data, size)


cdef bytes _gzip(const uint8_t *data, size_t size, int level):
    if level == DEFAULT_LEVEL or level == -1:
        igzip = _isal("igzip_lib")
        if igzip is not None:
            return igzip.compress(_view(data, size), 2, igzip.COMP_GZIP)
        level = ZLIB_FAST_LEVEL
    return zlib.compress(_view(data, size), level, 31)


cdef bytes _gunzip(const uint8_t *data, size_t size, size_t limit):
    new_member = (_isal("isal_zlib") or zlib).decompressobj
    return _drain(_Members(lambda: new_member(31), _view(data, size)), 4 * size, limit)


cdef bytes _snappy(const uint8_t *data, size_t size, int level):
    compress = _module("cramjam").snappy.compress_raw
    cdef size_t at
    cdef list parts = [SNAPPY_STREAM_HEADER]
    for at in range(0, size, SNAPPY_BLOCK):
        block = compress(_view(data + at, min(SNAPPY_BLOCK, size - at)))
        parts.append(struct.pack(">i", len(block)))
        parts.append(block)
    return b"".join(parts)


cdef object _unsnap_block(object snappy, object block, size_t room):
    """Decompress one raw block, after checking its claimed length."""
    cdef size_t claimed = snappy.decompress_raw_len(block)
    if claimed > room:
        raise ValueError(f"a block decompresses to {claimed} bytes, above the limit (max_decompressed_bytes)")
    if claimed > SNAPPY_EXPANSION * len(block):
        raise ValueError(f"a block of {len(block)} bytes cannot hold the {claimed} bytes that it claims")
    return snappy.decompress_raw(block)


cdef bytes _unsnap(const uint8_t *data, size_t size, size_t limit):
    snappy = _module("cramjam").snappy
    whole = _view(data, size)
    if whole[:8] != SNAPPY_MAGIC:
        return bytes(_unsnap_block(snappy, whole, limit))
    cdef size_t at = 16  # magic, version and compatible version; the last two come in either byte order
    cdef size_t total = 0
    cdef list parts = []
    while at < size:
        if whole[at:at + 8] == SNAPPY_MAGIC:  # consecutive streams, as snappy-java reads them
            at += 16
            continue
        if size - at < 4:
            raise EOFError("the stream ends early")
        length = struct.unpack_from(">i", whole, at)[0]
        at += 4
        if length <= 0 or <size_t>length > size - at:
            raise ValueError(f"a block claims {length} bytes, but {size - at} are left")
        block = _unsnap_block(snappy, whole[at:at + length], limit - total)
        at += length
        total += len(block)
        parts.append(block)
    if at != size:
        raise EOFError("the stream ends early")
    return b"".join(parts)


cdef bytes _lz4(const uint8_t *data, size_t size, int level):
    frame = _module("lz4.frame")
    return frame.compress(
        _view(data, size), compression_level=_lz4_level(level), block_size=frame.BLOCKSIZE_MAX64KB,
        block_linked=False, store_size=False,
    )


cdef int _lz4_level(int level) noexcept nogil:
    """Return lz4's level: Java's 9, its default, is the fast compressor; every other level of 1..17 is high
    compression, 3..12 here.
    """
    if level == DEFAULT_LEVEL or level == 9:
        return 0
    return min(max(level, 3), 12)


cdef bytes _unlz4(const uint8_t *data, size_t size, size_t limit):
    return _drain(_Members(_module("lz4.frame").LZ4FrameDecompressor, _view(data, size)), 4 * size, limit)


cdef bytes _zstd(const uint8_t *data, size_t size, int level):
    # two threads sharing a compressor would crash the interpreter: each thread has its own
    try:
        compressors = _per_thread.zstd_compressors
    except AttributeError:
        compressors = _per_thread.zstd_compressors = {}
    compressor = compressors.get(level)
    if compressor is None:
        compressor = _module("zstandard").ZstdCompressor(level=3 if level == DEFAULT_LEVEL else level)
        compressors[level] = compressor
    return compressor.compress(_view(data, size))


cdef bytes _unzstd(const uint8_t *data, size_t size, size_t limit):
    if not kb_zstd_frames_whole(data, size):
        raise EOFError("the stream ends early")
    decompressor = _module("zstandard").ZstdDecompressor(max_window_size=ZSTD_MAX_WINDOW)
    reader = decompressor.stream_reader(_view(data, size), read_across_frames=True)
    return _drain(reader, 4 * size, limit)


# By id, the low three bits of a batch's attributes.
cdef Codec[5] CODECS
CODECS[0] = Codec(0, _copy, _copy_back)
CODECS[1] = Codec(1, _gzip, _gunzip)
CODECS[2] = Codec(2, _snappy, _unsnap)
CODECS[3] = Codec(3, _lz4, _unlz4)
CODECS[4] = Codec(4, _zstd, _unzstd)

codec_names = ("none", "gzip", "snappy", "lz4", "zstd")
# (lowest, highest, another value that means the default), from Java's CompressionType.
level_ranges = {"gzip": (1, 9, -1), "lz4": (1, 17, None), "zstd": (-131072, 22, None)}


cdef const Codec *codec_by_id(int codec_id) noexcept nogil:
    return &CODECS[codec_id] if 0 <= codec_id < 5 else NULL


cdef str codec_name(int codec_id):
    return codec_names[codec_id]


cdef int codec_id_of(object name) except -1:
    """Return the id of a codec's name. Raise ValueError, which names all, for an unknown one."""
    if name not in codec_names:
        raise ValueError(f"compression must be one of {', '.join(codec_names)}, got {name!r}")
    return codec_names.index(name)


cdef int level_of(int codec_id, object level) except? -2147483648:
    """Return the level for the codec's functions. Raise ValueError outside Java's range."""
    if level is None:
        return DEFAULT_LEVEL
    if isinstance(level, bool) or not isinstance(level, int):
        raise TypeError(f"compression_level must be an int or None, got {type(level).__name__}")
    name = codec_names[codec_id]
    if name not in level_ranges:
        raise ValueError(f"compression {name!r} has no levels: omit compression_level, got {level}")
    lowest, highest, other = level_ranges[name]
    if not lowest <= level <= highest and level != other:
        also = "" if other is None else f" (or {other} for the default)"
        raise ValueError(f"compression_level of {name} must be {lowest} to {highest}{also}, got {level}")
    return level


cdef bytes compress_records(int codec_id, const uint8_t *data, size_t size, int level):
    return CODECS[codec_id].compress(data, size, level)


cdef bytes decompress_records(int codec_id, const uint8_t *data, size_t size, size_t limit):
    """Return a batch's records, at most `limit` bytes. Raise CorruptRecordError for any fault in them."""
    try:
        return CODECS[codec_id].decompress(data, size, limit)
    except MemoryError:
        raise
    except Exception as error:
        reason = str(error) or type(error).__name__
    # raised outside of the handler: no traceback may keep a view of foreign memory alive
    raise CorruptRecordError(f"{codec_names[codec_id]} records do not decompress: {reason}")


def compress(data, compression, compression_level=None):
    """Return `data`, bytes, compressed like the records of a batch: bytes."""
    cdef int codec = codec_id_of(compression)
    cdef const uint8_t[::1] view = data
    return compress_records(codec, &view[0] if len(view) else NULL, len(view), level_of(codec,
        compression_level))


def decompress(data, compression, max_decompressed_bytes=268435456):
    """Reverse `compress`: return bytes. Raise CorruptRecordError if `data` is not a stream of that codec."""
    cdef int codec = codec_id_of(compression)
    cdef const uint8_t[::1] view = data
    return decompress_records(codec, &view[0] if len(view) else NULL, len(view), max_decompressed_bytes)
