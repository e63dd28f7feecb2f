"""The actions that an engine returns for its owner, in order; results come back by its `handle_*` methods.

An engine may have more actions of its own, which are registered with its owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

# An address family of the socket module, what `connect` of such a socket takes, and its canonical name, if
# that was asked for and the name service has one.
Address = tuple[int, Any] | tuple[int, Any, str]


class Resolve(NamedTuple):
    """Find the addresses of a name, and if `canonical` the name of each address: `handle_resolved`."""

    host: str
    port: int
    canonical: bool = False


class Connect(NamedTuple):
    """Connect, and for TLS shake hands: `handle_connected`, or `handle_closed`."""

    connection_id: int
    node_id: int
    host: str
    port: int
    family: int
    sockaddr: Any


class Write(NamedTuple):
    """Write these bytes after those of earlier writes: `handle_written`, part by part if necessary, or
    `handle_closed`. The buffers are the caller's memory: release them after the write or the close.
    """

    connection_id: int
    buffers: Sequence[bytes | memoryview]
    size_bytes: int


def release(buffers: Iterable[bytes | memoryview]) -> None:
    """Release the views among the buffers, and so their memory."""
    for buffer in buffers:
        if type(buffer) is memoryview:
            buffer.release()


class Close(NamedTuple):
    """Close, and drop unwritten bytes. The owner reports nothing more about the connection."""

    connection_id: int


class Authenticate(NamedTuple):
    """Make the next token of the connection's SASL exchange with `host`, from the broker's `challenge`: None
    begins an exchange. `handle_token` gets the token, None if the exchange is complete, or the error.
    """

    connection_id: int
    host: str
    challenge: bytes | None


class EndAuthentication(NamedTuple):
    """Drop the connection's exchange, if it has one: its tokens are not needed any more."""

    connection_id: int


IoAction = Resolve | Connect | Write | Close | Authenticate | EndAuthentication
