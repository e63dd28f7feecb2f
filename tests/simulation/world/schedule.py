"""Virtual time: events, ordered by their time and, for equal times, by their creation."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush

MS = 1_000_000
SECOND = 1_000 * MS
WALL_MS = 1_700_000_000_000  # on the wall when the monotonic clock shows 0


class ScheduledAction:
    """An action that will run, unless it is cancelled."""

    __slots__ = ("action", "at_ns")

    def __init__(self, at_ns: int, action: Callable[[], object]) -> None:
        self.at_ns = at_ns
        self.action: Callable[[], object] | None = action

    def cancel(self) -> None:
        self.action = None


class LastSecond:
    """The number of times that something has happened within a second."""

    __slots__ = ("_times_ns",)

    def __init__(self) -> None:
        self._times_ns: deque[int] = deque()

    def count(self, now_ns: int) -> int:
        """Count this time, and those of the second before it."""
        self._times_ns.append(now_ns)
        while self._times_ns[0] < now_ns - SECOND:
            self._times_ns.popleft()
        return len(self._times_ns)


class Schedule:
    """The clock of a world, which stands still while an event runs.

    Attributes
    ----------
    now_ns : int
        The monotonic clock.
    wall_offset_ns : int
        The difference of the wall clock, which may step either way.
    """

    def __init__(self, now_ns: int) -> None:
        self.now_ns = now_ns
        self.wall_offset_ns = WALL_MS * MS
        self._heap: list[tuple[int, int, ScheduledAction]] = []
        self._made_count = 0

    @property
    def wall_ms(self) -> int:
        return (self.now_ns + self.wall_offset_ns) // MS

    def after(self, delay_ns: int, action: Callable[[], object]) -> ScheduledAction:
        """Call `action()` `delay_ns` from now."""
        return self.at(self.now_ns + delay_ns, action)

    def at(self, at_ns: int, action: Callable[[], object]) -> ScheduledAction:
        if at_ns < self.now_ns:
            at_ns = self.now_ns
        event = ScheduledAction(at_ns, action)
        self._made_count += 1
        heappush(self._heap, (at_ns, self._made_count, event))
        return event

    def step(self, until_ns: int) -> bool:
        """Run the next event. If there is none up to `until_ns`, set the clock to that, and return False."""
        heap = self._heap
        while heap and heap[0][0] <= until_ns:
            at_ns, _, event = heappop(heap)
            action = event.action
            if action is not None:
                self.now_ns = at_ns
                event.action = None
                action()
                return True
        self.now_ns = max(self.now_ns, until_ns)
        return False
