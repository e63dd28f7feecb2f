from libc.stdint cimport int64_t

cdef extern from "fetch_budget.h" nogil:
    ctypedef struct kb_budget:
        int64_t limit
        int64_t reserved
        int64_t unread

    int64_t kb_budget_used(const kb_budget *budget) noexcept
    int64_t kb_budget_request_bytes(const kb_budget *budget, int64_t node_count) noexcept
    int64_t kb_budget_backlog_bytes(const kb_budget *budget, int64_t partition_count, bint is_shared) noexcept
    bint kb_budget_is_crowded(const kb_budget *budget) noexcept
    bint kb_budget_reserve(kb_budget *budget, int64_t size) noexcept


cdef class Budget:
    cdef kb_budget raw


cdef class FrameShare:
    cdef Budget _budget
    cdef readonly int64_t frame_bytes
    cdef int64_t _piece_count
    cdef readonly int64_t piece_bytes

    cdef void let_go(self) noexcept
