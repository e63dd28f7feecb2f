"""ReadingClient: how a client that reads ends, also if it was dropped, forked or forgotten.

No thread and no event loop refers to a client itself. So one that is dropped without close() is finalized
(`__del__`), warns with a ResourceWarning, and closes. So does one that is still open when the interpreter
exits, which would stop its threads anywhere. In a forked child the client belongs to the parent process, and
its methods raise ForkedConsumerError.
"""

from __future__ import annotations

import atexit
import os
import warnings
import weakref
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Any, SupportsIndex

from kbatch.config import ConsumerConfig
from kbatch.consumer.runtime import ReaderRuntime

_open_clients: weakref.WeakSet[ReadingClient] = weakref.WeakSet()
# They keep what `__del__` needs: the finalizers of a collected cycle run in any order, those of files too.
_open_networks: set[Any] = set()


class ReadingClient(ABC):
    """Base of TopicReader, Consumer and AsyncConsumer. A subclass sets `_runtime` and `config`."""

    _is_released = True  # until there is something to close
    _runtime: ReaderRuntime
    config: ConsumerConfig

    def _opened(self) -> None:
        """Note that there is something to close from now on."""
        self._runtime.is_closed = self._is_released = False
        _open_networks.add(self._runtime.network)
        _open_clients.add(self)

    @property
    def is_open(self) -> bool:
        """True until `close`."""
        return not self._runtime.is_closed

    def _release(self) -> None:
        """End the network, after the client was closed to calls."""
        self._is_released = self._runtime.is_closed = True
        self._runtime.changed.notify()
        self._runtime.network.stop()
        _open_clients.discard(self)
        _open_networks.discard(self._runtime.network)

    @abstractmethod
    def _close_elsewhere(self) -> None:
        """Close a client that was dropped, on any thread, without waiting."""

    @abstractmethod
    def _close_at_exit(self) -> None:
        """Close when the interpreter exits."""

    def __del__(self) -> None:
        if self._is_released or self._runtime.is_forked:
            return
        warnings.warn(f"{self!r} was dropped without close()", ResourceWarning, source=self, stacklevel=2)
        with suppress(RuntimeError):  # no new threads: the interpreter ends, which closes it
            self._close_elsewhere()

    def __reduce_ex__(self, protocol: SupportsIndex) -> str:
        raise TypeError(
            f"{self!r} cannot be copied or pickled, because its threads and connections cannot; pass its "
            f"settings on and make another there"
        )

    def __repr__(self) -> str:
        state = "forked" if self._runtime.is_forked else "closed" if self._runtime.is_closed else "open"
        return f"<{type(self).__name__} {self.config.client_id}, {state}>"


def _close_all() -> None:
    for client in list(_open_clients):
        client._close_at_exit()


def _disown_all() -> None:
    for client in list(_open_clients):
        client._runtime.is_forked = True
    _open_clients.clear()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)
