"""The cluster: its nodes, its features, and the quorum of its controllers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kbatch.admin.base import Part, checked_items, text_of
from kbatch.admin.partitions import checked_broker
from kbatch.admin.waiting import NODE_SECONDS
from kbatch.core.admin.cluster import (
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    AddVoter,
    DescribeCluster,
    DescribeFeatures,
    DescribeQuorum,
    Reminder,
    RemoveVoter,
    UnregisterBroker,
    UpdateFeatures,
)
from kbatch.core.admin.results import ClusterDescription, Features, Quorum
from kbatch.core.client.controllers import BROKERS, CONTROLLERS
from kbatch.errors import (
    BrokerIdNotRegisteredError,
    DuplicateVoterError,
    ErrorCode,
    InvalidRequestError,
    KafkaError,
    NotLeaderOrFollowerError,
    UnsupportedEndpointTypeError,
    VoterNotFoundError,
)
from kbatch.records import check_integer, check_text

if TYPE_CHECKING:
    from kbatch.core.client.admin_requests import AdminRequest
    from kbatch.waiting.deadline import Deadline

_DOWNGRADES = {None: UPGRADE, "safe": SAFE_DOWNGRADE, "unsafe": UNSAFE_DOWNGRADE}
MAX_INT16, MAX_PORT = 2**15 - 1, 2**16 - 1
# Between attempts to change the voters.
VOTER_SECONDS = 0.2


class AsyncCluster(Part):
    """Calls about the cluster. They raise KafkaTimeoutError at the deadline (`timeout` in seconds, None is
    default.api.timeout.ms) and ClusterAuthorizationError if the ACL Describe or Alter on the cluster is
    missing.
    """

    async def describe(
        self, *, fenced: bool = False, operations: bool = False, timeout: float | None = None
    ) -> ClusterDescription:
        """Return the brokers of the cluster (Kafka 2.8); over bootstrap.controllers the controllers, of which
        `controller` is the active one (Kafka 3.7).

        Parameters
        ----------
        fenced : bool
            True for brokers, too, that are registered and not alive (Kafka 4.0).
        operations : bool
            True to be told what this client may do with the cluster.

        Raises
        ------
        UnsupportedEndpointTypeError
            `fenced` is True, and controllers are asked.
        """
        is_of_controllers = self._runtime.engine.asks_controllers
        if fenced and is_of_controllers:
            raise UnsupportedEndpointTypeError(
                "describe: controllers do not tell fenced brokers; use an Admin with bootstrap.servers"
            )
        request = DescribeCluster(
            fenced=fenced,
            operations=operations,
            endpoint_type=CONTROLLERS if is_of_controllers else BROKERS,
        )
        found: ClusterDescription = await self._runtime.await_answer_of(
            request, self._runtime.api_deadline(timeout)
        )
        return found

    async def features(self, *, timeout: float | None = None) -> Features:
        """Return the features of the cluster, such as metadata.version, with their levels (Kafka 2.7)."""
        found: Features = await self._runtime.await_answer_of(
            DescribeFeatures(), self._runtime.api_deadline(timeout)
        )
        return found

    async def update_features(
        self,
        levels: Mapping[str, int],
        *,
        downgrade: str | None = None,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Set the levels of features, all of them or none (Kafka 2.7).

        Parameters
        ----------
        levels : mapping of str to int
            0 takes a feature off.
        downgrade : "safe", "unsafe" or None
            Whether levels may become lower, and whether metadata may be lost by that.
        validate_only : bool
            True to check only.

        Raises
        ------
        ValueError
            A level would become lower, and `downgrade` is None.
        InvalidUpdateVersionError
            Controllers do not have a level, or refuse to go there.
        """
        items = checked_items("levels", levels, text_of("feature"), _checked_level)
        if not items:
            raise ValueError("update_features() needs a feature")
        if downgrade not in _DOWNGRADES:
            raise ValueError(f'downgrade must be "safe", "unsafe" or None, got {downgrade!r}')
        deadline = self._runtime.api_deadline(timeout)
        if downgrade is None:
            await self._check_upgrade(items, deadline)
        request = UpdateFeatures(items, _DOWNGRADES[downgrade], validate_only=validate_only)
        await self._all_or_none(request, deadline)

    async def _all_or_none(self, request: AdminRequest, deadline: Deadline) -> None:
        await self._ask(request, deadline)
        for error in request.errors.values():
            raise error

    async def _check_upgrade(self, items: Mapping[str, int], deadline: Deadline) -> None:
        found: Features = await self._runtime.await_answer_of(DescribeFeatures(), deadline)
        for name, level in items.items():
            now = found.finalized.get(name, 0)
            if level < now:
                raise ValueError(f'{name} would go from {now} to {level}: pass downgrade="safe" for that')

    async def quorum(self, *, timeout: float | None = None) -> Quorum:
        """Return the quorum of controllers, and how far each follows its leader (Kafka 3.3)."""
        found: Quorum = await self._runtime.await_answer_of(
            DescribeQuorum(), self._runtime.api_deadline(timeout)
        )
        return found

    async def add_voter(
        self,
        node_id: int,
        directory_id: UUID,
        endpoints: Mapping[str, tuple[str, int]],
        *,
        cluster_id: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Let a controller vote, which follows already (Kafka 3.9, kraft.version 1).

        Parameters
        ----------
        node_id : int
        directory_id : UUID
            As `quorum` shows it.
        endpoints : mapping of str to (str, int)
            By listener its host and port.
        cluster_id : str or None
            Refuse if it is another cluster.

        Raises
        ------
        DuplicateVoterError
            It votes already.
        UnsupportedVersionError
            The quorum is static (kraft.version 0).
        """
        listeners = checked_items("endpoints", endpoints, text_of("listener"), _checked_endpoint)
        voter = checked_broker(node_id), _checked_directory(directory_id)
        await self._change_voters(
            lambda: AddVoter(*voter, listeners, cluster_id), DuplicateVoterError, timeout
        )

    async def remove_voter(
        self,
        node_id: int,
        directory_id: UUID,
        *,
        cluster_id: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Take a controller's vote away (Kafka 3.9, kraft.version 1).

        Raises
        ------
        VoterNotFoundError
            It does not vote, or it is the last one.
        """
        voter = checked_broker(node_id), _checked_directory(directory_id)
        await self._change_voters(lambda: RemoveVoter(*voter, cluster_id), VoterNotFoundError, timeout)

    async def _change_voters(
        self, new_request: Callable[[], AdminRequest], done: type[KafkaError], timeout: float | None
    ) -> None:
        """Send a request as often as it is answered by a controller that is not active any more. Brokers pass
        it on to the one that they know, and learn of another by NOT_CONTROLLER only, which is no answer to
        this request (Kafka 4.3.1): they are reminded.
        """
        deadline = self._runtime.api_deadline(timeout)
        is_by_brokers = not self._runtime.engine.asks_controllers
        is_doubtful = False
        while True:
            request = new_request()
            if is_by_brokers:
                request.final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER})
            await self._ask(request, deadline)
            is_doubtful |= bool(request.doubtful)
            error = request.error
            if not (is_by_brokers and isinstance(error, NotLeaderOrFollowerError)):
                break
            nodes = await self._runtime.await_brokers(deadline, request.name)
            await self._ask(Reminder(nodes), deadline.within(NODE_SECONDS))
            if not await self._pause(VOTER_SECONDS, deadline):
                break
        if error is not None and not (is_doubtful and isinstance(error, done)):
            raise error

    async def unregister(self, node_id: int, *, force: bool = False, timeout: float | None = None) -> None:
        """Let the cluster forget a broker that is gone for good (Kafka 2.8).

        Parameters
        ----------
        node_id : int
        force : bool
            True also for one that is alive: the cluster would drop it at once, until it is restarted.

        Raises
        ------
        InvalidRequestError
            The broker is alive, and `force` is False.
        BrokerIdNotRegisteredError
            There is no such broker.
        UnsupportedEndpointTypeError
            `force` is False, and controllers are asked, which do not tell whether it is alive.
        """
        checked_broker(node_id)
        deadline = self._runtime.api_deadline(timeout)
        if not force and node_id in await self._runtime.await_brokers(deadline, "unregister"):
            found = await self._runtime.await_answer_of(
                DescribeCluster(fenced=False, operations=False), deadline
            )
            if any(each.node_id == node_id for each in found.nodes):
                raise InvalidRequestError(
                    f"broker {node_id} is alive: stop it first, or pass force=True to drop it now"
                )
        await self._settle(UnregisterBroker(node_id), BrokerIdNotRegisteredError, timeout)

    async def _settle(self, request: Any, done: type[Exception], timeout: float | None) -> None:
        """Send a request with one item. The error `done` after a lost answer says that it was done."""
        await self._ask(request, self._runtime.api_deadline(timeout))
        error = request.error
        if error is not None and not (request.doubtful and isinstance(error, done)):
            raise error


def _checked_level(given: Any) -> int:
    check_integer("the level of a feature", given, 0, MAX_INT16)
    return int(given)


def _checked_directory(given: Any) -> UUID:
    if not isinstance(given, UUID):
        raise TypeError(f"directory_id must be a UUID, got {given!r}")
    if not given.int:
        raise ValueError("directory_id must not be zero; quorum() shows it")
    return given


def _checked_endpoint(given: Any) -> tuple[str, int]:
    host, port = given
    check_text("host", host)
    check_integer("port", port, 1, MAX_PORT)
    return host, port
