"""What brokers answer to consumers, administrators and each other; a producer sees little of it."""

from kbatch.errors.base import (
    ApplicationRecoverableError,
    InvalidConfigurationError,
    InvalidMetadataError,
    KafkaError,
    RetriableError,
)

# Fetching


class OffsetOutOfRangeError(KafkaError, code=1):
    """The log does not have this offset, or not any more: start from its beginning or end."""


class InvalidFetchSizeError(KafkaError, code=4):
    """A fetch asked for an impossible number of bytes: correct the consumer's fetch sizes."""


class FetchSessionIdNotFoundError(RetriableError, code=70):
    """The broker has closed the fetch session; it passes with a new one."""


class InvalidFetchSessionEpochError(RetriableError, code=71):
    """A fetch does not follow the one before it; it passes with a new fetch session."""


class OffsetNotAvailableError(RetriableError, code=78):
    """A new leader does not know its high watermark yet; it passes."""


class FetchSessionTopicIdError(RetriableError, code=106):
    """A fetch session mixes topic ids with names; it passes with a new one."""


class OffsetMovedToTieredStorageError(KafkaError, code=109):
    """The offset is in tiered storage: a replica fetches it from there."""


# Groups


class OffsetMetadataTooLargeError(KafkaError, code=12):
    """The text committed with an offset is too long: shorten it, or raise offset.metadata.max.bytes."""


class IllegalGenerationError(ApplicationRecoverableError, code=22):
    """The group has rebalanced since: the consumer has to poll, and commits with its new generation."""


class InconsistentGroupProtocolError(KafkaError, code=23):
    """The members of the group have no assignment strategy in common: configure one for all of them."""


class InvalidGroupIdError(KafkaError, code=24):
    """A group cannot have this id, or is of another type: name another."""


class UnknownMemberIdError(ApplicationRecoverableError, code=25):
    """The group has dropped this member, often because it polled too late: it has to join again."""


class InvalidSessionTimeoutError(KafkaError, code=26):
    """The session.timeout.ms is not between the brokers' group.min. and group.max.session.timeout.ms: change
    it.
    """


class RebalanceInProgressError(KafkaError, code=27):
    """The group is rebalancing: the consumer has to join again by polling."""


class InvalidCommitOffsetSizeError(KafkaError, code=28):
    """An offset commit is larger than a batch may be: commit fewer partitions at once."""


class GroupNotEmptyError(KafkaError, code=68):
    """The group has members: stop them first."""


class GroupIdNotFoundError(KafkaError, code=69):
    """There is no such group: check the name."""


class MemberIdRequiredError(KafkaError, code=79):
    """A member has to join with the id that this answer gives."""


class GroupMaxSizeReachedError(KafkaError, code=81):
    """The group has as many members as it may: stop some, or raise group.max.size."""


class FencedInstanceIdError(ApplicationRecoverableError, code=82):
    """Another member has the same group.instance.id: give each its own."""


class GroupSubscribedToTopicError(KafkaError, code=86):
    """The group reads the topic: its offsets cannot be deleted while it does."""


class FencedMemberEpochError(KafkaError, code=110):
    """The coordinator has gone on without this member: it has to give up its partitions and join again."""


class UnreleasedInstanceIdError(KafkaError, code=111):
    """Another member still has this group.instance.id: it has to leave first."""


class UnsupportedAssignorError(KafkaError, code=112):
    """The coordinator has no such assignor: configure one that it has."""


class StaleMemberEpochError(KafkaError, code=113):
    """The member has not heard of its new epoch yet: it tries again after the next heartbeat."""


class InvalidRecordStateError(KafkaError, code=121):
    """A share group has done something else with the record meanwhile: it cannot be acknowledged."""


class ShareSessionNotFoundError(RetriableError, code=122):
    """The broker has closed the share session; it passes with a new one."""


class InvalidShareSessionEpochError(RetriableError, code=123):
    """A share fetch does not follow the one before it; it passes with a new share session."""


class FencedStateEpochError(KafkaError, code=124):
    """A newer owner keeps the state of the share partition."""


class InvalidRegularExpressionError(KafkaError, code=128):
    """A subscription is not a valid regular expression (RE2/J): correct it."""


class StreamsInvalidTopologyError(KafkaError, code=130):
    """The topology of a streams group is not valid: the text says why."""


