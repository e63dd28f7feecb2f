"""Errors that brokers answer to producers: records, leaders, requests, transactions, security."""

from kbatch.errors.base import (
    ApplicationRecoverableError,
    AuthenticationError,
    AuthorizationError,
    InvalidConfigurationError,
    InvalidMetadataError,
    KafkaError,
    RefreshRetriableError,
    RetriableError,
)

# Records


class CorruptRecordError(RetriableError, ValueError, code=2):
    """The bytes are not the record batch they claim to be; if a broker says so, a record was damaged in
    transit, and is sent again.

    Readers raise it too: for a bad CRC, an impossible length or count, a truncated or over-long varint, a
    header key that is not UTF-8, or an unknown codec. They also raise it for a compressed stream that is
    broken, ends early or grows beyond the limit.
    """


class RecordTooLargeError(KafkaError, code=10):
    """A record is larger than the topic accepts: make it smaller, or raise the topic's max.message.bytes, and
    max.request.size with it.
    """


class InvalidTopicError(InvalidConfigurationError, code=17):
    """The topic name is invalid, or only brokers may write to the topic: use another."""


class RecordBatchTooLargeError(InvalidConfigurationError, code=18):
    """A batch is larger than a segment of the topic: lower batch.size, or raise the topic's segment.bytes."""


class InvalidRequiredAcksError(InvalidConfigurationError, code=21):
    """The broker does not accept these acks: set all, 1 or 0."""


class InvalidTimestampError(KafkaError, code=32):
    """A record's timestamp is too far from the broker's clock: pass milliseconds since 1970 as timestamp_ms,
    or set the topic's message.timestamp.before.max.ms and after.max.ms.
    """


class UnsupportedForMessageFormatError(InvalidConfigurationError, code=43):
    """The topic's message format is too old: raise it, or use neither idempotence nor headers."""


class PolicyViolationError(KafkaError, code=44):
    """A policy of the cluster forbids the request: ask its operators which."""


class UnsupportedCompressionTypeError(KafkaError, code=76):
    """The broker does not know the codec: set another compression.type."""


class InvalidRecordError(InvalidConfigurationError, code=87):
    """The broker found a fault in a record, such as a missing key in a compacted topic: correct the record as
    its text says.
    """


# Leaders and replicas
#
# With acks=all a broker checks its partitions again while it waits for the replicas (DelayedProduce). So it
# may answer after the append that the partition, the leader or the disk is gone.


class UnknownTopicOrPartitionError(InvalidMetadataError, code=3, possibly_persisted=True):
    """The broker has no such topic or partition: create it, or check the name. For a topic just created,
    wait.
    """


class LeaderNotAvailableError(InvalidMetadataError, code=5):
    """The partition has no leader at the moment: wait for an election."""


class NotLeaderOrFollowerError(InvalidMetadataError, code=6, possibly_persisted=True):
    """The broker no longer leads the partition; the client looks for the new leader."""


class KafkaTimeoutError(RetriableError, TimeoutError, code=7, possibly_persisted=True):
    """The time-out has passed: check the network and the load of the brokers, or raise it.

    Attributes
    ----------
    reason : str or None
        Why a topic had no metadata in time; None for other calls.
    """

    reason: str | None = None


class BrokerNotAvailableError(KafkaError, code=8):
    """The broker is not available: check that it runs."""


class ReplicaNotAvailableError(InvalidMetadataError, code=9):
    """A replica is not available: wait for its broker."""


class NetworkError(InvalidMetadataError, code=13, possibly_persisted=True):
    """The connection ended before the answer came: if it happens again, check the network and the broker's
    log.
    """


class NotEnoughReplicasError(RetriableError, code=19):
    """Fewer replicas are in sync than min.insync.replicas requires, and nothing was written: check which
    brokers are down.
    """


class NotEnoughReplicasAfterAppendError(RetriableError, code=20, possibly_persisted=True):
    """The batch was written, but then fewer replicas were in sync than min.insync.replicas requires: check
    which brokers are down.
    """


class KafkaStorageError(InvalidMetadataError, code=56, possibly_persisted=True):
    """A disk of the broker failed, and another broker has to lead the partition: check the disk."""


class ListenerNotFoundError(InvalidMetadataError, code=72):
    """The leader has no listener with the name that the client uses: correct the brokers' listeners."""


class FencedLeaderEpochError(InvalidMetadataError, code=74):
    """The client knows an older leader than the broker, and refreshes its metadata."""


class UnknownLeaderEpochError(RetriableError, code=75):
    """The client knows a newer leader than the broker, and waits for the broker to learn of it."""


class UnknownTopicIdError(InvalidMetadataError, code=100):
    """The broker has no topic with this id. A topic that was deleted and created again has a new one, which
    the client looks up.
    """


class InconsistentTopicIdError(InvalidMetadataError, code=103):
    """The topic was deleted and created again; the client refreshes its metadata."""


class RebootstrapRequiredError(KafkaError, code=129):
    """The client's metadata is too old: the client starts over from bootstrap.servers."""


# Requests


class UnknownServerError(KafkaError, code=-1, possibly_persisted=True):
    """The broker failed for an unknown reason, or with a code newer than this client: check its log."""


class NotControllerError(RetriableError, code=41):
    """The broker is no longer the controller; the client looks for the new one."""


class InvalidRequestError(KafkaError, code=42):
    """The broker found the request invalid: check its log for the reason, and please report it if only kbatch
    was involved.
    """


class UnsupportedVersionError(InvalidConfigurationError, code=35):
    """The broker and this client have no suitable version of the request in common: upgrade the older of the
    two.

    Attributes
    ----------
    api_key, version : int
        Those of the message; -1 if it is no request or response, or more than one version is meant.
    correlation_id : int
        That of the request, for the answer that Kafka prescribes; -1 if there is none.
    """

    fatal = True

    def __init__(
        self, text: str | None = None, *, api_key: int = -1, version: int = -1, correlation_id: int = -1
    ) -> None:
        super().__init__(*(() if text is None else (text,)))
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id


