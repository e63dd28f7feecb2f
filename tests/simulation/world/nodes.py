"""What the watchdogs of all worlds ask of a node."""

from kbatch.core.client.node_state import NodeState


def takes_requests(node: NodeState, max_in_flight: int, now_ns: int) -> bool:
    """True if a node takes a request now, may be connected to, or may log in again with nothing in flight."""
    if node.can_send(max_in_flight, now_ns):
        return True
    # behind a request in flight a login may be due, but the answer reminds of it
    return node.delay_ns(max_in_flight, now_ns) == 0 and not node.in_flight_count
