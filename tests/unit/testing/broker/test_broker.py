"""Broker over sockets: its life, its connections, inspection, storage, and wrong calls."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import threading
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

import kbatch.testing
from kbatch.errors import ErrorCode, IllegalStateError
from kbatch.protocol import messages
from kbatch.testing import Acls, Broker
from kbatch.testing.broker.core import BrokerCore
from kbatch.testing.broker.server import MAX_REQUEST_BYTES, QUEUED_BYTES, QUEUED_REQUESTS, Server
from tests import ROOT
from tests.oracle.kafka import free_ports
from tests.support.broker_core import TOPIC, VirtualBroker, fetched
from tests.support.broker_wire import TIMEOUT_SECONDS, Wire, fetch_request, produce
from tests.support.patience import HANG_MS, repeat_until, until
from tests.support.running_threads import threads_named

DOCS = ROOT / "docs" / "broker.md"


def broker_threads() -> set[threading.Thread]:
    return set(threads_named("kbatch-broker"))


def new_server(**limits: Any) -> Server:
    """Return a server of one node, on whichever port is free."""
    state = VirtualBroker().state
    for node in state.cluster.nodes:
        node.ports = []
    return Server(BrokerCore(state), "127.0.0.1", [[0]], **limits)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({TOPIC: 4}, nodes=3) as broker:
        yield broker


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    with Wire(broker.bootstrap_servers) as wire:
        yield wire


# Life


def test_broker_runs_from_start_to_stop() -> None:
    others = broker_threads()
    broker = Broker([TOPIC, "other"])
    with pytest.raises(IllegalStateError, match="start it, or use it in a with block"):
        _ = broker.bootstrap_servers
    assert broker.start() is broker
    address = broker.bootstrap_servers
    with pytest.raises(IllegalStateError, match="runs already"):
        broker.start()
    with Wire(address) as wire:
        answer = wire.ask(messages.MetadataRequest(topics=None))
        assert [(topic.name, len(topic.partitions)) for topic in answer.topics] == [(TOPIC, 1), ("other", 1)]
        assert [f"{node.host}:{node.port}" for node in answer.brokers] == [address]
        broker.stop()
        assert wire.is_closed
    broker.stop()
    assert broker_threads() <= others
    with pytest.raises(ConnectionRefusedError):
        Wire(address)
    for call in (lambda: broker.records(TOPIC), broker.requests, lambda: broker.bootstrap_servers):
        with pytest.raises(IllegalStateError, match="does not run"):
            call()
    broker.stop()


def test_restarted_broker_keeps_ports_but_nothing_in_memory() -> None:
    broker = Broker([TOPIC], nodes=2)
    with broker:
        address = broker.bootstrap_servers
        with Wire(address) as wire:
            produce(wire, b"x")
    with broker:
        assert broker.bootstrap_servers == address
        assert broker.records(TOPIC) == []


def test_nodes_listen_on_consecutive_ports_when_one_is_given() -> None:
    port = free_ports(3)[0]
    with Broker(nodes=3, port=port) as broker:
        assert broker.bootstrap_servers == ",".join(f"127.0.0.1:{port + number}" for number in range(3))


def test_brokers_live_side_by_side() -> None:
    with Broker([TOPIC]) as one, Broker([TOPIC]) as two:
        with Wire(one.bootstrap_servers) as wire:
            produce(wire, b"x")
        assert (len(one.records(TOPIC)), len(two.records(TOPIC))) == (1, 0)


def test_port_in_use_leaves_nothing_open(tmp_path: Path) -> None:
    with Broker() as other:
        threads = broker_threads()
        port = int(other.bootstrap_servers.rsplit(":", 1)[1])
        taken = Broker([TOPIC], port=port, directory=tmp_path)
        with pytest.raises(OSError, match=str(port)):
            taken.start()
        assert broker_threads() <= threads
        with pytest.raises(OSError, match=str(port)):
            taken.start()
    with taken:
        assert taken.records(TOPIC) == []


def test_invalid_topic_leaves_nothing_open(tmp_path: Path) -> None:
    others = broker_threads()
    wrong = Broker({"good": 1, "bad": {"partitions": 1, "retention_ms": "soon"}}, directory=tmp_path)
    with pytest.raises(ValueError, match=r"topic 'bad': INVALID_CONFIG: Invalid value soon"):
        wrong.start()
    assert broker_threads() <= others
    with Broker(directory=tmp_path) as broker:
        assert broker.records("good") == []


def test_directory_belongs_to_one_broker_at_a_time(tmp_path: Path) -> None:
    with Broker(directory=tmp_path), pytest.raises(OSError, match="is used by another broker"):
        Broker(directory=tmp_path).start()
    with Broker(directory=tmp_path / "made" / "on the way"):
        pass
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        Broker(directory=tmp_path / "file").start()


def test_calls_from_other_threads_end_with_the_broker() -> None:
    broker = Broker([TOPIC]).start()
    errors = []

    def look() -> None:
        try:
            while True:
                broker.requests()
        except IllegalStateError as error:
            errors.append(error)

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    broker.stop()
    for thread in threads:
        thread.join(TIMEOUT_SECONDS)
    assert len(errors) == 3


# Invalid calls


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"nods": 3}, TypeError, "did you mean 'nodes'"),
        ({"auto_create_topic": True}, TypeError, "did you mean 'auto_create_topics'"),
        ({"zzz": True}, TypeError, "no 'zzz'; there are topics, directory, nodes"),
        ({"nodes": 0}, ValueError, "nodes must be 1 or more, got 0"),
        ({"port": -1}, ValueError, "port must leave room for 1 nodes below 65536, got -1"),
        ({"port": 65_535, "nodes": 2}, ValueError, "port must leave room for 2 nodes"),
        ({"topics": "events"}, TypeError, re.escape("for one topic write ['events']")),
        ({"topics": {"a": "4"}}, TypeError, r"topics\['a'\] must be a number of partitions"),
        ({"acls": {"topic_writes": []}}, TypeError, "acls has no 'topic_writes': did you mean 'topic_write'"),
        ({"transaction_version": 3}, ValueError, "transaction_version must be 0 to 2, got 3"),
        ({"producer_snapshot_batches": 0}, ValueError, "producer_snapshot_batches must be 1 to 5, got 0"),
        ({"internal_topic_partitions": 0}, ValueError, "internal_topic_partitions must be 1 to 10000"),
        ({"default_partitions": "1"}, ValueError, "default_partitions must be 1 to 10000, got '1'"),
        ({"min_insync_replicas": 0}, ValueError, "min_insync_replicas"),
        ({"group_initial_rebalance_delay_ms": -1}, ValueError, "group_initial_rebalance_delay_ms"),
    ],
)
def test_wrong_arguments_are_refused_at_once(arguments: dict[str, Any], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        Broker(**arguments)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda broker: broker.fail_next("Produse", 7), "did you mean 'Produce'"),
        (lambda broker: broker.fail_next("Produce", "REQUEST_TIMEDOUT"), "did you mean REQUEST_TIMED_OUT"),
        (lambda broker: broker.fail_next("Produce", 7, times=0), "times must be 1 or more"),
        (lambda broker: broker.drop_connection("Produce", when="now"), "'before' or 'after'"),
        (lambda broker: broker.delay("Produce", -1), "seconds must be 0 or more"),
        (lambda broker: broker.requests("Produces"), "did you mean 'Produce'"),
        (lambda broker: broker.move_leader("event", 0, 1), "unknown topic 'event'; did you mean 'events'"),
        (lambda broker: broker.move_leader("events", 4, 1), "topic 'events' must be 0 to 3, got 4"),
        (lambda broker: broker.move_leader("events", 0, 3), "node must be 0 to 2, got 3"),
        (lambda broker: broker.stop_node(-1), "node must be 0 to 2, got -1"),
        (lambda broker: broker.start_node(3), "node must be 0 to 2, got 3"),
        (lambda broker: broker.records("zzz"), "unknown topic 'zzz'$"),
        (lambda broker: broker.records("events", -1), "must be 0 to 3, got -1"),
        (lambda broker: broker.batches("event"), "did you mean 'events'"),
        (lambda broker: broker.producer_state("event", 0), "did you mean 'events'"),
        (lambda broker: broker.hold_high_watermark("event", 0), "did you mean 'events'"),
        (lambda broker: broker.forget_producers("event", 0), "did you mean 'events'"),
        (lambda broker: broker.delete_topic("event"), "did you mean 'events'"),
        (lambda broker: broker.create_partitions("event", 9), "did you mean 'events'"),
        (lambda broker: broker.create_partitions("events", 2), "INVALID_PARTITIONS"),
        (lambda broker: broker.create_topic("events"), "topic 'events': TOPIC_ALREADY_EXISTS"),
        (lambda broker: broker.create_topic("new", cleanup_policy="x"), "topic 'new': INVALID_CONFIG"),
    ],
)
def test_wrong_calls_are_value_errors_that_name_what_is_wrong(
    broker: Broker, call: Callable[[Broker], Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        call(broker)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "", "example.org"])
def test_address_that_others_reach_is_warned_of(host: str) -> None:
    with pytest.warns(UserWarning, match=f"listens on {host}: any client") as warned:
        Broker(host=host)
    assert warned[0].filename == __file__


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost", "::1"])
def test_loopback_is_not_warned_of(host: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        broker = Broker(host=host)
        try:
            broker.start()
        except OSError as error:
            pytest.skip(f"{host} is not there: {error}")
    try:
        host_part, port = broker.bootstrap_servers.rsplit(":", 1)
        assert host_part == (f"[{host}]" if ":" in host else host)
        with socket.create_connection((host, int(port)), TIMEOUT_SECONDS):
            pass
    finally:
        broker.stop()


# Connections


def test_frames_are_read_from_whatever_pieces_they_come_in(wire: Wire) -> None:
    for byte in wire.frame(messages.MetadataRequest(topics=[])):
        wire.socket.sendall(bytes([byte]))
    assert len(wire.receive().brokers) == 3


def test_requests_sent_together_are_answered_in_order(broker: Broker, wire: Wire) -> None:
    """The later requests are not handled even if the first one takes its time."""
    count = 3 * QUEUED_REQUESTS
    frames = [wire.frame(fetch_request(max_wait_ms=50), 12)]
    frames += [wire.frame(messages.MetadataRequest()) for _ in range(count)]
    wire.socket.sendall(b"".join(frames))
    answers = [wire.receive() for _ in frames]  # each has the next correlation id
    assert [type(answer) for answer in answers[1:]] == [messages.MetadataResponse] * count
    assert [request.api for request in broker.requests()] == ["Fetch"] + ["Metadata"] * count


@pytest.mark.parametrize("size", [-1, MAX_REQUEST_BYTES + 1, 2**31 - 1, 0])
def test_size_that_cannot_be_closes_the_connection(wire: Wire, size: int) -> None:
    wire.socket.sendall(size.to_bytes(4, "big", signed=True))
    assert wire.is_closed


def test_garbage_closes_the_connection_and_no_other(broker: Broker, wire: Wire) -> None:
    with Wire(broker.bootstrap_servers) as other:
        other.socket.sendall(b"\0\0\0\x0aGET / HTTP")
        assert other.is_closed
    assert len(wire.ask(messages.MetadataRequest()).brokers) == 3


def test_slow_reader_is_awaited_and_gets_all(broker: Broker, wire: Wire) -> None:
    """Responses that a client does not read are not made: its requests stay unread."""
    values = [bytes([number]) * 700_000 for number in range(3)]
    for value in values:
        produce(wire, value)
    count = 60
    with Wire(broker.bootstrap_servers, SO_RCVBUF=1 << 16) as slow:
        slow.socket.sendall(b"".join(slow.frame(fetch_request(n % 3), 12) for n in range(count)))
        assert produce(wire, b"served meanwhile").base_offset == 3
        assert len(broker.requests("Fetch")) < count
        for number in range(count):
            assert values[number % 3] in bytes(fetched(slow.receive()).records)
    assert len(broker.requests("Fetch")) == count


@pytest.mark.parametrize("is_secure", [False, True], ids=["plain", "TLS"])
def test_readers_that_do_not_read_take_no_memory(is_secure: bool) -> None:
    """An answer is copied for its client piece by piece; the records stay where the log has them."""
    values = [bytes([number]) * 1_000_000 for number in range(20)]
    readers, margin = 8, 2 << 20
    with Broker({TOPIC: 1}, tls=is_secure) as broker, contextlib.ExitStack() as opened:
        tls = ssl.create_default_context(cadata=broker.authority_pem) if is_secure else None

        def connect() -> Wire:
            return opened.enter_context(Wire(broker.bootstrap_servers, tls=tls, SO_RCVBUF=1 << 16))

        wire = connect()
        for value in values:
            produce(wire, value)
        slow = [connect() for _ in range(readers)]
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            for each in slow:
                request = fetch_request(max_bytes=1 << 26)
                each.socket.sendall(each.frame(request, 12) + each.frame(request, 12))
            until(lambda: len(broker.requests("Fetch")) == readers)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak - before < readers * margin  # an answer is 20 MB
        assert produce(wire, b"served meanwhile").base_offset == len(values)
        assert len(broker.requests("Fetch")) == readers
        for _ in range(2):
            records = bytes(fetched(slow[0].receive()).records)
            assert all(value in records for value in values)


def test_waiting_requests_are_bounded_in_bytes(broker: Broker) -> None:
    """A connection whose request waits is read no further when a few large ones wait as well."""
    server = broker._running_server
    request_bytes = 900_000

    def held_bytes() -> list[int]:
        """Return what connections hold that are no longer read."""
        paused = [each for each in server.connections if each._is_paused]
        return [sum(map(len, each._frames)) + len(each._incoming) for each in paused]

    with Wire(broker.bootstrap_servers) as busy:
        busy.socket.sendall(busy.frame(fetch_request(max_wait_ms=HANG_MS), 12))
        kind = messages.ProduceRequest
        partition = kind.PartitionProduceData(index=0, records=bytes(request_bytes))
        topic = kind.TopicProduceData(name=TOPIC, partition_data=[partition])
        left = memoryview(busy.frame(kind(acks=1, timeout_ms=100, topic_data=[topic]), 11) * QUEUED_REQUESTS)
        busy.socket.setblocking(False)
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not (held := server.call(held_bytes)):
            assert time.monotonic() < deadline
            with contextlib.suppress(BlockingIOError):
                left = left[busy.socket.send(left) :]
    assert max(held) < QUEUED_BYTES + 2 * request_bytes


def test_response_after_the_client_has_left(broker: Broker, wire: Wire) -> None:
    with Wire(broker.bootstrap_servers) as gone:
        gone.socket.sendall(gone.frame(fetch_request(max_wait_ms=10_000), 12))
        until(lambda: broker.requests("Fetch"))
    assert produce(wire, b"x").base_offset == 0
    assert fetched(wire.ask(fetch_request(), 12)).high_watermark == 1


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """Yield a function that starts a server with other limits, and returns its address."""
    servers = []

    def start(**limits: Any) -> str:
        server = new_server(**limits)
        servers.append(server)
        server.start()
        return f"127.0.0.1:{server.core.state.cluster.nodes[0].ports[0]}"

    yield start
    for server in servers:
        server.stop()


def test_connections_are_bounded(serve: Callable[..., str]) -> None:
    address = serve(max_connections=2)
    with Wire(address) as one, Wire(address) as two:
        for wire in (one, two):
            assert wire.ask(messages.MetadataRequest()).controller_id == 0
        with Wire(address) as three:
            assert three.is_closed
        assert one.ask(messages.MetadataRequest()).controller_id == 0
        two.socket.sendall(b"\xff" * 4)
        assert two.is_closed
        with Wire(address) as four:
            assert four.ask(messages.MetadataRequest()).controller_id == 0


def test_idle_connections_are_closed(serve: Callable[..., str]) -> None:
    with Wire(serve(idle_seconds=0.02)) as wire:
        assert wire.is_closed


def test_server_stops_once_and_also_before_its_start() -> None:
    for starts in (False, True):
        server = new_server()
        if starts:
            server.start()
        server.stop()
        server.stop()
        with pytest.raises(IllegalStateError, match="does not run"):
            server.call(lambda: None)


# Faults, over sockets


def test_faults_end_to_end(broker: Broker, wire: Wire) -> None:
    broker.fail_next("Produce", error="NOT_ENOUGH_REPLICAS", times=2)
    assert [produce(wire, b"x").error_code for _ in range(3)] == [19, 19, 0]
    broker.throttle(0.01)
    answers = [wire.ask(messages.MetadataRequest()) for _ in range(2)]
    assert [answer.throttle_time_ms for answer in answers] == [10, 10]
    broker.delay("Metadata", 60)
    broker.intercept("Produce", lambda request: "POLICY_VIOLATION")
    broker.drop_connection("Heartbeat", when="after")
    broker.clear_faults()
    assert wire.ask(messages.MetadataRequest()).throttle_time_ms == 0
    assert wire.ask(messages.HeartbeatRequest(group_id="g")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert produce(wire, b"x").error_code == 0
    broker.drop_connection("Produce", when="after")
    wire.socket.sendall(wire.frame(messages.ProduceRequest(acks=1), 11))
    assert wire.is_closed


def test_requests_after_a_dropped_one_are_not_handled(broker: Broker, wire: Wire) -> None:
    broker.drop_connection("Metadata", when="before")
    frames = [wire.frame(messages.MetadataRequest()), wire.frame(messages.HeartbeatRequest(group_id="g"))]
    wire.socket.sendall(b"".join(frames))
    assert wire.is_closed
    assert [request.api for request in broker.requests()] == ["Metadata"]


def test_interceptor_may_use_the_broker(broker: Broker, wire: Wire) -> None:
    seen = []

    def look_and_move(request: Any) -> None:
        seen.append((len(broker.requests("Produce")), len(broker.records(TOPIC))))
        broker.move_leader(TOPIC, 0, 1)

    broker.intercept("Produce", look_and_move)
    assert produce(wire, b"x").error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert seen == [(1, 0)]


def test_interceptor_may_stop_its_own_node(broker: Broker, wire: Wire) -> None:
    broker.intercept("Metadata", lambda request: broker.stop_node(0))
    wire.socket.sendall(wire.frame(messages.MetadataRequest()))
    assert wire.is_closed
    with Wire(broker.bootstrap_servers, 1) as other:
        broker.intercept("Metadata", None)
        assert [node.node_id for node in other.ask(messages.MetadataRequest()).brokers] == [1, 2]


@pytest.mark.parametrize("call", [Broker.stop, lambda broker: broker.start_node(2)])
def test_interceptor_cannot_wait_for_its_own_thread(
    broker: Broker, wire: Wire, caplog: pytest.LogCaptureFixture, call: Callable[[Broker], None]
) -> None:
    broker.stop_node(2)
    broker.intercept("Metadata", lambda request: call(broker))
    wire.socket.sendall(wire.frame(messages.MetadataRequest()))
    assert wire.is_closed
    assert "an interceptor runs in the broker's thread" in caplog.text


def test_high_watermark_that_is_held(broker: Broker, wire: Wire) -> None:
    broker.hold_high_watermark(TOPIC, 0)
    assert produce(wire, b"x").error_code == ErrorCode.REQUEST_TIMED_OUT
    assert fetched(wire.ask(fetch_request(), 12)).high_watermark == 0
    assert (broker.records(TOPIC, 0), len(broker.records(TOPIC, 0, committed=False))) == ([], 1)
    broker.hold_high_watermark(TOPIC, 0, hold=False)
    assert [record.value for record in broker.records(TOPIC, 0)] == [b"x"]


def test_stopped_node_is_cut_off_and_comes_back_on_its_port(broker: Broker, wire: Wire) -> None:
    address = broker.bootstrap_servers
    with Wire(address, 1) as other:
        other.ask(messages.MetadataRequest())
        broker.stop_node(1)
        broker.stop_node(1)
        assert other.is_closed
    with pytest.raises(ConnectionRefusedError):
        Wire(address, 1)
    (topic,) = wire.ask(messages.MetadataRequest(topics=None)).topics
    assert 1 not in {partition.leader_id for partition in topic.partitions}
    broker.start_node(1)
    broker.start_node(1)
    assert broker.bootstrap_servers == address
    with Wire(address, 1) as other:
        assert len(other.ask(messages.MetadataRequest()).brokers) == 3


def test_page_names_calls_that_are_there(broker: Broker) -> None:
    """Return the table of docs/broker.md, row by row."""
    rows = [line.split("|")[1] for line in DOCS.read_text().splitlines() if line.startswith("| `")]
    calls = [call for row in rows for call in re.findall(r"`([^`]+)`", row)]
    assert len(calls) >= 12
    names = {"broker": broker, "function": lambda request: None}
    for call in calls:
        exec(call if call.startswith("broker.") else f"broker.{call}", names)
    assert set(kbatch.testing.__all__) == {
        *("AclBinding", "Acls", "Broker", "Listener", "PushedMetrics", "ReceivedRequest", "TlsFiles")
    }


# Inspection


def test_records_batches_and_requests(broker: Broker, wire: Wire) -> None:
    produce(wire, b"a", b"b")
    produce(wire, b"c", producer_id=7, producer_epoch=1, base_sequence=3)
    broker.move_leader(TOPIC, 2, 0)
    produce(wire, b"d", index=2)
    assert [(record.offset, record.value) for record in broker.records(TOPIC, 0)] == [
        (0, b"a"),
        (1, b"b"),
        (2, b"c"),
    ]
    assert [record.value for record in broker.records(TOPIC)] == [b"a", b"b", b"c", b"d"]
    assert [(batch.base_offset, batch.producer_id) for batch in broker.batches(TOPIC, 0)] == [(0, -1), (2, 7)]
    assert len(broker.batches(TOPIC)) == 3
    (producer,) = broker.producer_state(TOPIC, 0)
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7, 1, 3)
    assert broker.producer_state(TOPIC, 1) == []
    broker.forget_producers(TOPIC, 0)
    assert broker.producer_state(TOPIC, 0) == []
    assert [
        (request.api, request.version, request.client_id, request.node_id) for request in broker.requests()
    ] == [("Produce", 11, "wire", 0)] * 3
    assert broker.requests("Fetch") == []


def test_records_begin_where_the_log_does_and_batches_are_whole(broker: Broker, wire: Wire) -> None:
    produce(wire, b"a", b"b", b"c")
    kind = messages.DeleteRecordsRequest
    partition = kind.DeleteRecordsPartition(offset=2)
    wire.ask(kind(topics=[kind.DeleteRecordsTopic(name=TOPIC, partitions=[partition])]))
    assert [record.value for record in broker.records(TOPIC, 0)] == [b"c"]
    assert [len(batch) for batch in broker.batches(TOPIC, 0)] == [3]


def test_what_was_shown_stays_when_the_broker_is_gone(tmp_path: Path) -> None:
    with Broker([TOPIC], directory=tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        produce(wire, b"x")
        (batch,) = broker.batches(TOPIC)
        (record,) = broker.records(TOPIC)
    assert (record.value, [each.value for each in batch]) == (b"x", [b"x"])


def test_topics_are_made_and_grow_and_go(broker: Broker, wire: Wire) -> None:
    broker.create_topic("new", 2, max_message_bytes=200, cleanup_policy="compact")
    broker.create_partitions("new", 3)
    assert produce(wire, b"x" * 200, topic="new").error_code == ErrorCode.MESSAGE_TOO_LARGE
    (topic,) = wire.ask(messages.MetadataRequest(topics=None)).topics[1:]
    assert (topic.name, len(topic.partitions)) == ("new", 3)
    broker.delete_topic("new")
    assert [topic.name for topic in wire.ask(messages.MetadataRequest(topics=None)).topics] == [TOPIC]


def test_acls_change_while_the_broker_runs(broker: Broker, wire: Wire) -> None:
    assert produce(wire, b"x").error_code == 0
    broker.acls.topic_write = ["other"]
    assert produce(wire, b"x").error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    broker.acls = Acls(topic_write=[TOPIC])
    assert produce(wire, b"x").error_code == 0
    broker.acls = {"topic_write": []}
    assert produce(wire, b"x").error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    broker.acls = None
    assert produce(wire, b"x").error_code == 0


# Clients that log in


def delivery(address: str, **settings: str) -> KafkaError | None:
    """Send a record by librdkafka; return its first error, or None."""
    errors: list[KafkaError | None] = []
    login = {f"sasl.{name}": value for name, value in settings.items()}
    if login:
        login |= {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    config = {"bootstrap.servers": address, "error_cb": errors.append, "log_level": 0}
    producer = Producer(config | login)
    producer.produce(TOPIC, b"x", on_delivery=lambda error, _: errors.append(error))
    repeat_until(lambda: producer.poll(0.05), lambda: errors)
    return errors[0]


def test_users_log_in_with_librdkafka() -> None:
    with Broker([TOPIC], users={"ada": "lovelace"}) as broker:
        address = broker.bootstrap_servers
        assert delivery(address, username="ada", password="lovelace") is None
        refused = delivery(address, username="ada", password="babbage")
        assert refused is not None
        assert refused.code() == KafkaError._AUTHENTICATION
        with Wire(address) as nobody:
            nobody.socket.sendall(nobody.frame(messages.MetadataRequest()))
            assert nobody.is_closed
        assert len(broker.records(TOPIC)) == 1
    with Broker([TOPIC]) as broker:
        refused = delivery(broker.bootstrap_servers, username="ada", password="lovelace")
        assert refused is not None
        assert "Request not valid in current SASL state" in refused.str()
        assert delivery(broker.bootstrap_servers) is None


def test_librdkafka_lists_all_topics() -> None:
    """From version 9 of Metadata on it writes four bytes of length where one belongs."""
    with Broker([TOPIC, "other"]) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        assert set(producer.list_topics(timeout=TIMEOUT_SECONDS).topics) == {TOPIC, "other"}


# Broker with a directory: what a restart finds.


def test_restart_on_a_directory_keeps_all_state(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"directory": tmp_path, "nodes": 2}
    with Broker({TOPIC: {"partitions": 2, "retention_ms": 10**12}}, **arguments) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "t"})
        producer.init_transactions(TIMEOUT_SECONDS)
        for value, end in ((b"kept", producer.commit_transaction), (b"dropped", producer.abort_transaction)):
            producer.begin_transaction()
            producer.produce(TOPIC, value, partition=1)
            producer.flush(TIMEOUT_SECONDS)
            end(TIMEOUT_SECONDS)
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
        consumer.commit(offsets=[TopicPartition(TOPIC, 1, 2)], asynchronous=False)
        consumer.close()
        (state,) = broker.producer_state(TOPIC, 1)
        batches = [bytes(batch) for batch in broker.batches(TOPIC, 1)]
    with Broker({TOPIC: 9}, **arguments) as broker:
        assert [bytes(batch) for batch in broker.batches(TOPIC, 1)] == batches
        assert [record.value for record in broker.records(TOPIC)] == [b"kept"]
        assert len(broker.records(TOPIC, committed=False)) == 2
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
        (found,) = consumer.committed([TopicPartition(TOPIC, 1)], timeout=TIMEOUT_SECONDS)
        consumer.close()
        assert found.offset == 2
        with Wire(broker.bootstrap_servers) as wire:
            topics = {topic.name: topic for topic in wire.ask(messages.MetadataRequest(topics=None)).topics}
            assert len(topics[TOPIC].partitions) == 2, "it was there"
            again = wire.ask(messages.InitProducerIdRequest(transactional_id=None))
            assert again.producer_id > state.producer_id
        heir = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "t"})
        heir.init_transactions(TIMEOUT_SECONDS)
        heir.begin_transaction()
        heir.produce(TOPIC, b"heir", partition=1)
        heir.commit_transaction(TIMEOUT_SECONDS)
        (after,) = broker.producer_state(TOPIC, 1)
        assert (after.producer_id, after.producer_epoch > state.producer_epoch) == (state.producer_id, True)
        assert [record.value for record in broker.records(TOPIC, 1)] == [b"kept", b"heir"]


@pytest.mark.parametrize(("kept", "known"), [(1, [4]), (5, [0, 1, 2, 3, 4])])
def test_restart_remembers_the_last_batches_of_a_producer(
    tmp_path: Path, kept: int, known: list[int]
) -> None:
    ids: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0}
    broker = Broker([TOPIC], directory=tmp_path, producer_snapshot_batches=kept)
    with broker, Wire(broker.bootstrap_servers) as wire:
        for sequence in range(5):
            assert produce(wire, b"x", base_sequence=sequence, **ids).error_code == 0
    with broker, Wire(broker.bootstrap_servers) as wire:
        answers = {sequence: produce(wire, b"x", base_sequence=sequence, **ids) for sequence in range(5)}
        assert [sequence for sequence, answer in answers.items() if answer.error_code == 0] == known
        assert all(answers[sequence].base_offset == sequence for sequence in known)
        assert len(broker.records(TOPIC)) == 5


def test_internal_topics_stay_as_large_as_they_were(tmp_path: Path) -> None:
    for partitions in (3, 50):
        with Broker([TOPIC], directory=tmp_path, internal_topic_partitions=partitions) as broker:
            for number in range(8):
                config = {"bootstrap.servers": broker.bootstrap_servers, "group.id": f"g{number}"}
                consumer = Consumer(config)
                before = consumer.committed([TopicPartition(TOPIC, 0)], timeout=TIMEOUT_SECONDS)[0].offset
                consumer.commit(offsets=[TopicPartition(TOPIC, 0, partitions)], asynchronous=False)
                consumer.close()
                assert before == (-1001 if partitions == 3 else 3)


# Configs and share groups


def test_alter_configs_sets_and_resets_what_admin_clients_see(broker: Broker) -> None:
    broker.alter_configs(topic=TOPIC, set={"retention.ms": 5000, "preallocate": True})
    broker.alter_configs(topic=TOPIC, set={"segment.bytes": 2_000_000}, reset=["retention.ms"])
    broker.alter_configs(group="workers", set={"share.auto.offset.reset": "earliest"})
    with Wire(broker.bootstrap_servers) as wire:
        kind = messages.DescribeConfigsRequest
        resources = [
            kind.DescribeConfigsResource(resource_type=number, resource_name=name, configuration_keys=None)
            for number, name in ((2, TOPIC), (32, "workers"))
        ]
        answer = wire.ask(kind(resources=resources))
    found = [
        {config.name: config.value for config in result.configs if config.config_source in (1, 8)}
        for result in answer.results
    ]
    assert found == [
        {"preallocate": "true", "segment.bytes": "2000000"},
        {"share.auto.offset.reset": "earliest"},
    ]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({}, "a topic or a group"),
        ({"topic": TOPIC, "group": "workers"}, "a topic or a group"),
        ({"topic": "nope", "set": {"retention.ms": 1}}, "nope"),
        ({"topic": TOPIC, "set": {"nope": 1}}, "nope"),
        ({"group": "workers", "set": {"share.delivery.count.limit": 99}}, "share.delivery.count.limit"),
        ({"group": "workers", "set": {"share.isolation.level": "dirty"}}, "read_committed"),
    ],
)
def test_alter_configs_refuses_what_kafka_refuses(broker: Broker, wrong: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        broker.alter_configs(**wrong)


def test_share_partition_shows_states_counts_owners_and_locks(broker: Broker) -> None:
    broker.alter_configs(group="workers", set={"share.auto.offset.reset": "earliest"})
    assert broker.share_partition("workers", TOPIC, 0) is None
    with pytest.raises(ValueError, match="nope"):
        broker.share_partition("workers", "nope", 0)
    settings: dict[str, Any] = {"group_id": "workers", "share_acknowledgement_mode": "explicit"}
    with (
        kbatch.Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
        kbatch.ShareConsumer(bootstrap_servers=broker.bootstrap_servers, **settings) as consumer,
    ):
        for number in range(4):
            producer.send(TOPIC, b"%d" % number, partition=0)
        producer.flush()
        consumer.subscribe([TOPIC])
        records = consumer.poll(HANG_MS / 1000, 4)
        assert len(records) == 4
        for record, kind in zip(records, ("accept", "release", "reject"), strict=False):
            consumer.acknowledge(record, kind)
        consumer.commit()
        found = broker.share_partition("workers", TOPIC, 0)
        assert found is not None and (found.start_offset, found.end_offset) == (1, 4)
        assert {offset: each[:2] for offset, each in found.deliveries.items()} == {
            1: ("AVAILABLE", 1),
            2: ("ARCHIVED", 1),
            3: ("ACQUIRED", 1),
        }
        owned = found.deliveries[3]
        assert owned.member_id and owned.lock_end_ms
