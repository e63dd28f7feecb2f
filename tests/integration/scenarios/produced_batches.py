"""Produced batches and a broker's response to each: one Produce request to a new topic, and its log."""

import struct
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from kbatch.protocol import messages
from tests.integration.scenarios.requests import (
    READ_COMMITTED,
    TIME_MS,
    ProducerId,
    batch,
    fetch,
    log,
    produce,
    produce_request,
    with_field,
)
from tests.integration.scenarios.wire import Wire, named_scenario, scenario, unknown_topic_id
from tests.oracle import plain

# Positions in the header: see plain.HEADER.
LENGTH, MAGIC, CRC, ATTRIBUTES = 8, 16, 17, 21
LAST_OFFSET_DELTA, MAX_TIMESTAMP, COUNT = 23, 35, 57
GOOD = batch(b"a", b"b", b"c")
LEGACY_MAGIC_0 = struct.pack(">qiIbbii", 0, 14 + 1, 0, 0, 0, -1, 1) + b"x"
HOUR_MS = 3_600_000


def _int16(value: int) -> bytes:
    return struct.pack(">h", value)


def _int32(value: int) -> bytes:
    return struct.pack(">i", value)


def _int64(value: int) -> bytes:
    return struct.pack(">q", value)


def _at(timestamps_ms: list[int], **parameters: Any) -> bytes:
    return plain.encode([(b"k", b"v", (), timestamp) for timestamp in timestamps_ms], **parameters)


def _now_plus(delta_ms: int) -> int:
    return int(time.time() * 1000) + delta_ms


def _keys(keys: list[bytes | None]) -> bytes:
    return plain.encode([(key, b"v", (), TIME_MS) for key in keys])


def _records(body: bytes, count: int) -> bytes:
    """Return a batch whose records are `body`, whatever that is."""
    data = batch(*[b"x"] * count)[: plain.HEADER_BYTES] + body
    return with_field(data, LENGTH, _int32(len(data) - plain.LOG_OVERHEAD))


def _record(value: bytes, offset_delta: int) -> bytes:
    return plain.encode_record((None, value, (), TIME_MS), offset_delta, TIME_MS)


def _of_size(size: int) -> bytes:
    # Two records, so that neither is as long as where a varint grows.
    overhead = len(batch(b"x" * 1000, b"x" * (size - 1000))) - size
    data = batch(b"x" * 1000, b"x" * (size - 1000 - overhead))
    assert len(data) == size
    return data


def _compressed(codec: str) -> bytes:
    return batch(b"a" * 100, b"b" * 100, compression=codec)


def _corrupt(codec: str) -> bytes:
    data = _compressed(codec)
    return plain.with_crc(data[:65] + b"\xff" * (len(data) - 65))


def _garbage_after() -> bytes:
    """Add bytes after the last record, inside the compressed stream."""
    body = plain.compress(_record(b"a", 0) + b"garbage", "gzip")
    return with_field(_records(body, 1), ATTRIBUTES, _int16(1))


def _compressed_with_gap() -> bytes:
    body = plain.compress(_record(b"a", 0) + _record(b"b", 5), "gzip")
    return with_field(_records(body, 2), ATTRIBUTES, _int16(1))


class Case(NamedTuple):
    records: Callable[[], bytes | None]
    version: int = 12
    acks: int = -1
    configs: Mapping[str, Any] = MappingProxyType({})


