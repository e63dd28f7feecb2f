"""The state that all request handlers share, and the context of one request.

A handler is a function (state, request, context) -> response or Delayed. For one item of many (a partition, a
group) `Context.fill` catches BrokerError and answers with its code. A BrokerError that the handler raises
answers the whole request.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from kbatch.errors import ErrorCode
from kbatch.protocol.structs import Message, Struct
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.cluster import Cluster
from kbatch.testing.broker.controller.brokers import Node
from kbatch.testing.broker.controller.partition_change import Election
from kbatch.testing.broker.controller.quotas import (
    CONNECTION_RATE,
    MUTATION_RATE,
    REQUEST_PERCENTAGE,
    Limit,
)
from kbatch.testing.broker.coordinator_log import Write
from kbatch.testing.broker.coordinators import Coordinators
from kbatch.testing.broker.fetch_sessions import FetchSessions
from kbatch.testing.broker.groups.group_configs import GroupConfigs
from kbatch.testing.broker.logs.partition import Partition
from kbatch.testing.broker.logs.topic_config import TopicConfig
from kbatch.testing.broker.metric_subscriptions import MetricSubscriptions
from kbatch.testing.broker.options import Options
from kbatch.testing.broker.outages import Outages
from kbatch.testing.broker.played_brokers import PlayedBrokers
from kbatch.testing.broker.purgatory import Purgatory
from kbatch.testing.broker.pushed_metrics import TelemetryState
from kbatch.testing.broker.replication.log_dir_moves import LogDirMoves
from kbatch.testing.broker.replication.network import CONTROLLER, Network
from kbatch.testing.broker.replication.replication import Replication
from kbatch.testing.broker.security.acls import Acls
from kbatch.testing.broker.security.authorizer import (
    CLUSTER_NAME,
    REFUSALS,
    AclBinding,
    Authorizer,
    Operation,
    ResourceType,
)
from kbatch.testing.broker.security.delegation_tokens import DelegationTokens
from kbatch.testing.broker.security.listeners import Listener
from kbatch.testing.broker.security.oauth import TokenIssuer
from kbatch.testing.broker.security.scram import ScramUsers
from kbatch.testing.broker.security.sessions import ANONYMOUS, Session
from kbatch.testing.broker.share.share_partitions import SharePartitions
from kbatch.testing.broker.share.share_sessions import ShareSessions
from kbatch.testing.broker.throttles import WINDOW_MS, Stopwatch, Throttles
from kbatch.testing.broker.timers import Timers

Answer = TypeVar("Answer", bound=Struct)
Refuse = Callable[[ErrorCode], None]
# log.retention.check.interval.ms, leader.imbalance.check.interval.seconds and
# unclean.leader.election.interval.ms are the same.
CHECK_INTERVAL_MS = 300_000
PERCENT_PER_NS = 100 / 1e9  # of a thread, for a second (ClientRequestQuotaManager)
CHECKPOINT_INTERVAL_MS = 5_000  # replica.high.watermark.checkpoint.interval.ms
RETENTION_CONFIGS = frozenset({"retention.ms", "retention.bytes"})


@dataclass(slots=True)
class Connection:
    """One client's connection to a node, by the listener of this index."""

    node_id: int
    listener: int = 0
    client_host: str = "127.0.0.1"
    client_port: int = 0
    session: Session = field(default_factory=Session)
    # name and version of the client, as it has said in ApiVersions
    software: tuple[str, str] = ("unknown", "unknown")

    @property
    def principal(self) -> str:
        return f"User:{self.session.user or ANONYMOUS}"


class Delayed:
    """A response that comes later."""

    __slots__ = ("_on_response", "_response")

    def __init__(self) -> None:
        self._response: Any = None
        self._on_response: Callable[[Any], None] | None = None

    def complete(self, response: Any) -> None:
        """Set the response; only the first call counts."""
        if self._response is None:
            self._response = response
            if self._on_response is not None:
                self._on_response(response)

    @property
    def is_complete(self) -> bool:
        return self._response is not None

    def then(self, on_response: Callable[[Any], None]) -> None:
        """Call `on_response(response)` after the response is there, at once if it already is."""
        self._on_response = on_response
        if self._response is not None:
            on_response(self._response)


