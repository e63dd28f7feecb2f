"""What brokers say to the controller (KIP-497, 631, 841, 858, 903, 966)."""

TABLE = """
AlterPartitionRequest  api 56  versions 2-3  flexible 0+
    broker_id                      int32
    broker_epoch                   int64               default -1
    topics                         []TopicData
        topic_id                   uuid           2+   ignorable
        partitions                 []PartitionData
            partition_index        int32
            leader_epoch           int32
            new_isr                []int32        0-2
            new_isr_with_epochs    []BrokerState  3+
                broker_id          int32          3+
                broker_epoch       int64          3+   default -1
            leader_recovery_state  int8           1+   default 0
            partition_epoch        int32

AlterPartitionResponse  api 56  versions 2-3  flexible 0+
    throttle_time_ms               int32
    error_code                     int16
    topics                         []TopicData
        topic_id                   uuid  2+  ignorable
        partitions                 []PartitionData
            partition_index        int32
            error_code             int16
            leader_id              int32
            leader_epoch           int32
            isr                    []int32
            leader_recovery_state  int8  1+  default 0  ignorable
            partition_epoch        int32

BrokerRegistrationRequest  api 62  versions 0-4  flexible 0+
    broker_id                  int32
    cluster_id                 string
    incarnation_id             uuid
    listeners                  []Listener
        name                   string
        host                   string
        port                   uint16
        security_protocol      int16
    features                   []Feature
        name                   string
        min_supported_version  int16
        max_supported_version  int16
    rack                       string?
    is_migrating_zk_broker     bool     1+  default false
    log_dirs                   []uuid   2+  ignorable
    previous_broker_epoch      int64    3+  default -1  ignorable

BrokerRegistrationResponse  api 62  versions 0-4  flexible 0+
    throttle_time_ms  int32
    error_code        int16
    broker_epoch      int64  default -1

BrokerHeartbeatRequest  api 63  versions 0-2  flexible 0+
    broker_id                int32
    broker_epoch             int64            default -1
    current_metadata_offset  int64
    want_fence               bool
    want_shut_down           bool
    offline_log_dirs         []uuid   1+  tag 0
    cordoned_log_dirs        []uuid?  2+  tag 1  default null

BrokerHeartbeatResponse  api 63  versions 0-2  flexible 0+
    throttle_time_ms  int32
    error_code        int16
    is_caught_up      bool   default false
    is_fenced         bool   default true
    should_shut_down  bool
"""
