"""What consumers read of leaders and followers."""

from __future__ import annotations

import pytest

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from tests.support.broker_core import ALL, TOPIC, batch, fetch_request, produce_request
from tests.unit.testing.broker.replication.replicated import LEADER, Replicated

RACKS = ("a", "b", "c")


def test_KR01_follower_answers_consumers_up_to_its_high_watermark() -> None:
    broker = Replicated()
    broker.put(b"a")
    assert broker.fetch(1).records == b""
    broker.advance(500)
    answer = broker.fetch(1)
    assert (answer.error_code, answer.high_watermark) == (0, 1)
    assert len(answer.records) > 0
    assert broker.fetch(1, version=10).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert broker.latest(1)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_KR02_offset_above_the_high_watermark_has_nothing() -> None:
    broker = Replicated()
    broker.hold()
    broker.put(b"a", b"b", acks=LEADER)
    answer = broker.fetch(offset=1)
    assert (answer.error_code, answer.records) == (0, b"")
    assert broker.fetch(offset=3).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_KR03_leader_names_the_replica_in_the_rack() -> None:
    broker = Replicated(racks=RACKS)
    broker.put(b"a")

    def named(rack: str, offset: int = 0) -> tuple[int, bool]:
        answer = broker.fetch(offset=offset, rack_id=rack, max_wait_ms=500)
        return answer.preferred_read_replica, len(answer.records) > 0

    assert named("b") == (1, False)
    assert named("c", offset=1) == (2, False), "at once, with nothing to read"
    for rack in ("", "a", "elsewhere"):
        assert named(rack) == (-1, True)
    broker.kill(1)
    assert named("b") == (-1, True)


def test_KR03_replica_that_has_not_fetched_in_this_term_is_not_named() -> None:
    broker = Replicated(racks=RACKS)
    broker.put(b"a")
    broker.advance(500)
    broker.hold()
    broker.move(1)
    assert broker.fetch(1, rack_id="c").preferred_read_replica == -1
    broker.hold(False)
    assert broker.fetch(1, rack_id="c").preferred_read_replica == 2


def test_KR03_replica_is_named_in_a_session_each_time() -> None:
    """Though nothing else has changed."""
    broker = Replicated(racks=RACKS)
    broker.put(b"a")
    session_id = 0
    for epoch in range(3):
        request = fetch_request(broker, rack_id="b", session_id=session_id, session_epoch=epoch)
        answer = broker.client(0).ask(request)
        session_id = answer.session_id
        (topic,) = answer.responses
        assert [part.preferred_read_replica for part in topic.partitions] == [1]


def test_KR03_replica_whose_log_begins_later_is_not_named() -> None:
    broker = Replicated(racks=RACKS)
    broker.put(b"a")
    broker.put(b"b")
    broker.advance(500)
    follower = broker.partition.copies[0].leadership.followers[1]
    follower.log_start_offset = 1
    assert broker.fetch(offset=0, rack_id="b").preferred_read_replica == -1
    assert broker.fetch(offset=1, rack_id="b").preferred_read_replica == 1


@pytest.mark.parametrize(
    ("version", "code"), [(4, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.OFFSET_NOT_AVAILABLE)]
)
def test_KR04_end_is_not_named_before_the_term_is_replicated(version: int, code: ErrorCode) -> None:
    broker = Replicated()
    broker.put(b"a")
    broker.hold()
    broker.move(1)
    assert broker.latest(version=version)[0] == code
    broker.hold(False)
    assert broker.latest(version=version) == (0, 1)


def test_KR04_empty_log_answers_at_once() -> None:
    broker = Replicated()
    broker.hold()
    broker.move(1)
    assert broker.latest() == (0, 0)


def test_KR05_epochs_end_where_the_next_begins() -> None:
    broker = Replicated()
    broker.put(b"a")
    broker.move(1)
    broker.put(b"b")
    assert [broker.log(1).end_of_leader_epoch(epoch) for epoch in (0, 1, 2)] == [(0, 1), (1, 2), (-1, -1)]


def test_KP07_reader_of_a_node_that_is_cut_off_gets_the_old_answer() -> None:
    broker = Replicated()
    broker.put(b"a")
    broker.cut({0}, {1, 2, "controller"})
    broker.advance(9000)
    waiting = broker.client(0).send(fetch_request(broker, 1, leader_epoch=0, max_wait_ms=60_000))
    broker.put(b"b", node=1)
    assert not waiting.is_there
    assert broker.fetch(1, 1).high_watermark == 2


def test_KR07_all_replicas_describe_producers() -> None:
    broker = Replicated(nodes=4)
    broker.client().ask(
        produce_request(broker, batch(b"a", producer_id=7, producer_epoch=1, base_sequence=0), acks=ALL)
    )
    kind = messages.DescribeProducersRequest
    asked = kind(topics=[kind.TopicRequest(name=TOPIC, partition_indexes=[0])])
    answers = [broker.client(node).ask(asked).topics[0].partitions[0] for node in range(4)]
    assert [each.error_code for each in answers] == [0, 0, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER]
    known = [[(each.producer_id, each.last_sequence) for each in one.active_producers] for one in answers]
    assert known == [[(7, 0)]] * 3 + [[]]


def test_answers_name_the_racks_of_nodes() -> None:
    broker = Replicated(racks=RACKS)
    for request in (messages.MetadataRequest(topics=[]), messages.DescribeClusterRequest()):
        assert [each.rack for each in broker.client(0).ask(request).brokers] == [*RACKS]
    refused = broker.client(1).ask(produce_request(broker, batch(b"a")))
    assert [each.rack for each in refused.node_endpoints] == ["a"]
