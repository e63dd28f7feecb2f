"""Stage: a producer, a network, brokers and their judges; a world also has an application."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbatch.config import ProducerConfig
from tests.simulation.producers.wire import Wire
from tests.simulation.world.cluster import BOOTSTRAP, PORT, Ground, SimulatedCluster
from tests.simulation.world.faults import WorldFaults

if TYPE_CHECKING:
    from kbatch._native.send.accumulator import RecordAccumulator
    from kbatch.core.producer.engine import ProducerEngine
    from tests.simulation.producers.producer import SimulatedProducer
    from tests.simulation.world.network import Shell
    from tests.simulation.world.options import WorldOptions
    from tests.simulation.world.surroundings import Judged


class Stage(Ground):
    """A world as its application sees it.

    Attributes
    ----------
    producer : SimulatedProducer
    accumulator, engine, shell
        Of the producer.
    """

    faults: WorldFaults
    producer: SimulatedProducer
    accumulator: RecordAccumulator
    engine: ProducerEngine
    shell: Shell
    application: Judged

    def __init__(self, options: WorldOptions, *, prints: bool = False) -> None:
        super().__init__(options, prints=prints)
        self.settings = options.settings
        self.config = ProducerConfig(
            {"bootstrap.servers": f"{BOOTSTRAP}:{PORT}", "client.id": "simulated", **options.settings}
        )
        self.is_idempotent = self.config.enable_idempotence
        self.may_resend = self.config.kbatch_sequence_gap == "resend"
        self.faults = WorldFaults(self)
        self.cluster = SimulatedCluster(self)
        self.wire = Wire(self)

    @property
    def keeps_order(self) -> bool:
        """True if the producer promises that a partition's records stay in order.

        kbatch.sequence.gap=resend makes no such promise once a leader has lost what it knew of the producer:
        that leader may take a later batch first, and the gap is sent again after it.
        """
        if self.is_idempotent:
            return not (self.may_resend and self.cluster.lost)
        return self.config.max_in_flight_requests_per_connection == 1 and "late" not in self.faults.counts

    def check_engine(self) -> None:
        """Check the engine after a round of the sender."""
        raise NotImplementedError

    def is_quiet(self, topic_partition: tuple[str, int], *, is_idle: bool) -> bool:
        return self.wire.is_quiet(topic_partition, is_idle=is_idle)
