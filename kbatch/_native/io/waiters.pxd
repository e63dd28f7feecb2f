from kbatch._native.io.interrupts cimport NativeEvent


cdef class Waiters:
    cdef dict _all                   # in the order in which they came
    # under the lock:
    cdef void **_events              # each is a reference
    cdef Py_ssize_t _event_count
    cdef Py_ssize_t _room

    cdef int put(self, object waiter, NativeEvent event) except -1
    cdef void drop(self, object waiter, NativeEvent event) noexcept
    cdef void ring(self) noexcept nogil
