"""Waiters: who waits for a condition, so that it can be notified with the GIL, and threads without it."""

cimport cython
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdlib cimport free, realloc

from kbatch._native.io.interrupts cimport NativeEvent
from kbatch._native.lock cimport begin_process_lock, kb_lock, kb_lock_acquire, kb_lock_release

# Of all lists of events.
cdef kb_lock events_lock

begin_process_lock(&events_lock)


@cython.final
@cython.no_gc_clear
cdef class Waiters:
    """Those who wait for a condition. A thread's waiter has an `event`, and waits for that only: it is rung
    without the GIL, too.
    """

    def __cinit__(self):
        self._all = {}

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self._event_count):
            Py_DECREF(<object>self._events[i])
        free(self._events)

    def __len__(self):
        return len(self._all)

    def add(self, waiter):
        """Add a waiter, until `discard`."""
        self.put(waiter, waiter.event)

    def discard(self, waiter):
        """Forget a waiter that was added."""
        self.drop(waiter, waiter.event)

    def notify(self):
        """Set all waiters, in the order in which they came; each is set once. True if there were any."""
        cdef list waiting = list(self._all)
        for waiter in waiting:
            self._all.pop(waiter, None)
            waiter.set()
        return bool(waiting)

    cdef int put(self, object waiter, NativeEvent event) except -1:
        cdef void **events
        self._all[waiter] = None
        if event is None:
            return 0
        kb_lock_acquire(&events_lock)
        if self._event_count == self._room:
            events = <void **>realloc(self._events, (2 * self._room + 2) * sizeof(void *))
            if events == NULL:
                kb_lock_release(&events_lock)
                self._all.pop(waiter)
                raise MemoryError
            self._events = events
            self._room = 2 * self._room + 2
        Py_INCREF(event)
        self._events[self._event_count] = <void *>event
        self._event_count += 1
        kb_lock_release(&events_lock)
        return 0

    cdef void drop(self, object waiter, NativeEvent event) noexcept:
        cdef Py_ssize_t i
        cdef bint was_there = False
        self._all.pop(waiter, None)
        if event is None:
            return
        kb_lock_acquire(&events_lock)
        for i in range(self._event_count):
            if self._events[i] == <void *>event:
                self._event_count -= 1
                self._events[i] = self._events[self._event_count]
                was_there = True
                break
        kb_lock_release(&events_lock)
        if was_there:
            Py_DECREF(event)

    cdef void ring(self) noexcept nogil:
        """Let all events happen."""
        cdef Py_ssize_t i
        kb_lock_acquire(&events_lock)
        for i in range(self._event_count):
            (<NativeEvent>self._events[i]).ring()
        kb_lock_release(&events_lock)
