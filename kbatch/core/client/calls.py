"""Call: a user's call of the engine, and its result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from kbatch.errors import KafkaError


class Call:
    """A user's call. Other threads may read it; `is_done` is set last.

    Attributes
    ----------
    name : str
        The name of the user's method.
    is_made : bool
        True if the engine has begun it.
    is_done : bool
    error : KafkaError | None
        The reason of its failure.
    """

    __slots__ = ("error", "is_done", "is_made", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_made = False
        self.is_done = False
        self.error: KafkaError | None = None

    def make(self, command: Callable[[Self, int], None], now_ns: int) -> None:
        """Make the call, unless it was made before."""
        if not self.is_made:
            self.is_made = True
            command(self, now_ns)

    def finish(self, error: KafkaError | None = None) -> None:
        """End the call, unless it has ended before."""
        if not self.is_done:
            self.error = error
            self.is_done = True
