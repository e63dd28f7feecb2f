"""TableEncoder: a table's rows into record batches, without a Python object per row.

Theory of operation. Rows come in blocks. A block is prepared on one thread, without the GIL. Every column
becomes spans (arrow_columns.h). Every row gets a partition: its own, its key's murmur2, or the sticky one. A
counting sort lists the rows of each partition. Then any thread works on each partition with rows
independently. It appends rows to the open batch, and seals a batch that is full by Kafka's rule. It opens the
next one with the current ratio estimate.

Ratio. The estimate is the topic's: all partitions learn from each other's batches, and calls from earlier
ones. To give the same result for every number of threads, they do so at the ends of windows, which are
counted in rows. There the topic learns from all batches of the window, partition by partition, and all
partitions continue from its estimate. Within a window each learns from its own. While batches match their
estimates, a window is twice as long as the previous one; otherwise it is as short as possible. Batches depend
on the rows alone: not on blocks, threads, or the distribution of rows over calls.

Memory. A partition's sealed batches are adjacent in chunks of 16 MiB, or less with many partitions, trimmed
when full; their unused ends together stay below SLACK_BYTES. Without compression a batch is written in its
final place. With compression it is written into the partition's scratch memory, and its compressed form is
copied into the chunk.
"""

cimport cython
from cython cimport pymutex
from libc.math cimport fabs
from libc.stdint cimport int16_t, int32_t, int64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from kbatch._native.arrow.arrow cimport ArrowBatch, ArrowStream
from kbatch._native.arrow.table_columns cimport TableColumns
from kbatch._native.codec.c cimport (
    KB_APPEND_FULL,
    KB_APPEND_MEMORY,
    KB_APPEND_TOO_LARGE,
    KB_BATCH_HEADER_SIZE,
    KB_MAX_PARTITIONS,
    KB_MAX_RECORD_BODY,
    KB_RATIO_FACTOR,
    kb_append_rows,
    kb_append_status,
    kb_batch_header,
    kb_codec_fault,
    kb_codec_status,
    kb_group_rows,
    kb_memory,
    kb_partition_for_key,
    kb_record,
    kb_record_body_size,
    kb_row_record,
    kb_rows,
    kb_updated_ratio,
    kb_varint_size,
)
from kbatch._native.codec.compression cimport codec_id_of, end_compression, level_of
from kbatch._native.codec.libraries cimport compress_into
from kbatch._native.codec.memory cimport OwnedMemory, give_up, grown, reserve, trim
from kbatch._native.codec.record_batch cimport seal_batch

from functools import partial

from kbatch._native.io.threads import Team
from kbatch.errors import IllegalStateError

cdef int64_t MAX_BATCH_SIZE = 1 << 30
cdef size_t SLACK_BYTES = 32 << 20
cdef size_t LARGEST_CHUNK = 16 << 20
cdef size_t SMALLEST_CHUNK = 4096
# One thread works on blocks whose spans stay in the second-level cache; several need larger ones between
# synchronizations.
cdef int64_t BLOCK_ROWS = 2048
cdef int64_t SHARED_BLOCK_ROWS = 65536
# Rows of a window of learning; the shortest has at least one for each partition, because its end visits all.
cdef int64_t SHORTEST_WINDOW = 2048
cdef int64_t LONGEST_WINDOW = 65536
# An estimate this near to the observation is right: it rises by steps of half of it.
cdef double NEAR = 0.1

cdef void *_room_for_one(void *items, int64_t count, int64_t *capacity, size_t item_size) except NULL nogil:
    """Return an array with room for one item more than `count`."""
    if count < capacity[0]:
        return items
    capacity[0] = max(2 * count, 8)
    return grown(items, capacity[0] * item_size)


