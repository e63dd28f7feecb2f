"""The faults of a world: those of single requests, and those of the cluster.

Theory of operation. Until the world is healed, `for_request` draws the fate of each request and of each
breaking link. Each kind of cluster fault happens at random times (`begin`) and ends by itself or by `heal`.
After that nothing fails any more. The faults are those that a real cluster may inflict on a correct producer.
An answer that says that nothing was appended is true. A partition forgets producers only if nothing of them
is in flight. Replicated records are lost in unclean elections only.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kbatch.errors import ErrorCode
from kbatch.protocol import features, messages
from tests.simulation.world.fate import NAMES, Fate
from tests.simulation.world.network import Link
from tests.simulation.world.replicas.faults import REPLICA_HAPPENINGS, ReplicaFaults
from tests.simulation.world.schedule import MS
from tests.simulation.world.trace import Violation

if TYPE_CHECKING:
    from kbatch.protocol.structs import Message
    from kbatch.testing.broker.logs.partition import Partition
    from tests.simulation.world.cluster import Ground

PRODUCE = messages.ProduceRequest.api_key
LOGIN = messages.SaslAuthenticateRequest.api_key
METADATA = messages.MetadataRequest.api_key
INIT_PRODUCER_ID = messages.InitProducerIdRequest.api_key
API_VERSIONS = messages.ApiVersionsRequest.api_key
PRODUCE_WITHOUT_LEADERS = 8  # in its answers, and without topic ids (Kafka 2.4)
LIMIT = "max.message.bytes"
CREATE_AGAIN_MS = 20  # between attempts to create a topic

# Errors of a broker that appended nothing.
PRODUCE_ERRORS = (
    *(ErrorCode.NOT_LEADER_OR_FOLLOWER,) * 3,
    *(ErrorCode.NOT_ENOUGH_REPLICAS,) * 3,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.CORRUPT_MESSAGE,
    *(ErrorCode.TOPIC_AUTHORIZATION_FAILED,) * 2,
    *(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,) * 3,
    ErrorCode.INVALID_PRODUCER_EPOCH,
)
# Errors for a batch that the broker did append.
AFTER_APPEND_ERRORS = (
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
# Errors for a batch that is in the log already, by whether the broker knows its offset.
IS_KNOWN = (ErrorCode.NONE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
METADATA_ERRORS = (ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
INIT_ERRORS = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)
ERRORS = {PRODUCE: PRODUCE_ERRORS, METADATA: METADATA_ERRORS, INIT_PRODUCER_ID: INIT_ERRORS}


class WorldFaults(ReplicaFaults):
    """The faults of a world, drawn from its seed.

    Attributes
    ----------
    is_fatal : bool
        A broker has ended the producer by a fatal error.
    refused_requests : tuple of str
        Requests that may be answered with an error without being executed.
    old_versions : dict of int to int
        By API key, the highest versions of brokers that have an old version of Metadata.
    errors, changes : dict
        By API key: the errors, and the functions that change answers.
    lacks : tuple of sets of type
        What a half-started node may lack.
    """

    lacks: tuple[frozenset[type[Message]], ...] = (
        frozenset({messages.ProduceRequest}),
        frozenset({messages.ProduceRequest, messages.InitProducerIdRequest}),
        frozenset({messages.InitProducerIdRequest}),
    )

    refused_requests: tuple[str, ...] = ("Produce", "Metadata", "SaslAuthenticate")
    old_versions: Mapping[int, int] = {PRODUCE: PRODUCE_WITHOUT_LEADERS}

    def __init__(self, world: Ground) -> None:
        super().__init__(world)
        self.is_fatal = False
        self.hidden: set[str] = set()
        self.errors: dict[int, tuple[ErrorCode, ...]] = ERRORS
        self.changes = {key: partial(change, self) for key, change in CHANGES.items()}
        highest = world.options.cluster.metadata_version
        self._limits = {} if highest is None else {**self.old_versions, METADATA: highest}
        self._answers = random.Random(f"answers {world.options.seed}")
        self._requests = world.options.request_faults
        self._login = world.options.login
        self._topics_seen: dict[str, list[Any]] = {}
        self._has_produced = False

    # Links and requests

    def late_ns(self) -> int:
        """Return how much later the bytes on a breaking link arrive; 0 if they are lost."""
        if not self._happens(self._requests.late):
            return 0
        self.note("late")
        return 1 + int(self._random.random() * self._requests.late_ms * MS)

    def breaks_tokens(self) -> bool:
        """True if the login thread gets no token this time."""
        is_broken = self._login is not None and self._happens(self._login.no_token)
        if is_broken:
            self._tell("no token", "the login gets no token")
        return is_broken

    def breaks_names(self) -> bool:
        return self._happens(min(self._requests.drop_before, 0.2))

    def break_at_bytes(self, size: int) -> int | None:
        """Return how many bytes of a write get through before the connection breaks, or None."""
        if not self._happens(self._requests.drop_partway):
            return None
        self.note("drop partway")
        return self._random.randrange(size + 1)

    def for_request(self, link: Link, frame: bytes) -> Fate:
        """Draw the fate of a request when the node begins to execute it."""
        fate = Fate(frame, self.changes)
        if fate.version > self._limits.get(fate.api_key, fate.version):
            raise Violation(f"{NAMES[fate.api_key]} has version {fate.version}, which brokers lack")
        if fate.api_key == PRODUCE:
            self._check_offered(link)
        if not self.is_active:
            return fate
        rates = self._requests
        name = NAMES[fate.api_key]
        if self._happens(rates.silence):
            fate.is_silent = True
            fate.drops_before = self._random.random() < 0.5
            fate.drops_after = not fate.drops_before
            self._tell("silence", "connection %d dies unseen at %s", link.connection_id, name)
        elif self._happens(rates.drop_before):
            fate.drops_before = True
            self._tell("drop before", "connection %d breaks before %s is done", link.connection_id, name)
        elif self._happens(rates.drop_after):
            fate.drops_after = True
            self._tell("drop after", "connection %d breaks when %s is done", link.connection_id, name)
        elif self._happens(rates.error_before) and fate.api_key in self.errors:
            fate.error_before = self._random.choice(self.errors[fate.api_key])
            self._tell("error before", "%s is answered %s", name, fate.error_before)
        elif self._happens(rates.error_after) and fate.api_key == PRODUCE:
            fate.error_after = self._random.choice(AFTER_APPEND_ERRORS)
            self._tell("error after", "%s is done and answered %s", name, fate.error_after)
        if fate.api_key == LOGIN and self._login is not None and self._happens(self._login.refused):
            fate.error_before = ErrorCode.SASL_AUTHENTICATION_FAILED
            self._tell("refused login", "the login on connection %d is refused", link.connection_id)
        if fate.api_key == PRODUCE and self.hidden and fate.error_before is None:
            fate.error_before = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        is_done = fate.api_key == PRODUCE and fate.error_before is None and not fate.drops_before
        if is_done and self._happens(rates.duplicate):
            fate.is_doubled = True
            self._tell("duplicate", "%s on connection %d comes twice", name, link.connection_id)
        if fate.api_key == PRODUCE and self._happens(rates.duplicate_code):
            fate.duplicates = self.world.cluster.duplicates_in(frame)
        if self._happens(rates.delay):
            fate.delay_ns = int(self._random.random() * rates.delay_ms * MS)
        if self._happens(rates.throttle):
            fate.mute_ns = int(1 + self._random.random() * rates.throttle_ms) * MS
            self.note("throttle")
        return fate

    def _check_offered(self, link: Link) -> None:
        """Check that the node of a Produce request offers it."""
        self._has_produced = True
        hidden = self.world.cluster.state.cluster.node(link.node_id).hidden
        if messages.ProduceRequest in hidden and not link.is_cut:
            raise Violation(f"ProduceRequest on connection {link.connection_id} to a node that lacks it")

    def _tell(self, name: str, text: str, *values: object) -> None:
        self.note(name)
        self.world.trace("!! " + text, *values)

    # Answers

    def _change_produce(self, fate: Fate, response: Any) -> None:
        """Shuffle the partitions: brokers answer in any order."""
        self._answers.shuffle(response.responses)
        for topic in response.responses:
            self._answers.shuffle(topic.partition_responses)
            name = topic.name or self.world.cluster.name_of(bytes(topic.topic_id))
            for answer in topic.partition_responses:
                self._check_acknowledged(name, answer)
                if (name, answer.index) in fate.duplicates and answer.error_code in IS_KNOWN:
                    answer.error_code = ErrorCode.DUPLICATE_SEQUENCE_NUMBER
                    answer.base_offset = answer.log_append_time_ms = -1
                    self._tell("duplicate code", "%s-%d has its batch already", name, answer.index)
                if fate.error_after is not None and answer.error_code == ErrorCode.NONE:
                    answer.error_code = fate.error_after
                    answer.base_offset = answer.log_append_time_ms = -1
                names_leaders = fate.version >= features.PRODUCE_NAMES_LEADERS
                if (
                    names_leaders
                    and answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                    and self._happens(0.3)
                ):
                    # this node knows less than the client: an older leader, or one node less
                    answer.current_leader.leader_epoch -= self._random.randrange(3)
                    answer.current_leader.leader_id = self._random.randrange(-1, 7)

    def _check_acknowledged(self, topic: str, answer: Any) -> None:
        history = self.world.cluster.history
        is_all = self.world.options.settings.get("acks") == "all"
        if history is not None and is_all and answer.error_code == ErrorCode.NONE:
            history.check_acknowledged(topic, answer.index, answer.base_offset)

    def _change_metadata(self, fate: Fate, response: Any) -> None:
        """Return an older version now and then, or omit hidden topics."""
        stale = self._happens(self.world.options.cluster_faults.move_leader / 40)
        for index, topic in enumerate(response.topics):
            if topic.error_code == ErrorCode.NONE:
                seen = self._topics_seen.setdefault(topic.name, [])
                seen.append(topic)
                if stale:
                    self.note("stale metadata")
                    response.topics[index] = self._random.choice(seen[-5:])
            if topic.name in self.hidden:
                response.topics[index] = type(topic)(
                    error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=topic.name
                )

    def _change_versions(self, fate: Fate, response: Any) -> None:
        """Leave out versions that the brokers of that Metadata version lack."""
        for row in response.api_keys:
            row.max_version = min(row.max_version, self._limits.get(row.api_key, row.max_version))

    def _change_producer_id(self, fate: Fate, response: Any) -> None:
        if response.error_code == ErrorCode.NONE:
            response.producer_epoch = self.world.options.cluster.first_epoch

    # The cluster

    def begin(self) -> None:
        """Begin with the cluster faults of this world."""
        self._begin(self.world.options.cluster_faults, HAPPENINGS)
        if self.world.options.replicas is not None:
            self._begin(self.world.options.replicas, REPLICA_HAPPENINGS)

    def _move_leader(self) -> None:
        partition, cluster = self._any_partition(), self.world.cluster
        running = [node.node_id for node in cluster.state.cluster.running_nodes]
        if running:
            node_id = self._random.choice(running)
            self.world.trace("!! node %d leads %s-%d", node_id, partition.topic.name, partition.index)
            cluster.change(cluster.state.move_leader, partition.topic.name, partition.index, node_id)

    def _leave_leaderless(self) -> None:
        partition, cluster = self._any_partition(), self.world.cluster
        self.world.trace("!! no node leads %s-%d", partition.topic.name, partition.index)
        cluster.change(partition.lead_by, -1)

        def lead_again() -> None:
            running = cluster.state.cluster.in_sync_replicas(partition)
            if partition.leader < 0 and running:
                cluster.change(partition.lead_by, running[0])

        self._for_a_while(500, lead_again)

    def _stop_node(self) -> None:
        node = self._random.choice(self.world.cluster.state.cluster.nodes)
        if node.is_running:
            self.world.trace("!! node %d stops", node.node_id)
            self.world.cluster.stop_node(node.node_id)
            self._for_a_while(1000, lambda: self._start_node(node.node_id))

    def _start_node(self, node_id: int) -> None:
        self.world.trace("!! node %d starts", node_id)
        self.world.cluster.start_node(node_id)

    def _pause_node(self) -> None:
        cluster = self.world.cluster
        node_id = self._random.randrange(len(cluster.state.cluster.nodes))
        self.world.trace("!! node %d does nothing for a while", node_id)
        cluster.paused_until_ns[node_id] = 2**62

        def go_on() -> None:
            cluster.paused_until_ns[node_id] = 0
            cluster.go_on(node_id)

        self._for_a_while(self._random.choice((20, 500, 4000)), go_on)

    def _restart(self) -> None:
        self.world.trace("!! all nodes restart")
        self.world.cluster.restart()

    def _forget(self) -> None:
        """Forget producers: as expired, or as unknown to a new leader."""
        partition = self._any_partition()
        topic_partition = (partition.topic.name, partition.index)
        is_expired = self.world.is_quiet(topic_partition, is_idle=True)
        if is_expired or (self.world.is_quiet(topic_partition, is_idle=False) and self._move_away(partition)):
            self.world.trace("!! %s-%d forgets all producers", *topic_partition)
            partition.log.forget_producers()

    def _move_away(self, partition: Any) -> bool:
        """Make another node the partition's leader. False if there is none."""
        cluster = self.world.cluster
        others = [node.node_id for node in cluster.state.cluster.running_nodes]
        others = [node_id for node_id in others if node_id != partition.leader]
        if others:
            node_id = self._random.choice(others)
            cluster.change(cluster.state.move_leader, partition.topic.name, partition.index, node_id)
        return bool(others)

    def _grow(self) -> None:
        topic = self._any_topic()
        if len(topic.partitions) < 6 and not topic.is_internal:
            self.world.trace("!! %s grows", topic.name)
            cluster = self.world.cluster
            self._change(cluster.state.cluster.create_partitions, topic.name, len(topic.partitions) + 1)

    def _recreate(self) -> None:
        topic = self._any_topic()
        count = max(1, len(topic.partitions) + self._random.randrange(-1, 2))
        self._make_anew(topic.name, count, (1, 300))

    def _remake(self) -> None:
        topic = self._any_topic()
        if not topic.is_internal:
            self._make_anew(topic.name, self._random.randrange(1, 5), (1, 300, 1500))

    def _make_anew(self, name: str, count: int, longest_ms: Sequence[int]) -> None:
        """Delete a topic, and make it anew after a while: at the longest, one of these."""
        self.world.trace("!! %s is deleted", name)
        self.world.cluster.delete_topic(name)

        def create() -> None:
            if not self.world.cluster.has_active_nodes:  # the controller refuses
                self.world.schedule.after(CREATE_AGAIN_MS * MS, create)
                return
            self.world.trace("!! %s is made anew with %d partitions", name, count)
            self.world.cluster.create_topic(name, count)

        self._for_a_while(self._random.choice(longest_ms), create)

    def _replace_cluster(self) -> None:
        cluster = self.world.cluster
        if not cluster.has_active_nodes:
            return
        topics = [each for each in cluster.state.cluster.topics.values() if not each.is_internal]
        counts = {each.name: self._random.randrange(1, 5) for each in topics}
        self.world.trace("!! another cluster has the addresses, with %s", counts)
        for node in cluster.state.cluster.nodes:
            cluster.break_connections(node.node_id, is_down=True)
        self._topics_seen.clear()
        cluster.begin_again(counts)

    def _half_start(self) -> None:
        cluster = self.world.cluster
        nodes = cluster.state.cluster.nodes
        node = self._random.choice(nodes)
        if not self._has_produced or sum(not each.hidden for each in nodes) < 2 or node.hidden:
            return  # if all lack it from the start, a producer rightly ends
        node.hidden = self._random.choice(self.lacks)
        names = ", ".join(sorted(kind.__name__ for kind in node.hidden))
        self.world.trace("!! node %d restarts, and lacks %s", node.node_id, names)
        cluster.break_connections(node.node_id, is_down=True)

        def complete() -> None:
            self.world.trace("!! node %d lacks nothing", node.node_id)
            node.hidden = frozenset()

        self._for_a_while(self._random.choice((50, 1000, 4000)), complete)

    def _hide(self) -> None:
        name = self._any_topic().name
        if name not in self.hidden:
            self.world.trace("!! %s vanishes", name)
            self.hidden.add(name)
            self._for_a_while(800, lambda: self.hidden.discard(name))

    def _shrink(self) -> None:
        topic = self._any_topic()
        limit = self._random.choice((90, 150, 300, 1000))
        self.world.trace("!! %s takes batches of up to %d bytes", topic.name, limit)
        self._configure_for_a_while(topic, LIMIT, str(limit), 1000)

    def _break_connections(self) -> None:
        node_id = self._random.randrange(len(self.world.cluster.state.cluster.nodes))
        self.world.trace("!! connections of node %d break", node_id)
        self.world.cluster.break_connections(node_id)

    def _step_clock(self) -> None:
        step_ms = self._random.choice((-3_600_000, -1000, 50, 600_000, 7_200_000))
        self.world.trace("!! the wall clock steps by %d ms", step_ms)
        self.world.schedule.wall_offset_ns += step_ms * MS

    def _hold(self) -> None:
        self._stop_followers(self._any_partition(), 1000, lambda: None)

    def _stop_followers(self, partition: Any, longest_ms: int, end: Callable[[], None]) -> None:
        """Stop the replication of the partition until `end()` is called, within `longest_ms`."""
        cluster, name, index = self.world.cluster, partition.topic.name, partition.index
        self.world.trace("!! followers of %s-%d stop", name, index)
        partition.log.hold_high_watermark = True

        def let_go() -> None:
            end()
            partition.log.hold_high_watermark = False
            cluster.change(cluster.state.partition_changed, name, index)

        self._for_a_while(longest_ms, let_go)

    def _fail_over(self) -> None:
        self._lose_leader(lambda log: log.high_watermark)

    def _elect_unclean(self) -> None:
        def cut_at(log: Partition) -> int:
            starts = [batch.base_offset for batch in log.batches(0)]
            return self._random.choice([0, *filter(log.high_watermark.__gt__, starts)])

        self._lose_leader(cut_at)

    def _lose_leader(self, cut_at: Callable[[Partition], int]) -> None:
        """Stop a partition's followers, let its leader die, and elect one whose log ends at `cut_at(log)`."""
        partition, cluster = self._any_partition(), self.world.cluster

        def elect() -> None:
            running = [node.node_id for node in cluster.state.cluster.running_nodes]
            others = [node_id for node_id in running if node_id != partition.leader]
            if others and cluster.has(partition):
                cluster.fail_over(partition, self._random.choice(others), cut_at(partition.log))

        self._stop_followers(partition, self._random.choice((30, 300, 1500)), elect)


CHANGES: dict[int, Callable[[WorldFaults, Fate, Any], None]] = {
    API_VERSIONS: WorldFaults._change_versions,
    PRODUCE: WorldFaults._change_produce,
    METADATA: WorldFaults._change_metadata,
    INIT_PRODUCER_ID: WorldFaults._change_producer_id,
}
HAPPENINGS: dict[str, Callable[[WorldFaults], None]] = {
    "move_leader": WorldFaults._move_leader,
    "leave_leaderless": WorldFaults._leave_leaderless,
    "stop_node": WorldFaults._stop_node,
    "pause_node": WorldFaults._pause_node,
    "restart": WorldFaults._restart,
    "forget": WorldFaults._forget,
    "grow": WorldFaults._grow,
    "recreate": WorldFaults._recreate,
    "remake": WorldFaults._remake,
    "replace_cluster": WorldFaults._replace_cluster,
    "half_start": WorldFaults._half_start,
    "hide": WorldFaults._hide,
    "shrink": WorldFaults._shrink,
    "break_connections": WorldFaults._break_connections,
    "step_clock": WorldFaults._step_clock,
    "hold": WorldFaults._hold,
    "fail_over": WorldFaults._fail_over,
    "elect_unclean": WorldFaults._elect_unclean,
}
