"""What a world is like: all of it drawn from its seed, the rates of faults too.

Each kind of fault is absent from most worlds, and has another rate in each of the others, so that some seeds
have one kind often and alone, and some have many at once.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

CODECS = ("none", "none", "none", "lz4", "zstd", "snappy", "gzip")


@dataclass(frozen=True, slots=True)
class RequestFaults:
    """How likely a Produce request meets it (others meet the first three as well); 0 to 1.

    Attributes
    ----------
    drop_before, drop_after : float
        The connection breaks before the request is done, or when it is, before its answer.
    delay : float
        The answer comes late, up to `delay_ms`.
    error_before : float
        It is answered with an error, and not done.
    error_after : float
        It is done, and answered with an error that leaves that open.
    silence : float
        The connection is dead, before or after the request, and the client gets no notice.
    drop_partway : float
        The connection breaks while a request is being written.
    late : float
        What was under way on a connection when it broke still arrives at the broker, up to `late_ms` later.
    throttle : float
        The answer says that the client is throttled, up to `throttle_ms`.
    duplicate : float
        The broker gets it on two connections, as from a proxy that repeats what it thinks lost, and does it
        twice. The client gets the second answer.
    duplicate_code : float
        What is in the log already is answered DUPLICATE_SEQUENCE_NUMBER, as by a broker that does not
        remember the offset.
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
    """How often it happens in a virtual second.

    Attributes
    ----------
    move_leader : float
        Another node leads a partition.
    leave_leaderless : float
        All replicas of a partition are away for a while.
    stop_node, pause_node : float
        A node is down for a while; or up, but doing nothing.
    restart : float
        All nodes begin anew: of each producer id only the last batch is known.
    forget : float
        A partition that nothing is under way to forgets all producer ids.
    grow, recreate, hide : float
        A topic has one more partition; is deleted and made anew; is unknown to the cluster for a while.
    shrink : float
        A topic takes smaller batches for a while.
    break_connections : float
        All connections of a node.
    step_clock : float
        The wall clock steps.
    hold : float
        Nothing that a partition is sent gets replicated for a while.
    fail_over : float
        The same, and then its leader dies, and another node leads with what was replicated.
    elect_unclean : float
        The same, and the other node had not copied all of that either.
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
    """
    Attributes
    ----------
    partition_counts : dict of str to int
    log_append_time : frozenset of str
        Topics whose timestamps are the broker's.
    latency_ms : (float, float)
        One way, from and to.
    broken_addresses : int
        Addresses of each node's name at which no node listens, before the right one.
    first_epoch : int
        The epoch that a new producer id comes with.
    transaction_version : int
        At first.
    """

    node_count: int
    partition_counts: dict[str, int]
    log_append_time: frozenset[str]
    latency_ms: tuple[float, float]
    broken_addresses: int
    first_epoch: int
    chunk_bytes: int
    transaction_version: int = 2

    @property
    def round_trip_ms(self) -> int:
        """What a request takes at most, when all is well."""
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
    """What the application does.

    Attributes
    ----------
    appenders : int
        Threads that send.
    records : int
        That each of them sends.
    burst : int
        Records between two pauses, at most.
    pause_ms : float
        Longest pause.
    value_bytes : int
        Longest value, beside the record's number.
    keyed, explicit : float
        How likely a record has a key; a partition.
    callback : float
        How likely a record has a callback; `throwing`, that it throws; `sending`, that it sends another.
    callback_ms : float
        Longest time that callbacks of a batch take.
    flush, purge : float
        How likely either comes after a burst.
    close : str
        "late": when all is sent and done. "early": while records are under way, all of which are still
        delivered. "forced": the same, and what is not done fails.
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
    """
    Attributes
    ----------
    tables, batches : float
        How likely what is sent next is a table; a batch that was encoded before.
    rows, chunk_rows : int
        Of a table, and of a record batch of it, at most.
    batch_records : int
        Of an encoded batch, at most.
    keyed, explicit, tombstones, headers : float
        How likely a row has a key; a partition; no value; headers.
    huge : float
        How likely a row is larger than max.request.size or buffer.memory, and fails by itself.
    wrong : float
        How likely a table has a row with a partition that does not exist, after which nothing is accepted.
    topics : float
        How likely a column says to which of the cluster's topics each row goes.
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
    """
    Attributes
    ----------
    lifetime_ms : int
        connections.max.reauth.ms of the brokers; 0 for sessions without end.
    token_ms : float
        How long the login thread takes for a token, at most.
    no_token : float
        How likely it gets none, as from a provider that is out of reach.
    """

    lifetime_ms: int
    token_ms: float
    no_token: float


@dataclass(frozen=True, slots=True)
class Options:
    """A world.

    Attributes
    ----------
    settings : dict
        Of the producer, but for bootstrap.servers.
    first_counter : int
        Where the sequences of a producer id begin.
    fault_ms : int
        For how long there are faults.
    seal_ms : float
        How long it takes to compress a batch on a thread of its own, at most.
    round_us : int
        How long a round of the sender takes.
    theme : str
        Of `THEMES`; "" for none.
    tables : TableOptions or None
        The application sends tables and encoded batches as well.
    login : LoginOptions or None
        The brokers want a login.
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

    @classmethod
    def draw(cls, seed: int) -> Options:
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
        # of a source of its own, for worlds without it to stay what they were
        duplicate = Draw(random.Random(f"duplicate {seed}")).rate(0.3, 0.1)
        return replace(drawn, request_faults=replace(drawn.request_faults, duplicate=duplicate))


