"""Transactions: what becomes of batches, sequences and epochs when something fails."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from kbatch._native.send.in_flight import Identity
from kbatch.core.client.calls import Call
from kbatch.core.producer.transaction_requests import (
    ERROR_RESPONSES,
    ErrorResponse,
    Kind,
    response_to,
    verdict_of,
)
from kbatch.core.producer.transaction_states import TransactionState
from kbatch.errors import (
    ROWS,
    ErrorCode,
    KafkaError,
    KafkaTimeoutError,
    OutOfOrderSequenceError,
    PurgedError,
    RecordTooLargeError,
    TransactionAbortableError,
    TransactionAbortedError,
)
from kbatch.protocol import messages
from kbatch.records import OffsetAndMetadata
from tests.unit.sending import BACKOFF_MS, OK, OUT_OF_ORDER, TOPIC, Reply
from tests.unit.transacting import COORDINATOR, GROUP_OF_OFFSETS, STARTED, Transacting, failed, ok

CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
TOO_LARGE = ErrorCode.MESSAGE_TOO_LARGE
UNKNOWN_PRODUCER = ErrorCode.UNKNOWN_PRODUCER_ID
BOTH = pytest.mark.parametrize("version", [1, 2])
SHORT = {"delivery_timeout_ms": 31_000, "request_timeout_ms": 30_000}


def test_T07_a_change_is_told_with_metadata_too() -> None:
    tx = Transacting(1, metadata_max_age_ms=60_000).delivered("a")
    ok(tx.commit())
    tx.begun("b")
    tx.version, tx.features_epoch = 2, 2
    tx.advance(60_000)
    tx.answer(b=OK)
    ok(tx.commit())
    assert tx.last("EndTxn").version == 4
    assert tx.apis()[-1] == "InitProducerId"
    tx.delivered("c")
    ok(tx.commit())
    assert tx.last("EndTxn").version == 5


def changed_while_idle(before: int, after: int, **settings: Any) -> Transacting:
    """A transaction is over, and then the cluster's version is another, as the metadata have told."""
    tx = Transacting(before, metadata_max_age_ms=60_000, **settings).delivered("a")
    ok(tx.commit())
    tx.version, tx.features_epoch = after, 2
    tx.advance(60_000)
    return tx


def test_T07_a_higher_version_that_is_known_at_the_beginning_counts_with_a_new_epoch() -> None:
    tx = changed_while_idle(1, 2)
    assert tx.apis()[-1] == "EndTxn"  # nothing was asked meanwhile
    since = len(tx.said)
    tx.delivered("b")
    ok(tx.commit())
    assert tx.apis(since) == ["InitProducerId", "EndTxn"]
    bump = tx.said[since].message
    assert (bump.producer_id, bump.producer_epoch) == (4242, 0)
    assert tx.stamp("b") == (4242, 1, 0)
    assert tx.last("EndTxn").version == 5
    tx.delivered("c")
    assert tx.stamp("c") == (4242, 2, 0)
    assert tx.apis(since).count("InitProducerId") == 1


def test_T07_without_new_epochs_a_higher_version_counts_at_once() -> None:
    tx = changed_while_idle(1, 2, versions={messages.InitProducerIdRequest.api_key: (0, 2)})
    tx.delivered("b")
    ok(tx.commit())
    assert tx.apis()[-1] == "EndTxn"
    assert tx.last("EndTxn").version == 5


def test_T07_a_lower_version_that_is_known_at_the_beginning_counts() -> None:
    tx = changed_while_idle(2, 1)
    since = len(tx.said)
    tx.delivered("b")
    ok(tx.commit())
    assert tx.apis(since) == ["AddPartitionsToTxn", "EndTxn"]
    assert tx.last("EndTxn").version == 4
    assert tx.stamp("b") == (4242, 1, 0)


def test_T07_nothing_is_sent_before_the_new_epoch() -> None:
    tx = changed_while_idle(1, 2).script("InitProducerId", "wait")
    call = tx.begin()
    tx.send("b")
    assert not call.is_done
    assert not tx.waiting
    tx.answer_held()
    ok(call)
    assert tx.waiting == ["b"]
    assert tx.stamp("b") == (4242, 1, 0)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.PRODUCER_FENCED,
    ],
)
def test_T07_a_begin_tells_what_came_of_the_new_epoch(code: int) -> None:
    tx = changed_while_idle(1, 2).script("InitProducerId", code)
    error = failed(tx.begin())
    assert error.code == code
    assert error.fatal == (code == ErrorCode.PRODUCER_FENCED)
    if error.fatal:
        return
    assert error.abortable
    ok(tx.abort())
    assert tx.apis()[-2:] == ["InitProducerId", "InitProducerId"]
    tx.delivered("b")
    ok(tx.commit())
    assert tx.stamp("b") == (4242, 1, 0)
    assert tx.last("EndTxn").version == 5


