from libc.stdint cimport int64_t

from kbatch._native.c cimport kb_record, kb_record_header, kb_span


cdef class HeaderSpans:
    cdef kb_record_header *spans
    cdef Py_ssize_t count
    cdef list _kept

cdef bytes as_bytes(object data, object field)
cdef HeaderSpans header_spans(object headers)
cdef kb_span span_of(object data) noexcept
