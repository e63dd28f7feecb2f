"""Checks of what a reader writes to its connections: one Fetch to a node at a time, no flood of requests."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING

from kbatch.protocol import messages
from tests.simulation.world.fate import NAMES
from tests.simulation.world.network import whole_requests
from tests.simulation.world.schedule import LastSecond
from tests.simulation.world.trace import Violation

if TYPE_CHECKING:
    from tests.simulation.readers.stage import Process

FETCH = messages.FetchRequest.api_key
# More than these of a kind in a virtual second are a loop: each answer, or back-off, takes some time.
REQUESTS_A_SECOND = 400


class _Connection:
    """A connection, with the API keys of its unanswered requests."""

    __slots__ = ("node_id", "unanswered")

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.unanswered: deque[int] = deque()


class GroupWire:
    """The judge of a reader's requests.

    Attributes
    ----------
    counts : dict of str to int
        The number of requests by kind.
    """

    def __init__(self, member: Process) -> None:
        self._member = member
        self._connections: dict[int, _Connection] = {}
        self._sent: dict[int, LastSecond] = defaultdict(LastSecond)
        self.counts: dict[str, int] = {}

    def connected(self, connection_id: int, node_id: int) -> None:
        self._connections[connection_id] = _Connection(node_id)

    def opened(self, connection_id: int) -> None:
        """Note that requests may be sent."""

    def handed_over(self, connection_id: int, data: bytes) -> None:
        """Check the requests of one Write; it holds whole requests."""
        connection = self._connections[connection_id]
        for frame in whole_requests(connection_id, data):
            self._request(connection_id, connection, frame)

    def _request(self, connection_id: int, connection: _Connection, frame: bytes) -> None:
        api_key = int.from_bytes(frame[:2], "big")
        name = NAMES[api_key]
        self._member.trace("-> node %s: %s on connection %d", connection.node_id, name, connection_id)
        self.counts[name] = self.counts.get(name, 0) + 1
        if api_key == FETCH and any(FETCH in each.unanswered for each in self._same_node(connection)):
            raise Violation(f"two Fetch requests to node {connection.node_id} at once")
        connection.unanswered.append(api_key)
        count = self._sent[api_key].count(self._member.schedule.now_ns)
        if count > REQUESTS_A_SECOND:
            raise Violation(f"{name} was sent {count} times in a second")

    def _same_node(self, connection: _Connection) -> list[_Connection]:
        return [each for each in self._connections.values() if each.node_id == connection.node_id]

    def written(self, connection_id: int, size: int) -> None:
        """Note bytes that reached the socket."""

    def answered(self, connection_id: int, frame: bytes) -> None:
        connection = self._connections[connection_id]
        api_key = connection.unanswered.popleft()
        name = NAMES[api_key]
        self._member.trace("<- node %s: %s, %d bytes", connection.node_id, name, len(frame))

    def ended(self, connection_id: int) -> None:
        self._connections.pop(connection_id, None)
