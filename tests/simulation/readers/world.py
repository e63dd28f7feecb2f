"""GroupWorld: members of a group, writers and brokers, in one thread, in virtual time, from one seed.

Theory of operation. First there are faults: of brokers and connections, and of members, which die, leave,
stop and come back. Then all is healed. The members must settle, each partition with one owner, and read all
that was written: the lag reaches 0, and nothing moves any more. At last they leave, and the group is empty.
What readers get and commit is checked all the time (GroupLedger), and so is who owns what.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbatch.records import TopicPartition
from tests.simulation.readers.cluster import GroupCluster
from tests.simulation.readers.faults import GroupFaults
from tests.simulation.readers.member import Member, Members
from tests.simulation.readers.writer import Writer
from tests.simulation.world.schedule import MS, SECOND
from tests.simulation.world.tasks import VirtualTask
from tests.simulation.world.trace import Violation

if TYPE_CHECKING:
    from tests.simulation.readers.options import GroupOptions

LOOK_MS = 100
# The longest time until all settle: sessions, rebalances and calls end one after another.
SETTLING_MS = 90_000
CALM_MS = 1500


class GroupWorld(Members):
    """A world of a seed; `run` is its life."""

    faults: GroupFaults

    def __init__(self, options: GroupOptions, *, prints: bool = False) -> None:
        super().__init__(options, prints=prints)
        self.faults = GroupFaults(self)
        self.cluster = GroupCluster(self, self.ledger)
        self.application = self.ledger
        self._is_ending = False
        self._writers = [Writer(self, number) for number in range(self.writing.writers)]
        self._tasks = [VirtualTask(writer.run()) for writer in self._writers]

    # Its life

    def run(self) -> None:
        """Run the world; raise a Violation, or what an engine raised."""
        try:
            self._run()
        finally:
            for task in self._tasks:
                task.kill()
            for member in self.members:
                member.kill()

    def _run(self) -> None:
        for slot in range(self.readers.members):
            self.start_later(slot, self.random.randrange(500 * MS))
        for task in self._tasks:
            task.go()
        self.faults.begin()
        self._watch()
        self.run_for(self.options.fault_ms * MS)
        self.faults.heal()
        self._finish_writing()
        self._settle()
        self.check_converged()
        self._close()

    def check(self) -> None:
        """Check that all was read; where the group began at the ends of logs, it is not known from where."""
        if self.readers.reset != "latest" and (missing := self.ledger.missing()):
            partition, offset, number = missing[0]
            raise Violation(f"{len(missing)} records were not read; {partition} has {number} at {offset}")

    def _watch(self) -> None:
        """Bring dead members back after a while."""
        for slot, member in self.by_slot.items():
            if member is not None and not member.is_alive and not self._is_ending:
                away_ms = self.random.random() * self.readers.away_ms if self.faults.is_active else 0.0
                self.start_later(slot, int(away_ms * MS))
        if not self._is_ending:
            self.schedule.after(LOOK_MS * MS, self._watch)

    # After the faults

    def _finish_writing(self) -> None:
        """Wait for the ends of transactions, and write a record to each partition."""
        limit_ns = self.schedule.now_ns + self.writing.timeout_ms * MS + 30 * SECOND
        if not self.run_until(limit_ns, lambda: all(each.is_over for each in self._writers)):
            raise Violation("the writers do not end")
        if self.cluster.has_torn_logs:
            self.run_for(self.writing.timeout_ms * MS + SECOND)
            self.cluster.abort_hanging()
        if not self.run_until(limit_ns, self._is_stable):
            raise Violation("a transaction hangs")
        if not self.run_until(limit_ns, lambda: all(map(self.cluster.is_led, self.data_partitions()))):
            raise Violation("a partition has no leader")
        for partition in self.data_partitions():
            if not self._writers[0].write(partition, 1, None):
                raise Violation(f"{partition.topic.name}-{partition.index} takes no record")

    def _is_stable(self) -> bool:
        """True if nothing is to be decided, not even transactions without records, which get markers, too."""
        logs = [each.log for each in self.data_partitions()]
        is_read = all(log.last_stable_offset == log.log_end_offset for log in logs)
        return is_read and not self.cluster.undecided_transactions()

    def _settle(self) -> None:
        """Run until each partition has one owner, which has read and committed all of it, and nothing moves
        any more. What connections have lost before may show late, at the end of a session.
        """
        until_ns, steps = self.schedule.now_ns + SETTLING_MS * MS, -1
        problem, moved_ns = "", self.schedule.now_ns
        while problem or self.schedule.now_ns < moved_ns + CALM_MS * MS:
            self.run_for(LOOK_MS * MS)
            before, steps = steps, sum(each.program.step_count for each in self.members)
            problem = self._unsettled()
            if problem or steps != before:
                moved_ns = self.schedule.now_ns
            if self.schedule.now_ns >= until_ns:
                raise Violation(f"{SETTLING_MS} ms after all was healed: {problem or 'the group rebalances'}")

    def _unsettled(self) -> str:
        """Return what is not done yet; empty if all is."""
        if len(self.living) < len(self.by_slot):
            return "dead members have not come back"
        if self.cluster.strangers({member.identity()[0] for member in self.living}):
            return "the group has members that are dead"
        if (state := self.cluster.group_state()) != "Stable":
            return f"the group is {state}"
        owners: dict[TopicPartition, Member] = {}
        for member in self.living:
            if not member.program.is_polling:
                return f"{member.name} does not poll"
            if not member.is_settled:
                return f"{member.name} is in a rebalance, or has the error {member.engine.membership_error}"
            member.check_reading()
            if not self.cluster.counts(*member.identity()):
                return f"{member.name} is no member"
            if self.cluster.assigned(member.identity()[0]) not in (None, member.engine.owned):
                return f"{member.name} has {member.engine.owned}, and is to have other partitions"
            owners.update((each, member) for each in member.engine.owned)
        for led in self.data_partitions():
            partition, end = TopicPartition(led.topic.name, led.index), led.log.log_end_offset
            owner = owners.get(partition)
            if owner is None:
                return f"{partition} has no owner"
            if not owner.has_read(partition, end):
                return f"{owner.name} has not read {partition} up to {end}: {owner.place(partition)}"
        return ""

    def _close(self) -> None:
        closing, self._is_ending = self.living, True
        for member in closing:
            member.close()
        until_ns = self.schedule.now_ns + 30 * SECOND
        if not self.run_until(until_ns, lambda: not any(each.is_alive for each in closing)):
            raise Violation(f"{[each.name for each in closing if each.is_alive]} do not end")
        if (left := self.cluster.strangers(())) and not self.readers.statics:
            raise Violation(f"all have left, and the group has {left}")
        for led in self.data_partitions():
            partition, end = self.cluster.log_of(led.topic.topic_id, led.index), led.log.log_end_offset
            if (committed := self.ledger.committed(partition)) not in (None, end):
                raise Violation(f"{partition} is committed at {committed}, and ends at {end}")
