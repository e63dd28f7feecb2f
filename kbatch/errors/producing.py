"""What brokers answer a producer: records, leaders, requests, transactions, security."""

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
    """Bytes that are not the record batch they claim to be; where it comes from a broker, a record on its way
    was damaged, and is sent again.

    Also what reading raises: bad CRC, impossible length or count, truncated or over-long varint, a header key
    that is not UTF-8, an unknown codec, a compressed stream that is broken, ends early or grows beyond the
    limit.
    """


class RecordTooLargeError(KafkaError, code=10):
    """A record is larger than the topic takes: make it smaller, or raise the topic's max.message.bytes, and
    max.request.size with it.
    """


class InvalidTopicError(InvalidConfigurationError, code=17):
    """A topic cannot have this name, or is one that only brokers write to: name another."""


class RecordBatchTooLargeError(InvalidConfigurationError, code=18):
    """A batch is larger than a segment of the topic: lower batch.size, or raise the topic's segment.bytes."""


class InvalidRequiredAcksError(InvalidConfigurationError, code=21):
    """The broker takes no such acks: set all, 1 or 0."""


class InvalidTimestampError(KafkaError, code=32):
    """A record's timestamp is too far from the broker's clock: give the milliseconds since 1970 as
    timestamp_ms, or set the topic's message.timestamp.before.max.ms and after.max.ms.
    """


class UnsupportedForMessageFormatError(InvalidConfigurationError, code=43):
    """The topic's message format is too old for this: raise it, or do without idempotence and headers."""


class PolicyViolationError(KafkaError, code=44):
    """A policy of the cluster forbids it: ask those who run the cluster which."""


class UnsupportedCompressionTypeError(KafkaError, code=76):
    """The broker does not know the codec: set another compression.type."""


class InvalidRecordError(InvalidConfigurationError, code=87):
    """The broker found something wrong with a record, such as no key in a compacted topic: its text says
    what, so correct the record.
    """


# Leaders and replicas
#
# With acks=all a broker looks at its partitions again while it waits for the replicas (DelayedProduce): that
# the partition, the leader or the disk is gone may be its answer after the append.


class UnknownTopicOrPartitionError(InvalidMetadataError, code=3, possibly_persisted=True):
    """The broker has no such topic or partition: create it, or check the name; of a topic just created it
    passes.
    """


class LeaderNotAvailableError(InvalidMetadataError, code=5):
    """The partition has no leader at the moment; it passes when one is elected."""


class NotLeaderOrFollowerError(InvalidMetadataError, code=6, possibly_persisted=True):
    """The broker does not lead the partition any more; it passes when the client has found the new leader."""


class KafkaTimeoutError(RetriableError, TimeoutError, code=7, possibly_persisted=True):
    """Something did not happen in its time: look at the network and the load of the brokers, or give it more
    time.
    """


class BrokerNotAvailableError(KafkaError, code=8):
    """The broker is not available: see whether it runs."""


class ReplicaNotAvailableError(InvalidMetadataError, code=9):
    """A replica is not available; it passes when its broker is back."""


class NetworkError(InvalidMetadataError, code=13, possibly_persisted=True):
    """The connection ended before the answer came: look at the network and at the broker's log if it happens
    again.
    """


class NotEnoughReplicasError(RetriableError, code=19):
    """Fewer replicas are in sync than min.insync.replicas asks for, and nothing was written: see which
    brokers are down.
    """


class NotEnoughReplicasAfterAppendError(RetriableError, code=20, possibly_persisted=True):
    """The batch was written, but then fewer replicas were in sync than min.insync.replicas asks for: see
    which brokers are down.
    """


class KafkaStorageError(InvalidMetadataError, code=56, possibly_persisted=True):
    """A disk of the broker fails; it passes when another broker leads the partition, so look at the disk."""


class ListenerNotFoundError(InvalidMetadataError, code=72):
    """The leader has no listener of the name that the client connected to: correct the brokers' listeners."""


class FencedLeaderEpochError(InvalidMetadataError, code=74):
    """The client knows an older leader than the broker; it passes with new metadata."""


class UnknownLeaderEpochError(RetriableError, code=75):
    """The client knows a newer leader than the broker; it passes when the broker has heard of it."""


class UnknownTopicIdError(InvalidMetadataError, code=100):
    """The broker has no topic of this id; a topic that was deleted and made again has a new one, which the
    client asks for.
    """


class InconsistentTopicIdError(InvalidMetadataError, code=103):
    """The topic was deleted and made again; it passes with new metadata."""


class RebootstrapRequiredError(KafkaError, code=129):
    """What the client knows of the cluster is too old: it starts over from bootstrap.servers."""


# Requests


class UnknownServerError(KafkaError, code=-1, possibly_persisted=True):
    """The broker failed for a reason it does not tell, or with a code that is newer than this client: its log
    says more.
    """


class NotControllerError(RetriableError, code=41):
    """The broker is not the controller any more; it passes when the client has found the new one."""


class InvalidRequestError(KafkaError, code=42):
    """The broker cannot make sense of the request: its log says why; please report it, if only kbatch was
    involved.
    """


