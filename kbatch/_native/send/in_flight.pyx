"""InFlight: unfinished batches that were drained, and the state of their partitions.

Theory of operation. These objects belong to the sender, and kbatch.core decides about them: Idempotence
interprets the sequences, Sender the fate of a batch. The rules that every batch meets are in sequences.h, and
need no Python; the lane applies them too.

Only the sender's thread uses them.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t

from kbatch._native.batch.producer_batch cimport ProducerBatch

from typing import NamedTuple

NOTHING = KB_NO_RECORD
UNKNOWN_NS = KB_UNKNOWN_NS


class Identity(NamedTuple):
    """A producer id and its epoch."""

    producer_id: int
    epoch: int


NO_IDENTITY = Identity(-1, -1)
# muted, fresh_blocked and retry_number for `RecordAccumulator.set_gate`; most partitions have this one.
OPEN = (False, False, -1)
RULES = KB_RULES


cdef kb_identity identity_of(object identity) except *:
    cdef kb_identity raw
    raw.producer_id, raw.epoch = identity
    return raw


@cython.final
@cython.freelist(64)
cdef class InFlight:
    """A batch that was drained and is not done.

    Attributes
    ----------
    number : int
        Of its first record in the partition, as for `ProducerBatch.first_number`.
    counter : int
        Of its first record within the identity of its partition's state; -1 without idempotence.
    sent_ns : int
        Time of the first transmission.
    node_id, attempt
        Node and request of the last transmission. The node is -2 if the partition has got another leader
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
        self.raw = kb_flight_begin(&batch.raw, sent_ns, counter)
        self.raw.owner = <void *>self

    @property
    def number(self):
        return self.batch.raw.first_number

    @property
    def record_count(self):
        return self.raw.record_count

    @property
    def sent_ns(self):
        return self.raw.sent_ns

    @property
    def counter(self):
        return self.raw.counter

    @counter.setter
    def counter(self, int64_t value):
        self.raw.counter = value

    @property
    def end(self):
        """The counter after its last record."""
        return self.raw.counter + self.raw.record_count

    @property
    def node_id(self):
        return self.raw.node_id

    @node_id.setter
    def node_id(self, int32_t value):
        self.raw.node_id = value

    @property
    def is_in_flight(self):
        return self.raw.is_in_flight

    @is_in_flight.setter
    def is_in_flight(self, bint value):
        self.raw.is_in_flight = value

    @property
    def is_ambiguous(self):
        return self.raw.is_ambiguous

    @is_ambiguous.setter
    def is_ambiguous(self, bint value):
        self.raw.is_ambiguous = value

    @property
    def is_set_aside(self):
        return self.raw.is_set_aside

    @is_set_aside.setter
    def is_set_aside(self, bint value):
        self.raw.is_set_aside = value

    @property
    def is_proved(self):
        return self.raw.is_proved

    @is_proved.setter
    def is_proved(self, bint value):
        self.raw.is_proved = value


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
    known_ns : int
        The leader has known the producer id since this time: that of the first transmission of the batch that
        it acknowledged last. UNKNOWN_NS if it may not know it.
    transaction : int
        The last transaction that the coordinator has added the partition to (TransactionalSequences).
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
        self._former_topic_ids = ()
        self._entries = set()
        kb_sequences_init(&self.raw, &RULES)

    # The batches in flight

    @property
    def in_flight(self):
        """list of InFlight : in the order of the records."""
        cdef list found = []
        cdef kb_in_flight *each = self.raw.first
        while each != NULL:
            found.append(self._entry_of(each))
            each = each.next
        return found

    def find(self, ProducerBatch batch not None):
        """Return the batch's InFlight, or None."""
        cdef kb_in_flight *each = self.raw.first
        while each != NULL:
            if each.batch == &batch.raw:
                return self._entry_of(each)
            each = each.next
        return None

    cdef InFlight _entry_of(self, kb_in_flight *raw):
        """Return the InFlight of a batch in the list, which has none yet if it was sent without the GIL."""
        cdef InFlight entry
        if raw.owner != NULL:
            return <InFlight>raw.owner
        entry = InFlight.__new__(InFlight)
        entry.state = self
        entry.batch = <ProducerBatch>raw.batch.owner
        entry.raw = raw
        raw.owner = <void *>entry
        self._entries.add(entry)
        return entry

    def add(self, ProducerBatch batch not None, int64_t now_ns, *, bint is_numbered=True):
        """Return the InFlight of a batch that gets the next numbers, or none."""
        cdef InFlight entry = InFlight(self, batch, now_ns)
        self._entries.add(entry)
        if is_numbered:
            self.raw.rules.number(&self.raw, entry.raw)
        else:
            self.raw.rules.insert(&self.raw, entry.raw, NULL)
        return entry

    def forget(self, InFlight entry not None):
        """Remove it from the batches in flight; True if it was there."""
        return self._forget(entry)

    cdef bint _forget(self, InFlight entry) except -1:
        if entry not in self._entries:
            return False
        self.raw.rules.remove(&self.raw, entry.raw)
        self.disown(entry)
        return True

    cdef int disown(self, InFlight entry) except -1:
        """Record that the entry has left the list."""
        entry.raw.owner = NULL
        self._entries.discard(entry)
        return 0

    def split(self, InFlight entry not None, list parts not None):
        """Put the parts of a batch, ProducerBatch, into its place, with its numbers."""
        cdef kb_in_flight *before = entry.raw
        cdef int64_t counter = entry.raw.counter
        cdef InFlight part
        for batch in parts:
            part = InFlight(self, batch, entry.raw.sent_ns, counter)
            self._entries.add(part)
            self.raw.rules.insert(&self.raw, part.raw, before)
            before = part.raw
            counter += part.raw.record_count
        self._forget(entry)

    # Numbers

    def restart(self, identity not None, int64_t counter):
        """Restart the numbers, under `identity`."""
        self.raw.rules.restart(&self.raw, identity_of(identity), counter)

    def acknowledge(self, InFlight entry not None, int64_t oldest_ns):
        """Record that the batch is in the log. It proves those before it if the answering leader is known to
        have had their numbers in its state (`is_known_since`).
        """
        self.raw.rules.acknowledge(&self.raw, entry.raw, oldest_ns)
        self._forget(entry)

    @property
    def has_hole(self):
        """True if a numbered batch failed, and no later one was acknowledged."""
        return kb_has_hole(&self.raw)

    @property
    def is_broken(self):
        """True if a batch is missing, or may be."""
        return self.raw.rules.is_broken(&self.raw)

    # The leader

    def begin_topic(self, bytes topic_id not None):
        """Record the topic's id. With another one it was recreated: brokers know nothing of the producer, and
        earlier batches are gone, unless the id comes back, from a broker with newer metadata.
        """
        if self.topic_id and self.topic_id != topic_id:
            if self.raw.first == NULL:
                self._former_topic_ids = ()
            kb_begin_topic(&self.raw, topic_id in self._former_topic_ids)
            if self.topic_id not in self._former_topic_ids:
                self._former_topic_ids += (self.topic_id,)
        self.topic_id = topic_id

    def begin_leader(self, int32_t leader, int32_t leader_epoch):
        """Record the partition's leader, -1 if unknown; the state of another node or epoch is invalid."""
        kb_begin_leader(&self.raw, leader, leader_epoch)

    def doubt_leader(self):
        """Record that the leader may have no state of the producer."""
        self.raw.known_ns = KB_UNKNOWN_NS

    def is_known_since(self, int64_t oldest_ns):
        """True if the leader has known the producer since after `oldest_ns`, and cannot have forgotten it."""
        return self.raw.known_ns > oldest_ns

    # The gate

    def gate_under(self, identity, Py_ssize_t max_in_flight, int64_t oldest_ns):
        """Return the limits for the accumulator (`gate`), for a producer with this identity. None means a
        producer without sequences: it keeps the order only with one request in flight, and mutes the
        partition then.
        """
        cdef kb_identity raw
        if identity is None:
            return _gate_tuple(self.raw.rules.gate_under(&self.raw, NULL, max_in_flight, oldest_ns))
        raw = identity_of(identity)
        return _gate_tuple(self.raw.rules.gate_under(&self.raw, &raw, max_in_flight, oldest_ns))

    @property
    def gate(self):
        return _gate_tuple(self.raw.gate)

    @gate.setter
    def gate(self, tuple value not None):
        self.raw.gate.muted, self.raw.gate.fresh_blocked, self.raw.gate.retry_number = value

    # What kbatch.core decides

    @property
    def identity(self):
        return Identity(self.raw.identity.producer_id, self.raw.identity.epoch)

    @identity.setter
    def identity(self, value):
        self.raw.identity = identity_of(value)

    @property
    def next_counter(self):
        return self.raw.next_counter

    @next_counter.setter
    def next_counter(self, int64_t value):
        self.raw.next_counter = value

    @property
    def acked_counter(self):
        return self.raw.acked_counter

    @acked_counter.setter
    def acked_counter(self, int64_t value):
        self.raw.acked_counter = value

    @property
    def hole_end(self):
        return self.raw.hole_end

    @hole_end.setter
    def hole_end(self, int64_t value):
        self.raw.hole_end = value

    @property
    def known_ns(self):
        return self.raw.known_ns

    @known_ns.setter
    def known_ns(self, int64_t value):
        self.raw.known_ns = value

    @property
    def transaction(self):
        return self.raw.transaction

    @transaction.setter
    def transaction(self, int64_t value):
        self.raw.transaction = value

    @property
    def is_doubtful(self):
        return self.raw.is_doubtful

    @is_doubtful.setter
    def is_doubtful(self, bint value):
        self.raw.is_doubtful = value

    @property
    def is_stopped(self):
        return self.raw.is_stopped

    @is_stopped.setter
    def is_stopped(self, bint value):
        self.raw.is_stopped = value

    @property
    def waits_for_identity(self):
        return self.raw.waits_for_identity

    @waits_for_identity.setter
    def waits_for_identity(self, bint value):
        self.raw.waits_for_identity = value

    @property
    def leader(self):
        return self.raw.leader

    @property
    def leader_epoch(self):
        return self.raw.leader_epoch


cdef tuple _gate_tuple(kb_gate gate):
    return gate.muted, gate.fresh_blocked, gate.retry_number