@dataclass(frozen=True, slots=True)
class Theme:
    """Faults that matter while many batches of a partition are under way, which they seldom are by chance."""

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
    # a leader dies with what it alone has
    Theme("failing over", cluster_faults={"fail_over": 20}),
    Theme("failing over and lossy", {"drop_after": 0.1, "error_after": 0.1}, {"fail_over": 20}),
    Theme("failing over uncleanly", {"error_before": 0.1, "delay": 0.2}, {"elect_unclean": 10}),
    # what is sent again is there already, or nothing is there any more
    Theme("repeating", {"drop_after": 0.2, "duplicate_code": 1.0}, {"restart": 20}),
    Theme("made anew and refusing", {"error_before": 0.3}, {"recreate": 10}),
    # what is known of a producer ends with its idleness, and with a leader
    Theme("forgetting and refusing", {"error_before": 0.3, "delay": 0.5}, {"forget": 300}, idle_ms=5),
)


def with_failing_leaders(options: Options) -> Options:
    """The same world, or one whose leaders die and forget, and whose brokers say so of duplicates."""
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


def crowded(options: Options, draw: Draw, theme: Theme) -> Options:
    """The same world with a few partitions that many records go to at once, and the faults of a theme."""
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
    """The producer's configuration, but for bootstrap.servers."""
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
        """Mostly 0, else from a thirtieth of the highest to that, the small ones as likely as the large."""
        if self.random.random() >= probability:
            return 0.0
        return highest * 10 ** self.random.uniform(-1.5, 0)


def described(options: Options) -> Sequence[str]:
    """What the world is like, a line a part; faults of rate 0 left out."""
    lines = [f"theme: {options.theme}"] if options.theme else []
    parts: Sequence[Any] = (
        options.cluster,
        options.workload,
        *filter(None, (options.tables, options.login)),
        options.request_faults,
        options.cluster_faults,
    )
    for part in parts:
        values = {name: getattr(part, name) for name in part.__slots__}
        lines.append(f"{type(part).__name__}: " + ", ".join(f"{k}={v}" for k, v in values.items() if v))
    lines.append("settings: " + ", ".join(f"{k}={v}" for k, v in options.settings.items()))
    lines.append(
        f"first_counter={options.first_counter}, fault_ms={options.fault_ms}, seal_ms={options.seal_ms}, "
        f"round_us={options.round_us}"
    )
    return lines
