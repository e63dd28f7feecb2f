"""Transactions: KIP-98, KIP-360 (epoch bumps), KIP-664 (tooling), KIP-890 (verification, implicit adding)."""

TABLE = """
InitProducerIdRequest  api 22  versions 0-5  flexible 2+
    transactional_id        string?
    transaction_timeout_ms  int32
    producer_id             int64    3+  default -1
    producer_epoch          int16    3+  default -1

InitProducerIdResponse  api 22  versions 0-5  flexible 2+
    throttle_time_ms  int32  ignorable
    error_code        int16
    producer_id       int64  default -1
    producer_epoch    int16

AddPartitionsToTxnRequest  api 24  versions 0-5  flexible 3+
    transactions                   []AddPartitionsToTxnTransaction  4+
        transactional_id           string
        producer_id                int64
        producer_epoch             int16
        verify_only                bool
        topics                     []AddPartitionsToTxnTopic
            name                   string
            partitions             []int32
    v3_and_below_transactional_id  string                           0-3
    v3_and_below_producer_id       int64                            0-3
    v3_and_below_producer_epoch    int16                            0-3
    v3_and_below_topics            []AddPartitionsToTxnTopic        0-3

AddPartitionsToTxnResponse  api 24  versions 0-5  flexible 3+
    throttle_time_ms                  int32
    error_code                        int16                                4+   ignorable
    results_by_transaction            []AddPartitionsToTxnResult           4+
        transactional_id              string
        topic_results                 []AddPartitionsToTxnTopicResult
            name                      string
            results_by_partition      []AddPartitionsToTxnPartitionResult
                partition_index       int32
                partition_error_code  int16
    results_by_topic_v3_and_below     []AddPartitionsToTxnTopicResult      0-3

AddOffsetsToTxnRequest  api 25  versions 0-4  flexible 3+
    transactional_id  string
    producer_id       int64
    producer_epoch    int16
    group_id          string

AddOffsetsToTxnResponse  api 25  versions 0-4  flexible 3+
    throttle_time_ms  int32
    error_code        int16

EndTxnRequest  api 26  versions 0-5  flexible 3+
    transactional_id  string
    producer_id       int64
    producer_epoch    int16
    committed         bool

EndTxnResponse  api 26  versions 0-5  flexible 3+
    throttle_time_ms  int32
    error_code        int16
    producer_id       int64  5+  default -1  ignorable
    producer_epoch    int16  5+  default -1  ignorable

WriteTxnMarkersRequest  api 27  versions 1-2  flexible 1+
    markers                    []WritableTxnMarker
        producer_id            int64
        producer_epoch         int16
        transaction_result     bool
        topics                 []WritableTxnMarkerTopic
            name               string
            partition_indexes  []int32
        coordinator_epoch      int32
        transaction_version    int8                      2+  ignorable

WriteTxnMarkersResponse  api 27  versions 1-2  flexible 1+
    markers                      []WritableTxnMarkerResult
        producer_id              int64
        topics                   []WritableTxnMarkerTopicResult
            name                 string
            partitions           []WritableTxnMarkerPartitionResult
                partition_index  int32
                error_code       int16

TxnOffsetCommitRequest  api 28  versions 0-5  flexible 3+
    transactional_id                string
    group_id                        string
    producer_id                     int64
    producer_epoch                  int16
    generation_id                   int32                              3+  default -1
    member_id                       string                             3+
    group_instance_id               string?                            3+  default null
    topics                          []TxnOffsetCommitRequestTopic
        name                        string
        partitions                  []TxnOffsetCommitRequestPartition
            partition_index         int32
            committed_offset        int64
            committed_leader_epoch  int32                              2+  default -1  ignorable
            committed_metadata      string?

TxnOffsetCommitResponse  api 28  versions 0-5  flexible 3+
    throttle_time_ms         int32
    topics                   []TxnOffsetCommitResponseTopic
        name                 string
        partitions           []TxnOffsetCommitResponsePartition
            partition_index  int32
            error_code       int16

DescribeProducersRequest  api 61  versions 0  flexible 0+
    topics                 []TopicRequest
        name               string
        partition_indexes  []int32

DescribeProducersResponse  api 61  versions 0  flexible 0+
    throttle_time_ms                      int32
    topics                                []TopicResponse
        name                              string
        partitions                        []PartitionResponse
            partition_index               int32
            error_code                    int16
            error_message                 string?              default null
            active_producers              []ProducerState
                producer_id               int64
                producer_epoch            int32
                last_sequence             int32                default -1
                last_timestamp            int64                default -1
                coordinator_epoch         int32
                current_txn_start_offset  int64                default -1

DescribeTransactionsRequest  api 65  versions 0  flexible 0+
    transactional_ids  []string

DescribeTransactionsResponse  api 65  versions 0  flexible 0+
    throttle_time_ms               int32
    transaction_states             []TransactionState
        error_code                 int16
        transactional_id           string
        transaction_state          string
        transaction_timeout_ms     int32
        transaction_start_time_ms  int64
        producer_id                int64
        producer_epoch             int16
        topics                     []TopicData
            topic                  string
            partitions             []int32

ListTransactionsRequest  api 66  versions 0-2  flexible 0+
    state_filters             []string
    producer_id_filters       []int64
    duration_filter           int64     1+  default -1
    transactional_id_pattern  string?   2+  default null

ListTransactionsResponse  api 66  versions 0-2  flexible 0+
    throttle_time_ms       int32
    error_code             int16
    unknown_state_filters  []string
    transaction_states     []TransactionState
        transactional_id   string
        producer_id        int64
        transaction_state  string
"""
