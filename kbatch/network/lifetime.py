"""OpenClient: how clients without batches begin, and how they end, also if they were dropped, forked or
forgotten.

No thread and no event loop refers to a client itself. So one that is dropped without close() is finalized
(`__del__`), warns with a ResourceWarning, and closes. So does one that is still open when the interpreter
exits, which would stop its threads anywhere. In a forked child the client belongs to the parent process, and
its methods raise.
"""

from __future__ import annotations

import atexit
import os
import warnings
import weakref
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Any, SupportsIndex

if TYPE_CHECKING:
    from kbatch.config import ClientConfig
    from kbatch.metrics import MetricName
    from kbatch.network.runtime import ClientRuntime
    from kbatch.waiting.deadline import Deadline

_open_clients: weakref.WeakSet[OpenClient] = weakref.WeakSet()
# They keep what `__del__` needs: the finalizers of a collected cycle run in any order, those of files too.
_open_networks: set[Any] = set()


class OpenClient(ABC):
    """Base of the clients that have a configuration, a runtime, and an end."""

    config: ClientConfig
    _runtime: ClientRuntime
    _is_released = True  # until there is something to close

    # What the subclasses add

    @abstractmethod
    def _close_elsewhere(self) -> None:
        """Close a client that was dropped, on any thread, without waiting."""

    @abstractmethod
    def _close_at_exit(self) -> None:
        """Close when the interpreter exits."""

    # Its life

    def _opened(self) -> None:
        """Register the client: from now on there is something to close."""
        self._runtime.is_closed = self._is_released = False
        _open_networks.add(self._runtime.network)
        _open_clients.add(self)

    @property
    def is_open(self) -> bool:
        """True until `close`."""
        return not self._runtime.is_closed

    def metrics(self) -> dict[MetricName, float]:
        """Return every metric, under the names of Kafka's Java client (docs/metrics.md). Any thread may call
        it.
        """
        self._runtime.check_not_forked()
        return self._runtime.registry.snapshot(self._runtime.now_ns() // 1_000_000)

    def _release(self, deadline: Deadline | None = None) -> None:
        """End the network, after the client was closed to calls. If that is interrupted, it is repeated."""
        self._runtime.is_closed = True
        self._runtime.end_network(deadline)
        _open_clients.discard(self)
        _open_networks.discard(self._runtime.network)
        self._is_released = True
        self._runtime.changed.notify()

    def _end(self, deadline: Deadline | None = None) -> None:
        """End the connections and threads, whatever has been done before."""
        self._release(deadline)

    def _disowned(self) -> None:
        """Record that this process is a child of the client's."""
        self._runtime.is_forked = True

    def __del__(self) -> None:
        if self._is_released or self._runtime.is_forked:
            return
        warnings.warn(f"{self!r} was dropped without close()", ResourceWarning, source=self, stacklevel=2)
        with suppress(RuntimeError):  # no new threads: the interpreter ends, which closes it
            self._close_elsewhere()

    def __reduce_ex__(self, protocol: SupportsIndex) -> str:
        raise TypeError(
            f"{self!r} cannot be copied or pickled, because its threads and connections cannot; pass its "
            f"settings on and create another there"
        )

    def __repr__(self) -> str:
        if "_runtime" not in vars(self):  # its constructor has raised
            return f"<{type(self).__name__}, never opened>"
        state = "forked" if self._runtime.is_forked else "closed" if self._runtime.is_closed else "open"
        return f"<{type(self).__name__} {self.config.client_id}, {state}>"


def _close_all() -> None:
    for client in list(_open_clients):
        client._close_at_exit()


def _disown_all() -> None:
    for client in list(_open_clients):
        client._disowned()
    _open_clients.clear()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)
