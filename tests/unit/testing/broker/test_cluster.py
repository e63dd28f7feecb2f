"""The nodes and topics of the embedded cluster: leaders, and the state after a restart."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbatch.errors import ErrorCode
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.cluster import STATE_FILE, Cluster
from kbatch.testing.broker.controller.partition_change import NO_LEADER
from kbatch.testing.broker.logs.partition import Partition
from kbatch.testing.broker.logs.topic_config import TopicConfig
from kbatch.testing.broker.transactions.transaction_coordinator import OFFSETS_TOPIC


def open_partition(topic: str, index: int, config: TopicConfig, directory: Path | None) -> Partition:
    return Partition(topic, index, config=config, directory=directory)


def make(
    nodes: int = 3,
    directory: Path | None = None,
    random_uuid: Callable[[], bytes] | None = None,
    *,
    shares_internal_logs: bool = False,
) -> Cluster:
    return Cluster(
        nodes,
        directory,
        open_partition,
        random_uuid or (lambda: random.randbytes(16)),
        shares_internal_logs=shares_internal_logs,
    )


def leaders(cluster: Cluster, topic: str) -> list[tuple[int, int]]:
    """Return (leader, leader epoch) of each partition."""
    return [(each.leader, each.leader_epoch) for each in cluster.topics[topic].partitions]


def test_leaders_are_spread_and_replicas_follow_them() -> None:
    cluster = make(4)
    topic = cluster.create_topic("t", 5)
    assert leaders(cluster, "t") == [(0, 0), (1, 0), (2, 0), (3, 0), (0, 0)]
    assert [each.replicas for each in topic.partitions][:4] == [[0, 1, 2], [1, 2, 3], [2, 3, 0], [3, 0, 1]]
    assert [each.replicas for each in make(1).create_topic("t", 2).partitions] == [[0], [0]]
    assert cluster.topic_by_id(topic.topic_id) is topic


def test_moved_leader_has_a_new_epoch() -> None:
    cluster = make(4)
    cluster.create_topic("t", 1)
    cluster.move_leader("t", 0, 2)
    assert leaders(cluster, "t") == [(2, 1)]
    cluster.move_leader("t", 0, 2)
    assert leaders(cluster, "t") == [(2, 1)], "it leads already"
    cluster.move_leader("t", 0, 1)
    assert leaders(cluster, "t") == [(1, 2)]
    with pytest.raises(ValueError, match="node 3 is not in sync with t-0; choose one of 0, 1, 2, or unclean"):
        cluster.move_leader("t", 0, 3)
    with pytest.raises(ValueError, match=r"node 3 is not in sync with t-0; choose one of 0, 1, 2$"):
        cluster.move_leader("t", 0, 3, unclean=True)


def test_any_node_may_lead_what_replicas_share() -> None:
    """A node that had no replica becomes one."""
    cluster = make(4, shares_internal_logs=True)
    cluster.create_topic(OFFSETS_TOPIC, 1)
    partition = cluster.partition(OFFSETS_TOPIC, 0)
    cluster.move_leader(OFFSETS_TOPIC, 0, 3)
    assert (partition.leader, partition.replicas) == (3, [0, 1, 2, 3])
    assert len({id(copy.log) for copy in partition.copies.values()}) == 1


def test_stopped_node_leads_nothing_until_it_returns() -> None:
    cluster = make(3)
    cluster.create_topic("replicated", 3)
    cluster.create_topic("single", 3, replication_factor=1)
    cluster.stop_node(1)
    assert leaders(cluster, "replicated") == [(0, 0), (2, 1), (2, 0)]
    assert leaders(cluster, "single") == [(0, 0), (NO_LEADER, 1), (2, 0)]
    assert [node.node_id for node in cluster.running_nodes] == [0, 2]
    assert cluster.in_sync_replicas(cluster.partition("replicated", 1)) == [2, 0]
    cluster.start_node(1)
    assert leaders(cluster, "replicated") == [(0, 0), (2, 1), (2, 0)], "what moved away stays there"
    assert leaders(cluster, "single") == [(0, 0), (1, 2), (2, 0)]


def test_controller_is_any_node_that_runs() -> None:
    cluster = make(2)
    assert {cluster.any_broker(0) for _ in range(4)} == {0, 1}
    cluster.stop_node(0)
    assert {cluster.any_broker(1) for _ in range(4)} == {1}
    cluster.stop_node(1)
    assert cluster.running_nodes == []


@given(st.lists(st.tuples(st.sampled_from(["stop", "start", "move"]), st.integers(0, 2), st.integers(0, 3))))
def test_leaders_run_and_epochs_only_grow(steps: list[tuple[str, int, int]]) -> None:
    cluster = make(3)
    cluster.create_topic("t", 4, replication_factor=2)
    for step, node_id, index in steps:
        before = leaders(cluster, "t")
        if step == "move" and node_id in cluster.partition("t", index).registration.isr:
            cluster.move_leader("t", index, node_id)
        elif step == "stop":
            cluster.stop_node(node_id)
        elif step == "start":
            cluster.start_node(node_id)
        for partition, (leader, epoch) in zip(cluster.topics["t"].partitions, before, strict=True):
            assert partition.leader_epoch == epoch + (partition.leader != leader)
            in_sync = cluster.in_sync_replicas(partition)
            assert partition.leader in in_sync if in_sync else partition.leader == NO_LEADER


@pytest.mark.parametrize("node_id", [-1, 3])
def test_nodes_that_are_not_there(node_id: int) -> None:
    cluster = make(3)
    cluster.create_topic("t", 1)
    for call in (cluster.stop_node, cluster.start_node, lambda node_id: cluster.move_leader("t", 0, node_id)):
        with pytest.raises(ValueError, match=f"node must be 0 to 2, got {node_id}"):
            call(node_id)


def test_leader_does_not_move_to_a_node_that_is_stopped() -> None:
    cluster = make(3)
    cluster.create_topic("t", 1)
    cluster.stop_node(2)
    with pytest.raises(ValueError, match="node 2 does not run; choose one of 0, 1"):
        cluster.move_leader("t", 0, 2)


def test_partitions_are_served_by_their_leader() -> None:
    cluster = make(2)
    cluster.create_topic("t", 1)
    assert cluster.led_partition("t", 0, 0) is cluster.partition("t", 0).copies[0]
    for arguments, code in (
        (("t", 0, 1), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (("t", 1, 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("t", -1, 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("u", 0, 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ):
        with pytest.raises(BrokerError) as refused:
            cluster.led_partition(*arguments)
        assert refused.value.code == code


@pytest.mark.parametrize(
    ("present", "new", "collides"),
    [("a.b", "a_b", True), ("a_b", "a.b", True), ("a.b", "a.c", False), ("ab", "a_b", False)],
)
def test_names_that_differ_in_dots_and_underscores_alone(present: str, new: str, collides: bool) -> None:
    cluster = make()
    cluster.create_topic(present, 1)
    if not collides:
        cluster.create_topic(new, 1)
        return
    with pytest.raises(BrokerError, match=f"'{new}' collides with existing topic: {present}") as refused:
        cluster.create_topic(new, 1)
    assert refused.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION
    cluster.delete_topic(present)
    cluster.create_topic(new, 1)


def test_refused_topic_leaves_nothing(tmp_path: Path) -> None:
    cluster = make(2, tmp_path)
    for arguments in ({"configs": {"no.such": "1"}}, {"assignments": [[5]]}, {"replication_factor": 9}):
        with pytest.raises(BrokerError):
            cluster.create_topic("t", 1, **arguments)
    assert not cluster.topics
    assert not list(tmp_path.iterdir())


# Storage


def test_restarted_cluster_differs_in_epochs_only(tmp_path: Path) -> None:
    cluster = make(3, tmp_path)
    cluster.create_topic("t", 2, configs={"retention.ms": "5"})
    cluster.create_topic("gone", 1)
    cluster.create_topic("placed", 1, assignments=[[2, 0]])
    cluster.create_partitions("t", 3)
    cluster.move_leader("t", 0, 2)
    cluster.delete_topic("gone")
    cluster.close()
    assert not (tmp_path / "gone-0").exists()
    again = make(3, tmp_path)
    assert again.cluster_id == cluster.cluster_id
    assert [topic.topic_id for topic in again.topics.values()] == [
        topic.topic_id for topic in cluster.topics.values()
    ]
    assert again.topics["t"].config.retention_ms == 5
    assert leaders(again, "t") == [(0, 2), (1, 1), (2, 1)]
    assert leaders(again, "placed") == [(2, 1)]
    assert again.topic_by_id(cluster.topics["t"].topic_id).name == "t"
    again.close()
    assert leaders(make(3, tmp_path), "t") == [(0, 3), (1, 2), (2, 2)], "each restart is an election"


def test_restart_with_fewer_nodes(tmp_path: Path) -> None:
    """It is possible while what they have in sync is complete."""
    cluster = make(3, tmp_path)
    cluster.create_topic("t", 3)
    cluster.close()
    smaller = make(1, tmp_path)
    assert leaders(smaller, "t") == [(0, 1), (0, 1), (0, 1)]
    smaller.close()
    cluster = make(3, tmp_path)
    cluster.create_topic("single", 3, replication_factor=1)
    cluster.close()
    with pytest.raises(
        ValueError, match=r"has the data of single-2 on nodes \(2,\), got nodes=2; use nodes=3"
    ):
        make(2, tmp_path)


def test_same_seed_after_a_restart_gives_no_topic_id_twice(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        cluster = make(1, tmp_path, _seeded())
        cluster.create_topic(name, 1)
        cluster.close()
    topics = make(1, tmp_path).topics
    assert len({topic.topic_id for topic in topics.values()}) == 3


def _seeded() -> Callable[[], bytes]:
    rng = random.Random(1)
    return lambda: rng.randbytes(16)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"cluster_id": "x"}', "\0"])
def test_state_that_no_broker_wrote(tmp_path: Path, content: str) -> None:
    (tmp_path / STATE_FILE).write_text(content)
    with pytest.raises(ValueError, match=STATE_FILE):
        make(1, tmp_path)


def test_state_is_replaced_as_a_whole(tmp_path: Path) -> None:
    cluster = make(1, tmp_path)
    for name in ("a", "b"):
        cluster.create_topic(name, 1)
        described = json.loads((tmp_path / STATE_FILE).read_text())
        assert [topic["name"] for topic in described["topics"]] == list(cluster.topics)
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == [STATE_FILE]


def test_new_partitions_are_led_by_nodes_that_may_lead() -> None:
    """StripedReplicaPlacer: fenced brokers come last."""
    cluster = make()
    cluster.stop_node(1)
    cluster.create_topic("t", 3)
    assert [each.replicas for each in cluster.topics["t"].partitions] == [[0, 2, 1], [2, 0, 1], [2, 0, 1]]
    assert [each.leader for each in cluster.topics["t"].partitions] == [0, 2, 2]


def test_partitions_that_no_node_may_lead_are_refused() -> None:
    cluster = make()
    cluster.create_topic("t", 1)
    cluster.stop_node(1)
    with pytest.raises(BrokerError) as refused:
        cluster.create_topic("assigned", 2, assignments=[[0], [1]])
    assert refused.value.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "for partition 1 are fenced" in str(refused.value)
    for node_id in (0, 2):
        cluster.stop_node(node_id)
    for create in (lambda: cluster.create_topic("new", 1), lambda: cluster.create_partitions("t", 2)):
        with pytest.raises(BrokerError, match="All brokers are currently fenced") as refused:
            create()
        assert refused.value.code == ErrorCode.INVALID_REPLICATION_FACTOR
