"""A producer of a world of transactions: its engine and all around it, and the methods that users call.

Theory of operation. Client is one producer from its making to its end, a process of its own as far as the
brokers can see: engine, accumulator, connections, and the Wire that judges what it sends. SimulatedProducer
is what its application calls: the transaction methods of `kbatch.Producer` as they are, which wait in virtual
time, and `send`. A Client that dies takes its connections with it, and what they had not sent.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kbatch._native.batch.delivery import Completion, Delivery
from kbatch._native.codec.batch_writer import encode
from kbatch._native.io.interrupts import at_once
from kbatch.config import ProducerConfig
from kbatch.core.producer.engine import Engine
from kbatch.errors import ErrorCode, KafkaError, KafkaTimeoutError, ProducerClosedError
from kbatch.metrics import MetricsRegistry
from kbatch.producer.transactions import TransactionMethods
from kbatch.testing.simulation.application import SentRecord
from kbatch.testing.simulation.cluster import BOOTSTRAP, PORT
from kbatch.testing.simulation.network import Shell
from kbatch.testing.simulation.schedule import MS
from kbatch.testing.simulation.table_application import BatchedOutcome, EncodedRecord
from kbatch.testing.simulation.trace import Violation
from kbatch.testing.simulation.transactional_wire import TransactionalWire
from kbatch.testing.simulation.world import new_accumulator
from kbatch.waiting.deadline import Deadline
from kbatch.waiting.threads import blocking

if TYPE_CHECKING:
    from kbatch._native.send.accumulator import RecordAccumulator
    from kbatch.core.client.calls import Call
    from kbatch.testing.simulation.actor import Actor
    from kbatch.testing.simulation.transactional_application import Program, Transaction
    from kbatch.testing.simulation.transactional_world import TransactionalWorld

LOOK_MS = 20  # for metadata
FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)


class ProcessShell(Shell):
    """The sender's thread of a process that may die."""

    is_dead = False

    def ask_for_round(self) -> None:
        if not self.is_dead:
            super().ask_for_round()


class Client:
    """One producer.

    Attributes
    ----------
    number : int
        Of its transactional.id, in the order of their making.
    transaction : Transaction | None
        The one that it is in, or was in last.
    superseded_ns : int | None
        When the next producer of the transactional.id got its epoch: from then on this one may do nothing.
    may_fail : bool
        A broker told it that it may not go on, or another producer is about to take over.
    is_closed : bool
        Its application closed it, and so had time to.
    """

    def __init__(self, world: TransactionalWorld, program: Program, number: int) -> None:
        self.world = world
        self.program = program
        self.number = number
        self.options, self.random, self.schedule = world.options, world.random, world.schedule
        self.cluster, self.faults = world.cluster, world.faults
        self.config = ProducerConfig(
            {
                "bootstrap.servers": f"{BOOTSTRAP}:{PORT}",
                "client.id": f"{program.transactional_id}/{number}",
                "transactional.id": program.transactional_id,
                **world.options.settings,
            }
        )
        self.name = self.config.client_id
        self.shell = ProcessShell(self)
        self.accumulator = new_accumulator(self, lambda: None)
        self.engine = Engine(
            self.config,
            self.accumulator,
            random=random.Random(f"engine {world.options.seed} {self.name}"),
            registry=MetricsRegistry(self.config.client_id),
            now_ns=self.schedule.now_ns,
        )
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

    def check_place(self, number: int, topic: str, partition: int) -> None:
        record = self.world.application.records.get(number)
        if record is None or record.place != (topic, partition):
            raise Violation(f"record {number} is sent to {topic}-{partition}; accepted: {record}")
        transaction = self.world.application.transaction_of[number]
        if transaction is not self.transaction:
            raise Violation(f"record {number} of {transaction} is sent in {self.transaction}")

    def is_settled(self, number: int) -> bool:
        return self.world.application.records[number].is_settled

    def has_failed(self, number: int) -> bool:
        """Or may have: of a batch that goes in parts nobody says it before all of them are done."""
        record = self.world.application.records[number]
        if not record.is_done:
            return record.is_settled
        return record.delivery is not None and record.delivery.exception() is not None

    def note_event(self) -> None:
        """Which event settled what is judged where many batches are in flight."""

    def completed(self, completions: list[Completion]) -> None:
        for completion in completions:
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
            completion.run_callbacks(partial(_raise))

    def check_engine(self) -> None:
        error = self.engine.fatal_error
        if error is not None and not self._may_fail(error):
            raise Violation(f"{self.name} gave up: {error!r}")
        for actor in list(self.world.actors):
            actor.look()

    def _may_fail(self, error: KafkaError) -> bool:
        transaction = self.transaction
        timeout_ns = self.config.transaction_timeout_ms * MS
        is_late = transaction is not None and self.schedule.now_ns >= transaction.begun_ns + timeout_ns
        # Kafka's coordinator fails where InitProducerId is repeated behind the last epoch
        is_exhausted = self.world.programs.first_epoch >= 0 and error.code == ErrorCode.UNKNOWN_SERVER_ERROR
        is_fenced_by_itself = self.wire.may_reopen and error.code in FENCED
        return self.may_fail or self.is_closed or is_late or is_exhausted or is_fenced_by_itself

    def end(self) -> None:
        """The process is over, in the midst of anything."""
        self.trace("ends")
        self.is_dead = True
        self.shell.is_dead = True
        self.shell.close()


