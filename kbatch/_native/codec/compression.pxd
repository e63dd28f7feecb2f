from libc.stdint cimport int32_t, uint8_t

# The native signature of every codec: bytes in, a new bytes object out; with the GIL, once a batch.
ctypedef bytes (*compress_function)(const uint8_t *data, size_t size, int level)
ctypedef bytes (*decompress_function)(const uint8_t *data, size_t size, size_t limit)

ctypedef struct Codec:
    int id
    compress_function compress
    decompress_function decompress

cdef const Codec *codec_by_id(int codec_id) noexcept nogil
cdef str codec_name(int codec_id)
cdef int codec_id_of(object name) except -1
cdef int level_of(int codec_id, object level) except? -2147483648
cdef bytes compress_records(int codec_id, const uint8_t *data, size_t size, int level)
cdef bytes decompress_records(int codec_id, const uint8_t *data, size_t size, size_t limit)
