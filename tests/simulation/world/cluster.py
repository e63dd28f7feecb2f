"""What every world has: time, chance, faults, and brokers, with the embedded broker's core."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kbatch._native.codec.record_batch import RecordBatch, decode
from kbatch._native.send.sealing import SENDER_BYTES, SealPolicy
from kbatch.protocol import codec
from kbatch.testing.broker.broker_state import BrokerState, Connection
from kbatch.testing.broker.core import BrokerCore, Reply
from kbatch.testing.broker.options import Options
from kbatch.testing.broker.security.listeners import Listener
from kbatch.testing.broker.shards import TransactionShard
from kbatch.testing.broker.transactions.transaction_metadata import TransactionMetadata, TransactionState
from tests.simulation.world.login_options import PASSWORD, USER
from tests.simulation.world.network import BROKEN_NET, Faults, Link, addresses_of, whole_frames
from tests.simulation.world.replicas.history import History, LostBatch, ReplicatedState
from tests.simulation.world.schedule import MS, SECOND, WALL_MS, Schedule, ScheduledAction
from tests.simulation.world.trace import Trace, Violation

if TYPE_CHECKING:
    from kbatch.testing.broker.cluster import ClusterPartition
    from kbatch.testing.broker.replication.replica import Replica
    from tests.simulation.world.fate import Fate
    from tests.simulation.world.options import LoginOptions, WorldOptions

PORT = 9092
BOOTSTRAP = "bootstrap.sim"
MAX_EVENTS = 300_000
UNDECIDED = (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
CONVERGENCE_NS = 2 * SECOND  # a high watermark is told within half of one


class Ground:
    """What every world has: time, chance, brokers and their faults."""

    faults: Faults
    cluster: SimulatedCluster

    def __init__(self, options: WorldOptions, *, prints: bool = False) -> None:
        self.options = options
        self.random = random.Random(f"world {options.seed}")
        self.schedule = Schedule(self.random.randrange(10 * SECOND))
        self.trace = Trace(self.schedule, prints=prints)
        self.event_count = 0

    def is_quiet(self, topic_partition: tuple[str, int], *, is_idle: bool) -> bool:
        """True if no batch of a partition is in flight or may be sent again. With `is_idle`, only if also
        nothing was sent for so long that every producer expects to be forgotten (kbatch.sequence.idle.ms).
        """
        return False

    def data_partitions(self) -> list[ClusterPartition]:
        """Return the partitions of all topics but the coordinators' own."""
        partitions = self.cluster.state.cluster.partitions()
        return [partition for partition in partitions if not partition.topic.is_internal]

    def accumulator_keys(self) -> dict[str, Any]:
        """Return arguments of a producer's accumulator beside those of its configuration."""
        policy = SealPolicy(by_appender=self.random.random() < 0.5, inline_bytes=SENDER_BYTES)
        return {"seal_policy": policy, "seed": self.options.seed, "poison": True}

    def run_for(self, duration_ns: int) -> None:
        step, until_ns = self.schedule.step, self.schedule.now_ns + duration_ns
        while step(until_ns):
            self.count_event()

    def run_until(self, until_ns: int, is_so: Callable[[], bool]) -> bool:
        """Run events until `is_so()` is true, or up to a time. Return `is_so()`."""
        step = self.schedule.step
        while not is_so():
            if not step(until_ns):
                return is_so()
            self.count_event()
        return True

    def check_converged(self) -> None:
        """Check that all replicas come to rest: the last records were perhaps written a moment ago."""
        history, partitions = self.cluster.history, self.cluster.state.cluster.partitions
        if history is not None:
            limit_ns = self.schedule.now_ns + CONVERGENCE_NS
            self.run_until(limit_ns, lambda: all(each.is_in_sync for each in partitions()))
            history.check_converged()

    def count_event(self) -> None:
        self.event_count += 1
        if self.event_count > MAX_EVENTS:
            raise Violation(f"the world does not end: {MAX_EVENTS} events")


