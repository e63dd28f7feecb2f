"""BatchOwner: what all batches of an accumulator have in common.

Theory of operation. Batches that are not done stand in a list in the order in which they were opened, so that
the oldest, which expires first, is at hand; the parts of a batch that is split take its place. The list knows
nothing of what a batch is. After org.apache.kafka.clients.producer.internals.IncompleteBatches.

A queue that gets its first batch is noted for the sender, who need not look at the others, however many there
are.

The alarm is when the sender means to look again. Whoever makes something happen earlier wakes it: once, since
the alarm is then set to that time. It goes up again when the sender has looked (`RecordAccumulator.ready`).
Waking must outlive its moment, as a byte in a pipe does: it may come just before the sender goes to sleep.

A batch of a node that takes no request now can only expire: the sender hears of what changes that, an
answer, a write, the end of a connection, and looks then. It takes a node out of `busy_nodes` before it looks
at the queues, and puts it in behind that, while it is busy; who fills a queue asks for the node behind that.
So one of both sees the other.

The locks guard a few instructions each, and none is taken under another of them.
"""

cimport cython
from cpython.time cimport PyTime_MonotonicRaw
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t

from kbatch._native.batch.buffer_pool cimport BufferPool
from kbatch._native.codec.lock cimport kb_lock_acquire, kb_lock_destroy, kb_lock_init, kb_lock_release


cdef int64_t later(int64_t now_ns, int64_t delay_ns) noexcept nogil:
    return now_ns + delay_ns if now_ns < INT64_MAX - delay_ns else INT64_MAX


cdef class ListedBatch:
    """What can stand in the list."""


cdef class BatchOwner:
    """What all batches of an accumulator share: settings, memory, the list of those that are not done, the
    sender's alarm."""

    def __cinit__(self):
        kb_lock_init(&self._incomplete_lock)
        kb_lock_init(&self._alarm_lock)
        kb_lock_init(&self._filled_lock)
        self._filled = []
        self.busy_nodes = frozenset()

    def __dealloc__(self):
        kb_lock_destroy(&self._incomplete_lock)
        kb_lock_destroy(&self._alarm_lock)
        kb_lock_destroy(&self._filled_lock)

    cdef void add_incomplete(self, ListedBatch batch, ListedBatch older) noexcept:
        """Behind `older`; behind all, where that is None. The list is in the order of creation."""
        kb_lock_acquire(&self._incomplete_lock)
        try:
            if older is None:
                older = self._newest
            batch._older = older
            if older is None:
                batch._newer, self._oldest = self._oldest, batch
            else:
                batch._newer, older._newer = older._newer, batch
            if batch._newer is None:
                self._newest = batch
            else:
                batch._newer._older = batch
            batch._listed = True
            self._incomplete_count += 1
        finally:
            kb_lock_release(&self._incomplete_lock)

    cdef void remove_incomplete(self, ListedBatch batch) noexcept:
        kb_lock_acquire(&self._incomplete_lock)
        try:
            if not batch._listed:
                return
            if batch._older is None:
                self._oldest = batch._newer
            else:
                batch._older._newer = batch._newer
            if batch._newer is None:
                self._newest = batch._older
            else:
                batch._newer._older = batch._older
            batch._older = batch._newer = None
            batch._listed = False
            self._incomplete_count -= 1
        finally:
            kb_lock_release(&self._incomplete_lock)

    cdef list incomplete(self):
        """All batches that are not done, oldest first."""
        cdef list batches = []
        cdef ListedBatch batch
        cdef Py_ssize_t count = 0
        while True:
            batches.extend([None] * (self._incomplete_count + 8 - len(batches)))
            kb_lock_acquire(&self._incomplete_lock)
            try:
                if self._incomplete_count <= len(batches):
                    batch = self._oldest
                    while batch is not None:
                        batches[count] = batch
                        count += 1
                        batch = batch._newer
                    break
            finally:
                kb_lock_release(&self._incomplete_lock)
        del batches[count:]
        return batches

    cdef void note_filled(self, object queue) noexcept:
        """Under the lock of the queue, which is empty no more."""
        kb_lock_acquire(&self._filled_lock)
        self._filled.append(queue)
        kb_lock_release(&self._filled_lock)

    cdef list take_filled(self):
        """Those that were noted since the last call."""
        cdef list filled = []
        kb_lock_acquire(&self._filled_lock)
        filled, self._filled = self._filled, filled
        kb_lock_release(&self._filled_lock)
        return filled

    cdef void alarm(self, int64_t deadline_ns) noexcept:
        """There will be something to do at `deadline_ns`: wakes the sender if it would look later than that.
        """
        cdef bint sooner
        kb_lock_acquire(&self._alarm_lock)
        try:
            sooner = deadline_ns < self._alarm_ns
            if sooner:
                self._alarm_ns = deadline_ns
        finally:
            kb_lock_release(&self._alarm_lock)
        if sooner and self._wake is not None:
            self._wake()

    cdef void alarm_for(self, int32_t node, ListedBatch batch, int64_t delay_ns) noexcept:
        """`alarm`, `delay_ns` behind the opening of a batch that goes to a node; while that takes nothing,
        at the batch's expiry."""
        if node in self.busy_nodes and not self.wakes_always:
            delay_ns = self._delivery_timeout_ns
        self.alarm(later(batch.created_ns, delay_ns))

    cdef bint is_due(self) noexcept:
        """Whether the alarm has rung, and the sender has not looked yet."""
        cdef int64_t alarm_ns
        kb_lock_acquire(&self._alarm_lock)
        alarm_ns = self._alarm_ns
        kb_lock_release(&self._alarm_lock)
        if alarm_ns == INT64_MAX or alarm_ns == INT64_MIN:
            return alarm_ns == INT64_MIN
        return alarm_ns <= PyTime_MonotonicRaw()
