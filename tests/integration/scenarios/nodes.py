"""Scenarios of three nodes: leaders and coordinators that move, die, stop and return.

Each is a function of `Nodes`, and is run against a real cluster and an embedded one: what it wrote down must
be the same. What takes its time in a real cluster is awaited.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Collection
from typing import Any, Protocol

from kbatch import Producer
from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from kbatch.protocol.structs import Message
from tests.integration.scenarios.administration import BROKER, UNCLEAN, Administration
from tests.integration.scenarios.requests import batch
from tests.integration.scenarios.share_groups import ACCEPT, REJECT, RELEASE, Member, offsets
from tests.integration.scenarios.wire import Wire as ScenarioWire
from tests.integration.scenarios.wire import batch_rows
from tests.support import requests
from tests.support.broker_wire import ConnectionClosed, Wire
from tests.support.patience import until

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
SHARE_STATE = "__share_group_state"
GROUP, GROUP_TYPE, SHARE_TYPE = 32, 0, 2  # a type of resources; types of coordinators' keys
SENT_AT_ONCE, REQUEST_TIMEOUT_MS = 20, 3_000
NO_TOPIC_ID = bytes(16)
RACKS = ("north", "south", "west")  # of the nodes
LEADER, ALL = 1, -1
PAUSE_SECONDS = 0.05
NONE, MOVED, LOADING, MISSING = (
    ErrorCode.NONE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)


class Cluster(Protocol):
    """A cluster of nodes 0, 1 and 2; `tests.oracle.kafka.RealCluster` or `kbatch.testing.Broker`."""

    @property
    def bootstrap_servers(self) -> str: ...
    def kill_node(self, node: int) -> None: ...
    def start_node(self, node: int) -> None: ...
    def pause_node(self, node: int) -> None: ...
    def resume_node(self, node: int) -> None: ...


NodesScenario = Callable[["Nodes"], None]
NODES_SCENARIOS: dict[str, NodesScenario] = {}


def nodes_scenario(function: NodesScenario) -> NodesScenario:
    """Add a function to the scenarios, under its own name."""
    NODES_SCENARIOS[function.__name__] = function
    return function


class Nodes(Administration):
    """A connection to each node; `transcript` is what was written down. A context manager."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.transcript: list[tuple[str, Any]] = []
        self._wires: dict[int, Wire] = {}
        self._ids: dict[str, bytes] = {}

    def __enter__(self) -> Nodes:
        return self

    def __exit__(self, *_: object) -> None:
        for node in list(self._wires):
            self._drop(node)

    # Requests and answers

    def note(self, label: str, value: Any) -> None:
        self.transcript.append((label, value))

    def connect(self, node: int) -> Wire:
        """Return a further connection."""
        return Wire(self.cluster.bootstrap_servers, node)

    def ask(self, node: int, request: Message, version: int | None = None) -> Any:
        """Return the answer of a node; connect again if the connection has ended."""

        def attempt() -> Any:
            try:
                if node not in self._wires:
                    self._wires[node] = self.connect(node)
                return self._wires[node].ask(request, version)
            except (ConnectionClosed, OSError):
                self._drop(node)
                return None

        return until(attempt, request, pause_seconds=PAUSE_SECONDS)

    def administer(self, request: Message) -> Any:
        return self.ask(0, request)

    def _drop(self, node: int) -> None:
        if (wire := self._wires.pop(node, None)) is not None:
            wire.close()

    def settled(
        self,
        node: int,
        request: Message,
        version: int | None = None,
        *,
        passing: Collection[int] = (MOVED, LOADING, MISSING),
    ) -> Any:
        """Return the first answer of a node whose code is not `passing`."""

        def attempt() -> Any:
            answer = self.ask(node, request, version)
            return None if code_of(answer) in passing else answer

        return until(attempt, request, pause_seconds=PAUSE_SECONDS)

    def note_code(
        self, label: str, node: int, request: Message, code: int, version: int | None = None
    ) -> None:
        """Wait until a node answers with this code, and write it down."""
        until(
            lambda: code_of(self.ask(node, request, version)) == code,
            lambda: f"{label}: {self.ask(node, request, version)}",
            pause_seconds=PAUSE_SECONDS,
        )
        self.note(label, ErrorCode(code).name)

    # Topics

    def topic(self, suffix: str, *replicas: int, **configs: object) -> str:
        """Create a topic of one partition on these nodes; underscores in configs are dots."""
        name = f"{self.name}.{suffix}"
        self._ids[name] = self.create(name, replicas, configs)
        self.await_isr(name, len(replicas))
        until(lambda: self.latest(replicas[0], name)[0] == NONE.name, pause_seconds=PAUSE_SECONDS)
        return name

    def topic_id(self, name: str) -> bytes:
        return self._ids[name]

    def partition(self, topic: str, node: int = 0) -> Any:
        """Return partition 0 as a node describes it, once it knows the topic."""
        kind = messages.DescribeTopicPartitionsRequest
        request = kind(topics=[kind.TopicRequest(name=topic)])
        found = until(lambda: self.ask(node, request).topics[0].partitions, pause_seconds=PAUSE_SECONDS)
        return found[0]

    def note_partitions(self, label: str, *topics: str, node: int = 0) -> None:
        """Write down leader, epoch and replicas of partitions."""
        for topic in topics:
            known = self.partition(topic, node)
            self.note(
                f"{topic} {label}",
                {
                    "leader": (known.leader_id, known.leader_epoch),
                    "isr": sorted(known.isr_nodes),
                    "elr": known.eligible_leader_replicas,
                    "last known": known.last_known_elr,
                    "offline": known.offline_replicas,
                    "replicas": known.replica_nodes,
                },
            )

    def note_replicas(self, label: str, *topics: str) -> None:
        """Write down leader and replicas of partitions, but no epochs."""
        for topic in topics:
            known = self.partition(topic)
            self.note(
                f"{topic} {label}",
                {
                    "leader": known.leader_id,
                    "isr": sorted(known.isr_nodes),
                    "elr": known.eligible_leader_replicas,
                    "last known": known.last_known_elr,
                    "offline": known.offline_replicas,
                },
            )

    def await_leader(self, topic: str, *leaders: int, node: int = 0) -> None:
        """Wait until one of these nodes leads, as far as a node knows."""
        until(
            lambda: self.partition(topic, node).leader_id in leaders,
            lambda: self.partition(topic, node),
            pause_seconds=PAUSE_SECONDS,
        )

    def await_isr(self, topic: str, count: int, node: int = 0) -> None:
        until(
            lambda: len(self.partition(topic, node).isr_nodes) == count,
            lambda: self.partition(topic, node),
            pause_seconds=PAUSE_SECONDS,
        )

    def await_replicas(self, topic: str, *replicas: int) -> None:
        """Wait until a partition has moved to these nodes."""
        until(
            lambda: self.partition(topic).replica_nodes == list(replicas),
            lambda: self.partition(topic),
            pause_seconds=PAUSE_SECONDS,
        )

    def place(self, topic: str, *replicas: int) -> None:
        """Have a partition led by the first of these nodes, and followed by the others."""
        assert self.reassign(topic, replicas)[0] == NONE.name
        self.await_replicas(topic, *replicas)
        self.await_isr(topic, len(replicas))
        self.elect(topic)
        for node in range(3):
            self.await_leader(topic, replicas[0], node=node)
        self.await_offsets(replicas[0], topic)

    # Records

    def produce_request(self, topic: str, *values: bytes, acks: int = ALL, timeout_ms: int = 30_000) -> Any:
        return requests.produce_request(
            {(topic, 0): batch(*values)}, self.topic_id, acks=acks, timeout_ms=timeout_ms
        )

    def produce(self, node: int, topic: str, *values: bytes, acks: int = ALL) -> tuple[str, int]:
        """Return (code, base offset)."""
        answer = self.ask(node, self.produce_request(topic, *values, acks=acks))
        (partition,) = answer.responses[0].partition_responses
        return ErrorCode(partition.error_code).name, partition.base_offset

    def produce_to_leader(self, topic: str, *values: bytes) -> tuple[str, int]:
        """Return (code, base offset) of whoever leads: that may change, and who leads may hear so late."""
        refused = ErrorCode.NOT_LEADER_OR_FOLLOWER.name
        answers: list[tuple[str, int]] = []

        def is_taken() -> bool:
            leader = self.partition(topic).leader_id
            answers.append(self.produce(leader, topic, *values) if leader >= 0 else (refused, -1))
            return answers[-1][0] != refused

        until(is_taken, pause_seconds=PAUSE_SECONDS)
        return answers[-1]

    def fetch(self, node: int, topic: str, offset: int = 0) -> tuple[str, list[bytes], int]:
        """Return (code, values, high watermark)."""
        request = requests.fetch_request(topic, self.topic_id(topic), offset, max_wait_ms=0, min_bytes=1)
        (partition,) = self.ask(node, request, 16).responses[0].partitions
        rows = batch_rows(bytes(partition.records or b""))
        values = [value for row in rows for _, _, _, value in row["values"]]
        return ErrorCode(partition.error_code).name, values, partition.high_watermark

    def await_offsets(self, node: int, topic: str) -> None:
        """Wait until a node answers as the leader."""
        until(lambda: self.latest(node, topic)[0] == "NONE", pause_seconds=PAUSE_SECONDS)

    def preferred(self, node: int, topic: str, rack: str, offset: int = 0) -> tuple[int, bool]:
        """Return the replica that a node names to a reader in a rack, and if it gives records itself."""
        request = requests.fetch_request(
            topic, self.topic_id(topic), offset, max_wait_ms=0, min_bytes=1, rack_id=rack
        )
        (partition,) = self.ask(node, request, 16).responses[0].partitions
        return partition.preferred_read_replica, bool(partition.records)

    def log_bytes(self, node: int, topic: str) -> int:
        """Return the size of a node's replica."""
        kind = messages.DescribeLogDirsRequest
        named = kind.DescribableLogDirTopic(topic=topic, partitions=[0])
        (found,) = self.ask(node, kind(topics=[named])).results
        size: int = found.topics[0].partitions[0].partition_size
        return size

    def latest(self, node: int, topic: str, version: int | None = None) -> tuple[str, int]:
        """Return (code, offset) of ListOffsets."""
        kind = messages.ListOffsetsRequest
        wanted = kind.ListOffsetsPartition(partition_index=0, timestamp=-1)
        request = kind(replica_id=-1, topics=[kind.ListOffsetsTopic(name=topic, partitions=[wanted])])
        (found,) = self.ask(node, request, version).topics[0].partitions
        return ErrorCode(found.error_code).name, found.offset

    def active_controller(self) -> int:
        """Return the node whose controller is the active one."""
        kind = messages.DescribeQuorumRequest
        quorum = kind.TopicData(
            topic_name="__cluster_metadata", partitions=[kind.PartitionData(partition_index=0)]
        )
        active: int = self.ask(0, kind(topics=[quorum])).topics[0].partitions[0].leader_id
        return active

    # Groups

    def commit_request(
        self, topic: str, offset: int, *, group: str, member: str = "", epoch: int = -1
    ) -> Any:
        kind = messages.OffsetCommitRequest
        partition = kind.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        named = kind.OffsetCommitRequestTopic(topic_id=self.topic_id(topic), partitions=[partition])
        return kind(group_id=group, member_id=member, generation_id_or_member_epoch=epoch, topics=[named])

    def committed(self, node: int, topic: str, group: str) -> tuple[str, int]:
        """Return (code, offset)."""
        kind = messages.OffsetFetchRequest
        named = kind.OffsetFetchRequestTopics(topic_id=self.topic_id(topic), partition_indexes=[0])
        request = kind(groups=[kind.OffsetFetchRequestGroup(group_id=group, topics=[named])])
        (found,) = self.settled(node, request).groups
        (partition,) = found.topics[0].partitions
        return ErrorCode(partition.error_code).name, partition.committed_offset


