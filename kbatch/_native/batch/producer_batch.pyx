"""ProducerBatch: a batch of records on its way to the broker, and the queue of its partition.

Theory of operation. What a sender does with batches and queues without Python is in batch_queue.h: the states
of a batch, the order of a queue and its gates. Here they get their records, bytes and outcomes. A thread that
closes a batch for append, because it is full or the sender wants it, makes it SEALING. Its one sealer, that
thread or another, makes it SEALED, without holding a lock during compression. A batch can become DONE at any
time by failure; if it is being sealed then, its sealer frees it. One that was encoded elsewhere
(encoded_batch.pyx) begins SEALED.

The core sets the gates: `muted` blocks everything, `fresh_blocked` batches without a sequence, `retry_number`
every retry but one. A queue refers to batches without owning them: those in it are unfinished, and the list
of unfinished batches owns them.

Bytes. While a batch is open, records are written once, into a chain of chunks that grows with them. Sealing
compresses them as one stream and returns the chunks; without a codec they stay where they are. The header
stands apart from the records, and their CRC is kept, so that stamping producer id, epoch and sequence touches
only 61 bytes, however often it happens. An encoded batch is kept as given: its own header takes the place of
the other in front of the body.

The bytes have users: the batch on its way through the queue and to the broker, its sealer, and every
memoryview of them. The last user returns the memory to the budget. So bytes that the network still writes are
never overwritten, even if the batch has expired (KAFKA-19012).

Chunks are charged by their size plus the little by which incompressible records grow, so that sealing need
not request memory; afterwards the sealed bytes are charged instead. Only the compressing thread briefly has
the gathered records and their compressed form in addition.

Splitting. A batch that is too large for the broker (MESSAGE_TOO_LARGE) is replaced by smaller ones. The
records are read back and written again, with the deltas of their new batch, and sealed at once. A batch that
Kafka's estimate let grow beyond batch.size is cut into batches of batch.size, before compression. A smaller
one, or a part of a split, is cut in halves or around its largest record. An encoded batch is cut in halves,
which keep its codec. Each split gives at least two batches, so splitting ends with single records
(KAFKA-8350). The parts take the place of the whole in the queue, in the list of unfinished batches, in its
deliveries and in its sequences. They count as never tried, and as old as the whole. Their bytes come from no
pool, but are charged like all others, in one step with those that they replace.

Locks. The lock of a partition's queue guards all of its batches. Under it, as under every lock of
short_lock.h, there is no Python code, no waiting and no request for the GIL. Nor is there a new Python object
that the collector tracks, since a collection may run any code. The locks of the budget, of the list of
unfinished batches and of a topic's sticky state may be taken under it, never the reverse, and no others.

After org.apache.kafka.clients.producer.internals.ProducerBatch and IncompleteBatches.
"""

cimport cython
from cpython.buffer cimport PyBUF_WRITABLE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromObject
from cpython.ref cimport Py_REFCNT
from libc.stdint cimport (
    INT16_MAX,
    INT32_MAX,
    INT64_MAX,
    int16_t,
    int32_t,
    int64_t,
    uint8_t,
    uint32_t,
    uint64_t,
)
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from kbatch._native.batch.alarm cimport SenderAlarm
from kbatch._native.batch.buffer_pool cimport (
    CHUNK_BYTES,
    KB_CHAIN_DONE,
    KB_CHAIN_FULL,
    KB_CHUNK_HEAD_BYTES,
    POISON,
    BufferPool,
    Claim,
    kb_chain_append,
    kb_chain_cut,
    kb_chain_extend,
    kb_chain_gather,
    kb_chain_room,
    kb_chain_status,
    kb_chunk,
    kb_chunk_data,
    kb_chunk_used,
)
from kbatch._native.batch.delivery cimport (
    CALLBACK_BYTES,
    DELIVERY_BYTES,
    FAILED,
    SUCCEEDED,
    Completion,
    CompletionState,
)
from kbatch._native.codec.c cimport (
    KB_ATTRIBUTES_AT,
    KB_BATCH_HEADER_SIZE,
    KB_CODEC_MASK,
    KB_CODEC_MEMORY,
    KB_LOG_OVERHEAD,
    KB_MAX_RECORD_BODY,
    KB_RATIO_FACTOR,
    KB_TRANSACTIONAL,
    kb_batch_header,
    kb_batch_header_put,
    kb_codec_fault,
    kb_codec_status,
    kb_count_record,
    kb_estimated_bytes,
    kb_memory,
    kb_open_batch,
    kb_record,
    kb_record_body_size,
    kb_record_error,
    kb_record_get,
    kb_record_header,
    kb_record_header_get,
    kb_record_put,
    kb_record_view,
    kb_records_check,
    kb_varint_size,
)
from kbatch._native.codec.compression cimport (
    GIL_KEPT_CODEC_BYTES,
    compress_records,
    decompress_records,
    end_compression,
    level_of,
)
from kbatch._native.codec.hashes cimport crc32c_combined, crc32c_extend
from kbatch._native.codec.libraries cimport compress_into
from kbatch._native.codec.memory cimport GIL_KEPT_BYTES, OwnedMemory, extend, give_up, reserve
from kbatch._native.codec.record_batch cimport checked_int, last_sequence, record_error, record_timestamp
from kbatch._native.codec.views cimport fill_view
from kbatch._native.flags cimport kb_count_peek, kb_count_store, kb_number_peek
from kbatch._native.lock cimport kb_lock_acquire, kb_lock_destroy, kb_lock_init, kb_lock_release

from kbatch.errors import IllegalStateError

CHECKSUM.extend = crc32c_extend
CHECKSUM.combine = crc32c_combined
cdef int64_t SMALLEST_CHUNK_BYTES = 512
# The limit of uncompressed bytes of records that came encoded and were never decoded here; see
# `kbatch.decode`.
cdef int64_t MAX_DECOMPRESSED_BYTES = 268435456

