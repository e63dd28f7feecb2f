"""FetchRoad: which partitions a Fetch names, what it asks of them, and what its answer means for them.

The rules stand in C (src_c/fetch_road.h). What is usual in an answer is done here; what needs a decision is
left to a judge, the Fetcher.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t
from libc.stdlib cimport free

from kbatch._native.codec.c cimport kb_span
from kbatch._native.codec.hashes cimport crc32c_extend
from kbatch._native.codec.wire cimport text_of
from kbatch._native.fetch.arrivals cimport AnswerReader, Arrivals
from kbatch._native.fetch.budget cimport Budget
from kbatch._native.fetch.fetch_answer cimport FetchAnswer, aborted_of
from kbatch._native.fetch.fetch_wire cimport kb_fetch_part
from kbatch._native.fetch.fetched cimport new_fetched
from kbatch._native.fetch.fetched_batches cimport FetchedRecords, records_in
from kbatch._native.fetch.frames cimport FramePool
from kbatch._native.fetch.reading cimport *
from kbatch._native.flags cimport kb_count_store, kb_flag_load, kb_flag_store
from kbatch._native.io.sensor cimport RequestSensors, Sensor
from kbatch._native.io.waker cimport Waker

from kbatch._native.io.lent import Lent

cdef int64_t NO_END = INT64_MAX

# The reasons of the end of a loan; 0 is none, but answers have arrived.
cdef enum Reason:
    ARRIVED = 0
    TIME = 1
    CALLED = 2
    UNUSUAL = 4
    EVENTS = 8
    IDLE = 16

# What may be late is done this long after an answer, or after so many. It costs as much as several records.
cdef int64_t LATE_WORK_NS = 5_000_000_000
cdef enum:
    MOST_LATE = 256
    SPACE_BYTES = 65536
    # Parts of an answer that are for no partition that was asked for, beside as many as are read. Those after
    # them are ignored, too.
    MOST_STRANGERS = 64


@cython.final
@cython.no_gc_clear
cdef class FetchRoad(RoadState):
    """The partitions that a client reads, in the order in which they are asked for: one that had records
    moves to the end. While its owner waits, it sends and receives on the connections that are lent to it.

    Parameters
    ----------
    budget : Budget
    frames : FramePool
        The memory of answers.
    latency, throttle, byte_count : Sensor
        Record the time of an answer and its throttling, in milliseconds, and the bytes of the records in it.
    client_id, rack_id : str or None
    max_wait_ms, min_bytes, max_bytes, partition_bytes : int
        Those of requests; `max_bytes` at most.
    request_timeout_ms : int
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
    awaits_memory : bool
        True if memory that is released may let a request go out, or if no answer is due. Any thread may read
        it.
    """

    def __init__(self, Budget budget not None, FramePool frames not None, *, Sensor latency not None,
                 Sensor throttle not None, Sensor byte_count not None, client_id=None, rack_id="",
                 int32_t max_wait_ms=500, int32_t min_bytes=1, int32_t max_bytes=52428800,
                 int32_t partition_bytes=1048576, int64_t request_timeout_ms=30000,
                 bint reads_committed=False, bint check_crcs=True, max_decompressed_bytes=268435456):
        self._latency, self._throttle = latency, throttle
        self._texts = client_id, rack_id
        self._reader = AnswerReader(budget, frames, byte_count, check_crcs=check_crcs,
                                    max_decompressed_bytes=max_decompressed_bytes)
        self._request_timeout_ns = request_timeout_ms * 1_000_000
        self._scratch = bytearray(SPACE_BYTES)
        self._space = <uint8_t *><char *>self._scratch
        self._road.placement = 1  # readings are not placed at first
        self._road.budget = &budget.raw
        self._road.partition_bytes = partition_bytes
        self._road.fetch_bytes = max_bytes
        self._road.reads_committed = reads_committed
        if check_crcs:
            self._road.checksum = crc32c_extend
        self._road.head.client_id = text_of(client_id, "FetchRequest", "client.id")
        self._road.head.rack_id = text_of(rack_id, "FetchRequest", "client.rack")
        self._road.head.max_wait_ms = max_wait_ms
        self._road.head.min_bytes = min_bytes
        self._road.head.isolation_level = reads_committed
        self._road.take_frame = _take_frame
        self._road.give_back = _give_back
        self._road.frames = <void *>frames
        self._road.awaits_memory = True
        self._road.latency, self._road.throttle = &latency.raw, &throttle.raw

    def __dealloc__(self):
        self._discard(kb_road_take_arrivals(&self._road))

    @property
    def reads_committed(self):
        return self._road.reads_committed

    @reads_committed.setter
    def reads_committed(self, bint value):
        self._road.reads_committed = value

    @property
    def awaits_memory(self):
        return kb_flag_load(&self._road.awaits_memory) != 0

    @awaits_memory.setter
    def awaits_memory(self, bint value):
        kb_flag_store(&self._road.awaits_memory, value)

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
        """End the reading of a partition. A second call does nothing."""
        if reading._reading.slot == NULL:
            return
        kb_fetch_remove_reading(&self._road, &reading._reading)
        reading._road = None
        reading.place(self, None)

    def displace(self):
        """Look up the nodes of all partitions again, since leaders may have moved."""
        kb_fetch_displace(&self._road)

    def has_unplaced(self, int64_t now_ns):
        """Return True if the node of any partition must be looked up."""
        kb_fetch_look_at_places(&self._road, now_ns)
        return kb_fetch_unplaced(&self._road, self._road.loose_first, now_ns) != NULL

    def unplaced(self, int64_t now_ns):
        """Return the partitions whose node must be looked up."""
        cdef list found = []
        cdef kb_reading *reading
        kb_fetch_look_at_places(&self._road, now_ns)
        reading = kb_fetch_unplaced(&self._road, self._road.loose_first, now_ns)
        while reading != NULL:
            found.append(<object>reading.owner)
            reading = kb_fetch_unplaced(&self._road, reading.loose_next, now_ns)
        return found

    def scan(self, int64_t backlog_bytes, int64_t now_ns):
        """Find what can be asked for, and return the nodes that have partitions, in the order of their turns.
        A partition with more than `backlog_bytes` that the program did not read is left out.
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
        # of these an answer has few: each takes a look at all topics
        cdef int64_t strangers_left = self._road.reading_count + MOST_STRANGERS
        cdef int32_t i
        for i in range(answer.raw.part_count):
            part = &answer.raw.parts[i]
            raw = kb_fetch_reading_of(&self._road, &node._node, part) if strangers_left else NULL
            if raw == NULL:
                strangers_left -= strangers_left > 0
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
        cdef bint is_limited = self._road.reads_committed and part.last_stable_offset >= 0
        cdef int64_t from_offset = raw.fetch_offset
        cdef FetchedRecords records = records_in(
            answer.source, answer.records_of(part), part.records.data, part.records.size, reading.topic_name,
            reading._topic_id, reading.partition_number, from_offset, raw.end_offset,
            part.last_stable_offset if is_limited else NO_END,
            aborted_of(part) if self._road.reads_committed else None, self._reader.check_crcs,
            self._reader.most_bytes)
        if records.next_offset <= from_offset:
            judge.handle_no_progress(reading, records, now_ns)
            return None
        kb_count_store(&raw.fetch_offset, records.next_offset)
        raw.needed_bytes = 0
        if records.last_epoch != -1:
            raw.last_epoch = records.last_epoch
        is_last = raw.end_offset != NO_END and records.next_offset >= raw.end_offset
        if is_last:
            judge.complete(reading)
        kb_fetch_move_to_end(&self._road, raw)
        has_rows = records.row_bound > 0
        return new_fetched(reading, records if has_rows else None, from_offset,
                           min(records.next_offset, raw.end_offset), is_last, records.last_epoch,
                           part.records.size if has_rows else 0)

    def request_bytes(self, int64_t partition_count, int64_t node_count):
        """Return the bytes that a request for some partitions, to one of `node_count` nodes, reserves."""
        return kb_fetch_request_bytes(&self._road, partition_count, node_count)

    # A loan

    def begin(self, deliver not None):
        """Begin a loan, without connections yet. `deliver` gets the results of answers, in order. If it is
        Arrivals, always the same, they get answers without the GIL.
        """
        self._deliver = deliver
        if isinstance(deliver, Arrivals) and self._arrivals is None:
            self._arrivals = deliver
            self._arrivals.use(self._reader)
            self._road.arrivals = &self._arrivals.raw
        self._forget_lent()
        self._road.is_changed = self._road.needs_engine = False

    def lend(self, FetchNode node not None, int64_t connection_id, int descriptor, int version, *,
             int32_t next_correlation_id, int64_t queued_bytes, int64_t usable_until_ns,
             RequestSensors sensors=None):
        """Lend a ready connection, whose bytes are all written and of which no part of an answer was read. A
        request on it is that of the node.

        Parameters
        ----------
        connection_id, next_correlation_id, queued_bytes : int
            As in Lent.
        descriptor : int
            Of its socket; -1 if bytes go through `unsent` and `received`.
        version : int
            Of Fetch requests.
        usable_until_ns : int
            After that it must log in again before it takes a request.
        sensors : RequestSensors or None
            Record its requests.
        """
        node._sensors = sensors
        node._node.link.sensors = NULL if sensors is None else &sensors.raw
        node._node.link.connection_id = connection_id
        node._node.link.descriptor = descriptor
        node._node.link.version = version
        node._node.link.next_correlation_id = next_correlation_id
        node._node.link.queued_bytes = queued_bytes
        node._node.link.usable_until_ns = usable_until_ns
        with cython.critical_section(self):
            kb_road_lend(&self._road, &node._node)

    def wait(self, int poller, Waker waker not None, int64_t deadline_ns, on_idle not None):
        """Read until there is work for the engine, or until `deadline_ns`.

        Parameters
        ----------
        poller : int
            The epoll descriptor that waits for all sockets, with level-triggered events.
        on_idle : callable
            Called some time after an answer, or after many: for what may be late.

        Returns
        -------
        list of (int, int)
            Descriptors and events, as of epoll, that are for the engine.
        """
        cdef int reason = ARRIVED
        cdef int i
        self._other_count = 0
        self._has_polled = False
        try:
            while reason == ARRIVED or reason == IDLE:
                with nogil:
                    reason = self._poll(poller, waker, deadline_ns)
                self._deliver_arrivals()
                if reason == IDLE:
                    self.late_work_done()
                    on_idle()
        finally:
            kb_road_end_reports(&self._road, poller)
        return [(self._others[i].descriptor, self._others[i].events) for i in range(self._other_count)]

    cdef int _poll(self, int poller, Waker waker, int64_t deadline_ns) noexcept nogil:
        """Work until there is something for others."""
        cdef int64_t now_ns, until_ns
        while True:
            now_ns = kb_lane_now_ns()
            until_ns = min(kb_road_step(&self._road, now_ns), min(deadline_ns, self._timeout_ns()))
            kb_road_flush_all(&self._road, poller)
            if self._road.arrived_first != NULL and not self._hand_over():
                return ARRIVED  # the program gets it while the next answer is on its way
            if self._road.needs_engine:
                return self._end_loan(UNUSUAL, poller, waker)
            if now_ns >= min(deadline_ns, self._timeout_ns()):
                return self._end_loan(TIME, poller, waker)
            if now_ns >= self._late_work_ns():
                return IDLE
            until_ns = min(until_ns, self._late_work_ns())
            if self._look(poller, waker, max(until_ns - now_ns, 0)):
                return CALLED
            if self._other_count:
                return EVENTS

    cdef bint _hand_over(self) noexcept nogil:
        """Hand over the answers that have arrived. False if that needs the GIL."""
        if self._road.arrivals == NULL:
            return False
        self._arrivals.hand_over(kb_road_take_arrivals(&self._road))
        return True

    cdef int _end_loan(self, int reason, int poller, Waker waker) noexcept nogil:
        """End a loan, but not without a look at the sockets: they must be read, whatever the engine has to
        do.
        """
        if not self._has_polled:
            self._look(poller, waker, 0)
        return reason

    cdef bint _look(self, int poller, Waker waker, int64_t wait_ns) noexcept nogil:
        """Wait for sockets, and do what the road does with events. True if the waker was called."""
        cdef int was_rung
        self._has_polled = True
        self._other_count = kb_road_wait(&self._road, poller, waker._reader, wait_ns,
                                         <uint8_t *>self._space, self._others, &was_rung)
        return was_rung and waker.take_call()

    cdef int64_t _timeout_ns(self) noexcept nogil:
        """Return when a request times out."""
        cdef int64_t timeout_ns = INT64_MAX
        cdef kb_fetch_node *node = self._road.lent
        while node != NULL:
            if node.is_in_flight:
                timeout_ns = min(timeout_ns, node.link.sent.created_ns + self._request_timeout_ns)
            node = node.lent_next
        return timeout_ns

    cdef int64_t _late_work_ns(self) noexcept nogil:
        """Return when to do what may be late."""
        if self._road.late_count >= MOST_LATE:
            return INT64_MIN
        return self._road.late_since_ns + LATE_WORK_NS if self._road.late_count else INT64_MAX

    cdef int _deliver_arrivals(self) except -1:
        """Deliver the results of the answers that have arrived."""
        cdef kb_fetch_arrival *arrival = kb_road_take_arrivals(&self._road)
        cdef kb_fetch_arrival *following
        cdef list found = []
        try:
            while arrival != NULL:
                found += self._reader.results_of(arrival)
                following = arrival.next
                free(arrival)
                arrival = following
        finally:
            self._discard(arrival)
        if found:
            self._deliver(found)
        return 0

    cdef void _discard(self, kb_fetch_arrival *arrival) noexcept:
        cdef kb_fetch_arrival *following
        while arrival != NULL:
            following = arrival.next
            self._reader.discard(arrival)
            arrival = following

    def take_served(self):
        """Return the nodes that have answered since the last call, each with the time of its last answer."""
        cdef dict served = {}
        cdef kb_fetch_node *node = self._road.lent
        while node != NULL:
            if node.served_ns:
                served[node.node_id] = node.served_ns
                node.served_ns = 0
            node = node.lent_next
        return served

    def record_fetched(self, list found not None, int64_t now_ns):
        """Record the bytes of the results of an answer, if there are any: of all, and of each topic."""
        self._reader.record_fetched(found, now_ns)

    @property
    def must_look(self):
        """True if an answer was taken since the last step of the loan, or something is left to the engine."""
        return self._road.is_changed or self._road.needs_engine

    def take_back(self):
        """End the loan; return a Lent for each connection, whose requests are FetchNodes: one or none."""
        cdef kb_fetch_node *node = self._road.lent
        cdef kb_fetch_link *link
        cdef list lent = []
        while node != NULL:
            link = &node.link
            lent.append(Lent(
                node.node_id,
                link.connection_id,
                link.next_correlation_id,
                link.queued_bytes,
                link.written_bytes,
                link.active_ns,
                [<FetchNode>node.owner] if node.is_in_flight else [],
                _received(link),
                _unsent(link),
            ))
            kb_link_drop_frame(&self._road, link)
            link.is_lent = False
            node = node.lent_next
        self._forget_lent()
        return lent

    @cython.critical_section
    cdef void _forget_lent(self) noexcept:
        self._road.lent = NULL

    @cython.critical_section
    def in_flight_count(self):
        """Return the number of unanswered requests during a loan. Any thread may call this."""
        cdef kb_fetch_node *node = self._road.lent
        cdef int count = 0
        while node != NULL:
            count += kb_flag_load(&node.is_in_flight)
            node = node.lent_next
        return count

    # Without sockets

    def step(self, int64_t now_ns, *, bint was_rung):
        """Make requests of what may go now. Return when to look again; 0 if there is work for the engine."""
        cdef int64_t look_ns = kb_road_step(&self._road, now_ns)
        if self._road.needs_engine or now_ns >= self._timeout_ns():
            return 0
        return min(look_ns, self._timeout_ns())

    def late_work_ns(self):
        """Return when to do what may be late, and to call `late_work_done`: some time after an answer, or
        after many.
        """
        return self._late_work_ns()

    def late_work_done(self):
        """Record that nothing is late any more."""
        self._road.late_count = 0

    cdef kb_fetch_node *_lent(self, int64_t connection_id) noexcept:
        cdef kb_fetch_node *node = self._road.lent
        while node != NULL and node.link.connection_id != connection_id:
            node = node.lent_next
        return node

    def unsent(self, int64_t connection_id):
        """Return the bytes of a connection that its owner has not taken yet."""
        cdef kb_fetch_node *node = self._lent(connection_id)
        return b"" if node == NULL else _unsent(&node.link)

    def handed(self, int64_t connection_id, int64_t size):
        """Record that the owner has taken so many bytes of `unsent`, which it writes."""
        cdef kb_fetch_node *node = self._lent(connection_id)
        if node == NULL:
            raise KeyError(connection_id)
        node.link.handed_bytes += size

    def written(self, int64_t connection_id, int64_t size, int64_t now_ns):
        """Record that so many bytes are written. False if they are not the road's."""
        cdef kb_fetch_node *node = self._lent(connection_id)
        if node == NULL:
            return False
        kb_link_written(&node.link, size, now_ns)
        return True

    def received(self, int64_t connection_id, const uint8_t[::1] data not None, int64_t now_ns):
        """Handle bytes of a connection, which may be in `space`. False if they are for the engine."""
        cdef kb_fetch_node *node = self._lent(connection_id)
        if node == NULL or not node.is_in_flight or node.link.is_engines:
            return False
        if not kb_link_received(&self._road, node, &data[0], data.shape[0], now_ns):
            raise MemoryError(f"no memory for {data.shape[0]} bytes of node {node.node_id}")
        self._deliver_arrivals()
        return True


