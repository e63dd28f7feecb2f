"""Sockets that are set not to wait, read and written with the GIL in hand.

Python's own methods let go of the GIL around every system call. Another thread that wants it has it then, and
keeps it for a switch interval, 5 ms, if it computes: for each call of a few microseconds the sender would
stand still so long. Only what is so large that the system takes its time with it is sent without the GIL.
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
    # Larger requests go out while other threads work: a system may do with them what the network does, too.
    SENT_AT_ONCE_BYTES = 4096
    # Into more room than this much may come, which takes the system its time to copy.
    RECEIVED_AT_ONCE_BYTES = 131072

cdef extern from "Python.h":
    PyObject *PyErr_SetFromErrno(object type) except NULL


def receive_into(int descriptor, space):
    """What socket.recv_into does: how many bytes came, 0 at the end of the stream.

    Raises
    ------
    OSError
        BlockingIOError where nothing came.
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
    """What socket.sendmsg does: how many bytes of the `buffers`, one behind another, were taken. There is at
    least one, and no more than the system takes at once (IOV_MAX).

    Raises
    ------
    OSError
        BlockingIOError where none were.
    """
    cdef Py_ssize_t count = len(buffers)
    cdef Py_ssize_t size = 0
    cdef int i, held = 0
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
            held += 1
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
        for i in range(held):
            PyBuffer_Release(&views[i])
        free(views)
        free(parts)
