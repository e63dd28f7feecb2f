from libc.stdint cimport int32_t, int64_t

from kbatch._native.buffer_memory cimport Turn
from kbatch._native.c cimport kb_record
from kbatch._native.cluster_view cimport TopicView
from kbatch._native.encoded_batch cimport PendingBatch
from kbatch._native.record_appender cimport RecordAppender
from kbatch._native.record_fields cimport HeaderSpans


cdef object too_large(const kb_record *record, int64_t max_request_bytes)


cdef class PendingRecord:
    cdef public str topic
    cdef public object value
    cdef public object key
    cdef public object headers
    cdef public object partition
    cdef public object timestamp_ms
    cdef public object on_delivery
    cdef readonly bint is_serialized
    # of what is serialized
    cdef bytes _key
    cdef bytes _value
    cdef HeaderSpans _spans
    cdef kb_record _record           # points into them
    cdef int32_t _asked_partition    # -1: none
    cdef int32_t _partition          # that was chosen; -1: the sticky one


cdef class RecordSender:
    cdef readonly RecordAppender accumulator
    cdef public bint sends_directly
    cdef public bint gives_way
    cdef public bint is_giving_way
    cdef public unsigned long callback_thread_ident
    cdef public object loop_is_running
    cdef readonly int64_t slow_count
    cdef readonly int64_t refused_count
    cdef int64_t _max_request_bytes
    cdef object _key_serializer
    cdef object _value_serializer
    cdef object _partitioner
    cdef bint _hashes_keys

    cdef bint _is_on_loop(self) except -1
    cdef bint _must_give_way(self) noexcept
    cdef object _send(self, object pending, bint may_wait)
    cdef object _attempt(self, object pending, Turn turn)
    cdef object _attempt_record(self, PendingRecord record, Turn turn)
    cdef object _attempt_batch(self, PendingBatch batch, Turn turn)
    cdef int _serialize(self, PendingRecord record) except -1
    cdef int _check_size(self, const kb_record *record) except -1
    cdef bint _choose_partition(self, PendingRecord record) except -1
    cdef int32_t _partition_for(self, PendingRecord record, TopicView view) except? -2
