"""PLAIN: the message of RFC 4616, and what it cannot hold."""

from __future__ import annotations

import pytest

from kbatch.config import Password
from kbatch.errors import ConfigError
from kbatch.sasl.plain import Plain
from tests.unit.sasl.secrecy import failing

SECRET = "s3cret-of-alice"


def test_user_and_password_travel_as_utf8_with_an_empty_authorization_id() -> None:
    exchange = Plain("$Connectionström", Password("Endpoint=sb://ns/;Key=ä,=\t" + "x" * 5000)).exchange(
        "host"
    )
    assert exchange.step(None) == ("\0$Connectionström\0Endpoint=sb://ns/;Key=ä,=\t" + "x" * 5000).encode()
    assert exchange.step(b"") is None


def test_words_in_the_answer_are_ignored_as_in_java() -> None:
    exchange = Plain("alice", Password(SECRET)).exchange("host")
    exchange.step(None)
    assert exchange.step(b"welcome") is None


@pytest.mark.parametrize(
    ("user", "password", "text"),
    [
        ("", SECRET, "sasl.username must not be empty"),
        ("ali\0ce", SECRET, "sasl.username must have no NUL with PLAIN, got 'ali\\x00ce'"),
        ("ali\ud800ce", SECRET, "sasl.username must be text that UTF-8 can encode"),
        ("alice", "", "sasl.password must not be empty with PLAIN"),
        ("alice", SECRET + "\0", "sasl.password must have no NUL with PLAIN"),
        ("alice", SECRET + "\ud800", "sasl.password must be text that UTF-8 can encode"),
    ],
)
def test_what_the_message_cannot_hold_is_a_config_error(user: str, password: str, text: str) -> None:
    hidden = Password(password)
    assert text in failing(lambda: Plain(user, hidden), ConfigError, SECRET)


def test_no_representation_shows_the_password() -> None:
    mechanism = Plain("alice", Password(SECRET))
    exchange = mechanism.exchange("host")
    exchange.step(None)
    assert SECRET not in f"{mechanism!r}{mechanism}{exchange!r}{exchange}{vars(mechanism)}{vars(exchange)}"
