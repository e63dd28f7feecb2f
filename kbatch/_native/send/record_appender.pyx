"""RecordAppender: the part of the accumulator that any thread uses, to put records into batches.

Theory of operation. An append finds the partition's queue, takes its lock, and writes the record into the
open batch. If there is none, a new one is made outside the lock, and given up if another thread was faster. A
batch that is full is closed, and sealed at once by the thread that filled it. What cannot be done is refused,
never waited for: BufferPool says how one waits for memory.

A record without a partition goes where the topic's sticky state says. It is peeked at before the lock and
looked at again under it, since another thread may have moved on; what was appended is counted there, and the
switch made, under the same lock.

Anything that may concern a sender that sleeps rings its alarm (BatchOwner), once.

After org.apache.kafka.clients.producer.internals.RecordAccumulator.append.
"""

cimport cython
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint64_t
from libc.stdlib cimport free

from kbatch._native.batch.batch_bytes cimport HAD_ROOM, NO_MEMORY, NO_ROOM, Room, sealing_margin
from kbatch._native.batch.buffer_pool cimport (
    FIRST_IN_CALLBACK,
    FIRST_IN_LINE,
    KB_CHUNK_HEAD_BYTES,
    Turn,
    Waiter,
    kb_record_bound,
    turn_of,
)
from kbatch._native.batch.delivery cimport Delivery, Flush, tells
from kbatch._native.batch.producer_batch cimport OPEN, OPENING_BYTES, PartitionQueue, ProducerBatch
from kbatch._native.codec.c cimport KB_MAX_RECORD_BODY, kb_record, kb_record_body_size, kb_varint_size
from kbatch._native.codec.estimator cimport CompressionRatioEstimator
from kbatch._native.codec.lock cimport kb_lock_acquire, kb_lock_destroy, kb_lock_init, kb_lock_release
from kbatch._native.codec.memory cimport grown
from kbatch._native.codec.record_fields cimport HeaderSpans, as_bytes, fill_record
from kbatch._native.send.cluster_view cimport ClusterView, TopicView
from kbatch._native.send.sticky cimport StickyPartitioner

import enum

from kbatch.errors import IllegalStateError, ProducerClosedError, RecordTooLargeError

# Kafka has no larger topics; what a partition number may make us allocate is bounded by it.
cdef int32_t MAX_PARTITIONS = 1000000
# Whoever calls `accept` did not look at the clock.
cdef int64_t UNKNOWN_NS = INT64_MIN


class Refusal(enum.Enum):
    """Why `append` did not take a record that it may take later."""

    MEMORY = "memory"
    METADATA = "metadata"


# What is said of a record that was given to the producer in a transaction, and was not accepted in it.
TRANSACTION_ENDED = (
    "the transaction ended before the record was accepted: send it again if it belongs to the next one"
)

cdef object NO_MEMORY_NOW = Refusal.MEMORY
cdef object NO_METADATA_NOW = Refusal.METADATA


cdef int64_t record_bytes(const kb_record *record) noexcept nogil:
    """What a record takes as the first of a batch."""
    cdef int64_t body = kb_record_body_size(record, 0, 0)
    return body + kb_varint_size(body)


cdef int64_t least_bytes(int64_t size, int codec) noexcept nogil:
    """What a batch is charged with that has one record, of `record_bytes`."""
    return (KB_CHUNK_HEAD_BYTES + size + OPENING_BYTES
            + sealing_margin(codec, KB_CHUNK_HEAD_BYTES + 2 * size))


cdef object beyond_memory(int64_t size, int codec, int64_t total_bytes):
    """The error of a record of `record_bytes` that would not fit if all memory were free."""
    return RecordTooLargeError(f"the record takes {size} bytes, and with its state "
                               f"{least_bytes(size, codec)}: more than buffer.memory, which is "
                               f"{total_bytes}; raise it")


