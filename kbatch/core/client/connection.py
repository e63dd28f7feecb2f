"""The bytes and requests of one connection; `connections` interprets them.

Theory of operation. Both directions are streams. A request lies from `start_offset` to `end_offset` of the
outgoing stream, of which `written_bytes` have reached the socket. So it is known of each request whether a
broker can have seen a part of it. Brokers answer in order: an answer belongs to the oldest request, and must
have its correlation id.

A small answer is copied out of the memory that received it. A large one is received into memory that its
request names (`Request.memory`). `space` offers that memory as soon as the answer's size is known: bytes that
are received there are not copied. It is not touched before there are bytes for it.

After org.apache.kafka.clients.InFlightRequests and org.apache.kafka.common.network.NetworkReceive.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from kbatch._native.codec.memory import new_memory
from kbatch.core.client.authentication import UNLIMITED, Login, Session
from kbatch.core.client.cluster import Node
from kbatch.errors import KafkaError, ProtocolError
from kbatch.protocol.structs import Message

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kbatch._native.io.lent import LentRequest

# An answer has at least a correlation id. The maximum is librdkafka's receive.message.max.bytes; the first
# bytes of HTTP and TLS servers, read as a size, are above it.
MIN_FRAME_BYTES = 4
MAX_FRAME_BYTES = 100_000_000
# The maximum before the connection is ready: nothing is known of the peer yet.
MAX_SETUP_FRAME_BYTES = 524_288
# From this size on an answer has memory of its own (KB_FETCH_SPACE_BYTES of src_c/fetch_link.h is the same).
LARGE_FRAME_BYTES = 65_536
MAX_CORRELATION_ID = 2**31 - 1
# The first two bytes of an alert record of TLS.
_TLS_ALERT = 0x1503

_int32 = struct.Struct(">i").unpack_from


class Request:
    """A request that was sent, or is being sent.

    Attributes
    ----------
    node_id : int
    kind : type of Message
        The message's class; the message itself and its memory are not needed after the write.
    api_version : int
    handle : Callable[[Response], None]
        Called once, with the answer or an error.
    expects_response : bool
        False for Produce with acks=0, which is done when it is written.
    memory : Callable[[int], Buffer]
        Returns writable memory of that many bytes for an answer of LARGE_FRAME_BYTES or more. Records
        in the answer refer to it.
    read : Callable[[Request, bytes | memoryview], Any]
        Returns the answer in a frame, or raises ProtocolError.
    correlation_id : int
    created_ns, sent_ns, deadline_ns : int
        When the connection got it, when its last byte was written (-1 before), and when it times out;
        throttled time does not count.
    start_offset, end_offset : int
        Its offsets in the outgoing stream.
    lent : LentRequest | None
        What may be lent again, if it was sent on a lent connection.
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
        "lent",
        "memory",
        "node_id",
        "read",
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
        read: Callable[[Request, bytes | memoryview], Any],
        memory: Callable[[int], Buffer] = new_memory,
    ) -> None:
        self._connection = connection
        self.node_id = connection.node.node_id
        self.kind = kind
        self.api_version = api_version
        self.handle = handle
        self.expects_response = expects_response
        self.memory = memory
        self.read = read
        self.lent: LentRequest | None = None
        self.correlation_id = connection.next_correlation_id
        self.created_ns = now_ns
        self.sent_ns = -1
        self.deadline_ns = deadline_ns
        self.start_offset = connection.queued_bytes
        self.end_offset = connection.queued_bytes + size_bytes

    @property
    def was_written(self) -> bool:
        """True if at least one byte of it has reached the socket; if not, no broker has seen it."""
        return self._connection.written_bytes > self.start_offset

    def __repr__(self) -> str:
        name = f"{self.kind.__name__} v{self.api_version}"
        return f"<{name}, correlation id {self.correlation_id}, to node {self.node_id}>"


class Response(NamedTuple):
    """The result of a request.

    Attributes
    ----------
    request : Request
    message : Message | None
        The answer. None is not an error if the request expects no answer.
    error : KafkaError | None
        NetworkError if the connection ended, KafkaTimeoutError if this request timed out, ProtocolError
        if the answer is unreadable.
    now_ns : int
    """

    request: Request
    message: Any
    error: KafkaError | None
    now_ns: int


