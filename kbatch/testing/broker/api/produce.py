"""Produce: checks and appends batches, in Kafka's order.

The order and the codes are those of KafkaApis.handleProduceRequest and ReplicaManager.appendRecords. The
checks of one batch's bytes are in validation.py, those of its sequences in producer_state.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from kbatch.errors import ErrorCode
from kbatch.protocol import features, messages
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.broker_state import Delayed
from kbatch.testing.broker.controller.quotas import PRODUCER_BYTE_RATE
from kbatch.testing.broker.logs.validation import ProducedBatch, RecordErrors, is_transactional, read_produced
from kbatch.testing.broker.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from kbatch.testing.broker.broker_state import BrokerState, Context
    from kbatch.testing.broker.cluster import Topic
    from kbatch.testing.broker.replication.replica import Replica

NO_ACKS, ALL_IN_SYNC = 0, -1
RETRY_COORDINATOR = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_COORDINATOR,
    }
)
# The refusals of a partition that do not name its log's start (ReplicaManager.appendToLocalLog).
WITHOUT_LOG_START = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
Answer = messages.ProduceResponse.PartitionProduceResponse


def produce(
    state: BrokerState, request: messages.ProduceRequest, context: Context
) -> messages.ProduceResponse | Delayed | None:
    """Handle Produce; return None for acks=0, when an error closes the connection."""
    return _Produce(state, request, context).result()


class _Item:
    """One partition's data while the request is handled."""

    __slots__ = ("answer", "batch", "data", "end_offset", "partition", "topic", "topic_name")

    def __init__(
        self,
        data: messages.ProduceRequest.PartitionProduceData,
        name: str,
        topic: Topic | None,
        answer: Answer,
    ) -> None:
        self.data = data
        self.topic_name = topic.name if topic is not None else name
        self.topic = topic
        self.answer = answer
        self.batch: ProducedBatch | None = None
        self.partition: Replica | None = None
        self.end_offset = -1

    @property
    def records(self) -> ReadableBuffer | None:
        records = self.data.records
        assert records is None or isinstance(records, bytes | memoryview)  # in one piece, as decoded
        return records

    @property
    def is_good(self) -> bool:
        return self.answer.error_code == ErrorCode.NONE

    @property
    def is_replicated(self) -> bool:
        return self.partition is not None and self.partition.log.high_watermark >= self.end_offset


