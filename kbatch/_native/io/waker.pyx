"""Waker: lets another thread end the sender's wait for sockets.

It keeps the GIL. Reading and writing here take a microsecond. Python's own calls release the GIL, which then
goes to the woken thread or another waiter, and the caller waits until it comes back.
"""

cimport cython

from kbatch._native.flags cimport kb_flag_set, kb_flag_take

import os
import socket

cdef extern from "descriptor.h" nogil:
    void kb_descriptor_ring(int descriptor) noexcept
    void kb_descriptor_drain(int descriptor) noexcept
    void kb_descriptor_close(int descriptor) noexcept


@cython.final
cdef class Waker:
    """A file descriptor for the selector, readable from `wake()` or `ring()` to `clear()`.

    A call before the wait ends that wait, and any number of calls end one. `wake` may be called where a
    KeyboardInterrupt must not be raised. It may outlive all its listeners, and then does nothing. (A
    descriptor closed earlier might be another's by then.)
    """

    def __cinit__(self):
        self._reader = self._writer = -1
        if hasattr(os, "eventfd"):
            self._reader = self._writer = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            return
        reader, writer = socket.socketpair()
        reader.setblocking(False)
        writer.setblocking(False)
        self._reader, self._writer = reader.detach(), writer.detach()

    def __dealloc__(self):
        if self._reader >= 0:
            kb_descriptor_close(self._reader)
        if self._writer >= 0 and self._writer != self._reader:
            kb_descriptor_close(self._writer)

    def fileno(self):
        return self._reader

    def wake(self):
        """Make the descriptor readable, for the engine; any thread."""
        kb_flag_set(&self.is_called)
        kb_descriptor_ring(self._writer)

    def ring(self):
        """Make the descriptor readable, since there are batches to send; any thread. A lane may see to them,
        without the engine.
        """
        kb_descriptor_ring(self._writer)

    def clear(self):
        """Reset it before looking for work, so that later calls count again. True if `wake` was among them,
        so that the engine has to run.
        """
        kb_descriptor_drain(self._reader)
        return self.take_call()

    cdef bint take_call(self) noexcept nogil:
        """True if `wake` was called since the last call. The descriptor was drained before."""
        return kb_flag_take(&self.is_called)
