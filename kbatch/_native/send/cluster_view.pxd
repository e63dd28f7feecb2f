from libc.stdint cimport int32_t


cdef class TopicView:
    cdef readonly int32_t partition_count
    cdef int32_t *leaders            # node ids, -1: none known
    cdef int32_t *leader_epochs      # -1: unknown
    cdef int32_t *available          # the partitions that have a leader
    cdef int32_t available_count
    cdef tuple _available_partitions


cdef class ClusterView:
    cdef dict _topics

    cdef TopicView topic(self, str name)
