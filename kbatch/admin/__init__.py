"""Admin and AsyncAdmin: what administrators do with a cluster, and what they get.

Each subject is a part: `admin.topics`, `admin.configs` and so on. The parts are coroutines over the waiters
of their client (`base`), and `threads` makes plain methods of them.
"""

from kbatch.admin.planner import Move, Plan
from kbatch.admin.tables import to_arrow
from kbatch.core.admin.configs import ConfigChange
from kbatch.core.admin.results import (
    Acl,
    ClusterDescription,
    ClusterNode,
    ConfigEntry,
    ConfigResource,
    ConfigSynonym,
    CreatedTopic,
    Features,
    Fenced,
    Hanging,
    LogDir,
    OffsetAndTime,
    PartitionDescription,
    ProducerState,
    Quorum,
    QuorumReplica,
    QuotaEntity,
    Reassignment,
    Replica,
    ReplicaDirs,
    ScramInfo,
    Token,
    TopicDescription,
    TopicListing,
    Transaction,
    TransactionListing,
)
from kbatch.core.admin.security import DEFAULT, AclFilter
from kbatch.core.admin.topics import NewPartitions, NewTopic

__all__ = [
    "DEFAULT",
    "Acl",
    "AclFilter",
    "ClusterDescription",
    "ClusterNode",
    "ConfigChange",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSynonym",
    "CreatedTopic",
    "Features",
    "Fenced",
    "Hanging",
    "LogDir",
    "Move",
    "NewPartitions",
    "NewTopic",
    "OffsetAndTime",
    "PartitionDescription",
    "Plan",
    "ProducerState",
    "Quorum",
    "QuorumReplica",
    "QuotaEntity",
    "Reassignment",
    "Replica",
    "ReplicaDirs",
    "ScramInfo",
    "Token",
    "TopicDescription",
    "TopicListing",
    "Transaction",
    "TransactionListing",
    "to_arrow",
]
