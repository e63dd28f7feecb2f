"""The outcomes of the rows of a table, without a Python object per row.

Theory of operation. A TableOutcome has each row's partition: 4 bytes, and 4 more for its topic if rows name
theirs. A batch with rows of the table has a BatchRows, which identifies these rows. When the batch is
answered, its Completion calls `complete_rows`. A delivered batch leaves a run, a few words for all of its
rows (src_c/row_runs.h). Each row gets its own offset and error code, 10 bytes, on their first use, after a
failed row, or when runs would take as much: untouched memory costs nothing. From then on answers fill them
in. The BatchRows is dropped after the answer; only that of a failed batch stays, to find the error of a row.

A row that was in no batch has no offset, but a number below -1 in its place that says why. For a row that is
too large by itself it is its size. Its error is made on use, so failed rows take no more memory than others;
readers of offsets get a copy without these numbers.

The numbers of a BatchRows follow a base, in four bytes each, with their places in the batch: one run, unless
records of others came between. For interceptors, another 16 bytes per row keep its time and the sizes of key
and value. While the batch is open, all this grows under the lock of its partition, without the GIL. When a
batch is split, each part takes over its own rows (`part_of_rows`).

The thread that accepts rows enlarges the arrays; answers come on the sender's thread; any thread may read.
`_lock` guards their shared state; under it no Python code runs and no request for the GIL is made.
"""

cimport cython
from cpython.buffer cimport PyBUF_WRITABLE
from libc.stdint cimport UINT32_MAX, int16_t, int32_t, int64_t, uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

from kbatch._native.codec.c cimport kb_record, kb_row_record, kb_rows
from kbatch._native.codec.memory cimport OwnedMemory
from kbatch._native.codec.views cimport fill_view
from kbatch._native.lock cimport kb_lock_acquire, kb_lock_destroy, kb_lock_init, kb_lock_release

from bisect import bisect_right, insort
from operator import itemgetter

from kbatch._native.io.interrupts import NativeEvent
from kbatch.errors import ErrorCode

cdef extern from "pages.h" nogil:
    bint kb_pages_resize(void **data, size_t *size, size_t wanted)
    void kb_pages_free(void *data, size_t size)

cdef extern from "row_runs.h" nogil:
    bint kb_put_run_offsets(kb_row_run *runs, int64_t run_count, const int32_t *topics,
                            const int32_t *partitions, int64_t row_count, int64_t *offsets)

cdef int64_t FIRST_ROWS = 4096
# The code of an error that no broker sent: UNKNOWN_SERVER_ERROR.
cdef int16_t NO_CODE = -1
cdef int16_t TOO_LARGE_CODE = <int16_t>int(ErrorCode.MESSAGE_TOO_LARGE)
# Stands in place of the offset of a row that was in no batch; a lower number is a row that is too large.
cdef int64_t UNSENT = -2
# Errors kept after their first use, so that callers get the same ones again.
cdef int MOST_MADE = 100

cdef enum:
    PARTITIONS
    OFFSETS
    CODES
    TOPICS
    RUNS

cdef object _first_row = itemgetter(0)


cdef int16_t _code_of(object error) except? -1:
    code = getattr(error, "code", None)
    return NO_CODE if code is None else <int16_t>int(code)


cdef int64_t partition_key_of(int32_t topic, int32_t partition) noexcept nogil:
    """Return a topic's partition as one number; -1 is none."""
    return -1 if partition < 0 else <int64_t>topic << 32 | partition