class _Produce:
    """One request, from its bytes to the answer, which waits for the high watermark if acks is all."""

    def __init__(self, state: BrokerState, request: messages.ProduceRequest, context: Context) -> None:
        self._state = state
        self._request = request
        self._context = context
        self._response = messages.ProduceResponse(responses=[])
        self._items = list(self._all_items())
        try:
            self._check_transaction()
            self._each(self._read)
            self._check_batches()
        except BrokerError as error:  # of the whole request: the answer for each partition
            for item in self._items:
                _refuse(item.answer, error)
        # each step for all partitions before the next, as in Kafka
        for step in (self._check_acks, self._verify_transaction, self._append):
            self._each(step)

    def result(self) -> messages.ProduceResponse | Delayed | None:
        if self._request.acks == NO_ACKS:
            self._throttle()
            self._context.closes_connection = not all(item.is_good for item in self._items)
            return None
        if self._request.acks == ALL_IN_SYNC:
            self._state.replication.run(self._context.now_ms)
            waiting = [item for item in self._items if item.is_good and not item.is_replicated]
            if waiting:
                return self._when_replicated(waiting)
        return self._answered()

    def _when_replicated(self, waiting: list[_Item]) -> Delayed:
        """Wait for each partition until its records are replicated, or its leader moves (DelayedProduce).

        Appended batches stay in the log whatever the answer.
        """
        delayed = Delayed()

        def attempt(now_ms: int) -> bool:
            for item in waiting:
                self._try(item, self._check_replicated)
            waiting[:] = [item for item in waiting if item.is_good and not item.is_replicated]
            if not waiting:
                delayed.complete(self._answered())
            return not waiting

        def give_up(now_ms: int) -> None:
            for item in waiting:
                _refuse(item.answer, BrokerError(ErrorCode.REQUEST_TIMED_OUT))
            delayed.complete(self._answered())

        partitions = [(item.topic.name, item.data.index) for item in waiting if item.topic]
        deadline_ms = self._context.now_ms + self._request.timeout_ms
        self._state.purgatory.watch(partitions, attempt, deadline_ms, give_up)
        return delayed

    def _throttle(self) -> None:
        """Count the request against the client's quota: it counts when it is answered."""
        if self._state.cluster.quotas.limits:
            self._state.throttle_bytes(self._context, PRODUCER_BYTE_RATE, self._context.size_bytes)

    def _answered(self) -> messages.ProduceResponse:
        self._throttle()
        if self._context.version >= features.PRODUCE_NAMES_LEADERS:
            self._hint_at_leaders()
        return self._response

    def _all_items(self) -> Iterator[_Item]:
        """Yield one item a partition; if a partition is named twice, Kafka takes the last."""
        by_topic: dict[tuple[str, bytes], dict[int, messages.ProduceRequest.PartitionProduceData]] = {}
        for named in self._request.topic_data:
            partitions = by_topic.setdefault((named.name, bytes(named.topic_id)), {})
            partitions.update((each.index, each) for each in named.partition_data)
        for (name, topic_id), partitions in by_topic.items():
            if self._context.version >= features.PRODUCE_TOPIC_IDS:
                topic = self._state.cluster.topics_by_id.get(topic_id)
            else:
                topic = self._state.cluster.topics.get(name)
            answers = [Answer(index=index, base_offset=-1) for index in partitions]
            self._response.responses.append(
                messages.ProduceResponse.TopicProduceResponse(
                    name=name, topic_id=topic_id, partition_responses=answers
                )
            )
            for each, answer in zip(partitions.values(), answers, strict=True):
                yield _Item(each, name, topic, answer)

    def _each(self, step: Callable[[_Item], None]) -> None:
        for item in self._items:
            if item.is_good:
                self._try(item, step)

    def _try(self, item: _Item, step: Callable[[_Item], None]) -> None:
        try:
            step(item)
        except BrokerError as error:
            _refuse(item.answer, error)

    # The steps

    def _check_transaction(self) -> None:
        """Check that the client may write transactional batches, if there are any."""
        self._context.check_forced_error()
        if any(is_transactional(item.records) for item in self._items):
            if self._request.transactional_id is None:
                raise BrokerError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            self._state.authorize(
                self._context,
                Operation.WRITE,
                ResourceType.TRANSACTIONAL_ID,
                self._request.transactional_id,
            )

    def _read(self, item: _Item) -> None:
        """Read the batch, if the client may write it and the partition exists."""
        if item.topic is None and self._context.version >= features.PRODUCE_TOPIC_IDS:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID)
        self._state.authorize(self._context, Operation.WRITE, ResourceType.TOPIC, item.topic_name)
        if item.topic is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not 0 <= item.data.index < len(item.topic.partitions):
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self._context.check_partition(item.topic.name, item.data.index)
        item.batch = read_produced(item.records, self._context.version)

    def _check_batches(self) -> None:
        """Check the headers (ReplicaManager.handleProduceAppend); fail if one ends before its producer id."""
        if any(item.answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR for item in self._items):
            raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, "A batch is shorter than its header.")
        batches = [item.batch for item in self._items if item.batch and item.batch.is_in_transaction]
        if len({(batch.producer_id, batch.producer_epoch) for batch in batches}) > 1:
            raise BrokerError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)

    def _check_acks(self, item: _Item) -> None:
        if self._request.acks not in (-1, 0, 1):
            raise BrokerError(ErrorCode.INVALID_REQUIRED_ACKS)

    def _verify_transaction(self, item: _Item) -> None:
        """Ask the coordinator to confirm the partition or, with version 12, to add it (KIP-890)."""
        assert item.batch is not None and item.topic is not None
        batch, partition = item.batch, item.topic.partitions[item.data.index]
        if not batch.is_in_transaction or not partition.is_led_by(self._context.node_id):
            return
        adds = self._context.version >= features.PRODUCE_ADDS_PARTITIONS
        if not partition.copies[self._context.node_id].log.requires_verification(
            batch, supports_epoch_bump=adds, now_ms=self._context.now_ms
        ):
            return
        try:
            self._state.coordinators.verify_partition(
                self._context.node_id,
                self._request.transactional_id,
                batch.producer_id,
                batch.producer_epoch,
                (item.topic.name, item.data.index),
                adds=adds,
                names_abortable=self._context.version >= features.PRODUCE_TRANSACTION_ABORTABLE,
                now_ms=self._context.now_ms,
            )
        except BrokerError as error:
            # ReplicaManager.handleProduceAppend translates the coordinator's errors in the same way
            if error.code in RETRY_COORDINATOR or (
                error.code == ErrorCode.CONCURRENT_TRANSACTIONS and not adds
            ):
                raise BrokerError(ErrorCode.NOT_ENOUGH_REPLICAS) from error
            raise

    def _append(self, item: _Item) -> None:
        assert item.batch is not None and item.topic is not None
        if item.topic.is_internal:
            raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        partition = self._state.cluster.led_partition(item.topic.name, item.data.index, self._context.node_id)
        try:
            self._check_in_sync(partition.registration.isr, partition, ErrorCode.NOT_ENOUGH_REPLICAS)
            appended = partition.log.append_produced(
                item.batch,
                now_ms=self._context.now_ms,
                leader_epoch=partition.leader_epoch,
                verified=item.batch.is_transactional,
                supports_epoch_bump=self._context.version >= features.PRODUCE_ADDS_PARTITIONS,
            )
        except BrokerError as error:
            if error.code not in WITHOUT_LOG_START:
                item.answer.log_start_offset = partition.log.log_start_offset
            raise
        item.partition = partition
        item.end_offset = appended.base_offset + item.batch.record_count
        item.answer.base_offset = appended.base_offset
        item.answer.log_append_time_ms = appended.log_append_time_ms
        item.answer.log_start_offset = appended.log_start_offset
        self._state.partition_changed(item.topic.name, item.data.index)

    def _check_replicated(self, item: _Item) -> None:
        """Partition.checkEnoughReplicasReachOffset"""
        assert item.topic is not None
        partition = self._state.cluster.led_partition(item.topic.name, item.data.index, self._context.node_id)
        if item.is_replicated and partition.leadership is not None:
            in_sync = partition.leadership.maximal_isr
            self._check_in_sync(in_sync, partition, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)

    def _check_in_sync(self, replicas: Collection[int], led: Replica, refusal: ErrorCode) -> None:
        """Refuse acks=all if `replicas`, those in sync, are too few."""
        if self._request.acks != ALL_IN_SYNC:
            return
        if led.lacks_in_sync(replicas):
            raise BrokerError(refusal)

    def _hint_at_leaders(self) -> None:
        """Name the leader for partitions that this node does not lead (KIP-951)."""
        hints = {}
        for item in self._items:
            if item.answer.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER or item.topic is None:
                continue
            if not 0 <= item.data.index < len(item.topic.partitions):  # only with a forced error
                continue
            known = item.topic.partitions[item.data.index].known_by(self._context.node_id)
            item.answer.current_leader = messages.ProduceResponse.LeaderIdAndEpoch(
                leader_id=known.leader, leader_epoch=known.leader_epoch
            )
            if known.leader >= 0:
                node = self._state.cluster.nodes[known.leader]
                hints[node.node_id] = messages.ProduceResponse.NodeEndpoint(
                    node_id=node.node_id, **self._context.address_of(node)
                )
        self._response.node_endpoints = list(hints.values())


def _refuse(answer: Answer, error: BrokerError) -> None:
    """Answer with the error; a batch appended before it keeps its offset, as in DelayedProduce."""
    answer.error_code = error.code
    answer.error_message = error.message
    if isinstance(error, RecordErrors):
        answer.record_errors = [
            messages.ProduceResponse.BatchIndexAndErrorMessage(
                batch_index=index, batch_index_error_message=text
            )
            for index, text in error.record_errors
        ]


HANDLERS = {messages.ProduceRequest: produce}
