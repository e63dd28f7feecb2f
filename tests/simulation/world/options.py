"""The options of a world, all drawn from its seed, including the rates of faults.

Each kind of fault is absent from most worlds and has a different rate in each of the others. So some seeds
have one kind often and alone, and some have many at once.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

CODECS = ("none", "none", "none", "lz4", "zstd", "snappy", "gzip")


@dataclass(frozen=True, slots=True)
class RequestFaults:
    """Probabilities (0 to 1) that a Produce request meets a fault; other requests meet the first three.

    Attributes
    ----------
    drop_before, drop_after : float
        The connection breaks before the request is executed, or after it, before its answer.
    delay : float
        The answer comes late, up to `delay_ms`.
    error_before : float
        It is answered with an error and not executed.
    error_after : float
        It is executed, and answered with an error that leaves this open.
    silence : float
        The connection is dead, before or after the request, and the client gets no notice.
    drop_partway : float
        The connection breaks while a request is being written.
    late : float
        Bytes in flight when a connection broke still arrive at the broker, up to `late_ms` later.
    throttle : float
        The answer says that the client is throttled, up to `throttle_ms`.
    duplicate : float
        The broker gets it on two connections, as from a proxy that repeats what it thinks lost, and executes
        it twice. The client gets the second answer.
    duplicate_code : float
        A batch that is in the log already is answered with DUPLICATE_SEQUENCE_NUMBER, as by a broker that
        does not know its offset.
    """

    drop_before: float
    drop_after: float
    delay: float
    error_before: float
    error_after: float
    silence: float
    drop_partway: float
    late: float
    throttle: float
    delay_ms: int
    late_ms: int
    throttle_ms: int
    duplicate: float = 0.0
    duplicate_code: float = 0.0

    RATES: ClassVar = (
        "drop_before",
        "drop_after",
        "delay",
        "error_before",
        "error_after",
        "silence",
        "drop_partway",
        "late",
        "throttle",
    )

    @classmethod
    def draw(cls, draw: Draw) -> RequestFaults:
        return cls(
            drop_before=draw.rate(0.3),
            drop_after=draw.rate(0.3),
            delay=draw.rate(0.5),
            error_before=draw.rate(0.3),
            error_after=draw.rate(0.3),
            silence=draw.rate(0.1),
            drop_partway=draw.rate(0.2),
            late=draw.chance(0.5, draw.random.random(), 0.0),
            throttle=draw.rate(0.2),
            delay_ms=draw.of(10, 100, 1000, 5000),
            late_ms=draw.of(1, 10, 200, 2000),
            throttle_ms=draw.of(5, 50, 500),
        )


@dataclass(frozen=True, slots=True)
class ClusterFaults:
    """Rates of cluster faults: how often each happens in a virtual second.

    Attributes
    ----------
    move_leader : float
        Another node leads a partition.
    leave_leaderless : float
        All replicas of a partition are away for a while.
    stop_node, pause_node : float
        A node is down for a while; or up, but doing nothing.
    restart : float
        All nodes restart: they know only the last batch of each producer id.
    forget : float
        A partition without batches in flight forgets all producer ids.
    grow, recreate, hide : float
        A topic gets one more partition; is deleted and created again; is unknown to the cluster for a while.
    remake : float
        A topic is deleted and created again with another number of partitions, often fewer.
    replace_cluster : float
        Another cluster has the addresses, with topics of the same names and other numbers of partitions.
    half_start : float
        A node restarts, and its ApiVersions lack Produce or InitProducerId for a while.
    shrink : float
        A topic accepts only smaller batches for a while.
    break_connections : float
        All connections of a node break.
    step_clock : float
        The wall clock steps.
    hold : float
        Nothing that is sent to a partition is replicated for a while.
    fail_over : float
        The same; then its leader dies, and another node leads with the replicated records.
    elect_unclean : float
        The same, but the new leader lacks some of the replicated records too.
    """

    move_leader: float
    leave_leaderless: float
    stop_node: float
    pause_node: float
    restart: float
    forget: float
    grow: float
    recreate: float
    hide: float
    shrink: float
    break_connections: float
    step_clock: float
    hold: float
    fail_over: float = 0.0
    elect_unclean: float = 0.0
    remake: float = 0.0
    half_start: float = 0.0
    replace_cluster: float = 0.0

    @classmethod
    def draw(cls, draw: Draw) -> ClusterFaults:
        return cls(
            move_leader=draw.rate(30, 0.4),
            leave_leaderless=draw.rate(2),
            stop_node=draw.rate(4),
            pause_node=draw.rate(4),
            restart=draw.rate(20),
            forget=draw.rate(10),
            grow=draw.rate(2),
            recreate=draw.rate(1, 0.15),
            hide=draw.rate(2),
            shrink=draw.rate(4),
            break_connections=draw.rate(30, 0.4),
            step_clock=draw.rate(3),
            hold=draw.rate(4),
        )


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The options of the brokers and their topics.

    Attributes
    ----------
    partition_counts : dict of str to int
    log_append_time : frozenset of str
        Topics whose timestamps are the broker's.
    latency_ms : (float, float)
        The shortest and the longest latency of one way.
    broken_addresses : int
        Addresses of each node's name at which no node listens, before the right one.
    first_epoch : int
        The epoch of a new producer id.
    transaction_version : int
        The transaction.version at first.
    metadata_version : int or None
        The highest version of Metadata that brokers offer: below 10 there are no topic ids, and below 9 no
        reliable epochs. None for the latest.
    broker : dict of str
        Other options of the brokers.
    """

    node_count: int
    partition_counts: dict[str, int]
    log_append_time: frozenset[str]
    latency_ms: tuple[float, float]
    broken_addresses: int
    first_epoch: int
    chunk_bytes: int
    transaction_version: int = 2
    broker: dict[str, Any] = field(default_factory=dict)
    metadata_version: int | None = None

    @property
    def round_trip_ms(self) -> int:
        """Return the longest time of a request without faults."""
        writing_ms = 30 if self.chunk_bytes < 1000 else 0
        return int(writing_ms + 3 * self.latency_ms[1])

    @classmethod
    def draw(cls, draw: Draw) -> ClusterOptions:
        names = ["events", "orders"][: draw.of(1, 1, 2)]
        latency_ms = draw.of(0.05, 0.5, 5.0, 20.0)
        return cls(
            node_count=draw.of(1, 2, 3, 3, 5),
            partition_counts={name: draw.of(1, 1, 2, 3, 4) for name in names},
            log_append_time=frozenset(name for name in names if draw.random.random() < 0.2),
            latency_ms=(latency_ms, latency_ms * draw.of(1, 2, 4)),
            broken_addresses=draw.chance(0.1, 1, 0),
            first_epoch=draw.chance(0.4, 32_767 - draw.of(0, 0, 1, 3), 0),
            chunk_bytes=draw.of(7, 100, 1 << 20, 1 << 20, 1 << 20),
        )


