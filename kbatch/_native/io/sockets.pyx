"""Non-blocking sockets, read and written while holding the GIL.

Python's own methods release the GIL around every system call. A computing thread that takes it keeps it for a
switch interval, 5 ms: the sender would wait that long for each call of a few microseconds. Only data so large
that the system needs time for it is sent without the GIL.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.object cimport PyObject
from libc.stdlib cimport free, malloc

cdef extern from "descriptor.h" nogil:
    struct iovec:
        void *iov_base
        size_t iov_len

    ssize_t kb_socket_receive(int descriptor, void *space, size_t size) noexcept
    ssize_t kb_socket_send(int descriptor, iovec *parts, int count) noexcept

cdef enum:
    # Larger requests are sent while other threads work: a system may also do the network's work in the call.
    SENT_AT_ONCE_BYTES = 4096
    # Into more room than this much may come, which takes the system its time to copy.
    RECEIVED_AT_ONCE_BYTES = 131072

cdef extern from "Python.h":
    PyObject *PyErr_SetFromErrno(object type) except NULL


def receive_into(int descriptor, space):
    """Receive like socket.recv_into: return the number of received bytes, 0 at the end of the stream.

    Raises
    ------
    OSError
        BlockingIOError if none came.
    """
    cdef Py_buffer buffer
    cdef ssize_t received
    PyObject_GetBuffer(space, &buffer, PyBUF_WRITABLE)
    try:
        if buffer.len > RECEIVED_AT_ONCE_BYTES:
            with nogil:
                received = kb_socket_receive(descriptor, buffer.buf, buffer.len)
        else:
            received = kb_socket_receive(descriptor, buffer.buf, buffer.len)
        if received < 0:
            PyErr_SetFromErrno(OSError)
        return received
    finally:
        PyBuffer_Release(&buffer)


def send(int descriptor, list buffers not None):
    """Send like socket.sendmsg: return the number of bytes taken from the consecutive `buffers`. There is
    at least one, and at most the system's limit (IOV_MAX).

    Raises
    ------
    OSError
        BlockingIOError if none were taken.
    """
    cdef Py_ssize_t count = len(buffers)
    cdef Py_ssize_t size = 0
    cdef int i, view_count = 0
    cdef ssize_t sent = -1
    cdef Py_buffer *views = NULL
    cdef iovec *parts = NULL
    try:
        views = <Py_buffer *>malloc(max(count, 1) * sizeof(Py_buffer))
        parts = <iovec *>malloc(max(count, 1) * sizeof(iovec))
        if views == NULL or parts == NULL:
            raise MemoryError(f"no memory to send {count} buffers")
        for i in range(count):
            PyObject_GetBuffer(buffers[i], &views[i], PyBUF_SIMPLE)
            view_count += 1
            parts[i].iov_base = views[i].buf
            parts[i].iov_len = views[i].len
            size += views[i].len
        if size > SENT_AT_ONCE_BYTES:
            with nogil:
                sent = kb_socket_send(descriptor, parts, count)
        else:
            sent = kb_socket_send(descriptor, parts, count)
        if sent < 0:
            PyErr_SetFromErrno(OSError)
        return sent
    finally:
        for i in range(view_count):
            PyBuffer_Release(&views[i])
        free(views)
        free(parts)
