from libc.stdint cimport int64_t

cdef bint grows(int64_t initial_ns, int64_t max_ns) noexcept nogil
cpdef int64_t backoff_ns(int64_t initial_ns, int64_t max_ns, double attempts, double jitter,
                         double fraction) noexcept nogil
