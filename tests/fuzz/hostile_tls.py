"""The campaign of hostile TLS: the duties of a TlsChannel towards a broken or hostile peer, in blocks.

A case is a connection to a server in memory, some of whose bytes are mutated on their way: in the handshake,
of TLS 1.2 or 1.3, resumed or not, or after it. Whatever comes, the channel ends with an error with a clear
text, gives out nothing that the server has not sent, and keeps little in memory.

The choices of a block come from its number. OpenSSL's own random numbers do not, so that a replayed case has
the same mutation of other bytes.
"""

from __future__ import annotations

import random
import socket
import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from kbatch.config import ProducerConfig
from kbatch.errors import AuthenticationError, NetworkError
from kbatch.network.tls import ClientTls
from kbatch.network.tls_channel import TlsChannel
from tests.fuzz import campaign
from tests.support.certificates import Files, step_at_once

BLOCK_CASES = 20_000
WARMING_CASES = 500
GROWTH_BYTES = 64 << 20
# Of a channel: what it read in one call, and a record.
KEPT_BYTES = (1 << 17) + (1 << 15)
PEER = "broker:9093"
ANSWER = random.Random("answer").randbytes(60_000)
# The server speaks up to three times: two flights of a handshake, and the answer.
SPEECHES, TURNS = 3, 6
Mutation = Callable[[bytes, random.Random], bytes]


# Mutations: the bytes of one turn of the server, and a source of choices.


def flip_bits(data: bytes, rng: random.Random) -> bytes:
    mutant = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 50))):
        mutant[rng.randrange(len(mutant))] ^= 1 << rng.randrange(8)
    return bytes(mutant)


def cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def drop_piece(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data))
    return data[:start] + data[start + rng.randint(1, 100) :]


def insert_noise(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data) + 1)
    return data[:start] + rng.randbytes(rng.choice((1, 5, 1000, 200_000))) + data[start:]


def repeat_piece(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data))
    end = rng.randint(start, len(data))
    return data[:end] + data[start:end] * rng.choice((1, 1, 100)) + data[end:]


def insert_record(data: bytes, rng: random.Random) -> bytes:
    """Insert a record in front, of any type and length: alerts, empty ones, messages of a handshake."""
    kind = rng.choice((20, 21, 22, 23, 24, rng.randrange(256)))
    body = rng.choice((b"", b"\x01\x00", b"\x02\x28", b"\x00\x00\x00\x00", rng.randbytes(rng.randrange(300))))
    size = rng.choice((len(body), len(body), rng.randrange(1 << 16)))
    record = bytes((kind, 3, rng.choice((3, 3, 1, 4)))) + size.to_bytes(2, "big") + body
    return record * rng.choice((1, 1, 3, 5000)) + data


def bend_header(data: bytes, rng: random.Random) -> bytes:
    """Change a byte of the header of one record."""
    starts, start = [], 0
    while start + 5 <= len(data):
        starts.append(start)
        start += 5 + int.from_bytes(data[start + 3 : start + 5], "big")
    mutant = bytearray(data)
    if starts:
        mutant[rng.choice(starts) + rng.randrange(5)] = rng.randrange(256)
    return bytes(mutant)


def swap_records(data: bytes, rng: random.Random) -> bytes:
    if len(data) < 6:
        return data
    first = 5 + int.from_bytes(data[3:5], "big")
    return data[first:] + data[:first]


def say_it_in_http(data: bytes, rng: random.Random) -> bytes:
    return b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"


def nothing(data: bytes, rng: random.Random) -> bytes:
    return data


MUTATIONS: tuple[Mutation, ...] = (
    flip_bits,
    flip_bits,
    cut,
    drop_piece,
    insert_noise,
    repeat_piece,
    insert_record,
    insert_record,
    bend_header,
    bend_header,
    swap_records,
    say_it_in_http,
    nothing,
)


