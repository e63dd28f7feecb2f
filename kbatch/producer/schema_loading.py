"""Schemas that a registry has to be asked for before a task's records can be serialized.

The questions go to other threads, so that the event loop goes on: one for each format and topic, however many
tasks wait for it. The threads are daemons: the end of the loop does not wait for a registry that does not
answer, as it would for the threads of the loop's own executor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, final

from kbatch.errors import KafkaTimeoutError
from kbatch.formats.base import Codec
from kbatch.network.workers import Workers

if TYPE_CHECKING:
    from kbatch.waiting.deadline import Deadline

# Topics that are asked for at a time.
MOST_THREADS = 4


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
        self._asked: dict[tuple[Codec[Any], str], asyncio.Future[Any]] = {}

    def begin(self, codec: Codec[Any], topic: str) -> asyncio.Future[Any] | None:
        """Ask for what a codec needs for a topic; None if it knows that."""
        if codec.knows(topic):
            return None
        question = codec, topic
        asked = self._asked.get(question)
        if asked is None:
            asked = self._elsewhere(partial(codec.load, topic))
            self._asked[question] = asked
            asked.add_done_callback(lambda done: self._forget(question, done))
        return asked

    def _forget(self, question: tuple[Codec[Any], str], done: asyncio.Future[Any]) -> None:
        del self._asked[question]
        if not done.cancelled():
            done.exception()  # of which a task may have gone

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
            await _answer(asked, topic, deadline)

    async def first(self, call: Callable[[], object], topic: str | None, deadline: Deadline) -> None:
        """Make a call elsewhere that asks, so that the next one like it asks nothing. Errors are those of
        `load` and of the call.
        """
        await _answer(self._elsewhere(call), topic, deadline)

    def _elsewhere(self, call: Callable[[], object]) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        asked: asyncio.Future[Any] = loop.create_future()

        def run() -> None:
            error: Exception | None = None
            try:
                call()
            except Exception as raised:
                error = raised
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(_complete, asked, error)

        self._workers.submit(run)
        return asked

    def stop(self) -> None:
        """End the threads after what was asked, without waiting for them."""
        self._workers.stop()


def _complete(asked: asyncio.Future[Any], error: Exception | None) -> None:
    if asked.done():  # cancelled with its task
        return
    if error is None:
        asked.set_result(None)
    else:
        asked.set_exception(error)


async def _answer(asked: asyncio.Future[Any], topic: str | None, deadline: Deadline) -> None:
    await asyncio.wait([asked], timeout=deadline.left)
    if not asked.done():
        raise KafkaTimeoutError(
            "the schema registry has not said within max.block.ms what records to "
            f"{topic or 'the topics'} are written by"
        )
    asked.result()
