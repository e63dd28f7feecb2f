"""Tokens: their stated lifetime, those that cannot be sent, and secrets that must not be shown."""

from __future__ import annotations

import base64
import json
import pickle
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbatch.errors import AuthenticationError
from kbatch.sasl.tokens import Token
from tests.unit.sasl.secrecy import failing

SECRET = "s3cret-token"


def jwt(claims: object) -> str:
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"eyJhbGciOiJub25lIn0.{payload}.{SECRET}"


@pytest.mark.parametrize(
    ("value", "expires_at"),
    [
        (jwt({"exp": 1_900_000_000}), 1_900_000_000.0),
        (jwt({"exp": 1_900_000_000.5, "sub": "ä"}), 1_900_000_000.5),
        (jwt({"sub": "alice"}), None),
        (jwt({"exp": "1900000000"}), None),
        (jwt({"exp": True}), None),
        (jwt({"exp": -1}), None),
        (jwt({"exp": 1e300}), None),
        (jwt([1]), None),
        ("aHR0cHM6Ly9rYWZrYS5ldS1jZW50cmFsLTEuYW1hem9uYXdzLmNvbS8", None),  # MSK's: base64 of a URL
        ("a.b.c", None),
        ("....", None),
        ("a.W1tbW1tb" + "W1tb" * 50_000 + ".c", None),
        ("opaque token, with blanks", None),
    ],
    ids=lambda value: str(value)[-20:],
)
def test_only_a_jwt_with_exp_knows_its_expiry(value: str, expires_at: float | None) -> None:
    token = Token(value)
    assert (token.value, token.expires_at) == (value, expires_at)


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1))
def test_no_form_of_token_is_refused(value: str) -> None:
    assert Token(value).value == value


@pytest.mark.parametrize(
    "expires_at",
    [
        1_900_000_000,
        1_900_000_000.0,
        datetime.fromtimestamp(1_900_000_000, UTC),
        datetime.fromtimestamp(1_900_000_000, timezone(timedelta(hours=5))),
    ],
)
def test_a_given_end_counts_before_the_claim(expires_at: Any) -> None:
    assert Token(jwt({"exp": 5}), expires_at).expires_at == 1_900_000_000.0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((f"{SECRET}\n",), "control character at index 12 of 13; strip line ends"),
        ((f"\x01auth={SECRET}",), "control character at index 0"),
        (("",), "the token is empty"),
        ((SECRET.encode(),), "a token must be a str, got bytes"),
        ((f"{SECRET}\ud800",), "lone surrogate"),
        ((SECRET, 1_900_000_000_000), "seconds since 1970, got 1900000000000; divide milliseconds by 1000"),
        ((SECRET, float("nan")), "seconds since 1970, got nan"),
        ((SECRET, "soon"), "seconds since 1970 or a datetime, got str"),
        ((SECRET, True), "seconds since 1970 or a datetime, got bool"),
        ((SECRET, datetime(2030, 1, 1)), "expires_at must have a time zone, got 2030-01-01T00:00:00"),
        ((SECRET, None, {"auth": "x"}), "letters only, but not auth, got 'auth'"),
        ((SECRET, None, {"logical-cluster": "x"}), "but not auth, got 'logical-cluster'"),
        (
            (SECRET, None, {"logicalCluster": "lkc\x01auth=x"}),
            "that of logicalCluster has not",
        ),
        ((SECRET, None, {"logicalCluster": ""}), "that of logicalCluster has not"),
        ((SECRET, None, {"logicalCluster": 5}), "that of logicalCluster has not"),
        ((SECRET, None, None, b"alice"), "a principal must be a str, got bytes"),
        ((SECRET, None, "a=b"), "extensions of a token must be a mapping of str to str, got str"),
    ],
)
def test_what_cannot_be_sent_is_refused_without_showing_it(arguments: Any, text: str) -> None:
    assert text in failing(lambda: Token(*arguments), AuthenticationError, SECRET)


def test_a_token_is_hidden_and_goes_through_pickle() -> None:
    token = Token(SECRET, 1_900_000_000, {"logicalCluster": "lkc-1"}, "alice")
    assert repr(token) == "Token([hidden], expires_at=1900000000.0, principal='alice')"
    assert SECRET not in f"{token}{[token]}"
    copied = pickle.loads(pickle.dumps(token))
    assert (copied.value, copied.expires_at, copied.principal) == (SECRET, 1_900_000_000.0, "alice")
    assert copied.extensions == {"logicalCluster": "lkc-1"}
