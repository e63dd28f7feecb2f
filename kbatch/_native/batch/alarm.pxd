from libc.stdint cimport int32_t, int64_t

from kbatch._native.lock cimport kb_lock

cdef extern from "alarm.h" nogil:
    ctypedef struct kb_alarm:
        kb_lock lock
        int64_t due_ns

    bint kb_alarm_set(kb_alarm *alarm, int64_t deadline_ns) noexcept
    void kb_alarm_clear(kb_alarm *alarm) noexcept
    bint kb_alarm_is_busy(kb_alarm *alarm, int32_t node_id) noexcept
    int64_t kb_alarm_due_ns(kb_alarm *alarm) noexcept

cdef int64_t later(int64_t now_ns, int64_t delay_ns) noexcept nogil


cdef class SenderAlarm:
    cdef public frozenset busy_nodes  # busy nodes, whose changes reach the sender by themselves
    cdef public bint wakes_always    # for them too: it has to run before it can notice anything
    cdef object _wake
    cdef int64_t delivery_timeout_ns
    cdef kb_alarm raw

    @staticmethod
    cdef SenderAlarm new(object wake, int64_t delivery_timeout_ns)
    cdef void wake_by(self, int64_t deadline_ns) noexcept
    cdef void wake_now(self) noexcept
    cdef void wake_for(self, int32_t node, int64_t created_ns, int64_t delay_ns) noexcept
    cdef frozenset _busy_now(self)
    cdef bint is_due(self) noexcept
