"""The network of a world: it performs the engine's actions, with latency and faults.

Theory of operation. `Shell` is the sender's thread of a producer: it does the rounds that ThreadNetwork and
LoopNetwork do (EngineRounds), and sleeps until the next event or the engine's deadline. A `Link` is a
connection, from the client's socket to the node's: bytes travel in pieces, in order, each direction by
itself, and links are independent. When a link breaks, bytes on their way to the node are lost, or, in some
worlds, arrive later.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from kbatch.core.client.actions import (
    Authenticate,
    Close,
    Connect,
    EndAuthentication,
    Resolve,
    Write,
    release,
)
from kbatch.core.producer.actions import Seal
from kbatch.errors import NetworkError
from kbatch.network.rounds import EngineRounds
from kbatch.sasl import mechanism_of
from tests.simulation.world.schedule import MS, LastSecond, Schedule, ScheduledAction
from tests.simulation.world.trace import Violation

if TYPE_CHECKING:
    import random

    from kbatch.config import ClientConfig
    from kbatch.network.loan_driver import LendingEngine
    from kbatch.network.rounds import DrivenEngine
    from kbatch.sasl import Exchange
    from tests.simulation.world.fate import Fate
    from tests.simulation.world.options import WorldOptions

BROKEN_NET = "10.9."  # addresses where no node listens
IDLE_ROUNDS = 1100  # that the sender may have in a virtual second without anything to do


# What the network needs of the rest of a world


class Receiver(Protocol):
    """The application, as its client's network sees it."""

    def note_event(self) -> None:
        """Note that the client has handled an event."""

    def deliver(self, done: Iterable[Any], /) -> None: ...


class Faults(Protocol):
    """The faults of a world, as all else in it sees them.

    Attributes
    ----------
    is_active : bool
        Faults happen: not all is healed yet.
    counts : dict of str to int
        The number of faults by kind.
    refused_requests : tuple of str
        Requests that may be answered with an error without being executed.
    """

    is_active: bool
    counts: dict[str, int]
    refused_requests: tuple[str, ...]

    def for_request(self, link: Link, frame: bytes, /) -> Fate: ...
    def late_ns(self) -> int: ...
    def breaks_tokens(self) -> bool: ...
    def breaks_names(self) -> bool: ...
    def break_at_bytes(self, size: int, /) -> int | None: ...
    def note(self, name: str, /) -> None:
        """Count an event that is a fault of the programs' own."""


class Nodes(Protocol):
    """The brokers, as the network sees them."""

    def resolve(self, host: str, port: int, /) -> Any: ...
    def node_at(self, sockaddr: Any, /) -> int | None: ...
    def is_up(self, node_id: int, /) -> bool: ...
    def name_of(self, topic_id: bytes, /) -> str: ...
    def accept(self, link: Link, /) -> Any: ...


class Observer(Protocol):
    """Sees what goes over connections."""

    def connected(self, connection_id: int, node_id: int, /) -> None: ...
    def opened(self, connection_id: int, /) -> None: ...
    def handed_over(self, connection_id: int, data: bytes, /) -> None: ...
    def written(self, connection_id: int, size: int, /) -> None: ...
    def answered(self, connection_id: int, frame: bytes, /) -> None: ...
    def ended(self, connection_id: int, /) -> None: ...


class ClientHost(Protocol):
    """A client and its surroundings, as its network sees them."""

    options: WorldOptions
    random: random.Random
    schedule: Schedule

    @property
    def config(self) -> ClientConfig: ...

    @property
    def engine(self) -> DrivenEngine: ...

    @property
    def cluster(self) -> Nodes: ...

    @property
    def shell(self) -> Shell: ...

    @property
    def faults(self) -> Faults: ...

    @property
    def trace(self) -> Callable[..., None]: ...

    @property
    def wire(self) -> Observer: ...

    @property
    def application(self) -> Receiver: ...

    def check_engine(self) -> None:
        """Check the engine after a round of its owner."""


