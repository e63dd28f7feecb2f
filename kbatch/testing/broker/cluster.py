"""The nodes of the embedded cluster, its topics, and the leaders of its partitions.

Theory of operation. All nodes live in one process and share one copy of each partition: only leadership is
played, replication is not. A partition's replicas are the nodes it was placed on. Those that run are its
in-sync replicas, and the first of them leads. Every change of leader raises the leader epoch. With a
directory the topics are kept in cluster.json, rewritten at each change (temporary file, rename), and once for
a request that creates many.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kbatch.codec.segments import check_topic, sync_directory
from kbatch.errors import ErrorCode
from kbatch.protocol.structs import Message
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.logs.partition import Partition
from kbatch.testing.broker.logs.topic_config import TopicConfig

NO_LEADER = -1
NO_TOPIC = ""  # the name of topics that are not there
MAX_PARTITIONS = 10_000  # limit of one request (ReplicationControlManager.MAX_PARTITIONS_PER_BATCH)
STATE_FILE = "cluster.json"


class Node:
    """A broker of the cluster: its address, with a port for each listener, and its state. Its answers to
    ApiVersions leave out the requests in `hidden`.
    """

    __slots__ = ("hidden", "host", "is_running", "node_id", "ports")

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.host = ""
        self.ports: list[int] = []
        self.is_running = True
        self.hidden: frozenset[type[Message]] = frozenset()


class ClusterPartition:
    """A partition's log, and its leader."""

    __slots__ = ("index", "leader", "leader_epoch", "log", "replicas", "topic")

    def __init__(self, topic: Topic, index: int, log: Partition, replicas: list[int]) -> None:
        self.topic = topic
        self.index = index
        self.log = log
        self.replicas = replicas
        self.leader = NO_LEADER
        self.leader_epoch = -1

    def lead_by(self, node_id: int) -> None:
        self.leader = node_id
        self.leader_epoch += 1
        self.log.start_leader_epoch(self.leader_epoch)


