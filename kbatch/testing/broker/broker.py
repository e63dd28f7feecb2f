"""Broker: the embedded cluster for its users."""

from __future__ import annotations

import difflib
import random
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import fields
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from kbatch._native.codec.record import Record
from kbatch._native.codec.record_batch import RecordBatch
from kbatch.errors import IllegalStateError
from kbatch.testing.broker.api.configs import GROUP_RESOURCE, TOPIC_RESOURCE, change_configs
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.broker_state import BrokerState
from kbatch.testing.broker.controller.quotas import (
    CLIENT_ID,
    CONNECTION_RATE,
    CONSUMER_BYTE_RATE,
    DEFAULT,
    IP,
    MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    check_limit,
    checked_entity,
)
from kbatch.testing.broker.core import BrokerCore, ReceivedRequest
from kbatch.testing.broker.directory_lock import locked
from kbatch.testing.broker.faults import Faults, Interceptor, Scope, milliseconds, request_class
from kbatch.testing.broker.options import Options
from kbatch.testing.broker.pushed_metrics import PushedMetrics
from kbatch.testing.broker.security.acls import Acls, check_names
from kbatch.testing.broker.security.authorizer import AclBinding
from kbatch.testing.broker.security.certificates import BrokerTls, PemPair, TlsFiles
from kbatch.testing.broker.security.client_settings import Login, settings_of, tls_settings
from kbatch.testing.broker.security.listeners import Listener
from kbatch.testing.broker.security.oauth import TokenIssuer
from kbatch.testing.broker.server import NOT_RUNNING, Server
from kbatch.testing.broker.share.share_state import ShareKey
from kbatch.testing.broker.status import PartitionStatus, node_states, partition_statuses

if TYPE_CHECKING:
    from _typeshed import StrPath

    from kbatch.testing.broker.cluster import ClusterPartition, Topic
    from kbatch.testing.broker.logs.partition import Partition
    from kbatch.testing.broker.logs.producer_state import ProducerDescription
    from kbatch.testing.broker.share.share_partition import SharePartitionDescription

T = TypeVar("T")
ListenerLike = Listener | str | tuple[str, Iterable[str]] | Mapping[str, Any]
MAX_PORT = 65_535
# Beside those of Options
KEYWORDS = ("topics", "directory", "nodes", "host", "port", "tls", "listeners", "acls", "authorizer", "seed")


