"""Headers, and what stands inside of other messages and in the records of Kafka's own topics and files."""

TABLE = """
RequestHeader  versions 1-2  flexible 2+
    request_api_key      int16
    request_api_version  int16
    correlation_id       int32
    client_id            string?  flexible none

ResponseHeader  versions 0-1  flexible 1+
    correlation_id  int32

ConsumerProtocolSubscription  versions 0-3
    topics            []string
    user_data         bytes?                default null
    owned_partitions  []TopicPartition  1+  ignorable
        topic         string
        partitions    []int32
    generation_id     int32             2+  default -1  ignorable
    rack_id           string?           3+  default null  ignorable

ConsumerProtocolAssignment  versions 0-3
    assigned_partitions  []TopicPartition
        topic            string
        partitions       []int32
    user_data            bytes?            default null

OffsetCommitKey  record 1  versions 0
    group      string
    topic      string
    partition  int32

OffsetCommitValue  record 1  versions 0-4  flexible 4+
    offset            int64
    leader_epoch      int32   3+  default -1  ignorable
    metadata          string
    commit_timestamp  int64
    expire_timestamp  int64   1   default -1  ignorable
    topic_id          uuid    4+  tag 0  ignorable

GroupMetadataKey  record 2  versions 0
    group  string

GroupMetadataValue  record 2  versions 0-4  flexible 4+
    protocol_type            string
    generation               int32
    protocol                 string?
    leader                   string?
    current_state_timestamp  int64             2+  default -1  ignorable
    members                  []MemberMetadata
        member_id            string
        group_instance_id    string?           3+  default null  ignorable
        client_id            string
        client_host          string
        rebalance_timeout    int32             1+  default -1  ignorable
        session_timeout      int32
        subscription         bytes
        assignment           bytes

ConsumerGroupMetadataKey  record 3  versions 0
    group_id  string

ConsumerGroupMetadataValue  record 3  versions 0  flexible 0+
    epoch          int32
    metadata_hash  int64  tag 0  default 0

ConsumerGroupMemberMetadataKey  record 5  versions 0
    group_id   string
    member_id  string

ConsumerGroupMemberMetadataValue  record 5  versions 0  flexible 0+
    instance_id              string?
    rack_id                  string?
    client_id                string
    client_host              string
    subscribed_topic_names   []string
    subscribed_topic_regex   string?
    rebalance_timeout_ms     int32                                 default -1
    server_assignor          string?
    classic_member_metadata  ClassicMemberMetadata?         tag 0
        session_timeout_ms   int32
        supported_protocols  []ClassicProtocol
            name             string
            metadata         bytes

ConsumerGroupTargetAssignmentMetadataKey  record 6  versions 0
    group_id  string

ConsumerGroupTargetAssignmentMetadataValue  record 6  versions 0  flexible 0+
    assignment_epoch      int32
    assignment_timestamp  int64  tag 0  default 0  ignorable

ConsumerGroupTargetAssignmentMemberKey  record 7  versions 0
    group_id   string
    member_id  string

ConsumerGroupTargetAssignmentMemberValue  record 7  versions 0  flexible 0+
    topic_partitions  []TopicPartition
        topic_id      uuid
        partitions    []int32

ConsumerGroupCurrentMemberAssignmentKey  record 8  versions 0
    group_id   string
    member_id  string

ConsumerGroupCurrentMemberAssignmentValue  record 8  versions 0  flexible 0+
    member_epoch                   int32
    previous_member_epoch          int32
    state                          int8
    assigned_partitions            []TopicPartitions
        topic_id                   uuid
        partitions                 []int32
        assignment_epochs          []int32?           tag 0
    partitions_pending_revocation  []TopicPartitions

ConsumerGroupRegularExpressionKey  record 16  versions 0
    group_id            string
    regular_expression  string

ConsumerGroupRegularExpressionValue  record 16  versions 0  flexible 0+
    topics     []string
    version    int64
    timestamp  int64

ShareGroupMemberMetadataKey  record 10  versions 0
    group_id   string
    member_id  string

ShareGroupMemberMetadataValue  record 10  versions 0  flexible 0+
    rack_id                 string?
    client_id               string
    client_host             string
    subscribed_topic_names  []string

ShareGroupMetadataKey  record 11  versions 0
    group_id  string

ShareGroupMetadataValue  record 11  versions 0  flexible 0+
    epoch          int32
    metadata_hash  int64

ShareGroupTargetAssignmentMetadataKey  record 12  versions 0
    group_id  string

ShareGroupTargetAssignmentMetadataValue  record 12  versions 0  flexible 0+
    assignment_epoch      int32
    assignment_timestamp  int64  tag 0  default 0  ignorable

ShareGroupTargetAssignmentMemberKey  record 13  versions 0
    group_id   string
    member_id  string

ShareGroupTargetAssignmentMemberValue  record 13  versions 0  flexible 0+
    topic_partitions  []TopicPartition
        topic_id      uuid
        partitions    []int32

ShareGroupCurrentMemberAssignmentKey  record 14  versions 0
    group_id   string
    member_id  string

ShareGroupCurrentMemberAssignmentValue  record 14  versions 0  flexible 0+
    member_epoch           int32
    previous_member_epoch  int32
    state                  int8
    assigned_partitions    []TopicPartitions
        topic_id           uuid
        partitions         []int32

ShareGroupStatePartitionMetadataKey  record 15  versions 0
    group_id  string

ShareGroupStatePartitionMetadataValue  record 15  versions 0  flexible 0+
    initializing_topics  []TopicPartitionsInfo
        topic_id         uuid
        topic_name       string
        partitions       []int32
    initialized_topics   []TopicPartitionsInfo
    deleting_topics      []TopicInfo
        topic_id         uuid
        topic_name       string

ShareSnapshotKey  record 0  versions 0
    group_id   string
    topic_id   uuid
    partition  int32

ShareSnapshotValue  record 0  versions 0  flexible 0+
    snapshot_epoch           int32
    state_epoch              int32
    leader_epoch             int32
    start_offset             int64
    delivery_complete_count  int32         tag 0  default -1
    create_timestamp         int64
    write_timestamp          int64
    state_batches            []StateBatch
        first_offset         int64
        last_offset          int64
        delivery_state       int8
        delivery_count       int16

ShareUpdateKey  record 1  versions 0
    group_id   string
    topic_id   uuid
    partition  int32

ShareUpdateValue  record 1  versions 0  flexible 0+
    snapshot_epoch           int32
    leader_epoch             int32
    start_offset             int64
    delivery_complete_count  int32         tag 0  default -1
    state_batches            []StateBatch
        first_offset         int64
        last_offset          int64
        delivery_state       int8
        delivery_count       int16

TransactionLogKey  record 0  versions 0
    transactional_id  string

TransactionLogValue  record 0  versions 0-1  flexible 1+
    producer_id                           int64
    previous_producer_id                  int64                1+  tag 0  default -1
    next_producer_id                      int64                1+  tag 1  default -1
    producer_epoch                        int16
    next_producer_epoch                   int16                1+  tag 3  default -1
    transaction_timeout_ms                int32
    transaction_status                    int8
    transaction_partitions                []PartitionsSchema?
        topic                             string
        partition_ids                     []int32
    transaction_last_update_timestamp_ms  int64
    transaction_start_timestamp_ms        int64
    client_transaction_version            int16                1+  tag 2

ProducerSnapshot  versions 1
    crc                           uint32
    producer_entries              []ProducerEntry
        producer_id               int64
        epoch                     int16
        last_sequence             int32
        last_offset               int64
        offset_delta              int32
        timestamp                 int64
        coordinator_epoch         int32
        current_txn_first_offset  int64

EndTxnMarker  versions 0
    coordinator_epoch  int32

ControlRecordTypeSchema  versions 0
    type  int16
"""