class Sender:
    """An idempotent producer of numbered records to a topic on nodes 1, 2 and 0. A context manager, which
    sends before and after what it surrounds, and then writes down what has come.
    """

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._topic = nodes.topic("sent", 1, 2, 0)
        self._sent: list[bytes] = []
        self._producer = Producer(
            bootstrap_servers=nodes.cluster.bootstrap_servers, request_timeout_ms=REQUEST_TIMEOUT_MS
        )

    def __enter__(self) -> Sender:
        self.send()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.send()
                self._note_records()
        finally:
            self._producer.close()

    def send(self) -> None:
        """Send some records, without waiting for them."""
        for number in range(len(self._sent), len(self._sent) + SENT_AT_ONCE):
            self._sent.append(b"%d" % number)
            self._producer.send(self._topic, self._sent[-1])

    def _note_records(self) -> None:
        """Wait until all are acknowledged, and write down what the leader has."""
        self._producer.flush()
        leader = self._nodes.partition(self._topic).leader_id
        code, values, _ = until_read(self._nodes, leader, self._topic, len(self._sent))
        self._nodes.note("all that was sent, in order", (code, values == self._sent))


def code_of(answer: Any) -> int:
    """Return the first code of an answer."""
    for name in ("topics", "responses", "groups", "partitions"):
        if not hasattr(answer, "error_code") and getattr(answer, name, None):
            return code_of(getattr(answer, name)[0])
    return int(answer.error_code)


