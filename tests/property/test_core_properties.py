"""Properties of connections and metadata for any network and brokers."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kbatch.core.client.cluster import Node
from kbatch.core.client.connections import Request, Response
from kbatch.metrics import MetricsRegistry
from kbatch.protocol import codec, messages
from tests.support.core_shell import MS, Peer, Shell, address, versions_answer
from tests.support.effort import EXAMPLES
from tests.unit.core.client import test_cluster

MAX_IN_FLIGHT = 3
PLACES = [Node(node_id, host, 9092, None) for node_id in (1, 2) for host in ("x", "y")]
ANSWERS = {18: versions_answer(), 3: messages.MetadataResponse(), 0: messages.ProduceResponse()}


class ConnectionsMachine(RuleBasedStateMachine):
    """Nodes that come, go and move, connections at every stage, and all that can go wrong with them."""

    def __init__(self) -> None:
        super().__init__()
        self.registry = MetricsRegistry("me")
        self.shell = Shell(
            registry=self.registry,
            bootstrap_servers="a:1,b:2",
            max_in_flight_requests_per_connection=MAX_IN_FLIGHT,
            request_timeout_ms=1000,
            connections_max_idle_ms=5000,
            linger_ms=0,
            acks=0,
            enable_idempotence=False,
        )
        self.sent: list[Request] = []
        self.handled: list[Response] = []

    def pick(self, index: int, *, made: bool) -> Peer | None:
        """Return an open connection, established or not."""
        peers = [
            peer
            for peer in self.shell.peers.values()
            if not peer.is_closed and bool(peer.received or peer.unwritten) is made
        ]
        return peers[index % len(peers)] if peers else None

    @rule(node_id=st.sampled_from([-2, -1, 1, 2]))
    def connect(self, node_id: int) -> None:
        self.shell.connections.connect(node_id, self.shell.now_ns)
        self.shell.poll()

    @precondition(lambda self: self.shell.resolves)
    @rule(count=st.integers(0, 3))
    def resolve(self, count: int) -> None:
        self.shell.resolve(*map(address, range(count)), error=None if count else OSError("no such name"))

    @rule(index=st.integers(0, 9))
    def connected(self, index: int) -> None:
        peer = self.pick(index, made=False)
        if peer is not None:
            self.shell.connections.handle_connected(peer.connection_id, self.shell.now_ns)
            self.shell.poll()

    @rule(index=st.integers(0, 9), part=st.integers(1, 3))
    def write(self, index: int, part: int) -> None:
        peer = self.pick(index, made=True)
        if peer is not None:
            self.shell.write(peer, -(-len(peer.unwritten) // part))

    @rule(index=st.integers(0, 9), cut=st.integers(1, 60), throttle_time_ms=st.sampled_from([0, 0, 700]))
    def answer(self, index: int, cut: int, throttle_time_ms: int) -> None:
        peer = self.pick(index, made=True)
        if peer is None:
            return
        waiting = [each for each in peer.requests() if each.api_key != 0][peer.answered :]
        if not waiting:
            return
        peer.answered += 1
        message = ANSWERS[waiting[0].api_key]
        message.throttle_time_ms = throttle_time_ms
        data = b"".join(codec.encode_response(message, waiting[0].version, waiting[0].correlation_id))
        for start in range(0, len(data), cut):
            self.shell.give(peer, data[start : start + cut])

    @rule(index=st.integers(0, 9), data=st.binary(min_size=1, max_size=20))
    def garbage(self, index: int, data: bytes) -> None:
        peer = self.pick(index, made=True)
        if peer is not None:
            self.shell.give(peer, b"\xff\xff\xff\xff" + data)

    @rule(index=st.integers(0, 9), made=st.booleans())
    def close(self, index: int, made: bool) -> None:
        peer = self.pick(index, made=made)
        if peer is not None:
            self.shell.close(peer, ConnectionResetError())

    @rule(node_id=st.sampled_from([-2, -1, 1, 2]), silent=st.booleans())
    def send(self, node_id: int, silent: bool) -> None:
        if self.shell.connections.is_ready(node_id, self.shell.now_ns):
            message = messages.ProduceRequest(acks=0) if silent else messages.MetadataRequest(topics=[])
            self.sent.append(
                self.shell.connections.send(
                    node_id, message, self.handle, self.shell.now_ns, expects_response=not silent
                )
            )
            self.shell.poll()

    def handle(self, response: Response) -> None:
        assert all(response.request is not each.request for each in self.handled)
        self.handled.append(response)

    @rule(duration_ms=st.sampled_from([1, 40, 300, 2000, 40_000]))
    def advance(self, duration_ms: int) -> None:
        self.shell.advance(duration_ms * MS)

    @rule(places=st.lists(st.sampled_from(PLACES), max_size=2))
    def set_nodes(self, places: list[Node]) -> None:
        self.shell.connections.set_nodes({node.node_id: node for node in places})

    @rule()
    def rebootstrap(self) -> None:
        self.shell.connections.rebootstrap(self.shell.now_ns)
        self.shell.poll()

    @invariant()
    def a_node_can_be_chosen_and_is_what_it_seems(self) -> None:
        connections, now_ns = self.shell.connections, self.shell.now_ns
        node_id = connections.least_loaded(now_ns)
        assert node_id is None or connections.is_ready(node_id, now_ns) is (
            connections.delay_ns(node_id, now_ns) == 0 and connections.is_connected(node_id)
        )

    @invariant()
    def nothing_but_api_versions_is_written_before_it_was_answered(self) -> None:
        for peer in self.shell.peers.values():
            keys = [request.api_key for request in peer.requests()]
            assert keys[:1] in ([], [18])
            assert peer.answered or len(keys) <= 1
            assert sum(key != 0 for key in keys) - peer.answered <= MAX_IN_FLIGHT

    @invariant()
    def what_is_said_to_be_unwritten_was_not_written(self) -> None:
        for response in self.handled:
            request = response.request
            peer = self.shell.peers[request._connection.connection_id]
            assert request.was_written is (len(peer.received) > request.start_offset)
            assert response.error is not None or request.sent_ns >= 0

    def _gauge(self, name: str) -> float:
        """Return the gauge's value, without those of all others that a snapshot reads."""
        (read,) = (read for key, read in self.registry._gauges.items() if key.name == name)
        return read(0)

    @invariant()
    def what_is_not_answered_is_in_flight(self) -> None:
        handshakes = sum(
            not peer.is_closed and bool(peer.received or peer.unwritten) and not peer.answered
            for peer in self.shell.peers.values()
        )
        count = self.shell.connections.in_flight_count()
        assert count == len(self.sent) - len(self.handled) + handshakes
        assert self._gauge("requests-in-flight") == count

    @invariant()
    def answers_come_in_the_order_of_requests(self) -> None:
        order: dict[int, list[int]] = {}
        for response in self.handled:
            if response.request.expects_response:
                connection_id = response.request._connection.connection_id
                order.setdefault(connection_id, []).append(response.request.start_offset)
        assert all(offsets == sorted(offsets) for offsets in order.values())

    def teardown(self) -> None:
        """Check that in the end every request was handled, and that open connections are known."""
        self.shell.connections.rebootstrap(self.shell.now_ns)
        self.shell.poll()
        self.shell.connections.rebootstrap(self.shell.now_ns)
        self.shell.poll()
        assert len(self.handled) == len(self.sent)
        assert all(peer.is_closed for peer in self.shell.peers.values())
        assert self._gauge("connection-count") == 0


