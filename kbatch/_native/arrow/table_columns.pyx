"""TableColumns: the columns of a table by their roles, and its rows block by block as spans.

Theory of operation. The columns are found once, in the schema of the stream, and bound to each of its record
batches. Then a block of rows of a batch is filled in: keys, values, timestamps and headers in the form of
kb_rows, pointing into Arrow's memory. Faults of rows are found here, with column and row.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free

from kbatch._native.arrow.arrow cimport (
    ArrowBatch,
    ArrowStream,
    BinaryColumn,
    Column,
    HeadersColumn,
    IntColumn,
    StringColumn,
    TimestampColumn,
    child_index,
    kb_column_spans,
    kb_is_valid,
)
from kbatch._native.codec.c cimport kb_record_header, kb_span
from kbatch._native.codec.memory cimport grown

import time

from kbatch._native.arrow.arrow import header_faults
from kbatch.errors.rows import InvalidRowError

cdef int64_t BLOCK_HEADERS = 65536


@cython.final
cdef class TableColumns:
    """The columns of a table, and a block of at most `block_rows` of its rows.

    `names`: by role (key, value, headers, timestamp, partition; topic if a column names it), each (name,
    required).
    """

    def __init__(self, dict names, int64_t block_rows):
        self._names = names
        self._columns = []
        self.block_rows = block_rows
        self.rows.now_ms = <int64_t>(time.time() * 1000)
        self._spans = <kb_span *>grown(NULL, (3 if "topic" in names else 2) * block_rows * sizeof(kb_span))
        if "topic" in names:
            self.topics = self._spans + 2 * block_rows
        self._numbers = <int64_t *>grown(NULL, 3 * block_rows * sizeof(int64_t))

    def __dealloc__(self):
        free(self._spans)
        free(self._numbers)
        free(self._header_spans)

    cdef int find(self, ArrowStream stream) except -1:
        """Find the columns in the schema of the stream."""
        if (<bytes>stream.schema.format) != b"+s":
            raise TypeError("data must be a table: a stream or array of structs, one field a column")
        self.key = BinaryColumn(self._names["key"][0])
        self.value = BinaryColumn(self._names["value"][0])
        self.headers = HeadersColumn(self._names["headers"][0])
        self.timestamp = TimestampColumn(self._names["timestamp"][0])
        self.partition = IntColumn(self._names["partition"][0])
        self.key_at = self._find(stream, "key", self.key)
        self.value_at = self._find(stream, "value", self.value)
        self.headers_at = self._find(stream, "headers", self.headers)
        self.timestamp_at = self._find(stream, "timestamp", self.timestamp)
        self.partition_at = self._find(stream, "partition", self.partition)
        if self.topics != NULL:
            self.topic = StringColumn(self._names["topic"][0])
            self.topic_at = self._find(stream, "topic", self.topic)
        return 0

    cdef int64_t _find(self, ArrowStream stream, str role, Column column) except -2:
        name, required = self._names[role]
        at = child_index(stream.schema, name)
        if at < 0 and required:
            columns = [stream.schema.children[i].name.decode() for i in range(stream.schema.n_children)]
            raise ValueError(f"there is no column {name!r} (the {role}); the columns are "
                             f"{', '.join(columns) or 'none'}")
        if at >= 0:
            self._columns.append((at, column))
        return at

    cdef int bind(self, ArrowStream stream, ArrowBatch batch) except -1:
        """Point the columns to the buffers of a record batch."""
        cdef int64_t offset = batch.array.offset
        if batch.array.n_buffers and batch.array.buffers[0] != NULL and batch.array.null_count != 0:
            raise ValueError("data has rows that are null as a whole: filter them out")
        for at, column in self._columns:
            (<Column>column).bind(stream.schema.children[<int64_t>at], batch.array.children[<int64_t>at],
                                  offset)
        return 0

    cdef int64_t block_length(self, int64_t first, int64_t left) noexcept nogil:
        """Return the rows of the next block: fewer if they have very many headers."""
        cdef int64_t count = min(left, self.block_rows)
        cdef int64_t start
        if self.headers_at >= 0:
            start = self.headers.start(first)
            while count > 1 and self.headers.start(first + count) - start > BLOCK_HEADERS:
                count //= 2
        return count

    cdef int fill(self, int64_t first, int64_t count) except -1 nogil:
        """Fill in rows first .. first + count - 1 of the record batch, at most `block_rows`, as spans."""
        cdef kb_span *keys = self._spans
        cdef kb_span *values = self._spans + self.block_rows
        cdef int64_t good
        cdef int64_t i
        self.rows.count = count
        self.rows.keys = keys
        self.rows.values = values
        self.rows.timestamps_ms = NULL
        self.rows.headers = NULL
        if self.key_at >= 0:
            self._fill_column(self.key, first, count, keys)
        else:
            for i in range(count):
                keys[i].data, keys[i].size = NULL, -1
        self._fill_column(self.value, first, count, values)
        if self.topics != NULL:
            self._fill_column(self.topic, first, count, self.topics)
        if self.timestamp_at >= 0:
            self.rows.timestamps_ms = self._numbers
            good = self.timestamp.fill(first, count, self.rows.now_ms, self._numbers)
            if good < count:
                self.refuse(self.timestamp.name, first + good, "is before 1970 or beyond 64 bits of "
                            "milliseconds")
        if self.headers_at >= 0:
            self._fill_headers(first, count)
        return 0

    cdef int _fill_column(self, BinaryColumn column, int64_t first, int64_t count,
                          kb_span *spans) except -1 nogil:
        cdef int64_t good = kb_column_spans(&column.column, first, count, spans, 1)
        if good < count:
            self.refuse(column.name, first + good, "its dictionary index or offsets are impossible")
        return 0

    cdef int _fill_headers(self, int64_t first, int64_t count) except -1 nogil:
        cdef int64_t items = self.headers.start(first + count) - self.headers.start(first)
        cdef int64_t *starts = self._numbers + self.block_rows
        cdef int64_t *counts = self._numbers + 2 * self.block_rows
        cdef int64_t good
        cdef int why = 0
        if items > self._header_capacity or self._header_spans == NULL:
            self._header_capacity = max(items, 64)
            self._header_spans = <kb_record_header *>grown(
                self._header_spans, self._header_capacity * sizeof(kb_record_header))
        good = self.headers.fill(first, count, starts, counts, self._header_spans, &why)
        if good < count:
            with gil:
                self.refuse(self.headers.name, first + good, f"has a header that {header_faults[why]}")
        self.rows.header_starts = starts
        self.rows.header_counts = counts
        self.rows.headers = self._header_spans
        return 0

    cdef int32_t named_partition(self, int64_t row, int32_t partition_count, str topic,
                                 int32_t *beyond) except -2 nogil:
        """Return the partition that a row of the record batch names, of `partition_count`; -1 for none.

        If it is beyond these, `beyond` gets the highest such one; if that is NULL, the row is refused.
        """
        cdef int32_t partition
        if self.partition_at < 0 or not kb_is_valid(self.partition.validity, self.partition.offset + row):
            return -1
        partition = self.partition.values[self.partition.offset + row]
        if partition >= partition_count and beyond != NULL:
            beyond[0] = max(beyond[0], partition)
            return -1
        if partition < 0 or partition >= partition_count:
            with gil:
                self.refuse(self.partition.name, row,
                            f"partition {partition} is out of range 0..{partition_count - 1}"
                            f"{'' if topic is None else ' of topic ' + topic}")
        return partition

    cdef int refuse(self, str name, int64_t row, str why) except -1 with gil:
        row += self.rows_before
        raise InvalidRowError(f"column {name!r}, row {row}: {why}", row)