# Leaders


@nodes_scenario
def leaders_die_and_return(nodes: Nodes) -> None:
    """E01 to E04, E06, E08, I06, I07, B03; B07 of a leader that is killed."""
    with Sender(nodes) as sender:
        _leaders_die_and_return(nodes, sender)


def _leaders_die_and_return(nodes: Nodes, sender: Sender) -> None:
    topics = [
        nodes.topic("three", 1, 2, 0),
        nodes.topic("two", 1, 2, min_insync_replicas=2),
        nodes.topic("one", 1),
    ]
    nodes.note_partitions("at first", *topics)
    nodes.cluster.kill_node(1)
    sender.send()
    for topic in topics:
        nodes.await_leader(topic, -1, 0, 2)
    nodes.note_partitions("without node 1", *topics)
    request = messages.MetadataRequest(topics=None)
    until(lambda: len(nodes.ask(0, request, 12).brokers) == 2, pause_seconds=PAUSE_SECONDS)
    described = nodes.ask(0, request, 12)
    nodes.note("brokers", sorted((each.node_id, each.rack) for each in described.brokers))
    for found in sorted(described.topics, key=lambda each: each.name):
        if found.name in topics:
            (known,) = found.partitions
            code = ErrorCode(known.error_code).name
            nodes.note(f"Metadata of {found.name}", (code, known.leader_id, known.offline_replicas))
    for topic in topics[:2]:  # a node may hear later than others that it leads
        nodes.await_offsets(2, topic)
    nodes.note("acks=all with two of three", nodes.produce(2, topics[0], b"1"))
    nodes.note("acks=all below the minimum", nodes.produce(2, topics[1], b"1"))
    nodes.note("acks=1 below the minimum", nodes.produce(2, topics[1], b"2", acks=LEADER))
    nodes.note("what is seen of it", nodes.fetch(2, topics[1]))
    for topic in topics:
        nodes.note(f"{topic} preferred", nodes.elect(topic)[0])
    nodes.note("an unclean election", nodes.elect(topics[0], UNCLEAN))
    nodes.cluster.start_node(1)
    for topic, count in zip(topics, (3, 2, 1), strict=True):
        nodes.await_isr(topic, count)
    nodes.note_partitions("with node 1", *topics)
    for topic in topics:
        nodes.note(f"{topic} preferred again", nodes.elect(topic))
        nodes.await_leader(topic, 1)
    nodes.note_partitions("as preferred", *topics)
    nodes.note("what is seen now", until_read(nodes, 1, topics[1], 1))


