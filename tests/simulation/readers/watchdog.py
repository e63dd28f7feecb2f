"""Watchdog: nodes that a sleeping reader could ask, of which nothing that is to come reminds it.

Theory of operation. What keeps a reader from asking for a partition is stated here once more, without the
fetcher's own search. A node that has a candidate, and neither a Fetch under way nor a reason not to get one,
must have got one before the reader's owner sleeps: an answer, a deadline or a release must not be missed,
though heartbeats would soon wake the owner by chance.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kbatch.core.client.backoff import NS_PER_MS
from kbatch.core.consumer.engine import MAX_IN_FLIGHT
from kbatch.core.consumer.fetcher import FETCH_PURPOSE
from kbatch.records import NO_TOPIC_ID
from tests.simulation.world.nodes import takes_requests

if TYPE_CHECKING:
    from kbatch.core.consumer.engine import ReadingEngine
    from kbatch.core.consumer.partition_state import PartitionState

NO_NODE = -1


def forgotten_nodes(engine: ReadingEngine, now_ns: int) -> list[int]:
    """Return the nodes that could be asked now, or connected to, and are not. None is forgotten if the
    fetcher looks again soon: what it waits for may be over already, as a node's back-off is when it answers
    another connection.
    """
    config = engine._fetcher._config
    soon_ns = max(config.reconnect_backoff_max_ms, config.retry_backoff_max_ms) * NS_PER_MS
    if engine._fetcher.deadline_ns - now_ns <= 2 * soon_ns:
        return []
    read: Counter[int] = Counter()
    candidates: Counter[int] = Counter()
    for state in engine._fetcher.partitions.values():
        node_id = _node_of(engine, state)
        if node_id != NO_NODE:
            read[node_id] += 1
            candidates[node_id] += _is_candidate(engine, state, now_ns)
    return [
        node_id
        for node_id, count in candidates.items()
        if count and _has_no_reason(engine, node_id, count, len(read), now_ns)
    ]


def _node_of(engine: ReadingEngine, state: PartitionState) -> int:
    """Return the node that a partition is read from, of the topic that is meant; NO_NODE if there is none."""
    snapshot = engine.snapshot
    topic_id = snapshot.topic_id(state.partition.topic)
    is_other = {topic_id, state.topic_id, state.assigned_id} - {NO_TOPIC_ID, topic_id}
    if not state.is_fetching or is_other:
        return NO_NODE
    return state.replica_id if state.replica_id >= 0 else snapshot.leader(*state.partition)[0]


def _is_candidate(engine: ReadingEngine, state: PartitionState, now_ns: int) -> bool:
    """True if a partition could be in the next Fetch of its node."""
    fetcher = engine._fetcher
    is_shared = fetcher.rows_awaited is None
    share_bytes = engine._budget.backlog_bytes(len(fetcher.partitions), is_shared=is_shared)
    return not (
        state.is_in_flight
        or state.is_paused
        or now_ns < state.not_before_ns
        or state.backlog_bytes > share_bytes
    )


def _has_no_reason(engine: ReadingEngine, node_id: int, count: int, node_count: int, now_ns: int) -> bool:
    """True if a node with so many candidates could get a Fetch, or a connection for it."""
    session = engine._fetcher._sessions.get(node_id)
    if session is not None and (session.is_in_flight or now_ns < session.not_before_ns):
        return False
    node = engine._connections._by_purpose[FETCH_PURPOSE].get(node_id)
    if node is None or not takes_requests(node, MAX_IN_FLIGHT, now_ns):
        return False
    budget = engine._budget
    size_bytes = engine._fetcher.road.request_bytes(count, node_count)
    return not budget.used or size_bytes <= budget.limit - budget.used
