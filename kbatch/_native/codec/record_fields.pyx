"""A caller's key, value and headers as spans of bytes that last until the record is written."""

cimport cython
from cpython.buffer cimport PyObject_CheckBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromObject, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free

from kbatch._native.codec.c cimport kb_record, kb_record_header, kb_span
from kbatch._native.codec.memory cimport grown
from kbatch._native.codec.record_batch cimport checked_int

import operator

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object unicode, Py_ssize_t *size) except NULL
    long long PyLong_AsLongLongAndOverflow(object number, int *overflow) except? -1


cdef bytes as_bytes(object data, object field):
    """Return `data` itself if it is bytes or None, else a copy of the bytes-like object. `field` is its name
    in messages: a field, or the key of the header with this value.
    """
    if data is None or type(data) is bytes:
        return data
    hint = " (encode it, or configure a serializer)" if isinstance(data, str) else ""
    try:
        if getattr(getattr(data, "dtype", None), "hasobject", False):
            hint = " of objects, which has their addresses only"
        elif PyObject_CheckBuffer(data):
            return PyBytes_FromObject(data)
    except (BufferError, ValueError) as error:  # numpy has types that no buffer can describe
        hint = f": {error}"
    name = field if isinstance(field, str) else f"headers: the value of {field[0]!r}"
    raise TypeError(f"{name} must be bytes-like or None, got {type(data).__name__}{hint}")


cdef int64_t as_integer(object value, str name, int64_t lowest, int64_t highest) except? -2:
    """Return an object with __index__, except bool, as an integer within bounds; `name` is its name in
    messages.
    """
    cdef int overflow = 0
    cdef int64_t number
    if type(value) is int:
        number = PyLong_AsLongLongAndOverflow(value, &overflow)
        if not overflow and lowest <= number <= highest:
            return number
    elif not isinstance(value, bool) and hasattr(value, "__index__"):
        value = operator.index(value)
    return checked_int(value, name, lowest, highest)


cdef kb_span _span_of(object data) noexcept:
    """Return the span of bytes, or of None, which is Kafka's null."""
    cdef kb_span span
    if data is None:
        span.data = NULL
        span.size = -1
    else:
        span.data = <const uint8_t *>PyBytes_AS_STRING(data)
        span.size = PyBytes_GET_SIZE(data)
    return span


@cython.final
@cython.freelist(16)
cdef class HeaderSpans:
    """The headers of a record, and the objects they point into."""

    def __dealloc__(self):
        free(self.spans)


cdef HeaderSpans fill_record(kb_record *record, bytes key, bytes value, object headers):
    """Point all of `record` but its timestamp into the arguments; keep the result, like `key` and `value`,
    until it is written.
    """
    cdef HeaderSpans spans = None
    record.key = _span_of(key)
    record.value = _span_of(value)
    record.headers = NULL
    record.header_count = 0
    if headers:
        spans = _header_spans(headers)
        record.headers = spans.spans
        record.header_count = spans.count
    return spans


cdef HeaderSpans _header_spans(object headers):
    cdef HeaderSpans found = HeaderSpans.__new__(HeaderSpans)
    cdef Py_ssize_t i
    try:
        found._kept = None if isinstance(headers, (str, bytes, dict)) else list(headers)
    except TypeError:
        pass
    if found._kept is None:
        raise TypeError(f"headers must be a sequence of (str, bytes | None), got {type(headers).__name__}")
    found.count = len(found._kept)
    found.spans = <kb_record_header *>grown(NULL, found.count * sizeof(kb_record_header))
    for i in range(found.count):
        found._kept[i] = _take_header(found._kept[i], i, &found.spans[i])
    return found


cdef tuple _take_header(object item, Py_ssize_t at, kb_record_header *header):
    """Point `header` into the item; return the object to keep meanwhile."""
    cdef Py_ssize_t size
    cdef tuple pair
    if type(item) is not tuple:
        item = tuple(item) if isinstance(item, (tuple, list)) else (item,)
    pair = item
    if len(pair) != 2 or not isinstance(pair[0], str):
        raise TypeError(f"headers: item {at} must be a pair (str, bytes | None), got {item!r}")
    if pair[1] is not None and type(pair[1]) is not bytes:
        pair = (pair[0], as_bytes(pair[1], pair))
    try:
        header.key.data = <const uint8_t *>PyUnicode_AsUTF8AndSize(pair[0], &size)
    except UnicodeEncodeError:
        raise ValueError(f"headers: key {pair[0]!r} of item {at} cannot be written as UTF-8") from None
    header.key.size = size
    header.value = _span_of(pair[1])
    return pair
