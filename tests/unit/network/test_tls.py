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
from kbatch.errors import AuthenticationError, ConfigError, KafkaError, NetworkError
from kbatch.network.tls import context_of
from tests.support.accumulating import is_whole
from tests.support.certificates import Files, needs_openssl, openssl
from tests.support.patience import HANG_SECONDS
from tests.unit.network.networking import (
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
    context: ssl.SSLContext, serve: Callable[[ssl.SSLSocket], Any], **options: int
) -> Iterator[tuple[socket.socket, list[Any]]]:
    """A server of one connection on a thread of its own, and what `serve` returned or raised."""
    outcome: list[Any] = []

    def run() -> None:
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


def to(listener: socket.socket, host: str = "localhost") -> Connect:
    return connect_to(listener, host=host)


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


def test_answers_of_all_sizes_are_decrypted_whole_and_large_ones_in_place(files: Files) -> None:
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
def test_the_memory_of_a_batch_comes_back_when_the_connection_is_closed(files: Files) -> None:
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
    """A server's end whose handshake goes out `size` bytes at a time."""
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


def test_a_goodbye_behind_an_answer_is_heard(files: Files) -> None:
    """In one piece, with nothing behind that would make the socket readable once more."""
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
    if shell == "threads":  # asyncio does not tell
        assert "unknown ca" in str(outcome[0]).lower()  # the broker is told why


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


def test_a_listener_that_closes_in_the_handshake_may_do_better_next_time(files: Files) -> None:
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


# The configuration


def own_keys(files: Files, how: str) -> dict[str, str]:
    """The client's certificate, in each of the ways of the configuration."""
    folder = files.folder
    both = folder / "both.pem"
    both.write_text(files.text("client", "key") + files.text("client"))
    openssl("pkey", "-in", files.path("client", "key"), "-aes256", "-passout", "pass:secret", "-out",
            folder / "encrypted.key")  # fmt: skip
    return {
        "one file": {"ssl_keystore_location": str(both)},
        "two files": {
            "ssl_keystore_location": files.path("client"),
            "ssl_key_location": files.path("client", "key"),
        },
        "text": {
            "ssl_keystore_certificate_chain": files.text("client"),
            "ssl_keystore_key": files.text("client", "key"),
        },
        "encrypted file": {
            "ssl_keystore_location": files.path("client"),
            "ssl_key_location": str(folder / "encrypted.key"),
            "ssl_key_password": "secret",
        },
        "encrypted text": {
            "ssl_keystore_certificate_chain": files.text("client"),
            "ssl_keystore_key": (folder / "encrypted.key").read_text(),
            "ssl_key_password": "secret",
        },
    }[how]


@pytest.mark.parametrize("how", ["one file", "two files", "text", "encrypted file", "encrypted text"])
def test_the_client_has_a_certificate(files: Files, how: str) -> None:
    def serve(peer: ssl.SSLSocket) -> Any:
        certificate: Any = peer.getpeercert()
        peer.sendall(b"welcome")
        return certificate["subject"]

    context = files.server()
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(files.path("authority"))
    keys = {
        "security_protocol": "SSL",
        "ssl_truststore_certificates": files.text("authority"),
        **own_keys(files, how),
    }
    with serving(context, serve) as (listener, outcome), running(**keys) as (engine, _):
        engine.do(to(listener))
        engine.next("connected")
        assert engine.received(7) == b"welcome"
    assert outcome == [((("commonName", "client"),),)]


def test_a_context_of_the_users_own_is_used_as_it_is(files: Files) -> None:
    own = ssl.create_default_context(cafile=files.path("authority"))
    keys = {"security_protocol": "SASL_SSL", "sasl_kerberos_service_name": "kafka"}
    assert context_of(config(**keys, ssl_context=own)) is own
    with pytest.raises(ConfigError, match=r"ssl_context must be an ssl\.SSLContext"):
        context_of(config(security_protocol="SSL", ssl_context="default"))


def test_by_default_the_systems_authorities_and_two_versions() -> None:
    context = context_of(config(security_protocol="SSL"))
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.maximum_version is ssl.TLSVersion.TLSv1_3


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"ssl_truststore_location": "/no/such.pem"}, r"ssl\.truststore\.location \(/no/such\.pem\)"),
        ({"ssl_truststore_location": __file__}, r"ssl\.truststore\.location"),
        ({"ssl_truststore_certificates": "no PEM"}, r"ssl\.truststore\.certificates"),
        ({"ssl_keystore_location": "/no/such.pem"}, r"ssl\.keystore\.location \(/no/such\.pem\)"),
        ({"ssl_keystore_location": __file__, "ssl_key_location": __file__}, r"and ssl\.key\.location"),
        ({"ssl_keystore_certificate_chain": "x", "ssl_keystore_key": "y"}, r"ssl\.keystore\.key"),
        ({"ssl_cipher_suites": "NO_SUCH_CIPHER"}, r"ssl\.cipher\.suites \(NO_SUCH_CIPHER\)"),
    ],
)
def test_what_cannot_be_used_is_named(keys: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        context_of(config(security_protocol="SSL", **keys))


def test_an_encrypted_key_without_its_password_is_not_asked_for_on_the_terminal(files: Files) -> None:
    keys = own_keys(files, "encrypted file")
    del keys["ssl_key_password"]
    with pytest.raises(ConfigError, match=r"ssl\.key\.password"):
        context_of(config(security_protocol="SSL", **keys))
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.location and ssl\.key\.location"):
        context_of(config(security_protocol="SSL", ssl_key_password="wrong", **keys))


def test_a_key_given_as_text_is_not_left_on_disk(files: Files, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    context_of(config(security_protocol="SSL", **own_keys(files, "text")))
    assert list(tmp_path.iterdir()) == []
