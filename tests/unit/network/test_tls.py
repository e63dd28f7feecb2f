"""TLS against Python's own ssl server, with certificates that openssl makes for the test."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kbatch.core.client.actions import Close, Connect
from kbatch.errors import AuthenticationError, KafkaError, NetworkError
from kbatch.network import tls
from kbatch.network.tls import ClientTls, Handshake
from kbatch.network.tls_channel import TlsChannel
from tests.support.accumulating import is_whole
from tests.support.certificates import Files, needs_openssl, openssl, step_at_once
from tests.support.patience import HANG_SECONDS
from tests.unit.network.networking import (
    NEVER,
    TINY,
    ScriptedEngine,
    accepted,
    config,
    connect_to,
    framed,
    large_batch,
    listening,
    read_exactly,
    running,
    write,
)

pytestmark = [needs_openssl, pytest.mark.usefixtures("shell")]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("certificates"))


@contextlib.contextmanager
def serving(
    context: ssl.SSLContext, serve: Callable[[ssl.SSLSocket], Any], *, times: int = 1, **options: int
) -> Iterator[tuple[socket.socket, list[Any]]]:
    """Yield a server of one connection after the other, on a separate thread, and the results of each
    `serve`.
    """
    outcome: list[Any] = []

    def run() -> None:
        for _ in range(times):
            with accepted(listener) as raw:
                try:
                    with context.wrap_socket(raw, server_side=True, suppress_ragged_eofs=False) as peer:
                        outcome.append(serve(peer))
                except OSError as error:
                    outcome.append(error)

    with listening(**options) as listener:
        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield listener, outcome
        finally:
            thread.join()


def to(listener: socket.socket, host: str = "localhost", connection_id: int = 1) -> Connect:
    return connect_to(listener, connection_id, host)


def visit(engine: ScriptedEngine, listener: socket.socket, number: int, host: str = "localhost") -> None:
    """Connects, receives "welcome", and closes."""
    engine.do(to(listener, host, number))
    assert engine.next("connected") == ("connected", number)
    assert engine.received(7) == b"welcome"
    engine.do(Close(number))
    engine.pass_round()


def welcome(peer: ssl.SSLSocket) -> bytes:
    peer.sendall(b"welcome")
    return peer.recv(1)


def wants_certificates(files: Files) -> ssl.SSLContext:
    context = files.server()
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(files.path("authority"))
    return context


def break_record(peer: ssl.SSLSocket) -> None:
    """Send a record that does not decrypt, as a faulty middlebox may."""
    with socket.socket(fileno=os.dup(peer.fileno())) as raw:
        raw.sendall(b"\x17\x03\x03\x00\x40" + os.urandom(64))


def until_closed(engine: ScriptedEngine) -> KafkaError:
    while (event := engine.next("connected", "bytes", "written", "closed"))[0] != "closed":
        pass
    error: KafkaError = event[2]
    return error


# Bytes under TLS


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_requests_and_answers(files: Files, version: ssl.TLSVersion) -> None:
    def serve(peer: ssl.SSLSocket) -> bytes:
        request = read_exactly(peer, 12)
        peer.sendall(b"answer")
        assert peer.recv(1) == b""  # an end that is announced, which a man in the middle cannot forge
        return request

    context = files.server()
    context.minimum_version = context.maximum_version = version
    with serving(context, serve) as (listener, outcome), running(**files.trusted()) as (engine, _):
        engine.do(to(listener))
        engine.next("connected")
        engine.do(write([b"hello", memoryview(b" world")]), write([b"!"]))
        assert sum(engine.written(12)) == 12
        assert engine.received(6) == b"answer"
        engine.do(Close(1))
    assert outcome == [b"hello world!"]


def test_responses_are_decrypted_whole_and_large_ones_in_place(files: Files) -> None:
    def serve(peer: ssl.SSLSocket) -> bytes:
        peer.sendall(framed(frames))
        return peer.recv(1)

    with serving(files.server(), serve) as (listener, outcome), running(**files.trusted()) as (engine, _):
        frames = engine.read_frames()
        engine.do(to(listener))
        engine.next("connected")
        engine.check_frames(frames)
        engine.do(Close(1))
    assert outcome == [b""]


@pytest.mark.threads
def test_what_does_not_fit_the_socket_goes_out_part_by_part(files: Files) -> None:
    records, batch = large_batch()
    pieces: list[bytes | memoryview] = [os.urandom(300_000), b"", os.urandom(1)]
    pieces += [*batch.buffers(), os.urandom(140_000)]
    whole = b"".join(pieces)
    go_on = threading.Event()

    def serve(peer: ssl.SSLSocket) -> bytes:
        assert go_on.wait(HANG_SECONDS)
        received = read_exactly(peer, len(whole))
        peer.sendall(b"x" * 300_000)
        return received

    keys = files.trusted() | TINY
    with (
        serving(files.server(), serve, SO_RCVBUF=4096) as (listener, outcome),
        running(**keys) as (engine, _),
    ):
        engine.do(to(listener))
        engine.next("connected")
        engine.do(write(pieces[:3]), write(pieces[3:]))
        # all but a byte of the first chunk may be with the broker
        assert engine.next("written") == ("written", 1, 131_071)
        engine.pass_round()
        assert batch.user_count > 1
        go_on.set()
        written, received = 131_071, 0
        while received < 300_000:
            event = engine.next("written", "bytes")
            if event[0] == "written":
                written += event[2]
            else:
                received += len(event[2])
        assert written == len(whole)
    assert outcome == [whole]
    assert batch.user_count == 1
    batch.complete(0)
    assert is_whole(records)


@pytest.mark.threads
def test_batch_memory_returns_when_the_connection_is_closed(files: Files) -> None:
    records, batch = large_batch()
    keys = files.trusted() | TINY
    closed = threading.Event()

    def serve(peer: ssl.SSLSocket) -> None:
        assert closed.wait(HANG_SECONDS)

    with serving(files.server(), serve, SO_RCVBUF=4096) as (listener, _), running(**keys) as (engine, _):
        engine.do(to(listener))
        engine.next("connected")
        engine.do(write(batch.buffers()), write(batch.buffers()))
        engine.next("written")
        batch.fail(KafkaError("expired"))
        assert not is_whole(records)
        engine.do(Close(1))
        engine.pass_round()
        assert is_whole(records)
        closed.set()


def in_pieces(raw: socket.socket, context: ssl.SSLContext, size: int) -> tuple[ssl.SSLObject, Any]:
    """Return a server's end whose handshake goes out `size` bytes at a time."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_side=True)
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def step(function: Callable[[], Any]) -> Any:
        while True:
            try:
                return function()
            except ssl.SSLWantReadError:
                pass
            finally:
                while piece := outgoing.read(size):
                    raw.sendall(piece)
            incoming.write(raw.recv(size))

    step(tls.do_handshake)
    return tls, step


