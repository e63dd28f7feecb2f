from libc.stdint cimport int32_t, int64_t, uint64_t

from kbatch._native.batch.alarm cimport SenderAlarm
from kbatch._native.batch.buffer_pool cimport BufferPool, Claim
from kbatch._native.batch.producer_batch cimport (
    BatchContext,
    PartitionQueue,
    ProducerBatch,
    Visit,
    kb_partition,
    kb_topic,
)
from kbatch._native.codec.c cimport kb_record
from kbatch._native.codec.estimator cimport CompressionRatioEstimator, TopicRatios
from kbatch._native.io.sensor cimport SensorGroup
from kbatch._native.lock cimport kb_lock
from kbatch._native.send.cluster_view cimport ClusterView, TopicView
from kbatch._native.send.encoded_batch cimport PendingBatch
from kbatch._native.send.sealing cimport SealPolicy
from kbatch._native.send.sticky cimport StickyPartitioner

cdef extern from "node_queues.h" nogil:
    ctypedef struct kb_node_queues:
        int32_t node_id
        int32_t count
        kb_partition **queues
        int64_t drain_at
        int64_t ready_ns
        int64_t taking_ns

    ctypedef struct kb_queues:
        kb_node_queues *nodes
        int32_t count

    void kb_queues_free(kb_queues *all) noexcept
    kb_node_queues *kb_queues_of(kb_queues *all, int32_t node_id) noexcept
    bint kb_queues_add(kb_queues *all, kb_partition *queue) noexcept
    void kb_queues_note_ready(kb_node_queues *node, bint takes, int64_t now_ns) noexcept
    int32_t kb_queues_start(kb_node_queues *node) noexcept
    void kb_queues_forget_empty(kb_node_queues *node) noexcept
    bint kb_queues_have_batch(const kb_node_queues *node) noexcept

cdef enum Attempt:
    APPENDED
    FILLED          # the open batch had no room, and is closed now
    MOVED           # the sticky partition is another by now
    UNOPENED        # there is no open batch
    UNPAID          # memory is short
    TOO_LATE        # the accumulator was closed

cdef struct Step:
    Attempt what
    int32_t index
    bint opened
    bint closed

cdef int64_t UNKNOWN_NS

cdef int64_t record_bytes(const kb_record *record) noexcept nogil
cdef object beyond_memory(int64_t size, int codec, int64_t total_bytes)


cdef class TopicInfo:
    cdef readonly str name
    cdef int32_t number              # among the topics
    cdef TopicRatios ratios
    cdef StickyPartitioner sticky
    cdef TopicView view              # None: unknown. Others than its owner read it by `partitions_now`
    cdef list queues                 # PartitionQueue, or None, by partition
    cdef int32_t queue_count         # those that are not None
    cdef kb_lock lock                # for growing `queues`
    cdef kb_topic raw
    cdef SensorGroup sensors         # which `raw` refers to
    # of the sender's thread
    cdef int32_t *partitions
    cdef int32_t *lengths
    cdef int32_t load_capacity

    cdef PartitionQueue queue(self, int32_t partition)
    cdef TopicView partitions_now(self)
    cdef void use(self, TopicView view) noexcept
    cdef int reserve_load(self, Py_ssize_t count) except -1


cdef class RecordAccumulator:
    cdef readonly BufferPool memory
    cdef readonly SenderAlarm alarm
    cdef BatchContext context
    cdef int64_t linger_ns
    # atomic
    cdef int64_t _transaction_count
    cdef int _completing
    cdef int _accepts_directly
    cdef int64_t _callback_thread_ident
    cdef object _clock_ns            # None: the system's
    cdef readonly SealPolicy seal_policy
    cdef bint _adaptive
    cdef int64_t _retry_backoff_ns
    cdef int64_t _retry_backoff_max_ns
    cdef int64_t _partition_availability_timeout_ns
    cdef uint64_t _random
    cdef CompressionRatioEstimator _estimator
    cdef ClusterView view
    cdef bint _topology_changed      # the leaders of the queues are those of an earlier view
    cdef dict _topics
    cdef list _topic_list
    cdef TopicInfo _last_info        # that was looked up
    cdef int _closed                 # atomic
    cdef kb_lock _flush_lock
    cdef int32_t _flush_count
    cdef kb_lock _unsealed_lock
    cdef list _unsealed
    cdef int64_t _unsealed_count     # of `_unsealed`
    # of the sender's thread
    cdef kb_queues _queues           # those with batches; the lane's, too
    cdef readonly int64_t visited_count
    cdef Py_ssize_t _load_at         # the topic whose load was passed on last
    cdef int64_t _load_credit        # partitions whose load may be passed on
    cdef readonly int64_t split_count         # batches replaced by smaller ones
    cdef readonly int64_t reenqueued_count    # put back, to be tried again

    cdef object accept(self, TopicInfo info, int32_t partition, const kb_record *record, int64_t now_ns,
                       object on_delivery, Claim claim, int64_t transaction)
    cdef object accept_batch(self, TopicInfo info, PendingBatch pending, int64_t now_ns, Claim claim)
    cdef ProducerBatch _enqueue_encoded(self, PartitionQueue queue, ProducerBatch batch, int64_t transaction)
    cdef bint has_unsealed(self) noexcept nogil
    cdef bint goes_directly(self) noexcept nogil
    cdef bint in_callback(self) noexcept
    cdef int64_t transaction(self) noexcept nogil
    cdef bint is_too_late(self, int64_t transaction) noexcept nogil
    cdef int64_t now_ns(self) except? -1
    cdef object refuse(self, Claim claim)
    cdef object too_late(self)
    cdef ProducerBatch _try_append(self, PartitionQueue queue, TopicInfo info, TopicView view,
                                   ProducerBatch fresh, const kb_record *record, object on_delivery,
                                   Claim claim, int64_t transaction, Step *step)
    cdef void enqueue(self, PartitionQueue queue, ProducerBatch batch) noexcept
    cdef ProducerBatch new_batch(self, PartitionQueue queue, const kb_record *record, int64_t now_ns,
                                  Claim claim)
    cdef int hand_to_sealer(self, ProducerBatch batch) except -1
    cdef void leave_unsealed(self, ProducerBatch batch) noexcept
    cdef ClusterView view_now(self)
    cdef TopicInfo info_of(self, str topic)
    cdef TopicInfo _info_used_last(self)
    cdef TopicInfo info_if_known(self, str topic)
    cdef TopicInfo _new_topic(self, str topic)
    cdef PartitionQueue queue_of(self, TopicInfo info, int32_t partition)
    cdef bint is_hurried(self) noexcept nogil
    cdef int64_t _node_ready(self, kb_node_queues *node, int64_t now_ns, bint hurried, set nodes,
                             set leaderless) except -1
    cdef int _set_loads(self, int64_t visited_before) except -1
    cdef int _set_load(self, TopicInfo info, set slow) except -1
    cdef int64_t _delay(self, kb_partition *queue, int64_t now_ns, bint hurried) noexcept
    cdef int _adopt_topology(self) except -1
    cdef int _take_filled(self) except -1
    cdef int _take_in(self, kb_partition *queue) except -1
    cdef int _find_leader(self, PartitionQueue queue) except -1
    cdef set _slow_nodes(self)
    cdef list _drain_node(self, object node, int64_t max_size_bytes, int64_t now_ns)
    cdef ProducerBatch _visit(self, kb_partition *queue, int64_t left_bytes, int64_t now_ns,
                              Visit *visit)
    cdef int64_t _backoff(self, int32_t attempts) noexcept