@pytest.mark.parametrize("ends", ["abort", "commit"])
def test_T07_a_transaction_may_be_ended_while_it_waits_for_the_new_epoch(ends: str) -> None:
    """As close() does when begin_transaction() has timed out."""
    tx = changed_while_idle(1, 2).script("InitProducerId", "wait")
    calls = [tx.begin(), getattr(tx, ends)()]
    tx.answer_held()
    for call in calls:
        ok(call)
    assert tx.at is TransactionState.READY
    tx.delivered("b")
    ok(tx.commit())
    assert tx.stamp("b") == (4242, 1, 0)


@BOTH
def test_T13_a_failed_batch_fails_the_commit_and_an_abort_leads_on(version: int) -> None:
    tx = Transacting(version).delivered("w")
    tx.send("a")
    tx.answer(a=TOO_LARGE)
    assert isinstance(tx.error("a"), RecordTooLargeError)
    error = failed(tx.commit())
    assert isinstance(error, RecordTooLargeError)
    assert error.abortable
    ok(tx.abort())
    tx.delivered("b")
    ok(tx.commit())
    assert tx.stamp("b") == (4242, 1, 0)


@BOTH
def test_T13_batches_that_expire_while_committing_keep_the_commit_from_being_sent(version: int) -> None:
    tx = Transacting(version, partitions=2, **SHORT).delivered("w")
    tx.leaders[0] = tx.leaders[1] = -1
    tx.send("a", partition=0)
    tx.send("b", partition=1)
    call = tx.commit()
    for name in tx.waiting:
        tx.answer(**{name: ErrorCode.NOT_LEADER_OR_FOLLOWER})
    tx.advance(32_000)
    error = failed(call)
    assert isinstance(error, TransactionAbortableError)
    assert isinstance(error.__cause__, KafkaTimeoutError)
    assert tx.at is TransactionState.ABORTABLE_ERROR
    assert "EndTxn" not in tx.apis()
    assert {type(tx.error("a")), type(tx.error("b"))} <= {KafkaTimeoutError, TransactionAbortedError}


@pytest.mark.parametrize("code", [ErrorCode.INVALID_TXN_STATE, ErrorCode.NOT_ENOUGH_REPLICAS])
def test_T14_what_says_nothing_of_the_record_is_a_matter_of_the_transaction(code: int) -> None:
    tx = Transacting(2, retries=1).begun("a")
    for _ in range(2):
        if tx.waiting:
            tx.answer(a=code)
            tx.back_off()
    assert tx.error("a").code == code
    error = failed(tx.commit())
    assert isinstance(error, TransactionAbortableError)
    assert isinstance(error.__cause__, KafkaError)
    assert error.__cause__.code == code


def test_T08_a_batch_is_tried_again_under_version_2_the_first_ones_soon() -> None:
    tx = Transacting(2, partitions=2).delivered("w")
    ok(tx.commit())
    tx.begun("a")
    for _ in range(2):
        tx.answer(a=CONCURRENT)
        assert tx.at is TransactionState.IN_TRANSACTION
        tx.advance(19)
        assert not tx.waiting
        tx.advance(1)
        assert tx.waiting == ["a"]
    tx.send("b", partition=1)
    tx.answer(a=OK)
    tx.answer(b=CONCURRENT)
    tx.advance(BACKOFF_MS - 1)
    assert not tx.waiting
    tx.advance(1)
    tx.answer(b=OK)
    ok(tx.commit())


def test_T27_after_a_new_epoch_every_partition_begins_at_0() -> None:
    tx = Transacting(1, partitions=2).delivered("a0")
    tx.send("a1", partition=1)
    tx.answer(a1=OK)
    tx.send("b")
    tx.answer(b=TOO_LARGE)
    ok(tx.abort())
    tx.delivered("c0", partition=0)
    tx.send("c1", partition=1)
    assert [tx.stamp("c0"), tx.stamp("c1")] == [(4242, 1, 0), (4242, 1, 0)]


