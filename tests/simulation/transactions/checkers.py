"""Checks of a world of transactions that has ended, for readers of committed data.

`Logs` reads each partition as a consumer with isolation.level=read_committed does: by a fetch up to the last
stable offset, leaving out what the broker's list of aborted transactions names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from kbatch._native.codec.record import Record
from kbatch._native.codec.record_batch import RecordBatch, decode
from kbatch.errors import KafkaError
from kbatch.protocol import messages
from kbatch.records import TopicPartition
from kbatch.testing.broker.coordinator_records import decode_record
from kbatch.testing.broker.coordinators import TRANSACTIONS_TOPIC
from kbatch.testing.broker.logs.producer_state import EndTransactionMarker
from kbatch.testing.broker.transactions.transaction_coordinator import OFFSETS_TOPIC
from tests.simulation.producers.checkers import following
from tests.simulation.producers.wire import record_number
from tests.simulation.transactions.ledger import Transaction, TransactionOutcome, number_of_offset
from tests.simulation.world.trace import Violation

if TYPE_CHECKING:
    from kbatch.testing.broker.logs.partition import Partition
    from tests.simulation.transactions.world import TransactionalWorld


class Logged(NamedTuple):
    """A record in a log."""

    topic_partition: TopicPartition
    batch: RecordBatch
    record: Record


class OffsetInLog(NamedTuple):
    """An offset that was committed once, with its group and partition."""

    group: str
    topic_partition: TopicPartition
    offset: int


class Logs:
    """All records that the brokers have.

    Attributes
    ----------
    batches : dict of (topic, partition) to list of RecordBatch
        All batches in the logs of the applications' topics.
    stored, visible : dict of int to list of Logged
        Where each record is in a log, and where a reader of committed data sees it.
    visible_at : dict of (topic, partition) to list of Logged
        The same by partition, in its order.
    offsets : list of OffsetInLog
        The offsets of committed transactions, in their order.
    """

    def __init__(self, world: TransactionalWorld) -> None:
        self.batches: dict[TopicPartition, list[RecordBatch]] = {}
        self.stored: dict[int, list[Logged]] = defaultdict(list)
        self.visible: dict[int, list[Logged]] = defaultdict(list)
        self.visible_at: dict[TopicPartition, list[Logged]] = defaultdict(list)
        self.offsets: list[OffsetInLog] = []
        for partition in world.cluster.state.cluster.partitions():
            topic_partition = TopicPartition(partition.topic.name, partition.index)
            if topic_partition.topic == OFFSETS_TOPIC:
                self.offsets += _offsets(partition.log)
            elif topic_partition.topic != TRANSACTIONS_TOPIC:
                self._read(topic_partition, partition.log)

    def _read(self, topic_partition: TopicPartition, log: Partition) -> None:
        self.batches[topic_partition] = [batch for batch in log.batches(0) if not batch.is_control]
        for batch in self.batches[topic_partition]:
            for record in batch:
                self.stored[record_number(record)].append(Logged(topic_partition, batch, record))
        for batch in read_committed(log):
            for record in batch:
                logged = Logged(topic_partition, batch, record)
                self.visible_at[topic_partition].append(logged)
                self.visible[record_number(record)].append(logged)


def read_committed(log: Partition) -> Iterator[RecordBatch]:
    """Return the batches that a consumer delivers (org.apache.kafka.clients.consumer CompletedFetch)."""
    fetched = log.fetch(0, max_bytes=2**31 - 1, committed=True)
    to_come = sorted(fetched.aborted_transactions, key=lambda aborted: aborted[1])
    aborted: set[int] = set()
    for data in fetched.batches:
        for batch in decode(data):
            while to_come and to_come[0][1] <= batch.last_offset:
                aborted.add(to_come.pop(0)[0])
            if batch.is_control:
                if not EndTransactionMarker.of(next(iter(batch))).is_commit:
                    aborted.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in aborted):
                yield batch


def _offsets(log: Partition) -> Iterator[OffsetInLog]:
    for batch in read_committed(log):
        for record in batch:
            decoded = decode_record(
                messages.OffsetCommitKey,
                messages.OffsetCommitValue,
                bytes(record.key or b""),
                bytes(record.value) if record.value is not None else None,
            )
            if decoded is not None and decoded[1] is not None:
                key, value = decoded[0], decoded[1]
                yield OffsetInLog(key.group, TopicPartition(key.topic, key.partition), value.offset)


def check_contents(world: TransactionalWorld, logs: Logs) -> None:
    """Check that each record of a log was accepted for that partition with these bytes, and is there once."""
    for number, found in logs.stored.items():
        record = world.application.records.get(number)
        if record is None:
            raise Violation(f"record {number} is in the log, and was never accepted")
        if len(found) > 1:
            raise Violation(f"record {number} is {len(found)} times in {found[0].topic_partition}")
        if found[0].topic_partition != record.topic_partition:
            raise Violation(f"record {number} of {record.topic_partition} is in {found[0].topic_partition}")
        if (found[0].record.key, found[0].record.value) != (record.key, record.value):
            raise Violation(f"record {number} is in {found[0].topic_partition} with other bytes")


def check_deliveries(world: TransactionalWorld, logs: Logs) -> None:
    """Check the outcome that an application got for each record."""
    for record in world.application.records.values():
        delivery, transaction = record.delivery, world.application.transaction_of[record.number]
        assert delivery is not None
        if not delivery.done():
            if transaction.outcome in (TransactionOutcome.COMMITTED, TransactionOutcome.ABORTED):
                raise Violation(f"record {record.number} of {transaction} is not done")
            continue
        error, found = delivery.exception(), logs.stored.get(record.number)
        if error is None:
            offset = delivery.result().offset
            if not found or offset not in (-1, found[0].record.offset):
                raise Violation(f"record {record.number} was delivered at {offset}, and is at {found}")
        elif not isinstance(error, KafkaError):
            raise Violation(f"record {record.number} failed with {error!r}")
        elif found and not error.possibly_persisted:
            raise Violation(f"record {record.number} is in the log, and failed for certain: {error!r}")


def check_outcomes(world: TransactionalWorld, logs: Logs) -> None:
    """Check that readers see all that was committed and nothing else, except what has an unknown outcome. Of
    several offsets for a partition the last one counts.
    """
    offsets: dict[int, dict[TopicPartition, int]] = defaultdict(dict)
    for each in logs.offsets:
        offsets[number_of_offset(each.offset)][each.topic_partition] = each.offset
    for transaction in world.application.transactions:
        seen: list[Any] = [r.number for r in transaction.records if logs.visible.get(r.number)]
        seen += sorted(offsets[transaction.number])
        count = len(transaction.records) + len(transaction.offsets)
        if transaction.outcome is TransactionOutcome.COMMITTED and len(seen) < count:
            raise Violation(f"{transaction}: readers see only {seen}")
        if (
            transaction.outcome
            in (TransactionOutcome.ABORTED, TransactionOutcome.LOST, TransactionOutcome.OPEN)
            and seen
        ):
            raise Violation(f"{transaction}: readers see {seen}")
        if transaction.outcome is TransactionOutcome.UNKNOWN and 0 < len(seen) < count:
            raise Violation(f"{transaction}: readers see a part: {seen}")
        for topic_partition, offset in offsets[transaction.number].items():
            if offset != transaction.offsets.get(topic_partition):
                raise Violation(
                    f"of {transaction} the offsets are not the last: {offset} at {topic_partition}"
                )


def check_order(world: TransactionalWorld, logs: Logs) -> None:
    """Check that readers see records in the order of acceptance, a fenced producer's first."""
    for topic_partition, found in logs.visible_at.items():
        last: dict[str, tuple[int, int]] = {}
        positions = {number: position for position, number in enumerate(world.application.records)}
        for logged in found:
            number = record_number(logged.record)
            client = world.application.transaction_of[number].client
            this = (client.number, positions[number])
            program = client.transactional_id
            if this < last.get(program, (-1, -1)):
                numbers = [record_number(each.record) for each in found]
                raise Violation(f"record {number} is in {topic_partition} after later ones: {numbers}")
            last[program] = this


