"""Consumers in groups: subscriptions, rebalances, callbacks, commits and the end, by both protocols.

The numbers are those of the behaviours of a consumer.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pytest

import kbatch
from kbatch import OffsetAndMetadata, TopicPartition
from kbatch.core.consumer.commits import CommitOffsets
from kbatch.core.consumer.group_engine import GroupEngine
from kbatch.errors import (
    CommitFailedError,
    ConsumerClosedError,
    IllegalStateError,
    InvalidGroupIdError,
    NoOffsetForPartitionError,
    TopicAuthorizationError,
    UnknownTopicIdError,
    UnsupportedAssignorError,
)
from kbatch.interceptors import ConsumerInterceptor
from kbatch.testing import AclBinding, Broker
from tests.support.patience import HANG_MS, repeat_until, until
from tests.support.polling import FIRST, PARTITIONS, SECOND, TOPIC, fill, offsets, polled
from tests.support.producing import SECONDS, within
from tests.support.shells import Runner, new_consumer

PROTOCOLS = ("consumer", "classic")
GROUP = "billing"
COUNT = 20
ALL = {partition: list(range(COUNT)) for partition in range(3)}
SLICE_SECONDS = 0.01
either = pytest.mark.parametrize("protocol", PROTOCOLS)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(
        {TOPIC: 3, "returns": 1},
        auto_create_topics=False,
        group_initial_rebalance_delay_ms=0,
        group_consumer_heartbeat_interval_ms=200,
    ) as running:
        yield running


def made(broker: Broker, protocol: str = "consumer", **keys: Any) -> dict[str, Any]:
    """Return the settings of a member."""
    own: dict[str, Any] = {} if protocol == "consumer" else {"heartbeat_interval_ms": 50}
    return (
        {
            "bootstrap_servers": broker.bootstrap_servers,
            "group_id": GROUP,
            "group_protocol": protocol,
            "auto_offset_reset": "earliest",
            "default_api_timeout_ms": HANG_MS,
            "fetch_max_wait_ms": 10,
            "retry_backoff_ms": 5,
        }
        | own
        | keys
    )


@contextlib.contextmanager
def member(broker: Broker, protocol: str = "consumer", **keys: Any) -> Iterator[Any]:
    with new_consumer(**made(broker, protocol, **keys)) as consumer:
        yield consumer


class Seen:
    """The callbacks of a listener, in order."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, list[int]]] = []

    def noted(self, kind: str) -> Callable[[list[TopicPartition]], None]:
        return lambda partitions: self.steps.append((kind, [each.partition for each in partitions]))

    def listener(self) -> dict[str, Any]:
        return {f"on_{kind}": self.noted(kind) for kind in ("assigned", "revoked", "lost")}

    def of(self, kind: str) -> set[int]:
        return {partition for each, partitions in self.steps if each == kind for partition in partitions}


def shared(members: Iterable[Any], sizes: Iterable[int], found: list[Any] | None = None) -> None:
    """Poll until the members have as many partitions."""
    kept = [] if found is None else found

    def is_shared() -> bool:
        for each in members:
            kept.extend(each.poll(SLICE_SECONDS))
        return sorted(len(each.assignment()) for each in members) == sorted(sizes)

    until(is_shared)


def committed(broker: Broker, group: str = GROUP) -> dict[int, int]:
    """Return the offsets that a group has committed."""
    with kbatch.TopicReader(bootstrap_servers=broker.bootstrap_servers) as reader:
        return {each.partition: at.committed.offset for each, at in reader.groups.offsets(group).items()}


# Topics that are deleted, created again, or not subscribed to any more

OTHER = TopicPartition("returns", 0)
NEW_COUNT = 7
FOREVER_MS = 10**9
subscribing = pytest.mark.parametrize("topics", [[TOPIC, "returns"], "^(orders|returns)$"], ids=str)


@either
@subscribing
@pytest.mark.parametrize("commits", [True, False], ids=["auto commit", "no commit"])
def test_topic_created_again_is_read_from_its_beginning(
    broker: Broker, protocol: str, topics: Any, commits: bool
) -> None:
    """KAFKA-16224: an offset of the old topic is neither waited for nor committed for the new one."""
    fill(broker, COUNT)
    found: list[Any] = []
    keys = {
        "metadata_max_age_ms": 100,
        "enable_auto_commit": commits,
        "auto_commit_interval_ms": 20,
        "default_api_timeout_ms": FOREVER_MS,
    }
    with (
        member(broker, protocol, **keys) as consumer,
        kbatch.Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):
        consumer.subscribe(topics)
        polled(consumer, 3 * COUNT)
        broker.delete_topic(TOPIC)
        producer.send("returns", b"meanwhile")
        repeat_until(lambda: found.extend(consumer.poll(SLICE_SECONDS)), lambda: bool(found))
        assert {each.topic for each in found} == {"returns"}
        broker.create_topic(TOPIC, 3)
        fill(broker, NEW_COUNT)
        new: list[Any] = []
        offsets = {(partition, offset) for partition in range(3) for offset in range(NEW_COUNT)}
        repeat_until(
            # without commits, a rebalance returns the other topic's record again
            lambda: new.extend(each for each in consumer.poll(SLICE_SECONDS) if each.topic == TOPIC),
            lambda: {(each.partition, each.offset) for each in new} == offsets,
        )
        consumer.commit(new)
        found_ids = {record.topic_id for record in new}
        assert len(found_ids) == 1 and bytes(16) not in found_ids
    with kbatch.TopicReader(bootstrap_servers=broker.bootstrap_servers) as reader:
        ends = {each: at.committed.offset for each, at in reader.groups.offsets(GROUP).items()}
    assert {each.partition: end for each, end in ends.items() if each.topic == TOPIC} == dict.fromkeys(
        range(3), NEW_COUNT
    )


