"""Sequences of batches that expire: I16 to I21 and I28 of docs/behaviours.md.

Brokers have a first batch of the partition already (`warmed`), so that sequences and offsets go on at 1.
"""

from __future__ import annotations

from typing import Any

import pytest

from kbatch import errors
from kbatch.errors import ErrorCode
from tests.unit.sending import OK, OUT_OF_ORDER, PRODUCER_ID, Reply, Sending

TOO_FEW = ErrorCode.NOT_ENOUGH_REPLICAS
TIMED_OUT = ErrorCode.REQUEST_TIMED_OUT
# Records live for two seconds, requests for longer than that: half a second before the end is soon enough
# for a batch to go out and to expire under way.
SHORT: dict[str, Any] = {"delivery_timeout_ms": 2000, "request_timeout_ms": 2000}


def expired_in_flight(*names: str, **settings: Any) -> Sending:
    """b0 is sent late, with the batches named behind it, and is given up while its request is out."""
    s = Sending(**SHORT, **settings).warmed()
    s.cut_off()
    s.put("b0")
    s.advance(1500)
    s.put(*names)
    s.unreachable.clear()
    s.advance(500)
    assert isinstance(s.error("b0"), errors.KafkaTimeoutError)
    assert s.waiting == ["b0", *names]
    return s


def test_I16_a_batch_that_expires_unsent_has_no_sequence() -> None:
    s = Sending(**SHORT).warmed()
    s.cut_off()
    s.put("b0")
    s.advance(2000)
    assert "never sent" in str(s.error("b0"))
    assert not s.error("b0").possibly_persisted
    s.unreachable.clear()
    s.put("b1")
    s.back_off()
    assert s.stamp("b1") == (PRODUCER_ID, 0, 1)


def expired_behind_a_retry(code: int = TIMED_OUT, code_behind: int = TIMED_OUT) -> Sending:
    """b0, sent and answered by `code`, is given up, while b1 and b2 behind it are to be tried again."""
    s = Sending(**SHORT, retry_backoff_ms=600, retry_backoff_max_ms=600).warmed()
    s.cut_off()
    s.put("b0")
    s.advance(1400)
    s.put("b1", "b2")
    s.unreachable.clear()
    s.back_off()
    s.answer(b0=code, b1=code_behind, b2=code_behind)
    s.put("b3")
    s.advance(500)
    assert isinstance(s.error("b0"), errors.KafkaTimeoutError)
    assert s.error("b0").possibly_persisted == (code == TIMED_OUT)
    s.advance(200)
    return s


# What the error tells


def test_I16_the_error_of_an_unsent_batch_says_how_old_it_is_and_that_it_was_never_sent() -> None:
    s = Sending(**SHORT).warmed()
    s.cut_off()
    s.put("b0")
    s.advance(2000)
    assert str(s.error("b0")) == (
        "t-0: 1 records were not delivered in 2000 ms since their batch was opened "
        "(delivery.timeout.ms=2000); never sent"
    )


def test_I17_the_error_of_a_sent_batch_says_how_often_it_was_tried_and_what_went_wrong_last() -> None:
    text = str(expired_behind_a_retry().error("b0"))
    assert " were not delivered in 2000 ms since their batch was opened " in text
    assert f"; tried 1 times; the last error was: {errors.error_of(TIMED_OUT)}" in text


def test_I21_the_error_of_a_batch_under_way_counts_that_attempt() -> None:
    assert str(expired_in_flight().error("b0")).endswith("(delivery.timeout.ms=2000); tried 1 times")
    s = Sending(**SHORT, retry_backoff_ms=200, retry_backoff_max_ms=200).warmed()
    s.send("b0")
    s.answer(b0=TOO_FEW)
    s.advance(200)
    s.answer(b0=Reply(TIMED_OUT, text="too slow"))
    s.advance(200)
    assert s.waiting == ["b0"]
    s.advance(1600)
    assert str(s.error("b0")).endswith("; tried 3 times; the last error was: too slow")


