"""Fate: the faults of one request and its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kbatch.protocol import codec, messages
from tests.simulation.world.schedule import MS

if TYPE_CHECKING:
    from kbatch.errors import ErrorCode


# The names of requests by API key, as traces have them.
NAMES = {key: kind.__name__.removesuffix("Request") for key, kind in messages.REQUESTS.items()}


class Fate:
    """The faults of one request."""

    __slots__ = (
        "_change",
        "api_key",
        "delay_ns",
        "drops_after",
        "drops_before",
        "duplicates",
        "error_after",
        "error_before",
        "is_doubled",
        "is_silent",
        "mute_ns",
        "version",
    )

    def __init__(self, frame: bytes, changes: Mapping[int, Callable[[Fate, Any], None]]) -> None:
        self.api_key = int.from_bytes(frame[:2], "big")
        self._change = changes.get(self.api_key)
        self.version = int.from_bytes(frame[2:4], "big")
        self.drops_before = self.drops_after = self.is_silent = self.is_doubled = False
        self.error_before: ErrorCode | None = None
        self.error_after: ErrorCode | None = None
        self.delay_ns = self.mute_ns = 0
        self.duplicates: set[tuple[str, int]] = set()  # partitions that have their batch already

    def changed(self, data: bytes) -> bytes:
        """Return the answer as the client gets it."""
        change = self._change
        if change is None and not self.mute_ns:
            return data
        kind = messages.REQUESTS[self.api_key].response
        correlation_id, response = codec.decode_response(kind, self.version, data[4:])
        if change is not None:
            change(self, response)
        if self.mute_ns and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = self.mute_ns // MS
        return b"".join(codec.encode_response(response, self.version, correlation_id))
