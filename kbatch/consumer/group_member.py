"""GroupMember: what a consumer does as a member of its group: its subscription, rebalances and commits.

Theory of operation. The engine keeps the membership alive, and offers steps of rebalances; the program's
thread takes them, in polls. A step to give up partitions first commits what was delivered, if
enable.auto.commit is on, then runs the callback, and only then the partitions are let go. What a step waits
for, the commit or a callback that is a coroutine, goes on if the poll is cancelled, interrupted or over; the
next poll takes the step up where it was. While a step is open nothing is delivered.

Automatic commits are Java's: at the beginning of a poll, what earlier polls have delivered is committed, at
most once in auto.commit.interval.ms. What the last poll has returned is committed by the next one, or by
`close`.

After org.apache.kafka.clients.consumer.internals.ConsumerCoordinator and AsyncKafkaConsumer.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from inspect import iscoroutine, iscoroutinefunction
from typing import TYPE_CHECKING, Any, Protocol, final

from kbatch._native.codec.record import ConsumerRecord
from kbatch.consumer.backlog import AssignedPartition, Backlog, offset_after
from kbatch.consumer.lifetime import Ending
from kbatch.consumer.polled import Polled
from kbatch.consumer.runtime import api_milliseconds
from kbatch.core.client.backoff import NS_PER_MS
from kbatch.core.client.calls import Call
from kbatch.core.consumer.commits import CommitOffsets, CommittedLookup
from kbatch.core.consumer.group_engine import GroupEngine
from kbatch.core.consumer.membership import Subscription
from kbatch.core.consumer.partition_state import COMMITTED
from kbatch.errors import IllegalStateError, KafkaError, KafkaTimeoutError
from kbatch.logs import ClientLogger
from kbatch.records import (
    INT64_MAX,
    NO_TOPIC_ID,
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    TopicPartition,
    check_integer,
    check_text,
    checked_partition,
    checked_partitions,
)

if TYPE_CHECKING:
    from kbatch._native.io.sole_user import SoleUser
    from kbatch.consumer.runtime import ReaderRuntime
    from kbatch.core.consumer.membership import Rebalance
    from kbatch.interceptors import ConsumerInterceptorChain
    from kbatch.waiting.deadline import Deadline

logger = ClientLogger("kbatch.consumer")

Partitions = Iterable[TopicPartition | tuple[str, int]]
OnRebalance = Callable[[list[TopicPartition]], Awaitable[object] | object]
OnCommit = Callable[[dict[TopicPartition, OffsetAndMetadata], KafkaError | None], object]
# What `commit` takes: what a poll has returned, records, or offsets.
Committable = (
    Polled | ConsumerRecord | Iterable[ConsumerRecord] | Mapping[TopicPartition, int | OffsetAndMetadata]
)
LATENCIES = {
    "assign": "partition-assigned-latency",
    "revoke": "partition-revoked-latency",
    "lost": "partition-lost-latency",
}
# Of librdkafka's patterns; Python would take its letters.
POSIX_CLASS = re.compile(r"\[:\w+:\]")
# How long a member that was assigned nothing waits for partitions before it has none: brokers look patterns
# up on the side, other members have theirs to give back, and heartbeats tell of both, every 5 s by default.
FIRST_PARTITIONS_SECONDS = 8
# A poll that waits counts as polling: it is noted as often in max.poll.interval.ms.
NOTES_PER_INTERVAL = 4
# Automatic commits name what has moved, and as often as this everything: brokers forget offsets of groups
# without members after offsets.retention.minutes, as of programs that assign partitions (KIP-211).
COMMIT_ALL_NS = 3_600_000 * NS_PER_MS


class RebalanceListener:
    """The callbacks of a subscription; None does nothing.

    Parameters
    ----------
    on_assigned, on_revoked, on_lost : callable or None
        Without `on_lost`, partitions that are lost are passed to `on_revoked`.
    """

    def __init__(
        self,
        on_assigned: OnRebalance | None = None,
        on_revoked: OnRebalance | None = None,
        on_lost: OnRebalance | None = None,
    ) -> None:
        self._callbacks = {
            "assign": on_assigned,
            "revoke": on_revoked,
            "lost": on_revoked if on_lost is None else on_lost,
        }

    def of(self, kind: str) -> OnRebalance | None:
        """Return the callback for a kind of step."""
        return self._callbacks[kind]


class Processor(Protocol):
    """What processes records while the member's partitions come and go: `process()`."""

    def takes_close(self, deadline: Deadline, ending: Ending, /) -> bool:
        """True if it closes the consumer at its end, as its own function asks."""

    def begin_release(self, partitions: Iterable[TopicPartition], /) -> object:
        """Begin nothing new of partitions that are to be given up, or are lost."""

    def is_released(self, partitions: Iterable[TopicPartition], /) -> bool:
        """True if nothing of them runs any more, or what runs is not waited for any longer."""

    def release(self, partitions: Iterable[TopicPartition], /) -> dict[TopicPartition, OffsetAndMetadata]:
        """Forget partitions, and return what is to be committed."""