@pytest.mark.parametrize("size", [1, 100])
def test_a_handshake_and_records_in_pieces(files: Files, size: int) -> None:
    with listening() as listener, running(**files.trusted()) as (engine, _):
        engine.do(to(listener))
        with accepted(listener) as raw:
            tls, step = in_pieces(raw, files.server(), size)
            engine.next("connected")
            engine.do(write([b"request"]))
            assert step(lambda: tls.read(7)) == b"request"
            step(lambda: tls.write(b"answer"))
            engine.next("written")
            assert engine.received(6) == b"answer"


def test_close_notify_after_a_response_is_seen(files: Files) -> None:
    """Send it in one piece, with nothing after it that would make the socket readable again."""
    with listening() as listener, running(**files.trusted()) as (engine, _):
        engine.do(to(listener))
        with accepted(listener) as raw:
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = files.server().wrap_bio(incoming, outgoing, server_side=True)
            while True:
                try:
                    tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    raw.sendall(outgoing.read())
                    incoming.write(raw.recv(1 << 16))
            engine.next("connected")
            tls.write(b"last words")
            with contextlib.suppress(ssl.SSLError):
                tls.unwrap()
            raw.sendall(outgoing.read())
            assert engine.received(10) == b"last words"
            assert "the broker closed the connection to localhost" in str(engine.next("closed")[2])


def test_a_connection_that_is_cut_has_ended(files: Files) -> None:
    def serve(peer: ssl.SSLSocket) -> None:
        socket.socket(fileno=peer.detach()).close()  # without a goodbye

    with serving(files.server(), serve) as (listener, _), running(**files.trusted()) as (engine, _):
        engine.do(to(listener))
        assert isinstance(until_closed(engine), NetworkError)


# Handshakes that fail


def refusal(files: Files, listener: socket.socket, host: str = "localhost", **keys: Any) -> KafkaError:
    with running(**(files.trusted() | keys)) as (engine, _):
        engine.do(to(listener, host))
        return until_closed(engine)


