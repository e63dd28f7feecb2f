"""Producer ids and transactions: from InitProducerId to EndTxn, WriteTxnMarkers, and descriptions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kbatch.errors import ErrorCode
from kbatch.protocol import features, messages
from kbatch.protocol.structs import Message, Struct
from kbatch.testing.broker.api.items import by_topic, each_item
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.cluster import INTERNAL_TOPICS
from kbatch.testing.broker.coordinators import TRANSACTIONS_TOPIC
from kbatch.testing.broker.security.authorizer import Operation, ResourceType
from kbatch.testing.broker.shards import TransactionShard
from kbatch.testing.broker.transactions.markers import Marker
from kbatch.testing.broker.transactions.transaction_coordinator import compiled_pattern, unknown_states

if TYPE_CHECKING:
    from kbatch.testing.broker.broker_state import BrokerState, Context
from kbatch.testing.broker.transactions.transaction_metadata import TopicPartition


def _fenced(error: BrokerError, kind: type[Message], version: int) -> BrokerError:
    """Return INVALID_PRODUCER_EPOCH for PRODUCER_FENCED in older versions (KIP-588)."""
    if error.code == ErrorCode.PRODUCER_FENCED and version < features.PRODUCER_FENCED[kind.api_key]:
        return BrokerError(ErrorCode.INVALID_PRODUCER_EPOCH, error.message)
    return error


def init_producer_id(
    state: BrokerState, request: messages.InitProducerIdRequest, context: Context
) -> messages.InitProducerIdResponse:
    try:
        context.check_forced_error()
        transactional_id = request.transactional_id
        if transactional_id is None:
            _authorize_idempotent_write(state, context)
            producer_id, epoch = state.coordinators.init_producer_id(
                request.producer_id, request.producer_epoch
            )
            return messages.InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)
        _authorize_write(state, context, transactional_id)
        transactions = state.coordinators.of_transaction(transactional_id, context.node_id).transactions
        producer_id, epoch = transactions.init_producer_id(
            transactional_id,
            request.transaction_timeout_ms,
            request.producer_id,
            request.producer_epoch,
            context.now_ms,
        )
    except BrokerError as error:
        code = _fenced(error, type(request), context.version).code
        return messages.InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    answer = messages.InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)

    def refuse(code: ErrorCode) -> None:
        answer.error_code, answer.producer_id, answer.producer_epoch = code, -1, -1

    context.wait_for(transactions.unreplicated(transactional_id), refuse)
    return answer


def _authorize_write(state: BrokerState, context: Context, transactional_id: str) -> None:
    state.authorize(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)


def _authorize_idempotent_write(state: BrokerState, context: Context) -> None:
    """Refuse clients that may write to no topic and lack Kafka's older permission (KIP-679)."""
    client = context.connection
    may_write = state.acls.idempotent_write and state.authorizer.allows_some(
        client.principal, client.client_host, Operation.WRITE, ResourceType.TOPIC
    )
    if not may_write:
        state.authorize_cluster(context, Operation.IDEMPOTENT_WRITE)


# AddPartitionsToTxn: one transaction a request up to version 3, many after it


def add_partitions_to_txn(
    state: BrokerState, request: messages.AddPartitionsToTxnRequest, context: Context
) -> messages.AddPartitionsToTxnResponse:
    is_of_broker = context.version >= features.ADD_PARTITIONS_TO_TXN_BATCHES
    if is_of_broker:
        state.authorize_cluster(context, Operation.CLUSTER_ACTION)
        transactions = request.transactions
    else:
        transactions = [
            messages.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
                transactional_id=request.v3_and_below_transactional_id,
                producer_id=request.v3_and_below_producer_id,
                producer_epoch=request.v3_and_below_producer_epoch,
                topics=request.v3_and_below_topics,
            )
        ]
    results = [
        messages.AddPartitionsToTxnResponse.AddPartitionsToTxnResult(
            transactional_id=each.transactional_id, topic_results=_add_partitions(state, each, context)
        )
        for each in transactions
    ]
    if is_of_broker:
        return messages.AddPartitionsToTxnResponse(results_by_transaction=results)
    return messages.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results)


