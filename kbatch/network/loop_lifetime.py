"""LoopLife: how clients of an asyncio event loop begin and end.

A client may be made anywhere, and belongs to the loop on which it is first used; its network starts then.
When the loop shuts down its asynchronous generators, as asyncio.run does at the end, a client that is still
open warns with a ResourceWarning and closes.
"""

from __future__ import annotations

import asyncio
import warnings
import weakref
from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from kbatch._native.io.interrupts import at_once
from kbatch.network.event_loop import LoopNetwork
from kbatch.network.lifetime import OpenClient
from kbatch.waiting.event_loop import at_shutdown, running_loop

if TYPE_CHECKING:
    from kbatch.network.rounds import DrivenEngine
    from kbatch.waiting.deadline import Deadline

# The time to say goodbye to brokers.
_END_SECONDS = 2.0
# Dropped clients until they have ended, with the tasks that close them. A task may be cancelled before it
# has begun; then the end of the loop closes its client.
_dropped: dict[LoopLife, asyncio.Task[None]] = {}


class LoopLife(OpenClient):
    """Base of the clients of event loops."""

    _network: LoopNetwork
    _loop: asyncio.AbstractEventLoop | None = None
    _farewell: AsyncGenerator[None, None] | None = None
    _is_farewell = False  # True if the end of the loop closes it

    @abstractmethod
    async def _close_forgotten(self) -> None:
        """Close a client that the program has dropped or left open."""

    def _make_network(self, engine: DrivenEngine, deliver: Callable[[list[Any]], object]) -> None:
        """Make the network, which is the runtime's, too."""
        runtime = self._runtime
        self._network = runtime.network = LoopNetwork(
            engine,
            config=self.config,
            deliver=deliver,
            name=f"kbatch-{self.config.client_id}",
            metrics=runtime.registry,
        )

    # Its loop

    def _check_loop(self) -> None:
        loop = running_loop(self, self._loop)
        if self._loop is None and not self._runtime.is_closed:
            self._loop = loop
            self._network.start(loop)
            self._farewell = at_shutdown(partial(_close_with_loop, weakref.ref(self)))

    # Its end

    async def _close_on_loop(self, close: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Await `close()`, and the end of the connections if that has ended the network."""
        if self._runtime.is_forked or self._is_released:
            return
        if self._loop is None or self._loop.is_closed():
            self._end()
            return
        self._runtime.check_here()
        await close()
        if self._is_released:
            await self._network.ended(self._runtime.deadline(_END_SECONDS))

    def _end(self, deadline: Deadline | None = None) -> None:
        if self._runtime.is_forked or self._is_released:
            return
        super()._end(deadline)
        _dropped.pop(self, None)
        farewell, self._farewell = self._farewell, None
        if farewell is not None and not self._is_farewell:
            at_once(farewell.aclose)

    def _close_at_exit(self) -> None:
        self._end()  # no loop runs any more

    def _close_elsewhere(self) -> None:
        loop = self._loop
        if loop is None or loop.is_closed():
            self._end()
        else:
            loop.call_soon_threadsafe(self._begin_to_close, loop)

    def _begin_to_close(self, loop: asyncio.AbstractEventLoop) -> None:
        _dropped[self] = loop.create_task(self._close_forgotten())


async def _close_with_loop(client: weakref.ref[LoopLife]) -> None:
    """Close a client that is still open when its loop shuts down."""
    found = client()
    if found is not None and not found._is_released and not found._runtime.is_forked:
        message = f"{found!r} is still open at the end of its loop; close() it"
        warnings.warn(message, ResourceWarning, source=found, stacklevel=2)
        found._is_farewell = True
        await found._close_forgotten()
