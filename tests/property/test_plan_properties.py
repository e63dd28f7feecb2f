"""Properties of every message that a plan supports: the compiled readers and writers judge it.

Values come from seeds, as in test_protocol_properties; hostile bytes are its mutants.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kbatch._native.io.struct_plan import StructPlan
from kbatch.errors import ProtocolError
from kbatch.protocol import codec, messages
from kbatch.protocol.messages import FetchResponse, MetadataResponse, ProduceRequest, ProduceResponse
from kbatch.protocol.plans import read_plan, write_plan
from kbatch.protocol.structs import Message
from tests.oracle.messages import random_message
from tests.property.test_protocol_properties import ALL_KINDS, SEEDS, encoded, mutants

HEAD = b"a header"


def framed(body: bytes) -> bytes:
    return (len(HEAD) + len(body)).to_bytes(4, "big") + HEAD + body


def plan_of(kind: type[Message], version: int) -> StructPlan:
    plan = write_plan(kind, version)
    assert plan is not None
    return plan


def planned(
    kind: type[Message], of: Callable[[type[Message], int], StructPlan | None]
) -> Iterator[tuple[int, StructPlan]]:
    """Yield the versions with a plan."""
    for version in kind.versions:
        plan = of(kind, version)
        if plan is not None:
            yield version, plan


def written(message: Message, version: int) -> bytes | None:
    pieces = plan_of(type(message), version).frame(HEAD, message, codec.JOINED_BYTES)
    return None if pieces is None else b"".join(pieces)


@ALL_KINDS
def test_a_plan_writes_what_the_writer_does_or_nothing(kind: type[Message]) -> None:
    for version, _ in planned(kind, write_plan):
        for seed in SEEDS:
            message = random_message(kind, version, seed)
            assert written(message, version) in (None, framed(encoded(message, version))), (version, seed)


@ALL_KINDS
def test_a_plan_writes_nothing_that_the_version_cannot_hold(kind: type[Message]) -> None:
    newest = kind.versions[-1]
    for seed in SEEDS:
        message = random_message(kind, newest, seed)
        for version, _ in planned(kind, write_plan):
            try:
                data = framed(encoded(message, version))
            except ProtocolError:
                assert written(message, version) is None, (version, seed)
            else:
                assert written(message, version) in (None, data), (version, seed)


@ALL_KINDS
def test_a_plan_reads_what_the_reader_does_or_nothing(kind: type[Message]) -> None:
    for version, plan in planned(kind, read_plan):
        for seed in SEEDS:
            message = random_message(kind, version, seed)
            data = encoded(message, version)
            assert plan.read(b"front" + data, 5) in (None, (message, 5 + len(data))), (version, seed)
            assert plan.read(data, len(data) + 1) is plan.read(data, -1) is None


@ALL_KINDS
def test_plan_reads_hostile_bytes_as_the_reader_does(kind: type[Message]) -> None:
    for version, plan in planned(kind, read_plan):
        for seed in range(2):
            data = encoded(random_message(kind, version, f"hostile {seed}"), version)
            for mutant in mutants(data, random.Random(f"{kind.__name__} {version} {seed} plans")):
                found = plan.read(mutant, 0)
                if found is not None:
                    message, end = found
                    assert codec.decode(kind, version, mutant[:end]) == message


# What must go by a plan, or there would be no use in them


def produce(records: Any, **values: Any) -> ProduceRequest:
    partition = ProduceRequest.PartitionProduceData(index=1, records=records)
    topic = ProduceRequest.TopicProduceData(name="t", topic_id=bytes(16), partition_data=[partition])
    return ProduceRequest(**{"acks": -1, "timeout_ms": 30_000, "topic_data": [topic], **values})


def answer(**values: Any) -> ProduceResponse:
    partition = ProduceResponse.PartitionProduceResponse(index=1, base_offset=7, **values)
    topic = ProduceResponse.TopicProduceResponse(name="t", partition_responses=[partition])
    return ProduceResponse(responses=[topic])


@pytest.mark.parametrize("version", ProduceRequest.versions)
def test_produce_goes_by_a_plan(version: int) -> None:
    request = produce(bytes(100), **({"transactional_id": "id"} if version >= 3 else {}))
    if version >= 13:
        request.topic_data[0].name = ""
    assert written(request, version) == framed(encoded(request, version))
    response = answer()
    if version >= 13:
        response.responses[0].name = ""
    data = encoded(response, version)
    plan = read_plan(ProduceResponse, version)
    assert plan is not None
    assert plan.read(data, 0) == (response, len(data))


def test_metadata_goes_by_a_plan() -> None:
    kind = MetadataResponse
    partitions = [
        kind.MetadataResponsePartition(partition_index=index, replica_nodes=[1, 2]) for index in range(300)
    ]
    topic = kind.MetadataResponseTopic(name="ü" * 100, topic_id=bytes(range(16)), partitions=partitions)
    message = kind(cluster_id=None, topics=[topic])
    for version in range(10, kind.versions.stop):
        data = encoded(message, version)
        plan = read_plan(kind, version)
        assert plan is not None
        assert plan.read(data, 0) == (message, len(data))


def test_large_records_are_handed_on_as_they_are() -> None:
    large, small = bytes(10_000), b"small"
    pieces = [memoryview(large), small, large]
    made = plan_of(ProduceRequest, 12).frame(HEAD, produce(pieces), 8192)
    assert made is not None
    assert b"".join(made) == framed(encoded(produce(pieces), 12))
    assert [piece for piece in made if len(piece) >= 8192] == [pieces[0], large]
    assert any(piece is pieces[0] for piece in made) and any(piece is large for piece in made)
    assert all(type(piece) is bytes for piece in made if piece is not pieces[0])
    (joined,) = plan_of(ProduceRequest, 12).frame(HEAD, produce([memoryview(b"view"), small]), 8192) or []
    assert type(joined) is bytes


def test_records_are_not_read_by_a_plan() -> None:
    assert all(read_plan(FetchResponse, version) is None for version in FetchResponse.versions)


@pytest.mark.parametrize(
    "message",
    [
        produce(memoryview(b"abcd").cast("H")),
        produce(memoryview(bytearray(8))[::2]),
        produce(bytearray(8)),
        produce([b"a", "b"]),
        produce("text"),
        produce(b"", acks=2**15),
        produce(b"", acks=-(2**15) - 1),
        produce(b"", acks=2**70),
        produce(b"", acks=1.0),
        produce(b"", acks=None),
        produce(b"", transactional_id="x" * 32_768),
        produce(b"", transactional_id="\ud800"),
        produce(b"", transactional_id=b"bytes"),
        produce(b"", topic_data=()),
        produce(b"", topic_data=None),
        produce(b"", topic_data=[None]),
        produce(b"", topic_data=[answer()]),
        ProduceRequest.__new__(ProduceRequest),
        answer(),
    ],
)
def test_what_is_not_usual_is_left_to_the_writer(message: Message) -> None:
    assert plan_of(ProduceRequest, 12).frame(HEAD, message, 8192) is None


def test_a_tagged_field_is_left_to_writer_and_reader() -> None:
    noted = answer(current_leader=ProduceResponse.LeaderIdAndEpoch(leader_id=3, leader_epoch=4))
    assert written(noted, 12) is None
    plan = read_plan(ProduceResponse, 12)
    assert plan is not None
    assert plan.read(encoded(noted, 12), 0) is None
    (frame,) = codec.encode_response(noted, 12, 5)
    assert codec.decode_response(ProduceResponse, 12, bytes(frame[4:])) == (5, noted)


def test_what_is_read_is_not_shared() -> None:
    plan = read_plan(messages.MetadataResponse, 0)  # which lacks most fields
    assert plan is not None
    data = encoded(MetadataResponse(), 0)
    first, second = plan.read(data, 0), plan.read(data, 0)
    assert first is not None and second is not None
    first[0].brokers.append(1)
    assert second[0].brokers == []
    one, other = (
        found[0].responses[0].partition_responses[0].current_leader
        for found in (read_plan_of_answer(), read_plan_of_answer())
    )
    assert one == other and one is not other


def read_plan_of_answer() -> tuple[Any, int]:
    plan = read_plan(ProduceResponse, 9)
    assert plan is not None
    found = plan.read(encoded(answer(), 9), 0)
    assert found is not None
    return found
