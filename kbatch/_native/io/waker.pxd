cdef class Waker:
    cdef int _reader
    cdef int _writer                 # the same with an eventfd
    cdef int is_called               # for the engine, and not only for its lane

    cdef bint take_call(self) noexcept nogil
