"""Which record runs next, and what follows from its outcome."""

from __future__ import annotations

import pickle
from random import Random
from typing import Any

import pytest

from kbatch import ConsumerRecord, TopicPartition
from kbatch.core.client.lasting_faults import MAX_LINES
from kbatch.core.process.progress import PartitionProgress
from kbatch.core.process.retry import NS_PER_SECOND, RecordFailed, Retry, RetryAfter
from kbatch.core.process.scheduler import Attempt, Limits, OwnedPartition, ProcessScheduler
from kbatch.errors import IllegalStateError, ProcessError, RecordDeserializationError

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
BOOM = ValueError("boom")
STEADY = Retry(attempts=3, backoff=1.0, most=10.0, jitter=0.0)


def scheduler_of(
    order: Any = "key", retry: Retry = STEADY, last_resort: Any = "stop", **limits: int
) -> ProcessScheduler:
    return ProcessScheduler(order, Limits(**limits), retry, last_resort, Random(1))


def owning(scheduler: ProcessScheduler, partition: TopicPartition = FIRST, start: int = 0) -> OwnedPartition:
    return scheduler.own(partition, PartitionProgress(start))


def take(scheduler: ProcessScheduler, owned: OwnedPartition, *keys: bytes | None) -> None:
    for key in keys:
        record = ConsumerRecord(*owned.partition, key, b"v", offset=owned.progress.end)
        scheduler.take(owned, record, 0)


def started(scheduler: ProcessScheduler, now_ns: int = 0) -> list[Attempt]:
    found = []
    while (attempt := scheduler.next(now_ns)) is not None:
        found.append(attempt)
    return found


def offsets(attempts: list[Attempt]) -> list[list[int]]:
    return [[record.offset for record in each.records] for each in attempts]


@pytest.mark.parametrize(
    ("order", "expected"),
    [("key", [[0], [1], [4], [5]]), ("partition", [[0]]), ("none", [[n] for n in range(6)])],
)
def test_POOL01_POOL02_the_order_decides_what_runs_together(order: Any, expected: list[list[int]]) -> None:
    scheduler = scheduler_of(order)
    take(scheduler, owning(scheduler), b"a", b"b", b"a", b"b", None, None)
    assert offsets(started(scheduler)) == expected


def test_POOL01_the_next_record_of_a_key_begins_after_the_last_is_finished() -> None:
    scheduler = scheduler_of()
    take(scheduler, owning(scheduler), b"a", b"a", b"b", b"b")
    (first, second) = started(scheduler)
    scheduler.finish(second, [None], 0)
    (third,) = started(scheduler)
    assert offsets([first, second, third]) == [[0], [2], [3]]
    scheduler.finish(first, [None], 0)
    assert offsets(started(scheduler)) == [[1]]


def test_a_key_that_has_run_goes_behind_the_others() -> None:
    scheduler = scheduler_of(workers=1)
    take(scheduler, owning(scheduler), b"a", b"a", b"b", b"c")
    order = []
    while attempts := started(scheduler):
        order += offsets(attempts)
        scheduler.finish(attempts[0], [None], 0)
    assert order == [[0], [2], [3], [1]]


def test_POOL04_limits_of_memory() -> None:
    scheduler = scheduler_of(max_in_flight=3, max_bytes=7)
    owned = owning(scheduler)
    assert scheduler.room == 3
    take(scheduler, owned, b"a", b"b")
    assert (scheduler.room, scheduler.byte_count) == (1, 4)
    scheduler.take(owned, ConsumerRecord("orders", 0, b"c", b"long", offset=2), 0)
    assert scheduler.room == 0
    for attempt in started(scheduler):
        scheduler.finish(attempt, [None], 0)
    assert (scheduler.room, scheduler.byte_count, scheduler.record_count) == (3, 0, 0)


def test_max_ahead_blocks_a_partition_until_there_is_a_quarter_of_it() -> None:
    scheduler = scheduler_of("none", max_ahead=8)
    owned, other = owning(scheduler), owning(scheduler, SECOND)
    take(scheduler, owned, *[b"k"] * 8)
    take(scheduler, other, b"k")
    assert [(each.partition, how) for each, how in scheduler.blocked()] == [(FIRST, True)]
    attempts = started(scheduler)
    for attempt in attempts[:2]:
        scheduler.finish(attempt, [None], 0)
    assert list(scheduler.blocked()) == []
    scheduler.finish(attempts[2], [None], 0)
    assert [(each.partition, how) for each, how in scheduler.blocked()] == [(FIRST, False)]


