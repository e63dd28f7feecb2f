"""Hostile requests over sockets: frames cut anywhere, sizes that lie, clients that leave or never end.

What a case sends comes from its seed alone. How the network cuts it does not, nor what is still answered to a
client that has left; judged is what holds in any case.
"""

from __future__ import annotations

import os
import random
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from itertools import count
from typing import Any

from kbatch.protocol import codec, messages
from kbatch.protocol.structs import Message
from kbatch.testing import Broker
from tests.fuzz import request_mutator
from tests.fuzz.broker_invariants import Round
from tests.fuzz.request_judge import Expected, answer, expected, is_spared
from tests.fuzz.requests import INT32_MAX, KINDS, Persona, Requests
from tests.support.patience import HANG_SECONDS, until

TIMEOUT_SECONDS = HANG_SECONDS
MAX_REQUEST_BYTES = 100 << 20
# What stays open with half a frame of up to MAX_REQUEST_BYTES while others are served.
HALF_OPEN_CONNECTIONS = 200
POLL_SECONDS = 0.005
TOPICS = {"one": 3, "other": 3, "small": {"partitions": 3, "internal.segment.bytes": 1000}}


class Connections:
    """Clients of one broker, each with one connection that is hostile in its way."""

    def __init__(self, seed: object, broker: Broker) -> None:
        self._rng = random.Random(f"hostile connections {seed}")
        self._persona = Persona(1, self._rng, {})
        self._previous: request_mutator.Request | None = None
        host, port = broker.bootstrap_servers.split(",")[0].split(":")
        self._address = host, int(port)
        self._correlation_ids = count()

    def try_case(self) -> None:
        cases = (self._frames, self._valid_frames, self._wrong_size, self._reset)
        (case,) = self._rng.choices(cases, (3, 1, 1, 1))
        case()

    # Cases

    def _frames(self) -> None:
        """Send any frames, half-close the connection, and read the responses."""
        frames = [self._frame() for _ in range(self._rng.randrange(1, 6))]
        wanted = [expected(frame) for frame in frames]
        if any(is_spared(each.message) for each in wanted):
            return
        with self._connected() as connection:
            self._send_cut(connection, b"".join(map(sized, frames)))
            _end_sending(connection)
            received = _received(connection)
        check_answers(received, wanted)

    def _valid_frames(self) -> None:
        """Cut anywhere: each is answered."""
        kinds = (messages.ApiVersionsRequest, messages.MetadataRequest, messages.ListGroupsRequest)
        frames = [self._encoded(kind(), 0) for kind in self._rng.choices(kinds, k=20)]
        with self._connected() as connection:
            self._send_cut(connection, b"".join(map(sized, frames)))
            for frame in frames:
                answer(expected(frame), _one_answer(connection))

    def _wrong_size(self) -> None:
        """Send a negative or too large size; the broker closes the connection."""
        size = self._rng.choice((-1, -(2**31), MAX_REQUEST_BYTES + 1, INT32_MAX))
        content = self._rng.randbytes(self._rng.choice((0, 8, 1000)))
        with self._connected() as connection:
            self._send_cut(connection, struct.pack(">i", size) + content)
            assert not _received(connection)

    def _reset(self) -> None:
        """Close the connection in the middle of a frame or with responses in flight."""
        data = b"".join(sized(self._encoded(messages.ApiVersionsRequest(), 0)) for _ in range(50))
        with self._connected() as connection:
            self._send_cut(connection, data[: self._rng.randrange(len(data))])
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    # Beside all cases

    def half_open(self) -> list[socket.socket]:
        """Return connections that began a frame."""
        opened = []
        for _ in range(HALF_OPEN_CONNECTIONS):
            connection = self._connected()
            size = self._rng.choice((8, 1000, MAX_REQUEST_BYTES))
            connection.sendall((struct.pack(">i", size) + bytes(7))[: self._rng.randrange(12)])
            opened.append(connection)
        return opened

    def ask(self, node_id: int, request: Message, version: int) -> Any:
        with self._connected() as connection:
            frame = self._encoded(request, version)
            connection.sendall(sized(frame))
            return answer(expected(frame), _one_answer(connection))

    # Sending

    def _frame(self) -> bytes:
        kind = self._rng.choice(KINDS)
        version = self._rng.choice(kind.versions)
        message = Requests(self._persona, self._rng, int(time.time() * 1000)).message(kind, version)
        request = request_mutator.taken_apart(message, version, next(self._correlation_ids), "client")
        _, frame = request_mutator.mutated(request, self._previous or request, self._rng)
        self._previous = request
        return frame

    def _encoded(self, request: Message, version: int) -> bytes:
        return b"".join(codec.encode_request(request, version, next(self._correlation_ids)))[4:]

    def _connected(self) -> socket.socket:
        connection = socket.create_connection(self._address, timeout=TIMEOUT_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _send_cut(self, connection: socket.socket, data: bytes) -> None:
        """Send bytes in pieces, as a network delivers them; the broker may close before the last."""
        cuts = sorted(self._rng.choices(range(len(data) + 1), k=self._rng.choice((0, 1, 3, 10))))
        for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
            try:
                connection.sendall(data[start:end])
            except ConnectionError:
                return


def sized(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


def _end_sending(connection: socket.socket) -> None:
    with suppress(OSError):  # the broker was quicker
        connection.shutdown(socket.SHUT_WR)


def _received(connection: socket.socket) -> bytes:
    """Return all that comes until the broker closes."""
    data = bytearray()
    with suppress(ConnectionError):
        while piece := connection.recv(1 << 16):
            data += piece
    return bytes(data)


def _one_answer(connection: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", _exactly(connection, 4))
    return _exactly(connection, size)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = connection.recv(size, socket.MSG_WAITALL)
    assert len(data) == size, "the broker closed instead of answering"
    return data


def check_answers(received: bytes, wanted: Sequence[Expected]) -> None:
    """Check that the responses are those of the first requests in order, up to one that closes."""
    answers = []
    while received:
        size = int.from_bytes(received[:4], "big")
        if len(received) < 4 + size:  # the connection was reset under it
            break
        answers.append(received[4 : 4 + size])
        received = received[4 + size :]
    for each in wanted:
        if each.response is not None and answers:
            answer(each, answers.pop(0))
        elif each.message is None:
            break
    assert not answers, "more answers than requests"


def run(seed: object, cases: int) -> None:
    """Run this many cases against a separate broker, which must still serve in the end."""
    files = _open_files()
    with Broker(TOPICS, auto_create_topics=False) as broker, ExitStack() as open_connections:
        listening_files = _open_files()
        connections = Connections(seed, broker)
        for connection in connections.half_open():
            open_connections.enter_context(connection)
        for number in range(cases):
            try:
                connections.try_case()
            except Exception as error:
                raise AssertionError(f"block {seed}, socket case {number}: {error!r}") from error
        Round(connections.ask, "sane", int(time.time() * 1000)).run()
        open_connections.close()
        until(lambda: _open_files() <= listening_files, "the end of abandoned connections")
    until(lambda: _open_files() <= files, "the end of all connections")


def _open_files() -> int:
    return len(os.listdir("/dev/fd"))  # noqa: PTH208 # what is listed may be gone when it is looked at
