"""Helpers of network tests: an engine controlled by the test, and sockets to talk to."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from typing import Any

from kbatch._native.batch.delivery import Completion
from kbatch._native.batch.producer_batch import ProducerBatch
from kbatch.config import ProducerConfig
from kbatch.core.client.actions import Connect, Write
from kbatch.core.client.cluster import Node
from kbatch.core.client.connection import Connection
from kbatch.errors import KafkaError
from kbatch.network import ThreadNetwork, register_sealers
from tests.support import shells
from tests.support.accumulating import accumulator, one, put
from tests.support.patience import HANG_SECONDS

NEVER = 2**63 - 1
SECONDS = HANG_SECONDS
SENDER = "sender-of-the-test"
# Around what is received in one piece, and around what has memory of its own.
FRAME_SIZES = (10, 65_535, 65_536, 131_068, 131_072, 5, 1_000_000, 7, 300_000, 3_000_000, 4)
# Of a socket that is soon full.
TINY = {"send_buffer_bytes": 4096}
Event = tuple[Any, ...]


class ScriptedEngine:
    """An engine that returns a test's actions and notes its events. The sender calls all methods but `do`."""

    def __init__(self) -> None:
        self.events: SimpleQueue[Event] = SimpleQueue()
        self.wake: Callable[[], object] = lambda: None
        self.completed: list[Completion] = []
        self.deadline = NEVER
        self.rests = False  # it says that it is quiet
        self.run_count = 0
        self.on_run: Callable[[], object] = lambda: None
        self.threads: set[str] = set()
        self.breaks_in: str | None = None
        self.commands: deque[Callable[[], object]] = deque()
        self.reader: Connection | None = None  # that bytes go through, and out of it as frames
        self._actions: list[Any] = []
        self.awaited = ""

    # For the test

    def submit(self, command: Callable[[], object]) -> None:
        self.commands.append(command)
        self.wake()

    def do(self, *actions: Any) -> None:
        self.submit(lambda: self._actions.extend(actions))

    def ask(self, *actions: Any) -> None:
        """Add actions from within a command."""
        self._actions.extend(actions)

    def next(self, *kinds: str) -> Event:
        """Return the next event, which must be of one of the kinds."""
        event = self.events.get(timeout=SECONDS)
        assert event[0] in kinds, f"{event} where one of {kinds} was expected"
        return event

    def pass_round(self) -> None:
        """Wait until the earlier actions were performed."""
        for _ in range(2):  # the first may come along with it
            passed = threading.Event()
            self.submit(passed.set)
            assert passed.wait(SECONDS)

    def written(self, size: int) -> list[int]:
        """Wait until this many bytes are written, and return how."""
        parts: list[int] = []
        while sum(parts) < size:
            parts.append(self.next("written")[2])
        assert sum(parts) == size
        return parts

    def read_frames(self) -> list[bytes]:
        """Have frames read from now on; return some of all sizes."""
        self.reader = Connection(1, Node(1, "a", 9092, None), 0)
        return [os.urandom(size) for size in FRAME_SIZES]

    def check_frames(self, frames: list[bytes]) -> None:
        """Check that responses come whole, in order, and large ones in the reader's memory."""
        for frame in frames:
            _, _, received, is_in_place = self.next("frame")
            assert received == frame
            assert is_in_place or len(frame) < 300_000

    def received(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            data += self.next("bytes")[2]
        return data

    # For the network

    def _note(self, *event: Any) -> None:
        self.threads.add(threading.current_thread().name)
        self._break(f"handle_{event[0]}")
        assert event[-1] <= time.monotonic_ns()
        self.events.put(event[:-1])

    def _break(self, where: str) -> None:
        if self.breaks_in == where:
            raise ZeroDivisionError(f"in {where}")

    def handle_resolved(self, host: str, port: int, addresses: Any, now_ns: int) -> None:
        self._note("resolved", host, port, addresses, now_ns)

    def handle_preparing(self, connection_id: int, awaited: str, now_ns: int) -> None:
        self.awaited = awaited

    def handle_connected(self, connection_id: int, now_ns: int) -> None:
        self._note("connected", connection_id, now_ns)

    def handle_bytes(self, connection_id: int, data: bytes | memoryview, now_ns: int) -> memoryview | None:
        if self.reader is None:
            self._note("bytes", connection_id, bytes(data), now_ns)
            return None
        space = self.reader.space
        is_in_place = space is not None and memoryview(data).obj is space.obj
        for frame in self.reader.frames(data):
            self._note("frame", connection_id, bytes(frame), is_in_place, now_ns)
        return self.reader.space

    def handle_written(self, connection_id: int, written_bytes: int, now_ns: int) -> None:
        self._note("written", connection_id, written_bytes, now_ns)

    def handle_closed(self, connection_id: int, error: KafkaError, now_ns: int) -> None:
        self._note("closed", connection_id, error, now_ns)

    def handle_token(self, connection_id: int, token: bytes | KafkaError | None, now_ns: int) -> None:
        self._note("token", connection_id, token, now_ns)

    def run(self, now_ns: int) -> None:
        self._break("run")
        self.run_count += 1
        self.on_run()
        for _ in range(len(self.commands)):
            self.commands.popleft()()

    def is_quiet(self, now_ns: int) -> bool:
        return self.rests and not self.commands

    def observe(self, now_ns: int) -> None:
        self._break("observe")

    def poll_actions(self) -> list[Any]:
        self._break("poll_actions")
        actions, self._actions = self._actions, []
        return actions

    def poll_completed(self) -> list[Completion]:
        completed, self.completed = self.completed, []
        return completed

    def deadline_ns(self, now_ns: int) -> int:
        self._break("deadline_ns")
        return self.deadline

    def fail(self, error: KafkaError) -> None:
        self.events.put(("failed", error))


def config(**keys: Any) -> ProducerConfig:
    return ProducerConfig(bootstrap_servers="localhost:9092", **keys)


@contextlib.contextmanager
def running(**keys: Any) -> Iterator[tuple[ScriptedEngine, ThreadNetwork]]:
    """Yield a network that is at work, with the configuration given, and its engine."""
    engine = ScriptedEngine()
    kind: Any = ThreadNetwork if shells.the_loop() is None else shells.NetworkOnLoop
    network = kind(engine, config=config(**keys), deliver=lambda completed: None, name=SENDER)
    register_sealers(network)
    engine.wake = network.wake
    network.start()
    try:
        yield engine, network
    finally:
        network.stop()


@contextlib.contextmanager
def listening(**options: int) -> Iterator[socket.socket]:
    """Yield a listener on loopback; its options, by name, are those of its connections."""
    with socket.socket() as listener:
        for name, value in options.items():
            listener.setsockopt(socket.SOL_SOCKET, getattr(socket, name), value)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.settimeout(SECONDS)
        yield listener


def connect_to(listener: socket.socket, connection_id: int = 1, host: str = "127.0.0.1") -> Connect:
    address = listener.getsockname()
    return Connect(connection_id, 3, host, address[1], socket.AF_INET, address)


def accepted(listener: socket.socket) -> socket.socket:
    peer, _ = listener.accept()
    peer.settimeout(SECONDS)
    return peer


@contextlib.contextmanager
def connected(engine: ScriptedEngine, listener: socket.socket) -> Iterator[socket.socket]:
    """Make connection 1; yield its other end."""
    engine.do(connect_to(listener))
    with accepted(listener) as peer:
        assert engine.next("connected") == ("connected", 1)
        yield peer


def write(buffers: Sequence[bytes | memoryview], connection_id: int = 1) -> Write:
    return Write(connection_id, buffers, sum(map(len, buffers)))


def read_exactly(peer: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = peer.recv(min(size - len(data), 1 << 20))
        assert piece, f"closed after {len(data)} of {size} bytes"
        data += piece
    return bytes(data)


def framed(frames: list[bytes]) -> bytes:
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


def reset(peer: socket.socket) -> None:
    """Reset the connection, as a process that dies with unread data does."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


@contextlib.contextmanager
def one_connection(
    listener: dict[str, int] | None = None, **keys: Any
) -> Iterator[tuple[ScriptedEngine, ThreadNetwork, socket.socket]]:
    with (
        running(**keys) as (engine, network),
        listening(**(listener or {})) as listening_socket,
        connected(engine, listening_socket) as peer,
    ):
        yield engine, network, peer


def large_batch() -> tuple[Any, ProducerBatch]:
    """Make a batch of many chunks."""
    records = accumulator(batch_size=1 << 20, buffer_memory=1 << 22)
    for number in range(100):
        put(records, bytes([number]) * 10_000)
    return records, one(records)
