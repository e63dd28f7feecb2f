"""The high watermark, and what producers and readers see of it."""

from __future__ import annotations

import random

import pytest

from kbatch.errors import ErrorCode
from kbatch.testing.broker.broker_state import CHECK_INTERVAL_MS
from kbatch.testing.broker.replication.replication import FETCH_WAIT_MS
from tests.support.broker_core import TOPIC, batch, produce_request, produced
from tests.unit.testing.broker.replication.replicated import ALL, LEADER, Replicated


def test_KA07_replicas_are_at_rest_when_a_request_is_answered() -> None:
    broker = Replicated()
    assert broker.put(b"a").error_code == 0
    assert broker.ends()[0] == (1, 1)
    assert {end for end, _ in broker.ends().values()} == {1}
    assert broker.known.isr == (0, 1, 2)


def test_KA07_idle_cluster_acts_at_periodic_checks_only() -> None:
    broker = Replicated()
    broker.put(b"a")
    broker.advance(FETCH_WAIT_MS)
    for _ in range(3):
        deadline_ms = broker.core.next_deadline_ms()
        assert deadline_ms is not None
        assert deadline_ms >= broker.now_ms + CHECK_INTERVAL_MS - FETCH_WAIT_MS
        broker.advance(deadline_ms - broker.now_ms)


def test_KH01_KI02_high_watermark_is_the_least_of_the_in_sync_replicas() -> None:
    broker = Replicated()
    broker.hold()
    for value in (b"a", b"b", b"c"):
        broker.put(value, acks=LEADER)
    assert broker.ends()[0] == (3, 0)
    broker.fetch_as(1, 3)
    assert broker.ends()[0] == (3, 0), "node 2 has not fetched in this term"
    broker.fetch_as(2, 2)
    assert broker.ends()[0] == (3, 2)


def test_KH01_replica_that_is_proposed_counts_before_it_has_joined() -> None:
    broker = Replicated(nodes=2, session_timeout_ms=100_000)
    broker.stop(1)
    broker.put(b"a")
    broker.hold()
    broker.start(1)
    broker.cut({0}, {"controller"})
    broker.advance(30_001)
    broker.put(b"b", acks=LEADER)
    assert broker.ends()[0] == (2, 2), "node 1 has not caught up for too long to be waited for"
    broker.fetch_as(1, 2)
    assert broker.partition.copies[0].leadership.maximal_isr == {0, 1}
    assert broker.known.isr == (0,)
    broker.put(b"c", acks=LEADER)
    assert broker.ends()[0] == (3, 2)


def test_KH02_answer_to_a_follower_has_the_high_watermark_of_before() -> None:
    broker = Replicated(nodes=2)
    broker.hold()
    broker.put(b"a", acks=LEADER)
    assert broker.fetch_as(1, 0).high_watermark == 0
    assert broker.fetch_as(1, 1).high_watermark == 0
    assert broker.fetch_as(1, 1).high_watermark == 1


def test_KH03_follower_learns_the_high_watermark_with_records_or_in_time() -> None:
    broker = Replicated(nodes=2)
    broker.put(b"a")
    assert broker.ends()[1] == (1, 0)
    broker.advance(499)
    assert broker.ends()[1] == (1, 0)
    broker.advance(1)
    assert broker.ends()[1] == (1, 1)
    broker.put(b"b")
    broker.put(b"c")
    assert broker.ends()[1] == (3, 2)


def test_KH04_follower_has_at_most_its_own_end() -> None:
    broker = Replicated(nodes=2)
    broker.put(b"a", b"b", b"c")
    broker.put(b"d")
    broker.stop(1)
    broker.put(b"e")
    broker.log(1).truncate_to(0, broker.now_ms)
    broker.start(1)
    assert broker.ends()[1][0] == 5
    assert broker.ends()[1][1] <= 5


def test_KH05_KP01_high_watermark_stands_below_the_minimum() -> None:
    broker = Replicated(min_insync_replicas=2)
    broker.put(b"a")
    broker.stop(1)
    broker.stop(2)
    refused = broker.put(b"b")
    assert (refused.error_code, refused.base_offset) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
    taken = broker.put(b"b", acks=LEADER)
    assert (taken.error_code, taken.base_offset) == (0, 1)
    assert broker.ends()[0] == (2, 1)
    assert broker.latest() == (0, 1)
    assert broker.fetch(offset=1).records == b""
    broker.start(1)
    assert broker.latest() == (0, 2)


def test_KH06_duplicate_waits_as_the_first_did() -> None:
    broker = Replicated(nodes=2)
    data = batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0)
    broker.hold()
    waiting = [broker.client().send(produce_request(broker, data)) for _ in range(2)]
    assert not any(each.is_there for each in waiting)
    broker.advance(1000)
    codes = [(produced(each.message).error_code, produced(each.message).base_offset) for each in waiting]
    assert codes == [(ErrorCode.REQUEST_TIMED_OUT, 0)] * 2
    broker.hold(False)
    answer = produced(broker.client().ask(produce_request(broker, data)))
    assert (answer.error_code, answer.base_offset) == (0, 0)


def test_KH07_KH08_new_leader_begins_with_the_high_watermark_that_it_had() -> None:
    broker = Replicated(nodes=2)
    broker.put(b"a", b"b")
    broker.put(b"c")
    broker.kill(0)
    assert broker.ends()[1] == (3, 3), "alone in sync it raises its own"
    broker = Replicated(nodes=3, min_insync_replicas=2)
    broker.put(b"a", b"b")
    broker.hold()
    broker.kill(0)
    assert (broker.partition.leader, broker.ends()[1]) == (1, (2, 0))


