"""A raw connection to a broker over a socket, and the requests that most tests send."""

from __future__ import annotations

import socket
import ssl
import time
from contextlib import suppress
from typing import Any, Self

from kbatch.protocol import codec
from kbatch.protocol.structs import Message
from tests.oracle import plain
from tests.support import requests
from tests.support.broker_core import TOPIC, produced
from tests.support.patience import HANG_SECONDS

TIMEOUT_SECONDS = HANG_SECONDS
NO_TOPIC_ID = bytes(16)


class ConnectionClosed(Exception):
    """The broker closed the connection instead of answering."""


class Wire:
    """A connection, its requests and answers one by one; TLS with a context. `options` are of its socket."""

    client_id = "wire"

    def __init__(
        self,
        bootstrap_servers: str,
        node_id: int = 0,
        *,
        tls: ssl.SSLContext | None = None,
        **options: int,
    ) -> None:
        self._address = bootstrap_servers.split(",")[node_id]
        self._tls = tls
        self._options = options
        self._correlation_id = 0
        self.connect()

    def connect(self) -> None:
        host, port = self._address.rsplit(":", 1)
        self.socket = socket.socket()
        for option, value in self._options.items():
            self.socket.setsockopt(socket.SOL_SOCKET, getattr(socket, option), value)
        self.socket.settimeout(TIMEOUT_SECONDS)
        try:
            self.socket.connect((host, int(port)))
            if self._tls is not None:
                self.socket = self._tls.wrap_socket(self.socket, server_hostname=host)
        except OSError:
            self.socket.close()
            raise
        self._incoming = self.socket.makefile("rb")
        self._awaited: list[tuple[type[Message], int, int]] = []

    def close(self) -> None:
        self._incoming.close()
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def frame(self, request: Message, version: int | None = None) -> bytes:
        """Return the bytes of a request, in the newest version if none is given; `receive` expects its
        answer.
        """
        version = request.versions[-1] if version is None else version
        self._correlation_id += 1
        self._awaited.append((request.response, version, self._correlation_id))
        return b"".join(codec.encode_request(request, version, self._correlation_id, self.client_id))

    def send(self, request: Message, version: int | None = None) -> None:
        self.send_bytes(self.frame(request, version))

    def send_bytes(self, data: bytes) -> None:
        # A closed connection shows when its answer is read.
        with suppress(ConnectionError):
            self.socket.sendall(data)

    def ask(self, request: Any, version: int | None = None) -> Any:
        """Send a request and return its answer. Raises ConnectionClosed."""
        self.send(request, version)
        return self.receive()

    def receive(self) -> Any:
        """Return the answer, which must be to the oldest request without one. Raises ConnectionClosed."""
        kind, version, expected_id = self._awaited.pop(0)
        correlation_id, answer = codec.decode_response(kind, version, self.receive_frame())
        assert correlation_id == expected_id
        return answer

    def receive_frame(self) -> bytes:
        try:
            size = self._incoming.read(4)
            frame = self._incoming.read(int.from_bytes(size, "big")) if len(size) == 4 else b""
        except (ConnectionError, ssl.SSLError):
            frame = b""
        if not frame:
            raise ConnectionClosed
        return frame

    @property
    def is_closed(self) -> bool:
        """True if the broker closes the connection, without another byte."""
        try:
            return self._incoming.read(1) == b""
        except (ConnectionError, ssl.SSLError):
            return True


def produce(
    wire: Wire, *values: bytes, topic: str = TOPIC, index: int = 0, acks: int = -1, **header: Any
) -> Any:
    now_ms = int(time.time() * 1000)  # producers of long ago would be forgotten
    rows: list[plain.Row] = [(None, value, (), now_ms) for value in values]
    records = {(topic, index): plain.encode(rows, **header)}
    request = requests.produce_request(records, lambda _: NO_TOPIC_ID, acks=acks, timeout_ms=100)
    return produced(wire.ask(request, 11))


def fetch_request(offset: int = 0, *, max_wait_ms: int = 0, max_bytes: int = 1 << 20) -> Any:
    return requests.fetch_request(
        TOPIC,
        NO_TOPIC_ID,
        offset,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        partition_max_bytes=max_bytes,
    )
