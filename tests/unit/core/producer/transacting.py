"""A whole engine in transactions, with scripted brokers and coordinators.

`Transacting` is a `Sending` with a transactional.id. Node 2 coordinates its transactions, node 1 the groups;
what they answer is in `replies`, by API and in turn, and NONE where that is empty. Calls of the user's are
made by the methods of their names, and come back as Call, done or not.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Any, NamedTuple, Self

from kbatch._native.send.in_flight import Identity
from kbatch.core.client.calls import Call
from kbatch.core.client.coordinators import GROUP
from kbatch.core.producer.transaction_states import TransactionState
from kbatch.core.producer.transactions import Transactions
from kbatch.protocol import messages
from kbatch.records import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from tests.support.core_shell import versions_answer
from tests.support.links import Asked
from tests.support.sending import OK, PRODUCER_ID, TOPIC, Sending

ID = "tx"
COORDINATOR, GROUP_COORDINATOR = 2, 1
# The APIs that each begins with.
STARTED = ["FindCoordinator", "InitProducerId"]
OFFSETS = {
    TopicPartition("source", 0): OffsetAndMetadata(5, "five", 1),
    TopicPartition("source", 1): OffsetAndMetadata(6),
}
GROUP_OF_OFFSETS = ConsumerGroupMetadata("g")


class Said(NamedTuple):
    """A transactional request as a node got it."""

    api: str
    version: int
    node_id: int
    message: Any


class Transacting(Sending):
    """`version` is the cluster's transaction.version; None if it reports no features."""

    def __init__(self, version: int | None = 2, partitions: int = 1, **settings: Any) -> None:
        self.version = version
        self.features_epoch = 1
        self.coordinators = {0: GROUP_COORDINATOR, 1: COORDINATOR}
        self.replies: dict[str, deque[Any]] = {}
        self.said: list[Said] = []
        self.identity = Identity(PRODUCER_ID, -1)
        super().__init__(partitions, **{"transactional_id": ID, **settings})

    # Calls of the user

    @property
    def transactions(self) -> Transactions:
        assert self.engine.transactions is not None
        return self.engine.transactions

    @property
    def at(self) -> Any:
        return self.transactions.state

    def init(self) -> Call:
        return self._call("init_transactions", self.transactions.initialize)

    def begin(self) -> Call:
        return self._call("begin_transaction", self.transactions.begin)

    def commit(self) -> Call:
        return self._call("commit_transaction", self.transactions.commit)

    def abort(self) -> Call:
        return self._call("abort_transaction", self.transactions.abort)

    def offsets(self, group: ConsumerGroupMetadata = GROUP_OF_OFFSETS, offsets: Any = None) -> Call:
        command = partial(self.transactions.send_offsets, OFFSETS if offsets is None else offsets, group)
        return self._call("send_offsets_to_transaction", command)

    def _call(self, name: str, command: Any) -> Call:
        call = Call(name)
        self.engine.call(call, command)
        self.run()
        return call

    def ready(self) -> Self:
        """Call init_transactions(), successfully."""
        ok(self.init())
        return self

    def begun(self, *names: str, partition: int = 0) -> Self:
        """Begin a transaction in which these were sent, but not answered yet."""
        if self.at is TransactionState.UNINITIALIZED:
            self.ready()
        ok(self.begin())
        self.send(*names, partition=partition)
        return self

    def delivered(self, *names: str, partition: int = 0) -> Self:
        self.begun(*names, partition=partition)
        for name in names:
            self.answer(**{name: OK})
        return self

    # Coordinators

    def script(self, api: str, *answers: Any) -> Self:
        """Answer by a code, "drop" for a closed connection, "wait" for no answer, or a response."""
        self.replies.setdefault(api, deque()).extend(answers)
        return self

    def apis(self, since: int = 0) -> list[str]:
        return [said.api for said in self.said[since:]]

    def last(self, api: str) -> Said:
        return [said for said in self.said if said.api == api][-1]

    def answer_held(self, code: int = OK) -> None:
        """Answer the waiting transactional request."""
        (asked,) = [a for link in self.links.values() for a in link.unanswered if a.is_held]
        self._give(asked, self._answer_of(asked, code))
        self.run()

    def _answer_at_once(self, asked: Asked) -> None:
        message = asked.request.message
        api = type(message).__name__.removesuffix("Request")
        if api == "ApiVersions":
            self._give(asked, self._versions_answer())
            return
        if api == "Metadata":
            super()._answer_at_once(asked)
            return
        self.said.append(Said(api, asked.request.version, asked.link.node_id, message))
        replies = self.replies.get(api)
        reply = replies.popleft() if replies else OK
        asked.is_held = reply == "wait"
        if reply == "drop":
            self._end(asked.link)
            error = ConnectionResetError("dropped")
            self.engine.handle_closed(asked.link.connection_id, error, self.now_ns)
        elif not asked.is_held:
            self._give(asked, self._answer_of(asked, reply) if isinstance(reply, int) else reply)

    def _versions_answer(self) -> Any:
        answer = versions_answer(self._versions)
        if self.version is not None:
            kind = messages.ApiVersionsResponse.FinalizedFeatureKey
            feature = kind(name="transaction.version", max_version_level=self.version, min_version_level=0)
            answer.finalized_features = [feature]
            answer.finalized_features_epoch = self.features_epoch
        return answer

    def _answer_of(self, asked: Asked, code: int) -> Any:
        request = asked.request
        return _ANSWERS[type(request.message)](self, request.message, code, request.version)

    def _found(self, request: Any, code: int, version: int) -> Any:
        kind = messages.FindCoordinatorResponse
        node_id = self.coordinators[request.key_type] if code == OK else -1
        if version < 4:
            return kind(error_code=code, node_id=node_id, host="", port=0)
        (key,) = request.coordinator_keys
        assert key == ("g" if request.key_type == GROUP else ID)
        found = kind.Coordinator(key=key, node_id=node_id, host=f"n{node_id}", port=9092, error_code=code)
        return kind(coordinators=[found])

    def _initialized(self, request: Any, code: int, version: int) -> Any:
        kind = messages.InitProducerIdResponse
        if code != OK:
            return kind(error_code=code, producer_id=-1, producer_epoch=-1)
        self._bump()
        return kind(producer_id=self.identity.producer_id, producer_epoch=self.identity.epoch)

    def _bump(self) -> None:
        self.identity = Identity(self.identity.producer_id, self.identity.epoch + 1)

    def _partitions_added(self, request: Any, code: int, version: int) -> Any:
        kind = messages.AddPartitionsToTxnResponse
        return kind(
            results_by_topic_v3_and_below=[
                kind.AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        kind.AddPartitionsToTxnPartitionResult(
                            partition_index=index, partition_error_code=code
                        )
                        for index in topic.partitions
                    ],
                )
                for topic in request.v3_and_below_topics
            ]
        )

    def _offsets_added(self, request: Any, code: int, version: int) -> Any:
        return messages.AddOffsetsToTxnResponse(error_code=code)

    def _offsets_committed(self, request: Any, code: int, version: int) -> Any:
        kind = messages.TxnOffsetCommitResponse
        return kind(
            topics=[
                kind.TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        kind.TxnOffsetCommitResponsePartition(
                            partition_index=each.partition_index, error_code=code
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _ended(self, request: Any, code: int, version: int) -> Any:
        answer = messages.EndTxnResponse(error_code=code)
        if version >= 5 and code == OK:
            self._bump()
            answer.producer_id, answer.producer_epoch = self.identity
        return answer


_ANSWERS: dict[type, Any] = {
    messages.FindCoordinatorRequest: Transacting._found,
    messages.InitProducerIdRequest: Transacting._initialized,
    messages.AddPartitionsToTxnRequest: Transacting._partitions_added,
    messages.AddOffsetsToTxnRequest: Transacting._offsets_added,
    messages.TxnOffsetCommitRequest: Transacting._offsets_committed,
    messages.EndTxnRequest: Transacting._ended,
}


def ok(call: Call) -> None:
    """Check that the call succeeded."""
    assert call.is_done
    if call.error is not None:
        raise call.error


def failed(call: Call) -> Any:
    """Return the error of a failed call."""
    assert call.is_done
    assert call.error is not None
    return call.error


def added(tx: Transacting) -> list[tuple[str, list[int]]]:
    """Return the partitions of the last AddPartitionsToTxn."""
    return [(t.name, t.partitions) for t in tx.last("AddPartitionsToTxn").message.v3_and_below_topics]


__all__ = ["TOPIC", "Said", "Transacting", "added", "failed", "ok"]
