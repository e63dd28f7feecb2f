from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t

from kbatch._native.codec.c cimport kb_batch_header


cdef class PendingBatch:
    cdef readonly str topic
    cdef readonly object partition
    cdef public object on_delivery
    cdef public int64_t transaction
    cdef readonly bint is_checked
    cdef object _given
    # of what is checked
    cdef int32_t checked_partition
    cdef bytes data
    cdef kb_batch_header header
    cdef uint32_t body_crc

    @staticmethod
    cdef PendingBatch new(str topic, object partition, object batch_bytes, object on_delivery)
    cdef int check(self, int16_t attributes, int64_t max_bytes) except -1
    cdef int _check_frame(self) except -1
    cdef int _check_crc(self) except -1
    cdef int _check_attributes(self, int16_t ours) except -1
    cdef int _check_count(self) except -1
    cdef int _check_sizes(self, int64_t body_bytes) except -1
    cdef int _check_producer(self) except -1
