from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kbatch._native.batch.alarm cimport SenderAlarm
from kbatch._native.batch.buffer_pool cimport BufferPool, Claim, kb_chain, kb_chunk
from kbatch._native.batch.delivery cimport Completion, CompletionState
from kbatch._native.codec.c cimport (
    kb_batch_header,
    kb_codec_fault,
    kb_codec_status,
    kb_memory,
    kb_open_batch,
    kb_record,
    kb_span,
)
from kbatch._native.codec.estimator cimport TopicRatios
from kbatch._native.io.sensor cimport kb_sensor_group
from kbatch._native.lock cimport kb_lock

cdef extern from "batch_queue.h" nogil:
    ctypedef enum BatchState "kb_batch_state":
        OPEN "KB_BATCH_OPEN"
        SEALING "KB_BATCH_SEALING"      # closed for append; a thread seals it, or will
        SEALED "KB_BATCH_SEALED"        # in its partition's queue, ready to go
        IN_FLIGHT "KB_BATCH_IN_FLIGHT"  # drained; the sender has it
        DONE "KB_BATCH_DONE"

    ctypedef struct kb_partition

    ctypedef struct kb_in_flight:
        void *owner
        kb_in_flight *next
        kb_batch *batch
        int32_t record_count
        int64_t sent_ns
        int64_t counter
        int32_t node_id
        bint is_in_flight
        bint is_ambiguous
        bint is_set_aside
        bint is_proved

    ctypedef struct kb_batch:
        void *owner
        void **waiter
        kb_partition *home
        kb_batch *next
        BatchState state
        bint is_queued
        bint sealer_came
        bint is_split
        bint is_encoded
        bint was_sent
        bint possibly_persisted
        int32_t users
        int32_t attempts
        int32_t leader_epoch
        int32_t leader_changed_attempt
        int64_t first_number
        int64_t created_ns
        int64_t last_attempt_ns
        int64_t drained_ns
        int64_t backoff_ns
        kb_open_batch contents
        kb_chain chain
        double factor
        int64_t charged_bytes
        int64_t state_left_bytes
        int64_t largest_record_bytes
        const uint8_t *packed
        uint8_t *own_packed
        uint32_t body_crc
        int64_t body_bytes
        kb_batch_header header
        uint8_t[61] header_bytes
        kb_in_flight flight

    ctypedef struct kb_checksum:
        uint32_t (*extend)(uint32_t crc, const uint8_t *data, size_t size) noexcept
        uint32_t (*combine)(uint32_t crc_a, uint32_t crc_b, uint64_t size_b) noexcept

    ctypedef struct kb_topic:
        kb_span name
        uint8_t[16] id
        const kb_sensor_group *sensors
        int64_t used_ns

    ctypedef struct kb_partition:
        kb_lock lock
        void *owner
        kb_topic *topic
        int32_t index
        int64_t queue_key
        kb_batch *first
        kb_batch *last
        int32_t length
        bint is_noted
        kb_partition *next_filled
        int64_t previous_bytes
        int64_t next_number
        int64_t appended_bytes
        int64_t sealed_batches
        int64_t sealed_records_bytes
        int64_t sealed_bytes
        int64_t unpacked_batches
        bint has_leader
        int32_t leader
        int32_t leader_epoch
        void *sequences              # kb_sequences; NULL before the first batch is drained
        bint muted
        bint fresh_blocked
        int64_t retry_number

    ctypedef struct kb_filled:
        kb_lock lock

    ctypedef enum Visit "kb_visit":
        PASSED "KB_VISIT_PASSED"
        TAKEN "KB_VISIT_TAKEN"
        CLOSED "KB_VISIT_CLOSED"
        NO_SIZE "KB_VISIT_NO_SIZE"

    void kb_partition_init(kb_partition *partition, void *owner) noexcept
    void kb_queue_insert(kb_partition *partition, kb_batch *batch, kb_filled *filled) noexcept
    void kb_queue_remove(kb_partition *partition, kb_batch *batch) noexcept
    kb_partition *kb_take_filled(kb_filled *filled) noexcept
    bint kb_filled_has_batch(kb_filled *filled) noexcept
    void kb_batch_write_header(kb_batch *batch, const kb_checksum *checksum) noexcept
    void kb_batch_describe(kb_batch *batch, int16_t attributes, const kb_checksum *checksum) noexcept
    uint32_t kb_chain_crc(const kb_chain *chain, const kb_checksum *checksum) noexcept
    void kb_count_sealed(kb_partition *partition, const kb_batch *batch, bint is_unpacked) noexcept
    void kb_batch_close(kb_partition *partition, kb_batch *batch) noexcept
    int64_t kb_batch_bytes(const kb_batch *batch) noexcept
    void kb_batch_record_sent(const kb_batch *batch, int64_t now_ms) noexcept
    bint kb_leader_changed(const kb_batch *batch) noexcept
    void kb_batch_reenqueue(kb_partition *partition, kb_batch *batch, int64_t now_ns, int64_t backoff_ns,
                            kb_filled *filled) noexcept
    int64_t kb_queue_delay_ns(kb_partition *partition, int64_t now_ns, int64_t linger_ns,
                              bint is_hurried) noexcept
    Visit kb_queue_visit(kb_partition *partition, int64_t left_bytes, int64_t now_ns,
                         kb_batch **visited) noexcept

