"""NativeEvent: what signals do to a thread that waits."""

from __future__ import annotations

import ctypes
import signal
import threading
from functools import partial

import pytest

from kbatch._native.io.interrupts import NativeEvent
from kbatch.waiting.threads import in_one_step

MOMENT_SECONDS = 0.01
LONG_SECONDS = 10


def test_signal_that_came_before_the_wait_ends_it() -> None:
    """Between the interpreter's last look and the wait: nothing would wake the thread for a signal then."""
    send = ctypes.CDLL(None)["raise"]  # which, unlike Python's, runs no handler
    waited: list[bool] = []
    with pytest.raises(KeyboardInterrupt):
        in_one_step(
            partial(send, signal.SIGINT),
            partial(NativeEvent().wait, MOMENT_SECONDS),
            partial(waited.append, True),
        )
    assert waited == []


def test_signal_that_another_thread_gets_ends_the_wait() -> None:
    """Nothing wakes the main thread for it, as for one that comes while the GIL changes hands."""
    send = ctypes.CDLL(None)["raise"]  # to the calling thread
    waited: list[bool] = []
    event = NativeEvent()
    timers = [
        threading.Timer(LONG_SECONDS, event.set),
        threading.Timer(MOMENT_SECONDS, partial(send, signal.SIGINT)),
    ]
    with pytest.raises(KeyboardInterrupt):
        for timer in timers:
            timer.start()
        in_one_step(event.wait, partial(waited.append, True))
    for timer in timers:
        timer.cancel()
    assert waited == []


def test_event_that_has_happened_is_not_waited_for() -> None:
    event = NativeEvent()
    assert not event.wait(0) and not event.is_set()
    event.set()
    assert event.wait() and event.is_set()
