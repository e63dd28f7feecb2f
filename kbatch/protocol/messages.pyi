"""Made from the tables by `python -m kbatch.protocol.stubs`."""

from typing import ClassVar

from kbatch.protocol.structs import Message, Struct
from kbatch.protocol.wire import Records

MESSAGES: dict[str, type[Message]]
REQUESTS: dict[int, type[Message]]

class ProduceRequest(Message):
    response: ClassVar[type[ProduceResponse]]
    class TopicProduceData(Struct):
        name: str = ''
        topic_id: bytes = ...
        partition_data: list[ProduceRequest.PartitionProduceData] = ...

    class PartitionProduceData(Struct):
        index: int = 0
        records: Records | None = None

    transactional_id: str | None = None
    acks: int = 0
    timeout_ms: int = 0
    topic_data: list[ProduceRequest.TopicProduceData] = ...

class ProduceResponse(Message):
    class TopicProduceResponse(Struct):
        name: str = ''
        topic_id: bytes = ...
        partition_responses: list[ProduceResponse.PartitionProduceResponse] = ...

    class PartitionProduceResponse(Struct):
        index: int = 0
        error_code: int = 0
        base_offset: int = 0
        log_append_time_ms: int = -1
        log_start_offset: int = -1
        record_errors: list[ProduceResponse.BatchIndexAndErrorMessage] = ...
        error_message: str | None = None
        current_leader: ProduceResponse.LeaderIdAndEpoch = ...

    class BatchIndexAndErrorMessage(Struct):
        batch_index: int = 0
        batch_index_error_message: str | None = None

    class LeaderIdAndEpoch(Struct):
        leader_id: int = -1
        leader_epoch: int = -1

    class NodeEndpoint(Struct):
        node_id: int = 0
        host: str = ''
        port: int = 0
        rack: str | None = None

    responses: list[ProduceResponse.TopicProduceResponse] = ...
    throttle_time_ms: int = 0
    node_endpoints: list[ProduceResponse.NodeEndpoint] = ...

class FetchRequest(Message):
    response: ClassVar[type[FetchResponse]]
    class ReplicaState(Struct):
        replica_id: int = -1
        replica_epoch: int = -1

    class FetchTopic(Struct):
        topic: str = ''
        topic_id: bytes = ...
        partitions: list[FetchRequest.FetchPartition] = ...

    class FetchPartition(Struct):
        partition: int = 0
        current_leader_epoch: int = -1
        fetch_offset: int = 0
        last_fetched_epoch: int = -1
        log_start_offset: int = -1
        partition_max_bytes: int = 0
        replica_directory_id: bytes = ...
        high_watermark: int = 9223372036854775807

    class ForgottenTopic(Struct):
        topic: str = ''
        topic_id: bytes = ...
        partitions: list[int] = ...

    cluster_id: str | None = None
    replica_id: int = -1
    replica_state: FetchRequest.ReplicaState = ...
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 2147483647
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = -1
    topics: list[FetchRequest.FetchTopic] = ...
    forgotten_topics_data: list[FetchRequest.ForgottenTopic] = ...
    rack_id: str = ''

class FetchResponse(Message):
    class FetchableTopicResponse(Struct):
        topic: str = ''
        topic_id: bytes = ...
        partitions: list[FetchResponse.PartitionData] = ...

    class PartitionData(Struct):
        partition_index: int = 0
        error_code: int = 0
        high_watermark: int = 0
        last_stable_offset: int = -1
        log_start_offset: int = -1
        diverging_epoch: FetchResponse.EpochEndOffset = ...
        current_leader: FetchResponse.LeaderIdAndEpoch = ...
        snapshot_id: FetchResponse.SnapshotId = ...
        aborted_transactions: list[FetchResponse.AbortedTransaction] | None = ...
        preferred_read_replica: int = -1
        records: Records | None = None

    class EpochEndOffset(Struct):
        epoch: int = -1
        end_offset: int = -1

    class LeaderIdAndEpoch(Struct):
        leader_id: int = -1
        leader_epoch: int = -1

    class SnapshotId(Struct):
        end_offset: int = -1
        epoch: int = -1

    class AbortedTransaction(Struct):
        producer_id: int = 0
        first_offset: int = 0

    class NodeEndpoint(Struct):
        node_id: int = 0
        host: str = ''
        port: int = 0
        rack: str | None = None

    throttle_time_ms: int = 0
    error_code: int = 0
    session_id: int = 0
    responses: list[FetchResponse.FetchableTopicResponse] = ...
    node_endpoints: list[FetchResponse.NodeEndpoint] = ...

class ListOffsetsRequest(Message):
    response: ClassVar[type[ListOffsetsResponse]]
    class ListOffsetsTopic(Struct):
        name: str = ''
        partitions: list[ListOffsetsRequest.ListOffsetsPartition] = ...

    class ListOffsetsPartition(Struct):
        partition_index: int = 0
        current_leader_epoch: int = -1
        timestamp: int = 0

    replica_id: int = 0
    isolation_level: int = 0
    topics: list[ListOffsetsRequest.ListOffsetsTopic] = ...
    timeout_ms: int = 0

class ListOffsetsResponse(Message):
    class ListOffsetsTopicResponse(Struct):
        name: str = ''
        partitions: list[ListOffsetsResponse.ListOffsetsPartitionResponse] = ...

    class ListOffsetsPartitionResponse(Struct):
        partition_index: int = 0
        error_code: int = 0
        timestamp: int = -1
        offset: int = -1
        leader_epoch: int = -1

    throttle_time_ms: int = 0
    topics: list[ListOffsetsResponse.ListOffsetsTopicResponse] = ...

class OffsetForLeaderEpochRequest(Message):
    response: ClassVar[type[OffsetForLeaderEpochResponse]]
    class OffsetForLeaderTopic(Struct):
        topic: str = ''
        partitions: list[OffsetForLeaderEpochRequest.OffsetForLeaderPartition] = ...

    class OffsetForLeaderPartition(Struct):
        partition: int = 0
        current_leader_epoch: int = -1
        leader_epoch: int = 0

    replica_id: int = -2
    topics: list[OffsetForLeaderEpochRequest.OffsetForLeaderTopic] = ...

class OffsetForLeaderEpochResponse(Message):
    class OffsetForLeaderTopicResult(Struct):
        topic: str = ''
        partitions: list[OffsetForLeaderEpochResponse.EpochEndOffset] = ...

    class EpochEndOffset(Struct):
        error_code: int = 0
        partition: int = 0
        leader_epoch: int = -1
        end_offset: int = -1

    throttle_time_ms: int = 0
    topics: list[OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult] = ...

class DeleteRecordsRequest(Message):
    response: ClassVar[type[DeleteRecordsResponse]]
    class DeleteRecordsTopic(Struct):
        name: str = ''
        partitions: list[DeleteRecordsRequest.DeleteRecordsPartition] = ...

    class DeleteRecordsPartition(Struct):
        partition_index: int = 0
        offset: int = 0

    topics: list[DeleteRecordsRequest.DeleteRecordsTopic] = ...
    timeout_ms: int = 0

class DeleteRecordsResponse(Message):
    class DeleteRecordsTopicResult(Struct):
        name: str = ''
        partitions: list[DeleteRecordsResponse.DeleteRecordsPartitionResult] = ...

    class DeleteRecordsPartitionResult(Struct):
        partition_index: int = 0
        low_watermark: int = 0
        error_code: int = 0

    throttle_time_ms: int = 0
    topics: list[DeleteRecordsResponse.DeleteRecordsTopicResult] = ...

class ApiVersionsRequest(Message):
    response: ClassVar[type[ApiVersionsResponse]]
    client_software_name: str = ''
    client_software_version: str = ''

class ApiVersionsResponse(Message):
    class ApiVersion(Struct):
        api_key: int = 0
        min_version: int = 0
        max_version: int = 0

    class SupportedFeatureKey(Struct):
        name: str = ''
        min_version: int = 0
        max_version: int = 0

    class FinalizedFeatureKey(Struct):
        name: str = ''
        max_version_level: int = 0
        min_version_level: int = 0

    error_code: int = 0
    api_keys: list[ApiVersionsResponse.ApiVersion] = ...
    throttle_time_ms: int = 0
    supported_features: list[ApiVersionsResponse.SupportedFeatureKey] = ...
    finalized_features_epoch: int = -1
    finalized_features: list[ApiVersionsResponse.FinalizedFeatureKey] = ...
    zk_migration_ready: bool = False

class MetadataRequest(Message):
    response: ClassVar[type[MetadataResponse]]
    class MetadataRequestTopic(Struct):
        topic_id: bytes = ...
        name: str | None = ''

    topics: list[MetadataRequest.MetadataRequestTopic] | None = ...
    allow_auto_topic_creation: bool = True
    include_cluster_authorized_operations: bool = False
    include_topic_authorized_operations: bool = False

