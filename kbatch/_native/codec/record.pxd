from libc.stdint cimport int64_t


cdef class Record:
    cdef readonly int64_t offset
    cdef int64_t _timestamp_ms
    cdef bint _has_timestamp
    cdef readonly object key
    cdef readonly object value
    cdef readonly tuple headers