class Connection:
    """A connection, from the attempt to connect to its end.

    Attributes
    ----------
    connection_id : int
    node : Node
        The node at the time of the attempt.
    in_flight : deque of Request
        The unanswered requests, oldest first.
    queued_bytes, written_bytes : int
        The bytes handed out for writing since the beginning, and those written.
    active_ns : int
        When bytes last went either way.
    fault : ProtocolError | None
        The error in the received bytes.
    space : memoryview | None
        Memory for the remainder of a large answer. Its bytes may be received there, or anywhere.
    max_frame_bytes : int
        The maximum size of an answer.
    login : Login | None
        The login in progress.
    session : Session
        The time for which it is authenticated.
    has_served : bool
        True if it was ready and has answered a request since.
    awaited : str
        What the client does before it connects, if that may take long; else empty.
    """

    __slots__ = (
        "_incoming",
        "_large",
        "active_ns",
        "awaited",
        "connection_id",
        "fault",
        "has_served",
        "in_flight",
        "login",
        "max_frame_bytes",
        "next_correlation_id",
        "node",
        "queued_bytes",
        "session",
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
        self.max_frame_bytes = MAX_FRAME_BYTES
        self.login: Login | None = None
        self.session: Session = UNLIMITED
        self.has_served = False
        self.awaited = ""
        self._incoming = bytearray()
        self._large = memoryview(b"")  # the answer, of which `space` is the end

    def add(self, request: Request) -> None:
        """Add a request whose bytes are handed out for writing."""
        self.in_flight.append(request)
        self.queued_bytes = request.end_offset
        self.next_correlation_id = (self.next_correlation_id + 1) & MAX_CORRELATION_ID

    @property
    def has_begun_answer(self) -> bool:
        """True if it has received a part of an answer."""
        return self.space is not None or bool(self._incoming)

    @property
    def is_written(self) -> bool:
        """True if all bytes that were handed out are written."""
        return self.written_bytes == self.queued_bytes

    def handle_written(self, written_bytes: int, now_ns: int) -> Request | None:
        """Count more written bytes, and return the request that is done with them, if there is one."""
        if not 0 <= written_bytes <= self.queued_bytes - self.written_bytes:
            raise ValueError(
                f"{written_bytes} bytes written of {self.queued_bytes - self.written_bytes} that were to be"
            )
        self.written_bytes += written_bytes
        self.active_ns = now_ns
        # the unwritten requests are the newest: a write has one, or several that all expect responses
        for request in reversed(self.in_flight):
            if request.sent_ns >= 0:
                break
            if request.end_offset <= self.written_bytes:
                request.sent_ns = now_ns
        if not self.in_flight or not self.is_written or self.in_flight[-1].expects_response:
            return None
        return self.in_flight.pop()

    def lend_requests(self) -> list[LentRequest]:
        """Remove and return the newest requests that were sent while it was lent."""
        lent: list[LentRequest] = []
        while self.in_flight and (request := self.in_flight[-1].lent) is not None:
            lent.append(request)
            self.in_flight.pop()
        lent.reverse()
        return lent

    def frames(self, data: bytes | bytearray | memoryview) -> list[bytes | memoryview]:
        """Return the frames that `data` completes, without their sizes.

        `data` is copied, and its memory may be used again, unless it is the beginning of `space`. An
        impossible size ends the list, and is in `fault`.
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
                if not MIN_FRAME_BYTES <= length <= self.max_frame_bytes:
                    self.fault = _impossible_size(length)
                    return found
                end = pos + 4 + length
                if end > size_bytes:
                    if length >= LARGE_FRAME_BYTES:
                        self._begin_large(length, view[pos + 4 :], len(found))
                        pos = size_bytes
                    break
                found.append(bytes(view[pos + 4 : end]))
                pos = end
        if data is incoming:
            del incoming[:pos]
        elif pos < size_bytes:
            incoming += data[pos:]
        return found

    def _begin_large(self, length: int, begun: memoryview, before: int) -> None:
        """Begin a large answer, which follows `before` answers whose requests are still in flight."""
        memory = self.in_flight[before].memory if before < len(self.in_flight) else new_memory
        self._large = memoryview(memory(length))
        self._large[: len(begun)] = begun
        self.space = self._large[len(begun) :]

    def _fill(self, space: memoryview, data: memoryview, found: list[bytes | memoryview]) -> memoryview:
        """Receive the remainder of a large answer, or a part of it, and return the bytes after it."""
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
        """Remove and return the request that a frame answers. If there is none, set `fault`; return None."""
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
    if length >> 16 == _TLS_ALERT:
        return ProtocolError("the listener speaks TLS: set security.protocol=SSL or SASL_SSL")
    return ProtocolError(
        f"an answer of {length} bytes; use the port of a Kafka broker, and its listener's protocol as "
        "security.protocol"
    )
