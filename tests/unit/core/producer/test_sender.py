"""Order, time and errors: the D lines of docs/behaviours.md, and I06, with brokers that follow a script."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kbatch import errors
from kbatch._native.send import produce_wire
from kbatch.core.client.actions import Resolve
from kbatch.errors import ErrorCode
from tests.support.sending import BACKOFF_MS, MS, NEVER, OK, OUT_OF_ORDER, TOPIC, Reply, Sending

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
TIMED_OUT = ErrorCode.REQUEST_TIMED_OUT
TOO_LARGE = ErrorCode.MESSAGE_TOO_LARGE
INVALID = ErrorCode.INVALID_RECORD
SHORT: dict[str, Any] = {"delivery_timeout_ms": 2000, "request_timeout_ms": 2000}
PLAIN: dict[str, Any] = {"enable_idempotence": False}
ORDERED: dict[str, Any] = {**PLAIN, "max_in_flight_requests_per_connection": 1}


def sent_late(*names: str, **settings: Any) -> Sending:
    """Send batches that expire after half a second: one of each record, or one of all."""
    s = Sending(**{**SHORT, **settings}).warmed()
    s.cut_off()
    s.put(*names)
    s.advance(1500)
    s.unreachable.clear()
    s.back_off()
    assert s.waiting[0] == names[0]
    return s


# Retries without idempotence


def test_I06_last_disconnect_is_the_error_without_retries_left() -> None:
    s = Sending(retries=1, **PLAIN).send("b0")
    s.drop()
    s.back_off()
    assert s.waiting == ["b0"]
    s.drop()
    assert isinstance(s.error("b0"), errors.NetworkError)
    assert s.error("b0").possibly_persisted


def test_I06_failed_authentication_disconnects_batches_in_flight() -> None:
    s = Sending(**PLAIN).send("b0", "b1")
    s.drop(error=errors.AuthenticationError("a TLS record is broken"))
    assert not s.is_done("b0")
    s.back_off()
    assert s.waiting == ["b0", "b1"]
    s.answer(b0=OK, b1=OK)
    assert s.offset("b0") == 0


def test_I06_other_errors_keep_their_class() -> None:
    s = Sending(retries=1, **PLAIN).send("b0")
    s.answer(b0=NOT_LEADER)
    s.back_off()
    s.answer(b0=NOT_LEADER)
    assert isinstance(s.error("b0"), errors.NotLeaderOrFollowerError)


@pytest.mark.parametrize(
    ("codes", "persisted"),
    [((INVALID,), False), ((TIMED_OUT, INVALID), True), ((ErrorCode.NOT_ENOUGH_REPLICAS, INVALID), False)],
)
def test_possibly_persisted_survives_later_attempts(codes: Any, persisted: bool) -> None:
    """Decision 11."""
    s = Sending().warmed().send("b0")
    for code in codes:
        s.answer(b0=code)
        s.back_off()
    assert isinstance(s.error("b0"), errors.InvalidRecordError)
    assert s.error("b0").possibly_persisted is persisted


# One request in flight


def ends_by(code: int | Reply) -> Callable[[Sending], None]:
    return lambda s: s.answer(b0=code)


def expires(s: Sending) -> None:
    s.advance(1400)
    s.answer(b0=OK)


WAYS: dict[str, Callable[[Sending], None]] = {
    "acknowledged": ends_by(OK),
    "failed": ends_by(INVALID),
    "disconnected": lambda s: s.drop(),
    "retried": ends_by(TIMED_OUT),
    "split": ends_by(TOO_LARGE),
    "expired": expires,
}


@pytest.mark.parametrize("way", WAYS)
def test_D01_partition_is_muted_until_its_request_ends(way: str) -> None:
    s = Sending(batch_size=16384, delivery_timeout_ms=2000, request_timeout_ms=2000, **ORDERED)
    s.cut_off()
    s.put("b0", "b0+1")
    s.advance(500)
    s.unreachable.clear()
    s.back_off()
    s.put("b1")
    s.run()
    assert s.waiting == ["b0"]
    WAYS[way](s)
    while s.attempts("b1") == []:
        s.back_off()
        assert len(s.waiting) == 1
        if s.waiting != ["b1"]:
            s.answer(**{s.waiting[0]: OK})
    order = [batch.name for batch in s.sent]
    assert order == sorted(order)


def test_D01_new_leader_waits_for_response_of_the_old_one() -> None:
    s = Sending(**ORDERED).send("b0", "b1")
    s.move(2)
    s.refresh()
    assert s.engine.snapshot.topics[TOPIC].partitions[0].leader == 2
    assert s.waiting == ["b0"]
    s.answer(b0=OK)
    assert s.waiting == ["b1"]


def test_D01_a_muted_partition_does_not_hold_up_others() -> None:
    s = Sending(2, **ORDERED)
    s.move(2, partition=1)
    s.refresh()
    s.send("b0")
    s.send("c0", partition=1)
    assert s.waiting == ["b0", "c0"]


def test_D02_nothing_follows_expired_batch_before_request_ends() -> None:
    s = Sending(**SHORT, **ORDERED)
    s.cut_off()
    s.put("b0")
    s.advance(1500)
    s.unreachable.clear()
    s.back_off()
    s.advance(500)
    assert isinstance(s.error("b0"), errors.KafkaTimeoutError)
    s.send("b1")
    assert s.waiting == ["b0"]
    s.answer(b0=OK)
    assert s.waiting == ["b1"]


# Time


def test_D03_batches_expire_at_their_time_wherever_they_are() -> None:
    s = Sending(3, **SHORT).warmed()
    s.cut_off()
    s.leaders[2] = -1
    s.move(2, partition=1)
    s.refresh()
    start_ns = s.now_ns
    s.put("under way")
    s.put("backing off", partition=1)
    s.put("without leader", partition=2)
    s.advance(1900)
    s.unreachable.clear()
    s.advance(60)
    assert s.waiting == ["backing off", "under way"]
    s.answer(**{"backing off": TIMED_OUT})
    s.now_ns = start_ns + 2000 * MS - 1
    s.run()
    assert not any(s.is_done(name) for name in ("under way", "backing off", "without leader"))
    s.now_ns += 1
    s.run()
    for name in ("under way", "backing off", "without leader"):
        assert isinstance(s.error(name), errors.KafkaTimeoutError), name
    assert len(s.completed) == 3 + 3


def test_D03_what_has_expired_is_not_sent_any_more() -> None:
    """Decision 18: what is too old is given up before anything is drained."""
    s = Sending(**SHORT).warmed().send("b0")
    s.answer(b0=TIMED_OUT)
    s.now_ns += 2000 * MS  # both are due: the retry and the end
    s.run()
    assert len(s.attempts("b0")) == 1
    assert isinstance(s.error("b0"), errors.KafkaTimeoutError)


@pytest.mark.parametrize("answer_first", [True, False])
def test_D04_first_outcome_completes_a_batch_and_no_other(answer_first: bool) -> None:
    s = sent_late("b0")
    s.now_ns += 500 * MS
    if not answer_first:
        s.run()
    s.answer(b0=OK)
    assert isinstance(s.deliveries["b0"].exception(0), errors.KafkaTimeoutError) != answer_first
    assert len(s.completed) == 2
    assert s.is_whole


@pytest.mark.parametrize("code", [TIMED_OUT, TOO_LARGE, OUT_OF_ORDER])
def test_D05_what_has_expired_is_neither_tried_again_nor_split(code: int) -> None:
    s = sent_late("b0", "b0+1", batch_size=16384)
    s.advance(500)
    s.answer(b0=code)
    s.advance(5000)
    assert len(s.attempts("b0")) == 1
    assert s.accumulator.split_count == 0
    assert s.state().in_flight == []
    assert s.is_whole


def test_D06_the_sender_sleeps_until_something_is_due() -> None:
    s = Sending(linger_ms=20, batch_size=16384, delivery_timeout_ms=2020, request_timeout_ms=2000)
    start_ns = s.now_ns
    s.send("b0")
    assert s.engine.deadline_ns(s.now_ns) == start_ns + 20 * MS
    s.advance(20)
    assert s.waiting == ["b0"]
    assert s.now_ns < s.engine.deadline_ns(s.now_ns) <= start_ns + 2020 * MS
    s.answer(b0=TIMED_OUT)
    assert s.engine.deadline_ns(s.now_ns) == s.now_ns + BACKOFF_MS * MS
    s.cut_off()
    s.advance(500)
    assert s.now_ns < s.engine.deadline_ns(s.now_ns) <= start_ns + 2020 * MS


def test_D06_metadata_due_during_a_run_are_not_delayed() -> None:
    s = Sending()
    s.refresh()
    s.refresh()  # not requested yet, as the last response is too recent
    due_ns = s.engine.deadline_ns(s.now_ns)
    assert s.now_ns < due_ns < NEVER
    for now_ns in (due_ns - 1, due_ns, due_ns + 1):  # the clock went on since `run`
        assert s.engine.deadline_ns(now_ns) <= due_ns


def test_D06_batch_expires_on_time_if_nothing_else_is_due() -> None:
    s = Sending(**SHORT).warmed()
    times: list[int] = []
    s.cut_off()
    start_ns = s.now_ns
    s.put("b0", on_delivery=lambda metadata, error: times.append(s.now_ns))
    s.advance(1500)
    s.unreachable.clear()
    s.advance(1000)
    assert times == [start_ns + 2000 * MS]


def test_D07_the_longest_delivery_timeout_does_not_overflow() -> None:
    s = Sending(delivery_timeout_ms=2**31 - 1).warmed().send("b0")
    assert s.now_ns < s.engine.deadline_ns(s.now_ns) < NEVER
    s.answer(b0=TIMED_OUT)
    s.back_off()
    s.answer(b0=OK)
    assert s.offset("b0") == 1


def test_D07_a_clock_that_goes_back_ages_nothing() -> None:
    s = Sending(**SHORT).warmed().send("b0")
    s.now_ns -= 10_000 * MS
    s.run()
    s.answer(b0=TIMED_OUT)
    assert not s.is_done("b0")
    assert s.engine.deadline_ns(s.now_ns) > s.now_ns
    s.now_ns += 11_000 * MS
    s.run()
    s.answer(b0=OK)
    assert s.offset("b0") == 1


def test_D09_record_after_expiry_goes_into_a_new_batch() -> None:
    s = Sending(**SHORT).warmed()
    s.cut_off()

    def again(metadata: Any, error: BaseException | None) -> None:
        assert isinstance(error, errors.KafkaTimeoutError)
        s.unreachable.clear()
        s.put("b1", in_callback=True)

    s.put("b0", on_delivery=again)
    s.advance(2000)
    s.back_off()
    assert s.waiting == ["b1"]


# Back-off


def test_D10_the_backoff_doubles_with_each_attempt() -> None:
    s = Sending(retry_backoff_ms=100, retry_backoff_max_ms=1000).warmed().send("b0")
    for attempt in range(6):
        assert s.waiting == ["b0"]  # at first at once
        s.answer(b0=TIMED_OUT)
        mean_ms = min(100 * 2**attempt, 1000)
        s.advance(0.8 * mean_ms - 1)
        assert s.waiting == []
        s.advance(0.4 * mean_ms + 2)


def test_D10_other_partitions_do_not_back_off() -> None:
    s = Sending(2).warmed().send("b0")
    s.answer(b0=TIMED_OUT)
    s.send("c0", partition=1)
    assert s.waiting == ["c0"]


def test_D11_a_newer_leader_need_not_be_spared() -> None:
    s = Sending().warmed().send("b0")
    s.answer(b0=TIMED_OUT)
    s.move(2)
    s.refresh()
    assert s.waiting == ["b0"]


@pytest.mark.parametrize("epoch", [0, -1])
def test_D11_the_same_leader_or_an_unknown_epoch_is(epoch: int) -> None:
    s = Sending().warmed().send("b0")
    s.answer(b0=TIMED_OUT)
    s.leaders[0], s.leader_epochs[0] = (1, 0) if epoch == 0 else (2, -1)
    s.refresh()
    s.advance(BACKOFF_MS - 1)
    assert s.waiting == []
    s.advance(1)
    assert s.waiting == ["b0"]


def test_D11_new_leader_at_first_attempt_does_not_count() -> None:
    s = Sending().warmed()
    s.move(2)
    s.refresh()
    s.send("b0")
    s.answer(b0=TIMED_OUT)
    assert s.waiting == []


@pytest.mark.parametrize("code", [NOT_LEADER, ErrorCode.FENCED_LEADER_EPOCH])
def test_D12_leader_named_by_a_broker_gets_the_batch_at_once(code: int) -> None:
    s = Sending().warmed()
    s.metadata_waits = True
    s.nodes.add(3)
    s.send("b0")
    s.move(3)
    s.answer(b0=Reply(code, leader=3))
    assert s.waiting == ["b0"]
    assert s.waiting_requests[0].link.node_id == 3
    assert s.asked["Metadata"] == 2


def test_D12_unnamed_leader_is_requested() -> None:
    s = Sending().warmed()
    s.metadata_waits = True
    s.send("b0")
    s.move(2)
    s.answer(b0=NOT_LEADER)
    assert (s.waiting, s.asked["Metadata"]) == ([], 2)
    s.answer_metadata()
    assert s.waiting_requests[0].link.node_id == 2


def test_D12_a_leader_that_is_not_newer_is_not_believed() -> None:
    s = Sending().warmed().send("b0")
    s.answer(b0=Reply(NOT_LEADER, leader=2))
    assert s.waiting == []
    s.back_off()
    assert s.waiting_requests[0].link.node_id == 1


# Errors


def test_D13_records_at_fault_have_errors_of_their_own() -> None:
    s = Sending(batch_size=16384).warmed()
    s.put("b0", "b1", "b2", "b3")
    s.run()
    s.answer(b0=Reply(INVALID, text="of the batch", records={0: "of the record", 2: None, 3: ""}))
    for name, text in {"b0": "of the record", "b2": "of the batch", "b3": "of the batch"}.items():
        assert type(s.error(name)) is errors.InvalidRecordError
        assert str(s.error(name)).endswith(text)
    assert type(s.error("b1")) is errors.KafkaError
    assert "shared a batch with 3" in str(s.error("b1"))


def test_D13_faulty_indexes_beyond_the_batch_are_ignored() -> None:
    s = Sending(batch_size=16384).warmed()
    s.put("b0", "b1")
    s.run()
    not_there = dict.fromkeys([2, 2**31 - 1, -1], "")
    s.answer(b0=Reply(INVALID, text="of the batch", records={1: "of the record", **not_there}))
    assert str(s.error("b1")).endswith("of the record")
    assert "shared a batch with 1" in str(s.error("b0"))


def test_D13_several_faulty_records_are_invalid_for_any_code() -> None:
    s = Sending(batch_size=16384).warmed()
    s.put("b0", "b1")
    s.run()
    s.answer(b0=Reply(ErrorCode.INVALID_TIMESTAMP, records={0: None, 1: None}))
    assert [type(s.error(name)) for name in ("b0", "b1")] == [errors.InvalidRecordError] * 2


def test_D13_a_single_record_has_the_error_of_the_answer() -> None:
    s = Sending(batch_size=16384).warmed()
    s.put("b0", "b1")
    s.run()
    s.answer(b0=Reply(ErrorCode.INVALID_TIMESTAMP, records={1: None}))
    assert type(s.error("b0")) is errors.KafkaError
    assert type(s.error("b1")) is errors.InvalidTimestampError


@pytest.mark.parametrize(("text", "expected"), [("no key", "no key"), ("", None), (None, None)])
def test_D14_message_of_the_broker_is_the_error_text(text: Any, expected: Any) -> None:
    s = Sending().warmed().send("b0")
    s.answer(b0=Reply(INVALID, text=text))
    default = str(errors.error_of(INVALID))
    assert str(s.error("b0")) == (expected or default)
    assert default


def test_fencing_error_without_transactional_id_names_none() -> None:
    s = Sending().warmed().send("b0")
    s.answer(b0=90)
    error = s.error("b0")
    assert isinstance(error, errors.ProducerFencedError)
    assert "transactional" not in str(error)
    assert "create another producer" in str(error)


# Nodes that are throttled, and those that are not heard of


def test_D15_throttling_node_gets_no_requests() -> None:
    s = Sending().warmed().send("b0")
    s.answer(b0=OK, throttle_ms=500)
    s.send("b1")
    s.advance(499)
    assert s.waiting == []
    s.advance(1)
    assert s.waiting == ["b1"]


def test_D15_error_of_a_batch_that_was_not_sent_says_throttled() -> None:
    s = Sending(**SHORT).warmed().send("b0")
    s.answer(b0=OK, throttle_ms=20_000)
    s.put("b1")
    s.advance(2000)
    text = str(s.error("b1"))
    assert "never sent; node 1 (n1:9092) throttles this client" in text
    assert text.endswith("for another 18.0 s")


def test_D15_throttling_does_not_use_up_the_request_timeout() -> None:
    s = Sending(request_timeout_ms=1000).warmed().send("b0", "b1")
    s.answer(b0=OK, throttle_ms=800)
    s.advance(1799)
    assert s.waiting == ["b1"]
    s.advance(1)
    assert s.waiting == []


def test_D15_a_node_that_throttles_does_not_stop_others() -> None:
    s = Sending(2).warmed()
    s.move(2, partition=1)
    s.refresh()
    s.send("b0")
    s.answer(b0=OK, throttle_ms=500)
    s.send("c0", partition=1)
    assert s.waiting == ["c0"]


def test_D16_partitions_of_unavailable_node_are_not_chosen() -> None:
    s = Sending(3, partitioner_availability_timeout_ms=1000, max_in_flight_requests_per_connection=1)
    s.move(2, partition=1)
    s.move(2, partition=2)
    s.refresh()
    s.warmed()
    s.send("b0", "b1")
    s.advance(1500)
    s.send("b2")
    names = [f"c{i}" for i in range(20)]
    s.put(*names, partition=-1)
    assert {s.deliveries[name].partition for name in names} == {1, 2}


# A topic that is made again


def made_again(s: Sending, leader: int = 1) -> None:
    """With one partition, and a new id."""
    s.topic_id = bytes(15) + b"u"
    s.leaders, s.leader_epochs = [leader], [0]


@pytest.mark.parametrize("in_flight", [True, False])
def test_records_of_partitions_that_are_gone_fail_when_that_is_certain(in_flight: bool) -> None:
    s = Sending(3).warmed()
    if in_flight:
        s.send("b1", partition=1)
        s.hear(b1=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        made_again(s)
    else:
        made_again(s)
        s.refresh()
        s.send("b1", partition=1)
    s.send("b0", partition=0)
    assert not s.is_done("b1")
    s.advance(5_000)
    error = s.error("b1")
    assert isinstance(error, errors.UnknownTopicOrPartitionError)
    assert "t-1: the topic was deleted and made again with fewer partitions: it has 1 now" in str(error)
    assert error.possibly_persisted is in_flight
    s.answer(b0=OK)
    assert s.is_whole


def test_an_epoch_is_given_up_if_its_leader_refuses_records() -> None:
    """The topic keeps its id: a broker was restored from an older state."""
    s = Sending()
    s.leader_epochs = [2**31 - 1]
    s.refresh()
    s.warmed()
    s.leaders, s.leader_epochs = [2], [0]
    s.send("b0")
    for _ in range(20):
        if s.waiting:
            (link,) = [asked.link for asked in s.waiting_requests]
            s.answer(b0=NOT_LEADER if link.node_id == 1 else OK)
        s.back_off()
    assert s.offset("b0") == 1


def test_D17_without_acks_a_batch_is_done_when_it_is_written() -> None:
    s = Sending(acks=0).send("w0")
    s.writes_at_once = False
    s.send("b0")
    s.write(30)
    assert not s.is_done("b0")
    s.write()
    assert s.offset("b0") == -1


def test_D17_the_rest_of_a_request_of_the_lane_completes_it() -> None:
    s = Sending(acks=0).send("w0")
    s.with_lane().send("b0")
    s.writes_at_once = False
    s.lend_once(30)
    assert not s.is_done("b0")
    s.write()
    assert s.offset("b0") == -1
    s.send("b1")
    assert not s.is_done("b1")
    s.lend_once()
    assert s.offset("b1") == -1


def test_D17_disconnect_before_writing_acks_0_is_retried() -> None:
    s = Sending(acks=0).send("w0")
    s.writes_at_once = False
    s.send("b0")
    s.write(30)
    s.drop()
    assert not s.is_done("b0")
    s.writes_at_once = True
    s.back_off()
    assert s.offset("b0") == -1


def test_D17_without_acks_a_failure_leaves_everything_open() -> None:
    s = Sending(acks=0, retries=0).send("w0")
    s.writes_at_once = False
    s.send("b0")
    s.drop()
    assert s.error("b0").possibly_persisted


def test_D18_unused_topic_is_forgotten_and_found_again() -> None:
    s = Sending(metadata_max_idle_ms=5000, metadata_max_age_ms=1000).warmed()
    s.advance(4000)
    assert TOPIC in s.engine.snapshot.topics
    s.advance(3000)
    assert TOPIC not in s.engine.snapshot.topics
    s.refresh()
    s.send("b0")
    assert s.waiting == ["b0"]


def test_D18_a_topic_with_records_under_way_is_not_idle() -> None:
    s = Sending(metadata_max_idle_ms=5000, metadata_max_age_ms=1000).warmed().send("b0")
    s.advance(8000)
    assert TOPIC in s.engine.snapshot.topics


def test_bootstrap_servers_are_used_if_no_node_is_available() -> None:
    s = Sending(request_timeout_ms=1000, metadata_recovery_rebootstrap_trigger_ms=900).warmed()
    s.nodes.remove(2)
    s.refresh()
    s.advance(1000)
    s.metadata_waits = True
    s.refresh()
    s.now_ns += 1000 * MS
    s.engine.run(s.now_ns)  # the question has timed out
    assert [action.host for action in s.engine.poll_actions() if isinstance(action, Resolve)] == ["boot"]


# What may be sent: after a failed record, while a batch is sealed, while its bytes are in use.


@pytest.fixture
def bytes_by_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pass all bytes by reference, as those of larger batches are."""
    monkeypatch.setattr(produce_wire, "JOINED_BYTES", 0)


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


