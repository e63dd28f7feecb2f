"""ApiVersions, Metadata, FindCoordinator, DescribeCluster: the cluster's APIs, topics and nodes."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from kbatch.errors import ErrorCode
from kbatch.protocol import features, messages
from kbatch.protocol.structs import Message
from kbatch.records import NO_TOPIC_ID
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.cluster import INTERNAL_TOPICS, MAX_PARTITIONS, check_topic_name
from kbatch.testing.broker.controller.partition_change import NO_LEADER
from kbatch.testing.broker.options import FEATURES
from kbatch.testing.broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from kbatch.testing.broker.broker_state import BrokerState, Context
    from kbatch.testing.broker.cluster import ClusterPartition, Topic
    from kbatch.testing.broker.controller.brokers import Node

GROUP, TRANSACTION, SHARE = 0, 1, 2
MAX_PAGE_PARTITIONS = 2_000  # max.request.partition.size.limit
BROKERS, CONTROLLERS = 1, 2
NO_OPERATIONS = -(1 << 31)  # they were not asked for
CLIENT_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
# The group's id, the topic's in URL-safe base64, and the partition.
SHARE_KEY = re.compile(r"(?s:.+):[\w-]{22}:\d+", re.ASCII)
# librdkafka treats a broker without Produce 0 as too new (KAFKA-18659).
ADVERTISED_PRODUCE_FROM = 0


def api_versions(
    state: BrokerState, request: messages.ApiVersionsRequest, context: Context
) -> messages.ApiVersionsResponse:
    context.check_forced_error()
    names = request.client_software_name, request.client_software_version
    has_names = all(CLIENT_SOFTWARE.fullmatch(name) for name in names)
    if context.version >= features.API_VERSIONS_CLIENT_SOFTWARE and not has_names:
        return messages.ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    if has_names:
        context.connection.software = names
    context.connection.session.versions_are_known()
    hidden = state.cluster.node(context.connection.node_id).hidden
    return messages.ApiVersionsResponse(
        # classes can be hashed, their objects not
        api_keys=[_api_version(kind) for kind in state.answered_requests if kind not in hidden],  # type: ignore[arg-type]
        supported_features=[
            messages.ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=0, max_version=highest)
            for name, highest in FEATURES.items()
        ],
        finalized_features_epoch=state.features_epoch,
        finalized_features=[
            messages.ApiVersionsResponse.FinalizedFeatureKey(
                name=name, max_version_level=level, min_version_level=level
            )
            for name in FEATURES
            if (level := state.options.feature_level(name))
        ],
    )


def unsupported_api_versions() -> messages.ApiVersionsResponse:
    return messages.ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[_api_version(messages.ApiVersionsRequest)],
    )


@cache
def _api_version(kind: type[Message]) -> messages.ApiVersionsResponse.ApiVersion:
    lowest = ADVERTISED_PRODUCE_FROM if kind is messages.ProduceRequest else kind.versions.start
    return messages.ApiVersionsResponse.ApiVersion(
        api_key=kind.api_key, min_version=lowest, max_version=kind.versions.stop - 1
    )


# Metadata


def metadata(
    state: BrokerState, request: messages.MetadataRequest, context: Context
) -> messages.MetadataResponse:
    is_cut_off = context.forced_error == ErrorCode.REBOOTSTRAP_REQUIRED
    if is_cut_off and context.version >= features.METADATA_REBOOTSTRAP:
        context.check_forced_error()  # the one error that is not a topic's (KIP-1102)
    try:
        if context.fails_login:
            context.check_forced_error()
        wanted = _wanted_topics(state, request, context)
    except BrokerError as error:  # MetadataRequest.getErrorResponse: neither brokers nor topics
        answer = messages.MetadataResponse.MetadataResponseTopic
        return messages.MetadataResponse(
            error_code=error.code,
            topics=[
                answer(error_code=error.code, name=named.name or "", topic_id=named.topic_id)
                for named in request.topics or ()
            ],
        )
    cluster = state.cluster
    brokers = [
        messages.MetadataResponse.MetadataResponseBroker(node_id=node.node_id, **context.address_of(node))
        for node in cluster.brokers_known_by(context.node_id)
    ]
    response = messages.MetadataResponse(
        brokers=brokers,
        cluster_id=cluster.cluster_id,
        controller_id=cluster.any_broker(context.node_id),
    )
    may_create = request.allow_auto_topic_creation and _may_create(state, wanted)
    with cluster.saved_once():
        response.topics = [_named_topic(state, named, request, context, may_create) for named in wanted]
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = _cluster_operations(state, context)
    return response


def _cluster_operations(state: BrokerState, context: Context) -> int:
    if not state.allows_cluster(context, Operation.DESCRIBE):
        return 0
    return state.authorized_operations(context, ResourceType.CLUSTER, CLUSTER_NAME)


def _wanted_topics(
    state: BrokerState, request: messages.MetadataRequest, context: Context
) -> list[messages.MetadataRequest.MetadataRequestTopic]:
    """Return each topic once; if one has an id, return only those with an id, by their ids."""
    kind = messages.MetadataRequest.MetadataRequestTopic
    version = context.version
    if request.topics is None or (version == 0 and not request.topics):
        return [
            kind(name=name)
            for name, topic in state.cluster.topics.items()
            if topic.known_partitions(context.node_id)
            and state.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, name)
        ]
    topic_ids = dict.fromkeys(bytes(topic.topic_id) for topic in request.topics)
    topic_ids.pop(NO_TOPIC_ID, None)
    names = dict.fromkeys(topic.name for topic in request.topics)
    if version < features.METADATA_TOPIC_IDS and (topic_ids or None in names):
        raise BrokerError(ErrorCode.INVALID_REQUEST)
    if topic_ids:
        return [kind(name=None, topic_id=topic_id) for topic_id in topic_ids]
    if None in names:
        raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR)
    return [kind(name=name) for name in names]


def _may_create(state: BrokerState, wanted: list[messages.MetadataRequest.MetadataRequestTopic]) -> bool:
    """True if the request may create the topics that are missing: as many as CreateTopics may. Kafka creates
    them by one such request, and none of them if it is refused.
    """
    missing = sum(named.name is not None and named.name not in state.cluster.topics for named in wanted)
    return missing * state.options.default_partitions <= MAX_PARTITIONS


def _named_topic(
    state: BrokerState,
    named: messages.MetadataRequest.MetadataRequestTopic,
    request: messages.MetadataRequest,
    context: Context,
    may_create: bool,
) -> messages.MetadataResponse.MetadataResponseTopic:
    try:
        context.check_forced_error()
        if named.name is None:
            topic = state.cluster.topic_by_id(bytes(named.topic_id))
            state.authorize(context, Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        else:
            topic = _topic_or_new(state, named.name, may_create, context)
        if not topic.known_partitions(context.node_id):
            raise BrokerError(
                ErrorCode.UNKNOWN_TOPIC_ID if named.name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        return _described(state, topic, request, context)
    except BrokerError as error:
        return messages.MetadataResponse.MetadataResponseTopic(
            error_code=error.code, name=named.name, topic_id=named.topic_id
        )


def _topic_or_new(state: BrokerState, name: str, may_create: bool, context: Context) -> Topic:
    state.authorize(context, Operation.DESCRIBE, ResourceType.TOPIC, name)
    topic = state.cluster.topics.get(name)
    if topic is not None:
        return topic
    if state.options.auto_create_topics and may_create:
        if not state.allows_cluster(context, Operation.CREATE):
            state.authorize(context, Operation.CREATE, ResourceType.TOPIC, name)
        if name in INTERNAL_TOPICS:
            return state.coordinators.internal_topic(name)
        return state.cluster.create_topic(name, state.options.default_partitions)
    state.cluster.check_new_topic(name, 1)  # an invalid name gets its own error
    raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _described(
    state: BrokerState, topic: Topic, request: messages.MetadataRequest, context: Context
) -> messages.MetadataResponse.MetadataResponseTopic:
    described = messages.MetadataResponse.MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            _described_partition(state, each, context.node_id)
            for each in topic.known_partitions(context.node_id)
        ],
    )
    if request.include_topic_authorized_operations:
        described.topic_authorized_operations = state.authorized_operations(
            context, ResourceType.TOPIC, topic.name
        )
    return described


def _described_partition(
    state: BrokerState, partition: ClusterPartition, node_id: int
) -> messages.MetadataResponse.MetadataResponsePartition:
    """Describe a partition as the node knows it."""
    known = partition.known_by(node_id)
    online = {node.node_id for node in state.cluster.brokers_known_by(node_id)}
    return messages.MetadataResponse.MetadataResponsePartition(
        error_code=ErrorCode.NONE if known.leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=partition.index,
        leader_id=known.leader,
        leader_epoch=known.leader_epoch,
        replica_nodes=list(known.replicas),
        isr_nodes=list(known.isr),
        offline_replicas=[
            each for each in known.replicas if each not in online or not partition.is_online(each)
        ],
    )


# DescribeTopicPartitions: topics in the order of their names, a page at a time (KIP-966)


def describe_topic_partitions(
    state: BrokerState, request: messages.DescribeTopicPartitionsRequest, context: Context
) -> messages.DescribeTopicPartitionsResponse:
    answer = messages.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
    try:
        context.check_forced_error()
        first = _checked_cursor(request)
    except BrokerError as error:  # the request has no error of its own
        return messages.DescribeTopicPartitionsResponse(
            topics=[answer(name=topic.name, error_code=error.code) for topic in request.topics]
        )
    names = sorted({topic.name for topic in request.topics} or state.cluster.topics)
    seen: list[str] = []
    hidden: list[str] = []
    for name in names:
        if name >= first[0]:
            is_seen = state.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, name)
            (seen if is_seen else hidden).append(name)
    response = _described_page(state, seen, first, request.response_partition_limit, context.node_id)
    for topic in response.topics:
        assert topic.name is not None
        topic.topic_authorized_operations = state.authorized_operations(
            context, ResourceType.TOPIC, topic.name
        )
    if request.topics:
        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        response.topics += [answer(name=name, error_code=refused) for name in hidden]
    return response


def _checked_cursor(request: messages.DescribeTopicPartitionsRequest) -> tuple[str, int]:
    """Return the topic and partition to begin with."""
    cursor = request.cursor
    if cursor is None:
        return "", 0
    if request.topics and cursor.topic_name not in {topic.name for topic in request.topics}:
        raise BrokerError(ErrorCode.INVALID_REQUEST)
    if cursor.partition_index < 0:
        raise BrokerError(ErrorCode.INVALID_REQUEST)
    return cursor.topic_name, cursor.partition_index


def _described_page(
    state: BrokerState, names: list[str], first: tuple[str, int], limit: int, node_id: int
) -> messages.DescribeTopicPartitionsResponse:
    """Return the partitions of the topics, up to a limit, and where the next page begins."""
    answer = messages.DescribeTopicPartitionsResponse
    response = answer()
    room = max(min(limit, MAX_PAGE_PARTITIONS), 1)
    for name in names:
        start = first[1] if name == first[0] else 0
        if not room:
            response.next_cursor = answer.Cursor(topic_name=name, partition_index=0)
            break
        described = answer.DescribeTopicPartitionsResponseTopic(name=name)
        response.topics.append(described)
        topic = state.cluster.topics.get(name)
        known = [] if topic is None else topic.known_partitions(node_id)
        if topic is None or not known:
            described.error_code, described.is_internal = _missing_code(name), name in INTERNAL_TOPICS
            continue
        described.topic_id, described.is_internal = topic.topic_id, topic.is_internal
        described.partitions = [
            _paged_partition(state, each, node_id) for each in known[start : start + room]
        ]
        room -= len(described.partitions)
        if start + len(described.partitions) < len(known):
            index = start + len(described.partitions)
            response.next_cursor = answer.Cursor(topic_name=name, partition_index=index)
            break
    return response


def _missing_code(name: str) -> ErrorCode:
    try:
        check_topic_name(name)
    except BrokerError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _paged_partition(
    state: BrokerState, partition: ClusterPartition, node_id: int
) -> messages.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition:
    described = _described_partition(state, partition, node_id)
    known = partition.known_by(node_id)
    return messages.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition(
        error_code=described.error_code,
        partition_index=described.partition_index,
        leader_id=described.leader_id,
        leader_epoch=described.leader_epoch,
        replica_nodes=described.replica_nodes,
        isr_nodes=described.isr_nodes,
        eligible_leader_replicas=list(known.elr),
        last_known_elr=[known.last_known_leader] if known.last_known_leader >= 0 else [],
        offline_replicas=described.offline_replicas,
    )


def describe_cluster(
    state: BrokerState, request: messages.DescribeClusterRequest, context: Context
) -> messages.DescribeClusterResponse:
    context.check_forced_error()
    if request.endpoint_type == CONTROLLERS:
        raise BrokerError(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "This endpoint is for brokers.")
    if request.endpoint_type != BROKERS:
        raise BrokerError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, "This endpoint is for brokers.")
    operations = NO_OPERATIONS
    if request.include_cluster_authorized_operations:
        operations = _cluster_operations(state, context)
    return messages.DescribeClusterResponse(
        cluster_authorized_operations=operations,
        cluster_id=state.cluster.cluster_id,
        controller_id=state.cluster.any_broker(context.node_id),
        brokers=[
            messages.DescribeClusterResponse.DescribeClusterBroker(
                broker_id=node.node_id, **context.address_of(node)
            )
            for node in state.cluster.brokers_known_by(context.node_id)
        ],
    )


# Coordinators


def find_coordinator(
    state: BrokerState, request: messages.FindCoordinatorRequest, context: Context
) -> messages.FindCoordinatorResponse:
    if context.version >= features.FIND_COORDINATOR_BATCHES:
        return messages.FindCoordinatorResponse(
            coordinators=[
                _coordinator(state, request.key_type, key, context) for key in request.coordinator_keys
            ]
        )
    found = _coordinator(state, request.key_type, request.key, context)
    return messages.FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _coordinator(
    state: BrokerState, key_type: int, key: str, context: Context
) -> messages.FindCoordinatorResponse.Coordinator:
    coordinator = messages.FindCoordinatorResponse.Coordinator(key=key, node_id=-1, host="", port=-1)
    return context.fill(coordinator, _locate, state, key_type, context)


def _locate(
    state: BrokerState,
    key_type: int,
    context: Context,
    coordinator: messages.FindCoordinatorResponse.Coordinator,
) -> None:
    node = _coordinator_node(state, key_type, coordinator.key, context)
    coordinator.node_id, coordinator.host, coordinator.port = node.node_id, node.host, context.port_of(node)
    coordinator.error_message = ""


def _coordinator_node(state: BrokerState, key_type: int, key: str, context: Context) -> Node:
    if key_type == GROUP:
        state.authorize(context, Operation.DESCRIBE, ResourceType.GROUP, key)
    elif key_type == TRANSACTION:
        state.authorize(context, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key)
    elif key_type == SHARE and SHARE_KEY.fullmatch(key):
        state.authorize_cluster(context, Operation.CLUSTER_ACTION)
    else:
        raise BrokerError(ErrorCode.INVALID_REQUEST)
    partition_of = {
        GROUP: state.coordinators.partition_of_group,
        TRANSACTION: state.coordinators.partition_of_transaction,
        SHARE: state.coordinators.partition_of_share,
    }
    leader = partition_of[key_type](key).known_by(context.node_id).leader
    if leader == NO_LEADER:
        raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return state.cluster.nodes[leader]


HANDLERS = {
    messages.ApiVersionsRequest: api_versions,
    messages.MetadataRequest: metadata,
    messages.DescribeTopicPartitionsRequest: describe_topic_partitions,
    messages.DescribeClusterRequest: describe_cluster,
    messages.FindCoordinatorRequest: find_coordinator,
}