@dataclass(frozen=True, slots=True)
class Workload:
    """The options of the application.

    Attributes
    ----------
    appenders : int
        Threads that send.
    records : int
        The number of records of each thread.
    burst : int
        The largest number of records between two pauses.
    pause_ms : float
        The longest pause.
    value_bytes : int
        The size of the longest value, without the record's number.
    keyed, explicit : float
        The probability that a record has a key; a partition.
    callback : float
        The probability that a record has a callback; `throwing`, that it throws; `sending`, that it sends
        another.
    callback_ms : float
        The longest time that callbacks of a batch take.
    flush, purge : float
        The probability of either after a burst.
    close : str
        "late": when all is sent and done. "early": while records are in flight, all of which are still
        delivered. "forced": the same, but unfinished records fail.
    """

    appenders: int
    records: int
    burst: int
    pause_ms: float
    value_bytes: int
    keyed: float
    explicit: float
    callback: float
    throwing: float
    sending: float
    callback_ms: float
    flush: float
    purge: float
    close: str

    @classmethod
    def draw(cls, draw: Draw) -> Workload:
        return cls(
            appenders=draw.of(1, 2, 3),
            records=draw.of(5, 15, 30, 30),
            burst=draw.of(1, 3, 10, 30),
            pause_ms=draw.of(1, 3, 10, 30, 200),
            value_bytes=draw.of(10, 100, 400),
            keyed=draw.of(0, 0.3, 1),
            explicit=draw.of(0, 0.3, 1),
            callback=draw.of(0, 0.5, 1),
            throwing=draw.chance(0.3, 0.3, 0),
            sending=draw.chance(0.3, 0.3, 0),
            callback_ms=draw.of(0, 1, 200),
            flush=draw.rate(0.3, 0.4),
            purge=draw.rate(0.2, 0.2),
            close=draw.of("late", "late", "late", "early", "forced"),
        )


