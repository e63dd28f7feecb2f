"""An Admin over bootstrap.controllers: embedded nodes that answer what controllers answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kbatch import Admin, Producer
from kbatch.errors import (
    ErrorCode,
    InvalidPartitionsError,
    KafkaError,
    KafkaTimeoutError,
    MismatchedEndpointTypeError,
    TopicExistsError,
    UnsupportedEndpointTypeError,
    UnsupportedVersionError,
)
from kbatch.protocol import messages
from kbatch.testing import Broker

ACTIVE = 1
NOT_ANSWERED = ("Metadata", "DescribeTopicPartitions", "FindCoordinator", "ListOffsets", "ListGroups")


@pytest.fixture
def controllers() -> Iterator[Broker]:
    """Two nodes, of which the second one is active."""
    with Broker({"orders": 2}, auto_create_topics=False, nodes=2) as broker:
        nodes = [address.rsplit(":", 1) for address in broker.bootstrap_servers.split(",")]
        kind = messages.DescribeClusterResponse
        answer = kind(
            endpoint_type=2,
            cluster_id="cluster",
            controller_id=ACTIVE,
            brokers=[
                kind.DescribeClusterBroker(broker_id=node_id, host=host, port=int(port))
                for node_id, (host, port) in enumerate(nodes)
            ],
        )
        broker.intercept(
            "DescribeCluster",
            lambda request: answer if request.endpoint_type == 2 else "MISMATCHED_ENDPOINT_TYPE",
        )
        for node_id in range(len(nodes)):
            broker.hide_requests(node_id, *NOT_ANSWERED)
        yield broker


@pytest.fixture
def admin(controllers: Broker) -> Iterator[Admin]:
    with Admin(bootstrap_controllers=controllers.bootstrap_servers, retry_backoff_ms=1) as opened:
        yield opened


def test_changes_go_to_the_active_controller(controllers: Broker, admin: Admin) -> None:
    controllers.fail_next("CreateTopics", error="NOT_CONTROLLER", times=10**6, node=1 - ACTIVE)
    for number in range(5):
        created = admin.topics.create(f"new-{number}", partitions=2, replication_factor=1)
        assert (created.partitions, created.existed) == (2, False)
    assert len(controllers.requests("CreateTopics")) == 5


def test_AS49_another_active_controller_is_found(controllers: Broker, admin: Admin) -> None:
    controllers.fail_next("CreateTopics", error="NOT_CONTROLLER", times=2)
    assert admin.topics.create("new", partitions=1, replication_factor=1).partitions == 1
    assert len(controllers.requests("CreateTopics")) == 3
    assert len(controllers.requests("DescribeCluster")) > 1


def test_AS50_addresses_of_the_other_kind_are_refused(controllers: Broker) -> None:
    with (
        Broker() as broker,
        Admin(bootstrap_controllers=broker.bootstrap_servers) as admin,
        pytest.raises(MismatchedEndpointTypeError, match=r"bootstrap\.servers"),
    ):
        admin.topics.create("new")
    with Admin(bootstrap_servers=controllers.bootstrap_servers) as admin:
        with pytest.raises(UnsupportedVersionError, match=r"name brokers in bootstrap\.servers") as raised:
            admin.topics.create("new")
        assert raised.value.code == ErrorCode.UNSUPPORTED_VERSION
    with (
        Producer(bootstrap_servers=controllers.bootstrap_servers, max_block_ms=200) as producer,
        pytest.raises(KafkaTimeoutError, match=r"name brokers in bootstrap\.servers"),
    ):
        producer.send("orders", b"")


def test_the_cluster_is_that_of_controllers(admin: Admin) -> None:
    found = admin.cluster.describe()
    assert [each.node_id for each in found.nodes] == [0, 1]
    assert (found.controller, found.cluster_id) == (ACTIVE, "cluster")


@pytest.mark.parametrize(
    "call",
    [
        lambda admin: admin.topics.list(),
        lambda admin: admin.topics.describe("orders"),
        lambda admin: admin.topics.producers(("orders", 0)),
        lambda admin: admin.topics.create("orders", partitions=2, replication_factor=1, exist_ok=True),
        lambda admin: admin.groups.list(),
        lambda admin: admin.groups.describe("billing"),
        lambda admin: admin.transactions.list(),
        lambda admin: admin.transactions.describe("tx"),
        lambda admin: admin.cluster.describe(fenced=True),
        lambda admin: admin.cluster.unregister(0),
        lambda admin: admin.partitions.log_dirs(),
    ],
)
def test_what_only_brokers_answer_is_refused_at_once(admin: Admin, call: Any) -> None:
    with pytest.raises(UnsupportedEndpointTypeError, match=r"use an Admin with bootstrap\.servers"):
        call(admin)


def test_topics_are_deleted_by_name(controllers: Broker, admin: Admin) -> None:
    admin.topics.delete("orders")
    admin.topics.delete("orders", missing_ok=True)
    with pytest.raises(KafkaError) as raised:
        admin.topics.delete("orders")
    assert raised.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_refusal_after_a_lost_answer_stays_in_doubt(controllers: Broker, admin: Admin) -> None:
    """Controllers do not say what a topic is like."""
    controllers.drop_connection("CreateTopics", when="after")
    with pytest.raises(TopicExistsError) as exists:
        admin.topics.create("new", partitions=1, replication_factor=1)
    assert exists.value.possibly_persisted
    controllers.drop_connection("CreatePartitions", when="after")
    with pytest.raises(InvalidPartitionsError) as enlarged:
        admin.topics.add_partitions("new", 3)
    assert enlarged.value.possibly_persisted


def test_settings_are_described_and_changed(admin: Admin) -> None:
    admin.configs.alter(topic="orders", set={"retention.ms": 5000})
    assert admin.configs.describe(topic="orders")["retention.ms"].value == "5000"
