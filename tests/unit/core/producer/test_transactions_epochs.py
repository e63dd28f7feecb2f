"""Transactions: what is kept and what begins anew where epochs are stale, or there are no new ones."""

from __future__ import annotations

import pytest

from kbatch.core.producer.transaction_states import TransactionState
from kbatch.errors import ErrorCode, KafkaTimeoutError, ProducerFencedError
from kbatch.protocol import messages
from tests.unit.sending import OK, Reply
from tests.unit.transacting import Transacting, failed, ok

# Without InitProducerId for a new epoch (KIP-360).
OLD = {messages.InitProducerIdRequest.api_key: (0, 2)}
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


def test_T17_without_new_epochs_a_forgotten_partition_begins_at_0() -> None:
    tx = Transacting(None, versions=OLD, partitions=2).delivered("a0", "a1")
    tx.send("other", partition=1)
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
def test_T18_a_stale_epoch_leads_to_a_new_one_and_there_to_being_fenced(code: int) -> None:
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


def test_T18_a_stale_epoch_of_which_nobody_else_knows_is_left_behind() -> None:
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


def test_T25_a_fatal_error_is_not_replaced_by_batches_that_fail_behind_it() -> None:
    tx = Transacting(1, partitions=2).begun("a")
    tx.send("b", partition=1)
    tx.answer(a=ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    tx.drop()
    tx.advance(1000)
    assert tx.at is TransactionState.FATAL_ERROR
    for call in (tx.commit(), tx.abort(), tx.begin(), tx.offsets()):
        assert failed(call).code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert tx.is_whole
