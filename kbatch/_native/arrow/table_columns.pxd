from libc.stdint cimport int32_t, int64_t

from kbatch._native.arrow.arrow cimport (
    ArrowBatch,
    ArrowStream,
    BinaryColumn,
    Column,
    HeadersColumn,
    IntColumn,
    StringColumn,
    TimestampColumn,
)
from kbatch._native.codec.c cimport kb_record_header, kb_rows, kb_span


cdef class TableColumns:
    cdef BinaryColumn key
    cdef BinaryColumn value
    cdef TimestampColumn timestamp
    cdef IntColumn partition
    cdef HeadersColumn headers
    cdef StringColumn topic          # None where no column is to name it
    cdef dict _names
    cdef list _columns               # those that the table has: (where, Column)
    # indexes in the table: -1 for a missing one
    cdef int64_t key_at
    cdef int64_t value_at
    cdef int64_t timestamp_at
    cdef int64_t partition_at
    cdef int64_t headers_at
    cdef int64_t topic_at
    cdef int64_t rows_before         # in batches before this one, for messages
    # the current block
    cdef int64_t block_rows
    cdef kb_rows rows
    cdef kb_span *topics             # NULL where no column names them
    cdef kb_span *_spans             # keys, then values, then topics
    cdef int64_t *_numbers           # timestamps, header starts, header counts
    cdef kb_record_header *_header_spans
    cdef int64_t _header_capacity

    cdef int find(self, ArrowStream stream) except -1
    cdef int64_t _find(self, ArrowStream stream, str role, Column column) except -2
    cdef int bind(self, ArrowStream stream, ArrowBatch batch) except -1
    cdef int64_t block_length(self, int64_t first, int64_t left) noexcept nogil
    cdef int fill(self, int64_t first, int64_t count) except -1 nogil
    cdef int _fill_column(self, BinaryColumn column, int64_t first, int64_t count,
                          kb_span *spans) except -1 nogil
    cdef int _fill_headers(self, int64_t first, int64_t count) except -1 nogil
    cdef int32_t named_partition(self, int64_t row, int32_t partition_count, str topic,
                                 int32_t *beyond) except -2 nogil
    cdef int refuse(self, str name, int64_t row, str why) except -1 with gil
