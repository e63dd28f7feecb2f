"""BrokerCore without sockets, in virtual time: frames, and what is due with time."""

from __future__ import annotations

import logging
import struct
from typing import Any

import pytest

from kbatch.errors import ErrorCode
from kbatch.protocol import codec, messages
from kbatch.testing.broker.api import brokers
from kbatch.testing.broker.core import HANDLERS, REMEMBERED_REQUESTS
from tests.oracle import plain
from tests.oracle.messages import random_message
from tests.support.broker_core import (
    LEADER,
    START_MS,
    TOPIC,
    Answer,
    VirtualBroker,
    batch,
    produce_request,
    produced,
)

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
    half = level // 2
    broker = VirtualBroker(
        transaction_version=level,
        group_version=half,
        share_version=half,
        eligible_leader_replicas=bool(half),
    )
    answer = broker.client().ask(
        messages.ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
    )
    listed = {api.api_key: range(api.min_version, api.max_version + 1) for api in answer.api_keys}
    of_clients = HANDLERS.keys() - brokers.HANDLERS.keys()
    expected: dict[int, range] = {kind.api_key: kind.versions for kind in of_clients}  # type: ignore[attr-defined]
    assert listed.pop(0) == range(0, 14), "librdkafka wants Produce from 0"
    del expected[0]
    assert listed == expected
    finalized = {feature.name: feature.max_version_level for feature in answer.finalized_features}
    levels = {
        "eligible.leader.replicas.version": half,
        "group.version": half,
        "share.version": half,
        "transaction.version": level,
    }
    assert finalized == {name: level for name, level in levels.items() if level}
    supported = {feature.name: feature.max_version for feature in answer.supported_features}
    assert supported == {name: 2 if name == "transaction.version" else 1 for name in levels}


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


# Time


def test_nothing_is_due_before_it_is_and_late_calls_do_all(broker: VirtualBroker) -> None:
    broker.hold()
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
    log = broker.state.cluster.partition("short", 0).log
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
