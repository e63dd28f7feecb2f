"""A raw connection to a broker over a socket, and the requests that most tests send."""

from __future__ import annotations

import socket
import ssl
import time
from typing import Any

from kbatch.protocol import codec, messages
from kbatch.protocol.structs import Message
from tests.oracle import plain
from tests.support.broker_core import TOPIC, produced
from tests.support.patience import HANG_SECONDS

TIMEOUT_SECONDS = HANG_SECONDS


class Wire:
    """A connection, its requests and answers one by one; TLS with a context."""

    def __init__(
        self,
        bootstrap_servers: str,
        node_id: int = 0,
        *,
        tls: ssl.SSLContext | None = None,
        **options: Any,
    ) -> None:
        host, port = bootstrap_servers.split(",")[node_id].rsplit(":", 1)
        self.socket = socket.socket()
        for option, value in options.items():
            self.socket.setsockopt(socket.SOL_SOCKET, getattr(socket, option), value)
        self.socket.settimeout(TIMEOUT_SECONDS)
        try:
            self.socket.connect((host, int(port)))
            if tls is not None:
                self.socket = tls.wrap_socket(self.socket, server_hostname=host)
        except OSError:
            self.socket.close()
            raise
        self._incoming = self.socket.makefile("rb")
        self._correlation_id = 0

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self._incoming.close()
        self.socket.close()

    def frame(self, request: Message, version: int | None = None) -> bytes:
        self._correlation_id += 1
        version = request.versions[-1] if version is None else version
        return b"".join(codec.encode_request(request, version, self._correlation_id, "wire"))

    def ask(self, request: Any, version: int | None = None) -> Any:
        version = request.versions[-1] if version is None else version
        self.socket.sendall(self.frame(request, version))
        return self.receive(request.response, version)[1]

    def receive(self, kind: type[Message], version: int | None = None) -> tuple[int, Any]:
        size = int.from_bytes(self._incoming.read(4), "big")
        return codec.decode_response(
            kind, kind.versions[-1] if version is None else version, self._incoming.read(size)
        )

    @property
    def is_closed(self) -> bool:
        """True if the broker closes the connection, without another byte."""
        try:
            return self._incoming.read(1) == b""
        except ConnectionError:
            return True


def produce(
    wire: Wire, *values: bytes, topic: str = TOPIC, index: int = 0, acks: int = -1, **header: Any
) -> Any:
    kind = messages.ProduceRequest
    now_ms = int(time.time() * 1000)  # producers of long ago would be forgotten
    rows: list[plain.Row] = [(None, value, (), now_ms) for value in values]
    partition = kind.PartitionProduceData(index=index, records=plain.encode(rows, **header))
    data = kind.TopicProduceData(name=topic, partition_data=[partition])
    return produced(wire.ask(kind(acks=acks, timeout_ms=100, topic_data=[data]), 11))


def fetch_request(offset: int = 0, *, max_wait_ms: int = 0, max_bytes: int = 1 << 20) -> Any:
    kind = messages.FetchRequest
    partition = kind.FetchPartition(fetch_offset=offset, partition_max_bytes=max_bytes)
    topic = kind.FetchTopic(topic=TOPIC, partitions=[partition])
    return kind(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=max_bytes, topics=[topic])
