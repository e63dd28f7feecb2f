"""The nodes of the embedded cluster, its topics, and the replicas of its partitions.

Theory of operation. All nodes live in one process. The controller (controller/) registers for each partition
who leads, and who is in sync. Each replica is a log of its own (replication/), and each node acts on the
registration that it knows: one that does not hear the controller goes on with the old one.

With a directory node 0 has its logs there, and each other one in a folder of its own, so that a single node
finds its data where it was. Topics and registrations are in cluster.json, rewritten at each change (temporary
file, rename), and once for a request that creates many. High watermarks are written now and then.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

from kbatch.codec.segments import check_topic, sync_directory
from kbatch.errors import ErrorCode
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.controller.brokers import BrokerControlState, LogDir, Node
from kbatch.testing.broker.controller.controller import Controller, ReplicationSettings
from kbatch.testing.broker.controller.partition_change import NO_LEADER, Registration, led_by, restarted
from kbatch.testing.broker.controller.quotas import Entity, Quotas, entity_of
from kbatch.testing.broker.logs.checkpoints import read_checkpoint, write_checkpoint
from kbatch.testing.broker.logs.clean_shutdown import (
    CLEAN_SHUTDOWN_FILE,
    note_clean_shutdown,
    take_clean_shutdown,
)
from kbatch.testing.broker.logs.partition import Partition
from kbatch.testing.broker.logs.topic_config import TopicConfig
from kbatch.testing.broker.replication.replica import Replica

NO_TOPIC = ""  # the name of topics that are not there
EVERY_BROKER = ""
MAX_PARTITIONS = 10_000  # limit of one request (ReplicationControlManager.MAX_PARTITIONS_PER_BATCH)
STATE_FILE = "cluster.json"
# Folders of nodes, and further log directories, are named so, with a number. Those of replicas end with "-1".
NODE, DISK = "node", "disk"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
FILES_OF_NODES = (HIGH_WATERMARK_CHECKPOINT, CLEAN_SHUTDOWN_FILE)


class Hearing:
    """Which nodes hear the controller, and whether that takes time.

    Attributes
    ----------
    deaf : set of int
        Nodes that do not hear it.
    announce : callable or None
        (partition, hear, now_ms): has hear(node_id, now_ms) called later, for each node; None if they hear at
        once. It returns True if the node has anything to do then.
    is_unsaved : bool
        True if a registration has changed that is not on the disk yet.
    """

    def __init__(self, node_count: int) -> None:
        self.deaf: set[int] = set()
        self.announce: Callable[[ClusterPartition, Callable[[int, int], bool], int], None] | None = None
        self.is_unsaved = False
        self._nodes = range(node_count)

    def late_nodes(self) -> Iterable[int]:
        """Return the nodes that do not hear of a decision at once."""
        return self.deaf if self.announce is None else self._nodes


class ClusterPartition:
    """A partition as the controller has it registered, and its replicas.

    Attributes
    ----------
    registration : Registration
    copies : dict of int to Replica
        The replicas by node; with `shares_log` all have the same log.
    """

    __slots__ = (
        "_hearing",
        "_known",
        "_min_isr",
        "_nodes",
        "_open_log",
        "_place",
        "copies",
        "index",
        "registration",
        "shares_log",
        "topic",
    )

    def __init__(
        self,
        topic: Topic,
        index: int,
        registration: Registration,
        place: Callable[[int], LogDir],
        open_log: Callable[[LogDir], Partition],
        min_isr: Callable[[], int],
        nodes: Sequence[Node],
        hearing: Hearing,
        *,
        shares_log: bool,
    ) -> None:
        self.topic = topic
        self.index = index
        self.registration = registration
        self.shares_log = shares_log
        self.copies: dict[int, Replica] = {}
        self._open_log = open_log
        self._place = place
        self._min_isr = min_isr
        self._nodes = nodes
        self._hearing = hearing
        self._known: dict[int, Registration] = {}  # what nodes know that have not heard of the present one
        self._make_copies(registration.replicas)

    @property
    def is_replicated(self) -> bool:
        """True if there is a replica that must follow another."""
        return len(self.copies) > 1 and not self.shares_log

    @property
    def log(self) -> Partition:
        """Return the log of the leader, or without one of the leader before."""
        known = self.registration
        for node_id in (known.leader, known.last_known_leader, *known.replicas):
            if node_id in self.copies:
                return self.copies[node_id].log
        raise AssertionError("a partition has replicas")

    @property
    def is_in_sync(self) -> bool:
        """True if all replicas are in sync, have the same log, and know that it is replicated."""
        ends = {(log.log_end_offset, log.high_watermark) for log in self.logs}
        known = self.registration
        return set(known.isr) == set(known.replicas) and len(ends) == 1 and len(set(*ends)) == 1

    @property
    def leader(self) -> int:
        return self.registration.leader

    @property
    def leader_epoch(self) -> int:
        return self.registration.leader_epoch

    @property
    def replicas(self) -> list[int]:
        return list(self.registration.replicas)

    def is_led_by(self, node_id: int) -> bool:
        """True if the node leads, as far as it knows."""
        return node_id in self.copies and self.copies[node_id].leadership is not None

    def is_online(self, node_id: int) -> bool:
        """True unless the node's replica is on a disk that has failed."""
        return node_id not in self.copies or not self.copies[node_id].log_dir.has_failed

    def known_by(self, node_id: int) -> Registration:
        """Return what a node knows of the partition."""
        return self._known.get(node_id, self.registration)

    def is_known_by(self, node_id: int) -> bool:
        """True if a node has heard that the partition was made."""
        return self.known_by(node_id).leader_epoch >= 0

    def lead_by(self, node_id: int, now_ms: int = 0) -> None:
        """Have a node lead in a new leader epoch, or none, whatever its replica has."""
        self.register(led_by(self.registration, node_id), now_ms)

    def register(self, registration: Registration, now_ms: int) -> None:
        """Take the controller's decision; the nodes that hear it act on it."""
        before, self.registration = self.registration, registration
        self._hearing.is_unsaved = True
        for node_id in self._late_nodes():
            self._known.setdefault(node_id, before)
        self._make_copies(registration.replicas)
        for node_id in list(self.copies):
            if node_id not in self._known:
                self._tell(node_id, now_ms)
        self._announce(partial(self.hear_of, registration), now_ms)

    def _late_nodes(self) -> Iterable[int]:
        return () if self.shares_log else self._hearing.late_nodes()

    def _announce(self, hear: Callable[[int, int], bool], now_ms: int) -> None:
        if not self.shares_log and self._hearing.announce is not None:
            self._hearing.announce(self, hear, now_ms)

    def hear_of(self, registration: Registration, node_id: int, now_ms: int) -> bool:
        """Tell a node of a registration that takes its time; False if it knows better, or hears nothing."""
        is_old = registration.partition_epoch <= self.known_by(node_id).partition_epoch
        if is_old or node_id in self._hearing.deaf:
            return False
        self._known[node_id] = registration
        if registration is self.registration:
            del self._known[node_id]
        if node_id in registration.replicas:
            self._make_copies([node_id])  # it may have heard only now that it was removed before
        if node_id in self.copies:
            self._tell(node_id, now_ms)
        return True

    def min_isr_changed(self, now_ms: int) -> None:
        """Have nodes hear of another min.insync.replicas, in one order with the registrations."""
        min_isr, late = self._min_isr(), self._late_nodes()
        for node_id, copy in self.copies.items():
            if node_id not in late:
                copy.min_isr = min_isr
        self._announce(partial(self._hear_of_min_isr, min_isr), now_ms)

    def _hear_of_min_isr(self, min_isr: int, node_id: int, now_ms: int) -> bool:
        if node_id in self.copies and node_id not in self._hearing.deaf:
            self.copies[node_id].min_isr = min_isr
        return False  # a leader acts on it with the next Fetch or record

    def hear(self, node_id: int, now_ms: int) -> None:
        """Tell a node that hears the controller again what it missed."""
        self._known.pop(node_id, None)
        if node_id in self.copies:
            self.copies[node_id].min_isr = self._min_isr()
            self._tell(node_id, now_ms)

    def _tell(self, node_id: int, now_ms: int) -> None:
        known = self.known_by(node_id)
        if node_id in known.replicas:
            copy = self.copies[node_id]
            before = copy.leadership
            copy.take(known, now_ms)
            if copy.leadership is not before:
                delay_ms = self._nodes[node_id].lead_delay_ms
                copy.leads_from_ms = now_ms + delay_ms if delay_ms else 0
        else:
            self._drop_copy(node_id)

    def _drop_copy(self, node_id: int) -> None:
        copy = self.copies.pop(node_id)
        copy.drop_future()
        copy.log_dir.replica_count -= 1
        if self.shares_log:
            return
        copy.log.delete()
        if not self.is_replicated:
            self.log.end_replication()

    def _make_copies(self, nodes: Iterable[int]) -> None:
        for node_id in nodes:
            if node_id not in self.copies:
                log_dir = self._place(node_id)
                log = self.log if self.copies and self.shares_log else self._open_log(log_dir)
                self.copies[node_id] = Replica(self, node_id, log, log_dir, self._min_isr())
        if self.is_replicated:
            for copy in self.copies.values():
                copy.log.begin_replication()

    def lose_copy(self, node_id: int) -> None:
        """Have a replica begin anew, on an empty disk; one that shares its log keeps it."""
        copy = self.copies[node_id]
        copy.drop_future()
        if not self.shares_log:
            copy.log.delete()
            copy.log = self._open_log(copy.log_dir)
        if self.is_replicated:
            self.copies[node_id].log.begin_replication()

    @property
    def logs(self) -> list[Partition]:
        """Return the logs of all replicas."""
        return [self.log] if self.shares_log else [copy.log for copy in self.copies.values()]

    def open_future(self, log_dir: LogDir) -> Partition:
        """Open an empty log in another directory, for a replica that is to move there."""
        log_dir.begin_future(self.name)
        return self._open_log(log_dir)

    @property
    def name(self) -> str:
        """Return the name of the partition's folders."""
        return f"{self.topic.name}-{self.index}"

    def close(self) -> None:
        for log in self.logs:
            log.close()
        for copy in self.copies.values():
            if copy.future is not None:
                copy.future.log.close()

    def delete(self) -> None:
        for copy in self.copies.values():
            copy.drop_future()
            copy.log_dir.replica_count -= 1
        for log in self.logs:
            log.delete()


