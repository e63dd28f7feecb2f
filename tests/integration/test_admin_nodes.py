"""Admin and clusters of three nodes: embedded ones where the broker knows the request, and a real Kafka."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import pytest

import kbatch
from kbatch import Admin, AsyncAdmin, TopicPartition
from kbatch.admin import Acl, AclFilter, NewTopic, QuotaEntity, Token
from kbatch.errors import (
    BrokerIdNotRegisteredError,
    BrokerNotAvailableError,
    DelegationTokenNotFoundError,
    DuplicateVoterError,
    EligibleLeadersNotAvailableError,
    ErrorCode,
    InvalidReplicationFactorError,
    InvalidRequestError,
    KafkaError,
    KafkaTimeoutError,
    MismatchedEndpointTypeError,
    NoReassignmentInProgressError,
    PartialFailure,
    PreferredLeaderNotAvailableError,
    UnsupportedVersionError,
)
from kbatch.protocol import messages
from kbatch.testing import Broker
from tests.conftest import require_jars
from tests.integration.cutting_proxy import losing
from tests.oracle.kafka import RealCluster
from tests.support.admin_calls import Call
from tests.support.admin_judge import Judge
from tests.support.broker_wire import Wire
from tests.support.effort import REAL, only_if_long
from tests.support.patience import HANG_SECONDS, repeat_while, until

pytestmark = pytest.mark.slow

NODES = (0, 1, 2)
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
USER, PASSWORD = "ada", "lovelace"
_numbers = itertools.count()


class Cluster(Protocol):
    """What tests do with three nodes."""

    @property
    def bootstrap_servers(self) -> str: ...
    def kill_node(self, node: int) -> None: ...
    def start_node(self, node: int) -> None: ...
    def pause_node(self, node: int) -> None: ...
    def resume_node(self, node: int) -> None: ...


@pytest.fixture(scope="module")
def real_cluster() -> Iterator[RealCluster]:
    require_jars()
    properties = {
        "offsets.topic.replication.factor": 3,
        "default.replication.factor": 3,
        "min.insync.replicas": 1,
        "unclean.leader.election.enable": "false",
        "auto.leader.rebalance.enable": "false",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": f'{PLAIN} user_{USER}="{PASSWORD}";',
        "delegation.token.secret.key": "secret",
    }
    with RealCluster(len(NODES), properties, listeners={"SASL": "SASL_PLAINTEXT"}, log_dirs=2) as cluster:
        yield cluster


@pytest.fixture(params=["embedded", REAL])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    if request.param == "real":
        yield request.getfixturevalue("real_cluster")
    else:
        with Broker(nodes=len(NODES), auto_create_topics=False, replication_factor=3, log_dirs=2) as broker:
            yield broker


def real_only(what: str) -> pytest.MarkDecorator:
    """Return the parameters of a test of requests that the embedded broker does not know."""
    skip = pytest.mark.skip(reason=f"the embedded broker has no {what}")
    return pytest.mark.parametrize("cluster", [pytest.param("embedded", marks=skip), REAL], indirect=True)


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[Admin]:
    with admin_of(cluster) as opened:
        yield opened


def admin_of(cluster: Cluster) -> Admin:
    return Admin(bootstrap_servers=cluster.bootstrap_servers, request_timeout_ms=5000, retry_backoff_ms=20)


@pytest.fixture
def topic(admin: Admin) -> str:
    """Return a new topic whose two partitions have the replicas 0, 1 and 1, 2."""
    name = f"nodes-{next(_numbers)}"
    admin.topics.create(name, assignment={0: [0, 1], 1: [1, 2]})
    return name


def leaders(admin: Admin, topic: str) -> list[int | None]:
    return [each.leader for each in admin.topics.describe(topic).partitions]


def topics_of(admin: Admin) -> set[str]:
    return {each.name for each in admin.topics.list()}


def replicas(admin: Admin, topic: str) -> list[tuple[int, ...]]:
    return [each.replicas for each in admin.topics.describe(topic).partitions]


def await_in_sync(admin: Admin, topic: str) -> None:
    until(
        lambda: all(set(each.isr) == set(each.replicas) for each in admin.topics.describe(topic).partitions)
    )


def topic_ids(cluster: Cluster, node: int, topic: str) -> Mapping[str, Any]:
    """Return what a node's metadata has of a topic, asked over a connection of its own."""
    with Wire(cluster.bootstrap_servers, node) as wire:
        asked = [messages.MetadataRequest.MetadataRequestTopic(name=topic)]
        (found,) = wire.ask(messages.MetadataRequest(topics=asked, allow_auto_topic_creation=False)).topics
    return {"error": found.error_code, "id": bytes(found.topic_id), "partitions": len(found.partitions)}


