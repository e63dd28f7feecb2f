"""Encoded batches (`kbatch.encode`, `encode_arrow`), which go to the broker as they are.

Theory of operation. The header and the CRC of a batch are checked, once, and without compression also the
number of its records, by their sizes. The records are neither decompressed nor checked further, which the
broker does. Then RecordAccumulator adds the batch, SEALED, to the queue of its partition, after the open
batch, which is closed. From then on it is a ProducerBatch like others, with a sequence for each record. A
bytes object is kept as it is. Producer id, epoch and sequence go into a copy of the header, and so does the
transactional bit if the producer is transactional.

A batch that was refused, for lack of memory or metadata, is a PendingBatch, which may be tried again.
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
    kb_records_claimed,
)
from kbatch._native.codec.codecs cimport KB_CODEC_COUNT, kb_codec_is_known
from kbatch._native.codec.hashes cimport crc32c_combined, crc32c_extend
from kbatch._native.codec.record_fields cimport as_integer

from kbatch.errors import CorruptRecordError, RecordTooLargeError


# Bits that the batches of a log may have, and those of a producer may not, with their meanings.
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
        The `transaction_count` when it was given to the producer.
    is_checked : bool
        True if its header and CRC are valid.
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
        """From its header; 0 before it is checked."""
        return self.header.count if self.is_checked else 0

    def __repr__(self):
        return f"<PendingBatch to {self.topic!r}-{self.partition!r}>"

    cdef int check(self, int16_t attributes, int64_t max_bytes) except -1:
        """Check the header for a producer of batches with `attributes` and at most `max_bytes`."""
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
                f"is {max_bytes}; raise that, and the topic's max.message.bytes with it, or encode with a "
                f"smaller batch_size"
            )
        self._check_crc()
        self._check_attributes(attributes)
        self._check_count()
        self._check_producer()
        self.is_checked = True
        return 0

    cdef int _check_frame(self) except -1:
        """Check that it is one whole batch."""
        cdef const uint8_t *data = <const uint8_t *>PyBytes_AS_STRING(self.data)
        cdef int64_t size = PyBytes_GET_SIZE(self.data)
        cdef int64_t claimed
        if size < KB_BATCH_HEADER_SIZE:
            raise CorruptRecordError(f"batch_bytes must be a whole record batch, whose header alone takes "
                                     f"{KB_BATCH_HEADER_SIZE} bytes, got {size}")
        kb_batch_header_get(data, &self.header)
        if self.header.magic != 2:
            raise CorruptRecordError(f"magic must be 2, the record batches of Kafka 0.11 and later, got "
                                     f"{self.header.magic}; encode the records with kbatch.encode")
        claimed = KB_LOG_OVERHEAD + <int64_t>self.header.length
        if claimed < KB_BATCH_HEADER_SIZE:
            raise CorruptRecordError(f"length must be {KB_BATCH_HEADER_SIZE - KB_LOG_OVERHEAD} or more, "
                                     f"got {self.header.length}")
        if claimed > size:
            raise CorruptRecordError(f"length is {self.header.length}, which makes {claimed} bytes, but "
                                     f"there are only {size}; the batch is cut off")
        if claimed < size:
            raise ValueError(f"batch_bytes must be exactly one batch; {size - claimed} bytes follow the "
                             f"first, of {claimed}; send each batch by itself (kbatch.decode separates them)")
        return 0

    cdef int _check_crc(self) except -1:
        """Check the CRC; keep that of the body alone."""
        cdef const uint8_t *data = <const uint8_t *>PyBytes_AS_STRING(self.data)
        cdef int64_t body_bytes = PyBytes_GET_SIZE(self.data) - KB_BATCH_HEADER_SIZE
        cdef uint32_t crc = crc32c_extend(0, data + KB_ATTRIBUTES_AT, KB_BATCH_HEADER_SIZE - KB_ATTRIBUTES_AT)
        with nogil:
            self.body_crc = crc32c_extend(0, data + KB_BATCH_HEADER_SIZE, body_bytes)
        crc = crc32c_combined(crc, self.body_crc, body_bytes)
        if crc != self.header.crc:
            raise CorruptRecordError(f"crc is {self.header.crc:#010x}, but that of the data is "
                                     f"{crc:#010x}; the batch was damaged on its way, encode it again")
        return 0

    cdef int _check_attributes(self, int16_t ours) except -1:
        cdef int attributes = self.header.attributes & 0xFFFF
        if not kb_codec_is_known(attributes & KB_CODEC_MASK):
            raise CorruptRecordError(f"attributes is {attributes:#06x}: compression codec "
                                     f"{attributes & KB_CODEC_MASK} is unknown; the known ones are 0 to "
                                     f"{KB_CODEC_COUNT - 1}")
        for bit, meaning in NOT_A_PRODUCERS:
            if attributes & <int>bit:
                raise ValueError(f"attributes is {attributes:#06x}: the batch has {meaning}; {ENCODE_AGAIN}")
        if attributes & ~KNOWN_ATTRIBUTES:
            raise ValueError(f"attributes is {attributes:#06x}, of which "
                             f"{attributes & ~KNOWN_ATTRIBUTES:#06x} has no meaning; {ENCODE_AGAIN}")
        if attributes & KB_TRANSACTIONAL and not ours & KB_TRANSACTIONAL:
            raise ValueError(f"attributes is {attributes:#06x}: the batch is transactional, and the producer "
                             f"is not; encode it without transactional")
        return 0

    cdef int _check_count(self) except -1:
        cdef int32_t count = self.header.count
        cdef int64_t body_bytes = PyBytes_GET_SIZE(self.data) - KB_BATCH_HEADER_SIZE
        if count < 1:
            raise CorruptRecordError(f"count must be 1 or more, got {count}; a batch without records is "
                                     f"not sent")
        if self.header.last_offset_delta != count - 1:
            raise ValueError(f"last_offset_delta must be count - 1, which is {count - 1}, got "
                             f"{self.header.last_offset_delta}, as after compaction; {ENCODE_AGAIN}")
        if self.header.attributes & KB_CODEC_MASK:
            return 0
        if count > body_bytes // KB_MIN_RECORD_BYTES:
            raise CorruptRecordError(f"count is {count}, but {body_bytes} bytes cannot hold so many records")
        return self._check_sizes(body_bytes)

    cdef int _check_sizes(self, int64_t body_bytes) except -1:
        """Check the number of records that are not compressed."""
        cdef const uint8_t *body = <const uint8_t *>PyBytes_AS_STRING(self.data) + KB_BATCH_HEADER_SIZE
        cdef int64_t claimed
        with nogil:
            claimed = kb_records_claimed(body, body + body_bytes)
        if claimed < 0:
            raise CorruptRecordError("the sizes of the records do not add up to that of the batch; encode "
                                     "it again")
        if claimed != self.header.count:
            raise CorruptRecordError(f"count is {self.header.count}, but the batch has {claimed} records; "
                                     f"encode it again")
        return 0

    cdef int _check_producer(self) except -1:
        for field, value in (("producer_id", self.header.producer_id),
                             ("producer_epoch", self.header.producer_epoch),
                             ("base_sequence", self.header.base_sequence)):
            if value != -1:
                raise ValueError(f"{field} must be -1, for this producer to write its own, got {value}; "
                                 f"encode the batch without producer_id, producer_epoch and base_sequence")
        return 0
