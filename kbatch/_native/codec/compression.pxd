from libc.stdint cimport uint8_t

from kbatch._native.codec.c cimport kb_codec_fault, kb_codec_status, kb_memory
from kbatch._native.codec.memory cimport OwnedMemory

cdef enum:
    # A codec is done with so many bytes before another thread would get far with the GIL.
    GIL_KEPT_CODEC_BYTES = 2048

cdef str codec_name(int codec_id)
cdef int codec_id_of(object name) except -1
cdef int level_of(int codec_id, object level) except? -2147483648
cdef int compress_to(int codec_id, const uint8_t *data, size_t size, int level, kb_memory *out) except -1
cdef int end_compression(int codec_id, const uint8_t *data, size_t size, int level, kb_memory *out,
                         kb_codec_status status, const kb_codec_fault *fault) except -1
cdef bytes compress_records(int codec_id, const uint8_t *data, size_t size, int level)
cdef OwnedMemory decompress_records(int codec_id, const uint8_t *data, size_t size, size_t limit)
