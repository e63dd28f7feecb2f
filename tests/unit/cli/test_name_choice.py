"""Names and patterns that a call chooses."""

from __future__ import annotations

import re

import click
import pytest

from kbatch.cli.name_choice import NameChoice

THERE = ["orders", "orders-eu", "returns"]


@pytest.mark.parametrize(
    ("given", "among"),
    [
        (["orders"], ["orders"]),
        (["nowhere", "orders", "orders"], ["nowhere", "orders"]),
        (["^orders.*"], ["orders", "orders-eu"]),
        (["^orders.+", "returns"], ["orders-eu", "returns"]),
        (["^.*s", "^r.*"], ["orders", "returns"]),
    ],
)
def test_names_and_patterns_are_found(given: list[str], among: list[str]) -> None:
    choice = NameChoice(given)
    assert choice.among(THERE) == among
    assert [each for each in THERE if choice.matches(each)] == [each for each in among if each in THERE]


@pytest.mark.parametrize("given", [["^orders.*"], ["^orders.+", "a.b"], ["^a|b", "orders"]])
def test_a_subscription_matches_what_the_choice_does(given: list[str]) -> None:
    choice = NameChoice(given)
    assert isinstance(choice.subscription, str)
    for name in [*THERE, "a", "b", "a.b", "aXb", "orders\n"]:
        assert bool(re.fullmatch(choice.subscription, name)) is choice.matches(name)


def test_nothing_given_chooses_everything() -> None:
    assert all(map(NameChoice([]).matches, THERE))


def test_a_pattern_that_matches_nothing_is_named() -> None:
    with pytest.raises(click.ClickException, match=r"no name matches \^order, which must match whole names"):
        NameChoice(["^order", "^orders"]).among(THERE)


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(click.UsageError, match="not a regular expression"):
        NameChoice(["^("])