TestConnections = ConnectionsMachine.TestCase
TestConnections.settings = settings(max_examples=EXAMPLES, stateful_step_count=60, deadline=None)


_partitions = st.lists(
    st.one_of(
        st.tuples(st.sampled_from([-1, 1, 2, 9]), st.integers(-1, 5)),
        st.tuples(st.just(-1), st.integers(-1, 5), st.sampled_from([5, 9, 72])),
    ),
    max_size=3,
)
_answers = st.lists(
    st.tuples(
        _partitions, st.sampled_from([0, 0, 0, 3, 5, 17, 29]), st.integers(0, 2), st.integers(1, 10_000)
    ),
    max_size=12,
)


@settings(max_examples=EXAMPLES * 4, deadline=None)
@given(_answers)
def test_N05_topic_epochs_never_decrease_and_updates_stay_due(answers: Any) -> None:
    known = test_cluster.cluster(max_block_ms=10_000)
    known.want("t", 0)
    now_ns, topic_id = 0, b""
    epochs: dict[Any, Any] = {}
    was_missing = False
    for partitions, code, id_number, wait_ms in answers:
        now_ns += wait_ms * MS
        known.request_update(now_ns)
        now_ns += known.update_delay_ns(now_ns)
        assert known.update_delay_ns(now_ns) == 0
        known.make_request()
        new_id = bytes([id_number]) * 16
        topic = test_cluster.topic(
            "t", [] if code else partitions, error=code, topic_id=bytes(16) if code else new_id
        )
        known.handle_response(test_cluster.answer(topic), now_ns)
        assert 0 < known.update_delay_ns(now_ns) <= 5000 * MS or not code
        if not code and (any(new_id) and new_id != topic_id):
            epochs, topic_id = {}, new_id
        if not code and was_missing and not any(new_id):  # without ids it may be another topic
            epochs = {}
        was_missing = bool(code)
        found = known.snapshot.topics.get("t")
        assert (found is None) is (known.topic_error("t") is not None) or code
        if found and not any(new_id):  # without ids, fewer partitions may be another topic of that name
            epochs = {index: epoch for index, epoch in epochs.items() if index < len(found.partitions)}
        for index, partition in enumerate(found.partitions if found else ()):
            assert partition.leader in (-1, *known.snapshot.nodes)
            assert known.snapshot.leader("t", index)[0] == partition.leader
            if partition.leader_epoch >= 0:
                assert partition.leader_epoch >= epochs.get(index, -1)
                epochs[index] = partition.leader_epoch
            else:
                epochs.pop(index, None)
