"""Topics by request: create, extend and delete them, and their records; DescribeProducers."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from kbatch.errors import ErrorCode
from kbatch.protocol import features, messages
from kbatch.records import NO_TOPIC_ID
from kbatch.testing.broker.api.configs import topic_configs
from kbatch.testing.broker.api.items import each_partition
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.broker_state import Delayed
from kbatch.testing.broker.cluster import INTERNAL_TOPICS, MAX_PARTITIONS
from kbatch.testing.broker.replication.replica import NO_EPOCH
from kbatch.testing.broker.security.authorizer import Operation, ResourceType

if TYPE_CHECKING:
    from kbatch.testing.broker.broker_state import BrokerState, Context
    from kbatch.testing.broker.replication.replica import Replica

CLUSTER_METADATA_TOPIC = "__cluster_metadata"


# Topics


def create_topics(
    state: BrokerState, request: messages.CreateTopicsRequest, context: Context
) -> messages.CreateTopicsResponse:
    counts = Counter(topic.name for topic in request.topics)
    total = sum(_partition_count(state, topic) for topic in request.topics if counts[topic.name] == 1)
    result = messages.CreateTopicsResponse.CreatableTopicResult
    with state.cluster.saved_once():
        return messages.CreateTopicsResponse(
            topics=[
                context.fill(
                    result(name=name, configs=[], error_message=None),
                    _create_topic,
                    state,
                    wanted,
                    counts[name] > 1,
                    total,
                    request.validate_only,
                    context,
                )
                for name, wanted in {topic.name: topic for topic in request.topics}.items()
            ]
        )


def _partition_count(state: BrokerState, wanted: messages.CreateTopicsRequest.CreatableTopic) -> int:
    count = len(wanted.assignments) or wanted.num_partitions
    return state.options.default_partitions if count == -1 else count


def _check_total(count: int) -> None:
    if count > MAX_PARTITIONS:
        raise BrokerError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")


def _create_topic(
    state: BrokerState,
    wanted: messages.CreateTopicsRequest.CreatableTopic,
    is_duplicate: bool,
    total_partitions: int,
    validate_only: bool,
    context: Context,
    result: messages.CreateTopicsResponse.CreatableTopicResult,
) -> None:
    if is_duplicate:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    if wanted.name == CLUSTER_METADATA_TOPIC:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "The topic of the controllers cannot be created.")
    if not state.allows_cluster(context, Operation.CREATE):
        state.authorize(context, Operation.CREATE, ResourceType.TOPIC, wanted.name)
    _check_total(total_partitions)
    assignments = [
        assignment.broker_ids
        for assignment in sorted(wanted.assignments, key=lambda assignment: assignment.partition_index)
    ]
    if assignments and (wanted.num_partitions != -1 or wanted.replication_factor != -1):
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            "With assignments given, num_partitions and replication_factor must be -1.",
        )
    count = _partition_count(state, wanted)
    replication_factor = None if wanted.replication_factor == -1 else wanted.replication_factor
    configs = {config.name: config.value for config in wanted.configs}
    cluster = state.cluster
    config = cluster.check_new_topic(wanted.name, count, replication_factor, assignments, configs)
    is_strict = context.version >= features.CREATE_TOPICS_QUOTA
    state.take_mutations(context, count, is_strict=is_strict)
    if validate_only:
        result.topic_id = cluster.new_topic_id()
    else:
        topic = cluster.create_topic(
            wanted.name,
            count,
            replication_factor=replication_factor,
            configs=configs,
            assignments=assignments or None,
        )
        result.topic_id = topic.topic_id
    if not state.allows(context, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, wanted.name):
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return
    result.num_partitions = count
    result.replication_factor = len(assignments[0] if assignments else cluster.place(0, replication_factor))
    result.configs = [
        messages.CreateTopicsResponse.CreatableTopicConfigs(
            name=each.name, value=each.value, config_source=each.config_source
        )
        for each in topic_configs(config)
    ]


def delete_topics(
    state: BrokerState, request: messages.DeleteTopicsRequest, context: Context
) -> messages.DeleteTopicsResponse:
    named = [(topic.name, bytes(topic.topic_id)) for topic in request.topics]
    counts = Counter(named or [(name, NO_TOPIC_ID) for name in request.topic_names])
    result = messages.DeleteTopicsResponse.DeletableTopicResult
    return messages.DeleteTopicsResponse(
        responses=[
            context.fill(result(name=name, topic_id=topic_id), _delete_topic, state, count > 1, context)
            for (name, topic_id), count in counts.items()
        ]
    )


def _delete_topic(
    state: BrokerState,
    is_duplicate: bool,
    context: Context,
    result: messages.DeleteTopicsResponse.DeletableTopicResult,
) -> None:
    if (result.name is None) == (result.topic_id == NO_TOPIC_ID):
        raise BrokerError(ErrorCode.INVALID_REQUEST, "A topic is named by either its name or its id.")
    if is_duplicate:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "Duplicate topic name or id.")
    name = result.name
    if name is None:
        name = state.cluster.topic_by_id(bytes(result.topic_id)).name
        if state.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, name):
            result.name = name
    else:
        state.authorize(context, Operation.DESCRIBE, ResourceType.TOPIC, name)
    if name not in state.cluster.topics:
        raise BrokerError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
        )
    state.authorize(context, Operation.DELETE, ResourceType.TOPIC, name)
    is_strict = context.version >= features.DELETE_TOPICS_QUOTA
    state.take_mutations(context, len(state.cluster.topics[name].partitions), is_strict=is_strict)
    result.topic_id = state.cluster.topics[name].topic_id
    state.delete_topic(name)
    result.name = name


def create_partitions(
    state: BrokerState, request: messages.CreatePartitionsRequest, context: Context
) -> messages.CreatePartitionsResponse:
    counts = Counter(topic.name for topic in request.topics)
    result = messages.CreatePartitionsResponse.CreatePartitionsTopicResult
    return messages.CreatePartitionsResponse(
        results=[
            context.fill(
                result(name=name),
                _create_partitions,
                state,
                wanted,
                counts[name] > 1,
                request.validate_only,
                context,
            )
            for name, wanted in {topic.name: topic for topic in request.topics}.items()
        ]
    )


def _create_partitions(
    state: BrokerState,
    wanted: messages.CreatePartitionsRequest.CreatePartitionsTopic,
    is_duplicate: bool,
    validate_only: bool,
    context: Context,
    result: messages.CreatePartitionsResponse.CreatePartitionsTopicResult,
) -> None:
    if is_duplicate:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    state.authorize(context, Operation.ALTER, ResourceType.TOPIC, wanted.name)
    _check_total(wanted.count)
    given = wanted.assignments
    assignments = None if given is None else [assignment.broker_ids for assignment in given]
    cluster = state.cluster
    topic = cluster.check_more_partitions(wanted.name, wanted.count, assignments)
    is_strict = context.version >= features.CREATE_PARTITIONS_QUOTA
    state.take_mutations(context, wanted.count - len(topic.partitions), is_strict=is_strict)
    if not validate_only:
        cluster.create_partitions(wanted.name, wanted.count, assignments)


@each_partition(
    messages.DeleteRecordsResponse.DeleteRecordsTopicResult,
    partial(messages.DeleteRecordsResponse.DeleteRecordsPartitionResult, low_watermark=-1),
)
def _delete_records(
    state: BrokerState,
    context: Context,
    topic: str,
    wanted: messages.DeleteRecordsRequest.DeleteRecordsPartition,
    result: messages.DeleteRecordsResponse.DeleteRecordsPartitionResult,
) -> None:
    state.authorize(context, Operation.DELETE, ResourceType.TOPIC, topic)
    if topic in INTERNAL_TOPICS:
        raise BrokerError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot delete records of internal topic {topic}"
        )
    partition = state.cluster.led_partition(topic, wanted.partition_index, context.node_id)
    partition.log.delete_records_before(wanted.offset)
    if partition.leadership is not None:
        partition.leadership.log_start_offset = partition.log.log_start_offset
    result.low_watermark = _low_watermark(state, partition)
    state.partition_changed(topic, wanted.partition_index)


def _low_watermark(state: BrokerState, led: Replica) -> int:
    """Return the least start of the logs of all replicas that run (Partition.lowWatermarkIfLeader)."""
    start_offset = led.log.log_start_offset
    if led.leadership is None or not state.cluster.partition(led.topic.name, led.index).is_replicated:
        return start_offset
    alive = {node.node_id for node in state.cluster.brokers_known_by(led.node_id)}
    return min(start_offset, led.leadership.low_watermark(start_offset, alive.__contains__))


def delete_records(
    state: BrokerState, request: messages.DeleteRecordsRequest, context: Context
) -> messages.DeleteRecordsResponse | Delayed:
    """Delete records of the leaders at once; answer when all replicas that run have deleted them as well.

    After Kafka's DelayedDeleteRecords.
    """
    response: messages.DeleteRecordsResponse = _delete_records(state, request, context)
    waiting = [
        _Deletion(state, context, topic.name, each) for topic in response.topics for each in topic.partitions
    ]
    state.replication.run(context.now_ms)

    def attempt(now_ms: int) -> bool:
        waiting[:] = [each for each in waiting if not each.is_done()]
        if not waiting:
            delayed.complete(response)
        return not waiting

    def give_up(now_ms: int) -> None:
        for each in waiting:
            each.result.error_code = ErrorCode.REQUEST_TIMED_OUT
        delayed.complete(response)

    delayed = Delayed()
    if attempt(context.now_ms):
        return response
    keys = [(each.topic, each.result.partition_index) for each in waiting]
    state.purgatory.watch(keys, attempt, context.now_ms + request.timeout_ms, give_up)
    return delayed


class _Deletion:
    """A partition whose records are deleted, until the replicas have done so."""

    __slots__ = ("_context", "_start_offset", "_state", "result", "topic")

    def __init__(
        self,
        state: BrokerState,
        context: Context,
        topic: str,
        result: messages.DeleteRecordsResponse.DeleteRecordsPartitionResult,
    ) -> None:
        self._state = state
        self._context = context
        self.topic = topic
        self.result = result
        if result.error_code == ErrorCode.NONE:
            self._start_offset = state.cluster.partition(topic, result.partition_index).log.log_start_offset

    def is_done(self) -> bool:
        """True if it has failed, or all replicas start where the leader started then."""
        if self.result.error_code == ErrorCode.NONE:
            self._context.fill(self.result, self._look)
        is_good = self.result.error_code == ErrorCode.NONE
        return not is_good or self.result.low_watermark >= self._start_offset

    def _look(self, result: messages.DeleteRecordsResponse.DeleteRecordsPartitionResult) -> None:
        led = self._state.cluster.led_partition(self.topic, result.partition_index, self._context.node_id)
        result.low_watermark = _low_watermark(self._state, led)


# Descriptions


@each_partition(
    messages.DescribeProducersResponse.TopicResponse, messages.DescribeProducersResponse.PartitionResponse
)
def describe_producers(
    state: BrokerState,
    context: Context,
    topic: str,
    index: int,
    answer: messages.DescribeProducersResponse.PartitionResponse,
) -> None:
    state.authorize(context, Operation.READ, ResourceType.TOPIC, topic)
    replica = state.cluster.replica(topic, index, context.node_id, NO_EPOCH)  # followers know them, too
    answer.active_producers = [
        messages.DescribeProducersResponse.ProducerState(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            last_sequence=producer.last_sequence,
            last_timestamp=producer.last_timestamp_ms,
            coordinator_epoch=producer.coordinator_epoch,
            current_txn_start_offset=producer.current_transaction_first_offset,
        )
        for producer in replica.log.describe_producers()
    ]


HANDLERS = {
    messages.CreateTopicsRequest: create_topics,
    messages.DeleteTopicsRequest: delete_topics,
    messages.CreatePartitionsRequest: create_partitions,
    messages.DeleteRecordsRequest: delete_records,
    messages.DescribeProducersRequest: describe_producers,
}
