"""PartitionReading and FetchNode: what is read, and from where. A FetchRoad has them all.

The rules stand in C (src_c/fetch_road.h), over memory that these objects own.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from kbatch._native.fetch.fetch_wire cimport (
    KB_FETCH_FIRST_VERSION,
    KB_FETCH_LAST_VERSION,
    kb_fetch_head,
    kb_fetch_list_free,
    kb_fetch_room,
    kb_fetch_write,
)
from kbatch._native.flags cimport (
    kb_count_add,
    kb_count_load,
    kb_count_peek,
    kb_count_store,
    kb_flag_load,
    kb_flag_store,
)
from kbatch._native.io.sensor cimport RequestSensors, Sensor


cdef class RoadState:
    """What readings and nodes know of their FetchRoad."""


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

    Attributes
    ----------
    read_offset : int
        The position before which the program has read; -1 if it is not known.
    byte_count, row_count : Sensor, SensorGroup
        Record the bytes of records in answers, of its topic, and the records that the program got; set before
        it is read.
    """

    def __init__(self, str topic_name not None, int32_t partition_number, int64_t end_offset):
        kb_reading_init(&self._reading, <void *>self)
        self.topic_name = topic_name
        self.partition_number = partition_number
        self._reading.end_offset = end_offset
        self._read_offset = -1

    @property
    def read_offset(self):
        return kb_count_peek(&self._read_offset)

    @read_offset.setter
    def read_offset(self, int64_t value):
        kb_count_store(&self._read_offset, value)

    def __dealloc__(self):
        if self._reading.slot != NULL:
            kb_fetch_remove_reading(&self._road._road, &self._reading)

    @property
    def end_offset(self):
        return self._reading.end_offset

    @property
    @cython.critical_section
    def topic_id(self):
        return self._topic_id

    @topic_id.setter
    @cython.critical_section
    def topic_id(self, bytes topic_id not None):
        if len(topic_id) != 16:
            raise ValueError(f"topic_id must have 16 bytes, got {len(topic_id)}")
        self._topic_id = topic_id
        memcpy(self._reading.topic_id, <const uint8_t *>topic_id, 16)
        kb_reading_loosen(&self._reading)

    @property
    def is_in_flight(self):
        return self._reading.in_flight != NULL and bool(kb_flag_load(&self._reading.in_flight.is_in_flight))

    @property
    def asked_offset(self):
        return self._reading.asked.offset

    @property
    def asked_epoch(self):
        return self._reading.asked.leader_epoch

    def withdraw(self):
        """Ask no longer for it: an answer to come does not count for it."""
        kb_reading_withdraw(&self._reading)

    def place(self, RoadState road not None, FetchNode node, int64_t until_ns=INT64_MAX):
        """Read from a node from now on, until a time, or until leaders may have moved; from none if it is
        None.
        """
        if node is None:
            kb_reading_place(&self._reading, NULL, 0, until_ns)
        else:
            kb_reading_place(&self._reading, &node._node, road._road.placement, until_ns)
        self._node = node  # after that, as the one of before may end with this reference

    @property
    def is_paused(self):
        return self._reading.is_paused

    @is_paused.setter
    def is_paused(self, bint value):
        self._reading.is_paused = value
        kb_reading_loosen(&self._reading)

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
        kb_reading_set_fetching(&self._reading, value)

    @property
    def leader_epoch(self):
        return self._reading.leader_epoch

    @leader_epoch.setter
    def leader_epoch(self, int32_t value):
        self._reading.leader_epoch = value
        kb_reading_loosen(&self._reading)

    @property
    def replica_id(self):
        return self._reading.replica_id

    @replica_id.setter
    def replica_id(self, int32_t value):
        if value != self._reading.replica_id:
            self._reading.replica_id = value
            self._reading.placement = 0  # its node must be looked up
            kb_reading_loosen(&self._reading)

    @property
    def fetch_offset(self):
        return kb_count_peek(&self._reading.fetch_offset)

    @fetch_offset.setter
    def fetch_offset(self, int64_t value):
        kb_count_store(&self._reading.fetch_offset, value)
        kb_reading_loosen(&self._reading)

    @property
    def last_epoch(self):
        return self._reading.last_epoch

    @last_epoch.setter
    def last_epoch(self, int32_t value):
        self._reading.last_epoch = value
        kb_reading_loosen(&self._reading)

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
        kb_reading_loosen(&self._reading)

    @property
    def backlog_bytes(self):
        return kb_count_load(&self._reading.backlog_bytes)

    def charge(self, int64_t size_bytes):
        """Add bytes that the program is to read; negative ones were released. Any thread may call this."""
        self.add_to_backlog(size_bytes)

    cdef void add_to_backlog(self, int64_t size_bytes) noexcept:
        kb_count_add(&self._reading.backlog_bytes, size_bytes)

    @property
    def not_before_ns(self):
        return self._reading.not_before_ns

    @not_before_ns.setter
    def not_before_ns(self, value):
        self._reading.not_before_ns = min(value, INT64_MAX)
        kb_reading_loosen(&self._reading)

    @property
    def high_watermark(self):
        return kb_count_load(&self._reading.high_watermark)

    @high_watermark.setter
    def high_watermark(self, int64_t value):
        kb_count_store(&self._reading.high_watermark, value)

    @property
    def last_stable_offset(self):
        return kb_count_load(&self._reading.last_stable_offset)

    @last_stable_offset.setter
    def last_stable_offset(self, int64_t value):
        kb_count_store(&self._reading.last_stable_offset, value)

    @property
    def log_start_offset(self):
        return kb_count_load(&self._reading.log_start_offset)

    @log_start_offset.setter
    def log_start_offset(self, int64_t value):
        kb_count_store(&self._reading.log_start_offset, value)


