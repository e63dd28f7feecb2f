"""Share sessions (KIP-932): the partitions that a member of a share group fetches from one node.

Theory of operation. A ShareFetch of epoch 0 opens a session, those of epochs 1, 2 and so on name what
changes, and -1 ends it; ShareAcknowledge counts in the same epochs. A session is of a group and a member id,
which nothing compares with the group's members, and it ends with the connection that opened it, not with
others that used it. When it ends, what the member has acquired is released. A new session of the same member
takes the old one's place, without a release.

After SharePartitionManager, ShareSession and ShareSessionCache of Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from kbatch.testing.broker.broker_error import BrokerError

INITIAL_EPOCH, FINAL_EPOCH = 0, -1
MAX_EPOCH = 2**31 - 1
TopicIdPartition = tuple[bytes, int]


class SessionKey(NamedTuple):
    """A member of a group, at a node."""

    node_id: int
    group_id: str
    member_id: str


class ShareSession:
    """One session; `connection` is the one that opened it, `partitions` are in the order of their naming."""

    __slots__ = ("connection", "epoch", "partitions")

    def __init__(self, connection: object, partitions: Iterable[TopicIdPartition]) -> None:
        self.connection = connection
        self.epoch = INITIAL_EPOCH
        self.partitions = dict.fromkeys(partitions)
        self.go_on()

    def go_on(self) -> None:
        self.epoch = 1 if self.epoch == MAX_EPOCH else self.epoch + 1

    def rotated(self) -> list[TopicIdPartition]:
        """Return the partitions, each first in its turn, so that none starves within a limit of records."""
        partitions = [*self.partitions]
        first = (self.epoch - 1) % len(partitions) if partitions else 0
        return partitions[first:] + partitions[:first]


class ShareSessions:
    """The sessions of all nodes.

    Parameters
    ----------
    limit : int
        The number of sessions at a node (group.share.max.share.sessions).
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sessions: dict[SessionKey, ShareSession] = {}

    def fetch(self, key: SessionKey, request: messages.ShareFetchRequest, connection: object) -> ShareSession:
        """Return the session after what a ShareFetch changes; for the last one, what is left of it.

        Raises BrokerError INVALID_REQUEST for acknowledgements in a session that just begins,
        SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH, SHARE_SESSION_LIMIT_REACHED.
        """
        epoch = request.share_session_epoch
        named = [
            (bytes(topic.topic_id), each.partition_index)
            for topic in request.topics
            for each in topic.partitions
        ]
        if epoch == INITIAL_EPOCH:
            return self._begin(key, request, named, connection)
        session = self._known(key, epoch)
        session.partitions |= dict.fromkeys(named)
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                session.partitions.pop((bytes(topic.topic_id), index), None)
        return session

    def acknowledge(self, key: SessionKey, epoch: int) -> None:
        """Count a ShareAcknowledge.

        Raises BrokerError SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH.
        """
        if epoch == INITIAL_EPOCH:
            raise BrokerError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        self._known(key, epoch)

    def end(self, key: SessionKey) -> list[TopicIdPartition]:
        """End a session, and return its partitions."""
        session = self._sessions.pop(key, None)
        return [*session.partitions] if session is not None else []

    def of_connection(self, connection: object) -> list[SessionKey]:
        """Return the sessions that a connection has opened."""
        return [key for key, session in self._sessions.items() if session.connection is connection]

    def _begin(
        self,
        key: SessionKey,
        request: messages.ShareFetchRequest,
        named: Iterable[TopicIdPartition],
        connection: object,
    ) -> ShareSession:
        if any(each.acknowledgement_batches for topic in request.topics for each in topic.partitions):
            raise BrokerError(ErrorCode.INVALID_REQUEST)
        self._sessions.pop(key, None)
        if sum(each.node_id == key.node_id for each in self._sessions) >= self._limit:
            raise BrokerError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session = self._sessions[key] = ShareSession(connection, named)
        return session

    def _known(self, key: SessionKey, epoch: int) -> ShareSession:
        session = self._sessions.get(key)
        if session is None:
            raise BrokerError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if epoch == FINAL_EPOCH:
            return session
        if session.epoch != epoch:
            raise BrokerError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session.go_on()
        return session
