"""Replicas on disk: a folder a node, and what a restart of all of them knows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kbatch.protocol import messages
from kbatch.testing.broker.cluster import HIGH_WATERMARK_CHECKPOINT
from kbatch.testing.broker.logs.clean_shutdown import CLEAN_SHUTDOWN_FILE, note_clean_shutdown
from kbatch.testing.broker.replication.log_dir_moves import FETCH_MS
from kbatch.testing.broker.replication.replica import FETCH_BACKOFF_MS
from kbatch.testing.broker.replication.replication import FETCH_WAIT_MS
from tests.support.broker_core import TOPIC, batch, produce_request, produced
from tests.unit.testing.broker.group_clients import Member, committed
from tests.unit.testing.broker.replication.replicated import Replicated

CHECKPOINT_MS = 5_000
FOLDERS = ("", "node1", "node2")


class OnDisk(Replicated):
    """Nodes whose replicas are on disk."""

    def __init__(self, directory: Path, nodes: int = 3, **options: Any) -> None:
        topics = () if (directory / "cluster.json").exists() else (TOPIC,)
        super().__init__(nodes, directory=directory, topics=topics, internal_topic_partitions=1, **options)
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

    def send_batch(self, data: bytes) -> Any:
        """Return the answer for the partition."""
        return produced(self.client(self.partition.leader).ask(produce_request(self, data, acks=-1)))

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


def test_KD02_node_that_did_not_end_cleanly_is_not_in_sync_after_a_restart(tmp_path: Path) -> None:
    broker = OnDisk(tmp_path)
    broker.put(b"1")
    broker.stop(1)
    broker.start(1)
    broker.kill(0)
    epochs = [node.broker_epoch for node in broker.state.cluster.nodes]
    again = broker.restarted()
    assert (again.known.leader, again.known.isr) == (1, (1, 2))
    assert [node.broker_epoch for node in again.state.cluster.nodes] == [epoch + 1 for epoch in epochs]
    assert set(again.settle().known.isr) == {0, 1, 2}


def test_KD02_file_of_a_clean_end_has_the_broker_epoch(tmp_path: Path) -> None:
    broker = OnDisk(tmp_path)
    files = [tmp_path / folder / CLEAN_SHUTDOWN_FILE for folder in FOLDERS]
    broker.stop(2)
    assert json.loads(files[2].read_text()) == {"version": 0, "brokerEpoch": 0}
    broker.start(2)
    assert not any(map(Path.exists, files))
    broker.state.close()
    assert [json.loads(path.read_text())["brokerEpoch"] for path in files] == [0, 0, 1]


def test_KD02_file_of_an_earlier_start_does_not_count(tmp_path: Path) -> None:
    broker = OnDisk(tmp_path)
    again = broker.restarted()
    again.put(b"1")
    (tmp_path / CLEAN_SHUTDOWN_FILE).write_text(json.dumps({"version": 0, "brokerEpoch": 0}))
    note_clean_shutdown([tmp_path / "node1"], 1)
    last = again.restarted(cleanly=False)
    assert (last.known.leader, last.known.isr) == (1, (1,))


def test_KD02_without_eligible_leaders_all_count_as_ended_cleanly(tmp_path: Path) -> None:
    broker = OnDisk(tmp_path, eligible_leader_replicas=False)
    broker.put(b"1")
    again = OnDisk(tmp_path, eligible_leader_replicas=False)
    assert again.known.isr == (0, 1, 2)


def test_single_node_has_no_file_of_its_end(tmp_path: Path) -> None:
    for _ in range(2):
        broker = OnDisk(tmp_path, nodes=1)
        broker.put(b"1")
        broker.state.close()
    assert not list(tmp_path.glob(f"**/{CLEAN_SHUTDOWN_FILE}"))
    assert broker.values_at(0) == [b"1"] * 2


# Log directories


def places(broker: OnDisk, topic: str) -> list[list[str]]:
    """Return where each node has the topic's replicas, as paths below the folder of all."""
    nodes = broker.state.cluster.nodes
    return [
        sorted(
            str(path.relative_to(broker.directory))
            for log_dir in node.log_dirs
            for path in Path(log_dir.path).glob(f"{topic}-*")
        )
        for node in nodes
    ]


