"""The names of numbers in messages of administration, as Kafka's tools write them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

# org.apache.kafka.common.resource.ResourceType
RESOURCES: Mapping[int, str] = {
    1: "any",
    2: "topic",
    3: "group",
    4: "cluster",
    5: "transactional_id",
    6: "delegation_token",
    7: "user",
}
# org.apache.kafka.common.acl.AclOperation
OPERATIONS: Mapping[int, str] = {
    1: "Any",
    2: "All",
    3: "Read",
    4: "Write",
    5: "Create",
    6: "Delete",
    7: "Alter",
    8: "Describe",
    9: "ClusterAction",
    10: "DescribeConfigs",
    11: "AlterConfigs",
    12: "IdempotentWrite",
    13: "CreateTokens",
    14: "DescribeTokens",
    15: "TwoPhaseCommit",
}
# org.apache.kafka.common.resource.PatternType
PATTERNS: Mapping[int, str] = {1: "any", 2: "match", 3: "literal", 4: "prefixed"}
# org.apache.kafka.common.config.ConfigResource.Type
CONFIG_RESOURCES: Mapping[int, str] = {
    2: "topic",
    4: "broker",
    8: "broker_logger",
    16: "client_metrics",
    32: "group",
}
# org.apache.kafka.clients.admin.ConfigEntry.ConfigSource, as DescribeConfigs numbers it
CONFIG_SOURCES: Mapping[int, str] = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
# org.apache.kafka.clients.admin.ConfigEntry.ConfigType, as DescribeConfigs numbers it
CONFIG_TYPES: Mapping[int, str] = {
    1: "BOOLEAN",
    2: "STRING",
    3: "INT",
    4: "SHORT",
    5: "LONG",
    6: "DOUBLE",
    7: "LIST",
    8: "CLASS",
    9: "PASSWORD",
}
# org.apache.kafka.clients.admin.ScramMechanism
SCRAM_MECHANISMS: Mapping[int, str] = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
UNKNOWN = "UNKNOWN"
# The value of a bit field of operations that the broker was not asked for.
NO_OPERATIONS = -(2**31)


def number_of(names: Mapping[int, str], what: str, name: object) -> int:
    """Return the number of a name. Raise ValueError, with the names that there are, for another."""
    text = name.lower() if isinstance(name, str) else name
    for number, known in names.items():
        if known.lower() == text:
            return number
    raise ValueError(f"{what} must be one of {', '.join(names.values())}, got {name!r}")


@lru_cache(maxsize=64)  # most resources of an answer have the same ones
def operations_of(bits: int) -> frozenset[str] | None:
    """Return the operations in a bit field; None if the broker did not say them."""
    if bits == NO_OPERATIONS:
        return None
    return frozenset(name for number, name in OPERATIONS.items() if bits >> number & 1)
