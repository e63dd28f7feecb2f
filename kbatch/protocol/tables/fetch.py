"""Reading a log: Fetch (KIP-227, KIP-516, KIP-595, KIP-903), ListOffsets (KIP-79), OffsetForLeaderEpoch
(KIP-320) and DeleteRecords (KIP-107).
"""

TABLE = """
FetchRequest  api 1  versions 4-18  flexible 12+
    cluster_id                    string?           12+   tag 0  default null  ignorable
    replica_id                    int32             4-14  default -1
    replica_state                 ReplicaState      15+   tag 1
        replica_id                int32                   default -1
        replica_epoch             int64                   default -1
    max_wait_ms                   int32
    min_bytes                     int32
    max_bytes                     int32                   default 2147483647  ignorable
    isolation_level               int8                    ignorable
    session_id                    int32             7+    ignorable
    session_epoch                 int32             7+    default -1  ignorable
    topics                        []FetchTopic
        topic                     string            4-12  ignorable
        topic_id                  uuid              13+   ignorable
        partitions                []FetchPartition
            partition             int32
            current_leader_epoch  int32             9+    default -1  ignorable
            fetch_offset          int64
            last_fetched_epoch    int32             12+   default -1
            log_start_offset      int64             5+    default -1  ignorable
            partition_max_bytes   int32
            replica_directory_id  uuid              17+   tag 0  ignorable
            high_watermark        int64             18+   tag 1  default 9223372036854775807  ignorable
    forgotten_topics_data         []ForgottenTopic  7+
        topic                     string            7-12  ignorable
        topic_id                  uuid              13+   ignorable
        partitions                []int32
    rack_id                       string            11+   ignorable

FetchResponse  api 1  versions 4-18  flexible 12+
    throttle_time_ms                int32                           ignorable
    error_code                      int16                     7+    ignorable
    session_id                      int32                     7+
    responses                       []FetchableTopicResponse
        topic                       string                    4-12  ignorable
        topic_id                    uuid                      13+   ignorable
        partitions                  []PartitionData
            partition_index         int32
            error_code              int16
            high_watermark          int64
            last_stable_offset      int64                           default -1  ignorable
            log_start_offset        int64                     5+    default -1  ignorable
            diverging_epoch         EpochEndOffset            12+   tag 0
                epoch               int32                           default -1
                end_offset          int64                           default -1
            current_leader          LeaderIdAndEpoch          12+   tag 1
                leader_id           int32                           default -1
                leader_epoch        int32                           default -1
            snapshot_id             SnapshotId                12+   tag 2
                end_offset          int64                           default -1
                epoch               int32                           default -1
            aborted_transactions    []AbortedTransaction?           ignorable
                producer_id         int64
                first_offset        int64
            preferred_read_replica  int32                     11+   default -1
            records                 records?
    node_endpoints                  []NodeEndpoint            16+   tag 0
        node_id                     int32
        host                        string
        port                        int32
        rack                        string?                         default null

ListOffsetsRequest  api 2  versions 1-11  flexible 6+
    replica_id                    int32
    isolation_level               int8                    2+
    topics                        []ListOffsetsTopic
        name                      string
        partitions                []ListOffsetsPartition
            partition_index       int32
            current_leader_epoch  int32                   4+   default -1  ignorable
            timestamp             int64
    timeout_ms                    int32                   10+  ignorable

ListOffsetsResponse  api 2  versions 1-11  flexible 6+
    throttle_time_ms         int32                           2+  ignorable
    topics                   []ListOffsetsTopicResponse
        name                 string
        partitions           []ListOffsetsPartitionResponse
            partition_index  int32
            error_code       int16
            timestamp        int64                               default -1
            offset           int64                               default -1
            leader_epoch     int32                           4+  default -1

OffsetForLeaderEpochRequest  api 23  versions 2-4  flexible 4+
    replica_id                    int32                       3+  default -2  ignorable
    topics                        []OffsetForLeaderTopic
        topic                     string
        partitions                []OffsetForLeaderPartition
            partition             int32
            current_leader_epoch  int32                           default -1  ignorable
            leader_epoch          int32

OffsetForLeaderEpochResponse  api 23  versions 2-4  flexible 4+
    throttle_time_ms      int32                         ignorable
    topics                []OffsetForLeaderTopicResult
        topic             string
        partitions        []EpochEndOffset
            error_code    int16
            partition     int32
            leader_epoch  int32                         default -1  ignorable
            end_offset    int64                         default -1

DeleteRecordsRequest  api 21  versions 0-2  flexible 2+
    topics                   []DeleteRecordsTopic
        name                 string
        partitions           []DeleteRecordsPartition
            partition_index  int32
            offset           int64
    timeout_ms               int32

DeleteRecordsResponse  api 21  versions 0-2  flexible 2+
    throttle_time_ms         int32
    topics                   []DeleteRecordsTopicResult
        name                 string
        partitions           []DeleteRecordsPartitionResult
            partition_index  int32
            low_watermark    int64
            error_code       int16
"""
