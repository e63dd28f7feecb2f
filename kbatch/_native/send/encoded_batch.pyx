"""Batches that were encoded elsewhere (`kbatch.encode`, `encode_arrow`), and go to the broker as they are.

Theory of operation. The header and the CRC of a batch are checked, once, and where it is not compressed that
it has as many records as it says, by their sizes. More of them is nobody's business here: they are not
decompressed, and what is wrong with them the broker says. Then RecordAccumulator puts it into the queue of
its partition, SEALED, after the batch that is open there, which is closed: from then on it is a ProducerBatch
like others, which takes as many sequences as it has records. Its bytes are kept as they were given, if they
are a bytes object; producer id, epoch and sequence go into a copy of the header, and so does the bit that
makes it part of a transaction, where the producer is transactional.

A batch that was refused, for want of memory or metadata, is a PendingBatch, which may be tried again.
"""

cimport cython
from cpython.buffer cimport PyObject_CheckBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromObject, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t

from kbatch._native.codec.c cimport (
    KB_ATTRIBUTES_AT,
    KB_BATCH_HEADER_SIZE,
    KB_CODEC_MASK,
    KB_CONTROL,
    KB_DELETE_HORIZON,
    KB_LOG_APPEND_TIME,
    KB_LOG_OVERHEAD,
    KB_MIN_RECORD_BYTES,
    KB_TRANSACTIONAL,
    kb_batch_header_get,
    kb_records_told,
)
from kbatch._native.codec.compression cimport codec_by_id
from kbatch._native.codec.hashes cimport crc32c_combined, crc32c_extend
from kbatch._native.codec.record_fields cimport as_integer

from kbatch.errors import CorruptRecordError, RecordTooLargeError


# What the batches of a log may have, and those of a producer may not: the bit, and what it means.
cdef tuple NOT_A_PRODUCERS = (
    (KB_LOG_APPEND_TIME, "timestamps of type LogAppendTime, which are the broker's to set"),
    (KB_CONTROL, "control records, which are the broker's to write"),
    (KB_DELETE_HORIZON, "a delete horizon, which compaction has set"),
)
cdef int KNOWN_ATTRIBUTES = (KB_CODEC_MASK | KB_LOG_APPEND_TIME | KB_TRANSACTIONAL | KB_CONTROL
                             | KB_DELETE_HORIZON)
cdef str ENCODE_AGAIN = "decode its records, and encode them again (kbatch.decode, kbatch.encode)"


