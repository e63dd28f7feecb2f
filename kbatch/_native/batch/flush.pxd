from libc.stdint cimport int64_t

from kbatch._native.codec.lock cimport kb_lock


cdef class Flush:
    cdef kb_lock _lock
    # under _lock
    cdef int64_t _pending_count
    cdef object _event
    cdef list _listeners

    cdef void expect(self, int64_t count) noexcept
    cdef void arrived(self) noexcept
