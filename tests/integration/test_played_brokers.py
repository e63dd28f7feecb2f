"""An embedded cluster answers brokers that a test plays as Apache Kafka 4.3.1 does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kbatch.testing import Broker
from tests.conftest import require_jars
from tests.integration.scenarios import differences
from tests.integration.scenarios.played import PLAYED_SCENARIOS, Stage
from tests.oracle.kafka import RealKafka
from tests.support.patience import HANG_MS

pytestmark = [pytest.mark.java, pytest.mark.slow]
SESSION_MS = 15_000  # long, or a busy machine fences brokers that live
NODES = 4


@pytest.fixture(scope="module")
def real_stage() -> Iterator[Stage]:
    require_jars()
    with (
        RealKafka({"broker.session.timeout.ms": SESSION_MS, "replica.lag.time.max.ms": HANG_MS}) as kafka,
        Stage(kafka.bootstrap_servers, kafka.controllers[0]) as stage,
    ):
        yield stage


@pytest.fixture(scope="module")
def embedded_stage() -> Iterator[Stage]:
    options: dict[str, Any] = {
        "session_timeout_ms": SESSION_MS,
        "replica_lag_ms": HANG_MS,
        "leader_rebalance": False,
    }
    with Broker(nodes=NODES, auto_create_topics=False, **options) as broker:
        for node in range(1, NODES):
            broker.kill_node(node)
        address = broker.bootstrap_servers.split(",")[0]
        with Stage(address, address) as stage:
            yield stage


@pytest.mark.parametrize("name", PLAYED_SCENARIOS)
def test_played_brokers_are_answered_as_by_kafka(real_stage: Stage, embedded_stage: Stage, name: str) -> None:
    found, expected = (_transcript(stage, name) for stage in (embedded_stage, real_stage))
    wrong = differences(found, expected)
    assert not wrong, "\n".join(["embedded != Kafka", *wrong])


def _transcript(stage: Stage, name: str) -> list[tuple[str, object]]:
    stage.name, stage.transcript = name, []
    PLAYED_SCENARIOS[name](stage)
    return stage.transcript
