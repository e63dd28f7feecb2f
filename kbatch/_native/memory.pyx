"""Native memory that grows while it is written, and becomes a Python object when it is done."""

cimport cython
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc

from kbatch._native.c cimport kb_memory

cdef size_t FIRST_CAPACITY = 4096


cdef void *grown(void *items, size_t size) except NULL nogil:
    """`items` with room for `size` bytes; they may have moved."""
    cdef void *moved = realloc(items, max(size, <size_t>1))
    if moved == NULL:
        with gil:
            raise MemoryError(f"no memory for {size} bytes")
    return moved


cdef int reserve(kb_memory *memory, size_t extra) except -1 nogil:
    """Makes room for `extra` bytes more, at least doubling what there is."""
    cdef size_t capacity
    if extra > memory.capacity - memory.used:
        capacity = max(memory.used + extra, 2 * memory.capacity, FIRST_CAPACITY)
        memory.data = <uint8_t *>grown(memory.data, capacity)
        memory.capacity = capacity
    return 0


@cython.final
cdef class OwnedMemory:
    """malloc'ed memory with the buffer protocol, freed with this object."""

    @staticmethod
    cdef OwnedMemory take(void *data, size_t size):
        cdef OwnedMemory memory = OwnedMemory.__new__(OwnedMemory)
        memory.data = <uint8_t *>data
        memory.size = size
        return memory

    @staticmethod
    cdef OwnedMemory cut(void *data, size_t size):
        """Gives back what is allocated behind the first `size` bytes."""
        cdef void *smaller = realloc(data, max(size, <size_t>1))
        return OwnedMemory.take(smaller if smaller != NULL else data, size)

    @staticmethod
    cdef OwnedMemory new(int64_t count, size_t item_size):
        return OwnedMemory.take(grown(NULL, count * item_size), count * item_size)

    def __dealloc__(self):
        free(self.data)

    def __len__(self):
        return self.size

    def __getbuffer__(self, Py_buffer *view, int flags):
        view.buf = self.data
        view.obj = self
        view.len = self.size
        view.readonly = 0
        view.itemsize = 1
        view.format = "B"
        view.ndim = 1
        view.shape = &self.size
        view.strides = &view.itemsize
        view.suboffsets = NULL
        view.internal = NULL
