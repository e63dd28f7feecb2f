"""Members of KIP-848 groups, driven by threads, in groups of the embedded broker and of a real Kafka."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kbatch
from kbatch import errors
from kbatch.config import ConsumerConfig
from kbatch.core.client.calls import Call
from kbatch.core.consumer.commits import CommitOffsets, CommittedLookup
from kbatch.core.consumer.group_engine import GroupEngine
from kbatch.core.consumer.membership import Subscription
from kbatch.core.consumer.partition_state import COMMITTED
from kbatch.core.consumer.results import Failed, Fetched
from kbatch.metrics import CONSUMER_METRICS, COORDINATOR_METRICS, MetricsRegistry
from kbatch.network import ThreadNetwork
from kbatch.records import OffsetAndMetadata, TopicPartition
from tests.oracle.kafka import create_topic
from tests.support.effort import LONG
from tests.support.patience import repeat_until, until


class Live:
    """A member, whose program polls whenever the test waits."""

    def __init__(self, servers: str, group: str, **settings: Any) -> None:
        settings = {"auto_offset_reset": "earliest", "group_protocol": "consumer", **settings}
        config = ConsumerConfig(bootstrap_servers=servers, group_id=group, **settings)
        registry = MetricsRegistry("c", metrics=(*CONSUMER_METRICS, *COORDINATOR_METRICS))
        self.engine = GroupEngine(
            config,
            random=random.Random(),
            registry=registry,
            now_ns=time.monotonic_ns(),
            wall_clock_ms=lambda: time.time_ns() // 1_000_000,
        )
        self.results: list[Any] = []
        self.callbacks: list[tuple[str, set[int]]] = []
        self.network = ThreadNetwork(
            self.engine, config=config, deliver=self._deliver, name="member", metrics=registry
        )
        self.network.start()

    def _deliver(self, results: list[Any]) -> None:
        for result in results:
            if isinstance(result, Fetched):
                if result.records is not None:
                    self.results += [each.offset for each in result.records.take_records(100)]
                self.engine.release(result)
            elif isinstance(result, Failed):
                self.results.append(result.error)

    def subscribe(self, topic: str, pattern: str | None = None) -> None:
        self.engine.subscribe(Subscription(frozenset() if pattern else frozenset([topic]), pattern))
        self.network.wake()

    def poll(self) -> None:
        assert self.network.is_alive
        self.engine.note_poll(time.monotonic_ns())
        while (step := self.engine.take_rebalance()) is not None:
            self.callbacks.append((step.kind, {each.partition for each in step.partitions}))
            self.engine.finish_rebalance(step)
        self.network.wake()

    def poll_until(self, condition: Callable[[], object]) -> None:
        """Poll until the condition is true."""
        repeat_until(self.poll, condition)

    def made(self, call: Call, make: Callable[[Any], object]) -> Any:
        make(call)
        self.network.wake()
        self.poll_until(lambda: call.is_done)
        return call

    def commit(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> CommitOffsets:
        return self.made(CommitOffsets(offsets), self.engine.commit)  # type: ignore[no-any-return]

    def committed(self, *partitions: TopicPartition) -> dict[TopicPartition, OffsetAndMetadata]:
        call = self.made(CommittedLookup(partitions), self.engine.committed)
        assert call.error is None
        return call.answer  # type: ignore[no-any-return]

    def leave(self, leave: bool | None = None) -> None:
        call = self.made(Call("close"), lambda call: self.engine.leave(call, leave))
        assert call.error is None
        self.network.stop()

    @property
    def owned(self) -> set[int]:
        return {each.partition for each in self.engine.owned}


@pytest.fixture
def topic(target: str) -> str:
    name = f"group-{uuid.uuid4()}"
    create_topic(target, name, 4)
    with kbatch.Producer(bootstrap_servers=target) as producer:
        for number in range(40):
            producer.send(name, b"%d" % number, partition=number % 4)
    return name


@pytest.fixture
def make(target: str) -> Iterator[Callable[..., Live]]:
    made: list[Live] = []

    def make(group: str, **settings: Any) -> Live:
        made.append(Live(target, group, **settings))
        return made[-1]

    yield make
    for each in made:
        each.network.stop()


def settle(members: list[Live], *sizes: int) -> None:
    """Poll until the members own so many partitions."""

    def is_settled() -> bool:
        for member in members:
            member.poll()
        return sorted(len(each.owned) for each in members) == sorted(sizes)

    until(is_settled)


def test_R52_members_share_leave_and_go_on_where_others_were(topic: str, make: Callable[..., Live]) -> None:
    first = make(topic)
    first.subscribe(topic)
    settle([first], 4)
    until(lambda: len(first.results) == 40)
    a, b = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert first.commit({a: OffsetAndMetadata(7, "note", 0), b: OffsetAndMetadata(10)}).error is None
    second = make(topic)
    second.subscribe(topic)
    settle([first, second], 2, 2)
    assert first.owned.isdisjoint(second.owned)
    kept = TopicPartition(topic, min(first.owned))
    assert first.commit({kept: OffsetAndMetadata(10)}).error is None
    first.leave()
    settle([second], 4)
    assert second.committed(a, b).keys() == {a, b}
    assert first.callbacks[0] == ("assign", {0, 1, 2, 3})
    assert not [each for each in second.results if isinstance(each, Exception)]
    second.leave()


def test_R55_R56_static_members_keep_their_places(topic: str, make: Callable[..., Live]) -> None:
    first = make(topic, group_instance_id="one")
    first.subscribe(topic)
    settle([first], 4)
    other = make(topic, group_instance_id="one")
    other.subscribe(topic)
    until(lambda: other.engine.membership_error is not None)
    assert isinstance(other.engine.membership_error, errors.UnreleasedInstanceIdError)
    first.leave()
    again = make(topic, group_instance_id="one")
    again.subscribe(topic)
    settle([again], 4)
    again.leave(leave=True)


def test_R55_refusals_have_the_brokers_words(topic: str, make: Callable[..., Live]) -> None:
    member = make(topic, group_remote_assignor="mine")
    member.subscribe(topic)
    until(lambda: member.engine.membership_error is not None)
    assert isinstance(member.engine.membership_error, errors.UnsupportedAssignorError)


def test_R59_pattern_is_matched_by_the_member(topic: str, make: Callable[..., Live]) -> None:
    member = make(topic)
    member.subscribe(topic, pattern=f"{topic[:-2]}..")
    settle([member], 4)
    member.leave()


def test_R61_auto_has_the_consumer_protocol(topic: str, make: Callable[..., Live]) -> None:
    member = make(topic, group_protocol="auto")
    member.subscribe(topic)
    settle([member], 4)
    assert member.engine.group_metadata.generation_id > 0
    member.leave()


def test_R54_unknown_members_join_again(topic: str, make: Callable[..., Live]) -> None:
    """A member that leaves under another's id removes it, as an operator can."""
    first = make(topic)
    first.subscribe(topic)
    settle([first], 4)
    zombie = make(topic)
    zombie.engine._context = zombie.engine._context._replace(
        new_member_id=first.engine.group_metadata.member_id
    )
    zombie.subscribe(topic)
    zombie.poll_until(lambda: zombie.engine.group_metadata.generation_id > 0)
    zombie.leave()
    first.poll_until(lambda: ("lost", {0, 1, 2, 3}) in first.callbacks)
    settle([first], 4)
    first.leave()