class ThrottlingQuotaExceededError(RetriableError, code=89):
    """A quota is used up for now: slow down, or have the quota raised."""


class UnknownSubscriptionIdError(KafkaError, code=117):
    """The broker does not know the subscription of pushed metrics; the client requests a new one."""


class TelemetryTooLargeError(KafkaError, code=118):
    """The pushed metrics are larger than the broker accepts: raise its telemetry.max.bytes."""


# Idempotence and transactions


class CoordinatorLoadInProgressError(RetriableError, code=14):
    """The coordinator is still loading its state: wait."""


class CoordinatorNotAvailableError(RefreshRetriableError, code=15):
    """There is no coordinator at the moment: wait for an election, and check which brokers are down."""


class NotCoordinatorError(RefreshRetriableError, code=16):
    """The broker is no longer the coordinator; the client looks for the new one."""


class OutOfOrderSequenceError(KafkaError, code=45):
    """Batches before this one are missing from the partition's log: check which deliveries failed. Some were
    lost, or the broker forgot this producer.
    """


class DuplicateSequenceError(KafkaError, code=46, possibly_persisted=True):
    """The batch is already in the log; the producer counts it as delivered."""


class InvalidProducerEpochError(ApplicationRecoverableError, code=47):
    """A newer producer has taken over, or this one's transaction timed out: abort the transaction, or create
    a new producer.
    """


class InvalidTxnStateError(KafkaError, code=48):
    """The state of the transaction does not allow the request, often because it timed out and the coordinator
    has aborted it: raise transaction.timeout.ms if it was too slow.
    """

    abortable = True


class InvalidPidMappingError(ApplicationRecoverableError, code=49):
    """The coordinator forgot the transactional.id, or gave it to another producer: create a new producer."""

    fatal = True


class InvalidTxnTimeoutError(KafkaError, code=50):
    """The transaction.timeout.ms is above what the brokers allow: lower it, or raise their
    transaction.max.timeout.ms.
    """


class ConcurrentTransactionsError(RetriableError, code=51):
    """The previous transaction is not finished yet: wait."""


class OperationNotAttemptedError(KafkaError, code=55):
    """The broker did not try, because another part of the request failed: check that part's error."""


class UnknownProducerIdError(OutOfOrderSequenceError, code=59):
    """The partition no longer knows this producer, because its records were deleted; the producer starts a
    new epoch.
    """


class UnstableOffsetCommitError(RetriableError, code=88):
    """Offsets of an unfinished transaction block the request: wait."""


class ProducerFencedError(ApplicationRecoverableError, code=90):
    """A newer producer has taken over this one's id, as one with the same transactional.id does: close this
    one, and give each a transactional.id of its own.
    """

    fatal = True


class TransactionalIdNotFoundError(KafkaError, code=105):
    """The coordinator does not know the transactional.id: check the name."""


class TransactionAbortableError(KafkaError, code=120):
    """The transaction cannot be committed: abort it, and go on with the next."""

    abortable = True


# Security


class TopicAuthorizationError(AuthorizationError, code=29):
    """The client may not write to the topic: have an ACL added (Write and Describe), or use another
    principal.
    """


class GroupAuthorizationError(AuthorizationError, code=30):
    """The client may not use the group: have an ACL added (Read to be a member and to commit, Describe to
    look at it, Delete to delete it or its offsets), or use another principal.
    """


class ClusterAuthorizationError(AuthorizationError, code=31):
    """The client may not do this in the cluster: have an ACL added (Write on a topic or IdempotentWrite on
    the cluster, for a producer), or use another principal.
    """

    fatal = True


class UnsupportedSaslMechanismError(AuthenticationError, code=33):
    """The broker does not offer this sasl.mechanism: set one that it has enabled."""


class IllegalSaslStateError(AuthenticationError, code=34):
    """The broker did not expect the request during authentication: check that security.protocol fits the
    listener.
    """


class TransactionalIdAuthorizationError(AuthorizationError, code=53):
    """The client may not use the transactional.id: have an ACL added (Write), or use another principal."""

    fatal = True


class SecurityDisabledError(KafkaError, code=54):
    """The cluster has no authorizer, and so no ACLs: configure one."""


class SaslAuthenticationError(AuthenticationError, code=58):
    """The broker did not authenticate the client: check user name, password or token."""


class DelegationTokenDisabledError(KafkaError, code=61):
    """The cluster has no delegation tokens: its brokers need a delegation.token.secret.key."""


class DelegationTokenNotFoundError(KafkaError, code=62):
    """The broker does not know the delegation token: get a new one."""


class DelegationTokenOwnerMismatchError(KafkaError, code=63):
    """Only the owner or a renewer of a delegation token may do this: use their principal."""


class UnsupportedByAuthenticationError(KafkaError, code=64):
    """Brokers issue tokens only over connections authenticated without a token: use another login."""


class DelegationTokenAuthorizationError(AuthorizationError, code=65):
    """The client is not authorized for the delegation token: have an ACL added, or use another principal."""


class DelegationTokenExpiredError(KafkaError, code=66):
    """The delegation token has expired: get a new one."""


class InvalidPrincipalTypeError(KafkaError, code=67):
    """The broker knows no principals of this type: use User."""


class UnacceptableCredentialError(KafkaError, code=93):
    """The broker does not accept the credential: its text says why."""


class PrincipalDeserializationError(KafkaError, code=97):
    """A broker could not read the principal that another forwarded: check the brokers'
    principal.builder.class.
    """
