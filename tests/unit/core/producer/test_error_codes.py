"""The effect of each error code on a producer without transactions, by a table written by hand.

It is that of Kafka's client (SenderTest; Sender.completeBatch, canRetry and failBatch; the classes of
Errors), and shares nothing with `kbatch.core.producer.outcomes`. Brokers have a batch of the partition
already (`warmed`).
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from kbatch import errors
from kbatch.errors import ErrorCode, error_of, row_of
from tests.support.cases import noted
from tests.support.sending import OK, PRODUCER_ID, Reply, Sending

# Outcomes of the batch.
AGAIN, BUMPED, DONE, PARTS, FAILS, ENDS = "again", "bumped", "done", "parts", "fails", "ends"

RETRIED = {2, 7, 14, 15, 16, 19, 20, 41, 51, 70, 71, 75, 78, 88, 89, 106, 122, 123, 133}
RETRIED_ELSEWHERE = {3, 5, 6, 9, 13, 56, 72, 74, 80, 83, 84, 100, 103}
LAST_CODE = max(ErrorCode)
UNKNOWN_CODES = {LAST_CODE + 1, 999, 32767}
CODES = sorted({*range(-1, LAST_CODE + 1), *UNKNOWN_CODES} - {0})


class Expected(NamedTuple):
    """The effect of a code, with idempotence and without, and whether metadata is requested."""

    idempotent: str
    plain: str
    refreshes: bool = False


SPECIAL = {
    10: Expected(PARTS, PARTS),
    31: Expected(ENDS, ENDS),
    45: Expected(BUMPED, FAILS),
    46: Expected(DONE, DONE),
    49: Expected(ENDS, ENDS),
    53: Expected(ENDS, ENDS),
    59: Expected(BUMPED, FAILS),
    90: Expected(ENDS, ENDS),
}


def expected(code: int) -> Expected:
    if code in RETRIED:
        return Expected(AGAIN, AGAIN)
    if code in RETRIED_ELSEWHERE:
        return Expected(AGAIN, AGAIN, refreshes=True)
    return SPECIAL.get(code, Expected(FAILS, FAILS))


def refused(code: int, *, idempotent: bool, records: int = 1, log_start: int = 0) -> tuple[Sending, bool]:
    """Answer b0, of this many records, with the code; return whether metadata was requested before any other
    answer.
    """
    s = Sending(enable_idempotence=idempotent, batch_size=16384).warmed()
    s.put("b0", *[f"b{number}" for number in range(1, records)])
    s.run()
    assert s.waiting == ["b0"]
    before = s.asked["Metadata"]
    s.answer(b0=Reply(code, log_start=log_start, text="what the broker says"))
    s.back_off()
    return s, s.asked["Metadata"] > before


def test_the_table_is_over_every_code() -> None:
    assert {int(code) for code in ErrorCode} - {0} == set(CODES) - UNKNOWN_CODES


def test_classes_say_what_may_be_tried_again_and_where() -> None:
    for code in CODES:
        kind = type(error_of(code))
        assert kind.retriable is row_of(code).retriable is (code in RETRIED | RETRIED_ELSEWHERE), code
        assert issubclass(kind, errors.InvalidMetadataError) is expected(code).refreshes, code
        assert row_of(code).refresh_metadata is expected(code).refreshes, code


@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
def test_what_a_code_leads_to(idempotent: bool) -> None:
    for code in CODES:
        with noted(code):
            check_consequences(code, idempotent)


def check_consequences(code: int, idempotent: bool) -> None:
    row = expected(code)
    outcome = row.idempotent if idempotent else row.plain
    s, asked = refused(code, idempotent=idempotent)
    assert asked is row.refreshes
    if outcome == DONE:
        assert s.offset("b0") == -1
    elif outcome in (AGAIN, BUMPED):
        old, new = s.attempts("b0")
        assert new.stamp == ((PRODUCER_ID, 1, 0) if outcome == BUMPED else old.stamp)
        s.answer(b0=OK)
        assert s.offset("b0") == 1
    else:
        error = s.error("b0")
        assert error.code == code
        assert str(error) == "what the broker says"
        assert len(s.attempts("b0")) == 1
    assert (s.engine.fatal_error is not None) is (outcome == ENDS)
    goes_on(s, outcome, idempotent)


def goes_on(s: Sending, outcome: str, idempotent: bool) -> None:
    """Check the outcome of the next record."""
    s.send("next")
    if outcome == ENDS:
        assert s.error("next").code == s.error("b0").code
        assert s.attempts("next") == []
        return
    s.answer(next=OK)
    if not idempotent:
        assert s.stamp("next") == (-1, -1, -1)
    elif outcome in (FAILS, PARTS):  # of a single record, which fails: its number is missing
        assert s.stamp("next") == (PRODUCER_ID, 1, 0)
    elif outcome == BUMPED:
        assert s.stamp("next") == (PRODUCER_ID, 1, 1)
    else:
        assert s.stamp("next") == (PRODUCER_ID, 0, 2)
    assert s.is_whole


@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
def test_which_codes_split_a_batch(idempotent: bool) -> None:
    for code in CODES:
        s, _ = refused(code, idempotent=idempotent, records=2)
        sizes = [batch.record_count for batch in s.sent if batch.name in ("b0", "b1")]
        was_split = sizes[:2] == [2, 1]
        row = expected(code)
        assert was_split is ((row.idempotent if idempotent else row.plain) == PARTS), code


@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
def test_I22_code_59_without_log_start_leaves_a_gap_open(idempotent: bool) -> None:
    """A new epoch does not help a batch without a place in a sequence."""
    s, _ = refused(59, idempotent=idempotent, log_start=-1)
    if idempotent:
        old, new = s.attempts("b0")
        assert new.stamp == old.stamp == (PRODUCER_ID, 0, 1)
    else:
        assert s.error("b0").code == 59
