"""The applications of a world of transactions, and what they were told of each transaction.

Theory of operation. A Program is the application of a transactional.id: it makes a producer, makes
transactions with it, and makes another where it has lost it. It loses it by an error that is fatal, by its
own death at any place, or because it is taken for dead: then a Ghost goes on with the old producer, in the
same transaction, while the Program has a new one.

What became of a transaction is what its application knows: COMMITTED and ABORTED, where a call said so; LOST,
where it cannot have been committed, for commit_transaction() was not called, or failed; UNKNOWN, where
EndTxn was sent for it, and nobody heard what came of it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from kbatch.errors import IllegalStateError, KafkaError, KafkaTimeoutError
from kbatch.records import OffsetAndMetadata, TopicPartition
from kbatch.testing.simulation.actor import Actor
from kbatch.testing.simulation.application import SentRecord
from kbatch.testing.simulation.options import CODECS
from kbatch.testing.simulation.schedule import MS
from kbatch.testing.simulation.table_application import EncodedRecord
from kbatch.testing.simulation.trace import Violation
from kbatch.testing.simulation.transactional_client import Client, SimulatedProducer

if TYPE_CHECKING:
    from kbatch.testing.simulation.application import Outcome as RecordOutcome
    from kbatch.testing.simulation.transactional_world import TransactionalWorld

Record = TypeVar("Record", bound=SentRecord)
BATCH_RECORDS = 6  # of an encoded batch, at most: it is within any max.request.size
GHOST_TRANSACTIONS = 2  # that a ghost tries
LEFT_WHEN_HEALED = 2  # of a program's transactions
PROBE_ROUNDS = 3
# With less there may not be time for a new connection.
PROBED_TIMEOUT_MS = 3000
SOURCE = "events"  # whose offsets are committed
CALLS = 1000  # more than a transaction sends offsets


class Outcome(Enum):
    """What an application knows of a transaction."""

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
        Unique; its offsets tell it (`number_of_offset`).
    offsets : dict of (topic, partition) to int
        To be committed with it: of each partition what was sent last.
    is_to_be_committed : bool
        commit_transaction() was called, and no error has come of it.
    may_be_committed : bool
        EndTxn was sent, to commit it.
    committed_ns : int
        When commit_transaction() was called.
    """

    def __init__(self, number: int, client: Client) -> None:
        self.number = number
        self.client = client
        self.begun_ns = client.schedule.now_ns
        self.records: list[SentRecord] = []
        self.offsets: dict[tuple[str, int], int] = {}
        self._call_count = 0
        self.outcome = Outcome.OPEN
        self.is_to_be_committed = self.may_be_committed = False
        self.committed_ns = 0

    def __repr__(self) -> str:
        numbers = [record.number for record in self.records]
        return f"transaction {self.number} of {self.client.name} ({self.outcome.value}, records {numbers})"

    def next_offset(self) -> int:
        """Greater than those of calls before, in this transaction and earlier ones."""
        self._call_count += 1
        return self.number * CALLS + self._call_count

    def close(self, outcome: Outcome) -> None:
        if self.outcome is Outcome.OPEN:
            self.outcome = outcome
            self.client.world.application.count(f"transaction {outcome.value}")
            self.client.trace("transaction %d: %s", self.number, outcome.value)

    def lose(self) -> None:
        """Nobody will be told what came of it."""
        self.close(Outcome.UNKNOWN if self.is_to_be_committed and self.may_be_committed else Outcome.LOST)


def number_of_offset(offset: int) -> int:
    """Of the transaction that sent the offset."""
    return offset // CALLS


