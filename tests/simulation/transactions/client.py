"""A world of transactions as its programs see it, and a producer of it with its surroundings.

Theory of operation. A Client is one producer from its creation to its end; to the brokers it is a process of
its own. It has an engine, an accumulator, connections, and the Wire that checks what it sends. Its methods
are the producer's, as users call them, with notes for the ledger. A Client that dies loses its connections
and what they had not sent.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from kbatch._native.batch.delivery import Completion
from kbatch._native.codec.batch_writer import encode
from kbatch.config import ProducerConfig
from kbatch.errors import ErrorCode, KafkaError
from tests.simulation.producers.application import SentRecord
from tests.simulation.producers.producer import SimulatedProducer
from tests.simulation.producers.table_application import BatchedOutcome, EncodedRecord
from tests.simulation.producers.watchdog import forgotten_batches
from tests.simulation.transactions.ledger import Ledger
from tests.simulation.transactions.wire import TransactionalWire
from tests.simulation.world.cluster import BOOTSTRAP, PORT, Ground
from tests.simulation.world.schedule import MS
from tests.simulation.world.tasks import VirtualTask
from tests.simulation.world.trace import Violation

if TYPE_CHECKING:
    from kbatch.records import OffsetAndMetadata, TopicPartition
    from tests.simulation.transactions.ledger import Transaction
    from tests.simulation.transactions.options import TransactionalOptions
    from tests.simulation.world.network import Link

FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)


class TransactionalStage(Ground):
    """A world of transactions, as its programs see it.

    Attributes
    ----------
    programs : Programs
        The options of the programs.
    application : Ledger
        The notes of the programs.
    clients : list of Client
        All producers, past and present.
    tasks : list of VirtualTask
        All threads of programs.
    """

    def __init__(self, options: TransactionalOptions, *, prints: bool = False) -> None:
        super().__init__(options, prints=prints)
        assert options.programs is not None
        self.programs = options.programs
        self.application = Ledger(self)
        self.clients: list[Client] = []
        self.tasks: list[VirtualTask] = []

    def start(self, script: Coroutine[Any, None, None]) -> None:
        """Run it as a thread of a program."""
        task = VirtualTask(script)
        self.tasks.append(task)
        self.schedule.after(self.random.randrange(10 * MS), task.go)

    def client_of(self, link: Link) -> Client | None:
        """Return the client of a connection; None if it has ended."""
        owners = (client for client in self.clients if link in client.shell.links.values())
        return next(owners, None)


class Client:
    """One producer.

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
    is_closed : bool
        Its application closed it, and so had time to.
    """

    def __init__(self, world: TransactionalStage, transactional_id: str, number: int) -> None:
        self.world = world
        self.transactional_id = transactional_id
        self.number = number
        self.options, self.random, self.schedule = world.options, world.random, world.schedule
        self.cluster, self.faults = world.cluster, world.faults
        self.config = ProducerConfig(
            {
                "bootstrap.servers": f"{BOOTSTRAP}:{PORT}",
                "client.id": f"{transactional_id}/{number}",
                "transactional.id": transactional_id,
                **world.options.settings,
            }
        )
        self.name = self.config.client_id
        self.producer = SimulatedProducer(
            self,
            random=random.Random(f"engine {world.options.seed} {self.name}"),
            accumulator_keys=world.accumulator_keys(),
        )
        self.accumulator, self.engine = self.producer._accumulator, self.producer.runtime.engine
        self.shell = self.producer.shell
        self.wire = TransactionalWire(self)
        self.transaction: Transaction | None = None
        self.superseded_ns: int | None = None
        self.may_fail = self.is_dead = self.is_closed = False
        self._completed: set[Completion] = set()

    @property
    def application(self) -> Client:
        return self

    def trace(self, text: str, *values: object) -> None:
        self.world.trace(f"%s: {text}", self.name, *values)

    # Judged by the network

    def check_partition(self, number: int, topic: str, partition: int) -> None:
        record = self.world.application.records.get(number)
        if record is None or record.topic_partition != (topic, partition):
            raise Violation(f"record {number} is sent to {topic}-{partition}; accepted: {record}")
        transaction = self.world.application.transaction_of[number]
        if transaction is not self.transaction:
            raise Violation(f"record {number} of {transaction} is sent in {self.transaction}")

    def is_settled(self, number: int) -> bool:
        return self.world.application.records[number].is_settled

    def has_failed(self, number: int) -> bool:
        """True if the record failed, or may have: parts of a split batch report it after all are done."""
        record = self.world.application.records[number]
        if not record.is_done:
            return record.is_settled
        return record.delivery is not None and record.delivery.exception() is not None

    def note_event(self) -> None:
        """Note the event; which one settled a record is checked where many batches are in flight."""

    def deliver(self, done: Iterable[Any]) -> None:
        """Run callbacks at once."""
        for each in done:
            if isinstance(each, Completion):
                self._note_completed(each)
            each.run_callbacks(partial(_raise))

    def in_callback(self) -> bool:
        return False

    def _note_completed(self, completion: Completion) -> None:
        if completion in self._completed:
            raise Violation(f"{completion} is completed twice")
        self._completed.add(completion)
        name = "succeeded" if completion.error is None else type(completion.error).__name__
        self.world.application.count(name, completion.record_count)
        self.trace(
            "%s-%d: %d records %s at %d %s",
            completion.topic,
            completion.partition,
            completion.record_count,
            completion.outcome,
            completion.base_offset,
            completion.error or "",
        )

    def check_engine(self) -> None:
        error = self.engine.fatal_error
        if error is not None and not self._may_fail(error):
            raise Violation(f"{self.name} gave up: {error!r}")

    def check_asleep(self) -> None:
        """Check that a sender that sleeps has sent, itself or by its lane, what could be sent."""
        if self.is_dead or self.engine.fatal_error is not None or not self.shell.is_asleep:
            return
        if batches := forgotten_batches(self.producer, self.schedule.now_ns):
            raise Violation(f"{self.name} sleeps, and could send {batches}")

    def _may_fail(self, error: KafkaError) -> bool:
        transaction = self.transaction
        timeout_ns = self.config.transaction_timeout_ms * MS
        is_late = transaction is not None and self.schedule.now_ns >= transaction.begun_ns + timeout_ns
        # Kafka's coordinator fails if InitProducerId is repeated after the last epoch
        is_exhausted = self.world.programs.first_epoch >= 0 and error.code == ErrorCode.UNKNOWN_SERVER_ERROR
        wire = self.wire
        is_fenced_by_itself = (wire.may_reopen or wire.may_be_forgotten) and error.code in FENCED
        return self.may_fail or self.is_closed or is_late or is_exhausted or is_fenced_by_itself

    def end(self) -> None:
        """End the process at any point."""
        self.trace("ends")
        self.is_dead = True
        self.shell.stop()

    # Calls of the application

    async def send(self, record: SentRecord, topic: str, partition: int | None) -> None:
        """Accept the record, or raise what the producer raised."""
        delivery = await self.producer.send(
            topic, record.value, record.key, timestamp_ms=record.timestamp_ms, partition=partition
        )
        self.world.application.accepted(self, record, delivery)

    async def send_batch(self, records: list[EncodedRecord], topic: str, partition: int, codec: str) -> None:
        """Accept an encoded batch, or raise what the producer raised."""
        data = encode([(each.key, each.value, (), each.timestamp_ms) for each in records], compression=codec)
        delivery = await self.producer.send_batch(topic, partition, data)
        for index, record in enumerate(records):
            self.world.application.accepted(self, record, BatchedOutcome(delivery, index))

    async def commit_transaction(self, timeout: float | None) -> None:
        """Commit the transaction, while another thread tries to send."""
        tries_ns = self.random.randrange(5 * MS)
        self.schedule.after(tries_ns, self._try_to_send)
        await self.producer.commit_transaction(timeout)

    def _try_to_send(self) -> None:
        call = self.producer.unfinished_call
        if call is None or call.is_done or call.name != "commit_transaction" or self.is_dead:
            return
        try:
            self.producer.try_send(next(iter(self.options.cluster.partition_counts)), b"")
        except KafkaError:
            return
        raise Violation("send() is accepted while commit_transaction() is under way")

    async def send_offsets(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], group_id: str, *, waits: bool
    ) -> None:
        """Make offsets part of the transaction; `waits` False cancels the wait, and the call continues."""
        calling = self.producer.send_offsets_to_transaction(offsets, group_id)
        if waits:
            await calling
        else:
            _begin(calling)

    async def close(self) -> None:
        """Close the producer, which aborts an open transaction."""
        self.trace("close")
        self.is_closed = True
        await self.producer.close()


def _begin(calling: Coroutine[Any, Any, None]) -> None:
    """Run a call up to its first wait."""
    try:
        calling.send(None)
    except StopIteration:
        return
    calling.close()


def _raise(function: Callable[..., object], error: Exception) -> None:
    raise error