@either
@pytest.mark.parametrize("last", ["close", "unsubscribe", "subscribe"])
def test_deleted_topic_is_not_waited_for_at_the_end(broker: Broker, protocol: str, last: str) -> None:
    fill(broker, COUNT)
    with member(broker, protocol, metadata_max_age_ms=100, default_api_timeout_ms=FOREVER_MS) as consumer:
        consumer.subscribe("^(orders|returns)$")
        polled(consumer, 3 * COUNT)
        broker.delete_topic(TOPIC)
        if last == "subscribe":
            consumer.subscribe(["returns"])
            with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
                producer.send("returns", b"meanwhile")
            until(lambda: len(consumer.poll(SLICE_SECONDS)) == 1)
        elif last == "close":
            within(lambda: consumer.close(timeout=FOREVER_MS / 1000)).result(SECONDS)
        else:
            within(consumer.unsubscribe).result(SECONDS)


@pytest.mark.slow
@either
@pytest.mark.parametrize("by", ["poll", "poll_table", "iteration"])
@pytest.mark.parametrize("pattern", [False, True], ids=["names", "pattern"])
def test_polls_return_nothing_of_topics_that_are_not_subscribed_to_any_more(
    broker: Broker, shell: str, protocol: str, by: str, pattern: bool
) -> None:
    fill(broker, COUNT)
    with kbatch.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("returns", b"returned")
    with member(broker, protocol) as consumer:
        consumer.subscribe([TOPIC])
        until(lambda: (first := consumer.poll(SLICE_SECONDS, 1)) and len(first) == 1)
        read = {each.partition: consumer.position(each) for each in consumer.assignment()}
        consumer.subscribe("^returns$" if pattern else ["returns"])
        if by == "poll_table":
            topics: list[Any] = []
            repeat_until(
                lambda: topics.extend(consumer.poll_table(SLICE_SECONDS)["topic"].to_pylist()), lambda: topics
            )
        elif by == "poll":
            topics = []
            repeat_until(
                lambda: topics.extend(each.topic for each in consumer.poll(SLICE_SECONDS)), lambda: topics
            )
        else:
            topics = [next(iter(consumer)).topic]
        assert topics == ["returns"]
        assert consumer.assignment() == {OTHER}
    with kbatch.TopicReader(bootstrap_servers=broker.bootstrap_servers) as reader:
        offsets_of = reader.groups.offsets(GROUP)
    assert {
        each.partition: at.committed.offset for each, at in offsets_of.items() if each.topic == TOPIC
    } == read


def test_records_know_the_topic_that_they_are_committed_for(broker: Broker) -> None:
    """Records and offsets that a program has kept are of the topic that they were read of."""
    fill(broker, COUNT)
    with member(broker, enable_auto_commit=False) as consumer:
        consumer.subscribe([TOPIC])
        found = polled(consumer, 3 * COUNT)
        broker.delete_topic(TOPIC)
        broker.create_topic(TOPIC, 3)
        for committable in (found, found[0], {FIRST: COUNT}, {FIRST: OffsetAndMetadata(3)}, None):
            with pytest.raises(UnknownTopicIdError, match="deleted and created again"):
                consumer.commit(committable)
    assert committed(broker) == {}


# 52, 67: rebalances


@either
def test_R52_members_share_and_take_over(broker: Broker, shell: str, protocol: str) -> None:
    fill(broker, COUNT)
    found: list[Any] = []
    with member(broker, protocol) as first, member(broker, protocol) as second:
        first.subscribe([TOPIC])
        shared([first], [3], found)
        second.subscribe([TOPIC])
        shared([first, second], [1, 2], found)
        assert first.assignment().isdisjoint(second.assignment())
        repeat_until(lambda: found.extend([*first.poll(0), *second.poll(0)]), lambda: len(found) == 3 * COUNT)
        assert {each: sorted(at) for each, at in offsets(found).items()} == ALL
        first.close()
        fill(broker, COUNT, start=COUNT)
        shared([second], [3], found)
        found += polled(second, 6 * COUNT - len(found))
    assert {each: sorted(at) for each, at in offsets(found).items()} == {
        each: list(range(2 * COUNT)) for each in range(3)
    }
    assert committed(broker) == dict.fromkeys(range(3), 2 * COUNT)


@either
def test_R96_callbacks_run_in_polls_in_order(broker: Broker, shell: str, protocol: str) -> None:
    mine, others = Seen(), Seen()
    with member(broker, protocol) as first, member(broker, protocol) as second:
        first.subscribe([TOPIC], **mine.listener())
        assert mine.steps == []
        shared([first], [3])
        assert mine.steps == [("assigned", [0, 1, 2])]
        second.subscribe([TOPIC], **others.listener())
        shared([first, second], [1, 2])
        revoked = mine.of("revoked")
        assert others.of("assigned") <= revoked and not mine.of("lost")
        second.close()
        shared([first], [3])
    assert others.steps[-1][0] == "revoked" and others.of("assigned") == others.of("revoked")
    owned: set[int] = set()
    for kind, partitions in mine.steps:  # each partition is assigned once, then revoked once
        if kind == "assigned":
            assert owned.isdisjoint(partitions)
            owned |= set(partitions)
        else:
            assert owned >= set(partitions)
            owned -= set(partitions)
    assert owned == set()


