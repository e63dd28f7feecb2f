"""Bugs in what `process()` decides, that the simulation must see (planted_bugs.py)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import Any

from kbatch.core.process import progress
from kbatch.core.process.progress import PartitionProgress
from kbatch.core.process.retry import Retry
from kbatch.core.process.scheduler import KeyQueue, OwnedPartition, ProcessScheduler
from tests.simulation.planted import planting

plants = partial(planting.plants, of_process=True)


# What is committed


@plants(PartitionProgress, "first_unfinished")
def the_highest_offset_is_committed(original: Any, self: PartitionProgress) -> int:
    """What is committed is what was taken, though earlier records are unfinished."""
    return self.end


@plants(PartitionProgress, "runs")
def a_run_has_one_offset_too_many(original: Any, self: PartitionProgress) -> list[tuple[int, int]]:
    """The end of a run is that of the unfinished record after it."""
    found: list[tuple[int, int]] = original(self)
    return [(first, min(end + 1, self.end)) for first, end in found]


@plants(PartitionProgress, "runs")
def runs_of_an_earlier_owner_are_forgotten(original: Any, self: PartitionProgress) -> list[tuple[int, int]]:
    """A commit leaves out what was finished before and is not taken yet, so that it is repeated."""
    ahead, self.runs_ahead = self.runs_ahead, []
    try:
        return original(self)  # type: ignore[no-any-return]
    finally:
        self.runs_ahead = ahead


@plants(progress, "encode_runs")
def offsets_in_the_metadata_are_absolute(original: Any, offset: int, *given: Any) -> Any:
    """Runs are written from the first offset of the log on, and read from the committed one."""
    return original(max(offset - 1, 0), *given)


@plants(PartitionProgress, "take")
def finished_records_run_again(
    original: Any, self: PartitionProgress, offset: int, epoch: int, now_ns: int
) -> bool:
    """What an earlier owner has finished out of order is processed again."""
    is_new = original(self, offset, epoch, now_ns)
    if not is_new:
        self.unfinished.append(offset)
        self.taken_ns.append(now_ns)
    return True


@plants(ProcessScheduler, "note_commit")
def a_refused_commit_is_believed(
    original: Any, self: ProcessScheduler, offsets: Any, failed: Any, too_large: Any
) -> None:
    """A commit that has failed is not repeated."""
    original(self, offsets, (), too_large)


@plants(ProcessScheduler, "note_commit")
def metadata_that_is_refused_is_sent_again(
    original: Any, self: ProcessScheduler, offsets: Any, failed: Any, too_large: Any
) -> None:
    """Metadata that is too large for the coordinator is not cut."""
    original(self, offsets, failed, ())


# What is parked


@plants(ProcessScheduler, "take")
def new_records_pass_parked_ones(
    original: Any, self: ProcessScheduler, owned: OwnedPartition, record: Any, now_ns: int
) -> None:
    """A record is kept in memory, though earlier ones of its key are parked."""
    queue = owned.queues.get(self._key_of(record))
    parked, reading = (queue.parked, queue.reading) if queue is not None else (deque[int](), ())
    if queue is not None:
        queue.parked, queue.reading = deque(), ()
    original(self, owned, record, now_ns)
    if queue is not None:
        queue.parked, queue.reading = deque([*parked, *queue.parked]), reading


@plants(ProcessScheduler, "park_again")
def what_cannot_be_read_is_finished(
    original: Any, self: ProcessScheduler, queue: KeyQueue, offsets: tuple[int, ...]
) -> None:
    """Records that could not be read again count as gone from the log."""
    self.take_again(queue, offsets, {})


@plants(KeyQueue, "park_reading")
def what_is_parked_again_comes_last(original: Any, self: KeyQueue) -> None:
    """Offsets that are parked again come after those that were parked before."""
    self.parked.extend(self.reading)
    self.owned.parked_count += len(self.reading)
    self.reading = ()


# What runs


@plants(ProcessScheduler, "_key_of")
def keys_have_no_order(original: Any, self: ProcessScheduler, record: Any) -> object:
    """Records of a key run side by side."""
    return record.offset


@plants(ProcessScheduler, "_go_on")
def a_failed_record_goes_behind_its_key(
    original: Any, self: ProcessScheduler, queue: KeyQueue, unfinished: list[Any], not_before_ns: int
) -> None:
    """The next record of a key runs while a failed one waits."""
    queue.waiting.extend(unfinished)
    original(self, queue, [], not_before_ns)


@plants(ProcessScheduler, "_go_on")
def a_failed_record_does_not_wait(
    original: Any, self: ProcessScheduler, queue: KeyQueue, unfinished: list[Any], not_before_ns: int
) -> None:
    """A record is tried again at once."""
    original(self, queue, unfinished, 0)


@plants(Retry, "is_last")
def attempts_have_no_end(original: Any, self: Retry, attempt: int, error: Exception) -> bool:
    """A record is tried for ever."""
    return False


@plants(ProcessScheduler, "_fail")
def a_record_with_a_handler_is_finished_before_it(
    original: Any, self: ProcessScheduler, owned: OwnedPartition, taken: Any, error: Exception, now_ns: int
) -> int | None:
    """A record counts as finished after its last attempt, before its dead letter is acknowledged."""
    wait: int | None = original(self, owned, taken, error, now_ns)
    if wait == 0 and taken.failure is not None and self.failure is None:
        owned.progress.finish(taken.record.offset)
        owned.byte_count -= taken.byte_count
        return None
    return wait


@plants(ProcessScheduler, "_take_from")
def a_batch_loses_what_was_not_tried(original: Any, self: ProcessScheduler, queue: KeyQueue) -> list[Any]:
    """Records that were given back are taken for finished, and never run again."""
    taken = original(self, queue)
    if queue.alone_count > 1:
        queue.waiting = deque(list(queue.waiting)[1:])
    return taken  # type: ignore[no-any-return]


@plants(ProcessScheduler, "close")
def what_is_given_up_goes_on(original: Any, self: ProcessScheduler, partitions: Iterable[Any]) -> None:
    """New records of a partition that is to be given up begin until it is."""


@plants(ProcessScheduler, "own")
def a_partition_that_comes_back_is_as_it_was(
    original: Any, self: ProcessScheduler, partition: Any, new: PartitionProgress, committed: Any = None
) -> OwnedPartition:
    """The progress of an earlier ownership goes on."""
    known: dict[Any, PartitionProgress] = self.__dict__.setdefault("_known", {})
    before = known.setdefault(partition, new)
    before.end, before.unfinished = max(before.end, new.end), before.unfinished
    return original(self, partition, before, committed)  # type: ignore[no-any-return]


@plants(ProcessScheduler, "finish")
def late_outcomes_count(original: Any, self: ProcessScheduler, attempt: Any, *given: Any) -> None:
    """An outcome of an earlier ownership finishes the record of the present one, which may not have run."""
    owned = attempt.queue.owned
    now = self.owned(owned.partition)
    if not owned.is_owned and now is not None:
        for each in attempt.taken:
            later = [offset for offset in now.progress.unfinished if offset > each.record.offset]
            if later:
                now.progress.finish(later[0])
                now.byte_count -= each.byte_count
    original(self, attempt, *given)


# Limits


@plants(ProcessScheduler, "room")
def memory_has_no_limit(original: Any, self: ProcessScheduler) -> int:
    """Records are taken as they come."""
    return 10**6


@plants(ProcessScheduler, "blocked")
def a_partition_that_is_too_far_ahead_stays_paused(original: Any, self: ProcessScheduler) -> Any:
    """It is not read on when its first records are finished."""
    return [(owned, is_blocked) for owned, is_blocked in original(self) if is_blocked]


@plants(ProcessScheduler, "next")
def more_run_than_there_are_workers(original: Any, self: ProcessScheduler, now_ns: int) -> Any:
    """Attempts that run are not counted."""
    running, self.running = self.running, {}
    try:
        return original(self, now_ns)
    finally:
        self.running = {**running, **self.running}