class NodeEnd:
    """A node's end of a link: frames are gathered, and answered one after another."""

    def __init__(self, cluster: SimulatedCluster, link: Link) -> None:
        self.link = link
        self.is_over = False
        self._cluster = cluster
        self._connection = Connection(link.node_id)
        self._incoming = bytearray()
        self._frames: deque[bytes] = deque()
        self._is_busy = False
        self._is_held = False
        self._withheld: Callable[[], None] | None = None

    def cut(self) -> None:
        self.is_over = True
        self._frames.clear()
        self._cluster.ends.pop(self, None)

    def hold(self, late_ns: int) -> None:
        """Have the requests of a closed client executed later."""
        self._is_held = True

        def let_go() -> None:
            self._is_held = False
            self.go_on()

        self._cluster.world.schedule.after(late_ns, let_go)

    def receive(self, data: bytes) -> None:
        if self.is_over:
            return
        self._frames += whole_frames(self._incoming, data)
        self.go_on()

    def go_on(self) -> None:
        """Answer the next request, unless the node is down or paused."""
        if self._withheld is not None and self._cluster.reaches_clients(self.link.node_id):
            send, self._withheld = self._withheld, None
            send()
        if self._is_busy or self._is_held or not self._frames or self.is_over:
            return
        if self._cluster.is_paused(self.link.node_id):
            return
        self._is_busy = True
        frame = self._frames.popleft()
        faults = self._cluster.world.faults.for_request(self.link, frame)
        if faults.drops_before:
            self._drop("cut before the request was done", faults)
            return
        self._cluster.serving = self.link
        if faults.is_doubled:  # and the client never gets the first answer
            twin = replace(self._connection, session=replace(self._connection.session))
            self._cluster.handle(twin, frame, None)
        reply = self._cluster.handle(self._connection, frame, faults.error_before)
        reply.then(lambda: self._answer(reply, faults))
        self._cluster.reschedule()

    def _answer(self, reply: Reply, faults: Fate) -> None:
        if self.is_over:
            return
        if (reply.closes_connection and not reply.buffers) or faults.drops_after:
            self._drop("cut when the request was done", faults)
            return
        assert reply.buffers is not None
        data = b"".join(reply.buffers)
        if data:
            data = faults.changed(data)

        def send() -> None:
            if self.is_over:
                return
            if not self._cluster.reaches_clients(self.link.node_id):
                self._withheld = send
                return
            self.link.send_back(data)
            if reply.closes_connection:
                error = ConnectionResetError("closed after the answer")
                self.link.cut(error, by_node=True, loses_answers=False)
            else:
                self._cluster.world.schedule.after(faults.mute_ns, self._answered)

        self._cluster.world.schedule.after(faults.delay_ns, send)

    def _drop(self, text: str, faults: Fate) -> None:
        if faults.is_silent:
            self.link.is_cut = True
            self.cut()
        else:
            self.link.cut(ConnectionResetError(text), by_node=True)

    def _answered(self) -> None:
        self._is_busy = False
        self.go_on()


class Archive:
    """A topic, past or present: the logs of its partitions."""

    __slots__ = ("logs", "name", "topic_id")

    def __init__(self, name: str, topic_id: bytes) -> None:
        self.name = name
        self.topic_id = topic_id
        self.logs: dict[int, list[RecordBatch]] = {}


def _sequences_of(batch: RecordBatch) -> tuple[int, int, int, int]:
    return batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence


def _options_of_listener(login: LoginOptions | None) -> Options:
    """Return the broker's options about logins."""
    if login is None:
        return Options()
    listener = Listener("SASL_PLAINTEXT", ("PLAIN",), connections_max_reauth_ms=login.lifetime_ms)
    return Options(users={USER: PASSWORD}, listeners=(listener,))