class Ledger:
    """What the applications did.

    Attributes
    ----------
    records : dict of int to SentRecord
        Those that were accepted, by number, in the order of acceptance.
    transaction_of : dict of int to Transaction
        By record.
    outcomes : dict of str to int
        Of deliveries and transactions.
    """

    def __init__(self, world: TransactionalWorld) -> None:
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

    def accepted(self, client: Client, record: SentRecord, delivery: RecordOutcome) -> None:
        transaction = client.transaction
        assert transaction is not None
        record.delivery = delivery
        record.place = (delivery.topic, delivery.partition)
        record.accepted_ns = self._world.schedule.now_ns
        self.records[record.number] = record
        self.transaction_of[record.number] = transaction
        transaction.records.append(record)
        client.trace("record %d for %s-%d", record.number, *record.place)

    def begun(self, client: Client) -> Transaction:
        transaction = Transaction(len(self.transactions) + 1, client)
        client.transaction = transaction
        self.transactions.append(transaction)
        client.trace("transaction %d", transaction.number)
        return transaction

    def count(self, outcome: str, count: int = 1) -> None:
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + count


class LostError(Exception):
    """The program has no producer any more."""


class Performer:
    """Makes transactions with a producer."""

    world: TransactionalWorld

    def __init__(self, program: Program, script: Callable[[], None]) -> None:
        self.program = program
        self.world = program.world
        self.random = program.world.random
        self.options = program.world.programs
        self.actor = Actor(self.world.schedule, script)
        self.world.start(self.actor)

    def pause(self) -> None:
        self.actor.sleep(int(self.random.random() * self.options.pause_ms * MS))

    # A transaction

    def begin(self, producer: SimulatedProducer) -> Transaction:
        """LostError where the producer has gone meanwhile."""
        while True:
            try:
                producer.begin_transaction()
                return self.world.application.begun(producer.client)
            except KafkaError as error:
                self._begin_anew(producer, error)

    def _begin_anew(self, producer: SimulatedProducer, error: KafkaError) -> None:
        """The epoch of the next transaction was refused."""
        producer.client.trace("begin_transaction(): %r", error)
        if producer.client.engine.fatal_error is not None:
            raise LostError from error
        if not error.abortable:
            raise Violation(f"begin_transaction(): {error!r}") from error
        with suppress(KafkaError):  # begin_transaction() says it again
            self.call(producer, producer.abort_transaction, producer.commit_transaction)

    def fill(self, producer: SimulatedProducer, transaction: Transaction) -> None:
        """Records and encoded batches to any partitions, and offsets."""
        for _ in range(self.random.randrange(self.options.records + 1)):
            topic = self.random.choice(list(self.world.options.cluster.partition_counts))
            partition = self._partition_of(producer, topic)
            if self.options.batches and self.random.random() < self.options.batches:
                records, codec = self.world.application.new_batch(), self.random.choice(CODECS)
                producer.send_batch(records, topic, max(partition, 0), codec)
            else:
                producer.send(self.world.application.new_record(), topic, partition)
            if self.random.random() < 0.3:
                self.pause()
        if self.random.random() < self.options.offsets:
            self.send_offsets(producer, transaction)
        if self.random.random() < self.options.flush:
            producer.flush()

    def _partition_of(self, producer: SimulatedProducer, topic: str) -> int:
        count = producer.client.engine.snapshot.view.partition_count(topic)
        return self.random.randrange(count) if count and self.random.random() < 0.7 else -1

    def send_offsets(self, producer: SimulatedProducer, transaction: Transaction) -> None:
        """By one call or several, of which the next may be made before one is done."""
        options, random = self.options, self.random
        for _ in range(1 if options.offset_calls == 1 else random.randint(1, options.offset_calls)):
            waits = not options.unawaited or random.random() >= options.unawaited
            self._send_offsets(producer, transaction, waits=waits)

    def _send_offsets(
        self, producer: SimulatedProducer, transaction: Transaction, *, waits: bool
    ) -> None:
        count, offset = self.world.options.cluster.partition_counts[SOURCE], transaction.next_offset()
        chosen = [index for index in range(count) if self.random.random() < 0.7] or [0]
        transaction.offsets.update(((SOURCE, index), offset) for index in chosen)
        offsets = {TopicPartition(SOURCE, index): OffsetAndMetadata(offset) for index in chosen}
        producer.client.trace("offset %d of %s", offset, chosen)
        producer.offsets_timeout = None if waits else 0
        try:
            producer.send_offsets_to_transaction(offsets, self.program.group_id)
        except KafkaTimeoutError as error:
            if error.abortable or (waits and self.random.random() < 0.5):
                raise
            producer.client.trace("send_offsets_to_transaction() timed out, and goes on")
            if not waits:
                self.world.faults.note("offsets that are not waited for")

    def complete(self, producer: SimulatedProducer, transaction: Transaction, *, commits: bool) -> None:
        """Commits or aborts; an error that allows it leads to an abort. LostError where that is the end."""
        try:
            if commits:
                transaction.is_to_be_committed = True
                transaction.committed_ns = self.world.schedule.now_ns
                self.call(producer, producer.commit_transaction, producer.abort_transaction)
                transaction.close(Outcome.COMMITTED)
                self._check_not_superseded(transaction)
            else:
                self.call(producer, producer.abort_transaction, producer.commit_transaction)
                transaction.close(Outcome.ABORTED)
        except KafkaError as error:
            self.handle(producer, transaction, error)

    def handle(self, producer: SimulatedProducer, transaction: Transaction, error: KafkaError) -> None:
        producer.client.trace("the application gets %r", error)
        if producer.client.engine.fatal_error is not None:
            raise LostError from error
        if isinstance(error, IllegalStateError):
            raise Violation(f"{transaction}: {error!r}")
        transaction.is_to_be_committed = False
        if transaction.outcome is Outcome.OPEN:
            self.complete(producer, transaction, commits=False)

    def call(
        self, producer: SimulatedProducer, method: Callable[..., None], other: Callable[..., None]
    ) -> None:
        """A call that may time out, and is made again then; meanwhile no other is taken."""
        options = self.options
        while True:
            timeout, dies = None, False
            if self.world.faults.is_active:
                dies = self.random.random() < options.crash
                if dies or self.random.random() < options.hasty:
                    timeout = self.random.random() * options.hasty_ms / 1000
            try:
                method(timeout=timeout)
                return
            except KafkaTimeoutError as error:
                if error.abortable or error.fatal:
                    raise
            producer.client.trace("%s() timed out", method.__name__)
            self.world.faults.note("time-out of a call")
            self._check_refused(other)
            if dies:
                self.world.faults.note("crash in a call")
                raise LostError

    def _check_refused(self, other: Callable[..., None]) -> None:
        try:
            other(timeout=0)
        except IllegalStateError:
            return
        except KafkaError as error:
            raise Violation(f"{other.__name__}() while another call is not done: {error!r}") from error
        raise Violation(f"{other.__name__}() is done while another call is not")

    def _check_not_superseded(self, transaction: Transaction) -> None:
        superseded_ns = transaction.client.superseded_ns
        is_empty = not transaction.records and not transaction.offsets
        if superseded_ns is not None and superseded_ns < transaction.committed_ns and not is_empty:
            raise Violation(f"{transaction} was committed by a producer that had been fenced")


