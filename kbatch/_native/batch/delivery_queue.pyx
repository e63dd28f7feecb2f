"""DeliveryQueue: wakes the thread that runs callbacks, with or without the GIL.

Theory of operation. One thread takes items (`get`) and sleeps when there are none. Others add items with the
GIL (`put`). The lane has finished batches without it: it rings, and the woken thread completes them itself,
by `source`. So a record's callback waits for the GIL once: the lane never does. While the thread is busy with
callbacks, `ring` says so, and the lane's thread completes the batches instead, before long.

A ring that comes before the thread sleeps is not missed: it looks again after it has said that it waits.
"""

cimport cython
from cpython.pythread cimport (
    WAIT_LOCK,
    PyThread_acquire_lock,
    PyThread_allocate_lock,
    PyThread_free_lock,
    PyThread_release_lock,
)

from kbatch._native.flags cimport kb_flag_exchange, kb_flag_load, kb_flag_store

from collections import deque

# What the thread does.
cdef enum:
    IS_BUSY
    WAITS
    IS_RUNG


@cython.final
cdef class DeliveryQueue:
    """A queue for one thread that takes.

    Attributes
    ----------
    source, has_finished : callable or None
        `source()` puts what was finished without the GIL, on the thread that takes; `has_finished()` says
        whether there is any.
    """

    def __cinit__(self):
        self._items = deque()
        self._state = IS_BUSY
        self._bell = PyThread_allocate_lock()
        if self._bell == NULL:
            raise MemoryError("no memory for a lock")
        PyThread_acquire_lock(self._bell, WAIT_LOCK)

    def __dealloc__(self):
        if self._bell != NULL:
            PyThread_free_lock(self._bell)

    def put(self, item):
        """Add an item. Any thread may call this."""
        self._items.append(item)
        self.ring()

    def empty(self):
        return not self._items

    def get(self):
        """Wait for the next item, and return it."""
        while True:
            if self.source is not None:
                self.source()
            if self._items:
                return self._items.popleft()
            self._sleep()

    cdef int _sleep(self) except -1:
        """Wait for a ring, unless something came meanwhile."""
        kb_flag_store(&self._state, WAITS)
        if self._has_more() and kb_flag_exchange(&self._state, WAITS, IS_BUSY):
            return 0
        with nogil:
            PyThread_acquire_lock(self._bell, WAIT_LOCK)
        kb_flag_store(&self._state, IS_BUSY)
        return 0

    cdef bint _has_more(self) except -1:
        return bool(self._items) or (self.has_finished is not None and self.has_finished())

    cdef bint ring(self) noexcept nogil:
        """Wake the thread. False if it is busy, and may be for long."""
        if kb_flag_exchange(&self._state, WAITS, IS_RUNG):
            PyThread_release_lock(self._bell)
            return True
        return kb_flag_load(&self._state) == IS_RUNG
