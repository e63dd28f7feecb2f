"""Sequences, epochs and gaps: the I rows of docs/behaviours.md, with scripted brokers.

Brokers have a first batch of each partition already (`warmed`), so sequences and offsets continue at 1.
"""

from __future__ import annotations

from typing import Any

import pytest

from kbatch import errors
from kbatch.errors import ErrorCode
from tests.support.sending import OK, OUT_OF_ORDER, PRODUCER_ID, Reply, Sending

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
NO_LEADER = ErrorCode.LEADER_NOT_AVAILABLE
TOO_FEW = ErrorCode.NOT_ENOUGH_REPLICAS
TIMED_OUT = ErrorCode.REQUEST_TIMED_OUT
DUPLICATE = ErrorCode.DUPLICATE_SEQUENCE_NUMBER
TOO_LARGE = ErrorCode.MESSAGE_TOO_LARGE
INVALID = ErrorCode.INVALID_RECORD
UNKNOWN_ID = ErrorCode.UNKNOWN_PRODUCER_ID
MAX = 2**31 - 1


# Numbers


def test_I01_a_batch_gets_its_sequence_when_it_is_drained() -> None:
    """And the first of a producer id to a partition travels alone, which it does not with Java."""
    s = Sending()
    s.put("b0", "b1")
    s.run()
    assert s.waiting == ["b0"]
    assert s.stamp("b0") == (PRODUCER_ID, 0, 0)
    assert s.state().acked_counter == -1
    assert not s.accumulator.batches("t", 0)[0].has_sequence
    s.answer(b0=OK)
    assert s.state().acked_counter == 0
    assert s.sequence("b1") == 1


def test_I01_next_sequence_follows_the_records_of_the_batch() -> None:
    s = Sending(batch_size=16384).warmed()
    s.put("b0", "b0+1", "b0+2")
    s.run()
    s.send("b1")
    assert (s.sequence("b0"), s.sequence("b1")) == (1, 4)
    s.answer(b0=OK, b1=OK)
    assert [s.offset(name) for name in ("b0", "b0+1", "b0+2", "b1")] == [1, 2, 3, 4]


def test_I02_batches_in_flight_are_acknowledged_one_by_one() -> None:
    s = Sending().warmed().send("b0", "b1")
    assert s.waiting == ["b0", "b1"]
    assert (s.sequence("b0"), s.sequence("b1")) == (1, 2)
    s.answer(b0=Reply(offset=100))
    assert s.state().acked_counter == 1
    s.answer(b1=Reply(offset=101))
    assert s.state().acked_counter == 2
    assert (s.offset("b0"), s.offset("b1")) == (100, 101)


def test_I02_at_most_five_batches_of_a_partition_in_flight() -> None:
    s = Sending().warmed().send("b0", "b1", "b2", "b3", "b4", "b5")
    assert s.waiting == ["b0", "b1", "b2", "b3", "b4"]
    s.answer(b0=OK)
    assert s.waiting == ["b1", "b2", "b3", "b4", "b5"]


def test_I02_new_leader_waits_for_response_of_the_old_one() -> None:
    """Java can have ten unanswered batches then, of which brokers remember five (decision 15)."""
    s = Sending().warmed().send("b0", "b1", "b2")
    s.move(2)
    s.answer(b0=Reply(NO_LEADER, leader=2))
    s.send("b3")
    assert s.waiting == ["b1", "b2", "b0"]
    s.answer(b1=OUT_OF_ORDER, b2=OUT_OF_ORDER, b0=OK)
    for name in ("b1", "b2", "b3"):
        s.back_off()
        s.answer(**{name: OK})
    assert [s.offset(f"b{i}") for i in range(4)] == [1, 2, 3, 4]


def test_I03_retries_go_one_by_one_in_order_before_anything_new() -> None:
    s = Sending().warmed().send("b0", "b1", "b2")
    s.answer(b0=NO_LEADER, b1=OUT_OF_ORDER, b2=OUT_OF_ORDER)
    s.put("b3")
    s.back_off()
    assert s.waiting == ["b0"]
    assert s.next_sequence() == 4
    s.answer(b0=OK)
    assert s.waiting == ["b1"]
    assert s.next_sequence() == 4
    s.answer(b1=OK)
    assert s.waiting == ["b2", "b3"]
    s.answer(b2=OK, b3=OK)
    assert [s.offset(f"b{i}") for i in range(4)] == [1, 2, 3, 4]
    assert [s.stamp(f"b{i}") for i in range(4)] == [(PRODUCER_ID, 0, i + 1) for i in range(4)]


def test_I04_retries_keep_the_original_order() -> None:
    """Responses of one connection come in order; those of two, after a leader has moved, need not."""
    s = Sending().warmed().send("b0", "b1")
    s.move(2)
    s.answer(b0=Reply(NO_LEADER, leader=2))
    assert s.waiting == ["b1", "b0"]
    s.answer(b1=OUT_OF_ORDER)
    s.answer(b0=NO_LEADER)
    s.back_off()
    assert s.waiting == ["b0"]
    s.answer(b0=OK)
    assert s.waiting == ["b1"]
    s.answer(b1=OK)
    assert (s.offset("b0"), s.offset("b1")) == (1, 2)


