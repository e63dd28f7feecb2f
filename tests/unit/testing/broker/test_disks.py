"""Replicas on disk: a folder a node, and what a restart of all of them knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kbatch.testing.broker.cluster import HIGH_WATERMARK_CHECKPOINT
from kbatch.testing.broker.replication.replication import FETCH_WAIT_MS
from tests.support.broker_core import TOPIC
from tests.unit.testing.broker.group_clients import Member, committed
from tests.unit.testing.broker.replication.replicated import Replicated

CHECKPOINT_MS = 5_000
FOLDERS = ("", "node-1", "node-2")


class OnDisk(Replicated):
    """Three nodes whose replicas are on disk."""

    def __init__(self, directory: Path, **options: Any) -> None:
        topics = () if (directory / "cluster.json").exists() else (TOPIC,)
        super().__init__(directory=directory, topics=topics, internal_topic_partitions=1, **options)
        self.directory = directory

    def restarted(self, *, cleanly: bool = True) -> OnDisk:
        """Return the cluster after all nodes, and the process, have ended and started again."""
        if cleanly:
            self.state.close()
        return OnDisk(self.directory)

    def settle(self) -> OnDisk:
        """Let followers fetch, and hear of the high watermark."""
        self.act(lambda state: None)
        self.advance(FETCH_WAIT_MS)
        return self

    def segment(self, node: int) -> bytes:
        (path,) = (self.directory / FOLDERS[node] / f"{TOPIC}-0").glob("*.log")
        return path.read_bytes()


def test_KD01_each_node_has_a_folder(tmp_path: Path) -> None:
    broker = OnDisk(tmp_path)
    broker.put(b"1")
    broker.put(b"2")
    assert broker.segment(0) == broker.segment(1) == broker.segment(2)
    again = broker.restarted().settle()
    assert [again.values_at(node) for node in range(3)] == [[b"1", b"2"]] * 3
    assert again.ends() == dict.fromkeys(range(3), (2, 2))
    assert again.known.leader_epoch == broker.known.leader_epoch + 1


def test_KD02_killed_process_has_lost_nothing(tmp_path: Path) -> None:
    broker = OnDisk(tmp_path)
    broker.put(b"1")
    again = broker.restarted(cleanly=False)
    assert again.ends() == dict.fromkeys(range(3), (1, 0)), "nothing was said of what is replicated"
    assert again.settle().ends() == dict.fromkeys(range(3), (1, 1))
    again.put(b"2")
    assert again.values_at(2) == [b"1", b"2"]


def test_KD02_dead_machine_loses_what_was_not_flushed(tmp_path: Path) -> None:
    broker = OnDisk(tmp_path)
    broker.put(b"1")
    broker.kill(2, lose=True)
    broker.put(b"2")
    assert broker.values_at(2) == []
    broker.start(2)
    assert broker.values_at(2) == [b"1", b"2"]
    assert broker.segment(2) == broker.segment(0)


def test_KH10_high_watermark_is_the_one_of_the_checkpoint(tmp_path: Path) -> None:
    broker = OnDisk(tmp_path)
    broker.put(b"1")
    broker.settle()
    broker.hold()
    broker.send(b"2", acks=1)
    broker.advance(CHECKPOINT_MS)
    assert (tmp_path / "node-1" / HIGH_WATERMARK_CHECKPOINT).read_text() == f"0\n1\n{TOPIC} 0 1\n"
    again = broker.restarted(cleanly=False)
    assert again.ends() == {0: (2, 1), 1: (1, 1), 2: (1, 1)}
    assert again.settle().ends() == dict.fromkeys(range(3), (2, 2))


def test_KH10_clean_end_writes_the_checkpoint(tmp_path: Path) -> None:
    broker = OnDisk(tmp_path)
    broker.put(b"1")
    broker.settle()
    assert broker.restarted().ends() == dict.fromkeys(range(3), (1, 1))


def test_KD01_replica_that_was_not_in_sync_does_not_lead_after_a_restart(tmp_path: Path) -> None:
    broker = OnDisk(tmp_path)
    broker.put(b"1")
    broker.kill(0)
    broker.put(b"2")
    again = broker.restarted(cleanly=False)
    assert again.known.leader == 1
    assert again.known.isr == (1, 2)
    assert again.settle().values_at(0) == [b"1", b"2"]
    assert set(again.known.isr) == {0, 1, 2}


def test_KD01_last_leader_leads_after_a_restart(tmp_path: Path) -> None:
    broker = OnDisk(tmp_path)
    for node in (0, 1):
        broker.kill(node)
    broker.put(b"1")
    broker.kill(2)
    again = broker.restarted(cleanly=False)
    assert (again.known.leader, again.known.isr) == (2, (2,))
    assert again.settle().values_at(0) == [b"1"]


def test_KD01_moved_replica_leaves_no_folder(tmp_path: Path) -> None:
    broker = OnDisk(tmp_path)
    broker.put(b"1")
    broker.reassign(1)
    assert broker.known.replicas == (1,)
    assert not (tmp_path / f"{TOPIC}-0").exists()
    again = broker.restarted()
    assert again.values_at(1) == [b"1"]
    again.act(lambda state: state.delete_topic(TOPIC))
    assert not list(tmp_path.glob(f"**/{TOPIC}-0"))


def test_KD03_retention_is_of_each_replica(tmp_path: Path) -> None:
    broker = OnDisk(tmp_path)
    broker.put(b"1")
    broker.act(lambda state: state.cluster.partition(TOPIC, 0).log.delete_records_before(1))
    assert [broker.log(node).log_start_offset for node in range(3)] == [1, 0, 0]
    broker.put(b"2")
    assert [broker.log(node).log_start_offset for node in range(3)] == [1, 1, 1]


def test_coordinators_load_what_a_node_has_on_disk(tmp_path: Path) -> None:
    broker = OnDisk(tmp_path)
    member = Member(broker, "a")
    assert (member.join(), member.commit(5)) == (0, 0)
    again = broker.restarted(cleanly=False).settle()
    assert committed(again) == (0, 5)
    again.kill(0)
    leader = again.state.coordinators.partition_of_group("group").leader
    assert committed(again, node_id=leader) == (0, 5)
