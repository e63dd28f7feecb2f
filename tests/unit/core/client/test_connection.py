"""One connection: frames out of bytes, requests in their order, and their written bytes."""

from __future__ import annotations

import resource
import sys
from functools import partial
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbatch.core.client.api_versions import read_response
from kbatch.core.client.cluster import Node
from kbatch.core.client.connection import (
    LARGE_FRAME_BYTES,
    MAX_CORRELATION_ID,
    MAX_FRAME_BYTES,
    Connection,
    Request,
)
from kbatch.core.client.node_state import TRANSITIONS, ConnectionEvent, ConnectionState, NodeState
from kbatch.errors import IllegalStateError
from kbatch.protocol import messages

NODE = Node(1, "a", 9092, None)


def connection() -> Connection:
    return Connection(7, NODE, 0)


def add(to: Connection, size_bytes: int = 10, *, expects_response: bool = True) -> Request:
    request = Request(
        to,
        messages.MetadataRequest,
        9,
        lambda response: None,
        expects_response=expects_response,
        now_ns=0,
        deadline_ns=1,
        size_bytes=size_bytes,
        read=read_response,
    )
    to.add(request)
    return request


def framed(*frames: bytes) -> bytes:
    return b"".join(len(frame).to_bytes(4, "big", signed=True) + frame for frame in frames)


@given(
    st.data(), st.lists(st.binary(min_size=4, max_size=40), max_size=6), st.sampled_from([bytes, bytearray])
)
def test_frames_come_out_however_the_bytes_come_in(data: Any, frames: list[bytes], kind: type) -> None:
    stream = framed(*frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    conn, found = connection(), []
    for piece in pieces:
        memory = bytearray(piece)
        found += conn.frames(memoryview(memory) if kind is bytearray else piece)
        memory[:] = b"\xff" * len(memory)  # its owner uses it again
    assert found == frames
    assert conn.fault is None


def test_a_frame_does_not_change_with_the_memory_it_came_in() -> None:
    memory = bytearray(framed(b"abcd"))
    (frame,) = connection().frames(memoryview(memory))
    memory[:] = bytes(8)
    assert frame == b"abcd"


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 3, MAX_FRAME_BYTES + 1, int.from_bytes(b"HTTP", "big")])
def test_N07_impossible_size_fails_after_the_earlier_frames(length: int) -> None:
    conn = connection()
    data = framed(b"abcd") + length.to_bytes(4, "big", signed=True) + b"rest"
    assert list(conn.frames(data)) == [b"abcd"]
    assert conn.fault is not None
    assert f"{length} bytes" in str(conn.fault)


