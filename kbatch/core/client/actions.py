"""What an engine asks its owner to do, in this order; the answers come back by its `handle_*` methods.

An engine may have actions of its own beside these, which are registered with its owner.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

# An address family of the socket module, and what `connect` of such a socket takes.
Address = tuple[int, Any]


class Resolve(NamedTuple):
    """Find the addresses of a name: `handle_resolved`."""

    host: str
    port: int


class Connect(NamedTuple):
    """Connect, and for TLS shake hands: `handle_connected`, or `handle_closed`."""

    connection_id: int
    node_id: int
    host: str
    port: int
    family: int
    sockaddr: Any


class Write(NamedTuple):
    """Write these bytes behind those of earlier writes: `handle_written`, part by part if need be, or
    `handle_closed`. The buffers are the caller's memory: they are let go of when written or closed.
    """

    connection_id: int
    buffers: Sequence[bytes | memoryview]
    size_bytes: int


class Close(NamedTuple):
    """Close, and drop what was not written yet. Nothing more is to be said about the connection."""

    connection_id: int


Action = Resolve | Connect | Write | Close
