"""Consumers in groups of the embedded and of a real broker: they share, leave, die and come back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import confluent_kafka
import pytest

import kbatch
from kbatch import OffsetAndMetadata, TopicPartition
from kbatch.errors import CommitFailedError, FencedInstanceIdError, UnreleasedInstanceIdError
from tests import ROOT
from tests.integration.test_broker_clients import new_topic
from tests.support.patience import HANG_MS, until
from tests.support.shells import new_consumer

PARTITIONS, COUNT = 4, 400
SLICE_SECONDS = 0.02
PROTOCOLS = ("consumer", "classic")
either = pytest.mark.parametrize("protocol", PROTOCOLS)
# Reads as a member, and says what it got before the next poll, which may commit it.
READER = """
import json, sys, kbatch
settings, topic = json.loads(sys.argv[1]), sys.argv[2]
with kbatch.Consumer(settings) as consumer:
    consumer.subscribe([topic])
    while True:
        for record in consumer.poll():
            print(record.partition, record.offset, flush=True)
"""


@pytest.fixture
def topic(target: str) -> str:
    name = new_topic(target, PARTITIONS)
    fill(target, name, 0, COUNT)
    return name


def fill(target: str, topic: str, start: int, end: int) -> None:
    with kbatch.Producer(bootstrap_servers=target) as producer:
        for number in range(start, end):
            producer.send(topic, b"%d" % number, partition=number % PARTITIONS)


def settings(target: str, topic: str, protocol: str = "consumer", **keys: Any) -> dict[str, Any]:
    own = {} if protocol == "consumer" else {"heartbeat.interval.ms": 200, "session.timeout.ms": 6000}
    return {
        "bootstrap.servers": target,
        "group.id": f"group-{topic}",
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "default.api.timeout.ms": HANG_MS,
        **own,
        **{name.replace("_", "."): value for name, value in keys.items()},
    }


def share(members: Iterable[Any], sizes: list[int], values: list[bytes]) -> None:
    """Poll until the members have as many partitions."""

    def is_shared() -> bool:
        for each in members:
            values.extend(bytes(record.value) for record in each.poll(SLICE_SECONDS))
        return sorted(len(each.assignment()) for each in members) == sizes

    until(is_shared)


def read(members: Iterable[Any], count: int, values: list[bytes]) -> None:
    """Poll until there are so many values."""

    def has_read() -> bool:
        for each in members:
            values.extend(bytes(record.value) for record in each.poll(SLICE_SECONDS))
        return len(values) >= count

    until(has_read)


def numbers(start: int, end: int) -> Counter[bytes]:
    return Counter(b"%d" % number for number in range(start, end))


@pytest.mark.slow
@either
def test_R52_R74_members_that_come_and_go_double_nothing(
    target: str, topic: str, shell: str, protocol: str
) -> None:
    keys, values = settings(target, topic, protocol), list[bytes]()
    with new_consumer(keys) as first, new_consumer(keys) as second, new_consumer(keys) as third:
        first.subscribe([topic])
        share([first], [4], values)
        second.subscribe([topic])
        share([first, second], [2, 2], values)
        third.subscribe(f"^{topic}")
        share([first, second, third], [1, 1, 2], values)
        fill(target, topic, COUNT, 2 * COUNT)
        first.unsubscribe()
        share([second, third], [2, 2], values)
        read([second, third], 2 * COUNT, values)
        second.close()
        share([third], [4], values)
        fill(target, topic, 2 * COUNT, 3 * COUNT)
        read([third], 3 * COUNT, values)
    assert Counter(values) == numbers(0, 3 * COUNT)


@pytest.mark.slow
def test_R74_a_killed_member_loses_nothing(target: str, topic: str) -> None:
    keys = settings(target, topic, "classic", max_poll_records=10, auto_commit_interval_ms=10)
    command = [sys.executable, "-c", READER, json.dumps(keys), topic]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    assert process.stdout is not None
    seen = [process.stdout.readline() for _ in range(COUNT // 2)]
    with kbatch.TopicReader(bootstrap_servers=target) as reader:
        until(lambda: reader.groups.offsets(keys["group.id"]))
        process.send_signal(signal.SIGKILL)
        seen += process.communicate()[0].splitlines(keepends=True)
        places = {tuple(map(int, line.split())) for line in seen if line.endswith("\n")}
        fill(target, topic, COUNT, 2 * COUNT)
        everything = {(partition, offset) for partition in range(PARTITIONS) for offset in range(COUNT // 2)}
        found: list[tuple[int, int]] = []
        with new_consumer(keys) as consumer:
            consumer.subscribe([topic])

            def has_all() -> bool:
                found.extend((each.partition, each.offset) for each in consumer.poll(SLICE_SECONDS))
                return places | set(found) >= everything

            until(has_all)
        assert len(found) == len(set(found)) < len(everything)  # it went on from a commit
        lags = [each.lag for each in reader.groups.offsets(keys["group.id"]).values()]
        assert lags == [0] * PARTITIONS


@either
def test_R56_R66_a_static_member_comes_back_to_its_partitions(target: str, topic: str, protocol: str) -> None:
    values: list[bytes] = []
    own = settings(target, topic, protocol, group_instance_id="one")
    with new_consumer(settings(target, topic, protocol)) as other:
        with new_consumer(own) as first:
            first.subscribe([topic])
            other.subscribe([topic])
            share([first, other], [2, 2], values)
            before = first.assignment()
        revoked: list[Any] = []
        with new_consumer(own) as again:
            again.subscribe([topic], on_revoked=revoked.append)
            share([again, other], [2, 2], values)
            assert again.assignment() == before and not revoked
            with (
                new_consumer(own) as rival,
                pytest.raises((UnreleasedInstanceIdError, FencedInstanceIdError)),
            ):
                rival.subscribe([topic])
                until(lambda: rival.poll(SLICE_SECONDS) is None or again.poll(SLICE_SECONDS) is None)
            with suppress(FencedInstanceIdError):
                again.close(leave=True)


def test_R75_others_read_what_is_committed(target: str, topic: str, shell: str) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with new_consumer(settings(target, topic, enable_auto_commit=False, max_poll_records=7)) as consumer:
        consumer.subscribe([topic])
        polled = consumer.poll()
        while not polled:
            polled = consumer.poll()
        (partition,) = polled.partitions()
        consumer.commit(polled)
        other = second if partition == first else first
        consumer.commit({other: OffsetAndMetadata(3, "three", 0)})
        done: list[Any] = []
        consumer.commit_async({TopicPartition(topic, 2): 1}, lambda at, error: done.append((at, error)))
        consumer.commit({TopicPartition(topic, 3): 2})
        assert done == [({TopicPartition(topic, 2): OffsetAndMetadata(1)}, None)]
        asked = [partition, other, TopicPartition(topic, 2), TopicPartition(topic, 3)]
        expected = [(7, ""), (3, "three"), (1, ""), (2, "")]
        found = consumer.committed(asked)
        assert [(found[each].offset, found[each].metadata) for each in asked] == expected
        assert found[partition].leader_epoch == 0
        with pytest.raises(CommitFailedError):
            consumer.commit({TopicPartition(topic, 9): 0})
    theirs = confluent_kafka.Consumer({"bootstrap.servers": target, "group.id": f"group-{topic}"})
    at = theirs.committed([confluent_kafka.TopicPartition(*each) for each in asked])
    theirs.close()
    assert [each.offset for each in at] == [offset for offset, _ in expected]


def test_R81_offsets_of_a_removed_member_abort_a_transaction(target: str, topic: str) -> None:
    keys = settings(target, topic, enable_auto_commit=False, max_poll_interval_ms=1500, max_poll_records=10)
    with (
        kbatch.Producer(bootstrap_servers=target, transactional_id=f"t-{topic}") as producer,
        new_consumer(keys) as consumer,
    ):
        producer.init_transactions()
        consumer.subscribe([topic])
        polled = consumer.poll()
        while not polled:
            polled = consumer.poll()
        producer.begin_transaction()
        producer.send_offsets_to_transaction(polled.offsets, consumer)
        producer.commit_transaction()
        assert consumer.committed(polled.offsets) == polled.offsets
        polled = consumer.poll()
        until(lambda: not consumer._engine.owned or consumer._engine.rebalance is not None)
        producer.begin_transaction()
        with pytest.raises(CommitFailedError) as refused:
            producer.send_offsets_to_transaction(polled.offsets, consumer)
            producer.commit_transaction()
        assert refused.value.abortable
        producer.abort_transaction()
