"""The login thread of a client: it makes the tokens of SASL, which may take long.

Theory of operation. The engine's owner never waits for a token: it hands `Authenticate` over, and the result
comes back by `report`. One thread serves all connections of a client, so that they share one mechanism, with
its keys, tickets and bearer tokens. Between the steps of exchanges the thread refreshes those before they
expire. It starts with the first step.

A mechanism may run coroutines of users: on the client's event loop if it has one, else on a loop of the login
thread.

A user's callback may never return. `stop` does not wait for it: the thread is a daemon, and ends after it. So
does an exchange that was dropped meanwhile: its result is not reported. A forked child has no login thread,
and waits for none.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, final

from kbatch._native.io.threads import ClientThread
from kbatch.core.client.actions import Authenticate, EndAuthentication
from kbatch.errors import AuthenticationError, KafkaError, NetworkError
from kbatch.logs import ClientLogger
from kbatch.sasl import mechanism_of
from kbatch.unpatched import real_threading

if TYPE_CHECKING:
    from kbatch.config import ClientConfig
    from kbatch.sasl import Exchange, Mechanism

logger = ClientLogger(__name__)

# The longest wait: a lock takes no number of seconds above 2**63 nanoseconds.
_LONGEST_NS = 3_600_000_000_000

Result = bytes | KafkaError | None


def login_of(
    config: ClientConfig,
    handle_token: Callable[[int, Result, int], object],
    post: Callable[[Callable[[], object]], object],
    event_loop: Callable[[], asyncio.AbstractEventLoop | None],
) -> Login:
    """Return the login of a client.

    Parameters
    ----------
    config : ClientConfig
    handle_token : callable
        The engine's, which gets a connection's id, the result and the time.
    post : callable
        Lets the engine's owner call a function.
    event_loop : callable
        Returns the loop that runs coroutines of users; None for a loop of the login thread.

    Raises
    ------
    ConfigError
        For a mechanism that cannot be used.
    """
    coroutines = Coroutines(event_loop)

    def handle(connection_id: int, result: Result) -> None:
        handle_token(connection_id, result, time.monotonic_ns())

    def report(connection_id: int, result: Result) -> None:
        with suppress(RuntimeError):  # the event loop is closed
            post(partial(handle, connection_id, result))

    mechanism = mechanism_of(config, coroutines.run)
    return Login(mechanism, coroutines, name=f"kbatch-login-{config.client_id}", report=report)


class _Slot:
    """Holds the exchange of a connection."""

    __slots__ = ("exchange",)

    def __init__(self) -> None:
        self.exchange: Exchange | None = None


@final
class Login:
    """Performs the exchanges of one client.

    Parameters
    ----------
    mechanism : Mechanism
    coroutines : Coroutines
        The coroutines of the mechanism, which `stop` cancels.
    name : str
        The thread's name.
    report : callable
        Gets a connection's id and its token, None at the end of its exchange, or the error; on the login
        thread.
    """

    def __init__(
        self,
        mechanism: Mechanism,
        coroutines: Coroutines,
        *,
        name: str,
        report: Callable[[int, Result], object],
    ) -> None:
        self._mechanism = mechanism
        self._coroutines = coroutines
        self._name = name
        self._report = report
        self._changed = real_threading().Condition()
        self._steps: dict[int, Authenticate] = {}  # oldest first
        self._slots: dict[int, _Slot] = {}
        self._thread: ClientThread | None = None
        self._is_stopping = False
        self._refreshes = True

    # For the owner's thread

    def perform(self, action: Authenticate) -> None:
        """Schedule the making of a token on the thread."""
        with self._changed:
            if action.challenge is None:
                self._slots[action.connection_id] = _Slot()
            self._steps[action.connection_id] = action
            self._changed.notify()
        if self._thread is None:
            thread = ClientThread(self._run, self._name)
            try:
                thread.start()
            except RuntimeError as error:  # no new threads while the interpreter ends
                self._report(action.connection_id, NetworkError(f"there is no thread for the login: {error}"))
            else:
                self._thread = thread

    def end(self, action: EndAuthentication) -> None:
        """Drop the exchange of a connection."""
        with self._changed:
            self._steps.pop(action.connection_id, None)
            self._slots.pop(action.connection_id, None)

    def stop(self) -> None:
        """End the thread after its step, without waiting for it."""
        with self._changed:
            self._is_stopping = True
            self._steps.clear()
            self._slots.clear()
            self._changed.notify()
        self._coroutines.cancel()
        self._mechanism.close()

    # The thread

    def _run(self) -> None:
        try:
            while not self._is_stopping:
                self._round()
        finally:
            self._coroutines.close()

    def _round(self) -> None:
        """Make a token, or refresh the credentials."""
        with self._changed:
            if not self._steps and not self._is_stopping:
                self._changed.wait(self._refresh_delay_ns() / 1e9)
            action = next(iter(self._steps.values()), None)
            slot = None
            if action is not None:
                del self._steps[action.connection_id]
                slot = self._slots.get(action.connection_id)
        if action is not None and slot is not None:
            self._step(action, slot)
        elif not self._is_stopping and not self._refresh_delay_ns():
            self._refresh()

    def _refresh_delay_ns(self) -> int:
        if not self._refreshes:
            return _LONGEST_NS
        return min(max(self._mechanism.refresh_deadline_ns() - time.monotonic_ns(), 0), _LONGEST_NS)

    def _refresh(self) -> None:
        try:
            self._mechanism.refresh()
        except BaseException:
            self._refreshes = False  # exchanges still get credentials
            logger.exception("%s: a defect ends the refreshing of credentials", self._name)

    def _step(self, action: Authenticate, slot: _Slot) -> None:
        connection_id = action.connection_id
        result: Result
        try:
            if slot.exchange is None:
                slot.exchange = self._mechanism.exchange(action.host)
            result = slot.exchange.step(action.challenge)
        except KafkaError as error:
            result = error
        except BaseException as error:  # whatever a user's callback may raise, the thread goes on
            result = AuthenticationError(f"the login failed with {type(error).__name__}: {error}")
            result.__cause__ = error
        with self._changed:
            is_wanted = self._slots.get(connection_id) is slot
            if is_wanted and not isinstance(result, bytes):
                del self._slots[connection_id]
        if is_wanted:
            self._report(connection_id, result)


@final
class Coroutines:
    """Runs coroutines for the login thread, which waits for their results.

    Parameters
    ----------
    event_loop : callable
        Returns the loop on which they run; None for a loop of the login thread.
    """

    def __init__(self, event_loop: Callable[[], asyncio.AbstractEventLoop | None]) -> None:
        self._event_loop = event_loop
        self._own_loop: asyncio.AbstractEventLoop | None = None
        self._lock = real_threading().Lock()
        self._cancel: Callable[[], object] = lambda: None  # the running one
        self._is_cancelled = False

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Return the coroutine's result."""
        loop = self._event_loop()
        if loop is not None:
            return self._begin(coroutine, partial(asyncio.run_coroutine_threadsafe, loop=loop)).result()
        if self._own_loop is None:
            self._own_loop = asyncio.new_event_loop()
        own = self._own_loop
        task = self._begin(coroutine, own.create_task, own.call_soon_threadsafe)
        return own.run_until_complete(task)

    def _begin(
        self,
        coroutine: Coroutine[Any, Any, Any],
        start: Callable[[Coroutine[Any, Any, Any]], Any],
        call: Callable[[Callable[[], object]], object] = lambda function: function(),
    ) -> Any:
        """Start a coroutine; `call(function)` lets `function` cancel it."""
        with self._lock:
            try:
                if self._is_cancelled:
                    raise asyncio.CancelledError("the client is closed")
                future = start(coroutine)
            except BaseException:  # the loop is closed
                coroutine.close()
                raise
            self._cancel = partial(call, future.cancel)
            return future

    def cancel(self) -> None:
        """Cancel the running coroutine, and those to come."""
        with self._lock:
            self._is_cancelled = True
            with suppress(RuntimeError):  # its loop is closed
                self._cancel()

    def close(self) -> None:
        """Close the loop of the login thread."""
        if self._own_loop is not None:
            self._own_loop.close()