@final
class Step:
    """A step of a rebalance that the program has taken.

    Attributes
    ----------
    rebalance : Rebalance
    listener : RebalanceListener
    is_begun : bool
    is_released : bool
        True if `process()` is done with the partitions.
    commit : CommitOffsets or None
    called_ns : int or None
        When the callback has begun.
    task : asyncio.Task or None
        The callback, if it is a coroutine.
    """

    def __init__(self, rebalance: Rebalance, listener: RebalanceListener) -> None:
        self.rebalance = rebalance
        self.listener = listener
        self.is_begun = self.is_released = False
        self.commit: CommitOffsets | None = None
        self.called_ns: int | None = None
        self.task: Any = None


@final
class GroupMember:
    """The part of a consumer that belongs to a group. Without group.id its methods raise InvalidGroupIdError.

    Parameters
    ----------
    runtime : ReaderRuntime
    backlog : Backlog
    user : SoleUser
    interceptors : ConsumerInterceptorChain
    new_task : callable or None
        Begins a task for a coroutine; None if callbacks must be plain.

    Attributes
    ----------
    wanted : Subscription or None
        None without a subscription, and while the member leaves.
    is_assigned : bool
        True if the group has assigned partitions since the last `subscribe`, perhaps none.
    note_seconds : float
        How often a poll that waits is noted.
    processing : Processor or None
        What `process()` is doing, instead of automatic commits.
    """

    def __init__(
        self,
        runtime: ReaderRuntime,
        backlog: Backlog,
        user: SoleUser,
        interceptors: ConsumerInterceptorChain,
        new_task: Callable[[Any], Any] | None,
    ) -> None:
        engine, config = runtime.engine, runtime.config
        assert isinstance(engine, GroupEngine)
        self._runtime = runtime
        self._engine = engine
        self._backlog = backlog
        self._user = user
        self._interceptors = interceptors
        self._new_task = new_task
        self.wanted: Subscription | None = None
        self.is_assigned = False
        self._missing: set[str] = set()  # topics that a warning was about
        self._listener = RebalanceListener()
        self._step: Step | None = None
        self._leave_call: Call | None = None
        self._is_failing = False
        self._identity: ConsumerGroupMetadata | None = None  # as of the last poll
        self._async_commits: deque[tuple[CommitOffsets, OnCommit | None]] = deque()
        self._is_auto_commit = config.enable_auto_commit
        self._commit_interval_ns = config.auto_commit_interval_ms * NS_PER_MS
        if self._is_auto_commit:
            backlog.due_ns = runtime.now_ns() + self._commit_interval_ns
        self._commit_all_ns = runtime.now_ns() + COMMIT_ALL_NS
        self._auto_commit: CommitOffsets | None = None
        self.note_seconds = config.max_poll_interval_ms / 1000 / NOTES_PER_INTERVAL
        self.processing: Processor | None = None

    # Subscription

    def subscribe(
        self,
        topics: Iterable[str] | str,
        *,
        on_assigned: OnRebalance | None = None,
        on_revoked: OnRebalance | None = None,
        on_lost: OnRebalance | None = None,
    ) -> None:
        """Read these topics as a member of the group, which shares their partitions out. Another call
        replaces the topics and the callbacks: polls return nothing of other topics from then on. Polls do the
        rest: they run the callbacks, and raise errors.

        Parameters
        ----------
        topics : iterable of str, or str
            Names, or one pattern that begins with "^": a regular expression of Python's `re` that matches
            whole names. New topics are found within metadata.max.age.ms. Internal topics are left out, unless
            exclude.internal.topics is false.
        on_assigned : callable or None
            Called with a list of partitions that were added. It may `seek` and `pause` them.
        on_revoked : callable or None
            Called with a list of partitions that are given up, after what was delivered of them is committed
            (enable.auto.commit). It may still `commit` their offsets.
        on_lost : callable or None
            Called instead with partitions that the group has given to others already: nothing of them can
            be committed. The default is `on_revoked`.

            Callbacks run in polls, `unsubscribe` and `close`, which raise their exceptions after the step is
            done. An AsyncConsumer's may be coroutine functions.

        Raises
        ------
        IllegalStateError
            Partitions are assigned by `assign`.
        InvalidGroupIdError
            group.id is not set.
        TypeError, ValueError
            Topics or callbacks are unsuitable.
        """
        subscription = _subscription_of(topics)
        callbacks = {"on_assigned": on_assigned, "on_revoked": on_revoked, "on_lost": on_lost}
        for name, callback in callbacks.items():
            self._check_callback(name, callback)
        with self._user:
            if self._backlog.assigned and not self.is_subscribed:
                raise IllegalStateError(
                    "subscribe() after assign(): the program assigns the partitions; call unsubscribe() "
                    "first, or use two consumers"
                )
            self.follow(subscription)
            self._listener = RebalanceListener(**callbacks)

    def follow(self, subscription: Subscription) -> None:
        """Read the topics of a subscription from now on, with the callbacks that there are."""
        self._engine.subscribe(subscription)
        self.wanted = subscription
        self._backlog.leave_out(subscription.excludes)
        self._backlog.note_change()
        self.is_assigned = False
        self._missing.clear()
        self._leave_call = None
        self._runtime.network.wake()

    def subscription(self) -> set[str] | str:
        """Return the topics that are subscribed to, or the pattern; an empty set without a subscription."""
        if self.wanted is None:
            return set()
        return set(self.wanted.topics) if self.wanted.pattern is None else self.wanted.pattern

    async def unsubscribe(self) -> None:
        """Give up all partitions, and leave the group; or, after `assign`, read nothing more. Callbacks run,
        and what was delivered is committed, as in a revocation.

        Raises
        ------
        KafkaTimeoutError
            It took longer than default.api.timeout.ms. It goes on; call it again.
        """
        with self._user:
            self._user.refuse_callbacks("unsubscribe")
            if not self.is_subscribed:
                self._engine.remove(list(self._backlog.assigned))
                self._remove(list(self._backlog.assigned))
                self._runtime.network.wake()
                return
            if not await self._leave("unsubscribe", None, self._runtime.api_deadline()):
                seconds = self._runtime.config.default_api_timeout_ms / 1000
                why = self._engine.last_connection_failure or "its coordinator is slow"
                raise KafkaTimeoutError(f"unsubscribe() timed out after {seconds} s: {why}; call it again")

    @property
    def is_subscribed(self) -> bool:
        """True if a group assigns the partitions, or still has to take them back."""
        return self.wanted is not None or self._leave_call is not None

    async def _leave(self, name: str, leave: bool | None, deadline: Deadline) -> bool:
        """Leave the group. Return False at the deadline. Raise the first exception of callbacks at last."""
        call = self._leave_call
        if call is None:
            call = self._leave_call = Call(name)
            self._engine.leave(call, leave)
        self.wanted = None
        self._backlog.note_change()
        self._runtime.network.wake()
        failure: Exception | None = None
        while not call.is_done:
            is_going_on = await self._runtime.await_until(lambda: call.is_done or self._has_step, deadline)
            try:
                if not is_going_on or not await self._do_steps(deadline):
                    break
            except Exception as error:
                failure = failure or error
        if call.is_done:
            self._leave_call = None
        if failure is not None:
            raise failure
        return call.is_done

    def check_topics(self) -> None:
        """Raise if a topic that is subscribed to cannot be read; warn once of one that is not there."""
        if self.wanted is not None:
            self._runtime.check_topics(self.wanted.topics, self._missing)

    def _check_callback(self, name: str, callback: object) -> None:
        if callback is not None and not callable(callback):
            raise TypeError(f"{name} must be callable or None, got {type(callback).__name__}")
        if self._new_task is None and iscoroutinefunction(callback):
            raise TypeError(
                f"{name} must not be a coroutine function; give a plain one, or use AsyncConsumer"
            )

    # Commits

    async def commit(self, offsets: Committable | None = None, *, timeout: float | None = None) -> None:
        """Commit offsets for the group, and return after all earlier commits are done, too.

        Parameters
        ----------
        offsets : Polled, ConsumerRecord, iterable of ConsumerRecord, or mapping of TopicPartition to offset
            What a poll has returned, or some records: the offsets after them are committed. A mapping has the
            next offset to read of each partition, as int or OffsetAndMetadata. None commits everything that
            was delivered.
        timeout : float or None
            Seconds; None is default.api.timeout.ms.

        Raises
        ------
        CommitFailedError
            The group has given `partitions` to others; poll again, and go on.
        InvalidGroupIdError
            group.id is not set.
        OffsetMetadataTooLargeError, GroupAuthorizationError, TopicAuthorizationError
            The coordinator refuses the offsets.
        KafkaTimeoutError
            It is unknown whether they were committed.
        """
        with self._user:
            call = CommitOffsets(self._offsets_of(offsets), timeout_ms=api_milliseconds(timeout))
            self._engine.commit(call)
            await self._await_call(call, "commit-sync-time")
            self.run_commit_callbacks()
            self._interceptors.on_commit(call.offsets, call.error)
            if call.error is not None:
                raise call.error

    def commit_async(self, offsets: Committable | None = None, on_commit: OnCommit | None = None) -> None:
        """Begin to commit offsets, without waiting, and without another attempt if that fails.

        Parameters
        ----------
        offsets
            As in `commit`.
        on_commit : callable or None
            Called by a later poll, `commit` or `close` with the offsets, a dict of OffsetAndMetadata, and the
            error or None; callbacks come in the order of these calls. Without one, failures are logged.
        """
        if on_commit is not None and (not callable(on_commit) or iscoroutinefunction(on_commit)):
            raise TypeError(f"on_commit must be a plain callable or None, got {on_commit!r}")
        with self._user:
            self._commit_async(CommitOffsets(self._offsets_of(offsets), retries=False), on_commit)

    def _commit_async(self, call: CommitOffsets, on_commit: OnCommit | None) -> None:
        self._engine.commit(call)
        self._async_commits.append((call, on_commit))
        self._runtime.network.wake()

    async def committed(
        self, partitions: Partitions, *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return what the group has committed for partitions; None for those without. Offsets of open
        transactions are waited for.

        Raises
        ------
        InvalidGroupIdError, GroupAuthorizationError, TopicAuthorizationError
            group.id is not set, or an ACL is missing.
        KafkaTimeoutError
            No answer came within `timeout` seconds, or default.api.timeout.ms.
        """
        chosen = checked_partitions("committed", partitions)
        with self._user:
            call = CommittedLookup(chosen, timeout_ms=api_milliseconds(timeout))
            self._engine.committed(call)
            await self._await_call(call, "committed-time")
            if call.error is not None:
                raise call.error
            return {each: call.answer.get(each) for each in chosen}

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return the member with its generation, for `send_offsets_to_transaction` of a producer. Any thread
        may call it.

        If the group has removed the member since the last poll, it is the member as it was, so that the
        coordinator refuses its offsets.
        """
        identity = self._engine.group_metadata
        is_removed = identity.generation_id < 0 and self.wanted is not None
        return self._identity if is_removed and self._identity is not None else identity

    def alive(self) -> None:
        """Count as a poll for max.poll.interval.ms, without delivering records: for work that takes long.
        Any thread may call it.
        """
        runtime = self._runtime
        runtime.check_not_forked()
        if runtime.is_closed:
            raise runtime.closed_error()
        if self._engine.note_poll(runtime.now_ns()):
            runtime.network.wake()

    async def _await_call(self, call: CommitOffsets | CommittedLookup, sensor: str) -> None:
        """Wait for a call, which the engine ends at its deadline; a callback of close() may do so, too."""
        runtime = self._runtime
        begun_ns = runtime.now_ns()
        if not runtime.is_closed:
            await runtime.await_answer(lambda: call.is_done, runtime.deadline(None), call.name)
        else:
            runtime.network.wake()
            if not await runtime.await_until(lambda: call.is_done, runtime.deadline(None)):
                raise runtime.closed_error()
        runtime.observe(sensor, runtime.now_ns() - begun_ns)

    def _offsets_of(self, given: Any) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what `commit` is to commit. Callbacks may call it while `process()` runs, which does so."""
        if self.processing is not None:
            raise IllegalStateError(
                "process() commits what is finished, and nothing else may; leave the commit out"
            )
        if given is None:
            return self._backlog.positions()
        if isinstance(given, Polled):
            return dict(given.offsets)
        if isinstance(given, Mapping):
            checked = {checked_partition(each): offset for each, offset in given.items()}
            return {each: self._offset_of(each, offset) for each, offset in checked.items()}
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        is_one = isinstance(given, ConsumerRecord | tuple) or not isinstance(given, Iterable)
        for each in (given,) if is_one else given:
            if not isinstance(each, ConsumerRecord):
                raise TypeError(
                    "offsets must be the result of a poll, records, or a mapping of TopicPartition to "
                    f"offset, got {each!r}; write {{TopicPartition(topic, 0): offset}} for an offset"
                )
            partition = TopicPartition(each.topic, each.partition)
            before = found.get(partition)
            if before is None or before.topic_id != each.topic_id or before.offset <= each.offset:
                found[partition] = offset_after(each)
        return found

    def _offset_of(self, partition: TopicPartition, offset: object) -> OffsetAndMetadata:
        """Return an offset that the program names, with the topic's id and the leader epoch if these are
        known.
        """
        assigned = self._backlog.assigned.get(partition)
        has_position = assigned is not None and self._backlog.find_position(assigned)
        topic_id = assigned.last.topic_id if assigned is not None and has_position else NO_TOPIC_ID
        if isinstance(offset, OffsetAndMetadata):
            return offset if offset.topic_id != NO_TOPIC_ID else replace(offset, topic_id=topic_id)
        check_integer(f"offset of {partition}", offset, 0, INT64_MAX)
        assert isinstance(offset, int)
        if assigned is not None and has_position and assigned.position == offset:
            return offset_after(assigned.last)
        return OffsetAndMetadata(offset, topic_id=topic_id)

    def run_commit_callbacks(self) -> None:
        """Report asynchronous commits that are done, in order."""
        while self._async_commits and self._async_commits[0][0].is_done:
            call, on_commit = self._async_commits.popleft()
            self._interceptors.on_commit(call.offsets, call.error)
            if on_commit is not None:
                self._user.call_back(on_commit, dict(call.offsets), call.error)
            elif call.error is not None:
                logger.warning("a commit failed: %s", call.error)

    # Polls

    def note_poll(self) -> None:
        """Record that the program polls, and commit what earlier polls have delivered if that is due."""
        now_ns = self._runtime.now_ns()
        if self._engine.note_poll(now_ns):
            self._runtime.network.wake()
        if self.wanted is not None and self._engine.group_metadata.generation_id >= 0:
            self._identity = self._engine.group_metadata
        if self._commits_positions and now_ns >= self._backlog.due_ns and not self.has_work:
            self._backlog.due_ns = now_ns + self._commit_interval_ns
            self._commit_moved(now_ns)

    def _commit_moved(self, now_ns: int) -> None:
        """Commit the positions that have moved since the last automatic commit, unless that is not done."""
        before, backlog = self._auto_commit, self._backlog
        if before is not None and not before.is_done:
            return
        if before is not None and before.error is not None:
            backlog.commit_again(before.offsets)
        if now_ns >= self._commit_all_ns:
            self._commit_all_ns = now_ns + COMMIT_ALL_NS
            backlog.commit_again(backlog.assigned)
        positions = backlog.take_uncommitted()
        self._auto_commit = CommitOffsets(positions, retries=False) if positions else None
        if self._auto_commit is not None:
            self._commit_async(self._auto_commit, None)

    @property
    def _commits_positions(self) -> bool:
        """True if what was delivered is committed without a call of the program."""
        return self._is_auto_commit and self.processing is None

    @property
    def has_work(self) -> bool:
        """True if the program has to `attend` to something before records are delivered."""
        commits = self._async_commits
        return (
            self._has_step
            or self._engine.membership_error is not None
            or (bool(commits) and commits[0][0].is_done)
        )

    @property
    def _has_step(self) -> bool:
        return self._step is not None or self._engine.rebalance is not None

    async def attend(self, deadline: Deadline) -> bool:
        """Run callbacks, and do steps of a rebalance. Return False if the deadline came before they were
        done. Raise the error that has ended the membership.
        """
        self.run_commit_callbacks()
        if not await self._do_steps(deadline):
            return False
        error = self._engine.membership_error
        if error is not None and not self._has_step:
            raise error.marked()
        return True

    # Steps of a rebalance

    async def _do_steps(self, deadline: Deadline) -> bool:
        while self._has_step:
            if not await self._do_step(deadline):
                return False
        return True

    async def _do_step(self, deadline: Deadline) -> bool:
        """Process the next step, or what is left of it. Return False at the deadline."""
        step = self._step
        if step is None:
            rebalance = self._engine.rebalance
            if rebalance is None:
                return True
            step = self._step = Step(rebalance, self._listener)
        if not step.is_begun:
            taken = self._engine.take_rebalance(step.rebalance)
            if taken is None:  # it was withdrawn
                self._step = None
                return True
            step.rebalance = taken
            self._begin(step)
        if not step.is_released and not await self._release(step, deadline):
            return False
        commit = step.commit
        if commit is not None:
            if not await self._runtime.await_until(lambda: commit.is_done, deadline):
                return False
            step.commit = None
            self._interceptors.on_commit(commit.offsets, commit.error)
            if commit.error is not None:
                logger.warning("the commit before partitions are given up failed: %s", commit.error)
        self._call_back(step)
        if step.task is not None:
            if not await self._runtime.await_until(step.task.done, deadline):
                return False
            self._finish(step)
            step.task.result()
        self._finish(step)
        return True

    def _begin(self, step: Step) -> None:
        """Hold what is assigned; begin to commit what is revoked."""
        kind, partitions, number = step.rebalance
        if kind == "assign":
            for each in partitions:
                if each not in self._backlog.assigned:
                    self._backlog.add(AssignedPartition(each, number, COMMITTED))
            if self.wanted is not None:  # which may be another since
                self._backlog.leave_out(self.wanted.excludes)
        elif self.processing is not None:
            self.processing.begin_release(partitions)
        elif kind == "revoke" and self._commits_positions:
            positions = self._backlog.positions(with_last=not self._is_failing)
            self._begin_last_commit(step, {each: positions[each] for each in partitions if each in positions})
        step.is_begun = True

    async def _release(self, step: Step, deadline: Deadline) -> bool:
        """Let `process()` end what it has of partitions that are given up, and commit that. Return False at
        the deadline.
        """
        kind, partitions, _ = step.rebalance
        if self.processing is not None and kind != "assign":
            is_released = partial(self.processing.is_released, partitions)
            if kind == "revoke" and not await self._runtime.await_until(is_released, deadline):
                return False
            offsets = self.processing.release(partitions)
            if kind == "revoke":
                self._begin_last_commit(step, offsets)
        step.is_released = True
        return True

    def _begin_last_commit(self, step: Step, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        if step.commit is None:
            step.commit = CommitOffsets(offsets, is_last=True) if offsets else None
        if step.commit is not None:
            self._engine.commit(step.commit)  # once more after an interrupt, which is no second commit
            self._runtime.network.wake()

    def _call_back(self, step: Step) -> None:
        """Begin the callback, once. If it raises, the step is finished."""
        callback = step.listener.of(step.rebalance.kind)
        if step.called_ns is not None or callback is None:
            return
        step.called_ns = self._runtime.now_ns()
        try:
            result = self._user.call_back(callback, list(step.rebalance.partitions))
        except BaseException:
            self._finish(step)
            raise
        if iscoroutine(result) and self._new_task is not None:
            step.task = self._new_task(result)
            step.task.add_done_callback(self._callback_ended)
            self._user.caller_back = step.task

    def _callback_ended(self, task: object) -> None:
        self._user.caller_back = None
        self._runtime.changed.notify()

    def _finish(self, step: Step) -> None:
        """Continue the membership after a step; a second call has no effect."""
        if self._step is step:
            self.is_assigned = step.rebalance.kind == "assign"
            if not self.is_assigned:
                self._remove(step.rebalance.partitions)
            if step.rebalance.kind == "lost":
                self._identity = None
            if step.called_ns is not None:
                duration_ms = (self._runtime.now_ns() - step.called_ns) / NS_PER_MS
                self._runtime.observe(LATENCIES[step.rebalance.kind], duration_ms)
            self._engine.finish_rebalance(step.rebalance)
            self._runtime.network.wake()
            self._step = None

    def _remove(self, partitions: Iterable[TopicPartition]) -> None:
        for each in partitions:
            if each in self._backlog.assigned:
                self._backlog.end(self._backlog.assigned[each])

    # The end

    async def end(self, deadline: Deadline, ending: Ending) -> None:
        """Commit what was delivered, run callbacks, and leave the group, until the deadline at most. If the
        program is failing, enable.auto.commit leaves out what the last poll has returned.
        """
        leave, is_failing, calls_back, _ = ending
        self._is_failing = is_failing
        if not calls_back:
            self._listener = RebalanceListener()
            self._async_commits = deque((call, None) for call, _ in self._async_commits)
        try:
            if self.is_subscribed:
                await self._leave("close", leave, deadline)
            elif self._commits_positions and self._backlog.poll_count:  # no position was used before a poll
                positions = self._backlog.positions(with_last=not is_failing)
                if positions:
                    self._commit_async(CommitOffsets(positions, is_last=True), None)
        finally:
            commits = self._async_commits
            if commits and await self._runtime.await_until(lambda: commits[-1][0].is_done, deadline):
                self.run_commit_callbacks()


def _subscription_of(topics: Any) -> Subscription:
    """Return names of topics, or a pattern, as a Subscription."""
    if isinstance(topics, str):
        if not topics.startswith("^"):
            raise TypeError(
                f"topics must be a list of names, or a pattern that begins with ^, got {topics!r}; "
                f"subscribe([{topics!r}])"
            )
        check_text("pattern", topics)
        if posix := POSIX_CLASS.search(topics):
            raise ValueError(
                f"pattern must be a regular expression of Python's re, which has no {posix[0]}, got "
                f"{topics!r}"
            )
        try:
            re.compile(topics)
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(
                f"pattern must be a regular expression of Python's re, got {topics!r}: {error}"
            ) from error
        return Subscription(pattern=topics)
    return Subscription(topic_names(topics, "a pattern comes alone: subscribe({!r})"))


def topic_names(topics: Any, remedy: str) -> frozenset[str]:
    """Return the topics of a subscription, which must be names. `remedy` is the text about a pattern."""
    if not isinstance(topics, Iterable) or isinstance(topics, bytes | bytearray):
        how = "call unsubscribe() to leave the group" if topics is None else "write subscribe([name])"
        raise TypeError(f"topics must be a list of names, got {topics!r}; {how}")
    names = frozenset(topics)
    if not names:
        raise ValueError("topics must not be empty; call unsubscribe() to leave the group")
    for each in names:
        check_text("topic", each)
        if each.startswith("^"):
            raise ValueError(f"topics must be names, got {each!r}; {remedy.format(each)}")
        if not each:
            raise ValueError("topics must be names, got an empty one")
    return names