@cython.final
@cython.trashcan(True)  # freeing the rows of many tables recursively would exhaust the stack
cdef class BatchRows:
    """The rows of a table in a batch, in order, and their indexes."""

    def __dealloc__(self):
        free(self._rows)
        free(self._runs)
        free(self._intercepted)

    @staticmethod
    cdef BatchRows new(TableOutcome table, int64_t partition_key, int64_t base, int32_t capacity):
        """For rows of a TableOutcome from `base` on; it grows beyond `capacity`."""
        cdef BatchRows rows = BatchRows.__new__(BatchRows)
        rows.table = table
        rows.partition_key = partition_key
        rows._base = base
        rows._rows = <uint32_t *>malloc(capacity * sizeof(uint32_t))
        rows._runs = <Run *>malloc(sizeof(Run))
        if table.on_acknowledgement is not None:
            rows._intercepted = <InterceptedRow *>malloc(capacity * sizeof(InterceptedRow))
        if rows._rows == NULL or rows._runs == NULL or (table.on_acknowledgement is not None
                                                        and rows._intercepted == NULL):
            raise MemoryError(f"no memory for {capacity} rows of a batch")
        rows.capacity = capacity
        rows._run_capacity = 1
        return rows

    # While its batch is open, under the lock of the partition

    cdef bint can_hold(self, int64_t last_row) noexcept nogil:
        return last_row - self._base <= <int64_t>UINT32_MAX

    cdef bint grow(self) noexcept nogil:
        """Double the room. False without memory."""
        cdef void *grown
        if self._intercepted != NULL:
            grown = realloc(self._intercepted, 2 * self.capacity * sizeof(InterceptedRow))
            if grown == NULL:
                return False
            self._intercepted = <InterceptedRow *>grown
        grown = realloc(self._rows, 2 * self.capacity * sizeof(uint32_t))
        if grown == NULL:
            return False
        self._rows = <uint32_t *>grown
        self.capacity *= 2
        return True

    cdef bint begin_run(self, int32_t index) noexcept nogil:
        """Add the next row at `index`. False without memory."""
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
        """Add rows origin + rows[0], ... of a block that begins with row `origin`; there is room for them."""
        cdef uint32_t shift = <uint32_t>(origin - self._base)
        cdef uint32_t *to = self._rows + self.count
        cdef kb_record record
        cdef int64_t i
        for i in range(count):
            to[i] = shift + <uint32_t>rows[i]
        if self._intercepted != NULL:
            for i in range(count):
                kb_row_record(block, rows[i], &record)
                self._intercepted[self.count + i].timestamp_ms = record.timestamp_ms
                self._intercepted[self.count + i].key_size = <int32_t>record.key.size
                self._intercepted[self.count + i].value_size = <int32_t>record.value.size
        self.count += <int32_t>count

    # When it is answered, or split

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
        """Write the runs from which offsets can be read later; return their number, at most `run_count`: a
        run may have got no row.
        """
        cdef int32_t run, count = 0
        for run in range(self.run_count):
            if self._runs[run].at == self._run_end(run):
                continue
            to[count].first_row = self._base + self._rows[self._runs[run].at]
            to[count].offset = base_offset + self._runs[run].index
            to[count].topic = <int32_t>(self.partition_key >> 32)
            to[count].partition = <int32_t>self.partition_key
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
        """Return the row at `index` of the batch; -1 for a foreign record."""
        cdef int32_t run, at
        for run in range(self.run_count):
            at = self._runs[run].at + index - self._runs[run].index
            if self._runs[run].at <= at < self._run_end(run):
                return self._base + self._rows[at]
        return -1

    cdef int32_t index_of(self, int64_t row) noexcept nogil:
        """Return the index of a row in the batch; -1 if it is not there."""
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

    cdef const InterceptedRow *next_intercepted(self, int32_t *index) noexcept:
        """Return the next row for interceptors, and its index in the batch; NULL after the last."""
        if self._intercepted == NULL:
            return NULL
        if self._passed_count == self.count:
            free(self._intercepted)
            self._intercepted = NULL
            return NULL
        while self._passed_count >= self._run_end(self._passed_run):
            self._passed_run += 1
        index[0] = self._runs[self._passed_run].index + self._passed_count - self._runs[self._passed_run].at
        self._passed_count += 1
        return &self._intercepted[self._passed_count - 1]

    cdef BatchRows part(self, int32_t index, int32_t count):
        """Remove and return the rows at index .. index + count - 1, which now belong to another batch."""
        cdef BatchRows part = BatchRows.new(self.table, self.partition_key, self._base, max(count, 1))
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
            if self._intercepted != NULL:
                memcpy(part._intercepted + part.count, self._intercepted + first,
                       (end - first) * sizeof(InterceptedRow))
            part.count += end - first
        return part