# Records that may pass a failed one


@pytest.mark.parametrize("in_flight", [1, 5])
@pytest.mark.parametrize("policy", ["stop_partition", "stop"])
def test_nothing_passes_a_failed_record_before_resume(policy: str, in_flight: int) -> None:
    """Decision 12; what Java's users reach by close(0) in a callback, with one request in flight."""
    settings: dict[str, Any] = {"max_in_flight_requests_per_connection": in_flight}
    s = Sending(2, kbatch_on_delivery_failure=policy, **settings).warmed().send("b0", "b1", "b2")
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


class Meanwhile:
    """An accumulator to which another thread gives records while the sender runs, right before it seals."""

    def __init__(self, accumulator: Any, accept: Callable[[], object]) -> None:
        self._accumulator = accumulator
        self._accept = accept

    def __getattr__(self, name: str) -> Any:
        return getattr(self._accumulator, name)

    def take_unsealed(self) -> Any:
        self._accept()
        return self._accumulator.take_unsealed()


@pytest.mark.parametrize(("policy", "partition"), [("stop_partition", 0), ("stop", 0), ("stop", 1)])
def test_a_record_of_another_thread_does_not_pass_a_failed_one(policy: str, partition: int) -> None:
    s = Sending(2, kbatch_on_delivery_failure=policy).warmed().send("b0")
    s.answer(b0=INVALID)
    name = "b1" if partition == 0 else "c1"
    late = iter([name])

    def accept() -> None:
        s.put(*late, partition=partition)

    sender: Any = s.engine._sender
    sender._accumulator = Meanwhile(s.accumulator, accept)
    s.back_off()
    assert s.waiting == []
    assert isinstance(s.error(name), errors.PrecedingRecordFailedError)


