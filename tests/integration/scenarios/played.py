"""Scenarios of one node and of brokers that the scenario plays: it registers them with the controller, sends
their heartbeats, and proposes in-sync replicas as the leader that one of them is.

Each is a function of `Stage`, and is run against a real Kafka and an embedded one: what it wrote down must be
the same.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import Any

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from tests.support.broker_wire import Wire
from tests.support.patience import until

ALL_RECORDS = 1 << 40  # the offset of a broker that knows all that the controller has recorded
PAUSE_SECONDS = 0.05
BEAT_SECONDS = 0.3
FEATURES = (
    *("metadata.version", "kraft.version", "transaction.version", "group.version"),
    *("eligible.leader.replicas.version", "share.version", "streams.version"),
)

PlayedScenario = Callable[["Stage"], None]
PLAYED_SCENARIOS: dict[str, PlayedScenario] = {}


def played_scenario(function: PlayedScenario) -> PlayedScenario:
    """Add a function to the scenarios, under its own name."""
    PLAYED_SCENARIOS[function.__name__] = function
    return function


class Stage:
    """Node 0, and the brokers 1 to 3, which are played. A context manager.

    Parameters
    ----------
    bootstrap_servers, controller : str
        The addresses of node 0, and of what answers as the controller.

    Attributes
    ----------
    transcript : list
        What the present scenario wrote down.
    """

    def __init__(self, bootstrap_servers: str, controller: str) -> None:
        self.transcript: list[tuple[str, Any]] = []
        self.name = ""
        self._node = Wire(bootstrap_servers)
        self._controller = Wire(controller)
        self._lock = threading.Lock()
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

    def note(self, label: str, value: Any) -> None:
        self.transcript.append((label, value))

    # Brokers

    def _ask(self, request: Any, version: int | None = None) -> Any:
        with self._lock:
            return self._controller.ask(request, version)

    def _beat_all(self) -> None:
        while not self._is_over.wait(BEAT_SECONDS):
            for node in {1, 2, 3} - self._silent:
                self.beat(node)

    def silence(self, *nodes: int) -> None:
        """Send no heartbeats of brokers but those of the scenario."""
        self._silent.update(nodes)

    def epoch(self, node: int) -> int:
        return self._epochs[node]

    def register(self, node: int, *, previous: int = -1) -> int:
        """Register a new run of a broker, and return the code."""
        kind = messages.BrokerRegistrationRequest
        answer = self._ask(
            kind(
                broker_id=node,
                cluster_id=self._cluster_id,
                incarnation_id=uuid.uuid4().bytes,
                listeners=[kind.Listener(name="BROKER", host="127.0.0.1", port=9)],
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
        until(lambda: not self.beat(node)[1], pause_seconds=PAUSE_SECONDS)
        self._silent.discard(node)

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
        """Create a topic of one partition on these nodes; underscores in configs are dots."""
        kind = messages.CreateTopicsRequest
        name = self._last_topic = f"{self.name}.{suffix}"
        assigned = kind.CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))
        wanted = kind.CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[assigned],
            configs=[
                kind.CreatableTopicConfig(name=key.replace("_", "."), value=str(value))
                for key, value in configs.items()
            ],
        )
        (created,) = self._node.ask(kind(topics=[wanted], timeout_ms=30_000)).topics
        assert created.error_code == ErrorCode.NONE, created
        self._ids[name] = created.topic_id
        until(lambda: self.partition(name), pause_seconds=PAUSE_SECONDS)
        return name

    def partition(self, topic: str) -> Any:
        """Return partition 0 as node 0 describes it; None if it does not know it yet."""
        kind = messages.DescribeTopicPartitionsRequest
        (found,) = self._node.ask(kind(topics=[kind.TopicRequest(name=topic)])).topics
        return found.partitions[0] if found.partitions else None

    def note_partition(self, label: str, topic: str, leader: int) -> None:
        """Write down a partition, once node 0 knows that this one leads it."""
        until(lambda: self.partition(topic).leader_id == leader, lambda: self.partition(topic))
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

    def brokers(self) -> list[int]:
        """Return the brokers that node 0 names."""
        return sorted(each.node_id for each in self._node.ask(messages.MetadataRequest(topics=[])).brokers)


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
    until(lambda: not stage.beat(2)[1])
    stage.note("in sync again", stage.propose(1, 1, 2, partition_epoch=2))
    stage.note_partition("after", topic, 1)
    stage.start(2, previous=stage.epoch(2))


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
    stage.note_partition("both unfenced", topic, 1)
