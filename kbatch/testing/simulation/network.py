"""The network of a world: it performs the engine's actions, with latency and faults.

Theory of operation. `Shell` plays the sender's thread of a real producer: it gives the engine its events,
runs it, performs its actions, and sleeps until the next event or the engine's deadline. A `Link` is a
connection, from the client's socket to the node's: bytes travel in pieces, in order, each direction by
itself, and links are independent. When a link breaks, bytes on their way to the node are lost, or, in some
worlds, arrive later.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kbatch.core.client import actions
from kbatch.core.producer.actions import Seal
from kbatch.errors import NetworkError
from kbatch.sasl import mechanism_of
from kbatch.testing.simulation.schedule import MS, SECOND, ScheduledAction
from kbatch.testing.simulation.trace import Violation

if TYPE_CHECKING:
    from kbatch.sasl import Exchange
    from kbatch.testing.simulation.surroundings import Host

BROKEN_NET = "10.9."  # addresses where no node listens
IDLE_ROUNDS = 1100  # that the sender may have in a virtual second without anything to do
NEVER = 2**63 - 1


class Link:
    """One connection. The client's end has `pending` buffers, the node's end `arrived` bytes."""

    def __init__(self, world: Host, connection_id: int, node_id: int) -> None:
        self.connection_id = connection_id
        self.node_id = node_id
        self.is_open = True  # for the client
        self.is_cut = False  # for the node: nothing more arrives
        self._world = world
        self._pending: deque[memoryview] = deque()
        self._copies = bytearray()  # of what is pending, as it was handed over
        self._writing: ScheduledAction | None = None
        self._answers = bytearray()
        low, high = world.options.cluster.latency_ms
        self._latency_ns = int(world.random.uniform(low, high) * MS)
        self._last_there_ns = 0
        self._last_back_ns = 0
        self._loses_answers = False  # that were in flight when the link broke
        self.break_at_bytes: int | None = None
        self.end = world.cluster.accept(self)

    # The client's end

    def write(self, buffers: Sequence[bytes | memoryview]) -> None:
        views = [memoryview(buffer) for buffer in buffers]
        self._world.wire.handed_over(self.connection_id, b"".join(buffers))
        for buffer, view in zip(buffers, views, strict=True):
            self._copies += view
            self._pending.append(buffer if isinstance(buffer, memoryview) else view)
        if self._writing is None:
            if self.break_at_bytes is None:
                self.break_at_bytes = self._world.faults.break_at_bytes(len(self._copies))
            self._write_some()

    def _write_some(self) -> None:
        """Write as much as the socket has room for, the rest later."""
        self._writing = None
        random, chunk_bytes = self._world.random, self._world.options.cluster.chunk_bytes
        room = random.randrange(1, 2 * max(chunk_bytes, len(self._copies) // 4))
        if self.break_at_bytes is not None:
            room = min(room, self.break_at_bytes)
        taken = self._take(room)
        self._world.wire.written(self.connection_id, len(taken))
        self._world.shell.post(self._world.engine.handle_written, self.connection_id, len(taken))
        self._send_there(taken)
        if self.break_at_bytes is not None:
            self.break_at_bytes -= len(taken)
            if self.break_at_bytes <= 0:
                self.break_at_bytes = None
                self.cut(ConnectionResetError("cut while it was written"))
                return
        if self._pending:
            self._writing = self._world.schedule.after(random.randrange(1, 5 * MS), self._write_some)

    def _take(self, room: int) -> bytes:
        taken = bytearray()
        while self._pending and len(taken) < room:
            buffer = self._pending.popleft()
            left = room - len(taken)
            taken += buffer[:left]
            if left < len(buffer):
                self._pending.appendleft(buffer[left:])
            buffer.release()
        if taken != self._copies[: len(taken)]:
            raise Violation(f"bytes changed while connection {self.connection_id} was written to")
        del self._copies[: len(taken)]
        return bytes(taken)

    def close(self) -> None:
        """Close the client's end. Sent bytes may still arrive at the node."""
        self._let_go()
        self._world.wire.ended(self.connection_id)
        self._end_there()

    def _end_there(self) -> None:
        """Lose all bytes on their way to the node, or have them arrive later."""
        late_ns = self._world.faults.late_ns()
        if late_ns:
            self.end.hold(late_ns)
        else:
            self.is_cut = True
            self.end.cut()

    def _let_go(self) -> None:
        self.is_open = False
        if self._writing is not None:
            self._writing.cancel()
        for buffer in self._pending:
            buffer.release()
        self._pending.clear()
        self._copies.clear()

    # On the way

    def _send_there(self, data: bytes) -> None:
        """Send bytes to the node, in order."""
        self._last_there_ns = max(self._last_there_ns, self._arrival_ns())

        def arrive() -> None:
            if not self.is_cut:
                self.end.receive(data)

        if data:
            self._world.schedule.at(self._last_there_ns, arrive)

    def send_back(self, data: bytes) -> None:
        """Send bytes to the client, in order, in pieces."""
        is_cut_up = len(data) > self._world.options.cluster.chunk_bytes
        for piece in (data[:1], data[1:5], data[5:-1], data[-1:]) if is_cut_up else (data,):
            self._last_back_ns = max(self._last_back_ns, self._arrival_ns())
            self._world.schedule.at(self._last_back_ns, partial(self._arrive_back, piece))

    def _arrive_back(self, piece: bytes) -> None:
        if self.is_open and not self._loses_answers:
            self._world.shell.post(self._read, piece)

    def _read(self, piece: bytes, now_ns: int) -> None:
        """Read the bytes that have arrived at the client's socket."""
        if not self.is_open:
            return
        self._answers += piece
        while len(self._answers) >= 4:
            size = int.from_bytes(self._answers[:4], "big")
            if len(self._answers) < 4 + size:
                break
            self._world.wire.answered(self.connection_id, bytes(self._answers[4 : 4 + size]))
            del self._answers[: 4 + size]
        self._world.engine.handle_bytes(self.connection_id, piece, now_ns)

    def _arrival_ns(self) -> int:
        jitter = self._world.random.random() * 0.5 + 0.75
        return self._world.schedule.now_ns + int(self._latency_ns * jitter)

    def cut(self, error: OSError, *, by_node: bool = False, loses_answers: bool = True) -> None:
        """Cut the link at the node or in between. The client learns of it a little later.

        `loses_answers` says whether answers that are on their way may be lost.
        """
        if self.is_cut:
            return
        if by_node:
            self.is_cut = True
            self.end.cut()
        else:
            self._end_there()
        if self.is_open:
            at_ns = max(self._last_back_ns, self._arrival_ns())
            if loses_answers:
                self._loses_answers = self._world.random.random() < 0.7
            self._world.schedule.at(at_ns, lambda: self._learn(error))

    def _learn(self, error: OSError) -> None:
        if self.is_open:
            self._world.shell.post(self._closed, error)

    def _closed(self, error: OSError, now_ns: int) -> None:
        if self.is_open:
            self._let_go()
            self._world.wire.ended(self.connection_id)
            self._world.trace("connection %d: %s", self.connection_id, error)
            self._world.engine.handle_closed(self.connection_id, error, now_ns)