@cython.final
cdef class TableOutcome:
    """The known outcome of each row of a table.

    `has_codes`: rows name their topics. `too_large(size, by_memory)` makes the error of a refused row.
    `on_acknowledgement(metadata, error)` is called for every row, unless it is None.

    Attributes
    ----------
    row_count : int
        Rows so far.
    unsent_count : int
        Rows that were in no batch.
    end_error : BaseException or None
        The reason why no more rows were accepted.
    """

    def __cinit__(self):
        kb_lock_init(&self._lock)

    def __init__(self, *, bint has_codes=False, too_large=None, on_acknowledgement=None):
        self.on_acknowledgement = on_acknowledgement
        self.row_bytes = ROW_BYTES if on_acknowledgement is None else TOLD_ROW_BYTES
        self.topics = []
        self._has_codes = has_codes
        self._event = NativeEvent()
        self._listeners = []
        self._failed_batches = {}
        self._too_large = too_large
        self._made = {}
        self.refused_topics = {}

    def __dealloc__(self):
        kb_lock_destroy(&self._lock)
        kb_pages_free(self.partitions, self._sizes[PARTITIONS])
        kb_pages_free(self.codes_of_topics, self._sizes[TOPICS])
        self._forget_details()
        kb_pages_free(self._runs, self._sizes[RUNS])

    def __sizeof__(self):
        """The bytes of its rows' values, and of itself."""
        return object.__sizeof__(self) + sum(self._sizes)

    # For the thread that accepts rows

    cdef int reserve_rows(self, int64_t count) except -1 nogil:
        """Add `count` rows."""
        cdef int64_t needed = self.row_count + count
        cdef int64_t capacity = self._capacity
        cdef int64_t i
        cdef bint had_memory = True
        if needed > capacity:
            capacity = max(needed, capacity + capacity // 2, FIRST_ROWS)
        kb_lock_acquire(&self._lock)
        if capacity != self._capacity:
            had_memory = self._move(capacity)
        if had_memory:
            for i in range(self.row_count, needed):
                self.partitions[i] = -1
            if self._has_codes:
                for i in range(self.row_count, needed):
                    self.codes_of_topics[i] = -1
            if self._codes != NULL:
                for i in range(self.row_count, needed):
                    self._offsets[i] = -1
                    self._codes[i] = 0
            self.row_count = needed
        kb_lock_release(&self._lock)
        if not had_memory:
            with gil:
                raise MemoryError(f"no memory for the outcome of {needed} rows")
        return 0

    cdef bint _move(self, int64_t capacity) noexcept nogil:
        """Enlarge under the lock. False without memory."""
        if not self._resize(PARTITIONS, <void **>&self.partitions, capacity * sizeof(int32_t)):
            return False
        if self._has_codes and not self._resize(TOPICS, <void **>&self.codes_of_topics,
                                                capacity * sizeof(int32_t)):
            return False
        if self._codes != NULL and not self._move_details(capacity):
            return False
        self._capacity = capacity
        return True

    cdef bint _move_details(self, int64_t capacity) noexcept nogil:
        return (self._resize(OFFSETS, <void **>&self._offsets, capacity * sizeof(int64_t))
                and self._resize(CODES, <void **>&self._codes, capacity * sizeof(int16_t)))

    cdef bint _resize(self, int which, void **data, size_t size) noexcept nogil:
        return kb_pages_resize(data, &self._sizes[which], size)

    cdef int _give_details(self) except -1 nogil:
        """Give every row its own offset and code from now on."""
        cdef bint had_memory
        kb_lock_acquire(&self._lock)
        had_memory = self._codes != NULL or self._make_details()
        kb_lock_release(&self._lock)
        if not had_memory:
            with gil:
                raise MemoryError(f"no memory for the offsets and errors of {self.row_count} rows")
        return 0

    cdef bint _make_details(self) noexcept nogil:
        """Do that under the lock, for rows without. False without memory."""
        if not (self._move_details(max(self._capacity, <int64_t>1))
                and kb_put_run_offsets(self._runs, self._run_count, self.codes_of_topics, self.partitions,
                                       self.row_count, self._offsets)):
            self._forget_details()
            return False
        memset(self._codes, 0, self.row_count * sizeof(int16_t))
        kb_pages_free(self._runs, self._sizes[RUNS])
        self._runs = NULL
        self._sizes[RUNS] = self._run_count = 0
        return True

    cdef void _forget_details(self) noexcept nogil:
        kb_pages_free(self._offsets, self._sizes[OFFSETS])
        kb_pages_free(self._codes, self._sizes[CODES])
        self._offsets = NULL
        self._codes = NULL
        self._sizes[OFFSETS] = self._sizes[CODES] = 0

    cdef int refuse(self, int64_t row, int64_t size, bint by_memory) except -1 nogil:
        """Reject the row of `size` bytes as too large; others go on."""
        self._give_details()
        kb_lock_acquire(&self._lock)
        self._reject(row, TOO_LARGE_CODE)
        self._offsets[row] = UNSENT - 1 - (2 * size + by_memory)
        kb_lock_release(&self._lock)
        return 0

    cdef void _reject(self, int64_t row, int16_t code) noexcept nogil:
        """Reject a row under the lock."""
        self._codes[row] = code
        self._offsets[row] = UNSENT
        self._done_count += 1
        self._failed_count += 1
        self.unsent_count += 1

    cdef int refuse_topic(self, int32_t topic, object error) except -1:
        """Reject a topic's rows from now on; others go on."""
        self.refused_topics[topic] = error
        return 0

    cdef int reject(self, const int32_t *rows, int64_t count, int64_t origin, object error) except -1:
        """Reject rows origin + rows[0], ...: their topic is refused, or `end` follows."""
        cdef int16_t code = _code_of(error)
        cdef int64_t i
        if count:
            self._give_details()
        kb_lock_acquire(&self._lock)
        for i in range(count):
            self._reject(origin + rows[i], code)
        kb_lock_release(&self._lock)
        return 0

    cdef int reject_from(self, int64_t first, object error) except -1:
        """Do `reject` for all rows from `first` on."""
        cdef int16_t code = _code_of(error)
        cdef int64_t row
        if first < self.row_count:
            self._give_details()
        kb_lock_acquire(&self._lock)
        for row in range(first, self.row_count):
            self._reject(row, code)
        kb_lock_release(&self._lock)
        return 0

    cdef list end(self, object error):
        """End acceptance; rejected rows have failed with `error`. Return the callbacks if all is done, as
        (argument, function).
        """
        cdef bint is_done
        self.note_end(error)
        kb_lock_acquire(&self._lock)
        self._ended = True
        is_done = self._is_done()
        if self._capacity > self.row_count:
            self._move(max(self.row_count, <int64_t>1))
        kb_lock_release(&self._lock)
        return self._take_listeners() if is_done else []

    @cython.critical_section
    cdef void note_end(self, object error) noexcept:
        """Record why no more rows are accepted."""
        self.end_error = error

    @cython.critical_section
    cdef object _end_error_now(self):
        return self.end_error

    # For the Completions of batches

    cdef list complete(self, BatchRows rows, bint succeeded, int64_t base_offset, object error,
                      object record_errors):
        """Note the answer for the rows of a batch. Return the callback for it, or None."""
        cdef list callbacks = None if self._progress is None else [self._progress]  # which is set once
        cdef bint is_done
        if rows.count == 0:  # the batch was full before a row got in
            return None
        if not succeeded:
            self._put_failed(rows, error, record_errors)
        elif base_offset >= 0:
            self._put_offsets(rows, base_offset)
        kb_lock_acquire(&self._lock)
        if not succeeded:
            self._failed_count += rows.count
        self._done_count += rows.count
        is_done = self._is_done()
        kb_lock_release(&self._lock)
        if is_done:
            callbacks = (callbacks or []) + self._take_listeners()
        return callbacks

    cdef int _put_offsets(self, BatchRows rows, int64_t base_offset) except -1:
        cdef bint is_put
        kb_lock_acquire(&self._lock)
        is_put = self._codes == NULL and self._keep_runs(rows, base_offset)
        kb_lock_release(&self._lock)
        if not is_put:
            self._give_details()
            kb_lock_acquire(&self._lock)
            rows.put_offsets(base_offset, self._offsets)
            kb_lock_release(&self._lock)
        return 0

    cdef bint _keep_runs(self, BatchRows rows, int64_t base_offset) noexcept nogil:
        """Add a run under the lock. False if the offsets themselves take less."""
        cdef size_t needed = (self._run_count + rows.run_count) * sizeof(kb_row_run)
        if needed > self._capacity * sizeof(int64_t):
            return False
        if needed > self._sizes[RUNS] and not self._resize(RUNS, <void **>&self._runs, needed + needed // 2):
            return False
        self._run_count += rows.put_runs(base_offset, &self._runs[self._run_count])
        return True

    cdef int _put_failed(self, BatchRows rows, object error, object record_errors) except -1:
        cdef int16_t code = _code_of(error)
        cdef int64_t row
        entry = (rows.first_row(), rows, error, record_errors)
        insort(self._failed_batches.setdefault(rows.partition_key, []), entry, key=_first_row)
        self._give_details()
        kb_lock_acquire(&self._lock)
        rows.put_code(code, self._codes)
        kb_lock_release(&self._lock)
        for index, each in (record_errors or {}).items():
            code = _code_of(each)
            row = rows.row_of(<int32_t>index)
            if row >= 0:
                self._put_code(row, code)
        return 0

    cdef void _put_code(self, int64_t row, int16_t code) noexcept nogil:
        kb_lock_acquire(&self._lock)
        self._codes[row] = code
        kb_lock_release(&self._lock)

    cdef bint _is_done(self) noexcept nogil:
        return self._ended and self._done_count == self.row_count

    cdef list _take_listeners(self):
        """Finish: wake all waiters, and return the callbacks; once."""
        cdef list listeners
        cdef list none = []
        self._event.set()
        kb_lock_acquire(&self._lock)
        listeners, self._listeners = self._listeners, None
        kb_lock_release(&self._lock)
        return none if listeners is None else listeners

    # For readers

    def listen(self, argument, function):
        """Call `function(argument)` when it is done, with the callbacks of the batch answered last. False if
        it is already done.
        """
        listener = (argument, function)
        kb_lock_acquire(&self._lock)
        if self._listeners is not None:
            self._listeners.append(listener)
        is_late = self._listeners is None
        kb_lock_release(&self._lock)
        return not is_late

    def watch(self, argument, function):
        """Call `function(argument)` for every answered batch, with its callbacks."""
        self._progress = (argument, function)

    def wait(self, timeout=None):
        """True if it is done within `timeout` seconds (None: no limit)."""
        return self._event.wait(timeout)

    @property
    def is_done(self):
        """True if the outcome of every row is known."""
        return self._event.is_set()

    @property
    def done_count(self):
        """The number of rows that were delivered or failed."""
        return self._done_count

    @property
    def failed_count(self):
        return self._failed_count

    @property
    def topic_names(self):
        """The topics in order of first appearance."""
        return tuple(self.topics)

    @property
    def topic_error(self):
        """Why the first refused topic was refused; None if none was."""
        return next(iter(self.refused_topics.values()), None)

    @property
    def topic_codes(self):
        """int32, a row each, an index in `topic_names`; -1 if its topic was not read. None if all rows have
        the same.
        """
        return self._column(TOPICS) if self._has_codes else None

    @property
    def partitions(self):
        """int32, a row each; -1 if none was chosen. Like the others it is a copy of the current state, until
        the outcome is final.
        """
        return self._column(PARTITIONS)

    @property
    def offsets(self):
        """int64, a row each; -1 if it failed, is in flight, or the broker did not report it."""
        return self._column(OFFSETS)

    @property
    def error_codes(self):
        """int16, a row each; 0 if it was delivered, or is in flight."""
        return self._column(CODES)

    def _column(self, int which):
        cdef OwnedMemory copy
        cdef OutcomeColumn column
        cdef int64_t count, i
        cdef size_t width = sizeof(int32_t)
        width = sizeof(int64_t) if which == OFFSETS else sizeof(int16_t) if which == CODES else width
        if which == OFFSETS or which == CODES:
            with nogil:
                self._give_details()
        if self._event.is_set() and not (which == OFFSETS and self.unsent_count):
            column = OutcomeColumn.__new__(OutcomeColumn)
            column.table = self
            column.data = self._values(which)
            column.size = self.row_count * width
            return column
        count = self.row_count
        copy = OwnedMemory.new(count, width)
        kb_lock_acquire(&self._lock)
        if count:
            memcpy(copy.data, self._values(which), count * width)
        kb_lock_release(&self._lock)
        if which == OFFSETS:
            for i in range(count):
                (<int64_t *>copy.data)[i] = max((<int64_t *>copy.data)[i], <int64_t>-1)
        return copy

    cdef void *_values(self, int which) noexcept nogil:
        if which == OFFSETS:
            return <void *>self._offsets
        if which == CODES:
            return <void *>self._codes
        return <void *>(self.codes_of_topics if which == TOPICS else self.partitions)

    def next_unsent(self, int64_t row, int64_t end):
        """Return the first of the rows row .. end - 1 that was in no batch; -1 if there is none. Call it
        after the end of acceptance.
        """
        if self.unsent_count:
            for row in range(row, min(end, self.row_count)):
                if self._offsets[row] <= UNSENT:
                    return row
        return -1

    def topic_and_partition(self, int64_t row):
        """Return topic and partition of a row if they are known, else "" and -1."""
        cdef int32_t topic = self.codes_of_topics[row] if self._has_codes else 0
        return self.topics[topic] if topic >= 0 else "", self.partitions[row]

    def error_of(self, int64_t row):
        """Return why a row failed; None if it did not, so far."""
        cdef BatchRows rows
        cdef int16_t code = 0
        cdef int32_t partition = -1, topic = 0, index
        cdef int64_t offset = -1
        kb_lock_acquire(&self._lock)
        if 0 <= row < self.row_count and self._codes != NULL:
            code = self._codes[row]
            offset = self._offsets[row]
            partition = self.partitions[row]
            topic = self.codes_of_topics[row] if self._has_codes else 0
        kb_lock_release(&self._lock)
        if code == 0:
            return None
        if offset < UNSENT:
            return self._error_of_size(row, UNSENT - 1 - offset)
        if offset == UNSENT:
            return self.refused_topics.get(topic, self._end_error_now())
        failed = self._failed_batches.get(partition_key_of(topic, partition), ())
        at = bisect_right(failed, row, key=_first_row)
        if at > 0:
            _, rows, error, record_errors = failed[at - 1]
            index = rows.index_of(row)
            if index >= 0:
                return error if record_errors is None else record_errors.get(index, error)
        return None

    cdef object _error_of_size(self, int64_t row, int64_t size):
        error = self._made.get(row)
        if error is None:
            if len(self._made) >= MOST_MADE:
                self._made.clear()
            error = self._made.setdefault(row, self._too_large(size // 2, bool(size % 2)))
        return error


@cython.final
cdef class OutcomeColumn:
    """A column of a final outcome, as a buffer."""

    cdef TableOutcome table
    cdef void *data
    cdef Py_ssize_t size

    def __getbuffer__(self, Py_buffer *view, int flags):
        if flags & PyBUF_WRITABLE:
            raise BufferError("the outcome of rows is read-only")
        fill_view(view, self, self.data, &self.size, True)


# For a batch, which may have rows of several tables

cdef list complete_rows(BatchRows rows, bint succeeded, int64_t base_offset, object error,
                      object record_errors):
    """Notify the tables; return the callbacks to run with the batch's, as (argument, function)."""
    cdef list callbacks = []
    while rows is not None:
        callbacks += rows.table.complete(rows, succeeded, base_offset, error, record_errors) or ()
        rows = rows.next
    return callbacks


cdef int32_t observed_rows(BatchRows rows) noexcept:
    """Count rows of tables whose failures were checked."""
    cdef int32_t count = 0
    while rows is not None:
        if rows.table.is_observed:
            count += rows.count
        rows = rows.next
    return count


cdef BatchRows part_of_rows(BatchRows rows, int32_t index, int32_t count):
    """Return a part's rows of a split batch, whose records are those from `index` on."""
    cdef BatchRows first = None, part
    while rows is not None:
        part = rows.part(index, count)
        if part.count:
            part.next = first
            first = part
        rows = rows.next
    return first
