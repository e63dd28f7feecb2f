"""InFlight: batches that were drained and are not done, and what is known of their partitions.

Theory of operation. The objects are the sender's, which kbatch.core decides about: Idempotence says what the
numbers mean, Sender what becomes of a batch. What both do once a batch or a partition stands here, and beside
it the two steps of a request of which all is as usual, as a whole: `number_new`, for batches that are sent
for the first time, and `acknowledge_all`, for an answer that says yes to each. They do what Idempotence and
Sender do batch by batch, and nothing where one batch is not usual: then those do it.

The sender's thread alone uses them.
"""

cimport cython
from libc.stdint cimport INT32_MAX, int32_t, int64_t

from kbatch._native.batch.delivery cimport SUCCEEDED
from kbatch._native.batch.producer_batch cimport DONE, PartitionQueue, ProducerBatch

from typing import NamedTuple

# A record number that no batch has: no retry may be drained.
NOTHING = 2**62
cdef int64_t _NOTHING = NOTHING
# Before any clock: the `known_ns` of a partition whose leader may know nothing of the producer.
UNKNOWN_NS = -2**62
cdef int64_t _UNKNOWN_NS = UNKNOWN_NS
# The `node_id` of a batch whose request went to a leader that is over.
cdef int32_t FORMER_LEADER = -2


class Identity(NamedTuple):
    """A producer id and its epoch."""

    producer_id: int
    epoch: int


NOBODY = Identity(-1, -1)
# muted, fresh_blocked and retry_number for `RecordAccumulator.set_gate`; most partitions have this one.
OPEN = (False, False, -1)
cdef object _NOBODY = NOBODY


@cython.final
@cython.freelist(64)
cdef class InFlight:
    """A batch that was drained and is not done.

    Attributes
    ----------
    counter : int
        Of its first record within the identity of its state; -1 without idempotence.
    sent_ns : int
        When it was sent first.
    node_id, attempt
        Where it was sent last, and in which request; node_id is -2 if the partition has got another leader
        since, or the same one in another epoch.
    is_out : bool
        A request with it has no answer yet.
    is_unsure : bool
        An attempt was not answered, or so that it may be in the log of the topic as it is now.
    is_held : bool
        It was refused though it was the next in sequence.
    is_proved : bool
        A later batch was accepted by a leader that knew the producer, so this one is in the log.
    last_error : KafkaError | None
        What the last attempt came to.
    """

    def __init__(self, PartitionState state not None, ProducerBatch batch not None, int64_t sent_ns,
                 int64_t counter=-1):
        self.state = state
        self.batch = batch
        self.sent_ns = sent_ns
        self.number = batch.first_number
        self.record_count = batch.contents.count
        self.counter = counter
        self.node_id = -1

    @property
    def end(self):
        """The counter behind its last record."""
        return self.counter + self.record_count


