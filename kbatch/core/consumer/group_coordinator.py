"""GroupCoordinator: requests to the coordinator of one group."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kbatch.core.client.any_node_request import AnyNodeRequest
from kbatch.core.client.backoff import NS_PER_MS, Retried
from kbatch.core.client.coordinators import GROUP, CoordinatorKey
from kbatch.core.consumer.outcomes import HEARTBEAT_OUTCOMES, HeartbeatOutcome
from kbatch.protocol import features

if TYPE_CHECKING:
    from kbatch.config import ConsumerConfig
    from kbatch.core.client.backoff import ExponentialBackoff
    from kbatch.core.client.connections import Connections, Response
    from kbatch.core.client.coordinators import Coordinators
    from kbatch.protocol.structs import Message

# A broker answers the requests of a connection in turn, and a JoinGroup only when all members have joined.
# So requests of the membership have a connection of their own, and delay nothing else.
GROUP_PURPOSE = 2
# The refusals in a row after which a membership tries again at once: a member that the coordinator has
# removed joins, gets an id, joins by that, and others join meanwhile. After more, all its requests back off:
# each success of one may be refused again by the next.
REFUSALS_AT_ONCE = 3
# The time for which a member that leaves tries to reach its coordinator: long enough for a connection that
# has just broken, and short enough for a cluster that is gone.
REACH_NS = 1000 * NS_PER_MS


class LeaveLimit:
    """The time limit for the requests by which a member leaves.

    Parameters
    ----------
    config : ConsumerConfig
        request.timeout.ms is the limit of all attempts.
    now_ns : int
    """

    __slots__ = ("_reach_until_ns", "_until_ns")

    def __init__(self, config: ConsumerConfig, now_ns: int) -> None:
        self._until_ns = now_ns + config.request_timeout_ms * NS_PER_MS
        self._reach_until_ns = min(now_ns + REACH_NS, self._until_ns)

    def is_over(self, coordinator: GroupCoordinator, now_ns: int) -> bool:
        """True if the member stops sending them: its session will end."""
        return now_ns >= (self._reach_until_ns if coordinator.is_failing else self._until_ns)

    def deadline_ns(self, now_ns: int) -> int:
        """Return when to call `is_over` again."""
        return self._reach_until_ns if now_ns < self._reach_until_ns else self._until_ns


class GroupCoordinator:
    """Finds the coordinator of a group and sends requests to it.

    Parameters
    ----------
    group_id : str
    connections, coordinators, backoff
    """

    def __init__(
        self, group_id: str, connections: Connections, coordinators: Coordinators, backoff: ExponentialBackoff
    ) -> None:
        self.group_id = group_id
        self._key = CoordinatorKey(GROUP, group_id)
        self._connections = connections
        self._coordinators = coordinators
        self._backoff = backoff
        self._membership = Retried()

    @property
    def is_failing(self) -> bool:
        """True if the coordinator is unknown or out of reach, and the last search did not help."""
        return self._coordinators.is_failing(self._key)

    def ready_node(self, pending: AnyNodeRequest, now_ns: int) -> int | None:
        """Return the coordinator if it takes a request for the purpose of `pending` now; else search for it,
        or wait until `pending.retry_ns`. Raise KafkaError if the search fails for good.
        """
        return self._coordinators.ready_node(self._key, pending, now_ns)

    def forget(self) -> None:
        """Search for the coordinator again: it has refused a request or gave no answer."""
        self._coordinators.forget(self._key)

    def back_off(self, pending: AnyNodeRequest, now_ns: int, *, at_once: int = 0) -> None:
        """Wait before the next attempt (Retried)."""
        pending.back_off(self._backoff, now_ns, at_once=at_once)

    def version_of(self, pending: AnyNodeRequest, kind: type[Message], now_ns: int) -> int | None:
        """Return the highest version in which `send` would send a request now; None if it would not. Raises
        what `send` raises.
        """
        if pending.is_in_flight or now_ns < pending.not_before_ns:
            return None
        node_id = self.ready_node(pending, now_ns)
        return None if node_id is None else self._connections.version_of(node_id, kind, pending.purpose)

    def send(
        self,
        pending: AnyNodeRequest,
        kind: type[Message],
        make: Callable[[int], Message],
        handle: Callable[[Response], None],
        now_ns: int,
        *,
        highest_version: int = features.ANY_VERSION,
        timeout_ns: int | None = None,
    ) -> bool:
        """Send a request unless `pending` is in flight or backed off. Return True if it was sent.

        Parameters
        ----------
        pending : AnyNodeRequest
            It is in flight until `handle` is called; `pending.deadline_ns` is the time of the next call.
        kind : type[Message]
        make : Callable[[int], Message]
            Returns the request, of a version.
        handle : Callable[[Response], None]
        highest_version : int
        timeout_ns : int | None
            None means request.timeout.ms.

        Raises
        ------
        KafkaError
            The coordinator cannot be found, or does not have the request, and that would not change.
        """
        is_of_membership = pending.purpose == GROUP_PURPOSE
        if is_of_membership:
            pending.not_before_ns = max(pending.not_before_ns, self._membership.not_before_ns)
        if pending.is_in_flight or now_ns < pending.not_before_ns:
            return False
        node_id = self.ready_node(pending, now_ns)
        if node_id is None:
            return False
        version = min(self._connections.version_of(node_id, kind, pending.purpose), highest_version)
        message = make(version)
        pending.is_in_flight = True
        self._connections.send(
            node_id,
            message,
            partial(self._finish, pending, handle),
            now_ns,
            version=version,
            purpose=pending.purpose,
            timeout_ns=timeout_ns,
        )
        return True

    def _finish(
        self, pending: AnyNodeRequest, handle: Callable[[Response], None], response: Response
    ) -> None:
        pending.is_in_flight = False
        if pending.purpose == GROUP_PURPOSE and (response.message is None or response.message.error_code):
            self._membership.back_off(self._backoff, response.now_ns, at_once=REFUSALS_AT_ONCE)
        handle(response)

    def repeat_heartbeat(self, pending: AnyNodeRequest, outcome: HeartbeatOutcome, now_ns: int) -> None:
        """Schedule another attempt of a heartbeat. The first search for a coordinator has no pause."""
        if outcome is HeartbeatOutcome.FIND:
            self.forget()
        pending.back_off(self._backoff, now_ns, at_once=int(outcome is HeartbeatOutcome.FIND))

    def repeats_leave(self, pending: AnyNodeRequest, response: Response) -> bool:
        """True if a member that leaves has to say so again, after a back-off: the coordinator is another
        node, is not ready, or its answer was lost. LeaveLimit bounds all attempts.
        """
        answer, error = response.message, response.error
        if answer is not None:
            outcome = HEARTBEAT_OUTCOMES[answer.error_code]
        else:
            assert error is not None
            outcome = HeartbeatOutcome.FIND if error.retriable else HeartbeatOutcome.FAIL
        if outcome not in (HeartbeatOutcome.FIND, HeartbeatOutcome.BACK_OFF):
            return False
        self.repeat_heartbeat(pending, outcome, response.now_ns)
        return True
