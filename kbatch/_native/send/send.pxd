from libc.stdint cimport int32_t, int64_t

from kbatch._native.batch.buffer_pool cimport Claim
from kbatch._native.codec.c cimport kb_record
from kbatch._native.codec.record_fields cimport HeaderSpans
from kbatch._native.send.accumulator cimport RecordAccumulator, TopicInfo
from kbatch._native.send.encoded_batch cimport PendingBatch


cdef int64_t most_bytes(const kb_record *record) noexcept nogil
cdef object beyond_request(int64_t size, int64_t max_request_bytes)


cdef struct Ready:
    kb_record record                 # points into what is kept beside it
    int64_t transaction              # in which it was given to the producer
    bint has_time                    # given by the caller
    int32_t given_partition          # -1: none
    int32_t partition                # that was chosen; -1: the sticky one, -2: none yet


cdef class PendingRecord:
    cdef public str topic
    cdef public object value
    cdef public object key
    cdef public object headers
    cdef public object partition
    cdef public object timestamp_ms
    cdef public object on_delivery
    cdef readonly int64_t transaction
    cdef readonly bint is_serialized
    # of what is serialized
    cdef bytes _key
    cdef bytes _value
    cdef HeaderSpans _spans
    cdef Ready _ready

    cdef void keep(self, const Ready *ready, bytes key, bytes value, HeaderSpans spans) noexcept


cdef class RecordSender:
    cdef readonly RecordAccumulator _accumulator
    cdef public bint _gives_way
    cdef public bint _is_giving_way
    cdef public int64_t _turn_left
    cdef public object _loop_is_running
    cdef readonly int64_t _slow_count
    cdef readonly int64_t _refused_count
    cdef int64_t max_request_bytes
    cdef object _key_serializer
    cdef object _value_serializer
    cdef bint _adds_headers
    cdef public set _key_topics
    cdef public set _value_topics
    cdef object partitioner
    cdef bint hashes_keys

    cdef bint _is_on_loop(self) except -1
    cdef bint _must_give_way(self) noexcept
    cdef object _send(self, str topic, object value, object key, object headers, object partition,
                      object timestamp_ms, object on_delivery, bint may_wait)
    cdef object _send_item(self, str topic, object item)
    cdef object _send_encoded(self, PendingBatch batch)
    cdef bint _goes_at_once(self, bint may_wait) noexcept
    cdef bint _may_serialize(self, str topic, object key, object value) except -1
    cdef object _send_refused(self, object pending, object refusal, bint may_wait)
    cdef int _refuse(self, object pending, object error) except -1
    cdef Claim _claim(self, Claim claim) noexcept
    cdef object _attempt_batch(self, PendingBatch batch, Claim claim)
    cdef object _attempt_pending(self, PendingRecord record, Claim claim)
    cdef object _attempt(self, str topic, Ready *ready, bytes key, bytes value, object on_delivery,
                         Claim claim)
    cdef int _check(self, Ready *ready, object partition, object timestamp_ms, object on_delivery) except -1
    cdef int _check_size(self, const kb_record *record) except -1
    cdef bint _choose_partition(self, TopicInfo info, Ready *ready, bytes key, bytes value) except -1