class MetadataResponse(Message):
    class MetadataResponseBroker(Struct):
        node_id: int = 0
        host: str = ''
        port: int = 0
        rack: str | None = None

    class MetadataResponseTopic(Struct):
        error_code: int = 0
        name: str | None = ''
        topic_id: bytes = ...
        is_internal: bool = False
        partitions: list[MetadataResponse.MetadataResponsePartition] = ...
        topic_authorized_operations: int = -2147483648

    class MetadataResponsePartition(Struct):
        error_code: int = 0
        partition_index: int = 0
        leader_id: int = 0
        leader_epoch: int = -1
        replica_nodes: list[int] = ...
        isr_nodes: list[int] = ...
        offline_replicas: list[int] = ...

    throttle_time_ms: int = 0
    brokers: list[MetadataResponse.MetadataResponseBroker] = ...
    cluster_id: str | None = None
    controller_id: int = -1
    topics: list[MetadataResponse.MetadataResponseTopic] = ...
    cluster_authorized_operations: int = -2147483648
    error_code: int = 0

class DescribeClusterRequest(Message):
    response: ClassVar[type[DescribeClusterResponse]]
    include_cluster_authorized_operations: bool = False
    endpoint_type: int = 1
    include_fenced_brokers: bool = False

class DescribeClusterResponse(Message):
    class DescribeClusterBroker(Struct):
        broker_id: int = 0
        host: str = ''
        port: int = 0
        rack: str | None = None
        is_fenced: bool = False

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    endpoint_type: int = 1
    cluster_id: str = ''
    controller_id: int = -1
    brokers: list[DescribeClusterResponse.DescribeClusterBroker] = ...
    cluster_authorized_operations: int = -2147483648

class DescribeTopicPartitionsRequest(Message):
    response: ClassVar[type[DescribeTopicPartitionsResponse]]
    class TopicRequest(Struct):
        name: str = ''

    class Cursor(Struct):
        topic_name: str = ''
        partition_index: int = 0

    topics: list[DescribeTopicPartitionsRequest.TopicRequest] = ...
    response_partition_limit: int = 2000
    cursor: DescribeTopicPartitionsRequest.Cursor | None = None

class DescribeTopicPartitionsResponse(Message):
    class DescribeTopicPartitionsResponseTopic(Struct):
        error_code: int = 0
        name: str | None = ''
        topic_id: bytes = ...
        is_internal: bool = False
        partitions: list[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition] = ...
        topic_authorized_operations: int = -2147483648

    class DescribeTopicPartitionsResponsePartition(Struct):
        error_code: int = 0
        partition_index: int = 0
        leader_id: int = 0
        leader_epoch: int = -1
        replica_nodes: list[int] = ...
        isr_nodes: list[int] = ...
        eligible_leader_replicas: list[int] | None = None
        last_known_elr: list[int] | None = None
        offline_replicas: list[int] = ...

    class Cursor(Struct):
        topic_name: str = ''
        partition_index: int = 0

    throttle_time_ms: int = 0
    topics: list[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic] = ...
    next_cursor: DescribeTopicPartitionsResponse.Cursor | None = None

class InitProducerIdRequest(Message):
    response: ClassVar[type[InitProducerIdResponse]]
    transactional_id: str | None = ''
    transaction_timeout_ms: int = 0
    producer_id: int = -1
    producer_epoch: int = -1

class InitProducerIdResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    producer_id: int = -1
    producer_epoch: int = 0

class AddPartitionsToTxnRequest(Message):
    response: ClassVar[type[AddPartitionsToTxnResponse]]
    class AddPartitionsToTxnTransaction(Struct):
        transactional_id: str = ''
        producer_id: int = 0
        producer_epoch: int = 0
        verify_only: bool = False
        topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = ...

    class AddPartitionsToTxnTopic(Struct):
        name: str = ''
        partitions: list[int] = ...

    transactions: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction] = ...
    v3_and_below_transactional_id: str = ''
    v3_and_below_producer_id: int = 0
    v3_and_below_producer_epoch: int = 0
    v3_and_below_topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = ...

class AddPartitionsToTxnResponse(Message):
    class AddPartitionsToTxnResult(Struct):
        transactional_id: str = ''
        topic_results: list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult] = ...

    class AddPartitionsToTxnTopicResult(Struct):
        name: str = ''
        results_by_partition: list[AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult] = ...

    class AddPartitionsToTxnPartitionResult(Struct):
        partition_index: int = 0
        partition_error_code: int = 0

    throttle_time_ms: int = 0
    error_code: int = 0
    results_by_transaction: list[AddPartitionsToTxnResponse.AddPartitionsToTxnResult] = ...
    results_by_topic_v3_and_below: list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult] = ...

class AddOffsetsToTxnRequest(Message):
    response: ClassVar[type[AddOffsetsToTxnResponse]]
    transactional_id: str = ''
    producer_id: int = 0
    producer_epoch: int = 0
    group_id: str = ''

class AddOffsetsToTxnResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0

class EndTxnRequest(Message):
    response: ClassVar[type[EndTxnResponse]]
    transactional_id: str = ''
    producer_id: int = 0
    producer_epoch: int = 0
    committed: bool = False

class EndTxnResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    producer_id: int = -1
    producer_epoch: int = -1

class WriteTxnMarkersRequest(Message):
    response: ClassVar[type[WriteTxnMarkersResponse]]
    class WritableTxnMarker(Struct):
        producer_id: int = 0
        producer_epoch: int = 0
        transaction_result: bool = False
        topics: list[WriteTxnMarkersRequest.WritableTxnMarkerTopic] = ...
        coordinator_epoch: int = 0
        transaction_version: int = 0

    class WritableTxnMarkerTopic(Struct):
        name: str = ''
        partition_indexes: list[int] = ...

    markers: list[WriteTxnMarkersRequest.WritableTxnMarker] = ...

class WriteTxnMarkersResponse(Message):
    class WritableTxnMarkerResult(Struct):
        producer_id: int = 0
        topics: list[WriteTxnMarkersResponse.WritableTxnMarkerTopicResult] = ...

    class WritableTxnMarkerTopicResult(Struct):
        name: str = ''
        partitions: list[WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult] = ...

    class WritableTxnMarkerPartitionResult(Struct):
        partition_index: int = 0
        error_code: int = 0

    markers: list[WriteTxnMarkersResponse.WritableTxnMarkerResult] = ...

class TxnOffsetCommitRequest(Message):
    response: ClassVar[type[TxnOffsetCommitResponse]]
    class TxnOffsetCommitRequestTopic(Struct):
        name: str = ''
        partitions: list[TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition] = ...

    class TxnOffsetCommitRequestPartition(Struct):
        partition_index: int = 0
        committed_offset: int = 0
        committed_leader_epoch: int = -1
        committed_metadata: str | None = ''

    transactional_id: str = ''
    group_id: str = ''
    producer_id: int = 0
    producer_epoch: int = 0
    generation_id: int = -1
    member_id: str = ''
    group_instance_id: str | None = None
    topics: list[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic] = ...

class TxnOffsetCommitResponse(Message):
    class TxnOffsetCommitResponseTopic(Struct):
        name: str = ''
        partitions: list[TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition] = ...

    class TxnOffsetCommitResponsePartition(Struct):
        partition_index: int = 0
        error_code: int = 0

    throttle_time_ms: int = 0
    topics: list[TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic] = ...

class DescribeProducersRequest(Message):
    response: ClassVar[type[DescribeProducersResponse]]
    class TopicRequest(Struct):
        name: str = ''
        partition_indexes: list[int] = ...

    topics: list[DescribeProducersRequest.TopicRequest] = ...

class DescribeProducersResponse(Message):
    class TopicResponse(Struct):
        name: str = ''
        partitions: list[DescribeProducersResponse.PartitionResponse] = ...

    class PartitionResponse(Struct):
        partition_index: int = 0
        error_code: int = 0
        error_message: str | None = None
        active_producers: list[DescribeProducersResponse.ProducerState] = ...

    class ProducerState(Struct):
        producer_id: int = 0
        producer_epoch: int = 0
        last_sequence: int = -1
        last_timestamp: int = -1
        coordinator_epoch: int = 0
        current_txn_start_offset: int = -1

    throttle_time_ms: int = 0
    topics: list[DescribeProducersResponse.TopicResponse] = ...

class DescribeTransactionsRequest(Message):
    response: ClassVar[type[DescribeTransactionsResponse]]
    transactional_ids: list[str] = ...

class DescribeTransactionsResponse(Message):
    class TransactionState(Struct):
        error_code: int = 0
        transactional_id: str = ''
        transaction_state: str = ''
        transaction_timeout_ms: int = 0
        transaction_start_time_ms: int = 0
        producer_id: int = 0
        producer_epoch: int = 0
        topics: list[DescribeTransactionsResponse.TopicData] = ...

    class TopicData(Struct):
        topic: str = ''
        partitions: list[int] = ...

    throttle_time_ms: int = 0
    transaction_states: list[DescribeTransactionsResponse.TransactionState] = ...

class ListTransactionsRequest(Message):
    response: ClassVar[type[ListTransactionsResponse]]
    state_filters: list[str] = ...
    producer_id_filters: list[int] = ...
    duration_filter: int = -1
    transactional_id_pattern: str | None = None

class ListTransactionsResponse(Message):
    class TransactionState(Struct):
        transactional_id: str = ''
        producer_id: int = 0
        transaction_state: str = ''

    throttle_time_ms: int = 0
    error_code: int = 0
    unknown_state_filters: list[str] = ...
    transaction_states: list[ListTransactionsResponse.TransactionState] = ...

