"""The small values beside Record."""

import dataclasses
import pickle
import struct
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer

import kbatch
from kbatch.records import ConsumerGroupMetadata, OffsetAndMetadata, ProducerRecord, Record, TopicPartition


def test_topic_partition_is_hashable_and_prints_as_in_kafka() -> None:
    partition = TopicPartition("my-topic", 3)
    assert {partition: 1}[TopicPartition(topic="my-topic", partition=3)] == 1
    assert str(partition) == f"{partition}" == "my-topic-3"
    topic, number = partition
    assert (topic, number) == ("my-topic", 3)


def test_offsets_have_defaults_and_are_not_negative() -> None:
    assert OffsetAndMetadata(5) == OffsetAndMetadata(5, "", -1)
    assert OffsetAndMetadata(0).offset == 0
    with pytest.raises(ValueError, match="offset must be 0 to 9223372036854775807, got -1"):
        OffsetAndMetadata(-1)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: OffsetAndMetadata("5"), "offset"),  # type: ignore[arg-type]
        (lambda: OffsetAndMetadata(5.5), "offset"),  # type: ignore[arg-type]
        (lambda: OffsetAndMetadata(2**63), "offset"),
        (lambda: OffsetAndMetadata(5, b"m"), "metadata"),  # type: ignore[arg-type]
        (lambda: OffsetAndMetadata(5, "m" * 40_000), "metadata"),
        (lambda: OffsetAndMetadata(5, "", "1"), "leader_epoch"),  # type: ignore[arg-type]
        (lambda: ConsumerGroupMetadata(5), "group_id"),  # type: ignore[arg-type]
        (lambda: ConsumerGroupMetadata("\ud800"), "group_id"),
        (lambda: ConsumerGroupMetadata("g", "1", "m"), "generation_id"),  # type: ignore[arg-type]
        (lambda: ConsumerGroupMetadata("g", 2**31, "m"), "generation_id"),
        (lambda: ConsumerGroupMetadata("g", -1, None), "member_id"),  # type: ignore[arg-type]
        (lambda: ConsumerGroupMetadata("g", 1, "m", 5), "group_instance_id"),  # type: ignore[arg-type]
    ],
)
def test_T22_what_no_request_can_say_is_refused(make: Callable[[], object], name: str) -> None:
    with pytest.raises((TypeError, ValueError), match=rf"^{name} must be"):
        make()


def test_T22_a_generation_needs_a_member() -> None:
    assert ConsumerGroupMetadata("g").member_id == ""
    assert ConsumerGroupMetadata("g", 3, "m", "i").group_instance_id == "i"
    with pytest.raises(ValueError, match="member_id must be set with generation_id=1"):
        ConsumerGroupMetadata("g", 1)


@pytest.mark.parametrize("instance", [None, "", "i", "ü"])
def test_T22_membership_as_librdkafka_reports_it(instance: str | None) -> None:
    settings = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}
    if instance:
        settings["group.instance.id"] = instance
    consumer = Consumer(settings)
    data = consumer.consumer_group_metadata()
    consumer.close()
    outside = ConsumerGroupMetadata.from_librdkafka(data)
    assert outside == ConsumerGroupMetadata("g", -1, "", instance or None)
    member = data.replace(b"\xff\xff\xff\xff", struct.pack("=i", 7)).replace(b"g\0", b"g\0m")
    assert ConsumerGroupMetadata.from_librdkafka(member) == ConsumerGroupMetadata(
        "g", 7, "m", instance or None
    )


@pytest.mark.parametrize(
    "data", [b"", b"g", b"CGMDv1:\0\0\0\0g\0\0\1", b"CGMDv2:\0\0\0\0g\0\0", b"CGMDv2:\0"]
)
def test_T22_what_is_no_membership_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"consumer_group_metadata\(\)"):
        ConsumerGroupMetadata.from_librdkafka(data)


def test_a_producer_record_is_replaced_not_changed() -> None:
    record = ProducerRecord("t", b"v", b"k")
    assert record._replace(headers=[("trace", b"1")]) == ("t", b"v", b"k", [("trace", b"1")], None, None)
    assert record.headers == ()


@pytest.mark.parametrize(
    "value", [TopicPartition("t", 0), OffsetAndMetadata(1, "m"), ConsumerGroupMetadata("g")]
)
def test_values_can_be_hashed_and_sent(value: object) -> None:
    assert pickle.loads(pickle.dumps(value)) == value
    assert hash(value) == hash(pickle.loads(pickle.dumps(value)))


def test_values_do_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        OffsetAndMetadata(1).offset = 2  # type: ignore[misc]


def test_the_record_is_the_native_one() -> None:
    assert Record is kbatch.Record