@cython.no_gc_clear
cdef class FetchNode(LentRequest):
    """A node that is read from: its session (KIP-227), and its request in flight, one at most, which may be
    lent with its connection.

    Parameters
    ----------
    road : FetchRoad
    node_id : int
    latency : Sensor
        Records the time of its answers, in milliseconds.

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
    wanted_count : int
        The number of partitions that the next request asks for.
    lacks_topic_ids : bool
        True if the topic id of any of them is unknown.
    latency : Sensor
        The parameter.
    """

    def __init__(self, RoadState road not None, int32_t node_id, Sensor latency not None):
        self._road = road
        self.latency = latency
        self._node.node_id = node_id
        self._node.latency = &latency.raw
        self._node.owner = <void *>self
        self.sent = &self._node.link.sent

    def __dealloc__(self):
        if self._road is not None:
            kb_fetch_withdraw_all(&self._node)
            kb_fetch_forget_session(&self._road._road, &self._node)
        kb_fetch_list_free(&self._node.named)
        kb_fetch_list_free(&self._node.forgotten)
        free(self._node.link.out)
        if self._road is not None:
            kb_link_drop_frame(&self._road._road, &self._node.link)

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
        return bool(kb_flag_load(&self._node.is_in_flight))

    @is_in_flight.setter
    def is_in_flight(self, bint value):
        kb_flag_store(&self._node.is_in_flight, value)

    @property
    def reserved_bytes(self):
        return self._node.reserved_bytes

    @property
    def expects_answer(self):
        return True

    @property
    def is_full(self):
        return self._node.is_full

    @property
    def wanted_count(self):
        return kb_fetch_wanted_count(&self._node)

    @property
    def lacks_topic_ids(self):
        return kb_fetch_lacks_topic_ids(&self._node)

    def candidates(self):
        """Return the partitions that the next request can ask for, besides those of `asked`; in order."""
        cdef kb_reading *reading
        cdef list found = []
        kb_fetch_order_candidates(&self._node)
        reading = self._node.candidate_first
        while reading != NULL:
            found.append(<object>reading.owner)
            reading = reading.candidate_next
        return found

    def choose(self, list readings not None):
        """Let the next request ask for these candidates only, besides those of `asked`."""
        cdef PartitionReading reading
        kb_fetch_clear_candidates(&self._node)
        for reading in readings:
            kb_fetch_add_candidate(&self._node, &reading._reading)

    def asked(self):
        """Return the partitions that the request in flight, or the last one, has asked for, and whose answer
        counts for them. Those that stay asked are in the next request, too.
        """
        cdef kb_reading *reading = self._node.asked_first
        cdef list found = []
        while reading != NULL:
            found.append(<object>reading.owner)
            reading = reading.asked_next
        return found

    def ask(self, int version, int64_t reserved_bytes, int64_t now_ns):
        """Make a request for all candidates, and for what stays asked; `write` must follow."""
        if not KB_FETCH_FIRST_VERSION <= version <= KB_FETCH_LAST_VERSION:
            raise ValueError(f"version must be {KB_FETCH_FIRST_VERSION} to {KB_FETCH_LAST_VERSION}, got "
                             f"{version}")
        if not kb_fetch_ask_node(&self._road._road, &self._node, version, reserved_bytes):
            kb_fetch_give_up_request(&self._road._road, &self._node)
            raise MemoryError
        self.sent_ns = now_ns

    def write(self, message, int version, int32_t correlation_id, client_id):
        """Return the buffers of the request that `ask` has made, size and header first; it is the one in
        flight now. All but `correlation_id` is known.
        """
        cdef kb_fetch_head head = kb_fetch_head_of(&self._road._road, &self._node, correlation_id)
        cdef int64_t room = kb_fetch_room(&head, &self._node.named, &self._node.forgotten)
        cdef uint8_t *space = <uint8_t *>PyMem_Malloc(room)
        cdef uint8_t *end
        if space == NULL:
            raise MemoryError
        try:
            end = kb_fetch_write(space, &head, &self._node.named, &self._node.forgotten)
            return [PyBytes_FromStringAndSize(<const char *>space, end - space)]
        finally:
            PyMem_Free(space)

    def note_sent(self, int32_t correlation_id, int64_t created_ns, int64_t start_offset, int64_t end_offset):
        """Record where the request is in the outgoing stream of its connection, which may be lent with it."""
        self.sent.correlation_id = correlation_id
        self.sent.created_ns = self.sent.written_ns = created_ns
        self.sent.start_offset = start_offset
        self.sent.end_offset = end_offset
        self.sent.is_counted = True

    def record_answer(self, int64_t sent_ns, int64_t throttle_ms, int64_t now_ns):
        """Record an answer, good or bad."""
        kb_fetch_record_answer(&self._road._road, &self._node, sent_ns, throttle_ms, now_ns)

    def handle_answer(self, int32_t session_id):
        """Record an answer without an error, and the session that it names."""
        kb_fetch_session_answered(&self._node, session_id)
