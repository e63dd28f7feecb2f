"""PLAIN: the message of RFC 4616."""

from __future__ import annotations

from kbatch.config import Password
from kbatch.sasl.plain import Plain

SECRET = "s3cret-of-alice"


def test_user_and_password_are_utf8_without_authorization_id() -> None:
    exchange = Plain("$Connectionström", Password("Endpoint=sb://ns/;Key=ä,=\t" + "x" * 5000)).exchange(
        "host"
    )
    assert exchange.step(None) == ("\0$Connectionström\0Endpoint=sb://ns/;Key=ä,=\t" + "x" * 5000).encode()
    assert exchange.step(b"") is None


def test_words_in_the_answer_are_ignored_as_in_java() -> None:
    exchange = Plain("alice", Password(SECRET)).exchange("host")
    exchange.step(None)
    assert exchange.step(b"welcome") is None


def test_no_representation_shows_the_password() -> None:
    mechanism = Plain("alice", Password(SECRET))
    exchange = mechanism.exchange("host")
    exchange.step(None)
    assert SECRET not in f"{mechanism!r}{mechanism}{exchange!r}{exchange}{vars(mechanism)}{vars(exchange)}"
