"""RecordChunks: the records of many batches as columns, without a Python object per record.

Batches are appended one after another to the buffers of a chunk: records are checked while they are copied,
so each byte is read once. A chunk of CHUNK_BYTES is finished and the next begins. So memory grows with the
actual data, and no column of a chunk comes near the 2 GiB of its 32-bit offsets. All but `take` runs without
the GIL.

The buffers of a chunk are cut from a region. Their sizes are estimates; one that does not suffice gets memory
of its own.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from kbatch._native.arrow.regions cimport (
    Region,
    RegionMemory,
    cut,
    cut_remaining,
    drop_region,
    give_back,
    is_within,
    leave_region,
    take_region,
)
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
from kbatch._native.codec.memory cimport OwnedMemory, grown, reserve, trim

cdef size_t CHUNK_BYTES = 16 << 20
cdef int64_t CHUNK_ROWS = 1 << 20
# A chunk's memory is what its first records let expect, and this much more.
cdef double SLACK = 1.1
cdef size_t LEAST_BYTES = 1024


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

    cdef int begin_batch(self, int64_t count, size_t body, int timestamp_type) except -1 nogil:
        """Begin a new chunk for one more batch if this one is full, or has rows of the other timestamp type
        (-1: types may mix).
        """
        cdef kb_record_columns *columns = &self.chunk.columns
        cdef size_t used = (columns.key.data.used + columns.value.data.used + columns.header_key.data.used
                            + columns.header_value.data.used + self.chunk.views_data.used)
        if columns.row_count and (
            used + body > CHUNK_BYTES
            or max(columns.row_count + count, columns.header_count) > CHUNK_ROWS
            or timestamp_type != self.chunk.timestamp_type
        ):
            self.finish_chunk()
        self.chunk.timestamp_type = timestamp_type
        return 0

    cdef int make_room(self, kb_records_cursor *cursor, int64_t count, int64_t rows_to_come,
                       size_t bytes_to_come) except -1 nogil:
        """Make room for the rows of a batch and, if there is a cursor, for its data. What is to come, with
        this batch, is an estimate: rows, and bytes of records.

        Views of the batch will refer to memory of the caller's, which begins at `cursor.view_base`. If that
        is NULL the records do not last as long: they are copied, and the cursor moves to the copy.
        """
        cdef kb_record_columns *columns = &self.chunk.columns
        cdef int64_t needed = columns.row_count + count
        cdef size_t body = 0 if cursor == NULL else cursor.end - cursor.at
        cdef size_t room = CHUNK_BYTES - min(self.chunk.bodies, CHUNK_BYTES)
        cdef size_t expected = max(body, min(bytes_to_come, room)) if body else 0
        rows_to_come = min(max(columns.row_count + rows_to_come, 2 * columns.row_capacity), CHUNK_ROWS)
        if columns.row_capacity == 0:
            self._begin_memory(cursor, max(needed, rows_to_come, <int64_t>1), expected)
        elif needed > columns.row_capacity:
            self._grow_rows(max(needed, rows_to_come))
        self._reserve_share(&columns.key.data, body, expected)
        self._reserve_share(&columns.value.data, body, expected)
        self.chunk.bodies += body
        if body and columns.as_views:
            self._refer(cursor, body)
        return 0

    cdef int _begin_memory(self, const kb_records_cursor *cursor, int64_t rows,
                           size_t expected) except -1 nogil:
        """Take a region for a new chunk, and cut from it what `rows` and `expected` bytes of records need, if
        they are like the first ones. The last column that is copied gets the rest, until the chunk is
        finished.
        """
        cdef kb_record_columns *columns = &self.chunk.columns
        cdef kb_memory *last = NULL
        cdef kb_records_sample sample
        cdef double scale = 0
        memset(&sample, 0, sizeof(sample))
        if expected:
            sample = kb_sample_records(columns, cursor)
            scale = SLACK * expected / max(sample.all_bytes, <int64_t>1)
        self.chunk.region = take_region(rows * _row_bytes(columns) + <size_t>(scale * (
            sample.key_bytes + sample.value_bytes + sample.header_key_bytes + sample.header_value_bytes
            + 16 * sample.header_count)) + LEAST_BYTES
            + (expected if expected and columns.as_views and cursor.view_base == NULL else 0))
        self._grow_rows(rows)
        if sample.header_count:
            self._grow_headers(<int64_t>(scale * sample.header_count) + 1)
            self._cut(&columns.header_key.data, scale * sample.header_key_bytes)
            self._cut(&columns.header_value.data, scale * sample.header_value_bytes)
        if sample.key_bytes:
            last = &columns.key.data
            self._cut(last, scale * sample.key_bytes)
        if sample.value_bytes:
            last = &columns.value.data
            self._cut(last, 0)
        if expected and columns.as_views and cursor.view_base == NULL:
            last = &self.chunk.views_data
            self._cut(last, 0)
        if last != NULL and last.data != NULL:
            last.capacity += cut_remaining(self.chunk.region)
            self.chunk.last = last.data
        return 0

    cdef void _cut(self, kb_memory *memory, double size) noexcept nogil:
        """Begin a column with memory of the region, if there is room."""
        memory.data = <uint8_t *>cut(self.chunk.region, <size_t>size)
        memory.capacity = <size_t>size if memory.data != NULL else 0

    cdef int _refer(self, kb_records_cursor *cursor, size_t body) except -1 nogil:
        """Give the buffer that views of the batch refer to a number, and copy the records if need be."""
        cdef kb_memory *copies = &self.chunk.views_data
        cdef int *buffer = &self.chunk.given_buffer
        if cursor.view_base == NULL:
            _extend(self.chunk.region, copies, body)
            memcpy(copies.data + copies.used, cursor.at, body)
            buffer = &self.chunk.views_data_buffer
            cursor.view_base = copies.data
            cursor.at = copies.data + copies.used
            cursor.end = cursor.at + body
            copies.used += body
        if buffer[0] < 0:
            buffer[0] = self.chunk.view_buffers
            self.chunk.view_buffers += 1
        cursor.view_buffer = buffer[0]
        return 0

    cdef int append(self, kb_records_cursor *cursor) except -1 nogil:
        """Append the records of a batch for which there is room. Return 1 if one is corrupt; those before it
        are appended.
        """
        cdef kb_record_columns *columns = &self.chunk.columns
        cdef kb_columns_status status = KB_COLUMNS_MEMORY
        cdef kb_record_view record
        cdef int64_t rows = columns.row_count
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

    cdef int _grow_rows(self, int64_t rows) except -1 nogil:
        cdef kb_record_columns *columns = &self.chunk.columns
        cdef Region *region = self.chunk.region
        cdef int64_t old = columns.row_capacity
        if columns.wanted & KB_WANT_OFFSET:
            columns.offsets = <int64_t *>_resized(region, columns.offsets, old, rows, sizeof(int64_t))
        if columns.wanted & KB_WANT_TIMESTAMP:
            columns.timestamps_ms = <int64_t *>_resized(region, columns.timestamps_ms, old, rows,
                                                        sizeof(int64_t))
        if columns.wanted & KB_WANT_LEADER_EPOCH:
            columns.leader_epochs = <int32_t *>_resized(region, columns.leader_epochs, old, rows,
                                                        sizeof(int32_t))
        if columns.wanted & KB_WANT_HEADERS:
            columns.header_offsets = _resized_offsets(region, columns.header_offsets, old, rows)
        if columns.wanted & KB_WANT_KEY:
            _resize_builder(region, &columns.key, old, rows, True, columns.as_views)
        if columns.wanted & KB_WANT_VALUE:
            _resize_builder(region, &columns.value, old, rows, True, columns.as_views)
        columns.row_capacity = rows
        return 0

    cdef int _grow_headers(self, int64_t count) except -1 nogil:
        cdef kb_record_columns *columns = &self.chunk.columns
        _resize_builder(self.chunk.region, &columns.header_key, columns.header_capacity, count, False, False)
        _resize_builder(self.chunk.region, &columns.header_value, columns.header_capacity, count, True, False)
        columns.header_capacity = count
        return 0

    cdef int _reserve_share(self, kb_memory *memory, size_t body, size_t expected) except -1 nogil:
        """Extend a column for the `expected` bytes, if its share of `body` does not fit and data go on as
        before. Growing by doubling copies, and touches fresh memory each time.
        """
        cdef double share
        if memory.used:
            share = SLACK * memory.used / self.chunk.bodies
            if share * body > memory.capacity - memory.used:
                _extend(self.chunk.region, memory, <size_t>min(share * expected, <double>expected))
        return 0

    cdef int _reserve_record(self, const kb_record_view *record) except -1 nogil:
        """Make room for the record that did not fit."""
        cdef kb_record_columns *columns = &self.chunk.columns
        cdef Region *region = self.chunk.region
        cdef int64_t headers = columns.header_count + record.header_count
        if columns.wanted & KB_WANT_KEY and not columns.as_views:
            _extend(region, &columns.key.data, max(record.key.size, <int64_t>0))
        if columns.wanted & KB_WANT_VALUE and not columns.as_views:
            _extend(region, &columns.value.data, max(record.value.size, <int64_t>0))
        if columns.wanted & KB_WANT_HEADERS and record.header_count:
            _extend(region, &columns.header_key.data, record.end - record.headers)
            _extend(region, &columns.header_value.data, record.end - record.headers)
            if headers > columns.header_capacity:
                self._grow_headers(max(headers, 2 * columns.header_capacity))
        return 0

    cdef int finish_chunk(self) except -1 nogil:
        """Begin a new chunk after one that has rows."""
        cdef kb_record_columns *columns = &self.chunk.columns
        cdef uint8_t *end = self.chunk.last
        if columns.row_count == 0:
            return 0
        if columns.wanted & KB_WANT_HEADERS and columns.header_capacity == 0:
            self._grow_headers(0)  # even an empty column has its offsets
        if end != NULL:
            if columns.value.data.data == end:  # it has not outgrown the region
                end += columns.value.data.used
            elif self.chunk.views_data.data == end:
                end += self.chunk.views_data.used
            elif columns.key.data.data == end:
                end += columns.key.data.used
            give_back(self.chunk.region, end)
        leave_region(self.chunk.region)
        reserve(&self._finished, sizeof(Chunk))
        (<Chunk *>(self._finished.data + self._finished.used))[0] = self.chunk
        self._finished.used += sizeof(Chunk)
        self.begin(columns.wanted, columns.as_views)
        return 0

    cdef list take(self, object given):
        """Return all chunks as list of RecordChunk. `given` is the caller's memory that views refer to."""
        cdef list chunks = []
        cdef Chunk *chunk
        cdef size_t i
        self.finish_chunk()
        chunk = <Chunk *>self._finished.data
        for i in range(self._finished.used // sizeof(Chunk)):
            chunks.append(_chunk_object(&chunk[i], given))
            drop_region(chunk[i].region)
            chunk[i].region = NULL
        self._finished.used = 0
        return chunks


cdef size_t _row_bytes(const kb_record_columns *columns) noexcept nogil:
    """Return the bytes that a row takes, or a little more, but for its data."""
    cdef int wanted = columns.wanted
    cdef size_t binary = sizeof(kb_view) + 1 if columns.as_views else sizeof(int32_t) + 1
    return (
        (sizeof(int64_t) if wanted & KB_WANT_OFFSET else 0)
        + (sizeof(int64_t) if wanted & KB_WANT_TIMESTAMP else 0)
        + (sizeof(int32_t) if wanted & KB_WANT_LEADER_EPOCH else 0)
        + (sizeof(int32_t) if wanted & KB_WANT_HEADERS else 0)
        + (binary if wanted & KB_WANT_KEY else 0)
        + (binary if wanted & KB_WANT_VALUE else 0)
    )


cdef void *_resized(Region *region, void *items, int64_t old, int64_t count,
                    size_t item_size) except NULL nogil:
    """Return items with room for `count`, not for `old` as before. The first memory is cut from the region;
    what was cut cannot grow in place.
    """
    cdef void *moved = NULL
    if items == NULL:
        moved = cut(region, count * item_size)
        return moved if moved != NULL else grown(NULL, count * item_size)
    if not is_within(region, items):
        return grown(items, count * item_size)
    moved = grown(NULL, count * item_size)
    return memcpy(moved, items, min(old, count) * item_size)


cdef int32_t *_resized_offsets(Region *region, int32_t *offsets, int64_t old, int64_t rows) except NULL nogil:
    cdef bint first = offsets == NULL
    offsets = <int32_t *>_resized(region, offsets, old + 1, rows + 1, sizeof(int32_t))
    if first:
        offsets[0] = 0
    return offsets


cdef int _resize_builder(Region *region, kb_binary_builder *column, int64_t old, int64_t rows, bint nullable,
                         bint as_views) except -1 nogil:
    """Mark rows as valid until one is found null."""
    cdef size_t old_bytes = (old + 7) // 8 if column.validity != NULL else 0
    cdef size_t bytes = (rows + 7) // 8
    if as_views:
        column.views = <kb_view *>_resized(region, column.views, old, rows, sizeof(kb_view))
    else:
        column.offsets = _resized_offsets(region, column.offsets, old, rows)
    if nullable:
        column.validity = <uint8_t *>_resized(region, column.validity, old_bytes, bytes, 1)
        memset(column.validity + old_bytes, 0xFF, bytes - old_bytes)
    return 0


cdef int _extend(Region *region, kb_memory *memory, size_t extra) except -1 nogil:
    """Make room for `extra` more bytes."""
    cdef kb_memory moved
    if extra > memory.capacity - memory.used and is_within(region, memory.data):
        memset(&moved, 0, sizeof(moved))
        reserve(&moved, max(memory.used + extra, 2 * memory.capacity))
        memcpy(moved.data, memory.data, memory.used)
        moved.used = memory.used
        memory[0] = moved
    return reserve(memory, extra)


cdef void _free_chunk(Chunk *chunk) noexcept nogil:
    cdef kb_record_columns *columns = &chunk.columns
    _free_builder(chunk.region, &columns.key)
    _free_builder(chunk.region, &columns.value)
    _free_builder(chunk.region, &columns.header_key)
    _free_builder(chunk.region, &columns.header_value)
    _free(chunk.region, columns.offsets)
    _free(chunk.region, columns.timestamps_ms)
    _free(chunk.region, columns.leader_epochs)
    _free(chunk.region, columns.header_offsets)
    _free(chunk.region, chunk.views_data.data)
    if chunk.region != NULL:
        drop_region(chunk.region)


cdef void _free_builder(const Region *region, kb_binary_builder *column) noexcept nogil:
    _free(region, column.offsets)
    _free(region, column.views)
    _free(region, column.validity)
    _free(region, column.data.data)


cdef void _free(const Region *region, void *data) noexcept nogil:
    if not is_within(region, data):
        free(data)


cdef RecordChunk _chunk_object(Chunk *chunk, object given):
    """Move the memory of a finished chunk into an object."""
    cdef kb_record_columns *columns = &chunk.columns
    cdef Region *region = chunk.region
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
        buffers[chunk.views_data_buffer] = _taken(region, &chunk.views_data)
    made.offsets = _items(region, <void **>&columns.offsets, rows, capacity, sizeof(int64_t))
    made.timestamps_ms = _items(region, <void **>&columns.timestamps_ms, rows, capacity, sizeof(int64_t))
    made.leader_epochs = _items(region, <void **>&columns.leader_epochs, rows, capacity, sizeof(int32_t))
    made.header_lists = _items(region, <void **>&columns.header_offsets, rows + 1, capacity + 1,
                               sizeof(int32_t))
    made.key = _builder(region, &columns.key, rows, capacity, buffers)
    made.value = _builder(region, &columns.value, rows, capacity, buffers)
    capacity = columns.header_capacity
    made.header_key = _builder(region, &columns.header_key, headers, capacity, buffers)
    made.header_value = _builder(region, &columns.header_value, headers, capacity, buffers)
    return made


cdef object _taken(Region *region, kb_memory *memory):
    """Return the memory as an object, taking it from `memory`."""
    cdef object taken
    if memory.data == NULL:
        reserve(memory, 1)  # pyarrow wants an address even for no bytes
    if is_within(region, memory.data):
        taken = RegionMemory.view(region, memory.data, memory.used)
    else:
        trim(memory)
        taken = OwnedMemory.take(memory.data, memory.used, memory.capacity)
    memset(memory, 0, sizeof(kb_memory))
    return taken


cdef object _items(Region *region, void **items, int64_t count, int64_t capacity, size_t item_size):
    """Return the items as an object, taking them from `items`; None without any."""
    cdef kb_memory memory
    if items[0] == NULL:
        return None
    memory.data = <uint8_t *>items[0]
    memory.used = count * item_size
    memory.capacity = capacity * item_size
    items[0] = NULL
    return _taken(region, &memory)


cdef tuple _builder(Region *region, kb_binary_builder *column, int64_t rows, int64_t capacity, list buffers):
    if column.offsets == NULL and column.views == NULL:
        return None
    validity = _items(region, <void **>&column.validity, (rows + 7) // 8, (capacity + 7) // 8, 1)
    if column.null_count == 0:
        validity = None
    if column.views != NULL:
        views = _items(region, <void **>&column.views, rows, capacity, sizeof(kb_view))
        return (column.null_count, validity, views, *buffers)
    offsets = _items(region, <void **>&column.offsets, rows + 1, capacity + 1, sizeof(int32_t))
    return column.null_count, validity, offsets, _taken(region, &column.data)
