"""FetchedRecords: the records of a partition in an answer to a Fetch, as columns or as objects.

They are read twice. The constructor looks at the headers of batches only: it finds where the next Fetch
begins, so that it can be sent before anything is decompressed. `decode` does the rest, from the checksum to
the columns, and holds the GIL at no time; so several partitions decode in parallel. `take_records` and
`FetchIterator` make objects instead, a few at a time or one by one: many thousands of them would not stay in
the processor's caches until the program has read them.
"""

cimport cython
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from kbatch._native.arrow.record_chunks cimport RecordChunks
from kbatch._native.codec.c cimport (
    KB_ATTRIBUTES_AT,
    KB_BATCH_HEADER_SIZE,
    KB_CODEC_MASK,
    KB_CODEC_MEMORY,
    KB_CODEC_NO_LIBRARY,
    KB_CODEC_OK,
    KB_FETCHED_BATCH,
    KB_FETCHED_CORRUPT,
    KB_FETCHED_END,
    KB_LENGTH_AT,
    KB_LOG_APPEND_TIME,
    KB_LOG_OVERHEAD,
    KB_MIN_RECORD_BYTES,
    KB_RECORD_OK,
    KB_RECORD_OUTSIDE,
    KB_RECORD_TRAILING,
    KB_WANT_HEADERS,
    KB_WANT_KEY,
    KB_WANT_LEADER_EPOCH,
    KB_WANT_OFFSET,
    KB_WANT_TIMESTAMP,
    KB_WANT_VALUE,
    kb_aborted_transaction,
    kb_batch_header,
    kb_codec_fault,
    kb_codec_status,
    kb_cursor_limit,
    kb_fetched,
    kb_fetched_batch,
    kb_fetched_checksum,
    kb_fetched_count_fits,
    kb_fetched_header_suffices,
    kb_fetched_next,
    kb_fetched_scan,
    kb_fetched_scan_all,
    kb_fetched_status,
    kb_load_be32,
    kb_memory,
    kb_record_check_headers,
    kb_record_get,
    kb_record_is_within,
    kb_record_view,
    kb_records_cursor,
)
from kbatch._native.codec.compression cimport decompress_records
from kbatch._native.codec.hashes cimport crc32c_extend
from kbatch._native.codec.libraries cimport decompress_into
from kbatch._native.codec.memory cimport OwnedMemory, give_up, grown, reserve
from kbatch._native.codec.record cimport ConsumerRecord, RecordOrigin, record_origin
from kbatch._native.codec.record_batch cimport (
    Source,
    check_header,
    decompression_limit,
    fill_from_view,
    record_error,
    whole_batch,
)

from kbatch.errors import CorruptRecordError

cdef enum:
    # So few bytes are checked in a microsecond; beside a thread that computes, the GIL comes back after five
    # milliseconds.
    KEEPS_GIL_BYTES = 16 * 1024

# The columns that `decode` makes; a chunk has one timestamp type, so that needs no buffer.
_WANTED = {
    "offset": KB_WANT_OFFSET,
    "timestamp": KB_WANT_TIMESTAMP,
    "timestamp_type": 0,
    "key": KB_WANT_KEY,
    "value": KB_WANT_VALUE,
    "headers": KB_WANT_HEADERS,
    "leader_epoch": KB_WANT_LEADER_EPOCH,
}


