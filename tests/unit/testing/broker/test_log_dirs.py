"""Log directories of nodes: what is in them, and disks that fail."""

from __future__ import annotations

from typing import Any

import pytest

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from kbatch.testing.broker.controller.partition_change import NO_LEADER
from kbatch.testing.broker.replication.log_dir_moves import FETCH_MS
from tests.support.broker_core import TOPIC
from tests.unit.testing.broker.replication.replicated import Replicated


@pytest.fixture
def broker() -> Replicated:
    return Replicated(log_dirs=2)


def fail(broker: Replicated, node: int, number: int = 0) -> None:
    broker.act(lambda state: state.fail_log_dir(node, number))


def directories(broker: Replicated, node: int) -> list[Any]:
    answer = broker.client(node).ask(messages.DescribeLogDirsRequest(topics=None))
    return [
        (
            each.error_code,
            each.log_dir,
            [(topic.name, p.partition_index) for topic in each.topics for p in topic.partitions],
        )
        for each in answer.results
    ]


def offline(broker: Replicated, node: int) -> list[int]:
    named = messages.MetadataRequest.MetadataRequestTopic(name=TOPIC)
    answer = broker.client(node).ask(messages.MetadataRequest(topics=[named]), 12)
    replicas: list[int] = answer.topics[0].partitions[0].offline_replicas
    return replicas


def test_new_replicas_go_where_the_fewest_are(broker: Replicated) -> None:
    broker.act(lambda state: state.cluster.create_topic("more", 3))
    assert [found for *_, found in directories(broker, 1)] == [
        [(TOPIC, 0), ("more", 1)],
        [("more", 0), ("more", 2)],
    ]
    broker.act(lambda state: state.delete_topic("more"))
    broker.act(lambda state: state.cluster.create_topic("another", 1))
    assert directories(broker, 1)[1][-1] == [("another", 0)]


def test_KB12_failed_directory_takes_its_partitions_offline(broker: Replicated) -> None:
    broker.act(lambda state: state.cluster.create_topic("more", 1))
    broker.put(b"a")
    assert broker.known.leader_epoch == 0
    fail(broker, 0)
    assert (broker.partition.leader, broker.known.isr, broker.known.leader_epoch) == (1, (1, 2), 1)
    assert offline(broker, 1) == [0]
    assert broker.put(b"b", node=0).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.fetch(0).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert directories(broker, 0) == [
        (ErrorCode.KAFKA_STORAGE_ERROR, "/node-0/data-0", []),
        (0, "/node-0/data-1", [("more", 0)]),
    ]
    assert broker.state.cluster.partition("more", 0).leader == 0, "the other directory serves"
    assert broker.put(b"b").error_code == 0
    broker.advance(60_000)
    assert broker.known.isr == (1, 2), "the replica does not follow"


def test_KB12_replica_without_a_disk_is_not_elected(broker: Replicated) -> None:
    fail(broker, 1)
    broker.kill(2)
    broker.kill(0)
    assert broker.partition.leader == NO_LEADER


def test_KB12_node_that_is_cut_off_reports_its_disk_later(broker: Replicated) -> None:
    broker.cut({0}, {"controller"})
    fail(broker, 0)
    assert broker.partition.leader == 0
    assert broker.put(b"a", node=0).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    broker.heal()
    assert (broker.partition.leader, broker.known.isr) == (1, (1, 2))


def test_KB12_new_disk_is_empty_and_filled_by_the_leader(broker: Replicated) -> None:
    broker.put(b"a")
    fail(broker, 0)
    broker.put(b"b")
    broker.stop(0)
    broker.start(0)
    assert broker.values_at(0) == [b"a", b"b"]
    assert broker.known.isr == (1, 2, 0)


def test_KB12_last_in_sync_replica_with_a_new_disk_is_no_eligible_leader() -> None:
    broker = Replicated(log_dirs=2, min_insync_replicas=2)
    broker.kill(2)
    broker.kill(1)
    fail(broker, 0)
    assert (broker.partition.leader, broker.known.elr) == (NO_LEADER, (0, 1))
    broker.stop(0)
    broker.start(0)
    assert broker.known.elr == (1,)


def test_node_ends_with_its_last_disk() -> None:
    broker = Replicated()
    broker.put(b"a")
    fail(broker, 0)
    assert not broker.state.cluster.nodes[0].is_running
    assert broker.partition.leader == 1
    broker.start(0)
    assert broker.values_at(0) == [b"a"]


def test_moved_replica_is_described_where_it_is(broker: Replicated) -> None:
    kind = messages.AlterReplicaLogDirsRequest
    moved = kind.AlterReplicaLogDirTopic(name=TOPIC, partitions=[0])
    request = kind(dirs=[kind.AlterReplicaLogDir(path="/node-1/data-1", topics=[moved])])
    broker.client(1).ask(request)
    broker.advance(2 * FETCH_MS)
    assert [found for *_, found in directories(broker, 1)] == [[], [(TOPIC, 0)]]
    assert [found for *_, found in directories(broker, 0)] == [[(TOPIC, 0)], []]
    fail(broker, 1, 1)
    (result,) = broker.client(1).ask(request).results
    assert result.partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_unknown_directories_are_refused() -> None:
    with pytest.raises(ValueError, match="directory of node 0 must be 0 to 1, got 2; log_dirs is how many"):
        fail(Replicated(log_dirs=2), 0, 2)
