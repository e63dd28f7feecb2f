"""TableDecoder: record batches into columns, without a Python object per record.

Batches are read one after another into the buffers of a chunk: rows are checked while they are copied, so
each byte is read once. A chunk of CHUNK_BYTES is finished, trimmed and added to the result. So memory grows
with the actual data, and no column of a chunk comes near the 2 GiB of its 32-bit offsets.
"""

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport memset

from kbatch._native.arrow.arrow cimport ArrowBatch, ArrowStream, BinaryColumn, kb_column_spans
from kbatch._native.codec.c cimport (
    KB_COLUMNS_DONE,
    KB_COLUMNS_MEMORY,
    KB_LOG_APPEND_TIME,
    KB_LOG_OVERHEAD,
    kb_batch_header,
    kb_binary_builder,
    kb_columns_append,
    kb_columns_status,
    kb_memory,
    kb_record_columns,
    kb_record_view,
    kb_records_cursor,
    kb_span,
)
from kbatch._native.codec.memory cimport OwnedMemory, grown, reserve, trim
from kbatch._native.codec.record_batch cimport (
    Source,
    check_header,
    decompression_limit,
    open_body,
    record_error,
    whole_batch,
)

from kbatch.errors import CorruptRecordError

cdef size_t CHUNK_BYTES = 16 << 20
cdef int64_t CHUNK_ROWS = 1 << 20

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
    cdef kb_record_columns _columns
    cdef size_t _chunk_bodies         # bytes of record bodies in the present chunk
    cdef list _chunks
    cdef kb_memory _batches           # BatchFields
    cdef kb_memory _item_rows         # int64, of each item
    cdef int64_t _rows_before         # in finished chunks
    cdef int64_t _item

    def __init__(self, *, bint check_crc, partial, max_decompressed_bytes):
        if partial not in ("stop", "raise"):
            raise ValueError(f"partial must be 'stop' or 'raise', got {partial!r}")
        self._check_crc = check_crc
        self._raise_partial = partial == "raise"
        self._limit = decompression_limit(max_decompressed_bytes)
        self._chunks = []

    def __dealloc__(self):
        self._free_columns()
        free(self._batches.data)
        free(self._item_rows.data)

    cdef void _free_columns(self) noexcept:
        cdef kb_record_columns *columns = &self._columns
        _free_builder(&columns.key)
        _free_builder(&columns.value)
        _free_builder(&columns.header_key)
        _free_builder(&columns.header_value)
        free(columns.offsets)
        free(columns.timestamps_ms)
        free(columns.header_offsets)

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
        cdef int64_t rows = self._rows_before + self._columns.row_count
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
        (<int64_t *>(self._item_rows.data + self._item_rows.used))[0] = (
            self._rows_before + self._columns.row_count - rows)
        self._item_rows.used += sizeof(int64_t)
        self._item += 1
        return 0

    cdef int _decode_batch(self, const uint8_t *batch, const kb_batch_header *header, size_t left) except -1:
        cdef kb_records_cursor cursor
        cdef kb_record_view record
        cdef kb_columns_status status = KB_COLUMNS_MEMORY
        body = open_body(batch, header, self._limit, &cursor.at, &cursor.end)
        self._note_fields(header)
        cursor.index = 0
        cursor.count = header.count
        cursor.base_offset = header.base_offset
        cursor.log_append_time = header.attributes & KB_LOG_APPEND_TIME != 0
        cursor.timestamp_ms = header.max_timestamp_ms if cursor.log_append_time else header.base_timestamp_ms
        self._reserve_rows(header.count, cursor.end - cursor.at)
        self._reserve_data(cursor.end - cursor.at, left, KB_LOG_OVERHEAD + <size_t>header.length)
        with nogil:
            while True:
                status = kb_columns_append(&self._columns, &cursor, &record)
                if status != KB_COLUMNS_MEMORY:
                    break
                self._reserve_record(&record)
        if status != KB_COLUMNS_DONE:
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

    cdef int _reserve_rows(self, int32_t count, size_t body) except -1:
        """Make room for the rows of one more batch, in a new chunk if this one is full."""
        cdef kb_record_columns *columns = &self._columns
        cdef size_t used = (columns.key.data.used + columns.value.data.used + columns.header_key.data.used
                            + columns.header_value.data.used)
        cdef int64_t capacity = columns.row_count + count
        if columns.row_count and (used + body > CHUNK_BYTES or max(capacity,
            columns.header_count) > CHUNK_ROWS):
            self._finish_chunk()
            capacity = count
        if capacity > columns.row_capacity or columns.offsets == NULL:
            self._grow_rows(max(capacity, min(2 * columns.row_capacity, CHUNK_ROWS), <int64_t>64))
        return 0

    cdef int _grow_rows(self, int64_t capacity) except -1:
        cdef kb_record_columns *columns = &self._columns
        columns.offsets = <int64_t *>grown(columns.offsets, capacity * sizeof(int64_t))
        columns.timestamps_ms = <int64_t *>grown(columns.timestamps_ms, capacity * sizeof(int64_t))
        columns.header_offsets = _grown_offsets(columns.header_offsets, capacity)
        _grow_builder(&columns.key, columns.row_capacity, capacity, True)
        _grow_builder(&columns.value, columns.row_capacity, capacity, True)
        columns.row_capacity = capacity
        return 0

    cdef int _reserve_data(self, size_t body, size_t left, size_t length) except -1:
        """Reserve memory for the rest of the item, after a chunk's first batch, assuming similar data:
        growing by doubling copies, and touches fresh memory each time. `left` and `length`, of the item and
        of this batch, are actual sizes.
        """
        cdef kb_record_columns *columns = &self._columns
        cdef double growth
        if self._chunk_bodies and self._chunk_bodies < body * 4:
            growth = min(<double>left / length * body, <double>CHUNK_BYTES) / self._chunk_bodies * 1.02
            _reserve_share(&columns.key.data, growth)
            _reserve_share(&columns.value.data, growth)
            if columns.row_capacity < columns.row_count * (1 + growth):
                self._grow_rows(min(<int64_t>(columns.row_count * (1 + growth)),
                                    CHUNK_ROWS + columns.row_capacity))
        self._chunk_bodies += body
        return 0

    cdef int _reserve_record(self, const kb_record_view *record) except -1 nogil:
        """Make room for the record that did not fit."""
        cdef kb_record_columns *columns = &self._columns
        cdef int64_t headers = columns.header_count + record.header_count
        reserve(&columns.key.data, max(record.key.size, <int64_t>0))
        reserve(&columns.value.data, max(record.value.size, <int64_t>0))
        if record.header_count:
            reserve(&columns.header_key.data, record.end - record.headers)
            reserve(&columns.header_value.data, record.end - record.headers)
            if headers > columns.header_capacity:
                headers = max(headers, 2 * columns.header_capacity)
                _grow_builder(&columns.header_key, columns.header_capacity, headers, False)
                _grow_builder(&columns.header_value, columns.header_capacity, headers, True)
                columns.header_capacity = headers
        return 0

    cdef int _finish_chunk(self) except -1:
        """Move the current chunk to the result: rows, headers, nulls by column, and the buffers."""
        cdef kb_record_columns *columns = &self._columns
        cdef int64_t rows = columns.row_count, capacity = columns.row_capacity, headers = columns.header_count
        cdef int64_t header_capacity = columns.header_capacity
        offsets, columns.offsets = _owned(columns.offsets, rows, capacity, sizeof(int64_t)), NULL
        timestamps, columns.timestamps_ms = _owned(columns.timestamps_ms, rows, capacity,
                                                   sizeof(int64_t)), NULL
        lists = _owned(columns.header_offsets, rows + 1, capacity + 1, sizeof(int32_t))
        columns.header_offsets = NULL
        if columns.header_capacity == 0:  # even an empty column has its offsets
            _grow_builder(&columns.header_key, 0, 0, False)
            _grow_builder(&columns.header_value, 0, 0, True)
        self._chunks.append((
            rows, headers, offsets, timestamps, lists,
            _take_builder(&columns.key, rows, capacity), _take_builder(&columns.value, rows, capacity),
            _take_builder(&columns.header_key, headers, header_capacity),
            _take_builder(&columns.header_value, headers, header_capacity),
        ))
        self._rows_before += rows
        self._chunk_bodies = 0
        memset(columns, 0, sizeof(kb_record_columns))
        return 0

    def finish(self):
        """Return the decoded data.

        Returns
        -------
        tuple
            (chunks, BatchFields of each batch, int64 number of records of each item). A chunk is (rows,
            headers, offsets, timestamps, header lists, key, value, header key, header value); each of the
            last four is (null count, validity or None, offsets, data).
        """
        if self._columns.row_count:
            self._finish_chunk()
        return self._chunks, _taken(&self._batches), _taken(&self._item_rows)


