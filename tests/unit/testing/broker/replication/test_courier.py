"""Messages that take time: fetches, proposals and registrations on their way, and what may cross them."""

from __future__ import annotations

from collections.abc import Hashable

import pytest

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from kbatch.testing.broker.replication.replica import FETCH_BACKOFF_MS, NEVER_MS
from tests.support.broker_core import TOPIC
from tests.unit.testing.broker.replication.replicated import LEADER, Replicated

LATENCY_MS = 10
TIME_ENOUGH_MS = 100


@pytest.fixture
def slow() -> Replicated:
    """Three nodes, whose messages to each other and the controller take 10 ms."""
    broker = Replicated()
    broker.put(b"a")
    broker.state.take_time(lambda source, target: LATENCY_MS)
    return broker


def test_KF16_record_is_replicated_after_two_fetches_and_acknowledged_then(slow: Replicated) -> None:
    answer = slow.send(b"b")
    assert _log_ends(slow) == [2, 1, 1]
    slow.advance(2 * LATENCY_MS)
    assert (_log_ends(slow), slow.log(0).high_watermark) == ([2, 2, 2], 1)
    assert not answer.is_there
    slow.advance(LATENCY_MS)
    assert slow.log(0).high_watermark == 2
    assert answer.is_there


def _log_ends(broker: Replicated) -> list[int]:
    return [broker.log(node).log_end_offset for node in range(3)]


def test_KF09_answer_of_an_earlier_term_is_dropped(slow: Replicated) -> None:
    slow.put(b"b", acks=LEADER)
    slow.advance(LATENCY_MS)  # the fetches have arrived, their answers are on the way
    slow.state.take_time(lambda source, target: 0 if source == "controller" else LATENCY_MS)
    slow.move(1)
    slow.advance(1)
    slow.put(b"c", acks=LEADER, node=1)
    slow.advance(TIME_ENOUGH_MS)
    assert [slow.values_at(node) for node in range(3)] == [[b"a", b"c"]] * 3


def test_KF11_follower_that_is_refused_waits_before_it_asks_again(slow: Replicated) -> None:
    """Node 2 hears that node 1 leads before that one does, and asks it in vain."""
    latency_ms: dict[Hashable, int] = {0: 1, 1: 100, 2: 1}
    slow.state.take_time(lambda source, target: latency_ms[target] if source == "controller" else 1)
    slow.move(1)
    slow.advance(100)
    assert slow.partition.is_led_by(1)
    slow.put(b"b", acks=LEADER, node=1)
    slow.advance(FETCH_BACKOFF_MS - 100)
    assert _log_ends(slow) == [1, 2, 1]
    slow.advance(5)
    assert _log_ends(slow) == [2, 2, 2]


def test_KF11_follower_of_a_term_that_is_over_waits_to_hear_of_the_next() -> None:
    broker = Replicated()
    broker.cut({2}, {"controller"})
    broker.move(1)
    broker.move(0)
    broker.put(b"a", acks=LEADER)
    broker.advance(10 * FETCH_BACKOFF_MS)
    assert _log_ends(broker) == [1, 1, 0]
    assert broker.partition.copies[2].fetches_from_ms == NEVER_MS
    broker.heal()
    assert _log_ends(broker) == [1, 1, 1]


def test_KF11_next_term_ends_the_wait() -> None:
    broker = Replicated()
    broker.cut({1}, {"controller"})
    broker.move(1)  # which does not hear of it
    assert broker.partition.copies[2].fetches_from_ms == broker.now_ms + FETCH_BACKOFF_MS
    broker.move(2)
    broker.put(b"b", acks=LEADER, node=2)
    assert broker.values_at(0) == [b"b"]


def test_KF11_restart_ends_the_wait() -> None:
    broker = Replicated()
    broker.cut({1}, {"controller"})
    broker.move(1)
    broker.stop(2)
    broker.act(lambda state: state.outages.heal(broker.now_ms))
    broker.put(b"a", acks=LEADER, node=1)
    broker.start(2)
    assert broker.values_at(2) == [b"a"]


def test_nodes_hear_of_a_leader_one_after_the_other(slow: Replicated) -> None:
    latency_ms: dict[Hashable, int] = {0: 20, 1: 10, 2: 30}
    slow.state.take_time(lambda source, target: latency_ms[target] if source == "controller" else 1)
    slow.move(1)
    leaders = []
    for _ in range(4):
        leaders.append([slow.partition.known_by(node).leader for node in range(3)])
        slow.advance(10)
    assert leaders == [[0, 0, 0], [0, 1, 0], [1, 1, 0], [1, 1, 1]]


