"""LoopNetwork: an asyncio event loop as the owner of an engine, with the loop's own transports and timers.

Theory of operation. The engine gets events of transports at once, and the next round is scheduled, one for
all events until then. A round lets the engine run (EngineRounds) and sets a timer for its next deadline. A
timer that is too early stays: it costs one needless round, which is less than a new timer in every round.
`wake`, from any thread, ends the loop's wait for sockets by the waker, which the loop watches like a socket.

Its only threads seal batches. Its tasks only make connections and resolve names.
"""

import asyncio
import os
import socket
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, cast, final

from kbatch.core.client.actions import Address, Close, Connect, Resolve, Write, release
from kbatch.errors import IllegalStateError, KafkaError, NetworkError
from kbatch.logs import ClientLogger
from kbatch.network.driver import RECEIVE_BYTES, EngineDriver, distinct, peer_of, without_address
from kbatch.network.loan_driver import LendingEngine
from kbatch.network.rounds import DrivenEngine
from kbatch.network.transports import TransportChannel
from kbatch.unpatched import breaks_asyncio
from kbatch.waiting.conditions import Condition
from kbatch.waiting.deadline import Deadline
from kbatch.waiting.event_loop import TaskWaiter

if TYPE_CHECKING:
    from kbatch.network.tls import Handshake

logger = ClientLogger(__name__)

# The peer's answer to TLS's goodbye is waited for no longer.
_GOODBYE_SECONDS = 1.0


