"""EngineDriver: the common part of a thread and an event loop that own an engine.

Theory of operation. The owner reports events to the engine and lets it run. The driver performs its actions
(`kbatch.core.client.actions`), and hands over its results. An engine that returned actions runs again at
once, before the next look at the sockets, since an action may have made more work possible. A quiet engine
does not run: with a lone record it is quiet after sending, and after the answer. Actions of one kind of
client, such as sealing batches, are registered (`register`).

An exception of the engine is a defect. The engine fails everything with it, so that no caller waits for ever,
and the owner ends.
"""

import codecs
import logging
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from kbatch._native.io.waker import Waker
from kbatch.config import ClientConfig
from kbatch.core.client.actions import (
    Address,
    Authenticate,
    Close,
    Connect,
    EndAuthentication,
    Resolve,
    Write,
)
from kbatch.errors import KafkaError
from kbatch.metrics import MetricsRegistry
from kbatch.network.channels import release

if TYPE_CHECKING:
    import asyncio

    from kbatch.network.tls import ClientTls, Handshake

logger = logging.getLogger(__name__)

RECEIVE_BYTES = 131_072
# The maximum number of runs between two looks at the sockets, which must be read in time.
_RUNS = 8
# The longest wait: a selector takes no number of milliseconds above 2**31.
_LONGEST_NS = 3_600_000_000_000


class DrivenEngine(Protocol):
    """The part of an engine that its owner uses: a ClientEngine with results (`poll_completed`)."""

    def handle_resolved(
        self, host: str, port: int, addresses: list[Address] | OSError, now_ns: int, /
    ) -> None: ...
    def handle_connected(self, connection_id: int, now_ns: int, /) -> None: ...
    def handle_bytes(
        self, connection_id: int, data: bytes | memoryview, now_ns: int, /
    ) -> memoryview | None: ...
    def handle_written(self, connection_id: int, written_bytes: int, now_ns: int, /) -> None: ...
    def handle_closed(self, connection_id: int, error: KafkaError, now_ns: int, /) -> None: ...
    def handle_token(self, connection_id: int, token: bytes | KafkaError | None, now_ns: int, /) -> None: ...
    def run(self, now_ns: int, /) -> None: ...
    def is_quiet(self, now_ns: int, /) -> bool: ...
    def observe(self, now_ns: int, /) -> None: ...
    def poll_actions(self) -> list[Any]: ...
    def poll_completed(self) -> list[Any]: ...
    def deadline_ns(self, now_ns: int, /) -> int: ...
    def fail(self, error: KafkaError, /) -> None: ...