def test_KI03_replica_about_to_be_in_sync_holds_the_high_watermark(slow: Replicated) -> None:
    """The controller knows that node 2 is in sync, and the leader has not heard so (KIP-497)."""
    slow.kill(2)
    slow.advance(TIME_ENOUGH_MS)
    slow.state.take_time(lambda source, target: 1000 if source == "controller" else 1)
    slow.start(2)
    slow.advance(TIME_ENOUGH_MS)
    assert set(slow.known.isr) == {0, 1, 2}
    assert set(slow.partition.copies[0].registration.isr) == {0, 1}
    slow.state.outages.pause(2, slow.now_ms)
    slow.put(b"b", acks=LEADER, node=0)
    slow.advance(TIME_ENOUGH_MS)
    assert slow.ends()[0] == (2, 1)


def test_KI04_node_that_has_restarted_since_it_fetched_is_not_in_sync(slow: Replicated) -> None:
    """Between its fetch and the controller's decision it may have lost its log (KIP-903)."""
    slow.kill(2)
    slow.advance(TIME_ENOUGH_MS)
    slow.state.take_time(lambda source, target: 500 if target == "controller" else 1)
    slow.start(2)
    slow.advance(TIME_ENOUGH_MS)
    assert slow.partition.copies[0].leadership.proposed == (0, 1, 2)
    slow.kill(2, lose=True)
    slow.start(2)
    slow.hold()
    slow.advance(500)
    assert set(slow.known.isr) == {0, 1}
    slow.hold(False)
    slow.advance(2000)
    assert set(slow.known.isr) == {0, 1, 2}


def test_lost_proposal_is_made_again(slow: Replicated) -> None:
    slow.kill(2)
    slow.advance(TIME_ENOUGH_MS)
    slow.start(2)
    slow.advance(LATENCY_MS)  # its fetch has arrived, and the leader has asked the controller
    slow.cut({0}, {"controller"})
    slow.advance(2 * LATENCY_MS)
    assert set(slow.known.isr) == {0, 1}
    slow.heal()
    slow.advance(TIME_ENOUGH_MS)
    assert set(slow.known.isr) == {0, 1, 2}


def test_KH03_follower_that_diverges_is_cut_before_it_hears_of_a_high_watermark(slow: Replicated) -> None:
    slow.cut({0}, {1, 2, "controller"})
    slow.put(b"only here", acks=LEADER)
    slow.advance(10_000)
    leader = slow.partition.leader
    assert leader != 0
    slow.put(b"b", acks=LEADER, node=leader)
    slow.advance(TIME_ENOUGH_MS)
    assert slow.log(leader).high_watermark == 2
    slow.state.take_time(lambda source, target: 2000 if source == 0 else 1)  # its fetch is late
    slow.heal()
    slow.advance(1000)
    assert slow.ends()[0] == (2, 1)
    slow.advance(5000)
    assert slow.values_at(0) == [b"a", b"b"]
    assert slow.ends()[0] == (2, 2)


def test_KB08_node_that_hears_late_of_its_removal_has_a_replica_when_it_is_back(slow: Replicated) -> None:
    slow.state.take_time(lambda source, target: 500 if (source, target) == ("controller", 2) else 1)
    slow.reassign(0, 1)
    slow.reassign(0, 1, 2)
    slow.advance(2000)
    assert set(slow.known.isr) == {0, 1, 2}
    assert slow.values_at(2) == [b"a"]


@pytest.mark.parametrize("version", [9, 13])
def test_node_does_not_know_a_topic_that_it_has_not_heard_of(slow: Replicated, version: int) -> None:
    """Leader epochs begin with 0: a node that tells of the topic names its leader."""
    slow.act(lambda state: state.cluster.create_topic("new", 2))
    kind = messages.MetadataRequest
    request = kind(topics=[kind.MetadataRequestTopic(name="new")], allow_auto_topic_creation=False)
    (unknown,) = slow.client(1).ask(request, version).topics
    assert (unknown.error_code, unknown.partitions) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
    assert "new" not in {each.name for each in slow.client(1).ask(kind(topics=None), version).topics}
    (unknown,) = slow.client(1).ask(_describe_topic("new")).topics
    assert (unknown.error_code, unknown.partitions) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
    slow.advance(LATENCY_MS)
    (known,) = slow.client(1).ask(request, version).topics
    assert [(each.leader_id, each.leader_epoch) for each in known.partitions] == [(0, 0), (1, 0)]
    assert len(slow.client(1).ask(_describe_topic("new")).topics[0].partitions) == 2


def _describe_topic(name: str) -> messages.DescribeTopicPartitionsRequest:
    kind = messages.DescribeTopicPartitionsRequest
    return kind(topics=[kind.TopicRequest(name=name)])


def test_partitions_that_were_added_are_not_told_of_before_a_node_has_heard(slow: Replicated) -> None:
    slow.act(lambda state: state.cluster.create_partitions(TOPIC, 3))
    request = messages.MetadataRequest(topics=[messages.MetadataRequest.MetadataRequestTopic(name=TOPIC)])
    counts = []
    for _ in range(2):
        counts.append([len(slow.client(node).ask(request).topics[0].partitions) for node in range(3)])
        slow.advance(LATENCY_MS)
    assert counts == [[1, 1, 1], [3, 3, 3]]
