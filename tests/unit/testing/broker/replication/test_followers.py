"""Followers: what leaders answer them, and how they cut their logs."""

from __future__ import annotations

import pytest

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from kbatch.testing.broker.replication.replica import FollowerFetch
from tests.support.broker_core import TOPIC, Answer, batch, fetch_request, fetched, produce_request
from tests.unit.testing.broker.replication.replicated import LEADER, Replicated


@pytest.fixture
def held() -> Replicated:
    """Node 0 leads three nodes, whose followers the test plays."""
    broker = Replicated()
    broker.hold()
    return broker


def test_KF01_follower_says_what_it_has() -> None:
    broker = Replicated(nodes=2)
    follower = broker.partition.copies[1]
    known = {"broker_epoch": 5, "partition_epoch": 0}
    empty = FollowerFetch(1, leader_epoch=0, offset=0, last_epoch=-1, log_start_offset=0, **known)
    assert follower.next_fetch(5) == empty
    broker.put(b"a", b"b")
    broker.move(1)
    broker.move(0)
    again = empty._replace(leader_epoch=2, partition_epoch=2)
    assert follower.next_fetch(5) == again._replace(offset=2, last_epoch=0)
    broker.put(b"c")
    assert follower.next_fetch(5) == again._replace(offset=3, last_epoch=2)


def test_KF02_node_without_a_replica_is_refused(held: Replicated) -> None:
    broker = Replicated(nodes=4)
    assert broker.fetch_as(3, 0).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    refused = broker.fetch_as(3, 0, leader_epoch=-1)
    assert (refused.error_code, refused.current_leader.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)


def test_KF03_earlier_start_of_a_broker_is_refused_and_not_noted(held: Replicated) -> None:
    held.put(b"a", acks=LEADER)
    held.stop(1)
    held.start(1)
    assert held.fetch_as(1, 1, broker_epoch=0).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert held.partition.copies[0].leadership.followers[1].end_offset == -1
    assert held.fetch_as(1, 1, broker_epoch=1).error_code == 0
    assert held.partition.copies[0].leadership.followers[1].end_offset == 1


def test_KF03_earlier_start_hears_where_logs_diverge() -> None:
    broker = Replicated()
    _in_terms(broker)
    broker.stop(1)
    broker.start(1)
    answer = broker.fetch_as(1, 5, 1, broker_epoch=0)
    assert (answer.error_code, answer.diverging_epoch.end_offset) == (0, 3)
    assert broker.fetch_as(1, 6, 2, broker_epoch=0).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_KH01_middle_of_a_batch_counts_as_its_beginning(held: Replicated) -> None:
    held.put(b"a", acks=LEADER)
    held.put(b"b", b"c", b"d", acks=LEADER)
    for offset, known in ((3, 1), (4, 4)):
        held.fetch_as(1, offset)
        assert held.partition.copies[0].leadership.followers[1].end_offset == known


def test_KF04_other_leader_epochs_are_refused(held: Replicated) -> None:
    held.fetch_as(1, 0)
    held.move(1)
    old = held.fetch_as(2, 0, leader_epoch=0)
    assert (old.error_code, old.current_leader.leader_epoch) == (ErrorCode.FENCED_LEADER_EPOCH, 1)
    assert held.fetch_as(2, 0, leader_epoch=2).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def _in_terms(broker: Replicated) -> None:
    """Write offsets 0-2 in epoch 0 and 3-5 in epoch 2 on node 0."""
    broker.put(b"a", b"b", b"c")
    broker.move(1)
    broker.move(0)
    broker.put(b"d", b"e", b"f")


def test_KF05_KF06_diverging_logs(held: Replicated) -> None:
    broker = Replicated()
    _in_terms(broker)
    broker.hold()
    assert broker.fetch_as(1, 3, 7).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    follower = broker.partition.copies[0].leadership.followers[1]
    for offset, last_epoch, told in ((5, 1, (0, 3)), (4, 0, (0, 3)), (9, 2, (2, 6))):
        answer = broker.fetch_as(1, offset, last_epoch)
        assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == told
        assert (answer.error_code, answer.records, follower.end_offset) == (0, b"", 6)
    assert broker.fetch_as(1, 3, 0).diverging_epoch.epoch == -1


def test_KF07_KF08_KF14_follower_cuts_what_the_new_leader_has_not() -> None:
    broker = Replicated(nodes=3, min_insync_replicas=1)
    broker.put(b"a")
    broker.hold()
    broker.put(b"b", b"c", acks=LEADER)
    broker.move(1)
    broker.hold(False)
    assert broker.values_at(0) == [b"a"]
    broker.put(b"d")
    assert [broker.values_at(node) for node in range(3)] == [[b"a", b"d"]] * 3
    assert broker.log(0).end_of_leader_epoch(0) == (0, 1)


def test_KF07_follower_that_does_not_know_the_epoch_cuts_twice() -> None:
    """It has records of epochs 0, 1 where the leader has some of 0, 2."""
    broker = Replicated(nodes=3)
    broker.put(b"a")
    broker.cut({0}, {1, 2, "controller"})
    broker.advance(9000)
    broker.move(2)
    broker.put(b"b", acks=LEADER, node=0)
    broker.put(b"c", node=2)
    broker.heal()
    assert [broker.values_at(node) for node in range(3)] == [[b"a", b"c"]] * 3
    assert broker.known.isr == (1, 2, 0)


