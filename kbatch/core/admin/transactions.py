"""Requests about transactions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from kbatch.core.admin.results import Fenced, Hanging, Transaction, TransactionListing, time_of
from kbatch.core.client.admin_requests import AdminRequest, Refusal, refused
from kbatch.core.client.routes import LEADER, NODE, TRANSACTION_COORDINATOR
from kbatch.errors import UnsupportedVersionError
from kbatch.protocol import features, messages
from kbatch.records import TopicPartition

if TYPE_CHECKING:
    from kbatch.protocol.structs import Message


class ListTransactions(AdminRequest):
    """Transactions of coordinators, by the ids of brokers; the results are lists of TransactionListing."""

    kind = messages.ListTransactionsRequest
    route = NODE

    def __init__(
        self,
        node_ids: Iterable[int],
        *,
        states: Sequence[str],
        producer_ids: Sequence[int],
        longer_than_ms: int,
        pattern: str | None,
    ) -> None:
        super().__init__("list", dict.fromkeys(node_ids))
        self.states = states
        self.producer_ids = producer_ids
        self.longer_than_ms = longer_than_ms
        self.pattern = pattern

    def message(self, items: Mapping[int, None], version: int, timeout_ms: int) -> Message:
        first = 0
        if self.longer_than_ms >= 0:
            first = features.LIST_TRANSACTIONS_DURATION
        if self.pattern is not None:
            first = features.LIST_TRANSACTIONS_PATTERN
        if version < first:
            raise UnsupportedVersionError(
                f"the broker cannot filter transactions so (ListTransactions version {version}, {first} is "
                "needed); list all, or upgrade it"
            )
        return messages.ListTransactionsRequest(
            state_filters=list(self.states),
            producer_id_filters=list(self.producer_ids),
            duration_filter=self.longer_than_ms,
            transactional_id_pattern=self.pattern,
        )

    def read(self, answer: Any, items: Mapping[int, None]) -> Iterable[tuple[int, Any]]:
        if answer.error_code:
            return refused(items, answer)
        return [
            (
                node_id,
                [
                    TransactionListing(
                        each.transactional_id, each.producer_id, each.transaction_state, node_id
                    )
                    for each in answer.transaction_states
                ],
            )
            for node_id in items
        ]

    def subject(self, key: Any) -> str:
        return f"list of the transactions of broker {key}"


class DescribeTransactions(AdminRequest):
    """The states of transactional.ids; the results are Transaction."""

    kind = messages.DescribeTransactionsRequest
    route = TRANSACTION_COORDINATOR
    noun = "transactional.id"

    def __init__(self, ids: Iterable[str]) -> None:
        super().__init__("describe", dict.fromkeys(ids))

    def message(self, items: Mapping[str, None], version: int, timeout_ms: int) -> Message:
        return messages.DescribeTransactionsRequest(transactional_ids=list(items))

    def read(self, answer: Any, items: Mapping[str, None]) -> Iterable[tuple[str, Any]]:
        for found in answer.transaction_states:
            if found.error_code:
                yield found.transactional_id, Refusal(found.error_code)
                continue
            partitions = sorted(
                TopicPartition(topic.topic, each) for topic in found.topics for each in topic.partitions
            )
            yield (
                found.transactional_id,
                Transaction(
                    found.transactional_id,
                    found.transaction_state,
                    found.producer_id,
                    found.producer_epoch,
                    timedelta(milliseconds=found.transaction_timeout_ms),
                    time_of(found.transaction_start_time_ms),
                    tuple(partitions),
                ),
            )


class AbortMarker(AdminRequest):
    """A transaction in a partition that is to be aborted: by partition a Hanging. The results are None."""

    kind = messages.WriteTxnMarkersRequest
    route = LEADER
    max_items = 1
    noun = "partition"

    def __init__(self, hanging: Hanging) -> None:
        super().__init__("abort", {hanging.partition: hanging})

    def message(self, items: Mapping[TopicPartition, Hanging], version: int, timeout_ms: int) -> Message:
        kind = messages.WriteTxnMarkersRequest
        ((partition, hanging),) = items.items()
        topic = kind.WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])
        marker = kind.WritableTxnMarker(
            producer_id=hanging.producer_id,
            producer_epoch=hanging.epoch,
            transaction_result=False,
            topics=[topic],
            coordinator_epoch=max(hanging.coordinator_epoch, 0),
        )
        return kind(markers=[marker])

    def read(self, answer: Any, items: Mapping[TopicPartition, Hanging]) -> Iterable[tuple[Any, Any]]:
        return [
            (
                TopicPartition(topic.name, each.partition_index),
                Refusal(each.error_code) if each.error_code else None,
            )
            for marker in answer.markers
            for topic in marker.topics
            for each in topic.partitions
        ]


class FenceProducers(AdminRequest):
    """Transactional.ids whose producers are to be fenced; the results are Fenced.

    Parameters
    ----------
    ids : iterable of str
    timeout_ms : int
        The transaction.timeout.ms that the id has from then on.
    """

    kind = messages.InitProducerIdRequest
    route = TRANSACTION_COORDINATOR
    max_items = 1
    noun = "transactional.id"

    def __init__(self, name: str, ids: Iterable[str], timeout_ms: int) -> None:
        super().__init__(name, dict.fromkeys(ids))
        self.timeout_ms = timeout_ms

    def message(self, items: Mapping[str, None], version: int, timeout_ms: int) -> Message:
        (transactional_id,) = items
        return messages.InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=self.timeout_ms
        )

    def read(self, answer: Any, items: Mapping[str, None]) -> Iterable[tuple[str, Any]]:
        if answer.error_code:
            return refused(items, answer)
        return [(key, Fenced(answer.producer_id, answer.producer_epoch)) for key in items]