def test_I07_what_follows_a_refused_batch_moves_up() -> None:
    tx = Transacting(1).delivered("w")
    tx.send("a", "b", "c")
    assert tx.sequence("c") == 3
    tx._bytes.clear()  # the sequence of the refused batch is given again
    tx.answer(a=TOO_LARGE, b=OUT_OF_ORDER, c=OUT_OF_ORDER)
    tx._bytes.clear()
    tx.back_off()
    tx.answer(b=OK)
    tx.answer(c=OK)
    assert [tx.sequence("b"), tx.sequence("c")] == [1, 2]
    assert tx.at is TransactionState.ABORTABLE_ERROR
    ok(tx.abort())
    tx.delivered("d")
    assert tx.stamp("d") == (4242, 1, 0)


@BOTH
def test_I08_what_is_missing_fails_the_transaction_and_asks_for_no_epoch_within_it(version: int) -> None:
    tx = Transacting(version).delivered("w")
    tx.send("a")
    tx.answer(a=OUT_OF_ORDER)
    assert isinstance(tx.error("a"), OutOfOrderSequenceError)
    assert tx.at is TransactionState.ABORTABLE_ERROR
    assert tx.apis().count("InitProducerId") == 1
    assert failed(tx.commit()).code == OUT_OF_ORDER
    ok(tx.abort())
    tx.delivered("b")
    assert tx.stamp("b") == (4242, 1, 0)


@BOTH
def test_I20_what_expired_after_it_was_sent_is_settled_by_a_new_epoch(version: int) -> None:
    tx = Transacting(version, **SHORT).delivered("w")
    tx.send("a", "b")
    tx.advance(32_000)
    assert tx.error("a").possibly_persisted
    assert tx.at is TransactionState.ABORTABLE_ERROR
    call = tx.abort()
    tx.advance(1000)
    assert not call.is_done  # until nobody can answer any more
    tx.advance(30_000)
    ok(call)
    tx.delivered("c")
    assert tx.stamp("c") == (4242, 1, 0)
    assert tx.is_whole


@BOTH
def test_I22_a_forgotten_producer_can_abort_and_go_on(version: int) -> None:
    tx = Transacting(version).delivered("w")
    tx.send("a")
    tx.answer(a=Reply(UNKNOWN_PRODUCER, log_start=5))
    assert tx.error("a").code == UNKNOWN_PRODUCER
    assert failed(tx.commit()).code == UNKNOWN_PRODUCER
    ok(tx.abort())
    tx.delivered("b")
    assert tx.stamp("b") == (4242, 1, 0)


def test_the_end_waits_for_the_answer_of_a_batch_that_was_given_up() -> None:
    tx = Transacting(2).delivered("w")
    tx.send("a")
    tx.engine.purge(PurgedError("purged"), queued=True, in_flight=True)
    call = tx.abort()
    assert tx.error("a").possibly_persisted
    assert "EndTxn" not in tx.apis()
    tx.drop()
    tx.advance(1000)
    ok(call)


def test_a_purge_in_a_transaction_makes_it_abortable() -> None:
    tx = Transacting(2, linger_ms=1000, batch_size=1000).begun()
    tx.send("a")
    tx.engine.purge(PurgedError("purged"), queued=True, in_flight=False)
    error = failed(tx.commit())
    assert isinstance(error, PurgedError)
    assert error.abortable
    ok(tx.abort())