class Topic:
    __slots__ = ("config", "is_internal", "name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: bytes, config: TopicConfig, is_internal: bool) -> None:
        self.name = name
        self.topic_id = topic_id
        self.config = config
        self.is_internal = is_internal
        self.partitions: list[ClusterPartition] = []

    def known_partitions(self, node_id: int) -> list[ClusterPartition]:
        """Return the partitions that a node has heard of; without any it does not know the topic."""
        return [partition for partition in self.partitions if partition.is_known_by(node_id)]


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
    settings : ReplicationSettings
    clock : callable
        Returns the wall-clock milliseconds.
    racks : sequence of str or None
        The rack of each node.
    log_dir_count : int
        Log directories of each node.
    replication_factor : int or None
        Replicas of topics that leave it open; None means the number of nodes, three at most.
    shares_logs, shares_internal_logs : bool
        True if the replicas of all topics, or of internal ones, share one log.

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
        *,
        settings: ReplicationSettings | None = None,
        clock: Callable[[], int] = lambda: 0,
        racks: Sequence[str | None] = (),
        log_dir_count: int = 1,
        replication_factor: int | None = None,
        shares_logs: bool = False,
        shares_internal_logs: bool = False,
    ) -> None:
        if directory is not None:
            _rename_folders(directory)
        self.nodes = [
            Node(node_id, rack, _log_dirs(node_id, directory, log_dir_count))
            for node_id, rack in zip_longest(range(node_count), racks)
        ]
        self.hearing = Hearing(node_count)
        self.controller = Controller(self.nodes, self.partitions, settings or ReplicationSettings(), clock)
        # dynamic configs of brokers, by node id; those of all brokers by EVERY_BROKER
        self.broker_overrides: dict[str, dict[str, str | None]] = {}
        self.quotas = Quotas()
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[bytes, Topic] = {}
        self._names: dict[str, str] = {}  # of topics, by what they are called in metrics
        self._saves_later = self._is_changed = self._is_loading = False
        self._named_count = -1
        self._checkpointed: dict[LogDir, list[tuple[str, int, int]]] = {}  # high watermarks
        self._forgotten_changes = 0  # of partitions that are gone
        self._directory = directory
        self._open_partition = open_partition
        self._random_uuid = random_uuid
        self._clock = clock
        self._replication_factor = replication_factor or min(3, node_count)
        self._shares_logs = shares_logs
        self._shares_internal_logs = shares_internal_logs or self._shares_logs
        self.cluster_id = random_uuid().hex()[:22]
        if directory is not None and (directory / STATE_FILE).exists():
            self._load(_read_state(directory / STATE_FILE))

    # Nodes

    @property
    def deaf(self) -> set[int]:
        """Return the nodes that do not hear the controller."""
        return self.hearing.deaf

    @property
    def running_nodes(self) -> list[Node]:
        return [node for node in self.nodes if node.is_running]

    def any_broker(self, node_id: int) -> int:
        """Return the broker that a node names as the controller: any that it knows, another each time."""
        known = self.brokers_known_by(node_id)
        self._named_count += 1
        return known[self._named_count % len(known)].node_id if known else NO_LEADER

    @property
    def metadata_offset(self) -> int:
        """Return how many changes the controller has recorded."""
        changes = sum(partition.registration.partition_epoch + 1 for partition in self.partitions())
        return self._forgotten_changes + changes + sum(node.broker_epoch + 1 for node in self.nodes)

    def node(self, node_id: int) -> Node:
        """Return the node; raise ValueError if there is none."""
        if not 0 <= node_id < len(self.nodes):
            raise ValueError(f"node must be 0 to {len(self.nodes) - 1}, got {node_id}")
        return self.nodes[node_id]

    def brokers_known_by(self, node_id: int) -> list[Node]:
        """Return the brokers that the node names to clients: those not fenced, as far as it knows."""
        known = self.node(node_id).known_brokers
        if known is not None:
            return [self.nodes[each] for each in known]
        return [node for node in self.nodes if node.state is not BrokerControlState.FENCED]

    def stop_node(self, node_id: int) -> None:
        """End a node cleanly: what it leads is led by others first, as far as there are any in sync."""
        node = self.node(node_id)
        if not node.is_running:
            return
        if node.state is BrokerControlState.UNFENCED:
            self.controller.shut_down(node)
        self.controller.fence(node)
        self._end(node)
        self._note_clean_end(node)

    def _note_clean_end(self, node: Node) -> None:
        """Have the node's disks say that it ended cleanly; a single node has no controller to tell."""
        if len(self.nodes) > 1:
            folders = [each.folder for each in node.log_dirs if each.folder is not None]
            note_clean_shutdown(folders, node.broker_epoch)

    def kill_node(self, node_id: int) -> None:
        """End a node at once; the controller has not noticed yet."""
        node = self.node(node_id)
        node.ended_cleanly = False
        self._end(node)

    def _end(self, node: Node) -> None:
        node.is_running = node.is_paused = False
        self.deafen(node.node_id)
        for partition in self.partitions():
            if node.node_id in partition.copies:
                partition.copies[node.node_id].leadership = None
        self._save()

    def start_node(self, node_id: int) -> None:
        """Start a node again; it leads the partitions without a leader that it may lead."""
        node = self.node(node_id)
        if node.is_running:
            return
        node.is_running = True
        self.controller.fence(node)
        take_clean_shutdown([each.folder for each in node.log_dirs if each.folder is not None])
        self._replace_failed_disks(node)
        self.controller.register_broker(node, ended_cleanly=node.ended_cleanly)
        node.ended_cleanly = True
        self._recover_copies(node_id)
        self.hear(node_id)
        self.controller.unfence(node)
        self._save()

    def _replace_failed_disks(self, node: Node) -> None:
        lost = [each for each in self.partitions() if not each.is_online(node.node_id)]
        for log_dir in node.log_dirs:
            log_dir.has_failed = False
        for partition in lost:
            partition.lose_copy(node.node_id)
            self.controller.forget_replica(partition, node.node_id)

    def fail_log_dir(self, node_id: int, number: int) -> None:
        """Have a disk of a node fail; raise ValueError if there is no such directory."""
        node = self.node(node_id)
        if not 0 <= number < len(node.log_dirs):
            raise ValueError(
                f"directory of node {node_id} must be 0 to {len(node.log_dirs) - 1}, got {number}; "
                "log_dirs is how many a node has"
            )
        node.log_dirs[number].has_failed = True
        self.report_failed_disks(node)

    def report_failed_disks(self, node: Node) -> None:
        """Tell the controller what is on disks that have failed, if the node reaches it."""
        if node.node_id not in self.deaf and any(each.has_failed for each in node.log_dirs):
            self.controller.log_dir_failed(node)
            self._save()

    def _recover_copies(self, node_id: int) -> None:
        """Have the node's replicas know of producers what is on its disk, and of refusals nothing."""
        for partition in self.partitions():
            if node_id in partition.copies and not partition.shares_log:
                partition.copies[node_id].log.recover(self._clock())
                partition.copies[node_id].fetches_from_ms = 0

    def deafen(self, node_id: int) -> None:
        """Have a node not hear the controller: it goes on with what it knows."""
        if node_id not in self.deaf:
            node = self.nodes[node_id]
            node.known_brokers = [each.node_id for each in self.brokers_known_by(node_id)]
            node.last_heard = (self.metadata_offset, self._clock())
            self.deaf.add(node_id)

    def hear(self, node_id: int) -> None:
        """Have a node hear the controller again, and act on what it missed."""
        self.deaf.discard(node_id)
        self.nodes[node_id].known_brokers = self.nodes[node_id].last_heard = None
        for partition in self.partitions():
            partition.hear(node_id, self._clock())

    def move_leader(self, topic: str, index: int, node_id: int, *, unclean: bool = False) -> None:
        """Make the node leader; raise ValueError if it does not run, or is not in sync unless `unclean`."""
        if not self.node(node_id).is_running:
            running = ", ".join(str(node.node_id) for node in self.running_nodes)
            raise ValueError(f"node {node_id} does not run; choose one of {running}")
        partition = self.partition(topic, index)
        if partition.shares_log:
            self._add_replica(partition, node_id)
        in_sync = partition.registration.replicas if unclean else partition.registration.isr
        if node_id not in in_sync:
            raise ValueError(
                f"node {node_id} is not in sync with {topic}-{index}; choose one of "
                f"{', '.join(map(str, in_sync))}" + ("" if unclean else ", or unclean=True")
            )
        if partition.leader != node_id:
            self.controller.lead_by(partition, node_id, unclean=unclean)
            self._save()

    def reassign(self, partition: ClusterPartition, target: Sequence[int] | None) -> None:
        """Begin to move a partition, or cancel that; replicas that share a log move at once."""
        if target is None:
            self.controller.cancel_reassignment(partition)
        else:
            self.controller.reassign(partition, target)
        if partition.shares_log:
            self.controller.join_all(partition)
        self._save()

    def _add_replica(self, partition: ClusterPartition, node_id: int) -> None:
        known = partition.registration
        if node_id not in known.replicas:
            more = replace(known, replicas=(*known.replicas, node_id), isr=(*known.isr, node_id))
            partition.register(more, self._clock())

    def in_sync_replicas(self, partition: ClusterPartition) -> list[int]:
        return list(partition.registration.isr)

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

    def led_partition(self, topic: str, index: int, node_id: int) -> Replica:
        """Return the replica of `node_id` if the node leads, as far as it knows.

        Raises BrokerError NOT_LEADER_OR_FOLLOWER, and KAFKA_STORAGE_ERROR if its log directory has failed.
        """
        partition = self.partition(topic, index)
        copy = partition.copies.get(node_id)
        if copy is not None and (copy.log_dir.has_failed or copy.leads_from_ms):
            self._check_ready(copy)
        if copy is None or copy.leadership is None:
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return copy

    def _check_ready(self, copy: Replica) -> None:
        """Raise BrokerError for a replica whose disk has failed, and a leader that does not answer yet."""
        if copy.log_dir.has_failed:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR)
        if copy.leads_from_ms > self._clock():
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def replica(self, topic: str, index: int, node_id: int, leader_epoch: int) -> Replica:
        """Return the replica of `node_id`, leader or not, if it is in this leader epoch (-1: any).

        Raises BrokerError FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER for a node
        without a replica, and KAFKA_STORAGE_ERROR if its log directory has failed. Of replicas that share a
        log only the leader has it.
        """
        partition = self.partition(topic, index)
        if node_id not in partition.copies or (partition.shares_log and not partition.is_led_by(node_id)):
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        copy = partition.copies[node_id]
        if copy.log_dir.has_failed or copy.leads_from_ms:
            self._check_ready(copy)
        copy.check_leader_epoch(leader_epoch)
        return copy

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

        `replication_factor` None means the cluster's; `assignments` names the replicas of each partition
        instead.
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
        self._check_active(partition_count, assignments)
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
        self._check_active(count - present, assignments)
        return topic

    def change_config(self, topic: Topic, config: TopicConfig) -> None:
        needed = self.controller.min_isr(topic)
        topic.config = config
        if self.controller.min_isr(topic) != needed:
            self.controller.min_isr_changed(topic)
        for partition in topic.partitions:
            for log in partition.logs:
                log.config = config
        self._save()

    def change_broker_configs(self, name: str, overrides: dict[str, str | None]) -> None:
        """Set the dynamic configs of a broker, or of every broker."""
        self.broker_overrides[name] = overrides
        self._apply_broker_configs()
        self._save()

    def change_quotas(self, entity: Entity, limits: Mapping[str, float | None]) -> None:
        """Set limits of a client, user or address; None removes one."""
        for key, value in limits.items():
            self.quotas.set(entity, key, value)
        self._save()

    def _apply_broker_configs(self) -> None:
        """Let the controller have the defaults of topics that are set for every broker."""
        self.controller.set_defaults(self.broker_overrides.get(EVERY_BROKER, {}))

    def delete_topic(self, name: str) -> None:
        topic = self.topics.pop(name, None)
        if topic is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        del self.topics_by_id[topic.topic_id]
        del self._names[_metric_name(name)]
        for partition in topic.partitions:
            self._forgotten_changes += partition.registration.partition_epoch + 2
            partition.delete()
        self.checkpoint_high_watermarks()
        self._save()

    def close(self) -> None:
        self.checkpoint_high_watermarks()
        for partition in self.partitions():
            partition.close()
        for node in self.running_nodes:
            self._note_clean_end(node)

    def _check_assignments(self, assignments: Iterable[Sequence[int]]) -> None:
        for replicas in assignments:
            unknown = [node_id for node_id in replicas if not 0 <= node_id < len(self.nodes)]
            if not replicas or unknown or len(set(replicas)) != len(replicas):
                raise BrokerError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"The replicas {list(replicas)} must be different nodes of 0 to {len(self.nodes) - 1}.",
                )

    def _check_active(self, count: int, assignments: Sequence[Sequence[int]] | None) -> None:
        """Check that each of `count` new partitions has a replica that may lead: others never could."""
        for number, replicas in enumerate(assignments or [range(len(self.nodes))]):
            if any(map(self.controller.is_active, replicas)):
                continue
            if assignments:
                raise BrokerError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"All brokers specified in the manual partition assignment for partition {number} are "
                    "fenced or in controlled shutdown.",
                )
            raise BrokerError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"Unable to replicate the partition {count} time(s): All brokers are currently fenced.",
            )

    def place(self, index: int, replication_factor: int | None) -> list[int]:
        """Return the replicas of a new partition: the leaders go round the nodes, and those that may not lead
        come last (StripedReplicaPlacer).
        """
        ring = [(index + number) % len(self.nodes) for number in range(len(self.nodes))]
        ring.sort(key=lambda node_id: not self.controller.is_active(node_id))
        return ring[: replication_factor or self._replication_factor]

    def new_topic_id(self) -> bytes:
        """Return a new id; after a restart the same seed returns the same ids again."""
        while (topic_id := self._random_uuid()) in self.topics_by_id:
            pass
        return topic_id

    def _add_topic(self, topic: Topic) -> None:
        self.topics[topic.name] = topic
        self.topics_by_id[topic.topic_id] = topic
        self._names[_metric_name(topic.name)] = topic.name

    def _add_partition(self, topic: Topic, replicas: list[int]) -> None:
        active = [node_id for node_id in replicas if self.controller.is_active(node_id)]
        partition = self._new_partition(topic, Registration(tuple(replicas), isr=tuple(active)))
        partition.lead_by(next(iter(active), NO_LEADER), self._clock())

    def _new_partition(self, topic: Topic, registration: Registration) -> ClusterPartition:
        index = len(topic.partitions)
        partition = ClusterPartition(
            topic,
            index,
            registration,
            partial(self._place_replica, topic, index),
            partial(self._open_log, topic, index),
            partial(self.controller.min_isr, topic),
            self.nodes,
            self.hearing,
            shares_log=self._shares_internal_logs if topic.is_internal else self._shares_logs,
        )
        topic.partitions.append(partition)
        return partition

    # Storage

    def _place_replica(self, topic: Topic, index: int, node_id: int) -> LogDir:
        """Return the log directory that has a node's replica, or that a new one goes to."""
        name, node = f"{topic.name}-{index}", self.nodes[node_id]
        found = [each for each in node.log_dirs if each.has(name)]
        if node_id and not self._is_loading:
            # what a cluster of fewer nodes left there is of another time
            for each in found:
                assert each.folder is not None
                shutil.rmtree(each.folder / name, ignore_errors=True)
            found = []
        return found[0] if found else node.log_dir_for_replica()

    def _open_log(self, topic: Topic, index: int, log_dir: LogDir) -> Partition:
        return self._open_partition(topic.name, index, topic.config, log_dir.folder)

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

    def save_registrations(self) -> None:
        """Save what the controller has decided: a restart must not forget who is in sync."""
        if self._directory is not None and self.hearing.is_unsaved:
            self._save()

    def checkpoint_high_watermarks(self) -> None:
        """Write the high watermarks of all replicas, a file a log directory, if those are on disk."""
        if self._directory is None or len(self.nodes) == 1:
            return
        rows: dict[LogDir, list[tuple[str, int, int]]] = {
            log_dir: [] for node in self.nodes for log_dir in node.log_dirs
        }
        for partition in self.partitions():
            for copy in partition.copies.values():
                row = partition.topic.name, partition.index, copy.log.high_watermark
                rows[copy.log_dir].append(row)
        for log_dir, found in rows.items():
            if log_dir.folder is None or found == self._checkpointed.get(log_dir, []):
                continue
            with suppress(OSError):  # what is not written is known again from the followers
                write_checkpoint(log_dir.folder / HIGH_WATERMARK_CHECKPOINT, found)
                self._checkpointed[log_dir] = found

    def _save(self) -> None:
        self._is_changed = True
        if self._directory is None or self._saves_later:
            return
        self.hearing.is_unsaved = False
        described = {
            "cluster_id": self.cluster_id,
            "broker_configs": self.broker_overrides,
            "quotas": [[entity, limits] for entity, limits in self.quotas.limits.items()],
            "broker_epochs": [node.broker_epoch for node in self.nodes],
            "topics": [_describe(topic) for topic in self.topics.values()],
        }
        written = self._directory / f"{STATE_FILE}.tmp"
        with written.open("w") as file:
            json.dump(described, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        written.replace(self._directory / STATE_FILE)
        sync_directory(self._directory)

    def _load(self, described: dict[str, Any]) -> None:
        """Load the topics; every partition gets a new leader epoch, as after an election."""
        self._is_loading = True
        self.cluster_id = described["cluster_id"]
        self.broker_overrides = described["broker_configs"]
        self._apply_broker_configs()
        for names, limits in described["quotas"]:
            self.quotas.limits[entity_of(dict(names))] = limits
        ended_cleanly = self._start_all(described["broker_epochs"])
        for saved in described["topics"]:
            name = saved["name"]
            topic = Topic(
                name, bytes.fromhex(saved["topic_id"]), config_of(saved["configs"]), name in INTERNAL_TOPICS
            )
            self._add_topic(topic)
            for kept in saved["partitions"]:
                known = _registration_of(kept)
                registration = restarted(known, range(len(self.nodes)), ended_cleanly)
                if registration is None:
                    raise ValueError(
                        f"{self._directory} has the data of {name}-{len(topic.partitions)} on nodes "
                        f"{known.in_sync}, got nodes={len(self.nodes)}; use nodes={max(known.in_sync) + 1}"
                    )
                self._new_partition(topic, registration).lead_by(registration.leader, self._clock())
        self._load_high_watermarks()
        self._is_loading = False
        self._save()

    def _start_all(self, broker_epochs: Sequence[int]) -> list[int]:
        """Give each broker its next epoch, and return those whose last start has ended cleanly.

        Without eligible leaders (KIP-966) the controller does not ask.
        """
        ended_cleanly = []
        for node, epoch in zip(self.nodes, broker_epochs, strict=False):
            folders = [each.folder for each in node.log_dirs if each.folder is not None]
            if take_clean_shutdown(folders) == epoch or not self.controller.settings.eligible_leader_replicas:
                ended_cleanly.append(node.node_id)
            node.broker_epoch = epoch + 1
        return ended_cleanly

    def _load_high_watermarks(self) -> None:
        """Take up what nodes knew to be replicated; without a checkpoint that is nothing (KIP-101)."""
        known = {
            (log_dir, topic, index): offset
            for node in self.nodes
            for log_dir in node.log_dirs
            if log_dir.folder is not None
            for topic, index, offset in read_checkpoint(
                log_dir.folder / HIGH_WATERMARK_CHECKPOINT, (str, int, int)
            )
        }
        for partition in self.partitions():
            for copy in partition.copies.values() if partition.is_replicated else ():
                offset = known.get((copy.log_dir, partition.topic.name, partition.index), 0)
                copy.log.begin_replication(offset)


def _folder(directory: Path, node_id: int) -> Path:
    """Return where a node has its logs (D01)."""
    return directory / f"{NODE}{node_id}" if node_id else directory


def _rename_folders(directory: Path) -> None:
    """Give folders of nodes their present names: before, they were named as partitions of a topic "node".

    The files of such a partition stay where they are.
    """
    for old in directory.glob(f"{NODE}-[0-9]*"):
        new = directory / old.name.replace("-", "")
        of_node = [each for each in old.iterdir() if each.is_dir() or each.name in FILES_OF_NODES]
        for each in of_node:
            new.mkdir(exist_ok=True)
            each.replace(new / each.name)
        if of_node and not any(old.iterdir()):
            old.rmdir()


def _log_dirs(node_id: int, directory: Path | None, count: int) -> list[LogDir]:
    """Return a node's log directories: its folder, and others in it, or names of what is in memory.

    Raises ValueError if more of them have been used before: replicas would be missed.
    """
    if directory is None:
        return [LogDir(f"/node-{node_id}/data-{number}") for number in range(count)]
    folder = _folder(directory, node_id)
    if (folder / f"{DISK}{count}").exists():
        raise ValueError(
            f"{folder} has replicas in {DISK}{count}, got log_dirs={count}; use as many as before"
        )
    paths = [folder, *(folder / f"{DISK}{number}" for number in range(1, count))]
    for path in paths if count > 1 else ():
        path.mkdir(parents=True, exist_ok=True)
    return [LogDir(str(path), path) for path in paths]


def _registration_of(kept: Mapping[str, Any]) -> Registration:
    fields: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in kept.items()
    }
    return Registration(**fields)


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
        return {
            "cluster_id": described["cluster_id"],
            "broker_configs": described.get("broker_configs", {}),
            "quotas": described.get("quotas", []),
            "broker_epochs": described.get("broker_epochs", []),
            "topics": described["topics"],
        }
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error!r}); restore the file that the broker wrote") from error


def _describe(topic: Topic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "topic_id": topic.topic_id.hex(),
        "configs": topic.config.overrides,
        "partitions": [asdict(partition.registration) for partition in topic.partitions],
    }
