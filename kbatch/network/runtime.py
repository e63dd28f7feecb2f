"""ClientRuntime: what the calls of every client share, its engine and network, and how they wait.

Theory of operation. Methods that wait are coroutines over the waiters that the client was made with
(`kbatch.waiting`): they block a thread, suspend a task, or let virtual time pass. All of them wait by
`await_until`.

No part of a runtime refers to the client, so the finalizer of a dropped client runs.
"""

from __future__ import annotations

import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from kbatch.core.client.backoff import NEVER_NS
from kbatch.errors import (
    ConfigError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    UnsupportedEndpointTypeError,
)
from kbatch.metrics import METRICS, Metric, MetricsRegistry
from kbatch.network.rounds import STOP_SECONDS
from kbatch.waiting.conditions import AwaitableEvent, Condition
from kbatch.waiting.deadline import Deadline

if TYPE_CHECKING:
    from uuid import UUID

    from kbatch.config import ClientConfig
    from kbatch.core.client.admin_requests import AdminRequest
    from kbatch.core.client.engine import ClientEngine
    from kbatch.waiting.protocols import Waiter

# The least time for the end of a network, also if the deadline is over.
LAST_ROUND_SECONDS = 1.0
# How long the last metrics may take (KIP-714).
LAST_PUSH_SECONDS = 1.0
# A waiting caller checks at this interval whether brokers accept the client and the network is alive.
LOOK_SECONDS = 0.5


class Network(Protocol):
    """Owns the engine: ThreadNetwork, LoopNetwork, or the network of a simulated world."""

    @property
    def wake(self) -> Callable[[], object]: ...
    @property
    def is_alive(self) -> bool: ...
    def stop(self, timeout: float, /) -> None: ...
    def when_over(self, function: Callable[[], object], /) -> None: ...


