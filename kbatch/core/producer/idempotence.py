"""Idempotence: which batch of a partition has which sequence, and what an answer says about the others.

Theory of operation. A producer has an identity, an id and an epoch, and numbers the records of a partition
from 0 within it. Numbers are 64-bit counters; what goes over the wire is their rest modulo 2^31. A batch gets
its counter when it is first drained, and keeps it over retries; it leaves `in_flight` when it is done. What
may be drained from a partition follows from its state alone (`gate`).

A broker accepts the batch that follows the last one, and tells the last five apart from new ones. So it
refuses a batch (OUT_OF_ORDER_SEQUENCE_NUMBER) when one before it is missing, and also when the batch itself
was appended but is forgotten. What that means is found out in three steps:

1. A batch that is refused while one before it is unanswered or to be tried again is tried again after that.
2. One that is refused though it is the next is *held*, and the batches behind it are tried in turn, under
   their sequences. If one of them is accepted, the held ones fail: there is no way into the log any more
   under their numbers, and no answer says that they are there.
3. If none is accepted, batches that may be in the log fail, since sending them again could double them; the
   others, every attempt of which was refused, are numbered anew from 0 under the next epoch. Those that a
   later one has passed fail too: they would come after it.

A batch that failed leaves a hole, which is settled in the same way.

What a leader may have forgotten. A leader that has no state of a producer id takes any sequence, so it takes
a batch although the one before it is missing. It has none before the first batch; after a pause, when the
producer id expired; perhaps after it was elected, or the topic was made anew. A partition is *known* from
the sending of the last batch that its leader acknowledged (`known_ns`) for kbatch.sequence.idle.ms, until
metadata or an answer say that there is another leader, epoch or topic. The rules that follow:

- While a partition is not known, one batch travels alone. Its acknowledgement makes the partition known.
- A later batch that is accepted while the partition is known *proves* those before it: the leader could not
  take it without them. While it is not known this proves nothing.
- Nothing new follows a batch that a later one has passed, so it is always among the five that the leader
  remembers. Refused as out of order, it is not in the log, or nobody can tell: it fails, proved or not, with
  possibly_persisted if an attempt was ambiguous.

With batches A before B, this is what becomes of A:

- A refused, B refused: both are tried again, A alone and first.
- A refused without an append, B accepted: the leader forgot. A is tried again, and fails as out of order; it
  is not possibly_persisted. (Java tries A until delivery.timeout.ms, and fails it.)
- A ambiguous, B accepted: A is tried again. A duplicate is delivered with its offset; out of order fails, as
  possibly_persisted. If A expires before, or is refused for its size, it is delivered (offset -1) if B
  proved it, and fails as possibly_persisted if not.
- A and B in flight when the leader moves: nothing new goes to the new leader before the old one has
  answered, A goes there alone, then B. What the old leader says late makes the new one no better known.
- A in flight when the pause grows too long: B waits for the answer to A, since B is admitted by the clock
  of that moment and not by that of the gate. A's acknowledgement counts from when A was first sent, because
  a duplicate's answer shows no newer state.
- Several connections to one leader change nothing: all of this is the partition's state, not a connection's.
- A new epoch of the same producer id leaves the partition known: a leader that has state takes 0 only, and
  then what follows. A new producer id begins as unknown.
- A transactional producer obeys the same rules; a batch that fails aborts its transaction, and the
  next epoch ends the gap (TransactionalOrder).

Where Java is weaker: it numbers anew what may be in the log; it lets ten batches of a partition be unanswered
after a leader change where brokers remember five; it sends several batches to a leader that may have
forgotten the producer. kbatch.sequence.gap=resend numbers anew what may be in the log as Java does.

After org.apache.kafka.clients.producer.internals.TransactionManager and TxnPartitionMap; KIP-98, KIP-360.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kbatch._native.send.in_flight import (
    NOBODY,
    Identity,
    InFlight,
    PartitionState,
    acknowledge_all,
    number_new,
)
from kbatch.core.client.backoff import NEVER_NS
from kbatch.core.producer.outcome import OUTCOMES, Outcome

if TYPE_CHECKING:
    from kbatch._native.batch.delivery import Completion
    from kbatch._native.batch.producer_batch import ProducerBatch
    from kbatch.core.producer.produce_attempt import ProduceAttempt
    from kbatch.errors import KafkaError

MAX_EPOCH = 32767
MAX_SEQUENCE = 2**31 - 1
ANY_VERSION = 2**15 - 1
# muted, fresh_blocked and retry_number for `RecordAccumulator.set_gate`.
Gate = tuple[bool, bool, int]


class Settled(NamedTuple):
    """What came of a gap: batches that fail, and batches that are to be sent again under new numbers."""

    lost: list[InFlight]
    renumbered: list[InFlight]


class Idempotence:
    """The sequences of a producer.

    Parameters
    ----------
    max_in_flight : int
        Batches of a partition that are not acknowledged, on all connections together.
    idle_ns : int
        kbatch.sequence.idle.ms: for how long a leader surely remembers the producer.
    resends_gaps : bool
        kbatch.sequence.gap=resend: what may be in the log is sent again too.
    first_counter : int
        Where the numbers of a producer id that brokers do not know yet begin; for tests.
    """

    def __init__(
        self, *, max_in_flight: int, idle_ns: int, resends_gaps: bool = False, first_counter: int = 0
    ) -> None:
        self._max_in_flight = max_in_flight
        self._idle_ns = idle_ns
        self._resends_gaps = resends_gaps
        self._first_counter = first_counter
        self.adopt(NOBODY)

    def adopt(self, identity: Identity) -> None:
        """The producer id that a broker gave, or the next epoch of it."""
        self.identity = identity
        self.needs_identity = identity is NOBODY

    # Draining

    is_idempotent = True

    @property
    def highest_produce_version(self) -> int:
        """Of Produce requests, whatever brokers have."""
        return ANY_VERSION

    def holds_back(self, state: PartitionState, now_ns: int) -> bool:
        """True if a new batch of the partition has to wait, though its gate was open when it was set."""
        return self.needs_identity or (bool(state.in_flight) and not self._knows(state, now_ns))

    def _knows(self, state: PartitionState, now_ns: int) -> bool:
        """True if the partition's leader cannot have forgotten the producer."""
        return state.is_known_since(now_ns - self._idle_ns)

    def gate(self, state: PartitionState, now_ns: int) -> Gate:
        """What the accumulator may give out of the partition."""
        return state.gate_under(self.identity, self._max_in_flight, now_ns - self._idle_ns)

    def admit_new(
        self,
        batches: list[ProducerBatch],
        states: dict[tuple[str, int], PartitionState],
        attempt: ProduceAttempt,
    ) -> dict[tuple[str, int], InFlight] | None:
        """`admit` and `gate` for all batches of a request, if they are such as most are; None, if not: then
        they are to be looked at one by one."""
        oldest_ns = attempt.sent_ns - self._idle_ns
        return number_new(batches, states, self.identity, self._max_in_flight, attempt, oldest_ns)

    def admit(self, state: PartitionState, batch: ProducerBatch, now_ns: int) -> InFlight:
        """A drained batch, with its number in its header: the one it had, or the next."""
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
        """The batch is in the log, even if it had been given up. Returns those before it that are lost by
        that (`is_lost`).
        """
        state = entry.state
        state.acknowledge(entry, now_ns - self._idle_ns)
        return [each for each in state.in_flight if each.is_held and self.is_lost(each)]

    def acknowledge_all(
        self, attempt: ProduceAttempt, topics: list[Any], completed: list[Completion], now_ns: int
    ) -> bool:
        """`acknowledge` and `gate` for all batches of a request, which are completed, if the answer says yes
        to each and nothing is missing; False, if not: then they are to be looked at one by one."""
        names, entries, oldest_ns = attempt.names, attempt.entries, now_ns - self._idle_ns
        return acknowledge_all(
            entries, topics, names, self.identity, self._max_in_flight, completed, oldest_ns
        )

    def is_passed(self, entry: InFlight) -> bool:
        """A later batch of the same identity is in the log."""
        return entry.counter <= entry.state.acked_counter

    def is_proved(self, entry: InFlight) -> bool:
        """True if the batch is in the log though it was not acknowledged: an attempt may have got there, a
        later batch could not without it, and the leader has not said that it does not know the batch.
        """
        error = entry.last_error
        is_denied = error is not None and error.code is not None and OUTCOMES.get(error.code) is Outcome.GAP
        return entry.is_proved and entry.is_unsure and not is_denied

    def is_lost(self, entry: InFlight) -> bool:
        """True if a batch that was refused as out of order can never get into the log under its number."""
        return self.is_passed(entry) and not self._resends_gaps

    def hold(self, entry: InFlight) -> bool:
        """The batch was refused as out of order: whether it is held now. False: one before it comes first,
        and it is to be tried again behind that.
        """
        for each in entry.state.in_flight:
            if each is entry:
                entry.is_held = True
                return True
            if not each.is_held:
                return False
        return False

    def fail(self, entry: InFlight) -> None:
        """The batch is given up, and its number with it."""
        if entry.state.forget(entry):
            entry.state.hole_end = max(entry.state.hole_end, entry.end)

    def batch_failed(self, error: KafkaError, *, had_sequence: bool) -> None:
        """A batch has failed, which may mean something for others."""

    def longest_backoff_ns(self, error: KafkaError) -> int:
        """What a batch waits at most, that was refused for `error`, before it is tried again."""
        return NEVER_NS

    def split(self, entry: InFlight, parts: list[ProducerBatch]) -> None:
        """Parts take a batch's place, and its numbers."""
        in_flight = entry.state.in_flight
        place = in_flight.index(entry)
        counter = entry.counter
        entries = []
        for part in parts:
            entries.append(InFlight(entry.state, part, entry.sent_ns, counter))
            counter += part.record_count
        in_flight[place : place + 1] = entries

    def come_back(self, entry: InFlight) -> None:
        """The batch is to be tried again: with the number it has."""

    # Gaps

    def settle(self, state: PartitionState) -> Settled | None:
        """Ends a gap once nothing can tell any more whether its batches are in the log; None while something
        can, or where there is none.
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
        """True if a new number could put the batch into the log twice, or after a later one."""
        return (entry.is_unsure or self.is_passed(entry)) and not self._resends_gaps

    def _can_settle(self, state: PartitionState) -> bool:
        if not state.is_broken:
            return False
        return not any(each.is_out or (each.is_unsure and not each.is_held) for each in state.in_flight)

    def renumber(self, state: PartitionState) -> list[InFlight]:
        """Gives what is in flight numbers from the start of the producer's identity; returns those that were
        held, and so are in no queue.
        """
        held = [each for each in state.in_flight if each.is_held]
        state.waits_for_identity = False
        if state.in_flight:
            self._begin_anew(state)
        for each in state.in_flight:
            each.counter = state.next_counter
            each.is_held = False
            state.next_counter = each.end
        return held

    def _bump(self) -> None:
        """The next epoch; a new producer id where there is none (KIP-360)."""
        if self.identity.epoch >= MAX_EPOCH:
            self.adopt(NOBODY)
        else:
            self.adopt(Identity(self.identity.producer_id, self.identity.epoch + 1))


class WithoutIdempotence:
    """The same for a producer whose batches have no sequences: order is kept with one request in flight only.

    Parameters
    ----------
    max_in_flight : int
        max.in.flight.requests.per.connection.
    """

    is_idempotent = False

    def __init__(self, *, max_in_flight: int) -> None:
        self._keeps_order = max_in_flight == 1
        self.identity = NOBODY
        self.needs_identity = False

    @property
    def highest_produce_version(self) -> int:
        return ANY_VERSION

    def holds_back(self, state: PartitionState, now_ns: int) -> bool:
        return False

    def gate(self, state: PartitionState, now_ns: int) -> Gate:
        """A partition is muted from the sending of a batch to its answer."""
        return (self._keeps_order and bool(state.in_flight), False, -1)

    def admit(self, state: PartitionState, batch: ProducerBatch, now_ns: int) -> InFlight:
        entry = InFlight(state, batch, now_ns)
        state.in_flight.append(entry)
        return entry

    def admit_new(self, *_: object) -> None:
        """They are looked at one by one."""

    def acknowledge(self, entry: InFlight, now_ns: int) -> list[InFlight]:
        entry.state.forget(entry)
        return []

    def acknowledge_all(self, *_: object) -> bool:
        return False

    def is_passed(self, entry: InFlight) -> bool:
        return False

    is_proved = is_lost = is_passed

    def hold(self, entry: InFlight) -> bool:
        return False

    def fail(self, entry: InFlight) -> None:
        entry.state.forget(entry)

    def batch_failed(self, error: KafkaError, *, had_sequence: bool) -> None:
        """Nothing comes of it for others."""

    def longest_backoff_ns(self, error: KafkaError) -> int:
        return NEVER_NS

    def split(self, entry: InFlight, parts: list[ProducerBatch]) -> None:
        """The parts are drained as new batches are."""
        entry.state.forget(entry)

    def come_back(self, entry: InFlight) -> None:
        """The next attempt has an entry of its own."""
        entry.state.forget(entry)

    def settle(self, state: PartitionState) -> Settled | None:
        return None
