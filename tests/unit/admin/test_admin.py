"""What an Admin does with refusals, lost answers and deadlines, on the embedded broker with faults."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
import weakref
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest

from kbatch import Admin, AsyncAdmin, TopicPartition
from kbatch.admin import NewTopic, QuotaEntity, TopicListing
from kbatch.core.admin.security import CreateToken
from kbatch.core.client.admin_requests import REPEATED
from kbatch.core.client.connections import Connections
from kbatch.errors import (
    ROWS,
    AdminClosedError,
    ErrorCode,
    ForkedAdminError,
    InvalidReplicaAssignmentError,
    KafkaError,
    KafkaTimeoutError,
    NotControllerError,
    PartialFailure,
    PolicyViolationError,
    TopicExistsError,
)
from kbatch.protocol import messages
from kbatch.testing import Broker
from tests.support.patience import HANG_MS, HANG_SECONDS, repeat_until, until
from tests.support.producing import metric

NEW = NewTopic(partitions=1, replication_factor=1)
CANCELLED = (0, 11, 12, 30)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"orders": 2}, auto_create_topics=False, nodes=2) as started:
        yield started


@pytest.fixture
def admin(broker: Broker) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=1) as opened:
        yield opened


def test_final_answers_are_not_repeated() -> None:
    """Kafka's table calls them retriable, as metadata may be old; an election would only fail again."""
    elections = {
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
    }
    assert not REPEATED & elections
    assert all(ROWS[code].retriable for code in REPEATED | elections)


def test_what_passes_is_repeated(broker: Broker, admin: Admin) -> None:
    broker.fail_next("CreateTopics", error="NOT_CONTROLLER", times=2)
    assert admin.topics.create("new", partitions=1, replication_factor=1).partitions == 1
    broker.drop_connection("DeleteTopics", when="before", times=2)
    admin.topics.delete("new")


@pytest.mark.parametrize("refusal", ["NOT_LEADER_OR_FOLLOWER", "NOT_CONTROLLER"])
def test_a_broker_that_knows_an_old_controller_only_is_left(
    broker: Broker, admin: Admin, refusal: str
) -> None:
    """It may pass requests on to that one for ever."""
    admin.groups.list()  # from now on it knows the nodes by their ids
    broker.fail_next("DescribeCluster", refusal, times=5)  # which any node answers
    admin.cluster.describe()
    asked = [each.node_id for each in broker.requests("DescribeCluster")]
    assert [len(set(asked[at : at + 2])) for at in (0, 2, 4)] == [2, 2, 2]


def test_what_is_refused_is_raised_at_once(broker: Broker, admin: Admin) -> None:
    broker.fail_next("CreateTopics", error="POLICY_VIOLATION", times=1)
    with pytest.raises(PolicyViolationError, match="create of topic new"):
        admin.topics.create("new", partitions=1, replication_factor=1)


def test_AS17_the_deadline_leaves_what_was_done(broker: Broker) -> None:
    """Each topic has a request of its own. That of one is refused, and backs off until the deadline."""
    ahead_ns = 0
    with (
        Admin(
            bootstrap_servers=broker.bootstrap_servers,
            retry_backoff_ms=2 * HANG_MS,
            retry_backoff_max_ms=2 * HANG_MS,
        ) as admin,
        ThreadPoolExecutor(1) as pool,
    ):
        network = admin._runtime.network
        network._clock_ns = lambda: time.monotonic_ns() + ahead_ns  # type: ignore[attr-defined]
        admin.topics.create("first", partitions=1, replication_factor=1)
        broker.intercept(
            "CreatePartitions",
            lambda request: "NOT_CONTROLLER" if request.topics[0].name == "orders" else None,
        )
        call = pool.submit(admin.topics.add_partitions, {"first": 3, "orders": 3}, timeout=HANG_SECONDS)
        until(
            lambda: (
                len(broker.requests("CreatePartitions")) == 2
                and metric(admin, "requests-in-flight", "admin-client-metrics") == 0
            )
        )
        ahead_ns = HANG_MS * 1_000_000
        network.wake()
        with pytest.raises(PartialFailure) as raised:
            call.result(HANG_SECONDS)
    assert raised.value.results == {"first": 3}
    (error,) = raised.value.errors.values()
    assert isinstance(error, KafkaTimeoutError) and isinstance(error.__cause__, NotControllerError)
    assert not raised.value.possibly_persisted
    assert len(broker.requests("CreatePartitions")) == 2


