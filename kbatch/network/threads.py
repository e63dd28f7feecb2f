"""ThreadNetwork: the sender's thread, which owns the engine's sockets and its clock.

Theory of operation. A round of the loop waits for sockets, reports events to the engine, and lets it run
(EngineRounds). Nothing else in it waits or computes for long: other threads resolve names, seal large batches
and take the steps of TLS handshakes, and their results come back through an inbox. An exception of the engine
ends the thread.

A caller changes the engine's state first and then calls `wake`; the loop clears the waker before the engine
runs. So no change is missed, and one that is seen early costs one needless round.
"""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from selectors import EVENT_READ, EVENT_WRITE
from typing import TYPE_CHECKING, Any, final

from kbatch._native.io.threads import ClientThread
from kbatch._native.send.lane import CAN_WAIT
from kbatch.config import ClientConfig
from kbatch.core.client.actions import Address, Close, Connect, Resolve, Write, release
from kbatch.errors import IllegalStateError, NetworkError
from kbatch.logs import CLOSE_SECONDS, ClientLogger, flush
from kbatch.network.channels import Channel, PlainChannel
from kbatch.network.driver import RECEIVE_BYTES, EngineDriver, distinct, peer_of, without_address
from kbatch.network.loan_driver import LendingEngine
from kbatch.network.rounds import STOP_SECONDS, DrivenEngine
from kbatch.network.workers import Workers
from kbatch.unpatched import real_names, real_selectors

if TYPE_CHECKING:
    from selectors import SelectorKey

    from kbatch._native.batch.delivery_queue import DeliveryQueue
    from kbatch.network.tls_channel import TlsChannel

logger = ClientLogger(__name__)

_RESOLVERS = 4
# More would take the steps of many handshakes faster than one thread begins them.
_HANDSHAKERS = 2