@pytest.mark.parametrize("reply", [Reply(OK, offset=1), DUPLICATE])
def test_I05_what_is_acknowledged_never_goes_back(reply: Any) -> None:
    s = Sending().warmed().send("b0", "b1")
    s.move(2)
    s.answer(b0=Reply(NOT_LEADER, leader=2))
    s.answer(b1=Reply(OK, offset=2))
    assert s.state().acked_counter == 2
    s.answer(b0=reply)
    assert s.state().acked_counter == 2
    assert s.deliveries["b0"].exception(0) is None
    s.send("b2")
    assert s.stamp("b2") == (PRODUCER_ID, 0, 3)


def passed(**settings: Any) -> Sending:
    """Make b0 a passed batch: it may be in the log, b1 after it is, and the leader has not changed."""
    s = Sending(**settings).warmed().send("b0", "b1")
    s.answer(b0=TIMED_OUT, b1=Reply(OK, offset=2))
    return s


def test_I05_a_passed_batch_refused_as_out_of_order_fails() -> None:
    """A broker that has it would know it: it remembers five batches. Java would send it again, perhaps a
    second time into the log."""
    s = passed()
    s.back_off()
    s.answer(b0=OUT_OF_ORDER)
    assert isinstance(s.error("b0"), errors.OutOfOrderSequenceError)
    assert s.error("b0").possibly_persisted
    assert s.offset("b1") == 2
    s.send("b2")
    assert s.stamp("b2") == (PRODUCER_ID, 0, 3)
    assert len(s.attempts("b0")) == 2


def test_I05_passed_batch_taken_by_no_broker_is_not_in_the_log() -> None:
    s = Sending().warmed().send("b0", "b1")
    s.answer(b0=TOO_FEW, b1=Reply(OK, offset=1))
    s.back_off()
    s.answer(b0=OUT_OF_ORDER)
    assert not s.error("b0").possibly_persisted


def test_I05_nothing_new_follows_a_passed_batch() -> None:
    """So it is always one of the five that brokers remember."""
    s = passed()
    s.put("b2")
    s.back_off()
    assert s.waiting == ["b0"]
    s.answer(b0=Reply(OK, offset=1))
    assert s.waiting == ["b2"]


def test_I05_passed_batch_is_retried_if_configured() -> None:
    s = passed(kbatch_sequence_gap="resend")
    s.back_off()
    s.answer(b0=OUT_OF_ORDER)
    s.back_off()
    assert s.stamp("b0") == (PRODUCER_ID, 1, 0)


def test_I05_passed_batch_is_proved_despite_other_errors() -> None:
    s = passed()
    s.back_off()
    s.answer(b0=TOO_LARGE)  # brokers look at sizes before duplicates
    assert s.offset("b0") == -1


@pytest.mark.parametrize("answer", [NOT_LEADER, NO_LEADER])
def test_I05_a_leader_that_resigned_proves_nothing(answer: int) -> None:
    s = Sending().warmed().send("b0", "b1", "b2")
    s.answer(b0=TIMED_OUT, b1=answer)
    s.answer(b2=Reply(OK, offset=3))
    s.back_off()
    s.answer(b0=TOO_LARGE)
    assert s.error("b0").possibly_persisted


# Forgetful leaders


def lost_touch(how: str) -> Sending:
    """Make the leader possibly forgetful of the producer, with nothing in flight."""
    s = Sending(metadata_max_age_ms=3_600_000).warmed()
    if how == "idleness":
        s.advance(60_000)
    elif how == "topic":
        s.topic_id = bytes(15) + b"u"
    elif how == "leader":
        s.move(2)
    else:
        s.leader_epochs[0] += 1
    s.refresh()
    return s


@pytest.mark.parametrize("how", ["idleness", "topic", "leader", "epoch"])
def test_I01_batch_to_forgetful_leader_is_sent_alone(how: str) -> None:
    s = lost_touch(how)
    s.send("b0", "b1", "b2")
    assert s.waiting == ["b0"]
    s.answer(b0=OK)
    assert s.waiting == ["b1", "b2"]


def test_I01_a_retry_after_a_refusal_still_travels_alone() -> None:
    """The broker forgot the producer: it would accept the batch after the missing one."""
    s = lost_touch("idleness")
    s.send("b0", "b1")
    s.answer(b0=NOT_LEADER)
    s.back_off()
    assert s.waiting == ["b0"]
    s.answer(b0=OK)
    s.answer(b1=OK)
    assert (s.offset("b0"), s.offset("b1")) == (1, 2)


