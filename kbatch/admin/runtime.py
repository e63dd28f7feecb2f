"""AdminRuntime: what the calls of an Admin share, its engine and how they wait for it; and AdminClient, the
base of both."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import TYPE_CHECKING, TypeVar, Unpack, final

from kbatch.admin.base import Part
from kbatch.config import AdminConfig
from kbatch.core.admin.engine import AdminEngine
from kbatch.errors import AdminClosedError, ForkedAdminError, KafkaError
from kbatch.metrics import ADMIN_METRICS
from kbatch.network.lifetime import OpenClient
from kbatch.network.runtime import ClientRuntime
from kbatch.timeouts import checked_seconds

if TYPE_CHECKING:
    from kbatch.config.keywords import AdminKeywords
    from kbatch.waiting.deadline import Deadline
    from kbatch.waiting.protocols import Waiter

AnyPart = TypeVar("AnyPart", bound=Part)

_client_numbers = itertools.count(1)
# The time that close() has for calls that go on.
CLOSE_SECONDS = 30.0


@final
class AdminRuntime(ClientRuntime):
    """The engine of an Admin.

    Parameters
    ----------
    config : AdminConfig
    new_waiter, check_caller
        Parameters of ClientRuntime.
    compute : callable
        Awaits the result of a function that takes milliseconds of the processor.

    Attributes
    ----------
    is_closing : bool
        True if no call may begin (`begin_call`).
    calls : int
        How many have begun, and have not ended.
    """

    engine: AdminEngine
    reads_committed = False
    is_closing = False

    def __init__(
        self,
        config: AdminConfig,
        *,
        new_waiter: Callable[[], Waiter],
        compute: Callable[[Callable[[], bytes]], Awaitable[bytes]],
        check_caller: weakref.WeakMethod[Callable[[], object]] | None = None,
    ) -> None:
        super().__init__(config, new_waiter=new_waiter, check_caller=check_caller, metrics=ADMIN_METRICS)
        self.config = config
        self.compute = compute
        self.calls = 0
        self.engine = AdminEngine(
            config,
            random=Random(),
            registry=self.registry,
            now_ns=self.now_ns(),
            on_change=self.changed.notify,
        )

    def closed_error(self) -> KafkaError:
        return AdminClosedError("the admin is closed; create another")

    def forked_error(self) -> KafkaError:
        return ForkedAdminError(
            "the admin belongs to the parent process and has no threads in this one; create another in the "
            "child process"
        )

    def check_usable(self) -> None:
        super().check_usable()
        if (error := self.engine.wrong_nodes) is not None:
            raise error.marked()

    # Calls that close() waits for

    def begin_call(self) -> None:
        """Count a call. Raise AdminClosedError if the client is closing."""
        if self.is_closing:
            raise self.closed_error()
        self.calls += 1

    def end_call(self) -> None:
        self.calls -= 1
        if self.is_closing:
            self.changed.notify()

    def api_deadline(self, timeout: float | None = None) -> Deadline:
        """Return the deadline `timeout` seconds from now; None is default.api.timeout.ms."""
        remedy = "leave it out for default.api.timeout.ms"
        seconds = None if timeout is None else checked_seconds(timeout, remedy=remedy)
        return self.deadline(self.config.default_api_timeout_ms / 1000 if seconds is None else seconds)


class AdminClient(OpenClient):
    """Base of Admin and AsyncAdmin."""

    config: AdminConfig
    _runtime: AdminRuntime

    def __init__(
        self,
        settings: AdminConfig | Mapping[str, object] | None = None,
        /,
        **keywords: Unpack[AdminKeywords],
    ) -> None:
        """Start an admin with this configuration, which its attribute `config` then has.

        Parameters
        ----------
        settings : AdminConfig or Mapping[str, object], optional
            Configuration keys with dots, as docs/configuration.md lists them.
        **keywords
            The same keys with underscores.

        Raises
        ------
        ConfigError
            Keys or values are unknown, invalid, contradictory, or for clients of another kind.
        """
        given = settings.settings() if isinstance(settings, AdminConfig) else settings
        self.config = AdminConfig(given, next(_client_numbers), **keywords)
        self._runtime = self._new_runtime()
        self._runtime.push_metrics(self.config)
        self._start_network()
        self._opened()

    def _part(self, kind: type[AnyPart]) -> AnyPart:
        """Return the calls about one subject."""
        return kind(self._runtime, self)

    def _new_runtime(self) -> AdminRuntime:
        raise NotImplementedError

    def _start_network(self) -> None:
        raise NotImplementedError
