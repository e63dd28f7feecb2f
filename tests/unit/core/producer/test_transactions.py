"""Transactions: states, calls, and requests to scripted coordinators."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kbatch._native.send.in_flight import Identity
from kbatch.core.client.calls import Call
from kbatch.core.producer.outcomes import ERROR_RESPONSES, ErrorResponse, Kind, verdict_of
from kbatch.core.producer.transaction_states import ONGOING, TRANSITIONS, TransactionEvent, TransactionState
from kbatch.errors import (
    ROWS,
    CommitFailedError,
    DeliveryError,
    ErrorCode,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    NotLeaderOrFollowerError,
    OutOfOrderSequenceError,
    ProducerClosedError,
    ProducerFencedError,
    PurgedError,
    RecordTooLargeError,
    TopicAuthorizationError,
    TransactionAbortableError,
    TransactionAbortedError,
    UnsupportedVersionError,
)
from kbatch.protocol import messages
from kbatch.records import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from tests.support.sending import BACKOFF_MS, OK, OUT_OF_ORDER, TOPIC, Reply
from tests.unit.core.producer.transacting import (
    COORDINATOR,
    GROUP_COORDINATOR,
    GROUP_OF_OFFSETS,
    STARTED,
    Transacting,
    added,
    failed,
    ok,
)

CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
BOTH = pytest.mark.parametrize("version", [1, 2])
MEMBER = ConsumerGroupMetadata("g", 3, "m", "i")


def test_T01_one_table_says_which_state_follows_which() -> None:
    sources = {
        state: {
            each for each in TransactionState if state in TRANSITIONS[each].values() and state is not each
        }
        for state in TransactionState
    }
    assert sources == {
        TransactionState.UNINITIALIZED: {TransactionState.INITIALIZING},
        TransactionState.INITIALIZING: {
            TransactionState.UNINITIALIZED,
            TransactionState.COMMITTING,
            TransactionState.ABORTING,
        },
        TransactionState.READY: {
            TransactionState.INITIALIZING,
            TransactionState.COMMITTING,
            TransactionState.ABORTING,
        },
        TransactionState.IN_TRANSACTION: {TransactionState.READY},
        TransactionState.COMMITTING: {TransactionState.IN_TRANSACTION},
        TransactionState.ABORTING: {TransactionState.IN_TRANSACTION, TransactionState.ABORTABLE_ERROR},
        TransactionState.ABORTABLE_ERROR: {
            TransactionState.IN_TRANSACTION,
            TransactionState.COMMITTING,
            TransactionState.INITIALIZING,
        },
        TransactionState.FATAL_ERROR: set(),
    }


def test_T01_bad_call_raises_and_bad_transition_is_fatal() -> None:
    tx = Transacting().ready()
    assert isinstance(failed(tx.commit()), IllegalStateError)
    assert tx.transactions.state is TransactionState.READY
    call = tx.begun("a").commit()
    tx.transactions._transition(TransactionEvent.BEGIN)
    assert tx.at is TransactionState.FATAL_ERROR
    assert failed(call) is tx.engine.fatal_error
    assert isinstance(tx.error("a"), IllegalStateError)


@pytest.mark.parametrize("name", ["begin", "commit", "abort", "offsets"])
def test_T02_nothing_goes_before_init(name: str) -> None:
    tx = Transacting()
    error = failed(getattr(tx, name)())
    assert isinstance(error, IllegalStateError)
    assert "init_transactions() first" in str(error)
    assert tx.at is TransactionState.UNINITIALIZED


def test_T02_init_is_called_once_and_begin_not_twice() -> None:
    tx = Transacting().ready()
    assert "once" in str(failed(tx.init()))
    tx.begun()
    assert "comes first" in str(failed(tx.begin()))
    assert tx.at is TransactionState.IN_TRANSACTION


def test_T02_after_an_error_calls_raise_its_cause() -> None:
    tx = Transacting().begun("a")
    tx.answer(a=ErrorCode.MESSAGE_TOO_LARGE)
    for call in (tx.begin(), tx.commit(), tx.offsets()):
        error = failed(call)
        assert error.code == ErrorCode.MESSAGE_TOO_LARGE
        assert error.abortable
        assert "abort_transaction()" in error.__notes__[-1]


def test_T03_what_counts_as_an_ongoing_transaction() -> None:
    assert {
        TransactionState.IN_TRANSACTION,
        TransactionState.COMMITTING,
        TransactionState.ABORTING,
        TransactionState.ABORTABLE_ERROR,
    } == ONGOING


def test_T04_nothing_goes_to_a_partition_before_it_is_added() -> None:
    tx = Transacting(1, partitions=3).ready().script("AddPartitionsToTxn", "wait")
    ok(tx.begin())
    tx.put("a0", partition=0)
    tx.put("a1", partition=1)
    tx.run()
    assert added(tx) == [(TOPIC, [0, 1])]
    tx.send("a2", partition=2)
    assert not tx.waiting
    tx.answer_held()
    assert sorted(tx.waiting) == ["a0", "a1", "a2"]
    assert added(tx) == [(TOPIC, [2])]
    assert tx.apis() == [*STARTED, "AddPartitionsToTxn", "AddPartitionsToTxn"]
    assert tx.last("AddPartitionsToTxn").version == 3


def lane_takes(tx: Transacting, partition: int) -> bool:
    """True if the lane may send to the partition, to which a batch was sent before."""
    sequences = tx.transactions._sequences
    transaction = sequences.lane_transaction
    return sequences.drains_new and transaction in (0, tx.state(partition).transaction)


def test_T04_the_lane_sends_to_partitions_that_are_added() -> None:
    tx = Transacting(1, partitions=2).ready()
    assert not tx.transactions._sequences.drains_new
    tx.delivered("a")
    assert lane_takes(tx, 0)
    tx.script("AddPartitionsToTxn", "wait")
    tx.send("b", partition=1)
    assert (lane_takes(tx, 0), lane_takes(tx, 1)) == (True, False)
    tx.answer_held()
    assert lane_takes(tx, 1)
    tx.answer(b=OK)
    ok(tx.commit())
    assert not lane_takes(tx, 0)
    ok(tx.begin())
    assert not lane_takes(tx, 0)  # it is not in this transaction yet


@BOTH
def test_T04_an_abort_keeps_a_late_addition_from_the_lane(version: int) -> None:
    tx = Transacting(version, partitions=2).delivered("a").script("AddPartitionsToTxn", "wait")
    tx.send("b", partition=1)
    call = tx.abort()
    assert not tx.transactions._sequences.drains_new
    if version == 1:
        tx.answer_held()
        assert not lane_takes(tx, 1)
    else:
        tx.answer(b=OK)
    ok(call)


def test_T05_batches_of_the_lane_are_a_part_of_the_transaction() -> None:
    tx = Transacting(2).ready()
    ok(tx.begin())
    tx.put("a")
    batches, sequences = tx.accumulator.batches(TOPIC, 0), tx.transactions._sequences
    assert (sequences.drains_new, sequences.lane_transaction) == (True, 0)
    sequences.note_sent(batches)
    assert (sequences.partitions, sequences.has_begun) == ({(TOPIC, 0)}, False)
    sequences.note_acknowledged(batches)
    assert sequences.has_begun


@pytest.mark.parametrize(("version", "produced"), [(1, 11), (2, 13)])
def test_T05_a_commit_follows_what_the_lane_has_sent(version: int, produced: int) -> None:
    tx = Transacting(version).delivered("a")
    if version == 2:  # a transaction of which the engine has sent nothing
        ok(tx.commit())
        ok(tx.begin())
    tx.with_lane().send("b")
    assert not tx.waiting
    tx.lend_once()
    (asked,) = tx.waiting_requests
    assert (asked.request.version, tx.waiting) == (produced, ["b"])
    call = tx.commit()
    assert not call.is_done
    tx.answer(b=OK)
    ok(call)
    assert tx.offset("b") == 1
    assert tx.apis().count("EndTxn") == version


def test_T05_under_version_2_nothing_is_added_beforehand() -> None:
    tx = Transacting(2).begun("a")
    tx.offsets()
    assert tx.transactions._sequences.partitions == {(TOPIC, 0)}
    tx.answer(a=OK)
    ok(tx.commit())
    assert tx.apis() == [*STARTED, "FindCoordinator", "TxnOffsetCommit", "EndTxn"]
    assert (tx.last("TxnOffsetCommit").version, tx.last("EndTxn").version) == (5, 5)


@pytest.mark.parametrize(("version", "produced"), [(None, 11), (1, 11), (2, 13)])
def test_T05_the_version_of_produce_is_that_of_transactions(version: int | None, produced: int) -> None:
    tx = Transacting(version).begun("a")
    (asked,) = tx.waiting_requests
    assert asked.request.version == produced
    message: Any = asked.request.message
    assert message.transactional_id == "tx"


def test_T06_epoch_of_response_is_adopted_and_sequences_restart() -> None:
    tx = Transacting(2).delivered("a", "b")
    assert [tx.stamp("a"), tx.stamp("b")] == [(4242, 0, 0), (4242, 0, 1)]
    ok(tx.commit())
    tx.delivered("c")
    assert tx.stamp("c") == (4242, 1, 0)
    tx.script("EndTxn", messages.EndTxnResponse(producer_id=77, producer_epoch=0))
    ok(tx.abort())
    tx.delivered("d")
    assert tx.stamp("d") == (77, 0, 0)


def test_T06_under_version_1_sequences_go_on() -> None:
    tx = Transacting(1).delivered("a", "b")
    ok(tx.commit())
    tx.delivered("c")
    ok(tx.abort())
    tx.delivered("d")
    assert [tx.stamp(name)[1:] for name in "abcd"] == [(0, 0), (0, 1), (0, 2), (0, 3)]


def test_T07_the_version_changes_between_transactions_only() -> None:
    tx = Transacting(1).delivered("a")
    tx.version, tx.features_epoch = 2, 2
    tx.drop(COORDINATOR)
    since = len(tx.said)
    call = tx.commit()
    tx.advance(1000)
    ok(call)
    assert tx.last("EndTxn").version == 4
    assert tx.apis(since)[-2:] == ["EndTxn", "InitProducerId"]
    bump = tx.last("InitProducerId").message
    assert (bump.producer_id, bump.producer_epoch) == (4242, 0)
    tx.delivered("b")
    ok(tx.commit())
    assert tx.stamp("b") == (4242, 1, 0)
    assert tx.last("EndTxn").version == 5


def test_T07_back_to_version_1_and_older_features_do_not_count() -> None:
    tx = Transacting(2).delivered("a")
    tx.version, tx.features_epoch = 1, 0
    tx.drop(COORDINATOR)
    call = tx.commit()
    tx.advance(1000)
    ok(call)
    assert tx.transactions._sequences.transaction_version == 2
    tx.delivered("b")
    tx.features_epoch = 2
    tx.drop(COORDINATOR)
    call = tx.commit()
    tx.advance(1000)
    ok(call)
    assert tx.last("EndTxn").version == 5
    tx.delivered("c")
    assert tx.apis()[-1] == "AddPartitionsToTxn"
    assert tx.stamp("c") == (4242, 2, 0)


def test_T08_completing_transaction_is_retried_after_20_ms() -> None:
    tx = Transacting(1, partitions=2).ready().script("AddPartitionsToTxn", CONCURRENT, OK, CONCURRENT)
    tx.begun("a")
    tx.advance(19)
    assert not tx.waiting
    tx.advance(1)
    assert tx.waiting == ["a"]
    tx.send("b", partition=1)
    tx.advance(BACKOFF_MS - 1)
    assert tx.waiting == ["a"]
    tx.advance(1)
    assert tx.waiting == ["a", "b"]


@pytest.mark.parametrize("api", ["InitProducerId", "AddOffsetsToTxn", "EndTxn"])
def test_T08_others_try_again_too(api: str) -> None:
    tx = Transacting(1).script(api, CONCURRENT, CONCURRENT)
    first = tx.init()
    tx.advance(1000)
    ok(first)
    tx.begun("a")
    tx.offsets()
    tx.answer(a=OK)
    tx.advance(1000)
    last = tx.commit()
    tx.advance(1000)
    ok(last)
    assert tx.apis().count(api) == 3


def test_T09_in_flight_continues_after_an_error_nothing_new_does() -> None:
    tx = Transacting(1, partitions=3).delivered("w")
    tx.script("AddPartitionsToTxn", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    tx.send("a", partition=0)
    tx.put("b", partition=1)
    tx.run()
    assert tx.at is TransactionState.ABORTABLE_ERROR
    tx.answer(a=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    tx.put("c", partition=0)
    tx.run()
    assert isinstance(tx.error("c"), TransactionAbortedError)
    tx.back_off()
    assert tx.waiting == ["a"]


def test_T09_nothing_goes_after_a_fatal_error() -> None:
    tx = Transacting(1, partitions=2).begun("a")
    tx.script("AddPartitionsToTxn", ErrorCode.PRODUCER_FENCED)
    tx.send("b", partition=1)
    assert isinstance(tx.error("a"), ProducerFencedError)
    assert isinstance(tx.error("b"), ProducerFencedError)
    tx.answer(a=OK)
    assert tx.is_whole


def test_T10_requests_are_in_order_and_the_end_follows_batches() -> None:
    tx = Transacting(1, partitions=2, linger_ms=1000, batch_size=1000).ready()
    tx.script("AddPartitionsToTxn", "wait")
    ok(tx.begin())
    tx.send("a")
    tx.offsets()
    call = tx.commit()  # from here on nothing lingers
    assert tx.apis()[2:] == ["AddOffsetsToTxn", "FindCoordinator", "TxnOffsetCommit", "AddPartitionsToTxn"]
    assert not tx.waiting
    tx.answer_held()
    assert tx.waiting == ["a"]
    assert "EndTxn" not in tx.apis()
    tx.answer(a=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    tx.back_off()
    assert "EndTxn" not in tx.apis()
    tx.answer(a=OK)
    ok(call)
    assert tx.last("EndTxn").message.committed


@pytest.mark.parametrize("what", ["drop", ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
@pytest.mark.parametrize("api", ["InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn"])
def test_T11_the_coordinator_is_found_again(api: str, what: Any) -> None:
    tx = Transacting(1).script(api, what)
    calls = [tx.init()]
    tx.advance(1000)
    tx.coordinators[1] = 1
    calls.append(tx.begin())
    tx.send("a")
    calls.append(tx.offsets())
    tx.advance(1000)
    tx.answer(a=OK)
    calls.append(tx.commit())
    tx.advance(1000)
    for call in calls:
        ok(call)
    at = tx.apis().index(api)
    assert tx.apis()[at : at + 3] == [api, "FindCoordinator", api]
    assert tx.apis().count(api) == 2


def test_T11_same_coordinator_is_retried_while_it_loads() -> None:
    tx = Transacting().script("InitProducerId", *[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 3)
    call = tx.init()
    tx.advance(3 * BACKOFF_MS)
    ok(call)
    assert tx.apis() == ["FindCoordinator", *["InitProducerId"] * 4]


def test_T11_a_coordinator_that_is_down_is_looked_for_again() -> None:
    tx = Transacting().delivered("a")
    tx.cut_off(COORDINATOR)
    call = tx.commit()
    tx.advance(3000)
    assert not call.is_done
    assert tx.apis()[2:] and set(tx.apis()[2:]) == {"FindCoordinator"}
    tx.coordinators[1] = 1
    tx.advance(3000)
    ok(call)


@BOTH
def test_T11_the_group_has_a_coordinator_of_its_own(version: int) -> None:
    codes = [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE]
    tx = Transacting(version).begun().script("TxnOffsetCommit", *codes, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    since = len(tx.said)
    call = tx.offsets()
    tx.advance(1000)
    ok(call)
    expected = ["FindCoordinator", "TxnOffsetCommit"] * 4 + ["TxnOffsetCommit"]
    assert tx.apis(since)[-9:] == expected
    found = [s.message.key_type for s in tx.said[since:] if s.api == "FindCoordinator"]
    assert found == [0, 0, 0, 0]
    assert tx.last("TxnOffsetCommit").node_id == GROUP_COORDINATOR


def test_T15_abort_fails_unsent_batches_without_new_requests() -> None:
    tx = Transacting(2, linger_ms=1000, batch_size=1000).begun().send("a")
    ok(tx.abort())
    assert isinstance(tx.error("a"), TransactionAbortedError)
    assert not tx.error("a").possibly_persisted
    assert tx.apis() == STARTED
    assert tx.is_whole


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.TRANSACTION_ABORTABLE])
def test_T15_T19_a_partition_that_was_refused_needs_no_end(code: int) -> None:
    tx = Transacting(1).ready().script("AddPartitionsToTxn", code)
    tx.begun("a")
    error = failed(tx.commit())
    assert error.code == code
    assert error.abortable
    assert "t-0" in str(error)
    assert isinstance(tx.error("a"), TransactionAbortedError)
    ok(tx.abort())
    assert "EndTxn" not in tx.apis()
    tx.delivered("b")
    ok(tx.commit())


def test_T15_what_was_sent_is_waited_for() -> None:
    tx = Transacting(2).delivered("w").send("a", "b")
    call = tx.abort()
    tx.answer(a=OK)
    assert not call.is_done
    tx.answer(b=OK)
    ok(call)
    assert (tx.offset("a"), tx.offset("b")) == (1, 2)
    assert tx.apis()[2:] == ["EndTxn"]
    assert not tx.last("EndTxn").message.committed


def test_T16_an_abort_does_not_wait_for_what_was_refused() -> None:
    tx = Transacting(1).ready().script("AddPartitionsToTxn", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    tx.begun("a")
    ok(tx.abort())
    assert tx.apis()[2:] == ["AddPartitionsToTxn"]  # no coordinator knows of the transaction
    assert isinstance(tx.error("a"), TransactionAbortedError)


@pytest.mark.parametrize(
    "code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
)
def test_T16_abort_repeats_requests_of_unknown_outcome_once(code: int) -> None:
    """The refused partition may have been added before: the abort is sent, and may find nothing."""
    tx = Transacting(1).ready().script("AddPartitionsToTxn", "drop", *[code] * 100)
    tx.begun("a")
    call = tx.abort()
    assert not call.is_done
    tx.back_off()
    tx.back_off()
    ok(call)
    asked = [api for api in tx.apis() if api != "FindCoordinator"]
    assert asked[1:] == ["AddPartitionsToTxn", "AddPartitionsToTxn", "EndTxn"]


UNAVAILABLE = [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 100


@BOTH
def test_T16_an_abort_ends_the_search_for_a_groups_coordinator(version: int) -> None:
    tx = Transacting(version).delivered("a").script("FindCoordinator", *UNAVAILABLE)
    offsets = tx.offsets()
    tx.back_off()
    assert not offsets.is_done
    ok(tx.abort())
    assert isinstance(failed(offsets), TransactionAbortedError)
    assert tx.apis()[-1] == "EndTxn"
    assert "TxnOffsetCommit" not in tx.apis()
    since = len(tx.said)
    tx.begun("b")
    tx.answer(b=OK)
    ok(tx.commit())
    assert "FindCoordinator" not in tx.apis(since)


def test_T16_a_search_that_is_out_is_not_repeated_after_an_abort() -> None:
    tx = Transacting(2).delivered("a").script("FindCoordinator", "wait")
    offsets = tx.offsets()
    abort = tx.abort()
    assert isinstance(failed(offsets), TransactionAbortedError)
    tx.script("FindCoordinator", *UNAVAILABLE)
    tx.answer_held(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    ok(abort)
    assert tx.apis()[-2:] == ["FindCoordinator", "EndTxn"]


@BOTH
@pytest.mark.parametrize(
    "answer", ["drop", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR]
)
def test_T16_an_abort_does_not_wait_for_offsets_without_end(version: int, answer: Any) -> None:
    """The offsets may be in the transaction, which is aborted."""
    tx = Transacting(version).delivered("a").script("TxnOffsetCommit", "drop", *[answer] * 100)
    offsets = tx.offsets()
    tx.script("FindCoordinator", OK, *UNAVAILABLE)
    abort = tx.abort()
    for _ in range(5):
        tx.back_off()
    ok(abort)
    assert failed(offsets) is not None
    assert "EndTxn" in tx.apis()


def test_T16_unauthorized_group_is_requested_once() -> None:
    tx = (
        Transacting(2).delivered("a").script("FindCoordinator", *[ErrorCode.GROUP_AUTHORIZATION_FAILED] * 100)
    )
    offsets = tx.offsets()
    tx.back_off()
    assert failed(offsets).code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert tx.apis().count("FindCoordinator") == 2  # the transaction's was before
    ok(tx.abort())


def test_T16_a_batch_is_sent_again_before_the_abort() -> None:
    tx = Transacting(2).begun("a")
    call = tx.abort()
    tx.answer(a=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert not call.is_done
    tx.back_off()
    tx.answer(a=OK)
    ok(call)
    assert tx.offset("a") == 0


def test_T16_abort_continues_after_errors_unless_fatal() -> None:
    for code, is_fatal in ((ErrorCode.GROUP_AUTHORIZATION_FAILED, False), (ErrorCode.PRODUCER_FENCED, True)):
        tx = Transacting(1).begun().script("AddOffsetsToTxn", "wait")
        offsets = tx.offsets()
        abort = tx.abort()
        assert not abort.is_done
        tx.answer_held(code)
        assert failed(offsets).code == code
        if is_fatal:
            assert isinstance(failed(abort), ProducerFencedError)
        else:
            ok(abort)


def test_T17_an_abort_after_a_failed_batch_brings_a_new_epoch() -> None:
    tx = Transacting(1).delivered("a").send("b")
    tx.answer(b=ErrorCode.MESSAGE_TOO_LARGE)
    since = len(tx.said)
    ok(tx.abort())
    assert tx.apis(since) == ["EndTxn", "InitProducerId"]
    request = tx.last("InitProducerId").message
    assert (request.producer_id, request.producer_epoch) == (4242, 0)
    tx.delivered("c")
    assert tx.stamp("c") == (4242, 1, 0)


OLD = {messages.InitProducerIdRequest.api_key: (0, 2)}


def test_T17_without_new_epochs_an_abort_keeps_the_sequences() -> None:
    tx = Transacting(None, versions=OLD).delivered("a").send("b")
    tx.answer(b=ErrorCode.MESSAGE_TOO_LARGE)
    ok(tx.abort())
    assert tx.apis()[-1] == "EndTxn"
    tx._bytes.clear()  # the sequence of the refused batch is given again
    tx.delivered("c")
    assert tx.stamp("c") == (4242, 0, 1)


def test_T17_without_new_epochs_what_may_be_in_the_log_is_fatal() -> None:
    tx = Transacting(None, versions=OLD, delivery_timeout_ms=31_000).begun("a")
    tx.advance(32_000)
    assert tx.at is TransactionState.FATAL_ERROR
    assert tx.error("a").possibly_persisted


def test_T17_delivery_error_is_fatal_if_the_producer_is_over() -> None:
    tx = Transacting(None, versions=OLD, delivery_timeout_ms=31_000).begun("a").send("b")
    tx.advance(32_000)
    for name in "ab":
        assert (tx.error(name).fatal, tx.error(name).abortable) == (True, False)


EXPIRING: dict[str, Any] = {"delivery_timeout_ms": 31_000}
LINGERING: dict[str, Any] = {"linger_ms": 1000, "batch_size": 1000}


def expired_in_flight(version: int) -> Transacting:
    tx = Transacting(version, **EXPIRING).begun("a")
    tx.advance(32_000)
    return tx


def expired_unsent(version: int) -> Transacting:
    tx = Transacting(version, **EXPIRING).begun()
    tx.cut_off(1)
    tx.send("a").advance(32_000)
    return tx


def without_retries(version: int) -> Transacting:
    tx = Transacting(version, retries=1).begun("a")
    for _ in range(2):
        tx.answer(a=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        tx.back_off()
    return tx


def purged(version: int, *, is_sent: bool) -> Transacting:
    tx = Transacting(version, **({} if is_sent else LINGERING)).begun("a")
    tx.engine.purge(PurgedError("purged"), queued=True, in_flight=True)
    tx.run()
    return tx


def beside_a_faulty_record(version: int) -> Transacting:
    tx = Transacting(version, batch_size=16384).begun()
    tx.put("faulty", "a")
    tx.run()
    tx.answer(faulty=Reply(ErrorCode.INVALID_RECORD, records={0: "no key"}))
    assert tx.error("faulty").abortable and "no key" in str(tx.error("faulty"))
    return tx


def after_a_failed_record(version: int, **settings: Any) -> Transacting:
    tx = Transacting(version, **settings).delivered("w").send("first")
    tx.put("a")
    tx.answer(first=TOO_LARGE)
    return tx


# Ways in which record "a" of an open transaction fails without an answer about it, and its error.
FAILURES: dict[str, tuple[Callable[[int], Transacting], type[KafkaError]]] = {
    "expired in flight": (expired_in_flight, KafkaTimeoutError),
    "expired unsent": (expired_unsent, KafkaTimeoutError),
    "no retries left": (without_retries, NotLeaderOrFollowerError),
    "purged in flight": (partial(purged, is_sent=True), PurgedError),
    "purged unsent": (partial(purged, is_sent=False), PurgedError),
    "beside a faulty record": (beside_a_faulty_record, KafkaError),
    "after a failed record": (after_a_failed_record, TransactionAbortedError),
    "stopped by a failed record": (
        partial(after_a_failed_record, kbatch_on_delivery_failure="stop"),
        KafkaError,
    ),
}


@BOTH
@pytest.mark.parametrize("way", FAILURES)
def test_T13_delivery_error_is_abortable_as_that_of_the_commit(version: int, way: str) -> None:
    fail, kind = FAILURES[way]
    tx = fail(version)
    error = tx.error("a")
    assert isinstance(error, kind)
    for each in (error, pickle.loads(pickle.dumps(error)), DeliveryError(1, error)):
        assert (each.fatal, each.abortable) == (False, True)
    assert tx.at is TransactionState.ABORTABLE_ERROR
    assert failed(tx.commit()).abortable


@BOTH
def test_T13_delivery_error_in_an_abort_is_not_abortable(version: int) -> None:
    tx = Transacting(version).begun("sent")
    tx.put("unsent")
    call = tx.abort()
    tx.answer(sent=TOO_LARGE)
    ok(call)
    for name in ("sent", "unsent"):
        assert not tx.error(name).abortable and not tx.error(name).fatal


def test_T18_stale_epoch_is_abortable_in_produce_else_fenced() -> None:
    tx = Transacting(2).begun("a")
    tx.answer(a=ErrorCode.INVALID_PRODUCER_EPOCH)
    assert tx.at is TransactionState.ABORTABLE_ERROR
    tx.script("EndTxn", ErrorCode.INVALID_PRODUCER_EPOCH)
    error = failed(tx.abort())
    assert isinstance(error, ProducerFencedError)
    assert error.fatal
    assert "transactional.id=tx" in str(error)


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING])
def test_T18_some_answers_to_produce_are_fatal(code: int) -> None:
    tx = Transacting(2).begun("a")
    tx.answer(a=code)
    assert tx.at is TransactionState.FATAL_ERROR
    assert failed(tx.commit()).code == code


def test_T19_error_names_topics_despite_unattempted_ones() -> None:
    tx = Transacting(1, partitions=2).ready()
    kind = messages.AddPartitionsToTxnResponse
    codes = (ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    parts = [
        kind.AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
        for index, code in enumerate(codes)
    ]
    topic = kind.AddPartitionsToTxnTopicResult(name=TOPIC, results_by_partition=parts)
    tx.script("AddPartitionsToTxn", kind(results_by_topic_v3_and_below=[topic]))
    ok(tx.begin())
    tx.put("a", partition=0)
    tx.put("b", partition=1)
    tx.run()
    error = failed(tx.commit())
    assert isinstance(error, TopicAuthorizationError)
    assert "t-1" in str(error)
    assert "t-0" not in str(error)


@BOTH
@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, KafkaError),
        (ErrorCode.FENCED_INSTANCE_ID, KafkaError),
        (ErrorCode.UNKNOWN_MEMBER_ID, CommitFailedError),
        (ErrorCode.ILLEGAL_GENERATION, CommitFailedError),
    ],
)
def test_T20_a_consumer_that_lost_its_group_can_only_abort(version: int, code: int, kind: Any) -> None:
    tx = Transacting(version).delivered("a").script("TxnOffsetCommit", code)
    error = failed(tx.offsets(MEMBER))
    assert isinstance(error, kind)
    assert error.abortable
    assert type(failed(tx.commit())) is type(error)
    ok(tx.abort())
    ok(tx.begin())
    ok(tx.offsets(MEMBER))
    ok(tx.commit())


@pytest.mark.parametrize(
    "code",
    [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT],
)
def test_T20_what_ends_the_producer(code: int) -> None:
    tx = Transacting().begun().script("TxnOffsetCommit", code)
    error = failed(tx.offsets())
    assert error.code == code
    assert error.fatal
    assert tx.at is TransactionState.FATAL_ERROR


@pytest.mark.parametrize(
    "api", ["FindCoordinator", "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit"]
)
def test_T21_transaction_abortable_is(api: str) -> None:
    tx = Transacting(1).script(api, ErrorCode.TRANSACTION_ABORTABLE)
    call = tx.init()
    if api in STARTED:
        assert isinstance(failed(call), TransactionAbortableError)
    else:
        tx.begun("a")
        if tx.waiting:
            tx.answer(a=OK)
        tx.offsets()
    assert tx.at is TransactionState.ABORTABLE_ERROR
    ok(tx.abort())
    tx.delivered("b")
    ok(tx.commit())


def test_T21_it_is_abortable_in_commit_and_fatal_in_abort() -> None:
    tx = Transacting().delivered("a").script("EndTxn", *[ErrorCode.TRANSACTION_ABORTABLE] * 2)
    assert isinstance(failed(tx.commit()), TransactionAbortableError)
    assert tx.transactions.state is TransactionState.ABORTABLE_ERROR
    error = failed(tx.abort())
    assert error.fatal
    assert tx.at is TransactionState.FATAL_ERROR


def test_T22_the_membership_goes_with_the_offsets() -> None:
    tx = Transacting().begun()
    ok(tx.offsets(MEMBER))
    message = tx.last("TxnOffsetCommit").message
    assert (message.generation_id, message.member_id, message.group_instance_id) == (3, "m", "i")
    (topic,) = message.topics
    parts = [(p.partition_index, p.committed_offset, p.committed_leader_epoch) for p in topic.partitions]
    assert (topic.name, parts) == ("source", [(0, 5, 1), (1, 6, -1)])


def test_T22_a_broker_that_cannot_check_it_is_too_old() -> None:
    tx = Transacting(None, versions={messages.TxnOffsetCommitRequest.api_key: (0, 2)}).begun()
    assert isinstance(failed(tx.offsets(MEMBER)), UnsupportedVersionError)
    assert tx.at is TransactionState.FATAL_ERROR
    tx = Transacting(None, versions={messages.TxnOffsetCommitRequest.api_key: (0, 2)}).begun()
    ok(tx.offsets())


def test_T23_partition_finishes_old_epoch_before_the_new_one() -> None:
    tx = Transacting(1, partitions=2).begun("a").send("b", partition=1)
    tx.answer(a=ErrorCode.MESSAGE_TOO_LARGE)
    call = tx.abort()
    tx.answer(b=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    tx.back_off()
    assert tx.stamp("b") == (4242, 0, 0)
    tx.answer(b=OK)
    ok(call)
    assert tx.apis()[-2:] == ["EndTxn", "InitProducerId"]


def test_T24_the_end_of_the_engine_is_that_of_all_calls() -> None:
    tx = Transacting().script("EndTxn", "wait").delivered("a")
    call = tx.commit()
    tx.engine.fail(ProducerClosedError("closed"))
    assert isinstance(failed(call), ProducerClosedError)


def test_T25_a_fatal_error_stays_what_it_is() -> None:
    tx = Transacting(2).begun("a")
    tx.script("TxnOffsetCommit", ErrorCode.PRODUCER_FENCED)
    tx.offsets()
    tx.answer(a=ErrorCode.MESSAGE_TOO_LARGE)
    assert tx.at is TransactionState.FATAL_ERROR
    assert isinstance(failed(tx.abort()), ProducerFencedError)
    assert tx.is_whole


def test_T26_a_refused_record_makes_the_transaction_abortable() -> None:
    tx = Transacting().delivered("a")
    error = KafkaError("not in the transaction")
    tx.engine.submit(lambda now_ns: tx.transactions.refuse(error, now_ns))
    call = tx.commit()
    assert "not in the transaction" in str(failed(call))
    ok(tx.abort())


@BOTH
def test_T28_empty_transaction_sends_no_request(version: int) -> None:
    tx = Transacting(version)
    for end in (tx.commit, tx.abort):
        tx.begun()
        ok(tx.offsets(offsets={}))
        ok(end())
    assert tx.apis() == STARTED


# Transactions: what becomes of batches, sequences and epochs when something fails.

TOO_LARGE = ErrorCode.MESSAGE_TOO_LARGE
UNKNOWN_PRODUCER = ErrorCode.UNKNOWN_PRODUCER_ID
SHORT = {"delivery_timeout_ms": 31_000, "request_timeout_ms": 30_000}


def test_T07_change_is_learnt_from_metadata_too() -> None:
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
    """End a transaction, then change the cluster's version, as metadata report it."""
    tx = Transacting(before, metadata_max_age_ms=60_000, **settings).delivered("a")
    ok(tx.commit())
    tx.version, tx.features_epoch = after, 2
    tx.advance(60_000)
    return tx


