"""Produce: offsets, waits for replicas, refusals with all fields of the responses as those of Kafka 4.3.1."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from kbatch.testing.broker.security.acls import Acls
from tests.oracle import plain
from tests.support.broker_core import (
    ALL,
    LEADER,
    NONE,
    START_MS,
    TOPIC,
    TRANSACTIONAL_ID,
    VirtualBroker,
    batch,
    error_places,
    fetch_request,
    fetched,
    produce_request,
    produced,
)

GOOD = batch(b"good")


def cut(length: int) -> bytes:
    """Return a batch that ends with its `length` field, inside the header."""
    return GOOD[:8] + struct.pack(">i", length) + GOOD[12 : 12 + length]


def test_produced_batches_get_consecutive_offsets(broker: VirtualBroker) -> None:
    client = broker.client()
    answers = [client.ask(produce_request(broker, batch(b"a", b"b")), version) for version in (3, 8, 13)]
    assert [produced(answer).base_offset for answer in answers] == [0, 2, 4]
    assert {produced(answer).log_append_time_ms for answer in answers} == {-1}
    assert produced(answers[-1]).log_start_offset == 0
    assert broker.values() == [b"a", b"b"] * 3
    assert [answer.responses[0].topic_id == broker.topic_id() for answer in answers] == [False, False, True]


def test_log_append_time_is_in_the_answer(broker: VirtualBroker) -> None:
    broker.state.cluster.create_topic("stamped", 1, configs={"message.timestamp.type": "LogAppendTime"})
    broker.advance(1234)
    answer = produced(broker.client().ask(produce_request(broker, topic="stamped")))
    assert answer.log_append_time_ms == START_MS + 1234


@pytest.mark.parametrize(
    ("changed", "codes"),
    [
        ({"topic": "missing"}, {12: 3, 13: 100}),
        ({"index": 1}, {12: 3, 13: 3}),
        ({"index": -1}, {13: 3}),
        ({"data": b""}, {13: 87}),
        ({"data": batch(b"x")[:-1]}, {13: 87}),
        ({"data": batch(b"x") * 2}, {13: 87}),
        ({"data": batch(b"x", base_offset=1)}, {13: 87}),
        ({"acks": 2}, {13: 21}),
        (
            {"data": batch(b"x", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)},
            {13: 53},
        ),
        ({"topic": "__consumer_offsets"}, {12: 17, 13: 17}),
        ({"data": batch(b"x", timestamp_ms=START_MS + 3_600_001)}, {13: 32}),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_produce_errors(broker: VirtualBroker, changed: dict[str, Any], codes: dict[int, int]) -> None:
    broker.client().ask(messages.FindCoordinatorRequest(coordinator_keys=["makes __consumer_offsets"]))
    for version, code in codes.items():
        answer = produced(broker.client().ask(produce_request(broker, **changed), version))
        assert (answer.error_code, answer.base_offset) == (code, -1)
    assert broker.values() == []


def test_record_errors_name_the_records(broker: VirtualBroker) -> None:
    rows: list[plain.Row] = [(None, b"x", (), START_MS + late) for late in (0, 3_600_001, 0, 3_600_002)]
    answer = produced(broker.client().ask(produce_request(broker, plain.encode(rows))))
    assert [each.batch_index for each in answer.record_errors] == [1, 3]
    assert answer.error_message


def test_acks_0_has_no_answer_and_an_error_closes_the_connection(broker: VirtualBroker) -> None:
    good = broker.client().send(produce_request(broker, acks=NONE))
    assert (good.reply.buffers, good.is_closed) == ([], False)
    assert broker.values() == [b"value"]
    assert broker.client().send(produce_request(broker, acks=NONE, index=5)).is_closed


def test_duplicates_get_first_offset_and_gaps_out_of_order(broker: VirtualBroker) -> None:
    client = broker.client()
    (producer_id, epoch) = (5, 0)
    sent = []
    for sequence in (0, 1, 0, 1, 3):
        data = batch(b"x", producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        answer = produced(client.ask(produce_request(broker, data)))
        sent.append((answer.error_code, answer.base_offset))
    assert sent == [(0, 0), (0, 1), (0, 0), (0, 1), (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)]


def test_acks_all_but_not_acks_1_waits_for_high_watermark(broker: VirtualBroker) -> None:
    broker.hold()
    waiting = [broker.client().send(produce_request(broker, acks=ALL)) for _ in range(2)]
    assert produced(broker.client().ask(produce_request(broker, acks=LEADER))).base_offset == 2
    assert not any(answer.is_there for answer in waiting)
    broker.hold(False)
    assert [produced(answer.message).base_offset for answer in waiting] == [0, 1]
    assert produced(broker.client().ask(produce_request(broker))).base_offset == 3


def test_acks_all_times_out_with_the_data_in_the_log(broker: VirtualBroker) -> None:
    broker.hold()
    answer = broker.client().send(produce_request(broker, timeout_ms=700))
    broker.advance(699)
    assert not answer.is_there
    broker.advance(1)
    timed_out = produced(answer.message)
    assert (timed_out.error_code, timed_out.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, 0), "DelayedProduce"
    assert broker.values() == [b"value"]
    broker.hold(False)
    assert produced(answer.message).error_code == ErrorCode.REQUEST_TIMED_OUT, "one answer a request"


def test_duplicate_of_what_is_not_replicated_waits_as_well(broker: VirtualBroker) -> None:
    broker.hold()
    data = batch(b"x", producer_id=5, producer_epoch=0, base_sequence=0)
    answers = [broker.client().send(produce_request(broker, data)) for _ in range(2)]
    assert not any(answer.is_there for answer in answers)
    broker.hold(False)
    assert [produced(answer.message).base_offset for answer in answers] == [0, 0]


def test_only_the_partition_that_is_not_replicated_times_out() -> None:
    broker = VirtualBroker(topics=(TOPIC, "held"))
    broker.hold(topic="held")
    request: Any = produce_request(broker)
    request.topic_data += produce_request(broker, topic="held").topic_data
    answer = broker.client().send(request)
    broker.advance(1000)
    found = [topic.partition_responses[0] for topic in answer.message.responses]
    assert [each.error_code for each in found] == [0, ErrorCode.REQUEST_TIMED_OUT]


@pytest.mark.parametrize(("version", "hints"), [(9, []), (10, [1]), (13, [1])])
def test_KP04_moved_leader_refuses_unreplicated_batches(version: int, hints: list[int]) -> None:
    """DelayedProduce, with the offset that they had; and KIP-951."""
    broker = VirtualBroker(nodes=2)
    broker.hold()
    answer = broker.client(0).send(produce_request(broker), version)
    broker.act(lambda state: state.move_leader(TOPIC, 0, 1))
    refused = produced(answer.message)
    assert (refused.error_code, refused.base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)
    assert [node.node_id for node in answer.message.node_endpoints] == hints
    assert refused.current_leader.leader_id == (1 if hints else -1)
    assert broker.values() == [], "the new leader never had it"


def test_deleted_topic_refuses_unreplicated_batches(broker: VirtualBroker) -> None:
    broker.hold()
    answer = broker.client().send(produce_request(broker))
    broker.act(lambda state: state.delete_topic(TOPIC))
    assert produced(answer.message).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_too_few_in_sync_replicas_refuse_acks_all() -> None:
    broker = VirtualBroker(nodes=3, min_insync_replicas=2)
    broker.state.cluster.create_topic("strict", 1, configs={"min.insync.replicas": "3"})

    def codes() -> list[int]:
        """Acks all, acks 1, and of the topic that says so itself."""
        leader = broker.state.cluster.partition(TOPIC, 0).leader
        requests = [
            produce_request(broker),
            produce_request(broker, acks=LEADER),
            produce_request(broker, topic="strict"),
        ]
        answers = [broker.client(leader).ask(request) for request in requests]
        return [produced(answer).error_code for answer in answers]

    assert codes() == [0, 0, 0]
    broker.act(lambda state: state.stop_node(2))
    assert codes() == [0, 0, ErrorCode.NOT_ENOUGH_REPLICAS]
    broker.act(lambda state: state.stop_node(1))
    assert codes() == [ErrorCode.NOT_ENOUGH_REPLICAS, 0, ErrorCode.NOT_ENOUGH_REPLICAS]
    assert len(broker.values("strict")) == 1


def test_KP03_replicas_lost_after_the_append_time_out() -> None:
    """NOT_ENOUGH_REPLICAS_AFTER_APPEND is left for replicas that are lost after the high watermark passed."""
    broker = VirtualBroker(nodes=2, min_insync_replicas=2)
    broker.hold()
    answer = broker.client(0).send(produce_request(broker))
    broker.act(lambda state: state.stop_node(1))
    broker.hold(False)
    broker.advance(999)
    assert not answer.is_there
    broker.advance(1)
    assert produced(answer.message).error_code == ErrorCode.REQUEST_TIMED_OUT
    assert broker.values() == [b"value"]


@pytest.mark.parametrize("request_of", [produce_request, fetch_request])
def test_follower_names_the_leader(request_of: Any) -> None:
    """KIP-951, from Produce 10 and Fetch 16 on."""
    broker = VirtualBroker(nodes=3)
    broker.act(lambda state: state.move_leader(TOPIC, 0, 2))
    request, code = request_of(broker), ErrorCode.NOT_LEADER_OR_FOLLOWER
    newest = request.versions[-1]
    for version in (request.versions[0], newest):
        if request_of is fetch_request and version == newest:  # without an epoch it would be served
            request, code = fetch_request(broker, leader_epoch=0), ErrorCode.FENCED_LEADER_EPOCH
        answer = broker.client(0).ask(request, version)
        assert [code for _, code in error_places(answer)] == [code]
        leader = (produced if request_of is produce_request else fetched)(answer).current_leader
        nodes = [(node.node_id, node.host, node.port) for node in answer.node_endpoints]
        assert ((leader.leader_id, leader.leader_epoch), nodes) == (
            ((2, 1), [(2, "node-2", 9094)]) if version == newest else ((-1, -1), [])
        )


def test_partition_without_leader_gives_no_hint() -> None:
    broker = VirtualBroker(nodes=2)
    broker.state.cluster.create_topic("single", 1, replication_factor=1)
    broker.act(lambda state: state.stop_node(0))
    for request in (produce_request(broker, topic="single"), fetch_request(broker, topic="single")):
        answer = broker.client(1).ask(request)
        assert [code for _, code in error_places(answer)] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert answer.node_endpoints == []


def test_acl_of_topics_and_its_patterns() -> None:
    acls = Acls(topic_write=["other", "ev*"])
    broker = VirtualBroker(acls=acls, topics=(TOPIC, "secret"))

    def code(topic: str) -> int:
        return int(produced(broker.client().ask(produce_request(broker, topic=topic))).error_code)

    assert (code(TOPIC), code("secret")) == (0, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    acls.topic_write = "secret"
    assert (code(TOPIC), code("secret")) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0)
    acls.topic_write = None
    assert (code(TOPIC), code("secret")) == (0, 0)


# Refusals


def refused_partition(broker: VirtualBroker, data: bytes, topic: str = TOPIC, **parameters: Any) -> Any:
    answer = produced(broker.client().ask(produce_request(broker, data, topic=topic, **parameters)))
    assert (answer.base_offset, answer.log_append_time_ms) == (-1, -1)
    return answer


@pytest.mark.parametrize(
    ("data", "code", "log_start_offset"),
    [
        (batch(b"x", base_offset=1), ErrorCode.INVALID_RECORD, 1),
        (batch(b"x", timestamp_ms=START_MS + 3_600_001), ErrorCode.INVALID_TIMESTAMP, 1),
        (plain.with_crc(GOOD[:22] + b"\7" + GOOD[23:]), ErrorCode.UNKNOWN_SERVER_ERROR, 1),
        (
            batch(b"x", producer_id=5, producer_epoch=0, base_sequence=9),
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            1,
        ),
        (batch(b"x" * 2_000_000), ErrorCode.MESSAGE_TOO_LARGE, -1),
        (GOOD[:17] + bytes(4) + GOOD[21:], ErrorCode.CORRUPT_MESSAGE, -1),
        (b"", ErrorCode.INVALID_RECORD, -1),
    ],
    ids=lambda value: value.name if isinstance(value, ErrorCode) else None,
)
def test_refusal_says_where_the_log_starts_when_the_log_refuses(
    broker: VirtualBroker, data: bytes, code: ErrorCode, log_start_offset: int
) -> None:
    """ReplicaManager.appendToLocalLog, which leaves it out for some."""
    known = batch(b"x", b"y", producer_id=5, producer_epoch=0, base_sequence=0)
    broker.client().ask(produce_request(broker, known))
    broker.state.cluster.partition(TOPIC, 0).log.delete_records_before(1)
    refused = refused_partition(broker, data)
    assert (refused.error_code, refused.log_start_offset) == (code, log_start_offset)


def test_refusal_for_too_few_replicas_says_where_the_log_starts() -> None:
    broker = VirtualBroker(nodes=2, min_insync_replicas=2)
    broker.act(lambda state: state.stop_node(1))
    refused = refused_partition(broker, GOOD)
    assert (refused.error_code, refused.log_start_offset) == (ErrorCode.NOT_ENOUGH_REPLICAS, 0)


def test_more_in_sync_replicas_are_not_needed_than_there_are(broker: VirtualBroker) -> None:
    """Partition.effectiveMinIsr"""
    broker.state.cluster.create_topic("strict", 1, configs={"min.insync.replicas": "3"})
    assert produced(broker.client().ask(produce_request(broker, topic="strict"))).error_code == 0


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (cut(13), ErrorCode.CORRUPT_MESSAGE),
        (GOOD[:16] + b"\3" + GOOD[17:], ErrorCode.CORRUPT_MESSAGE),
        (cut(14), ErrorCode.UNKNOWN_SERVER_ERROR),
        (cut(38), ErrorCode.UNKNOWN_SERVER_ERROR),
        (
            batch(b"x", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True),
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
    ],
)
@pytest.mark.parametrize("version", [12, 13])
def test_some_batches_fail_their_whole_request(
    broker: VirtualBroker, version: int, data: bytes, code: ErrorCode
) -> None:
    broker.state.cluster.create_topic("other", 1)
    request: Any = produce_request(broker, data)
    for topic in ("other", "unknown"):
        request.topic_data += produce_request(broker, topic=topic).topic_data
    answer = broker.client().ask(request, version)
    found = [each for topic in answer.responses for each in topic.partition_responses]
    assert [(each.error_code, each.log_start_offset) for each in found] == [(code, -1)] * 3
    assert broker.values("other") == []


def test_batch_cut_off_after_its_producer_id_fails_alone(broker: VirtualBroker) -> None:
    broker.state.cluster.create_topic("other", 1)
    request: Any = produce_request(broker, cut(39))
    request.topic_data += produce_request(broker, topic="other").topic_data
    first, second = broker.client().ask(request).responses
    assert first.partition_responses[0].error_code == ErrorCode.CORRUPT_MESSAGE
    assert second.partition_responses[0].error_code == 0


def test_batches_of_two_transactional_producers_fail_the_request(broker: VirtualBroker) -> None:
    broker.state.cluster.create_topic("other", 1)
    request: Any = produce_request(broker, transactional_id=TRANSACTIONAL_ID, topic="unknown")
    for topic, producer_id in ((TOPIC, 1), ("other", 2)):
        data = batch(b"x", producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
        request.topic_data += produce_request(broker, data, topic=topic).topic_data
    answer = broker.client().ask(request)
    codes = [topic.partition_responses[0].error_code for topic in answer.responses]
    assert codes == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 3


@pytest.mark.parametrize("version", [12, 13])
def test_of_a_partition_named_twice_the_last_counts(broker: VirtualBroker, version: int) -> None:
    """Kafka drops the others, and does not say so."""
    request: Any = produce_request(broker, batch(b"first"))
    request.topic_data += produce_request(broker, batch(b"last")).topic_data
    answer = produced(broker.client().ask(request, version))
    assert (answer.error_code, answer.base_offset) == (0, 0)
    assert broker.values() == [b"last"]


def test_transactional_batch_without_producer_id_is_refused(broker: VirtualBroker) -> None:
    data = batch(b"x", transactional=True)
    answer = broker.client().ask(produce_request(broker, data, transactional_id=TRANSACTIONAL_ID))
    assert produced(answer).error_code == 0
    read = fetched(broker.client().ask(fetch_request(broker, committed=True)))
    assert (read.last_stable_offset, len(plain.decode(bytes(read.records)))) == (1, 1)


def test_error_after_the_append_keeps_the_offset_in_the_response() -> None:
    """DelayedProduce sets the error alone."""
    broker = VirtualBroker(nodes=2)
    broker.client().ask(produce_request(broker))
    broker.act(lambda state: state.hold_high_watermark(TOPIC, 0, True))
    waiting = [broker.client().send(produce_request(broker, timeout_ms=each)) for each in (100, 5000)]
    broker.advance(100)
    broker.act(lambda state: state.move_leader(TOPIC, 0, 1))
    answers = [produced(answer.message) for answer in waiting]
    assert [(each.error_code, each.base_offset, each.log_start_offset) for each in answers] == [
        (ErrorCode.REQUEST_TIMED_OUT, 1, 0),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2, 0),
    ]
