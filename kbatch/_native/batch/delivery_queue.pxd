from cpython.pythread cimport PyThread_type_lock


cdef class DeliveryQueue:
    cdef object _items               # deque
    cdef int _state                  # atomic
    cdef PyThread_type_lock _bell    # a lock, released to wake the thread
    cdef public object source
    cdef public object has_finished

    cdef int _sleep(self) except -1
    cdef bint _has_more(self) except -1
    cdef bint ring(self) noexcept nogil