class ClientRuntime(ABC):
    """The engine of a client with its metrics and network. A subclass makes the engine.

    Parameters
    ----------
    config : ClientConfig
    new_waiter : callable
        Returns a Waiter for the caller.
    check_caller : WeakMethod or None
        Raises unless the caller may use the client.
    clock_ns : callable
        Returns the monotonic time in nanoseconds.
    metrics : tuple of Metric
        The table of its metrics.

    Attributes
    ----------
    changed : Condition
        Notified when the cluster or the state of the engine has changed.
    network : Network
    now_ns : callable
        `clock_ns`.
    is_closed, is_forked : bool
        True if the client takes no more calls; True if this process is a child of the client's.
    """

    engine: ClientEngine
    network: Network
    is_closed = True  # until there is something to close
    is_forked = False

    def __init__(
        self,
        config: ClientConfig,
        *,
        new_waiter: Callable[[], Waiter],
        check_caller: weakref.WeakMethod[Callable[[], object]] | None = None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        metrics: tuple[Metric, ...] = METRICS,
    ) -> None:
        self.changed = Condition(new_waiter)
        self._new_condition = partial(Condition, new_waiter, self.changed)
        self.new_event = partial(AwaitableEvent, new_waiter)
        self.now_ns = clock_ns
        self._check_caller = check_caller
        self.registry = MetricsRegistry(
            config.client_id,
            sample_window_ms=config.metrics_sample_window_ms,
            num_samples=config.metrics_num_samples,
            recording_level=config.metrics_recording_level,
            metrics=metrics,
        )

    # Its clock

    @abstractmethod
    def api_deadline(self, timeout: float | None = None) -> Deadline:
        """Return the deadline of a call, `timeout` seconds from now; None is the client's own for calls."""

    def deadline(self, seconds: float | None) -> Deadline:
        return Deadline(seconds, lambda: self.now_ns() / 1e9)

    def observe(self, sensor: str, value: float) -> None:
        """Record a value of a metric."""
        self.registry.record(sensor, value, self.now_ns() // 1_000_000)

    def push_metrics(self, config: ClientConfig) -> None:
        """Push metrics to brokers that want them, if the configuration says so. Raise ConfigError if what
        that takes is not installed.
        """
        if not config.enable_metrics_push:
            return
        try:
            from kbatch.telemetry import OtlpPayload, labels_of
        except ImportError as error:
            raise ConfigError(str(error)) from error
        engine = self.engine
        engine.push_metrics(OtlpPayload(self.registry, lambda: labels_of(config, engine.group_member_id)))

    async def client_instance_id(self, timeout: float | None = None) -> UUID:
        """Return what the cluster calls this client where it collects metrics (KIP-714). Any thread may call
        it.

        Parameters
        ----------
        timeout : float or None
            Seconds; None is default.api.timeout.ms, or a producer's max.block.ms.

        Raises
        ------
        IllegalStateError
            enable.metrics.push is false: then brokers do not name the client.
        UnsupportedVersionError
            The brokers collect no metrics (Kafka before 3.7).
        KafkaTimeoutError
            No broker has answered in time.
        """
        self.check_usable()
        deadline = self.api_deadline(timeout)
        telemetry = self.engine.telemetry
        if telemetry is None:
            raise IllegalStateError(
                "brokers name only clients that push metrics; set enable.metrics.push=true"
            )

        def is_named() -> bool:
            if telemetry.subscription is None and telemetry.refusal is not None:
                raise telemetry.refusal.marked()
            return telemetry.subscription is not None

        await self.await_answer(is_named, deadline, "client_instance_id")
        assert telemetry.subscription is not None
        return telemetry.subscription.client_instance_id

    async def end_telemetry(self, deadline: Deadline) -> None:
        """Push metrics a last time, within LAST_PUSH_SECONDS and until the deadline."""
        telemetry = self.engine.telemetry
        if telemetry is None or deadline.is_over or self.engine.fatal_error is not None:
            return
        self.engine.submit(telemetry.end)
        self.network.wake()
        await self.await_until(lambda: telemetry.is_over, deadline.within(LAST_PUSH_SECONDS))

    def end_network(self, deadline: Deadline | None = None) -> None:
        """End the network, and wait for that until about the deadline at most."""
        left = None if deadline is None else deadline.left
        self.network.stop(STOP_SECONDS if left is None else max(left, LAST_ROUND_SECONDS))

    # Whether it can be used

    @abstractmethod
    def closed_error(self) -> KafkaError:
        """Return the error of a call after the end of the client."""

    @abstractmethod
    def forked_error(self) -> KafkaError:
        """Return the error of a call in a child process."""

    def check_usable(self) -> None:
        self.check_here()
        if self.is_closed:
            raise self.closed_error()
        if (error := self.engine.fatal_error) is not None:
            raise error.marked()  # a copy: each raise has its own traceback

    def check_here(self) -> None:
        """Raise unless the caller may use the client."""
        self.check_not_forked()
        if self._check_caller is not None and (check_caller := self._check_caller()) is not None:
            check_caller()

    def check_not_forked(self) -> None:
        if self.is_forked:
            raise self.forked_error()

    def check_login(self, before: KafkaError | None) -> None:
        """Raise the error of the last failed login, if it is another than `before`."""
        error = self.engine.authentication_error
        if error is not None and error is not before:
            raise error.marked()

    # How its callers wait

    async def await_until(
        self,
        is_so: Callable[[], Any],
        deadline: Deadline,
        condition: Condition | None = None,
        *,
        request: Callable[[], object] = lambda: None,
        needs_network: bool = True,
        look_seconds: float = LOOK_SECONDS,
    ) -> bool:
        """Return True once `is_so()` is true; False if the deadline or the end of the network comes first.
        Its exceptions propagate.

        Parameters
        ----------
        is_so : callable
            Called after every change of `condition`.
        deadline : Deadline
        condition : Condition or None
            None for the changes of the engine.
        request : callable
            Called at first and every `look_seconds`: requests what is waited for.
        needs_network : bool
            False if `is_so()` becomes true without the network, too.
        """
        changed = self.changed if condition is None else condition
        while True:
            request()
            if deadline.is_over or (needs_network and not self.network.is_alive):
                return bool(is_so())
            if await changed.wait_until(is_so, deadline.within(look_seconds) if needs_network else deadline):
                return True

    async def await_answer(
        self,
        is_there: Callable[[], Any],
        deadline: Deadline,
        name: str,
        condition: Condition | None = None,
    ) -> None:
        """Return once `is_there()` is true; raise if the client fails or its brokers refuse it. The check is
        made after every change of the engine, or of a condition within these.

        Raises
        ------
        KafkaTimeoutError
            The deadline came first; its text begins with the call's `name`.
        """
        refused = self.engine.authentication_error  # whose login is tried again

        def is_answered() -> bool:
            if is_there():
                return True
            self.check_usable()
            self.check_login(refused)
            return False

        self.network.wake()
        if not await self.await_until(is_answered, deadline, condition):
            self.check_login(None)
            why = self.engine.last_connection_failure or "brokers are slow"
            raise KafkaTimeoutError(f"{name}() timed out: {why}")

    async def await_request(self, request: AdminRequest, deadline: Deadline) -> None:
        """Send a request, and return once each of its items has a result or an error, which is at the
        deadline at the latest. If the caller is interrupted, nothing is repeated any more.

        Raises
        ------
        KafkaError
            The client is closed, or brokers refuse its login.
        """
        self.check_usable()
        left = deadline.left
        request.deadline_ns = NEVER_NS if left is None else self.now_ns() + int(left * 1e9)
        ended = self._new_condition()  # of its own: the end of one of many calls wakes no other caller
        request.on_end = ended.notify
        refused = self.engine.authentication_error  # whose login is tried again

        def is_over() -> bool:
            if not request.is_done:
                self.check_usable()
                self.check_login(refused)
            return request.is_done

        self.engine.submit_request(request)
        self.network.wake()
        try:
            # without looks in between: the engine tells of failed logins and of its end, and ends the request
            # at its deadline
            await ended.wait_until(is_over, self.deadline(None))
        finally:
            if not request.is_done:
                self.engine.withdraw_request(request)

    async def await_answer_of(self, request: AdminRequest, deadline: Deadline) -> Any:
        """Return the result of a request with one item. Raise its error."""
        await self.await_request(request, deadline)
        if request.error is not None:
            raise request.error
        return request.answer

    async def await_brokers(self, deadline: Deadline, name: str) -> list[int]:
        """Return the ids of the brokers of the cluster, in order. Raise UnsupportedEndpointTypeError if this
        client asks controllers.
        """
        if self.engine.asks_controllers:
            raise UnsupportedEndpointTypeError(
                f"{name}: controllers do not tell the brokers; use an Admin with bootstrap.servers"
            )
        return await self.await_nodes(deadline, name)

    async def await_nodes(self, deadline: Deadline, name: str) -> list[int]:
        """Return the ids of the nodes that the client knows, in order: brokers, or controllers if it asks
        these.
        """
        self.check_usable()
        await self.await_answer(lambda: self.engine.snapshot.nodes, deadline, name)
        return sorted(self.engine.snapshot.nodes)
