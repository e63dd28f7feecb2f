"""TableSender: writes the rows of a table into the accumulator's batches, without a Python object per row.

Theory of operation. Rows come in blocks. For a block, without the GIL: columns become spans (TableColumns),
each row gets its topic and partition, a counting sort lists the rows of each. Then, partition by partition,
rows are written under its lock to its open batch, the one that `send` also uses, until it is full or memory
is short. The GIL is needed once a batch: to open it, or to join one that others opened, and to seal it. The
batch's BatchRows notes which rows of the table it has.

Rows without a key go to the partition of the topic's sticky state, which changes while they are written. They
are written before the topic's others: to the present sticky partition, and before each of them the block's
earlier rows for that partition. So each partition gets its rows in order, wherever the others went.

Nothing here waits. If memory is short, or a topic is still unknown, `accept` returns that, and is called
again to continue where it was.
"""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.time cimport PyTime_MonotonicRaw
from libc.stdint cimport INT64_MAX, int32_t, int64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from kbatch._native.arrow.arrow cimport ArrowBatch, ArrowStream
from kbatch._native.arrow.table_columns cimport TableColumns
from kbatch._native.batch.buffer_pool cimport FIRST_IN_QUEUE, kb_chain, kb_chain_room, claim_of
from kbatch._native.batch.delivery cimport CALLBACK_BYTES
from kbatch._native.batch.producer_batch cimport (
    OPEN,
    PartitionQueue,
    ProducerBatch,
    batch_of,
    kb_batch_bytes,
    kb_batch_close,
)
from kbatch._native.batch.table_outcome cimport TableOutcome
from kbatch._native.codec.c cimport (
    KB_BATCH_HEADER_SIZE,
    kb_first_not_before,
    kb_group_rows,
    kb_open_batch,
    kb_partition_for_key,
    kb_record,
    kb_row_record,
    kb_rows,
    kb_span,
)
from kbatch._native.codec.memory cimport grown
from kbatch._native.flags cimport kb_number_peek
from kbatch._native.lock cimport kb_lock_acquire, kb_lock_release
from kbatch._native.send.accumulator cimport UNKNOWN_NS, beyond_memory, record_bytes
from kbatch._native.send.send cimport RecordSender, beyond_request, most_bytes
from kbatch._native.send.table_topics cimport PartitionRows, TableTopic, TableTopics

from functools import partial

from kbatch._native.arrow.arrow import rows_at_hand
from kbatch._native.send.accumulator import Refusal
from kbatch.errors import RecordTooLargeError

cdef extern from "row_chain.h" nogil:
    ctypedef struct kb_row_rule:
        int64_t write_limit
        int64_t record_limit
        int64_t enough_bytes
        double factor

    ctypedef enum kb_rows_status:
        KB_ROWS_FULL
        KB_ROWS_ENOUGH
        KB_ROWS_MEMORY
        KB_ROWS_TOO_LARGE

    int64_t kb_record_most(const kb_record *record) noexcept
    kb_rows_status kb_chain_append_rows(kb_chain *chain, kb_open_batch *batch, const kb_rows *rows,
                                        const int32_t *order, int64_t *next, int64_t end,
                                        const kb_row_rule *rule, int64_t *largest, int64_t *needed) noexcept

# The spans of a block stay in the second-level cache, unless so many partitions share it that each would get
# hardly any rows.
cdef int64_t BLOCK_ROWS = 2048
cdef int64_t LARGEST_BLOCK_ROWS = 16384
cdef int64_t ROWS_A_PARTITION = 32
# If rows name their topics, the number of partitions is unknown in advance.
cdef int64_t NAMED_BLOCK_ROWS = 8192
# Paid by a batch that was just opened.
cdef int32_t FEWEST_ROWS = 32

cdef object NO_METADATA = Refusal.METADATA
NO_TOPIC = "is null, and the call gives no topic for such rows: name one (topic=...), or fill the column"


