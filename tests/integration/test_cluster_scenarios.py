"""Three embedded nodes answer as three nodes of Apache Kafka 4.3.1 do, while some die, stop and return."""

from collections.abc import Iterator
from typing import Any

import pytest

from kbatch.testing import Broker
from tests.conftest import require_jars
from tests.integration.scenarios import differences
from tests.integration.scenarios.nodes import NODES_SCENARIOS, RACKS, Cluster, Nodes
from tests.oracle.kafka import RealCluster

pytestmark = [pytest.mark.java, pytest.mark.slow]
NODES, SESSION_MS = 3, 9_000


@pytest.fixture(scope="module")
def real_cluster() -> Iterator[Cluster]:
    require_jars()
    properties = {
        "offsets.topic.replication.factor": NODES,
        "transaction.state.log.replication.factor": NODES,
        "auto.leader.rebalance.enable": "false",
        "broker.session.timeout.ms": SESSION_MS,  # long, or a busy machine fences nodes that live
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    }
    with RealCluster(NODES, properties, racks=RACKS) as cluster:
        yield cluster


@pytest.fixture
def embedded_cluster() -> Iterator[Cluster]:
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


def _transcript(cluster: Cluster, name: str) -> list[tuple[str, object]]:
    with Nodes(cluster, name) as nodes:
        NODES_SCENARIOS[name](nodes)
        return nodes.transcript