class FindCoordinatorRequest(Message):
    response: ClassVar[type[FindCoordinatorResponse]]
    key: str = ''
    key_type: int = 0
    coordinator_keys: list[str] = ...

class FindCoordinatorResponse(Message):
    class Coordinator(Struct):
        key: str = ''
        node_id: int = 0
        host: str = ''
        port: int = 0
        error_code: int = 0
        error_message: str | None = ''

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ''
    node_id: int = 0
    host: str = ''
    port: int = 0
    coordinators: list[FindCoordinatorResponse.Coordinator] = ...

class JoinGroupRequest(Message):
    response: ClassVar[type[JoinGroupResponse]]
    class JoinGroupRequestProtocol(Struct):
        name: str = ''
        metadata: bytes = b''

    group_id: str = ''
    session_timeout_ms: int = 0
    rebalance_timeout_ms: int = -1
    member_id: str = ''
    group_instance_id: str | None = None
    protocol_type: str = ''
    protocols: list[JoinGroupRequest.JoinGroupRequestProtocol] = ...
    reason: str | None = None

class JoinGroupResponse(Message):
    class JoinGroupResponseMember(Struct):
        member_id: str = ''
        group_instance_id: str | None = None
        metadata: bytes = b''

    throttle_time_ms: int = 0
    error_code: int = 0
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = ''
    leader: str = ''
    skip_assignment: bool = False
    member_id: str = ''
    members: list[JoinGroupResponse.JoinGroupResponseMember] = ...

class SyncGroupRequest(Message):
    response: ClassVar[type[SyncGroupResponse]]
    class SyncGroupRequestAssignment(Struct):
        member_id: str = ''
        assignment: bytes = b''

    group_id: str = ''
    generation_id: int = 0
    member_id: str = ''
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: list[SyncGroupRequest.SyncGroupRequestAssignment] = ...

class SyncGroupResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b''

class HeartbeatRequest(Message):
    response: ClassVar[type[HeartbeatResponse]]
    group_id: str = ''
    generation_id: int = 0
    member_id: str = ''
    group_instance_id: str | None = None

class HeartbeatResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0

class LeaveGroupRequest(Message):
    response: ClassVar[type[LeaveGroupResponse]]
    class MemberIdentity(Struct):
        member_id: str = ''
        group_instance_id: str | None = None
        reason: str | None = None

    group_id: str = ''
    member_id: str = ''
    members: list[LeaveGroupRequest.MemberIdentity] = ...

class LeaveGroupResponse(Message):
    class MemberResponse(Struct):
        member_id: str = ''
        group_instance_id: str | None = ''
        error_code: int = 0

    throttle_time_ms: int = 0
    error_code: int = 0
    members: list[LeaveGroupResponse.MemberResponse] = ...

class OffsetCommitRequest(Message):
    response: ClassVar[type[OffsetCommitResponse]]
    class OffsetCommitRequestTopic(Struct):
        name: str = ''
        topic_id: bytes = ...
        partitions: list[OffsetCommitRequest.OffsetCommitRequestPartition] = ...

    class OffsetCommitRequestPartition(Struct):
        partition_index: int = 0
        committed_offset: int = 0
        committed_leader_epoch: int = -1
        committed_metadata: str | None = ''

    group_id: str = ''
    generation_id_or_member_epoch: int = -1
    member_id: str = ''
    group_instance_id: str | None = None
    retention_time_ms: int = -1
    topics: list[OffsetCommitRequest.OffsetCommitRequestTopic] = ...

class OffsetCommitResponse(Message):
    class OffsetCommitResponseTopic(Struct):
        name: str = ''
        topic_id: bytes = ...
        partitions: list[OffsetCommitResponse.OffsetCommitResponsePartition] = ...

    class OffsetCommitResponsePartition(Struct):
        partition_index: int = 0
        error_code: int = 0

    throttle_time_ms: int = 0
    topics: list[OffsetCommitResponse.OffsetCommitResponseTopic] = ...

class OffsetFetchRequest(Message):
    response: ClassVar[type[OffsetFetchResponse]]
    class OffsetFetchRequestTopic(Struct):
        name: str = ''
        partition_indexes: list[int] = ...

    class OffsetFetchRequestGroup(Struct):
        group_id: str = ''
        member_id: str | None = None
        member_epoch: int = -1
        topics: list[OffsetFetchRequest.OffsetFetchRequestTopics] | None = ...

    class OffsetFetchRequestTopics(Struct):
        name: str = ''
        topic_id: bytes = ...
        partition_indexes: list[int] = ...

    group_id: str = ''
    topics: list[OffsetFetchRequest.OffsetFetchRequestTopic] | None = ...
    groups: list[OffsetFetchRequest.OffsetFetchRequestGroup] = ...
    require_stable: bool = False

class OffsetFetchResponse(Message):
    class OffsetFetchResponseTopic(Struct):
        name: str = ''
        partitions: list[OffsetFetchResponse.OffsetFetchResponsePartition] = ...

    class OffsetFetchResponsePartition(Struct):
        partition_index: int = 0
        committed_offset: int = 0
        committed_leader_epoch: int = -1
        metadata: str | None = ''
        error_code: int = 0

    class OffsetFetchResponseGroup(Struct):
        group_id: str = ''
        topics: list[OffsetFetchResponse.OffsetFetchResponseTopics] = ...
        error_code: int = 0

    class OffsetFetchResponseTopics(Struct):
        name: str = ''
        topic_id: bytes = ...
        partitions: list[OffsetFetchResponse.OffsetFetchResponsePartitions] = ...

    class OffsetFetchResponsePartitions(Struct):
        partition_index: int = 0
        committed_offset: int = 0
        committed_leader_epoch: int = -1
        metadata: str | None = ''
        error_code: int = 0

    throttle_time_ms: int = 0
    topics: list[OffsetFetchResponse.OffsetFetchResponseTopic] = ...
    error_code: int = 0
    groups: list[OffsetFetchResponse.OffsetFetchResponseGroup] = ...

class DescribeGroupsRequest(Message):
    response: ClassVar[type[DescribeGroupsResponse]]
    groups: list[str] = ...
    include_authorized_operations: bool = False

class DescribeGroupsResponse(Message):
    class DescribedGroup(Struct):
        error_code: int = 0
        error_message: str | None = None
        group_id: str = ''
        group_state: str = ''
        protocol_type: str = ''
        protocol_data: str = ''
        members: list[DescribeGroupsResponse.DescribedGroupMember] = ...
        authorized_operations: int = -2147483648

    class DescribedGroupMember(Struct):
        member_id: str = ''
        group_instance_id: str | None = None
        client_id: str = ''
        client_host: str = ''
        member_metadata: bytes = b''
        member_assignment: bytes = b''

    throttle_time_ms: int = 0
    groups: list[DescribeGroupsResponse.DescribedGroup] = ...

class ListGroupsRequest(Message):
    response: ClassVar[type[ListGroupsResponse]]
    states_filter: list[str] = ...
    types_filter: list[str] = ...

class ListGroupsResponse(Message):
    class ListedGroup(Struct):
        group_id: str = ''
        protocol_type: str = ''
        group_state: str = ''
        group_type: str = ''

    throttle_time_ms: int = 0
    error_code: int = 0
    groups: list[ListGroupsResponse.ListedGroup] = ...

class DeleteGroupsRequest(Message):
    response: ClassVar[type[DeleteGroupsResponse]]
    groups_names: list[str] = ...

class DeleteGroupsResponse(Message):
    class DeletableGroupResult(Struct):
        group_id: str = ''
        error_code: int = 0

    throttle_time_ms: int = 0
    results: list[DeleteGroupsResponse.DeletableGroupResult] = ...

class OffsetDeleteRequest(Message):
    response: ClassVar[type[OffsetDeleteResponse]]
    class OffsetDeleteRequestTopic(Struct):
        name: str = ''
        partitions: list[OffsetDeleteRequest.OffsetDeleteRequestPartition] = ...

    class OffsetDeleteRequestPartition(Struct):
        partition_index: int = 0

    group_id: str = ''
    topics: list[OffsetDeleteRequest.OffsetDeleteRequestTopic] = ...

class OffsetDeleteResponse(Message):
    class OffsetDeleteResponseTopic(Struct):
        name: str = ''
        partitions: list[OffsetDeleteResponse.OffsetDeleteResponsePartition] = ...

    class OffsetDeleteResponsePartition(Struct):
        partition_index: int = 0
        error_code: int = 0

    error_code: int = 0
    throttle_time_ms: int = 0
    topics: list[OffsetDeleteResponse.OffsetDeleteResponseTopic] = ...

class ConsumerGroupHeartbeatRequest(Message):
    response: ClassVar[type[ConsumerGroupHeartbeatResponse]]
    class TopicPartitions(Struct):
        topic_id: bytes = ...
        partitions: list[int] = ...

    group_id: str = ''
    member_id: str = ''
    member_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: list[str] | None = None
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    topic_partitions: list[ConsumerGroupHeartbeatRequest.TopicPartitions] | None = None

class ConsumerGroupHeartbeatResponse(Message):
    class Assignment(Struct):
        topic_partitions: list[ConsumerGroupHeartbeatResponse.TopicPartitions] = ...

    class TopicPartitions(Struct):
        topic_id: bytes = ...
        partitions: list[int] = ...

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: ConsumerGroupHeartbeatResponse.Assignment | None = None

