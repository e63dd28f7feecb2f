"""Protocols of waiting, which `threads`, `event_loop` and `virtual` implement."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from kbatch._native.send.accumulator import RecordAccumulator, Refusal
    from kbatch.waiting.deadline import Deadline

T = TypeVar("T")


class Waiter(Protocol):
    """Suspends or blocks one caller until it is set, once. All other waits are built on it."""

    def set(self) -> None:
        """Let the caller continue. Any thread may call it, more than once."""

    async def wait(self, deadline: Deadline) -> bool:
        """Return True after it was set, False if the deadline comes first."""


class MemoryQueue(Protocol):
    """The queue of callers that wait for memory: first come, first served.

    Attributes
    ----------
    freed : callable or None
        Called on any thread, by native code too, when the first in the queue has to check again.
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
        """Return the result of `append()` when it is the caller's turn and there is memory; Refusal.MEMORY at
        the deadline. With `goes_first` its turn comes before those of earlier callers.
        """

    def wake_first(self, accumulator: RecordAccumulator) -> None:
        """Make the first in the queue check again, and each other after those before it have left."""


class Awaited(Protocol):
    """A Delivery, or a TableDelivery."""

    def add_done_callback(self, function: Callable[[Any], object], /) -> None: ...
