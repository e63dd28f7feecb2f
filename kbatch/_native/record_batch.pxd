from cpython.object cimport PyObject
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kbatch._native.c cimport (
    kb_batch_header,
    kb_open_batch,
    kb_record,
    kb_record_error,
    kb_record_header,
    kb_span,
)


cdef class Record:
    cdef readonly int64_t offset
    cdef int64_t _timestamp_ms
    cdef bint _has_timestamp
    cdef readonly object key
    cdef readonly object value
    cdef readonly tuple headers


cdef class RecordBatchWriter:
    cdef int _codec
    cdef int _level
    cdef int _state
    cdef int64_t _write_limit
    cdef double _factor
    cdef kb_batch_header _header
    cdef kb_open_batch _open
    cdef bint _has_horizon
    cdef int64_t _now_ms
    cdef PyObject *_data   # bytes, owned; only while nobody else has seen them are they written to
    cdef bint _shared
    cdef size_t _size
    cdef kb_record_header *_headers
    cdef Py_ssize_t _headers_capacity
    cdef list _kept

    cdef int _begin(self) except -1
    cdef int _append_item(self, object item) except -1
    cdef int _append(self, object key, object value, object headers, object timestamp_ms, int32_t offset_delta) except -1
    cdef int64_t _measure(self, kb_record *record, object key, object value, object headers, object timestamp_ms,
                          int32_t offset_delta) except -1
    cdef int64_t _delta(self, int64_t timestamp_ms) noexcept
    cdef int64_t _timestamp_of(self, object timestamp_ms) except? -2
    cdef kb_span _span_of(self, object data, str field) except *
    cdef int _take_headers(self, tuple items, kb_record *record) except -1
    cdef int _reserve(self, size_t size) except -1
    cdef int _compress(self) except -1
    cdef int _own(self, bytes data) except -1
    cdef uint8_t *_bytes(self) noexcept
    cdef int _resize(self, size_t size) except -1
    cdef str _at(self)


cdef class Source:
    cdef Py_buffer view

cdef int32_t last_sequence(int32_t base_sequence, int32_t last_offset_delta) noexcept nogil
cdef void seal_batch(uint8_t *batch, size_t size, kb_batch_header *header) noexcept nogil
cdef int64_t record_timestamp(const kb_batch_header *header, int64_t delta) noexcept nogil
cdef object record_error(kb_record_error error, int32_t index, int64_t base_offset)
cdef int check_header(const uint8_t *batch, const kb_batch_header *header, bint check_crc, str where) except -1
cdef Py_ssize_t whole_batch(const uint8_t *data, size_t left, kb_batch_header *header, str where) except -1
cdef bytes open_body(const uint8_t *batch, const kb_batch_header *header, size_t limit, const uint8_t **start,
                     const uint8_t **end)
cdef size_t decompression_limit(object max_decompressed_bytes) except? 0
