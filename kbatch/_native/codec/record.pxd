from libc.stdint cimport int32_t, int64_t


# It has the fields of a ConsumerRecord, too: objects of both are equally large, and share a free list.
cdef class Record:
    cdef readonly int64_t offset
    cdef int64_t _timestamp_ms
    cdef bint _has_timestamp
    cdef bint _is_log_append_time
    cdef readonly object key
    cdef readonly object value
    cdef readonly tuple headers
    cdef str _topic
    cdef bytes _topic_id
    cdef int32_t _partition
    cdef int32_t _leader_epoch


cdef class ConsumerRecord(Record):
    pass