@cython.final
cdef class PartitionState:
    """What the sender knows of a partition.

    Attributes
    ----------
    identity : Identity
        That its numbers belong to; behind the producer's own until what is in flight is done.
    next_counter, acked_counter, hole_end : int
        Of the next new batch; of the last record known to be in the log (-1: none); behind the last record
        that failed after it had got a number.
    in_flight : list of InFlight
        In the order of the records.
    known_ns : int
        The leader has known the producer id at this time or later: when the batch was first sent that it
        acknowledged last; UNKNOWN_NS if it may know nothing.
    is_doubtful : bool
        A batch failed that may be in the log (TransactionalOrder).
    waits_for_identity : bool
        What is in flight is to be numbered anew when there is a new producer id.
    topic_id : bytes
        Of the topic when it was looked at last.
    key : tuple of str, int
        Topic and partition.
    leader, leader_epoch : int
        The node that leads it and since which epoch, -1 where that is not known.
    is_stopped : bool
        A delivery failed, and kbatch.on.delivery.failure says that nothing may pass it.
    gate : tuple
        What the accumulator was told last.
    """

    def __init__(self, str topic not None, int32_t partition):
        self.topic = topic
        self.partition = partition
        self.key = (topic, partition)
        self.topic_id = b""
        self.leader = self.leader_epoch = -1
        self.known_ns = _UNKNOWN_NS
        self.in_flight = []
        self.gate = OPEN
        self.identity = _NOBODY
        self.restart(_NOBODY, 0)

    def restart(self, identity not None, int64_t counter):
        """Numbers begin again, under `identity`."""
        if identity.producer_id != self.identity.producer_id:
            self.known_ns = _UNKNOWN_NS
        self.identity = identity
        self.next_counter = counter
        self.acked_counter = counter - 1
        self.hole_end = 0
        self.is_doubtful = False

    @property
    def has_hole(self):
        """Something with a number failed, and nothing behind it was acknowledged."""
        return self._has_hole()

    cdef bint _has_hole(self) noexcept:
        return self.hole_end > self.acked_counter + 1

    @property
    def is_broken(self):
        """Something is missing, or may be."""
        return self._is_broken()

    cdef bint _is_broken(self) noexcept:
        cdef InFlight each
        if self._has_hole():
            return True
        for each in self.in_flight:
            if each.is_held or each.batch.state == DONE:
                return True
        return False

    def begin_topic(self, bytes topic_id not None):
        """The topic was deleted and made anew: brokers know nothing of the producer, and what was appended
        before is gone.
        """
        cdef InFlight each
        if self.topic_id and self.topic_id != topic_id:
            self.known_ns = _UNKNOWN_NS
            for each in self.in_flight:
                each.is_unsure = each.is_proved = False
        self.topic_id = topic_id

    def begin_leader(self, int32_t leader, int32_t leader_epoch):
        """This node leads the partition: what another one knew, or this one in another epoch, is nothing to
        it. -1 where it is not known.
        """
        cdef InFlight each
        if leader != self.leader or leader_epoch != self.leader_epoch:
            self.leader = leader
            self.leader_epoch = leader_epoch
            self.known_ns = _UNKNOWN_NS
            for each in self.in_flight:
                each.node_id = FORMER_LEADER

    def doubt_leader(self):
        """The leader may know nothing of the producer."""
        self.known_ns = _UNKNOWN_NS

    def is_known_since(self, int64_t oldest_ns):
        """True if the leader has known the producer after `oldest_ns`, and cannot have forgotten it."""
        return self.known_ns > oldest_ns

    def find(self, ProducerBatch batch not None):
        """The batch's InFlight; None where it has none."""
        cdef InFlight each
        for each in self.in_flight:
            if each.batch is batch:
                return each
        return None

    def forget(self, InFlight entry not None):
        """Takes it out of what is in flight; whether it was there."""
        cdef Py_ssize_t i
        for i in range(len(self.in_flight)):
            if self.in_flight[i] is entry:
                del self.in_flight[i]
                return True
        return False

    def add(self, ProducerBatch batch not None, int64_t now_ns):
        """The InFlight of a batch that gets the next numbers."""
        return self._add(batch, now_ns)

    cdef InFlight _add(self, ProducerBatch batch, int64_t now_ns):
        cdef InFlight entry = InFlight(self, batch, now_ns, self.next_counter)
        self.next_counter += entry.record_count
        self.in_flight.append(entry)
        return entry

    def acknowledge(self, InFlight entry not None, int64_t oldest_ns):
        """The batch is in the log. It proves those before it, if the leader that says so is known to have
        had their numbers in mind (`is_known_since`)."""
        self._acknowledge(entry, oldest_ns)

    cdef int _acknowledge(self, InFlight entry, int64_t oldest_ns) except -1:
        cdef InFlight each
        cdef bint is_of_leader = entry.node_id == self.leader
        for each in self.in_flight:
            if each.counter >= entry.counter:
                break
            if each.counter > self.acked_counter:  # it is passed now
                each.is_proved = is_of_leader and self.known_ns > oldest_ns
        if is_of_leader:
            self.known_ns = max(self.known_ns, entry.sent_ns)
        self.acked_counter = max(self.acked_counter, entry.counter + entry.record_count - 1)
        self.forget(entry)
        return 0

    def gate_under(self, identity not None, Py_ssize_t max_in_flight, int64_t oldest_ns):
        """What the accumulator may give out of the partition (`gate`), for a producer with this identity."""
        cdef InFlight each, first
        cdef bint is_blocked
        cdef int64_t tried = _NOTHING
        cdef bint is_behind = self.identity != identity
        if not self.in_flight:
            is_blocked = identity is _NOBODY or (self._has_hole() and not is_behind)
            return (False, True, -1) if is_blocked else OPEN
        if self.waits_for_identity:
            return (False, True, NOTHING)
        first = <InFlight>self.in_flight[0]
        is_blocked = (is_behind or self.known_ns <= oldest_ns or self._has_hole()
                      or first.counter <= self.acked_counter or len(self.in_flight) >= max_in_flight)
        for each in self.in_flight:
            if each.is_held or each.batch.state == DONE:
                is_blocked = True
            elif tried == _NOTHING:
                tried = each.number
            if each.is_out and each.node_id != self.leader:  # which still has to answer
                is_blocked = True
        return (False, is_blocked, tried)


