"""Groups and their offsets: the classic protocol (KIP-345, KIP-394, KIP-447, KIP-709) and the new one
(KIP-848, KIP-1099).
"""

TABLE = """
FindCoordinatorRequest  api 10  versions 0-6  flexible 3+
    key               string    0-3
    key_type          int8      1+
    coordinator_keys  []string  4+

FindCoordinatorResponse  api 10  versions 0-6  flexible 3+
    throttle_time_ms   int32          1+   ignorable
    error_code         int16          0-3
    error_message      string?        1-3  ignorable
    node_id            int32          0-3
    host               string         0-3
    port               int32          0-3
    coordinators       []Coordinator  4+
        key            string
        node_id        int32
        host           string
        port           int32
        error_code     int16
        error_message  string?             ignorable

JoinGroupRequest  api 11  versions 0-9  flexible 6+
    group_id              string
    session_timeout_ms    int32
    rebalance_timeout_ms  int32                       1+  default -1  ignorable
    member_id             string
    group_instance_id     string?                     5+  default null
    protocol_type         string
    protocols             []JoinGroupRequestProtocol
        name              string
        metadata          bytes
    reason                string?                     8+  default null  ignorable

JoinGroupResponse  api 11  versions 0-9  flexible 6+
    throttle_time_ms       int32                      2+  ignorable
    error_code             int16
    generation_id          int32                          default -1
    protocol_type          string?                    7+  default null  ignorable
    protocol_name          string?7+
    leader                 string
    skip_assignment        bool                       9+
    member_id              string
    members                []JoinGroupResponseMember
        member_id          string
        group_instance_id  string?                    5+  default null  ignorable
        metadata           bytes

SyncGroupRequest  api 14  versions 0-5  flexible 4+
    group_id           string
    generation_id      int32
    member_id          string
    group_instance_id  string?                       3+  default null
    protocol_type      string?                       5+  default null  ignorable
    protocol_name      string?                       5+  default null  ignorable
    assignments        []SyncGroupRequestAssignment
        member_id      string
        assignment     bytes

SyncGroupResponse  api 14  versions 0-5  flexible 4+
    throttle_time_ms  int32    1+  ignorable
    error_code        int16
    protocol_type     string?  5+  default null  ignorable
    protocol_name     string?  5+  default null  ignorable
    assignment        bytes

HeartbeatRequest  api 12  versions 0-4  flexible 4+
    group_id           string
    generation_id      int32
    member_id          string
    group_instance_id  string?  3+  default null

HeartbeatResponse  api 12  versions 0-4  flexible 4+
    throttle_time_ms  int32  1+  ignorable
    error_code        int16

LeaveGroupRequest  api 13  versions 0-5  flexible 4+
    group_id               string
    member_id              string            0-2
    members                []MemberIdentity  3+
        member_id          string
        group_instance_id  string?                default null
        reason             string?           5+   default null  ignorable

LeaveGroupResponse  api 13  versions 0-5  flexible 4+
    throttle_time_ms       int32             1+  ignorable
    error_code             int16
    members                []MemberResponse  3+
        member_id          string
        group_instance_id  string?
        error_code         int16

OffsetCommitRequest  api 8  versions 2-10  flexible 8+
    group_id                        string
    generation_id_or_member_epoch   int32                                default -1  ignorable
    member_id                       string                               ignorable
    group_instance_id               string?                         7+   default null
    retention_time_ms               int64                           2-4  default -1  ignorable
    topics                          []OffsetCommitRequestTopic
        name                        string                          2-9  ignorable
        topic_id                    uuid                            10+  ignorable
        partitions                  []OffsetCommitRequestPartition
            partition_index         int32
            committed_offset        int64
            committed_leader_epoch  int32                           6+   default -1  ignorable
            committed_metadata      string?

OffsetCommitResponse  api 8  versions 2-10  flexible 8+
    throttle_time_ms         int32                            3+   ignorable
    topics                   []OffsetCommitResponseTopic
        name                 string                           2-9  ignorable
        topic_id             uuid                             10+  ignorable
        partitions           []OffsetCommitResponsePartition
            partition_index  int32
            error_code       int16

OffsetFetchRequest  api 9  versions 1-10  flexible 6+
    group_id                   string                        1-7
    topics                     []OffsetFetchRequestTopic?2+  1-7
        name                   string
        partition_indexes      []int32
    groups                     []OffsetFetchRequestGroup     8+
        group_id               string
        member_id              string?                       9+   default null  ignorable
        member_epoch           int32                         9+   default -1  ignorable
        topics                 []OffsetFetchRequestTopics?
            name               string                        8-9  ignorable
            topic_id           uuid                          10+  ignorable
            partition_indexes  []int32
    require_stable             bool                          7+

OffsetFetchResponse  api 9  versions 1-10  flexible 6+
    throttle_time_ms                    int32                            3+   ignorable
    topics                              []OffsetFetchResponseTopic       1-7
        name                            string
        partitions                      []OffsetFetchResponsePartition
            partition_index             int32
            committed_offset            int64
            committed_leader_epoch      int32                            5+   default -1  ignorable
            metadata                    string?
            error_code                  int16
    error_code                          int16                            2-7  ignorable
    groups                              []OffsetFetchResponseGroup       8+
        group_id                        string
        topics                          []OffsetFetchResponseTopics
            name                        string                           8-9  ignorable
            topic_id                    uuid                             10+  ignorable
            partitions                  []OffsetFetchResponsePartitions
                partition_index         int32
                committed_offset        int64
                committed_leader_epoch  int32                                 default -1  ignorable
                metadata                string?
                error_code              int16
        error_code                      int16

DescribeGroupsRequest  api 15  versions 0-6  flexible 5+
    groups                         []string
    include_authorized_operations  bool      3+

DescribeGroupsResponse  api 15  versions 0-6  flexible 5+
    throttle_time_ms           int32                   1+  ignorable
    groups                     []DescribedGroup
        error_code             int16
        error_message          string?                 6+  default null
        group_id               string
        group_state            string
        protocol_type          string
        protocol_data          string
        members                []DescribedGroupMember
            member_id          string
            group_instance_id  string?                 4+  default null  ignorable
            client_id          string
            client_host        string
            member_metadata    bytes
            member_assignment  bytes
        authorized_operations  int32                   3+  default -2147483648

ListGroupsRequest  api 16  versions 0-5  flexible 3+
    states_filter  []string  4+
    types_filter   []string  5+

ListGroupsResponse  api 16  versions 0-5  flexible 3+
    throttle_time_ms   int32          1+  ignorable
    error_code         int16
    groups             []ListedGroup
        group_id       string
        protocol_type  string
        group_state    string         4+  ignorable
        group_type     string         5+  ignorable

DeleteGroupsRequest  api 42  versions 0-2  flexible 2+
    groups_names  []string

DeleteGroupsResponse  api 42  versions 0-2  flexible 2+
    throttle_time_ms  int32
    results           []DeletableGroupResult
        group_id      string
        error_code    int16

OffsetDeleteRequest  api 47  versions 0
    group_id                 string
    topics                   []OffsetDeleteRequestTopic
        name                 string
        partitions           []OffsetDeleteRequestPartition
            partition_index  int32

OffsetDeleteResponse  api 47  versions 0
    error_code               int16
    throttle_time_ms         int32                            ignorable
    topics                   []OffsetDeleteResponseTopic
        name                 string
        partitions           []OffsetDeleteResponsePartition
            partition_index  int32
            error_code       int16

ConsumerGroupHeartbeatRequest  api 68  versions 0-1  flexible 0+
    group_id                string
    member_id               string
    member_epoch            int32
    instance_id             string?                  default null
    rack_id                 string?                  default null
    rebalance_timeout_ms    int32                    default -1
    subscribed_topic_names  []string?                default null
    subscribed_topic_regex  string?              1+  default null
    server_assignor         string?                  default null
    topic_partitions        []TopicPartitions?       default null
        topic_id            uuid
        partitions          []int32

ConsumerGroupHeartbeatResponse  api 68  versions 0-1  flexible 0+
    throttle_time_ms       int32
    error_code             int16
    error_message          string?             default null
    member_id              string?             default null
    member_epoch           int32
    heartbeat_interval_ms  int32
    assignment             Assignment?         default null
        topic_partitions   []TopicPartitions
            topic_id       uuid
            partitions     []int32

ConsumerGroupDescribeRequest  api 69  versions 0-1  flexible 0+
    group_ids                      []string
    include_authorized_operations  bool

ConsumerGroupDescribeResponse  api 69  versions 0-1  flexible 0+
    throttle_time_ms                int32
    groups                          []DescribedGroup
        error_code                  int16
        error_message               string?                default null
        group_id                    string
        group_state                 string
        group_epoch                 int32
        assignment_epoch            int32
        assignor_name               string
        members                     []Member
            member_id               string
            instance_id             string?                default null
            rack_id                 string?                default null
            member_epoch            int32
            client_id               string
            client_host             string
            subscribed_topic_names  []string
            subscribed_topic_regex  string?                default null
            assignment              Assignment
                topic_partitions    []TopicPartitions
                    topic_id        uuid
                    topic_name      string
                    partitions      []int32
            target_assignment       Assignment
            member_type             int8               1+  default -1  ignorable
        authorized_operations       int32                  default -2147483648

StreamsGroupDescribeRequest  api 89  versions 0  flexible 0+
    group_ids                      []string
    include_authorized_operations  bool

StreamsGroupDescribeResponse  api 89  versions 0  flexible 0+
    throttle_time_ms                       int32
    groups                                 []DescribedGroup
        error_code                         int16
        error_message                      string?           default null
        group_id                           string
        group_state                        string
        group_epoch                        int32
        assignment_epoch                   int32
        topology                           Topology?         default null
            epoch                          int32
            subtopologies                  []Subtopology?    default null
                subtopology_id             string
                source_topics              []string
                repartition_sink_topics    []string
                state_changelog_topics     []TopicInfo
                    name                   string
                    partitions             int32
                    replication_factor     int16
                    topic_configs          []KeyValue
                        key                string
                        value              string
                repartition_source_topics  []TopicInfo
        members                            []Member
            member_id                      string
            member_epoch                   int32
            instance_id                    string?           default null
            rack_id                        string?           default null
            client_id                      string
            client_host                    string
            topology_epoch                 int32
            process_id                     string
            user_endpoint                  Endpoint?         default null
                host                       string
                port                       uint16
            client_tags                    []KeyValue
            task_offsets                   []TaskOffset
                subtopology_id             string
                partition                  int32
                offset                     int64
            task_end_offsets               []TaskOffset
            assignment                     Assignment
                active_tasks               []TaskIds
                    subtopology_id         string
                    partitions             []int32
                standby_tasks              []TaskIds
                warmup_tasks               []TaskIds
            target_assignment              Assignment
            is_classic                     bool
        authorized_operations              int32             default -2147483648
"""
