"""FramePool: memory for answers, received in place and read without a copy.

Memory that was used before costs nothing; that of a fresh frame costs more than receiving into it, because
the kernel clears each page at the first touch. So a frame is a block of a few sizes, which goes back to its
pool with the last view of it. Blocks of 2 MiB or more are made of huge pages. Small frames have memory of
their size.
"""

cimport cython
from libc.stdint cimport uint8_t
from libc.stdlib cimport free, malloc

from kbatch._native.codec.views cimport fill_view
from kbatch._native.lock cimport begin_process_lock, kb_lock, kb_lock_acquire, kb_lock_release

cdef extern from "pages.h" nogil:
    int KB_HUGE_PAGE_BYTES
    bint kb_pages_resize(void **data, size_t *size, size_t wanted)
    void kb_pages_free(void *data, size_t size)
    void kb_pages_make_small(void *data, size_t size)

cdef size_t SMALLEST_BLOCK = 262144
cdef size_t SMALL_BYTES = 65536  # frames below are not kept
# A broker often sends as many bytes of records as it was asked for, which is a power of two. The fields
# beside them have room in the same block, on small pages: few of those are used.
cdef size_t FIELD_BYTES = 65536

# Of all pools.
cdef kb_lock pools_lock
begin_process_lock(&pools_lock)


cdef int _class_of(size_t size) noexcept nogil:
    """Return the number of the smallest class with room for `size` bytes, CLASSES if there is none."""
    cdef int number = 0
    while number < CLASSES and size > _block_bytes(number):
        number += 1
    return number


cdef inline size_t _block_bytes(int number) noexcept nogil:
    return (SMALLEST_BLOCK << number) + FIELD_BYTES


@cython.final
cdef class FramePool:
    """Blocks of memory for frames; any thread may take one or drop one.

    Parameters
    ----------
    spare_bytes : int
        Bytes of unused blocks that are kept, at most.

    Raises
    ------
    ValueError
        `spare_bytes` is negative.
    """

    def __init__(self, *, spare_bytes=33554432):
        if spare_bytes < 0:
            raise ValueError(f"spare_bytes must not be negative, got {spare_bytes}")
        self._spare_limit = spare_bytes

    def __dealloc__(self):
        cdef int number, i
        for number in range(CLASSES):
            for i in range(self._spares[number].count):
                kb_pages_free(self._spares[number].blocks[i], _block_bytes(number))

    @property
    def used_bytes(self):
        """Bytes of the blocks of all frames that are in use."""
        return self._used_bytes

    @property
    def spare_bytes(self):
        """Bytes of the unused blocks that are kept."""
        return self._spare_bytes

    def take(self, Py_ssize_t size):
        """Return a Frame of `size` bytes, which are not set to anything.

        Raise ValueError for a negative size, MemoryError without memory.
        """
        cdef size_t capacity
        cdef void *data
        if size < 0:
            raise ValueError(f"size must not be negative, got {size}")
        data = self.take_memory(size, &capacity)
        if data == NULL:
            raise MemoryError(f"no memory for a frame of {size} bytes")
        return self.frame_of(data, size, capacity)

    cdef Frame frame_of(self, void *data, Py_ssize_t size, size_t capacity):
        """Return the Frame of memory, which owns it."""
        cdef Frame frame = Frame.__new__(Frame)
        frame._pool = self
        frame._data = data
        frame._capacity = capacity
        frame._size = size
        return frame

    cdef void *take_memory(self, size_t size, size_t *capacity) noexcept nogil:
        """Return memory for a frame; NULL if there is none."""
        cdef int number = _class_of(size)
        cdef size_t before = 0
        cdef void *data
        capacity[0] = size if size < SMALL_BYTES or number == CLASSES else _block_bytes(number)
        data = self._take_spare(number, capacity[0])
        if data == NULL and size < SMALL_BYTES:
            data = malloc(size if size else 1)
        elif data == NULL:
            if (kb_pages_resize(&data, &before, capacity[0]) and number < CLASSES
                    and SMALLEST_BLOCK << number >= <size_t>KB_HUGE_PAGE_BYTES):
                kb_pages_make_small(<uint8_t *>data + (SMALLEST_BLOCK << number), FIELD_BYTES)
        if data == NULL:
            self._count_used(-<Py_ssize_t>capacity[0])
        return data

    cdef void *_take_spare(self, int number, size_t capacity) noexcept nogil:
        """Count a block as used, and return a spare one; NULL if there is none."""
        cdef Spares *spares
        cdef void *block = NULL
        kb_lock_acquire(&pools_lock)
        self._used_bytes += capacity
        if number < CLASSES and capacity >= SMALL_BYTES:
            spares = &self._spares[number]
            if spares.count:
                spares.count -= 1
                block = spares.blocks[spares.count]
                self._spare_bytes -= capacity
        kb_lock_release(&pools_lock)
        return block

    cdef void _count_used(self, Py_ssize_t change) noexcept nogil:
        kb_lock_acquire(&pools_lock)
        self._used_bytes += change
        kb_lock_release(&pools_lock)

    cdef void give_back(self, void *block, size_t capacity) noexcept nogil:
        """Keep a block, or free it."""
        cdef int number = _class_of(capacity)
        cdef bint keeps
        cdef Spares *spares
        kb_lock_acquire(&pools_lock)
        self._used_bytes -= capacity
        keeps = (number < CLASSES and capacity >= SMALL_BYTES
                 and capacity + self._spare_bytes <= self._spare_limit)
        if keeps:
            spares = &self._spares[number]
            keeps = spares.count < SPARES
            if keeps:
                spares.blocks[spares.count] = block
                spares.count += 1
                self._spare_bytes += capacity
        kb_lock_release(&pools_lock)
        if capacity < SMALL_BYTES:
            free(block)
        elif not keeps:
            kb_pages_free(block, capacity)


@cython.final
cdef class Frame:
    """Writable bytes of a FramePool, with the buffer protocol.

    Each view refers to the frame, so its block goes back to the pool with the last of them, and not before.
    """

    def __init__(self):
        raise TypeError("a Frame comes from FramePool.take")

    def __dealloc__(self):
        if self._pool is not None:
            self._pool.give_back(self._data, self._capacity)

    cdef void disown(self) noexcept:
        """Leave its memory to another owner."""
        self._pool = None

    def __len__(self):
        return self._size

    def __getbuffer__(self, Py_buffer *view, int flags):
        fill_view(view, self, self._data, &self._size, False)