def test_KF10_follower_starts_where_the_leader_does() -> None:
    broker = Replicated(nodes=2)
    broker.put(b"a")
    broker.stop(1)
    broker.put(b"b")
    broker.put(b"c")
    broker.act(lambda state: broker.log(0).delete_records_before(2))
    broker.log(1).truncate_to(0, broker.now_ms)
    broker.start(1)
    assert (broker.log(1).log_start_offset, broker.values_at(1)) == (2, [b"c"])
    assert broker.known.isr == (0, 1)


def test_KF12_KH03_parked_follower_is_answered_with_records_only(held: Replicated) -> None:
    held.put(b"a", acks=LEADER)
    request = held.follower_request(1, 1, 0, max_wait_ms=500)
    waiting = held.client().send(request)
    held.fetch_as(2, 1, 0)
    assert held.ends()[0] == (1, 1)
    assert not waiting.is_there
    held.put(b"b", acks=LEADER)
    assert len(fetched(waiting.message).records) > 0


def test_KF12_parked_fetches_end_when_the_leader_resigns() -> None:
    broker = Replicated()
    broker.put(b"a")
    broker.advance(500)
    broker.hold()
    follower = broker.client().send(broker.follower_request(1, 1, 0, max_wait_ms=500))
    waiting = [
        broker.client().send(fetch_request(broker, 1, leader_epoch=epoch, max_wait_ms=8000))
        for epoch in (0, -1)
    ]
    broker.hold(False)
    broker.move(1)
    for each in (follower, waiting[0]):
        answer = fetched(each.message)
        assert (answer.error_code, answer.current_leader.leader_id) == (ErrorCode.FENCED_LEADER_EPOCH, 1)
    assert not waiting[1].is_there, "it goes on as at a follower"
    broker.put(b"b")
    broker.put(b"c")
    assert len(fetched(waiting[1].message).records) > 0


def test_KF13_cut_rebuilds_the_producers() -> None:
    broker = Replicated(nodes=2)
    first = batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0)
    second = batch(b"b", producer_id=7, producer_epoch=0, base_sequence=1)
    broker.client().ask(produce_request(broker, first))
    broker.hold()
    broker.client().ask(produce_request(broker, second, acks=LEADER))
    assert [each.last_sequence for each in broker.log(0).describe_producers()] == [1]
    broker.move(1)
    broker.hold(False)
    assert [each.last_sequence for each in broker.log(0).describe_producers()] == [0]


def test_KF17_batches_of_a_later_epoch_are_left_for_later() -> None:
    broker = Replicated(nodes=2)
    broker.put(b"a")
    broker.move(1)
    broker.put(b"b")
    (view, later) = broker.log(1).read_as_follower(0, 1 << 20)
    log = broker.log(0)
    log.truncate_to(0, broker.now_ms)
    assert log.append_as_follower(view, broker.now_ms, last_epoch=0)
    assert not log.append_as_follower(later, broker.now_ms, last_epoch=0)
    assert log.log_end_offset == 1


def _delete(broker: Replicated, offset: int, timeout_ms: int = 1000) -> Answer:
    kind = messages.DeleteRecordsRequest
    partition = kind.DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = kind.DeleteRecordsTopic(name=TOPIC, partitions=[partition])
    return broker.client(broker.partition.leader).send(kind(topics=[topic], timeout_ms=timeout_ms))


def _deleted(answer: Answer) -> tuple[int, int]:
    (found,) = answer.message.topics[0].partitions
    return found.error_code, found.low_watermark


def test_KF15_records_are_deleted_when_all_replicas_have_done_so() -> None:
    broker = Replicated()
    broker.put(b"a", b"b", b"c")
    assert _deleted(_delete(broker, 2)) == (0, 2)
    assert [broker.log(node).log_start_offset for node in range(3)] == [2, 2, 2]


def test_KF15_replica_that_does_not_fetch_holds_deletion_up() -> None:
    broker = Replicated()
    broker.put(b"a", b"b", b"c")
    broker.hold()
    late, timed_out = _delete(broker, 2, timeout_ms=5000), _delete(broker, 1)
    assert not late.is_there
    broker.advance(1000)
    assert _deleted(timed_out) == (ErrorCode.REQUEST_TIMED_OUT, 0)
    assert broker.log(0).log_start_offset == 2, "the leader has deleted them already"
    broker.hold(False)
    assert _deleted(late) == (0, 2)


def test_KF15_dead_replicas_are_not_waited_for() -> None:
    broker = Replicated()
    broker.put(b"a", b"b", b"c")
    broker.kill(2)
    assert _deleted(_delete(broker, 2)) == (0, 2)
    broker.hold()
    waiting = _delete(broker, 3)
    broker.move(1)
    assert _deleted(waiting)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_follower_that_was_paused_fetches_before_it_hears_of_anything_else() -> None:
    broker = Replicated()
    broker.act(lambda state: state.outages.pause(2, broker.now_ms))
    broker.put(b"a", acks=LEADER)
    assert broker.values_at(2) == []
    broker.act(lambda state: state.outages.resume(2))
    assert broker.values_at(2) == [b"a"]