@final
class ThreadNetwork(EngineDriver):
    """Drives an engine on its own thread, from `start` to `stop`. It has the parameters of EngineDriver."""

    def __init__(self, engine: DrivenEngine, *, config: ClientConfig, name: str, **options: Any) -> None:
        super().__init__(engine, config=config, name=name, **options)
        self._selector = real_selectors().DefaultSelector()
        self._selector.register(self._waker, EVENT_READ)
        self._channels: dict[int, Channel] = {}
        self._space = memoryview(bytearray(RECEIVE_BYTES))
        self._scratch = memoryview(bytearray(0 if self._tls is None else RECEIVE_BYTES))
        self._inbox: deque[Callable[[], object]] = deque()  # from helper threads
        self._resolvers = Workers(f"{name}-resolver", _RESOLVERS)
        self._handshakers = Workers(f"{name}-handshaker", _HANDSHAKERS)
        self._is_stopping = self._has_ended = False
        self._lending: LendingEngine | None = None
        self._at_end: deque[Callable[[], object]] = deque()
        self._is_over = False  # nothing of the engine or its connections is used any more
        self._thread = ClientThread(self._run, name)

    # For any thread

    @property
    def is_alive(self) -> bool:
        """True if the thread runs.

        A signal handler that raises inside Thread.is_alive of CPython 3.11 makes that false for good.
        """
        return self._thread.is_started and not self._has_ended

    def use_loans(
        self, lending: LendingEngine, queue: DeliveryQueue | None = None, *, by_hand: bool = False
    ) -> None:
        """Lend the engine's connections while the thread waits.

        The borrower waits for plain sockets itself, and then the thread of `queue` completes what a producer
        has sent. It is driven `by_hand` if so wanted, under TLS, and on systems where it cannot wait.
        """
        if by_hand or self._tls is not None or not CAN_WAIT:
            self._drive_loans(lending, self._write_on_loan)
            return
        lending.open_loans(self._deliver, queue)
        self._lending = lending
        self._stops.append(lending.close_loans)

    def start(self) -> None:
        """Start the thread, once. Raise IllegalStateError after `stop`."""
        if self._is_stopping:
            raise IllegalStateError("a network that was stopped cannot be started again: create another")
        self._thread.start()

    def stop(self, timeout: float = STOP_SECONDS) -> None:
        """End the thread after its round, close all connections, and wait for that up to `timeout` seconds,
        unless the thread itself is the caller. The engine completes nothing more. A second call only waits.
        """
        was_stopping, self._is_stopping = self._is_stopping, True
        self.wake()
        if self._thread.is_started:
            if not self._thread.join(timeout) and not self._thread.is_current:
                logger.error("%s has not ended after %s s; it ends when its round does", self.name, timeout)
        elif not was_stopping:
            self._release()
            self._end()
        flush(min(timeout, CLOSE_SECONDS))

    def when_over(self, function: Callable[[], object]) -> None:
        """Call `function()` when nothing uses the engine any more: now, or at the end of the thread."""
        self._at_end.append(function)
        if self._is_over:
            self._end()

    def _end(self) -> None:
        self._is_over = True  # first: what is added from now on is called by its adder
        with suppress(IndexError):
            while True:
                self._at_end.popleft()()

    # The thread

    def _run(self) -> None:
        try:
            wait_ns = 0
            while not self._is_stopping:
                wait_ns = self._round(wait_ns)
        except BaseException as error:
            logger.critical("a defect ends %s", self._thread.name, exc_info=error)
            self._fail(error)
        finally:
            self._has_ended = True
            try:
                self._release()
            finally:
                self._end()

    def _round(self, wait_ns: int) -> int:
        """Wait up to `wait_ns`, do a round, and return how long the next one may wait."""
        start_ns = time.monotonic_ns()
        was_called = False
        events = self._wait_on_loan(start_ns + wait_ns, start_ns)
        if events is None:
            events = self._selector.select(wait_ns / 1e9)
        else:
            was_called = True  # it took connections back
        woken_ns = time.monotonic_ns()
        for key, mask in events:
            channel = key.fileobj
            if channel is self._waker:
                was_called |= self._is_for_engine(was_called=self._waker.clear())
            else:
                self._handle_event(channel, mask)  # type: ignore[arg-type]
        while self._inbox:
            self._inbox.popleft()()
        return self._do_round(woken_ns - start_ns, woken_ns, was_called=was_called)

    def _wait_on_loan(self, deadline_ns: int, now_ns: int) -> list[tuple[SelectorKey, int]] | None:
        """Wait with connections lent, and return the events; None if there are none now."""
        lending = self._lending
        borrower = None if lending is None else lending.lend(self._descriptor_of, now_ns)
        if lending is None or borrower is None:
            return None
        poller = self._selector.fileno()  # of epoll: elsewhere nothing is lent here
        try:
            found = borrower.wait(poller, self._waker, deadline_ns, self._on_idle)
        finally:
            lending.take_back(time.monotonic_ns())
        keys = self._selector.get_map()
        return [(keys[descriptor], _mask_of(events)) for descriptor, events in found]

    def _on_idle(self) -> None:
        """Record the engine's deferred metrics, while nothing waits."""
        self._engine.observe(time.monotonic_ns())

    def _descriptor_of(self, connection_id: int) -> int:
        return self._channels[connection_id].fileno()

    def _release(self) -> None:
        """Release everything but the waker, to whose descriptor others may still write."""
        self._give_up_actions()
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()
        self._selector.close()
        self._resolvers.stop()
        self._handshakers.stop()
        self._lookers.stop()
        self._stop_registered()

    def post(self, function: Callable[[], object]) -> None:
        """Schedule `function()` on the sender's thread."""
        self._inbox.append(function)
        self.wake()

    # Events

    def _handle_event(self, channel: Channel, mask: int) -> None:
        if not channel.is_ready:
            self._proceed(channel, channel.proceed)
        if mask & EVENT_WRITE and channel.is_ready and channel.has_unsent:
            self._written(channel, channel.flush())
        if mask & EVENT_READ and channel.is_ready and channel.ended is None:
            self._read(channel)

    def _proceed(self, channel: Channel, step: Callable[[], object]) -> None:
        """Run a step towards a ready channel, and handle its result."""
        step()
        if channel.ended is not None:
            self._drop(channel)
            return
        self._watch(channel)
        if channel.is_ready:
            self._engine_alone().handle_connected(channel.connection_id, time.monotonic_ns())

    def _read(self, channel: Channel) -> None:
        self._receive(channel)
        while channel.may_have_more:
            self._receive(channel)
        if channel.ended is not None:
            self._drop(channel)
        else:
            self._watch(channel)

    def _receive(self, channel: Channel) -> None:
        """Hand received bytes to the engine, if there are any."""
        data = channel.receive(self._space if channel.space is None else channel.space)
        if data:
            channel.expect(self._take_bytes(channel.connection_id, data))

    def _written(self, channel: Channel, written_bytes: int) -> None:
        if written_bytes:
            self._take_written(channel.connection_id, written_bytes)
        if channel.ended is None:
            self._watch(channel)
            return
        # the broker is gone, but its last answers are still to be read
        self._receive(channel)
        while not channel.is_drained:
            self._receive(channel)
        self._drop(channel)

    def _drop(self, channel: Channel) -> None:
        """Report the end of a channel to the engine."""
        assert channel.ended is not None
        self._forget(channel)
        self._engine_alone().handle_closed(channel.connection_id, channel.ended, time.monotonic_ns())

    def _forget(self, channel: Channel) -> None:
        del self._channels[channel.connection_id]
        if channel.events:
            self._selector.unregister(channel)
        channel.close()

    def _watch(self, channel: Channel) -> None:
        events = channel.wanted_events
        if events == channel.events:
            return
        if not events:
            self._selector.unregister(channel)
        elif channel.events:
            self._selector.modify(channel, events)
        else:
            self._selector.register(channel, events)
        channel.events = events

    # Handshakes

    def _begin_step(self, channel: TlsChannel) -> None:
        """Run a step of a handshake on another thread."""

        def take_step() -> None:
            channel.take_step()
            self.post(partial(self._end_step, channel))

        self._handshakers.submit(take_step)

    def _end_step(self, channel: TlsChannel) -> None:
        """Continue with a channel that was not dropped meanwhile."""
        if self._channels.get(channel.connection_id) is not channel:
            return
        self._proceed(channel, channel.end_step)
        if channel.may_have_more and channel.ended is None:
            self._read(channel)

    # Actions

    def _resolve(self, action: Resolve) -> None:
        def look_up() -> None:
            addresses = addresses_of(action)
            self.post(partial(self._resolved, action, addresses))

        self._resolvers.submit(look_up)

    def _begin_connection(self, action: Connect) -> None:
        try:
            channel = self._channel(action)
        except (OSError, ValueError) as error:  # no descriptor, unknown family, a name that TLS cannot check
            refused = NetworkError(f"no connection to {peer_of(action)}: {error}")
            self._engine_alone().handle_closed(action.connection_id, refused, time.monotonic_ns())
            return
        self._channels[action.connection_id] = channel
        self._proceed(channel, partial(channel.connect, action.sockaddr))

    def _channel(self, action: Connect) -> Channel:
        connecting = self._new_socket(action.family)
        try:
            handshake = self._handshake(action)
            if handshake is None:
                return PlainChannel(action.connection_id, peer_of(action), connecting)
            from kbatch.network.tls_channel import TlsChannel  # which takes Python's ssl

            return TlsChannel(
                action.connection_id,
                peer_of(action),
                connecting,
                handshake,
                self._scratch,
                self._begin_step,
            )
        except BaseException:
            connecting.close()
            raise

    def _write(self, action: Write) -> None:
        channel = self._channels.get(action.connection_id)
        if channel is None:  # it ended before the engine knew
            release(action.buffers)
        else:
            self._written(channel, channel.write(action.buffers))

    def _write_on_loan(self, connection_id: int, data: bytes) -> tuple[int, int]:
        channel = self._channels[connection_id]
        written_bytes = channel.write([data])
        if channel.ended is None:
            self._watch(channel)
        else:
            self.post(partial(self._note_end, channel))
        return len(data), written_bytes

    def _note_end(self, channel: Channel) -> None:
        """Report the end of a channel that the lane met, unless the channel was dropped meanwhile."""
        if self._channels.get(channel.connection_id) is channel:
            self._written(channel, 0)

    def _close(self, action: Close) -> None:
        self._preparing.pop(action.connection_id, None)
        channel = self._channels.get(action.connection_id)
        if channel is not None:
            self._forget(channel)


def _mask_of(events: int) -> int:
    """Return the events of a selector for those of epoll."""
    mask = 0
    if events & ~select.EPOLLIN:
        mask |= EVENT_WRITE
    if events & ~select.EPOLLOUT:
        mask |= EVENT_READ
    return mask


def addresses_of(action: Resolve) -> list[Address] | OSError:
    """Return all addresses, in the order of preference (RFC 6724), or the error."""
    ask_for = {"type": socket.SOCK_STREAM, "proto": socket.IPPROTO_TCP}
    try:
        addresses = distinct(real_names().getaddrinfo(action.host, action.port, **ask_for))
    except (OSError, UnicodeError) as error:
        return without_address(action.host, error)
    return list(map(_with_name, addresses)) if action.canonical else addresses


def _with_name(address: Address) -> Address:
    """Return the address with its canonical name, if it has one."""
    try:
        return (*address[:2], real_names().getnameinfo(address[1], socket.NI_NAMEREQD)[0])
    except (OSError, UnicodeError):
        return address
