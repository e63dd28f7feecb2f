"""SenderAlarm: when the sender looks next, and who wakes it earlier.

Theory of operation. The alarm is set to the time at which the sender means to look again. A thread that makes
something happen earlier wakes the sender: once, since the alarm is then set to that time. The sender clears
the alarm when it looks, and sets it again afterwards (`RecordAccumulator.ready`). A wake-up must outlive its
moment, as a byte in a pipe does: it may come just before the sender goes to sleep.

A batch of a node that takes no request now can only expire. A response, a write or the end of a connection
changes that; the sender notices it, and looks then. It takes a node out of `busy_nodes` before it looks at
the queues, and puts a busy node in after that. A thread that fills a queue looks the node up after filling
it. So one of the two sees the other.
"""

cimport cython
from cpython.time cimport PyTime_MonotonicRaw
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t

from kbatch._native.lock cimport kb_lock_destroy, kb_lock_init


cdef int64_t later(int64_t now_ns, int64_t delay_ns) noexcept nogil:
    """Return the sum, or the largest number if that overflows."""
    return now_ns + delay_ns if now_ns < INT64_MAX - delay_ns else INT64_MAX


@cython.final
cdef class SenderAlarm:
    """The time at which the sender looks for work, and what wakes it before that.

    Attributes
    ----------
    busy_nodes : frozenset of int
        Nodes that take no request now. The sender notices the next change by itself.
    wakes_always : bool
        New batches of busy nodes wake the sender too.
    """

    def __cinit__(self):
        kb_lock_init(&self.raw.lock)
        self.raw.due_ns = INT64_MAX
        self.busy_nodes = frozenset()

    def __dealloc__(self):
        kb_lock_destroy(&self.raw.lock)

    @staticmethod
    cdef SenderAlarm new(object wake, int64_t delivery_timeout_ns):
        """`wake()` wakes the sender, from any thread; None if there is nothing to wake."""
        cdef SenderAlarm alarm = SenderAlarm.__new__(SenderAlarm)
        alarm._wake = wake
        alarm.delivery_timeout_ns = delivery_timeout_ns
        return alarm

    cdef void wake_by(self, int64_t deadline_ns) noexcept:
        """Wake the sender if it would look later than `deadline_ns`."""
        if kb_alarm_set(&self.raw, deadline_ns) and self._wake is not None:
            self._wake()

    cdef void wake_now(self) noexcept:
        """Wake the sender, whatever time it is."""
        self.wake_by(INT64_MIN)

    cdef void wake_for(self, int32_t node, int64_t created_ns, int64_t delay_ns) noexcept:
        """Wake the sender `delay_ns` after a batch of `node` was opened; if the node is busy, when the batch
        expires."""
        if not self.wakes_always and (kb_alarm_is_busy(&self.raw, node) or node in self._busy_now()):
            delay_ns = self.delivery_timeout_ns
        self.wake_by(later(created_ns, delay_ns))

    @cython.critical_section
    cdef frozenset _busy_now(self):
        return self.busy_nodes

    cdef bint is_due(self) noexcept:
        """True if the alarm has rung, and the sender has not looked yet."""
        cdef int64_t due_ns = kb_alarm_due_ns(&self.raw)
        if due_ns == INT64_MAX or due_ns == INT64_MIN:
            return due_ns == INT64_MIN
        return due_ns <= PyTime_MonotonicRaw()
