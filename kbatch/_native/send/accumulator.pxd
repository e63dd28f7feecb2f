from libc.stdint cimport int32_t, int64_t

from kbatch._native.batch.producer_batch cimport PartitionQueue, ProducerBatch
from kbatch._native.send.record_appender cimport RecordAppender, TopicInfo

cdef enum Visit:
    PASSED
    TAKEN
    CLOSED
    NO_SIZE         # it would make the request too large


cdef class RecordAccumulator(RecordAppender):
    cdef public bint completing
    cdef int64_t _retry_backoff_ns
    cdef int64_t _retry_backoff_max_ns
    cdef int64_t _partition_availability_timeout_ns
    cdef bint _adaptive
    # of the sender's thread
    cdef dict _nodes                 # queues with batches by the node that leads them; -1: none
    cdef dict _drain_at              # by node: the place of the queue to begin with
    cdef readonly int64_t visited_count
    cdef Py_ssize_t _load_at         # the topic whose load was told last
    cdef int64_t _load_credit        # partitions whose load may be told
    cdef dict _ready_ns
    cdef dict _drain_ns
    cdef readonly int64_t split_count         # batches replaced by smaller ones
    cdef readonly int64_t reenqueued_count    # put back, to be tried again

    cdef int64_t _node_ready(self, int32_t node, list queues, int64_t now_ns, bint hurried, set nodes,
                             set leaderless) except -1
    cdef int _set_loads(self, set slow, int64_t visited_before) except -1
    cdef int _set_load(self, TopicInfo info, set slow) except -1
    cdef int64_t _delay(self, PartitionQueue queue, int64_t now_ns, bint hurried) noexcept
    cdef int _adopt_topology(self) except -1
    cdef int _take_in(self, list queues) except -1
    cdef int _find_leader(self, PartitionQueue queue) except -1
    cdef set _slow_nodes(self)
    cdef list _drain_node(self, object node, int64_t max_size_bytes, int64_t now_ns, int64_t sealed_bytes)
    cdef ProducerBatch _visit(self, PartitionQueue queue, int64_t left_bytes, int64_t now_ns,
                              Visit *visit)
    cdef int64_t _backoff(self, int32_t attempts) noexcept
