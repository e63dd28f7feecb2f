from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t

from kbatch._native.batch.alarm cimport SenderAlarm
from kbatch._native.batch.buffer_pool cimport BufferPool, Turn, kb_chain, kb_chunk
from kbatch._native.batch.delivery cimport Completion, CompletionState
from kbatch._native.codec.c cimport (
    kb_batch_header,
    kb_codec_fault,
    kb_codec_status,
    kb_memory,
    kb_open_batch,
    kb_record,
)
from kbatch._native.codec.estimator cimport TopicRatios
from kbatch._native.codec.lock cimport kb_lock

# A batch object with its Completion, and the sender's state until it is answered; the steps in which the
# state of records is charged, and the charge of a batch itself with the first of them.
cdef enum:
    BATCH_BYTES = 1280
    STATE_STEP_BYTES = 1024
    OPENING_BYTES = BATCH_BYTES + 512

cdef enum BatchState:
    OPEN
    SEALING         # closed for append; a thread seals it, or will
    SEALED          # in its partition's queue, ready to go
    IN_FLIGHT       # drained; the sender has it
    DONE

cdef enum Room:
    HAD_ROOM
    NO_ROOM         # the batch is full for this record
    NO_MEMORY


cdef int64_t sealing_margin(int codec, int64_t chunks_bytes) noexcept nogil


cdef class BatchContext:
    cdef BufferPool memory
    cdef SenderAlarm alarm
    cdef int64_t batch_size
    cdef int codec
    cdef int level
    cdef int16_t attributes
    cdef readonly int64_t incomplete_count
    # under _incomplete_lock
    cdef kb_lock _incomplete_lock
    cdef ProducerBatch _oldest
    cdef ProducerBatch _newest
    # under _filled_lock
    cdef kb_lock _filled_lock
    cdef list filled                 # queues that were empty, and are not

    @staticmethod
    cdef BatchContext new(BufferPool memory, SenderAlarm alarm, int64_t batch_size, int codec, int level,
                          bint transactional)
    cdef void add_incomplete(self, ProducerBatch batch, ProducerBatch older) noexcept
    cdef void remove_incomplete(self, ProducerBatch batch) noexcept
    cdef list incomplete(self)
    cdef int64_t oldest_created_ns(self) noexcept
    cdef void note_filled(self, PartitionQueue queue) noexcept
    cdef list take_filled(self)


cdef class PartitionQueue:
    cdef readonly str topic
    cdef readonly int32_t partition
    cdef readonly int64_t place      # among all queues, by topic and partition
    cdef TopicRatios ratios
    cdef bint has_leader             # the sender's: `leader` says what the cluster's view does
    cdef kb_lock lock                # guards all batches of the partition, too
    # all under lock
    cdef bint is_noted               # the sender has it among those with batches, or will get it
    cdef ProducerBatch first
    cdef ProducerBatch last
    cdef int32_t length
    cdef int64_t previous_bytes      # of records in the batch that was closed last
    cdef int64_t next_number
    cdef int64_t appended_bytes
    cdef int64_t sealed_batches
    cdef int64_t sealed_records_bytes
    cdef int64_t sealed_bytes
    cdef int64_t unpacked_batches
    cdef int32_t leader
    cdef int32_t leader_epoch
    cdef bint muted
    cdef bint fresh_blocked
    cdef int64_t retry_number

    cdef void insert(self, ProducerBatch batch) noexcept
    cdef void remove(self, ProducerBatch batch) noexcept
    cdef list batches(self)
    cdef bint stays_noted(self) noexcept
    cdef bint gate_is_open(self, ProducerBatch head) noexcept
    cdef void set_gate(self, bint muted, bint fresh_blocked, int64_t retry_number) noexcept