cdef int _reserve_share(kb_memory *memory, double growth) except -1:
    return reserve(memory, <size_t>(memory.used * growth))


cdef int32_t *_grown_offsets(int32_t *offsets, int64_t rows) except NULL nogil:
    cdef bint first = offsets == NULL
    offsets = <int32_t *>grown(offsets, (rows + 1) * sizeof(int32_t))
    if first:
        offsets[0] = 0
    return offsets


cdef int _grow_builder(kb_binary_builder *column, int64_t old_rows, int64_t rows,
                       bint nullable) except -1 nogil:
    """Mark rows as valid until one is found null."""
    cdef size_t old_bytes = (old_rows + 7) // 8 if column.validity != NULL else 0
    cdef size_t bytes = (rows + 7) // 8
    column.offsets = _grown_offsets(column.offsets, rows)
    if nullable:
        column.validity = <uint8_t *>grown(column.validity, bytes)
        memset(column.validity + old_bytes, 0xFF, bytes - old_bytes)
    return 0


cdef void _free_builder(kb_binary_builder *column) noexcept:
    free(column.offsets)
    free(column.validity)
    free(column.data.data)


cdef OwnedMemory _taken(kb_memory *memory):
    """Return the memory, trimmed, taking it from `memory`."""
    if memory.data == NULL:
        reserve(memory, 1)  # pyarrow wants an address even for no bytes
    trim(memory)
    taken = OwnedMemory.take(memory.data, memory.used, memory.capacity)
    memset(memory, 0, sizeof(kb_memory))
    return taken


cdef OwnedMemory _owned(void *items, int64_t count, int64_t capacity, size_t item_size):
    cdef kb_memory memory
    memory.data = <uint8_t *>items
    memory.used = count * item_size
    memory.capacity = capacity * item_size
    return _taken(&memory)


cdef tuple _take_builder(kb_binary_builder *column, int64_t rows, int64_t capacity):
    validity = None
    if column.null_count:
        validity, column.validity = _owned(column.validity, (rows + 7) // 8, (capacity + 7) // 8, 1), NULL
    offsets, column.offsets = _owned(column.offsets, rows + 1, capacity + 1, sizeof(int32_t)), NULL
    free(column.validity)
    column.validity = NULL
    return column.null_count, validity, offsets, _taken(&column.data)