def test_I01_a_partition_that_is_in_touch_is_not_slowed_down() -> None:
    s = Sending().warmed()
    s.advance(59_000)
    s.send("b0", "b1")
    assert s.waiting == ["b0", "b1"]


@pytest.mark.parametrize("together", [True, False])
def test_I01_touch_is_lost_while_a_batch_is_unanswered(together: bool) -> None:
    """Whole requests and single batches obey the same rule."""
    s = Sending(2, kbatch_sequence_idle_ms=1000).warmed().send("b0")
    s.advance(1000)
    if together:
        s.put("c0", partition=1)
    s.send("b1")
    assert s.attempts("b1") == []
    assert bool(s.attempts("c0")) == together
    s.answer(b0=OK)
    s.advance(1)
    assert s.attempts("b1")


def test_I01_a_late_answer_counts_from_when_its_batch_was_sent() -> None:
    """A duplicate's answer says nothing newer than that."""
    s = Sending(kbatch_sequence_idle_ms=1000).warmed().send("b0")
    s.answer(b0=TIMED_OUT)
    s.advance(1000)
    s.answer(b0=OK)
    s.send("b1", "b2")
    assert s.waiting == ["b1"]


@pytest.mark.parametrize("how", ["idleness", "leader"])
def test_I28_what_a_forgetful_leader_takes_proves_nothing(how: str) -> None:
    s = Sending(
        kbatch_sequence_idle_ms=1000, delivery_timeout_ms=3000, request_timeout_ms=3000, retries=1
    ).warmed()
    s.send("b0", "b1")
    if how == "idleness":
        s.advance(1000)
    else:
        s.leader_epochs[0] += 1
        s.refresh()
    s.answer(b0=TIMED_OUT, b1=Reply(OK, offset=2))
    s.advance(3000)
    s.drop() if s.waiting else None
    assert s.offset("b1") == 2
    assert s.error("b0").possibly_persisted


# The order in which they are settled


def noted(s: Sending, *names: str) -> list[tuple[str, bool]]:
    """Put records one by one; return the names and successes that their callbacks get."""
    calls: list[tuple[str, bool]] = []
    for name in names:
        s.put(name, on_delivery=lambda _, error, name=name: calls.append((name, error is None)))
        s.run()
    return calls


def test_callbacks_of_what_one_answer_settles_come_in_order() -> None:
    s = Sending().warmed()
    calls = noted(s, "b0", "b1", "b2")
    s.answer(b0=OUT_OF_ORDER, b1=OUT_OF_ORDER)
    s.back_off()
    s.hear(b2=Reply(OK, offset=3))
    s.run()
    assert calls == [("b0", False), ("b1", False), ("b2", True)]


def test_callbacks_of_lost_batch_precede_those_of_failed_one() -> None:
    s = Sending().warmed()
    calls = noted(s, "b0", "b1")
    s.drop()
    s.back_off()
    s.answer(b0=OUT_OF_ORDER)
    s.answer(b1=INVALID)
    assert calls == [("b0", False), ("b1", False)]


