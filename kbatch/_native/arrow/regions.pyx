"""Regions: memory for column buffers, in huge pages.

Records are copied into columns in 20 ns each if the memory was used before. If it is fresh it takes 90 ns:
the kernel clears each page at the first touch. Huge pages are cleared at a fraction of that, but most chunks
are smaller than one. So the buffers of several chunks are cut from one region, one after another.

A chunk takes a region for itself while it is built. Then the region goes on to the next chunk, as long as
there is room. It is used again from its start, or freed, when the last buffer of it is gone.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc

from kbatch._native.codec.views cimport fill_view
from kbatch._native.lock cimport begin_process_lock, kb_lock, kb_lock_acquire, kb_lock_release

cdef extern from *:
    """
    /* Under AddressSanitizer each buffer has memory of its own, so that its ends are seen. */
    #ifdef __SANITIZE_ADDRESS__
    enum { KB_HAS_REGIONS = 0 };
    #else
    enum { KB_HAS_REGIONS = 1 };
    #endif
    """
    enum:
        KB_HAS_REGIONS

cdef extern from "pages.h" nogil:
    bint kb_pages_resize(void **data, size_t *size, size_t wanted)
    void kb_pages_free(void *data, size_t size)
    int64_t kb_pages_touch_ns(void *data)
    void kb_pages_make_small(void *data, size_t size)

cdef enum:
    OPEN_REGIONS = 16

cdef size_t REGION_BYTES = 8 << 20
cdef size_t HUGE_PAGE = 2 << 20
# Arrow's recommended alignment, a cache line.
cdef size_t ALIGNMENT = 64
# A region with less room is not worth a place in the list.
cdef size_t LEAST_ROOM = 256 << 10
# Small pages for as many bytes take about this long. A huge page takes longer if the host of a virtual
# machine took it back while it was free; then the next regions have small pages. They are few: a single slow
# page says little of the next, and small pages cost five times as much as huge ones that the host kept.
cdef int64_t SLOW_PAGE_NS = 1000000
cdef int SMALL_REGIONS = 8
# Unused regions that are kept for the next chunk.
cdef size_t IDLE_BYTES = 32 << 20

cdef kb_lock regions_lock
# under regions_lock: the regions with room that no chunk has taken
cdef Region *open_regions[OPEN_REGIONS]
cdef int open_count = 0
cdef size_t idle_bytes = 0  # of those without references
cdef int small_regions = 0  # the number of next regions with small pages

begin_process_lock(&regions_lock)


cdef Region *take_region(size_t wanted) except NULL nogil:
    """Return a region with room for `wanted` bytes, of which the caller now has a reference: the open one
    that fits best, or a new one. `leave_region` and `drop_region` must follow.
    """
    global idle_bytes
    cdef Region *region = NULL
    cdef int i
    kb_lock_acquire(&regions_lock)
    for i in range(open_count):
        if open_regions[i].size - open_regions[i].used >= wanted and (
                region == NULL or open_regions[i].size - open_regions[i].used < region.size - region.used):
            region = open_regions[i]
    if region != NULL:
        _close(region)
        region.references += 1
    kb_lock_release(&regions_lock)
    return region if region != NULL else _new_region(max(wanted, REGION_BYTES))


cdef Region *_new_region(size_t wanted) except NULL nogil:
    cdef Region *region = <Region *>malloc(sizeof(Region))
    cdef void *data = NULL
    cdef size_t size = 0
    wanted = (wanted + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1)
    if region == NULL or not kb_pages_resize(&data, &size, wanted):
        free(region)
        with gil:
            raise MemoryError(f"no memory for {wanted} bytes")
    _choose_pages(data, size)
    region.data = <uint8_t *>data
    region.size = size
    region.used = 0
    region.references = 1
    region.is_open = region.is_idle = False
    return region


cdef void _choose_pages(void *data, size_t size) noexcept nogil:
    """Let a fresh region have small pages if huge ones are slow."""
    global small_regions
    cdef bint is_small
    kb_lock_acquire(&regions_lock)
    is_small = small_regions > 0
    small_regions -= is_small
    kb_lock_release(&regions_lock)
    if not is_small and kb_pages_touch_ns(data) > SLOW_PAGE_NS:
        is_small = True
        kb_lock_acquire(&regions_lock)
        small_regions = SMALL_REGIONS
        kb_lock_release(&regions_lock)
    if is_small:
        kb_pages_make_small(data, size)


cdef void *cut(Region *region, size_t size) noexcept nogil:
    """Return memory of a taken region, NULL if there is no room."""
    cdef void *data
    if not KB_HAS_REGIONS or region == NULL or size >= region.size - region.used:
        return NULL
    data = region.data + region.used
    region.used = min((region.used + size + ALIGNMENT - 1) & ~(ALIGNMENT - 1), region.size)
    return data


cdef size_t cut_remaining(Region *region) noexcept nogil:
    """Add all that is left to what was cut last, until `give_back`; return its size."""
    cdef size_t remaining = region.size - region.used
    region.used = region.size
    return remaining


cdef bint is_within(const Region *region, const void *data) noexcept nogil:
    """True if the memory was cut from the region, which may be NULL."""
    return region != NULL and region.data <= <const uint8_t *>data < region.data + region.size


cdef void give_back(Region *region, const void *end) noexcept nogil:
    """Give back the end of what was cut last: `end` is where it ends now."""
    cdef size_t used = <const uint8_t *>end - region.data
    region.used = min((used + ALIGNMENT - 1) & ~(ALIGNMENT - 1), region.size)


cdef void leave_region(Region *region) noexcept nogil:
    """Let other chunks take the region. If there are many, those with the most room stay."""
    cdef Region *least = region
    cdef int i
    kb_lock_acquire(&regions_lock)
    if open_count == OPEN_REGIONS:
        for i in range(open_count):
            if (open_regions[i].references
                    and open_regions[i].size - open_regions[i].used < least.size - least.used):
                least = open_regions[i]
        if least != region:
            _close(least)
    if open_count < OPEN_REGIONS and region.size - region.used >= LEAST_ROOM:
        _open(region)
    kb_lock_release(&regions_lock)


cdef void drop_region(Region *region) noexcept nogil:
    """Drop a reference. With the last one the region is free from its start on. It is kept for the next
    chunk, instead of those that were left before: their sizes may not be in use any more.
    """
    cdef Region *freed[OPEN_REGIONS + 1]
    cdef int count = 0, i = 0
    kb_lock_acquire(&regions_lock)
    region.references -= 1
    if region.references == 0:
        if region.is_open:
            _close(region)
        region.used = 0
        while i < open_count and idle_bytes + region.size > IDLE_BYTES:
            if open_regions[i].is_idle:
                freed[count] = open_regions[i]
                count += 1
                _close(open_regions[i])
            else:
                i += 1
        if open_count < OPEN_REGIONS and idle_bytes + region.size <= IDLE_BYTES:
            _open(region)
        else:
            freed[count] = region
            count += 1
    kb_lock_release(&regions_lock)
    for i in range(count):
        kb_pages_free(freed[i].data, freed[i].size)
        free(freed[i])


cdef void _open(Region *region) noexcept nogil:
    """Add a region to the list; under the lock."""
    global open_count, idle_bytes
    region.is_open = True
    region.is_idle = region.references == 0
    open_regions[open_count] = region
    open_count += 1
    if region.is_idle:
        idle_bytes += region.size


cdef void _close(Region *region) noexcept nogil:
    """Remove a region from the list; under the lock."""
    global open_count, idle_bytes
    cdef int i = 0
    while open_regions[i] != region:
        i += 1
    open_count -= 1
    open_regions[i] = open_regions[open_count]
    if region.is_idle:
        idle_bytes -= region.size
    region.is_open = region.is_idle = False


@cython.final
cdef class RegionMemory:
    """A buffer that was cut from a region, with the buffer protocol."""

    @staticmethod
    cdef RegionMemory view(Region *region, void *data, size_t size):
        cdef RegionMemory memory = RegionMemory.__new__(RegionMemory)
        kb_lock_acquire(&regions_lock)
        region.references += 1
        kb_lock_release(&regions_lock)
        memory._region = region
        memory._data = data
        memory._size = size
        return memory

    def __dealloc__(self):
        if self._region != NULL:
            drop_region(self._region)

    def __len__(self):
        return self._size

    def __getbuffer__(self, Py_buffer *view, int flags):
        fill_view(view, self, self._data, &self._size, False)
