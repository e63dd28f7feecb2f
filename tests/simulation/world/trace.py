"""The events of a world, one line each: a failure shows the last ones, --verbose shows all."""

from __future__ import annotations

from collections import deque

from tests.simulation.world.schedule import MS, Schedule

KEPT_LINES = 60


class Violation(AssertionError):
    """A world broke a promise of the producer."""


class Trace:
    """The lines of a world.

    Parameters
    ----------
    prints : bool
        Print each line at once, instead of keeping the last ones.
    """

    def __init__(self, schedule: Schedule, *, prints: bool) -> None:
        self.prints = prints
        self._schedule = schedule
        self._lines: deque[tuple[int, str, tuple[object, ...]]] = deque(maxlen=KEPT_LINES)

    def __call__(self, text: str, *values: object) -> None:
        """Note `text % values`, formatted only when it is read."""
        line = (self._schedule.now_ns, text, values)
        if self.prints:
            print(_written(*line), flush=True)
        else:
            self._lines.append(line)

    def lines(self) -> list[str]:
        return [_written(*line) for line in self._lines]


def _written(now_ns: int, text: str, values: tuple[object, ...]) -> str:
    return f"{now_ns / MS:12.3f} ms  {text % values}"