def test_R96_an_exception_of_a_callback_leaves_the_poll(broker: Broker, shell: str) -> None:
    def fail(_: object) -> None:
        raise LookupError("no table")

    fill(broker, COUNT)
    with member(broker) as consumer:
        consumer.subscribe([TOPIC], on_assigned=fail, on_revoked=fail)
        with pytest.raises(LookupError, match="no table"):
            consumer.poll()
        assert offsets(polled(consumer, 3 * COUNT)) == ALL
        with pytest.raises(LookupError):
            consumer.close()
        assert not consumer.is_open
    assert committed(broker) == dict.fromkeys(range(3), COUNT)


@pytest.mark.threads
def test_R34_callbacks_seek_and_pause_and_ask(broker: Broker) -> None:
    fill(broker, COUNT)
    known: list[int] = []

    def assigned(partitions: list[TopicPartition]) -> None:
        consumer.seek(FIRST, COUNT - 2)
        consumer.pause([SECOND])
        known.extend(consumer.position(each) for each in partitions)
        assert consumer.committed([FIRST]) == {FIRST: None}
        with pytest.raises(IllegalStateError, match=r"poll\(\) must not be called in a callback"):
            consumer.poll(0)
        with pytest.raises(IllegalStateError, match=r"close\(\) must not be called in a callback"):
            consumer.close()

    with member(broker) as consumer:
        consumer.subscribe([TOPIC], on_assigned=assigned)
        assert offsets(polled(consumer, COUNT + 2)) == {0: [COUNT - 2, COUNT - 1], 2: ALL[2]}
        assert known == [COUNT - 2, 0, 0]
        consumer.resume()
        assert offsets(polled(consumer, COUNT)) == {1: ALL[1]}


@either
def test_R36_pause_and_position_outlive_a_rebalance(broker: Broker, shell: str, protocol: str) -> None:
    keys: dict[str, Any] = {}
    if protocol == "classic":
        keys["partition_assignment_strategy"] = "cooperative-sticky"
    fill(broker, COUNT)
    with (
        member(broker, protocol, enable_auto_commit=False, **keys) as first,
        member(broker, protocol, **keys) as second,
    ):
        first.subscribe([TOPIC])
        polled(first, 3 * COUNT)
        first.pause()
        second.subscribe([TOPIC])
        shared([first, second], [1, 2])
        kept = first.assignment()
        assert first.paused() == kept
        assert [first.position(each) for each in kept] == [COUNT] * len(kept)


def test_R94_callbacks_and_commits_are_measured(broker: Broker, shell: str) -> None:
    def value(name: str) -> float:
        (found,) = (each for key, each in consumer.metrics().items() if key.name == name)
        return float(found)

    fill(broker, COUNT)
    with member(broker) as consumer:
        consumer.subscribe([TOPIC], **Seen().listener())
        polled(consumer, 3 * COUNT)
        assert value("partition-assigned-latency-max") > 0
        assert value("commit-sync-time-ns-total") == value("committed-time-ns-total") == 0
        consumer.commit()
        consumer.committed([FIRST])
        assert value("commit-sync-time-ns-total") > 0 and value("committed-time-ns-total") > 0
        assert value("commit-total") == value("rebalance-total") == 1 and value("assigned-partitions") == 3
        consumer.unsubscribe()
        assert value("partition-revoked-latency-max") > 0 and value("assigned-partitions") == 0


# 55: the end of a membership


def test_R55_the_end_of_a_membership_is_raised(broker: Broker, shell: str) -> None:
    with member(broker, group_remote_assignor="best") as consumer:
        consumer.subscribe([TOPIC])
        for _ in range(2):
            with pytest.raises(UnsupportedAssignorError, match=r"set group\.remote\.assignor"):
                consumer.poll()
        assert consumer.subscription() == {TOPIC}


def test_R54_a_member_that_was_removed_joins_again(broker: Broker, shell: str) -> None:
    fill(broker, COUNT)
    seen = Seen()
    with member(broker) as consumer:
        consumer.subscribe([TOPIC], **seen.listener())
        polled(consumer, 3 * COUNT)
        broker.fail_next("ConsumerGroupHeartbeat", error=kbatch.errors.ErrorCode.UNKNOWN_MEMBER_ID)
        until(lambda: consumer.poll(SLICE_SECONDS) is not None and "lost" in dict(seen.steps))
        shared([consumer], [3])
        assert [kind for kind, _ in seen.steps] == ["assigned", "lost", "assigned"]


def test_R26_a_topic_without_permission_is_raised(shell: str) -> None:
    acls = [AclBinding.of(("GROUP", GROUP, "User:ANONYMOUS", "READ"))]
    with (
        Broker({TOPIC: 3}, authorizer=acls, group_initial_rebalance_delay_ms=0) as broker,
        member(broker, "classic") as consumer,
    ):
        consumer.subscribe([TOPIC])
        with pytest.raises(TopicAuthorizationError, match=TOPIC):
            consumer.poll()


