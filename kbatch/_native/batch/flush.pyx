"""Flush: waits for a number of batches, and for their callbacks.

It is over when every batch has arrived that was expected. Under its lock no Python code runs.
"""

cimport cython
from libc.stdint cimport int64_t

from kbatch._native.codec.lock cimport kb_lock_acquire, kb_lock_destroy, kb_lock_init, kb_lock_release

from kbatch._native.io.interrupts import Event


@cython.final
cdef class Flush:
    """The batches that were unfinished when a flush began, and those that they are split into."""

    def __cinit__(self):
        kb_lock_init(&self._lock)

    def __dealloc__(self):
        kb_lock_destroy(&self._lock)

    def __init__(self):
        raise TypeError("a Flush comes from RecordAccumulator.begin_flush")

    @property
    def pending_count(self):
        """Batches that are still to be answered, or whose callbacks are still to run."""
        return self._pending_count

    def done(self):
        return self._pending_count == 0

    def wait(self, timeout=None):
        """Whether it is over, after up to `timeout` seconds (None: as long as it takes)."""
        event = Event()
        kb_lock_acquire(&self._lock)
        try:
            if self._pending_count == 0:
                return True
            if self._event is None:
                self._event = event
            event = self._event
        finally:
            kb_lock_release(&self._lock)
        return event.wait(timeout)

    def add_done_callback(self, function):
        """Calls `function(flush)` when it is over, on the thread that ends it, or now; it must not raise."""
        listeners = [function]
        kb_lock_acquire(&self._lock)
        try:
            if self._pending_count:
                if self._listeners is None:
                    self._listeners = listeners
                else:
                    self._listeners.append(function)
                return
        finally:
            kb_lock_release(&self._lock)
        function(self)

    cdef void expect(self, int64_t count) noexcept:
        kb_lock_acquire(&self._lock)
        self._pending_count += count
        kb_lock_release(&self._lock)

    cdef void arrived(self) noexcept:
        cdef list listeners = None
        event = None
        kb_lock_acquire(&self._lock)
        try:
            self._pending_count -= 1
            if self._pending_count == 0:
                event = self._event
                listeners = self._listeners
        finally:
            kb_lock_release(&self._lock)
        if event is not None:
            event.set()
        if listeners is not None:
            for function in listeners:
                function(self)
