from libc.stdint cimport int64_t


cdef class SealPolicy:
    cdef readonly bint by_appender
    cdef readonly int64_t inline_bytes
