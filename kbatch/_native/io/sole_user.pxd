cdef class SoleUser:
    cdef object _current
    cdef object _name_of
    cdef object _check
    cdef dict _user                      # "it", if there is one
    cdef public object caller_back
    cdef public object left

    cdef bint enter_if_free(self) except -1
    cdef int leave(self) except -1
    cdef object _caller_back(self)
    cdef void _set_caller_back(self, object caller) noexcept