# By BatchState.
_STATES = ("open", "sealing", "sealed", "in_flight", "done")


cdef int64_t _chunk_bytes(int64_t wanted) noexcept nogil:
    """Return the size of a chunk with `wanted` bytes of room: a power of two, or the maximum."""
    cdef int64_t size = SMALLEST_CHUNK_BYTES
    while size < CHUNK_BYTES and size < wanted + KB_CHUNK_HEAD_BYTES:
        size *= 2
    return size


cdef int64_t sealing_margin(int codec, int64_t chunks_bytes) noexcept nogil:
    """Return the extra charge of chunks, which pays for the sealed result; data grows by less."""
    return chunks_bytes // 64 + 64 if codec else 0


@cython.final
cdef class BatchContext:
    """What all batches of an accumulator share: settings, memory, the sender's alarm, the list of those that
    are not done, and the queues that got their first batch.

    The list has the order in which batches were opened, so the oldest, which expires first, is its head; the
    parts of a split batch take its place. A queue that gets its first batch is noted for the sender, which
    need not look at the others, however many there are.

    Each lock guards a few instructions, and none is taken under another of them.
    """

    def __cinit__(self):
        kb_lock_init(&self._incomplete_lock)
        kb_lock_init(&self.filled.lock)

    def __dealloc__(self):
        kb_lock_destroy(&self._incomplete_lock)
        kb_lock_destroy(&self.filled.lock)

    @staticmethod
    cdef BatchContext new(BufferPool memory, SenderAlarm alarm, int64_t batch_size, int codec, int level,
                          bint transactional):
        cdef BatchContext context = BatchContext.__new__(BatchContext)
        context.memory = memory
        context.alarm = alarm
        context.batch_size = batch_size
        context.codec = codec
        context.level = level
        context.attributes = <int16_t>(KB_TRANSACTIONAL if transactional else 0)
        return context

    cdef void add_incomplete(self, ProducerBatch batch, ProducerBatch older) noexcept:
        """Insert after `older`; at the end if that is None. The list is in the order of creation."""
        kb_lock_acquire(&self._incomplete_lock)
        try:
            if older is None:
                older = self._newest
            batch._older = older
            if older is None:
                batch._newer, self._oldest = self._oldest, batch
            else:
                batch._newer, older._newer = older._newer, batch
            if batch._newer is None:
                self._newest = batch
            else:
                batch._newer._older = batch
            batch._listed = True
            kb_count_store(&self.incomplete_count, self.incomplete_count + 1)
        finally:
            kb_lock_release(&self._incomplete_lock)

    cdef void remove_incomplete(self, ProducerBatch batch) noexcept:
        kb_lock_acquire(&self._incomplete_lock)
        try:
            if not batch._listed:
                return
            if batch._older is None:
                self._oldest = batch._newer
            else:
                batch._older._newer = batch._newer
            if batch._newer is None:
                self._newest = batch._older
            else:
                batch._newer._older = batch._older
            batch._older = batch._newer = None
            batch._listed = False
            kb_count_store(&self.incomplete_count, self.incomplete_count - 1)
        finally:
            kb_lock_release(&self._incomplete_lock)

    cdef list incomplete(self):
        """Return all unfinished batches, oldest first."""
        cdef list batches = []
        cdef ProducerBatch batch
        cdef Py_ssize_t count = 0
        while True:
            batches.extend([None] * (kb_count_peek(&self.incomplete_count) + 8 - len(batches)))
            kb_lock_acquire(&self._incomplete_lock)
            try:
                if self.incomplete_count <= len(batches):
                    batch = self._oldest
                    while batch is not None:
                        batches[count] = batch
                        count += 1
                        batch = batch._newer
                    break
            finally:
                kb_lock_release(&self._incomplete_lock)
        del batches[count:]
        return batches

    cdef int64_t oldest_created_ns(self) noexcept nogil:
        """Time at which the oldest unfinished batch was opened; 2^63 - 1 if there is none."""
        cdef int64_t created_ns = INT64_MAX
        kb_lock_acquire(&self._incomplete_lock)
        if self._oldest is not None:
            created_ns = self._oldest.raw.created_ns
        kb_lock_release(&self._incomplete_lock)
        return created_ns


@cython.final
cdef class PartitionQueue:
    """The undrained batches of a partition, in order, and its gates."""

    def __cinit__(self):
        kb_partition_init(&self.raw, <void *>self)

    def __dealloc__(self):
        kb_lock_destroy(&self.raw.lock)

    cdef list batches(self):
        """The batches, in order; only for the sender's thread and tests, because it takes no lock."""
        cdef list batches = []
        cdef kb_batch *batch = self.raw.first
        while batch != NULL:
            batches.append(batch_of(batch))
            batch = batch.next
        return batches

    cdef void set_gate(self, bint muted, bint fresh_blocked, int64_t retry_number) noexcept:
        """Take the lock and change the gate."""
        kb_lock_acquire(&self.raw.lock)
        self.raw.muted = muted
        self.raw.fresh_blocked = fresh_blocked
        self.raw.retry_number = retry_number
        kb_lock_release(&self.raw.lock)


