"""World: a producer, its application, a network and brokers, in one thread, in virtual time, from one seed.

Theory of operation. Everything that happens is an event of the Schedule; all chance comes from the seed, so
that a seed is a world and replays exactly. First there are faults; then all is healed, and everything that
was accepted must be done within delivery.timeout.ms, and new records must get through; at last the logs are
compared with what the application was told. What must never happen raises a Violation on the spot.
"""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable

from kbatch._native.send.accumulator import RecordAccumulator
from kbatch._native.send.sealing import SENDER_BYTES, SealPolicy
from kbatch.config import ProducerConfig
from kbatch.core.client.cluster import ClusterSnapshot
from kbatch.core.producer.engine import Engine
from kbatch.metrics import MetricsRegistry
from kbatch.testing.simulation import checkers
from kbatch.testing.simulation.application import Application, SentRecord
from kbatch.testing.simulation.cluster import BOOTSTRAP, PORT, SimulatedCluster
from kbatch.testing.simulation.faults import Faults
from kbatch.testing.simulation.network import Shell
from kbatch.testing.simulation.options import Options
from kbatch.testing.simulation.schedule import MS, SECOND
from kbatch.testing.simulation.surroundings import Host, Surroundings
from kbatch.testing.simulation.table_application import Tables
from kbatch.testing.simulation.trace import Violation
from kbatch.testing.simulation.wire import Wire

WATCH_NS = 50 * MS
CALM_MS = 3000  # after the faults, for back-offs to end
PROBE_ROUNDS = 3
# With less there may not be time for a new connection.
PROBED_TIMEOUT_MS = 3000


