"""Connections of a scripted broker: the received requests, and those that wait for an answer."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from kbatch.core.client.actions import Connect, release
from kbatch.protocol import codec


class Sent(NamedTuple):
    """A batch as it reached a broker."""

    name: str
    partition: int
    record_count: int
    stamp: tuple[int, int, int]
    data: bytes


class Asked:
    """A request that waits for its answer."""

    def __init__(self, link: Link, request: codec.Request, batches: list[Sent]) -> None:
        self.link = link
        self.request = request
        self.batches = batches
        self.is_held = False


class Link:
    """A connection, as the network sees it."""

    def __init__(self, action: Connect) -> None:
        self.connection_id = action.connection_id
        self.node_id = action.node_id
        self.pending: deque[bytes | memoryview] = deque()
        self.received = bytearray()
        self.unanswered: deque[Asked] = deque()

    def take(self, size_bytes: int) -> int:
        """Let this many pending bytes reach the node; return their number."""
        taken = 0
        while self.pending and taken < size_bytes:
            buffer = self.pending.popleft()
            part = min(len(buffer), size_bytes - taken)
            self.received += buffer[:part]
            if part < len(buffer):
                self.pending.appendleft(buffer[part:])
            release([buffer])
            taken += part
        return taken

    def frames(self) -> list[bytes]:
        """Return whole requests that have arrived."""
        found = []
        while len(self.received) >= 4:
            end = 4 + int.from_bytes(self.received[:4], "big")
            if len(self.received) < end:
                break
            found.append(bytes(self.received[4:end]))
            del self.received[:end]
        return found
