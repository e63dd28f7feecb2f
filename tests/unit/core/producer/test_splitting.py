"""Batches that are too large for a broker: the S lines of docs/behaviours.md that concern the sender.

What a split does to bytes, sizes and estimates is tested with the accumulator (test_batch_split).
"""

from __future__ import annotations

from typing import Any

import pytest

from kbatch import errors
from kbatch.errors import ErrorCode
from tests.support.sending import OK, OUT_OF_ORDER, PRODUCER_ID, Sending

TIMED_OUT = ErrorCode.REQUEST_TIMED_OUT
TOO_FEW = ErrorCode.NOT_ENOUGH_REPLICAS
TOO_LARGE = ErrorCode.MESSAGE_TOO_LARGE
SHORT: dict[str, Any] = {"delivery_timeout_ms": 2000, "request_timeout_ms": 2000}


def sending(*names: str, **settings: Any) -> Sending:
    """Put one batch of records with these names in flight."""
    s = Sending(**{"batch_size": 16384, **settings}).warmed()
    s.put(*names)
    s.run()
    assert s.waiting == [names[0]]
    return s


def test_S01_parts_keep_sequences_and_are_sent_one_by_one() -> None:
    s = sending("b0", "b1")
    s.answer(b0=TOO_LARGE)
    assert s.waiting == ["b0"]
    assert s.next_sequence() == 3
    s.answer(b0=OK)
    assert s.waiting == ["b1"]
    s.answer(b1=OK)
    assert (s.stamp("b0"), s.stamp("b1")) == ((PRODUCER_ID, 0, 1), (PRODUCER_ID, 0, 2))
    assert (s.offset("b0"), s.offset("b1")) == (1, 2)
    s.send("b2")
    assert s.sequence("b2") == 3


def test_S01_splitting_uses_up_no_retries() -> None:
    s = sending("b0", "b1", retries=1)
    s.answer(b0=TOO_FEW)
    s.back_off()
    s.answer(b0=TOO_LARGE)
    assert s.waiting == ["b0"]  # at once: a part was never tried
    s.answer(b0=TOO_FEW)
    s.back_off()
    s.answer(b0=OK)
    assert s.offset("b0") == 1


def test_S01_parts_are_as_old_as_the_whole() -> None:
    s = sending("b0", "b1", **SHORT)
    s.advance(1900)
    s.answer(b0=TOO_LARGE)
    s.advance(100)
    for name in ("b0", "b1"):
        assert isinstance(s.error(name), errors.KafkaTimeoutError)


def test_S01_a_part_that_fails_leaves_its_hole_and_no_other() -> None:
    s = sending("b0", "b1", "b2")
    s.answer(b0=TOO_LARGE)
    s.answer(b0=TOO_LARGE)
    (whole, part, *_) = s.attempts("b0")
    assert (whole.record_count, part.record_count) == (3, 1)
    assert isinstance(s.error("b0"), errors.RecordTooLargeError)
    s.back_off()
    s.answer(b1=OK)
    assert s.epoch("b1") == 1
    assert s.deliveries["b1"].exception(0) is None


def test_S03_a_split_is_counted_and_said() -> None:
    s = sending("b0", "b1")
    s.answer(b0=TOO_LARGE)
    now_ms = s.now_ns // 1_000_000
    totals = {name.name: value for name, value in s.metrics.snapshot(now_ms).items()}
    assert totals["batch-split-total"] == 1


def test_S03_callbacks_come_in_order_with_their_own_offsets() -> None:
    s = Sending(batch_size=16384).warmed()
    noted: list[int] = []
    s.put("b0", "b1", "b2", on_delivery=lambda metadata, error: noted.append(metadata.offset))
    s.run()
    s.answer(b0=TOO_LARGE)
    while s.waiting:
        s.answer(**{s.waiting[0]: OK})
    assert noted == [1, 2, 3]


def test_S04_memory_is_whole_after_a_split() -> None:
    s = sending("b0", "b1", "b2", "b3")
    s.answer(b0=TOO_LARGE)
    assert not s.is_whole
    assert sum(each.record_count for each in s.state().in_flight) == 4
    while s.waiting:
        s.answer(**{s.waiting[0]: OK})
    assert s.is_whole
    assert s.state().in_flight == []


def test_S05_parts_come_before_what_was_sent_later() -> None:
    s = sending("b0", "b1")
    s.send("b2")
    s.put("b3")
    s.answer(b0=TOO_LARGE)
    assert s.waiting == ["b2", "b0"]
    s.answer(b2=OUT_OF_ORDER)
    for name in ("b0", "b1", "b2", "b3"):
        s.back_off()
        assert s.waiting[0] == name
        s.answer(**{name: OK})
    assert [s.offset(f"b{i}") for i in range(4)] == [1, 2, 3, 4]


def test_S05_order_without_idempotence_needs_one_in_flight() -> None:
    s = sending("b0", "b1", enable_idempotence=False, max_in_flight_requests_per_connection=1)
    s.send("b2")
    s.answer(b0=TOO_LARGE)
    for name in ("b0", "b1", "b2"):
        assert s.waiting == [name]
        s.answer(**{name: OK})


@pytest.mark.parametrize("idempotent", [True, False])
def test_S06_a_single_record_fails(idempotent: bool) -> None:
    s = sending("b0", enable_idempotence=idempotent)
    s.answer(b0=TOO_LARGE)
    assert type(s.error("b0")) is errors.RecordTooLargeError
    assert not s.error("b0").possibly_persisted
    assert s.accumulator.split_count == 0


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_S07_splitting_goes_on_until_the_broker_is_content(compression: str) -> None:
    names = [f"b{i:02}" for i in range(23)]
    s = sending(*names, compression=compression)
    for _ in range(100):
        if not s.waiting:
            break
        name = s.waiting[0]
        s.answer(**{name: OK if s.attempts(name)[-1].record_count == 1 else TOO_LARGE})
    assert [s.offset(name) for name in names] == list(range(1, 24))
    assert [s.sequence(name) for name in names] == list(range(1, 24))


def test_S08_a_close_by_force_completes_the_parts() -> None:
    s = sending("b0", "b1")
    s.answer(b0=TOO_LARGE)
    s.engine.purge(errors.ProducerClosedError("closed"), queued=True, in_flight=True)
    s.run()
    assert [type(s.error(name)) for name in ("b0", "b1")] == [errors.ProducerClosedError] * 2
    # of the first a request is out, of the second none ever was
    assert [s.error(name).possibly_persisted for name in ("b0", "b1")] == [True, False]
    s.answer(b0=OK)
    assert s.is_whole


def test_S10_what_may_be_in_the_log_is_not_split() -> None:
    """Brokers look at sizes before duplicates, so that Java may double the records (decision 17)."""
    s = sending("b0", "b1")
    s.answer(b0=TIMED_OUT)
    s.back_off()
    s.answer(b0=TOO_LARGE)
    for name in ("b0", "b1"):
        assert isinstance(s.error(name), errors.RecordTooLargeError)
        assert s.error(name).possibly_persisted
    s.send("b2")
    assert s.stamp("b2") == (PRODUCER_ID, 1, 0)


def test_S10_without_idempotence_it_is() -> None:
    s = sending("b0", "b1", enable_idempotence=False)
    s.answer(b0=TIMED_OUT)
    s.back_off()
    s.answer(b0=TOO_LARGE)
    assert s.accumulator.split_count == 1