@dataclass(slots=True)
class Context:
    """The circumstances of one request."""

    connection: Connection
    version: int
    client_id: str
    now_ms: int
    forced_error: ErrorCode | None = None
    # (topic, partition) -> the error that a test forces on this partition; None if it forces none
    next_partition_error: Callable[[str, int], ErrorCode | None] | None = None
    # set by handlers if Kafka does not answer: close the connection instead
    closes_connection: bool = False
    # set if the login fails: answer late, and close the connection after it
    fails_login: bool = False
    size_bytes: int = 0  # of the request
    throttle_ms: int = 0  # set if the client exceeds a quota: say so, and do not read its connection so long
    stopwatch: Stopwatch | None = None  # None if the time of the request does not count, or was counted
    # what has to be replicated before the answer is sent, and what an error does to it
    _unreplicated: list[tuple[Write, Refuse | None]] = field(default_factory=list)
    refused: ErrorCode = ErrorCode.NONE  # the answer is only this error: what it reports is not replicated

    @property
    def node_id(self) -> int:
        return self.connection.node_id

    def port_of(self, node: Node) -> int:
        """Return the node's port of the listener that the client uses."""
        return node.ports[self.connection.listener]

    def address_of(self, node: Node) -> dict[str, Any]:
        """Return the fields of answers that say where a node is, for the client."""
        return {"host": node.host, "port": self.port_of(node), "rack": node.rack}

    def check_forced_error(self) -> None:
        """Raise the error that a test forces; called once for every item that could fail."""
        if self.forced_error is not None:
            raise BrokerError(self.forced_error)

    def check_partition(self, topic: str, partition: int) -> None:
        """Raise the error that a test forces on a partition; called once a request for each."""
        code = self.next_partition_error and self.next_partition_error(topic, partition)
        if code is not None:
            raise BrokerError(code)

    def wait_for(self, write: Write | None, refuse: Refuse | None = None) -> None:
        """Have the answer wait until this is replicated.

        If it is not in time, `refuse(code)` changes the answer; without that, the error is all of it.
        """
        if write is not None:
            self._unreplicated.append((write, refuse))

    def when_replicated(self, then: Callable[[int], None]) -> None:
        """Call `then(now_ms)` when nothing has to be waited for any more: at once if that is so."""
        waiting = dict(enumerate(self._unreplicated))
        self._unreplicated = []
        if not waiting:
            then(self.now_ms)

        def decided(number: int, code: ErrorCode, now_ms: int) -> None:
            _, refuse = waiting.pop(number)
            if code != ErrorCode.NONE and refuse is not None:
                refuse(code)
            elif code != ErrorCode.NONE:
                self.refused = code
            if not waiting:
                then(now_ms)

        for number, (write, _) in list(waiting.items()):
            write.then(partial(decided, number))

    @property
    def waits(self) -> bool:
        """True if something has to be replicated before the answer."""
        return bool(self._unreplicated)

    def fill(self, answer: Answer, action: Callable[..., None], *args: Any) -> Answer:
        """Return `answer` after `action(*args, answer)`, or with the code and text of its BrokerError."""
        try:
            self.check_forced_error()
            action(*args, answer)
        except BrokerError as error:
            answer.error_code = error.code  # type: ignore[attr-defined]
            if hasattr(answer, "error_message"):
                answer.error_message = error.message
        return answer


