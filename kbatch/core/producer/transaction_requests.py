"""The requests of a transaction. `outcomes` has the effect of every answer.

After the handlers in org.apache.kafka.clients.producer.internals.TransactionManager; KIP-98, KIP-360 (epoch
bumps), KIP-447 (offsets), KIP-890 (transaction version 2).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from kbatch._native.send.in_flight import NO_IDENTITY, Identity
from kbatch.core.client.any_node_request import AnyNodeRequest
from kbatch.core.client.coordinators import GROUP, TRANSACTION, CoordinatorKey
from kbatch.core.producer.outcomes import Kind
from kbatch.core.producer.producer_ids import init_producer_id
from kbatch.errors import UnsupportedVersionError
from kbatch.protocol import features, messages
from kbatch.records import TopicPartition

if TYPE_CHECKING:
    from kbatch.core.client.calls import Call
    from kbatch.errors import KafkaError
    from kbatch.protocol.structs import Message
    from kbatch.records import ConsumerGroupMetadata, OffsetAndMetadata


class Operation:
    """A request, from its cause to its last answer.

    Attributes
    ----------
    call : Call | None
        The call that waits for it.
    pending : AnyNodeRequest
        How often it failed, and when to try it again.
    is_ambiguous : bool
        True if the coordinator may have applied it: an attempt got no answer, or was refused by a coordinator
        that may have been replaced meanwhile.
    refusal : KafkaError | None
        The last answer after which it is repeated.
    """

    kind: ClassVar[Kind]
    # InitProducerId < requests within a transaction < EndTxn
    priority: ClassVar[int] = 2
    request: ClassVar[type[Message]]

    def __init__(self, call: Call | None = None) -> None:
        self.call = call
        self.pending = AnyNodeRequest()
        self.is_ambiguous = False
        self.refusal: KafkaError | None = None

    def coordinator(self, transactional_id: str) -> CoordinatorKey:
        """Return the key of the coordinator that gets the request."""
        return CoordinatorKey(TRANSACTION, transactional_id)

    def highest_version(self, transaction_version: int) -> int:
        """Return the highest version of the request in a transaction of that version."""
        return features.ANY_VERSION

    def message(self, transactional_id: str, identity: Identity, version: int) -> Message:
        """Return the request. Raise UnsupportedVersionError if the version cannot express it."""
        raise NotImplementedError

    def codes(self, answer: Any) -> Iterable[tuple[str, int]]:
        """Return the codes of the answer, each with its subject."""
        return [("", answer.error_code)]


class InitProducerId(Operation):
    """The request for a producer id and epoch; with `bumps`, for the next epoch (KIP-360).

    `ended` is the operation that ended a transaction, if its call waits for the next epoch. Without it,
    init_transactions() waits, or a begin_transaction() that found a higher transaction version.
    """

    kind = Kind.INIT_PRODUCER_ID
    priority = 1
    request = messages.InitProducerIdRequest

    def __init__(
        self, call: Call | None, timeout_ms: int, *, bumps: bool, ended: Operation | None = None
    ) -> None:
        super().__init__(call)
        self.ended = ended
        self.timeout_ms = timeout_ms
        self.bumps = bumps

    def message(self, transactional_id: str, identity: Identity, version: int) -> Message:
        return init_producer_id(transactional_id, self.timeout_ms, identity if self.bumps else NO_IDENTITY)


class AddPartitions(Operation):
    kind = Kind.ADD_PARTITIONS
    request = messages.AddPartitionsToTxnRequest

    def __init__(self, partitions: list[TopicPartition]) -> None:
        super().__init__()
        self.partitions = partitions

    def highest_version(self, transaction_version: int) -> int:
        return features.ADD_PARTITIONS_TO_TXN_BATCHES - 1  # later ones are for brokers

    def message(self, transactional_id: str, identity: Identity, version: int) -> Message:
        partitions: dict[str, list[int]] = {}
        for topic, partition in self.partitions:
            partitions.setdefault(topic, []).append(partition)
        topic_of = messages.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        return messages.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.epoch,
            v3_and_below_topics=[topic_of(name=name, partitions=each) for name, each in partitions.items()],
        )

    def codes(self, answer: Any) -> Iterable[tuple[str, int]]:
        return [
            (f"{topic.name}-{each.partition_index}", each.partition_error_code)
            for topic in answer.results_by_topic_v3_and_below
            for each in topic.results_by_partition
        ]


class CommitOffsets(Operation):
    """The offsets of a consumer, as part of the transaction."""

    kind = Kind.COMMIT_OFFSETS
    request = messages.TxnOffsetCommitRequest

    def __init__(
        self,
        call: Call | None,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: ConsumerGroupMetadata,
    ) -> None:
        super().__init__(call)
        self.offsets = dict(offsets)
        self.group = group

    def coordinator(self, transactional_id: str) -> CoordinatorKey:
        return CoordinatorKey(GROUP, self.group.group_id)

    def highest_version(self, transaction_version: int) -> int:
        if transaction_version >= 2:
            return features.ANY_VERSION
        return features.TXN_OFFSET_COMMIT_ADDS_PARTITIONS - 1

    def message(self, transactional_id: str, identity: Identity, version: int) -> Message:
        group = self.group
        is_member = group.generation_id >= 0 or group.member_id or group.group_instance_id is not None
        if is_member and version < features.TXN_OFFSET_COMMIT_MEMBERS:
            raise UnsupportedVersionError(
                f"the broker is too old to commit offsets for a member of a group (TxnOffsetCommit version "
                f"{version}, KIP-447): give the group's id alone, or upgrade the broker"
            )
        kind = messages.TxnOffsetCommitRequest
        topics: dict[str, list[Any]] = {}
        for (topic, partition), each in self.offsets.items():
            topics.setdefault(topic, []).append(
                kind.TxnOffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=each.offset,
                    committed_leader_epoch=each.leader_epoch,
                    committed_metadata=each.metadata,
                )
            )
        return kind(
            transactional_id=transactional_id,
            group_id=group.group_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            generation_id=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=[
                kind.TxnOffsetCommitRequestTopic(name=name, partitions=each) for name, each in topics.items()
            ],
        )

    def codes(self, answer: Any) -> Iterable[tuple[str, int]]:
        found = [
            (TopicPartition(topic.name, each.partition_index), each.error_code)
            for topic in answer.topics
            for each in topic.partitions
        ]
        for partition, code in found:
            if not code:
                self.offsets.pop(partition, None)
        return [(str(partition), code) for partition, code in found]


class AddOffsets(Operation):
    """The request that adds the group's offsets to the transaction, before `commits` (TV1)."""

    kind = Kind.ADD_OFFSETS
    request = messages.AddOffsetsToTxnRequest

    def __init__(self, commits: CommitOffsets) -> None:
        super().__init__(commits.call)
        self.commits = commits

    def message(self, transactional_id: str, identity: Identity, version: int) -> Message:
        return messages.AddOffsetsToTxnRequest(
            transactional_id=transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            group_id=self.commits.group.group_id,
        )

    def codes(self, answer: Any) -> Iterable[tuple[str, int]]:
        return [(f"group {self.commits.group.group_id}", answer.error_code)]


class EndTransaction(Operation):
    priority = 3
    request = messages.EndTxnRequest
    commits: ClassVar[bool]

    def highest_version(self, transaction_version: int) -> int:
        return features.ANY_VERSION if transaction_version >= 2 else features.END_TXN_BUMPS_EPOCH - 1

    def message(self, transactional_id: str, identity: Identity, version: int) -> Message:
        return messages.EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            committed=self.commits,
        )


class Commit(EndTransaction):
    kind = Kind.COMMIT
    commits = True


class Abort(EndTransaction):
    kind = Kind.ABORT
    commits = False
