"""How a caller waits, as protocols: `threads`, `event_loop` and `virtual` have a class for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from kbatch._native.send.accumulator import RecordAccumulator, Refusal
    from kbatch.waiting.deadline import Deadline

T = TypeVar("T")


class Waiter(Protocol):
    """Holds up one caller until it is set, once. All other waits are made of it."""

    def set(self) -> None:
        """Let the caller go on. Any thread may call it, and again."""

    async def wait(self, deadline: Deadline) -> bool:
        """Return True after it was set, False if the deadline comes first."""


class MemoryQueue(Protocol):
    """Callers that wait for memory: first come, first served.

    Attributes
    ----------
    freed : callable or None
        Any thread calls it, native code too, when the first in line has to look again.
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
        """Have the first in line look again, and the others after it has left."""


class Awaited(Protocol):
    """A Delivery, or a TableDelivery."""

    def add_done_callback(self, function: Callable[[Any], object], /) -> None: ...