def test_KD01_replicas_are_found_in_the_directory_where_they_were(tmp_path: Path) -> None:
    broker = OnDisk(tmp_path, log_dirs=2)
    broker.put(b"1")
    broker.act(lambda state: state.cluster.create_topic("more", 2))
    expected = [["disk1/more-0", "more-1"], ["node1/disk1/more-0", "node1/more-1"]]
    assert places(broker, "more")[:2] == expected
    broker.settle()
    broker.state.close()
    again = OnDisk(tmp_path, log_dirs=2)
    assert places(again, "more")[:2] == expected
    assert again.values_at(0) == [b"1"]
    assert again.ends() == dict.fromkeys(range(3), (1, 1)), "each directory has its own checkpoint"
    again.state.close()
    with pytest.raises(ValueError, match="has replicas in disk1, got log_dirs=1; use as many as before"):
        OnDisk(tmp_path)


def move(broker: OnDisk, node: int, number: int) -> str:
    """Begin to move the replica of a node to another directory, and return that one's path."""
    kind = messages.AlterReplicaLogDirsRequest
    path = broker.state.cluster.nodes[node].log_dirs[number].path
    moved = kind.AlterReplicaLogDirTopic(name=TOPIC, partitions=[0])
    request = kind(dirs=[kind.AlterReplicaLogDir(path=path, topics=[moved])])
    (result,) = broker.client(node).ask(request).results
    assert result.partitions[0].error_code == 0
    return path


def described(broker: OnDisk, node: int) -> dict[str, list[tuple[int, int, bool]]]:
    """Return (size, lag, is future) of the replicas in each directory of a node."""
    answer = broker.client(node).ask(messages.DescribeLogDirsRequest(topics=None))
    return {
        each.log_dir: [
            (found.partition_size, found.offset_lag, found.is_future_key)
            for topic in each.topics
            for found in topic.partitions
        ]
        for each in answer.results
    }


