"""TransactionalWorld: applications with transactional ids, their producers and brokers, from one seed.

Theory of operation. As in any world there are faults at first; then all is healed, and the applications
come to their end. When transaction.timeout.ms has passed nothing may be open any more, of producers that
died too; and each transactional.id must get another transaction through. At last the logs are read as
consumers of committed data read them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbatch.testing.broker.transaction_metadata import TransactionMetadata, to_record
from kbatch.testing.simulation import transaction_checkers as checkers
from kbatch.testing.simulation.cluster import SimulatedCluster
from kbatch.testing.simulation.schedule import MS, SECOND, WALL_MS
from kbatch.testing.simulation.surroundings import Surroundings
from kbatch.testing.simulation.trace import Violation
from kbatch.testing.simulation.transactional_application import LEFT_WHEN_HEALED, Ledger, Program
from kbatch.testing.simulation.transactional_faults import TransactionalFaults

if TYPE_CHECKING:
    from kbatch.testing.broker.cluster import ClusterPartition
    from kbatch.testing.simulation.actor import Actor
    from kbatch.testing.simulation.network import Link
    from kbatch.testing.simulation.transactional_client import Client
    from kbatch.testing.simulation.transactional_options import TransactionalOptions

CALM_MS = 3000
RECOVERY_MS = 60_000  # for whatever is under way when all is healed
OLD_PRODUCER_ID = 1_000_000  # none that a broker would give


class TransactionalWorld(Surroundings):
    """A world of a seed; `run` is its life.

    Attributes
    ----------
    clients : list of Client
        All producers that there ever were.
    actors : list of Actor
        All threads of applications.
    application : Ledger
        What the applications did.
    """

    faults: TransactionalFaults

    def __init__(self, options: TransactionalOptions, *, prints: bool = False) -> None:
        super().__init__(options, prints=prints)
        assert options.programs is not None
        self.programs = options.programs
        self.faults = TransactionalFaults(self)
        self.cluster = SimulatedCluster(self)
        self.application = Ledger(self)
        self.clients: list[Client] = []
        self.actors: list[Actor] = []
        self._programs = [Program(self, number) for number in range(self.programs.ids)]
        if self.programs.first_epoch >= 0:
            self._age()

    def _age(self) -> None:
        """The transactional ids have been used for long."""
        timeout_ms = self.options.settings["transaction.timeout.ms"]
        known = [
            TransactionMetadata(
                program.transactional_id,
                OLD_PRODUCER_ID + number,
                timeout_ms,
                WALL_MS,
                producer_epoch=self.programs.first_epoch,
            )
            for number, program in enumerate(self._programs)
        ]
        self.cluster.state.coordinators.transactions.load([to_record(each, 1) for each in known], WALL_MS)

    # Its life

    def run(self) -> None:
        """Raises a Violation, or what a producer or an application raised."""
        try:
            self._run()
        finally:
            for actor in self.actors:
                actor.kill()

    def _run(self) -> None:
        self.faults.begin()
        self.run_for(self.options.fault_ms * MS)
        self.faults.heal()
        for program in self._programs:
            program.left = min(program.left, LEFT_WHEN_HEALED)
        self._await_actors()
        self.run_for(CALM_MS * MS + self.options.settings["transaction.timeout.ms"] * MS)
        checkers.check_nothing_hangs(self)
        self._probe()
        self._close()
        logs = checkers.Logs(self)
        for check in checkers.CHECKS:
            check(self, logs)

    def start(self, actor: Actor) -> None:
        self.actors.append(actor)
        self.schedule.after(self.random.randrange(10 * MS), actor.go)

    def _await_actors(self) -> None:
        limit_ns = self.schedule.now_ns + RECOVERY_MS * MS
        if not self.run_until(limit_ns, lambda: all(actor.is_over for actor in self.actors)):
            raise Violation(f"{RECOVERY_MS} ms after all was healed the applications are not through")

    def _probe(self) -> None:
        """What every transactional.id has been through does not keep it from going on."""
        for program in self._programs:
            program.probe()
        self._await_actors()
        self.run_for(SECOND)
        checkers.check_nothing_hangs(self)

    def _close(self) -> None:
        for client in self.clients:
            if not client.is_dead:
                client.accumulator.close()
                client.shell.close()

    # What its parts ask

    def is_quiet(self, place: tuple[str, int], *, is_idle: bool) -> bool:
        return all(client.wire.is_quiet(place, is_idle=is_idle) for client in self.clients)

    def client_of(self, link: Link) -> Client | None:
        """Whose connection it is; None where that has ended."""
        owners = (client for client in self.clients if link in client.shell.links.values())
        return next(owners, None)

    def data_partitions(self) -> list[ClusterPartition]:
        """Those of the applications' topics."""
        partitions = self.cluster.state.cluster.partitions()
        return [partition for partition in partitions if not partition.topic.is_internal]
