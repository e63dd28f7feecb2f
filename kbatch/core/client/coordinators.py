"""Coordinators: which node coordinates a group or a transactional.id.

Theory of operation. A user that has a request to send calls `ready_node`. While the coordinator is unknown,
that call searches: it sends FindCoordinator to any node, and repeats it after a back-off if the answer is
missing or retriable. All users share the search of a key, and a search that no user needs is not repeated.
The result is kept until the coordinator refuses a request (`forget`) or is out of reach. An error that a
repetition does not cure is raised once to each user that waited; its next call begins another search.

After org.apache.kafka.clients.consumer.internals.AbstractCoordinator and
org.apache.kafka.clients.producer.internals.TransactionManager; KIP-699 (answers with a list).
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from kbatch.core.client.any_node_request import AnyNodeRequest
from kbatch.core.client.backoff import ExponentialBackoff
from kbatch.errors import ErrorCode, KafkaError, error_of, row_of
from kbatch.protocol import features, messages

if TYPE_CHECKING:
    from kbatch.core.client.cluster import Cluster
    from kbatch.core.client.connections import Connections, Response
    from kbatch.protocol.structs import Message

GROUP, TRANSACTION = 0, 1
# The most coordinators that a request looks for.
MAX_KEYS = 1000
_KINDS = {GROUP: "group", TRANSACTION: "transactional.id"}


class CoordinatorKey(NamedTuple):
    """What a coordinator coordinates: a GROUP or a TRANSACTION, by its id."""

    kind: int
    key: str

    def __str__(self) -> str:
        return f"{_KINDS[self.kind]} {self.key}"


class _Coordinator:
    """A coordinator, known or sought.

    `node_id` is None while it is unknown; `search` is the request that finds it, whose failures count until
    the coordinator is ready; `waiting` are the requests that need its result.
    """

    __slots__ = ("node_id", "search", "waiting")

    def __init__(self) -> None:
        self.node_id: int | None = None
        self.search = AnyNodeRequest()
        self.waiting: set[AnyNodeRequest] = set()

    def handle_found(
        self, key: CoordinatorKey, backoff: ExponentialBackoff, response: Response, found: Any
    ) -> None:
        """Handle the result of the search: what the answer says of the key, if there is one."""
        self.search.is_in_flight = False
        error = response.error or _refusal(key, found)
        if error is None:
            self.node_id = found.node_id
        elif error.retriable:
            self.search.back_off(backoff, response.now_ns)
        else:
            self.search.attempts = self.search.not_before_ns = 0
            for pending in self.waiting:
                pending.error = error
        self.waiting.clear()


class Coordinators:
    """The coordinators that a client uses.

    Parameters
    ----------
    cluster, connections
    backoff : ExponentialBackoff
        The waits between failed searches.
    """

    def __init__(self, cluster: Cluster, connections: Connections, backoff: ExponentialBackoff) -> None:
        self._cluster = cluster
        self._connections = connections
        self._backoff = backoff
        self._coordinators: dict[CoordinatorKey, _Coordinator] = {}

    def forget(self, key: CoordinatorKey) -> None:
        """Forget the coordinator, so that its users search again."""
        if key in self._coordinators:
            self._coordinators[key].node_id = None

    def is_failing(self, key: CoordinatorKey) -> bool:
        """True if the coordinator is unknown or out of reach, and the last search did not help."""
        coordinator = self._coordinators.get(key)
        return coordinator is not None and coordinator.node_id is None and coordinator.search.attempts > 0

    def ready_node(self, key: CoordinatorKey, pending: AnyNodeRequest, now_ns: int) -> int | None:
        """Return the coordinator if it takes a request for the purpose of `pending` now. Without one, search
        for it, or wait for the connection; `pending.retry_ns` is the time of the next call then.

        A coordinator that is out of reach may not be the coordinator any more: it is forgotten, and metadata
        is requested.

        Raises
        ------
        KafkaError
            The search has failed, and would fail again.
        """
        error, pending.error = pending.error, None
        if error is not None:
            raise error
        coordinator = self._coordinator(key)
        node_id = coordinator.node_id
        if node_id is not None:
            if pending.can_send(node_id, self._connections, now_ns):
                coordinator.search.attempts = 0
                return node_id
            if not pending.is_out_of_reach(node_id, self._cluster, self._connections, now_ns):
                return None
            self._cluster.request_update(now_ns)
            coordinator.node_id = None
            coordinator.search.back_off(self._backoff, now_ns)
        self._find(key, coordinator, now_ns)
        coordinator.waiting.add(pending)
        pending.retry_ns = coordinator.search.deadline_ns
        return None

    def search(self, keys: Collection[CoordinatorKey], now_ns: int) -> None:
        """Search for several coordinators of one kind together, where brokers can do that (KIP-699). Others
        are left to `ready_node`.
        """
        due = {
            key: coordinator
            for key in keys
            if (coordinator := self._coordinator(key)).node_id is None
            and not coordinator.search.is_in_flight
            and now_ns >= coordinator.search.not_before_ns
        }
        if len(due) < 2:
            return
        kind = messages.FindCoordinatorRequest
        node_id = AnyNodeRequest().find_node(self._connections, self._backoff, now_ns, kind)
        if node_id is None or self._connections.lacks(node_id, kind):
            return
        version = self._connections.version_of(node_id, kind)
        if version < features.FIND_COORDINATOR_BATCHES:
            return
        sought = dict(islice(due.items(), MAX_KEYS))
        (key_type,) = {key.kind for key in sought}
        message = kind(key_type=key_type, coordinator_keys=[key.key for key in sought])
        self._connections.send(node_id, message, partial(self._handle_all, sought), now_ns, version=version)
        for coordinator in sought.values():
            coordinator.search.is_in_flight = True

    def _coordinator(self, key: CoordinatorKey) -> _Coordinator:
        return self._coordinators.get(key) or self._coordinators.setdefault(key, _Coordinator())

    def _handle_all(self, sought: dict[CoordinatorKey, _Coordinator], response: Response) -> None:
        rows = {} if response.message is None else {row.key: row for row in response.message.coordinators}
        for key, coordinator in sought.items():
            coordinator.handle_found(key, self._backoff, response, rows.get(key.key))

    def _handle_one(self, key: CoordinatorKey, coordinator: _Coordinator, response: Response) -> None:
        answer = response.message
        found = None if answer is None else next(iter(answer.coordinators or [answer]))
        coordinator.handle_found(key, self._backoff, response, found)

    def _find(self, key: CoordinatorKey, coordinator: _Coordinator, now_ns: int) -> None:
        """Send the search if it is due."""
        search = coordinator.search
        if search.is_in_flight or now_ns < search.not_before_ns:
            return
        node_id = search.find_node(self._connections, self._backoff, now_ns, messages.FindCoordinatorRequest)
        if node_id is not None:
            version = self._connections.version_of(node_id, messages.FindCoordinatorRequest)
            handle = partial(self._handle_one, key, coordinator)
            self._connections.send(node_id, _search_for(key, version), handle, now_ns, version=version)
            search.is_in_flight = True


def _search_for(key: CoordinatorKey, version: int) -> Message:
    if version >= features.FIND_COORDINATOR_BATCHES:
        return messages.FindCoordinatorRequest(key_type=key.kind, coordinator_keys=[key.key])
    return messages.FindCoordinatorRequest(key_type=key.kind, key=key.key)


def _refusal(key: CoordinatorKey, found: Any) -> KafkaError | None:
    """Return the error of what an answer says of the key."""
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE if found is None else found.error_code
    return error_of(code, f"FindCoordinator for {key}: {row_of(code).doc}") if code else None