def test_T07_higher_version_at_begin_applies_with_a_new_epoch() -> None:
    tx = changed_while_idle(1, 2)
    assert tx.apis()[-1] == "EndTxn"  # nothing was requested meanwhile
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


def test_T07_lower_version_known_at_begin_applies() -> None:
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
def test_T07_begin_reports_the_outcome_of_the_new_epoch(code: int) -> None:
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
def test_T07_transaction_may_end_while_awaiting_the_new_epoch(ends: str) -> None:
    """Abort, as close() does when begin_transaction() has timed out."""
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
def test_T13_failed_batch_fails_the_commit_and_abort_recovers(version: int) -> None:
    tx = Transacting(version).delivered("w").send("a")
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
def test_T13_batches_expired_during_commit_prevent_it(version: int) -> None:
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
def test_T14_errors_not_about_the_record_fail_the_transaction(code: int) -> None:
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


def test_T08_first_batches_are_retried_soon_under_version_2() -> None:
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
    tx = Transacting(1, partitions=2).delivered("a0").send("a1", partition=1)
    tx.answer(a1=OK)
    tx.send("b")
    tx.answer(b=TOO_LARGE)
    ok(tx.abort())
    tx.delivered("c0", partition=0)
    tx.send("c1", partition=1)
    assert [tx.stamp("c0"), tx.stamp("c1")] == [(4242, 1, 0), (4242, 1, 0)]


