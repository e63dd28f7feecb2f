"""Network: the sender's thread, which has the engine's sockets, its clock and its names resolved.

Theory of operation. A round of the loop waits for sockets, tells the engine what happened, lets it run, does
what it asks for (`kbatch.core.actions`), and hands over the batches that are done. Nothing else in it waits:
names are resolved and large batches compressed on threads of their own, whose results come back through an
inbox. An engine that asked for something is let run again at once, without a look at the sockets in between,
as it may have had to hold back what it can do now.

Wherever the engine is woken, `wake` is called behind the change; the loop clears the waker before it lets the
engine look, so no change is missed, and one that is seen early costs one round in vain.

An exception that comes out of the engine is a defect: the engine fails everything with it, for nobody to wait
in vain, and the thread ends.
"""

import logging
import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, final

from kbatch._native.delivery import Completion
from kbatch._native.producer_batch import ProducerBatch
from kbatch.config import ProducerConfig
from kbatch.core.actions import Action, Address, Close, Connect, Resolve, Seal, Write
from kbatch.errors import IllegalStateError, KafkaError, NetworkError
from kbatch.metrics import MetricsRegistry
from kbatch.network.channels import Channel, PlainChannel, TlsChannel, release
from kbatch.network.tls import context_of
from kbatch.network.waker import Waker
from kbatch.network.workers import Workers

logger = logging.getLogger(__name__)

_RECEIVE_BYTES = 131_072
# How often the engine runs between two looks at the sockets, which it must not keep from being read.
_RUNS = 8
# The longest wait: a selector takes no number of milliseconds above 2**31.
_LONGEST_NS = 3_600_000_000_000
_RESOLVERS = 4
_SEALERS = min(os.cpu_count() or 1, 4)
# Sealing so many bytes takes about as long as having another thread do it, 30 us; only their CRC is quicker.
_SEALED_AT_ONCE_BYTES = 16_384
_CRC_AT_ONCE_BYTES = 262_144


class Engine(Protocol):
    """What the loop needs of kbatch.core.engine.Engine."""

    def handle_resolved(
        self, host: str, port: int, addresses: list[Address] | OSError, now_ns: int, /
    ) -> None: ...
    def handle_connected(self, connection_id: int, now_ns: int, /) -> None: ...
    def handle_bytes(self, connection_id: int, data: bytes, now_ns: int, /) -> None: ...
    def handle_written(self, connection_id: int, written_bytes: int, now_ns: int, /) -> None: ...
    def handle_closed(self, connection_id: int, error: KafkaError, now_ns: int, /) -> None: ...
    def run(self, now_ns: int, /) -> None: ...
    def poll_actions(self) -> list[Action]: ...
    def poll_completed(self) -> list[Completion]: ...
    def deadline_ns(self, now_ns: int, /) -> int: ...
    def fail(self, error: KafkaError, /) -> None: ...


