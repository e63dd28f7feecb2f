"""RecordAccumulator: the queues of batches between `send` and the sender.

Theory of operation. Any thread adds records. An append finds the partition's queue, takes its lock, and
writes the record into the open batch. If there is none, it creates one outside the lock, and drops that if
another thread was faster. A full batch is closed, and sealed at once by the thread that filled it. An append
that is impossible now is refused and never waits; BufferPool describes how to wait for memory.

A record without a partition goes to the partition of the topic's sticky state. The append reads it before the
lock and again under it, because another thread may have switched; the record is counted, and the switch made,
under the same lock.

One thread, the sender's, does the rest. `ready` returns the nodes with something to send, and when to look
again. `drain` takes one batch of each partition of those nodes. `take_unsealed` returns the batches that were
closed but not sealed, which are drained only after they are sealed. Batches come back through `reenqueue` or
`split`; `expire` removes those that are too old, before `drain`, so that nothing is sent that is done.
Whatever may concern a sleeping sender rings its alarm, once (SenderAlarm).

Queues without a batch are not looked at: the cost of a round depends on what there is to send, not on the
number of partitions. A queue that gets its first batch is noted (BatchContext), added to the list of its
leader's node, and removed when it is found empty.

There is no clock, thread or randomness in here except what is passed in: `now_ns` is any monotonic clock, and
all choices depend on `seed`.

There are differences from Java. A partition that may not be sent does not keep its node from being drained,
nor wake the sender for nothing. A batch that came back does not linger again. Partitions of a slow node are
avoided even while their queues are empty.

After org.apache.kafka.clients.producer.internals.RecordAccumulator.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.pythread cimport PyThread_get_thread_ident
from cpython.time cimport PyTime_MonotonicRaw
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from kbatch._native.batch.alarm cimport SenderAlarm, kb_alarm_clear, kb_alarm_set, later
from kbatch._native.batch.buffer_pool cimport (
    CHUNK_BYTES,
    FIRST_IN_CALLBACK,
    FIRST_IN_QUEUE,
    KB_CHUNK_HEAD_BYTES,
    BufferPool,
    Claim,
    MemoryWaiter,
    kb_record_bound,
    claim_of,
)
from kbatch._native.batch.delivery cimport BatchDelivery, Delivery, Flush, is_observed_by
from kbatch._native.batch.producer_batch cimport (
    BATCH_BYTES,
    CLOSED,
    DONE,
    HAD_ROOM,
    IN_FLIGHT,
    NO_MEMORY,
    NO_ROOM,
    NO_SIZE,
    OPEN,
    OPENING_BYTES,
    PASSED,
    TAKEN,
    BatchContext,
    BatchState,
    PartitionQueue,
    ProducerBatch,
    Room,
    Visit,
    batch_of,
    kb_batch,
    kb_batch_bytes,
    kb_batch_close,
    kb_batch_reenqueue,
    kb_filled_has_batch,
    kb_queue_delay_ns,
    kb_queue_insert,
    kb_queue_remove,
    kb_queue_visit,
    kb_take_filled,
    sealing_margin,
)
from kbatch._native.codec.c cimport (
    KB_MAX_PARTITIONS,
    KB_MAX_RECORD_BODY,
    kb_record,
    kb_record_body_size,
    kb_varint_size,
)
from kbatch._native.codec.compression cimport codec_id_of, compress_records, level_of
from kbatch._native.codec.estimator cimport CompressionRatioEstimator
from kbatch._native.codec.memory cimport grown
from kbatch._native.codec.record_fields cimport HeaderSpans, as_bytes, fill_record
from kbatch._native.flags cimport (
    kb_count_add,
    kb_count_load,
    kb_count_peek,
    kb_count_store,
    kb_flag_load,
    kb_flag_set,
    kb_flag_store,
    kb_number_peek,
    kb_number_set,
)
from kbatch._native.io.backoff cimport backoff_ns, grows
from kbatch._native.io.sensor cimport SensorGroup
from kbatch._native.lock cimport kb_lock_acquire, kb_lock_destroy, kb_lock_init, kb_lock_release
from kbatch._native.send.cluster_view cimport ClusterView, TopicView
from kbatch._native.send.encoded_batch cimport PendingBatch
from kbatch._native.send.in_flight cimport PartitionState
from kbatch._native.send.sealing cimport SealPolicy
from kbatch._native.send.sticky cimport StickyPartitioner, kb_random_fraction

import enum
import os

from kbatch.errors import IllegalStateError, ProducerClosedError, RecordTooLargeError

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

# The caller of `accept` did not read the clock.
cdef int64_t UNKNOWN_NS = INT64_MIN
# In every round, the load of so many partitions is passed on.
cdef int64_t LOADED_PARTITIONS = 256
# A thread may take so many batches, and at least so many bytes, before others that wait for memory get
# theirs: records take that before they are compressed, with their state.
cdef int64_t BATCHES_WORTH = 8
cdef int64_t LEAST_OPEN_BYTES = 65536

class Refusal(enum.Enum):
    """The reason why `append` did not take a record that it may take later."""

    MEMORY = "memory"
    METADATA = "metadata"
    SERIALIZER = "serializer"  # a serializer has to wait, or may


# The error of a record that was given to the producer in a transaction, and not accepted in it.
TRANSACTION_ENDED = (
    "the transaction ended before the record was accepted; send it again if it belongs to the next one"
)

cdef object NO_MEMORY_NOW = Refusal.MEMORY
cdef object NO_METADATA_NOW = Refusal.METADATA


cdef int64_t record_bytes(const kb_record *record) noexcept nogil:
    """Return the size of a record as the first of a batch."""
    cdef int64_t body = kb_record_body_size(record, 0, 0)
    return body + kb_varint_size(body)


cdef int64_t least_bytes(int64_t size, int codec) noexcept nogil:
    """Return the charge of a batch with one record, of `record_bytes`."""
    return (KB_CHUNK_HEAD_BYTES + size + OPENING_BYTES
            + sealing_margin(codec, KB_CHUNK_HEAD_BYTES + 2 * size))


cdef object beyond_memory(int64_t size, int codec, int64_t total_bytes):
    """Return the error of a record of `record_bytes` that would not fit even if all memory were free."""
    return RecordTooLargeError(f"the record takes {size} bytes, and with its state "
                               f"{least_bytes(size, codec)}, more than buffer.memory, which is "
                               f"{total_bytes}; raise it")


@cython.final
cdef class TopicInfo:
    """The state of a topic that records were sent to."""

    def __cinit__(self):
        kb_lock_init(&self.lock)

    def __dealloc__(self):
        kb_lock_destroy(&self.lock)
        free(self.partitions)
        free(self.lengths)

    cdef inline PartitionQueue queue(self, int32_t partition):
        """Return the queue of a partition; None if there is none yet."""
        if 0 <= partition < len(self.queues):
            with cython.boundscheck(True):  # without the GIL the list may move meanwhile
                return <PartitionQueue>self.queues[partition]
        return None

    @cython.critical_section
    cdef TopicView partitions_now(self):
        """Return its partitions as they are known now; None if they are not."""
        return self.view

    @cython.critical_section
    cdef void use(self, TopicView view) noexcept:
        self.view = view

    cdef int reserve_load(self, Py_ssize_t count) except -1:
        """Make room for the load of so many partitions."""
        if count > self.load_capacity:
            self.partitions = <int32_t *>grown(self.partitions, count * sizeof(int32_t))
            self.lengths = <int32_t *>grown(self.lengths, count * sizeof(int32_t))
            self.load_capacity = count
        return 0


@cython.final
cdef class RecordAccumulator:
    """Batches of records, by topic and partition.

    Parameters
    ----------
    batch_size, buffer_memory : int
        batch.size and buffer.memory, in bytes.
    compression, compression_level
        As for `kbatch.encode`.
    linger_ns, retry_backoff_ns, retry_backoff_max_ns, delivery_timeout_ns : int
    transactional : bool
        True if batches are marked as part of a transaction.
    adaptive_partitioning : bool
    partition_availability_timeout_ns : int
        0 is off.
    seal_policy : SealPolicy or None
        Decides who seals a batch when it closes; `take_unsealed` returns the rest, for other threads. With
        None, the thread that fills a batch seals it, and no others are sealed here.
    seed : int
    poison : bool or None
        True to overwrite returned memory; with None, KBATCH_POISON in the environment decides.
    clock_ns : callable or None
        Returns the time for callers that pass none; None is the system's monotonic clock.
    wake, memory_freed : callable or None
        Called on any thread, under no lock: when the sender should look again, and when memory was returned
        while a caller waits for it.

    Attributes
    ----------
    memory : BufferPool
        The budget of all accepted records.
    alarm : SenderAlarm
        Wakes the sender.
    transaction_count : int
        Number of transactions that were begun or ended.
    completing : bool
        True while a transaction ends: what it has is sent at once.
    accepts_directly : bool
        True if `send` may append a record without a check by the producer. False initially, and if the
        producer is closed, has failed, or has interceptors.
    callback_thread_ident : int
        The `thread_ident()` of the thread that runs callbacks, whose sends skip the queue; 0 is none.
    visited_count : int
        Number of times that `ready` and `drain` looked at a queue.
    """

    def __cinit__(self):
        kb_lock_init(&self._flush_lock)
        kb_lock_init(&self._unsealed_lock)

    def __dealloc__(self):
        kb_lock_destroy(&self._flush_lock)
        kb_lock_destroy(&self._unsealed_lock)
        kb_queues_free(&self._queues)

    def __init__(self, *, int64_t batch_size=16384, int64_t buffer_memory=33554432, compression="none",
                 compression_level=None, int64_t linger_ns=5_000_000, int64_t retry_backoff_ns=100_000_000,
                 int64_t retry_backoff_max_ns=1_000_000_000, int64_t delivery_timeout_ns=120_000_000_000,
                 bint transactional=False, bint adaptive_partitioning=True,
                 int64_t partition_availability_timeout_ns=0, SealPolicy seal_policy=None,
                 uint64_t seed=0, poison=None, clock_ns=None, wake=None, memory_freed=None):
        cdef int codec, level
        if poison is None:
            poison = bool(os.environ.get("KBATCH_POISON"))
        self._clock_ns = clock_ns
        batch_size = max(batch_size, <int64_t>1)  # 0 is Kafka's value for one record per batch
        codec = codec_id_of(compression)
        level = level_of(codec, compression_level)
        compress_records(codec, <const uint8_t *>b"", 0, level)  # report a missing package now
        self.memory = BufferPool(buffer_memory, CHUNK_BYTES, poison=poison, freed=memory_freed)
        self.memory.open_limit_bytes = min(max(BATCHES_WORTH * batch_size, LEAST_OPEN_BYTES),
                                           buffer_memory // 4)
        self.alarm = SenderAlarm.new(wake, delivery_timeout_ns)
        self.context = BatchContext.new(self.memory, self.alarm, batch_size, codec, level, transactional)
        self.linger_ns = linger_ns
        self._retry_backoff_ns = retry_backoff_ns
        self._retry_backoff_max_ns = retry_backoff_max_ns
        self._partition_availability_timeout_ns = partition_availability_timeout_ns
        self._adaptive = adaptive_partitioning
        self.seal_policy = SealPolicy() if seal_policy is None else seal_policy
        self._random = seed
        self._estimator = CompressionRatioEstimator()
        self.view = ClusterView()
        self._topics = {}
        self._topic_list = []
        self._unsealed = []

    @property
    def transaction_count(self):
        return self.transaction()

    def begin_next_transaction(self):
        """Accept nothing any more that was given to the producer before."""
        kb_count_add(&self._transaction_count, 1)

    cdef int64_t transaction(self) noexcept nogil:
        """Return the `transaction_count`."""
        return kb_count_load(&self._transaction_count)

    @property
    def completing(self):
        return bool(kb_flag_load(&self._completing))

    @completing.setter
    def completing(self, bint value):
        kb_flag_store(&self._completing, value)

    @property
    def accepts_directly(self):
        return self.goes_directly()

    @accepts_directly.setter
    def accepts_directly(self, bint value):
        kb_flag_store(&self._accepts_directly, value)

    cdef bint goes_directly(self) noexcept nogil:
        """Return `accepts_directly`."""
        return kb_flag_load(&self._accepts_directly)

    @property
    def callback_thread_ident(self):
        return kb_count_peek(&self._callback_thread_ident)

    @callback_thread_ident.setter
    def callback_thread_ident(self, unsigned long value):
        kb_count_store(&self._callback_thread_ident, <int64_t>value)

    cdef bint in_callback(self) noexcept:
        """True on the thread that runs callbacks."""
        return kb_count_peek(&self._callback_thread_ident) == <int64_t>PyThread_get_thread_ident()

    def publish(self, ClusterView view not None):
        """Use this state of the cluster from now on."""
        cdef TopicInfo info
        with cython.critical_section(self):
            self.view = view
        for info in self._topic_list:
            info.use(view.topic(info.name))
        self._topology_changed = True

    @cython.critical_section
    cdef ClusterView view_now(self):
        """Return the state of the cluster as it is known now."""
        return self.view

    # On any thread: records in.

    def append(self, str topic not None, int32_t partition, key, value, headers, int64_t timestamp_ms,
               int64_t now_ns, on_delivery=None, *, bint first_in_queue=False, bint in_callback=False):
        """Add a record to a batch of its partition.

        Parameters
        ----------
        topic : str
        partition : int
            -1 for the topic's sticky partition.
        key, value : bytes-like or None
        headers : sequence of (str, bytes-like or None), or None
        timestamp_ms : int
            Milliseconds since the Unix epoch; -1 for none.
        now_ns : int
        on_delivery : callable or None
            Called as `on_delivery(metadata, error)` by `Completion.run_callbacks`.
        first_in_queue : bool
            The caller waited for memory, and is the first in the queue.
        in_callback : bool
            The caller is a callback, which does not queue up.

        Returns
        -------
        Delivery or Refusal
            MEMORY: there is none now. METADATA: the topic's partitions are unknown (see `publish`).

        Raises
        ------
        TypeError, ValueError
            A field is invalid; the message names it.
        RecordTooLargeError
            The record would not fit even if all memory were free.
        ProducerClosedError
            The accumulator was closed.
        """
        cdef kb_record record
        cdef bytes key_bytes = as_bytes(key, "key")
        cdef bytes value_bytes = as_bytes(value, "value")
        cdef HeaderSpans spans = fill_record(&record, key_bytes, value_bytes, headers)
        if timestamp_ms < -1 or timestamp_ms == INT64_MAX:  # the difference of two must fit in 64 bits
            raise ValueError(f"timestamp_ms must be 0 to 2^63 - 2, or -1 for none, got {timestamp_ms}")
        record.timestamp_ms = timestamp_ms
        if kb_record_bound(&record) > KB_MAX_RECORD_BODY:
            raise RecordTooLargeError(
                f"key, value and headers take {kb_record_body_size(&record, 0, 0)} bytes, "
                f"above the limit of about {KB_MAX_RECORD_BODY} for a record")
        return self.accept(self.info_of(topic), partition, &record, now_ns, on_delivery,
                           claim_of(first_in_queue, in_callback), self.transaction())

    def append_batch(self, str topic not None, partition, data, int64_t now_ns, on_delivery=None, *,
                     bint first_in_queue=False, bint in_callback=False):
        """Add an encoded record batch (encoded_batch.pyx), as `append` adds a record.

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
            A field of its header is invalid; the message names it.
        RecordTooLargeError, ProducerClosedError
            As in `append`.
        """
        cdef PendingBatch batch = PendingBatch.new(topic, partition, data, on_delivery)
        batch.transaction = self.transaction()
        batch.check(self.context.attributes, INT32_MAX)
        return self.accept_batch(self.info_of(topic), batch, now_ns, claim_of(first_in_queue, in_callback))

    cdef object accept(self, TopicInfo info, int32_t partition, const kb_record *record, int64_t now_ns,
                       object on_delivery, Claim claim, int64_t transaction):
        """Append like `append`, for native callers that checked the record. With UNKNOWN_NS as the time,
        None means that the time is needed, to open a batch. `transaction` is the `transaction_count` when the
        record was given to the producer: it is accepted in no other.
        """
        cdef TopicView view = None
        cdef PartitionQueue queue
        cdef ProducerBatch batch, fresh = None
        cdef Step step
        while True:
            if partition != -1:
                queue = self.queue_of(info, partition)
            else:
                view = info.partitions_now()
                if view is None or view.partition_count == 0:
                    if fresh is not None:
                        fresh.discard()
                    return NO_METADATA_NOW
                queue = self.queue_of(info, info.sticky.peek(view))
            if fresh is not None and fresh.queue is not queue:
                fresh.discard()
                fresh = None
            batch = self._try_append(queue, info, view, fresh, record, on_delivery, claim, transaction,
                                     &step)
            if fresh is not None and not step.opened:
                fresh.discard()
            fresh = None
            if step.closed:
                self.hand_to_sealer(batch)
            if step.opened:
                self.alarm.wake_for(kb_number_peek(&queue.raw.leader), batch.raw.created_ns, self.linger_ns)
            if step.what == APPENDED:
                return Delivery.new(batch.completion, step.index, record.timestamp_ms,
                                    <int32_t>record.key.size, <int32_t>record.value.size,
                                    is_observed_by(on_delivery))
            if step.what == UNPAID:
                return self.refuse(claim)
            if step.what == TOO_LATE:
                raise self.too_late()
            if step.what == UNOPENED:
                if now_ns == UNKNOWN_NS:
                    return None
                fresh = self.new_batch(queue, record, now_ns, claim)
                if fresh is None:
                    return self.refuse(claim)

    cdef object accept_batch(self, TopicInfo info, PendingBatch pending, int64_t now_ns, Claim claim):
        """Append like `append_batch`, for native callers that checked the batch."""
        cdef PartitionQueue queue = self.queue_of(info, pending.checked_partition)
        cdef ProducerBatch batch = ProducerBatch.new(self.context, queue, now_ns)
        cdef ProducerBatch closed
        cdef BatchDelivery delivery
        cdef int64_t least = PyBytes_GET_SIZE(pending.data) + BATCH_BYTES
        if not batch.open_encoded(pending.data, &pending.header, pending.body_crc, claim):
            if least > self.memory.total_memory:
                raise RecordTooLargeError(
                    f"the batch takes {PyBytes_GET_SIZE(pending.data)} bytes, and with its state {least}, "
                    f"more than buffer.memory, which is {self.memory.total_memory}; raise it"
                )
            return self.refuse(claim)
        delivery = BatchDelivery.of(batch.completion, pending.header.max_timestamp_ms, pending.on_delivery)
        closed = self._enqueue_encoded(queue, batch, pending.transaction)
        if closed is batch:
            batch.completion.forget_listeners()
            batch.discard()
            raise self.too_late()
        if closed is not None:
            self.hand_to_sealer(closed)
        self.alarm.wake_for(kb_number_peek(&queue.raw.leader), batch.raw.created_ns, 0)
        return delivery

    cdef ProducerBatch _enqueue_encoded(self, PartitionQueue queue, ProducerBatch batch, int64_t transaction):
        """Add the batch after all others. Return the open one that had to be closed for that, if there was
        one; the batch itself if it is too late for it.
        """
        cdef ProducerBatch before
        kb_lock_acquire(&queue.raw.lock)
        try:
            if self.is_too_late(transaction):
                return batch
            before = batch_of(queue.raw.last)
            if before is not None:
                if before.raw.state == OPEN:
                    kb_batch_close(&queue.raw, &before.raw)
                else:
                    before = None
            self.enqueue(queue, batch)
            queue.raw.next_number += batch.raw.contents.count
            queue.raw.appended_bytes += batch.raw.body_bytes
            return before
        finally:
            kb_lock_release(&queue.raw.lock)

    cdef int64_t now_ns(self) except? -1:
        return PyTime_MonotonicRaw() if self._clock_ns is None else self._clock_ns()

    cdef object refuse(self, Claim claim):
        """Return MEMORY. If the first in the queue is refused, the sender sends everything that it has."""
        if claim == FIRST_IN_QUEUE or claim == FIRST_IN_CALLBACK:
            self.alarm.wake_now()
        return NO_MEMORY_NOW

    cdef bint is_too_late(self, int64_t transaction) noexcept nogil:
        """True if nothing is accepted any more, or nothing of this transaction."""
        return kb_flag_load(&self._closed) or self.transaction() != transaction

    cdef object too_late(self):
        """Return the error for that."""
        if kb_flag_load(&self._closed):
            return ProducerClosedError("the producer is closed, and takes no more records")
        return IllegalStateError(TRANSACTION_ENDED)

    cdef ProducerBatch _try_append(self, PartitionQueue queue, TopicInfo info, TopicView view,
                                   ProducerBatch fresh, const kb_record *record, object on_delivery,
                                   Claim claim, int64_t transaction, Step *step):
        """Append under the lock; `fresh` becomes the open batch if there is none. A `view` means that the
        sticky state chose the partition, and is checked again here. Return the batch.
        """
        cdef ProducerBatch batch
        cdef int64_t estimated_before = 0, bytes_before
        cdef Room room
        step.opened = step.closed = False
        kb_lock_acquire(&queue.raw.lock)
        try:
            batch = batch_of(queue.raw.last)
            if self.is_too_late(transaction):
                step.what = TOO_LATE
                return None
            if batch is not None and batch.raw.state != OPEN:
                batch = None
            if view is not None:
                if batch is None:  # a switch may have waited for that
                    info.sticky.count(view, 0, True)
                if info.sticky.has_left(queue.partition):
                    step.what = MOVED
                    return None
            if batch is None:
                if fresh is None:
                    step.what = UNOPENED
                    return None
                batch = fresh
            if view is not None and batch.raw.contents.count:
                estimated_before = kb_batch_bytes(&batch.raw)
            bytes_before = batch.raw.contents.records_bytes
            room = batch.append(record, on_delivery, claim)
            if room == NO_MEMORY:
                step.what = UNPAID
                return batch
            if batch is fresh:
                self.enqueue(queue, fresh)
                step.opened = True
            step.what = APPENDED if room == HAD_ROOM else FILLED
            step.index = batch.raw.contents.count - 1
            step.closed = room == NO_ROOM or batch.is_full()
            if step.closed:
                kb_batch_close(&queue.raw, &batch.raw)
            if room == HAD_ROOM:
                queue.raw.next_number += 1
                queue.raw.appended_bytes += batch.raw.contents.records_bytes - bytes_before
                if view is not None:
                    info.sticky.count(view, kb_batch_bytes(&batch.raw) - estimated_before, step.closed)
            return batch
        finally:
            kb_lock_release(&queue.raw.lock)

    cdef void enqueue(self, PartitionQueue queue, ProducerBatch batch) noexcept:
        batch.raw.first_number = queue.raw.next_number
        kb_queue_insert(&queue.raw, &batch.raw, &self.context.filled)
        self.context.add_incomplete(batch, None)

    cdef ProducerBatch new_batch(self, PartitionQueue queue, const kb_record *record, int64_t now_ns,
                                  Claim claim):
        """Return a batch with memory for the record; None if there is none now."""
        cdef ProducerBatch batch = ProducerBatch.new(self.context, queue, now_ns)
        cdef int64_t size = record_bytes(record)
        if batch.open(size, claim):
            return batch
        if least_bytes(size, self.context.codec) > self.memory.total_memory:
            raise beyond_memory(size, self.context.codec, self.memory.total_memory)
        return None

    cdef int hand_to_sealer(self, ProducerBatch batch) except -1:
        if self.seal_policy.by_appender:
            batch.seal()
        else:
            self.leave_unsealed(batch)
            self.alarm.wake_now()
        return 0

    cdef void leave_unsealed(self, ProducerBatch batch) noexcept:
        kb_lock_acquire(&self._unsealed_lock)
        self._unsealed.append(batch)
        kb_count_store(&self._unsealed_count, self._unsealed_count + 1)
        kb_lock_release(&self._unsealed_lock)

    cdef bint has_unsealed(self) noexcept nogil:
        return kb_count_peek(&self._unsealed_count) > 0

    cdef TopicInfo info_of(self, str topic):
        cdef TopicInfo info = self._info_used_last()
        if info is None or info.name is not topic:
            found = self._topics.get(topic)
            info = <TopicInfo>found if found is not None else self._new_topic(topic)
            with cython.critical_section(self):
                self._last_info = info
        return info

    @cython.critical_section
    cdef TopicInfo _info_used_last(self):
        return self._last_info

    cdef TopicInfo info_if_known(self, str topic):
        """Return None if the partitions are unknown; nothing is kept for a topic that never existed."""
        cdef TopicInfo info = self._info_used_last()
        if info is None or info.name is not topic:
            if topic not in self._topics and self.view_now().topic(topic) is None:
                return None
            info = self.info_of(topic)
        return info if info.view is not None else None

    cdef TopicInfo _new_topic(self, str topic):
        cdef TopicInfo info = TopicInfo.__new__(TopicInfo)
        cdef ClusterView view
        cdef Py_ssize_t name_bytes
        info.name = topic
        info.raw.name.data = <const uint8_t *>PyUnicode_AsUTF8AndSize(topic, &name_bytes)
        info.raw.name.size = name_bytes
        info.number = <int32_t>len(self._topic_list)
        info.ratios = self._estimator.ratios_of(topic)
        info.queues = []
        info.sticky = StickyPartitioner(self.context.batch_size,
                                        self._random + <uint64_t>len(self._topic_list))
        info.view = self.view_now().topic(topic)
        # setdefault is atomic: two threads that meet a new topic get the same object
        found = self._topics.setdefault(topic, info)
        if found is info:
            self._topic_list.append(info)  # from now on `publish` updates it
            view = None
            while view is not self.view:  # or it came in between, and this view is the older one
                view = self.view_now()
                info.use(view.topic(topic))
        return found

    cdef PartitionQueue queue_of(self, TopicInfo info, int32_t partition):
        cdef PartitionQueue queue = info.queue(partition)
        if queue is not None:
            return queue
        if not 0 <= partition < KB_MAX_PARTITIONS:
            raise ValueError(f"partition must be 0 to {KB_MAX_PARTITIONS - 1}, or -1 for the sticky one, got "
                             f"{partition}")
        queue = PartitionQueue.__new__(PartitionQueue)
        queue.topic = info.name
        queue.partition = partition
        queue.raw.topic = &info.raw
        queue.raw.index = partition
        queue.raw.queue_key = <int64_t>info.number << 32 | partition
        queue.ratios = info.ratios
        kb_lock_acquire(&info.lock)
        try:
            while len(info.queues) <= partition:
                info.queues.append(None)
            with cython.boundscheck(True):  # as `info.queue` reads it
                if info.queues[partition] is None:
                    info.queues[partition] = queue
                    kb_number_set(&info.queue_count, info.queue_count + 1)
        finally:
            kb_lock_release(&info.lock)
        return info.queue(partition)

    def begin_waiting(self, *, bint goes_first=False):
        """Queue up for memory, at the end or before all others.

        Returns
        -------
        MemoryWaiter
            The caller tries `append` with `first_in_queue` when `may_try()`, at once and after each call of
            `memory_freed`; in the end it withdraws.
        """
        return self.memory.join(goes_first)

    def await_memory(self, attempt not None, timeout=None, *, bint goes_first=False):
        """Queue up with the calling thread. Return the result of `attempt()` when it is first in the queue
        and there is memory, or MEMORY after `timeout` seconds (None: no limit).
        """
        cdef MemoryWaiter waiter = self.begin_waiting(goes_first=goes_first)
        try:
            return waiter.wait(attempt, NO_MEMORY_NOW, timeout)
        finally:
            waiter.withdraw()

    def begin_flush(self):
        """Make everything ready, regardless of linger, until `end_flush`.

        Returns
        -------
        Flush
            Of the batches that are unfinished now; it is over when they are done and their callbacks ran.
        """
        cdef Flush flush = Flush.__new__(Flush)
        cdef ProducerBatch batch
        flush._unanswered = []
        flush.expect(1)
        for batch in self.context.incomplete():
            batch.completion.add_flush(flush)
            flush._unanswered.append(batch.completion)
        flush.arrived()
        kb_lock_acquire(&self._flush_lock)
        kb_number_set(&self._flush_count, self._flush_count + 1)
        kb_lock_release(&self._flush_lock)
        self.alarm.wake_now()
        return flush

    def end_flush(self):
        """End it, once for each `begin_flush`."""
        kb_lock_acquire(&self._flush_lock)
        kb_number_set(&self._flush_count, self._flush_count - 1)
        kb_lock_release(&self._flush_lock)

    def close(self):
        """Accept no more records, and make everything ready. When this returns, no append is in progress."""
        cdef TopicInfo info
        cdef PartitionQueue queue
        kb_flag_set(&self._closed)
        for info in list(self._topic_list):
            for queue in list(info.queues):
                if queue is not None:
                    kb_lock_acquire(&queue.raw.lock)
                    kb_lock_release(&queue.raw.lock)
        self.alarm.wake_now()

    # On the sender's thread: batches out.

    def ready(self, int64_t now_ns):
        """Return what the sender should do. It should look again at the given time, or when a batch expires.

        Returns
        -------
        nodes : set of int
            Nodes that lead a partition with a batch to be sealed or sent now.
        delay_ns : int
            Time until another has one, if nothing else happens; 2^63 - 1 is never.
        leaderless : set of str
            Topics with records for partitions that have no known leader.
        """
        cdef set nodes = set()
        cdef set leaderless = set()
        cdef int64_t delay_ns = INT64_MAX
        cdef int64_t visited_count = self.visited_count
        cdef bint hurried
        cdef int32_t i
        kb_alarm_clear(&self.alarm.raw)
        hurried = self.is_hurried()
        if self._topology_changed:
            self._adopt_topology()
        self._take_filled()
        for i in range(self._queues.count):
            delay_ns = min(delay_ns,
                           self._node_ready(&self._queues.nodes[i], now_ns, hurried, nodes, leaderless))
        self._set_loads(visited_count)
        kb_alarm_set(&self.alarm.raw, min(later(now_ns, delay_ns), self.next_expiry_ns))
        return nodes, delay_ns, leaderless

    cdef bint is_hurried(self) noexcept nogil:
        """True if batches go at once, without waiting for more records."""
        return (kb_flag_load(&self._closed) or kb_number_peek(&self._flush_count) > 0
                or kb_flag_load(&self._completing) or self.memory.is_awaited())

    cdef int64_t _node_ready(self, kb_node_queues *node, int64_t now_ns, bint hurried, set nodes,
                             set leaderless) except -1:
        """Look at the queues of a node, for `ready`; empty ones are left out from now on."""
        cdef int64_t delay_ns = INT64_MAX, left_ns
        cdef int32_t i
        self.visited_count += node.count
        kb_queues_forget_empty(node)
        for i in range(node.count):
            if node.node_id < 0:
                leaderless.add((<PartitionQueue>node.queues[i].owner).topic)
                continue
            left_ns = self._delay(node.queues[i], now_ns, hurried)
            if left_ns == 0:
                nodes.add(node.node_id)
            else:
                delay_ns = min(delay_ns, left_ns)
        return delay_ns

    cdef int _set_loads(self, int64_t visited_before) except -1:
        """Pass the load to the sticky states of all topics. With many partitions, pass it to some topics
        in each round: to as many partitions as there were visited queues, and LOADED_PARTITIONS.
        """
        cdef set slow = self._slow_nodes()
        cdef Py_ssize_t topic_count = len(self._topic_list)
        cdef Py_ssize_t i
        cdef TopicInfo info
        self._load_credit = min(self._load_credit, 0) + LOADED_PARTITIONS
        self._load_credit += self.visited_count - visited_before
        for i in range(topic_count):
            if self._load_credit <= 0:
                break
            self._load_at = (self._load_at + 1) % topic_count
            with cython.boundscheck(True):  # without the GIL the list may move meanwhile
                info = <TopicInfo>self._topic_list[self._load_at]
            self._load_credit -= 1 + len(info.queues)
            self._set_load(info, slow)
        return 0

    cdef int _set_load(self, TopicInfo info, set slow) except -1:
        """Pass the lengths of the queues to the sticky state of a topic."""
        cdef PartitionQueue queue
        cdef TopicView view = info.partitions_now()
        cdef int32_t i, leader, count = 0
        cdef int32_t queue_count = <int32_t>len(info.queues)
        cdef int32_t known = kb_number_peek(&info.queue_count)
        # a partition without a queue would never be chosen by its load
        if self._adaptive and view is not None and known >= view.partition_count:
            info.reserve_load(queue_count)
            for i in range(queue_count):
                queue = info.queue(i)
                leader = -1 if queue is None else kb_number_peek(&queue.raw.leader)
                if leader >= 0 and not (slow and leader in slow):
                    info.partitions[count] = queue.partition
                    info.lengths[count] = kb_number_peek(&queue.raw.length)
                    count += 1
        info.sticky.set_load(info.partitions, info.lengths, count, known)
        return 0

    cdef int64_t _delay(self, kb_partition *queue, int64_t now_ns, bint hurried) noexcept:
        """Return when there is work for the queue: 0 is now, INT64_MAX after some other event."""
        cdef int64_t delay_ns
        kb_lock_acquire(&queue.lock)
        delay_ns = kb_queue_delay_ns(queue, now_ns, self.linger_ns, hurried)
        kb_lock_release(&queue.lock)
        return delay_ns

    cdef int _adopt_topology(self) except -1:
        """Give each queue its leader, and each node its queues."""
        cdef TopicInfo info
        cdef PartitionQueue queue
        cdef kb_queues before = self._queues
        cdef kb_node_queues *node
        cdef int32_t i, each
        self._topology_changed = False
        for info in self._topic_list:
            for i in range(<int32_t>len(info.queues)):
                queue = info.queue(i)
                if queue is not None:
                    self._find_leader(queue)
        memset(&self._queues, 0, sizeof(self._queues))
        try:
            for i in range(before.count):
                for each in range(before.nodes[i].count):
                    self._take_in(before.nodes[i].queues[each])
                node = kb_queues_of(&self._queues, before.nodes[i].node_id)
                if node != NULL:
                    node.drain_at = before.nodes[i].drain_at
                    node.ready_ns = before.nodes[i].ready_ns
                    node.taking_ns = before.nodes[i].taking_ns
        finally:
            kb_queues_free(&before)
        return 0

    cdef int _take_filled(self) except -1:
        """Add the queues that are no longer empty."""
        cdef kb_partition *queue = kb_take_filled(&self.context.filled)
        while queue != NULL:
            self._take_in(queue)
            queue = queue.next_filled
        return 0

    cdef int _take_in(self, kb_partition *queue) except -1:
        """Add a queue to those of its leader."""
        if not queue.has_leader:
            self._find_leader(<PartitionQueue>queue.owner)
        if not kb_queues_add(&self._queues, queue):
            raise MemoryError("no memory for the queues of a node")
        return 0

    cdef int _find_leader(self, PartitionQueue queue) except -1:
        cdef TopicView view = self.view_now().topic(queue.topic)
        cdef int32_t leader = -1, leader_epoch = -1
        if view is not None and queue.partition < view.partition_count:
            leader, leader_epoch = view.leaders[queue.partition], view.leader_epochs[queue.partition]
        kb_lock_acquire(&queue.raw.lock)
        kb_number_set(&queue.raw.leader, leader)
        queue.raw.leader_epoch = leader_epoch
        queue.raw.has_leader = True
        kb_lock_release(&queue.raw.lock)
        return 0

    def note_ready_node(self, int32_t node_id, int64_t now_ns, bint can_drain):
        """Record whether a node that has batches to send takes a request now. If it took none for longer than
        `partition_availability_timeout_ns`, its partitions are not chosen for records without a partition
        (KIP-794).
        """
        cdef kb_node_queues *node = kb_queues_of(&self._queues, node_id)
        if node != NULL:
            kb_queues_note_ready(node, can_drain, now_ns)

    cdef set _slow_nodes(self):
        """Return the nodes whose partitions are not chosen; None without a limit."""
        cdef set slow = set()
        cdef int32_t i
        if self._partition_availability_timeout_ns <= 0:
            return None
        for i in range(self._queues.count):
            node = self._queues.nodes[i]
            if node.ready_ns - node.taking_ns > self._partition_availability_timeout_ns:
                slow.add(node.node_id)
        return slow

    def drain(self, nodes, int64_t max_size_bytes, int64_t now_ns):
        """Take at most one batch of each partition that the nodes lead, up to `max_size_bytes` a node, unless
        the first alone is larger. Each node continues where it stopped the last time.

        An open batch is closed. It is sealed here if the policy says so. Otherwise another thread seals it
        (`take_unsealed`) and a later call takes it, as its first; its place in the request stays free.

        Returns
        -------
        dict of int to list of ProducerBatch
        """
        cdef dict drained = {}
        self._take_filled()
        for node in nodes:
            drained[node] = self._drain_node(node, max_size_bytes, now_ns)
        return drained

    cdef list _drain_node(self, object node, int64_t max_size_bytes, int64_t now_ns):
        cdef kb_node_queues *queues = kb_queues_of(&self._queues, node)
        cdef kb_partition *queue
        cdef kb_partition *first_closed = NULL
        cdef list batches = []
        cdef ProducerBatch batch = None
        cdef int64_t size_bytes = 0, left_bytes = INT64_MAX  # the first always goes
        cdef int32_t i, start
        cdef Visit visit
        if queues == NULL or queues.count == 0:
            return batches
        start = kb_queues_start(queues)
        for i in range(queues.count):
            queue = queues.queues[(start + i) % queues.count]
            self.visited_count += 1
            batch = self._visit(queue, left_bytes, now_ns, &visit)
            if visit == CLOSED and batch.raw.contents.records_bytes <= self.seal_policy.inline_bytes:
                batch.seal(wake=False)
                batch = self._visit(queue, left_bytes, now_ns, &visit)
            if visit == NO_SIZE:
                queues.drain_at = queue.queue_key if first_closed == NULL else first_closed.queue_key
                break
            if visit == TAKEN:
                batches.append(batch)
            elif visit == CLOSED:
                first_closed = queue if first_closed == NULL else first_closed
                self.leave_unsealed(batch)
            if visit != PASSED:
                size_bytes += kb_batch_bytes(&batch.raw)
                left_bytes = max_size_bytes - size_bytes
        return batches

    cdef ProducerBatch _visit(self, kb_partition *queue, int64_t left_bytes, int64_t now_ns, Visit *visit):
        """Take or close the head of the queue, if it may go and is no larger than `left_bytes`."""
        cdef kb_batch *visited = NULL
        kb_lock_acquire(&queue.lock)
        visit[0] = kb_queue_visit(queue, left_bytes, now_ns, &visited)
        kb_lock_release(&queue.lock)
        return batch_of(visited)

    def take_unsealed(self):
        """Return the batches that were closed and not sealed; the caller must call `seal` on each."""
        cdef list batches = []
        kb_lock_acquire(&self._unsealed_lock)
        try:
            batches, self._unsealed = self._unsealed, batches
            kb_count_store(&self._unsealed_count, 0)
        finally:
            kb_lock_release(&self._unsealed_lock)
        return batches

    def reenqueue(self, ProducerBatch batch not None, int64_t now_ns, *, bint attempted=True,
                  int64_t longest_ns=INT64_MAX):
        """Put a drained batch back, in the order of its records, to be tried again after its back-off.

        With `attempted` False, it was not sent after all and needs no back-off. `longest_ns` bounds its
        back-off.

        Returns
        -------
        bool
            False if it is done.
        """
        cdef int64_t backoff_ns = min(self._backoff(batch.raw.attempts), longest_ns) if attempted else -1
        cdef BatchState state
        kb_lock_acquire(&batch.queue.raw.lock)
        try:
            state = batch.raw.state
            if state == IN_FLIGHT:
                kb_batch_reenqueue(&batch.queue.raw, &batch.raw, now_ns, backoff_ns,
                                   &self.context.filled)
        finally:
            kb_lock_release(&batch.queue.raw.lock)
        if state == IN_FLIGHT:
            self.reenqueued_count += 1
        elif state != DONE:
            raise IllegalStateError(f"a batch must be in flight to be put back, got {batch!r}")
        return state == IN_FLIGHT

    cdef int64_t _backoff(self, int32_t attempts) noexcept:
        """Return the wait before a batch is sent again. Jitter is drawn once an attempt."""
        cdef double fraction = 0
        if grows(self._retry_backoff_ns, self._retry_backoff_max_ns):
            fraction = kb_random_fraction(&self._random)
        return backoff_ns(self._retry_backoff_ns, self._retry_backoff_max_ns, attempts, fraction)

    def split(self, ProducerBatch batch not None):
        """Replace a batch in flight that is too large for the broker by smaller ones, in its place.

        Returns
        -------
        list of ProducerBatch
            In order, sealed, with their own sequences.

        Raises
        ------
        IllegalStateError
            It is not in flight, or has only one record, which can never be sent.
        """
        cdef list parts = batch.split()
        self.split_count += 1
        return parts

    @property
    def next_expiry_ns(self):
        """Return when the oldest unfinished batch will be `delivery_timeout_ns` old; 2^63 - 1 if there is
        none.
        """
        return later(self.context.oldest_created_ns(), self.alarm.delivery_timeout_ns)

    def expire(self, int64_t now_ns):
        """Return the batches that are `delivery_timeout_ns` old or older, oldest first: removed from the
        queue, or in flight, or being sealed. The caller must fail them.
        """
        cdef list expired = []
        cdef ProducerBatch batch
        if now_ns < self.next_expiry_ns:
            return expired
        for batch in self.context.incomplete():
            if now_ns < later(batch.raw.created_ns, self.alarm.delivery_timeout_ns):
                break
            kb_lock_acquire(&batch.queue.raw.lock)
            try:
                if batch.raw.is_queued:
                    kb_queue_remove(&batch.queue.raw, &batch.raw)
            finally:
                kb_lock_release(&batch.queue.raw.lock)
            expired.append(batch)
        return expired

    def set_gate(self, str topic not None, int32_t partition, *, muted=None, fresh_blocked=None,
                 retry_number=None):
        """Limit what `drain` may take from a partition; omitted limits stay as they are.

        muted : nothing.
        fresh_blocked : nothing that was never drained.
        retry_number : of retries, only the batch whose first record has this number; -1 for any.
        """
        cdef PartitionQueue queue = self.queue_of(self.info_of(topic), partition)
        queue.set_gate(
            queue.raw.muted if muted is None else muted,
            queue.raw.fresh_blocked if fresh_blocked is None else fresh_blocked,
            queue.raw.retry_number if retry_number is None else retry_number,
        )

    def pass_loads(self):
        """Pass the load to the sticky states, after work that `ready` did not see."""
        self._set_loads(self.visited_count)

    def note_state(self, str topic not None, int32_t partition, PartitionState state not None):
        """Record the sender's state of a partition. It must exist as long as the accumulator's lane."""
        self.queue_of(self.info_of(topic), partition).raw.sequences = &state.raw

    def note_sensors(self, str topic not None, SensorGroup sensors not None):
        """Set what records the sent batches of a topic: a sensor for each of SENT_BATCH (sender_metrics)."""
        cdef TopicInfo info = self.info_of(topic)
        info.sensors = sensors
        info.raw.sensors = &sensors.raw

    def note_topic_id(self, str topic not None, bytes topic_id not None):
        """Record the id of a topic, 16 bytes; zeros if it has none."""
        memcpy(self.info_of(topic).raw.id, PyBytes_AS_STRING(topic_id), 16)

    # State

    def batches(self, str topic not None, int32_t partition):
        """The batches in a partition's queue, in order."""
        cdef TopicInfo info = self._topics.get(topic)
        cdef PartitionQueue queue = None if info is None else info.queue(partition)
        return [] if queue is None else queue.batches()

    def incomplete_batches(self):
        """All batches that are not done, oldest first."""
        return self.context.incomplete()

    @property
    def has_undrained(self):
        """True if any queue has a batch; for the sender, whose noted queues are the only candidates."""
        cdef int32_t i
        if kb_filled_has_batch(&self.context.filled):
            return True
        for i in range(self._queues.count):
            if kb_queues_have_batch(&self._queues.nodes[i]):
                return True
        return False

    def has_undrained_for(self, node):
        """True if any queue that `ready` found to be led by the node has a batch."""
        cdef kb_node_queues *queues = kb_queues_of(&self._queues, node)
        return queues != NULL and kb_queues_have_batch(queues)

    def counters(self, topic=None):
        """Counters that only grow, of all topics or of one.

        Returns
        -------
        dict of str to int
            records, records_bytes : appended, and their uncompressed size
            sealed_batches, sealed_records_bytes, sealed_bytes : of sealed batches, before and after
            unpacked_batches : of those, the ones for which the codec failed
        """
        cdef TopicInfo info
        cdef PartitionQueue queue
        cdef int64_t records = 0, records_bytes = 0, batches = 0, before = 0, after = 0, unpacked = 0
        for info in list(self._topic_list):
            if topic is None or info.name == topic:
                for queue in list(info.queues):
                    if queue is not None:
                        records += queue.raw.next_number
                        records_bytes += queue.raw.appended_bytes
                        batches += queue.raw.sealed_batches
                        before += queue.raw.sealed_records_bytes
                        after += queue.raw.sealed_bytes
                        unpacked += queue.raw.unpacked_batches
        return {"records": records, "records_bytes": records_bytes, "sealed_batches": batches,
                "sealed_records_bytes": before, "sealed_bytes": after, "unpacked_batches": unpacked}

    @property
    def incomplete_count(self):
        """Number of unfinished batches."""
        return self.context.incomplete_count
