"""Fetch, ListOffsets and OffsetForLeaderEpoch; refusals as those of Kafka 4.3.1."""

from __future__ import annotations

from typing import Any

import pytest

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from tests.support.broker_core import (
    LEADER,
    START_MS,
    TOPIC,
    VirtualBroker,
    batch,
    fetch_request,
    fetched,
    fetched_values,
    produce_request,
)


def test_fetch_answers_at_once_where_there_is_enough(broker: VirtualBroker) -> None:
    client = broker.client()
    client.ask(produce_request(broker, batch(b"a", b"b")))
    answer = client.ask(fetch_request(broker, 1, max_wait_ms=500))
    assert fetched_values(answer) == [b"a", b"b"], "whole batches, and the client drops what it has"
    assert (fetched(answer).high_watermark, fetched(answer).last_stable_offset) == (2, 2)
    assert client.ask(fetch_request(broker, 2)).responses[0].topic_id == broker.topic_id()


def test_fetch_waits_for_min_bytes_or_max_wait(broker: VirtualBroker) -> None:
    size = len(batch(b"value"))
    waiting = broker.client().send(fetch_request(broker, max_wait_ms=500, min_bytes=2 * size))
    writer = broker.client()
    writer.ask(produce_request(broker))
    assert not waiting.is_there
    writer.ask(produce_request(broker))
    assert fetched_values(waiting.message) == [b"value"] * 2
    late = broker.client().send(fetch_request(broker, max_wait_ms=500, min_bytes=3 * size))
    broker.advance(499)
    assert not late.is_there
    broker.advance(1)
    assert fetched_values(late.message) == [b"value"] * 2


@pytest.mark.parametrize("max_wait_ms", [0, -1])
def test_fetch_that_does_not_wait(broker: VirtualBroker, max_wait_ms: int) -> None:
    assert fetched_values(broker.client().ask(fetch_request(broker, max_wait_ms=max_wait_ms))) == []


def test_fetch_of_several_partitions_is_woken_by_any(broker: VirtualBroker) -> None:
    broker.state.cluster.create_topic("other", 1)
    size = len(batch(b"value"))

    def request(max_bytes: int, max_wait_ms: int) -> Any:
        request = fetch_request(broker, max_bytes=max_bytes, max_wait_ms=max_wait_ms)
        request.topics += fetch_request(broker, topic="other").topics
        return request

    def sizes(answer: Any) -> list[int]:
        return [len(topic.partitions[0].records or b"") for topic in answer.responses]

    waiting = broker.client().send(request(1 << 20, 500))
    broker.client().ask(produce_request(broker, topic="other"))
    assert sizes(waiting.message) == [0, size]
    broker.client().ask(produce_request(broker))
    assert sizes(broker.client().ask(request(2 * size, 0))) == [size, size]
    assert sizes(broker.client().ask(request(2 * size - 1, 0))) == [size, 0]
    assert sizes(broker.client().ask(request(1, 0))) == [size, 0], "the first batch comes in any case"


@pytest.mark.parametrize(("version", "hints"), [(15, []), (16, [1])])
def test_KF12_fetch_is_woken_by_a_leader_that_moves_away(version: int, hints: list[int]) -> None:
    broker = VirtualBroker(nodes=2)
    waiting = broker.client(0).send(fetch_request(broker, max_wait_ms=500, leader_epoch=0), version)
    broker.act(lambda state: state.move_leader(TOPIC, 0, 1))
    assert fetched(waiting.message).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert [node.node_id for node in waiting.message.node_endpoints] == hints


@pytest.mark.parametrize(("version", "code"), [(12, 3), (13, 100)])
def test_fetch_is_woken_by_the_end_of_its_topic(broker: VirtualBroker, version: int, code: int) -> None:
    waiting = broker.client().send(fetch_request(broker, max_wait_ms=500), version)
    broker.act(lambda state: state.delete_topic(TOPIC))
    assert fetched(waiting.message).error_code == code