@pytest.mark.parametrize(
    "code", [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
)
def test_init_may_be_called_again_when_it_was_not_allowed(code: int) -> None:
    tx = Transacting().script("InitProducerId", code)
    assert failed(tx.init()).code == code
    assert tx.at is TransactionState.UNINITIALIZED
    ok(tx.init())
    tx.delivered("a")
    ok(tx.commit())


def test_an_aborted_init_asks_again_for_a_producer_id() -> None:
    tx = Transacting().script("InitProducerId", ErrorCode.TRANSACTION_ABORTABLE)
    failed(tx.init())
    ok(tx.abort())
    assert tx.at is TransactionState.READY
    assert tx.transactions._order.identity == Identity(4242, 0)
    tx.delivered("a")
    ok(tx.commit())


def test_a_new_epoch_that_was_abortable_is_asked_for_again() -> None:
    tx = Transacting(1).begun("a")
    tx.answer(a=TOO_LARGE)
    tx.script("InitProducerId", ErrorCode.TRANSACTION_ABORTABLE)
    assert isinstance(failed(tx.abort()), TransactionAbortableError)
    ok(tx.abort())
    assert tx.apis()[-3:] == ["EndTxn", "InitProducerId", "InitProducerId"]
    tx.delivered("b")
    assert tx.stamp("b") == (4242, 1, 0)


def test_an_unanswered_init_does_not_outlive_an_error() -> None:
    tx = Transacting().script("InitProducerId", "drop")
    tx.script("FindCoordinator", ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE)
    call = tx.init()
    tx.advance(1000)
    assert isinstance(failed(call), TransactionAbortableError)
    ok(tx.abort())
    assert tx.at is TransactionState.READY
    tx.delivered("a")
    ok(tx.commit())


@pytest.mark.parametrize("found", [OK, ErrorCode.INVALID_TXN_STATE])
@pytest.mark.parametrize("api", ["AddOffsetsToTxn", "AddPartitionsToTxn"])
def test_what_was_refused_behind_an_unanswered_attempt_is_aborted(api: str, found: int) -> None:
    """The coordinator may have a transaction, or not: either answer is well."""
    tx = Transacting(1).ready().script(api, "drop", ErrorCode.TRANSACTION_ABORTABLE).script("EndTxn", found)
    tx.begun("a") if api == "AddPartitionsToTxn" else tx.begun()
    if api == "AddOffsetsToTxn":
        tx.offsets()
    tx.advance(1000)
    assert tx.at is TransactionState.ABORTABLE_ERROR
    ok(tx.abort())
    assert tx.apis()[-1] == "EndTxn"
    tx.delivered("b")
    ok(tx.commit())


@pytest.mark.parametrize("version", [1, 2])
def test_a_commit_that_may_be_done_is_asked_for_until_it_is_known(version: int) -> None:
    tx = Transacting(version).delivered("a").script("EndTxn", "drop")
    tx.script("FindCoordinator", ErrorCode.TRANSACTION_ABORTABLE)
    call = tx.commit()
    tx.advance(1000)
    ok(call)
    assert tx.apis()[-4:] == ["EndTxn", "FindCoordinator", "FindCoordinator", "EndTxn"]
    tx.delivered("b")
    ok(tx.commit())


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.PRODUCER_FENCED,
    ],
)
def test_a_commit_was_done_whatever_comes_of_the_next_epoch(code: int) -> None:
    """The cluster has got version 2, so that a commit is followed by InitProducerId."""
    tx = Transacting(1).delivered("a")
    tx.version, tx.features_epoch = 2, 2
    tx.drop(COORDINATOR)
    tx.script("InitProducerId", code)
    call = tx.commit()
    tx.advance(1000)
    ok(call)
    error = failed(tx._call("begin_transaction", tx.transactions.begin))
    assert error.code == code
    if code == ErrorCode.PRODUCER_FENCED:
        assert error.fatal
        return
    assert error.abortable
    ok(tx.abort())
    tx.delivered("b")
    ok(tx.commit())


def test_a_commit_was_done_though_the_coordinator_is_not_found_again() -> None:
    tx = Transacting(1).delivered("a")
    tx.version, tx.features_epoch = 2, 2
    tx.drop(COORDINATOR)
    tx.script("InitProducerId", ErrorCode.NOT_COORDINATOR)
    tx.script("FindCoordinator", ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE)
    call = tx.commit()
    tx.advance(1000)
    ok(call)
    assert failed(tx._call("begin_transaction", tx.transactions.begin)).abortable
    ok(tx.abort())


