"""Three embedded nodes answer as three nodes of Apache Kafka 4.3.1 do, while some die, stop and return."""

from collections.abc import Iterator
from typing import Any

import pytest

from kbatch.testing import Broker
from tests.conftest import require_jars
from tests.integration.scenarios import differences
from tests.integration.scenarios.nodes import (
    NODES_SCENARIOS,
    RACKS,
    Cluster,
    Nodes,
    preferred_leaders_return,
    requests_wait_for_a_controller,
)
from tests.oracle.kafka import RealCluster

pytestmark = [pytest.mark.java, pytest.mark.slow]
NODES, SESSION_MS = 3, 9_000


PROPERTIES = {
    "offsets.topic.replication.factor": NODES,
    "transaction.state.log.replication.factor": NODES,
    "share.coordinator.state.topic.replication.factor": NODES,
    "share.coordinator.state.topic.num.partitions": 1,
    "broker.session.timeout.ms": SESSION_MS,  # long, or a busy machine fences nodes that live
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}
REBALANCE, INTERVAL = "auto.leader.rebalance.enable", "leader.imbalance.check.interval.seconds"
EMBEDDED_INTERVAL_SECONDS = 300


@pytest.fixture(scope="module")
def real_cluster() -> Iterator[Cluster]:
    require_jars()
    with RealCluster(NODES, {**PROPERTIES, REBALANCE: "false"}, racks=RACKS) as cluster:
        yield cluster


@pytest.fixture
def embedded_cluster() -> Iterator[Broker]:
    options: dict[str, Any] = {
        "internal_topic_partitions": 1,
        "leader_rebalance": False,
        "session_timeout_ms": SESSION_MS,
        "racks": RACKS,
    }
    with Broker(nodes=NODES, auto_create_topics=False, **options) as broker:
        yield broker


@pytest.mark.parametrize("name", NODES_SCENARIOS)
def test_embedded_nodes_answer_as_kafkas_do(
    real_cluster: Cluster, embedded_cluster: Cluster, name: str
) -> None:
    found, expected = (_transcript(cluster, name) for cluster in (embedded_cluster, real_cluster))
    wrong = differences(found, expected)
    assert not wrong, "\n".join(["embedded != Kafka", *wrong])


def test_KE10_preferred_leaders_return_by_themselves() -> None:
    require_jars()
    with Broker(nodes=NODES, auto_create_topics=False) as broker, Nodes(broker, "balanced") as nodes:
        preferred_leaders_return(nodes, lambda: broker.advance(EMBEDDED_INTERVAL_SECONDS))
        found = nodes.transcript
    properties = {**PROPERTIES, REBALANCE: "true", INTERVAL: 1}
    with RealCluster(NODES, properties) as cluster, Nodes(cluster, "balanced") as nodes:
        preferred_leaders_return(nodes, lambda: None)
        wrong = differences(found, nodes.transcript)
    assert not wrong, "\n".join(["embedded != Kafka", *wrong])


def test_KB06_KB11_requests_wait_for_a_controller(real_cluster: Cluster, embedded_cluster: Broker) -> None:
    with Nodes(embedded_cluster, "controllers") as nodes:
        requests_wait_for_a_controller(
            nodes, lambda node: embedded_cluster.isolate(node, ["controller"]), embedded_cluster.heal
        )
        found = nodes.transcript
    with Nodes(real_cluster, "controllers") as nodes:
        requests_wait_for_a_controller(nodes, lambda node: None, lambda: None)
        wrong = differences(found, nodes.transcript)
    assert not wrong, "\n".join(["embedded != Kafka", *wrong])


def _transcript(cluster: Cluster, name: str) -> list[tuple[str, object]]:
    with Nodes(cluster, name) as nodes:
        NODES_SCENARIOS[name](nodes)
        return nodes.transcript