def until_read(nodes: Nodes, node: int, topic: str, count: int) -> tuple[str, list[bytes], int]:
    """Return what a node has, when it has so many records."""
    until(
        lambda: len(nodes.fetch(node, topic)[1]) == count,
        lambda: f"{count} records at node {node}, which has {nodes.fetch(node, topic)}; {nodes.transcript}",
        pause_seconds=PAUSE_SECONDS,
    )
    return nodes.fetch(node, topic)


@nodes_scenario
def elections_are_unclean_where_they_may_be(nodes: Nodes) -> None:
    """E05, E12: what only the dead leader has is lost. How many terms that takes, is a matter of luck."""
    strict = nodes.topic("strict", 1, 2, unclean_leader_election_enable=False)
    loose = nodes.topic("loose", 1, 2, unclean_leader_election_enable=True)
    for topic in (strict, loose):
        nodes.note(f"{topic} kept", nodes.produce(1, topic, b"kept"))
        until_read(nodes, 2, topic, 1)
    nodes.cluster.pause_node(2)
    for topic in (strict, loose):
        nodes.await_isr(topic, 1)
        nodes.note(f"{topic} lost", nodes.produce(1, topic, b"lost", acks=LEADER))
    nodes.cluster.kill_node(1)
    nodes.cluster.resume_node(2)
    nodes.await_leader(loose, 2)
    nodes.await_leader(strict, -1)
    for topic in (strict, loose):
        nodes.note_replicas("without node 1", topic)
    nodes.configure(strict, "unclean.leader.election.enable", "true")
    nodes.note_replicas("where it may be unclean", strict)
    nodes.configure(strict, "unclean.leader.election.enable", "false")
    nodes.note("by request", nodes.elect(strict, UNCLEAN))
    nodes.await_leader(strict, 2, node=2)
    nodes.cluster.start_node(1)
    for topic in (strict, loose):
        nodes.await_isr(topic, 2)
        nodes.note_replicas("with node 1", topic)
        nodes.await_offsets(2, topic)
        nodes.note(f"{topic} at the next leader", until_read(nodes, 2, topic, 1))
        nodes.note(f"{topic} at the old one", until_read(nodes, 1, topic, 1))


@nodes_scenario
def another_minimum_empties_the_eligible(nodes: Nodes) -> None:
    """E09."""
    minimum = "min.insync.replicas"
    topics = [nodes.topic(name, 1, 2, 0, min_insync_replicas=3) for name in ("own", "default")]
    nodes.cluster.kill_node(1)
    for topic in topics:
        nodes.await_leader(topic, 2)
        nodes.note_replicas("without node 1", topic)
    nodes.configure(topics[0], minimum, 3)
    nodes.note_replicas("the same minimum", topics[0])
    nodes.configure(topics[0], minimum, 2)
    until(lambda: not nodes.partition(topics[0]).eligible_leader_replicas, pause_seconds=PAUSE_SECONDS)
    nodes.note_replicas("another minimum", *topics)
    nodes.configure("", minimum, 2, resource_type=BROKER)
    until(lambda: not nodes.partition(topics[1]).eligible_leader_replicas, pause_seconds=PAUSE_SECONDS)
    nodes.note_replicas("another default", *topics)
    nodes.configure("", minimum, 1, resource_type=BROKER)
    nodes.cluster.start_node(1)
    for topic in topics:
        nodes.await_isr(topic, 3)
        nodes.note_replicas("with node 1", topic)


