from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t

from kbatch._native.codec.c cimport kb_rows

# What a row in a batch is charged with until it is answered; with what interceptors are told of it.
cdef enum:
    ROW_BYTES = 4
    TOLD_ROW_BYTES = 20

cdef extern from "row_runs.h" nogil:
    ctypedef struct kb_row_run:
        int64_t first_row
        int64_t offset
        int32_t topic
        int32_t partition
        int32_t count

# Rows whose records stand one behind another in a batch.
cdef struct Run:
    int32_t index            # of the first in the batch
    int32_t at               # of the first among the BatchRows

cdef struct ToldRow:
    int64_t timestamp_ms
    int32_t key_size
    int32_t value_size


cdef class BatchRows:
    cdef object table                # a TableOutcome
    cdef object on_acknowledgement   # who is told of every row; None: nobody
    cdef BatchRows next              # of another table, in the same batch
    cdef int64_t place
    cdef int32_t count
    cdef int32_t capacity
    cdef int64_t _base
    cdef uint32_t *_rows             # behind _base
    cdef Run *_runs
    cdef int32_t run_count
    cdef int32_t _run_capacity
    cdef ToldRow *_told              # NULL where nobody is, or was
    cdef int32_t _told_count         # those before were
    cdef int32_t _told_run

    @staticmethod
    cdef BatchRows new(object table, object on_acknowledgement, int64_t place, int64_t base,
                       int32_t capacity)
    cdef bint can_hold(self, int64_t last_row) noexcept nogil
    cdef bint grow(self) noexcept nogil
    cdef bint begin_run(self, int32_t index) noexcept nogil
    cdef void add(self, const int32_t *rows, int64_t count, int64_t origin,
                  const kb_rows *block) noexcept nogil
    cdef int32_t _run_end(self, int32_t run) noexcept nogil
    cdef void put_offsets(self, int64_t base_offset, int64_t *offsets) noexcept nogil
    cdef int32_t put_runs(self, int64_t base_offset, kb_row_run *to) noexcept nogil
    cdef void put_code(self, int16_t code, int16_t *codes) noexcept nogil
    cdef int64_t first_row(self) noexcept nogil
    cdef int64_t row_of(self, int32_t index) noexcept nogil
    cdef int32_t index_of(self, int64_t row) noexcept nogil
    cdef const ToldRow *next_told(self, int32_t *index) noexcept
    cdef BatchRows part(self, int32_t index, int32_t count)


cdef BatchRows part_of_rows(BatchRows rows, int32_t index, int32_t count)
