cdef enum:
    CLASSES = 9  # 256 KiB, 512 KiB, ..., 64 MiB; larger frames are not kept
    SPARES = 64  # of a class, at most

cdef struct Spares:
    int count
    void *blocks[SPARES]


cdef class FramePool:
    # under the lock of all pools
    cdef Spares[CLASSES] _spares
    cdef size_t _spare_bytes, _used_bytes
    cdef size_t _spare_limit

    cdef Frame frame_of(self, void *data, Py_ssize_t size, size_t capacity)
    cdef void *take_memory(self, size_t size, size_t *capacity) noexcept nogil
    cdef void *_take_spare(self, int number, size_t capacity) noexcept nogil
    cdef void _count_used(self, Py_ssize_t change) noexcept nogil
    cdef void give_back(self, void *block, size_t capacity) noexcept nogil


cdef class Frame:
    cdef FramePool _pool
    cdef void *_data
    cdef size_t _capacity
    cdef Py_ssize_t _size

    cdef void disown(self) noexcept
