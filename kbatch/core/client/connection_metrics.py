"""The metrics of connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kbatch._native.io.sensor import record_each
from kbatch.core.client.backoff import NS_PER_MS

if TYPE_CHECKING:
    from kbatch._native.io.sensor import Sensor
    from kbatch.metrics import MetricsRegistry

# The sensors of each event: those of all nodes, and then those of the node.
_EVENTS = {
    "sent": (("request",), ("request",)),
    "written": (("network-io", "outgoing-byte"), ("outgoing-byte",)),
    "received": (("network-io", "incoming-byte"), ("incoming-byte",)),
    "answered": (("response",), ("response",)),
}


class ConnectionMetrics:
    """The sensors of connections, requests and bytes. A node has sensors from its first connection on.

    A plain connection authenticates nothing, and counts as neither success nor failure, as in Java's
    Selector.pollSelectionKeys.
    """

    def __init__(self, registry: MetricsRegistry) -> None:
        self._registry = registry
        self._creation = registry.sensor("connection-creation")
        self._close = registry.sensor("connection-close")
        self._authenticated = registry.sensor("successful-authentication")
        self._authenticated_once = registry.sensor("successful-authentication-no-reauth")
        self._reauthenticated = registry.sensor("successful-reauthentication")
        self._latency = registry.sensor("reauthentication-latency")
        self._refused = registry.sensor("failed-authentication")
        self._refused_again = registry.sensor("failed-reauthentication")
        self._of_all = {event: tuple(map(registry.sensor, names)) for event, (names, _) in _EVENTS.items()}
        self._nodes: dict[int, dict[str, tuple[Sensor, ...]]] = {}
        self._connection_count = 0
        self._in_flight_count = 0
        self.lent_in_flight: Callable[[], int] = lambda: 0  # requests of lent connections, not sent here
        registry.gauge("connection-count", lambda now_ms: self._connection_count)
        registry.gauge("requests-in-flight", lambda now_ms: self._in_flight_count + self.lent_in_flight())

    def opened(self, node_id: int, now_ns: int) -> None:
        """Record a connection that is established, handshake included."""
        self._connection_count += 1
        self._creation.record(1, now_ns // NS_PER_MS)
        if node_id not in self._nodes:
            sensor = self._registry.sensor
            self._nodes[node_id] = {
                event: (*self._of_all[event], *(sensor(name, node=node_id) for name in names))
                for event, (_, names) in _EVENTS.items()
            }
            sensor("request-latency", node=node_id)  # recorded by SenderMetrics

    def authenticated(self, now_ns: int) -> None:
        """Record a connection that is authenticated, by TLS or, if it has SASL, by SASL."""
        now_ms = now_ns // NS_PER_MS
        self._authenticated.record(1, now_ms)
        self._authenticated_once.record(1, now_ms)

    def reauthenticated(self, latency_ns: int, now_ns: int) -> None:
        """Record an open connection that has authenticated again in `latency_ns`."""
        now_ms = now_ns // NS_PER_MS
        self._reauthenticated.record(1, now_ms)
        self._latency.record(latency_ns / NS_PER_MS, now_ms)

    def refused(self, now_ns: int, *, was_ready: bool) -> None:
        """Record a failed authentication; of a connection that had authenticated before if `was_ready`."""
        (self._refused_again if was_ready else self._refused).record(1, now_ns // NS_PER_MS)

    def closed(self, unanswered_count: int, now_ns: int) -> None:
        """Record the end of an established connection, with its unanswered requests."""
        self._connection_count -= 1
        self._in_flight_count -= unanswered_count
        self._close.record(1, now_ns // NS_PER_MS)

    def sent(self, node_id: int, size_bytes: int, now_ns: int) -> None:
        """Record a request that is handed out for writing."""
        self._in_flight_count += 1
        record_each(self._nodes[node_id]["sent"], (size_bytes,) * 2, now_ns // NS_PER_MS)

    def written(self, node_id: int, written_bytes: int, now_ns: int) -> None:
        """Record written bytes."""
        record_each(self._nodes[node_id]["written"], (written_bytes,) * 3, now_ns // NS_PER_MS)

    def received(self, node_id: int, received_bytes: int, now_ns: int) -> None:
        """Record received bytes."""
        record_each(self._nodes[node_id]["received"], (received_bytes,) * 3, now_ns // NS_PER_MS)

    def answered(self, node_id: int, size_bytes: int, now_ns: int) -> None:
        """Record an answer."""
        self._in_flight_count -= 1
        record_each(self._nodes[node_id]["answered"], (size_bytes,) * 2, now_ns // NS_PER_MS)

    def done(self) -> None:
        """Record the write of a request that expects no answer."""
        self._in_flight_count -= 1
