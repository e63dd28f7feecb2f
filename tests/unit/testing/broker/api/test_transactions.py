"""BrokerCore without sockets: transactions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kbatch.errors import ErrorCode
from kbatch.protocol import messages
from kbatch.testing.broker.controller.partition_change import NO_LEADER
from kbatch.testing.broker.security.acls import Acls
from tests.support.broker_core import (
    GROUP,
    TOPIC,
    TRANSACTIONAL_ID,
    Client,
    VirtualBroker,
    batch,
    error_places,
    fetch_request,
    fetched,
    fetched_values,
    produce_request,
    produced,
    sample,
)
from tests.unit.testing.broker.group_clients import committed, find_coordinators


def codes(answer: Any) -> set[ErrorCode]:
    return {code for _, code in error_places(answer)}


class Transactional:
    """A producer with a transactional id, as a client of TV1 or TV2 talks."""

    def __init__(self, broker: VirtualBroker, *, tv2: bool, timeout_ms: int = 5000) -> None:
        self.client: Client = broker.client()
        self.tv2 = tv2
        self.timeout_ms = timeout_ms
        self.id, self.epoch, self.sequence = -1, -1, 0

    def init(self) -> ErrorCode:
        answer = self.client.ask(
            messages.InitProducerIdRequest(
                transactional_id=TRANSACTIONAL_ID, transaction_timeout_ms=self.timeout_ms
            )
        )
        if not answer.error_code:
            self.id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0
        return ErrorCode(answer.error_code)

    def add(self) -> set[ErrorCode]:
        request: Any = sample(self.client.broker, "AddPartitionsToTxn", 3)
        request.v3_and_below_producer_id, request.v3_and_below_producer_epoch = self.id, self.epoch
        return codes(self.client.ask(request, 3))

    def produce(self, *values: bytes) -> ErrorCode:
        data = batch(
            *values,
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            transactional=True,
        )
        request = produce_request(self.client.broker, data, transactional_id=TRANSACTIONAL_ID)
        answer = produced(self.client.ask(request, 13 if self.tv2 else 11))
        self.sequence += len(values) if not answer.error_code else 0
        return ErrorCode(answer.error_code)

    def commit_offset(self, offset: int) -> set[ErrorCode]:
        version = 5 if self.tv2 else 3
        request: Any = sample(self.client.broker, "TxnOffsetCommit", version)
        request.producer_id, request.producer_epoch = self.id, self.epoch
        request.topics[0].partitions[0].committed_offset = offset
        return codes(self.client.ask(request, version))

    def add_offsets(self) -> ErrorCode:
        request: Any = sample(self.client.broker, "AddOffsetsToTxn", 3)
        request.producer_id, request.producer_epoch = self.id, self.epoch
        return ErrorCode(self.client.ask(request, 3).error_code)

    def end(self, commit: bool) -> ErrorCode:
        answer = self.client.ask(
            messages.EndTxnRequest(
                transactional_id=TRANSACTIONAL_ID,
                producer_id=self.id,
                producer_epoch=self.epoch,
                committed=commit,
            ),
            5 if self.tv2 else 4,
        )
        if self.tv2 and not answer.error_code:
            self.id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0
        return ErrorCode(answer.error_code)


def reads(broker: VirtualBroker, *, committed: bool) -> Any:
    return broker.client().ask(fetch_request(broker, committed=committed))


@pytest.mark.parametrize("tv2", [False, True], ids=["TV1", "TV2"])
def test_readers_see_committed_transactions_only_when_they_want(broker: VirtualBroker, tv2: bool) -> None:
    producer = Transactional(broker, tv2=tv2)
    assert producer.init() == 0
    for value, commit in ((b"one", True), (b"two", False), (b"three", True)):
        assert tv2 or producer.add() == set()
        assert producer.produce(value) == 0
        last_stable_offset = fetched(reads(broker, committed=True)).last_stable_offset
        assert last_stable_offset == fetched(reads(broker, committed=False)).high_watermark - 1
        assert producer.end(commit) == 0
    answer = reads(broker, committed=True)
    aborted = fetched(answer).aborted_transactions
    assert [(each.producer_id, each.first_offset) for each in aborted] == [(producer.id, 2)]
    assert fetched(answer).high_watermark == fetched(answer).last_stable_offset == 6
    uncommitted = reads(broker, committed=False)
    assert fetched(uncommitted).aborted_transactions is None
    assert [value for value in fetched_values(uncommitted) if value in (b"one", b"two", b"three")] == [
        b"one",
        b"two",
        b"three",
    ]
    assert producer.epoch == (3 if tv2 else 0)


def test_tv1_wants_partitions_added_first(broker: VirtualBroker) -> None:
    producer = Transactional(broker, tv2=False)
    producer.init()
    assert producer.produce(b"x") == ErrorCode.TRANSACTION_ABORTABLE
    assert producer.add() == set()
    assert producer.produce(b"x") == 0


def test_fetch_of_committed_data_is_woken_by_the_marker(broker: VirtualBroker) -> None:
    producer = Transactional(broker, tv2=True)
    producer.init()
    producer.produce(b"x")
    waiting = broker.client().send(fetch_request(broker, committed=True, max_wait_ms=500))
    assert not waiting.is_there
    producer.end(True)
    assert b"x" in fetched_values(waiting.message)


@pytest.mark.parametrize("tv2", [False, True], ids=["TV1", "TV2"])
def test_offsets_in_a_transaction_count_when_it_is_committed(broker: VirtualBroker, tv2: bool) -> None:
    producer = Transactional(broker, tv2=tv2)
    producer.init()
    for offset, commit, counts in ((5, False, -1), (6, True, 6)):
        assert tv2 or producer.add_offsets() == 0
        assert producer.commit_offset(offset) == set()
        assert committed(broker) == (0, -1)
        assert committed(broker, stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
        assert producer.end(commit) == 0
        assert committed(broker, stable=True) == (0, counts)


def test_second_producer_fences_the_first(broker: VirtualBroker) -> None:
    first, second = Transactional(broker, tv2=True), Transactional(broker, tv2=True)
    first.init()
    first.produce(b"zombie")
    assert second.init() == ErrorCode.CONCURRENT_TRANSACTIONS, "while the open one is aborted"
    assert second.init() == 0
    assert (first.id, first.epoch < second.epoch) == (second.id, True)
    assert first.produce(b"late") == ErrorCode.INVALID_PRODUCER_EPOCH
    assert first.end(True) == ErrorCode.PRODUCER_FENCED
    assert second.produce(b"heir") == 0
    assert second.end(True) == 0
    assert broker.values() == [b"zombie", b"heir"]


def test_transaction_that_takes_too_long_is_aborted(broker: VirtualBroker) -> None:
    producer = Transactional(broker, tv2=True, timeout_ms=5000)
    producer.init()
    producer.produce(b"x")
    broker.advance(4999)
    assert fetched(reads(broker, committed=True)).last_stable_offset == 0
    broker.advance(1)
    assert fetched(reads(broker, committed=True)).last_stable_offset == 2
    assert producer.end(True) == ErrorCode.INVALID_TXN_STATE, "it is aborted already"
    assert producer.produce(b"late") == ErrorCode.INVALID_PRODUCER_EPOCH
    assert producer.init() == 0


def test_transaction_version_may_change() -> None:
    """New connections get the new level, under a new epoch of the features."""
    broker = VirtualBroker()
    producer = Transactional(broker, tv2=True)
    producer.init()
    broker.state.set_feature_level("transaction.version", 1)
    asked = messages.ApiVersionsRequest(client_software_name="new", client_software_version="1")
    answer = broker.client().ask(asked, 4)
    assert answer.finalized_features_epoch == 2
    levels = {feature.name: feature.max_version_level for feature in answer.finalized_features}
    assert levels["transaction.version"] == 1
    assert producer.produce(b"a") == ErrorCode.NONE  # what was begun by version 2 ends by it
    assert producer.end(commit=True) == ErrorCode.NONE


def test_markers_wait_for_a_leader() -> None:
    broker = VirtualBroker(topics=())
    broker.state.cluster.create_topic(TOPIC, 1)
    producer = Transactional(broker, tv2=True)
    producer.init()
    producer.produce(b"x")
    partition = broker.state.cluster.partition(TOPIC, 0)
    partition.lead_by(NO_LEADER)
    producer.end(True)
    assert producer.init() == ErrorCode.CONCURRENT_TRANSACTIONS
    partition.lead_by(0)
    broker.advance(200)
    assert producer.init() == 0
    assert fetched(reads(broker, committed=True)).last_stable_offset == 2


def test_transactions_are_described_and_listed(broker: VirtualBroker) -> None:
    producer = Transactional(broker, tv2=True)
    producer.init()
    producer.produce(b"x")
    describe = messages.DescribeTransactionsRequest(transactional_ids=[TRANSACTIONAL_ID, "nobody"])
    found, missing = broker.client().ask(describe).transaction_states
    assert (found.transaction_state, found.producer_id, found.producer_epoch) == ("Ongoing", producer.id, 0)
    assert [(topic.topic, topic.partitions) for topic in found.topics] == [(TOPIC, [0])]
    assert missing.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    request = messages.ListTransactionsRequest(state_filters=["Ongoing", "Zzz"])
    listed = broker.client().ask(request)
    assert [each.transactional_id for each in listed.transaction_states] == [TRANSACTIONAL_ID]
    assert listed.unknown_state_filters == ["Zzz"]


def test_markers_from_another_broker(broker: VirtualBroker) -> None:
    producer = Transactional(broker, tv2=False)
    producer.init(), producer.add(), producer.produce(b"x")
    kind = messages.WriteTxnMarkersRequest
    topic = kind.WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0, 1])

    def write(producer_id: int) -> list[int]:
        marker = kind.WritableTxnMarker(producer_id=producer_id, transaction_result=True, topics=[topic])
        answer = broker.client().ask(kind(markers=[marker]))
        return [each.error_code for each in answer.markers[0].topics[0].partitions]

    assert write(producer.id) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert write(-1) == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert b"x" in fetched_values(reads(broker, committed=True))


def test_partitions_are_added_all_or_none() -> None:
    acls = Acls()
    broker = VirtualBroker(acls=acls)
    producer = Transactional(broker, tv2=False)
    producer.init()
    kind = messages.AddPartitionsToTxnRequest
    request = kind(
        v3_and_below_transactional_id=TRANSACTIONAL_ID,
        v3_and_below_producer_id=producer.id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[kind.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0, 9])],
    )

    def added() -> list[int]:
        (topic,) = broker.client().ask(request, 3).results_by_topic_v3_and_below
        return [each.partition_error_code for each in topic.results_by_partition]

    assert added() == [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    request.v3_and_below_topics[0].partitions = [0]
    acls.topic_write = []
    assert added() == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    acls.topic_write = None
    assert added() == [0]


# These versions come from brokers, which need another permission.
BETWEEN_BROKERS = {("AddPartitionsToTxn", 4), ("AddPartitionsToTxn", 5)}


def test_acls_of_producers() -> None:
    acls = Acls(transactional_id_write=[], idempotent_write=False)
    broker = VirtualBroker(acls=acls)
    anonymous = messages.InitProducerIdRequest(transactional_id=None)
    assert codes(broker.client().ask(anonymous)) == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
    producer = Transactional(broker, tv2=True)
    assert producer.init() == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    for api in ("AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "TxnOffsetCommit"):
        for version in getattr(messages, f"{api}Request").versions:
            if (api, version) in BETWEEN_BROKERS:
                continue
            answer = broker.client().ask(sample(broker, api, version), version)
            assert codes(answer) == {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
    acls.transactional_id_write, acls.idempotent_write = ["trans*"], True
    assert producer.init() == 0
    assert broker.client().ask(anonymous).producer_id != producer.id
    acls.transactional_id_write = []
    assert producer.produce(b"x") == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_earlier_markers_fence_no_later_ones_after_a_restart(tmp_path: Path) -> None:
    """Each restart is an election of coordinators, whose epoch no request has carried yet."""
    for _ in range(2):
        broker = VirtualBroker(directory=tmp_path, topics=())
        if TOPIC not in broker.state.cluster.topics:
            broker.state.cluster.create_topic(TOPIC, 1)
        producer = Transactional(broker, tv2=True)
        while producer.init() == ErrorCode.CONCURRENT_TRANSACTIONS:
            pass
        assert (producer.produce(b"x"), producer.end(True), producer.produce(b"open")) == (0, 0, 0)
        broker.state.close()
    broker = VirtualBroker(directory=tmp_path, topics=())
    log = broker.state.cluster.partition(TOPIC, 0).log
    assert log.last_stable_offset < log.log_end_offset
    broker.advance(60_000)
    assert log.last_stable_offset == log.log_end_offset


def test_transaction_that_was_decided_is_completed_by_a_restart(tmp_path: Path) -> None:
    broker = VirtualBroker(directory=tmp_path)
    producer = Transactional(broker, tv2=True)
    producer.init(), producer.produce(b"x")
    broker.state.cluster.partition(TOPIC, 0).lead_by(NO_LEADER)
    assert producer.end(True) in (0, ErrorCode.CONCURRENT_TRANSACTIONS)
    broker.state.close()
    again = VirtualBroker(directory=tmp_path, topics=())
    assert b"x" in fetched_values(reads(again, committed=True))
    assert Transactional(again, tv2=True).init() == 0


def test_markers_are_not_fenced_by_those_of_other_coordinators() -> None:
    """Transactional ids are kept in partitions with leader epochs of their own."""
    broker = VirtualBroker(nodes=2)
    producer = Transactional(broker, tv2=True)
    coordinated = broker.state.coordinators.partition_of_transaction(TRANSACTIONAL_ID)
    for node_id in (1, 0, 1, 0):
        broker.state.move_leader(coordinated.topic.name, coordinated.index, node_id)
    producer.init(), producer.produce(b"x"), producer.end(True)
    assert producer.produce(b"open") == 0
    others = [f"other-{number}" for number in range(10)]
    for found in find_coordinators(broker, others, key_type=1):
        request = messages.InitProducerIdRequest(transactional_id=found.key, transaction_timeout_ms=1000)
        assert broker.client(found.node_id).ask(request).error_code == 0
    broker.advance(60_000)
    log = broker.state.cluster.partition(TOPIC, 0).log
    assert log.last_stable_offset == log.log_end_offset


# Refusals, as those of Kafka 4.3.1


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


def test_acls_of_transactional_ids_fail_the_whole_request() -> None:
    broker = VirtualBroker(acls=Acls(transactional_id_write=["mine"]))
    data = batch(b"x", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    request: Any = produce_request(broker, data, transactional_id="other")
    request.topic_data += produce_request(broker, topic="unknown").topic_data
    answer = broker.client().ask(request)
    codes = [topic.partition_responses[0].error_code for topic in answer.responses]
    assert codes == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
