from libc.stdint cimport int32_t, int64_t, uint8_t

from kbatch._native.codec.c cimport (
    kb_aborted_transaction,
    kb_fetched,
    kb_fetched_batch,
    kb_memory,
    kb_record_view,
    kb_records_cursor,
)
from kbatch._native.arrow.record_chunks cimport RecordChunks
from kbatch._native.codec.record cimport ConsumerRecord, RecordOrigin
from kbatch._native.codec.record_batch cimport Source
from kbatch._native.fetch.reading cimport kb_fetch_walked

cdef enum FaultKind:
    NO_FAULT
    HEADER_FAULT  # the checksum, the header or a marker
    CODEC_FAULT
    COUNT_FAULT
    RECORD_FAULT

# Where the pass is that makes objects.
cdef enum Stage:
    BEFORE  # not begun
    PASSED  # after a batch, or before the first
    FOUND   # at a batch with visible rows
    READY   # at a visible record, which `view` has
    STOPPED # at the end, or at a fault that is not explained yet
    ENDED

# One pass over the batches, and the batch that it is at.
cdef struct Reading:
    kb_fetched walk
    kb_fetched_batch batch
    kb_records_cursor cursor
    kb_record_view view
    kb_memory scratch       # decompressed records; a spare block of `memory`, used before
    int64_t rows_to_come    # in this batch and those after it, at most
    int64_t position        # the offset after what was read
    FaultKind fault


cdef class FetchedRecords:
    cdef Source _source
    cdef object _records
    cdef kb_fetched _start            # as each pass begins, but for is_aborting
    cdef int64_t *_producer_ids
    cdef kb_aborted_transaction *_aborted
    cdef bint _check_crcs
    cdef size_t _limit
    cdef Reading _taking              # the pass that makes objects, at `_stage`
    cdef Stage _stage
    cdef bint _is_busy                # a thread is in `_advance`
    cdef RecordOrigin _origin         # of the records of the batch that the pass is at
    cdef list _ahead                  # what that pass has made and nothing has taken; None if there is none
    cdef readonly str topic
    cdef readonly bytes topic_id
    cdef readonly int32_t partition
    cdef readonly int64_t from_offset
    cdef readonly int64_t to_offset
    cdef readonly int64_t next_offset
    cdef readonly bint is_past_end
    cdef readonly int32_t last_epoch
    cdef readonly int64_t row_bound
    cdef readonly int64_t byte_count
    cdef readonly int64_t needed_bytes
    cdef readonly int64_t taken_count
    cdef readonly int64_t position
    cdef readonly object fault
    cdef readonly bint is_small

    cdef int _read(self, object records, const uint8_t *data, size_t size, int64_t from_offset,
                   int64_t to_offset, int64_t visible_end, object aborted) except -1
    cdef void _begin_at(self, object records, const uint8_t *data, size_t size, int64_t from_offset,
                        int64_t to_offset, int64_t visible_end) noexcept
    cdef object _view(self)
    cdef int _take_aborted(self, list aborted) except -1
    cdef int _scan(self) except -1
    cdef int64_t _first_size(self) noexcept
    cdef int _begin(self, Reading *reading) except -1
    cdef bint _next(self, Reading *reading) noexcept nogil
    cdef bint _is_bad(self, const Reading *reading) noexcept nogil
    cdef bint _is_light(self, const Reading *reading) noexcept nogil
    cdef bint _open(self, Reading *reading) except -1 nogil
    cdef int _note_origin(self) except -1
    cdef int _append_small(self, Reading *reading, RecordChunks chunks) except -1
    cdef bint _append(self, Reading *reading, RecordChunks chunks) except -1 nogil
    cdef bint _has_record(self) except -1
    cdef int64_t _record_offset(self) noexcept
    cdef bint is_over(self) noexcept
    cdef object fault_now(self)
    cpdef list take_records(self, Py_ssize_t count)
    cpdef bint skip_to(self, int64_t offset) except -1
    cdef ConsumerRecord next_record(self)
    cdef void leave(self) noexcept
    cdef void _leave_ahead(self) noexcept
    cdef bint _advance(self, bint opens) except -1
    cdef void _find_record(self) noexcept
    cdef ConsumerRecord _new_record(self)
    cdef void _pass_record(self) noexcept
    cdef int _note_fault(self, const Reading *reading) except -1
    cdef object _error(self, const Reading *reading)
    cdef object _header_error(self, const Reading *reading, str where)
    cdef object _codec_reason(self, const kb_fetched_batch *batch)


cdef FetchedRecords records_in(Source source, object records, const uint8_t *data, size_t size, str topic,
                               bytes topic_id, int32_t partition, int64_t from_offset, int64_t to_offset,
                               int64_t visible_end, object aborted, bint check_crcs, size_t limit)


cdef FetchedRecords records_of_walk(Source source, const kb_fetch_walked *walked, str topic, bytes topic_id,
                                    int32_t partition, bint check_crcs, size_t limit)