@dataclass
class BrokerState:
    """The state that all nodes of an embedded cluster share."""

    options: Options
    directory: Path | None
    rng: random.Random
    now_ms: int
    node_count: int = 1
    shares_logs: bool = False  # replicas of all topics share one log
    shares_coordinators: bool = False  # those of internal topics do, and so share what coordinators know
    features_epoch: int = 1
    acls: Acls = field(default_factory=Acls)
    access: Iterable[AclBinding] | None = None
    tokens: TokenIssuer = field(default_factory=TokenIssuer)
    clock_ns: Callable[[], int] = lambda: 0  # measures how long requests take, for quotas of time only
    timers: Timers = field(default_factory=Timers)
    # sessions that began with a lower number are over
    session_generation: int = 0
    # the APIs of ApiVersions, by key; set by the core, which knows all handlers
    answered_requests: list[type[Message]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.purgatory = Purgatory(self.timers)
        self.fetch_sessions = FetchSessions(self.now_ms)
        self._throttles = [Throttles() for _ in range(self.node_count)]
        self.delegation_tokens = DelegationTokens(self.rng.randbytes)
        self.scram_users = ScramUsers(self.options.users or {}, self.rng.randbytes)
        self.authorizer = Authorizer(
            self.access,
            self.options.super_users,
            self.options.allow_everyone_if_no_acl_found,
            lambda: self.acls,
        )
        self.cluster = Cluster(
            self.node_count,
            self.directory,
            self._open_partition,
            self.random_uuid,
            settings=self.options.replication_settings(),
            clock=lambda: self.now_ms,
            racks=self.options.racks,
            log_dir_count=self.options.log_dirs,
            replication_factor=self.options.replication_factor,
            shares_logs=self.shares_logs,
            shares_internal_logs=self.shares_coordinators,
        )
        self.group_configs = GroupConfigs(self.options.broker_configs(), self.directory)
        self.metric_subscriptions = MetricSubscriptions(self.directory)
        self.network = Network(self.node_count)
        self.replication = Replication(self.cluster, self.network, self.timers, self.purgatory.touch)
        self.log_dir_moves = LogDirMoves(self.cluster, self.timers, self.partition_changed)
        self.log_dir_moves.resume(self.now_ms)
        self.outages = Outages(
            self.cluster,
            self.network,
            self.replication,
            self.timers,
            lambda: self.purgatory.touch(CONTROLLER),
        )
        self.played_brokers = PlayedBrokers(self.cluster, self.outages, self.all_changed)
        self.coordinators = Coordinators(self)
        self.telemetry = TelemetryState()
        self.share_sessions = ShareSessions(self.options.group_share_max_share_sessions)
        self.share_partitions = SharePartitions(
            self.coordinators.share_states, self.group_configs, self.timers, self.partition_changed
        )
        self.timers.call_at(self.now_ms + CHECK_INTERVAL_MS, self._check)
        if self.directory is not None and self.node_count > 1:
            self.replication.all_changed()
            self._checkpoint(self.now_ms)

    def _checkpoint(self, now_ms: int) -> None:
        """Write the high watermarks of replicas, now and every five seconds."""
        self.cluster.checkpoint_high_watermarks()
        self.timers.call_at(now_ms + CHECKPOINT_INTERVAL_MS, self._checkpoint)

    def take_time(self, latency_ms: Callable[[Hashable, Hashable], int]) -> None:
        """Have messages between nodes and the controller take time, (source, target) -> milliseconds."""
        self.replication.courier.latency_ms = latency_ms
        self.cluster.hearing.announce = self.replication.announce

    def random_uuid(self) -> bytes:
        return self.rng.randbytes(16)

    # Clients

    def listener(self, connection: Connection) -> Listener:
        return self.options.listeners[connection.listener]

    def allows(self, context: Context, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """True if the client may do this."""
        client = context.connection
        return self.authorizer.allows(client.principal, client.client_host, operation, resource_type, name)

    def authorize(
        self, context: Context, operation: Operation, resource_type: ResourceType, name: str
    ) -> None:
        """Raise BrokerError, with the code of the resource's type, unless the client may do this."""
        if not self.allows(context, operation, resource_type, name):
            raise BrokerError(REFUSALS[resource_type])

    def allows_cluster(self, context: Context, operation: Operation) -> bool:
        """True if the client may do this to the cluster."""
        return self.allows(context, operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def authorize_cluster(self, context: Context, operation: Operation) -> None:
        """Raise BrokerError unless the client may do this to the cluster."""
        self.authorize(context, operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def authorized_operations(self, context: Context, resource_type: ResourceType, name: str) -> int:
        client = context.connection
        return self.authorizer.authorized_operations(
            client.principal, client.client_host, resource_type, name
        )

    # Quotas

    def limit_of(self, context: Context, key: str) -> Limit | None:
        """Return the limit that counts for the client."""
        user = context.connection.session.user or ANONYMOUS
        return self.cluster.quotas.limit_of(key, user, context.client_id)

    def throttle_bytes(self, context: Context, key: str, amount: int, *, is_refused: bool = False) -> None:
        """Count bytes of a client, and throttle it if they exceed its quota.

        With `is_refused` bytes that exceed it are not sent, and so not counted.
        """
        limit = self.limit_of(context, key)
        if limit is None:
            return
        rate = self._throttles[context.node_id].rate((key, limit.sharers))
        rate.record(amount, self.now_ms)
        context.throttle_ms = max(context.throttle_ms, rate.throttle_ms(limit.value, self.now_ms))
        if context.throttle_ms and is_refused:
            rate.record(-amount, self.now_ms)

    def throttle_time(self, context: Context) -> None:
        """Count the time that a request took, once, and throttle its client if it exceeds its quota.

        That is for a second at most, whatever the client owes.
        """
        stopwatch, context.stopwatch = context.stopwatch, None
        limit = None if stopwatch is None else self.limit_of(context, REQUEST_PERCENTAGE)
        if stopwatch is None or limit is None:
            return
        rate = self._throttles[context.node_id].rate((REQUEST_PERCENTAGE, limit.sharers))
        rate.record(stopwatch.taken_ns * PERCENT_PER_NS, self.now_ms)
        throttle_ms = min(rate.throttle_ms(limit.value, self.now_ms), WINDOW_MS)
        context.throttle_ms = max(context.throttle_ms, throttle_ms)

    def refusal_ms(self, connection: Connection) -> int:
        """Count a new connection; return after how long to close it, 0 unless its address makes too many.

        One that is refused does not count (kafka.network.ConnectionQuotas).
        """
        limit = self.cluster.quotas.connections_of(connection.client_host)
        if limit is None:
            return 0
        rate = self._throttles[connection.node_id].rate((CONNECTION_RATE, limit.sharers))
        rate.record(1, self.now_ms)
        throttle_ms = rate.throttle_ms(limit.value, self.now_ms)
        if throttle_ms:
            rate.record(-1, self.now_ms)
        return min(throttle_ms, WINDOW_MS)

    def take_mutations(self, context: Context, count: int, *, is_strict: bool) -> None:
        """Count partitions that a client creates or deletes, and throttle it if it owes some (KIP-599).

        Raises BrokerError THROTTLING_QUOTA_EXCEEDED, if it is strict, while some are owed from before.
        """
        limit = self.limit_of(context, MUTATION_RATE)
        if limit is None:
            return
        tokens = self._throttles[context.node_id].tokens(limit.sharers, limit.value, self.now_ms)
        context.throttle_ms = tokens.throttle_ms(limit.value, self.now_ms)
        if context.throttle_ms and is_strict:
            raise BrokerError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        tokens.take(count)
        if not is_strict:
            context.throttle_ms = tokens.throttle_ms(limit.value, self.now_ms)

    def _open_partition(
        self, topic: str, index: int, config: TopicConfig, directory: Path | None
    ) -> Partition:
        return Partition(
            topic,
            index,
            config=config,
            directory=directory,
            now_ms=self.now_ms,
            snapshot_batches=self.options.producer_snapshot_batches,
            strict=self.options.strict_batches,
        )

    def _check(self, now_ms: int) -> None:
        """Repeat the periodic work of Kafka's log manager, cleaner and controller, until the broker ends."""
        self.timers.call_at(now_ms + CHECK_INTERVAL_MS, self._check)
        self._check_logs(now_ms)
        if self.node_count > 1 and not self.shares_logs:
            self.cluster.controller.balance_leaders()
            self.all_changed()

    def _check_logs(self, now_ms: int) -> None:
        """Delete and compact what is old.

        Only topics that set a retention have one. Kafka's default of a week would surprise tests with old
        timestamps.
        """
        for partition in self.cluster.partitions():
            for log in partition.logs:
                with suppress(BrokerError):  # its disk failed; every request to it reports that
                    self._check_log(partition.topic.config, log, now_ms)

    def _check_log(self, config: TopicConfig, log: Partition, now_ms: int) -> None:
        if not RETENTION_CONFIGS.isdisjoint(config.overrides):
            log.delete_old_segments(now_ms)
        if config.is_compacted:
            log.compact(now_ms)
        log.remove_expired_producers(now_ms)

    def close(self) -> None:
        """Write the rest of the files."""
        self.cluster.close()

    def when_in_sync(self, topic: str | None, deadline_ms: int, then: Callable[[list[str]], None]) -> None:
        """Call `then([])` once all replicas, of a topic or of all, are in sync and know it; at the deadline
        call it with the partitions that are not.
        """
        partitions = [each for each in self.cluster.partitions() if topic in (None, each.topic.name)]

        def lagging() -> list[str]:
            return [f"{each.topic.name}-{each.index}" for each in partitions if not each.is_in_sync]

        def attempt(now_ms: int) -> bool:
            if lagging():
                return False
            then([])
            return True

        if not attempt(self.now_ms):
            keys = [(each.topic.name, each.index) for each in partitions]
            self.purgatory.watch(keys, attempt, deadline_ms, lambda now_ms: then(lagging()))

    # Changes that waiting requests must notice

    def move_leader(self, topic: str, index: int, node_id: int, *, unclean: bool = False) -> None:
        self.cluster.move_leader(topic, index, node_id, unclean=unclean)
        self.partition_changed(topic, index)

    def stop_node(self, node_id: int) -> None:
        self.outages.stop(node_id)
        self._node_ended(node_id)

    def kill_node(self, node_id: int, *, at_once: bool = True, lose: bool = False) -> None:
        self.outages.kill(node_id, self.now_ms, at_once=at_once, lose=lose)
        self._node_ended(node_id)

    def fail_log_dir(self, node_id: int, number: int) -> None:
        self.outages.fail_log_dir(node_id, number, self.now_ms)
        if not self.cluster.node(node_id).is_running:
            self.fetch_sessions.forget(node_id)
        self.all_changed()

    def start_node(self, node_id: int) -> None:
        self.outages.start(node_id, self.now_ms)
        self.all_changed()

    def fail_over_controller(self) -> None:
        self.cluster.controller.fail_over()
        self.all_changed()

    def elect_leader(self, topic: str, index: int, *, unclean: bool = False) -> None:
        """Elect the preferred leader, or with `unclean` any replica that runs if there is no leader."""
        election = Election.UNCLEAN if unclean else Election.PREFERRED
        self.cluster.controller.elect(self.cluster.partition(topic, index), election)
        self.partition_changed(topic, index)

    def reassign(self, topic: str, index: int, target: Sequence[int] | None) -> None:
        """Begin to move a partition to other nodes; None cancels that."""
        self.cluster.reassign(self.cluster.partition(topic, index), target)
        self.partition_changed(topic, index)

    def _node_ended(self, node_id: int) -> None:
        self.fetch_sessions.forget(node_id)
        self.all_changed()

    def delete_topic(self, name: str) -> None:
        topic = self.cluster.topics.get(name)
        self.cluster.delete_topic(name)
        if topic is not None:
            self.coordinators.topics_deleted({name: topic.topic_id})
            self.share_partitions.forget_topic(topic.topic_id)
        for partition in topic.partitions if topic else ():
            self.partition_changed(name, partition.index)

    def set_feature_level(self, name: str, level: int) -> None:
        """Set the level of a feature; clients learn it when they connect."""
        self.options = self.options.with_feature_level(name, level)
        self.features_epoch += 1
        self.coordinators.set_transaction_version(self.options.transaction_version)
        if not self.options.eligible_leader_replicas:
            self.cluster.controller.forget_eligible()
        self.cluster.controller.settings = self.options.replication_settings()

    def hold_high_watermark(self, topic: str, index: int, hold: bool) -> None:
        """Stop the followers of a partition, or let them go on; a log without followers plays it."""
        partition = self.cluster.partition(topic, index)
        if partition.is_replicated:
            self.replication.hold(partition, hold, self.now_ms)
        else:
            partition.log.hold_high_watermark = hold
        self.partition_changed(topic, index)

    def partition_changed(self, topic: str, index: int) -> None:
        """Have followers fetch, and requests that wait for the partition tried again."""
        self.purgatory.touch((topic, index))
        if self.node_count > 1 and self.cluster.has_partition(topic, index):
            self.replication.changed(self.cluster.partition(topic, index))

    def all_changed(self) -> None:
        self.purgatory.touch_all()
        self.replication.all_changed()

    def run_waiters(self, now_ms: int) -> None:
        """Bring replicas to rest, and try the requests that wait for what has changed."""
        is_at_rest = False
        while not is_at_rest:
            self.replication.run(now_ms)
            self.cluster.save_registrations()  # before what they allow is acknowledged
            self.purgatory.run(now_ms)
            is_at_rest = self.replication.is_at_rest  # unless a request that waited has written
