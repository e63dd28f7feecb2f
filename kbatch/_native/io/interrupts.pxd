cdef class NativeEvent:
    cdef void *_lock                 # held until it happens
    cdef int _has_happened           # atomic

    cdef void ring(self) noexcept nogil
