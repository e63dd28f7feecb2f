"""Actions to run later, in the broker's own time: a heap of deadlines, driven from outside."""

import heapq
from collections.abc import Callable
from itertools import count


class Timer:
    """One action to run at `deadline_ms`, unless it is cancelled before."""

    __slots__ = ("action", "deadline_ms")

    def __init__(self, deadline_ms: int, action: Callable[[int], None]) -> None:
        self.deadline_ms = deadline_ms
        self.action: Callable[[int], None] | None = action

    def cancel(self) -> None:
        self.action = None


class Timers:
    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._order = count()

    def call_at(self, deadline_ms: int, action: Callable[[int], None]) -> Timer:
        """Schedule `action(now_ms)` for the first `run(now_ms)` at or after `deadline_ms`."""
        timer = Timer(deadline_ms, action)
        heapq.heappush(self._heap, (deadline_ms, next(self._order), timer))
        return timer

    def next_deadline_ms(self) -> int | None:
        while self._heap and self._heap[0][2].action is None:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def run(self, now_ms: int) -> None:
        while (deadline_ms := self.next_deadline_ms()) is not None and deadline_ms <= now_ms:
            action = heapq.heappop(self._heap)[2].action
            if action is not None:
                action(now_ms)
