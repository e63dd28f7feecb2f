"""How a test waits for an event that must come, however busy the machine is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

# Only what hangs takes that long.
HANG_SECONDS = 600.0
HANG_MS = int(HANG_SECONDS * 1000)
POLL_SECONDS = 0.001

Value = TypeVar("Value")


def until(
    condition: Callable[[], Value],
    what: object = "it",
    *,
    seconds: float = HANG_SECONDS,
    pause_seconds: float = POLL_SECONDS,
) -> Value:
    """Return the first true value of the condition.

    AssertionError after some time, with `what` it waits for, or what `what` returns.
    """
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"not in time: {what() if callable(what) else what}"
        time.sleep(pause_seconds)
    return value


async def until_async(condition: Callable[[], Any]) -> None:
    """Wait for the condition in a task, while others run."""
    end = time.monotonic() + HANG_SECONDS
    while not condition():
        assert time.monotonic() < end, "not in time"
        await asyncio.sleep(POLL_SECONDS)


def repeat_until(step: Callable[[], object], condition: Callable[[], Any], what: object = "it") -> None:
    """Repeat a step until the condition is true; the condition is looked at after each step."""

    def is_met() -> Any:
        step()
        return condition()

    until(is_met, what)


def repeat_while(error: type[Exception], attempt: Callable[[], Value]) -> Value:
    """Return what an attempt returns, after as many as raise the error."""
    returned: list[Value] = []

    def is_done() -> bool:
        try:
            returned.append(attempt())
        except error:
            return False
        return True

    until(is_done, f"an attempt without {error.__name__}")
    return returned[0]
