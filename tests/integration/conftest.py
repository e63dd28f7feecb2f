"""The brokers that the integration tests talk to: a real Apache Kafka, and the embedded one."""

import os
from collections.abc import Iterator

import pytest

from tests.oracle.java import KAFKA_VERSION, JavaMissingError, jars
from tests.oracle.kafka import RealKafka


@pytest.fixture(scope="session")
def java_jars() -> None:
    """Kafka's jars are there."""
    require_jars()


def require_jars(version: str = KAFKA_VERSION) -> None:
    """Skips where there are no jars. With `KBATCH_REQUIRE_JAVA=1` missing Java is an error."""
    try:
        jars(version)
    except JavaMissingError as missing:
        if os.environ.get("KBATCH_REQUIRE_JAVA") == "1":
            raise
        pytest.skip(f"the real Kafka is not available: {missing}")


@pytest.fixture(scope="session")
def real_kafka(java_jars: None) -> Iterator[RealKafka]:
    """One broker a test process: tests keep apart by the names of their topics, groups and transactions."""
    with RealKafka() as broker:
        yield broker


@pytest.fixture(scope="session")
def embedded_bootstrap_servers() -> Iterator[str]:
    from kbatch.testing import Broker

    with Broker(auto_create_topics=False, group_initial_rebalance_delay_ms=0) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="session", params=["embedded", pytest.param("real", marks=pytest.mark.java)])
def target(request: pytest.FixtureRequest) -> str:
    """Bootstrap servers of both brokers, one after the other."""
    if request.param == "embedded":
        return str(request.getfixturevalue("embedded_bootstrap_servers"))
    return str(request.getfixturevalue("real_kafka").bootstrap_servers)