def _raise(function: Callable[..., object], error: Exception) -> None:
    raise error


class SimulatedProducer(TransactionMethods):
    """What an application calls.

    Parameters
    ----------
    actor : Actor
        The thread that calls it.

    Attributes
    ----------
    offsets_timeout : float | None
        Of send_offsets_to_transaction(), in seconds; None is max.block.ms.
    """

    offsets_timeout: float | None = None

    def __init__(self, client: Client, actor: Actor) -> None:
        self.client = client
        self.actor = actor
        self.config = client.config
        self.sends_directly = False
        self._engine = client.engine
        self._network = client.shell
        self._interceptors: Any = ()
        self._delivery = SimpleNamespace(in_callback=lambda: False)
        self._until_ns = 0

    init_transactions = blocking(TransactionMethods._init_transactions)
    begin_transaction = blocking(TransactionMethods._begin_transaction)
    commit_transaction = blocking(TransactionMethods._commit_transaction)
    abort_transaction = blocking(TransactionMethods._abort_transaction)
    send_offsets_to_transaction = blocking(TransactionMethods._send_offsets_to_transaction)

    # What TransactionMethods needs

    @property
    def accumulator(self) -> RecordAccumulator:
        return self.client.accumulator

    def _check_usable(self) -> None:
        if self.client.is_closed:
            raise ProducerClosedError("the producer is closed")
        if self._engine.fatal_error is not None:
            raise self._engine.fatal_error

    def _record(self, sensor: str, value: float) -> None:
        """Its metrics are of no interest here."""

    async def _await_callbacks(self, deadline: Deadline) -> bool:
        return True  # they run where batches are done

    async def _run_call(self, verb: str, command: Any, timeout: float | None) -> Deadline:
        if verb == "send_offsets_to":
            timeout = self.offsets_timeout
        limit_ms = self.config.max_block_ms if timeout is None else timeout * 1000
        self._until_ns = self.client.schedule.now_ns + int(limit_ms * MS)
        return await super()._run_call(verb, command, timeout)

    async def _await_call(self, call: Call, deadline: Deadline) -> bool:
        engine = self._engine
        self._network.wake()
        if call.name == "commit_transaction":
            self.client.schedule.after(self.client.random.randrange(5 * MS), partial(self._try_to_send, call))
        self.actor.wait(lambda: call.is_done or engine.fatal_error is not None, self._until_ns)
        if not call.is_done and engine.fatal_error is not None:
            call.finish(engine.fatal_error)
        return call.is_done

    def _try_to_send(self, call: Call) -> None:
        """Another thread, while a transaction is being committed."""
        if call.is_done or self.client.is_dead:
            return
        try:
            self._check_transaction()
        except KafkaError:
            return
        self.client.world.violation = Violation("send() is accepted while commit_transaction() is under way")

    # send(), flush() and close()

    def send(self, record: SentRecord, topic: str, partition: int) -> None:
        """As `Producer.send`: the record is accepted, or KafkaError is raised."""
        fields = (topic, partition, record.key, record.value, None, record.timestamp_ms)
        append = self.client.accumulator.append
        delivery = self._accepted(topic, lambda now_ns: append(*fields, now_ns, None))
        self.client.world.application.accepted(self.client, record, delivery)

    def send_batch(self, records: list[EncodedRecord], topic: str, partition: int, codec: str) -> None:
        """As `Producer.send_batch`, of records that are encoded before."""
        data = encode([(each.key, each.value, (), each.timestamp_ms) for each in records], compression=codec)
        append = self.client.accumulator.append_batch
        delivery = self._accepted(topic, lambda now_ns: append(topic, partition, data, now_ns))
        for index, record in enumerate(records):
            outcome = BatchedOutcome(delivery, index)
            self.client.world.application.accepted(self.client, record, outcome)

    def _accepted(self, topic: str, append: Callable[[int], Any]) -> Any:
        """What comes of appending, now or when there is metadata."""
        self._check_transaction()
        client = self.client
        until_ns = client.schedule.now_ns + self.config.max_block_ms * MS
        try:
            while not isinstance(answer := append(client.schedule.now_ns), Delivery):
                client.engine.want_topic(topic)
                client.shell.wake()
                if client.schedule.now_ns >= until_ns:
                    raise KafkaTimeoutError(f"there is no metadata of topic {topic}")
                self.actor.sleep(LOOK_MS * MS)
                self._check_usable()
        except BaseException as error:
            self._note_refused(error)
            raise
        return answer

    def flush(self) -> None:
        accumulator, schedule = self.client.accumulator, self.client.schedule
        flush = accumulator.begin_flush()
        self._network.wake()
        limit_ns = (self.config.delivery_timeout_ms + 1000) * MS
        self.actor.wait(lambda: flush.pending_count == 0, schedule.now_ns + limit_ns)
        accumulator.end_flush()

    def close(self) -> None:
        """An open transaction is aborted."""
        self.client.trace("close")
        self.client.is_closed = True
        self.client.accumulator.close()
        limit_ns = self.config.delivery_timeout_ms * MS
        self._until_ns = self.client.schedule.now_ns + limit_ns
        at_once(self._end_transaction, Deadline(None))
        self._engine.fail(ProducerClosedError("closed"))
        self.client.completed(self._engine.poll_completed())
