"""Actor: a thread of an application, whose calls block, in virtual time.

Theory of operation. It is a real thread, for what blocks must have a stack of its own, but it runs only while
the world waits for it: `go` lets it run up to its next `wait` or to its end. So there is one order of things,
that of the seed. A thread that waits is looked at behind every round of a sender (`look`), and when its time
is over. `kill` ends it where it stands.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbatch.testing.simulation.schedule import Schedule


class Killed(BaseException):
    """The world is over for the thread."""


class Actor:
    """A thread that does `script()`.

    Attributes
    ----------
    is_over : bool
        It has come to its end.
    """

    def __init__(self, schedule: Schedule, script: Callable[[], None]) -> None:
        self.is_over = False
        self._schedule = schedule
        self._script = script
        self._is_so: Callable[[], bool] | None = None  # what it waits for
        self._until_ns = 0
        self._error: BaseException | None = None
        self._is_killed = False
        self._turn = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    # For the world

    def go(self) -> None:
        """Lets it run, up to its next wait. Raises what it raised."""
        self._turn.release()
        self._back.acquire()
        if self._error is not None:
            raise self._error

    def look(self) -> None:
        """Lets it run if there is what it waits for, or no time left."""
        if self._is_so is not None and (self._schedule.now_ns >= self._until_ns or self._is_so()):
            self._is_so = None
            self._schedule.after(0, self.go)

    def kill(self) -> None:
        """Ends the thread."""
        self._is_killed = True
        self._turn.release()
        self._thread.join()

    # For the thread

    def wait(self, is_so: Callable[[], bool], until_ns: int) -> None:
        """Returns when `is_so()`, or at a time."""
        if self._is_killed:
            raise Killed
        if is_so() or self._schedule.now_ns >= until_ns:
            return
        self._is_so, self._until_ns = is_so, until_ns
        event = self._schedule.at(until_ns, self.look)
        self._back.release()
        self._await_turn()
        event.cancel()

    def sleep(self, delay_ns: int) -> None:
        self.wait(lambda: False, self._schedule.now_ns + delay_ns)

    def _await_turn(self) -> None:
        self._turn.acquire()
        if self._is_killed:
            raise Killed

    def _run(self) -> None:
        try:
            self._await_turn()
            self._script()
        except Killed:
            return
        except BaseException as error:
            self._error = error
        self.is_over = True
        self._back.release()