def peak_bytes() -> int:
    """Return the most memory that the process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def test_N07_large_size_costs_no_memory_before_its_bytes() -> None:
    before = peak_bytes()
    conn = connection()
    assert list(conn.frames(MAX_FRAME_BYTES.to_bytes(4, "big"))) == []
    assert conn.fault is None
    assert conn.space is not None and len(conn.space) == MAX_FRAME_BYTES
    assert peak_bytes() - before < MAX_FRAME_BYTES // 4


# Frames with memory of their own


@given(st.data(), st.lists(st.binary(min_size=4, max_size=60), max_size=6))
def test_large_frames_are_the_same_for_every_cut_and_place(data: Any, frames: list[bytes]) -> None:
    stream = framed(*frames)
    conn, found = connection(), []
    at = 0
    with mock.patch("kbatch.core.client.connection.LARGE_FRAME_BYTES", 20):
        while at < len(stream):
            space = conn.space
            is_in_place = space is not None and data.draw(st.booleans())
            room = len(space) if space is not None and is_in_place else len(stream)
            piece = stream[at : at + data.draw(st.integers(1, min(room, len(stream) - at)))]
            at += len(piece)
            memory = bytearray(piece)
            if space is not None and is_in_place:
                space[: len(piece)] = piece
                found += conn.frames(space[: len(piece)])
            else:
                found += conn.frames(memoryview(memory))
            memory[:] = bytes(len(memory))  # its owner uses it again
    assert [bytes(frame) for frame in found] == frames
    assert conn.space is None
    assert conn.fault is None


def test_space_is_named_for_large_frames_only() -> None:
    conn = connection()
    conn.frames((LARGE_FRAME_BYTES - 1).to_bytes(4, "big") + b"begun")
    assert conn.space is None
    conn = connection()
    conn.frames(framed(b"whole") + LARGE_FRAME_BYTES.to_bytes(4, "big") + b"begun")
    assert conn.space is not None and len(conn.space) == LARGE_FRAME_BYTES - len(b"begun")


def test_a_large_frame_lies_where_it_was_received() -> None:
    conn = connection()
    conn.frames(LARGE_FRAME_BYTES.to_bytes(4, "big"))
    space = conn.space
    assert space is not None
    (frame,) = conn.frames(space)
    assert isinstance(frame, memoryview)
    assert frame.obj is space.obj


def test_large_answer_is_received_into_memory_of_its_request() -> None:
    conn = connection()
    asked: list[tuple[int, int]] = []

    def memory(number: int, size: int) -> bytearray:
        asked.append((number, size))
        return bytearray(size)

    for number in range(3):
        add(conn).memory = partial(memory, number)
    small = conn.next_correlation_id.to_bytes(4, "big")
    (before,) = conn.frames(framed(small) + LARGE_FRAME_BYTES.to_bytes(4, "big"))  # of the first two requests
    assert before == small
    assert asked == [(1, LARGE_FRAME_BYTES)]
    assert conn.space is not None and len(conn.space) == LARGE_FRAME_BYTES


def test_large_answer_to_no_request_is_received_all_the_same() -> None:
    conn = connection()
    conn.frames(LARGE_FRAME_BYTES.to_bytes(4, "big"))
    assert conn.space is not None
    (frame,) = conn.frames(conn.space)
    assert conn.match(frame) is None
    assert conn.fault is not None


def test_answers_belong_to_the_oldest_request() -> None:
    conn = connection()
    first, second = add(conn), add(conn)
    assert (first.correlation_id, second.correlation_id) == (0, 1)
    assert conn.match(bytes(4)) is first
    assert conn.match(b"\0\0\0\1rest") is second
    assert conn.fault is None


@pytest.mark.parametrize("frame", [b"\0\0\0\1", b"\xff\xff\xff\xff"])
def test_N07_wrong_correlation_id_fails_and_completes_no_request(frame: bytes) -> None:
    conn = connection()
    add(conn)
    add(conn)
    assert conn.match(frame) is None
    assert "correlation id" in str(conn.fault)
    assert len(conn.in_flight) == 2


def test_N07_an_answer_without_a_request_is_a_fault() -> None:
    conn = connection()
    assert conn.match(bytes(4)) is None
    assert conn.fault is not None


def test_an_answer_to_a_request_that_expects_none_is_a_fault() -> None:
    conn = connection()
    add(conn, expects_response=False)
    assert conn.match(bytes(4)) is None
    assert conn.fault is not None


def test_correlation_ids_start_over_at_the_end() -> None:
    conn = connection()
    conn.next_correlation_id = MAX_CORRELATION_ID
    assert [add(conn).correlation_id, add(conn).correlation_id] == [MAX_CORRELATION_ID, 0]


def test_N06_a_request_knows_whether_a_byte_of_it_was_written() -> None:
    conn = connection()
    first = add(conn, 10)
    assert not first.was_written
    conn.handle_written(1, 3)
    assert first.was_written
    assert first.sent_ns == -1
    conn.handle_written(9, 4)
    assert first.sent_ns == 4
    second = add(conn, 5)
    assert not second.was_written
    assert (second.start_offset, second.end_offset) == (10, 15)


def test_D17_request_without_response_completes_when_written() -> None:
    conn = connection()
    asked = add(conn, 4)
    assert conn.handle_written(4, 1) is None
    silent = add(conn, 6, expects_response=False)
    assert conn.handle_written(5, 2) is None
    assert conn.handle_written(1, 3) is silent
    assert silent.sent_ns == 3
    assert list(conn.in_flight) == [asked]


@pytest.mark.parametrize("written_bytes", [-1, 11])
def test_acknowledging_too_many_written_bytes_is_refused(written_bytes: int) -> None:
    conn = connection()
    add(conn, 10)
    with pytest.raises(ValueError, match="10 that were to be"):
        conn.handle_written(written_bytes, 1)
    assert conn.written_bytes == 0


# The states of a node


@pytest.mark.parametrize("event", ConnectionEvent)
@pytest.mark.parametrize("state", ConnectionState)
def test_transition_not_in_the_table_is_refused(state: ConnectionState, event: ConnectionEvent) -> None:
    node = NodeState(NODE)
    node.state = state
    if event in TRANSITIONS[state]:
        node.transition(event)
        assert node.state is TRANSITIONS[state][event]
    else:
        with pytest.raises(IllegalStateError, match=event.value):
            node.transition(event)
        assert node.state is state


def test_every_state_can_be_reached_and_left() -> None:
    assert set(TRANSITIONS) == set(ConnectionState)
    assert {state for row in TRANSITIONS.values() for state in row.values()} == set(ConnectionState)
    assert all(
        ConnectionEvent.CLOSE in row
        for state, row in TRANSITIONS.items()
        if state is not ConnectionState.DISCONNECTED
    )


def test_N08_next_round_does_not_begin_with_the_last_address() -> None:
    node = NodeState(NODE)
    addresses = [(2, ("10.0.0.1", 1)), (2, ("10.0.0.2", 1)), (2, ("10.0.0.3", 1))]
    node.set_addresses(addresses)
    assert node.next_address() == addresses[0]
    node.set_addresses(addresses)
    assert [node.next_address() for _ in addresses] == [*addresses[1:], addresses[0]]
    node.set_addresses(addresses[:1])
    assert node.next_address() == addresses[0]
    node.set_addresses(addresses[:1])
    assert node.next_address() == addresses[0]  # where there is only one