def test_POOL06_waits_double_and_successors_wait() -> None:
    scheduler = scheduler_of(retry=Retry(attempts=4, backoff=1.0, most=3.0, jitter=0.0))
    take(scheduler, owning(scheduler), b"a", b"a", b"b")
    first, other = started(scheduler)
    scheduler.finish(other, [None], 0)
    now_ns = 0
    for seconds in (1, 2, 3):
        scheduler.finish(first, [BOOM], now_ns)
        due_ns = now_ns + seconds * NS_PER_SECOND
        assert scheduler.deadline_ns() == due_ns
        assert started(scheduler, due_ns - 1) == []
        (first,) = started(scheduler, due_ns)
        assert offsets([first]) == [[0]]
        now_ns = due_ns
    scheduler.finish(first, [BOOM], now_ns)
    assert isinstance(scheduler.failure, ProcessError)


def test_POOL06_jitter_stays_within_its_part() -> None:
    retry, random = Retry(backoff=1.0, most=100.0, jitter=0.5), Random(7)
    record = ConsumerRecord("orders", 0, offset=0)
    waits = [retry.wait_ns(record, 1, BOOM, random) / NS_PER_SECOND for _ in range(200)]
    assert 0.5 <= min(waits) < 0.6 and 1.4 < max(waits) <= 1.5


def test_POOL07_the_function_sets_the_wait() -> None:
    scheduler = scheduler_of()
    take(scheduler, owning(scheduler), b"a")
    scheduler.finish(started(scheduler)[0], [RetryAfter(7)], 0)
    assert scheduler.deadline_ns() == 7 * NS_PER_SECOND
    given = scheduler_of(retry=Retry(delay=lambda record, attempt, error: 10.0 * attempt + record.offset))
    take(given, owning(given, start=5), b"a")
    given.finish(started(given)[0], [BOOM], 0)
    assert given.deadline_ns() == 15 * NS_PER_SECOND


def test_requests_of_the_function_come_from_other_processes() -> None:
    record = ConsumerRecord("orders", 0, b"k", offset=5)
    after, failed = pickle.loads(pickle.dumps((RetryAfter(7), RecordFailed(record))))
    assert (after.seconds, str(after)) == (7.0, "try again after 7.0 s")
    assert (failed.record, str(failed)) == (record, "the record at offset 5 failed")
    assert record != ConsumerRecord("orders", 0, b"k", offset=6)


def test_errors_that_are_not_retried_are_final() -> None:
    scheduler = scheduler_of(retry=Retry(on=(OSError,)), last_resort="skip")
    take(scheduler, owning(scheduler), b"a", b"b")
    first, second = started(scheduler)
    scheduler.finish(first, [BOOM], 0)
    scheduler.finish(second, [OSError()], 0)
    assert (scheduler.counts.skipped, scheduler.counts.retried) == (1, 1)


def test_POOL08_stop_leaves_the_record_unfinished() -> None:
    scheduler = scheduler_of(retry=Retry(attempts=1))
    owned = owning(scheduler)
    take(scheduler, owned, b"a", b"b", b"c")
    first, second, third = started(scheduler)
    scheduler.finish(first, [None], 0)
    scheduler.finish(second, [BOOM], 0)
    scheduler.finish(third, [None], 0)
    failure = scheduler.failure
    assert failure is not None and failure.record.offset == 1 and failure.__cause__ is BOOM
    assert "orders-0 offset 1" in str(failure)
    assert (scheduler.room, started(scheduler)) == (0, [])
    assert scheduler.offsets()[FIRST].offset == 1 and owned.progress.runs() == [(2, 3)]


def test_POOL08_skip_finishes_the_record(caplog: pytest.LogCaptureFixture) -> None:
    scheduler = scheduler_of(retry=Retry(attempts=1), last_resort="skip")
    take(scheduler, owning(scheduler), b"a", b"a")
    scheduler.finish(started(scheduler)[0], [BOOM], 0)
    assert offsets(started(scheduler)) == [[1]] and scheduler.counts.skipped == 1
    assert scheduler.offsets()[FIRST].offset == 1
    assert "orders-0 offset 0, key b'a' after 1 attempts: ValueError('boom')" in caplog.text


