"""A thread that counts how often it gets the GIL while something runs."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable

import pytest


class Rival:
    """A thread that wants the GIL, and gives it up at once: how often it had it. Without one, tests skip."""

    def __init__(self) -> None:
        self.turns = 0
        self._is_over = False
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._is_over:
            self.turns += 1
            time.sleep(0)

    def __enter__(self) -> Rival:
        if not getattr(sys, "_is_gil_enabled", lambda: True)():
            pytest.skip("this interpreter has no GIL")
        gc.collect()  # no garbage collection releases the GIL for a socket
        gc.disable()
        self._interval = sys.getswitchinterval()
        sys.setswitchinterval(1000)  # no thread has to release the GIL
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._is_over = True
        self._thread.join()
        sys.setswitchinterval(self._interval)
        gc.enable()

    def turns_during(self, call: Callable[[], object], times: int = 1000) -> int:
        before = self.turns
        for _ in range(times):
            call()
        return self.turns - before

    def had_a_turn_during(self, call: Callable[[], object]) -> bool:
        """If it may get the GIL it gets it in the end, but a busy system may delay it."""
        return any(self.turns_during(call) for _ in range(100))
