cimport cython
from libc.stdint cimport int32_t, int64_t

from kbatch._native.batch.producer_batch cimport ProducerBatch


@cython.final
cdef class InFlight:
    cdef readonly PartitionState state
    cdef readonly ProducerBatch batch
    cdef readonly int64_t number
    cdef readonly int32_t record_count
    cdef readonly int64_t sent_ns
    cdef public int64_t counter
    cdef public int32_t node_id
    cdef public bint is_in_flight
    cdef public bint is_ambiguous
    cdef public bint is_set_aside
    cdef public bint is_proved
    cdef public object last_error
    cdef public object attempt


@cython.final
cdef class PartitionState:
    cdef readonly str topic
    cdef readonly int32_t partition
    cdef readonly tuple key
    cdef public bytes topic_id
    cdef readonly int32_t leader
    cdef readonly int32_t leader_epoch
    cdef public list in_flight
    cdef public object identity
    cdef public int64_t next_counter
    cdef public int64_t acked_counter
    cdef public int64_t hole_end
    cdef public int64_t known_ns
    cdef public bint is_doubtful
    cdef public bint is_stopped
    cdef public bint waits_for_identity
    cdef public tuple gate

    cdef bint _has_hole(self) noexcept
    cdef bint _is_broken(self) noexcept
    cdef InFlight _add(self, ProducerBatch batch, int64_t now_ns)
    cdef int _acknowledge(self, InFlight entry, int64_t oldest_ns) except -1
    cdef tuple _gate_under(self, object identity, Py_ssize_t max_in_flight, int64_t oldest_ns)
