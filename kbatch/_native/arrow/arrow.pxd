from libc.stdint cimport int32_t, int64_t, uint8_t

from kbatch._native.codec.c cimport kb_record_header, kb_span

cdef extern from "arrow_c_abi.h" nogil:
    cdef struct ArrowSchema:
        const char *format
        const char *name
        int64_t flags
        int64_t n_children
        ArrowSchema **children
        ArrowSchema *dictionary
        void (*release)(ArrowSchema *) noexcept nogil

    cdef struct ArrowArray:
        int64_t length
        int64_t null_count
        int64_t offset
        int64_t n_buffers
        int64_t n_children
        const void **buffers
        ArrowArray **children
        ArrowArray *dictionary
        void (*release)(ArrowArray *) noexcept nogil

    cdef struct ArrowArrayStream:
        int (*get_schema)(ArrowArrayStream *, ArrowSchema *) noexcept nogil
        int (*get_next)(ArrowArrayStream *, ArrowArray *) noexcept nogil
        const char *(*get_last_error)(ArrowArrayStream *) noexcept nogil
        void (*release)(ArrowArrayStream *) noexcept nogil

cdef extern from "arrow_columns.h" nogil:
    ctypedef enum kb_column_kind:
        KB_COLUMN_NULL
        KB_COLUMN_OFFSETS32
        KB_COLUMN_OFFSETS64
        KB_COLUMN_VIEWS
        KB_COLUMN_FIXED
        KB_COLUMN_DICTIONARY

    ctypedef struct kb_column:
        kb_column_kind kind
        int64_t width
        const uint8_t *validity
        int64_t offset
        int64_t length
        const void *index
        const uint8_t *data
        const uint8_t *const *view_data
        const kb_column *dictionary

    bint kb_is_valid(const uint8_t *validity, int64_t row) noexcept
    int64_t kb_column_spans(const kb_column *column, int64_t first, int64_t count, kb_span *spans,
                            int64_t stride) noexcept


cdef class ArrowBatch:
    cdef object _owner
    cdef ArrowArray array
    cdef bint _owned


cdef class ArrowStream:
    cdef object _capsules
    cdef ArrowArrayStream *_stream
    cdef ArrowBatch _single
    cdef ArrowSchema _schema
    cdef ArrowSchema *schema

    cdef ArrowBatch next_batch(self)
    cdef int _raise_stream_error(self, int code, str verb) except -1


cdef class Column:
    cdef str name

    cdef int bind(self, const ArrowSchema *schema, const ArrowArray *array, int64_t parent_offset) except -1


cdef class BinaryColumn(Column):
    cdef kb_column column
    cdef kb_column _dictionary

    cdef int _bind(self, kb_column *column, const ArrowSchema *schema, const ArrowArray *array,
                   int64_t parent_offset) except -1


cdef class StringColumn(BinaryColumn):
    pass


cdef class IntColumn(Column):
    cdef const uint8_t *validity
    cdef const int32_t *values
    cdef int64_t offset


cdef class TimestampColumn(Column):
    cdef const uint8_t *validity
    cdef const int64_t *values
    cdef int64_t offset
    cdef int unit
    cdef int64_t fill(self, int64_t first, int64_t count, int64_t now_ms,
                      int64_t *timestamps_ms) noexcept nogil


cdef class HeadersColumn(Column):
    cdef const uint8_t *validity
    cdef const int32_t *offsets32
    cdef const int64_t *offsets64
    cdef int64_t offset
    cdef const uint8_t *item_validity
    cdef int64_t item_offset
    cdef BinaryColumn keys
    cdef BinaryColumn values

    cdef object _wrong_type(self, const ArrowSchema *schema)
    cdef int _fault(self, const kb_record_header *header, int64_t item, int64_t good,
                    int64_t origin) noexcept nogil
    cdef int64_t start(self, int64_t row) noexcept nogil
    cdef int64_t fill(self, int64_t first, int64_t count, int64_t *starts, int64_t *counts,
                      kb_record_header *headers, int *why) noexcept nogil


cdef int64_t child_index(const ArrowSchema *schema, str name) except -2