def test_AS72_a_silent_node_costs_its_own_groups_only(broker: Broker, admin: Admin) -> None:
    groups = [f"group-{number}" for number in range(8)]
    for group in groups:
        admin.groups.commit_offsets(group, {TopicPartition("orders", 0): 1})
    broker.drop_connection("ListGroups", times=10**6, node=1)
    with pytest.raises(PartialFailure, match="1 of 2 failed: 1") as raised:
        admin.groups.list(timeout=0.5)
    (listed,) = raised.value.results.values()
    assert 0 < len(listed) < len(groups)  # those that node 0 coordinates
    assert [type(error) for error in raised.value.errors.values()] == [KafkaTimeoutError]


def test_AS71_many_groups_are_asked_by_their_own_protocols(broker: Broker, admin: Admin) -> None:
    groups = [f"group-{number}" for number in range(20)]
    for group in groups:
        admin.groups.commit_offsets(group, {TopicPartition("orders", 0): 1})
    assert list(admin.groups.describe(groups)) == groups
    assert list(admin.groups.delete(groups)) == groups
    assert broker.requests("ConsumerGroupDescribe") == broker.requests("ShareGroupDescribe") == []
    assert broker.requests("DescribeGroups")


def test_AS75_groups_with_state_are_deleted_alone(broker: Broker, admin: Admin) -> None:
    partition = TopicPartition("orders", 0)
    groups = [f"group-{number}" for number in range(6)]
    for group in groups:
        admin.groups.commit_offsets(group, {partition: 0})
    admin.groups.set_share_offsets("shared", {partition: 0}, create=True)
    found = len(broker.requests("ShareGroupDescribe"))
    assert set(admin.groups.delete([*groups, "shared"])) == {*groups, "shared"}
    deleted = [sorted(each.message.groups_names) for each in broker.requests("DeleteGroups")]
    assert ["shared"] in deleted
    assert sorted(name for names in deleted for name in names) == [*groups, "shared"]
    assert len(deleted) <= 3  # one for each coordinator, and its own
    assert len(broker.requests("ShareGroupDescribe")) == found  # the list says enough


@pytest.mark.parametrize("is_async", [False, True])
def test_a_waiting_call_hears_of_the_end_of_its_network(broker: Broker, is_async: bool) -> None:
    broker.delay("CreateTopics", HANG_SECONDS)
    keys: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers, "default_api_timeout_ms": HANG_MS}

    def end(client: Admin | AsyncAdmin) -> None:
        until(lambda: broker.requests("CreateTopics"))
        client._runtime.engine.submit(_defect)
        client._runtime.network.wake()

    def call_blocking() -> None:
        with Admin(**keys) as admin, ThreadPoolExecutor(1) as pool:
            call = pool.submit(admin.topics.create, "late", partitions=1)
            end(admin)
            call.result(HANG_SECONDS)

    async def call_awaited() -> None:
        async with AsyncAdmin(**keys) as admin:
            call = asyncio.ensure_future(admin.topics.create("late", partitions=1))
            await asyncio.to_thread(end, admin)
            await call

    with pytest.raises(KafkaError, match="a defect of kbatch ended the client"):
        asyncio.run(call_awaited()) if is_async else call_blocking()


def _defect(now_ns: int) -> None:
    raise ZeroDivisionError


