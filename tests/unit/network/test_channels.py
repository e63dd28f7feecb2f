"""The sender's thread with a scripted engine, over real sockets: writes, reads and broken connections."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kbatch.core.client.actions import Close, Connect, Resolve
from kbatch.errors import KafkaError, NetworkError
from kbatch.network.channels import PlainChannel
from kbatch.protocol import codec, messages
from kbatch.testing import Broker
from tests.support.accumulating import data_of, is_whole
from tests.support.producing import within
from tests.unit.network.networking import (
    SECONDS,
    SENDER,
    TINY,
    ScriptedEngine,
    accepted,
    connect_to,
    connected,
    framed,
    large_batch,
    listening,
    one_connection,
    read_exactly,
    reset,
    running,
    write,
)

IOV_MAX = os.sysconf("SC_IOV_MAX")


# Writing and reading


def test_bytes_go_out_and_come_in() -> None:
    with one_connection() as (engine, _, peer):
        engine.do(write([b"hello", memoryview(b" world")]), write([b"!"]))
        assert engine.written(12) == [11, 1]
        assert read_exactly(peer, 12) == b"hello world!"
        peer.sendall(b"answer")
        assert engine.received(6) == b"answer"
        assert engine.threads == {SENDER}


def test_oversized_writes_go_out_in_parts_and_in_order() -> None:
    pieces = [os.urandom(size) for size in (100_000, 1, 300_000, 0, 70_000, 500_000)]
    later = os.urandom(50_000)
    whole = b"".join(pieces) + later
    with one_connection({"SO_RCVBUF": 4096}, **TINY) as (engine, _, peer):
        engine.do(write([memoryview(piece) for piece in pieces]), write([later]))
        first = engine.next("written")[2]
        assert 0 < first < len(whole)
        assert read_exactly(peer, len(whole)) == whole
        assert len(engine.written(len(whole) - first)) > 1
        peer.sendall(b"and back")
        assert engine.received(8) == b"and back"


@pytest.mark.parametrize("count", [IOV_MAX, IOV_MAX + 1, 3 * IOV_MAX + 7])
def test_more_buffers_than_one_call_takes(count: int) -> None:
    buffers = [str(number).encode() if number % 10 else b"" for number in range(count)]
    whole = b"".join(buffers)
    with one_connection() as (engine, _, peer):
        engine.do(write(buffers))
        engine.written(len(whole))
        assert read_exactly(peer, len(whole)) == whole


def test_more_buffers_than_one_call_takes_into_a_full_socket() -> None:
    buffers = [bytes([number % 256]) * (number % 600) for number in range(3 * IOV_MAX)]
    whole = b"".join(buffers)
    with one_connection({"SO_RCVBUF": 4096}, **TINY) as (engine, _, peer):
        engine.do(write(buffers))
        assert read_exactly(peer, len(whole)) == whole
        engine.written(len(whole))


def test_an_answer_larger_than_the_space_for_it_comes_whole() -> None:
    data = os.urandom(1_000_000)
    with one_connection(receive_buffer_bytes=-1) as (engine, _, peer):
        peer.sendall(data)
        assert engine.received(len(data)) == data


@pytest.mark.usefixtures("shell")
def test_answers_of_all_sizes_come_whole_and_large_ones_in_place() -> None:
    with one_connection(receive_buffer_bytes=-1) as (engine, _, peer):
        frames = engine.read_frames()
        peer.sendall(framed(frames))
        engine.check_frames(frames)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems wake for every byte")
def test_few_bytes_of_a_large_answer_do_not_wake_its_reader() -> None:
    """But its last bytes do, those of the next answer, and the end of the connection."""
    with listening() as listener, socket.create_connection(listener.getsockname()) as receiving:
        receiving.setblocking(False)
        peer, _ = listener.accept()
        channel = PlainChannel(1, "the peer", receiving)
        space = memoryview(bytearray(2_500_000))
        channel.expect(space)
        with peer, selectors.DefaultSelector() as selector:
            selector.register(channel, selectors.EVENT_READ)
            peer.sendall(b"few")
            assert selector.select(0) == []
            sending = within(lambda: peer.sendall(bytes(len(space) - 3)))
            left = space
            while left:
                assert selector.select(SECONDS)
                left = left[len(channel.receive(left)) :]
                channel.expect(left if left else None)
            sending.result(SECONDS)
            assert bytes(space[:4]) == b"few\0"
            peer.sendall(b"?")
            assert selector.select(SECONDS)
            assert bytes(channel.receive(space)) == b"?"
            channel.expect(space)
            peer.shutdown(socket.SHUT_WR)
            assert selector.select(SECONDS)
            assert not channel.receive(space)
            assert "the broker closed the connection to the peer" in str(channel.ended)


def connected_socket(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> socket.socket:
    """Return the socket that the loop made for a connection; it is closed."""
    made: list[socket.socket] = []
    real = socket.socket

    def making(*args: Any) -> socket.socket:
        made.append(real(*args))
        return made[-1]

    with listening() as listener, running(**settings) as (engine, _):
        monkeypatch.setattr("kbatch.network.threads.socket.socket", making)
        action = connect_to(listener)
        engine.do(action)
        engine.next("connected")
        monkeypatch.undo()
        (client,) = made
        return client.dup()


def buffer_bytes(client: socket.socket) -> tuple[int, int]:
    """SO_SNDBUF and SO_RCVBUF."""
    options = (socket.SO_SNDBUF, socket.SO_RCVBUF)
    sending, receiving = (client.getsockopt(socket.SOL_SOCKET, option) for option in options)
    return sending, receiving


def test_the_sockets_have_the_options_of_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"send_buffer_bytes": 30_000, "receive_buffer_bytes": 20_000}
    with connected_socket(monkeypatch, **sizes) as client:
        assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert client.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert buffer_bytes(client) in ((30_000, 20_000), (60_000, 40_000))  # Linux doubles
        assert not client.getblocking()


def test_buffer_size_minus_one_leaves_it_to_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening() as listener, socket.create_connection(listener.getsockname()) as other:
        chosen = buffer_bytes(other)
    sizes = {"send_buffer_bytes": -1, "receive_buffer_bytes": -1}
    with connected_socket(monkeypatch, **sizes) as client:
        assert buffer_bytes(client) == chosen


def test_it_speaks_with_a_broker() -> None:
    request = messages.ApiVersionsRequest(client_software_name="kbatch", client_software_version="1")
    buffers = codec.encode_request(request, 3, 7, "test")
    with Broker() as broker, running() as (engine, _):
        host, port = broker.bootstrap_servers.rsplit(":", 1)
        engine.do(Resolve(host, int(port)))
        family, address = engine.next("resolved")[3][0]
        engine.do(Connect(1, -1, host, int(port), family, address))
        engine.next("connected")
        engine.do(write(buffers))
        engine.written(sum(map(len, buffers)))
        frame = engine.received(4)
        frame += engine.received(4 + int.from_bytes(frame[:4], "big") - len(frame))
        correlation_id, response = codec.decode_response(messages.ApiVersionsResponse, 3, frame[4:])
        assert correlation_id == 7
        assert {api.api_key for api in response.api_keys} >= {0, 3, 18, 22}


# The memory of batches


def test_batch_memory_returns_when_its_bytes_are_written() -> None:
    records, batch = large_batch()
    data = data_of(batch)
    views = batch.buffers()
    assert batch.user_count == 1 + len(views)
    with one_connection() as (engine, _, peer):
        engine.do(write([b"head", *views]))
        assert read_exactly(peer, 4 + len(data)) == b"head" + data
        engine.written(4 + len(data))
        assert batch.user_count == 1
        assert batch.complete(0)
        assert is_whole(records)


def test_what_was_written_is_let_go_of_while_the_rest_waits() -> None:
    records, batch = large_batch()
    data = data_of(batch)
    count = len(batch.buffers())
    with one_connection({"SO_RCVBUF": 4096}, **TINY) as (engine, _, peer):
        engine.do(write(batch.buffers()))
        engine.next("written")
        read_exactly(peer, 200_000)
        while True:
            engine.pass_round()
            if batch.user_count < count:
                break
        assert batch.user_count > 1
        assert batch.complete(0)  # expired, say
        assert not is_whole(records)
        assert read_exactly(peer, len(data) - 200_000) == data[200_000:]
        while not is_whole(records):  # a last report is on its way
            engine.pass_round()


@pytest.mark.parametrize("how", ["close", "reset", "stop", "fail"])
def test_batch_memory_returns_when_the_connection_ends(how: str) -> None:
    records, batch = large_batch()
    views = batch.buffers()  # which are kept: it is not enough to forget them
    with one_connection({"SO_RCVBUF": 4096}, **TINY) as (engine, network, peer):
        engine.do(write(views), write([memoryview(b"more")]))
        engine.next("written")
        engine.pass_round()
        assert batch.user_count > 1
        batch.fail(KafkaError("expired"))
        assert not is_whole(records)
        if how == "close":
            engine.do(Close(1))
            engine.pass_round()
        elif how == "reset":
            reset(peer)
            while engine.next("closed", "written")[0] != "closed":
                pass
        elif how == "stop":
            network.stop()
        else:
            engine.breaks_in = "run"
            network.wake()
            while engine.next("failed", "written")[0] != "failed":
                pass
            network.stop()
        assert batch.user_count == 0
        assert is_whole(records)


def test_write_to_closed_connection_releases_memory_too() -> None:
    records, batch = large_batch()
    views = batch.buffers()
    with one_connection() as (engine, _, _peer):
        engine.do(Close(1), write(views), Close(1))
        engine.pass_round()
        assert batch.user_count == 1
        batch.fail(KafkaError("closed"))
        assert is_whole(records)
        assert engine.events.empty()


# Connections that fail and end


def test_refused_connection_names_the_address() -> None:
    with listening() as listener:
        action = connect_to(listener)
    with running() as (engine, network):
        engine.do(action)
        _, connection_id, error = engine.next("closed")
        assert connection_id == 1
        assert isinstance(error, NetworkError)
        assert f"127.0.0.1:{action.port} (127.0.0.1, node 3): Connection refused" in str(error)
        engine.pass_round()
        assert network.is_alive


@pytest.mark.parametrize(
    ("family", "address", "reason"),
    [
        (socket.AF_INET, ("255.255.255.255", 9092), "unreachable|denied"),  # no TCP to everybody
        (12345, ("127.0.0.1", 9092), "family|supported"),
    ],
)
def test_an_address_that_cannot_be_reached(family: int, address: Any, reason: str) -> None:
    with running() as (engine, _):
        engine.do(Connect(5, -1, "kafka7", 9092, family, address))
        _, connection_id, error = engine.next("closed")
        assert connection_id == 5
        assert isinstance(error, NetworkError)
        with pytest.raises(NetworkError, match=rf"kafka7:9092 \({address[0]}\): .*({reason})"):
            raise error


def test_no_descriptor_left_is_an_error_of_that_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> socket.socket:
        raise OSError(24, "Too many open files")

    with listening() as listener, running() as (engine, _):
        monkeypatch.setattr("kbatch.network.threads.socket.socket", full)
        engine.do(connect_to(listener))
        assert "Too many open files" in str(engine.next("closed")[2])
        monkeypatch.undo()
        with connected(engine, listener):
            pass


def test_connection_ends_after_the_last_bytes_of_the_broker() -> None:
    with one_connection() as (engine, _, peer):
        peer.sendall(b"last words")
        peer.close()
        assert engine.received(10) == b"last words"
        error = engine.next("closed")[2]
        assert isinstance(error, NetworkError)
        assert "the broker closed the connection to 127.0.0.1:" in str(error)


def test_a_broker_that_closes_half_way_through_a_request() -> None:
    data = bytes(2_000_000)
    with one_connection({"SO_RCVBUF": 4096}, **TINY) as (engine, _, peer):
        engine.do(write([data]))
        read_exactly(peer, 100_000)
        peer.close()
        written = 0
        while (event := engine.next("written", "closed"))[0] == "written":
            written += event[2]
        assert 0 < written < len(data)
        assert isinstance(event[2], NetworkError)
        assert engine.events.empty()


def test_reset_is_reported_once() -> None:
    with one_connection() as (engine, _, peer):
        reset(peer)
        assert "reset" in str(engine.next("closed")[2])
        engine.do(write([b"late"]), Close(1))
        engine.pass_round()
        assert engine.events.empty()


def test_failed_write_loses_no_response_received_before_a_reset() -> None:
    with one_connection() as (engine, _, peer):
        begun, gone = threading.Event(), threading.Event()

        def write_when_the_peer_is_gone() -> None:
            begun.set()
            assert gone.wait(SECONDS)
            engine.ask(write([b"request"]))

        engine.submit(write_when_the_peer_is_gone)
        assert begun.wait(SECONDS)
        peer.sendall(b"answers")
        reset(peer)
        gone.set()
        assert engine.next("bytes") == ("bytes", 1, b"answers")
        engine.next("closed")


def test_close_drops_queued_data_without_further_events() -> None:
    data = bytes(2_000_000)
    with one_connection({"SO_RCVBUF": 4096}, **TINY) as (engine, _, peer):
        engine.do(write([data]))
        engine.next("written")
        engine.do(Close(1))
        engine.pass_round()
        while not engine.events.empty():
            engine.next("written")
        received = 0
        while piece := peer.recv(1 << 20):
            received += len(piece)
        assert 0 < received < len(data)
        engine.pass_round()
        assert engine.events.empty()


def test_a_connection_is_closed_while_it_is_being_made() -> None:
    with listening() as listener, running() as (engine, _):
        engine.do(connect_to(listener), Close(1))
        engine.pass_round()
        assert not [event for event in iter_events(engine) if event[0] == "closed"]
        with connected_again(engine, listener) as peer:
            engine.do(write([b"x"], 2))
            assert read_exactly(peer, 1) == b"x"


def iter_events(engine: ScriptedEngine) -> Iterator[Any]:
    while not engine.events.empty():
        yield engine.events.get()


@contextlib.contextmanager
def connected_again(engine: ScriptedEngine, listener: socket.socket) -> Iterator[socket.socket]:
    """Connect as connection 2; the unused first one waits to be accepted before it."""
    with accepted(listener) as first:
        assert first.recv(1) == b""
    engine.do(connect_to(listener, 2))
    with accepted(listener) as peer:
        assert engine.next("connected") == ("connected", 2)
        yield peer
