"""A world of readers, and a member of its group, as programs and writers see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from tests.simulation.readers.cluster import GroupCluster
from tests.simulation.readers.ledger import GroupLedger
from tests.simulation.world.cluster import Ground

if TYPE_CHECKING:
    from kbatch.core.consumer.group_engine import GroupEngine
    from kbatch.core.consumer.results import Result
    from tests.simulation.readers.options import GroupOptions
    from tests.simulation.world.options import WorldOptions
    from tests.simulation.world.schedule import Schedule


class Process(Protocol):
    """A member, as its program and its wire see it.

    Attributes
    ----------
    results : list of Result
        What has come for the program.
    """

    name: str
    options: WorldOptions
    schedule: Schedule
    engine: GroupEngine
    results: list[Result]
    is_alive: bool

    @property
    def world(self) -> GroupStage: ...

    def trace(self, text: str, *values: object) -> None: ...

    def wake(self) -> None:
        """Wake the engine, which sees then what the program wants."""

    def check_asleep(self) -> None:
        """Check that a thread that sleeps has asked every node that it could ask."""

    def check_released(self) -> None:
        """Check that only answers that are awaited have memory."""

    def check_owners(self) -> None:
        """Check that each partition has at most one owner."""

    def end(self) -> None:
        """End the process."""


class GroupStage(Ground):
    """A world of readers, as programs and writers see it.

    Attributes
    ----------
    readers, writing
        The options of the group, and of the writers.
    ledger : GroupLedger
    """

    cluster: GroupCluster

    def __init__(self, options: GroupOptions, *, prints: bool = False) -> None:
        super().__init__(options, prints=prints)
        assert options.readers is not None and options.writing is not None
        self.settings = options.settings
        self.readers, self.writing = options.readers, options.writing
        self.ledger = GroupLedger(self.schedule, reads_committed=self.readers.isolation == "read_committed")
        self._transaction_count = 0

    @property
    def slack_bytes(self) -> int:
        """Return how far answers with a batch that is larger than what was asked for may exceed a budget."""
        batch_bytes = self.writing.records * (self.writing.value_bytes + 100) + 2000
        return self.options.cluster.node_count * batch_bytes

    def topics(self) -> Sequence[str]:
        """Return the topics that the group reads."""
        return list(self.options.cluster.partition_counts)

    def next_transaction(self) -> int:
        self._transaction_count += 1
        return self._transaction_count
