"""The protocol of waiting, which `threads` and `event_loop` implement; for tests, so does virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kbatch._native.io.interrupts import NativeEvent
    from kbatch.waiting.deadline import Deadline


class Waiter(Protocol):
    """Suspends or blocks one caller until it is set, once. All other waits are built on it.

    Attributes
    ----------
    event : NativeEvent or None
        What it waits for, if threads without the GIL may let that happen.
    """

    @property
    def event(self) -> NativeEvent | None: ...

    def set(self) -> None:
        """Wake the caller. Any thread may call it, more than once."""

    async def wait(self, deadline: Deadline) -> bool:
        """Return True after it was set, False if the deadline comes first."""
