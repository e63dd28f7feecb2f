from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef uint32_t crc32c_extend(uint32_t crc, const uint8_t *data, size_t size) noexcept nogil
cdef uint32_t crc32c_combined(uint32_t crc_a, uint32_t crc_b, uint64_t size_b) noexcept nogil
