"""read_fetch_answer on answers of every version and on mutants: the reader of all messages judges it."""

from __future__ import annotations

import random

import pytest

from kbatch._native.fetch.fetch_answer import read_fetch_answer
from kbatch.errors import ProtocolError
from kbatch.protocol import codec
from kbatch.protocol.messages import FetchResponse
from tests.oracle.fetch_answers import expected_fields, fields_of
from tests.oracle.messages import random_message
from tests.property.test_protocol_properties import SEEDS, mutants

CORRELATION_ID = 77


def frame_of(message: FetchResponse, version: int) -> bytes:
    return b"".join(codec.encode_response(message, version, CORRELATION_ID))[4:]


@pytest.mark.parametrize("version", FetchResponse.versions)
def test_answers_are_read_as_the_protocol_says(version: int) -> None:
    read = 0
    for seed in SEEDS:
        message = random_message(FetchResponse, version, seed)
        frame = frame_of(message, version)
        answer = read_fetch_answer(frame, version)
        if answer is not None:
            read += 1
            assert fields_of(answer) == expected_fields(CORRELATION_ID, message, version)
    assert read == len(SEEDS)


def test_mutants_are_read_alike_or_not_at_all() -> None:
    choices = random.Random(1)
    outcomes = {"read": 0, "left": 0}
    for version in FetchResponse.versions:
        for seed in SEEDS:
            frame = frame_of(random_message(FetchResponse, version, seed), version)
            for mutant in mutants(frame, choices):
                answer = read_fetch_answer(mutant, version)
                outcomes["left" if answer is None else "read"] += 1
                if answer is not None:
                    correlation_id, message = codec.decode_response(FetchResponse, version, mutant)
                    assert fields_of(answer) == expected_fields(correlation_id, message, version)
    assert min(outcomes.values()) > 0, outcomes


def test_every_cut_is_left_to_the_other_reader() -> None:
    frame = frame_of(random_message(FetchResponse, 18, 1), 18)
    for size in range(len(frame)):
        assert read_fetch_answer(frame[:size], 18) is None
        with pytest.raises(ProtocolError):
            codec.decode_response(FetchResponse, 18, frame[:size])
    assert read_fetch_answer(frame + b"\0", 18) is None


@pytest.mark.parametrize("version", [3, 19, -1])
def test_unknown_versions_fall_back_to_codec(version: int) -> None:
    assert read_fetch_answer(frame_of(FetchResponse(), 18), version) is None


def test_records_are_views_of_the_frame() -> None:
    topics = [
        FetchResponse.FetchableTopicResponse(
            topic_id=bytes(16), partitions=[FetchResponse.PartitionData(records=b"records")]
        )
    ]
    frame = bytearray(frame_of(FetchResponse(responses=topics), 18))
    answer = read_fetch_answer(frame, 18)
    assert answer is not None
    (partition,) = answer.partitions
    assert partition.records is not None
    frame[frame.index(b"records")] = ord("R")
    assert bytes(partition.records) == b"Records"