class ConsumerGroupDescribeRequest(Message):
    response: ClassVar[type[ConsumerGroupDescribeResponse]]
    group_ids: list[str] = ...
    include_authorized_operations: bool = False

class ConsumerGroupDescribeResponse(Message):
    class DescribedGroup(Struct):
        error_code: int = 0
        error_message: str | None = None
        group_id: str = ''
        group_state: str = ''
        group_epoch: int = 0
        assignment_epoch: int = 0
        assignor_name: str = ''
        members: list[ConsumerGroupDescribeResponse.Member] = ...
        authorized_operations: int = -2147483648

    class Member(Struct):
        member_id: str = ''
        instance_id: str | None = None
        rack_id: str | None = None
        member_epoch: int = 0
        client_id: str = ''
        client_host: str = ''
        subscribed_topic_names: list[str] = ...
        subscribed_topic_regex: str | None = None
        assignment: ConsumerGroupDescribeResponse.Assignment = ...
        target_assignment: ConsumerGroupDescribeResponse.Assignment = ...
        member_type: int = -1

    class Assignment(Struct):
        topic_partitions: list[ConsumerGroupDescribeResponse.TopicPartitions] = ...

    class TopicPartitions(Struct):
        topic_id: bytes = ...
        topic_name: str = ''
        partitions: list[int] = ...

    throttle_time_ms: int = 0
    groups: list[ConsumerGroupDescribeResponse.DescribedGroup] = ...

class StreamsGroupDescribeRequest(Message):
    response: ClassVar[type[StreamsGroupDescribeResponse]]
    group_ids: list[str] = ...
    include_authorized_operations: bool = False

class StreamsGroupDescribeResponse(Message):
    class DescribedGroup(Struct):
        error_code: int = 0
        error_message: str | None = None
        group_id: str = ''
        group_state: str = ''
        group_epoch: int = 0
        assignment_epoch: int = 0
        topology: StreamsGroupDescribeResponse.Topology | None = None
        members: list[StreamsGroupDescribeResponse.Member] = ...
        authorized_operations: int = -2147483648

    class Topology(Struct):
        epoch: int = 0
        subtopologies: list[StreamsGroupDescribeResponse.Subtopology] | None = None

    class Subtopology(Struct):
        subtopology_id: str = ''
        source_topics: list[str] = ...
        repartition_sink_topics: list[str] = ...
        state_changelog_topics: list[StreamsGroupDescribeResponse.TopicInfo] = ...
        repartition_source_topics: list[StreamsGroupDescribeResponse.TopicInfo] = ...

    class TopicInfo(Struct):
        name: str = ''
        partitions: int = 0
        replication_factor: int = 0
        topic_configs: list[StreamsGroupDescribeResponse.KeyValue] = ...

    class KeyValue(Struct):
        key: str = ''
        value: str = ''

    class Member(Struct):
        member_id: str = ''
        member_epoch: int = 0
        instance_id: str | None = None
        rack_id: str | None = None
        client_id: str = ''
        client_host: str = ''
        topology_epoch: int = 0
        process_id: str = ''
        user_endpoint: StreamsGroupDescribeResponse.Endpoint | None = None
        client_tags: list[StreamsGroupDescribeResponse.KeyValue] = ...
        task_offsets: list[StreamsGroupDescribeResponse.TaskOffset] = ...
        task_end_offsets: list[StreamsGroupDescribeResponse.TaskOffset] = ...
        assignment: StreamsGroupDescribeResponse.Assignment = ...
        target_assignment: StreamsGroupDescribeResponse.Assignment = ...
        is_classic: bool = False

    class Endpoint(Struct):
        host: str = ''
        port: int = 0

    class TaskOffset(Struct):
        subtopology_id: str = ''
        partition: int = 0
        offset: int = 0

    class Assignment(Struct):
        active_tasks: list[StreamsGroupDescribeResponse.TaskIds] = ...
        standby_tasks: list[StreamsGroupDescribeResponse.TaskIds] = ...
        warmup_tasks: list[StreamsGroupDescribeResponse.TaskIds] = ...

    class TaskIds(Struct):
        subtopology_id: str = ''
        partitions: list[int] = ...

    throttle_time_ms: int = 0
    groups: list[StreamsGroupDescribeResponse.DescribedGroup] = ...

class ShareGroupHeartbeatRequest(Message):
    response: ClassVar[type[ShareGroupHeartbeatResponse]]
    group_id: str = ''
    member_id: str = ''
    member_epoch: int = 0
    rack_id: str | None = None
    subscribed_topic_names: list[str] | None = None

class ShareGroupHeartbeatResponse(Message):
    class Assignment(Struct):
        topic_partitions: list[ShareGroupHeartbeatResponse.TopicPartitions] = ...

    class TopicPartitions(Struct):
        topic_id: bytes = ...
        partitions: list[int] = ...

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: ShareGroupHeartbeatResponse.Assignment | None = None

class ShareGroupDescribeRequest(Message):
    response: ClassVar[type[ShareGroupDescribeResponse]]
    group_ids: list[str] = ...
    include_authorized_operations: bool = False

class ShareGroupDescribeResponse(Message):
    class DescribedGroup(Struct):
        error_code: int = 0
        error_message: str | None = None
        group_id: str = ''
        group_state: str = ''
        group_epoch: int = 0
        assignment_epoch: int = 0
        assignor_name: str = ''
        members: list[ShareGroupDescribeResponse.Member] = ...
        authorized_operations: int = -2147483648

    class Member(Struct):
        member_id: str = ''
        rack_id: str | None = None
        member_epoch: int = 0
        client_id: str = ''
        client_host: str = ''
        subscribed_topic_names: list[str] = ...
        assignment: ShareGroupDescribeResponse.Assignment = ...

    class Assignment(Struct):
        topic_partitions: list[ShareGroupDescribeResponse.TopicPartitions] = ...

    class TopicPartitions(Struct):
        topic_id: bytes = ...
        topic_name: str = ''
        partitions: list[int] = ...

    throttle_time_ms: int = 0
    groups: list[ShareGroupDescribeResponse.DescribedGroup] = ...

class ShareFetchRequest(Message):
    response: ClassVar[type[ShareFetchResponse]]
    class FetchTopic(Struct):
        topic_id: bytes = ...
        partitions: list[ShareFetchRequest.FetchPartition] = ...

    class FetchPartition(Struct):
        partition_index: int = 0
        acknowledgement_batches: list[ShareFetchRequest.AcknowledgementBatch] = ...

    class AcknowledgementBatch(Struct):
        first_offset: int = 0
        last_offset: int = 0
        acknowledge_types: list[int] = ...

    class ForgottenTopic(Struct):
        topic_id: bytes = ...
        partitions: list[int] = ...

    group_id: str | None = None
    member_id: str | None = ''
    share_session_epoch: int = 0
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 2147483647
    max_records: int = 0
    batch_size: int = 0
    share_acquire_mode: int = 0
    is_renew_ack: bool = False
    topics: list[ShareFetchRequest.FetchTopic] = ...
    forgotten_topics_data: list[ShareFetchRequest.ForgottenTopic] = ...

class ShareFetchResponse(Message):
    class ShareFetchableTopicResponse(Struct):
        topic_id: bytes = ...
        partitions: list[ShareFetchResponse.PartitionData] = ...

    class PartitionData(Struct):
        partition_index: int = 0
        error_code: int = 0
        error_message: str | None = None
        acknowledge_error_code: int = 0
        acknowledge_error_message: str | None = None
        current_leader: ShareFetchResponse.LeaderIdAndEpoch = ...
        records: Records = ...
        acquired_records: list[ShareFetchResponse.AcquiredRecords] = ...

    class LeaderIdAndEpoch(Struct):
        leader_id: int = 0
        leader_epoch: int = 0

    class AcquiredRecords(Struct):
        first_offset: int = 0
        last_offset: int = 0
        delivery_count: int = 0

    class NodeEndpoint(Struct):
        node_id: int = 0
        host: str = ''
        port: int = 0
        rack: str | None = None

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: int = 0
    responses: list[ShareFetchResponse.ShareFetchableTopicResponse] = ...
    node_endpoints: list[ShareFetchResponse.NodeEndpoint] = ...

class ShareAcknowledgeRequest(Message):
    response: ClassVar[type[ShareAcknowledgeResponse]]
    class AcknowledgeTopic(Struct):
        topic_id: bytes = ...
        partitions: list[ShareAcknowledgeRequest.AcknowledgePartition] = ...

    class AcknowledgePartition(Struct):
        partition_index: int = 0
        acknowledgement_batches: list[ShareAcknowledgeRequest.AcknowledgementBatch] = ...

    class AcknowledgementBatch(Struct):
        first_offset: int = 0
        last_offset: int = 0
        acknowledge_types: list[int] = ...

    group_id: str | None = None
    member_id: str | None = ''
    share_session_epoch: int = 0
    is_renew_ack: bool = False
    topics: list[ShareAcknowledgeRequest.AcknowledgeTopic] = ...