@either
def test_a_revocation_goes_on_after_an_interrupt(
    broker: Broker, shell: str, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker, COUNT)
    commit, interrupts = GroupEngine.commit, iter([InterruptedError()])

    def interrupted(engine: GroupEngine, call: CommitOffsets) -> None:
        for interrupt in interrupts:
            raise interrupt
        commit(engine, call)

    with member(broker, protocol, auto_commit_interval_ms=600_000, max_poll_records=5) as first:
        first.subscribe([TOPIC])
        polled(first, 5)
        monkeypatch.setattr(GroupEngine, "commit", interrupted)
        with member(broker, protocol) as second:
            second.subscribe([TOPIC])
            with pytest.raises(InterruptedError):
                shared([first, second], [1, 2])
            shared([first, second], [1, 2])


# 69: max.poll.interval.ms


@either
def test_R69_a_program_that_does_not_poll_leaves(broker: Broker, shell: str, protocol: str) -> None:
    fill(broker, COUNT)
    seen, found = Seen(), list[Any]()
    with (
        member(broker, protocol, max_poll_interval_ms=300, enable_auto_commit=False) as slow,
        member(broker, protocol) as other,
    ):
        slow.subscribe([TOPIC], **seen.listener())
        shared([slow], [3])
        other.subscribe([TOPIC])
        repeat_until(lambda: found.extend(other.poll(SLICE_SECONDS)), lambda: len(other.assignment()) == 3)
        with pytest.raises(CommitFailedError, match=r"did not poll for .* max\.poll\.interval\.ms=300"):
            slow.commit({FIRST: 3})
        slow.poll(0)
        assert seen.steps[-1] == ("lost", [0, 1, 2]) or seen.of("lost")
        shared([slow, other], [1, 2])


@pytest.mark.threads
def test_R69_alive_counts_as_a_poll(broker: Broker) -> None:
    seen = Seen()
    with member(broker, max_poll_interval_ms=1000) as consumer:
        consumer.subscribe([TOPIC], **seen.listener())
        shared([consumer], [3])
        stop = threading.Event()

        def keep_alive() -> None:
            while not stop.wait(0.02):
                consumer.alive()

        helper = threading.Thread(target=keep_alive)
        helper.start()
        stop.wait(2.0)
        consumer.poll(0)
        stop.set()
        helper.join()
        assert [kind for kind, _ in seen.steps] == ["assigned"]


@pytest.mark.threads
def test_R70_a_poll_that_waits_counts_as_polling(broker: Broker) -> None:
    seen = Seen()
    with member(broker, max_poll_interval_ms=1000) as consumer:
        consumer.subscribe([TOPIC], **seen.listener())
        shared([consumer], [3])
        assert not consumer.poll(2.5)
        assert [kind for kind, _ in seen.steps] == ["assigned"]


# 74: automatic commits


def test_R74_record_being_processed_is_not_committed(broker: Broker, shell: str) -> None:
    fill(broker, COUNT)
    with member(broker, auto_commit_interval_ms=0, max_poll_records=5) as consumer:
        consumer.subscribe([TOPIC])
        first = polled(consumer, 5)
        partition = first[0].partition
        assert committed(broker).get(partition, 0) == 0
        polled(consumer, 5)
        until(lambda: committed(broker).get(partition) == 5)


