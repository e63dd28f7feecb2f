"""AsyncConsumer and AsyncShareConsumer: the consumers for programs on an asyncio event loop.

Theory of operation. Everything happens on the thread of one loop, the one on which the consumer is first
used; only workers decode on others. LoopNetwork drives the engine between the turns of the program's own
tasks. A poll gives them a turn, at the latest after some records or some time (QuickPolls): otherwise a loop
over what was fetched would keep them, and the network, from running.

Whatever a poll awaits, it awaits before it takes records. So a cancelled poll has taken nothing, and its
records come with the next one.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack, final

from kbatch.consumer.base import ConsumerBase
from kbatch.consumer.group_member import GroupMember
from kbatch.consumer.lifetime import CLOSE_SECONDS, EXIT_SECONDS, FORGOTTEN, Ending, MemberClient
from kbatch.consumer.process.options import ProcessOptions, ProcessReport, settings_of
from kbatch.consumer.process.processing import Processing
from kbatch.consumer.process.workers import TaskWorkers
from kbatch.consumer.runtime import ReaderRuntime
from kbatch.consumer.share import ShareConsumerBase
from kbatch.network.loop_lifetime import LoopLife
from kbatch.typed import K, V
from kbatch.waiting.event_loop import TaskWaiter
from kbatch.waiting.methods import awaited, named_for_users

if TYPE_CHECKING:
    from kbatch._native.codec.record import ConsumerRecord
    from kbatch.consumer.polled import Polled
    from kbatch.records import ShareRecord
    from kbatch.waiting.deadline import Deadline

# Records that a program gets before other tasks and the network run.
RECORDS_AT_A_TIME = 256


class LoopClient(LoopLife, MemberClient):
    """What both consumers are on an event loop."""

    client_instance_id = awaited(ReaderRuntime.client_instance_id, "_runtime")

    def _new_runtime(self) -> ReaderRuntime:
        runtime = ReaderRuntime(
            self.config,
            "consumer",
            new_waiter=TaskWaiter,
            check_caller=weakref.WeakMethod(self._check_loop),
            engine_type=self._engine_type,
        )
        self._user = runtime.sole_user(_current, _name_of)
        return runtime

    def _start_network(self) -> None:
        self._make_network(self._runtime.engine, self._deliver())
        self._network.use_loans(self._runtime.engine)

    async def _give_way(self) -> None:
        """Suspend the task once, so that the network and other tasks run."""
        self._runtime.check_here()
        await asyncio.sleep(0)

    # Its end

    async def _leave_on_loop(self, timeout: float | None, ending: Ending) -> None:
        await self._close_on_loop(partial(self._close, timeout, ending))

    async def _close_forgotten(self) -> None:
        await self._leave_on_loop(EXIT_SECONDS, FORGOTTEN)

    async def __aenter__(self) -> Self:
        self._runtime.check_here()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._leave_on_loop(CLOSE_SECONDS, Ending(is_failing=kind is not None))

    async def _end_membership(self, deadline: Deadline, ending: Ending) -> None:
        try:
            await super()._end_membership(deadline, ending)  # type: ignore[safe-super]
        except asyncio.CancelledError:
            if ending.calls_back:
                raise
            # asyncio.run cancels the task that closes a dropped consumer, and waits for it
            await super()._end_membership(deadline, ending)  # type: ignore[safe-super]


@named_for_users
class AsyncConsumer(LoopClient, ConsumerBase[K, V]):
    """Reads records from Kafka on an asyncio event loop: Consumer's methods, awaited. Those that never wait
    are plain: `subscribe`, `subscription`, `assign`, `assignment`, `seek`, `seek_to_beginning`,
    `seek_to_end`, `pause`, `resume`, `paused`, `commit_async`, `group_metadata`, `alive`, `metrics`. One task
    uses it at a time.

    Callbacks of `subscribe` may be coroutine functions, which polls await. They run in a task of their own,
    so the cancellation of a poll does not reach them: the next poll goes on waiting for them.

    It may be created anywhere, and belongs to the loop on which it is first used. `async for` gives record
    after record, and never ends.
    """

    _new_task = staticmethod(asyncio.ensure_future)
    _is_async = True

    async def poll(self, timeout: float | None = None, max_records: int | None = None) -> Polled[K, V]:
        self._runtime.check_here()
        polled: Polled[K, V] | None = await self._quick.poll_in_task(timeout, max_records)
        if polled is None:
            timeout = self._quick.left_of(timeout)
            await self._give_way()
            polled = await self._poll(timeout, max_records)
        return polled

    poll.__doc__ = ConsumerBase._poll.__doc__
    poll_table = awaited(ConsumerBase._poll_table, before=LoopClient._give_way)
    unsubscribe = awaited(GroupMember.unsubscribe, "_member")
    commit = awaited(GroupMember.commit, "_member")
    committed = awaited(GroupMember.committed, "_member")
    position = ConsumerBase._position
    lag = ConsumerBase._lag
    topics = awaited(ReaderRuntime.topics, "_runtime")
    partitions_for = ConsumerBase._partitions_for
    beginning_offsets = ConsumerBase._beginning_offsets
    end_offsets = ConsumerBase._end_offsets
    offsets_for_times = ConsumerBase._offsets_for_times

    def _start_network(self) -> None:
        super()._start_network()
        self._quick = self._quick_polls(
            new_waiter=TaskWaiter,
            deadline=self._runtime.deadline,
            give_way=partial(asyncio.sleep, 0),
            turn_records=RECORDS_AT_A_TIME,
        )

    def __aiter__(self) -> AsyncIterator[ConsumerRecord[K, V]]:
        """Iterate over the records of all polls from now on, without an end."""
        return self._records()

    async def until_end(self) -> AsyncIterator[ConsumerRecord[K, V]]:
        """Iterate over the records up to where each log ends when the iteration begins; like
        Consumer.until_end.
        """
        await self._begin_until_end()
        async for record in self._records(is_bounded=True):
            yield record

    async def _records(self, *, is_bounded: bool = False) -> AsyncIterator[ConsumerRecord[K, V]]:
        while True:
            self._runtime.check_here()
            quick = None if is_bounded else await self._quick.next_iterator_in_task()
            iterator: Iterator[ConsumerRecord[K, V]] | None = quick
            if iterator is None:
                await self._give_way()
                iterator = await self._next_iterator(RECORDS_AT_A_TIME, is_bounded=is_bounded)
            if iterator is None:
                return
            for record in iterator:
                yield record

    async def process(
        self,
        function: Callable[[Any], Awaitable[object] | object],
        *,
        tasks: int = 100,
        **options: Unpack[ProcessOptions],
    ) -> ProcessReport:
        """Call a function for each record, in up to so many tasks at a time, and commit what is finished
        without a gap, until `close`, an error, or the cancellation of this call; like Consumer.process.

        The function, and a callable `on_failure`, may be coroutine functions. If the call is cancelled, tasks
        that run may end within `revoke_timeout`; after that, and after a second cancellation, they are
        cancelled, too. So are those whose partitions are given up.
        """
        settings = settings_of("tasks", tasks, options)
        settings.check_kind("an AsyncConsumer", is_async=True)
        self._runtime.check_here()
        return await Processing(self, function, settings, tasks, TaskWorkers).run()

    async def close(
        self, leave: bool | None = None, timeout: float | None = CLOSE_SECONDS, *, drain: bool = False
    ) -> None:
        """Commit, leave the group, and end all connections and threads; like Consumer.close."""
        await self._leave_on_loop(timeout, Ending(leave, drains=drain))


@final
@named_for_users
class AsyncShareConsumer(LoopClient, ShareConsumerBase[K, V]):
    """Reads records as a member of a share group, on an asyncio event loop: ShareConsumer's methods, awaited.
    Those that never wait are plain: `subscribe`, `subscription`, `acknowledge`, `commit_async`, `metrics`.
    One task uses it at a time.

    It may be created anywhere, and belongs to the loop on which it is first used.
    """

    _is_async = True

    if TYPE_CHECKING:  # K and V are lost in a decorator

        async def poll(
            self, timeout: float | None = None, max_records: int | None = None
        ) -> list[ShareRecord[K, V]]: ...

    else:
        poll = awaited(ShareConsumerBase._poll, before=LoopClient._give_way)
    unsubscribe = ShareConsumerBase._unsubscribe
    commit = ShareConsumerBase._commit

    async def close(self, timeout: float | None = CLOSE_SECONDS) -> None:
        """Send acknowledgements, leave the group, and end all connections; like ShareConsumer.close."""
        await self._leave_on_loop(timeout, Ending())


def _current() -> Any:
    """Return the task that runs; in a callback of the loop, the loop; None without a loop."""
    loop = asyncio._get_running_loop()
    return None if loop is None else asyncio.current_task(loop) or loop


def _name_of(user: Any) -> str:
    return user.get_name() if isinstance(user, asyncio.Task) else "a callback of the event loop"
