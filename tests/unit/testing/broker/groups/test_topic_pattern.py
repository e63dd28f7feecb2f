"""Patterns in RE2's syntax: what they match, and what is refused."""

from __future__ import annotations

import warnings

import pytest

from kbatch.errors import ErrorCode
from kbatch.testing.broker.broker_error import BrokerError
from kbatch.testing.broker.groups.topic_pattern import compiled

NAMES = ["orders", "Orders", "orders-1", "a.b", "axb", "a_b", "12"]


@pytest.mark.parametrize(
    ("regex", "matched"),
    [
        ("orders", ["orders"]),
        ("orders.*", ["orders", "orders-1"]),
        ("(?i)orders", ["orders", "Orders"]),
        ("(?i:O)rders", ["orders", "Orders"]),
        ("(?U)orders.+", ["orders-1"]),
        ("(?P<a>a).b", ["a.b", "axb", "a_b"]),
        ("(?<a>a).b", ["a.b", "axb", "a_b"]),
        (r"a\.b", ["a.b"]),
        (r"\Qa.b\E", ["a.b"]),
        (r"\Qa.b", ["a.b"]),
        (r"\Aa.b\z", ["a.b", "axb", "a_b"]),
        (r"a\Cb", ["a.b", "axb", "a_b"]),
        ("[[:alpha:]]+", ["orders", "Orders", "axb"]),
        ("[[:^digit:]]+", ["orders", "Orders", "a.b", "axb", "a_b"]),
        ("[[:word:]]+", ["orders", "Orders", "axb", "a_b", "12"]),
        (r"\pL+", ["orders", "Orders", "axb"]),
        (r"\p{Lu}.*", ["Orders"]),
        (r"\PL+", ["12"]),
        (r"[\p{Nd}x]+", ["12"]),
        (r"\p{^N}+", ["orders", "Orders", "a.b", "axb", "a_b"]),
        (r"\d{2}", ["12"]),
        (r"\w+", ["orders", "Orders", "axb", "a_b", "12"]),
        ("[a[b&&.~|]+", ["a.b"]),
        ("[]a.b]+", ["a.b"]),
        ("[^]a]+", ["orders", "Orders", "orders-1", "12"]),
        ("x?", []),
        ("", []),
    ],
)
def test_pattern_matches_as_re2_does(regex: str, matched: list[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pattern = compiled(regex)
    assert [name for name in NAMES if pattern.fullmatch(name)] == matched


@pytest.mark.parametrize(
    "regex",
    [
        *("(", ")", "[a", "[a-", "*", "a**", "a++", "a{1001}", "a{2,1001}", "a{1}{2}", "a\\", "x(?i)y"),
        *("(?=a)", "(?!a)", "(?<=a)b", "(?<!a)b", "(?>a)", "(?#a)", r"(a)\1", r"(?P<n>a)(?P=n)", "(?P<n>a"),
        *(r"\p{Foo}", "[[:foo:]]", r"\Z", r"\k<a>", r"\N{SPACE}", "(*a)"),
    ],
)
def test_invalid_pattern_is_refused_by_its_name(regex: str) -> None:
    with pytest.raises(BrokerError) as caught:
        compiled(regex)
    assert caught.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert f"`{regex}`" in str(caught.value.message)
