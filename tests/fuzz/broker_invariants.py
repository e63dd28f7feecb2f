"""Invariants of the embedded broker after any requests, and a client that checks whether it serves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import kbatch
from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from kbatch.protocol.structs import Message
from kbatch.testing.broker.broker_state import BrokerState
from kbatch.testing.broker.cluster import ClusterPartition
from kbatch.testing.broker.logs.producer_state import EXPIRATION_MS, ProducerDescription, ProducerStateTable
from tests.oracle import plain

READ_COMMITTED = 1
Ask = Callable[[int, Message, int], Any]  # (node, request, version) -> response


class Kept(NamedTuple):
    """The state that a partition must keep over a restart."""

    batches: list[bytes]
    start_offset: int
    producers: dict[int, ProducerDescription]


# Contents of the logs


def check_logs(state: BrokerState) -> None:
    """Check that all batches are whole and in order, and that producer state matches the log."""
    for partition in state.cluster.partitions():
        batches = whole_batches(partition)
        check_offsets(partition, batches)
        check_producers(partition, batches)


def whole_batches(partition: ClusterPartition) -> list[kbatch.RecordBatch]:
    """Return every batch of the log, its CRC checked and its records read."""
    stored = b"".join(bytes(batch) for batch in partition.log.batches())
    batches = list(kbatch.decode(stored, partial="raise"))
    for batch in batches:
        assert len(list(batch)) == len(batch)
    return batches


def check_offsets(partition: ClusterPartition, batches: list[kbatch.RecordBatch]) -> None:
    """Check that offsets are contiguous, except for compaction, and that the last stable offset is right."""
    log, name = partition.log, partition.topic.name
    offsets = (log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset)
    assert list(offsets) == sorted(offsets), (name, offsets)
    next_offset = batches[0].base_offset if batches else log.log_end_offset
    for batch in batches:
        gap = batch.base_offset - next_offset
        assert gap == 0 or (log.config.is_compacted and gap > 0), (name, next_offset, batch)
        next_offset = batch.last_offset + 1
    assert next_offset == log.log_end_offset or log.config.is_compacted, (name, next_offset, offsets)
    starts = [known.current_transaction_first_offset for known in log.describe_producers()]
    first_open = min((start for start in starts if start >= 0), default=log.log_end_offset)
    assert log.last_stable_offset == max(first_open, log.log_start_offset), (name, offsets, starts)


def check_producers(partition: ClusterPartition, batches: list[kbatch.RecordBatch]) -> None:
    """Check producer state against the log. It may be less after a restart or if producers were forgotten,
    and more if the start of the log was deleted or compaction left only the last batch.
    """
    log, name = partition.log, partition.topic.name
    start_offset = batches[0].base_offset if batches else log.log_end_offset
    table = ProducerStateTable()
    for batch in batches:
        table.replay(batch)
    noted = {each.producer_id: each for each in table.describe()}
    for known in log.describe_producers():
        expected = [batch[:4] for batch in known.batches if batch.base_offset >= start_offset]
        if log.config.is_compacted:
            expected = expected[-1:]
        found = noted.get(known.producer_id)
        last = [batch[:4] for batch in found.batches][-len(expected) :] if found and expected else []
        assert last == expected, (name, known, found)
        opened_at = known.current_transaction_first_offset
        if found is not None and not 0 <= opened_at < start_offset:
            assert found.producer_epoch == known.producer_epoch, (name, known, found)
            assert found.current_transaction_first_offset == opened_at, (name, known, found)


# Restarts


def kept(state: BrokerState) -> dict[tuple[str, int], Kept]:
    return {
        (partition.topic.name, partition.index): Kept(
            [bytes(batch) for batch in partition.log.batches()],
            partition.log.log_start_offset,
            {each.producer_id: each for each in partition.log.describe_producers()},
        )
        for partition in state.cluster.partitions()
    }


def check_kept(before: dict[tuple[str, int], Kept], state: BrokerState) -> None:
    """Check that the logs continue where they were; a restart adds only markers, and compaction."""
    after = kept(state)
    assert before.keys() == after.keys()
    for place, was in before.items():
        topic, index = place
        log = state.cluster.partition(topic, index).log
        if topic != "__consumer_offsets":
            assert after[place].batches[: len(was.batches)] == was.batches, place
        assert after[place].start_offset == was.start_offset, place
        new = len(after[place].batches) - len(was.batches)
        marked = {batch.producer_id for batch in list(log.batches())[-new:]} if new > 0 else set()
        written = {batch.producer_id for batch in log.batches(log.log_start_offset)}
        for producer_id, known in was.producers.items():
            found = after[place].producers.get(producer_id)
            if found is None:
                is_expired = state.now_ms - known.last_timestamp_ms >= EXPIRATION_MS
                assert is_expired or producer_id not in written, (place, known)
            elif producer_id not in marked:
                check_known_again(known, found, log.log_start_offset)


def check_known_again(known: ProducerDescription, found: ProducerDescription, start_offset: int) -> None:
    """Compare producers with their last batch, except for its time, which a snapshot lacks. A producer that
    was forgotten, and then known by a marker alone, may come back with more.
    """
    assert found.producer_epoch == known.producer_epoch, (known, found)
    if known.batches and known.batches[-1].last_offset >= start_offset:
        assert found.batches[-1][:4] == known.batches[-1][:4], (known, found)


# Service


class Round:
    """A client that makes a topic of its own, and does with it what clients do.

    Parameters
    ----------
    ask : callable
        (node, request, version) -> response, which may take time.
    """

    def __init__(self, ask: Ask, name: str, now_ms: int) -> None:
        self._ask = ask
        self._name = name
        self._now_ms = now_ms

    def run(self) -> None:
        """Raise AssertionError if the broker does not answer as it should."""
        kind = messages.CreateTopicsRequest
        topic = kind.CreatableTopic(name=self._name, num_partitions=1, replication_factor=-1)
        (created,) = self._ask(0, kind(topics=[topic]), 7).topics
        assert created.error_code == ErrorCode.NONE, created
        wanted = messages.MetadataRequest.MetadataRequestTopic(name=self._name)
        (found,) = self._ask(0, messages.MetadataRequest(topics=[wanted]), 12).topics
        self._leader = found.partitions[0].leader_id
        self._write_idempotently()
        self._write_in_transactions()
        self._join_and_commit()

    def _good(self, node_id: int, request: Message, version: int) -> Any:
        answer = self._ask(node_id, request, version)
        assert answer.error_code == ErrorCode.NONE, (request, answer)
        return answer

    def _write_idempotently(self) -> None:
        """Check that a batch sent again keeps its offset."""
        begin = messages.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        given = self._good(0, begin, 4)
        offsets = [self._produced(b"%d" % sequence, given, sequence) for sequence in (0, 1, 2, 2)]
        assert offsets == [0, 1, 2, 2], offsets
        assert self._read_committed() == [b"0", b"1", b"2"]

    def _write_in_transactions(self) -> None:
        """Check that committed records are read and aborted ones are not."""
        coordinator = self._coordinator(1)
        begin = messages.InitProducerIdRequest(transactional_id=self._name, transaction_timeout_ms=60_000)
        given = self._good(coordinator, begin, 4)
        for sequence, (value, is_committed) in enumerate(((b"aborted", False), (b"committed", True))):
            self._add_partition(coordinator, given)
            self._produced(value, given, sequence, self._name)
            end = messages.EndTxnRequest(
                transactional_id=self._name,
                producer_id=given.producer_id,
                producer_epoch=given.producer_epoch,
                committed=is_committed,
            )
            self._good(coordinator, end, 4)
        assert self._read_committed() == [b"0", b"1", b"2", b"committed"]

    def _join_and_commit(self) -> None:
        coordinator, kind = self._coordinator(0), messages.JoinGroupRequest
        join = kind(group_id=self._name, protocol_type="consumer")
        join.session_timeout_ms = join.rebalance_timeout_ms = 6000
        join.protocols = [kind.JoinGroupRequestProtocol(name="range", metadata=b"")]
        join.member_id = self._ask(coordinator, join, 5).member_id
        joined = self._good(coordinator, join, 5)
        member: dict[str, Any] = {"group_id": self._name, "member_id": join.member_id}
        generation = joined.generation_id
        assert joined.leader == join.member_id, joined
        share = messages.SyncGroupRequest.SyncGroupRequestAssignment
        shares = [share(member_id=join.member_id, assignment=b"all")]
        sync = messages.SyncGroupRequest(**member, generation_id=generation, assignments=shares)
        assert self._good(coordinator, sync, 3).assignment == b"all"
        self._good(coordinator, messages.HeartbeatRequest(**member, generation_id=generation), 3)
        self._commit(coordinator, generation, member)
        self._good(coordinator, messages.LeaveGroupRequest(**member), 2)

    def _commit(self, coordinator: int, generation: int, member: dict[str, Any]) -> None:
        kind = messages.OffsetCommitRequest
        partition = kind.OffsetCommitRequestPartition(partition_index=0, committed_offset=3)
        topic = kind.OffsetCommitRequestTopic(name=self._name, partitions=[partition])
        commit = kind(**member, generation_id_or_member_epoch=generation, topics=[topic])
        (committed,) = self._ask(coordinator, commit, 7).topics[0].partitions
        assert committed.error_code == ErrorCode.NONE, committed
        fetch = messages.OffsetFetchRequest(group_id=self._name, topics=None)
        (found,) = self._good(coordinator, fetch, 7).topics
        assert [each.committed_offset for each in found.partitions] == [3], found

    def _coordinator(self, key_type: int) -> int:
        request = messages.FindCoordinatorRequest(key=self._name, key_type=key_type)
        node_id: int = self._good(0, request, 3).node_id
        return node_id

    def _add_partition(self, coordinator: int, given: Any) -> None:
        kind = messages.AddPartitionsToTxnRequest
        request = kind(
            v3_and_below_transactional_id=self._name,
            v3_and_below_producer_id=given.producer_id,
            v3_and_below_producer_epoch=given.producer_epoch,
            v3_and_below_topics=[kind.AddPartitionsToTxnTopic(name=self._name, partitions=[0])],
        )
        (topic,) = self._ask(coordinator, request, 3).results_by_topic_v3_and_below
        assert topic.results_by_partition[0].partition_error_code == ErrorCode.NONE, topic

    def _produced(self, value: bytes, given: Any, sequence: int, transactional_id: str | None = None) -> int:
        """Return the offset of a batch of one record."""
        kind = messages.ProduceRequest
        batch = plain.encode(
            [(None, value, (), self._now_ms)],
            producer_id=given.producer_id,
            producer_epoch=given.producer_epoch,
            base_sequence=sequence,
            transactional=transactional_id is not None,
        )
        partition = kind.PartitionProduceData(records=batch)
        data = kind.TopicProduceData(name=self._name, partition_data=[partition])
        request = kind(transactional_id=transactional_id, acks=-1, timeout_ms=1000, topic_data=[data])
        (answer,) = self._ask(self._leader, request, 11).responses[0].partition_responses
        assert answer.error_code == ErrorCode.NONE, answer
        offset: int = answer.base_offset
        return offset

    def _read_committed(self) -> list[object]:
        """Return the values of a consumer that skips aborted transactions."""
        kind = messages.FetchRequest
        wanted = kind.FetchPartition(partition_max_bytes=1 << 20)
        topic = kind.FetchTopic(topic=self._name, partitions=[wanted])
        request = kind(isolation_level=READ_COMMITTED, max_bytes=1 << 20, topics=[topic])
        (answer,) = self._ask(self._leader, request, 11).responses[0].partitions
        assert answer.error_code == ErrorCode.NONE, answer
        aborted = {each.producer_id: each.first_offset for each in answer.aborted_transactions}
        values: list[object] = []
        for batch in kbatch.decode(answer.records):
            if batch.is_control:
                aborted.pop(batch.producer_id, None)
            elif batch.base_offset < aborted.get(batch.producer_id, batch.base_offset + 1):
                values += [record.value for record in batch]
        return values
