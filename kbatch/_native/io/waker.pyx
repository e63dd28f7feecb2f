"""Waker: how another thread makes the sender's thread return from its wait for sockets.

The GIL stays where it is. Reading and writing here take a microsecond; Python's own, which let go of the GIL,
hand it to the thread that was just woken, or that waits for it, and who rang has to wait until it comes back.
"""

cimport cython
from posix.unistd cimport close

import os
import socket

cdef extern from "descriptor.h" nogil:
    void kb_descriptor_ring(int descriptor) noexcept
    void kb_descriptor_drain(int descriptor) noexcept


@cython.final
cdef class Waker:
    """A file descriptor for the selector, which is readable from `wake()` to `clear()`.

    A call before the wait has begun ends that wait, and any number of calls end one. `wake` may be called
    where a KeyboardInterrupt could not be raised. It may outlive everybody who listens; then it does nothing.
    (A descriptor closed earlier might be another's by then.)
    """

    cdef int _reader
    cdef int _writer                 # the same with an eventfd

    def __cinit__(self):
        self._reader = self._writer = -1
        if hasattr(os, "eventfd"):
            self._reader = self._writer = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            return
        reader, writer = socket.socketpair()
        self._reader, self._writer = reader.detach(), writer.detach()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)

    def __dealloc__(self):
        if self._reader >= 0:
            close(self._reader)
        if self._writer >= 0 and self._writer != self._reader:
            close(self._writer)

    def fileno(self):
        return self._reader

    def wake(self):
        """Any thread; from now on the descriptor is readable."""
        kb_descriptor_ring(self._writer)

    def clear(self):
        """Before looking for what there is to do: who calls `wake` from here on is heard again."""
        kb_descriptor_drain(self._reader)
