"""BrokerCore without sockets, in virtual time: frames, Produce, Fetch, offsets."""

from __future__ import annotations

import logging
import struct
from typing import Any

import pytest

from kbatch.errors import ErrorCode
from kbatch.protocol import codec, messages
from kbatch.testing.broker.cluster import ClusterPartition
from kbatch.testing.broker.core import HANDLERS, REMEMBERED_REQUESTS
from kbatch.testing.broker.security.acls import Acls
from tests.oracle import plain
from tests.oracle.messages import random_message
from tests.support.broker_core import (
    ALL,
    LEADER,
    NONE,
    START_MS,
    TOPIC,
    Answer,
    VirtualBroker,
    batch,
    error_places,
    fetch_request,
    fetched,
    fetched_values,
    produce_request,
    produced,
)


def partition_of(broker: VirtualBroker, topic: str = TOPIC, index: int = 0) -> ClusterPartition:
    return broker.state.cluster.partition(topic, index)


def hold(broker: VirtualBroker, is_held: bool = True, topic: str = TOPIC) -> None:
    broker.act(lambda state: state.hold_high_watermark(topic, 0, is_held))


# Frames


def send_bytes(broker: VirtualBroker, frame: bytes) -> Any:
    return broker.core.handle(broker.client().connection, frame, broker.now_ms)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        bytes(7),
        struct.pack(">hhih", 999, 0, 1, -1),
        struct.pack(">hhih", 1, 3, 1, -1),
        struct.pack(">hhih", 1, 99, 1, -1),
        struct.pack(">hhih", 0, 0, 1, -1),
        struct.pack(">hhih", 12, 0, 1, -1) + bytes(1),
    ],
    ids=["empty", "short", "no such API", "too old", "too new", "Produce 0", "cut off"],
)
def test_what_cannot_be_read_closes_the_connection(broker: VirtualBroker, frame: bytes) -> None:
    reply = send_bytes(broker, frame)
    assert (reply.closes_connection, reply.buffers) == (True, [])
    assert not broker.core.requests


def test_bytes_after_a_request_are_ignored(broker: VirtualBroker) -> None:
    """Kafka does so too: librdkafka adds bytes after its Metadata requests for all topics."""
    reply = send_bytes(broker, struct.pack(">hhih", 16, 0, 1, -1) + bytes(3))
    assert (reply.closes_connection, bool(reply.buffers)) == (False, True)


def test_unknown_api_versions_request_is_answered_in_version_0(broker: VirtualBroker) -> None:
    """KIP-511: with the versions of ApiVersions alone."""
    reply = send_bytes(broker, struct.pack(">hhi", 18, 99, 5) + b"what that version has")
    data = b"".join(reply.buffers)
    correlation_id, answer = codec.decode_response(messages.ApiVersionsResponse, 0, data[4:])
    assert (correlation_id, answer.error_code) == (5, ErrorCode.UNSUPPORTED_VERSION)
    assert [(api.api_key, api.min_version, api.max_version) for api in answer.api_keys] == [(18, 0, 4)]


