from libc.stdint cimport int64_t

from kbatch._native.codec.record_batch cimport Source
from kbatch._native.fetch.budget cimport Budget, FrameShare
from kbatch._native.fetch.fetched cimport Fetched
from kbatch._native.fetch.frames cimport Frame, FramePool
from kbatch._native.fetch.reading cimport kb_arrivals, kb_fetch_arrival, kb_fetch_walked
from kbatch._native.io.sensor cimport Sensor
from kbatch._native.io.waiters cimport Waiters


cdef class AnswerReader:
    cdef Budget _budget
    cdef FramePool _frames
    cdef Sensor _byte_count
    cdef readonly bint check_crcs
    cdef size_t most_bytes           # of a decompressed batch

    cdef list results_of(self, kb_fetch_arrival *arrival)
    cdef int _add_results(self, kb_fetch_arrival *arrival, Frame frame, list found) except -1
    cdef Fetched _result_of(self, const kb_fetch_walked *walked, Source source, FrameShare share)
    cdef int record_fetched(self, list found, int64_t now_ns) except -1
    cdef void discard(self, kb_fetch_arrival *arrival) noexcept


cdef class Arrivals:
    cdef kb_arrivals raw
    cdef object _results             # a deque, of the program's thread
    cdef object _engines             # lists of the engine's results, in a deque: the collector sees them
    cdef object _notify
    cdef Waiters _waiters            # that can be rung without the GIL; None
    cdef AnswerReader _reader        # of the answers

    cdef int use(self, AnswerReader reader) except -1
    cdef void hand_over(self, kb_fetch_arrival *arrival) noexcept nogil
    cpdef object collect(self)
    cdef list _results_of(self, kb_fetch_arrival *arrival)