@cython.final
cdef class PendingBatch:
    """A batch that `send_batch` was given and the accumulator does not have yet.

    Attributes
    ----------
    topic, partition, on_delivery
        As given.
    transaction : int
        The `transaction_count` at which it was given to the producer.
    is_checked : bool
        Nothing is wrong with it, as far as its header and CRC say.
    """

    def __init__(self):
        raise TypeError("a PendingBatch comes from a send_batch")

    @staticmethod
    cdef PendingBatch new(str topic, object partition, object batch_bytes, object on_delivery):
        cdef PendingBatch batch = PendingBatch.__new__(PendingBatch)
        batch.topic = topic
        batch.partition = partition
        batch.on_delivery = on_delivery
        batch._given = batch_bytes
        return batch

    @property
    def record_count(self):
        """As its header says; 0 before it is checked."""
        return self.header.count if self.is_checked else 0

    def __repr__(self):
        return f"<PendingBatch to {self.topic!r}-{self.partition!r}>"

    cdef int check(self, int16_t attributes, int64_t max_bytes) except -1:
        """Everything that a header says, against what a producer whose batches have `attributes` may send,
        `max_bytes` at a time; raises what is wrong, with which field."""
        self.checked_partition = <int32_t>as_integer(self.partition, "partition", 0, INT32_MAX)
        if self.on_delivery is not None and not callable(self.on_delivery):
            raise TypeError(f"on_delivery must be callable as on_delivery(metadata, error), or None, got "
                            f"{type(self.on_delivery).__name__}")
        if not PyObject_CheckBuffer(self._given):
            raise TypeError(f"batch_bytes must be bytes-like, got {type(self._given).__name__}")
        self.data = self._given if type(self._given) is bytes else PyBytes_FromObject(self._given)
        self._given = None
        self._check_frame()
        if PyBytes_GET_SIZE(self.data) > max_bytes:
            raise RecordTooLargeError(
                f"the batch takes {PyBytes_GET_SIZE(self.data)} bytes, more than max.request.size, which "
                f"is {max_bytes}: raise that, and the topic's max.message.bytes with it, or encode with a "
                f"smaller batch_size"
            )
        self._check_crc()
        self._check_attributes(attributes)
        self._check_count()
        self._check_producer()
        self.is_checked = True
        return 0

    cdef int _check_frame(self) except -1:
        """That it is one whole batch."""
        cdef const uint8_t *data = <const uint8_t *>PyBytes_AS_STRING(self.data)
        cdef int64_t size = PyBytes_GET_SIZE(self.data)
        cdef int64_t told
        if size < KB_BATCH_HEADER_SIZE:
            raise CorruptRecordError(f"batch_bytes must be a whole record batch, whose header alone takes "
                                     f"{KB_BATCH_HEADER_SIZE} bytes; it has {size}")
        kb_batch_header_get(data, &self.header)
        if self.header.magic != 2:
            raise CorruptRecordError(f"magic must be 2, the record batches of Kafka 0.11 and later, got "
                                     f"{self.header.magic}: encode the records with kbatch.encode")
        told = KB_LOG_OVERHEAD + <int64_t>self.header.length
        if told < KB_BATCH_HEADER_SIZE:
            raise CorruptRecordError(f"length must be {KB_BATCH_HEADER_SIZE - KB_LOG_OVERHEAD} or more, "
                                     f"got {self.header.length}")
        if told > size:
            raise CorruptRecordError(f"length is {self.header.length}, which makes {told} bytes, but only "
                                     f"{size} are there: the batch is cut off")
        if told < size:
            raise ValueError(f"batch_bytes must be exactly one batch; {size - told} bytes follow the first, "
                             f"of {told}: send each batch by itself (kbatch.decode tells them apart)")
        return 0

    cdef int _check_crc(self) except -1:
        """That it came as it was made; the CRC of the body by itself is kept."""
        cdef const uint8_t *data = <const uint8_t *>PyBytes_AS_STRING(self.data)
        cdef int64_t body_bytes = PyBytes_GET_SIZE(self.data) - KB_BATCH_HEADER_SIZE
        cdef uint32_t crc = crc32c_extend(0, data + KB_ATTRIBUTES_AT, KB_BATCH_HEADER_SIZE - KB_ATTRIBUTES_AT)
        with nogil:
            self.body_crc = crc32c_extend(0, data + KB_BATCH_HEADER_SIZE, body_bytes)
        crc = crc32c_combined(crc, self.body_crc, body_bytes)
        if crc != self.header.crc:
            raise CorruptRecordError(f"crc is {self.header.crc:#010x}, but that of what is there is "
                                     f"{crc:#010x}: the batch was damaged on its way; make it anew")
        return 0

    cdef int _check_attributes(self, int16_t ours) except -1:
        cdef int attributes = self.header.attributes & 0xFFFF
        if codec_by_id(attributes & KB_CODEC_MASK) == NULL:
            raise CorruptRecordError(f"attributes is {attributes:#06x}: compression codec "
                                     f"{attributes & KB_CODEC_MASK} is unknown; those of 0 to 4 are known")
        for bit, meaning in NOT_A_PRODUCERS:
            if attributes & <int>bit:
                raise ValueError(f"attributes is {attributes:#06x}: the batch has {meaning}; {ENCODE_AGAIN}")
        if attributes & ~KNOWN_ATTRIBUTES:
            raise ValueError(f"attributes is {attributes:#06x}, of which "
                             f"{attributes & ~KNOWN_ATTRIBUTES:#06x} has no meaning; {ENCODE_AGAIN}")
        if attributes & KB_TRANSACTIONAL and not ours & KB_TRANSACTIONAL:
            raise ValueError(f"attributes is {attributes:#06x}: the batch is transactional, and the producer "
                             f"is not: encode it without transactional")
        return 0

    cdef int _check_count(self) except -1:
        cdef int32_t count = self.header.count
        cdef int64_t body_bytes = PyBytes_GET_SIZE(self.data) - KB_BATCH_HEADER_SIZE
        if count < 1:
            raise CorruptRecordError(f"count must be 1 or more, got {count}: a batch without records is "
                                     f"not sent")
        if self.header.last_offset_delta != count - 1:
            raise ValueError(f"last_offset_delta must be count - 1, which is {count - 1}, got "
                             f"{self.header.last_offset_delta}, as after compaction; {ENCODE_AGAIN}")
        if self.header.attributes & KB_CODEC_MASK:
            return 0
        if count > body_bytes // KB_MIN_RECORD_BYTES:
            raise CorruptRecordError(f"count is {count}, but so many records cannot be in {body_bytes} bytes")
        return self._check_sizes(body_bytes)

    cdef int _check_sizes(self, int64_t body_bytes) except -1:
        """Of records that are not compressed."""
        cdef const uint8_t *body = <const uint8_t *>PyBytes_AS_STRING(self.data) + KB_BATCH_HEADER_SIZE
        cdef int64_t told
        with nogil:
            told = kb_records_told(body, body + body_bytes)
        if told < 0:
            raise CorruptRecordError("the sizes of the records do not add up to that of the batch: make it "
                                     "anew")
        if told != self.header.count:
            raise CorruptRecordError(f"count is {self.header.count}, but the batch has {told} records: make "
                                     f"it anew")
        return 0

    cdef int _check_producer(self) except -1:
        for field, value in (("producer_id", self.header.producer_id),
                             ("producer_epoch", self.header.producer_epoch),
                             ("base_sequence", self.header.base_sequence)):
            if value != -1:
                raise ValueError(f"{field} must be -1, for this producer to write its own, got {value}: "
                                 f"encode the batch without producer_id, producer_epoch and base_sequence")
        return 0
