"""Idempotence: the sequences of batches, and the meaning of an answer for the other batches of a partition.

Theory of operation. A producer has an identity, an id and an epoch. Within it, the records of a partition are
numbered from 0 by 64-bit counters; a sequence is a counter modulo 2^31. A batch gets its counter when it is
first drained, and keeps it over retries; it leaves `in_flight` when it is done. The partition's state alone
says which of its batches may be drained (`gate`).

A broker accepts the batch that follows the last one, and recognizes duplicates of the last five. It refuses a
batch (OUT_OF_ORDER_SEQUENCE_NUMBER) if an earlier one is missing, and also if the batch itself was appended
and forgotten. Three steps find out which:

1. A refused batch is retried after earlier batches that are unanswered or due for a retry.
2. A refused batch that is the next in order is *set aside*, and later batches are tried in turn, under their
   sequences. If one of them is accepted, those set aside fail: under their sequences they cannot get into the
   log any more, and no answer says that they are there.
3. If none is accepted, batches that may be in the log fail, since another attempt could duplicate them, and
   so do batches that a later one has passed, since they would follow it. The others, whose every attempt was
   refused, are renumbered from 0 under the next epoch.

A failed batch leaves a hole, which is settled in the same way.

Leaders forget. A leader without state of a producer id accepts any sequence, and so a batch without the one
before it. It has no state before the first batch, after the producer id expired, and perhaps after an
election or if the topic was created again. A partition is *known* for kbatch.sequence.idle.ms after the
sending of the last batch that its leader acknowledged (`known_ns`), until metadata or an answer name another
leader, epoch or topic. The rules:

- While a partition is not known, one batch travels alone. Its acknowledgement makes the partition known.
- A later batch that is accepted while the partition is known *proves* the earlier ones, without which the
  leader could not accept it. While the partition is not known, it proves nothing.
- No new batch follows one that a later batch has passed, so the leader always remembers it among its last
  five. If it is refused as out of order, it is not in the log or that is unknowable: it fails, proved or not,
  and is possibly_persisted if an attempt was ambiguous.

With batches A before B, the fate of A is:

- A refused, B refused: both are retried, A alone and first.
- A refused without an append, B accepted: the leader forgot. A is retried, and fails as out of order, not
  possibly_persisted. (Java retries A until delivery.timeout.ms, and fails it.)
- A ambiguous, B accepted: A is retried. A duplicate is delivered with its offset; out of order fails, and is
  possibly_persisted. If A expires first, or is refused for its size, it is delivered (offset -1) if B proved
  it, and otherwise fails as possibly_persisted.
- A and B in flight when the leader moves: the new leader gets no new batch before the old one has answered,
  then A alone, then B. A late answer of the old leader does not make the new one known.
- A in flight when the pause grows too long: B waits for the answer to A, since it is admitted by the current
  clock and not by the gate's. A's acknowledgement counts from the first sending of A, because the answer to a
  duplicate shows no newer state.
- Several connections to one leader change nothing: this state belongs to the partition.
- A new epoch of the same producer id leaves the partition known: a leader with state accepts only 0, and then
  the next sequences. A new producer id begins as unknown.
- A transactional producer obeys the same rules. A failed batch aborts its transaction, and the next epoch
  ends the gap (TransactionalSequences).

Java is weaker in three points. It renumbers batches that may be in the log. After a leader change it allows
ten unanswered batches of a partition, of which brokers remember five. It sends several batches to a leader
that may have forgotten the producer. kbatch.sequence.gap=resend renumbers as Java does.

After org.apache.kafka.clients.producer.internals.TransactionManager and TxnPartitionMap; KIP-98, KIP-360.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kbatch._native.send.in_flight import (
    NO_IDENTITY,
    Identity,
    InFlight,
    PartitionState,
)
from kbatch.core.client.backoff import NEVER_NS
from kbatch.core.producer.outcomes import BATCH_OUTCOMES, ErrorOutcome
from kbatch.protocol import features

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbatch._native.batch.producer_batch import ProducerBatch
    from kbatch.errors import KafkaError

MAX_EPOCH = 32767
MAX_SEQUENCE = 2**31 - 1
# muted, fresh_blocked and retry_number for `RecordAccumulator.set_gate`.
Gate = tuple[bool, bool, int]


class Settled(NamedTuple):
    """The end of a gap: batches that fail, and batches to be sent again under new sequences."""

    lost: list[InFlight]
    renumbered: list[InFlight]


class Idempotence:
    """The sequences of a producer.

    Parameters
    ----------
    max_in_flight : int
        Maximum number of unacknowledged batches of a partition, on all connections together.
    idle_ns : int
        kbatch.sequence.idle.ms: the time for which a leader surely remembers the producer.
    resends_gaps : bool
        kbatch.sequence.gap=resend: batches that may be in the log are sent again too.
    first_counter : int
        The first counter of a new producer id; for tests.
    """

    def __init__(
        self, *, max_in_flight: int, idle_ns: int, resends_gaps: bool = False, first_counter: int = 0
    ) -> None:
        self._max_in_flight = max_in_flight
        self._idle_ns = idle_ns
        self._resends_gaps = resends_gaps
        self._first_counter = first_counter
        self.adopt(NO_IDENTITY)

    def adopt(self, identity: Identity) -> None:
        """Use a producer id from a broker, or its next epoch."""
        self.identity = identity
        self.needs_identity = identity is NO_IDENTITY

    # Draining

    is_idempotent = True

    @property
    def drains_new(self) -> bool:
        """True if new batches may be drained, of some partitions."""
        return not self.needs_identity

    @property
    def highest_produce_version(self) -> int:
        """The highest version of Produce requests to use."""
        return features.ANY_VERSION

    @property
    def lane_transaction(self) -> int:
        """The transaction that the lane's partitions must have been added to; 0 for none."""
        return 0

    def note_sent(self, batches: list[ProducerBatch]) -> None:
        """Record batches that the lane has in flight, for subclasses."""

    @property
    def on_acknowledged(self) -> Callable[[list[ProducerBatch]], None] | None:
        """What gets batches that a broker has acknowledged to the lane; None if nothing has to know them."""
        return None

    def holds_back(self, state: PartitionState, now_ns: int) -> bool:
        """True if a new batch of the partition must wait, although its gate was open."""
        return self.needs_identity or (bool(state.in_flight) and not self._knows(state, now_ns))

    def _knows(self, state: PartitionState, now_ns: int) -> bool:
        """True if the partition's leader cannot have forgotten the producer."""
        return state.is_known_since(now_ns - self._idle_ns)

    def gate(self, state: PartitionState, now_ns: int) -> Gate:
        """Return which batches of the partition the accumulator may drain."""
        return state.gate_under(self.identity, self._max_in_flight, now_ns - self._idle_ns)

    def admit(self, state: PartitionState, batch: ProducerBatch, now_ns: int) -> InFlight:
        """Return the entry of a drained batch, with its earlier sequence or the next one in its header."""
        entry = state.find(batch)
        if entry is None:
            if not state.in_flight and state.identity != self.identity:
                self._begin_anew(state)
            entry = state.add(batch, now_ns)
        identity, sequence = state.identity, entry.counter & MAX_SEQUENCE
        if (
            batch.base_sequence != sequence
            or batch.producer_epoch != identity.epoch
            or batch.producer_id != identity.producer_id
        ):
            batch.stamp(identity.producer_id, identity.epoch, sequence)
        return entry

    def _begin_anew(self, state: PartitionState) -> None:
        is_new_id = state.identity.producer_id != self.identity.producer_id
        state.restart(self.identity, self._first_counter if is_new_id else 0)

    # Answers

    def acknowledge(self, entry: InFlight, now_ns: int) -> list[InFlight]:
        """Record that the batch is in the log, even if it has failed. Return the earlier ones that are lost
        now (`is_lost`).
        """
        state = entry.state
        state.acknowledge(entry, now_ns - self._idle_ns)
        return [each for each in state.in_flight if each.is_set_aside and self.is_lost(each)]

    def is_passed(self, entry: InFlight) -> bool:
        """True if a later batch of the same identity is in the log."""
        return entry.counter <= entry.state.acked_counter

    def is_proved(self, entry: InFlight) -> bool:
        """True if the batch is in the log although it was not acknowledged: an attempt was ambiguous, a later
        batch needed it, and the leader has not denied it.
        """
        error = entry.last_error
        is_denied = (
            error is not None and error.code is not None and BATCH_OUTCOMES[error.code] is ErrorOutcome.GAP
        )
        return entry.is_proved and entry.is_ambiguous and not is_denied

    def is_lost(self, entry: InFlight) -> bool:
        """True if a batch that was refused as out of order cannot get into the log under its sequence."""
        return self.is_passed(entry) and not self._resends_gaps

    def set_aside(self, entry: InFlight) -> bool:
        """Set aside a batch that was refused as out of order. Return False if an earlier one comes first:
        then retry it after that.
        """
        for each in entry.state.in_flight:
            if each is entry:
                entry.is_set_aside = True
                return True
            if not each.is_set_aside:
                return False
        return False

    def fail(self, entry: InFlight) -> None:
        """Record that the batch failed, and that its sequence is a hole."""
        if entry.state.forget(entry):
            entry.state.hole_end = max(entry.state.hole_end, entry.end)

    def longest_backoff_ns(self, error: KafkaError, attempts: int) -> int:
        """Return the longest wait before the retry of a batch after `error`, which was sent so often."""
        return NEVER_NS

    def split(self, entry: InFlight, parts: list[ProducerBatch]) -> None:
        """Put parts into a batch's place, with its sequences."""
        entry.state.split(entry, parts)

    def note_retry(self, entry: InFlight) -> None:
        """Record that the batch will be retried, with its sequence."""

    # Gaps

    def settle(self, state: PartitionState) -> Settled | None:
        """End a gap if no further answer can say whether its batches are in the log. Return None if one can,
        or if there is no gap.
        """
        if state.waits_for_identity or not self._can_settle(state):
            return None
        lost = [each for each in state.in_flight if self._is_lost_in_gap(each)]
        for each in lost:
            self.fail(each)
        if state.identity == self.identity:
            self._bump()
        if self.needs_identity and state.in_flight:
            state.waits_for_identity = True
            return Settled(lost, [])
        return Settled(lost, self.renumber(state))

    def _is_lost_in_gap(self, entry: InFlight) -> bool:
        """True if a new sequence could put the batch into the log twice, or after a later one."""
        return (entry.is_ambiguous or self.is_passed(entry)) and not self._resends_gaps

    def _can_settle(self, state: PartitionState) -> bool:
        if not state.is_broken:
            return False
        return not any(
            each.is_in_flight or (each.is_ambiguous and not each.is_set_aside) for each in state.in_flight
        )

    def renumber(self, state: PartitionState) -> list[InFlight]:
        """Renumber the batches in flight from the start of the producer's identity. Return those that were
        set aside, which are in no queue.
        """
        set_aside = [each for each in state.in_flight if each.is_set_aside]
        state.waits_for_identity = False
        if state.in_flight:
            self._begin_anew(state)
        for each in state.in_flight:
            each.counter = state.next_counter
            each.is_set_aside = False
            state.next_counter = each.end
        return set_aside

    def _bump(self) -> None:
        """Use the next epoch; after the last one, request a new producer id (KIP-360)."""
        if self.identity.epoch >= MAX_EPOCH:
            self.adopt(NO_IDENTITY)
        else:
            self.adopt(Identity(self.identity.producer_id, self.identity.epoch + 1))