@pytest.mark.parametrize("end", ["purge", "expiry", "fatal"])
def test_callbacks_come_in_order_when_everything_ends(end: str) -> None:
    s = Sending(2).warmed()
    calls = noted(s, "b0", "b1", "b2")
    s.put("c0", partition=1, on_delivery=lambda _, error: calls.append(("c0", error is None)))
    s.run()
    s.answer(b0=TIMED_OUT, b1=OUT_OF_ORDER)
    s.put("b3", on_delivery=lambda _, error: calls.append(("b3", error is None)))
    if end == "purge":
        s.engine.purge(errors.PurgedError("purged"), queued=True, in_flight=True)
        s.run()
    elif end == "expiry":
        s.cut_off()
        s.advance(120_000)
    else:
        s.answer(b2=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert [name for name, _ in calls if name != "c0"] == ["b0", "b1", "b2", "b3"]


# Gaps


def test_I07_batches_after_a_failed_one_are_renumbered() -> None:
    s = Sending().warmed().send("b0", "b1")
    s.answer(b0=TOO_LARGE, b1=OUT_OF_ORDER)
    assert isinstance(s.error("b0"), errors.RecordTooLargeError)
    s.back_off()
    assert s.stamp("b1") == (PRODUCER_ID, 1, 0)
    s.answer(b1=OK)
    assert s.offset("b1") == 1


def test_I07_passed_batch_is_not_renumbered_after_its_successor() -> None:
    """The leader forgot, and took b1 without b0. Java would append b0 after b1, under the next epoch."""
    s = Sending().warmed().send("b0", "b1", "b2", "b3")
    s.answer(b0=TOO_FEW, b1=Reply(OK, offset=1), b2=INVALID, b3=OUT_OF_ORDER)
    s.back_off()
    assert not s.error("b0").possibly_persisted
    assert len(s.attempts("b0")) == 1
    assert s.stamp("b3") == (PRODUCER_ID, 1, 0)
    s.answer(b3=Reply(OK, offset=2))
    assert s.is_whole


def test_I08_a_gap_before_the_next_batch_is_ended_by_a_bump() -> None:
    """Unlike Java, kbatch tries the later ones first; here they are refused as well."""
    s = Sending().warmed().send("b0", "b1")
    s.answer(b0=OUT_OF_ORDER)
    s.back_off()
    assert s.waiting == ["b1"]
    s.answer(b1=OUT_OF_ORDER)
    s.back_off()
    s.answer(b0=OK)
    s.answer(b1=OK)
    assert (s.stamp("b0"), s.stamp("b1")) == ((PRODUCER_ID, 1, 0), (PRODUCER_ID, 1, 1))
    assert (s.offset("b0"), s.offset("b1")) == (1, 2)
    assert s.asked["InitProducerId"] == 1  # the bump is the producer's own


def test_I08_a_gap_that_a_later_batch_jumps_is_no_delivery() -> None:
    """The broker knows b0 no more, whose first answer was lost: nothing says whether it is in the log. Java
    would send it again, perhaps a second time into the log."""
    s = Sending().warmed().send("b0")
    s.drop()
    s.send("b1")
    s.back_off()
    assert s.waiting == ["b0", "b1"]
    s.answer(b0=OUT_OF_ORDER)
    assert not s.is_done("b0")
    s.answer(b1=Reply(OK, offset=2))
    assert s.error("b0").possibly_persisted
    assert s.offset("b1") == 2
    assert (s.stamp("b0"), s.stamp("b1")) == ((PRODUCER_ID, 0, 1), (PRODUCER_ID, 0, 2))


def test_I08_possibly_persisted_batch_keeps_its_sequence() -> None:
    """Java sends it again, perhaps a second time into the log (decision 16)."""
    s = Sending().warmed().send("b0")
    s.drop()
    s.send("b1")
    s.back_off()
    s.answer(b0=OUT_OF_ORDER, b1=OUT_OF_ORDER)
    assert s.error("b0").possibly_persisted
    s.back_off()
    assert s.stamp("b1") == (PRODUCER_ID, 1, 0)
    assert len(s.attempts("b0")) == 2


def test_I08_unless_the_application_wants_it_so() -> None:
    s = Sending(kbatch_sequence_gap="resend").warmed().send("b0")
    s.drop()
    s.back_off()
    s.answer(b0=OUT_OF_ORDER)
    s.back_off()
    assert s.stamp("b0") == (PRODUCER_ID, 1, 0)


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, TIMED_OUT]
)
def test_I08_what_was_in_a_topic_that_is_gone_is_sent_again(code: int) -> None:
    s = Sending().warmed().send("b0")
    if code == TIMED_OUT:
        s.topic_id = bytes(15) + b"u"
        s.leader_epochs[0] = 0
    s.answer(b0=code)
    s.refresh()
    s.back_off()
    s.answer(b0=OUT_OF_ORDER)
    s.back_off()
    assert s.stamp("b0") == (PRODUCER_ID, 1, 0)


def test_I09_batch_after_a_missing_one_is_retried() -> None:
    s = Sending().warmed().send("b0", "b1", "b2")
    s.answer(b0=TOO_FEW, b1=OUT_OF_ORDER)
    s.back_off()
    s.answer(b2=OUT_OF_ORDER)
    for name in ("b0", "b1", "b2"):
        s.back_off()
        s.answer(**{name: OK})
    assert [s.stamp(f"b{i}") for i in range(3)] == [(PRODUCER_ID, 0, i + 1) for i in range(3)]


@pytest.mark.parametrize("end", [OK, TIMED_OUT, INVALID])
def test_I10_partitions_take_new_epoch_with_nothing_in_flight(end: int) -> None:
    s = Sending(2, retries=1).warmed().send("c0", partition=1)
    s.send("b0", "b1")
    s.answer(c0=TIMED_OUT)  # its one retry
    s.answer(b0=TOO_LARGE, b1=OUT_OF_ORDER)
    s.put("c1", "c2", partition=1)
    s.back_off()
    assert s.stamp("b1") == (PRODUCER_ID, 1, 0)
    assert (s.stamp("c0"), s.attempts("c1")) == ((PRODUCER_ID, 0, 1), [])
    s.answer(**_in_order(s, c0=end, b1=OK))
    s.run()
    assert s.stamp("c1") == (PRODUCER_ID, 1, 0)
    s.answer(**_in_order(s, c1=OK, c2=OK))
    assert s.stamp("c2") == (PRODUCER_ID, 1, 1)
    assert s.deliveries["c2"].exception(0) is None
    assert (s.deliveries["c0"].exception(0) is None) == (end == OK)


def _in_order(s: Sending, **replies: int) -> dict[str, int]:
    return {name: replies[name] for name in [*s.waiting, *replies] if name in replies}