@cython.final
cdef class TopicInfo:
    """What is known of a topic that records were sent to."""

    def __cinit__(self):
        kb_lock_init(&self.lock)

    def __dealloc__(self):
        kb_lock_destroy(&self.lock)
        free(self.partitions)
        free(self.lengths)

    cdef inline PartitionQueue queue(self, int32_t partition):
        """The queue of a partition; None where there is none yet."""
        if 0 <= partition < PyList_GET_SIZE(self.queues):
            return <PartitionQueue>PyList_GET_ITEM(self.queues, partition)
        return None

    cdef int reserve_load(self, Py_ssize_t count) except -1:
        """Makes room for the load of so many partitions."""
        if count > self.load_capacity:
            self.partitions = <int32_t *>grown(self.partitions, count * sizeof(int32_t))
            self.lengths = <int32_t *>grown(self.lengths, count * sizeof(int32_t))
            self.load_capacity = count
        return 0


cdef class RecordAppender(BatchOwner):
    """The accumulator, for those who send.

    Attributes
    ----------
    transaction_count : int
        Transactions that were begun, and that were ended.
    """

    def __cinit__(self):
        kb_lock_init(&self._flush_lock)
        kb_lock_init(&self._unsealed_lock)

    def __dealloc__(self):
        kb_lock_destroy(&self._flush_lock)
        kb_lock_destroy(&self._unsealed_lock)

    def append(self, str topic not None, int32_t partition, key, value, headers, int64_t timestamp_ms,
               int64_t now_ns, on_delivery=None, *, bint first_in_line=False, bint in_callback=False):
        """Takes a record into a batch of its partition.

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
        first_in_line : bool
            The caller waited for memory, and it is his turn.
        in_callback : bool
            The caller is a callback: he does not stand in line.

        Returns
        -------
        Delivery or Refusal
            MEMORY: there is none now. METADATA: the topic's partitions are not known (see `publish`).

        Raises
        ------
        TypeError, ValueError
            What is wrong with which field.
        RecordTooLargeError
            The record would not fit if all memory were free.
        ProducerClosedError
            The accumulator was closed.
        """
        cdef kb_record record
        cdef bytes key_bytes = as_bytes(key, "key")
        cdef bytes value_bytes = as_bytes(value, "value")
        cdef HeaderSpans spans = fill_record(&record, key_bytes, value_bytes, headers)
        if timestamp_ms < -1 or timestamp_ms == INT64_MAX:  # no two may be further apart than 64 bits can say
            raise ValueError(f"timestamp_ms must be 0 to 2^63 - 2, or -1 for none; it is {timestamp_ms}")
        record.timestamp_ms = timestamp_ms
        if kb_record_bound(&record) > KB_MAX_RECORD_BODY:
            raise RecordTooLargeError(
                f"key, value and headers take {kb_record_body_size(&record, 0, 0)} bytes; "
                f"{KB_MAX_RECORD_BODY} is about the most that a record can have")
        return self.accept(self.info_of(topic), partition, &record, now_ns, on_delivery,
                           turn_of(first_in_line, in_callback), self.transaction_count)

    cdef object accept(self, TopicInfo info, int32_t partition, const kb_record *record, int64_t now_ns,
                       object on_delivery, Turn turn, int64_t transaction):
        """`append`, for native callers who checked the record. A caller who does not know the time yet gives
        UNKNOWN_NS: None tells him that it is needed, to open a batch. `transaction` is the
        `transaction_count` at which the record was given to the producer: in no other is it accepted."""
        cdef TopicView view = None
        cdef PartitionQueue queue
        cdef ProducerBatch batch, fresh = None
        cdef Step step
        while True:
            if partition != -1:
                queue = self.queue_of(info, partition)
            else:
                view = info.view
                if view is None or view.partition_count == 0:
                    if fresh is not None:
                        fresh.discard()
                    return NO_METADATA_NOW
                queue = self.queue_of(info, info.sticky.peek(view))
            if fresh is not None and fresh._queue is not queue:
                fresh.discard()
                fresh = None
            batch = self._try_append(queue, info, view, fresh, record, on_delivery, turn, transaction,
                                     &step)
            if fresh is not None and not step.opened:
                fresh.discard()
            fresh = None
            if step.closed:
                self._hand_to_sealer(batch)
            if step.opened:
                self.alarm_for(queue.leader, batch, self.linger_ns)
            if step.what == APPENDED:
                return Delivery.new(batch.completion, step.index, record.timestamp_ms,
                                    <int32_t>record.key.size, <int32_t>record.value.size,
                                    tells(on_delivery))
            if step.what == UNPAID:
                return self.refuse(turn)
            if step.what == TOO_LATE:
                raise self.too_late()
            if step.what == UNOPENED:
                if now_ns == UNKNOWN_NS:
                    return None
                fresh = self._new_batch(queue, record, now_ns, turn)
                if fresh is None:
                    return self.refuse(turn)

    cdef object refuse(self, Turn turn):
        """Return MEMORY. If the first in line is refused, the sender sends whatever there is."""
        if turn == FIRST_IN_LINE or turn == FIRST_IN_CALLBACK:
            self.alarm(INT64_MIN)
        return NO_MEMORY_NOW

    @cython.final
    cdef bint is_too_late(self, int64_t transaction) noexcept nogil:
        """True if nothing is accepted any more, or nothing of this transaction."""
        return self._closed or self.transaction_count != transaction

    cdef object too_late(self):
        """The error that says which."""
        if self._closed:
            return ProducerClosedError("the producer is closed, and takes no more records")
        return IllegalStateError(TRANSACTION_ENDED)

    @cython.final
    cdef ProducerBatch _try_append(self, PartitionQueue queue, TopicInfo info, TopicView view,
                                   ProducerBatch fresh, const kb_record *record, object on_delivery,
                                   Turn turn, int64_t transaction, Step *step):
        """What is done under the lock; `fresh` becomes the open batch where there is none. A `view` means
        that the partition was chosen by the sticky state, which is looked at again here. Returns the batch.
        """
        cdef ProducerBatch batch
        cdef int64_t estimated_before = 0, bytes_before
        cdef Room room
        step.opened = step.closed = False
        kb_lock_acquire(&queue.lock)
        try:
            batch = queue.last
            if self.is_too_late(transaction):
                step.what = TOO_LATE
                return None
            if batch is not None and batch._state != OPEN:
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
            if view is not None and batch._open.count:
                estimated_before = batch.estimated_bytes()
            bytes_before = batch._open.records_bytes
            room = batch.append(record, on_delivery, turn)
            if room == NO_MEMORY:
                step.what = UNPAID
                return batch
            if batch is fresh:
                self._enqueue(queue, fresh)
                step.opened = True
            step.what = APPENDED if room == HAD_ROOM else FILLED
            step.index = batch._open.count - 1
            step.closed = room == NO_ROOM or batch.is_full()
            if step.closed:
                batch.close()
            if room == HAD_ROOM:
                queue.next_number += 1
                queue.appended_bytes += batch._open.records_bytes - bytes_before
                if view is not None:
                    info.sticky.count(view, batch.estimated_bytes() - estimated_before, step.closed)
            return batch
        finally:
            kb_lock_release(&queue.lock)

    cdef void _enqueue(self, PartitionQueue queue, ProducerBatch batch) noexcept:
        batch.first_number = queue.next_number
        queue.insert(batch)
        self.add_incomplete(batch, None)

    cdef ProducerBatch _new_batch(self, PartitionQueue queue, const kb_record *record, int64_t now_ns,
                                  Turn turn):
        """A batch with memory for the record; None where there is none now."""
        cdef ProducerBatch batch = ProducerBatch.new(self, queue, now_ns)
        cdef int64_t size = record_bytes(record)
        if batch.open(size, turn):
            return batch
        if least_bytes(size, self.codec) > self.memory.total_memory:
            raise beyond_memory(size, self.codec, self.memory.total_memory)
        return None

    cdef int _hand_to_sealer(self, ProducerBatch batch) except -1:
        if self._seal_on_append:
            batch.seal()
        else:
            self.leave_unsealed(batch)
            self.alarm(INT64_MIN)
        return 0

    cdef void leave_unsealed(self, ProducerBatch batch) noexcept:
        kb_lock_acquire(&self._unsealed_lock)
        self._unsealed.append(batch)
        kb_lock_release(&self._unsealed_lock)

    cdef TopicInfo info_of(self, str topic):
        cdef TopicInfo info = self._last_info
        if info is None or info.name is not topic:
            found = self._topics.get(topic)
            info = self._last_info = <TopicInfo>found if found is not None else self._new_topic(topic)
        return info

    cdef TopicInfo info_if_known(self, str topic):
        """None where the partitions are not known; of a topic that there never was nothing is kept."""
        cdef TopicInfo info = self._last_info
        if info is None or info.name is not topic:
            if topic not in self._topics and self._view.topic(topic) is None:
                return None
            info = self.info_of(topic)
        return info if info.view is not None else None

    cdef TopicInfo _new_topic(self, str topic):
        cdef TopicInfo info = TopicInfo.__new__(TopicInfo)
        info.name = topic
        info.number = <int32_t>len(self._topic_list)
        info.ratios = self._estimator.ratios_of(topic)
        info.queues = []
        info.sticky = StickyPartitioner(self.batch_size, self._random + <uint64_t>len(self._topic_list))
        info.view = self._view.topic(topic)
        # setdefault is atomic: two threads that meet a new topic get the same object
        found = self._topics.setdefault(topic, info)
        if found is info:
            self._topic_list.append(info)
            info.view = self._view.topic(topic)  # from now on `publish` sees to it
        return found

    @cython.final
    cdef PartitionQueue queue_of(self, TopicInfo info, int32_t partition):
        cdef PartitionQueue queue = info.queue(partition)
        if queue is not None:
            return queue
        if not 0 <= partition < MAX_PARTITIONS:
            raise ValueError(f"partition must be 0 to {MAX_PARTITIONS - 1}, or -1 for the sticky one; it is "
                             f"{partition}")
        queue = PartitionQueue.__new__(PartitionQueue)
        queue.topic = info.name
        queue.partition = partition
        queue.place = <int64_t>info.number << 32 | partition
        queue.leader = queue.leader_epoch = -1
        queue.ratios = info.ratios
        kb_lock_acquire(&info.lock)
        try:
            while len(info.queues) <= partition:
                info.queues.append(None)
            if info.queues[partition] is None:
                info.queues[partition] = queue
                info.queue_count += 1
        finally:
            kb_lock_release(&info.lock)
        return info.queue(partition)

    def begin_waiting(self, *, bint goes_first=False):
        """Stand in line for memory, at the end or before all others.

        Returns
        -------
        Waiter
            The caller attempts `append` with `first_in_line` when `may_try()`, at once and whenever
            `memory_freed` was called; it leaves the line in the end.
        """
        return self.memory.join(goes_first)

    def await_memory(self, attempt not None, timeout=None, *, bint goes_first=False):
        """Stand in line with the calling thread: return what `attempt()` gives when it is first in line and
        there is memory, or MEMORY after `timeout` seconds (None: as long as it takes)."""
        cdef Waiter waiter = self.begin_waiting(goes_first=goes_first)
        try:
            return waiter.wait(attempt, NO_MEMORY_NOW, timeout)
        finally:
            waiter.leave()

    def begin_flush(self):
        """Everything is ready, whatever linger says, until `end_flush`.

        Returns
        -------
        Flush
            Of the batches that are not done now; it is over when they are, and their callbacks ran.
        """
        cdef Flush flush = Flush.__new__(Flush)
        flush.expect(1)
        for batch in self.incomplete():
            (<ProducerBatch>batch).completion.add_flush(flush)
        flush.arrived()
        kb_lock_acquire(&self._flush_lock)
        self._flush_count += 1
        kb_lock_release(&self._flush_lock)
        self.alarm(INT64_MIN)
        return flush

    def end_flush(self):
        """Once for each `begin_flush`, however it ended."""
        kb_lock_acquire(&self._flush_lock)
        self._flush_count -= 1
        kb_lock_release(&self._flush_lock)

    def close(self):
        """No record is taken any more, and everything is ready. When this returns, no append is under way."""
        cdef TopicInfo info
        cdef PartitionQueue queue
        self._closed = True
        for info in list(self._topic_list):
            for queue in list(info.queues):
                if queue is not None:
                    kb_lock_acquire(&queue.lock)
                    kb_lock_release(&queue.lock)
        self.alarm(INT64_MIN)
