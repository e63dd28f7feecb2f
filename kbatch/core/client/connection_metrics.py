"""The metrics of connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kbatch._native.io.sensor import RequestSensors, SensorGroup
from kbatch.core.client.backoff import NS_PER_MS

if TYPE_CHECKING:
    from kbatch.metrics import MetricsRegistry

# The sensors of each event of RequestSensors: those of all nodes, and then those of the node.
_EVENTS = {
    "sent": (("request",), ("request",)),
    "written": (("network-io", "outgoing-byte"), ("outgoing-byte",)),
    "received": (("network-io", "incoming-byte"), ("incoming-byte",)),
    "answered": (("response",), ("response",)),
    "latency": ((), ("request-latency",)),
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
        self._nodes: dict[int, RequestSensors] = {}
        self._connection_count = 0
        self._in_flight_count = 0
        self.lent_in_flight: Callable[[], int] = lambda: 0  # requests of lent connections
        registry.gauge("connection-count", lambda now_ms: self._connection_count)
        registry.gauge("requests-in-flight", lambda now_ms: self._in_flight_count + self.lent_in_flight())

    def opened(self, node_id: int, now_ns: int) -> None:
        """Record a connection that is established, handshake included."""
        self._connection_count += 1
        self._creation.record(1, now_ns // NS_PER_MS)
        if node_id not in self._nodes:
            self._nodes[node_id] = self._sensors_for(node_id)

    def _sensors_for(self, node_id: int) -> RequestSensors:
        sensor = self._registry.sensor
        groups = {
            event: SensorGroup([*map(sensor, of_all), *(sensor(name, node=node_id) for name in of_node)])
            for event, (of_all, of_node) in _EVENTS.items()
        }
        return RequestSensors(**groups)

    def sensors_of(self, node_id: int) -> RequestSensors:
        """Return the sensors of a node that has been connected, for the user of a lent connection."""
        return self._nodes[node_id]

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
        self._nodes[node_id].sent.record(size_bytes, now_ns // NS_PER_MS)

    def lent(self, request_count: int) -> None:
        """Record unanswered requests that go with a lent connection; `lent_in_flight` counts them now."""
        self._in_flight_count -= request_count

    def taken_back(self) -> None:
        """Record an unanswered request that came back with a lent connection, and was `sent` before that."""
        self._in_flight_count += 1

    def written(self, node_id: int, written_bytes: int, now_ns: int) -> None:
        """Record written bytes."""
        self._nodes[node_id].written.record(written_bytes, now_ns // NS_PER_MS)

    def received(self, node_id: int, received_bytes: int, now_ns: int) -> None:
        """Record received bytes."""
        self._nodes[node_id].received.record(received_bytes, now_ns // NS_PER_MS)

    def answered(self, node_id: int, size_bytes: int, now_ns: int) -> None:
        """Record an answer."""
        self._in_flight_count -= 1
        self._nodes[node_id].answered.record(size_bytes, now_ns // NS_PER_MS)

    def done(self) -> None:
        """Record the write of a request that expects no answer."""
        self._in_flight_count -= 1
