"""Bugs in how engine and lane hand connections over that the simulation must see (planted_bugs.py)."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

from kbatch._native.send.in_flight import NO_IDENTITY
from kbatch.core.client.connection import Connection
from kbatch.core.client.connections import Connections
from kbatch.core.client.node_state import NodeState
from kbatch.core.producer import sender
from kbatch.core.producer.sender import Sender
from kbatch.core.producer.transactional_sequences import TransactionalSequences
from kbatch.network.loan_driver import LoanDriver
from tests.simulation.planted.planting import plants

plants_transactional = partial(plants, of_transactions=True)


@plants(LoanDriver, "end")
def a_loan_that_ends_calls_nobody(original: Any, self: LoanDriver) -> bool:
    """The engine runs after a loan only if it has something else to do."""
    original(self)
    return False


@plants(Connections, "take_back")
def requests_of_the_lane_are_forgotten(original: Any, self: Connections, lent: Any, *rest: Any) -> None:
    """Requests in flight are not taken back: their answers come unexpected."""
    original(self, lent._replace(requests=[]), *rest)


@plants(Connections, "take_back")
def the_rest_of_a_lent_request_loses_a_byte(original: Any, self: Connections, lent: Any, *rest: Any) -> None:
    """A request that the socket took in part loses a byte when the engine continues it."""
    original(self, lent._replace(unsent=lent.unsent[1:]), *rest)


@plants(Connection, "lend_requests")
def lent_requests_stay_with_the_engine(original: Any, self: Connection) -> Any:
    """Requests that the lane has again stay in flight for the engine, too."""
    before = list(self.in_flight)
    lent = original(self)
    self.in_flight.extend(before[len(self.in_flight) :])
    return lent


@plants(NodeState, "can_lend")
def a_throttled_connection_is_lent(original: Any, self: NodeState, now_ns: int) -> Any:
    """The lane sends to a node that has asked for a pause."""
    until_ns, self.throttled_until_ns = self.throttled_until_ns, 0
    try:
        return original(self, now_ns)
    finally:
        self.throttled_until_ns = until_ns


@plants(Sender, "_leaves_to_lane")
def all_is_left_to_the_lane(original: Any, self: Sender, node_id: int, now_ns: int) -> Any:
    """The engine leaves batches to the lane that the lane has left to the engine."""
    self._nodes_of_engine.discard(node_id)
    return original(self, node_id, now_ns)


@plants(Sender, "lend")
def the_lane_has_the_first_identity(original: Any, self: Sender, *rest: Any) -> Any:
    """The lane goes on under the producer's first identity after a bump of the epoch."""
    first = vars(self).setdefault("first_identity", self._sequences.identity)
    if first is NO_IDENTITY:
        del self.first_identity  # type: ignore[attr-defined]
        return original(self, *rest)
    now, self._sequences.identity = self._sequences.identity, first
    try:
        return original(self, *rest)
    finally:
        self._sequences.identity = now


@plants(Connections, "take_back")
def bytes_of_the_lane_count_as_unwritten(original: Any, self: Connections, lent: Any, *rest: Any) -> None:
    """What the lane has written of a request is not taken back: the engine waits for the socket for ever."""
    connection = self._by_connection[lent.connection_id].connection
    assert connection is not None
    original(self, lent._replace(written_bytes=connection.written_bytes), *rest)


@plants(Connections, "_adopt")
def requests_of_the_lane_have_no_time_out(
    original: Any, self: Connections, connection: Any, *rest: Any
) -> None:
    """A request that is taken back never times out."""
    deadline_ns = self.deadline_ns
    original(self, connection, *rest)
    connection.in_flight[-1].deadline_ns = 2**63 - 1
    self.deadline_ns = deadline_ns


@plants(Sender, "_give_up")
def a_batch_of_the_lane_was_never_sent(
    original: Any, self: Sender, batch: Any, entry: Any, *rest: Any
) -> None:
    """A batch that fails while the lane has it in flight counts as never sent."""
    if entry is not None and entry.attempt is None:
        entry.attempt = SimpleNamespace(was_written=False)
    original(self, batch, entry, *rest)


@plants(Sender, "take_back")
def bytes_of_the_lane_are_dropped(original: Any, self: Sender, now_ns: int) -> None:
    """Answers that the lane did not understand are dropped instead of read."""
    handle, self._connections.handle_bytes = (  # type: ignore[method-assign]
        self._connections.handle_bytes,
        lambda *_: None,
    )
    try:
        original(self, now_ns)
    finally:
        self._connections.handle_bytes = handle  # type: ignore[method-assign]


# Without answers


class _EagerLane:
    """A lane to which all bytes of a request are written when the first ones are."""

    def __init__(self, lane: Any) -> None:
        self._lane = lane
        self._unwritten: dict[int, bytes] = {}  # by connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lane, name)

    def unsent(self, connection_id: int) -> Any:
        return self._unwritten.get(connection_id) or self._lane.unsent(connection_id)

    def written(self, connection_id: int, size: int, now_ns: int) -> None:
        data = self.unsent(connection_id)
        if size and not self._unwritten.get(connection_id):
            self._lane.written(connection_id, len(data), now_ns)
        self._unwritten[connection_id] = data[size:]

    def take_back(self) -> list[Any]:
        unwritten, self._unwritten = self._unwritten, {}
        lent = [(each, unwritten.get(each.connection_id, b"")) for each in self._lane.take_back()]
        return [
            each._replace(unsent=rest + each.unsent, written_bytes=each.written_bytes - len(rest))
            for each, rest in lent
        ]


@plants(sender, "Lane")
def a_request_without_answer_is_complete_too_early(original: Any, *rest: Any, **settings: Any) -> Any:
    """With acks=0 a request of the lane is complete when its first bytes are written."""
    lane = original(*rest, **settings)
    return lane if settings["acks"] else _EagerLane(lane)


# Transactions


@plants_transactional(TransactionalSequences, "note_sent")
def partitions_of_the_lane_are_not_told(*_: Any) -> None:
    """The transaction does not know the partitions to which the lane has sent."""


@plants_transactional(TransactionalSequences, "lane_transaction")
def the_lane_adds_no_partitions(*_: Any) -> int:
    """Version 1: the lane sends to partitions that the coordinator has not added."""
    return 0


@plants_transactional(Sender, "lend")
def a_loan_outlasts_what_a_commit_awaits(original: Any, self: Sender, *rest: Any) -> Any:
    """A loan goes on when the last answer has come that a commit waits for."""
    accumulator = self._accumulator
    completing, accumulator.completing = accumulator.completing, False
    try:
        return original(self, *rest)
    finally:
        accumulator.completing = completing


@plants_transactional(TransactionalSequences, "begin")
def all_transactions_are_one_to_the_lane(original: Any, self: TransactionalSequences) -> None:
    """Version 1: a partition of an earlier transaction counts as added to the next, in the lane only."""
    original(self)
    self._number = 1
