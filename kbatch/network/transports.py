"""TransportChannel: a connection on a transport of asyncio, plain or under TLS.

Theory of operation. The transport has a copy of what is written, no more than a request, so that the memory
of batches is free at once. How much of it has gone out a transport does not say, only when nothing is left.
So all but the last byte counts as written from the beginning, for the peer may have it from then on, and the
last byte when nothing is left: no request is wholly written too early, none is taken for unwritten.
"""

import asyncio
import ssl
from collections.abc import Sequence
from typing import Protocol, cast, final

from kbatch.errors import AuthenticationError, KafkaError, NetworkError
from kbatch.network.channels import Buffer, release
from kbatch.network.tls import explained


class Listener(Protocol):
    """Who is told what happens on a connection."""

    def handle_made(self, channel: "TransportChannel") -> None: ...
    def handle_received(self, channel: "TransportChannel", data: memoryview) -> None: ...
    def handle_written(self, channel: "TransportChannel", written_bytes: int) -> None: ...
    def handle_lost(self, channel: "TransportChannel", error: KafkaError) -> None: ...


@final
class TransportChannel(asyncio.BufferedProtocol):
    """A connection.

    Parameters
    ----------
    connection_id : int
    peer : str
        Host, port, address and node, for errors.
    listener : Listener
    shared_space : memoryview
        Where bytes are received that the engine wants nowhere else. They are dealt with at once, so that all
        channels may share it.

    Attributes
    ----------
    opening : asyncio.Task | None
        What makes the connection.
    space : memoryview | None
        Where the engine wants the next bytes; None: anywhere. The listener's to set.
    """

    def __init__(self, connection_id: int, peer: str, listener: Listener, shared_space: memoryview) -> None:
        self.connection_id = connection_id
        self.peer = peer
        self.opening: asyncio.Task[None] | None = None
        self._listener = listener
        self.space: memoryview | None = None
        self._shared_space = shared_space
        self._transport: asyncio.Transport | None = None
        self._is_tls = False
        self._is_full = False
        self._owed_bytes = 0  # written, and not counted yet
        self._is_closed = False

    def write(self, buffers: Sequence[Buffer]) -> int:
        """Writes the buffers behind what is not sent yet, and lets go of them.

        Returns
        -------
        int
            How many bytes, from the oldest, count as newly written.
        """
        data = b"".join(buffers)
        release(buffers)
        transport = self._transport
        if transport is None or transport.is_closing():  # of which the listener is about to be told
            return 0
        self._owed_bytes += len(data)
        transport.write(data)
        written_bytes = self._owed_bytes - self._is_full
        self._owed_bytes = int(self._is_full)
        return written_bytes

    def close(self) -> None:
        """What is not sent is dropped, and the listener hears no more than that it is lost: now, but under
        TLS with a goodbye, where that can be sent at once."""
        self._is_closed = True
        if self.opening is not None:
            self.opening.cancel()
        if self._transport is not None and self._is_tls and not self._is_full:
            self._transport.close()
        elif self._transport is not None:
            self._transport.abort()

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = opened = cast(asyncio.Transport, transport)
        if self._is_closed:
            opened.abort()
            return
        # `pause_writing` as soon as something is left, which TLS has at the limit, the others above it
        self._is_tls = transport.get_extra_info("sslcontext") is not None
        opened.set_write_buffer_limits(high=int(self._is_tls), low=0)
        self._listener.handle_made(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._shared_space if self.space is None else self.space

    def buffer_updated(self, nbytes: int) -> None:
        if not self._is_closed:
            self._listener.handle_received(self, self.get_buffer(nbytes)[:nbytes])

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        owed_bytes, self._owed_bytes = self._owed_bytes, 0
        if owed_bytes and not self._is_closed:
            self._listener.handle_written(self, owed_bytes)

    def connection_lost(self, error: Exception | None) -> None:
        self._is_closed = True
        self._listener.handle_lost(self, why_lost(self.peer, error))


def why_lost(peer: str, error: BaseException | None) -> KafkaError:
    """Of a connection that was there. Kafka takes TLS's errors for a failure to authenticate
    (SslTransportLayer), but not an end in the midst of it."""
    if error is None or isinstance(error, ssl.SSLZeroReturnError | ssl.SSLEOFError):
        return NetworkError(f"the broker closed the connection to {peer}")
    if isinstance(error, ssl.SSLError):
        return AuthenticationError(f"no connection to {peer}: {explained(error)}")
    return NetworkError(f"the connection to {peer} broke: {getattr(error, 'strerror', None) or error}")


def why_not_secured(peer: str, error: BaseException) -> KafkaError:
    """Of a connection whose TLS handshake failed."""
    is_end = isinstance(error, ConnectionResetError)
    lost = why_lost(peer, None if is_end else error)
    if isinstance(lost, NetworkError):
        return NetworkError(f"{lost} in the TLS handshake: is it an SSL listener's port?")
    return lost
