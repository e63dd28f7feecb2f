from libc.stdint cimport int32_t, int64_t

cdef extern from "lent.h" nogil:
    ctypedef struct kb_lent_request:
        int32_t correlation_id
        int64_t created_ns
        int64_t written_ns
        int64_t start_offset
        int64_t end_offset
        bint is_counted


cdef class LentRequest:
    cdef kb_lent_request *sent       # NULL while the borrower has it

    cdef kb_lent_request *_seen(self) except NULL
