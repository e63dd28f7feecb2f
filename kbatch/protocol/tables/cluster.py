"""Replicas (KIP-113, 455, 460), quotas (KIP-546), features (KIP-584), voters of KRaft (KIP-595, 853)."""

TABLE = """
AlterReplicaLogDirsRequest  api 34  versions 1-2  flexible 2+
    dirs                []AlterReplicaLogDir
        path            string
        topics          []AlterReplicaLogDirTopic
            name        string
            partitions  []int32

AlterReplicaLogDirsResponse  api 34  versions 1-2  flexible 2+
    throttle_time_ms         int32
    results                  []AlterReplicaLogDirTopicResult
        topic_name           string
        partitions           []AlterReplicaLogDirPartitionResult
            partition_index  int32
            error_code       int16

DescribeLogDirsRequest  api 35  versions 1-5  flexible 2+
    topics          []DescribableLogDirTopic?
        topic       string
        partitions  []int32

DescribeLogDirsResponse  api 35  versions 1-5  flexible 2+
    throttle_time_ms             int32
    error_code                   int16                       3+  ignorable
    results                      []DescribeLogDirsResult
        error_code               int16
        log_dir                  string
        topics                   []DescribeLogDirsTopic
            name                 string
            partitions           []DescribeLogDirsPartition
                partition_index  int32
                partition_size   int64
                offset_lag       int64
                is_future_key    bool
        total_bytes              int64                       4+  default -1  ignorable
        usable_bytes             int64                       4+  default -1  ignorable
        is_cordoned              bool                        5+  ignorable

ElectLeadersRequest  api 43  versions 0-2  flexible 2+
    election_type     int8                1+
    topic_partitions  []TopicPartitions?
        topic         string
        partitions    []int32
    timeout_ms        int32                   default 60000

ElectLeadersResponse  api 43  versions 0-2  flexible 2+
    throttle_time_ms          int32
    error_code                int16                    1+
    replica_election_results  []ReplicaElectionResult
        topic                 string
        partition_result      []PartitionResult
            partition_id      int32
            error_code        int16
            error_message     string?

AlterPartitionReassignmentsRequest  api 45  versions 0-1  flexible 0+
    timeout_ms                       int32                        default 60000
    allow_replication_factor_change  bool                     1+  default true
    topics                           []ReassignableTopic
        name                         string
        partitions                   []ReassignablePartition
            partition_index          int32
            replicas                 []int32?                     default null

AlterPartitionReassignmentsResponse  api 45  versions 0-1  flexible 0+
    throttle_time_ms                 int32
    allow_replication_factor_change  bool                             1+  default true  ignorable
    error_code                       int16
    error_message                    string?
    responses                        []ReassignableTopicResponse
        name                         string
        partitions                   []ReassignablePartitionResponse
            partition_index          int32
            error_code               int16
            error_message            string?

ListPartitionReassignmentsRequest  api 46  versions 0  flexible 0+
    timeout_ms             int32                                default 60000
    topics                 []ListPartitionReassignmentsTopics?  default null
        name               string
        partition_indexes  []int32

ListPartitionReassignmentsResponse  api 46  versions 0  flexible 0+
    throttle_time_ms           int32
    error_code                 int16
    error_message              string?
    topics                     []OngoingTopicReassignment
        name                   string
        partitions             []OngoingPartitionReassignment
            partition_index    int32
            replicas           []int32
            adding_replicas    []int32
            removing_replicas  []int32

DescribeClientQuotasRequest  api 48  versions 0-1  flexible 1+
    components       []ComponentData
        entity_type  string
        match_type   int8
        match        string?
    strict           bool

DescribeClientQuotasResponse  api 48  versions 0-1  flexible 1+
    throttle_time_ms     int32
    error_code           int16
    error_message        string?
    entries              []EntryData?
        entity           []EntityData
            entity_type  string
            entity_name  string?
        values           []ValueData
            key          string
            value        float64

AlterClientQuotasRequest  api 49  versions 0-1  flexible 1+
    entries              []EntryData
        entity           []EntityData
            entity_type  string
            entity_name  string?
        ops              []OpData
            key          string
            value        float64
            remove       bool
    validate_only        bool

AlterClientQuotasResponse  api 49  versions 0-1  flexible 1+
    throttle_time_ms     int32
    entries              []EntryData
        error_code       int16
        error_message    string?
        entity           []EntityData
            entity_type  string
            entity_name  string?

DescribeQuorumRequest  api 55  versions 0-2  flexible 0+
    topics                   []TopicData
        topic_name           string
        partitions           []PartitionData
            partition_index  int32

DescribeQuorumResponse  api 55  versions 0-2  flexible 0+
    error_code                            int16
    error_message                         string?          2+  ignorable
    topics                                []TopicData
        topic_name                        string
        partitions                        []PartitionData
            partition_index               int32
            error_code                    int16
            error_message                 string?          2+  ignorable
            leader_id                     int32
            leader_epoch                  int32
            high_watermark                int64
            current_voters                []ReplicaState
                replica_id                int32
                replica_directory_id      uuid             2+
                log_end_offset            int64
                last_fetch_timestamp      int64            1+  default -1  ignorable
                last_caught_up_timestamp  int64            1+  default -1  ignorable
            observers                     []ReplicaState
    nodes                                 []Node           2+
        node_id                           int32            2+
        listeners                         []Listener       2+
            name                          string           2+
            host                          string           2+
            port                          uint16           2+

UpdateFeaturesRequest  api 57  versions 0-2  flexible 0+
    timeout_ms             int32                   default 60000
    feature_updates        []FeatureUpdateKey
        feature            string
        max_version_level  int16
        allow_downgrade    bool                0
        upgrade_type       int8                1+  default 1
    validate_only          bool                1+

UpdateFeaturesResponse  api 57  versions 0-2  flexible 0+
    throttle_time_ms   int32
    error_code         int16
    error_message      string?
    results            []UpdatableFeatureResult  0-1  ignorable
        feature        string
        error_code     int16
        error_message  string?

UnregisterBrokerRequest  api 64  versions 0  flexible 0+
    broker_id  int32

UnregisterBrokerResponse  api 64  versions 0  flexible 0+
    throttle_time_ms  int32
    error_code        int16
    error_message     string?

AddRaftVoterRequest  api 80  versions 0-1  flexible 0+
    cluster_id          string?
    timeout_ms          int32
    voter_id            int32
    voter_directory_id  uuid
    listeners           []Listener
        name            string
        host            string
        port            uint16
    ack_when_committed  bool        1+  default true

AddRaftVoterResponse  api 80  versions 0-1  flexible 0+
    throttle_time_ms  int32
    error_code        int16
    error_message     string?  ignorable

RemoveRaftVoterRequest  api 81  versions 0  flexible 0+
    cluster_id          string?
    voter_id            int32
    voter_directory_id  uuid

RemoveRaftVoterResponse  api 81  versions 0  flexible 0+
    throttle_time_ms  int32
    error_code        int16
    error_message     string?  ignorable
"""