@dataclass(frozen=True, slots=True)
class TableOptions:
    """The options of tables and encoded batches.

    Attributes
    ----------
    tables, batches : float
        The probability that a table is sent next; an encoded batch.
    rows, chunk_rows : int
        The largest number of rows of a table, and of each of its record batches.
    batch_records : int
        The largest number of records of an encoded batch.
    keyed, explicit, tombstones, headers : float
        The probability that a row has a key; a partition; no value; headers.
    huge : float
        The probability that a row exceeds max.request.size or buffer.memory, and fails alone.
    wrong : float
        The probability that a table has a row with a partition that does not exist, which ends the table.
    topics : float
        The probability that a column names the topic of each row.
    """

    tables: float
    batches: float
    rows: int
    chunk_rows: int
    batch_records: int
    keyed: float
    explicit: float
    tombstones: float
    headers: float
    huge: float
    wrong: float
    topics: float = 0


@dataclass(frozen=True, slots=True)
class LoginOptions:
    """The options of logins and their sessions.

    Attributes
    ----------
    lifetime_ms : int
        connections.max.reauth.ms of the brokers; 0 for sessions without end.
    token_ms : float
        The longest time that the login thread takes for a token.
    no_token : float
        The probability that it gets none, as from an unreachable provider.
    refused : float
        The probability that the broker refuses it.
    """

    lifetime_ms: int
    token_ms: float
    no_token: float
    refused: float


@dataclass(frozen=True, slots=True)
class ReplicaOptions:
    """The options of a replicated cluster: how often each fault happens in a virtual second, and what holds.

    Attributes
    ----------
    kill, stop : float
        A node ends as by kill -9; cleanly. It starts again after a while.
    pause : float
        A node is stopped, as by SIGSTOP; when it goes on, it hears the controller only some time later.
    isolate : float
        A node is cut off from the controller, from other nodes, from clients, or from several of them.
    divide : float
        The network falls apart.
    delay, hold : float
        Fetches of followers take longer; those of a partition stop.
    lead, prefer, elect : float
        Another in-sync replica leads a partition; the preferred one; any, if none leads (unclean).
    roll : float
        One node after the other restarts, each when all replicas are in sync again.
    reassign : float
        A partition moves to other nodes; some moves are cancelled.
    lose : float
        A machine dies, with what was not flushed.
    lose_joining : float
        The machine of a node dies that its leader has just proposed as in sync, and starts again at once.
    lead_undecided : float
        A follower leads a log of transactions that has a commit which its leader has not answered yet.
    change_min_isr : float
        A topic has another min.insync.replicas for a while.
    fail_over_controller : float
        Another controller becomes the active one.
    fail_dir : float
        A disk of a node fails, and is replaced when the node starts again.
    longest_ms : int
        The longest time of an outage.
    deaf_ms : int
        The longest time until a node that goes on hears the controller.
    messages_ms : (int, int)
        The shortest and the longest time of a message between nodes, and to and from the controller.
    """

    kill: float
    stop: float
    pause: float
    isolate: float
    divide: float
    delay: float
    hold: float
    lead: float
    prefer: float
    elect: float
    roll: float
    reassign: float
    lose: float
    change_min_isr: float
    fail_over_controller: float
    fail_dir: float
    longest_ms: int
    deaf_ms: int
    messages_ms: tuple[int, int]
    lose_joining: float = 0.0
    lead_undecided: float = 0.0


