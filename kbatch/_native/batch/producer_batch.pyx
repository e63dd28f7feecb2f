"""ProducerBatch: a batch of records on its way to the broker, and the queue of its partition.

Theory of operation. A batch is OPEN > SEALING > SEALED > IN_FLIGHT > DONE. Who closes it for append, because
it is full or because the sender wants it, makes it SEALING; its one sealer, that thread or another that is
handed the batch, makes it SEALED, with no lock held while it compresses. Drained it is IN_FLIGHT, until it is
DONE or comes back to be tried again, SEALED as it is: a retry sends the same bytes. A batch can be DONE at
any time, by failure; one that is being sealed then is freed by its sealer. One that was encoded
elsewhere (encoded_batch.pyx) begins SEALED.

A queue is in the order in which the records came, by 64-bit numbers, whatever comes back and when. Its gates
are the core's: `muted` holds everything back, `fresh_blocked` what has no sequence yet, `retry_number` every
retry but one.

Locks. All of a partition's batches are guarded by the lock of its queue. Under it, as under every lock of
lock.h, there is no Python code, no new Python object that the collector tracks (its pass may run anybody's
code), no waiting and no asking for the GIL. The locks of the budget, of the list of unfinished batches and of
a topic's sticky state may be taken under it, never the other way around, and none of another kind.

After org.apache.kafka.clients.producer.internals.ProducerBatch.
"""

cimport cython
from cpython.bytes cimport PyBytes_GET_SIZE
from libc.stdint cimport INT16_MAX, INT32_MAX, INT64_MAX, int16_t, int32_t, int64_t, uint32_t

from kbatch._native.batch.batch_bytes cimport HAD_ROOM, NO_MEMORY, BatchBytes, Partition, Room
from kbatch._native.batch.batch_owner cimport BatchOwner
from kbatch._native.batch.buffer_pool cimport Turn, kb_chunk
from kbatch._native.batch.delivery cimport (
    CALLBACK_BYTES,
    DELIVERY_BYTES,
    FAILED,
    SUCCEEDED,
    Completion,
    Outcome,
)
from kbatch._native.codec.c cimport (
    KB_BATCH_HEADER_SIZE,
    KB_TRANSACTIONAL,
    kb_batch_header,
    kb_estimated_bytes,
    kb_record,
)
from kbatch._native.codec.lock cimport kb_lock_acquire, kb_lock_release
from kbatch._native.codec.record_batch cimport checked_int, last_sequence

from kbatch.errors import IllegalStateError

# By BatchState.
_STATES = ("open", "sealing", "sealed", "in_flight", "done")


@cython.final
cdef class PartitionQueue(Partition):
    """The batches of a partition that are not drained, in order, and its gates."""

    def __cinit__(self):
        self.leader = self.leader_epoch = -1
        self.retry_number = -1

    cdef void insert(self, ProducerBatch batch) noexcept:
        """In its place, which is the end for new batches and near the head for those that come back."""
        cdef ProducerBatch behind = None
        if self.last is not None and self.last.first_number > batch.first_number:
            behind = self.first
            while behind.first_number < batch.first_number:
                behind = behind._next
        batch._next = behind
        batch._previous = self.last if behind is None else behind._previous
        if batch._previous is None:
            self.first = batch
        else:
            batch._previous._next = batch
        if behind is None:
            self.last = batch
        else:
            behind._previous = batch
        batch._queued = True
        self.length += 1
        if not self.is_noted:
            self.is_noted = True
            batch._owner.note_filled(self)

    cdef void remove(self, ProducerBatch batch) noexcept:
        if batch._previous is None:
            self.first = batch._next
        else:
            batch._previous._next = batch._next
        if batch._next is None:
            self.last = batch._previous
        else:
            batch._next._previous = batch._previous
        batch._next = batch._previous = None
        batch._queued = False
        self.length -= 1

    cdef bint stays_noted(self) noexcept:
        """For the sender: False where it is empty, and forgotten until it is not."""
        cdef bint stays
        kb_lock_acquire(&self.lock)
        stays = self.is_noted = self.length > 0
        kb_lock_release(&self.lock)
        return stays

    cdef bint gate_is_open(self, ProducerBatch head) noexcept:
        """Whether `head` may be sent, as far as the sender's core is concerned."""
        if self.muted:
            return False
        if head.attempts == 0 and head._header.base_sequence < 0:
            return not self.fresh_blocked
        return self.retry_number < 0 or self.retry_number == head.first_number

    cdef void set_gate(self, bint muted, bint fresh_blocked, int64_t retry_number) noexcept:
        """Takes the lock."""
        kb_lock_acquire(&self.lock)
        self.muted = muted
        self.fresh_blocked = fresh_blocked
        self.retry_number = retry_number
        kb_lock_release(&self.lock)


