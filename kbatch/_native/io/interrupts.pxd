from cpython.pythread cimport PyLockStatus, PyThread_type_lock

cdef extern from "pythread.h" nogil:
    PyLockStatus PyThread_acquire_lock_timed(PyThread_type_lock lock, long long microseconds,
                                             int ends_by_signal)


cdef class NativeEvent:
    cdef PyThread_type_lock _lock                 # held until it happens
    cdef int _has_happened           # atomic

    cdef void ring(self) noexcept nogil
    cdef bint wait_for(self, double timeout) except -1
    cdef bint _wait_by(self, object nap, double deadline) except -1


cdef object nap_of_greenlets()
