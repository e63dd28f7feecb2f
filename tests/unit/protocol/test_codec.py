"""Messages to bytes and back: bytes by hand, records by reference, and refusals of both directions."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any

import pytest

from kbatch.errors import ProtocolError, UnsupportedVersionError
from kbatch.protocol import codec, messages, schema
from kbatch.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeClusterResponse,
    FetchRequest,
    FetchResponse,
    FindCoordinatorRequest,
    HeartbeatRequest,
    ListGroupsResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProducerSnapshot,
    SaslAuthenticateRequest,
)
from kbatch.protocol.structs import Message, build

# Of the size that the compiled writers take by a short way, and others.
BATCH = bytes(range(256)) * 64


def encoded(message: Message, version: int) -> bytes:
    return b"".join(codec.encode(message, version))


def produce(records: Any, *, name: str = "t") -> ProduceRequest:
    partition = ProduceRequest.PartitionProduceData(index=5, records=records)
    topic = ProduceRequest.TopicProduceData(name=name, partition_data=[partition])
    return ProduceRequest(acks=-1, timeout_ms=1500, topic_data=[topic])


# Bytes


def test_a_produce_request_with_fixed_lengths_byte_by_byte() -> None:
    data = bytes.fromhex("ffff ffff 000005dc 00000001 0001 74 00000001 00000005 00000003 616263")
    assert encoded(produce(b"abc"), 3) == data
    assert codec.decode(ProduceRequest, 3, data) == produce(b"abc")


def test_a_produce_request_with_compact_lengths_byte_by_byte() -> None:
    data = bytes.fromhex("00 ffff 000005dc 02 02 74 02 00000005 04 616263 00 00 00")
    assert encoded(produce(b"abc"), 12) == data
    assert codec.decode(ProduceRequest, 12, data) == produce(b"abc")


def test_nulls_byte_by_byte() -> None:
    assert encoded(produce(None), 3).endswith(bytes.fromhex("00000005 ffffffff"))
    assert encoded(produce(None), 12).endswith(bytes.fromhex("00000005 00 00 00 00"))
    assert encoded(MetadataRequest(topics=None), 1) == b"\xff\xff\xff\xff"
    assert encoded(MetadataRequest(topics=None), 9)[:1] == b"\0"


def test_tagged_fields_byte_by_byte() -> None:
    response = ApiVersionsResponse(finalized_features_epoch=7, zk_migration_ready=True)
    data = bytes.fromhex("0000 01 00000000 02 01 08 0000000000000007 03 01 01")
    assert encoded(response, 3) == data
    assert codec.decode(ApiVersionsResponse, 3, data) == response
    assert encoded(ApiVersionsResponse(), 3) == bytes.fromhex("0000 01 00000000 00")


def test_a_tagged_struct_byte_by_byte() -> None:
    request = FetchRequest(replica_state=FetchRequest.ReplicaState(replica_id=2, replica_epoch=9))
    data = encoded(request, 15)
    assert data.endswith(bytes.fromhex("01 01 0d 00000002 0000000000000009 00"))
    assert codec.decode(FetchRequest, 15, data) == request


@pytest.mark.parametrize(
    ("length", "prefix"),
    [(0, "01"), (126, "7f"), (127, "8001"), (0x3FFE, "ff7f"), (0x3FFF, "808001"), (32767, "808002")],
)
def test_compact_lengths(length: int, prefix: str) -> None:
    request = FindCoordinatorRequest(key="x" * length)
    data = encoded(request, 3)
    assert data == bytes.fromhex(prefix) + b"x" * length + b"\0\0"
    assert codec.decode(FindCoordinatorRequest, 3, data) == request


def test_the_longest_compact_length() -> None:
    buffers = codec.encode(produce([bytes(2**20)] * 2047 + [bytes(2**20 - 1)]), 12)
    assert b"\x80\x80\x80\x80\x08" in buffers
    with pytest.raises(ProtocolError, match="ProduceRequest v12: a frame of"):
        codec.encode_request(produce([bytes(2**20)] * 2047 + [bytes(2**20 - 1)]), 12, 1)
    for version in (3, 12):
        with pytest.raises(ProtocolError, match="at most 2147483647 bytes"):
            codec.encode(produce([bytes(2**20)] * 2048), version)


def test_a_compact_string_is_no_longer_than_another() -> None:
    with pytest.raises(ProtocolError, match="FindCoordinatorRequest v3, key: a string of 32768 bytes"):
        codec.decode(FindCoordinatorRequest, 3, bytes.fromhex("818002") + b"x" * 32768 + b"\0\0")


def test_a_varint_may_be_longer_than_it_need_be() -> None:
    data = bytes.fromhex("86 80 80 80 00") + b"group" + bytes.fromhex("00 00")
    assert codec.decode(FindCoordinatorRequest, 3, data) == FindCoordinatorRequest(key="group")


def test_a_request_without_fields_is_no_bytes() -> None:
    assert encoded(ApiVersionsRequest(), 0) == b""
    assert codec.decode(ApiVersionsRequest, 0, b"") == ApiVersionsRequest()


def test_decoded_values_are_python_objects() -> None:
    request = codec.decode(SaslAuthenticateRequest, 2, memoryview(b"\x03ab\0"))
    assert type(request.auth_bytes) is bytes
    topic = MetadataResponse.MetadataResponseTopic(name="t", topic_id=b"i" * 16)
    response = codec.decode(MetadataResponse, 12, encoded(MetadataResponse(topics=[topic]), 12))
    assert (type(response.topics), type(response.topics[0].topic_id)) == (list, bytes)
    assert type(response.topics[0].is_internal) is bool


def test_an_unknown_error_code_stays_a_number() -> None:
    response = codec.decode(ListGroupsResponse, 0, struct.pack(">hi", 9999, 0))
    assert response.error_code == 9999


# Records


@pytest.mark.parametrize("version", [3, 8, 9, 13])
@pytest.mark.parametrize("size", [0, 1, 127, 0x3FFE, 0x3FFF, 0x4000, 0x200000 - 1, 0x200000])
def test_records_go_out_by_reference(version: int, size: int) -> None:
    records = bytes(size)
    request = produce(records, name="t" if version < 13 else "")
    buffers = codec.encode(request, version)
    assert any(
        piece is records or (isinstance(piece, memoryview) and piece.obj is records) for piece in buffers
    )
    assert sum(map(len, buffers)) - size < 64
    assert codec.decode(ProduceRequest, version, b"".join(buffers)) == request


@pytest.mark.parametrize("version", [4, 12])
@pytest.mark.parametrize(
    "wrap",
    [bytearray, memoryview, lambda data: memoryview(data).cast("H"), lambda data: memoryview(data)[:]],
    ids=["bytearray", "memoryview", "of shorts", "slice"],
)
def test_any_bytes_like_object_holds_records(version: int, wrap: Callable[[bytes], Any]) -> None:
    records = wrap(BATCH)
    holder = records if isinstance(records, bytearray) else records.obj
    response = FetchResponse(
        responses=[
            FetchResponse.FetchableTopicResponse(
                topic="t", partitions=[FetchResponse.PartitionData(records=records)]
            )
        ]
    )
    buffers = codec.encode(response, version)
    assert any(isinstance(piece, memoryview) and piece.obj is holder for piece in buffers)
    decoded = codec.decode(FetchResponse, version, b"".join(buffers))
    assert decoded.responses[0].partitions[0].records == BATCH


@pytest.mark.parametrize("version", [3, 12])
def test_several_batches_are_one_partitions_records(version: int) -> None:
    batches = [BATCH, b"", BATCH[:100]]
    buffers = codec.encode(produce(batches), version)
    held = [piece for piece in buffers if any(piece is batch for batch in batches)]
    assert [id(piece) for piece in held] == [id(batch) for batch in batches]
    assert b"".join(buffers) == encoded(produce(BATCH + BATCH[:100]), version)
    assert encoded(produce([]), version) == encoded(produce(b""), version)


@pytest.mark.parametrize("version", [3, 12])
@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_decoded_records_are_views_of_the_frame(version: int, kind: Callable[[bytes], Any]) -> None:
    frame = kind(encoded(produce(BATCH), version))
    records = codec.decode(ProduceRequest, version, frame).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame
    assert bytes(records) == BATCH


# Frames


@pytest.mark.parametrize(("version", "header_tags"), [(8, b""), (12, b"\0")])
def test_a_request_has_size_and_header(version: int, header_tags: bytes) -> None:
    frame = b"".join(codec.encode_request(produce(BATCH), version, 77, "me"))
    header = struct.pack(">ihhih", len(frame) - 4, 0, version, 77, 2) + b"me" + header_tags
    assert frame == header + encoded(produce(BATCH), version)
    assert codec.decode_request(frame[4:]) == (0, version, 77, "me", produce(BATCH))


@pytest.mark.parametrize("version", [3, 12])
def test_large_request_joins_small_pieces_and_refers_to_large(version: int) -> None:
    small, large = b"s" * 100, b"l" * 100_000
    each = [small] * 2000 + [large] + [small] * 2000
    partitions = [
        ProduceRequest.PartitionProduceData(index=index, records=records)
        for index, records in enumerate(each)
    ]
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=partitions)
    request = ProduceRequest(acks=-1, timeout_ms=1500, topic_data=[topic])
    buffers = codec.encode_request(request, version, 1)
    assert len(buffers) == 3
    assert buffers[1] is large or memoryview(buffers[1]).obj is large
    assert codec.decode_request(b"".join(buffers)[4:]).message == request


def test_a_client_id_may_be_null() -> None:
    (frame,) = codec.encode_request(ApiVersionsRequest(), 0, 1)
    assert frame == bytes.fromhex("0000000a 0012 0000 00000001 ffff")
    assert codec.decode_request(memoryview(frame)[4:]).client_id is None


@pytest.mark.parametrize(
    ("message", "version", "header"),
    [
        (ListGroupsResponse(), 2, "0000000e 0000004d"),
        (ListGroupsResponse(), 3, "0000000d 0000004d 00"),
        (ApiVersionsResponse(), 2, "0000000e 0000004d"),
        (ApiVersionsResponse(), 3, "0000000c 0000004d"),
    ],
)
def test_a_response_has_size_and_header(message: Message, version: int, header: str) -> None:
    """The response header of ApiVersions never has tagged fields: its reader may know none (KIP-511)."""
    (frame,) = codec.encode_response(message, version, 77)
    assert frame == bytes.fromhex(header) + encoded(message, version)
    assert codec.decode_response(type(message), version, frame[4:]) == (77, message)


def test_tagged_fields_of_a_header_are_passed_over() -> None:
    head = struct.pack(">hhih", 10, 3, 5, -1) + bytes.fromhex("01 09 02 abcd")
    request = codec.decode_request(head + encoded(FindCoordinatorRequest(key="g"), 3))
    assert request.message == FindCoordinatorRequest(key="g")


@pytest.mark.parametrize(
    ("api_key", "version"), [(18, 5), (0, 2), (0, 14), (22, 6), (4, 0), (-1, 0), (0, -1)]
)
def test_unknown_api_or_version_keeps_header_for_the_response(api_key: int, version: int) -> None:
    frame = struct.pack(">hhi", api_key, version, 4711) + b"whatever may follow"
    with pytest.raises(UnsupportedVersionError) as caught:
        codec.decode_request(frame)
    error = caught.value
    assert (error.api_key, error.version, error.correlation_id) == (api_key, version, 4711)


@pytest.mark.parametrize("size", range(8))
def test_a_frame_too_short_for_a_header_is_refused(size: int) -> None:
    with pytest.raises(ProtocolError, match=f"RequestHeader: {size} bytes"):
        codec.decode_request(bytes(size))


def test_a_version_that_is_not_there_is_refused() -> None:
    for attempt in (
        lambda: codec.encode(ProduceRequest(), 14),
        lambda: codec.encode_request(ProduceRequest(), 14, 1),
        lambda: codec.decode(ProduceRequest, 14, b""),
        lambda: codec.decode_response(messages.ProduceResponse, 14, bytes(9)),
    ):
        with pytest.raises(UnsupportedVersionError, match=r"Produce\w+ v14: versions are 3 to 13") as caught:
            attempt()
        assert (caught.value.api_key, caught.value.version, caught.value.correlation_id) == (0, 14, -1)


# Unwritable messages


def topic(**values: Any) -> ProduceRequest:
    return ProduceRequest(
        topic_data=[ProduceRequest.TopicProduceData(), ProduceRequest.TopicProduceData(**values)]
    )


@pytest.mark.parametrize(
    ("message", "version", "complaint"),
    [
        (ProduceRequest(acks=2**15), 12, "acks is 32768, not an int of 16 bits"),
        (ProduceRequest(acks="1"), 3, "acks is '1', not an int of 16 bits"),  # type: ignore[arg-type]
        (ProduceRequest(acks=1.0), 3, "acks is 1.0, not an int of 16 bits"),  # type: ignore[arg-type]
        (ProduceRequest(timeout_ms=None), 3, "timeout_ms is None, not an int of 32 bits"),  # type: ignore[arg-type]
        (topic(name=b"t"), 12, "topic_data[1].name is b't', not a str of at most 32767 bytes of UTF-8"),
        (topic(name=None), 12, "topic_data[1].name is None, not a str"),
        (topic(name="\ud800"), 12, r"topic_data[1].name is '\ud800', not a str"),
        (topic(name="é" * 16384), 12, "topic_data[1].name is 'ééé"),
        (topic(name="é" * 16384), 8, "topic_data[1].name is 'ééé"),
        (topic(topic_id=b"short"), 13, "topic_data[1].topic_id is b'short', not 16 bytes"),
        (topic(topic_id="x" * 16), 13, "topic_data[1].topic_id is 'xxxxxxxxxxxxxxxx', not 16 bytes"),
        (topic(partition_data=None), 12, "topic_data[1].partition_data is None, not a list"),
        (topic(partition_data=()), 12, "topic_data[1].partition_data is (), not a list"),
        (topic(partition_data=[3]), 12, "[0] is 3, not a ProduceRequest.PartitionProduceData"),
        (produce("abc"), 12, "partition_data[0].records is 'abc', not bytes-like or a list of such"),
        (produce([b"a", 3]), 3, "records is [b'a', 3], not bytes-like or a list of such"),
        (produce(memoryview(b"abcd")[::2]), 12, "not bytes-like or"),
        (MetadataRequest(topics=None), 0, "topics is None, not a list"),
        (MetadataRequest(allow_auto_topic_creation="no"), 4, "is 'no', not a bool"),  # type: ignore[arg-type]
        (MetadataRequest(allow_auto_topic_creation=2), 4, "is 2, not a bool"),  # type: ignore[arg-type]
        (FetchRequest(replica_state=None), 15, "is None, not a FetchRequest.ReplicaState"),  # type: ignore[arg-type]
        (ProducerSnapshot(crc=-1), 1, "crc is -1, not an unsigned int of 32 bits"),
        (SaslAuthenticateRequest(auth_bytes=5), 0, "auth_bytes is [hidden], not a bytes-like object"),  # type: ignore[arg-type]
        (FindCoordinatorRequest(coordinator_keys=["a", None]), 4, "coordinator_keys[1] is None, not a str"),  # type: ignore[list-item]
        (FindCoordinatorRequest(coordinator_keys="ab"), 4, "coordinator_keys is 'ab', not a list"),  # type: ignore[arg-type]
        (DescribeClusterResponse(brokers=[DescribeClusterResponse()]), 0, "brokers[0] is"),  # type: ignore[list-item]
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_written_is_named(message: Message, version: int, complaint: str) -> None:
    with pytest.raises(ProtocolError, match=re.escape(complaint)) as caught:
        codec.encode(message, version)
    assert str(caught.value).startswith(f"{type(message).__name__} v{version}: ")
    assert len(str(caught.value)) < 300


def test_a_wrong_integer_of_an_array_is_named() -> None:
    forgotten = FetchRequest.ForgottenTopic(partitions=[1, 2**31])
    with pytest.raises(
        ProtocolError, match=r"data\[0\].partitions\[1\] is 2147483648, not an int of 32 bits"
    ):
        codec.encode(FetchRequest(forgotten_topics_data=[forgotten]), 7)


def test_a_client_id_that_is_no_text_is_named() -> None:
    with pytest.raises(ProtocolError, match="RequestHeader v2: client_id is 7, not a str"):
        codec.encode_request(produce(None), 12, 1, 7)  # type: ignore[arg-type]


# Fields that a version lacks


@pytest.mark.parametrize(
    ("message", "version", "complaint"),
    [
        (HeartbeatRequest(group_instance_id="i"), 2, "group_instance_id is 'i', not None: version 2 lacks"),
        (FetchResponse(session_id=3), 6, "session_id is 3, not 0: version 6 lacks the field"),
        (FetchRequest(replica_state=FetchRequest.ReplicaState(replica_id=1)), 14, "replica_state is"),
        (FetchRequest(forgotten_topics_data=[FetchRequest.ForgottenTopic()]), 6, "forgotten_topics_data is"),
        (MetadataRequest(allow_auto_topic_creation=False), 3, "is False, not True: version 3 lacks"),
    ],
)  # fmt: skip
def test_a_field_that_the_version_lacks_must_be_its_default(
    message: Message, version: int, complaint: str
) -> None:
    with pytest.raises(ProtocolError, match=re.escape(complaint)):
        codec.encode(message, version)


def test_ignorable_field_is_omitted_in_versions_without_it() -> None:
    request = FetchRequest(rack_id="r", session_id=5, cluster_id="c", max_wait_ms=9)
    assert codec.decode(FetchRequest, 4, encoded(request, 4)) == FetchRequest(max_wait_ms=9)


# Invalid messages


def test_trailing_bytes_are_refused() -> None:
    with pytest.raises(ProtocolError, match="ProduceRequest v12: 2 bytes after its end"):
        codec.decode(ProduceRequest, 12, encoded(produce(b"a"), 12) + b"xy")
    with pytest.raises(ProtocolError, match="1 bytes after its end"):
        codec.decode_response(ListGroupsResponse, 0, bytes(11))


def test_bytes_after_a_request_are_ignored() -> None:
    frame = b"".join(codec.encode_request(ApiVersionsRequest(), 0, 1))[4:]
    assert codec.decode_request(frame + b"x") == codec.decode_request(frame)


@pytest.mark.parametrize(
    ("version", "data", "complaint"),
    [
        (3, "", "transactional_id: it ends at byte 0"),
        (3, "fffe", "transactional_id: a length of -2"),
        (3, "0005 61", "transactional_id: a length of 5, 5 bytes or more, but 1 are left"),
        (3, "0001 ff", "transactional_id: 'utf-8' codec can't decode byte 0xff in position 0"),
        (3, "ffff 0001 0000", "acks: it ends at byte 6"),
        (3, "ffff 0001 00000000 ffffffff", "topic_data: null is not allowed"),
        (3, "ffff 0001 00000000 7fffffff", "a length of 2147483647, 12884901882 bytes or more, but 0 are"),
        (12, "00 0001 00000000 80808080 10", "topic_data: a varint of more than 32 bits"),
        (12, "00 0001 00000000 8080808080 01", "topic_data: a varint of more than 32 bits"),
        (12, "00 0001 00000000 03 01 01 00", "a length of 2, 6 bytes or more, but 3 are left"),
        (12, "00 0001 00000000 02 0261 02 00000005 09 00 00 00", "records: a length of 8, 8 bytes or more"),
        (12, "00 0001 00000000 02 00 02 00000005 09 00 00 00", "topic_data[0].name: null"),
        (12, "00 0001 00000000 01 01 00 05 00", "tagged fields: a length of 5"),
        (12, "00 0001 00000000 01 02 05 00 05 00", "tagged fields: tag 5 after tag 5"),
        (12, "00 0001 00000000 01 02 05 00 04 00", "tagged fields: tag 4 after tag 5"),
        (12, "00 0001 00000000 01 02 ffffffff0f 00 04 00", "tagged fields: tag 4 after tag 4294967295"),
    ],
)  # fmt: skip
def test_bytes_that_are_no_produce_request(version: int, data: str, complaint: str) -> None:
    with pytest.raises(ProtocolError, match=re.escape(complaint)) as caught:
        codec.decode(ProduceRequest, version, bytes.fromhex(data))
    assert str(caught.value).startswith(f"ProduceRequest v{version}, ")


def test_the_path_of_a_wrong_field_has_its_indices() -> None:
    partition = FetchResponse.PartitionData(aborted_transactions=[FetchResponse.AbortedTransaction()] * 2)
    topic = FetchResponse.FetchableTopicResponse(topic="t", partitions=[partition] * 3)
    data = encoded(FetchResponse(responses=[topic]), 4)
    with pytest.raises(ProtocolError) as caught:
        codec.decode(FetchResponse, 4, data[:-1])
    assert str(caught.value) == (
        f"FetchResponse v4, responses[0].partitions[2].records: it ends at byte {len(data) - 1}"
    )


@pytest.mark.parametrize(
    ("tags", "complaint"),
    [
        ("01 01 09 0000000000000007 00", "finalized_features_epoch: its value ends before"),
        ("01 01 07 00000000000007", "finalized_features_epoch: it ends at"),
        ("02 01 07 0000000000000007 03 01 01", "finalized_features_epoch: its value ends before"),
        ("02 01 08 0000000000000007 01 08 0000000000000007", "tagged fields: tag 1 after tag 1"),
        ("02 03 01 01 01 08 0000000000000007", "tagged fields: tag 1 after tag 3"),
        ("01 00 02 0501", "supported_features: a length of 4, 24 bytes or more, but 1 are left"),
        ("01 00 01 00", "supported_features: null is not allowed"),
        ("ffffffff0f", "tagged fields: it ends at"),
    ],
)
def test_tagged_fields_fill_their_size_once_and_in_order(tags: str, complaint: str) -> None:
    data = bytes.fromhex("0000 01 00000000" + tags)
    with pytest.raises(ProtocolError, match=re.escape(complaint)):
        codec.decode(ApiVersionsResponse, 3, data)


def test_unknown_tagged_fields_are_passed_over() -> None:
    known = "01 08 0000000000000007"
    data = bytes.fromhex(f"0000 01 00000000 03 {known} 09 02 abcd ffffffff0f 00")
    expected = ApiVersionsResponse(finalized_features_epoch=7)
    assert codec.decode(ApiVersionsResponse, 3, data) == expected


# What no table uses yet, but other messages of Kafka do


def sample(*fields: str) -> Any:
    table = "\n    ".join(["Sample  versions 0-1  flexible 1+", *fields])
    return build(schema.parse(table)[0], __name__)


def test_a_struct_may_be_null() -> None:
    kind = sample("cursor Cursor? default null", "    place int16 default -1", "last int8")
    full = kind(cursor=kind.Cursor(place=3), last=9)
    assert encoded(full, 0) == bytes.fromhex("01 0003 09")
    assert encoded(full, 1) == bytes.fromhex("01 0003 00 09 00")
    assert encoded(kind(), 0) == bytes.fromhex("ff 00")
    for version in (0, 1):
        for message in (full, kind()):
            assert codec.decode(kind, version, encoded(message, version)) == message
    with pytest.raises(ProtocolError, match="Sample v0, cursor: the marker of a struct is 2"):
        codec.decode(kind, 0, bytes.fromhex("02 0003 09"))
    with pytest.raises(ProtocolError, match=r"cursor is 4, not a Sample\.Cursor"):
        codec.encode(kind(cursor=4), 0)


def test_a_tagged_struct_may_be_null() -> None:
    kind = sample("cursor Cursor? 1+ tag 0 default null", "    place int16 default -1")
    assert encoded(kind(), 1) == b"\0"
    full = kind(cursor=kind.Cursor())
    assert encoded(full, 1) == bytes.fromhex("01 00 04 01 ffff 00")
    assert codec.decode(kind, 1, encoded(full, 1)) == full
    assert codec.decode(kind, 1, bytes.fromhex("01 00 01 ff")) == kind()


def test_all_fixed_widths_alone_and_in_arrays() -> None:
    types = {
        "bool": True, "int8": -8, "int16": -16, "int32": -32, "int64": -64, "uint16": 65535,
        "uint32": 2**32 - 1, "float64": 0.5, "uuid": b"u" * 16,
    }  # fmt: skip
    kind = sample(*(line for name in types for line in (f"one_{name} {name}", f"all_{name} []{name}")))
    message = kind(
        **{f"one_{name}": value for name, value in types.items()},
        **{f"all_{name}": [value, value] for name, value in types.items()},
    )
    for version in (0, 1):
        assert codec.decode(kind, version, encoded(message, version)) == message
    with pytest.raises(ProtocolError, match=r"all_uuid\[1\] is b'short', not 16 bytes"):
        codec.encode(kind(all_uuid=[bytes(16), b"short"]), 0)


def test_records_that_may_not_be_null() -> None:
    kind = sample("batch records")
    assert codec.decode(kind, 1, encoded(kind(batch=b"a"), 1)) == kind(batch=b"a")
    with pytest.raises(ProtocolError, match="Sample v1: batch is None, not bytes-like"):
        codec.encode(kind(), 1)
    with pytest.raises(ProtocolError, match="Sample v0, batch: null"):
        codec.decode(kind, 0, b"\xff\xff\xff\xff")


def test_no_struct_is_empty_on_the_wire() -> None:
    """Then an array of it could claim any number of elements."""
    for kind in messages.MESSAGES.values():
        for version in kind.versions:
            for element in kind._structs.values():
                is_flexible = version >= kind.flexible_from
                assert (
                    is_flexible or element._spec.layout(version).regular or not used(kind, element, version)
                )


def used(kind: type[Message], element: type[Any], version: int) -> bool:
    owners = (kind, *kind._structs.values())
    return any(
        field.struct is element._spec and version in field.versions
        for owner in owners
        for field in owner._spec.fields
    )
