"""Produce (KIP-98, KIP-467, KIP-890, KIP-951)."""

TABLE = """
ProduceRequest  api 0  versions 3-13  flexible 9+
    transactional_id    string?                       default null
    acks                int16
    timeout_ms          int32
    topic_data          []TopicProduceData
        name            string                  3-12  ignorable
        topic_id        uuid                    13+   ignorable
        partition_data  []PartitionProduceData
            index       int32
            records     records?

ProduceResponse  api 0  versions 3-13  flexible 9+
    responses                              []TopicProduceResponse
        name                               string                       3-12  ignorable
        topic_id                           uuid                         13+   ignorable
        partition_responses                []PartitionProduceResponse
            index                          int32
            error_code                     int16
            base_offset                    int64
            log_append_time_ms             int64                              default -1  ignorable
            log_start_offset               int64                        5+    default -1  ignorable
            record_errors                  []BatchIndexAndErrorMessage  8+    ignorable
                batch_index                int32
                batch_index_error_message  string?                            default null
            error_message                  string?                      8+    default null  ignorable
            current_leader                 LeaderIdAndEpoch             10+   tag 0
                leader_id                  int32                              default -1
                leader_epoch               int32                              default -1
    throttle_time_ms                       int32                              ignorable
    node_endpoints                         []NodeEndpoint               10+   tag 0
        node_id                            int32
        host                               string
        port                               int32
        rack                               string?                            default null
"""
