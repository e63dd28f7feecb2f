"""SCRAM against the examples of the RFCs, a server written from them, and servers that lie."""

from __future__ import annotations

import base64
import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch.config import Password
from kbatch.errors import AuthenticationError, SaslAuthenticationError
from kbatch.sasl import scram
from kbatch.sasl.scram import SaltedPasswords, Scram, ScramExchange
from tests.oracle.scram import ScramServer
from tests.support.effort import EXAMPLES
from tests.unit.sasl.secrecy import failing

SECRET = "pencil-of-alice"
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


# hash, client's nonce, and the four messages
RFC_5802 = (
    "sha1",
    "fyko+d2lbbFgONRv9qkxdawL",
    "n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL",
    "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
    "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
    "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
)
RFC_7677 = (
    "sha256",
    "rOprNGfwEbeRWgbNEkqO",
    "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
    "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    "p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
)


@pytest.mark.parametrize("example", [RFC_5802, RFC_7677], ids=["RFC 5802", "RFC 7677"])
def test_the_examples_of_the_rfcs(example: tuple[str, ...]) -> None:
    hash_name, nonce, first, challenge, final, verdict = example
    exchange = ScramExchange("user", SaltedPasswords(hash_name, Password("pencil")), nonce)
    assert exchange.step(None) == first.encode()
    assert exchange.step(challenge.encode()) == final.encode()
    assert exchange.step(verdict.encode()) is None


@settings(max_examples=2 * EXAMPLES, deadline=None)
@given(name=st.sampled_from(sorted(scram.HASHES)), user=TEXTS, password=TEXTS, salt=st.binary(min_size=1))
def test_any_user_logs_in_with_any_password_and_with_no_other(
    name: str, user: str, password: str, salt: bytes
) -> None:
    server = ScramServer(scram.HASHES[name], user, password, salt=salt)
    exchange = Scram(name, user, Password(password)).exchange("host")
    token = exchange.step(None)
    assert token is not None
    final = exchange.step(server.answer(token))
    assert final is not None
    assert exchange.step(server.answer(final)) is None

    server = ScramServer(scram.HASHES[name], user, password, salt=salt)
    exchange = Scram(name, user, Password(f"{password}x")).exchange("host")
    final = exchange.step(server.answer(exchange.step(None) or b""))
    with pytest.raises(ValueError, match="wrong proof"):
        server.answer(final or b"")


def _begun() -> tuple[ScramExchange, str]:
    """Return an exchange after its first message, and its nonce."""
    exchange = Scram("SCRAM-SHA-256", "alice", Password(SECRET)).exchange("host")
    first = exchange.step(None)
    assert first is not None
    return exchange, first.decode().partition(",r=")[2].partition(",")[0]


def test_the_password_is_not_prepared() -> None:
    """SASLprep would make "IX" of the Roman numeral nine, and a blank of a no-break space."""
    password = "\u2168\u00a0\u00ad"
    server = ScramServer("sha256", "alice", password)
    exchange = Scram("SCRAM-SHA-256", "alice", Password(password)).exchange("host")
    final = exchange.step(server.answer(exchange.step(None) or b""))
    assert exchange.step(server.answer(final or b"")) is None


def test_a_delegation_token_says_so_in_the_signed_part() -> None:
    server = ScramServer("sha512", "token-id", "aG1hYw==")
    exchange = Scram("SCRAM-SHA-512", "token-id", Password("aG1hYw=="), tokenauth=True).exchange("host")
    final = exchange.step(server.answer(exchange.step(None) or b""))
    assert server.extensions == ["tokenauth=true"]
    assert exchange.step(server.answer(final or b"")) is None


def test_every_exchange_has_its_own_long_nonce() -> None:
    nonces = {_begun()[1] for _ in range(100)}
    assert len(nonces) == 100
    assert all(len(base64.b64decode(nonce)) >= 24 for nonce in nonces)


