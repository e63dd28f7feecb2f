"""What may be sent at all: behind a failed record, while a batch is sealed, while its bytes are in use."""

from __future__ import annotations

from typing import Any

import pytest

from kbatch import errors
from kbatch.errors import ErrorCode
from kbatch.protocol import codec
from tests.unit.sending import OK, OUT_OF_ORDER, Sending

INVALID = ErrorCode.INVALID_RECORD


@pytest.fixture
def bytes_by_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of larger batches are."""
    monkeypatch.setattr(codec, "JOINED_BYTES", 0)


@pytest.mark.parametrize("idempotent", [True, False])
def test_N11_a_node_has_no_more_requests_than_allowed(idempotent: bool) -> None:
    s = Sending(3, max_in_flight_requests_per_connection=2, enable_idempotence=idempotent).warmed()
    for partition, name in enumerate(("b0", "c0", "d0")):
        s.send(name, partition=partition)
    assert s.waiting == ["b0", "c0"]
    s.answer(b0=OK)
    assert s.waiting == ["c0", "d0"]


def test_N11_a_request_waits_until_the_one_before_is_written() -> None:
    s = Sending(2).warmed()
    s.writes_at_once = False
    s.send("b0")
    s.send("c0", partition=1)
    s.write(30)
    assert s.accumulator.batches("t", 1) != []
    s.write()
    assert s.accumulator.batches("t", 1) == []


# What may pass a failed record


@pytest.mark.parametrize("in_flight", [1, 5])
@pytest.mark.parametrize("policy", ["stop_partition", "stop"])
def test_nothing_passes_a_failed_record_before_resume(policy: str, in_flight: int) -> None:
    """Decision 12; what Java's users reach by close(0) in a callback, with one request in flight."""
    settings: dict[str, Any] = {"max_in_flight_requests_per_connection": in_flight}
    s = Sending(2, kbatch_on_delivery_failure=policy, **settings).warmed()
    s.send("b0", "b1", "b2")
    s.answer(b0=INVALID, **dict.fromkeys(s.waiting[1:], OUT_OF_ORDER))
    s.put("c0", partition=1)
    s.send("b3")
    s.back_off()
    for name in ("b1", "b2", "b3"):
        assert isinstance(s.error(name), errors.PrecedingRecordFailedError), name
        assert not s.error(name).possibly_persisted
    assert s.waiting == (["c0"] if policy == "stop_partition" else [])
    s.answer(**dict.fromkeys(s.waiting, OK))
    s.engine.resume()
    s.run()
    s.send("b4")
    assert s.sequence("b4") == 0


def test_a_failed_record_is_passed_by_default() -> None:
    s = Sending().warmed()
    s.send("b0", "b1")
    s.answer(b0=INVALID, b1=OUT_OF_ORDER)
    s.back_off()
    assert s.waiting == ["b1"]


# Sealing, and bytes that are still needed


def test_an_unsealed_batch_stops_its_partition_only() -> None:
    """Decision 3."""
    s = Sending(2, batch_size=65536).warmed()
    s.seals_at_once = False
    s.send("b0", size=30000)
    s.send("c0", partition=1)
    assert s.waiting == ["c0"]
    s.seal()
    s.run()
    assert s.waiting == ["c0", "b0"]


def test_a_batch_that_is_purged_while_it_is_sealed_is_freed_by_its_sealer() -> None:
    """Decision 3."""
    s = Sending(batch_size=65536).warmed()
    s.seals_at_once = False
    s.send("b0", size=30000)
    s.engine.purge(errors.PurgedError("purged"), queued=True, in_flight=True)
    s.run()
    assert isinstance(s.error("b0"), errors.PurgedError)
    s.seal()
    s.run()
    assert (s.waiting, s.is_whole) == ([], True)


@pytest.mark.usefixtures("bytes_by_reference")
def test_B11_bytes_that_a_closing_connection_holds_are_not_sent_again_meanwhile() -> None:
    s = Sending().warmed()
    s.writes_at_once = s.lets_go = False
    s.send("b0")
    s.write(30)
    s.drop()
    s.writes_at_once = True
    s.advance(500)
    assert s.waiting == []
    s.let_go()
    s.advance(1)
    assert s.waiting == ["b0"]


@pytest.mark.usefixtures("bytes_by_reference")
def test_B11_a_batch_is_renumbered_when_its_bytes_are_free() -> None:
    """Decision 4."""
    s = Sending().warmed()
    s.send("b0")
    s.writes_at_once = s.lets_go = False
    s.send("b1")
    s.answer(b0=INVALID)
    s.drop()
    s.writes_at_once = True
    s.advance(500)
    assert s.attempts("b1") == []
    s.let_go()
    s.advance(1)
    assert [sent.stamp[1:] for sent in s.attempts("b1")] == [(1, 0)]


@pytest.mark.usefixtures("bytes_by_reference")
def test_B11_the_memory_of_an_expired_batch_comes_back_when_the_network_is_done_with_it() -> None:
    s = Sending(delivery_timeout_ms=2000, request_timeout_ms=2000).warmed()
    s.lets_go = False
    s.writes_at_once = False
    s.send("b1")
    s.advance(3000)
    assert isinstance(s.error("b1"), errors.KafkaTimeoutError)
    assert not s.is_whole
    s.let_go()
    assert s.is_whole
