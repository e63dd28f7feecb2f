"""RecordAccumulator: where records wait, in batches, between `send` and the sender.

Theory of operation. RecordAppender, which any thread uses, puts records in. One thread, the sender's, does
the rest: `ready` says which nodes have something to get, and when to look again; `drain` takes one batch of
each partition of those nodes; `take_unsealed` hands out the batches that were closed but not sealed, which
are drained when they are sealed, and not before. What comes back goes through `reenqueue` or `split`; what is
too old through `expire`, before `drain`, so that nothing is sent that is done. There is no clock, no thread
and no randomness in here but what is passed in: `now_ns` is any monotonic clock, `seed` all that choices
depend on.

Queues without a batch are not looked at: a round costs what there is to send, however many partitions there
are. A queue that gets its first batch is noted (BatchOwner), taken into the list of the node that leads it,
and left out of that when it is found empty.

Where it differs from Java: a partition that may not be sent does not keep its node from being drained, or
wake the sender in vain; a batch that came back does not linger again; partitions of a node that does not keep
up are left alone even while their queues are empty.

After org.apache.kafka.clients.producer.internals.RecordAccumulator.
"""

cimport cython
from libc.math cimport log2
from libc.stdint cimport INT32_MAX, INT64_MAX, int16_t, int32_t, int64_t, uint8_t, uint64_t

from kbatch._native.batch.batch_owner cimport later
from kbatch._native.batch.batch_split cimport split_batch
from kbatch._native.batch.buffer_pool cimport CHUNK_BYTES, BufferPool, turn_of
from kbatch._native.batch.producer_batch cimport (
    DONE,
    IN_FLIGHT,
    OPEN,
    SEALED,
    SEALING,
    BatchState,
    PartitionQueue,
    ProducerBatch,
)
from kbatch._native.codec.c cimport KB_TRANSACTIONAL
from kbatch._native.codec.compression cimport codec_id_of, compress_records, level_of
from kbatch._native.codec.estimator cimport CompressionRatioEstimator
from kbatch._native.codec.lock cimport kb_lock_acquire, kb_lock_release
from kbatch._native.send.cluster_view cimport ClusterView, TopicView
from kbatch._native.send.encoded_batch cimport PendingBatch
from kbatch._native.send.record_appender cimport RecordAppender, TopicInfo
from kbatch._native.send.sticky cimport kb_random_fraction

import os
from bisect import bisect_left
from operator import attrgetter

from kbatch.errors import IllegalStateError

cdef object _place_of = attrgetter("place")

# The load of so many partitions is told in every round.
cdef int64_t LOADED_PARTITIONS = 256
# What a thread may take before others who wait for memory get their turn, in batches, and at least: records
# take that before they are compressed, with their state.
cdef int64_t BATCHES_WORTH = 8
cdef int64_t LEAST_TURN_BYTES = 65536


cdef bint _holds_batch(object queues) except -1:
    """Whether any of the queues has a batch."""
    cdef PartitionQueue queue
    for queue in queues:
        if queue.length > 0:
            return True
    return False


