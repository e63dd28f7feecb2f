"""Properties of every message that a plan supports: the compiled readers and writers judge it.

Values come from seeds, as in test_protocol_properties; hostile bytes are its mutants.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from kbatch._native.io.struct_plan import StructPlan
from kbatch.errors import ProtocolError
from kbatch.protocol import codec, messages
from kbatch.protocol.messages import (
    FetchResponse,
    InitProducerIdRequest,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)
from kbatch.protocol.plans import plan_of
from kbatch.protocol.structs import Message
from tests.oracle.messages import random_message
from tests.property.test_protocol_properties import ALL_KINDS, SEEDS, encoded, mutants

HEAD = b"a header"


def framed(body: bytes) -> bytes:
    return (len(HEAD) + len(body)).to_bytes(4, "big") + HEAD + body


def sure_plan(kind: type[Message], version: int) -> StructPlan:
    plan = plan_of(kind, version)  # type: ignore[arg-type]
    assert plan is not None
    return plan


def planned(kind: type[Message]) -> Iterator[tuple[int, StructPlan]]:
    """Yield the versions with a plan."""
    for version in kind.versions:
        plan = plan_of(kind, version)  # type: ignore[arg-type]
        if plan is not None:
            yield version, plan


def written(message: Message, version: int) -> bytes | None:
    return sure_plan(type(message), version).frame(HEAD, message)


@ALL_KINDS
def test_a_plan_writes_what_the_writer_does_or_nothing(kind: type[Message]) -> None:
    for version, _ in planned(kind):
        for seed in SEEDS:
            message = random_message(kind, version, seed)
            assert written(message, version) in (None, framed(encoded(message, version))), (version, seed)


@ALL_KINDS
def test_a_plan_writes_nothing_that_the_version_cannot_hold(kind: type[Message]) -> None:
    newest = kind.versions[-1]
    for seed in SEEDS:
        message = random_message(kind, newest, seed)
        for version, _ in planned(kind):
            try:
                data = framed(encoded(message, version))
            except ProtocolError:
                assert written(message, version) is None, (version, seed)
            else:
                assert written(message, version) in (None, data), (version, seed)


@ALL_KINDS
def test_a_plan_reads_what_the_reader_does_or_nothing(kind: type[Message]) -> None:
    for version, plan in planned(kind):
        for seed in SEEDS:
            message = random_message(kind, version, seed)
            data = encoded(message, version)
            assert plan.read(b"front" + data, 5) in (None, (message, 5 + len(data))), (version, seed)
            assert plan.read(data, len(data) + 1) is plan.read(data, -1) is None


@ALL_KINDS
def test_plan_reads_hostile_bytes_as_the_reader_does(kind: type[Message]) -> None:
    for version, plan in planned(kind):
        for seed in range(2):
            data = encoded(random_message(kind, version, f"hostile {seed}"), version)
            for mutant in mutants(data, random.Random(f"{kind.__name__} {version} {seed} plans")):
                found = plan.read(mutant, 0)
                if found is not None:
                    message, end = found
                    assert codec.decode(kind, version, mutant[:end]) == message


# What must go by a plan, or there would be no use in them


def answer(**values: Any) -> ProduceResponse:
    partition = ProduceResponse.PartitionProduceResponse(index=1, base_offset=7, **values)
    topic = ProduceResponse.TopicProduceResponse(name="t", partition_responses=[partition])
    return ProduceResponse(responses=[topic])


def test_metadata_goes_by_a_plan() -> None:
    kind = MetadataResponse
    partitions = [
        kind.MetadataResponsePartition(partition_index=index, replica_nodes=[1, 2]) for index in range(300)
    ]
    topic = kind.MetadataResponseTopic(name="ü" * 100, topic_id=bytes(range(16)), partitions=partitions)
    message = kind(cluster_id=None, topics=[topic])
    for version in range(10, kind.versions.stop):
        data = encoded(message, version)
        plan = plan_of(kind, version)
        assert plan is not None
        assert plan.read(data, 0) == (message, len(data))


def test_messages_with_records_have_no_plan() -> None:
    for kind in (ProduceRequest, FetchResponse):
        assert all(plan_of(kind, version) is None for version in kind.versions)


def identity(**values: Any) -> InitProducerIdRequest:
    fields: dict[str, Any] = {"transactional_id": "id", "transaction_timeout_ms": 1000} | values
    return InitProducerIdRequest(**fields)


@pytest.mark.parametrize(
    "message",
    [
        identity(producer_epoch=2**15),
        identity(producer_epoch=-(2**15) - 1),
        identity(producer_id=2**70),
        identity(producer_id=1.0),
        identity(producer_id=None),
        identity(transactional_id="x" * 32_768),
        identity(transactional_id="\ud800"),
        identity(transactional_id=b"bytes"),
        MetadataRequest(allow_auto_topic_creation=1),  # type: ignore[arg-type]
        InitProducerIdRequest.__new__(InitProducerIdRequest),
        MetadataRequest(topics=()),  # type: ignore[arg-type]
        MetadataRequest(topics=[None]),  # type: ignore[list-item]
        MetadataRequest(topics=[identity()]),  # type: ignore[list-item]
    ],
)
def test_unusual_values_are_left_to_the_writer(message: Message) -> None:
    plan = sure_plan(type(message), type(message).versions[-1])
    assert plan.frame(HEAD, message) is None
    assert plan.frame(HEAD, answer()) is None


def test_a_tagged_field_is_left_to_writer_and_reader() -> None:
    noted = answer(current_leader=ProduceResponse.LeaderIdAndEpoch(leader_id=3, leader_epoch=4))
    assert written(noted, 12) is None
    plan = plan_of(ProduceResponse, 12)
    assert plan is not None
    assert plan.read(encoded(noted, 12), 0) is None
    (frame,) = codec.encode_response(noted, 12, 5)
    assert codec.decode_response(ProduceResponse, 12, bytes(frame[4:])) == (5, noted)


def test_what_is_read_is_not_shared() -> None:
    plan = plan_of(messages.MetadataResponse, 0)  # which lacks most fields
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
    plan = plan_of(ProduceResponse, 9)
    assert plan is not None
    found = plan.read(encoded(answer(), 9), 0)
    assert found is not None
    return found
