"""Brokers and topics: ApiVersions (KIP-35, KIP-511, KIP-584), Metadata (KIP-516), DescribeCluster (KIP-700)
and DescribeTopicPartitions (KIP-966).
"""

TABLE = """
ApiVersionsRequest  api 18  versions 0-4  flexible 3+
    client_software_name     string  3+  ignorable
    client_software_version  string  3+  ignorable

ApiVersionsResponse  api 18  versions 0-4  flexible 3+
    error_code                int16
    api_keys                  []ApiVersion
        api_key               int16
        min_version           int16
        max_version           int16
    throttle_time_ms          int32                  1+  ignorable
    supported_features        []SupportedFeatureKey  3+  tag 0  ignorable
        name                  string
        min_version           int16
        max_version           int16
    finalized_features_epoch  int64                  3+  tag 1  default -1  ignorable
    finalized_features        []FinalizedFeatureKey  3+  tag 2  ignorable
        name                  string
        max_version_level     int16
        min_version_level     int16
    zk_migration_ready        bool                   3+  tag 3  ignorable

MetadataRequest  api 3  versions 0-13  flexible 9+
    topics                                 []MetadataRequestTopic?1+
        topic_id                           uuid                       10+   ignorable
        name                               string?10+
    allow_auto_topic_creation              bool                       4+    default true
    include_cluster_authorized_operations  bool                       8-10
    include_topic_authorized_operations    bool                       8+

MetadataResponse  api 3  versions 0-13  flexible 9+
    throttle_time_ms                 int32                        3+    ignorable
    brokers                          []MetadataResponseBroker
        node_id                      int32
        host                         string
        port                         int32
        rack                         string?                      1+    default null  ignorable
    cluster_id                       string?                      2+    default null  ignorable
    controller_id                    int32                        1+    default -1  ignorable
    topics                           []MetadataResponseTopic
        error_code                   int16
        name                         string?12+
        topic_id                     uuid                         10+   ignorable
        is_internal                  bool                         1+    ignorable
        partitions                   []MetadataResponsePartition
            error_code               int16
            partition_index          int32
            leader_id                int32
            leader_epoch             int32                        7+    default -1  ignorable
            replica_nodes            []int32
            isr_nodes                []int32
            offline_replicas         []int32                      5+    ignorable
        topic_authorized_operations  int32                        8+    default -2147483648
    cluster_authorized_operations    int32                        8-10  default -2147483648
    error_code                       int16                        13+   ignorable

DescribeClusterRequest  api 60  versions 0-2  flexible 0+
    include_cluster_authorized_operations  bool
    endpoint_type                          int8  1+  default 1
    include_fenced_brokers                 bool  2+

DescribeClusterResponse  api 60  versions 0-2  flexible 0+
    throttle_time_ms               int32
    error_code                     int16
    error_message                  string?                      default null
    endpoint_type                  int8                     1+  default 1
    cluster_id                     string
    controller_id                  int32                        default -1
    brokers                        []DescribeClusterBroker
        broker_id                  int32
        host                       string
        port                       int32
        rack                       string?                      default null
        is_fenced                  bool                     2+
    cluster_authorized_operations  int32                        default -2147483648

DescribeTopicPartitionsRequest  api 75  versions 0  flexible 0+
    topics                    []TopicRequest
        name                  string
    response_partition_limit  int32           default 2000
    cursor                    Cursor?         default null
        topic_name            string
        partition_index       int32

DescribeTopicPartitionsResponse  api 75  versions 0  flexible 0+
    throttle_time_ms                  int32                                        ignorable
    topics                            []DescribeTopicPartitionsResponseTopic
        error_code                    int16
        name                          string?
        topic_id                      uuid                                         ignorable
        is_internal                   bool                                         ignorable
        partitions                    []DescribeTopicPartitionsResponsePartition
            error_code                int16
            partition_index           int32
            leader_id                 int32
            leader_epoch              int32                                        default -1  ignorable
            replica_nodes             []int32
            isr_nodes                 []int32
            eligible_leader_replicas  []int32?                                     default null
            last_known_elr            []int32?                                     default null
            offline_replicas          []int32                                      ignorable
        topic_authorized_operations   int32                                        default -2147483648
    next_cursor                       Cursor?                                      default null
        topic_name                    string
        partition_index               int32
"""