class ShareAcknowledgeResponse(Message):
    class ShareAcknowledgeTopicResponse(Struct):
        topic_id: bytes = ...
        partitions: list[ShareAcknowledgeResponse.PartitionData] = ...

    class PartitionData(Struct):
        partition_index: int = 0
        error_code: int = 0
        error_message: str | None = None
        current_leader: ShareAcknowledgeResponse.LeaderIdAndEpoch = ...

    class LeaderIdAndEpoch(Struct):
        leader_id: int = 0
        leader_epoch: int = 0

    class NodeEndpoint(Struct):
        node_id: int = 0
        host: str = ''
        port: int = 0
        rack: str | None = None

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: int = 0
    responses: list[ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse] = ...
    node_endpoints: list[ShareAcknowledgeResponse.NodeEndpoint] = ...

class DescribeShareGroupOffsetsRequest(Message):
    response: ClassVar[type[DescribeShareGroupOffsetsResponse]]
    class DescribeShareGroupOffsetsRequestGroup(Struct):
        group_id: str = ''
        topics: list[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestTopic] | None = ...

    class DescribeShareGroupOffsetsRequestTopic(Struct):
        topic_name: str = ''
        partitions: list[int] = ...

    groups: list[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup] = ...

class DescribeShareGroupOffsetsResponse(Message):
    class DescribeShareGroupOffsetsResponseGroup(Struct):
        group_id: str = ''
        topics: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic] = ...
        error_code: int = 0
        error_message: str | None = None

    class DescribeShareGroupOffsetsResponseTopic(Struct):
        topic_name: str = ''
        topic_id: bytes = ...
        partitions: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition] = ...

    class DescribeShareGroupOffsetsResponsePartition(Struct):
        partition_index: int = 0
        start_offset: int = 0
        leader_epoch: int = 0
        lag: int = -1
        error_code: int = 0
        error_message: str | None = None

    throttle_time_ms: int = 0
    groups: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup] = ...

class AlterShareGroupOffsetsRequest(Message):
    response: ClassVar[type[AlterShareGroupOffsetsResponse]]
    class AlterShareGroupOffsetsRequestTopic(Struct):
        topic_name: str = ''
        partitions: list[AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition] = ...

    class AlterShareGroupOffsetsRequestPartition(Struct):
        partition_index: int = 0
        start_offset: int = 0

    group_id: str = ''
    topics: list[AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic] = ...

class AlterShareGroupOffsetsResponse(Message):
    class AlterShareGroupOffsetsResponseTopic(Struct):
        topic_name: str = ''
        topic_id: bytes = ...
        partitions: list[AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponsePartition] = ...

    class AlterShareGroupOffsetsResponsePartition(Struct):
        partition_index: int = 0
        error_code: int = 0
        error_message: str | None = None

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    responses: list[AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic] = ...

class DeleteShareGroupOffsetsRequest(Message):
    response: ClassVar[type[DeleteShareGroupOffsetsResponse]]
    class DeleteShareGroupOffsetsRequestTopic(Struct):
        topic_name: str = ''

    group_id: str = ''
    topics: list[DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic] = ...

class DeleteShareGroupOffsetsResponse(Message):
    class DeleteShareGroupOffsetsResponseTopic(Struct):
        topic_name: str = ''
        topic_id: bytes = ...
        error_code: int = 0
        error_message: str | None = None

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    responses: list[DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic] = ...

class CreateTopicsRequest(Message):
    response: ClassVar[type[CreateTopicsResponse]]
    class CreatableTopic(Struct):
        name: str = ''
        num_partitions: int = 0
        replication_factor: int = 0
        assignments: list[CreateTopicsRequest.CreatableReplicaAssignment] = ...
        configs: list[CreateTopicsRequest.CreatableTopicConfig] = ...

    class CreatableReplicaAssignment(Struct):
        partition_index: int = 0
        broker_ids: list[int] = ...

    class CreatableTopicConfig(Struct):
        name: str = ''
        value: str | None = ''

    topics: list[CreateTopicsRequest.CreatableTopic] = ...
    timeout_ms: int = 60000
    validate_only: bool = False

class CreateTopicsResponse(Message):
    class CreatableTopicResult(Struct):
        name: str = ''
        topic_id: bytes = ...
        error_code: int = 0
        error_message: str | None = ''
        topic_config_error_code: int = 0
        num_partitions: int = -1
        replication_factor: int = -1
        configs: list[CreateTopicsResponse.CreatableTopicConfigs] | None = ...

    class CreatableTopicConfigs(Struct):
        name: str = ''
        value: str | None = ''
        read_only: bool = False
        config_source: int = -1
        is_sensitive: bool = False

    throttle_time_ms: int = 0
    topics: list[CreateTopicsResponse.CreatableTopicResult] = ...

class DeleteTopicsRequest(Message):
    response: ClassVar[type[DeleteTopicsResponse]]
    class DeleteTopicState(Struct):
        name: str | None = None
        topic_id: bytes = ...

    topics: list[DeleteTopicsRequest.DeleteTopicState] = ...
    topic_names: list[str] = ...
    timeout_ms: int = 0

class DeleteTopicsResponse(Message):
    class DeletableTopicResult(Struct):
        name: str | None = ''
        topic_id: bytes = ...
        error_code: int = 0
        error_message: str | None = None

    throttle_time_ms: int = 0
    responses: list[DeleteTopicsResponse.DeletableTopicResult] = ...

class CreatePartitionsRequest(Message):
    response: ClassVar[type[CreatePartitionsResponse]]
    class CreatePartitionsTopic(Struct):
        name: str = ''
        count: int = 0
        assignments: list[CreatePartitionsRequest.CreatePartitionsAssignment] | None = ...

    class CreatePartitionsAssignment(Struct):
        broker_ids: list[int] = ...

    topics: list[CreatePartitionsRequest.CreatePartitionsTopic] = ...
    timeout_ms: int = 0
    validate_only: bool = False

class CreatePartitionsResponse(Message):
    class CreatePartitionsTopicResult(Struct):
        name: str = ''
        error_code: int = 0
        error_message: str | None = None

    throttle_time_ms: int = 0
    results: list[CreatePartitionsResponse.CreatePartitionsTopicResult] = ...

class DescribeConfigsRequest(Message):
    response: ClassVar[type[DescribeConfigsResponse]]
    class DescribeConfigsResource(Struct):
        resource_type: int = 0
        resource_name: str = ''
        configuration_keys: list[str] | None = ...

    resources: list[DescribeConfigsRequest.DescribeConfigsResource] = ...
    include_synonyms: bool = False
    include_documentation: bool = False

class DescribeConfigsResponse(Message):
    class DescribeConfigsResult(Struct):
        error_code: int = 0
        error_message: str | None = ''
        resource_type: int = 0
        resource_name: str = ''
        configs: list[DescribeConfigsResponse.DescribeConfigsResourceResult] = ...

    class DescribeConfigsResourceResult(Struct):
        name: str = ''
        value: str | None = ''
        read_only: bool = False
        config_source: int = -1
        is_sensitive: bool = False
        synonyms: list[DescribeConfigsResponse.DescribeConfigsSynonym] = ...
        config_type: int = 0
        documentation: str | None = ''

    class DescribeConfigsSynonym(Struct):
        name: str = ''
        value: str | None = ''
        source: int = 0

    throttle_time_ms: int = 0
    results: list[DescribeConfigsResponse.DescribeConfigsResult] = ...

class AlterConfigsRequest(Message):
    response: ClassVar[type[AlterConfigsResponse]]
    class AlterConfigsResource(Struct):
        resource_type: int = 0
        resource_name: str = ''
        configs: list[AlterConfigsRequest.AlterableConfig] = ...

    class AlterableConfig(Struct):
        name: str = ''
        value: str | None = ''

    resources: list[AlterConfigsRequest.AlterConfigsResource] = ...
    validate_only: bool = False

class AlterConfigsResponse(Message):
    class AlterConfigsResourceResponse(Struct):
        error_code: int = 0
        error_message: str | None = ''
        resource_type: int = 0
        resource_name: str = ''

    throttle_time_ms: int = 0
    responses: list[AlterConfigsResponse.AlterConfigsResourceResponse] = ...

class IncrementalAlterConfigsRequest(Message):
    response: ClassVar[type[IncrementalAlterConfigsResponse]]
    class AlterConfigsResource(Struct):
        resource_type: int = 0
        resource_name: str = ''
        configs: list[IncrementalAlterConfigsRequest.AlterableConfig] = ...

    class AlterableConfig(Struct):
        name: str = ''
        config_operation: int = 0
        value: str | None = ''

    resources: list[IncrementalAlterConfigsRequest.AlterConfigsResource] = ...
    validate_only: bool = False

class IncrementalAlterConfigsResponse(Message):
    class AlterConfigsResourceResponse(Struct):
        error_code: int = 0
        error_message: str | None = ''
        resource_type: int = 0
        resource_name: str = ''

    throttle_time_ms: int = 0
    responses: list[IncrementalAlterConfigsResponse.AlterConfigsResourceResponse] = ...

class ListConfigResourcesRequest(Message):
    response: ClassVar[type[ListConfigResourcesResponse]]
    resource_types: list[int] = ...

class ListConfigResourcesResponse(Message):
    class ConfigResource(Struct):
        resource_name: str = ''
        resource_type: int = 16

    throttle_time_ms: int = 0
    error_code: int = 0
    config_resources: list[ListConfigResourcesResponse.ConfigResource] = ...

