from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t

from kbatch._native.codec.c cimport kb_rows
from kbatch._native.lock cimport kb_lock

# The charge of a row in a batch until it is answered; with the data for interceptors.
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

# Consecutive rows in a batch.
cdef struct Run:
    int32_t index            # of the first in the batch
    int32_t at               # of the first among the BatchRows

cdef struct InterceptedRow:
    int64_t timestamp_ms
    int32_t key_size
    int32_t value_size


cdef int64_t partition_key_of(int32_t topic, int32_t partition) noexcept nogil


cdef class BatchRows:
    cdef TableOutcome table
    cdef BatchRows next              # of another table, in the same batch
    cdef int64_t partition_key
    cdef int32_t count
    cdef int32_t capacity
    cdef int64_t _base
    cdef uint32_t *_rows             # after _base
    cdef Run *_runs
    cdef int32_t run_count
    cdef int32_t _run_capacity
    cdef InterceptedRow *_intercepted    # NULL without interceptors, or afterwards
    cdef int32_t _passed_count       # the next to pass to interceptors
    cdef int32_t _passed_run

    @staticmethod
    cdef BatchRows new(TableOutcome table, int64_t partition_key, int64_t base, int32_t capacity)
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
    cdef const InterceptedRow *next_intercepted(self, int32_t *index) noexcept
    cdef BatchRows part(self, int32_t index, int32_t count)


cdef class TableOutcome:
    cdef kb_lock _lock
    cdef list topics                 # names, in order of first appearance
    cdef bint _has_codes             # rows have topics of their own
    # under _lock; only the thread that accepts rows enlarges them and fills in partitions and topics
    cdef int32_t *partitions
    cdef int32_t *codes_of_topics    # NULL where all have the same
    cdef int64_t *_offsets           # NULL, as _codes, as long as runs do
    cdef int16_t *_codes
    cdef kb_row_run *_runs           # of batches that were delivered
    cdef int64_t _run_count
    cdef size_t[5] _sizes            # of these arrays, in bytes
    cdef readonly int64_t row_count
    cdef int64_t _capacity
    cdef int64_t _done_count
    cdef int64_t _failed_count
    cdef readonly int64_t unsent_count   # of those, the ones that no batch had
    cdef bint _ended                 # no more rows are accepted
    cdef list _listeners             # (argument, function), for when it is done; None from then on
    cdef object _event               # set when it is done
    cdef tuple _progress             # (argument, function), for every batch
    cdef dict _failed_batches        # by partition_key: (first row, BatchRows, error, errors by index)
    cdef object _too_large           # makes the error of a row that is
    cdef dict _made                  # errors that were made lately, by row
    cdef dict refused_topics         # error by topic, of rows that got no partition
    cdef readonly object end_error   # of the rows that were not accepted
    cdef public bint is_observed
    cdef readonly object on_acknowledgement   # called for every row; None without one
    cdef int32_t row_bytes           # what one is charged with in a batch

    cdef int reserve_rows(self, int64_t count) except -1 nogil
    cdef bint _move(self, int64_t capacity) noexcept nogil
    cdef bint _move_details(self, int64_t capacity) noexcept nogil
    cdef bint _resize(self, int which, void **data, size_t size) noexcept nogil
    cdef int _give_details(self) except -1 nogil
    cdef bint _make_details(self) noexcept nogil
    cdef void _forget_details(self) noexcept nogil
    cdef int refuse(self, int64_t row, int64_t size, bint by_memory) except -1 nogil
    cdef void _reject(self, int64_t row, int16_t code) noexcept nogil
    cdef int refuse_topic(self, int32_t topic, object error) except -1
    cdef int reject(self, const int32_t *rows, int64_t count, int64_t origin, object error) except -1
    cdef int reject_from(self, int64_t first, object error) except -1
    cdef list end(self, object error)
    cdef void note_end(self, object error) noexcept
    cdef object _end_error_now(self)
    cdef list complete(self, BatchRows rows, bint succeeded, int64_t base_offset, object error,
                      object record_errors)
    cdef int _put_offsets(self, BatchRows rows, int64_t base_offset) except -1
    cdef bint _keep_runs(self, BatchRows rows, int64_t base_offset) noexcept nogil
    cdef int _put_failed(self, BatchRows rows, object error, object record_errors) except -1
    cdef void _put_code(self, int64_t row, int16_t code) noexcept nogil
    cdef bint _is_done(self) noexcept nogil
    cdef void *_values(self, int which) noexcept nogil
    cdef object _error_of_size(self, int64_t row, int64_t size)
    cdef list _take_listeners(self)


cdef list complete_rows(BatchRows rows, bint succeeded, int64_t base_offset, object error,
                        object record_errors)
cdef int32_t observed_rows(BatchRows rows) noexcept
cdef BatchRows part_of_rows(BatchRows rows, int32_t index, int32_t count)
