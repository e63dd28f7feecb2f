"""World: a producer, its application, a network and brokers, in one thread, in virtual time, from one seed.

Theory of operation. Everything that happens is an event of the Schedule; all chance comes from the seed, so
that a seed is a world and replays exactly. First there are faults. Then all is healed: everything that
was accepted must be done within delivery.timeout.ms, and new records must get through. At last the logs are
compared with the outcomes that the application got. A broken promise raises a Violation at once.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from kbatch.core.client.cluster import GIVING_UP, REMEMBERED_NS, ClusterSnapshot
from kbatch.errors import KafkaError
from kbatch.protocol import features
from tests.simulation.producers.application import Application, SentRecord, Stage
from tests.simulation.producers.producer import SimulatedProducer
from tests.simulation.producers.table_application import Tables
from tests.simulation.producers.watchdog import forgotten_batches
from tests.simulation.producers.wire import Wire
from tests.simulation.world.options import WorldOptions
from tests.simulation.world.schedule import MS, SECOND
from tests.simulation.world.tasks import VirtualTask
from tests.simulation.world.trace import Violation

if TYPE_CHECKING:
    from kbatch._native.batch.producer_batch import ProducerBatch

WATCH_NS = 50 * MS
CALM_MS = 3000  # after the faults, for back-offs to end
# Each brings at least one answer with metadata, and a leader of a higher epoch is given up after some.
PROBE_ROUNDS = GIVING_UP + 2
# With less there may not be time for a new connection.
PROBED_TIMEOUT_MS = 3000


class World(Stage):
    """A world of a seed; `run` is its life.

    Parameters
    ----------
    options : WorldOptions
    prints : bool
        Print what happens.
    """

    application: Application

    def __init__(self, options: WorldOptions, *, prints: bool = False) -> None:
        super().__init__(options, prints=prints)
        self.wire = Wire(self)
        self.application = Application(self)
        self.producer = SimulatedProducer(
            self,
            random=random.Random(f"engine {options.seed}"),
            seal=self._seal,
            engine_keys={"first_counter": options.first_counter},
            accumulator_keys=self.accumulator_keys(),
        )
        self.accumulator, self.engine = self.producer._accumulator, self.producer.runtime.engine
        self.shell = self.producer.shell
        self.tables = Tables(self.application, options.tables) if options.tables is not None else None
        self.application.tables = self.tables
        self.healed_ns = 0
        self._snapshot = self.engine.snapshot
        self._given_up = 0

    # Its life

    def run(self) -> None:
        """Raise a Violation, or the producer's exception."""
        try:
            self._run()
        finally:
            self.application.kill()

    def _run(self) -> None:
        self.shell.wake()
        self.application.start()
        self.faults.begin()
        self._watch()
        if self.options.workload.close != "late":
            self._close_some_time()
        self.run_for(self.options.fault_ms * MS)
        self.faults.heal()
        self.healed_ns = self.schedule.now_ns
        self._run_until_finished()
        self._probe()
        self.application.close()
        self._run_until_finished()
        self.run_for(CALM_MS * MS)
        self.check_converged()

    def check_engine(self) -> None:
        """Check the engine after a round of the sender."""
        if self.engine.fatal_error is not None and not self.faults.is_fatal:
            raise Violation(f"the producer gave up: {self.engine.fatal_error!r}")
        self._check_idle_nodes()
        before, self._snapshot = self._snapshot, self.engine.snapshot
        given_up, self._given_up = self._given_up, self.engine.given_up_epochs
        if before is not self._snapshot and given_up == self._given_up:
            self._check_leader_epochs(before)
        self._check_reliable_epochs()

    def is_quiet(self, topic_partition: tuple[str, int], *, is_idle: bool) -> bool:
        return self.wire.is_quiet(topic_partition, is_idle=is_idle)

    def _check_reliable_epochs(self) -> None:
        """Check that leader epochs of Metadata below version 9 do not count."""
        version = self.options.cluster.metadata_version
        if version is None or version >= features.METADATA_RELIABLE_EPOCHS:
            return
        for name, topic in self._snapshot.topics.items():
            if any(each.leader_epoch >= 0 for each in topic.partitions):
                raise Violation(f"{name}: leader epochs of Metadata v{version} are believed")

    def _check_idle_nodes(self) -> None:
        """Check that batches which may go to a node that takes requests have gone.

        If not all of them fit into a request, room may be kept for what is being sealed. Only every other
        world is checked: `ready` looks in place of the sender, which so gets to know what it has missed.
        """
        now_ns, memory = self.schedule.now_ns, self.accumulator.memory
        if self.options.seed % 2:
            return
        if memory.total_memory - memory.available > self.config.max_request_size:
            return
        nodes, _, _ = self.accumulator.ready(now_ns)
        idle = [node_id for node_id in nodes if self.engine.is_ready(node_id, now_ns)]
        if idle:
            raise Violation(f"nodes {idle} are ready and have batches, but get none")

    def _check_asleep(self) -> None:
        """Check that a sender that sleeps has sent, itself or by its lane, what could be sent."""
        if self.shell.is_asleep and (batches := forgotten_batches(self.producer, self.schedule.now_ns)):
            raise Violation(f"the sender sleeps, and could send {batches}")

    def _check_leader_epochs(self, before: ClusterSnapshot) -> None:
        """Check that no known leader is replaced by an older one, unless the client gave it up."""
        for name, topic in self._snapshot.topics.items():
            known = before.topics.get(name)
            if known is None or known.topic_id != topic.topic_id:
                continue
            for index, (old, new) in enumerate(zip(known.partitions, topic.partitions, strict=False)):
                if new.leader_epoch < old.leader_epoch:
                    raise Violation(
                        f"{name}-{index}: leader epoch {new.leader_epoch} in place of {old.leader_epoch}"
                    )

    def _watch(self) -> None:
        self.application.check_deadlines()
        self._check_asleep()
        if self._is_memory_idle:
            self.schedule.after(MS, self._check_memory)
        self.schedule.after(WATCH_NS, self._watch)

    @property
    def _is_memory_idle(self) -> bool:
        """True if all memory is free, and a caller waits for memory."""
        memory = self.accumulator.memory
        return memory.queued > 0 and memory.available == memory.total_memory

    def _check_memory(self) -> None:
        if self._is_memory_idle:
            raise Violation(f"{self.accumulator.memory.queued} wait for memory, and all of it is free")

    def _seal(self, batch: ProducerBatch) -> None:
        """Seal the batch on a thread of its own, some time later."""
        delay_ms = self.random.random() * self.options.seal_ms
        if delay_ms:
            self.schedule.after(int(delay_ms * MS), batch.seal)
        else:
            batch.seal()

    def _close_some_time(self) -> None:
        forced = self.options.workload.close == "forced"
        delay_ns = self.random.randrange((self.options.fault_ms + CALM_MS // 2) * MS)
        self.schedule.after(delay_ns, lambda: self.application.close(forced=forced))

    def _run_until_finished(self) -> None:
        """Run until the application has ended. `_watch` checks that records are done in time."""
        config, workload = self.config, self.options.workload
        sends = workload.appenders * workload.records
        if self.options.tables is not None:
            sends *= max(self.options.tables.rows, self.options.tables.batch_records)
        longest_ms = config.delivery_timeout_ms + (config.max_block_ms + workload.pause_ms) * 2
        longest_ms += sends * workload.callback_ms + workload.records * workload.pause_ms + 1000
        if workload.flush:
            longest_ms += config.delivery_timeout_ms * workload.records
        if self.tables is not None:  # where rows wait one after another
            longest_ms += sends * config.max_block_ms
        until_ns = self.schedule.now_ns + int(longest_ms) * MS
        if not self.run_until(until_ns, lambda: self.application.is_finished):
            raise Violation(f"{longest_ms} ms after all was healed the application has not finished")

    def _probe(self) -> None:
        """Check that the producer still delivers to every partition."""
        self.run_for(CALM_MS * MS)
        if self.application.is_closed or self.engine.fatal_error is not None:
            return
        if self.engine.snapshot.errors:  # no broker is asked again before
            self.run_for(REMEMBERED_NS)
        partitions = self.cluster.state.cluster.partitions()
        missing = {(partition.topic.name, partition.index) for partition in partitions}
        for _ in range(PROBE_ROUNDS):
            VirtualTask(self.application.resume()).go()
            self.run_for(100 * MS)
            probes = [self.application.new_probe() for _ in missing]
            self._send_probes(probes, sorted(missing))
            for record in probes:
                if record.delivery is not None and record.is_done and not record.delivery.exception():
                    missing.discard(record.topic_partition)
            if not missing:
                return
        # where nodes are slow, the time-out of a request may be shorter than its answer takes
        timeout_ms = min(self.config.delivery_timeout_ms, self.config.request_timeout_ms)
        if timeout_ms >= self.options.round_trip_ms and self.config.delivery_timeout_ms >= PROBED_TIMEOUT_MS:
            raise Violation(f"after all was healed nothing gets through to {sorted(missing)}")

    def _send_probes(self, records: list[SentRecord], partitions: list[tuple[str, int]]) -> None:
        """Send a record to each partition, and run until all are done."""
        sending = [
            VirtualTask(self._send_probe(record, *topic_partition))
            for record, topic_partition in zip(records, partitions, strict=True)
        ]
        for task in sending:
            task.go()
        until_ns = self.schedule.now_ns + self.config.delivery_timeout_ms * MS + SECOND
        self.run_until(
            until_ns,
            lambda: all(task.is_over for task in sending) and all(record.is_done for record in records),
        )

    async def _send_probe(self, record: SentRecord, topic: str, partition: int) -> None:
        try:
            await self.application.send(record, topic, partition)
        except KafkaError as error:
            self.trace("probe: %r", error)