@cython.final
cdef class ProducerBatch:
    """Records of one partition that are sent together.

    Attributes
    ----------
    completion : Completion
        Its outcome, with its callbacks.
    first_number : int
        The number of its first record: a partition's records are numbered from 0 in order of acceptance, in
        64 bits.
    created_ns, last_attempt_ns, drained_ns, backoff_ns : int
        When it was opened, when it last came back (or was opened), when it was last sent; how long it backs
        off.
    attempts : int
        The number of its retries.
    leader_epoch, leader_changed_attempt : int
        The epoch of its leader, -1 if unknown; and the first attempt with that epoch.
    is_split : bool
        True for a part of a batch that was too large.
    is_encoded : bool
        True if it came encoded, or is a part of one that did; its records share a delivery.
    was_sent, possibly_persisted : bool
        Set by the sender's core: it was passed to the network; some attempt may have been appended.
    """

    def __init__(self):
        raise TypeError("a ProducerBatch comes from a RecordAccumulator")

    def __dealloc__(self):
        # only if a whole accumulator is dropped with its content: there is no budget to pay back to
        cdef kb_chunk *chunk = self.raw.chain.first
        cdef kb_chunk *next_chunk
        free(self.raw.own_packed)
        while chunk != NULL:
            next_chunk = chunk.next
            free(chunk)
            chunk = next_chunk

    @staticmethod
    cdef ProducerBatch new(BatchContext context, PartitionQueue queue, int64_t now_ns):
        cdef ProducerBatch batch = ProducerBatch.__new__(ProducerBatch)
        batch._context = context
        batch.queue = queue
        batch.raw.owner = <void *>batch
        batch.raw.home = &queue.raw
        batch.raw.users = 1
        batch.raw.factor = queue.ratios.estimate(context.codec) * KB_RATIO_FACTOR if context.codec else 1.0
        batch.raw.header.leader_epoch = batch.raw.header.base_sequence = -1
        batch.raw.header.producer_id = -1
        batch.raw.header.producer_epoch = -1
        batch.completion = Completion.new(queue.topic, queue.partition, context.memory)
        batch.raw.waiter = &batch.completion.waiter
        batch.raw.created_ns = batch.raw.last_attempt_ns = now_ns
        batch.raw.drained_ns = batch.raw.leader_epoch = -1
        return batch

    # While it is open; the lock is held, or no other thread knows the batch yet

    cdef bint open(self, int64_t record_bytes, Claim claim) noexcept:
        """Take memory for the first record, and for the batch itself. False without."""
        if not self._take_first_chunk(record_bytes, OPENING_BYTES, claim):
            return False
        self.completion.charged_bytes = OPENING_BYTES
        self.raw.state_left_bytes = OPENING_BYTES - BATCH_BYTES
        return True

    cdef bint open_encoded(self, bytes batch, const kb_batch_header *header, uint32_t body_crc,
                           Claim claim) noexcept:
        """Take memory for an encoded batch, which is then sealed. False without."""
        cdef int64_t size = PyBytes_GET_SIZE(batch)
        if not self._context.memory.charge(size + BATCH_BYTES, claim):
            return False
        self._adopt(batch, header, body_crc)
        self.raw.charged_bytes = size
        self.completion.charged_bytes = BATCH_BYTES
        self.completion.record_count = header.count
        self.raw.is_encoded = True
        self.raw.state = SEALED
        return True

    cdef bint charge_state(self, int64_t size, Claim claim) noexcept nogil:
        """Ensure that `size` bytes of state are charged, which the caller deducts on use. False without
        memory.
        """
        cdef int64_t step_bytes = max(<int64_t>STATE_STEP_BYTES, size)
        if self.raw.state_left_bytes >= size:
            return True
        if not self._context.memory.charge(step_bytes, claim):
            return False
        self.completion.charged_bytes += step_bytes
        self.raw.state_left_bytes += step_bytes
        return True

    cdef Room append(self, const kb_record *record, object on_delivery, Claim claim) noexcept:
        """Append the record if the batch has room for it by Kafka's rule, and there is memory."""
        cdef int64_t state_bytes = DELIVERY_BYTES
        cdef Room room
        if on_delivery is not None:
            state_bytes += CALLBACK_BYTES
            if not self.completion.reserve_callback():
                return NO_MEMORY
        if not self.charge_state(state_bytes, claim):
            return NO_MEMORY
        room = self._write(record, claim)
        if room != HAD_ROOM:
            return room
        self.raw.state_left_bytes -= state_bytes
        if on_delivery is not None:
            self.completion.add_callback(
                on_delivery, record.timestamp_ms, <int32_t>record.key.size, <int32_t>record.value.size
            )
        self.completion.record_count = self.raw.contents.count
        return HAD_ROOM

    cdef void discard(self) noexcept:
        """Discard a batch that no other thread knows: another had opened one first."""
        cdef int64_t discharged = 0
        cdef kb_chunk *chunks = self._dismissed(&discharged)
        self._context.memory.exchange(chunks, discharged + self.completion.charged_bytes)

    cdef bint _take_first_chunk(self, int64_t record_bytes, int64_t besides_bytes, Claim claim) noexcept:
        """Allocate the size that the partition filled before; for a record beyond batch.size exactly its
        size.
        """
        cdef int64_t filled = kb_count_peek(&self.queue.raw.previous_bytes)
        cdef int64_t wanted = max(record_bytes, min(self._likely_bytes(), filled))
        if KB_BATCH_HEADER_SIZE + record_bytes > self._context.batch_size:
            return self._take(record_bytes, KB_CHUNK_HEAD_BYTES + record_bytes, besides_bytes, claim)
        return self._take_likely(record_bytes, wanted, besides_bytes, claim)

    cdef Room _write(self, const kb_record *record, Claim claim) noexcept:
        """Append the record if the batch has room for it by Kafka's rule, and there is memory."""
        cdef int64_t size
        cdef kb_chain_status status
        while True:
            status = kb_chain_append(&self.raw.chain, &self.raw.contents, record, self._context.batch_size,
                                     self.raw.factor, &size)
            if status == KB_CHAIN_DONE:
                break
            if status == KB_CHAIN_FULL:
                return NO_ROOM
            if not self.grow(size - kb_chain_room(&self.raw.chain), claim):
                return NO_MEMORY
        if size > self.raw.largest_record_bytes:
            self.raw.largest_record_bytes = size
        return HAD_ROOM

    cdef bint grow(self, int64_t missing_bytes, Claim claim) noexcept nogil:
        """Add chunks: twice as much as before, but no more than the batch is likely to need."""
        cdef int64_t wanted = max(missing_bytes, min(self._likely_bytes(), self.raw.chain.chunk_bytes))
        return self._take_likely(missing_bytes, wanted, 0, claim)

    cdef int64_t _likely_bytes(self) noexcept nogil:
        """Estimate the bytes of records still to come, if they compress like those of earlier batches."""
        return <int64_t>(
            (self._context.batch_size - KB_BATCH_HEADER_SIZE) / self.raw.factor
        ) - self.raw.contents.records_bytes

    cdef bint _take_likely(self, int64_t room_bytes, int64_t wanted_bytes, int64_t besides_bytes,
                           Claim claim) noexcept nogil:
        """Add the likely need; if that is unavailable, only the current need, so that a record always fits
        when all other memory is free.
        """
        return (self._take(room_bytes, _chunk_bytes(wanted_bytes), besides_bytes, claim)
                or self._take(room_bytes, KB_CHUNK_HEAD_BYTES + room_bytes, besides_bytes, claim))

    cdef bint _take(self, int64_t room_bytes, int64_t chunk_bytes, int64_t besides_bytes,
                    Claim claim) noexcept nogil:
        """Allocate chunks with this much room; `besides_bytes` are charged with them, to another account."""
        cdef int64_t margin_bytes = sealing_margin(self._context.codec, room_bytes + chunk_bytes)
        cdef kb_chunk *chunks = self._context.memory.take(room_bytes, chunk_bytes,
                                                          margin_bytes + besides_bytes, claim)
        if chunks == NULL:
            return False
        kb_chain_extend(&self.raw.chain, chunks)
        self.raw.charged_bytes += margin_bytes
        return True

    cdef bint is_full(self) noexcept:
        """True for a record beyond batch.size: it stays alone, however well it compresses."""
        cdef int64_t records_bytes = self.raw.contents.records_bytes
        cdef int64_t batch_size = self._context.batch_size
        return kb_estimated_bytes(records_bytes, self.raw.factor) >= batch_size or (
            self.raw.contents.count == 1 and KB_BATCH_HEADER_SIZE + records_bytes > batch_size
        )

    # Sealing and stamping

    def seal(self, *, bint wake=True):
        """Compress the records of a batch that was closed for append, and write its header. Only its sealer
        calls it; the GIL is free while the codec works.

        `wake` notifies the sender of a batch to drain; the sender itself needs no notice.

        Returns
        -------
        bool
            False if the batch has failed meanwhile.

        Raises
        ------
        IllegalStateError
            It is open, or sealed, or another thread seals it.
        """
        cdef bytes packed = None
        cdef BatchState state
        cdef bint mine, is_alive
        kb_lock_acquire(&self.queue.raw.lock)
        try:
            state = self.raw.state
            mine = state == SEALING and not self.raw.sealer_came
            if mine:
                self.raw.sealer_came = True
                self.raw.users += 1
        finally:
            kb_lock_release(&self.queue.raw.lock)
        if not mine:
            if state == DONE:
                return False
            raise IllegalStateError(f"a batch must be closed for append, and not sealed before, got {self!r}")
        try:
            packed = self._compressed()
        finally:  # in any case the batch goes on, and the sender learns of it
            is_alive = self._end_sealing(packed)
            if wake:
                self._context.alarm.wake_for(kb_number_peek(&self.queue.raw.leader),
                                             self.raw.created_ns, 0)
        return is_alive

    cdef int _end_sealing(self, bytes packed) except -1:
        """False if the batch is done already."""
        cdef kb_chunk *chunks = NULL
        cdef int64_t discharged = 0
        cdef bint is_alive
        self._set_body(packed, self._context.codec)
        kb_lock_acquire(&self.queue.raw.lock)
        try:
            self.raw.users -= 1
            if self.raw.users == 0:
                chunks = self._dismissed(&discharged)
            else:
                self.raw.state = SEALED
                chunks = self._replaced(&discharged)
            kb_count_sealed(&self.queue.raw, &self.raw, packed is None and self._context.codec != 0)
            is_alive = self.raw.state != DONE
        finally:
            kb_lock_release(&self.queue.raw.lock)
        self._context.memory.exchange(chunks, discharged)
        if packed is not None:
            self.note_ratio()
        return is_alive

    cdef int note_ratio(self) except -1:
        """Use the compression ratio of a sealed batch for later ones. A tiny batch compresses badly, and
        would distort the estimate for the next, full one.
        """
        cdef int64_t records_bytes = self.raw.contents.records_bytes
        if 4 * records_bytes >= self._context.batch_size:
            self.queue.ratios.update(self._context.codec, <double>self.raw.body_bytes / <double>records_bytes)
        return 0

    cdef bytes _compressed(self):
        """Compress the records. Return None, to send them uncompressed, without a codec or if it fails."""
        cdef kb_memory gathered
        cdef kb_memory packed
        cdef kb_codec_status status
        cdef kb_codec_fault fault
        cdef int64_t size = self.raw.contents.records_bytes
        if not self._context.codec:
            return None
        memset(&gathered, 0, sizeof(gathered))
        memset(&packed, 0, sizeof(packed))
        try:
            if size > GIL_KEPT_CODEC_BYTES:
                with nogil:
                    status = self._compress_into(&gathered, &packed, &fault)
            else:
                status = self._compress_into(&gathered, &packed, &fault)
            if status:
                end_compression(self._context.codec, self._records(&gathered), size, self._context.level,
                                &packed, status, &fault)
            if packed.used > KB_MAX_RECORD_BODY:
                return None
            return PyBytes_FromStringAndSize(<const char *>packed.data, packed.used)
        except Exception:
            return None
        finally:
            give_up(&gathered)
            give_up(&packed)

    cdef kb_codec_status _compress_into(self, kb_memory *gathered, kb_memory *packed,
                                        kb_codec_fault *fault) noexcept nogil:
        """Compress the records, which are gathered first if they are in several chunks."""
        if self.raw.chain.first != self.raw.chain.current:
            if not extend(gathered, self.raw.contents.records_bytes):
                return KB_CODEC_MEMORY
            kb_chain_gather(&self.raw.chain, gathered.data)
        return compress_into(self._context.codec, self._records(gathered), self.raw.contents.records_bytes,
                             self._context.level, packed, fault)

    cdef const uint8_t *_records(self, const kb_memory *gathered) noexcept nogil:
        return gathered.data if gathered.data != NULL else kb_chunk_data(self.raw.chain.first)

    cdef void _set_body(self, bytes packed, int codec) noexcept:
        """Switch to the sealed form: `packed` by `codec`, or the records in the chain."""
        cdef const uint8_t *data = NULL
        self._packed = packed
        self.raw.body_bytes = self.raw.contents.records_bytes
        if packed is not None:
            self.raw.body_bytes = PyBytes_GET_SIZE(packed)
            data = self.raw.packed = <const uint8_t *>PyBytes_AS_STRING(packed)
        if self.raw.body_bytes > GIL_KEPT_BYTES:
            with nogil:
                self.raw.body_crc = self._crc_of_body(data)
        else:
            self.raw.body_crc = self._crc_of_body(data)
        kb_batch_describe(
            &self.raw, <int16_t>(self._context.attributes | (codec if packed is not None else 0)), &CHECKSUM
        )

    cdef uint32_t _crc_of_body(self, const uint8_t *packed) noexcept nogil:
        """NULL: the records in the chain."""
        if packed != NULL:
            return crc32c_extend(0, packed, self.raw.body_bytes)
        return kb_chain_crc(&self.raw.chain, &CHECKSUM)

    cdef kb_chunk *_replaced(self, int64_t *discharged) noexcept:
        """Return the chunks that the body does not need: compressed or never written ones. The lock is held;
        `discharged` is what else to release with them.
        """
        cdef kb_chunk *chunks
        discharged[0] = self.raw.charged_bytes
        self.raw.charged_bytes = 0
        if self._packed is None:
            return kb_chain_cut(&self.raw.chain)
        self.raw.charged_bytes = self.raw.body_bytes
        discharged[0] -= self.raw.body_bytes
        chunks = self.raw.chain.first
        memset(&self.raw.chain, 0, sizeof(self.raw.chain))
        return chunks

    def stamp(self, producer_id, producer_epoch, base_sequence):
        """Write the producer into the header; only the CRC changes with it.

        Raises
        ------
        ValueError
            A producer id without epoch and sequence, or with a transactional batch without one, or out of
            range.
        IllegalStateError
            The batch is not sealed, or is done, or the network still has views of it.
        """
        cdef int64_t new_id = checked_int(producer_id, "producer_id", -1, INT64_MAX)
        cdef int64_t new_epoch = checked_int(producer_epoch, "producer_epoch", -1, INT16_MAX)
        cdef int64_t new_sequence = checked_int(base_sequence, "base_sequence", -1, INT32_MAX)
        cdef bint ours
        if (new_id < 0) != (new_epoch < 0) or (new_id < 0) != (new_sequence < 0):
            raise ValueError(f"producer_id, producer_epoch and base_sequence must all be -1, or none; got "
                             f"{producer_id}, {producer_epoch} and {base_sequence}")
        if new_id < 0 and self._context.attributes & KB_TRANSACTIONAL:
            raise ValueError("producer_id must be 0 or more for a transactional batch, got -1")
        kb_lock_acquire(&self.queue.raw.lock)
        try:
            ours = (self.raw.state == SEALED or self.raw.state == IN_FLIGHT) and self.raw.users == 1
            if ours:
                self.raw.header.producer_id = new_id
                self.raw.header.producer_epoch = <int16_t>new_epoch
                self.raw.header.base_sequence = <int32_t>new_sequence
                kb_batch_write_header(&self.raw, &CHECKSUM)
        finally:
            kb_lock_release(&self.queue.raw.lock)
        if not ours:
            raise IllegalStateError(f"a batch must be sealed and have one user to be stamped, got "
                                    f"{self!r} with {self.raw.users} users")

    # Encoded elsewhere

    cdef void _adopt(self, bytes batch, const kb_batch_header *header, uint32_t body_crc) noexcept:
        """Take a whole batch, whose body stays where it is; a producer owns only some of its header's fields.
        The size of its records is unknown: they count as large as in the batch, and all equal.
        """
        self._packed = batch
        self._body_at = KB_BATCH_HEADER_SIZE
        self.raw.packed = <const uint8_t *>PyBytes_AS_STRING(batch) + KB_BATCH_HEADER_SIZE
        self.raw.body_bytes = PyBytes_GET_SIZE(batch) - KB_BATCH_HEADER_SIZE
        self.raw.body_crc = body_crc
        self.raw.contents.base_timestamp_ms = header.base_timestamp_ms
        self.raw.contents.max_timestamp_ms = header.max_timestamp_ms
        self.raw.contents.records_bytes = self.raw.body_bytes
        self.raw.contents.count = header.count
        self.raw.contents.last_offset_delta = header.last_offset_delta
        self.raw.largest_record_bytes = (self.raw.body_bytes + header.count - 1) // header.count
        self.raw.header = header[0]
        self.raw.header.attributes = <int16_t>(self.raw.header.attributes | self._context.attributes)
        self.raw.header.base_offset = 0
        self.raw.header.leader_epoch = self.raw.header.base_sequence = -1
        self.raw.header.producer_id = -1
        self.raw.header.producer_epoch = -1
        kb_batch_write_header(&self.raw, &CHECKSUM)

    # Users; a caller that requests pieces is one

    def buffers(self, int64_t copied_bytes=0):
        """Return the sealed batch as consecutive memoryviews for `sendmsg`: nothing is copied.

        Each of them keeps the batch's memory until it is released, whatever the batch's state. The whole
        batch, or its header, of at most `copied_bytes` comes as a bytes object instead: a copy.

        Raises
        ------
        IllegalStateError
            The batch is not sealed, or is done.
        """
        if (self.raw.state != SEALED and self.raw.state != IN_FLIGHT) or not self._add_user():
            raise IllegalStateError(f"a batch must be sealed, and not done, to have bytes, got {self!r}")
        try:
            if KB_BATCH_HEADER_SIZE + self.raw.body_bytes <= copied_bytes:
                return [self._joined()]
            return self._pieces(KB_BATCH_HEADER_SIZE <= copied_bytes)
        finally:
            self._release()

    cdef list _pieces(self, bint header_copied):
        """Return header and body as consecutive memoryviews; the header as bytes on request."""
        cdef kb_chunk *chunk = self.raw.chain.first
        cdef list pieces = [
            PyBytes_FromStringAndSize(<char *>self.raw.header_bytes, KB_BATCH_HEADER_SIZE) if header_copied
            else _piece(self, self.raw.header_bytes, KB_BATCH_HEADER_SIZE)
        ]
        if self.raw.packed != NULL:
            pieces.append(_piece(self, <uint8_t *>self.raw.packed, self.raw.body_bytes))
            return pieces
        while chunk != NULL:
            pieces.append(_piece(self, kb_chunk_data(chunk), kb_chunk_used(&self.raw.chain, chunk)))
            chunk = chunk.next if chunk != self.raw.chain.current else NULL
        return pieces

    cdef bytes _joined(self):
        """Return a copy of header and body."""
        cdef kb_chunk *chunk = self.raw.chain.first
        cdef bytes copy = PyBytes_FromStringAndSize(NULL, KB_BATCH_HEADER_SIZE + self.raw.body_bytes)
        cdef uint8_t *end = <uint8_t *>PyBytes_AS_STRING(copy)
        cdef Py_ssize_t size
        memcpy(end, self.raw.header_bytes, KB_BATCH_HEADER_SIZE)
        end += KB_BATCH_HEADER_SIZE
        if self.raw.packed != NULL:
            memcpy(end, self.raw.packed, self.raw.body_bytes)
            return copy
        while chunk != NULL:
            size = kb_chunk_used(&self.raw.chain, chunk)
            memcpy(end, kb_chunk_data(chunk), size)
            end += size
            chunk = chunk.next if chunk != self.raw.chain.current else NULL
        return copy

    cdef bint _add_user(self) noexcept:
        """Add a user. False if the bytes are gone."""
        kb_lock_acquire(&self.queue.raw.lock)
        try:
            if self.raw.users:
                self.raw.users += 1
            return self.raw.users > 0
        finally:
            kb_lock_release(&self.queue.raw.lock)

    cdef void _release(self) noexcept:
        cdef int64_t discharged = 0
        cdef kb_chunk *chunks = NULL
        # the collector takes accumulator, batch and view at once, and has begun with the batch or the
        # accumulator: there is no budget to pay back to, and __dealloc__ frees the rest
        if self.queue is None or self._context is None or self._context.memory is None:
            return
        if self._context.memory.is_forked:  # the lock may be held by a thread of the parent's
            return
        kb_lock_acquire(&self.queue.raw.lock)
        try:
            self.raw.users -= 1
            if self.raw.users == 0:
                chunks = self._dismissed(&discharged)
        finally:
            kb_lock_release(&self.queue.raw.lock)
        if discharged or chunks != NULL:
            self._context.memory.exchange(chunks, discharged)

    cdef kb_chunk *_dismissed(self, int64_t *discharged) noexcept:
        """Take the chunks of a batch without users, with the lock held; release `discharged` bytes too."""
        cdef kb_chunk *chunks = self.raw.chain.first
        if self._packed is not None and self._context.memory.poison and Py_REFCNT(self._packed) == 1:
            memset(PyBytes_AS_STRING(self._packed), POISON, PyBytes_GET_SIZE(self._packed))
        if self.raw.own_packed != NULL and self._context.memory.poison:
            memset(self.raw.own_packed, POISON, self.raw.body_bytes)
        free(self.raw.own_packed)
        self._packed = None
        self.raw.packed = self.raw.own_packed = NULL
        memset(&self.raw.chain, 0, sizeof(self.raw.chain))
        discharged[0] = self.raw.charged_bytes
        self.raw.charged_bytes = 0
        return chunks

    # The end

    def complete(self, int64_t base_offset, int64_t log_append_time_ms=-1):
        """Complete it: record i has `base_offset` + i (-1: the broker reported none).

        Returns
        -------
        bool
            False if it had failed before, which stands.

        Raises
        ------
        IllegalStateError
            It was already completed, or split.
        """
        return self.finish(SUCCEEDED, base_offset, log_append_time_ms, None, None)

    def fail(self, error not None, record_errors=None):
        """Fail it with `error`, or some records with their own (`record_errors`, by index). Return, and
        raise, like `complete`.
        """
        return self.finish(FAILED, -1, -1, error, record_errors)

    cdef bint finish(self, CompletionState outcome, int64_t base_offset, int64_t log_append_time_ms,
                     object error, object record_errors) except -1:
        cdef kb_chunk *chunks = NULL
        cdef int64_t discharged = 0
        if not self.completion.set_outcome(outcome, base_offset, log_append_time_ms, error, record_errors):
            return False
        kb_lock_acquire(&self.queue.raw.lock)
        try:
            if self.raw.is_queued:
                kb_queue_remove(&self.queue.raw, &self.raw)
            self.raw.state = DONE
            self.raw.users -= 1
            if self.raw.users == 0:
                chunks = self._dismissed(&discharged)
        finally:
            kb_lock_release(&self.queue.raw.lock)
        self._context.memory.exchange(chunks, discharged)
        self.completion.announce()
        # last: a flush that begins now waits for the batch, or for its callbacks
        self._context.remove_incomplete(self)
        return True

    # Too large for the broker.

    cdef list split(self):
        """Replace a batch in flight by smaller ones; return them in order."""
        cdef list parts, completions = []
        cdef ProducerBatch part, before = self
        cdef kb_chunk *chunks = NULL
        cdef int64_t discharged = 0, charged = 0
        if self.raw.state != IN_FLIGHT or self.raw.contents.count < 2:
            raise IllegalStateError(f"a batch must be in flight and have two records or more to be split, "
                                    f"got {self!r}")
        parts = _parts_of(self)
        for part in parts:
            completions.append(part.completion)
            charged += part.raw.charged_bytes
        self.completion.split(completions)
        for part in parts:
            self._context.add_incomplete(part, before)
            before = part
        kb_lock_acquire(&self.queue.raw.lock)
        try:
            for part in parts:
                kb_queue_insert(&self.queue.raw, &part.raw, &self._context.filled)
            self.raw.state = DONE
            self.raw.users -= 1
            if self.raw.users == 0:
                chunks = self._dismissed(&discharged)
        finally:
            kb_lock_release(&self.queue.raw.lock)
        self._context.remove_incomplete(self)
        self._context.memory.exchange(chunks, discharged - charged)
        if self._context.codec and not self.raw.is_encoded:
            self.queue.ratios.reset(self._context.codec,
                                     <double>self.raw.body_bytes / <double>self.raw.contents.records_bytes)
        return parts

    # Its state

    def __repr__(self):
        return (f"<ProducerBatch {self.topic}-{self.partition} {_STATES[self.raw.state]}, "
                f"{self.raw.contents.count} records from {self.raw.first_number}, attempts "
                f"{self.raw.attempts}, sequence {self.raw.header.base_sequence}>")

    @property
    def topic(self):
        return self.queue.topic

    @property
    def partition(self):
        return self.queue.partition

    @property
    def state(self):
        """"open", "sealing", "sealed", "in_flight" or "done"."""
        return _STATES[self.raw.state]

    @property
    def created_ns(self):
        return self.raw.created_ns

    @property
    def first_number(self):
        return self.raw.first_number

    @property
    def last_attempt_ns(self):
        return self.raw.last_attempt_ns

    @property
    def drained_ns(self):
        return self.raw.drained_ns

    @property
    def backoff_ns(self):
        return self.raw.backoff_ns

    @property
    def attempts(self):
        return self.raw.attempts

    @property
    def leader_epoch(self):
        return self.raw.leader_epoch

    @property
    def leader_changed_attempt(self):
        return self.raw.leader_changed_attempt

    @property
    def is_split(self):
        return self.raw.is_split

    @property
    def is_encoded(self):
        return self.raw.is_encoded

    @property
    def was_sent(self):
        return self.raw.was_sent

    @was_sent.setter
    def was_sent(self, bint value):
        self.raw.was_sent = value

    @property
    def possibly_persisted(self):
        return self.raw.possibly_persisted

    @possibly_persisted.setter
    def possibly_persisted(self, bint value):
        self.raw.possibly_persisted = value

    @property
    def is_done(self):
        return self.raw.state == DONE

    @property
    def record_count(self):
        return self.raw.contents.count

    @property
    def records_bytes(self):
        """The uncompressed bytes of the records; for a batch that came encoded, as they are in it."""
        return self.raw.contents.records_bytes

    @property
    def largest_record_bytes(self):
        """The uncompressed bytes of the largest record; for a batch that came encoded, the average."""
        return self.raw.largest_record_bytes

    @property
    def size_bytes(self):
        """The bytes of the whole batch; before sealing, the estimate by the ratio of earlier batches."""
        return kb_batch_bytes(&self.raw)

    def record_sent(self, int64_t now_ms):
        """Record its metrics, once it is sent (`RecordAccumulator.note_sensors`)."""
        kb_batch_record_sent(&self.raw, now_ms)

    @property
    def max_timestamp_ms(self):
        return self.raw.contents.max_timestamp_ms

    @property
    def user_count(self):
        """The number of users of its bytes: the way through the queue, the sealer, each view of them."""
        return self.raw.users

    @property
    def leader_changed(self):
        """True if a newer leader is known than at the last attempt."""
        return kb_leader_changed(&self.raw)

    @property
    def has_sequence(self):
        return self.raw.header.base_sequence >= 0

    @property
    def producer_id(self):
        return self.raw.header.producer_id

    @property
    def producer_epoch(self):
        return self.raw.header.producer_epoch

    @property
    def base_sequence(self):
        return self.raw.header.base_sequence

    @property
    def last_sequence(self):
        return last_sequence(self.raw.header.base_sequence, self.raw.contents.last_offset_delta)