cdef class ProducerBatch:
    cdef readonly Completion completion
    cdef readonly int64_t created_ns
    cdef readonly int64_t first_number
    cdef readonly int64_t last_attempt_ns
    cdef readonly int64_t drained_ns
    cdef readonly int64_t backoff_ns
    cdef readonly int32_t attempts
    cdef readonly int32_t leader_epoch
    cdef readonly int32_t leader_changed_attempt
    cdef readonly bint is_split
    cdef readonly bint is_encoded
    cdef public bint was_sent
    cdef public bint possibly_persisted
    cdef BatchContext _context
    cdef PartitionQueue queue
    # under the lock of _context's list
    cdef ProducerBatch _newer
    cdef ProducerBatch _older
    cdef bint _listed
    # under the lock of _queue
    cdef ProducerBatch _next
    cdef ProducerBatch _previous
    cdef bint is_queued
    cdef BatchState state
    cdef bint _sealer_came
    cdef int32_t _users
    cdef kb_open_batch contents      # how many records it has, how large they are, of which times
    cdef kb_chain chain
    cdef double factor
    cdef int64_t _charged_bytes      # besides its chunks
    cdef int64_t state_left_bytes
    cdef int64_t largest_record_bytes
    # set by sealing
    cdef bytes _packed
    cdef int64_t _body_at            # in `_packed`: after its header, if it is a whole batch
    cdef uint32_t _body_crc
    cdef int64_t body_bytes
    cdef kb_batch_header header
    cdef uint8_t[61] _header_bytes

    @staticmethod
    cdef ProducerBatch new(BatchContext context, PartitionQueue queue, int64_t now_ns)
    cdef bint open(self, int64_t record_bytes, Turn turn) noexcept
    cdef bint open_encoded(self, bytes batch, const kb_batch_header *header, uint32_t body_crc,
                           Turn turn) noexcept
    cdef void _adopt(self, bytes batch, const kb_batch_header *header, uint32_t body_crc) noexcept
    cdef bint charge_state(self, int64_t size, Turn turn) noexcept nogil
    cdef Room append(self, const kb_record *record, object on_delivery, Turn turn) noexcept
    cdef Room _write(self, const kb_record *record, Turn turn) noexcept
    cdef bint _take_first_chunk(self, int64_t record_bytes, int64_t besides_bytes, Turn turn) noexcept
    cdef bint grow(self, int64_t missing_bytes, Turn turn) noexcept nogil
    cdef int64_t _likely_bytes(self) noexcept nogil
    cdef bint _take_likely(self, int64_t room_bytes, int64_t wanted_bytes, int64_t besides_bytes,
                           Turn turn) noexcept nogil
    cdef bint _take(self, int64_t room_bytes, int64_t chunk_bytes, int64_t besides_bytes,
                    Turn turn) noexcept nogil
    cdef bint is_full(self) noexcept
    cdef void close(self) noexcept nogil
    cdef void discard(self) noexcept
    cdef bytes _compressed(self)
    cdef kb_codec_status _compress_into(self, kb_memory *gathered, kb_memory *packed,
                                        kb_codec_fault *fault) noexcept nogil
    cdef const uint8_t *_records(self, const kb_memory *gathered) noexcept nogil
    cdef int _end_sealing(self, bytes packed) except -1
    cdef void _set_body(self, bytes packed, int codec) noexcept
    cdef uint32_t _crc_of_body(self, const uint8_t *packed) noexcept nogil
    cdef kb_chunk *_replaced(self, int64_t *discharged) noexcept
    cdef void _write_header(self) noexcept
    cdef list _pieces(self, bint header_copied)
    cdef bytes _joined(self)
    cdef bint _hold(self) noexcept
    cdef void _release(self) noexcept
    cdef kb_chunk *_dismissed(self, int64_t *discharged) noexcept
    cdef bint finish(self, CompletionState outcome, int64_t base_offset, int64_t log_append_time_ms,
                     object error, object record_errors) except -1
    cdef list split(self)
    cdef void reenqueue(self, int64_t now_ns, int64_t backoff_ns) noexcept
    cdef void notice_leader_epoch(self) noexcept
    cdef bint leader_changed_since_last_attempt(self) noexcept
    cdef int64_t backoff_left_ns(self, int64_t now_ns) noexcept
    cdef int64_t estimated_bytes(self) noexcept nogil


cdef class BatchPiece:
    cdef ProducerBatch _batch
    cdef uint8_t *_data
    cdef Py_ssize_t _size
