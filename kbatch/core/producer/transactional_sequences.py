"""TransactionalSequences: the sequences of a transactional producer, and the partitions of its transaction.

Theory of operation. It differs from Idempotence in three points:

- New batches are drained only while the transaction `is_open`, and only from its partitions. Under
  transaction version 1 the coordinator must add a partition first (`poll_wanted`); under version 2 brokers
  add it themselves.
- A new epoch comes only from the coordinator, never from a gap.
- A gap ends differently. If no failed batch can be in the log, later batches move up and are sent again under
  the failed batches' sequences. If one may be there, or the broker misses a batch that it acknowledged, the
  later ones fail, and the partition waits for the next epoch. Every failure aborts the transaction, so its
  records end, and the next transaction begins with sequences that the broker expects.

After org.apache.kafka.clients.producer.internals.TransactionManager; KIP-98, KIP-360, KIP-890.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kbatch._native.send.in_flight import InFlight, PartitionState
from kbatch.core.client.backoff import NEVER_NS, NS_PER_MS
from kbatch.core.producer.idempotence import Gate, Idempotence, Settled
from kbatch.errors import ErrorCode, KafkaError
from kbatch.protocol import features
from kbatch.records import TopicPartition

if TYPE_CHECKING:
    from kbatch._native.batch.producer_batch import ProducerBatch

# The completion of the previous transaction takes no longer (KAFKA-5477, KAFKA-18654). If it does, after so
# many attempts, the waits are those of every error.
CONCURRENT_BACKOFF_NS = 20 * NS_PER_MS
CONCURRENT_ATTEMPTS = 10


class TransactionalSequences(Idempotence):
    """The sequences of a transactional producer.

    Attributes
    ----------
    transaction_version : int
        1, or 2 if brokers add partitions themselves (KIP-890).
    is_open : bool
        True if new batches may be drained.
    has_begun : bool
        True if a broker has acknowledged a batch of the transaction, so that the previous one is completed.
    partitions : set of (topic, partition)
        The partitions of the transaction.
    """

    def __init__(self, *, max_in_flight: int, idle_ns: int, first_counter: int = 0) -> None:
        super().__init__(max_in_flight=max_in_flight, idle_ns=idle_ns, first_counter=first_counter)
        self.transaction_version = 1
        self.is_open = False
        self.has_begun = False
        self.partitions: set[TopicPartition] = set()
        self._wanted: list[TopicPartition] = []
        self._requested: dict[TopicPartition, PartitionState] = {}  # not added yet
        self._number = 0  # of the transaction
        self._blocked: dict[TopicPartition, PartitionState] = {}

    @property
    def highest_produce_version(self) -> int:
        adds = self.transaction_version >= 2
        return features.ANY_VERSION if adds else features.PRODUCE_ADDS_PARTITIONS - 1

    @property
    def drains_new(self) -> bool:
        return self.is_open and super().drains_new

    @property
    def lane_transaction(self) -> int:
        return self._number if self.transaction_version < 2 else 0

    # The partitions of the transaction

    @property
    def has_wanted(self) -> bool:
        return bool(self._wanted)

    def poll_wanted(self) -> list[TopicPartition]:
        """Return partitions with batches that must be added first."""
        wanted, self._wanted = self._wanted, []
        return wanted

    def begin(self) -> None:
        """Begin a transaction."""
        self.is_open = True
        self.has_begun = False
        self._number += 1

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Record partitions that the coordinator has added."""
        self.partitions.update(partitions)
        for each in partitions:
            if (state := self._requested.pop(each, None)) is not None:
                state.transaction = self._number

    def note_sent(self, batches: list[ProducerBatch]) -> None:
        self.partitions.update(TopicPartition(each.topic, each.partition) for each in batches)

    @property
    def on_acknowledged(self) -> Callable[[list[ProducerBatch]], None]:
        return self.note_acknowledged

    def note_acknowledged(self, batches: list[ProducerBatch]) -> None:
        self.note_sent(batches)
        self.has_begun = True

    def stop(self) -> None:
        """Stop draining new batches and adding partitions; batches that come back are still drained."""
        self.is_open = False
        self._wanted.clear()
        self._requested.clear()

    def end(self) -> None:
        """End the transaction."""
        self.stop()
        self.partitions.clear()

    def poll_blocked(self) -> list[PartitionState]:
        """Return the blocked partitions, whose gates a change may open."""
        blocked, self._blocked = list(self._blocked.values()), {}
        return blocked

    # Draining

    def gate(self, state: PartitionState, now_ns: int) -> Gate:
        """Return the gate. It is open for a partition that is not added yet: draining finds that out."""
        muted, is_blocked, retry_number = super().gate(state, now_ns)
        partition = TopicPartition(*state.key)
        is_blocked = is_blocked or not self.is_open or partition in self._requested
        if is_blocked:
            self._blocked[partition] = state
        return muted, is_blocked, retry_number

    def holds_back(self, state: PartitionState, now_ns: int) -> bool:
        partition = TopicPartition(*state.key)
        if not self.is_open or super().holds_back(state, now_ns):
            return True
        if self._is_added(partition):
            return False
        if partition not in self._requested:
            self._requested[partition] = state
            self._wanted.append(partition)
        return True

    def _is_added(self, partition: TopicPartition) -> bool:
        return self.transaction_version >= 2 or partition in self.partitions

    def admit(self, state: PartitionState, batch: ProducerBatch, now_ns: int) -> InFlight:
        self.partitions.add(TopicPartition(*state.key))
        return super().admit(state, batch, now_ns)

    def acknowledge(self, entry: InFlight, now_ns: int) -> list[InFlight]:
        self.has_begun = True
        return super().acknowledge(entry, now_ns)

    # Failures and gaps

    def longest_backoff_ns(self, error: KafkaError, attempts: int) -> int:
        waits_for_end = error.code == ErrorCode.CONCURRENT_TRANSACTIONS and not self.has_begun
        return CONCURRENT_BACKOFF_NS if waits_for_end and attempts <= CONCURRENT_ATTEMPTS else NEVER_NS

    def fail(self, entry: InFlight) -> None:
        if entry.is_ambiguous and entry in entry.state.in_flight:
            entry.state.is_doubtful = True
        super().fail(entry)

    def settle(self, state: PartitionState) -> Settled | None:
        if not self._can_settle(state):
            return None
        lost = [each for each in state.in_flight if each.is_ambiguous]
        head = state.in_flight[0] if state.in_flight else None
        if head is not None and not lost and head.is_set_aside and head.counter == state.acked_counter + 1:
            lost = [head]  # it was the next one: an acknowledged batch is missing
        for each in lost:
            self.fail(each)
            if each.last_error is not None and each.last_error.code == ErrorCode.UNKNOWN_PRODUCER_ID:
                state.doubt_leader()
                state.restart(state.identity, 0)
        if not state.is_doubtful:
            return Settled(lost, self._move_up(state))
        lost += state.in_flight
        for each in state.in_flight:
            self.fail(each)
        return Settled(lost, [])

    def _move_up(self, state: PartitionState) -> list[InFlight]:
        """Give the sequences of failed batches to those in flight after them; return those set aside."""
        set_aside = [each for each in state.in_flight if each.is_set_aside]
        state.next_counter = state.acked_counter + 1
        state.hole_end = 0
        for each in state.in_flight:
            each.counter = state.next_counter
            each.is_set_aside = False
            state.next_counter = each.end
        return set_aside