@cython.final
cdef class FetchedRecords:
    """The records of one partition in an answer to a Fetch.

    What a reader may see follows org.apache.kafka.clients.consumer.internals.CompletedFetch: no markers, no
    batches of aborted transactions, nothing outside the offsets that were asked for. A batch that is cut off
    at the end is ignored.

    Parameters
    ----------
    records : bytes-like
        The batches, below 2 GiB. They are kept, and must not change.
    topic, partition
        Where they are from; for records and messages.
    topic_id : bytes
        The id of the topic, for records; 16 zero bytes if it is unknown.
    from_offset, to_offset : int
        Records from `from_offset` on and before `to_offset` are wanted.
    aborted : sequence of (producer_id, first_offset), or None
        The aborted transactions that the answer lists; None for read_uncommitted.
    check_crcs : bool
        Whether to check the CRC-32C of each batch when it is decoded (check.crcs).
    max_decompressed_bytes : int
        Maximum decompressed bytes of a batch; at most 2 GiB.
    visible_end : int
        The last stable offset for read_committed: nothing is visible from there on.

    Attributes
    ----------
    topic : str
    topic_id : bytes
    partition, from_offset, to_offset : int
    next_offset : int
        Where the next Fetch begins. Batches without visible records move it too.
    is_past_end : bool
        True if `to_offset` is reached: nothing more is to be fetched.
    last_epoch : int
        The leader epoch of the last batch; -1 if there is none.
    row_bound : int
        The number of visible records at most: compaction may have removed some.
    byte_count : int
        Bytes of the batches that were read, as they are on the wire.
    needed_bytes : int
        If not even the first batch is whole, its size: the partition's maximum must be raised to it. Else 0.
    taken_count : int
        The number of records that were taken as objects, or skipped.
    position : int
        The offset after what `decode` returned, or after the records that were taken so far; `from_offset`
        before.
    fault : CorruptRecordError or None
        Why reading ended before `next_offset`. The headers show some faults at once. Records before a fault
        are returned.
    is_small : bool
        True if reading them takes less time than handing them to another thread.
    is_used_up : bool
        True if all visible records were taken as objects, or those before a fault.

    Raises
    ------
    ValueError
        An offset is negative, or `records` are 2 GiB or more.
    TypeError
        `records` is not bytes-like.
    """

    def __init__(self, records, *, str topic not None, int32_t partition, int64_t from_offset,
                 int64_t to_offset=INT64_MAX, aborted=None, bint check_crcs=True,
                 max_decompressed_bytes=268435456, int64_t visible_end=INT64_MAX,
                 bytes topic_id not None=bytes(16)):
        for name, offset in (("from_offset", from_offset), ("to_offset", to_offset),
                             ("visible_end", visible_end)):
            if offset < 0:
                raise ValueError(f"{name} must not be negative, got {offset}")
        self._source = Source(records)
        if self._source.view.len > INT32_MAX:
            raise ValueError(f"records must be below 2 GiB, got {self._source.view.len} bytes")
        self._check_crcs = check_crcs
        self._limit = decompression_limit(max_decompressed_bytes)
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self._read(records, <const uint8_t *>self._source.view.buf, self._source.view.len, from_offset,
                   to_offset, visible_end, aborted)

    cdef int _read(self, object records, const uint8_t *data, size_t size, int64_t from_offset,
                   int64_t to_offset, int64_t visible_end, object aborted) except -1:
        """Find out what the records are; `data` is their memory, which `_source` keeps."""
        self._begin_at(records, data, size, from_offset, to_offset, visible_end)
        if aborted:
            self._take_aborted(sorted(aborted, key=_first_offset))
        self._scan()
        return 0

    cdef void _begin_at(self, object records, const uint8_t *data, size_t size, int64_t from_offset,
                        int64_t to_offset, int64_t visible_end) noexcept:
        self._records = records
        self.from_offset = self.position = from_offset
        self.to_offset = to_offset
        memset(&self._start, 0, sizeof(kb_fetched))
        self._start.data = data
        self._start.size = size
        self.is_small = size <= KEEPS_GIL_BYTES
        self._start.from_offset = self._start.next_offset = from_offset
        self._start.end_offset = min(to_offset, visible_end)
        self._start.last_epoch = -1

    @cython.critical_section
    cdef object _view(self):
        """Return the bytes of the batches; made of a frame when they are first needed."""
        cdef Py_ssize_t at
        if self._records is None:
            at = self._start.data - <const uint8_t *>self._source.view.buf
            self._records = memoryview(self._source.view.obj)[at:at + <Py_ssize_t>self._start.size]
        return self._records

    def __dealloc__(self):
        _end(&self._taking)
        free(self._producer_ids)
        free(self._aborted)

    cdef int _take_aborted(self, list aborted) except -1:
        """Note the aborted transactions, by first offset, each with the index of its producer."""
        cdef dict indexes
        cdef Py_ssize_t i
        cdef list producer_ids = sorted({producer_id for producer_id, _ in aborted})
        indexes = {producer_id: i for i, producer_id in enumerate(producer_ids)}
        self._producer_ids = <int64_t *>grown(NULL, len(producer_ids) * sizeof(int64_t))
        for i, producer_id in enumerate(producer_ids):
            self._producer_ids[i] = producer_id
        self._aborted = <kb_aborted_transaction *>grown(NULL, len(aborted) * sizeof(kb_aborted_transaction))
        for i, (producer_id, first_offset) in enumerate(aborted):
            self._aborted[i].producer = indexes[producer_id]
            self._aborted[i].first_offset = first_offset
        self._start.producer_ids = self._producer_ids
        self._start.producer_count = len(producer_ids)
        self._start.aborted = self._aborted
        self._start.aborted_count = len(aborted)
        return 0

    cdef int _scan(self) except -1:
        """Look at all headers. Batches without visible rows are checked here: if all are such, they will not
        be decoded.
        """
        cdef Reading reading
        cdef kb_fetched *walk = &reading.walk
        cdef kb_fetched_scan scan
        cdef kb_fetched_checksum checksum = NULL
        if self._check_crcs:
            checksum = crc32c_extend
        self._begin(&reading)
        try:
            if self.is_small:
                scan = kb_fetched_scan_all(walk, &reading.batch, checksum)
            else:
                with nogil:
                    scan = kb_fetched_scan_all(walk, &reading.batch, checksum)
            reading.position = scan.position
            if scan.status == KB_FETCHED_CORRUPT:
                walk.next_offset = reading.position
                reading.fault = HEADER_FAULT
                self.fault = self._error(&reading)
            self.next_offset = walk.next_offset
            self.is_past_end = walk.next_offset >= self.to_offset
            self.last_epoch = walk.last_epoch
            self.row_bound = scan.row_bound
            self.byte_count = walk.at
            if walk.at == 0 and walk.size and scan.status == KB_FETCHED_END and not self.is_past_end:
                self.needed_bytes = self._first_size()
        finally:
            _end(&reading)
        return 0

    cdef int64_t _first_size(self) noexcept:
        """Return the size of the first batch if it is cut off, else 0."""
        cdef int64_t size = KB_BATCH_HEADER_SIZE
        if self._start.size >= KB_LOG_OVERHEAD:
            size = KB_LOG_OVERHEAD + <int64_t><int32_t>kb_load_be32(self._start.data + KB_LENGTH_AT)
        return size if size > <int64_t>self._start.size else 0

    cdef int _begin(self, Reading *reading) except -1:
        """Begin a pass; `_end` must follow."""
        memset(reading, 0, sizeof(Reading))
        reading.walk = self._start
        reading.rows_to_come = self.row_bound
        reading.position = self.from_offset
        if self._start.producer_count:
            reading.walk.is_aborting = <uint8_t *>grown(NULL, self._start.producer_count)
            memset(reading.walk.is_aborting, 0, self._start.producer_count)
        return 0

    cdef bint _next(self, Reading *reading) noexcept nogil:
        """Move to the next batch with visible rows. False at the end, or at a fault."""
        cdef kb_fetched_batch *batch = &reading.batch
        cdef kb_fetched_status status
        while True:
            reading.rows_to_come -= batch.row_bound
            reading.position = reading.walk.next_offset
            status = kb_fetched_next(&reading.walk, batch)
            if status == KB_FETCHED_END:
                reading.position = reading.walk.next_offset
                return False
            if status == KB_FETCHED_CORRUPT or self._is_bad(reading):
                reading.fault = HEADER_FAULT
                return False
            if batch.row_bound:
                return True

    cdef bint _is_bad(self, const Reading *reading) noexcept nogil:
        """True if the checksum of the batch is to be checked, and is wrong."""
        cdef const kb_fetched_batch *batch = &reading.batch
        return self._check_crcs and batch.header.crc != crc32c_extend(
            0, batch.data + KB_ATTRIBUTES_AT, batch.size - KB_ATTRIBUTES_AT)

    cdef bint _is_light(self, const Reading *reading) noexcept nogil:
        """True if the batch is opened in less time than the GIL takes to come back. Few bytes may be many
        decompressed ones.
        """
        return self.is_small and not reading.batch.header.attributes & KB_CODEC_MASK

    cdef bint _open(self, Reading *reading) except -1 nogil:
        """Point the cursor to the batch's records, which are in the scratch if they were compressed. False at
        a fault.
        """
        cdef kb_records_cursor *cursor = &reading.cursor
        cdef kb_batch_header *header = &reading.batch.header
        cdef const uint8_t *data = reading.batch.data + KB_BATCH_HEADER_SIZE
        cdef size_t size = reading.batch.size - KB_BATCH_HEADER_SIZE
        memset(cursor, 0, sizeof(kb_records_cursor))
        if header.attributes & KB_CODEC_MASK:
            reading.scratch.used = 0
            if _decompress(header.attributes & KB_CODEC_MASK, data, size, &reading.scratch, self._limit):
                reading.fault = CODEC_FAULT
                return False
            data = reading.scratch.data
            size = reading.scratch.used
        else:
            cursor.view_base = self._start.data
        if <size_t>header.count > size / KB_MIN_RECORD_BYTES:
            reading.fault = COUNT_FAULT
            return False
        cursor.at = data
        cursor.end = data + size
        cursor.count = header.count
        kb_cursor_limit(cursor, header.base_offset, header.last_offset_delta, reading.walk.from_offset,
                        reading.walk.end_offset - 1)
        cursor.next_offset = reading.position
        cursor.log_append_time = header.attributes & KB_LOG_APPEND_TIME != 0
        cursor.timestamp_ms = header.max_timestamp_ms if cursor.log_append_time else header.base_timestamp_ms
        cursor.leader_epoch = header.leader_epoch
        return True

    def decode(self, columns, str layout not None="copy"):
        """Decode the visible records into columns. The GIL is held for small ones only.

        Parameters
        ----------
        columns : iterable of str
            Of offset, timestamp, timestamp_type, key, value, headers, leader_epoch. Batches are not
            decompressed if their headers say all that is wanted.
        layout : "copy" or "view"
            Whether keys and values are copied together, or stay where they are, in `records` or in
            decompressed memory, with views of them (Arrow's binary_view).

        Returns
        -------
        list of RecordChunk
            In order. A chunk has one timestamp type, about 16 MiB of data at most, or one batch. If a batch
            is corrupt, the records before it; `fault` and `position` say so.
        """
        cdef RecordChunks chunks = RecordChunks.__new__(RecordChunks)
        cdef Reading reading
        if layout not in ("copy", "view"):
            raise ValueError(f"layout must be 'copy' or 'view', got {layout!r}")
        chunks.begin(_wanted_of(columns), layout == "view")
        self._begin(&reading)
        try:
            if self.is_small:
                self._append_small(&reading, chunks)
            else:
                with nogil:
                    while self._next(&reading) and self._append(&reading, chunks):
                        pass
            with cython.critical_section(self):
                self.position = reading.position
                self._note_fault(&reading)
        finally:
            _end(&reading)
        return chunks.take(self._view())

    cdef int _append_small(self, Reading *reading, RecordChunks chunks) except -1:
        """Append the visible rows of small records."""
        cdef bint goes_on = True
        while goes_on and self._next(reading):
            if self._is_light(reading):
                goes_on = self._append(reading, chunks)
            else:
                with nogil:
                    goes_on = self._append(reading, chunks)
        return 0

    cdef bint _append(self, Reading *reading, RecordChunks chunks) except -1 nogil:
        """Append a batch's visible rows to the columns. False at a fault."""
        cdef kb_fetched_batch *batch = &reading.batch
        cdef kb_batch_header *header = &batch.header
        cdef int timestamp_type = header.attributes & KB_LOG_APPEND_TIME != 0
        cdef size_t size
        if kb_fetched_header_suffices(&reading.walk, batch, chunks.chunk.columns.wanted):
            if not kb_fetched_count_fits(batch, self._limit):
                reading.fault = COUNT_FAULT
                return False
            chunks.begin_batch(batch.row_bound, 0, timestamp_type)
            chunks.make_room(NULL, batch.row_bound, reading.rows_to_come, 0)
            chunks.append_range(batch.first_offset, batch.row_bound, header.max_timestamp_ms,
                                header.leader_epoch)
            return True
        if not self._open(reading):
            return False
        size = reading.cursor.end - reading.cursor.at
        chunks.begin_batch(header.count, size, timestamp_type)
        chunks.make_room(&reading.cursor, header.count, reading.rows_to_come, _bytes_to_come(reading, size))
        if chunks.append(&reading.cursor):
            reading.position = reading.cursor.next_offset
            reading.fault = RECORD_FAULT
            return False
        return True

    # As objects

    @property
    def is_used_up(self):
        return self.is_over()

    @cython.critical_section
    cdef bint is_over(self) noexcept:
        return self._stage == ENDED and self._ahead is None

    @cython.critical_section
    cdef object fault_now(self):
        return self.fault

    @cython.critical_section
    cpdef list take_records(self, Py_ssize_t count):
        """Return the next visible records as objects.

        Batches are decompressed one by one, when their first record is taken, without the GIL. The pass is
        independent of `decode`, which reads all records in any case.

        Parameters
        ----------
        count : int
            The number of records at most.

        Returns
        -------
        list of ConsumerRecord
            In order; fewer than `count` only at the end or before a fault, then [].

        Raises
        ------
        ValueError
            `count` is below 1.
        RuntimeError
            Another thread is taking records.
        """
        cdef list records = []
        cdef ConsumerRecord record
        _check_count(count)
        try:
            while len(records) < count and (record := self.next_record()) is not None:
                records.append(record)
                self.leave()
            self._advance(opens=False)  # it finds out whether these were the last
            if self._ahead is None:
                self.position = self._taking.position
        except MemoryError:
            if not records:  # else those are returned, and the next call tries again
                raise
        return records

    @cython.critical_section
    def peek_records(self, Py_ssize_t count):
        """Return what `take_records` would return, without taking it. Its parameters and errors are the same.
        """
        cdef list ahead = self._ahead or []
        _check_count(count)
        try:
            while len(ahead) < count and self._advance(opens=True):
                ahead.append(self._new_record())
                self._pass_record()
        finally:
            self._ahead = ahead or None
        if self._ahead is None:
            self.position = self._taking.position
        return ahead[:count]

    @cython.critical_section
    cpdef bint skip_to(self, int64_t offset) except -1:
        """Pass the records before an offset. True if there is one after them."""
        while self._has_record():
            if self._record_offset() >= offset:
                return True
            self.leave()
        return False

    cdef bint _has_record(self) except -1:
        """True if there is a next record, which is found."""
        if self._ahead is not None or self._stage == READY or self._advance(opens=True):
            return True
        self.position = self._taking.position
        return False

    cdef int64_t _record_offset(self) noexcept:
        """Return the offset of the next record, which was found."""
        cdef ConsumerRecord record
        if self._ahead is None:
            return self._taking.cursor.base_offset + self._taking.view.offset_delta
        record = self._ahead[0]
        return record.offset

    cdef ConsumerRecord next_record(self):
        """Return the next record, which `leave` takes; None at the end or at a fault."""
        if not self._has_record():
            return None
        return self._new_record() if self._ahead is None else self._ahead[0]

    cdef void leave(self) noexcept:
        """Take the record that `next_record` has returned."""
        self.taken_count += 1
        if self._ahead is None:
            self._pass_record()
            self.position = self._taking.position
        else:
            self._leave_ahead()

    cdef void _leave_ahead(self) noexcept:
        cdef ConsumerRecord record = self._ahead.pop(0)
        if self._ahead:
            self.position = record.offset + 1
        else:
            self._ahead = None
            self.position = self._taking.position

    cdef bint _advance(self, bint opens) except -1:
        """Move to the next visible record, unless the pass is at one. False at the end or at a fault, and
        before a batch that is not to be opened.
        """
        cdef Reading *reading = &self._taking
        cdef bint goes_on
        if self._is_busy:
            raise RuntimeError(f"another thread is taking records of {self!r}; take them on one thread")
        self._is_busy = True
        try:
            if self._stage == BEFORE:
                self._begin(reading)
                self._stage = PASSED
            while self._stage != READY and self._stage != ENDED:
                if self._stage == PASSED:
                    if self.is_small:
                        goes_on = self._next(reading)
                    else:
                        with nogil:
                            goes_on = self._next(reading)
                    self._stage = FOUND if goes_on else STOPPED
                elif self._stage == STOPPED:
                    self._note_fault(reading)
                    _end(reading)
                    self._stage = ENDED
                elif opens:
                    if self._is_light(reading):
                        goes_on = self._open(reading)
                    else:
                        with nogil:
                            goes_on = self._open(reading)
                    self._stage = STOPPED
                    if goes_on:
                        self._note_origin()
                        self._find_record()
                else:
                    give_up(&reading.scratch)
                    break
        finally:
            self._is_busy = False
        return self._stage == READY

    cdef void _find_record(self) noexcept:
        """Read on to the next visible record of the batch."""
        cdef Reading *reading = &self._taking
        cdef kb_records_cursor *cursor = &reading.cursor
        cdef kb_record_view *view = &reading.view
        cdef int64_t offset
        cdef bint is_visible
        while cursor.index < cursor.count:
            cursor.error = kb_record_get(&cursor.at, cursor.end, view)
            if cursor.error == KB_RECORD_OK and not kb_record_is_within(view, cursor.last_offset_delta):
                cursor.error = KB_RECORD_OUTSIDE
            offset = <int64_t>(<uint64_t>cursor.base_offset + <uint64_t><int64_t>view.offset_delta)
            is_visible = cursor.error == KB_RECORD_OK and cursor.first_offset <= offset <= cursor.last_offset
            if is_visible and view.header_count:
                cursor.error = kb_record_check_headers(view)
            if cursor.error != KB_RECORD_OK:
                reading.fault = RECORD_FAULT
                self._stage = STOPPED
                return
            if is_visible:
                self._stage = READY
                return
            cursor.index += 1
        self._stage = PASSED
        if cursor.at != cursor.end:
            cursor.error = KB_RECORD_TRAILING
            reading.fault = RECORD_FAULT
            self._stage = STOPPED

    cdef ConsumerRecord _new_record(self):
        """Return the record that the pass is at."""
        cdef Reading *reading = &self._taking
        cdef ConsumerRecord record = ConsumerRecord.__new__(ConsumerRecord)
        fill_from_view(record, &reading.batch.header, &reading.view)
        record._topic = self.topic
        record._origin = self._origin
        return record

    cdef int _note_origin(self) except -1:
        """Note what the records of the opened batch have in common; a run of batches shares one object."""
        cdef kb_records_cursor *cursor = &self._taking.cursor
        cdef RecordOrigin origin = self._origin
        if (origin is None or origin.leader_epoch != cursor.leader_epoch
                or origin.is_log_append_time != cursor.log_append_time):
            self._origin = record_origin(self.topic_id, self.partition, cursor.leader_epoch,
                                         cursor.log_append_time)
        return 0

    cdef void _pass_record(self) noexcept:
        """Move after the record that the pass is at."""
        cdef Reading *reading = &self._taking
        reading.position = reading.cursor.base_offset + reading.view.offset_delta + 1
        reading.cursor.index += 1
        self._find_record()

    cdef int _note_fault(self, const Reading *reading) except -1:
        self.fault = None if reading.fault == NO_FAULT else self._error(reading)
        return 0

    cdef object _error(self, const Reading *reading):
        """Return the error for a fault. The steps that explain faults are repeated, with the GIL."""
        cdef const kb_fetched_batch *batch = &reading.batch
        cdef const kb_batch_header *header = &batch.header
        cdef str where = f"{self.topic}-{self.partition} at offset {reading.position}"
        if reading.fault == HEADER_FAULT:
            return self._header_error(reading, where)
        hint = _hint(header)
        if reading.fault == CODEC_FAULT:
            reason = self._codec_reason(batch)
        elif reading.fault == COUNT_FAULT:
            reason = f"{header.count} records cannot be in the batch at offset {header.base_offset}"
        else:
            reason = record_error(reading.cursor.error, reading.cursor.index, header.base_offset)
        return CorruptRecordError(f"{where}: {reason}; {hint}")

    cdef object _header_error(self, const Reading *reading, str where):
        cdef const uint8_t *data = reading.batch.data
        cdef size_t left = self._start.size - (data - self._start.data)
        cdef kb_batch_header header
        try:
            whole_batch(data, left, &header, where)
        except CorruptRecordError as error:
            return CorruptRecordError(f"{error}; what follows cannot be found")
        reason = f"{where}: the marker of producer {header.producer_id} cannot be read"
        if header.base_offset < 0 or header.base_offset >= INT64_MAX - max(header.last_offset_delta, 0):
            reason = f"{where}: a base offset of {header.base_offset} is impossible"
        try:
            check_header(data, &header, self._check_crcs, where)
        except CorruptRecordError as error:
            reason = str(error)
        return CorruptRecordError(f"{reason}; {_hint(&header)}")

    cdef object _codec_reason(self, const kb_fetched_batch *batch):
        try:
            decompress_records(batch.header.attributes & KB_CODEC_MASK, batch.data + KB_BATCH_HEADER_SIZE,
                               batch.size - KB_BATCH_HEADER_SIZE, self._limit)
        except CorruptRecordError as error:
            return error
        return "its records do not decompress"

    def __repr__(self):
        return (f"<FetchedRecords {self.topic}-{self.partition} from offset {self.from_offset} to "
                f"{self.next_offset}, {self.byte_count} bytes>")


