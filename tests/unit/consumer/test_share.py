"""ShareConsumer: how it is used, ended and misused; records from their arrival to their acknowledgement."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any, cast

import pytest

import kbatch
from kbatch import AcknowledgeType, AsyncShareConsumer, ConsumerRecord, ShareConsumer, ShareRecord
from kbatch._native.fetch.budget import Budget, FrameShare
from kbatch.config import ConsumerConfig
from kbatch.config.readers import NOT_FOR_SHARE_GROUPS
from kbatch.consumer.acquired import GAP, AcquiredRecords
from kbatch.core.client.cluster import ClusterSnapshot
from kbatch.core.consumer.share_engine import ShareEngine
from kbatch.core.consumer.share_fetcher import Acquired, ShareFailed
from kbatch.core.consumer.share_session import AcquiredAt
from kbatch.errors import (
    ConcurrentUseError,
    ConfigError,
    ConsumerClosedError,
    CorruptRecordError,
    ForkedConsumerError,
    IllegalStateError,
    InvalidGroupIdError,
    TopicAuthorizationError,
    UnsupportedVersionError,
)
from kbatch.records import TopicPartition
from kbatch.testing import Broker
from tests.support.interrupting import Interrupter
from tests.support.patience import until
from tests.support.producing import SECONDS, within
from tests.support.share_reading import batch_of
from tests.support.shells import Runner

PLACE = AcquiredAt(0, bytes(16), TopicPartition("t", 0))
INTERRUPTED = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
RECORD = ShareRecord("t", 0, 0, None, b"", (), None, "create_time", -1, 1)


def consumer_of(servers: str = "127.0.0.1:1", **settings: Any) -> ShareConsumer:
    return ShareConsumer(bootstrap_servers=servers, group_id="g", **settings)


# Its configuration and arguments


def test_consumer_needs_a_group() -> None:
    with pytest.raises(InvalidGroupIdError, match=r"set group\.id"):
        ShareConsumer(bootstrap_servers="127.0.0.1:1")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("auto.offset.reset", "earliest"),
        ("isolation.level", "read_committed"),
        ("enable.auto.commit", False),
        ("group.instance.id", "a"),
        ("group.protocol", "consumer"),
    ],
)
def test_keys_that_brokers_decide_are_refused(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"{key}={value} is not for share groups") as refused:
        ShareConsumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", key: value})
    assert NOT_FOR_SHARE_GROUPS[key] in str(refused.value)


def test_consumer_of_another_group_refuses_keys_of_share_groups() -> None:
    with pytest.raises(ConfigError, match=r"share\.acknowledgement\.mode is for share groups"):
        kbatch.Consumer(bootstrap_servers="127.0.0.1:1", group_id="g", share_acknowledgement_mode="explicit")


@pytest.mark.parametrize(
    ("topics", "error", "words"),
    [
        ("orders", TypeError, r"got 'orders'; subscribe\(\['orders'\]\)"),
        ([], ValueError, r"call unsubscribe\(\)"),
        (["^a.*"], ValueError, "share groups have no patterns"),
        ([3], TypeError, "topic must be"),
    ],
)
def test_unsuitable_topics_are_refused(topics: Any, error: type[Exception], words: str) -> None:
    with consumer_of() as consumer, pytest.raises(error, match=words):
        consumer.subscribe(topics)


def test_unsuitable_acknowledgements_are_refused() -> None:
    with consumer_of(share_acknowledgement_mode="explicit") as consumer:
        with pytest.raises(ValueError, match="accept, release, reject, renew, got 'keep'"):
            consumer.acknowledge(RECORD, "keep")
        with pytest.raises(TypeError, match="AcknowledgeType or its name, got 1"):
            consumer.acknowledge(RECORD, cast(Any, 1))
        with pytest.raises(TypeError, match="must be a ShareRecord of a poll, got ConsumerRecord"):
            consumer.acknowledge(cast(Any, ConsumerRecord("t", 0)))
        with pytest.raises(IllegalStateError, match="offset 0 of t-0 is not waiting"):
            consumer.acknowledge(RECORD)
        with pytest.raises(TypeError, match="on_commit must be a plain callable"):
            consumer.commit_async(cast(Any, 3))
    with consumer_of() as consumer:
        with pytest.raises(IllegalStateError, match=r"needs share\.acknowledgement\.mode=explicit"):
            consumer.acknowledge(RECORD)
        with pytest.raises(IllegalStateError, match=r"subscribe\(\) to topics first"):
            consumer.poll(0)
        consumer.subscribe(["t"])
        with pytest.raises(ValueError, match="max_records"):
            consumer.poll(0, 0)
        consumer.commit()  # nothing


# Its use


def test_brokers_without_share_groups_are_named() -> None:
    with Broker(topics={"t": 1}) as broker, consumer_of(broker.bootstrap_servers) as consumer:
        broker.hide_requests(0, "ShareGroupHeartbeat")
        consumer.subscribe(["t"])
        with pytest.raises(UnsupportedVersionError, match="ShareGroupHeartbeat"):
            consumer.poll(SECONDS)


def test_share_groups_that_are_switched_off_are_named() -> None:
    with (
        Broker(topics={"t": 1}, share_version=0) as broker,
        consumer_of(broker.bootstrap_servers) as consumer,
    ):
        consumer.subscribe(["t"])
        with pytest.raises(UnsupportedVersionError, match=r"the feature share\.version=1"):
            consumer.poll(SECONDS)


def test_second_thread_is_refused_and_close_ends_a_poll() -> None:
    consumer = consumer_of()
    consumer.subscribe(["t"])
    waiting = within(consumer.poll)
    until(lambda: not consumer._user.is_free and bool(consumer._runtime.changed.waiting))
    with pytest.raises(ConcurrentUseError, match=threading.current_thread().name):
        consumer.poll(0)
    consumer.close()
    with pytest.raises(ConsumerClosedError, match="create another"):
        waiting.result(SECONDS)
    with pytest.raises(ConsumerClosedError):
        consumer.subscribe(["t"])
    consumer.close()
    assert consumer.metrics()


def test_a_poll_that_waits_does_not_look_at_all_partitions_again(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, leader = 0, ClusterSnapshot.leader

    def look(*arguments: Any) -> tuple[int, int]:
        nonlocal looks
        looks += 1
        return leader(*arguments)

    monkeypatch.setattr(ClusterSnapshot, "leader", look)
    with (
        Broker(topics={"t": 200}) as broker,
        consumer_of(broker.bootstrap_servers, fetch_max_wait_ms=10) as consumer,
    ):
        consumer.subscribe(["t"])
        until(lambda: len(consumer.poll(0.01)) == 0 and len(consumer._engine.assigned) == 200)
        consumer.poll(0.01)
        looks = 0
        for _ in range(50):
            consumer.poll(0.01)
        assert looks < 200 * 10


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_child_process_needs_a_consumer_of_its_own() -> None:
    with consumer_of() as consumer:
        child = os.fork()
        if not child:
            try:
                consumer.poll(0)
            except ForkedConsumerError:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


# On an event loop


def test_consumer_of_a_loop_names_the_one_for_threads() -> None:
    consumer = AsyncShareConsumer(bootstrap_servers="127.0.0.1:1", group_id="g")
    with pytest.raises(
        IllegalStateError, match=r"AsyncShareConsumer must be .* use ShareConsumer in threads"
    ):
        consumer.subscribe(["t"])
    with pytest.raises(InvalidGroupIdError):
        AsyncShareConsumer(bootstrap_servers="127.0.0.1:1")
    asyncio.run(consumer.close())


def test_second_task_is_refused_and_close_ends_a_poll_on_a_loop(run: Runner) -> None:
    async def program() -> None:
        async with AsyncShareConsumer(bootstrap_servers="127.0.0.1:1", group_id="g") as consumer:
            consumer.subscribe(["t"])
            first = asyncio.create_task(consumer.poll(), name="the first")
            while consumer._user.is_free:
                await asyncio.sleep(0)
            with pytest.raises(ConcurrentUseError, match="the first is using the consumer"):
                await consumer.poll(0)
            await consumer.close()
            with pytest.raises(ConsumerClosedError):
                await first
        with pytest.raises(ConsumerClosedError):
            await consumer.commit()

    run(program())


def test_consumer_that_its_loop_leaves_warns_and_ends(run: Runner) -> None:
    async def program() -> None:
        consumer = AsyncShareConsumer(bootstrap_servers="127.0.0.1:1", group_id="g")
        consumer.subscribe(["t"])
        kept.append(consumer)

    kept: list[AsyncShareConsumer] = []
    with pytest.warns(ResourceWarning, match="is still open at the end of its loop"):
        run(program())
    assert not kept[0].is_open


# Records


class Program:
    """A program that takes records, and an engine that only notes what is discarded."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.discarded: list[Acquired] = []
        engine = cast(ShareEngine, self)
        config = ConsumerConfig(bootstrap_servers="a:1", group_id="g")
        self.records = AcquiredRecords(
            engine, config, lambda: self.now_ns, wake=lambda: None, notify=lambda: False
        )

    def discard(self, acquired: Acquired, record_count: int = 0) -> None:
        self.discarded.append(acquired)

    def arrive(self, data: bytes, *ranges: tuple[int, int, int], until_ns: int = 1) -> None:
        share = FrameShare(Budget(1), 1, 1)
        self.records.arrivals([Acquired(PLACE, memoryview(data), ranges, until_ns, share)])

    def taken(self, most: int = 100) -> list[tuple[int, int]]:
        return [(each.offset, each.delivery_count) for each in self.records.take(most)]

    def collected(self) -> dict[int, int]:
        return self.records.collect().get(PLACE, {})

    def left(self) -> set[int]:
        """Take what no interrupted call has touched."""
        records = {offset for offset, _ in self.taken()}
        self.records.decide_all(AcknowledgeType.ACCEPT)
        return records | self.collected().keys()