def test_POOL08_POOL09_a_handler_finishes_the_record_and_is_tried_again() -> None:
    scheduler = scheduler_of(retry=Retry(attempts=2, backoff=1.0, jitter=0.0), last_resort="handle")
    take(scheduler, owning(scheduler), b"a", b"a")
    (attempt,) = started(scheduler)
    scheduler.finish(attempt, [BOOM], 0)
    (attempt,) = started(scheduler, NS_PER_SECOND)
    assert attempt.failure is None
    scheduler.finish(attempt, [BOOM], 0)
    (attempt,) = started(scheduler)
    assert attempt.failure is BOOM and offsets([attempt]) == [[0]]
    scheduler.finish(attempt, [OSError()], 0)
    assert scheduler.offsets()[FIRST].offset == 0
    (attempt,) = started(scheduler, NS_PER_SECOND)
    assert attempt.failure is BOOM
    scheduler.finish(attempt, [None], 0)
    assert (scheduler.counts.handled, scheduler.counts.finished) == (1, 0)
    assert offsets(started(scheduler)) == [[1]]


def test_POOL08_records_with_a_handler_do_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    scheduler = scheduler_of("none", retry=Retry(attempts=1), last_resort="handle", workers=100)
    take(scheduler, owning(scheduler), *[b"%d" % each for each in range(100)])
    for attempt in started(scheduler):
        scheduler.finish(attempt, [BOOM], 0)
    assert 0 < len(caplog.records) <= MAX_LINES


def test_POOL08_a_handler_that_keeps_failing_stops() -> None:
    scheduler = scheduler_of(retry=Retry(attempts=1), last_resort="handle")
    take(scheduler, owning(scheduler), b"a")
    scheduler.finish(started(scheduler)[0], [BOOM], 0)
    scheduler.finish(started(scheduler)[0], [OSError("away")], 0)
    assert "on_failure of orders-0 offset 0" in str(scheduler.failure)
    assert scheduler.offsets()[FIRST].offset == 0


def test_POOL11_a_key_that_stops_its_partition_has_no_more_attempts() -> None:
    scheduler = scheduler_of("none", Retry(attempts=None, jitter=0.0), "skip", max_ahead=3)
    owned = owning(scheduler)
    take(scheduler, owned, b"a", b"b")
    first, second = started(scheduler)
    scheduler.finish(first, [BOOM], 0)
    scheduler.finish(second, [None], 0)
    assert scheduler.counts.skipped == 0
    take(scheduler, owned, b"c")
    (first,) = [each for each in started(scheduler, 10 * NS_PER_SECOND) if offsets([each]) == [[0]]]
    scheduler.finish(first, [BOOM], 0)
    assert scheduler.counts.skipped == 1


def parking_scheduler(count: int, **options: Any) -> tuple[ProcessScheduler, OwnedPartition]:
    """Return one that keeps two records behind a failed one, and has so many of a key whose first failed."""
    scheduler = scheduler_of(kept=2, **options)
    owned = owning(scheduler)
    take(scheduler, owned, *[b"a"] * count)
    (attempt,) = started(scheduler)
    scheduler.finish(attempt, [BOOM], 0)
    return scheduler, owned


def read_again(scheduler: ProcessScheduler, leaving_out: int = -1) -> list[tuple[int, ...]]:
    """Give the records that the scheduler wants, but one that the log has no more."""
    asked = []
    for queue in scheduler.to_read():
        asked.append(queue.reading)
        records = {each: ConsumerRecord("orders", 0, b"a", b"v", offset=each) for each in queue.reading}
        records.pop(leaving_out, None)
        scheduler.take_again(queue, queue.reading, records)
    return asked


def test_POOL11_records_behind_a_failing_key_leave_memory() -> None:
    scheduler, owned = parking_scheduler(6, max_in_flight=6)
    assert (scheduler.record_count, scheduler.parked_count, owned.byte_count) == (2, 4, 4)
    take(scheduler, owned, b"a", b"b", b"a")  # others of the key come after them
    assert (scheduler.record_count, scheduler.parked_count, scheduler.room) == (3, 6, 3)
    assert offsets(started(scheduler)) == [[7]] and read_again(scheduler) == []
    assert owned.progress.unfinished == list(range(9))


def test_POOL11_other_keys_cost_nothing_while_records_are_parked(monkeypatch: pytest.MonkeyPatch) -> None:
    """`to_read` is called in each step, and there may be as many keys as records in memory."""
    scheduler, owned = parking_scheduler(6, workers=300)
    take(scheduler, owned, *[b"%d" % key for key in range(200)])
    room: property = vars(ProcessScheduler)["room"]
    looks = 0

    def counted(self: ProcessScheduler) -> Any:
        nonlocal looks
        looks += 1
        return room.__get__(self)

    monkeypatch.setattr(ProcessScheduler, "room", property(counted))
    assert read_again(scheduler) == [] and looks == 0
    (attempt,) = [each for each in started(scheduler, NS_PER_SECOND) if each.records[0].key == b"a"]
    scheduler.finish(attempt, [None], NS_PER_SECOND)
    looks = 0
    assert read_again(scheduler) == [(2,)] and looks == 1


