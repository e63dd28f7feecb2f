"""Connections: requests to nodes and their answers, and what happens when a connection ends."""

from __future__ import annotations

import logging
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from kbatch.core.client.actions import Close, Connect, Resolve, Write
from kbatch.core.client.api_versions import VersionsReader
from kbatch.core.client.cluster import Node
from kbatch.core.client.connections import Request, Response
from kbatch.errors import (
    AuthenticationError,
    ErrorCode,
    IllegalStateError,
    KafkaTimeoutError,
    NetworkError,
    ProtocolError,
    UnsupportedVersionError,
)
from kbatch.metrics import MetricsRegistry
from kbatch.protocol import codec, messages
from tests.support.core_shell import MS, NEVER, SECOND, VERSIONS, Peer, Shell, address, versions_answer

METADATA = messages.MetadataResponse
NODES = {node_id: Node(node_id, f"host{node_id}", 9092, None) for node_id in (1, 2, 3)}


VERSIONS_OF_METADATA = {3: VERSIONS[3]}


def codes(responses: list[Response]) -> list[Any]:
    return [type(response.error) for response in responses]


# The handshake


def test_N09_connection_is_ready_after_api_versions() -> None:
    shell = Shell(client_id="me")
    peer = shell.connect(-1)
    (request,) = peer.requests()
    assert (request.api_key, request.version, request.client_id) == (18, 4, "me")
    assert request.message.client_software_name == "kbatch"
    assert request.message.client_software_version
    assert shell.connections.is_connected(-1)
    assert not shell.connections.is_ready(-1, 0)
    with pytest.raises(IllegalStateError):
        shell.ask()
    shell.answer(peer, versions_answer())
    assert shell.connections.is_ready(-1, 0)
    assert shell.connections.delay_ns(-1, 0) == 0


@pytest.mark.parametrize(
    ("supported", "version"), [({18: (0, 3)}, 3), ({18: (0, 2)}, 2), ({}, 0), ({18: (0, 9)}, 3)]
)
def test_N09_node_gets_an_api_versions_request_it_knows(
    supported: dict[int, tuple[int, int]], version: int
) -> None:
    shell = Shell()
    peer = shell.connect(-1)
    shell.answer(peer, versions_answer(supported, error=35), version=0)
    shell.write(peer)
    assert [request.version for request in peer.requests()] == [4, version]
    assert not shell.connections.is_ready(-1, 0)
    shell.answer(peer, versions_answer())
    assert shell.connections.is_ready(-1, 0)


@pytest.mark.parametrize(("version", "code"), [(4, 42), (0, 35)])
def test_N09_node_that_refuses_the_handshake_is_backed_off(version: int, code: int) -> None:
    shell = Shell()
    peer = shell.connect(-1)
    if version == 0:
        shell.answer(peer, versions_answer({}, error=35), version=0)
        shell.write(peer)
    shell.answer(peer, versions_answer({}, error=code), version=version)
    assert peer.is_closed
    assert not shell.connections.is_connected(-1)
    assert 0 < shell.connections.delay_ns(-1, 0) <= 60 * MS


@pytest.mark.parametrize("data", [b"HTTP/1.1 400 Bad Request", b"\0\0\0\4\0\0\0\0", b"\0\0\0\5\0\0\0\1x"])
def test_N09_garbage_in_the_handshake_ends_it(data: bytes) -> None:
    shell = Shell()
    peer = shell.connect(-1)
    shell.give(peer, data)
    assert peer.is_closed
    assert not shell.connections.is_connected(-1)
    assert shell.connections.in_flight_count() == 0


