from libc.stdint cimport int32_t, int64_t

from kbatch._native.arrow.arrow cimport ArrowBatch, ArrowStream
from kbatch._native.arrow.table_columns cimport TableColumns
from kbatch._native.batch.buffer_pool cimport Claim
from kbatch._native.batch.producer_batch cimport ProducerBatch
from kbatch._native.batch.table_outcome cimport BatchRows, TableOutcome
from kbatch._native.send.accumulator cimport RecordAccumulator
from kbatch._native.send.send cimport RecordSender
from kbatch._native.send.table_topics cimport PartitionRows, TableTopic, TableTopics

cdef enum Step:
    ROWS_IN
    ROW_TOO_LARGE       # the next one
    ROWS_MOVED          # the sticky partition is another by now
    ROWS_UNOPENED       # the part has no open batch
    ROWS_UNPAID         # memory is short
    ROWS_TOO_LATE       # the accumulator was closed
    ROW_FIRST           # the first in the queue has got a row in


cdef class TableSender:
    cdef readonly TableOutcome outcome
    cdef RecordSender _sender
    cdef RecordAccumulator _accumulator
    cdef TableColumns _columns
    cdef TableTopics _topics
    cdef readonly list unknown_partitions
    cdef bint _refuses_beyond        # rows that name partitions that the topic has not
    cdef object _seal
    cdef int64_t _transaction
    cdef Claim _claim
    cdef int64_t _now_ns             # UNKNOWN_NS until the clock is read
    cdef int32_t _likely_rows        # of a batch
    cdef readonly bint has_begun     # a row was accepted, or refused by itself
    # where in the data
    cdef object _data
    cdef ArrowStream _stream
    cdef ArrowBatch _batch
    cdef int64_t _next_row           # of the batch, that no block has had
    cdef int64_t _rest_rows          # that were read to be counted only
    # the present block
    cdef bint _is_read               # its rows are spans
    cdef bint _has_block             # they are in parts, too
    cdef int64_t _first_row          # in the whole table
    cdef int32_t *_topic_numbers     # by row; all 0 where the table has one topic
    cdef int32_t *_destinations      # parts, by row
    cdef int32_t *_order             # rows by destination
    cdef int32_t *_starts
    cdef int32_t _starts_capacity
    cdef int32_t _part_at            # those before are through

    cdef bint _read_block(self) except -1
    cdef int _fill_block(self) except -1 nogil
    cdef bint _place_block(self) except -1 nogil
    cdef bint _choose_partitions(self, TableTopic topic, int64_t first, int64_t end) except -1 nogil
    cdef int _group_rows(self) except -1 nogil
    cdef int _reject_refused(self) except -1
    cdef Step _append_block(self) except? ROWS_TOO_LATE nogil
    cdef Step _append_sticky(self, PartitionRows sticky) except? ROWS_TOO_LATE nogil
    cdef Step _append_rows(self, PartitionRows part, int64_t *next, int64_t end,
                           bint sticky) except? ROWS_TOO_LATE nogil
    cdef Step _append_open(self, PartitionRows part, int64_t *next, int64_t end, bint sticky,
                           bint *closed) noexcept nogil
    cdef Step _write(self, PartitionRows part, int64_t *next, int64_t end, bint sticky,
                     bint *closed) noexcept nogil
    cdef bint _has_room_for_row(self, PartitionRows part) noexcept nogil
    cdef Step _open(self, PartitionRows part, int64_t *next, bint sticky, bint *closed) except? ROWS_TOO_LATE
    cdef Step _join(self, PartitionRows part, ProducerBatch fresh, BatchRows rows, int64_t *next, bint sticky,
                    bint *closed) noexcept
    cdef int _refuse_row(self, int64_t *next, bint by_memory) except -1 nogil
    cdef int _hand_over(self, PartitionRows part) except -1