@pytest.mark.parametrize("level", [0, 1, 2])
def test_api_versions_lists_apis_and_levels_of_features(level: int) -> None:
    broker = VirtualBroker(transaction_version=level, group_version=level // 2)
    answer = broker.client().ask(
        messages.ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
    )
    listed = {api.api_key: range(api.min_version, api.max_version + 1) for api in answer.api_keys}
    expected: dict[int, range] = {kind.api_key: kind.versions for kind in HANDLERS}  # type: ignore[attr-defined]
    assert listed.pop(0) == range(0, 14), "librdkafka wants Produce from 0"
    del expected[0]
    assert listed == expected
    finalized = {feature.name: feature.max_version_level for feature in answer.finalized_features}
    levels = {"group.version": level // 2, "transaction.version": level}
    assert finalized == {name: level for name, level in levels.items() if level}
    supported = {feature.name: feature.max_version for feature in answer.supported_features}
    assert supported == {"group.version": 1, "transaction.version": 2}


@pytest.mark.parametrize(("name", "version"), [("", "1"), ("a", ""), ("-a", "1"), ("a b", "1"), ("a", "1-")])
def test_api_versions_refuses_software_names_as_kafka_does(
    broker: VirtualBroker, name: str, version: str
) -> None:
    request = messages.ApiVersionsRequest(client_software_name=name, client_software_version=version)
    assert broker.client().ask(request).error_code == ErrorCode.INVALID_REQUEST
    assert broker.client().ask(messages.ApiVersionsRequest(), 0).error_code == ErrorCode.NONE


@pytest.mark.parametrize("seed", range(4))
def test_no_request_that_can_be_read_makes_the_broker_fail(
    caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    broker = VirtualBroker(topics=("topic", "x" * 127))
    limits = {"num_partitions": (-2, 20), "count": (-2, 20)}
    with caplog.at_level(logging.ERROR, "kbatch.testing"):
        for kind in HANDLERS:
            for version in kind.versions:  # type: ignore[attr-defined]
                request: Any = random_message(kind, version, seed, limits)
                _ = broker.client().send(request, version).message
        broker.advance(60_000)
    assert not caplog.records
    assert broker.client().ask(messages.MetadataRequest(topics=None)).controller_id == 0


def test_requests_are_remembered_as_they_came_the_last_of_them(broker: VirtualBroker) -> None:
    client = broker.client()
    client.ask(produce_request(broker, acks=LEADER), 9)
    (received,) = broker.core.requests
    assert (received.node_id, received.api, received.version, received.client_id) == (
        *(0, "Produce", 9),
        "client",
    )
    assert (received.message.acks, received.message.topic_data[0].name) == (LEADER, TOPIC)
    heartbeat = messages.HeartbeatRequest()
    for _ in range(REMEMBERED_REQUESTS):
        client.ask(heartbeat)
    assert {received.api for received in broker.core.requests} == {"Heartbeat"}
    assert len(broker.core.requests) == REMEMBERED_REQUESTS


# Produce


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
    hold(broker)
    waiting = [broker.client().send(produce_request(broker, acks=ALL)) for _ in range(2)]
    assert produced(broker.client().ask(produce_request(broker, acks=LEADER))).base_offset == 2
    assert not any(answer.is_there for answer in waiting)
    hold(broker, False)
    assert [produced(answer.message).base_offset for answer in waiting] == [0, 1]
    assert produced(broker.client().ask(produce_request(broker))).base_offset == 3


def test_acks_all_times_out_with_the_data_in_the_log(broker: VirtualBroker) -> None:
    hold(broker)
    answer = broker.client().send(produce_request(broker, timeout_ms=700))
    broker.advance(699)
    assert not answer.is_there
    broker.advance(1)
    timed_out = produced(answer.message)
    assert (timed_out.error_code, timed_out.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, 0), "DelayedProduce"
    assert broker.values() == [b"value"]
    hold(broker, False)
    assert produced(answer.message).error_code == ErrorCode.REQUEST_TIMED_OUT, "one answer a request"


def test_duplicate_of_what_is_not_replicated_waits_as_well(broker: VirtualBroker) -> None:
    hold(broker)
    data = batch(b"x", producer_id=5, producer_epoch=0, base_sequence=0)
    answers = [broker.client().send(produce_request(broker, data)) for _ in range(2)]
    assert not any(answer.is_there for answer in answers)
    hold(broker, False)
    assert [produced(answer.message).base_offset for answer in answers] == [0, 0]


def test_only_the_partition_that_is_not_replicated_times_out() -> None:
    broker = VirtualBroker(topics=(TOPIC, "held"))
    hold(broker, topic="held")
    request: Any = produce_request(broker)
    request.topic_data += produce_request(broker, topic="held").topic_data
    answer = broker.client().send(request)
    broker.advance(1000)
    found = [topic.partition_responses[0] for topic in answer.message.responses]
    assert [each.error_code for each in found] == [0, ErrorCode.REQUEST_TIMED_OUT]


@pytest.mark.parametrize(("version", "hints"), [(9, []), (10, [1]), (13, [1])])
def test_moved_leader_refuses_unreplicated_batches(version: int, hints: list[int]) -> None:
    """DelayedProduce; and KIP-951."""
    broker = VirtualBroker(nodes=2)
    hold(broker)
    answer = broker.client(0).send(produce_request(broker), version)
    broker.act(lambda state: state.move_leader(TOPIC, 0, 1))
    refused = produced(answer.message)
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [node.node_id for node in answer.message.node_endpoints] == hints
    assert refused.current_leader.leader_id == (1 if hints else -1)
    assert broker.values() == [b"value"]


def test_deleted_topic_refuses_unreplicated_batches(broker: VirtualBroker) -> None:
    hold(broker)
    answer = broker.client().send(produce_request(broker))
    broker.act(lambda state: state.delete_topic(TOPIC))
    assert produced(answer.message).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_too_few_in_sync_replicas_refuse_acks_all() -> None:
    broker = VirtualBroker(nodes=3, min_insync_replicas=2)
    broker.state.cluster.create_topic("strict", 1, configs={"min.insync.replicas": "3"})

    def codes() -> list[int]:
        """Acks all, acks 1, and of the topic that says so itself."""
        leader = partition_of(broker).leader
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


def test_replicas_lost_after_the_append() -> None:
    broker = VirtualBroker(nodes=2, min_insync_replicas=2)
    hold(broker)
    answer = broker.client(0).send(produce_request(broker))
    broker.act(lambda state: state.stop_node(1))
    assert not answer.is_there
    hold(broker, False)
    assert produced(answer.message).error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert broker.values() == [b"value"]


@pytest.mark.parametrize("request_of", [produce_request, fetch_request])
def test_follower_names_the_leader(request_of: Any) -> None:
    """KIP-951, from Produce 10 and Fetch 16 on."""
    broker = VirtualBroker(nodes=3)
    broker.act(lambda state: state.move_leader(TOPIC, 0, 2))
    request = request_of(broker)
    newest = request.versions[-1]
    for version in (request.versions[0], newest):
        answer = broker.client(0).ask(request, version)
        assert [code for _, code in error_places(answer)] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
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


# Fetch


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
def test_fetch_is_woken_by_a_leader_that_moves_away(version: int, hints: list[int]) -> None:
    broker = VirtualBroker(nodes=2)
    waiting = broker.client(0).send(fetch_request(broker, max_wait_ms=500), version)
    broker.act(lambda state: state.move_leader(TOPIC, 0, 1))
    assert fetched(waiting.message).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [node.node_id for node in waiting.message.node_endpoints] == hints


@pytest.mark.parametrize(("version", "code"), [(12, 3), (13, 100)])
def test_fetch_is_woken_by_the_end_of_its_topic(broker: VirtualBroker, version: int, code: int) -> None:
    waiting = broker.client().send(fetch_request(broker, max_wait_ms=500), version)
    broker.act(lambda state: state.delete_topic(TOPIC))
    assert fetched(waiting.message).error_code == code


def test_fetch_does_not_see_what_is_not_replicated(broker: VirtualBroker) -> None:
    hold(broker)
    waiting = broker.client().send(fetch_request(broker, max_wait_ms=500))
    broker.client().send(produce_request(broker))
    assert not waiting.is_there
    hold(broker, False)
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
    hold(broker)
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


# Time


def test_nothing_is_due_before_it_is_and_late_calls_do_all(broker: VirtualBroker) -> None:
    hold(broker)
    answers: list[Answer] = [
        broker.client().send(produce_request(broker, timeout_ms=timeout_ms)) for timeout_ms in (300, 100, 200)
    ]
    assert broker.core.next_deadline_ms() == START_MS + 100
    broker.now_ms += 250
    broker.core.handle_timeout(broker.now_ms)
    assert [answer.is_there for answer in answers] == [False, True, True]
    assert broker.core.next_deadline_ms() == START_MS + 300


def test_old_segments_and_idle_producers_go_with_time(broker: VirtualBroker) -> None:
    configs = {"internal.segment.bytes": "100", "retention.ms": "60000"}
    broker.state.cluster.create_topic("short", 1, configs=configs)
    broker.client().ask(produce_request(broker, batch(b"x", timestamp_ms=1)))
    for sequence in range(3):
        data = batch(b"x", producer_id=5, producer_epoch=0, base_sequence=sequence)
        assert produced(broker.client().ask(produce_request(broker, data, topic="short"))).error_code == 0
    log = partition_of(broker, "short").log
    broker.advance(299_999)
    assert (log.log_start_offset, log.log_end_offset) == (0, 3)
    broker.advance(1)
    assert (log.log_start_offset, log.log_end_offset) == (3, 3)
    assert [producer.producer_id for producer in log.describe_producers()] == [5]
    broker.advance(86_400_000)
    assert log.describe_producers() == []
    assert broker.values() == [b"x"], "only topics that name a retention have one"


def test_compacted_topics_are_compacted_with_time(broker: VirtualBroker) -> None:
    configs = {"internal.segment.bytes": "100", "cleanup.policy": "compact"}
    broker.state.cluster.create_topic("latest", 1, configs=configs)
    for value in (b"1", b"2", b"3"):
        data = plain.encode([(b"key", value, (), START_MS)])
        assert produced(broker.client().ask(produce_request(broker, data, topic="latest"))).error_code == 0
    broker.advance(300_000)
    assert broker.values("latest") == [b"2", b"3"], "the last segment is open, and stays as it is"