class World(Surroundings):
    """A world of a seed; `run` is its life.

    Parameters
    ----------
    options : Options
    prints : bool
        Print what happens.
    """

    application: Application

    def __init__(self, options: Options, *, prints: bool = False) -> None:
        super().__init__(options, prints=prints)
        self.settings = options.settings
        self.config = ProducerConfig(
            {"bootstrap.servers": f"{BOOTSTRAP}:{PORT}", "client.id": "simulated", **options.settings}
        )
        self.is_idempotent = self.config.enable_idempotence
        self.may_resend = self.config.kbatch_sequence_gap == "resend"
        self.faults = Faults(self)
        self.cluster = SimulatedCluster(self)
        self.shell = Shell(self)
        known: World = weakref.proxy(self)
        self.accumulator: RecordAccumulator = new_accumulator(self, lambda: known.application.memory_freed())
        self.engine = Engine(
            self.config,
            self.accumulator,
            random=random.Random(f"engine {options.seed}"),
            registry=MetricsRegistry(self.config.client_id),
            now_ns=self.schedule.now_ns,
            first_counter=options.first_counter,
        )
        self.application = Application(self)
        self.tables = Tables(self, options.tables) if options.tables is not None else None
        self.wire = Wire(self)
        self.healed_ns = 0
        self._snapshot = self.engine.snapshot

    @property
    def keeps_order(self) -> bool:
        """True if the producer promises that a partition's records stay in order.

        kbatch.sequence.gap=resend makes no such promise once a leader has lost what it knew of the producer:
        that leader may take a later batch first, and the gap is sent again after it.
        """
        if self.is_idempotent:
            return not (self.may_resend and self.cluster.lost)
        return self.config.max_in_flight_requests_per_connection == 1 and "late" not in self.faults.counts

    # Its life

    def run(self) -> None:
        """Raises a Violation, or what the producer raised."""
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
        self.run_for(CALM_MS * MS)
        self.shell.close()
        logs = checkers.Logs(self)
        for check in checkers.CHECKS:
            check(self, logs)

    def check_engine(self) -> None:
        """Behind every round of the sender."""
        if self.engine.fatal_error is not None and not self.faults.is_fatal:
            raise Violation(f"the producer gave up: {self.engine.fatal_error!r}")
        self._check_idle_nodes()
        before, self._snapshot = self._snapshot, self.engine.snapshot
        if before is not self._snapshot:
            self._check_leader_epochs(before)

    def _check_idle_nodes(self) -> None:
        """Whatever may go to a node that takes requests has gone, whichever partitions have to wait. (Where
        not all of it fits into a request, room may be kept for what is being sealed.) In every other world,
        for this looks in the sender's place: what that has missed, it would find out here.
        """
        now_ns, memory = self.schedule.now_ns, self.accumulator.memory
        if self.options.seed % 2:
            return
        if memory.total_memory - memory.available > self.config.max_request_size:
            return
        nodes, _, _ = self.accumulator.ready(now_ns)
        idle = [node_id for node_id in nodes if self.engine.is_ready(node_id, now_ns)]
        if idle:
            raise Violation(f"nodes {idle} have batches to get and take requests, and get none")

    def _check_leader_epochs(self, before: ClusterSnapshot) -> None:
        """What is known of a leader is never replaced by something older."""
        for name, topic in self._snapshot.topics.items():
            known = before.topics.get(name)
            if known is None or known.topic_id != topic.topic_id:
                continue
            for index, (old, new) in enumerate(zip(known.partitions, topic.partitions, strict=False)):
                if new.leader_epoch < old.leader_epoch:
                    raise Violation(
                        f"{name}-{index}: leader epoch {new.leader_epoch} in place of {old.leader_epoch}"
                    )

    def is_quiet(self, place: tuple[str, int], *, is_idle: bool) -> bool:
        return self.wire.is_quiet(place, is_idle=is_idle)

    def _watch(self) -> None:
        self.application.check_deadlines()
        self.schedule.after(WATCH_NS, self._watch)

    def _close_some_time(self) -> None:
        forced = self.options.workload.close == "forced"
        delay_ns = self.random.randrange((self.options.fault_ms + CALM_MS // 2) * MS)
        self.schedule.after(delay_ns, lambda: self.application.close(forced=forced))

    def _run_until_finished(self) -> None:
        """What was accepted is done in time, which is watched; the application then comes to an end."""
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
            raise Violation(f"{longest_ms} ms after all was healed the application is not through")

    def _probe(self) -> None:
        """A producer that has been through all that still delivers, everywhere."""
        self.run_for(CALM_MS * MS)
        if self.application.is_closed or self.engine.fatal_error is not None:
            return
        partitions = self.cluster.state.cluster.partitions()
        missing = {(partition.topic.name, partition.index) for partition in partitions}
        for _ in range(PROBE_ROUNDS):
            self.application.resume()
            self.run_for(100 * MS)
            probes = [self._probe_of(*place) for place in sorted(missing)]
            self._run_until_done(probes)
            for record in probes:
                if record.delivery is not None and record.is_done and not record.delivery.exception():
                    missing.discard(record.place)
            if not missing:
                return
        if self.config.delivery_timeout_ms >= PROBED_TIMEOUT_MS:
            raise Violation(f"when all is well nothing gets through to {sorted(missing)}")

    def _run_until_done(self, records: list[SentRecord]) -> None:
        until_ns = self.schedule.now_ns + self.config.delivery_timeout_ms * MS + SECOND
        self.run_until(until_ns, lambda: all(record.is_done for record in records))

    def _probe_of(self, topic: str, partition: int) -> SentRecord:
        self.engine.want_topic(topic)
        self.shell.wake()
        record = self.application.new_record()
        record.callback = "none"
        self.application.append(record, topic, partition)
        return record


def new_accumulator(world: Host, memory_freed: Callable[[], object]) -> RecordAccumulator:
    config = world.config
    # deliveries, which the world keeps, hold the accumulator where the garbage collector does not look
    known: Host = weakref.proxy(world)
    return RecordAccumulator(
        batch_size=config.batch_size,
        buffer_memory=config.buffer_memory,
        compression=config.compression_type,
        linger_ns=config.linger_ms * MS,
        retry_backoff_ns=config.retry_backoff_ms * MS,
        retry_backoff_max_ns=config.retry_backoff_max_ms * MS,
        delivery_timeout_ns=config.delivery_timeout_ms * MS,
        seal_policy=SealPolicy(by_appender=world.random.random() < 0.5, inline_bytes=SENDER_BYTES),
        transactional=config.transactional_id is not None,
        seed=world.options.seed,
        poison=True,
        wake=lambda: known.shell.wake(),
        memory_freed=memory_freed,
    )