cdef FetchedRecords records_in(Source source, object records, const uint8_t *data, size_t size, str topic,
                               bytes topic_id, int32_t partition, int64_t from_offset, int64_t to_offset,
                               int64_t visible_end, object aborted, bint check_crcs, size_t limit):
    """Return the FetchedRecords of a span in the memory of `source`; `records` is a view of it."""
    cdef FetchedRecords found = FetchedRecords.__new__(FetchedRecords)
    found._source = source
    found._check_crcs = check_crcs
    found._limit = limit
    found.topic = topic
    found.topic_id = topic_id
    found.partition = partition
    found._read(records, data, size, from_offset, to_offset, visible_end, aborted)
    return found


cdef FetchedRecords records_of_walk(Source source, const kb_fetch_walked *walked, str topic, bytes topic_id,
                                    int32_t partition, bint check_crcs, size_t limit):
    """Return the FetchedRecords of what a road has walked: it has looked at all headers."""
    cdef FetchedRecords found = FetchedRecords.__new__(FetchedRecords)
    found._source = source
    found._check_crcs = check_crcs
    found._limit = limit
    found.topic = topic
    found.topic_id = topic_id
    found.partition = partition
    found._begin_at(None, walked.records.data, walked.records.size, walked.from_offset, INT64_MAX,
                    walked.visible_end)
    found.next_offset = walked.next_offset
    found.last_epoch = walked.last_epoch
    found.row_bound = walked.row_bound
    found.byte_count = walked.byte_count
    return found


