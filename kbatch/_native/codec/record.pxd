from libc.stdint cimport int32_t, int64_t


cdef class Record:
    cdef readonly int64_t offset
    cdef int64_t _timestamp_ms
    cdef bint _has_timestamp
    cdef bint _is_log_append_time  # of a ConsumerRecord; here it fills a gap
    cdef readonly object key
    cdef readonly object value
    cdef readonly tuple headers


cdef class ConsumerRecord(Record):
    cdef readonly str topic
    cdef readonly int32_t partition
    cdef readonly int32_t leader_epoch
