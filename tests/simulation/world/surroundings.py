"""Protocols and bases of a world, as its parts see it and their producer."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from kbatch._native.send.sealing import SENDER_BYTES, SealPolicy
from tests.simulation.world.schedule import SECOND, Schedule
from tests.simulation.world.trace import Trace, Violation

if TYPE_CHECKING:
    from kbatch.config import ClientConfig, ProducerConfig
    from kbatch.core.producer.engine import ProducerEngine
    from kbatch.network.rounds import DrivenEngine
    from tests.simulation.world.fate import Fate
    from tests.simulation.world.options import WorldOptions

MAX_EVENTS = 300_000


class Surroundings:
    """The parts that a world has once: time and chance.

    Attributes
    ----------
    violation : Violation | None
        Noted where an exception would be lost; raised after the event.
    """

    def __init__(self, options: WorldOptions, *, prints: bool = False) -> None:
        self.options = options
        self.random = random.Random(f"world {options.seed}")
        self.schedule = Schedule(self.random.randrange(10 * SECOND))
        self.trace = Trace(self.schedule, prints=prints)
        self.event_count = 0
        self.violation: Violation | None = None

    def is_quiet(self, topic_partition: tuple[str, int], *, is_idle: bool) -> bool:
        """True if no batch of a partition is in flight or may be sent again. With `is_idle`, only if also
        nothing was sent for so long that every producer expects to be forgotten (kbatch.sequence.idle.ms).
        """
        raise NotImplementedError

    def accumulator_keys(self) -> dict[str, Any]:
        """Return arguments of a producer's accumulator beside those of its configuration."""
        policy = SealPolicy(by_appender=self.random.random() < 0.5, inline_bytes=SENDER_BYTES)
        return {"seal_policy": policy, "seed": self.options.seed, "poison": True}

    def run_for(self, duration_ns: int) -> None:
        step, until_ns = self.schedule.step, self.schedule.now_ns + duration_ns
        while step(until_ns):
            self.count_event()

    def run_until(self, until_ns: int, is_so: Callable[[], bool]) -> bool:
        """Run events until `is_so()` is true, or up to a time. Return `is_so()`."""
        step = self.schedule.step
        while not is_so():
            if not step(until_ns):
                return is_so()
            self.count_event()
        return True

    def count_event(self) -> None:
        if self.violation is not None:
            raise self.violation
        self.event_count += 1
        if self.event_count > MAX_EVENTS:
            raise Violation(f"the world does not end: {MAX_EVENTS} events")


class Receiver(Protocol):
    """The application, as its client's network sees it."""

    def note_event(self) -> None:
        """Note that the client has handled an event."""

    def deliver(self, done: Iterable[Any], /) -> None: ...


class Judged(Receiver, Protocol):
    """The application of a producer."""

    def check_partition(self, number: int, topic: str, partition: int) -> None: ...

    def is_settled(self, number: int) -> bool: ...

    def in_callback(self) -> bool: ...


class Faults(Protocol):
    """The faults of a world, as all else in it sees them.

    Attributes
    ----------
    is_active : bool
        Faults happen: not all is healed yet.
    counts : dict of str to int
        The number of faults by kind.
    refused_requests : tuple of str
        Requests that may be answered with an error without being executed.
    """

    is_active: bool
    counts: dict[str, int]
    refused_requests: tuple[str, ...]

    def for_request(self, link: Any, frame: bytes, /) -> Fate: ...
    def late_ns(self) -> int: ...
    def breaks_tokens(self) -> bool: ...
    def breaks_names(self) -> bool: ...
    def break_at_bytes(self, size: int, /) -> int | None: ...
    def note(self, name: str, /) -> None:
        """Count an event that is a fault of the programs' own."""


class Nodes(Protocol):
    """The brokers, as the network sees them."""

    def resolve(self, host: str, port: int, /) -> Any: ...
    def node_at(self, sockaddr: Any, /) -> int | None: ...
    def is_up(self, node_id: int, /) -> bool: ...
    def name_of(self, topic_id: bytes, /) -> str: ...
    def accept(self, link: Any, /) -> Any: ...


class Observer(Protocol):
    """Sees what goes over connections."""

    def connected(self, connection_id: int, node_id: int, /) -> None: ...
    def opened(self, connection_id: int, /) -> None: ...
    def handed_over(self, connection_id: int, data: bytes, /) -> None: ...
    def written(self, connection_id: int, size: int, /) -> None: ...
    def answered(self, connection_id: int, frame: bytes, /) -> None: ...
    def ended(self, connection_id: int, /) -> None: ...


class Mailbox(Protocol):
    """The sender's thread."""

    def post(self, function: Callable[[], object], /) -> None: ...
    def received(self, connection_id: int, piece: bytes, /) -> None: ...
    def written(self, connection_id: int, size: int, /) -> None: ...
    def closed(self, connection_id: int, error: Exception, /) -> None: ...


class ClientHost(Protocol):
    """A client and its surroundings, as its network sees them."""

    options: WorldOptions
    random: random.Random
    schedule: Schedule

    @property
    def config(self) -> ClientConfig: ...

    @property
    def engine(self) -> DrivenEngine: ...

    @property
    def cluster(self) -> Nodes: ...

    @property
    def shell(self) -> Mailbox: ...

    @property
    def faults(self) -> Faults: ...

    @property
    def trace(self) -> Callable[..., None]: ...

    @property
    def wire(self) -> Observer: ...

    @property
    def application(self) -> Receiver: ...

    def check_engine(self) -> None:
        """Check the engine after a round of its owner."""


class Host(ClientHost, Protocol):
    """A producer and its surroundings: a World, or one of several Clients."""

    @property
    def config(self) -> ProducerConfig: ...

    @property
    def engine(self) -> ProducerEngine: ...

    @property
    def application(self) -> Judged: ...
