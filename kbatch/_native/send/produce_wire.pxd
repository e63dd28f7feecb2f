from kbatch._native.codec.c cimport kb_span


cdef kb_span text_of(object text, str name) except *
