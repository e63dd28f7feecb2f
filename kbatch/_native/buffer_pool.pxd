from cython cimport pymutex
from libc.stdint cimport int64_t, uint8_t

cdef struct Waiter


cdef class BufferPool:
    cdef readonly int64_t total_memory
    cdef readonly int64_t poolable_size
    cdef bint _poison
    cdef pymutex _lock
    # all below under _lock
    cdef bint _closed
    cdef int64_t _unallocated
    cdef int64_t _free_count
    cdef uint8_t *_free
    cdef int64_t _queued
    cdef Waiter *_first
    cdef Waiter *_last

    cdef uint8_t *take(self, int64_t size, object timeout) except NULL
    cdef void give_back(self, uint8_t *memory, int64_t size) noexcept nogil
    cdef void _reclaim(self, int64_t size) noexcept nogil
    cdef bint _try_take(self, int64_t size, uint8_t **memory) noexcept nogil
    cdef void _collect(self, Waiter *waiter) noexcept nogil
    cdef void _enqueue(self, Waiter *waiter) noexcept nogil
    cdef void _leave(self, Waiter *waiter) noexcept nogil
    cdef void _wake_first(self) noexcept nogil
    cdef uint8_t *_wait(self, int64_t size, object timeout) except? NULL
    cdef int _sleep(self, Waiter *waiter, object deadline) except -1


cdef class Buffer:
    cdef BufferPool _pool
    cdef uint8_t *_memory
    cdef Py_ssize_t _size
    cdef int _exports

    cdef int _check_held(self) except -1