def test_I11_what_was_drained_under_the_old_epoch_keeps_it() -> None:
    s = Sending(2).warmed().send("c0", partition=1)
    s.send("b0", "b1")
    s.answer(c0=TIMED_OUT, b0=TOO_LARGE, b1=OUT_OF_ORDER)
    s.back_off()
    s.answer(**_in_order(s, c0=OK, b1=OK))
    first, second = s.attempts("c0")
    assert first == second
    s.send("c1", partition=1)
    assert (s.stamp("c0"), s.stamp("c1")) == ((PRODUCER_ID, 0, 1), (PRODUCER_ID, 1, 0))


@pytest.mark.parametrize("reply", [OK, DUPLICATE, INVALID, OUT_OF_ORDER])
def test_I12_outcome_of_old_epoch_batch_leaves_the_new_alone(reply: int) -> None:
    s = Sending(2).warmed().send("b0", "b1")
    s.send("c0", partition=1)
    s.answer(b0=TOO_LARGE, b1=OUT_OF_ORDER)
    s.answer(c0=reply)
    s.back_off()
    s.answer(**_in_order(s, **dict.fromkeys(s.waiting, OK)))
    s.send("b2")
    s.send("c1", partition=1)
    assert (s.stamp("b1"), s.stamp("b2")) == ((PRODUCER_ID, 1, 0), (PRODUCER_ID, 1, 1))
    # one that was refused as out of order is renumbered itself
    assert s.stamp("c1") == (PRODUCER_ID, 1, 1 if reply == OUT_OF_ORDER else 0)


def test_I13_a_duplicate_is_delivered_without_an_offset() -> None:
    s = Sending().warmed().send("b0")
    s.answer(b0=DUPLICATE)
    metadata = s.deliveries["b0"].result(0)
    assert (metadata.offset, metadata.timestamp_ms) == (-1, 1000)
    s.send("b1")
    assert s.stamp("b1") == (PRODUCER_ID, 0, 2)


def test_I13_a_duplicate_whose_place_is_known_has_its_offset() -> None:
    s = Sending().warmed().send("b0")
    s.answer(b0=Reply(OK, offset=77, append_time_ms=5000))
    metadata = s.deliveries["b0"].result(0)
    assert (metadata.offset, metadata.timestamp_ms) == (77, 5000)


def test_I14_a_bump_waits_for_what_is_in_flight_and_may_fail() -> None:
    """Java bumps at once, and has to cope with answers to what it has renumbered."""
    s = Sending().warmed().send("b0", "b1", "b2")
    s.answer(b0=OUT_OF_ORDER)
    s.back_off()
    assert s.waiting == ["b1", "b2"]
    assert len(s.attempts("b0")) == 1
    s.answer(b1=INVALID, b2=OUT_OF_ORDER)
    assert isinstance(s.error("b1"), errors.InvalidRecordError)
    s.back_off()
    s.answer(b0=OK)
    s.answer(b2=OK)
    assert (s.stamp("b0"), s.stamp("b2")) == ((PRODUCER_ID, 1, 0), (PRODUCER_ID, 1, 1))


def exhausted(code: int = OUT_OF_ORDER) -> Sending:
    """Use up the last epoch of a producer id, without a new id yet."""
    s = Sending(identities=((PRODUCER_ID, 32767), "wait")).warmed().send("b0", "b1")
    s.answer(b0=TOO_LARGE, b1=code)
    s.put("b2")
    s.back_off()
    assert s.asked["InitProducerId"] == 2
    return s


@pytest.mark.parametrize("code", [OUT_OF_ORDER, TOO_FEW])
def test_I15_last_epoch_is_followed_by_a_new_producer_id(code: int) -> None:
    """Java sends what is in flight without any id meanwhile; here it waits."""
    s = exhausted(code)
    assert s.waiting == []
    s.answer_identity((7, 0))
    s.back_off()
    assert s.waiting == ["b1"]  # alone, for brokers do not know the id
    s.answer(b1=OK)
    s.answer(b2=OK)
    assert (s.stamp("b1"), s.stamp("b2")) == ((7, 0, 0), (7, 0, 1))


def test_I15_nothing_follows_an_expired_first_batch_of_a_new_id() -> None:
    """Its leader would take any number, and then refuse the first."""
    s = Sending(identities=((PRODUCER_ID, 32767), "wait"), **SHORT).warmed()
    s.cut_off()
    s.put("b0", "b1")
    s.advance(1200)
    s.put("b2")
    s.unreachable.clear()
    s.back_off()
    s.answer(b0=TOO_LARGE, b1=OUT_OF_ORDER, b2=OUT_OF_ORDER)
    s.advance(300)
    s.answer_identity((7, 0))
    s.back_off()
    assert s.waiting == ["b1"]
    s.advance(500)
    assert isinstance(s.error("b1"), errors.KafkaTimeoutError)
    assert s.waiting == ["b1"]
    s.answer(b1=TOO_FEW)
    assert (s.waiting, s.stamp("b2")) == (["b2"], (7, 1, 0))