def _add_partitions(
    state: BrokerState,
    transaction: messages.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction,
    context: Context,
) -> list[messages.AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult]:
    wanted = [(topic.name, index) for topic in transaction.topics for index in topic.partitions]

    def refuse(code: ErrorCode) -> None:
        for topic in answers:
            for each in topic.results_by_partition:
                each.partition_error_code = code

    try:
        context.check_forced_error()
        from_client = context.version < features.ADD_PARTITIONS_TO_TXN_BATCHES
        if from_client:
            _authorize_write(state, context, transaction.transactional_id)
        shard = state.coordinators.of_transaction(transaction.transactional_id, context.node_id)
        codes = _addable(state, wanted, context, from_client=from_client)
        if not any(codes.values()):
            codes = shard.transactions.add_partitions(
                transaction.transactional_id,
                transaction.producer_id,
                transaction.producer_epoch,
                wanted,
                context.now_ms,
                client_tv2=not from_client,
                verify_only=transaction.verify_only,
            )
            context.wait_for(shard.transactions.unreplicated(transaction.transactional_id), refuse)
    except BrokerError as error:
        code = _fenced(error, messages.AddPartitionsToTxnRequest, context.version).code
        codes = dict.fromkeys(wanted, code)
    result = messages.AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult
    answers = [
        messages.AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                result(partition_index=index, partition_error_code=codes[topic.name, index])
                for index in topic.partitions
            ],
        )
        for topic in transaction.topics
    ]
    return answers


def _addable(
    state: BrokerState, wanted: list[TopicPartition], context: Context, *, from_client: bool
) -> dict[TopicPartition, ErrorCode]:
    """Return a code for each partition: if one cannot be added, the others are OPERATION_NOT_ATTEMPTED."""
    codes = dict.fromkeys(wanted, ErrorCode.NONE)
    for topic, index in wanted:
        try:
            if from_client:
                state.authorize(context, Operation.WRITE, ResourceType.TOPIC, topic)
                if topic in INTERNAL_TOPICS:
                    raise BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            state.cluster.partition(topic, index)
        except BrokerError as error:
            codes[topic, index] = error.code
    if any(codes.values()):
        return {each: code or ErrorCode.OPERATION_NOT_ATTEMPTED for each, code in codes.items()}
    return codes


def add_offsets_to_txn(
    state: BrokerState, request: messages.AddOffsetsToTxnRequest, context: Context
) -> messages.AddOffsetsToTxnResponse:
    try:
        context.check_forced_error()
        _authorize_write(state, context, request.transactional_id)
        state.authorize(context, Operation.READ, ResourceType.GROUP, request.group_id)
        shard = state.coordinators.of_transaction(request.transactional_id, context.node_id)
        state.coordinators.partition_of_group(request.group_id)
        shard.transactions.add_offsets(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            request.group_id,
            context.now_ms,
        )
    except BrokerError as error:
        raise _fenced(error, type(request), context.version) from error
    context.wait_for(shard.transactions.unreplicated(request.transactional_id))
    return messages.AddOffsetsToTxnResponse()


def end_txn(state: BrokerState, request: messages.EndTxnRequest, context: Context) -> messages.EndTxnResponse:
    try:
        context.check_forced_error()
        _authorize_write(state, context, request.transactional_id)
        transactions = state.coordinators.of_transaction(
            request.transactional_id, context.node_id
        ).transactions
        producer_id, epoch = transactions.end_txn(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            request.committed,
            context.version >= features.END_TXN_BUMPS_EPOCH,
            context.now_ms,
        )
    except BrokerError as error:
        raise _fenced(error, type(request), context.version) from error
    context.wait_for(transactions.unreplicated(request.transactional_id))
    return messages.EndTxnResponse(producer_id=producer_id, producer_epoch=epoch)