def _first_offset(aborted):
    return aborted[1]


cdef int _check_count(Py_ssize_t count) except -1:
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count}")
    return 0


def _wanted_of(columns):
    """Return the mask of the columns."""
    wanted = 0
    for name in columns:
        if name not in _WANTED:
            raise ValueError(f"columns must be of {', '.join(_WANTED)}, got {name!r}")
        wanted |= _WANTED[name]
    return wanted


cdef str _hint(const kb_batch_header *header):
    after = <object>header.base_offset + header.last_offset_delta + 1
    return f"seek to offset {after} to skip the batch"


cdef void _end(Reading *reading) noexcept:
    free(reading.walk.is_aborting)
    reading.walk.is_aborting = NULL
    give_up(&reading.scratch)


cdef size_t _bytes_to_come(const Reading *reading, size_t size) noexcept nogil:
    """Return the bytes of this batch's records, `size`, and of those after it, if all compress alike."""
    cdef double left = reading.walk.size - reading.walk.at + reading.batch.size
    return <size_t>(size * (left / reading.batch.size))


cdef bint _decompress(int codec, const uint8_t *data, size_t size, kb_memory *out,
                      size_t limit) except -1 nogil:
    """Append the decompressed bytes to `out`. True if there are none."""
    cdef kb_codec_fault fault
    cdef kb_codec_status status = decompress_into(codec, data, size, out, limit, &fault)
    if status == KB_CODEC_NO_LIBRARY:
        with gil:
            return _decompress_by_package(codec, data, size, out, limit)
    if status == KB_CODEC_MEMORY:
        with gil:
            raise MemoryError(f"no memory for the decompressed bytes of {size}")
    return status != KB_CODEC_OK


cdef bint _decompress_by_package(int codec, const uint8_t *data, size_t size, kb_memory *out,
                                 size_t limit) except -1:
    cdef OwnedMemory found
    try:
        found = decompress_records(codec, data, size, limit)
    except CorruptRecordError:
        return True
    reserve(out, found.size)
    memcpy(out.data + out.used, found.data, found.size)
    out.used += found.size
    return False