def test_POOL11_a_key_that_goes_on_is_read_again_in_order() -> None:
    scheduler, owned = parking_scheduler(6)
    order, now_ns = [], NS_PER_SECOND
    while owned.progress.unfinished:
        for attempt in started(scheduler, now_ns):
            order += [each.offset for each in attempt.records]
            scheduler.finish(attempt, [None], now_ns)
        assert all(len(each) <= 2 for each in read_again(scheduler, leaving_out=4))
        if order == [0, 1, 2]:
            take(scheduler, owned, b"a")
    assert order == [0, 1, 2, 3, 5, 6]
    assert (scheduler.parked_count, owned.byte_count, owned.queues) == (0, 0, {})


def test_POOL11_what_could_not_be_read_is_parked_again() -> None:
    scheduler, owned = parking_scheduler(4)
    (attempt,) = started(scheduler, NS_PER_SECOND)
    scheduler.finish(attempt, [None], NS_PER_SECOND)
    (queue,) = scheduler.to_read()
    asked = queue.reading
    assert asked == (2,) and list(scheduler.to_read()) == []
    scheduler.park_again(queue, asked)
    assert scheduler.parked_count == 2
    scheduler.take_again(queue, asked, {})  # late, and of no effect
    assert owned.progress.unfinished == [1, 2, 3]
    scheduler.truncate(owned, 3)
    assert (scheduler.parked_count, scheduler.record_count) == (1, 1)
    (queue,) = scheduler.to_read()
    scheduler.drop([FIRST])
    scheduler.take_again(queue, queue.reading, {})
    assert scheduler.record_count == 0


def test_POOL11_a_partition_in_order_is_not_read_while_its_records_are_parked() -> None:
    scheduler, owned = parking_scheduler(4, order="partition")
    assert [(each.partition, how) for each, how in scheduler.blocked()] == [(FIRST, True)]
    while owned.progress.unfinished:
        for attempt in started(scheduler, NS_PER_SECOND):
            scheduler.finish(attempt, [None], NS_PER_SECOND)
        read_again(scheduler)
    assert [(each.partition, how) for each, how in scheduler.blocked()] == [(FIRST, False)]


def test_POOL12_outcomes_of_a_batch() -> None:
    scheduler = scheduler_of(batch=3)
    owned = owning(scheduler)
    take(scheduler, owned, *[b"a"] * 4)
    (attempt,) = started(scheduler)
    assert offsets([attempt]) == [[0, 1, 2]]
    scheduler.finish(attempt, [None, BOOM, None], 0)
    assert owned.progress.unfinished == [1, 3]
    (attempt,) = started(scheduler, NS_PER_SECOND)
    assert offsets([attempt]) == [[1, 3]]
    assert [each.attempts for each in attempt.taken] == [1, 0]


def test_POOL12_records_of_a_failed_batch_are_tried_one_by_one() -> None:
    scheduler = scheduler_of(batch=3)
    take(scheduler, owning(scheduler), *[b"a"] * 6)
    (attempt,) = started(scheduler)
    scheduler.give_back(attempt, one_by_one=True)
    tried = []
    while attempts := started(scheduler):
        tried += offsets(attempts)
        scheduler.finish(attempts[0], [None] * len(attempts[0].taken), 0)
    assert tried == [[0], [1], [2], [3, 4, 5]]
    assert scheduler.counts.failed == 0


def test_POOL16_outcomes_of_an_earlier_ownership_change_nothing() -> None:
    scheduler = scheduler_of()
    take(scheduler, owning(scheduler), b"a", b"b")
    late, later = started(scheduler)
    scheduler.close([FIRST])
    assert not scheduler.is_idle([FIRST]) and scheduler.is_idle([SECOND])
    scheduler.drop([FIRST])
    assert scheduler.is_idle() and scheduler.record_count == 0
    again = owning(scheduler)
    take(scheduler, again, b"a")
    scheduler.finish(late, [None], 0)
    scheduler.finish(later, [BOOM], 0)
    assert again.progress.unfinished == [0] and scheduler.counts.dropped == 2
    assert offsets(started(scheduler)) == [[0]]


