"""OAUTHBEARER: the messages of RFC 7628."""

from __future__ import annotations

import pytest

from kbatch.errors import AuthenticationError, NetworkError, SaslAuthenticationError
from kbatch.sasl.oauthbearer import OAuthBearer
from kbatch.sasl.token_login import LoginPolicy, TokenLogin
from kbatch.sasl.tokens import Token
from tests.unit.sasl.secrecy import failing

SECRET = "vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg"


def mechanism(token: Token, extensions: dict[str, str] | None = None) -> OAuthBearer:
    return OAuthBearer(TokenLogin(lambda: token, "the source", LoginPolicy()), extensions or {})


def test_the_first_message_has_the_form_of_the_rfc() -> None:
    exchange = mechanism(Token(f"{SECRET}==")).exchange("host")
    assert exchange.step(None) == b"n,,\x01auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\x01\x01"
    assert exchange.step(b"") is None


def test_extensions_follow_and_those_of_the_token_come_first() -> None:
    token = Token(SECRET, None, {"identityPoolId": "pool-2"})
    given = {"logicalCluster": "lkc-1", "identityPoolId": "pool-1"}
    message = mechanism(token, given).exchange("host").step(None)
    assert message == (
        b"n,,\x01auth=Bearer %s\x01logicalCluster=lkc-1\x01identityPoolId=pool-2\x01\x01" % SECRET.encode()
    )


def test_a_refusal_is_answered_and_then_shown(caplog: pytest.LogCaptureFixture) -> None:
    exchange = mechanism(Token(SECRET)).exchange("host")
    exchange.step(None)
    with caplog.at_level("INFO"):
        assert exchange.step(b'{"status":"invalid_token","scope":"produce"}') == b"\x01"
    assert '{"status":"invalid_token","scope":"produce"}' in caplog.text
    text = failing(lambda: exchange.step(b""), SaslAuthenticationError, SECRET)
    assert text == 'the broker refused the token: {"status":"invalid_token","scope":"produce"}'


def test_a_refused_token_is_fetched_anew_by_the_next_login() -> None:
    clock = [1_800_000_000.0]
    tokens = iter([Token("first", 1_900_000_000), Token("second", 1_900_000_000)])
    login = TokenLogin(
        lambda: next(tokens),
        "the source",
        LoginPolicy(),
        now=lambda: clock[0],
        monotonic_ns=lambda: int(clock[0] * 10**9),
    )
    found = OAuthBearer(login, {})
    exchange = found.exchange("host")
    exchange.step(None)
    clock[0] += 3600
    assert b"first" in (found.exchange("host").step(None) or b"")
    exchange.step(b'{"status":"invalid_token"}')
    assert b"second" in (found.exchange("host").step(None) or b"")


def test_a_long_or_binary_refusal_is_bounded_and_printable() -> None:
    exchange = mechanism(Token(SECRET)).exchange("host")
    exchange.step(None)
    assert exchange.step(b"\xff\x00\x1b[31m" * 5000) == b"\x01"
    text = failing(lambda: exchange.step(b"again"), SaslAuthenticationError, SECRET)
    assert text.isprintable()
    assert len(text) < 600

    exchange = mechanism(Token(SECRET)).exchange("host")
    exchange.step(None)
    assert "65536 are allowed" in failing(lambda: exchange.step(bytes(70_000)), AuthenticationError, SECRET)


def test_a_source_that_fails_is_a_retriable_error() -> None:
    def broken() -> Token:
        raise RuntimeError("no metadata service")

    exchange = OAuthBearer(TokenLogin(broken, "the callback", LoginPolicy()), {}).exchange("host")
    text = failing(lambda: exchange.step(None), NetworkError)
    assert text == "the callback raised RuntimeError: no metadata service"


def test_no_representation_shows_the_token() -> None:
    found = mechanism(Token(SECRET, 1_900_000_000))
    exchange = found.exchange("host")
    exchange.step(None)
    assert SECRET not in f"{found!r}{found}{exchange!r}{vars(found)}{vars(exchange)}{vars(found._login)}"
