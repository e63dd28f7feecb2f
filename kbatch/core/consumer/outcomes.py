"""What a reader does about each error code in a broker's answer: a table a request.

After org.apache.kafka.clients.consumer.internals.FetchCollector.handleInitializeErrors (KIP-320, KIP-392,
KIP-951); CommitRequestManager.OffsetCommitRequestState and ConsumerCoordinator.OffsetCommitResponseHandler
(KIP-394, KIP-848, KAFKA-16224); ShareConsumeRequestManager and ShareSessionHandler (KIP-932);
AbstractCoordinator (KIP-394); AbstractHeartbeatRequestManager (KIP-848).
"""

from __future__ import annotations

from enum import Enum

from kbatch.core.client.outcomes import OutcomeTable
from kbatch.errors import ErrorCode


class FetchOutcome(Enum):
    """The fate of a partition after an answer to a Fetch."""

    DELIVER = "its records are handed out"
    RETRY = "it is asked again after a back-off, with newer metadata"
    RESET = "its position is not in the log: a follower's answer is checked with the leader, then it is reset"
    FAIL = "it fails until the program seeks"


FETCH_OUTCOMES = OutcomeTable(
    retriable=FetchOutcome.RETRY,
    otherwise=FetchOutcome.FAIL,
    special={
        ErrorCode.NONE: FetchOutcome.DELIVER,
        ErrorCode.OFFSET_OUT_OF_RANGE: FetchOutcome.RESET,
        # a broker's defect need not last (FetchCollector)
        ErrorCode.UNKNOWN_SERVER_ERROR: FetchOutcome.RETRY,
        # the bytes on the broker's disk do not heal, although a producer may send a batch again
        ErrorCode.CORRUPT_MESSAGE: FetchOutcome.FAIL,
    },
)


class CommitOutcome(Enum):
    """The fate of a partition's offset after an answer to an OffsetCommit."""

    DONE = "it is committed"
    BACK_OFF = "it is sent again after a back-off"
    FIND = "it is sent again to the coordinator, which is searched for"
    RENEW = "it is sent again with the member's next generation, if the member still owns the partition"
    LOST = "it fails: the coordinator does not know the member"
    MISSING = "it fails if the partition is given up or the topic is gone, and else is sent again"
    FAIL = "it fails"


COMMIT_OUTCOMES = OutcomeTable(
    retriable=CommitOutcome.BACK_OFF,
    otherwise=CommitOutcome.FAIL,
    special={
        ErrorCode.NONE: CommitOutcome.DONE,
        ErrorCode.NOT_COORDINATOR: CommitOutcome.FIND,
        ErrorCode.COORDINATOR_NOT_AVAILABLE: CommitOutcome.FIND,
        ErrorCode.REQUEST_TIMED_OUT: CommitOutcome.FIND,
        ErrorCode.NETWORK_EXCEPTION: CommitOutcome.FIND,
        ErrorCode.STALE_MEMBER_EPOCH: CommitOutcome.RENEW,
        ErrorCode.REBALANCE_IN_PROGRESS: CommitOutcome.RENEW,
        ErrorCode.ILLEGAL_GENERATION: CommitOutcome.RENEW,
        ErrorCode.UNKNOWN_MEMBER_ID: CommitOutcome.LOST,
        ErrorCode.FENCED_MEMBER_EPOCH: CommitOutcome.LOST,
        ErrorCode.FENCED_INSTANCE_ID: CommitOutcome.LOST,
        ErrorCode.GROUP_ID_NOT_FOUND: CommitOutcome.LOST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: CommitOutcome.MISSING,
        ErrorCode.UNKNOWN_TOPIC_ID: CommitOutcome.MISSING,
    },
)


class SessionOutcome(Enum):
    """What follows from an error of a whole ShareFetch or ShareAcknowledge."""

    OPEN_AGAIN = "the next request opens another session, at once"
    BACK_OFF = "the next request opens another session after a back-off"
    FAIL = "the program gets the error; the next poll tries again"


SESSION_OUTCOMES = OutcomeTable(
    retriable=SessionOutcome.BACK_OFF,
    otherwise=SessionOutcome.FAIL,
    special={
        ErrorCode.SHARE_SESSION_NOT_FOUND: SessionOutcome.OPEN_AGAIN,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH: SessionOutcome.OPEN_AGAIN,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED: SessionOutcome.BACK_OFF,
        ErrorCode.UNKNOWN_SERVER_ERROR: SessionOutcome.BACK_OFF,
        # the membership joins again by its next heartbeat
        ErrorCode.UNKNOWN_MEMBER_ID: SessionOutcome.BACK_OFF,
        ErrorCode.FENCED_MEMBER_EPOCH: SessionOutcome.BACK_OFF,
    },
)


