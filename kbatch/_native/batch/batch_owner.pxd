from libc.stdint cimport int16_t, int32_t, int64_t

from kbatch._native.batch.buffer_pool cimport BufferPool
from kbatch._native.codec.lock cimport kb_lock

cdef int64_t later(int64_t now_ns, int64_t delay_ns) noexcept nogil


cdef class ListedBatch:
    cdef readonly int64_t created_ns
    # under _incomplete_lock of its owner
    cdef ListedBatch _newer
    cdef ListedBatch _older
    cdef bint _listed


cdef class BatchOwner:
    cdef readonly BufferPool memory
    cdef readonly int64_t batch_size
    cdef readonly int64_t linger_ns
    cdef int64_t _delivery_timeout_ns
    cdef int codec
    cdef int level
    cdef int16_t attributes
    cdef object _wake
    cdef public frozenset busy_nodes  # that take nothing, of whose next change the sender hears by itself
    cdef public bint wakes_always    # for them too: it is to be let run before it can hear of anything
    # under _incomplete_lock
    cdef kb_lock _incomplete_lock
    cdef ListedBatch _oldest
    cdef ListedBatch _newest
    cdef int64_t _incomplete_count
    # under _filled_lock
    cdef kb_lock _filled_lock
    cdef list _filled                # queues that were empty, and are not
    # under _alarm_lock
    cdef kb_lock _alarm_lock
    cdef int64_t _alarm_ns

    cdef void add_incomplete(self, ListedBatch batch, ListedBatch older) noexcept
    cdef void remove_incomplete(self, ListedBatch batch) noexcept
    cdef list incomplete(self)
    cdef void note_filled(self, object queue) noexcept
    cdef list take_filled(self)
    cdef void alarm(self, int64_t deadline_ns) noexcept
    cdef void alarm_for(self, int32_t node, ListedBatch batch, int64_t delay_ns) noexcept
    cdef bint is_due(self) noexcept
