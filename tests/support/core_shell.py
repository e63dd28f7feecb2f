"""Connections in a shell without sockets: the tests control the network."""

from __future__ import annotations

import random
import socket
from typing import Any

from kbatch.config import ProducerConfig
from kbatch.core.client.actions import (
    Address,
    Authenticate,
    Close,
    Connect,
    EndAuthentication,
    Resolve,
    Write,
)
from kbatch.core.client.connections import Connections, Request, Response
from kbatch.errors import KafkaError
from kbatch.protocol import codec, messages

MS = 1_000_000
SECOND = 1000 * MS
NEVER = 2**63 - 1
# The versions that a node reports: those of kbatch itself, unless a test changes them.
VERSIONS = {key: (kind.versions.start, kind.versions.stop - 1) for key, kind in messages.REQUESTS.items()}

# Of a client that logs in.
PLAIN: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "alice",
    "sasl_password": "secret",
}


def address(number: int) -> tuple[int, Any]:
    return socket.AF_INET, (f"10.0.0.{number}", 9092)


def versions_answer(versions: dict[int, tuple[int, int]] | None = None, error: int = 0) -> Any:
    kind = messages.ApiVersionsResponse
    return kind(
        error_code=error,
        api_keys=[
            kind.ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in (VERSIONS if versions is None else versions).items()
        ],
    )


class Peer:
    """A connection as the network sees it."""

    def __init__(self, action: Connect) -> None:
        self.action = action
        self.connection_id = action.connection_id
        self.unwritten = bytearray()
        self.received = bytearray()
        self.is_closed = False
        self.answered = 0
        self.answered_bytes = 0

    def requests(self) -> list[Any]:
        """Return all whole requests that were written."""
        found, pos = [], 0
        while pos + 4 <= len(self.received):
            end = pos + 4 + int.from_bytes(self.received[pos : pos + 4], "big")
            if end > len(self.received):
                break
            found.append(codec.decode_request(bytes(self.received[pos + 4 : end])))
            pos = end
        return found


