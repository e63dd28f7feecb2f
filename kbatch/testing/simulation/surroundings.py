"""What the parts of a world see of it, and of the producer that they belong to."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from kbatch.testing.simulation.schedule import SECOND, Schedule
from kbatch.testing.simulation.trace import Trace, Violation

if TYPE_CHECKING:
    from kbatch.config import ProducerConfig
    from kbatch.core.producer.engine import Engine
    from kbatch.testing.simulation.cluster import SimulatedCluster
    from kbatch.testing.simulation.faults import Faults
    from kbatch.testing.simulation.network import Shell
    from kbatch.testing.simulation.options import Options
    from kbatch.testing.simulation.wire import Wire

MAX_EVENTS = 300_000


class Surroundings:
    """What there is once in a world: time, chance, faults and brokers.

    Attributes
    ----------
    violation : Violation | None
        What happened where an exception would be lost; raised behind the event.
    """

    faults: Faults
    cluster: SimulatedCluster

    def __init__(self, options: Options, *, prints: bool = False) -> None:
        self.options = options
        self.random = random.Random(f"world {options.seed}")
        self.schedule = Schedule(self.random.randrange(10 * SECOND))
        self.trace = Trace(self.schedule, prints=prints)
        self.event_count = 0
        self.violation: Violation | None = None

    def is_quiet(self, place: tuple[str, int], *, is_idle: bool) -> bool:
        """Whether nothing of a partition is under way, or may be sent again; `is_idle`: and nothing was sent
        for so long that every producer expects to be forgotten there (kbatch.sequence.idle.ms).
        """
        raise NotImplementedError

    def run_for(self, duration_ns: int) -> None:
        self.run_until(self.schedule.now_ns + duration_ns, lambda: False)

    def run_until(self, until_ns: int, is_so: Callable[[], bool]) -> bool:
        """Lets things happen until `is_so()`, or up to a time; which of them it was."""
        while not is_so():
            if not self.schedule.step(until_ns):
                return is_so()
            self.count_event()
        return True

    def count_event(self) -> None:
        if self.violation is not None:
            raise self.violation
        self.event_count += 1
        if self.event_count > MAX_EVENTS:
            raise Violation(f"there is no end to it: {MAX_EVENTS} events")


class Judged(Protocol):
    """The application, as its producer's network sees it."""

    def check_place(self, number: int, topic: str, partition: int) -> None: ...

    def is_settled(self, number: int) -> bool: ...

    def note_event(self) -> None:
        """The producer has dealt with something that happened."""

    def completed(self, completions: list[Any]) -> None: ...


class Host(Protocol):
    """A producer and what is around it, as its network sees them: a world that has one, or one of many."""

    options: Options
    random: random.Random
    schedule: Schedule
    config: ProducerConfig
    engine: Engine
    cluster: SimulatedCluster

    @property
    def shell(self) -> Shell: ...

    @property
    def faults(self) -> Faults: ...

    @property
    def trace(self) -> Callable[..., None]: ...

    @property
    def wire(self) -> Wire: ...

    @property
    def application(self) -> Judged: ...

    def check_engine(self) -> None:
        """Behind every round of the sender."""
