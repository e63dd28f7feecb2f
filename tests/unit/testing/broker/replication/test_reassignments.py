"""Partitions that move to other nodes, and elections by request."""

from __future__ import annotations

from typing import Any

import pytest

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from kbatch.testing.broker.broker_error import BrokerError
from tests.support.broker_core import TOPIC
from tests.unit.testing.broker.replication.replicated import LEADER, Replicated


def moving(broker: Replicated, *nodes: int) -> None:
    """Reassign while followers stop, so that it does not end."""
    broker.hold()
    broker.reassign(*nodes)


def test_KB08_reassignment_ends_when_the_target_is_in_sync() -> None:
    broker = Replicated(nodes=5)
    broker.put(b"a")
    moving(broker, 3, 4)
    known = broker.known
    assert (known.replicas, known.adding, known.removing) == ((3, 4, 0, 1, 2), (3, 4), (0, 1, 2))
    assert (known.leader, known.leader_epoch) == (0, 0)
    broker.hold(False)
    known = broker.known
    assert (known.replicas, known.isr, known.leader, known.leader_epoch) == ((3, 4), (3, 4), 3, 1)
    assert sorted(broker.partition.copies) == [3, 4]
    assert broker.values_at(4) == [b"a"]


def test_replica_of_a_log_that_starts_inside_a_batch_gets_the_whole_batch() -> None:
    """Partition.appendRecordsToFollowerOrFutureReplica: DeleteRecords knows no batches."""
    broker = Replicated(nodes=4)
    broker.put(b"a", b"b", b"c")
    broker.act(lambda state: state.cluster.partition(TOPIC, 0).log.delete_records_before(2))
    broker.reassign(0, 1, 3)
    assert broker.values_at(3) == [b"a", b"b", b"c"]
    assert broker.log(3).log_start_offset == 2
    broker.put(b"d")
    assert broker.values_at(3) == [b"a", b"b", b"c", b"d"]


def test_KB09_other_target_replaces_the_first_and_cancel_goes_back() -> None:
    broker = Replicated(nodes=5)
    broker.reassign(1, 3)
    moving(broker, 2, 4)
    assert broker.known.replicas == (2, 4, 1, 3)
    broker.reassign(2, 3)
    known = broker.known
    assert (known.replicas, known.adding, known.removing) == ((2, 3, 1, 4), (2, 4), (1, 4))
    broker.reassign()
    known = broker.known
    assert (known.replicas, known.isr, known.is_reassigned) == ((3, 1), (1, 3), False)


def test_KB09_cancel_that_would_be_unclean_is_refused() -> None:
    broker = Replicated(nodes=4)
    broker.reassign(0, 3)
    moving(broker, 1, 2)
    broker.fetch_as(1, 0)
    for node in (2, 3, 0):
        broker.kill(node)
    assert (broker.partition.leader, broker.known.isr) == (1, (1,))
    with pytest.raises(BrokerError, match="would require an unclean leader election") as refused:
        broker.reassign()
    assert refused.value.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_KB09_fenced_target_waits() -> None:
    broker = Replicated(nodes=4)
    broker.kill(3)
    broker.reassign(0, 3)
    assert broker.known.adding == (3,)
    broker.start(3)
    assert (broker.known.replicas, broker.known.isr) == ((0, 3), (0, 3))


def test_KB10_removed_leader_names_the_new_one() -> None:
    broker = Replicated(nodes=4)
    waiting = broker.client(0).send(broker.follower_request(3, 0, max_wait_ms=500))
    broker.reassign(3, 1)
    refused = broker.put(b"a", node=0)
    assert (refused.error_code, refused.current_leader.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 3)
    assert broker.fetch(0).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert broker.latest(0)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert waiting.is_there


def test_other_order_of_the_same_replicas_is_done_at_once() -> None:
    broker = Replicated()
    broker.reassign(2, 1, 0)
    known = broker.known
    assert (known.replicas, known.leader, known.leader_epoch) == ((2, 1, 0), 0, 0)
    assert not known.is_reassigned


def test_more_and_fewer_replicas() -> None:
    broker = Replicated()
    broker.put(b"a")
    broker.reassign(0)
    assert broker.put(b"b").error_code == 0
    assert broker.ends() == {0: (2, 2)}
    broker.reassign(0, 2)
    assert broker.put(b"c").error_code == 0
    assert broker.known.isr == (0, 2)
    assert broker.values_at(2) == [b"a", b"b", b"c"]


def test_replicas_that_share_a_log_move_at_once() -> None:
    broker = Replicated(nodes=4, shares_logs=True)
    broker.put(b"a")
    broker.reassign(3)
    assert (broker.known.replicas, broker.known.leader, broker.values_at(3)) == ((3,), 3, [b"a"])
    assert broker.put(b"b").error_code == 0


# Requests


