from libc.stdint cimport int32_t, int64_t, uint8_t

from kbatch._native.fetch.arrivals cimport AnswerReader, Arrivals
from kbatch._native.fetch.fetch_answer cimport FetchAnswer
from kbatch._native.fetch.fetch_wire cimport kb_fetch_part
from kbatch._native.fetch.reading cimport (
    PartitionReading,
    RoadState,
    kb_fetch_arrival,
    kb_fetch_node,
    kb_fetch_road,
)
from kbatch._native.io.sensor cimport Sensor
from kbatch._native.io.waker cimport Waker

cdef extern from "road_poll.h" nogil:
    enum:
        KB_LANE_EVENTS

    ctypedef struct kb_lane_event:
        int descriptor
        unsigned int events

    int64_t kb_lane_now_ns() noexcept
    void kb_road_flush_all(kb_fetch_road *road, int poller) noexcept
    void kb_road_end_reports(kb_fetch_road *road, int poller) noexcept
    int kb_road_wait(kb_fetch_road *road, int poller, int waker, int64_t wait_ns, uint8_t *scratch,
                     kb_lane_event *others, int *was_rung) noexcept


cdef class FetchRoad(RoadState):
    cdef AnswerReader _reader
    cdef Arrivals _arrivals
    cdef Sensor _latency
    cdef Sensor _throttle
    cdef tuple _texts             # which `_road.head` refers to
    cdef int64_t _request_timeout_ns
    # of a loan
    cdef object _deliver
    cdef bytearray _scratch
    cdef uint8_t *_space          # the memory of `_scratch`
    cdef kb_lane_event[64] _others
    cdef int _other_count
    cdef bint _has_polled

    cdef object _read(self, PartitionReading reading, const kb_fetch_part *part, FetchAnswer answer,
                      object judge, int64_t now_ns)
    cdef int _deliver_arrivals(self) except -1
    cdef bint _hand_over(self) noexcept nogil
    cdef void _discard(self, kb_fetch_arrival *arrival) noexcept
    cdef void _forget_lent(self) noexcept
    cdef int _poll(self, int poller, Waker waker, int64_t deadline_ns) noexcept nogil
    cdef int _end_loan(self, int reason, int poller, Waker waker) noexcept nogil
    cdef bint _look(self, int poller, Waker waker, int64_t wait_ns) noexcept nogil
    cdef int64_t _timeout_ns(self) noexcept nogil
    cdef int64_t _late_work_ns(self) noexcept nogil
    cdef kb_fetch_node *_lent(self, int64_t connection_id) noexcept
