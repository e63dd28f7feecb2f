"""How partitions and nodes are, as tests and people look at them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kbatch.testing.broker.controller.brokers import BrokerControlState

if TYPE_CHECKING:
    from kbatch.testing.broker.cluster import Cluster, ClusterPartition
    from kbatch.testing.broker.controller.brokers import Node


class PartitionStatus(NamedTuple):
    """A partition as the controller has it registered, and its replicas.

    Attributes
    ----------
    leader : int
        The node that leads, -1 if there is none.
    replicas, isr, elr : list of int
        The nodes with a replica, the preferred leader first; those in sync; those that are not, and may lead
        (KIP-966).
    high_watermark : int
        As the leader knows it.
    log_end_offsets : dict of int to int
        The offset of the next record, by node.
    """

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    elr: list[int]
    high_watermark: int
    log_end_offsets: dict[int, int]


def partition_statuses(cluster: Cluster) -> list[PartitionStatus]:
    return [_status_of(each) for each in cluster.partitions() if not each.topic.is_internal]


def _status_of(partition: ClusterPartition) -> PartitionStatus:
    known = partition.registration
    return PartitionStatus(
        partition.topic.name,
        partition.index,
        known.leader,
        known.leader_epoch,
        list(known.replicas),
        list(known.isr),
        list(known.elr),
        partition.log.high_watermark,
        {node_id: copy.log.log_end_offset for node_id, copy in partition.copies.items()},
    )


def node_states(cluster: Cluster) -> dict[int, str]:
    """Return "down", "paused", "fenced" or "running" for each node."""
    return {node.node_id: _state_of(node) for node in cluster.nodes}


def _state_of(node: Node) -> str:
    if not node.is_running:
        return "down"
    if node.is_paused:
        return "paused"
    return "fenced" if node.state is BrokerControlState.FENCED else "running"
