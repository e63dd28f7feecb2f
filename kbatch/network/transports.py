"""TransportChannel: a connection on a transport of asyncio, plain or under TLS.

Theory of operation. The transport gets a copy of each write, at most a request, so that the memory of batches
is free at once. A transport does not report how much it has sent, only that nothing is left. So all bytes of
a write but the last count as written at once, since the peer may have them, and the last one when nothing is
left. No request counts as wholly written too early, and none as unwritten wrongly.
"""

import asyncio
import ssl
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, cast, final

from kbatch.core.client.actions import release
from kbatch.errors import KafkaError, NetworkError
from kbatch.network.channels import Buffer

if TYPE_CHECKING:
    from kbatch.network.tls import Handshake


class Listener(Protocol):
    """The receiver of a connection's events."""

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
    handshake : Handshake or None
        The connection's TLS, if it has any.

    Attributes
    ----------
    opening : asyncio.Task | None
        What makes the connection.
    space : memoryview | None
        Where the engine wants the next bytes; None: anywhere. The listener's to set.
    """

    def __init__(
        self,
        connection_id: int,
        peer: str,
        listener: Listener,
        shared_space: memoryview,
        handshake: "Handshake | None",
    ) -> None:
        self.connection_id = connection_id
        self.peer = peer
        self.opening: asyncio.Task[None] | None = None
        self._listener = listener
        self.space: memoryview | None = None
        self._shared_space = shared_space
        self._transport: asyncio.Transport | None = None
        self._handshake = handshake
        self._is_full = False
        self._owed_bytes = 0  # written, and not counted yet
        self._is_closed = False

    def write(self, buffers: Sequence[Buffer]) -> int:
        """Write the buffers after unsent bytes, and release them.

        Returns
        -------
        int
            The number of bytes, from the oldest on, that newly count as written.
        """
        data = b"".join(buffers)
        release(buffers)
        transport = self._transport
        if transport is None or transport.is_closing():  # the listener gets the event soon
            return 0
        self._owed_bytes += len(data)
        transport.write(data)
        written_bytes = self._owed_bytes - self._is_full
        self._owed_bytes = int(self._is_full)
        return written_bytes

    def close(self) -> None:
        """Close at once, under TLS with a goodbye if possible, and drop unsent bytes. The only further event
        is the loss.
        """
        self._is_closed = True
        if self.opening is not None:
            self.opening.cancel()
        if self._transport is not None and self._handshake is not None and not self._is_full:
            self._transport.close()
        elif self._transport is not None:
            self._transport.abort()

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = opened = cast(asyncio.Transport, transport)
        if self._is_closed:
            opened.abort()
            return
        # `pause_writing` as soon as bytes are left: TLS calls it at the limit, others above it
        opened.set_write_buffer_limits(high=int(self._handshake is not None), low=0)
        if self._handshake is not None:
            self._handshake.handle_shaken()
        self._listener.handle_made(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._shared_space if self.space is None else self.space

    def buffer_updated(self, nbytes: int) -> None:
        if self._handshake is not None and not self._handshake.is_over:
            self._handshake.handle_data()
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
        self._listener.handle_lost(self, self.why_lost(error))

    def why_lost(self, error: BaseException | None) -> KafkaError:
        """Return the error of the lost connection, or of a failed handshake."""
        handshake = self._handshake
        if handshake is not None and isinstance(error, ssl.SSLError):
            return handshake.error_of(error)
        hint = "" if handshake is None else handshake.hint
        # asyncio reports the end of the stream in a handshake as a reset
        if error is None or (isinstance(error, ConnectionResetError) and self._transport is None):
            return NetworkError(f"the broker closed the connection to {self.peer}{hint}")
        reason = getattr(error, "strerror", None) or error
        return NetworkError(f"the connection to {self.peer} broke: {reason}{hint}")
