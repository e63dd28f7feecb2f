"""The configuration of a client that reads: Kafka's table, and the keys of its own."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kbatch.config import CONSUMER_KEYS, KEYS, ConsumerConfig
from kbatch.config.keys import CONSUMER_OTHER_DEFAULTS
from kbatch.config.values import REQUIRED, duration_of
from kbatch.errors import ConfigError
from tests.oracle.java_config import NO_DEFAULT, ProducerFacts, producer_facts

SERVER = "localhost:9092"
OURS = {name for name, row in CONSUMER_KEYS.items() if row.origin != "Kafka"}
# Java has it for tests of upgrades from before KIP-447.
INTERNAL = "internal.throw.on.fetch.stable.offset.unsupported"


@pytest.fixture(scope="module")
def java() -> ProducerFacts:
    return producer_facts()


def config(**keywords: object) -> ConsumerConfig:
    return ConsumerConfig({"bootstrap.servers": SERVER}, **keywords)


@pytest.mark.java
def test_the_table_is_javas(java: ProducerFacts) -> None:
    theirs = java.keys("consumer")
    del theirs[INTERNAL]
    assert CONSUMER_KEYS.keys() - OURS == theirs.keys()
    for name, row in theirs.items():
        ours = CONSUMER_KEYS[name]
        assert (ours.type.name, ours.importance) == (row.type, row.importance), name
        if name in CONSUMER_OTHER_DEFAULTS or name == "bootstrap.servers":
            continue
        initial = ours.initial
        default: object = list(initial) if ours.type.name == "list" and initial is not None else initial
        assert default == row.default, name


@pytest.mark.java
def test_defaults_that_are_not_javas_are_named(java: ProducerFacts) -> None:
    theirs = java.keys("consumer")
    for name, other in CONSUMER_OTHER_DEFAULTS.items():
        default = theirs[name].default
        shown = ",".join(default) if CONSUMER_KEYS[name].type.name == "list" else default
        assert CONSUMER_KEYS[name].initial != default
        assert other.javas == (None if shown == NO_DEFAULT else shown), name


def test_keys_of_connections_are_those_of_a_producer() -> None:
    shared = CONSUMER_KEYS.keys() & KEYS.keys()
    different = {name for name in shared if CONSUMER_KEYS[name] != KEYS[name]}
    assert different == {"client.id", "interceptor.classes", "receive.buffer.bytes"}
    assert CONSUMER_KEYS["bootstrap.servers"].default is REQUIRED


def test_client_id_has_a_number() -> None:
    assert ConsumerConfig({"bootstrap.servers": SERVER}, 7).client_id == "kbatch-consumer-7"


def test_names_of_other_clients_are_read() -> None:
    made = config(fetch_wait_max_ms=200, fetch_message_max_bytes=5000, queued_max_messages_kbytes=4096)
    assert made.fetch_max_wait_ms == 200
    assert made.max_partition_fetch_bytes == 5000
    assert made.kbatch_fetch_buffer_memory == 4 << 20


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("fetch_max_wait_ms", 30_000, r"must be below request\.timeout\.ms=30000; lower the one or raise"),
        ("isolation_level", "serializable", "must be one of read_committed, read_uncommitted"),
        ("auto_offset_reset", "first", "must be earliest, latest, none, or by_duration: with a duration"),
        ("auto_offset_reset", "by_duration:P", "must be earliest"),
        ("auto_offset_reset", "by_duration:-PT1H", "must be earliest"),
        ("auto_offset_reset", "by_duration:P99999999999D", "must be earliest"),
        ("kbatch_fetch_buffer_memory", 1000, "must be at least 1048576"),
        ("kbatch_decode_threads", -1, "must be 0 to 64"),
        ("group_id", "", "must be 1 to 32000 bytes"),
        ("group_protocol", "share", "must be one of auto, classic, consumer"),
        ("heartbeat_interval_ms", 45_000, r"must be below session\.timeout\.ms=45000; a third of it"),
        ("enable_auto_commit", True, r"enable\.auto\.commit=true needs group\.id"),
        ("share_acquire_mode", "most", "must be one of BATCH_OPTIMIZED, RECORD_LIMIT"),
        ("enable_partition_eof", "true", "is not a key of kbatch: pass an end"),
        ("linger_ms", 5, "is a configuration key of a producer, not of a consumer"),
    ],
)
def test_invalid_value_is_refused(key: str, value: object, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        config(**{key: value})


def test_nothing_is_committed_without_a_group() -> None:
    assert not config().enable_auto_commit
    assert config(group_id="g").enable_auto_commit


@pytest.mark.parametrize(
    ("settings", "chosen"),
    [
        ({}, "auto"),
        ({"session_timeout_ms": 6000}, "classic"),
        ({"partition_assignment_strategy": "range"}, "classic"),
        ({"group_remote_assignor": "range"}, "consumer"),
        ({"group_protocol": "Consumer"}, "consumer"),
    ],
)
def test_R61_key_of_one_protocol_chooses_it(settings: dict[str, object], chosen: str) -> None:
    assert config(**settings).group_protocol == chosen


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (
            {"session_timeout_ms": 6000, "group_remote_assignor": "range"},
            r"session\.timeout\.ms must not be set with group\.remote\.assignor: no protocol",
        ),
        (
            {"heartbeat_interval_ms": 500, "group_protocol": "consumer"},
            r"heartbeat\.interval\.ms must not be set with group\.protocol=consumer; omit it",
        ),
        (
            {"group_remote_assignor": "range", "group_protocol": "classic"},
            r"must not be set with group\.protocol=classic",
        ),
    ],
)
def test_keys_of_the_other_protocol_are_refused(settings: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        config(**settings)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("by_duration:P2D", timedelta(days=2)),
        ("by_duration:pt1h30m", timedelta(minutes=90)),
        ("by_duration:PT0.25S", timedelta(milliseconds=250)),
        ("by_duration:P1DT", None),
        ("by_duration:1H", None),
        ("PT1H", None),
    ],
)
def test_duration_is_read_as_java_reads_it(text: str, expected: timedelta | None) -> None:
    assert duration_of(text) == expected