@nodes_scenario
def any_live_broker_is_named_as_the_controller(nodes: Nodes) -> None:
    """E11."""

    def named() -> set[int]:
        request = messages.MetadataRequest(topics=[])
        return {nodes.ask(0, request, 12).controller_id for _ in range(60)}

    nodes.note("all", sorted(named()))
    nodes.cluster.kill_node(2)
    request = messages.MetadataRequest(topics=[])
    until(lambda: len(nodes.ask(0, request, 12).brokers) == 2, pause_seconds=PAUSE_SECONDS)
    nodes.note("without node 2", sorted(named()))
    nodes.cluster.start_node(2)


@nodes_scenario
def latest_offsets_wait_for_the_start_of_a_term(nodes: Nodes) -> None:
    """R04."""
    paused = 1 if nodes.active_controller() == 2 else 2  # the controller has to elect
    leader = 3 - paused
    topic = nodes.topic("t", 0, leader, paused)
    nodes.reassign(topic, [leader, 0, paused])
    nodes.await_replicas(topic, leader, 0, paused)
    nodes.note("all have", nodes.produce(0, topic, b"1"))
    until_read(nodes, leader, topic, 1)
    nodes.cluster.pause_node(paused)
    nodes.note("not all have", nodes.produce(0, topic, b"2", acks=LEADER))
    until(lambda: nodes.log_bytes(leader, topic) == nodes.log_bytes(0, topic), pause_seconds=PAUSE_SECONDS)
    nodes.note("elected", nodes.elect(topic))
    until(lambda: nodes.latest(leader, topic)[0] != "NOT_LEADER_OR_FOLLOWER", pause_seconds=PAUSE_SECONDS)
    nodes.note("the latest offset", nodes.latest(leader, topic))
    nodes.note("the latest offset, version 4", nodes.latest(leader, topic, 4))
    nodes.note("what is seen", nodes.fetch(leader, topic))
    nodes.cluster.resume_node(paused)
    nodes.await_offsets(leader, topic)
    nodes.note("the latest offset of all", nodes.latest(leader, topic))
    nodes.note("what is seen then", until_read(nodes, leader, topic, 2))
    nodes.await_isr(topic, 3)


@nodes_scenario
def leaders_name_the_replica_in_the_rack(nodes: Nodes) -> None:
    """R03."""
    topic = nodes.topic("t", 1, 2, 0)
    nodes.produce(1, topic, b"1")
    until_read(nodes, 2, topic, 1)
    # a follower may tell of the record later than it has it
    until(lambda: nodes.preferred(1, topic, RACKS[2]) == (2, False), pause_seconds=PAUSE_SECONDS)
    for rack in (*RACKS, "", "nowhere"):
        nodes.note(f"in {rack!r}", nodes.preferred(1, topic, rack))
    nodes.note("at its end", nodes.preferred(1, topic, RACKS[2], 1))
    nodes.note("above its end", nodes.preferred(1, topic, RACKS[2], 2))
    nodes.note("at the follower", nodes.preferred(2, topic, RACKS[0]))
    nodes.cluster.kill_node(2)
    nodes.await_isr(topic, 2)
    until(lambda: nodes.preferred(1, topic, RACKS[2])[0] == -1, pause_seconds=PAUSE_SECONDS)
    nodes.note("without node 2", nodes.preferred(1, topic, RACKS[2]))
    nodes.cluster.start_node(2)
    nodes.await_isr(topic, 3)


@nodes_scenario
def followers_describe_producers(nodes: Nodes) -> None:
    """DescribeProducers is answered by all replicas, and by no other node."""
    topic = nodes.topic("t", 1, 2)
    init = messages.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    data = batch(b"1", producer_id=nodes.settled(0, init).producer_id, producer_epoch=0, sequence=0)
    nodes.ask(1, requests.produce_request({(topic, 0): data}, nodes.topic_id, timeout_ms=30_000))
    until_read(nodes, 2, topic, 1)
    kind = messages.DescribeProducersRequest
    for node in range(3):
        asked = kind(topics=[kind.TopicRequest(name=topic, partition_indexes=[0])])
        (found,) = nodes.ask(node, asked).topics[0].partitions
        known = [(each.producer_epoch, each.last_sequence) for each in found.active_producers]
        nodes.note(f"at node {node}", (ErrorCode(found.error_code).name, known))


