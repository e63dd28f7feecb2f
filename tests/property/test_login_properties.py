"""Properties of a connection that logs in repeatedly, for any network, brokers and tokens."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch.core.client.connections import Request, Response
from kbatch.errors import AuthenticationError, KafkaError, NetworkError
from kbatch.protocol import codec, messages
from tests.support.core_shell import MS, NEVER, PLAIN, Peer, Shell, address, versions_answer
from tests.support.effort import EXAMPLES

STEPS = 800
HANDSHAKE, AUTHENTICATE, PRODUCE = 17, 36, 0
TOKENS = (AuthenticationError("no"), NetworkError("no KDC"))


class Broker:
    """The broker's view of one connection. It checks every request as Kafka does."""

    def __init__(self) -> None:
        self.seen = 0  # requests
        self.expects_token = False
        self.is_authenticated = False
        self.renewals = 0
        self.lifetime_ms = 0
        self.end_ns = NEVER
        self.authenticated_ns = -NEVER
        self.waiting: list[codec.Request] = []

    def read(self, request: codec.Request, now_ns: int) -> None:
        """Take a request; AssertionError for one that would end the connection or be refused."""
        key = request.api_key
        if self.expects_token:
            assert key == AUTHENTICATE, "a request between the handshake and the last answer"
        elif key == HANDSHAKE:
            assert now_ns - self.authenticated_ns >= 1000 * MS, "two logins within a second"
            self.expects_token = True
        else:
            assert key != AUTHENTICATE
            assert self.is_authenticated or key == 18
        if key != PRODUCE:
            self.waiting.append(request)

    def pass_login(self, lifetime_ms: int, now_ns: int) -> None:
        self.renewals += self.is_authenticated
        self.expects_token, self.is_authenticated = False, True
        self.authenticated_ns = now_ns
        self.end_ns = now_ns + lifetime_ms * MS if lifetime_ms else NEVER