# Topics


def test_AS05_AS07_every_node_shows_what_was_done(cluster: Cluster, admin: Admin) -> None:
    name = f"nodes-{next(_numbers)}"
    for count in (3, 2, 5):
        created = admin.topics.create(name, partitions=count)
        for node in NODES:
            shown = {"error": 0, "id": created.topic_id.bytes, "partitions": count}  # type: ignore[union-attr]
            assert topic_ids(cluster, node, name) == shown
        admin.topics.delete(name)
        assert {topic_ids(cluster, node, name)["error"] for node in NODES} == {3}


def test_AS06_a_paused_node_does_not_keep_create_waiting(cluster: Cluster) -> None:
    quiet = 2
    with Admin(bootstrap_servers=cluster.bootstrap_servers, request_timeout_ms=2000) as admin:
        admin.topics.list()
        cluster.pause_node(quiet)
        try:
            created = admin.topics.create(f"nodes-{next(_numbers)}", assignment={0: [0, 1]}, timeout=60)
            assert created.partitions == 1
        finally:
            cluster.resume_node(quiet)


# Leaders


def test_AS42_another_order_and_an_election_move_the_leader(admin: Admin, topic: str) -> None:
    await_in_sync(admin, topic)
    assert leaders(admin, topic) == [0, 1]
    assert admin.partitions.reassign({(topic, 0): [1, 0]}) == {}
    until(lambda: replicas(admin, topic)[0] == (1, 0))
    assert leaders(admin, topic) == [0, 1]
    partition = TopicPartition(topic, 0)
    assert admin.partitions.elect([partition]) == {partition: True}
    until(lambda: leaders(admin, topic) == [1, 1])
    assert admin.partitions.elect([partition]) == {partition: False}


def test_AS37_AS38_elections_without_a_replica_are_refused(cluster: Cluster, admin: Admin) -> None:
    name = f"nodes-{next(_numbers)}"
    admin.topics.create(name, assignment={0: [0, 1]})
    admin.topics.create(f"{name}-lost", assignment={0: [0]})
    await_in_sync(admin, name)
    cluster.kill_node(0)
    try:
        until(lambda: [*leaders(admin, name), *leaders(admin, f"{name}-lost")] == [1, None])
        preferred, lost = TopicPartition(name, 0), TopicPartition(f"{name}-lost", 0)
        with pytest.raises(PartialFailure) as raised:
            admin.partitions.elect([preferred])
        assert isinstance(raised.value.errors[preferred], PreferredLeaderNotAvailableError)
        with pytest.raises(PartialFailure) as raised:
            admin.partitions.elect([preferred, lost], unclean=True)
        assert raised.value.results == {preferred: False}
        assert isinstance(raised.value.errors[lost], EligibleLeadersNotAvailableError)
    finally:
        cluster.start_node(0)
    until(lambda: leaders(admin, f"{name}-lost") == [0])


def new_topic(assignment: Mapping[str, list[int]]) -> Call:
    return {"call": "createTopics", "topics": [{"name": "@", "assignment": assignment}]}


def elect(*partitions: str, unclean: bool = False) -> Call:
    return {"call": "electLeaders", "partitions": list(partitions), "unclean": unclean}


def reassign(replicas: Mapping[str, list[int] | None]) -> Call:
    return {"call": "alterPartitionReassignments", "replicas": replicas}


# The judge waits until both clients see the partitions of both alike.
PROGRAMS: Mapping[str, list[Call]] = {
    "AS37 AS42": [
        new_topic({"0": [0, 1], "1": [1, 2]}),
        reassign({"@-0": [1, 0]}),
        elect("@-0", "@-1", "@-9"),
        elect("@-0"),
        elect("@-0", unclean=True),
    ],
    "AS39": [
        new_topic({"0": [0, 1]}),
        reassign({"@-0": None}),
        reassign({"@-0": [2, 1]}),
        reassign({"@-0": [2, 1], "@-5": [0, 1]}),  # another target would never be reached by Java's Admin
    ],
    "AS43": [
        new_topic({"0": [2, 0]}),
        reassign({"@-0": [1, 2]}),
        {"call": "createPartitions", "topics": {"@": [2, [[0, 1]]]}},
        {"call": "createPartitions", "topics": {"@": [3, [[0, 1, 2]]]}},
    ],
}