def test_records_are_those_that_are_acquired_with_their_counts() -> None:
    program = Program()
    program.arrive(batch_of([3, 4, 5, 6, 7, 8]), (4, 5, 1), (7, 7, 3))
    assert program.taken(2) == [(4, 1), (5, 1)]
    assert program.taken() == [(7, 3)]
    assert len(program.discarded) == 1 and not program.records.has_next
    program.records.decide_all(AcknowledgeType.ACCEPT)
    assert program.collected() == {4: 1, 5: 1, 7: 1}
    assert program.collected() == {}


def test_acquired_offsets_without_a_record_are_gaps() -> None:
    program = Program()
    program.arrive(batch_of([2, 5]), (0, 3, 1), (4, 8, 2))
    assert program.taken() == [(2, 1), (5, 2)]
    program.records.decide_all(AcknowledgeType.ACCEPT)
    assert program.collected() == {0: GAP, 1: GAP, 2: 1, 3: GAP, 4: GAP, 5: 1, 6: GAP, 7: GAP, 8: GAP}


def test_records_whose_locks_have_ended_are_dropped() -> None:
    program = Program()
    program.arrive(batch_of([0, 1]), (0, 1, 1))
    assert program.taken(1) == [(0, 1)]
    program.arrive(batch_of([2]), (2, 2, 1), until_ns=10)
    program.now_ns = 5
    assert program.taken() == [(2, 1)] and len(program.discarded) == 2


