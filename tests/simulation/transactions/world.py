"""TransactionalWorld: applications with transactional ids, their producers and brokers, from one seed.

Theory of operation. As in any world there are faults at first; then all is healed, and the applications
finish. After transaction.timeout.ms no transaction may be open any more, not even of dead producers, and each
transactional.id must complete another transaction. At last the logs are read as consumers of committed data
read them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbatch.testing.broker.transactions.transaction_metadata import (
    TransactionMetadata,
    to_record,
)
from tests.simulation.transactions.application import LEFT_WHEN_HEALED, Program
from tests.simulation.transactions.client import TransactionalStage
from tests.simulation.transactions.faults import TransactionalFaults
from tests.simulation.world.cluster import SimulatedCluster
from tests.simulation.world.schedule import MS, SECOND, WALL_MS
from tests.simulation.world.trace import Violation

if TYPE_CHECKING:
    from tests.simulation.transactions.options import TransactionalOptions

CALM_MS = 3000
WATCH_NS = 50 * MS
RECOVERY_MS = 60_000  # for everything in flight when all is healed
OLD_PRODUCER_ID = 1_000_000  # none that a broker would give


class TransactionalWorld(TransactionalStage):
    """A world of a seed; `run` is its life."""

    faults: TransactionalFaults

    def __init__(self, options: TransactionalOptions, *, prints: bool = False) -> None:
        super().__init__(options, prints=prints)
        self.faults = TransactionalFaults(self)
        self.cluster = SimulatedCluster(self)
        self._programs = [Program(self, number) for number in range(self.programs.ids)]
        if self.programs.first_epoch >= 0:
            self._age()

    def _age(self) -> None:
        """Give the transactional ids a long history."""
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
        name = known[0].transactional_id  # there is only one coordinator
        state = self.cluster.state
        partition = state.coordinators.partition_of_transaction(name)
        for node_id in partition.replicas:
            partition.hear(node_id, WALL_MS)  # it was made long ago
        shard = state.coordinators.of_transaction(name)
        self.cluster.change(shard.log.append, [to_record(each, 1) for each in known])
        shard.load(WALL_MS)

    # Its life

    def run(self) -> None:
        """Run the world; raise a Violation, or what a producer or an application raised."""
        try:
            self._run()
        finally:
            for task in self.tasks:
                task.kill()

    def _run(self) -> None:
        self.faults.begin()
        self._watch()
        self.run_for(self.options.fault_ms * MS)
        self.faults.heal()
        for program in self._programs:
            program.left = min(program.left, LEFT_WHEN_HEALED)
        self._await_tasks()
        self.run_for(CALM_MS * MS + self.options.settings["transaction.timeout.ms"] * MS)
        self._check_nothing_hangs()
        self._probe()
        self.check_converged()
        self._close()

    def _watch(self) -> None:
        for client in self.clients:
            client.check_asleep()
        self.schedule.after(WATCH_NS, self._watch)

    def _check_nothing_hangs(self) -> None:
        """Check that all transactions are decided, and that readers get to the end of every log."""
        for partition in self.cluster.state.cluster.partitions():
            log = partition.log
            if log.last_stable_offset != log.log_end_offset:
                raise Violation(
                    f"{partition.topic.name}-{partition.index} hangs: the last stable offset is "
                    f"{log.last_stable_offset}, and the end {log.log_end_offset}"
                )
        for metadata in self.cluster.undecided_transactions():
            raise Violation(f"{metadata.transactional_id} hangs: {metadata}")

    def _await_tasks(self) -> None:
        limit_ns = self.schedule.now_ns + RECOVERY_MS * MS
        if not self.run_until(limit_ns, lambda: all(task.is_over for task in self.tasks)):
            raise Violation(f"{RECOVERY_MS} ms after all was healed the applications have not finished")

    def _probe(self) -> None:
        """Check that every transactional.id can continue."""
        for program in self._programs:
            program.probe()
        self._await_tasks()
        self.run_for(SECOND)
        self._check_nothing_hangs()

    def _close(self) -> None:
        for client in self.clients:
            if not client.is_dead:
                client.accumulator.close()
                client.shell.stop()

    def is_quiet(self, topic_partition: tuple[str, int], *, is_idle: bool) -> bool:
        return all(client.wire.is_quiet(topic_partition, is_idle=is_idle) for client in self.clients)