def test_silence_of_a_new_connection_is_a_warning_before_the_timeout(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    shell = Shell()
    peer = shell.connect(-1)
    shell.advance(4 * SECOND)
    assert not caplog.records
    shell.advance(2 * SECOND)
    (warning,) = caplog.records
    assert "no answer for 5 s; it has answered nothing: is it a Kafka listener with" in warning.message
    assert not peer.is_closed
    shell.answer(peer, versions_answer())
    shell.ask()
    shell.answer(peer, METADATA())
    assert [each.levelname for each in caplog.records] == ["WARNING", "INFO"]
    shell.advance(3600 * SECOND)


@pytest.mark.parametrize("data", [b"HTTP/1.1 400 Bad Request\r\n", b"SSH-2.0-OpenSSH_9.6\r\n", b"\0" * 20])
def test_N09_what_is_no_kafka_is_a_warning_with_the_remedy(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    shell = Shell()
    for _ in range(5):
        shell.give(shell.connect(-1), data)
        shell.advance(2 * SECOND)
    warnings = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert "use the port of a Kafka broker" in warnings[0].getMessage()


def test_N09_a_node_that_never_answers_the_handshake_is_given_up() -> None:
    shell = Shell(request_timeout_ms=1000, linger_ms=0)
    peer = shell.connect(-1)
    shell.advance(999 * MS)
    assert not peer.is_closed
    shell.advance(MS)
    assert peer.is_closed
    assert not shell.connections.is_connected(-1)


def test_ready_at_connects_and_says_when_to_look_again() -> None:
    shell = Shell()
    connections = shell.connections
    assert connections.ready_at(7, shell.now_ns) == NEVER  # there is no such node
    assert connections.ready_at(-1, shell.now_ns) == NEVER  # after an event
    assert [type(action) for action in shell.poll()] == [Resolve]
    peer = shell.connect(-1)
    shell.answer(peer, versions_answer({3: (90, 99)}))  # it does not serve clients
    backed_off_ns = connections.delay_ns(-1, shell.now_ns)
    assert backed_off_ns > MS
    assert connections.ready_at(-1, shell.now_ns) == shell.now_ns + backed_off_ns
    shell.advance(backed_off_ns - 1)
    assert connections.ready_at(-1, shell.now_ns) == shell.now_ns + MS
    assert connections.ready_at(-1, shell.now_ns, least_ns=1) == shell.now_ns + 1
    shell.advance(1)
    shell.ready(-1)
    assert connections.ready_at(-1, shell.now_ns) == shell.now_ns


@pytest.mark.parametrize("versions", [{0: (3, 7)}, {3: (90, 99)}])
def test_node_without_metadata_is_replaced_by_another(
    versions: dict[int, tuple[int, int]], caplog: pytest.LogCaptureFixture
) -> None:
    """A KRaft controller's listener, or a proxy: the producer used to end for good."""
    shell = Shell(bootstrap_servers="a:9092,b:9092")
    for _ in range(3):
        peer = shell.connect(-1)
        shell.write(peer)
        shell.answer(peer, versions_answer(versions))
        assert peer.is_closed
        assert not shell.connections.is_ready(-1, shell.now_ns)
        assert shell.connections.least_loaded(shell.now_ns) == -2
        shell.advance(SECOND + SECOND // 2)
    assert "node -1 (a:9092): it does not serve clients" in str(shell.connections.last_failure)
    warnings = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert len(warnings) == 1  # once a server
    shell.ready(-2)
    assert shell.connections.last_failure is None


def test_versions_are_the_highest_that_both_sides_have() -> None:
    shell = Shell()
    with pytest.raises(IllegalStateError, match="never ready"):
        shell.connections.version_of(-1, messages.ProduceRequest)
    shell.ready(versions={**VERSIONS_OF_METADATA, 0: (3, 7), 10: (90, 99), 22: (0, 99)})
    assert shell.connections.version_of(-1, messages.ProduceRequest) == 7
    assert shell.connections.version_of(-1, messages.InitProducerIdRequest) == VERSIONS[22][1]
    with pytest.raises(UnsupportedVersionError, match=r"versions 90 to 99, this client has \d"):
        shell.connections.version_of(-1, messages.FindCoordinatorRequest)
    with pytest.raises(UnsupportedVersionError, match="does not have it"):
        shell.connections.version_of(-1, messages.EndTxnRequest)
    assert shell.connections.in_flight_count() == 0
    assert shell.connections.is_ready(-1, 0)


def test_nodes_keep_their_own_versions() -> None:
    shell = Shell(bootstrap_servers="a:9092,b:9092,c:9092")
    produce = {-1: 7, -2: 6, -3: 7}
    for node_id, highest in produce.items():
        shell.ready(node_id, versions={**VERSIONS_OF_METADATA, 0: (3, highest)})
    for node_id, highest in produce.items():
        assert shell.connections.version_of(node_id, messages.ProduceRequest) == highest


def test_equal_answers_to_api_versions_are_read_once() -> None:
    def read(version: int, of_version: int, **fields: Any) -> Any:
        answer = versions_answer()
        for name, value in fields.items():
            setattr(answer, name, value)
        request: Any = SimpleNamespace(kind=messages.ApiVersionsRequest, api_version=version)
        frame = b"".join(codec.encode_response(answer, of_version, next(numbers)))[4:]
        return reader.read(request, frame)

    reader, numbers = VersionsReader(), count()
    first = read(4, 4)
    assert read(4, 4) is first
    assert reader.versions_of(first) is reader.versions_of(first)
    other = read(4, 4, throttle_time_ms=5)
    assert other.throttle_time_ms == 5
    assert reader.versions_of(other) is not reader.versions_of(first)
    assert read(3, 3).api_keys == first.api_keys
    for version in (4, 3):  # a refusal is of version 0
        assert read(version, 0, error_code=35).error_code == 35
    with pytest.raises(ProtocolError):
        read(4, 1)


def test_finalized_features_are_kept() -> None:
    shell = Shell()
    assert shell.connections.finalized_features(-1).epoch == -1
    peer = shell.connect(-1)
    answer = versions_answer()
    answer.finalized_features_epoch = 7
    answer.finalized_features = [
        messages.ApiVersionsResponse.FinalizedFeatureKey(
            name="transaction.version", max_version_level=2, min_version_level=2
        )
    ]
    shell.answer(peer, answer)
    features = shell.connections.finalized_features(-1)
    assert (features.epoch, dict(features.levels)) == (7, {"transaction.version": 2})


# Requests


def test_N11_a_request_waits_for_the_one_before_it_to_be_written() -> None:
    shell = Shell()
    peer = shell.ready()
    request = shell.ask(written=False)
    assert not shell.connections.is_ready(-1, 0)
    assert shell.connections.delay_ns(-1, 0) == NEVER
    shell.write(peer, request.end_offset - request.start_offset - 1)
    assert not shell.connections.is_ready(-1, 0)
    with pytest.raises(IllegalStateError):
        shell.ask()
    shell.write(peer)
    assert shell.connections.is_ready(-1, 0)


def test_requests_that_may_join_are_written_together() -> None:
    """Until the owner has the write; and what has reached the socket is known of each."""
    shell = Shell(max_in_flight_requests_per_connection=3)
    peer = shell.ready()
    connections, message = shell.connections, messages.MetadataRequest(topics=[])
    requests = []
    for _ in range(3):
        assert connections.ready_at(-1, 0, joins=True) == 0
        requests.append(connections.send(-1, message, shell.responses.append, 0, joins=True))
        assert not connections.is_ready(-1, 0)
    assert connections.ready_at(-1, 0, joins=True) == NEVER  # as many as may be in flight
    (write,) = shell.poll()
    assert write.size_bytes == requests[-1].end_offset - requests[0].start_offset
    shell.now_ns = 5
    shell.write(peer, requests[0].end_offset - requests[0].start_offset + 1)
    assert [request.sent_ns for request in requests] == [5, -1, -1]
    assert [request.was_written for request in requests] == [True, True, False]
    shell.now_ns = 6
    shell.write(peer)
    assert [request.sent_ns for request in requests] == [5, 6, 6]
    for number in range(3):
        shell.answer(peer, METADATA(controller_id=number))
    assert [(each.request, each.message.controller_id) for each in shell.taken()] == list(
        zip(requests, range(3), strict=True)
    )


def test_no_request_joins_a_write_that_the_owner_has() -> None:
    shell = Shell()
    shell.ready()
    shell.ask(written=False, joins=True)
    assert shell.connections.ready_at(-1, 0, joins=True) == NEVER
    with pytest.raises(IllegalStateError):
        shell.ask(joins=True)


def test_requests_join_the_write_of_their_node() -> None:
    shell = Shell()
    shell.connections.set_nodes(NODES)
    peers = [shell.ready(node_id) for node_id in (1, 2)]
    for node_id in (1, 2, 1, 2, 2):
        message = messages.MetadataRequest(topics=[])
        shell.connections.send(node_id, message, shell.responses.append, 0, joins=True)
    assert [write.connection_id for write in shell.poll()] == [peer.connection_id for peer in peers]
    for peer, joined in zip(peers, (2, 3), strict=True):
        before = len(peer.requests())
        shell.write(peer)
        assert len(peer.requests()) == before + joined


@pytest.mark.parametrize("max_in_flight", [1, 3])
def test_N11_no_more_requests_than_allowed_are_in_flight(max_in_flight: int) -> None:
    shell = Shell(max_in_flight_requests_per_connection=max_in_flight)
    peer = shell.ready()
    for _ in range(max_in_flight):
        shell.ask()
    assert shell.connections.in_flight_count() == shell.connections.in_flight_count(-1) == max_in_flight
    assert not shell.connections.is_ready(-1, 0)
    shell.answer(peer, METADATA())
    assert shell.connections.is_ready(-1, 0)


def test_responses_reach_requests_in_order_even_in_one_read() -> None:
    shell = Shell()
    peer = shell.ready()
    requests = [shell.ask() for _ in range(3)]
    shell.now_ns = 5
    answers = []
    for number, request in enumerate(requests):
        message = METADATA(controller_id=number)
        head = request.correlation_id.to_bytes(4, "big") + b"\0"
        body = b"".join(codec.encode(message, request.api_version))
        answers.append((len(head) + len(body)).to_bytes(4, "big") + head + body)
    shell.give(peer, memoryview(bytearray(b"".join(answers))))
    responses = shell.taken()
    assert [response.request for response in responses] == requests
    assert [response.message.controller_id for response in responses] == [0, 1, 2]
    assert {(response.error, response.now_ns) for response in responses} == {(None, 5)}


def test_D17_request_without_response_is_done_when_written() -> None:
    shell = Shell(acks=0)
    peer = shell.ready()
    request = shell.produce(written=False)
    shell.write(peer, 3)
    assert shell.taken() == []
    shell.now_ns = 9
    shell.write(peer)
    assert shell.taken() == [Response(request, None, None, 9)]
    assert shell.connections.in_flight_count() == 0
    assert shell.connections.is_ready(-1, 9)


def test_D17_a_disconnect_before_that_is_an_error() -> None:
    shell = Shell(acks=0)
    peer = shell.ready()
    request = shell.produce(written=False)
    shell.write(peer, 3)
    shell.close(peer)
    (response,) = shell.taken()
    assert response.request is request
    assert isinstance(response.error, NetworkError)
    assert request.was_written


def test_unwritable_message_is_refused_and_not_sent() -> None:
    shell = Shell()
    peer = shell.ready()
    with pytest.raises(ProtocolError):
        shell.send(messages.MetadataRequest(topics="no"), -1, written=False)  # type: ignore[arg-type]
    assert shell.connections.in_flight_count() == 0
    shell.ask()
    shell.answer(peer, METADATA())
    assert codes(shell.taken()) == [type(None)]


def test_a_version_may_be_given() -> None:
    shell = Shell()
    peer = shell.ready()
    request = shell.ask(version=4)
    assert request.api_version == 4
    assert peer.requests()[-1].version == 4
    shell.answer(peer, METADATA())
    assert codes(shell.taken()) == [type(None)]


def test_answers_may_bring_new_requests() -> None:
    shell = Shell()
    peer = shell.ready()
    asked: list[Response] = []

    def ask_again(response: Response) -> None:
        asked.append(response)
        if len(asked) < 3:
            shell.connections.send(-1, messages.MetadataRequest(topics=[]), ask_again, shell.now_ns)

    shell.connections.send(-1, messages.MetadataRequest(topics=[]), ask_again, 0)
    for _ in range(3):
        shell.poll()
        shell.write(peer)
        shell.answer(peer, METADATA())
    assert len(asked) == 3


# The end of a connection


def test_N06_disconnect_fails_all_requests_in_order() -> None:
    shell = Shell()
    peer = shell.ready()
    requests = [shell.ask(), shell.ask(), shell.ask(written=False)]
    shell.close(peer, ConnectionResetError("reset by peer"))
    responses = shell.taken()
    assert [response.request for response in responses] == requests
    assert codes(responses) == [NetworkError] * 3
    assert "reset by peer" in str(responses[0].error)
    assert [request.was_written for request in requests] == [True, True, False]
    assert shell.connections.poll_disconnected() == [-1]
    assert shell.connections.poll_disconnected() == []
    assert shell.connections.in_flight_count() == 0
    assert not shell.connections.is_connected(-1)


def test_N06_what_was_not_fetched_for_writing_is_withdrawn() -> None:
    shell = Shell(request_timeout_ms=1000, linger_ms=0)
    peer = shell.ready()
    shell.ask()
    shell.now_ns = 999 * MS
    shell.connections.send(-1, messages.MetadataRequest(topics=[]), shell.responses.append, shell.now_ns)
    shell.now_ns = 1000 * MS
    shell.connections.handle_timeout(shell.now_ns)
    assert [type(action) for action in shell.connections.poll_actions()] == [Close]
    assert [response.request.was_written for response in shell.taken()] == [True, False]
    assert peer.unwritten == b""


def test_connection_never_requested_need_not_be_closed() -> None:
    shell = Shell()
    shell.connections.connect(-1, 0)
    shell.poll()
    name = shell.resolves.pop()
    shell.connections.handle_resolved(*name[:2], [(2, ("10.0.0.1", 9092))], 0)
    shell.connections.rebootstrap(0)
    assert shell.connections.poll_actions() == []


def test_N07_late_response_closes_connection_and_is_ignored() -> None:
    shell = Shell(request_timeout_ms=1000, linger_ms=0)
    peer = shell.ready()
    late = shell.ask()
    shell.advance(500 * MS)
    other = shell.ask()
    shell.advance(499 * MS)
    assert shell.taken() == []
    shell.advance(MS)
    assert peer.is_closed
    responses = shell.taken()
    assert [response.request for response in responses] == [late, other]
    assert codes(responses) == [KafkaTimeoutError, NetworkError]
    assert responses[0].error is not None
    assert responses[0].error.code == ErrorCode.REQUEST_TIMED_OUT
    assert "1000 ms" in str(responses[0].error)
    shell.answer(peer, METADATA())
    shell.connections.handle_written(peer.connection_id, 1, shell.now_ns)
    shell.connections.handle_connected(peer.connection_id, shell.now_ns)
    shell.connections.handle_closed(peer.connection_id, None, shell.now_ns)
    assert shell.taken() == []
    assert shell.poll() == []


def test_N07_a_request_may_have_a_timeout_of_its_own() -> None:
    shell = Shell()
    peer = shell.ready()
    shell.ask(timeout_ns=SECOND)
    shell.advance(SECOND)
    assert peer.is_closed
    assert codes(shell.taken()) == [KafkaTimeoutError]


@pytest.mark.parametrize("data", [b"\0\0\0\4\0\0\0\7", b"\xff\xff\xff\xff", b"\0\0\0\3\0\0\0"])
def test_N07_bytes_that_are_no_answer_end_the_connection(data: bytes) -> None:
    shell = Shell()
    peer = shell.ready()
    shell.ask()
    shell.ask()
    shell.give(peer, data)
    assert peer.is_closed
    responses = shell.taken()
    assert codes(responses) == [NetworkError, NetworkError]
    assert responses[0].error is not None
    assert isinstance(responses[0].error.__cause__, ProtocolError)


def test_N07_unreadable_response_fails_request_and_connection() -> None:
    shell = Shell()
    peer = shell.ready()
    first, second = shell.ask(), shell.ask()
    frame = first.correlation_id.to_bytes(4, "big") + b"\0garbage"
    shell.give(peer, len(frame).to_bytes(4, "big") + frame)
    responses = shell.taken()
    assert [response.request for response in responses] == [first, second]
    assert codes(responses) == [ProtocolError, NetworkError]
    assert peer.is_closed


def test_request_may_read_its_own_answer() -> None:
    shell = Shell()
    peer = shell.ready()
    answer = messages.MetadataResponse(throttle_time_ms=7)
    frames: list[bytes] = []

    def read(request: Request, frame: bytes | memoryview) -> Any:
        frames.append(bytes(frame))
        return answer

    request = shell.ask(read=read)
    shell.answer(peer, messages.MetadataResponse())
    (response,) = shell.taken()
    assert response.message is answer
    assert not shell.connections.is_ready(-1, shell.now_ns)  # throttled as it says
    (frame,) = frames
    assert int.from_bytes(frame[:4], "big") == request.correlation_id


def no_memory(*_: Any) -> Any:
    raise MemoryError("no memory for a frame")


@pytest.mark.parametrize("place", ["memory", "read"])
def test_answer_without_memory_fails_its_connection_and_is_tried_again(
    place: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It used to end the client for good."""
    shell = Shell()
    for _ in range(3):
        peer = shell.ready()
        options: dict[str, Any] = {place: no_memory}
        shell.ask(**options)
        shell.ask()
        shell.give(peer, (70_000).to_bytes(4, "big") + bytes([0, 0, 0, 1]))
        if not peer.is_closed:
            shell.give(peer, bytes(69_996))
        assert peer.is_closed
        responses = shell.taken()
        assert codes(responses) == [NetworkError, NetworkError]
        assert "there was no memory for an answer (no memory for a frame)" in str(responses[0].error)
        assert shell.connections.delay_ns(-1, shell.now_ns) >= 40 * MS
        shell.advance(2 * SECOND)
    assert len([each for each in caplog.records if each.levelno >= logging.WARNING]) == 1
    shell.ready()


def test_N07_bytes_after_bad_ones_are_ignored() -> None:
    shell = Shell()
    peer = shell.ready()
    shell.give(peer, b"\0\0\0\4\0\0\0\7" * 5)
    assert peer.is_closed
    assert shell.connections.delay_ns(-1, 0) <= 60 * MS  # it counts as one failure


def test_N07_answers_before_the_bad_one_count() -> None:
    shell = Shell()
    peer = shell.ready()
    request = shell.ask(version=0)
    shell.ask()
    body = b"".join(codec.encode(METADATA(), 0))
    frame = request.correlation_id.to_bytes(4, "big") + body
    shell.give(peer, len(frame).to_bytes(4, "big") + frame + b"\xff\xff\xff\xff")
    assert codes(shell.taken()) == [type(None), NetworkError]


def test_a_node_that_does_not_accept_us_is_known_until_it_does() -> None:
    shell = Shell()
    peer = shell.begin(-1)
    error = AuthenticationError("no")
    shell.close(peer, error)
    assert shell.connections.authentication_error is error
    shell.advance(SECOND)
    shell.ready()
    assert shell.connections.authentication_error is None


# Throttling


def test_D15_throttled_node_gets_no_requests_and_no_timeouts() -> None:
    shell = Shell(request_timeout_ms=1000, linger_ms=0)
    peer = shell.ready()
    shell.ask()
    waiting = shell.ask()
    shell.answer(peer, METADATA(throttle_time_ms=5000))
    assert not shell.connections.is_ready(-1, shell.now_ns)
    assert shell.connections.delay_ns(-1, shell.now_ns) == 5 * SECOND
    assert shell.connections.least_loaded(shell.now_ns) is None
    shell.advance(5 * SECOND)
    assert not peer.is_closed
    assert shell.connections.is_ready(-1, shell.now_ns)
    shell.advance(999 * MS)
    assert not peer.is_closed
    shell.advance(MS)
    assert peer.is_closed
    assert shell.taken()[-1].request is waiting


@pytest.mark.parametrize(("version", "throttles"), [(5, False), (6, True)])
def test_D15_before_KIP_219_it_was_the_broker_that_waited(version: int, throttles: bool) -> None:
    shell = Shell()
    peer = shell.ready()
    shell.ask(version=version)
    shell.answer(peer, METADATA(throttle_time_ms=100))
    assert shell.connections.is_ready(-1, shell.now_ns) is not throttles


def test_D15_a_shorter_throttle_does_not_end_a_longer_one() -> None:
    shell = Shell()
    peer = shell.ready()
    shell.ask()
    shell.ask()
    shell.answer(peer, METADATA(throttle_time_ms=5000))
    shell.answer(peer, METADATA(throttle_time_ms=1))
    assert shell.connections.delay_ns(-1, 0) == 5 * SECOND


def test_throttle_is_bounded_logged_once_and_named_as_the_hindrance(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    shell = Shell()
    peer = shell.ready()
    shell.ask()
    shell.ask()
    shell.answer(peer, METADATA(throttle_time_ms=2**31 - 1))
    assert shell.connections.delay_ns(-1, 0) == 60 * SECOND
    shell.advance(20 * SECOND)
    expected = "node -1 (a:9092) throttles this client, by a quota of the cluster, for another 40.0 s"
    assert str(shell.connections.hindrance(shell.now_ns)) == expected
    shell.answer(peer, METADATA(throttle_time_ms=30_000))
    shell.advance(40 * SECOND)
    assert shell.connections.hindrance(shell.now_ns) is None
    shell.ask()
    shell.answer(peer, METADATA())
    shell.ask()
    shell.answer(peer, METADATA(throttle_time_ms=999))  # how quotas work
    assert [(each.levelname, each.message) for each in caplog.records] == [
        ("WARNING", "node -1 (a:9092) throttles this client for 60.0 s, by a quota of the cluster"),
        ("INFO", "node -1 (a:9092) throttles no more, after 60 s"),
    ]


# Idle connections


def test_idle_connection_is_closed_unless_request_in_flight() -> None:
    shell = Shell(connections_max_idle_ms=10_000, request_timeout_ms=60_000, delivery_timeout_ms=120_000)
    peer = shell.ready()
    shell.advance(9 * SECOND)
    shell.ask()
    shell.advance(20 * SECOND)
    assert not peer.is_closed
    shell.answer(peer, METADATA())
    shell.advance(10 * SECOND - 1)
    assert not peer.is_closed
    shell.advance(1)
    assert peer.is_closed
    assert shell.connections.poll_disconnected() == []  # nothing is wrong with the node
    assert shell.connections.delay_ns(-1, shell.now_ns) == 0
    shell.ready()


def test_a_negative_idle_time_keeps_connections() -> None:
    shell = Shell(connections_max_idle_ms=-1)
    peer = shell.ready()
    shell.advance(10**6 * SECOND)
    assert not peer.is_closed
    assert shell.connections.deadline_ns == NEVER


# Metrics


def values(registry: MetricsRegistry, group: str) -> dict[str, float]:
    return {name.name: value for name, value in registry.snapshot(1000).items() if name.group == group}


def test_connections_requests_and_bytes_are_counted() -> None:
    registry = MetricsRegistry("me")
    shell = Shell(registry=registry)
    peer = shell.ready(-1)
    request = shell.ask()
    shell.now_ns = 8 * MS
    shell.answer(peer, METADATA())
    shell.ask()
    found = values(registry, "producer-metrics")
    assert found["connection-count"] == found["connection-creation-total"] == 1
    assert found["requests-in-flight"] == 1
    assert found["request-total"] == 3
    assert found["response-total"] == 2
    assert found["outgoing-byte-total"] == len(peer.received)
    assert found["incoming-byte-total"] == peer.answered_bytes
    assert found["network-io-total"] == 5  # three requests and two answers, each in one piece
    of_node = values(registry, "producer-node-metrics")
    assert of_node["request-total"] == 3
    assert of_node["request-size-max"] >= request.end_offset - request.start_offset
    for name in ("incoming-byte-total", "outgoing-byte-total", "response-total"):
        assert of_node[name] == found[name]
    shell.close(peer)
    found = values(registry, "producer-metrics")
    assert found["connection-count"] == found["requests-in-flight"] == 0
    assert found["connection-close-total"] == 1


def test_actions_come_once_and_in_order() -> None:
    shell = Shell()
    shell.connections.connect(-1, 0)
    assert shell.connections.poll_actions() == [Resolve("a", 9092)]
    assert shell.connections.poll_actions() == []
    shell.connections.handle_resolved("a", 9092, [(2, ("10.0.0.1", 9092))], 0)
    (connect,) = shell.connections.poll_actions()
    assert isinstance(connect, Connect)
    assert connect == Connect(connect.connection_id, -1, "a", 9092, 2, ("10.0.0.1", 9092))
    shell.connections.handle_connected(connect.connection_id, 0)
    (write,) = shell.connections.poll_actions()
    assert isinstance(write, Write)
    assert write.size_bytes == sum(map(len, write.buffers))
    with pytest.raises(IllegalStateError):
        shell.connections.handle_connected(connect.connection_id, 0)  # it cannot happen twice


def test_the_same_seed_does_the_same() -> None:
    def story(seed: int) -> list[int | None]:
        shell = Shell(seed=seed)
        shell.connections.set_nodes(NODES)
        return [shell.connections.least_loaded(0) for _ in range(20)]

    assert story(3) == story(3)


# Connections: how nodes are reached, which one is chosen, and what happens to those that leave.

REFUSED = ConnectionRefusedError("refused")


def cluster(**settings: Any) -> Shell:
    """Make connections for three nodes, none of them connected."""
    shell = Shell(**settings)
    shell.connections.set_nodes(NODES)
    shell.advance(0)
    return shell


# Names and addresses


def test_N08_all_addresses_are_tried_before_resolving_again() -> None:
    shell = Shell()
    peer = shell.begin(-1, address(1), address(2), address(3))
    tried = [peer.action.sockaddr]
    for _ in range(2):
        shell.close(peer, REFUSED)
        peer = shell.peer(-1)
        tried.append(peer.action.sockaddr)
    assert [sockaddr for _, sockaddr in map(address, (1, 2, 3))] == tried
    assert shell.connections.poll_disconnected() == []
    shell.close(peer, REFUSED)
    assert shell.connections.poll_disconnected() == [-1]
    assert shell.connections.delay_ns(-1, 0) > 0
    shell.connections.connect(-1, 0)  # too early
    assert shell.poll() == []
    shell.advance(SECOND)
    peer = shell.begin(-1, address(3), address(1))
    assert peer.action.sockaddr == address(1)[1]  # not the one that failed last


def test_N08_name_is_resolved_again_after_a_connection() -> None:
    shell = Shell()
    peer = shell.connect(-1, address(1), address(2))
    shell.answer(peer, versions_answer())
    shell.close(peer)
    shell.advance(SECOND)
    shell.connections.connect(-1, shell.now_ns)
    shell.poll()
    shell.resolve(address(1), address(2))
    assert shell.peer(-1).action.sockaddr == address(2)[1]


@pytest.mark.parametrize("addresses", [(), OSError("no such name")])
def test_N08_failed_resolution_is_retried_after_a_pause(addresses: Any) -> None:
    shell = Shell()
    shell.connections.connect(-1, 0)
    shell.poll()
    name = shell.resolves.pop()
    shell.connections.handle_resolved(*name[:2], addresses, 0)
    assert 40 * MS <= shell.connections.delay_ns(-1, 0) <= 60 * MS
    assert shell.connections.poll_disconnected() == [-1]
    shell.advance(60 * MS)
    shell.ready()


def test_N08_one_lookup_serves_all_nodes_of_a_name() -> None:
    shell = Shell()
    shell.connections.connect(-1, 0)
    shell.connections.set_nodes({1: Node(1, "a", 9092, None), 2: Node(2, "a", 9092, None)})
    shell.connections.connect(1, 0)
    shell.connections.connect(2, 0)
    shell.poll()
    assert len(shell.resolves) == 1
    shell.resolve(address(1))
    assert {peer.action.node_id for peer in shell.peers.values()} == {1, 2}


def test_bootstrap_servers_get_their_canonical_names_if_wanted() -> None:
    shell = Shell(client_dns_lookup="resolve_canonical_bootstrap_servers_only")
    shell.connections.connect(-1, 0)
    shell.poll()
    assert [name.canonical for name in shell.resolves] == [True]
    shell.resolve((*address(1), "one.example"), address(2))
    assert shell.peer(-1).action.host == "one.example"
    shell.close(shell.peer(-1), REFUSED)
    assert shell.peer(-1).action.host == "a"  # the second address has no name
    shell.connections.set_nodes({1: Node(1, "a", 9092, None)})
    shell.connections.connect(1, 0)
    shell.poll()
    assert [name.canonical for name in shell.resolves] == [False]


def test_names_of_servers_stay_as_they_are_by_default() -> None:
    shell = Shell()
    shell.connections.connect(-1, 0)
    shell.poll()
    assert [name.canonical for name in shell.resolves] == [False]


def test_N08_hanging_resolver_is_not_awaited_nor_called_twice() -> None:
    shell = Shell()
    shell.connections.connect(-1, 0)
    shell.poll()
    shell.advance(12 * SECOND)
    assert shell.connections.poll_disconnected() == [-1]
    shell.connections.connect(-1, shell.now_ns)
    shell.poll()
    assert len(shell.resolves) == 1  # the first question is still out, and its answer will do
    shell.resolve(address(1))
    assert shell.peer(-1).action.sockaddr == address(1)[1]


# Time


def test_N08_setup_timeout_doubles_from_ten_to_thirty_seconds() -> None:
    shell = Shell()
    for expected in (10, 20, 30, 30):
        shell.begin(-1)
        start_ns = shell.now_ns
        peer = shell.peer(-1)
        shell.advance(int(min(0.8 * expected, 30) * SECOND) - 1)
        assert not peer.is_closed
        while not peer.is_closed:
            shell.advance(100 * MS)
        assert shell.now_ns - start_ns <= min(1.2 * expected, 30) * SECOND + 100 * MS
        shell.advance(2 * SECOND)
    shell.ready()
    shell.close(shell.peer(-1))
    shell.advance(SECOND)
    peer = shell.begin(-1)
    shell.advance(12 * SECOND)
    assert peer.is_closed  # it is ten seconds again


def test_connection_that_the_client_does_not_begin_says_why() -> None:
    shell = Shell(socket_connection_setup_timeout_ms=1000, socket_connection_setup_timeout_max_ms=1000)
    peer = shell.begin(-1)
    assert shell.connections.hindrance(shell.now_ns) is None
    shell.connections.handle_preparing(peer.connection_id, "still reads x.pem")
    assert "not connected yet: still reads x.pem" in str(shell.connections.hindrance(shell.now_ns))
    while not peer.is_closed:
        shell.advance(100 * MS)
    failure = str(shell.connections.last_failure)
    assert "not connected in time: still reads x.pem" in failure
    shell.connections.handle_preparing(peer.connection_id, "")  # too late
    peer = shell.begin(-1)
    shell.connections.handle_preparing(peer.connection_id, "still reads y.pem")
    shell.connections.handle_preparing(peer.connection_id, "")
    assert str(shell.connections.hindrance(shell.now_ns)) == failure


def test_N08_pauses_double_to_a_second_and_reset_after_success() -> None:
    shell = Shell()
    for expected in (50, 100, 200, 400, 800, 1000, 1000):
        shell.close(shell.begin(-1), REFUSED)
        delay_ns = shell.connections.delay_ns(-1, shell.now_ns)
        assert 0.8 * expected * MS <= delay_ns <= min(1.2 * expected, 1000) * MS
        shell.advance(delay_ns)
    shell.close(shell.connect(-1))  # an end in the handshake counts as a failure too
    assert shell.connections.delay_ns(-1, shell.now_ns) >= 800 * MS
    shell.advance(SECOND)
    shell.close(shell.ready())  # and so does one that is of no use
    assert shell.connections.delay_ns(-1, shell.now_ns) >= 800 * MS
    shell.advance(SECOND)
    peer = shell.ready()
    shell.advance(SECOND + MS)
    shell.close(peer)
    assert shell.connections.delay_ns(-1, shell.now_ns) <= 60 * MS


def test_connecting_node_has_no_delay() -> None:
    shell = Shell()
    shell.begin(-1)
    assert shell.connections.delay_ns(-1, 0) == NEVER
    assert shell.connections.delay_ns(5, 0) == NEVER
    shell.connections.connect(5, 0)
    assert shell.poll() == []


# Which node


def test_N10_node_with_fewest_requests_is_chosen() -> None:
    shell = cluster()
    for node_id in NODES:
        shell.ready(node_id)
    for node_id in (1, 1, 2, 3, 3):
        shell.ask(node_id)
    assert shell.connections.least_loaded(0) == 2


def test_N10_ready_nodes_come_first_then_connecting_then_idle() -> None:
    shell = cluster()
    found = {shell.connections.least_loaded(0) for _ in range(50)}
    assert found == {1, 2, 3}  # all alike: chance decides
    shell.now_ns = 5
    shell.close(shell.begin(1), REFUSED)
    shell.advance(SECOND)
    shell.close(shell.begin(2), REFUSED)
    shell.close(shell.begin(3), REFUSED)
    assert shell.connections.least_loaded(shell.now_ns) == 1
    shell.advance(SECOND)
    assert {shell.connections.least_loaded(shell.now_ns) for _ in range(20)} == {1}
    shell.begin(2)
    assert shell.connections.least_loaded(shell.now_ns) == 2
    shell.ready(3)
    assert shell.connections.least_loaded(shell.now_ns) == 3


def test_N10_others_come_before_a_node_that_hangs_while_it_connects() -> None:
    shell = cluster()
    shell.connect(1)

    def chosen() -> set[int | None]:
        return {shell.connections.least_loaded(shell.now_ns) for _ in range(20)}

    shell.advance(SECOND - MS)
    assert chosen() == {1}
    shell.advance(MS)  # it has not answered ApiVersions
    assert chosen() == {2, 3}
    shell.close(shell.begin(2), REFUSED)
    shell.advance(SECOND)
    shell.begin(2)
    assert chosen() == {3}  # neither has 2 while it is tried again
    shell.close(shell.begin(3), REFUSED)
    assert chosen() <= {1, 2}


def test_N10_no_node_is_chosen_if_none_is_available() -> None:
    shell = Shell(bootstrap_servers="a:9092,b:9092")
    for node_id in (-1, -2):
        shell.close(shell.begin(node_id), REFUSED)
    assert shell.connections.least_loaded(0) is None
    shell.advance(60 * MS)
    assert shell.connections.least_loaded(shell.now_ns) in (-1, -2)


def test_N10_full_or_writing_node_gets_no_requests() -> None:
    shell = Shell(max_in_flight_requests_per_connection=1)
    peer = shell.ready()
    shell.ask(written=False)
    assert shell.connections.least_loaded(0) is None
    shell.write(peer)
    assert shell.connections.least_loaded(0) is None
    shell.answer(peer, METADATA())
    assert shell.connections.least_loaded(0) == -1


# Nodes come and go


def test_idle_bootstrap_connections_close_with_cluster_known() -> None:
    shell = Shell(bootstrap_servers="a:9092,b:9092")
    idle, busy = shell.ready(-1), shell.ready(-2)
    shell.ask(-2)
    shell.connections.set_nodes(NODES)
    assert not shell.connections.is_ready(-2, 0)
    assert shell.connections.least_loaded(0) in NODES
    shell.advance(0)
    assert idle.is_closed
    assert not busy.is_closed
    shell.answer(busy, METADATA())
    assert len(shell.taken()) == 1
    assert busy.is_closed
    assert not shell.connections.is_connected(-2)
    assert shell.connections.poll_disconnected() == []


def test_returning_node_keeps_connection_with_request_in_flight() -> None:
    shell = cluster()
    peer = shell.ready(1)
    shell.ask(1)
    shell.connections.set_nodes({2: NODES[2]})
    shell.advance(0)
    shell.connections.set_nodes(NODES)
    shell.advance(0)
    assert shell.connections.is_ready(1, shell.now_ns)
    shell.answer(peer, METADATA())
    assert not peer.is_closed


def test_0151_vanished_node_gets_no_connection() -> None:
    shell = cluster()
    peer = shell.begin(1)
    shell.connections.set_nodes({2: NODES[2]})
    shell.advance(0)
    assert peer.is_closed
    shell.connections.connect(1, shell.now_ns)
    assert shell.poll() == []
    assert shell.connections.delay_ns(1, shell.now_ns) == NEVER


def test_vanished_node_whose_connection_breaks_returns_backed_off() -> None:
    shell = cluster()
    peer = shell.ready(1)
    shell.ask(1)
    shell.connections.set_nodes({2: NODES[2]})
    shell.advance(0)
    shell.close(peer)
    assert isinstance(shell.taken()[0].error, NetworkError)
    shell.advance(0)
    shell.connections.set_nodes(NODES)
    assert 40 * MS <= shell.connections.delay_ns(1, shell.now_ns) <= 60 * MS
    assert shell.connections.delay_ns(2, shell.now_ns) == 0


@pytest.mark.parametrize("stage", ["resolving", "connecting", "idle", "busy"])
def test_a_node_that_moved_is_connected_to_at_its_new_place(stage: str) -> None:
    shell = cluster()
    moved = {**NODES, 1: Node(1, "elsewhere", 9093, None)}
    if stage == "resolving":
        shell.connections.connect(1, 0)
        shell.poll()
    elif stage == "connecting":
        shell.begin(1)
    else:
        shell.ready(1)
    if stage == "busy":
        shell.ask(1)
    for _ in range(2):  # and the next metadata says the same
        shell.connections.set_nodes(moved)
        assert not shell.connections.is_ready(1, shell.now_ns)
        shell.advance(0)
    if stage == "busy":
        assert not shell.peer(1).is_closed
        shell.answer(shell.peer(1), METADATA())
    assert all(peer.is_closed for peer in shell.peers.values())
    shell.resolves.clear()
    shell.connections.connect(1, shell.now_ns)
    shell.poll()
    assert [name.host for name in shell.resolves] == ["elsewhere"]
    shell.resolve(address(9))
    assert shell.peer(1).action.port == 9093


def test_no_nodes_at_all_leave_the_bootstrap_nodes_as_they_are() -> None:
    shell = Shell()
    shell.ready()
    shell.connections.set_nodes({})
    assert shell.connections.is_ready(-1, 0)


# Starting over


def test_N12_rebootstrap_closes_all_and_fails_requests_in_order() -> None:
    shell = cluster()
    first, second = shell.ready(1), shell.ready(2)
    requests = [shell.ask(1), shell.ask(1), shell.ask(2)]
    shell.connections.rebootstrap(shell.now_ns)
    assert [type(action) for action in shell.poll()] == [Close, Close]
    assert first.is_closed
    assert second.is_closed
    responses = shell.taken()
    assert [response.request for response in responses] == requests
    assert all(isinstance(response.error, NetworkError) for response in responses)
    assert shell.connections.least_loaded(shell.now_ns) == -1
    assert shell.connections.delay_ns(1, shell.now_ns) == NEVER
    shell.connections.connect(-1, shell.now_ns)
    shell.poll()
    assert [name.host for name in shell.resolves] == ["a"]
    shell.resolve(address(1))


def test_N12_rebootstrap_while_starting_resolves_names_again() -> None:
    shell = Shell()
    peer = shell.begin(-1, address(1), address(2))
    shell.connections.rebootstrap(0)
    shell.poll()
    assert peer.is_closed
    assert 40 * MS <= shell.connections.delay_ns(-1, 0) <= 60 * MS
    shell.advance(60 * MS)
    shell.connections.connect(-1, shell.now_ns)
    shell.poll()
    assert len(shell.resolves) == 1


def test_N12_client_is_cut_off_when_every_node_is_backed_off() -> None:
    shell = Shell()
    shell.close(shell.begin(-1), REFUSED)
    assert not shell.connections.is_cut_off(0)  # of bootstrap.servers there is nothing to start over from
    shell.connections.set_nodes({1: NODES[1], 2: NODES[2]})
    shell.advance(0)
    assert not shell.connections.is_cut_off(0)
    shell.close(shell.begin(1), REFUSED)
    assert not shell.connections.is_cut_off(0)
    shell.close(shell.begin(2), REFUSED)
    assert shell.connections.is_cut_off(0)
    shell.advance(60 * MS)
    assert not shell.connections.is_cut_off(shell.now_ns)
    shell.close(shell.begin(1), REFUSED)
    shell.begin(2)
    assert not shell.connections.is_cut_off(shell.now_ns)


def test_N12_starting_over_is_backed_off_and_keeps_the_back_off_of_nodes() -> None:
    shell = cluster()
    waits_ns = []
    for _ in range(8):
        shell.connections.set_nodes({1: NODES[1]})
        shell.advance(0)
        if not shell.connections.delay_ns(1, shell.now_ns):
            shell.close(shell.begin(1), REFUSED)
        begin_ns = shell.now_ns
        while not shell.connections.is_cut_off(shell.now_ns):
            shell.advance(MS)
            if not shell.connections.delay_ns(1, shell.now_ns):
                shell.close(shell.begin(1), REFUSED)
        waits_ns.append(shell.now_ns - begin_ns)
        shell.connections.rebootstrap(shell.now_ns)
        shell.poll()
    assert waits_ns[0] == 0
    assert all(wait_ns >= 600 * MS for wait_ns in waits_ns[-3:])
    shell.connections.set_nodes({1: Node(1, "elsewhere", 9092, None)})
    assert shell.connections.delay_ns(1, shell.now_ns) == 0


@pytest.mark.parametrize("answers", [0, 1])
def test_node_that_accepts_and_closes_is_backed_off_and_logged_once(
    answers: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A load balancer without a target; a broker that ends each connection after its first answer."""
    caplog.set_level(logging.INFO)
    shell = cluster()
    attempts = 0
    while shell.now_ns < 60 * SECOND:
        peer = shell.ready(1)
        attempts += 1
        for _ in range(answers):
            shell.ask(1)
            shell.answer(peer, METADATA())
        shell.close(peer)
        shell.advance(max(shell.connections.delay_ns(1, shell.now_ns), MS))
    assert attempts <= 80
    assert len([each for each in caplog.records if each.levelno >= logging.WARNING]) == 1
    assert len(caplog.records) <= 2


def test_end_of_a_useful_connection_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    shell = cluster()
    peer = shell.ready(1)
    shell.ask(1)
    shell.answer(peer, METADATA())
    shell.advance(SECOND)
    shell.close(peer)
    shell.advance(SECOND)
    shell.close(shell.begin(1), REFUSED)
    shell.advance(SECOND)
    peer = shell.ready(1)
    shell.advance(SECOND)
    shell.ask(1)
    shell.answer(peer, METADATA())
    assert [each.levelname for each in caplog.records] == ["INFO", "WARNING", "INFO"]
    assert caplog.records[-1].message == "node 1 (host1:9092) answers again, after 2 s"


def test_N12_a_throttled_node_is_not_out_of_reach() -> None:
    shell = cluster()
    shell.connections.set_nodes({1: NODES[1]})
    peer = shell.ready(1)
    shell.ask(1)
    shell.answer(peer, METADATA(throttle_time_ms=1000))
    assert shell.connections.least_loaded(shell.now_ns) is None
    assert not shell.connections.is_cut_off(shell.now_ns)


# Lanes


def purposes() -> tuple[Shell, list[Peer]]:
    """Make node 1 with a ready connection for each of two purposes."""
    shell = cluster(purpose_count=2, max_in_flight_requests_per_connection=1)
    return shell, [shell.ready(1, purpose=purpose) for purpose in range(2)]


def test_a_lane_has_a_connection_of_its_own_when_it_is_used() -> None:
    shell = cluster(purpose_count=2)
    shell.ready(1)
    assert not shell.connections.is_connected(1, purpose=1)
    assert shell.connections.delay_ns(1, shell.now_ns, purpose=1) == 0
    second = shell.ready(1, purpose=1)
    assert [peer.action.node_id for peer in shell.peers.values()] == [1, 1]
    assert second.action.host == NODES[1].host


def test_an_unanswered_request_holds_up_its_lane_only() -> None:
    shell, (first, second) = purposes()
    shell.connections.send(1, messages.MetadataRequest(topics=[]), shell.responses.append, shell.now_ns)
    shell.poll()
    shell.write(first)
    assert not shell.connections.is_ready(1, shell.now_ns)
    assert shell.connections.is_ready(1, shell.now_ns, purpose=1)
    asked = messages.MetadataRequest(topics=[])
    shell.connections.send(1, asked, shell.responses.append, shell.now_ns, purpose=1)
    shell.poll()
    shell.write(second)
    assert shell.connections.in_flight_count(1) == shell.connections.in_flight_count() == 2
    shell.answer(second, METADATA(throttle_time_ms=500))
    (response,) = shell.taken()
    assert response.request.node_id == 1
    assert shell.connections.delay_ns(1, shell.now_ns, purpose=1) == 500 * MS
    shell.answer(first, METADATA())
    assert shell.connections.is_ready(1, shell.now_ns)


def test_a_connection_that_breaks_backs_off_its_lane_only() -> None:
    shell, (first, _) = purposes()
    shell.close(first)
    assert shell.connections.poll_disconnected() == [1]
    assert shell.connections.delay_ns(1, shell.now_ns) > 0
    assert shell.connections.is_ready(1, shell.now_ns, purpose=1)


def test_N12_a_node_that_another_lane_reaches_is_not_out_of_reach() -> None:
    shell, (first, second) = purposes()
    shell.connections.set_nodes({1: NODES[1]})
    shell.close(first)
    assert not shell.connections.is_cut_off(shell.now_ns)
    shell.close(second)
    assert shell.connections.is_cut_off(shell.now_ns)


def test_a_node_that_leaves_or_moves_is_closed_for_all_purposes() -> None:
    shell, peers = purposes()
    shell.connections.set_nodes({**NODES, 1: Node(1, "elsewhere", 9092, None)})
    shell.advance(0)
    assert all(peer.is_closed for peer in peers)
    assert {shell.ready(1, purpose=purpose).action.host for purpose in range(2)} == {"elsewhere"}
    shell.connections.set_nodes({2: NODES[2]})
    shell.advance(0)
    assert all(peer.is_closed for peer in shell.peers.values())
    assert not any(shell.connections.is_connected(1, purpose) for purpose in range(2))


def test_starting_over_closes_all_purposes() -> None:
    shell, peers = purposes()
    shell.connections.rebootstrap(shell.now_ns)
    shell.poll()
    assert all(peer.is_closed for peer in peers)
    assert [shell.ready(-1, purpose=purpose).action.node_id for purpose in range(2)] == [-1, -1]


def test_any_node_requests_use_purpose_0() -> None:
    shell = cluster(purpose_count=2)
    shell.ready(2, purpose=1)
    assert shell.connections.least_loaded(shell.now_ns) is not None
    shell.ready(3)
    assert shell.connections.least_loaded(shell.now_ns) == 3


@pytest.mark.parametrize("port", [70_000, 65_536, -1, 2**31 - 1])
def test_an_advertised_port_that_is_none_is_not_connected_to(port: int) -> None:
    """Resolvers would take 4464 for 70000."""
    shell = Shell()
    shell.connections.set_nodes({1: Node(1, "broker", port, None)})
    shell.connections.connect(1, shell.now_ns)
    assert not shell.connections.is_connected(1)
    assert shell.connections.delay_ns(1, shell.now_ns) > 0
    text = str(shell.connections.last_failure)
    assert f"{port} is no port (0 to 65535)" in text
    assert "advertised.listeners" in text