def test_R74_commits_name_what_has_moved(broker: Broker, shell: str) -> None:
    def named() -> list[list[int]]:
        commits = [each.message for each in broker.requests("OffsetCommit")]
        return [
            [partition.partition_index for topic in each.topics for partition in topic.partitions]
            for each in commits
        ]

    fill(broker, COUNT)
    with member(broker, auto_commit_interval_ms=0) as consumer:
        consumer.subscribe([TOPIC])
        polled(consumer, 3 * COUNT)
        until(lambda: not consumer.poll(0) and committed(broker) == dict.fromkeys(range(3), COUNT))
        count = len(named())
        for _ in range(5):
            consumer.poll(0)
        assert len(named()) == count
        fill(broker, 1, partitions=[1], start=COUNT)
        polled(consumer, 1)
        broker.fail_next("OffsetCommit", error=kbatch.errors.ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        until(lambda: not consumer.poll(0) and committed(broker)[1] == COUNT + 1)
        assert named()[count:] == [[1], [1]]  # the refused one again
        consumer.seek(FIRST, 7)
        consumer.pause()
        until(lambda: not consumer.poll(0) and committed(broker)[0] == 7)
        assert named()[count:] == [[1], [1], [0]]


def test_R74_close_commits_no_position_that_no_poll_has_used(broker: Broker, shell: str) -> None:
    """It would replace what the program has committed itself."""
    fill(broker, COUNT)
    with member(broker, auto_offset_reset="earliest") as consumer:
        consumer.assign([FIRST])
        assert consumer.position(FIRST) == 0
        consumer.commit({FIRST: 2})
    assert committed(broker) == {0: 2}


def test_a_position_that_is_not_known_yet_is_waited_for_as_long_as_asked(broker: Broker, shell: str) -> None:
    broker.delay("ListOffsets", 600)
    with member(broker, auto_offset_reset="earliest") as consumer:
        consumer.assign([FIRST])
        with pytest.raises(kbatch.errors.KafkaTimeoutError, match="position"):
            consumer.position(FIRST, timeout=0)
        consumer.seek(FIRST, 3)
        assert consumer.position(FIRST, timeout=0) == 3


def test_R74_an_iteration_commits_what_is_done(broker: Broker, shell: str) -> None:
    fill(broker, COUNT)
    with member(broker, auto_commit_interval_ms=0) as consumer:
        consumer.subscribe([TOPIC])
        member_of = consumer._member

        def will_poll() -> bool:  # a reminder has ended the iterator
            iterators = [each.iterator for each in consumer._backlog.assigned.values()]
            return not any(iterators) and (member_of._auto_commit is None or member_of._auto_commit.is_done)

        for number, _ in enumerate(consumer):
            if number == 3:
                until(will_poll)
            if number == 4:
                until(lambda: sum(committed(broker).values()) == 4)
                break


def test_R74_reminder_before_an_iterator_ends_it_after_a_record(broker: Broker, shell: str) -> None:
    """It does not come twice. A slow thread may be reminded between its poll and the iterator."""
    fill(broker, COUNT, partitions=[0])
    with member(broker) as consumer:
        consumer.subscribe([TOPIC])
        backlog = consumer._backlog
        begin_iterator = backlog.begin_iterator

        def reminded(*arguments: Any) -> Any:
            backlog.note_change()
            return begin_iterator(*arguments)

        backlog.begin_iterator = reminded
        counts = [consumer._poll_count for _ in zip(range(COUNT), consumer, strict=False)]
        assert counts == sorted(set(counts))


@pytest.mark.parametrize("is_iterating", [False, True], ids=["polls", "iteration"])
def test_R74_an_exception_leaves_out_what_was_in_hand(broker: Broker, shell: str, is_iterating: bool) -> None:
    fill(broker, COUNT, partitions=[0])
    with pytest.raises(LookupError), member(broker, max_poll_records=4) as consumer:
        consumer.subscribe([TOPIC])
        if is_iterating:
            for record in consumer:
                if record.offset == 6:
                    raise LookupError
        polled(consumer, 4)
        polled(consumer, 4)
        raise LookupError
    assert committed(broker)[0] == (6 if is_iterating else 4)
    with member(broker) as consumer:
        consumer.subscribe([TOPIC])
        assert polled(consumer, COUNT - committed(broker)[0])[0].offset == committed(broker)[0]


def test_R74_nothing_is_committed_without_the_key(broker: Broker, shell: str) -> None:
    fill(broker, COUNT)
    with member(broker, enable_auto_commit=False) as consumer:
        consumer.subscribe([TOPIC])
        polled(consumer, 3 * COUNT)
    assert committed(broker) == {}


# 75, 76: commits


def test_R75_commit_after_a_marker_has_its_leader_epoch(broker: Broker, shell: str) -> None:
    """With the epoch of the record before, the log would seem to be truncated at the marker."""

    def transact(core: Any, *, ends: bool) -> None:
        led, now_ms = core.state.cluster.partition(*FIRST), core.state.now_ms
        if ends:
            led.lead_by(0)
            led.log.append_marker(7, 0, True, 0, now_ms=now_ms, leader_epoch=led.leader_epoch)
        else:
            led.log.append_records(
                [(b"", b"a")], now_ms=now_ms, leader_epoch=0, producer_id=7, producer_epoch=0
            )
        core.state.partition_changed(*FIRST)

    with member(broker, enable_auto_commit=False) as consumer:
        consumer.subscribe([TOPIC])
        shared([consumer], [3])
        broker._call(partial(transact, ends=False))
        assert offsets(polled(consumer, 1)) == {0: [0]}
        broker._call(partial(transact, ends=True))
        until(lambda: not consumer.poll(SLICE_SECONDS) and consumer.position(FIRST) == 2)
        consumer.commit()
        assert consumer.committed([FIRST]) == {FIRST: OffsetAndMetadata(2, leader_epoch=1)}


@pytest.mark.parametrize("taken", [15, COUNT])
def test_R75_commit_after_a_truncation_has_its_leader_epoch(broker: Broker, shell: str, taken: int) -> None:
    """Without the epoch, the next member would not see that a second truncation has replaced records."""

    def truncate(core: Any, offset: int) -> None:
        led = core.state.cluster.partition(*FIRST)
        for log in led.logs:
            log.truncate_to(offset, core.state.now_ms)
        led.lead_by(0)
        core.state.partition_changed(*FIRST)

    fill(broker, COUNT, partitions=[0], batch_size=1, linger_ms=0)
    with member(broker, enable_auto_commit=False) as consumer:
        consumer.subscribe([TOPIC])
        polled(consumer, taken, max_records=1)
        until(lambda: consumer._engine.reading(FIRST).fetch_offset == COUNT)
        broker._call(partial(truncate, offset=10))
        until(lambda: consumer._engine.reading(FIRST).fetch_offset == 10)
        until(lambda: not consumer.poll(SLICE_SECONDS) and consumer.position(FIRST) == 10)
        consumer.commit()
        assert consumer.committed([FIRST]) == {FIRST: OffsetAndMetadata(10, leader_epoch=0)}
    broker._call(partial(truncate, offset=6))
    fill(broker, COUNT, partitions=[0], start=1000)
    with member(broker) as consumer:
        consumer.subscribe([TOPIC])
        found = polled(consumer, COUNT)
    assert [(each.offset, int(each.value)) for each in found] == [(6 + n, 1000 + n) for n in range(COUNT)]


def test_R75_commit_of_an_unread_partition_keeps_its_epoch(broker: Broker, shell: str) -> None:
    """Records of it are there, but the program has none of them so far."""
    fill(broker, COUNT)
    before = {each: OffsetAndMetadata(5, leader_epoch=0) for each in PARTITIONS}
    with member(broker, enable_auto_commit=False) as consumer:
        consumer.subscribe([TOPIC])
        shared([consumer], [3])
        consumer.commit(before)
    with member(broker, enable_auto_commit=False, max_poll_records=1) as consumer:
        consumer.subscribe([TOPIC])
        found = polled(consumer, 1)
        until(lambda: all(consumer._engine.reading(each).fetch_offset == COUNT for each in PARTITIONS))
        found += polled(consumer, 1)
        consumer.commit()
        unread = {each: before[each] for each in PARTITIONS if each.partition not in offsets(found)}
        assert consumer.committed(list(unread)) == unread != {}


def test_R75_every_form_of_commit(broker: Broker, shell: str) -> None:
    fill(broker, COUNT)
    with member(broker, enable_auto_commit=False, max_poll_records=7) as consumer:
        consumer.subscribe([TOPIC])
        part = consumer.poll()
        partition = part.partitions()[0]
        consumer.commit(part)
        assert consumer.committed([partition]) == {partition: OffsetAndMetadata(7, leader_epoch=0)}
        consumer.commit(part[2])
        assert consumer.committed([partition])[partition].offset == 3
        consumer.commit(part[:5])
        assert consumer.committed([partition])[partition].offset == 5
        consumer.commit({partition: 1})
        assert consumer.committed([partition]) == {partition: OffsetAndMetadata(1)}
        consumer.commit({partition: OffsetAndMetadata(2, "note", 0)})
        assert consumer.committed([partition]) == {partition: OffsetAndMetadata(2, "note", 0)}
        consumer.commit({partition: 7})  # the position, whose epoch is known
        assert consumer.committed([partition]) == {partition: OffsetAndMetadata(7, leader_epoch=0)}
        consumer.commit({partition: 1})
        consumer.commit()
        assert consumer.committed([partition])[partition].offset == 7
        found = consumer.committed(PARTITIONS)
        assert set(found) == set(PARTITIONS)


def test_R75_commits_of_other_things_are_refused(broker: Broker, shell: str) -> None:
    with member(broker) as consumer:
        for wrong, error, text in (
            ("orders", TypeError, "offsets must be the result of a poll, records, or a mapping"),
            ({FIRST: "1"}, TypeError, "offset of orders-0 must be an int, got str"),
            ({FIRST: -1}, ValueError, "offset of orders-0 must be 0 to"),
            ({"orders": 1}, TypeError, "a partition must be a TopicPartition"),
        ):
            with pytest.raises(error, match=text):
                consumer.commit(wrong)
        with pytest.raises(TypeError, match="on_commit must be a plain callable or None"):
            consumer.commit_async(None, 5)
        consumer.subscribe([TOPIC])
        shared([consumer], [3])
        refusal = "returns-0 cannot be committed: this consumer does not own them; poll again"
        with pytest.raises(CommitFailedError, match=refusal) as failed:
            consumer.commit({TopicPartition("returns", 0): 0})
        assert failed.value.partitions == (("returns", 0),)


def test_R76_async_commits_call_back_in_order(broker: Broker, shell: str) -> None:
    class Noted(ConsumerInterceptor):
        def on_commit(self, offsets: Any, error: BaseException | None) -> None:
            noted.append(offsets[FIRST].offset)

    seen: list[Any] = []
    noted: list[int] = []
    with member(broker, enable_auto_commit=False, interceptor_classes=[Noted]) as consumer:
        consumer.subscribe([TOPIC])
        shared([consumer], [3])
        for offset in range(5):
            consumer.commit_async({FIRST: offset}, lambda at, error: seen.append((at[FIRST].offset, error)))
        assert seen == []
        consumer.commit({FIRST: 9})
        assert seen == [(offset, None) for offset in range(5)]
        assert noted == [0, 1, 2, 3, 4, 9]
        broker.fail_next("OffsetCommit", error=kbatch.errors.ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        consumer.commit_async({FIRST: 3}, lambda at, error: seen.append(type(error).__name__))
        until(lambda: consumer.poll(SLICE_SECONDS) is not None and len(seen) == 6)
        assert seen[-1] == "CoordinatorLoadInProgressError"
        consumer.commit_async({FIRST: 4}, lambda at, error: seen.append(error))
    assert seen[-1] is None and committed(broker) == {0: 4}


@pytest.mark.threads
def test_R79_revoked_partitions_can_be_committed(broker: Broker) -> None:
    fill(broker, COUNT)

    def revoked(partitions: list[TopicPartition]) -> None:
        consumer.commit({each: consumer.position(each) for each in partitions})

    with member(broker, enable_auto_commit=False) as consumer:
        consumer.subscribe([TOPIC], on_revoked=revoked)
        polled(consumer, 3 * COUNT)
    assert committed(broker) == dict.fromkeys(range(3), COUNT)


def test_R80_assigned_partitions_are_committed_without_members(broker: Broker, shell: str) -> None:
    fill(broker, COUNT)
    with member(broker) as consumer:
        consumer.assign([FIRST])
        polled(consumer, COUNT)
    assert committed(broker) == {0: COUNT}
    with member(broker, auto_offset_reset="none", enable_auto_commit=False) as consumer:
        consumer.assign([FIRST])
        assert consumer.position(FIRST) == COUNT
        with member(broker) as other:
            other.subscribe([TOPIC])
            shared([other], [3])
            with pytest.raises(CommitFailedError, match="the group has members"):
                consumer.commit({FIRST: 1})
        with pytest.raises(NoOffsetForPartitionError, match="group billing has no committed offset"):
            consumer.assign([TopicPartition("returns", 0)])
            consumer.poll()


def test_R84_an_offset_after_the_end_is_noted(
    broker: Broker, shell: str, caplog: pytest.LogCaptureFixture
) -> None:
    fill(broker, COUNT)
    with member(broker, enable_auto_commit=False) as consumer:
        consumer.subscribe([TOPIC])
        polled(consumer, 3 * COUNT)
        consumer.commit({FIRST: COUNT + 5})
    assert "orders-0 at 25, although its log ended at 20 when last read" in caplog.text
    assert committed(broker) == {0: COUNT + 5}


# Subscriptions


@either
def test_R59_a_pattern_reads_matching_topics(broker: Broker, shell: str, protocol: str) -> None:
    fill(broker, COUNT)
    with member(broker, protocol) as consumer:
        consumer.subscribe("^ord.*")
        assert consumer.subscription() == "^ord.*"
        assert offsets(polled(consumer, 3 * COUNT)) == ALL
        assert consumer.assignment() == set(PARTITIONS)


@either
def test_R86_until_end_waits_while_a_pattern_is_looked_up(broker: Broker, shell: str, protocol: str) -> None:
    """The first assignment of a pattern is empty; the next heartbeat brings the topics."""
    fill(broker, COUNT)
    with member(broker, protocol) as consumer:
        consumer.subscribe("^(?:orders|none)$")
        assert offsets(consumer.until_end()) == ALL


@either
def test_R59_a_pattern_means_the_same_by_both_protocols(broker: Broker, protocol: str) -> None:
    """RE2 has no lookahead; the broker's matches would have internal topics."""
    fill(broker, COUNT)
    with member(broker, protocol) as consumer:
        consumer.subscribe("^(?!returns).*")
        assert offsets(polled(consumer, 3 * COUNT)) == ALL
        assert consumer.assignment() == set(PARTITIONS)
        assert "__consumer_offsets" in consumer.topics()


@either
def test_another_subscription_replaces_the_first(broker: Broker, shell: str, protocol: str) -> None:
    returned = TopicPartition("returns", 0)
    with member(broker, protocol) as consumer:
        consumer.subscribe([TOPIC])
        shared([consumer], [3])
        consumer.subscribe(["returns"])
        until(lambda: consumer.poll(SLICE_SECONDS) is not None and consumer.assignment() == {returned})
        consumer.unsubscribe()
        assert (consumer.assignment(), consumer.subscription()) == (set(), set())
        consumer.assign([FIRST])
        consumer.unsubscribe()
        assert consumer.assignment() == set()
        consumer.subscribe([TOPIC])
        shared([consumer], [3])


def test_subscriptions_that_cannot_be_are_refused(broker: Broker, shell: str) -> None:
    async def coroutine(_: object) -> None: ...

    with member(broker) as consumer:
        for wrong, error, text in (
            (b"orders", TypeError, r"topics must be a list of names, got b'orders'; write"),
            (TOPIC, TypeError, r"topics must be a list of names, or a pattern .* got 'orders'"),
            ([], ValueError, r"topics must not be empty; call unsubscribe\(\)"),
            (["^a"], ValueError, "a pattern comes alone"),
            ("^a(", ValueError, r"pattern must be .* Python's re, got '\^a\(': missing \)"),
            (r"^\p{L}+", ValueError, r"got '\^\\\\p\{L\}\+': bad escape"),
            ("^[[:alpha:]]+", ValueError, r"Python's re, which has no \[:alpha:\], got"),
            ([5], TypeError, "topic must be a str, got int"),
            ([""], ValueError, "got an empty one"),
        ):
            with pytest.raises(error, match=text):
                consumer.subscribe(wrong)
        with pytest.raises(TypeError, match="on_lost must be callable or None, got int"):
            consumer.subscribe([TOPIC], on_lost=5)
        if shell == "threads":
            with pytest.raises(TypeError, match="on_revoked must not be a coroutine function"):
                consumer.subscribe([TOPIC], on_revoked=coroutine)
        consumer.assign([FIRST])
        with pytest.raises(IllegalStateError, match=r"subscribe\(\) after assign\(\)"):
            consumer.subscribe([TOPIC])
        consumer.unsubscribe()
        consumer.subscribe([TOPIC])
        with pytest.raises(IllegalStateError, match=r"assign\(\) after subscribe\(\)"):
            consumer.assign([FIRST])
        with pytest.raises(IllegalStateError, match="orders-0 is not assigned to this consumer; poll"):
            consumer.seek(FIRST, 3)


def test_a_consumer_without_a_group_has_no_commits(broker: Broker, shell: str) -> None:
    with new_consumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
        calls: dict[str, Callable[[], object]] = {
            "subscribe": lambda: consumer.subscribe([TOPIC]),
            "commit": lambda: consumer.commit(),
            "commit_async": lambda: consumer.commit_async(),
            "committed": lambda: consumer.committed([FIRST]),
            "group_metadata": lambda: consumer.group_metadata(),
        }
        for name, call in calls.items():
            with pytest.raises(InvalidGroupIdError, match=rf"{name}\(\) needs a group; set group\.id"):
                call()


def test_R86_until_end_waits_for_the_group(broker: Broker, shell: str) -> None:
    fill(broker, COUNT)
    with member(broker) as consumer:
        consumer.subscribe([TOPIC])
        assert offsets(consumer.until_end()) == ALL
        assert list(consumer.until_end()) == []


# 56, 72: the end


@either
def test_R56_close_leaves_and_others_take_over_at_once(broker: Broker, shell: str, protocol: str) -> None:
    with member(broker, protocol) as first, member(broker, protocol) as second:
        first.subscribe([TOPIC])
        second.subscribe([TOPIC])
        shared([first, second], [1, 2])
        first.close()
        shared([second], [3])
        assert first.group_metadata().member_id == ""


@either
def test_R56_a_static_member_keeps_its_place(broker: Broker, shell: str, protocol: str) -> None:
    keys = {"group_instance_id": "one"}
    with member(broker, protocol, **keys) as first, member(broker, protocol) as second:
        first.subscribe([TOPIC])
        second.subscribe([TOPIC])
        shared([first, second], [1, 2])
        own = first.assignment()
        first.close()
        others = second.assignment()
        with member(broker, protocol, **keys) as again:
            again.subscribe([TOPIC])
            shared([again, second], [1, 2])
            assert (again.assignment(), second.assignment()) == (own, others)
            again.close(leave=True)
        shared([second], [3])


@pytest.mark.threads
def test_R72_close_of_another_thread_ends_a_poll_and_leaves(broker: Broker) -> None:
    seen = Seen()
    with member(broker) as consumer, member(broker) as other:
        consumer.subscribe([TOPIC], **seen.listener())
        shared([consumer], [3])
        waiting = within(consumer.poll)
        until(lambda: not consumer._user.is_free and bool(consumer._runtime.changed.waiting))
        consumer.close()
        with pytest.raises(ConsumerClosedError):
            waiting.result(SECONDS)
        assert seen.steps[-1] == ("revoked", [0, 1, 2])
        other.subscribe([TOPIC])
        shared([other], [3])


@pytest.mark.threads
def test_R72_a_dropped_member_leaves_without_callbacks(broker: Broker) -> None:
    seen = Seen()
    consumer = kbatch.Consumer(**made(broker))
    consumer.subscribe([TOPIC], **seen.listener())
    shared([consumer], [3])
    with pytest.warns(ResourceWarning, match=r"was dropped without close\(\)"):
        del consumer
    with member(broker) as other:
        other.subscribe([TOPIC])
        shared([other], [3])
    assert [kind for kind, _ in seen.steps] == ["assigned"]


def test_R72_a_second_close_waits_for_the_first(broker: Broker, shell: str) -> None:
    seen = Seen()
    with member(broker) as consumer:
        consumer.subscribe([TOPIC], **seen.listener())
        shared([consumer], [3])
        closing = [within(consumer.close) for _ in range(3)]
        for each in closing:
            each.result(SECONDS)
            assert seen.steps[-1][0] == "revoked"


def test_a_member_that_its_loop_leaves_is_out(broker: Broker, run: Runner) -> None:
    async def program() -> None:
        consumer = kbatch.AsyncConsumer(**made(broker))
        consumer.subscribe([TOPIC])
        assert await consumer.poll()

    fill(broker, COUNT)
    with pytest.warns(ResourceWarning):
        run(program())
    with kbatch.TopicReader(bootstrap_servers=broker.bootstrap_servers) as reader:
        assert reader.groups.describe(GROUP).members == ()


@pytest.mark.usefixtures("impatient")
def test_a_missing_topic_is_logged(broker: Broker, shell: str, caplog: pytest.LogCaptureFixture) -> None:
    with member(broker, allow_auto_create_topics=False) as consumer:
        consumer.subscribe(["nope"])
        until(lambda: consumer.poll(SLICE_SECONDS) is not None and "topic nope" in caplog.text)


# 95, 96: tasks


def test_R95_a_cancelled_poll_does_not_reach_a_callback(broker: Broker, run: Runner) -> None:
    async def program() -> None:
        done: list[str] = []
        begun, may_end = asyncio.Event(), asyncio.Event()

        async def assigned(partitions: list[TopicPartition]) -> None:
            begun.set()
            await may_end.wait()
            await consumer.commit({FIRST: 3})
            done.append("assigned")

        fill(broker, COUNT)
        async with kbatch.AsyncConsumer(**made(broker)) as consumer:
            consumer.subscribe([TOPIC], on_assigned=assigned)
            polling = asyncio.create_task(consumer.poll())
            await begun.wait()
            polling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await polling
            assert not await consumer.poll(0)  # nothing comes before the callback has ended
            assert done == []
            may_end.set()
            found: list[Any] = []
            while len(found) < 3 * COUNT - 3:
                found += await consumer.poll()
            assert done == ["assigned"] and offsets(found)[0] == list(range(3, COUNT))

    run(program())