@nodes_scenario
def followers_are_read(nodes: Nodes) -> None:
    """R01, R02, R05."""
    topic = nodes.topic("t", 1, 2, 0)
    nodes.note("produced", nodes.produce(1, topic, b"1", b"2"))
    nodes.note("a follower", until_read(nodes, 2, topic, 2))
    nodes.note("beyond its end", nodes.fetch(2, topic, 7))
    nodes.note("its latest offset", nodes.latest(2, topic))
    nodes.note("written to it", nodes.produce(2, topic, b"3"))
    nodes.elect(topic)
    nodes.place(topic, 2, 1, 0)
    nodes.note("produced at the next", nodes.produce(2, topic, b"3"))
    kind = messages.OffsetForLeaderEpochRequest
    for epoch in range(-1, 4):
        asked = kind.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=epoch)
        named = kind.OffsetForLeaderTopic(topic=topic, partitions=[asked])
        (found,) = nodes.ask(2, kind(replica_id=-1, topics=[named])).topics[0].partitions
        nodes.note(
            f"end of epoch {epoch}", (ErrorCode(found.error_code).name, found.leader_epoch, found.end_offset)
        )


@nodes_scenario
def partitions_move_to_other_nodes(nodes: Nodes) -> None:
    """B08 to B10."""
    topic = nodes.topic("t", 1, 2)
    nodes.produce(1, topic, b"1")
    nodes.note("no move", (nodes.reassigned(topic), nodes.reassign(topic, None)))
    for replicas in ([], [1, 9], [1, 1]):
        nodes.note(f"to {replicas}", nodes.reassign(topic, replicas))
    nodes.note("another order", nodes.reassign(topic, [2, 1]))
    nodes.await_replicas(topic, 2, 1)
    nodes.note_partitions("in another order", topic)
    nodes.note("away", nodes.reassign(topic, [2, 0]))
    nodes.await_replicas(topic, 2, 0)
    nodes.note("nothing moves", nodes.reassigned(topic))
    nodes.note_partitions("moved", topic)
    until(lambda: nodes.latest(1, topic)[0] != NONE.name, pause_seconds=PAUSE_SECONDS)
    nodes.note("the old leader", (nodes.latest(1, topic), nodes.produce(1, topic, b"2")))
    nodes.await_offsets(2, topic)
    nodes.note("the new leader", (nodes.produce(2, topic, b"2"), nodes.fetch(2, topic)))
    nodes.note("its follower", until_read(nodes, 0, topic, 2))


def preferred_leaders_return(nodes: Nodes, pass_time: Callable[[], None]) -> None:
    """E10, of nodes that balance leaders; `pass_time` lets an embedded cluster do so at once."""
    topic = nodes.topic("t", 1, 2, 0)
    nodes.note_partitions("at first", topic)
    nodes.cluster.kill_node(1)
    nodes.await_leader(topic, 2)
    nodes.note_partitions("without node 1", topic)
    nodes.cluster.start_node(1)
    nodes.await_isr(topic, 3)
    pass_time()
    nodes.await_leader(topic, 1)
    nodes.note_partitions("by itself", topic)


@nodes_scenario
def stopped_leaders_go_on_as_zombies(nodes: Nodes) -> None:
    """P06, P07: what only the stopped one has is cut off. B04, B07."""
    with Sender(nodes) as sender:
        _stopped_leaders_go_on_as_zombies(nodes, sender)


def _stopped_leaders_go_on_as_zombies(nodes: Nodes, sender: Sender) -> None:
    topic = nodes.topic("t", 1, 2, 0)
    nodes.note("before", nodes.produce(1, topic, b"kept"))
    zombie = nodes.connect(1)
    nodes.cluster.pause_node(1)
    sender.send()
    for node in (0, 2):
        nodes.note_partitions(f"at node {node}, just stopped", topic, node=node)
    zombie.send(nodes.produce_request(topic, b"lost", acks=LEADER))
    nodes.await_leader(topic, 0, 2)
    nodes.note_partitions("without node 1", topic)
    nodes.note("meanwhile", nodes.produce_to_leader(topic, b"2", b"3"))
    nodes.cluster.resume_node(1)
    zombie.receive()
    nodes.await_isr(topic, 3)
    nodes.note("at the leader", nodes.fetch(nodes.partition(topic).leader_id, topic))
    nodes.note("at the zombie", until_read(nodes, 1, topic, 3))
    nodes.note("written to it", nodes.produce(1, topic, b"4"))
    zombie.close()


def requests_wait_for_a_controller(
    nodes: Nodes, cut_off: Callable[[int], None], heal: Callable[[], None]
) -> None:
    """B06, B11. The controllers of a real node need a second one; that of an embedded cluster is no node, so
    `cut_off` keeps a node from it, until `heal`.
    """
    active = nodes.active_controller()
    killed, alone, stopped = sorted(range(3), key=lambda node: node != active)
    topic = nodes.topic("t", alone)
    nodes.cluster.pause_node(stopped)
    nodes.cluster.kill_node(killed)
    cut_off(alone)
    name = f"{nodes.name}.waits"
    kind = messages.CreateTopicsRequest
    wanted = kind.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    waiting = nodes.connect(alone)
    waiting.send(kind(topics=[wanted], timeout_ms=30_000))
    nodes.note("written meanwhile", nodes.produce(alone, topic, b"1"))
    nodes.note("read meanwhile", nodes.fetch(alone, topic))
    described = nodes.ask(alone, messages.MetadataRequest(topics=None), 12)
    known = next(each for each in described.topics if each.name == topic)
    nodes.note("described meanwhile", known.partitions[0].leader_id == alone)
    heal()
    nodes.cluster.resume_node(stopped)
    (created,) = waiting.receive().topics
    nodes.note("created by the next", ErrorCode(created.error_code).name)
    waiting.close()
    nodes.cluster.start_node(killed)


