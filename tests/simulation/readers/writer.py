"""Writer: a producer of a world of readers.

Theory of operation. Producers have worlds of their own. Here the brokers are written to without a network, by
what a request of a producer would do: records of transactions and others, which are committed, aborted, or
left to the time-out of their transaction by a producer that has died.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, TypeVar

from kbatch._native.codec.batch_writer import encode
from kbatch.errors import ErrorCode
from kbatch.records import TopicPartition
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.controller.partition_change import NO_LEADER
from kbatch.testing.broker.logs.validation import read_produced
from tests.simulation.readers.ledger import WrittenTransaction
from tests.simulation.world.schedule import MS
from tests.simulation.world.tasks import sleep

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbatch.testing.broker.broker_state import BrokerState
    from kbatch.testing.broker.cluster import ClusterPartition
    from kbatch.testing.broker.transactions.transaction_coordinator import TransactionCoordinator
    from tests.simulation.readers.stage import GroupStage

PRODUCE_VERSION = 11
ATTEMPTS = 20
LOOK_MS = 5
# What the coordinator answers until it has done what was asked for, or knows that it has not.
BUSY = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
CODECS = ("none", "none", "lz4", "zstd", "snappy", "gzip")


Answer = TypeVar("Answer")


class UnknownEndError(BrokerError):
    """A coordinator has not said in time whether something is done: its record may be replicated later."""


class Writer:
    """One producer, with one transactional id.

    Attributes
    ----------
    is_over : bool
        It writes nothing more.
    """

    def __init__(self, world: GroupStage, number: int) -> None:
        self.world = world
        self.options = world.writing
        self.random = random.Random(f"writer {world.options.seed} {number}")
        self.is_over = False
        self._name = f"writer-{number}"
        self._codec = self.random.choice(CODECS)
        self._identity: tuple[int, int] | None = None
        self._sequences: dict[TopicPartition, int] = {}

    async def run(self) -> None:
        for _ in range(self.options.transactions):
            await self._pause()
            if not self.world.faults.is_active:
                break
            if self.random.random() < self.options.plain:
                self.write(self._any_partition(), self.random.randint(1, self.options.records), None)
            else:
                await self._transact()
        self.is_over = True

    async def _pause(self) -> None:
        if self.world.faults.is_active:
            await sleep(self.world.schedule, int(self.random.random() * self.options.pause_ms * MS))

    async def _transact(self) -> None:
        """Write a transaction, if there is a coordinator."""
        if not await self._begin():
            return
        transaction = WrittenTransaction(self.world.next_transaction())
        for _ in range(self.random.randint(1, self.options.batches)):
            partition = self._any_partition()
            count = self.random.randint(1, self.options.records)
            if not await self._add(partition) or not self.write(partition, count, transaction):
                break
            await self._pause()
        if self.random.random() < self.options.leave:
            self._identity = None
        elif self._identity is not None:
            await self._end(transaction, commits=self.random.random() >= self.options.abort)

    async def _begin(self) -> bool:
        """Get an identity. False if the coordinator gives none."""
        if self._identity is not None:
            return True
        self._sequences.clear()
        for _ in range(ATTEMPTS):
            try:
                self._identity = await self._ask(
                    lambda transactions, now_ms: transactions.init_producer_id(
                        self._name, self.options.timeout_ms, -1, -1, now_ms
                    )
                )
                return True
            except BrokerError:
                await sleep(self.world.schedule, 50 * MS)
        return False

    async def _add(self, partition: ClusterPartition) -> bool:
        """Add a partition to the transaction. False if that is refused."""
        identity, place = self._identity, (partition.topic.name, partition.index)
        if identity is None:
            return False
        try:
            await self._ask(
                lambda transactions, now_ms: transactions.add_partitions(
                    self._name, *identity, [place], now_ms, client_tv2=True
                )
            )
        except BrokerError as error:
            self.world.trace("%s: %s-%d is refused: %s", self._name, *place, error)
            self._identity = None
            return False
        return True

    async def _end(self, transaction: WrittenTransaction, *, commits: bool) -> None:
        may_be_ended = False
        attempts = 0
        identity = self._identity
        assert identity is not None
        transaction.may_be_committed = commits
        while attempts < ATTEMPTS or may_be_ended:
            attempts += 1
            try:
                self._identity = await self._ask(
                    lambda transactions, now_ms: transactions.end_txn(
                        self._name, *identity, commits, True, now_ms
                    )
                )
            except BrokerError as error:
                self.world.trace("%s: the end is refused: %s", self._name, error)
                if may_be_ended and error.code not in BUSY:
                    break
                may_be_ended |= isinstance(error, UnknownEndError)
                await sleep(self.world.schedule, 20 * MS)
                continue
            transaction.is_committed, transaction.may_be_committed = commits, False
            self._sequences.clear()
            name = "committed" if commits else "aborted"
            self.world.ledger.outcomes[f"transactions {name}"] += 1
            self.world.trace("%s: transaction %d is %s", self._name, transaction.number, name)
            return
        transaction.may_be_committed &= may_be_ended
        self._identity = None  # its time-out ends it

    async def _ask(self, request: Callable[[TransactionCoordinator, int], Answer]) -> Answer:
        """Return what the coordinator answers, once that is replicated.

        Raises BrokerError, and UnknownEndError if what was asked for may be done all the same.
        """
        codes: list[ErrorCode] = []

        def ask(state: BrokerState) -> tuple[Answer, bool]:
            transactions = state.coordinators.of_transaction(self._name).transactions
            answer = request(transactions, state.now_ms)
            write = transactions.unreplicated(self._name)
            if write is not None:
                write.then(lambda code, now_ms: codes.append(code))
            return answer, write is None

        answer, is_replicated = self.world.cluster.change_state(ask)
        while not is_replicated and not codes:
            await sleep(self.world.schedule, LOOK_MS * MS)
        if any(codes):
            raise UnknownEndError(codes[0])
        return answer

    def _any_partition(self) -> ClusterPartition:
        return self.random.choice(self.world.data_partitions())

    def write(self, partition: ClusterPartition, count: int, transaction: WrittenTransaction | None) -> bool:
        """Write a batch. False if that is not possible now."""
        place = self.world.cluster.log_of(partition.topic.topic_id, partition.index)
        ledger = self.world.ledger
        if partition.leader == NO_LEADER:
            return False
        first = len(ledger.records)
        size, now_ms = self.options.value_bytes, self.world.cluster.now_ms
        records = [
            (
                None,
                (first + each).to_bytes(4, "big") + self.random.randbytes(self.random.randrange(size)),
                (),
                now_ms,
            )
            for each in range(count)
        ]
        identity = self._identity if transaction is not None else None
        producer_id, epoch = identity or (-1, -1)
        sequence = -1 if identity is None else self._sequences.get(place, 0)
        data = encode(
            records,
            compression=self._codec,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=identity is not None,
        )
        try:
            appended = self.world.cluster.append(
                partition,
                read_produced(data, PRODUCE_VERSION),
                is_transactional=identity is not None,
            )
        except BrokerError as error:
            self.world.trace("%s: a batch to %s is refused: %s", self._name, place, error)
            self._identity = None
            return False
        if identity is not None:
            self._sequences[place] = sequence + count
        ledger.write(place, appended.base_offset, count, transaction)
        self.world.trace(
            "%s: records %d to %d to %s at %d%s",
            *(self._name, first, first + count - 1, place, appended.base_offset),
            "" if transaction is None else f" in transaction {transaction.number}",
        )
        return True
