"""Sockets for the embedded broker: an asyncio loop in its own thread, with each listener of each node.

Each connection's requests are answered one after another, as in Kafka. While an answer is outstanding (a
fetch that waits, a group that gathers) or its client has not taken all of it, no other request is handled,
and soon nothing more is read. An answer refers to the log, and is copied in pieces, as the client takes them.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from kbatch._native.io.interrupts import NativeEvent, thread_ident
from kbatch.errors import IllegalStateError
from kbatch.testing.broker.broker_state import Connection
from kbatch.testing.broker.core import BrokerCore, Reply
from kbatch.testing.broker.security.certificates import principal_of
from kbatch.testing.broker.security.token_endpoint import TokenEndpoint
from kbatch.unpatched import real_selectors, real_threading

T = TypeVar("T")
MAX_REQUEST_BYTES = 100 << 20  # socket.request.max.bytes
MAX_CONNECTIONS = 1000
IDLE_SECONDS = 600  # connections.max.idle.ms
# What a connection has at most: requests that wait, in number and in bytes (and the one that exceeds them),
# and of an answer what was copied for the socket.
QUEUED_REQUESTS = 16
QUEUED_BYTES = 1 << 20
PIECE_BYTES = 1 << 17
BROKEN_RECORD_BYTES = 32
BROKEN_RECORD = b"\x17\x03\x03" + BROKEN_RECORD_BYTES.to_bytes(2, "big")  # a TLS record of application data
NOT_RUNNING = "the broker does not run; start it, or use it in a with block"


class Server:
    """The sockets of a core's nodes, until it is stopped.

    `ports` has a list for each node, with a port for each listener or 0; `tls` the context of each listener
    that has one. `token_port` is the port of the token endpoint, 0 for a free one, None without one.

    The core belongs to the loop's thread; `call` runs a function there. Other threads take turns, so that
    none waits for a loop that another has stopped.
    """

    def __init__(
        self,
        core: BrokerCore,
        host: str,
        ports: Sequence[Sequence[int]],
        *,
        tls: Sequence[ssl.SSLContext | None] = (None,),
        token_port: int | None = None,
        max_connections: int = MAX_CONNECTIONS,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self.core = core
        self.max_connections = max_connections
        self.idle_seconds = idle_seconds
        self.connections: set[ClientConnection] = set()
        self._host = host
        self._ports = list(ports)
        self._tls = tls
        self._endpoint = None
        if token_port is not None:
            users = core.state.options.users or {}
            self._endpoint = TokenEndpoint(core.state.tokens, users, self.now_ms, token_port)
        self._listeners: dict[int, list[asyncio.Server]] = {}
        # A real thread, even among greenlets: a loop that runs in one of theirs is in the way of all others.
        self._loop = asyncio.SelectorEventLoop(real_selectors().DefaultSelector())
        self._timer: asyncio.TimerHandle | None = None
        self._thread = real_threading().Thread(target=self._run, name="kbatch-broker", daemon=True)
        self._turn = real_threading().Lock()
        # The wall clock at the start, and monotonic from there: it steps by `advance` only.
        self._clock_offset = time.time() - time.monotonic()

    @property
    def token_port(self) -> int | None:
        return None if self._endpoint is None else self._endpoint.port

    def now_ms(self) -> int:
        return int((time.monotonic() + self._clock_offset) * 1000)

    # From any thread

    def start(self) -> None:
        """Start the thread, and return when all nodes listen; raise OSError if one cannot."""
        self._thread.start()
        try:
            self._wait_for(self._listen([node.node_id for node in self.core.state.cluster.nodes]))
        except BaseException:
            self.stop()
            raise
        self._loop.call_soon_threadsafe(self._close_idle)

    def stop(self) -> None:
        """Close listeners and connections, and wait for the thread. A second call does nothing."""
        self._check_outside("stop")
        with self._turn:
            if self._thread.is_alive():
                self._wait_for(self._close_all())
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join()
            self._loop.close()

    def call(self, function: Callable[[], T]) -> T:
        """Run `function()` in the loop's thread, and return or raise its result.

        The caller may be in that thread, because an interceptor may use the broker as a test does.
        """
        if self._thread.ident == thread_ident():
            return function()
        with self._turn:
            return self._wait_for(self._call(function))

    def wait_in_sync(self, topic: str | None, timeout_ms: int) -> None:
        """Return when all replicas are in sync; raise TimeoutError if they are not in time."""
        self._check_outside("wait")
        done, found = NativeEvent(), []

        def tell(lagging: list[str]) -> None:
            found.extend(lagging)
            done.set()

        state = self.core.state
        self.call(lambda: state.when_in_sync(topic, state.now_ms + timeout_ms, tell))
        if not done.wait(timeout_ms / 1000 + 5):  # the broker's clock ends it, unless the broker stops
            raise IllegalStateError(NOT_RUNNING)
        if found:
            raise TimeoutError(
                f"after {timeout_ms / 1000:g} s, {len(found)} partition(s) are not in sync: "
                + ", ".join(found[:10])
            )

    def start_listening(self, node_id: int) -> None:
        """Listen on the node's earlier port, if it had one; raise OSError if it is in use."""
        self._check_outside("start a node")
        with self._turn:
            self._wait_for(self._listen([node_id]))

    def _wait_for(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if not self._thread.is_alive():
            coroutine.close()
            raise IllegalStateError(NOT_RUNNING)
        done, tasks = NativeEvent(), []

        def begin() -> None:
            tasks.append(self._loop.create_task(coroutine))
            tasks[0].add_done_callback(lambda task: done.set())

        self._loop.call_soon_threadsafe(begin)
        done.wait(None)  # unlike a wait of concurrent.futures, which greenlets may have patched
        return tasks[0].result()

    def _check_outside(self, action: str) -> None:
        if self._thread.ident == thread_ident():
            raise IllegalStateError(f"an interceptor runs in the broker's thread, and cannot {action}")

    # In the loop's thread

    async def _call(self, function: Callable[[], T]) -> T:
        self.core.state.now_ms = self.now_ms()
        try:
            return function()
        finally:
            self._time_out()

    async def _listen(self, node_ids: list[int]) -> None:
        """Open all listeners before the first client can ask for their ports."""
        if self._endpoint is not None and not self._listeners:
            await self._endpoint.start(self._host)
        for node_id in node_ids:
            node = self.core.state.cluster.nodes[node_id]
            opened = self._listeners.setdefault(node_id, [])
            for index, (port, context) in enumerate(zip(self._ports[node_id], self._tls, strict=True)):
                listener = await self._loop.create_server(
                    partial(ClientConnection, self, node_id, index),
                    self._host,
                    port,
                    ssl=context,
                    start_serving=False,
                )
                opened.append(listener)
            node.host = self._host
            node.ports = [listener.sockets[0].getsockname()[1] for listener in opened]
            self._ports[node_id] = node.ports
        for node_id in node_ids:
            for listener in self._listeners[node_id]:
                await listener.start_serving()

    def close_node(self, node_id: int) -> None:
        """Close the node's listeners, if it has any, and all its connections."""
        for listener in self._listeners.pop(node_id, ()):
            # asyncio forgets a client that it has accepted, and not yet handed over, if it is closed at once
            for opened in listener.sockets:
                self._loop.remove_reader(opened.fileno())
            self._loop.call_soon(listener.close)
        for connection in [each for each in self.connections if each.node_id == node_id]:
            connection.close()

    def go_on(self) -> None:
        """Answer what clients sent to nodes that did not answer for a while."""
        for connection in list(self.connections):
            connection.go_on()

    def advance(self, duration_ms: int) -> None:
        """Let the clock run ahead, deadline by deadline."""
        end_ms = self.now_ms() + duration_ms
        while (deadline_ms := self.core.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            self._set_clock(deadline_ms)
            self.core.handle_timeout(self.now_ms())
        self._set_clock(end_ms)
        self.reschedule()

    def _set_clock(self, time_ms: int) -> None:
        self._clock_offset += max(time_ms - self.now_ms(), 0) / 1000

    def may_connect(self, node_id: int) -> bool:
        return node_id in self._listeners and len(self.connections) < self.max_connections

    def reschedule(self) -> None:
        """Schedule the next timeout, after the core's deadline may have changed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline_ms = self.core.next_deadline_ms()
        if deadline_ms is not None:
            delay = max(deadline_ms - self.now_ms(), 0) / 1000
            self._timer = self._loop.call_later(delay, self._time_out)

    def _time_out(self) -> None:
        try:
            self.core.handle_timeout(self.now_ms())
        finally:
            self.reschedule()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def _close_all(self) -> None:
        for node_id in list(self._listeners):
            self.close_node(node_id)
        if self._endpoint is not None:
            self._endpoint.close()
        # clients that are just connecting find no listener any more, and are closed
        if others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others)

    def _close_idle(self) -> None:
        horizon = time.monotonic() - self.idle_seconds
        for connection in [each for each in self.connections if each.used_at < horizon]:
            connection.close()
        self._loop.call_later(self.idle_seconds / 4, self._close_idle)


class ClientConnection(asyncio.Protocol):
    """One client's connection: collects frames, and answers them in order, one at a time."""

    def __init__(self, server: Server, node_id: int, listener: int) -> None:
        self.node_id = node_id
        self.used_at = time.monotonic()
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._connection = Connection(node_id, listener)
        self._incoming = bytearray()
        self._frames: deque[bytes] = deque()
        self._is_busy = False  # an answer is outstanding or not yet taken, or the connection is muted
        self._reply: Reply | None = None  # being written
        self._pieces: Iterator[bytes] = iter(())  # what is left of it
        self._may_write = True
        self._is_paused = False
        self._is_tls = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peer: Any = transport.get_extra_info("peername")
        if peer is None or not self._server.may_connect(self.node_id):  # None: the client is gone already
            transport.abort()
            return
        self._connection.client_host, self._connection.client_port = peer[:2]
        self._is_tls = transport.get_extra_info("ssl_object") is not None
        if not self._server.core.state.listener(self._connection).has_sasl:
            self._connection.session.user = principal_of(transport.get_extra_info("peercert"))
        self._server.connections.add(self)
        delay_ms = self._server.core.connection_made(self._connection, self._server.now_ms())
        if delay_ms:
            transport.pause_reading()
            asyncio.get_running_loop().call_later(delay_ms / 1000, self.close)

    def connection_lost(self, error: Exception | None) -> None:
        self._server.connections.discard(self)
        self._transport = None
        self._frames.clear()
        self._reply, self._pieces = None, iter(())
        self._server.core.connection_lost(self._connection, self._server.now_ms())
        self._server.reschedule()

    def go_on(self) -> None:
        self._write()
        self._go_on()

    @property
    def _answers(self) -> bool:
        return self._server.core.state.outages.answers_clients(self.node_id)

    def close(self) -> None:
        """Close at once: nothing more is sent, and none of its requests is handled."""
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    def data_received(self, data: bytes) -> None:
        self.used_at = time.monotonic()
        self._incoming += data
        if self._take_frames():
            self._go_on()
        else:
            self.close()

    def pause_writing(self) -> None:
        self._may_write = False

    def resume_writing(self) -> None:
        self._may_write = True
        self.go_on()

    def _take_frames(self) -> bool:
        """Queue the whole frames among the received bytes; return False if a size is invalid."""
        at, incoming = 0, self._incoming
        while len(incoming) - at >= 4:
            size = int.from_bytes(incoming[at : at + 4], "big", signed=True)
            if not 0 <= size <= MAX_REQUEST_BYTES:
                return False
            if len(incoming) - at - 4 < size:
                break
            self._frames.append(bytes(memoryview(incoming)[at + 4 : at + 4 + size]))
            at += 4 + size
        del incoming[:at]
        return True

    def _go_on(self) -> None:
        """Answer the waiting frames, as many as possible now."""
        while self._frames and not self._is_busy and self._may_write and self._transport is not None:
            if not self._answers:
                break
            self._is_busy = True
            now_ms = self._server.now_ms()
            reply = self._server.core.handle(self._connection, self._frames.popleft(), now_ms)
            reply.then(lambda reply=reply: self._send(reply))  # type: ignore[misc]
            self._server.reschedule()
        queued_bytes = sum(map(len, self._frames))
        self._pause_reading(len(self._frames) >= QUEUED_REQUESTS or queued_bytes >= QUEUED_BYTES)

    def _send(self, reply: Reply) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if reply.breaks_tls and self._is_tls:
            self._break_tls(self._transport)
            return
        if reply.closes_connection and not reply.buffers:
            self.close()
            return
        assert reply.buffers is not None
        self._reply, self._pieces = reply, _pieces(reply.buffers)
        self._write()

    def _write(self) -> None:
        """Write the answer as far as the client takes it."""
        transport = self._transport
        while self._reply is not None and self._may_write and transport is not None:
            if transport.is_closing() or not self._answers:
                return
            piece = next(self._pieces, None)
            if piece is None:
                reply, self._reply = self._reply, None
                self._written(reply)
                return
            self.used_at = time.monotonic()
            transport.write(piece)

    def _written(self, reply: Reply) -> None:
        if reply.closes_connection and self._transport is not None:
            self._transport.close()
            self._transport = None
        elif reply.mute_ms:
            asyncio.get_running_loop().call_later(reply.mute_ms / 1000, self._answered)
        else:
            self._answered()

    def _break_tls(self, transport: asyncio.Transport) -> None:
        """Send a record that no key decrypts, below the TLS layer; the client closes the connection then."""
        shared: socket.socket = transport.get_extra_info("socket")
        with socket.fromfd(shared.fileno(), shared.family, socket.SOCK_STREAM) as raw:
            raw.send(BROKEN_RECORD + os.urandom(BROKEN_RECORD_BYTES))
        self._is_busy = True  # until the client closes, nothing more is answered

    def _answered(self) -> None:
        was_waiting = self._is_busy
        self._is_busy = False
        if was_waiting and self._frames:
            asyncio.get_running_loop().call_soon(self._go_on)

    def _pause_reading(self, pause: bool) -> None:
        if self._transport is None or pause == self._is_paused or self._transport.is_closing():
            return
        self._is_paused = pause
        if pause:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()


def _pieces(buffers: Sequence[bytes | memoryview]) -> Iterator[bytes]:
    """Yield copies of the buffers' bytes, PIECE_BYTES each, and less in the end."""
    parts: list[memoryview] = []
    size = 0
    for buffer in buffers:
        left = memoryview(buffer)
        while len(left):
            part, left = left[: PIECE_BYTES - size], left[PIECE_BYTES - size :]
            parts.append(part)
            size += len(part)
            if size == PIECE_BYTES:
                yield b"".join(parts)
                parts, size = [], 0
    if parts:
        yield b"".join(parts)