@dataclass(frozen=True, slots=True)
class WorldOptions:
    """The options of a world.

    Attributes
    ----------
    settings : dict
        The producer's configuration, except bootstrap.servers.
    first_counter : int
        The first sequence of a producer id.
    fault_ms : int
        How long faults happen.
    seal_ms : float
        The longest time to compress a batch on a separate thread.
    round_us : int
        The time of a round of the sender.
    theme : str
        A key of `THEMES`; "" for none.
    tables : TableOptions or None
        The application sends tables and encoded batches as well.
    login : LoginOptions or None
        The brokers require a login.
    replicas : ReplicaOptions or None
        Each replica has a log of its own.
    """

    seed: int
    cluster: ClusterOptions
    workload: Workload
    settings: dict[str, Any]
    first_counter: int
    request_faults: RequestFaults
    cluster_faults: ClusterFaults
    fault_ms: int
    seal_ms: float
    round_us: int
    theme: str = ""
    tables: TableOptions | None = None
    login: LoginOptions | None = None
    replicas: ReplicaOptions | None = None

    @property
    def round_trip_ms(self) -> float:
        """Return the longest time until a request is answered without faults, when it is replicated."""
        # a Fetch of a follower that is under way, the one that gets the records, and the next, which says so
        replication_ms = 0 if self.replicas is None else 5 * self.replicas.messages_ms[1]
        return 2 * self.cluster.latency_ms[1] + replication_ms

    @property
    def stays_in_sync(self) -> bool:
        """True if enough replicas stay in sync without faults: their Fetches take less than the lag."""
        broker = self.cluster.broker
        if self.replicas is None or broker["min_insync_replicas"] == 1:
            return True
        return bool(broker["replica_lag_ms"] > 3 * self.replicas.messages_ms[1])

    @classmethod
    def draw(cls, seed: int) -> WorldOptions:
        draw = Draw(random.Random(f"options {seed}"))
        cluster = ClusterOptions.draw(draw)
        drawn = cls(
            seed=seed,
            cluster=cluster,
            workload=Workload.draw(draw),
            settings=draw_settings(draw, cluster.round_trip_ms),
            first_counter=draw.chance(0.4, 2**31 - draw.random.randrange(1, 20), 0),
            request_faults=RequestFaults.draw(draw),
            cluster_faults=ClusterFaults.draw(draw),
            fault_ms=draw.of(100, 300, 1000, 3000),
            seal_ms=draw.of(0.0, 0.1, 3.0),
            round_us=draw.of(1, 20, 500),
        )
        theme = draw.of(None, None, *THEMES)
        drawn = drawn if theme is None else crowded(drawn, draw, theme)
        # from a separate source, so that worlds without it stay unchanged
        duplicate = Draw(random.Random(f"duplicate {seed}")).rate(0.3, 0.1)
        return replace(drawn, request_faults=replace(drawn.request_faults, duplicate=duplicate))

    def parts(self) -> Sequence[Any]:
        """Return the parts that a world is described by."""
        optional = filter(None, (self.replicas, self.tables, self.login))
        return (self.cluster, self.workload, *optional, self.request_faults, self.cluster_faults)

    def described(self) -> Sequence[str]:
        """Describe the world, a line for each part, without faults of rate 0."""
        lines = [f"theme: {self.theme}"] if self.theme else []
        for part in self.parts():
            values = {name: getattr(part, name) for name in part.__slots__}
            lines.append(f"{type(part).__name__}: " + ", ".join(f"{k}={v}" for k, v in values.items() if v))
        lines.append("settings: " + ", ".join(f"{k}={v}" for k, v in self.settings.items()))
        names = ("first_counter", "fault_ms", "seal_ms", "round_us")
        lines.append(", ".join(f"{name}={getattr(self, name)}" for name in names))
        return lines


