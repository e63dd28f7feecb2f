"""AdminRequests: requests about groups, such as committed offsets and names of groups.

Theory of operation. An AdminRequest is a Call with an answer. It goes to the node it names, or to the
coordinator of its group, which Coordinators finds, and finds again after it has moved. A retriable error is
retried, with back-off, until there is an answer or the caller stops waiting. Requests do not wait for each
other.

After org.apache.kafka.clients.admin.internals.AdminApiDriver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from kbatch.core.client.any_node_request import AnyNodeRequest
from kbatch.core.client.backoff import NEVER_NS, ExponentialBackoff
from kbatch.core.client.calls import Call
from kbatch.core.client.coordinators import GROUP, CoordinatorKey
from kbatch.errors import KafkaError, UnsupportedVersionError, error_of, row_of
from kbatch.protocol import messages
from kbatch.records import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kbatch.core.client.cluster import Cluster
    from kbatch.core.client.connections import Connections, Response
    from kbatch.core.client.coordinators import Coordinators
    from kbatch.protocol.structs import Message

FETCHES_BY_GROUP = 8
# Later versions name topics by their ids.
LAST_VERSION_WITH_NAMES = 9
# Earlier versions ignore open transactions (KIP-447).
REQUIRES_STABLE = 7


class AdminRequest(Call):
    """A request about groups.

    Attributes
    ----------
    answer
        The cluster's answer, if it is done without an error.
    group_id : str
        The group whose coordinator gets the request; empty if `node_id` gets it.
    node_id : int
    pending : AnyNodeRequest
    """

    __slots__ = ("answer", "group_id", "node_id", "pending")
    kind: ClassVar[type[Message]]
    highest_version: ClassVar[int] = 2**15 - 1

    def __init__(self, name: str, *, group_id: str = "", node_id: int = -1) -> None:
        super().__init__(name)
        self.answer: Any = None
        self.pending = AnyNodeRequest()
        self.group_id = group_id
        self.node_id = node_id

    @property
    def coordinator(self) -> CoordinatorKey | None:
        """The key of the coordinator that gets the request; None if the node `node_id` gets it."""
        return CoordinatorKey(GROUP, self.group_id) if self.group_id else None

    def message(self, version: int) -> Message:
        """Return the request. Raise UnsupportedVersionError if the version cannot express it."""
        raise NotImplementedError

    def read(self, answer: Any) -> int:
        """Keep the answer, and return its error code."""
        raise NotImplementedError


class CommittedOffsets(AdminRequest):
    """The committed offsets of a group, after all transactions that may change them."""

    __slots__ = ("partitions",)
    kind = messages.OffsetFetchRequest
    highest_version = LAST_VERSION_WITH_NAMES

    def __init__(self, group_id: str, partitions: Iterable[tuple[str, int]]) -> None:
        super().__init__("committed_offsets", group_id=group_id)
        self.partitions: dict[str, list[int]] = {}
        for topic, partition in partitions:
            self.partitions.setdefault(topic, []).append(partition)

    def message(self, version: int) -> Message:
        kind = messages.OffsetFetchRequest
        if version < REQUIRES_STABLE:
            raise UnsupportedVersionError(
                f"the broker cannot return stable offsets (OffsetFetch version {version}, KIP-447); upgrade "
                "it to Kafka 2.5 or newer"
            )
        if version < FETCHES_BY_GROUP:
            single = [
                kind.OffsetFetchRequestTopic(name=name, partition_indexes=each)
                for name, each in self.partitions.items()
            ]
            return kind(group_id=self.group_id, topics=single, require_stable=True)
        topics = [
            kind.OffsetFetchRequestTopics(name=name, partition_indexes=each)
            for name, each in self.partitions.items()
        ]
        return kind(
            groups=[kind.OffsetFetchRequestGroup(group_id=self.group_id, topics=topics)], require_stable=True
        )

    def read(self, answer: Any) -> int:
        (group,) = answer.groups or [answer]
        partitions = [(topic.name, each) for topic in group.topics for each in topic.partitions]
        code: int = group.error_code or next(
            (each.error_code for _, each in partitions if each.error_code), 0
        )
        self.answer = {
            TopicPartition(topic, each.partition_index): OffsetAndMetadata(
                each.committed_offset, each.metadata or "", each.committed_leader_epoch
            )
            for topic, each in partitions
            if each.committed_offset >= 0
        }
        return code


class OffsetCommit(AdminRequest):
    """Offsets to commit for a group that has no members."""

    __slots__ = ("offsets",)
    kind = messages.OffsetCommitRequest
    highest_version = LAST_VERSION_WITH_NAMES

    def __init__(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        super().__init__("commit_offsets", group_id=group_id)
        self.offsets: dict[str, dict[int, int]] = {}
        for (topic, partition), offset in offsets.items():
            self.offsets.setdefault(topic, {})[partition] = offset

    def message(self, version: int) -> Message:
        kind = messages.OffsetCommitRequest
        topics = [
            kind.OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    kind.OffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=offset, committed_metadata=""
                    )
                    for partition, offset in offsets.items()
                ],
            )
            for name, offsets in self.offsets.items()
        ]
        return kind(group_id=self.group_id, member_id="", topics=topics)

    def read(self, answer: Any) -> int:
        codes = (each.error_code for topic in answer.topics for each in topic.partitions)
        return next((code for code in codes if code), 0)


class GroupIds(AdminRequest):
    """The groups that a node coordinates and the client may see."""

    __slots__ = ()
    kind = messages.ListGroupsRequest

    def __init__(self, node_id: int) -> None:
        super().__init__("group_ids", node_id=node_id)

    def message(self, version: int) -> Message:
        return messages.ListGroupsRequest()

    def read(self, answer: Any) -> int:
        self.answer = [each.group_id for each in answer.groups]
        return int(answer.error_code)


class AdminRequests:
    """The unanswered requests."""

    def __init__(
        self,
        connections: Connections,
        cluster: Cluster,
        coordinators: Coordinators,
        backoff: ExponentialBackoff,
        on_change: Callable[[], object],
    ) -> None:
        self._connections = connections
        self._cluster = cluster
        self._coordinators = coordinators
        self._backoff = backoff
        self._on_change = on_change
        self.open: list[AdminRequest] = []

    def submit(self, request: AdminRequest, now_ns: int) -> None:
        self.open.append(request)

    def run(self, now_ns: int) -> None:
        """Send what can be sent now. A caller that stops waiting finishes its request."""
        self.open = [each for each in self.open if not each.is_done]
        for request in self.open:
            if request.pending.is_in_flight or now_ns < request.pending.not_before_ns:
                continue
            try:
                self._try_send(request, now_ns)
            except KafkaError as error:
                self._finish(request, error)

    def deadline_ns(self) -> int:
        """Return the time of the next `run`, if nothing happens before."""
        return min((each.pending.deadline_ns for each in self.open if not each.is_done), default=NEVER_NS)

    def fail(self, error: KafkaError) -> None:
        for request in self.open:
            request.finish(error)
        self.open.clear()

    def _try_send(self, request: AdminRequest, now_ns: int) -> None:
        """Send the request if its node takes it now. Raise what makes that impossible."""
        key = request.coordinator
        if key is None:
            node_id = self._ready_node(request, now_ns)
        else:
            node_id = self._coordinators.ready_node(key, request.pending, now_ns)
        if node_id is None:
            return
        version = min(self._connections.version_of(node_id, request.kind), request.highest_version)
        message = request.message(version)
        handle = partial(self._handle_response, request)
        self._connections.send(node_id, message, handle, now_ns, version=version)
        request.pending.is_in_flight = True

    def _ready_node(self, request: AdminRequest, now_ns: int) -> int | None:
        """Return the node that the request names, if it takes a request now."""
        pending, node_id = request.pending, request.node_id
        if pending.can_send(node_id, self._connections, now_ns):
            return node_id
        if pending.is_out_of_reach(node_id, self._cluster, self._connections, now_ns):
            self._cluster.request_update(now_ns)
            self._retry(request, now_ns)
        return None

    def _handle_response(self, request: AdminRequest, response: Response) -> None:
        request.pending.is_in_flight = False
        error = response.error if response.message is None else _refusal(request, response.message)
        if error is not None and error.retriable:
            self._retry(request, response.now_ns)
        else:
            self._finish(request, error)

    def _retry(self, request: AdminRequest, now_ns: int) -> None:
        if request.coordinator is not None:
            self._coordinators.forget(request.coordinator)
        request.pending.back_off(self._backoff, now_ns)

    def _finish(self, request: AdminRequest, error: KafkaError | None = None) -> None:
        request.finish(error)
        self._on_change()


def _refusal(request: AdminRequest, answer: Any) -> KafkaError | None:
    """Keep an answer, and return its error."""
    code = request.read(answer)
    if not code:
        return None
    subject = f"{request.name} of group {request.group_id}" if request.group_id else request.name
    return error_of(code, f"{subject}: {row_of(code).doc}")
