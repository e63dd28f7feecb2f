"""Refusals of the broker, with all fields of the responses, as those of Kafka 4.3.1."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from kbatch.testing.broker.security.acls import Acls
from tests.oracle import plain
from tests.support.broker_core import (
    GROUP,
    LEADER,
    START_MS,
    TOPIC,
    TRANSACTIONAL_ID,
    VirtualBroker,
    batch,
    fetch_request,
    fetched,
    produce_request,
    produced,
)

GOOD = batch(b"good")


def cut(length: int) -> bytes:
    """Return a batch that ends with its `length` field, inside the header."""
    return GOOD[:8] + struct.pack(">i", length) + GOOD[12 : 12 + length]


# Produce


def refused_partition(broker: VirtualBroker, data: bytes, topic: str = TOPIC, **parameters: Any) -> Any:
    answer = produced(broker.client().ask(produce_request(broker, data, topic=topic, **parameters)))
    assert (answer.base_offset, answer.log_append_time_ms) == (-1, -1)
    return answer


@pytest.mark.parametrize(
    ("data", "code", "log_start_offset"),
    [
        (batch(b"x", base_offset=1), ErrorCode.INVALID_RECORD, 1),
        (batch(b"x", timestamp_ms=START_MS + 3_600_001), ErrorCode.INVALID_TIMESTAMP, 1),
        (plain.with_crc(GOOD[:22] + b"\7" + GOOD[23:]), ErrorCode.UNKNOWN_SERVER_ERROR, 1),
        (
            batch(b"x", producer_id=5, producer_epoch=0, base_sequence=9),
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            1,
        ),
        (batch(b"x" * 2_000_000), ErrorCode.MESSAGE_TOO_LARGE, -1),
        (GOOD[:17] + bytes(4) + GOOD[21:], ErrorCode.CORRUPT_MESSAGE, -1),
        (b"", ErrorCode.INVALID_RECORD, -1),
    ],
    ids=lambda value: value.name if isinstance(value, ErrorCode) else None,
)
def test_refusal_says_where_the_log_starts_when_the_log_refuses(
    broker: VirtualBroker, data: bytes, code: ErrorCode, log_start_offset: int
) -> None:
    """ReplicaManager.appendToLocalLog, which leaves it out for some."""
    known = batch(b"x", b"y", producer_id=5, producer_epoch=0, base_sequence=0)
    broker.client().ask(produce_request(broker, known))
    broker.state.cluster.partition(TOPIC, 0).log.delete_records_before(1)
    refused = refused_partition(broker, data)
    assert (refused.error_code, refused.log_start_offset) == (code, log_start_offset)


def test_refusal_for_too_few_replicas_says_where_the_log_starts() -> None:
    broker = VirtualBroker(nodes=2, min_insync_replicas=2)
    broker.act(lambda state: state.stop_node(1))
    refused = refused_partition(broker, GOOD)
    assert (refused.error_code, refused.log_start_offset) == (ErrorCode.NOT_ENOUGH_REPLICAS, 0)


def test_more_in_sync_replicas_are_not_needed_than_there_are(broker: VirtualBroker) -> None:
    """Partition.effectiveMinIsr"""
    broker.state.cluster.create_topic("strict", 1, configs={"min.insync.replicas": "3"})
    assert produced(broker.client().ask(produce_request(broker, topic="strict"))).error_code == 0


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (cut(13), ErrorCode.CORRUPT_MESSAGE),
        (GOOD[:16] + b"\3" + GOOD[17:], ErrorCode.CORRUPT_MESSAGE),
        (cut(14), ErrorCode.UNKNOWN_SERVER_ERROR),
        (cut(38), ErrorCode.UNKNOWN_SERVER_ERROR),
        (
            batch(b"x", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True),
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
    ],
)
@pytest.mark.parametrize("version", [12, 13])
def test_some_batches_fail_their_whole_request(
    broker: VirtualBroker, version: int, data: bytes, code: ErrorCode
) -> None:
    broker.state.cluster.create_topic("other", 1)
    request: Any = produce_request(broker, data)
    for topic in ("other", "unknown"):
        request.topic_data += produce_request(broker, topic=topic).topic_data
    answer = broker.client().ask(request, version)
    found = [each for topic in answer.responses for each in topic.partition_responses]
    assert [(each.error_code, each.log_start_offset) for each in found] == [(code, -1)] * 3
    assert broker.values("other") == []


def test_batch_cut_off_after_its_producer_id_fails_alone(broker: VirtualBroker) -> None:
    broker.state.cluster.create_topic("other", 1)
    request: Any = produce_request(broker, cut(39))
    request.topic_data += produce_request(broker, topic="other").topic_data
    first, second = broker.client().ask(request).responses
    assert first.partition_responses[0].error_code == ErrorCode.CORRUPT_MESSAGE
    assert second.partition_responses[0].error_code == 0


def test_batches_of_two_transactional_producers_fail_the_request(broker: VirtualBroker) -> None:
    broker.state.cluster.create_topic("other", 1)
    request: Any = produce_request(broker, transactional_id=TRANSACTIONAL_ID, topic="unknown")
    for topic, producer_id in ((TOPIC, 1), ("other", 2)):
        data = batch(b"x", producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
        request.topic_data += produce_request(broker, data, topic=topic).topic_data
    answer = broker.client().ask(request)
    codes = [topic.partition_responses[0].error_code for topic in answer.responses]
    assert codes == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 3


@pytest.mark.parametrize("version", [12, 13])
def test_of_a_partition_named_twice_the_last_counts(broker: VirtualBroker, version: int) -> None:
    """Kafka drops the others, and does not say so."""
    request: Any = produce_request(broker, batch(b"first"))
    request.topic_data += produce_request(broker, batch(b"last")).topic_data
    answer = produced(broker.client().ask(request, version))
    assert (answer.error_code, answer.base_offset) == (0, 0)
    assert broker.values() == [b"last"]


def test_transactional_batch_without_producer_id_is_refused(broker: VirtualBroker) -> None:
    data = batch(b"x", transactional=True)
    answer = broker.client().ask(produce_request(broker, data, transactional_id=TRANSACTIONAL_ID))
    assert produced(answer).error_code == 0
    read = fetched(broker.client().ask(fetch_request(broker, committed=True)))
    assert (read.last_stable_offset, len(plain.decode(bytes(read.records)))) == (1, 1)


def test_error_after_the_append_keeps_the_offset_in_the_response() -> None:
    """DelayedProduce sets the error alone."""
    broker = VirtualBroker(nodes=2)
    broker.client().ask(produce_request(broker))
    broker.act(lambda state: state.hold_high_watermark(TOPIC, 0, True))
    waiting = [broker.client().send(produce_request(broker, timeout_ms=each)) for each in (100, 5000)]
    broker.advance(100)
    broker.act(lambda state: state.move_leader(TOPIC, 0, 1))
    answers = [produced(answer.message) for answer in waiting]
    assert [(each.error_code, each.base_offset, each.log_start_offset) for each in answers] == [
        (ErrorCode.REQUEST_TIMED_OUT, 1, 0),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2, 0),
    ]


# Fetch


@pytest.mark.parametrize("version", [11, 17])
def test_aborted_transactions_are_null_where_a_partition_refuses(version: int) -> None:
    broker = VirtualBroker(nodes=2)

    def aborted(node_id: int = 0, **parameters: Any) -> tuple[int, Any]:
        answer = broker.client(node_id).ask(fetch_request(broker, committed=True, **parameters), version)
        return fetched(answer).error_code, fetched(answer).aborted_transactions

    assert aborted() == (0, [])
    assert aborted(offset=1) == (ErrorCode.OFFSET_OUT_OF_RANGE, None)
    assert aborted(leader_epoch=1) == (ErrorCode.UNKNOWN_LEADER_EPOCH, None)
    assert aborted(node_id=1) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
    assert aborted(index=1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])


@pytest.fixture
def two_epochs() -> VirtualBroker:
    """Make a broker whose offsets 0 to 2 are of leader epoch 0, 3 and 4 of epoch 2."""
    broker = VirtualBroker(nodes=2)
    broker.client(0).ask(produce_request(broker, batch(b"a", b"b", b"c"), acks=LEADER))
    broker.act(lambda state: state.move_leader(TOPIC, 0, 1))
    broker.act(lambda state: state.move_leader(TOPIC, 0, 0))
    broker.client(0).ask(produce_request(broker, batch(b"d", b"e"), acks=LEADER))
    return broker


@pytest.mark.parametrize(
    ("offset", "last_fetched_epoch", "diverging_epoch"),
    [
        (3, -1, (-1, -1)),
        (3, 0, (-1, -1)),
        (4, 2, (-1, -1)),
        (4, 0, (0, 3)),
        (2, 1, (0, 3)),
    ],
)
def test_fetch_reports_where_the_logs_diverge(
    two_epochs: VirtualBroker, offset: int, last_fetched_epoch: int, diverging_epoch: tuple[int, int]
) -> None:
    """KIP-595; the answer comes at once."""
    request = fetch_request(two_epochs, offset, max_wait_ms=500)
    request.topics[0].partitions[0].last_fetched_epoch = last_fetched_epoch
    found = fetched(two_epochs.client().ask(request))
    assert (found.diverging_epoch.epoch, found.diverging_epoch.end_offset) == diverging_epoch
    assert (found.error_code, found.high_watermark, found.last_stable_offset) == (0, 5, 5)
    assert bool(found.records) == (diverging_epoch == (-1, -1))


@pytest.mark.parametrize(("offset", "last_fetched_epoch"), [(3, 3), (0, 0), (0, 1)])
def test_fetch_of_future_epoch_or_before_the_log_is_out_of_range(
    two_epochs: VirtualBroker, offset: int, last_fetched_epoch: int
) -> None:
    two_epochs.state.cluster.partition(TOPIC, 0).log.delete_records_before(1)
    request = fetch_request(two_epochs, offset)
    request.topics[0].partitions[0].last_fetched_epoch = last_fetched_epoch
    assert fetched(two_epochs.client().ask(request)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


# ListOffsets


def listed(broker: VirtualBroker, version: int, *timestamps: int) -> list[tuple[int, int]]:
    kind = messages.ListOffsetsRequest
    topics = [
        kind.ListOffsetsTopic(name=TOPIC, partitions=[kind.ListOffsetsPartition(timestamp=each)])
        for each in timestamps
    ]
    answer = broker.client().ask(kind(replica_id=-1, topics=topics), version)
    return [(each.error_code, each.offset) for topic in answer.topics for each in topic.partitions]


@pytest.mark.parametrize(
    ("timestamp", "version", "offset"), [(-3, 7, 0), (-4, 8, 0), (-5, 9, -1), (-6, 11, -1), (-7, 12, None)]
)
def test_special_timestamps_have_their_versions(
    broker: VirtualBroker, timestamp: int, version: int, offset: int | None
) -> None:
    broker.client().ask(produce_request(broker))
    for asked in messages.ListOffsetsRequest.versions:
        unsupported = (ErrorCode.UNSUPPORTED_VERSION, -1)
        assert listed(broker, asked, timestamp) == [(0, offset) if asked >= version else unsupported]


def test_partition_requested_twice_has_one_response(broker: VirtualBroker) -> None:
    assert listed(broker, 11, -1, -2) == [(ErrorCode.INVALID_REQUEST, -1)]


# Transactions and groups


def test_clients_do_not_add_internal_topics_to_transactions(broker: VirtualBroker) -> None:
    init = messages.InitProducerIdRequest(transactional_id=TRANSACTIONAL_ID, transaction_timeout_ms=1000)
    producer = broker.client().ask(init)
    kind = messages.AddPartitionsToTxnRequest
    broker.state.coordinators.internal_topic("__consumer_offsets")
    topics = [
        kind.AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in ("__consumer_offsets", TOPIC)
    ]
    request = kind(
        v3_and_below_transactional_id=TRANSACTIONAL_ID,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=topics,
    )
    answer = broker.client().ask(request, 3).results_by_topic_v3_and_below
    assert [each.results_by_partition[0].partition_error_code for each in answer] == [
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    ]
    of_broker = kind.AddPartitionsToTxnTransaction(
        transactional_id=TRANSACTIONAL_ID,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        topics=topics,
    )
    (result,) = broker.client().ask(kind(transactions=[of_broker])).results_by_transaction
    assert [each.results_by_partition[0].partition_error_code for each in result.topic_results] == [0, 0]


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (3, ErrorCode.INVALID_TXN_STATE),
        (4, ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
def test_offsets_not_added_are_refused_as_the_version_does(
    broker: VirtualBroker, version: int, code: ErrorCode
) -> None:
    assert txn_offset_commit(broker, version) == code


@pytest.mark.parametrize("version", [3, 4, 5])
def test_offsets_of_a_wrong_epoch_have_the_epochs_error(broker: VirtualBroker, version: int) -> None:
    """AddPartitionsToTxnManager does not report PRODUCER_FENCED."""
    assert txn_offset_commit(broker, version, epoch_delta=1) == ErrorCode.INVALID_PRODUCER_EPOCH


def txn_offset_commit(broker: VirtualBroker, version: int, epoch_delta: int = 0) -> int:
    init = messages.InitProducerIdRequest(transactional_id=TRANSACTIONAL_ID, transaction_timeout_ms=1000)
    producer = broker.client().ask(init)
    kind = messages.TxnOffsetCommitRequest
    partition = kind.TxnOffsetCommitRequestPartition(committed_offset=3)
    request = kind(
        transactional_id=TRANSACTIONAL_ID,
        group_id=GROUP,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch + epoch_delta,
        topics=[kind.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
    )
    return int(broker.client().ask(request, version).topics[0].partitions[0].error_code)


def test_offsets_of_topics_that_are_not_there_are_not_deleted(broker: VirtualBroker) -> None:
    commit = messages.OffsetCommitRequest
    partition = commit.OffsetCommitRequestPartition(committed_offset=3)
    topic = commit.OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])
    broker.client().ask(commit(group_id=GROUP, topics=[topic]), 9)
    kind = messages.OffsetDeleteRequest
    topics = [
        kind.OffsetDeleteRequestTopic(
            name=name, partitions=[kind.OffsetDeleteRequestPartition(partition_index=p) for p in (0, 1)]
        )
        for name in (TOPIC, "unknown")
    ]
    answer = broker.client().ask(kind(group_id=GROUP, topics=topics))
    codes = [[each.error_code for each in topic.partitions] for topic in answer.topics]
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [[0, missing], [missing, missing]]


def test_acls_of_transactional_ids_fail_the_whole_request() -> None:
    broker = VirtualBroker(acls=Acls(transactional_id_write=["mine"]))
    data = batch(b"x", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    request: Any = produce_request(broker, data, transactional_id="other")
    request.topic_data += produce_request(broker, topic="unknown").topic_data
    answer = broker.client().ask(request)
    codes = [topic.partition_responses[0].error_code for topic in answer.responses]
    assert codes == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