class UnsupportedVersionError(InvalidConfigurationError, code=35):
    """The broker and this client have no version of the request in common, or not one that can do what is
    asked: upgrade the older of the two.

    Attributes
    ----------
    api_key, version : int
        Of the message; -1 where it is no request or response, or not one version is meant.
    correlation_id : int
        Of the request, for the answer that Kafka prescribes; -1 where there is none.
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
    """A quota is used up; it passes, so slow down or have the quota raised."""


class UnknownSubscriptionIdError(KafkaError, code=117):
    """Metrics were pushed for a subscription that the broker does not know; the client asks for a new one."""


class TelemetryTooLargeError(KafkaError, code=118):
    """Metrics were pushed that are larger than the broker takes: raise its telemetry.max.bytes."""


# Idempotence and transactions


class CoordinatorLoadInProgressError(RetriableError, code=14):
    """The coordinator is still reading what it has to know; it passes."""


class CoordinatorNotAvailableError(RefreshRetriableError, code=15):
    """There is no coordinator at the moment; it passes when one is elected, so see which brokers are down."""


class NotCoordinatorError(RefreshRetriableError, code=16):
    """The broker is not the coordinator any more; it passes when the client has found the new one."""


class OutOfOrderSequenceError(KafkaError, code=45):
    """Batches before this one are missing from the partition's log: some were lost, or the broker forgot this
    producer, so see which deliveries failed.
    """


class DuplicateSequenceError(KafkaError, code=46, possibly_persisted=True):
    """The batch is in the log already; a producer counts it as delivered."""


class InvalidProducerEpochError(ApplicationRecoverableError, code=47):
    """A newer producer has taken over, or this one's transaction timed out: abort the transaction, or make a
    new producer.
    """


class InvalidTxnStateError(KafkaError, code=48):
    """The transaction is not in a state for this, often because it timed out: abort it, and raise
    transaction.timeout.ms if it was too slow.
    """

    abortable = True


class InvalidPidMappingError(ApplicationRecoverableError, code=49):
    """The coordinator has forgotten the transactional.id, or given it to another producer: make a new one."""

    fatal = True


class InvalidTxnTimeoutError(KafkaError, code=50):
    """The transaction.timeout.ms is above what the brokers allow: lower it, or raise their
    transaction.max.timeout.ms.
    """


class ConcurrentTransactionsError(RetriableError, code=51):
    """The transaction before is not finished yet; it passes."""


class OperationNotAttemptedError(KafkaError, code=55):
    """The broker did not try, as another part of the request failed: that part's error is the one to look
    at.
    """


class UnknownProducerIdError(OutOfOrderSequenceError, code=59):
    """The partition knows nothing of this producer any more, as its records are deleted; the producer starts
    a new epoch.
    """


class UnstableOffsetCommitError(RetriableError, code=88):
    """Offsets of a transaction that is not finished are in the way; it passes."""


class ProducerFencedError(ApplicationRecoverableError, code=90):
    """A newer producer has the same transactional.id: let this one end, or give each its own id."""

    fatal = True


class TransactionalIdNotFoundError(KafkaError, code=105):
    """The coordinator knows no such transactional.id: check the name."""


class TransactionAbortableError(KafkaError, code=120):
    """The transaction cannot be committed: abort it, and go on with the next."""

    abortable = True


# Security


class TopicAuthorizationError(AuthorizationError, code=29):
    """The client may not write to the topic: have an ACL added (Write, and Describe), or use another
    principal.
    """


class GroupAuthorizationError(AuthorizationError, code=30):
    """The client may not commit offsets of the group: have an ACL added (Read), or use another principal."""


class ClusterAuthorizationError(AuthorizationError, code=31):
    """The client may not do this in the cluster: have an ACL added (Write on a topic or IdempotentWrite on
    the cluster, for a producer), or use another principal.
    """

    fatal = True


class UnsupportedSaslMechanismError(AuthenticationError, code=33):
    """The broker does not offer this sasl.mechanism: set one that it has enabled."""


class IllegalSaslStateError(AuthenticationError, code=34):
    """The broker did not expect this while it authenticates: check that security.protocol is what the
    listener speaks.
    """


class TransactionalIdAuthorizationError(AuthorizationError, code=53):
    """The client may not use the transactional.id: have an ACL added (Write), or use another principal."""

    fatal = True


class SecurityDisabledError(KafkaError, code=54):
    """The cluster has no authorizer: it keeps no ACLs."""


class SaslAuthenticationError(AuthenticationError, code=58):
    """The broker does not believe who the client is: check user name, password or token."""


class DelegationTokenDisabledError(KafkaError, code=61):
    """The cluster has no delegation tokens: its brokers need a delegation.token.secret.key."""


class DelegationTokenNotFoundError(KafkaError, code=62):
    """The broker knows no such delegation token: get a new one."""


class DelegationTokenOwnerMismatchError(KafkaError, code=63):
    """Only its owner or a renewer may do this to a delegation token: use their principal."""


class UnsupportedByAuthenticationError(KafkaError, code=64):
    """Delegation tokens are not given over a connection that is not authenticated, or that is by a token."""


class DelegationTokenAuthorizationError(AuthorizationError, code=65):
    """The client may not do this to a delegation token: have an ACL added, or use another principal."""


class DelegationTokenExpiredError(KafkaError, code=66):
    """The delegation token has expired: get a new one."""


class InvalidPrincipalTypeError(KafkaError, code=67):
    """The broker knows no principals of this type: use User."""


class UnacceptableCredentialError(KafkaError, code=93):
    """The broker does not take such a credential: its text says why."""


class PrincipalDeserializationError(KafkaError, code=97):
    """A broker could not read the principal that another passed on: check principal.builder.class of the
    brokers.
    """
