"""Sockets that never wait: reads and writes, and when they hold the GIL."""

from __future__ import annotations

import array
import contextlib
import itertools
import socket
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbatch._native.io.sockets import receive_into, send
from kbatch._native.io.waker import Waker
from tests.support.rival import Rival

SMALL, LARGE = b"s" * 1000, b"l" * 200_000


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        yield ours, theirs


def received(peer: socket.socket, size: int) -> bytes:
    """Return this many bytes that have been sent already."""
    space = bytearray(size)
    at = 0
    while at < size:
        at += receive_into(peer.fileno(), memoryview(space)[at:])
    return bytes(space)


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=20))
def test_buffers_are_written_in_order(pieces: list[bytes]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        buffers = [memoryview(piece) if len(piece) % 2 else piece for piece in pieces]
        whole = b"".join(pieces)
        assert send(ours.fileno(), buffers) == len(whole)
        assert received(theirs, len(whole)) == whole


def test_what_does_not_fit_is_not_taken(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    sent = b""
    with pytest.raises(BlockingIOError):
        for number in itertools.count():
            piece = bytes([number % 256]) * 100_000
            sent += piece[: send(ours.fileno(), [SMALL[:0], piece])]
    assert received(theirs, len(sent)) == sent
    assert send(ours.fileno(), [SMALL]) == len(SMALL)


def test_nothing_came_and_nothing_will(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    space = bytearray(10)
    with pytest.raises(BlockingIOError):
        receive_into(ours.fileno(), space)
    theirs.close()
    assert receive_into(ours.fileno(), space) == 0
    with pytest.raises(BrokenPipeError):  # and no signal
        send(ours.fileno(), [SMALL])
    ours.close()
    calls: list[Callable[[], object]]
    calls = [lambda: send(ours.fileno(), [SMALL]), lambda: receive_into(ours.fileno(), space)]
    for call in calls:
        with pytest.raises(OSError, match="Bad file descriptor"):
            call()


def test_all_buffers_are_let_go(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    owner = array.array("b", SMALL)
    with pytest.raises(TypeError):
        send(ours.fileno(), [memoryview(owner), "text"])  # type: ignore[list-item]
    with pytest.raises(BufferError):
        receive_into(ours.fileno(), SMALL)
    send(ours.fileno(), [memoryview(owner), memoryview(owner)[5:]])
    space = array.array("b", SMALL)
    receive_into(theirs.fileno(), space)
    for each in (owner, space):  # which is not allowed while a view of it exists
        each.append(1)


def test_small_writes_keep_the_gil(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    waker = Waker()
    space = bytearray(len(SMALL))

    def there_and_back() -> None:
        send(ours.fileno(), [SMALL])
        receive_into(theirs.fileno(), space)

    def as_python_does() -> None:
        ours.sendmsg([SMALL])
        theirs.recv_into(space)

    with Rival() as rival:
        assert rival.turns_during(there_and_back) == 0
        assert rival.turns_during(waker.wake) == 0
        assert rival.turns_during(waker.clear) == 0
        assert rival.had_a_turn_during(as_python_does)


def test_others_get_the_gil_while_much_is_sent(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    space = bytearray(len(LARGE))

    def there_and_gone() -> None:
        send(ours.fileno(), [LARGE])
        with contextlib.suppress(BlockingIOError):
            while True:
                receive_into(theirs.fileno(), space)

    with Rival() as rival:
        assert rival.had_a_turn_during(there_and_gone)