@cython.final
cdef class TableEncoder:
    cdef int _codec, _level
    cdef int64_t _batch_size
    cdef int32_t _partitions          # 0: every row names its own
    cdef int _threads
    cdef object _team                 # of threads, during a call
    cdef bint _is_usable              # no call is going on, none has failed
    # the ratio of the topic, and the rows of a window, total and left
    cdef double _ratio
    cdef int64_t _window_rows, _window_left
    cdef size_t _expected_bytes       # of records, still to come from the present batch
    cdef TableColumns _columns
    # partitions by number, and a dense array of those in use
    cdef int32_t *_slot_of
    cdef int32_t _slot_of_size
    cdef Slot *_slots
    cdef int64_t _slot_count, _slot_capacity
    cdef int32_t _sticky
    cdef int64_t _sticky_bytes
    # the current block
    cdef int32_t *_destinations
    cdef int32_t *_order
    cdef int32_t *_starts
    cdef int64_t _starts_capacity
    # threads take the next slot under this lock
    cdef pymutex _lock
    cdef int32_t _next_slot

    def __init__(self, *, partitions, compression, compression_level, batch_size, threads):
        cdef int64_t block_rows = BLOCK_ROWS if threads == 1 else SHARED_BLOCK_ROWS
        self._codec = codec_id_of(compression)
        self._level = level_of(self._codec, compression_level)
        if not 0 <= batch_size <= MAX_BATCH_SIZE:
            raise ValueError(f"batch_size must be 0 to {MAX_BATCH_SIZE} bytes, got {batch_size}")
        if partitions is not None and not 1 <= partitions <= KB_MAX_PARTITIONS:
            raise ValueError(f"partitions must be 1 to {KB_MAX_PARTITIONS}, or None, got {partitions}")
        self._batch_size = batch_size
        self._partitions = partitions or 0
        self._threads = threads
        self._is_usable = True
        self._ratio = 1.0
        self._window_rows = self._window_left = SHORTEST_WINDOW if self._codec else LONGEST_WINDOW
        self._slot_of_size = self._partitions
        self._slot_of = <int32_t *>grown(NULL, self._partitions * sizeof(int32_t))
        self._destinations = <int32_t *>grown(NULL, block_rows * sizeof(int32_t))
        self._order = <int32_t *>grown(NULL, block_rows * sizeof(int32_t))
        memset(self._slot_of, 0xFF, self._slot_of_size * sizeof(int32_t))  # -1: not in use yet

    def __dealloc__(self):
        cdef int64_t i, k
        for i in range(self._slot_count):
            for k in range(self._slots[i].chunk_count):
                free(self._slots[i].chunks[k].memory.data)
            free(self._slots[i].chunks)
            free(self._slots[i].sealed)
            free(self._slots[i].observed)
            give_up(&self._slots[i].target.memory)
            give_up(&self._slots[i].output)
        free(self._slots)
        free(self._slot_of)
        free(self._destinations)
        free(self._order)
        free(self._starts)

    def encode(self, data, dict names, bint closes):
        """Encode all rows of `data`, then close open batches if requested; return the batches sealed since
        the last call.

        Parameters
        ----------
        data : stream or array of structs, or None
        names : dict
            Column by role (key, value, headers, timestamp, partition), each (name, required).
        closes : bool
            Whether to seal open batches too.

        Returns
        -------
        tuple
            See `_take`.
        """
        with cython.critical_section(self):
            is_usable, self._is_usable = self._is_usable, False
        if not is_usable:
            raise IllegalStateError(
                "the encoder cannot be used: a call to it failed, or is still running in another thread; "
                "make a new encoder, and one for each thread"
            )
        self._team = Team("kbatch-encoder", self._threads) if self._threads > 1 else None
        try:
            if data is not None:
                self._encode_stream(ArrowStream(data), names)
            if closes:
                self._for_each_slot(False)
                self._learn()
        finally:
            if self._team is not None:
                self._team.stop()
                self._team = None
        batches = self._take()
        self._is_usable = True
        return batches

    cdef int _encode_stream(self, ArrowStream stream, dict names) except -1:
        cdef ArrowBatch batch
        self._columns = TableColumns(names, BLOCK_ROWS if self._threads == 1 else SHARED_BLOCK_ROWS)
        self._columns.find(stream)
        if self._columns.partition_at < 0 and self._partitions == 0:
            raise ValueError(
                f"partitions=None needs a column {self._columns.partition.name!r} (int32) with the partition "
                "of every row: add it, or give the topic's number of partitions"
            )
        while (batch := stream.next_batch()) is not None:
            self._encode_batch(stream, batch)
            self._columns.rows_before += batch.array.length
        return 0

    cdef int _encode_batch(self, ArrowStream stream, ArrowBatch batch) except -1:
        cdef int64_t first = 0, count
        self._columns.bind(stream, batch)
        with nogil:
            while first < batch.array.length:
                count = self._columns.block_length(first, min(batch.array.length - first, self._window_left))
                self._encode_block(first, count, batch.array.length - first)
                first += count
                self._window_left -= count
                if self._window_left == 0:
                    self._learn()
        return 0

    cdef int _learn(self) noexcept nogil:
        """End a window: the topic learns from its batches, and partitions continue from its estimate."""
        cdef int64_t i, k
        cdef Slot *slot
        cdef double observed = 0
        for i in range(self._slot_count):
            slot = &self._slots[i]
            for k in range(slot.observed_count):
                observed = slot.observed[k]
                self._ratio = kb_updated_ratio(self._ratio, observed)
            slot.observed_count = 0
        for i in range(self._slot_count):
            self._slots[i].ratio = self._ratio
        if observed and fabs(observed - self._ratio) > NEAR:
            self._window_rows = SHORTEST_WINDOW
        elif observed:
            self._window_rows = min(2 * self._window_rows, LONGEST_WINDOW)
        self._window_rows = self._window_left = max(self._window_rows, self._slot_count)
        return 0

    cdef int _encode_block(self, int64_t first, int64_t count, int64_t left) except -1 nogil:
        cdef int64_t slot
        self._columns.fill(first, count)
        self._expected_bytes = self._mean_record_bytes() * left
        if self._partitions == 1 and self._columns.partition_at < 0:
            self._take_all_rows(count)
        else:
            self._choose_partitions(first)
            self._reserve_starts()
            kb_group_rows(self._destinations, count, <int32_t>self._slot_count, self._starts, self._order)
        if self._threads == 1:
            for slot in range(self._slot_count):
                self._append_rows(&self._slots[slot], self._starts[slot], self._starts[slot + 1], first)
        else:
            with gil:
                self._for_each_slot(True, first)
        return 0

    cdef int _take_all_rows(self, int64_t count) except -1 nogil:
        """Append rows of the only partition: nothing to hash or sort."""
        cdef int64_t i
        if self._slot_count == 0:
            self._open_slot(0)
            self._reserve_starts()
        for i in range(count):
            self._order[i] = <int32_t>i
        self._starts[0] = 0
        self._starts[1] = <int32_t>count
        return 0

    cdef int _choose_partitions(self, int64_t first) except -1 nogil:
        cdef kb_rows *rows = &self._columns.rows
        cdef bint may_be_named = self._columns.partition_at >= 0
        cdef int64_t i
        cdef int32_t partition = -1
        cdef int32_t largest = self._partitions if self._partitions else KB_MAX_PARTITIONS
        for i in range(rows.count):
            if may_be_named:
                partition = self._columns.named_partition(first + i, largest, None, NULL)
            if may_be_named and partition >= 0:
                pass
            elif self._partitions == 0:
                self._columns.refuse(self._columns.partition.name, first + i,
                                     "is null, which partitions=None does not allow")
            elif rows.keys[i].size >= 0:
                partition = kb_partition_for_key(rows.keys[i].data, rows.keys[i].size, self._partitions)
            else:
                partition = self._sticky_partition(i)
            if partition >= self._slot_of_size or self._slot_of[partition] < 0:
                self._open_slot(partition)
            self._destinations[i] = self._slot_of[partition]
        return 0

    cdef int32_t _sticky_partition(self, int64_t row) noexcept nogil:
        """Return the partition of a row without a key: the same one for `batch_size` bytes of records, then
        the next.
        """
        cdef kb_record record
        cdef int64_t body
        cdef int32_t partition = self._sticky
        kb_row_record(&self._columns.rows, row, &record)
        body = kb_record_body_size(&record, 0, 0)
        self._sticky_bytes += body + kb_varint_size(body)
        if self._sticky_bytes >= self._batch_size:
            self._sticky = (partition + 1) % self._partitions
            self._sticky_bytes = 0
        return partition

    cdef size_t _mean_record_bytes(self) noexcept nogil:
        """Estimate the bytes of the block by a few rows, for the first size of a chunk."""
        cdef int64_t i, total = 0
        cdef int64_t samples = min(self._columns.rows.count, 16)
        cdef kb_record record
        for i in range(samples):
            kb_row_record(&self._columns.rows, i * self._columns.rows.count // samples, &record)
            total += kb_record_body_size(&record, 0, 0) + 5
        return total // samples

    cdef int _open_slot(self, int32_t partition) except -1 nogil:
        cdef int32_t size
        cdef Slot *slot
        if partition >= self._slot_of_size:
            size = max(partition + 1, 2 * self._slot_of_size)
            self._slot_of = <int32_t *>grown(self._slot_of, size * sizeof(int32_t))
            memset(self._slot_of + self._slot_of_size, 0xFF, (size - self._slot_of_size) * sizeof(int32_t))
            self._slot_of_size = size
        self._slots = <Slot *>_room_for_one(self._slots, self._slot_count, &self._slot_capacity, sizeof(Slot))
        slot = &self._slots[self._slot_count]
        memset(slot, 0, sizeof(Slot))
        slot.partition = partition
        slot.ratio = self._ratio
        slot.target.write_limit = self._batch_size
        self._slot_of[partition] = <int32_t>self._slot_count
        self._slot_count += 1
        return 0

    cdef int _reserve_starts(self) except -1 nogil:
        if self._starts_capacity < self._slot_count + 1:
            self._starts_capacity = 2 * self._slot_count + 1
            self._starts = <int32_t *>grown(self._starts, self._starts_capacity * sizeof(int32_t))
        return 0

    def _for_each_slot(self, bint append, int64_t first=0):
        """Append the block's rows, or seal open batches, for all partitions, on the threads if there are any.
        """
        self._next_slot = 0
        if self._team is None:
            self._work(append, first)
        else:
            self._team.run(partial(self._work, append, first))

    def _work(self, bint append, int64_t first):
        cdef Slot *slot
        cdef int32_t i
        with nogil:
            while True:
                with self._lock:
                    i = self._next_slot
                    self._next_slot += 1
                if i >= self._slot_count:
                    break
                slot = &self._slots[i]
                if append:
                    self._append_rows(slot, self._starts[i], self._starts[i + 1], first)
                else:
                    self._close(slot)

    cdef int _append_rows(self, Slot *slot, int64_t next, int64_t end, int64_t first) except -1 nogil:
        cdef kb_append_status status
        cdef int64_t needed = 0
        while next < end:
            if not slot.is_open:
                self._open_batch(slot)
            status = kb_append_rows(&slot.target, &self._columns.rows, self._order, &next, end, &needed)
            if status == KB_APPEND_FULL:
                self._seal(slot)
            elif status == KB_APPEND_MEMORY:
                reserve(&slot.target.memory, needed)
            elif status == KB_APPEND_TOO_LARGE:
                with gil:
                    self._columns.refuse(self._columns.value.name, first + self._order[next],
                                         f"the record takes {needed} bytes; {KB_MAX_RECORD_BODY} is the most")
        return 0

    cdef int _open_batch(self, Slot *slot) except -1 nogil:
        cdef kb_memory *memory = &slot.target.memory
        memset(&slot.target.batch, 0, sizeof(slot.target.batch))
        slot.is_open = True
        slot.target.factor = slot.ratio * KB_RATIO_FACTOR if self._codec else 1.0
        if self._codec:
            memory.used = 0
            if memory.data == NULL:
                reserve(memory, min(<size_t>self._batch_size, self._share()))
            return 0
        self._begin_chunk(slot, memory, KB_BATCH_HEADER_SIZE + self._batch_size, 1.0)
        reserve(memory, KB_BATCH_HEADER_SIZE)
        slot.batch_start = memory.used
        memory.used += KB_BATCH_HEADER_SIZE
        return 0

    cdef size_t _share(self) noexcept nogil:
        """Return the maximum unused memory of one partition."""
        cdef int64_t partitions = max(self._slot_count, <int64_t>self._partitions)
        return min(SLACK_BYTES // <size_t>partitions, LARGEST_CHUNK)

    cdef int _begin_chunk(self, Slot *slot, kb_memory *memory, size_t expected, double ratio) except -1 nogil:
        """End a chunk of full size without room for `expected` more bytes, and start one if there is none. It
        has room for them and, if records continue to shrink by `ratio`, for the rest of this Arrow batch.
        """
        cdef size_t limit = self._share()
        cdef size_t to_come
        if memory.used and memory.capacity >= limit and memory.capacity - memory.used < expected:
            self._end_chunk(slot, memory)
        if memory.data == NULL:
            to_come = <size_t>(self._expected_bytes * ratio) // <size_t>self._slot_count
            reserve(memory, min(limit, to_come + to_come // 32 + expected))
        return 0

    cdef int _end_chunk(self, Slot *slot, kb_memory *memory) except -1 nogil:
        """Trim the chunk and set it aside."""
        slot.chunks = <Chunk *>_room_for_one(slot.chunks, slot.chunk_count, &slot.chunk_capacity,
                                             sizeof(Chunk))
        trim(memory)
        slot.chunks[slot.chunk_count].memory = memory[0]
        slot.chunks[slot.chunk_count].batches = slot.sealed_count
        slot.chunk_count += 1
        memset(memory, 0, sizeof(kb_memory))
        return 0

    cdef int _seal(self, Slot *slot) except -1 nogil:
        """Close the open batch in its final place."""
        cdef kb_batch_header header
        cdef kb_memory *memory = &slot.output if self._codec else &slot.target.memory
        cdef size_t start
        cdef Sealed *sealed
        slot.sealed = <Sealed *>_room_for_one(slot.sealed, slot.sealed_count, &slot.sealed_capacity,
                                              sizeof(Sealed))
        start = self._compress(slot) if self._codec else slot.batch_start
        memset(&header, 0, sizeof(header))
        header.leader_epoch = -1
        header.attributes = <int16_t>self._codec
        header.last_offset_delta = slot.target.batch.last_offset_delta
        header.base_timestamp_ms = slot.target.batch.base_timestamp_ms
        header.max_timestamp_ms = slot.target.batch.max_timestamp_ms
        header.producer_id = header.base_sequence = -1
        header.producer_epoch = -1
        header.count = slot.target.batch.count
        seal_batch(memory.data + start, memory.used - start, &header)
        sealed = &slot.sealed[slot.sealed_count]
        sealed.max_timestamp_ms = header.max_timestamp_ms
        sealed.uncompressed_bytes = KB_BATCH_HEADER_SIZE + slot.target.batch.records_bytes
        sealed.end = memory.used
        sealed.record_count = header.count
        slot.sealed_count += 1
        slot.is_open = False
        return 0

    cdef size_t _compress(self, Slot *slot) except 1 nogil:
        """Append the compressed batch to the chunk; return its start."""
        cdef size_t raw = slot.target.memory.used
        cdef size_t size, start
        cdef double observed
        cdef kb_memory packed
        memset(&packed, 0, sizeof(packed))
        try:
            self._compress_into(slot, &packed)
            size = packed.used
            self._begin_chunk(slot, &slot.output, KB_BATCH_HEADER_SIZE + size, <double>size / raw)
            reserve(&slot.output, KB_BATCH_HEADER_SIZE + size)
            start = slot.output.used
            memcpy(slot.output.data + start + KB_BATCH_HEADER_SIZE, packed.data, size)
        finally:
            give_up(&packed)
        slot.output.used += KB_BATCH_HEADER_SIZE + size
        # a tiny batch compresses badly, and would distort the estimate for the next, full one
        if 4 * <int64_t>raw >= self._batch_size:
            observed = <double>size / <double>raw
            slot.ratio = kb_updated_ratio(slot.ratio, observed)
            slot.observed = <double *>_room_for_one(
                slot.observed, slot.observed_count, &slot.observed_capacity, sizeof(double)
            )
            slot.observed[slot.observed_count] = observed
            slot.observed_count += 1
        return start

    cdef int _compress_into(self, Slot *slot, kb_memory *packed) except -1 nogil:
        cdef kb_codec_fault fault
        cdef kb_codec_status status = compress_into(
            self._codec, slot.target.memory.data, slot.target.memory.used, self._level, packed, &fault)
        if status:
            with gil:
                end_compression(self._codec, slot.target.memory.data, slot.target.memory.used, self._level,
                                packed, status, &fault)
        if packed.used > KB_MAX_RECORD_BODY:
            with gil:
                raise ValueError(f"a batch compressed to {packed.used} bytes; {KB_MAX_RECORD_BODY} is the "
                                 "most")
        return 0

    cdef int _close(self, Slot *slot) except -1 nogil:
        if slot.is_open:
            self._seal(slot)
        if self._codec:
            give_up(&slot.target.memory)
        return 0

    cdef int _end_last_chunk(self, Slot *slot) except -1 nogil:
        """Set sealed batches aside for the result. An open batch moves out of their chunk, to memory for as
        much as came since the last time.
        """
        cdef kb_memory *memory = &slot.output if self._codec else &slot.target.memory
        cdef kb_memory fresh
        cdef size_t open_bytes
        if self._codec or not slot.is_open:
            if memory.used:
                self._end_chunk(slot, memory)
            return 0
        if slot.batch_start == 0:
            return 0
        memset(&fresh, 0, sizeof(fresh))
        open_bytes = memory.used - slot.batch_start
        reserve(&fresh, max(open_bytes, min(memory.used, self._share())) + self._batch_size)
        memcpy(fresh.data, memory.data + slot.batch_start, open_bytes)
        fresh.used = open_bytes
        memory.used = slot.batch_start
        slot.batch_start = 0
        self._end_chunk(slot, memory)
        memory[0] = fresh
        return 0

    cdef tuple _take(self):
        """Return sealed batches, by partition and in order within one.

        Returns
        -------
        tuple
            (number of batches, partition int32, record_count int32, max_timestamp_ms int64,
            uncompressed_bytes int64, chunks): memory with one value a batch, and a list of (batches, int64
            offsets, data).
        """
        cdef int64_t total = 0, at = 0, i
        cdef int32_t partition
        cdef Slot *slot
        cdef list chunks = []
        for i in range(self._slot_count):
            self._end_last_chunk(&self._slots[i])
            total += self._slots[i].sealed_count
        cdef OwnedMemory partitions = OwnedMemory.new(total, sizeof(int32_t))
        cdef OwnedMemory record_counts = OwnedMemory.new(total, sizeof(int32_t))
        cdef OwnedMemory max_timestamps = OwnedMemory.new(total, sizeof(int64_t))
        cdef OwnedMemory uncompressed = OwnedMemory.new(total, sizeof(int64_t))
        for partition in range(self._slot_of_size):
            if self._slot_of[partition] < 0:
                continue
            slot = &self._slots[self._slot_of[partition]]
            for i in range(slot.sealed_count):
                (<int32_t *>partitions.data)[at] = partition
                (<int32_t *>record_counts.data)[at] = slot.sealed[i].record_count
                (<int64_t *>max_timestamps.data)[at] = slot.sealed[i].max_timestamp_ms
                (<int64_t *>uncompressed.data)[at] = slot.sealed[i].uncompressed_bytes
                at += 1
            _take_chunks(slot, chunks)
        return total, partitions, record_counts, max_timestamps, uncompressed, chunks


cdef int _take_chunks(Slot *slot, list chunks) except -1:
    """Return the chunks of a slot as (batches, offsets, data)."""
    cdef int64_t k, i, first = 0, count
    cdef OwnedMemory offsets, data
    cdef kb_memory *memory
    for k in range(slot.chunk_count):
        count = slot.chunks[k].batches - first
        offsets = OwnedMemory.new(count + 1, sizeof(int64_t))
        (<int64_t *>offsets.data)[0] = 0
        for i in range(count):
            (<int64_t *>offsets.data)[i + 1] = slot.sealed[first + i].end
        memory = &slot.chunks[k].memory
        data = OwnedMemory.take(memory.data, memory.used, memory.capacity)
        memory.data = NULL
        chunks.append((count, offsets, data))
        first += count
    slot.chunk_count = 0
    slot.sealed_count = 0
    return 0