def test_an_authority_that_is_not_trusted(files: Files, shell: str) -> None:
    with serving(files.server("stranger"), lambda peer: peer.recv(1)) as (listener, outcome):
        error = refusal(files, listener)
    assert isinstance(error, AuthenticationError)
    assert "localhost:" in str(error)
    assert "ssl.truststore.location" in str(error)
    if shell == "threads":  # asyncio does not report it
        assert "unknown ca" in str(outcome[0]).lower()  # the broker gets the reason


def test_a_certificate_for_another_name(files: Files) -> None:
    with serving(files.server(), lambda peer: peer.recv(1)) as (listener, _):
        error = refusal(files, listener, "127.0.0.1")
    assert isinstance(error, AuthenticationError)
    assert "127.0.0.1" in str(error)
    assert "it is for another name" in str(error)
    assert "ssl.endpoint.identification.algorithm" in str(error)


def test_the_name_is_looked_at_only_if_that_is_configured(files: Files) -> None:
    keys = files.trusted() | {"ssl_endpoint_identification_algorithm": ""}
    with (
        serving(files.server(), lambda peer: peer.recv(1)) as (listener, outcome),
        running(**keys) as (engine, _),
    ):
        engine.do(to(listener, "127.0.0.1"))
        engine.next("connected")
        engine.do(write([b"x"]))
        engine.next("written")
    assert outcome == [b"x"]


def test_a_certificate_that_has_expired(files: Files) -> None:
    files.make("old", "-x509", "-days", "2")
    openssl("x509", "-in", files.path("old"), "-signkey", files.path("old", "key"), "-days", "0", "-out",
            files.path("expired"))  # fmt: skip
    shutil.copy(files.path("old", "key"), files.path("expired", "key"))
    with serving(files.server("expired"), lambda peer: peer.recv(1)) as (listener, _):
        error = refusal(files, listener, ssl_truststore_location=files.path("expired"))
    assert isinstance(error, AuthenticationError)
    assert "it has expired: renew it" in str(error)


def test_versions_without_a_common_one(files: Files) -> None:
    context = files.server()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with serving(context, lambda peer: peer.recv(1)) as (listener, _):
        error = refusal(files, listener, ssl_enabled_protocols="TLSv1.3")
    assert isinstance(error, AuthenticationError)
    assert "ssl.enabled.protocols" in str(error)


def test_ciphers_without_a_common_one(files: Files) -> None:
    context = files.server()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE-ECDSA-AES256-GCM-SHA384")
    with serving(context, lambda peer: peer.recv(1)) as (listener, _):
        error = refusal(files, listener, ssl_cipher_suites="ECDHE-ECDSA-AES128-GCM-SHA256")
    assert isinstance(error, AuthenticationError)
    assert "ssl.cipher.suites" in str(error)


def test_a_listener_that_does_not_speak_tls(files: Files) -> None:
    with listening() as listener, running(**files.trusted()) as (engine, _):
        engine.do(to(listener))
        with accepted(listener) as peer:
            peer.recv(1)
            peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            error = until_closed(engine)
        assert isinstance(error, AuthenticationError)
        assert "security.protocol=PLAINTEXT" in str(error)


def test_close_during_the_handshake_is_retriable(files: Files) -> None:
    with listening() as listener, running(**files.trusted()) as (engine, _):
        engine.do(to(listener))
        with accepted(listener) as peer:
            peer.recv(1 << 16)
        error = until_closed(engine)
        assert isinstance(error, NetworkError)
        assert error.retriable
        assert "SSL listener" in str(error)


def test_a_broker_that_refuses_the_client(files: Files) -> None:
    context = files.server()
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(files.path("authority"))
    with serving(context, lambda peer: peer.recv(1)) as (listener, _):
        error = refusal(files, listener)
    assert isinstance(error, AuthenticationError)
    assert "ssl.keystore.location" in str(error)


def test_a_refused_connection(files: Files) -> None:
    with listening() as listener:
        action = to(listener)
    with running(**files.trusted()) as (engine, _):
        engine.do(action)
        assert "Connection refused" in str(engine.next("closed")[2])