cdef uint8_t *_take_frame(void *frames, int64_t size, int64_t *room) noexcept nogil:
    cdef size_t capacity = 0
    cdef void *data = (<FramePool>frames).take_memory(size, &capacity)
    room[0] = capacity
    return <uint8_t *>data


cdef void _give_back(void *frames, uint8_t *frame, int64_t room) noexcept nogil:
    (<FramePool>frames).give_back(frame, room)


cdef bytes _received(const kb_fetch_link *link):
    """Return the bytes of a connection that are for the engine."""
    cdef int64_t head_bytes = min(link.filled, 4) if link.frame == NULL else 4
    cdef bytes head = PyBytes_FromStringAndSize(<const char *>link.head, head_bytes)
    cdef bytes begun = b""
    if link.frame != NULL:
        begun = PyBytes_FromStringAndSize(<const char *>link.frame, link.filled)
    return head + begun + PyBytes_FromStringAndSize(<const char *>link.rest, link.rest_bytes)


cdef bytes _unsent(const kb_fetch_link *link):
    """Return a copy of the bytes of the request that are left."""
    if not kb_link_has_unsent(link):
        return b""
    return PyBytes_FromStringAndSize(<const char *>kb_link_unsent(link),
                                     link.queued_bytes - link.handed_bytes)
