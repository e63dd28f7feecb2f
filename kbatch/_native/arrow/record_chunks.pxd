from libc.stdint cimport int64_t, uint8_t

from kbatch._native.arrow.regions cimport Region
from kbatch._native.codec.c cimport kb_memory, kb_record_columns, kb_record_view, kb_records_cursor


cdef class RecordChunk:
    cdef readonly int64_t row_count
    cdef readonly int64_t header_count
    cdef readonly object offsets
    cdef readonly object timestamps_ms
    cdef readonly object leader_epochs
    cdef readonly object header_lists
    cdef readonly tuple key
    cdef readonly tuple value
    cdef readonly tuple header_key
    cdef readonly tuple header_value
    cdef readonly bint as_views
    cdef readonly bint is_log_append_time


cdef struct Chunk:
    kb_record_columns columns
    kb_memory views_data              # copies of records that views refer to
    int view_buffers                  # the number of buffers that views refer to
    int given_buffer                  # the number of the caller's memory, -1: no view refers to it
    int views_data_buffer             # the number of views_data, -1: the same
    int timestamp_type                # of its batches: 1 for log_append_time, -1 before the first
    size_t bodies                     # bytes of their records
    Region *region                    # from which the buffers are cut
    uint8_t *last                     # the column that has the rest of it; NULL: none


cdef class RecordChunks:
    cdef Chunk chunk                  # the open one
    cdef kb_memory _finished          # Chunk
    cdef int64_t row_count            # of all chunks

    cdef void begin(self, int wanted, bint as_views) noexcept nogil
    cdef int begin_batch(self, int64_t count, size_t body, int timestamp_type) except -1 nogil
    cdef int make_room(self, kb_records_cursor *cursor, int64_t count, int64_t rows_to_come,
                       size_t bytes_to_come) except -1 nogil
    cdef int append(self, kb_records_cursor *cursor) except -1 nogil
    cdef void append_range(self, int64_t first_offset, int64_t count, int64_t timestamp_ms,
                           int leader_epoch) noexcept nogil
    cdef int finish_chunk(self) except -1 nogil
    cdef list take(self, object given)
    cdef int _begin_memory(self, const kb_records_cursor *cursor, int64_t rows,
                           size_t expected) except -1 nogil
    cdef int _refer(self, kb_records_cursor *cursor, size_t body) except -1 nogil
    cdef void _cut(self, kb_memory *memory, double size) noexcept nogil
    cdef int _grow_rows(self, int64_t rows) except -1 nogil
    cdef int _grow_headers(self, int64_t count) except -1 nogil
    cdef int _reserve_share(self, kb_memory *memory, size_t body, size_t expected) except -1 nogil
    cdef int _reserve_record(self, const kb_record_view *record) except -1 nogil
