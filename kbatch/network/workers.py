"""Workers: daemon threads for work that would delay the sender's thread."""

import os
from collections.abc import Callable
from typing import final

from kbatch._native.io.threads import ClientThread
from kbatch.logs import ClientLogger
from kbatch.unpatched import SimpleQueue, real_threading

logger = ClientLogger(__name__)

# More threads would seal faster than one thread fills batches, or than a broker takes them.
MOST_SEALERS = 4


def cpu_count() -> int:
    """Return the number of CPUs that the process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def sealer_count(beside: int = 0) -> int:
    """Return the number of threads that may seal: one for each CPU of the process, less `beside` busy ones,
    and at most MOST_SEALERS.
    """
    return min(cpu_count() - beside, MOST_SEALERS)


@final
class Workers:
    """Up to `limit` threads. A new one starts if there is work and none is free.

    `submit` and `stop` belong to one thread.
    """

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._queue: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._threads: list[ClientThread] = []
        self._lock = real_threading().Lock()
        self._unfinished_count = 0

    def submit(self, function: Callable[[], object]) -> None:
        """Call the function on one of the threads; log its exception."""
        with self._lock:
            self._unfinished_count += 1
            busy_count = self._unfinished_count
        self._queue.put(function)
        if len(self._threads) < min(self._limit, busy_count):
            name = f"{self._name}-{len(self._threads)}"
            thread = ClientThread(self._run, name)
            try:
                thread.start()
            except RuntimeError:  # there are no new threads while the interpreter ends (Python 3.12)
                if not self._threads:
                    self._work(self._queue.get())
            else:
                self._threads.append(thread)

    def stop(self) -> None:
        """End the threads after the submitted work, without waiting for them."""
        for _ in self._threads:
            self._queue.put(None)

    def _run(self) -> None:
        while (function := self._queue.get()) is not None:
            self._work(function)
            del function  # or its batch would live until the next one comes

    def _work(self, function: Callable[[], object] | None) -> None:
        assert function is not None
        try:
            function()
        except BaseException:
            logger.exception("%s failed at %r", self._name, function)
        with self._lock:
            self._unfinished_count -= 1
