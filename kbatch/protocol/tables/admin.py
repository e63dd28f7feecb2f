"""Topics and configurations."""

TABLE = """
CreateTopicsRequest  api 19  versions 2-7  flexible 5+
    topics                   []CreatableTopic
        name                 string
        num_partitions       int32
        replication_factor   int16
        assignments          []CreatableReplicaAssignment
            partition_index  int32
            broker_ids       []int32
        configs              []CreatableTopicConfig
            name             string
            value            string?
    timeout_ms               int32                         default 60000
    validate_only            bool

CreateTopicsResponse  api 19  versions 2-7  flexible 5+
    throttle_time_ms             int32                         ignorable
    topics                       []CreatableTopicResult
        name                     string
        topic_id                 uuid                      7+  ignorable
        error_code               int16
        error_message            string?                       ignorable
        topic_config_error_code  int16                     5+  tag 0  ignorable
        num_partitions           int32                     5+  default -1  ignorable
        replication_factor       int16                     5+  default -1  ignorable
        configs                  []CreatableTopicConfigs?  5+  ignorable
            name                 string
            value                string?
            read_only            bool
            config_source        int8                          default -1  ignorable
            is_sensitive         bool

DeleteTopicsRequest  api 20  versions 1-6  flexible 4+
    topics        []DeleteTopicState  6+
        name      string?                  default null
        topic_id  uuid
    topic_names   []string            1-5  ignorable
    timeout_ms    int32

DeleteTopicsResponse  api 20  versions 1-6  flexible 4+
    throttle_time_ms   int32                       ignorable
    responses          []DeletableTopicResult
        name           string?6+
        topic_id       uuid                    6+  ignorable
        error_code     int16
        error_message  string?                 5+  default null  ignorable

CreatePartitionsRequest  api 37  versions 0-3  flexible 2+
    topics              []CreatePartitionsTopic
        name            string
        count           int32
        assignments     []CreatePartitionsAssignment?
            broker_ids  []int32
    timeout_ms          int32
    validate_only       bool

CreatePartitionsResponse  api 37  versions 0-3  flexible 2+
    throttle_time_ms   int32
    results            []CreatePartitionsTopicResult
        name           string
        error_code     int16
        error_message  string?                        default null

DescribeConfigsRequest  api 32  versions 1-4  flexible 4+
    resources               []DescribeConfigsResource
        resource_type       int8
        resource_name       string
        configuration_keys  []string?
    include_synonyms        bool
    include_documentation   bool                       3+

DescribeConfigsResponse  api 32  versions 1-4  flexible 4+
    throttle_time_ms       int32
    results                []DescribeConfigsResult
        error_code         int16
        error_message      string?
        resource_type      int8
        resource_name      string
        configs            []DescribeConfigsResourceResult
            name           string
            value          string?
            read_only      bool
            config_source  int8                                 default -1  ignorable
            is_sensitive   bool
            synonyms       []DescribeConfigsSynonym             ignorable
                name       string
                value      string?
                source     int8
            config_type    int8                             3+  ignorable
            documentation  string?                          3+  ignorable

AlterConfigsRequest  api 33  versions 0-2  flexible 2+
    resources          []AlterConfigsResource
        resource_type  int8
        resource_name  string
        configs        []AlterableConfig
            name       string
            value      string?
    validate_only      bool

AlterConfigsResponse  api 33  versions 0-2  flexible 2+
    throttle_time_ms   int32
    responses          []AlterConfigsResourceResponse
        error_code     int16
        error_message  string?
        resource_type  int8
        resource_name  string

IncrementalAlterConfigsRequest  api 44  versions 0-1  flexible 1+
    resources                 []AlterConfigsResource
        resource_type         int8
        resource_name         string
        configs               []AlterableConfig
            name              string
            config_operation  int8
            value             string?
    validate_only             bool

IncrementalAlterConfigsResponse  api 44  versions 0-1  flexible 1+
    throttle_time_ms   int32
    responses          []AlterConfigsResourceResponse
        error_code     int16
        error_message  string?
        resource_type  int8
        resource_name  string

ListConfigResourcesRequest  api 74  versions 0-1  flexible 0+
    resource_types  []int8  1+

ListConfigResourcesResponse  api 74  versions 0-1  flexible 0+
    throttle_time_ms   int32
    error_code         int16
    config_resources   []ConfigResource
        resource_name  string
        resource_type  int8              1+  default 16  ignorable
"""