def test_R80_group_with_members_refuses_commits_of_others(topic: str, make: Callable[..., Live]) -> None:
    alone, a = make(topic), TopicPartition(topic, 0)
    alone.engine.assign({a: COMMITTED})
    assert alone.commit({a: OffsetAndMetadata(3)}).error is None
    member = make(topic)
    member.subscribe(topic)
    settle([member], 4)
    refused = alone.commit({a: OffsetAndMetadata(4)})
    assert isinstance(refused.error, errors.CommitFailedError) and "has members" in str(refused.error)
    assert member.committed(a)[a].offset == 3
    member.leave()


def test_R83_pending_offsets_of_a_transaction_are_waited_out(
    topic: str, make: Callable[..., Live], target: str
) -> None:
    member, a = make(topic), TopicPartition(topic, 0)
    member.subscribe(topic)
    settle([member], 4)
    with kbatch.Producer(bootstrap_servers=target, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({a: OffsetAndMetadata(5)}, member.engine.group_metadata)
        call = CommittedLookup([a])
        member.engine.committed(call)
        member.network.wake()
        until(lambda: call.last_error is not None)
        assert isinstance(call.last_error, errors.UnstableOffsetCommitError) and not call.is_done
        producer.commit_transaction()
        until(lambda: call.is_done)
    assert call.answer[a].offset == 5
    member.leave()


def compute(seconds: float) -> None:
    """Use the interpreter without a pause."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))


@pytest.mark.slow
def test_R71_heartbeats_go_on_while_the_program_computes(topic: str, make: Callable[..., Live]) -> None:
    session_ms = 6000  # Kafka's least
    member = make(topic, group_protocol="classic", session_timeout_ms=session_ms, heartbeat_interval_ms=1500)
    member.subscribe(topic)
    settle([member], 4)
    before = member.engine.group_metadata
    seconds = 60.0 if LONG else session_ms / 1000 + 2
    other = threading.Thread(target=compute, args=(seconds,))
    other.start()
    compute(seconds)
    other.join()
    assert member.commit({TopicPartition(topic, 0): OffsetAndMetadata(1)}).error is None
    assert member.engine.group_metadata == before and len(member.callbacks) == 1
    member.leave()
