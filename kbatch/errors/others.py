"""Errors that brokers answer to consumers, administrators and each other; a producer sees few of them."""

from kbatch.errors.base import (
    ApplicationRecoverableError,
    InvalidConfigurationError,
    InvalidMetadataError,
    KafkaError,
    RetriableError,
)

# Groups


class OffsetMetadataTooLargeError(KafkaError, code=12):
    """The text committed with an offset is too long: shorten it, or raise offset.metadata.max.bytes."""


class IllegalGenerationError(ApplicationRecoverableError, code=22):
    """The group has rebalanced: poll, then commit with the new generation."""


class InconsistentGroupProtocolError(KafkaError, code=23):
    """The members of the group have no assignment strategy in common: configure one for all of them."""


class InvalidGroupIdError(KafkaError, code=24):
    """The group id is invalid, or the group has another type: use another id."""


class UnknownMemberIdError(ApplicationRecoverableError, code=25):
    """The group has removed this member, often because it polled too late: join again."""


class InvalidSessionTimeoutError(KafkaError, code=26):
    """The session.timeout.ms is not between the brokers' group.min. and group.max.session.timeout.ms: change
    it.
    """


class RebalanceInProgressError(KafkaError, code=27):
    """The group is rebalancing: poll to join again."""


class InvalidCommitOffsetSizeError(KafkaError, code=28):
    """An offset commit is larger than a batch may be: commit fewer partitions at once."""


class GroupNotEmptyError(KafkaError, code=68):
    """The group has members: stop them first."""


class GroupIdNotFoundError(KafkaError, code=69):
    """The group does not exist: check the name."""


class MemberIdRequiredError(KafkaError, code=79):
    """A member must join with the id in this answer."""


class GroupMaxSizeReachedError(KafkaError, code=81):
    """The group has its maximum of members: stop some, or raise group.max.size."""


class FencedInstanceIdError(ApplicationRecoverableError, code=82):
    """Another member has the same group.instance.id: give each its own."""


class GroupSubscribedToTopicError(KafkaError, code=86):
    """The group reads the topic, so its offsets cannot be deleted: unsubscribe first."""


class FencedMemberEpochError(KafkaError, code=110):
    """The coordinator has removed this member: give up its partitions and join again."""


class UnreleasedInstanceIdError(KafkaError, code=111):
    """Another member still has this group.instance.id: wait for it to leave."""


class UnsupportedAssignorError(KafkaError, code=112):
    """The coordinator does not have the assignor: configure another."""


class StaleMemberEpochError(KafkaError, code=113):
    """The member does not know its new epoch yet: retry after the next heartbeat."""


class InvalidRecordStateError(KafkaError, code=121):
    """The record's state in the share group has changed, so it cannot be acknowledged."""


class ShareSessionNotFoundError(RetriableError, code=122):
    """The broker has closed the share session; the client opens a new one."""


class InvalidShareSessionEpochError(RetriableError, code=123):
    """A share fetch does not follow the previous one; the client opens a new share session."""


class FencedStateEpochError(KafkaError, code=124):
    """A newer owner has the state of the share partition."""


class InvalidRegularExpressionError(KafkaError, code=128):
    """A subscription is not a valid regular expression (RE2/J): correct it."""


class StreamsInvalidTopologyError(KafkaError, code=130):
    """The topology of a streams group is not valid: the text says why."""


class StreamsInvalidTopologyEpochError(KafkaError, code=131):
    """The topology epoch of a streams group is not valid."""


class StreamsTopologyFencedError(KafkaError, code=132):
    """A newer topology has replaced this one: update the member."""


class ShareSessionLimitReachedError(RetriableError, code=133):
    """The broker has its maximum of share sessions: wait until one is closed."""


# Administration


class TopicExistsError(KafkaError, code=36):
    """A topic with this name exists already."""


class InvalidPartitionsError(KafkaError, code=37):
    """The number of partitions is invalid: use 1 or more, and not fewer than the topic has."""


class InvalidReplicationFactorError(InvalidConfigurationError, code=38):
    """The replication factor must be from 1 to the number of brokers: change it."""


class InvalidReplicaAssignmentError(KafkaError, code=39):
    """Replicas are assigned to missing brokers, twice, or unevenly: correct the assignment."""


class LogDirNotFoundError(KafkaError, code=57):
    """The broker does not have the log directory: check its log.dirs."""


class ReassignmentInProgressError(KafkaError, code=60):
    """The partition is being reassigned: wait for the end, or cancel it."""


class TopicDeletionDisabledError(KafkaError, code=73):
    """The brokers' delete.topic.enable forbids the deletion."""


class PreferredLeaderNotAvailableError(InvalidMetadataError, code=80):
    """The preferred leader is not available: wait for its broker."""


class EligibleLeadersNotAvailableError(InvalidMetadataError, code=83):
    """No replica that may lead is available: wait for one."""


class ElectionNotNeededError(InvalidMetadataError, code=84):
    """The requested replica leads the partition already."""


class NoReassignmentInProgressError(KafkaError, code=85):
    """The partition is not being reassigned."""


class ResourceNotFoundError(KafkaError, code=91):
    """The resource does not exist: check the name."""


class DuplicateResourceError(KafkaError, code=92):
    """A request names the same resource twice."""


class InvalidUpdateVersionError(KafkaError, code=95):
    """The version to update from is out of date: read the current one and try again."""


class FeatureUpdateFailedError(KafkaError, code=96):
    """The finalized features could not be updated: the controller's log says why."""


class MismatchedEndpointTypeError(KafkaError, code=114):
    """A request for a controller went to a broker, or the reverse: use the other address."""


class UnsupportedEndpointTypeError(KafkaError, code=115):
    """The node does not accept this request at any endpoint."""


# Brokers and controllers among themselves


class ControllerMovedError(KafkaError, code=11):
    """Another node has become the controller."""


class TransactionCoordinatorFencedError(KafkaError, code=52):
    """A marker came from a broker that no longer coordinates the transaction."""


class StaleBrokerEpochError(KafkaError, code=77):
    """The broker has registered again since."""


class InconsistentVoterSetError(KafkaError, code=94):
    """A controller is not among the voters that another one knows."""


class SnapshotNotFoundError(KafkaError, code=98):
    """The snapshot of the metadata log does not exist."""


class PositionOutOfRangeError(KafkaError, code=99):
    """A position lies outside a snapshot of the metadata log."""


class DuplicateBrokerRegistrationError(KafkaError, code=101):
    """Another broker has this node.id: give each its own."""


class BrokerIdNotRegisteredError(KafkaError, code=102):
    """No broker with this id is registered."""


class InconsistentClusterIdError(KafkaError, code=104):
    """A node belongs to another cluster: check its address and its meta.properties."""


class IneligibleReplicaError(KafkaError, code=107):
    """A replica may not join the in-sync replicas, for example because its broker is shutting down."""


class NewLeaderElectedError(KafkaError, code=108):
    """The in-sync replicas changed, and the leader with them."""


class UnknownControllerIdError(KafkaError, code=116):
    """No controller has this id."""


class InvalidRegistrationError(KafkaError, code=119):
    """The controller refused the broker's registration: its log says why."""


class InvalidVoterKeyError(KafkaError, code=125):
    """A voter's id and directory id do not match the replica's."""


class DuplicateVoterError(KafkaError, code=126):
    """The voter is already in the set of voters."""


class VoterNotFoundError(KafkaError, code=127):
    """The voter is not in the set of voters."""
