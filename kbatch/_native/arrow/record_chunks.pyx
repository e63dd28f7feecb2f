"""RecordChunks: the records of many batches as columns, without a Python object per record.

Batches are appended one after another to the buffers of a chunk: records are checked while they are copied,
so each byte is read once. A chunk of CHUNK_BYTES is finished and the next begins. So memory grows with the
actual data, and no column of a chunk comes near the 2 GiB of its 32-bit offsets. All but `take` runs without
the GIL.
"""

cimport cython
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport memset

from kbatch._native.codec.c cimport (
    KB_COLUMNS_CORRUPT,
    KB_COLUMNS_MEMORY,
    KB_WANT_HEADERS,
    KB_WANT_KEY,
    KB_WANT_LEADER_EPOCH,
    KB_WANT_OFFSET,
    KB_WANT_TIMESTAMP,
    KB_WANT_VALUE,
    kb_binary_builder,
    kb_columns_append,
    kb_columns_append_range,
    kb_columns_status,
    kb_memory,
    kb_record_columns,
    kb_record_view,
    kb_records_cursor,
    kb_records_sample,
    kb_sample_records,
    kb_view,
)
from kbatch._native.codec.memory cimport OwnedMemory, give_up, grown, reserve, trim

cdef size_t CHUNK_BYTES = 16 << 20
cdef int64_t CHUNK_ROWS = 1 << 20


@cython.final
cdef class RecordChunk:
    """The columns of a chunk as buffers; those that were not wanted are None.

    Attributes
    ----------
    row_count, header_count : int
        Rows, and headers of all rows.
    offsets, timestamps_ms : buffer of int64, or None
    leader_epochs : buffer of int32, or None
    key, value : tuple or None
        (null count, validity or None, offsets, data); with `as_views` (null count, validity or None, views,
        buffers that they refer to ...).
    header_lists : buffer of int32, or None
        Row r has the headers header_lists[r] .. header_lists[r + 1].
    header_key, header_value : tuple or None
        (null count, validity or None, offsets, data).
    as_views : bool
    is_log_append_time : bool
        The timestamp type of all rows, if the batches were given by type.
    """

    def __init__(self):
        raise TypeError("a RecordChunk comes from a decoder")