class AcknowledgeOutcome(Enum):
    """The fate of a partition's acknowledgements after an answer."""

    DONE = "the broker has taken them"
    RETRY = "they are sent again after a back-off, until the call's time is up"
    FAIL = "the call gets the error; other members may get the records"


# A broker that no longer leads the partition has no locks of its records, so others fail for good.
ACKNOWLEDGE_OUTCOMES = OutcomeTable(
    retriable=AcknowledgeOutcome.RETRY,
    otherwise=AcknowledgeOutcome.FAIL,
    special={
        ErrorCode.NONE: AcknowledgeOutcome.DONE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER: AcknowledgeOutcome.FAIL,
        ErrorCode.FENCED_LEADER_EPOCH: AcknowledgeOutcome.FAIL,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: AcknowledgeOutcome.FAIL,
        ErrorCode.UNKNOWN_TOPIC_ID: AcknowledgeOutcome.FAIL,
        ErrorCode.SHARE_SESSION_NOT_FOUND: AcknowledgeOutcome.FAIL,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH: AcknowledgeOutcome.FAIL,
    },
)


class ClassicOutcome(Enum):
    """What follows from the coordinator's answer to a JoinGroup, SyncGroup or Heartbeat."""

    DONE = "the request is done"
    BACK_OFF = "it is sent again after a back-off"
    FIND = "it is sent again to the coordinator, which is searched for"
    TAKE_ID = "the member joins by the id of the answer (KIP-394)"
    JOIN = "the group rebalances, so the member joins again"
    RESET = "the member's generation is over: it loses its partitions, and joins by the same id"
    FORGET = "the coordinator does not know the member: it loses its partitions, and joins as another"
    FAIL = "the membership ends with an error"


CLASSIC_OUTCOMES = OutcomeTable(
    retriable=ClassicOutcome.BACK_OFF,
    otherwise=ClassicOutcome.FAIL,
    special={
        ErrorCode.NONE: ClassicOutcome.DONE,
        ErrorCode.NOT_COORDINATOR: ClassicOutcome.FIND,
        ErrorCode.COORDINATOR_NOT_AVAILABLE: ClassicOutcome.FIND,
        ErrorCode.REQUEST_TIMED_OUT: ClassicOutcome.FIND,
        ErrorCode.NETWORK_EXCEPTION: ClassicOutcome.FIND,
        ErrorCode.MEMBER_ID_REQUIRED: ClassicOutcome.TAKE_ID,
        ErrorCode.REBALANCE_IN_PROGRESS: ClassicOutcome.JOIN,
        ErrorCode.ILLEGAL_GENERATION: ClassicOutcome.RESET,
        ErrorCode.UNKNOWN_MEMBER_ID: ClassicOutcome.FORGET,
    },
)


class HeartbeatOutcome(Enum):
    """What follows from an answer to a heartbeat by KIP-848 or in a share group."""

    GO_ON = "the member takes what it says"
    FIND = "the next one goes to the coordinator, which is searched for"
    BACK_OFF = "the next one is sent after a back-off"
    REJOIN = "the member has lost everything, and joins again"
    FAIL = "the membership ends, and the program gets the error"


_HEARTBEAT = {
    ErrorCode.NONE: HeartbeatOutcome.GO_ON,
    ErrorCode.NOT_COORDINATOR: HeartbeatOutcome.FIND,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: HeartbeatOutcome.FIND,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: HeartbeatOutcome.BACK_OFF,
    ErrorCode.UNKNOWN_MEMBER_ID: HeartbeatOutcome.REJOIN,
    ErrorCode.FENCED_MEMBER_EPOCH: HeartbeatOutcome.REJOIN,
    # the sessions of all members have ended, and with them the group
    ErrorCode.GROUP_ID_NOT_FOUND: HeartbeatOutcome.REJOIN,
}
HEARTBEAT_OUTCOMES = OutcomeTable(
    retriable=HeartbeatOutcome.FAIL, otherwise=HeartbeatOutcome.FAIL, special=_HEARTBEAT
)
# When a member joins: the members of the group have the classic protocol.
_REFUSED = {ErrorCode.GROUP_ID_NOT_FOUND: HeartbeatOutcome.FAIL}
FIRST_HEARTBEAT_OUTCOMES = OutcomeTable(
    retriable=HeartbeatOutcome.FAIL, otherwise=HeartbeatOutcome.FAIL, special=_HEARTBEAT | _REFUSED
)