class Broker:
    """Kafka brokers in this process, on loopback, from `start` (or entering the context) to `stop`.

    Parameters
    ----------
    topics : mapping of str to int or dict, or names
        Topics to have: name to number of partitions, or to {"partitions": n, any of Kafka's topic configs};
        names alone have one partition. Topics that already exist in the directory stay as they are.
    directory : path or None
        Store everything there, in Kafka's own segment files, and load existing files. None keeps all of it in
        memory, while the broker runs. Acknowledged records were passed to the operating system: they survive
        the death of the process (kill -9). Files are synced when a segment is full and at stop.
    nodes : int
        Brokers in the cluster, 0 to `nodes` - 1; leaders are spread over them. Each replica has a log of its
        own; with `directory` those of node 0 are in it, and those of others in folders `node1`, ... there.
    racks : iterable of str or None
        The rack of each node, by which readers are sent to a replica near them (KIP-392).
    log_dirs : int
        Log directories of each node; with `directory` the further ones are `disk1`, ... in the node's folder.
    replication_factor : int or None
        Replicas of topics that leave it open; None means as many as there are nodes, three at most.
    host : str
        Address to listen on. Another address than loopback is accepted with a warning if a listener lets
        any client in.
    port : int
        Port of node 0; the others follow, with a port for each listener. 0 chooses free ports.
    tls : bool, TlsFiles or None
        True makes an authority and certificates (needs the extra `testing`), TlsFiles are your own. Listeners
        with SSL need no `tls=True`; without `listeners` it makes the only one SSL, or SASL_SSL with `users`.
    listeners : iterable of Listener, (security protocol, mechanisms) or security protocol
        What each node listens with, in this order; `client_settings` says how a client reaches one. None is
        one listener: PLAINTEXT, or SASL_PLAINTEXT with `users`.
    users : mapping of str to str, or None
        Users and passwords for PLAIN and SCRAM, and clients of the token endpoint and their secrets.
    connections_max_reauth_ms : int
        The longest session of a SASL login, after which the client must log in again (KIP-368); 0 is no end.
    connection_failed_authentication_delay_ms : int
        Time until a failed login is answered, and its connection closed.
    acls : Acls, dict of its fields, or None
        Permissions of all clients alike; None allows all. `broker.acls` may be changed at any time.
    authorizer : bool, iterable of AclBinding, or None
        Kafka's authorizer with these ACLs, or with True none yet: clients may do what an ACL allows them. Not
        together with `acls`.
    super_users : iterable of str
        Principals that the authorizer lets do everything: "User:admin".
    allow_everyone_if_no_acl_found : bool
        True if the authorizer allows what is about a resource without any ACL.
    auto_create_topics : bool
        Create a topic when a client asks for it (auto.create.topics.enable).
    default_partitions : int
        Partitions of these topics, and of topics for which an admin client leaves it open (num.partitions).
    internal_topic_partitions : int
        Partitions of __consumer_offsets and __transaction_state (offsets.topic.num.partitions).
    transaction_version : 0, 1 or 2
        The feature level: 2 is KIP-890's second part.
    producer_snapshot_batches : int
        Number of a producer id's batches that survive a restart: Kafka's 1, or up to 5.
    group_initial_rebalance_delay_ms : int
        Time that a new classic group waits for more members; Kafka's default is 3000.
    group_max_size, group_consumer_max_size : int
        Members that a classic group, and one of KIP-848, may have (group.max.size).
    group_version : 0 or 1
        The feature level: 1 has the groups of KIP-848, which members join with group.protocol=consumer.
    group_consumer_heartbeat_interval_ms, group_consumer_session_timeout_ms : int
        What members of these groups are told to keep. Kafka's default interval is 5000, so that a rebalance
        takes seconds; here it is 500.
    share_version : 0 or 1
        The feature level: 1 has share groups.
    group_share_heartbeat_interval_ms, group_share_session_timeout_ms : int
        What members of share groups are told to keep; Kafka's default interval is 5000, here it is 500.
    group_share_record_lock_duration_ms, group_share_delivery_count_limit : int
        Time for which an acquired record is a member's, and how often it is delivered. Groups may have
        configs of their own, and so for the next two.
    group_share_partition_max_record_locks : int
        Records of a partition that a share group may have between the first that is not acknowledged and the
        last that was acquired.
    group_share_max_size, group_share_max_share_sessions : int
        Members of a share group, and share sessions of a node.
    group_consumer_assignment_interval_ms : int
        Least time from one assignment of such a group to the next; Kafka's default is 1000.
    group_consumer_migration_policy : str
        Which groups may change their protocol while they have members: "bidirectional" (Kafka's default),
        "upgrade", "downgrade" or "disabled".
    strict_batches : bool
        Also refuse batches that Kafka takes but no correct producer writes.
    min_insync_replicas : int
        min.insync.replicas of topics that do not set it.
    unclean_leader_election : bool
        unclean.leader.election.enable of topics that do not set it: a replica that lacks records may lead.
    eligible_leader_replicas : bool
        The feature of KIP-966: replicas that had everything may lead although they are out of sync.
    session_timeout_ms : int
        Time after which the controller fences a node that it does not hear (broker.session.timeout.ms).
    leader_rebalance : bool
        Preferred replicas lead again after five minutes at most (auto.leader.rebalance.enable).
    replica_lag_ms : int
        Time after which a follower that lags is out of sync (replica.lag.time.max.ms).
    seed : int or None
        Seed of everything random: ids.

    Raises
    ------
    ValueError, TypeError
        A parameter, or a topic's name or config, is invalid; the text names it.
    OSError
        The address or the directory cannot be used, or another broker uses the directory.
    """

    def __init__(
        self,
        topics: Mapping[str, int | Mapping[str, Any]] | Iterable[str] = (),
        *,
        directory: StrPath | None = None,
        nodes: int = 1,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: bool | TlsFiles | None = None,
        listeners: Iterable[ListenerLike] | None = None,
        acls: Acls | Mapping[str, object] | None = None,
        authorizer: bool | Iterable[AclBinding | tuple[object, ...]] | None = None,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        if nodes < 1:
            raise ValueError(f"nodes must be 1 or more, got {nodes}")
        check_names("Broker", options, [*KEYWORDS, *(option.name for option in fields(Options))])
        self._topics = _settings_of(topics)
        self._directory = Path(directory) if directory is not None else None
        self._nodes = nodes
        self._host = host
        chosen = _listeners_of(listeners, tls, options.get("users"))
        self._ports = _ports_of(port, nodes, len(chosen))
        super_users = tuple(options.pop("super_users", ()))
        racks = _racks_of(options.pop("racks", None), nodes)
        _check_replication_factor(options.get("replication_factor"), nodes)
        self._options = Options(**options, listeners=chosen, super_users=super_users, racks=racks)
        if not _is_loopback(host) and any(map(_lets_anyone_in, chosen)):
            warnings.warn(
                f"the broker listens on {host}: any client that reaches it can read and write everything",
                stacklevel=2,
            )
        self._tls = BrokerTls(tls if isinstance(tls, TlsFiles) else None, [host])
        self._contexts = [self._tls.server_context(each) if each.has_tls else None for each in chosen]
        self._tokens = TokenIssuer()
        # the port of the token endpoint, None without one
        self._token_port = 0 if self._has_tokens else None
        if self._has_tokens:
            self._tokens.prepare()
        self._access = _acls_of(authorizer)
        self._seed = seed
        self._acls = Acls.of(acls)
        if self._access is not None and self._acls.restrict_something:
            raise ValueError("give acls, for all clients alike, or authorizer with Kafka's ACLs, not both")
        self._server: Server | None = None
        self._running = ExitStack()

    # Lifecycle

    def start(self) -> Self:
        """Start all nodes, and return when they listen; raise OSError if one cannot.

        After `stop` the broker may be started again, on the same ports.
        """
        if self._server is not None:
            raise IllegalStateError("the broker runs already")
        with ExitStack() as running:
            if self._directory is not None:
                self._directory.mkdir(parents=True, exist_ok=True)
                running.enter_context(locked(self._directory))
            core = BrokerCore(self._new_state())
            running.callback(core.state.close)
            for name, settings in self._topics.items():
                if name not in core.state.cluster.topics:
                    _create_topic(core, name, **settings)
            server = Server(core, self._host, self._ports, tls=self._contexts, token_port=self._token_port)
            running.callback(server.stop)
            server.start()
            self._ports = [node.ports for node in core.state.cluster.nodes]
            self._token_port = server.token_port
            self._server = server
            self._running = running.pop_all()
        return self

    def stop(self) -> None:
        """Close all connections and files. A second call does nothing."""
        if self._server is not None:
            self._running.close()
            self._server = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """Return all nodes' addresses, as clients take them, of the first listener."""
        return self._addresses(0)

    @property
    def addresses(self) -> list[str]:
        """Return all nodes' addresses of each listener, in the order of the listeners."""
        return [self._addresses(number) for number in range(len(self._options.listeners))]

    def _addresses(self, listener: int) -> str:
        if self._server is None:
            raise IllegalStateError(NOT_RUNNING)
        return ",".join(f"{self._url_host}:{ports[listener]}" for ports in self._ports)

    @property
    def _url_host(self) -> str:
        return f"[{self._host}]" if ":" in self._host else self._host

    @property
    def acls(self) -> Acls:
        """Return the permissions of clients; the fields, or the whole property, may be set."""
        return self._acls

    @acls.setter
    def acls(self, acls: Acls | Mapping[str, object] | None) -> None:
        self._acls = Acls.of(acls)
        if self._server is not None:
            self._server.core.state.acls = self._acls

    # Clients

    def client_settings(
        self,
        security_protocol: str | None = None,
        mechanism: str | None = None,
        *,
        user: str | None = None,
        password: str | None = None,
        dialect: str = "java",
    ) -> dict[str, str]:
        """Return what a client needs to reach a listener and to log in there, `bootstrap.servers` included.

        Parameters
        ----------
        security_protocol, mechanism : str or None
            Of the listener; the first that has both is taken.
        user : str or None
            Who logs in, or the name in the client's certificate. None takes the first of `users`.
        password : str or None
            None takes the user's. Give another to see a login fail.
        dialect : str
            "java" for the keys of Kafka's client, which kbatch takes too; "librdkafka" for confluent-kafka.

        Raises
        ------
        ValueError
            There is no such listener or user.
        """
        listeners = self._options.listeners
        index = next(
            (
                number
                for number, each in enumerate(listeners)
                if security_protocol in (None, each.security_protocol)
                and (mechanism is None or mechanism in each.mechanisms)
            ),
            None,
        )
        if index is None:
            known = "; ".join(f"{each.security_protocol} {','.join(each.mechanisms)}" for each in listeners)
            raise ValueError(f"no listener has {security_protocol} with {mechanism}; there are: {known}")
        listener = listeners[index]
        users = self._options.users or {}
        name = user if user is not None else next(iter(users), "client")
        login = None
        if listener.has_sasl:
            secret = users.get(name) if password is None else password
            if secret is None and not listener.unsecured_tokens:
                raise ValueError(f"unknown user {name!r}: give its password; users are {', '.join(users)}")
            url = self.token_endpoint_url if self._has_tokens else None
            login = Login(mechanism or listener.mechanisms[0], name, secret or "", url)
        trust, certificate = tls_settings(self._tls, listener, name)
        return settings_of(dialect, self._addresses(index), listener, trust, certificate, login)

    @property
    def authority_pem(self) -> str:
        """Return the certificates that clients of the TLS listeners trust, as PEM text.

        Raises ValueError if no listener has TLS.
        """
        if not any(each.has_tls for each in self._options.listeners):
            raise ValueError("no listener has SSL or SASL_SSL")
        return self._tls.authority_pem

    def client_certificate(self, name: str) -> PemPair:
        """Return a certificate, and its key, whose subject CN=`name` is the principal on an SSL listener."""
        return self._tls.client(name)

    def token(self, user: str, lifetime: float = 3600.0, *, unsecured: bool = False, **claims: Any) -> str:
        """Return a token that OAUTHBEARER listeners take for `user`, for `lifetime` seconds from now.

        A negative lifetime makes one that has expired, `unsecured` one without a signature. `claims` are
        added, or replace the usual ones: `aud`, `iss`, `sub`, `iat`, `exp`, `jti`.
        """
        now_ms = int(time.time() * 1000)
        return self._tokens.token(user, round(lifetime * 1000), now_ms, unsecured=unsecured, claims=claims)

    @property
    def token_endpoint_url(self) -> str:
        """Return the address where `users` get tokens for their names and passwords (RFC 6749).

        It is there if a listener has OAUTHBEARER.
        """
        return f"{self._endpoint}/token"

    @property
    def jwks_url(self) -> str:
        """Return the address of the key that signs tokens (RFC 7517), beside the token endpoint."""
        return f"{self._endpoint}/jwks"

    @property
    def _endpoint(self) -> str:
        if self._server is None:
            raise IllegalStateError(NOT_RUNNING)
        if not self._has_tokens:
            raise ValueError("no listener has OAUTHBEARER with signed tokens")
        return f"http://{self._url_host}:{self._token_port}"

    @property
    def _has_tokens(self) -> bool:
        return any(
            "OAUTHBEARER" in each.mechanisms and not each.unsecured_tokens for each in self._options.listeners
        )

    # Topics and nodes

    def create_topic(self, name: str, partitions: int = 1, **configs: Any) -> None:
        """Create a topic; `configs` are Kafka's topic configs, with underscores or dots."""
        self._call(lambda core: _create_topic(core, name, partitions, **configs))

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its records."""
        self._call(lambda core: core.state.delete_topic(_topic(core, name).name))

    def create_partitions(self, name: str, count: int) -> None:
        """Extend a topic to `count` partitions."""
        self._call(lambda core: core.state.cluster.create_partitions(_topic(core, name).name, count))

    def alter_configs(
        self,
        *,
        topic: str | None = None,
        group: str | None = None,
        set: Mapping[str, object] | None = None,
        reset: Iterable[str] = (),
    ) -> None:
        """Set configs of a topic or of a group, and reset others to their defaults, as admin clients do.

        A group may have configs before it exists: `alter_configs(group="workers",
        set={"share.auto.offset.reset": "earliest"})`. Raises ValueError for an unknown topic, key or value;
        then nothing has changed.
        """
        named = [(TOPIC_RESOURCE, topic), (GROUP_RESOURCE, group)]
        resources = [(kind, name) for kind, name in named if name is not None]
        if len(resources) != 1:
            raise ValueError(
                f"alter_configs changes a topic or a group, got topic={topic!r}, group={group!r}"
            )
        changes = {key: _config_text(value) for key, value in (set or {}).items()}
        self._call(lambda core: change_configs(core.state, *resources[0], changes, reset))

    def quota(
        self,
        *,
        user: str | None = None,
        client_id: str | None = None,
        ip: str | None = None,
        produce: float | None = None,
        fetch: float | None = None,
        request: float | None = None,
        mutations: float | None = None,
        connections: float | None = None,
    ) -> None:
        """Set the quotas of a client, a user, a client of a user, or an address; None removes one.

        Parameters
        ----------
        user, client_id : str or None
            Who: "ANONYMOUS" is who has not logged in, "*" all that have no quota of their own.
        produce, fetch : float or None
            Bytes a second, at each node. A client may use in a moment what it may in ten seconds.
        request : float or None
            Percent of the broker's thread, at each node, for requests of all kinds. Who exceeds it waits
            for a second at most, after every request.
        mutations : float or None
            Partitions created and deleted, a second.
        ip, connections : str, float or None
            An address, or "*", and the connections that it may make in a second, at each node: those above
            that are closed after a moment.
        """
        named = {USER: user, CLIENT_ID: client_id, IP: ip}
        names = {kind: DEFAULT if name == "*" else name for kind, name in named.items() if name is not None}
        of_clients = {
            PRODUCER_BYTE_RATE: produce,
            CONSUMER_BYTE_RATE: fetch,
            REQUEST_PERCENTAGE: request,
            MUTATION_RATE: mutations,
        }
        of_addresses = {CONNECTION_RATE: connections}
        limits = of_clients if ip is None else of_addresses
        unused = of_addresses if ip is None else of_clients
        if any(value is not None for value in unused.values()):
            raise ValueError("connections are limited by ip, and all else by user or client_id")

        def change(core: BrokerCore) -> None:
            entity = checked_entity(names)
            for key, value in limits.items():
                check_limit(entity, key, value)
            core.state.cluster.change_quotas(entity, limits)

        self._call(change)

    def move_leader(self, topic: str, partition: int, node: int, unclean: bool = False) -> None:
        """Make another in-sync replica the partition's leader, in a new leader epoch.

        With `unclean` any replica may lead that runs: what it lacks is lost. Raises ValueError for another.
        """

        def move(core: BrokerCore) -> None:
            _partition(core, topic, partition)
            core.state.move_leader(topic, partition, node, unclean=unclean)

        self._call(move)

    def elect_leader(self, topic: str, partition: int, unclean: bool = False) -> None:
        """Elect the preferred replica, the first of the assignment; with `unclean` any replica that runs, if
        the partition has no leader.

        Raises ValueError if that replica leads already, is not in sync, or does not run.
        """

        def elect(core: BrokerCore) -> None:
            _partition(core, topic, partition)
            core.state.elect_leader(topic, partition, unclean=unclean)

        self._call(elect)

    def reassign(self, topic: str, partition: int, replicas: Sequence[int]) -> None:
        """Begin to move a partition to other nodes; it is done when all of them are in sync.

        Raises ValueError for nodes that there are not, and for one that is named twice.
        """
        self._reassign(topic, partition, list(replicas))

    def cancel_reassignment(self, topic: str, partition: int) -> None:
        """Go back to the replicas of before `reassign`; raises ValueError if it is done already."""
        self._reassign(topic, partition, None)

    def _reassign(self, topic: str, partition: int, target: list[int] | None) -> None:
        def act(core: BrokerCore) -> None:
            _partition(core, topic, partition)
            core.state.reassign(topic, partition, target)

        self._call(act)

    def fail_over_controller(self) -> None:
        """Have another controller be the active one; preferred replicas that are in sync lead again."""
        self._call(lambda core: core.state.fail_over_controller())

    def delay_leaders(self, seconds: float, node: int | None = None) -> None:
        """Have nodes answer only so long after they begin to lead a partition, from now on; 0 ends it.

        Until then they answer NOT_LEADER_OR_FOLLOWER, with themselves as the leader, as Kafka may do for a
        moment for a new topic. Without `node` all nodes do so.
        """
        delay_ms = milliseconds(seconds)

        def delay(core: BrokerCore) -> None:
            nodes = core.state.cluster.nodes if node is None else [core.state.cluster.node(node)]
            for each in nodes:
                each.lead_delay_ms = delay_ms

        self._call(delay)

    def delay_coordinators(self, seconds: float) -> None:
        """Have nodes load for so long before they coordinate, after they are elected, from now on; 0 ends it.

        Until then they answer COORDINATOR_LOAD_IN_PROGRESS. A coordinator that has stored nothing loads
        nothing.
        """
        delay_ms = milliseconds(seconds)

        def delay(core: BrokerCore) -> None:
            core.state.coordinators.load_ms = delay_ms

        self._call(delay)

    def hide_requests(self, node: int, *apis: str) -> None:
        """Leave these requests out of the node's answers to ApiVersions, as a broker does that is half
        started or downgraded. Without `apis` the answers are whole again. Connections stay.
        """
        hidden = frozenset(map(request_class, apis))

        def hide(core: BrokerCore) -> None:
            core.state.cluster.node(node).hidden = hidden

        self._call(hide)

    def stop_node(self, node: int) -> None:
        """End a node cleanly: other in-sync replicas lead what it led, and its connections are cut.

        A node that does not run stays as it is.
        """
        self._end_node(node, lambda core: core.state.stop_node(node))

    def kill_node(self, node: int, lose: bool = False, at_once: bool = True) -> None:
        """End a node as with kill -9: its connections are cut, and nobody is told.

        The controller notices at once, or with `at_once=False` when the node's session is over; until then
        its partitions have a leader that does not answer. With `lose` its machine dies too: its replicas
        lose what was not flushed, which is all since their last segment began.
        """
        self._end_node(node, lambda core: core.state.kill_node(node, at_once=at_once, lose=lose))

    def _end_node(self, node: int, end: Callable[[BrokerCore], None]) -> None:
        server = self._running_server

        def act(core: BrokerCore) -> None:
            if core.state.cluster.node(node).is_running:
                server.close_node(node)
                end(core)

        self._call(act)

    def start_node(self, node: int) -> None:
        """Make the node listen again, on its earlier port. A running node stays as it is."""
        if not self._call(lambda core: core.state.cluster.node(node).is_running):
            self._running_server.start_listening(node)
            self._call(lambda core: core.state.start_node(node))

    def rolling_restart(self, timeout: float = 60.0) -> Iterator[int]:
        """Restart one node after another, cleanly: yields each while it is down.

        Then it is started, and the next one waits until all replicas are in sync again.
        """
        for node in range(self._nodes):
            self.stop_node(node)
            yield node
            self.start_node(node)
            self.wait_in_sync(timeout=timeout)

    def pause_node(self, node: int) -> None:
        """Stop a node as with SIGSTOP: connections stay, nothing is answered, and in time it is fenced."""
        self._call(lambda core: core.state.outages.pause(node, core.state.now_ms))

    def resume_node(self, node: int) -> None:
        """Let a paused node go on: it first answers what it was sent, as if nothing had changed meanwhile."""
        server = self._running_server

        def resume(core: BrokerCore) -> None:
            core.state.outages.resume(node)
            server.go_on()
            core.state.outages.catch_up(core.state.now_ms)
            core.state.all_changed()

        self._call(resume)

    def fail_log_dir(self, node: int, number: int = 0) -> None:
        """Have a disk of a node fail: the partitions in that log directory are offline there.

        Others lead what it led. A node with no other directory (`log_dirs`) ends, as Kafka does. When the
        node is started again, the disk is a new, empty one; what shares a log is still there.
        """
        server = self._running_server

        def fail(core: BrokerCore) -> None:
            core.state.fail_log_dir(node, number)
            if not core.state.cluster.node(node).is_running:
                server.close_node(node)

        self._call(fail)

    # The network

    def isolate(self, node: int, from_: Iterable[int | str] = ("brokers", "controller", "clients")) -> None:
        """Cut a node off from others: ids of nodes, "brokers" (all others), "controller", "clients".

        Nothing comes through, and no connection breaks. A leader that does not reach the controller goes on
        as it was, although the controller fences it in time, and lets another lead.
        """
        parties = list(from_)
        self._call(lambda core: core.state.outages.isolate(node, parties, core.state.now_ms))

    def partition_network(self, groups: Iterable[Iterable[int | str]]) -> None:
        """Cut the members of each group off from those of the others: [{0}, {1, 2, "controller"}].

        Members are ids of nodes, "controller" and "clients"; who is in no group reaches all.
        """
        sets = [set(group) for group in groups]
        self._call(lambda core: core.state.outages.divide(sets, core.state.now_ms))

    def heal(self) -> None:
        """End what `isolate` and `partition_network` did."""
        server = self._running_server

        def mend(core: BrokerCore) -> None:
            core.state.outages.mend_clients()
            server.go_on()
            core.state.outages.heal(core.state.now_ms)
            core.state.all_changed()

        self._call(mend)

    def delay_replication(
        self,
        seconds: float,
        topic: str | None = None,
        partition: int | None = None,
        node: int | None = None,
    ) -> None:
        """Delay the fetches of followers from now on: of a partition or of all, by one node or by all.

        0 ends the delay that was given for the same.
        """
        if (topic is None) != (partition is None):
            raise ValueError("give topic and partition, or none of them")
        delay_ms = milliseconds(seconds)
        key = None if topic is None or partition is None else (topic, partition)

        def delay(core: BrokerCore) -> None:
            if key is not None:
                _partition(core, *key)
            if node is not None:
                core.state.cluster.node(node)
            core.state.replication.delay(delay_ms, key, node)

        self._call(delay)

    # Replicas

    def leader(self, topic: str, partition: int) -> int:
        """Return the node that leads, as the controller knows it; -1 if there is none."""
        return self._call(lambda core: _partition(core, topic, partition).leader)

    def leader_epoch(self, topic: str, partition: int) -> int:
        """Return the number of the leader's term, as the controller knows it."""
        return self._call(lambda core: _partition(core, topic, partition).leader_epoch)

    def replicas(self, topic: str, partition: int) -> list[int]:
        """Return the nodes with a replica, the preferred leader first."""
        return self._call(lambda core: _partition(core, topic, partition).replicas)

    def isr(self, topic: str, partition: int) -> list[int]:
        """Return the in-sync replicas, as the controller knows them."""
        return self._call(lambda core: list(_partition(core, topic, partition).registration.isr))

    def elr(self, topic: str, partition: int) -> list[int]:
        """Return the eligible leaders that are not in sync (KIP-966)."""
        return self._call(lambda core: list(_partition(core, topic, partition).registration.elr))

    def high_watermark(self, topic: str, partition: int, node: int | None = None) -> int:
        """Return the high watermark that a node knows; without `node`, the leader."""
        return self._call(lambda core: _log(core, topic, partition, node).high_watermark)

    def log_end_offset(self, topic: str, partition: int, node: int | None = None) -> int:
        """Return the offset of the next record in a node's log; without `node`, the leader's."""
        return self._call(lambda core: _log(core, topic, partition, node).log_end_offset)

    def lag(self, topic: str, partition: int) -> dict[int, int]:
        """Return how many records each replica lacks that the leader has; negative: it has more."""

        def lags(core: BrokerCore) -> dict[int, int]:
            known = _partition(core, topic, partition)
            end_offset = known.log.log_end_offset
            return {node: end_offset - copy.log.log_end_offset for node, copy in known.copies.items()}

        return self._call(lags)

    def status(self) -> list[PartitionStatus]:
        """Return how each partition and its replicas are, without internal topics."""
        return self._call(lambda core: partition_statuses(core.state.cluster))

    def node_states(self) -> dict[int, str]:
        """Return how each node is: "running", "fenced" (it runs, and may not lead), "paused" or "down"."""
        return self._call(lambda core: node_states(core.state.cluster))

    def wait_in_sync(self, topic: str | None = None, timeout: float = 60.0) -> None:
        """Wait until all replicas, of a topic or of all, are in sync, have the same log, and know it.

        Raises TimeoutError, which names partitions that are not, after `timeout` seconds of the broker's
        clock.
        """
        if topic is not None:
            self._call(lambda core: _topic(core, topic))
        self._running_server.wait_in_sync(topic, milliseconds(timeout))

    def advance(self, seconds: float) -> None:
        """Let the broker's clock run ahead: sessions, lags and retention end without waiting."""
        server, duration_ms = self._running_server, milliseconds(seconds)
        self._call(lambda core: server.advance(duration_ms))

    # Faults

    def fail_next(
        self,
        api: str,
        error: str | int,
        times: int = 1,
        node: int | None = None,
        topic: str | None = None,
        partition: int | None = None,
    ) -> None:
        """Answer the next `times` requests of `api` ("Produce", "Metadata", ...) with `error`.

        `error` is a name or number of Kafka's, for every item of the request; the request has no effect. A
        request without items has no place for the error, but counts. With `node` only requests to that node
        count, with `topic` and `partition` only this partition fails, and the others of the request do not.
        """
        scope = Scope(node, topic, partition)
        self._call(lambda core: core.faults.fail_next(api, error, times, _checked(core, scope)))

    def drop_connection(
        self, api: str, when: str = "before", times: int = 1, node: int | None = None
    ) -> None:
        """Close the connections of the next `times` requests of `api`, "before" or "after" their effect; with
        `node` of those to that node.
        """
        scope = Scope(node)
        self._call(lambda core: core.faults.drop_connection(api, when, times, _checked(core, scope)))

    def fail_authentication(self, times: int = 1) -> None:
        """Refuse the next `times` logins by SASL, right or wrong, as for a wrong password."""
        self.fail_next("SaslAuthenticate", "SASL_AUTHENTICATION_FAILED", times)

    def expire_sessions(self) -> None:
        """End the sessions of all who logged in by SASL: their next request closes its connection."""

        def expire(core: BrokerCore) -> None:
            core.state.session_generation += 1

        self._call(expire)

    def tls_break(self, api: str = "Produce", times: int = 1) -> None:
        """Send a broken TLS record instead of the next `times` answers of `api`; the requests take effect.

        On listeners without TLS it has no effect, but counts.
        """
        self._call(lambda core: core.faults.tls_break(api, times))

    def delay(self, api: str, seconds: float, node: int | None = None) -> None:
        """Delay all answers of `api` from now on, of a node or of all; 0 ends it."""
        scope = Scope(node)
        self._call(lambda core: core.faults.delay(api, seconds, _checked(core, scope).node))

    def throttle(self, seconds: float) -> None:
        """Throttle clients from now on: every answer says so, and the connection is not read for so long
        (KIP-219).

        0 ends it.
        """
        self._call(lambda core: core.faults.throttle(seconds))

    def intercept(self, api: str, function: Interceptor | None) -> None:
        """Call `function(request)` for each request of `api`, before the broker handles it.

        It returns None to continue, or an error (as for `fail_next`) or the response to answer with. It runs
        in the broker's thread, and may call the broker. If it raises, the connection is closed. None ends it.
        """
        self._call(lambda core: core.faults.intercept(api, function))

    def clear_faults(self) -> None:
        """End all of `fail_next`, `fail_authentication`, `drop_connection`, `tls_break`, `delay`, `throttle`
        and `intercept`.
        """

        def clear(core: BrokerCore) -> None:
            core.faults = Faults()

        self._call(clear)

    def hold_high_watermark(self, topic: str, partition: int, hold: bool = True) -> None:
        """Stop the high watermark, as if the followers stopped, until it is released.

        Records appended meanwhile are neither acknowledged with acks=all nor read.
        """

        def set_hold(core: BrokerCore) -> None:
            _partition(core, topic, partition)
            core.state.hold_high_watermark(topic, partition, hold)

        self._call(set_hold)

    def forget_producers(self, topic: str, partition: int) -> None:
        """Forget the partition's producer ids, as after producer.id.expiration.ms.

        An open transaction keeps its producer id.
        """
        self._call(lambda core: _partition(core, topic, partition).log.forget_producers())

    # Looking inside

    def records(self, topic: str, partition: int | None = None, *, committed: bool = True) -> list[Record]:
        """Return the records of a partition, or of all, one after another, without control records.

        `committed` returns the records that a read_committed consumer sees. Otherwise those of open and
        aborted transactions, and those above a held high watermark, are returned too.
        """
        return [
            record
            for log_start_offset, batch in self._call(partial(_batches, topic, partition, committed))
            if not batch.is_control
            for record in batch
            if record.offset >= log_start_offset
        ]

    def batches(self, topic: str, partition: int | None = None, node: int | None = None) -> list[RecordBatch]:
        """Return the record batches of a partition as its log stores them, with control batches.

        Without `partition`, return those of all, one after another; without `node`, those that leaders have.
        """
        return [batch for _, batch in self._call(partial(_batches, topic, partition, False, node=node))]

    def subscribe_to_metrics(self, *prefixes: str, interval_ms: int = 1000) -> None:
        """Let clients with enable.metrics.push push metrics whose names begin so, "*" for all (KIP-714). They
        know it at their next request for subscriptions: the first is sent at once, others every interval.
        It is a subscription beside those that clients make by configs of client_metrics.
        """
        self._call(lambda core: core.state.metric_subscriptions.subscribe(prefixes, interval_ms))

    def pushed_metrics(self) -> list[PushedMetrics]:
        """Return what clients have pushed so far."""
        return self._call(lambda core: list(core.state.telemetry.pushed))

    def requests(self, api: str | None = None) -> list[ReceivedRequest]:
        """Return the requests so far (the last 10,000), or those of one API."""
        if api is not None:
            request_class(api)  # ValueError for an unknown name
        received = self._call(lambda core: list(core.requests))
        return [request for request in received if api in (None, request.api)]

    def producer_state(
        self, topic: str, partition: int, node: int | None = None
    ) -> list[ProducerDescription]:
        """Return the state of each producer id that a node's replica has; without `node`, the leader's."""
        return self._call(lambda core: _log(core, topic, partition, node).describe_producers())

    def share_partition(self, group: str, topic: str, partition: int) -> SharePartitionDescription | None:
        """Return what the partition's leader knows of a share group's deliveries.

        It is None if no member has fetched from this leader yet: then all that counts is stored. Raises
        ValueError for a partition that does not exist.
        """

        def describe(core: BrokerCore) -> SharePartitionDescription | None:
            found = _partition(core, topic, partition)
            key = ShareKey(group, found.topic.topic_id, partition)
            share = core.state.share_partitions.find(key, found)
            return None if share is None else share.describe()

        return self._call(describe)

    def _new_state(self) -> BrokerState:
        return BrokerState(
            options=self._options,
            directory=self._directory,
            rng=random.Random(self._seed),
            now_ms=int(time.time() * 1000),
            node_count=self._nodes,
            acls=self.acls,
            access=self._access,
            tokens=self._tokens,
            clock_ns=time.perf_counter_ns,
        )

    def _call(self, action: Callable[[BrokerCore], T]) -> T:
        """Run `action` in the broker's thread; a BrokerError becomes a ValueError."""
        server = self._running_server
        try:
            return server.call(lambda: action(server.core))
        except BrokerError as error:
            raise ValueError(str(error)) from error

    @property
    def _running_server(self) -> Server:
        if self._server is None:
            raise IllegalStateError(NOT_RUNNING)
        return self._server


def _listeners_of(
    listeners: Iterable[ListenerLike] | None,
    tls: bool | TlsFiles | None,
    users: Mapping[str, str] | None,
) -> tuple[Listener, ...]:
    if listeners is None:
        layer = "SSL" if tls else "PLAINTEXT"
        return (Listener(f"SASL_{layer}" if users is not None else layer),)
    chosen = (listeners,) if isinstance(listeners, str | Listener) else listeners
    made = tuple(Listener.of(each) for each in chosen)
    if not made:
        raise ValueError("listeners must name at least one")
    if tls and not any(each.has_tls for each in made):
        raise ValueError("tls was given, but no listener has SSL or SASL_SSL")
    return made


def _ports_of(port: int, nodes: int, listeners: int) -> list[list[int]]:
    """Return the ports of each node, 0 for free ones."""
    count = nodes * listeners
    if port and not 0 < port <= MAX_PORT + 1 - count:
        raise ValueError(
            f"port must leave room for {nodes} nodes below {MAX_PORT + 1}"
            + (f", {listeners} listeners each" if listeners > 1 else "")
            + f", got {port}"
        )
    return [
        [port + node * listeners + number if port else 0 for number in range(listeners)]
        for node in range(nodes)
    ]


def _acls_of(authorizer: bool | Iterable[AclBinding | tuple[object, ...]] | None) -> list[AclBinding] | None:
    if authorizer is None or isinstance(authorizer, bool):
        return [] if authorizer else None
    return [AclBinding.of(each) for each in authorizer]


def _lets_anyone_in(listener: Listener) -> bool:
    return not listener.has_sasl and listener.client_auth != "required"


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _settings_of(topics: Mapping[str, int | Mapping[str, Any]] | Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the keyword arguments of `create_topic` by topic."""
    if isinstance(topics, str):
        raise TypeError(f"topics must be a mapping or a list of names; for one topic write [{topics!r}]")
    if not isinstance(topics, Mapping):
        return {name: {} for name in topics}
    settings = {}
    for name, wanted in topics.items():
        if not isinstance(wanted, int | Mapping):
            raise TypeError(
                f"topics[{name!r}] must be a number of partitions, or a mapping of configs, got {wanted!r}"
            )
        settings[name] = {"partitions": wanted} if isinstance(wanted, int) else dict(wanted)
    return settings


def _create_topic(core: BrokerCore, name: str, partitions: int = 1, **configs: Any) -> None:
    overrides = {key.replace("_", "."): _config_text(value) for key, value in configs.items()}
    try:
        core.state.cluster.create_topic(name, partitions, configs=overrides)
    except BrokerError as error:
        raise ValueError(f"topic {name!r}: {error}") from error


def _checked(core: BrokerCore, scope: Scope) -> Scope:
    """Return the scope, if its node, topic and partition are there."""
    if scope.node is not None:
        core.state.cluster.node(scope.node)
    if scope.topic is not None and scope.partition is not None:
        _partition(core, scope.topic, scope.partition)
    return scope


def _topic(core: BrokerCore, name: str) -> Topic:
    topics = core.state.cluster.topics
    if name not in topics:
        near = difflib.get_close_matches(name, topics, 1)
        raise ValueError(f"unknown topic {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
    return topics[name]


def _partition(core: BrokerCore, topic: str, index: int) -> ClusterPartition:
    partitions = _topic(core, topic).partitions
    if not 0 <= index < len(partitions):
        raise ValueError(f"partition of topic {topic!r} must be 0 to {len(partitions) - 1}, got {index}")
    return partitions[index]


def _log(core: BrokerCore, topic: str, index: int, node: int | None) -> Partition:
    """Return a node's log of a partition, or the leader's."""
    partition = _partition(core, topic, index)
    if node is None:
        return partition.log
    if node not in partition.copies:
        nodes = ", ".join(map(str, partition.copies))
        raise ValueError(f"node {node} has no replica of {topic}-{index}; choose one of {nodes}")
    return partition.copies[node].log


def _batches(
    topic: str, partition: int | None, committed: bool, core: BrokerCore, node: int | None = None
) -> list[tuple[int, RecordBatch]]:
    """Return the batches of a partition or of all, each with the start offset of its log."""
    indexes = range(len(_topic(core, topic).partitions)) if partition is None else [partition]
    return [
        (log.log_start_offset, batch)
        for log in (_log(core, topic, index, node) for index in indexes)
        for batch in log.batches(log.log_start_offset)
        if not committed or log.is_committed(batch)
    ]


def _racks_of(racks: Iterable[str | None] | None, nodes: int) -> tuple[str | None, ...]:
    if isinstance(racks, str):
        raise TypeError(f"racks must be a name for each node, got the text {racks!r}")
    named = tuple(racks or ())
    if named and len(named) != nodes:
        raise ValueError(f"racks must name one for each of {nodes} nodes, or None, got {len(named)}")
    return named


def _check_replication_factor(count: int | None, nodes: int) -> None:
    if count is not None and not 1 <= count <= nodes:
        raise ValueError(f"replication_factor must be 1 to {nodes}, the number of nodes, got {count!r}")


def _config_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
