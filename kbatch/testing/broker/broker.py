"""Broker: the embedded cluster as its users see it."""

from __future__ import annotations

import difflib
import random
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
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
from kbatch.testing.broker.acls import Acls, check_names
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.core import BrokerCore, ReceivedRequest
from kbatch.testing.broker.directory_lock import locked
from kbatch.testing.broker.faults import Faults, Interceptor, request_class
from kbatch.testing.broker.options import Options
from kbatch.testing.broker.server import NOT_RUNNING, Server
from kbatch.testing.broker.state import BrokerState

if TYPE_CHECKING:
    from _typeshed import StrPath

    from kbatch.testing.broker.cluster import ClusterPartition, Topic
    from kbatch.testing.broker.producer_state import ProducerDescription

T = TypeVar("T")
MAX_PORT = 65_535
KEYWORDS = ("topics", "directory", "nodes", "host", "port", "acls", "seed")  # beside those of Options


class Broker:
    """Kafka brokers in this process, on loopback, from `start` (or entering the context) to `stop`.

    Parameters
    ----------
    topics : mapping of str to int or dict, or names
        Topics to have: name to number of partitions, or to {"partitions": n, any of Kafka's topic configs};
        names alone have one partition. Topics that the directory has already stay as they are.
    directory : path or None
        Keep everything there, in Kafka's own segment files, and take up what is found there; None keeps it in
        memory, for as long as the broker runs. What was acknowledged has been handed to the operating system:
        it survives the death of the process (kill -9); files are synced when a segment is full and at stop.
    nodes : int
        Brokers in the cluster, 0 to `nodes` - 1; leaders are spread over them.
    host : str
        Where to listen. Another address than loopback is taken with a warning: there is no security here.
    port : int
        Of node 0, the others following; 0 is any free ones.
    acls : Acls, dict of its fields, or None
        What clients may do; None allows all. `broker.acls` may be changed at any time.
    users : mapping of str to str, or None
        Passwords of SASL/PLAIN users, who then must log in; None lets in whoever does, and who does not.
    auto_create_topics : bool
        A topic that is asked for is made (auto.create.topics.enable).
    default_partitions : int
        Of topics that are made so, and of those for which an admin client leaves it open (num.partitions).
    internal_topic_partitions : int
        Of __consumer_offsets and __transaction_state (offsets.topic.num.partitions).
    transaction_version : 0, 1 or 2
        The feature level: 2 is KIP-890's second part.
    producer_snapshot_batches : int
        Batches of a producer id that are known after a restart: Kafka's 1, or up to 5.
    group_initial_rebalance_delay_ms : int
        How long a new group waits for more members; Kafka's default is 3000.
    strict_batches : bool
        Refuse also what Kafka does not check in a batch but no correct producer writes.
    min_insync_replicas : int
        For topics that do not say.
    seed : int or None
        Of what is random: ids.

    Raises
    ------
    ValueError, TypeError
        A parameter, or a topic's name or config, that cannot be; the text names it.
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
        acls: Acls | Mapping[str, object] | None = None,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        if nodes < 1:
            raise ValueError(f"nodes must be 1 or more, got {nodes}")
        if port and not 0 < port <= MAX_PORT + 1 - nodes:
            raise ValueError(f"port must leave room for {nodes} nodes below {MAX_PORT + 1}, got {port}")
        if not _is_loopback(host):
            warnings.warn(
                f"the broker listens on {host}: whoever reaches it can read and write all of it", stacklevel=2
            )
        check_names("Broker", options, [*KEYWORDS, *(option.name for option in fields(Options))])
        self._topics = _settings_of(topics)
        self._directory = Path(directory) if directory is not None else None
        self._nodes = nodes
        self._host = host
        self._ports = [port + node_id if port else 0 for node_id in range(nodes)]
        self._options = Options(**options)
        self._seed = seed
        self._acls = Acls.of(acls)
        self._server: Server | None = None
        self._running = ExitStack()

    # Lifecycle

    def start(self) -> Self:
        """Returns when all nodes listen. After `stop` the broker may be started again, on the same ports."""
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
            server = Server(core, self._host, self._ports)
            running.callback(server.stop)
            server.start()
            self._ports = [node.port for node in core.state.cluster.nodes]
            self._server = server
            self._running = running.pop_all()
        return self

    def stop(self) -> None:
        """Closes all connections and files. A second call does nothing."""
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
        """All nodes' addresses, as clients take them."""
        if self._server is None:
            raise IllegalStateError(NOT_RUNNING)
        host = f"[{self._host}]" if ":" in self._host else self._host
        return ",".join(f"{host}:{port}" for port in self._ports)

    @property
    def acls(self) -> Acls:
        """What clients may do. Its fields may be set, or all of it."""
        return self._acls

    @acls.setter
    def acls(self, acls: Acls | Mapping[str, object] | None) -> None:
        self._acls = Acls.of(acls)
        if self._server is not None:
            self._server.core.state.acls = self._acls

    # Topics and nodes

    def create_topic(self, name: str, partitions: int = 1, **configs: Any) -> None:
        """`configs`: Kafka's topic configs; dots may be written as underscores."""
        self._call(lambda core: _create_topic(core, name, partitions, **configs))

    def delete_topic(self, name: str) -> None:
        self._call(lambda core: core.state.delete_topic(_topic(core, name).name))

    def create_partitions(self, name: str, count: int) -> None:
        """Lets a topic grow to `count` partitions."""
        self._call(lambda core: core.state.cluster.create_partitions(_topic(core, name).name, count))

    def move_leader(self, topic: str, partition: int, node: int) -> None:
        """Another node leads the partition from now on, in a new leader epoch."""

        def move(core: BrokerCore) -> None:
            _partition(core, topic, partition)
            core.state.move_leader(topic, partition, node)

        self._call(move)

    def stop_node(self, node: int) -> None:
        """Its connections are cut, and its partitions go to other replicas, where there are any running. A
        node that does not run stays as it is.
        """
        server = self._running_server

        def stop(core: BrokerCore) -> None:
            if core.state.cluster.node(node).is_running:
                server.close_node(node)
                core.state.stop_node(node)

        self._call(stop)

    def start_node(self, node: int) -> None:
        """The node listens again, on the port that it had. A node that runs stays as it is."""
        if not self._call(lambda core: core.state.cluster.node(node).is_running):
            self._running_server.start_listening(node)
            self._call(lambda core: core.state.start_node(node))

    # Faults

    def fail_next(self, api: str, error: str | int, times: int = 1) -> None:
        """The next `times` requests of `api` ("Produce", "Metadata", ...) are answered with `error`, a name
        or number of Kafka's, for everything in them; nothing is done. A request with nothing in it has no
        place for the error, but counts.
        """
        self._call(lambda core: core.faults.fail_next(api, error, times))

    def drop_connection(self, api: str, when: str = "before", times: int = 1) -> None:
        """The connections of the next `times` requests of `api` are closed "before" or "after" it is done."""
        self._call(lambda core: core.faults.drop_connection(api, when, times))

    def delay(self, api: str, seconds: float) -> None:
        """Answers of `api` come so much later, from now on; 0 ends it."""
        self._call(lambda core: core.faults.delay(api, seconds))

    def throttle(self, seconds: float) -> None:
        """From now on every answer says that the client is throttled, and its connection is not read for so
        long (KIP-219); 0 ends it.
        """
        self._call(lambda core: core.faults.throttle(seconds))

    def intercept(self, api: str, function: Interceptor | None) -> None:
        """`function(request)` sees each request of `api` first: it gives None to go on, an error (as for
        `fail_next`) or the response itself to answer with. It runs in the broker's thread, and may call the
        broker; where it raises, the connection is closed. None ends it.
        """
        self._call(lambda core: core.faults.intercept(api, function))

    def clear_faults(self) -> None:
        """Ends all of `fail_next`, `drop_connection`, `delay`, `throttle`, `intercept`."""

        def clear(core: BrokerCore) -> None:
            core.faults = Faults()

        self._call(clear)

    def hold_high_watermark(self, topic: str, partition: int, hold: bool = True) -> None:
        """As if the followers no longer followed: what is appended is not acknowledged with acks=all, nor
        read, until it is released.
        """

        def set_hold(core: BrokerCore) -> None:
            _partition(core, topic, partition)
            core.state.hold_high_watermark(topic, partition, hold)

        self._call(set_hold)

    def forget_producers(self, topic: str, partition: int) -> None:
        """The partition no longer knows any producer id, as after producer.id.expiration.ms; an open
        transaction keeps its own.
        """
        self._call(lambda core: _partition(core, topic, partition).log.forget_producers())

    # Looking inside

    def records(self, topic: str, partition: int | None = None, *, committed: bool = True) -> list[Record]:
        """The records of a partition, or of all one behind another; without control records.

        `committed`: as a read_committed consumer sees them; else also those of open and aborted transactions,
        and those above a high watermark that is held.
        """
        return [
            record
            for log_start_offset, batch in self._call(partial(_batches, topic, partition, committed))
            if not batch.is_control
            for record in batch
            if record.offset >= log_start_offset
        ]

    def batches(self, topic: str, partition: int | None = None) -> list[RecordBatch]:
        """The record batches of a partition as they stand in its log, control batches too; or of all, one
        behind another.
        """
        return [batch for _, batch in self._call(partial(_batches, topic, partition, False))]

    def requests(self, api: str | None = None) -> list[ReceivedRequest]:
        """The requests so far (the last 10,000), or those of one API."""
        if api is not None:
            request_class(api)  # ValueError for a name that is none
        received = self._call(lambda core: list(core.requests))
        return [request for request in received if api in (None, request.api)]

    def producer_state(self, topic: str, partition: int) -> list[ProducerDescription]:
        """What the partition knows of each producer id."""
        return self._call(lambda core: _partition(core, topic, partition).log.describe_producers())

    def _new_state(self) -> BrokerState:
        return BrokerState(
            options=self._options,
            directory=self._directory,
            rng=random.Random(self._seed),
            now_ms=int(time.time() * 1000),
            node_count=self._nodes,
            acls=self.acls,
        )

    def _call(self, action: Callable[[BrokerCore], T]) -> T:
        """`action` in the broker's thread; what a client would be refused is a ValueError here."""
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


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _settings_of(topics: Mapping[str, int | Mapping[str, Any]] | Iterable[str]) -> dict[str, dict[str, Any]]:
    """Keyword arguments of `create_topic` by topic."""
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
    overrides = {key.replace("_", "."): str(value) for key, value in configs.items()}
    try:
        core.state.cluster.create_topic(name, partitions, configs=overrides)
    except BrokerError as error:
        raise ValueError(f"topic {name!r}: {error}") from error


def _topic(core: BrokerCore, name: str) -> Topic:
    topics = core.state.cluster.topics
    if name not in topics:
        near = difflib.get_close_matches(name, topics, 1)
        raise ValueError(f"there is no topic {name!r}" + (f": did you mean {near[0]!r}?" if near else ""))
    return topics[name]


def _partition(core: BrokerCore, topic: str, index: int) -> ClusterPartition:
    partitions = _topic(core, topic).partitions
    if not 0 <= index < len(partitions):
        raise ValueError(f"topic {topic!r} has no partition {index}; the last is {len(partitions) - 1}")
    return partitions[index]


def _batches(
    topic: str, partition: int | None, committed: bool, core: BrokerCore
) -> list[tuple[int, RecordBatch]]:
    """The batches of a partition or of all, each with the offset at which its log starts."""
    partitions = _topic(core, topic).partitions if partition is None else [_partition(core, topic, partition)]
    return [
        (log.log_start_offset, batch)
        for log in (each.log for each in partitions)
        for batch in log.batches(log.log_start_offset)
        if not committed or log.is_committed(batch)
    ]