class Shell:
    """The sender's thread, and the login thread."""

    def __init__(self, world: Host) -> None:
        self._world = world
        self._inbox: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._round: ScheduledAction | None = None
        self.links: dict[int, Link | None] = {}
        self._has_events = False
        self._was_called = False
        self._idle_rounds: deque[int] = deque()
        self.round_count = 0
        self.is_alive = True
        self._exchanges: dict[int, Exchange] = {}  # by connection

    def post(self, handle: Callable[..., None], *arguments: Any) -> None:
        """Call `handle(*arguments, now_ns)` in the sender's next round."""
        self._inbox.append((handle, arguments))
        self.schedule_round()

    def wake(self) -> None:
        """Wake the sender. Any thread may call it."""
        self._was_called = True
        self.schedule_round()

    def schedule_round(self) -> None:
        """Schedule a round soon, unless one comes sooner."""
        if not self.is_alive:
            return
        self._has_events = True
        schedule = self._world.schedule
        delay_ns = self._world.options.round_us * 1000
        if self._round is None or self._round.at_ns > schedule.now_ns + delay_ns:
            self._sleep(delay_ns)

    def _sleep(self, delay_ns: int) -> None:
        if self._round is not None:
            self._round.cancel()
        self._round = self._world.schedule.after(delay_ns, self._run)

    def _run(self) -> None:
        world, engine = self._world, self._world.engine
        now_ns = world.schedule.now_ns
        self._round = None
        self.round_count += 1
        had_events, self._has_events = self._has_events, False
        while self._inbox:
            handle, arguments = self._inbox.popleft()
            handle(*arguments, now_ns)
            world.application.note_event()
        completed = engine.poll_completed()
        due = self._run_engine(now_ns)
        world.application.note_event()
        completed += engine.poll_completed()
        world.application.deliver(completed)
        for action in due:
            ACTIONS[type(action)](self, action)
        world.check_engine()
        if not had_events and not due and not completed:
            self._count_idle(now_ns)
        engine.observe(now_ns)
        deadline_ns = engine.deadline_ns(now_ns)
        if deadline_ns < NEVER and not self._inbox and self.is_alive:
            delay_ns = max(deadline_ns - now_ns, world.options.round_us * 1000)
            if self._round is None or self._round.at_ns > now_ns + delay_ns:
                self._sleep(delay_ns)

    def _run_engine(self, now_ns: int) -> list[Any]:
        """Perform the engine's actions. As in EngineDriver, an idle engine is not run unless it was called;
        every other round runs it, and it must find nothing to do.
        """
        engine = self._world.engine
        was_called, self._was_called = self._was_called, False
        is_quiet = not was_called and engine.is_quiet(now_ns)
        if is_quiet and self.round_count % 2:
            return []
        engine.run(now_ns)
        due = engine.poll_actions()
        if is_quiet and (due or not engine.is_quiet(now_ns)):
            raise Violation(f"the engine was quiet, and had something to do: {due}")
        return due

    def _count_idle(self, now_ns: int) -> None:
        self._idle_rounds.append(now_ns)
        while self._idle_rounds[0] < now_ns - SECOND:
            self._idle_rounds.popleft()
        if len(self._idle_rounds) > IDLE_ROUNDS:
            raise Violation(f"a busy loop: {len(self._idle_rounds)} rounds for nothing in a second")

    # Actions

    def _resolve(self, action: actions.Resolve) -> None:
        delay_ns = int(self._world.random.uniform(0.1, 5) * MS)
        answer = self._world.cluster.resolve(action.host, action.port)
        handle = self._world.engine.handle_resolved
        self._world.trace("resolve %s:%s: %s", action.host, action.port, answer)
        self._world.schedule.after(delay_ns, lambda: self.post(handle, action.host, action.port, answer))

    def _connect(self, action: actions.Connect) -> None:
        world, connection_id = self._world, action.connection_id
        if connection_id in self.links:
            raise Violation(f"connection {connection_id} is made twice")
        self.links[connection_id] = None
        node_id = world.cluster.node_at(action.sockaddr)
        world.trace("connect %d to node %s at %s", connection_id, action.node_id, action.sockaddr)
        world.wire.connected(connection_id, action.node_id)
        if node_id is None:  # no node answers there
            return
        delay_ns = int(world.random.uniform(*world.options.cluster.latency_ms) * MS * 2)
        world.schedule.after(delay_ns, lambda: self.post(self._connected, connection_id, node_id))

    def _connected(self, connection_id: int, node_id: int, now_ns: int) -> None:
        if connection_id not in self.links:  # given up
            return
        if not self._world.cluster.is_up(node_id):
            self._world.wire.ended(connection_id)
            error = ConnectionRefusedError(f"no process listens at node {node_id}")
            self._world.engine.handle_closed(connection_id, error, now_ns)
            return
        self._world.wire.opened(connection_id)
        self.links[connection_id] = Link(self._world, connection_id, node_id)
        self._world.engine.handle_connected(connection_id, now_ns)

    def _write(self, action: actions.Write) -> None:
        link = self.links.get(action.connection_id)
        if sum(map(len, action.buffers)) != action.size_bytes:
            raise Violation(f"a Write says that it has {action.size_bytes} bytes: {action}")
        if link is not None and link.is_open:
            link.write(action.buffers)
        else:  # it has just gone; the engine does not know yet
            for buffer in action.buffers:
                if isinstance(buffer, memoryview):
                    buffer.release()

    def _close(self, action: actions.Close) -> None:
        self._world.trace("close connection %d", action.connection_id)
        link = self.links.pop(action.connection_id, None)
        if link is not None and link.is_open:
            link.close()
        else:
            self._world.wire.ended(action.connection_id)

    def _authenticate(self, action: actions.Authenticate) -> None:
        """Make a token on the login thread, some time later."""
        world, connection_id = self._world, action.connection_id
        assert world.options.login is not None
        if action.challenge is None:
            mechanism = mechanism_of(world.config, lambda coroutine: None)
            self._exchanges[connection_id] = mechanism.exchange(action.host)
        exchange = self._exchanges[connection_id]

        def make_token() -> None:
            if self._exchanges.get(connection_id) is not exchange:
                return  # it was dropped
            if world.faults.breaks_tokens():
                result: Any = NetworkError("no token: its provider is out of reach")
            else:
                result = exchange.step(action.challenge)
            self.post(world.engine.handle_token, connection_id, result)

        world.schedule.after(int(world.random.random() * world.options.login.token_ms * MS), make_token)

    def _end_authentication(self, action: actions.EndAuthentication) -> None:
        self._exchanges.pop(action.connection_id, None)

    def _seal(self, action: Any) -> None:
        """Seal a batch on a pool's thread, some time later."""
        delay_ns = int(self._world.random.random() * self._world.options.seal_ms * MS)
        self._world.schedule.after(delay_ns, action.batch.seal)

    def stop(self) -> None:
        """End the thread, and close its sockets."""
        self.is_alive = False
        for link in self.links.values():
            if link is not None and link.is_open:
                link.close()
        if self._round is not None:
            self._round.cancel()


ACTIONS: dict[type, Callable[[Shell, Any], None]] = {
    actions.Resolve: Shell._resolve,
    actions.Connect: Shell._connect,
    actions.Write: Shell._write,
    actions.Close: Shell._close,
    actions.Authenticate: Shell._authenticate,
    actions.EndAuthentication: Shell._end_authentication,
    Seal: Shell._seal,
}


def addresses_of(host: str, node_id: int, broken_count: int, port: int) -> list[tuple[int, Any]]:
    """Return the addresses of a node's name, first those where no node listens."""
    broken = [f"{BROKEN_NET}{node_id}.{number}" for number in range(broken_count)]
    return [(socket.AF_INET, (address, port)) for address in (*broken, f"10.0.{node_id}.1")]
