from libc.stdint cimport int32_t, int64_t


cdef class RecordOrigin:
    cdef bytes topic_id
    cdef int32_t partition
    cdef int32_t leader_epoch
    cdef bint is_log_append_time


# It has the fields of a ConsumerRecord, too: objects of both are equally large, and share a free list.
cdef class Record:
    cdef readonly int64_t offset
    cdef int64_t _timestamp_ms
    cdef bint _has_timestamp
    cdef readonly object key
    cdef readonly object value
    cdef readonly tuple headers
    cdef str _topic
    cdef RecordOrigin _origin


cdef class ConsumerRecord(Record):
    pass


cdef RecordOrigin record_origin(bytes topic_id, int32_t partition, int32_t leader_epoch,
                                bint is_log_append_time)