class AlterReplicaLogDirsRequest(Message):
    response: ClassVar[type[AlterReplicaLogDirsResponse]]
    class AlterReplicaLogDir(Struct):
        path: str = ''
        topics: list[AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic] = ...

    class AlterReplicaLogDirTopic(Struct):
        name: str = ''
        partitions: list[int] = ...

    dirs: list[AlterReplicaLogDirsRequest.AlterReplicaLogDir] = ...

class AlterReplicaLogDirsResponse(Message):
    class AlterReplicaLogDirTopicResult(Struct):
        topic_name: str = ''
        partitions: list[AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult] = ...

    class AlterReplicaLogDirPartitionResult(Struct):
        partition_index: int = 0
        error_code: int = 0

    throttle_time_ms: int = 0
    results: list[AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult] = ...

class DescribeLogDirsRequest(Message):
    response: ClassVar[type[DescribeLogDirsResponse]]
    class DescribableLogDirTopic(Struct):
        topic: str = ''
        partitions: list[int] = ...

    topics: list[DescribeLogDirsRequest.DescribableLogDirTopic] | None = ...

class DescribeLogDirsResponse(Message):
    class DescribeLogDirsResult(Struct):
        error_code: int = 0
        log_dir: str = ''
        topics: list[DescribeLogDirsResponse.DescribeLogDirsTopic] = ...
        total_bytes: int = -1
        usable_bytes: int = -1
        is_cordoned: bool = False

    class DescribeLogDirsTopic(Struct):
        name: str = ''
        partitions: list[DescribeLogDirsResponse.DescribeLogDirsPartition] = ...

    class DescribeLogDirsPartition(Struct):
        partition_index: int = 0
        partition_size: int = 0
        offset_lag: int = 0
        is_future_key: bool = False

    throttle_time_ms: int = 0
    error_code: int = 0
    results: list[DescribeLogDirsResponse.DescribeLogDirsResult] = ...

class ElectLeadersRequest(Message):
    response: ClassVar[type[ElectLeadersResponse]]
    class TopicPartitions(Struct):
        topic: str = ''
        partitions: list[int] = ...

    election_type: int = 0
    topic_partitions: list[ElectLeadersRequest.TopicPartitions] | None = ...
    timeout_ms: int = 60000

class ElectLeadersResponse(Message):
    class ReplicaElectionResult(Struct):
        topic: str = ''
        partition_result: list[ElectLeadersResponse.PartitionResult] = ...

    class PartitionResult(Struct):
        partition_id: int = 0
        error_code: int = 0
        error_message: str | None = ''

    throttle_time_ms: int = 0
    error_code: int = 0
    replica_election_results: list[ElectLeadersResponse.ReplicaElectionResult] = ...

class AlterPartitionReassignmentsRequest(Message):
    response: ClassVar[type[AlterPartitionReassignmentsResponse]]
    class ReassignableTopic(Struct):
        name: str = ''
        partitions: list[AlterPartitionReassignmentsRequest.ReassignablePartition] = ...

    class ReassignablePartition(Struct):
        partition_index: int = 0
        replicas: list[int] | None = None

    timeout_ms: int = 60000
    allow_replication_factor_change: bool = True
    topics: list[AlterPartitionReassignmentsRequest.ReassignableTopic] = ...

class AlterPartitionReassignmentsResponse(Message):
    class ReassignableTopicResponse(Struct):
        name: str = ''
        partitions: list[AlterPartitionReassignmentsResponse.ReassignablePartitionResponse] = ...

    class ReassignablePartitionResponse(Struct):
        partition_index: int = 0
        error_code: int = 0
        error_message: str | None = ''

    throttle_time_ms: int = 0
    allow_replication_factor_change: bool = True
    error_code: int = 0
    error_message: str | None = ''
    responses: list[AlterPartitionReassignmentsResponse.ReassignableTopicResponse] = ...

class ListPartitionReassignmentsRequest(Message):
    response: ClassVar[type[ListPartitionReassignmentsResponse]]
    class ListPartitionReassignmentsTopics(Struct):
        name: str = ''
        partition_indexes: list[int] = ...

    timeout_ms: int = 60000
    topics: list[ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics] | None = None

class ListPartitionReassignmentsResponse(Message):
    class OngoingTopicReassignment(Struct):
        name: str = ''
        partitions: list[ListPartitionReassignmentsResponse.OngoingPartitionReassignment] = ...

    class OngoingPartitionReassignment(Struct):
        partition_index: int = 0
        replicas: list[int] = ...
        adding_replicas: list[int] = ...
        removing_replicas: list[int] = ...

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ''
    topics: list[ListPartitionReassignmentsResponse.OngoingTopicReassignment] = ...

class DescribeClientQuotasRequest(Message):
    response: ClassVar[type[DescribeClientQuotasResponse]]
    class ComponentData(Struct):
        entity_type: str = ''
        match_type: int = 0
        match: str | None = ''

    components: list[DescribeClientQuotasRequest.ComponentData] = ...
    strict: bool = False

class DescribeClientQuotasResponse(Message):
    class EntryData(Struct):
        entity: list[DescribeClientQuotasResponse.EntityData] = ...
        values: list[DescribeClientQuotasResponse.ValueData] = ...

    class EntityData(Struct):
        entity_type: str = ''
        entity_name: str | None = ''

    class ValueData(Struct):
        key: str = ''
        value: float = 0.0

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ''
    entries: list[DescribeClientQuotasResponse.EntryData] | None = ...

class AlterClientQuotasRequest(Message):
    response: ClassVar[type[AlterClientQuotasResponse]]
    class EntryData(Struct):
        entity: list[AlterClientQuotasRequest.EntityData] = ...
        ops: list[AlterClientQuotasRequest.OpData] = ...

    class EntityData(Struct):
        entity_type: str = ''
        entity_name: str | None = ''

    class OpData(Struct):
        key: str = ''
        value: float = 0.0
        remove: bool = False

    entries: list[AlterClientQuotasRequest.EntryData] = ...
    validate_only: bool = False

class AlterClientQuotasResponse(Message):
    class EntryData(Struct):
        error_code: int = 0
        error_message: str | None = ''
        entity: list[AlterClientQuotasResponse.EntityData] = ...

    class EntityData(Struct):
        entity_type: str = ''
        entity_name: str | None = ''

    throttle_time_ms: int = 0
    entries: list[AlterClientQuotasResponse.EntryData] = ...

class DescribeQuorumRequest(Message):
    response: ClassVar[type[DescribeQuorumResponse]]
    class TopicData(Struct):
        topic_name: str = ''
        partitions: list[DescribeQuorumRequest.PartitionData] = ...

    class PartitionData(Struct):
        partition_index: int = 0

    topics: list[DescribeQuorumRequest.TopicData] = ...

class DescribeQuorumResponse(Message):
    class TopicData(Struct):
        topic_name: str = ''
        partitions: list[DescribeQuorumResponse.PartitionData] = ...

    class PartitionData(Struct):
        partition_index: int = 0
        error_code: int = 0
        error_message: str | None = ''
        leader_id: int = 0
        leader_epoch: int = 0
        high_watermark: int = 0
        current_voters: list[DescribeQuorumResponse.ReplicaState] = ...
        observers: list[DescribeQuorumResponse.ReplicaState] = ...

    class ReplicaState(Struct):
        replica_id: int = 0
        replica_directory_id: bytes = ...
        log_end_offset: int = 0
        last_fetch_timestamp: int = -1
        last_caught_up_timestamp: int = -1

    class Node(Struct):
        node_id: int = 0
        listeners: list[DescribeQuorumResponse.Listener] = ...

    class Listener(Struct):
        name: str = ''
        host: str = ''
        port: int = 0

    error_code: int = 0
    error_message: str | None = ''
    topics: list[DescribeQuorumResponse.TopicData] = ...
    nodes: list[DescribeQuorumResponse.Node] = ...

class UpdateFeaturesRequest(Message):
    response: ClassVar[type[UpdateFeaturesResponse]]
    class FeatureUpdateKey(Struct):
        feature: str = ''
        max_version_level: int = 0
        allow_downgrade: bool = False
        upgrade_type: int = 1

    timeout_ms: int = 60000
    feature_updates: list[UpdateFeaturesRequest.FeatureUpdateKey] = ...
    validate_only: bool = False

class UpdateFeaturesResponse(Message):
    class UpdatableFeatureResult(Struct):
        feature: str = ''
        error_code: int = 0
        error_message: str | None = ''

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ''
    results: list[UpdateFeaturesResponse.UpdatableFeatureResult] = ...

class UnregisterBrokerRequest(Message):
    response: ClassVar[type[UnregisterBrokerResponse]]
    broker_id: int = 0

class UnregisterBrokerResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ''

class AddRaftVoterRequest(Message):
    response: ClassVar[type[AddRaftVoterResponse]]
    class Listener(Struct):
        name: str = ''
        host: str = ''
        port: int = 0

    cluster_id: str | None = ''
    timeout_ms: int = 0
    voter_id: int = 0
    voter_directory_id: bytes = ...
    listeners: list[AddRaftVoterRequest.Listener] = ...
    ack_when_committed: bool = True

class AddRaftVoterResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ''

class RemoveRaftVoterRequest(Message):
    response: ClassVar[type[RemoveRaftVoterResponse]]
    cluster_id: str | None = ''
    voter_id: int = 0
    voter_directory_id: bytes = ...

class RemoveRaftVoterResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ''

