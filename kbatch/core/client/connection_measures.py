"""What connections tell the metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbatch._native.io.sensor import record_each
from kbatch.core.client.backoff import NS_PER_MS

if TYPE_CHECKING:
    from kbatch._native.io.sensor import Sensor
    from kbatch.metrics import MetricsRegistry

# What is told of each event: sensors of all nodes, and then those of the node.
_EVENTS = {
    "sent": (("request",), ("request",)),
    "written": (("network-io", "outgoing-byte"), ("outgoing-byte",)),
    "received": (("network-io", "incoming-byte"), ("incoming-byte",)),
    "answered": (("response",), ("response",)),
}


class ConnectionMeasures:
    """The sensors of connections, requests and bytes; of nodes from their first connection on.

    A plain connection has nothing to authenticate, and counts as neither, as with Java's
    Selector.pollSelectionKeys.
    """

    def __init__(self, registry: MetricsRegistry, security_protocol: str) -> None:
        self._registry = registry
        self._creation = registry.sensor("connection-creation")
        self._close = registry.sensor("connection-close")
        self._authenticates = security_protocol != "PLAINTEXT"
        self._authenticated = registry.sensor("successful-authentication")
        self._authenticated_once = registry.sensor("successful-authentication-no-reauth")
        self._refused = registry.sensor("failed-authentication")
        self._of_all = {event: tuple(map(registry.sensor, names)) for event, (names, _) in _EVENTS.items()}
        self._nodes: dict[int, dict[str, tuple[Sensor, ...]]] = {}
        self._connection_count = 0
        self._in_flight_count = 0
        registry.gauge("connection-count", lambda now_ms: self._connection_count)
        registry.gauge("requests-in-flight", lambda now_ms: self._in_flight_count)

    def opened(self, node_id: int, now_ns: int) -> None:
        """A connection was made, and its handshake is done."""
        self._connection_count += 1
        now_ms = now_ns // NS_PER_MS
        self._creation.record(1, now_ms)
        if self._authenticates:
            self._authenticated.record(1, now_ms)
            self._authenticated_once.record(1, now_ms)
        if node_id not in self._nodes:
            sensor = self._registry.sensor
            self._nodes[node_id] = {
                event: (*self._of_all[event], *(sensor(name, node=node_id) for name in names))
                for event, (_, names) in _EVENTS.items()
            }
            sensor("request-latency", node=node_id)  # of Produce requests, which SenderMeasures records

    def refused(self, now_ns: int) -> None:
        """One side did not take the other for whom it says it is."""
        self._refused.record(1, now_ns // NS_PER_MS)

    def closed(self, unanswered_count: int, now_ns: int) -> None:
        """A connection that was made has ended, with so many requests on it."""
        self._connection_count -= 1
        self._in_flight_count -= unanswered_count
        self._close.record(1, now_ns // NS_PER_MS)

    def sent(self, node_id: int, size_bytes: int, now_ns: int) -> None:
        """A request was given out for writing."""
        self._in_flight_count += 1
        record_each(self._nodes[node_id]["sent"], (size_bytes,) * 2, now_ns // NS_PER_MS)

    def written(self, node_id: int, written_bytes: int, now_ns: int) -> None:
        """Bytes went out."""
        record_each(self._nodes[node_id]["written"], (written_bytes,) * 3, now_ns // NS_PER_MS)

    def received(self, node_id: int, received_bytes: int, now_ns: int) -> None:
        """Bytes came in."""
        record_each(self._nodes[node_id]["received"], (received_bytes,) * 3, now_ns // NS_PER_MS)

    def answered(self, node_id: int, size_bytes: int, now_ns: int) -> None:
        """A request was answered."""
        self._in_flight_count -= 1
        record_each(self._nodes[node_id]["answered"], (size_bytes,) * 2, now_ns // NS_PER_MS)

    def done(self) -> None:
        """A request that expects no answer was written."""
        self._in_flight_count -= 1
