"""Partitioners: Java's and librdkafka's choices, a program's own, and the weights of loaded partitions."""

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from confluent_kafka import cimpl as librdkafka
from hypothesis import given, settings
from hypothesis import strategies as st

import kbatch
from kbatch.config import ProducerConfig
from kbatch.errors import ConfigError
from kbatch.partitioner import STICKY, HashPartitioner, Partitioner, partitioner_for

HASHING = ["consistent", "consistent_random", "murmur2", "murmur2_random", "fnv1a", "fnv1a_random"]
# librdkafka's tests/0048-partitioner.c: hashes of its keys, by algorithm; the empty key means no key too.
KEYS = [b"", b"23456", b"this is another string with more length to it perhaps", b"hejsan"]
HASHES = {
    "consistent": [0x0, 0xB1B451D7, 0xB0150DF7, 0xD077037E],
    "murmur2": [0x106E08D9, 0x058D780F, 0x4F7703DA, 0x5EC19395],
    "fnv1a": [0x7EE3623B, 0x27E6F469, 0x155E3E5F, 0x17B1E27A],
}
# Which of (no key, empty key) each leaves to chance, by default stickily.
LEFT_TO_CHANCE = {
    "consistent": (False, False),
    "consistent_random": (True, True),
    "murmur2": (False, False),
    "murmur2_random": (True, False),
    "fnv1a": (False, False),
    "fnv1a_random": (True, False),
}
# librdkafka's rdfnv1a.c, where the sign of the 32-bit hash matters.
FNV1A = {
    b"kafka": 0xD33C4E1,
    b"giberish123456789": 0x77A58295,
    b"1234": 0x23BDD03,
    b"234": 0x2DEA3CD2,
    b"34": 0x740FA83E,
    b"4": 0x310CA263,
    b"PreAmbleWillBeRemoved,ThePrePartThatIs": 0x65CBD69C,
    b"": 0x7EE3623B,
}
ALL = tuple(range(17))


def partitioner(given_class: object = None, *, seed: int = 1, **keywords: object) -> Partitioner:
    config = ProducerConfig(bootstrap_servers="a:1", partitioner_class=given_class, **keywords)
    return partitioner_for(config, Random(seed))


def choose(chosen_by: Partitioner, key: bytes | None, available: Sequence[int] = ALL) -> int:
    return chosen_by.partition("topic", key, b"value", len(ALL), available)


# Java's


@pytest.mark.parametrize("partition_count", [1, 3, 17])
def test_keys_go_by_javas_murmur2_over_all_partitions(partition_count: int) -> None:
    javas = partitioner()
    for key in (b"", b"21", b"foobar", bytearray(b"abc"), memoryview(b"a-little-bit-long-string")):
        for available in ((), (0,), range(partition_count)):
            chosen = javas.partition("t", key, None, partition_count, available)
            assert chosen == kbatch.partition_for_key(key, partition_count)


def test_P05_only_records_without_a_key_are_sticky() -> None:
    assert partitioner().sticky
    assert choose(partitioner(), None) == STICKY
    assert choose(partitioner(), b"") != STICKY


def test_P05_the_number_of_partitions_is_that_of_the_call() -> None:
    chosen = {count: partitioner().partition("t", b"foobar", None, count, ()) for count in range(1, 50)}
    assert chosen == {count: (-790332482 & 0x7FFFFFFF) % count for count in range(1, 50)}


def test_keys_can_be_ignored() -> None:
    ignoring = partitioner(partitioner_ignore_keys=True)
    assert ignoring.sticky
    assert {choose(ignoring, key) for key in (None, b"", b"key")} == {STICKY}
    # as in Java, that key is for the built-in partitioner alone
    assert choose(partitioner("murmur2", partitioner_ignore_keys=True), b"key") != STICKY


def test_native_code_knows_where_it_can_choose_itself() -> None:
    noted = {name: partitioner(name) for name in (None, *HASHING)}
    assert {name for name, by in noted.items() if isinstance(by, HashPartitioner) and by.is_javas} == {
        None,
        "murmur2_random",
    }


# librdkafka's


@pytest.mark.parametrize("name", HASHING)
@pytest.mark.parametrize("partition_count", [1, 7, 17])
def test_the_vectors_of_librdkafkas_test_0048(name: str, partition_count: int) -> None:
    by = partitioner(name)
    no_key_by_chance, empty_by_chance = LEFT_TO_CHANCE[name]
    expected = [hashed % partition_count for hashed in HASHES[name.removesuffix("_random")]]
    chosen = [by.partition("t", key, None, partition_count, ()) for key in (None, *KEYS)]
    assert chosen[0] == (STICKY if no_key_by_chance else expected[0])
    assert chosen[1] == (STICKY if empty_by_chance else expected[0])
    assert chosen[2:] == expected[1:]
    assert by.sticky is (no_key_by_chance or empty_by_chance)
    assert by.name == name