@cython.final
cdef class RecordChunks:
    """Call `begin`; for each batch `begin_batch`, `make_room` and `append`; then `take`."""

    def __cinit__(self):
        self.begin(0, False)

    def __dealloc__(self):
        cdef Chunk *chunk = <Chunk *>self._finished.data
        cdef size_t i
        _free_chunk(&self.chunk)
        for i in range(self._finished.used // sizeof(Chunk)):
            _free_chunk(&chunk[i])
        free(self._finished.data)

    cdef void begin(self, int wanted, bint as_views) noexcept nogil:
        """Begin a chunk with these columns, a mask of KB_WANT_*, and this layout of keys and values."""
        memset(&self.chunk, 0, sizeof(Chunk))
        self.chunk.columns.wanted = wanted
        self.chunk.columns.as_views = as_views
        self.chunk.timestamp_type = self.chunk.given_buffer = self.chunk.views_data_buffer = -1

    cdef int begin_batch(self, int64_t count, size_t body, size_t view_limit,
                         int timestamp_type) except -1 nogil:
        """Begin a new chunk for one more batch if this one is full, or has rows of the other timestamp type
        (-1: types may mix).

        Views of a compressed batch refer to memory of the chunk: the batch is appended to
        `chunk.views_data` after this call. It may take up to `view_limit` bytes; 0 for other batches.
        """
        cdef kb_record_columns *columns = &self.chunk.columns
        cdef size_t used = (columns.key.data.used + columns.value.data.used + columns.header_key.data.used
                            + columns.header_value.data.used + self.chunk.views_data.used)
        if columns.row_count == 0:
            self.chunk.views_data.used = 0
        elif (
            used + body > CHUNK_BYTES
            or max(columns.row_count + count, columns.header_count) > CHUNK_ROWS
            or view_limit > INT32_MAX - self.chunk.views_data.used
            or timestamp_type != self.chunk.timestamp_type
        ):
            self.finish_chunk()
        self.chunk.timestamp_type = timestamp_type
        return 0

    cdef int make_room(self, int64_t count, int64_t rows_to_come) except -1 nogil:
        """Make room for the rows of a batch; `rows_to_come`, with these, is an estimate."""
        cdef kb_record_columns *columns = &self.chunk.columns
        cdef int64_t needed = columns.row_count + count
        if needed > columns.row_capacity or columns.row_capacity == 0:
            rows_to_come = max(columns.row_count + rows_to_come, 2 * columns.row_capacity)
            self._grow_rows(max(needed, min(rows_to_come, CHUNK_ROWS), <int64_t>1))
        return 0

    cdef void refer_to(self, kb_records_cursor *cursor, const void *given) noexcept nogil:
        """Let the views of a batch refer to the memory at `given`, the caller's, or if it is NULL to
        the chunk's `views_data`.
        """
        cdef int *buffer = &self.chunk.given_buffer
        cursor.view_base = <const uint8_t *>given
        if given == NULL:
            buffer = &self.chunk.views_data_buffer
            cursor.view_base = self.chunk.views_data.data
        if buffer[0] < 0:
            buffer[0] = self.chunk.view_buffers
            self.chunk.view_buffers += 1
        cursor.view_buffer = buffer[0]

    cdef int append(self, kb_records_cursor *cursor, size_t bytes_to_come) except -1 nogil:
        """Append the records of a batch for which there is room. Return 1 if one is corrupt; those before it
        are appended. `bytes_to_come`, of records with this batch's, is an estimate.
        """
        cdef kb_record_columns *columns = &self.chunk.columns
        cdef kb_columns_status status = KB_COLUMNS_MEMORY
        cdef kb_record_view record
        cdef int64_t rows = columns.row_count
        if not columns.as_views:
            self._reserve_data(cursor, bytes_to_come)
        self.chunk.bodies += cursor.end - cursor.at
        while True:
            status = kb_columns_append(columns, cursor, &record)
            if status != KB_COLUMNS_MEMORY:
                break
            self._reserve_record(&record)
        self.row_count += columns.row_count - rows
        return status == KB_COLUMNS_CORRUPT

    cdef void append_range(self, int64_t first_offset, int64_t count, int64_t timestamp_ms,
                           int leader_epoch) noexcept nogil:
        """Append rows that are known without their records (kb_columns_append_range)."""
        kb_columns_append_range(&self.chunk.columns, first_offset, count, timestamp_ms, leader_epoch)
        self.row_count += count

    cdef int _grow_rows(self, int64_t capacity) except -1 nogil:
        cdef kb_record_columns *columns = &self.chunk.columns
        cdef int64_t old = columns.row_capacity
        if columns.wanted & KB_WANT_OFFSET:
            columns.offsets = <int64_t *>grown(columns.offsets, capacity * sizeof(int64_t))
        if columns.wanted & KB_WANT_TIMESTAMP:
            columns.timestamps_ms = <int64_t *>grown(columns.timestamps_ms, capacity * sizeof(int64_t))
        if columns.wanted & KB_WANT_LEADER_EPOCH:
            columns.leader_epochs = <int32_t *>grown(columns.leader_epochs, capacity * sizeof(int32_t))
        if columns.wanted & KB_WANT_HEADERS:
            columns.header_offsets = _grown_offsets(columns.header_offsets, capacity)
        if columns.wanted & KB_WANT_KEY:
            _grow_builder(&columns.key, old, capacity, True, columns.as_views)
        if columns.wanted & KB_WANT_VALUE:
            _grow_builder(&columns.value, old, capacity, True, columns.as_views)
        columns.row_capacity = capacity
        return 0

    cdef int _reserve_data(self, kb_records_cursor *cursor, size_t bytes_to_come) except -1 nogil:
        """Reserve memory for what is to come in this chunk, if it lacks, assuming data like those before, or
        like the first records of the chunk: growing by doubling copies, and touches fresh memory each time.
        """
        cdef kb_record_columns *columns = &self.chunk.columns
        cdef size_t body = cursor.end - cursor.at
        cdef size_t room = CHUNK_BYTES - min(self.chunk.bodies, CHUNK_BYTES)
        cdef size_t expected = max(body, min(bytes_to_come, room))
        cdef kb_records_sample sample
        if self.chunk.bodies < body:
            sample = kb_sample_records(cursor.at, cursor.end, cursor.count)
        else:
            sample.key_bytes = columns.key.data.used
            sample.value_bytes = columns.value.data.used
            sample.all_bytes = self.chunk.bodies
        if sample.all_bytes == 0:
            return 0
        if columns.wanted & KB_WANT_KEY:
            _reserve_share(&columns.key.data, <double>sample.key_bytes / sample.all_bytes, body, expected)
        if columns.wanted & KB_WANT_VALUE:
            _reserve_share(&columns.value.data, <double>sample.value_bytes / sample.all_bytes, body, expected)
        return 0

    cdef int _reserve_record(self, const kb_record_view *record) except -1 nogil:
        """Make room for the record that did not fit."""
        cdef kb_record_columns *columns = &self.chunk.columns
        cdef int64_t headers = columns.header_count + record.header_count
        if columns.wanted & KB_WANT_KEY and not columns.as_views:
            reserve(&columns.key.data, max(record.key.size, <int64_t>0))
        if columns.wanted & KB_WANT_VALUE and not columns.as_views:
            reserve(&columns.value.data, max(record.value.size, <int64_t>0))
        if columns.wanted & KB_WANT_HEADERS and record.header_count:
            reserve(&columns.header_key.data, record.end - record.headers)
            reserve(&columns.header_value.data, record.end - record.headers)
            if headers > columns.header_capacity:
                headers = max(headers, 2 * columns.header_capacity)
                _grow_builder(&columns.header_key, columns.header_capacity, headers, False, False)
                _grow_builder(&columns.header_value, columns.header_capacity, headers, True, False)
                columns.header_capacity = headers
        return 0

    cdef int finish_chunk(self) except -1 nogil:
        """Begin a new chunk after one that has rows."""
        cdef kb_record_columns *columns = &self.chunk.columns
        if columns.row_count == 0:
            return 0
        if columns.wanted & KB_WANT_HEADERS and columns.header_capacity == 0:
            # even an empty column has its offsets
            _grow_builder(&columns.header_key, 0, 0, False, False)
            _grow_builder(&columns.header_value, 0, 0, True, False)
        reserve(&self._finished, sizeof(Chunk))
        (<Chunk *>(self._finished.data + self._finished.used))[0] = self.chunk
        self._finished.used += sizeof(Chunk)
        self.begin(columns.wanted, columns.as_views)
        return 0

    cdef list take(self, object given):
        """Return all chunks as list of RecordChunk. `given` is the memory that `refer_to` named."""
        cdef list chunks = []
        cdef Chunk *chunk
        cdef size_t i
        self.finish_chunk()
        chunk = <Chunk *>self._finished.data
        for i in range(self._finished.used // sizeof(Chunk)):
            chunks.append(_chunk_object(&chunk[i], given))
        self._finished.used = 0
        return chunks


cdef int _reserve_share(kb_memory *memory, double share, size_t body, size_t expected) except -1 nogil:
    """Reserve a column's share of the `expected` bytes, if its share of `body` lacks."""
    if share * body > memory.capacity - memory.used:
        reserve(memory, min(<size_t>(share * 1.02 * expected) + 64, expected))
    return 0


cdef int32_t *_grown_offsets(int32_t *offsets, int64_t rows) except NULL nogil:
    cdef bint first = offsets == NULL
    offsets = <int32_t *>grown(offsets, (rows + 1) * sizeof(int32_t))
    if first:
        offsets[0] = 0
    return offsets


cdef int _grow_builder(kb_binary_builder *column, int64_t old_rows, int64_t rows, bint nullable,
                       bint as_views) except -1 nogil:
    """Mark rows as valid until one is found null."""
    cdef size_t old_bytes = (old_rows + 7) // 8 if column.validity != NULL else 0
    cdef size_t bytes = (rows + 7) // 8
    if as_views:
        column.views = <kb_view *>grown(column.views, rows * sizeof(kb_view))
    else:
        column.offsets = _grown_offsets(column.offsets, rows)
    if nullable:
        column.validity = <uint8_t *>grown(column.validity, bytes)
        memset(column.validity + old_bytes, 0xFF, bytes - old_bytes)
    return 0


cdef void _free_chunk(Chunk *chunk) noexcept nogil:
    cdef kb_record_columns *columns = &chunk.columns
    _free_builder(&columns.key)
    _free_builder(&columns.value)
    _free_builder(&columns.header_key)
    _free_builder(&columns.header_value)
    free(columns.offsets)
    free(columns.timestamps_ms)
    free(columns.leader_epochs)
    free(columns.header_offsets)
    give_up(&chunk.views_data)


cdef void _free_builder(kb_binary_builder *column) noexcept nogil:
    free(column.offsets)
    free(column.views)
    free(column.validity)
    give_up(&column.data)


cdef RecordChunk _chunk_object(Chunk *chunk, object given):
    """Move the memory of a finished chunk into an object."""
    cdef kb_record_columns *columns = &chunk.columns
    cdef RecordChunk made = RecordChunk.__new__(RecordChunk)
    cdef int64_t rows = columns.row_count, capacity = columns.row_capacity, headers = columns.header_count
    cdef list buffers = [None] * chunk.view_buffers
    made.row_count = rows
    made.header_count = headers
    made.as_views = columns.as_views
    made.is_log_append_time = chunk.timestamp_type == 1
    if chunk.given_buffer >= 0:
        buffers[chunk.given_buffer] = given
    if chunk.views_data_buffer >= 0:
        buffers[chunk.views_data_buffer] = _taken(&chunk.views_data)
    made.offsets = _owned(<void **>&columns.offsets, rows, capacity, sizeof(int64_t))
    made.timestamps_ms = _owned(<void **>&columns.timestamps_ms, rows, capacity, sizeof(int64_t))
    made.leader_epochs = _owned(<void **>&columns.leader_epochs, rows, capacity, sizeof(int32_t))
    made.header_lists = _owned(<void **>&columns.header_offsets, rows + 1, capacity + 1, sizeof(int32_t))
    made.key = _take_builder(&columns.key, rows, capacity, buffers)
    made.value = _take_builder(&columns.value, rows, capacity, buffers)
    capacity = columns.header_capacity
    made.header_key = _take_builder(&columns.header_key, headers, capacity, buffers)
    made.header_value = _take_builder(&columns.header_value, headers, capacity, buffers)
    return made


cdef OwnedMemory _taken(kb_memory *memory):
    """Return the memory, trimmed, taking it from `memory`."""
    if memory.data == NULL:
        reserve(memory, 1)  # pyarrow wants an address even for no bytes
    trim(memory)
    taken = OwnedMemory.take(memory.data, memory.used, memory.capacity)
    memset(memory, 0, sizeof(kb_memory))
    return taken


cdef OwnedMemory _owned(void **items, int64_t count, int64_t capacity, size_t item_size):
    """Return the items as memory of their own, taking them from `items`; None without any."""
    cdef kb_memory memory
    if items[0] == NULL:
        return None
    memory.data = <uint8_t *>items[0]
    memory.used = count * item_size
    memory.capacity = capacity * item_size
    items[0] = NULL
    return _taken(&memory)


cdef tuple _take_builder(kb_binary_builder *column, int64_t rows, int64_t capacity, list buffers):
    if column.offsets == NULL and column.views == NULL:
        return None
    validity = _owned(<void **>&column.validity, (rows + 7) // 8, (capacity + 7) // 8, 1)
    if column.null_count == 0:
        validity = None
    if column.views != NULL:
        return (column.null_count, validity, _owned(<void **>&column.views, rows, capacity, sizeof(kb_view)),
                *buffers)
    return (column.null_count, validity,
            _owned(<void **>&column.offsets, rows + 1, capacity + 1, sizeof(int32_t)), _taken(&column.data))