cdef object _piece(ProducerBatch batch, uint8_t *data, Py_ssize_t size):
    cdef BatchPiece piece = BatchPiece.__new__(BatchPiece)
    piece._batch = batch
    piece._data = data
    piece._size = size
    return PyMemoryView_FromObject(piece)


@cython.final
@cython.no_gc_clear  # its batch must exist when the last view goes
cdef class BatchPiece:
    """Part of a batch's bytes, read-only; each view of it is a user of the batch."""

    def __init__(self):
        raise TypeError("a BatchPiece comes from ProducerBatch.buffers")

    def __len__(self):
        return self._size

    def __getbuffer__(self, Py_buffer *view, int flags):
        if flags & PyBUF_WRITABLE:
            raise BufferError("the bytes of a batch are read-only")
        if not self._batch._add_user():
            raise BufferError("the batch is done, and its memory is released")
        fill_view(view, self, self._data, &self._size, True)

    def __releasebuffer__(self, Py_buffer *view):
        self._batch._release()


# The parts of a batch that is split.

cdef list _parts_of(ProducerBatch batch):
    cdef OwnedMemory records = _records_of(batch)
    cdef const uint8_t *at = records.data
    cdef const uint8_t *end = at + records.size
    cdef int64_t target_bytes = _target_bytes(batch, records.size)
    cdef int32_t index = 0
    cdef int64_t largest_bytes
    cdef list parts = []
    cdef kb_memory scratch
    cdef kb_memory headers
    cdef kb_open_batch filled
    memset(&scratch, 0, sizeof(scratch))
    memset(&headers, 0, sizeof(headers))
    try:
        while index < batch.raw.contents.count:
            memset(&filled, 0, sizeof(filled))
            scratch.used = 0
            largest_bytes = 0
            at = _fill(batch, at, end, batch.raw.contents.count - index, target_bytes, &scratch, &headers,
                       &filled, &largest_bytes)
            parts.append(_part(batch, index, &scratch, &filled, largest_bytes))
            index += filled.count
    finally:
        give_up(&scratch)
        give_up(&headers)
    return parts


