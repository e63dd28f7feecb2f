"""The versions from which requests have features that are more than fields: `tables` has the fields.

A constant is named after its request and what that can do: from version PRODUCE_TOPIC_IDS on, Produce names
topics by their ids. Clients and the embedded broker ask here: `version >= features.PRODUCE_TOPIC_IDS`.
"""

from __future__ import annotations

from collections.abc import Mapping

from kbatch.protocol import messages

# The limit of a request that may have any version.
ANY_VERSION = 2**15 - 1

PRODUCE_NAMES_LEADERS = 10  # KIP-951
PRODUCE_TRANSACTION_ABORTABLE = 11  # KIP-890
PRODUCE_ADDS_PARTITIONS = 12  # to the transaction, in transaction version 2 (KIP-890)
PRODUCE_TOPIC_IDS = 13  # KIP-516

FETCH_SESSIONS = 7  # KIP-227
FETCH_FROM_FOLLOWERS = 11  # KIP-392
FETCH_COMPARES_EPOCHS = 12  # finds logs that diverge (KIP-595)
FETCH_TOPIC_IDS = 13  # KIP-516
FETCH_REPLICA_STATE = 15  # followers name their broker epoch (KIP-903)
FETCH_NAMES_LEADERS = 16  # KIP-951

LIST_OFFSETS_LEADER_EPOCHS = 4  # KIP-320
LIST_OFFSETS_NOT_AVAILABLE = 5  # KIP-207
# The special times of ListOffsets, and the first version of each: latest, earliest, largest timestamp
# (KIP-734), earliest local (KIP-405), latest tiered (KIP-1005), earliest pending upload (KIP-1023).
LIST_OFFSETS_TIMES: Mapping[int, int] = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}

METADATA_OPERATIONS = 8  # what the client may do with topics (KIP-430)
METADATA_RELIABLE_EPOCHS = 9  # MetadataResponse.hasReliableLeaderEpochs
METADATA_TOPIC_IDS = 12  # in requests; brokers of earlier versions do not find them (KAFKA-12701)
METADATA_REBOOTSTRAP = 13  # KIP-1102

# From these versions on a change that exceeds a quota is refused, not done and then throttled (KIP-599).
CREATE_PARTITIONS_QUOTA, CREATE_TOPICS_QUOTA, DELETE_TOPICS_QUOTA = 3, 6, 5
CREATE_TOPICS_DEFAULTS = 4  # of the numbers of partitions and replicas (KIP-464)
DELETE_TOPICS_IDS = 6  # KIP-516
DESCRIBE_CONFIGS_DOCUMENTATION = 3  # KIP-569
DESCRIBE_GROUPS_OPERATIONS = 3  # what the client may do with groups (KIP-430)
LIST_GROUPS_STATES, LIST_GROUPS_KINDS = 4, 5  # filters (KIP-518, KIP-848)
ELECT_LEADERS_UNCLEAN = 1  # KIP-460
ALTER_PARTITION_REASSIGNMENTS_KEEPS_FACTOR = 1  # if that is asked for (KIP-860)
DESCRIBE_CLUSTER_ENDPOINTS, DESCRIBE_CLUSTER_FENCED = 1, 2  # KIP-919, KIP-1073
LIST_CONFIG_RESOURCES_KINDS = 1  # earlier versions list subscriptions of metrics only (KIP-1142)
LIST_TRANSACTIONS_DURATION, LIST_TRANSACTIONS_PATTERN = 1, 2  # filters (KIP-994, KIP-1152)
DESCRIBE_QUORUM_DIRECTORIES = 2  # of the replicas, and the controllers' listeners (KIP-853)
UPDATE_FEATURES_ONE_RESULT = 2  # instead of one a feature
UPDATE_FEATURES_VALIDATES = 1  # and knows unsafe downgrades (KIP-778)

API_VERSIONS_CLIENT_SOFTWARE = 3  # KIP-511
SASL_HANDSHAKE_REQUESTS = 1  # tokens follow in SaslAuthenticate requests (KIP-152)
DESCRIBE_DELEGATION_TOKEN_REQUESTER = 3  # KIP-373
CREATE_DELEGATION_TOKEN_OWNER = 3  # KIP-373

FIND_COORDINATOR_BATCHES = 4  # KIP-699

OFFSET_COMMIT_MEMBER_EPOCHS = 9  # and an error of its own for a group that is not there (KIP-848)
OFFSET_COMMIT_TOPIC_IDS = 10  # KIP-848
OFFSET_FETCH_GROUP_ERROR = 2  # KIP-88
OFFSET_FETCH_STABLE = 7  # earlier versions ignore open transactions (KIP-447)
OFFSET_FETCH_BATCHES = 8  # of groups (KIP-709)
OFFSET_FETCH_TOPIC_IDS = 10  # KIP-848

JOIN_GROUP_MEMBER_ID_REQUIRED = 4  # KIP-394
JOIN_GROUP_STATIC_MEMBERS = 5  # KIP-345
JOIN_GROUP_NULL_PROTOCOL = 7  # KIP-559
JOIN_GROUP_SKIPS_ASSIGNMENT = 9  # KIP-814
SYNC_GROUP_NAMES_PROTOCOL = 5  # KIP-559
LEAVE_GROUP_BATCHES = 3  # of members (KIP-345)
DESCRIBE_GROUPS_NOT_FOUND = 6  # KIP-1043
CONSUMER_GROUP_HEARTBEAT_MEMBER_IDS = 1  # clients make them (KIP-1082)
SHARE_FETCH_RENEWS_LOCKS = 2  # and so does ShareAcknowledge (KIP-1222)

INIT_PRODUCER_ID_BUMPS_EPOCH = 3  # KIP-360
ADD_PARTITIONS_TO_TXN_BATCHES = 4  # of transactions, for brokers (KIP-890)
TXN_OFFSET_COMMIT_MEMBERS = 3  # KIP-447
TXN_OFFSET_COMMIT_TRANSACTION_ABORTABLE = 4  # KIP-890
TXN_OFFSET_COMMIT_ADDS_PARTITIONS = 5  # to the transaction, in transaction version 2 (KIP-890)
END_TXN_BUMPS_EPOCH = 5  # in transaction version 2 (KIP-890)

# From these versions on, PRODUCER_FENCED is an answer; earlier ones have INVALID_PRODUCER_EPOCH (KIP-588).
PRODUCER_FENCED: Mapping[int, int] = {
    messages.InitProducerIdRequest.api_key: 4,
    messages.AddPartitionsToTxnRequest.api_key: 2,
    messages.AddOffsetsToTxnRequest.api_key: 2,
    messages.EndTxnRequest.api_key: 2,
}
# From these versions on, the broker answers at once and a throttled client waits; in earlier versions the
# broker waits (KIP-219). All versions of the other APIs are newer.
CLIENT_THROTTLES: Mapping[int, int] = {
    messages.ProduceRequest.api_key: 6,
    messages.MetadataRequest.api_key: 6,
    messages.OffsetFetchRequest.api_key: 4,
    messages.FindCoordinatorRequest.api_key: 2,
    messages.ApiVersionsRequest.api_key: 2,
    messages.InitProducerIdRequest.api_key: 1,
    messages.AddPartitionsToTxnRequest.api_key: 1,
    messages.AddOffsetsToTxnRequest.api_key: 1,
    messages.EndTxnRequest.api_key: 1,
    messages.TxnOffsetCommitRequest.api_key: 1,
}
