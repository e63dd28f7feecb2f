from libc.stdint cimport int32_t, int64_t

from kbatch._native.codec.record_batch cimport Source
from kbatch._native.fetch.fetch_wire cimport kb_fetch_answer, kb_fetch_part


cdef class FetchAnswer:
    cdef kb_fetch_answer raw
    cdef int version
    cdef object frame  # a view of the whole
    cdef Source source

    cdef PartitionAnswer part(self, int index)
    cdef object records_of(self, const kb_fetch_part *part)


cdef class PartitionAnswer:
    cdef readonly int index
    cdef readonly str topic
    cdef readonly bytes topic_id
    cdef readonly int32_t partition
    cdef readonly int32_t error_code
    cdef readonly int64_t high_watermark
    cdef readonly int64_t last_stable_offset
    cdef readonly int64_t log_start_offset
    cdef readonly int32_t diverging_epoch
    cdef readonly int64_t diverging_end_offset
    cdef readonly int32_t leader_id
    cdef readonly int32_t leader_epoch
    cdef readonly int32_t preferred_read_replica
    cdef readonly tuple aborted
    cdef readonly object records


cdef tuple aborted_of(const kb_fetch_part *part)
