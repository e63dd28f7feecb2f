"""The embedded broker answers as Apache Kafka 4.3.1 does, over a list of scenarios of raw requests."""

from collections.abc import Iterator

import pytest

from tests.integration.scenarios import SCENARIOS, Wire, differences
from tests.oracle.kafka import RealKafka

pytestmark = [pytest.mark.java, pytest.mark.slow]

# Scenarios in which the two differ, and why that is right. One that no longer differs fails the test.
KNOWN_DIFFERENCES: dict[str, str] = {}


@pytest.fixture(scope="module")
def brokers(real_kafka: RealKafka, embedded_bootstrap_servers: str) -> tuple[str, str]:
    """Return bootstrap servers of the real and of the embedded broker, their internal topics made."""
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
    wrong = differences(found, expected)
    assert not wrong, "\n".join(["embedded != Kafka", *wrong])


def _transcript(bootstrap_servers: str, name: str) -> list[tuple[str, object]]:
    with Wire(bootstrap_servers, name) as wire:
        SCENARIOS[name](wire)
        return wire.transcript


def test_known_differences_are_scenarios() -> None:
    assert set(KNOWN_DIFFERENCES) <= set(SCENARIOS)
