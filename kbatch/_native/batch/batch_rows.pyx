"""BatchRows: which rows of a table a batch has.

Theory of operation. They are numbers behind a base, in four bytes each, and the places of the batch at which
they stand: one run, unless records of others came between. Where interceptors are to be told of every row,
another 16 bytes each keep what they are told besides: its time, and how large key and value are.

While the batch is open all this grows under the lock of its partition, without the GIL. Of a batch that is
split each part takes over its own rows (`part_of_rows`).
"""

cimport cython
from libc.stdint cimport UINT32_MAX, int16_t, int32_t, int64_t, uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from kbatch._native.codec.c cimport kb_record, kb_row_record, kb_rows


@cython.final
@cython.trashcan(True)  # a batch may have rows of so many tables that freeing one by the next ends the stack
cdef class BatchRows:
    """Which rows of a table a batch has, in their order, and where."""

    def __dealloc__(self):
        free(self._rows)
        free(self._runs)
        free(self._told)

    @staticmethod
    cdef BatchRows new(object table, object on_acknowledgement, int64_t place, int64_t base,
                       int32_t capacity):
        """For rows of a TableOutcome from `base` on; `capacity` of them, until it grows."""
        cdef BatchRows rows = BatchRows.__new__(BatchRows)
        rows.table = table
        rows.place = place
        rows._base = base
        rows._rows = <uint32_t *>malloc(capacity * sizeof(uint32_t))
        rows._runs = <Run *>malloc(sizeof(Run))
        if on_acknowledgement is not None:
            rows.on_acknowledgement = on_acknowledgement
            rows._told = <ToldRow *>malloc(capacity * sizeof(ToldRow))
        if rows._rows == NULL or rows._runs == NULL or (on_acknowledgement is not None
                                                        and rows._told == NULL):
            raise MemoryError(f"no memory for {capacity} rows of a batch")
        rows.capacity = capacity
        rows._run_capacity = 1
        return rows

    # While its batch is open, under the lock of the partition.

    cdef bint can_hold(self, int64_t last_row) noexcept nogil:
        return last_row - self._base <= <int64_t>UINT32_MAX

    cdef bint grow(self) noexcept nogil:
        """Room for twice as many; False without memory."""
        cdef void *grown
        if self._told != NULL:
            grown = realloc(self._told, 2 * self.capacity * sizeof(ToldRow))
            if grown == NULL:
                return False
            self._told = <ToldRow *>grown
        grown = realloc(self._rows, 2 * self.capacity * sizeof(uint32_t))
        if grown == NULL:
            return False
        self._rows = <uint32_t *>grown
        self.capacity *= 2
        return True

    cdef bint begin_run(self, int32_t index) noexcept nogil:
        """The next row stands at `index`. False without memory."""
        cdef Run *last = &self._runs[self.run_count - 1]
        cdef void *grown
        if self.run_count and last.index + self.count - last.at == index:
            return True
        if self.run_count == self._run_capacity:
            grown = realloc(self._runs, 2 * self._run_capacity * sizeof(Run))
            if grown == NULL:
                return False
            self._runs = <Run *>grown
            self._run_capacity *= 2
        self._runs[self.run_count].index = index
        self._runs[self.run_count].at = self.count
        self.run_count += 1
        return True

    cdef void add(self, const int32_t *rows, int64_t count, int64_t origin,
                  const kb_rows *block) noexcept nogil:
        """Rows origin + rows[0], ... of a block that begins with row `origin`: no more than there is room
        for."""
        cdef uint32_t shift = <uint32_t>(origin - self._base)
        cdef uint32_t *to = self._rows + self.count
        cdef kb_record record
        cdef int64_t i
        for i in range(count):
            to[i] = shift + <uint32_t>rows[i]
        if self._told != NULL:
            for i in range(count):
                kb_row_record(block, rows[i], &record)
                self._told[self.count + i].timestamp_ms = record.timestamp_ms
                self._told[self.count + i].key_size = <int32_t>record.key.size
                self._told[self.count + i].value_size = <int32_t>record.value.size
        self.count += <int32_t>count

    # When it is answered, or split.

    cdef int32_t _run_end(self, int32_t run) noexcept nogil:
        return self._runs[run + 1].at if run + 1 < self.run_count else self.count

    cdef void put_offsets(self, int64_t base_offset, int64_t *offsets) noexcept nogil:
        cdef int32_t run, i
        cdef int64_t offset
        for run in range(self.run_count):
            offset = base_offset + self._runs[run].index - self._runs[run].at
            for i in range(self._runs[run].at, self._run_end(run)):
                offsets[self._base + self._rows[i]] = offset + i

    cdef int32_t put_runs(self, int64_t base_offset, kb_row_run *to) noexcept nogil:
        """What offsets can be had from later; how many, `run_count` at most: a run that was begun may have
        got no row."""
        cdef int32_t run, count = 0
        for run in range(self.run_count):
            if self._runs[run].at == self._run_end(run):
                continue
            to[count].first_row = self._base + self._rows[self._runs[run].at]
            to[count].offset = base_offset + self._runs[run].index
            to[count].topic = <int32_t>(self.place >> 32)
            to[count].partition = <int32_t>self.place
            to[count].count = self._run_end(run) - self._runs[run].at
            count += 1
        return count

    cdef void put_code(self, int16_t code, int16_t *codes) noexcept nogil:
        cdef int32_t i
        for i in range(self.count):
            codes[self._base + self._rows[i]] = code

    cdef int64_t first_row(self) noexcept nogil:
        return self._base + self._rows[0] if self.count else self._base

    cdef int64_t row_of(self, int32_t index) noexcept nogil:
        """The row at place `index` of the batch; -1 where that is somebody else's record."""
        cdef int32_t run, at
        for run in range(self.run_count):
            at = self._runs[run].at + index - self._runs[run].index
            if self._runs[run].at <= at < self._run_end(run):
                return self._base + self._rows[at]
        return -1

    cdef int32_t index_of(self, int64_t row) noexcept nogil:
        """Where a row stands in the batch; -1 where it does not."""
        cdef int32_t low = 0, high = self.count, middle, run
        while low < high:
            middle = low + (high - low) // 2
            if self._base + self._rows[middle] < row:
                low = middle + 1
            else:
                high = middle
        if low == self.count or self._base + self._rows[low] != row:
            return -1
        run = self.run_count - 1
        while self._runs[run].at > low:
            run -= 1
        return self._runs[run].index + low - self._runs[run].at

    cdef const ToldRow *next_told(self, int32_t *index) noexcept:
        """The next row that interceptors are to be told of, and its place in the batch; NULL behind the last.
        """
        if self._told == NULL:
            return NULL
        if self._told_count == self.count:
            free(self._told)
            self._told = NULL
            return NULL
        while self._told_count >= self._run_end(self._told_run):
            self._told_run += 1
        index[0] = self._runs[self._told_run].index + self._told_count - self._runs[self._told_run].at
        self._told_count += 1
        return &self._told[self._told_count - 1]

    cdef BatchRows part(self, int32_t index, int32_t count):
        """The rows at places index .. index + count - 1, which are another batch's now."""
        cdef BatchRows part = BatchRows.new(self.table, self.on_acknowledgement, self.place, self._base,
                                            max(count, 1))
        cdef int32_t run, shift, first, end
        for run in range(self.run_count):
            shift = self._runs[run].index - self._runs[run].at
            first = max(self._runs[run].at, index - shift)
            end = min(self._run_end(run), index + count - shift)
            if first >= end:
                continue
            if not part.begin_run(first + shift - index):
                raise MemoryError("no memory for the rows of a batch that is split")
            memcpy(part._rows + part.count, self._rows + first, (end - first) * sizeof(uint32_t))
            if self._told != NULL:
                memcpy(part._told + part.count, self._told + first, (end - first) * sizeof(ToldRow))
            part.count += end - first
        return part


cdef BatchRows part_of_rows(BatchRows rows, int32_t index, int32_t count):
    """What a part has of them of a batch that is split: its records are those from `index` on."""
    cdef BatchRows first = None, part
    while rows is not None:
        part = rows.part(index, count)
        if part.count:
            part.next = first
            first = part
        rows = rows.next
    return first