def check_offsets(world: TransactionalWorld, logs: Logs) -> None:
    """Check that a group's offsets follow the order of its transactions and the last one counts."""
    transactions = {each.number: each for each in world.application.transactions}
    last: dict[tuple[str, TopicPartition], Transaction] = {}
    for group, topic_partition, offset in logs.offsets:
        transaction = transactions[number := number_of_offset(offset)]
        before = last.setdefault((group, topic_partition), transaction)
        if (transaction.client.number, number) < (before.client.number, before.number):
            raise Violation(f"the offset of {group} for {topic_partition} is of {transaction} after {before}")
        last[group, topic_partition] = transaction
    for (group, topic_partition), transaction in last.items():
        store = world.cluster.state.coordinators.of_group(group).live.offsets
        fetched = store.fetch(group, [topic_partition], require_stable=True)[topic_partition]
        if fetched.offset != transaction.offsets[topic_partition]:
            raise Violation(
                f"the offset of {group} for {topic_partition} is {fetched}, and the last of {transaction}"
            )


def check_sequences(world: TransactionalWorld, logs: Logs) -> None:
    """Check that in each epoch the sequences of a log begin at 0 and have no gap."""
    for topic_partition, batches in logs.batches.items():
        last: dict[int, tuple[int, int]] = {}
        for batch in batches:
            epoch, sequence = last.get(batch.producer_id, (-1, -1))
            expected = following(sequence) if epoch == batch.producer_epoch else 0
            if batch.base_sequence != expected or batch.producer_epoch < epoch:
                raise Violation(
                    f"{topic_partition}: {batch.producer_id}/{batch.producer_epoch}/{batch.base_sequence} "
                    f"after {epoch}/{sequence}"
                )
            last[batch.producer_id] = (batch.producer_epoch, batch.last_sequence)


def check_memory(world: TransactionalWorld, logs: Logs) -> None:
    """Check that all memory was released, except by dead producers."""
    for client in world.clients:
        memory = client.accumulator.memory
        left = (memory.total_memory - memory.available, client.accumulator.incomplete_count)
        if any(left) and not client.is_dead:
            raise Violation(f"{client.name}: bytes and batches left at the end: {left}")


CHECKS: tuple[Callable[[TransactionalWorld, Logs], None], ...] = (
    check_contents,
    check_deliveries,
    check_outcomes,
    check_order,
    check_offsets,
    check_sequences,
    check_memory,
)


def check(world: TransactionalWorld) -> None:
    """Raise a Violation unless all checks hold."""
    logs = Logs(world)
    for each in CHECKS:
        each(world, logs)
