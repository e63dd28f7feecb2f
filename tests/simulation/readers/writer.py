"""Writer: a producer of a world of readers.

Theory of operation. Producers have worlds of their own. Here the brokers are written to without a network, by
what a request of a producer would do: records of transactions and others, which are committed, aborted, or
left to the time-out of their transaction by a producer that has died.
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

from kbatch._native.codec.batch_writer import encode
from kbatch.records import TopicPartition
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.controller.partition_change import NO_LEADER
from kbatch.testing.broker.logs.validation import read_produced
from tests.simulation.readers.ledger import WrittenTransaction
from tests.simulation.world.schedule import MS
from tests.simulation.world.tasks import sleep

if TYPE_CHECKING:
    from kbatch.testing.broker.broker_state import BrokerState
    from kbatch.testing.broker.cluster import ClusterPartition
    from kbatch.testing.broker.transactions.transaction_coordinator import TransactionCoordinator
    from tests.simulation.readers.stage import GroupStage

PRODUCE_VERSION = 11
ATTEMPTS = 20
CODECS = ("none", "none", "lz4", "zstd", "snappy", "gzip")


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
            if not self.write(partition, self.random.randint(1, self.options.records), transaction):
                break
            await self._pause()
        if self.random.random() < self.options.leave:
            self._identity = None
        elif self._identity is not None:
            await self._end(transaction, commits=self.random.random() >= self.options.abort)
        transaction.is_over = True

    async def _begin(self) -> bool:
        """Get an identity. False if the coordinator gives none."""
        if self._identity is not None:
            return True
        self._sequences.clear()
        for _ in range(ATTEMPTS):
            try:
                self._identity = self.world.cluster.change_state(
                    lambda state: _transactions(state, self._name).init_producer_id(
                        self._name, self.options.timeout_ms, -1, -1, state.now_ms
                    )
                )
                return True
            except BrokerError:
                await sleep(self.world.schedule, 50 * MS)
        return False

    async def _end(self, transaction: WrittenTransaction, *, commits: bool) -> None:
        for _ in range(ATTEMPTS):
            identity = self._identity
            assert identity is not None
            try:
                self._identity = self.world.cluster.change_state(
                    partial(self._end_now, identity=identity, commits=commits)
                )
            except BrokerError as error:
                self.world.trace("%s: the end is refused: %s", self._name, error)
                await sleep(self.world.schedule, 20 * MS)
                continue
            transaction.is_committed = commits
            self._sequences.clear()
            name = "committed" if commits else "aborted"
            self.world.ledger.outcomes[f"transactions {name}"] += 1
            self.world.trace("%s: transaction %d is %s", self._name, transaction.number, name)
            return
        self._identity = None  # its time-out ends it

    def _end_now(self, state: BrokerState, *, identity: tuple[int, int], commits: bool) -> tuple[int, int]:
        return _transactions(state, self._name).end_txn(self._name, *identity, commits, True, state.now_ms)

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
                partition, self._name, read_produced(data, PRODUCE_VERSION), identity
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


def _transactions(state: BrokerState, transactional_id: str) -> TransactionCoordinator:
    return state.coordinators.of_transaction(transactional_id).transactions
