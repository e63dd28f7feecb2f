"""Share groups (KIP-932): members, acquired records, acknowledgements (KIP-1222), lags (KIP-1226)."""

TABLE = """
ShareGroupHeartbeatRequest  api 76  versions 1  flexible 0+
    group_id                string
    member_id               string
    member_epoch            int32
    rack_id                 string?    default null
    subscribed_topic_names  []string?  default null

ShareGroupHeartbeatResponse  api 76  versions 1  flexible 0+
    throttle_time_ms       int32
    error_code             int16
    error_message          string?            default null
    member_id              string?            default null
    member_epoch           int32
    heartbeat_interval_ms  int32
    assignment             Assignment?        default null
        topic_partitions   []TopicPartitions
            topic_id       uuid
            partitions     []int32

ShareGroupDescribeRequest  api 77  versions 1  flexible 0+
    group_ids                      []string
    include_authorized_operations  bool

ShareGroupDescribeResponse  api 77  versions 1  flexible 0+
    throttle_time_ms                int32
    groups                          []DescribedGroup
        error_code                  int16
        error_message               string?            default null
        group_id                    string
        group_state                 string
        group_epoch                 int32
        assignment_epoch            int32
        assignor_name               string
        members                     []Member
            member_id               string
            rack_id                 string?            default null
            member_epoch            int32
            client_id               string
            client_host             string
            subscribed_topic_names  []string
            assignment              Assignment
                topic_partitions    []TopicPartitions
                    topic_id        uuid
                    topic_name      string
                    partitions      []int32
        authorized_operations       int32              default -2147483648

ShareFetchRequest  api 78  versions 1-2  flexible 0+
    group_id                         string?                     default null
    member_id                        string?
    share_session_epoch              int32
    max_wait_ms                      int32
    min_bytes                        int32
    max_bytes                        int32                       default 2147483647
    max_records                      int32
    batch_size                       int32
    share_acquire_mode               int8                    2+  ignorable
    is_renew_ack                     bool                    2+
    topics                           []FetchTopic
        topic_id                     uuid
        partitions                   []FetchPartition
            partition_index          int32
            acknowledgement_batches  []AcknowledgementBatch
                first_offset         int64
                last_offset          int64
                acknowledge_types    []int8
    forgotten_topics_data            []ForgottenTopic
        topic_id                     uuid
        partitions                   []int32

ShareFetchResponse  api 78  versions 1-2  flexible 0+
    throttle_time_ms                   int32
    error_code                         int16
    error_message                      string?                        default null
    acquisition_lock_timeout_ms        int32
    responses                          []ShareFetchableTopicResponse
        topic_id                       uuid
        partitions                     []PartitionData
            partition_index            int32
            error_code                 int16
            error_message              string?                        default null
            acknowledge_error_code     int16
            acknowledge_error_message  string?                        default null
            current_leader             LeaderIdAndEpoch
                leader_id              int32
                leader_epoch           int32
            records                    records
            acquired_records           []AcquiredRecords
                first_offset           int64
                last_offset            int64
                delivery_count         int16
    node_endpoints                     []NodeEndpoint
        node_id                        int32
        host                           string
        port                           int32
        rack                           string?                        default null

ShareAcknowledgeRequest  api 79  versions 1-2  flexible 0+
    group_id                         string?                     default null
    member_id                        string?
    share_session_epoch              int32
    is_renew_ack                     bool                    2+
    topics                           []AcknowledgeTopic
        topic_id                     uuid
        partitions                   []AcknowledgePartition
            partition_index          int32
            acknowledgement_batches  []AcknowledgementBatch
                first_offset         int64
                last_offset          int64
                acknowledge_types    []int8

ShareAcknowledgeResponse  api 79  versions 1-2  flexible 0+
    throttle_time_ms             int32
    error_code                   int16
    error_message                string?                              default null
    acquisition_lock_timeout_ms  int32                            2+  ignorable
    responses                    []ShareAcknowledgeTopicResponse
        topic_id                 uuid
        partitions               []PartitionData
            partition_index      int32
            error_code           int16
            error_message        string?                              default null
            current_leader       LeaderIdAndEpoch
                leader_id        int32
                leader_epoch     int32
    node_endpoints               []NodeEndpoint
        node_id                  int32
        host                     string
        port                     int32
        rack                     string?                              default null

DescribeShareGroupOffsetsRequest  api 90  versions 0-1  flexible 0+
    groups              []DescribeShareGroupOffsetsRequestGroup
        group_id        string
        topics          []DescribeShareGroupOffsetsRequestTopic?
            topic_name  string
            partitions  []int32

DescribeShareGroupOffsetsResponse  api 90  versions 0-1  flexible 0+
    throttle_time_ms             int32
    groups                       []DescribeShareGroupOffsetsResponseGroup
        group_id                 string
        topics                   []DescribeShareGroupOffsetsResponseTopic
            topic_name           string
            topic_id             uuid
            partitions           []DescribeShareGroupOffsetsResponsePartition
                partition_index  int32
                start_offset     int64
                leader_epoch     int32
                lag              int64                                         1+  default -1  ignorable
                error_code       int16
                error_message    string?                                       default null
        error_code               int16
        error_message            string?                                       default null

AlterShareGroupOffsetsRequest  api 91  versions 0  flexible 0+
    group_id             string
    topics               []AlterShareGroupOffsetsRequestTopic
        topic_name       string
        partitions       []AlterShareGroupOffsetsRequestPartition
            partition_index  int32
            start_offset     int64

AlterShareGroupOffsetsResponse  api 91  versions 0  flexible 0+
    throttle_time_ms     int32
    error_code           int16
    error_message        string?                                       default null
    responses            []AlterShareGroupOffsetsResponseTopic
        topic_name       string
        topic_id         uuid
        partitions       []AlterShareGroupOffsetsResponsePartition
            partition_index  int32
            error_code       int16
            error_message    string?                                   default null

DeleteShareGroupOffsetsRequest  api 92  versions 0  flexible 0+
    group_id        string
    topics          []DeleteShareGroupOffsetsRequestTopic
        topic_name  string

DeleteShareGroupOffsetsResponse  api 92  versions 0  flexible 0+
    throttle_time_ms   int32
    error_code         int16
    error_message      string?                                 default null
    responses          []DeleteShareGroupOffsetsResponseTopic
        topic_name     string
        topic_id       uuid
        error_code     int16
        error_message  string?                                 default null
"""
