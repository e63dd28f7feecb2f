from libc.stdint cimport int64_t

from kbatch._native.batch.delivery cimport Completion, Delivery


cdef class BatchDelivery(Delivery):

    @staticmethod
    cdef BatchDelivery of(Completion completion, int64_t max_timestamp_ms, object on_delivery)
    cdef object _error(self)
    cdef object _metadata(self)
    cdef list _parts(self)