def test_I07_what_follows_a_refused_batch_moves_up() -> None:
    tx = Transacting(1).delivered("w").send("a", "b", "c")
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
def test_I08_gap_fails_the_transaction_without_a_new_epoch(version: int) -> None:
    tx = Transacting(version).delivered("w").send("a")
    tx.answer(a=OUT_OF_ORDER)
    assert isinstance(tx.error("a"), OutOfOrderSequenceError)
    assert tx.at is TransactionState.ABORTABLE_ERROR
    assert tx.apis().count("InitProducerId") == 1
    assert failed(tx.commit()).code == OUT_OF_ORDER
    ok(tx.abort())
    tx.delivered("b")
    assert tx.stamp("b") == (4242, 1, 0)


@BOTH
def test_I20_new_epoch_settles_batches_expired_after_sending(version: int) -> None:
    tx = Transacting(version, **SHORT).delivered("w").send("a", "b")
    tx.advance(32_000)
    assert tx.error("a").possibly_persisted
    assert tx.at is TransactionState.ABORTABLE_ERROR
    call = tx.abort()
    tx.advance(1000)
    assert not call.is_done  # until no node can answer any more
    tx.advance(30_000)
    ok(call)
    tx.delivered("c")
    assert tx.stamp("c") == (4242, 1, 0)
    assert tx.is_whole


