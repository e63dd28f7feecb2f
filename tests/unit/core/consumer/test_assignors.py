"""Assignors where they differ from Java's on purpose, and where their input is strange."""

from __future__ import annotations

from typing import Any

import pytest

from kbatch.config import ConsumerConfig
from kbatch.config.keys import keys_of
from kbatch.config.values import ASSIGNOR_CLASSES
from kbatch.core.consumer.assignors import ASSIGNORS, Assignment, LastAssignment, assignors_of
from kbatch.core.consumer.consumer_protocol import (
    MemberSubscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kbatch.core.consumer.java_order import hash_order, partition_hash, string_hash
from kbatch.errors import ConfigError, ProtocolError
from kbatch.records import TopicPartition

STICKY = ("sticky", "cooperative-sticky")


def parts(topic: str, *numbers: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, number) for number in numbers)


def assign(name: str, topics: dict[str, int], **members: MemberSubscription) -> Assignment:
    """Return the assignment of topics with these numbers of partitions."""
    racks = {topic: [frozenset[str]()] * count for topic, count in topics.items()}
    return ASSIGNORS[name].assign(racks, members)


def member(
    *topics: str, had: tuple[TopicPartition, ...] = (), generation: int = 1, name: str = "sticky"
) -> MemberSubscription:
    """Return a member that had these partitions before it joins."""
    user_data = ASSIGNORS[name].user_data(LastAssignment(had, generation))
    owned = had if ASSIGNORS[name].is_cooperative else ()
    return MemberSubscription(topics, user_data, owned, generation)


# Differences from Java


@pytest.mark.parametrize("name", STICKY)
def test_vanished_partitions_are_not_kept(name: str) -> None:
    had = parts("t", 5, 9)
    found = assign(
        name, {"t": 2, "u": 2}, m=member("t", "u", had=had, name=name), n=member("t", "u", name=name)
    )
    assert sorted(partition for each in found.values() for partition in each) == [
        *parts("t", 0, 1),
        *parts("u", 0, 1),
    ]


@pytest.mark.parametrize("name", STICKY)
def test_partition_does_not_return_to_member_that_left_topic(name: str) -> None:
    former = member("u", had=parts("t", 0, 1, 2, 3), generation=1, name=name)
    first = member("t", had=parts("t", 0, 1, 2, 3), generation=2, name=name)
    found = assign(name, {"t": 4, "u": 1}, a=former, b=first, c=member("t", "u", generation=2, name=name))
    assert {partition.topic for partition in found["a"]} <= {"u"}


@pytest.mark.parametrize("name", STICKY)
def test_member_without_topics_gets_nothing(name: str) -> None:
    for empty in "abcdefgh":
        others = {other: member("t", name=name) for other in "abcdefgh" if other != empty}
        found = assign(name, {"t": 20}, **{empty: MemberSubscription(())}, **others)
        assert found[empty] == []
        assert sum(map(len, found.values())) == 20


# Claims


def test_R63_zombies_claim_is_ignored() -> None:
    zombie = member("t", had=parts("t", 0, 1, 2, 3), generation=4, name="cooperative-sticky")
    a = member("t", had=parts("t", 0, 1), generation=5, name="cooperative-sticky")
    b = member("t", had=parts("t", 2, 3), generation=5, name="cooperative-sticky")
    found = assign("cooperative-sticky", {"t": 4}, zombie=zombie, a=a, b=b)
    # one of a and b has to give up one for the zombie, which gets it in the next rebalance
    assert found["zombie"] == []
    assert sorted([*found["a"], *found["b"]]) in [
        [*parts("t", *(number for number in range(4) if number != missing))] for missing in range(4)
    ]


def test_partition_claimed_twice_in_a_generation_leaves_both() -> None:
    a = member("t", had=parts("t", 0, 1), generation=5, name="cooperative-sticky")
    b = member("t", had=parts("t", 1), generation=5, name="cooperative-sticky")
    found = assign("cooperative-sticky", {"t": 2}, a=a, b=b)
    assert found == {"a": list(parts("t", 0)), "b": []}


# Bytes


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_subscription_of_each_version_is_read(version: int) -> None:
    bodies = [
        b"\0\0\0\1\0\1t" + b"\0\0\0\2hi",
        b"\0\0\0\1\0\1t\0\0\0\2\0\0\0\0\0\0\0\1",
        b"\0\0\0\7",
        b"\0\1r",
    ]
    data = version.to_bytes(2, "big") + b"".join(bodies[: version + 1])
    full = MemberSubscription(("t",), b"hi", parts("t", 0, 1), 7, "r")
    missing: dict[str, Any] = {
        name: default
        for since, name, default in ((1, "owned", ()), (2, "generation_id", -1), (3, "rack", None))
        if version < since
    }
    reduced = full._replace(**missing)
    assert decode_subscription(data) == reduced


def test_newer_version_is_read_as_the_newest_known() -> None:
    data = b"\0\x09" + encode_subscription(MemberSubscription(("t",)))[2:] + b"more"
    assert decode_subscription(data) == MemberSubscription(("t",))
    assert decode_assignment(b"\0\x09" + encode_assignment(parts("t", 1))[2:] + b"more") == parts("t", 1)


@pytest.mark.parametrize(
    "data", [b"", b"\0", b"\xff\xff", b"\0\1", b"\0\1\0\0\0\xff", b"\0\3\x7f\xff\xff\xff"]
)
def test_damaged_subscription_is_an_error(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="ConsumerProtocolSubscription"):
        decode_subscription(data)
    with pytest.raises(ProtocolError, match="ConsumerProtocolAssignment"):
        decode_assignment(data)


def test_hash_order_is_by_bucket_and_then_by_insertion() -> None:
    assert string_hash("polygenelubricants") == 0x8000_0000  # Integer.MIN_VALUE
    assert partition_hash(TopicPartition("t", 3)) == 31 * 34 + ord("t")
    # "q" and "a" are in bucket 1 of 16, "b" is in bucket 2
    assert hash_order(["b", "q", "a", "b"], string_hash) == ["q", "a", "b"]
    # of 32, "q" is in bucket 17
    assert hash_order(["b", "q", "a"], string_hash, 32) == ["a", "b", "q"]


# Configuration


def test_strategy_takes_names_and_java_classes_each_once() -> None:
    package = "org.apache.kafka.clients.consumer."
    given = ["sticky", f"{package}RangeAssignor", "CooperativeStickyAssignor", "range", "roundrobin"]
    assert [each.name for each in assignors_of(given)] == [
        "sticky",
        "range",
        "cooperative-sticky",
        "roundrobin",
    ]
    assert ASSIGNORS.keys() == ASSIGNOR_CLASSES.keys()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("range,stickyy", "range, roundrobin, sticky, cooperative-sticky"),
        ("", "one or more of"),
        ([lambda: None], "without objects or callables"),
        (object(), "without objects or callables"),
    ],
)
def test_other_strategies_are_refused(value: object, text: str) -> None:
    row = keys_of(ConsumerConfig)["partition.assignment.strategy"]
    with pytest.raises(ConfigError, match=text):
        row.read("partition.assignment.strategy", value)