PRODUCER = ProducerId(987_654_321, 0)
CASES: dict[str, Case] = {
    "good": Case(lambda: GOOD),
    "good_acks_1": Case(lambda: GOOD, acks=1),
    "good_v3": Case(lambda: GOOD, version=3),
    "good_v13": Case(lambda: GOOD, version=13),
    "acks_2": Case(lambda: GOOD, acks=2),
    "acks_minus_2": Case(lambda: GOOD, acks=-2),
    # Without one whole batch of magic 2
    "empty_records": Case(lambda: b""),
    "truncated_in_header": Case(lambda: GOOD[:40]),
    "truncated_in_records": Case(lambda: GOOD[:-1]),
    "trailing_bytes": Case(lambda: GOOD + GOOD[:20]),
    "two_batches": Case(lambda: GOOD + GOOD),
    "length_below_minimum": Case(lambda: GOOD[:LENGTH] + _int32(13) + GOOD[12:]),
    "length_below_header": Case(lambda: GOOD[:LENGTH] + _int32(30) + GOOD[12:42]),
    "length_negative": Case(lambda: GOOD[:LENGTH] + _int32(-1) + GOOD[12:]),
    "magic_0": Case(lambda: LEGACY_MAGIC_0),
    "magic_1": Case(lambda: GOOD[:MAGIC] + b"\1" + GOOD[MAGIC + 1 :]),
    "magic_3": Case(lambda: GOOD[:MAGIC] + b"\3" + GOOD[MAGIC + 1 :]),
    # Headers
    "crc_wrong": Case(lambda: GOOD[:CRC] + b"\0\0\0\0" + GOOD[CRC + 4 :]),
    "base_offset_not_0": Case(lambda: _int64(7) + GOOD[8:]),
    "count_above_last_offset_delta": Case(lambda: with_field(GOOD, COUNT, _int32(4))),
    "count_below_last_offset_delta": Case(lambda: with_field(GOOD, COUNT, _int32(2))),
    "count_0": Case(lambda: with_field(GOOD, COUNT, _int32(0))),
    "count_negative": Case(lambda: with_field(GOOD, COUNT, _int32(-1))),
    "last_offset_delta_negative": Case(lambda: with_field(GOOD, LAST_OFFSET_DELTA, _int32(-1))),
    "no_records": Case(lambda: with_field(_records(b"", 0), LAST_OFFSET_DELTA, _int32(-1))),
    "control": Case(lambda: batch(b"a", control=True)),
    "sequence_negative": Case(lambda: batch(b"a", producer=PRODUCER, sequence=-1)),
    "sequence_without_producer": Case(lambda: batch(b"a", sequence=5)),
    "producer_epoch_negative": Case(lambda: batch(b"a", producer=ProducerId(987_654_321, -1), sequence=0)),
    "transactional_without_producer": Case(lambda: batch(b"a", transactional=True)),
    "codec_5": Case(lambda: with_field(GOOD, ATTRIBUTES, _int16(5))),
    "codec_7": Case(lambda: with_field(GOOD, ATTRIBUTES, _int16(7))),
    "unused_attribute_bits": Case(lambda: with_field(GOOD, ATTRIBUTES, _int16(1 << 9))),
    "delete_horizon_bit": Case(lambda: batch(b"a", delete_horizon_ms=TIME_MS)),
    "leader_epoch_of_the_producer": Case(lambda: batch(b"a", partition_leader_epoch=77)),
    "maximum_timestamp_wrong": Case(lambda: with_field(GOOD, MAX_TIMESTAMP, _int64(5))),
    # Sizes
    "as_large_as_allowed": Case(lambda: _of_size(5000), configs={"max_message_bytes": 5000}),
    "larger_than_allowed": Case(lambda: _of_size(5001), configs={"max_message_bytes": 5000}),
    "larger_than_a_segment": Case(
        lambda: _of_size(1_048_700), configs={"max_message_bytes": 3_000_000, "segment_bytes": 1_048_576}
    ),
    # Records
    "records_fewer_than_count": Case(lambda: _records(_record(b"a", 0), 2)),
    "records_more_than_count": Case(lambda: _records(_record(b"a", 0) + _record(b"b", 1), 1)),
    "record_longer_than_batch": Case(lambda: _records(_record(b"abc", 0)[:-1], 1)),
    "record_with_bytes_left": Case(lambda: _records(b"\x10" + _record(b"", 0)[1:] + b"\0", 1)),
    "record_of_negative_length": Case(lambda: _records(b"\1" + _record(b"a", 0)[1:], 1)),
    "record_value_longer_than_record": Case(
        lambda: _records(_record(b"a", 0)[:5] + b"\x7e" + _record(b"a", 0)[6:], 1)
    ),
    "offset_deltas_out_of_order": Case(lambda: _records(_record(b"a", 1) + _record(b"b", 0), 2)),
    "offset_deltas_with_gap": Case(lambda: _records(_record(b"a", 0) + _record(b"b", 5), 2)),
    "null_value": Case(lambda: plain.encode([(b"k", None, (), TIME_MS)])),
    "headers": Case(lambda: plain.encode([(b"k", b"v", (("h", b"x"), ("h", None)), TIME_MS)])),
    # Compression
    **{f"compressed_{codec}": Case(partial(_compressed, codec)) for codec in plain.CODECS[1:]},
    **{f"corrupt_{codec}": Case(partial(_corrupt, codec)) for codec in plain.CODECS[1:]},
    "compressed_garbage_after": Case(_garbage_after),
    "zstd_in_v6": Case(lambda: _compressed("zstd"), version=6),
    "compressed_offset_deltas_with_gap": Case(_compressed_with_gap),
    "topic_compresses": Case(lambda: GOOD, configs={"compression_type": "gzip"}),
    "topic_compresses_with_another_codec": Case(
        lambda: _compressed("lz4"), configs={"compression_type": "zstd"}
    ),
    "topic_uncompresses": Case(lambda: _compressed("gzip"), configs={"compression_type": "uncompressed"}),
    # Keys
    "compacted_topic_null_key": Case(
        lambda: _keys([b"k", None, b"k", None]), configs={"cleanup_policy": "compact"}
    ),
    "compacted_topic_keys": Case(lambda: _keys([b"k", b"", b"k"]), configs={"cleanup_policy": "compact"}),
    # Timestamps
    "timestamp_minus_1": Case(lambda: _at([-1])),
    "timestamp_in_half_an_hour": Case(lambda: _at([TIME_MS, _now_plus(HOUR_MS // 2)])),
    "timestamp_in_two_hours": Case(lambda: _at([TIME_MS, _now_plus(2 * HOUR_MS), _now_plus(3 * HOUR_MS)])),
    "timestamp_of_yesterday_refused": Case(
        lambda: _at([_now_plus(0), _now_plus(-24 * HOUR_MS)]),
        configs={"message_timestamp_before_max_ms": HOUR_MS},
    ),
    "record_without_key_and_another_with_timestamp_in_two_hours": Case(
        lambda: plain.encode([(None, b"v", (), TIME_MS), (b"k", b"v", (), _now_plus(2 * HOUR_MS))]),
        configs={"cleanup_policy": "compact"},
    ),
    "log_append_time_bit": Case(lambda: _at([TIME_MS], log_append_time_ms=TIME_MS)),
    "log_append_time_topic": Case(lambda: GOOD, configs={"message_timestamp_type": "LogAppendTime"}),
    "log_append_time_topic_compressed": Case(
        lambda: _compressed("gzip"), configs={"message_timestamp_type": "LogAppendTime"}
    ),
    "log_append_time_topic_timestamp_in_two_hours": Case(
        lambda: _at([_now_plus(2 * HOUR_MS)]), configs={"message_timestamp_type": "LogAppendTime"}
    ),
    # Replicas
    "min_insync_above_replication_factor": Case(lambda: GOOD, configs={"min_insync_replicas": 2}),
    "min_insync_above_replication_factor_acks_1": Case(
        lambda: GOOD, acks=1, configs={"min_insync_replicas": 2}
    ),
}


def _run(wire: Wire, case: Case) -> None:
    topic = wire.topic(**case.configs)
    produce(wire, topic, case.records(), version=case.version, acks=case.acks)
    log(wire, topic)


for _name, _case in CASES.items():
    named_scenario(f"produce_{_name}", partial(_run, case=_case))


# Requests


@scenario
def produce_acks_0_is_not_answered(wire: Wire) -> None:
    topic = wire.topic()
    request = produce_request(wire, {(topic, 0): GOOD}, acks=0)
    wire.send(request, 12)
    wire.expect_no_answer()
    produce(wire, topic, GOOD, note="the next request's answer is the next")
    log(wire, topic)


@scenario
def produce_acks_0_with_an_error_closes_the_connection(wire: Wire) -> None:
    wire.send(produce_request(wire, {("unknown", 0): GOOD}, acks=0), 12)
    wire.note("closed", wire.is_closed)


@scenario
def produce_to_unknown_topics_and_partitions(wire: Wire) -> None:
    topic = wire.topic()
    wire.forge_topic_id("unknown", unknown_topic_id())
    for version in (3, 9, 12, 13):
        produce(wire, "unknown", GOOD, version=version)
        produce(wire, topic, GOOD, version=version, partition=1)
        produce(wire, topic, GOOD, version=version, partition=-1)
    wire.forge_topic_id("zero", bytes(16))
    produce(wire, "zero", GOOD, version=13)
    produce(wire, "", GOOD)
    log(wire, topic)


@scenario
def produce_to_several_partitions_answers_each(wire: Wire) -> None:
    one, two = wire.topic("one", 2), wire.topic("two")
    partitions = {(one, 0): GOOD, (one, 1): GOOD[:-1], (two, 0): GOOD, (two, 5): GOOD}
    for version in (12, 13):
        wire.call(produce_request(wire, partitions), version)
    log(wire, one, 0)
    log(wire, one, 1)
    log(wire, two)


def _cut(length: int) -> bytes:
    """Return a batch whose length ends it inside its header."""
    return GOOD[:LENGTH] + _int32(length) + GOOD[12 : 12 + length]


@scenario
def produce_that_fails_as_a_whole(wire: Wire) -> None:
    topic = wire.topic(partitions=2)
    wire.forge_topic_id("unknown", unknown_topic_id())
    one, two = ProducerId(111_222_333, 0), ProducerId(111_222_334, 0)
    transactional = batch(b"x", producer=one, sequence=0, transactional=True)
    others = {(topic, 1): GOOD, (topic, 7): GOOD, ("unknown", 0): GOOD}
    for version in (12, 13):
        for length in (13, 14, 38, 39, 48):
            partitions = {(topic, 0): _cut(length), **others}
            wire.call(produce_request(wire, partitions), version, note=f"length {length}")
        for note, refused in (
            ("magic 3", GOOD[:MAGIC] + b"\3" + GOOD[MAGIC + 1 :]),
            ("no transactional id", transactional),
            ("not a batch", GOOD[:-1]),
        ):
            partitions = {(topic, 0): refused, **others}
            wire.call(produce_request(wire, partitions), version, note=note)
        wire.call(produce_request(wire, others, acks=2), version, note="acks")
        partitions = others | {
            (topic, 0): transactional,
            (topic, 1): batch(b"x", producer=two, sequence=0, transactional=True),
        }
        request = produce_request(wire, partitions, transactional_id=wire.name)
        wire.call(request, version, note="two transactional producers")
    log(wire, topic, 0)
    log(wire, topic, 1)


@scenario
def produce_to_a_partition_twice(wire: Wire) -> None:
    topic = wire.topic()
    for version in (12, 13):
        request = produce_request(wire, {(topic, 0): GOOD})
        request.topic_data += produce_request(wire, {(topic, 0): batch(b"last")}).topic_data
        wire.call(request, version, note="two topics")
        first, second = request.topic_data
        first.partition_data += second.partition_data
        request.topic_data = [first]
        wire.call(request, version, note="one topic")
    log(wire, topic)


@scenario
def produce_transactional_without_producer_id(wire: Wire) -> None:
    topic, records = wire.topic(), batch(b"x", transactional=True)
    for version in (11, 12):
        produce(wire, topic, records, version=version, transactional_id=wire.name)
    fetch(wire, topic, isolation_level=READ_COMMITTED)


@scenario
def produce_to_an_internal_topic(wire: Wire) -> None:
    wire.call(messages.FindCoordinatorRequest(key="group", key_type=0), 3)
    produce(wire, "__consumer_offsets", GOOD)


@scenario
def produce_without_any_topic(wire: Wire) -> None:
    wire.call(messages.ProduceRequest(acks=-1, timeout_ms=1000), 12)
