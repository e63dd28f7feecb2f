"""An embedded cluster answers brokers that a test plays as Apache Kafka 4.3.1 does."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kbatch.testing import Broker
from tests.conftest import require_jars
from tests.integration.scenarios import differences
from tests.integration.scenarios.played import (
    PLAYED_SCENARIOS,
    Stage,
    disks_are_changed_and_fail,
    replicas_lag,
)
from tests.oracle.kafka import RealKafka
from tests.support.patience import HANG_MS
from tests.support.played_leader import CalledLeader, SocketLeader

pytestmark = [pytest.mark.java, pytest.mark.slow]
SESSION_MS = 15_000  # long, or a busy machine fences brokers that live
LAG_MS = 1_000  # of followers of the second pair of nodes
NODES = 4
LEADER = 3  # which the test plays as one


@pytest.fixture(scope="module")
def real_stage() -> Iterator[Stage]:
    require_jars()
    with _real_stage({"replica.lag.time.max.ms": HANG_MS}) as (_, stage):
        yield stage


@pytest.fixture(scope="module")
def embedded_stage() -> Iterator[Stage]:
    with _embedded_stage(replica_lag_ms=HANG_MS) as (_, stage):
        yield stage


@contextmanager
def _real_stage(properties: Mapping[str, object], **options: Any) -> Iterator[tuple[RealKafka, Stage]]:
    properties = {**properties, "broker.session.timeout.ms": SESSION_MS}
    with (
        RealKafka(properties, **options) as kafka,
        SocketLeader(LEADER) as leader,
        Stage(kafka.bootstrap_servers, kafka.controllers[0], leader) as stage,
    ):
        yield kafka, stage


@contextmanager
def _embedded_stage(**options: Any) -> Iterator[tuple[Broker, Stage]]:
    options |= {"session_timeout_ms": SESSION_MS, "leader_rebalance": False}
    with Broker(nodes=NODES, auto_create_topics=False, **options) as broker:
        for node in range(1, NODES):
            broker.kill_node(node)
        address = broker.bootstrap_servers.split(",")[0]
        with Stage(address, address, CalledLeader(LEADER, broker)) as stage:
            yield broker, stage


@pytest.mark.parametrize("name", PLAYED_SCENARIOS)
def test_played_brokers_are_answered_as_by_kafka(real_stage: Stage, embedded_stage: Stage, name: str) -> None:
    found, expected = (_transcript(stage, name) for stage in (embedded_stage, real_stage))
    wrong = differences(found, expected)
    assert not wrong, "\n".join(["embedded != Kafka", *wrong])


def test_KI01_KD04_KB12_lagging_followers_and_disks() -> None:
    require_jars()
    with _embedded_stage(replica_lag_ms=LAG_MS, log_dirs=2) as (broker, stage):
        found = _of_lag_and_disks(stage, lambda: broker.fail_log_dir(0, 1))
    with _real_stage({"replica.lag.time.max.ms": LAG_MS}, log_dirs=2) as (kafka, stage):
        expected = _of_lag_and_disks(stage, lambda: _replace_by_a_file(kafka.log_directories(2)[1]))
    wrong = differences(found, expected)
    assert not wrong, "\n".join(["embedded != Kafka", *wrong])


def _of_lag_and_disks(stage: Stage, fail_second_disk: Callable[[], None]) -> list[tuple[str, object]]:
    stage.name = "lag"
    replicas_lag(stage)
    stage.name = "disks"
    disks_are_changed_and_fail(stage, fail_second_disk)
    return stage.transcript


def _replace_by_a_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.touch()


def _transcript(stage: Stage, name: str) -> list[tuple[str, object]]:
    stage.name, stage.transcript = name, []
    PLAYED_SCENARIOS[name](stage)
    return stage.transcript