@pytest.mark.parametrize(("key", "hashed"), FNV1A.items())
def test_the_vectors_of_librdkafkas_fnv1a(key: bytes, hashed: int) -> None:
    assert partitioner("fnv1a").partition("t", key, None, 2**31, ()) == hashed


@settings(deadline=None)
@given(key=st.binary(max_size=40), partition_count=st.integers(1, 2**31 - 1))
def test_librdkafka_agrees(key: bytes, partition_count: int) -> None:
    theirs = {
        "murmur2": librdkafka.murmur2,
        "consistent": librdkafka.consistent,
        "fnv1a": librdkafka.fnv1a,
    }
    for name, judge in theirs.items():
        chosen = partitioner(name).partition("t", key, None, partition_count, ())
        assert chosen == judge(key, partition_count), name


@settings(deadline=None)
@given(key=st.binary(max_size=40))
def test_any_buffer_is_hashed_as_its_bytes(key: bytes) -> None:
    for name in HASHING:
        by = partitioner(name)
        buffers: list[Any] = [bytearray(key), memoryview(key)]
        assert {choose(by, buffer) for buffer in buffers} == {choose(by, key)}


# Random and in turn


@pytest.mark.parametrize("name", ["random", "round_robin"])
def test_partitions_without_a_leader_are_taken_only_if_all_are(name: str) -> None:
    by = partitioner(name)
    assert not by.sticky
    assert {choose(by, b"key", (2, 5, 11)) for _ in range(200)} == {2, 5, 11}
    assert {choose(by, None, ()) for _ in range(2000)} == set(ALL)


def test_random_partitions_come_from_the_given_source() -> None:
    draws = [[choose(partitioner("random", seed=seed), None) for _ in range(3)] for seed in range(40)]
    assert draws == [[choose(partitioner("random", seed=seed), None) for _ in range(3)] for seed in range(40)]
    by = partitioner("random", seed=7)
    counts = Counter(choose(by, b"the same key") for _ in range(17_000))
    assert all(800 < counts[partition] < 1200 for partition in ALL)


@pytest.mark.parametrize("name", ["round_robin", "org.apache.kafka.clients.producer.RoundRobinPartitioner"])
def test_round_robin_counts_for_each_topic(name: str) -> None:
    by = partitioner(name)
    turns = [by.partition(topic, b"k", b"v", 3, (0, 1, 2)) for topic in "aabab"]
    assert turns == [0, 1, 0, 2, 1]
    assert by.partition("a", None, None, 3, (0, 2)) == 2
    assert partitioner(name).partition("a", None, None, 3, (0, 1, 2)) == 0


# A program's own


def test_callable_partitioner_gets_all_arguments() -> None:
    asked = []

    def by_length(topic: str, key: Any, value: Any, partition_count: int, available: Sequence[int]) -> int:
        asked.append((topic, key, value, partition_count, available))
        return len(value) % partition_count

    assert partitioner(by_length).partition("t", b"k", b"12345", 4, (1, 2)) == 1
    assert asked == [("t", b"k", b"12345", 4, (1, 2))]
    assert "by_length" in partitioner(by_length).name


def test_a_callable_may_leave_a_record_to_the_sticky_state() -> None:
    assert partitioner(lambda *_: None).sticky
    assert choose(partitioner(lambda *_: None), b"key") == STICKY


class Index:
    def __index__(self) -> int:
        return 3


@pytest.mark.parametrize(("returned", "chosen"), [(0, 0), (16, 16), (Index(), 3)])
def test_a_callable_may_return_any_integer(returned: object, chosen: int) -> None:
    assert choose(partitioner(lambda *_: returned), None) == chosen
    assert type(choose(partitioner(lambda *_: returned), None)) is int


@pytest.mark.parametrize("returned", [-1, 17, 2**40])
def test_partition_out_of_range_names_function_and_topic(returned: int) -> None:
    def mine(*_: object) -> int:
        return returned

    expected = rf"mine must return 0 to 16 for topic topic, got {returned}$"
    with pytest.raises(ValueError, match=expected):
        choose(partitioner(mine), None)


@pytest.mark.parametrize("returned", ["1", 1.0, True, b"1"])
def test_what_is_no_partition_is_a_type_error(returned: object) -> None:
    kind = type(returned).__name__
    with pytest.raises(TypeError, match=f"must return an int or None, got {kind}"):
        choose(partitioner(lambda *_: returned), None)


def test_what_a_callable_raises_comes_through() -> None:
    def broken(*_: object) -> int:
        raise LookupError("no such customer")

    with pytest.raises(LookupError, match="no such customer"):
        choose(partitioner(broken), b"k")


@pytest.mark.parametrize("given_class", ["murmur3", "org.example.Partitioner", 5])
def test_an_unknown_name_lists_the_names(given_class: object) -> None:
    with pytest.raises(ConfigError, match=r"partitioner\.class must be a callable, or one of consistent,"):
        partitioner(given_class)