@dataclass(frozen=True, slots=True)
class Theme:
    """Faults that matter while many batches of a partition are in flight, which is rare by chance."""

    name: str
    request_faults: dict[str, Any] = field(default_factory=dict)
    cluster_faults: dict[str, float] = field(default_factory=dict)
    batch_bytes: int = 0
    value_bytes: int = 10
    idle_ms: int = 60_000


THEMES = (
    # answers are lost, and brokers forget all but the last batch
    Theme("forgetful", cluster_faults={"restart": 30}),
    Theme("forgetful and lossy", {"drop_after": 0.1, "late": 0.5}, {"restart": 20, "pause_node": 5}),
    # a batch fails for good in front of others
    Theme("refusing", {"error_before": 0.2}),
    Theme("refusing and forgetful", {"error_before": 0.1, "error_after": 0.1}, {"restart": 20}),
    Theme("shrinking", cluster_faults={"shrink": 20}, batch_bytes=300, value_bytes=50),
    Theme("shrinking and lossy", {"error_after": 0.1, "drop_after": 0.1}, {"shrink": 20}, 300, 50),
    # two leaders one after the other
    Theme("silent", {"silence": 0.1}, {"restart": 10}),
    Theme("moving", cluster_faults={"move_leader": 60}),
    Theme("moving and lossy", {"drop_after": 0.1, "delay": 0.2, "late": 0.5}, {"move_leader": 40}),
    Theme("moving and refusing", {"error_before": 0.1}, {"move_leader": 40}),
)
LATER_THEMES = (
    # a leader dies with records that only it has
    Theme("failing over", cluster_faults={"fail_over": 20}),
    Theme("failing over and lossy", {"drop_after": 0.1, "error_after": 0.1}, {"fail_over": 20}),
    Theme("failing over uncleanly", {"error_before": 0.1, "delay": 0.2}, {"elect_unclean": 10}),
    # a retried batch is in the log already, or nothing is there any more
    Theme("repeating", {"drop_after": 0.2, "duplicate_code": 1.0}, {"restart": 20}),
    Theme("made anew and refusing", {"error_before": 0.3}, {"recreate": 10}),
    # producer state ends when a producer is idle, and with a leader
    Theme("forgetting and refusing", {"error_before": 0.3, "delay": 0.5}, {"forget": 300}, idle_ms=5),
)


def with_failing_leaders(options: WorldOptions) -> WorldOptions:
    """Return the same world, or one whose leaders die and forget, and whose brokers report duplicates."""
    draw = Draw(random.Random(f"failing leaders {options.seed}"))
    kind = draw.of(*["as it was"] * 4, "themed", "failing over")
    if kind == "themed":
        return crowded(options, draw, draw.of(*LATER_THEMES))
    if kind == "failing over":
        cluster_faults = replace(
            options.cluster_faults, fail_over=draw.rate(12, 0.7), elect_unclean=draw.rate(6, 0.4)
        )
        request_faults = replace(options.request_faults, duplicate_code=draw.of(0.0, 0.5, 1.0))
        settings = options.settings | {"kbatch.sequence.idle.ms": draw.of(0, 5, 50, 60_000)}
        return replace(
            options, cluster_faults=cluster_faults, request_faults=request_faults, settings=settings
        )
    return options


# The numbers in their sources leave worlds as they were in which planted bugs are seen (docs/simulation.md).


