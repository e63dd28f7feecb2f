cimport cython
from libc.stdint cimport int32_t, int64_t

from kbatch._native.batch.producer_batch cimport ProducerBatch, kb_batch, kb_in_flight

cdef extern from "sequences.h" nogil:
    const int64_t KB_NO_RECORD
    const int64_t KB_UNKNOWN_NS

    ctypedef struct kb_identity:
        int64_t producer_id
        int32_t epoch

    ctypedef struct kb_gate:
        bint muted
        bint fresh_blocked
        int64_t retry_number

    ctypedef struct kb_rules

    ctypedef struct kb_sequences:
        const kb_rules *rules
        kb_in_flight *first
        int32_t count
        kb_identity identity
        int64_t next_counter
        int64_t acked_counter
        int64_t hole_end
        int64_t known_ns
        int32_t leader
        int32_t leader_epoch
        int64_t transaction
        bint is_doubtful
        bint is_stopped
        bint waits_for_identity
        kb_gate gate

    ctypedef struct kb_rules:
        void (*insert)(kb_sequences *sequences, kb_in_flight *entry, kb_in_flight *after) noexcept
        void (*remove)(kb_sequences *sequences, kb_in_flight *entry) noexcept
        void (*restart)(kb_sequences *sequences, kb_identity identity, int64_t counter) noexcept
        void (*number)(kb_sequences *sequences, kb_in_flight *entry) noexcept
        void (*acknowledge)(kb_sequences *sequences, const kb_in_flight *entry, int64_t oldest_ns) noexcept
        bint (*is_broken)(const kb_sequences *sequences) noexcept
        bint (*may_follow)(const kb_sequences *sequences, int64_t oldest_ns) noexcept
        kb_gate (*gate_under)(const kb_sequences *sequences, const kb_identity *identity,
                              int64_t max_in_flight, int64_t oldest_ns) noexcept

    const kb_rules KB_RULES

    kb_in_flight *kb_flight_begin(kb_batch *batch, int64_t now_ns, int64_t counter) noexcept
    void kb_sequences_init(kb_sequences *sequences, const kb_rules *rules) noexcept
    bint kb_has_hole(const kb_sequences *sequences) noexcept
    void kb_begin_leader(kb_sequences *sequences, int32_t leader, int32_t leader_epoch) noexcept
    void kb_begin_topic(kb_sequences *sequences, bint is_former) noexcept


@cython.final
cdef class InFlight:
    cdef readonly PartitionState state
    cdef readonly ProducerBatch batch
    cdef public object last_error
    cdef public object attempt
    cdef kb_in_flight *raw           # a part of the batch


@cython.final
cdef class PartitionState:
    cdef readonly str topic
    cdef readonly int32_t partition
    cdef readonly tuple key
    cdef public bytes topic_id
    cdef tuple _former_topic_ids  # while batches are in flight
    cdef set _entries                # owns what `raw` lists
    cdef kb_sequences raw

    cdef InFlight _entry_of(self, kb_in_flight *raw)
    cdef bint _forget(self, InFlight entry) except -1
    cdef int disown(self, InFlight entry) except -1


cdef kb_identity identity_of(object identity) except *

# The rules of all partitions.
cdef kb_rules RULES