def _too_large(int64_t max_request_bytes, int codec, int64_t total_bytes, bint in_transaction, int64_t size,
               bint by_memory):
    """Return the error of a refused row of so many bytes; a transaction that lacks it must be aborted."""
    error = beyond_memory(size, codec, total_bytes) if by_memory else beyond_request(size, max_request_bytes)
    return error.marked(abortable=True) if in_transaction else error


@cython.final
cdef class TableSender:
    """Sends one table.

    Parameters
    ----------
    sender : RecordSender
        Its accumulator and its settings count.
    topic : str or None
        Of all rows; or, if a column names topics, of those where it is null.
    data : anything with __arrow_c_stream__ or __arrow_c_array__
    names : dict
        Column by role (key, value, headers, timestamp, partition; topic if a column names it), each (name,
        required).
    transaction : int
        The accumulator's `transaction_count` when the table was given to the producer; 0 for none.
    seal : callable or None
        Called with a full batch; None seals it at once.
    on_acknowledgement : callable or None
        Called as `on_acknowledgement(metadata, error)` for every row that was in a batch.

    Attributes
    ----------
    unknown_partitions : list of (str, int or None)
        The topics and partitions to wait for, when `accept` last returned METADATA.
    """

    def __init__(self, RecordSender sender not None, str topic, data, dict names, *,
                 int64_t transaction=0, seal=None, on_acknowledgement=None):
        cdef int64_t block_rows
        cdef bint names_topics = "topic" in names
        self.outcome = TableOutcome(has_codes=names_topics, too_large=partial(
            _too_large, sender.max_request_bytes, sender._accumulator.context.codec,
            sender._accumulator.memory.total_memory, transaction > 0), on_acknowledgement=on_acknowledgement)
        self.unknown_partitions = []
        self._sender = sender
        self._transaction = transaction
        self._accumulator = sender._accumulator
        self._topics = TableTopics(self._accumulator, self.outcome, topic)
        self._data = data
        self._seal = seal
        self._likely_rows = FEWEST_ROWS
        if names_topics:
            block_rows = NAMED_BLOCK_ROWS
        else:
            self._topics.add(topic)
            block_rows = ROWS_A_PARTITION * self._accumulator.view_now().partition_count(topic)
            block_rows = min(max(block_rows, BLOCK_ROWS), LARGEST_BLOCK_ROWS)
        self._columns = TableColumns(names, block_rows)
        self._topic_numbers = <int32_t *>grown(NULL, block_rows * sizeof(int32_t))
        memset(self._topic_numbers, 0, block_rows * sizeof(int32_t))
        self._destinations = <int32_t *>grown(NULL, block_rows * sizeof(int32_t))
        self._order = <int32_t *>grown(NULL, block_rows * sizeof(int32_t))
        self._stream = ArrowStream(data)
        self._columns.find(self._stream)
        if sender.partitioner is not None and self._columns.partition_at < 0:
            raise ValueError(f"partitioner.class cannot choose for rows of tables; add a column "
                             f"{self._columns.partition.name!r} (int32) with the partition of every row")

    def __dealloc__(self):
        free(self._topic_numbers)
        free(self._destinations)
        free(self._order)
        free(self._starts)

    def accept(self, *, bint first_in_queue=False, int64_t blocks=INT64_MAX, now_ns=None):
        """Continue to accept rows, of so many blocks at most.

        Parameters
        ----------
        first_in_queue : bool
            The caller waited for memory, and is the first in the queue: one row is accepted.
        now_ns : int or None
            The time, by the accumulator's clock; None reads the system's, once a batch.

        Returns
        -------
        bool or Refusal
            True if all rows were accepted. A Refusal: what to wait for before the next row. False if so many
            blocks were accepted, or one row of a caller that was `first_in_queue`, and no longer is.

        Raises
        ------
        ValueError
            A row is invalid; the message names it. It and later ones are not accepted.
        ProducerClosedError, IllegalStateError
            The accumulator was closed, or the transaction has ended.
        """
        cdef Step step
        self._now_ns = UNKNOWN_NS if now_ns is None else now_ns
        self._claim = claim_of(first_in_queue, self._accumulator.in_callback())
        while True:
            if not self._has_block:
                if not self._is_read and not self._read_block():
                    return True
                self.unknown_partitions = self._topics.unknown(self._accumulator.view_now())
                if self.unknown_partitions:
                    return NO_METADATA
                with nogil:
                    self._place_block()
                if not self._has_block:
                    self.unknown_partitions = self._topics.lacking()
                    return NO_METADATA
                if self.outcome.refused_topics:
                    self._reject_refused()
            with nogil:
                step = self._append_block()
            if step == ROWS_TOO_LATE:
                raise self._accumulator.too_late()
            if step == ROWS_UNPAID:
                return self._accumulator.refuse(self._claim)
            if step == ROW_FIRST:
                return False
            self._has_block = False
            blocks -= 1
            if blocks <= 0:
                return False

    def end(self, error=None):
        """Accept no more rows. Return the callbacks that are due now, as (argument, function); the caller
        runs them, then `release_callback`.
        """
        cdef list listeners = self.outcome.end(error)
        if listeners:
            self.charge_callback()
        return listeners

    def charge_callback(self):
        """Charge for a callback that is about to run, so that a flush waits for it."""
        self._accumulator.memory.exchange(NULL, -CALLBACK_BYTES)
        self._accumulator.memory.await_callbacks(CALLBACK_BYTES)

    def release_callback(self):
        """Return what `charge_callback` took."""
        self._accumulator.memory.callbacks_ran(CALLBACK_BYTES)

    def refuse_topic(self, str topic not None, error not None):
        """Fail the rows of a topic with `error`, from this block on; others continue."""
        self._topics.refuse(topic, error)

    def refuse_beyond(self):
        """Refuse rows from now on that name a partition which the cluster, after a request, still lacks."""
        self._refuses_beyond = True

    def count_remaining(self, int64_t until_ns):
        """Read on if the data does not give its number of rows, to know them all: to the end, or, because
        some streams have none, up to a time.
        """
        cdef ArrowBatch batch
        count_remaining = getattr(self._data, "count_remaining", None)
        if count_remaining is not None:
            return count_remaining(until_ns)
        while not rows_at_hand(self._data) and PyTime_MonotonicRaw() < until_ns:
            batch = self._stream.next_batch()
            if batch is None:
                return
            self._rest_rows += batch.array.length

    def give_up(self, error not None):
        """Fail the rows that are not accepted with `error`: those that were read or counted, and all of data
        that gives its number of rows.
        """
        cdef PartitionRows part
        cdef int64_t first
        self.outcome.note_end(error)
        if self._has_block:
            for part in self._topics.kept_parts:
                self.outcome.reject(self._order + part.next, part.end - part.next, self._first_row, error)
        self._has_block = self._is_read = False
        first = self.outcome.row_count
        if self._batch is not None:
            self.outcome.reserve_rows(self._batch.array.length - self._next_row)
            self._batch = None
        self.outcome.reserve_rows(self._rest_rows)
        self.outcome.reserve_rows(max(rows_at_hand(self._data) - self.outcome.row_count, <int64_t>0))
        self.outcome.reject_from(first, error)

    # A block of rows

    cdef bint _read_block(self) except -1:
        """Return False at the end of the data."""
        while self._batch is None or self._next_row == self._batch.array.length:
            if self._batch is not None:
                self._columns.rows_before += self._batch.array.length
            self._batch = None
            batch = self._stream.next_batch()
            if batch is None:
                return False
            self._columns.bind(self._stream, batch)
            self._batch = batch
            self._next_row = 0
        with nogil:
            self._fill_block()
        self._is_read = True
        return True

    cdef int _fill_block(self) except -1 nogil:
        """Make spans of its rows, and find their topics."""
        cdef int64_t first = self._next_row
        cdef int64_t count = self._columns.block_length(first, self._batch.array.length - first)
        cdef int64_t good
        self._columns.fill(first, count)
        if self._columns.topics == NULL:
            return 0
        good = self._topics.number_rows(self._columns.topics, count, self._topic_numbers)
        if good < count:
            with gil:
                self._columns.refuse(self._columns.topic.name, first + good, NO_TOPIC
                                     if self._columns.topics[good].size < 0 else "is not UTF-8")
        return 0

    cdef bint _place_block(self) except -1 nogil:
        """Give each row its partition, and group them; False if partitions are unknown."""
        cdef int64_t count = self._columns.rows.count
        cdef int64_t first = 0, end, i
        cdef bint has_all = True
        cdef int32_t *partitions
        cdef void *part
        while first < count:
            end = first + 1
            while end < count and self._topic_numbers[end] == self._topic_numbers[first]:
                end += 1
            if not self._choose_partitions(
                    <TableTopic>self._topics.topics[self._topic_numbers[first]], first, end):
                has_all = False
            first = end
        if not has_all:
            return False
        self._group_rows()
        self._first_row = self.outcome.row_count
        self.outcome.reserve_rows(count)  # the last step that may fail, because reserved rows are in a part
        partitions = self.outcome.partitions + self._first_row
        for i in range(count):
            part = self._topics.parts[self._destinations[i]]
            partitions[i] = <int32_t>(<PartitionRows>part).partition_key
        if self._columns.topics != NULL:
            memcpy(self.outcome.codes_of_topics + self._first_row, self._topic_numbers,
                   count * sizeof(int32_t))
        self._next_row += count
        self._is_read = False
        self._has_block = True
        return True

    cdef bint _choose_partitions(self, TableTopic topic, int64_t first, int64_t end) except -1 nogil:
        """Find the parts of rows first .. end - 1 of the topic; that of the sticky partition if it is
        refused. False if rows name partitions that it does not have, as far as is known.
        """
        cdef const kb_span *keys = self._columns.rows.keys
        cdef bint may_be_named = self._columns.partition_at >= 0
        cdef bint hashes_keys = self._sender.hashes_keys
        cdef int32_t partition_count = topic.view.partition_count if topic.error is None else 0
        cdef int32_t *beyond = NULL if self._refuses_beyond else &topic.beyond
        cdef int32_t partition, part
        cdef int64_t i
        for i in range(first, end):
            partition = -1
            if may_be_named and partition_count:
                partition = self._columns.named_partition(
                    self._next_row + i, partition_count, topic.name, beyond
                )
                if topic.beyond >= 0:
                    continue
                if partition < 0 and self._sender.partitioner is not None:
                    self._columns.refuse(self._columns.partition.name, self._next_row + i,
                                         "is null, which partitioner.class does not allow")
            if partition < 0 and partition_count == 1:
                partition = 0
            elif partition < 0 and partition_count and keys[i].size >= 0 and hashes_keys:
                partition = kb_partition_for_key(keys[i].data, keys[i].size, partition_count)
            part = topic.sticky_part if partition < 0 else topic.part_of[partition]
            self._destinations[i] = part if part >= 0 else self._topics.part_to(topic, partition)
        return topic.beyond < 0

    cdef int _group_rows(self) except -1 nogil:
        cdef int32_t i, count = self._topics.part_count
        cdef void *part
        if self._starts_capacity < count + 1:
            self._starts_capacity = 2 * count + 1
            self._starts = <int32_t *>grown(self._starts, self._starts_capacity * sizeof(int32_t))
        kb_group_rows(self._destinations, self._columns.rows.count, count, self._starts, self._order)
        self._part_at = 0
        for i in range(count):
            part = self._topics.parts[i]
            (<PartitionRows>part).next = self._starts[i]
            (<PartitionRows>part).end = self._starts[i + 1]
        return 0

    cdef int _reject_refused(self) except -1:
        """Fail the rows of refused topics, which are in the parts of rows without a partition."""
        cdef PartitionRows part
        for part in self._topics.kept_parts:
            if part.topic.error is not None and part.next < part.end:
                self.outcome.reject(self._order + part.next, part.end - part.next, self._first_row,
                                    part.topic.error)
                part.next = part.end
        return 0

    # Its rows into batches. Parts are borrowed from TableTopics where there is no GIL.

    cdef Step _append_block(self) except? ROWS_TOO_LATE nogil:
        """Append all rows of the block; return why the next one must wait."""
        cdef Step step = ROWS_IN
        cdef void *part
        while step == ROWS_IN and self._part_at < self._topics.part_count:
            part = self._topics.parts[self._part_at]
            if (<PartitionRows>part).queue is None:
                step = self._append_sticky(<PartitionRows>part)
            else:
                step = self._append_rows(<PartitionRows>part, &(<PartitionRows>part).next,
                                         (<PartitionRows>part).end, False)
            if step == ROWS_IN:
                self._part_at += 1
        return step

    cdef Step _append_sticky(self, PartitionRows sticky) except? ROWS_TOO_LATE nogil:
        """Append the rows for a topic's sticky partition, and those of that partition that come before them.
        """
        cdef Step step
        cdef void *part
        cdef int64_t before, end
        while sticky.next < sticky.end:
            part = self._topics.parts[self._topics.part_to(
                sticky.topic, sticky.topic.info.sticky.peek(sticky.topic.view))]
            before = kb_first_not_before(self._order, (<PartitionRows>part).next, (<PartitionRows>part).end,
                                         self._order[sticky.next])
            if before > (<PartitionRows>part).next:
                step = self._append_rows(<PartitionRows>part, &(<PartitionRows>part).next, before, False)
            else:
                end = sticky.end
                if before < (<PartitionRows>part).end:
                    end = kb_first_not_before(self._order, sticky.next, end, self._order[before])
                step = self._append_rows(<PartitionRows>part, &sticky.next, end, True)
            if step != ROWS_IN and step != ROWS_MOVED:
                return step
        return ROWS_IN

    cdef Step _append_rows(self, PartitionRows part, int64_t *next, int64_t end,
                           bint sticky) except? ROWS_TOO_LATE nogil:
        """Append rows order[next[0]] .. order[end - 1], in as many batches as needed; with `sticky`, while
        the part's partition is the sticky one.
        """
        cdef Step step
        cdef int64_t first
        cdef bint closed
        while next[0] < end:
            first = next[0]
            closed = False
            step = self._append_open(part, next, first + 1 if self._claim == FIRST_IN_QUEUE else end, sticky,
                                     &closed)
            if step == ROWS_UNOPENED:
                with gil:
                    step = self._open(part, next, sticky, &closed)
            if closed:
                with gil:
                    self._hand_over(part)
            if step == ROW_TOO_LARGE:
                self._refuse_row(next, False)
            elif step != ROWS_IN:
                return step
            if self._claim == FIRST_IN_QUEUE and next[0] > first:
                return ROW_FIRST
        return ROWS_IN

    cdef Step _append_open(self, PartitionRows part, int64_t *next, int64_t end, bint sticky,
                           bint *closed) noexcept nogil:
        """Append the rows that fit in the open batch; set `closed` if it takes no more."""
        cdef Step step
        cdef int64_t first = next[0]
        cdef int64_t bytes_before
        kb_lock_acquire(&part.queue.raw.lock)
        if self._accumulator.is_too_late(self._transaction):
            step = ROWS_TOO_LATE
        elif sticky and part.topic.info.sticky.has_left(part.queue.partition):
            step = ROWS_MOVED
        elif (part.batch is None or part.queue.raw.last != &part.batch.raw or part.batch.raw.state != OPEN
              or not part.rows.can_hold(self._first_row + self._columns.rows.count)):
            step = ROWS_UNOPENED
        else:
            bytes_before = part.batch.raw.contents.records_bytes
            step = self._write(part, next, end, sticky, closed)
            part.queue.raw.next_number += next[0] - first
            part.queue.raw.appended_bytes += part.batch.raw.contents.records_bytes - bytes_before
        kb_lock_release(&part.queue.raw.lock)
        return step

    # With the lock of the partition held

    cdef Step _write(self, PartitionRows part, int64_t *next, int64_t end, bint sticky,
                     bint *closed) noexcept nogil:
        """Write rows to the part's batch."""
        cdef kb_row_rule rule
        cdef kb_rows_status status
        cdef int64_t needed = 0, estimated_before, first, i
        rule.write_limit = self._accumulator.context.batch_size
        rule.record_limit = self._sender.max_request_bytes - KB_BATCH_HEADER_SIZE
        rule.factor = part.batch.raw.factor
        rule.enough_bytes = INT64_MAX
        while next[0] < end:
            if not self._has_room_for_row(part):
                return ROWS_UNPAID
            first = next[0]
            estimated_before = kb_batch_bytes(&part.batch.raw) if part.batch.raw.contents.count else 0
            if sticky:
                rule.enough_bytes = estimated_before + part.topic.info.sticky.room_bytes()
            status = kb_chain_append_rows(
                &part.batch.raw.chain, &part.batch.raw.contents, &self._columns.rows, self._order, next,
                min(end, first + part.rows.capacity - part.rows.count), &rule,
                &part.batch.raw.largest_record_bytes, &needed)
            closed[0] = status == KB_ROWS_FULL
            if next[0] > first:
                part.rows.add(self._order + first, next[0] - first, self._first_row, &self._columns.rows)
                part.batch.completion.record_count = part.batch.raw.contents.count
                self.has_begun = True
                if sticky:
                    for i in range(first, next[0]):
                        self.outcome.partitions[self._first_row + self._order[i]] = part.queue.partition
                    part.topic.info.sticky.count(
                        part.topic.view, kb_batch_bytes(&part.batch.raw) - estimated_before, closed[0])
            if closed[0]:
                kb_batch_close(&part.queue.raw, &part.batch.raw)
                return ROWS_IN
            if status == KB_ROWS_TOO_LARGE:
                return ROW_TOO_LARGE
            if status == KB_ROWS_ENOUGH:
                return ROWS_MOVED
            if status == KB_ROWS_MEMORY and not part.batch.grow(needed - kb_chain_room(&part.batch.raw.chain),
                                                                self._claim):
                return ROWS_UNPAID
        return ROWS_IN

    cdef bint _has_room_for_row(self, PartitionRows part) noexcept nogil:
        """True if there is room for the next row's number among the part's; make room if possible."""
        cdef int64_t more_bytes = part.rows.capacity * self.outcome.row_bytes
        if part.rows.count == part.rows.capacity:
            if not part.batch.charge_state(more_bytes, self._claim) or not part.rows.grow():
                return False
            part.batch.raw.state_left_bytes -= more_bytes
        return part.rows.begin_run(part.batch.raw.contents.count)

    # Once a batch, with the GIL

    cdef Step _open(self, PartitionRows part, int64_t *next, bint sticky, bint *closed) except? ROWS_TOO_LATE:
        """Make the partition's open batch the part's. If there is none, open one, with a row in it."""
        cdef int64_t now_ns = self._accumulator.now_ns() if self._now_ns == UNKNOWN_NS else self._now_ns
        cdef int64_t row = self._first_row + self._order[next[0]]
        cdef int32_t capacity = FEWEST_ROWS
        cdef ProducerBatch fresh = None
        cdef BatchRows rows
        cdef kb_record record
        cdef Step step
        PyErr_CheckSignals()
        part.batch = None  # here, because it may be the last reference
        part.rows = None
        kb_row_record(&self._columns.rows, self._order[next[0]], &record)
        if kb_record_most(&record) > self._sender.max_request_bytes - KB_BATCH_HEADER_SIZE:
            return ROW_TOO_LARGE
        while True:
            rows = BatchRows.new(self.outcome, part.partition_key, row, capacity)
            kb_lock_acquire(&part.queue.raw.lock)
            try:
                step = self._join(part, fresh, rows, next, sticky, closed)
            finally:
                kb_lock_release(&part.queue.raw.lock)
            if step == ROWS_IN and part.batch is fresh:
                self._accumulator.alarm.wake_for(kb_number_peek(&part.queue.raw.leader), fresh.raw.created_ns,
                                                 self._accumulator.linger_ns)
            elif fresh is not None:
                fresh.discard()
            if step != ROWS_UNOPENED:
                return step
            try:
                fresh = self._accumulator.new_batch(part.queue, &record, now_ns, self._claim)
            except RecordTooLargeError:
                self._refuse_row(next, True)
                return ROWS_IN
            if fresh is None:
                return ROWS_UNPAID
            if fresh.charge_state(self._likely_rows * self.outcome.row_bytes, self._claim):
                capacity = self._likely_rows

    cdef Step _join(self, PartitionRows part, ProducerBatch fresh, BatchRows rows, int64_t *next, bint sticky,
                    bint *closed) noexcept:
        """Open with the lock held; `fresh` becomes the open batch if there is none."""
        cdef PartitionQueue queue = part.queue
        cdef ProducerBatch batch = batch_of(queue.raw.last)
        cdef Step step
        if self._accumulator.is_too_late(self._transaction):
            return ROWS_TOO_LATE
        if batch is not None and batch.raw.state != OPEN:
            batch = None
        if sticky:
            if batch is None:  # a switch may have waited for that
                part.topic.info.sticky.count(part.topic.view, 0, True)
            if part.topic.info.sticky.has_left(queue.partition):
                return ROWS_MOVED
        if batch is None and fresh is None:
            return ROWS_UNOPENED
        if batch is None:
            batch = fresh
        if not batch.charge_state(rows.capacity * self.outcome.row_bytes, self._claim):
            return ROWS_UNPAID
        batch.raw.state_left_bytes -= rows.capacity * self.outcome.row_bytes
        rows.next = batch.completion.rows
        batch.completion.rows = rows
        part.batch = batch
        part.rows = rows
        if batch is not fresh:
            return ROWS_IN
        step = self._write(part, next, next[0] + 1, sticky, closed)
        if batch.raw.contents.count == 0:
            part.batch = None
            return step
        self._accumulator.enqueue(queue, fresh)
        queue.raw.next_number += 1
        queue.raw.appended_bytes += batch.raw.contents.records_bytes
        return ROWS_IN

    cdef int _refuse_row(self, int64_t *next, bint by_memory) except -1 nogil:
        """Fail only the next row, which is too large."""
        cdef int32_t row = self._order[next[0]]
        cdef kb_record record
        kb_row_record(&self._columns.rows, row, &record)
        self.outcome.refuse(self._first_row + row,
                            record_bytes(&record) if by_memory else most_bytes(&record), by_memory)
        self.has_begun = True
        next[0] += 1
        return 0

    cdef int _hand_over(self, PartitionRows part) except -1:
        """Pass a full batch to its sealer."""
        cdef ProducerBatch batch = part.batch
        self._likely_rows = max(FEWEST_ROWS, part.rows.count + part.rows.count // 8)
        part.batch = None
        if self._seal is None:
            self._accumulator.hand_to_sealer(batch)
        else:
            self._seal(batch)
        return 0