def with_remade_topics(options: WorldOptions) -> WorldOptions:
    """Return the same world, or one whose topics are made again, with topic ids or without."""
    draw = Draw(random.Random(f"remade topics 748 {options.seed}"))
    if draw.of(*range(8)):
        return options
    cluster = replace(
        options.cluster,
        partition_counts={name: draw.of(2, 3, 4) for name in options.cluster.partition_counts},
        node_count=draw.of(1, 2, 3),
        metadata_version=draw.of(None, 9, 8, 8),
    )
    faults = replace(
        options.cluster_faults,
        recreate=0.0,
        remake=draw.of(1.0, 3.0, 8.0),
        move_leader=draw.of(0.0, 10.0),
        hide=draw.rate(2),
    )
    settings = options.settings | {"delivery.timeout.ms": options.settings["request.timeout.ms"] + 21_000}
    settings["linger.ms"] = 0
    return _lasting(replace(options, cluster=cluster, cluster_faults=faults, settings=settings), draw)


_AnyOptions = TypeVar("_AnyOptions", bound=WorldOptions)


def with_other_clusters(options: WorldOptions) -> WorldOptions:
    """Return the same world, or one whose cluster is replaced by others, with topic ids or without."""
    draw = Draw(random.Random(f"other clusters 128 {options.seed}"))
    if draw.of(*range(12)):
        return options
    cluster = replace(options.cluster, metadata_version=draw.of(None, 9, 8))
    faults = replace(options.cluster_faults, replace_cluster=draw.of(0.5, 1.0, 3.0), hide=0.0)
    settings = options.settings | {"delivery.timeout.ms": options.settings["request.timeout.ms"] + 21_000}
    return _lasting(replace(options, cluster=cluster, cluster_faults=faults, settings=settings), draw)


def with_half_started_nodes(options: _AnyOptions) -> _AnyOptions:
    """Return the same world, or one whose nodes lack requests for a while after a restart."""
    draw = Draw(random.Random(f"half-started nodes 3454 {options.seed}"))
    if draw.of(*range(8)):
        return options
    cluster = replace(options.cluster, node_count=max(2, options.cluster.node_count))
    # else all nodes that are left may lack Produce to a new producer, whose end that is
    faults = replace(options.cluster_faults, half_start=draw.of(1.0, 3.0, 8.0), stop_node=0.0)
    return _lasting(replace(options, cluster=cluster, cluster_faults=faults), draw)


def _lasting(options: _AnyOptions, draw: Draw) -> _AnyOptions:
    """Return the same world, with records for as long as there are faults."""
    workload = replace(
        options.workload,
        records=draw.of(30, 60),
        burst=draw.of(1, 3),
        pause_ms=draw.of(30, 60),
        explicit=draw.of(0.3, 1),
    )
    return replace(options, workload=workload, fault_ms=draw.of(1000, 3000))


def crowded(options: WorldOptions, draw: Draw, theme: Theme) -> WorldOptions:
    """Return the same world with few partitions, many records at once, and the faults of a theme."""
    latency_ms = draw.of(1.0, 5.0, 15.0)
    cluster = replace(
        options.cluster,
        partition_counts={"events": draw.of(1, 1, 2, 3)},
        node_count=draw.of(1, 2, 3),
        latency_ms=(latency_ms, latency_ms * 2),
        chunk_bytes=1 << 20,
    )
    workload = replace(
        options.workload,
        records=draw.of(20, 40),
        burst=draw.of(5, 10),
        pause_ms=draw.of(10, 30, 60),
        value_bytes=theme.value_bytes,
        purge=0,
        close=draw.of("late", "late", "late", options.workload.close),
    )
    settings = options.settings | {
        "batch.size": theme.batch_bytes,
        "buffer.memory": 4_000_000,
        "linger.ms": draw.of(0, 0, 5),
        "max.block.ms": 10_000,
        "kbatch.on.delivery.failure": draw.of("continue", "continue", "continue", "stop_partition"),
    }
    timeout_ms = settings["request.timeout.ms"] = draw.of(200, 1000)
    settings["delivery.timeout.ms"] = 5 + timeout_ms + draw.of(100, 3000, 20_000)
    settings["retry.backoff.ms"] = draw.of(1, 10, 100)
    settings["kbatch.sequence.idle.ms"] = theme.idle_ms
    if not settings.get("enable.idempotence", True):
        settings["max.in.flight.requests.per.connection"] = draw.of(1, 1, 5)
    no_requests: dict[str, Any] = dict.fromkeys(RequestFaults.RATES, 0.0)
    no_cluster = dict.fromkeys(ClusterFaults.__slots__, 0.0)
    return replace(
        options,
        cluster=cluster,
        workload=workload,
        settings=settings,
        request_faults=replace(options.request_faults, **no_requests | theme.request_faults),
        cluster_faults=ClusterFaults(**no_cluster | theme.cluster_faults),
        fault_ms=draw.of(100, 300, 1000),
        seal_ms=0.0,
        theme=theme.name,
    )


