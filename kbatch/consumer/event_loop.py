"""AsyncConsumer: the consumer for programs on an asyncio event loop.

Theory of operation. Everything happens on the thread of one loop, the one on which the consumer is first
used; only workers decode on others. LoopNetwork drives the engine between the turns of the program's own
tasks. A poll first gives them a turn: otherwise a loop over what was fetched would keep them, and the
network, from running.

Whatever a poll awaits, it awaits before it takes records. So a cancelled poll has taken nothing, and its
records come with the next one.

When the loop shuts down its asynchronous generators, as asyncio.run does at the end, a consumer that is still
open warns with a ResourceWarning and closes.
"""

from __future__ import annotations

import asyncio
import warnings
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kbatch._native.io.interrupts import at_once
from kbatch.config import ConsumerConfig
from kbatch.consumer.base import CLOSE_SECONDS, EXIT_SECONDS, ConsumerBase
from kbatch.consumer.group_member import GroupMember
from kbatch.consumer.runtime import ReaderRuntime, configured
from kbatch.core.consumer.group_engine import GroupEngine
from kbatch.errors import IllegalStateError
from kbatch.network.event_loop import LoopNetwork
from kbatch.waiting.event_loop import TaskWaiter
from kbatch.waiting.methods import awaited, plain

if TYPE_CHECKING:
    import pyarrow as pa

    from kbatch._native.codec.record import ConsumerRecord
    from kbatch.column_deserializers import ColumnDeserializer
    from kbatch.consumer.polled import Polled
    from kbatch.waiting.deadline import Deadline

# The time to say goodbye to brokers.
_END_SECONDS = 2.0
# Dropped consumers until they have ended, with the tasks that close them. A task may be cancelled before it
# has begun; then the end of the loop closes its consumer.
_dropped: dict[AsyncConsumer, asyncio.Task[None]] = {}


