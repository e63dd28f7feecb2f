"""EngineDriver: the common part of a thread and an event loop that own an engine, beside their rounds.

It has what both need for connections: options of sockets, TLS, the login, and the waker by which any thread
lets the engine run.
"""

import codecs
import socket
from abc import abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from kbatch._native.io.waker import Waker
from kbatch.config import ClientConfig
from kbatch.core.client.actions import Address, Authenticate, Connect, EndAuthentication
from kbatch.metrics import MetricsRegistry
from kbatch.network.rounds import DrivenEngine, EngineRounds
from kbatch.network.workers import Workers
from kbatch.unpatched import real_socket

if TYPE_CHECKING:
    import asyncio
    from ssl import SSLContext

    from kbatch.network.tls import ClientTls, Handshake

RECEIVE_BYTES = 131_072


class EngineDriver(EngineRounds):
    """Drives an engine whose connections are sockets.

    Parameters
    ----------
    engine, deliver, metrics
        Parameters of EngineRounds.
    config : ClientConfig
        Its socket buffers, ssl and sasl keys are used.
    name : str
        The owner's name, with which its threads' names begin.
    waker : Waker or None
        An existing waker, if an accumulator needs its `wake` before there is an engine.

    Attributes
    ----------
    name : str
    wake : callable
        Lets the engine run soon. Any thread and native code may call it, also before there is an owner and
        after its end, without effect.

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
        super().__init__(engine, deliver=deliver, metrics=metrics)
        self._config = config
        self.name = name
        self._tls = _tls_of(config)
        codecs.lookup("idna")  # which getaddrinfo imports: see _tls_of
        self._lookers = Workers(f"{name}-certificates", 1)
        self._preparing: dict[int, Connect] = {}  # connections that wait for certificates, by id
        self._is_looking = False
        self._waker = Waker() if waker is None else waker
        self.wake = self._waker.wake
        if config.security_protocol.startswith("SASL_"):
            from kbatch.network.login import login_of  # which takes a mechanism, and asyncio

            login = login_of(config, self._take_token, self.post, self.event_loop)
            self.register(Authenticate, login.perform, login.stop)
            self.register(EndAuthentication, login.end)

    def _connect(self, action: Connect) -> None:
        """Connect, under TLS after a look at the certificates on another thread: the file system and the
        program's callables may take long.
        """
        if self._tls is None or not (self._is_looking or self._tls.wants_look(self._clock_ns())):
            self._begin_connection(action)
            return
        self._preparing[action.connection_id] = action
        self._note_preparing(action, self._tls.looks_at)
        if not self._is_looking:
            self._is_looking = True
            self._lookers.submit(partial(_look, self._tls, self.post, self._prepared))

    def _prepared(self, context: "SSLContext | None") -> None:
        assert self._tls is not None
        self._is_looking = False
        self._tls.adopt(context)
        actions, self._preparing = list(self._preparing.values()), {}
        for action in actions:
            self._note_preparing(action, "")
            self._begin_connection(action)

    def _note_preparing(self, action: Connect, awaited: str) -> None:
        self._engine_alone().handle_preparing(action.connection_id, awaited, self._clock_ns())

    @abstractmethod
    def _begin_connection(self, action: Connect) -> None:
        """Make a socket, and connect it."""

    def _handshake(self, action: Connect) -> "Handshake | None":
        """Return the TLS of a new connection; None for plain ones."""
        return None if self._tls is None else self._tls.handshake(action.host, action.port, peer_of(action))

    def _new_socket(self, family: int) -> socket.socket:
        """Return a non-blocking socket with the options of the configuration."""
        made = real_socket(family)
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


def _look(
    tls: "ClientTls",
    post: Callable[[Callable[[], object]], object],
    prepared: "Callable[[SSLContext | None], object]",
) -> None:
    """Look at the certificates, and let the owner go on, whatever the program's callable raises."""
    context = None
    try:
        context = tls.look()
    finally:
        with suppress(RuntimeError):  # the event loop is closed
            post(partial(prepared, context))


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
    """Return the error of a failed look-up."""
    reason = getattr(error, "strerror", None) or error
    return OSError(f"{host} has no address: {reason}")