# Coordinators


@nodes_scenario
def share_groups_move(nodes: Nodes) -> None:
    """K05, G21 to G23."""
    topic, group = nodes.topic("t", 0, 1, 2), f"{nodes.name}.group"
    for number in range(5):
        nodes.produce(0, topic, b"%d" % number)
    key = f"{group}:{urlsafe_b64encode(nodes.topic_id(topic)).decode().rstrip('=')}:0"
    for key_type, name in ((GROUP_TYPE, group), (SHARE_TYPE, key)):
        request = messages.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[name])
        until(
            lambda: nodes.ask(0, request).coordinators[0].error_code == NONE,  # noqa: B023 - called at once
            pause_seconds=PAUSE_SECONDS,
        )
    for internal in (OFFSETS, SHARE_STATE):
        nodes.place(internal, 0, 1, 2)
    nodes.configure(group, "share.auto.offset.reset", "earliest", resource_type=GROUP)
    addresses = nodes.cluster.bootstrap_servers.split(",")
    with ScenarioWire(addresses[0], nodes.name) as wire, wire.through(addresses[1], None) as next_wire:
        wire.transcript = next_wire.transcript = nodes.transcript
        for each in (wire, next_wire):
            each.forge_topic_id(topic, nodes.topic_id(topic))
        member = Member(wire, "AAAAAAAAAAAAAAAAAAAAAA", topic, group=group)
        member.join()
        member.acquire(topic, note="all")
        member.acknowledge(topic, [(0, 2, [ACCEPT, RELEASE, REJECT])], note="three")
        member.acquire(topic, note="what was released")
        nodes.place(SHARE_STATE, 1, 0, 2)
        member.acknowledge(topic, [(3, 3, [ACCEPT])], note="after a move of what is stored")
        nodes.place(OFFSETS, 1, 0, 2)
        nodes.note_code("at the old coordinator", 0, member.heartbeat(), MOVED)
        found = nodes.settled(1, member.heartbeat())
        nodes.note("at the new", (ErrorCode(found.error_code).name, found.member_epoch - member.epoch))
        nodes.place(topic, 1, 0, 2)
        until(lambda: nodes.latest(0, topic)[0] != NONE.name, pause_seconds=PAUSE_SECONDS)
        member.fetch(topic, note="at the old leader")
        member.acknowledge(topic, [(4, 4, [ACCEPT])], note="at the old leader")
        moved = Member(next_wire, member.member_id, topic, group=group)
        moved.acquire(topic, note="at the new leader")
        moved.acknowledge(topic, [(1, 1, [ACCEPT])], note="at the new leader")
        offsets(next_wire, topic, "at the new coordinator", group=group)


@nodes_scenario
def coordinators_move(nodes: Nodes) -> None:
    """K01, K03, K04."""
    topic = nodes.topic("t", 1, 2, 0)
    for key_type, name in ((0, "key"), (1, "key")):
        nodes.settled(0, messages.FindCoordinatorRequest(key=name, key_type=key_type), 3)
    for internal in (OFFSETS, TRANSACTIONS):
        nodes.place(internal, 0, 1, 2)
    group, classic = f"{nodes.name}.group", f"{nodes.name}.classic"
    member = _joined(nodes, group, topic)
    heartbeat = messages.ConsumerGroupHeartbeatRequest(
        group_id=group, member_id=member.member_id, member_epoch=member.member_epoch
    )
    commit = nodes.commit_request(topic, 5, group=group, member=member.member_id, epoch=member.member_epoch)
    nodes.note("commit", ErrorCode(code_of(nodes.settled(0, commit))).name)
    first = _joined_classic(nodes, classic)
    beat = messages.HeartbeatRequest(
        group_id=classic, member_id=first.member_id, generation_id=first.generation_id
    )
    nodes.note("classic heartbeat", ErrorCode(code_of(nodes.ask(0, beat))).name)
    second = nodes.connect(0)
    second.send(_join(classic), 3)
    nodes.note_code("a rebalance", 0, beat, ErrorCode.REBALANCE_IN_PROGRESS)
    end = _begin(nodes, topic)
    for internal in (OFFSETS, TRANSACTIONS):
        nodes.place(internal, 1, 2, 0)
    waited = second.receive()
    nodes.note("the join that waited", (ErrorCode(waited.error_code).name, bool(waited.member_id)))
    second.close()
    for label, request in (("heartbeat", heartbeat), ("commit", commit), ("end", end), ("beat", beat)):
        nodes.note_code(f"{label} at the old", 0, request, MOVED)
    found = nodes.settled(1, heartbeat)
    nodes.note("at the new", (ErrorCode(found.error_code).name, found.member_epoch - member.member_epoch))
    nodes.note("commit at the new", ErrorCode(code_of(nodes.settled(1, commit))).name)
    nodes.note("committed", nodes.committed(1, topic, group))
    code = code_of(nodes.settled(1, beat))
    nodes.note("generation", code in (NONE, ErrorCode.REBALANCE_IN_PROGRESS))
    nodes.note("end at the new", ErrorCode(code_of(nodes.settled(1, end))).name)
    busy = (MOVED, LOADING, MISSING, ErrorCode.CONCURRENT_TRANSACTIONS)
    nodes.note("end again", ErrorCode(code_of(nodes.settled(1, end, passing=busy))).name)