def test_I17_behind_a_sent_batch_that_expired_only_retries_go() -> None:
    s = expired_behind_a_retry()
    assert s.waiting == ["b1"]
    assert s.stamp("b1") == (PRODUCER_ID, 0, 2)
    assert s.attempts("b3") == []


def test_I18_a_later_batch_that_is_accepted_settles_it_without_a_bump() -> None:
    s = expired_behind_a_retry()
    s.answer(b1=OK)
    assert s.waiting == ["b2", "b3"]
    assert [s.stamp(f"b{i}") for i in range(4)] == [(PRODUCER_ID, 0, i + 1) for i in range(4)]


def test_I19_when_all_behind_it_are_refused_too_it_is_settled_by_a_bump() -> None:
    """Java bumps with the first refusal, and sends again what may be in the log (decision 16)."""
    s = expired_behind_a_retry()
    s.answer(b1=OUT_OF_ORDER)
    assert s.waiting == ["b2"]
    s.answer(b2=OUT_OF_ORDER)
    assert [s.error(name).possibly_persisted for name in ("b1", "b2")] == [True, True]
    assert s.stamp("b3") == (PRODUCER_ID, 1, 0)


@pytest.mark.parametrize("code", [TIMED_OUT, TOO_FEW])
def test_I19_what_was_refused_already_need_not_be_tried_before_the_bump(code: int) -> None:
    s = expired_behind_a_retry(code, OUT_OF_ORDER)
    s.answer(b1=OK)
    s.answer(b2=OK)
    assert [s.stamp(f"b{i}") for i in range(1, 4)] == [(PRODUCER_ID, 1, i - 1) for i in range(1, 4)]


def test_I20_when_all_have_expired_the_next_batch_begins_a_new_epoch() -> None:
    s = expired_in_flight()
    s.send("b1")
    assert s.attempts("b1") == []
    s.drop()
    s.back_off()
    assert s.stamp("b1") == (PRODUCER_ID, 1, 0)
    s.answer(b1=OK)
    assert s.offset("b1") == 1


def test_I21_a_batch_that_expires_in_its_first_transmission_leaves_a_hole_too() -> None:
    """Java does not see it, and followers are refused until they expire."""
    s = expired_in_flight("b1")
    assert len(s.attempts("b0")) == 1
    assert s.error("b0").possibly_persisted
    s.send("b2")
    s.answer(b0=TOO_FEW)
    assert s.waiting == ["b1"]  # b2 waits for what becomes of b1
    s.answer(b1=OUT_OF_ORDER)
    s.back_off()
    assert s.waiting == ["b1", "b2"]
    assert (s.stamp("b1"), s.stamp("b2")) == ((PRODUCER_ID, 1, 0), (PRODUCER_ID, 1, 1))


def test_I28_a_late_success_of_an_expired_batch_still_counts() -> None:
    s = expired_in_flight()
    s.send("b1")
    s.answer(b0=OK)
    assert isinstance(s.error("b0"), errors.KafkaTimeoutError)
    assert s.state().acked_counter == 1
    assert s.stamp("b1") == (PRODUCER_ID, 0, 2)
    s.answer(b1=OK)
    assert s.offset("b1") == 2
    assert s.is_whole


def test_I28_a_batch_that_expires_behind_a_later_success_is_delivered() -> None:
    """It is in the log (decision 16); Java fails it."""
    s = Sending(**SHORT, retry_backoff_ms=3000, retry_backoff_max_ms=3000).warmed()
    s.send("b0", "b1")
    s.answer(b0=TIMED_OUT, b1=OK)
    s.advance(2000)
    assert s.offset("b0") == -1


def test_I20_batches_that_expire_together_cost_one_epoch() -> None:
    s = Sending(**SHORT, retry_backoff_ms=3000, retry_backoff_max_ms=3000).warmed()
    s.send("b0", "b1", "b2")
    s.answer(b0=TOO_FEW, b1=OUT_OF_ORDER, b2=OUT_OF_ORDER)
    s.advance(2000)
    s.send("b3")
    assert s.stamp("b3") == (PRODUCER_ID, 1, 0)