def test_an_abort_whose_new_epoch_was_not_allowed_is_called_again() -> None:
    tx = Transacting(1).begun("a")
    tx.answer(a=TOO_LARGE)
    tx.script("InitProducerId", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    error = failed(tx.abort())
    assert error.code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert error.abortable
    ok(tx.abort())
    assert tx.apis()[-3:] == ["EndTxn", "InitProducerId", "InitProducerId"]
    tx.delivered("b")
    ok(tx.commit())


def test_what_may_have_been_added_is_asked_for_until_it_is_known() -> None:
    """Else the coordinator would have a transaction of which nobody knows."""
    tx = Transacting(1, partitions=2).delivered("w")
    tx.script("AddPartitionsToTxn", "drop")
    tx.put("a", partition=1)
    tx.put("b", partition=0)
    tx.run()
    tx.answer(b=TOO_LARGE)
    assert tx.at is TransactionState.ABORTABLE_ERROR
    tx.advance(1000)
    assert tx.apis().count("AddPartitionsToTxn") == 3
    assert (TOPIC, 1) in tx.transactions._order.partitions
    ok(tx.abort())


def test_a_lost_answer_to_the_commit_is_asked_for_again() -> None:
    tx = Transacting(2).delivered("a").script("EndTxn", "drop", "drop")
    call = tx.commit()
    tx.advance(3000)
    ok(call)
    assert [s.message.committed for s in tx.said if s.api == "EndTxn"] == [True] * 3


def test_a_group_coordinator_of_no_node_is_asked_for_again() -> None:
    tx = Transacting().begun()
    tx.coordinators[0] = 99
    call = tx.offsets()
    tx.advance(500)
    assert not call.is_done
    tx.coordinators[0] = 1
    tx.advance(2000)
    ok(call)


def test_offsets_that_were_refused_alone_are_sent_again() -> None:
    tx = Transacting().begun()
    kind = messages.TxnOffsetCommitResponse
    part = kind.TxnOffsetCommitResponsePartition
    half = [
        part(partition_index=0, error_code=OK),
        part(partition_index=1, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT),
    ]
    tx.script(
        "TxnOffsetCommit", kind(topics=[kind.TxnOffsetCommitResponseTopic(name="source", partitions=half)])
    )
    call = tx.offsets()
    assert not call.is_done
    tx.back_off()
    ok(call)
    (topic,) = tx.last("TxnOffsetCommit").message.topics
    assert [each.partition_index for each in topic.partitions] == [1]


@BOTH
@pytest.mark.parametrize("api", ["AddOffsetsToTxn", "TxnOffsetCommit"])
@pytest.mark.parametrize("fault", ["drop", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR])
def test_T10_offsets_that_are_sent_again_stay_ahead_of_those_that_came_later(
    version: int, api: str, fault: Any
) -> None:
    """Else the older offsets would replace the newer ones."""
    tx = Transacting(version).begun()
    tx.script(api, fault)
    place = ("source", 0)
    commands = [
        partial(tx.transactions.send_offsets, {place: OffsetAndMetadata(offset)}, GROUP_OF_OFFSETS)
        for offset in (5, 6)
    ]
    calls = [Call("send_offsets_to_transaction") for _ in commands]
    for call, command in zip(calls, commands, strict=True):
        tx.engine.call(call, command)
    tx.run()
    tx.advance(1000)
    for call in calls:
        ok(call)
    messages_sent = [said.message for said in tx.said if said.api == "TxnOffsetCommit"]
    offsets = [message.topics[0].partitions[0].committed_offset for message in messages_sent]
    assert offsets == sorted(offsets)
    assert offsets[-1] == 6
    ok(tx.commit())


def test_the_table_has_an_action_for_every_request_and_code() -> None:
    for kind in Kind:
        assert set(ERROR_RESPONSES[kind]) == {*ROWS, ErrorCode.NONE}
        for code, row in ROWS.items():
            action = ERROR_RESPONSES[kind][code]
            if row.retriable:
                assert action in (ErrorResponse.RETRY, ErrorResponse.FIND), (kind, code)
            else:
                assert action not in (ErrorResponse.RETRY, ErrorResponse.FIND, ErrorResponse.DONE), (
                    kind,
                    code,
                )
        assert response_to(kind, 30_000) is ERROR_RESPONSES[kind][ErrorCode.UNKNOWN_SERVER_ERROR]


def test_of_several_codes_the_worst_decides() -> None:
    kind = Kind.ADD_PARTITIONS
    fenced, concurrent = ErrorCode.PRODUCER_FENCED, ErrorCode.CONCURRENT_TRANSACTIONS
    unauthorized = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert verdict_of(kind, [("a", OK), ("b", concurrent)]).action is ErrorResponse.RETRY
    assert verdict_of(kind, [("a", unauthorized), ("b", concurrent)]).subjects == ["a"]
    assert verdict_of(kind, [("a", unauthorized), ("b", fenced)]).action is ErrorResponse.FENCED
    assert verdict_of(kind, [("a", ErrorCode.OPERATION_NOT_ATTEMPTED)]).action is ErrorResponse.ABORT
    assert verdict_of(kind, []).action is ErrorResponse.DONE


def test_nothing_goes_on_when_a_transaction_was_not_begun() -> None:
    tx = Transacting(2).ready()
    tx.send("a")
    assert not tx.waiting
    assert tx.engine.deadline_ns(tx.now_ns) > tx.now_ns
    assert tx.apis() == STARTED
