from libc.stdint cimport int64_t

from kbatch._native.fetch.fetched cimport Fetched
from kbatch._native.fetch.reading cimport RoadState


cdef class Releases:
    cdef RoadState _road
    cdef object _consumed
    cdef object _look_again

    cdef bint is_memory_used_up(self) noexcept
    cdef bint give_back(self, Fetched fetched, int64_t row_count) except -1
