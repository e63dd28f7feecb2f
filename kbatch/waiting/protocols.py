"""What a caller waits for, as protocols: `threads` and `event_loop` have a class for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from kbatch._native.send.accumulator import RecordAccumulator, Refusal
    from kbatch.waiting.deadline import Deadline

T = TypeVar("T")


class Event(Protocol):
    """It happens once, and is waited for."""

    def set(self) -> None: ...
    def is_set(self) -> bool: ...
    async def wait(self, deadline: Deadline) -> bool:
        """Whether it has happened, before the deadline."""


class Line(Protocol):
    """Those who wait for memory: first come, first served.

    Attributes
    ----------
    freed : callable or None
        Any thread calls it, native code too, when the first in line is to look again.
    """

    @property
    def freed(self) -> Callable[[], object] | None: ...
    async def wait(
        self,
        accumulator: RecordAccumulator,
        append: Callable[[], T | Refusal],
        deadline: Deadline,
        *,
        goes_first: bool = False,
    ) -> T | Refusal:
        """Return what `append()` gives when it is the caller's turn and there is memory; Refusal.MEMORY if
        there was none before the deadline. `goes_first`: before those who came earlier.
        """

    def wake_first(self, accumulator: RecordAccumulator) -> None:
        """Have the first in line look again, and the others when it has left."""


class Changing(Protocol):
    """Something that is waited for to change."""

    def notify(self) -> None: ...
    async def wait_until(self, is_so: Callable[[], bool], deadline: Deadline) -> bool:
        """Whether `is_so()`; it is asked after every change. What it raises comes out."""


class OwnerOfEngine(Protocol):
    """The network: a thread's, or an event loop's."""

    wake: Callable[[], object]

    @property
    def is_alive(self) -> bool: ...
    def stop(self) -> None: ...


class Callbacks(Protocol):
    """Where callbacks run."""

    def deliver(self, completions: Any) -> None: ...
    def in_callback(self) -> bool: ...


class Awaited(Protocol):
    """A Delivery, or a TableDelivery."""

    def add_done_callback(self, function: Callable[[Any], object], /) -> None: ...