def test_brokers_with_the_same_salt_share_one_salted_password(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    salt = hashlib.pbkdf2_hmac

    def counted(name: str, password: bytes, with_salt: bytes, iterations: int) -> bytes:
        asked.append((with_salt, iterations))
        return salt(name, password, with_salt, iterations)

    keys = SaltedPasswords("sha256", Password(SECRET))
    monkeypatch.setattr(hashlib, "pbkdf2_hmac", counted)
    first = keys.proofs(b"one", 4096, b"messages")
    assert keys.proofs(b"one", 4096, b"messages") == first
    assert keys.proofs(b"one", 4097, b"messages") != first
    assert asked == [(b"one", 4096), (b"one", 4097)]
    for number in range(scram.MAX_SALTED_PASSWORDS):  # the one in use stays, however many others come
        keys.proofs(b"one", 4096, b"messages")
        keys.proofs(str(number).encode(), 4096, b"messages")
    assert asked.count((b"one", 4096)) == 1
    keys.proofs(b"0", 4096, b"messages")
    assert asked.count((b"0", 4096)) == 2


@pytest.mark.parametrize("digits", ["1", "4095", "1000001", "1000000000", "9" * 5000], ids=len)
def test_iteration_count_out_of_bounds_is_refused_early(digits: str) -> None:
    exchange, nonce = _begun()
    challenge = f"r={nonce}more,s=c2FsdA==,i={digits}".encode()
    text = failing(lambda: exchange.step(challenge), AuthenticationError, SECRET)
    assert "iterations of SCRAM, which must be 4096 to 1000000" in text
    assert len(text) < 1000


@pytest.mark.parametrize("iterations", [4096, 1_000_000])
def test_the_bounds_of_iterations_are_accepted(iterations: int) -> None:
    exchange, nonce = _begun()
    final = exchange.step(f"r={nonce}more,s=c2FsdA==,i={iterations}".encode())
    assert final is not None
    assert final.startswith(f"c=biws,r={nonce}more,p=".encode())


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("r={nonce},s=c2FsdA==,i=4096", "its nonce does not continue the client's"),
        ("r=another,s=c2FsdA==,i=4096", "its nonce does not continue the client's"),
        ("m=must-understand,r={nonce}x,s=c2FsdA==,i=4096", "must be r=NONCE,s=SALT,i=ITERATIONS"),
        ("r={nonce}x,s=c2FsdA=,i=4096", "must be r=NONCE,s=SALT,i=ITERATIONS"),
        ("r={nonce}x,s=c2FsdA==,i=-4096", "must be r=NONCE,s=SALT,i=ITERATIONS"),
        ("r={nonce}x,s=c2FsdA==,i=٤٠٩٦", "must be r=NONCE,s=SALT,i=ITERATIONS"),
        ("r={nonce}x,s=c2FsdA==,i=4096\n", "must be r=NONCE,s=SALT,i=ITERATIONS"),
        ("e=other-error", "must be r=NONCE,s=SALT,i=ITERATIONS"),
        ("", "must be r=NONCE,s=SALT,i=ITERATIONS"),
        ("x" * 100_000, "has 100000 bytes, 65536 are allowed"),
    ],
)
def test_a_first_message_that_cannot_be_right_is_refused(message: str, text: str) -> None:
    exchange, nonce = _begun()
    challenge = message.format(nonce=nonce).encode()
    assert text in failing(lambda: exchange.step(challenge), AuthenticationError, SECRET)


def test_server_extensions_are_signed_but_ignored() -> None:
    exchange, nonce = _begun()
    assert exchange.step(f"r={nonce}x,s=c2FsdA==,i=4096,later=yes".encode()) is not None


def _proven() -> ScramExchange:
    exchange, nonce = _begun()
    exchange.step(f"r={nonce}x,s=c2FsdA==,i=4096".encode())
    return exchange


@pytest.mark.parametrize("signature", [bytes(32), b"", bytes(31), bytes(64)])
def test_a_broker_that_does_not_know_the_password_is_refused(signature: bytes) -> None:
    exchange = _proven()
    challenge = b"v=" + base64.b64encode(signature)
    text = failing(lambda: exchange.step(challenge), AuthenticationError, SECRET)
    assert "the broker has not proved that it knows the password" in text


def test_the_word_of_a_server_that_refuses_is_shown() -> None:
    text = failing(lambda: _proven().step(b"e=invalid-proof"), SaslAuthenticationError, SECRET)
    assert text == "the broker refused the SCRAM proof: invalid-proof; check sasl.username and sasl.password"


@pytest.mark.parametrize("message", [b"", b"v", b"x=1", b"v=@", b"\xff\xfe", b"e="])
def test_a_final_message_that_is_none_is_refused(message: bytes) -> None:
    exchange = _proven()
    assert "must be v=SIGNATURE" in failing(lambda: exchange.step(message), AuthenticationError, SECRET)


def test_no_representation_shows_the_password() -> None:
    mechanism = Scram("SCRAM-SHA-256", "alice", Password(SECRET))
    exchange = mechanism.exchange("host")
    exchange.step(None)
    assert SECRET not in f"{mechanism!r}{mechanism}{exchange!r}{exchange}{vars(mechanism)}{vars(exchange)}"
