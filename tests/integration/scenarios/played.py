"""Scenarios of one node and of brokers that the scenario plays: it registers them with the controller, sends
their heartbeats, and proposes in-sync replicas as the leader that one of them is.

Each is a function of `Stage`, and is run against a real Kafka and an embedded one: what it wrote down must be
the same.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from itertools import count
from typing import Any

from kbatch._native.codec.record_batch import decode
from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from tests.integration.scenarios.administration import Administration
from tests.oracle import plain
from tests.support.broker_core import fetched, produced
from tests.support.broker_wire import Wire
from tests.support.patience import HANG_MS, until
from tests.support.played_leader import UNUSED_PORT, Asked, PlayedLeader
from tests.support.requests import fetch_request, produce_request

ALL_RECORDS = 1 << 40  # the offset of a broker that knows all that the controller has recorded
PAUSE_SECONDS = 0.05
BEAT_SECONDS = 0.3
FEATURES = (
    *("metadata.version", "kraft.version", "transaction.version", "group.version"),
    *("eligible.leader.replicas.version", "share.version", "streams.version"),
)

CONSUMER, NO_EPOCH = -1, -1
ALL, LEADER = -1, 1
RECORDS_OF_A_MOVE, BYTES_OF_A_MOVE = 40, 20_000_000
TIMEOUT_MS = 300
PATIENT_MS = 2_000  # long enough for what a scenario does while a request waits

PlayedScenario = Callable[["Stage"], None]
PLAYED_SCENARIOS: dict[str, PlayedScenario] = {}


def played_scenario(function: PlayedScenario) -> PlayedScenario:
    """Add a function to the scenarios, under its own name."""
    PLAYED_SCENARIOS[function.__name__] = function
    return function


class Stage(Administration):
    """Node 0, and the brokers 1 to 3, which are played. A context manager.

    Parameters
    ----------
    bootstrap_servers, controller : str
        The addresses of node 0, and of what answers as the controller.
    leader : PlayedLeader
        What node 0 asks where node 3 leads.

    Attributes
    ----------
    leader : PlayedLeader
    transcript : list
        What the present scenario wrote down.
    """

    def __init__(self, bootstrap_servers: str, controller: str, leader: PlayedLeader) -> None:
        self.leader = leader
        self.transcript: list[tuple[str, Any]] = []
        self.name = ""
        self._bootstrap_servers = bootstrap_servers
        self._node = Wire(bootstrap_servers)
        self._controller = Wire(controller)
        self._lock = threading.RLock()
        self._epochs: dict[int, int] = {}
        self._directories = {node: uuid.uuid4().bytes for node in (1, 2, 3)}
        self._silent = {1, 2, 3}
        self._is_over = threading.Event()
        self._cluster_id = self._node.ask(messages.DescribeClusterRequest()).cluster_id
        self._ids: dict[str, bytes] = {}
        self._beats = threading.Thread(target=self._beat_all, daemon=True)

    def __enter__(self) -> Stage:
        for node in (1, 2, 3):
            self.start(node)
        self._beats.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._beats.join()
        self._node.close()
        self._controller.close()

    def another_connection(self) -> Wire:
        """Return a connection to node 0, for a request that waits."""
        return Wire(self._bootstrap_servers)

    def note(self, label: str, value: Any) -> None:
        self.transcript.append((label, value))

    def administer(self, request: Any) -> Any:
        return self._node.ask(request)

    # Brokers

    def _ask(self, request: Any, version: int | None = None) -> Any:
        with self._lock:
            return self._controller.ask(request, version)

    def _beat_all(self) -> None:
        while not self._is_over.wait(BEAT_SECONDS):
            for node in (1, 2, 3):
                with self._lock:  # one that is decided on must not come after the scenario's own
                    if node not in self._silent:
                        self.beat(node)

    def silence(self, *nodes: int) -> None:
        """Send no heartbeats of brokers but those of the scenario."""
        with self._lock:
            self._silent.update(nodes)

    def fence(self, node: int) -> None:
        """Have a broker ask to be fenced, and say nothing more."""
        self.silence(node)
        assert self.beat(node, fence=True)[1]

    def wake(self, node: int) -> None:
        """Have a fenced broker be heard again, in the same run, and node 0 know of it: before that it takes
        no follower into its in-sync replicas.
        """
        until(lambda: not self.beat(node)[1], pause_seconds=PAUSE_SECONDS)
        self._silent.discard(node)
        until(lambda: node in self.brokers(), pause_seconds=PAUSE_SECONDS)

    def epoch(self, node: int) -> int:
        return self._epochs[node]

    def register(self, node: int, *, previous: int = -1) -> int:
        """Register a new run of a broker, and return the code."""
        kind = messages.BrokerRegistrationRequest
        port = self.leader.port if node == self.leader.node_id else UNUSED_PORT
        answer = self._ask(
            kind(
                broker_id=node,
                cluster_id=self._cluster_id,
                incarnation_id=uuid.uuid4().bytes,
                listeners=[kind.Listener(name="BROKER", host="127.0.0.1", port=port)],
                features=[
                    kind.Feature(name=name, min_supported_version=0, max_supported_version=100)
                    if name != "metadata.version"
                    else kind.Feature(name=name, min_supported_version=1, max_supported_version=100)
                    for name in FEATURES
                ],
                log_dirs=[self._directories[node]],
                previous_broker_epoch=previous,
            )
        )
        if answer.error_code == ErrorCode.NONE:
            self._epochs[node] = answer.broker_epoch
        return int(answer.error_code)

    def registered(self, node: int, *, previous: int = -1) -> None:
        """Register a new run of a broker, once the session of the one before is over."""
        until(lambda: self.register(node, previous=previous) == ErrorCode.NONE, pause_seconds=PAUSE_SECONDS)

    def start(self, node: int, *, previous: int = -1) -> None:
        """Have a broker start, and be heard from now on."""
        self.registered(node, previous=previous)
        self.wake(node)

    def beat(
        self,
        node: int,
        *,
        epoch: int | None = None,
        offset: int = ALL_RECORDS,
        fence: bool = False,
        shut_down: bool = False,
    ) -> tuple[str, bool, bool, bool]:
        """Send a heartbeat; return (code, is fenced, is caught up, should shut down)."""
        answer = self._ask(
            messages.BrokerHeartbeatRequest(
                broker_id=node,
                broker_epoch=self._epochs[node] if epoch is None else epoch,
                current_metadata_offset=offset,
                want_fence=fence,
                want_shut_down=shut_down,
            )
        )
        code = ErrorCode(answer.error_code).name
        return code, answer.is_fenced, answer.is_caught_up, answer.should_shut_down

    def propose(
        self,
        leader: int,
        *isr: int,
        leader_epoch: int = 0,
        partition_epoch: int = 0,
        epochs: dict[int, int] | None = None,
    ) -> Any:
        """Propose the in-sync replicas of the last topic; return (code, leader, its epoch, in-sync replicas,
        partition epoch).
        """
        kind = messages.AlterPartitionRequest
        known = {**self._epochs, 0: -1, **(epochs or {})}
        partition = kind.PartitionData(
            partition_index=0,
            new_isr_with_epochs=[kind.BrokerState(broker_id=each, broker_epoch=known[each]) for each in isr],
            leader_epoch=leader_epoch,
            partition_epoch=partition_epoch,
        )
        topic = kind.TopicData(topic_id=self._ids[self._last_topic], partitions=[partition])
        request = kind(broker_id=leader, broker_epoch=self._epochs[leader], topics=[topic])
        answer = self._ask(request)
        assert answer.error_code == ErrorCode.NONE, answer
        found = answer.topics[0].partitions[0]
        code = ErrorCode(found.error_code).name
        return code, found.leader_id, found.leader_epoch, sorted(found.isr), found.partition_epoch

    # Topics

    def topic(self, suffix: str, *replicas: int, **configs: object) -> str:
        """Create a topic of one partition on these nodes; underscores in configs are dots.

        If node 0 leads it, it answers as the leader: Kafka describes a topic before that.
        """
        name = self._last_topic = f"{self.name}.{suffix}"
        self._ids[name] = self.create(name, replicas, configs)
        until(lambda: self.partition(name), pause_seconds=PAUSE_SECONDS)
        if replicas[0] == 0:
            until(lambda: self.leads(name, 0), pause_seconds=PAUSE_SECONDS)
        return name

    def leads(self, topic: str, leader_epoch: int) -> bool:
        """Return whether node 0 answers as the leader in this term."""
        return self.epoch_ends(topic, leader_epoch)[0][0] == "NONE"

    def partition(self, topic: str) -> Any:
        """Return partition 0 as node 0 describes it; None if it does not know it yet."""
        kind = messages.DescribeTopicPartitionsRequest
        (found,) = self._node.ask(kind(topics=[kind.TopicRequest(name=topic)])).topics
        return found.partitions[0] if found.partitions else None

    def note_partition(self, label: str, topic: str, leader: int, in_sync: int | None = None) -> None:
        """Write down a partition, once node 0 knows that this one leads it, with so many in sync."""

        def is_known() -> bool:
            known = self.partition(topic)
            return known.leader_id == leader and in_sync in (None, len(known.isr_nodes))

        until(is_known, lambda: self.partition(topic))
        self.note(label, self._row(topic))

    def note_eligible(self, label: str, topic: str, *eligible: int) -> None:
        """Write down a partition, once node 0 knows that these are its eligible leaders."""
        until(
            lambda: sorted(self.partition(topic).eligible_leader_replicas or ()) == list(eligible),
            lambda: self.partition(topic),
        )
        self.note(label, self._row(topic))

    def _row(self, topic: str) -> Any:
        known = self.partition(topic)
        return {
            "leader": (known.leader_id, known.leader_epoch),
            "isr": sorted(known.isr_nodes),
            "elr": sorted(known.eligible_leader_replicas or ()),
            "last known": known.last_known_elr,
            "offline": sorted(known.offline_replicas),
        }

    # Records

    def produce_request(
        self, topic: str, *values: bytes, acks: int = LEADER, timeout_ms: int = TIMEOUT_MS, **header: Any
    ) -> Any:
        data = plain.encode([(None, value, (), 1_700_000_000_000) for value in values], **header)
        return produce_request({(topic, 0): data}, self._ids.__getitem__, acks=acks, timeout_ms=timeout_ms)

    def produce(self, topic: str, *values: bytes, **fields: Any) -> tuple[str, int]:
        """Send a batch to node 0, as `produce_request` has it; return (code, base offset)."""
        return acknowledged(self._node.ask(self.produce_request(topic, *values, **fields)))

    def produced(self, topic: str, *values: bytes, **fields: Any) -> None:
        """Produce, once node 0 answers as the leader."""
        until(lambda: self.produce(topic, *values, **fields)[0] == "NONE", pause_seconds=PAUSE_SECONDS)

    def led(self, suffix: str, *followers: int) -> str:
        """Create a topic that the played leader leads."""
        topic = self.topic(suffix, self.leader.node_id, *followers)
        self.leader.lead(topic, self._ids[topic])
        return topic

    def fetch_request(self, topic: str, offset: int, *, by: int = CONSUMER, **fields: Any) -> Any:
        """Return a request of a consumer, or of the follower that a node is."""
        given = {
            "max_wait_ms": 0,
            "min_bytes": 1,
            "last_fetched_epoch": 0 if by != CONSUMER and offset else NO_EPOCH,
            "current_leader_epoch": NO_EPOCH if by == CONSUMER else 0,
            "broker_epoch": NO_EPOCH if by == CONSUMER else self._epochs[by],
            **fields,
        }
        broker_epoch = given.pop("broker_epoch")
        request = fetch_request(topic, self._ids[topic], offset, **given)
        request.replica_state = messages.FetchRequest.ReplicaState(replica_id=by, replica_epoch=broker_epoch)
        return request

    def fetch(self, topic: str, offset: int, **fields: Any) -> dict[str, Any]:
        """Fetch from node 0, as `fetch_request` has it, and return what there is."""
        return described(self._node.ask(self.fetch_request(topic, offset, **fields)))

    def follow(self, topic: str, end: int, *followers: int) -> None:
        """Have followers say that they have all below an offset."""
        for node in followers:
            self.fetch(topic, end, by=node)

    def epoch_ends(self, topic: str, *epochs: int) -> list[tuple[str, int, int]]:
        """Return (code, epoch, end offset) of node 0 for leader epochs that a client asks about."""
        kind = messages.OffsetForLeaderEpochRequest
        ends = []
        for epoch in epochs:
            wanted = kind.OffsetForLeaderPartition(
                partition=0, current_leader_epoch=NO_EPOCH, leader_epoch=epoch
            )
            named = kind.OffsetForLeaderTopic(topic=topic, partitions=[wanted])
            (found,) = self._node.ask(kind(replica_id=CONSUMER, topics=[named])).topics[0].partitions
            ends.append((ErrorCode(found.error_code).name, found.leader_epoch, found.end_offset))
        return ends

    def delete_before(self, topic: str, offset: int) -> tuple[str, int]:
        """Delete records; return (code, where the log starts)."""
        kind = messages.DeleteRecordsRequest
        wanted = kind.DeleteRecordsPartition(partition_index=0, offset=offset)
        asked = kind.DeleteRecordsTopic(name=topic, partitions=[wanted])
        (found,) = self._node.ask(kind(topics=[asked], timeout_ms=TIMEOUT_MS)).topics
        return ErrorCode(found.partitions[0].error_code).name, found.partitions[0].low_watermark

    # Log directories

    def directories(self, topic: str, wire: Wire | None = None) -> list[Any]:
        """Return the log directories of node 0, with what they have of a topic."""
        kind = messages.DescribeLogDirsRequest
        named = kind.DescribableLogDirTopic(topic=topic, partitions=[0])
        found: list[Any] = (wire or self._node).ask(kind(topics=[named])).results
        return sorted(found, key=lambda each: str(each.log_dir))

    def move_replica(self, topic: str, path: str) -> None:
        """Begin to move node 0's replica to another log directory."""
        kind = messages.AlterReplicaLogDirsRequest
        moved = kind.AlterReplicaLogDirTopic(name=topic, partitions=[0])
        answer = self._node.ask(kind(dirs=[kind.AlterReplicaLogDir(path=path, topics=[moved])]))
        assert answer.results[0].partitions[0].error_code == ErrorCode.NONE, answer

    def replicas(self, topic: str) -> list[list[Any]]:
        """Return what each log directory has of a topic."""
        return [_replicas(each) for each in self.directories(topic)]

    def brokers(self) -> list[int]:
        """Return the brokers that node 0 names."""
        return sorted(each.node_id for each in self._node.ask(messages.MetadataRequest(topics=[])).brokers)


