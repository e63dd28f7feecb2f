"""The bytes of a batch: where they are written, what they become, who uses them.

Theory of operation. While a batch is open, records are written once, into a chain of chunks that grows with
them. Sealing compresses them as one stream, and what they were written to goes back; without a codec they
stay where they are. The header stands apart from the records, and their CRC is kept, so that stamping
producer id, epoch and sequence, as often as need be, touches 61 bytes alone.

A batch that was encoded elsewhere is kept as it came: its own header takes the place of the other in front of
the body.

The bytes have users: one for the batch's way through the queue and to the broker, its sealer, and every
memoryview of them. The last to go returns the memory to the budget. So what the network still writes is never
written over, even when the batch expired meanwhile (KAFKA-19012).

What is charged: chunks by their size, and with each the little by which records that do not compress grow, so
that sealing need not ask for memory; then the sealed bytes in their place. Only the thread that compresses
has, for that moment, the records gathered and their compressed form besides. """

cimport cython
from cpython.buffer cimport PyBUF_WRITABLE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromObject
from cpython.ref cimport Py_REFCNT
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from kbatch._native.batch.batch_owner cimport BatchOwner
from kbatch._native.batch.buffer_pool cimport (
    CHUNK_BYTES,
    KB_CHAIN_DONE,
    KB_CHAIN_FULL,
    KB_CHUNK_HEAD_BYTES,
    POISON,
    Turn,
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
from kbatch._native.codec.c cimport (
    KB_ATTRIBUTES_AT,
    KB_BATCH_HEADER_SIZE,
    KB_LOG_OVERHEAD,
    KB_MAX_RECORD_BODY,
    KB_RATIO_FACTOR,
    kb_batch_header_put,
    kb_estimated_bytes,
    kb_memory,
    kb_record,
)
from kbatch._native.codec.compression cimport compress_records
from kbatch._native.codec.hashes cimport crc32c_combined, crc32c_extend
from kbatch._native.codec.lock cimport kb_lock_acquire, kb_lock_destroy, kb_lock_init, kb_lock_release
from kbatch._native.codec.memory cimport GIL_KEPT_BYTES, give_up, reserve
from kbatch._native.codec.views cimport fill_view

cdef int64_t SMALLEST_CHUNK_BYTES = 512


cdef int64_t _chunk_bytes(int64_t wanted) noexcept nogil:
    """The size of a chunk that is to have `wanted` bytes of room: a power of two, or as large as they get."""
    cdef int64_t size = SMALLEST_CHUNK_BYTES
    while size < CHUNK_BYTES and size < wanted + KB_CHUNK_HEAD_BYTES:
        size *= 2
    return size


cdef int64_t sealing_margin(int codec, int64_t chunks_bytes) noexcept nogil:
    """What is charged with chunks, so that sealing finds its result paid for: what does not compress grows by
    less than this."""
    return chunks_bytes // 64 + 64 if codec else 0


cdef class Partition:
    """What a batch has to know of its partition: the lock that guards all of its batches is here."""

    def __cinit__(self):
        kb_lock_init(&self.lock)

    def __dealloc__(self):
        kb_lock_destroy(&self.lock)


cdef class BatchBytes(ListedBatch):

    def __dealloc__(self):
        # only where a whole accumulator is dropped with what is in it: there is no budget to pay back to
        cdef kb_chunk *chunk = self._chain.first
        cdef kb_chunk *next_chunk
        while chunk != NULL:
            next_chunk = chunk.next
            free(chunk)
            chunk = next_chunk

    cdef void prepare(self, BatchOwner owner, Partition home) noexcept:
        self._owner = owner
        self._home = home
        self._users = 1
        self._factor = home.ratios.estimate(owner.codec) * KB_RATIO_FACTOR if owner.codec else 1.0
        self._header.leader_epoch = self._header.base_sequence = -1
        self._header.producer_id = -1
        self._header.producer_epoch = -1

    # While it is open; the lock is held, or nobody else knows the batch yet.

    cdef bint take_first_chunk(self, int64_t record_bytes, int64_t besides_bytes, Turn turn) noexcept:
        """As large as the partition filled before; for a record beyond batch.size exactly as large as
        that."""
        cdef int64_t wanted = max(record_bytes, min(self._likely_bytes(), self._home.previous_bytes))
        if KB_BATCH_HEADER_SIZE + record_bytes > self._owner.batch_size:
            return self._take(record_bytes, KB_CHUNK_HEAD_BYTES + record_bytes, besides_bytes, turn)
        return self._take_likely(record_bytes, wanted, besides_bytes, turn)

    cdef Room write(self, const kb_record *record, Turn turn) noexcept:
        """Appends the record if the batch has room for it by Kafka's rule, and the memory can be had."""
        cdef int64_t size
        cdef kb_chain_status status
        while True:
            status = kb_chain_append(&self._chain, &self._open, record, self._owner.batch_size, self._factor,
                                     &size)
            if status == KB_CHAIN_DONE:
                break
            if status == KB_CHAIN_FULL:
                return NO_ROOM
            if not self.grow(size - kb_chain_room(&self._chain), turn):
                return NO_MEMORY
        if size > self._largest_record_bytes:
            self._largest_record_bytes = size
        return HAD_ROOM

    cdef bint grow(self, int64_t missing_bytes, Turn turn) noexcept nogil:
        """More chunks: twice as much as before, but no more than the batch is likely to take."""
        cdef int64_t wanted = max(missing_bytes, min(self._likely_bytes(), self._chain.chunk_bytes))
        return self._take_likely(missing_bytes, wanted, 0, turn)

    cdef int64_t _likely_bytes(self) noexcept nogil:
        """Of records that are still to come, if they shrink as those of earlier batches did."""
        return <int64_t>(
            (self._owner.batch_size - KB_BATCH_HEADER_SIZE) / self._factor
        ) - self._open.records_bytes

    cdef bint _take_likely(self, int64_t room_bytes, int64_t wanted_bytes, int64_t besides_bytes,
                           Turn turn) noexcept nogil:
        """As much as is likely to be used; where that cannot be had no more than is needed now, so that a
        record always gets in when all other memory is free."""
        return (self._take(room_bytes, _chunk_bytes(wanted_bytes), besides_bytes, turn)
                or self._take(room_bytes, KB_CHUNK_HEAD_BYTES + room_bytes, besides_bytes, turn))

    cdef bint _take(self, int64_t room_bytes, int64_t chunk_bytes, int64_t besides_bytes,
                    Turn turn) noexcept nogil:
        """Chunks with room for so much; `besides_bytes` are charged along with them, to somebody else."""
        cdef int64_t margin_bytes = sealing_margin(self._owner.codec, room_bytes + chunk_bytes)
        cdef kb_chunk *chunks = self._owner.memory.take(room_bytes, chunk_bytes, margin_bytes + besides_bytes,
                                                        turn)
        if chunks == NULL:
            return False
        kb_chain_extend(&self._chain, chunks)
        self._charged_bytes += margin_bytes
        return True

    cdef bint is_full(self) noexcept:
        """A record beyond batch.size stays alone, however well it compresses."""
        return kb_estimated_bytes(self._open.records_bytes, self._factor) >= self._owner.batch_size or (
            self._open.count == 1
            and KB_BATCH_HEADER_SIZE + self._open.records_bytes > self._owner.batch_size
        )

    # Sealing; by one thread, for which no lock is needed.

    cdef bytes compressed(self):
        """None without a codec, and where the codec fails: the records are then sent as they are."""
        cdef kb_memory gathered
        cdef size_t size = self._open.records_bytes
        cdef const uint8_t *records = kb_chunk_data(self._chain.first)
        cdef bytes packed
        if not self._owner.codec:
            return None
        memset(&gathered, 0, sizeof(gathered))
        try:
            if self._chain.first != self._chain.current:
                reserve(&gathered, size)
                if size > GIL_KEPT_BYTES:
                    with nogil:
                        kb_chain_gather(&self._chain, gathered.data)
                else:
                    kb_chain_gather(&self._chain, gathered.data)
                records = gathered.data
            packed = compress_records(self._owner.codec, records, size, self._owner.level)
        except Exception:
            return None
        finally:
            give_up(&gathered)
        return packed if PyBytes_GET_SIZE(packed) <= KB_MAX_RECORD_BODY else None

    cdef void set_body(self, bytes packed, int codec) noexcept:
        """What the batch consists of from now on: `packed` by `codec`, or the records as the chain has
        them."""
        cdef const uint8_t *data = NULL
        self._packed = packed
        self._body_bytes = self._open.records_bytes
        if packed is not None:
            self._body_bytes = PyBytes_GET_SIZE(packed)
            data = <const uint8_t *>PyBytes_AS_STRING(packed)
        if self._body_bytes > GIL_KEPT_BYTES:
            with nogil:
                self._body_crc = self._crc_of_body(data)
        else:
            self._body_crc = self._crc_of_body(data)
        self._header.length = <int32_t>(KB_BATCH_HEADER_SIZE - KB_LOG_OVERHEAD + self._body_bytes)
        self._header.magic = 2
        self._header.attributes = <int16_t>(self._owner.attributes | (codec if packed is not None else 0))
        self._header.last_offset_delta = self._open.last_offset_delta
        self._header.base_timestamp_ms = self._open.base_timestamp_ms
        self._header.max_timestamp_ms = self._open.max_timestamp_ms
        self._header.count = self._open.count
        self.write_header()

    cdef uint32_t _crc_of_body(self, const uint8_t *packed) noexcept nogil:
        """NULL: it is the records as the chain has them."""
        cdef kb_chunk *chunk = self._chain.first
        cdef uint32_t crc = 0
        if packed != NULL:
            return crc32c_extend(0, packed, self._body_bytes)
        while chunk != NULL:
            crc = crc32c_extend(crc, kb_chunk_data(chunk), kb_chunk_used(&self._chain, chunk))
            chunk = chunk.next if chunk != self._chain.current else NULL
        return crc

    cdef kb_chunk *replaced(self, int64_t *discharged) noexcept:
        """What the body does not need: the chunks that were compressed, or were never written to. With the
        lock held; `discharged` is what else is to be given back for them."""
        cdef kb_chunk *chunks
        discharged[0] = self._charged_bytes
        self._charged_bytes = 0
        if self._packed is None:
            return kb_chain_cut(&self._chain)
        self._charged_bytes = self._body_bytes
        discharged[0] -= self._body_bytes
        chunks = self._chain.first
        memset(&self._chain, 0, sizeof(self._chain))
        return chunks

    cdef void write_header(self) noexcept:
        """The CRC of header and records from that of the records, which are not read again."""
        kb_batch_header_put(self._header_bytes, &self._header)
        self._header.crc = crc32c_combined(
            crc32c_extend(0, self._header_bytes + KB_ATTRIBUTES_AT, KB_BATCH_HEADER_SIZE - KB_ATTRIBUTES_AT),
            self._body_crc, self._body_bytes,
        )
        kb_batch_header_put(self._header_bytes, &self._header)

    # Encoded elsewhere.

    cdef void adopt(self, bytes batch, const kb_batch_header *header, uint32_t body_crc) noexcept:
        """Consists of a whole batch from now on, whose body stays where it is; of its header's fields those
        are its own that a producer writes. How large its records are is not known: they count as large as
        they are in the batch, and each as large as the others."""
        self._packed = batch
        self._body_at = KB_BATCH_HEADER_SIZE
        self._body_bytes = PyBytes_GET_SIZE(batch) - KB_BATCH_HEADER_SIZE
        self._body_crc = body_crc
        self._open.base_timestamp_ms = header.base_timestamp_ms
        self._open.max_timestamp_ms = header.max_timestamp_ms
        self._open.records_bytes = self._body_bytes
        self._open.count = header.count
        self._open.last_offset_delta = header.last_offset_delta
        self._largest_record_bytes = (self._body_bytes + header.count - 1) // header.count
        self._header = header[0]
        self._header.attributes = <int16_t>(self._header.attributes | self._owner.attributes)
        self._header.base_offset = 0
        self._header.leader_epoch = self._header.base_sequence = -1
        self._header.producer_id = -1
        self._header.producer_epoch = -1
        self.write_header()

    # Users. Who asks for pieces is one of them.

    cdef list pieces(self, bint header_copied):
        """Header and body as memoryviews, one behind another; the header, if so wanted, as bytes."""
        cdef kb_chunk *chunk = self._chain.first
        cdef list pieces = [
            PyBytes_FromStringAndSize(<char *>self._header_bytes, KB_BATCH_HEADER_SIZE) if header_copied
            else _piece(self, self._header_bytes, KB_BATCH_HEADER_SIZE)
        ]
        if self._packed is not None:
            pieces.append(_piece(self, <uint8_t *>PyBytes_AS_STRING(self._packed) + self._body_at,
                                 self._body_bytes))
        while chunk != NULL:
            pieces.append(_piece(self, kb_chunk_data(chunk), kb_chunk_used(&self._chain, chunk)))
            chunk = chunk.next
        return pieces

    cdef bytes joined(self):
        """Header and body, copied."""
        cdef kb_chunk *chunk = self._chain.first
        cdef bytes copy = PyBytes_FromStringAndSize(NULL, KB_BATCH_HEADER_SIZE + self._body_bytes)
        cdef uint8_t *end = <uint8_t *>PyBytes_AS_STRING(copy)
        cdef Py_ssize_t size
        memcpy(end, self._header_bytes, KB_BATCH_HEADER_SIZE)
        end += KB_BATCH_HEADER_SIZE
        if self._packed is not None:
            memcpy(end, PyBytes_AS_STRING(self._packed) + self._body_at, self._body_bytes)
        while chunk != NULL:
            size = kb_chunk_used(&self._chain, chunk)
            memcpy(end, kb_chunk_data(chunk), size)
            end += size
            chunk = chunk.next
        return copy

    cdef bint hold(self) noexcept:
        """One user more; False where the bytes are gone."""
        kb_lock_acquire(&self._home.lock)
        try:
            if self._users:
                self._users += 1
            return self._users > 0
        finally:
            kb_lock_release(&self._home.lock)

    cdef void release(self) noexcept:
        cdef int64_t discharged = 0
        cdef kb_chunk *chunks = NULL
        # the collector takes everything at once, accumulator, batch and view, and has begun with the batch or
        # the accumulator: there is no budget to pay back to, and __dealloc__ frees the rest
        if self._home is None or self._owner is None or self._owner.memory is None:
            return
        if self._owner.memory.is_forked:  # the lock may be held by a thread of the parent's
            return
        kb_lock_acquire(&self._home.lock)
        try:
            self._users -= 1
            if self._users == 0:
                chunks = self.dismissed(&discharged)
        finally:
            kb_lock_release(&self._home.lock)
        if discharged or chunks != NULL:
            self._owner.memory.exchange(chunks, discharged)

    cdef kb_chunk *dismissed(self, int64_t *discharged) noexcept:
        """The chunks of a batch that has no users, with the lock held; `discharged` is what is to be given
        back besides."""
        cdef kb_chunk *chunks = self._chain.first
        if self._packed is not None and self._owner.memory.poison and Py_REFCNT(self._packed) == 1:
            memset(PyBytes_AS_STRING(self._packed), POISON, PyBytes_GET_SIZE(self._packed))
        self._packed = None
        memset(&self._chain, 0, sizeof(self._chain))
        discharged[0] = self._charged_bytes
        self._charged_bytes = 0
        return chunks


cdef object _piece(BatchBytes batch, uint8_t *data, Py_ssize_t size):
    cdef BatchPiece piece = BatchPiece.__new__(BatchPiece)
    piece._batch = batch
    piece._data = data
    piece._size = size
    return PyMemoryView_FromObject(piece)


@cython.final
@cython.no_gc_clear  # its batch must be there when the last view goes
cdef class BatchPiece:
    """Part of a batch's bytes, read-only; whoever has a view of it is a user of the batch."""

    def __init__(self):
        raise TypeError("a BatchPiece comes from ProducerBatch.buffers")

    def __len__(self):
        return self._size

    def __getbuffer__(self, Py_buffer *view, int flags):
        if flags & PyBUF_WRITABLE:
            raise BufferError("the bytes of a batch are read-only")
        if not self._batch.hold():
            raise BufferError("the batch is done, and its memory has gone back")
        fill_view(view, self, self._data, &self._size, True)

    def __releasebuffer__(self, Py_buffer *view):
        self._batch.release()
