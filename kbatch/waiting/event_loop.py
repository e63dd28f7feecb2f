"""How a task of an event loop waits, and which loop it must run on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, final

from kbatch.errors import IllegalStateError

if TYPE_CHECKING:
    from kbatch.waiting.deadline import Deadline


def running_loop(client: object, own: asyncio.AbstractEventLoop | None) -> asyncio.AbstractEventLoop:
    """Return the running loop for a client that belongs to the loop `own`, or to none yet.

    Raises
    ------
    IllegalStateError
        No loop is running, or another one.
    """
    name = type(client).__name__
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        raise IllegalStateError(
            f"{name} must be used on a running event loop, by tasks and callbacks; use "
            f"{name.removeprefix('Async')} in threads"
        ) from None
    if own is not None and own is not running:
        how = "which is closed" if own.is_closed() else "which runs elsewhere"
        raise IllegalStateError(
            f"the {name} belongs to another event loop, {how}; use it there, or create one on this loop"
        )
    return running


def at_shutdown(close: Callable[[], Coroutine[Any, Any, None]]) -> AsyncGenerator[None, None]:
    """Return a generator that awaits `close()` when the running loop shuts down its asynchronous generators,
    as asyncio.run does at its end; or before that, in `aclose`.
    """
    generator = _until_shutdown(close)
    with suppress(StopIteration):  # runs it to its yield, so that the loop knows of it
        generator.__anext__().__await__().send(None)
    return generator


async def _until_shutdown(close: Callable[[], Coroutine[Any, Any, None]]) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await close()


def complete(future: asyncio.Future[None]) -> None:
    """Complete a future, unless it is done. A look at it first would not do: a signal handler may cancel the
    future's task after any step of Python code.
    """
    try:
        future.set_result(None)
    except asyncio.InvalidStateError:
        return


@final
class TaskWaiter:
    """The Waiter of a task."""

    event = None

    def __init__(self) -> None:
        self._future: asyncio.Future[None] | None = None
        self._is_set = False

    def set(self) -> None:
        self._is_set = True  # before the look at the future, which the task makes before it looks here
        future = self._future
        if future is None:
            return
        loop = future.get_loop()
        if asyncio._get_running_loop() is loop:
            complete(future)
        elif not loop.is_closed():
            loop.call_soon_threadsafe(complete, future)

    async def wait(self, deadline: Deadline) -> bool:
        if deadline.is_over:
            return self._is_set
        loop = asyncio.get_running_loop()
        future = self._future = loop.create_future()
        if not self._is_set:
            left = deadline.left
            timer = None if left is None else loop.call_later(left, complete, future)
            try:
                await future
            finally:
                if timer is not None:
                    timer.cancel()
        return self._is_set