class Shell:
    """Performs actions, by hand or all at once; time is `now_ns`."""

    def __init__(
        self, *, seed: int = 1, registry: Any = None, purpose_count: int = 1, **settings: Any
    ) -> None:
        settings.setdefault("bootstrap_servers", "a:9092")
        self.now_ns = 0
        config = ProducerConfig(**settings)
        max_in_flight = config.max_in_flight_requests_per_connection
        self.connections = Connections(
            config,
            random.Random(seed),
            registry,
            self.now_ns,
            max_in_flight=max_in_flight,
            purpose_count=purpose_count,
        )
        self.resolves: list[Resolve] = []
        self.tokens_due: dict[int, Authenticate] = {}  # by connection
        self.ended_logins: list[int] = []
        self.peers: dict[int, Peer] = {}
        self.responses: list[Response] = []

    def poll(self) -> list[Any]:
        """Perform the actions; bytes to write wait in `Peer.unwritten`."""
        actions = self.connections.poll_actions()
        for action in actions:
            if isinstance(action, Resolve):
                self.resolves.append(action)
            elif isinstance(action, Connect):
                self.peers[action.connection_id] = Peer(action)
            elif isinstance(action, Write):
                assert not self.peers[action.connection_id].is_closed
                data = b"".join(action.buffers)
                assert len(data) == action.size_bytes
                self.peers[action.connection_id].unwritten += data
            elif isinstance(action, Authenticate):
                self.tokens_due[action.connection_id] = action
            elif isinstance(action, EndAuthentication):
                self.tokens_due.pop(action.connection_id, None)
                self.ended_logins.append(action.connection_id)
            elif isinstance(action, Close):
                peer = self.peers[action.connection_id]
                assert not peer.is_closed
                peer.is_closed = True
        return actions

    def peer(self, node_id: int) -> Peer:
        """Return the latest connection to a node."""
        return [peer for peer in self.peers.values() if peer.action.node_id == node_id][-1]

    def advance(self, duration_ns: int) -> None:
        """Let time pass, deadline by deadline."""
        end_ns = self.now_ns + duration_ns
        for _ in range(10_000):
            deadline_ns = self.connections.deadline_ns
            if deadline_ns > end_ns:
                break
            self.now_ns = max(self.now_ns, deadline_ns)
            self.connections.handle_timeout(self.now_ns)
            self.poll()
        else:
            raise AssertionError("a deadline that is not met: the loop would spin")
        self.now_ns = end_ns

    # The network

    def resolve(self, *addresses: Address, error: OSError | None = None) -> None:
        """Answer the oldest lookup of a name."""
        name = self.resolves.pop(0)
        self.connections.handle_resolved(name.host, name.port, error or list(addresses), self.now_ns)
        self.poll()

    def write(self, peer: Peer, size_bytes: int | None = None) -> None:
        """Write some pending bytes, or all, to the socket."""
        size_bytes = len(peer.unwritten) if size_bytes is None else size_bytes
        if size_bytes:
            peer.received += peer.unwritten[:size_bytes]
            del peer.unwritten[:size_bytes]
            self.connections.handle_written(peer.connection_id, size_bytes, self.now_ns)
            self.poll()

    def answer(self, peer: Peer, message: Any, version: int | None = None) -> None:
        """Answer the oldest unanswered request."""
        request = peer.requests()[peer.answered]
        peer.answered += 1
        version = request.version if version is None else version
        self.give(peer, b"".join(codec.encode_response(message, version, request.correlation_id)))

    def give(self, peer: Peer, data: Any) -> None:
        peer.answered_bytes += len(data)
        self.connections.handle_bytes(peer.connection_id, data, self.now_ns)
        self.poll()

    def token(self, peer: Peer, token: bytes | KafkaError | None) -> bytes | None:
        """Make the token that is due. Return the challenge for which it was made."""
        action = self.tokens_due.pop(peer.connection_id)
        self.connections.handle_token(peer.connection_id, token, self.now_ns)
        self.poll()
        self.write(peer)
        return action.challenge

    def close(self, peer: Peer, error: BaseException | None = None) -> None:
        """Close the connection from the other side."""
        peer.is_closed = True
        self.connections.handle_closed(peer.connection_id, error, self.now_ns)
        self.poll()

    # Whole stories

    def begin(self, node_id: int, *addresses: tuple[int, Any], purpose: int = 0) -> Peer:
        """Begin a connection."""
        self.connections.connect(node_id, self.now_ns, purpose)
        self.poll()
        if self.resolves:
            self.resolve(*(addresses or (address(1),)))
        return self.peer(node_id)

    def connect(self, node_id: int, *addresses: tuple[int, Any], purpose: int = 0) -> Peer:
        """Make a connection; the node has not reported its versions."""
        peer = self.begin(node_id, *addresses, purpose=purpose)
        self.connections.handle_connected(peer.connection_id, self.now_ns)
        self.poll()
        self.write(peer)
        return peer

    def ready(
        self, node_id: int = -1, versions: dict[int, tuple[int, int]] | None = None, *, purpose: int = 0
    ) -> Peer:
        peer = self.connect(node_id, purpose=purpose)
        self.answer(peer, versions_answer(versions))
        assert self.connections.is_ready(node_id, self.now_ns, purpose)
        return peer

    def ask(self, node_id: int = -1, *, written: bool = True, **rest: Any) -> Request:
        """Send a Metadata request."""
        return self.send(messages.MetadataRequest(topics=[]), node_id, written=written, **rest)

    def produce(self, node_id: int = -1, *, written: bool = True, **rest: Any) -> Request:
        """Send a Produce request with acks=0."""
        return self.send(
            messages.ProduceRequest(acks=0), node_id, written=written, expects_response=False, **rest
        )

    def send(self, message: Any, node_id: int, *, written: bool, **rest: Any) -> Request:
        request = self.connections.send(node_id, message, self.responses.append, self.now_ns, **rest)
        self.poll()
        if written:
            self.write(self.peer(node_id))
        return request

    def taken(self) -> list[Response]:
        """Return responses since the last call."""
        responses = self.responses[:]
        self.responses.clear()
        return responses
