from libc.stdint cimport int32_t, int64_t, uint64_t

from kbatch._native.lock cimport kb_lock
from kbatch._native.send.cluster_view cimport TopicView

cdef extern from "random.h" nogil:
    uint64_t kb_random_next(uint64_t *state) noexcept
    double kb_random_fraction(uint64_t *state) noexcept


cdef class StickyPartitioner:
    cdef int64_t _batch_size
    # under _lock; _partition is written under the lock of the partition that it leaves besides
    cdef kb_lock _lock
    cdef int32_t _partition
    cdef int64_t _produced_bytes
    cdef uint64_t _random
    cdef int32_t *_partitions        # of the load table
    cdef int64_t *_frequencies       # cumulated
    cdef int32_t _load_count         # 0: no table, all partitions alike
    cdef int32_t _load_capacity

    cdef int32_t peek(self, TopicView view) noexcept nogil
    cdef bint has_left(self, int32_t partition) noexcept nogil
    cdef int64_t room_bytes(self) noexcept nogil
    cdef void count(self, TopicView view, int64_t appended_bytes, bint may_switch) noexcept nogil
    cdef void set_load(self, const int32_t *partitions, const int32_t *queue_lengths, int32_t count,
                       int32_t partition_count) noexcept
    cdef bint _reserve_load(self, int32_t count) noexcept
    cdef int32_t _chosen(self, TopicView view, uint64_t random) noexcept nogil