@pytest.mark.java
@pytest.mark.parametrize("first", ["java", "kbatch"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_moves_and_elections_end_as_those_of_java(real_cluster: RealCluster, name: str, first: str) -> None:
    with Judge(real_cluster.bootstrap_servers) as judge:
        judge.compare(PROGRAMS[name], ("topics",), first)


# Log directories


@pytest.mark.java
@pytest.mark.parametrize("first", ["java", "kbatch"])
def test_AS44_AS45_moves_of_log_directories_end_as_those_of_java(cluster: Cluster, first: str) -> None:
    require_jars()
    with admin_of(cluster) as admin, Judge(cluster.bootstrap_servers) as judge:
        paths = {
            node: [each.path for each in dirs] for node, dirs in admin.partitions.log_dirs(NODES).items()
        }
        assert [len(set(each)) for each in paths.values()] == [2, 2, 2]
        prepare: list[Call] = [new_topic({"0": [0, 1]}), {"call": "describeLogDirs", "brokers": list(NODES)}]
        program: list[Call] = [
            *(
                {"call": "alterReplicaLogDirs", "moves": {f"@-0:{node}": paths[node][at] for node in (0, 1)}}
                for at in (0, 1, 0)
            ),
            {"call": "alterReplicaLogDirs", "moves": {"@-0:0": "/nowhere", "@-0:1": paths[1][1]}},
            {"call": "alterReplicaLogDirs", "moves": {"@-0:1": "relative"}},
        ]
        # brokers put new replicas where there are the fewest
        judge.compare(program, ("topics", "replicas"), first, prepare=prepare)


# Replicas


@real_only("settings of brokers")
def test_AS39_a_reassignment_is_replaced_and_cancelled(admin: Admin, cluster: Cluster, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    fill(cluster, topic)
    hold(admin, topic)  # copies are to take longer than the test
    admin.partitions.reassign({partition: [0, 2]})
    (first,) = admin.partitions.reassignments([partition]).values()
    assert (first.adding, first.removing) == ((2,), (1,))
    with pytest.raises(PartialFailure) as raised:
        admin.partitions.reassign({partition: [0, 1, 2]})
    assert isinstance(raised.value.errors[partition], InvalidReplicationFactorError)
    assert admin.partitions.cancel([partition]) == {partition: None}
    until(lambda: replicas(admin, topic)[0] == (0, 1))
    with pytest.raises(PartialFailure) as raised:
        admin.partitions.cancel([partition])
    assert isinstance(raised.value.errors[partition], NoReassignmentInProgressError)
    release(admin, topic)


def test_AS40_reassign_keeps_the_number_of_replicas(admin: Admin, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    with pytest.raises(PartialFailure) as raised:
        admin.partitions.reassign({partition: [0, 1, 2]})
    assert isinstance(raised.value.errors[partition], InvalidReplicationFactorError)
    admin.partitions.set_replication_factor(topic, 3)
    until(lambda: [sorted(each) for each in replicas(admin, topic)] == [[0, 1, 2], [0, 1, 2]])
    admin.partitions.set_replication_factor(topic, 1)
    until(lambda: [len(each) for each in replicas(admin, topic)] == [1, 1])


def test_AS41_dead_brokers_get_no_replicas(cluster: Cluster, admin: Admin, topic: str) -> None:
    plan = admin.partitions.plan([topic], brokers=[0, 2])
    cluster.kill_node(2)
    try:
        until(lambda: 2 not in {each.node_id for each in admin.cluster.describe().nodes})
        with pytest.raises(BrokerNotAvailableError, match="broker 2 is not alive"):
            admin.partitions.apply(plan)
        with pytest.raises(BrokerNotAvailableError):
            admin.partitions.plan([topic], brokers=[0, 2])
    finally:
        cluster.start_node(2)


@real_only("settings of brokers")
def test_AS43_partitions_are_added_during_a_move(cluster: Cluster, admin: Admin, topic: str) -> None:
    fill(cluster, topic)
    hold(admin, topic)
    admin.partitions.reassign({(topic, 0): [0, 2]})
    assert admin.partitions.reassignments([(topic, 0)])
    assert admin.topics.add_partitions(topic, 4) == 4
    release(admin, topic)
    until(lambda: admin.partitions.reassignments([(topic, 0)]) == {})
    assert len(replicas(admin, topic)) == 4


@real_only("settings of brokers")
def test_plans_are_applied_under_a_throttle(cluster: Cluster, admin: Admin, topic: str) -> None:
    fill(cluster, topic)
    plan = admin.partitions.plan([topic], drain=[1])
    assert {move.partition.partition for move in plan.moves} == {0, 1}
    assert plan.copied_bytes is not None and plan.copied_bytes > 8 * 900_000
    assert plan.moved_leaders == 1
    moved = admin.partitions.apply(plan, throttle=50_000_000)
    assert {partition.partition: after for partition, after in moved.items()} == dict(
        enumerate(replicas(admin, topic))
    )
    assert all(1 not in each for each in replicas(admin, topic))
    assert leaders(admin, topic) == [each[0] for each in replicas(admin, topic)]
    assert str(admin.partitions.plan([topic], drain=[1])) == "nothing to move"
    assert throttles(admin, topic) == {}


def fill(cluster: Cluster, topic: str) -> None:
    """Give each partition some megabytes."""
    with kbatch.Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(8):
            producer.send(topic, bytes([number]) * 900_000, partition=number % 2)


def throttles(admin: Admin, topic: str) -> dict[str, str | None]:
    """Return what limits the copies of a topic or of brokers."""
    found = dict(admin.configs.describe(topic=topic))
    for node in NODES:
        found |= admin.configs.describe(broker=node)
    return {
        name: each.value
        for name, each in found.items()
        if "replication.throttled" in name and each.source.startswith("DYNAMIC")
    }


def hold(admin: Admin, topic: str) -> None:
    """Let replicas be copied so slowly that no test sees the end."""
    for node in NODES:
        admin.configs.alter(broker=node, set=dict.fromkeys(RATES, 1))
    admin.configs.alter(topic=topic, set=dict.fromkeys(THROTTLED, "*"))
    until(lambda: len(throttles(admin, topic)) == 4)


def release(admin: Admin, topic: str) -> None:
    admin.configs.alter(topic=topic, reset=THROTTLED)
    for node in NODES:
        admin.configs.alter(broker=node, reset=RATES)


RATES = [f"{role}.replication.throttled.rate" for role in ("leader", "follower")]
THROTTLED = [f"{role}.replication.throttled.replicas" for role in ("leader", "follower")]


@real_only("settings of brokers")
def test_AS13_a_cancelled_move_is_cancelled(cluster: Cluster, admin: Admin, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    fill(cluster, topic)
    hold(admin, topic)
    admin.partitions.reassign({partition: [0, 2]})
    with losing(cluster.bootstrap_servers, messages.AlterPartitionReassignmentsRequest) as other:
        assert other.partitions.cancel([partition]) == {partition: None}
        assert other.partitions.reassignments([partition]) == {}
    release(admin, topic)


# Many calls at once


@pytest.mark.slow
def test_AS85_many_tasks_use_an_async_admin_of_several_nodes(
    cluster: Cluster, admin: Admin, topic: str
) -> None:
    """A half is cancelled, each in the middle of requests to other nodes."""
    count = 1000
    partitions = [TopicPartition(topic, number) for number in range(2)]
    until(lambda: None not in leaders(admin, topic))

    async def main() -> tuple[list[Any], int]:
        async with AsyncAdmin(bootstrap_servers=cluster.bootstrap_servers) as client:
            kinds: list[Callable[[int], Any]] = [
                lambda number: client.topics.describe(topic),
                lambda number: client.topics.offsets(dict.fromkeys(partitions, "latest")),
                lambda number: client.groups.offsets(f"{topic}-{number}"),
                lambda number: client.groups.list(),
                lambda number: client.cluster.describe(),
            ]
            calls = [asyncio.ensure_future(kinds[number % 5](number)) for number in range(count)]
            for call in calls[::2]:
                for _ in range(3):
                    await asyncio.sleep(0)
                call.cancel()
            found = await asyncio.gather(*calls, return_exceptions=True)
        return found, len(asyncio.all_tasks())

    found, tasks = asyncio.run(main())
    assert [each for each in found[1::2] if isinstance(each, BaseException)] == []
    others = [each for each in found[::2] if isinstance(each, BaseException)]
    assert {type(each) for each in others} == {asyncio.CancelledError}
    assert tasks == 1


# Nodes that are away


def test_AS46_AS72_a_dead_node_costs_its_own_results_only(cluster: Cluster, admin: Admin) -> None:
    admin.topics.list()
    with admin_of(cluster) as other:
        other.topics.list()  # it knows three nodes
        cluster.kill_node(1)
        try:
            with pytest.raises(PartialFailure) as raised:
                other.partitions.log_dirs(NODES, timeout=20)
            assert set(raised.value.results) == {0, 2}
            assert list(raised.value.errors) == [1]
        finally:
            cluster.start_node(1)
    until(lambda: len(admin.cluster.describe().nodes) == len(NODES))


@pytest.mark.java
def test_AS47_AS48_a_dead_node_is_fenced_and_may_be_unregistered(real_cluster: RealCluster) -> None:
    with admin_of(real_cluster) as admin:
        with pytest.raises(InvalidRequestError, match="broker 2 is alive"):
            admin.cluster.unregister(2)
        real_cluster.kill_node(2)
        try:
            until(lambda: fenced(admin) == {0: False, 1: False, 2: True})
            with losing(real_cluster.bootstrap_servers, messages.UnregisterBrokerRequest) as other:
                other.cluster.unregister(2)
            until(lambda: fenced(admin) == {0: False, 1: False})
            with pytest.raises(BrokerIdNotRegisteredError):
                admin.cluster.unregister(2)
        finally:
            real_cluster.start_node(2)
        until(lambda: fenced(admin) == {0: False, 1: False, 2: False})


def fenced(admin: Admin) -> dict[int, bool]:
    return {each.node_id: each.is_fenced for each in admin.cluster.describe(fenced=True).nodes}


# Controllers instead of brokers


def of_controllers(cluster: RealCluster, *node_ids: int) -> Admin:
    chosen = [cluster.controllers.split(",")[node_id] for node_id in node_ids or NODES]
    return Admin(bootstrap_controllers=chosen, request_timeout_ms=5000, retry_backoff_ms=20)


@pytest.mark.java
def test_AS49_AS51_controllers_are_asked(real_cluster: RealCluster) -> None:
    name = f"nodes-{next(_numbers)}"
    with admin_of(real_cluster) as admin:
        active = admin.cluster.quorum().leader
        others = [node_id for node_id in NODES if node_id != active]
        with of_controllers(real_cluster, *others) as controllers:
            found = controllers.cluster.describe()
            assert ([each.node_id for each in found.nodes], found.controller) == (list(NODES), active)
            assert controllers.cluster.quorum().leader == active
            created = controllers.topics.create(name, partitions=2, replication_factor=3)
            assert (created.partitions, created.replication_factor) == (2, 3)
            assert controllers.topics.add_partitions(name, 3) == 3
            controllers.configs.alter(topic=name, set={"retention.ms": 5000})
            until(lambda: controllers.configs.describe(topic=name)["retention.ms"].value == "5000")
            assert controllers.configs.describe(broker=others[0])["node.id"].value == str(others[0])
            controllers.quotas.alter(QuotaEntity(user=name), {"producer_byte_rate": 7})
            until(lambda: admin.quotas.describe(user=name) != {})
            assert controllers.partitions.reassignments() == {}
            assert "metadata.version" in controllers.cluster.features().finalized
            until(lambda: replicas(admin, name) and len(replicas(admin, name)) == 3)
            assert admin.topics.describe(name).topic_id == created.topic_id
            controllers.topics.delete(name)
            until(lambda: name not in topics_of(admin))


@pytest.mark.java
def test_AS49_another_controller_becomes_active(real_cluster: RealCluster) -> None:
    name = f"nodes-{next(_numbers)}"
    with of_controllers(real_cluster) as controllers:
        active = controllers.cluster.quorum().leader
        real_cluster.kill_node(active)
        try:
            controllers.topics.create(name, assignment={0: [(active + 1) % 3]})
            assert controllers.cluster.quorum().leader != active
        finally:
            real_cluster.start_node(active)
        controllers.topics.delete(name)


@pytest.mark.java
def test_AS50_addresses_of_the_other_kind_are_refused(real_cluster: RealCluster) -> None:
    brokers, controllers = real_cluster.bootstrap_servers, real_cluster.controllers
    with Admin(bootstrap_controllers=brokers) as admin, pytest.raises(MismatchedEndpointTypeError):
        admin.topics.create("new")
    with (
        Admin(bootstrap_servers=controllers) as admin,
        pytest.raises(UnsupportedVersionError, match="name brokers"),
    ):
        admin.topics.create("new")


# The controller dies

Work = Callable[[Admin, int], object]


def _changed(name: str, user: Admin) -> Mapping[str, Work]:
    """Return calls that write, each with the number of its round; all but `create` change what is there. The
    `user` has logged in, for tokens.
    """
    return {
        "tokens": lambda admin, n: _spend_token(user),
        "create": lambda admin, n: admin.topics.create(f"{name}-{n}", partitions=2, wait=False),
        "delete": lambda admin, n: (
            admin.topics.create(f"{name}-gone-{n}", partitions=1),
            admin.topics.delete(f"{name}-gone-{n}"),
        ),
        "add_partitions": lambda admin, n: admin.topics.add_partitions(f"{name}-grown", n + 2),
        "alter": lambda admin, n: admin.configs.alter(topic=f"{name}-set", set={"retention.ms": n + 1}),
        "reassign": lambda admin, n: repeat_while(  # not to the node that is away
            BrokerNotAvailableError,
            lambda: admin.partitions.reassign({(f"{name}-moved", 0): [n % 2, 1 - n % 2]}),
        ),
        "quotas": lambda admin, n: admin.quotas.alter(QuotaEntity(user=name), {"consumer_byte_rate": n + 1}),
        "users": lambda admin, n: (
            admin.users.set(f"{name}-{n}", "secret", iterations=4096),
            admin.users.delete(f"{name}-{n}", "SCRAM-SHA-512"),
        ),
        "elect": lambda admin, n: repeat_while(  # the preferred leader may be away
            PartialFailure, lambda: admin.partitions.elect([(f"{name}-led", 0)])
        ),
        "cancel": lambda admin, n: _refused(
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, lambda: admin.partitions.cancel([(f"{name}-led", 0)])
        ),
        "acls": lambda admin, n: (
            admin.acls.create([Acl("topic", f"{name}-{n}", "Read", f"User:{name}")]),
            admin.acls.delete([AclFilter(name=f"{name}-{n}")]),
        ),
        "features": lambda admin, n: admin.cluster.update_features({"transaction.version": 2}),
        "unregister": lambda admin, n: _refused(
            ErrorCode.BROKER_ID_NOT_REGISTERED, lambda: admin.cluster.unregister(99)
        ),
    }


def _spend_token(user: Admin) -> None:
    """Make a token, renew it and end it. After a lost answer there may be one whose secret nobody knows."""
    try:
        token = user.tokens.create()
    except KafkaTimeoutError as error:
        assert error.possibly_persisted
        return
    # a controller that has just become active learns of tokens a moment later
    renewed = repeat_while(
        DelegationTokenNotFoundError, lambda: user.tokens.renew(token.hmac, timedelta(hours=1))
    )
    assert renewed > datetime.now(UTC)
    _expire(user, token)


def _expire(user: Admin, token: Token) -> None:
    """Expire a token, unless no broker has it any more. What a broker lists, the controller may not know: the
    one hears of an end, the other of a beginning, a moment later.
    """

    def expire() -> None:
        if token.token_id in {each.token_id for each in user.tokens.list()}:
            user.tokens.expire(token.hmac)

    repeat_while(DelegationTokenNotFoundError, expire)


def _refused(code: ErrorCode, call: Callable[[], object]) -> None:
    """Do a call that has nothing to do, and says so unless an answer was lost."""
    try:
        call()
    except PartialFailure as failure:
        assert {each.code for each in failure.errors.values()} == {code}
    except KafkaError as error:
        assert error.code == code


@pytest.mark.slow
@pytest.mark.java
def test_AS14_calls_are_done_while_controllers_die(real_cluster: RealCluster) -> None:
    name, rounds = f"nodes-{next(_numbers)}", 30
    with (
        admin_of(real_cluster) as admin,
        Admin(
            bootstrap_servers=real_cluster.address("SASL"),
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_username=USER,
            sasl_password=PASSWORD,
            request_timeout_ms=5000,
            retry_backoff_ms=20,
        ) as user,
    ):
        topics = ("grown", "set", "moved", "led")
        new = {f"{name}-{each}": NewTopic(assignment={0: [0, 1]}) for each in topics}
        admin.topics.create(new)
        begun = threading.Semaphore(0)
        failures: list[BaseException] = []

        def work(call: Work) -> None:
            try:
                for number in range(rounds):
                    call(admin, number)
                    begun.release()
            except BaseException as failure:
                failures.append(failure)
                raise
            finally:
                for _ in range(rounds):
                    begun.release()

        threads = [threading.Thread(target=work, args=[call]) for call in _changed(name, user).values()]
        for thread in threads:
            thread.start()
        for _ in range(2):
            for _ in range(20):
                begun.acquire()
            controller = admin.cluster.quorum().leader
            real_cluster.kill_node(controller)
            real_cluster.start_node(controller)
        for thread in threads:
            thread.join()
        assert failures == []
        until(lambda: admin.configs.describe(topic=f"{name}-set")["retention.ms"].value == str(rounds))
        until(lambda: len(replicas(admin, f"{name}-grown")) == rounds + 1)
        until(lambda: replicas(admin, f"{name}-moved") == [((rounds - 1) % 2, 1 - (rounds - 1) % 2)])
        made = {f"{name}-{number}" for number in range(rounds)} | {*new}
        # brokers hear of what is done a moment later
        until(lambda: {each for each in topics_of(admin) if each.startswith(f"{name}-")} == made)
        rate = {QuotaEntity(user=name): {"consumer_byte_rate": float(rounds)}}
        until(lambda: admin.quotas.describe(user=name) == rate)
        until(lambda: not [user for user in admin.users.describe() if user.startswith(name)])
        until(lambda: admin.acls.list(principal=f"User:{name}") == ())
        for token in user.tokens.list():  # of creations whose answers were lost
            _expire(user, token)
        until(lambda: user.tokens.list() == ())


@pytest.mark.java
@pytest.mark.slow
@only_if_long("starts a real cluster over and over")
def test_AS14_voters_change_while_controllers_die(java_jars: None) -> None:
    """The vote of one controller is taken away and given back, while active ones die."""
    rounds, changing = 4, 2
    with RealCluster(len(NODES), dynamic_quorum=True) as cluster, admin_of(cluster) as admin:
        endpoints = {
            node: {"CONTROLLER": (host, int(port))}
            for node, (host, _, port) in enumerate(
                each.rpartition(":") for each in cluster.controllers.split(",")
            )
        }
        until(lambda: len(admin.cluster.quorum().observers) == 2)
        ids = {each.node_id: each.directory_id for each in admin.cluster.quorum().observers}
        for node in sorted(ids):
            admin.cluster.add_voter(node, ids[node], endpoints[node], timeout=HANG_SECONDS)
        assert voters(admin) == list(NODES)
        begun = threading.Semaphore(0)

        def change() -> None:
            try:
                for _ in range(rounds):
                    begun.release()
                    admin.cluster.remove_voter(changing, ids[changing], timeout=HANG_SECONDS)
                    begun.release()
                    admin.cluster.add_voter(
                        changing, ids[changing], endpoints[changing], timeout=HANG_SECONDS
                    )
            finally:
                begun.release(2 * rounds)

        with ThreadPoolExecutor(1) as pool:
            changes = pool.submit(change)
            for _ in range(2):
                for _ in range(3):
                    begun.acquire()
                controller = admin.cluster.quorum(timeout=HANG_SECONDS).leader
                cluster.kill_node(controller)
                cluster.start_node(controller)
            changes.result(HANG_SECONDS)
        until(lambda: voters(admin) == list(NODES))
        with pytest.raises(DuplicateVoterError):
            admin.cluster.add_voter(changing, ids[changing], endpoints[changing])


def voters(admin: Admin) -> list[int]:
    return sorted(each.node_id for each in admin.cluster.quorum().voters)