class AsyncConsumer(ConsumerBase):
    """Reads records from Kafka on an asyncio event loop: Consumer's methods, awaited. Those that never wait
    are plain: `subscribe`, `subscription`, `assign`, `assignment`, `seek`, `seek_to_beginning`,
    `seek_to_end`, `pause`, `resume`, `paused`, `commit_async`, `group_metadata`, `alive`, `metrics`. One task
    uses it at a time.

    Callbacks of `subscribe` may be coroutine functions, which polls await. They run in a task of their own,
    so the cancellation of a poll does not reach them: the next poll goes on waiting for them.

    It may be created anywhere, and belongs to the loop on which it is first used. `async for` gives record
    after record, and never ends.

    Parameters
    ----------
    settings : ConsumerConfig or Mapping[str, object], optional
        Configuration keys with dots, as docs/configuration.md lists them.
    **keywords
        The same keys with underscores.

    Attributes
    ----------
    config : ConsumerConfig

    Raises
    ------
    ConfigError
        Keys or values are unknown, invalid or contradictory.
    """

    def __init__(
        self, settings: ConsumerConfig | Mapping[str, object] | None = None, /, **keywords: object
    ) -> None:
        config = configured(settings, keywords)
        runtime = ReaderRuntime(
            config,
            "consumer",
            new_waiter=TaskWaiter,
            check_caller=weakref.WeakMethod(self._check_loop),
            engine_type=GroupEngine,
        )
        super().__init__(runtime, runtime.sole_user(_current, _name_of), asyncio.ensure_future)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._farewell: AsyncGenerator[None, None] | None = None
        self._is_farewell = False  # True if the end of the loop closes it
        self._network = runtime.network = LoopNetwork(
            runtime.engine,
            config=config,
            deliver=self._backlog.arrivals.deliver,
            name=f"kbatch-{config.client_id}",
            metrics=runtime.registry,
        )
        self._opened()

    async def poll(self, timeout: float | None = None, max_records: int | None = None) -> Polled:
        """Return the next records as soon as there are some; like Consumer.poll. If it is cancelled, the next
        poll returns them.
        """
        await self._give_way()
        return await self._poll(timeout, max_records)

    async def poll_table(
        self,
        timeout: float | None = None,
        max_rows: int = 100_000,
        min_rows: int = 1,
        *,
        max_bytes: int | None = None,
        linger: float = 0.0,
        columns: Iterable[str] | None = None,
        key: ColumnDeserializer | None = None,
        value: ColumnDeserializer | None = None,
        layout: str = "copy",
    ) -> pa.Table:
        """Return the next records as a table; like Consumer.poll_table. If it is cancelled, the next poll
        returns them.
        """
        await self._give_way()
        return await self._poll_table(
            timeout,
            max_rows,
            min_rows,
            max_bytes=max_bytes,
            linger=linger,
            columns=columns,
            key=key,
            value=value,
            layout=layout,
        )

    subscribe = plain(GroupMember.subscribe, "_member")
    subscription = plain(GroupMember.subscription, "_member")
    unsubscribe = awaited(GroupMember.unsubscribe, "_member")
    commit = awaited(GroupMember.commit, "_member")
    commit_async = plain(GroupMember.commit_async, "_member")
    committed = awaited(GroupMember.committed, "_member")
    group_metadata = plain(GroupMember.group_metadata, "_member")
    alive = plain(GroupMember.alive, "_member")
    position = ConsumerBase._position
    lag = ConsumerBase._lag
    topics = ConsumerBase._topics
    partitions_for = ConsumerBase._partitions_for
    beginning_offsets = ConsumerBase._beginning_offsets
    end_offsets = ConsumerBase._end_offsets
    offsets_for_times = ConsumerBase._offsets_for_times

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """Iterate over the records of all polls from now on, without an end."""
        return self._records()

    async def until_end(self) -> AsyncIterator[ConsumerRecord]:
        """Iterate over the records up to where each log ends when the iteration begins; like
        Consumer.until_end.
        """
        await self._begin_until_end()
        async for record in self._records(is_bounded=True):
            yield record

    async def _records(self, *, is_bounded: bool = False) -> AsyncIterator[ConsumerRecord]:
        while True:
            await self._give_way()
            found = await self._next_lot(is_bounded=is_bounded)
            if found is None:
                return
            held, records = found
            for record in records:
                if held.lot is not records:  # another call has moved the partition, or paused it
                    break
                held.last = record
                yield record

    async def _give_way(self) -> None:
        """Let the network and other tasks run."""
        self._runtime.check_here()
        await asyncio.sleep(0)

    # Its loop

    def _check_loop(self) -> None:
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            raise IllegalStateError(
                "an AsyncConsumer must be used on a running event loop, by tasks and callbacks; use Consumer "
                "in threads"
            ) from None
        if self._loop is None and not self._runtime.is_closed:
            self._bind(running)
        elif self._loop is not None and self._loop is not running:
            how = "which is closed" if self._loop.is_closed() else "which runs elsewhere"
            raise IllegalStateError(
                f"the consumer belongs to another event loop, {how}; use it there, or make one on this loop"
            )

    def _bind(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._network.start(loop)
        self._farewell = _until_shutdown(weakref.ref(self))
        with suppress(StopIteration):  # runs it to its yield, so that the loop knows of it
            self._farewell.__anext__().__await__().send(None)

    # Its end

    async def close(self, leave: bool | None = None, timeout: float | None = CLOSE_SECONDS) -> None:
        """Commit, leave the group, and end all connections and threads; like Consumer.close."""
        await self._close_on_loop(leave, timeout)

    async def _close_on_loop(self, leave: bool | None, timeout: float | None, **rest: bool) -> None:
        if self._runtime.is_forked or self._is_released:
            return
        if self._loop is None or self._loop.is_closed():
            self._end()
            return
        self._runtime.check_here()
        await self._close(leave, timeout, **rest)
        await self._network.ended(self._runtime.deadline(_END_SECONDS))

    def _end(self) -> None:
        if self._runtime.is_forked or self._is_released:
            return
        super()._end()
        _dropped.pop(self, None)
        farewell, self._farewell = self._farewell, None
        if farewell is not None and not self._is_farewell:
            at_once(farewell.aclose)

    async def __aenter__(self) -> Self:
        self._runtime.check_here()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._close_on_loop(None, CLOSE_SECONDS, is_failing=kind is not None)

    def _close_at_exit(self) -> None:
        self._end()  # no loop runs any more

    def _close_elsewhere(self) -> None:
        loop = self._loop
        if loop is None or loop.is_closed():
            self._end()
        else:
            loop.call_soon_threadsafe(self._begin_to_close, loop)

    def _begin_to_close(self, loop: asyncio.AbstractEventLoop) -> None:
        closing = self._close_on_loop(None, EXIT_SECONDS, is_failing=True, calls_back=False)
        _dropped[self] = loop.create_task(closing)

    async def _end_membership(
        self, leave: bool | None, deadline: Deadline, is_failing: bool, calls_back: bool
    ) -> None:
        try:
            await super()._end_membership(leave, deadline, is_failing, calls_back)
        except asyncio.CancelledError:
            if calls_back:
                raise
            # asyncio.run cancels the task that closes a dropped consumer, and waits for it
            await super()._end_membership(leave, deadline, is_failing, calls_back)


def _current() -> Any:
    """Return the task that runs; in a callback of the loop, the loop; None without a loop."""
    loop = asyncio._get_running_loop()
    return None if loop is None else asyncio.current_task(loop) or loop


def _name_of(user: Any) -> str:
    return user.get_name() if isinstance(user, asyncio.Task) else "a callback of the event loop"


async def _until_shutdown(consumer: weakref.ref[AsyncConsumer]) -> AsyncGenerator[None, None]:
    """Close the consumer when the loop shuts down its asynchronous generators."""
    try:
        yield
    finally:
        found = consumer()
        if found is not None and not found._is_released and not found._runtime.is_forked:
            message = f"{found!r} is still open at the end of its loop; close() it"
            warnings.warn(message, ResourceWarning, source=found, stacklevel=2)
            found._is_farewell = True
            await found._close_on_loop(None, EXIT_SECONDS, is_failing=True, calls_back=False)
