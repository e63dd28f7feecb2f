"""Schemas that a registry has to be asked for before a task's records can be serialized.

The questions go to other threads, so that the event loop goes on: one for each format and topic, however many
tasks wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, final

from kbatch.errors import KafkaTimeoutError
from kbatch.formats.base import Codec

if TYPE_CHECKING:
    from kbatch.waiting.deadline import Deadline


@final
class SchemaLoading:
    """Asks for the schemas that codecs write."""

    def __init__(self) -> None:
        self._asked: dict[tuple[Codec[Any], str], asyncio.Future[Any]] = {}

    def begin(self, codec: Codec[Any], topic: str) -> asyncio.Future[Any] | None:
        """Ask for what a codec needs for a topic; None if it knows that."""
        if codec.knows(topic):
            return None
        question = codec, topic
        asked = self._asked.get(question)
        if asked is None:
            asked = asyncio.get_running_loop().run_in_executor(None, codec.load, topic)
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
        asked = asyncio.get_running_loop().run_in_executor(None, call)
        await _answer(asked, topic, deadline)


async def _answer(asked: asyncio.Future[Any], topic: str | None, deadline: Deadline) -> None:
    await asyncio.wait([asked], timeout=deadline.left)
    if not asked.done():
        raise KafkaTimeoutError(
            "the schema registry has not said within max.block.ms what records to "
            f"{topic or 'the topics'} are written by"
        )
    asked.result()
