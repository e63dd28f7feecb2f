"""Clients push their metrics: to the embedded broker, and to a real Kafka with a receiver (KIP-714)."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from kbatch import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    Producer,
    ShareConsumer,
    TopicReader,
)
from kbatch.admin import ConfigResource
from kbatch.errors import IllegalStateError, UnsupportedVersionError
from kbatch.testing import Broker
from tests.conftest import require_jars
from tests.oracle import java_clients
from tests.oracle.kafka import RealKafka
from tests.support.effort import REAL
from tests.support.patience import repeat_until, until

TOPIC = "orders"
INTERVAL_MS = 100
RECORDS = "org.apache.kafka.producer.record.send.total"


class Pushed(NamedTuple):
    """What a broker has received."""

    client_id: str
    is_last: bool
    metrics: dict[str, float]
    labels: dict[str, str]


class Target(NamedTuple):
    """A broker that collects metrics."""

    servers: str
    pushed: Callable[[], list[Pushed]]

    def of(self, client_id: str) -> list[Pushed]:
        return [each for each in self.pushed() if each.client_id == client_id]


def read(client_id: str, is_last: bool, data: bytes) -> Pushed:
    metrics: dict[str, float] = {}
    labels: dict[str, str] = {}
    for resource in MetricsData.FromString(data).resource_metrics:
        labels |= {each.key: each.value.string_value for each in resource.resource.attributes}
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                points = metric.sum.data_points if metric.HasField("sum") else metric.gauge.data_points
                for point in points:
                    metrics[metric.name] = point.as_double or float(point.as_int)
    return Pushed(client_id, is_last, metrics, labels)


@pytest.fixture
def embedded() -> Iterator[Target]:
    with Broker({TOPIC: 1}) as broker:
        broker.subscribe_to_metrics("*", interval_ms=INTERVAL_MS)
        yield Target(
            broker.bootstrap_servers,
            lambda: [read(each.client_id, each.is_last, each.metrics) for each in broker.pushed_metrics()],
        )


@pytest.fixture(scope="module")
def collecting_kafka() -> Iterator[RealKafka]:
    require_jars()
    with RealKafka({"metric.reporters": "TelemetryReceiver"}) as kafka:
        with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
            admin.configs.alter(client_metrics="all", set={"metrics": "*", "interval.ms": INTERVAL_MS})
            admin.topics.create(TOPIC, partitions=1, replication_factor=1)
            until(lambda: admin.configs.describe(client_metrics="all")["metrics"].value == "*")
        yield kafka


@pytest.fixture
def real(collecting_kafka: RealKafka) -> Target:
    def pushed() -> list[Pushed]:
        lines = collecting_kafka.output(1 << 30).splitlines(keepends=True)
        # the last line may be on its way
        rows = [line.split() for line in lines if line.startswith("pushed ") and line.endswith("\n")]
        return [
            read(client_id, is_last == "true", base64.b64decode(data))
            for _, client_id, _, is_last, data in (row for row in rows if len(row) == 5)
        ]

    return Target(collecting_kafka.bootstrap_servers, pushed)


@pytest.fixture(params=["embedded", REAL])
def target(request: pytest.FixtureRequest) -> Target:
    found: Target = request.getfixturevalue(request.param)
    return found


def test_a_producer_pushes_while_it_lives_and_a_last_time(target: Target) -> None:
    with Producer(bootstrap_servers=target.servers, client_id="p", enable_metrics_push=True) as producer:
        producer.send(TOPIC, b"").result()
        until(lambda: sum(each.metrics.get(RECORDS, 0) for each in target.of("p")) == 1)
        assert not any(each.is_last for each in target.of("p"))
        producer.send(TOPIC, b"").result()
    until(lambda: any(each.is_last for each in target.of("p")))
    pushed = target.of("p")
    assert [each.is_last for each in pushed] == [False] * (len(pushed) - 1) + [True]
    assert sum(each.metrics.get(RECORDS, 0) for each in pushed) == 2  # each push has what is new


def test_a_consumer_says_which_it_is(target: Target) -> None:
    keys: dict[str, Any] = {"client_id": "c", "group_id": "billing", "enable_metrics_push": True}
    with Consumer(bootstrap_servers=target.servers, auto_offset_reset="earliest", **keys) as consumer:
        consumer.subscribe([TOPIC])
        until(lambda: consumer.poll(0.01) is not None and members_of(target, "c"))
    until(lambda: target.of("c")[-1].is_last)
    last = target.of("c")[-1]
    assert last.labels["group_id"] == "billing"
    assert len(members_of(target, "c")) == 1
    assert any(name.startswith("org.apache.kafka.consumer.coordinator.") for name in last.metrics)


def members_of(target: Target, client_id: str) -> set[str]:
    """Return what groups call a client: nothing before it has joined, and after it has left."""
    return {label for each in target.of(client_id) if (label := each.labels.get("group_member_id"))}


def test_an_admin_pushes(target: Target) -> None:
    with Admin(bootstrap_servers=target.servers, client_id="a", enable_metrics_push=True) as admin:
        admin.topics.list()
        until(lambda: target.of("a"))
    until(lambda: target.of("a")[-1].is_last)


def test_a_producer_of_an_event_loop_pushes_a_last_time(target: Target) -> None:
    async def main() -> None:
        keys: dict[str, Any] = {"client_id": "ap", "enable_metrics_push": True}
        async with AsyncProducer(bootstrap_servers=target.servers, **keys) as producer:
            await producer.send(TOPIC, b"")
            while not target.of("ap"):
                await asyncio.sleep(0.01)

    asyncio.run(main())
    until(lambda: target.of("ap")[-1].is_last)


def test_clients_of_every_kind_have_a_name(target: Target) -> None:
    keys: dict[str, Any] = {"bootstrap_servers": target.servers, "enable_metrics_push": True}
    group: dict[str, Any] = {**keys, "group_id": "named"}
    clients: list[Any] = [
        Producer(client_id="named-p", **keys),
        Consumer(client_id="named-c", **group),
        ShareConsumer(client_id="named-s", **{**group, "group_id": "named-share"}),
        TopicReader(client_id="named-r", **keys),
        Admin(client_id="named-a", **keys),
    ]
    try:
        names = [client.client_instance_id() for client in clients]
        assert len(set(names)) == len(clients)
        assert [client.client_instance_id() for client in clients] == names
    finally:
        for client in clients:
            client.close()
    for client_id in ("named-p", "named-c", "named-s", "named-r", "named-a"):
        until(lambda client_id=client_id: any(each.is_last for each in target.of(client_id)))  # type: ignore[misc]


def test_clients_of_event_loops_have_a_name(target: Target) -> None:
    async def main() -> list[UUID]:
        keys: dict[str, Any] = {"bootstrap_servers": target.servers, "enable_metrics_push": True}
        async with (
            AsyncProducer(**keys) as producer,
            AsyncConsumer(group_id="named", **keys) as consumer,
            AsyncAdmin(**keys) as admin,
        ):
            return [await client.client_instance_id() for client in (producer, consumer, admin)]

    assert len(set(asyncio.run(main()))) == 3


def test_a_share_consumer_says_which_member_it_is(target: Target) -> None:
    keys: dict[str, Any] = {"client_id": "s", "group_id": "shared", "enable_metrics_push": True}
    with ShareConsumer(bootstrap_servers=target.servers, **keys) as consumer:
        consumer.subscribe([TOPIC])
        until(lambda: consumer.poll(0.01) is not None and members_of(target, "s"))
    (member_id,) = members_of(target, "s")
    assert len(member_id) == 22
    assert {each.labels["group_id"] for each in target.of("s")} == {"shared"}


def test_a_client_that_pushes_nothing_has_no_name(embedded: Target) -> None:
    with Admin(bootstrap_servers=embedded.servers) as admin:
        with pytest.raises(IllegalStateError, match=r"enable\.metrics\.push"):
            admin.client_instance_id()
        with pytest.raises(ValueError, match="timeout"):
            admin.client_instance_id(timeout=-1)


def test_old_brokers_give_no_names() -> None:
    with Broker() as broker:
        broker.hide_requests(0, "GetTelemetrySubscriptions", "PushTelemetry")
        keys: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers, "enable_metrics_push": True}
        with Admin(**keys) as admin, pytest.raises(UnsupportedVersionError, match=r"Kafka 3\.7"):
            admin.client_instance_id()


def test_subscriptions_are_configs_of_clients_that_match() -> None:
    with Broker({TOPIC: 1}) as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        servers = broker.bootstrap_servers
        wanted = {
            "metrics": "org.apache.kafka.producer.",
            "interval.ms": INTERVAL_MS,
            "match": ["client_id=p.*"],
        }
        admin.configs.alter(client_metrics="of-p", set=wanted)
        assert ConfigResource("client_metrics", "of-p") in admin.configs.list_resources()
        entries = admin.configs.describe(client_metrics="of-p")
        assert entries["match"].value == "client_id=p.*"
        assert entries["match"].source == "DYNAMIC_CLIENT_METRICS_CONFIG"
        for client_id in ("other", "p1"):
            with Producer(
                bootstrap_servers=servers, client_id=client_id, enable_metrics_push=True
            ) as producer:
                producer.client_instance_id()
        assert {each.client_id for each in broker.pushed_metrics()} == {"p1"}
        names = [read(each.client_id, each.is_last, each.metrics).metrics for each in broker.pushed_metrics()]
        assert all(name.startswith("org.apache.kafka.producer.") for each in names for name in each)
        admin.configs.alter(client_metrics="of-p", reset=list(wanted))
        assert admin.configs.list_resources(["client_metrics"]) == ()


def test_metrics_go_over_tls() -> None:
    with Broker({TOPIC: 1}, tls=True) as broker:
        broker.subscribe_to_metrics("*", interval_ms=INTERVAL_MS)
        with Producer(broker.client_settings(), enable_metrics_push=True) as producer:
            producer.client_instance_id()
        assert [each.is_last for each in broker.pushed_metrics()][-1:] == [True]


def test_without_the_key_nothing_is_pushed(embedded: Target) -> None:
    with Producer(bootstrap_servers=embedded.servers, client_id="quiet") as producer:
        producer.send(TOPIC, b"").result()
    with Producer(bootstrap_servers=embedded.servers, client_id="p", enable_metrics_push=True) as producer:
        until(lambda: embedded.of("p"))
    assert embedded.of("quiet") == []


def test_a_dead_broker_does_not_hold_close() -> None:
    broker = Broker({TOPIC: 1})
    broker.start()
    broker.subscribe_to_metrics("*", interval_ms=60_000)
    producer = Producer(bootstrap_servers=broker.bootstrap_servers, enable_metrics_push=True)
    producer.send(TOPIC, b"").result()
    telemetry = producer._runtime.engine.telemetry
    assert telemetry is not None
    until(lambda: telemetry.subscription)
    broker.stop()
    producer.close()


@pytest.mark.java
def test_names_are_those_of_the_java_client(real: Target) -> None:
    common = {"bootstrap.servers": real.servers, "metrics.recording.level": "DEBUG"}
    with Producer({**common, "client.id": "ours"}, enable_metrics_push=True) as producer:
        producer.send(TOPIC, b"").result()
        until(lambda: real.of("ours"))
    java = {**common, "client.id": "java", "enable.metrics.push": "true"}
    until(lambda: real.of("ours")[-1].is_last)
    ours = set[str]().union(*(each.metrics for each in real.of("ours")))
    names = {name for name in ours if name.startswith("org.apache.kafka.producer.")}

    def unknown() -> set[str]:
        return names - set[str]().union(*(each.metrics for each in real.of("java")))

    # A push of Java's that comes before its record is sent lacks what topics count.
    repeat_until(lambda: java_clients.produce(TOPIC, {"value": java}), lambda: not unknown(), unknown)
