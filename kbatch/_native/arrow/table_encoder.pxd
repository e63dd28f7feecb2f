# The state of a partition while its batches are made.

from libc.stdint cimport int32_t, int64_t, uint8_t

from kbatch._native.codec.c cimport kb_memory, kb_target

cdef struct Sealed:
    int64_t max_timestamp_ms
    int64_t uncompressed_bytes
    size_t end           # within its chunk
    int32_t record_count

cdef struct Chunk:
    kb_memory memory
    int64_t batches      # sealed in this chunk and those before

cdef struct Slot:        # of one partition
    int32_t partition
    double ratio         # as estimated; and what was observed of its batches in this window
    double *observed
    int64_t observed_count
    int64_t observed_capacity
    kb_target target     # the open batch: in `output` without compression, else in scratch memory
    bint is_open
    size_t batch_start   # of the open batch in target.memory
    kb_memory output     # the present chunk, where target.memory is scratch
    Sealed *sealed
    int64_t sealed_count
    int64_t sealed_capacity
    Chunk *chunks
    int64_t chunk_count
    int64_t chunk_capacity