def test_POOL16_nothing_new_begins_of_what_is_given_up() -> None:
    scheduler = scheduler_of(workers=1)
    take(scheduler, owning(scheduler), b"a", b"a", b"b")
    take(scheduler, owning(scheduler, SECOND), b"a")
    (running,) = started(scheduler)
    scheduler.close([FIRST])
    scheduler.finish(running, [None], 0)
    (other,) = started(scheduler)
    assert other.queue.owned.partition == SECOND
    assert scheduler.offsets([FIRST])[FIRST].offset == 1


def test_keys_in_back_off_do_not_outlive_their_partition() -> None:
    scheduler = scheduler_of()
    take(scheduler, owning(scheduler), b"a")
    scheduler.finish(started(scheduler)[0], [RetryAfter(3600)], 0)
    assert scheduler.backing_off_count == 1
    scheduler.drop([FIRST])
    assert scheduler.backing_off_count == 0


def test_POOL28_records_that_the_log_has_lost_do_not_run() -> None:
    scheduler = scheduler_of()
    owned = owning(scheduler)
    take(scheduler, owned, b"a", b"b", b"b", b"b")
    first, second = started(scheduler)
    scheduler.advance(owned, 1, 0)
    assert (owned.progress.unfinished, owned.byte_count) == ([0], 2)
    take(scheduler, owned, b"c")
    scheduler.finish(second, [None], 0)  # of the old record at offset 1
    assert owned.progress.unfinished == [0, 1]
    assert [each.records[0].key for each in started(scheduler)] == [b"c"]
    scheduler.finish(first, [None], 0)
    assert owned.progress.unfinished == [1]


def test_stalled_attempts_are_told_once() -> None:
    scheduler = scheduler_of()
    owned = owning(scheduler)
    take(scheduler, owned, b"a")
    (first,) = started(scheduler, 10)
    take(scheduler, owned, b"b")
    (second,) = started(scheduler, 20)
    assert [scheduler.stalled(9), scheduler.stalled(15), scheduler.stalled(15)] == [[], [first], []]
    assert scheduler.stalled(25) == [second]


def test_records_that_nothing_will_run_are_a_fault_of_kbatch() -> None:
    scheduler = scheduler_of(workers=1)
    take(scheduler, owning(scheduler), b"a", b"a")
    (attempt,) = started(scheduler)
    scheduler.check_progress()
    scheduler.finish(attempt, [BOOM], 0)
    scheduler.check_progress()  # it backs off
    (attempt,) = started(scheduler, NS_PER_SECOND)
    scheduler.finish(attempt, [None], NS_PER_SECOND)
    scheduler._ready.clear()  # the fault
    with pytest.raises(IllegalStateError, match=r"orders-0 from offset 1 to 2 \(1 unfinished, 1 keys\)"):
        scheduler.check_progress()


def test_a_record_that_cannot_be_read_has_one_attempt() -> None:
    scheduler = scheduler_of(last_resort="handle")
    take(scheduler, owning(scheduler), b"a")
    (attempt,) = started(scheduler)
    scheduler.finish(attempt, [RecordDeserializationError("no JSON")], 0)
    (attempt,) = started(scheduler)
    assert isinstance(attempt.failure, RecordDeserializationError) and scheduler.counts.retried == 0


def test_POOL14_metadata_that_is_too_large_is_halved() -> None:
    scheduler = scheduler_of("none", workers=1000)
    owned = owning(scheduler)
    take(scheduler, owned, *[b"a"] * 1000)
    for attempt in started(scheduler)[1::2]:
        scheduler.finish(attempt, [None], 0)
    offsets = scheduler.offsets()
    whole = offsets[FIRST].metadata
    assert scheduler.offsets() == {}
    scheduler.note_commit(offsets, [FIRST], [FIRST])
    smaller = scheduler.offsets()
    assert 0 < len(smaller[FIRST].metadata) <= len(whole) // 2 and smaller[FIRST].offset == 0
    scheduler.note_commit(smaller, [], [])
    assert owned.committed == smaller[FIRST] and scheduler.offsets() == {}
    assert [each for each, _ in scheduler.blocked()] == [owned]  # nothing more until it fits


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"attempts": 0}, "attempts must be 1"),
        ({"backoff": -1}, "backoff must be at least 0"),
        ({"most": "x"}, "most must be a number"),
        ({"jitter": 2}, "jitter must be 0 to 1"),
        ({"on": ValueError}, "on must be a tuple"),
        ({"on": (KeyboardInterrupt,)}, "on must be a tuple"),
        ({"delay": 3}, "delay must be callable"),
    ],
)
def test_unsuitable_retries_are_refused(bad: Any, words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        Retry(**bad)