def draw_settings(draw: Draw, round_trip_ms: int) -> dict[str, Any]:
    """Draw the producer's configuration, except bootstrap.servers."""
    request_timeout_ms = max(draw.of(50, 200, 1000, 3000), 2 * round_trip_ms)
    batch_bytes = draw.of(0, 0, 100, 100, 300, 1000, 16_384)
    memory_bytes = draw.chance(0.3, draw.of(12_000, 24_000, 60_000), 4_000_000)
    linger_ms = draw.of(0, 0, 5, 100)
    settings = {
        "acks": "all",
        "linger.ms": linger_ms,
        "batch.size": min(batch_bytes, memory_bytes),
        "buffer.memory": memory_bytes,
        "compression.type": draw.of(*CODECS),
        "max.in.flight.requests.per.connection": draw.of(1, 2, 5, 5, 5, 5, 5),
        "max.request.size": draw.of(3000, 1_048_576),
        "request.timeout.ms": request_timeout_ms,
        "delivery.timeout.ms": linger_ms + request_timeout_ms + draw.of(0, 500, 3000, 20_000, 20_000),
        "retry.backoff.ms": draw.of(0, 10, 100, 100),
        "retry.backoff.max.ms": draw.of(100, 1000),
        "reconnect.backoff.ms": draw.of(1, 50),
        "reconnect.backoff.max.ms": draw.of(50, 1000),
        "max.block.ms": draw.of(50, 1000, 10_000),
        "metadata.max.age.ms": draw.of(300, 3000, 300_000),
        "connections.max.idle.ms": draw.of(100, 540_000, 540_000),
        "metadata.recovery.rebootstrap.trigger.ms": draw.of(1000, 300_000),
        "socket.connection.setup.timeout.ms": draw.of(100, 1000),
        "socket.connection.setup.timeout.max.ms": draw.of(1000, 3000),
        "kbatch.on.delivery.failure": draw.of("continue", "continue", "continue", "stop_partition", "stop"),
    }
    kind = draw.of("idempotent", "idempotent", "idempotent", "idempotent", "resend", "plain", "one", "none")
    if kind == "resend":
        settings["kbatch.sequence.gap"] = "resend"
    elif kind != "idempotent":
        settings["enable.idempotence"] = False
        settings["acks"] = {"plain": "all", "one": "1", "none": "0"}[kind]
        settings["retries"] = draw.of(0, 2, 2**31 - 1)
    return settings


class Draw:
    """Choices from a seed."""

    def __init__(self, source: random.Random) -> None:
        self.random = source

    def of(self, *values: Any) -> Any:
        return self.random.choice(values)

    def chance(self, probability: float, value: Any, otherwise: Any) -> Any:
        return value if self.random.random() < probability else otherwise

    def rate(self, highest: float, probability: float = 0.3) -> float:
        """Draw a rate: mostly 0, else log-uniform between a thirtieth of the highest and the highest."""
        if self.random.random() >= probability:
            return 0.0
        return highest * 10 ** self.random.uniform(-1.5, 0)
