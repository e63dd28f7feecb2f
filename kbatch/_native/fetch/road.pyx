"""FetchRoad: which partitions a Fetch names, what it asks of them, and what its answer means for them.

The rules stand in C (src_c/fetch_road.h), over memory that the objects of this module own. What is usual in
an answer is done here; what needs a decision is left to a judge, the Fetcher.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from kbatch._native.codec.c cimport kb_span
from kbatch._native.codec.record_batch cimport decompression_limit
from kbatch._native.codec.wire cimport text_of
from kbatch._native.fetch.fetch_answer cimport FetchAnswer, aborted_of
from kbatch._native.fetch.fetch_wire cimport (
    KB_FETCH_FIRST_VERSION,
    KB_FETCH_LAST_VERSION,
    kb_fetch_head,
    kb_fetch_list_free,
    kb_fetch_part,
    kb_fetch_room,
    kb_fetch_write,
)
from kbatch._native.fetch.fetched_batches cimport FetchedRecords, records_in


cdef int64_t NO_END = INT64_MAX


@cython.no_gc_clear
cdef class PartitionReading:
    """A partition from an `assign` or `seek` to the next: what decides about requests and answers. Its
    attributes are those of kbatch.core.consumer.partition_state.PartitionState.

    Parameters
    ----------
    topic_name : str
    partition_number : int
    end_offset : int
        The partition is complete when its position is there; 2**63 - 1.
    """

    def __init__(self, str topic_name not None, int32_t partition_number, int64_t end_offset):
        kb_reading_init(&self._reading, <void *>self)
        self.topic_name = topic_name
        self.partition_number = partition_number
        self._reading.end_offset = end_offset

    def __dealloc__(self):
        if self._reading.slot != NULL:
            kb_fetch_remove_reading(&self._road._road, &self._reading)

    @property
    def end_offset(self):
        return self._reading.end_offset

    @property
    def topic_id(self):
        return self._topic_id

    @topic_id.setter
    def topic_id(self, bytes topic_id not None):
        if len(topic_id) != 16:
            raise ValueError(f"topic_id must have 16 bytes, got {len(topic_id)}")
        self._topic_id = topic_id
        memcpy(self._reading.topic_id, <const uint8_t *>topic_id, 16)

    @property
    def is_in_flight(self):
        return self._reading.in_flight != NULL

    @property
    def asked_offset(self):
        return self._reading.asked.offset

    @property
    def asked_epoch(self):
        return self._reading.asked.leader_epoch

    def withdraw(self):
        """Let go of the request that asks for it: its answer does not count any more."""
        kb_reading_withdraw(&self._reading)

    def place(self, FetchRoad road not None, FetchNode node):
        """Read from a node from now on, until leaders may have moved; from none if it is None."""
        cdef bint is_leader = node is not None and self._reading.replica_id < 0
        self._node = node
        self._reading.node = NULL if node is None else &node._node
        self._reading.placement = road._road.placement if is_leader else 0

    @property
    def is_paused(self):
        return self._reading.is_paused

    @is_paused.setter
    def is_paused(self, bint value):
        self._reading.is_paused = value

    @property
    def is_topic_sure(self):
        return self._reading.is_topic_sure

    @is_topic_sure.setter
    def is_topic_sure(self, bint value):
        self._reading.is_topic_sure = value

    @property
    def is_failing(self):
        return self._reading.is_failing

    @is_failing.setter
    def is_failing(self, bint value):
        self._reading.is_failing = value

    @property
    def is_fetching(self):
        return self._reading.is_fetching

    @is_fetching.setter
    def is_fetching(self, bint value):
        self._reading.is_fetching = value

    @property
    def leader_epoch(self):
        return self._reading.leader_epoch

    @leader_epoch.setter
    def leader_epoch(self, int32_t value):
        self._reading.leader_epoch = value

    @property
    def replica_id(self):
        return self._reading.replica_id

    @replica_id.setter
    def replica_id(self, int32_t value):
        self._reading.replica_id = value

    @property
    def fetch_offset(self):
        return self._reading.fetch_offset

    @fetch_offset.setter
    def fetch_offset(self, int64_t value):
        self._reading.fetch_offset = value

    @property
    def last_epoch(self):
        return self._reading.last_epoch

    @last_epoch.setter
    def last_epoch(self, int32_t value):
        self._reading.last_epoch = value

    @property
    def checked_epoch(self):
        return self._reading.checked_epoch

    @checked_epoch.setter
    def checked_epoch(self, int32_t value):
        self._reading.checked_epoch = value

    @property
    def needed_bytes(self):
        return self._reading.needed_bytes

    @needed_bytes.setter
    def needed_bytes(self, int64_t value):
        self._reading.needed_bytes = value

    @property
    def backlog_bytes(self):
        return self._reading.backlog_bytes

    @backlog_bytes.setter
    def backlog_bytes(self, int64_t value):
        self._reading.backlog_bytes = value

    @property
    def not_before_ns(self):
        return self._reading.not_before_ns

    @not_before_ns.setter
    def not_before_ns(self, value):
        self._reading.not_before_ns = min(value, INT64_MAX)

    @property
    def high_watermark(self):
        return self._reading.high_watermark

    @high_watermark.setter
    def high_watermark(self, int64_t value):
        self._reading.high_watermark = value

    @property
    def last_stable_offset(self):
        return self._reading.last_stable_offset

    @last_stable_offset.setter
    def last_stable_offset(self, int64_t value):
        self._reading.last_stable_offset = value

    @property
    def log_start_offset(self):
        return self._reading.log_start_offset

    @log_start_offset.setter
    def log_start_offset(self, int64_t value):
        self._reading.log_start_offset = value


@cython.no_gc_clear
cdef class FetchNode:
    """A node that is read from: its session (KIP-227), and its request in flight, one at most.

    Parameters
    ----------
    road : FetchRoad
    node_id : int

    Attributes
    ----------
    session_id, epoch : int
        0 if there is no session, and the epoch of the next request.
    version : int
        Of the last request.
    sent_ns, reserved_bytes : int
        When the last request was made, and the bytes that are reserved for its answer.
    is_in_flight : bool
        True if there is a request in flight.
    is_full : bool
        True if the answer has all the partitions; in a session it has those that have changed.
    candidate_count : int
        The number of partitions that the next request can ask for.
    lacks_topic_ids : bool
        True if the topic id of any candidate is unknown.
    """

    def __init__(self, FetchRoad road not None, int32_t node_id):
        self._road = road
        self._node.node_id = node_id
        self._node.owner = <void *>self

    def __dealloc__(self):
        if self._road is not None:
            kb_fetch_end_request(&self._node)
            kb_fetch_forget_session(&self._road._road, &self._node)
        kb_fetch_list_free(&self._node.named)
        kb_fetch_list_free(&self._node.forgotten)

    @property
    def node_id(self):
        return self._node.node_id

    @property
    def session_id(self):
        return self._node.session_id

    @session_id.setter
    def session_id(self, int32_t value):
        self._node.session_id = value

    @property
    def epoch(self):
        return self._node.session_epoch

    @epoch.setter
    def epoch(self, int32_t value):
        self._node.session_epoch = value

    @property
    def version(self):
        return self._node.version

    @property
    def is_in_flight(self):
        return self._node.is_in_flight

    @is_in_flight.setter
    def is_in_flight(self, bint value):
        self._node.is_in_flight = value

    @property
    def is_full(self):
        return self._node.is_full

    @property
    def candidate_count(self):
        return self._node.candidate_count

    @property
    def lacks_topic_ids(self):
        return self._node.lacks_topic_ids

    def candidates(self):
        """Return the partitions that the next request can ask for, in order."""
        cdef kb_reading *reading = self._node.candidate_first
        cdef list found = []
        while reading != NULL:
            found.append(<object>reading.owner)
            reading = reading.candidate_next
        return found

    def choose(self, list readings not None):
        """Let the next request ask for these candidates only."""
        cdef PartitionReading reading
        kb_fetch_clear_candidates(&self._node)
        for reading in readings:
            kb_fetch_add_candidate(&self._node, &reading._reading)

    def asked(self):
        """Return the partitions of the request whose answer counts for them, in order."""
        cdef kb_reading *reading = self._node.asked_first
        cdef list found = []
        while reading != NULL:
            found.append(<object>reading.owner)
            reading = reading.asked_next
        return found

    def ask(self, int version, int64_t reserved_bytes, int64_t now_ns):
        """Make a request for all candidates; `write` must follow."""
        cdef int64_t needed_bytes
        if not KB_FETCH_FIRST_VERSION <= version <= KB_FETCH_LAST_VERSION:
            raise ValueError(f"version must be {KB_FETCH_FIRST_VERSION} to {KB_FETCH_LAST_VERSION}, got "
                             f"{version}")
        needed_bytes = kb_fetch_ask_all(&self._road._road, &self._node, version, self._road._partition_bytes)
        if needed_bytes < 0:
            raise MemoryError
        self.reserved_bytes = reserved_bytes
        self.sent_ns = now_ns
        # a batch that did not fit is asked for in full, although it is not reserved
        self._most_bytes = max(reserved_bytes, needed_bytes)

    def write(self, message not None, int version, int32_t correlation_id, client_id):
        """Return the buffers of the request that `ask` has made, size and header first.

        Parameters
        ----------
        message : FetchRequest
            The request without partitions, sizes and session.

        Raises
        ------
        ProtocolError
            A string is too large for the protocol.
        """
        cdef kb_fetch_head head
        cdef uint8_t *space
        cdef uint8_t *end
        rack_id = message.rack_id
        head.version = version
        head.correlation_id = correlation_id
        head.client_id = text_of(client_id, "FetchRequest", "client_id")
        head.rack_id = text_of(rack_id, "FetchRequest", "rack_id")
        head.max_wait_ms = message.max_wait_ms
        head.min_bytes = message.min_bytes
        head.max_bytes = <int32_t>self._most_bytes
        head.isolation_level = message.isolation_level
        head.session_id = self._node.session_id
        head.session_epoch = self._node.session_epoch
        space = <uint8_t *>PyMem_Malloc(kb_fetch_room(&head, &self._node.named, &self._node.forgotten))
        if space == NULL:
            raise MemoryError
        try:
            end = kb_fetch_write(space, &head, &self._node.named, &self._node.forgotten)
            return [PyBytes_FromStringAndSize(<const char *>space, end - space)]
        finally:
            PyMem_Free(space)

    def handle_answer(self, int32_t session_id):
        """Record an answer without an error, and the session that it names."""
        kb_fetch_session_answered(&self._node, session_id)

    def end_request(self):
        """Let go of all partitions of the request, which was answered, or has failed."""
        kb_fetch_end_request(&self._node)


@cython.final
cdef class FetchRoad:
    """The partitions that a client reads, in the order in which they are asked for: one that had records
    moves to the end.

    Parameters
    ----------
    fetched : callable
        Makes a result: Fetched, of kbatch.core.consumer.results.
    partition_bytes : int
        max.partition.fetch.bytes.
    reads_committed, check_crcs : bool
    max_decompressed_bytes : int
        Of a batch.

    Attributes
    ----------
    bounded_count : int
        The number of partitions with an end offset.
    is_short : bool
        True if the last scan has found partitions that are left out since too much of them is unread.
    look_again_ns : int
        When the first partition's back-off ends, by the last scan.
    """

    def __init__(self, fetched, *, int32_t partition_bytes, bint reads_committed, bint check_crcs,
                 max_decompressed_bytes):
        self._fetched = fetched
        self._partition_bytes = partition_bytes
        self.reads_committed = reads_committed
        self._check_crcs = check_crcs
        self._limit = decompression_limit(max_decompressed_bytes)
        self._road.placement = 1  # readings are not placed at first

    @property
    def bounded_count(self):
        return self._road.bounded_count

    @property
    def is_short(self):
        return self._road.is_short

    @property
    def look_again_ns(self):
        return self._road.look_again_ns

    def add(self, PartitionReading reading not None):
        """Begin to read a partition, which is not read yet."""
        cdef kb_span name = text_of(reading.topic_name, "FetchRequest", "a topic's name")
        if not kb_fetch_add_reading(&self._road, &reading._reading, &name, reading.partition_number):
            raise MemoryError
        reading._road = self

    def remove(self, PartitionReading reading not None):
        """End the reading of a partition."""
        kb_fetch_remove_reading(&self._road, &reading._reading)
        reading._road = None
        reading.place(self, None)

    def displace(self):
        """Look up the nodes of all partitions again, since leaders may have moved."""
        self._road.placement += 1

    def unplaced(self):
        """Return the partitions whose node must be looked up."""
        cdef list found = []
        cdef kb_reading *reading = kb_fetch_unplaced(&self._road, self._road.first)
        while reading != NULL:
            found.append(<object>reading.owner)
            reading = kb_fetch_unplaced(&self._road, reading.next)
        return found

    def scan(self, int64_t backlog_bytes, int64_t now_ns):
        """Find what can be asked for, and return the nodes that have partitions, in order. A partition with
        more than `backlog_bytes` that the program did not read is left out.
        """
        cdef kb_fetch_node *node
        cdef list found = []
        kb_fetch_scan(&self._road, backlog_bytes, now_ns)
        node = self._road.found_first
        while node != NULL:
            found.append(<object>node.owner)
            node = node.found_next
        return found

    def take(self, FetchNode node not None, FetchAnswer answer not None, judge not None, int64_t now_ns):
        """Handle the parts of an answer without an error. Return the results with new positions, in order.

        Parameters
        ----------
        judge : Fetcher
            `judge.judge_part(node, reading, answer, part, now_ns)` decides about a part that is not usual,
            and returns True if its records are to be read. `judge.handle_no_progress(reading, records,
            now_ns)` gets records without a whole batch, and `judge.complete(reading)` a partition that is at
            its end.
        """
        cdef const kb_fetch_part *part
        cdef kb_reading *raw
        cdef PartitionReading reading
        cdef list found = []
        cdef int32_t i
        for i in range(answer.raw.part_count):
            part = &answer.raw.parts[i]
            raw = kb_fetch_reading_of(&self._road, &node._node, part)
            if raw == NULL:
                continue
            reading = <PartitionReading>raw.owner
            if kb_fetch_is_plain(raw, part):
                kb_fetch_note_log(raw, part)
                has_records = part.records.size > 0
            else:
                has_records = (judge.judge_part(node, reading, answer, answer.part(i), now_ns)
                               and part.records.size > 0)
            if has_records:
                fetched = self._read(reading, part, answer, judge, now_ns)
                if fetched is not None:
                    found.append(fetched)
            kb_reading_withdraw(raw)
        return found

    def note_log(self, PartitionReading reading not None, FetchAnswer answer not None, int index):
        """Record what a part without an error says of the log."""
        kb_fetch_note_log(&reading._reading, &answer.raw.parts[index])

    cdef object _read(self, PartitionReading reading, const kb_fetch_part *part, FetchAnswer answer,
                      object judge, int64_t now_ns):
        """Walk the batches of a part, and move the position after them."""
        cdef kb_reading *raw = &reading._reading
        cdef bint is_limited = self.reads_committed and part.last_stable_offset >= 0
        cdef int64_t from_offset = raw.fetch_offset
        cdef FetchedRecords records = records_in(
            answer.source, answer.records_of(part), part.records.data, part.records.size, reading.topic_name,
            reading._topic_id, reading.partition_number, from_offset, raw.end_offset,
            part.last_stable_offset if is_limited else NO_END,
            aborted_of(part) if self.reads_committed else None, self._check_crcs, self._limit)
        if records.next_offset <= from_offset:
            judge.handle_no_progress(reading, records, now_ns)
            return None
        raw.fetch_offset = records.next_offset
        raw.needed_bytes = 0
        if records.last_epoch != -1:
            raw.last_epoch = records.last_epoch
        is_last = raw.end_offset != NO_END and records.next_offset >= raw.end_offset
        if is_last:
            judge.complete(reading)
        kb_fetch_move_to_end(&self._road, raw)
        has_rows = records.row_bound > 0
        return self._fetched(
            reading, records if has_rows else None, from_offset=from_offset,
            next_offset=min(records.next_offset, raw.end_offset), is_last=is_last,
            last_epoch=records.last_epoch, size_bytes=part.records.size if has_rows else 0)
