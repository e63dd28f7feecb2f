"""A member of a world's group: a process with an engine, its network and its program.

Theory of operation. A Member is one consumer from its creation to its end; to the brokers it is a process of
its own. Its rounds are those of every client of kbatch, and its GroupEngine is what users' consumers have.
A process that is stopped (`freeze`) does no rounds; what arrives meanwhile waits in its sockets.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

from kbatch.config import ConsumerConfig
from kbatch.core.consumer.group_engine import GroupEngine
from kbatch.metrics import CONSUMER_METRICS, COORDINATOR_METRICS, MetricsRegistry
from kbatch.records import NO_TOPIC_ID, TopicPartition
from tests.simulation.readers.cluster import GROUP
from tests.simulation.readers.options import SESSION_MS
from tests.simulation.readers.program import Program
from tests.simulation.readers.stage import GroupStage
from tests.simulation.readers.watchdog import forgotten_nodes
from tests.simulation.readers.wire import GroupWire
from tests.simulation.world.cluster import BOOTSTRAP, PORT
from tests.simulation.world.network import Shell
from tests.simulation.world.schedule import MS, SECOND
from tests.simulation.world.tasks import VirtualTask
from tests.simulation.world.trace import Violation

if TYPE_CHECKING:
    from kbatch.core.consumer.results import Result
    from tests.simulation.readers.options import GroupOptions


class MemberShell(Shell):
    """The thread of a reader, whose process may be stopped."""

    frozen_until_ns = 0

    def __init__(self, member: Member) -> None:
        super().__init__(member, member.engine)
        self._member = member

    @property
    def is_asleep(self) -> bool:
        return super().is_asleep and self._world.schedule.now_ns >= self.frozen_until_ns

    def freeze(self, until_ns: int) -> None:
        """Do no rounds until then."""
        self.frozen_until_ns = until_ns
        if self._next_round is not None:
            self._next_round.cancel()
            self._next_round = None
        self._sleep(0)

    def _round(self) -> None:
        super()._round()
        self._member.check_asleep()

    def _sleep(self, wait_ns: int) -> None:
        if self.frozen_until_ns:
            wait_ns = max(wait_ns, self.frozen_until_ns - self._world.schedule.now_ns)
        super()._sleep(wait_ns)


class Members(GroupStage):
    """The members of a world's group.

    Attributes
    ----------
    members : list of Member
        All members, past and present.
    by_slot : dict of int to (Member or None)
        The last member of each slot; None until the next one starts.
    """

    def __init__(self, options: GroupOptions, *, prints: bool = False) -> None:
        super().__init__(options, prints=prints)
        self.members: list[Member] = []
        self.by_slot: dict[int, Member | None] = {}

    @property
    def living(self) -> list[Member]:
        """Return the members that have not ended."""
        return [each for each in self.by_slot.values() if each is not None and each.is_alive]

    def start_later(self, slot: int, delay_ns: int) -> None:
        """Start a member after a while."""
        self.by_slot[slot] = None
        self.schedule.after(delay_ns, partial(self.start, slot))

    def start(self, slot: int) -> None:
        """Start a member."""
        member = self.by_slot[slot] = Member(self, len(self.members), slot)
        self.members.append(member)
        member.start()

    def join(self) -> None:
        """Add a member, if there is room for one."""
        if len(self.by_slot) < self.readers.most:
            self.start(len(self.by_slot))


class Member:
    """One consumer.

    Attributes
    ----------
    slot : int
        Its place in the group, which decides its protocol and its group.instance.id.
    is_alive : bool
        Its process has not ended.
    results : list of Result
        What has come for the program.
    """

    def __init__(self, world: Members, number: int, slot: int) -> None:
        self.world, self.slot = world, slot
        self.options, self.random, self.schedule = world.options, world.random, world.schedule
        self.cluster, self.faults = world.cluster, world.faults
        self.name = f"member-{number}"
        self.config = ConsumerConfig(
            {
                "bootstrap.servers": f"{BOOTSTRAP}:{PORT}",
                "client.id": self.name,
                "group.id": GROUP,
                **world.settings,
                **self._own_settings(),
            }
        )
        self._limit_bytes = self.config.kbatch_fetch_buffer_memory + world.slack_bytes
        self._limit_ns = self.config.max_poll_interval_ms * MS
        registry = MetricsRegistry(self.name, metrics=(*CONSUMER_METRICS, *COORDINATOR_METRICS))
        self.engine = GroupEngine(
            self.config,
            random=random.Random(f"engine {world.options.seed} {self.name}"),
            registry=registry,
            now_ns=world.schedule.now_ns,
            wall_clock_ms=lambda: world.schedule.wall_ms,
            on_change=self._changed,
        )
        self.shell = MemberShell(self)
        if world.options.seed % 2:  # in the other worlds the engine does all
            self.shell.use_loans(self.engine)
        self.wire = GroupWire(self)
        self.results: list[Result] = []
        self.is_alive = True
        self._seen_owned: frozenset[TopicPartition] = frozenset()
        self.program = Program(self)
        self._task = VirtualTask(self.program.run())

    def _own_settings(self) -> dict[str, Any]:
        readers = self.world.readers
        protocol = readers.protocols[self.slot % len(readers.protocols)]
        own: dict[str, Any] = {"group.protocol": protocol}
        if protocol == "classic":
            own["partition.assignment.strategy"] = readers.strategy
            own["session.timeout.ms"] = SESSION_MS
            own["heartbeat.interval.ms"] = SESSION_MS // 4
        if readers.statics:
            own["group.instance.id"] = f"instance-{self.slot}"
        return own

    @property
    def application(self) -> Member:
        return self

    def trace(self, text: str, *values: object) -> None:
        self.world.trace(f"%s: {text}", self.name, *values)

    # Its life

    def start(self) -> None:
        self.trace("starts")
        self.shell.wake()
        self._task.go()

    def wake(self) -> None:
        """Wake the engine, which sees then what the program wants."""
        if self.is_alive:
            self.shell.wake()

    def _changed(self) -> None:
        self.program.wake()

    def crash(self) -> None:
        if self.is_alive:
            self.trace("dies")
            self.end()

    def close(self) -> None:
        self.trace("is to end")
        self.program.is_closing = True
        self.program.wake()

    def freeze(self, duration_ns: int) -> None:
        self.trace("is stopped for %.3f s", duration_ns / 1e9)
        until_ns = self.schedule.now_ns + duration_ns
        self.program.frozen_until_ns = until_ns
        self.shell.freeze(until_ns)

    def stall(self, duration_ns: int) -> None:
        self.trace("does not poll for %.3f s", duration_ns / 1e9)
        self.program.stalled_until_ns = self.schedule.now_ns + duration_ns

    def end(self) -> None:
        """End the process."""
        self.is_alive = False
        self.shell.stop()

    def kill(self) -> None:
        """End the program where it waits, with the world."""
        self._task.kill()

    # Called by its network

    def note_event(self) -> None:
        """Note an event; the engine is checked after each round."""

    def deliver(self, done: Iterable[Any]) -> None:
        self.results += done
        self.program.wake()

    def check_engine(self) -> None:
        """Check the engine after a round."""
        if self.engine.fatal_error is not None:
            raise Violation(f"{self.name} gave up: {self.engine.fatal_error!r}")
        used_bytes = self.engine._budget.used
        if not 0 <= used_bytes <= self._limit_bytes:
            raise Violation(f"{self.name}: {used_bytes} bytes of {self._limit_bytes} are in use")
        membership, polled_ns = self.engine._membership, self.program.polled_ns
        # a process that was stopped finds out when it goes on; to leave takes a moment
        end_ns = max(polled_ns + self._limit_ns, self.program.frozen_until_ns) + SECOND
        if self.schedule.now_ns > end_ns and membership is not None and membership.is_member:
            silent_s = (self.schedule.now_ns - polled_ns) / SECOND
            raise Violation(f"{self.name} is a member, and has not polled for {silent_s} s")
        if self.engine.owned is not self._seen_owned:
            self._seen_owned = self.engine.owned
            self.check_owners()

    def check_asleep(self) -> None:
        """Check that a thread that sleeps has asked every node that it could ask."""
        if self.shell.is_asleep and (nodes := forgotten_nodes(self.engine, self.schedule.now_ns)):
            raise Violation(f"{self.name} sleeps, and could ask nodes {nodes}")

    def check_reading(self) -> None:
        """Check that nothing is read that it does not own."""
        if strange := self.engine._fetcher.partitions.keys() - self.engine.owned:
            raise Violation(f"{self.name} reads {sorted(strange)}, which it does not own")

    def check_released(self) -> None:
        """Check that only answers that are awaited have memory."""
        sessions = self.engine._fetcher._sessions.values()
        awaited = sum(each.reserved_bytes for each in sessions if each.is_in_flight)
        if self.engine._budget.used != awaited:
            raise Violation(f"{self.name}: {self.engine._budget.used - awaited} bytes are left at the end")

    # What it owns

    def identity(self) -> tuple[str, int]:
        metadata = self.engine.group_metadata
        return metadata.member_id, metadata.generation_id

    @property
    def is_settled(self) -> bool:
        """True if no step of a rebalance is open, and its membership has not failed."""
        return self.engine._ownership.is_idle and self.engine.membership_error is None

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """What the engine or the program thinks its own."""
        return self.engine.owned | self.program.tenures.keys()

    def _assigned_id(self, partition: TopicPartition) -> bytes:
        """Return the id of the topic that the group has assigned: one of the same name is another one."""
        ids: dict[TopicPartition, bytes] = getattr(self.engine._membership, "_ids", {})  # by KIP-848 only
        return ids.get(partition, NO_TOPIC_ID)

    def has_read(self, partition: TopicPartition, end: int) -> bool:
        """True if the program has all of a partition, and has committed what it has."""
        tenure, state = self.program.tenures.get(partition), self.engine.reading(partition)
        if tenure is None or state is None or tenure.results or self.results or state.fetch_offset < end:
            return False
        place = self.cluster.log_now(partition)
        if place is None or tenure.place not in (None, place):
            return False
        # A committed offset may be of before an unclean election, which the next Fetch finds out.
        fetched_ns = tenure.since_ns + (self.config.fetch_max_wait_ms + 2000) * MS
        if self.world.ledger.log(place).is_torn and self.schedule.now_ns < fetched_ns:
            return False
        committed, position = self.world.ledger.committed(place), tenure.position
        if position < 0:  # it began at the end
            return committed in (None if self.world.readers.reset == "latest" or end == 0 else end, end)
        return committed == position == end

    def place(self, partition: TopicPartition) -> str:
        """Return how far it is, for an error."""
        tenure, state = self.program.tenures.get(partition), self.engine.reading(partition)
        place = self.cluster.log_now(partition)
        committed = None if place is None else self.world.ledger.committed(place)
        position = None if tenure is None else tenure.position
        return f"position {position}, committed {committed}, {state!r}, {len(self.results)} results"

    def check_owners(self) -> None:
        """Check that no two members of the group own a partition, as long as it knows what it has decided."""
        if self.world.ledger.has_forgotten:
            return
        for one, other in combinations(self.world.living, 2):
            both = {
                each
                for each in one.owned & other.owned
                if NO_TOPIC_ID in (ids := {one._assigned_id(each), other._assigned_id(each)}) or len(ids) == 1
                if not any(self.cluster.is_given_away(who.identity()[0], each) for who in (one, other))
            }
            if both and all(self.cluster.counts(*each.identity()) for each in (one, other)):
                raise Violation(f"{sorted(both)} belong to {one.name} and {other.name}")