def test_KD04_future_replica_stands_beside_the_present_one(tmp_path: Path) -> None:
    broker = OnDisk(tmp_path, log_dirs=2)
    for _ in range(3):
        broker.put(bytes(700_000))
    size = broker.log(1).size_bytes
    first = broker.state.cluster.nodes[1].log_dirs[0].path
    second = move(broker, 1, 1)
    assert described(broker, 1) == {first: [(size, 0, False)], second: [(0, 3, True)]}
    broker.advance(FETCH_MS)
    assert described(broker, 1) == {first: [(size, 0, False)], second: [(size // 3, 2, True)]}
    broker.advance(3 * FETCH_MS)
    assert described(broker, 1) == {first: [], second: [(size, 0, False)]}
    assert places(broker, TOPIC) == [["events-0"], ["node1/disk1/events-0"], ["node2/events-0"]]
    broker.put(b"1")
    broker.settle()
    broker.state.close()
    again = OnDisk(tmp_path, log_dirs=2)
    assert len(again.values_at(1)) == 4


@pytest.mark.parametrize("nodes", [1, 3])
def test_KD04_replica_that_moves_goes_on_as_it_was(tmp_path: Path, nodes: int) -> None:
    broker = OnDisk(tmp_path, nodes=nodes, log_dirs=2)
    header = {"producer_id": 7, "producer_epoch": 0}
    assert broker.send_batch(batch(b"1", base_sequence=0, **header)).base_offset == 0
    move(broker, 0, 1)
    assert broker.send_batch(batch(b"2", base_sequence=1, **header)).base_offset == 1
    broker.advance(10 * FETCH_MS)
    assert places(broker, TOPIC)[0] == ["disk1/events-0"]
    repeated = broker.send_batch(batch(b"1", base_sequence=0, **header))
    assert (repeated.error_code, repeated.base_offset) == (0, 0), "it knows the producer's batches"
    assert broker.put(b"3").base_offset == 2
    assert broker.values_at(0) == [b"1", b"2", b"3"]
    assert broker.fetch(0).high_watermark == 3


def test_KD04_log_that_is_cut_meanwhile_cuts_the_future_one(tmp_path: Path) -> None:
    broker = OnDisk(tmp_path, log_dirs=2)
    broker.put(b"1")
    broker.hold()
    broker.send(bytes(900_000), acks=1)
    broker.send(bytes(900_000), acks=1)
    move(broker, 0, 1)
    broker.advance(2 * FETCH_MS)
    broker.move(1)
    broker.send(b"2", acks=1)
    broker.hold(False)
    broker.advance(10 * FETCH_MS)
    assert places(broker, TOPIC)[0] == ["disk1/events-0"]
    assert broker.values_at(0) == broker.values_at(1) == [b"1", b"2"]


def test_KD04_move_that_a_restart_interrupts_begins_anew(tmp_path: Path) -> None:
    broker = OnDisk(tmp_path, log_dirs=2)
    broker.put(b"1")
    move(broker, 1, 1)
    again = OnDisk(tmp_path, log_dirs=2).settle()
    again.advance(3 * FETCH_MS)
    assert places(again, TOPIC)[1] == ["node1/disk1/events-0"]
    assert again.values_at(1) == [b"1"]


def test_KD04_move_ends_with_its_disk_its_topic_and_by_another_move(tmp_path: Path) -> None:
    broker = OnDisk(tmp_path, log_dirs=3)
    broker.put(b"1")
    move(broker, 1, 1)
    move(broker, 1, 2)
    assert places(broker, TOPIC)[1] == ["node1/disk2/events-0", "node1/events-0"]
    broker.act(lambda state: state.fail_log_dir(1, 2))
    broker.advance(10 * FETCH_MS)
    assert places(broker, TOPIC)[1] == ["node1/events-0"]
    move(broker, 1, 1)
    move(broker, 1, 0)
    assert places(broker, TOPIC)[1] == ["node1/events-0"], "it stays where it is"
    move(broker, 1, 1)
    broker.act(lambda state: state.delete_topic(TOPIC))
    broker.advance(10 * FETCH_MS)
    assert places(broker, TOPIC) == [[], [], []]
    assert [each.replica_count for each in broker.state.cluster.nodes[1].log_dirs] == [0, 0, 0]


def test_KD04_move_waits_while_its_node_is_down(tmp_path: Path) -> None:
    broker = OnDisk(tmp_path, log_dirs=2)
    broker.put(b"1")
    move(broker, 1, 1)
    broker.kill(1)
    broker.advance(FETCH_BACKOFF_MS)
    assert places(broker, TOPIC)[1] == ["node1/disk1/events-0", "node1/events-0"]
    broker.start(1)
    broker.advance(FETCH_BACKOFF_MS + FETCH_MS)
    assert places(broker, TOPIC)[1] == ["node1/disk1/events-0"]


def test_KH10_high_watermark_is_the_one_of_the_checkpoint(tmp_path: Path) -> None:
    broker = OnDisk(tmp_path)
    broker.put(b"1")
    broker.settle()
    broker.hold()
    broker.send(b"2", acks=1)
    broker.advance(CHECKPOINT_MS)
    assert (tmp_path / "node1" / HIGH_WATERMARK_CHECKPOINT).read_text() == f"0\n1\n{TOPIC} 0 1\n"
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
    assert again.known.isr == (1,), "it led last, and none has ended cleanly"
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


def test_KD01_topic_named_node_has_folders_of_its_own(tmp_path: Path) -> None:
    broker = OnDisk(tmp_path)
    broker.act(lambda state: state.cluster.create_topic("node", 3))
    broker.put(b"1")
    assert places(broker, "node") == [
        ["node-0", "node-1", "node-2"],
        *([f"{folder}/node-{index}" for index in range(3)] for folder in FOLDERS[1:]),
    ]
    broker.act(lambda state: state.delete_topic("node"))
    again = broker.restarted()
    assert [again.values_at(node) for node in range(3)] == [[b"1"]] * 3


def test_KD01_folders_with_their_former_names_are_taken_up(tmp_path: Path) -> None:
    """Also one that a partition of a topic "node" had in common with a node."""
    broker = OnDisk(tmp_path, log_dirs=2)
    broker.act(lambda state: state.cluster.create_topic("node", 2))
    broker.put(b"1")
    broker.settle()
    broker.state.close()
    for folder in FOLDERS[1:]:
        former = tmp_path / folder.replace("node", "node-")
        former.mkdir(exist_ok=True)
        for each in (tmp_path / folder).iterdir():
            each.rename(former / each.name)
        (tmp_path / folder).rmdir()
    again = OnDisk(tmp_path, log_dirs=2)
    assert again.ends() == dict.fromkeys(range(3), (1, 1)), "with their checkpoints"
    assert again.known.isr == (0, 1, 2), "and the files of a clean end"
    assert places(again, "node")[:2] == [["disk1/node-0", "node-1"], ["node1/disk1/node-0", "node1/node-1"]]
    assert [*(tmp_path / "node-1").glob("*.log")], "a partition's files are no node's"
    assert not (tmp_path / "node-2").exists()


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
