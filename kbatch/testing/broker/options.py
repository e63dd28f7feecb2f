"""Options of an embedded cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kbatch.records import INT32_MAX
from kbatch.testing.broker.cluster import MAX_PARTITIONS
from kbatch.testing.broker.controller.controller import ReplicationSettings
from kbatch.testing.broker.security.listeners import Listener

# The lowest and the highest value of numeric options.
LIMITS = {
    "default_partitions": (1, MAX_PARTITIONS),
    "transaction_version": (0, 2),
    "producer_snapshot_batches": (1, 5),
    "min_insync_replicas": (1, INT32_MAX),
    "group_initial_rebalance_delay_ms": (0, INT32_MAX),
    "group_max_size": (1, INT32_MAX),
    "group_version": (0, 1),
    "group_consumer_heartbeat_interval_ms": (1, INT32_MAX),
    "group_consumer_session_timeout_ms": (1, INT32_MAX),
    "group_consumer_assignment_interval_ms": (0, INT32_MAX),
    "group_consumer_max_size": (1, INT32_MAX),
    "share_version": (0, 1),
    "group_share_heartbeat_interval_ms": (1, INT32_MAX),
    "group_share_session_timeout_ms": (1, INT32_MAX),
    "group_share_record_lock_duration_ms": (1, INT32_MAX),
    "group_share_delivery_count_limit": (2, 10),
    "group_share_partition_max_record_locks": (1, 10_000),
    "group_share_max_size": (1, 1_000),
    "group_share_max_share_sessions": (1, 10_000),
    "session_timeout_ms": (1, INT32_MAX),
    "replica_lag_ms": (1, INT32_MAX),
    "log_dirs": (1, 100),
    "internal_topic_partitions": (1, MAX_PARTITIONS),
    "connections_max_reauth_ms": (0, INT32_MAX),
    "connection_failed_authentication_delay_ms": (0, INT32_MAX),
}
# Features and their highest levels; level 0 is not listed as finalized.
FEATURES = {
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "share.version": 1,
    "transaction.version": 2,
}
MIGRATION_POLICIES = ("disabled", "upgrade", "downgrade", "bidirectional")


@dataclass(slots=True, frozen=True)
class Options:
    """The keyword arguments of `Broker`, described there. Raises ValueError for a number out of range."""

    auto_create_topics: bool = True
    default_partitions: int = 1
    transaction_version: int = 2
    producer_snapshot_batches: int = 1
    strict_batches: bool = False
    min_insync_replicas: int = 1
    unclean_leader_election: bool = False
    eligible_leader_replicas: bool = True
    session_timeout_ms: int = 9_000
    replica_lag_ms: int = 30_000
    leader_rebalance: bool = True
    replication_factor: int | None = None
    racks: tuple[str | None, ...] = ()
    log_dirs: int = 1
    group_initial_rebalance_delay_ms: int = 0
    group_max_size: int = INT32_MAX
    group_version: int = 1
    group_consumer_heartbeat_interval_ms: int = 500
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_assignment_interval_ms: int = 0
    group_consumer_max_size: int = INT32_MAX
    group_consumer_migration_policy: str = "bidirectional"
    share_version: int = 1
    group_share_heartbeat_interval_ms: int = 500
    group_share_session_timeout_ms: int = 45_000
    group_share_record_lock_duration_ms: int = 30_000
    group_share_delivery_count_limit: int = 5
    group_share_partition_max_record_locks: int = 2_000
    group_share_max_size: int = 200
    group_share_max_share_sessions: int = 2_000
    internal_topic_partitions: int = 50
    users: Mapping[str, str] | None = None
    listeners: tuple[Listener, ...] = (Listener(),)
    connections_max_reauth_ms: int = 0
    connection_failed_authentication_delay_ms: int = 100
    super_users: tuple[str, ...] = ()
    allow_everyone_if_no_acl_found: bool = False

    def __post_init__(self) -> None:
        for name, (lowest, highest) in LIMITS.items():
            value = getattr(self, name)
            if not isinstance(value, int) or not lowest <= value <= highest:
                raise ValueError(f"{name} must be {lowest} to {highest}, got {value!r}")
        if self.group_consumer_migration_policy not in MIGRATION_POLICIES:
            raise ValueError(
                f"group_consumer_migration_policy must be one of {', '.join(MIGRATION_POLICIES)}, got "
                f"{self.group_consumer_migration_policy!r}"
            )
        for protocol in ("consumer", "share"):
            interval, session = (
                f"group_{protocol}_heartbeat_interval_ms",
                f"group_{protocol}_session_timeout_ms",
            )
            interval_ms, session_ms = getattr(self, interval), getattr(self, session)
            if interval_ms >= session_ms:
                raise ValueError(
                    f"{interval} must be less than {session}, got {interval_ms} and {session_ms}"
                )

    def replication_settings(self) -> ReplicationSettings:
        return ReplicationSettings(
            min_insync_replicas=self.min_insync_replicas,
            unclean_leader_election=self.unclean_leader_election,
            eligible_leader_replicas=self.eligible_leader_replicas,
            replica_lag_ms=self.replica_lag_ms,
            session_timeout_ms=self.session_timeout_ms,
            leader_rebalance=self.leader_rebalance,
        )

    def feature_level(self, name: str) -> int:
        """Return the level of a feature, such as "transaction.version"."""
        return int(getattr(self, _option_of(name)))

    def with_feature_level(self, name: str, level: int) -> Options:
        option = _option_of(name)
        return replace(self, **{option: type(getattr(self, option))(level)})

    def broker_configs(self) -> dict[str, bool | int]:
        """Return the options that Kafka has too, under its names."""
        return {
            "auto.create.topics.enable": self.auto_create_topics,
            "num.partitions": self.default_partitions,
            "min.insync.replicas": self.min_insync_replicas,
            "unclean.leader.election.enable": self.unclean_leader_election,
            "auto.leader.rebalance.enable": self.leader_rebalance,
            "broker.session.timeout.ms": self.session_timeout_ms,
            "replica.lag.time.max.ms": self.replica_lag_ms,
            "connections.max.reauth.ms": self.connections_max_reauth_ms,
            "connection.failed.authentication.delay.ms": self.connection_failed_authentication_delay_ms,
            "allow.everyone.if.no.acl.found": self.allow_everyone_if_no_acl_found,
            "group.initial.rebalance.delay.ms": self.group_initial_rebalance_delay_ms,
            "group.max.size": self.group_max_size,
            "group.consumer.heartbeat.interval.ms": self.group_consumer_heartbeat_interval_ms,
            "group.consumer.session.timeout.ms": self.group_consumer_session_timeout_ms,
            "group.consumer.assignment.interval.ms": self.group_consumer_assignment_interval_ms,
            "group.consumer.max.size": self.group_consumer_max_size,
            "group.share.assignment.interval.ms": 0,
            "group.share.heartbeat.interval.ms": self.group_share_heartbeat_interval_ms,
            "group.share.session.timeout.ms": self.group_share_session_timeout_ms,
            "group.share.record.lock.duration.ms": self.group_share_record_lock_duration_ms,
            "group.share.delivery.count.limit": self.group_share_delivery_count_limit,
            "group.share.partition.max.record.locks": self.group_share_partition_max_record_locks,
            "group.share.max.size": self.group_share_max_size,
            "group.share.max.share.sessions": self.group_share_max_share_sessions,
            "share.coordinator.state.topic.num.partitions": self.internal_topic_partitions,
            "offsets.topic.num.partitions": self.internal_topic_partitions,
            "transaction.state.log.num.partitions": self.internal_topic_partitions,
        }


def _option_of(feature: str) -> str:
    """Return the option that has a feature's level."""
    option = feature.replace(".", "_")
    return option if option in Options.__slots__ else option.removesuffix("_version")