def test_I15_a_producer_that_is_closed_meanwhile_still_drains() -> None:
    s = exhausted()
    s.accumulator.close()
    s.answer_identity((7, 0))
    s.back_off()
    s.answer(b1=OK)
    s.answer(b2=OK)
    assert (s.offset("b1"), s.offset("b2")) == (1, 2)


def test_I15_one_that_is_closed_by_force_completes_everything() -> None:
    s = exhausted()
    s.engine.purge(errors.ProducerClosedError("closed"), queued=True, in_flight=True)
    s.run()
    assert [type(s.error(name)) for name in ("b1", "b2")] == [errors.ProducerClosedError] * 2
    assert s.is_whole


# Forgetful brokers


def test_I22_unknown_producer_id_without_log_start_is_retried() -> None:
    s = Sending().warmed().send("b0")
    s.answer(b0=UNKNOWN_ID)
    s.back_off()
    assert s.stamp("b0") == (PRODUCER_ID, 0, 1)
    assert s.attempts("b0")[0] == s.attempts("b0")[1]


@pytest.mark.parametrize("log_start", [0, 50])
def test_I22_an_unknown_producer_id_is_a_gap(log_start: int) -> None:
    """An idempotent producer treats lost records and records that were never there alike."""
    s = Sending().warmed().send("b0", "b1")
    s.answer(b0=Reply(UNKNOWN_ID, log_start=log_start))
    s.answer(b1=Reply(UNKNOWN_ID, log_start=log_start))
    s.back_off()
    s.answer(b0=OK)
    s.answer(b1=OK)
    assert (s.stamp("b0"), s.stamp("b1")) == ((PRODUCER_ID, 1, 0), (PRODUCER_ID, 1, 1))


# The producer id, and what is fatal


@pytest.mark.parametrize("failure", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, NO_LEADER, "drop"])
def test_I23_batches_wait_while_a_producer_id_is_requested(failure: Any) -> None:
    s = Sending(identities=(failure, failure)).send("b0")
    assert (s.waiting, s.asked["InitProducerId"]) == ([], 1)
    s.advance(99)
    assert s.asked["InitProducerId"] == 1
    s.advance(1)
    assert (s.waiting, s.asked["InitProducerId"]) == ([], 2)
    s.back_off()
    assert (s.waiting, s.asked["InitProducerId"]) == (["b0"], 3)


def test_I23_batches_fail_until_a_producer_id_is_authorized() -> None:
    s = Sending(identities=("wait",)).send("b0")
    s.answer_identity(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert isinstance(s.error("b0"), errors.ClusterAuthorizationError)
    assert s.engine.fatal_error is None
    s.send("b1")
    s.back_off()
    assert s.stamp("b1") == (PRODUCER_ID, 0, 0)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.PRODUCER_FENCED,
    ],
)
def test_I24_what_no_batch_gets_past_is_fatal(code: int) -> None:
    s = Sending().warmed().send("b0", "b1")
    s.answer(b0=code)
    s.answer(b1=OK)
    s.send("b2")
    assert s.engine.fatal_error is not None
    for name in ("b0", "b1", "b2"):
        assert s.error(name).code == code, name
    assert (s.error("b0").possibly_persisted, s.error("b1").possibly_persisted) == (False, True)


def test_I25_a_format_that_does_not_fit_fails_its_batch_only() -> None:
    s = Sending().warmed().send("b0")
    s.answer(b0=ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)
    assert isinstance(s.error("b0"), errors.UnsupportedForMessageFormatError)
    s.send("b1")
    s.answer(b1=OK)
    assert s.offset("b1") == 1


def test_I25_no_version_in_common_is_fatal() -> None:
    """A node that starts may not offer all at once, so all are asked twice."""
    s = Sending(versions={0: (90, 91)}).send("b0")
    assert s.engine.fatal_error is None
    s.advance(1000)
    s.send("b1")
    assert isinstance(s.engine.fatal_error, errors.UnsupportedVersionError)
    assert [type(s.error(name)) for name in ("b0", "b1")] == [errors.UnsupportedVersionError] * 2


def test_a_server_without_metadata_is_no_end_of_the_producer() -> None:
    s = Sending(versions={3: (90, 91)}, identities=("wait",), bootstrap_servers="boot:9092,n5:9092")
    s.advance(5000)
    assert s.engine.fatal_error is None
    assert "does not serve clients" in str(s.engine.last_connection_failure)
    assert s.asked["Metadata"] == 0


