"""InFlight: unfinished batches that were drained, and the state of their partitions.

Theory of operation. These objects belong to the sender, and kbatch.core decides about them: Idempotence
interprets the sequences, Sender the fate of a batch. Here is what both do for every batch and partition;
`produce_wire` does it for a whole request.

Only the sender's thread uses them.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t

from kbatch._native.batch.producer_batch cimport DONE, ProducerBatch

from typing import NamedTuple

# A record number of no batch: no retry may be drained.
NOTHING = 2**62
cdef int64_t _NOTHING = NOTHING
# Before any clock: the `known_ns` of a partition whose leader may have no state of the producer.
UNKNOWN_NS = -2**62
cdef int64_t _UNKNOWN_NS = UNKNOWN_NS
# The `node_id` of a batch whose request went to a former leader.
cdef int32_t FORMER_LEADER = -2


class Identity(NamedTuple):
    """A producer id and its epoch."""

    producer_id: int
    epoch: int


NO_IDENTITY = Identity(-1, -1)
# muted, fresh_blocked and retry_number for `RecordAccumulator.set_gate`; most partitions have this one.
OPEN = (False, False, -1)
cdef object _NO_IDENTITY = NO_IDENTITY


@cython.final
@cython.freelist(64)
cdef class InFlight:
    """A batch that was drained and is not done.

    Attributes
    ----------
    counter : int
        Of its first record within the identity of its partition's state; -1 without idempotence.
    sent_ns : int
        Time of the first transmission.
    node_id, attempt
        Node and request of the last transmission; node_id is -2 if the partition has got another leader
        since, or the same one in another epoch.
    is_in_flight : bool
        A request with it is unanswered.
    is_ambiguous : bool
        An attempt had no answer, or one after which it may be in the current log of the topic.
    is_set_aside : bool
        It was refused although it was the next in sequence.
    is_proved : bool
        A later batch was accepted by a leader that knew the producer, so this one is in the log.
    last_error : KafkaError | None
        The error of the last attempt.
    """

    def __init__(self, PartitionState state not None, ProducerBatch batch not None, int64_t sent_ns,
                 int64_t counter=-1):
        self.state = state
        self.batch = batch
        self.sent_ns = sent_ns
        self.number = batch.raw.first_number
        self.record_count = batch.raw.contents.count
        self.counter = counter
        self.node_id = -1

    @property
    def end(self):
        """The counter after its last record."""
        return self.counter + self.record_count


@cython.final
cdef class PartitionState:
    """The sender's state of a partition.

    Attributes
    ----------
    identity : Identity
        The identity of its sequences; older than the producer's own until the batches in flight are done.
    next_counter, acked_counter, hole_end : int
        Of the next new batch; of the last record known to be in the log (-1: none); after the last failed
        record that had a number.
    in_flight : list of InFlight
        In the order of the records.
    known_ns : int
        The leader has known the producer id since this time: that of the first transmission of the batch that
        it acknowledged last; UNKNOWN_NS if it may not know it.
    is_doubtful : bool
        A failed batch may be in the log (TransactionalSequences).
    waits_for_identity : bool
        Batches in flight will be renumbered when there is a new producer id.
    topic_id : bytes
        The id of the topic at the last check.
    key : tuple of str, int
        Topic and partition.
    leader, leader_epoch : int
        The leader's node and epoch, -1 if unknown.
    is_stopped : bool
        A delivery failed, and kbatch.on.delivery.failure lets nothing pass it.
    gate : tuple
        The limits last passed to the accumulator.
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
        self.identity = _NO_IDENTITY
        self.restart(_NO_IDENTITY, 0)

    def restart(self, identity not None, int64_t counter):
        """Restart the numbers, under `identity`."""
        if identity.producer_id != self.identity.producer_id:
            self.known_ns = _UNKNOWN_NS
        self.identity = identity
        self.next_counter = counter
        self.acked_counter = counter - 1
        self.hole_end = 0
        self.is_doubtful = False

    @property
    def has_hole(self):
        """True if a numbered batch failed, and no later one was acknowledged."""
        return self._has_hole()

    cdef bint _has_hole(self) noexcept:
        return self.hole_end > self.acked_counter + 1

    @property
    def is_broken(self):
        """True if a batch is missing, or may be."""
        return self._is_broken()

    cdef bint _is_broken(self) noexcept:
        cdef InFlight each
        if self._has_hole():
            return True
        for each in self.in_flight:
            if each.is_set_aside or each.batch.raw.state == DONE:
                return True
        return False

    def begin_topic(self, bytes topic_id not None):
        """Note that the topic was recreated: brokers know nothing of the producer, and earlier batches are
        gone.
        """
        cdef InFlight each
        if self.topic_id and self.topic_id != topic_id:
            self.known_ns = _UNKNOWN_NS
            for each in self.in_flight:
                each.is_ambiguous = each.is_proved = False
        self.topic_id = topic_id

    def begin_leader(self, int32_t leader, int32_t leader_epoch):
        """Note the partition's leader, -1 if unknown; the state of another node or epoch no longer counts."""
        cdef InFlight each
        if leader != self.leader or leader_epoch != self.leader_epoch:
            self.leader = leader
            self.leader_epoch = leader_epoch
            self.known_ns = _UNKNOWN_NS
            for each in self.in_flight:
                each.node_id = FORMER_LEADER

    def doubt_leader(self):
        """Note that the leader may have no state of the producer."""
        self.known_ns = _UNKNOWN_NS

    def is_known_since(self, int64_t oldest_ns):
        """True if the leader has known the producer since after `oldest_ns`, and cannot have forgotten it."""
        return self.known_ns > oldest_ns

    def find(self, ProducerBatch batch not None):
        """Return the batch's InFlight, or None."""
        cdef InFlight each
        for each in self.in_flight:
            if each.batch is batch:
                return each
        return None

    def forget(self, InFlight entry not None):
        """Remove it from the batches in flight; True if it was there."""
        cdef Py_ssize_t i
        for i in range(len(self.in_flight)):
            if self.in_flight[i] is entry:
                del self.in_flight[i]
                return True
        return False

    def add(self, ProducerBatch batch not None, int64_t now_ns):
        """Return the InFlight of a batch that gets the next numbers."""
        return self._add(batch, now_ns)

    cdef InFlight _add(self, ProducerBatch batch, int64_t now_ns):
        cdef InFlight entry = InFlight(self, batch, now_ns, self.next_counter)
        self.next_counter += entry.record_count
        self.in_flight.append(entry)
        return entry

    def acknowledge(self, InFlight entry not None, int64_t oldest_ns):
        """Note that the batch is in the log. It proves those before it if the answering leader is known to
        have had their numbers in its state (`is_known_since`).
        """
        self._acknowledge(entry, oldest_ns)

    cdef int _acknowledge(self, InFlight entry, int64_t oldest_ns) except -1:
        cdef InFlight each
        cdef bint is_of_leader = entry.node_id == self.leader
        for each in self.in_flight:
            if each.counter >= entry.counter:
                break
            if each.counter > self.acked_counter:  # passed now
                each.is_proved = is_of_leader and self.known_ns > oldest_ns
        if is_of_leader:
            self.known_ns = max(self.known_ns, entry.sent_ns)
        self.acked_counter = max(self.acked_counter, entry.counter + entry.record_count - 1)
        self.forget(entry)
        return 0

    def gate_under(self, identity, Py_ssize_t max_in_flight, int64_t oldest_ns):
        """Return the limits for the accumulator (`gate`), for a producer with this identity. None means a
        producer without sequences: it keeps the order only with one request in flight, and mutes the
        partition then.
        """
        return self._gate_under(identity, max_in_flight, oldest_ns)

    cdef tuple _gate_under(self, object identity, Py_ssize_t max_in_flight, int64_t oldest_ns):
        cdef InFlight each, first
        cdef bint is_blocked
        cdef int64_t tried = _NOTHING
        cdef bint is_outdated
        if identity is None:
            return (True, False, -1) if max_in_flight == 1 and self.in_flight else OPEN
        is_outdated = self.identity != identity
        if not self.in_flight:
            is_blocked = identity is _NO_IDENTITY or (self._has_hole() and not is_outdated)
            return (False, True, -1) if is_blocked else OPEN
        if self.waits_for_identity:
            return (False, True, NOTHING)
        first = <InFlight>self.in_flight[0]
        is_blocked = (is_outdated or self.known_ns <= oldest_ns or self._has_hole()
                      or first.counter <= self.acked_counter or len(self.in_flight) >= max_in_flight)
        for each in self.in_flight:
            if each.is_set_aside or each.batch.raw.state == DONE:
                is_blocked = True
            elif tried == _NOTHING:
                tried = each.number
            if each.is_in_flight and each.node_id != self.leader:  # which must still answer
                is_blocked = True
        return (False, is_blocked, tried)
