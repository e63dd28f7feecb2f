"""Records of what the applications of a world of transactions did and know.

The outcome of a transaction is what its application knows: COMMITTED or ABORTED if a call returned so; LOST
if it cannot have been committed, because commit_transaction() was not called or failed; UNKNOWN if EndTxn was
sent and the application never got its outcome.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol, TypeVar

from tests.simulation.producers.application import SentRecord
from tests.simulation.producers.table_application import EncodedRecord

if TYPE_CHECKING:
    from tests.simulation.producers.application import RecordOutcome
    from tests.simulation.world.cluster import Ground

Record = TypeVar("Record", bound=SentRecord)
BATCH_RECORDS = 6  # of an encoded batch, at most: it is within any max.request.size
CALLS = 1000  # more than a transaction sends offsets


class Process(Protocol):
    """The process of a producer, as the ledger and the faults see it.

    Attributes
    ----------
    number : int
        Its number among the producers of its transactional.id, in order of creation.
    transaction : Transaction | None
        The current transaction, or the last one.
    superseded_ns : int | None
        When the next producer of the transactional.id got its epoch: from then on this one may do nothing.
    may_fail : bool
        A broker ended it by a fatal error, or another producer is about to take over.
    """

    name: str
    transactional_id: str
    number: int
    transaction: Transaction | None
    superseded_ns: int | None
    may_fail: bool

    def trace(self, text: str, *values: object) -> None: ...


class TransactionOutcome(Enum):
    """The outcome of a transaction, as its application knows it."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    LOST = "lost"
    UNKNOWN = "unknown"


class Transaction:
    """One transaction.

    Attributes
    ----------
    number : int
        Unique; its offsets contain it (`number_of_offset`).
    offsets : dict of (topic, partition) to int
        The offsets to commit with it: the last that was sent for each partition.
    is_to_be_committed : bool
        commit_transaction() was called, and no error has come of it.
    may_be_committed : bool
        EndTxn was sent, to commit it.
    committed_ns : int
        When commit_transaction() was called.
    """

    def __init__(self, number: int, client: Process, ledger: Ledger, begun_ns: int) -> None:
        self.number = number
        self.client = client
        self.begun_ns = begun_ns
        self._ledger = ledger
        self.records: list[SentRecord] = []
        self.offsets: dict[tuple[str, int], int] = {}
        self._call_count = 0
        self.outcome = TransactionOutcome.OPEN
        self.is_to_be_committed = self.may_be_committed = False
        self.committed_ns = 0

    def __repr__(self) -> str:
        numbers = [record.number for record in self.records]
        return f"transaction {self.number} of {self.client.name} ({self.outcome.value}, records {numbers})"

    def next_offset(self) -> int:
        """Return an offset greater than those of earlier calls and transactions."""
        self._call_count += 1
        return self.number * CALLS + self._call_count

    def close(self, outcome: TransactionOutcome) -> None:
        if self.outcome is TransactionOutcome.OPEN:
            self.outcome = outcome
            self._ledger.count(f"transaction {outcome.value}")
            self.client.trace("transaction %d: %s", self.number, outcome.value)

    def lose(self) -> None:
        """Note that no call will return the outcome."""
        self.close(
            TransactionOutcome.UNKNOWN
            if self.is_to_be_committed and self.may_be_committed
            else TransactionOutcome.LOST
        )


def number_of_offset(offset: int) -> int:
    """Return the number of the transaction that sent the offset."""
    return offset // CALLS


class Ledger:
    """The notes of the applications.

    Attributes
    ----------
    records : dict of int to SentRecord
        The accepted records, by number, in the order of acceptance.
    transaction_of : dict of int to Transaction
        By record.
    outcomes : dict of str to int
        Of deliveries and transactions.
    """

    def __init__(self, world: Ground) -> None:
        self._world = world
        self.records: dict[int, SentRecord] = {}
        self.transaction_of: dict[int, Transaction] = {}
        self.transactions: list[Transaction] = []
        self.outcomes: dict[str, int] = {}
        self._number = 0

    def new_record(self) -> SentRecord:
        return self._new(SentRecord)

    def new_batch(self) -> list[EncodedRecord]:
        count = self._world.random.randint(1, BATCH_RECORDS)
        records = [self._new(EncodedRecord) for _ in range(count)]
        for record in records:
            record.world = self._world
        return records

    def _new(self, kind: type[Record]) -> Record:
        random = self._world.random
        self._number += 1
        number = self._number.to_bytes(4, "big")
        key = b"key " + number if random.random() < 0.3 else None
        value = number + b"x" * random.randrange(self._world.options.workload.value_bytes + 1)
        return kind(self._number, key, value, self._world.schedule.wall_ms, "none")

    def accepted(self, client: Process, record: SentRecord, delivery: RecordOutcome) -> None:
        transaction = client.transaction
        assert transaction is not None
        record.delivery = delivery
        record.topic_partition = (delivery.topic, delivery.partition)
        record.accepted_ns = self._world.schedule.now_ns
        self.records[record.number] = record
        self.transaction_of[record.number] = transaction
        transaction.records.append(record)
        client.trace("record %d for %s-%d", record.number, *record.topic_partition)

    def begun(self, client: Process) -> Transaction:
        transaction = Transaction(len(self.transactions) + 1, client, self, self._world.schedule.now_ns)
        client.transaction = transaction
        self.transactions.append(transaction)
        client.trace("transaction %d", transaction.number)
        return transaction

    def count(self, outcome: str, count: int = 1) -> None:
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + count