def write_txn_markers(
    state: BrokerState, request: messages.WriteTxnMarkersRequest, context: Context
) -> messages.WriteTxnMarkersResponse:
    """Write the markers of other brokers, or of a test that plays one."""
    context.stopwatch = None  # brokers are not throttled
    if not state.allows_cluster(context, Operation.ALTER):
        state.authorize_cluster(context, Operation.CLUSTER_ACTION)
    kind = messages.WriteTxnMarkersResponse

    def written(marker: messages.WriteTxnMarkersRequest.WritableTxnMarker, topic: str, index: int) -> Struct:
        answer = kind.WritableTxnMarkerPartitionResult(partition_index=index)
        return context.fill(answer, _write_marker, state, marker, topic, context.node_id)

    return kind(
        markers=[
            kind.WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=by_topic(marker.topics, kind.WritableTxnMarkerTopicResult, partial(written, marker)),
            )
            for marker in request.markers
        ]
    )


def _write_marker(
    state: BrokerState,
    marker: messages.WriteTxnMarkersRequest.WritableTxnMarker,
    topic: str,
    node_id: int,
    answer: messages.WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult,
) -> None:
    state.cluster.led_partition(topic, answer.partition_index, node_id)
    if marker.producer_id < 0 or marker.producer_epoch < 0:
        raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR)  # MemoryRecords.withEndTransactionMarker
    written = Marker(
        marker.producer_id,
        marker.producer_epoch,
        marker.transaction_result,
        marker.coordinator_epoch,
        marker.transaction_version,
    )
    state.coordinators.markers.write(written, topic, answer.partition_index)


# Descriptions


@each_item(
    "transaction_states",
    messages.DescribeTransactionsResponse.TransactionState,
    "transactional_ids",
    "transactional_id",
)
def describe_transactions(
    state: BrokerState,
    request: messages.DescribeTransactionsRequest,
    context: Context,
    transactional_id: str,
    answer: messages.DescribeTransactionsResponse.TransactionState,
) -> None:
    state.authorize(context, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    shard = state.coordinators.of_transaction(transactional_id, context.node_id)
    metadata = shard.transactions.describe(transactional_id)
    answer.transaction_state = str(metadata.state)
    answer.transaction_timeout_ms = metadata.timeout_ms
    answer.transaction_start_time_ms = metadata.start_ms
    answer.producer_id = metadata.producer_id
    answer.producer_epoch = metadata.producer_epoch
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(metadata.partitions):
        by_topic.setdefault(topic, []).append(index)
    answer.topics = [
        messages.DescribeTransactionsResponse.TopicData(topic=topic, partitions=indexes)
        for topic, indexes in by_topic.items()
        if state.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, topic)
    ]


def list_transactions(
    state: BrokerState, request: messages.ListTransactionsRequest, context: Context
) -> messages.ListTransactionsResponse:
    """Return the transactions that this node coordinates, and that the client may see."""
    context.check_forced_error()
    kind = messages.ListTransactionsResponse
    pattern = compiled_pattern(request.transactional_id_pattern)
    shards = state.coordinators.at_node(context.node_id, TRANSACTIONS_TOPIC, TransactionShard)
    found = [
        metadata
        for shard in shards
        for metadata in shard.transactions.list_transactions(
            context.now_ms,
            states=request.state_filters,
            producer_ids=request.producer_id_filters,
            duration_ms=request.duration_filter,
            pattern=pattern,
        )
    ]
    return kind(
        unknown_state_filters=unknown_states(request.state_filters),
        transaction_states=[
            kind.TransactionState(
                transactional_id=metadata.transactional_id,
                producer_id=metadata.producer_id,
                transaction_state=str(metadata.state),
            )
            for metadata in found
            if state.allows(
                context, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, metadata.transactional_id
            )
        ],
    )


HANDLERS = {
    messages.InitProducerIdRequest: init_producer_id,
    messages.AddPartitionsToTxnRequest: add_partitions_to_txn,
    messages.AddOffsetsToTxnRequest: add_offsets_to_txn,
    messages.EndTxnRequest: end_txn,
    messages.WriteTxnMarkersRequest: write_txn_markers,
    messages.DescribeTransactionsRequest: describe_transactions,
    messages.ListTransactionsRequest: list_transactions,
}
