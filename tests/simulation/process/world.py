"""ProcessWorld: members that process records with workers, in one thread, in virtual time, from one seed.

Theory of operation. What is simulated is what `process()` decides: the ProcessScheduler and what it commits.
Around it are partitions with gaps between offsets, a coordinator that moves partitions (with a revocation, or
without one, so that the member notices late) and takes commits of the owner only, workers that take their
time, functions that fail, and members that die. Commits take time, fail, or are taken without an answer.

All the time, these must be true: what is committed is finished; an owner does not run what the commit that
it began with says is finished; the records of a key run one after the other; nothing begins after its
partition is to be given up; waits of retries, numbers of attempts and limits of memory hold. At last there
are no more faults, and all records must be finished and committed.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from functools import partial
from typing import TYPE_CHECKING

from kbatch import ConsumerRecord, OffsetAndMetadata, TopicPartition
from kbatch.core.process.finished_runs import decode_runs
from kbatch.core.process.progress import PartitionProgress
from kbatch.core.process.retry import Retry
from kbatch.core.process.scheduler import Attempt, KeyQueue, Limits, OwnedPartition, ProcessScheduler
from tests.simulation.world.schedule import MS, SECOND, Schedule, ScheduledAction
from tests.simulation.world.trace import Trace, Violation

if TYPE_CHECKING:
    from tests.simulation.process.options import ProcessWorldOptions

TOPIC_ID = bytes(range(1, 17))
BACKOFF_MS, MOST_MS = 10, 200
MOST_RECORDS = 50  # of a poll
# The longest time after the faults until all is processed.
SETTLING_MS = 600_000
FAILS, FAILS_ALWAYS = 2, 10**9


class Fault(Exception):
    """The failure of a function."""


class Ledger:
    """What has become of the records of a world, and what must be true of it.

    Attributes
    ----------
    logs : dict of TopicPartition to list of ConsumerRecord
    finished : dict of TopicPartition to dict of int to None
        The offsets that are finished, in the order in which they first were.
    committed : dict of TopicPartition to OffsetAndMetadata
    failures : dict of (TopicPartition, int) to int
        How often the function fails for a record.
    """

    def __init__(self, options: ProcessWorldOptions, rng: random.Random) -> None:
        self.options = options
        self.outcomes: Counter[str] = Counter()
        self.logs: dict[TopicPartition, list[ConsumerRecord]] = {}
        self.finished: dict[TopicPartition, dict[int, None]] = defaultdict(dict)
        self.committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self.failures: dict[tuple[TopicPartition, int], int] = {}
        for index in range(options.partitions):
            self._fill(TopicPartition("orders", index), rng)

    def _fill(self, partition: TopicPartition, rng: random.Random) -> None:
        at, log = rng.choice((0, 7)), []
        for _ in range(self.options.records):
            key = b"k%d" % rng.randrange(self.options.keys) if rng.random() < 0.9 else None
            log.append(ConsumerRecord(*partition, key, b"v", offset=at))
            if rng.random() < self.options.failing:
                ends = self.options.attempts is None
                self.failures[partition, at] = FAILS if ends else rng.choice((FAILS, FAILS_ALWAYS))
            at += rng.choice((1, 1, 1, 1, 2, 20))
        self.logs[partition] = log
        self.committed[partition] = OffsetAndMetadata(log[0].offset, topic_id=TOPIC_ID)

    def end(self, partition: TopicPartition) -> int:
        return self.logs[partition][-1].offset + 1

    def finish(self, partition: TopicPartition, offset: int, how: str) -> None:
        """Record that a record is finished: its function or its handler has returned, or it is skipped."""
        self.outcomes[how] += 1
        if offset in self.finished[partition]:
            self.outcomes["repeated"] += 1
        self.finished[partition][offset] = None

    def commit(self, partition: TopicPartition, offset: OffsetAndMetadata, *, is_cut: bool) -> None:
        """Store a commit that the coordinator takes. One that is not cut says all that the last one said."""
        said = said_finished(self.logs[partition], offset, self.end(partition))
        if wrong := sorted(said - self.finished[partition].keys()):
            raise Violation(f"{partition} is committed at {offset}, and {wrong[:5]} are not finished")
        before = self.committed[partition]
        if offset.offset < before.offset:
            raise Violation(f"{partition} goes back from {before} to {offset}")
        lost = said_finished(self.logs[partition], before, self.end(partition)) - said
        if lost and not is_cut:
            raise Violation(
                f"{partition} is committed at {offset}, and forgets that {sorted(lost)[:5]} are finished"
            )
        self.committed[partition] = offset
        self.outcomes["commits"] += 1

    def check(self) -> None:
        """Check that all is finished and committed, and was finished in the order of keys."""
        for partition, log in self.logs.items():
            if missing := [each.offset for each in log if each.offset not in self.finished[partition]]:
                raise Violation(f"{partition}: {missing[:5]} were never finished")
            found = self.committed[partition]
            if (found.offset, found.metadata) != (self.end(partition), ""):
                raise Violation(f"{partition} ends at {self.end(partition)}, and is committed at {found}")
            self._check_order(partition, {each.offset: each.key for each in log})

    def _check_order(self, partition: TopicPartition, keys: dict[int, bytes | None]) -> None:
        last: dict[bytes | None, int] = {}
        for offset in self.finished[partition]:
            key = keys[offset]
            if self.options.order == "none" or (self.options.order == "key" and key is None):
                continue
            key = None if self.options.order == "partition" else key
            if last.get(key, -1) > offset:
                raise Violation(f"{partition}: {offset} of key {key!r} was first finished after {last[key]}")
            last[key] = offset


def said_finished(log: list[ConsumerRecord], offset: OffsetAndMetadata, end: int) -> set[int]:
    """Return the records of a log that a commit says are finished."""
    runs = decode_runs(offset.offset, offset.metadata, TOPIC_ID, end)
    before = {each.offset for each in log if each.offset < offset.offset}
    return before | {each.offset for each in log if any(first <= each.offset < last for first, last in runs)}


class Tenure:
    """A partition that a member owns, from its assignment to its end.

    Attributes
    ----------
    position : int
        The number of the next record of the log.
    known : set of int
        What the commit that it began with says is finished.
    ready_ns : dict of int to int
        When a record may be tried again.
    attempts : Counter of int
    most_characters : int
        Half of the metadata that the coordinator has refused.
    running : dict of int to (bytes or None)
        The keys of the records that run, by offset.
    is_open : bool
        False if it is to be given up.
    """

    def __init__(self, owned: OwnedPartition, position: int, known: set[int]) -> None:
        self.owned = owned
        self.position = position
        self.known = known
        self.ready_ns: dict[int, int] = {}
        self.attempts: Counter[int] = Counter()
        self.most_characters = 2**63
        self.running: dict[int, bytes | None] = {}
        self.is_open = True


class Member:
    """A process that processes what it owns.

    Attributes
    ----------
    tenures : dict of TopicPartition to Tenure
        What it believes to own.
    """

    def __init__(self, world: ProcessWorld, number: int) -> None:
        options = world.options
        self.world, self.options, self.name = world, options, f"member-{number}"
        self.rng = random.Random(f"member {options.seed} {number}")
        retry = Retry(attempts=options.attempts, backoff=BACKOFF_MS / 1000, most=MOST_MS / 1000, jitter=0.0)
        limits = Limits(
            options.workers,
            options.batch,
            options.max_in_flight,
            max_ahead=options.max_ahead,
            kept=options.kept,
        )
        self.scheduler = ProcessScheduler(options.order, limits, retry, options.last_resort, self.rng)
        self.tenures: dict[TopicPartition, Tenure] = {}
        self.is_alive = True
        self._blocked: set[TopicPartition] = set()
        self._commit: dict[TopicPartition, tuple[Tenure, OffsetAndMetadata]] | None = None
        self._timer: ScheduledAction | None = None
        self._commit_later()

    def trace(self, text: str, *values: object) -> None:
        self.world.trace(f"%s: {text}", self.name, *values)

    # What it owns

    def assign(self, partition: TopicPartition) -> None:
        committed = self.world.ledger.committed[partition]
        log, end = self.world.ledger.logs[partition], self.world.ledger.end(partition)
        self.trace("gets %s at %s", partition, committed)
        runs = decode_runs(committed.offset, committed.metadata, TOPIC_ID, end)
        progress = PartitionProgress(committed.offset, runs, topic_id=TOPIC_ID)
        owned = self.scheduler.own(partition, progress, committed)
        position = next(
            (index for index, each in enumerate(log) if each.offset >= committed.offset), len(log)
        )
        self.tenures[partition] = Tenure(owned, position, said_finished(log, committed, end))
        self._blocked.discard(partition)
        self.work()

    def begin_release(self, partition: TopicPartition) -> None:
        self.trace("is to give up %s", partition)
        self.scheduler.close([partition])
        self.tenures[partition].is_open = False

    def release(self, partition: TopicPartition, *, is_lost: bool) -> None:
        offsets = self.scheduler.offsets([partition])
        self.scheduler.drop([partition])
        tenure = self.tenures[partition]
        if not is_lost:
            for offset in offsets.values():
                self.world.take_commit(self, tenure, offset)
        del self.tenures[partition]
        self.trace("gives up %s", partition)

    def die(self) -> None:
        self.trace("dies")
        self.is_alive = False
        self.tenures.clear()

    # What it does

    def work(self) -> None:
        """Take records and start workers, as `process()` does after each wait."""
        if not self.is_alive:
            return
        for queue in self.scheduler.to_read():
            self.world.ledger.outcomes["parked"] += len(queue.reading)
            takes_ms = self.rng.expovariate(1 / self.options.commit_takes_ms)
            self.world.schedule.after(int(takes_ms * MS), partial(self._end_read, queue, queue.reading))
        self._take()
        now_ns = self.world.schedule.now_ns
        while (attempt := self.scheduler.next(now_ns)) is not None:
            self._run(attempt)
        self.scheduler.check_progress()
        for owned, is_blocked in self.scheduler.blocked():
            (self._blocked.add if is_blocked else self._blocked.discard)(owned.partition)
        self._check_limits()
        if self._timer is not None:
            self._timer.cancel()
        # what it took may all have been finished by an earlier owner
        deadline_ns = now_ns if self._has_more() else self.scheduler.deadline_ns()
        if deadline_ns < now_ns + 1000 * SECOND:
            self._timer = self.world.schedule.at(deadline_ns, self.work)

    def _take(self) -> None:
        room = min(self.scheduler.room, MOST_RECORDS)
        for partition, tenure in list(self.tenures.items()):
            log = self.world.ledger.logs[partition]
            while room and self._goes_on(partition, tenure):
                self.scheduler.take(tenure.owned, log[tenure.position], self.world.schedule.now_ns)
                tenure.position += 1
                room -= 1

    def _goes_on(self, partition: TopicPartition, tenure: Tenure) -> bool:
        """True if more of a partition may be taken."""
        is_at_end = tenure.position == len(self.world.ledger.logs[partition])
        return tenure.is_open and not is_at_end and partition not in self._blocked

    def _has_more(self) -> bool:
        """True if there is room for more records, and there are more."""
        return self.scheduler.room > 0 and any(self._goes_on(*each) for each in self.tenures.items())

    def _end_read(self, queue: KeyQueue, offsets: tuple[int, ...]) -> None:
        if not self.is_alive:
            return
        if self.world.has_faults and self.rng.random() < self.options.read_fails:
            self.scheduler.park_again(queue, offsets)
        else:
            log = self.world.ledger.logs[queue.owned.partition]
            found = {each.offset: each for each in log if each.offset in offsets}
            self.scheduler.take_again(queue, offsets, found)
        self.work()

    def _check_limits(self) -> None:
        scheduler, options = self.scheduler, self.options
        if scheduler.record_count > options.max_in_flight or len(scheduler.running) > options.workers:
            raise Violation(f"{self.name} has {scheduler.record_count} records, {len(scheduler.running)} run")
        for owned in scheduler.partitions():
            if owned.byte_count != sum(len(each.key or b"") + 1 for each in self._in_memory(owned)):
                raise Violation(f"{self.name}: {owned.partition} has {owned.byte_count} bytes")
            for queue in owned.queues.values():
                if queue.has_failed and len(queue.waiting) > options.kept + options.batch:
                    raise Violation(f"{self.name} keeps {len(queue.waiting)} records of {queue.key!r}")
            if owned.progress.span > options.max_ahead + MOST_RECORDS * 20:
                raise Violation(f"{self.name}: {owned.partition} is {owned.progress.span} offsets ahead")

    def _in_memory(self, owned: OwnedPartition) -> list[ConsumerRecord]:
        queues = owned.queues.values()
        absent = {each for queue in queues for each in (*queue.parked, *queue.reading)}
        unfinished = set(owned.progress.unfinished) - absent
        return [each for each in self.world.ledger.logs[owned.partition] if each.offset in unfinished]

    # Attempts

    def _run(self, attempt: Attempt) -> None:
        partition = attempt.queue.owned.partition
        tenure = self.tenures[partition]
        for record in attempt.records:
            self._check_start(tenure, attempt, record)
        self.trace("runs %s %s%s", partition, [each.offset for each in attempt.records],
                   "" if attempt.failure is None else " by its handler")  # fmt: skip
        took_ns = int(self.rng.expovariate(1 / self.options.function_ms) * MS)
        self.world.schedule.after(took_ns, partial(self._end, attempt, tenure))

    def _check_start(self, tenure: Tenure, attempt: Attempt, record: ConsumerRecord) -> None:
        offset, now_ns = record.offset, self.world.schedule.now_ns
        if not tenure.is_open or tenure.owned is not attempt.queue.owned:
            raise Violation(f"{self.name} begins {offset}, which it is to give up, or does not own")
        if offset in tenure.known or (offset in tenure.running):
            raise Violation(f"{self.name} begins {offset}, which is finished or runs already")
        if now_ns < tenure.ready_ns.get(offset, 0):
            raise Violation(f"{self.name} does not wait before it tries {offset} again")
        order = self.options.order
        if order == "partition" or (order == "key" and record.key is not None):
            mine = [each.offset for each in attempt.records]
            others = [
                each for each, key in tenure.running.items() if order == "partition" or key == record.key
            ]
            if set(others) - set(mine):
                raise Violation(f"{self.name} runs {offset} beside {others} of key {record.key!r}")
        tenure.running[offset] = record.key
        if attempt.failure is None:
            tenure.attempts[offset] += 1
            most = self.options.attempts
            # in a batch it may not have been tried
            if most is not None and self.options.batch == 1 and tenure.attempts[offset] > most:
                raise Violation(f"{self.name} tries {offset} for the {tenure.attempts[offset]}th time")

    def _end(self, attempt: Attempt, tenure: Tenure) -> None:
        if not self.is_alive:
            return
        for record in attempt.records:
            tenure.running.pop(record.offset, None)
        partition = attempt.queue.owned.partition
        if attempt.failure is None and len(attempt.taken) > 1 and self.rng.random() < 0.2:
            self.scheduler.give_back(attempt, one_by_one=True)
            self.work()
            return
        outcomes = self._outcomes(attempt, partition)
        for record, error in zip(attempt.records, outcomes, strict=False):
            if error is None:
                how = "finished" if attempt.failure is None else "handled"
                self.world.ledger.finish(partition, record.offset, how)
        self._report(attempt, outcomes, tenure)
        self.work()

    def _report(self, attempt: Attempt, outcomes: list[Exception | None], tenure: Tenure) -> None:
        """Tell the scheduler the outcomes, and the ledger what it has skipped then."""
        before = [each.attempts for each in attempt.taken]
        unfinished = set(tenure.owned.progress.unfinished)
        now_ns = self.world.schedule.now_ns
        self.scheduler.finish(attempt, outcomes, now_ns)
        if self.scheduler.failure is not None:
            raise Violation(f"{self.name} has stopped: {self.scheduler.failure}")
        skipped = unfinished - set(tenure.owned.progress.unfinished)
        for taken, error, attempts in zip(attempt.taken, outcomes, before, strict=False):
            if error is not None and taken.record.offset in skipped and self.options.last_resort == "skip":
                self.world.ledger.finish(attempt.queue.owned.partition, taken.record.offset, "skipped")
            elif error is not None and taken.attempts == attempts + 1:
                wait_ms = min(BACKOFF_MS * 2**attempts, MOST_MS)
                tenure.ready_ns[taken.record.offset] = now_ns + wait_ms * MS

    def _outcomes(self, attempt: Attempt, partition: TopicPartition) -> list[Exception | None]:
        """Return what the function says of the records of an attempt. Where there is an order, it ends with
        the first that fails (RecordFailed).
        """
        outcomes: list[Exception | None] = []
        for record in attempt.records:
            outcomes.append(self._outcome(attempt, partition, record))
            if outcomes[-1] is not None and self.options.order != "none":
                break
        return outcomes

    def _outcome(
        self, attempt: Attempt, partition: TopicPartition, record: ConsumerRecord
    ) -> Exception | None:
        ledger = self.world.ledger
        if attempt.failure is not None:
            return Fault("handler") if self._handler_fails(attempt) else None
        left = ledger.failures.get((partition, record.offset), 0)
        if left:
            ledger.failures[partition, record.offset] = left - 1
            ledger.outcomes["failed"] += 1
            return Fault(f"offset {record.offset}")
        return None

    def _handler_fails(self, attempt: Attempt) -> bool:
        """True if the handler fails, but not so often that it would stop the member."""
        most = self.options.attempts
        has_more = most is None or attempt.taken[0].attempts + 1 < most
        return has_more and self.rng.random() < self.options.handler_fails

    # Commits

    def _commit_later(self) -> None:
        self.world.schedule.after(self.options.commit_ms * MS, self._begin_commit)

    def _begin_commit(self) -> None:
        if not self.is_alive:
            return
        self._commit_later()
        if self._commit is None and (offsets := self.scheduler.offsets()):
            self._commit = {each: (self.tenures[each], offset) for each, offset in offsets.items()}
            takes_ms = self.rng.expovariate(1 / self.options.commit_takes_ms)
            self.world.schedule.after(int(takes_ms * MS), self._end_commit)

    def _end_commit(self) -> None:
        commit, self._commit = self._commit, None
        if not self.is_alive or commit is None:
            return
        fails = self.world.has_faults and self.rng.random() < self.options.commit_fails
        is_taken = not fails or self.rng.random() < 0.5  # the answer is lost
        failed, too_large = set(), set()
        for each, (tenure, offset) in commit.items():
            refusal = self.world.take_commit(self, tenure, offset) if is_taken else ""
            if fails or refusal:
                failed.add(each)
            if refusal == "too large" and not fails:
                too_large.add(each)
                tenure.most_characters = len(offset.metadata) // 2
        self.scheduler.note_commit({each: offset for each, (_, offset) in commit.items()}, failed, too_large)
        self.work()


class ProcessWorld:
    """A world of a seed; `run` is its life.

    Attributes
    ----------
    ledger : Ledger
    owners : dict of TopicPartition to Member
        Whose commits the coordinator takes.
    has_faults : bool
    """

    def __init__(self, options: ProcessWorldOptions, *, prints: bool = False) -> None:
        self.options = options
        self.random = random.Random(f"world {options.seed}")
        self.schedule = Schedule(0)
        self.trace = Trace(self.schedule, prints=prints)
        self.ledger = Ledger(options, self.random)
        self.event_count = 0
        self.has_faults = True
        self.members: list[Member] = []
        self.owners: dict[TopicPartition, Member] = {}
        self._moving: set[TopicPartition] = set()

    # Its life

    def run(self) -> None:
        """Run the world; raise a Violation, or what a member raised."""
        for _ in range(self.options.members):
            self._start()
        for partition in self.ledger.logs:
            self._give(partition)
        self._after(self.options.move_ms, self._move)
        self._after(self.options.crash_ms, self._crash)
        self._run_until(self.options.fault_ms * MS, lambda: False)
        self.has_faults = False
        until_ns = self.schedule.now_ns + SETTLING_MS * MS
        if not self._run_until(until_ns, self._is_done):
            left = {
                each: len(self.ledger.logs[each]) - len(self.ledger.finished[each]) for each in self.owners
            }
            raise Violation(
                f"{SETTLING_MS} ms after the faults, records are unfinished or uncommitted: {left}"
            )

    def check(self) -> None:
        self.ledger.check()

    def _run_until(self, until_ns: int, is_so: object) -> bool:
        assert callable(is_so)
        while self.schedule.step(until_ns):
            self.event_count += 1
            if is_so():
                return True
        return False

    def _is_done(self) -> bool:
        return not self._moving and all(
            (found.offset, found.metadata) == (self.ledger.end(partition), "")
            for partition, found in self.ledger.committed.items()
        )

    def _after(self, mean_ms: float, action: object) -> None:
        assert callable(action)
        self.schedule.after(int(self.random.expovariate(1 / mean_ms) * MS), action)

    # Members

    def _start(self) -> Member:
        member = Member(self, len(self.members))
        self.members.append(member)
        return member

    @property
    def _living(self) -> list[Member]:
        return [each for each in self.members if each.is_alive]

    def _crash(self) -> None:
        if self.has_faults:
            member = self.random.choice(self._living)
            member.die()
            self._start()
            self._after(self.options.crash_ms, self._crash)
            for partition, owner in list(self.owners.items()):
                if owner is member and partition not in self._moving:
                    self._moving.add(partition)
                    self._after(100.0, partial(self._give, partition))

    # Partitions

    def _give(self, partition: TopicPartition) -> None:
        """Give a partition to a member."""
        self._moving.discard(partition)
        self._assign(partition, self.random.choice(self._living))

    def _assign(self, partition: TopicPartition, member: Member) -> None:
        if partition in member.tenures:  # it has not heard of its loss
            member.release(partition, is_lost=True)
        self.owners[partition] = member
        member.assign(partition)

    def _move(self) -> None:
        """Take a partition away from its owner: it gives it up in time, or hears of it later."""
        if not self.has_faults:
            return
        self._after(self.options.move_ms, self._move)
        partition = self.random.choice(list(self.owners))
        owner = self.owners[partition]
        if partition in self._moving or not owner.is_alive or partition not in owner.tenures:
            return
        self._moving.add(partition)
        self.ledger.outcomes["moves"] += 1
        if self.random.random() < 0.7:
            owner.begin_release(partition)
            self._release_soon(owner, partition, self.schedule.now_ns + self.options.revoke_ms * MS)
        else:
            self.ledger.outcomes["losses"] += 1
            others = [each for each in self._living if each is not owner]
            self._after(300.0, partial(self._lose, owner, partition))
            self._moving.discard(partition)
            self._assign(partition, self.random.choice(others) if others else self._start())

    def _release_soon(self, owner: Member, partition: TopicPartition, until_ns: int) -> None:
        """Wait for what runs, for a while, and give the partition to another member."""
        if owner.is_alive:
            if not owner.scheduler.is_idle([partition]) and self.schedule.now_ns < until_ns:
                again = partial(self._release_soon, owner, partition, until_ns)
                self.schedule.after(MS, again)
                return
            owner.release(partition, is_lost=False)
            owner.work()
        self._give(partition)

    def _lose(self, owner: Member, partition: TopicPartition) -> None:
        """Let a member hear that it has lost a partition."""
        if owner.is_alive and partition in owner.tenures and self.owners[partition] is not owner:
            owner.release(partition, is_lost=True)
            owner.work()

    def take_commit(self, member: Member, tenure: Tenure, offset: OffsetAndMetadata) -> str:
        """Take a commit, or return why not. A later tenure has another generation."""
        partition = tenure.owned.partition
        if self.owners[partition] is not member or member.tenures.get(partition) is not tenure:
            self.ledger.outcomes["commits refused"] += 1
            return "lost"
        if len(offset.metadata) > tenure.most_characters:
            raise Violation(
                f"{member.name} commits {offset}, though the coordinator has refused shorter ones"
            )
        if len(offset.metadata) > self.options.most_characters:
            self.ledger.outcomes["metadata too large"] += 1
            return "too large"
        self.ledger.commit(partition, offset, is_cut=tenure.owned.progress.is_cut)
        return ""
