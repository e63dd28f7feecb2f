"""The wait before an attempt: exponential, with jitter.

After org.apache.kafka.common.utils.ExponentialBackoff (KIP-580, KIP-601).
"""

from libc.math cimport log2
from libc.stdint cimport int64_t


# The fraction by which a wait may be shorter or longer, as in Java.
cdef double JITTER = 0.2


cpdef bint grows(int64_t initial_ns, int64_t max_ns) noexcept nogil:
    """True if waits double with each failure: only then do they have jitter."""
    return initial_ns < max_ns


cpdef int64_t backoff_ns(int64_t initial_ns, int64_t max_ns, double attempts,
                         double fraction) noexcept nogil:
    """Return the wait after `attempts` + 1 failures.

    Parameters
    ----------
    initial_ns, max_ns : int
        The first wait, and the maximum of the doubling.
    attempts : int
    fraction : float
        The position of this wait between the shortest and the longest, 0 to 1.
    """
    cdef double doublings, wait_ns
    if not grows(initial_ns, max_ns):
        return max_ns
    doublings = min(attempts, log2(<double>max_ns / <double>max(initial_ns, <int64_t>1)))
    wait_ns = (1 - JITTER + 2 * JITTER * fraction) * <double>initial_ns * 2.0 ** doublings
    return <int64_t>wait_ns if wait_ns < <double>max_ns else max_ns
