"""AsyncAdmin: administrates a cluster, for programs on an asyncio event loop."""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING, Self, final

from kbatch.admin.cluster import AsyncCluster
from kbatch.admin.configs import AsyncConfigs
from kbatch.admin.groups import AsyncGroups
from kbatch.admin.partitions import AsyncPartitions
from kbatch.admin.runtime import CLOSE_SECONDS, AdminClient, AdminRuntime
from kbatch.admin.security import AsyncAcls, AsyncQuotas, AsyncTokens, AsyncUsers
from kbatch.admin.topics import AsyncTopics
from kbatch.admin.transactions import AsyncTransactions
from kbatch.network.loop_lifetime import LoopLife
from kbatch.waiting.event_loop import TaskWaiter

if TYPE_CHECKING:
    from types import TracebackType


@final
class AsyncAdmin(LoopLife, AdminClient):
    """Administrates a cluster: Admin's methods, awaited. Any number of tasks may use it at once.

    It may be created anywhere, and belongs to the loop on which it is first used.
    """

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
        return self._topics

    @property
    def configs(self) -> AsyncConfigs:
        """Configurations of topics, brokers, groups and the like."""
        return self._configs

    @property
    def groups(self) -> AsyncGroups:
        """Groups, their members and offsets."""
        return self._groups

    @property
    def partitions(self) -> AsyncPartitions:
        """Leaders, replicas and their moves, log directories."""
        return self._partitions

    @property
    def acls(self) -> AsyncAcls:
        """Rules of access."""
        return self._acls

    @property
    def quotas(self) -> AsyncQuotas:
        """Quotas of users, clients and addresses."""
        return self._quotas

    @property
    def users(self) -> AsyncUsers:
        """Users of SCRAM, and their passwords."""
        return self._users

    @property
    def tokens(self) -> AsyncTokens:
        """Delegation tokens."""
        return self._tokens

    @property
    def transactions(self) -> AsyncTransactions:
        """Transactions, and those that hang."""
        return self._transactions

    @property
    def cluster(self) -> AsyncCluster:
        """Nodes, features, and the quorum of controllers."""
        return self._cluster

    async def close(self, timeout: float | None = CLOSE_SECONDS) -> None:
        """End all connections; like Admin.close."""

        async def close() -> None:
            self._runtime.is_closed = True
            self._runtime.changed.notify()
            deadline = self._runtime.deadline(timeout)
            await self._runtime.end_telemetry(deadline)
            self._end(deadline)

        await self._close_on_loop(close)

    async def _close_forgotten(self) -> None:
        await self.close()

    async def __aenter__(self) -> Self:
        self._runtime.check_here()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


def _nothing(results: list[object]) -> None:
    """Take the results of an engine that has only requests: there are none."""
