"""Fetch sessions (KIP-227): a client names its partitions once, then only what has changed.

Theory of operation. A Fetch request of epoch 0 names all partitions, and begins a session. Requests of epochs
1, 2 and so on name partitions that are new, have another offset or are forgotten; the answer leaves out what
has not changed. Epoch -1 ends the session. A `FetchPlan` is one request: the partitions to read, and from
what was read the partitions to answer with.

After org.apache.kafka.server.FetchManager, FetchContext and FetchSession.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from kbatch.errors import ErrorCode
from kbatch.protocol import features, messages
from kbatch.testing.broker.broker_error import BrokerError

NO_SESSION = 0
INITIAL_EPOCH, FINAL_EPOCH = 0, -1
MAX_EPOCH = 2**31 - 1
MAX_SESSION_ID = 2**31 - 1
# Ids that one run of a broker may give in a millisecond before they could be those of a later run.
IDS_PER_MS = 4096
SLOTS = 1000  # max.incremental.fetch.session.cache.slots
EVICTION_MS = 120_000  # min.incremental.fetch.session.eviction.ms
NO_EPOCH = -1
NO_OFFSETS = (-1, -1)  # of the high watermark and the log's start
PartitionData = messages.FetchResponse.PartitionData
# A topic, by name or id as the version has it, and a partition.
Key = tuple[str, bytes, int]


class WantedPartition:
    """A partition that a client reads, and what its last answer in the session said.

    Attributes
    ----------
    topic : str
        Empty if the request has ids.
    topic_id : bytes
    request : FetchRequest.FetchPartition
        Where the client reads.
    """

    __slots__ = ("_offsets", "request", "topic", "topic_id")

    def __init__(self, topic: str, topic_id: bytes, request: messages.FetchRequest.FetchPartition) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.request = request
        self._offsets = NO_OFFSETS

    @property
    def key(self) -> Key:
        return self.topic, self.topic_id, self.request.partition

    def is_news(self, answer: PartitionData) -> bool:
        """True if the client must get this answer. Remember it (FetchSession.CachedPartition).

        An error has no offsets, so that the answer after it has changed.
        """
        offsets = answer.high_watermark, answer.log_start_offset
        has_changed, self._offsets = offsets != self._offsets, offsets
        is_refusal = answer.error_code != ErrorCode.NONE or answer.diverging_epoch.epoch != NO_EPOCH
        is_sent_on = answer.preferred_read_replica >= 0
        return has_changed or is_refusal or is_sent_on or bool(answer.records)


Answered = tuple[WantedPartition, PartitionData]


class FetchSession:
    """The partitions of a session, the longest without records first."""

    __slots__ = ("epoch", "has_topic_ids", "partitions", "session_id", "used_ms")

    def __init__(
        self, session_id: int, partitions: Iterable[WantedPartition], has_topic_ids: bool, now_ms: int
    ) -> None:
        self.session_id = session_id
        self.epoch = INITIAL_EPOCH + 1
        self.has_topic_ids = has_topic_ids
        self.partitions = {each.key: each for each in partitions}
        self.used_ms = now_ms

    def update(self, request: messages.FetchRequest) -> None:
        """Apply the changes that a request names."""
        for wanted in _wanted(request):
            known = self.partitions.setdefault(wanted.key, wanted)
            known.request = wanted.request
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                self.partitions.pop((topic.topic, bytes(topic.topic_id), index), None)

    def news(self, answers: Iterable[Answered]) -> list[Answered]:
        """Return the answers that the client must get. Partitions with records go to the end, so that each
        has its turn within the maximum size of an answer.
        """
        found = []
        for wanted, answer in answers:
            if wanted.is_news(answer):
                found.append((wanted, answer))
                if answer.records and self.partitions.pop(wanted.key, None) is not None:
                    self.partitions[wanted.key] = wanted
        return found


class FetchPlan:
    """A request without a session: all that it names is read and answered."""

    session_id = NO_SESSION  # of a session that has begun

    def __init__(self, partitions: Iterable[WantedPartition]) -> None:
        self.partitions = list(partitions)

    def answer(self, answers: list[Answered], now_ms: int) -> tuple[int, list[Answered]]:
        """Return the session's id, and the answers that the client gets.

        Raises BrokerError if the session has gone on meanwhile.
        """
        return NO_SESSION, answers


class _FirstPlan(FetchPlan):
    """The first request of a session, which begins with its answer."""

    def __init__(
        self,
        sessions: FetchSessions,
        node_id: int,
        partitions: Iterable[WantedPartition],
        has_topic_ids: bool,
    ) -> None:
        super().__init__(partitions)
        self._sessions = sessions
        self._node_id = node_id
        self._has_topic_ids = has_topic_ids

    def answer(self, answers: list[Answered], now_ms: int) -> tuple[int, list[Answered]]:
        for wanted, answer in answers:
            wanted.is_news(answer)
        session_id = self._sessions.begin(self._node_id, self.partitions, self._has_topic_ids, now_ms)
        return session_id, answers


class _NextPlan(FetchPlan):
    """A later request of a session: all of its partitions are read, and what is new is answered."""

    def __init__(self, session: FetchSession) -> None:
        super().__init__(session.partitions.values())
        self._session = session
        self.session_id = session.session_id
        self._epoch = session.epoch

    def answer(self, answers: list[Answered], now_ms: int) -> tuple[int, list[Answered]]:
        if self._session.epoch != self._epoch:
            raise BrokerError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        return self._session.session_id, self._session.news(answers)


class FetchSessions:
    """The sessions of all nodes; each node has its own, in memory.

    Parameters
    ----------
    now_ms : int
        The start of the broker: ids of an earlier run are not given again.
    """

    def __init__(self, now_ms: int) -> None:
        self._ids = count(now_ms * IDS_PER_MS)
        self._by_node: dict[int, dict[int, FetchSession]] = {}

    def plan(self, node_id: int, request: messages.FetchRequest, version: int, now_ms: int) -> FetchPlan:
        """Return what a request reads, after its changes to a session.

        Raises BrokerError for an unknown session, another epoch than the next, or topic ids where the session
        has names.
        """
        sessions = self._by_node.setdefault(node_id, {})
        has_topic_ids = version >= features.FETCH_TOPIC_IDS
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            sessions.pop(request.session_id, None)
            if request.session_epoch == FINAL_EPOCH:
                return FetchPlan(_wanted(request))
            return _FirstPlan(self, node_id, _wanted(request), has_topic_ids)
        session = sessions.get(request.session_id)
        if session is None:
            raise BrokerError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise BrokerError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.has_topic_ids != has_topic_ids:
            raise BrokerError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.update(request)
        if not session.partitions:
            del sessions[session.session_id]
            return FetchPlan(())
        session.epoch = INITIAL_EPOCH + 1 if session.epoch == MAX_EPOCH else session.epoch + 1
        session.used_ms = now_ms
        sessions[session.session_id] = sessions.pop(session.session_id)  # the least recently used is first
        return _NextPlan(session)

    def begin(
        self, node_id: int, partitions: Iterable[WantedPartition], has_topic_ids: bool, now_ms: int
    ) -> int:
        """Begin a session, and return its id; NO_SESSION if all slots are in use."""
        sessions = self._by_node.setdefault(node_id, {})
        if len(sessions) >= SLOTS:
            oldest = next(iter(sessions.values()))
            if now_ms - oldest.used_ms <= EVICTION_MS:
                return NO_SESSION
            del sessions[oldest.session_id]
        session_id = next(self._ids) % MAX_SESSION_ID + 1
        sessions[session_id] = FetchSession(session_id, partitions, has_topic_ids, now_ms)
        return session_id

    def forget(self, node_id: int) -> None:
        """Forget a node's sessions, since it has stopped."""
        self._by_node.pop(node_id, None)


def _wanted(request: messages.FetchRequest) -> list[WantedPartition]:
    """Return the partitions that a request names. One that it names twice is wanted as it is named last."""
    named = {}
    for topic in request.topics:
        for each in topic.partitions:
            wanted = WantedPartition(topic.topic, bytes(topic.topic_id), each)
            named[wanted.key] = wanted
    return list(named.values())
