"""LoopDelivery: the turns of an event loop that call on_delivery.

Theory of operation. Completions wait in a queue, whose callbacks run in turns of the loop. A turn ends after
the first batch with which it has taken TURN_SECONDS; the next one is scheduled, so that other tasks run in
between. Without a loop, callbacks run at once.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, final

from kbatch._native.batch.delivery import Completion
from kbatch._native.io.interrupts import thread_ident
from kbatch.config import ClientConfig
from kbatch.metrics import MetricsRegistry
from kbatch.network.callbacks import CallbackRunner

TURN_SECONDS = 0.001


@final
class LoopDelivery(CallbackRunner):
    """Runs the callbacks of completions on one thread, in the order of their delivery.

    Parameters
    ----------
    config, metrics
        Parameters of CallbackRunner.
    entering : callable
        Called with the thread's ident before callbacks, and with 0 after them.
    """

    ends_program = (KeyboardInterrupt, SystemExit)

    def __init__(
        self, config: ClientConfig, metrics: MetricsRegistry | None, entering: Callable[[int], object]
    ) -> None:
        super().__init__(config, metrics)
        self._entering = entering
        self._loop: asyncio.AbstractEventLoop | None = None
        self._batches: deque[Completion] = deque()
        self._is_scheduled = False
        self._is_running = False

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the loop that runs callbacks."""
        self._loop = loop

    def deliver(self, completions: Iterable[Any]) -> None:
        """Schedule the callbacks of completed batches."""
        self._batches += self._add(completions)
        self._schedule_turn()

    def in_callback(self) -> bool:
        """True if the caller is a callback."""
        return self._is_running

    def report(self) -> None:
        """Log the count of exceptions that are not in the log yet."""
        self._failures.report()

    def _schedule_turn(self) -> None:
        if not self._batches or self._is_scheduled or self._is_running:
            return
        if self._loop is None or self._loop.is_closed():
            self._run_turn(None)
        else:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_scheduled = False
        self._run_turn(time.monotonic() + TURN_SECONDS)

    def _run_turn(self, end: float | None) -> None:
        self._is_running = True
        self._entering(thread_ident())
        try:
            while self._batches:
                self._run_callbacks((self._batches[0],))
                self._batches.popleft()
                if end is not None and time.monotonic() >= end:
                    break
        finally:
            self._entering(0)
            self._is_running = False
            self._schedule_turn()