def test_I30_a_fatal_error_completes_everything_once() -> None:
    s = Sending().warmed().send("b0", "b1", "b2")
    s.put("b3")
    s.answer(b0=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert all(s.is_done(f"b{i}") for i in range(4))
    s.answer(b1=OK, b2=OUT_OF_ORDER)
    assert len(s.completed) == 5
    assert s.is_whole


# 2^31


def test_I26_sequences_wrap_to_0() -> None:
    s = Sending(first_sequence=MAX, batch_size=16384)
    s.put(*(f"b{i}" for i in range(100)))
    s.run()
    assert s.sequence("b0") == MAX
    s.answer(b0=OK)
    s.send("c0")
    assert s.sequence("c0") == 99


def test_I27_the_order_is_that_of_records_where_sequences_wrap() -> None:
    """Java compares wrapped sequences, and takes the later one for the earlier one."""
    s = Sending(first_sequence=MAX - 3).warmed()
    names = [f"b{i}" for i in range(5)]
    s.send(*names)
    assert [s.sequence(name) for name in names] == [MAX - 2, MAX - 1, MAX, 0, 1]
    s.answer(b0=TOO_FEW, **dict.fromkeys(names[1:], OUT_OF_ORDER))
    for name in names:
        s.back_off()
        assert s.waiting == [name]
        s.answer(**{name: OK})
    assert [s.offset(name) for name in names] == [1, 2, 3, 4, 5]
    assert [s.sequence(name) for name in names] == [MAX - 2, MAX - 1, MAX, 0, 1]


def test_I27_a_hole_at_the_wrap_is_settled() -> None:
    s = Sending(first_sequence=MAX - 1).warmed().send("b0", "b1")
    assert (s.sequence("b0"), s.sequence("b1")) == (MAX, 0)
    s.answer(b0=INVALID, b1=OUT_OF_ORDER)
    s.back_off()
    assert s.stamp("b1") == (PRODUCER_ID, 1, 0)


# Retries


@pytest.mark.parametrize("code", [TIMED_OUT, TOO_FEW, NO_LEADER])
def test_I29_retry_has_the_same_bytes_after_later_batches(code: int) -> None:
    s = Sending(batch_size=16384, compression="gzip").warmed()
    s.put("b0", "b0+1")
    s.run()
    s.put("b1")
    s.answer(b0=code)
    s.back_off()
    assert s.attempts("b0")[0] == s.attempts("b0")[1]


def test_I29_a_bump_changes_nothing_but_the_header() -> None:
    s = Sending(batch_size=16384, compression="gzip").warmed()
    s.put("b0", "b0+1")
    s.run()
    s.answer(b0=OUT_OF_ORDER)
    s.back_off()
    first, second = s.attempts("b0")
    assert (first.stamp, second.stamp) == ((PRODUCER_ID, 0, 1), (PRODUCER_ID, 1, 0))
    assert first.data[61:] == second.data[61:]
    assert first.data[21:43] == second.data[21:43]  # between the CRC and the producer id


def test_I31_a_batch_that_is_split_leaves_what_is_in_flight_once() -> None:
    s = Sending(batch_size=16384).warmed()
    s.put("b0", "b1")
    s.run()
    s.answer(b0=TOO_LARGE)
    assert [each.record_count for each in s.state().in_flight] == [1, 1]
    s.answer(b0=OK)
    s.answer(b1=OK)
    assert s.state().in_flight == []
    assert (s.offset("b0"), s.offset("b1")) == (1, 2)
    assert s.is_whole


def test_I32_a_bump_renumbers_the_batches_of_its_partition_only() -> None:
    s = Sending(2, batch_size=16384).warmed()
    s.put("c0", partition=1)
    s.run()
    for names in (("b0",), ("b1", "b1+1", "b1+2"), ("b2",)):
        s.put(*names)
        s.run()
    s.answer(c0=TIMED_OUT, b0=INVALID, b1=OUT_OF_ORDER, b2=OUT_OF_ORDER)
    s.back_off()
    assert s.stamp("c0") == (PRODUCER_ID, 0, 1)
    s.answer(**_in_order(s, c0=OK, b1=OK))
    assert (s.stamp("b1"), s.stamp("b2")) == ((PRODUCER_ID, 1, 0), (PRODUCER_ID, 1, 3))


# Sequences of batches that expire: I16 to I21 and I28 of docs/behaviours.md.
#
# Brokers have a first batch of the partition already (`warmed`), so sequences and offsets continue at 1.

# Records live for two seconds, requests for longer than that: half a second before the end is soon enough
# for a batch to be sent and to expire in flight.
SHORT: dict[str, Any] = {"delivery_timeout_ms": 2000, "request_timeout_ms": 2000}


def expired_in_flight(*names: str, **settings: Any) -> Sending:
    """Send b0 late, with the named batches after it, and let it expire while its request is in flight."""
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


def expired_before_retries(code: int = TIMED_OUT, later_code: int = TIMED_OUT) -> Sending:
    """Let b0 expire after an answer by `code`, while b1 and b2 after it are to be retried."""
    s = Sending(**SHORT, retry_backoff_ms=600, retry_backoff_max_ms=600).warmed()
    s.cut_off()
    s.put("b0")
    s.advance(1400)
    s.put("b1", "b2")
    s.unreachable.clear()
    s.back_off()
    s.answer(b0=code, b1=later_code, b2=later_code)
    s.put("b3")
    s.advance(500)
    assert isinstance(s.error("b0"), errors.KafkaTimeoutError)
    assert s.error("b0").possibly_persisted == (code == TIMED_OUT)
    s.advance(200)
    return s


# The text of the error


def test_I16_expiry_error_of_unsent_batch_gives_age_and_state() -> None:
    s = Sending(**SHORT).warmed()
    s.cut_off()
    s.put("b0")
    s.advance(2000)
    assert str(s.error("b0")) == (
        "t-0: 1 records were not delivered in 2000 ms since their batch was opened "
        "(delivery.timeout.ms=2000); never sent; the last connection failed: node 1 (n1:9092): "
        "unreachable"
    )


def test_I16_expiry_error_names_the_failed_authentication() -> None:
    s = Sending(**SHORT).warmed()
    s.refusal = errors.SaslAuthenticationError("no such user")
    s.cut_off()
    s.put("b0")
    s.advance(2000)
    assert str(s.error("b0")).endswith("the last connection failed: node 1 (n1:9092): no such user")
    assert isinstance(s.error("b0").__cause__, errors.SaslAuthenticationError)


def test_I17_expiry_error_gives_attempts_and_last_error() -> None:
    text = str(expired_before_retries().error("b0"))
    assert " were not delivered in 2000 ms since their batch was opened " in text
    assert f"; tried 1 times; the last error was: {errors.error_of(TIMED_OUT)}" in text


def test_I21_the_error_of_a_batch_under_way_counts_that_attempt() -> None:
    assert str(expired_in_flight().error("b0")).endswith("(delivery.timeout.ms=2000); tried 1 times")
    s = Sending(**SHORT, retry_backoff_ms=200, retry_backoff_max_ms=200).warmed().send("b0")
    s.answer(b0=TOO_FEW)
    s.advance(200)
    s.answer(b0=Reply(TIMED_OUT, text="too slow"))
    s.advance(200)
    assert s.waiting == ["b0"]
    s.advance(1600)
    assert str(s.error("b0")).endswith("; tried 3 times; the last error was: too slow")


def test_I17_only_retries_follow_an_expired_sent_batch() -> None:
    s = expired_before_retries()
    assert s.waiting == ["b1"]
    assert s.stamp("b1") == (PRODUCER_ID, 0, 2)
    assert s.attempts("b3") == []


def test_I18_later_accepted_batch_settles_it_without_a_bump() -> None:
    s = expired_before_retries()
    s.answer(b1=OK)
    assert s.waiting == ["b2", "b3"]
    assert [s.stamp(f"b{i}") for i in range(4)] == [(PRODUCER_ID, 0, i + 1) for i in range(4)]


def test_I19_bump_settles_it_when_all_later_ones_are_refused() -> None:
    """Java bumps with the first refusal, and sends again what may be in the log (decision 16)."""
    s = expired_before_retries()
    s.answer(b1=OUT_OF_ORDER)
    assert s.waiting == ["b2"]
    s.answer(b2=OUT_OF_ORDER)
    assert [s.error(name).possibly_persisted for name in ("b1", "b2")] == [True, True]
    assert s.stamp("b3") == (PRODUCER_ID, 1, 0)


@pytest.mark.parametrize("code", [TIMED_OUT, TOO_FEW])
def test_I19_refused_batches_need_no_retry_before_the_bump(code: int) -> None:
    s = expired_before_retries(code, OUT_OF_ORDER)
    s.answer(b1=OK)
    s.answer(b2=OK)
    assert [s.stamp(f"b{i}") for i in range(1, 4)] == [(PRODUCER_ID, 1, i - 1) for i in range(1, 4)]


def test_I20_next_batch_after_all_expired_begins_a_new_epoch() -> None:
    s = expired_in_flight()
    s.send("b1")
    assert s.attempts("b1") == []
    s.drop()
    s.back_off()
    assert s.stamp("b1") == (PRODUCER_ID, 1, 0)
    s.answer(b1=OK)
    assert s.offset("b1") == 1


def test_I21_batch_expiring_in_its_first_attempt_leaves_a_gap() -> None:
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


def test_I28_batch_expiring_after_a_later_success_is_delivered() -> None:
    """It is in the log; Java fails it."""
    s = Sending(**SHORT, retry_backoff_ms=3000, retry_backoff_max_ms=3000).warmed().send("b0", "b1")
    s.answer(b0=TIMED_OUT, b1=OK)
    s.advance(2000)
    assert s.offset("b0") == -1


def test_I20_batches_that_expire_together_cost_one_epoch() -> None:
    s = Sending(**SHORT, retry_backoff_ms=3000, retry_backoff_max_ms=3000).warmed().send("b0", "b1", "b2")
    s.answer(b0=TOO_FEW, b1=OUT_OF_ORDER, b2=OUT_OF_ORDER)
    s.advance(2000)
    s.send("b3")
    assert s.stamp("b3") == (PRODUCER_ID, 1, 0)