@cython.final
cdef class ProducerBatch(BatchBytes):
    """Records of one partition that are sent together.

    Attributes
    ----------
    completion : Completion
        What becomes of it; with its callbacks.
    first_number : int
        Of its first record: a partition's records are numbered from 0 as they are accepted, in 64 bits.
    created_ns, last_attempt_ns, drained_ns, backoff_ns : int
        When it was opened, when it last came back (or was opened), when it last went; how long it backs off.
    attempts : int
        How often it came back.
    leader_epoch, leader_changed_attempt : int
        Of the leader that it goes to, -1 if unknown; and which attempt was the first to go there.
    is_split : bool
        It is part of one that was too large.
    is_encoded : bool
        It came encoded, or is part of one that did; its records share a delivery.
    was_sent, possibly_persisted : bool
        For the sender's core to set: it was handed to the network; some attempt may have been appended.
    """

    def __init__(self):
        raise TypeError("a ProducerBatch comes from a RecordAccumulator")

    @staticmethod
    cdef ProducerBatch new(BatchOwner owner, PartitionQueue queue, int64_t now_ns):
        cdef ProducerBatch batch = ProducerBatch.__new__(ProducerBatch)
        batch.prepare(owner, queue)
        batch._queue = queue
        batch.completion = Completion.new(queue.topic, queue.partition, owner.memory)
        batch.created_ns = batch.last_attempt_ns = now_ns
        batch.drained_ns = batch.leader_epoch = -1
        return batch

    # While it is open; the lock is held, or nobody else knows the batch yet.

    cdef bint open(self, int64_t record_bytes, Turn turn) noexcept:
        """Memory for the first record, and for the batch itself; False without."""
        if not self.take_first_chunk(record_bytes, OPENING_BYTES, turn):
            return False
        self.completion.charged_bytes = OPENING_BYTES
        self._state_left_bytes = OPENING_BYTES - BATCH_BYTES
        return True

    cdef bint open_encoded(self, bytes batch, const kb_batch_header *header, uint32_t body_crc,
                           Turn turn) noexcept:
        """Memory for a batch that is encoded already, which it then is, sealed; False without."""
        cdef int64_t size = PyBytes_GET_SIZE(batch)
        if not self._owner.memory.charge(size + BATCH_BYTES, turn):
            return False
        self.adopt(batch, header, body_crc)
        self._charged_bytes = size
        self.completion.charged_bytes = BATCH_BYTES
        self.completion.record_count = header.count
        self.is_encoded = True
        self._state = SEALED
        return True

    cdef bint charge_state(self, int64_t size, Turn turn) noexcept nogil:
        """Sees to it that `size` bytes of state are paid for, which the caller takes off when he uses them;
        False without memory."""
        cdef int64_t step_bytes = max(<int64_t>STATE_STEP_BYTES, size)
        if self._state_left_bytes >= size:
            return True
        if not self._owner.memory.charge(step_bytes, turn):
            return False
        self.completion.charged_bytes += step_bytes
        self._state_left_bytes += step_bytes
        return True

    cdef Room append(self, const kb_record *record, object on_delivery, Turn turn) noexcept:
        """Appends the record if the batch has room for it by Kafka's rule, and the memory can be had."""
        cdef int64_t state_bytes = DELIVERY_BYTES
        cdef Room room
        if on_delivery is not None:
            state_bytes += CALLBACK_BYTES
            if not self.completion.reserve_callback():
                return NO_MEMORY
        if not self.charge_state(state_bytes, turn):
            return NO_MEMORY
        room = self.write(record, turn)
        if room != HAD_ROOM:
            return room
        self._state_left_bytes -= state_bytes
        if on_delivery is not None:
            self.completion.add_callback(
                on_delivery, record.timestamp_ms, <int32_t>record.key.size, <int32_t>record.value.size
            )
        self.completion.record_count = self._open.count
        return HAD_ROOM

    cdef void close(self) noexcept nogil:
        """No record comes any more: the batch is for its sealer."""
        self._state = SEALING
        self._queue.previous_bytes = self._open.records_bytes

    cdef void discard(self) noexcept:
        """For one that nobody got to know: another thread had opened one first."""
        cdef int64_t discharged = 0
        cdef kb_chunk *chunks = self.dismissed(&discharged)
        self._owner.memory.exchange(chunks, discharged + self.completion.charged_bytes)

    # Sealed, and stamped.

    def seal(self, *, bint wake=True):
        """Compresses the records of a batch that was closed for append, and writes its header. For the one
        who was handed the batch to do so; the GIL is free while the codec works.

        `wake` tells the sender that there is something to drain; the sender itself need not be told.

        Returns
        -------
        bool
            False where the batch has failed meanwhile.

        Raises
        ------
        IllegalStateError
            It is open, or sealed, or somebody else seals it.
        """
        cdef bytes packed = None
        cdef BatchState state
        cdef bint mine
        kb_lock_acquire(&self._queue.lock)
        try:
            state = self._state
            mine = state == SEALING and not self._sealer_came
            if mine:
                self._sealer_came = True
                self._users += 1
        finally:
            kb_lock_release(&self._queue.lock)
        if not mine:
            if state == DONE:
                return False
            raise IllegalStateError(f"a batch is sealed once, when it is closed for append; this is {self!r}")
        try:
            packed = self.compressed()
        finally:  # whatever happens, the batch goes on, and the sender hears of it
            self._end_sealing(packed)
            if wake:
                self._owner.alarm_for(self._queue.leader, self, 0)
        return self._state != DONE

    cdef int _end_sealing(self, bytes packed) except -1:
        cdef kb_chunk *chunks = NULL
        cdef int64_t discharged = 0
        cdef int64_t records_bytes = self._open.records_bytes
        self.set_body(packed, self._owner.codec)
        kb_lock_acquire(&self._queue.lock)
        try:
            self._users -= 1
            if self._users == 0:
                chunks = self.dismissed(&discharged)
            else:
                self._state = SEALED
                chunks = self.replaced(&discharged)
            self._queue.sealed_batches += 1
            self._queue.sealed_records_bytes += records_bytes
            self._queue.sealed_bytes += self._body_bytes
            self._queue.unpacked_batches += packed is None and self._owner.codec != 0
        finally:
            kb_lock_release(&self._queue.lock)
        self._owner.memory.exchange(chunks, discharged)
        # a tiny batch compresses badly, and would teach the estimate what the next, full one does not keep
        if packed is not None and 4 * records_bytes >= self._owner.batch_size:
            self._queue.ratios.update(self._owner.codec, <double>self._body_bytes / <double>records_bytes)
        return 0

    def stamp(self, producer_id, producer_epoch, base_sequence):
        """Writes who produced the batch into the header; nothing else of it changes but the CRC.

        Raises
        ------
        ValueError
            A producer id without epoch and sequence; none for a transactional batch; one out of range.
        IllegalStateError
            The batch is not sealed, or is done, or the network still has views of it.
        """
        cdef int64_t new_id = checked_int(producer_id, "producer_id", -1, INT64_MAX)
        cdef int64_t new_epoch = checked_int(producer_epoch, "producer_epoch", -1, INT16_MAX)
        cdef int64_t new_sequence = checked_int(base_sequence, "base_sequence", -1, INT32_MAX)
        cdef bint ours
        if (new_id < 0) != (new_epoch < 0) or (new_id < 0) != (new_sequence < 0):
            raise ValueError(f"producer_id, producer_epoch and base_sequence go together, all -1 or none; "
                             f"they are {producer_id}, {producer_epoch} and {base_sequence}")
        if new_id < 0 and self._owner.attributes & KB_TRANSACTIONAL:
            raise ValueError("a transactional batch needs a producer_id of 0 or more; it is -1")
        kb_lock_acquire(&self._queue.lock)
        try:
            ours = (self._state == SEALED or self._state == IN_FLIGHT) and self._users == 1
            if ours:
                self._header.producer_id = new_id
                self._header.producer_epoch = <int16_t>new_epoch
                self._header.base_sequence = <int32_t>new_sequence
                self.write_header()
        finally:
            kb_lock_release(&self._queue.lock)
        if not ours:
            raise IllegalStateError(f"a batch is stamped when it is sealed and nobody else uses its bytes; "
                                    f"this is {self!r} with {self._users} users")

    def buffers(self, int64_t copied_bytes=0):
        """The sealed batch as memoryviews, one behind another, for `sendmsg`: nothing is copied.

        Each of them keeps the memory of the batch, whatever becomes of it, until it is released. What has no
        more than `copied_bytes`, the whole batch or its header, comes as a bytes object instead: a copy.

        Raises
        ------
        IllegalStateError
            The batch is not sealed, or is done.
        """
        if (self._state != SEALED and self._state != IN_FLIGHT) or not self.hold():
            raise IllegalStateError(f"a batch has bytes to send while it is sealed and not done; this is "
                                    f"{self!r}")
        try:
            if KB_BATCH_HEADER_SIZE + self._body_bytes <= copied_bytes:
                return [self.joined()]
            return self.pieces(KB_BATCH_HEADER_SIZE <= copied_bytes)
        finally:
            self.release()

    # Its end.

    def complete(self, int64_t base_offset, int64_t log_append_time_ms=-1):
        """The broker has it: record i stands at `base_offset` + i (-1: the broker did not say).

        Returns
        -------
        bool
            False where it had failed before, which stands.

        Raises
        ------
        IllegalStateError
            It was completed before, or split.
        """
        return self._finish(SUCCEEDED, base_offset, log_append_time_ms, None, None)

    def fail(self, error not None, record_errors=None):
        """The batch failed with `error`, or some records with one of their own (`record_errors`, by index).
        Returns, and raises, as `complete` does."""
        return self._finish(FAILED, -1, -1, error, record_errors)

    cdef bint _finish(self, Outcome outcome, int64_t base_offset, int64_t log_append_time_ms, object error,
                      object record_errors) except -1:
        cdef kb_chunk *chunks = NULL
        cdef int64_t discharged = 0
        if not self.completion.settle(outcome, base_offset, log_append_time_ms, error, record_errors):
            return False
        kb_lock_acquire(&self._queue.lock)
        try:
            if self._queued:
                self._queue.remove(self)
            self._state = DONE
            self._users -= 1
            if self._users == 0:
                chunks = self.dismissed(&discharged)
        finally:
            kb_lock_release(&self._queue.lock)
        self._owner.memory.exchange(chunks, discharged)
        self.completion.announce()
        self._owner.remove_incomplete(self)  # a flush that begins now waits for the batch, or its callbacks
        return True

    # Its way through the queue; the lock is held.

    cdef void reenqueue(self, int64_t now_ns, int64_t backoff_ns) noexcept:
        """Back into the queue, to be tried again `backoff_ns` from now; -1: the attempt does not count."""
        if backoff_ns >= 0:
            self.attempts += 1
            self.last_attempt_ns = max(self.last_attempt_ns, now_ns)
            self.backoff_ns = backoff_ns
        self._state = SEALED
        self._queue.insert(self)

    cdef void notice_leader_epoch(self) noexcept:
        """Remembers by which attempt a newer leader than before was known (KIP-951)."""
        if self._queue.leader_epoch > self.leader_epoch:
            self.leader_epoch = self._queue.leader_epoch
            self.leader_changed_attempt = self.attempts

    cdef bint leader_changed_since_last_attempt(self) noexcept:
        return self.attempts > 0 and self.attempts == self.leader_changed_attempt

    cdef int64_t backoff_left_ns(self, int64_t now_ns) noexcept:
        """Before it may be tried again; a newer leader need not be spared."""
        if self.attempts == 0 or self.leader_changed_since_last_attempt():
            return 0
        return max(<int64_t>0, self.backoff_ns - max(<int64_t>0, now_ns - self.last_attempt_ns))

    cdef int64_t estimated_bytes(self) noexcept nogil:
        if self._state == OPEN or self._state == SEALING:
            return kb_estimated_bytes(self._open.records_bytes, self._factor)
        return KB_BATCH_HEADER_SIZE + self._body_bytes

    # What is known of it.

    def __repr__(self):
        return (f"<ProducerBatch {self.topic}-{self.partition} {self.state}, {self.record_count} records "
                f"from {self.first_number}, attempts {self.attempts}, sequence {self.base_sequence}>")

    @property
    def topic(self):
        return self._queue.topic

    @property
    def partition(self):
        return self._queue.partition

    @property
    def state(self):
        """"open", "sealing", "sealed", "in_flight" or "done"."""
        return _STATES[self._state]

    @property
    def is_done(self):
        return self._state == DONE

    @property
    def record_count(self):
        return self._open.count

    @property
    def records_bytes(self):
        """Of the records, uncompressed; of a batch that came encoded as they are in it."""
        return self._open.records_bytes

    @property
    def largest_record_bytes(self):
        """Of the largest of the records, uncompressed; where the batch came encoded, of all on average."""
        return self._largest_record_bytes

    @property
    def size_bytes(self):
        """Of the whole batch; until it is sealed as the ratio of earlier batches lets expect."""
        return self.estimated_bytes()

    @property
    def max_timestamp_ms(self):
        return self._open.max_timestamp_ms

    @property
    def user_count(self):
        """Who still needs its bytes: one for the way through the queue and the broker, one for its sealer,
        one for each view of them."""
        return self._users

    @property
    def leader_changed(self):
        """Whether a newer leader is known than at the last attempt."""
        return self.leader_changed_since_last_attempt()

    @property
    def has_sequence(self):
        return self._header.base_sequence >= 0

    @property
    def producer_id(self):
        return self._header.producer_id

    @property
    def producer_epoch(self):
        return self._header.producer_epoch

    @property
    def base_sequence(self):
        return self._header.base_sequence

    @property
    def last_sequence(self):
        return last_sequence(self._header.base_sequence, self._open.last_offset_delta)
