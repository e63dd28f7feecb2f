"""What a task's records wait for until they are serialized, while the event loop goes on.

Theory of operation. Formats wait for schemas only: a registry is asked by other threads, one question for
each format and topic, however many tasks wait for it. After that they are called on the loop. Functions, and
objects made for other clients, may wait whenever they are called. So all of their calls go to one thread,
which keeps the order of records. To change threads twice costs less than to suspend a task and resume it; so
the loop waits GRACE_SECONDS for a call, unless the thread is busy with another one.

The threads are daemons: the end of the loop does not wait for a registry that does not answer, as it would
for the threads of the loop's own executor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, final

from kbatch.errors import KafkaTimeoutError
from kbatch.formats.base import Codec
from kbatch.network.workers import Workers
from kbatch.unpatched import real_threading

if TYPE_CHECKING:
    from kbatch.waiting.deadline import Deadline

# The error of a call, or None.
Outcome: TypeAlias = "asyncio.Future[BaseException | None]"
# Topics that are asked for at a time.
MOST_THREADS = 4
# No task notices that a loop has waited so long.
GRACE_SECONDS = 0.001


@final
class SchemaLoading:
    """Asks for the schemas that codecs write.

    Parameters
    ----------
    name : str
        Of its threads.
    """

    def __init__(self, name: str) -> None:
        self._workers = Workers(name, MOST_THREADS)
        self._asked: dict[tuple[Codec[Any], str], Outcome] = {}

    def begin(self, codec: Codec[Any], topic: str) -> Outcome | None:
        """Ask for what a codec needs for a topic; None if it knows that."""
        if codec.known_seconds(topic):
            return None
        question = codec, topic
        asked = self._asked.get(question)
        if asked is None:
            asked = _Call(partial(codec.load, topic)).begin(self._workers)
            self._asked[question] = asked
            asked.add_done_callback(lambda _: self._asked.pop(question))
        return asked

    async def load(self, codec: Codec[Any], topic: str, deadline: Deadline) -> None:
        """Wait until the codec knows what it needs.

        Raises
        ------
        SchemaRegistryError
            The registry refuses, does not have a schema, or cannot be reached.
        KafkaTimeoutError
            It has not answered by the deadline.
        """
        asked = self.begin(codec, topic)
        if asked is not None:
            await _answered(asked, topic, deadline)

    async def first(self, call: Callable[[], object], topic: str | None, deadline: Deadline) -> None:
        """Make a call elsewhere that asks, so that the next one like it asks nothing. Errors are those of
        `load` and of the call.
        """
        await _answered(_Call(call).begin(self._workers), topic, deadline)

    def stop(self) -> None:
        """End the threads after what was asked, without waiting for them."""
        self._workers.stop()


async def _answered(asked: Outcome, topic: str | None, deadline: Deadline) -> None:
    late = f"the schema registry has not said within max.block.ms what records to {topic or 'the topics'} are"
    await _returned(asked, f"{late} written by", deadline)


async def _returned(outcome: Outcome, late: str, deadline: Deadline) -> None:
    """Wait for a call. Raise its error, or KafkaTimeoutError with a text."""
    if not outcome.done():
        await asyncio.wait([outcome], timeout=deadline.left)
    if not outcome.done():
        raise KafkaTimeoutError(late)
    error = outcome.result()
    if error is not None:
        raise error


@final
class SerializerThread:
    """Calls serializers that may wait, one after the other.

    Parameters
    ----------
    name : str
        Of the thread.
    """

    def __init__(self, name: str) -> None:
        self._workers = Workers(name, 1)
        self._last: _Call | None = None

    async def run(self, serialize: Callable[[], object], topic: str, deadline: Deadline) -> None:
        """Wait until `serialize` has returned, which runs in the context of the task. Raise its exceptions.

        Raises
        ------
        KafkaTimeoutError
            It has not returned by the deadline.
        """
        is_free = self._last is None or self._last.is_done
        self._last = call = _Call(partial(copy_context().run, serialize))
        late = f"the serializers of a record to {topic} have not returned within max.block.ms"
        try:
            await _returned(call.begin(self._workers, GRACE_SECONDS if is_free else 0.0), late, deadline)
        finally:
            call.leave_out()

    def stop(self) -> None:
        """End the thread after what it was given, without waiting for it."""
        self._workers.stop()


@final
class _Call:
    """A call that another thread makes for a task.

    Attributes
    ----------
    is_done : bool
        True once it has returned, or raised.
    """

    def __init__(self, function: Callable[[], object]) -> None:
        self._function: Callable[[], object] | None = function
        self._error: BaseException | None = None
        self._lock = real_threading().Lock()  # of `is_done` and `_waits`
        self._returned = real_threading().Lock()
        self._waits = False  # True if the loop has to be called
        self.is_done = False

    def begin(self, workers: Workers, grace_seconds: float = 0.0) -> Outcome:
        """Have it called by a worker, and return what becomes of it. The loop waits so long that this may be
        done already.
        """
        self._loop = asyncio.get_running_loop()
        self._future = self._loop.create_future()
        self._returned.acquire()
        workers.submit(self._run)
        if grace_seconds:
            self._returned.acquire(timeout=grace_seconds)
        with self._lock:
            self._waits = not self.is_done
        if not self._waits:
            self._complete()
        return self._future

    def leave_out(self) -> None:
        """Do not call it if that has not begun."""
        self._function = None

    def _run(self) -> None:
        function, self._function = self._function, None
        if function is None:
            self.is_done = True
            return
        try:
            function()
        except BaseException as error:
            self._error = error
        with self._lock:
            self.is_done = True
            waits = self._waits
        self._returned.release()
        if waits:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._complete)

    def _complete(self) -> None:
        with suppress(asyncio.InvalidStateError):  # it was cancelled
            self._future.set_result(self._error)
