"""One connection's bytes and the requests on it; what they mean is the business of `connections`.

Theory of operation. Both directions are streams. Requests are counted in by their bytes: one that was given
out for writing lies from `start_offset` to `end_offset`, and `written_bytes` says how much of the stream has
reached the socket, so that it is known of every request whether a broker can have seen any of it. Brokers
answer in order, so an answer belongs to the oldest request, whose correlation id it must bear.

A small answer is a copy out of the memory that it was received in. A large one has memory of its own, which
`space` names as soon as its size is known: what is received there stays where it is. The memory is not
touched before there are bytes for it.

After org.apache.kafka.clients.InFlightRequests and org.apache.kafka.common.network.NetworkReceive.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from kbatch._native.codec.memory import new_memory
from kbatch.core.client.cluster import Node
from kbatch.errors import KafkaError, ProtocolError
from kbatch.protocol.structs import Message

# An answer has a correlation id at least. The limit is librdkafka's receive.message.max.bytes; what HTTP and
# TLS servers say is above it, when it is read as a size.
MIN_FRAME_BYTES = 4
MAX_FRAME_BYTES = 100_000_000
# From this size on an answer has memory of its own.
LARGE_FRAME_BYTES = 65_536
MAX_CORRELATION_ID = 2**31 - 1

_int32 = struct.Struct(">i").unpack_from


class Request:
    """A request that was sent, or is being sent.

    Attributes
    ----------
    node_id : int
    kind : type of Message
        Of what is asked; the message itself, and what it points into, are needed no more once it is written.
    api_version : int
    handle : Callable[[Response], None]
        Called once, with the answer or the reason why there is none.
    expects_response : bool
        False for Produce with acks=0: it is done when it is written.
    correlation_id : int
    created_ns, sent_ns, deadline_ns : int
        When it was given to the connection, when the last of it was written (-1 before), and when it times
        out; time that the node throttles does not count.
    start_offset, end_offset : int
        Where it lies in the stream of what the connection writes.
    """

    __slots__ = (
        "_connection",
        "api_version",
        "correlation_id",
        "created_ns",
        "deadline_ns",
        "end_offset",
        "expects_response",
        "handle",
        "kind",
        "node_id",
        "sent_ns",
        "start_offset",
    )

    def __init__(
        self,
        connection: Connection,
        kind: type[Message],
        api_version: int,
        handle: Callable[[Response], None],
        *,
        expects_response: bool,
        now_ns: int,
        deadline_ns: int,
        size_bytes: int,
    ) -> None:
        self._connection = connection
        self.node_id = connection.node.node_id
        self.kind = kind
        self.api_version = api_version
        self.handle = handle
        self.expects_response = expects_response
        self.correlation_id = connection.next_correlation_id
        self.created_ns = now_ns
        self.sent_ns = -1
        self.deadline_ns = deadline_ns
        self.start_offset = connection.queued_bytes
        self.end_offset = connection.queued_bytes + size_bytes

    @property
    def was_written(self) -> bool:
        """Whether at least one byte of it has reached the socket: if not, no broker has seen it."""
        return self._connection.written_bytes > self.start_offset

    def __repr__(self) -> str:
        name = f"{self.kind.__name__} v{self.api_version}"
        return f"<{name}, correlation id {self.correlation_id}, to node {self.node_id}>"


class Response(NamedTuple):
    """What came of a request.

    Attributes
    ----------
    request : Request
    message : Message | None
        The answer; None without one, which for a request that expects none is no error.
    error : KafkaError | None
        NetworkError when the connection ended, KafkaTimeoutError when this request timed out, ProtocolError
        for an answer that cannot be read.
    now_ns : int
    """

    request: Request
    message: Any
    error: KafkaError | None
    now_ns: int


class Connection:
    """A connection, from the attempt to make it to its end.

    Attributes
    ----------
    connection_id : int
    node : Node
        The node as it was when the connection was begun.
    in_flight : deque of Request
        Those that have not been answered, oldest first.
    queued_bytes, written_bytes : int
        Given out for writing since the beginning, and written of these.
    active_ns : int
        When bytes last went either way.
    fault : ProtocolError | None
        Why what came in cannot be an answer.
    space : memoryview | None
        Where the rest of a large answer belongs. Its bytes may be received there, or anywhere.
    """

    __slots__ = (
        "_incoming",
        "_large",
        "active_ns",
        "connection_id",
        "fault",
        "in_flight",
        "next_correlation_id",
        "node",
        "queued_bytes",
        "space",
        "written_bytes",
    )

    def __init__(self, connection_id: int, node: Node, now_ns: int) -> None:
        self.connection_id = connection_id
        self.node = node
        self.in_flight: deque[Request] = deque()
        self.queued_bytes = 0
        self.written_bytes = 0
        self.active_ns = now_ns
        self.next_correlation_id = 0
        self.fault: ProtocolError | None = None
        self.space: memoryview | None = None
        self._incoming = bytearray()
        self._large = memoryview(b"")  # the answer that `space` is the end of

    def add(self, request: Request) -> None:
        """The request's bytes are given out for writing."""
        self.in_flight.append(request)
        self.queued_bytes = request.end_offset
        self.next_correlation_id = (self.next_correlation_id + 1) & MAX_CORRELATION_ID

    @property
    def is_written(self) -> bool:
        """Whether all that was given out has been written."""
        return self.written_bytes == self.queued_bytes

    def handle_written(self, written_bytes: int, now_ns: int) -> Request | None:
        """So many more bytes were written. The request that is done by that, if there is one."""
        if not 0 <= written_bytes <= self.queued_bytes - self.written_bytes:
            raise ValueError(
                f"{written_bytes} bytes written of {self.queued_bytes - self.written_bytes} that were to be"
            )
        self.written_bytes += written_bytes
        self.active_ns = now_ns
        # no request is sent before the one before it is written, so it is the newest that was not
        if not self.in_flight or not self.is_written:
            return None
        newest = self.in_flight[-1]
        if newest.sent_ns < 0:
            newest.sent_ns = now_ns
        if newest.expects_response:
            return None
        self.in_flight.pop()
        return newest

    def frames(self, data: bytes | bytearray | memoryview) -> list[bytes | memoryview]:
        """Return the frames that are complete with `data`, without their sizes.

        `data` is copied, so that its memory may be used again, unless it is the beginning of `space`. An
        impossible size ends the list, and is found in `fault`.
        """
        found: list[bytes | memoryview] = []
        if self.space is not None:
            data = self._fill(self.space, memoryview(data), found)
        incoming = self._incoming
        if incoming:
            incoming += data
            data = incoming
        pos, size_bytes = 0, len(data)
        with memoryview(data) as view:
            while size_bytes - pos >= 4:
                (length,) = _int32(view, pos)
                if not MIN_FRAME_BYTES <= length <= MAX_FRAME_BYTES:
                    self.fault = _impossible_size(length)
                    return found
                end = pos + 4 + length
                if end > size_bytes:
                    if length >= LARGE_FRAME_BYTES:
                        self._begin_large(length, view[pos + 4 :])
                        pos = size_bytes
                    break
                found.append(bytes(view[pos + 4 : end]))
                pos = end
        if data is incoming:
            del incoming[:pos]
        elif pos < size_bytes:
            incoming += data[pos:]
        return found

    def _begin_large(self, length: int, begun: memoryview) -> None:
        self._large = memoryview(new_memory(length))
        self._large[: len(begun)] = begun
        self.space = self._large[len(begun) :]

    def _fill(self, space: memoryview, data: memoryview, found: list[bytes | memoryview]) -> memoryview:
        """Take the rest of a large answer, or a part of it, and return what comes after it."""
        size_bytes = min(len(space), len(data))
        if data.obj is not space.obj:
            space[:size_bytes] = data[:size_bytes]
        if size_bytes < len(space):
            self.space = space[size_bytes:]
        else:
            found.append(self._large)
            self.space, self._large = None, memoryview(b"")
        return data[size_bytes:]

    def match(self, frame: bytes | memoryview) -> Request | None:
        """Takes the request out that a frame answers; None if it answers none, and `fault` says more."""
        (correlation_id,) = _int32(frame)
        request = self.in_flight[0] if self.in_flight else None
        if request is not None and request.expects_response and request.correlation_id == correlation_id:
            return self.in_flight.popleft()
        expected = "none" if request is None else str(request.correlation_id)
        self.fault = ProtocolError(
            f"an answer with correlation id {correlation_id}, where {expected} was expected"
        )
        return None


def _impossible_size(length: int) -> ProtocolError:
    return ProtocolError(
        f"an answer of {length} bytes: is this the port of a Kafka broker, and security.protocol the "
        "protocol of its listener?"
    )
