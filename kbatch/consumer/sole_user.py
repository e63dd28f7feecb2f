"""SoleUser: lets one thread, or one task, use a consumer at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

from kbatch.errors import ConcurrentUseError


@final
class SoleUser:
    """A context that refuses a second user while the first is in it. What the first calls from there, as
    callbacks of a rebalance do, enters it again.

    Parameters
    ----------
    current : callable
        Returns the thread or task that calls.
    name_of : callable
        Returns its name.

    Attributes
    ----------
    is_calling_back : bool
        True while a callback of the program runs inside it.
    """

    def __init__(self, current: Callable[[], Any], name_of: Callable[[Any], str]) -> None:
        self._current = current
        self._name_of = name_of
        self._user: dict[str, Any] = {}
        self._depth = 0
        self.is_calling_back = False

    def __enter__(self) -> None:
        me = self._current()
        user = self._user.setdefault("it", me)  # one step, so that one of two threads is first
        if user is not me:
            raise ConcurrentUseError(
                f"{self._name_of(user)} is using the consumer, so {self._name_of(me)} must not; give each "
                f"its own consumer, or pass the records on"
            )
        if not self.is_calling_back:  # an interrupt may have come between the steps of an earlier call
            self._depth = 0
        self._depth += 1

    def __exit__(self, *of: object) -> None:
        self._depth -= 1
        if self._depth <= 0:
            self._user.clear()
