"""Bugs of logins and sessions that the simulation must see (planted_bugs.py)."""

from __future__ import annotations

from typing import Any

from kbatch.core.client import connections
from kbatch.core.client.authentication import UNLIMITED, Session
from kbatch.core.client.backoff import NEVER_NS
from kbatch.core.client.connections import Connections
from kbatch.core.client.node_state import ConnectionState, NodeState
from tests.simulation.planted.planting import plants


@plants(NodeState, "can_send")
def requests_go_on_during_a_login(
    original: Any, self: NodeState, max_in_flight: int, now_ns: int, begun_bytes: int = 0
) -> Any:
    """A request is sent between the SaslHandshake that renews a session and the last answer."""
    before = self.state
    if before is ConnectionState.REAUTHENTICATING:
        self.state = ConnectionState.READY
    try:
        return original(self, max_in_flight, now_ns, begun_bytes)
    finally:
        self.state = before


@plants(connections, "session_after")
def a_session_is_never_renewed(original: Any, *_: Any) -> Session:
    """The lifetime in the answer is ignored: the connection is used until the broker cuts it."""
    return UNLIMITED


@plants(Connections, "handle_token")
def a_login_waits_for_ever(
    original: Any, self: Connections, connection_id: int, token: Any, now_ns: int
) -> None:
    """A login that gets no token is neither given up nor tried again."""
    if not isinstance(token, Exception):
        original(self, connection_id, token, now_ns)
    elif (state := self._by_connection.get(connection_id)) is not None:
        state.setup_deadline_ns = NEVER_NS