class WithoutIdempotence:
    """The order of a producer without sequences, which is kept only with one request in flight.

    Parameters
    ----------
    max_in_flight : int
        max.in.flight.requests.per.connection.
    """

    is_idempotent = False

    def __init__(self, *, max_in_flight: int) -> None:
        self._max_in_flight = max_in_flight
        self.identity = NO_IDENTITY
        self.needs_identity = False
        self.drains_new = True
        self.lane_transaction = 0

    @property
    def highest_produce_version(self) -> int:
        return features.ANY_VERSION

    def note_sent(self, batches: list[ProducerBatch]) -> None:
        """Do nothing: there are no transactions."""

    on_acknowledged = None

    def holds_back(self, state: PartitionState, now_ns: int) -> bool:
        return False

    def gate(self, state: PartitionState, now_ns: int) -> Gate:
        """Return the gate: if order is kept, a partition is muted while a batch is in flight."""
        return state.gate_under(None, self._max_in_flight, now_ns)

    def admit(self, state: PartitionState, batch: ProducerBatch, now_ns: int) -> InFlight:
        return state.add(batch, now_ns, is_numbered=False)

    def acknowledge(self, entry: InFlight, now_ns: int) -> list[InFlight]:
        entry.state.forget(entry)
        return []

    def is_passed(self, entry: InFlight) -> bool:
        return False

    is_proved = is_lost = is_passed

    def set_aside(self, entry: InFlight) -> bool:
        return False

    def fail(self, entry: InFlight) -> None:
        entry.state.forget(entry)

    def longest_backoff_ns(self, error: KafkaError, attempts: int) -> int:
        return NEVER_NS

    def split(self, entry: InFlight, parts: list[ProducerBatch]) -> None:
        """Forget the batch: its parts are drained like new ones."""
        entry.state.forget(entry)

    def note_retry(self, entry: InFlight) -> None:
        """Forget the entry: the next attempt has its own."""
        entry.state.forget(entry)

    def settle(self, state: PartitionState) -> Settled | None:
        return None
