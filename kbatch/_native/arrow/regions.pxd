from libc.stdint cimport int64_t, uint8_t


# Memory for the buffers of several chunks, which are cut from it one after another.
cdef struct Region:
    uint8_t *data
    size_t size
    size_t used             # of its taker; of the lists where it is not taken
    int64_t references      # of its taker and of buffers
    bint is_open
    bint is_idle            # open, and without references


cdef class RegionMemory:
    cdef Region *_region
    cdef void *_data
    cdef Py_ssize_t _size

    @staticmethod
    cdef RegionMemory view(Region *region, void *data, size_t size)

cdef Region *take_region(size_t wanted) except NULL nogil
cdef void *cut(Region *region, size_t size) noexcept nogil
cdef size_t cut_remaining(Region *region) noexcept nogil
cdef bint is_within(const Region *region, const void *data) noexcept nogil
cdef void give_back(Region *region, const void *end) noexcept nogil
cdef void leave_region(Region *region) noexcept nogil
cdef void drop_region(Region *region) noexcept nogil
