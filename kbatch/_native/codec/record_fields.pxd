from libc.stdint cimport int64_t

from kbatch._native.codec.c cimport kb_record, kb_record_header


cdef class HeaderSpans:
    cdef kb_record_header *spans
    cdef Py_ssize_t count
    cdef list _kept

cdef bytes as_bytes(object data, object field)
cdef int64_t as_integer(object value, str name, int64_t lowest, int64_t highest) except? -2
cdef HeaderSpans fill_record(kb_record *record, bytes key, bytes value, object headers)
