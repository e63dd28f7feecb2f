# Codecs without the GIL, by the libraries that the codecs' packages contain. `codec` is an id of
# codec_ids.h. The first call for one may take the GIL to load its library: hold no lock.
# Both append to `out`, which grows with what comes out. A failure leaves `out` as it was, and a reason in
# `fault`. After KB_CODEC_NO_LIBRARY, take the GIL and call compression.pyx, which has the package do it.

from libc.stdint cimport uint8_t

from kbatch._native.codec.c cimport kb_codec_fault, kb_codec_status, kb_memory

# At most `limit` bytes come out of a stream; more are KB_CODEC_LIMIT.
cdef kb_codec_status decompress_into(int codec, const uint8_t *data, size_t size, kb_memory *out,
                                     size_t limit, kb_codec_fault *fault) noexcept nogil
# `level` is from compression.pyx's level_of.
cdef kb_codec_status compress_into(int codec, const uint8_t *data, size_t size, int level, kb_memory *out,
                                   kb_codec_fault *fault) noexcept nogil
cdef int load_library(int codec) except -1