@nodes_scenario
def coordinators_wait_for_followers(nodes: Nodes) -> None:
    """K02."""
    topic = nodes.topic("t", 1, 2, 0)
    for key_type in (0, 1):
        nodes.settled(0, messages.FindCoordinatorRequest(key="key", key_type=key_type), 3)
    for internal in (OFFSETS, TRANSACTIONS):
        nodes.place(internal, 0, 1, 2)
    group = f"{nodes.name}.group"
    nodes.note(
        "commit", ErrorCode(code_of(nodes.settled(0, nodes.commit_request(topic, 5, group=group)))).name
    )
    nodes.cluster.kill_node(2)
    for internal in (OFFSETS, TRANSACTIONS):
        nodes.await_isr(internal, 2)
        nodes.configure(internal, "min.insync.replicas", 3)
    init = messages.InitProducerIdRequest(transactional_id=f"{nodes.name}.id", transaction_timeout_ms=60_000)
    nodes.note_code("an id", 0, init, MISSING)
    refused = nodes.ask(0, nodes.commit_request(topic, 7, group=group))
    nodes.note("commit below the minimum", ErrorCode(code_of(refused)).name)
    nodes.note("what is read", nodes.committed(0, topic, group))
    joined = nodes.settled(0, _join(f"{nodes.name}.classic"), 3)
    nodes.note("a classic join", ErrorCode(joined.error_code).name)
    nodes.cluster.start_node(2)
    for internal in (OFFSETS, TRANSACTIONS):
        nodes.await_isr(internal, 3)
        nodes.configure(internal, "min.insync.replicas", 1)
    until(lambda: nodes.committed(0, topic, group) == (NONE.name, 7), pause_seconds=PAUSE_SECONDS)
    nodes.note("it was done", nodes.committed(0, topic, group))
    nodes.note("an id again", ErrorCode(nodes.settled(0, init).error_code).name)


def _joined(nodes: Nodes, group: str, topic: str) -> Any:
    """Return the answer to a member of KIP-848, which is alone, with its assignment."""
    request = messages.ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="AAAAAAAAAAAAAAAAAAAAAA",
        rebalance_timeout_ms=60_000,
        topic_partitions=[],
        subscribed_topic_names=[topic],
    )
    return nodes.settled(0, request)


def _join(group: str, member_id: str = "") -> Any:
    kind = messages.JoinGroupRequest
    return kind(
        group_id=group,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[kind.JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\0\0\0\0")],
    )


def _joined_classic(nodes: Nodes, group: str) -> Any:
    """Return the answer to the join of a member that has its assignment."""
    joined = nodes.settled(0, _join(group), 3)
    kind = messages.SyncGroupRequest
    assigned = kind.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"mine")
    request = kind(
        group_id=group,
        member_id=joined.member_id,
        generation_id=joined.generation_id,
        assignments=[assigned],
    )
    nodes.note("sync", bytes(nodes.settled(0, request, 3).assignment))
    return joined


def _begin(nodes: Nodes, topic: str) -> Any:
    """Begin a transaction, and return the request that ends it."""
    name = f"{nodes.name}.id"
    busy = (MOVED, LOADING, MISSING, ErrorCode.CONCURRENT_TRANSACTIONS)
    init = messages.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
    producer = nodes.settled(0, init, passing=busy)
    kind = messages.AddPartitionsToTxnRequest
    added = kind(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[kind.AddPartitionsToTxnTopic(name=topic, partitions=[0])],
    )
    answer = nodes.ask(0, added, 3).results_by_topic_v3_and_below
    nodes.note("added", [each.results_by_partition[0].partition_error_code for each in answer])
    return messages.EndTxnRequest(
        transactional_id=name,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=True,
    )
