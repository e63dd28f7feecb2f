"""Native memory that grows while it is written, and becomes a Python object at the end.

Freshly mapped memory costs several times the work done with it: the kernel clears each page at the first
touch. So a few large blocks are kept when their owners go (24 MiB in total, or the environment's
KBATCH_SPARE_BYTES), and are reused first.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, realloc

from kbatch._native.codec.c cimport kb_memory
from kbatch._native.codec.views cimport fill_view
from kbatch._native.lock cimport begin_process_lock, kb_lock, kb_lock_acquire, kb_lock_release

import os

cdef enum:
    SPARE_BLOCKS = 16

cdef struct Block:
    void *data
    size_t size

cdef size_t FIRST_CAPACITY = 4096
cdef size_t SMALLEST_SPARE = 65536
cdef size_t SPARE_BYTES = int(os.environ.get("KBATCH_SPARE_BYTES", 24 << 20))

cdef kb_lock spare_lock
# under spare_lock
cdef Block[SPARE_BLOCKS] spares
cdef int spare_count = 0
cdef size_t spare_bytes = 0

begin_process_lock(&spare_lock)


cdef bint _suits_better(size_t size, size_t best, size_t wanted) noexcept nogil:
    """Take the smallest block that is large enough; without one the largest, which is cheap to extend."""
    return size < best if best >= wanted and size >= wanted else size > best and best < wanted


cdef Block _take_spare(size_t wanted) noexcept nogil:
    """Return a block of half to four times the size, or {NULL, 0} if there is none."""
    global spare_count, spare_bytes
    cdef Block block
    cdef int i, best = -1
    block.data = NULL
    block.size = 0
    kb_lock_acquire(&spare_lock)
    for i in range(spare_count):
        if (wanted // 2 <= spares[i].size <= 4 * wanted
                and _suits_better(spares[i].size, block.size, wanted)):
            best = i
            block = spares[i]
    if best >= 0:
        spare_count -= 1
        spare_bytes -= block.size
        spares[best] = spares[spare_count]
    kb_lock_release(&spare_lock)
    return block


cdef bint _keep_spare(void *data, size_t size) noexcept nogil:
    global spare_count, spare_bytes
    cdef bint keeps
    if data == NULL or size < SMALLEST_SPARE:
        return False
    kb_lock_acquire(&spare_lock)
    keeps = spare_count < SPARE_BLOCKS and size <= SPARE_BYTES - spare_bytes
    if keeps:
        spares[spare_count].data = data
        spares[spare_count].size = size
        spare_count += 1
        spare_bytes += size
    kb_lock_release(&spare_lock)
    return keeps


cdef void *_moved(void *items, size_t size) noexcept nogil:
    """Return `items` with room for `size` bytes; NULL, and they stay, if there is no memory."""
    cdef Block spare
    cdef void *moved
    if items != NULL or size < SMALLEST_SPARE:
        return realloc(items, max(size, <size_t>1))
    spare = _take_spare(size)
    if spare.size >= size:
        return spare.data
    moved = realloc(spare.data, size)
    if moved == NULL:
        free(spare.data)
    return moved


cdef void *grown(void *items, size_t size) except NULL nogil:
    """Return `items` with room for `size` bytes; they may have moved."""
    cdef void *moved = _moved(items, size)
    if moved == NULL:
        with gil:
            raise MemoryError(f"no memory for {size} bytes")
    return moved


cdef int extend(kb_memory *memory, size_t extra) noexcept nogil:
    """Make room for `extra` more bytes, at least doubling the block; return 0 if there is no memory."""
    cdef size_t capacity
    cdef void *data
    if extra > memory.capacity - memory.used:
        capacity = max(memory.used + extra, 2 * memory.capacity, FIRST_CAPACITY)
        data = NULL if capacity < extra else _moved(memory.data, capacity)
        if data == NULL:
            return 0
        memory.data = <uint8_t *>data
        memory.capacity = capacity
    return 1


cdef int reserve(kb_memory *memory, size_t extra) except -1 nogil:
    """Do `extend`, or raise MemoryError."""
    if not extend(memory, extra):
        with gil:
            raise MemoryError(f"no memory for {memory.used + extra} bytes")
    return 0


cdef void give_up(kb_memory *memory) noexcept nogil:
    if not _keep_spare(memory.data, memory.capacity):
        free(memory.data)
    memory.data = NULL
    memory.used = memory.capacity = 0


cdef void trim(kb_memory *memory) noexcept nogil:
    """Release allocated but unused memory, if it is much."""
    cdef void *smaller
    if memory.capacity - memory.used > memory.used // 4:
        smaller = realloc(memory.data, max(memory.used, <size_t>1))
        if smaller != NULL:
            memory.data = <uint8_t *>smaller
            memory.capacity = memory.used


@cython.final
cdef class OwnedMemory:
    """Native memory with the buffer protocol, released with this object."""

    @staticmethod
    cdef OwnedMemory take(void *data, size_t size, size_t capacity):
        """Take over a block, of which `size` bytes are visible."""
        cdef OwnedMemory memory = OwnedMemory.__new__(OwnedMemory)
        memory.data = <uint8_t *>data
        memory.size = size
        memory._capacity = capacity
        return memory

    @staticmethod
    cdef OwnedMemory new(int64_t count, size_t item_size):
        return OwnedMemory.take(grown(NULL, count * item_size), count * item_size, count * item_size)

    def __dealloc__(self):
        if not _keep_spare(self.data, self._capacity):
            free(self.data)

    def __len__(self):
        return self.size

    def __getbuffer__(self, Py_buffer *view, int flags):
        fill_view(view, self, self.data, &self.size, False)


def new_memory(int64_t size):
    """Return `size` bytes to be written to, allocated as results are. They are not set to anything."""
    return OwnedMemory.new(size, 1)
