"""Both producers, consumers and share consumers, with one interface, so that one suite runs over both.

A test that asks for the fixture `shell` runs for each of KINDS: `new_producer` makes a Producer, and then an
OnLoop, which has the methods of a Producer and calls those of an AsyncProducer on an event loop in a thread
of its own, asyncio's and then uvloop's. `new_consumer` does the same for consumers. Tests of threads, without
an event-loop equivalent, are marked `threads`. A test that asks for `run` runs a program on either loop.
Tests need uvloop and fail without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, Self

import pytest

from kbatch import AsyncConsumer, AsyncProducer, AsyncShareConsumer, Consumer, Producer, ShareConsumer
from kbatch.network.event_loop import LoopNetwork
from kbatch.waiting.deadline import Deadline
from tests.support.effort import few
from tests.support.patience import HANG_SECONDS

LOOPS = ("asyncio", "uvloop")
KINDS = ("threads", *LOOPS)
CALL_SECONDS = HANG_SECONDS
Runner = Callable[[Coroutine[Any, Any, Any]], Any]

_loop: asyncio.AbstractEventLoop | None = None


def loops_of(kind: str) -> Any:
    """Return the module with `run` and `new_event_loop` of one of LOOPS."""
    return importlib.import_module(kind)


@contextlib.contextmanager
def loop_in_a_thread(
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
) -> Iterator[asyncio.AbstractEventLoop]:
    loop = new_loop()
    thread = threading.Thread(target=loop.run_forever, name="loop", daemon=True)
    thread.start()
    try:
        yield loop
        asyncio.run_coroutine_threadsafe(_settled(loop), loop).result(CALL_SECONDS)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(CALL_SECONDS)
        loop.close()


async def _settled(loop: asyncio.AbstractEventLoop) -> None:
    await loop.shutdown_asyncgens()
    await asyncio.sleep(0)
    await loop.shutdown_default_executor()


@contextlib.contextmanager
def shell_of(kind: str) -> Iterator[str]:
    global _loop
    if kind == "threads":
        yield kind
        return
    with loop_in_a_thread(loops_of(kind).new_event_loop) as _loop:
        try:
            yield kind
        finally:
            _loop = None


def the_loop() -> asyncio.AbstractEventLoop | None:
    """Return the loop of this test, if it is about one."""
    return _loop


class NetworkOnLoop:
    """A LoopNetwork with the methods of a ThreadNetwork."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        assert _loop is not None
        self._loop = _loop
        self._network = LoopNetwork(*arguments, **keywords)
        self.wake = self._network.wake
        self.name = self._network.name
        self.post = self._network.post
        self.register = self._network.register

    def start(self) -> None:
        self._loop.call_soon_threadsafe(self._network.start, self._loop)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(CALL_SECONDS)

    async def _stop(self) -> None:
        self._network.stop()
        await self._network.ended(Deadline(CALL_SECONDS))


def new_producer(*settings: Any, **keywords: Any) -> Any:
    """Make a Producer, or its stand-in in this test."""
    return Producer(*settings, **keywords) if _loop is None else OnLoop(_loop, *settings, **keywords)


def new_consumer(*settings: Any, **keywords: Any) -> Any:
    """Make a Consumer, or its stand-in in this test."""
    return Consumer(*settings, **keywords) if _loop is None else ConsumerOnLoop(_loop, *settings, **keywords)


def new_share_consumer(**keywords: Any) -> Any:
    """Make a ShareConsumer, or its stand-in in this test."""
    return ShareConsumer(**keywords) if _loop is None else ShareConsumerOnLoop(_loop, **keywords)


def parametrized(metafunc: pytest.Metafunc) -> None:
    """Parametrize `shell` (for pytest_generate_tests). The loop of a producer makes no difference to other
    clients, so slower tests with those omit uvloop.
    """
    if "shell" in metafunc.fixturenames:
        is_for_threads = metafunc.definition.get_closest_marker("threads") is not None
        is_with_others = "integration" in metafunc.definition.path.parts
        kinds = KINDS[:1] if is_for_threads else KINDS[:2] if is_with_others else KINDS
        metafunc.parametrize("shell", few(kinds, 2), indirect=True)


class OnLoop:
    """An AsyncProducer with the methods of a Producer."""

    _kind: type = AsyncProducer

    def __init__(self, loop: asyncio.AbstractEventLoop, *settings: Any, **keywords: Any) -> None:
        self._on_loop = loop
        self._producer = self._kind(*settings, **keywords)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._producer, name)
        if name.startswith("_") or not callable(found):
            return found
        return partial(self._call, found)

    def recreate(self) -> OnLoop:
        return self._of(self._call(self._producer.recreate))

    def _of(self, producer: AsyncProducer) -> OnLoop:
        made = OnLoop.__new__(OnLoop)
        made._on_loop, made._producer = self._on_loop, producer
        return made

    def _call(self, method: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        """Call a method on the loop; directly if this is the loop and the method is plain."""
        if iscoroutinefunction(method):
            future = asyncio.run_coroutine_threadsafe(method(*arguments, **keywords), self._on_loop)
            return future.result(CALL_SECONDS)
        if asyncio._get_running_loop() is self._on_loop:
            return method(*arguments, **keywords)
        done: Future[Any] = Future()

        def call() -> None:
            try:
                done.set_result(method(*arguments, **keywords))
            except BaseException as error:
                done.set_exception(error)

        self._on_loop.call_soon_threadsafe(call)
        return done.result(CALL_SECONDS)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        context = self._producer.transaction()
        self._call(context.__aenter__)
        try:
            yield
        except BaseException as error:
            self._call(context.__aexit__, type(error), error, error.__traceback__)
            raise
        self._call(context.__aexit__, None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *of: Any) -> None:
        self._call(self._producer.__aexit__, *of)

    def __repr__(self) -> str:
        return repr(self._producer)


class ConsumerOnLoop(OnLoop):
    """An AsyncConsumer with the methods of a Consumer."""

    _kind = AsyncConsumer

    def __iter__(self) -> Iterator[Any]:
        return self._records(self._producer.__aiter__())

    def until_end(self) -> Iterator[Any]:
        return self._records(self._producer.until_end())

    def _records(self, records: AsyncIterator[Any]) -> Iterator[Any]:
        async def following() -> Any:
            return await anext(records, None)

        while (record := self._call(following)) is not None:
            yield record


class ShareConsumerOnLoop(OnLoop):
    """An AsyncShareConsumer with the methods of a ShareConsumer."""

    _kind = AsyncShareConsumer