def test_invalid_batch_is_rejected_after_the_records_before_it() -> None:
    program = Program()
    data = bytearray(batch_of([0, 1]))
    data[-1] ^= 1
    program.arrive(bytes(data), (0, 1, 1))
    assert program.taken() == [(0, 1)]
    with pytest.raises(CorruptRecordError):
        program.taken()
    program.records.decide_all(AcknowledgeType.ACCEPT)
    assert program.collected() == {0: 1, 1: AcknowledgeType.REJECT}
    assert program.taken() == []


def test_error_comes_after_the_records_before_it() -> None:
    program = Program()
    program.arrive(batch_of([0]), (0, 0, 1))
    program.records.arrivals([ShareFailed(TopicAuthorizationError("t"))])
    assert program.taken() == [(0, 1)]
    with pytest.raises(TopicAuthorizationError):
        program.taken()


def test_renewed_records_stay_open_until_another_acknowledgement() -> None:
    program = Program()
    program.arrive(batch_of([0]), (0, 0, 1))
    program.taken()
    for kind in (AcknowledgeType.RENEW, AcknowledgeType.RENEW, AcknowledgeType.REJECT):
        program.records.choose(PLACE.partition, 0, kind)
        assert program.records.undecided == []
        assert program.collected() == {0: kind}
    with pytest.raises(IllegalStateError):
        program.records.choose(PLACE.partition, 0, AcknowledgeType.ACCEPT)


@INTERRUPTED
def test_interrupted_take_releases_all_that_it_has_begun() -> None:
    interrupter = Interrupter("/kbatch/consumer/")
    while not interrupter.is_over:
        program = Program()
        program.arrive(batch_of([0, 1, 2, 4, 5]), (0, 5, 1))
        assert program.taken(2) == [(0, 1), (1, 1)]
        program.records.decide_all(AcknowledgeType.ACCEPT)
        assert program.collected() == {0: 1, 1: 1}
        program.records.note_poll()
        taken: list[tuple[int, int]] = []
        with interrupter.interrupting():
            taken = program.taken(2)
        if not taken:
            program.records.take_back()
            program.records.take_back()
            assert program.collected().keys() == {2, 3, 4, 5} or program.left() == {2, 3, 4, 5}
    assert interrupter.number > 20


@INTERRUPTED
def test_interrupted_close_ends_with_the_second() -> None:
    interrupter = Interrupter("/kbatch/consumer/")
    while not interrupter.is_over:
        consumer = consumer_of()
        with interrupter.interrupting():
            consumer.close(SECONDS)
        consumer.close(SECONDS)
        assert not consumer.is_open
    assert interrupter.number > 20
