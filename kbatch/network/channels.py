"""Channels: a connection's socket, plain or under TLS (tls_channel.py), for the loop that waits for it.

Theory of operation. A channel is connected (TCP), then ready (after its handshake, if it has one), then
carries bytes until it ends. `ended` says why, and is the only sign of failure. All calls return at once.
Written buffers go out by reference. Each view is released after the socket or the cipher took its last byte,
or when the channel is closed: the memory of a batch is reused only after its last read (KAFKA-19012).

Both kinds have the same methods: `connect`, `proceed`, `write`, `flush`, `receive`, `close`.
"""

import errno
import os
import socket
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import islice
from selectors import EVENT_READ, EVENT_WRITE
from typing import Any, final

from kbatch._native.io.sockets import receive_into, send
from kbatch.core.client.actions import release
from kbatch.errors import KafkaError, NetworkError

Buffer = bytes | memoryview

_IOV_MAX = os.sysconf("SC_IOV_MAX") if hasattr(os, "sysconf") else 16
# The bytes of a large answer for which its reader is woken. Each time costs a round of the loop and a switch
# of threads, some 30 us; to receive this much takes 100.
_LOW_WATER_BYTES = 1 << 20
# Linux still wakes a reader whose window is full. On other systems this is not known.
_HAS_LOW_WATER = sys.platform.startswith("linux")


class Channel(ABC):
    """The common part of both kinds.

    Attributes
    ----------
    connection_id : int
    peer : str
        Host, port, address and node, for errors.
    ended : KafkaError or None
        The reason of its end.
    is_drained : bool
        True if the socket had no bytes when it was last read.
    is_ready : bool
        True if bytes may be written.
    events : int
        The events for which the selector waits; the loop sets them.
    may_have_more : bool
        True if `receive` may find bytes without an event of the selector.
    space : memoryview or None
        The memory that the engine wants for the next bytes, or None for any.
    """

    __slots__ = (
        "_is_connected",
        "_socket",
        "_unsent",
        "connection_id",
        "ended",
        "events",
        "is_drained",
        "is_ready",
        "may_have_more",
        "peer",
        "space",
    )

    def __init__(self, connection_id: int, peer: str, connecting: socket.socket) -> None:
        self.connection_id = connection_id
        self.peer = peer
        self.ended: KafkaError | None = None
        self.is_drained = False
        self.is_ready = False
        self.events = 0
        self.may_have_more = False
        self.space: memoryview | None = None
        self._is_connected = False
        self._socket = connecting
        self._unsent: list[Buffer] = []

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def wanted_events(self) -> int:
        """The events to wait for now. Waiting for writes only if needed saves most rounds."""
        if not self._is_connected:
            return EVENT_WRITE
        return EVENT_READ | EVENT_WRITE if self.has_unsent else EVENT_READ

    def connect(self, address: Any) -> None:
        """Begin to connect."""
        error = self._socket.connect_ex(address)
        if error != errno.EINPROGRESS:
            self._connected(error)

    def proceed(self) -> None:
        """Advance towards `is_ready`, after the socket became readable or writable."""
        if not self._is_connected:
            self._connected(self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
        elif self.ended is None:
            self._shake_hands()

    def write(self, buffers: Sequence[Buffer]) -> int:
        """Queue the buffers after unsent ones, and write them if there are none.

        Returns
        -------
        int
            The number of newly written bytes, from the oldest on.
        """
        was_idle = not self.has_unsent
        self._unsent += buffers
        return self.flush() if was_idle else 0

    def expect(self, space: memoryview | None) -> None:
        """Set `space`."""
        self.space = space

    def close(self) -> None:
        """Close at once, and drop unsent bytes."""
        self._drop_unsent()
        self._socket.close()

    @property
    @abstractmethod
    def has_unsent(self) -> bool:
        """True if bytes wait for the socket."""

    @abstractmethod
    def flush(self) -> int:
        """Write what the socket takes. Returns as `write` does."""

    @abstractmethod
    def receive(self, space: memoryview) -> memoryview:
        """Receive bytes into `space`, and return its filled part, which is empty if none came or the channel
        ended.
        """

    @abstractmethod
    def _shake_hands(self) -> None:
        """Advance from connected to ready."""

    def _drop_unsent(self) -> None:
        release(self._unsent)
        self._unsent.clear()

    def _connected(self, error: int) -> None:
        if error:
            self.ended = NetworkError(f"no connection to {self.peer}: {os.strerror(error)}")
            return
        self._is_connected = True
        self._shake_hands()

    def _receive_into(self, space: memoryview) -> int:
        """Receive bytes, and return their number; 0 also if the channel ended."""
        size = 0
        try:
            size = receive_into(self._socket.fileno(), space)
        except BlockingIOError:
            return 0
        except OSError as error:
            self._broke(error)
            return 0
        finally:
            self.is_drained = not size
        if not size:
            self._end(f"the broker closed the connection to {self.peer}")
        return size

    def _broke(self, error: OSError) -> None:
        self._end(f"the connection to {self.peer} broke: {error.strerror or error}")

    def _end(self, text: str) -> None:
        if self.ended is None:
            self.ended = NetworkError(text)

    def _sent(self, sent_bytes: int) -> None:
        """Drop sent bytes from the unsent buffers."""
        unsent = self._unsent
        count = 0
        for buffer in unsent:
            if sent_bytes < len(buffer):
                break
            sent_bytes -= len(buffer)
            if type(buffer) is memoryview:
                buffer.release()
            count += 1
        del unsent[:count]
        if sent_bytes:
            cut = unsent[0]
            unsent[0] = memoryview(cut)[sent_bytes:]
            if type(cut) is memoryview:
                cut.release()


@final
class PlainChannel(Channel):
    """A channel without TLS."""

    __slots__ = ("_low_water_bytes",)

    def __init__(self, connection_id: int, peer: str, connecting: socket.socket) -> None:
        super().__init__(connection_id, peer, connecting)
        self._low_water_bytes = 1

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def flush(self) -> int:
        written = 0
        while self._unsent and self.ended is None:
            count = len(self._unsent)
            offered = self._unsent if count <= _IOV_MAX else list(islice(self._unsent, _IOV_MAX))
            try:
                sent = send(self._socket.fileno(), offered)
            except BlockingIOError:
                break
            except OSError as error:
                self._broke(error)
                break
            written += sent
            expected = count - len(offered)
            self._sent(sent)
            if len(self._unsent) > expected:
                break  # it is full
        return written

    def expect(self, space: memoryview | None) -> None:
        """Set `space`, and let the socket be readable only when much of it can be filled."""
        self.space = space
        wanted_bytes = 1 if space is None else min(len(space), _LOW_WATER_BYTES)
        if wanted_bytes != self._low_water_bytes and _HAS_LOW_WATER:
            self._low_water_bytes = wanted_bytes
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted_bytes)

    def receive(self, space: memoryview) -> memoryview:
        return space[: self._receive_into(space)]

    def _shake_hands(self) -> None:
        self.is_ready = True
