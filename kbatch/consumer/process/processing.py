"""Processing: one call of `process()`, on the thread or task that called it.

Theory of operation. The caller polls, takes records, gives them to workers and commits; the scheduler decides
which ones. Workers append their outcomes to a queue and wake the caller, as the network does with records. So
one wait, that of every poll, is for both, and polls go on however slow the records are: the member stays in
its group, and its rebalances are done in time.

The order of an end is: nothing new is taken and begun, what runs may end until a deadline, what is finished
is committed, and the positions go back to the committed offsets, from where a later poll reads on.

What is finished is committed by calls of the engine that nothing waits for, one at a time, but for the last
one; a commit that is refused is repeated with what is finished then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from random import Random
from typing import TYPE_CHECKING, Any, final

from kbatch.consumer.backlog import offset_after
from kbatch.consumer.polled import Polled
from kbatch.consumer.process.intake import Intake
from kbatch.consumer.process.metrics import ProcessMetrics
from kbatch.consumer.process.options import ProcessReport, ProcessSettings
from kbatch.consumer.process.parked import ParkedReads
from kbatch.consumer.process.retry_topics import RetryTopics
from kbatch.consumer.process.workers import Job, Outcome, ProcessWorkers, Report, is_worker_of
from kbatch.core.client.lasting_faults import LastingFaults
from kbatch.core.consumer.commits import CommitOffsets
from kbatch.core.consumer.membership import Subscription
from kbatch.core.consumer.partition_state import COMMITTED
from kbatch.core.process.finished_runs import MetadataError, Run, decode_runs
from kbatch.core.process.progress import PartitionProgress
from kbatch.core.process.retry import NS_PER_SECOND, RecordFailed
from kbatch.core.process.scheduler import Attempt, OwnedPartition, ProcessScheduler, name_of
from kbatch.errors import (
    AuthorizationError,
    CommitFailedError,
    ConfigError,
    ConsumerClosedError,
    IllegalStateError,
    InvalidGroupIdError,
    KafkaError,
    OffsetMetadataTooLargeError,
)
from kbatch.logs import ClientLogger
from kbatch.records import INT64_MAX, NO_TOPIC_ID, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kbatch._native.fetch.fetch_buffer import PolledRecords
    from kbatch.consumer.backlog import AssignedPartition
    from kbatch.consumer.base import ConsumerBase
    from kbatch.consumer.lifetime import Ending
    from kbatch.waiting.deadline import Deadline

logger = ClientLogger("kbatch.consumer")

# Of the time that close() has left, what running records may take; the commit and the group need the others.
CLOSING_FRACTION = 0.5
# The time for the last commit, if nothing else limits it.
COMMIT_SECONDS = 10.0
NewWorkers = Callable[[Job, Report], ProcessWorkers]


@final
class Processing:
    """What `process()` does.

    Parameters
    ----------
    consumer : ConsumerBase
    function : callable
    settings : ProcessSettings
    worker_count : int
    new_workers : callable
        Makes the workers, from what they call and where they report.
    """

    def __init__(
        self,
        consumer: ConsumerBase,
        function: Callable[[Any], Any],
        settings: ProcessSettings,
        worker_count: int,
        new_workers: NewWorkers,
    ) -> None:
        if not callable(function):
            raise TypeError(f"function must be callable, got {function!r}")
        on_failure = settings.on_failure
        self._consumer = consumer
        self._runtime = consumer._runtime
        self._engine = consumer._engine
        self._backlog = consumer._backlog
        self._settings = settings
        self.scheduler = ProcessScheduler(
            settings.order,
            settings.limits(worker_count),
            settings.retry,
            on_failure if isinstance(on_failure, str) else "handle",
            Random(),
        )
        self._retries = on_failure if isinstance(on_failure, RetryTopics) else None
        self._intake = Intake(consumer, self._retries)
        typed = consumer._typed
        self._parked = ParkedReads(
            consumer.config,
            self.scheduler,
            (lambda record: record) if typed is None else typed.typed,
            self._runtime.changed.notify,
        )
        self._metrics = ProcessMetrics(
            self._runtime.registry, self.scheduler, self._intake.waiting, self._runtime.now_ns()
        )
        self._outcomes: deque[Outcome] = deque()
        handler = None if isinstance(on_failure, str) else on_failure
        if typed is not None and typed.needs_worker:
            function = typed.decoding_first(function, consumer._decoders.submit)
        self._workers = new_workers(
            Job(function, handler, settings.batch > 1, consumer._interceptors.context_of_records),
            self._report,
        )
        self._subscriptions: tuple[Subscription, Subscription] | None = None  # without retry topics, and with
        self._sources: dict[TopicPartition, AssignedPartition] = {}  # of the owned partitions
        self._commit: CommitOffsets | None = None
        self._commit_due_ns = self._runtime.now_ns() + self._interval_ns
        self._revoke_until_ns = 0  # of the partitions that are given up
        self._close_asked: tuple[Deadline, Ending] | None = None  # by a worker
        self._faults: LastingFaults = LastingFaults(logger)

    @property
    def _interval_ns(self) -> int:
        return int(self._settings.commit_interval * NS_PER_SECOND)

    def _report(self, outcome: Outcome) -> None:
        """Take an outcome, on the thread of a worker."""
        self._outcomes.append(outcome)
        self._runtime.changed.notify()

    # Its life

    def takes_close(self, deadline: Deadline, ending: Ending) -> bool:
        """True on a worker: the call closes the consumer at its end, for which a worker cannot wait."""
        if not is_worker_of(self._report):
            return False
        self._close_asked = deadline, ending
        self._runtime.changed.notify()
        return True

    @property
    def _closing(self) -> tuple[Deadline, Ending] | None:
        return self._consumer._closing or self._close_asked

    async def run(self) -> ProcessReport:
        """Process records until the consumer is closed, or an error ends it."""
        consumer, member = self._consumer, self._consumer._member
        with consumer._user:
            consumer._user.refuse_callbacks("process")
            self._check_group()
            self._check_deserializers()
            error: BaseException | None = None
            try:
                await self._read_retries()
                member.processing = self
                while self.scheduler.failure is None and self._close_asked is None:
                    await self._step()
            except ConsumerClosedError:
                pass
            except BaseException as raised:
                error = raised
            try:
                await self._end(error)
            except BaseException as raised:
                if error is None or not isinstance(raised, Exception):
                    error = raised
            finally:
                self._workers.stop()
                self._parked.close()
                self._metrics.end(self._runtime.now_ns())
            self._go_back()
            member.processing = None
        if self._close_asked is not None:
            deadline, ending = self._close_asked
            await consumer._close(deadline.left, ending)
        error = error or self.scheduler.failure
        if error is not None:
            raise error
        return ProcessReport(**asdict(self.scheduler.counts))

    def _check_deserializers(self) -> None:
        """Refuse what a worker cannot do at the first use of a value."""
        typed = self._consumer._typed
        if typed is not None and typed.is_eager:
            raise ConfigError(
                "process() has on_failure= for records that cannot be read; set on.deserialization.error to "
                "raise or null, and deserialize to used"
            )

    def _check_group(self) -> None:
        if self._consumer.config.group_id is None:
            raise InvalidGroupIdError("process() needs a group, which keeps what is finished; set group.id")
        if not self._backlog.assigned and not self._consumer._member.is_subscribed:
            raise IllegalStateError("the consumer has no partitions to process; subscribe() to topics first")

    async def _read_retries(self) -> None:
        """Add the retry topics to those that the member reads."""
        member = self._consumer._member
        if self._retries is None:
            return
        wanted = member.wanted
        if wanted is None:
            raise IllegalStateError(
                "RetryTopics add topics to those of subscribe(), and so do not go with assign(); subscribe() "
                "to topics"
            )
        if wanted.pattern is not None:
            widened = wanted._replace(origin=self._retries.first_of)
        else:
            added = self._retries.topics_for(wanted.topics)
            for each in added:
                await self._consumer._partitions_for(each)
            widened = Subscription(wanted.topics | set(added))
        self._subscriptions = wanted, widened
        member.follow(widened)

    async def _step(self) -> None:
        """Wait for records, outcomes and what the group asks for, and do what follows."""
        await self._consumer._give_way()
        await self._consumer._await_polled(self._has_work, self._next_deadline())
        self._collect()
        self._runtime.check_usable()  # before anything new begins: there may have been outcomes, and close()
        if self._close_asked is not None:
            return
        self._intake.look_again()
        self._parked.run(self._runtime.now_ns())
        if not self._consumer._member.has_work:  # a partition that is given up would be taken anew
            self._take()
        self._start()
        self.scheduler.check_progress()
        self._commit_if_due()
        self._warn_of_stalled()

    def _has_work(self) -> bool:
        is_committed = self._commit is not None and self._commit.is_done
        has_records = self.scheduler.room > 0 and self._backlog.has_next
        has_read = self._intake.has_answer or self._parked.has_read
        is_asked = bool(self._outcomes) or self._close_asked is not None
        return is_asked or is_committed or has_records or has_read

    def _next_deadline(self) -> Deadline:
        now_ns = self._runtime.now_ns()
        until_ns = min(
            self.scheduler.deadline_ns(), self._intake.deadline_ns, self._parked.deadline_ns(now_ns)
        )
        if self._commit is None:
            until_ns = min(until_ns, self._commit_due_ns)
        if self._revoke_until_ns > now_ns:
            until_ns = min(until_ns, self._revoke_until_ns)
        deadline = self._runtime.deadline(max(until_ns - now_ns, 0) / NS_PER_SECOND)
        return deadline.within(self._consumer._note_seconds)

    # Records

    def _take(self) -> None:
        """Take records, as many as there is room for."""
        room, consumer = self.scheduler.room, self._consumer
        if room:
            with consumer._one_poll(self._backlog.changes):
                for assigned in self._backlog.begun():
                    self._own(assigned)
                polled = self._polled(min(room, consumer.config.max_poll_records))
                if (typed := consumer._typed) is not None:
                    polled = [each._replace(records=list(map(typed.typed, each.records))) for each in polled]
                for each in polled:
                    self._take_records(each)
                moves = self._backlog.take_moves()
                for partition, last in moves.items():
                    if (owned := self.scheduler.owned(partition)) is not None:
                        self.scheduler.advance(owned, last.offset + 1, last.leader_epoch)
                if polled:
                    consumer._interceptors.on_consume(Polled(polled, moves, consumer._formats))
        for owned, is_blocked in self.scheduler.blocked():
            self._block(owned, is_blocked)

    def _polled(self, most: int) -> list[PolledRecords]:
        """Return the next records. A partition that cannot be read now is tried again, as by every poll."""
        try:
            return self._intake.take(most)
        except KafkaError as error:
            if not error.retriable:
                raise
            self._faults.note(None, f"a partition cannot be read: {error}", self._runtime.now_ns())
            return []

    def _own(self, assigned: AssignedPartition) -> None:
        """Begin with a partition whose first records are here, unless that has happened."""
        partition = assigned.partition
        if self._sources.get(partition) is not assigned:
            assert assigned.last is not None
            self._sources[partition] = assigned
            offset = offset_after(assigned.last)
            progress = PartitionProgress(
                offset.offset,
                self._finished_runs(assigned, offset),
                leader_epoch=offset.leader_epoch,
                topic_id=offset.topic_id,
            )
            self.scheduler.own(partition, progress)

    def _finished_runs(self, assigned: AssignedPartition, offset: OffsetAndMetadata) -> list[Run]:
        """Return what an earlier owner has finished after the committed offset."""
        state = self._engine.reading(assigned.partition)
        log_end = INT64_MAX if state is None or state.high_watermark < 0 else state.high_watermark
        try:
            return decode_runs(offset.offset, offset.metadata, offset.topic_id, log_end)
        except MetadataError as error:
            logger.warning(
                "the metadata of the committed offset %d of %s is ignored: %s; what was finished after it is "
                "processed again",
                offset.offset,
                assigned.partition,
                error,
            )
            return []

    def _take_records(self, polled: PolledRecords) -> None:
        owned, first = self.scheduler.owned(polled.partition), polled.records[0]
        if owned is None or owned.progress.topic_id not in (first.topic_id, NO_TOPIC_ID):
            # the topic was made again
            progress = PartitionProgress(first.offset, topic_id=first.topic_id)
            owned = self.scheduler.own(polled.partition, progress)
        now_ns = self._runtime.now_ns()
        for record in polled.records:
            self.scheduler.take(owned, record, now_ns)

    def _block(self, owned: OwnedPartition, is_blocked: bool) -> None:
        self._intake.set_blocked(owned.partition, is_blocked)
        if is_blocked and owned.progress.is_cut:
            logger.warning(
                "%s is paused: %d records are unfinished, too many for the metadata of a commit",
                owned.partition,
                len(owned.progress.unfinished),
            )

    # Workers

    def _start(self) -> None:
        scheduler = self.scheduler
        while (attempt := scheduler.next(self._runtime.now_ns())) is not None:
            self._workers.start(attempt, len(scheduler.running))

    def _collect(self) -> None:
        """Take the outcomes that workers have reported."""
        while self._outcomes:
            attempt, result, error = self._outcomes.popleft()
            self._metrics.ran(attempt.started_ns, self._runtime.now_ns())
            if error is not None and not isinstance(error, Exception):
                self.scheduler.give_back(attempt)
                raise error
            if error is None and result is None:
                outcomes: Sequence[Exception | None] = [None] * len(attempt.taken)
            elif isinstance(error, RecordFailed) and error.record in attempt.records:
                index = attempt.records.index(error.record)
                cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
                outcomes = [*[None] * index, cause]
            elif error is not None and len(attempt.taken) > 1:
                self.scheduler.give_back(attempt, one_by_one=True)
                continue
            else:
                outcomes = [error] if error is not None else self._checked(attempt, result)
            self.scheduler.finish(attempt, outcomes, self._runtime.now_ns())

    def _checked(self, attempt: Attempt, result: Any) -> Sequence[Exception | None]:
        """Return the outcomes that a function has returned for several records; others return anything."""
        count = len(attempt.taken)
        if self._settings.batch == 1 or attempt.failure is not None:
            return [None] * count
        is_list = isinstance(result, Sequence) and len(result) == count
        if is_list and all(each is None or isinstance(each, Exception) for each in result):
            return list(result)
        self.scheduler.give_back(attempt)
        raise TypeError(
            f"the function must return None, or None or an exception for each of its {count} records, got "
            f"{result!r:.200}"
        )

    def _warn_of_stalled(self) -> None:
        seconds = self._settings.stall_timeout
        if seconds is None:
            return
        for attempt in self.scheduler.stalled(self._runtime.now_ns() - int(seconds * NS_PER_SECOND)):
            logger.warning(
                "%s is being processed for more than %s s", name_of(attempt.taken[0].record), seconds
            )

    # Partitions that are given up

    def begin_release(self, partitions: Iterable[TopicPartition]) -> None:
        self.scheduler.close(partitions)
        half_ms = self._consumer.config.max_poll_interval_ms / 2
        seconds = min(self._settings.revoke_timeout, half_ms / 1000)
        self._revoke_until_ns = self._runtime.now_ns() + int(seconds * NS_PER_SECOND)

    def is_released(self, partitions: Iterable[TopicPartition]) -> bool:
        self._collect()
        self._start()  # what there is of other partitions
        return self.scheduler.is_idle(partitions) or self._runtime.now_ns() >= self._revoke_until_ns

    def release(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        chosen = list(partitions)
        offsets = self.scheduler.offsets(chosen)
        self.scheduler.drop(chosen)
        for each in chosen:
            self._sources.pop(each, None)
            self._intake.forget(each)
        for attempt in self.scheduler.running:
            if not attempt.queue.owned.is_owned:
                self._workers.abandon(attempt)
        return offsets

    # Commits

    def _commit_if_due(self) -> None:
        self._take_commit()
        now_ns = self._runtime.now_ns()
        if self._commit is None and now_ns >= self._commit_due_ns:
            self._commit_due_ns = now_ns + self._interval_ns
            self._begin_commit()

    def _begin_commit(self) -> None:
        if offsets := self.scheduler.offsets():
            self._commit = CommitOffsets(offsets)
            self._engine.commit(self._commit)
            self._runtime.network.wake()

    def _take_commit(self) -> None:
        """Draw the conclusions of the commit that is done. Raise an error that the program has to mend."""
        commit = self._commit
        if commit is None or not commit.is_done:
            return
        self._commit = None
        self._consumer._interceptors.on_commit(commit.offsets, commit.error)
        failed = commit.offsets.keys() if commit.error is not None and not commit.failed else commit.failed
        too_large = [
            each for each, why in commit.failed.items() if isinstance(why, OffsetMetadataTooLargeError)
        ]
        self.scheduler.note_commit(commit.offsets, failed, too_large)
        if too_large:
            self._commit_due_ns = self._runtime.now_ns()
        self._judge(commit)

    def _judge(self, commit: CommitOffsets) -> None:
        for partition, why in commit.failed.items():
            if isinstance(why, AuthorizationError):
                raise why
            if not isinstance(why, OffsetMetadataTooLargeError | CommitFailedError):
                logger.warning("a commit of %s failed: %s", partition, why)
        if commit.error is not None and not commit.failed:
            logger.warning("a commit failed: %s", commit.error)

    # The end

    async def _end(self, error: BaseException | None) -> None:
        """End what runs, and commit what is finished. A second interrupt only commits."""
        try:
            await self._finish_running(error)
        except BaseException:
            await self._commit_last(self._runtime.deadline(COMMIT_SECONDS))
            raise
        await self._commit_last(self._deadline_of_end(COMMIT_SECONDS))

    async def _finish_running(self, error: BaseException | None) -> None:
        closing = self._closing
        drains = error is None and closing is not None and closing[1].drains
        self.scheduler.stop(drains=drains)
        deadline = self._deadline_of_end(INT64_MAX if drains else self._settings.revoke_timeout)

        def is_over() -> bool:
            self._collect_last()
            if drains:
                self._start()
            is_drained = self.scheduler.record_count == 0 or self.scheduler.failure is not None
            return self.scheduler.is_idle() and (is_drained or not drains)

        while not await self._runtime.await_until(is_over, self._before_retry(deadline)):
            if deadline.is_over:
                break

    def _before_retry(self, deadline: Deadline) -> Deadline:
        """Return a deadline, or the time of the next attempt that is due before."""
        left_ns = self.scheduler.deadline_ns() - self._runtime.now_ns()
        return deadline.within(max(left_ns, 0) / NS_PER_SECOND)

    def _collect_last(self) -> None:
        """Take outcomes; what would stop `process()` has no more to stop."""
        while self._outcomes:
            try:
                self._collect()
            except BaseException as error:
                logger.warning("the end of process() has met another error: %r", error)

    def _deadline_of_end(self, seconds: float) -> Deadline:
        """Return the deadline for a step of the end, which leaves time for what close() has to do then."""
        closing = self._closing
        left = None if closing is None else closing[0].left
        return self._runtime.deadline(seconds if left is None else min(seconds, left * CLOSING_FRACTION))

    async def _commit_last(self, deadline: Deadline) -> None:
        """Commit what is finished, and wait for that."""

        def is_done() -> bool:
            return self._commit is None or self._commit.is_done

        for _ in range(2):  # what was under way, and then the rest
            await self._runtime.await_until(is_done, deadline)
            if not is_done():
                logger.warning("process() has ended before its last commit was answered")
                return
            self._take_commit()
            if self._commit is None:
                self._begin_commit()
        await self._runtime.await_until(is_done, deadline)
        self._take_commit()

    def _go_back(self) -> None:
        """Read what was taken and is not finished again, after this call."""
        member = self._consumer._member
        if self._subscriptions is not None and self._closing is None:
            before, widened = self._subscriptions
            if member.wanted is widened:  # a callback may have changed it
                member.follow(before)
        self._intake.end()
        for owned in self.scheduler.partitions():
            if owned.partition in self._backlog.assigned:
                self._consumer._begin(owned.partition, COMMITTED)
        self._runtime.network.wake()