class Ghost(Performer):
    """Goes on with a producer that was taken for dead."""

    def __init__(self, program: Program, producer: SimulatedProducer, transaction: Transaction) -> None:
        self._producer = producer
        self._transaction = transaction
        super().__init__(program, self._run)
        producer.actor = self.actor

    def _run(self) -> None:
        producer, transaction = self._producer, self._transaction
        try:
            self.actor.sleep(int(self.random.choice((1, 20, 300)) * self.random.random() * MS))
            for _ in range(GHOST_TRANSACTIONS):
                try:
                    self.fill(producer, transaction)
                except KafkaError as error:
                    self.handle(producer, transaction, error)
                if transaction.outcome is Outcome.OPEN:
                    self.complete(producer, transaction, commits=self.random.random() < 0.8)
                self.pause()
                transaction = self.begin(producer)
        except LostError:
            """It has learnt that it is dead."""
        transaction.lose()
        producer.client.end()


class Program(Performer):
    """The application of a transactional.id.

    Attributes
    ----------
    left : int
        Transactions that it is still to make.
    producer : SimulatedProducer | None
        The one that it has.
    """

    transactional_id: str
    group_id: str

    def __init__(self, world: TransactionalWorld, number: int) -> None:
        self.world = world
        self.transactional_id = f"id-{number}"
        self.group_id = f"group-{number}"
        self.left = world.programs.transactions
        self.producer: SimulatedProducer | None = None
        self._producer_count = 0
        super().__init__(self, self._run)

    def _run(self) -> None:
        while self.left > 0:
            if self.producer is None:
                self.make_producer()
            else:
                self.left -= 1
                self.perform()
            self.pause()

    # Producers

    def make_producer(self) -> bool:
        """Whether there is one."""
        client = Client(self.world, self, self._producer_count)
        self._producer_count += 1
        earlier = [each for each in self.world.clients if each.program is self]
        self.world.clients.append(client)
        for each in earlier:
            each.may_fail = True
        producer = SimulatedProducer(client, self.actor)
        try:
            self._initialize(producer)
        except (KafkaError, LostError):
            client.end()
            return False
        for each in earlier:
            if each.superseded_ns is None:
                each.superseded_ns = self.world.schedule.now_ns
        client.trace("has its epoch")
        self.producer = producer
        return True

    def _initialize(self, producer: SimulatedProducer) -> None:
        while True:
            try:
                self.call(producer, producer.init_transactions, producer.abort_transaction)
                return
            except KafkaError as error:
                if producer.client.engine.fatal_error is not None:
                    raise
                producer.client.trace("init_transactions(): %r", error)
                if error.abortable:
                    self.call(producer, producer.abort_transaction, producer.commit_transaction)
                    return

    # Transactions

    def perform(self) -> None:
        """One transaction, after which there may be no producer."""
        producer = self.producer
        assert producer is not None
        try:
            transaction = self.begin(producer)
            self._perform(producer, transaction)
        except LostError:
            self._lose(producer)

    def _perform(self, producer: SimulatedProducer, transaction: Transaction) -> None:
        options, draw = self.options, self.random.random
        is_active = self.world.faults.is_active
        try:
            self.fill(producer, transaction)
        except KafkaError as error:
            self.handle(producer, transaction, error)
            return
        if is_active and draw() < options.crash:
            self.world.faults.note("crash")
            raise LostError
        if is_active and draw() < options.close:
            producer.close()
            raise LostError
        if is_active and draw() < options.haunt:
            self.world.faults.note("ghost")
            Ghost(self, producer, transaction)
            self.producer = None
            return
        self.complete(producer, transaction, commits=draw() >= options.abort)

    # When all is well

    def probe(self) -> None:
        """By the producer that there is, and by another, a transaction with all partitions goes through."""
        self.actor = Actor(self.world.schedule, self._probe)
        self.world.start(self.actor)
        if self.producer is not None:
            self.producer.actor = self.actor

    def _probe(self) -> None:
        if self.producer is not None and self.producer.client.engine.fatal_error is None:
            self._commit_one(self.producer)
        if not self.make_producer() or self.producer is None:
            raise Violation(f"when all is well {self.transactional_id} gets no producer")
        self._commit_one(self.producer)

    def _commit_one(self, producer: SimulatedProducer) -> None:
        client = producer.client
        for _ in range(PROBE_ROUNDS):
            try:
                transaction = self.begin(producer)
                self._send_everywhere(producer, transaction)
            except LostError:
                break
            if transaction.outcome is Outcome.COMMITTED:
                return
        limit_ms = min(client.config.delivery_timeout_ms, client.config.transaction_timeout_ms)
        if self.world.options.cluster.broken_addresses:
            limit_ms = min(limit_ms, client.config.max_block_ms)
        if limit_ms >= PROBED_TIMEOUT_MS:
            raise Violation(f"when all is well {client.name} commits nothing: {client.engine.fatal_error!r}")

    def _send_everywhere(self, producer: SimulatedProducer, transaction: Transaction) -> None:
        try:
            for partition in self.world.data_partitions():
                record = self.world.application.new_record()
                producer.send(record, partition.topic.name, partition.index)
            self.send_offsets(producer, transaction)
        except KafkaError as error:
            self.handle(producer, transaction, error)
        else:
            self.complete(producer, transaction, commits=True)

    def _lose(self, producer: SimulatedProducer) -> None:
        self.producer = None
        if producer.client.transaction is not None:
            producer.client.transaction.lose()
        producer.client.end()