def test_KH11_lower_minimum_shows_nothing_until_the_next_append() -> None:
    broker = Replicated(nodes=2, min_insync_replicas=2)
    broker.stop(1)
    broker.put(b"a", acks=LEADER)
    topic = broker.state.cluster.topics[TOPIC]
    broker.act(
        lambda state: state.cluster.change_config(topic, topic.config.of({"min.insync.replicas": "1"}))
    )
    assert broker.latest() == (0, 0)
    assert broker.put(b"b").error_code == 0
    assert broker.latest() == (0, 2)


def test_KP02_KP03_unreplicated_batch_times_out_with_its_offset() -> None:
    broker = Replicated(min_insync_replicas=2)
    broker.hold()
    waiting = broker.send(b"a")
    broker.kill(1)
    broker.kill(2)
    broker.advance(999)
    assert not waiting.is_there
    broker.advance(1)
    answer = produced(waiting.message)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, 0)


def test_KP06_KP07_zombie_answers_until_it_learns() -> None:
    broker = Replicated(session_timeout_ms=3000)
    broker.put(b"a")
    broker.cut({0}, {1, 2, "controller"})
    broker.advance(3000)
    assert broker.partition.leader == 1
    taken = broker.put(b"zombie", acks=LEADER, node=0)
    assert (taken.error_code, taken.base_offset) == (0, 1)
    waiting = broker.send(b"unreplicated", node=0, timeout_ms=60_000)
    assert broker.fetch(0, 1, leader_epoch=0).high_watermark == 1
    broker.put(b"b", node=1)
    broker.heal()
    refused = produced(waiting.message)
    assert (refused.error_code, refused.base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)
    assert (refused.current_leader.leader_id, refused.current_leader.leader_epoch) == (1, 1)
    assert broker.put(b"c", node=0).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [broker.values_at(node) for node in range(3)] == [[b"a", b"b"]] * 3


def test_KP10_minimum_counts_as_it_is_now() -> None:
    broker = Replicated(nodes=2, min_insync_replicas=2)
    broker.stop(1)
    assert broker.put(b"a").error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    topic = broker.state.cluster.topics[TOPIC]
    broker.act(
        lambda state: state.cluster.change_config(topic, topic.config.of({"min.insync.replicas": "1"}))
    )
    assert broker.put(b"a").error_code == 0


def _proposing(min_isr: int) -> Replicated:
    """Return a broker whose leader has proposed node 1 as in sync, and hears no answer."""
    broker = Replicated(nodes=2, replica_lag_ms=1_000, session_timeout_ms=100_000)
    broker.kill(1)
    _need(broker, min_isr)
    broker.cut({0}, {"controller"})
    broker.start(1)
    leadership = broker.partition.copies[0].leadership
    assert (broker.known.isr, leadership.proposed) == ((0,), (0, 1))
    return broker


def _need(broker: Replicated, min_isr: int) -> None:
    """Set min.insync.replicas of the topic."""
    topic = broker.state.cluster.topics[TOPIC]
    config = topic.config.of({"min.insync.replicas": str(min_isr)})
    broker.act(lambda state: state.cluster.change_config(topic, config))


def test_KP05_registered_replicas_count_before_the_append_and_proposed_ones_after_it() -> None:
    assert _proposing(min_isr=2).put(b"a").error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    broker = _proposing(min_isr=1)
    broker.hold()
    waiting = broker.send(b"b", timeout_ms=60_000)
    broker.advance(5_000)
    broker.put(b"c", acks=LEADER)
    assert not waiting.is_there, "node 1 may be in sync already, however long it lags"
    broker.hold(False)
    assert produced(waiting.message).error_code == 0


def test_leaders_hear_of_another_minimum_as_of_registrations() -> None:
    broker = Replicated(nodes=2, session_timeout_ms=100_000)
    broker.cut({0}, {"controller"})
    _need(broker, 2)
    broker.kill(1)
    broker.heal()
    broker.cut({0}, {"controller"})
    _need(broker, 1)
    assert broker.put(b"a").error_code == ErrorCode.NOT_ENOUGH_REPLICAS, "it has not heard"
    broker.heal()
    assert broker.put(b"b").error_code == 0


def test_KP09_batches_have_the_epoch_of_the_leader_that_appended_them() -> None:
    broker = Replicated()
    broker.put(b"a")
    broker.move(1)
    broker.put(b"b")
    for node in range(3):
        assert [each.partition_leader_epoch for each in broker.log(node).batches()] == [0, 1]


@pytest.mark.parametrize("seed", range(10))
def test_KH09_KR06_offsets_are_in_order_and_what_was_read_stays(seed: int) -> None:
    rng, broker = random.Random(seed), Replicated(session_timeout_ms=3_000)
    read: list[bytes] = []
    for number in range(60):
        step, node = rng.randrange(6), rng.randrange(3)
        running = [each.node_id for each in broker.state.cluster.running_nodes]
        if step == 0 and len(running) > 1:
            broker.kill(node, at_once=rng.random() < 0.5)
        elif step == 1:
            broker.start(node)
        elif step == 2 and node in broker.known.isr and node in running:
            broker.move(node)
        elif step == 3:
            broker.hold(rng.random() < 0.5)
        elif step == 4:
            broker.advance(rng.choice((100, 3_000)))
        elif broker.known.leader in running:
            broker.send(b"%d" % number, acks=rng.choice((LEADER, ALL)))
        for copy in broker.partition.copies.values():
            log = copy.log
            offsets = [log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset]
            assert offsets == sorted(offsets)
            seen = broker.values_at(copy.node_id)[: log.high_watermark]
            assert seen == read[: len(seen)] or read == seen[: len(read)]
            read = max(read, seen, key=len)
    assert read