@cython.final
cdef class RecordAccumulator(RecordAppender):
    """Batches of records, by topic and partition.

    Parameters
    ----------
    batch_size, buffer_memory : int
        batch.size and buffer.memory, in bytes.
    compression, compression_level
        As `kbatch.encode` takes them.
    linger_ns, retry_backoff_ns, retry_backoff_max_ns, delivery_timeout_ns : int
    transactional : bool
        Whether batches are marked as part of a transaction.
    adaptive_partitioning : bool
    partition_availability_timeout_ns : int
        0 is off.
    seal_on_append : bool
        Whether the thread that fills a batch seals it; else `take_unsealed` gives it to somebody who does.
    seed : int
    poison : bool or None
        Whether memory that comes back is overwritten; None is whether KBATCH_POISON is in the environment.
    wake, memory_freed : callable or None
        Called, on any thread and under no lock, when the sender should look again; when memory came back
        while somebody waits for it.

    Attributes
    ----------
    visited_count : int
        How often `ready` and `drain` have looked at a queue.
    """

    def __init__(self, *, int64_t batch_size=16384, int64_t buffer_memory=33554432, compression="none",
                 compression_level=None, int64_t linger_ns=5_000_000, int64_t retry_backoff_ns=100_000_000,
                 int64_t retry_backoff_max_ns=1_000_000_000, int64_t delivery_timeout_ns=120_000_000_000,
                 bint transactional=False, bint adaptive_partitioning=True,
                 int64_t partition_availability_timeout_ns=0, bint seal_on_append=True, uint64_t seed=0,
                 poison=None, wake=None, memory_freed=None):
        if poison is None:
            poison = bool(os.environ.get("KBATCH_POISON"))
        self.batch_size = max(batch_size, <int64_t>1)  # 0 is Kafka's way to say: a batch a record
        self.memory = BufferPool(buffer_memory, CHUNK_BYTES, poison=poison, freed=memory_freed)
        self.memory.turn_bytes = min(max(BATCHES_WORTH * self.batch_size, LEAST_TURN_BYTES),
                                     buffer_memory // 4)
        self.codec = codec_id_of(compression)
        self.level = level_of(self.codec, compression_level)
        compress_records(self.codec, <const uint8_t *>b"", 0, self.level)  # a missing package shows now
        self.attributes = <int16_t>(KB_TRANSACTIONAL if transactional else 0)
        self.linger_ns = linger_ns
        self._retry_backoff_ns = retry_backoff_ns
        self._retry_backoff_max_ns = retry_backoff_max_ns
        self._delivery_timeout_ns = delivery_timeout_ns
        self._partition_availability_timeout_ns = partition_availability_timeout_ns
        self._adaptive = adaptive_partitioning
        self._seal_on_append = seal_on_append
        self._random = seed
        self._wake = wake
        self._alarm_ns = INT64_MAX
        self._estimator = CompressionRatioEstimator()
        self._view = ClusterView()
        self._topics = {}
        self._topic_list = []
        self._unsealed = []
        self._nodes = {}
        self._drain_at = {}
        self._ready_ns = {}
        self._drain_ns = {}

    def publish(self, ClusterView view not None):
        """What is known of the cluster from now on."""
        cdef TopicInfo info
        self._view = view
        for info in self._topic_list:
            info.view = view.topic(info.name)
        self._topology_changed = True

    def append_batch(self, str topic not None, partition, data, int64_t now_ns, on_delivery=None, *,
                     bint first_in_line=False, bint in_callback=False):
        """Takes a record batch that was encoded elsewhere (encoded_batch.pyx), as `append` takes a record.

        Parameters
        ----------
        partition : int
            0 or more.
        data : bytes-like
            One whole batch; a bytes object is kept, anything else copied.

        Returns
        -------
        BatchDelivery or Refusal

        Raises
        ------
        TypeError, ValueError, CorruptRecordError
            What is wrong with which field of its header.
        RecordTooLargeError, ProducerClosedError
            As `append`.
        """
        cdef PendingBatch batch = PendingBatch.new(topic, partition, data, on_delivery)
        batch.transaction = self.transaction_count
        batch.check(self.attributes, INT32_MAX)
        return batch.accept(self, self.info_of(topic), now_ns, turn_of(first_in_line, in_callback))

    def ready(self, int64_t now_ns):
        """What the sender should do. It is supposed to look again when it says, or when a batch expires.

        Returns
        -------
        nodes : set of int
            Those that lead a partition with a batch to be sealed or sent now.
        delay_ns : int
            When another will have one, if nothing else happens; 2^63 - 1 is never.
        leaderless : set of str
            Topics with records for partitions that have no known leader.
        """
        cdef set nodes = set()
        cdef set leaderless = set()
        cdef set slow = self._slow_nodes()
        cdef int64_t delay_ns = INT64_MAX
        cdef int64_t visited_count = self.visited_count
        cdef int64_t look_ns
        cdef bint hurried
        kb_lock_acquire(&self._alarm_lock)
        self._alarm_ns = INT64_MAX
        kb_lock_release(&self._alarm_lock)
        hurried = self._closed or self._flush_count > 0 or self.completing or self.memory.is_awaited()
        if self._topology_changed:
            self._adopt_topology()
        self._take_in(self.take_filled())
        for node, queues in self._nodes.items():
            delay_ns = min(delay_ns, self._node_ready(node, queues, now_ns, hurried, nodes, leaderless))
        self._set_loads(slow, visited_count)
        look_ns = min(later(now_ns, delay_ns), self.next_expiry_ns)
        kb_lock_acquire(&self._alarm_lock)
        self._alarm_ns = min(self._alarm_ns, look_ns)
        kb_lock_release(&self._alarm_lock)
        return nodes, delay_ns, leaderless

    cdef int64_t _node_ready(self, int32_t node, list queues, int64_t now_ns, bint hurried, set nodes,
                             set leaderless) except -1:
        """`ready` for the queues of a node; those that are empty by now are left out from now on."""
        cdef PartitionQueue queue
        cdef int64_t delay_ns = INT64_MAX, left_ns
        cdef Py_ssize_t i, kept = 0
        self.visited_count += len(queues)
        for i in range(len(queues)):
            queue = <PartitionQueue>queues[i]
            if not queue.stays_noted():
                continue
            queues[kept] = queue
            kept += 1
            if node < 0:
                leaderless.add(queue.topic)
                continue
            left_ns = self._delay(queue, now_ns, hurried)
            if left_ns == 0:
                nodes.add(node)
            else:
                delay_ns = min(delay_ns, left_ns)
        del queues[kept:]
        return delay_ns

    cdef int _set_loads(self, set slow, int64_t visited_before) except -1:
        """Tells sticky states of the load: those of all topics; or, where there are many partitions, of some
        in turn, for which it does what it did for the queues that were visited and LOADED_PARTITIONS."""
        cdef Py_ssize_t topic_count = len(self._topic_list)
        cdef Py_ssize_t i
        cdef TopicInfo info
        self._load_credit = min(self._load_credit, 0) + LOADED_PARTITIONS
        self._load_credit += self.visited_count - visited_before
        for i in range(topic_count):
            if self._load_credit <= 0:
                break
            self._load_at = (self._load_at + 1) % topic_count
            info = <TopicInfo>self._topic_list[self._load_at]
            self._load_credit -= 1 + len(info.queues)
            self._set_load(info, slow)
        return 0

    cdef int _set_load(self, TopicInfo info, set slow) except -1:
        """Tells the sticky state of a topic how long the queues are."""
        cdef PartitionQueue queue
        cdef int32_t count = 0
        cdef Py_ssize_t i, queue_count = len(info.queues)
        # one that has no queue yet would never be chosen by its load
        if self._adaptive and info.view is not None and info.queue_count >= info.view.partition_count:
            info.reserve_load(queue_count)
            for i in range(queue_count):
                queue = info.queues[i]
                if queue is not None and queue.leader >= 0 and not (slow and queue.leader in slow):
                    info.partitions[count] = queue.partition
                    info.lengths[count] = queue.length
                    count += 1
        info.sticky.set_load(info.partitions, info.lengths, count, info.queue_count)
        return 0

    cdef int64_t _delay(self, PartitionQueue queue, int64_t now_ns, bint hurried) noexcept:
        """Before there is something to do for the queue: 0 is now, INT64_MAX when something else happens."""
        cdef ProducerBatch head
        cdef int64_t backoff_ns
        kb_lock_acquire(&queue.lock)
        try:
            head = queue.first
            if head is None or head._state == SEALING:
                return INT64_MAX
            head.notice_leader_epoch()
            if not queue.gate_is_open(head):
                return INT64_MAX
            backoff_ns = head.backoff_left_ns(now_ns)
            if head._state == SEALED or backoff_ns > 0 or hurried:
                return backoff_ns
            return max(<int64_t>0, self.linger_ns - max(<int64_t>0, now_ns - head.created_ns))
        finally:
            kb_lock_release(&queue.lock)

    cdef int _adopt_topology(self) except -1:
        """Gives each queue its leader, and each node its queues."""
        cdef TopicInfo info
        cdef PartitionQueue queue
        cdef dict before = self._nodes
        self._topology_changed = False
        for info in self._topic_list:
            for queue in info.queues:
                if queue is not None:
                    self._find_leader(queue)
        self._nodes = {}
        for queues in before.values():
            self._take_in(queues)
        return 0

    cdef int _take_in(self, list queues) except -1:
        """These queues have batches."""
        cdef PartitionQueue queue
        for queue in queues:
            if not queue.has_leader:
                self._find_leader(queue)
            self._nodes.setdefault(queue.leader, []).append(queue)
        return 0

    cdef int _find_leader(self, PartitionQueue queue) except -1:
        cdef TopicView view = self._view.topic(queue.topic)
        kb_lock_acquire(&queue.lock)
        try:
            queue.leader = queue.leader_epoch = -1
            if view is not None and queue.partition < view.partition_count:
                queue.leader = view.leaders[queue.partition]
                queue.leader_epoch = view.leader_epochs[queue.partition]
            queue.has_leader = True
        finally:
            kb_lock_release(&queue.lock)
        return 0

    def update_node_latency(self, int32_t node, int64_t now_ns, bint can_drain):
        """A node that is ready can be sent to now, or cannot: partitions of one that could not for longer
        than `partition_availability_timeout_ns` are not chosen for records without a partition."""
        if self._partition_availability_timeout_ns > 0:
            if can_drain or node not in self._ready_ns:
                self._drain_ns[node] = now_ns
            self._ready_ns[node] = now_ns

    cdef set _slow_nodes(self):
        if self._partition_availability_timeout_ns <= 0:
            return None
        return {node for node, ready_ns in self._ready_ns.items()
                if ready_ns - self._drain_ns[node] > self._partition_availability_timeout_ns}

    def drain(self, nodes, int64_t max_size_bytes, int64_t now_ns, *, int64_t sealed_bytes=0):
        """Takes one batch at most of each partition that the nodes lead, up to `max_size_bytes` a node,
        unless the first is larger than that by itself. Each node goes on where it stopped the last time.

        An open batch is closed. One with records of up to `sealed_bytes` is sealed here; a larger one is left
        to be sealed (`take_unsealed`), and taken by a later call, which begins with it; its place in the
        request is kept free.

        Returns
        -------
        dict of int to list of ProducerBatch
        """
        cdef dict drained = {}
        self._take_in(self.take_filled())
        for node in nodes:
            drained[node] = self._drain_node(node, max_size_bytes, now_ns, sealed_bytes)
        return drained

    cdef list _drain_node(self, object node, int64_t max_size_bytes, int64_t now_ns, int64_t sealed_bytes):
        cdef list queues = self._nodes.get(node), batches = []
        cdef PartitionQueue queue, first_closed = None
        cdef ProducerBatch batch = None
        cdef int64_t size_bytes = 0, left_bytes = INT64_MAX  # the first always goes
        cdef Py_ssize_t i, start
        cdef Visit visit
        if not queues:
            return batches
        queues.sort(key=_place_of)
        start = bisect_left(queues, self._drain_at.get(node, 0), key=_place_of)
        for i in range(len(queues)):
            queue = <PartitionQueue>queues[(start + i) % len(queues)]
            self.visited_count += 1
            batch = self._visit(queue, left_bytes, now_ns, &visit)
            if visit == CLOSED and batch._open.records_bytes <= sealed_bytes:
                batch.seal(wake=False)
                batch = self._visit(queue, left_bytes, now_ns, &visit)
            if visit == NO_SIZE:
                self._drain_at[node] = queue.place if first_closed is None else first_closed.place
                break
            if visit == TAKEN:
                batches.append(batch)
            elif visit == CLOSED:
                first_closed = queue if first_closed is None else first_closed
                self.leave_unsealed(batch)
            if visit != PASSED:
                size_bytes += batch.estimated_bytes()
                left_bytes = max_size_bytes - size_bytes
        return batches

    cdef ProducerBatch _visit(self, PartitionQueue queue, int64_t left_bytes, int64_t now_ns, Visit *visit):
        """The head of the queue, if it may go and is no larger than `left_bytes`: taken, or closed."""
        cdef ProducerBatch head
        visit[0] = PASSED
        kb_lock_acquire(&queue.lock)
        try:
            head = queue.first
            if head is None or head._state == SEALING:
                return None
            head.notice_leader_epoch()
            if not queue.gate_is_open(head) or head.backoff_left_ns(now_ns) > 0:
                return None
            if head.estimated_bytes() > left_bytes:
                visit[0] = NO_SIZE
            elif head._state == OPEN:
                head.close()
                visit[0] = CLOSED
            else:
                queue.remove(head)
                head._state = IN_FLIGHT
                head.drained_ns = now_ns
                visit[0] = TAKEN
            return head
        finally:
            kb_lock_release(&queue.lock)

    def take_unsealed(self):
        """The batches that were closed and not sealed: whoever takes them has to call `seal` on each."""
        cdef list batches = []
        kb_lock_acquire(&self._unsealed_lock)
        try:
            batches, self._unsealed = self._unsealed, batches
        finally:
            kb_lock_release(&self._unsealed_lock)
        return batches

    def reenqueue(self, ProducerBatch batch not None, int64_t now_ns, *, bint attempted=True,
                  int64_t longest_ns=INT64_MAX):
        """Puts a drained batch back, in the order of its records, to be tried again when it has backed off.

        `attempted` False: it was not sent after all, and need not back off. `longest_ns` bounds its backoff.

        Returns
        -------
        bool
            False where it is done.
        """
        cdef int64_t backoff_ns = min(self._backoff(batch.attempts), longest_ns) if attempted else -1
        cdef BatchState state
        kb_lock_acquire(&batch._queue.lock)
        try:
            state = batch._state
            if state == IN_FLIGHT:
                batch.reenqueue(now_ns, backoff_ns)
        finally:
            kb_lock_release(&batch._queue.lock)
        if state == IN_FLIGHT:
            self.reenqueued_count += 1
        elif state != DONE:
            raise IllegalStateError(f"a batch is put back when it is in flight; this is {batch!r}")
        return state == IN_FLIGHT

    cdef int64_t _backoff(self, int32_t attempts) noexcept:
        """org.apache.kafka.common.utils.ExponentialBackoff, whose jitter is drawn once an attempt."""
        cdef double exponent
        if self._retry_backoff_max_ns <= self._retry_backoff_ns:
            return self._retry_backoff_ns
        exponent = min(<double>attempts,
                       log2(<double>self._retry_backoff_max_ns / <double>max(self._retry_backoff_ns, 1)))
        return min(self._retry_backoff_max_ns, <int64_t>(
            self._retry_backoff_ns * 2.0 ** exponent * (0.8 + 0.4 * kb_random_fraction(&self._random))))

    def split(self, ProducerBatch batch not None):
        """Replaces a batch in flight that is too large for the broker by smaller ones, in its place.

        Returns
        -------
        list of ProducerBatch
            In order, sealed, with the sequences that are theirs.

        Raises
        ------
        IllegalStateError
            It is not in flight, or has one record only, which is then too large for good.
        """
        cdef list parts = split_batch(batch)
        self.split_count += 1
        return parts

    @property
    def next_expiry_ns(self):
        """When the oldest batch that is not done will have been there for `delivery_timeout_ns`; 2^63 - 1
        where there is none."""
        cdef int64_t created_ns = INT64_MAX
        kb_lock_acquire(&self._incomplete_lock)
        if self._oldest is not None:
            created_ns = self._oldest.created_ns
        kb_lock_release(&self._incomplete_lock)
        return later(created_ns, self._delivery_timeout_ns)

    def expire(self, int64_t now_ns):
        """The batches that are there for `delivery_timeout_ns` or longer, oldest first: out of the queue, or
        in flight, or being sealed. The caller has to fail them."""
        cdef list expired = []
        cdef ProducerBatch batch
        if now_ns < self.next_expiry_ns:
            return expired
        for batch in self.incomplete():
            if now_ns < later(batch.created_ns, self._delivery_timeout_ns):
                break
            kb_lock_acquire(&batch._queue.lock)
            try:
                if batch._queued:
                    batch._queue.remove(batch)
            finally:
                kb_lock_release(&batch._queue.lock)
            expired.append(batch)
        return expired

    def set_gate(self, str topic not None, int32_t partition, *, muted=None, fresh_blocked=None,
                 retry_number=None):
        """What `drain` may take from a partition; what is left out stays as it is.

        muted : nothing. fresh_blocked : nothing that was never drained. retry_number : of what was, only the
        batch whose first record has this number; -1 for any.
        """
        cdef PartitionQueue queue = self.queue_of(self.info_of(topic), partition)
        queue.set_gate(
            queue.muted if muted is None else muted,
            queue.fresh_blocked if fresh_blocked is None else fresh_blocked,
            queue.retry_number if retry_number is None else retry_number,
        )

    # What is known.

    def batches(self, str topic not None, int32_t partition):
        """The batches in a partition's queue, in order."""
        cdef TopicInfo info = self._topics.get(topic)
        cdef PartitionQueue queue = None if info is None else info.queue(partition)
        cdef ProducerBatch batch = None if queue is None else queue.first
        found = []
        while batch is not None:
            found.append(batch)
            batch = batch._next
        return found

    def incomplete_batches(self):
        """All batches that are not done, oldest first."""
        return self.incomplete()

    @property
    def has_undrained(self):
        """Whether any queue has a batch; for the sender, whose noted queues are the ones that may."""
        for queues in [self._filled, *self._nodes.values()]:
            if _holds_batch(queues):
                return True
        return False

    def has_undrained_for(self, node):
        """Whether any queue that `ready` found to be led by the node has a batch."""
        return _holds_batch(self._nodes.get(node, ()))

    def counters(self, topic=None):
        """Integers that only grow, of all topics or of one.

        Returns
        -------
        dict of str to int
            records, records_bytes : appended, and how large they are uncompressed
            sealed_batches, sealed_records_bytes, sealed_bytes : of sealed batches, before and after
            unpacked_batches : of those, which the codec failed on
        """
        cdef TopicInfo info
        cdef PartitionQueue queue
        cdef int64_t records = 0, records_bytes = 0, batches = 0, before = 0, after = 0, unpacked = 0
        for info in list(self._topic_list):
            if topic is None or info.name == topic:
                for queue in list(info.queues):
                    if queue is not None:
                        records += queue.next_number
                        records_bytes += queue.appended_bytes
                        batches += queue.sealed_batches
                        before += queue.sealed_records_bytes
                        after += queue.sealed_bytes
                        unpacked += queue.unpacked_batches
        return {"records": records, "records_bytes": records_bytes, "sealed_batches": batches,
                "sealed_records_bytes": before, "sealed_bytes": after, "unpacked_batches": unpacked}

    @property
    def incomplete_count(self):
        """Batches that are not done."""
        return self._incomplete_count