class AlterPartitionRequest(Message):
    response: ClassVar[type[AlterPartitionResponse]]
    class TopicData(Struct):
        topic_id: bytes = ...
        partitions: list[AlterPartitionRequest.PartitionData] = ...

    class PartitionData(Struct):
        partition_index: int = 0
        leader_epoch: int = 0
        new_isr: list[int] = ...
        new_isr_with_epochs: list[AlterPartitionRequest.BrokerState] = ...
        leader_recovery_state: int = 0
        partition_epoch: int = 0

    class BrokerState(Struct):
        broker_id: int = 0
        broker_epoch: int = -1

    broker_id: int = 0
    broker_epoch: int = -1
    topics: list[AlterPartitionRequest.TopicData] = ...

class AlterPartitionResponse(Message):
    class TopicData(Struct):
        topic_id: bytes = ...
        partitions: list[AlterPartitionResponse.PartitionData] = ...

    class PartitionData(Struct):
        partition_index: int = 0
        error_code: int = 0
        leader_id: int = 0
        leader_epoch: int = 0
        isr: list[int] = ...
        leader_recovery_state: int = 0
        partition_epoch: int = 0

    throttle_time_ms: int = 0
    error_code: int = 0
    topics: list[AlterPartitionResponse.TopicData] = ...

class BrokerRegistrationRequest(Message):
    response: ClassVar[type[BrokerRegistrationResponse]]
    class Listener(Struct):
        name: str = ''
        host: str = ''
        port: int = 0
        security_protocol: int = 0

    class Feature(Struct):
        name: str = ''
        min_supported_version: int = 0
        max_supported_version: int = 0

    broker_id: int = 0
    cluster_id: str = ''
    incarnation_id: bytes = ...
    listeners: list[BrokerRegistrationRequest.Listener] = ...
    features: list[BrokerRegistrationRequest.Feature] = ...
    rack: str | None = ''
    is_migrating_zk_broker: bool = False
    log_dirs: list[bytes] = ...
    previous_broker_epoch: int = -1

class BrokerRegistrationResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    broker_epoch: int = -1

class BrokerHeartbeatRequest(Message):
    response: ClassVar[type[BrokerHeartbeatResponse]]
    broker_id: int = 0
    broker_epoch: int = -1
    current_metadata_offset: int = 0
    want_fence: bool = False
    want_shut_down: bool = False
    offline_log_dirs: list[bytes] = ...
    cordoned_log_dirs: list[bytes] | None = ...

class BrokerHeartbeatResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool = False

class SaslHandshakeRequest(Message):
    response: ClassVar[type[SaslHandshakeResponse]]
    mechanism: str = ''

class SaslHandshakeResponse(Message):
    error_code: int = 0
    mechanisms: list[str] = ...

class SaslAuthenticateRequest(Message):
    response: ClassVar[type[SaslAuthenticateResponse]]
    auth_bytes: bytes = b''

class SaslAuthenticateResponse(Message):
    error_code: int = 0
    error_message: str | None = ''
    auth_bytes: bytes = b''
    session_lifetime_ms: int = 0

class DescribeAclsRequest(Message):
    response: ClassVar[type[DescribeAclsResponse]]
    resource_type_filter: int = 0
    resource_name_filter: str | None = ''
    pattern_type_filter: int = 3
    principal_filter: str | None = ''
    host_filter: str | None = ''
    operation: int = 0
    permission_type: int = 0

class DescribeAclsResponse(Message):
    class DescribeAclsResource(Struct):
        resource_type: int = 0
        resource_name: str = ''
        pattern_type: int = 3
        acls: list[DescribeAclsResponse.AclDescription] = ...

    class AclDescription(Struct):
        principal: str = ''
        host: str = ''
        operation: int = 0
        permission_type: int = 0

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ''
    resources: list[DescribeAclsResponse.DescribeAclsResource] = ...

class CreateAclsRequest(Message):
    response: ClassVar[type[CreateAclsResponse]]
    class AclCreation(Struct):
        resource_type: int = 0
        resource_name: str = ''
        resource_pattern_type: int = 3
        principal: str = ''
        host: str = ''
        operation: int = 0
        permission_type: int = 0

    creations: list[CreateAclsRequest.AclCreation] = ...

class CreateAclsResponse(Message):
    class AclCreationResult(Struct):
        error_code: int = 0
        error_message: str | None = ''

    throttle_time_ms: int = 0
    results: list[CreateAclsResponse.AclCreationResult] = ...

class DeleteAclsRequest(Message):
    response: ClassVar[type[DeleteAclsResponse]]
    class DeleteAclsFilter(Struct):
        resource_type_filter: int = 0
        resource_name_filter: str | None = ''
        pattern_type_filter: int = 3
        principal_filter: str | None = ''
        host_filter: str | None = ''
        operation: int = 0
        permission_type: int = 0

    filters: list[DeleteAclsRequest.DeleteAclsFilter] = ...

class DeleteAclsResponse(Message):
    class DeleteAclsFilterResult(Struct):
        error_code: int = 0
        error_message: str | None = ''
        matching_acls: list[DeleteAclsResponse.DeleteAclsMatchingAcl] = ...

    class DeleteAclsMatchingAcl(Struct):
        error_code: int = 0
        error_message: str | None = ''
        resource_type: int = 0
        resource_name: str = ''
        pattern_type: int = 3
        principal: str = ''
        host: str = ''
        operation: int = 0
        permission_type: int = 0

    throttle_time_ms: int = 0
    filter_results: list[DeleteAclsResponse.DeleteAclsFilterResult] = ...

class CreateDelegationTokenRequest(Message):
    response: ClassVar[type[CreateDelegationTokenResponse]]
    class CreatableRenewers(Struct):
        principal_type: str = ''
        principal_name: str = ''

    owner_principal_type: str | None = ''
    owner_principal_name: str | None = ''
    renewers: list[CreateDelegationTokenRequest.CreatableRenewers] = ...
    max_lifetime_ms: int = 0

class CreateDelegationTokenResponse(Message):
    error_code: int = 0
    principal_type: str = ''
    principal_name: str = ''
    token_requester_principal_type: str = ''
    token_requester_principal_name: str = ''
    issue_timestamp_ms: int = 0
    expiry_timestamp_ms: int = 0
    max_timestamp_ms: int = 0
    token_id: str = ''
    hmac: bytes = b''
    throttle_time_ms: int = 0

class RenewDelegationTokenRequest(Message):
    response: ClassVar[type[RenewDelegationTokenResponse]]
    hmac: bytes = b''
    renew_period_ms: int = 0

class RenewDelegationTokenResponse(Message):
    error_code: int = 0
    expiry_timestamp_ms: int = 0
    throttle_time_ms: int = 0

class ExpireDelegationTokenRequest(Message):
    response: ClassVar[type[ExpireDelegationTokenResponse]]
    hmac: bytes = b''
    expiry_time_period_ms: int = 0

class ExpireDelegationTokenResponse(Message):
    error_code: int = 0
    expiry_timestamp_ms: int = 0
    throttle_time_ms: int = 0

class DescribeDelegationTokenRequest(Message):
    response: ClassVar[type[DescribeDelegationTokenResponse]]
    class DescribeDelegationTokenOwner(Struct):
        principal_type: str = ''
        principal_name: str = ''

    owners: list[DescribeDelegationTokenRequest.DescribeDelegationTokenOwner] | None = ...

class DescribeDelegationTokenResponse(Message):
    class DescribedDelegationToken(Struct):
        principal_type: str = ''
        principal_name: str = ''
        token_requester_principal_type: str = ''
        token_requester_principal_name: str = ''
        issue_timestamp: int = 0
        expiry_timestamp: int = 0
        max_timestamp: int = 0
        token_id: str = ''
        hmac: bytes = b''
        renewers: list[DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer] = ...

    class DescribedDelegationTokenRenewer(Struct):
        principal_type: str = ''
        principal_name: str = ''

    error_code: int = 0
    tokens: list[DescribeDelegationTokenResponse.DescribedDelegationToken] = ...
    throttle_time_ms: int = 0

class DescribeUserScramCredentialsRequest(Message):
    response: ClassVar[type[DescribeUserScramCredentialsResponse]]
    class UserName(Struct):
        name: str = ''

    users: list[DescribeUserScramCredentialsRequest.UserName] | None = ...

class DescribeUserScramCredentialsResponse(Message):
    class DescribeUserScramCredentialsResult(Struct):
        user: str = ''
        error_code: int = 0
        error_message: str | None = ''
        credential_infos: list[DescribeUserScramCredentialsResponse.CredentialInfo] = ...

    class CredentialInfo(Struct):
        mechanism: int = 0
        iterations: int = 0

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ''
    results: list[DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult] = ...

class AlterUserScramCredentialsRequest(Message):
    response: ClassVar[type[AlterUserScramCredentialsResponse]]
    class ScramCredentialDeletion(Struct):
        name: str = ''
        mechanism: int = 0

    class ScramCredentialUpsertion(Struct):
        name: str = ''
        mechanism: int = 0
        iterations: int = 0
        salt: bytes = b''
        salted_password: bytes = b''

    deletions: list[AlterUserScramCredentialsRequest.ScramCredentialDeletion] = ...
    upsertions: list[AlterUserScramCredentialsRequest.ScramCredentialUpsertion] = ...