class StreamsInvalidTopologyEpochError(KafkaError, code=131):
    """The topology epoch of a streams group is not valid."""


class StreamsTopologyFencedError(KafkaError, code=132):
    """A newer topology has replaced this one: update the member."""


class ShareSessionLimitReachedError(RetriableError, code=133):
    """The broker has as many share sessions as it may; it passes when one is closed."""


# Administration


class TopicExistsError(KafkaError, code=36):
    """There is a topic of this name already."""


class InvalidPartitionsError(KafkaError, code=37):
    """A topic cannot have this number of partitions: give 1 or more, and not fewer than it has."""


class InvalidReplicationFactorError(InvalidConfigurationError, code=38):
    """A topic has 1 replica of each partition or more, and not more than there are brokers: change the
    factor.
    """


class InvalidReplicaAssignmentError(KafkaError, code=39):
    """Replicas are assigned to brokers that are not there, twice, or unevenly: correct the assignment."""


class LogDirNotFoundError(KafkaError, code=57):
    """The broker has no such log directory: check its log.dirs."""


class ReassignmentInProgressError(KafkaError, code=60):
    """The partition is being reassigned: wait for its end, or cancel it."""


class TopicDeletionDisabledError(KafkaError, code=73):
    """The brokers' delete.topic.enable forbids it."""


class PreferredLeaderNotAvailableError(InvalidMetadataError, code=80):
    """The preferred leader is not available; it passes when its broker is back."""


class EligibleLeadersNotAvailableError(InvalidMetadataError, code=83):
    """No replica that may lead is available; it passes when one is back."""


class ElectionNotNeededError(InvalidMetadataError, code=84):
    """The partition is led by the replica that was asked for already."""


class NoReassignmentInProgressError(KafkaError, code=85):
    """The partition is not being reassigned."""


class ResourceNotFoundError(KafkaError, code=91):
    """There is no such resource: check the name."""


class DuplicateResourceError(KafkaError, code=92):
    """A request names the same resource twice."""


class InvalidUpdateVersionError(KafkaError, code=95):
    """Something was to be updated from a version that it is not at any more: read it, and try again."""


class FeatureUpdateFailedError(KafkaError, code=96):
    """The finalized features could not be updated: the controller's log says why."""


class MismatchedEndpointTypeError(KafkaError, code=114):
    """The request is for a controller and went to a broker, or the other way: use the other's address."""


class UnsupportedEndpointTypeError(KafkaError, code=115):
    """The node does not take this request at any of its endpoints."""


# Brokers and controllers among themselves


class ControllerMovedError(KafkaError, code=11):
    """Another node has become the controller."""


class TransactionCoordinatorFencedError(KafkaError, code=52):
    """A marker came from a broker that does not coordinate the transaction any more."""


class StaleBrokerEpochError(KafkaError, code=77):
    """The broker has registered anew since."""


class InconsistentVoterSetError(KafkaError, code=94):
    """A controller does not belong to the voters that another knows."""


class SnapshotNotFoundError(KafkaError, code=98):
    """There is no such snapshot of the metadata log."""


class PositionOutOfRangeError(KafkaError, code=99):
    """A position lies outside a snapshot of the metadata log."""


class DuplicateBrokerRegistrationError(KafkaError, code=101):
    """Another broker has this node.id: give each its own."""


class BrokerIdNotRegisteredError(KafkaError, code=102):
    """No broker of this id is registered."""


class InconsistentClusterIdError(KafkaError, code=104):
    """A node belongs to another cluster: check its address and its meta.properties."""


class IneligibleReplicaError(KafkaError, code=107):
    """A replica was to come in sync that may not, such as one of a broker that is shutting down."""


class NewLeaderElectedError(KafkaError, code=108):
    """The replicas in sync were changed, and the leader with them."""


class UnknownControllerIdError(KafkaError, code=116):
    """There is no controller of this id."""


class InvalidRegistrationError(KafkaError, code=119):
    """The controller does not take the broker's registration: its log says why."""


class InvalidVoterKeyError(KafkaError, code=125):
    """A voter's id and directory id do not match the replica's."""


class DuplicateVoterError(KafkaError, code=126):
    """The voter is in the set of voters already."""


class VoterNotFoundError(KafkaError, code=127):
    """The voter is not in the set of voters."""
