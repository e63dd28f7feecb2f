"""Requests about groups: committed offsets, names of groups.

Theory of operation. A Question is a Call with an answer. It goes to the node it names, or to the coordinator
of its group, for which the client searches first, and again after it has moved. A retriable error is retried,
with back-off, until there is an answer or its caller stops waiting. Questions do not wait for each other.

After org.apache.kafka.clients.admin.internals.AdminApiDriver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from kbatch.core.client.any_node_request import AnyNodeRequest
from kbatch.core.client.backoff import NEVER_NS, ExponentialBackoff
from kbatch.core.client.calls import Call
from kbatch.core.client.coordinators import GROUP, CoordinatorKey, codes_of, search_for
from kbatch.errors import ErrorCode, KafkaError, ProtocolError, UnsupportedVersionError, error_of, row_of
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
_MOVED = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)


class Question(Call):
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
    request: ClassVar[type[Message]]
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


class CommittedOffsets(Question):
    """The committed offsets of a group, after all transactions that may change them."""

    __slots__ = ("places",)
    request = messages.OffsetFetchRequest
    highest_version = LAST_VERSION_WITH_NAMES

    def __init__(self, group_id: str, places: Iterable[tuple[str, int]]) -> None:
        super().__init__("committed_offsets", group_id=group_id)
        self.places: dict[str, list[int]] = {}
        for topic, partition in places:
            self.places.setdefault(topic, []).append(partition)

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
                for name, each in self.places.items()
            ]
            return kind(group_id=self.group_id, topics=single, require_stable=True)
        topics = [
            kind.OffsetFetchRequestTopics(name=name, partition_indexes=each)
            for name, each in self.places.items()
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


class GroupIds(Question):
    """The groups that a node coordinates and the client may see."""

    __slots__ = ()
    request = messages.ListGroupsRequest

    def __init__(self, node_id: int) -> None:
        super().__init__("group_ids", node_id=node_id)

    def message(self, version: int) -> Message:
        return messages.ListGroupsRequest()

    def read(self, answer: Any) -> int:
        self.answer = [each.group_id for each in answer.groups]
        return int(answer.error_code)


class Questions:
    """The unanswered questions."""

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
        self.open: list[Question] = []

    def ask(self, question: Question, now_ns: int) -> None:
        self.open.append(question)

    def run(self, now_ns: int) -> None:
        """Send what can be sent now. A caller that stops waiting finishes its question."""
        self.open = [each for each in self.open if not each.is_done]
        for question in self.open:
            if not question.pending.is_in_flight and now_ns >= question.pending.not_before_ns:
                self._try(question, now_ns)

    def deadline_ns(self) -> int:
        """Return the time of the next `run`, if nothing happens before."""
        waiting = [each.pending for each in self.open if not (each.is_done or each.pending.is_in_flight)]
        return min((max(each.not_before_ns, each.retry_ns) for each in waiting), default=NEVER_NS)

    def fail(self, error: KafkaError) -> None:
        for question in self.open:
            question.finish(error)
        self.open.clear()

    def _try(self, question: Question, now_ns: int) -> None:
        key = question.coordinator
        if key is None:
            node_id = self._ready_node(question, now_ns)
        elif key not in self._coordinators:
            self._search(question, key, now_ns)
            return
        else:
            node_id = self._coordinators.ready_node(key, question.pending, now_ns)
            if key not in self._coordinators:
                self._again(question, now_ns)
        if node_id is None:
            return
        try:
            version = min(self._connections.version_of(node_id, question.request), question.highest_version)
            message = question.message(version)
        except UnsupportedVersionError as error:
            self._finish(question, error)
            return
        self._send(question, node_id, message, version, partial(self._answered, question), now_ns)

    def _search(self, question: Question, key: CoordinatorKey, now_ns: int) -> None:
        node_id = question.pending.find_node(self._connections, self._backoff, now_ns)
        if node_id is not None:
            version = self._connections.version_of(node_id, messages.FindCoordinatorRequest)
            handle = partial(self._found, question, key)
            self._send(question, node_id, search_for(key, version), version, handle, now_ns)

    def _ready_node(self, question: Question, now_ns: int) -> int | None:
        """Return the node that the question names, if it takes a request now."""
        pending, node_id = question.pending, question.node_id
        if pending.can_send(node_id, self._connections, now_ns):
            return node_id
        if pending.is_out_of_reach(node_id, self._cluster, self._connections, now_ns):
            self._cluster.request_update(now_ns)
            self._again(question, now_ns)
        return None

    def _send(
        self,
        question: Question,
        node_id: int,
        message: Message,
        version: int,
        handle: Callable[[Response], None],
        now_ns: int,
    ) -> None:
        try:
            self._connections.send(node_id, message, handle, now_ns, version=version)
        except (UnsupportedVersionError, ProtocolError) as error:
            self._finish(question, error)
        else:
            question.pending.is_in_flight = True

    def _found(self, question: Question, key: CoordinatorKey, response: Response) -> None:
        if self._is_sound(question, response):
            code = max(codes_of(response.message), key=bool, default=0)
            if code:
                self._refused(question, code, response.now_ns)
            else:
                self._coordinators.learn(key, response.message)

    def _answered(self, question: Question, response: Response) -> None:
        if self._is_sound(question, response):
            code = question.read(response.message)
            if code:
                self._refused(question, code, response.now_ns)
            else:
                self._finish(question)

    def _is_sound(self, question: Question, response: Response) -> bool:
        """True if there is an answer at all."""
        question.pending.is_in_flight = False
        if response.message is not None:
            return True
        assert response.error is not None
        if response.error.retriable:
            self._again(question, response.now_ns)
        else:
            self._finish(question, response.error)
        return False

    def _refused(self, question: Question, code: int, now_ns: int) -> None:
        row = row_of(code)
        if row.retriable or code in _MOVED:
            self._again(question, now_ns)
            return
        what = f"{question.name} of group {question.group_id}" if question.group_id else question.name
        self._finish(question, error_of(code, f"{what}: {row.doc}"))

    def _again(self, question: Question, now_ns: int) -> None:
        if question.coordinator is not None:
            self._coordinators.forget(question.coordinator)
        pending = question.pending
        pending.not_before_ns = now_ns + self._backoff.delay_ns(pending.attempts)
        pending.retry_ns = 0
        pending.attempts += 1

    def _finish(self, question: Question, error: KafkaError | None = None) -> None:
        question.finish(error)
        self._on_change()
