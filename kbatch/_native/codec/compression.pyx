"""What the codecs of record batches do: bytes in, bytes out. `kbatch.codecs` has their names and levels.

libraries.pyx compresses and decompresses, without the GIL if that pays. Where it has no library, the codec's
package does it (packages.pyx). Framing follows Kafka's own clients:

- gzip: RFC 1952; several consecutive members are read. Without a level it uses isal's level 2; an explicit
  level is zlib's, with its common meaning. The output of isal's levels 1 and 2 depends, by a few bytes, on
  the address of the calling thread's memory; zlib's level 6 takes five times as long. If isal is not
  installed (some platforms have no wheel), zlib reads, and writes its level 1 if no level is given. Its
  streams are within some 5 % of the size of isal's level 2, in three to five times the time.
- snappy: blocks of 32 KiB in the framing of snappy-java ("xerial"); a raw block without framing is read too.
- lz4: LZ4 frames of independent 64 KiB blocks without content checksum (KIP-57); any frame is read.
- zstd: one frame with its content size; frames without, several frames and skippable frames are read.

Decompression never allocates the size that a frame claims: memory grows with the actual output, up to the
caller's limit.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t
from libc.string cimport memcpy, memset

from kbatch._native.codec.c cimport (
    KB_CODEC_MEMORY,
    KB_CODEC_NO_LIBRARY,
    KB_CODEC_OK,
    KB_DEFAULT_LEVEL,
    kb_codec_fault,
    kb_codec_status,
    kb_memory,
)
from kbatch._native.codec.libraries cimport compress_into, decompress_into, load_library
from kbatch._native.codec.memory cimport OwnedMemory, give_up, reserve
from kbatch._native.codec.packages cimport compress_by_package, decompress_by_package

from kbatch.codecs import CODEC_NAMES, CODECS
from kbatch.errors import CorruptRecordError


cdef str codec_name(int codec_id):
    return CODEC_NAMES[codec_id]


cdef int codec_id_of(object name) except -1:
    """Return the id of a codec's name. Raise ValueError, which names all, for an unknown one."""
    if name not in CODEC_NAMES:
        raise ValueError(f"compression must be one of {', '.join(CODEC_NAMES)}, got {name!r}")
    return CODEC_NAMES.index(name)


cdef int level_of(int codec_id, object level) except? -2147483648:
    """Return the level for the codec's functions. Raise ValueError outside Java's range."""
    if level is None:
        return KB_DEFAULT_LEVEL
    if isinstance(level, bool) or not isinstance(level, int):
        raise TypeError(f"compression_level must be an int or None, got {type(level).__name__}")
    name, levels = CODECS[codec_id].name, CODECS[codec_id].levels
    if levels is None:
        raise ValueError(f"compression {name!r} has no levels: omit compression_level, got {level}")
    if not levels.has(level):
        also = "" if levels.outside is None else f" (or {levels.outside} for the default)"
        raise ValueError(
            f"compression_level of {name} must be {levels.lowest} to {levels.highest}{also}, got {level}")
    return level


cdef int compress_to(int codec_id, const uint8_t *data, size_t size, int level, kb_memory *out) except -1:
    """Append the compressed bytes to `out`. Raise what the package does if it is missing or fails."""
    cdef kb_codec_status status
    cdef kb_codec_fault fault
    load_library(codec_id)
    if size > GIL_KEPT_CODEC_BYTES:
        with nogil:
            status = compress_into(codec_id, data, size, level, out, &fault)
    else:
        status = compress_into(codec_id, data, size, level, out, &fault)
    if status:
        end_compression(codec_id, data, size, level, out, status, &fault)
    return 0


cdef int end_compression(int codec_id, const uint8_t *data, size_t size, int level, kb_memory *out,
                         kb_codec_status status, const kb_codec_fault *fault) except -1:
    """Do what compress_into left, if that was for want of a library; else raise its failure."""
    cdef bytes packed
    if status == KB_CODEC_MEMORY:
        raise MemoryError(f"no memory to compress {size} bytes")
    if status != KB_CODEC_NO_LIBRARY:
        raise RuntimeError(f"{CODEC_NAMES[codec_id]} does not compress {size} bytes: {_words(fault)}")
    packed = compress_by_package(codec_id, data, size, level)
    reserve(out, PyBytes_GET_SIZE(packed))
    memcpy(out.data + out.used, PyBytes_AS_STRING(packed), PyBytes_GET_SIZE(packed))
    out.used += PyBytes_GET_SIZE(packed)
    return 0


cdef bytes compress_records(int codec_id, const uint8_t *data, size_t size, int level):
    cdef kb_memory out
    memset(&out, 0, sizeof(out))
    try:
        compress_to(codec_id, data, size, level, &out)
        return PyBytes_FromStringAndSize(<const char *>out.data, out.used)
    finally:
        give_up(&out)


cdef OwnedMemory decompress_records(int codec_id, const uint8_t *data, size_t size, size_t limit):
    """Return a batch's records, at most `limit` bytes. Raise CorruptRecordError for any fault in them."""
    cdef kb_memory out
    cdef kb_codec_status status
    cdef kb_codec_fault fault
    memset(&out, 0, sizeof(out))
    load_library(codec_id)
    if size > GIL_KEPT_CODEC_BYTES:
        with nogil:
            status = decompress_into(codec_id, data, size, &out, limit, &fault)
    else:
        status = decompress_into(codec_id, data, size, &out, limit, &fault)
    if status == KB_CODEC_OK:
        return OwnedMemory.take(out.data, out.used, out.capacity)
    give_up(&out)
    if status == KB_CODEC_NO_LIBRARY:
        return _decompressed_by_package(codec_id, data, size, limit)
    if status == KB_CODEC_MEMORY:
        raise MemoryError(f"no memory for the decompressed bytes of {size}")
    raise CorruptRecordError(f"{CODEC_NAMES[codec_id]} records do not decompress: {_words(&fault)}")


cdef OwnedMemory _decompressed_by_package(int codec_id, const uint8_t *data, size_t size, size_t limit):
    cdef bytes plain
    cdef OwnedMemory memory
    try:
        plain = decompress_by_package(codec_id, data, size, limit)
    except MemoryError:
        raise
    except Exception as error:
        plain = None
        reason = str(error) or type(error).__name__
    if plain is None:  # raised outside of the handler: no traceback may keep a view of foreign memory alive
        raise CorruptRecordError(f"{CODEC_NAMES[codec_id]} records do not decompress: {reason}")
    memory = OwnedMemory.new(PyBytes_GET_SIZE(plain), 1)
    memcpy(memory.data, PyBytes_AS_STRING(plain), PyBytes_GET_SIZE(plain))
    return memory


cdef str _words(const kb_codec_fault *fault):
    return (<const char *>fault.text).decode("utf-8", "replace")


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
    cdef OwnedMemory plain = decompress_records(codec, &view[0] if len(view) else NULL, len(view),
                                                max_decompressed_bytes)
    return PyBytes_FromStringAndSize(<const char *>plain.data, plain.size)
