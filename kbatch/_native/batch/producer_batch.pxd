from libc.stdint cimport int32_t, int64_t, uint32_t

from kbatch._native.batch.batch_bytes cimport BatchBytes, Partition, Room
from kbatch._native.batch.batch_owner cimport BatchOwner
from kbatch._native.batch.buffer_pool cimport Turn
from kbatch._native.batch.delivery cimport Completion, Outcome
from kbatch._native.codec.c cimport kb_batch_header, kb_record

# A batch object with its Completion, and what the sender knows of it until it is answered; the steps in which
# the state of records is charged, and what a batch is charged with for itself and the first of them.
cdef enum:
    BATCH_BYTES = 1280
    STATE_STEP_BYTES = 1024
    OPENING_BYTES = BATCH_BYTES + 512

cdef enum BatchState:
    OPEN
    SEALING         # closed for append; somebody seals it, or is to
    SEALED          # in its partition's queue, ready to go
    IN_FLIGHT       # drained; the sender has it
    DONE


cdef class PartitionQueue(Partition):
    cdef readonly int64_t place      # among all queues, by topic and partition
    cdef bint has_leader             # the sender's: `leader` says what the cluster's view does
    # all under lock
    cdef bint is_noted               # the sender has it among those with batches, or was told of it
    cdef ProducerBatch first
    cdef ProducerBatch last
    cdef int32_t length
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
    cdef bint stays_noted(self) noexcept
    cdef bint gate_is_open(self, ProducerBatch head) noexcept
    cdef void set_gate(self, bint muted, bint fresh_blocked, int64_t retry_number) noexcept


cdef class ProducerBatch(BatchBytes):
    cdef readonly Completion completion
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
    cdef PartitionQueue _queue
    # under the lock of _queue
    cdef ProducerBatch _next
    cdef ProducerBatch _previous
    cdef bint _queued
    cdef BatchState _state
    cdef bint _sealer_came
    cdef int64_t _state_left_bytes

    @staticmethod
    cdef ProducerBatch new(BatchOwner owner, PartitionQueue queue, int64_t now_ns)
    cdef bint open(self, int64_t record_bytes, Turn turn) noexcept
    cdef bint open_encoded(self, bytes batch, const kb_batch_header *header, uint32_t body_crc,
                           Turn turn) noexcept
    cdef bint charge_state(self, int64_t size, Turn turn) noexcept nogil
    cdef Room append(self, const kb_record *record, object on_delivery, Turn turn) noexcept
    cdef void close(self) noexcept nogil
    cdef void discard(self) noexcept
    cdef int _end_sealing(self, bytes packed) except -1
    cdef bint _finish(self, Outcome outcome, int64_t base_offset, int64_t log_append_time_ms, object error,
                      object record_errors) except -1
    cdef void reenqueue(self, int64_t now_ns, int64_t backoff_ns) noexcept
    cdef void notice_leader_epoch(self) noexcept
    cdef bint leader_changed_since_last_attempt(self) noexcept
    cdef int64_t backoff_left_ns(self, int64_t now_ns) noexcept
    cdef int64_t estimated_bytes(self) noexcept nogil
