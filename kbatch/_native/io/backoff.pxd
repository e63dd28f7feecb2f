from libc.stdint cimport int64_t

cpdef bint grows(int64_t initial_ns, int64_t max_ns) noexcept nogil
cpdef int64_t backoff_ns(int64_t initial_ns, int64_t max_ns, double attempts,
                         double fraction) noexcept nogil