@BOTH
def test_I22_a_forgotten_producer_can_abort_and_go_on(version: int) -> None:
    tx = Transacting(version).delivered("w").send("a")
    tx.answer(a=Reply(UNKNOWN_PRODUCER, log_start=5))
    assert tx.error("a").code == UNKNOWN_PRODUCER
    assert failed(tx.commit()).code == UNKNOWN_PRODUCER
    ok(tx.abort())
    tx.delivered("b")
    assert tx.stamp("b") == (4242, 1, 0)


def test_end_waits_for_the_response_of_an_abandoned_batch() -> None:
    tx = Transacting(2).delivered("w").send("a")
    tx.engine.purge(PurgedError("purged"), queued=True, in_flight=True)
    call = tx.abort()
    assert tx.error("a").possibly_persisted
    assert "EndTxn" not in tx.apis()
    tx.drop()
    tx.advance(1000)
    ok(call)


def test_a_purge_in_a_transaction_makes_it_abortable() -> None:
    tx = Transacting(2, linger_ms=1000, batch_size=1000).begun().send("a")
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


def test_aborted_init_requests_a_producer_id_again() -> None:
    tx = Transacting().script("InitProducerId", ErrorCode.TRANSACTION_ABORTABLE)
    failed(tx.init())
    ok(tx.abort())
    assert tx.at is TransactionState.READY
    assert tx.transactions._sequences.identity == Identity(4242, 0)
    tx.delivered("a")
    ok(tx.commit())