def _replicas(directory: Any) -> list[Any]:
    return [partition for topic in directory.topics for partition in topic.partitions]


def acknowledged(answer: Any) -> tuple[str, int]:
    """Return (code, base offset) of an answer to Produce."""
    found = produced(answer)
    return ErrorCode(found.error_code).name, found.base_offset


def described(answer: Any) -> dict[str, Any]:
    """Return what an answer to Fetch says of its partition."""
    found = fetched(answer)
    diverging = found.diverging_epoch
    return {
        "code": ErrorCode(found.error_code).name,
        "high watermark": found.high_watermark,
        "diverging": (diverging.epoch, diverging.end_offset),
        "offsets": [batch.base_offset for batch in decode(found.records or b"")],
    }


# A node with two disks, and followers that may lag for a second only.


def replicas_lag(stage: Stage) -> None:
    """I01."""
    topic = stage.topic("t", 0, 1)

    def note_when(label: str, *isr: int, end: int | None = None) -> None:
        """Wait for these in-sync replicas, while the follower says where its log ends, if that is given."""

        def is_so() -> bool:
            if end is not None:
                stage.follow(topic, end, 1)
            return sorted(stage.partition(topic).isr_nodes) == list(isr)

        until(is_so, lambda: stage.partition(topic), pause_seconds=PAUSE_SECONDS)
        stage.note_partition(label, topic, 0)
        stage.note(f"{label}: what is seen", stage.fetch(topic, 0)["offsets"])

    stage.produce(topic, b"a")
    note_when("caught up", 0, 1, end=1)
    stage.produce(topic, b"b")
    note_when("lags", 0)
    stage.produce(topic, b"c")
    note_when("caught up again", 0, 1, end=3)


