"""What an Admin does with refusals, lost answers and deadlines, on the embedded broker with faults."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import signal
import threading
import weakref
from collections.abc import Iterator
from uuid import UUID

import pytest

from kbatch import Admin, AsyncAdmin
from kbatch.admin import NewTopic
from kbatch.core.admin.security import CreateToken
from kbatch.core.client.admin_requests import REPEATED
from kbatch.errors import (
    ROWS,
    AdminClosedError,
    ErrorCode,
    ForkedAdminError,
    KafkaTimeoutError,
    NotControllerError,
    PartialFailure,
    PolicyViolationError,
    TopicExistsError,
)
from kbatch.testing import Broker
from tests.support.patience import until

NEW = NewTopic(partitions=1, replication_factor=1)


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


def test_what_is_refused_is_raised_at_once(broker: Broker, admin: Admin) -> None:
    broker.fail_next("CreateTopics", error="POLICY_VIOLATION", times=1)
    with pytest.raises(PolicyViolationError, match="create of topic new"):
        admin.topics.create("new", partitions=1, replication_factor=1)


def test_AS17_the_deadline_leaves_what_was_done(broker: Broker, admin: Admin) -> None:
    """Each topic has a request of its own; that of one is refused until the end."""
    admin.topics.create("first", partitions=1, replication_factor=1)
    broker.intercept(
        "CreatePartitions",
        lambda request: "NOT_CONTROLLER" if request.topics[0].name == "orders" else None,
    )
    with pytest.raises(PartialFailure) as raised:
        admin.topics.add_partitions({"first": 3, "orders": 3}, timeout=0.5)
    assert raised.value.results == {"first": 3}
    (error,) = raised.value.errors.values()
    assert isinstance(error, KafkaTimeoutError) and isinstance(error.__cause__, NotControllerError)
    assert not raised.value.possibly_persisted


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
        gc.collect()
    assert gone() is None or not gone().is_open  # type: ignore[union-attr]
    until(lambda: not network.is_alive)


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


def test_an_async_admin_closes_with_its_loop(broker: Broker) -> None:
    async def main() -> AsyncAdmin:
        admin = AsyncAdmin(bootstrap_servers=broker.bootstrap_servers)
        await admin.topics.list()
        return admin

    with pytest.warns(ResourceWarning, match="still open at the end of its loop"):
        admin = asyncio.run(main())
    assert not admin.is_open
