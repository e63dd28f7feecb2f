"""The faults of a world of transactions: those of any world, and those of coordinators.

An error that says that nothing was done is true. If EndTxn may have been executed already, no error says that
it never will be. A client that got a fatal error is excused when it stops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kbatch.errors import ErrorCode
from kbatch.protocol import codec, messages
from tests.simulation.world.fate import NAMES, Fate
from tests.simulation.world.faults import (
    ERRORS,
    INIT_ERRORS,
    INIT_PRODUCER_ID,
    PRODUCE,
    PRODUCE_ERRORS,
    WorldFaults,
)

if TYPE_CHECKING:
    from kbatch.protocol.structs import Message
    from tests.simulation.transactions.client import TransactionalStage
    from tests.simulation.world.network import Link

_ELSEWHERE = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
_RETRIED = (*_ELSEWHERE * 2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS)
_ABORTED = (ErrorCode.TRANSACTION_ABORTABLE,)
# After these the producer gives up.
FATAL = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
REQUESTS: Mapping[type[Message], tuple[ErrorCode, ...]] = {
    messages.FindCoordinatorRequest: (*_ELSEWHERE[1:] * 3, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, *_ABORTED),
    messages.InitProducerIdRequest: (
        *_RETRIED,
        *INIT_ERRORS,
        *_ABORTED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    messages.AddPartitionsToTxnRequest: (
        *_RETRIED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        *_ABORTED,
        ErrorCode.PRODUCER_FENCED,
    ),
    messages.AddOffsetsToTxnRequest: (*_RETRIED, ErrorCode.GROUP_AUTHORIZATION_FAILED, *_ABORTED),
    messages.TxnOffsetCommitRequest: (
        *_RETRIED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        *_ABORTED,
    ),
    messages.EndTxnRequest: (*_RETRIED * 2, ErrorCode.UNKNOWN_SERVER_ERROR),
}
TO_COORDINATORS = frozenset(kind.api_key for kind in REQUESTS)
TRANSACTIONAL_PRODUCE_ERRORS = (
    *PRODUCE_ERRORS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
)


class TransactionalFaults(WorldFaults):
    """Faults, and a transaction.version that changes."""

    world: TransactionalStage
    refused_requests = (
        *WorldFaults.refused_requests,
        *(kind.__name__.removesuffix("Request") for kind in REQUESTS),
    )

    lacks = (frozenset({messages.ProduceRequest}),)

    def __init__(self, world: TransactionalStage) -> None:
        super().__init__(world)
        self.errors = {
            **ERRORS,
            **{kind.api_key: codes for kind, codes in REQUESTS.items()},
            PRODUCE: TRANSACTIONAL_PRODUCE_ERRORS,
        }
        del self.changes[INIT_PRODUCER_ID]

    def for_request(self, link: Link, frame: bytes) -> Fate:
        fate = super().for_request(link, frame)
        if fate.api_key in TO_COORDINATORS and not (fate.drops_before or fate.drops_after):
            self._meet_coordinator(fate)
        client = self.world.client_of(link) if fate.error_before in FATAL else None
        if client is not None:
            client.may_fail = True
        if fate.api_key == INIT_PRODUCER_ID:
            self._note_takeover(codec.decode_request(frame).client_id or "")
        return fate

    def _note_takeover(self, name: str) -> None:
        """Note that a late request of an ended process fences the producers after it."""
        transactional_id, _, number = name.rpartition("/")
        for client in self.world.clients:
            if client.transactional_id == transactional_id and client.number > int(number):
                client.may_fail = True

    def _meet_coordinator(self, fate: Fate) -> None:
        """Draw a fault of a request to a coordinator: these are few, and have their own rates."""
        programs = self.world.programs
        name = NAMES[fate.api_key]
        if self._happens(programs.refused):
            fate.error_before = self._random.choice(self.errors[fate.api_key])
            self._tell("refused by a coordinator", "%s is answered %s", name, fate.error_before)
        elif self._happens(programs.unheard):
            fate.drops_before = True
            self._tell("unheard by a coordinator", "a connection breaks before %s is done", name)
        elif self._happens(programs.unanswered):
            fate.drops_after = True
            self._tell("unanswered by a coordinator", "a connection breaks when %s is done", name)

    def begin(self) -> None:
        super().begin()
        self._begin(self.world.programs, TRANSACTIONAL_HAPPENINGS)

    def _move_coordinator(self) -> None:
        partitions = self.world.cluster.state.cluster.partitions()
        internal = [each for each in partitions if each.topic.is_internal]
        if internal:
            self._lead_by_another(self._random.choice(internal))

    def _change_version(self) -> None:
        """Change it as UpdateFeatures does; clients learn of it when they connect."""
        cluster = self.world.cluster
        level = 3 - cluster.state.options.transaction_version
        self.world.trace("!! transaction.version is %d", level)
        cluster.change(cluster.state.set_feature_level, "transaction.version", level)
        if self._random.random() < 0.7:
            for node in cluster.state.cluster.nodes:
                cluster.break_connections(node.node_id)


TRANSACTIONAL_HAPPENINGS: Mapping[str, Callable[[Any], None]] = {
    "change_version": TransactionalFaults._change_version,
    "move_coordinator": TransactionalFaults._move_coordinator,
}