def test_fetch_does_not_see_what_is_not_replicated(broker: VirtualBroker) -> None:
    broker.hold()
    waiting = broker.client().send(fetch_request(broker, max_wait_ms=500))
    broker.client().send(produce_request(broker))
    assert not waiting.is_there
    broker.hold(False)
    assert fetched_values(waiting.message) == [b"value"]


@pytest.mark.parametrize(
    ("changed", "codes"),
    [
        ({"topic": "missing"}, {12: 3, 13: 100}),
        ({"index": 1}, {4: 3, 18: 3}),
        ({"index": -1}, {18: 3}),
        ({"offset": 1}, {18: 1}),
        ({"offset": -1}, {18: 1}),
        ({"leader_epoch": 5}, {18: ErrorCode.UNKNOWN_LEADER_EPOCH}),
        ({"leader_epoch": 0}, {18: ErrorCode.FENCED_LEADER_EPOCH}),
        ({"leader_epoch": 2}, {18: 0}),
    ],
    ids=str,
)
def test_fetch_errors_come_at_once(changed: dict[str, Any], codes: dict[int, int]) -> None:
    broker = VirtualBroker(nodes=2)
    for node_id in (1, 0):
        broker.act(lambda state, node_id=node_id: state.move_leader(TOPIC, 0, node_id))  # type: ignore[misc]
    for version, code in codes.items():
        answer = broker.client(0).send(fetch_request(broker, max_wait_ms=500, **changed), version)
        broker.advance(0 if code else 500)
        assert fetched(answer.message).error_code == code
        assert len(answer.message.node_endpoints) == (code == ErrorCode.FENCED_LEADER_EPOCH)


@pytest.mark.parametrize("version", [11, 17])
def test_aborted_transactions_are_null_where_a_partition_refuses(version: int) -> None:
    broker = VirtualBroker(nodes=4)  # the last one has no replica

    def aborted(node_id: int = 0, **parameters: Any) -> tuple[int, Any]:
        answer = broker.client(node_id).ask(fetch_request(broker, committed=True, **parameters), version)
        return fetched(answer).error_code, fetched(answer).aborted_transactions

    assert aborted() == (0, [])
    assert aborted(offset=1) == (ErrorCode.OFFSET_OUT_OF_RANGE, None)
    assert aborted(leader_epoch=1) == (ErrorCode.UNKNOWN_LEADER_EPOCH, None)
    assert aborted(node_id=3) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
    assert aborted(index=1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])


@pytest.fixture
def two_epochs() -> VirtualBroker:
    """Make a broker whose offsets 0 to 2 are of leader epoch 0, 3 and 4 of epoch 2."""
    broker = VirtualBroker(nodes=2)
    broker.client(0).ask(produce_request(broker, batch(b"a", b"b", b"c"), acks=LEADER))
    broker.act(lambda state: state.move_leader(TOPIC, 0, 1))
    broker.act(lambda state: state.move_leader(TOPIC, 0, 0))
    broker.client(0).ask(produce_request(broker, batch(b"d", b"e"), acks=LEADER))
    return broker


@pytest.mark.parametrize(
    ("offset", "last_fetched_epoch", "diverging_epoch"),
    [
        (3, -1, (-1, -1)),
        (3, 0, (-1, -1)),
        (4, 2, (-1, -1)),
        (4, 0, (0, 3)),
        (2, 1, (0, 3)),
    ],
)
def test_fetch_reports_where_the_logs_diverge(
    two_epochs: VirtualBroker, offset: int, last_fetched_epoch: int, diverging_epoch: tuple[int, int]
) -> None:
    """KIP-595; the answer comes at once."""
    request = fetch_request(two_epochs, offset, max_wait_ms=500)
    request.topics[0].partitions[0].last_fetched_epoch = last_fetched_epoch
    found = fetched(two_epochs.client().ask(request))
    assert (found.diverging_epoch.epoch, found.diverging_epoch.end_offset) == diverging_epoch
    assert (found.error_code, found.high_watermark, found.last_stable_offset) == (0, 5, 5)
    assert bool(found.records) == (diverging_epoch == (-1, -1))


