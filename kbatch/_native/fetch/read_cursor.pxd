from libc.stdint cimport int64_t

from kbatch._native.codec.record cimport ConsumerRecord
from kbatch._native.fetch.fetched_batches cimport FetchedRecords


cdef class ReadCursor:
    cdef public object last
    cdef public FetchIterator iterator

    cdef int64_t next_offset(self) except? -1
    cdef object last_now(self)
    cdef void note_last(self, object last) noexcept
    cdef void use(self, FetchIterator iterator) noexcept


cdef class FetchIterator:
    cdef ReadCursor _cursor
    cdef FetchedRecords _records
    cdef Py_ssize_t _left

    cdef ConsumerRecord take(self)
    cdef FetchedRecords _records_now(self)
    cdef void _end(self) noexcept


cdef FetchIterator iterator_over(ReadCursor cursor, FetchedRecords records, Py_ssize_t count)