def disks_are_changed_and_fail(stage: Stage, fail_second_disk: Callable[[], None]) -> None:
    """D04, B12."""
    topic = stage.topic("t", 0, 1)
    for _ in range(RECORDS_OF_A_MOVE):
        stage.produce(topic, bytes(BYTES_OF_A_MOVE // RECORDS_OF_A_MOVE))
    stage.follow(topic, RECORDS_OF_A_MOVE, 1)

    def begin_to_move() -> list[list[Any]]:
        """Have the replica move to the directory where it is not; return what is in both just then."""
        (to,) = [each.log_dir for each in stage.directories(topic) if not _replicas(each)]
        stage.move_replica(topic, to)
        return stage.replicas(topic)

    def at_rest() -> list[list[Any]]:
        """Return what is in both directories when nothing moves."""
        until(lambda: sum(map(len, stage.replicas(topic))) == 1, pause_seconds=PAUSE_SECONDS)
        return stage.replicas(topic)

    def see_both() -> list[Any]:
        """Begin moves until one is seen under way."""
        found = [each for replicas in begin_to_move() for each in replicas]
        is_seen = any(each.is_future_key and each.offset_lag for each in found)
        at_rest()
        return found if is_seen else []

    present, future = sorted(until(see_both), key=lambda each: bool(each.is_future_key))
    stage.note("beside the present one", (present.is_future_key, present.offset_lag, future.is_future_key))
    stage.note("has less", future.partition_size < present.partition_size)
    while not at_rest()[1]:
        begin_to_move()
    none, (moved,) = at_rest()
    stage.note("moved", (len(none), moved.is_future_key, moved.offset_lag))
    stage.note("read there", len(stage.fetch(topic, RECORDS_OF_A_MOVE - 1)["offsets"]))
    fail_second_disk()
    probes = count()

    def has_failed() -> bool:  # which Kafka sees as it opens a log
        stage.topic(f"probe-{next(probes)}", 0)
        return any(each.error_code == ErrorCode.KAFKA_STORAGE_ERROR for each in stage.directories(topic))

    until(has_failed, pause_seconds=PAUSE_SECONDS)
    codes = [ErrorCode(each.error_code).name for each in stage.directories(topic)]
    stage.note("the directories", sorted(codes))
    stage.note_partition("led by the other", topic, 1)
    stage.note("written to it", stage.produce(topic, b"lost")[0])
    stage.note("read from it", stage.fetch(topic, 0)["code"])
    stage.note("a broker still", stage.brokers())


@played_scenario
def brokers_register(stage: Stage) -> None:
    """B01, B02."""
    before = stage.epoch(3)
    stage.silence(3)
    stage.note("heard", stage.beat(3))
    stage.note("another run", ErrorCode(stage.register(3)).name)
    stage.registered(3)
    stage.note("its epoch is greater", stage.epoch(3) > before)
    stage.note("before it knows its registration", stage.beat(3, offset=0))
    stage.note("after that", stage.beat(3))
    stage.note("an earlier epoch", stage.beat(3, epoch=before))
    stage.note("a later epoch", stage.beat(3, epoch=stage.epoch(3) + 1000))
    stage.start(3)


@played_scenario
def brokers_shut_down(stage: Stage) -> None:
    """B05."""
    led, alone = stage.topic("led", 1, 0), stage.topic("alone", 1)
    stage.silence(1)
    stage.note("it wants to end", stage.beat(1, shut_down=True))
    stage.note_partition("led by another", led, 0)
    stage.note_partition("led by none", alone, -1)
    stage.note("a broker still", stage.brokers())
    until(lambda: stage.beat(1, shut_down=True)[3], pause_seconds=PAUSE_SECONDS)
    stage.note("it may end", stage.beat(1, shut_down=True))
    until(lambda: 1 not in stage.brokers())
    stage.note("it starts again", ErrorCode(stage.register(1, previous=stage.epoch(1))).name)
    stage.start(1)
    stage.note_partition("led again", alone, 1)
    stage.silence(3)
    stage.note("one that leads nothing", stage.beat(3, shut_down=True))
    stage.start(3)


@played_scenario
def leaders_propose_in_sync_replicas(stage: Stage) -> None:
    """I04."""
    topic = stage.topic("t", 1, 0, 2)
    stage.note_partition("before", topic, 1)
    stage.note("an older leader epoch", stage.propose(1, 1, 2, leader_epoch=-1))
    stage.note("a later leader epoch", stage.propose(1, 1, 2, leader_epoch=1))
    stage.note("a later partition epoch", stage.propose(1, 1, 2, partition_epoch=9))
    stage.note("not the leader", stage.propose(2, 1, 2))
    stage.note("without the leader", stage.propose(1, 2))
    stage.note("a stranger", stage.propose(1, 1, 3))
    stage.note("another epoch", stage.propose(1, 1, 2, epochs={2: stage.epoch(2) - 1}))
    stage.silence(2)
    stage.beat(2, fence=True)
    stage.note("fenced", stage.propose(1, 1, 2, partition_epoch=1))
    stage.note("without it", stage.propose(1, 1, partition_epoch=1))
    stage.note("an older partition epoch", stage.propose(1, 1, 0, partition_epoch=1))
    stage.wake(2)
    stage.note("in sync again", stage.propose(1, 1, 2, partition_epoch=2))
    stage.note_partition("after", topic, 1, in_sync=2)


@played_scenario
def brokers_say_how_they_ended(stage: Stage) -> None:
    """E07."""
    topic = stage.topic("t", 1, 2, min_insync_replicas=2)
    stage.silence(1, 2)
    for node in (2, 1):
        stage.beat(node, fence=True)
    stage.note_eligible("both fenced", topic, 1, 2)
    stage.registered(1, previous=stage.epoch(1))
    stage.note_eligible("1 after a clean end", topic, 1, 2)
    stage.registered(2, previous=stage.epoch(2) - 1)
    stage.note_eligible("2 after another", topic, 1)
    stage.start(1, previous=stage.epoch(1))
    stage.start(2, previous=stage.epoch(2))
    until(lambda: not stage.partition(topic).offline_replicas, lambda: stage.partition(topic))
    stage.note_partition("both unfenced", topic, 1)


@played_scenario
def followers_fetch(stage: Stage) -> None:
    """H01, H02, H06, P02, R02, F12."""
    topic = stage.topic("t", 0, 1, 2)
    stage.note("three records", [stage.produce(topic, value) for value in (b"a", b"b", b"c")])
    stage.note("not replicated", stage.fetch(topic, 0))
    stage.note("1 has one", stage.fetch(topic, 1, by=1))
    stage.note("2 has not fetched", stage.fetch(topic, 0))
    stage.note("2 has two", stage.fetch(topic, 2, by=2))
    stage.note("both have one", stage.fetch(topic, 0))
    stage.note("1 has all", stage.fetch(topic, 3, by=1))
    stage.note("1 hears of two", stage.fetch(topic, 3, by=1))
    stage.note("at the high watermark", stage.fetch(topic, 2))
    stage.note("beyond the end", stage.fetch(topic, 4))
    batch = {"producer_id": 7_777, "producer_epoch": 0, "base_sequence": 0}
    stage.note("in time", stage.produce(topic, b"d", acks=ALL, **batch))
    stage.note("the duplicate", stage.produce(topic, b"d", acks=ALL, **batch))
    stage.follow(topic, 4, 1, 2)
    stage.note("the duplicate, replicated", stage.produce(topic, b"d", acks=ALL, **batch))
    batches = stage.topic("batches", 0, 1)
    stage.produce(batches, b"a", b"b", b"c")
    for offset in (2, 3):
        stage.note(f"1 is at {offset} of a batch of three", stage.fetch(batches, offset, by=1))
        stage.note("what is replicated then", stage.fetch(batches, 0))
    with stage.another_connection() as follower:
        follower.send(stage.fetch_request(topic, 4, by=1, max_wait_ms=HANG_MS))
        stage.produce(topic, b"e")
        stage.note("a fetch that waits", described(follower.receive()))


@played_scenario
def followers_are_refused(stage: Stage) -> None:
    """F02 to F06, F14."""
    topic = stage.topic("t", 1, 0, 2)
    stage.silence(1)
    stage.beat(1, fence=True)
    stage.note_partition("node 0 leads", topic, 0)
    stage.produced(topic, b"a", b"b")
    stage.note("as it should", stage.fetch(topic, 0, by=2, current_leader_epoch=1))
    stage.note("a stranger", stage.fetch(topic, 0, by=3, current_leader_epoch=1))
    stage.note("a stranger without an epoch", stage.fetch(topic, 0, by=3, current_leader_epoch=NO_EPOCH))
    epoch = stage.epoch(2) - 1
    stage.note("an earlier start", stage.fetch(topic, 0, by=2, current_leader_epoch=1, broker_epoch=epoch))
    other = {"current_leader_epoch": 1, "last_fetched_epoch": 0, "broker_epoch": epoch}
    stage.note("an earlier start, with another log", stage.fetch(topic, 1, by=2, **other))
    stage.note("an older term", stage.fetch(topic, 0, by=2, current_leader_epoch=0))
    stage.note("a later term", stage.fetch(topic, 0, by=2, current_leader_epoch=2))
    for offset, last in ((2, 1), (1, 0), (2, 7), (5, 1)):
        found = stage.fetch(topic, offset, by=2, current_leader_epoch=1, last_fetched_epoch=last)
        stage.note(f"at {offset}, after epoch {last}", found)
    stage.note("what replicas have", stage.fetch(topic, 0))
    stage.wake(1)


@played_scenario
def replicas_leave_and_join(stage: Stage) -> None:
    """P01, H05, I02, I06, I07, E04."""
    topic = stage.topic("t", 0, 1, min_insync_replicas=2)
    stage.produce(topic, b"a")
    stage.follow(topic, 1, 1)
    stage.silence(1)
    stage.beat(1, fence=True)
    stage.note_eligible("1 is fenced", topic, 1)
    stage.note("all", stage.produce(topic, b"b", acks=ALL))
    stage.note("the leader alone", stage.produce(topic, b"c"))
    stage.note("is not seen", stage.fetch(topic, 0))
    stage.wake(1)
    stage.note_eligible("1 is back", topic, 1)
    stage.note("it fetches", stage.fetch(topic, 1, by=1))
    stage.note_eligible("and is in sync", topic)
    stage.note("with what is replicated", stage.fetch(topic, 0))
    stage.follow(topic, 2, 1)
    stage.note("is seen now", stage.fetch(topic, 0))


@played_scenario
def records_are_deleted_at_all_replicas(stage: Stage) -> None:
    """F15."""
    topic = stage.topic("t", 0, 1)
    stage.produce(topic, b"a")
    stage.produce(topic, b"b")
    stage.follow(topic, 2, 1)
    stage.note("1 has them", stage.delete_before(topic, 1))
    stage.fetch(topic, 2, by=1, log_start_offset=1)
    stage.note("1 has deleted them", stage.delete_before(topic, 1))


@played_scenario
def followers_hear_of_high_watermarks(stage: Stage) -> None:
    """H03: a Fetch that waits is not answered because the high watermark rises."""
    topic = stage.topic("t", 0, 1, 2)
    stage.produce(topic, b"a")
    stage.follow(topic, 1, 1, 2)
    with stage.another_connection() as follower:
        follower.send(stage.fetch_request(topic, 1, by=1, max_wait_ms=HANG_MS))
        stage.produce(topic, b"b")
        stage.note("the next record", described(follower.receive()))
        follower.send(stage.fetch_request(topic, 2, by=1, max_wait_ms=HANG_MS))
        until(lambda: stage.fetch(topic, 1, by=2)["offsets"] == [1])
        stage.follow(topic, 2, 2)
        until(lambda: stage.fetch(topic, 2)["high watermark"] == 2, pause_seconds=PAUSE_SECONDS)
        stage.produce(topic, b"c")
        stage.note("the one after a rise", described(follower.receive()))
        stage.follow(topic, 3, 2)
        follower.send(stage.fetch_request(topic, 3, by=1, max_wait_ms=PATIENT_MS))
        until(lambda: stage.fetch(topic, 3)["high watermark"] == 3, pause_seconds=PAUSE_SECONDS)
        stage.note("nothing in its time", described(follower.receive()))


@played_scenario
def minimums_change(stage: Stage) -> None:
    """H11, P03, P10."""
    topic = stage.topic("t", 0, 1, min_insync_replicas=2)
    stage.produce(topic, b"a")
    stage.follow(topic, 1, 1)
    with stage.another_connection() as producer:
        producer.send(stage.produce_request(topic, b"b", acks=ALL, timeout_ms=PATIENT_MS))
        until(lambda: stage.fetch(topic, 1, by=1)["offsets"] == [1], pause_seconds=PAUSE_SECONDS)
        stage.fence(1)
        stage.note_eligible("too few while it waits", topic, 1)
        stage.note("all, before that", acknowledged(producer.receive()))
    stage.note("all, after that", stage.produce(topic, b"c", acks=ALL))
    stage.configure(topic, "min.insync.replicas", 1)
    stage.note_eligible("another minimum", topic)
    stage.note("is not seen", stage.fetch(topic, 0))
    stage.produced(topic, b"d", acks=ALL)
    stage.note("is seen after the next", stage.fetch(topic, 0))
    stage.wake(1)


@played_scenario
def leaders_resign(stage: Stage) -> None:
    """P04, F12, F14."""
    topic = stage.topic("t", 1, 0, 2)
    stage.fence(1)
    stage.note_partition("node 0 leads", topic, 0)
    stage.produced(topic, b"a")
    stage.wake(1)
    term = {"current_leader_epoch": 1, "last_fetched_epoch": 1}
    for node in (1, 2):
        _join(stage, topic, 1, by=node, **term)
    stage.note("before", stage.fetch(topic, 0))
    with (
        stage.another_connection() as producer,
        stage.another_connection() as follower,
        stage.another_connection() as reader,
    ):
        producer.send(stage.produce_request(topic, b"b", acks=ALL, timeout_ms=HANG_MS))
        until(lambda: stage.fetch(topic, 1, by=1, **term)["offsets"] == [1], pause_seconds=PAUSE_SECONDS)
        follower.send(stage.fetch_request(topic, 2, by=2, max_wait_ms=HANG_MS, **term))
        reader.send(stage.fetch_request(topic, 1, max_wait_ms=HANG_MS, current_leader_epoch=1))
        stage.note("elected", stage.elect(topic))
        stage.note("all", acknowledged(producer.receive()))
        stage.note("a follower", described(follower.receive()))
        stage.note("a reader", described(reader.receive()))
    stage.note_partition("node 1 leads", topic, 1)
    stage.fence(1)
    stage.note_partition("node 0 leads again", topic, 0)
    until(lambda: stage.leads(topic, 3), pause_seconds=PAUSE_SECONDS)
    stage.note("a term without records", stage.epoch_ends(topic, 0, 1, 2, 3, 4))
    stage.wake(1)


@played_scenario
def eligible_leaders_return(stage: Stage) -> None:
    """E03."""
    topic = stage.topic("t", 1, 2, 3, min_insync_replicas=2)
    for node in (3, 2, 1):
        stage.fence(node)
    stage.note_eligible("all fenced", topic, 1, 2)
    stage.wake(3)
    until(lambda: 3 not in stage.partition(topic).offline_replicas, pause_seconds=PAUSE_SECONDS)
    stage.note_partition("one returns that is not eligible", topic, -1)
    stage.wake(2)
    stage.note_partition("one that is", topic, 2)
    stage.wake(1)
    until(lambda: 1 not in stage.partition(topic).offline_replicas, pause_seconds=PAUSE_SECONDS)
    stage.note_partition("another", topic, 2)


@played_scenario
def moves_change_their_target(stage: Stage) -> None:
    """B09."""
    topic = stage.topic("t", 0, 3)

    def note_move(label: str, target: tuple[int, ...] | None) -> None:
        before = stage.partition(topic).replica_nodes
        stage.note(label, stage.reassign(topic, target))
        until(lambda: stage.partition(topic).replica_nodes != before, pause_seconds=PAUSE_SECONDS)
        stage.note(f"{label}: the move", stage.reassigned(topic))
        known = stage.partition(topic)
        row = known.leader_id, known.leader_epoch, known.replica_nodes, sorted(known.isr_nodes)
        stage.note(f"{label}: the partition", row)

    note_move("a move", (1, 2))
    note_move("another target", (3, 2))
    note_move("cancelled", None)
    stage.note("cancelled again", stage.reassign(topic, None))


def _batch(offset: int, *values: bytes, epoch: int) -> bytes:
    """Return a batch as a leader has it."""
    rows: list[plain.Row] = [(None, value, (), 1_700_000_000_000) for value in values]
    return plain.encode(rows, base_offset=offset, partition_leader_epoch=epoch)


@played_scenario
def leaders_are_followed(stage: Stage) -> None:
    """F01, F07, F08, F17, H04, H07, H08: node 0 follows node 3, leads, and follows it again."""
    topic, leader = stage.led("t", 0, 2), stage.leader

    def note(label: str, asked: Asked) -> None:
        stage.note(label, asked._asdict())
        stage.note(f"{label}: what is seen", stage.fetch(topic, 0))

    note("at first", leader.asked())
    records = [_batch(offset, b"%d" % offset, epoch=0) for offset in range(3)]
    note("three records", leader.tell(*records, high_watermark=2))
    note("a high watermark above its end", leader.tell(high_watermark=9))
    note("a later term's record", leader.tell(_batch(3, b"x", epoch=2), high_watermark=3))
    note("one more", leader.tell(_batch(3, b"3", epoch=0), high_watermark=3))
    stage.fence(3)
    stage.note_partition("node 0 leads", topic, 0)
    until(lambda: stage.leads(topic, 1), pause_seconds=PAUSE_SECONDS)
    stage.note("what is seen then", stage.fetch(topic, 0))
    stage.produced(topic, b"4")
    stage.wake(3)
    term = {"current_leader_epoch": 1, "last_fetched_epoch": 1}
    _join(stage, topic, 5, by=3, **term)
    stage.note("elected", stage.elect(topic))
    note("it follows again", leader.asked(leader_epoch=2))
    note("where its last term ends", leader.tell(high_watermark=3, diverging=(0, 4)))
    note("below its high watermark", leader.tell(high_watermark=2, diverging=(0, 2)))
    later = [_batch(offset, b"%d" % offset, epoch=2) for offset in (2, 3)]
    note("two of the term", leader.tell(*later, high_watermark=2))
    note("a term that it does not know", leader.tell(high_watermark=2, diverging=(1, 3)))
    note("an end beyond its own", leader.tell(high_watermark=2, diverging=(0, 9)))


def _join(stage: Stage, topic: str, offset: int, *, by: int, **term: int) -> None:
    """Have a follower fetch until it is in sync."""

    def is_in_sync() -> bool:
        stage.fetch(topic, offset, by=by, **term)
        return by in stage.partition(topic).isr_nodes

    until(is_in_sync, pause_seconds=PAUSE_SECONDS)


@played_scenario
def leaders_refuse_followers(stage: Stage) -> None:
    """F10, F11."""
    topic, leader = stage.led("t", 0, 2), stage.leader
    records = [_batch(offset, b"%d" % offset, epoch=0) for offset in range(3)]
    stage.note("three records", leader.tell(*records, high_watermark=3)._asdict())
    leader.log_end_offset = 1
    stage.note("out of range", leader.tell(error=ErrorCode.OFFSET_OUT_OF_RANGE)._asdict())
    leader.log_start_offset, leader.log_end_offset = 20, 30
    stage.note("below the start", leader.tell(error=ErrorCode.OFFSET_OUT_OF_RANGE)._asdict())
    stage.note("what is seen", stage.fetch(topic, 20))
    for code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH):
        stage.note(code.name, leader.tell(error=code)._asdict())
    leader.refuse(ErrorCode.FENCED_LEADER_EPOCH)
    stage.note("moved", stage.reassign(topic, (3, 0)))
    stage.note("in the next term", leader.asked(leader_epoch=1)._asdict())
