"""Program: what a member of a world's group does, poll after poll.

Theory of operation. The program does what a consumer's user and its library do on the user's thread: steps of
rebalances between two polls, records handed out in order, commits of what was handed out. It keeps a Tenure
for each partition that it owns, and shows the ledger all that it gets.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from kbatch.core.client.calls import Call
from kbatch.core.consumer.commits import CommitOffsets
from kbatch.core.consumer.membership import Rebalance, Subscription
from kbatch.core.consumer.partition_state import COMMITTED, EARLIEST, NO_EPOCH, OffsetSpec, Start
from kbatch.core.consumer.results import Failed, Fetched, Moved, Result
from kbatch.errors import (
    CommitFailedError,
    DataLossError,
    FencedInstanceIdError,
    GroupAuthorizationError,
    GroupIdNotFoundError,
    InconsistentGroupProtocolError,
    KafkaTimeoutError,
    LogTruncationError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnreleasedInstanceIdError,
)
from kbatch.records import NO_TOPIC_ID, OffsetAndMetadata, TopicPartition
from kbatch.waiting.deadline import Deadline
from tests.simulation.readers.ledger import Piece
from tests.simulation.world.schedule import MS
from tests.simulation.world.tasks import VirtualWaiter, sleep
from tests.simulation.world.trace import Violation

if TYPE_CHECKING:
    from tests.simulation.readers.stage import Process


# Errors after which a program reads from the beginning: the position is not there, or never was.
GONE = (NoOffsetForPartitionError, OffsetOutOfRangeError, LogTruncationError, DataLossError)
# Errors that end a membership, and that a world may cause. A mixed group may have the other protocol.
REFUSALS = (
    FencedInstanceIdError,
    GroupAuthorizationError,
    GroupIdNotFoundError,
    InconsistentGroupProtocolError,
    UnreleasedInstanceIdError,
)


class Tenure:
    """A partition that the program owns, from its assignment to its end.

    Attributes
    ----------
    generation : int
        That of the results that count.
    since_ns : int
        When its committed offset may have been looked up first.
    place : TopicPartition or None
        The partition of the topic that is read, as the ledger knows it; None while it is unknown.
    topic_id : bytes
        The id of that topic.
    position : int
        The next offset to hand out; -1 while it is unknown.
    leader_epoch : int
        That of the record before the position; NO_EPOCH while it is unknown.
    epochs : dict of int to int
        Leader epochs of records that were read, by the offset after each.
    is_by_seek : bool
        The program has chosen the position.
    """

    def __init__(self, partition: TopicPartition, generation: int, since_ns: int) -> None:
        self.partition = partition
        self.generation = generation
        self.since_ns = since_ns
        self.place: TopicPartition | None = None
        self.topic_id = NO_TOPIC_ID
        self.position = -1
        self.leader_epoch = NO_EPOCH
        self.epochs: dict[int, int] = {}
        self.is_by_seek = self.is_paused = False
        self.results: deque[Result] = deque()
        self.piece: Piece | None = None

    @property
    def offset(self) -> OffsetAndMetadata:
        return OffsetAndMetadata(self.position, "", self.leader_epoch, self.topic_id)


class Program:
    """The program of a member.

    Attributes
    ----------
    tenures : dict of TopicPartition to Tenure
    is_closing : bool
        It is to leave the group, and end.
    frozen_until_ns, stalled_until_ns : int
        When its process runs again; when it polls again.
    polled_ns : int
        When it polled last, or waited in a poll.
    step_count : int
        The number of steps of rebalances.
    """

    def __init__(self, member: Process) -> None:
        self.member = member
        self.world, self.engine = member.world, member.engine
        self.options = member.world.readers
        self.random = random.Random(f"program {member.options.seed} {member.name}")
        self.tenures: dict[TopicPartition, Tenure] = {}
        self.is_closing = False
        self.frozen_until_ns = self.stalled_until_ns = 0
        self.polled_ns = member.schedule.now_ns
        self.step_count = 0
        self._waiter: VirtualWaiter | None = None
        self._has_news = False
        self._given: dict[TopicPartition, OffsetAndMetadata] = {}  # by polls before this one

    # Waiting

    def wake(self) -> None:
        """Wake the program if it waits. Any part of the world may call it."""
        self._has_news = True
        if self._waiter is not None:
            self._waiter.set()

    async def _wait(self, longest_ns: int) -> None:
        """Wait for news, at most so long; and until the process runs."""
        schedule = self.member.schedule
        if not self._has_news:
            self._waiter = waiter = VirtualWaiter(schedule)
            timer = schedule.after(longest_ns, waiter.set)
            try:
                await waiter.wait(Deadline(None))
            finally:
                timer.cancel()
                self._waiter = None
        self._has_news = False
        await self._thaw()

    async def _sleep(self, duration_ns: int) -> None:
        if duration_ns > 0:
            await sleep(self.member.schedule, duration_ns)
        await self._thaw()

    async def _thaw(self) -> None:
        schedule = self.member.schedule
        while (left_ns := self.frozen_until_ns - schedule.now_ns) > 0:
            await sleep(schedule, left_ns)

    @property
    def is_polling(self) -> bool:
        """True if neither the process nor the program is stopped."""
        return self.member.schedule.now_ns > max(self.frozen_until_ns, self.stalled_until_ns)

    # Its life

    async def run(self) -> None:
        self._subscribe()
        while self.member.is_alive and not self.is_closing:
            await self._poll()
            await self._work()
        if self.member.is_alive:
            await self._close()

    def _subscribe(self) -> None:
        self.engine.subscribe(Subscription(frozenset(self.world.topics())))
        self.member.wake()

    async def _close(self) -> None:
        if self.options.commit != "last":
            await self._commit(self._positions())
        call = Call("close")
        self.engine.leave(call)
        self.member.wake()
        while not call.is_done and self.member.is_alive:
            await self._do_steps()
            if not call.is_done:
                await self._wait(1000 * MS)
        if not self.member.is_alive:
            return
        self.engine.stop()
        for result in self._take_all():
            self._release(result, 0)
        self.member.wake()
        await self._sleep(30 * MS)
        if self.member.is_alive:
            self.member.check_released()
            self.member.trace("has ended")
            self.member.end()

    async def _work(self) -> None:
        """Do what programs do between two polls."""
        now_ns = self.member.schedule.now_ns
        if self.stalled_until_ns > now_ns:
            await self._sleep(self.stalled_until_ns - now_ns)
        elif self.options.work_ms and self.world.faults.is_active:
            await self._sleep(int(self.random.random() * self.options.work_ms * MS))

    # Polls

    async def _poll(self) -> None:
        engine, member = self.engine, self.member
        self._note_poll()
        if (error := engine.membership_error) is not None:
            member.trace("the membership has ended: %r", error)
            if not isinstance(error, REFUSALS):
                raise Violation(f"{member.name} is no member any more: {error!r}")
            self.world.ledger.outcomes[f"membership ended: {type(error).__name__}"] += 1
            await self._sleep(200 * MS)
            if member.is_alive:
                self._subscribe()
        await self._do_steps()
        if not member.is_alive:
            return
        if self.options.commit == "auto" and self._given:
            self._commit_async(self._given)
        self._given = {}
        if not self.world.faults.is_active:
            self._set_paused([each for each in self.tenures.values() if each.is_paused], is_paused=False)
        self._sort_results()
        count = self._hand_out()
        if not count:
            if not self.world.faults.is_active:
                await self._commit(self._uncommitted())
            await self._wait(int((0.2 + 0.8 * self.random.random()) * self.options.poll_ms * MS))
            if member.is_alive:
                self._note_poll()
            return
        await self._after_poll()

    async def _after_poll(self) -> None:
        """Commit, seek and pause, as the world's programs do."""
        how, positions = self.options.commit, self._positions()
        is_due = how == "each" or (how == "seldom" and self.random.random() < 0.2)
        if is_due or not self.world.faults.is_active:
            await self._commit(positions)
        elif how == "async":
            self._commit_async(positions)
        elif how == "auto":
            self._given = positions
        if self.world.faults.is_active and self.member.is_alive:
            if self.random.random() < self.options.seek:
                self._seek_somewhere()
            if self.random.random() < self.options.pause:
                self._pause_some()

    def _positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return {each.partition: each.offset for each in self.tenures.values() if each.position >= 0}

    def _note_poll(self) -> None:
        self.polled_ns = self.member.schedule.now_ns
        if self.engine.note_poll(self.polled_ns):
            self.member.wake()

    def _uncommitted(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions that the group does not have: commits before were not waited for."""
        committed = self.world.ledger.committed
        return {
            each.partition: each.offset
            for each in self.tenures.values()
            if each.place is not None and each.position >= 0 and committed(each.place) != each.position
        }

    # Results

    def _take_all(self) -> list[Result]:
        """Return all results that the program has, and forget them."""
        found = self.member.results[:]
        for tenure in self.tenures.values():
            found += tenure.results
            tenure.results.clear()
        self.member.results.clear()
        return found

    def _sort_results(self) -> None:
        """Put what has come to its partition; outdated results are released unread."""
        results, self.member.results = self.member.results, []
        for result in results:
            tenure = self.tenures.get(result.partition)
            if tenure is None or tenure.generation != result.generation:
                if tenure is not None and tenure.generation < result.generation:
                    raise Violation(f"{result} of generation {result.generation} came early")
                self._release(result, 0)
            else:
                tenure.results.append(result)

    def _release(self, result: Result, count: int) -> None:
        """Give the memory of a result back; only a thread that awaits it is woken, as by users' consumers."""
        if isinstance(result, Fetched):
            if self.engine.release(result, count):
                self.member.wake()
            self.member.check_asleep()

    def _hand_out(self) -> int:
        """Hand out records, and return how many results or records there were."""
        left = self.options.poll_records
        count = 0
        for tenure in list(self.tenures.values()):
            while tenure.results and left > 0 and not tenure.is_paused:
                result = tenure.results[0]
                count += 1
                if isinstance(result, Failed):
                    tenure.results.popleft()
                    self._recover(tenure, result)
                    break
                if isinstance(result, Moved):
                    tenure.results.popleft()
                    self._move(tenure, result)
                    continue
                left -= self._read(tenure, result, left)
        return count

    def _read(self, tenure: Tenure, fetched: Fetched, limit: int) -> int:
        """Read up to `limit` records of a piece, and return their number."""
        ledger, piece = self.world.ledger, tenure.piece
        if piece is None:
            self._check_place(tenure, fetched)
            piece = tenure.piece = Piece(fetched.from_offset, fetched.next_offset)
        partition = tenure.place or tenure.partition
        records = fetched.records
        rows = [] if records is None else records.take_records(limit)
        for row in rows:
            assert isinstance(row.value, bytes)
            piece.rows.append((row.offset, int.from_bytes(row.value[:4], "big")))
            tenure.leader_epoch = tenure.epochs[row.offset + 1] = row.leader_epoch
        is_whole = records is None or records.is_used_up
        if rows or is_whole:
            ledger.get(partition, piece, is_whole=is_whole)
        if rows:
            tenure.position = rows[-1].offset + 1
        if is_whole:
            tenure.position, tenure.leader_epoch = fetched.next_offset, fetched.last_epoch
            tenure.piece = None
            tenure.results.popleft()
            self._release(fetched, len(piece.rows))
        ledger.outcomes["records read"] += len(rows)
        self.member.trace("%s: %d records, up to %d", partition, len(rows), tenure.position)
        return len(rows)

    def _check_place(self, tenure: Tenure, fetched: Fetched) -> None:
        """Check that a piece follows the last one, or begins at what the group has committed."""
        place, ledger = self.world.cluster.place(fetched.topic_id, fetched.partition), self.world.ledger
        if tenure.position >= 0:
            if fetched.from_offset != tenure.position or tenure.place not in (None, place):
                raise Violation(f"{fetched} of {place} comes after {tenure.position} of {tenure.place}")
        elif tenure.is_by_seek:
            ledger.rewind(place, fetched.from_offset)
        else:
            ledger.check_start(place, fetched.from_offset, tenure.since_ns)
        tenure.place, tenure.topic_id = place, fetched.topic_id

    def _move(self, tenure: Tenure, moved: Moved) -> None:
        """Follow a position that the log does not have any more."""
        places = moved.partition, moved.from_offset, moved.to_offset
        self.member.trace("%s moves from %d to %d: %r", *places, moved.error)
        ledger = self.world.ledger
        place = self.world.cluster.place(moved.topic_id, moved.partition)
        log, before = ledger.log(place), tenure.place
        if isinstance(moved.error, DataLossError):
            if before == place or (before is not None and not ledger.log(before).is_deleted):
                raise Violation(f"{moved} to {place} although {before} is still there")
            if self.options.reset == "earliest" and moved.to_offset > log.start:
                raise Violation(f"{moved} although the new log begins at {log.start}")
            ledger.outcomes["positions moved to a new topic"] += 1
            tenure.epochs.clear()
        else:
            is_trimmed = moved.from_offset < log.start and isinstance(moved.error, OffsetOutOfRangeError)
            is_torn = log.is_torn and isinstance(moved.error, (LogTruncationError, OffsetOutOfRangeError))
            # without epochs nobody knows a leader of before by its answer, which has less (KIP-320)
            version = self.world.options.cluster.metadata_version
            has_epochs = version is None or version >= 9 or self.world.options.replicas is None
            is_misled = not has_epochs and isinstance(moved.error, OffsetOutOfRangeError)
            if before not in (None, place) or not (is_torn or is_trimmed or is_misled):
                raise Violation(f"{moved} although the log has all that it had")
            ledger.outcomes["positions moved"] += 1
        ledger.rewind(place, moved.to_offset)
        ledger.reach(place, moved.to_offset)
        tenure.place, tenure.topic_id = place, moved.topic_id
        tenure.position, tenure.leader_epoch = moved.to_offset, moved.last_epoch

    def _recover(self, tenure: Tenure, failed: Failed) -> None:
        """Go on with a partition that has failed."""
        self.member.trace("%s has failed: %r", failed.partition, failed.error)
        self.world.ledger.outcomes[f"failed: {type(failed.error).__name__}"] += 1
        if isinstance(failed.error, GONE):
            self._seek(tenure, EARLIEST)
        elif tenure.position >= 0:
            self._seek(tenure, Start(tenure.position, tenure.leader_epoch, tenure.topic_id))
        else:
            tenure.generation = self.engine.seek(tenure.partition, COMMITTED)
            tenure.since_ns = self.member.schedule.now_ns
            self.member.wake()

    # Seeking and pausing

    def _seek(self, tenure: Tenure, start: Start | OffsetSpec) -> None:
        ledger = self.world.ledger
        offset = start.offset if isinstance(start, Start) else 0
        if tenure.place is not None:
            ledger.rewind(tenure.place, offset)
            if isinstance(start, Start):
                ledger.reach(tenure.place, offset)
        tenure.generation = self.engine.seek(tenure.partition, start)
        tenure.position = start.offset if isinstance(start, Start) else -1
        tenure.leader_epoch = start.leader_epoch if isinstance(start, Start) else NO_EPOCH
        tenure.is_by_seek = True
        if not isinstance(start, Start):
            tenure.place, tenure.topic_id = None, NO_TOPIC_ID  # of whatever topic has the name then
        tenure.piece = None
        for result in tenure.results:
            self._release(result, 0)
        tenure.results.clear()
        self.member.wake()

    def _seek_somewhere(self) -> None:
        known = [each for each in self.tenures.values() if each.position > 0]
        if known:
            tenure = self.random.choice(known)
            offset = self.random.randrange(tenure.position + 1)
            # with its epoch, as the replacement of the records before by an unclean election is not seen else
            known_offset = max((each for each in tenure.epochs if each <= offset), default=0)
            back = Start(known_offset, tenure.epochs.get(known_offset, NO_EPOCH), tenure.topic_id)
            start = self.random.choice((EARLIEST, back))
            self.member.trace("seeks %s to %s", tenure.partition, start)
            self.world.ledger.outcomes["seeks"] += 1
            self._seek(tenure, start)

    def _pause_some(self) -> None:
        chosen = [each for each in self.tenures.values() if self.random.random() < 0.5]
        self._set_paused([each for each in self.tenures.values() if each.is_paused], is_paused=False)
        self._set_paused(chosen, is_paused=True)

    def _set_paused(self, tenures: Collection[Tenure], *, is_paused: bool) -> None:
        if not tenures:
            return
        change = self.engine.pause if is_paused else self.engine.resume
        change([each.partition for each in tenures])
        for tenure in tenures:
            tenure.is_paused = is_paused
        self.member.wake()

    # Rebalances

    async def _do_steps(self) -> None:
        while self.member.is_alive and (step := self.engine.take_rebalance()) is not None:
            self.step_count += 1
            self.member.trace("%s %s", step.kind, ", ".join(map(str, step.partitions)))
            self.world.ledger.outcomes[f"step: {step.kind}"] += 1
            if step.kind == "assign":
                self._begin(step)
            else:
                await self._give_up(step)
            await self._call_back()
            if not self.member.is_alive:
                return
            self.engine.finish_rebalance(step)
            self.member.wake()

    async def _call_back(self) -> None:
        """Take the time of a callback."""
        if self.options.callback_ms and self.world.faults.is_active:
            await self._sleep(int(self.random.random() * self.options.callback_ms * MS))

    def _begin(self, step: Rebalance) -> None:
        known = self.tenures.keys() & set(step.partitions)
        if known:
            raise Violation(f"{sorted(known)} are assigned twice")
        for partition in step.partitions:
            self.tenures[partition] = Tenure(partition, step.number, self.member.schedule.now_ns)
        self.member.check_owners()

    async def _give_up(self, step: Rebalance) -> None:
        unknown = set(step.partitions) - self.tenures.keys()
        if unknown:
            raise Violation(f"{sorted(unknown)} are given up, and were not assigned")
        positions = {
            each: tenure.offset for each in step.partitions if (tenure := self.tenures[each]).position >= 0
        }
        if step.kind == "revoke":
            await self._commit(positions, is_last=True)
        for partition in step.partitions:
            for result in self.tenures.pop(partition).results:
                self._release(result, 0)
            self._given.pop(partition, None)

    # Commits

    def _commit_async(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        if offsets:
            self.engine.commit(CommitOffsets(offsets, retries=False))
            self.member.wake()

    async def _commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, is_last: bool = False
    ) -> None:
        """Commit, and wait for it; a failure is no reason to stop."""
        if not offsets:
            return
        call = CommitOffsets(offsets, is_last=is_last)
        self.engine.commit(call)
        self.member.wake()
        while not call.is_done and self.member.is_alive:
            await self._wait(1000 * MS)
            self._note_poll()
        if call.is_done:
            error = call.error
            is_possible = isinstance(error, (CommitFailedError, KafkaTimeoutError)) or self._is_gone(call)
            if error is not None and not is_possible:
                raise Violation(f"a commit failed: {error!r}")
            name = "done" if error is None else type(error).__name__
            self.world.ledger.outcomes[f"commit: {name}"] += 1

    def _is_gone(self, call: CommitOffsets) -> bool:
        """True if all that was not committed is of topics that are deleted."""
        ledger, cluster = self.world.ledger, self.world.cluster
        return all(
            isinstance(error, (UnknownTopicIdError, UnknownTopicOrPartitionError))
            and ledger.log(cluster.place(call.offsets[each].topic_id, each)).is_deleted
            for each, error in call.failed.items()
        )