class Story:
    """A node, its connections one after another, and a user who sends what it takes."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.shell = Shell(
            seed=seed,
            max_in_flight_requests_per_connection=3,
            request_timeout_ms=8000,
            connections_max_idle_ms=20_000,
            socket_connection_setup_timeout_ms=5000,
            linger_ms=0,
            acks=0,
            enable_idempotence=False,
            **PLAIN,
        )
        self.brokers: dict[int, Broker] = {}
        self.sent: list[Request] = []
        self.handled: list[Request] = []
        self.lifetime_ms = self.random.choice([0, 600, 1300, 2000, 3000])
        # how often what happens, of all that may
        self.steps: dict[Callable[[], None], float] = {
            self.send: 6,
            self.write: 6,
            self.answer: 6,
            self.make_token: 4,
            self.pass_time: 4,
            self.connect: 3,
            self.cut: 0.05,
        }

    def run(self) -> None:
        for _ in range(STEPS):
            self.random.choices(list(self.steps), list(self.steps.values()))[0]()
            self.check()
        self.shell.connections.rebootstrap(self.shell.now_ns)
        self.shell.poll()
        assert len(self.handled) == len(self.sent)
        assert self.shell.tokens_due == {}

    def peer(self) -> Peer | None:
        return next((peer for peer in self.shell.peers.values() if not peer.is_closed), None)

    # Events

    def connect(self) -> None:
        self.shell.connections.connect(-1, self.shell.now_ns)
        made = len(self.shell.peers)
        self.shell.poll()
        if self.shell.resolves:
            self.shell.resolve(address(1))
        for peer in list(self.shell.peers.values())[made:]:
            self.brokers[peer.connection_id] = Broker()
            self.shell.connections.handle_connected(peer.connection_id, self.shell.now_ns)
            self.shell.poll()

    def send(self) -> None:
        connections, now_ns = self.shell.connections, self.shell.now_ns
        if not connections.is_ready(-1, now_ns):
            return
        peer = self.peer()
        assert peer is not None
        assert now_ns < self.brokers[peer.connection_id].end_ns, "a request after the end of the session"
        is_silent = self.random.random() < 0.3
        message = messages.ProduceRequest(acks=0) if is_silent else messages.MetadataRequest(topics=[])
        request = connections.send(-1, message, self.handle, now_ns, expects_response=not is_silent)
        self.sent.append(request)
        self.shell.poll()

    def handle(self, response: Response) -> None:
        assert response.request not in self.handled
        self.handled.append(response.request)
        if self.random.random() < 0.1:
            self.send()  # from within the answer to another

    def write(self) -> None:
        peer = self.peer()
        if peer is None or not peer.unwritten:
            return
        size_bytes = len(peer.unwritten)
        self.shell.write(
            peer, size_bytes if self.random.random() < 0.7 else self.random.randint(1, size_bytes)
        )
        broker = self.brokers[peer.connection_id]
        requests = peer.requests()
        for request in requests[broker.seen :]:
            broker.read(request, self.shell.now_ns)
        broker.seen = len(requests)

    def answer(self) -> None:
        peer = self.peer()
        if peer is None:
            return
        broker = self.brokers[peer.connection_id]
        if not broker.waiting:
            return
        request = broker.waiting.pop(0)
        message: Any = messages.MetadataResponse()
        if request.api_key == 18:
            message = versions_answer()
        elif request.api_key in (HANDSHAKE, AUTHENTICATE):
            message = self.answer_of_login(broker, request.api_key)
        data = b"".join(codec.encode_response(message, request.version, request.correlation_id))
        self.shell.give(peer, data)

    def answer_of_login(self, broker: Broker, key: int) -> Any:
        refused = self.random.random() < 0.02
        if key == HANDSHAKE:
            return messages.SaslHandshakeResponse(error_code=33 * refused)
        if not refused and self.random.random() < 0.6:  # the last token
            broker.pass_login(self.lifetime_ms, self.shell.now_ns)
            return messages.SaslAuthenticateResponse(session_lifetime_ms=self.lifetime_ms, auth_bytes=b"last")
        return messages.SaslAuthenticateResponse(error_code=58 * refused, auth_bytes=b"more")

    def make_token(self) -> None:
        if not self.shell.tokens_due:
            return
        (action,) = self.shell.tokens_due.values()
        self.shell.tokens_due.clear()
        token: bytes | KafkaError | None = None if action.challenge == b"last" else b"token"
        if self.random.random() < 0.02:
            token = self.random.choice(TOKENS)
        self.shell.connections.handle_token(action.connection_id, token, self.shell.now_ns)
        self.shell.poll()

    def pass_time(self) -> None:
        peer = self.peer()
        if peer is None or not peer.unwritten:  # or the broker would get late what was sent in time
            self.shell.advance(self.random.choice([1, 20, 100, 300]) * MS)

    def cut(self) -> None:
        peer = self.peer()
        if peer is not None:
            self.shell.close(peer, ConnectionResetError())

    # Invariants

    def check(self) -> None:
        by_connection: dict[object, list[int]] = {}
        for request in filter(attrgetter("expects_response"), self.handled):
            by_connection.setdefault(request._connection, []).append(request.start_offset)
        assert all(offsets == sorted(offsets) for offsets in by_connection.values())
        peer, now_ns = self.peer(), self.shell.now_ns
        if peer is not None and self.brokers[peer.connection_id].expects_token:
            assert not self.shell.connections.is_ready(-1, now_ns)
        if self.shell.connections.is_ready(-1, now_ns):
            assert self.shell.connections.delay_ns(-1, now_ns) == 0


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=EXAMPLES, deadline=None)
def test_logins_come_between_requests_and_lose_none(seed: int) -> None:
    Story(seed).run()


def test_stories_renew_sessions() -> None:
    stories = [Story(seed) for seed in range(40)]
    for story in stories:
        story.run()
    assert sum(broker.renewals for story in stories for broker in story.brokers.values()) >= 40
    assert sum(len(story.handled) for story in stories) >= 1000