def test_resume_does_not_cover_a_failure_that_comes_after_the_call() -> None:
    """The program cannot know of it: the answer comes in the same round."""
    s = Sending(2, kbatch_on_delivery_failure="stop_partition").warmed().send("b0")
    s.answer(b0=INVALID)
    s.send("c0", partition=1)
    s.engine.resume()
    s.answer(c0=INVALID)
    s.run()
    s.send("c1", partition=1)
    assert isinstance(s.error("c1"), errors.PrecedingRecordFailedError)
    s.engine.resume()
    s.run()
    s.send("c2", partition=1)
    assert s.waiting == ["c2"]


def test_a_failed_record_is_passed_by_default() -> None:
    s = Sending().warmed().send("b0", "b1")
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


def test_batch_purged_during_sealing_is_freed_by_the_sealer() -> None:
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
def test_B11_bytes_of_closing_connection_are_not_sent_again() -> None:
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
    s = Sending().warmed().send("b0")
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
def test_B11_expired_batch_returns_memory_after_the_network() -> None:
    s = Sending(delivery_timeout_ms=2000, request_timeout_ms=2000).warmed()
    s.lets_go = False
    s.writes_at_once = False
    s.send("b1")
    s.advance(3000)
    assert isinstance(s.error("b1"), errors.KafkaTimeoutError)
    assert not s.is_whole
    s.let_go()
    assert s.is_whole
