"""TopicConfig: Kafka's keys, and those that the broker obeys."""

import pytest

from kbatch.testing.broker.logs.topic_config import TOPIC_CONFIGS, TopicConfig


def test_defaults_are_kafkas() -> None:
    config = TopicConfig()
    assert config.overrides == {}
    assert config.max_message_bytes == 1048588
    assert config.segment_bytes == 1 << 30
    assert config.retention_ms == 7 * 86_400_000
    assert (config.is_deleted, config.is_compacted, config.is_log_append_time) == (True, False, False)
    assert config.message_timestamp_before_max_ms == 2**63 - 1
    assert config.compression_levels == {"gzip": -1, "lz4": 9, "zstd": 3}


def test_overrides_are_kept_as_text_and_applied() -> None:
    given = {"cleanup.policy": "compact, delete", "max.message.bytes": "7", "compression.gzip.level": "9"}
    config = TopicConfig(given | {"flush.ms": "5"})
    assert config.overrides == given | {"flush.ms": "5"}
    assert (config.is_deleted, config.is_compacted) == (True, True)
    assert config.max_message_bytes == 7
    assert config.compression_levels["gzip"] == 9


def test_items_are_all_keys_that_have_a_value() -> None:
    described = dict(TopicConfig({"retention.ms": "5"}).items())
    assert set(described) == set(TOPIC_CONFIGS) - {"internal.segment.bytes"}
    assert described["retention.ms"] == "5"
    assert described["min.insync.replicas"] == "1"
    assert list(described) == sorted(described)


def test_segments_may_be_small_by_kafkas_own_key_for_tests() -> None:
    assert TopicConfig({"internal.segment.bytes": "100"}).segment_bytes == 100


def test_empty_cleanup_policy_neither_deletes_nor_compacts() -> None:
    config = TopicConfig({"cleanup.policy": ""})
    assert (config.is_deleted, config.is_compacted) == (False, False)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("no.such.key", "1"),
        ("retention.ms", "soon"),
        ("retention.ms", "-2"),
        ("retention.ms", ""),
        ("segment.bytes", str((1 << 20) - 1)),
        ("segment.bytes", str(1 << 31)),
        ("cleanup.policy", "archive"),
        ("cleanup.policy", "delete,"),
        ("compression.type", "brotli"),
        ("compression.gzip.level", "0"),
        ("compression.zstd.level", "23"),
        ("message.timestamp.type", "createtime"),
        ("preallocate", "yes"),
        ("min.cleanable.dirty.ratio", "1.5"),
    ],
)
def test_what_kafka_refuses_is_named(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=name):
        TopicConfig({name: value})


def test_null_is_no_value() -> None:
    with pytest.raises(ValueError, match=r"retention\.ms: null"):
        TopicConfig.of({"retention.ms": None})
    assert TopicConfig.of({"retention.ms": "5"}).retention_ms == 5
