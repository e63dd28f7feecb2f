from libc.stdint cimport int64_t

from kbatch._native.fetch.arrivals cimport Arrivals
from kbatch._native.fetch.fetched cimport Fetched
from kbatch._native.fetch.fetched_batches cimport FetchedRecords
from kbatch._native.fetch.read_cursor cimport FetchIterator, ReadCursor, iterator_over
from kbatch._native.fetch.releases cimport Releases


cdef class CompletedFetch:
    cdef readonly object result
    cdef readonly Fetched fetched        # the result, if it is one
    cdef readonly object failure
    cdef public object columns
    cdef public int64_t row_count

    cdef FetchedRecords records_now(self)
    cdef object columns_now(self)
    cdef int64_t rows_taken(self) noexcept
    cdef bint is_decoding(self) except -1
    cdef bint is_over(self) except -1
    cdef object fault(self)


cdef class QueuedCursor(ReadCursor):
    cdef public object partition
    cdef public int64_t generation
    cdef public bint is_read
    cdef public bint is_paused
    cdef public bint is_left_out
    cdef public object queue             # a deque of CompletedFetch

    cdef CompletedFetch head(self)
    cdef CompletedFetch at(self, Py_ssize_t index)
    cdef bint keeps_silent(self) noexcept


cdef class FetchBuffer:
    cdef readonly Arrivals arrivals
    cdef readonly dict assigned
    cdef public dict _round_robin        # cursors with something in their queues
    cdef public dict _moved              # cursors, since `take_moves`
    cdef public dict _uncommitted        # cursors that have moved since they were last committed
    cdef public dict _before             # cursors, and where they were before the last delivery
    cdef public bint _is_iterating       # in that
    cdef int64_t _changes                # atomic
    cdef readonly int64_t polled_changes
    cdef readonly int64_t poll_count
    cdef int64_t _quiet_changes          # with nothing in them for a poll that finds records
    cdef int64_t _awaited_changes        # with nothing in them for a poll that waits, either
    cdef public int64_t due_ns
    cdef readonly set faulty
    cdef public object passed            # a deque, or None
    cdef bint _is_sorting
    cdef bint _is_asked                  # to sort, since that began to look
    cdef Releases _release
    cdef public object _wake

    cdef int64_t change_count(self) noexcept
    cdef bint may_take(self) noexcept
    cdef bint may_wait(self) noexcept
    cpdef note_moved(self, QueuedCursor cursor)
    cdef int give_back(self, Fetched fetched, int64_t row_count) except -1
    cpdef add(self, QueuedCursor cursor)
    cpdef end(self, QueuedCursor cursor)
    cdef int _end(self, QueuedCursor cursor) except -1
    cdef int _drop(self, QueuedCursor cursor) except -1
    cpdef sort(self)
    cdef int _sort_result(self, object result) except -1
    cdef int _put(self, QueuedCursor cursor, Fetched fetched) except -1
    cpdef drop(self, QueuedCursor cursor)
    cdef bint has_record(self) except -1
    cdef QueuedCursor _next_cursor(self, int64_t generation)
    cpdef bint starves(self) except -1
    cpdef move_to_end(self, QueuedCursor cursor)
    cdef int _move_to_end(self, QueuedCursor cursor) except -1
    cpdef discard_head(self, QueuedCursor cursor)
    cdef object _discard_head(self, QueuedCursor cursor)
    cpdef QueuedCursor next_with_record(self, bint raises, int64_t generation=*)
    cdef QueuedCursor _next_with_record(self, bint raises, int64_t generation)
    cpdef take_next(self, Py_ssize_t most, bint raises, int64_t generation=*)
    cdef object _take_next(self, Py_ssize_t most, bint raises, int64_t generation)
    cpdef list take_records(self, Py_ssize_t most)
    cpdef dict take_moves(self)
    cpdef note_poll(self, int64_t changes)
    cpdef FetchIterator begin_iterator(self, QueuedCursor cursor, FetchedRecords records, Py_ssize_t most)