@pytest.mark.parametrize(("offset", "last_fetched_epoch"), [(3, 3), (0, 0), (0, 1)])
def test_fetch_of_future_epoch_or_before_the_log_is_out_of_range(
    two_epochs: VirtualBroker, offset: int, last_fetched_epoch: int
) -> None:
    two_epochs.state.cluster.partition(TOPIC, 0).log.delete_records_before(1)
    request = fetch_request(two_epochs, offset)
    request.topics[0].partitions[0].last_fetched_epoch = last_fetched_epoch
    assert fetched(two_epochs.client().ask(request)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


# Offsets


def list_offset(broker: VirtualBroker, timestamp: int, committed: bool = False, **changed: Any) -> Any:
    kind = messages.ListOffsetsRequest
    wanted = kind.ListOffsetsPartition(timestamp=timestamp, **changed)
    topic = kind.ListOffsetsTopic(name=TOPIC, partitions=[wanted])
    request = kind(replica_id=-1, isolation_level=int(committed), topics=[topic])
    return broker.client().ask(request).topics[0].partitions[0]


def test_list_offsets(broker: VirtualBroker) -> None:
    for timestamp_ms in (START_MS, START_MS + 10):
        broker.client().ask(produce_request(broker, batch(b"x", timestamp_ms=timestamp_ms)))
    broker.hold()
    broker.client().send(produce_request(broker, batch(b"x", timestamp_ms=START_MS + 20)))
    found = {at: list_offset(broker, at) for at in (-1, -2, START_MS + 1, START_MS + 11)}
    assert [(each.offset, each.timestamp) for each in found.values()] == [
        (2, -1),
        (0, -1),
        (1, START_MS + 10),
        (-1, -1),
    ]
    assert {each.leader_epoch for each in found.values() if each.offset >= 0} == {0}
    assert list_offset(broker, -1, partition_index=4).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert list_offset(broker, -1, current_leader_epoch=3).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_offset_for_leader_epoch() -> None:
    broker = VirtualBroker(nodes=2)
    kind = messages.OffsetForLeaderEpochRequest

    def end_of(epoch: int, node_id: int) -> tuple[int, int, int]:
        wanted = kind.OffsetForLeaderPartition(leader_epoch=epoch)
        request = kind(topics=[kind.OffsetForLeaderTopic(topic=TOPIC, partitions=[wanted])])
        found = broker.client(node_id).ask(request).topics[0].partitions[0]
        return found.error_code, found.leader_epoch, found.end_offset

    broker.client(0).ask(produce_request(broker))
    broker.act(lambda state: state.move_leader(TOPIC, 0, 1))
    broker.client(1).ask(produce_request(broker))
    assert [end_of(epoch, 1) for epoch in (0, 1, 2)] == [(0, 0, 1), (0, 1, 2), (0, -1, -1)]
    assert end_of(0, 0) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1)


def listed(broker: VirtualBroker, version: int, *timestamps: int) -> list[tuple[int, int]]:
    kind = messages.ListOffsetsRequest
    topics = [
        kind.ListOffsetsTopic(name=TOPIC, partitions=[kind.ListOffsetsPartition(timestamp=each)])
        for each in timestamps
    ]
    answer = broker.client().ask(kind(replica_id=-1, topics=topics), version)
    return [(each.error_code, each.offset) for topic in answer.topics for each in topic.partitions]


@pytest.mark.parametrize(
    ("timestamp", "version", "offset"), [(-3, 7, 0), (-4, 8, 0), (-5, 9, -1), (-6, 11, -1), (-7, 12, None)]
)
def test_special_timestamps_have_their_versions(
    broker: VirtualBroker, timestamp: int, version: int, offset: int | None
) -> None:
    broker.client().ask(produce_request(broker))
    for asked in messages.ListOffsetsRequest.versions:
        unsupported = (ErrorCode.UNSUPPORTED_VERSION, -1)
        assert listed(broker, asked, timestamp) == [(0, offset) if asked >= version else unsupported]


def test_partition_requested_twice_has_one_response(broker: VirtualBroker) -> None:
    assert listed(broker, 11, -1, -2) == [(ErrorCode.INVALID_REQUEST, -1)]