# Connections that break


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_broken_record_after_an_answer_is_a_disconnect(files: Files, version: ssl.TLSVersion) -> None:
    go_on = threading.Event()

    def serve(peer: ssl.SSLSocket) -> None:
        peer.sendall(b"welcome")
        assert go_on.wait(HANG_SECONDS)
        break_record(peer)
        peer.recv(1)

    context = files.server()
    context.minimum_version = context.maximum_version = version
    with serving(context, serve) as (listener, _), running(**files.trusted()) as (engine, _):
        engine.do(to(listener))
        engine.next("connected")
        assert engine.received(7) == b"welcome"
        go_on.set()
        error = engine.next("closed")[2]
    assert type(error) is NetworkError
    assert error.retriable
    assert "localhost:" in str(error)
    assert "TLS failed: " in str(error)
    assert "MAC" in str(error).upper()


@pytest.mark.parametrize(
    ("version", "expected"),
    [(ssl.TLSVersion.TLSv1_2, NetworkError), (ssl.TLSVersion.TLSv1_3, AuthenticationError)],
)
def test_early_error_is_authentication_with_tls_1_3_only(
    files: Files, version: ssl.TLSVersion, expected: type[KafkaError]
) -> None:
    def serve(peer: ssl.SSLSocket) -> None:
        break_record(peer)
        peer.recv(1)

    context = files.server()
    context.minimum_version = context.maximum_version = version
    with serving(context, serve) as (listener, _), running(**files.trusted()) as (engine, _):
        engine.do(to(listener))
        assert type(until_closed(engine)) is expected


def test_close_before_first_response_names_client_certificate(files: Files) -> None:
    def serve(peer: ssl.SSLSocket) -> None:
        pass

    context = files.server()
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    with serving(context, serve) as (listener, _), running(**files.trusted()) as (engine, _):
        engine.do(to(listener))
        error = until_closed(engine)
    assert type(error) is NetworkError
    assert "ssl.keystore.location" in str(error)


def test_data_in_one_piece_with_the_end_of_the_handshake_is_read(files: Files) -> None:
    """Nothing follows that would make the socket readable again."""
    context = files.server()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with listening() as listener, running(**files.trusted()) as (engine, _):
        engine.do(to(listener))
        with accepted(listener) as raw:
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = context.wrap_bio(incoming, outgoing, server_side=True)
            with pytest.raises(ssl.SSLWantReadError):
                incoming.write(raw.recv(1 << 16))
                tls.do_handshake()
            raw.sendall(outgoing.read())
            while True:
                incoming.write(raw.recv(1 << 16))
                with contextlib.suppress(ssl.SSLWantReadError):
                    tls.do_handshake()
                    break
            tls.write(b"welcome")
            raw.sendall(outgoing.read())
            engine.next("connected")
            assert engine.received(7) == b"welcome"


@pytest.mark.threads
def test_part_of_a_record_does_not_drain_the_socket(files: Files) -> None:
    """After a failed write everything is read that the broker has sent."""
    ours, peer = socket.socketpair()
    with peer:
        tls = files.server()
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = tls.wrap_bio(incoming, outgoing, server_side=True)
        handshake = ClientTls(config(**files.trusted())).handshake("localhost", 9092, "the broker")
        ours.setblocking(False)
        channel = TlsChannel(1, "the broker", ours, handshake, memoryview(bytearray(1 << 17)), step_at_once)
        channel._connected(0)
        while not channel.is_ready:
            incoming.write(peer.recv(1 << 16))
            with contextlib.suppress(ssl.SSLWantReadError):
                server.do_handshake()
            peer.sendall(outgoing.read())
            channel.proceed()
        incoming.write(peer.recv(1 << 16))
        server.do_handshake()
        server.write(b"last words")
        record = outgoing.read()
        space = memoryview(bytearray(100))
        peer.sendall(record[:-1])
        assert not channel.receive(space)
        assert not channel.is_drained
        peer.sendall(record[-1:])
        assert bytes(channel.receive(space)) == b"last words"
        assert not channel.receive(space)
        assert channel.is_drained
        peer.sendall(b"no TLS" * 100)
        assert not channel.receive(space)
        assert channel.ended is not None
        peer.sendall(b"and more of it")
        assert channel.is_drained  # nothing more can be read
        assert not channel.receive(space)
        assert channel.is_drained
        channel.close()


@pytest.mark.threads
def test_unread_tls_responses_are_bounded(files: Files) -> None:
    with serving(files.server(), welcome) as (listener, _), running(**files.trusted()) as (engine, network):
        engine.do(to(listener))
        engine.next("connected")
        engine.received(7)
        channel: Any = network._channels[1]
        network.post(lambda: channel._outgoing.write(bytes(1 << 18)))
        network.post(lambda: channel._answer())
        network.post(lambda: network._drop(channel))
        assert "does not read" in str(engine.next("closed")[2])


