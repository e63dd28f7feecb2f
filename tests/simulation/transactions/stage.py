"""TransactionalStage: a world of transactions as its parts see it."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from tests.simulation.transactions.ledger import Ledger
from tests.simulation.world.cluster import Ground, NodeFaults

if TYPE_CHECKING:
    from kbatch.testing.broker.cluster import ClusterPartition
    from tests.simulation.transactions.ledger import Process
    from tests.simulation.transactions.options import TransactionalOptions
    from tests.simulation.world.network import Link


class ProgramFaults(NodeFaults, Protocol):
    """The faults of requests and programs; `is_active` until all is healed."""

    is_active: bool

    def note(self, name: str, /) -> None:
        """Note an event of the applications."""


class TransactionalStage(Ground):
    """
    Attributes
    ----------
    application : Ledger
        The notes of the applications.
    """

    faults: ProgramFaults

    def __init__(self, options: TransactionalOptions, *, prints: bool = False) -> None:
        super().__init__(options, prints=prints)
        assert options.programs is not None
        self.programs = options.programs
        self.application = Ledger(self)

    @property
    def clients(self) -> Sequence[Process]:
        """Return all producers, past and present."""
        raise NotImplementedError

    def add(self, client: Any) -> None:
        """Add a producer that has begun."""
        raise NotImplementedError

    def start(self, script: Coroutine[Any, None, None]) -> None:
        """Run it as a thread of an application."""
        raise NotImplementedError

    def client_of(self, link: Link) -> Process | None:
        """Return the client of a connection; None if it has ended."""
        raise NotImplementedError

    def data_partitions(self) -> list[ClusterPartition]:
        """Return the partitions of the applications' topics."""
        partitions = self.cluster.state.cluster.partitions()
        return [partition for partition in partitions if not partition.topic.is_internal]
