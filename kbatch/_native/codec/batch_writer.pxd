from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t

from kbatch._native.codec.c cimport kb_batch_header, kb_open_batch, kb_record, kb_record_header, kb_span


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
    cdef PyObject *_data   # bytes, owned; written to only while no other object has seen them
    cdef bint _shared
    cdef bint _busy
    cdef size_t _size
    cdef kb_record_header *_headers
    cdef Py_ssize_t _headers_capacity
    cdef list _kept

    cdef int _begin(self) except -1
    cdef int _append_item(self, object item) except -1
    cdef int _append_at(self, object key, object value, object headers, object timestamp_ms, object offset,
                        int64_t delta) except -1
    cdef int _enter(self, str verb) except -1
    cdef int _exit(self) except -1
    cdef int _check_state(self, int state, str verb) except -1
    cdef int _append(self, object key, object value, object headers, object timestamp_ms,
                     int32_t offset_delta) except -1
    cdef int64_t _measure(self, kb_record *record, object key, object value, object headers,
                          object timestamp_ms,
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