cdef int _tell_gate(PartitionState state, PartitionQueue queue, object identity,
                    Py_ssize_t max_in_flight, int64_t oldest_ns) except -1:
    cdef tuple gate = state.gate_under(identity, max_in_flight, oldest_ns)
    if gate != state.gate:
        state.gate = gate
        queue.set_gate(gate[0], gate[1], gate[2])
    return 0


def number_new(list batches not None, dict states not None, identity not None, Py_ssize_t max_in_flight,
               attempt, int64_t oldest_ns):
    """Numbers drained batches, a partition each, that go out for the first time, in one request.

    Parameters
    ----------
    batches : list of ProducerBatch
    states : dict of (str, int) to PartitionState
    identity : Identity
        The producer's, under which the partitions are already.
    max_in_flight, oldest_ns : int
        As `gate_under` takes them.
    attempt : ProduceAttempt
        The request.

    Returns
    -------
    dict of (str, int) to InFlight, or None
        By partition, in order. None, and nothing has changed: one of them is not as usual.
    """
    cdef list known = []
    cdef dict entries = {}
    cdef ProducerBatch batch
    cdef PartitionState state
    cdef InFlight entry
    cdef Py_ssize_t i
    cdef int32_t node_id = attempt.node_id
    cdef int64_t now_ns = attempt.sent_ns
    if identity is _NOBODY:
        return None
    for batch in batches:
        state = states.get((batch.queue.topic, batch.queue.partition))
        if state is None or state.identity is not identity:
            return None
        if batch.attempts > 0 or batch.header.base_sequence >= 0:
            return None
        if state.in_flight and state.known_ns <= oldest_ns:  # since its gate was told last
            return None
        known.append(state)
    for i in range(len(batches)):
        state = <PartitionState>known[i]
        batch = <ProducerBatch>batches[i]
        entry = state._add(batch, now_ns)
        entry.node_id = node_id
        entry.attempt = attempt
        entry.is_out = batch.was_sent = True
        batch.stamp(identity.producer_id, identity.epoch, entry.counter & INT32_MAX)
        entries[state.key] = entry
        _tell_gate(state, batch.queue, identity, max_in_flight, oldest_ns)
    return entries


def acknowledge_all(dict entries not None, list topics not None, dict names not None, identity not None,
                    Py_ssize_t max_in_flight, list completed not None, int64_t oldest_ns):
    """Completes the batches of a request that was answered, if all of them are in the log.

    Parameters
    ----------
    entries : dict of (str, int) to InFlight
        By partition.
    topics : list of ProduceResponse.TopicProduceResponse
    names : dict of bytes to str
        Of topics, by their ids.
    identity, max_in_flight
        As `gate_under` takes them.
    completed : list of Completion
        Gets those of batches that are done by this.
    oldest_ns : int
        As `acknowledge` and `gate_under` take it.

    Returns
    -------
    bool
        False, and nothing has changed: something is not as usual.
    """
    cdef dict found = {}
    cdef InFlight entry
    for topic in topics:
        name = topic.name or names.get(topic.topic_id, "")
        for answer in topic.partition_responses:
            entry = entries.get((name, answer.index))
            if entry is None or answer.error_code != 0 or entry.state._is_broken():
                return False
            found[entry] = answer
    if len(found) != len(entries):
        return False
    for entry, answer in found.items():
        entry.state._acknowledge(entry, oldest_ns)
        if entry.batch.finish(SUCCEEDED, answer.base_offset, answer.log_append_time_ms, None, None):
            completed.append(entry.batch.completion)
        _tell_gate(entry.state, entry.batch.queue, identity, max_in_flight, oldest_ns)
    return True
