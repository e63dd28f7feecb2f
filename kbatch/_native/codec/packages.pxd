from libc.stdint cimport uint8_t

# With the GIL, which some packages release.
cdef bytes compress_by_package(int codec, const uint8_t *data, size_t size, int level)
cdef bytes decompress_by_package(int codec, const uint8_t *data, size_t size, size_t limit)
