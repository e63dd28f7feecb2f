from libc.stdint cimport int32_t, int64_t, uint8_t

from kbatch._native.codec.c cimport kb_batch_header, kb_record_error, kb_record_view
from kbatch._native.codec.memory cimport OwnedMemory
from kbatch._native.codec.record cimport Record


cdef class Source:
    cdef Py_buffer view

cdef int64_t checked_int(object value, str name, int64_t lowest, int64_t highest) except? -2
cdef int32_t last_sequence(int32_t base_sequence, int32_t last_offset_delta) noexcept nogil
cdef void seal_batch(uint8_t *batch, size_t size, kb_batch_header *header) noexcept nogil
cdef void stamp_batch(uint8_t *batch, size_t size, kb_batch_header *header) noexcept nogil
cdef int fill_from_view(Record record, const kb_batch_header *header, const kb_record_view *view) except -1
cdef int64_t record_timestamp(const kb_batch_header *header, int64_t delta) noexcept nogil
cdef object record_error(kb_record_error error, int32_t index, int64_t base_offset)
cdef int check_header(const uint8_t *batch, const kb_batch_header *header, bint check_crc,
                      str where) except -1
cdef Py_ssize_t whole_batch(const uint8_t *data, size_t left, kb_batch_header *header, str where) except -1
cdef OwnedMemory open_body(const uint8_t *batch, const kb_batch_header *header, size_t limit,
                           const uint8_t **start, const uint8_t **end)
cdef size_t decompression_limit(object max_decompressed_bytes) except? 0
