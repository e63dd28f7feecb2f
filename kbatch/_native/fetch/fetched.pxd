from libc.stdint cimport int32_t, int64_t

from kbatch._native.fetch.budget cimport FrameShare
from kbatch._native.fetch.fetched_batches cimport FetchedRecords


cdef class Fetched:
    cdef readonly object partition
    cdef public int64_t generation
    cdef public FetchedRecords records   # native code reads it by `records_now`
    cdef public int64_t from_offset
    cdef public int64_t next_offset
    cdef public bytes topic_id
    cdef public int32_t last_epoch
    cdef public bint is_last
    cdef readonly int64_t size_bytes
    cdef readonly object state
    cdef readonly FrameShare share
    cdef readonly int64_t charged_bytes

    cdef int let_go(self) except -1
    cdef FetchedRecords records_now(self)


cdef Fetched new_fetched(object state, FetchedRecords records, int64_t from_offset, int64_t next_offset,
                         bint is_last, int32_t last_epoch, int64_t size_bytes)