class EngineDriver(ABC):
    """Drives an engine.

    Parameters
    ----------
    engine : DrivenEngine
    config : ClientConfig
        Its socket buffers, ssl and sasl keys are used.
    deliver : callable
        Gets the engine's results on the owner's thread; it must not wait or raise.
    name : str
        The owner's name, with which its threads' names begin.
    metrics : MetricsRegistry or None
        Gets select and io of every round.
    waker : Waker or None
        An existing waker, if an accumulator needs its `wake` before there is an engine.

    Attributes
    ----------
    name : str
    wake : callable
        Lets the engine run soon. Any thread and native code may call it, also before there is an owner and
        after its end, without effect.
    round_count : int
        The number of the owner's rounds; it stops growing if there is nothing to do.

    Raises
    ------
    ConfigError
        For unusable ssl or sasl keys.
    """

    wake: Callable[[], object]

    def __init__(
        self,
        engine: DrivenEngine,
        *,
        config: ClientConfig,
        deliver: Callable[[list[Any]], object],
        name: str,
        metrics: MetricsRegistry | None = None,
        waker: Waker | None = None,
    ) -> None:
        self._engine = engine
        self._config = config
        self._deliver = deliver
        self.name = name
        self._tls = _tls_of(config)
        codecs.lookup("idna")  # which getaddrinfo imports: see _tls_of
        self._waker = Waker() if waker is None else waker
        self.wake = self._waker.wake
        self.round_count = 0
        self._actions: list[Any] = []
        self._perform: dict[type, Callable[[Any], None]] = {
            Resolve: self._resolve,
            Connect: self._connect,
            Write: self._write,
            Close: self._close,
        }
        self._stops: list[Callable[[], object]] = []  # of what was registered
        self._select_time = None if metrics is None else metrics.sensor("select")
        self._io_time = None if metrics is None else metrics.sensor("io")
        self._io_ns = 0  # of this round
        if config.security_protocol.startswith("SASL_"):
            from kbatch.network.login import login_of  # which takes a mechanism, and asyncio

            login = login_of(config, engine.handle_token, self.post, self.event_loop)
            self.register(Authenticate, login.perform, login.stop)
            self._perform[EndAuthentication] = login.end

    def register(self, kind: type, perform: Callable[[Any], None], stop: Callable[[], object]) -> None:
        """Let `perform(action)` perform actions of this kind on the owner's thread; `stop()` is called when
        the owner ends. Call this before it starts.
        """
        self._perform[kind] = perform
        self._stops.append(stop)

    def _run_engine_on(self, waited_ns: int, woken_ns: int, *, was_called: bool) -> int:
        """Run the engine while it has work, up to a limit, and return how long the owner may wait. The owner
        waited `waited_ns` until `woken_ns`. If `wake` woke it (`was_called`), even a quiet engine runs.
        """
        now_ns = time.monotonic_ns()
        self._io_ns = now_ns - woken_ns
        self._deliver_completed()  # at once: the receiver wakes up while the engine runs
        is_busy = was_called or not self._engine.is_quiet(now_ns)
        for _ in range(_RUNS):
            if not is_busy:
                break
            is_busy = self._run_engine() and not self._engine.is_quiet(time.monotonic_ns())
        self.round_count += 1
        now_ns = time.monotonic_ns()
        self._engine.observe(now_ns)
        if self._select_time is not None and self._io_time is not None:
            self._select_time.record(waited_ns, now_ns // 1_000_000)
            self._io_time.record(self._io_ns, now_ns // 1_000_000)
        if is_busy:
            return 0
        return min(max(self._engine.deadline_ns(now_ns) - now_ns, 0), _LONGEST_NS)

    def _run_engine(self) -> bool:
        """Run the engine once and perform its actions. True if there were any."""
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
        """Fail the engine, so that no caller waits for ever."""
        if not isinstance(error, KafkaError):
            cause = error
            error = KafkaError(f"a defect of kbatch ended the client: {type(cause).__name__}: {cause}")
            error.fatal = True
            error.__cause__ = cause
        try:
            self._engine.fail(error)
            self._deliver_completed()
        except BaseException:
            logger.critical("some records remain without an outcome", exc_info=True)

    def _resolved(self, action: Resolve, addresses: list[Address] | OSError) -> None:
        self._engine.handle_resolved(action.host, action.port, addresses, time.monotonic_ns())

    def _give_up_actions(self) -> None:
        """Release the memory of writes that were not performed."""
        for action in self._actions:
            if type(action) is Write:
                release(action.buffers)

    def _stop_registered(self) -> None:
        for stop in self._stops:
            stop()

    def _handshake(self, action: Connect) -> "Handshake | None":
        """Return the TLS of a new connection; None for plain ones."""
        return None if self._tls is None else self._tls.handshake(action.host, action.port, peer_of(action))

    def _new_socket(self, family: int) -> socket.socket:
        """Return a non-blocking socket with the options of the configuration."""
        made = socket.socket(family, socket.SOCK_STREAM)
        try:
            made.setblocking(False)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, size in (
                (socket.SO_SNDBUF, self._config.send_buffer_bytes),
                (socket.SO_RCVBUF, self._config.receive_buffer_bytes),
            ):
                if size >= 0:
                    made.setsockopt(socket.SOL_SOCKET, option, size)
        except BaseException:
            made.close()
            raise
        return made

    def event_loop(self) -> "asyncio.AbstractEventLoop | None":
        """Return the event loop that runs coroutines of users, if there is one."""
        return None

    @abstractmethod
    def post(self, function: Callable[[], object]) -> None:
        """Let the owner call `function()`. Any thread may call this."""

    @abstractmethod
    def _resolve(self, action: Resolve) -> None: ...

    @abstractmethod
    def _connect(self, action: Connect) -> None: ...

    @abstractmethod
    def _write(self, action: Write) -> None: ...

    @abstractmethod
    def _close(self, action: Close) -> None: ...


def _tls_of(config: ClientConfig) -> "ClientTls | None":
    """Return the client's TLS; None for plain connections, which save the 4 MiB of Python's ssl.

    Modules that the owner's threads need are imported here, on the caller's thread: after a fork() during
    another thread's import, the child would wait for that module for ever.
    """
    if config.security_protocol not in ("SSL", "SASL_SSL"):
        return None
    import kbatch.network.tls_channel  # noqa: F401
    from kbatch.network.tls import ClientTls

    return ClientTls(config)


def peer_of(action: Connect) -> str:
    """Return host, port, address and node, for errors."""
    node = "" if action.node_id < 0 else f", node {action.node_id}"
    return f"{action.host}:{action.port} ({action.sockaddr[0]}{node})"


def distinct(found: Iterable[tuple[int, int, int, str, Any]]) -> list[Address]:
    """Return the addresses from getaddrinfo, in its order."""
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found))


def without_address(host: str, error: BaseException) -> OSError:
    """Return the error of a failed look-up, with the remedy."""
    reason = getattr(error, "strerror", None) or error
    return OSError(f"{host} has no address: {reason}; check bootstrap.servers and the name service")
