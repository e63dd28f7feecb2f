# Text in requests.

from libc.stdint cimport uint8_t

from kbatch._native.codec.c cimport kb_span

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

cdef extern from "wire.h" nogil:
    enum:
        KB_WIRE_MAX_STRING


cdef inline kb_span text_of(object text, str request, str name) except *:
    """Return the UTF-8 of a text, which owns it, or null. Raise ProtocolError if a request cannot have it."""
    cdef kb_span span
    cdef Py_ssize_t size = -1
    span.data = NULL
    if text is not None:
        span.data = <const uint8_t *>PyUnicode_AsUTF8AndSize(text, &size)
    span.size = size
    if size > KB_WIRE_MAX_STRING:
        from kbatch.errors import ProtocolError

        raise ProtocolError(f"{request}: {name} must have at most {KB_WIRE_MAX_STRING} bytes, got {size}")
    return span