class SimulatedCluster:
    """Nodes and topics.

    Attributes
    ----------
    paused_until_ns : dict of int to int
        Nodes that do nothing for a while.
    archives : list of Archive
        Deleted topics, with their logs.
    missing : set of str
        Topics that are deleted now.
    cut_off : list of LostBatch
        What logs have lost that play several replicas.
    history : History or None
        The past of replicas that have logs of their own.
    serving : Link | None
        The link of the last request.
    """

    def __init__(self, world: Ground) -> None:
        options = world.options.cluster
        self.world = world
        is_replicated = world.options.replicas is not None
        self.state = (ReplicatedState if is_replicated else BrokerState)(
            options=replace(
                _options_of_listener(world.options.login),
                auto_create_topics=False,
                internal_topic_partitions=1,
                transaction_version=options.transaction_version,
                **options.broker,
            ),
            directory=None,
            rng=random.Random(f"broker {world.options.seed}"),
            now_ms=WALL_MS,
            node_count=options.node_count,
            shares_logs=not is_replicated,  # what a new leader lacks is drawn then, see `fail_over`
            shares_coordinators=not is_replicated,
        )
        self.history = None
        if isinstance(self.state, ReplicatedState) and world.options.replicas is not None:
            self._slow_down(self.state, world.options.replicas.messages_ms)
            allows_unclean = world.options.replicas.elect > 0
            self.history = History(self.state, self.term_began, allows_unclean=allows_unclean)
        self.core = BrokerCore(self.state)
        self.ends: dict[NodeEnd, None] = {}  # in order
        self.paused_until_ns: dict[int, int] = {}
        self.archives: list[Archive] = []
        self.missing: set[str] = set()
        self.cut_off: list[LostBatch] = []
        self.serving: Link | None = None
        self._names: dict[bytes, str] = {}
        self._timer: ScheduledAction | None = None
        self._timed_ms = 0  # for when
        self._forced_error: Any = None
        for name in world.faults.refused_requests:
            self.core.faults.intercept(name, lambda request: self._forced_error)
        for node in self.state.cluster.nodes:
            node.host, node.ports = f"node-{node.node_id}.sim", [PORT]
        for name, count in options.partition_counts.items():
            self.create_topic(name, count)

    def _slow_down(self, state: BrokerState, messages_ms: tuple[int, int]) -> None:
        """Have messages between nodes, and to and from the controller, take their time."""
        draw = random.Random(f"messages {self.world.options.seed}")
        if any(messages_ms):
            state.take_time(lambda source, target: draw.randint(*messages_ms))

    @property
    def now_ms(self) -> int:
        return WALL_MS + self.world.schedule.now_ns // MS

    def undecided_transactions(self) -> list[TransactionMetadata]:
        """Return those that their coordinators have yet to end."""
        shards = self.state.coordinators.loaded(TransactionShard)
        known = (each for shard in shards for each in shard.transactions.list_transactions(self.now_ms))
        return [each for each in known if each.state in UNDECIDED]

    # Names and addresses

    def resolve(self, host: str, port: int) -> Any:
        """Return the addresses of a name, or the OSError."""
        broken = self.world.options.cluster.broken_addresses
        if host == BOOTSTRAP:
            return [
                address
                for node in self.state.cluster.nodes
                for address in addresses_of(host, node.node_id, broken, port)
            ]
        if self.world.faults.breaks_names():
            return OSError("no answer from the name server")
        return addresses_of(host, int(host.removeprefix("node-").removesuffix(".sim")), broken, port)

    def node_at(self, sockaddr: Any) -> int | None:
        """Return the node that listens at an address; None if no node does."""
        host: str = sockaddr[0]
        return None if host.startswith(BROKEN_NET) else int(host.split(".")[2])

    def is_up(self, node_id: int) -> bool:
        return self.state.cluster.nodes[node_id].is_running

    def is_paused(self, node_id: int) -> bool:
        is_stopped = self.world.schedule.now_ns < self.paused_until_ns.get(node_id, 0)
        return is_stopped or not self.reaches_clients(node_id)

    def reaches_clients(self, node_id: int) -> bool:
        """True if what a replicated node answers gets to its clients, and what they send to it."""
        return self.state.outages.answers_clients(node_id)

    def name_of(self, topic_id: bytes) -> str:
        return self._names[topic_id]

    # Requests

    def accept(self, link: Link) -> NodeEnd:
        end = NodeEnd(self, link)
        self.ends[end] = None
        return end

    def handle(self, connection: Connection, frame: bytes, error: Any) -> Reply:
        self._forced_error = error
        try:
            reply = self.core.handle(connection, frame, self.now_ms)
        finally:
            self._forced_error = None
        self._look()
        return reply

    def _look(self) -> None:
        """Check the replicas after an event."""
        if self.history is not None:
            self.history.look()

    def reschedule(self) -> None:
        """Schedule the core for its next deadline."""
        deadline_ms = self.core.next_deadline_ms()
        if self._timer is not None:
            if self._timed_ms == deadline_ms:
                return
            self._timer.cancel()
            self._timer = None
        if deadline_ms is not None:
            self._timed_ms = deadline_ms
            self._timer = self.world.schedule.at((deadline_ms - WALL_MS) * MS, self._time_out)

    def _time_out(self) -> None:
        self._timer = None
        self.core.handle_timeout(self.now_ms)
        self._look()
        self.reschedule()

    def change(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Change the broker's state, and let waiting requests see it."""
        self.state.now_ms = self.now_ms
        try:
            function(*arguments)
        finally:
            self.state.run_waiters(self.now_ms)
            self._look()
            self.reschedule()

    def duplicates_in(self, frame: bytes) -> set[tuple[str, int]]:
        """Return the partitions of a Produce request that have its batch already, and replicated."""
        found = set()
        request: Any = codec.decode_request(frame).message
        for topic in request.topic_data:
            name = topic.name or self.name_of(bytes(topic.topic_id))
            for each in topic.partition_data:
                (batch,) = decode(each.records)
                if batch.producer_id >= 0 and self._has_batch(name, each.index, batch):
                    found.add((name, each.index))
        return found

    def _has_batch(self, topic: str, index: int, batch: RecordBatch) -> bool:
        if not self.state.cluster.has_partition(topic, index):
            return False
        log = self.state.cluster.partition(topic, index).log
        return any(
            _sequences_of(stored) == _sequences_of(batch) and stored.last_offset < log.high_watermark
            for stored in log.batches(0)
        )

    # Topics and nodes

    def has(self, partition: ClusterPartition) -> bool:
        """True if the partition's topic was not deleted."""
        return self.state.cluster.topics.get(partition.topic.name) is partition.topic

    def fail_over(self, partition: ClusterPartition, node_id: int, offset: int) -> None:
        """Make a node the leader whose replica ends at `offset`: the records from there on are lost."""
        log, name = partition.log, partition.topic.name
        lost = [
            LostBatch((name, partition.index), batch, batch.last_offset < log.high_watermark)
            for batch in log.batches(offset)
            if batch.last_offset >= offset
        ]
        self.cut_off += lost
        self.world.trace(
            "!! node %d leads %s-%d with what is below %d; %d batches are lost",
            *(node_id, name, partition.index, offset, len(lost)),
        )
        log.truncate_to(offset, self.now_ms)
        self.change(self.state.move_leader, name, partition.index, node_id)

    def term_began(self, leader: Replica, is_complete: bool) -> None:
        """Note that a leader has begun its term, with all that was committed or not."""

    def delete_topic(self, name: str) -> None:
        self.archives.append(self._archive_of(name))
        self.missing.add(name)
        self.change(self.state.delete_topic, name)

    @property
    def has_active_nodes(self) -> bool:
        """True if a node may lead a new partition."""
        cluster = self.state.cluster
        return any(cluster.controller.is_active(node.node_id) for node in cluster.nodes)

    def create_topic(self, name: str, count: int) -> None:
        self.missing.discard(name)
        configs = {}
        if name in self.world.options.cluster.log_append_time:
            configs["message.timestamp.type"] = "LogAppendTime"
        self.state.cluster.create_topic(name, count, configs=configs)
        self._names[self.state.cluster.topics[name].topic_id] = name

    def begin_again(self, counts: Mapping[str, int]) -> None:
        """Be another cluster, with new topics of these names."""
        for name in counts:
            self.delete_topic(name)
        self.state.cluster.cluster_id = f"cluster-{len(self.archives)}"
        for name, count in counts.items():
            self.create_topic(name, count)

    def _archive_of(self, name: str) -> Archive:
        topic = self.state.cluster.topics[name]
        archive = Archive(name, topic.topic_id)
        for partition in topic.partitions:
            archive.logs[partition.index] = list(partition.log.batches(0))
        return archive

    def all_archives(self) -> list[Archive]:
        """Return every topic that there ever was."""
        return [*self.archives, *(self._archive_of(name) for name in self.state.cluster.topics)]

    @property
    def lost(self) -> list[LostBatch]:
        """Return the batches that were cut off logs, and are not in the last ones."""
        if self.history is None:
            return self.cut_off
        return [
            batch
            for archive in self.all_archives()
            for index, last in archive.logs.items()
            for batch in self.history.lost(archive.topic_id, index, last)
        ]

    def break_connections(self, node_id: int, *, is_down: bool = False) -> None:
        ends = [end for end in self.ends if end.link.node_id == node_id]
        for end in sorted(ends, key=lambda end: end.link.connection_id):
            end.link.cut(ConnectionResetError("the node closed it"), by_node=is_down)
            end.cut()

    def stop_node(self, node_id: int) -> None:
        self.break_connections(node_id, is_down=True)
        self.change(self.state.stop_node, node_id)

    def start_node(self, node_id: int) -> None:
        self.change(self.state.start_node, node_id)

    def pause_node(self, node_id: int, until_ns: int) -> None:
        self.paused_until_ns[node_id] = max(until_ns, self.paused_until_ns.get(node_id, 0))
        self.world.schedule.at(until_ns, lambda: self.go_on(node_id))

    def go_on(self, node_id: int) -> None:
        ends = [end for end in self.ends if end.link.node_id == node_id]
        for end in sorted(ends, key=lambda end: end.link.connection_id):
            end.go_on()

    def restart(self) -> None:
        """Restart all nodes, with the producers that a snapshot has."""
        for node in self.state.cluster.nodes:
            self.break_connections(node.node_id, is_down=True)
        for partition in self.state.cluster.partitions():
            partition.log.recover(self.now_ms)