cdef OwnedMemory _records_of(ProducerBatch batch):
    """Return the records in append order. Raise CorruptRecordError if the batch came encoded, and invalid."""
    cdef OwnedMemory records
    cdef int codec = batch.raw.header.attributes & KB_CODEC_MASK
    if batch._body_at:
        return _checked_records(batch, decompress_records(
            codec, batch.raw.packed, batch.raw.body_bytes,
            MAX_DECOMPRESSED_BYTES,
        ))
    if batch.raw.packed != NULL:
        return decompress_records(codec, batch.raw.packed, batch.raw.body_bytes,
                                  batch.raw.contents.records_bytes)
    records = OwnedMemory.new(batch.raw.contents.records_bytes, 1)
    kb_chain_gather(&batch.raw.chain, records.data)
    return records


cdef OwnedMemory _checked_records(ProducerBatch batch, OwnedMemory records):
    cdef int32_t failed_at
    cdef kb_record_error error = kb_records_check(records.data, records.data + records.size,
                                                  batch.raw.contents.count,
                                                  batch.raw.contents.last_offset_delta, &failed_at)
    if error:
        raise record_error(error, failed_at, 0)
    return records


cdef int64_t _target_bytes(ProducerBatch batch, int64_t records_bytes) noexcept:
    """Return the maximum bytes of the records of one part, unless it is a single record."""
    cdef int64_t room = batch._context.batch_size - KB_BATCH_HEADER_SIZE
    if batch._body_at:
        return records_bytes // 2
    if not batch.raw.is_split and batch.raw.contents.records_bytes > room:
        return room
    return max(batch.raw.largest_record_bytes, batch.raw.contents.records_bytes // 2)


cdef const uint8_t *_fill(ProducerBatch batch, const uint8_t *at, const uint8_t *end, int32_t left,
                          int64_t target_bytes, kb_memory *scratch, kb_memory *headers,
                          kb_open_batch *filled, int64_t *largest_bytes) except NULL:
    """Write the records of one part; return the index of the next part's first."""
    cdef kb_record_view view
    cdef kb_record record
    cdef const uint8_t *start = at
    cdef const uint8_t *record_at
    cdef int64_t delta, body, size
    while filled.count < left:
        record_at = at
        if kb_record_get(&at, end, &view):
            raise AssertionError(f"the records of {batch!r} cannot be read back")
        if filled.count and at - start > target_bytes:
            return record_at
        _take_record(batch, &view, headers, &record)
        delta = 0
        if filled.count:  # timestamps that came encoded may be any; readers wrap as this does
            delta = <int64_t>(<uint64_t>record.timestamp_ms - <uint64_t>filled.base_timestamp_ms)
        body = kb_record_body_size(&record, delta, filled.count)
        reserve(scratch, body + 5)
        scratch.used += kb_record_put(scratch.data + scratch.used, &record, body, delta, filled.count) - (
            scratch.data + scratch.used)
        size = body + kb_varint_size(body)
        largest_bytes[0] = max(largest_bytes[0], size)  # as it is here, because its deltas differ from before
        kb_count_record(filled, record.timestamp_ms, size, filled.count)
    return at


cdef int _take_record(ProducerBatch batch, const kb_record_view *view, kb_memory *headers,
                      kb_record *record) except -1:
    cdef const uint8_t *at = view.headers
    cdef int32_t i
    headers.used = 0
    reserve(headers, view.header_count * sizeof(kb_record_header))
    for i in range(view.header_count):
        kb_record_header_get(&at, view.end, &(<kb_record_header *>headers.data)[i])
    record.timestamp_ms = record_timestamp(&batch.raw.header, view.timestamp_delta)
    record.key = view.key
    record.value = view.value
    record.headers = <const kb_record_header *>headers.data
    record.header_count = view.header_count
    return 0


cdef ProducerBatch _part(ProducerBatch batch, int32_t index, const kb_memory *records,
                         const kb_open_batch *filled, int64_t largest_bytes):
    """Return a sealed batch of `records`, which begin with record `index` of the whole."""
    cdef ProducerBatch part = ProducerBatch.new(batch._context, batch.queue, batch.raw.created_ns)
    cdef int codec = batch._context.codec
    cdef int level = batch._context.level
    if batch.raw.is_encoded and batch.raw.header.attributes & KB_CODEC_MASK != codec:
        codec = batch.raw.header.attributes & KB_CODEC_MASK
        level = level_of(codec, None)
    part.raw.first_number = batch.raw.first_number + index
    part.raw.is_split = True
    part.raw.is_encoded = batch.raw.is_encoded
    part.raw.possibly_persisted = batch.raw.possibly_persisted
    part.raw.contents = filled[0]
    part.raw.largest_record_bytes = largest_bytes
    part.completion.record_count = filled.count
    part.raw.header.producer_id = batch.raw.header.producer_id
    part.raw.header.producer_epoch = batch.raw.header.producer_epoch
    if batch.raw.header.base_sequence >= 0:
        part.raw.header.base_sequence = <int32_t>(
            (<int64_t>batch.raw.header.base_sequence + index) & INT32_MAX
        )
    part._set_body(compress_records(codec, records.data, records.used, level), codec)
    part.raw.charged_bytes = part.raw.body_bytes
    part.raw.state = SEALED
    return part
