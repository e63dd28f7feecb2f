"""The applications of a world of transactions.

Theory of operation. A Program is the application of a transactional.id: it makes a producer, makes
transactions with it, and makes another if it has lost it. It loses it by a fatal error, by its own death at
any moment, or because it is declared dead. In the last case a Ghost continues with the old producer, in the
same transaction, while the Program has a new one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from kbatch.errors import (
    AuthenticationError,
    DeliveryError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
)
from kbatch.records import OffsetAndMetadata, TopicPartition
from tests.simulation.transactions.client import Client
from tests.simulation.transactions.ledger import Transaction, TransactionOutcome
from tests.simulation.world.options import CODECS
from tests.simulation.world.schedule import MS
from tests.simulation.world.tasks import sleep
from tests.simulation.world.trace import Violation

if TYPE_CHECKING:
    from tests.simulation.transactions.client import TransactionalStage

GHOST_TRANSACTIONS = 2  # that a ghost tries
LEFT_WHEN_HEALED = 2  # of a program's transactions
PROBE_ROUNDS = 3
# With less there may be no time for a new connection.
PROBED_TIMEOUT_MS = 3000
SOURCE = "events"  # whose offsets are committed


class LostError(Exception):
    """The program has lost its producer."""


class Performer:
    """Makes transactions with a producer."""

    world: TransactionalStage

    def __init__(self, program: Program) -> None:
        self.program = program
        self.world = program.world
        self.random = program.world.random
        self.options = program.world.programs

    async def pause(self) -> None:
        await sleep(self.world.schedule, int(self.random.random() * self.options.pause_ms * MS))

    # A transaction

    async def begin(self, client: Client) -> Transaction:
        """Begin a transaction; LostError if the producer has gone meanwhile."""
        while True:
            try:
                await client.producer.begin_transaction()
                return self.world.application.begun(client)
            except KafkaError as error:
                await self._begin_anew(client, error)

    async def _begin_anew(self, client: Client, error: KafkaError) -> None:
        """Begin again after the epoch of the next transaction was refused."""
        client.trace("begin_transaction(): %r", error)
        if client.engine.fatal_error is not None:
            raise LostError from error
        if not error.abortable:
            raise Violation(f"begin_transaction(): {error!r}") from error
        with suppress(KafkaError):  # begin_transaction() says it again
            await self.call(client, client.producer.abort_transaction, client.commit_transaction)

    async def fill(self, client: Client, transaction: Transaction) -> None:
        """Send records and encoded batches to any partitions, and offsets."""
        for _ in range(self.random.randrange(self.options.records + 1)):
            topic = self.random.choice(list(self.world.options.cluster.partition_counts))
            partition = self._partition_of(client, topic)
            if self.options.batches and self.random.random() < self.options.batches:
                records, codec = self.world.application.new_batch(), self.random.choice(CODECS)
                await client.send_batch(records, topic, partition or 0, codec)
            else:
                await client.send(self.world.application.new_record(), topic, partition)
            if self.random.random() < 0.3:
                await self.pause()
        if self.random.random() < self.options.offsets:
            await self.send_offsets(client, transaction)
        if self.random.random() < self.options.flush:
            await client.producer.flush()

    def _partition_of(self, client: Client, topic: str) -> int | None:
        count = client.engine.snapshot.partition_count(topic)
        return self.random.randrange(count) if count and self.random.random() < 0.7 else None

    async def send_offsets(self, client: Client, transaction: Transaction) -> None:
        """Send offsets by one or several calls; the next may begin before one is done."""
        options, random = self.options, self.random
        for _ in range(1 if options.offset_calls == 1 else random.randint(1, options.offset_calls)):
            waits = not options.unawaited or random.random() >= options.unawaited
            await self._send_offsets(client, transaction, waits=waits)

    async def _send_offsets(self, client: Client, transaction: Transaction, *, waits: bool) -> None:
        count, offset = self.world.options.cluster.partition_counts[SOURCE], transaction.next_offset()
        chosen = [index for index in range(count) if self.random.random() < 0.7] or [0]
        transaction.offsets.update(((SOURCE, index), offset) for index in chosen)
        offsets = {TopicPartition(SOURCE, index): OffsetAndMetadata(offset) for index in chosen}
        client.trace("offset %d of %s", offset, chosen)
        if not waits:
            self.world.faults.note("offsets that are not waited for")
        try:
            await client.send_offsets(offsets, self.program.group_id, waits=waits)
        except KafkaTimeoutError as error:
            if error.abortable or self.random.random() < 0.5:
                raise
            client.trace("send_offsets_to_transaction() timed out, and goes on")

    async def complete(self, client: Client, transaction: Transaction, *, commits: bool) -> None:
        """Commit or abort; an abortable error leads to an abort. LostError if the producer is lost."""
        try:
            if commits:
                transaction.is_to_be_committed = True
                transaction.committed_ns = self.world.schedule.now_ns
                await self.call(client, client.commit_transaction, client.producer.abort_transaction)
                transaction.close(TransactionOutcome.COMMITTED)
                self._check_not_superseded(transaction)
            else:
                await self.call(client, client.producer.abort_transaction, client.commit_transaction)
                transaction.close(TransactionOutcome.ABORTED)
        except KafkaError as error:
            await self.handle(client, transaction, error)

    async def handle(self, client: Client, transaction: Transaction, error: KafkaError) -> None:
        client.trace("the application gets %r", error)
        if client.engine.fatal_error is not None:
            raise LostError from error
        if isinstance(error, IllegalStateError):
            raise Violation(f"{transaction}: {error!r}")
        transaction.is_to_be_committed = False
        if transaction.outcome is TransactionOutcome.OPEN:
            await self.complete(client, transaction, commits=False)

    async def call(
        self, client: Client, method: Callable[..., Awaitable[None]], other: Callable[..., Awaitable[None]]
    ) -> None:
        """Make a call, and repeat it while its outcome is unknown; meanwhile no other call is accepted."""
        options = self.options
        while True:
            timeout, dies = None, False
            if self.world.faults.is_active:
                dies = self.random.random() < options.crash
                if dies or self.random.random() < options.hasty:
                    timeout = self.random.random() * options.hasty_ms / 1000
            try:
                await method(timeout=timeout)
                return
            except (KafkaTimeoutError, AuthenticationError) as error:
                if error.abortable or error.fatal:
                    raise
            client.trace("%s() has no outcome yet", method.__name__)
            self.world.faults.note("time-out of a call")
            await self._check_refused(other)
            if dies:
                self.world.faults.note("crash in a call")
                raise LostError

    async def _check_refused(self, other: Callable[..., Awaitable[None]]) -> None:
        try:
            await other(timeout=0)
        except IllegalStateError:
            return
        except KafkaError as error:
            raise Violation(f"{other.__name__}() while another call is not done: {error!r}") from error
        raise Violation(f"{other.__name__}() succeeded while another call was not done")

    def _check_not_superseded(self, transaction: Transaction) -> None:
        superseded_ns = transaction.client.superseded_ns
        is_empty = not transaction.records and not transaction.offsets
        if superseded_ns is not None and superseded_ns < transaction.committed_ns and not is_empty:
            raise Violation(f"{transaction} was committed by a producer that had been fenced")


class Ghost(Performer):
    """Continues with a producer that was declared dead."""

    def __init__(self, program: Program, client: Client, transaction: Transaction) -> None:
        super().__init__(program)
        self._client = client
        self._transaction = transaction
        self.world.start(self._run())

    async def _run(self) -> None:
        client, transaction = self._client, self._transaction
        try:
            delay_ms = self.random.choice((1, 20, 300)) * self.random.random()
            await sleep(self.world.schedule, int(delay_ms * MS))
            for _ in range(GHOST_TRANSACTIONS):
                try:
                    await self.fill(client, transaction)
                except KafkaError as error:
                    await self.handle(client, transaction, error)
                if transaction.outcome is TransactionOutcome.OPEN:
                    await self.complete(client, transaction, commits=self.random.random() < 0.8)
                await self.pause()
                transaction = await self.begin(client)
        except LostError:
            """It has learnt that it is dead."""
        transaction.lose()
        client.end()


class Program(Performer):
    """The application of a transactional.id.

    Attributes
    ----------
    left : int
        The number of transactions still to make.
    client : Client | None
        Its current producer.
    """

    transactional_id: str
    group_id: str

    def __init__(self, world: TransactionalStage, number: int) -> None:
        self.world = world
        self.transactional_id = f"id-{number}"
        self.group_id = f"group-{number}"
        self.left = world.programs.transactions
        self.client: Client | None = None
        self._producer_count = 0
        super().__init__(self)
        self.world.start(self._run())

    async def _run(self) -> None:
        while self.left > 0:
            if self.client is None:
                await self.make_producer()
            else:
                self.left -= 1
                await self.perform()
            await self.pause()

    # Producers

    async def make_producer(self) -> bool:
        """Make a producer. True if there is one."""
        client = Client(self.world, self.transactional_id, self._producer_count)
        self._producer_count += 1
        earlier = [each for each in self.world.clients if each.transactional_id == self.transactional_id]
        self.world.clients.append(client)
        for each in earlier:
            each.may_fail = True
        try:
            await self._initialize(client)
        except (KafkaError, LostError):
            client.end()
            return False
        for each in earlier:
            if each.superseded_ns is None:
                each.superseded_ns = self.world.schedule.now_ns
        client.trace("has its epoch")
        self.client = client
        return True

    async def _initialize(self, client: Client) -> None:
        while True:
            try:
                await self.call(client, client.producer.init_transactions, client.producer.abort_transaction)
                return
            except KafkaError as error:
                if client.engine.fatal_error is not None:
                    raise
                client.trace("init_transactions(): %r", error)
                if error.abortable:
                    await self.call(client, client.producer.abort_transaction, client.commit_transaction)
                    return

    # Transactions

    async def perform(self) -> None:
        """Make one transaction, after which there may be no producer."""
        client = self.client
        assert client is not None
        try:
            transaction = await self.begin(client)
            await self._perform(client, transaction)
        except LostError:
            self._give_up(client)

    async def _perform(self, client: Client, transaction: Transaction) -> None:
        options, draw = self.options, self.random.random
        is_active = self.world.faults.is_active
        try:
            await self.fill(client, transaction)
        except KafkaError as error:
            await self.handle(client, transaction, error)
            return
        if is_active and draw() < options.crash:
            self.world.faults.note("crash")
            raise LostError
        if is_active and draw() < options.close:
            await self._close(client)
            raise LostError
        if is_active and draw() < options.haunt:
            self.world.faults.note("ghost")
            Ghost(self, client, transaction)
            self.client = None
            return
        await self.complete(client, transaction, commits=draw() >= options.abort)

    # After the end of all faults

    def probe(self) -> None:
        """Check that the current producer and a new one commit a transaction with all partitions."""
        self.world.start(self._probe())

    async def _probe(self) -> None:
        if self.client is not None and self.client.engine.fatal_error is None:
            await self._commit_one(self.client)
        if not await self.make_producer() or self.client is None:
            raise Violation(f"{self.transactional_id} gets no producer after all was healed")
        await self._commit_one(self.client)

    async def _commit_one(self, client: Client) -> None:
        for _ in range(PROBE_ROUNDS):
            try:
                transaction = await self.begin(client)
                await self._send_everywhere(client, transaction)
            except LostError:
                break
            if transaction.outcome is TransactionOutcome.COMMITTED:
                return
        limit_ms = min(client.config.delivery_timeout_ms, client.config.transaction_timeout_ms)
        options = self.world.options
        # a call that is retried a few times takes longer
        if options.cluster.broken_addresses or client.config.max_block_ms < 10 * options.round_trip_ms:
            limit_ms = min(limit_ms, client.config.max_block_ms)
        if limit_ms >= PROBED_TIMEOUT_MS and options.stays_in_sync:
            error = client.engine.fatal_error
            raise Violation(f"{client.name} commits nothing after all was healed: {error!r}")

    async def _send_everywhere(self, client: Client, transaction: Transaction) -> None:
        try:
            for partition in self.world.data_partitions():
                record = self.world.application.new_record()
                await client.send(record, partition.topic.name, partition.index)
            await self.send_offsets(client, transaction)
        except KafkaError as error:
            await self.handle(client, transaction, error)
        else:
            await self.complete(client, transaction, commits=True)

    async def _close(self, client: Client) -> None:
        """Close the producer. Failed deliveries that were never checked do not matter."""
        with suppress(DeliveryError):
            await client.close()

    def _give_up(self, client: Client) -> None:
        self.client = None
        if client.transaction is not None:
            client.transaction.lose()
        client.end()