@final
class LoopNetwork(EngineDriver):
    """Drives an engine on an event loop, from `start` to `stop`.

    Parameters
    ----------
    engine, config, deliver, name, metrics, waker
        Parameters of EngineDriver.
    after_round : callable
        Called after every round.

    Raises
    ------
    IllegalStateError
        gevent keeps asyncio from working.

    Attributes
    ----------
    farewell : AsyncGenerator or None
        The generator by which the loop's end reaches the client. It is kept here since the collector would
        end it together with a client that is part of a cycle.
    """

    def __init__(
        self,
        engine: DrivenEngine,
        *,
        after_round: Callable[[], object] = lambda: None,
        **options: Any,
    ) -> None:
        if breaks_asyncio():
            raise IllegalStateError(
                "asyncio's threads do not work after gevent.monkey.patch_all(thread=False): patch without "
                "thread=False, or add queue=False, or use a client without asyncio"
            )
        super().__init__(engine, **options)
        self._after_round = after_round
        self.farewell: AsyncGenerator[None, None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_stopped = False
        self._channels: dict[int, TransportChannel] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._made: set[TransportChannel] = set()  # and not lost yet
        self._lost = Condition(TaskWaiter)
        self._space = memoryview(bytearray(RECEIVE_BYTES))
        self._was_called = True  # since the last round
        self._next_round: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = 0
        self._ended_ns = time.monotonic_ns()  # the last round

    @property
    def is_alive(self) -> bool:
        """True if it has a loop that can run it."""
        return self._loop is not None and not self._is_stopped and not self._loop.is_closed()

    def use_loans(self, lending: LendingEngine) -> None:
        """Lend the engine's connections between rounds."""
        self._drive_loans(lending, self._write_on_loan)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start on the loop, once; call this on the loop's thread."""
        self._loop = loop
        loop.add_reader(self._waker.fileno(), self.run_now)
        self._schedule_round()

    def stop(self, timeout: float | None = None) -> None:
        """Close all connections, and do nothing more, at once. The engine completes nothing more."""
        if self._is_stopped:
            return
        self._is_stopped = True
        self._lookers.stop()
        self._give_up_actions()
        self._stop_registered()
        loop = self._loop
        if loop is None or loop.is_closed():
            return
        loop.remove_reader(self._waker.fileno())
        for handle in (self._next_round, self._timer):
            if handle is not None:
                handle.cancel()
        for task in self._tasks:
            task.cancel()
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    async def ended(self, deadline: Deadline) -> None:
        """Wait after `stop` until all connections are gone, with their goodbyes."""
        await self._lost.wait_until(lambda: not self._made, deadline)
        if self._tasks and not deadline.is_over:  # which must finish after their cancellation
            await asyncio.wait(self._tasks, timeout=deadline.left)

    # Rounds

    def run_now(self) -> None:
        """Run a round now."""
        self._was_called |= self._is_for_engine(was_called=self._waker.clear())
        self._round()

    def _schedule_round(self) -> None:
        if self._next_round is None and self._loop is not None and not self._is_stopped:
            self._next_round = self._loop.call_soon(self._round)

    def _round(self) -> None:
        if self._next_round is not None:
            self._next_round.cancel()
            self._next_round = None
        if self._is_stopped:
            return
        start_ns = time.monotonic_ns()
        try:
            was_called, self._was_called = self._was_called, False
            wait_ns = self._do_round(start_ns - self._ended_ns, start_ns, was_called=was_called)
        except BaseException as error:
            self._end_by(error)
        else:
            self._ended_ns = time.monotonic_ns()
            self._set_timer(wait_ns)
        self._after_round()

    def _report(self, event: Callable[[], object]) -> None:
        """Report an event by `event()`."""
        if self._is_stopped:
            return
        try:
            event()
            self._deliver_completed()  # before a task reports a table that this event completed
        except BaseException as error:
            self._end_by(error)
        self._schedule_round()

    def _end_by(self, error: BaseException) -> None:
        logger.critical("a defect ends %s", self.name, exc_info=error)
        self._fail(error)
        self.stop()
        if not isinstance(error, Exception):
            raise error

    def _set_timer(self, wait_ns: int) -> None:
        if not wait_ns:
            self._schedule_round()
            return
        due_ns = self._ended_ns + wait_ns
        if self._timer is not None and self._ended_ns < self._timer_ns <= due_ns:
            return
        if self._timer is not None:
            self._timer.cancel()
        assert self._loop is not None
        self._timer_ns = due_ns
        # loops count in milliseconds
        self._timer = self._loop.call_later(-(-wait_ns // 1_000_000) / 1e3, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self._round()

    def event_loop(self) -> asyncio.AbstractEventLoop | None:
        return self._loop

    def post(self, function: Callable[[], object]) -> None:
        if self.is_alive and self._loop is not None:
            self._loop.call_soon_threadsafe(self._report, function)

    # Events

    def handle_made(self, channel: TransportChannel) -> None:
        self._made.add(channel)

        def connect() -> None:
            self._engine_alone().handle_connected(channel.connection_id, time.monotonic_ns())

        self._report(connect)

    def handle_received(self, channel: TransportChannel, data: memoryview) -> None:
        def receive() -> None:
            channel.space = self._take_bytes(channel.connection_id, data)

        self._report(receive)

    def handle_written(self, channel: TransportChannel, written_bytes: int) -> None:
        self._report(partial(self._take_written, channel.connection_id, written_bytes))

    def handle_lost(self, channel: TransportChannel, error: KafkaError) -> None:
        self._made.discard(channel)
        self._lost.notify()

        def close() -> None:
            self._engine_alone().handle_closed(channel.connection_id, error, time.monotonic_ns())

        if self._channels.pop(channel.connection_id, None) is not None:
            self._report(close)

    # Actions

    def _resolve(self, action: Resolve) -> None:
        nothing = without_address(action.host, asyncio.CancelledError("the look-up was cancelled"))
        report = partial(self._report, partial(self._resolved, action, nothing))

        def look_up_again() -> None:  # asyncio.run cancels every task once, before clients flush
            if not self._is_stopped:
                self._begin(self._look_up(action), report)

        self._begin(self._look_up(action), look_up_again)

    async def _look_up(self, action: Resolve) -> None:
        assert self._loop is not None
        addresses: list[Address] | OSError
        try:
            addresses = distinct(await self._address_infos(action.host, action.port))
            if action.canonical:
                addresses = [await self._with_name(address) for address in addresses]
        except (OSError, UnicodeError) as error:
            addresses = without_address(action.host, error)
        self._report(partial(self._resolved, action, addresses))

    async def _address_infos(self, host: str, port: int) -> list[Any]:
        assert self._loop is not None
        ask_for = {"type": socket.SOCK_STREAM, "proto": socket.IPPROTO_TCP}
        try:
            return await self._loop.getaddrinfo(host, port, **ask_for)
        except RuntimeError:  # at the end of the interpreter the loop has no threads for look-ups
            return socket.getaddrinfo(host, port, **ask_for)

    async def _with_name(self, address: Address) -> Address:
        """Return the address with its canonical name, if it has one."""
        assert self._loop is not None
        try:
            name, _ = await self._loop.getnameinfo(address[1], socket.NI_NAMEREQD)
        except (OSError, UnicodeError):
            return address
        return (*address[:2], name)

    def _begin_connection(self, action: Connect) -> None:
        handshake = self._handshake(action)
        channel = TransportChannel(action.connection_id, peer_of(action), self, self._space, handshake)
        self._channels[action.connection_id] = channel
        cancelled = NetworkError(f"the connection to {channel.peer} broke: cancelled")
        lost = partial(self.handle_lost, channel, cancelled)
        channel.opening = self._begin(self._open(action, channel, handshake), lost)

    async def _open(self, action: Connect, channel: TransportChannel, handshake: "Handshake | None") -> None:
        try:
            connecting = await self._reached(action)
        except (OSError, ValueError) as error:
            reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else error
            self.handle_lost(channel, NetworkError(f"no connection to {channel.peer}: {reason}"))
            return
        assert self._loop is not None
        try:
            await self._loop.create_connection(
                lambda: channel,
                sock=connecting,
                ssl=cast(Any, handshake),
                server_hostname=None if handshake is None else handshake.server_name,
                ssl_shutdown_timeout=None if handshake is None else _GOODBYE_SECONDS,
            )
        except Exception as error:  # in a handshake, anything
            self.handle_lost(channel, channel.why_lost(error))

    async def _reached(self, action: Connect) -> socket.socket:
        """Return a connected socket."""
        assert self._loop is not None
        connecting = self._new_socket(action.family)
        try:
            await self._loop.sock_connect(connecting, action.sockaddr)
        except BaseException:
            connecting.close()
            raise
        return connecting

    def _begin(self, work: Coroutine[Any, Any, None], cancelled: Callable[[], object]) -> asyncio.Task[None]:
        """Start a task. `cancelled()` is called after its cancellation, such as at the end of asyncio.run."""
        assert self._loop is not None

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if task.cancelled():
                cancelled()

        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(ended)
        return task

    def _write(self, action: Write) -> None:
        channel = self._channels.get(action.connection_id)
        if channel is None:  # it ended before the engine knew
            release(action.buffers)
        elif written_bytes := channel.write(action.buffers):
            self._take_written(channel.connection_id, written_bytes)

    def _write_on_loan(self, connection_id: int, data: bytes) -> tuple[int, int]:
        return len(data), self._channels[connection_id].write([data])

    def _close(self, action: Close) -> None:
        self._preparing.pop(action.connection_id, None)
        channel = self._channels.pop(action.connection_id, None)
        if channel is not None:
            channel.close()