def test_new_epoch_is_requested_again_after_abortable_error() -> None:
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
def test_refusal_after_an_unanswered_attempt_is_aborted(api: str, found: int) -> None:
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
def test_a_commit_that_the_coordinator_has_aborted_leads_to_an_abort(version: int) -> None:
    tx = Transacting(version).delivered("a").script("EndTxn", ErrorCode.INVALID_TXN_STATE)
    error = failed(tx.commit())
    assert isinstance(error, TransactionAbortableError)
    assert (error.abortable, error.fatal) == (True, False)
    ok(tx.abort())
    tx.delivered("b")
    ok(tx.commit())


@pytest.mark.parametrize("code", [ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE])
def test_an_abort_that_is_refused_is_fatal_and_not_abortable(code: int) -> None:
    """Its remedy would be an abort."""
    tx = Transacting(2).delivered("a").script("EndTxn", code)
    error = failed(tx.abort())
    assert (error.abortable, error.fatal) == (False, True)
    assert "abort it" not in str(error) or code == ErrorCode.TRANSACTION_ABORTABLE
    assert "recreate()" in error.__notes__[-1]


@pytest.mark.parametrize("what", ["drop", ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
@pytest.mark.parametrize("version", [1, 2])
def test_commit_of_unknown_outcome_is_retried_until_known(version: int, what: Any) -> None:
    """A coordinator that is replaced while it stores the commit refuses it, and the next one may have it."""
    tx = Transacting(version).delivered("a").script("EndTxn", what)
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


def test_commit_succeeds_though_coordinator_is_not_found_again() -> None:
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


def test_abort_denied_a_new_epoch_can_be_called_again() -> None:
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


@pytest.mark.parametrize("what", ["drop", ErrorCode.NOT_COORDINATOR])
def test_additions_of_unknown_outcome_are_retried_until_known(what: Any) -> None:
    """Otherwise the coordinator would have a transaction that no producer knows."""
    tx = Transacting(1, partitions=2).delivered("w")
    tx.script("AddPartitionsToTxn", what)
    tx.put("a", partition=1)
    tx.put("b", partition=0)
    tx.run()
    tx.answer(b=TOO_LARGE)
    assert tx.at is TransactionState.ABORTABLE_ERROR
    tx.advance(1000)
    assert tx.apis().count("AddPartitionsToTxn") == 3
    assert (TOPIC, 1) in tx.transactions._sequences.partitions
    ok(tx.abort())


def test_commit_is_retried_after_a_lost_response() -> None:
    tx = Transacting(2).delivered("a").script("EndTxn", "drop", "drop")
    call = tx.commit()
    tx.advance(3000)
    ok(call)
    assert [s.message.committed for s in tx.said if s.api == "EndTxn"] == [True] * 3


def test_missing_group_coordinator_is_requested_again() -> None:
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
def test_T10_retried_offsets_stay_ahead_of_later_ones(version: int, api: str, fault: Any) -> None:
    """Else the older offsets would replace the newer ones."""
    tx = Transacting(version).begun()
    tx.script(api, fault)
    place = TopicPartition("source", 0)
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
        assert ERROR_RESPONSES[kind][30_000] is ERROR_RESPONSES[kind][ErrorCode.UNKNOWN_SERVER_ERROR]


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
    tx = Transacting(2).ready().send("a")
    assert not tx.waiting
    assert tx.engine.deadline_ns(tx.now_ns) > tx.now_ns
    assert tx.apis() == STARTED


# Transactions with stale epochs, or without new ones: what is kept and what restarts.

# Without InitProducerId for a new epoch (KIP-360).
FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)


@pytest.mark.parametrize("code", [ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TRANSACTION_ABORTABLE])
def test_T15_offsets_that_were_refused_alone_need_no_end(code: int) -> None:
    tx = Transacting(1).begun().script("AddOffsetsToTxn", code)
    assert failed(tx.offsets()).code == code
    ok(tx.abort())
    assert "EndTxn" not in tx.apis()
    tx.begun()
    ok(tx.offsets())
    ok(tx.commit())
    assert tx.last("EndTxn").message.committed


def test_T17_forgotten_partition_restarts_at_0_in_its_epoch() -> None:
    tx = Transacting(None, versions=OLD, partitions=2).delivered("a0", "a1").send("other", partition=1)
    tx.answer(other=OK)
    tx.send("b")
    assert tx.stamp("b") == (4242, 0, 2)
    tx.answer(b=Reply(ErrorCode.UNKNOWN_PRODUCER_ID, log_start=5))
    assert tx.at is TransactionState.ABORTABLE_ERROR
    ok(tx.abort())
    assert tx.apis()[-1] == "EndTxn"
    tx._bytes.clear()  # the sequence of the first batch is given again
    tx.begun("c")
    tx.send("next", partition=1)
    assert tx.stamp("c") == (4242, 0, 0)
    assert tx.stamp("next") == (4242, 0, 1)


@pytest.mark.parametrize("code", FENCED)
def test_T18_stale_epoch_requests_a_new_one_and_is_fenced(code: int) -> None:
    tx = Transacting(1).begun("a").script("InitProducerId", code)
    tx.answer(a=ErrorCode.INVALID_PRODUCER_EPOCH)
    assert tx.at is TransactionState.ABORTABLE_ERROR
    assert failed(tx.commit()).abortable
    since = len(tx.said)
    error = failed(tx.abort())
    assert isinstance(error, ProducerFencedError)
    assert error.fatal
    assert tx.apis(since) == ["EndTxn", "InitProducerId"]
    request = tx.last("InitProducerId").message
    assert (request.producer_id, request.producer_epoch) == (4242, 0)


def test_T18_stale_epoch_without_a_rival_is_replaced() -> None:
    tx = Transacting(1).begun("a")
    tx.answer(a=ErrorCode.INVALID_PRODUCER_EPOCH)
    ok(tx.abort())
    tx.delivered("b")
    ok(tx.commit())
    assert tx.stamp("b") == (4242, 1, 0)


def test_T25_what_was_never_sent_leaves_nothing_to_be_settled() -> None:
    """Neither a new epoch nor a gap in the sequences."""
    tx = Transacting(1, delivery_timeout_ms=31_000, request_timeout_ms=30_000).delivered("a")
    tx.leaders[0] = -1
    tx.refresh()
    tx.send("b")
    tx.advance(32_000)
    assert isinstance(tx.error("b"), KafkaTimeoutError)
    assert not tx.attempts("b")
    assert not tx.error("b").possibly_persisted
    assert tx.at is TransactionState.ABORTABLE_ERROR
    tx.leaders[0] = 1
    tx.refresh()
    since = len(tx.said)
    ok(tx.abort())
    assert tx.apis(since) == ["EndTxn"]
    tx.begun("c")
    tx.advance(1000)  # until the leader is known
    tx.answer(c=OK)
    assert tx.stamp("c") == (4242, 0, 1)


def test_T25_fatal_error_is_not_replaced_by_later_failures() -> None:
    tx = Transacting(1, partitions=2).begun("a").send("b", partition=1)
    tx.answer(a=ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    tx.drop()
    tx.advance(1000)
    assert tx.at is TransactionState.FATAL_ERROR
    for call in (tx.commit(), tx.abort(), tx.begin(), tx.offsets()):
        assert failed(call).code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert tx.is_whole
