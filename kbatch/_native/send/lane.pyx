"""Lane: sends usual batches and reads usual answers without the GIL, while the sender's thread waits.

Theory of operation. A thread that would wait for its sockets lends its ready connections to the lane instead
(`begin`, `lend`, `wait`). The lane waits for the same sockets, and does the usual work itself: it drains,
numbers, seals and sends batches, and reads answers that accept all of a request (src_c/lane.h). It never
needs the GIL: others complete the batches of accepted requests. Those are the thread of callbacks
(`complete`), and threads that wait for a batch, whose events the lane sets (`complete_without_callbacks`).
The loan of the connections ends when there is work for the engine: a command, a deadline, an event of another
connection, a batch or an answer that is unusual. Then `take_back` returns what the engine must know of each
connection, with the requests in flight as LaneRequests and the received bytes that are the engine's. The next
loan gets such requests again, if the engine did not answer them meanwhile.

An owner whose sockets the lane cannot wait for drives the lane by hand, with the GIL: it calls `step`, passes
bytes on by `unsent`, `handed`, `written` and `received`, and batches are completed at once
(kbatch/network/loan_driver.py).

Lane and engine never run at the same time, so they share the structures of batches, queues and sequences
without a lock.

Only the sender's thread uses a lane, but for `complete`, `complete_without_callbacks`, `has_answered` and
`unanswered_count`.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.pythread cimport PyThread_get_thread_ident
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from kbatch._native.batch.alarm cimport kb_alarm, later
from kbatch._native.batch.delivery cimport SUCCEEDED
from kbatch._native.batch.delivery_queue cimport DeliveryQueue
from kbatch._native.batch.producer_batch cimport (
    CHECKSUM,
    ProducerBatch,
    kb_batch,
    kb_checksum,
    kb_filled,
    kb_topic,
)
from kbatch._native.batch.buffer_pool cimport kb_chain, kb_chain_gather, kb_chunk_data
from kbatch._native.codec.c cimport KB_MAX_RECORD_BODY, kb_codec_fault, kb_memory, kb_span
from kbatch._native.codec.libraries cimport compress_into
from kbatch._native.codec.memory cimport extend, give_up
from kbatch._native.flags cimport kb_count_add, kb_count_peek, kb_count_store, kb_number_peek, kb_number_set
from kbatch._native.io.interrupts cimport NativeEvent
from kbatch._native.io.lent cimport LentRequest, kb_lent_request
from kbatch._native.io.sensor cimport RequestSensors, Sensor, kb_request_sensors, kb_sensor
from kbatch._native.io.waker cimport Waker
from kbatch._native.lock cimport kb_lock, kb_lock_destroy, kb_lock_init
from kbatch._native.send.accumulator cimport RecordAccumulator, kb_queues
from kbatch._native.send.in_flight cimport InFlight, identity_of, kb_identity
from kbatch._native.codec.wire cimport text_of

from kbatch._native.io.lent import Lent
from kbatch.unpatched import real_threading

cdef extern from "produce_wire.h" nogil:
    ctypedef struct kb_produce_head:
        kb_span client_id
        kb_span transactional_id
        short acks
        int32_t timeout_ms

    ctypedef struct kb_produce_request:
        int version
        int32_t topic_count
        int32_t batch_count

    ctypedef struct kb_produce_accepted:
        int32_t batch
        int64_t base_offset
        int64_t log_append_time_ms

cdef extern from "lane.h" nogil:
    struct iovec:
        void *iov_base
        size_t iov_len

    ctypedef struct kb_lane_request:
        kb_lane_request *next
        kb_lent_request sent
        int64_t answered_ns
        kb_batch **batches
        const kb_topic **topics
        uint8_t *ids
        kb_produce_request asked
        kb_produce_accepted *accepted
        iovec *parts
        int part_count
        int part_at

    ctypedef struct kb_lane_node:
        int32_t node_id
        int64_t connection_id
        int descriptor
        int version
        int32_t next_correlation_id
        int32_t engine_count
        int32_t own_count
        int64_t usable_until_ns
        int64_t queued_bytes
        int64_t handed_bytes
        int64_t written_bytes
        int64_t active_ns
        int64_t answered_ns
        const kb_request_sensors *sensors
        bint needs_engine
        kb_lane_request *first
        kb_lane_request *last
        uint8_t *in_ "in"
        size_t in_bytes
        size_t in_room

    ctypedef struct kb_lane:
        kb_queues *queues
        kb_filled *filled
        kb_alarm *alarm
        kb_checksum checksum
        kb_produce_head head
        short attributes
        int codec
        int level
        int64_t (*compress)(void *scratch, int codec, int level, const kb_chain *chain, int64_t records_bytes,
                            const uint8_t **packed) noexcept
        void *scratch
        bint seals
        bint (*is_hurried)(void *accumulator) noexcept
        void *accumulator
        int64_t inline_bytes
        int64_t linger_ns
        int64_t max_request_bytes
        int64_t request_timeout_ns
        int64_t idle_ns
        int32_t max_in_flight
        bint is_idempotent
        kb_sensor *request_records
        kb_sensor *latency
        kb_sensor *throttle
        kb_identity identity
        int64_t transaction
        bint ends_when_answered
        bint has_accepted
        kb_lane_node *nodes
        int32_t node_count
        int64_t look_ns
        bint is_changed
        bint needs_engine
        void (*ring)(void *event) noexcept
        kb_lock answered_lock
        kb_lane_request *answered

    void kb_lane_free(kb_lane *lane) noexcept
    kb_lane_node *kb_lane_add_node(kb_lane *lane) noexcept
    bint kb_lane_has_unsent(const kb_lane_node *node) noexcept
    int64_t kb_lane_step(kb_lane *lane, int64_t now_ns) noexcept
    void kb_lane_handed(kb_lane_node *node, int64_t size) noexcept
    void kb_lane_written(kb_lane *lane, kb_lane_node *node, int64_t size, int64_t now_ns) noexcept
    bint kb_lane_reserve_in(kb_lane_node *node, size_t size) noexcept
    void kb_lane_received(kb_lane *lane, kb_lane_node *node, const uint8_t *data, size_t size,
                          int64_t now_ns) noexcept
    kb_lane_request *kb_lane_take_answered(kb_lane *lane) noexcept
    int64_t kb_lane_answered_ns(kb_lane *lane) noexcept
    int64_t kb_lane_completion_ns(kb_lane *lane) noexcept
    int64_t kb_lane_timeout_ns(const kb_lane *lane) noexcept
    kb_topic *kb_lane_take_used(kb_lane *lane) noexcept

cdef extern from "lane_poll.h" nogil:
    enum:
        KB_LANE_POLLS
        KB_LANE_EVENTS

    ctypedef struct kb_lane_event:
        int descriptor
        unsigned int events

    int64_t kb_lane_now_ns() noexcept
    void kb_lane_flush_all(kb_lane *lane, int poller) noexcept
    void kb_lane_end_reports(kb_lane *lane, int poller) noexcept
    int kb_lane_wait(kb_lane *lane, int poller, int waker, int64_t wait_ns, kb_lane_event *others,
                     int *was_rung) noexcept

# True if this system has the lane's way to wait for sockets.
CAN_WAIT = bool(KB_LANE_POLLS)

# The reasons of the end of a loan; 0 is none, but batches are to be completed.
cdef enum Reason:
    ANSWERED = 0
    TIME = 1
    CALLED = 2
    UNUSUAL = 4
    EVENTS = 8
    IDLE = 16

# What may be late is done after this time without an answer, or after so many answers: after more of them if
# the lane waits for its sockets, and has to request the GIL for it.
cdef enum:
    LATE_WORK_NS = 50_000_000
    MOST_LATE = 32
    MOST_LATE_WITHOUT_GIL = 4096
    # The lane's thread leaves accepted requests to the thread of callbacks, unless that is busy for so long.
    PATIENCE_NS = 1_000_000


@cython.final
cdef class LaneRequest(LentRequest):
    """A request of the lane in flight, while the engine runs.

    Attributes
    ----------
    batches : list of ProducerBatch
        Those of a topic together.
    attempt : ProduceAttempt or None
        The engine's own form of it, once it needs one.
    """

    cdef kb_lane_request *_raw
    cdef readonly list batches
    cdef readonly bint expects_answer
    cdef public object attempt

    def __init__(self):
        raise TypeError("a LaneRequest comes from a Lane")

    def __dealloc__(self):
        free(self._raw)

    @property
    def version(self):
        self._seen()
        return self._raw.asked.version

    def topic_id(self, str topic not None):
        """Return the id of a topic in the request, 16 bytes; zeros up to version 12."""
        cdef ProducerBatch batch
        cdef int32_t i
        self._seen()
        for batch in self.batches:
            for i in range(self._raw.asked.topic_count if batch.queue.topic == topic else 0):
                if self._raw.topics[i] == batch.raw.home.topic:
                    return PyBytes_FromStringAndSize(<const char *>self._raw.ids + 16 * i, 16)
        raise KeyError(topic)

    cdef kb_lane_request *leave(self) except NULL:
        """Leave it to the lane again."""
        cdef kb_lane_request *raw = self._raw
        self._seen()
        self._raw = NULL
        self.sent = NULL
        return raw


@cython.final
cdef class Lane:
    """The lane of a producer.

    Parameters
    ----------
    accumulator : RecordAccumulator
    client_id : str
    transactional_id : str or None
    acks, request_timeout_ms, max_in_flight, max_request_size : int
    idle_ns : int
        kbatch.sequence.idle.ms, as for Idempotence.
    is_idempotent : bool
        False for batches without sequences.
    request_records, latency, throttle : Sensor
        Record the records of a request, and the latency and throttling of an answer, in milliseconds.
    deliver : callable
        Gets the completions of accepted batches, as a list; called on any thread.
    on_acknowledged : callable or None
        Gets the accepted batches, as a list, before `deliver`; called on any thread.
    queue : DeliveryQueue or None
        Its thread completes accepted requests. `wait` needs one.
    """

    cdef RecordAccumulator _accumulator
    cdef object _client_id
    cdef object _transactional_id
    cdef tuple _sensors              # which `_raw` refers to
    cdef list _of_loan               # RequestSensors, to which its connections refer
    cdef object _deliver
    cdef object _on_acknowledged
    cdef kb_lane _raw
    cdef kb_memory[2] _scratch       # of `_compress`
    cdef kb_lane_event[64] _others
    cdef int _other_count
    cdef bint _has_polled            # in this loan
    cdef DeliveryQueue _queue
    cdef object _completing          # a lock: one thread at a time, so that callbacks keep their order
    cdef int64_t _completer          # the thread; atomic
    cdef list _acknowledged          # what `on_acknowledged` gets, and `deliver`
    cdef list _completed
    cdef int64_t _late_count         # atomic: answers since `on_idle` was called
    cdef int _most_late
    cdef int64_t _completed_ns       # the last one

    def __cinit__(self):
        kb_lock_init(&self._raw.answered_lock)

    def __init__(self, RecordAccumulator accumulator not None, *, str client_id not None,
                 str transactional_id=None, int acks, int32_t request_timeout_ms, int32_t max_in_flight,
                 int64_t max_request_size, int64_t idle_ns, bint is_idempotent,
                 Sensor request_records not None, Sensor latency not None, Sensor throttle not None,
                 deliver not None, on_acknowledged=None, DeliveryQueue queue=None):
        self._accumulator = accumulator
        self._client_id = client_id
        self._transactional_id = transactional_id
        self._sensors = request_records, latency, throttle
        self._deliver, self._on_acknowledged = deliver, on_acknowledged
        self._queue = queue
        self._most_late = MOST_LATE if queue is None else MOST_LATE_WITHOUT_GIL
        self._completing = real_threading().Lock()
        self._acknowledged, self._completed = [], []
        self._of_loan = []
        self._raw.queues = &accumulator._queues
        self._raw.filled = &accumulator.context.filled
        self._raw.alarm = &accumulator.alarm.raw
        self._raw.checksum = CHECKSUM
        self._raw.head.client_id = text_of(client_id, "ProduceRequest", "client_id")
        self._raw.head.transactional_id = text_of(transactional_id, "ProduceRequest", "transactional_id")
        self._raw.head.acks = <short>acks
        self._raw.head.timeout_ms = request_timeout_ms
        self._raw.attributes = accumulator.context.attributes
        self._raw.codec = accumulator.context.codec
        self._raw.level = accumulator.context.level
        self._raw.compress = _compress
        self._raw.scratch = &self._scratch
        self._raw.seals = self._can_seal()
        self._raw.is_hurried = _is_hurried
        self._raw.ring = _ring
        self._raw.accumulator = <void *>accumulator
        self._raw.inline_bytes = accumulator.seal_policy.inline_bytes
        self._raw.linger_ns = accumulator.linger_ns
        self._raw.max_request_bytes = max_request_size
        self._raw.request_timeout_ns = <int64_t>request_timeout_ms * 1_000_000
        self._raw.idle_ns = idle_ns
        self._raw.max_in_flight = max_in_flight
        self._raw.is_idempotent = is_idempotent
        self._raw.request_records = &request_records.raw
        self._raw.latency, self._raw.throttle = &latency.raw, &throttle.raw

    cdef bint _can_seal(self) noexcept:
        """False if the codec needs its package, and so the GIL."""
        cdef kb_codec_fault fault
        self._scratch[1].used = 0
        return self._raw.codec == 0 or not compress_into(
            self._raw.codec, <const uint8_t *>b"", 0, self._raw.level, &self._scratch[1], &fault)

    def __dealloc__(self):
        cdef int32_t i
        for i in range(self._raw.node_count):
            _free_all(self._raw.nodes[i].first)
        _free_all(self._raw.answered)
        give_up(&self._scratch[0])
        give_up(&self._scratch[1])
        kb_lane_free(&self._raw)
        kb_lock_destroy(&self._raw.answered_lock)

    # A loan

    def begin(self, identity not None, *, bint is_changed, int64_t transaction=0,
              bint ends_when_answered=False):
        """Begin a loan, without connections yet.

        Parameters
        ----------
        identity : Identity
        is_changed : bool
            There may be batches to send that the engine left to the lane.
        transaction : int
            Which partitions must have been added to (`PartitionState.transaction`); 0 if they need not.
        ends_when_answered : bool
            The loan ends when no request is left in flight.
        """
        self._raw.identity = identity_of(identity)
        self._raw.transaction = transaction
        self._raw.ends_when_answered = ends_when_answered
        self._raw.has_accepted = False
        self._forget_nodes()
        self._of_loan.clear()
        self._raw.look_ns = INT64_MAX
        self._raw.is_changed = is_changed

    def lend(self, int32_t node_id, int64_t connection_id, int descriptor, int version, *,
             int32_t next_correlation_id, int64_t queued_bytes, int32_t engine_count, int64_t usable_until_ns,
             list requests not None, RequestSensors sensors=None):
        """Lend a ready connection, whose bytes are all written and of which no part of an answer was read.

        Parameters
        ----------
        node_id, connection_id, next_correlation_id, queued_bytes : int
            As in Lent.
        descriptor : int
            Of its socket; -1 if bytes go through `unsent` and `received`.
        version : int
            Of Produce requests.
        engine_count : int
            The number of unanswered requests before `requests`.
        usable_until_ns : int
            After that it must log in again before it takes a request.
        requests : list of LaneRequest
            Those of earlier loans that are still unanswered; the lane has them again.
        sensors : RequestSensors or None
            Record its requests.
        """
        cdef kb_lane_node *node
        cdef kb_lane_request *raw
        cdef LaneRequest request
        with cython.critical_section(self):
            node = kb_lane_add_node(&self._raw)
        if node == NULL:
            raise MemoryError("no memory for a connection of the lane")
        node.node_id = node_id
        node.connection_id = connection_id
        node.descriptor = descriptor
        node.version = version
        node.next_correlation_id = next_correlation_id
        node.queued_bytes = node.handed_bytes = node.written_bytes = queued_bytes
        node.engine_count = engine_count
        node.usable_until_ns = usable_until_ns
        if sensors is not None:
            self._of_loan.append(sensors)
            node.sensors = &sensors.raw
        for request in requests:
            raw = request.leave()
            if node.last == NULL:
                node.first = raw
            else:
                node.last.next = raw
            node.last = raw
            kb_number_set(&node.own_count, node.own_count + 1)

    def wait(self, int poller, Waker waker not None, int64_t deadline_ns, on_idle not None):
        """Run the lane until there is work for the engine, or until `deadline_ns`.

        Parameters
        ----------
        poller : int
            The epoll descriptor that waits for all sockets, with level-triggered events.
        on_idle : callable
            Called when no answer has come for a moment, or after many: for what may be late.

        Returns
        -------
        list of (int, int)
            Descriptors and events, as of epoll, that are for the engine.
        """
        cdef int reason = ANSWERED
        cdef int i
        self._other_count = 0
        self._has_polled = False
        try:
            while reason == ANSWERED or reason == IDLE:
                with nogil:
                    reason = self._poll(poller, waker, deadline_ns)
                if reason == ANSWERED:
                    self.complete()
                if reason == IDLE:
                    self.late_work_done()
                    on_idle()
        finally:
            kb_lane_end_reports(&self._raw, poller)
        return [(self._others[i].descriptor, self._others[i].events) for i in range(self._other_count)]

    cdef int _poll(self, int poller, Waker waker, int64_t deadline_ns) noexcept nogil:
        """Work until there is something for others."""
        cdef int64_t now_ns, until_ns, completion_ns
        cdef bint was_called
        while True:
            now_ns = kb_lane_now_ns()
            until_ns = min(self._step(now_ns), deadline_ns)
            kb_lane_flush_all(&self._raw, poller)
            if self._raw.needs_engine:
                return self._end_loan(UNUSUAL, poller, waker)
            completion_ns = kb_lane_completion_ns(&self._raw)
            if completion_ns <= now_ns:
                if not self._queue.ring() and now_ns - completion_ns >= PATIENCE_NS:
                    return ANSWERED
                completion_ns = now_ns + PATIENCE_NS
            if now_ns >= min(deadline_ns, self._engine_deadline_ns()):
                return self._end_loan(TIME, poller, waker)
            if now_ns >= self._late_work_ns():
                return IDLE
            until_ns = min(min(until_ns, completion_ns),
                           min(self._engine_deadline_ns(), self._late_work_ns()))
            was_called = self._look(poller, waker, max(until_ns - now_ns, 0))
            if was_called:
                return CALLED
            if self._other_count:
                return EVENTS

    cdef int _end_loan(self, int reason, int poller, Waker waker) noexcept nogil:
        """End a loan, but not without a look at the sockets: they must be read, whatever the engine has to
        do.
        """
        if not self._has_polled:
            self._look(poller, waker, 0)
        return reason

    cdef bint _look(self, int poller, Waker waker, int64_t wait_ns) noexcept nogil:
        """Wait for sockets, and do what the lane does with events. True if the waker was called."""
        cdef int was_rung
        self._has_polled = True
        self._other_count = kb_lane_wait(&self._raw, poller, waker._reader, wait_ns, self._others, &was_rung)
        return was_rung and waker.take_call()

    cdef int64_t _step(self, int64_t now_ns) noexcept nogil:
        cdef int64_t look_ns = kb_lane_step(&self._raw, now_ns)
        if self._accumulator.has_unsealed():
            self._raw.needs_engine = True
        return look_ns

    cdef int64_t _late_work_ns(self) noexcept nogil:
        """Return when to do what may be late."""
        cdef int64_t late_count = kb_count_peek(&self._late_count)
        if not late_count:
            return INT64_MAX
        if late_count >= self._most_late:
            return INT64_MIN
        return kb_count_peek(&self._completed_ns) + LATE_WORK_NS

    cdef int64_t _engine_deadline_ns(self) noexcept nogil:
        """Return when a request times out or a batch expires."""
        cdef int64_t expiry_ns = later(self._accumulator.context.oldest_created_ns(),
                                       self._accumulator.alarm.delivery_timeout_ns)
        return min(expiry_ns, kb_lane_timeout_ns(&self._raw))

    def has_answered(self):
        """True if there is something to `complete`."""
        return kb_lane_answered_ns(&self._raw) != INT64_MAX or self._has_completed()

    cdef bint _is_completer(self) noexcept:
        """True if the calling thread completes, and a callee of that called."""
        return kb_count_peek(&self._completer) == <int64_t>PyThread_get_thread_ident()

    @cython.critical_section
    cdef bint _has_completed(self) noexcept:
        """True if there are callbacks to hand on."""
        return len(self._completed) > 0

    def complete(self):
        """Complete the batches of all accepted requests, in order. Any thread may call this; when it returns,
        all are completed that were accepted before the call.
        """
        if self._is_completer():
            return  # a callee of this function
        with self._completing:
            kb_count_store(&self._completer, <int64_t>PyThread_get_thread_ident())
            try:
                while self._complete_all() or self._acknowledged or self._completed:
                    self._hand_on()
            finally:
                kb_count_store(&self._completer, 0)

    cdef int _hand_on(self) except -1:
        cdef list acknowledged = self._acknowledged, completed = self._completed
        with cython.critical_section(self):
            self._acknowledged, self._completed = [], []
        if acknowledged:
            self._on_acknowledged(acknowledged)
        if completed:
            self._deliver(completed)
        return 0

    def complete_without_callbacks(self):
        """Complete batches like `complete`, but leave their callbacks to the thread of the queue. No step of
        it is Python code, where a signal handler could interrupt it.
        """
        if self._is_completer():
            return
        with self._completing:
            kb_count_store(&self._completer, <int64_t>PyThread_get_thread_ident())
            try:
                self._complete_all()
            finally:
                kb_count_store(&self._completer, 0)
        if self._has_completed():
            self._queue.ring()

    cdef bint _complete_all(self) except -1:
        """True if there was a request."""
        cdef kb_lane_request *request = kb_lane_take_answered(&self._raw)
        cdef kb_lane_request *following
        cdef bint is_any = request != NULL
        try:
            while request != NULL:
                kb_count_store(&self._completed_ns, request.answered_ns)
                self._complete(request)
                kb_count_add(&self._late_count, 1)
                following = request.next
                free(request)
                request = following
        finally:
            _free_all(request)
        return is_any

    cdef int _complete(self, kb_lane_request *request) except -1:
        cdef ProducerBatch batch
        cdef InFlight entry
        cdef int32_t i
        for i in range(request.asked.batch_count):
            batch = <ProducerBatch>request.batches[request.accepted[i].batch].owner
            if batch.raw.flight.owner != NULL:
                entry = <InFlight>batch.raw.flight.owner
                entry.state.disown(entry)
            if self._on_acknowledged is not None:
                self._acknowledged.append(batch)
            if batch.raw.own_packed != NULL:
                batch.note_ratio()
            if batch.finish(SUCCEEDED, request.accepted[i].base_offset,
                            request.accepted[i].log_append_time_ms, None, None):
                self._completed.append(batch.completion)
        return 0

    def take_back(self):
        """End the loan, and complete what was accepted; return a Lent for each connection."""
        cdef list lent = []
        cdef kb_lane_node *node
        cdef int32_t i
        self.complete()
        for i in range(self._raw.node_count):
            node = &self._raw.nodes[i]
            unsent = _unsent(node)  # before its requests go
            lent.append(Lent(
                node.node_id,
                node.connection_id,
                node.next_correlation_id,
                node.queued_bytes,
                node.written_bytes,
                node.active_ns,
                self._requests(node),
                PyBytes_FromStringAndSize(<const char *>node.in_, node.in_bytes),
                unsent,
                node.needs_engine,
            ))
            free(node.in_)
            node.in_ = NULL
        self._forget_nodes()
        return lent

    @cython.critical_section
    cdef void _forget_nodes(self) noexcept:
        self._raw.node_count = 0

    cdef list _requests(self, kb_lane_node *node):
        cdef list requests = []
        cdef LaneRequest lent
        cdef kb_lane_request *request = node.first
        cdef int32_t i
        while request != NULL:
            node.first = request.next
            request.next = NULL
            lent = LaneRequest.__new__(LaneRequest)
            lent._raw = request
            lent.sent = &request.sent
            lent.expects_answer = self._raw.head.acks != 0
            lent.batches = [<ProducerBatch>request.batches[i].owner
                            for i in range(request.asked.batch_count)]
            requests.append(lent)
            request = node.first
        node.last = NULL
        return requests

    @cython.critical_section
    def unanswered_count(self):
        """Return the number of unanswered requests during a loan. Any thread may call this."""
        cdef int32_t i, count = 0
        for i in range(self._raw.node_count):
            count += kb_number_peek(&self._raw.nodes[i].own_count)
        return count

    def take_uses(self):
        """Return what was acknowledged since the last call: the topics, and the nodes that answered, each
        with the time of its last answer.
        """
        cdef list topics = [], nodes = []
        cdef kb_lane_node *node
        cdef kb_topic *topic = kb_lane_take_used(&self._raw)
        cdef int32_t i
        while topic != NULL:
            topics.append((topic.name.data[:topic.name.size].decode(), topic.used_ns))
            topic = kb_lane_take_used(&self._raw)
        for i in range(self._raw.node_count):
            node = &self._raw.nodes[i]
            if node.answered_ns:
                nodes.append((node.node_id, node.answered_ns))
                node.answered_ns = 0
        return topics, nodes

    # Without sockets

    def step(self, int64_t now_ns, *, bint was_rung):
        """Make requests of what may go now; `was_rung` says that there may be new batches. Return when to
        look again; 0 if there is work for the engine.
        """
        cdef int64_t look_ns
        self._raw.is_changed |= was_rung
        look_ns = self._step(now_ns)
        if self._raw.needs_engine or now_ns >= self._engine_deadline_ns():
            return 0
        return min(look_ns, self._engine_deadline_ns())

    def late_work_ns(self):
        """Return when to do what may be late, and to call `late_work_done`: some time after the last answer,
        or after many.
        """
        return self._late_work_ns()

    def late_work_done(self):
        """Record that nothing is late any more."""
        kb_count_store(&self._late_count, 0)

    cdef kb_lane_node *_node(self, int64_t connection_id) noexcept:
        cdef int32_t i
        for i in range(self._raw.node_count):
            if self._raw.nodes[i].connection_id == connection_id:
                return &self._raw.nodes[i]
        return NULL

    def unsent(self, int64_t connection_id):
        """Return the bytes of a connection that its owner has not taken yet."""
        cdef kb_lane_node *node = self._node(connection_id)
        return b"" if node == NULL else _unsent(node)

    def handed(self, int64_t connection_id, int64_t size):
        """Record that the owner has taken so many bytes of `unsent`, which it writes."""
        cdef kb_lane_node *node = self._node(connection_id)
        if node == NULL:
            raise KeyError(connection_id)
        kb_lane_handed(node, size)

    def written(self, int64_t connection_id, int64_t size, int64_t now_ns):
        """Record that so many bytes are written, and complete what needs no answer (acks=0). False if they
        are not the lane's.
        """
        cdef kb_lane_node *node = self._node(connection_id)
        if node == NULL:
            return False
        kb_lane_written(&self._raw, node, size, now_ns)
        self._raw.is_changed = True
        self.complete()
        return True

    def received(self, int64_t connection_id, const uint8_t[::1] data not None, int64_t now_ns):
        """Handle bytes of a connection, and complete what they accept. False if they are for the engine."""
        cdef kb_lane_node *node = self._node(connection_id)
        if node == NULL or node.engine_count or node.first == NULL:
            return False
        if not kb_lane_reserve_in(node, data.shape[0]):
            raise MemoryError(f"no memory for {data.shape[0]} bytes of node {node.node_id}")
        kb_lane_received(&self._raw, node, &data[0], data.shape[0], now_ns)
        self.complete()
        return True


cdef bint _is_hurried(void *accumulator) noexcept nogil:
    return (<RecordAccumulator>accumulator).is_hurried()


cdef void _ring(void *event) noexcept nogil:
    (<NativeEvent>event).ring()


cdef int64_t _compress(void *scratch, int codec, int level, const kb_chain *chain, int64_t records_bytes,
                       const uint8_t **packed) noexcept nogil:
    cdef kb_memory *gathered = <kb_memory *>scratch
    cdef kb_memory *to = gathered + 1
    cdef kb_codec_fault fault
    cdef const uint8_t *records = kb_chunk_data(chain.first)
    gathered.used = to.used = 0
    if chain.first != chain.current:
        if not extend(gathered, records_bytes):
            return -1
        kb_chain_gather(chain, gathered.data)
        records = gathered.data
    if compress_into(codec, records, records_bytes, level, to, &fault) or to.used > KB_MAX_RECORD_BODY:
        return -1
    packed[0] = to.data
    return to.used


cdef void _free_all(kb_lane_request *request) noexcept:
    cdef kb_lane_request *following
    while request != NULL:
        following = request.next
        free(request)
        request = following


cdef bytes _unsent(kb_lane_node *node):
    """Return a copy of the bytes that the newest request has left."""
    cdef bytes copy
    cdef char *to
    cdef int i
    if not kb_lane_has_unsent(node):
        return b""
    copy = PyBytes_FromStringAndSize(NULL, node.queued_bytes - node.handed_bytes)
    to = PyBytes_AS_STRING(copy)
    for i in range(node.last.part_at, node.last.part_count):
        memcpy(to, node.last.parts[i].iov_base, node.last.parts[i].iov_len)
        to += node.last.parts[i].iov_len
    return copy