cdef kb_checksum CHECKSUM

# A batch object with its Completion, and the sender's state until it is answered; the steps in which the
# state of records is charged, and the charge of a batch itself with the first of them.
cdef enum:
    BATCH_BYTES = 1280
    STATE_STEP_BYTES = 1024
    OPENING_BYTES = BATCH_BYTES + 512

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
    cdef kb_filled filled

    @staticmethod
    cdef BatchContext new(BufferPool memory, SenderAlarm alarm, int64_t batch_size, int codec, int level,
                          bint transactional)
    cdef void add_incomplete(self, ProducerBatch batch, ProducerBatch older) noexcept
    cdef void remove_incomplete(self, ProducerBatch batch) noexcept
    cdef list incomplete(self)
    cdef int64_t oldest_created_ns(self) noexcept nogil


cdef class PartitionQueue:
    cdef readonly str topic
    cdef readonly int32_t partition
    cdef TopicRatios ratios
    cdef kb_partition raw

    cdef list batches(self)
    cdef void set_gate(self, bint muted, bint fresh_blocked, int64_t retry_number) noexcept


cdef class ProducerBatch:
    cdef readonly Completion completion
    cdef BatchContext _context
    cdef PartitionQueue queue
    # under the lock of _context's list
    cdef ProducerBatch _newer
    cdef ProducerBatch _older
    cdef bint _listed
    # under the lock of the queue
    cdef kb_batch raw
    # set by sealing
    cdef bytes _packed
    cdef int64_t _body_at            # in `_packed`: after its header, if it is a whole batch

    @staticmethod
    cdef ProducerBatch new(BatchContext context, PartitionQueue queue, int64_t now_ns)
    cdef bint open(self, int64_t record_bytes, Claim claim) noexcept
    cdef bint open_encoded(self, bytes batch, const kb_batch_header *header, uint32_t body_crc,
                           Claim claim) noexcept
    cdef void _adopt(self, bytes batch, const kb_batch_header *header, uint32_t body_crc) noexcept
    cdef bint charge_state(self, int64_t size, Claim claim) noexcept nogil
    cdef Room append(self, const kb_record *record, object on_delivery, Claim claim) noexcept
    cdef Room _write(self, const kb_record *record, Claim claim) noexcept
    cdef bint _take_first_chunk(self, int64_t record_bytes, int64_t besides_bytes, Claim claim) noexcept
    cdef bint grow(self, int64_t missing_bytes, Claim claim) noexcept nogil
    cdef int64_t _likely_bytes(self) noexcept nogil
    cdef bint _take_likely(self, int64_t room_bytes, int64_t wanted_bytes, int64_t besides_bytes,
                           Claim claim) noexcept nogil
    cdef bint _take(self, int64_t room_bytes, int64_t chunk_bytes, int64_t besides_bytes,
                    Claim claim) noexcept nogil
    cdef bint is_full(self) noexcept
    cdef void discard(self) noexcept
    cdef bytes _compressed(self)
    cdef kb_codec_status _compress_into(self, kb_memory *gathered, kb_memory *packed,
                                        kb_codec_fault *fault) noexcept nogil
    cdef const uint8_t *_records(self, const kb_memory *gathered) noexcept nogil
    cdef int _end_sealing(self, bytes packed) except -1
    cdef int note_ratio(self) except -1
    cdef void _set_body(self, bytes packed, int codec) noexcept
    cdef uint32_t _crc_of_body(self, const uint8_t *packed) noexcept nogil
    cdef kb_chunk *_replaced(self, int64_t *discharged) noexcept
    cdef list _pieces(self, bint header_copied)
    cdef bytes _joined(self)
    cdef bint _add_user(self) noexcept
    cdef void _release(self) noexcept
    cdef kb_chunk *_dismissed(self, int64_t *discharged) noexcept
    cdef bint finish(self, CompletionState outcome, int64_t base_offset, int64_t log_append_time_ms,
                     object error, object record_errors) except -1
    cdef list split(self)


cdef inline ProducerBatch batch_of(kb_batch *raw):
    """Return the object of a batch in a queue; None for NULL."""
    return None if raw == NULL else <ProducerBatch>raw.owner


cdef class BatchPiece:
    cdef ProducerBatch _batch
    cdef uint8_t *_data
    cdef Py_ssize_t _size
