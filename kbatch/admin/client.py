"""Admin: administrates a cluster, for programs with threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Self, final

from kbatch._native.io.interrupts import at_once
from kbatch._native.io.threads import ClientThread
from kbatch.admin.cluster import AsyncCluster
from kbatch.admin.configs import AsyncConfigs
from kbatch.admin.groups import AsyncGroups
from kbatch.admin.partitions import AsyncPartitions
from kbatch.admin.runtime import CLOSE_SECONDS, AdminClient, AdminRuntime
from kbatch.admin.security import AsyncAcls, AsyncQuotas, AsyncTokens, AsyncUsers
from kbatch.admin.threads import (
    Acls,
    Cluster,
    Configs,
    Groups,
    Partitions,
    Quotas,
    Tokens,
    Topics,
    Transactions,
    Users,
)
from kbatch.admin.topics import AsyncTopics
from kbatch.admin.transactions import AsyncTransactions
from kbatch.network import ThreadNetwork
from kbatch.waiting.methods import blocking, named_for_users
from kbatch.waiting.threads import ThreadWaiter

if TYPE_CHECKING:
    from types import TracebackType


@final
@named_for_users
class Admin(AdminClient):
    """Administrates a cluster. Any number of threads may use it.

    A call returns when it is done, and raises if it is not: nothing goes on unseen. Its parts are `topics`,
    `configs`, `partitions`, `groups`, `acls`, `quotas`, `users`, `tokens`, `transactions` and `cluster`.
    """

    client_instance_id = blocking(AdminRuntime.client_instance_id, "_runtime")

    def _new_runtime(self) -> AdminRuntime:
        return AdminRuntime(self.config, new_waiter=ThreadWaiter, compute=_compute)

    def _start_network(self) -> None:
        network = self._runtime.network = ThreadNetwork(
            self._runtime.engine,
            config=self.config,
            deliver=_nothing,
            name=f"kbatch-network-{self.config.client_id}",
            metrics=self._runtime.registry,
        )
        network.start()

    @property
    def topics(self) -> Topics:
        """Topics, their partitions, offsets, records and producers."""
        return Topics(self._part(AsyncTopics))

    @property
    def configs(self) -> Configs:
        """Configurations of topics, brokers, groups and the like."""
        return Configs(self._part(AsyncConfigs))

    @property
    def groups(self) -> Groups:
        """Groups, their members and offsets."""
        return Groups(self._part(AsyncGroups))

    @property
    def partitions(self) -> Partitions:
        """Leaders, replicas and their moves, log directories."""
        return Partitions(self._part(AsyncPartitions))

    @property
    def acls(self) -> Acls:
        """Rules of access."""
        return Acls(self._part(AsyncAcls))

    @property
    def quotas(self) -> Quotas:
        """Quotas of users, clients and addresses."""
        return Quotas(self._part(AsyncQuotas))

    @property
    def users(self) -> Users:
        """Users of SCRAM, and their passwords."""
        return Users(self._part(AsyncUsers))

    @property
    def tokens(self) -> Tokens:
        """Delegation tokens."""
        return Tokens(self._part(AsyncTokens))

    @property
    def transactions(self) -> Transactions:
        """Transactions, and those that hang."""
        return Transactions(self._part(AsyncTransactions))

    @property
    def cluster(self) -> Cluster:
        """Nodes, features, and the quorum of controllers."""
        return Cluster(self._part(AsyncCluster))

    def close(self, timeout: float | None = CLOSE_SECONDS) -> None:
        """End all connections and threads. Calls that go on in other threads raise AdminClosedError. A second
        call has no effect. Any thread may call it.

        Parameters
        ----------
        timeout : float or None
            Seconds for all of it.
        """
        if self._runtime.is_forked or self._is_released:
            return
        self._runtime.is_closed = True
        self._runtime.changed.notify()
        deadline = self._runtime.deadline(timeout)
        at_once(self._runtime.end_telemetry, deadline)
        self._release(deadline)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _close_at_exit(self) -> None:
        self.close()

    def _close_elsewhere(self) -> None:
        # the collector may run on any thread, even the network's, which cannot wait for its own end
        ClientThread(self.close, "kbatch-closer", daemon=False).start()


async def _compute(function: Callable[[], bytes]) -> bytes:
    """Compute here: the thread has nothing else to do."""
    return function()


def _nothing(results: list[object]) -> None:
    """Take the results of an engine that has only requests: there are none."""