def reassigned(
    broker: Replicated, replicas: list[int] | None, topic: str = TOPIC, index: int = 0, **fields: Any
) -> Any:
    kind = messages.AlterPartitionReassignmentsRequest
    wanted = kind.ReassignablePartition(partition_index=index, replicas=replicas)
    named = kind.ReassignableTopic(name=topic, partitions=[wanted])
    answer = broker.client().ask(kind(topics=[named], **fields))
    assert (answer.error_code, answer.error_message) == (0, None)
    found = answer.responses[0].partitions[0]
    return found.error_code, found.error_message


def test_reassignments_by_request() -> None:
    broker = Replicated(nodes=4)
    start = "The manual partition assignment includes "
    refusals: list[tuple[Any, tuple[int, str | None]]] = [
        (reassigned(broker, [0, 9]), (39, start + "broker 9, but no such broker is registered.")),
        (reassigned(broker, []), (39, start + "an empty replica list.")),
        (reassigned(broker, [1, 1]), (39, start + "the broker 1 more than once.")),
        (reassigned(broker, [1], "nope"), (3, "Unable to find a topic named nope.")),
        (reassigned(broker, [1], index=9), (3, "Unable to find partition events:9.")),
        (reassigned(broker, None), (85, None)),
        (
            reassigned(broker, [0, 1], allow_replication_factor_change=False),
            (38, "The replication factor is changed from 3 to 2"),
        ),
        (reassigned(broker, [1, 0, 2]), (0, None)),
    ]
    for answer, expected in refusals:
        assert answer == expected


def under_way(broker: Replicated, topics: Any = None) -> Any:
    kind = messages.ListPartitionReassignmentsRequest
    answer = broker.client(1).ask(kind(topics=topics))
    return [
        (topic.name, each.partition_index, each.replicas, each.adding_replicas, each.removing_replicas)
        for topic in answer.topics
        for each in topic.partitions
    ]


def test_reassignments_under_way_are_listed() -> None:
    broker = Replicated(nodes=4)
    assert under_way(broker) == []
    broker.hold()
    assert reassigned(broker, [3, 0]) == (0, None)
    moved = [(TOPIC, 0, [3, 0, 1, 2], [3], [1, 2])]
    kind = messages.ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
    assert under_way(broker) == under_way(broker, [kind(name=TOPIC, partition_indexes=[0, 7])]) == moved
    assert under_way(broker, [kind(name="nope", partition_indexes=[0])]) == []
    assert reassigned(broker, None) == (0, None)
    assert under_way(broker) == []


def elected(broker: Replicated, election_type: int, *named: tuple[str, int], is_all: bool = False) -> Any:
    kind = messages.ElectLeadersRequest
    topics = [kind.TopicPartitions(topic=topic, partitions=[index]) for topic, index in named]
    answer = broker.client(1).ask(
        kind(election_type=election_type, topic_partitions=None if is_all else topics)
    )
    results = [
        (result.topic, each.partition_id, each.error_code, each.error_message)
        for result in answer.replica_election_results
        for each in result.partition_result
    ]
    return answer.error_code, results


def test_KE06_elections_by_request() -> None:
    broker = Replicated()
    not_needed = "Leader election not needed for topic partition."
    for election_type in (0, 1):
        assert elected(broker, election_type, (TOPIC, 0)) == (0, [(TOPIC, 0, 84, not_needed)])
    assert elected(broker, 0, (TOPIC, 7)) == (0, [(TOPIC, 7, 3, "No such partition as events-7")])
    assert elected(broker, 0, ("nope", 0)) == (0, [("nope", 0, 3, "No such topic as nope")])
    assert elected(broker, 5, (TOPIC, 0)) == (42, [(TOPIC, 0, 42, "Unknown election type 5")])
    assert elected(broker, 0) == elected(broker, 0, is_all=True) == (0, [])
    broker.move(1)
    assert elected(broker, 0, is_all=True) == (0, [(TOPIC, 0, 0, None)])
    assert broker.partition.leader == 0
    broker.kill(0)
    answer = elected(broker, 0, (TOPIC, 0))
    assert answer == (0, [(TOPIC, 0, 80, "The preferred leader was not available.")])


def test_KE05_unclean_election_where_the_topic_allows_it_in_any_case() -> None:
    """Kafka reads booleans in upper and lower case."""
    broker = Replicated(nodes=2)
    topic = broker.state.cluster.topics[TOPIC]
    allows = topic.config.of({"unclean.leader.election.enable": " True"})
    broker.act(lambda state: state.cluster.change_config(topic, allows))
    broker.stop(1)
    broker.put(b"a", acks=LEADER)
    broker.kill(0)
    broker.start(1)
    assert broker.partition.leader == 1


def test_KE05_unclean_election_by_request_ignores_the_config() -> None:
    broker = Replicated(nodes=2)
    broker.stop(1)
    broker.put(b"a", acks=LEADER)
    broker.kill(0)
    broker.start(1)
    assert elected(broker, 1, (TOPIC, 0)) == (0, [(TOPIC, 0, 0, None)])
    assert broker.partition.leader == 1