@final
class Network:
    """Drives an engine on a thread of its own, from `start` to `stop`.

    Parameters
    ----------
    engine : Engine
    config : ProducerConfig
        Of it socket buffers, and what TLS needs.
    deliver : callable
        Gets the completions of batches that are done, on the sender's thread; it must not wait or raise.
    name : str
        Of the thread.
    metrics : MetricsRegistry or None
        Gets select and io, of every round.
    waker : Waker or None
        One made before, for an accumulator that has to be given its `wake` before there is an engine.

    Attributes
    ----------
    wake : callable
        Has the engine run soon; any thread, native code too. It may be called before `start`, and when the
        thread has ended, for nothing.
    round_count : int
        Rounds of the loop; it stands still where there is nothing to do.

    Raises
    ------
    ConfigError
        For ssl keys that cannot be used.
    """

    wake: Callable[[], object]

    def __init__(
        self,
        engine: Engine,
        *,
        config: ProducerConfig,
        deliver: Callable[[list[Completion]], object],
        name: str,
        metrics: MetricsRegistry | None = None,
        waker: Waker | None = None,
    ) -> None:
        self._engine = engine
        self._config = config
        self._deliver = deliver
        self._tls = context_of(config)
        self._waker = Waker() if waker is None else waker
        self.wake = self._waker.wake
        self.round_count = 0
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._waker, selectors.EVENT_READ)
        self._channels: dict[int, Channel] = {}
        self._space = memoryview(bytearray(_RECEIVE_BYTES))
        self._inbox: deque[Callable[[], object]] = deque()  # of the threads that work for this one
        self._actions: list[Action] = []
        self._resolvers = Workers(f"{name}-resolver", _RESOLVERS)
        self._sealers = Workers(f"{name}-sealer", _SEALERS)
        self._perform: dict[type, Callable[[Any], None]] = {
            Resolve: self._resolve,
            Connect: self._connect,
            Write: self._write,
            Close: self._close,
            Seal: self._seal,
        }
        is_plain = config.compression_type == "none"
        self._sealed_at_once_bytes = _CRC_AT_ONCE_BYTES if is_plain else _SEALED_AT_ONCE_BYTES
        self._select_time = None if metrics is None else metrics.sensor("select")
        self._io_time = None if metrics is None else metrics.sensor("io")
        self._io_ns = 0  # of this round
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    # For any thread

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Once; IllegalStateError if it was stopped before."""
        if self._is_stopping:
            raise IllegalStateError("a network that was stopped is not started again: make another")
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread behind its round, closes all connections, and waits for that, unless the thread
        itself asks. What the engine has not completed by then stays so. A second call does nothing more."""
        was_stopping, self._is_stopping = self._is_stopping, True
        self.wake()
        if self._thread.ident is None:
            if not was_stopping:
                self._release()
        elif self._thread is not threading.current_thread():
            self._thread.join()

    # The thread

    def _run(self) -> None:
        try:
            wait_ns = 0
            while not self._is_stopping:
                wait_ns = self._round(wait_ns)
        except BaseException as error:
            logger.critical("a defect ends %s", self._thread.name, exc_info=True)
            self._fail(error)
        finally:
            self._release()

    def _round(self, wait_ns: int) -> int:
        """Waits for up to `wait_ns`, and returns how long the next round may wait."""
        start_ns = time.monotonic_ns()
        events = self._selector.select(wait_ns / 1e9)
        woken_ns = time.monotonic_ns()
        for key, mask in events:
            channel = key.fileobj
            if channel is self._waker:
                self._waker.clear()
            else:
                self._handle_event(channel, mask)  # type: ignore[arg-type]
        while self._inbox:
            self._inbox.popleft()()
        self._io_ns = time.monotonic_ns() - woken_ns
        self._deliver_completed()  # at once: their thread wakes up while the engine runs
        is_busy = True
        for _ in range(_RUNS):
            is_busy = self._run_engine()
            if not is_busy:
                break
        self.round_count += 1
        now_ns = time.monotonic_ns()
        if self._select_time is not None and self._io_time is not None:
            self._select_time.record(woken_ns - start_ns, now_ns // 1_000_000)
            self._io_time.record(self._io_ns, now_ns // 1_000_000)
        if is_busy:
            return 0
        return min(max(self._engine.deadline_ns(now_ns) - now_ns, 0), _LONGEST_NS)

    def _run_engine(self) -> bool:
        """Lets it run once and does what it asks for; whether it asked for anything."""
        engine = self._engine
        engine.run(time.monotonic_ns())
        self._actions = actions = engine.poll_actions()
        if actions:
            start_ns = time.monotonic_ns()
            for action in actions:
                self._perform[type(action)](action)
            self._io_ns += time.monotonic_ns() - start_ns
        self._deliver_completed()
        return bool(actions)

    def _deliver_completed(self) -> None:
        if completed := self._engine.poll_completed():
            self._deliver(completed)

    def _fail(self, error: BaseException) -> None:
        """Nobody shall wait for what will not come."""
        if not isinstance(error, KafkaError):
            cause = error
            error = KafkaError(f"a defect of kbatch ended the producer: {type(cause).__name__}: {cause}")
            error.fatal = True
            error.__cause__ = cause
        try:
            self._engine.fail(error)
            self._deliver_completed()
        except BaseException:
            logger.critical("records are left without an answer", exc_info=True)

    def _release(self) -> None:
        """Everything but the waker, whose descriptor others may still write to."""
        for action in self._actions:
            if type(action) is Write:
                release(action.buffers)
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()
        self._selector.close()
        self._resolvers.stop()
        self._sealers.stop()

    def _post(self, function: Callable[[], object]) -> None:
        """Has it called on the sender's thread."""
        self._inbox.append(function)
        self.wake()

    # What happens

    def _handle_event(self, channel: Channel, mask: int) -> None:
        if not channel.is_ready:
            self._proceed(channel, channel.proceed)
        if mask & selectors.EVENT_WRITE and channel.is_ready and channel.has_unsent:
            self._written(channel, channel.flush())
        if mask & selectors.EVENT_READ and channel.is_ready and channel.ended is None:
            self._read(channel)

    def _proceed(self, channel: Channel, step: Callable[[], object]) -> None:
        """Takes a step from nothing to ready."""
        step()
        if channel.ended is not None:
            self._drop(channel)
            return
        self._watch(channel)
        if channel.is_ready:
            self._engine.handle_connected(channel.connection_id, time.monotonic_ns())

    def _read(self, channel: Channel) -> None:
        data = channel.receive(self._space)
        if data:
            self._engine.handle_bytes(channel.connection_id, data, time.monotonic_ns())
        if channel.ended is not None:
            self._drop(channel)
        else:
            self._watch(channel)

    def _written(self, channel: Channel, written_bytes: int) -> None:
        if written_bytes:
            self._engine.handle_written(channel.connection_id, written_bytes, time.monotonic_ns())
        if channel.ended is None:
            self._watch(channel)
            return
        # the broker has gone, and what it answered before it went is still there
        while data := channel.receive(self._space):
            self._engine.handle_bytes(channel.connection_id, data, time.monotonic_ns())
        self._drop(channel)

    def _drop(self, channel: Channel) -> None:
        """It has ended, and the engine has to know."""
        assert channel.ended is not None
        self._forget(channel)
        self._engine.handle_closed(channel.connection_id, channel.ended, time.monotonic_ns())

    def _forget(self, channel: Channel) -> None:
        del self._channels[channel.connection_id]
        if channel.events:
            self._selector.unregister(channel)
        channel.close()

    def _watch(self, channel: Channel) -> None:
        events = channel.wanted_events
        if events == channel.events:
            return
        if channel.events:
            self._selector.modify(channel, events)
        else:
            self._selector.register(channel, events)
        channel.events = events

    # What the engine asks for

    def _resolve(self, action: Resolve) -> None:
        def look_up() -> None:
            addresses = addresses_of(action.host, action.port)
            self._post(partial(self._resolved, action, addresses))

        self._resolvers.submit(look_up)

    def _resolved(self, action: Resolve, addresses: list[Address] | OSError) -> None:
        self._engine.handle_resolved(action.host, action.port, addresses, time.monotonic_ns())

    def _connect(self, action: Connect) -> None:
        node = "" if action.node_id < 0 else f", node {action.node_id}"
        peer = f"{action.host}:{action.port} ({action.sockaddr[0]}{node})"
        try:
            channel = self._channel(action, peer)
        except (OSError, ValueError) as error:  # no descriptor, no such family, no name that TLS could check
            refused = NetworkError(f"no connection to {peer}: {error}")
            self._engine.handle_closed(action.connection_id, refused, time.monotonic_ns())
            return
        self._channels[action.connection_id] = channel
        self._proceed(channel, partial(channel.connect, action.sockaddr))

    def _channel(self, action: Connect, peer: str) -> Channel:
        connecting = socket.socket(action.family, socket.SOCK_STREAM)
        try:
            connecting.setblocking(False)
            connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connecting.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, size in (
                (socket.SO_SNDBUF, self._config.send_buffer_bytes),
                (socket.SO_RCVBUF, self._config.receive_buffer_bytes),
            ):
                if size >= 0:
                    connecting.setsockopt(socket.SOL_SOCKET, option, size)
            if self._tls is None:
                return PlainChannel(action.connection_id, peer, connecting)
            return TlsChannel(action.connection_id, peer, connecting, self._tls, action.host)
        except BaseException:
            connecting.close()
            raise

    def _write(self, action: Write) -> None:
        channel = self._channels.get(action.connection_id)
        if channel is None:  # it has ended, of which the engine did not know when it asked
            release(action.buffers)
        else:
            self._written(channel, channel.write(action.buffers))

    def _close(self, action: Close) -> None:
        channel = self._channels.get(action.connection_id)
        if channel is not None:
            self._forget(channel)

    def _seal(self, action: Seal) -> None:
        if action.batch.records_bytes <= self._sealed_at_once_bytes:
            action.batch.seal(wake=False)
        else:
            self._sealers.submit(partial(self._seal_elsewhere, action.batch))

    def _seal_elsewhere(self, batch: ProducerBatch) -> None:
        """The batch itself wakes the sender. One that could not be sealed would block its partition."""
        try:
            batch.seal()
        except BaseException as error:
            self._post(partial(_raise, error))


def addresses_of(host: str, port: int) -> list[Address] | OSError:
    """All of them, in the order of preference (RFC 6724), or why there are none."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        return OSError(f"{host} has no address: {reason}; check bootstrap.servers and the name service")
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found))


def _raise(error: BaseException) -> None:
    raise error