# The network


def whole_frames(gathered: bytearray, data: bytes) -> list[bytes]:
    """Gather more bytes of a connection, and take out the frames that are whole, without their sizes."""
    gathered += data
    frames, at, end = [], 0, len(gathered)
    while end - at >= 4:
        next_at = at + 4 + int.from_bytes(gathered[at : at + 4], "big")
        if next_at > end:
            break
        frames.append(bytes(gathered[at + 4 : next_at]))
        at = next_at
    del gathered[:at]
    return frames


def whole_requests(connection_id: int, data: bytes) -> Iterator[bytes]:
    """Yield the requests of one Write, without their sizes; a Write has whole requests."""
    rest = bytearray()
    yield from whole_frames(rest, data)
    if rest:
        raise Violation(f"connection {connection_id} got a part of a request")


class Link:
    """One connection. The client's end has `pending` buffers, the node's end `arrived` bytes."""

    def __init__(self, world: ClientHost, connection_id: int, node_id: int) -> None:
        self.connection_id = connection_id
        self.node_id = node_id
        self.is_open = True  # for the client
        self.is_cut = False  # for the node: nothing more arrives
        self._world = world
        self._pending: deque[memoryview] = deque()
        self._copies = bytearray()  # of what is pending, as it was handed over
        self._writing: ScheduledAction | None = None
        self._answers = bytearray()
        self._chunk_bytes = world.options.cluster.chunk_bytes
        low, high = world.options.cluster.latency_ms
        self._latency_ns = int(world.random.uniform(low, high) * MS)
        self._last_there_ns = 0
        self._last_back_ns = 0
        self._loses_answers = False  # that were in flight when the link broke
        self.break_at_bytes: int | None = None
        self._unreported_bytes = 0
        self._offered = b""  # the rest of a request whose beginning was taken
        self.end = world.cluster.accept(self)

    # The client's end

    def write(self, buffers: Sequence[bytes | memoryview]) -> None:
        views = [memoryview(buffer) for buffer in buffers]
        self._hand_over(b"".join(buffers))
        self._offered = b""
        for buffer, view in zip(buffers, views, strict=True):
            self._copies += view
            self._pending.append(buffer if isinstance(buffer, memoryview) else view)
        if self._writing is None:
            if self.break_at_bytes is None:
                self.break_at_bytes = self._world.faults.break_at_bytes(len(self._copies))
            self._write_some()

    def offer(self, data: bytes) -> int:
        """Write as much of a request, or of the rest of one, as the socket has room for; return how much."""
        if self._hand_over(data) and self.break_at_bytes is None:
            self.break_at_bytes = self._world.faults.break_at_bytes(len(data))
        taken = data[: self._room_for(len(data))]
        self._offered = data[len(taken) :]
        self._world.wire.written(self.connection_id, len(taken))
        self._took(taken)
        return len(taken)

    def _hand_over(self, data: bytes) -> bool:
        """Report a request to the wire. False if it is the rest of one that was reported before."""
        if not self._offered:
            self._world.wire.handed_over(self.connection_id, data)
            return True
        if data != self._offered:
            raise Violation(f"connection {self.connection_id} goes on with other bytes than were left")
        return False

    def _room_for(self, size: int) -> int:
        room = self._world.random.randrange(1, 2 * max(self._chunk_bytes, size // 4))
        return room if self.break_at_bytes is None else min(room, self.break_at_bytes)

    def _took(self, taken: bytes) -> bool:
        """Send bytes on their way. False if the link broke with the last of them."""
        self._send_there(taken)
        if self.break_at_bytes is not None:
            self.break_at_bytes -= len(taken)
            if self.break_at_bytes <= 0:
                self.break_at_bytes = None
                self.cut(ConnectionResetError("cut while it was written"))
                return False
        return True

    def _write_some(self) -> None:
        """Write as much as the socket has room for, the rest later."""
        self._writing = None
        world, random = self._world, self._world.random
        taken = self._take(self._room_for(len(self._copies)))
        world.wire.written(self.connection_id, len(taken))
        self._unreported_bytes += len(taken)
        world.shell.post(self.report_written)
        if self._took(taken) and self._pending:
            self._writing = world.schedule.after(random.randrange(1, 5 * MS), self._write_some)

    def report_written(self) -> None:
        """Report what the socket took. Real owners do so at once, so that none is left when they stop."""
        size, self._unreported_bytes = self._unreported_bytes, 0
        if size:
            self._world.shell.written(self.connection_id, size)

    def _take(self, room: int) -> bytes:
        pending = self._pending
        if len(pending) == 1 and len(pending[0]) <= room:  # most requests go out whole
            with pending.popleft() as buffer:
                taken = bytes(buffer)
        else:
            taken = self._take_pieces(room)
        if not self._copies.startswith(taken):
            raise Violation(f"bytes changed while connection {self.connection_id} was written to")
        del self._copies[: len(taken)]
        return taken

    def _take_pieces(self, room: int) -> bytes:
        taken = bytearray()
        while self._pending and len(taken) < room:
            buffer = self._pending.popleft()
            left = room - len(taken)
            taken += buffer[:left]
            if left < len(buffer):
                self._pending.appendleft(buffer[left:])
            buffer.release()
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
        is_cut_up = len(data) > self._chunk_bytes
        for piece in (data[:1], data[1:5], data[5:-1], data[-1:]) if is_cut_up else (data,):
            self._last_back_ns = max(self._last_back_ns, self._arrival_ns())
            self._world.schedule.at(self._last_back_ns, partial(self._arrive_back, piece))

    def _arrive_back(self, piece: bytes) -> None:
        if self.is_open and not self._loses_answers:
            self._world.shell.post(partial(self._read, piece))

    def _read(self, piece: bytes) -> None:
        """Read the bytes that have arrived at the client's socket."""
        if not self.is_open:
            return
        for frame in whole_frames(self._answers, piece):
            self._world.wire.answered(self.connection_id, frame)
        self._world.shell.received(self.connection_id, piece)

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
            self._world.shell.post(partial(self._closed, error))

    def _closed(self, error: OSError) -> None:
        if self.is_open:
            self._let_go()
            self._world.wire.ended(self.connection_id)
            self._world.trace("connection %d: %s", self.connection_id, error)
            self._world.shell.closed(self.connection_id, error)


class Shell(EngineRounds):
    """The thread of a client, with its login thread and sealing threads.

    Its rounds are those of every client of kbatch. The clock, the connections and the threads are the
    world's.
    """

    def __init__(self, world: ClientHost, engine: DrivenEngine) -> None:
        super().__init__(engine, deliver=self._hand_over, clock_ns=lambda: world.schedule.now_ns)
        self._world = world
        self._inbox: deque[Callable[[], object]] = deque()
        self._next_round: ScheduledAction | None = None
        self._shortest_wait_ns = world.options.round_us * 1000
        self._slept_ns = world.schedule.now_ns  # since when
        self.links: dict[int, Link | None] = {}
        self._has_events = False
        self._was_called = False
        self._is_in_round = False
        self._must_rest = False  # the engine said that it has nothing to do
        self._is_idle = False  # nothing came of this round
        self._idle_rounds = LastSecond()
        self.is_alive = True
        self._exchanges: dict[int, Exchange] = {}  # by connection
        self.register(Authenticate, self._authenticate, self._exchanges.clear)
        self.register(EndAuthentication, self._end_authentication)
        self.register(Seal, self._seal)

    def use_loans(self, lending: LendingEngine) -> None:
        """Lend the engine's connections while the owner waits, as ThreadNetwork does."""
        self._drive_loans(lending, self._offer)

    def post(self, function: Callable[[], object]) -> None:
        """Call `function()` in the next round."""
        self._inbox.append(function)
        self.schedule_round()

    def ring(self) -> None:
        """Wake the sender, or its lane, since there are batches. Any thread may call it."""
        self._was_called |= self._is_for_engine(was_called=False)
        self.schedule_round()

    def wake(self) -> None:
        """Wake the sender. Any thread may call it."""
        self._was_called = True
        self.schedule_round()

    @property
    def is_asleep(self) -> bool:
        """True if no round comes at once: what could be done now is not done unless something happens."""
        if not self.is_alive or self._is_in_round:
            return False
        soon_ns = self._world.schedule.now_ns + self._shortest_wait_ns
        return self._next_round is None or self._next_round.at_ns > soon_ns

    def schedule_round(self) -> None:
        """Schedule a round soon, unless one comes sooner."""
        self._has_events = True
        self._sleep(0)

    def _sleep(self, wait_ns: int) -> None:
        """Schedule a round after a wait, unless one comes sooner."""
        if not self.is_alive:
            return
        schedule = self._world.schedule
        at_ns = schedule.now_ns + max(wait_ns, self._shortest_wait_ns)
        if self._next_round is not None:
            if self._next_round.at_ns <= at_ns:
                return
            self._next_round.cancel()
        self._next_round = schedule.at(at_ns, self._round)

    def _round(self) -> None:
        """Do a round, as ThreadNetwork does."""
        now_ns = self._world.schedule.now_ns
        self._next_round, self._is_in_round = None, True
        self._is_idle = not self._has_events
        was_called = self._was_called
        self._has_events = self._was_called = False
        while self._inbox:
            self._inbox.popleft()()
            self._world.application.note_event()
        wait_ns = self._do_round(now_ns - self._slept_ns, now_ns, was_called=was_called)
        if self._loan_driver is not None and self._engine.deadline_ns(now_ns) < self._loan_driver.deadline_ns:
            raise Violation("the engine has work, and the lane does not end the loan")
        self._slept_ns, self._is_in_round = now_ns, False
        self._sleep(wait_ns)

    def _run_engine_on(self, waited_ns: int, woken_ns: int, *, was_called: bool) -> int:
        """Run the engine as in any round, and check that it did what it should.

        Every other time that the engine is quiet it is called without need, and must find nothing to do.
        """
        self._must_rest = not was_called and self.round_count % 2 == 0 and self._engine.is_quiet(woken_ns)
        wait_ns = super()._run_engine_on(waited_ns, woken_ns, was_called=was_called or self._must_rest)
        if self._must_rest and not self._engine.is_quiet(woken_ns):
            raise Violation("the engine was quiet, and is not after a run in which nothing happened")
        self._check_nothing_waits()
        self._world.check_engine()
        if self._is_idle:
            self._count_idle(woken_ns)
        return wait_ns

    # The wire

    def received(self, connection_id: int, piece: bytes) -> None:
        """Take received bytes."""
        self._take_bytes(connection_id, piece)

    def written(self, connection_id: int, size: int) -> None:
        """Note written bytes."""
        self._take_written(connection_id, size)

    def closed(self, connection_id: int, error: Exception) -> None:
        """Note the end of a connection."""
        self._engine_alone().handle_closed(
            connection_id,
            error,  # type: ignore[arg-type]
            self._clock_ns(),
        )

    def _offer(self, connection_id: int, data: bytes) -> tuple[int, int]:
        """Write as much of the lane's bytes as the socket has room for, and look again for the rest."""
        link = self.links.get(connection_id)
        if link is None or not link.is_open:
            return 0, 0
        taken = link.offer(data)
        if taken < len(data):
            self._sleep(self._world.random.randrange(1, 5 * MS))
        return taken, taken

    def _check_nothing_waits(self) -> None:
        """Check that a round hands over all that is completed: no other may come soon."""
        if late := self._engine.poll_completed():
            self._hand_over(late)  # which finds those that came before
            raise Violation(f"completed batches wait for the sender's next round: {late}")

    def _run_engine(self) -> bool:
        has_acted = super()._run_engine()
        if has_acted and self._must_rest:
            raise Violation(f"the engine was quiet, and had something to do: {self._actions}")
        self._is_idle &= not has_acted
        self._world.application.note_event()
        return has_acted

    def _hand_over(self, completed: list[Any]) -> None:
        self._is_idle = False
        self._world.application.deliver(completed)

    def _count_idle(self, now_ns: int) -> None:
        if (count := self._idle_rounds.count(now_ns)) > IDLE_ROUNDS:
            raise Violation(f"a busy loop: {count} rounds for nothing in a second")

    # Actions

    def _resolve(self, action: Resolve) -> None:
        delay_ns = int(self._world.random.uniform(0.1, 5) * MS)
        answer = self._world.cluster.resolve(action.host, action.port)
        self._world.trace("resolve %s:%s: %s", action.host, action.port, answer)
        self._world.schedule.after(delay_ns, lambda: self.post(partial(self._resolved, action, answer)))

    def _connect(self, action: Connect) -> None:
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
        world.schedule.after(delay_ns, lambda: self.post(partial(self._connected, connection_id, node_id)))

    def _connected(self, connection_id: int, node_id: int) -> None:
        if connection_id not in self.links:  # given up
            return
        if not self._world.cluster.is_up(node_id):
            self._world.wire.ended(connection_id)
            error = NetworkError(f"no process listens at node {node_id}")
            self.closed(connection_id, error)
            return
        self._world.wire.opened(connection_id)
        self.links[connection_id] = Link(self._world, connection_id, node_id)
        self._engine_alone().handle_connected(connection_id, self._clock_ns())

    def _write(self, action: Write) -> None:
        link = self.links.get(action.connection_id)
        if sum(map(len, action.buffers)) != action.size_bytes:
            raise Violation(f"a Write says that it has {action.size_bytes} bytes: {action}")
        if link is not None and link.is_open:
            link.write(action.buffers)
        else:  # it has just gone; the engine does not know yet
            release(action.buffers)

    def _close(self, action: Close) -> None:
        self._world.trace("close connection %d", action.connection_id)
        link = self.links.pop(action.connection_id, None)
        if link is not None and link.is_open:
            link.close()
        else:
            self._world.wire.ended(action.connection_id)

    def _authenticate(self, action: Authenticate) -> None:
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
            self.post(partial(self._have_token, connection_id, result))

        world.schedule.after(int(world.random.random() * world.options.login.token_ms * MS), make_token)

    def _have_token(self, connection_id: int, result: Any) -> None:
        self._take_token(connection_id, result, self._clock_ns())

    def _end_authentication(self, action: EndAuthentication) -> None:
        self._exchanges.pop(action.connection_id, None)

    def _seal(self, action: Seal) -> None:
        """Seal a batch on a pool's thread, some time later."""
        delay_ns = int(self._world.random.random() * self._world.options.seal_ms * MS)
        self._world.schedule.after(delay_ns, action.batch.seal)

    def stop(self, timeout: float | None = None) -> None:
        """End the thread, and close its sockets."""
        self.is_alive = False
        self._give_up_actions()
        for link in self.links.values():
            if link is not None and link.is_open:
                link.report_written()
                link.close()
        if self._next_round is not None:
            self._next_round.cancel()
        self._stop_registered()


def addresses_of(host: str, node_id: int, broken_count: int, port: int) -> list[tuple[int, Any]]:
    """Return the addresses of a node's name, first those where no node listens."""
    broken = [f"{BROKEN_NET}{node_id}.{number}" for number in range(broken_count)]
    return [(socket.AF_INET, (address, port)) for address in (*broken, f"10.0.{node_id}.1")]
