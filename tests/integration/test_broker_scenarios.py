"""The embedded broker answers as Apache Kafka 4.3.1 does, over a list of scenarios of raw requests."""

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import pytest

from tests.integration.scenarios import SCENARIOS, Wire
from tests.oracle.kafka import RealKafka

pytestmark = pytest.mark.java

# Scenarios in which the two differ, and why that is right. One that no longer differs fails the test.
KNOWN_DIFFERENCES: dict[str, str] = {}


@pytest.fixture(scope="module")
def brokers(real_kafka: RealKafka, embedded_bootstrap_servers: str) -> tuple[str, str]:
    """Bootstrap servers of the real and of the embedded broker, their internal topics made."""
    brokers = (real_kafka.bootstrap_servers, embedded_bootstrap_servers)
    for bootstrap_servers in brokers:
        with Wire(bootstrap_servers, "warm-up") as wire:
            wire.await_coordinators()
    return brokers


def _scenarios() -> Iterator[object]:
    for name in SCENARIOS:
        reason = KNOWN_DIFFERENCES.get(name)
        marks = [pytest.mark.xfail(strict=True, reason=reason)] if reason else []
        yield pytest.param(name, marks=marks)


@pytest.mark.parametrize("name", [*_scenarios()])
def test_embedded_broker_answers_as_kafka_does(brokers: tuple[str, str], name: str) -> None:
    expected, found = (_transcript(bootstrap_servers, name) for bootstrap_servers in brokers)
    differences = [
        difference
        for number, (step, kafkas) in enumerate(zip_longest(found, expected))
        for difference in _differences(step, kafkas, f"step {number}, {(step or kafkas)[0]}")
    ]
    assert not differences, "\n".join(["embedded != Kafka", *differences])


def _differences(found: Any, expected: Any, path: str) -> Iterator[str]:
    """Return where two structures of dicts and lists differ, and how."""
    if isinstance(found, dict) and isinstance(expected, dict):
        for key in found | expected:
            yield from _differences(found.get(key), expected.get(key), f"{path}.{key}")
    elif _are_lists(found, expected) and len(found) == len(expected):
        for number, (item, other) in enumerate(zip(found, expected, strict=True)):
            yield from _differences(item, other, f"{path}[{number}]")
    elif found != expected:
        yield f"{path}: {found!r} != {expected!r}"


def _are_lists(*values: object) -> bool:
    return all(isinstance(value, list | tuple) for value in values)


def _transcript(bootstrap_servers: str, name: str) -> list[tuple[str, object]]:
    with Wire(bootstrap_servers, name) as wire:
        SCENARIOS[name](wire)
        return wire.transcript


def test_known_differences_are_scenarios() -> None:
    assert set(KNOWN_DIFFERENCES) <= set(SCENARIOS)