class AlterUserScramCredentialsResponse(Message):
    class AlterUserScramCredentialsResult(Struct):
        user: str = ''
        error_code: int = 0
        error_message: str | None = ''

    throttle_time_ms: int = 0
    results: list[AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult] = ...

class GetTelemetrySubscriptionsRequest(Message):
    response: ClassVar[type[GetTelemetrySubscriptionsResponse]]
    client_instance_id: bytes = ...

class GetTelemetrySubscriptionsResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0
    client_instance_id: bytes = ...
    subscription_id: int = 0
    accepted_compression_types: list[int] = ...
    push_interval_ms: int = 0
    telemetry_max_bytes: int = 0
    delta_temporality: bool = False
    requested_metrics: list[str] = ...

class PushTelemetryRequest(Message):
    response: ClassVar[type[PushTelemetryResponse]]
    client_instance_id: bytes = ...
    subscription_id: int = 0
    terminating: bool = False
    compression_type: int = 0
    metrics: bytes = b''

class PushTelemetryResponse(Message):
    throttle_time_ms: int = 0
    error_code: int = 0

class RequestHeader(Message):
    request_api_key: int = 0
    request_api_version: int = 0
    correlation_id: int = 0
    client_id: str | None = ''

class ResponseHeader(Message):
    correlation_id: int = 0

class ConsumerProtocolSubscription(Message):
    class TopicPartition(Struct):
        topic: str = ''
        partitions: list[int] = ...

    topics: list[str] = ...
    user_data: bytes | None = None
    owned_partitions: list[ConsumerProtocolSubscription.TopicPartition] = ...
    generation_id: int = -1
    rack_id: str | None = None

class ConsumerProtocolAssignment(Message):
    class TopicPartition(Struct):
        topic: str = ''
        partitions: list[int] = ...

    assigned_partitions: list[ConsumerProtocolAssignment.TopicPartition] = ...
    user_data: bytes | None = None

class OffsetCommitKey(Message):
    group: str = ''
    topic: str = ''
    partition: int = 0

class OffsetCommitValue(Message):
    offset: int = 0
    leader_epoch: int = -1
    metadata: str = ''
    commit_timestamp: int = 0
    expire_timestamp: int = -1
    topic_id: bytes = ...

class GroupMetadataKey(Message):
    group: str = ''

class GroupMetadataValue(Message):
    class MemberMetadata(Struct):
        member_id: str = ''
        group_instance_id: str | None = None
        client_id: str = ''
        client_host: str = ''
        rebalance_timeout: int = -1
        session_timeout: int = 0
        subscription: bytes = b''
        assignment: bytes = b''

    protocol_type: str = ''
    generation: int = 0
    protocol: str | None = ''
    leader: str | None = ''
    current_state_timestamp: int = -1
    members: list[GroupMetadataValue.MemberMetadata] = ...

class ConsumerGroupMetadataKey(Message):
    group_id: str = ''

class ConsumerGroupMetadataValue(Message):
    epoch: int = 0
    metadata_hash: int = 0

class ConsumerGroupMemberMetadataKey(Message):
    group_id: str = ''
    member_id: str = ''

class ConsumerGroupMemberMetadataValue(Message):
    class ClassicMemberMetadata(Struct):
        session_timeout_ms: int = 0
        supported_protocols: list[ConsumerGroupMemberMetadataValue.ClassicProtocol] = ...

    class ClassicProtocol(Struct):
        name: str = ''
        metadata: bytes = b''

    instance_id: str | None = ''
    rack_id: str | None = ''
    client_id: str = ''
    client_host: str = ''
    subscribed_topic_names: list[str] = ...
    subscribed_topic_regex: str | None = ''
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = ''
    classic_member_metadata: ConsumerGroupMemberMetadataValue.ClassicMemberMetadata | None = ...

class ConsumerGroupTargetAssignmentMetadataKey(Message):
    group_id: str = ''

class ConsumerGroupTargetAssignmentMetadataValue(Message):
    assignment_epoch: int = 0
    assignment_timestamp: int = 0

class ConsumerGroupTargetAssignmentMemberKey(Message):
    group_id: str = ''
    member_id: str = ''

class ConsumerGroupTargetAssignmentMemberValue(Message):
    class TopicPartition(Struct):
        topic_id: bytes = ...
        partitions: list[int] = ...

    topic_partitions: list[ConsumerGroupTargetAssignmentMemberValue.TopicPartition] = ...

class ConsumerGroupCurrentMemberAssignmentKey(Message):
    group_id: str = ''
    member_id: str = ''

class ConsumerGroupCurrentMemberAssignmentValue(Message):
    class TopicPartitions(Struct):
        topic_id: bytes = ...
        partitions: list[int] = ...
        assignment_epochs: list[int] | None = ...

    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: int = 0
    assigned_partitions: list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions] = ...
    partitions_pending_revocation: list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions] = ...

class ConsumerGroupRegularExpressionKey(Message):
    group_id: str = ''
    regular_expression: str = ''

class ConsumerGroupRegularExpressionValue(Message):
    topics: list[str] = ...
    version: int = 0
    timestamp: int = 0

class ShareGroupMemberMetadataKey(Message):
    group_id: str = ''
    member_id: str = ''

class ShareGroupMemberMetadataValue(Message):
    rack_id: str | None = ''
    client_id: str = ''
    client_host: str = ''
    subscribed_topic_names: list[str] = ...

class ShareGroupMetadataKey(Message):
    group_id: str = ''

class ShareGroupMetadataValue(Message):
    epoch: int = 0
    metadata_hash: int = 0

class ShareGroupTargetAssignmentMetadataKey(Message):
    group_id: str = ''

class ShareGroupTargetAssignmentMetadataValue(Message):
    assignment_epoch: int = 0
    assignment_timestamp: int = 0

class ShareGroupTargetAssignmentMemberKey(Message):
    group_id: str = ''
    member_id: str = ''

class ShareGroupTargetAssignmentMemberValue(Message):
    class TopicPartition(Struct):
        topic_id: bytes = ...
        partitions: list[int] = ...

    topic_partitions: list[ShareGroupTargetAssignmentMemberValue.TopicPartition] = ...

class ShareGroupCurrentMemberAssignmentKey(Message):
    group_id: str = ''
    member_id: str = ''

class ShareGroupCurrentMemberAssignmentValue(Message):
    class TopicPartitions(Struct):
        topic_id: bytes = ...
        partitions: list[int] = ...

    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: int = 0
    assigned_partitions: list[ShareGroupCurrentMemberAssignmentValue.TopicPartitions] = ...

class ShareGroupStatePartitionMetadataKey(Message):
    group_id: str = ''

class ShareGroupStatePartitionMetadataValue(Message):
    class TopicPartitionsInfo(Struct):
        topic_id: bytes = ...
        topic_name: str = ''
        partitions: list[int] = ...

    class TopicInfo(Struct):
        topic_id: bytes = ...
        topic_name: str = ''

    initializing_topics: list[ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo] = ...
    initialized_topics: list[ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo] = ...
    deleting_topics: list[ShareGroupStatePartitionMetadataValue.TopicInfo] = ...

class ShareSnapshotKey(Message):
    group_id: str = ''
    topic_id: bytes = ...
    partition: int = 0

class ShareSnapshotValue(Message):
    class StateBatch(Struct):
        first_offset: int = 0
        last_offset: int = 0
        delivery_state: int = 0
        delivery_count: int = 0

    snapshot_epoch: int = 0
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = 0
    delivery_complete_count: int = -1
    create_timestamp: int = 0
    write_timestamp: int = 0
    state_batches: list[ShareSnapshotValue.StateBatch] = ...

class ShareUpdateKey(Message):
    group_id: str = ''
    topic_id: bytes = ...
    partition: int = 0

class ShareUpdateValue(Message):
    class StateBatch(Struct):
        first_offset: int = 0
        last_offset: int = 0
        delivery_state: int = 0
        delivery_count: int = 0

    snapshot_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = 0
    delivery_complete_count: int = -1
    state_batches: list[ShareUpdateValue.StateBatch] = ...

class TransactionLogKey(Message):
    transactional_id: str = ''

class TransactionLogValue(Message):
    class PartitionsSchema(Struct):
        topic: str = ''
        partition_ids: list[int] = ...

    producer_id: int = 0
    previous_producer_id: int = -1
    next_producer_id: int = -1
    producer_epoch: int = 0
    next_producer_epoch: int = -1
    transaction_timeout_ms: int = 0
    transaction_status: int = 0
    transaction_partitions: list[TransactionLogValue.PartitionsSchema] | None = ...
    transaction_last_update_timestamp_ms: int = 0
    transaction_start_timestamp_ms: int = 0
    client_transaction_version: int = 0

class ProducerSnapshot(Message):
    class ProducerEntry(Struct):
        producer_id: int = 0
        epoch: int = 0
        last_sequence: int = 0
        last_offset: int = 0
        offset_delta: int = 0
        timestamp: int = 0
        coordinator_epoch: int = 0
        current_txn_first_offset: int = 0

    crc: int = 0
    producer_entries: list[ProducerSnapshot.ProducerEntry] = ...

class EndTxnMarker(Message):
    coordinator_epoch: int = 0

class ControlRecordTypeSchema(Message):
    type: int = 0