class Case:
    """A connection, its server, and the one turn of the server's that is mutated."""

    def __init__(self, tls: ClientTls, server: ssl.SSLContext, rng: random.Random) -> None:
        self._rng = rng
        self.mutation = rng.choice(MUTATIONS)
        self._turn = rng.randrange(SPEECHES)
        self._answer = ANSWER[: rng.choice((1, 100, 16_384, 16_385, len(ANSWER)))]
        self._from_client, self._to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._server = server.wrap_bio(self._from_client, self._to_client, server_side=True)
        ours, self._peer = socket.socketpair()
        for end in (ours, self._peer):
            end.setblocking(False)
        # sessions of a few brokers, so that some handshakes resume one
        handshake = tls.handshake("localhost", rng.randrange(4), PEER)
        self._space = memoryview(bytearray(rng.choice((1, 1000, 1 << 17)) if rng.random() < 0.1 else 1 << 16))
        self._channel = TlsChannel(1, PEER, ours, handshake, SCRATCH, step_at_once)
        self._received = bytearray()
        self._unsent = b""
        self._has_written = False

    def run(self) -> str:
        """Return what came of it. Raise AssertionError for what must not be."""
        channel = self._channel
        try:
            channel._connected(0)
            for turn in range(TURNS + 1):
                self._serve(turn)
                self._step()
                if channel.ended is not None:
                    break
            else:
                self._peer.close()
                self._step()
            return self._judged()
        finally:
            channel.close()
            self._peer.close()

    def _serve(self, turn: int) -> None:
        """Have the server do what it can, and send what it says, mutated if it is the turn for that."""
        with suppress(BlockingIOError, ConnectionError):
            self._from_client.write(self._peer.recv(1 << 17))
        with suppress(ssl.SSLError):
            self._server.do_handshake()
            self._server.read(1 << 16)
            self._server.write(self._answer)
        said = self._to_client.read()
        # a turn in which the server says nothing leaves the mutation to the next one
        if said and turn >= self._turn:
            said, self._turn = self.mutation(said, self._rng), TURNS + 1
        self._send(said)

    def _send(self, data: bytes) -> None:
        """Send in some pieces, between which the channel reads."""
        for _ in range(4):
            if not data or self._channel.ended is not None:
                return
            size = self._rng.choice((1, 5, len(data), len(data)))
            with suppress(BlockingIOError, ConnectionError):
                data = data[self._peer.send(data[:size]) :]
            self._step()
        while data and self._channel.ended is None:
            with suppress(BlockingIOError, ConnectionError):
                data = data[self._peer.send(data) :]
            self._step()

    def _step(self) -> None:
        """Do what the sender's thread does when the socket is readable."""
        channel = self._channel
        if not channel.is_ready:
            channel.proceed()
        if channel.is_ready and not self._has_written:
            self._has_written = True
            channel.write([b"request"])
        if channel.is_ready and channel.ended is None:
            self._receive()
            while channel.may_have_more:
                self._receive()
        assert channel._incoming.pending <= KEPT_BYTES
        assert channel._outgoing.pending <= KEPT_BYTES

    def _receive(self) -> None:
        data = self._channel.receive(self._space)
        self._received += data
        assert self._answer.startswith(self._received), "bytes that the server has not sent"

    def _judged(self) -> str:
        ended = self._channel.ended
        assert isinstance(ended, NetworkError | AuthenticationError), f"an end that is none: {ended!r}"
        assert PEER in str(ended)
        assert 20 < len(str(ended)) < 500, ended
        if self._received == self._answer:
            return "answered"
        if isinstance(ended, AuthenticationError):
            return "refused"
        return "closed" if "closed the connection" in str(ended) else "broken"


SCRATCH = memoryview(bytearray(1 << 17))


# Blocks


def play(run: campaign.Run) -> None:
    """Judge a block's cases."""
    with tempfile.TemporaryDirectory() as folder:
        files = Files(Path(folder))
        tls = ClientTls(ProducerConfig(bootstrap_servers="localhost:9093", **files.trusted()))
        servers = [files.server() for _ in range(2)]
        servers[0].maximum_version = ssl.TLSVersion.TLSv1_2
        campaign.play_bounded(
            run, lambda run: run.judge(_cases(run, tls, servers)), WARMING_CASES, GROWTH_BYTES
        )


def _cases(run: campaign.Run, tls: ClientTls, servers: list[ssl.SSLContext]) -> Iterator[campaign.Case]:
    rng = random.Random(f"hostile tls {run.block}")
    for _ in range(run.cases):
        case = Case(tls, rng.choice(servers), rng)
        yield case.mutation.__name__, b"", case.run
