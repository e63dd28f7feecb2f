"""TableDecoder: pieces of record batches into columns, with the fields of each batch."""

cimport cython
from libc.stdint cimport INT64_MAX, INT64_MIN, int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport memset

from kbatch._native.arrow.arrow cimport ArrowBatch, ArrowStream, BinaryColumn, kb_column_spans
from kbatch._native.arrow.record_chunks cimport RecordChunks
from kbatch._native.codec.c cimport (
    KB_LOG_APPEND_TIME,
    KB_LOG_OVERHEAD,
    KB_WANT_RECORD,
    kb_batch_header,
    kb_cursor_limit,
    kb_memory,
    kb_records_cursor,
    kb_span,
)
from kbatch._native.codec.memory cimport OwnedMemory, reserve
from kbatch._native.codec.record_batch cimport (
    Source,
    check_header,
    decompression_limit,
    open_body,
    record_error,
    whole_batch,
)

from kbatch.errors import CorruptRecordError

# Fields of a batch, for its records' batch columns; columns.py has them as a numpy type.
cdef struct BatchFields:
    int64_t base_offset
    int64_t producer_id
    int32_t base_sequence
    int32_t record_count
    int16_t producer_epoch
    int16_t attributes
    int32_t unused


@cython.final
cdef class TableDecoder:
    """Call `decode` for any number of items, then `finish`; after an error it is unusable."""

    cdef bint _check_crc, _raise_partial
    cdef size_t _limit
    cdef RecordChunks _chunks
    cdef kb_memory _batches           # BatchFields
    cdef kb_memory _item_rows         # int64, of each item
    cdef int64_t _item

    def __init__(self, *, bint check_crc, partial, max_decompressed_bytes):
        if partial not in ("stop", "raise"):
            raise ValueError(f"partial must be 'stop' or 'raise', got {partial!r}")
        self._check_crc = check_crc
        self._raise_partial = partial == "raise"
        self._limit = decompression_limit(max_decompressed_bytes)
        self._chunks = RecordChunks.__new__(RecordChunks)
        self._chunks.begin(KB_WANT_RECORD, False)

    def __dealloc__(self):
        free(self._batches.data)
        free(self._item_rows.data)

    def decode_bytes(self, data):
        """Decode the batches in one bytes-like object."""
        cdef Source source = Source(data)
        self._decode_item(<const uint8_t *>source.view.buf, source.view.len)

    def decode_array(self, data):
        """Decode the batches in each element of a binary Arrow array; null elements have none."""
        cdef ArrowStream stream = ArrowStream(data)
        cdef BinaryColumn column = BinaryColumn("data")
        cdef ArrowBatch batch
        cdef kb_span span
        cdef int64_t row
        while (batch := stream.next_batch()) is not None:
            column.bind(stream.schema, &batch.array, 0)
            for row in range(batch.array.length):
                if kb_column_spans(&column.column, row, 1, &span, 1) == 0:
                    raise ValueError(f"element {self._item}: its dictionary index or offsets are impossible")
                self._decode_item(span.data, max(span.size, <int64_t>0))

    cdef int _decode_item(self, const uint8_t *data, size_t size) except -1:
        cdef kb_batch_header header
        cdef size_t at = 0
        cdef Py_ssize_t length
        cdef int64_t rows = self._chunks.row_count
        while at < size:
            where = f"batch at byte {at}" if self._item == 0 else f"item {self._item}, batch at byte {at}"
            length = whole_batch(data + at, size - at, &header, where)
            if length == 0:
                if self._raise_partial:
                    raise CorruptRecordError(f"{where} is cut off: {size - at} bytes are left of it")
                break
            check_header(data + at, &header, self._check_crc, where)
            self._decode_batch(data + at, &header, size - at)
            at += length
        reserve(&self._item_rows, sizeof(int64_t))
        (<int64_t *>(self._item_rows.data + self._item_rows.used))[0] = self._chunks.row_count - rows
        self._item_rows.used += sizeof(int64_t)
        self._item += 1
        return 0

    cdef int _decode_batch(self, const uint8_t *batch, const kb_batch_header *header, size_t left) except -1:
        """Decode a batch; `left` is the size of the rest of the item, from which it is estimated."""
        cdef kb_records_cursor cursor
        cdef double batches_left = min(<double>left / (KB_LOG_OVERHEAD + <size_t>header.length), 1e6)
        cdef size_t size
        cdef bint is_corrupt
        memset(&cursor, 0, sizeof(cursor))
        body = open_body(batch, header, self._limit, &cursor.at, &cursor.end)
        size = cursor.end - cursor.at
        self._note_fields(header)
        cursor.count = header.count
        kb_cursor_limit(&cursor, header.base_offset, header.last_offset_delta, INT64_MIN, INT64_MAX)
        cursor.log_append_time = header.attributes & KB_LOG_APPEND_TIME != 0
        cursor.timestamp_ms = header.max_timestamp_ms if cursor.log_append_time else header.base_timestamp_ms
        with nogil:
            self._chunks.begin_batch(header.count, size, -1)
            self._chunks.make_room(&cursor, header.count, <int64_t>(header.count * batches_left),
                                   <size_t>(size * batches_left))
            is_corrupt = self._chunks.append(&cursor)
        if is_corrupt:
            raise record_error(cursor.error, cursor.index, header.base_offset)
        return 0

    cdef int _note_fields(self, const kb_batch_header *header) except -1:
        cdef BatchFields *fields
        reserve(&self._batches, sizeof(BatchFields))
        fields = <BatchFields *>(self._batches.data + self._batches.used)
        memset(fields, 0, sizeof(BatchFields))
        fields.base_offset = header.base_offset
        fields.producer_id = header.producer_id
        fields.base_sequence = header.base_sequence
        fields.record_count = header.count
        fields.producer_epoch = header.producer_epoch
        fields.attributes = header.attributes
        self._batches.used += sizeof(BatchFields)
        return 0

    def finish(self):
        """Return the decoded data.

        Returns
        -------
        tuple
            (list of RecordChunk, BatchFields of each batch, int64 number of records of each item).
        """
        return self._chunks.take(None), _copied(&self._batches), _copied(&self._item_rows)


cdef bytes _copied(kb_memory *memory):
    return (<char *>memory.data)[:memory.used] if memory.used else b""
