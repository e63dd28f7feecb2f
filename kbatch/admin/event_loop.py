"""AsyncAdmin: administrates a cluster, for programs on an asyncio event loop."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from functools import wraps
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Self, final

from kbatch.admin.cluster import AsyncCluster
from kbatch.admin.configs import AsyncConfigs
from kbatch.admin.groups import AsyncGroups
from kbatch.admin.partitions import AsyncPartitions
from kbatch.admin.runtime import CLOSE_SECONDS, AdminClient, AdminRuntime, AnyPart
from kbatch.admin.security import AsyncAcls, AsyncQuotas, AsyncTokens, AsyncUsers
from kbatch.admin.topics import AsyncTopics
from kbatch.admin.transactions import AsyncTransactions
from kbatch.network.loop_lifetime import LoopLife
from kbatch.waiting.event_loop import TaskWaiter
from kbatch.waiting.methods import awaited, named_for_users

if TYPE_CHECKING:
    from types import TracebackType

    from kbatch.admin.base import Part

# By class of calls, that of an AsyncAdmin's: classes take long to make.
_counted_parts: dict[type[Part], type[Any]] = {}


@final
@named_for_users
class AsyncAdmin(LoopLife, AdminClient):
    """Administrates a cluster: Admin's methods, awaited. Any number of tasks may use it at once.

    It may be created anywhere, and belongs to the loop on which it is first used.
    """

    client_instance_id = awaited(AdminRuntime.client_instance_id, "_runtime")

    def _new_runtime(self) -> AdminRuntime:
        return AdminRuntime(
            self.config,
            new_waiter=TaskWaiter,
            compute=asyncio.to_thread,
            check_caller=weakref.WeakMethod(self._check_loop),
        )

    def _start_network(self) -> None:
        self._make_network(self._runtime.engine, _nothing)

    @property
    def topics(self) -> AsyncTopics:
        """Topics, their partitions, offsets, records and producers."""
        return self._part(AsyncTopics)

    @property
    def configs(self) -> AsyncConfigs:
        """Configurations of topics, brokers, groups and the like."""
        return self._part(AsyncConfigs)

    @property
    def groups(self) -> AsyncGroups:
        """Groups, their members and offsets."""
        return self._part(AsyncGroups)

    @property
    def partitions(self) -> AsyncPartitions:
        """Leaders, replicas and their moves, log directories."""
        return self._part(AsyncPartitions)

    @property
    def acls(self) -> AsyncAcls:
        """Rules of access."""
        return self._part(AsyncAcls)

    @property
    def quotas(self) -> AsyncQuotas:
        """Quotas of users, clients and addresses."""
        return self._part(AsyncQuotas)

    @property
    def users(self) -> AsyncUsers:
        """Users of SCRAM, and their passwords."""
        return self._part(AsyncUsers)

    @property
    def tokens(self) -> AsyncTokens:
        """Delegation tokens."""
        return self._part(AsyncTokens)

    @property
    def transactions(self) -> AsyncTransactions:
        """Transactions, and those that hang."""
        return self._part(AsyncTransactions)

    @property
    def cluster(self) -> AsyncCluster:
        """Nodes, features, and the quorum of controllers."""
        return self._part(AsyncCluster)

    async def close(self, timeout: float | None = CLOSE_SECONDS) -> None:
        """Wait for the calls of other tasks, and end all connections. New calls raise AdminClosedError, as do
        those that are under way after the time-out.

        Parameters
        ----------
        timeout : float or None
            Seconds for all of it; None waits for calls as long as it takes.
        """

        async def close() -> None:
            runtime = self._runtime
            deadline = runtime.deadline(timeout)
            runtime.is_closing = True
            await runtime.await_until(lambda: not runtime.calls, deadline)
            runtime.is_closed = True
            runtime.changed.notify()
            await runtime.end_telemetry(deadline)
            self._end(deadline)

        await self._close_on_loop(close)

    def _part(self, kind: type[AnyPart]) -> AnyPart:
        made = _counted_parts.get(kind) or _counted_parts.setdefault(kind, _counted(kind))
        part: AnyPart = made(self._runtime, self)
        return part

    async def _close_forgotten(self) -> None:
        await self.close()

    async def __aenter__(self) -> Self:
        self._runtime.check_here()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


def _counted(kind: type[AnyPart]) -> type[AnyPart]:
    """Return a part whose calls are counted until they end, so that `close` can wait for them."""
    calls = {
        name: _counted_call(member)
        for name, member in vars(kind).items()
        if not name.startswith("_") and iscoroutinefunction(member)
    }
    return type(kind.__name__, (kind,), {"__doc__": kind.__doc__, "__module__": kind.__module__, **calls})


def _counted_call(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    async def call(part: Any, /, *arguments: Any, **keywords: Any) -> Any:
        runtime: AdminRuntime = part._runtime
        runtime.begin_call()
        try:
            return await method(part, *arguments, **keywords)
        finally:
            runtime.end_call()

    return call


def _nothing(results: list[object]) -> None:
    """Take the results of an engine that has only requests: there are none."""
