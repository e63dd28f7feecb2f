# Growing native memory; a failure is a MemoryError with the purpose.

from libc.stdint cimport int64_t, uint8_t

from kbatch._native.codec.c cimport kb_memory

cdef enum:
    # Copying this much, or its CRC, takes no longer than releasing the GIL, which others may keep for 5 ms.
    GIL_KEPT_BYTES = 65536

cdef int extend(kb_memory *memory, size_t extra) noexcept nogil
cdef int reserve(kb_memory *memory, size_t extra) except -1 nogil
cdef void give_up(kb_memory *memory) noexcept nogil
cdef void trim(kb_memory *memory) noexcept nogil
cdef void *grown(void *items, size_t size) except NULL nogil


cdef class OwnedMemory:
    cdef uint8_t *data
    cdef Py_ssize_t size
    cdef size_t _capacity

    @staticmethod
    cdef OwnedMemory take(void *data, size_t size, size_t capacity)
    @staticmethod
    cdef OwnedMemory new(int64_t count, size_t item_size)
