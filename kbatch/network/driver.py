"""EngineDriver: what a thread and an event loop have in common that own an engine.

Theory of operation. The owner tells the engine what happened and lets it run. The driver does what it asks
for (`kbatch.core.client.actions`), and hands over its results. An engine that asked for something is let run
again at once, without a look at the sockets in between, as it may have had to hold back what it can do now.
Where it says that it is quiet it is not let run: with a lone record that is so when it was sent, and when it
was answered. Actions that only one kind of client has, such as sealing batches, are registered (`register`).

An exception that comes out of the engine is a defect: the engine fails everything with it, for nobody to wait
in vain, and the owner ends.
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
from kbatch.core.client.actions import Address, Close, Connect, Resolve, Write
from kbatch.errors import KafkaError
from kbatch.metrics import MetricsRegistry
from kbatch.network.channels import release

if TYPE_CHECKING:
    import ssl

logger = logging.getLogger(__name__)

RECEIVE_BYTES = 131_072
# How often the engine runs between two looks at the sockets, which it must not keep from being read.
_RUNS = 8
# The longest wait: a selector takes no number of milliseconds above 2**31.
_LONGEST_NS = 3_600_000_000_000


class Engine(Protocol):
    """What an owner needs of an engine: a ClientEngine that has results (`poll_completed`)."""

    def handle_resolved(
        self, host: str, port: int, addresses: list[Address] | OSError, now_ns: int, /
    ) -> None: ...
    def handle_connected(self, connection_id: int, now_ns: int, /) -> None: ...
    def handle_bytes(
        self, connection_id: int, data: bytes | memoryview, now_ns: int, /
    ) -> memoryview | None: ...
    def handle_written(self, connection_id: int, written_bytes: int, now_ns: int, /) -> None: ...
    def handle_closed(self, connection_id: int, error: KafkaError, now_ns: int, /) -> None: ...
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
    engine : Engine
    config : ClientConfig
        Of it socket buffers, and what TLS needs.
    deliver : callable
        Gets the engine's results, on the owner's thread; it must not wait or raise.
    name : str
        Of the owner; its threads' names begin with it.
    metrics : MetricsRegistry or None
        Gets select and io, of every round.
    waker : Waker or None
        One made before, for an accumulator that has to be given its `wake` before there is an engine.

    Attributes
    ----------
    name : str
    wake : callable
        Has the engine run soon; any thread, native code too. It may be called before there is an owner, and
        when there is none any more, for nothing.
    round_count : int
        Rounds of the owner; it stands still where there is nothing to do.

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
        self._helpers: list[Callable[[], object]] = []  # what ends them
        self._select_time = None if metrics is None else metrics.sensor("select")
        self._io_time = None if metrics is None else metrics.sensor("io")
        self._io_ns = 0  # of this round

    def register(self, kind: type, perform: Callable[[Any], None], stop: Callable[[], object]) -> None:
        """Have actions of this kind performed by `perform(action)` on the owner's thread, and `stop()` called
        when the owner ends. To be called before it starts.
        """
        self._perform[kind] = perform
        self._helpers.append(stop)

    def _run_engine_on(self, waited_ns: int, woken_ns: int, *, was_called: bool) -> int:
        """Lets it run as long as it has something to do, but not for ever, and returns how long the owner
        may wait then. A round began when the owner had waited `waited_ns`, and was woken at `woken_ns`; by
        `wake`, where it `was_called`: then the engine has to run, quiet or not."""
        now_ns = time.monotonic_ns()
        self._io_ns = now_ns - woken_ns
        self._deliver_completed()  # at once: who takes them wakes up while the engine runs
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

    def _resolved(self, action: Resolve, addresses: list[Address] | OSError) -> None:
        self._engine.handle_resolved(action.host, action.port, addresses, time.monotonic_ns())

    def _give_up_actions(self) -> None:
        """The memory of what was not written any more goes back."""
        for action in self._actions:
            if type(action) is Write:
                release(action.buffers)

    def _stop_helpers(self) -> None:
        for stop in self._helpers:
            stop()

    def _new_socket(self, family: int) -> socket.socket:
        """One that does not wait, and has the options of the configuration."""
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

    @abstractmethod
    def post(self, function: Callable[[], object]) -> None:
        """Have `function()` called by the owner. Any thread may call this."""

    @abstractmethod
    def _resolve(self, action: Resolve) -> None: ...

    @abstractmethod
    def _connect(self, action: Connect) -> None: ...

    @abstractmethod
    def _write(self, action: Write) -> None: ...

    @abstractmethod
    def _close(self, action: Close) -> None: ...


def _tls_of(config: ClientConfig) -> "ssl.SSLContext | None":
    """None where connections are plain, which then do without Python's ssl, some 4 MiB of memory.

    What its threads need is imported here, on the caller's: the child of a fork() that comes while another
    thread imports a module waits for that module for ever.
    """
    if config.security_protocol not in ("SSL", "SASL_SSL"):
        return None
    import kbatch.network.tls_channel  # noqa: F401
    from kbatch.network.tls import context_of

    return context_of(config)


def peer_of(action: Connect) -> str:
    """Host, port, address and node, for errors."""
    node = "" if action.node_id < 0 else f", node {action.node_id}"
    return f"{action.host}:{action.port} ({action.sockaddr[0]}{node})"


def distinct(found: Iterable[tuple[int, int, int, str, Any]]) -> list[Address]:
    """What getaddrinfo found, in its order."""
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found))


def without_address(host: str, error: BaseException) -> OSError:
    """What getaddrinfo raised, and what to do about it."""
    reason = getattr(error, "strerror", None) or error
    return OSError(f"{host} has no address: {reason}; check bootstrap.servers and the name service")