# Handshakes


@pytest.mark.threads
def test_a_slow_handshake_delays_no_other_connection(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_go_on = threading.Event(), threading.Event()
    steppers: set[str] = set()
    take_step = TlsChannel.take_step

    def slowly(channel: TlsChannel) -> None:
        steppers.add(threading.current_thread().name)
        if channel.connection_id == 2:
            begun.set()
            assert may_go_on.wait(HANG_SECONDS)
        take_step(channel)

    def echo(peer: ssl.SSLSocket) -> None:
        peer.sendall(peer.recv(5))
        peer.recv(1)

    monkeypatch.setattr(TlsChannel, "take_step", slowly)
    with serving(files.server(), echo) as (listener, _), running(**files.trusted()) as (engine, network):
        engine.do(to(listener))
        engine.next("connected")
        engine.do(to(listener, connection_id=2))
        assert begun.wait(HANG_SECONDS)
        engine.do(write([b"hello"]))
        assert engine.next("written")[2] == 5
        assert engine.received(5) == b"hello"
        engine.do(Close(2))  # in its step
        engine.pass_round()
        may_go_on.set()
        engine.do(Close(1))
        engine.pass_round()
        assert engine.events.empty()
        assert network.is_alive
    assert len(steppers) in (1, 2) and all("-handshaker-" in name for name in steppers)


@pytest.mark.threads
def test_a_defect_in_a_handshake_ends_the_network(
    files: Files, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def do_handshake(self) -> None:
            raise ZeroDivisionError

    monkeypatch.setattr(Handshake, "wrap_bio", lambda *_: Broken())
    with listening() as listener, running(**files.trusted()) as (engine, _):
        engine.do(to(listener))
        engine.next("failed")
    assert "ZeroDivisionError" in caplog.text


# Names


@pytest.mark.parametrize("host", ["localhost.", "localhost"])
def test_the_dot_of_an_absolute_name_is_in_no_certificate(files: Files, host: str) -> None:
    context = files.server()
    names: list[str | None] = []
    context.sni_callback = lambda peer, name, context: names.append(name)
    with serving(context, welcome) as (listener, _), running(**files.trusted()) as (engine, _):
        visit(engine, listener, 1, host)
    assert names == ["localhost"]


# Renewed files


def subject_of(peer: ssl.SSLSocket) -> Any:
    certificate: Any = peer.getpeercert()
    peer.sendall(b"welcome")
    peer.recv(1)
    return certificate["subject"][0][0][1]


@pytest.fixture
def looks_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "_LOOK_NS", 0)


def lay(files: Files, folder: Path, name: str, *, only_key: bool = False) -> None:
    """Renew as cert-manager does: a new file takes the place of the old one."""
    for kind in ("key",) if only_key else ("key", "pem"):
        new = folder / "new"
        shutil.copy(files.path(name, kind), new)
        new.replace(folder / f"tls.{kind}")


@pytest.mark.usefixtures("looks_always")
def test_next_connection_uses_a_renewed_client_certificate(
    files: Files, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lay(files, tmp_path, "client")
    keys = files.trusted() | {
        "ssl_keystore_location": str(tmp_path / "tls.pem"),
        "ssl_key_location": str(tmp_path / "tls.key"),
    }
    context = wants_certificates(files)
    with (
        serving(context, subject_of, times=5) as (listener, subjects),
        running(**keys) as (engine, _),
    ):
        visit(engine, listener, 1)
        lay(files, tmp_path, "broker", only_key=True)  # the certificate follows later
        visit(engine, listener, 2)
        visit(engine, listener, 3)
        warnings = [record for record in caplog.records if record.levelname == "WARNING"]
        lay(files, tmp_path, "broker")
        visit(engine, listener, 4)
        (tmp_path / "tls.pem").unlink()
        visit(engine, listener, 5)
    assert subjects == ["client", "client", "client", "broker", "broker"]
    (warning,) = warnings
    assert "KEY_VALUES_MISMATCH" in warning.getMessage()
    assert str(tmp_path / "tls.pem") in warning.getMessage()


def test_connections_within_a_second_look_at_files_once(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[ClientTls] = []
    look = ClientTls.look

    def noting(self: ClientTls) -> ssl.SSLContext | None:
        looks.append(self)
        return look(self)

    monkeypatch.setattr(tls, "_LOOK_NS", NEVER)
    monkeypatch.setattr(ClientTls, "look", noting)
    with (
        serving(files.server(), welcome, times=3) as (listener, _),
        running(**files.trusted()) as (engine, _),
    ):
        for connection_id in range(3):
            visit(engine, listener, connection_id)
    assert not looks


@pytest.mark.usefixtures("looks_always")
def test_a_renewed_trust_store_is_used_by_the_next_connection(files: Files, tmp_path: Path) -> None:
    trusted = tmp_path / "ca"
    trusted.mkdir()
    shutil.copy(files.path("stranger"), trusted / "ca.crt")
    keys = {"security_protocol": "SSL", "ssl_truststore_location": str(trusted)}
    with serving(files.server(), welcome, times=2) as (listener, _), running(**keys) as (engine, _):
        engine.do(to(listener, connection_id=1))
        assert isinstance(engine.next("closed")[2], AuthenticationError)
        shutil.copy(files.path("authority"), trusted / "another.crt")
        visit(engine, listener, 2)


def test_a_callable_gives_each_connection_its_context(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    contexts: list[Any] = []

    def current() -> Any:
        return contexts[-1]

    for name in ("client", "broker"):
        context = ssl.create_default_context(cafile=files.path("authority"))
        context.load_cert_chain(files.path(name), files.path(name, "key"))
        contexts.append(context)
    second = contexts.pop()
    with (
        serving(wants_certificates(files), subject_of, times=4) as (listener, subjects),
        running(security_protocol="SSL", ssl_context=current) as (engine, _),
    ):
        visit(engine, listener, 1)
        contexts.append(second)
        visit(engine, listener, 2)
        contexts.append("no context")
        visit(engine, listener, 3)
        contexts.clear()
        visit(engine, listener, 4)
    assert subjects == ["client", "broker", "broker", "broker"]
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "ssl.context must return an ssl.SSLContext, got str" in warnings[0]
    assert "IndexError" in warnings[1]


# Sessions


def is_resumed(peer: ssl.SSLSocket) -> bool | None:
    welcome(peer)
    return peer.session_reused


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_the_next_connection_to_a_broker_resumes_the_session(files: Files, version: ssl.TLSVersion) -> None:
    context = files.server()
    context.minimum_version = context.maximum_version = version
    with (
        serving(context, is_resumed, times=4) as (listener, resumed),
        running(**files.trusted()) as (engine, _),
    ):
        visit(engine, listener, 1)
        visit(engine, listener, 2)
        visit(engine, listener, 3)
        visit(engine, listener, 4, "kafka1")  # which might be another, whose certificate was not verified
    assert resumed == [False, True, True, False]


def test_a_broker_that_forgot_its_sessions_shakes_hands_in_full(files: Files) -> None:
    with listening() as listener, running(**files.trusted()) as (engine, _):
        for number in (1, 2):
            engine.do(to(listener, connection_id=number))
            with accepted(listener) as raw, files.server().wrap_socket(raw, server_side=True) as peer:
                peer.sendall(b"welcome")
                engine.next("connected")
                assert engine.received(7) == b"welcome"
                engine.do(Close(number))
                engine.pass_round()
                assert not peer.session_reused


@pytest.mark.usefixtures("looks_always")
def test_renewed_trust_ends_sessions(files: Files, tmp_path: Path) -> None:
    trusted = tmp_path / "ca.pem"
    shutil.copy(files.path("authority"), trusted)
    keys = {"security_protocol": "SSL", "ssl_truststore_location": str(trusted)}
    with serving(files.server(), is_resumed, times=2) as (listener, resumed), running(**keys) as (engine, _):
        visit(engine, listener, 1)
        trusted.write_text(files.text("authority") + files.text("stranger"))
        visit(engine, listener, 2)
    assert resumed == [False, False]


def test_sessions_of_the_users_own_context_are_not_resumed(files: Files) -> None:
    """It may get another client certificate at any time, which a resumed handshake would not send."""
    own = ssl.create_default_context(cafile=files.path("authority"))
    keys = {"security_protocol": "SSL", "ssl_context": own}
    with serving(files.server(), is_resumed, times=2) as (listener, resumed), running(**keys) as (engine, _):
        visit(engine, listener, 1)
        visit(engine, listener, 2)
    assert resumed == [False, False]