class Topic:
    __slots__ = ("config", "is_internal", "name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: bytes, config: TopicConfig, is_internal: bool) -> None:
        self.name = name
        self.topic_id = topic_id
        self.config = config
        self.is_internal = is_internal
        self.partitions: list[ClusterPartition] = []


# The topics that coordinators make, and their configs.
INTERNAL_TOPICS: dict[str, dict[str, str | None]] = {
    "__consumer_offsets": {"cleanup.policy": "compact"},
    "__transaction_state": {"cleanup.policy": "compact"},
    "__share_group_state": {"cleanup.policy": "delete", "retention.ms": "-1"},
}


class Cluster:
    """Nodes 0 to `node_count` - 1, and topics in the order of their creation.

    Parameters
    ----------
    directory : Path or None
        Folder of topics and logs; existing ones are loaded. None keeps all in memory.
    open_partition : callable
        (topic, index, config, directory or None) -> Partition
    random_uuid : callable
        Returns 16 bytes, for topic ids and the cluster id.

    Raises
    ------
    ValueError
        The directory has a cluster.json that no broker wrote.
    """

    def __init__(
        self,
        node_count: int,
        directory: Path | None,
        open_partition: Callable[[str, int, TopicConfig, Path | None], Partition],
        random_uuid: Callable[[], bytes],
    ) -> None:
        self.nodes = [Node(node_id) for node_id in range(node_count)]
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[bytes, Topic] = {}
        self._names: dict[str, str] = {}  # of topics, by what they are called in metrics
        self._saves_later = self._is_changed = False
        self._directory = directory
        self._open_partition = open_partition
        self._random_uuid = random_uuid
        self.cluster_id = random_uuid().hex()[:22]
        if directory is not None and (directory / STATE_FILE).exists():
            self._load(_read_state(directory / STATE_FILE))

    # Nodes

    @property
    def running_nodes(self) -> list[Node]:
        return [node for node in self.nodes if node.is_running]

    @property
    def controller_id(self) -> int:
        return next((node.node_id for node in self.nodes if node.is_running), NO_LEADER)

    def node(self, node_id: int) -> Node:
        """Return the node; raise ValueError if there is none."""
        if not 0 <= node_id < len(self.nodes):
            raise ValueError(f"node must be 0 to {len(self.nodes) - 1}, got {node_id}")
        return self.nodes[node_id]

    def stop_node(self, node_id: int) -> None:
        """Move the node's partitions to their next running replica; without one they have no leader."""
        self.node(node_id).is_running = False
        for partition in self.partitions():
            if partition.leader == node_id:
                partition.lead_by(next(iter(self.in_sync_replicas(partition)), NO_LEADER))
        self._save()

    def start_node(self, node_id: int) -> None:
        """Make the node the leader of its partitions without a leader; those that moved away stay there."""
        self.node(node_id).is_running = True
        for partition in self.partitions():
            if partition.leader == NO_LEADER and node_id in partition.replicas:
                partition.lead_by(node_id)
        self._save()

    def move_leader(self, topic: str, index: int, node_id: int) -> None:
        """Make the node leader and, if needed, a replica; raise ValueError if it does not run."""
        if not self.node(node_id).is_running:
            running = ", ".join(str(node.node_id) for node in self.running_nodes)
            raise ValueError(f"node {node_id} does not run; choose one of {running}")
        partition = self.partition(topic, index)
        if node_id not in partition.replicas:
            partition.replicas.append(node_id)
        if partition.leader != node_id:
            partition.lead_by(node_id)
            self._save()

    def in_sync_replicas(self, partition: ClusterPartition) -> list[int]:
        return [node_id for node_id in partition.replicas if self.nodes[node_id].is_running]

    # Topics

    def partitions(self) -> Iterable[ClusterPartition]:
        """Return the partitions of all topics."""
        return (partition for topic in self.topics.values() for partition in topic.partitions)

    def has_partition(self, topic: str, index: int) -> bool:
        return topic in self.topics and 0 <= index < len(self.topics[topic].partitions)

    def partition(self, topic: str, index: int) -> ClusterPartition:
        """Return the partition; raise BrokerError UNKNOWN_TOPIC_OR_PARTITION if there is none."""
        if not self.has_partition(topic, index):
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self.topics[topic].partitions[index]

    def led_partition(self, topic: str, index: int, node_id: int) -> ClusterPartition:
        """Return the partition if `node_id` leads it; else raise BrokerError NOT_LEADER_OR_FOLLOWER."""
        partition = self.partition(topic, index)
        if partition.leader != node_id:
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return partition

    def name_of(self, topic_id: bytes) -> str:
        """Return the name of the topic with this id, or NO_TOPIC."""
        topic = self.topics_by_id.get(bytes(topic_id))
        return topic.name if topic is not None else NO_TOPIC

    def topic_by_id(self, topic_id: bytes) -> Topic:
        """Return the topic; raise BrokerError UNKNOWN_TOPIC_ID if there is none."""
        if (topic := self.topics_by_id.get(topic_id)) is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID)
        return topic

    def create_topic(
        self,
        name: str,
        partition_count: int,
        *,
        replication_factor: int | None = None,
        configs: Mapping[str, str | None] | None = None,
        assignments: Sequence[Sequence[int]] | None = None,
    ) -> Topic:
        """Create a topic, or raise BrokerError with Kafka's code and a text.

        `replication_factor` None means the number of nodes, three at most; `assignments` names the replicas
        of each partition instead.
        """
        config = self.check_new_topic(name, partition_count, replication_factor, assignments, configs)
        topic = Topic(name, self.new_topic_id(), config, name in INTERNAL_TOPICS)
        self._add_topic(topic)
        for index in range(partition_count):
            replicas = list(assignments[index]) if assignments else self.place(index, replication_factor)
            self._add_partition(topic, replicas)
        self._save()
        return topic

    def check_new_topic(
        self,
        name: str,
        partition_count: int,
        replication_factor: int | None = None,
        assignments: Sequence[Sequence[int]] | None = None,
        configs: Mapping[str, str | None] | None = None,
    ) -> TopicConfig:
        """Check a new topic as `create_topic` does, and return the config that it would have."""
        check_topic_name(name)
        if name in self.topics:
            raise BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if (twin := self._names.get(_metric_name(name))) is not None:
            raise BrokerError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {twin}"
            )
        if partition_count < 1:
            raise BrokerError(
                ErrorCode.INVALID_PARTITIONS,
                "Number of partitions was set to an invalid non-positive value.",
            )
        if replication_factor is not None and not 1 <= replication_factor <= len(self.running_nodes):
            raise BrokerError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"Replication factor must be 1 to {len(self.running_nodes)}, the running nodes, got "
                f"{replication_factor}.",
            )
        self._check_assignments(assignments or ())
        return config_of(configs or {})

    def create_partitions(
        self, name: str, count: int, assignments: Sequence[Sequence[int]] | None = None
    ) -> None:
        """Add partitions up to `count`; raise BrokerError for what Kafka refuses."""
        topic = self.check_more_partitions(name, count, assignments)
        replication_factor = len(topic.partitions[0].replicas)
        for number, index in enumerate(range(len(topic.partitions), count)):
            replicas = list(assignments[number]) if assignments else self.place(index, replication_factor)
            self._add_partition(topic, replicas)
        self._save()

    def check_more_partitions(
        self, name: str, count: int, assignments: Sequence[Sequence[int]] | None = None
    ) -> Topic:
        topic = self.topics.get(name)
        if topic is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        present = len(topic.partitions)
        if count <= present:
            verb = "already has" if count == present else "would not be an increase: it has"
            raise BrokerError(
                ErrorCode.INVALID_PARTITIONS,
                f"Topic {verb} {present} partition(s).",
            )
        if assignments is not None and len(assignments) != count - present:
            raise BrokerError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{count - present} new partition(s) must have as many assignments, got {len(assignments)}.",
            )
        self._check_assignments(assignments or ())
        return topic

    def change_config(self, topic: Topic, config: TopicConfig) -> None:
        topic.config = config
        for partition in topic.partitions:
            partition.log.config = config
        self._save()

    def delete_topic(self, name: str) -> None:
        topic = self.topics.pop(name, None)
        if topic is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        del self.topics_by_id[topic.topic_id]
        del self._names[_metric_name(name)]
        for partition in topic.partitions:
            partition.log.close()
            if self._directory is not None:
                shutil.rmtree(self._directory / f"{name}-{partition.index}", ignore_errors=True)
        self._save()

    def close(self) -> None:
        for partition in self.partitions():
            partition.log.close()

    def _check_assignments(self, assignments: Iterable[Sequence[int]]) -> None:
        for replicas in assignments:
            unknown = [node_id for node_id in replicas if not 0 <= node_id < len(self.nodes)]
            if not replicas or unknown or len(set(replicas)) != len(replicas):
                raise BrokerError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"The replicas {list(replicas)} must be different nodes of 0 to {len(self.nodes) - 1}.",
                )

    def place(self, index: int, replication_factor: int | None) -> list[int]:
        """Return the replicas of a new partition; the leaders go round the nodes."""
        count = replication_factor or min(3, len(self.nodes))
        return [(index + number) % len(self.nodes) for number in range(count)]

    def new_topic_id(self) -> bytes:
        """Return a new id; after a restart the same seed returns the same ids again."""
        while (topic_id := self._random_uuid()) in self.topics_by_id:
            pass
        return topic_id

    def _add_topic(self, topic: Topic) -> None:
        self.topics[topic.name] = topic
        self.topics_by_id[topic.topic_id] = topic
        self._names[_metric_name(topic.name)] = topic.name

    def _add_partition(self, topic: Topic, replicas: list[int]) -> ClusterPartition:
        index = len(topic.partitions)
        log = self._open_partition(topic.name, index, topic.config, self._directory)
        partition = ClusterPartition(topic, index, log, replicas)
        partition.lead_by(next(iter(self.in_sync_replicas(partition)), NO_LEADER))
        topic.partitions.append(partition)
        return partition

    # Storage

    @contextmanager
    def saved_once(self) -> Iterator[None]:
        """Save what the block changes once, at its end: each time all topics are written."""
        self._saves_later, self._is_changed = True, False
        try:
            yield
        finally:
            self._saves_later = False
            if self._is_changed:
                self._save()

    def _save(self) -> None:
        self._is_changed = True
        if self._directory is None or self._saves_later:
            return
        described = {
            "cluster_id": self.cluster_id,
            "topics": [_describe(topic) for topic in self.topics.values()],
        }
        partial = self._directory / f"{STATE_FILE}.tmp"
        with partial.open("w") as file:
            json.dump(described, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self._directory / STATE_FILE)
        sync_directory(self._directory)

    def _load(self, described: dict[str, Any]) -> None:
        """Load the topics; every partition gets a new leader epoch, as after an election."""
        self.cluster_id = described["cluster_id"]
        for saved in described["topics"]:
            name = saved["name"]
            topic = Topic(
                name, bytes.fromhex(saved["topic_id"]), config_of(saved["configs"]), name in INTERNAL_TOPICS
            )
            self._add_topic(topic)
            for number, kept in enumerate(saved["partitions"]):
                log = self._open_partition(name, number, topic.config, self._directory)
                replicas = [node_id for node_id in kept["replicas"] if node_id < len(self.nodes)] or [0]
                partition = ClusterPartition(topic, number, log, replicas)
                partition.leader_epoch = kept["leader_epoch"]
                partition.lead_by(replicas[0])
                topic.partitions.append(partition)
        self._save()


def check_topic_name(name: str) -> None:
    """Raise BrokerError INVALID_TOPIC_EXCEPTION for an invalid name."""
    try:
        check_topic(name)
    except ValueError as error:
        raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from error


def _metric_name(topic: str) -> str:
    """Return the name in Kafka's metrics, which must be unique and have no dots."""
    return topic.replace(".", "_")


def config_of(configs: Mapping[str, str | None]) -> TopicConfig:
    """Make the config of a request, or raise BrokerError INVALID_CONFIG."""
    try:
        return TopicConfig.of(configs)
    except ValueError as error:
        raise BrokerError(ErrorCode.INVALID_CONFIG, str(error)) from error


def _read_state(path: Path) -> dict[str, Any]:
    try:
        described = json.loads(path.read_text())
        return {"cluster_id": described["cluster_id"], "topics": described["topics"]}
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error!r}); restore the file that the broker wrote") from error


def _describe(topic: Topic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "topic_id": topic.topic_id.hex(),
        "configs": topic.config.overrides,
        "partitions": [
            {"replicas": partition.replicas, "leader_epoch": partition.leader_epoch}
            for partition in topic.partitions
        ],
    }