def test_calls_end_at_their_deadlines_whatever_they_wait_for(broker: Broker) -> None:
    """Some wait for an answer, others for a node that takes no more requests meanwhile."""
    broker.delay("DescribeCluster", HANG_SECONDS)

    async def main() -> list[Any]:
        async with AsyncAdmin(bootstrap_servers=broker.bootstrap_servers) as admin:
            await admin.topics.list()
            calls = [asyncio.ensure_future(admin.cluster.describe(timeout=1)) for _ in range(40)]
            await asyncio.sleep(0)
            for number in CANCELLED:
                calls[number].cancel()
            found = await asyncio.gather(*calls, return_exceptions=True)
            await admin.topics.list()
            assert admin._runtime.engine._admin_requests.open == {}
            return found

    found = asyncio.run(main())
    expected = [asyncio.CancelledError if number in CANCELLED else KafkaTimeoutError for number in range(40)]
    assert [type(each) for each in found] == expected


@pytest.mark.parametrize("stopped", [None, 2])
@pytest.mark.parametrize(
    "call", [lambda admin: admin.topics.describe("led"), lambda admin: admin.configs.describe(topic="led")]
)
def test_of_many_calls_one_looks_for_a_node_that_takes_requests(
    call: Callable[[AsyncAdmin], Awaitable[object]], stopped: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All nodes have their limit of requests, and with one away the others do."""
    looks = 0
    least_loaded = Connections.least_loaded

    def look(*arguments: Any) -> int | None:
        nonlocal looks
        looks += 1
        return least_loaded(*arguments)

    async def main(servers: str) -> None:
        async with AsyncAdmin(bootstrap_servers=servers) as admin:
            await admin.topics.list()
            await asyncio.gather(*(call(admin) for _ in range(200)))

    monkeypatch.setattr(Connections, "least_loaded", look)
    with Broker({"led": 1}, nodes=3) as broker:
        if stopped is not None:
            broker.stop_node(stopped)
        asyncio.run(main(broker.bootstrap_servers))
    assert looks < 200 * 10


def test_a_call_does_not_wait_for_a_former_leader_with_others() -> None:
    first, second = TopicPartition("led", 0), TopicPartition("led", 1)

    async def main(broker: Broker) -> None:
        # a request for metadata may be lost where the node is paused
        keys: dict[str, Any] = {"metadata_max_age_ms": 50, "request_timeout_ms": 2_000}
        async with AsyncAdmin(bootstrap_servers=broker.bootstrap_servers, **keys) as admin:
            await admin.topics.offsets({first: "latest"})  # metadata know the leaders
            broker.pause_node(1)
            calls = [asyncio.ensure_future(admin.topics.offsets({first: "latest"})) for _ in range(20)]
            moved = asyncio.ensure_future(admin.topics.offsets({second: "latest"}))
            await asyncio.sleep(0)
            broker.move_leader("led", 1, 0)
            await moved  # the other node has its limit of requests, which it does not answer
            broker.resume_node(1)
            await asyncio.gather(*calls)

    with Broker({"led": 2}, nodes=2, session_timeout_ms=10 * HANG_MS) as broker:
        for partition in range(2):
            broker.move_leader("led", partition, 1)
        asyncio.run(main(broker))


def test_a_lost_answer_at_the_deadline_says_that_it_may_be_done(broker: Broker, admin: Admin) -> None:
    broker.drop_connection("IncrementalAlterConfigs", when="after", times=10**6)
    with pytest.raises(KafkaTimeoutError, match="may have been done") as raised:
        admin.configs.alter(topic="orders", set={"retention.ms": 5}, timeout=0.5)
    assert raised.value.possibly_persisted


def test_AS15_what_must_not_be_done_twice_is_not_repeated(broker: Broker) -> None:
    assert not CreateToken.repeats
    with Admin(bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=1) as admin:
        broker.drop_connection("CreateDelegationToken", when="after", times=1)
        with pytest.raises(KafkaTimeoutError, match="not repeated") as raised:
            admin.tokens.create()
    assert raised.value.possibly_persisted


def test_AS04_topics_travel_in_requests_of_10000_partitions(broker: Broker, admin: Admin) -> None:
    new = {f"t-{count}": NewTopic(count, 1) for count in (9_999, 1, 2)}
    assert list(admin.topics.create(new, validate_only=True)) == list(new)
    sent = [
        [each.num_partitions for each in found.message.topics] for found in broker.requests("CreateTopics")
    ]
    assert sent == [[9_999, 1], [2]]


def test_AS07_the_controller_judges_a_name_that_the_broker_does_not_know(
    broker: Broker, admin: Admin
) -> None:
    """A broker may lag behind the controller, which has the topic."""
    admin.topics.create("new")
    unknown = messages.MetadataResponse.MetadataResponseTopic(
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name="new"
    )

    def lag(request: Any) -> Any:
        if late and request.topics:
            return messages.MetadataResponse(topics=[late.pop()])
        return None

    late = [unknown]
    broker.intercept("Metadata", lag)
    admin.topics.delete("new")
    assert not late and [each.name for each in admin.topics.list()] == ["orders"]


def test_AS08_a_repeated_delete_spares_a_new_topic_of_the_name(broker: Broker, admin: Admin) -> None:
    first = admin.topics.describe("orders").topic_id
    broker.drop_connection("DeleteTopics", when="after")
    tries = itertools.count()

    def make_another(request: object) -> None:
        if next(tries):  # another program makes it before the repetition comes
            broker.create_topic("orders", 3)

    broker.intercept("DeleteTopics", make_another)
    admin.topics.delete("orders")
    assert next(tries) == 2
    found = admin.topics.describe("orders")
    assert (found.topic_id != first, len(found.partitions)) == (True, 3)


def test_AS13_an_election_whose_answer_was_lost_is_done(broker: Broker, admin: Admin) -> None:
    partition = TopicPartition("replicated", 0)
    admin.topics.create("replicated", assignment={0: [0, 1]})
    admin.partitions.reassign({partition: [1, 0]})
    broker.drop_connection("ElectLeaders", when="after")
    assert admin.partitions.elect([partition]) == {partition: True}
    until(lambda: admin.topics.describe("replicated").partitions[0].leader == 1)
    assert admin.partitions.elect([partition]) == {partition: False}


@pytest.mark.slow  # tracemalloc sees each object
def test_a_move_that_kafka_does_not_cancel_keeps_its_partition_only() -> None:
    """Kafka cancels no move that would leave a partition without a replica in sync."""
    with (
        Broker(auto_create_topics=False, nodes=3) as broker,
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
    ):
        admin.topics.create("moved", assignment={0: [0, 1], 1: [0, 1]})
        broker.delay_replication(HANG_SECONDS, node=2)
        admin.partitions.reassign({("moved", 0): [0, 2]})
        broker.fail_next("AlterPartitionReassignments", "INVALID_REPLICA_ASSIGNMENT")
        with pytest.raises(PartialFailure) as raised:
            admin.partitions.set_replication_factor("moved", 1)
        stuck, free = TopicPartition("moved", 0), TopicPartition("moved", 1)
        assert raised.value.results == {free: None}
        assert len(broker.replicas(*free)) == 1
        (error,) = raised.value.errors.values()
        assert isinstance(error, InvalidReplicaAssignmentError)
        text = "set_replication_factor of partition moved-0: nothing was changed. An earlier move to broker 2"
        assert str(error).startswith(text)
        assert list(admin.partitions.reassignments()) == [stuck]


@pytest.mark.slow
def test_AS20_descriptions_take_little_more_memory_than_their_result(broker: Broker, admin: Admin) -> None:
    """Of 100,000 partitions; the broker, which is in this process, makes up pages of them."""
    kind, count = messages.DescribeTopicPartitionsResponse, 2_000
    rows = [
        kind.DescribeTopicPartitionsResponsePartition(
            partition_index=number, leader_id=0, leader_epoch=0, replica_nodes=[0], isr_nodes=[0]
        )
        for number in range(count)
    ]

    def page(request: messages.DescribeTopicPartitionsRequest) -> messages.DescribeTopicPartitionsResponse:
        first, *more = request.topics
        topic = kind.DescribeTopicPartitionsResponseTopic(
            name=first.name, topic_id=bytes(16), partitions=rows
        )
        cursor = kind.Cursor(topic_name=more[0].name, partition_index=0) if more else None
        return kind(topics=[topic], next_cursor=cursor)

    broker.intercept("DescribeTopicPartitions", page)
    tracemalloc.start()
    try:
        found = admin.topics.describe([f"t-{number:02}" for number in range(50)], timeout=HANG_SECONDS)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(len(each.partitions) for each in found.values()) == 100_000
    assert peak - kept < 64 << 20


class Twice(Mapping[Any, Any]):
    """A mapping that gives its only key twice."""

    def __init__(self, key: object, value: object) -> None:
        self._item = key, value

    def __getitem__(self, key: object) -> object:
        return self._item[1]

    def __iter__(self) -> Iterator[object]:
        return iter([self._item[0]] * 2)

    def __len__(self) -> int:
        return 2


def test_AS59_what_comes_twice_is_refused(broker: Broker, admin: Admin) -> None:
    """Kafka says so of quotas, too, and has done the first all the same."""
    with pytest.raises(ValueError, match="twice"):
        admin.quotas.alter(Twice(QuotaEntity(user="ada"), {"producer_byte_rate": 1}))
    with pytest.raises(ValueError, match="twice"):
        admin.topics.create(Twice("new", NEW))
    assert not broker.requests("AlterClientQuotas") + broker.requests("CreateTopics")


def test_AS87_a_list_of_groups_loads_no_more_than_it_needs(broker: Broker, admin: Admin) -> None:
    """An event loop, TLS or Arrow would double the time of the command."""
    admin.groups.commit_offsets("billing", {TopicPartition("orders", 0): 1})
    code = """
import sys
from kbatch.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code
print({"asyncio", "ssl", "numpy", "pyarrow"} & set(sys.modules) or "no more")
"""
    asked = [sys.executable, "-c", code, "groups", "list", "-b", broker.bootstrap_servers]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=HANG_SECONDS, check=True)
    listed, loaded = done.stdout.splitlines()
    assert '"billing"' in listed
    assert loaded == "no more"


def test_failures_can_be_pickled_and_split(admin: Admin) -> None:
    with pytest.raises(PartialFailure) as raised:
        admin.topics.create({"orders": NEW, "new": NEW})
    failure = pickle.loads(pickle.dumps(raised.value))
    assert str(failure) == str(raised.value)
    assert failure.results == raised.value.results
    taken, rest = failure.split(TopicExistsError)
    assert taken is not None and rest is None


def test_items_are_checked_before_anything_is_sent(broker: Broker, admin: Admin) -> None:
    for wrong in (["orders", "orders"], ["orders", ""], [UUID(int=0)]):
        with pytest.raises(ValueError, match="topic"):
            admin.topics.delete(wrong)
    with pytest.raises(TypeError):
        admin.topics.create({"new": 3})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="timeout"):
        admin.topics.list(timeout=-1)
    assert [each.name for each in admin.topics.list()] == ["orders"]


def test_errors_are_in_the_words_of_users(broker: Broker, admin: Admin) -> None:
    with pytest.raises(TypeError, match=r"^topics\.create\(\) takes"):
        admin.topics.create("new", 3)  # type: ignore[call-overload]
    with pytest.raises(KafkaTimeoutError, match=r"^list timed out after 0 s: "):
        admin.topics.list(timeout=0)


def test_AS16_an_interrupt_ends_a_call(broker: Broker, admin: Admin) -> None:
    broker.delay("CreateTopics", 30)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        admin.topics.create({f"new-{number}": NEW for number in range(100)})
    timer.join()


def test_AS86_a_dropped_admin_warns_and_ends(broker: Broker) -> None:
    admin = Admin(bootstrap_servers=broker.bootstrap_servers)
    admin.topics.list()
    network, gone = admin._runtime.network, weakref.ref(admin)
    with pytest.warns(ResourceWarning, match="dropped without close"):
        del admin
        repeat_until(gc.collect, lambda: not network.is_alive)
    assert gone() is None or not gone().is_open  # type: ignore[union-attr]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_AS86_an_admin_is_the_parents(admin: Admin) -> None:
    admin.topics.list()
    child = os.fork()
    if not child:
        try:
            admin.topics.list()
        except ForkedAdminError:
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert admin.topics.list()


def test_AS86_a_part_keeps_its_admin_open(broker: Broker) -> None:
    """As in a notebook: no name has the admin."""

    def names_of(listed: Iterable[TopicListing]) -> list[str]:
        return [each.name for each in listed]

    async def on_a_loop() -> list[str]:
        return names_of(await AsyncAdmin(bootstrap_servers=broker.bootstrap_servers).topics.list())

    with pytest.warns(ResourceWarning, match="dropped without close"):
        assert names_of(Admin(bootstrap_servers=broker.bootstrap_servers).topics.list()) == ["orders"]
        assert asyncio.run(on_a_loop()) == ["orders"]
        gc.collect()


def test_close_ends_calls_of_other_threads(broker: Broker, admin: Admin) -> None:
    broker.delay("Metadata", 30)
    errors: list[BaseException] = []

    def call() -> None:
        try:
            admin.topics.list()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    until(lambda: bool(admin._runtime.changed.waiting))
    admin.close(timeout=1)
    thread.join(30)
    assert [type(each) for each in errors] == [AdminClosedError]


def test_an_async_admin_closes_after_the_calls_of_other_tasks(broker: Broker) -> None:
    async def main() -> tuple[object, type[BaseException] | None]:
        admin = AsyncAdmin(bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=1)
        await admin.topics.list()
        broker.fail_next("CreateTopics", error="NOT_CONTROLLER", times=3)
        created = asyncio.ensure_future(admin.topics.create("new", partitions=1, replication_factor=1))
        await asyncio.sleep(0)
        closed = asyncio.ensure_future(admin.close())
        await asyncio.sleep(0)
        refused = None
        try:
            await admin.topics.list()
        except AdminClosedError as error:
            refused = type(error)
        await closed
        assert created.done()
        return (await created).name, refused

    assert asyncio.run(main()) == ("new", AdminClosedError)


def test_an_async_admin_closes_at_its_limit_whatever_goes_on(broker: Broker) -> None:
    async def main() -> BaseException | None:
        admin = AsyncAdmin(bootstrap_servers=broker.bootstrap_servers)
        await admin.topics.list()
        broker.delay("CreateTopics", 30)
        created = asyncio.ensure_future(admin.topics.create("new", partitions=1, replication_factor=1))
        await asyncio.sleep(0)
        await admin.close(timeout=0.1)
        return (await asyncio.gather(created, return_exceptions=True))[0]  # type: ignore[return-value]

    assert isinstance(asyncio.run(main()), AdminClosedError)


def test_an_async_admin_closes_with_its_loop(broker: Broker) -> None:
    async def main() -> AsyncAdmin:
        admin = AsyncAdmin(bootstrap_servers=broker.bootstrap_servers)
        await admin.topics.list()
        return admin

    with pytest.warns(ResourceWarning, match="still open at the end of its loop"):
        admin = asyncio.run(main())
    assert not admin.is_open
