"""Topics by request: create, extend and delete them; DescribeConfigs and DescribeProducers."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from kbatch.testing.broker.authorizer import CLUSTER_NAME, Operation, ResourceType
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.cluster import MAX_PARTITIONS, check_topic_name
from kbatch.testing.broker.topic_config import TOPIC_CONFIGS, TopicConfig

if TYPE_CHECKING:
    from kbatch.testing.broker.state import BrokerState, Context

TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
DYNAMIC_TOPIC_CONFIG, STATIC_BROKER_CONFIG, DEFAULT_CONFIG = 1, 4, 5
CONFIG_TYPES = {"boolean": 1, "string": 2, "int": 3, "long": 5, "double": 6, "list": 7}
NO_TOPIC_ID = bytes(16)
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
                    result(name=name, configs=[]),
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
    if not state.allows(context, Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME):
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
        for each in _topic_configs(config)
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
    if name in state.cluster.topics:
        state.authorize(context, Operation.DELETE, ResourceType.TOPIC, name)
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
    act = cluster.check_more_partitions if validate_only else cluster.create_partitions
    act(wanted.name, wanted.count, assignments)


def delete_records(
    state: BrokerState, request: messages.DeleteRecordsRequest, context: Context
) -> messages.DeleteRecordsResponse:
    result = messages.DeleteRecordsResponse.DeleteRecordsPartitionResult
    return messages.DeleteRecordsResponse(
        topics=[
            messages.DeleteRecordsResponse.DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    context.fill(
                        result(partition_index=wanted.partition_index, low_watermark=-1),
                        _delete_records,
                        state,
                        topic.name,
                        wanted.offset,
                        context,
                    )
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _delete_records(
    state: BrokerState,
    topic: str,
    offset: int,
    context: Context,
    result: messages.DeleteRecordsResponse.DeleteRecordsPartitionResult,
) -> None:
    state.authorize(context, Operation.DELETE, ResourceType.TOPIC, topic)
    partition = state.cluster.led_partition(topic, result.partition_index, context.node_id)
    result.low_watermark = partition.log.delete_records_before(offset)


# Descriptions


def describe_configs(
    state: BrokerState, request: messages.DescribeConfigsRequest, context: Context
) -> messages.DescribeConfigsResponse:
    result = messages.DescribeConfigsResponse.DescribeConfigsResult
    return messages.DescribeConfigsResponse(
        results=[
            context.fill(
                result(resource_type=resource.resource_type, resource_name=resource.resource_name),
                _describe_configs,
                state,
                resource,
                context,
            )
            for resource in request.resources
        ]
    )


def _describe_configs(
    state: BrokerState,
    resource: messages.DescribeConfigsRequest.DescribeConfigsResource,
    context: Context,
    result: messages.DescribeConfigsResponse.DescribeConfigsResult,
) -> None:
    if resource.resource_type == TOPIC_RESOURCE:
        state.authorize(context, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, resource.resource_name)
    else:
        state.authorize(context, Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME)
    keys = resource.configuration_keys
    configs = _configs_of(state, resource, context.node_id)
    result.configs = [config for config in configs if not keys or config.name in keys]


def _configs_of(
    state: BrokerState, resource: messages.DescribeConfigsRequest.DescribeConfigsResource, node_id: int
) -> list[messages.DescribeConfigsResponse.DescribeConfigsResourceResult]:
    if resource.resource_type == TOPIC_RESOURCE:
        check_topic_name(resource.resource_name)
        topic = state.cluster.topics.get(resource.resource_name)
        if topic is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return _topic_configs(topic.config)
    if resource.resource_type == BROKER_RESOURCE and not resource.resource_name:
        return []  # configs that were set for all brokers at run time: none here
    if resource.resource_type == BROKER_RESOURCE:
        if resource.resource_name != str(node_id):
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {node_id} or empty string, but received "
                f"{resource.resource_name}",
            )
        return [
            _config(
                name,
                str(value).lower(),
                STATIC_BROKER_CONFIG,
                "boolean" if isinstance(value, bool) else "int",
                read_only=True,
            )
            for name, value in state.options.broker_configs().items()
        ]
    raise BrokerError(
        ErrorCode.INVALID_REQUEST, f"Resource type {resource.resource_type} is not described here."
    )


def _topic_configs(
    config: TopicConfig,
) -> list[messages.DescribeConfigsResponse.DescribeConfigsResourceResult]:
    return [
        _config(
            name,
            value,
            DYNAMIC_TOPIC_CONFIG if name in config.overrides else DEFAULT_CONFIG,
            TOPIC_CONFIGS[name].kind,
        )
        for name, value in config.items()
    ]


def _config(
    name: str, value: str, source: int, kind: str, *, read_only: bool = False
) -> messages.DescribeConfigsResponse.DescribeConfigsResourceResult:
    return messages.DescribeConfigsResponse.DescribeConfigsResourceResult(
        name=name,
        value=value,
        config_source=source,
        config_type=CONFIG_TYPES[kind],
        read_only=read_only,
        documentation=None,
    )


def describe_producers(
    state: BrokerState, request: messages.DescribeProducersRequest, context: Context
) -> messages.DescribeProducersResponse:
    answer = messages.DescribeProducersResponse.PartitionResponse
    return messages.DescribeProducersResponse(
        topics=[
            messages.DescribeProducersResponse.TopicResponse(
                name=topic.name,
                partitions=[
                    context.fill(
                        answer(partition_index=index), _describe_producers, state, topic.name, context
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _describe_producers(
    state: BrokerState,
    topic: str,
    context: Context,
    answer: messages.DescribeProducersResponse.PartitionResponse,
) -> None:
    state.authorize(context, Operation.READ, ResourceType.TOPIC, topic)
    partition = state.cluster.led_partition(topic, answer.partition_index, context.node_id)
    answer.active_producers = [
        messages.DescribeProducersResponse.ProducerState(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            last_sequence=producer.last_sequence,
            last_timestamp=producer.last_timestamp_ms,
            coordinator_epoch=producer.coordinator_epoch,
            current_txn_start_offset=producer.current_transaction_first_offset,
        )
        for producer in partition.log.describe_producers()
    ]


HANDLERS = {
    messages.CreateTopicsRequest: create_topics,
    messages.DeleteTopicsRequest: delete_topics,
    messages.CreatePartitionsRequest: create_partitions,
    messages.DeleteRecordsRequest: delete_records,
    messages.DescribeConfigsRequest: describe_configs,
    messages.DescribeProducersRequest: describe_producers,
}
